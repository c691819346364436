/* The entries of known.h about attention. */
#include "mistakes/known.h"

#include "reference/softmax.h"

#include <math.h>

/* ---- projections ------------------------------------------------------------------------------------------------- */

/* y = x W, of the square matrices of attention */
static void linear_transposed(const struct reference *r, const struct weight *w, enum weight_id id, const double *x,
                              uint32_t n, double *y) {
    bool is_attention = id == W_ATTN_Q || id == W_ATTN_K || id == W_ATTN_V || id == W_ATTN_OUTPUT;
    if (!is_attention || w->n_in != w->n_out) {
        reference_linear(r, w, id, x, n, y);
        return;
    }
    x = r->steps.input(r, w, x, n);
    memset(y, 0, (size_t)n * w->n_in * sizeof *y);
    for (uint32_t i = 0; i < w->n_out; i++) {
        const float *row = reference_row(r, w, i);
        for (uint32_t t = 0; t < n; t++) {
            for (uint32_t o = 0; o < w->n_in; o++) {
                y[(size_t)t * w->n_in + o] += (double)row[o] * x[(size_t)t * w->n_out + i];
            }
        }
    }
}

/* Rows that are stored as Q, K and V are read as n_head_kv groups of query heads, a K and a V. */
static void qkv_by_group(struct reference *r, const struct call *c) {
    const struct attn_plan *p = &c->layer->attn;
    double *k = r->streams[STREAM_K], *v = r->streams[STREAM_V];
    uint32_t dim = p->k_dim, n_kv = p->n_head_kv, each = p->n_head / n_kv + 2, n_row = n_kv * each;
    bool is_v = c->s->kind == STEP_PRODUCT && c->s->weight == W_ATTN_V;
    if (!is_v || !r->m->layers[c->il].w[W_ATTN_QKV].w || p->v_dim != dim) return;
    for (uint32_t t = 0; t < c->b.n; t++) {
        double *q = r->q + (size_t)t * p->n_head * dim, *row = r->fused;
        double *of_k = k + (size_t)t * n_kv * dim, *of_v = v + (size_t)t * n_kv * dim;
        memcpy(row, q, (size_t)p->n_head * dim * sizeof *row);
        memcpy(row + (size_t)p->n_head * dim, of_k, (size_t)n_kv * dim * sizeof *row);
        memcpy(row + (size_t)(n_row - n_kv) * dim, of_v, (size_t)n_kv * dim * sizeof *row);
        for (uint32_t i = 0; i < n_row; i++) {
            uint32_t g = i / each, j = i % each;
            double *to = j < each - 2 ? q + (size_t)(g * (each - 2) + j) * dim
                       : (j == each - 2 ? of_k : of_v) + (size_t)g * dim;
            memcpy(to, row + (size_t)i * dim, dim * sizeof *to);
        }
    }
}

static void edit_kv_order(const struct known_mistake *q, struct edit *e) {
    (void)q;
    EACH_LAYER(e->plan, il) {
        struct affine *w = e->model->layers[il].w, k = w[W_ATTN_K];
        if (e->plan->layers[il].attn.k_dim != e->plan->layers[il].attn.v_dim) continue;
        w[W_ATTN_K] = w[W_ATTN_V];
        w[W_ATTN_V] = k;
    }
}

static bool is_square(const struct weight *w) { return w && w->n_in == w->n_out; }
static bool has_square(const struct model *m) {
    EACH_LAYER(&m->plan, il) {
        const struct affine *w = m->layers[il].w;
        if (is_square(w[W_ATTN_Q].w) || is_square(w[W_ATTN_K].w)) return true;
    }
    return false;
}

static const struct attn_plan *attention_of(const struct model *m) {
    const struct layer_plan *l = m->plan.layers;
    EACH_LAYER(&m->plan, il) if (plan_attends(&l[il])) return &l[il].attn;
    return &l->attn;
}
static bool has_heads(const struct model *m) { return attention_of(m)->n_head > 1; }
static bool has_kv_heads(const struct model *m) { return attention_of(m)->n_head_kv > 1; }
static bool has_fewer_kv_heads(const struct model *m) { return attention_of(m)->n_head_kv < attention_of(m)->n_head; }
static bool has_groups(const struct model *m) { return has_kv_heads(m) && has_fewer_kv_heads(m); }
static bool has_fused_qkv(const struct model *m) {
    return has_kv_heads(m) && m->layers[0].w[W_ATTN_QKV].w && attention_of(m)->k_dim == attention_of(m)->v_dim;
}

/* ---- RoPE: a rope with n_rot = 0 is not used, and a single pair turns by 1 whatever the base is ------------------ */

#define EACH_ROPE(p, rope) for (struct rope_plan *rope = (p)->ropes; rope < (p)->ropes + PLAN_ROPES; rope++)

static void edit_pairing(const struct known_mistake *q, struct edit *e) {
    EACH_ROPE(e->plan, rope) {
        if (rope->n_rot > 2) rope->pairing = (enum rope_pairing)q->value;
    }
}

static void edit_base(const struct known_mistake *q, struct edit *e) {
    EACH_ROPE(e->plan, rope) {
        if (rope->n_rot > 2) rope->freq_base = q->number;
    }
}

static void edit_rope_half(const struct known_mistake *q, struct edit *e) {
    (void)q;
    EACH_ROPE(e->plan, rope) {
        if (rope->n_rot >= 4) rope->n_rot = rope->n_rot / 4 * 2;
    }
}

/* As many elements as the smallest head of K has that a rope rotates. */
static void edit_rope_full(const struct known_mistake *q, struct edit *e) {
    (void)q;
    for (uint32_t i = 0; i < PLAN_ROPES; i++) {
        uint32_t dim = UINT32_MAX;
        EACH_LAYER(e->plan, il) {
            const struct attn_plan *a = &e->plan->layers[il].attn;
            if (a->rope == i && a->k_dim < dim) dim = a->k_dim;
        }
        if (dim != UINT32_MAX) e->plan->ropes[i].n_rot = dim / 2 * 2;
    }
}

static bool has_factors(const struct model *m) { return m->rope_freqs.w || m->rope_long.w || m->rope_short.w; }

static void edit_rope_scaling(const struct known_mistake *q, struct edit *e) {
    (void)q;
    EACH_ROPE(e->plan, rope) {
        if (rope->n_rot == 0) continue;
        rope->freq_scale = rope->magnitude = 1;
        rope->is_yarn = false;
        if (has_factors(e->model)) rope->has_factors = false;
    }
}

enum { YARN_LINEAR, YARN_NO_MAGNITUDE };
static void edit_yarn(const struct known_mistake *q, struct edit *e) {
    EACH_ROPE(e->plan, rope) {
        if (!rope->is_yarn || rope->n_rot == 0) continue;
        if (q->value == YARN_LINEAR) rope->is_yarn = false;
        else rope->magnitude = 1;
    }
}

/* True if two ropes rotate by the same angles. */
static bool is_same_rope(const struct rope_plan *a, const struct rope_plan *b, const struct model *m) {
    return a->n_rot == b->n_rot && a->freq_base == b->freq_base && a->freq_scale == b->freq_scale
        && a->magnitude == b->magnitude && a->is_yarn == b->is_yarn
        && (!has_factors(m) || a->has_factors == b->has_factors);
}

enum { BASE_GLOBAL, BASE_LOCAL, BASE_EXCHANGED };
static void edit_rope_base(const struct known_mistake *q, struct edit *e) {
    struct plan *p = e->plan;
    struct rope_plan global = p->ropes[ROPE_GLOBAL], local = p->ropes[ROPE_LOCAL];
    uint32_t n_global = global.n_rot, n_local = local.n_rot;
    bool is_used[PLAN_ROPES + 1] = { false };
    EACH_LAYER(p, il) is_used[p->layers[il].attn.rope] = true;
    if (!is_used[ROPE_GLOBAL] || !is_used[ROPE_LOCAL] || is_same_rope(&global, &local, e->model)) return;
    p->ropes[ROPE_GLOBAL] = q->value == BASE_GLOBAL ? global : local;
    p->ropes[ROPE_LOCAL] = q->value == BASE_LOCAL ? local : global;
    p->ropes[ROPE_GLOBAL].n_rot = n_global;
    p->ropes[ROPE_LOCAL].n_rot = n_local;
}

enum { LAYERS_ALL, LAYERS_SHIFTED, LAYERS_EXCHANGED };
static void edit_rope_layers(const struct known_mistake *q, struct edit *e) {
    struct plan *p = e->plan;
    uint32_t any = ROPE_NONE, own = p->layers[0].attn.rope;
    EACH_LAYER(p, il) {
        if (any == ROPE_NONE) any = p->layers[il].attn.rope;
    }
    EACH_LAYER(p, il) {   /* each layer is edited before the next one is read, but for the first one */
        uint32_t *rope = &p->layers[il].attn.rope, next = il + 1 < p->n_layer ? p->layers[il + 1].attn.rope : own;
        bool is_rotated = any != ROPE_NONE && (q->value == LAYERS_ALL || next != ROPE_NONE);
        if (!is_rotated) *rope = ROPE_NONE;
        else if (*rope == ROPE_NONE) *rope = any;
    }
}

static void edit_sections(const struct known_mistake *q, struct edit *e) {
    (void)q;
    EACH_ROPE(e->plan, rope) {
        bool is_whole = true;
        for (uint32_t i = 0; i < rope->n_rot / 2; i++) is_whole = is_whole && plan_rope_rotates(rope, i);
        if (!is_whole) memset(rope->sections, 0, sizeof rope->sections);
    }
}

static bool only_q(bool is_q) { return is_q; }
static bool only_k(bool is_q) { return !is_q; }

static double position_plus_one(const struct reference *r, uint32_t pos, uint32_t t, bool is_q) {
    (void)r, (void)is_q;
    return pos + t + 1;
}
static double position_q_plus_one(const struct reference *r, uint32_t pos, uint32_t t, bool is_q) {
    (void)r;
    return is_q ? pos + t + 1 : pos + t;
}
static double position_frozen(const struct reference *r, uint32_t pos, uint32_t t, bool is_q) {
    (void)is_q;
    return pos == 0 ? t : r->n_prompt;
}
static double position_restarted(const struct reference *r, uint32_t pos, uint32_t t, bool is_q) {
    (void)r, (void)pos, (void)is_q;
    return t;
}
static double position_same(const struct reference *r, uint32_t pos, uint32_t t, bool is_q) {
    (void)r, (void)t, (void)is_q;
    return pos;
}

static uint32_t width_of_embedding(const struct plan *p, const struct rope_plan *rope) {
    (void)rope;
    return p->n_embd;
}

static double frequency_reversed(const struct reference *r, uint32_t rope, uint32_t i, double width) {
    return -reference_frequency(r, rope, i, width);
}

static uint32_t last_part(const struct reference *r, const struct attn_plan *p) {
    return p->k_dim - r->plan.ropes[p->rope].n_rot;
}

/* K is rotated to rotated[slot], now on to the query's position. */
static const double *key_rotated_late(const struct reference *r, const struct attended *a, uint32_t t, uint32_t slot,
                                      uint32_t g) {
    const double *k = r->steps.cached(r, a, a->k, a->plan->k_dim, slot, g);
    if (a->plan->rope == ROPE_NONE || !r->steps.rotates(false)) return k;
    memcpy(r->key, k, a->plan->k_dim * sizeof *k);
    const struct latent_plan *l = &a->plan->latent;
    uint32_t first = l->n_kv == 0 ? r->steps.first_rotated(r, a->plan) : l->is_absorbed ? l->n_kv : l->n_plain;
    reference_rotate(r, a->plan->rope, r->key + first,
                     r->steps.position(r, a->pos, t, true) - r->rotated[slot]);
    return r->key;
}

/* Returns the rope that a layer rotates by; NULL: the layer does not rotate. */
static const struct rope_plan *rope_of(const struct model *m, uint32_t il) {
    uint32_t i = m->plan.layers[il].attn.rope;
    return i < PLAN_ROPES && m->plan.ropes[i].n_rot > 0 ? &m->plan.ropes[i] : NULL;
}

static bool has_rope(const struct model *m) {
    EACH_LAYER(&m->plan, il) {
        if (rope_of(m, il)) return true;
    }
    return false;
}

/* The first frequency is 1 whatever the width is. */
static bool has_pairs(const struct model *m) {
    EACH_LAYER(&m->plan, il) {
        const struct rope_plan *rope = rope_of(m, il);
        if (rope && rope->n_rot > 2 && rope->n_rot != m->plan.n_embd) return true;
    }
    return false;
}

/* The first elements of heads are rotated, and others are not. */
static bool has_partial_rope(const struct model *m) {
    EACH_LAYER(&m->plan, il) {
        const struct rope_plan *rope = rope_of(m, il);
        if (rope && rope->n_rot < m->plan.layers[il].attn.k_dim && m->plan.max_latent == 0) return true;
    }
    return false;
}

/* ---- latent attention -------------------------------------------------------------------------------------------- */

static bool has_latent(const struct model *m) { return m->plan.max_latent > 0; }

static void rewrite_rope_of_q(const struct known_mistake *q, struct program *p) {
    (void)q;
    for (struct step *s = p->steps; s < p->steps + p->n; s++) {
        if (s->kind == STEP_ROPE && (s->out == STREAM_Q || s->out == STREAM_LATENT_Q)) s->first = 0;
    }
}

static void rewrite_latent_split(const struct known_mistake *q, struct program *p) {
    (void)q;
    for (struct step *s = p->steps; s < p->steps + p->n; s++) {
        bool is_part = s->kind == STEP_PART && s->in == STREAM_LATENT_KV_B;
        if (is_part) s->first = s->out == STREAM_V ? 0 : s->n_from - s->n_norm;
    }
}

static bool has_absorbed(const struct model *m) { return has_latent(m) && attention_of(m)->latent.is_absorbed; }

/* The matrix of a head, stored as (n_out, n_in), is read as (n_in, n_out), and the transpose of that is used. */
static void product_reread(const struct reference *r, const struct weight *w, const double *x, uint32_t n, double *y) {
    x = r->steps.input(r, w, x, n);
    memset(y, 0, (size_t)n * w->n_out * sizeof *y);
    for (uint32_t row = 0; row < w->n_out; row++) {
        const float *of_row = reference_row(r, w, row);
        for (uint32_t k = 0; k < w->n_in; k++) {
            size_t at = (size_t)row * w->n_in + k, i = at / w->n_out, o = at % w->n_out;
            for (uint32_t t = 0; t < n; t++) {
                y[(size_t)t * w->n_out + o] += (double)of_row[k] * x[(size_t)t * w->n_in + i];
            }
        }
    }
}
static void k_b_transposed(const struct reference *r, const struct weight *w, enum weight_id id, const double *x,
                           uint32_t n, double *y) {
    if (id == W_LATENT_K_B) product_reread(r, w, x, n, y);
    else reference_linear(r, w, id, x, n, y);
}
static void v_b_transposed(const struct reference *r, const struct weight *w, enum weight_id id, const double *x,
                           uint32_t n, double *y) {
    if (id == W_LATENT_V_B) product_reread(r, w, x, n, y);
    else reference_linear(r, w, id, x, n, y);
}
static uint32_t k_b_of_next(enum weight_id weight, uint32_t h, uint32_t n_head) {
    return weight == W_LATENT_K_B ? (h + 1) % n_head : h;
}
static uint32_t v_b_of_next(enum weight_id weight, uint32_t h, uint32_t n_head) {
    return weight == W_LATENT_V_B ? (h + 1) % n_head : h;
}

static void edit_absorbed_scale(const struct known_mistake *q, struct edit *e) {
    (void)q;
    EACH_LAYER(e->plan, il) {
        struct attn_plan *a = &e->plan->layers[il].attn;
        if (plan_attends(&e->plan->layers[il])) a->scale = (float)(1 / sqrt(a->k_dim));
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

enum { SCALE_MISSING, SCALE_HEAD_DIM, SCALE_N_EMBD, SCALE_USUAL };
static void edit_scale(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) {
        struct attn_plan *a = &e->plan->layers[il].attn;
        double dim = plan_head_dim(a), usual = 1 / sqrt(dim), scale = usual;
        double right = a->scale != 0 ? (double)a->scale : usual;
        if (!plan_attends(&e->plan->layers[il])) continue;
        if (q->value == SCALE_MISSING) scale = 1;
        if (q->value == SCALE_HEAD_DIM) scale = 1 / dim;
        if (q->value == SCALE_N_EMBD) scale = 1 / sqrt(e->plan->n_embd);
        if (fabs(scale / right - 1) > 1e-6) a->scale = (float)scale;
    }
}

static uint32_t heads_interleaved(const struct attn_plan *p, uint32_t h) { return h % p->n_head_kv; }
static uint32_t head_first(const struct attn_plan *p, uint32_t h) { return (void)p, (void)h, 0; }
static uint32_t heads_not_repeated(const struct attn_plan *p, uint32_t h) { return (void)p, h; }

static double alibi_positive(const struct attn_plan *p, uint32_t head, double distance) {
    return -reference_alibi(p, head, distance);
}
static double alibi_from_zero(const struct attn_plan *p, uint32_t head, double distance) {
    uint32_t n = 1;
    while (2 * n <= p->n_head) n *= 2;
    return reference_alibi(p, head, distance) * pow(2, (double)p->alibi / (head < n ? n : 2 * n));
}

static bool has_alibi(const struct model *m) { return attention_of(m)->alibi != 0; }

/* ---- masks and windows ------------------------------------------------------------------------------------------- */

/* In the decoder, if there is one. */
static void edit_causal(const struct known_mistake *q, struct edit *e) {
    for (uint32_t il = e->plan->n_encoder; il < e->plan->n_layer; il++) {
        struct attn_plan *a = &e->plan->layers[il].attn;
        if (!a->reads_encoder) a->is_causal = q->value;
    }
}

static bool sees_strictly(const struct attended *a, uint32_t own, uint32_t slot) {
    (void)a;
    return slot < own || (own == 0 && slot == 0);
}
static bool sees_late(const struct attended *a, uint32_t own, uint32_t slot) {
    return slot <= own + 1 && slot < a->n_slot;
}

static bool is_causal(const struct model *m) { return plan_is_causal(&m->plan); }

/* value: what is added to the window */
static void edit_window(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) {
        struct attn_plan *a = &e->plan->layers[il].attn;
        bool has_room = a->window > (q->value < 0 ? 1u : 0u);
        uint32_t window = has_room ? a->window + (uint32_t)q->value : a->window;
        bool is_same = a->is_symmetric && window / 2 == a->window / 2;   /* only half of it counts */
        if (!is_same) a->window = window;
    }
}

static void edit_window_layers(const struct known_mistake *q, struct edit *e) {
    struct plan *p = e->plan;
    uint32_t window = 0, own = p->layers[0].attn.window, n_with = 0;
    EACH_LAYER(p, il) {
        if (p->layers[il].attn.window > 0) window = p->layers[il].attn.window, n_with++;
    }
    for (uint32_t il = 0; n_with < p->n_layer && il < p->n_layer; il++) {
        uint32_t *here = &p->layers[il].attn.window;
        if (q->value == LAYERS_SHIFTED) *here = il + 1 < p->n_layer ? p->layers[il + 1].attn.window : own;
        else *here = q->value == LAYERS_ALL || *here == 0 ? window : 0;
    }
}

static void edit_window_kind(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) {
        struct attn_plan *a = &e->plan->layers[il].attn;
        if (a->window > 0 && !a->is_symmetric) a->is_chunked = q->value;
    }
}

/* ---- softmax, V, the cache --------------------------------------------------------------------------------------- */

static void softmax_over_queries(const struct reference *r, const struct attended *a, uint32_t n_key) {
    size_t n_column = (size_t)a->plan->n_head * n_key;
    for (size_t i = 0; i < n_column; i++) softmax(r->weights + i, a->n, n_column);
}
static void softmax_over_heads(const struct reference *r, const struct attended *a, uint32_t n_key) {
    size_t n_column = (size_t)a->plan->n_head * n_key;
    for (size_t i = 0; i < (size_t)a->n * n_key; i++) {
        softmax(r->weights + i / n_key * n_column + i % n_key, a->plan->n_head, n_key);
    }
}

/* As in f32, and without subtracting the largest score. */
static double exp_no_max(double score, double max, double least) {
    (void)max, (void)least;
    return score > 88.7228 ? INFINITY : exp(score);
}

/* Scores can be larger than what e^x has in f32. */
static bool has_large_scores(const struct model *m) {
    return attention_of(m)->softcap == 0 || attention_of(m)->softcap > 88;
}

/* (slot, g) is read as (g, slot) */
static const double *value_unpermuted(const struct reference *r, const struct attended *a, uint32_t slot, uint32_t g) {
    uint32_t row = g * a->n_slot + slot, n_kv = a->plan->n_head_kv;
    if (g < n_kv) slot = row / n_kv, g = row % n_kv;
    return r->steps.cached(r, a, a->v, a->plan->v_dim, slot, g);
}

/* Row i of (h, token) is read as row i of (token, h). */
static void values_unpermuted(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct attn_plan *p = a->plan;
    reference_values(r, a, n_key);
    memcpy(r->q, r->attn, (size_t)a->n * p->n_head * p->v_dim * sizeof *r->q);   /* the queries have been used */
    for (uint32_t i = 0; i < a->n * p->n_head; i++) {
        const double *from = r->q + ((size_t)(i % a->n) * p->n_head + i / a->n) * p->v_dim;
        memcpy(r->attn + (size_t)i * p->v_dim, from, p->v_dim * sizeof *from);
    }
}

static void edit_gate(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) {
        enum attn_gate *gate = &e->plan->layers[il].attn.gate;
        if (*gate == ATTN_GATE_SIGMOID) *gate = (enum attn_gate)q->value;
    }
}

/* Zeros in slots that have not been written yet. */
static const double *cached_before(const struct reference *r, const struct attended *a, const double *cache,
                                   uint32_t dim, uint32_t slot, uint32_t g) {
    bool is_written = a->plan->reads_encoder || a->pos == 0 || slot < a->slot;
    return !is_written ? r->zeros : reference_cached(r, a, cache, dim, slot, g);
}

static double one_zero(void) { return 1; }

static uint32_t slot_overwritten(const struct reference *r, uint32_t pos) { return pos > 0 ? r->n_prompt : pos; }

/* ---- an encoder and a decoder ------------------------------------------------------------------------------------ */

static bool has_encoder(const struct model *m) { return m->plan.n_encoder > 0; }

enum { CROSS_CAUSAL, CROSS_OF_DECODER };
static void edit_cross(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) {
        struct attn_plan *a = &e->plan->layers[il].attn;
        if (!a->reads_encoder) continue;
        a->is_causal = true;
        a->reads_encoder = q->value == CROSS_CAUSAL;
    }
}

static uint32_t bucket_around(const struct attn_plan *p, int32_t distance) {
    struct attn_plan around = *p;
    around.is_causal = false;
    return plan_bucket(&around, distance);
}
static uint32_t bucket_before(const struct attn_plan *p, int32_t distance) {
    struct attn_plan before = *p;
    before.is_causal = true;
    return plan_bucket(&before, distance);
}
static bool has_buckets(const struct model *m) { return m->layers[0].w[W_ATTN_BUCKETS].w; }
static bool has_buckets_before(const struct model *m) { return has_buckets(m) && is_causal(m); }

static int32_t next_token(const int32_t *ids, uint32_t n, uint32_t t) { return ids[t + 1 < n ? t + 1 : t]; }

/* ---- the entries ------------------------------------------------------------------------------------------------- */

static const struct need
    with_latent = { "with latent attention", has_latent },
    with_absorbed = { "with absorbed latent attention", has_absorbed },
    with_rope = { "with RoPE", has_rope },
    with_partial_rope = { "with RoPE of a part of each head", has_partial_rope },
    with_yarn = { "with YaRN", NULL },
    with_two_ropes = { "with RoPE of another base or scaling in windows", NULL },
    with_nope = { "with RoPE in some layers only", NULL },
    with_kv_heads = { "with several heads of K and V", has_kv_heads },
    causal = { "that are causal", is_causal },
    with_windows = { "with windows", NULL },
    with_some_windows = { "with windows in some layers only", NULL },
    with_alibi = { "with ALiBi", has_alibi },
    with_encoder = { "with an encoder and a decoder", has_encoder };

static const struct known_mistake known[] = {
    /* ---- projections ---- */
    { "weights.square=transposed", "Qcur", NEED("with a square attn_q or attn_k", has_square), "every square matrix "
      "among attn_q, attn_k, attn_v and attn_output is used transposed", STEPS(.linear = linear_transposed) },
    { "attn.bias=missing", "Qcur", NEED("with biases in attention", NULL), "no bias is added", WITHOUT_BIAS(SET(ATTN_Q)
      | SET(ATTN_K) | SET(ATTN_V) | SET(ATTN_OUTPUT)) },
    { "qkv.split=by_group", "Qcur", NEED("with a fused attn_qkv and several heads of K and V", has_fused_qkv), "the "
      "rows of attn_qkv are read as n_head_kv groups of n_head / n_head_kv heads of Q, one of K and one of V, not as "
      "all of Q, all of K and all of V", STEPS(.after = qkv_by_group) },
    { "qkv.order=v_before_k", "Kcur", NEED("whose heads of K and V have the same width", NULL), "attn_k and attn_v, or "
      "the parts of attn_qkv, are exchanged", EDIT(edit_kv_order, 0) },

    /* ---- RoPE ---- */
    { "rope.pairing=halves", "Qcur_rope", &with_rope, "elements i and i + n_rot/2 are rotated as a pair, not 2i and 2i "
      "+ 1", EDIT(edit_pairing, ROPE_NEOX) },
    { "latent.q_norm=missing", "q_a", NEED("with latent Q", NULL), "the vector that Q is a product of is not "
      "normalized", .rewrite = known_rewrite_absent, .at = TAP_LATENT_Q_A },
    { "latent.norm=missing", "kv_cmpr", &with_latent, "the vector that K and V are products of is not normalized",
      .rewrite = known_rewrite_absent, .at = TAP_LATENT },
    { "latent.rope=first_of_q", "Qcur_rope", &with_latent, "RoPE rotates the first elements of a head of Q, not those "
      "behind the part that stays; K is right", .rewrite = rewrite_rope_of_q },
    { "latent.split=v_first", "Kcur_rope", NEED("with K and V of a latent vector in one matrix", NULL), "the rows of a "
      "head of attn_kv_b are read as V and then K, not as K and then V", .rewrite = rewrite_latent_split },
    { "latent.k_b=transposed", "Qcur_rope", &with_absorbed, "the matrix of each head of attn_k_b, which is stored as "
      "(elements of the latent vector, elements of K), is read as (elements of K, elements of the latent vector), and "
      "the transpose of that is used", STEPS(.linear = k_b_transposed) },
    { "latent.k_b=next_head", "Qcur_rope", &with_absorbed, "head h of Q is multiplied by the matrix of head h + 1 of "
      "attn_k_b, and the last head by that of head 0", STEPS(.head_matrix = k_b_of_next) },
    { "latent.v_b=transposed", "kqv_out", &with_absorbed, "the matrix of each head of attn_v_b, which is stored as "
      "(elements of V, elements of the latent vector), is read as (elements of the latent vector, elements of V), and "
      "the transpose of that is used", STEPS(.linear = v_b_transposed) },
    { "latent.v_b=next_head", "kqv_out", &with_absorbed, "the output of head h is multiplied by the matrix of head h + "
      "1 of attn_v_b, and that of the last head by the matrix of head 0", STEPS(.head_matrix = v_b_of_next) },
    { "latent.scale=absorbed", "kq_soft_max", &with_absorbed, "scores are divided by the square root of the width of "
      "the absorbed K, which is the latent vector and the rotated elements, not by that of the width of K before it",
      EDIT(edit_absorbed_scale, 0) },
    { "rope.pairing=neighbours", "Qcur_rope", &with_rope, "elements 2i and 2i + 1 are rotated as a pair, not i and i + "
      "n_rot/2", EDIT(edit_pairing, ROPE_NORM) },
    { "rope.applied=none", "Qcur_rope", &with_rope, "neither Q nor K is rotated", ATTENTION(rope, ROPE_NONE) },
    { "rope.applied=q_only", "Kcur_rope", &with_rope, "K is not rotated", STEPS(.rotates = only_q) },
    { "rope.applied=k_only", "Qcur_rope", &with_rope, "Q is not rotated", STEPS(.rotates = only_k) },
    { "rope.theta=10000", "Qcur_rope", &with_rope, "the base of the frequencies is 10000",
      .edit = edit_base, .number = 1e4f },
    { "rope.theta=100000", "Qcur_rope", &with_rope, "the base of the frequencies is 100000",
      .edit = edit_base, .number = 1e5f },
    { "rope.theta=500000", "Qcur_rope", &with_rope, "the base of the frequencies is 500000",
      .edit = edit_base, .number = 5e5f },
    { "rope.theta=1000000", "Qcur_rope", &with_rope, "the base of the frequencies is 1000000",
      .edit = edit_base, .number = 1e6f },
    { "rope.position=plus_one", "Qcur_rope", &with_rope, "Q and K of position p are rotated by the angles of position "
      "p + 1", STEPS(.position = position_plus_one) },
    { "rope.position=q_plus_one", "Qcur_rope", &with_rope, "Q of position p is rotated by the angles of position p + "
      "1, K by those of p", STEPS(.position = position_q_plus_one) },
    { "rope.position=frozen", "Qcur_rope", &with_rope, "the position does not advance after the prompt: Q and K of "
      "every step are rotated by the angles of position n_prompt", STEPS(.position = position_frozen) },
    { "rope.position=restarted", "Qcur_rope", &with_rope, "positions begin at 0 in every batch: Q and K of every step "
      "are rotated by the angles of position 0", STEPS(.position = position_restarted) },
    { "rope.position=same", "Qcur_rope", &with_rope, "Q and K of all tokens of a batch are rotated by the angles of "
      "the batch's first position", STEPS(.position = position_same) },
    { "rope.dim=half", "Qcur_rope", &with_rope, "half of n_rot (rounded down to even) is used instead of n_rot, in "
      "pairing and frequencies: base^(-2i / (n_rot/2))", EDIT(edit_rope_half, 0) },
    { "rope.dim=full", "Qcur_rope", &with_partial_rope, "head_dim is used instead of n_rot, in pairing and "
      "frequencies; rope_freqs has 1 for pairs that it does not contain", EDIT(edit_rope_full, 0) },
    { "rope.dim=n_embd", "Qcur_rope", NEED("with RoPE of several pairs", has_pairs), "frequencies are base^(-2i / "
      "n_embd); pairing and the number of rotated elements are correct", STEPS(.rope_width = width_of_embedding) },
    { "rope.scaling=ignored", "Qcur_rope", NEED("with scaled RoPE", has_rope), "neither the scaling factor nor "
      "rope_freqs is applied", EDIT(edit_rope_scaling, 0) },
    { "rope.yarn=linear", "Qcur_rope", &with_yarn, "all frequencies are divided by the scaling factor, not only those "
      "of long waves", EDIT(edit_yarn, YARN_LINEAR) },
    { "rope.yarn=no_magnitude", "Qcur_rope", &with_yarn, "cosine and sine are not multiplied by YaRN's factor",
      EDIT(edit_yarn, YARN_NO_MAGNITUDE) },
    { "rope.base=global", "Qcur_rope", &with_two_ropes, "layers with a window have the base and scaling of those "
      "without", EDIT(edit_rope_base, BASE_GLOBAL) },
    { "rope.base=local", "Qcur_rope", &with_two_ropes, "layers without a window have the base and scaling of those "
      "with one", EDIT(edit_rope_base, BASE_LOCAL) },
    { "rope.base=exchanged", "Qcur_rope", &with_two_ropes, "layers with a window have the base and scaling of those "
      "without, and the other way round", EDIT(edit_rope_base, BASE_EXCHANGED) },
    { "rope.layers=all", "Qcur_rope", &with_nope, "the layers without RoPE are rotated like the others",
      EDIT(edit_rope_layers, LAYERS_ALL) },
    { "rope.layers=shifted", "Qcur_rope", &with_nope, "layer i is rotated if layer i + 1 should be, and the last layer "
      "if layer 0 should be", EDIT(edit_rope_layers, LAYERS_SHIFTED) },
    { "rope.part=last", "Qcur_rope", &with_partial_rope, "the last n_rot elements of each head are rotated, not the "
      "first", STEPS(.first_rotated = last_part) },
    { "rope.sections=ignored", "Qcur_rope", NEED("with sections of RoPE that texts do not rotate", NULL), "pairs of "
      "the fourth section, which texts do not rotate, are rotated like the others", EDIT(edit_sections, 0) },
    { "rope.direction=reversed", "Qcur_rope", &with_rope, "angles have the opposite sign",
      STEPS(.frequency = frequency_reversed) },
    { "rope.cache=unrotated", "kq_soft_max", &with_rope, "K is cached before RoPE, and each query rotates all keys by "
      "the same angles as itself (Kcur_rope shows K rotated by the angles of its own position)",
      STEPS(.key = key_rotated_late) },

    /* ---- scores, softmax, V, the cache ---- */
    { "attn.temperature=missing", "kq_soft_max", NEED("whose Q grows with the position", NULL), "Q is not multiplied "
      "by the factor that grows with the position", ATTENTION(temperature_floor, 0) },
    { "attn.heads=interleaved", "kq_soft_max", NEED("with several heads of K and V, and more of Q", has_groups), ""
      "query head h reads key and value head h % n_head_kv, not h / (n_head / n_head_kv)",
      STEPS(.kv_head = heads_interleaved) },
    { "attn.heads=first", "kq_soft_max", &with_kv_heads, "every query head reads key and value head 0",
      STEPS(.kv_head = head_first) },
    { "attn.heads=not_repeated", "kq_soft_max", NEED("with fewer heads of K and V than of Q", has_fewer_kv_heads), ""
      "query head h reads key and value head h; for heads from n_head_kv on, K and V are zeros",
      STEPS(.kv_head = heads_not_repeated) },
    { "attn.scale=missing", "kq_soft_max", &known_every, "scores are neither divided by sqrt(head_dim) nor multiplied "
      "by the file's attention.scale", EDIT(edit_scale, SCALE_MISSING) },
    { "attn.scale=head_dim", "kq_soft_max", &known_every, "scores are divided by head_dim, not by its square root; "
      "attention.scale is ignored", EDIT(edit_scale, SCALE_HEAD_DIM) },
    { "attn.scale=n_embd", "kq_soft_max", &known_every, "scores are divided by sqrt(n_embd); attention.scale is "
      "ignored", EDIT(edit_scale, SCALE_N_EMBD) },
    { "attn.scale=ignored", "kq_soft_max", NEED("with a factor of scores other than 1 / sqrt(head_dim)", NULL), ""
      "scores are divided by sqrt(head_dim), not multiplied by the file's attention.scale",
      EDIT(edit_scale, SCALE_USUAL) },
    { "attn.mask=none", "kq_soft_max", &causal, "a token also sees the later tokens of its batch",
      EDIT(edit_causal, false) },
    { "attn.mask=strict", "kq_soft_max", &causal, "a token does not see itself, except at position 0",
      STEPS(.sees = sees_strictly) },
    { "attn.mask=late", "kq_soft_max", &causal, "a token also sees the token after it, if its batch has one",
      STEPS(.sees = sees_late) },
    { "attn.mask=causal", "kq_soft_max", NEED("that are not causal", NULL), "a token does not see later tokens",
      EDIT(edit_causal, true) },
    { "attn.sinks=missing", "kq_soft_max", NEED("with attention sinks", NULL), "attention sinks take no part in the "
      "softmax", REMOVED(SET(ATTN_SINKS)) },
    { "window.size=plus_one", "kq_soft_max", &with_windows, "a token of a layer with a window sees one token more: "
      "itself and `window` tokens before it", EDIT(edit_window, 1) },
    { "window.size=minus_one", "kq_soft_max", &with_windows, "a token of a layer with a window sees one token fewer: "
      "itself and window - 2 tokens before it", EDIT(edit_window, -1) },
    { "window.size=ignored", "kq_soft_max", &with_windows, "no layer has a window", ATTENTION(window, 0) },
    { "window.layers=all", "kq_soft_max", &with_some_windows, "all layers have the window; RoPE stays as it is",
      EDIT(edit_window_layers, LAYERS_ALL) },
    { "window.layers=exchanged", "kq_soft_max", &with_some_windows, "layers that should have no window have it, and "
      "those that should have it do not; RoPE stays as it is", EDIT(edit_window_layers, LAYERS_EXCHANGED) },
    { "window.layers=shifted", "kq_soft_max", &with_some_windows, "layer i has a window if layer i + 1 should have it, "
      "and the last layer if layer 0 should; RoPE stays as it is", EDIT(edit_window_layers, LAYERS_SHIFTED) },
    { "window.kind=chunk", "kq_soft_max", &with_windows, "a token of a layer with a window sees the tokens from the "
      "last position on that is a multiple of the window", EDIT(edit_window_kind, true) },
    { "window.kind=sliding", "kq_soft_max", NEED("with chunks", NULL), "a token of a layer with chunks sees itself and "
      "the tokens before it, as many as a chunk has", EDIT(edit_window_kind, false) },
    { "softcap.attn=missing", "kq_soft_max", NEED("with a softcap of scores", NULL), "scores have no softcap",
      ATTENTION(softcap, 0) },
    { "alibi.slopes=missing", "kq_soft_max", &with_alibi, "scores have no bias by distance", ATTENTION(alibi, 0) },
    { "alibi.slopes=positive", "kq_soft_max", &with_alibi, "ALiBi's bias is added to scores, not subtracted",
      STEPS(.alibi = alibi_positive) },
    { "alibi.slopes=from_zero", "kq_soft_max", &with_alibi, "heads are counted from 0 in ALiBi's slopes: 2^(-max h / "
      "n), not 2^(-max (h + 1) / n), and 2^(-max 2 (h - n) / 2n) for heads from n on, where n is the largest power of "
      "two that is at most n_head", STEPS(.alibi = alibi_from_zero) },
    { "attn.softmax=over_queries", "kq_soft_max", &known_every, "exponentials of scores are divided by their sum over "
      "the tokens of the batch that see the key, not over the keys; in a step all weights are 1",
      STEPS(.softmax = softmax_over_queries) },
    { "attn.softmax=over_heads", "kq_soft_max", &known_every, "exponentials of scores are divided by their sum over "
      "the query heads, not over the keys", STEPS(.softmax = softmax_over_heads) },
    { "attn.softmax=no_max", "kq_soft_max", NEED("without a softcap of scores up to 88", has_large_scores), "the "
      "largest score is not subtracted: e^s is infinite if s > 88.7228, as in f32 (infinite / infinite is NaN, finite "
      "/ infinite is 0)", STEPS(.exponential = exp_no_max) },
    { "attn.v=unpermuted", "kqv_out", &with_kv_heads, "the rows of V, stored as (slot, g), are read as (g, slot): V of "
      "key p and head g is row g * n + p of memory, where n is the number of slots filled so far, including this batch",
      STEPS(.value = value_unpermuted) },
    { "attn.merge=unpermuted", "kqv_out", NEED("with several heads", has_heads), "the batch's attention outputs, "
      "stored as (h, token), are read as (token, h): the output of token t and head h is row t * n_head + h of memory",
      STEPS(.values = values_unpermuted) },
    { "attn.gate=missing", "attn_out", NEED("with a gate of attention", NULL), "the outputs of the heads are not "
      "multiplied by their gate", ATTENTION(gate, ATTN_GATE_NONE) },
    { "attn.gate=softplus", "attn_gated", NEED("with a sigmoid gate of attention", NULL), "the gate of attention is a "
      "softplus, not a sigmoid", EDIT(edit_gate, ATTN_GATE_SOFTPLUS) },
    { "kv.slot=stale", "kq_soft_max", &known_every, "a step attends before its own K and V are written: it sees zeros "
      "in its own slot; later steps see what was written", STEPS(.cached = cached_before) },
    { "kv.slot=extra", "kq_soft_max", &known_every, "every token, including those of the prompt, also sees one slot "
      "too many, whose K and V are zeros; kq_soft_max has no column for it", STEPS(.zeros = one_zero) },
    { "kv.slot=overwritten", "kq_soft_max", &known_every, "every step writes its K and V into slot n_prompt and sees "
      "the slots 0..n_prompt; later columns of kq_soft_max are 0", STEPS(.slot = slot_overwritten) },

    /* ---- an encoder and a decoder ---- */
    { "decoder.start=missing", "embd", &with_encoder, "the decoder is not fed its first token: the token at position p "
      "of a batch is the one of position p + 1, and that of the last position comes twice",
      STEPS(.token = next_token) },
    { "cross.source=decoder", "Kcur", &with_encoder, "K and V of cross attention are products of the norm that its Q "
      "is a product of, not of the encoder's output, and the mask is causal", EDIT(edit_cross, CROSS_OF_DECODER) },
    { "cross.mask=causal", "kq_soft_max", &with_encoder, "the token at position p of the decoder sees the encoder's "
      "tokens up to position p, not all of them", EDIT(edit_cross, CROSS_CAUSAL) },
    { "buckets.decoder=around", "kq_soft_max", NEED("with buckets of distances in a decoder", has_buckets_before), ""
      "the decoder's distances have the buckets of an encoder, half of which are for keys after the query",
      STEPS(.bucket = bucket_around) },
    { "buckets.encoder=before", "kq_soft_max", NEED("with buckets of distances in an encoder", has_buckets), "the "
      "encoder's distances have the buckets of a decoder, where keys after the query have the bucket of the query",
      STEPS(.bucket = bucket_before) },
};

const struct known_list known_attention = { known, sizeof known / sizeof *known };

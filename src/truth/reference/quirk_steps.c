/* The steps of the reference pass as engines with known mistakes compute them.  diagnose/quirk_table.c says in words
 * what each quirk does.  A step for which no quirk is set is right.  Most quirks are edits instead (quirk_edits.c). */
#include "reference/steps.h"

#include <math.h>

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* tensor.offset=shifted: returns as many bytes as row i of w has, from one alignment further on in the file.  Bytes
 * outside the tensors are 0. */
static const uint8_t *shifted_row(const struct reference *r, const struct weight *w, size_t i) {
    uint64_t begin = w->offset + (uint64_t)i * w->row_bytes + gguf_alignment(w->file), end = begin + w->row_bytes;
    memset(r->row_bytes, 0, w->row_bytes);
    for (uint64_t k = 0; k < gguf_n_tensor(w->file); k++) {
        const struct gguf_tensor *t = gguf_tensor_at(w->file, k);
        uint64_t from = t->offset > begin ? t->offset : begin;
        uint64_t to = t->offset + t->n_bytes < end ? t->offset + t->n_bytes : end;
        size_t n = gguf_row_bytes(t);
        while (from < to) {
            uint64_t at = from - t->offset, next = t->offset + (at / n + 1) * n, until = to < next ? to : next;
            const uint8_t *row = repack_tensor_row(t, at / n, r->other_row);
            memcpy(r->row_bytes + (from - begin), row + at % n, (size_t)(until - from));
            from = until;
        }
    }
    return r->row_bytes;
}

static const float *quirk_row(const struct reference *r, const struct weight *w, size_t i) {
    const uint8_t *src = r->quirks.tensor_offset ? shifted_row(r, w, i) : weight_row(w, i, r->row_bytes);
    enum misread misread = r->quirks.misread[w->type];
    if (misread) quirk_misread(w->type, misread, src, r->row, w->n_in);
    else quant_dequantize(w->traits, src, r->row, w->n_in);
    return r->row;
}

/* weights.square=transposed: y = x W */
static void linear_transposed(const struct reference *r, const struct weight *w, const double *x, uint32_t n,
                              double *y) {
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

static bool quirk_projection(const struct reference *r, const struct weight *w, const double *x, uint32_t n,
                             double *y) {
    if (!r->quirks.square_weights || w->n_in != w->n_out) return false;
    linear_transposed(r, w, x, n, y);
    return true;
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

static double mean(const double *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i];
    return sum / n;
}

static double quirk_norm_weight(const struct reference *r, double weight) {
    switch (r->quirks.norm_weight) {
    case NORM_UNWEIGHTED: return 1;
    case NORM_PLUS_ONE: return weight + 1;
    default: return weight;
    }
}

static void quirk_norm(const struct reference *r, double eps, const double *x, uint32_t n, double *h) {
    const struct quirks *q = &r->quirks;
    double centre = r->plan.norm == NORM_LAYER ? mean(x, n) : 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (x[i] - centre) * (x[i] - centre);
    double square = q->norm_sum ? sum : sum / n;
    double root = q->norm_eps_outside ? sqrt(square) + eps : sqrt(square + eps);
    for (uint32_t i = 0; i < n; i++) h[i] = (x[i] - centre) / root;
}

/* residual=norm: x becomes its norm when attention or feed forward read that. */
static void quirk_before(struct reference *r, const struct call *c) {
    enum step_kind kind = c->s->kind;
    bool is_expert = kind == STEP_EXPERTS && !r->m->layers[c->il].w[W_FFN_NORM_EXPS].w;
    bool is_router = kind == STEP_PRODUCT && c->s->weight == W_FFN_GATE_INP;
    bool reads_norm = (kind == STEP_PRODUCT && !is_router) || kind == STEP_COPY || is_expert;
    bool is_norm = c->s->in == STREAM_H || c->s->in == STREAM_INPUT;
    if (r->quirks.residual != RESIDUAL_NORM || !reads_norm || !is_norm) return;
    memcpy(r->x, c->in, (size_t)c->b.n * r->plan.n_embd * sizeof *r->x);
}

/* ---- learned positions, ALiBi ------------------------------------------------------------------------------------ */

static uint32_t quirk_learned_position(const struct reference *r, uint32_t pos, uint32_t t) {
    static const uint32_t added[] = { 0, [LEARNED_PLUS_ONE] = 1, [LEARNED_PLUS_TWO] = 2, [LEARNED_RESTARTED] = 0 };
    uint8_t wrong = r->quirks.position_learned;
    uint64_t row = (wrong == LEARNED_RESTARTED ? t : (uint64_t)pos + t) + added[wrong];
    uint32_t last = r->plan.n_ctx_train - 1;   /* a token more than was asked for may be fed */
    return row < last ? (uint32_t)row : last;
}

/* As reference_bend_score. */
static double bend_score(const struct reference *r, const struct attn_plan *p, uint32_t h, double score,
                         double distance) {
    double right = reference_bend_score(p, h, score, distance), bias = reference_alibi(p, h, distance);
    uint32_t n = 1;
    while (2 * n <= p->n_head) n *= 2;
    switch (r->quirks.alibi_slopes) {
    case SLOPES_POSITIVE: return right + 2 * bias;
    case SLOPES_FROM_ZERO: return right + bias - bias * pow(2, (double)p->alibi / (h < n ? n : 2 * n));
    default: return right;
    }
}

/* ---- RoPE -------------------------------------------------------------------------------------------------------- */

static void quirk_frequencies(struct reference *r) {
    for (uint32_t k = 0; k < PLAN_ROPES; k++) {
        const struct rope_plan *rope = &r->plan.ropes[k];
        double width = r->quirks.rope_width ? r->plan.n_embd : rope->n_rot;
        for (uint32_t i = 0; i < rope->n_rot / 2; i++) r->frequencies[k][i] = reference_frequency(r, k, i, width);
    }
}

static uint32_t quirk_first_rotated(const struct reference *r, const struct attn_plan *p) {
    return r->quirks.rope_part ? p->k_dim - r->plan.ropes[p->rope].n_rot : 0;
}

static bool quirk_rotates(const struct reference *r, bool is_q) {
    switch (r->quirks.rope_applied) {
    case APPLIED_Q_ONLY: return is_q;
    case APPLIED_K_ONLY: return !is_q;
    default: return true;
    }
}

static double unsigned_position(const struct reference *r, uint32_t pos, uint32_t t, bool is_q) {
    switch (r->quirks.rope_position) {
    case POSITION_PLUS_ONE: return pos + t + 1;
    case POSITION_Q_PLUS_ONE: return is_q ? pos + t + 1 : pos + t;
    case POSITION_FROZEN: return pos == 0 ? t : r->n_prompt;
    case POSITION_RESTARTED: return t;
    case POSITION_SAME: return pos;
    default: return pos + t;
    }
}

static double quirk_position(const struct reference *r, uint32_t pos, uint32_t t, bool is_q) {
    double position = unsigned_position(r, pos, t, is_q);
    return r->quirks.rope_direction ? -position : position;
}

static uint32_t quirk_begin(struct reference *r, uint32_t n, uint32_t pos) {
    uint32_t slot = r->quirks.kv_slot == SLOT_OVERWRITTEN && pos > 0 ? r->n_prompt : pos;
    for (uint32_t t = 0; t < n; t++) r->rotated[slot + t] = quirk_position(r, pos, t, false);
    return slot;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* qkv.split=by_group: rows that are stored as Q, K and V are read as n_head_kv groups of query heads, a K and a V. */
static void quirk_after(struct reference *r, const struct call *c) {
    const struct attn_plan *p = &c->layer->attn;
    double *k = r->streams[STREAM_K], *v = r->streams[STREAM_V];
    uint32_t dim = p->k_dim, n_kv = p->n_head_kv, each = p->n_head / n_kv + 2, n_row = n_kv * each;
    bool is_v = c->s->kind == STEP_PRODUCT && c->s->weight == W_ATTN_V;
    if (!is_v || !r->quirks.qkv_split || !r->m->layers[c->il].w[W_ATTN_QKV].w || p->v_dim != dim) return;
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

static uint32_t kv_head(const struct reference *r, const struct attn_plan *p, uint32_t h) {
    switch (r->quirks.attn_heads) {
    case HEADS_INTERLEAVED: return h % p->n_head_kv;
    case HEADS_FIRST: return 0;
    case HEADS_NOT_REPEATED: return h;
    default: return h / (p->n_head / p->n_head_kv);
    }
}

static bool is_in_window(const struct attn_plan *p, uint32_t own, uint32_t slot) {
    uint32_t window = p->window, distance = slot < own ? own - slot : slot - own;
    if (window == 0) return true;
    if (p->is_symmetric) return distance <= window / 2;
    return slot >= own || (p->is_chunked ? slot >= own - own % window : distance < window);
}

/* True if token t of the batch attends to a slot.  In a right pass it sees itself and the tokens before it, or the
 * window of them. */
static bool sees(const struct reference *r, const struct attended *a, uint32_t t, uint32_t slot) {
    uint32_t own = a->slot + t;
    if (!is_in_window(a->plan, own, slot)) return false;
    if (!r->plan.is_causal) return slot < a->n_slot;
    switch (r->quirks.attn_mask) {
    case MASK_STRICT: return slot < own || (own == 0 && slot == 0);
    case MASK_LATE: return slot <= own + 1 && slot < a->n_slot;
    default: return slot <= own;
    }
}

/* Returns head g (dim) in a slot of a layer's K or V.  Returns zeros for a head that the model does not have, and for a
 * slot that an engine with kv.slot=stale has not written yet. */
static const double *cached(const struct reference *r, const struct attended *a, const double *cache, uint32_t dim,
                            uint32_t slot, uint32_t g) {
    bool is_empty = r->quirks.kv_slot == SLOT_STALE && a->pos > 0 && slot >= a->slot;
    if (g >= a->plan->n_head_kv || is_empty) return r->zeros;
    return cache + ((size_t)slot * a->plan->n_head_kv + g) * dim;
}

/* Returns the K by which the query of token t is multiplied. */
static const double *key(const struct reference *r, const struct attended *a, uint32_t t, uint32_t slot, uint32_t g) {
    const double *k = cached(r, a, a->k, a->plan->k_dim, slot, g);
    if (!r->quirks.rope_cache || a->plan->rope == ROPE_NONE || !quirk_rotates(r, false)) return k;
    memcpy(r->key, k, a->plan->k_dim * sizeof *k);   /* rotated to rotated[slot], now on to the query's position */
    reference_rotate(r, a->plan->rope, r->key + quirk_first_rotated(r, a->plan),
                     quirk_position(r, a->pos, t, true) - r->rotated[slot]);
    return r->key;
}

static const double *value(const struct reference *r, const struct attended *a, uint32_t slot, uint32_t g) {
    if (r->quirks.attn_v && g < a->plan->n_head_kv) {   /* (slot, g) is read as (g, slot) */
        uint32_t row = g * a->n_slot + slot;
        slot = row / a->plan->n_head_kv;
        g = row % a->plan->n_head_kv;
    }
    return cached(r, a, a->v, a->plan->v_dim, slot, g);
}

/* x_i = e^x_i / sum of all e^x_j, for n elements, stride apart.  Elements that are -infinity are not seen and become 0.
 * sink: one more score, which is not in x and takes part in the sum; -INFINITY: there is none.  With kv.slot=extra
 * there is one more, 0. */
static void softmax(const struct reference *r, double *x, uint32_t n, size_t stride, double sink) {
    double extra = r->quirks.kv_slot == SLOT_EXTRA && stride == 1 ? 0 : -INFINITY, max = fmax(sink, extra), sum = 0;
    for (uint32_t i = 0; i < n; i++) max = fmax(max, x[i * stride]);
    bool no_max = r->quirks.attn_softmax == SOFTMAX_NO_MAX;
    if (no_max) max = 0;
    for (uint32_t i = 0; i < n; i++) {
        double *e = x + i * stride;
        if (*e == -INFINITY) *e = 0;
        else *e = no_max && *e > 88.7228 ? INFINITY : exp(*e - max);
        sum += *e;
    }
    if (sink != -INFINITY) sum += exp(sink - max);
    if (extra != -INFINITY) sum += exp(extra - max);
    for (uint32_t i = 0; i < n; i++) {
        if (x[i * stride] != 0) x[i * stride] /= sum;
    }
}

/* weights (n, n_head, n_key) */
static void quirk_attention_weights(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct attn_plan *p = a->plan;
    double divisor = reference_score_divisor(p);
    for (uint32_t t = 0; t < a->n; t++) {
        for (uint32_t h = 0; h < p->n_head; h++) {
            const double *q = r->q + ((size_t)t * p->n_head + h) * p->k_dim;
            double *scores = r->weights + ((size_t)t * p->n_head + h) * n_key;
            for (uint32_t s = 0; s < n_key; s++) {
                scores[s] = -INFINITY;
                if (!sees(r, a, t, s)) continue;
                const double *k = key(r, a, t, s, kv_head(r, p, h));
                double dot = 0;
                for (uint32_t i = 0; i < p->k_dim; i++) dot += q[i] * k[i];
                scores[s] = bend_score(r, p, h, dot / divisor, (double)a->slot + t - s);
            }
        }
    }
    size_t n_row = (size_t)a->n * p->n_head, n_column = (size_t)p->n_head * n_key;
    switch (r->quirks.attn_softmax) {
    case SOFTMAX_OVER_QUERIES:
        for (size_t i = 0; i < n_column; i++) softmax(r, r->weights + i, a->n, n_column, -INFINITY);
        break;
    case SOFTMAX_OVER_HEADS:
        for (size_t i = 0; i < (size_t)a->n * n_key; i++) {
            softmax(r, r->weights + i / n_key * n_column + i % n_key, p->n_head, n_key, -INFINITY);
        }
        break;
    default:
        for (size_t i = 0; i < n_row; i++) {
            double sink = a->sinks ? (double)a->sinks[i % p->n_head] : -INFINITY;
            softmax(r, r->weights + i * n_key, n_key, 1, sink);
        }
    }
}

/* attn (n, n_head, v_dim): the sums of V, weighted by weights. */
static void quirk_attention_values(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct attn_plan *p = a->plan;
    for (uint32_t t = 0; t < a->n; t++) {
        for (uint32_t h = 0; h < p->n_head; h++) {
            const double *weights = r->weights + ((size_t)t * p->n_head + h) * n_key;
            double *out = r->attn + ((size_t)t * p->n_head + h) * p->v_dim;
            memset(out, 0, p->v_dim * sizeof *out);
            for (uint32_t s = 0; s < a->n_slot && s < n_key; s++) {
                if (weights[s] == 0) continue;   /* the token does not see s: 0 * NaN would reach it */
                const double *v = value(r, a, s, kv_head(r, p, h));
                for (uint32_t i = 0; i < p->v_dim; i++) out[i] += weights[s] * v[i];
            }
        }
    }
    if (!r->quirks.attn_merge) return;
    memcpy(r->q, r->attn, (size_t)a->n * p->n_head * p->v_dim * sizeof *r->q);   /* the queries have been used */
    for (uint32_t i = 0; i < a->n * p->n_head; i++) {   /* row i of (h, token) is read as row i of (token, h) */
        const double *from = r->q + ((size_t)(i % a->n) * p->n_head + i / a->n) * p->v_dim;
        memcpy(r->attn + (size_t)i * p->v_dim, from, p->v_dim * sizeof *from);
    }
}

/* ---- residual and feed forward ----------------------------------------------------------------------------------- */

static void quirk_add_residual(struct reference *r, const struct call *c) {
    enum quirk_residual missing = c->s->weight == W_ATTN_OUTPUT ? RESIDUAL_NO_ATTN : RESIDUAL_NO_FFN;
    bool is_missing = r->quirks.residual == missing;
    for (size_t i = 0; i < c->n; i++) c->out[i] = (is_missing ? 0 : c->out[i]) + c->in[i] * (double)c->s->factor;
}

static double quirk_activation(const struct reference *r, double z) {
    if (r->quirks.ffn_other_act == FFN_IDENTITY) return z;
    if (r->quirks.ffn_other_act == FFN_GELU_QUICK) return z / (1 + exp(-1.702 * z));
    return 0.5 * z * (1 + erf(z * 0.70710678118654752440));   /* sqrt(1/2) */
}

static void quirk_limit(const struct reference *r, double limit, double *gate, double *up) {
    uint8_t side = r->quirks.ffn_limit_side;
    double *two_sided = side == LIMIT_SWAPPED ? gate : up;
    *gate = *gate > limit ? limit : *gate;
    *up = *up > limit ? limit : *up;
    if (side != LIMIT_ONE_SIDED && *two_sided < -limit) *two_sided = -limit;
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

static void quirk_choose(const struct reference *r, uint32_t n_expert, double *scores) {
    for (uint32_t i = 0; r->quirks.experts_chosen && i < n_expert; i++) {
        if (scores[i] != -INFINITY) scores[i] = -scores[i];   /* those of other groups stay the last */
    }
}

static void quirk_use(const struct reference *r, const struct ffn_plan *p, uint32_t n, double *used, double *weights) {
    for (size_t i = 0; r->quirks.experts_index && i < (size_t)n * p->n_used; i++) {
        used[i] = used[i] + 1 < p->n_expert ? used[i] + 1 : 0;
    }
    for (uint32_t t = 0; r->quirks.experts_weights && t < n; t++, weights += p->n_used) {
        for (uint32_t i = 0, j = p->n_used; i + 1 < j--; i++) {
            double w = weights[i];
            weights[i] = weights[j];
            weights[j] = w;
        }
    }
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

void reference_set_quirks(struct reference *r, const struct quirks *q) {
    static const struct wrong_steps steps = {
        .row = quirk_row, .begin = quirk_begin, .projection = quirk_projection, .norm = quirk_norm,
        .norm_weight = quirk_norm_weight, .before = quirk_before, .after = quirk_after,
        .learned_position = quirk_learned_position, .first_rotated = quirk_first_rotated, .rotates = quirk_rotates,
        .position = quirk_position, .attention_weights = quirk_attention_weights,
        .attention_values = quirk_attention_values, .choose = quirk_choose, .use = quirk_use,
        .add_residual = quirk_add_residual, .activation = quirk_activation,
        .limit = quirk_limit,
    };
    reference_set_right(r);
    if (!q) return;
    r->quirks = *q;
    r->wrong = &steps;
    r->m = &r->edited;
    quirk_edit(q, &r->plan, &r->edited);
    for (uint32_t il = 0; il < r->plan.n_layer; il++) {
        r->edited.layers[il].program = program_of(&r->plan, &r->edited, il);
    }
    quirk_frequencies(r);
}

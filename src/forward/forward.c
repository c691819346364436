/* The fast layer loop is forward_run, on one page; the steps it calls are above it.
 * Shapes: t is a token of the batch; (n_token, x) means that row t starts at t * x. */
#include "forward/forward.h"

#include "base/math.h"
#include "forward/attention.h"
#include "forward/kv_cache.h"

#include <stdlib.h>

struct forward {
    const struct model *model;
    struct kernels kernels;
    struct attention_kernels attention_kernels;
    struct pool *pool;
    uint32_t n_ctx, n_batch;
    uint64_t bytes;
    struct attention *attention;   /* owns the KV cache */
    /* cos and sin of the angles of each of the plan's ropes: (n_ctx, n_rot / 2) each, filled for the first n_rope
     * positions.  They depend only on the position, so they stay valid when the sequence goes back. */
    float *rope_cos[PLAN_ROPES], *rope_sin[PLAN_ROPES];
    double *rope_angles;   /* (n_rot / 2) scratch */
    uint32_t n_rope;
    /* Scratch for a batch. */
    float *x;        /* (n_token, n_embd) the residual stream */
    float *norm;     /* (n_token, n_embd) x after an RMS norm; then what attention or feed forward adds to x */
    float *q;        /* (n_token, n_head * k_dim) */
    float *k, *v;    /* (n_token, n_head_kv * k_dim), (n_token, n_head_kv * v_dim) */
    float *attn;     /* (n_token, n_head * v_dim) weighted sums of V */
    float *gate, *up;/* (n_token, n_ff) */
    float *input;    /* (n_token, n_embd) what the feed-forward network of a parallel layer reads */
    struct tap_sink sink;
    /* (n_token, n_head, pos + n_token), with room for (n_batch, n_head, n_ctx): the attention weights of a layer, for
     * taps only.  NULL until a sink is set. */
    float *tapped;
    struct activations acts;   /* the input of the products that are being computed, with its codes */
    struct panel *panels;      /* one per thread */
};

/* ---- memory -------------------------------------------------------------------------------------------------- */

static void *allocate(struct forward *f, uint64_t n, size_t size) {
    void *p = alloc_array(n, size);
    if (p) f->bytes += n * size;
    return p;
}

static bool allocate_panels(struct forward *f, uint32_t n_in) {
    f->panels = calloc(pool_size(f->pool), sizeof *f->panels);
    for (uint32_t i = 0; f->panels && i < pool_size(f->pool); i++) {
        if (panel_create(&f->panels[i], n_in, &f->bytes) != PLUMB_OK) return false;
    }
    return f->panels;
}

static bool allocate_ropes(struct forward *f) {
    uint32_t most = 0;
    for (int i = 0; i < PLAN_ROPES; i++) {
        uint32_t half = f->model->plan.ropes[i].n_rot / 2;
        uint64_t n = (uint64_t)f->n_ctx * half;
        if (half > most) most = half;
        if (half == 0) continue;   /* no layer uses it */
        f->rope_cos[i] = allocate(f, n, sizeof(float));
        f->rope_sin[i] = allocate(f, n, sizeof(float));
        if (!f->rope_cos[i] || !f->rope_sin[i]) return false;
    }
    return (f->rope_angles = allocate(f, most, sizeof(double))) != NULL;
}

static bool allocate_scratch(struct forward *f, plumb_kv_type kv_type) {
    const struct plan *p = &f->model->plan;
    uint64_t b = f->n_batch, n_max = plan_max_row(p);
    if (n_max > UINT32_MAX) return false;
    uint32_t n_in = (uint32_t)n_max;
    return attention_create(&f->attention, p, f->n_ctx, kv_type, &f->attention_kernels, &f->kernels,
                            f->pool) == PLUMB_OK
        && allocate_ropes(f)
        && (f->x = allocate(f, b * p->n_embd, sizeof(float)))
        && (f->norm = allocate(f, b * p->n_embd, sizeof(float)))
        && (f->q = allocate(f, b * p->max_q, sizeof(float)))
        && (f->k = allocate(f, b * p->max_k, sizeof(float)))
        && (f->v = allocate(f, b * p->max_v, sizeof(float)))
        && (f->attn = allocate(f, b * p->max_q, sizeof(float)))
        && (f->gate = allocate(f, b * p->max_ff, sizeof(float)))
        && (f->up = allocate(f, b * p->max_ff, sizeof(float)))
        && (!p->is_parallel || (f->input = allocate(f, b * p->n_embd, sizeof(float))))
        && activations_create(&f->acts, n_in, f->n_batch, &f->kernels, &f->bytes) == PLUMB_OK
        && allocate_panels(f, n_in);
}

static struct matrix matrix_of(const struct weight *w) {
    return (struct matrix) { w->type, w->n_in, w->n_out, w->n_packed, w->data, w->row_bytes };
}

/* A matrix has no data only if model_rehearse gave it none.  A session then refuses to feed tokens, so any type will
 * do. */
static plumb_status check_type(const struct weight *w, struct error *err) {
    if (!w->data || kernels_have(w->type)) return PLUMB_OK;
    return error_set(err, PLUMB_ERROR_UNSUPPORTED, "tensor %s: no kernel supports type %s", w->name, w->traits->name);
}

/* Checks the matrices.  Rows of token_embd are only dequantized, and the model has made sure that norms and biases are
 * F32. */
static plumb_status check_types(const struct model *m, struct error *err) {
    PLUMB_TRY(check_type(m->output.w, err));
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        for (uint32_t i = 0; i < W_LAYER_COUNT; i++) {
            const struct weight *w = m->layers[il].w[i].w;
            if (w) PLUMB_TRY(check_type(w, err));
        }
    }
    return PLUMB_OK;
}

plumb_status forward_create(struct forward **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                            plumb_kv_type kv_type, const struct kernels *k, struct pool *pool, struct error *err) {
    *out = NULL;
    struct forward *f = calloc(1, sizeof *f);
    if (!f) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the forward pass needs %zu bytes", sizeof *f);
    f->model = m;
    f->n_ctx = n_ctx;
    f->n_batch = n_batch;
    f->pool = pool;
    f->kernels = *k;
    attention_kernels_init(&f->attention_kernels, k->isa == KERNELS_SCALAR);
    plumb_status status = check_types(m, err);
    if (status == PLUMB_OK && !allocate_scratch(f, kv_type)) {
        double mib = kv_cache_bytes(&m->plan, n_ctx, kv_type) / 1048576.0;
        status = error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a context of %u tokens needs %.1f MiB for K and V "
                           "and more for a batch; ask for a smaller context", n_ctx, mib);
    }
    if (status != PLUMB_OK) {
        forward_free(f);
        return status;
    }
    *out = f;
    return PLUMB_OK;
}

void forward_free(struct forward *f) {
    if (!f) return;
    void *const owned[] = { f->rope_cos[ROPE_GLOBAL], f->rope_sin[ROPE_GLOBAL], f->rope_cos[ROPE_LOCAL],
                            f->rope_sin[ROPE_LOCAL], f->rope_angles, f->x, f->norm, f->q, f->k, f->v, f->attn, f->gate,
                            f->up, f->input, f->tapped };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    attention_free(f->attention);
    activations_free(&f->acts);
    for (uint32_t i = 0; f->panels && i < pool_size(f->pool); i++) panel_free(&f->panels[i]);
    free(f->panels);
    free(f);
}

plumb_status forward_set_tap(struct forward *f, struct tap_sink sink) {
    if (sink.on_tap && !f->tapped) {
        uint64_t n_row = (uint64_t)f->n_batch * f->model->plan.max_head, n;
        f->tapped = mul_u64(n_row, f->n_ctx, &n) ? allocate(f, n, sizeof *f->tapped) : NULL;
        if (!f->tapped) return PLUMB_ERROR_MEMORY;
    }
    f->sink = sink;
    return PLUMB_OK;
}

uint64_t forward_bytes(const struct forward *f) {
    return f->bytes + (f->attention ? attention_bytes(f->attention) : 0);
}
const struct kernels *forward_kernels(const struct forward *f) { return &f->kernels; }

/* ---- taps ------------------------------------------------------------------------------------------------------ */

/* x: (n_token, n_head, n). */
static void tap(const struct forward *f, enum tap_id id, int32_t il, uint32_t pos, uint32_t n_token, uint32_t n_head,
                uint32_t n, const float *x) {
    if (!f->sink.on_tap) return;
    f->sink.on_tap(f->sink.user, &(plumb_tap) { tap_spec(id)->name, il, pos, n_token, n_head, n, x });
}

/* ---- steps --------------------------------------------------------------------------------------------------- */

/* One product y (n_token, n_out) = x W^T s + b.  Its tap shows y as (n_token, n_head, n_out / n_head); TAP_COUNT: no
 * tap shows it. */
struct product {
    enum tap_id tap;
    const struct affine *of;
    float *y;
    uint32_t n_head;
    bool scale_last;   /* the factor multiplies W x + b, not W x */
};

/* x (n) *= factor.  Skips the loop if factor is 1, as it is in most models. */
static void multiply(float *x, float factor, size_t n) {
    for (size_t i = 0; factor != 1.0f && i < n; i++) x[i] *= factor;
}

static const float *floats(const struct weight *w) { return (const float *)(const void *)w->data; }

/* Computes n products of the same x (n_token, n_in), in one loop over the threads.  They share the codes of x, which
 * are made once, so max_code is the smallest that any of their types allows.  If there is a sink, products are computed
 * one by one, which gives the same bits: a sink may measure the time between taps, and the first tap would be charged
 * with the time of all products. */
static void multiply_all(struct forward *f, const float *x, uint32_t n_token, int32_t il, uint32_t pos,
                         const struct product *p, uint32_t n) {
    struct matrix matrices[MAX_PRODUCTS];
    float *y[MAX_PRODUCTS];
    f->acts.x = x;
    f->acts.n = p->of->w->n_in;
    f->acts.n_token = n_token;
    f->acts.quantized = false;
    f->acts.max_code = MAX_CODE_16;
    for (uint32_t i = 0; i < n; i++) {
        const struct weight *w = p[i].of->w;
        int32_t max_code = kernels_max_code(f->kernels.precision, w->type);
        if (max_code < f->acts.max_code) f->acts.max_code = max_code;
        matrices[i] = matrix_of(w);
        y[i] = p[i].y;
    }
    uint32_t at_once = f->sink.on_tap ? 1 : n;
    for (uint32_t i = 0; i < n; i++) {
        if (i % at_once == 0) matmul(&f->kernels, f->pool, matrices + i, y + i, at_once, &f->acts, f->panels);
        uint32_t n_out = p[i].of->w->n_out;
        const struct weight *bias = p[i].of->b;
        float factor = p[i].of->s ? floats(p[i].of->s)[0] : 1.0f;
        if (!p[i].scale_last) multiply(y[i], factor, (size_t)n_token * n_out);
        for (uint32_t t = 0; bias && t < n_token; t++) {
            f->kernels.add_scaled(y[i] + (size_t)t * n_out, floats(bias), 1.0f, n_out);
        }
        if (p[i].scale_last) multiply(y[i], factor, (size_t)n_token * n_out);
        if (p[i].tap < TAP_COUNT) tap(f, p[i].tap, il, pos, n_token, p[i].n_head, n_out / p[i].n_head, y[i]);
    }
}

/* The arguments of a step that threads share by tokens: y is computed from x, or in place.  x and y are (n_token, n);
 * the first token is at pos.  A step leaves fields that it does not use NULL or 0. */
struct step {
    const struct forward *f;
    const struct layer_plan *layer;
    const struct affine *of;
    const float *x;
    float *y;
    uint32_t n, pos;
};

static float mean_of(const float *x, uint32_t n) {
    float lanes[4] = { 0 };   /* so that compilers add in the same order on every host */
    for (uint32_t i = 0; i < n; i++) lanes[i % 4] += x[i];
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) / (float)n;
}

static void norm_rows(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct step *s = user;
    const struct kernels *k = &s->f->kernels;
    const struct plan *p = &s->f->model->plan;
    for (uint32_t i = begin; i < end; i++) {
        const float *x = s->x + (size_t)i * s->n;
        float *y = s->y + (size_t)i * s->n;
        if (p->norm == NORM_LAYER) {
            float mean = mean_of(x, s->n);
            for (uint32_t j = 0; j < s->n; j++) y[j] = x[j] - mean;
            x = y;
        }
        float mean_square = k->dot_f32(x, x, s->n) / (float)s->n;
        float scale = 1.0f / (float)math_sqrt((double)(mean_square + p->norm_eps));
        if (s->of->w) k->mul_scaled(y, x, scale, floats(s->of->w), s->n);
        else for (uint32_t j = 0; j < s->n; j++) y[j] = x[j] * scale;
        if (s->of->b) k->add_scaled(y, floats(s->of->b), 1.0f, s->n);
    }
    (void)thread;
}

/* Each row of y (n_row, n) = x / sqrt(mean(x^2) + eps) * w + b; y may be x.  Zhang & Sennrich 2019, eq. 4.  The layer
 * norm first subtracts the mean of x.  Ba et al. 2016, "Layer Normalization". */
static void normalize(const struct forward *f, const struct affine *of, uint32_t n, const float *x, uint32_t n_row,
                      float *y) {
    pool_share(f->pool, n_row, norm_rows, &(struct step) { .f = f, .of = of, .x = x, .y = y, .n = n });
}

/* Fills the tables for the positions before end that are not filled yet.  Filling all of them in forward_create would
 * take 6 ms for 2048 positions. */
static void fill_ropes(struct forward *f, uint32_t end) {
    for (; f->n_rope < end; f->n_rope++) {
        for (uint32_t i = 0; i < PLAN_ROPES; i++) {
            uint32_t half = f->model->plan.ropes[i].n_rot / 2;
            model_rope_angles(f->model, i, f->n_rope, f->rope_angles);
            for (uint32_t j = 0; j < half; j++) {
                double sine, cosine;
                math_sincos(f->rope_angles[j], &sine, &cosine);
                f->rope_cos[i][(size_t)f->n_rope * half + j] = (float)cosine;
                f->rope_sin[i][(size_t)f->n_rope * half + j] = (float)sine;
            }
        }
    }
}

static void rope_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct step *s = user;
    const struct forward *f = s->f;
    const struct attn_plan *a = &s->layer->attn;
    const struct rope_plan *rope = &f->model->plan.ropes[a->rope];
    uint32_t half = rope->n_rot / 2;
    /* Elements a and b of pair i: (2i, 2i + 1) or (i, i + half). */
    uint32_t stride = rope->pairing == ROPE_NORM ? 2 : 1, distance = rope->pairing == ROPE_NORM ? 1 : half;
    for (uint32_t t = begin; t < end; t++) {
        const float *cosine = f->rope_cos[a->rope] + (size_t)(s->pos + t) * half;
        const float *sine = f->rope_sin[a->rope] + (size_t)(s->pos + t) * half;
        float *x = s->y + (size_t)t * s->n;
        for (const float *row_end = x + s->n; x < row_end; x += a->k_dim) {
            f->attention_kernels.rotate(x, x + distance, stride, cosine, sine, half);
        }
    }
    (void)thread;
}

/* Rotates each head of x (n_token, n_head * k_dim) by the angles of its token's position, in place.  Su et al. 2021,
 * eq. 34. */
static void rope(const struct forward *f, const struct layer_plan *layer, float *x, uint32_t n_head, uint32_t n_token,
                 uint32_t pos) {
    struct step step = { .f = f, .layer = layer, .y = x, .n = n_head * layer->attn.k_dim, .pos = pos };
    if (layer->attn.rope == ROPE_NONE) return;
    pool_share(f->pool, n_token, rope_tokens, &step);
}

static void gate_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct step *s = user;
    const struct kernels *k = &s->f->kernels;
    size_t at = (size_t)begin * s->n, n = (size_t)(end - begin) * s->n;
    float *y = s->y + at;
    const float *up = s->x ? s->x + at : NULL;
    switch (s->layer->ffn.activation) {
    case ACT_SILU: k->swiglu(y, up, n); break;
    case ACT_GELU_TANH:
        if (up) k->geglu(y, up, n);
        else k->gelu(y, n);
        break;
    case ACT_RELU_SQR:
        for (size_t i = 0; i < n; i++) y[i] = (y[i] > 0.0f ? y[i] : y[i] * 0.0f) * y[i] * (up ? up[i] : 1.0f);
        break;
    }
    (void)thread;
}

/* gate <- activation(gate) * up, (n_token, n_ff) each; up is NULL if there is no gate: gate <- activation(gate).
 * Shazeer 2020. */
static void activate(const struct forward *f, const struct layer_plan *layer, float *gate, const float *up,
                     uint32_t n_token) {
    struct step step = { .f = f, .layer = layer, .x = up, .y = gate, .n = layer->ffn.n_ff };
    pool_share(f->pool, n_token, gate_tokens, &step);
}

static void add_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct step *s = user;
    size_t at = (size_t)begin * s->n;
    s->f->kernels.add_scaled(s->y + at, s->x + at, s->f->model->plan.residual_scale, (size_t)(end - begin) * s->n);
    (void)thread;
}

/* x += y * residual_scale, (n_token, n_embd) each. */
static void add_residual(const struct forward *f, float *x, const float *y, uint32_t n_token) {
    pool_share(f->pool, n_token, add_tokens, &(struct step) { .f = f, .x = y, .y = x, .n = f->model->plan.n_embd });
}

/* ---- the layers ------------------------------------------------------------------------------------------------ */

/* The batch that a pass computes: n tokens, the first one at pos. */
struct batch { uint32_t n, pos; };

/* If the layer has this norm, y (n_token, n_head * n) becomes the norm of x, computed over the width of its weight, and
 * tap shows it as (n_token, n_head, n).  Returns y then, and x if the layer does not have it. */
static float *norm(const struct forward *f, const struct layer *l, enum weight_id weight, int32_t il,
                   struct batch b, enum tap_id id, uint32_t n_head, uint32_t n, float *x, float *y) {
    const struct affine *of = &l->w[weight];
    bool is_bare = f->model->plan.bare_norms >> weight & 1;
    if (!of->w && !is_bare) return x;
    uint32_t n_in = of->w ? of->w->n_in : n;   /* the norm of a row of heads has the width of all of them */
    normalize(f, of, n_in, x, (uint32_t)((uint64_t)b.n * n_head * n / n_in), y);
    tap(f, id, il, b.pos, b.n, n_head, n, y);
    return y;
}

/* The norms of Q and K, at their time: before RoPE or after it. */
static void norm_qk(const struct forward *f, const struct layer *l, const struct attn_plan *a, bool is_roped,
                    int32_t il, struct batch b) {
    if (is_roped != (a->qk_norm == QK_NORM_HEAD_ROPED)) return;
    norm(f, l, W_ATTN_Q_NORM, il, b, TAP_QCUR_NORMED, a->n_head, a->k_dim, f->q, f->q);
    norm(f, l, W_ATTN_K_NORM, il, b, TAP_KCUR_NORMED, a->n_head_kv, a->k_dim, f->k, f->k);
}

/* f->norm becomes the output of attention over x (n_token, n_embd). */
static void run_attention(struct forward *f, uint32_t il, struct batch b, const float *x) {
    const struct layer *l = &f->model->layers[il];
    const struct layer_plan *p = &f->model->plan.layers[il];
    const struct attn_plan *a = &p->attn;
    int32_t at = (int32_t)il;
    const struct product qkv[] = { { TAP_QCUR, &l->w[W_ATTN_Q], f->q, a->n_head, false },
                                   { TAP_KCUR, &l->w[W_ATTN_K], f->k, a->n_head_kv, false },
                                   { TAP_VCUR, &l->w[W_ATTN_V], f->v, a->n_head_kv, false } };
    multiply_all(f, x, b.n, at, b.pos, qkv, 3);
    norm_qk(f, l, a, false, at, b);
    rope(f, p, f->q, a->n_head, b.n, b.pos);
    tap(f, TAP_QCUR_ROPE, at, b.pos, b.n, a->n_head, a->k_dim, f->q);
    rope(f, p, f->k, a->n_head_kv, b.n, b.pos);
    tap(f, TAP_KCUR_ROPE, at, b.pos, b.n, a->n_head_kv, a->k_dim, f->k);
    norm_qk(f, l, a, true, at, b);
    attention_store(f->attention, il, f->k, f->v, b.n, b.pos);
    attention_run(f->attention, il, f->q, b.n, b.pos, f->attn, f->sink.on_tap ? f->tapped : NULL);
    tap(f, TAP_KQ_SOFT_MAX, at, b.pos, b.n, a->n_head, b.pos + b.n, f->tapped);
    tap(f, TAP_KQV_OUT, at, b.pos, b.n, a->n_head, a->v_dim, f->attn);
    const struct product out = { TAP_ATTN_OUT, &l->w[W_ATTN_OUTPUT], f->norm, 1, false };
    multiply_all(f, f->attn, b.n, at, b.pos, &out, 1);
}

/* f->norm becomes the output of the feed-forward network for x (n_token, n_embd). */
static void run_feed_forward(struct forward *f, uint32_t il, struct batch b, const float *x) {
    const struct layer *l = &f->model->layers[il];
    const struct layer_plan *p = &f->model->plan.layers[il];
    int32_t at = (int32_t)il;
    const struct product gate_up[] = { { TAP_FFN_GATE, &l->w[W_FFN_GATE], f->gate, 1, true },
                                       { TAP_FFN_UP, &l->w[W_FFN_UP], f->up, 1, true } };
    bool has_gate = l->w[W_FFN_GATE].w != NULL;
    multiply_all(f, x, b.n, at, b.pos, has_gate ? gate_up : gate_up + 1, has_gate ? 2 : 1);
    float *activated = has_gate ? f->gate : f->up;
    activate(f, p, activated, has_gate ? f->up : NULL, b.n);
    tap(f, TAP_FFN_SWIGLU, at, b.pos, b.n, 1, p->ffn.n_ff, activated);
    const struct product out = { TAP_FFN_OUT, &l->w[W_FFN_DOWN], f->norm, 1, true };
    multiply_all(f, activated, b.n, at, b.pos, &out, 1);
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

void forward_run(struct forward *f, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_logits, float *logits) {
    const struct model *m = f->model;
    const struct plan *p = &m->plan;
    const struct weight *embd = m->token_embd.w;
    const struct batch b = { n, pos };
    fill_ropes(f, pos + n);
    /* If a row is packed, it is unpacked to bytes of the first panel, which no product is using now. */
    for (uint32_t t = 0; t < n; t++) {
        const uint8_t *row = weight_row(embd, (size_t)ids[t], f->panels->bytes);
        embd->traits->dequantize(row, f->x + (size_t)t * p->n_embd, p->n_embd);
    }
    multiply(f->x, p->embedding_scale, (size_t)n * p->n_embd);
    tap(f, TAP_EMBD, -1, pos, n, 1, p->n_embd, f->x);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct layer *l = &m->layers[il];
        int32_t at = (int32_t)il;
        float *h = norm(f, l, W_ATTN_NORM, at, b, TAP_ATTN_NORM, 1, p->n_embd, f->x, f->norm);
        const float *input = l->w[W_FFN_NORM].w ? f->x : h;
        if (p->is_parallel) memcpy(f->input, input, (size_t)n * p->n_embd * sizeof *input);
        run_attention(f, il, b, h);
        norm(f, l, W_ATTN_POST_NORM, at, b, TAP_ATTN_POST_NORM, 1, p->n_embd, f->norm, f->norm);
        add_residual(f, f->x, f->norm, n);
        tap(f, TAP_FFN_INP, at, pos, n, 1, p->n_embd, f->x);
        h = p->is_parallel ? f->input : f->x;
        run_feed_forward(f, il, b, norm(f, l, W_FFN_NORM, at, b, TAP_FFN_NORM, 1, p->n_embd, h, f->norm));
        norm(f, l, W_FFN_POST_NORM, at, b, TAP_FFN_POST_NORM, 1, p->n_embd, f->norm, f->norm);
        add_residual(f, f->x, f->norm, n);
        tap(f, TAP_L_OUT, at, pos, n, 1, p->n_embd, f->x);
    }
    if (n_logits == 0) return;
    uint32_t first = n - n_logits;
    normalize(f, &m->output_norm, p->n_embd, f->x + (size_t)first * p->n_embd, n_logits, f->norm);
    tap(f, TAP_RESULT_NORM, -1, pos + first, n_logits, 1, p->n_embd, f->norm);
    const struct product output = { TAP_COUNT, &m->output, logits, 1, false };   /* its tap comes after the scale */
    multiply_all(f, f->norm, n_logits, -1, pos + first, &output, 1);
    multiply(logits, 1.0f / p->logit_scale, (size_t)n_logits * p->n_vocab);
    if (p->logit_softcap != 0.0f) f->kernels.softcap(logits, p->logit_softcap, (size_t)n_logits * p->n_vocab);
    tap(f, TAP_RESULT_OUTPUT, -1, pos + first, n_logits, 1, p->n_vocab, logits);
}

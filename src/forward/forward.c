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
    struct attention *attention;   /* has the KV cache */
    /* cos and sin of RoPE's angles: (n_ctx, n_rot / 2) each, filled for the first n_rope positions. */
    float *rope_cos, *rope_sin;
    double *rope_angles;   /* (n_rot / 2) scratch */
    uint32_t n_rope;
    /* Scratch for a batch. */
    float *x;        /* (n_token, n_embd) the residual stream */
    float *norm;     /* (n_token, n_embd) */
    float *q;        /* (n_token, n_head * head_dim) */
    float *k, *v;    /* (n_token, n_head_kv * head_dim) */
    float *attn;     /* (n_token, n_head * head_dim) */
    float *gate, *up;/* (n_token, n_ff) */
    struct tap_sink sink;
    float *tapped;   /* (n_token, n_head, n_ctx) all attention weights of a layer; NULL until a sink is set */
    struct activations acts;
    struct panel *panels;   /* one per thread */
};

/* ---- memory -------------------------------------------------------------------------------------------------- */

static void *take(struct forward *f, uint64_t n, size_t size) {
    void *p = alloc_array(n, size);
    if (p) f->bytes += n * size;
    return p;
}

static bool take_panels(struct forward *f, uint32_t n_in) {
    f->panels = calloc(pool_size(f->pool), sizeof *f->panels);
    for (uint32_t i = 0; f->panels && i < pool_size(f->pool); i++) {
        if (panel_create(&f->panels[i], n_in, &f->bytes) != PLUMB_OK) return false;
    }
    return f->panels;
}

static bool take_scratch(struct forward *f, plumb_kv_type kv_type) {
    const struct model_config *c = &f->model->config;
    uint64_t n_q = (uint64_t)c->n_head * c->head_dim, n_kv = (uint64_t)c->n_head_kv * c->head_dim, b = f->n_batch;
    uint64_t n_max = model_max_row(c);
    if (n_max > UINT32_MAX) return false;
    uint32_t n_in = (uint32_t)n_max;
    return attention_create(&f->attention, c, f->n_ctx, kv_type, &f->attention_kernels, &f->kernels,
                            f->pool) == PLUMB_OK
        && (f->rope_cos = take(f, (uint64_t)f->n_ctx * (c->n_rot / 2), sizeof(float)))
        && (f->rope_sin = take(f, (uint64_t)f->n_ctx * (c->n_rot / 2), sizeof(float)))
        && (f->rope_angles = take(f, c->n_rot / 2, sizeof(double)))
        && (f->x = take(f, b * c->n_embd, sizeof(float)))
        && (f->norm = take(f, b * c->n_embd, sizeof(float)))
        && (f->q = take(f, b * n_q, sizeof(float)))
        && (f->k = take(f, b * n_kv, sizeof(float)))
        && (f->v = take(f, b * n_kv, sizeof(float)))
        && (f->attn = take(f, b * n_q, sizeof(float)))
        && (f->gate = take(f, b * c->n_ff, sizeof(float)))
        && (f->up = take(f, b * c->n_ff, sizeof(float)))
        && activations_create(&f->acts, n_in, f->n_batch, &f->kernels, &f->bytes) == PLUMB_OK
        && take_panels(f, n_in);
}

static struct matrix matrix_of(const struct weight *w) {
    return (struct matrix) { w->type, w->n_in, w->n_out, w->n_packed, w->data, w->row_bytes };
}

static plumb_status check_type(const struct weight *w, struct error *err) {
    if (!w->data || kernels_have(w->type)) return PLUMB_OK;
    return error_set(err, PLUMB_ERROR_UNSUPPORTED, "tensor %s: no kernel multiplies with %s", w->name, w->traits->name);
}

static plumb_status check_types(const struct model *m, struct error *err) {
    PLUMB_TRY(check_type(&m->output, err));
    for (uint32_t il = 0; il < m->config.n_layer; il++) {
        const struct layer *l = &m->layers[il];
        const struct weight *used[] = { &l->attn_q, &l->attn_k, &l->attn_v, &l->attn_output,
                                        &l->ffn_gate, &l->ffn_up, &l->ffn_down };
        for (size_t i = 0; i < sizeof used / sizeof *used; i++) PLUMB_TRY(check_type(used[i], err));
    }
    return PLUMB_OK;
}

plumb_status forward_create(struct forward **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                            plumb_kv_type kv_type, const struct kernels *k, struct pool *pool, struct error *err) {
    *out = NULL;
    struct forward *f = calloc(1, sizeof *f);
    if (!f) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %zu bytes for the forward pass", sizeof *f);
    f->model = m;
    f->n_ctx = n_ctx;
    f->n_batch = n_batch;
    f->pool = pool;
    f->kernels = *k;
    attention_kernels_init(&f->attention_kernels, k->isa == KERNELS_SCALAR);
    plumb_status status = check_types(m, err);
    if (status == PLUMB_OK && !take_scratch(f, kv_type)) {
        double mib = kv_cache_bytes(&m->config, n_ctx, kv_type) / 1048576.0;
        status = error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a context of %u tokens needs %.1f MiB for K and V "
                           "(%.1f MiB could be had); ask for a smaller context", n_ctx, mib,
                           (double)forward_bytes(f) / 1048576.0);
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
    void *const owned[] = { f->rope_cos, f->rope_sin, f->rope_angles, f->x, f->norm, f->q, f->k, f->v, f->attn,
                            f->gate, f->up, f->tapped };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    attention_free(f->attention);
    activations_free(&f->acts);
    for (uint32_t i = 0; f->panels && i < pool_size(f->pool); i++) panel_free(&f->panels[i]);
    free(f->panels);
    free(f);
}

plumb_status forward_set_tap(struct forward *f, struct tap_sink sink) {
    if (sink.on_tap && !f->tapped) {
        uint64_t n_row = (uint64_t)f->n_batch * f->model->config.n_head, n;
        f->tapped = mul_u64(n_row, f->n_ctx, &n) ? take(f, n, sizeof *f->tapped) : NULL;
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

/* One product y (n_token, n_out) = W x + bias.  tap shows y in rows of n_head heads; TAP_COUNT: no tap does. */
struct product {
    enum tap_id tap;
    const struct weight *w, *bias;   /* bias: NULL, or optional */
    float *y;
    uint32_t n_head;
};

/* Computes n products of the same x (n_token, n_in), in one loop over the threads.  If there are taps it computes them
 * one by one, because the first tap would otherwise see the time of all of them. */
static void multiply_all(struct forward *f, const float *x, uint32_t n_token, int32_t il, uint32_t pos,
                         const struct product *p, uint32_t n) {
    struct matrix matrices[MAX_PRODUCTS];
    float *y[MAX_PRODUCTS];
    f->acts.x = x;
    f->acts.n = p->w->n_in;
    f->acts.n_token = n_token;
    f->acts.quantized = false;
    f->acts.max_code = MAX_CODE_16;
    for (uint32_t i = 0; i < n; i++) {
        const struct weight *w = p[i].w;
        int32_t max_code = kernels_max_code(f->kernels.precision, w->type);
        if (max_code < f->acts.max_code) f->acts.max_code = max_code;
        matrices[i] = matrix_of(w);
        y[i] = p[i].y;
    }
    uint32_t at_once = f->sink.on_tap ? 1 : n;
    for (uint32_t i = 0; i < n; i++) {
        if (i % at_once == 0) matmul(&f->kernels, f->pool, matrices + i, y + i, at_once, &f->acts, f->panels);
        uint32_t n_out = p[i].w->n_out;
        const struct weight *bias = p[i].bias;
        for (uint32_t t = 0; bias && bias->data && t < n_token; t++) {
            f->kernels.add_scaled(y[i] + (size_t)t * n_out, (const float *)(const void *)bias->data, 1.0f, n_out);
        }
        if (p[i].tap < TAP_COUNT) tap(f, p[i].tap, il, pos, n_token, p[i].n_head, n_out / p[i].n_head, y[i]);
    }
}

/* The arguments of a step that threads share by tokens.  x and y are (n_token, n); the first token is at pos. */
struct step {
    const struct forward *f;
    const struct weight *w;
    const float *x;
    float *y;
    uint32_t n, pos;
};

static void rms_norm_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct step *s = user;
    const struct kernels *k = &s->f->kernels;
    for (uint32_t t = begin; t < end; t++) {
        const float *x = s->x + (size_t)t * s->n;
        float mean = k->dot_f32(x, x, s->n) / (float)s->n;
        float scale = 1.0f / (float)math_sqrt((double)(mean + s->f->model->config.rms_eps));
        k->mul_scaled(s->y + (size_t)t * s->n, x, scale, (const float *)(const void *)s->w->data, s->n);
    }
    (void)thread;
}

/* y = x / sqrt(mean(x^2) + eps) * w, each row of (n_token, n).  Zhang & Sennrich 2019, eq. 4. */
static void rms_norm(const struct forward *f, const struct weight *w, const float *x, uint32_t n_token, float *y) {
    pool_share(f->pool, n_token, rms_norm_tokens, &(struct step) { f, w, x, y, w->n_in, 0 });
}

/* Fills the tables for the positions before end.  Filling all of them in forward_create would take 6 ms for 2048
 * positions. */
static void fill_rope(struct forward *f, uint32_t end) {
    uint32_t half = f->model->config.n_rot / 2;
    for (; f->n_rope < end; f->n_rope++) {
        model_rope_angles(f->model, f->n_rope, f->rope_angles);
        for (uint32_t i = 0; i < half; i++) {
            double sine, cosine;
            math_sincos(f->rope_angles[i], &sine, &cosine);
            f->rope_cos[(size_t)f->n_rope * half + i] = (float)cosine;
            f->rope_sin[(size_t)f->n_rope * half + i] = (float)sine;
        }
    }
}

static void rope_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct step *s = user;
    const struct forward *f = s->f;
    const struct model_config *c = &f->model->config;
    uint32_t half = c->n_rot / 2;
    /* Elements a and b of pair i: (2i, 2i + 1) or (i, i + half). */
    uint32_t step = c->rope_pairing == ROPE_NORM ? 2 : 1, apart = c->rope_pairing == ROPE_NORM ? 1 : half;
    for (uint32_t t = begin; t < end; t++) {
        const float *cosine = f->rope_cos + (size_t)(s->pos + t) * half;
        const float *sine = f->rope_sin + (size_t)(s->pos + t) * half;
        float *x = s->y + (size_t)t * s->n;
        for (const float *row_end = x + s->n; x < row_end; x += c->head_dim) {
            f->attention_kernels.rotate(x, x + apart, step, cosine, sine, half);
        }
    }
    (void)thread;
}

/* Rotates each head of x (n_token, n_head * head_dim) by its position.  Su et al. 2021, eq. 34. */
static void rope(const struct forward *f, float *x, uint32_t n_head, uint32_t n_token, uint32_t pos) {
    uint32_t n = n_head * f->model->config.head_dim;
    pool_share(f->pool, n_token, rope_tokens, &(struct step) { f, NULL, NULL, x, n, pos });
}

static void swiglu_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct step *s = user;
    size_t at = (size_t)begin * s->n;
    s->f->kernels.swiglu(s->y + at, s->x + at, (size_t)(end - begin) * s->n);
    (void)thread;
}

/* gate <- gate / (1 + exp(-gate)) * up, (n_token, n_ff) each. */
static void swiglu(const struct forward *f, float *gate, const float *up, uint32_t n_token) {
    pool_share(f->pool, n_token, swiglu_tokens, &(struct step) { f, NULL, up, gate, f->model->config.n_ff, 0 });
}

static void add_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct step *s = user;
    size_t at = (size_t)begin * s->n;
    s->f->kernels.add_scaled(s->y + at, s->x + at, s->f->model->config.residual_scale, (size_t)(end - begin) * s->n);
    (void)thread;
}

/* x += y * residual_scale, (n_token, n_embd) each. */
static void add_residual(const struct forward *f, float *x, const float *y, uint32_t n_token) {
    pool_share(f->pool, n_token, add_tokens, &(struct step) { f, NULL, y, x, f->model->config.n_embd, 0 });
}

/* x (n) *= by.  Skips the loop if by is 1, as it is in most models. */
static void multiply(float *x, float by, size_t n) {
    for (size_t i = 0; by != 1.0f && i < n; i++) x[i] *= by;
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

void forward_run(struct forward *f, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_logits, float *logits) {
    const struct model *m = f->model;
    const struct model_config *c = &m->config;
    const struct weight *embd = &m->token_embd;
    fill_rope(f, pos + n);
    for (uint32_t t = 0; t < n; t++) {
        const uint8_t *row = weight_row(embd, (size_t)ids[t], f->panels->bytes);
        embd->traits->dequantize(row, f->x + (size_t)t * c->n_embd, c->n_embd);
    }
    multiply(f->x, c->embedding_scale, (size_t)n * c->n_embd);
    tap(f, TAP_EMBD, -1, pos, n, 1, c->n_embd, f->x);
    for (uint32_t il = 0; il < c->n_layer; il++) {
        const struct layer *l = &m->layers[il];
        int32_t at = (int32_t)il;

        rms_norm(f, &l->attn_norm, f->x, n, f->norm);
        tap(f, TAP_ATTN_NORM, at, pos, n, 1, c->n_embd, f->norm);
        const struct product qkv[] = { { TAP_QCUR, &l->attn_q, &l->attn_q_bias, f->q, c->n_head },
                                       { TAP_KCUR, &l->attn_k, &l->attn_k_bias, f->k, c->n_head_kv },
                                       { TAP_VCUR, &l->attn_v, &l->attn_v_bias, f->v, c->n_head_kv } };
        multiply_all(f, f->norm, n, at, pos, qkv, 3);
        rope(f, f->q, c->n_head, n, pos);
        tap(f, TAP_QCUR_ROPE, at, pos, n, c->n_head, c->head_dim, f->q);
        rope(f, f->k, c->n_head_kv, n, pos);
        tap(f, TAP_KCUR_ROPE, at, pos, n, c->n_head_kv, c->head_dim, f->k);
        attention_store(f->attention, il, f->k, f->v, n, pos);
        attention_run(f->attention, il, f->q, n, pos, f->attn, f->sink.on_tap ? f->tapped : NULL);
        tap(f, TAP_KQ_SOFT_MAX, at, pos, n, c->n_head, pos + n, f->tapped);
        tap(f, TAP_KQV_OUT, at, pos, n, c->n_head, c->head_dim, f->attn);
        const struct product attn_out = { TAP_ATTN_OUT, &l->attn_output, &l->attn_output_bias, f->norm, 1 };
        multiply_all(f, f->attn, n, at, pos, &attn_out, 1);
        add_residual(f, f->x, f->norm, n);
        tap(f, TAP_FFN_INP, at, pos, n, 1, c->n_embd, f->x);

        rms_norm(f, &l->ffn_norm, f->x, n, f->norm);
        tap(f, TAP_FFN_NORM, at, pos, n, 1, c->n_embd, f->norm);
        const struct product gate_up[] = { { TAP_FFN_GATE, &l->ffn_gate, NULL, f->gate, 1 },
                                           { TAP_FFN_UP, &l->ffn_up, NULL, f->up, 1 } };
        multiply_all(f, f->norm, n, at, pos, gate_up, 2);
        swiglu(f, f->gate, f->up, n);
        tap(f, TAP_FFN_SWIGLU, at, pos, n, 1, c->n_ff, f->gate);
        const struct product ffn_out = { TAP_FFN_OUT, &l->ffn_down, NULL, f->norm, 1 };
        multiply_all(f, f->gate, n, at, pos, &ffn_out, 1);
        add_residual(f, f->x, f->norm, n);
        tap(f, TAP_L_OUT, at, pos, n, 1, c->n_embd, f->x);
    }
    if (n_logits == 0) return;
    uint32_t first = n - n_logits;
    rms_norm(f, &m->output_norm, f->x + (size_t)first * c->n_embd, n_logits, f->norm);
    tap(f, TAP_RESULT_NORM, -1, pos + first, n_logits, 1, c->n_embd, f->norm);
    const struct product output = { TAP_COUNT, &m->output, NULL, logits, 1 };   /* its tap comes after the scale */
    multiply_all(f, f->norm, n_logits, -1, pos + first, &output, 1);
    multiply(logits, 1.0f / c->logit_scale, (size_t)n_logits * c->n_vocab);
    tap(f, TAP_RESULT_OUTPUT, -1, pos + first, n_logits, 1, c->n_vocab, logits);
}

/* The fast pass: run is a loop over the programs of the layers (model/program.h), and the steps are above it, those of
 * experts in experts.c.
 * Shapes: t is a token of the batch; (n_token, x) means that row t starts at t * x. */
#include "forward/steps.h"

#include "base/math.h"
#include "forward/kv_cache.h"

#include <math.h>
#include <stdlib.h>

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

static bool allocate_experts(struct forward *f) {
    const struct plan *p = &f->model->plan;
    struct expert_scratch *e = &f->experts;
    uint64_t b = f->n_batch;
    if (p->max_expert == 0) return true;
    return (e->scores = allocate(f, b * p->max_expert, sizeof *e->scores))
        && (e->choice = allocate(f, b * p->max_expert, sizeof *e->choice))
        && (e->used = allocate(f, b * p->max_used, sizeof *e->used))
        && (e->weights = allocate(f, b * p->max_used, sizeof *e->weights))
        && (e->tokens = allocate(f, b, sizeof *e->tokens))
        && (e->x = allocate(f, b * p->n_embd, sizeof *e->x))
        && (e->y = allocate(f, b * p->n_embd, sizeof *e->y))
        && (e->out = allocate(f, b * p->n_embd, sizeof *e->out))
        && (e->ids = allocate(f, b * p->max_used, sizeof *e->ids))
        && (e->gate = allocate(f, b, sizeof *e->gate));
}

/* Memory for the streams that the programs of the layers use. */
static bool allocate_streams(struct forward *f) {
    const struct model *m = f->model;
    for (uint32_t k = 0; k < STREAM_COUNT; k++) {
        bool is_state = k == STREAM_LOW || k == STREAM_HIGH, is_used = k == STREAM_X || k == STREAM_H;
        if (is_state && m->plan.has_states) is_used = true;
        for (uint32_t il = 0; il < m->plan.n_layer && !is_used; il++) {
            is_used = program_uses(&m->layers[il].program, (enum stream)k);
        }
        if (is_used) f->streams[k] = allocate(f, (uint64_t)f->n_batch * m->plan.n_embd, sizeof(float));
        if (is_used && !f->streams[k]) return false;
    }
    f->x = f->streams[STREAM_X];
    f->norm = f->streams[STREAM_H];
    return true;
}

static bool allocate_scratch(struct forward *f, plumb_kv_type kv_type) {
    const struct plan *p = &f->model->plan;
    uint64_t b = f->n_batch, n_max = plan_max_row(p);
    if (n_max > UINT32_MAX) return false;
    uint32_t n_in = (uint32_t)n_max;
    return attention_create(&f->attention, p, f->n_ctx, f->n_batch, kv_type, &f->attention_kernels, &f->kernels,
                            f->pool) == PLUMB_OK
        && allocate_ropes(f)
        && allocate_streams(f)
        && (f->q = allocate(f, b * p->max_q, sizeof(float)))
        && (f->k = allocate(f, b * p->max_k, sizeof(float)))
        && (f->v = allocate(f, b * p->max_v, sizeof(float)))
        && (f->attn = allocate(f, b * p->max_q, sizeof(float)))
        && (!p->has_gates || (f->gates = allocate(f, b * p->max_q, sizeof(float))))
        && (f->gate = allocate(f, b * p->max_ff, sizeof(float)))
        && (f->up = allocate(f, b * p->max_ff, sizeof(float)))
        && allocate_experts(f)
        && (f->head = allocate(f, 2 * (uint64_t)plan_max_head(p), sizeof(float)))
        && (f->positions = allocate(f, b, sizeof *f->positions))
        && activations_create(&f->acts, n_in, f->n_batch, &f->kernels, &f->bytes) == PLUMB_OK
        && allocate_panels(f, n_in);
}

static struct matrix matrix_of(const struct weight *w) {
    return (struct matrix) { w->type, w->n_in, w->n_out, w->n_packed, w->data, w->row_bytes };
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
    plumb_status status = PLUMB_OK;
    if (!allocate_scratch(f, kv_type)) {
        double mib = kv_cache_bytes(&m->plan, n_ctx, n_batch, kv_type) / 1048576.0;
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
                            f->rope_sin[ROPE_LOCAL], f->rope_angles, f->q, f->k, f->v, f->attn, f->gate, f->up, f->head,
                            f->gates, f->positions, f->tapped, f->experts.scores, f->experts.choice, f->experts.used,
                            f->experts.weights, f->experts.tokens, f->experts.x, f->experts.y, f->experts.out,
                            f->experts.ids, f->experts.gate };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    for (size_t i = 0; i < sizeof f->experts.shown / sizeof *f->experts.shown; i++) free(f->experts.shown[i]);
    for (size_t i = 0; i < STREAM_COUNT; i++) free(f->streams[i]);
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
    uint64_t n_shown, n_used = plan_max_used_row(&f->model->plan);
    for (size_t i = 0; sink.on_tap && n_used > 0 && i < sizeof f->experts.shown / sizeof *f->experts.shown; i++) {
        float **shown = &f->experts.shown[i];
        if (!*shown && mul_u64(n_used, f->n_batch, &n_shown)) *shown = allocate(f, n_shown, sizeof **shown);
        if (!*shown) return PLUMB_ERROR_MEMORY;
    }
    f->sink = sink;
    return PLUMB_OK;
}

uint64_t forward_bytes(const struct forward *f) {
    return f->bytes + (f->attention ? attention_bytes(f->attention) : 0);
}
const struct kernels *forward_kernels(const struct forward *f) { return &f->kernels; }

const float *forward_embeddings(const struct forward *f) { return f->norm; }

/* ---- taps ------------------------------------------------------------------------------------------------------ */

void forward_tap(const struct forward *f, enum tap_id id, int32_t il, uint32_t pos, uint32_t n_token, uint32_t n_head,
                 uint32_t n, const float *x) {
    if (!f->sink.on_tap || id == TAP_COUNT) return;
    if (id >= TAP_EXPERT_GATE && id <= TAP_EXPERT_WEIGHTED) {
        for (uint32_t i = 0; i < n_token; i++) {
            float *to = f->experts.shown[id - TAP_EXPERT_GATE] + (size_t)f->experts.tokens[i] * n;
            memcpy(to, x + (size_t)i * n, n * sizeof *x);
        }
        return;
    }
    f->sink.on_tap(f->sink.user, &(plumb_tap) { tap_spec(id)->name, il, pos, n_token, n_head, n, x });
}

/* ---- steps --------------------------------------------------------------------------------------------------- */

/* x (n) *= factor.  Skips the loop if factor is 1, as it is in most models. */
static void multiply(float *x, float factor, size_t n) {
    for (size_t i = 0; factor != 1.0f && i < n; i++) x[i] *= factor;
}

/* x (n) = x within -limit .. limit, or x if limit is 0; NaN stays NaN. */
static void clamp(float *x, float limit, size_t n) {
    for (size_t i = 0; limit != 0.0f && i < n; i++) x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

/* The products share the codes of x, which are made once, so max_code is the smallest of what kernels_max_code returns
 * for their types.  If there is a sink, products are computed one by one, which gives the same bits: a sink may measure
 * the time between taps, and the first tap would be charged with the time of all products. */
void forward_multiply(struct forward *f, const float *x, uint32_t n_token, int32_t il, uint32_t pos,
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
        float factor = p[i].of->s ? weight_floats(p[i].of->s)[0] : 1.0f;
        if (!p[i].scale_last) multiply(y[i], factor, (size_t)n_token * n_out);
        for (uint32_t t = 0; bias && t < n_token; t++) {
            f->kernels.add_scaled(y[i] + (size_t)t * n_out, weight_floats(bias), 1.0f, n_out);
        }
        if (p[i].scale_last) multiply(y[i], factor, (size_t)n_token * n_out);
        clamp(y[i], p[i].clamp, (size_t)n_token * n_out);
        forward_tap(f, p[i].tap, il, pos, n_token, p[i].n_head, n_out / p[i].n_head, y[i]);
    }
}

/* The arguments of a step that threads share by tokens, or by the rows of a norm: y is computed from x, or in place.
 * x, y and up are (n_token, n) or (n_row, n).  A step leaves fields that it does not use NULL or 0. */
struct share {
    const struct forward *f;
    const struct layer_plan *layer;
    const struct affine *of;
    const float *divisors;   /* (n) */
    float eps, limit, factor;
    const float *x;
    float *y, *up;
    uint32_t n;
};

static float mean_of(const float *x, uint32_t n) {
    float lanes[4] = { 0 };   /* so that compilers add in the same order on every host */
    for (uint32_t i = 0; i < n; i++) lanes[i % 4] += x[i];
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) / (float)n;
}

static void norm_rows(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct share *s = user;
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
        float scale = 1.0f / (float)math_sqrt((double)(mean_square + s->eps));
        /* A weight with several rows has one for each head, and one with a single column is a factor of a row. */
        const struct weight *weight = s->of->w;
        const float *w = weight ? weight_floats(weight) + (size_t)(i % weight->n_out) * weight->n_in : NULL;
        if (w && weight->n_in == s->n) k->mul_scaled(y, x, scale, w, s->n);
        else for (uint32_t j = 0; j < s->n; j++) y[j] = x[j] * scale * (w ? *w : 1.0f);
        if (s->of->b) k->add_scaled(y, weight_floats(s->of->b), 1.0f, s->n);
    }
    (void)thread;
}

/* Each row of y (n_row, n) = x / sqrt(mean(x^2) + eps) * w + b, where an absent w is 1 and an absent b 0; y may be x.
 * Zhang & Sennrich 2019, eq. 4.  The layer norm first subtracts the mean of x.  Ba et al. 2016, "Layer
 * Normalization". */
void forward_normalize(const struct forward *f, const struct affine *of, float eps, uint32_t n, const float *x,
                       uint32_t n_row, float *y) {
    pool_share(f->pool, n_row, norm_rows, &(struct share) { .f = f, .of = of, .eps = eps, .x = x, .y = y, .n = n });
}

/* Fills the tables for the positions before end that are not filled yet.  Filling all of them in forward_create would
 * take 6 ms for 2048 positions. */
static void fill_ropes(struct forward *f, uint32_t end) {
    for (; f->n_rope < end; f->n_rope++) {
        for (uint32_t i = 0; i < PLAN_ROPES; i++) {
            uint32_t half = f->model->plan.ropes[i].n_rot / 2;
            model_rope_angles(f->model, i, f->n_ctx, f->n_rope, f->rope_angles);
            float magnitude = f->model->plan.ropes[i].magnitude;
            for (uint32_t j = 0; j < half; j++) {
                double sine, cosine;
                math_sincos(f->rope_angles[j], &sine, &cosine);
                f->rope_cos[i][(size_t)f->n_rope * half + j] = (float)cosine * magnitude;
                f->rope_sin[i][(size_t)f->n_rope * half + j] = (float)sine * magnitude;
            }
        }
    }
}

static void rope_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct share *s = user;
    const struct forward *f = s->f;
    const struct attn_plan *a = &s->layer->attn;
    const struct rope_plan *rope = &f->model->plan.ropes[a->rope];
    uint32_t half = rope->n_rot / 2;
    /* Elements a and b of pair i: (2i, 2i + 1) or (i, i + half). */
    uint32_t stride = rope->pairing == ROPE_NORM ? 2 : 1, distance = rope->pairing == ROPE_NORM ? 1 : half;
    for (uint32_t t = begin; t < end; t++) {
        const float *cosine = f->rope_cos[a->rope] + (size_t)f->positions[t] * half;
        const float *sine = f->rope_sin[a->rope] + (size_t)f->positions[t] * half;
        float *x = s->y + (size_t)t * s->n;
        for (const float *row_end = x + s->n; x < row_end; x += a->k_dim) {
            f->attention_kernels.rotate(x, x + distance, stride, cosine, sine, half);
        }
    }
    (void)thread;
}

/* Rotates the first n_rot elements of each head of x (n_token, n_head * k_dim) by the angles of its token's position,
 * in place, if the layer has RoPE.  Su et al. 2021, eq. 34. */
static void rope(const struct forward *f, const struct layer_plan *layer, float *x, uint32_t n_head,
                 uint32_t n_token) {
    struct share step = { .f = f, .layer = layer, .y = x, .n = n_head * layer->attn.k_dim };
    if (layer->attn.rope == ROPE_NONE) return;
    pool_share(f->pool, n_token, rope_tokens, &step);
}

static float relu(float z) { return z > 0.0f ? z : z * 0.0f; }   /* z * 0 keeps NaN */

static float within(float z, float low, float high) { return z > high ? high : z < low ? low : z; }

static float silu(float z) { return z / (1.0f + (float)math_exp(-(double)z)); }

/* The activation of gpt-oss, see enum activation. */
static float swiglu_oai(float gate, float up) {
    return gate / (1.0f + (float)math_exp(-1.702 * (double)gate)) * (up + 1.0f);
}

static float xielu(const struct ffn_plan *p, float z) {
    if (z > 0.0f) return p->xielu.a * z * z + p->xielu.beta * z;
    float exponent = z < p->xielu.eps ? z : p->xielu.eps;
    return ((float)(math_exp((double)exponent) - 1.0) - z) * p->xielu.b + p->xielu.beta * z;
}

static void gate_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct share *s = user;
    const struct kernels *k = &s->f->kernels;
    const struct ffn_plan *p = &s->layer->ffn;
    size_t at = (size_t)begin * s->n, n = (size_t)(end - begin) * s->n;
    float *y = s->y + at, *up = s->up ? s->up + at : NULL;
    float limit = up ? s->limit : 0.0f;
    for (size_t i = 0; limit != 0.0f && i < n; i++) {
        if (!p->limit_late) y[i] = within(y[i], -INFINITY, limit);
        up[i] = within(up[i], -limit, limit);
    }
    bool is_late = limit != 0.0f && p->limit_late;
    switch (p->activation) {
    case ACT_SILU:
        if (up && !is_late) k->swiglu(y, up, n);
        else for (size_t i = 0; i < n; i++) y[i] = is_late ? within(silu(y[i]), -INFINITY, limit) * up[i] : silu(y[i]);
        break;
    case ACT_GELU_TANH:
        if (up) k->geglu(y, up, n);
        else k->gelu(y, n);
        break;
    case ACT_RELU:
        for (size_t i = 0; i < n; i++) y[i] = relu(y[i]) * (up ? up[i] : 1.0f);
        break;
    case ACT_RELU_SQR:
        for (size_t i = 0; i < n; i++) y[i] = relu(y[i]) * y[i] * (up ? up[i] : 1.0f);
        break;
    case ACT_SWIGLU_OAI:
        for (size_t i = 0; up && i < n; i++) y[i] = swiglu_oai(y[i], up[i]);
        break;
    case ACT_XIELU:
        for (size_t i = 0; i < n; i++) y[i] = xielu(p, y[i]) * (up ? up[i] : 1.0f);
        break;
    }
    for (size_t i = 0; s->divisors && i < n; i++) y[i] /= s->divisors[i % s->n];
    (void)thread;
}

/* gate <- activation(gate) * up, (n_token, n_ff) each; up is NULL if there is no gate: gate <- activation(gate).
 * Shazeer 2020.  If the layer has ffn.act.scales, the result is divided by them. */
static void activate(const struct forward *f, uint32_t il, float limit, float *gate, float *up, uint32_t n_token,
                     uint32_t n_ff) {
    const struct weight *scales = f->model->layers[il].w[W_FFN_ACT_SCALES].w;
    struct share step = { .f = f, .layer = &f->model->plan.layers[il], .limit = limit, .up = up, .y = gate,
                         .n = n_ff,
                         .divisors = scales ? weight_floats(scales) : NULL };
    pool_share(f->pool, n_token, gate_tokens, &step);
}

static void add_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct share *s = user;
    size_t at = (size_t)begin * s->n;
    s->f->kernels.add_scaled(s->y + at, s->x + at, s->factor, (size_t)(end - begin) * s->n);
    (void)thread;
}

/* ---- the layers ------------------------------------------------------------------------------------------------ */

/* y (n_token, n_head * n) becomes the norm of x, which is computed over the width of its weight, or over n without
 * one. */
static void norm(const struct forward *f, const struct layer *l, enum weight_id weight, struct batch b, uint32_t n_head,
                 uint32_t n, const float *x, float *y) {
    const struct affine *of = &l->w[weight];
    /* The norm of a row of heads has the width of all of them; a single column is a factor of a head. */
    uint32_t n_in = of->w && of->w->n_in > 1 ? of->w->n_in : n;
    bool is_post = weight == W_ATTN_POST_NORM || weight == W_FFN_POST_NORM;
    const struct plan *p = &f->model->plan;
    float eps = is_post && p->post_norm_eps != 0.0f ? p->post_norm_eps : p->norm_eps;
    forward_normalize(f, of, eps, n_in, x, (uint32_t)((uint64_t)b.n * n_head * n / n_in), y);
}

/* The same in place, for a norm that the layer may lack; tap id shows x as (n_token, n_head, n). */
static void norm_inside(const struct forward *f, uint32_t il, enum weight_id weight, struct batch b, enum tap_id id,
                        uint32_t n_head, uint32_t n, float *x) {
    const struct layer *l = &f->model->layers[il];
    if (!program_has_norm(&f->model->plan, il, l->w, weight)) return;
    norm(f, l, weight, b, n_head, n, x, x);
    forward_tap(f, id, (int32_t)il, b.pos, b.n, n_head, n, x);
}

/* Outside the layers: y (n, n_embd) becomes the norm of x, or x if the model does not have this norm. */
static void norm_outside(const struct forward *f, enum weight_id weight, const struct affine *of, const float *x,
                         uint32_t n, float *y) {
    const struct plan *p = &f->model->plan;
    bool has_norm = of->w || p->bare_norms >> weight & 1;
    if (has_norm) forward_normalize(f, of, p->norm_eps, p->n_embd, x, n, y);
    else if (x != y) memcpy(y, x, (size_t)n * p->n_embd * sizeof *y);
}

/* Row i of a table of embeddings, such as the learned positions, is added to x (n_embd).  row: (n_embd) scratch. */
static void add_row(const struct forward *f, const struct weight *w, size_t i, float *row, float *x) {
    /* If a row is packed, it is unpacked to bytes of the first panel, which no product is using now. */
    w->traits->dequantize(weight_row(w, i, f->panels->bytes), row, w->n_in);
    f->kernels.add_scaled(x, row, 1.0f, w->n_in);
}

/* The norms of Q and K, at their time: before RoPE or after it. */
static void norm_qk(const struct forward *f, const struct attn_plan *a, bool is_roped, uint32_t il, struct batch b,
                    bool has_q) {
    if (is_roped != plan_norms_roped(a)) return;
    if (has_q) norm_inside(f, il, W_ATTN_Q_NORM, b, TAP_QCUR_NORMED, a->n_head, a->k_dim, f->q);
    norm_inside(f, il, W_ATTN_K_NORM, b, TAP_KCUR_NORMED, a->n_head_kv, a->k_dim, f->k);
}

/* Multiplies the outputs of the heads (n_token, n_head, v_dim) by the sigmoid or softplus of their gates. */
static void gate_heads(struct forward *f, const struct attn_plan *a, uint32_t n_token) {
    uint32_t shared = a->gate_per_head ? a->v_dim : 1;   /* elements that a gate is for */
    for (size_t i = 0; i < (size_t)n_token * a->n_head * a->v_dim; i++) {
        double z = (double)f->gates[i / shared];
        bool is_sigmoid = a->gate == ATTN_GATE_SIGMOID;
        f->attn[i] *= (float)(is_sigmoid ? 1 / (1 + math_exp(-z)) : z > 20 ? z : math_log(1 + math_exp(z)));
    }
}

/* f->q, f->k and f->v become those of x (n_token, n_embd), or only f->k and f->v without has_q. */
static void project(struct forward *f, uint32_t il, struct batch b, const float *x, bool has_q) {
    const struct layer *l = &f->model->layers[il];
    const struct layer_plan *p = &f->model->plan.layers[il];
    const struct attn_plan *a = &p->attn;
    int32_t at = (int32_t)il;
    float limit = f->model->plan.clamp_qkv;
    const struct product qkv[] = { { TAP_QCUR, &l->w[W_ATTN_Q], f->q, a->n_head, false, limit },
                                   { TAP_KCUR, &l->w[W_ATTN_K], f->k, a->n_head_kv, false, limit },
                                   { TAP_VCUR, &l->w[W_ATTN_V], f->v, a->n_head_kv, false, limit } };
    forward_multiply(f, x, b.n, at, b.pos, has_q ? qkv : qkv + 1, has_q ? 3 : 2);
    const struct product gate = { TAP_ATTN_GATE, &l->w[W_ATTN_GATE], f->gates, a->n_head, false, 0.0f };
    if (has_q && a->gate != ATTN_GATE_NONE) forward_multiply(f, x, b.n, at, b.pos, &gate, 1);
    norm_qk(f, a, false, il, b, has_q);
    if (has_q) rope(f, p, f->q, a->n_head, b.n);
    if (has_q) forward_tap(f, TAP_QCUR_ROPE, at, b.pos, b.n, a->n_head, a->k_dim, f->q);
    rope(f, p, f->k, a->n_head_kv, b.n);
    forward_tap(f, TAP_KCUR_ROPE, at, b.pos, b.n, a->n_head_kv, a->k_dim, f->k);
    norm_qk(f, a, true, il, b, has_q);
}

/* f->attn becomes the weighted sums of V for f->q, f->k and f->v.  Each text is alone in the cache, which then has the
 * next one. */
static void attend(struct forward *f, uint32_t il, struct batch b) {
    const struct attn_plan *a = &f->model->plan.layers[il].attn;
    const struct weight *sinks = f->model->layers[il].w[W_ATTN_SINKS].w;
    for (size_t t = 0, n; t < b.n; t += n) {
        n = b.lengths ? *b.lengths++ : b.n;
        attention_store(f->attention, il, f->k + t * a->n_head_kv * a->k_dim, f->v + t * a->n_head_kv * a->v_dim,
                        (uint32_t)n, b.pos);
        attention_run(f->attention, il, f->q + t * a->n_head * a->k_dim, sinks ? weight_floats(sinks) : NULL,
                      (uint32_t)n, b.pos, f->attn + t * a->n_head * a->v_dim, f->sink.on_tap ? f->tapped : NULL);
    }
}

/* y (n_token, n_embd) becomes the output of attention over x (n_token, n_embd). */
static void run_attention(struct forward *f, uint32_t il, struct batch b, const float *x, float *y) {
    const struct layer *l = &f->model->layers[il];
    const struct attn_plan *a = &f->model->plan.layers[il].attn;
    int32_t at = (int32_t)il;
    project(f, il, b, x, true);
    for (uint32_t t = 0; a->temperature_floor > 0 && t < b.n; t++) {
        size_t n = (size_t)a->n_head * a->k_dim;
        multiply(f->q + t * n, plan_temperature(a, f->positions[t]), n);
    }
    if (a->temperature_floor > 0) forward_tap(f, TAP_QCUR_SCALED, at, b.pos, b.n, a->n_head, a->k_dim, f->q);
    attend(f, il, b);
    forward_tap(f, TAP_KQ_SOFT_MAX, at, b.pos, b.n, a->n_head, b.pos + b.n, f->tapped);
    forward_tap(f, TAP_KQV_OUT, at, b.pos, b.n, a->n_head, a->v_dim, f->attn);
    if (a->gate != ATTN_GATE_NONE) {
        gate_heads(f, a, b.n);
        forward_tap(f, TAP_ATTN_GATED, at, b.pos, b.n, a->n_head, a->v_dim, f->attn);
    }
    norm_inside(f, il, W_ATTN_SUB_NORM, b, TAP_ATTN_SUB_NORM, 1, a->n_head * a->v_dim, f->attn);
    const struct product out = { TAP_ATTN_OUT, &l->w[W_ATTN_OUTPUT], y, 1, false, 0.0f };
    forward_multiply(f, f->attn, b.n, at, b.pos, &out, 1);
    if (a->output_scale != 0.0f) multiply(y, a->output_scale, (size_t)b.n * f->model->plan.n_embd);
}

void forward_feed_forward(struct forward *f, const struct ffn_weights *w, uint32_t il, struct batch b, const float *x,
                          float *y) {
    int32_t at = (int32_t)il;
    bool has_gate = w->gate->w != NULL;
    const struct product gate_up[] = {
        { w->taps[0], w->gate, f->gate, 1, w->scale_last, 0.0f },
        { w->taps[1], w->up, f->up, 1, w->scale_last, 0.0f },
    };
    if (w->up->w) forward_multiply(f, x, b.n, at, b.pos, has_gate ? gate_up : gate_up + 1, has_gate ? 2 : 1);
    else memcpy(f->up, x, (size_t)b.n * w->n_ff * sizeof *x);
    if (!w->up->w) forward_tap(f, w->taps[1], at, b.pos, b.n, 1, w->n_ff, f->up);
    float *activated = has_gate ? f->gate : f->up;
    activate(f, il, w->limit, activated, has_gate ? f->up : NULL, b.n, w->n_ff);
    forward_tap(f, w->taps[2], at, b.pos, b.n, 1, w->n_ff, activated);
    if (w->is_dense) norm_inside(f, il, W_FFN_SUB_NORM, b, TAP_FFN_SUB_NORM, 1, w->n_ff, activated);
    const struct product out = { w->taps[3], w->down, y, 1, w->scale_last, 0.0f };
    if (w->down->w) forward_multiply(f, activated, b.n, at, b.pos, &out, 1);
    else memcpy(y, activated, (size_t)b.n * w->n_ff * sizeof *y);
}

/* y (n_token, n_embd) becomes the output of the feed-forward network for x (n_token, n_embd). */
static void run_feed_forward(struct forward *f, uint32_t il, struct batch b, const float *x, float *y) {
    const struct affine *w = f->model->layers[il].w;
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    const struct ffn_weights dense = { &w[W_FFN_GATE], &w[W_FFN_UP], &w[W_FFN_DOWN], p->n_ff, p->limit_shared, true,
                                       true, { TAP_FFN_GATE, TAP_FFN_UP, TAP_FFN_SWIGLU, TAP_FFN_OUT } };
    forward_feed_forward(f, &dense, il, b, x, y);
}

/* y += x * factor, (n_token, n_embd) each. */
static void add(const struct forward *f, const float *x, float factor, uint32_t n_token, float *y) {
    const struct share all = { .f = f, .x = x, .y = y, .factor = factor, .n = f->model->plan.n_embd };
    pool_share(f->pool, n_token, add_tokens, (void *)&all);
}

/* x (n) becomes the sum of both states. */
static void add_states(const struct forward *f, size_t n, float *x) {
    for (size_t i = 0; i < n; i++) x[i] = f->streams[STREAM_HIGH][i] + f->streams[STREAM_LOW][i];
}

/* Runs a step of layer il, see enum step_kind. */
static void run_step(struct forward *f, uint32_t il, struct batch b, const struct step *s) {
    const struct model *m = f->model;
    const struct layer *l = &m->layers[il];
    const float *in = f->streams[s->in];
    float *out = f->streams[s->out];
    size_t n = (size_t)b.n * m->plan.n_embd;
    switch (s->kind) {
    case STEP_NORM: norm(f, l, s->weight, b, 1, m->plan.n_embd, in, out); break;
    case STEP_NORM_OUTPUT: norm_outside(f, W_OUTPUT_NORM, &m->output_norm, in, b.n, out); break;
    case STEP_COPY: memcpy(out, in, n * sizeof *out); break;
    case STEP_ADD: add(f, in, 1.0f, b.n, out); break;
    case STEP_ADD_RESIDUAL: add(f, in, m->plan.residual_scale, b.n, out); break;
    case STEP_ADD_SCALED: add(f, in, weight_floats(l->w[s->weight].w)[0], b.n, out); break;
    case STEP_ADD_STATES: add_states(f, n, out); break;
    case STEP_ATTENTION: run_attention(f, il, b, in, out); break;
    case STEP_FEED_FORWARD: run_feed_forward(f, il, b, in, out); break;
    case STEP_ROUTER: forward_router(f, il, b, in); break;
    case STEP_EXPERTS: forward_experts(f, il, b, in); break;
    case STEP_SHARED: forward_shared(f, il, b, in); break;
    case STEP_KINDS: break;
    }
    forward_tap(f, s->tap, (int32_t)il, b.pos, b.n, 1, m->plan.n_embd, out);
}

/* Logits of only some tokens, (n_logits, n_row), become those of all, (n_logits, n_vocab). */
static void spread_logits(const struct plan *p, uint32_t n_row, uint32_t n_logits, float *logits) {
    uint32_t n_other = p->n_vocab - n_row;
    for (uint32_t t = n_logits; n_other > 0 && t-- > 0;) {   /* from the end, as they overlap */
        float *row = logits + (size_t)t * p->n_vocab;
        memmove(row + n_other, logits + (size_t)t * n_row, n_row * sizeof *row);
        for (uint32_t i = 0; i < n_other; i++) row[i] = -INFINITY;
    }
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

/* Fills f->positions, and the tables of RoPE for them. */
static void place_tokens(struct forward *f, struct batch b) {
    uint32_t last = 0;
    for (uint32_t t = 0, n; t < b.n; t += n) {
        n = b.lengths ? *b.lengths++ : b.n;
        for (uint32_t i = 0; i < n; i++) f->positions[t + i] = b.pos + i;
        if (b.pos + n > last) last = b.pos + n;
    }
    fill_ropes(f, last);
}

/* After the attention of the last layer, only the tokens of the results are needed, and of the others only their K and
 * V.  Stores those of all tokens, moves the last n_result tokens to the front of the batch, and returns this batch. */
static struct batch keep_results(struct forward *f, uint32_t il, struct batch b, uint32_t n_result) {
    size_t n_embd = f->model->plan.n_embd, first = b.n - n_result;
    const struct layer *l = &f->model->layers[il];
    bool has_norm = program_has_norm(&f->model->plan, il, l->w, W_ATTN_NORM);
    if (has_norm) norm(f, l, W_ATTN_NORM, b, 1, (uint32_t)n_embd, f->x, f->norm);
    project(f, il, b, has_norm ? f->norm : f->x, false);
    attention_store(f->attention, il, f->k, f->v, b.n, b.pos);
    memmove(f->x, f->x + first * n_embd, n_result * n_embd * sizeof *f->x);
    float *embd = f->streams[STREAM_EMBD];
    if (embd) memmove(embd, embd + first * n_embd, n_result * n_embd * sizeof *embd);
    memmove(f->positions, f->positions + first, n_result * sizeof *f->positions);
    return (struct batch) { n_result, b.pos + (uint32_t)first, NULL };
}

/* Fills x, and the streams that keep the embeddings or begin with them. */
static void embed(struct forward *f, const int32_t *ids, struct batch b) {
    const struct model *m = f->model;
    const struct plan *p = &m->plan;
    const struct weight *embd = m->token_embd.w;
    for (uint32_t t = 0; t < b.n; t++) {
        float *x = f->x + (size_t)t * p->n_embd;
        embd->traits->dequantize(weight_row(embd, (size_t)ids[t], f->panels->bytes), x, p->n_embd);
        multiply(x, p->embedding_scale, p->n_embd);
        if (m->token_types.w) add_row(f, m->token_types.w, 0, f->norm, x);
        if (m->position_embd.w) add_row(f, m->position_embd.w, f->positions[t], f->norm, x);
    }
    norm_outside(f, W_TOKEN_EMBD_NORM, &m->token_embd_norm, f->x, b.n, f->x);
    forward_tap(f, TAP_EMBD, -1, b.pos, b.n, 1, p->n_embd, f->x);
    size_t n = (size_t)b.n * p->n_embd;
    if (f->streams[STREAM_EMBD]) memcpy(f->streams[STREAM_EMBD], f->x, n * sizeof *f->x);
    for (uint32_t t = 0; p->has_states && t < b.n; t++) {
        memcpy(f->streams[STREAM_LOW] + (size_t)t * p->n_embd, m->state_init.w->data, p->n_embd * sizeof *f->x);
    }
    if (p->has_states) memcpy(f->streams[STREAM_HIGH], f->x, n * sizeof *f->x);
    if (p->has_states) add_states(f, n, f->x);
}

/* results (n_result, n_vocab): the logits of the last n_result tokens, of their f->norm; or their embeddings. */
static void finish(struct forward *f, struct batch b, uint32_t n_result, float *results) {
    const struct model *m = f->model;
    const struct plan *p = &m->plan;
    uint32_t first = b.n - n_result;
    norm_outside(f, W_OUTPUT_NORM, &m->output_norm, f->x + (size_t)first * p->n_embd, n_result, f->norm);
    forward_tap(f, TAP_RESULT_NORM, -1, b.pos + first, n_result, 1, p->n_embd, f->norm);
    if (!results) return;
    if (!p->has_logits) {
        memcpy(results, f->norm, (size_t)n_result * p->n_embd * sizeof *results);
        return;
    }
    const struct product output = { TAP_COUNT, &m->output, results, 1, false, 0.0f };   /* its tap comes later */
    forward_multiply(f, f->norm, n_result, -1, b.pos + first, &output, 1);
    spread_logits(p, m->output.w->n_out, n_result, results);
    multiply(results, 1.0f / p->logit_scale, (size_t)n_result * p->n_vocab);
    if (p->logit_softcap != 0.0f) f->kernels.softcap(results, p->logit_softcap, (size_t)n_result * p->n_vocab);
    forward_tap(f, TAP_RESULT_OUTPUT, -1, b.pos + first, n_result, 1, p->n_vocab, results);
}

static void run(struct forward *f, const int32_t *ids, struct batch b, uint32_t n_result, float *results) {
    const struct plan *p = &f->model->plan;
    bool only_results = n_result < b.n && !f->sink.on_tap && !p->has_states;
    place_tokens(f, b);
    embed(f, ids, b);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct program *program = &f->model->layers[il].program;
        if (il + 1 == p->n_layer && only_results) b = keep_results(f, il, b, n_result);
        if (b.n == 0) return;
        for (uint32_t i = 0; i < program->n; i++) run_step(f, il, b, &program->steps[i]);
    }
    if (n_result > 0) finish(f, b, n_result, results);
}

uint32_t forward_rewind(const struct forward *f, uint32_t n_past) { return attention_rewind(f->attention, n_past); }

void forward_run(struct forward *f, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_result, float *results) {
    run(f, ids, (struct batch) { n, pos, NULL }, n_result, results);
}

void forward_run_texts(struct forward *f, const int32_t *ids, const uint32_t *lengths, uint32_t n_text) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_text; i++) n += lengths[i];
    run(f, ids, (struct batch) { n, 0, lengths }, n, NULL);
}

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

/* Makes the tables of RoPE ones for more positions than n_before. */
static bool grow_ropes(struct forward *f, uint32_t n_before, uint32_t n_ctx) {
    uint64_t n_added = 0;
    for (int i = 0; i < PLAN_ROPES; i++) {
        uint32_t half = f->model->plan.ropes[i].n_rot / 2;
        uint64_t n = (uint64_t)n_ctx * half;
        if (half == 0) continue;   /* no layer uses it */
        if (!ARRAY_RESIZE(f->rope_cos[i], n) || !ARRAY_RESIZE(f->rope_sin[i], n)) return false;
        n_added += 2 * (uint64_t)(n_ctx - n_before) * half;
    }
    f->bytes += n_added * sizeof(float);
    return true;
}

static bool allocate_ropes(struct forward *f) {
    uint32_t most = 0;
    for (int i = 0; i < PLAN_ROPES; i++) {
        uint32_t half = f->model->plan.ropes[i].n_rot / 2;
        if (half > most) most = half;
    }
    return grow_ropes(f, 0, f->n_ctx) && (f->rope_angles = allocate(f, most, sizeof(double)));
}

static bool allocate_experts(struct forward *f) {
    const struct plan *p = &f->model->plan;
    struct expert_scratch *e = &f->experts;
    uint64_t b = f->n_batch;
    if (p->max_expert == 0) return true;
    return (e->masked = allocate(f, p->max_expert, sizeof *e->masked))
        && (e->tokens = allocate(f, b, sizeof *e->tokens))
        && (e->x = allocate(f, b * plan_expert_row(p), sizeof *e->x))
        && (e->y = allocate(f, b * plan_expert_row(p), sizeof *e->y))
        && (e->gates = allocate(f, b, sizeof *e->gates));
}

/* Elements of a row of each stream; 0: no layer uses it. */
static void find_widths(const struct model *m, uint64_t widths[STREAM_COUNT]) {
    memset(widths, 0, STREAM_COUNT * sizeof *widths);
    widths[STREAM_X] = widths[STREAM_H] = m->plan.n_embd;
    if (m->plan.has_states) widths[STREAM_LOW] = widths[STREAM_HIGH] = m->plan.n_embd;
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        const struct program *program = m->layers[il].program;
        for (uint32_t i = 0; i < program->n; i++) {
            const struct step *s = &program->steps[i];
            uint64_t n = (uint64_t)s->n_head * s->n;
            if (n > widths[s->out]) widths[s->out] = n;
            if (s->in == STREAM_EMBD) widths[STREAM_EMBD] = m->plan.n_embd;
            if (s->in == STREAM_PER_LAYER) widths[STREAM_PER_LAYER] = (uint64_t)m->plan.n_layer * m->plan.n_per_layer;
            if (s->kind == STEP_EXPERTS) widths[STREAM_FF_GATE] = widths[STREAM_FF_UP] = m->plan.max_ff;
        }
    }
    uint32_t kept = plan_kept(&m->plan);
    if (kept == m->plan.n_layer) return;
    const struct attn_plan *a = &m->plan.layers[kept].attn;
    widths[STREAM_KEPT_K] = (uint64_t)a->n_head_kv * a->k_dim;
    widths[STREAM_KEPT_V] = (uint64_t)a->n_head_kv * a->v_dim;
}

static bool allocate_streams(struct forward *f) {
    uint64_t widths[STREAM_COUNT];
    find_widths(f->model, widths);
    for (uint32_t k = 0; k < STREAM_COUNT; k++) {
        uint64_t n = widths[k];
        if (n > 0 && !(f->streams[k] = allocate(f, f->n_batch * n, sizeof(float)))) return false;
    }
    uint64_t n_row = plan_head_row(&f->model->plan);
    if (n_row > 0 && !(f->rows = allocate(f, f->n_batch * n_row, sizeof *f->rows))) return false;
    f->x = f->streams[STREAM_X];
    f->norm = f->streams[STREAM_H];
    return true;
}

/* Writes the rows of a weight as columns of a matrix that has `stride` columns.  Leaves it unchanged if only the header
 * of its file was read.  Returns false if there is no memory. */
static bool write_columns(const struct weight *w, float *columns, size_t stride) {
    uint8_t *bytes = alloc_array(w->row_bytes, 1);
    float *row = alloc_array(w->n_in, sizeof *row);
    bool is_done = bytes && row;
    for (uint32_t i = 0; is_done && w->data && i < w->n_out; i++) {
        quant_dequantize(w->traits, weight_row(w, i, bytes), row, w->n_in);
        for (uint32_t j = 0; j < w->n_in; j++) columns[j * stride + i] = row[j];
    }
    free(bytes);
    free(row);
    return is_done;
}

/* What attn_rel_b adds to the scores of each head at each distance up to PLAN_FAR; NULL: no memory. */
static float *biases_of(struct forward *f, const struct weight *w, const struct attn_plan *a) {
    enum { N = 2 * PLAN_FAR + 1 };
    float *columns = alloc_array((uint64_t)w->n_in * w->n_out, sizeof *columns);
    if (columns) memset(columns, 0, (size_t)w->n_in * w->n_out * sizeof *columns);
    bool is_done = columns && write_columns(w, columns, w->n_out);
    float *biases = is_done ? allocate(f, (uint64_t)N * a->n_head, sizeof *biases) : NULL;
    for (uint32_t i = 0; biases && i < N; i++) {
        uint32_t bucket = plan_bucket(a, (int32_t)i - PLAN_FAR);
        for (size_t h = 0; h < a->n_head; h++) biases[h * N + i] = columns[h * a->n_bucket + bucket];
    }
    free(columns);
    return biases;
}

/* The layer that has the biases of layer il: its own, or the first one that has the same weight. */
static uint32_t layer_of_biases(const struct model *m, uint32_t il) {
    uint32_t first = plan_first(&m->plan, il);
    return m->layers[il].w[W_ATTN_BUCKETS].w == m->layers[first].w[W_ATTN_BUCKETS].w ? first : il;
}

static bool allocate_biases(struct forward *f) {
    const struct model *m = f->model;
    if (!m->layers[0].w[W_ATTN_BUCKETS].w) return true;
    if (!(f->biases = calloc(m->plan.n_layer, sizeof *f->biases))) return false;
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        const struct weight *w = m->layers[il].w[W_ATTN_BUCKETS].w;
        uint32_t of = layer_of_biases(m, il);
        if (w && !(f->biases[il] = of == il ? biases_of(f, w, &m->plan.layers[il].attn) : f->biases[of])) return false;
    }
    return true;
}

/* The kernels of a layer's convolutions, side by side.  NULL: no memory. */
static float *allocate_kernel(struct forward *f, uint32_t il) {
    static const enum weight_id parts[] = PLAN_KERNELS;
    uint64_t width = plan_conv_width(&f->model->plan, il), n = f->model->plan.layers[il].n_conv * width;
    float *kernel = allocate(f, n, sizeof *kernel), *at = kernel;
    if (kernel) memset(kernel, 0, (size_t)n * sizeof *kernel);
    for (size_t i = 0; kernel && i < sizeof parts / sizeof *parts; i++) {
        const struct weight *w = f->model->layers[il].w[parts[i]].w;
        if (!w) continue;
        if (!write_columns(w, at, (size_t)width)) {
            free(kernel);
            return NULL;
        }
        at += w->n_out;
    }
    return kernel;
}

static bool allocate_states(struct forward *f) {
    const struct model *m = f->model;
    size_t first = 0;
    f->states = calloc(m->plan.n_layer, sizeof *f->states);
    for (uint32_t il = 0; f->states && il < m->plan.n_layer; il++) {
        bool has_kernel = m->plan.layers[il].n_conv > 0;
        f->states[il] = (struct layer_state){ first, has_kernel ? allocate_kernel(f, il) : NULL };
        first += (size_t)plan_state_size(&m->plan, il);   /* sequence_create refuses what exceeds memory */
        if (has_kernel && !f->states[il].kernel) return false;
    }
    return f->states;
}

static bool allocate_attention(struct forward *f, uint32_t n_ctx, struct attention **out) {
    return attention_create(out, &f->model->plan, n_ctx, f->n_batch, f->kv_type, &f->attention_kernels, &f->kernels,
                            f->pool) == PLUMB_OK;
}

static bool allocate_switches(struct forward *f) {
    if (f->model->plan.adapters.n == 0) return true;
    f->lacks_base = forward_lacks_base(f->model);
    f->adapter_of = allocate(f, f->n_batch, sizeof *f->adapter_of);
    return f->adapter_of && forward_prepare_adapters(f, NULL) == PLUMB_OK;
}

static bool allocate_scratch(struct forward *f) {
    const struct plan *p = &f->model->plan;
    uint64_t b = f->n_batch, n_max = plan_max_row(p);
    if (n_max > UINT32_MAX) return false;
    uint32_t n_in = (uint32_t)n_max;
    return allocate_attention(f, f->n_ctx, &f->attention)
        && allocate_ropes(f)
        && allocate_streams(f)
        && allocate_experts(f)
        && allocate_states(f)
        && allocate_biases(f)
        && allocate_switches(f)
        && (f->own_row = allocate(f, (uint64_t)p->n_layer * p->n_per_layer, sizeof *f->own_row))
        && (f->head = allocate(f, 2 * (uint64_t)plan_max_head(p), sizeof(float)))
        && (f->positions = allocate(f, b, sizeof *f->positions))
        && (f->ids = allocate(f, b, sizeof *f->ids))
        && (f->pieces = allocate(f, b, sizeof *f->pieces))
        && activations_create(&f->acts, n_in, f->n_batch, &f->kernels, &f->bytes) == PLUMB_OK
        && allocate_panels(f, n_in);
}

plumb_status forward_create(struct forward **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                            plumb_kv_type kv_type, const struct kernels *k, struct pool *pool, struct error *err) {
    *out = NULL;
    struct forward *f = calloc(1, sizeof *f);
    if (!f) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the forward pass needs %zu bytes", sizeof *f);
    f->model = m;
    f->n_ctx = n_ctx;
    f->n_batch = n_batch = m->plan.n_encoder > 0 ? n_ctx : n_batch;
    f->pool = pool;
    f->kv_type = kv_type;
    f->kernels = *k;
    attention_kernels_init(&f->attention_kernels, k->isa == KERNELS_SCALAR);
    plumb_status status = kv_cache_check(&m->plan, kv_type, err);
    if (status == PLUMB_OK && !allocate_scratch(f)) {
        status = sequence_no_memory(&m->plan, n_ctx, n_batch, kv_type, 0, err);
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
                            f->rope_sin[ROPE_LOCAL], f->rope_angles, f->own_row, f->head, f->positions, f->ids,
                            f->pieces, f->tapped, f->low_rank, f->delta, f->adapter_of,
                            f->experts.masked, f->experts.tokens, f->experts.x, f->experts.y, f->experts.gates };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    for (size_t i = 0; i < sizeof f->experts.shown / sizeof *f->experts.shown; i++) free(f->experts.shown[i]);
    for (size_t i = 0; i < STREAM_COUNT; i++) free(f->streams[i]);
    free(f->rows);
    for (uint32_t il = 0; f->states && il < f->model->plan.n_layer; il++) free(f->states[il].kernel);
    free(f->states);
    for (uint32_t il = 0; f->biases && il < f->model->plan.n_layer; il++) {
        if (layer_of_biases(f->model, il) == il) free(f->biases[il]);
    }
    free(f->biases);
    attention_free(f->attention);
    activations_free(&f->acts);
    for (uint32_t i = 0; f->panels && i < pool_size(f->pool); i++) panel_free(&f->panels[i]);
    free(f->panels);
    free(f);
}

bool forward_grow(struct forward *f, uint32_t n_ctx) {
    struct attention *grown;
    if (n_ctx <= f->n_ctx) return true;
    if (f->model->plan.n_encoder > 0 || !allocate_attention(f, n_ctx, &grown)) return false;
    if (!grow_ropes(f, f->n_ctx, n_ctx)) {
        attention_free(grown);
        return false;
    }
    attention_replace(f->attention, grown);
    f->attention = grown;
    f->n_ctx = n_ctx;
    return true;
}

plumb_status forward_prepare_taps(struct forward *f) {
    if (f->n_tapped < f->n_ctx) {
        uint64_t n_row = (uint64_t)f->n_batch * f->model->plan.max_head, n;
        float *tapped = mul_u64(n_row, f->n_ctx, &n) ? allocate(f, n, sizeof *f->tapped) : NULL;
        if (!tapped) return PLUMB_ERROR_MEMORY;
        f->bytes -= n_row * f->n_tapped * sizeof *f->tapped;
        free(f->tapped);
        f->tapped = tapped;
        f->n_tapped = f->n_ctx;
    }
    uint64_t n_shown, n_used = plan_max_used_row(&f->model->plan);
    for (size_t i = 0; n_used > 0 && i < sizeof f->experts.shown / sizeof *f->experts.shown; i++) {
        float **shown = &f->experts.shown[i];
        if (!*shown && mul_u64(n_used, f->n_batch, &n_shown)) *shown = allocate(f, n_shown, sizeof **shown);
        if (!*shown) return PLUMB_ERROR_MEMORY;
    }
    return PLUMB_OK;
}

void forward_use(struct forward *f, struct tap_sink sink, const struct adapter_set *set) {
    f->sink = sink;
    f->adapters = set;
}

uint64_t forward_bytes(const struct forward *f) {
    uint64_t n_adapt = f->n_low_rank + f->n_delta;
    return f->bytes + n_adapt * sizeof *f->delta + (f->attention ? attention_bytes(f->attention) : 0);
}
const struct kernels *forward_kernels(const struct forward *f) { return &f->kernels; }

const float *forward_embeddings(const struct forward *f) {
    return f->streams[STREAM_ENCODED] ? f->streams[STREAM_ENCODED] : f->norm;
}

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
        if (f->adapters) forward_adapt(f, p[i].of->w, x, n_token, y[i]);
        if (p[i].of->lora_a) forward_adapt_switched(f, p[i].of, x, n_token, y[i]);
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
    enum activation activation;
    enum norm_kind norm;
    float eps, limit;
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
    for (uint32_t i = begin; i < end; i++) {
        size_t at = (size_t)i * s->n;
        const float *x = s->x + at;
        float *y = s->y + at;
        if (s->norm == NORM_LAYER) {
            float mean = mean_of(x, s->n);
            for (uint32_t j = 0; j < s->n; j++) y[j] = x[j] - mean;
            x = y;
        }
        float mean_square = k->dot_f32(x, x, s->n) / (float)s->n;
        float scale = 1.0f / (float)math_sqrt((double)(mean_square + s->eps));
        /* A weight with several rows, or a longer one, has elements for each head, and one with a single column has a
         * factor for each row. */
        const struct weight *weight = s->of->w, *bias = s->of->b;
        bool is_gain = weight && weight->n_in == 1;
        const float *w = weight ? weight_floats(weight) : NULL;
        if (w) w += is_gain ? i % weight->n_out : at % ((size_t)weight->n_in * weight->n_out);
        if (w && !is_gain) k->mul_scaled(y, x, scale, w, s->n);
        else for (uint32_t j = 0; j < s->n; j++) y[j] = x[j] * scale * (w ? *w : 1.0f);
        if (bias) k->add_scaled(y, weight_floats(bias) + at % ((size_t)bias->n_in * bias->n_out), 1.0f, s->n);
    }
    (void)thread;
}

/* Each row of y (n_row, n) = x / sqrt(mean(x^2) + eps) * w + b, where an absent w is 1 and an absent b 0; y may be x.
 * Zhang & Sennrich 2019, eq. 4.  The layer norm first subtracts the mean of x.  Ba et al. 2016, "Layer
 * Normalization". */
void forward_normalize(const struct forward *f, const struct affine *of, float eps, uint32_t n, const float *x,
                       uint32_t n_row, float *y) {
    struct share rows = { .f = f, .of = of, .norm = f->model->plan.norm, .eps = eps, .x = x, .y = y, .n = n };
    pool_run(f->pool, n_row, (uint64_t)n * POOL_ELEMENT, norm_rows, &rows);
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

static float relu(float z) { return z > 0.0f ? z : z * 0.0f; }   /* z * 0 keeps NaN */

static float within(float z, float low, float high) { return z > high ? high : z < low ? low : z; }

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
    switch (s->activation) {
    case ACT_SILU:
        if (up && !is_late) k->swiglu(y, up, n);
        else k->silu(y, n);
        for (size_t i = 0; is_late && i < n; i++) y[i] = within(y[i], -INFINITY, limit) * up[i];
        break;
    case ACT_GELU_TANH:
        if (up) k->geglu(y, up, n);
        else k->gelu(y, n);
        break;
    case ACT_RELU:
        for (size_t i = 0; i < n; i++) y[i] = relu(y[i]);
        for (size_t i = 0; up && i < n; i++) y[i] *= up[i];
        break;
    case ACT_RELU_SQR:
        for (size_t i = 0; i < n; i++) y[i] = relu(y[i]) * y[i];
        for (size_t i = 0; up && i < n; i++) y[i] *= up[i];
        break;
    case ACT_SWIGLU_OAI:
        for (size_t i = 0; up && i < n; i++) y[i] = swiglu_oai(y[i], up[i]);
        break;
    case ACT_XIELU:
        for (size_t i = 0; i < n; i++) y[i] = xielu(p, y[i]) * (up ? up[i] : 1.0f);
        break;
    }
    (void)thread;
}

/* gate <- activation(gate) * up, (n_token, n_ff) each; up is NULL if there is no gate: gate <- activation(gate).
 * Shazeer 2020. */
void forward_activate(const struct forward *f, uint32_t il, enum activation activation, float limit, float *gate,
                      float *up, uint32_t n_token, uint32_t n_ff) {
    struct share step = { .f = f, .layer = &f->model->plan.layers[il], .activation = activation, .limit = limit,
                          .up = up, .y = gate, .n = n_ff };
    pool_run(f->pool, n_token, (uint64_t)n_ff * 4 * POOL_ELEMENT, gate_tokens, &step);   /* an exponential costs four */
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
    quant_dequantize(w->traits, weight_row(w, i, f->panels->bytes), row, w->n_in);
    f->kernels.add_scaled(x, row, 1.0f, w->n_in);
}

/* ---- the steps of a program, see enum step_kind ------------------------------------------------------------------ */

static const float *floats_of(const struct call *c) { return weight_floats(c->w->w); }

static void run_norm(struct forward *f, const struct call *c) {
    float eps = plan_norm_eps(&f->model->plan, c->s->weight);
    forward_normalize(f, c->w, eps, c->s->n_norm, c->in, (uint32_t)(c->n / c->s->n_norm), c->out);
}

static void run_norm_heads(struct forward *f, const struct call *c) {
    float eps = plan_norm_eps(&f->model->plan, c->s->weight);
    struct share heads = { .f = f, .of = c->w, .norm = NORM_LAYER, .eps = eps, .x = c->in, .y = c->out,
                           .n = c->s->n_norm };
    pool_run(f->pool, (uint32_t)(c->n / heads.n), (uint64_t)heads.n * POOL_ELEMENT, norm_rows, &heads);
}

/* The products of several steps that read the same stream. */
static void run_products(struct forward *f, uint32_t il, struct batch b, const struct step *s, uint32_t n) {
    struct product products[MAX_PRODUCTS];
    for (uint32_t i = 0; i < n; i++) {
        enum weight_id id = s[i].weight;
        bool is_qkv = id == W_ATTN_Q || id == W_ATTN_K || id == W_ATTN_V;
        products[i] = (struct product){ s[i].tap, &f->model->layers[il].w[id], f->streams[s[i].out], s[i].n_head,
                                        weight_scales_last(id), is_qkv ? f->model->plan.clamp_qkv : 0.0f };
    }
    /* K and V may be the same product. */
    bool is_twice = n > 1 && products[n - 1].of->w == products[n - 2].of->w;
    if (is_twice) n--;
    forward_multiply(f, f->streams[s->in], b.n, (int32_t)il, b.pos, products, n);
    if (!is_twice) return;
    const struct product *twice = &products[n];
    uint32_t n_out = twice->of->w->n_out;
    memcpy(twice->y, products[n - 1].y, (size_t)b.n * n_out * sizeof *twice->y);
    forward_tap(f, twice->tap, (int32_t)il, b.pos, b.n, twice->n_head, n_out / twice->n_head, twice->y);
}

static void run_copy(struct forward *f, const struct call *c) {
    memcpy(c->out + call_begin(c), c->in + call_begin(c), (call_end(c) - call_begin(c)) * sizeof *c->out);
    (void)f;
}

static void run_show(struct forward *f, const struct call *c) { (void)f, (void)c; }

static void run_scale(struct forward *f, const struct call *c) {
    for (size_t i = call_begin(c); i < call_end(c); i++) c->out[i] = c->in[i] * c->s->factor;
    (void)f;
}

static void run_multiply(struct forward *f, const struct call *c) {
    const float *factors = floats_of(c);
    for (size_t i = call_begin(c); i < call_end(c); i++) c->out[i] = c->in[i] * factors[i % c->w->w->n_in];
    (void)f;
}

static void run_own(struct forward *f, const struct call *c) {
    size_t n = c->s->n, n_all = n * f->model->plan.n_layer, first = n * c->il;
    for (size_t i = call_begin(c); i < call_end(c); i++) c->out[i] *= c->in[i / n * n_all + first + i % n];
}

static void run_divide(struct forward *f, const struct call *c) {
    const float *divisors = floats_of(c);
    for (size_t i = call_begin(c); i < call_end(c); i++) c->out[i] = c->in[i] / divisors[i % c->s->n];
    (void)f;
}

static void add(const struct forward *f, const struct call *c, float factor) {
    size_t begin = call_begin(c);
    f->kernels.add_scaled(c->out + begin, c->in + begin, factor, call_end(c) - begin);
}

static void run_add(struct forward *f, const struct call *c) { add(f, c, c->s->factor); }
static void run_add_scaled(struct forward *f, const struct call *c) { add(f, c, floats_of(c)[0]); }

static void run_add_bias(struct forward *f, const struct call *c) {
    const float *bias = floats_of(c);
    for (size_t i = call_begin(c); i < call_end(c); i++) c->out[i] = c->in[i] + bias[i % c->s->n];
    (void)f;
}

/* x (n) becomes the sum of both states. */
static void add_states(const struct forward *f, size_t n, float *x) {
    for (size_t i = 0; i < n; i++) x[i] = f->streams[STREAM_HIGH][i] + f->streams[STREAM_LOW][i];
}

static void run_add_states(struct forward *f, const struct call *c) { add_states(f, c->n, c->out); }

/* Rotates n_rot elements of each head, from s->first on, by the angles of its token's position.  Su et al. 2021,
 * eq. 34. */
static void run_rope(struct forward *f, const struct call *c) {
    uint32_t id = c->layer->attn.rope;
    const struct rope_plan *rope = &f->model->plan.ropes[id];
    uint32_t half = rope->n_rot / 2, n = c->s->n_head * c->s->n;
    /* Elements a and b of pair i: (2i, 2i + 1) or (i, i + half). */
    uint32_t stride = rope->pairing == ROPE_NORM ? 2 : 1, distance = rope->pairing == ROPE_NORM ? 1 : half;
    for (uint32_t t = c->begin; t < c->end; t++) {
        const float *cosine = f->rope_cos[id] + (size_t)f->positions[t] * half;
        const float *sine = f->rope_sin[id] + (size_t)f->positions[t] * half;
        float *x = c->out + (size_t)t * n + c->s->first;
        for (uint32_t h = 0; h < c->s->n_head; h++, x += c->s->n) {
            f->attention_kernels.rotate(x, x + distance, stride, cosine, sine, half);
        }
    }
}

static void run_temperature(struct forward *f, const struct call *c) {
    size_t n = (size_t)c->s->n_head * c->s->n;
    for (uint32_t t = c->begin; t < c->end; t++) {
        multiply(c->out + t * n, plan_temperature(&c->layer->attn, f->positions[t]), n);
    }
}

/* Texts of one sequence are alone in the cache, one after the other.  So a layer that reads the K and V of another one
 * stores those of each text again: from that layer's streams, or from the kept ones. */
static void run_attention(struct forward *f, const struct call *c) {
    const struct attn_plan *a = &c->layer->attn;
    struct sequence *s = c->piece->sequence;
    size_t t = c->begin, k_row = (size_t)a->n_head_kv * a->k_dim, v_row = (size_t)a->n_head_kv * a->v_dim;
    uint32_t n = c->end - c->begin, pos = c->piece->pos, of = c->il - c->layer->kv_back;
    bool are_texts = c->b.n_piece > 1 && c->b.pieces[0].sequence == c->b.pieces[1].sequence;
    bool is_kept = are_texts && of == plan_kept(&f->model->plan), is_source = is_kept && of == c->il;
    const float *k = f->streams[is_kept && !is_source ? STREAM_KEPT_K : STREAM_K] + t * k_row;
    const float *v = f->streams[is_kept && !is_source ? STREAM_KEPT_V : STREAM_V] + t * v_row;
    if (is_source) {
        memcpy(f->streams[STREAM_KEPT_K] + t * k_row, k, n * k_row * sizeof *k);
        memcpy(f->streams[STREAM_KEPT_V] + t * v_row, v, n * v_row * sizeof *v);
    }
    if (plan_keeps_kv(c->layer) || (are_texts && c->layer->kv_back > 0)) {
        attention_store(f->attention, s, of, k, v, n, pos);
    }
    attention_run(f->attention, s, c->il, f->streams[STREAM_Q] + t * a->n_head * a->k_dim,
                  c->w->w ? floats_of(c) : NULL, f->biases ? f->biases[c->il] : NULL, n, pos,
                  c->out + t * a->n_head * a->v_dim, f->sink.on_tap ? f->tapped : NULL);
    forward_tap(f, TAP_KQ_SOFT_MAX, (int32_t)c->il, pos, n, a->n_head, a->reads_encoder ? s->n_encoded : pos + n,
                f->tapped);
}

/* Copies n elements of each of n_row rows. */
static void copy_rows(const float *in, size_t in_stride, float *out, size_t out_stride, size_t n_row, size_t n) {
    for (size_t i = 0; i < n_row; i++) memcpy(out + i * out_stride, in + i * in_stride, n * sizeof *out);
}

static void run_part(struct forward *f, const struct call *c) {
    const struct step *s = c->s;
    size_t n_each = (size_t)s->n_head * s->n / s->n_to, n_own = s->is_shared ? 1 : n_each;   /* parts of a token */
    for (size_t i = 0, t = c->begin; i < n_each; i++) {
        copy_rows(c->in + (t * n_own + i % n_own) * s->n_from + s->first, n_own * s->n_from,
                  c->out + (t * n_each + i) * s->n_to + s->to, n_each * s->n_to, c->end - t, s->n_norm);
    }
    (void)f;
}

/* The rows of a head are collected for its product, and then distributed. */
static void run_head_products(struct forward *f, const struct call *c) {
    const struct step *s = c->s;
    uint32_t n_in = c->w->w->n_in, n_out = c->w->w->n_out / c->w->w->n_matrix, n = c->b.n;
    float *x = f->rows, *y = x + (size_t)n * n_in;
    for (uint32_t h = 0; h < s->n_head; h++) {
        const struct weight w = weight_expert(c->w->w, h);
        const struct affine of = { .w = &w };
        copy_rows(c->in + (size_t)h * s->n_from, (size_t)s->n_head * s->n_from, x, n_in, n, n_in);
        forward_multiply(f, x, n, (int32_t)c->il, c->b.pos, &(struct product){ TAP_COUNT, &of, y, 1, false, 0.0f }, 1);
        copy_rows(y, n_out, c->out + (size_t)h * s->n, (size_t)s->n_head * s->n, n, n_out);
    }
}

static void gate_some(const struct kernels *k, enum attn_gate gate, float *factors, uint32_t n) {
    switch (gate) {
    case ATTN_GATE_SIGMOID: k->sigmoid(factors, n); break;
    case ATTN_GATE_SILU: k->silu(factors, n); break;
    case ATTN_GATE_SOFTPLUS:
        for (uint32_t i = 0; i < n; i++) factors[i] = (float)softplus((double)factors[i]);
        break;
    case ATTN_GATE_NONE: break;
    }
}

static void run_gate_heads(struct forward *f, const struct call *c) {
    enum { PART = 64 };
    const struct attn_plan *a = &c->layer->attn;
    uint32_t shared = a->gate_per_head ? plan_head_out(a) : 1;   /* elements that a gate is for */
    size_t end = call_end(c) / shared;
    float factors[PART];
    for (size_t i = call_begin(c) / shared, n; i < end; i += n) {
        n = end - i < PART ? end - i : PART;
        memcpy(factors, c->in + i, n * sizeof *factors);
        gate_some(&f->kernels, a->gate, factors, (uint32_t)n);
        for (size_t j = 0; j < n * shared; j++) c->out[i * shared + j] *= factors[j / shared];
    }
}

static void run_activate(struct forward *f, const struct call *c) {
    bool has_gate = c->s->in != c->s->out;
    float *up = has_gate ? f->streams[c->s->in] : NULL;
    uint32_t n = c->s->n_head * c->s->n;
    forward_activate(f, c->il, c->s->activation, c->layer->ffn.limit_shared, c->out, up, c->b.n, n);
}

/* Each row of x (n_token, n) becomes max(x - mean - sparsity * deviation, 0). */
static void run_sparse(struct forward *f, const struct call *c) {
    uint32_t n = c->s->n;
    for (uint32_t t = c->begin; t < c->end; t++) {
        float *x = c->out + (size_t)t * n, mean = mean_of(x, n);
        for (uint32_t i = 0; i < n; i++) x[i] -= mean;
        float variance = f->kernels.dot_f32(x, x, n) / ((float)n - 1.0f);
        float cut = c->layer->ffn.sparsity * (float)math_sqrt((double)variance);
        for (uint32_t i = 0; i < n; i++) x[i] = relu(x[i] - cut);
    }
}

static void run_softmax(struct forward *f, const struct call *c) {
    uint32_t n = c->s->n_head * c->s->n;
    for (size_t t = c->begin; t < c->end; t++) f->kernels.softmax(c->out + t * n, n);
}

typedef void run_step(struct forward *f, const struct call *c);

/* Steps of which every token is computed alone, so that threads share the tokens. */
static run_step *const of_tokens[STEP_KINDS] = {
    [STEP_COPY] = run_copy, [STEP_SCALE] = run_scale, [STEP_DIVIDE] = run_divide, [STEP_ADD] = run_add,
    [STEP_ADD_SCALED] = run_add_scaled, [STEP_ADD_BIAS] = run_add_bias, [STEP_ROPE] = run_rope,
    [STEP_TEMPERATURE] = run_temperature,
    [STEP_GATE_HEADS] = run_gate_heads, [STEP_SOFTMAX] = run_softmax, [STEP_SIGMOID] = forward_sigmoid,
    [STEP_GATE_CONV] = forward_gate_conv, [STEP_PART] = run_part, [STEP_DECAY] = forward_decay,
    [STEP_SOFTPLUS] = forward_softplus, [STEP_MULTIPLY] = run_multiply, [STEP_OWN] = run_own,
    [STEP_TANH] = forward_tanh, [STEP_PREDICT] = forward_predict, [STEP_CORRECT] = forward_correct,
    [STEP_FIRST] = forward_first, [STEP_OTHERS] = forward_others, [STEP_SPARSE] = run_sparse,
    [STEP_LERP] = forward_lerp, [STEP_FADE] = forward_fade, [STEP_MIX] = forward_mix, [STEP_UNIT] = forward_unit,
    [STEP_REPLACE] = forward_replace, [STEP_BONUS] = forward_bonus, [STEP_TIMES] = forward_times,
};
/* Steps that share their work themselves, or are done at once. */
static run_step *const of_batch[STEP_KINDS] = {
    [STEP_NORM] = run_norm, [STEP_SHOW] = run_show, [STEP_ADD_STATES] = run_add_states,
    [STEP_ACTIVATE] = run_activate, [STEP_BEST] = forward_best,
    [STEP_TAKE] = forward_take, [STEP_SUM_TO_1] = forward_sum_to_1, [STEP_EXPERTS] = forward_experts,
    [STEP_ADJUGATES] = forward_adjugates, [STEP_GATE_SHARED] = forward_gate_shared,
    [STEP_HEAD_PRODUCTS] = run_head_products, [STEP_NORM_HEADS] = run_norm_heads,
};
/* Steps that read what a sequence keeps, and compute one piece after the other. */
static run_step *const of_pieces[STEP_KINDS] = {
    [STEP_ATTENTION] = run_attention, [STEP_CONVOLVE] = forward_convolve, [STEP_DELTA] = forward_delta,
    [STEP_SCAN] = forward_scan, [STEP_SHIFT] = forward_shift, [STEP_WKV] = forward_wkv,
};

struct shared_step { struct forward *f; const struct call *c; };

static void run_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct shared_step *step = user;
    struct call c = *step->c;
    c.begin = begin;
    c.end = end;
    of_tokens[c.s->kind](step->f, &c);
    (void)thread;
}

static void run_pieces(struct forward *f, struct call c) {
    for (uint32_t i = 0; i < c.b.n_piece; i++) {
        c.piece = &c.b.pieces[i];
        c.begin = c.piece->first;
        c.end = c.begin + c.piece->n;
        if (c.piece->n > 0) of_pieces[c.s->kind](f, &c);   /* not all pieces have results */
    }
}

static void run_one(struct forward *f, const struct call *c) {
    enum step_kind kind = c->s->kind;
    struct shared_step step = { f, c };
    if (of_tokens[kind]) pool_run(f->pool, c->b.n, (uint64_t)call_each(c) * POOL_ELEMENT, run_tokens, &step);
    else if (of_batch[kind]) of_batch[kind](f, c);
    else run_pieces(f, *c);
}

/* Runs steps of layer il: all of them, or those in the set `which`. */
static void run_steps(struct forward *f, uint32_t il, struct batch b, id_set which) {
    const struct model *m = f->model;
    const struct program *program = m->layers[il].program;
    for (uint32_t i = 0, n; i < program->n; i += n) {
        const struct step *s = &program->steps[i];
        n = which >> i & 1 ? program_products(program, i, MAX_PRODUCTS) : 1;
        if (!(which >> i & 1)) continue;
        if (s->kind == STEP_PRODUCT) {
            run_products(f, il, b, s, n);
            continue;
        }
        const struct call c = { il, b, s, &m->plan.layers[il], model_affine(m, il, s->weight), f->streams[s->in],
                                f->streams[s->out], (size_t)b.n * s->n_head * s->n, 0, b.n, NULL };
        run_one(f, &c);
        if (f->adapters && s->tap == TAP_L_OUT) forward_adapt_layer(f, il, b.n);
        forward_tap(f, s->tap, (int32_t)il, b.pos, b.n, s->n_head, s->n, c.out);
    }
}

/* Logits of only some tokens, (n_logits, n_row), become those of all, (n_logits, n_vocab).  Those of hidden tokens
 * become -infinity. */
static void spread_logits(const struct plan *p, uint32_t n_row, uint32_t n_logits, float *logits) {
    uint32_t n_other = p->n_vocab - n_row;
    for (uint32_t t = n_logits; n_other > 0 && t-- > 0;) {   /* from the end, as they overlap */
        float *row = logits + (size_t)t * p->n_vocab;
        memmove(row + n_other, logits + (size_t)t * n_row, n_row * sizeof *row);
        for (uint32_t i = 0; i < n_other; i++) row[i] = -INFINITY;
    }
    for (size_t t = 0; t < n_logits; t++) {
        for (uint32_t i = p->hidden_first; i < p->hidden_end; i++) logits[t * p->n_vocab + i] = -INFINITY;
    }
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

/* The batch of some pieces.  Fills f->pieces, f->ids, f->positions and the tables of RoPE. */
static struct batch begin_batch(struct forward *f, const struct piece *pieces, uint32_t n_piece) {
    struct batch b = { 0, pieces->pos, f->pieces, n_piece };
    uint32_t last = 0;
    memcpy(f->pieces, pieces, n_piece * sizeof *pieces);
    for (uint32_t i = 0; i < n_piece; i++) {
        struct piece *piece = &f->pieces[i];
        piece->first = b.n;
        memcpy(f->ids + b.n, piece->ids, piece->n * sizeof *f->ids);
        for (uint32_t t = 0; t < piece->n; t++) f->positions[b.n + t] = piece->pos + t;
        if (piece->pos + piece->n > last) last = piece->pos + piece->n;
        b.n += piece->n;
    }
    fill_ropes(f, last);
    return b;
}

/* Stores the K and V of a layer, without attention. */
static void store_kv(struct forward *f, uint32_t il, struct batch b) {
    const struct attn_plan *a = &f->model->plan.layers[il].attn;
    uint32_t attention;
    run_steps(f, il, b, program_kv(f->model->layers[il].program, &attention));
    for (uint32_t i = 0; i < b.n_piece; i++) {
        const struct piece *piece = &b.pieces[i];
        attention_store(f->attention, piece->sequence, il,
                        f->streams[STREAM_K] + (size_t)piece->first * a->n_head_kv * a->k_dim,
                        f->streams[STREAM_V] + (size_t)piece->first * a->n_head_kv * a->v_dim, piece->n, piece->pos);
    }
}

/* Moves the n_result last tokens of each piece in rows of n elements, one piece behind the other. */
static void keep_rows(const struct batch *b, void *rows, size_t n) {
    uint8_t *to = rows;
    for (uint32_t i = 0; i < b->n_piece; i++) {
        const struct piece *piece = &b->pieces[i];
        size_t first = piece->first + piece->n - piece->n_result;
        memmove(to, (const uint8_t *)rows + first * n, piece->n_result * n);
        to += piece->n_result * n;
    }
}

/* After the attention of the last layer that keeps something, only the tokens of the results are needed, and of the
 * others only their K and V.  Stores those of all tokens, moves the tokens of the results to the front of the batch,
 * and returns this batch. */
static struct batch keep_results(struct forward *f, uint32_t il, struct batch b) {
    const struct plan *p = &f->model->plan;
    const struct { enum stream stream; size_t n; } kept[] = {
        { STREAM_X, p->n_embd }, { STREAM_EMBD, p->n_embd }, { STREAM_PER_LAYER, (size_t)p->n_layer * p->n_per_layer },
        { STREAM_OTHERS, ((size_t)p->n_stream - 1) * p->n_embd },
    };
    store_kv(f, il, b);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        float *x = f->streams[kept[i].stream];
        if (x) keep_rows(&b, x, kept[i].n * sizeof *x);
    }
    keep_rows(&b, f->positions, sizeof *f->positions);
    if (f->adapter_of) keep_rows(&b, f->adapter_of, sizeof *f->adapter_of);
    b.n = 0;
    for (uint32_t i = 0; i < b.n_piece; i++) {
        struct piece *piece = &f->pieces[i];
        piece->pos += piece->n - piece->n_result;
        piece->n = piece->n_result;
        piece->first = b.n;
        b.n += piece->n;
    }
    b.pos = f->pieces->pos;
    return b;
}

/* Fills STREAM_PER_LAYER from x: for each layer (embedding * sqrt(n_per_layer) + norm(W x / sqrt(n_embd))) / sqrt(2).
 * Google 2025, "Gemma 3n". */
static void embed_layers(struct forward *f, struct batch b) {
    const struct model *m = f->model;
    const struct plan *p = &m->plan;
    float *own = f->streams[STREAM_PER_LAYER];
    size_t n = (size_t)p->n_layer * p->n_per_layer;
    if (!own) return;
    const struct weight *embd = m->per_layer_embd.w;
    const struct product projection = { TAP_COUNT, &m->per_layer_model_proj, own, 1, false, 0.0f };
    forward_multiply(f, f->x, b.n, -1, b.pos, &projection, 1);
    multiply(own, 1.0f / (float)math_sqrt(p->n_embd), n * b.n);
    forward_normalize(f, &m->per_layer_proj_norm, p->norm_eps, p->n_per_layer, own, b.n * p->n_layer, own);
    for (uint32_t t = 0; t < b.n; t++) {
        quant_dequantize(embd->traits, weight_row(embd, (size_t)f->ids[t], f->panels->bytes), f->own_row, (uint32_t)n);
        f->kernels.add_scaled(own + t * n, f->own_row, (float)math_sqrt(p->n_per_layer), n);
    }
    multiply(own, 0.70710678118654752f, n * b.n);
    forward_tap(f, TAP_PER_LAYER, -1, b.pos, b.n, p->n_layer, p->n_per_layer, own);
}

/* Fills x, and the streams that keep the embeddings or begin with them. */
static void embed(struct forward *f, struct batch b, enum tap_id tap) {
    const struct model *m = f->model;
    const struct plan *p = &m->plan;
    const struct weight *embd = m->token_embd.w;
    forward_choose_adapters(f, b);
    for (uint32_t t = 0; t < b.n; t++) {
        float *x = f->x + (size_t)t * p->n_embd;
        quant_dequantize(embd->traits, weight_row(embd, (size_t)f->ids[t], f->panels->bytes), x, p->n_embd);
    }
    if (f->adapters) forward_adapt_embeddings(f, f->ids, b.n, f->x);
    multiply(f->x, p->embedding_scale, (size_t)b.n * p->n_embd);
    for (uint32_t t = 0; t < b.n; t++) {
        float *x = f->x + (size_t)t * p->n_embd;
        if (m->token_types.w) add_row(f, m->token_types.w, 0, f->norm, x);
        if (m->position_embd.w) add_row(f, m->position_embd.w, f->positions[t], f->norm, x);
    }
    norm_outside(f, W_TOKEN_EMBD_NORM, &m->token_embd_norm, f->x, b.n, f->x);
    forward_tap(f, tap, -1, b.pos, b.n, 1, p->n_embd, f->x);
    size_t n = (size_t)b.n * p->n_embd;
    if (f->streams[STREAM_EMBD]) memcpy(f->streams[STREAM_EMBD], f->x, n * sizeof *f->x);
    embed_layers(f, b);
    if (p->n_stream > 0) forward_split_streams(f, b);
    for (uint32_t t = 0; p->has_states && t < b.n; t++) {
        memcpy(f->streams[STREAM_LOW] + (size_t)t * p->n_embd, m->state_init.w->data, p->n_embd * sizeof *f->x);
    }
    if (p->has_states) memcpy(f->streams[STREAM_HIGH], f->x, n * sizeof *f->x);
    if (p->has_states) add_states(f, n, f->x);
}

/* results: those of all pieces, of which the batch has at least the tokens of the results. */
static void finish(struct forward *f, struct batch b, uint32_t n_result, float *results) {
    const struct model *m = f->model;
    const struct plan *p = &m->plan;
    uint32_t pos = b.pos + b.pieces->n - b.pieces->n_result;
    if (p->n_stream > 0) forward_merge_streams(f, b);
    keep_rows(&b, f->x, p->n_embd * sizeof *f->x);
    norm_outside(f, W_OUTPUT_NORM, &m->output_norm, f->x, n_result, f->norm);
    forward_tap(f, TAP_RESULT_NORM, -1, pos, n_result, 1, p->n_embd, f->norm);
    if (!results) return;
    if (!p->has_logits) {
        memcpy(results, f->norm, (size_t)n_result * p->n_embd * sizeof *results);
        return;
    }
    const struct product output = { TAP_COUNT, &m->output, results, 1, false, 0.0f };   /* its tap comes later */
    forward_multiply(f, f->norm, n_result, -1, pos, &output, 1);
    spread_logits(p, m->output.w->n_out, n_result, results);
    multiply(results, 1.0f / p->logit_scale, (size_t)n_result * p->n_vocab);
    if (p->logit_softcap != 0.0f) f->kernels.softcap(results, p->logit_softcap, (size_t)n_result * p->n_vocab);
    forward_tap(f, TAP_RESULT_OUTPUT, -1, pos, n_result, 1, p->n_vocab, results);
}

static void run(struct forward *f, const struct piece *pieces, uint32_t n_piece, float *results) {
    const struct plan *p = &f->model->plan;
    struct batch b = begin_batch(f, pieces, n_piece);
    uint32_t last = plan_last_keeper(p), n_result = 0;
    for (uint32_t i = 0; i < n_piece; i++) n_result += pieces[i].n_result;
    bool only_results = n_result < b.n && !f->sink.on_tap && !p->has_states
                     && p->layers[last].mixer == MIXER_ATTENTION;
    embed(f, b, TAP_EMBD);
    for (uint32_t il = p->n_encoder; il < p->n_layer; il++) {
        uint32_t attention;
        const struct program *program = f->model->layers[il].program;
        if (il == last && only_results) b = keep_results(f, il, b);
        if (b.n == 0) return;
        run_steps(f, il, b, p->layers[il].attn.reads_encoder ? ~program_kv(program, &attention) : ALL_IDS);
    }
    if (n_result > 0) finish(f, b, n_result, results);
}

/* Fills STREAM_ENCODED. */
static struct batch encode(struct forward *f, const struct piece *pieces, uint32_t n_piece) {
    struct batch b = begin_batch(f, pieces, n_piece);
    embed(f, b, TAP_ENCODER_EMBD);
    for (uint32_t il = 0; il < f->model->plan.n_encoder; il++) run_steps(f, il, b, ALL_IDS);
    return b;
}

bool forward_encode(struct forward *f, struct sequence *s, const int32_t *ids, uint32_t n) {
    const struct plan *p = &f->model->plan;
    const struct piece piece = { s, ids, n, 0, 0, 0 };
    if (!sequence_prepare_encoded(s, n)) return false;
    struct batch b = encode(f, &piece, 1);
    s->n_encoded = n;
    for (uint32_t il = p->n_encoder; il < p->n_layer; il++) {
        if (p->layers[il].attn.reads_encoder) store_kv(f, il, b);
    }
    return true;
}

uint32_t forward_run(struct forward *f, const struct piece *pieces, uint32_t n_piece, float *results) {
    for (uint32_t i = 0; i < n_piece; i++) {
        if (!sequence_prepare(pieces[i].sequence, pieces[i].pos, pieces[i].pos + pieces[i].n)) return i;
    }
    for (uint32_t i = 0; i < n_piece; i++) sequence_begin(pieces[i].sequence, pieces[i].pos);
    run(f, pieces, n_piece, results);
    for (uint32_t i = 0; i < n_piece; i++) {
        pieces[i].sequence->n_past = pieces[i].pos + pieces[i].n;
        sequence_end(pieces[i].sequence, pieces[i].n);
    }
    return n_piece;
}

bool forward_run_texts(struct forward *f, const struct piece *pieces, uint32_t n_piece) {
    uint32_t longest = 0;
    for (uint32_t i = 0; i < n_piece; i++) longest = pieces[i].n > longest ? pieces[i].n : longest;
    if (f->model->plan.n_encoder > 0) {
        encode(f, pieces, n_piece);
        return true;
    }
    if (!sequence_prepare(pieces->sequence, 0, longest)) return false;
    run(f, pieces, n_piece, NULL);
    return true;
}

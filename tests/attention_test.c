/* Attention over the KV cache.  Truth: softmax(q k^T * scale) v in double precision, straight from the formula.  Every
 * variant (kernels, threads, batches, earlier content of the cache) must give the same bits as the portable kernels. */
#include "fixture.h"
#include "attending.h"
#include "forward/kv_cache.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { N_LAYER = 2, IL = 1, N_LAST = 6 };   /* computes the last 6 tokens of layer 1 */

struct shape {
    const char *name;
    uint32_t n_head, n_head_kv, k_dim, n_position;
    uint32_t v_dim, window;   /* 0: k_dim, and no window */
    bool is_chunked;
    float alibi;
    bool has_sinks, has_biases;
};

/* The score of a head that has no V, if the shape has sinks. */
static const float sinks[16] = { 0.5f, -3, 2, 0, 1, -1, 4, 0.25f, 3, -2, 0.1f, 1.5f, -0.5f, 2.5f, -4, 0.75f };

/* What is added to the score of a key by its distance, in head h, if the shape has biases: all numbers differ, and
 * those of PLAN_FAR are for all farther keys. */
static float bias_of(uint32_t h, int32_t distance) {
    int32_t at = distance < -PLAN_FAR ? -PLAN_FAR : distance > PLAN_FAR ? PLAN_FAR : distance;
    return (float)sin(1.0 + h + 0.37 * at) * 3;
}

/* The input of one shape, (n_position, heads, k_dim or v_dim), and how to compute it. */
struct input {
    struct layer_plan layers[N_LAYER];
    struct plan plan;
    uint32_t n;
    bool has_sinks;
    float *q, *k, *v, *biases;   /* biases (n_head, 2 PLAN_FAR + 1), or NULL */
};

struct way {
    bool scalar_only;
    uint32_t n_thread, n_store, n_batch;   /* tokens stored, and computed, at once */
    bool dirty;                            /* the cache held other tokens before, some of them NaN */
};

static uint32_t random_state;
/* The values are roughly normally distributed; one in 64 is ten times as large.  All are below 35. */
static float random_value(void) {
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        random_state = random_state * 1664525u + 1013904223u;
        sum += (float)(random_state >> 8) * 0x1p-24f - 0.5f;
    }
    return random_state >> 16 & 63 ? sum * 1.7f : sum * 17;
}

static float *random_rows(uint32_t n, uint32_t n_row) {
    float *x = alloc_array((uint64_t)n * n_row, sizeof *x);
    for (size_t i = 0; x && i < (size_t)n * n_row; i++) x[i] = random_value();
    return x;
}

static uint32_t v_dim_of(const struct shape *shape) { return shape->v_dim > 0 ? shape->v_dim : shape->k_dim; }

static bool make_input(struct input *in, const struct shape *shape) {
    uint32_t v_dim = v_dim_of(shape), n_max = shape->n_head_kv * (v_dim > shape->k_dim ? v_dim : shape->k_dim);
    *in = (struct input) { .plan = { .n_layer = N_LAYER, .layers = in->layers },
                           .n = shape->n_position, .has_sinks = shape->has_sinks };
    for (int il = 0; il < N_LAYER; il++) {
        in->layers[il].mixer = MIXER_ATTENTION;
        in->layers[il].attn = (struct attn_plan) { .n_head = shape->n_head, .n_head_kv = shape->n_head_kv,
                                                   .k_dim = shape->k_dim, .v_dim = v_dim,
                                                   .window = shape->window, .is_chunked = shape->is_chunked,
                                                   .alibi = shape->alibi, .is_causal = true };
    }
    random_state = shape->n_position * 7 + shape->k_dim;
    in->q = random_rows(in->n, shape->n_head * shape->k_dim);
    in->k = random_rows(in->n, n_max);   /* so that K can be used as V and V as K */
    in->v = random_rows(in->n, n_max);
    if (shape->has_biases) in->biases = alloc_array(shape->n_head * (2 * PLAN_FAR + 1), sizeof *in->biases);
    for (uint32_t h = 0; in->biases && h < shape->n_head; h++) {
        for (int32_t d = -PLAN_FAR; d <= PLAN_FAR; d++) {
            in->biases[h * (2 * PLAN_FAR + 1) + (uint32_t)(d + PLAN_FAR)] = bias_of(h, d);
        }
    }
    return CHECK(in->q && in->k && in->v && (in->biases || !shape->has_biases), "memory");
}

static void free_input(struct input *in) {
    free(in->q);
    free(in->k);
    free(in->v);
    free(in->biases);
}

static uint32_t n_last(const struct input *in) { return in->n < N_LAST ? in->n : N_LAST; }

/* Outputs (n_last, n_head, v_dim) of the last tokens; weights (n_last, n_head, n) unless NULL, of one batch. */
static bool compute(const struct input *in, plumb_kv_type type, struct way way, float *out, float *weights) {
    const struct attn_plan *c = &in->layers[IL].attn;
    struct attention_kernels kernels;
    struct kernels f32;
    attention_kernels_init(&kernels, way.scalar_only);
    kernels_init(&f32, way.scalar_only ? KERNELS_SCALAR : KERNELS_SIMD128, PLUMB_PRECISION_EXACT16);
    struct pool *pool = pool_create(way.n_thread);
    struct attending x;
    bool ok = CHECK(attending_create(&x, &in->plan, in->n, way.n_store, type, &kernels, &f32, pool), "memory");
    size_t n_q = (size_t)c->n_head * c->k_dim, n_out = (size_t)c->n_head * c->v_dim;
    size_t n_k = (size_t)c->n_head_kv * c->k_dim, n_v = (size_t)c->n_head_kv * c->v_dim, n_max = n_k > n_v ? n_k : n_v;
    uint32_t first = in->n - n_last(in);
    for (uint32_t pos = 0; ok && way.dirty && pos < in->n; pos++) {
        attention_store(x.a, &x.s, IL, in->v + pos * n_v, in->k + (in->n - 1 - pos) * n_k, 1, pos);
        float *nan = alloc_array(n_max, sizeof *nan);
        for (size_t i = 0; i < n_max; i++) nan[i] = i % 2 ? NAN : INFINITY;
        if (pos % 3 == 0) attention_store(x.a, &x.s, IL, nan, nan, 1, pos);
        free(nan);
    }
    for (uint32_t pos = 0, n; ok && pos < in->n; pos += n) {
        n = in->n - pos < way.n_store ? in->n - pos : way.n_store;
        attention_store(x.a, &x.s, IL, in->k + pos * n_k, in->v + pos * n_v, n, pos);
        attention_store(x.a, &x.s, 0, in->k, in->v, n, pos);   /* layer 0 has other values */
        for (uint32_t t = pos > first ? pos : first; t < pos + n; t += way.n_batch) {
            uint32_t n_run = pos + n - t < way.n_batch ? pos + n - t : way.n_batch;
            attention_run(x.a, &x.s, IL, in->q + t * n_q, in->has_sinks ? sinks : NULL, in->biases, n_run, t,
                          out + (t - first) * n_out, weights);
        }
    }
    attending_free(&x);
    pool_free(pool);
    return ok;
}

/* The formula: weights (pos + 1) and output (v_dim) of query head h at pos. */
static void truth(const struct input *in, uint32_t pos, uint32_t h, double *weights, double *out) {
    const struct attn_plan *c = &in->layers[IL].attn;
    uint32_t head_kv = h / (c->n_head / c->n_head_kv);
    const float *q = in->q + ((size_t)pos * c->n_head + h) * c->k_dim;
    double max = in->has_sinks ? (double)sinks[h] : -INFINITY, sum = 0;
    /* Of 6 heads, 4 have the slopes 2^(-8 i / 4) for i = 1 .. 4, and 2 those between them: 2^(-8 (2i - 1) / 8). */
    double slope = c->alibi == 0 ? 0 : h < 4 ? pow(2, -2.0 * (h + 1)) : pow(2, -(2.0 * (h - 3) - 1));
    for (uint32_t p = 0; p <= pos; p++) {
        const float *k = in->k + ((size_t)p * c->n_head_kv + head_kv) * c->k_dim;
        bool is_seen = c->window == 0 || (c->is_chunked ? p / c->window == pos / c->window : pos - p < c->window);
        weights[p] = 0;
        for (uint32_t i = 0; i < c->k_dim; i++) weights[p] += (double)q[i] * (double)k[i];
        double bias = in->biases ? (double)bias_of(h, (int32_t)p - (int32_t)pos) : -slope * (pos - p);
        weights[p] = is_seen ? weights[p] / sqrt(c->k_dim) + bias : -INFINITY;
        max = fmax(max, weights[p]);
    }
    for (uint32_t p = 0; p <= pos; p++) sum += weights[p] = exp(weights[p] - max);
    if (in->has_sinks) sum += exp((double)sinks[h] - max);
    for (uint32_t i = 0; i < c->v_dim; i++) out[i] = 0;
    for (uint32_t p = 0; p <= pos; p++) {
        const float *v = in->v + ((size_t)p * c->n_head_kv + head_kv) * c->v_dim;
        weights[p] /= sum;
        for (uint32_t i = 0; i < c->v_dim; i++) out[i] += weights[p] * (double)v[i];
    }
}

/* Relative RMS errors of outputs and weights against the formula. */
static void check_truth(const struct input *in, const float *out, const float *weights, double most, const char *type) {
    const struct attn_plan *c = &in->layers[IL].attn;
    uint32_t n = n_last(in), first = in->n - n;
    double *w = alloc_array(in->n, sizeof *w), *y = alloc_array(c->v_dim, sizeof *y);
    double out_d2 = 0, out_2 = 0, w_d2 = 0, w_2 = 0;
    for (uint32_t row = 0; w && y && row < n * c->n_head; row++) {
        uint32_t pos = first + row / c->n_head;
        truth(in, pos, row % c->n_head, w, y);
        for (uint32_t i = 0; i < c->v_dim; i++) {
            double d = (double)out[(size_t)row * c->v_dim + i] - y[i];
            out_d2 += d * d;
            out_2 += y[i] * y[i];
        }
        for (uint32_t p = 0; p < in->n; p++) {
            double is = (double)weights[(size_t)row * in->n + p], d = is - (p <= pos ? w[p] : 0);
            w_d2 += d * d;
            w_2 += p <= pos ? w[p] * w[p] : 0;
            bool is_seen = p <= pos && (c->window == 0 || pos - p < c->window);
            if (!is_seen) CHECK(is == 0, "%s: token %u has weight %g at position %u", type, pos, is, p);
        }
    }
    double out_error = sqrt(out_d2 / out_2), w_error = sqrt(w_d2 / w_2);
    CHECK(out_error <= most && w_error <= most, "%s: relative RMS %g, of weights %g", type, out_error, w_error);
    test_note("%s: relative RMS %.2g, of weights %.2g", type, out_error, w_error);
    free(w);
    free(y);
}

/* Outliers in K and q give scores of several tens, and the error of their codes is relative to that.  The truth of Q8_0
 * and Q4_0 has the K and V that these types store. */
static const struct { plumb_kv_type type; const char *name; double most; } types[] = {
    { PLUMB_KV_I16, "i16", 3e-4 }, { PLUMB_KV_F32, "f32", 5e-6 }, { PLUMB_KV_Q8_0, "q8_0", 3e-4 },
    { PLUMB_KV_Q4_0, "q4_0", 3e-4 },
};
enum { N_TYPE = sizeof types / sizeof *types };

/* Rounds n heads of K or V to what the type stores; quantized_slices compares it with ggml, and rotations with the
 * matrix. */
static void round_heads(float *x, size_t n, uint32_t n_dim, plumb_kv_type type) {
    for (int16_t codes[KV_SLICE]; n-- > 0; x += n_dim) {
        kv_rotate(x, n_dim);
        for (uint32_t j = 0; j < n_dim; j += KV_SLICE) {
            float scale = f32_from_f16(kv_quantize(type, x + j, codes));
            for (uint32_t i = 0; i < KV_SLICE; i++) x[j + i] = scale * (float)codes[i];
        }
        kv_rotate(x, n_dim);
    }
}

/* An input with K and V as the type stores them, which the caller frees. */
static bool round_input(struct input *out, const struct input *in, const struct shape *shape, plumb_kv_type type) {
    if (!make_input(out, shape)) return false;
    memcpy(out->layers, in->layers, sizeof out->layers);
    if (type != PLUMB_KV_Q8_0 && type != PLUMB_KV_Q4_0) return true;
    round_heads(out->k, (size_t)in->n * shape->n_head_kv, shape->k_dim, type);
    round_heads(out->v, (size_t)in->n * shape->n_head_kv, v_dim_of(shape), type);
    return true;
}

static bool can_store(const struct input *in, plumb_kv_type type) {
    struct error err = { 0 };
    return kv_cache_check(&in->plan, type, &err) == PLUMB_OK;
}

static void check_shape(const void *row) {
    const struct shape *shape = row;
    struct input in;
    if (!make_input(&in, shape)) return;
    size_t n_out = (size_t)n_last(&in) * shape->n_head * v_dim_of(shape);
    float *out = alloc_array(n_out, sizeof *out), *other = alloc_array(n_out, sizeof *out);
    float *weights = alloc_array((uint64_t)n_last(&in) * shape->n_head * in.n, sizeof *weights);
    static const struct way ways[] = {
        { false, 1, 100, 100, false }, { false, 1, 1, 1, false }, { true, 1, 1, 1, true },
        { false, 3, 7, 5, true },      { false, 3, 1, 1, false }, { false, 1, 33, 3, true },
    };
    for (size_t i = 0; out && other && weights && i < N_TYPE; i++) {
        if (!can_store(&in, types[i].type)) continue;
        /* All tokens are in one batch, because weights are requested. */
        struct way plain = { true, 1, in.n, N_LAST, false };
        struct input stored;
        if (!compute(&in, types[i].type, plain, out, weights)) break;
        if (round_input(&stored, &in, shape, types[i].type)) {
            check_truth(&stored, out, weights, types[i].most, types[i].name);
        }
        free_input(&stored);
        for (size_t j = 0; j < sizeof ways / sizeof *ways; j++) {
            memset(other, 0xff, n_out * sizeof *other);
            if (!compute(&in, types[i].type, ways[j], other, NULL)) break;
            CHECK(memcmp(out, other, n_out * sizeof *out) == 0, "%s: other bits in way %zu", types[i].name, j);
        }
    }
    free(out);
    free(other);
    free(weights);
    free_input(&in);
}

/* ---- tokens that attend to later ones ---------------------------------------------------------------------------- */

/* Outputs (n, n_head, v_dim) of all tokens, which are one batch. */
static bool compute_all(const struct input *in, plumb_kv_type type, bool scalar_only, uint32_t n_thread, float *out) {
    struct attention_kernels kernels;
    struct kernels f32;
    attention_kernels_init(&kernels, scalar_only);
    kernels_init(&f32, scalar_only ? KERNELS_SCALAR : KERNELS_SIMD128, PLUMB_PRECISION_EXACT16);
    struct pool *pool = pool_create(n_thread);
    struct attending x;
    bool ok = CHECK(attending_create(&x, &in->plan, in->n, in->n, type, &kernels, &f32, pool), "memory");
    if (ok) {
        attention_store(x.a, &x.s, IL, in->k, in->v, in->n, 0);
        attention_run(x.a, &x.s, IL, in->q, NULL, in->biases, in->n, 0, out, NULL);
    }
    attending_free(&x);
    pool_free(pool);
    return ok;
}

/* The formula: output (v_dim) of query head h at pos, which sees the tokens at most half a window away. */
static void truth_around(const struct input *in, uint32_t pos, uint32_t h, double *weights, double *out) {
    const struct attn_plan *c = &in->layers[IL].attn;
    uint32_t head_kv = h / (c->n_head / c->n_head_kv);
    const float *q = in->q + ((size_t)pos * c->n_head + h) * c->k_dim;
    double sum = 0, slope = c->alibi == 0 ? 0 : pow(2, -2.0 * (h + 1));   /* of 4 heads */
    for (uint32_t p = 0; p < in->n; p++) {
        double distance = fabs((double)pos - p), score = 0;
        const float *k = in->k + ((size_t)p * c->n_head_kv + head_kv) * c->k_dim;
        for (uint32_t i = 0; i < c->k_dim; i++) score += (double)q[i] * (double)k[i];
        bool is_seen = c->window == 0 || distance <= floor(c->window / 2.0);
        double bias = in->biases ? (double)bias_of(h, (int32_t)p - (int32_t)pos) : -slope * distance;
        weights[p] = is_seen ? exp(score / sqrt(c->k_dim) + bias) : 0;   /* scores are below 300 */
        sum += weights[p];
    }
    for (uint32_t i = 0; i < c->v_dim; i++) out[i] = 0;
    for (uint32_t p = 0; p < in->n; p++) {
        const float *v = in->v + ((size_t)p * c->n_head_kv + head_kv) * c->v_dim;
        for (uint32_t i = 0; i < c->v_dim; i++) out[i] += weights[p] / sum * (double)v[i];
    }
}

static void check_around(const void *row) {
    const struct shape *shape = row;
    struct input in;
    if (!make_input(&in, shape)) return;
    for (int il = 0; il < N_LAYER; il++) in.layers[il].attn.is_causal = false;
    in.layers[IL].attn.is_symmetric = shape->window > 0;
    size_t n_row = shape->n_head * v_dim_of(shape), n_out = n_row * in.n;
    float *out = alloc_array(n_out, sizeof *out), *other = alloc_array(n_out, sizeof *other);
    double *w = alloc_array(in.n, sizeof *w), *y = alloc_array(n_row, sizeof *y);
    for (size_t i = 0; out && other && w && y && i < N_TYPE; i++) {
        if (!can_store(&in, types[i].type) || !test_repeats(i)) continue;
        struct input stored;
        bool ok = compute_all(&in, types[i].type, true, 1, out);
        if (!round_input(&stored, &in, shape, types[i].type) || !ok) {
            free_input(&stored);
            break;
        }
        double d2 = 0, l2 = 0;
        for (uint32_t pos = 0; pos < in.n; pos = pos < in.n - 19 ? pos + 19 : pos + 1) {   /* the last ones too */
            for (uint32_t h = 0; h < shape->n_head; h++) {
                truth_around(&stored, pos, h, w, y);
                for (uint32_t k = 0; k < v_dim_of(shape); k++) {
                    double d = (double)out[pos * n_row + h * v_dim_of(shape) + k] - y[k];
                    d2 += d * d;
                    l2 += y[k] * y[k];
                }
            }
        }
        free_input(&stored);
        CHECK(sqrt(d2 / l2) <= types[i].most, "%s: relative RMS %g", types[i].name, sqrt(d2 / l2));
        test_note("%s: relative RMS %.2g", types[i].name, sqrt(d2 / l2));
        for (uint32_t n_thread = 1; n_thread <= 3; n_thread += 2) {
            memset(other, 0xff, n_out * sizeof *other);
            if (!compute_all(&in, types[i].type, false, n_thread, other)) break;
            CHECK(memcmp(out, other, n_out * sizeof *out) == 0, "%s: other bits with %u threads", types[i].name,
                  n_thread);
        }
    }
    free(out);
    free(other);
    free(w);
    free(y);
    free_input(&in);
}

/* NaN in K or V of head 0 at a position makes the group's outputs NaN from there on and changes nothing else. */
static void hostile(void) {
    enum { DIM = 64, N_OUT = N_LAST * 4 * DIM };
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    float out[N_OUT], other[N_OUT];
    for (size_t i = 0; i < 18 * N_TYPE; i++) {
        /* One part alone, the second of two parts, the first of two parts. */
        uint32_t place = (uint32_t)i / (6 * N_TYPE), n = place < 1 ? 70 : 1027, first = n - N_LAST;
        uint32_t at = place < 2 ? n - 3 : 500;
        plumb_kv_type type = types[i / 6 % N_TYPE].type;
        if (type == PLUMB_KV_F32 || !test_repeats(i + i / 6)) continue;
        struct shape shape = { "", 4, 2, DIM, n, .window = 0 };
        struct input in;
        struct way way = { i % 2, 1, n, i % 2 ? N_LAST : 1, false };
        if (!make_input(&in, &shape) || !compute(&in, type, way, out, NULL)) return;
        (i / 3 % 2 ? in.k : in.v)[at * 2 * DIM + 11] = bad[i % 3];
        if (!compute(&in, type, way, other, NULL)) return;
        for (uint32_t j = 0; j < N_OUT; j++) {
            bool is_hit = j / (4 * DIM) + first >= at && j % (4 * DIM) < 2 * DIM;
            bool ok = is_hit ? isnan(other[j]) : f32_to_bits(out[j]) == f32_to_bits(other[j]);
            if (!CHECK(ok, "%zu: output %u is %g, was %g", i, j, (double)other[j], (double)out[j])) break;
        }
        free_input(&in);
    }
}

/* Numbers at the ends of f32's range, and only zeros. */
static void extreme(void) {
    struct shape shape = { "", 2, 1, 64, 40, .window = 0 };
    static const float factors[] = { 0, 1e-44f, 1e-33f, 1e-15f, 1e15f, 1e37f };
    enum { N_OUT = N_LAST * 2 * 64 };
    float out[N_OUT], other[N_OUT];
    for (size_t i = 0; i < 6; i++) {
        struct input in;
        if (!make_input(&in, &shape)) return;
        for (size_t j = 0; j < 40 * 64; j++) in.v[j] *= factors[i];
        for (size_t j = 0; j < 40 * 64; j++) in.k[j] *= factors[i] > 1 ? factors[i] : 1;
        compute(&in, PLUMB_KV_I16, (struct way) { true, 1, 40, N_LAST, false }, out, NULL);
        compute(&in, PLUMB_KV_I16, (struct way) { false, 1, 1, 1, false }, other, NULL);
        CHECK(memcmp(out, other, sizeof out) == 0, "%g: other bits", (double)factors[i]);
        for (size_t j = 0; j < N_OUT; j++) {
            CHECK(fabs((double)out[j]) <= 35.0 * (double)factors[i], "%g: %g", (double)factors[i], (double)out[j]);
        }
        free_input(&in);
    }
}

/* All codes have their largest value, so sums of products are just below 2^31. */
static void largest_codes(void) {
    static const uint32_t dims[] = { 1, 2, 4, 64, 256 };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        struct shape shape = { "", 1, 1, dims[i], 64, .window = 0 };
        struct input in;
        float out[2][N_LAST * 256], weights[N_LAST * 64];
        if (!make_input(&in, &shape)) return;
        for (size_t j = 0; j < 64 * dims[i]; j++) in.q[j] = in.k[j] = in.v[j] = 1;
        for (int scalar = 0; scalar < 2; scalar++) {
            struct way way = { scalar, 1, 64, N_LAST, false };
            if (!compute(&in, PLUMB_KV_I16, way, out[scalar], weights)) return;
            for (uint32_t j = 0; j < N_LAST * dims[i]; j++) {
                double error = fabs((double)out[scalar][j] - 1);
                if (!CHECK(error < 2e-5, "%u dims: %g", dims[i], (double)out[scalar][j])) break;
            }
        }
        free_input(&in);
    }
}

/* Whole sessions: rewinding and feeding again in other batches gives the same bits; memory is as predicted. */
static void sessions(void) {
    enum { N = 37, CUT = 13 };
    int32_t ids[N];
    for (int32_t i = 0; i < N; i++) ids[i] = (i * 37 + 5) % 200;
    plumb_model *m = fixture_load("tests/vectors/kv/heads.gguf");
    plumb_session *s;
    uint64_t bytes[4] = { 0 };
    for (int type = 0; m && type < 4; type++) {
        plumb_session_params params = { .n_ctx = 4096, .kv_type = (plumb_kv_type)type,
                                        .precision = PLUMB_PRECISION_EXACT16 };
        uint64_t hash[2] = { 0 };
        REQUIRE(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m));
        bytes[type] = plumb_session_bytes(s);
        for (int again = 0; again < 2; again++) {
            CHECK(plumb_session_rewind(s, again ? CUT : 0) == PLUMB_OK, "%s", plumb_session_error(s));
            for (uint32_t i = again ? CUT : 0, n = again ? 5 : N; i < N; i += n) {
                CHECK(plumb_session_n_past(s) == i && plumb_session_feed(s, ids + i, N - i < n ? N - i : n) == PLUMB_OK,
                      "%u tokens are in, expected %u: %s", plumb_session_n_past(s), i, plumb_session_error(s));
            }
            plumb_model_info info;
            plumb_model_get_info(m, &info);
            for (uint32_t i = 0; i < info.n_vocab; i++) {
                hash[again] = hash[again] * 31 + f32_to_bits(plumb_session_logits(s)[i]);
            }
        }
        CHECK(hash[0] == hash[1], "%s: other logits", plumb_kv_type_name(params.kv_type));
        plumb_session_free(s);
    }
    CHECK(bytes[PLUMB_KV_Q4_0] < bytes[PLUMB_KV_Q8_0] && bytes[PLUMB_KV_Q8_0] < bytes[PLUMB_KV_I16]
          && bytes[PLUMB_KV_I16] < bytes[PLUMB_KV_F32], "q4_0 %llu, q8_0 %llu, i16 %llu, f32 %llu",
          (unsigned long long)bytes[PLUMB_KV_Q4_0], (unsigned long long)bytes[PLUMB_KV_Q8_0],
          (unsigned long long)bytes[PLUMB_KV_I16], (unsigned long long)bytes[PLUMB_KV_F32]);
    plumb_session_params none = { .kv_type = (plumb_kv_type)4 };
    CHECK(m && plumb_session_create(&s, m, &none) == PLUMB_ERROR_ARGUMENT
          && strcmp(plumb_model_error(m), "4 is not a type of K and V") == 0, "%s", m ? plumb_model_error(m) : "");
    plumb_model_free(m);
}

/* The codes and scales of ggml for the same vectors (tests/vectors/kv).  A block of Q8_0 is a scale and 32 codes, one
 * of Q4_0 a scale and 16 bytes with codes plus 8: j in the low bits of byte j, j + 16 in the high ones. */
static void quantized_slices(void) {
    static const struct { plumb_kv_type type; const char *path; size_t n_byte; } rows[] = {
        { PLUMB_KV_Q8_0, "tests/vectors/kv/Q8_0.bin", 34 }, { PLUMB_KV_Q4_0, "tests/vectors/kv/Q4_0.bin", 18 },
    };
    size_t n_input = 0, n_block = 0;
    uint8_t *input = test_read_all("tests/vectors/kv/input.f32.bin", &n_input);
    for (size_t i = 0; input && i < 2; i++) {
        uint8_t *blocks = test_read_all(rows[i].path, &n_block), *block = blocks;
        CHECK(blocks && n_input / (4 * KV_SLICE) == n_block / rows[i].n_byte, "%zu and %zu bytes", n_input, n_block);
        for (size_t at = 0; blocks && at < n_input; at += 4 * KV_SLICE, block += rows[i].n_byte) {
            float x[KV_SLICE];
            int16_t codes[KV_SLICE];
            memcpy(x, input + at, sizeof x);
            uint16_t scale = kv_quantize(rows[i].type, x, codes);
            CHECK(scale == load_u16(block), "slice %zu: scale %04x, of ggml %04x", at / 128, scale, load_u16(block));
            for (size_t j = 0; j < KV_SLICE; j++) {
                int code = i == 0 ? (int8_t)block[2 + j] : (block[2 + j % 16] >> (j < 16 ? 0 : 4) & 15) - 8;
                CHECK(codes[j] == code, "slice %zu: code %zu is %d, of ggml %d", at / 128, j, codes[j], code);
            }
        }
        free(blocks);
    }
    free(input);
}

/* Element (i, j) of a Walsh-Hadamard matrix of n rows is 1 / sqrt(n), and negative if i and j have an odd number of
 * ones in common: Sylvester 1867. */
static void rotations(void) {
    static const struct { uint32_t n, block; } rows[] = {
        { 32, 32 }, { 64, 64 }, { 96, 32 }, { 128, 128 }, { 192, 64 }, { 256, 256 }, { 576, 64 },
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        uint32_t n = rows[k].n, block = rows[k].block;
        float x[576], y[576];
        random_state = n;
        for (uint32_t i = 0; i < n; i++) x[i] = y[i] = random_value();
        kv_rotate(y, n);
        for (uint32_t i = 0; i < n; i++) {
            double sum = 0;
            for (uint32_t j = 0; j < block; j++) {
                uint32_t common = i % block & j, ones = 0;
                for (; common > 0; common &= common - 1) ones++;
                sum += (ones % 2 > 0 ? -1 : 1) * (double)x[i / block * block + j] / sqrt(block);
            }
            double is = (double)y[i];
            if (!CHECK(fabs(sum - is) < 1e-5 * 35, "%u of %u: %g, expected %g", i, n, is, sum)) break;
        }
        kv_rotate(y, n);
        for (uint32_t i = 0; i < n; i++) {
            if (!CHECK(fabsf(x[i] - y[i]) < 1e-5f * 35, "%u of %u is not the same when rotated twice", i, n)) break;
        }
    }
}

/* A model whose heads are no multiple of 32 cannot have such K and V, and says so. */
static void refused_heads(void) {
    plumb_model *m = fixture_load("tests/vectors/synth/qwen3.gguf");
    plumb_session *s;
    plumb_session_params params = { .n_ctx = 64, .kv_type = PLUMB_KV_Q4_0 };
    CHECK(m && plumb_session_create(&s, m, &params) == PLUMB_ERROR_UNSUPPORTED
          && strcmp(plumb_model_error(m), "K and V cannot be stored as q4_0, which has blocks of 32: the model has "
                    "heads of 24 elements") == 0, "%s", m ? plumb_model_error(m) : "");
    plumb_model_free(m);
}

/* The default context.  A position of both layers has 2 x 64 heads of K and V, each of 128 codes and a scale. */
static void default_context(void) {
    struct layer_plan layers[2];
    struct plan plan = { .n_layer = 2, .n_embd = 64, .layers = layers };
    static const struct {
        plumb_kv_type type;
        uint32_t n_train, expected, window, original;
        bool is_encoder;
    } rows[] = {
        { PLUMB_KV_I16, 100, 100, .window = 0 },
        { PLUMB_KV_I16, 40960, (1 << 29) / (2 * 64 * 2 * (2 * 128 + 4)) / 32 * 32, .window = 0 },
        { PLUMB_KV_F32, 40960, (1 << 29) / (2 * 64 * 2 * 4 * 128), .window = 0 },
        { PLUMB_KV_I16, 40960, 40960, .window = 512 },       /* rings */
        { PLUMB_KV_I16, UINT32_MAX, PLUMB_MAX_CTX, .window = 512 },
        { PLUMB_KV_I16, 40960, 4096, .original = 4096 },     /* RoPE has long and short factors */
        { PLUMB_KV_I16, 40960, 40960, .window = 512, .original = 4096 },
        { PLUMB_KV_I16, 40960, 2048, .is_encoder = true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int il = 0; il < 2; il++) {
            layers[il] = (struct layer_plan) { .mixer = MIXER_ATTENTION, .attn = {
                .n_head = 64, .n_head_kv = 64, .k_dim = 128, .v_dim = 128, .window = rows[i].window,
                .is_causal = !rows[i].is_encoder } };
        }
        plan.n_ctx_train = rows[i].n_train;
        plan.n_ctx_original = rows[i].original > 0 ? rows[i].original : rows[i].n_train;
        uint32_t n = kv_cache_default(&plan, rows[i].type);
        CHECK(n == rows[i].expected, "row %zu: %u tokens, expected %u", i, n, rows[i].expected);
    }
}

void test_attention(void) {
    static const struct shape shapes[] = {
        { "40 positions, ALiBi of 6 heads", 6, 2, 64, 40, .alibi = 8 },
        { "1030 positions, sinks", 6, 3, 64, 1030, .has_sinks = true },
        { "1030 positions, biases by distance", 6, 3, 32, 1030, .has_biases = true },
        { "9 positions, sinks and a window", 6, 3, 64, 9, .window = 4, .has_sinks = true },
        { "100 positions, chunks of 32", 4, 2, 64, 100, .window = 32, .is_chunked = true },
        { "1 position", 3, 1, 64, 1, .window = 0 },
        { "7 positions, groups of 1", 2, 2, 64, 7, .window = 0 },
        { "8 positions, groups of 8", 16, 2, 64, 8, .window = 0 },
        { "9 positions, a head of 80", 6, 2, 80, 9, .window = 0 },
        { "31 positions, a head of 96", 3, 1, 96, 31, .window = 0 },
        { "32 positions, a head of 128", 5, 1, 128, 32, .window = 0 },
        { "33 positions, a head of 256", 4, 2, 256, 33, .window = 0 },
        { "65 positions, an odd head", 6, 3, 13, 65, .window = 0 },
        { "100 positions, a head of 1", 2, 2, 1, 100, .window = 0 },
        { "1026 positions: tokens of one unit end in two parts", 6, 2, 64, 1026, .window = 0 },
        { "1030 positions, groups of 5: two units of a head in two parts", 10, 2, 16, 1030, .window = 0 },
        { "4095 positions, groups of 3", 9, 3, 64, 4095, .window = 0 },
        { "40 positions, values longer than keys", 6, 3, 24, 40, .v_dim = 40 },
        { "70 positions, values shorter than keys", 4, 1, 64, 70, .v_dim = 20 },
        { "20 positions, a window of 20", 4, 2, 32, 20, .window = 20 },
        { "100 positions, a window of 1", 4, 2, 32, 100, .window = 1 },
        { "100 positions, a window of 33", 6, 2, 64, 100, .window = 33 },
        { "1030 positions, a window of 5 in two parts", 10, 2, 16, 1030, .window = 5 },
        { "2500 positions, a window of 200 in a ring", 6, 3, 24, 2500, .v_dim = 40, .window = 200, .has_sinks = true },
        { "3070 positions, chunks of 300 in a ring", 4, 2, 32, 3070, .window = 300, .is_chunked = true },
        { "2100 positions, a window of 1025 in two or three parts", 9, 3, 64, 2100, .v_dim = 48, .window = 1025 },
    };
    TEST_REPEATED_ROWS("attention: the formula's values, the same bits in every way: ", check_shape, shapes);
    static const struct shape around[] = {
        { "70 positions", 4, 2, 32, 70, .window = 0 },
        { "70 positions, ALiBi", 4, 4, 32, 70, .alibi = 8 },
        { "700 positions, biases by distance", 4, 2, 32, 700, .has_biases = true },
        { "1 position", 4, 2, 32, 1, .window = 4 },
        { "70 positions, a window of 1: itself", 4, 2, 32, 70, .window = 1 },
        { "70 positions, a window of 6", 4, 1, 32, 70, .v_dim = 24, .window = 6 },
        { "70 positions, a window of 33", 4, 2, 32, 70, .window = 33 },
        { "70 positions, a window of 200", 4, 2, 32, 70, .window = 200 },
        { "1100 positions in two parts, a window of 50", 4, 2, 16, 1100, .window = 50 },
        { "2100 positions in three parts, a window of 2100", 1, 1, 16, 2100, .window = 2100 },
    };
    TEST_ROWS("attention: tokens that see later ones, by the formula: ", check_around, around);
    test_case("attention: NaN and infinity reach only the heads that attend to them", hostile);
    test_case("attention: zeros, subnormal and huge values are handled", extreme);
    test_case("attention: the largest codes do not overflow", largest_codes);
    test_case("attention: slices of K and V have ggml's codes and scales", quantized_slices);
    test_case("attention: heads are rotated by a Walsh-Hadamard matrix", rotations);
    test_case("attention: heads that are no multiple of 32 cannot be stored as q4_0", refused_heads);
    test_case("attention: K and V of the default context take 512 MiB at most", default_context);
    test_case("attention: sessions work with K and V of every type", sessions);
}

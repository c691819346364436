/* Kernels: the portable table against plain f64 sums, and every other table against it, bit for bit. */
#include "kernels/kernels.h"
#include "kernels/simd128.h"
#include "fixture.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static uint32_t random_state;

static uint32_t random_u32(void) {   /* xorshift32, Marsaglia 2003 */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

static float random_f32(float scale) { return ((float)(random_u32() >> 8) * 0x1p-23f - 1.0f) * scale; }

static void random_floats(float *x, size_t n, float scale) {
    for (size_t i = 0; i < n; i++) x[i] = random_f32(scale);
}

static bool same_bits(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (a[i] != a[i] && b[i] != b[i]) continue;   /* the payload of a NaN may depend on the host */
        if (f32_to_bits(a[i]) != f32_to_bits(b[i])) return false;
    }
    return true;
}

/* True if a tile cannot hold f16 scales of 128 and more. */
static bool is_limited(uint32_t type) {
    return quant_traits(type)->block_size > 32 && fixture_f16_places(type)->n > 0;
}

/* Makes the f16 scales of random blocks small by clearing the upper exponent bits.  With any_scale they may be any that
 * a tile can hold: subnormal, zero, huge. */
static void limit_scales(uint8_t *blocks, uint32_t type, size_t n_byte, bool any_scale) {
    const struct quant_traits *traits = quant_traits(type);
    const struct f16_places *f16 = fixture_f16_places(type);
    int limit = is_limited(type) ? 22 << 2 : 31 << 2;   /* 2^7; infinity */
    for (size_t b = 0; b < n_byte; b += traits->block_bytes) {
        for (int i = 0; i < f16->n; i++) {
            uint8_t *high = blocks + b + f16->at[i] + 1;
            if (!any_scale) *high = (uint8_t)((*high & 0x83) | 0x28);   /* |scale| in 2^-5..2^-3 */
            else if (random_u32() % 4 == 0) *high &= 0x83;              /* subnormal */
            else if ((*high & 0x7c) >= limit) *high &= 0xbf;
        }
    }
    /* The scales of these are no f16 of whole bytes. */
    for (size_t b = 0; b < n_byte; b += traits->block_bytes) {
        if (type == QUANT_MXFP4 && any_scale) blocks[b] &= random_u32() % 4 == 0 ? 3 : 0x9f;    /* 2^-128..2^31 */
        else if (type == QUANT_MXFP4) blocks[b] = (uint8_t)(0x78 | (blocks[b] & 7));            /* 2^-8..2^-1 */
        for (size_t i = 0; type == QUANT_NVFP4 && i < 4; i++) {
            blocks[b + i] &= 0x7f;                            /* 0..2^8; a tile cannot hold 0x7f, which is 0 too */
            if (blocks[b + i] == 0x7f) blocks[b + i] = 0x7e;
        }
        if (type == QUANT_IQ1_M) blocks[b + 55] = (uint8_t)((blocks[b + 55] & 0x8f) | 0x20);    /* 2^-7..2^-4 */
        if (type == QUANT_Q8_K) blocks[b + 3] = (uint8_t)((blocks[b + 3] & 0x80) | 0x3c);       /* 2^-7..2^-5 */
    }
    if (type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16) {
        for (size_t i = 0; i < n_byte / traits->block_bytes; i++) {
            uint8_t *high = blocks + (i + 1) * traits->block_bytes - 1;
            *high = (uint8_t)((*high & 0x80) | (type == QUANT_F16 ? 0x30 : 0x3e));
        }
    }
}

/* Random bytes are valid blocks of every type. */
static void random_blocks(uint8_t *blocks, uint32_t type, size_t n_byte, bool any_scale) {
    for (size_t i = 0; i < n_byte; i++) blocks[i] = (uint8_t)random_u32();
    limit_scales(blocks, type, n_byte, any_scale);
}

/* ---- matmul: every weight type ----------------------------------------------------------------------------------- */

struct product {
    uint32_t type, n, n_out, n_token;
    bool any_scale;   /* scales of any size: all ways are only compared with each other; a superblock in
                       * the second 8 rows cannot be packed */
    bool extreme;     /* all bits of all codes are set and all x are equally large: the largest sums */
};

/* Relaxed dots of each kind of engine if they are emulated, else those of the engine that runs this test. */
#if defined(EMULATE_RELAXED) && defined(HAVE_RELAXED)
enum { N_ENGINE = 4 };
static void be_engine(int i) {
    static const enum relaxed_bytes bytes[N_ENGINE] = {
        [EMULATED_SIGNED] = RELAXED_BYTES_SIGNED, [EMULATED_UNSIGNED] = RELAXED_BYTES_UNSIGNED };
    emulated_engine = (enum emulated_engine)i;
    CHECK(kernels_relaxed_bytes() == bytes[i], "engine %d is taken for %d", i, (int)kernels_relaxed_bytes());
}
#else
enum { N_ENGINE = 1 };
static void be_engine(int i) { (void)i; }
#endif

/* A kernel table and how it is called: weights unpacked or packed, tokens together or one by one. */
struct way {
    const char *name;
    enum kernels_isa isa;
    bool packed, alone;
    uint32_t n_thread;
};

static bool run_product(const struct way *way, const struct product *p, plumb_precision precision, uint8_t *w,
                        const float *x, float *y) {
    const struct quant_traits *traits = quant_traits(p->type);
    struct kernels k;
    struct panel panels[3] = { 0 };
    struct activations acts = { 0 };
    struct pool *pool = way->n_thread > 1 ? pool_create(way->n_thread) : NULL;
    uint64_t bytes = 0;
    struct matrix matrix = { .type = p->type, .n_in = p->n, .n_out = p->n_out, .data = w,
                             .row_bytes = p->n / traits->block_size * traits->block_bytes };
    size_t n_byte = matrix.row_bytes * p->n_out;
    uint8_t *file = malloc(n_byte), *scratch = malloc(REPACK_ROWS * matrix.row_bytes);
    kernels_init(&k, way->isa, precision);
    bool ok = file && scratch && activations_create(&acts, p->n, p->n_token, &k, &bytes) == PLUMB_OK;
    for (uint32_t i = 0; i < pool_size(pool); i++) ok = ok && panel_create(&panels[i], p->n, &bytes) == PLUMB_OK;
    if (ok) memcpy(file, w, n_byte);
    while (ok && way->packed && repack_can(p->type) && p->n_out - matrix.n_packed >= REPACK_ROWS
           && repack_rows(p->type, w + matrix.n_packed * matrix.row_bytes, p->n / traits->block_size, scratch)) {
        matrix.n_packed += REPACK_ROWS;
    }
    bool refused = p->any_scale && is_limited(p->type);   /* the second tile; see check_product */
    if (ok && way->packed && traits->block_size > 1 && repack_can(p->type)) {
        CHECK(matrix.n_packed == (refused ? REPACK_ROWS : p->n_out / REPACK_ROWS * REPACK_ROWS),
              "%u of %u rows are packed", matrix.n_packed, p->n_out);
    }
    for (uint32_t t = 0, n = way->alone ? 1 : p->n_token; ok && t < p->n_token; t += n) {
        float *to = y + (size_t)t * p->n_out;
        acts.n = p->n;
        acts.n_token = n;
        acts.x = x + (size_t)t * p->n;
        acts.quantized = false;
        matmul(&k, pool, &matrix, &to, 1, &acts, panels);
    }
    if (ok) memcpy(w, file, n_byte);
    for (uint32_t i = 0; i < pool_size(pool); i++) panel_free(&panels[i]);
    pool_free(pool);
    activations_free(&acts);
    free(file);
    free(scratch);
    return ok;
}

static void check_product(const struct product *p, plumb_precision precision) {
    static const struct way ways[] = {
        { "scalar, packed", KERNELS_SCALAR, true, false, 1 },
        { "SIMD, as in the file", KERNELS_SIMD128, false, false, 1 },
        { "SIMD, packed", KERNELS_SIMD128, true, false, 1 },
        { "SIMD, packed, one by one", KERNELS_SIMD128, true, true, 1 },
        { "SIMD, packed, 3 threads", KERNELS_SIMD128, true, false, 3 },
        { "relaxed, as in the file", KERNELS_RELAXED, false, false, 1 },
        { "relaxed, packed", KERNELS_RELAXED, true, false, 1 },
        { "relaxed, packed, one by one", KERNELS_RELAXED, true, true, 1 },
        { "relaxed pairs, as in the file", KERNELS_PAIRS, false, false, 1 },
        { "relaxed pairs, packed", KERNELS_PAIRS, true, false, 1 },
        { "relaxed pairs, packed, one by one", KERNELS_PAIRS, true, true, 1 },
    };
    const struct quant_traits *traits = quant_traits(p->type);
    size_t row_bytes = p->n / traits->block_size * traits->block_bytes, n_y = (size_t)p->n_out * p->n_token;
    uint8_t *w = malloc(row_bytes * p->n_out);
    float *x = alloc_array((uint64_t)p->n * p->n_token, sizeof *x), *weights = alloc_array(p->n, sizeof *weights);
    float *y = alloc_array(n_y + 1, sizeof *y), *other = alloc_array(n_y + 1, sizeof *other);
    REQUIRE(w && x && weights && y && other, "out of memory");
    random_state = 0x9e3779b9u + p->type;
    random_blocks(w, p->type, row_bytes * p->n_out, p->any_scale);
    if (p->extreme) {
        memset(w, 0xff, row_bytes * p->n_out);
        limit_scales(w, p->type, row_bytes * p->n_out, false);
    }
    if (p->any_scale && is_limited(p->type)) {   /* a tile cannot hold 128 */
        uint8_t *d = w + (REPACK_ROWS + 3) * row_bytes + fixture_f16_places(p->type)->at[0];
        d[0] = 0;
        d[1] = 22 << 2;
    }
    random_floats(x, (size_t)p->n * p->n_token, 3.0f);
    for (size_t i = 0; p->extreme && i < (size_t)p->n * p->n_token; i++) x[i] = i / p->n % 2 == 0 ? 3.0f : -3.0f;
    for (size_t i = 0; i <= n_y; i++) y[i] = NAN;   /* outputs start as NaN, followed by a guard */
    REQUIRE(run_product(&(struct way) { "scalar", KERNELS_SCALAR, false, false, 1 }, p, precision, w, x, y),
            "out of memory");
    CHECK(isnan(y[n_y]), "scalar wrote behind its output");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        for (int engine = 0; engine < (ways[i].isa >= KERNELS_RELAXED ? N_ENGINE : 1); engine++) {
            be_engine(engine);
            for (size_t j = 0; j <= n_y; j++) other[j] = NAN;
            REQUIRE(run_product(&ways[i], p, precision, w, x, other), "%s: out of memory", ways[i].name);
            CHECK(isnan(other[n_y]), "%s wrote behind its output", ways[i].name);
            CHECK(same_bits(y, other, n_y), "%s differs from scalar, engine %d", ways[i].name, engine);
        }
    }

    /* Truth: dequantized weights times activations, in f64.  A code has an error of at most half a step: 2^-16 of the
     * block's maximum (3), or 1/254 of it with 8 bits.  So the sum has an error of at most that times 3 * sum |w|.
     * Another 2^-16 covers codes of sums and f32 sums: formats with a min subtract two sums, each up to 15 times the
     * result in Q2_K. */
    double worst = 0;
    for (uint32_t o = 0; o < p->n_out; o++) {
        quant_dequantize(traits, w + o * row_bytes, weights, p->n);
        for (uint32_t t = 0; t < p->n_token; t++) {
            double sum = 0, magnitude = 0;
            for (uint32_t i = 0; i < p->n; i++) {
                sum += (double)weights[i] * (double)x[(size_t)t * p->n + i];
                magnitude += fabs((double)weights[i]) * 3.0;
            }
            worst = worse(worst, fabs(sum - (double)y[(size_t)t * p->n_out + o]) / magnitude);
        }
    }
    double half_step = 0.5 / (precision == PLUMB_PRECISION_FAST8 ? MAX_CODE_8 : MAX_CODE_16);
    /* With scales of any size the error may exceed that, but no sum is NaN. */
    CHECK(p->any_scale ? isfinite(worst) : worst < half_step + 0x1p-16, "error %g of sum |w| |x|max, row length %u",
          worst, p->n);
    free(w);
    free(x);
    free(weights);
    free(y);
    free(other);
}

static void matmul_row(const void *product) {
    check_product(product, PLUMB_PRECISION_EXACT16);
    check_product(product, PLUMB_PRECISION_FAST8);
}

/* ---- single kernels against scalar, including odd lengths -------------------------------------------------------- */

enum { MAX_N = 300 };

static void check_lengths(void (*check)(const struct kernels *scalar, const struct kernels *best, size_t n)) {
    struct kernels scalar, best;
    kernels_init(&scalar, KERNELS_SCALAR, PLUMB_PRECISION_EXACT16);
    kernels_init(&best, KERNELS_SIMD128, PLUMB_PRECISION_EXACT16);
    random_state = 12345;
    for (size_t n = 1; n <= MAX_N; n += n < 40 ? 1 : 13) check(&scalar, &best, n);
}

static void check_dot(const struct kernels *scalar, const struct kernels *best, size_t n) {
    float a[MAX_N] = { 0 }, b[MAX_N] = { 0 };   /* gcc cannot see that random_floats fills them */
    random_floats(a, n, 2.0f);
    random_floats(b, n, 2.0f);
    float s = scalar->dot_f32(a, b, n), v = best->dot_f32(a, b, n);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    CHECK(same_bits(&s, &v, 1), "n = %zu: %g and %g", n, (double)s, (double)v);
    CHECK(fabs(sum - (double)s) <= 1e-6 * 4.0 * (double)n, "n = %zu: %g, f64 gives %g", n, (double)s, sum);
}
static void dot_case(void) { check_lengths(check_dot); }

static void check_scaled(const struct kernels *scalar, const struct kernels *best, size_t n) {
    float x[MAX_N], w[MAX_N], y[MAX_N + 1], y_best[MAX_N + 1];
    random_floats(x, n, 2.0f);
    random_floats(w, n, 2.0f);
    random_floats(y, n, 2.0f);
    y[n] = NAN;
    memcpy(y_best, y, sizeof y);
    float expected = y[n - 1] + 0.7f * x[n - 1];
    scalar->add_scaled(y, x, 0.7f, n);
    best->add_scaled(y_best, x, 0.7f, n);
    CHECK(y[n - 1] == expected, "add_scaled, n = %zu: %g, not %g", n, (double)y[n - 1], (double)expected);
    CHECK(same_bits(y, y_best, n + 1), "add_scaled, n = %zu", n);
    expected = x[n - 1] * 0.3f * w[n - 1];
    scalar->mul_scaled(y, x, 0.3f, w, n);
    best->mul_scaled(y_best, x, 0.3f, w, n);
    CHECK(y[n - 1] == expected, "mul_scaled, n = %zu: %g, not %g", n, (double)y[n - 1], (double)expected);
    CHECK(same_bits(y, y_best, n + 1), "mul_scaled, n = %zu", n);
}
static void scaled_case(void) { check_lengths(check_scaled); }

static void check_softmax(const struct kernels *scalar, const struct kernels *best, size_t n) {
    float x[MAX_N], y[MAX_N + 1], y_best[MAX_N + 1];
    random_floats(x, n, n % 3 == 0 ? 100.0f : 8.0f);
    y[n] = NAN;
    memcpy(y, x, n * sizeof *x);
    memcpy(y_best, y, sizeof y);
    scalar->softmax(y, n);
    best->softmax(y_best, n);
    CHECK(same_bits(y, y_best, n + 1), "n = %zu", n);
    double max = (double)x[0], sum = 0;
    for (size_t i = 0; i < n; i++) max = fmax(max, (double)x[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - max);
    for (size_t i = 0; i < n; i++) {
        double p = exp((double)x[i] - max) / sum;
        CHECK(fabs(p - (double)y[i]) <= 1e-6 * p + 1e-30, "n = %zu, i = %zu: %g, libm gives %g", n, i, (double)y[i], p);
    }
}
static void softmax_case(void) { check_lengths(check_softmax); }

static double silu(double z) { return z / (1 + exp(-z)); }
static double gelu_tanh(double z) { return 0.5 * z * (1 + tanh(0.79788456080286535588 * (z + 0.044715 * z * z * z))); }

/* gate <- f(gate) * up of both tables against libm.  Far below 0, gelu(z) is the difference of two numbers near 1, so
 * it may be off by `absolute`. */
static void check_gated(size_t n, double (*f)(double), void (*scalar)(float *, const float *, size_t),
                        void (*best)(float *, const float *, size_t), double relative, double absolute) {
    float gate[MAX_N], up[MAX_N], y[MAX_N + 1], y_best[MAX_N + 1];
    random_floats(gate, n, n % 3 == 0 ? 80.0f : 5.0f);
    random_floats(up, n, 2.0f);
    y[n] = NAN;
    memcpy(y, gate, n * sizeof *gate);
    memcpy(y_best, y, sizeof y);
    scalar(y, up, n);
    best(y_best, up, n);
    CHECK(same_bits(y, y_best, n + 1), "n = %zu", n);
    for (size_t i = 0; i < n; i++) {
        double truth = f((double)gate[i]) * (double)up[i];
        CHECK(fabs(truth - (double)y[i]) <= relative * fabs(truth) + absolute, "f(%g) * %g: %g, libm gives %g",
              (double)gate[i], (double)up[i], (double)y[i], truth);
    }
}
static void check_swiglu(const struct kernels *scalar, const struct kernels *best, size_t n) {
    check_gated(n, silu, scalar->swiglu, best->swiglu, 1e-6, 1e-30);
}
static void swiglu_case(void) { check_lengths(check_swiglu); }
static void check_geglu(const struct kernels *scalar, const struct kernels *best, size_t n) {
    check_gated(n, gelu_tanh, scalar->geglu, best->geglu, 2e-6, 1e-7);
}
static void geglu_case(void) { check_lengths(check_geglu); }

static double sigmoid(double z) { return 1 / (1 + exp(-z)); }

static void check_in_place(size_t n, double (*f)(double), void (*scalar)(float *, size_t),
                           void (*best)(float *, size_t)) {
    float x[MAX_N], y[MAX_N + 1], y_best[MAX_N + 1];
    random_floats(x, n, n % 3 == 0 ? 80.0f : 5.0f);
    y[n] = NAN;
    memcpy(y, x, n * sizeof *x);
    memcpy(y_best, y, sizeof y);
    scalar(y, n);
    best(y_best, n);
    CHECK(same_bits(y, y_best, n + 1), "n = %zu", n);
    for (size_t i = 0; i < n; i++) {
        double truth = f((double)x[i]);
        CHECK(fabs(truth - (double)y[i]) <= 1e-6 * fabs(truth) + 1e-30, "f(%g): %g, libm gives %g", (double)x[i],
              (double)y[i], truth);
    }
}
static void check_sigmoid(const struct kernels *scalar, const struct kernels *best, size_t n) {
    check_in_place(n, sigmoid, scalar->sigmoid, best->sigmoid);
    check_in_place(n, silu, scalar->silu, best->silu);
}
static void sigmoid_case(void) { check_lengths(check_sigmoid); }

/* The rows of a state, and what belongs to them. */
struct rows {
    float s[STATE_ROWS * MAX_N + 1], before[STATE_ROWS * MAX_N], g[STATE_ROWS], old[STATE_ROWS], out[STATE_ROWS];
    struct advance of;
};

/* Element i of a row afterwards and its product with the query, by the formulas of struct advance in f64. */
static double advanced(const struct rows *v, uint32_t r, uint32_t i, double *product) {
    const struct advance *of = &v->of;
    double before = (double)v->before[r * of->n + i], key = (double)of->key[i], g = (double)v->g[r];
    double fade = of->kind == ADVANCE_DECAY ? (double)of->decay : (double)of->fade[i];
    double after = fade * before + g * key * (of->kind == ADVANCE_GATED ? 1 - fade : 1);
    if (of->kind == ADVANCE_REMOVE) after -= (double)v->old[r] * (double)of->rate[i] * (double)of->removal[i];
    *product = (of->kind == ADVANCE_BEFORE ? before : after) * (double)of->query[i];
    return after;
}

static void check_rows(const struct kernels *scalar, const struct kernels *best, enum advance_kind kind, uint32_t n,
                       uint32_t n_row) {
    static struct rows a, b;
    static float fade[MAX_N], key[MAX_N], rate[MAX_N], removal[MAX_N], query[MAX_N];
    float *vectors[] = { fade, key, rate, removal, query, a.g, a.old };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) random_floats(vectors[i], i < 5 ? n : n_row, 1.0f);
    random_floats(a.before, (size_t)n_row * n, 1.0f);
    memcpy(a.s, a.before, (size_t)n_row * n * sizeof *a.s);
    a.s[n_row * n] = NAN;
    a.of = (struct advance) { kind, n, 0.9f, fade, key, rate, removal, query };
    b = a;
    scalar->advance(a.out, a.s, n_row, &a.of, a.g, a.old);
    best->advance(b.out, b.s, n_row, &b.of, b.g, b.old);
    CHECK(same_bits(a.s, b.s, (size_t)n_row * n + 1) && same_bits(a.out, b.out, n_row), "kind %d, n = %u, %u rows",
          (int)kind, n, n_row);
    for (uint32_t r = 0; r < n_row; r++) {
        double sum = 0, product;
        for (uint32_t i = 0; i < n; i++, sum += product) {
            double after = advanced(&a, r, i, &product), got = (double)a.s[r * n + i];
            CHECK(fabs(after - got) <= 1e-6, "kind %d, n = %u: %g, f64 gives %g", (int)kind, n, got, after);
        }
        CHECK(fabs(sum - (double)a.out[r]) <= 1e-6 * (double)n, "kind %d, n = %u: out %g, f64 gives %g", (int)kind, n,
              (double)a.out[r], sum);
    }
    scalar->row_dots(a.out, a.before, n_row, 0.7f, key, n);
    best->row_dots(b.out, a.before, n_row, 0.7f, key, n);
    CHECK(same_bits(a.out, b.out, n_row), "row_dots, n = %u, %u rows", n, n_row);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += 0.7 * (double)a.before[(n_row - 1) * n + i] * (double)key[i];
    CHECK(fabs(sum - (double)a.out[n_row - 1]) <= 1e-6 * (double)n, "row_dots, n = %u: %g, f64 gives %g", n,
          (double)a.out[n_row - 1], sum);
}

static void check_advance(const struct kernels *scalar, const struct kernels *best, size_t n) {
    for (enum advance_kind kind = ADVANCE_DECAY; kind <= ADVANCE_REMOVE; kind++) {
        for (uint32_t n_row = 1; n_row <= STATE_ROWS; n_row++) check_rows(scalar, best, kind, (uint32_t)n, n_row);
    }
}
static void advance_case(void) { check_lengths(check_advance); }

/* gelu(x) has the bits of geglu(x, 1), softcap and exp those of both tables. */
static void check_gelu(const struct kernels *scalar, const struct kernels *best, size_t n) {
    float x[MAX_N], ones[MAX_N], y[MAX_N + 1], y_best[MAX_N + 1];
    random_floats(x, n, 5.0f);
    for (size_t i = 0; i < n; i++) {
        ones[i] = 1.0f;
        y[i] = y_best[i] = x[i];
    }
    y[n] = y_best[n] = NAN;
    scalar->geglu(y, ones, n);
    best->gelu(y_best, n);
    CHECK(same_bits(y, y_best, n + 1), "gelu, n = %zu", n);
    for (size_t i = 0; i < n; i++) y[i] = y_best[i] = x[i];
    scalar->softcap(y, 3.0f, n);
    best->softcap(y_best, 3.0f, n);
    CHECK(same_bits(y, y_best, n + 1), "softcap, n = %zu", n);
    for (size_t i = 0; i < n; i++) {
        double truth = 3 * tanh((double)x[i] / 3);
        CHECK(fabs(truth - (double)y[i]) <= 2e-6, "softcap(%g): %g, libm gives %g", (double)x[i], (double)y[i], truth);
    }
    for (size_t i = 0; i < n; i++) y[i] = y_best[i] = x[i];
    scalar->exp(y, n);
    best->exp(y_best, n);
    CHECK(same_bits(y, y_best, n + 1), "exp, n = %zu", n);
    for (size_t i = 0; i < n; i++) {
        double truth = exp((double)x[i]);
        double e = (double)y[i];
        CHECK(fabs(e / truth - 1) <= 2.4e-7, "exp(%g): %g, libm gives %g", (double)x[i], e, truth);
    }
}
static void gelu_case(void) { check_lengths(check_gelu); }

/* Values that break careless code: all zeros, denormals, one huge value, NaN, infinity. */
static void check_quantize(enum kernels_isa isa, plumb_precision precision) {
    static const float specials[] = { 0.0f, 1e-40f, 1e-31f, 1e-30f, 1e9f, 3e38f, NAN, INFINITY, -INFINITY, -1.0f };
    struct kernels scalar, best;
    kernels_init(&scalar, KERNELS_SCALAR, precision);
    kernels_init(&best, isa, precision);
    scalar.needs_bytes = best.needs_bytes = true;   /* as relaxed kernels need them */
    uint32_t n_byte = precision == PLUMB_PRECISION_FAST8 ? 1 : 2;
    random_state = 77;
    for (size_t s = 0; s < sizeof specials / sizeof *specials; s++) {
        float x[64];
        struct activations a, b;
        uint64_t bytes = 0;
        REQUIRE(activations_create(&a, 64, 1, &scalar, &bytes) == PLUMB_OK
                && activations_create(&b, 64, 1, &best, &bytes) == PLUMB_OK, "out of memory");
        random_floats(x, 64, s < 4 ? 1e-41f : 1.0f);
        x[5] = specials[s];
        a.n = b.n = 64;
        a.n_token = b.n_token = 1;
        a.x = b.x = x;
        scalar.quantize_i16(&a, 0);
        best.quantize_i16(&b, 0);
        CHECK(memcmp(a.q, b.q, 64 * sizeof *a.q) == 0, "special %zu: codes differ", s);
        CHECK(memcmp(a.bytes, b.bytes, 64 * n_byte) == 0
              && (n_byte == 1 || memcmp(a.bytes_even_odd, b.bytes_even_odd, 128) == 0),
              "special %zu: bytes of codes differ", s);
        CHECK(same_bits(a.d, b.d, 2) && same_bits(a.sum32, b.sum32, 2),
              "special %zu: scales or sums differ", s);
        CHECK(memcmp(a.isum32, b.isum32, 2 * sizeof *a.isum32) == 0
              && memcmp(a.isum16, b.isum16, 4 * sizeof *a.isum16) == 0, "special %zu: sums of codes differ", s);
        double max_code = precision == PLUMB_PRECISION_FAST8 ? MAX_CODE_8 : MAX_CODE_16;
        bool finite = fabs((double)specials[s]) <= ACT_STEP_MAX * max_code;
        double d = (double)a.d[0], sum32 = (double)a.sum32[0];
        int16_t q[32];
        for (size_t i = 0; i < 32; i++) q[i] = a.q[even_odd(i)];
        for (size_t i = 0; i < 32; i++) {
            const int8_t *four = a.bytes + i / 4 * 8 + i % 4;
            int code = n_byte == 1 ? a.bytes[i] : 256 * four[0] + four[4];
            const int8_t *four_even_odd = a.bytes_even_odd + i / 4 * 8 + even_odd(i) % 4;
            bool same = n_byte == 1 || (four_even_odd[0] == four[0] && four_even_odd[4] == four[4]);
            CHECK(code == q[i] && same, "special %zu: %d and %d, in even-odd order %s", s, code, q[i],
                  same ? "too" : "not");
        }
        activations_free(&a);
        activations_free(&b);
        CHECK(finite ? d == d : d != d, "special %zu: d = %g", s, d);
        if (!finite) continue;
        double sum = 0, amax = 0;
        for (int i = 0; i < 32; i++) amax = fmax(amax, fabs((double)x[i]));
        for (int i = 0; i < 32; i++) {
            sum += d * q[i];
            /* half a step, plus the rounding of x / d in f32; truncation would cost a whole step */
            CHECK(fabs((double)x[i] - d * q[i]) <= amax * (0.508 / max_code) + 1e-30, "special %zu, x[%d] = %g", s,
                  i, (double)x[i]);
        }
        CHECK(fabs(sum - sum32) <= amax * 1e-5 + 1e-38, "special %zu: sum %g, not %g", s, sum32, sum);
    }
}

static void quantize_case(void) {
    for (enum kernels_isa isa = KERNELS_SIMD128; isa <= KERNELS_PAIRS; isa++) {
        check_quantize(isa, PLUMB_PRECISION_EXACT16);
        check_quantize(isa, PLUMB_PRECISION_FAST8);
    }
}

/* Multiplies every 16-bit value: the unit vectors as tokens return the weights.  Finite values fill rows of 8.  Every
 * other value has a row of zeros to itself, because it makes NaN of every 0 that it is multiplied with. */
static void halves_case(const void *arg) {
    enum { N = 8, N_HALF = 1 << 16 };
    static const struct way ways[] = {
        { "scalar", KERNELS_SCALAR, true, false, 1 }, { "as in the file", KERNELS_SIMD128, false, false, 1 },
        { "packed", KERNELS_SIMD128, true, false, 1 }, { "packed, one by one", KERNELS_SIMD128, true, true, 1 },
    };
    uint32_t type = *(const uint32_t *)arg, n_finite = 0, n_out = 0;
    uint8_t *w = calloc(N_HALF, 2 * N);
    float *y = alloc_array(N_HALF * N, sizeof *y), x[N * N] = { 0 }, value;
    REQUIRE(w && y, "out of memory");
    for (int special = 0; special < 2; special++) {
        for (uint32_t h = 0; h < N_HALF; h++) {
            quant_dequantize(quant_traits(type), (uint8_t[]) { (uint8_t)h, (uint8_t)(h >> 8) }, &value, 1);
            if (isfinite(value) == special) continue;
            size_t at = special ? (size_t)n_out++ * N : n_finite++;
            w[2 * at] = (uint8_t)h;
            w[2 * at + 1] = (uint8_t)(h >> 8);
        }
        if (!special) n_out = n_finite / N;
    }
    CHECK(n_finite == (type == QUANT_F16 ? 0xf800 : 0xff00), "%u halves are finite", n_finite);
    for (uint32_t i = 0; i < N; i++) x[i * N + i] = 1.0f;
    struct product p = { type, N, n_out, N, false, false };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        REQUIRE(run_product(&ways[i], &p, PLUMB_PRECISION_EXACT16, w, x, y), "%s: out of memory", ways[i].name);
        uint32_t n_wrong = 0;
        for (uint32_t row = 0; row < n_out; row++) {
            for (uint32_t e = 0; e < (row < n_finite / N ? N : 1u); e++) {
                quant_dequantize(quant_traits(type), w + 2 * ((size_t)row * N + e), &value, 1);
                value += 0.0f;   /* sums that begin with 0 lose the sign of -0 */
                n_wrong += !same_bits(&value, &y[(size_t)e * n_out + row], 1);
            }
        }
        CHECK(n_wrong == 0, "%s: %u halves are other numbers", ways[i].name, n_wrong);
    }
    free(w);
    free(y);
}

/* Products with F16 are the same if x is small, large, infinite or NaN. */
static void f16_extremes_case(void) {
    enum { N = 16, N_OUT = 8 };
    static const float specials[] = { 1e-45f, 1e-38f, 65535.0f, 65536.0f, 1e9f, 3e38f, INFINITY, NAN };
    static const struct way scalar = { "scalar", KERNELS_SCALAR, true, false, 1 };
    static const struct way best = { "best", KERNELS_SIMD128, true, false, 1 };
    struct product p = { QUANT_F16, N, N_OUT, 1, false, false };
    uint8_t w[2 * N * N_OUT];
    random_state = 5;
    random_blocks(w, QUANT_F16, sizeof w, false);
    for (size_t s = 0; s < sizeof specials / sizeof *specials; s++) {
        float x[N], y[N_OUT], y_best[N_OUT];
        random_floats(x, N, s < 2 ? specials[s] : 1.0f);
        x[5] = specials[s];
        REQUIRE(run_product(&scalar, &p, PLUMB_PRECISION_EXACT16, w, x, y)
                && run_product(&best, &p, PLUMB_PRECISION_EXACT16, w, x, y_best), "out of memory");
        CHECK(same_bits(y, y_best, N_OUT), "x of %g: %g and %g", (double)x[5], (double)y[0], (double)y_best[0]);
        CHECK(isfinite(y[0]) == isfinite(x[5]), "x of %g: %g", (double)x[5], (double)y[0]);
    }
}

/* This file is compiled once, kernels.c for each module. */
static bool have_relaxed(void) {
    struct kernels k;
    kernels_init(&k, KERNELS_RELAXED, PLUMB_PRECISION_EXACT16);
    return k.isa == KERNELS_RELAXED;
}

/* If a table is missing, kernels_init returns the next one below it, and every case would compare that with itself.  In
 * WebAssembly only some modules have the relaxed table; tests/node/kernel-opcodes.test.mjs lists them. */
static void tables_case(void) {
    for (enum kernels_isa isa = KERNELS_SCALAR; isa <= KERNELS_PAIRS; isa++) {
        struct kernels k;
        kernels_init(&k, isa, PLUMB_PRECISION_EXACT16);
        bool known = isa == KERNELS_SCALAR;
#if defined(HAVE_SIMD128)
        known = known || isa == KERNELS_SIMD128;
#endif
#if defined(EMULATE_RELAXED) && defined(HAVE_RELAXED)
        known = known || isa == KERNELS_RELAXED || isa == KERNELS_PAIRS;
#endif
        CHECK(known ? k.isa == isa : k.isa <= isa, "table %d was asked for, this is %d", (int)isa, (int)k.isa);
    }
}

/* The table that is chosen for made-up speeds of SIMD128 and relaxed kernels.  The precision is always the requested
 * one. */
static void choose_case(void) {
    static const struct {
        struct kernel_speeds speeds;
        enum kernels_isa exact16, fast8;
    } rows[] = {
        { { .n_call = 0 }, KERNELS_SIMD128, KERNELS_PAIRS },
        { { { { 10, 40 }, { 10, 42 } }, .n_call = 6 }, KERNELS_SIMD128, KERNELS_PAIRS },
        { { { { 10, 40 }, { 11, 42 } }, .n_call = 6 }, KERNELS_RELAXED, KERNELS_RELAXED },
        { { { { 1, 1 }, { 1e30, 1e30 } }, .n_call = 6, .settled = true }, KERNELS_RELAXED, KERNELS_RELAXED },
        { { { { 1e30, 1e30 }, { 1, 1 } }, .n_call = 6, .settled = true }, KERNELS_SIMD128, KERNELS_PAIRS },
        { { { { 10, 40 }, { 11, 42 } }, true, .n_call = 6 }, KERNELS_SIMD128, KERNELS_SIMD128 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (plumb_precision asked = PLUMB_PRECISION_EXACT16; asked <= PLUMB_PRECISION_FAST8; asked++) {
            struct kernels k;
            kernels_choose(&k, asked, &rows[i].speeds);
            CHECK(k.isa == (asked == PLUMB_PRECISION_FAST8 ? rows[i].fast8 : rows[i].exact16), "row %zu, %s: isa %d", i,
                  plumb_precision_name(asked), (int)k.isa);
            CHECK(k.precision == asked, "row %zu: %s was asked for, %s was chosen", i, plumb_precision_name(asked),
                  plumb_precision_name(k.precision));
        }
    }
}

/* Calls the measurement as a loading model does, and a few times more.  Each call measures or changes nothing.  Speeds
 * depend on this machine, so only bounds are checked. */
static void check_settling(const struct kernel_speeds *start, uint32_t type, uint64_t n_in, uint64_t n_out,
                           bool choice) {
    struct kernel_speeds s, before;
    memcpy(&s, start, sizeof s);   /* includes the padding, which memcmp compares */
    for (int call = 0; call < KERNELS_CALLS + 2; call++) {
        memcpy(&before, &s, sizeof s);
        kernels_measure(&s, type, n_in, n_out);
        if (!choice || before.settled || before.n_call == KERNELS_CALLS) {
            CHECK(memcmp(&s, &before, sizeof s) == 0, "type %u: call %d wrote, %u measured and %s before", type, call,
                  before.n_call, before.settled ? "settled" : "not settled");
            continue;
        }
        bool faster = false, twice = false;
        for (int i = 0; i < 2 * KERNELS_CANDIDATES; i++) {
            double now = s.per_second[i / 2][i % 2], was = before.per_second[i / 2][i % 2];
            CHECK(now >= was, "type %u: %g products in a second became %g", type, was, now);
            faster |= now > was;
            twice |= now > 2 * was;
        }
        CHECK(s.n_call == before.n_call + 1, "type %u: call %d is number %u", type, call, s.n_call);
        CHECK(s.wrong == start->wrong, "type %u: relaxed products became %s", type, s.wrong ? "wrong" : "right");
        bool may = s.n_call > 2 && !twice, must = s.n_call > 2 && !faster;
        CHECK(s.settled ? may || s.wrong : !must && !s.wrong, "type %u: %s by call %u, faster %d, twice %d", type,
              s.settled ? "settled" : "not settled", s.n_call, faster, twice);
    }
    CHECK(s.n_call <= KERNELS_CALLS, "type %u: %u calls measured", type, s.n_call);
    CHECK(!choice || s.settled || s.n_call == KERNELS_CALLS, "type %u: %u calls measured, and it goes on", type,
          s.n_call);
    bool wrong = choice && s.wrong;
    for (plumb_precision asked = PLUMB_PRECISION_EXACT16; wrong && asked <= PLUMB_PRECISION_FAST8; asked++) {
        struct kernels k;
        kernels_choose(&k, asked, &s);
        CHECK(k.isa == KERNELS_SIMD128, "type %u: isa %d after a wrong product, precision %d", type, (int)k.isa,
              (int)asked);
    }
}

static void settled_case(void) {
    bool relaxed = have_relaxed();
    static const struct kernel_speeds starts[] = {
        { .n_call = 0 },
        { .n_call = KERNELS_CALLS - 2 },   /* everything is faster than nothing: one more call */
        { .n_call = KERNELS_CALLS },
        { .per_second = { { 1e30, 1e30 }, { 1e30, 1e30 } } },   /* nothing is ever faster than that */
        { .per_second = { { 1, 1 }, { 1e30, 1e30 } }, .wrong = true },
    };
    for (int engine = 0; engine < N_ENGINE; engine++) {
        be_engine(engine);
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
            check_settling(&starts[i], QUANT_Q4_0, 64, 8, relaxed);
            check_settling(&starts[i], QUANT_Q4_K, 256, 17, relaxed);
        }
        /* These types have no relaxed kernels, or too few or too long rows. */
        check_settling(&starts[0], QUANT_F32, 64, 8, false);
        check_settling(&starts[0], QUANT_Q2_K, 256, 8, false);
        check_settling(&starts[0], QUANT_Q4_0, 64, 7, false);
        check_settling(&starts[0], QUANT_Q4_0, (1 << 15) + 32, 8, false);
    }
}

/* All kernels give the same sums while x grows, and NaN once its steps become too large. */
static void large_case(const void *type) {
    enum { N = 512, N_OUT = 8, N_TOKEN = 5 };
    static const float sizes[] = { 1e6f, 8e6f, 9e6f, 1e8f, 1e9f, 2e9f, 1e30f };
    struct product p = { *(const uint32_t *)type, N, N_OUT, N_TOKEN, false, false };
    uint8_t w[N_OUT * N];   /* one byte per weight is enough */
    const struct quant_traits *traits = quant_traits(p.type);
    random_state = 11;
    random_blocks(w, p.type, (size_t)N_OUT * N / traits->block_size * traits->block_bytes, false);
    for (size_t s = 0; s < 2 * sizeof sizes / sizeof *sizes; s++) {
        bool single = s % 2 == 1;   /* only one x, of the first token */
        float size = sizes[s / 2];
        for (plumb_precision precision = PLUMB_PRECISION_EXACT16; precision <= PLUMB_PRECISION_FAST8; precision++) {
            float x[N * N_TOKEN], y[KERNELS_PAIRS + 1][N_OUT * N_TOKEN];
            random_floats(x, N * N_TOKEN, single ? 1.0f : size);
            for (int i = 0; i < (single ? 1 : N * N_TOKEN); i += 16) x[i] = size;
            for (enum kernels_isa isa = KERNELS_SCALAR; isa <= KERNELS_PAIRS; isa++) {
                for (int alone = 0; alone < 2; alone++) {
                    REQUIRE(run_product(&(struct way) { "", isa, true, alone, 1 }, &p, precision, w, x, y[isa]),
                            "out of memory");
                    CHECK(same_bits(y[0], y[isa], N_OUT * N_TOKEN), "x of %g, isa %d: %g and %g", (double)size,
                          (int)isa, (double)y[0][0], (double)y[isa][0]);
                }
            }
            double most = ACT_STEP_MAX * (double)(precision == PLUMB_PRECISION_FAST8 ? MAX_CODE_8 : MAX_CODE_16);
            CHECK(isnan(y[0][0]) == ((double)size > most) && !isinf(y[0][0]), "x of %g: %g", (double)size,
                  (double)y[0][0]);
            CHECK(!single || isfinite(y[0][N_OUT]), "x of %g made the next token %g", (double)size,
                  (double)y[0][N_OUT]);
        }
    }
}

/* Q4_K with a minimum of 1 in group r of row r and everything else 0, times x whose codes equal x.  The result is the
 * sum of a group as a 16-bit code with the common step of all eight. */
static void minima_case(void) {
    enum { N = 256, N_OUT = 8 };
    struct product p = { .type = QUANT_Q4_K, .n = N, .n_out = N_OUT, .n_token = 1 };
    struct { uint8_t d[2], dmin[2], scales[12], qs[128]; } w[N_OUT];
    float x[N], y[N_OUT], most = 0, sums[N_OUT] = { 0 };
    memset(w, 0, sizeof w);
    random_state = 21;
    for (size_t r = 0; r < N_OUT; r++) {
        w[r].dmin[1] = 0x3c;   /* 1.0 */
        w[r].scales[4 + r] = r < 4 ? 1 : 1 << 4;
        for (size_t i = 32 * r; i < 32 * r + 32; i++) {
            x[i] = i % 32 == 0 ? (float)MAX_CODE_16 : (float)(random_u32() % (2 * MAX_CODE_16)) - (float)MAX_CODE_16;
            sums[r] += x[i];   /* exact: all are integers */
        }
        most = fmaxf(most, fabsf(sums[r]));
    }
    for (enum kernels_isa isa = KERNELS_SCALAR; isa <= KERNELS_PAIRS; isa++) {
        for (int packed = 0; packed < 2; packed++) {
            const struct way way = { "", isa, packed, true, 1 };
            REQUIRE(run_product(&way, &p, PLUMB_PRECISION_EXACT16, (uint8_t *)w, x, y), "out of memory");
            for (int r = 0; r < N_OUT; r++) {
                CHECK(fabsf(y[r] + sums[r]) <= 0.5001f * most / (float)SUM_CODE_MAX, "isa %d, row %d: %g, not %g",
                      (int)isa, r, (double)y[r], (double)-sums[r]);
            }
        }
    }
}

static void packed_types_case(void) {
    struct kernels k;
    kernels_init(&k, KERNELS_SIMD128, PLUMB_PRECISION_EXACT16);
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        if (repack_can(type)) CHECK(k.dot[type] && k.unpack[type], "%s", quant_traits(type)->name);
    }
}

void test_kernels(void) {
    static const struct { const char *name; struct product p; } rows[] = {
        { "kernels: F32 of odd length equals f64 sums, SIMD equals scalar", { QUANT_F32, 43, 7, 3, false, false } },
        { "kernels: F32 rows of 4 and of 9 tokens", { QUANT_F32, 52, 25, 9, false, false } },
        { "kernels: F32 tile of rows of odd length", { QUANT_F32, 575, 8, 6, false, false } },
        { "kernels: F16 rows that can be packed, one token", { QUANT_F16, 576, 16, 1, false, false } },
        { "kernels: F16 rows that can be packed, and some more", { QUANT_F16, 72, 27, 7, false, false } },
        { "kernels: F16 rows of 4 more than can be packed", { QUANT_F16, 68, 16, 5, false, false } },
        { "kernels: F16 rows of one weight", { QUANT_F16, 1, 8, 4, false, false } },
        { "kernels: BF16 rows that can be packed, and some more", { QUANT_BF16, 264, 31, 8, false, false } },
        { "kernels: F16 product equals f64 sums, SIMD equals scalar", { QUANT_F16, 61, 9, 2, false, false } },
        { "kernels: BF16 product equals f64 sums, SIMD equals scalar", { QUANT_BF16, 128, 5, 2, false, false } },
        { "kernels: Q4_0 tiles equal f64 sums, SIMD equals scalar", { QUANT_Q4_0, 576, 19, 6, false, false } },
        { "kernels: Q4_1 tiles equal f64 sums, SIMD equals scalar", { QUANT_Q4_1, 96, 21, 2, false, false } },
        { "kernels: Q5_0 tiles equal f64 sums, SIMD equals scalar", { QUANT_Q5_0, 160, 18, 6, false, false } },
        { "kernels: Q5_1 tiles equal f64 sums, SIMD equals scalar", { QUANT_Q5_1, 576, 10, 3, false, false } },
        { "kernels: Q8_0 tiles equal f64 sums, SIMD equals scalar", { QUANT_Q8_0, 1536, 16, 5, false, false } },
        { "kernels: results that no cache holds, of 64 tokens", { QUANT_Q8_0, 32, 2083, 64, false, false } },
        { "kernels: results that no cache holds, of 700 tokens", { QUANT_Q4_0, 32, 195, 700, false, false } },
        { "kernels: results that no cache holds, of 2,500 tokens", { QUANT_Q8_0, 32, 53, 2500, false, false } },
        { "kernels: Q2_K tiles equal f64 sums, SIMD equals scalar", { QUANT_Q2_K, 512, 17, 6, false, false } },
        { "kernels: Q3_K tiles equal f64 sums, SIMD equals scalar", { QUANT_Q3_K, 768, 9, 5, false, false } },
        { "kernels: Q4_K tiles equal f64 sums, SIMD equals scalar", { QUANT_Q4_K, 768, 23, 10, false, false } },
        { "kernels: Q5_K tiles equal f64 sums, SIMD equals scalar", { QUANT_Q5_K, 512, 19, 6, false, false } },
        { "kernels: Q6_K tiles equal f64 sums, SIMD equals scalar", { QUANT_Q6_K, 768, 22, 7, false, false } },
        { "kernels: IQ4_NL tiles equal f64 sums, SIMD equals scalar", { QUANT_IQ4_NL, 96, 13, 4, false, false } },
        { "kernels: IQ4_XS tiles equal f64 sums, SIMD equals scalar", { QUANT_IQ4_XS, 512, 11, 6, false, false } },
        { "kernels: IQ1_S tiles equal f64 sums, SIMD equals scalar", { QUANT_IQ1_S, 512, 11, 6, false, false } },
        { "kernels: IQ1_M tiles equal f64 sums, SIMD equals scalar", { QUANT_IQ1_M, 256, 9, 5, false, false } },
        { "kernels: IQ2_XXS tiles equal f64 sums, SIMD equals scalar", { QUANT_IQ2_XXS, 512, 17, 6, false, false } },
        { "kernels: IQ2_XS tiles equal f64 sums, SIMD equals scalar", { QUANT_IQ2_XS, 256, 8, 4, false, false } },
        { "kernels: IQ2_S tiles equal f64 sums, SIMD equals scalar", { QUANT_IQ2_S, 512, 11, 9, false, false } },
        { "kernels: IQ3_XXS tiles equal f64 sums, SIMD equals scalar", { QUANT_IQ3_XXS, 256, 19, 5, false, false } },
        { "kernels: IQ3_S tiles equal f64 sums, SIMD equals scalar", { QUANT_IQ3_S, 768, 10, 6, false, false } },
        { "kernels: TQ1_0 tiles equal f64 sums, SIMD equals scalar", { QUANT_TQ1_0, 512, 9, 5, false, false } },
        { "kernels: TQ2_0 tiles equal f64 sums, SIMD equals scalar", { QUANT_TQ2_0, 256, 16, 7, false, false } },
        { "kernels: MXFP4 tiles equal f64 sums, SIMD equals scalar", { QUANT_MXFP4, 96, 13, 6, false, false } },
        { "kernels: NVFP4 tiles equal f64 sums, SIMD equals scalar", { QUANT_NVFP4, 192, 11, 5, false, false } },
        { "kernels: Q1_0 tiles equal f64 sums, SIMD equals scalar", { QUANT_Q1_0, 384, 9, 6, false, false } },
        { "kernels: Q2_0 tiles equal f64 sums, SIMD equals scalar", { QUANT_Q2_0, 192, 17, 5, false, false } },
        { "kernels: Q8_K as f32 equals f64 sums, SIMD equals scalar", { QUANT_Q8_K, 256, 9, 5, false, false } },
        { "kernels: Q4_0 with scales of every size, SIMD equals scalar", { QUANT_Q4_0, 128, 16, 5, true, false } },
        { "kernels: Q4_1 with scales of every size, SIMD equals scalar", { QUANT_Q4_1, 128, 16, 5, true, false } },
        { "kernels: Q5_0 with scales of every size, SIMD equals scalar", { QUANT_Q5_0, 128, 16, 5, true, false } },
        { "kernels: Q5_1 with scales of every size, SIMD equals scalar", { QUANT_Q5_1, 128, 16, 5, true, false } },
        { "kernels: Q8_0 with scales of every size, SIMD equals scalar", { QUANT_Q8_0, 128, 16, 5, true, false } },
        { "kernels: Q2_K with scales of every size, SIMD equals scalar", { QUANT_Q2_K, 512, 16, 5, true, false } },
        { "kernels: Q3_K with scales of every size, SIMD equals scalar", { QUANT_Q3_K, 512, 16, 5, true, false } },
        { "kernels: Q4_K with scales of every size, SIMD equals scalar", { QUANT_Q4_K, 512, 16, 5, true, false } },
        { "kernels: Q5_K with scales of every size, SIMD equals scalar", { QUANT_Q5_K, 512, 16, 5, true, false } },
        { "kernels: Q6_K with scales of every size, SIMD equals scalar", { QUANT_Q6_K, 512, 16, 5, true, false } },
        { "kernels: IQ4_NL with scales of every size, SIMD equals scalar", { QUANT_IQ4_NL, 128, 16, 5, true, false } },
        { "kernels: IQ4_XS with scales of every size, SIMD equals scalar", { QUANT_IQ4_XS, 512, 16, 5, true, false } },
        { "kernels: MXFP4 with scales of every size, SIMD equals scalar", { QUANT_MXFP4, 512, 16, 5, true, false } },
        { "kernels: IQ1_S with scales of every size, SIMD equals scalar", { QUANT_IQ1_S, 512, 16, 5, true, false } },
        { "kernels: IQ2_XXS with scales of every size", { QUANT_IQ2_XXS, 512, 16, 5, true, false } },
        { "kernels: IQ2_XS with scales of every size, SIMD equals scalar", { QUANT_IQ2_XS, 512, 16, 5, true, false } },
        { "kernels: IQ2_S with scales of every size, SIMD equals scalar", { QUANT_IQ2_S, 512, 16, 5, true, false } },
        { "kernels: IQ3_XXS with scales of every size", { QUANT_IQ3_XXS, 512, 16, 5, true, false } },
        { "kernels: IQ3_S with scales of every size, SIMD equals scalar", { QUANT_IQ3_S, 512, 16, 5, true, false } },
        { "kernels: NVFP4 with scales of every size, SIMD equals scalar", { QUANT_NVFP4, 512, 16, 5, true, false } },
        { "kernels: Q1_0 with scales of every size, SIMD equals scalar", { QUANT_Q1_0, 512, 16, 5, true, false } },
        { "kernels: Q2_0 with scales of every size, SIMD equals scalar", { QUANT_Q2_0, 512, 16, 5, true, false } },
        { "kernels: TQ1_0 with scales of every size, SIMD equals scalar", { QUANT_TQ1_0, 512, 16, 5, true, false } },
        { "kernels: TQ2_0 with scales of every size, SIMD equals scalar", { QUANT_TQ2_0, 512, 16, 5, true, false } },
        { "kernels: Q4_0 of the largest sums, SIMD equals scalar", { QUANT_Q4_0, 512, 8, 6, false, true } },
        { "kernels: Q4_1 of the largest sums, SIMD equals scalar", { QUANT_Q4_1, 512, 8, 6, false, true } },
        { "kernels: Q5_0 of the largest sums, SIMD equals scalar", { QUANT_Q5_0, 512, 8, 6, false, true } },
        { "kernels: Q5_1 of the largest sums, SIMD equals scalar", { QUANT_Q5_1, 512, 8, 6, false, true } },
        { "kernels: Q8_0 of the largest sums, SIMD equals scalar", { QUANT_Q8_0, 512, 8, 6, false, true } },
        { "kernels: Q2_K of the largest sums, SIMD equals scalar", { QUANT_Q2_K, 512, 8, 6, false, true } },
        { "kernels: Q3_K of the largest sums, SIMD equals scalar", { QUANT_Q3_K, 512, 8, 6, false, true } },
        { "kernels: Q4_K of the largest sums, SIMD equals scalar", { QUANT_Q4_K, 512, 8, 6, false, true } },
        { "kernels: Q5_K of the largest sums, SIMD equals scalar", { QUANT_Q5_K, 512, 8, 6, false, true } },
        { "kernels: Q6_K of the largest sums, SIMD equals scalar", { QUANT_Q6_K, 512, 8, 6, false, true } },
        { "kernels: IQ4_NL of the largest sums, SIMD equals scalar", { QUANT_IQ4_NL, 512, 8, 6, false, true } },
        { "kernels: IQ4_XS of the largest sums, SIMD equals scalar", { QUANT_IQ4_XS, 512, 8, 6, false, true } },
        { "kernels: MXFP4 of the largest sums, SIMD equals scalar", { QUANT_MXFP4, 512, 8, 6, false, true } },
        { "kernels: IQ1_M of the largest sums, SIMD equals scalar", { QUANT_IQ1_M, 512, 8, 6, false, true } },
        { "kernels: IQ2_XS of the largest sums, SIMD equals scalar", { QUANT_IQ2_XS, 512, 8, 6, false, true } },
        { "kernels: IQ3_XXS of the largest sums, SIMD equals scalar", { QUANT_IQ3_XXS, 512, 8, 6, false, true } },
        { "kernels: NVFP4 of the largest sums, SIMD equals scalar", { QUANT_NVFP4, 512, 8, 6, false, true } },
        { "kernels: Q1_0 of the largest sums, SIMD equals scalar", { QUANT_Q1_0, 512, 8, 6, false, true } },
        { "kernels: Q2_0 of the largest sums, SIMD equals scalar", { QUANT_Q2_0, 512, 8, 6, false, true } },
        { "kernels: TQ1_0 of the largest sums, SIMD equals scalar", { QUANT_TQ1_0, 512, 8, 6, false, true } },
        { "kernels: TQ2_0 of the largest sums, SIMD equals scalar", { QUANT_TQ2_0, 512, 8, 6, false, true } },
        { "kernels: one row of one block", { QUANT_Q4_0, 32, 1, 1, false, false } },
        { "kernels: one row of one superblock", { QUANT_Q6_K, 256, 1, 1, false, false } },
        { "kernels: one tile of 8 rows and 4 tokens", { QUANT_Q4_0, 64, 8, 4, false, false } },
        { "kernels: one tile of superblocks and one token", { QUANT_Q4_K, 256, 8, 1, false, false } },
        { "kernels: 3 tokens of Q4_K, one by one", { QUANT_Q4_K, 512, 19, 3, false, false } },
        { "kernels: 3 tokens of Q6_K, one by one", { QUANT_Q6_K, 512, 8, 3, false, false } },
        { "kernels: 2 tokens of Q2_K, one by one", { QUANT_Q2_K, 512, 16, 2, false, false } },
        { "kernels: 3 tokens of Q4_1, one by one", { QUANT_Q4_1, 96, 9, 3, false, false } },
        { "kernels: 2 tokens of packed F16, one by one", { QUANT_F16, 72, 17, 2, false, false } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) test_row(rows[i].name, matmul_row, &rows[i].p);
    test_case("kernels: dot_f32 of every length equals f64, SIMD equals scalar", dot_case);
    test_case("kernels: add_scaled and mul_scaled of every length, SIMD equals scalar", scaled_case);
    test_case("kernels: softmax equals libm's exp in f64, SIMD equals scalar", softmax_case);
    test_case("kernels: swiglu equals libm's exp in f64, SIMD equals scalar", swiglu_case);
    test_case("kernels: sigmoid and silu equal libm's exp in f64, SIMD equals scalar", sigmoid_case);
    test_case("kernels: rows of a state equal f64, SIMD equals scalar", advance_case);
    test_case("kernels: geglu equals libm's tanh in f64, SIMD equals scalar", geglu_case);
    test_case("kernels: gelu has the bits of geglu with 1, softcap and exp equal libm's tanh and exp in f64",
              gelu_case);
    test_case("kernels: SIMD multiplies each type whose rows are packed", packed_types_case);
    test_case("kernels: activations of 16 and 8 bits survive zeros, denormals, NaN and infinity", quantize_case);
    static const uint32_t halves[] = { QUANT_F16, QUANT_BF16 };
    test_row("kernels: all 65536 f16 weights give exact products", halves_case, &halves[0]);
    test_case("kernels: minima of Q4_K multiply sums of x, exact to half a 16-bit step", minima_case);
    static const uint32_t large[] = { QUANT_Q4_0, QUANT_Q4_1, QUANT_Q2_K, QUANT_Q4_K };
    test_row("kernels: all kernels agree on Q4_0 times x of every size", large_case, &large[0]);
    test_row("kernels: all kernels agree on Q4_1 times x of every size", large_case, &large[1]);
    test_row("kernels: all kernels agree on Q2_K times x of every size", large_case, &large[2]);
    test_row("kernels: all kernels agree on Q4_K times x of every size", large_case, &large[3]);
    test_case("kernels: this build contains its kernel tables", tables_case);
    if (have_relaxed()) {
        test_case("kernels: the table that is fastest in most measurements is chosen, never a wrong one",
                  choose_case);
    }
    test_case("kernels: measuring ends", settled_case);
    test_case("kernels: F16 times x of every size, SIMD equals scalar", f16_extremes_case);
    test_row("kernels: all 65536 bf16 weights give exact products", halves_case, &halves[1]);
}

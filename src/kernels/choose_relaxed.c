/* Which kernels are the fastest here, and does it pay to round activations to 8 bits?  Measured, for a relaxed dot is
 * one instruction on some machines and three on others.  Engines have had wrong ones too (the baseline compiler of V8
 * in 2023), so those that are timed must give the very bits of SIMD128's, or none runs. */
#include "kernels/kernels.h"
#include "kernels/simd128.h"

#include <stdlib.h>

#if defined(HAVE_RELAXED)

/* Each call times every way with one token and with 16, from one tick of the clock (which browsers coarsen, most to
 * 0.1 ms or less) to the first that is PART_SECONDS later. */
#define PART_SECONDS 0.5e-3
/* A clock that does not tick in so many looks, some 5 ms, is too coarse: browsers that hide who they are for have one
 * of 16 or 100 ms. */
enum { MANY_TOKENS = 16, MAX_WEIGHTS = 1 << 18, MAX_LOOKS = 100000 };
#define FAST8_FASTER_BY 1.5
/* More than the measurement is off by. */
#define RELAXED_FASTER_BY 1.05
#define NEWS_FASTER_BY 1.05   /* than any call before */

enum { SIMD128_16, RELAXED_16, RELAXED_8 };
static const struct { enum kernels_isa isa; plumb_precision precision; } kinds[KERNELS_WAYS] = {
    [SIMD128_16] = { KERNELS_SIMD128, PLUMB_PRECISION_EXACT16 },
    [RELAXED_16] = { KERNELS_RELAXED, PLUMB_PRECISION_EXACT16 },
    [RELAXED_8] = { KERNELS_RELAXED, PLUMB_PRECISION_FAST8 },
};

/* One of the ways to compute. */
struct way {
    struct kernels k;
    struct activations a;
    struct panel panel;
    const struct matrix *w;
};

static bool way_create(struct way *way, enum kernels_isa isa, plumb_precision precision, const struct matrix *w,
                       const float *x) {
    uint64_t bytes = 0;
    kernels_init(&way->k, isa, precision);
    way->w = w;
    if (activations_create(&way->a, w->n_in, MANY_TOKENS, &way->k, &bytes) != PLUMB_OK) return false;
    way->a.max_code = kernels_max_code(precision, w->type);
    way->a.n = w->n_in;
    way->a.x = x;
    return panel_create(&way->panel, w->n_in, &bytes) == PLUMB_OK;
}

static void way_free(struct way *way) {
    activations_free(&way->a);
    panel_free(&way->panel);
}

static void multiply(struct way *way, float *y, uint32_t n_token) {
    way->a.n_token = n_token;
    matmul(&way->k, NULL, way->w, &y, 1, &way->a, &way->panel);
}

/* Products in a second; 0 where the clock is too coarse. */
static double measure(struct way *way, float *y, uint32_t n_token) {
    double start = clock_seconds(), end = start, n = 0;
    way->a.quantized = false;
    for (uint32_t looks = 0; start == end; looks++, start = clock_seconds()) {
        if (looks == MAX_LOOKS) return 0;
    }
    while (end < start + PART_SECONDS) {
        for (uint32_t i = 0; i < 4; i += n_token, n++) multiply(way, y, n_token);
        end = clock_seconds();
    }
    return n / (end - start);
}

/* Whether a relaxed way gives, with one token and with many, what SIMD128 gives in its precision. */
static bool is_right(struct way *way, const float *x, float *y, float *other) {
    struct way simd128 = { 0 };
    bool ok = way_create(&simd128, KERNELS_SIMD128, way->k.precision, way->w, x), right = true;
    for (uint32_t n_token = 1; ok && n_token <= MANY_TOKENS; n_token += MANY_TOKENS - 1) {
        way->a.quantized = simd128.a.quantized = false;
        multiply(way, y, n_token);
        multiply(&simd128, other, n_token);
        right &= memcmp(y, other, (size_t)way->w->n_out * n_token * sizeof *y) == 0;
    }
    way_free(&simd128);
    return right;
}

/* By the geometric mean of one token and many; never if they were not measured. */
static bool is_faster(const struct kernel_speeds *s, int way, int than, double factor) {
    return s->of[way][0] * s->of[way][1] > s->of[than][0] * s->of[than][1] * factor * factor;
}

static int best_exact(const struct kernel_speeds *s) {
    return is_faster(s, RELAXED_16, SIMD128_16, RELAXED_FASTER_BY) ? RELAXED_16 : SIMD128_16;
}

/* All ways, to *s; the products of w and x go to y and other. */
static void measure_ways(struct kernel_speeds *s, const struct matrix *w, const float *x, float *y, float *other) {
    struct way ways[KERNELS_WAYS] = { 0 };
    struct kernel_speeds now = { 0 };
    bool ok = true, news = false, coarse = false;
    for (int i = 0; i < KERNELS_WAYS; i++) ok = ok && way_create(&ways[i], kinds[i].isa, kinds[i].precision, w, x);
    for (int i = 0; ok && i < KERNELS_WAYS; i++) {
        for (int many = 0; many < 2 && !coarse; many++) {
            double speed = now.of[i][many] = measure(&ways[i], y, many ? MANY_TOKENS : 1);
            coarse = speed == 0;
            news |= speed > NEWS_FASTER_BY * s->of[i][many];
            if (speed > s->of[i][many]) s->of[i][many] = speed;
        }
        s->wrong |= kinds[i].isa == KERNELS_RELAXED && !is_right(&ways[i], x, y, other);
    }
    bool fast8 = ok && is_faster(&now, RELAXED_8, best_exact(&now), FAST8_FASTER_BY);
    s->n_call += ok;
    s->n_fast8 += fast8;
    /* Not by two calls alone, for an engine may not have compiled better yet; and FAST8 is for most of all calls. */
    s->settled = s->wrong || coarse || (s->n_call > 2 && ok && !news && s->n_fast8 == 0);
    for (int i = 0; i < KERNELS_WAYS; i++) way_free(&ways[i]);
}

void kernels_measure(struct kernel_speeds *s, uint32_t type, uint64_t n_in, uint64_t n_out) {
    if (s->settled || s->n_call == KERNELS_CALLS) return;
    struct kernels relaxed;
    kernels_init(&relaxed, KERNELS_RELAXED, PLUMB_PRECISION_EXACT16);
    if (!relaxed.bytes[1].dot[type] || n_in > MAX_WEIGHTS / TILE_ROWS || n_out < TILE_ROWS) return;
    struct matrix w = { .type = type, .n_in = (uint32_t)n_in, .n_out = (uint32_t)(MAX_WEIGHTS / n_in) };
    if (w.n_out > n_out) w.n_out = (uint32_t)n_out;
    w.n_packed = w.n_out -= w.n_out % TILE_ROWS;
    w.row_bytes = w.n_in / quant_traits(type)->block_size * quant_traits(type)->block_bytes;
    size_t n_byte = w.n_out * w.row_bytes, n_x = (size_t)w.n_in * MANY_TOKENS, n_y = (size_t)w.n_out * MANY_TOKENS;
    uint8_t *rows = alloc_array(n_byte, 1);
    float *x = alloc_array(n_x, sizeof *x), *y = alloc_array(n_y, sizeof *y), *other = alloc_array(n_y, sizeof *other);
    w.data = rows;
    if (rows && x && y && other) {
        /* What is read as an f16 is normal, small, and of either sign; so codes have their highest bit or not. */
        for (size_t i = 0; i < n_byte; i++) rows[i] = (uint8_t)(0x20 | (i * 0x9e3779b1u >> 24 & 0x9f));
        for (size_t i = 0; i < n_x; i++) x[i] = (float)(i * 37 % 101) - 50.0f;
        measure_ways(s, &w, x, y, other);
    }
    free(rows);
    free(x);
    free(y);
    free(other);
}

void kernels_choose(struct kernels *k, plumb_precision precision, const struct kernel_speeds *s) {
    int best = best_exact(s);
    /* By most calls, too: with another precision the text is another, and beside other work a call may be far off. */
    bool fast8 = precision == PLUMB_PRECISION_AUTO && !s->wrong && s->n_fast8 > s->n_call / 2
              && is_faster(s, RELAXED_8, best, FAST8_FASTER_BY);
    if (fast8 || precision == PLUMB_PRECISION_FAST8) best = RELAXED_8;
    kernels_init(k, s->wrong ? KERNELS_SIMD128 : kinds[best].isa, kinds[best].precision);
}

#else
void kernels_measure(struct kernel_speeds *s, uint32_t type, uint64_t n_in, uint64_t n_out) {
    (void)s, (void)type, (void)n_in, (void)n_out;
}

void kernels_choose(struct kernels *k, plumb_precision precision, const struct kernel_speeds *s) {
    kernels_init(k, KERNELS_SIMD128, precision == PLUMB_PRECISION_AUTO ? PLUMB_PRECISION_EXACT16 : precision);
    (void)s;
}
#endif

/* Which kernels are the fastest here, and does it pay to round activations to 8 bits?  Measured, for a relaxed dot is
 * one instruction on some machines and three on others. */
#include "kernels/kernels.h"

#include <stdlib.h>

#if defined(__wasm_relaxed_simd__)

/* Each round times every way with one token and with 16, from one tick of the clock (which browsers coarsen, most to
 * 0.1 ms or less) to the first that is PART_SECONDS later. */
#define PART_SECONDS 0.5e-3
enum { ROUNDS = 2, MANY_TOKENS = 16, MAX_WEIGHTS = 1 << 19, MAX_LOOKS = 1000000 };
#define FAST8_FASTER_BY 1.5
/* More than the measurement is off by. */
#define RELAXED_FASTER_BY 1.05

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
};

/* Products in a second; 0 where the clock stands still. */
static double measure(struct way *way, const struct matrix *w, float *y, uint32_t n_token) {
    double start = clock_seconds(), end = start, n = 0;
    way->a.n_token = n_token;
    for (uint32_t looks = 0; start == end; looks++, start = clock_seconds()) {
        if (looks == MAX_LOOKS) return 0;
    }
    while (end < start + PART_SECONDS) {
        for (uint32_t i = 0; i < 4; i += n_token, n++) matmul(&way->k, NULL, w, &y, 1, &way->a, &way->panel);
        end = clock_seconds();
    }
    return n / (end - start);
}

void kernels_measure(struct kernel_speeds *s, uint32_t type, uint64_t n_in, uint64_t n_out) {
    if (!kernels_have_relaxed(type) || n_in > MAX_WEIGHTS / TILE_ROWS || n_out < TILE_ROWS) return;
    struct matrix w = { .type = type, .n_in = (uint32_t)n_in, .n_out = (uint32_t)(MAX_WEIGHTS / n_in) };
    if (w.n_out > n_out) w.n_out = (uint32_t)n_out;
    w.n_packed = w.n_out -= w.n_out % TILE_ROWS;
    w.row_bytes = w.n_in / quant_traits(type)->block_size * quant_traits(type)->block_bytes;
    struct way ways[KERNELS_WAYS] = { 0 };
    uint64_t bytes = 0;
    uint8_t *rows = calloc(w.n_out, w.row_bytes);
    float *x = alloc_array((uint64_t)w.n_in * MANY_TOKENS, sizeof *x);
    float *y = alloc_array((uint64_t)w.n_out * MANY_TOKENS, sizeof *y);
    bool ok = rows && x && y;
    w.data = rows;
    for (size_t i = 0; ok && i < (size_t)w.n_in * MANY_TOKENS; i++) x[i] = (float)(i * 37 % 101);
    for (int i = 0; ok && i < KERNELS_WAYS; i++) {
        struct way *way = &ways[i];
        kernels_init(&way->k, kinds[i].isa, kinds[i].precision);
        ok = activations_create(&way->a, w.n_in, MANY_TOKENS, &way->k, &bytes) == PLUMB_OK
          && panel_create(&way->panel, w.n_in, &bytes) == PLUMB_OK;
        way->a.n = w.n_in;
        way->a.n_token = MANY_TOKENS;
        way->a.x = x;
        if (ok) matmul(&way->k, NULL, &w, &y, 1, &way->a, &way->panel);   /* prepares the activations */
    }
    for (int i = 0; ok && i < ROUNDS * 2 * KERNELS_WAYS; i++) {
        int way = i / 2 % KERNELS_WAYS;
        double speed = measure(&ways[way], &w, y, i % 2 ? MANY_TOKENS : 1), *best = &s->of[way][i % 2];
        if (speed > *best) *best = speed;
    }
    for (int i = 0; i < KERNELS_WAYS; i++) {
        activations_free(&ways[i].a);
        panel_free(&ways[i].panel);
    }
    free(rows);
    free(x);
    free(y);
}

/* By the geometric mean of one token and many; never if they were not measured. */
static bool is_faster(const struct kernel_speeds *s, int way, int than, double factor) {
    return s->of[way][0] * s->of[way][1] > s->of[than][0] * s->of[than][1] * factor * factor;
}

void kernels_choose(struct kernels *k, plumb_precision precision, const struct kernel_speeds *s) {
    int best = is_faster(s, RELAXED_16, SIMD128_16, RELAXED_FASTER_BY) ? RELAXED_16 : SIMD128_16;
    bool fast8 = precision == PLUMB_PRECISION_AUTO && is_faster(s, RELAXED_8, best, FAST8_FASTER_BY);
    if (fast8 || precision == PLUMB_PRECISION_FAST8) best = RELAXED_8;
    kernels_init(k, kinds[best].isa, kinds[best].precision);
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

/* Which kernels are the fastest here, and does it pay to round activations to 8 bits?  Measured, for a relaxed dot is one
 * instruction on some machines and three on others. */
#include "kernels/kernels.h"

#include <stdlib.h>

#if defined(__wasm_relaxed_simd__)

/* Each round times every way with one token and with 16, from one tick of the clock (which browsers coarsen, to 1 ms at
 * worst) to the first that is PART_SECONDS later.  The best rounds count: an engine may run the first in slow code
 * while it compiles better. */
#define PART_SECONDS 1.0e-3
enum { ROUNDS_MIN = 4, ROUNDS_MAX = 20, ROUNDS_WITHOUT_GAIN = 2, MANY_TOKENS = 16, MAX_ROWS = 512 };
#define FAST8_FASTER_BY 1.5
/* More than the measurement is off by. */
#define RELAXED_FASTER_BY 1.05

/* One of the ways to compute. */
struct way {
    struct kernels k;
    struct activations a;
    struct panel panel;
    double best[2];   /* products in a second, of one token and of many */
};
enum { SIMD128_16, RELAXED_16, RELAXED_8, N_WAY };
static const struct { enum kernels_isa isa; plumb_precision precision; } kinds[N_WAY] = {
    [SIMD128_16] = { KERNELS_SIMD128, PLUMB_PRECISION_EXACT16 },
    [RELAXED_16] = { KERNELS_RELAXED, PLUMB_PRECISION_EXACT16 },
    [RELAXED_8] = { KERNELS_RELAXED, PLUMB_PRECISION_FAST8 },
};

static double measure(struct way *way, const struct matrix *w, float *y, uint32_t n_token) {
    double start = clock_seconds(), end = start, n = 0;
    way->a.n_token = n_token;
    while (start == end) start = clock_seconds();
    while (end < start + PART_SECONDS) {
        for (int i = 0; i < 4; i++, n++) matmul(&way->k, NULL, w, &y, 1, &way->a, &way->panel);
        end = clock_seconds();
    }
    return n / (end - start);
}

/* Fills best of the first n_way ways; false when out of memory. */
static bool race(struct way *ways, int n_way, const struct matrix *w) {
    uint64_t bytes = 0;
    float *x = alloc_array((uint64_t)w->n_in * MANY_TOKENS, sizeof *x);
    float *y = alloc_array((uint64_t)w->n_out * MANY_TOKENS, sizeof *y);
    bool ok = x && y;
    for (size_t i = 0; ok && i < (size_t)w->n_in * MANY_TOKENS; i++) x[i] = (float)(i * 37 % 101);
    for (int i = 0; ok && i < n_way; i++) {
        struct way *way = &ways[i];
        ok = activations_create(&way->a, w->n_in, MANY_TOKENS, &way->k, &bytes) == PLUMB_OK
          && panel_create(&way->panel, w->n_in, &bytes) == PLUMB_OK;
        way->a.n = w->n_in;
        way->a.n_token = MANY_TOKENS;
        way->a.x = x;
        if (ok) matmul(&way->k, NULL, w, &y, 1, &way->a, &way->panel);   /* prepares the activations */
    }
    for (int round = 0, last_gain = 0; ok && round < ROUNDS_MAX; round++) {
        for (int i = 0; i < 2 * n_way; i++) {
            double speed = measure(&ways[i / 2], w, y, i % 2 ? MANY_TOKENS : 1), *best = &ways[i / 2].best[i % 2];
            if (speed > *best * 1.05) last_gain = round;
            if (speed > *best) *best = speed;
        }
        if (round + 1 >= ROUNDS_MIN && round - last_gain >= ROUNDS_WITHOUT_GAIN) break;
    }
    for (int i = 0; i < n_way; i++) {
        activations_free(&ways[i].a);
        panel_free(&ways[i].panel);
    }
    free(x);
    free(y);
    return ok;
}

/* By the geometric mean of one token and many. */
static bool is_faster(const struct way *way, const struct way *than, double factor) {
    return way->best[0] * way->best[1] >= than->best[0] * than->best[1] * factor * factor;
}

void kernels_choose(struct kernels *k, plumb_precision precision, const struct matrix *whole) {
    struct way ways[N_WAY] = { 0 };
    struct matrix w = *whole;
    if (w.n_packed > MAX_ROWS) w.n_packed = MAX_ROWS;
    w.n_out = w.n_packed;
    for (int i = 0; i < N_WAY; i++) kernels_init(&ways[i].k, kinds[i].isa, kinds[i].precision);
    int best = precision == PLUMB_PRECISION_FAST8 ? RELAXED_8 : SIMD128_16;
    int n_way = precision == PLUMB_PRECISION_AUTO ? N_WAY : RELAXED_16 + 1;
    if (precision != PLUMB_PRECISION_FAST8 && w.n_packed > 0 && kernels_have_relaxed(w.type)
        && race(ways, n_way, &w)) {
        if (is_faster(&ways[RELAXED_16], &ways[SIMD128_16], RELAXED_FASTER_BY)) best = RELAXED_16;
        if (n_way == N_WAY && is_faster(&ways[RELAXED_8], &ways[best], FAST8_FASTER_BY)) best = RELAXED_8;
    }
    *k = ways[best].k;
}

#else
void kernels_choose(struct kernels *k, plumb_precision precision, const struct matrix *w) {
    kernels_init(k, KERNELS_SIMD128, precision == PLUMB_PRECISION_AUTO ? PLUMB_PRECISION_EXACT16 : precision);
    (void)w;
}
#endif

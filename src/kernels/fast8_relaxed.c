/* Does it pay to round activations to 8 bits?  Measured where there are kernels for it. */
#include "kernels/kernels.h"

#include <stdlib.h>

#if defined(__wasm_relaxed_simd__)

/* Each round times both ways with one token and with 16, from one tick of the clock (which browsers coarsen, to 1 ms at
 * worst) to the first that is PART_SECONDS later.  The best rounds count: an engine may run the first in slow code
 * while it compiles better. */
#define PART_SECONDS 1.5e-3
enum { ROUNDS_MIN = 4, ROUNDS_MAX = 20, ROUNDS_WITHOUT_GAIN = 2, MANY_TOKENS = 16, MAX_ROWS = 512 };
#define FASTER_BY 1.5

/* One of the two ways. */
struct way {
    struct kernels k;
    struct activations a;
    struct panel panel;
    double best[2];   /* products in a second, of one token and of many */
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

bool kernels_fast8_pays(const struct matrix *whole) {
    static const plumb_precision precisions[] = { PLUMB_PRECISION_EXACT16, PLUMB_PRECISION_FAST8 };
    struct matrix w = *whole;
    if (w.n_packed > MAX_ROWS) w.n_packed = MAX_ROWS;
    w.n_out = w.n_packed;
    struct way ways[2] = { 0 };
    uint64_t bytes = 0;
    for (int i = 0; i < 2; i++) kernels_init(&ways[i].k, false, precisions[i]);
    if (w.n_packed == 0 || ways[0].k.dot[w.type] == ways[1].k.dot[w.type]) return false;
    float *x = alloc_array((uint64_t)w.n_in * MANY_TOKENS, sizeof *x);
    float *y = alloc_array(MAX_ROWS * MANY_TOKENS, sizeof *y);
    bool ok = x && y;
    for (size_t i = 0; ok && i < (size_t)w.n_in * MANY_TOKENS; i++) x[i] = (float)(i * 37 % 101);
    for (int i = 0; ok && i < 2; i++) {
        struct way *way = &ways[i];
        ok = activations_create(&way->a, w.n_in, MANY_TOKENS, precisions[i], &bytes) == PLUMB_OK
          && panel_create(&way->panel, w.n_in, &bytes) == PLUMB_OK;
        way->a.n = w.n_in;
        way->a.n_token = MANY_TOKENS;
        way->a.x = x;
        if (ok) matmul(&way->k, NULL, &w, &y, 1, &way->a, &way->panel);   /* prepares the activations */
    }
    for (int round = 0, last_gain = 0; ok && round < ROUNDS_MAX; round++) {
        for (int i = 0; i < 4; i++) {
            double speed = measure(&ways[i / 2], &w, y, i % 2 ? MANY_TOKENS : 1), *best = &ways[i / 2].best[i % 2];
            if (speed > *best * 1.05) last_gain = round;
            if (speed > *best) *best = speed;
        }
        if (round + 1 >= ROUNDS_MIN && round - last_gain >= ROUNDS_WITHOUT_GAIN) break;
    }
    for (int i = 0; i < 2; i++) {
        activations_free(&ways[i].a);
        panel_free(&ways[i].panel);
    }
    free(x);
    free(y);
    /* The geometric mean of both gains. */
    const double *exact = ways[0].best, *fast = ways[1].best;
    return ok && fast[0] * fast[1] >= exact[0] * exact[1] * FASTER_BY * FASTER_BY;
}

#else
bool kernels_fast8_pays(const struct matrix *w) {
    (void)w;
    return false;
}
#endif

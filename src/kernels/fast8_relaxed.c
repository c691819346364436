/* Does it pay to round activations to 8 bits?  Measured where there are kernels for it. */
#include "kernels/kernels.h"

#include <stdlib.h>

#if defined(__wasm_relaxed_simd__)

/* Each round times both, from one tick of the clock (which browsers coarsen, to 1 ms at worst) to the first that is
 * PART_SECONDS later.  The best rounds count: an engine may run the first in slow code while it compiles better. */
#define PART_SECONDS 2e-3
enum { ROUNDS_MIN = 4, ROUNDS_MAX = 25, ROUNDS_WITHOUT_GAIN = 3 };
#define FASTER_BY 1.5

/* Tiles of w times the one token of a in a second. */
static double measure(kernel_dot *dot, const struct matrix *w, const struct activations *a) {
    double start = clock_seconds(), end = start, n = 0;
    float y[TILE_ROWS];
    while (start == end) start = clock_seconds();
    for (uint32_t row = 0; end < start + PART_SECONDS; row = row < w->n_packed ? row : 0) {
        /* Some at once, as looking at the clock takes time too. */
        for (uint32_t i = 0; i < 16 && row < w->n_packed; i++, row += TILE_ROWS, n++) {
            dot(y, w->data + row * w->row_bytes, a, 0);
        }
        end = clock_seconds();
    }
    return n / (end - start);
}

bool kernels_fast8_pays(const struct matrix *w) {
    static const plumb_precision precisions[] = { PLUMB_PRECISION_EXACT16, PLUMB_PRECISION_FAST8 };
    struct kernels k[2];
    struct activations a[2] = { 0 };
    double best[2] = { 0, 0 };
    uint64_t bytes = 0;
    for (int i = 0; i < 2; i++) kernels_init(&k[i], false, precisions[i]);
    if (w->n_packed == 0 || k[0].dot[w->type] == k[1].dot[w->type]) return false;
    float *x = alloc_array(w->n_in, sizeof *x);
    bool ok = x;
    for (uint32_t i = 0; ok && i < w->n_in; i++) x[i] = (float)(i * 37 % 101);
    for (int i = 0; ok && i < 2; i++) {
        ok = activations_create(&a[i], w->n_in, 1, precisions[i], &bytes) == PLUMB_OK;
        a[i].n = w->n_in;
        a[i].n_token = 1;
        a[i].x = x;
        if (ok) k[i].quantize_i16(&a[i], 0);
    }
    for (int round = 0, last_gain = 0; ok && round < ROUNDS_MAX; round++) {
        for (int i = 0; i < 2; i++) {
            double speed = measure(k[i].dot[w->type], w, &a[i]);
            if (speed > best[i] * 1.05) last_gain = round;
            if (speed > best[i]) best[i] = speed;
        }
        if (round + 1 >= ROUNDS_MIN && round - last_gain >= ROUNDS_WITHOUT_GAIN) break;
    }
    for (int i = 0; i < 2; i++) activations_free(&a[i]);
    free(x);
    return best[1] >= best[0] * FASTER_BY;
}

#else
bool kernels_fast8_pays(const struct matrix *w) {
    (void)w;
    return false;
}
#endif

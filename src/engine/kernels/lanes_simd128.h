/* Helpers that all vector kernels share: ALWAYS_INLINE, the factor of widened f16, and functions for vectors of four
 * floats. */
#ifndef PLUMB_KERNELS_LANES_SIMD128_H
#define PLUMB_KERNELS_LANES_SIMD128_H

#include "kernels/simd128.h"

#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Moving the bits of an f16 to their places in an f32 gives its value times 2^-112.  This factor makes up for it. */
#define F16_FACTOR 0x1p112f

/* Two roundings, as everywhere: a fused operation would give other bits than the portable kernels. */
ALWAYS_INLINE v128_t mul_add(v128_t acc, v128_t a, v128_t b) { return wasm_f32x4_add(acc, wasm_f32x4_mul(a, b)); }

/* A constant that stays in a register for a whole loop; see IN_REGISTER. */
ALWAYS_INLINE v128_t register_f32x4(float x) {
    v128_t v = wasm_f32x4_splat(x);
    IN_REGISTER(v);
    return v;
}

ALWAYS_INLINE float sum_lanes(v128_t v) {
    return (wasm_f32x4_extract_lane(v, 0) + wasm_f32x4_extract_lane(v, 1))
         + (wasm_f32x4_extract_lane(v, 2) + wasm_f32x4_extract_lane(v, 3));
}

/* Loads n < 4 floats and pads them with zeros. */
ALWAYS_INLINE v128_t load_tail(const float *x, size_t n) {
    float lanes[4] = { 0 };
    memcpy(lanes, x, n * sizeof *x);
    return wasm_v128_load(lanes);
}

#endif

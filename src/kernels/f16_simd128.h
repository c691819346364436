/* Half-precision floats to singles, four at a time: shared by the SIMD128 row conversions and unpackers. */
#ifndef PLUMB_KERNELS_F16_SIMD128_H
#define PLUMB_KERNELS_F16_SIMD128_H

#include "kernels/simd128.h"

/* Four halves in the low 16 bits of each lane to f32, exact (a signalling NaN comes out quiet); the high 16 bits are
 * ignored.  f16 scales are often subnormal, and no lane may become a subnormal f32 on the way, which x86 computes with
 * slowly: they become 2^-14 + s, then lose the 2^-14. */
static inline v128_t f32_from_f16_x4(v128_t h) {
    const v128_t exponent_mask = wasm_i32x4_splat(0x7c00), rebias = wasm_i32x4_splat(112 << 23);
    v128_t exponent = wasm_v128_and(h, exponent_mask);
    v128_t is_subnormal = wasm_i32x4_eq(exponent, wasm_i32x4_splat(0));
    v128_t is_special = wasm_i32x4_eq(exponent, exponent_mask);
    v128_t bits = wasm_v128_and(wasm_i32x4_shl(h, 13), wasm_i32x4_splat(0x7fff << 13));
    bits = wasm_i32x4_add(bits, wasm_i32x4_add(rebias, wasm_v128_and(is_special, rebias)));
    bits = wasm_i32x4_add(bits, wasm_v128_and(is_subnormal, wasm_i32x4_splat(1 << 23)));
    v128_t magnitude = wasm_f32x4_sub(bits, wasm_v128_and(is_subnormal, wasm_f32x4_splat(0x1p-14f)));
    return wasm_v128_or(magnitude, wasm_v128_and(wasm_i32x4_shl(h, 16), wasm_i32x4_splat(INT32_MIN)));
}

#endif

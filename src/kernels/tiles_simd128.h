/* What the SIMD128 kernels on packed weights (quant/pack.h) share: how the codes and scales of each type are taken out
 * of a tile, four rows at a time.
 *
 * CODES(low, high, k, j) gives the codes of weights 32k + 4j .. 32k + 4j + 3 of 4 rows: a row in each lane of 32
 * bits, a code in each byte, too large by the type's bias.  low and high are where the words with low and with high
 * bits begin.
 * SCALES(scales, mins, tile) gives what the groups of a tile of superblocks are scaled with, as (n_group, 8) f32.
 * k and j are constants where it matters: the formulas then come down to one shift and one mask.
 */
#ifndef PLUMB_KERNELS_TILES_SIMD128_H
#define PLUMB_KERNELS_TILES_SIMD128_H

#include "kernels/f16_simd128.h"
#include "kernels/kernels.h"
#include "kernels/lanes_simd128.h"
#include "quant/blocks.h"

typedef v128_t tile_codes(const uint8_t *low, const uint8_t *high, uint32_t k, uint32_t j);
typedef void tile_scales(float *scales, float *mins, const uint8_t *tile);

/* The field of `mask` that `shift` bits lie below, in each byte; none reaches into the next. */
ALWAYS_INLINE v128_t bits(v128_t v, uint32_t shift, int8_t mask) {
    return wasm_v128_and(wasm_u16x8_shr(v, shift), wasm_i8x16_splat(mask));
}
/* Word j of 4 rows. */
ALWAYS_INLINE v128_t word(const uint8_t *words, size_t j) { return wasm_v128_load(words + 32 * j); }

/* f16 as f32 times 2^-112: exact, and enough where 2^112 can go into another factor.  None is infinite or NaN
 * (quant_pack); subnormal ones stay so, which costs x86 time but is rare where each 32 weights have a scale.
 * Of four i32 with the value of i16, and of the low and the high halves of four lanes. */
ALWAYS_INLINE v128_t f16_small(v128_t h) {
    return wasm_v128_and(wasm_i32x4_shl(h, 13), wasm_i32x4_splat((int32_t)0x8fffe000));
}
ALWAYS_INLINE v128_t f16_small_high(v128_t h) {
    return wasm_v128_and(wasm_i32x4_shr(h, 3), wasm_i32x4_splat((int32_t)0x8fffe000));
}
ALWAYS_INLINE v128_t f16_small_low(v128_t h) { return f16_small_high(wasm_i32x4_shl(h, 16)); }
#define F16_SMALL 0x1p112f

/* y + dots * (scale * d), per lane. */
ALWAYS_INLINE v128_t add_dots(v128_t y, v128_t dots, v128_t scale, v128_t d) {
    return wasm_f32x4_add(y, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(dots), wasm_f32x4_mul(scale, d)));
}
ALWAYS_INLINE v128_t subtract(v128_t y, v128_t min, v128_t sum) { return wasm_f32x4_sub(y, wasm_f32x4_mul(min, sum)); }

/* ---- codes of blocks of 32: k = 0 -------------------------------------------------------------------------------- */

/* q4_0, q4_1: word j has weights 4j .. 4j + 3 in its low nibbles, 16 more in its high ones. */
ALWAYS_INLINE v128_t q4_codes(const uint8_t *low, const uint8_t *high, uint32_t k, uint32_t j) {
    (void)high, (void)k;
    return bits(word(low, j % 4), j / 4 * 4, 15);
}

/* q5_0, q5_1: bit j of the bytes of the one word of high bits. */
ALWAYS_INLINE v128_t q5_codes(const uint8_t *low, const uint8_t *high, uint32_t k, uint32_t j) {
    return wasm_v128_or(q4_codes(low, high, k, j), wasm_i16x8_shl(bits(word(high, 0), j, 1), 4));
}

/* q8_0, too large by 128 as they become unsigned. */
ALWAYS_INLINE v128_t q8_codes(const uint8_t *low, const uint8_t *high, uint32_t k, uint32_t j) {
    (void)high, (void)k;
    return wasm_v128_xor(word(low, j), wasm_i8x16_splat(INT8_MIN));
}

/* What the codes of iq4_nl and iq4_xs stand for, plus 128. */
ALWAYS_INLINE v128_t iq4_codes(const uint8_t *low, const uint8_t *high, uint32_t k, uint32_t j) {
    v128_t values = wasm_v128_xor(wasm_v128_load(quant_iq4_values), wasm_i8x16_splat(INT8_MIN));
    return wasm_i8x16_swizzle(values, q4_codes(low, high, k, j));
}

/* ---- codes of superblocks ---------------------------------------------------------------------------------------- */

/* k = 0, 1: low and high nibbles of 8 words. */
ALWAYS_INLINE v128_t q4_K_codes(const uint8_t *low, const uint8_t *high, uint32_t k, uint32_t j) {
    (void)high;
    return bits(word(low, j), k * 4, 15);
}

/* k = 0 .. 7: as q4_K, and bit k of 8 words. */
ALWAYS_INLINE v128_t q5_K_codes(const uint8_t *low, const uint8_t *high, uint32_t k, uint32_t j) {
    v128_t four = bits(word(low, k / 2 * 8 + j), k % 2 * 4, 15);
    return wasm_v128_or(four, wasm_i16x8_shl(bits(word(high, j), k, 1), 4));
}

/* k = 0 .. 3: low and high nibbles of 16 words, each two bits of 8 words. */
ALWAYS_INLINE v128_t q6_K_codes(const uint8_t *low, const uint8_t *high, uint32_t k, uint32_t j) {
    v128_t four = bits(word(low, k % 2 * 8 + j), k / 2 * 4, 15);
    return wasm_v128_or(four, wasm_i16x8_shl(bits(word(high, j), k * 2, 3), 4));
}

/* k = 0 .. 3: two bits of 8 words. */
ALWAYS_INLINE v128_t q2_K_codes(const uint8_t *low, const uint8_t *high, uint32_t k, uint32_t j) {
    (void)high;
    return bits(word(low, j), k * 2, 3);
}

/* k = 0 .. 7: as q2_K, and bit k of 8 words. */
ALWAYS_INLINE v128_t q3_K_codes(const uint8_t *low, const uint8_t *high, uint32_t k, uint32_t j) {
    v128_t two = bits(word(low, k / 4 * 8 + j), k % 4 * 2, 3);
    return wasm_v128_or(two, wasm_i16x8_shl(bits(word(high, j), k, 1), 2));
}

/* ---- scales of superblocks --------------------------------------------------------------------------------------- */

/* dst[lane] = d * integer, one product. */
ALWAYS_INLINE void store_product(float *dst, v128_t d, v128_t integer) {
    wasm_v128_store(dst, wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(integer)));
}
/* The same for 4 groups, whose integers are the bytes of the lanes: 0 .. 255, or with a sign. */
ALWAYS_INLINE void store_products(float *dst, v128_t d, v128_t bytes) {
    for (uint32_t i = 0; i < 32; i += 8, dst += 8) {
        store_product(dst, d, wasm_v128_and(wasm_u32x4_shr(bytes, i), wasm_i32x4_splat(255)));
    }
}
ALWAYS_INLINE void store_products_signed(float *dst, v128_t d, v128_t bytes) {
    for (uint32_t i = 0; i < 32; i += 8, dst += 8) {
        store_product(dst, d, wasm_i32x4_shr(wasm_i32x4_shl(bytes, 24 - i), 24));
    }
}

/* q4_K, q5_K.  Words 0 .. 3 are d | dmin and the 12 bytes of quant_q4_K_scale and quant_q4_K_min. */
static inline void q4_K_scales(float *scales, float *mins, const uint8_t *tile) {
    for (const uint8_t *end = tile + 32; tile < end; tile += 16, scales += 4, mins += 4) {
        v128_t dm = word(tile, 0), sc = word(tile, 1), mn = word(tile, 2), both = word(tile, 3);
        v128_t d = f32_from_f16_x4(dm), dmin = f32_from_f16_x4(wasm_u32x4_shr(dm, 16));
        store_products(scales, d, bits(sc, 0, 63));
        store_products(scales + 32, d, wasm_v128_or(bits(both, 0, 15), wasm_i16x8_shl(bits(sc, 6, 3), 4)));
        store_products(mins, dmin, bits(mn, 0, 63));
        store_products(mins + 32, dmin, wasm_v128_or(bits(both, 4, 15), wasm_i16x8_shl(bits(mn, 6, 3), 4)));
    }
}

/* f16 to f32, exactly: the d of rows 4 half .. 4 half + 3, of types whose blocks have an odd half. */
ALWAYS_INLINE v128_t odd_halves(const uint8_t *tile, uint32_t half) {
    return f32_from_f16_x4(wasm_u32x4_load16x4(tile + 8 * half));
}

/* q6_K: the bytes of words 48 .. 51. */
static inline void q6_K_scales(float *scales, float *mins, const uint8_t *tile) {
    (void)mins;
    for (uint32_t half = 0; half < 2; half++, scales += 4) {
        v128_t d = odd_halves(tile, half);
        LOOP_KEPT
        for (uint32_t i = 0; i < 4; i++) {
            store_products_signed(scales + 32 * i, d, word(tile + 16 + 16 * half, 48 + i));
        }
    }
}

/* q2_K: nibbles of the bytes of words 0 .. 3; word 20 is d | dmin. */
static inline void q2_K_scales(float *scales, float *mins, const uint8_t *tile) {
    for (const uint8_t *end = tile + 32; tile < end; tile += 16, scales += 4, mins += 4) {
        v128_t dm = word(tile, 20);
        v128_t d = f32_from_f16_x4(dm), dmin = f32_from_f16_x4(wasm_u32x4_shr(dm, 16));
        LOOP_KEPT
        for (uint32_t i = 0; i < 4; i++) {
            store_products(scales + 32 * i, d, bits(word(tile, i), 0, 15));
            store_products(mins + 32 * i, dmin, bits(word(tile, i), 4, 15));
        }
    }
}

/* q3_K: words 24 .. 26 are the 12 bytes of quant_q3_K_scale. */
static inline void q3_K_scales(float *scales, float *mins, const uint8_t *tile) {
    (void)mins;
    for (uint32_t half = 0; half < 2; half++, scales += 4) {
        v128_t d = odd_halves(tile, half);
        const uint8_t *words = tile + 16 + 16 * half;
        LOOP_KEPT
        for (uint32_t i = 0; i < 4; i++) {
            v128_t high = wasm_i16x8_shl(bits(word(words, 26), i * 2, 3), 4);
            v128_t sc = wasm_v128_or(bits(word(words, 24 + i % 2), i / 2 * 4, 15), high);
            store_products_signed(scales + 32 * i, d, wasm_i8x16_sub(sc, wasm_i8x16_splat(32)));
        }
    }
}

/* iq4_xs: word 0 is d | scales_h, word 1 scales_l. */
static inline void iq4_xs_scales(float *scales, float *mins, const uint8_t *tile) {
    (void)mins;
    const v128_t three = wasm_i32x4_splat(3), fifteen = wasm_i32x4_splat(15);
    for (const uint8_t *end = tile + 32; tile < end; tile += 16, scales += 4) {
        v128_t d = f32_from_f16_x4(word(tile, 0));
        LOOP_KEPT
        for (uint32_t i = 0; i < 8; i++) {
            v128_t low = wasm_v128_and(wasm_u32x4_shr(word(tile, 1), i * 4), fifteen);
            v128_t high = wasm_i32x4_shl(wasm_v128_and(wasm_u32x4_shr(word(tile, 0), 16 + i * 2), three), 4);
            store_product(scales + 8 * i, d, wasm_i32x4_sub(wasm_v128_or(low, high), wasm_i32x4_splat(32)));
        }
    }
}

#endif

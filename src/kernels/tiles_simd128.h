/* What the SIMD128 kernels on packed weights (repack/repack.h) share: how the codes and scales of each type are taken
 * out of a tile, four rows at a time.
 *
 * CODES(words, k, j) gives the codes of weights 32k + 4j .. 32k + 4j + 3 of 4 rows: a row in each lane of 32 bits, a
 * code in each byte, too large by the type's bias.  words is where those with codes begin, and k what changes nothing
 * but shifts and masks.
 * SCALES(scales, min_codes, mins, tile) gives what the groups of a tile of superblocks are scaled with, (n_group, 8)
 * f32, and of types with minima their codes, (n_group / 2, 8, 2) i16 in even-odd order, and what multiplies them,
 * (8) f32.
 * k and j are constants where it matters: the formulas then come down to one shift and one mask.
 */
#ifndef PLUMB_KERNELS_TILES_SIMD128_H
#define PLUMB_KERNELS_TILES_SIMD128_H

#include "kernels/kernels.h"
#include "kernels/lanes_simd128.h"
#include "quant/blocks.h"

typedef v128_t tile_codes(const uint8_t *words, uint32_t k, uint32_t j);
typedef void tile_scales(float *scales, int16_t *min_codes, float *mins, const uint8_t *tile);

/* A mask for 16 bytes.  Where bytes are multiplied it is KEPT; where they become 16 bits wide it is not, as the
 * compiler then makes one of two masks. */
ALWAYS_INLINE v128_t byte_mask(int8_t mask) {
    v128_t m = wasm_i8x16_splat(mask);
#if defined(BYTES_ARE_MULTIPLIED)
    KEPT(m);
#endif
    return m;
}
/* The field of `mask` that `shift` bits lie below, in each byte; none reaches into the next. */
ALWAYS_INLINE v128_t bits(v128_t v, uint32_t shift, int8_t mask) {
    return wasm_v128_and(wasm_u16x8_shr(v, shift), byte_mask(mask));
}
/* Word j of 4 rows. */
ALWAYS_INLINE v128_t word(const uint8_t *words, size_t j) { return wasm_v128_load(words + 32 * j); }

/* f16 as f32 times 2^-112: exact, and enough where 2^112 can go into another factor.  None is infinite or NaN
 * (repack_rows); subnormal ones stay so, which costs x86 time but is rare where each 32 weights have a scale.  Those of
 * superblocks, often subnormal in the file, have another bias in a tile: they become normal f32 times 2^-102.
 * Of four i32 with the value of i16, and of the low and the high halves of four lanes. */
#define SUPERBLOCK_F16_SMALL (F16_SMALL / (1 << REPACK_MORE_BIAS))
ALWAYS_INLINE v128_t f16_bits(v128_t h) {
    v128_t m = wasm_i32x4_splat((int32_t)0x8fffe000);
    KEPT(m);
    return wasm_v128_and(h, m);
}
ALWAYS_INLINE v128_t f16_small(v128_t h) { return f16_bits(wasm_i32x4_shl(h, 13)); }
ALWAYS_INLINE v128_t f16_small_high(v128_t h) { return f16_bits(wasm_i32x4_shr(h, 3)); }
ALWAYS_INLINE v128_t f16_small_low(v128_t h) { return f16_small_high(wasm_i32x4_shl(h, 16)); }

/* y + dots * (scale * d), per lane. */
ALWAYS_INLINE v128_t add_dots(v128_t y, v128_t dots, v128_t scale, v128_t d) {
    return wasm_f32x4_add(y, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(dots), wasm_f32x4_mul(scale, d)));
}
/* total (2) += the minima of a superblock of 8 rows, as SCALES gives them, times n_sum codes of sums, of the step d. */
ALWAYS_INLINE void add_mins(v128_t total[2], const int16_t *min_codes, const float *mins, const int16_t *q,
                            const float *d, size_t n_sum) {
    v128_t dots[2] = { wasm_i32x4_splat(0), wasm_i32x4_splat(0) }, step = wasm_v128_load32_splat(d);
    for (const int16_t *end = q + n_sum; q < end; q += 8, min_codes += 8 * TILE_ROWS) {
        v128_t eight = wasm_v128_load(q);
        const v128_t twos[4] = {
            wasm_i32x4_shuffle(eight, eight, 0, 0, 0, 0), wasm_i32x4_shuffle(eight, eight, 1, 1, 1, 1),
            wasm_i32x4_shuffle(eight, eight, 2, 2, 2, 2), wasm_i32x4_shuffle(eight, eight, 3, 3, 3, 3) };
        LOOP_UNROLLED
        for (size_t i = 0; i < 8; i++) {
            v128_t m = wasm_v128_load(min_codes + 8 * i);
            dots[i % 2] = wasm_i32x4_add(dots[i % 2], wasm_i32x4_dot_i16x8(m, twos[i / 2]));
        }
    }
    total[0] = add_dots(total[0], dots[0], wasm_v128_load(mins), step);
    total[1] = add_dots(total[1], dots[1], wasm_v128_load(mins + 4), step);
}

/* ---- codes of blocks of 32: k = 0 -------------------------------------------------------------------------------- */

/* q4_0, q4_1: word j has weights 4j .. 4j + 3 in its low nibbles, 16 more in its high ones. */
ALWAYS_INLINE v128_t q4_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    (void)k;
    return bits(word(words, j % 4), j / 4 * 4, 15);
}

/* q5_0, q5_1, q5_K: the high five bits of 5 words, then what the low three of these are together: the low two of words
 * 3 and 4 come to bits 3 and 4 of codes 5 and 6, the third to bits 3 and 4 of code 7. */
ALWAYS_INLINE v128_t two_bits_at_3(v128_t v) { return wasm_v128_and(wasm_i16x8_shl(v, 3), byte_mask(3 << 3)); }
ALWAYS_INLINE v128_t third_bit_at(v128_t v, uint32_t j) {   /* j: 3, 4 */
    return wasm_v128_and(wasm_i16x8_shl(v, j - 2), byte_mask((int8_t)(1 << j)));
}
ALWAYS_INLINE v128_t q5_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    (void)k;
    if (j < 5) return bits(word(words, j), 3, 31);
    v128_t three = bits(word(words, j - 5), 0, 7);
    if (j < 7) return wasm_v128_or(three, two_bits_at_3(word(words, j - 2)));
    return wasm_v128_or(three, wasm_v128_or(third_bit_at(word(words, 3), 3), third_bit_at(word(words, 4), 4)));
}

/* q8_0: word j has weights 4j .. 4j + 3 in even-odd order. */
ALWAYS_INLINE v128_t q8_signed_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    (void)k;
    return word(words, j);
}
/* The same plus 128, without a sign. */
ALWAYS_INLINE v128_t q8_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    return wasm_v128_xor(q8_signed_codes(words, k, j), byte_mask(INT8_MIN));
}

/* What the codes of iq4_nl and iq4_xs stand for, plus 128. */
ALWAYS_INLINE v128_t iq4_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    v128_t values = wasm_v128_xor(wasm_v128_load(quant_iq4_values), wasm_i8x16_splat(INT8_MIN));
    return wasm_i8x16_swizzle(values, q4_codes(words, k, j));
}

/* ---- codes of superblocks ---------------------------------------------------------------------------------------- */

/* k = 0, 1: low and high nibbles of 8 words. */
ALWAYS_INLINE v128_t q4_K_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    return bits(word(words, j), k * 4, 15);
}

/* The same with the high nibbles where they are, 16 times as large: bytes without a sign. */
ALWAYS_INLINE v128_t q4_K_unshifted_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    return wasm_v128_and(word(words, j), byte_mask(k ? (int8_t)0xf0 : 15));
}

/* j = 0 .. 3, of a group: the high six bits of 3 words, then what their low two bits are together. */
ALWAYS_INLINE v128_t q6_K_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    (void)k;
    if (j < 3) return bits(word(words, j), 2, 63);
    v128_t c = bits(word(words, 0), 0, 3);
    c = wasm_v128_or(c, wasm_v128_and(wasm_i16x8_shl(word(words, 1), 2), byte_mask(3 << 2)));
    return wasm_v128_or(c, wasm_v128_and(wasm_i16x8_shl(word(words, 2), 4), byte_mask(3 << 4)));
}

/* k = 0 .. 3: two bits of 8 words. */
ALWAYS_INLINE v128_t q2_K_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    return bits(word(words, j), k * 2, 3);
}

/* k = 0 .. 7: as q2_K, of the words behind 8, of which bit k. */
ALWAYS_INLINE v128_t q3_K_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    v128_t two = bits(word(words, 8 + k / 4 * 8 + j), k % 4 * 2, 3);
    return wasm_v128_or(two, wasm_i16x8_shl(bits(word(words, j), k, 1), 2));
}

/* ---- scales of superblocks: not inlined, as one call serves 2048 weights ----------------------------------------- */

tile_scales q4_K_scales, q6_K_scales, q2_K_scales, q3_K_scales, iq4_xs_scales;

#endif

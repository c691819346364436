/* How all vector kernels on packed weights (repack/repack.h) extract the codes and scales of each type from a tile,
 * four rows at a time.
 *
 * CODES(words, k, j), a tile_codes, returns codes of four weights of 4 rows: each 32-bit lane is a row, and each byte a
 * code, too large by the type's bias.  words points to a word of rows 0 .. 3, as follows; for rows 4 .. 7 it points
 * 16 bytes further.  struct superblock in tiles.h explains periods.
 *
 *   blocks of 32    words: the first word of the block.  k = 0, j < 8: weights 4j .. 4j + 3 of the block
 *   groups of 32    words: the first word of a period.  k < period, j < 8: weights 32k + 4j .. 32k + 4j + 3 of it
 *   groups of 16    words: the first word of a period, or for odd groups the word that is 4 * four bytes after it.
 *                   k < period, j < 4: weights 4j .. 4j + 3 of group 2k, or of group 2k + 1, of the period
 *
 * k selects shifts and masks, and for q3_K also words.
 *
 * SCALES(scales, min_codes, mins, tile), a tile_scales, stores the scales of the groups of a superblock's tile,
 * (n_group, 8) f32.  For types with minima it also stores their codes, (n_group / 2, 8, 2) i16 in even-odd order, and
 * the factors of these codes, (8) f32.
 *
 * k and j are constants wherever speed matters, so that the formulas reduce to one shift and one mask.
 */
#ifndef PLUMB_KERNELS_TILES_SIMD128_H
#define PLUMB_KERNELS_TILES_SIMD128_H

#include "kernels/kernels.h"
#include "kernels/lanes_simd128.h"
#include "quant/types.h"

typedef v128_t tile_codes(const uint8_t *words, uint32_t k, uint32_t j);
typedef void tile_scales(float *scales, int16_t *min_codes, float *mins, const uint8_t *tile);
/* Writes the codes of a tile as words in another form, from which CODES then extracts them. */
typedef void tile_expand(uint8_t *to, const uint8_t *words);

/* The largest code that CODES returns for a type.  Those that stand for values are shifted by a bias, and symmetric. */
ALWAYS_INLINE uint32_t largest_code(enum quant_type type) {
    const struct quant_traits *t = &quant_types[type];
    if (t->values == quant_fp4_values) return 2 * 12;
    return (1u << (t->code.low.width + t->code.high.width)) - 1;
}

/* A mask for 16 bytes.  It is IN_REGISTER where bytes are multiplied.  Where they are widened to 16 bits it is not,
 * because the compiler then merges it with the mask that widens. */
ALWAYS_INLINE v128_t byte_mask(int8_t mask) {
    v128_t m = wasm_i8x16_splat(mask);
#if defined(BYTES_ARE_MULTIPLIED)
    IN_REGISTER(m);
#endif
    return m;
}
/* Extracts a field of each byte, which has `shift` bits below it.  mask: its bits after the shift.  Every field ends
 * within its byte, so the mask removes the bits that a shift of 16-bit lanes moves from the upper byte to the lower. */
ALWAYS_INLINE v128_t bits(v128_t v, uint32_t shift, int8_t mask) {
    return wasm_v128_and(wasm_u16x8_shr(v, shift), byte_mask(mask));
}
/* Returns a ^ b << shift, in 32-bit lanes. */
ALWAYS_INLINE v128_t xor_shifted(v128_t a, v128_t b, uint32_t shift) {
    return wasm_v128_xor(a, wasm_i32x4_shl(b, shift));
}
/* Loads word j of 4 rows. */
ALWAYS_INLINE v128_t word(const uint8_t *words, size_t j) { return wasm_v128_load(words + 32 * j); }

/* Convert f16 to f32 times 2^-112, exactly; the factor 2^112 goes into another operand.  No f16 of a tile is infinite
 * or NaN (repack_rows).  A subnormal f16 becomes a subnormal f32, which costs time on x86 but is rare in types with a
 * scale for every 32 weights.  The f16 of superblocks are often subnormal in the file.  In a tile they have a larger
 * exponent bias, so none is subnormal, and these functions return their values times 2^-102, which are normal.
 * SUPERBLOCK_F16_FACTOR makes up for that.
 * f16_small takes four f16 as sign-extended i32, f16_small_low and f16_small_high from the low and the high 16 bits of
 * four lanes. */
#define SUPERBLOCK_F16_FACTOR (F16_FACTOR / (1 << REPACK_EXTRA_BIAS))
ALWAYS_INLINE v128_t f16_bits(v128_t h) {
    v128_t m = wasm_i32x4_splat((int32_t)0x8fffe000);
    IN_REGISTER(m);
    return wasm_v128_and(h, m);
}
ALWAYS_INLINE v128_t f16_small(v128_t h) { return f16_bits(wasm_i32x4_shl(h, 13)); }
ALWAYS_INLINE v128_t f16_small_high(v128_t h) { return f16_bits(wasm_i32x4_shr(h, 3)); }
ALWAYS_INLINE v128_t f16_small_low(v128_t h) { return f16_small_high(wasm_i32x4_shl(h, 16)); }

/* Returns y + dots * (scale * d), lane by lane. */
ALWAYS_INLINE v128_t add_dots(v128_t y, v128_t dots, v128_t scale, v128_t d) {
    return wasm_f32x4_add(y, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(dots), wasm_f32x4_mul(scale, d)));
}
/* total += the minima of a superblock of 8 rows, as SCALES stores them, times the n_sum (8 or 16) codes q of one
 * token's sums, whose step is *d.  total[0] is for rows 0 .. 3, total[1] for rows 4 .. 7. */
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

/* q4_0, q4_1: word j has weights 4j .. 4j + 3 in its low nibbles, and weights 4j + 16 .. 4j + 19 in its high ones. */
ALWAYS_INLINE v128_t q4_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    (void)k;
    return bits(word(words, j % 4), j / 4 * 4, 15);
}

/* q5_0, q5_1, q5_K: for j < 5 the codes are the high five bits of word j.  For j = 5, 6, 7 they are the low five bits
 * of several words, shifted and combined by xor, see repack.h. */
ALWAYS_INLINE v128_t q5_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    (void)k;
    if (j < 5) return bits(word(words, j), 3, 31);
    v128_t c = word(words, j - 5);
    if (j < 7) return bits(xor_shifted(c, word(words, j - 2), 3), 0, 31);
    return bits(xor_shifted(xor_shifted(c, word(words, 3), 1), word(words, 4), 2), 0, 31);
}

/* q8_0: word j has weights 4j .. 4j + 3 in even-odd order.  The only codes that CODES does not return in natural order:
 * struct block says so by even_odd. */
ALWAYS_INLINE v128_t q8_signed_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    (void)k;
    return word(words, j);
}
/* The same codes plus 128, as unsigned bytes. */
ALWAYS_INLINE v128_t q8_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    return wasm_v128_xor(q8_signed_codes(words, k, j), byte_mask(INT8_MIN));
}

/* iq4_nl, iq4_xs: the values that the codes stand for, plus 128. */
ALWAYS_INLINE v128_t iq4_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    v128_t values = wasm_v128_xor(wasm_v128_load(quant_iq4_values), wasm_i8x16_splat(INT8_MIN));
    return wasm_i8x16_swizzle(values, q4_codes(words, k, j));
}

/* mxfp4: the values that the codes stand for, plus 12. */
ALWAYS_INLINE v128_t fp4_values(v128_t codes) {
    return wasm_i8x16_swizzle(wasm_i8x16_sub(wasm_v128_load(quant_fp4_values), wasm_i8x16_splat(-12)), codes);
}
ALWAYS_INLINE v128_t mxfp4_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    return fp4_values(q4_codes(words, k, j));
}

/* ---- codes of superblocks ---------------------------------------------------------------------------------------- */

/* k = 0: the low nibbles of word j.  k = 1: its high nibbles.  8 words have 64 weights of each row. */
ALWAYS_INLINE v128_t q4_K_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    return bits(word(words, j), k * 4, 15);
}

/* The same, except that the high nibbles are not shifted down: unsigned bytes, 16 times too large. */
ALWAYS_INLINE v128_t q4_K_unshifted_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    return wasm_v128_and(word(words, j), byte_mask(k ? (int8_t)0xf0 : 15));
}

/* k = 0, in a group of 16: for j < 3 the codes are the high six bits of each byte of word j.  For j = 3 they are the
 * low six bits of the three words, shifted and combined by xor, see repack.h. */
ALWAYS_INLINE v128_t q6_K_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    (void)k;
    if (j < 3) return bits(word(words, j), 2, 63);
    return bits(xor_shifted(xor_shifted(word(words, 0), word(words, 1), 2), word(words, 2), 4), 0, 63);
}

/* k = 0 .. 3: bits 2k and 2k + 1 of each byte of word j.  8 words have 128 weights of each row. */
ALWAYS_INLINE v128_t q2_K_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    return bits(word(words, j), k * 2, 3);
}

/* k = 0 .. 7: bits 0 and 1 of a code are stored as in q2_K, in words 8 .. 15 for k < 4 and words 16 .. 23 for the
 * others.  Bit 2 is bit k of each byte of words 0 .. 7. */
ALWAYS_INLINE v128_t q3_K_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    v128_t two = bits(word(words, 8 + k / 4 * 8 + j), k % 4 * 2, 3);
    return wasm_v128_or(two, wasm_i16x8_shl(bits(word(words, j), k, 1), 2));
}

/* nvfp4, as mxfp4.  k = 0, in a group of 16: the low nibbles of words 0 and 1 have weights 0 .. 7, and their high ones
 * weights 8 .. 15. */
ALWAYS_INLINE v128_t nvfp4_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    (void)k;
    return fp4_values(bits(word(words, j % 2), j / 2 * 4, 15));
}

/* q2_0, tq2_0, and the expanded words of q1_0 and tq1_0.  k = 0: bits 2i and 2i + 1 of each byte of word j / 4, where i
 * is j % 4.  Two words have 32 weights of each row. */
ALWAYS_INLINE v128_t two_bits_codes(const uint8_t *words, uint32_t k, uint32_t j) {
    (void)k;
    return bits(word(words, j / 4), j % 4 * 2, 3);
}

/* ---- scales of superblocks: not inlined, because one call serves 2048 weights ------------------------------------ */

tile_scales q4_K_scales, q6_K_scales, q2_K_scales, q3_K_scales, iq4_xs_scales, nvfp4_scales;
/* For types with one scale, d, which it stores n_group times. */
void d_scales(float *scales, const uint8_t *tile, uint32_t n_group);

tile_expand q1_0_expand, tq1_0_expand;

#endif

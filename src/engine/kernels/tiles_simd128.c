/* WASM SIMD128 kernels on packed weights: the dot of 8 rows with one token, and panels of 16-bit codes for many tokens,
 * both from the templates of tiles.h and panels.h.  A register holds four codes of each of 4 rows, in bytes.  In its
 * 16-bit lanes, a mask takes the even bytes and a shift the odd ones, so codes come as pairs in even-odd order.
 * q4_K, q6_K and q8_0 have dots of their own at the end.
 */
/* Compiled for speed. */
/* Compiled with -mrelaxed-simd for the other definition of IN_ORDER_STORED; kernel-opcodes.test.mjs checks that it has
 * no relaxed instructions. */
#include "kernels/kernels.h"
#include "kernels/simd128.h"

#if defined(HAVE_SIMD128)

#include "kernels/tiles_simd128.h"

ALWAYS_INLINE v128_t even_bytes(v128_t v) { return wasm_v128_and(v, wasm_i16x8_splat(255)); }
ALWAYS_INLINE v128_t odd_bytes(v128_t v) { return wasm_u16x8_shr(v, 8); }

/* ---- scales of superblocks --------------------------------------------------------------------------------------- */

/* Convert the f16 of four superblocks to f32, exactly: from the bits that f16_small returns, or from the low or the
 * high 16 bits of each lane. */
ALWAYS_INLINE v128_t half_f32(v128_t small) { return wasm_f32x4_mul(small, wasm_f32x4_splat(SUPERBLOCK_F16_FACTOR)); }
ALWAYS_INLINE v128_t low_half_f32(v128_t h) { return half_f32(f16_small_low(h)); }
ALWAYS_INLINE v128_t high_half_f32(v128_t h) { return half_f32(f16_small_high(h)); }

/* dst[lane] = d * integer, rounded once. */
ALWAYS_INLINE void store_product(float *dst, v128_t d, v128_t integer) {
    wasm_v128_store(dst, wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(integer)));
}
/* The same for 4 groups, whose integers are the bytes of each lane, unsigned. */
ALWAYS_INLINE void store_products(float *dst, v128_t d, v128_t bytes) {
    for (uint32_t i = 0; i < 32; i += 8, dst += 8) {
        store_product(dst, d, wasm_v128_and(wasm_u32x4_shr(bytes, i), wasm_i32x4_splat(255)));
    }
}
/* The same for signed bytes.  They become the high bytes of integers, 2^24 times too large, and d is 2^24 times too
 * small, which is exact.  high_byte masks the high bytes; the caller keeps it IN_REGISTER. */
ALWAYS_INLINE void store_products_signed(float *dst, v128_t d, v128_t bytes, v128_t high_byte) {
    for (uint32_t i = 0; i < 32; i += 8, dst += 8) {
        store_product(dst, d, wasm_v128_and(wasm_i32x4_shl(bytes, 24 - i), high_byte));
    }
}

/* Stores the four codes in the bytes of each lane as two pairs in even-odd order. */
ALWAYS_INLINE void store_min_codes(int16_t *dst, v128_t bytes) {
    wasm_v128_store(dst, even_bytes(bytes));
    wasm_v128_store(dst + 2 * TILE_ROWS, odd_bytes(bytes));
}

/* q4_K, q5_K.  Word 0 is d in its low 16 bits and dmin in its high ones.  Words 1 .. 3 are the 12 bytes that
 * K_SCALES of quant/types.h describes. */
void q4_K_scales(float *scales, int16_t *min_codes, float *mins, const uint8_t *tile) {
    OPAQUE(scales, min_codes);
    LOOP_UNROLLED
    for (uint32_t r = 0; r < TILE_ROWS; r += 4, tile += 16) {
        v128_t dm = word(tile, 0), sc = word(tile, 1), mn = word(tile, 2), both = word(tile, 3);
        v128_t d = low_half_f32(dm);
        store_products(scales + r, d, bits(sc, 0, 63));
        store_products(scales + 32 + r, d, wasm_v128_or(bits(both, 0, 15), wasm_i16x8_shl(bits(sc, 6, 3), 4)));
        wasm_v128_store(mins + r, high_half_f32(dm));
        store_min_codes(min_codes + 2 * r, bits(mn, 0, 63));
        store_min_codes(min_codes + 4 * TILE_ROWS + 2 * r,
                        wasm_v128_or(bits(both, 4, 15), wasm_i16x8_shl(bits(mn, 6, 3), 4)));
    }
}

/* Returns d / 2^24 of rows 4 half .. 4 half + 3, for types whose tiles begin with the f16 d of the 8 rows: those whose
 * blocks have an odd number of 16-bit units. */
ALWAYS_INLINE v128_t small_d(const uint8_t *tile, uint32_t half) {
    v128_t small = f16_small(wasm_i32x4_load16x4(tile + 8 * half));
    return wasm_f32x4_mul(small, wasm_f32x4_splat(SUPERBLOCK_F16_FACTOR * 0x1p-24f));
}

/* q6_K: the scales are the bytes of words 48 .. 51. */
void q6_K_scales(float *scales, int16_t *min_codes, float *mins, const uint8_t *tile) {
    (void)min_codes, (void)mins;
    v128_t high_byte = wasm_i32x4_splat((int32_t)0xff000000);
    IN_REGISTER(high_byte);
    for (uint32_t half = 0; half < 2; half++, scales += 4) {
        v128_t d = small_d(tile, half);
        LOOP_ROLLED
        for (uint32_t i = 0; i < 4; i++) {
            store_products_signed(scales + 32 * i, d, word(tile + 16 + 16 * half, 48 + i), high_byte);
        }
    }
}

/* q2_K.  Each byte of words 0 .. 3 has two integers of a group: the low nibble times d is its scale, and the high
 * nibble is the code of its minimum.  Word 20 is d in its low 16 bits and dmin in its high ones. */
void q2_K_scales(float *scales, int16_t *min_codes, float *mins, const uint8_t *tile) {
    for (const uint8_t *end = tile + 32; tile < end; tile += 16, scales += 4, min_codes += 8, mins += 4) {
        v128_t dm = word(tile, 20), d = low_half_f32(dm);
        wasm_v128_store(mins, high_half_f32(dm));
        LOOP_ROLLED
        for (uint32_t i = 0; i < 4; i++) {
            store_products(scales + 32 * i, d, bits(word(tile, i), 0, 15));
            store_min_codes(min_codes + 4 * TILE_ROWS * i, bits(word(tile, i), 4, 15));
        }
    }
}

/* q3_K: words 24 .. 26 are its 12 bytes of scales. */
void q3_K_scales(float *scales, int16_t *min_codes, float *mins, const uint8_t *tile) {
    (void)min_codes, (void)mins;
    v128_t high_byte = wasm_i32x4_splat((int32_t)0xff000000);
    IN_REGISTER(high_byte);
    for (uint32_t half = 0; half < 2; half++, scales += 4) {
        v128_t d = small_d(tile, half);
        const uint8_t *words = tile + 16 + 16 * half;
        LOOP_ROLLED
        for (uint32_t i = 0; i < 4; i++) {
            v128_t high = wasm_i16x8_shl(bits(word(words, 26), i * 2, 3), 4);
            v128_t sc = wasm_v128_or(bits(word(words, 24 + i % 2), i / 2 * 4, 15), high);
            store_products_signed(scales + 32 * i, d, wasm_i8x16_sub(sc, wasm_i8x16_splat(32)), high_byte);
        }
    }
}

/* iq4_xs: word 0 is d in its low 16 bits and scales_h in its high ones, and word 1 is scales_l. */
void iq4_xs_scales(float *scales, int16_t *min_codes, float *mins, const uint8_t *tile) {
    (void)min_codes, (void)mins;
    const v128_t three = wasm_i32x4_splat(3), fifteen = wasm_i32x4_splat(15);
    for (const uint8_t *end = tile + 32; tile < end; tile += 16, scales += 4) {
        v128_t d = low_half_f32(word(tile, 0));
        LOOP_ROLLED
        for (uint32_t i = 0; i < 8; i++) {
            v128_t low = wasm_v128_and(wasm_u32x4_shr(word(tile, 1), i * 4), fifteen);
            v128_t high = wasm_i32x4_shl(wasm_v128_and(wasm_u32x4_shr(word(tile, 0), 16 + i * 2), three), 4);
            store_product(scales + 8 * i, d, wasm_i32x4_sub(wasm_v128_or(low, high), wasm_i32x4_splat(32)));
        }
    }
}

/* nvfp4: the bytes of word 0 are the scales.  The exponent and the mantissa of a scale are moved to their places in an
 * f32, whose exponent has a bias of 127 in place of 8; the product makes up for it.  No scale of a tile is one of the
 * exceptions of QUANT_SCALE_FLOAT8. */
void nvfp4_scales(float *scales, int16_t *min_codes, float *mins, const uint8_t *tile) {
    (void)min_codes, (void)mins;
    for (const uint8_t *end = tile + 32; tile < end; tile += 16, scales += 4) {
        LOOP_ROLLED
        for (uint32_t i = 0; i < 4; i++) {
            v128_t byte = wasm_v128_and(wasm_u32x4_shr(word(tile, 0), 8 * i), wasm_i32x4_splat(255));
            wasm_v128_store(scales + 8 * i, wasm_f32x4_mul(wasm_i32x4_shl(byte, 20), wasm_f32x4_splat(0x1p119f)));
        }
    }
}

void d_scales(float *scales, const uint8_t *tile, uint32_t n_group) {
    v128_t d0 = half_f32(f16_small(wasm_i32x4_load16x4(tile)));
    v128_t d1 = half_f32(f16_small(wasm_i32x4_load16x4(tile + 8)));
    for (const float *end = scales + 8 * n_group; scales < end; scales += 8) {
        wasm_v128_store(scales, d0);
        wasm_v128_store(scales + 4, d1);
    }
}

/* ---- words of two-bit codes -------------------------------------------------------------------------------------- */

/* q1_0: 4 words.  Bits become the codes 0 and 2; -1 and 1 is what they stand for, with a bias of 1. */
void q1_0_expand(uint8_t *to, const uint8_t *words) {
    v128_t high_bits = wasm_i8x16_splat((int8_t)0xaa);
    for (const uint8_t *end = words + 4 * 32; words < end; words += 32, to += 64) {
        for (uint32_t i = 0; i < 32; i += 16) {
            v128_t v = wasm_v128_load(words + i);
            wasm_v128_store(to + i, wasm_v128_and(v, high_bits));
            wasm_v128_store(to + i + 32, wasm_v128_and(wasm_i16x8_shl(v, 1), high_bits));
        }
    }
}

/* Three times each byte.  LLVM would multiply, which wasm cannot do with bytes, so the double is hidden from it. */
ALWAYS_INLINE v128_t triple(v128_t v) {
    v128_t twice = wasm_i8x16_add(v, v);
    IN_REGISTER(twice);
    return wasm_i8x16_add(twice, v);
}

/* The first n digits of base 3 of the bytes of 4 words become n words, step bytes apart: digit k of word i is code i
 * of word k.  A byte is a fraction x / 256 (quant_read_digits).  Its bits with the highest one inverted are x - 128 as
 * a signed number, which can be compared; modulo 256, three times x - 128 is 3x - 128. */
ALWAYS_INLINE void expand_digits(uint8_t *to, const v128_t fractions[4], uint32_t n, uint32_t step) {
    v128_t x[4], one_third = wasm_i8x16_splat(85 - 128), two_thirds = wasm_i8x16_splat(170 - 128);
    IN_REGISTER(one_third);
    IN_REGISTER(two_thirds);
    for (uint32_t i = 0; i < 4; i++) x[i] = wasm_v128_xor(fractions[i], wasm_i8x16_splat(INT8_MIN));
    LOOP_ROLLED
    for (const uint8_t *end = to + n * step; to < end; to += step) {
        v128_t digits = wasm_i8x16_splat(0);
        for (uint32_t i = 4; i-- > 0;) {
            digits = wasm_i16x8_shl(digits, 2);
            digits = wasm_i8x16_sub(digits, wasm_i8x16_gt(x[i], one_third));
            digits = wasm_i8x16_sub(digits, wasm_i8x16_gt(x[i], two_thirds));
            x[i] = triple(x[i]);
        }
        wasm_v128_store(to, digits);
    }
}

/* tq1_0: digit k of words 0 .. 7 has weights 32k .. 32k + 31, k < 5.  Words 8 .. 11 have the next 5 times 16 weights,
 * and word 12 the last 16: its 4 digits are the codes of one word. */
void tq1_0_expand(uint8_t *to, const uint8_t *words) {
    for (const uint8_t *end = words + 32; words < end; words += 16, to += 16) {
        LOOP_ROLLED
        for (uint32_t first = 0; first < 12; first += 4) {
            const v128_t four[4] = { word(words, first), word(words, first + 1), word(words, first + 2),
                                     word(words, first + 3) };
            expand_digits(first < 8 ? to + 8 * first : to + 320, four, 5, first < 8 ? 64 : 32);
        }
        v128_t x[4] = { word(words, 12) };
        for (uint32_t i = 1; i < 4; i++) x[i] = triple(x[i - 1]);
        expand_digits(to + 480, x, 1, 32);
    }
}

/* ---- four weights of 8 rows -------------------------------------------------------------------------------------- */

typedef int16_t code;
ALWAYS_INLINE const code *codes_of(const struct activations *a, bool even_odd) {
    (void)even_odd;   /* 16-bit codes are always in that order */
    return a->q;
}
ALWAYS_INLINE code *panel_codes(struct panel *p) { return p->pairs; }

enum { N_DOT = 2 };

#define DOT(acc, w, x) acc = wasm_i32x4_add(acc, wasm_i32x4_dot_i16x8(w, x))

ALWAYS_INLINE void dot_4(v128_t dots[N_DOT], tile_codes *codes, const uint8_t *words, uint32_t k,
                         uint32_t j, const code *q) {
    v128_t c0 = codes(words, k, j), c1 = codes(words + 16, k, j);
    v128_t x_even = wasm_v128_load32_splat(q), x_odd = wasm_v128_load32_splat(q + 2);
    DOT(dots[0], even_bytes(c0), x_even);
    DOT(dots[1], even_bytes(c1), x_even);
    DOT(dots[0], odd_bytes(c0), x_odd);
    DOT(dots[1], odd_bytes(c1), x_odd);
}

ALWAYS_INLINE v128_t total(const v128_t dots[N_DOT], uint32_t half) { return dots[half]; }
ALWAYS_INLINE void in_order(v128_t dots[N_DOT], volatile v128_t sink[2]) {
    IN_ORDER_STORED(sink, dots[0], dots[1]);
}

/* Codes of 4 bits (q4_codes) or of 2 (two_bits_codes).  Two masks extract the codes of even and of odd bytes in place,
 * from the word and from shifted words: for nibbles, 5 instructions for the four of a 16-bit lane instead of 7.  Codes
 * from odd bytes are 256x too large, so they have sums of their own, odd256, which are divided by 256 at the end.  That
 * is exact, because all their products are multiples of 256, and 16 products of 15 * 256 and MAX_CODE_16 fit in 32
 * bits. */
ALWAYS_INLINE void dot_fields(v128_t dots[N_DOT], const uint8_t *words, uint32_t n_bit, const code *q,
                              volatile v128_t sink[2]) {
    v128_t odd256[2] = { wasm_i32x4_splat(0), wasm_i32x4_splat(0) };
    int16_t mask = n_bit == 4 ? 15 : 3;
    v128_t even_field = wasm_i16x8_splat(mask), odd_field = wasm_i16x8_splat((int16_t)(mask << 8));
    IN_REGISTER(even_field);
    IN_REGISTER(odd_field);
    LOOP_UNROLLED
    for (uint32_t i = 0; i < 4; i++) {   /* two fields, which begin at bit `shift` of word j */
        uint32_t j = n_bit == 4 ? i : i / 2, shift = n_bit == 4 ? 0 : i % 2 * 4;
        const code *q0 = q + (n_bit == 4 ? 4 * i : 8 * i), *q1 = q0 + (n_bit == 4 ? 16 : 4);
        v128_t x_even0 = wasm_v128_load32_splat(q0), x_odd0 = wasm_v128_load32_splat(q0 + 2);
        v128_t x_even1 = wasm_v128_load32_splat(q1), x_odd1 = wasm_v128_load32_splat(q1 + 2);
        for (uint32_t half = 0; half < 2; half++) {
            v128_t c = word(words + 16 * half, j);
            v128_t c0 = shift == 0 ? c : wasm_u16x8_shr(c, shift), c1 = wasm_u16x8_shr(c, shift + n_bit);
            DOT(dots[half], wasm_v128_and(c0, even_field), x_even0);
            DOT(dots[half], wasm_v128_and(c1, even_field), x_even1);
            DOT(odd256[half], wasm_v128_and(c0, odd_field), x_odd0);
            DOT(odd256[half], wasm_v128_and(c1, odd_field), x_odd1);
        }
        IN_ORDER_STORED(sink, dots[0], dots[1]);
        IN_ORDER_STORED(sink, odd256[0], odd256[1]);
    }
    for (uint32_t half = 0; half < 2; half++) dots[half] = wasm_i32x4_add(dots[half], wasm_i32x4_shr(odd256[half], 8));
}

/* q5_0, q5_1, q5_K.  Even bytes are masked in place, so their products are 8x too large and are divided at the end.
 * Odd bytes are shifted down.  A tile stores five words for each 32 weights.  The codes that words 5, 6 and 7 would
 * have are shifted words combined by xor (repack.h), and are made as soon as these are loaded: 5 from words 0 and 3, 6
 * from words 1 and 4, 7 from words 3, 4 and 2.  They are shifted to where other words have their codes, so one mask
 * serves all.  This takes 27 instructions for 32 codes of 4 rows; nibbles with separate high bits take 51. */
ALWAYS_INLINE void dot_five_bits(v128_t dots[N_DOT], const uint8_t *words, const code *q, volatile v128_t sink[2]) {
    static const uint8_t order[] = { 0, 3, 1, 4, 2 };
    v128_t zero = wasm_i32x4_splat(0), even8[2] = { zero, zero }, last[2] = { zero, zero }, c7[2] = { zero, zero };
    v128_t even_bits = wasm_i16x8_splat(31 << 3);
    IN_REGISTER(even_bits);
    LOOP_UNROLLED
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t j = order[i];
        v128_t x_even = wasm_v128_load32_splat(q + 4 * j), x_odd = wasm_v128_load32_splat(q + 4 * j + 2);
        for (uint32_t half = 0; half < 2; half++) {
            v128_t c = word(words + 16 * half, j);
            DOT(even8[half], wasm_v128_and(c, even_bits), x_even);
            DOT(dots[half], wasm_u16x8_shr(c, 11), x_odd);
            if (j < 2) last[half] = c;
            else if (j == 2) last[half] = xor_shifted(c, c7[half], 1);
            else last[half] = xor_shifted(last[half], c, 3), c7[half] = j == 3 ? c : xor_shifted(c7[half], c, 1);
        }
        IN_ORDER_STORED(sink, dots[0], dots[1]);
        IN_ORDER(even8[0], even8[1]);
        IN_ORDER(last[0], last[1]);
        if (j < 2) continue;
        uint32_t at = j == 2 ? 28 : 4 * j + 8;   /* where the activations of word 5, 6 or 7 begin */
        x_even = wasm_v128_load32_splat(q + at);
        x_odd = wasm_v128_load32_splat(q + at + 2);
        for (uint32_t half = 0; half < 2; half++) {
            v128_t c = wasm_i16x8_shl(last[half], 3);
            DOT(even8[half], wasm_v128_and(c, even_bits), x_even);
            DOT(dots[half], wasm_u16x8_shr(c, 11), x_odd);
        }
        IN_ORDER_STORED(sink, dots[0], dots[1]);
        IN_ORDER(even8[0], even8[1]);
    }
    for (uint32_t half = 0; half < 2; half++) dots[half] = wasm_i32x4_add(dots[half], wasm_i32x4_shr(even8[half], 3));
}

ALWAYS_INLINE bool dot_in_place(v128_t dots[N_DOT], tile_codes *codes, const uint8_t *words, const code *q,
                                volatile v128_t sink[2]) {
    if (codes == q4_codes) dot_fields(dots, words, 4, q, sink);
    else if (codes == two_bits_codes) dot_fields(dots, words, 2, q, sink);
    else if (codes == q5_codes) dot_five_bits(dots, words, q, sink);
    else return false;
    return true;
}

/* Subtracts the bias and stores the four codes of each row as two pairs. */
ALWAYS_INLINE void store_4(int16_t *pairs, tile_codes *codes, const uint8_t *words, uint32_t k,
                           uint32_t j, int16_t bias, bool even_odd) {
    (void)even_odd;
    for (uint32_t half = 0; half < 2; half++, pairs += 8, words += 16) {
        v128_t c = codes(words, k, j);
        wasm_v128_store(pairs, wasm_i16x8_sub(even_bytes(c), wasm_i16x8_splat(bias)));
        wasm_v128_store(pairs + 16, wasm_i16x8_sub(odd_bytes(c), wasm_i16x8_splat(bias)));
    }
}

/* Sums begin with 0, because store_4 has subtracted the bias. */
ALWAYS_INLINE v128_t first_sum(const struct panel *p, const int32_t *isum) {
    (void)p, (void)isum;
    return wasm_i32x4_splat(0);
}

/* With constants for shifts and offsets, unpacking takes half the time. */
#define BLOCK_LOOP LOOP_UNROLLED
/* Unrolled here, because since 2026 V8 unrolls a loop of this length itself, and then spills registers. */
#define GROUP_LOOP LOOP_UNROLLED
#include "kernels/panels.h"

/* ---- the types --------------------------------------------------------------------------------------------------- */

#define UNPACK(TEMPLATE, NAME) \
static void NAME##_unpack__simd128(struct panel *p, const uint8_t *rows) { TEMPLATE##_unpack(&NAME, p, rows); }
#define DOT_AND_UNPACK(TEMPLATE, NAME)                                                    \
UNPACK(TEMPLATE, NAME)                                                                    \
static void NAME##_dot__simd128(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) { \
    TEMPLATE##_dot(&NAME, y, rows, a);                                                 \
}

/* Not inlined: the four types share their code. */
ALWAYS_INLINE struct superblock two_bits_superblock(tile_expand *expand) {
    return (struct superblock) { .codes = two_bits_codes, .expand = expand, .period = 1, .step = 64, .bias = 1 };
}
ALWAYS_INLINE struct tile two_bits_tile(uint32_t size, uint32_t bytes) {
    return (struct tile) { .size = size, .bytes = bytes, .words = 2 * TILE_ROWS, .group = 32 };
}
static __attribute__((noinline)) void two_bits_dot_of(tile_expand *expand, uint32_t size, uint32_t bytes,
                                                      float y[TILE_ROWS], const uint8_t *rows,
                                                      const struct activations *a) {
    struct superblock b = two_bits_superblock(expand);
    struct tile t = two_bits_tile(size, bytes);
    superblock_dot_of(&b, &t, y, rows, a);
}
static __attribute__((noinline)) void two_bits_unpack_of(tile_expand *expand, uint32_t size, uint32_t bytes,
                                                         struct panel *p, const uint8_t *rows) {
    struct superblock b = two_bits_superblock(expand);
    struct tile t = two_bits_tile(size, bytes);
    superblock_unpack_of(&b, &t, p, rows);
}
ALWAYS_INLINE void two_bits_dot(const struct two_bits *b, float y[TILE_ROWS], const uint8_t *rows,
                                const struct activations *a) {
    two_bits_dot_of(b->expand, tile_of(b->type).size, tile_of(b->type).bytes, y, rows, a);
}
ALWAYS_INLINE void two_bits_unpack(const struct two_bits *b, struct panel *p, const uint8_t *rows) {
    two_bits_unpack_of(b->expand, tile_of(b->type).size, tile_of(b->type).bytes, p, rows);
}
#define DOT_TYPES(X) \
    X(block, q4_0) X(block, q4_1) X(block, q5_0) X(block, q5_1) X(block, iq4_nl) X(block, mxfp4) X(superblock, q2_K) \
    X(superblock, q3_K) X(superblock, q5_K) X(superblock, iq4_xs) X(superblock, nvfp4) X(two_bits, q1_0) \
    X(two_bits, q2_0) X(two_bits, tq1_0) X(two_bits, tq2_0)
DOT_TYPES(DOT_AND_UNPACK)
UNPACK(superblock, q4_K)
void q6_K_unpack__simd128(struct panel *p, const uint8_t *rows) { superblock_unpack(&q6_K, p, rows); }

/* ---- q4_K -------------------------------------------------------------------------------------------------------
 *
 * In each 16-bit lane, all nibbles but the highest are masked in place: one instruction for each instead of one and a
 * half.  Even and odd bytes therefore have separate sums, and those that are 16x or 256x too large are divided at the
 * end.  That is exact, because 16 products of 15 * 256 and MAX_CODE_16 fit in 32 bits. */

/* even and odd are the sums of even and odd bytes.  dots (2) = the dots of 32 weights, which are the low (k = 0) or the
 * high nibbles (k = 1) of 8 words. */
ALWAYS_INLINE void q4_K_group(v128_t dots[2], const uint8_t *words, uint32_t k, const int16_t *q,
                              volatile v128_t sink[2]) {
    v128_t even[2] = { wasm_i32x4_splat(0), wasm_i32x4_splat(0) }, odd[2] = { even[0], even[0] };
    v128_t even_nibble = wasm_i16x8_splat(k == 0 ? 15 : 15 << 4), odd_nibble = wasm_i16x8_splat(15 << 8);
    IN_REGISTER(even_nibble);
    IN_REGISTER(odd_nibble);
    LOOP_UNROLLED
    for (uint32_t j = 0; j < 8; j++, q += 4) {
        v128_t x_even = wasm_v128_load32_splat(q), x_odd = wasm_v128_load32_splat(q + 2);
        for (uint32_t half = 0; half < 2; half++) {
            v128_t c = word(words + 16 * half, j);
            DOT(even[half], wasm_v128_and(c, even_nibble), x_even);
            DOT(odd[half], k == 0 ? wasm_v128_and(c, odd_nibble) : wasm_u16x8_shr(c, 12), x_odd);
        }
        if (j % 2 == 0) continue;
        IN_ORDER_STORED(sink, even[0], even[1]);
        IN_ORDER_STORED(sink, odd[0], odd[1]);
    }
    for (uint32_t half = 0; half < 2; half++) {
        dots[half] = k == 0 ? wasm_i32x4_add(even[half], wasm_i32x4_shr(odd[half], 8))
                            : wasm_i32x4_add(wasm_i32x4_shr(even[half], 4), odd[half]);
    }
}

static void q4_K_dot__simd128(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) {
    const int16_t *q = a->q;
    const float *d = a->d, *sum_d = a->sums32.d;
    const int16_t *sum_q = a->sums32.q;
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0, min_sums[2] = { f0, f0 };
    volatile v128_t sink[2];
    for (const uint8_t *w = rows, *end = rows + a->n / 256 * tile_of(QUANT_Q4_K).bytes; w < end;) {
        float scales[8 * TILE_ROWS], mins[TILE_ROWS];
        int16_t min_codes[8 * TILE_ROWS];
        q4_K_scales(scales, min_codes, mins, w);
        add_mins(min_sums, min_codes, mins, sum_q, sum_d++, 8);
        sum_q += 8;
        w += tile_of(QUANT_Q4_K).words;
        LOOP_ROLLED
        for (const float *scale = scales; scale < scales + 8 * TILE_ROWS; w += q4_K.step) {
            OPAQUE(scale, d);
            LOOP_UNROLLED
            for (uint32_t k = 0; k < 2; k++) {
                OPAQUE(w, q);
                v128_t dots[2];
                q4_K_group(dots, w, k, q + 32 * k, sink);
                v128_t dq = wasm_v128_load32_splat(d + k);
                f0 = add_dots(f0, dots[0], wasm_v128_load(scale + 8 * k), dq);
                f1 = add_dots(f1, dots[1], wasm_v128_load(scale + 8 * k + 4), dq);
                sink[0] = f0;
                IN_ORDER(f0, f1);
            }
            q += 64;
            d += 2;
            scale += 16;
        }
    }
    wasm_v128_store(y, wasm_f32x4_sub(f0, min_sums[0]));
    wasm_v128_store(y + 4, wasm_f32x4_sub(f1, min_sums[1]));
}

/* ---- q6_K -------------------------------------------------------------------------------------------------------
 *
 * Even bytes are masked in place, so their products are 4x too large and are divided at the end.  Odd bytes are shifted
 * down.  The codes of a fourth word are the other three, shifted and combined by xor (repack.h).  They are shifted to
 * where those have their codes, so one mask serves all words and stays in a register.  This takes 13 instructions for
 * 16 codes of 4 rows; nibbles with separate high bits take 25. */

/* dots (2) = the dots of 16 weights less 32 times *isum. */
ALWAYS_INLINE void q6_K_group(v128_t dots[2], const uint8_t *words, const int16_t *q, const int32_t *isum,
                              v128_t minus_bias, v128_t even_bits, volatile v128_t sink[2]) {
    v128_t zero = wasm_i32x4_splat(0), even4[2] = { zero, zero }, last[2] = { zero, zero };
    dots[0] = dots[1] = wasm_i32x4_mul(wasm_v128_load32_splat(isum), minus_bias);
    LOOP_UNROLLED
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t j = i == 3 ? 3 : 2 - i;
        v128_t x_even = wasm_v128_load32_splat(q + 4 * j), x_odd = wasm_v128_load32_splat(q + 4 * j + 2);
        for (uint32_t half = 0; half < 2; half++) {
            v128_t c = j == 3 ? wasm_i16x8_shl(last[half], 2) : wasm_v128_load(words + 16 * half + 32 * j);
            DOT(even4[half], wasm_v128_and(c, even_bits), x_even);
            DOT(dots[half], wasm_u16x8_shr(c, 10), x_odd);
            last[half] = j == 2 ? c : xor_shifted(c, last[half], 2);
        }
        IN_ORDER_STORED(sink, dots[0], dots[1]);
        IN_ORDER(even4[0], even4[1]);
        if (j < 3) IN_ORDER(last[0], last[1]);
    }
    for (uint32_t half = 0; half < 2; half++) dots[half] = wasm_i32x4_add(dots[half], wasm_i32x4_shr(even4[half], 2));
}

static void q6_K_dot__simd128(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) {
    const int16_t *q = a->q;
    const float *d = a->d;
    const int32_t *isum = a->isum16;
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0;
    v128_t minus_bias = wasm_i32x4_splat(-q6_K.bias), even_bits = wasm_i16x8_splat(63 << 2);
    volatile v128_t sink[2];
    IN_REGISTER(minus_bias);
    IN_REGISTER(even_bits);
    for (const uint8_t *w = rows, *end = rows + a->n / 256 * tile_of(QUANT_Q6_K).bytes; w < end;) {
        float scales[16 * TILE_ROWS];
        q6_K_scales(scales, NULL, NULL, w);
        w += tile_of(QUANT_Q6_K).words;
        LOOP_ROLLED
        for (const float *scale = scales; scale < scales + 16 * TILE_ROWS; scale += 16) {
            OPAQUE(scale, d);
            LOOP_UNROLLED
            for (uint32_t k = 0; k < 2; k++) {
                OPAQUE(w, q);
                v128_t dots[2];
                q6_K_group(dots, w + 96 * k, q + 16 * k, isum + k, minus_bias, even_bits, sink);
                v128_t dq = wasm_v128_load32_splat(d);
                f0 = add_dots(f0, dots[0], wasm_v128_load(scale + 8 * k), dq);
                f1 = add_dots(f1, dots[1], wasm_v128_load(scale + 8 * k + 4), dq);
                sink[0] = f0;
                IN_ORDER(f0, f1);
            }
            w += q6_K.step;
            q += 32;
            isum += 2;
            d++;
        }
        w += 4 * 32;   /* the words of scales */
    }
    wasm_v128_store(y, f0);
    wasm_v128_store(y + 4, f1);
}

/* ---- q8_0 -------------------------------------------------------------------------------------------------------
 *
 * Codes are widened to 16 bits as they are loaded.  A register holds four codes of each of 2 rows, a 64-bit splat holds
 * four activations, and each row has two sums, which are added at the end of a block.  This takes a quarter fewer
 * instructions than the template.  The dot is nearly as fast as memory can deliver the weights. */

#define Q8_BYTES tile_of(QUANT_Q8_0).bytes
#define Q8_WORDS tile_of(QUANT_Q8_0).words

/* Returns the sums of 4 rows.  Each argument holds two sums for each of 2 rows, which are added. */
ALWAYS_INLINE v128_t add_pairs(v128_t rows01, v128_t rows23) {
    return wasm_i32x4_add(wasm_i32x4_shuffle(rows01, rows23, 0, 2, 4, 6),
                          wasm_i32x4_shuffle(rows01, rows23, 1, 3, 5, 7));
}

static void q8_0_dot__simd128(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) {
    size_t n_block = a->n / 32;
    const int16_t *q = a->q;
    const float *d = a->d;
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0, f16_factor = wasm_f32x4_splat(F16_FACTOR);
    volatile v128_t sink[2];
    IN_REGISTER(f16_factor);
    for (const uint8_t *w = rows, *end = rows + n_block * Q8_BYTES; w < end; w += Q8_BYTES, q += 32) {
        OPAQUE(w, q);
        v128_t dots[4] = { wasm_i32x4_splat(0), wasm_i32x4_splat(0), wasm_i32x4_splat(0), wasm_i32x4_splat(0) };
        LOOP_UNROLLED
        for (uint32_t j = 0; j < 8; j++) {
            v128_t x = wasm_v128_load64_splat(q + 4 * j);
            const uint8_t *four = w + Q8_WORDS + 32 * j;
            LOOP_UNROLLED
            for (uint32_t i = 0; i < 4; i++) DOT(dots[i], wasm_i16x8_load8x8(four + 8 * i), x);
            IN_ORDER_STORED(sink, dots[0], dots[1]);
            IN_ORDER_STORED(sink, dots[2], dots[3]);
        }
        v128_t h = wasm_v128_load(w), dq = wasm_f32x4_mul(wasm_v128_load32_splat(d++), f16_factor);
        f0 = add_dots(f0, add_pairs(dots[0], dots[1]), f16_small(wasm_i32x4_extend_low_i16x8(h)), dq);
        f1 = add_dots(f1, add_pairs(dots[2], dots[3]), f16_small(wasm_i32x4_extend_high_i16x8(h)), dq);
    }
    wasm_v128_store(y, f0);
    wasm_v128_store(y + 4, f1);
}

static void q8_0_unpack__simd128(struct panel *p, const uint8_t *rows) {
    const v128_t f16_factor = wasm_f32x4_splat(F16_FACTOR);
    int16_t *pairs = p->pairs;
    float *scales = p->scales;
    for (const uint8_t *w = rows, *end = rows + p->n / 32 * Q8_BYTES; w < end; w += Q8_BYTES, scales += 8) {
        LOOP_ROLLED
        for (const uint8_t *four = w + Q8_WORDS, *last = w + Q8_BYTES; four < last; four += 16, pairs += 8) {
            v128_t rows01 = wasm_i16x8_load8x8(four), rows23 = wasm_i16x8_load8x8(four + 8);
            wasm_v128_store(pairs, wasm_i32x4_shuffle(rows01, rows23, 0, 2, 4, 6));
            wasm_v128_store(pairs + 16, wasm_i32x4_shuffle(rows01, rows23, 1, 3, 5, 7));
            if ((four - w) % 32 == 0) pairs += 16;   /* rows 4 .. 7 are done: skips the second pairs of the 8 rows */
        }
        wasm_v128_store(scales, wasm_f32x4_mul(f16_small(wasm_i32x4_load16x4(w)), f16_factor));
        wasm_v128_store(scales + 4, wasm_f32x4_mul(f16_small(wasm_i32x4_load16x4(w + 8)), f16_factor));
    }
    p->group = 32;
    p->min_kind = NO_MIN;
}

static void panel_dot__simd128(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t) {
    panel_dot(y, p, a, t);
}
static void panel_dot_x4__simd128(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                  uint32_t t) {
    if (p->group == 16) panel_dot_x4(y, stride, p, a, t, 16);
    else panel_dot_x4(y, stride, p, a, t, 32);
}

/* Subtracts the minima for n tokens at once, because each addition to a sum waits for the one before, but those of
 * other tokens need not wait.  n is a constant. */
ALWAYS_INLINE void subtract_mins(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                 uint32_t t, uint32_t n) {
    v128_t min_sums[TILE_TOKENS][2];
    const float *m = p->mins;
    LOOP_UNROLLED
    for (uint32_t i = 0; i < n; i++) min_sums[i][0] = min_sums[i][1] = wasm_f32x4_splat(0.0f);
    if (p->min_kind == GROUP_MIN) {
        size_t n_sum = p->n / 32;
        const float *sum = a->sum32 + t * n_sum;
        for (const float *end = m + n_sum * TILE_ROWS; m < end; m += TILE_ROWS, sum++) {
            v128_t m0 = wasm_v128_load(m), m1 = wasm_v128_load(m + 4);
            LOOP_UNROLLED
            for (uint32_t i = 0; i < n; i++) {
                v128_t s = wasm_v128_load32_splat(sum + i * n_sum);
                min_sums[i][0] = mul_add(min_sums[i][0], m0, s);
                min_sums[i][1] = mul_add(min_sums[i][1], m1, s);
            }
        }
    } else {
        const struct sums *sums = p->group == 32 ? &a->sums32 : &a->sums16;
        size_t n_superblock = p->n / 256, n_code = 256 / p->group;
        const float *d = sums->d + t * n_superblock;
        const int16_t *q = sums->q + t * n_superblock * n_code, *codes = p->min_codes;
        for (const float *end = m + n_superblock * TILE_ROWS; m < end; m += TILE_ROWS, d++) {
            LOOP_UNROLLED
            for (uint32_t i = 0; i < n; i++) {
                add_mins(min_sums[i], codes, m, q + i * n_superblock * n_code, d + i * n_superblock, n_code);
            }
            q += n_code;
            codes += n_code * TILE_ROWS;
        }
    }
    LOOP_UNROLLED
    for (uint32_t i = 0; i < n; i++, y += stride) {
        wasm_v128_store(y, wasm_f32x4_sub(wasm_v128_load(y), min_sums[i][0]));
        wasm_v128_store(y + 4, wasm_f32x4_sub(wasm_v128_load(y + 4), min_sums[i][1]));
    }
}
static void subtract_mins__simd128(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                   uint32_t t, uint32_t n) {
    if (n == 1) subtract_mins(y, stride, p, a, t, 1);
    else subtract_mins(y, stride, p, a, t, TILE_TOKENS);
}

void kernels_fill_tiles(struct kernels *k) {
    k->panel_dot = panel_dot__simd128;
    k->subtract_mins = subtract_mins__simd128;
    k->panel_dot_x4 = panel_dot_x4__simd128;
#define FILL(TEMPLATE, NAME) \
    k->dot[NAME.type] = NAME##_dot__simd128, k->unpack[NAME.type] = NAME##_unpack__simd128;
    DOT_TYPES(FILL)
    FILL(block, q8_0)
    FILL(superblock, q4_K)
    FILL(superblock, q6_K)
}

#else
typedef int tiles_simd128_is_empty;   /* ISO C wants a declaration in every file */
#endif

/* WASM SIMD128 kernels on packed weights for the types with grids, IQ1, IQ2 and IQ3, which differ only in their
 * descriptors.  A lane is a row, as in tiles_simd128.c.
 *
 * The entries of a grid that 4 rows need are loaded one by one to the lanes of a register.  Everything else is done for
 * the 4 rows at once: a nibble of an entry stands for one code of 3 bits or for two of 2 bits, and swizzles replace it
 * with the values of these codes.  Then bytes get their signs, and masks and shifts widen them to 16 bits.
 */
/* Compiled for speed, and with -mrelaxed-simd. */
#include "kernels/kernels.h"
#include "kernels/simd128.h"

#if defined(HAVE_SIMD128)

#include "kernels/tiles_simd128.h"

#if defined(__wasm_relaxed_simd__)
#define SWIZZLE wasm_i8x16_relaxed_swizzle   /* the same for indexes below 16, with one instruction less */
#else
#define SWIZZLE wasm_i8x16_swizzle
#endif

/* Unpacked codes are too large by this until a dot or a panel is finished, so that they are widened as unsigned bytes.
 * A change of sign modulo 256 keeps this bias. */
enum { BIAS = 128 };

/* Vectors that stay in registers while rows are unpacked. */
struct constants {
    v128_t grid;                      /* for gather16 */
    v128_t first, second;             /* values of a nibble's codes, plus BIAS: both times that of its one code of 3
                                       * bits, or those of its two codes of 2 bits */
    v128_t first_bits, second_bits;   /* in each lane, bits 0 .. 3 and 4 .. 7 of a byte of signs */
    v128_t low_nibbles, lowest_byte;  /* a mask, and the indexes of the lowest byte of each lane */
};

ALWAYS_INLINE struct constants constants_of(const struct quant_traits *t) {
    int8_t first[16], second[16];
    for (size_t i = 0; i < 16; i++) {
        first[i] = (int8_t)(t->values[t->is_grid_of_4 ? i & 7 : i & 3] + BIAS);
        second[i] = (int8_t)(t->values[t->is_grid_of_4 ? i & 7 : i >> 2] + BIAS);
    }
    struct constants c = {
        .grid = GATHER_BASE(t->grid), .first = wasm_v128_load(first), .second = wasm_v128_load(second),
        .first_bits = wasm_i32x4_splat(0x08040201), .second_bits = wasm_i32x4_splat((int32_t)0x80402010),
        .low_nibbles = wasm_i8x16_splat(15),
        .lowest_byte = wasm_i32x4_make(0, 0x04040404, 0x08080808, 0x0c0c0c0c),
    };
    IN_REGISTER(c.grid);
    IN_REGISTER(c.first_bits);
    IN_REGISTER(c.second_bits);
    IN_REGISTER(c.low_nibbles);
    IN_REGISTER(c.lowest_byte);
    return c;
}

/* The words of rows 4 half .. 4 half + 3 of a tile, and the bits of a block before its words: those of d, if it is an
 * f16. */
struct words { const uint8_t *first; uint32_t before; };
ALWAYS_INLINE struct words words_of(const struct quant_traits *t, const uint8_t *tile, uint32_t half) {
    bool has_half = t->d_kind == QUANT_SCALE_F16;
    return (struct words) { tile + (has_half ? 2 * TILE_ROWS : 0) + 16 * half, has_half ? 16 : 0 };
}

/* Returns the word of 4 rows that has number 4 i + j of a field, shifted so that the field begins at bit 0.  In dots j
 * is a constant.  The shift is then a constant, too, unless a word has numbers of the field for several i. */
ALWAYS_INLINE v128_t field_at(struct words words, const struct quant_field *f, uint32_t i, uint32_t j) {
    uint32_t first = f->first - words.before, four = (uint32_t)((int)i * f->step2), step = (uint32_t)((int)j * f->step);
    if (f->step2 >= 32) {
        uint32_t at = first + four + step;
        return wasm_u32x4_shr(word(words.first, at / 32), at % 32);
    }
    v128_t v = wasm_u32x4_shr(word(words.first, (first + four) / 32), four % 32);
    return wasm_u32x4_shr(v, first % 32 + step);
}
ALWAYS_INLINE v128_t field(struct words words, const struct quant_field *f, uint32_t i, uint32_t j) {
    return wasm_v128_and(field_at(words, f, i, j), wasm_i32x4_splat((1 << f->width) - 1));
}

/* Returns the entries with the indexes in the lanes, with each nibble in a byte. */
ALWAYS_INLINE v128_t nibbles(const struct quant_traits *t, const struct constants *c, v128_t index) {
    v128_t entry = gather16(t->grid, c->grid, wasm_i32x4_shl(index, 1));
    return wasm_v128_and(wasm_v128_or(entry, wasm_i32x4_shl(entry, 12)), c->low_nibbles);
}

/* Returns 8 signs for each of vectors 4 i .. 4 i + 3 of 4 rows, as the bytes of a lane.  Where the file has 7, the
 * eighth is computed for all of them at once.  Those of IQ2_XS are in even-odd order. */
ALWAYS_INLINE v128_t signs_of_four(const struct quant_traits *t, struct words words, uint32_t i) {
    const struct quant_field *f = &t->signs;
    const uint8_t *from = words.first + (f->first - words.before + (uint32_t)((int)i * f->step2)) / 32 * 32;
    v128_t w = word(from, 0), signs, odd;
    if (f->width == 8) return w;
    if (f->step == 16) {
        signs = wasm_v128_or(wasm_u16x8_shr(w, 9), wasm_i16x8_shl(wasm_u16x8_shr(word(from, 1), 9), 8));
    } else {
        signs = wasm_v128_or(wasm_v128_and(w, wasm_i32x4_splat(0x3fff)),
                             wasm_i32x4_shl(wasm_v128_and(w, wasm_i32x4_splat(0x0fffc000)), 2));
        signs = wasm_v128_or(wasm_v128_and(signs, wasm_i32x4_splat(0x007f007f)),
                             wasm_i32x4_shl(wasm_v128_and(signs, wasm_i32x4_splat(0x3f803f80)), 1));
    }
    odd = wasm_v128_xor(signs, wasm_u16x8_shr(signs, 4));
    odd = wasm_v128_xor(odd, wasm_u16x8_shr(odd, 2));
    odd = wasm_v128_xor(odd, wasm_u16x8_shr(odd, 1));   /* bit 0 of each byte is the sum of its bits, modulo 2 */
    return wasm_v128_or(signs, wasm_v128_and(wasm_i16x8_shl(odd, 7), wasm_i8x16_splat(INT8_MIN)));
}

/* Changes the signs of those bytes of v whose bit, that of `bits`, is set in `signs`. */
ALWAYS_INLINE v128_t with_signs(v128_t v, v128_t signs, v128_t bits) {
    v128_t minus = wasm_i8x16_eq(wasm_v128_and(signs, bits), bits);
    IN_REGISTER(minus);   /* otherwise the compiler selects from v and -v, which takes five instructions */
    return wasm_i8x16_sub(wasm_v128_xor(v, minus), minus);
}

/* Unpacks vector 4 i + j of a superblock: the codes of 8 weights of 4 rows, plus BIAS, as pairs in even-odd order.
 * signs: those of vectors 4 i .. 4 i + 3; not read for IQ1. */
ALWAYS_INLINE void unpack_vector(v128_t pairs[4], const struct quant_traits *t, const struct constants *c,
                                 struct words words, v128_t signs, uint32_t i, uint32_t j) {
    v128_t low = field(words, &t->code.low, i, j), high = wasm_i32x4_splat(0), n[2], eight[2];
    if (t->code.high.width) high = field(words, &t->code.high, i, j);
    if (t->is_grid_of_4) {
        v128_t bit = wasm_v128_and(high, wasm_i32x4_splat(1)), upper = wasm_u32x4_shr(high, 1);
        n[0] = nibbles(t, c, wasm_v128_or(wasm_v128_and(low, wasm_i32x4_splat(255)), wasm_i32x4_shl(bit, 8)));
        n[1] = nibbles(t, c, wasm_v128_or(wasm_u32x4_shr(low, 8), wasm_i32x4_shl(upper, 8)));
    } else {
        n[0] = n[1] = nibbles(t, c, wasm_v128_or(low, wasm_i32x4_shl(high, 8)));
    }
    eight[0] = SWIZZLE(c->first, n[0]);
    eight[1] = SWIZZLE(c->second, n[1]);
    if (t->signs_kind == QUANT_SIGNS_SHIFT) {
        v128_t bit = wasm_i32x4_shl(field_at(words, &t->signs, i, j), 31);
        IN_REGISTER(bit);   /* otherwise the compiler compares the bit with 0, with more instructions */
        v128_t two = wasm_v128_and(wasm_i32x4_shr(bit, 31), wasm_i8x16_splat(2));
        for (uint32_t k = 0; k < 2; k++) eight[k] = wasm_i8x16_sub(eight[k], two);
    } else {
        uint32_t byte = t->signs.step == 16 ? (uint32_t)even_odd(j) : j;
        v128_t one = SWIZZLE(wasm_u32x4_shr(signs, 8 * byte), c->lowest_byte);
        eight[0] = with_signs(eight[0], one, c->first_bits);
        eight[1] = with_signs(eight[1], one, c->second_bits);
    }
    for (uint32_t k = 0; k < 2; k++) {
        pairs[2 * k] = wasm_v128_and(eight[k], wasm_i16x8_splat(255));
        pairs[2 * k + 1] = wasm_u16x8_shr(eight[k], 8);
    }
}

/* Stores the scales of the groups of a superblock of 4 rows, each group's n floats after those of the group before. */
ALWAYS_INLINE void store_scales(float *scales, uint32_t n, const struct quant_traits *t, const uint8_t *tile,
                                uint32_t half) {
    const struct words words = words_of(t, tile, half);
    v128_t d;
    if (t->d_kind == QUANT_SCALE_F16) {
        d = f16_small(wasm_i32x4_load16x4(tile + 8 * half));
    } else {   /* the high 4 bits of each u16 of words 12 and 13 */
        v128_t w0 = wasm_u16x8_shr(word(words.first, 12), 12), w1 = wasm_u16x8_shr(word(words.first, 13), 12);
        v128_t low = wasm_v128_or(w0, wasm_u32x4_shr(w0, 12)), high = wasm_v128_or(w1, wasm_u32x4_shr(w1, 12));
        d = f16_small_low(wasm_v128_or(wasm_v128_and(low, wasm_i32x4_splat(255)), wasm_i32x4_shl(high, 8)));
    }
    d = wasm_f32x4_mul(d, wasm_f32x4_splat(SUPERBLOCK_F16_FACTOR * t->factor));
    uint32_t n_group = 256u / t->group;
    LOOP_ROLLED
    for (uint32_t g = 0; g < n_group; g++, scales += n) {
        v128_t sc = field(words, &t->scale.low, g / 4, g % 4);
        sc = wasm_v128_or(wasm_i32x4_shl(sc, 1), wasm_i32x4_splat(1));
        wasm_v128_store(scales, wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(sc)));
    }
}

/* y = 8 packed rows times one token.  Rows 0 .. 3 are finished before rows 4 .. 7 begin, so that the sums and constants
 * fit in registers. */
ALWAYS_INLINE void grid_dot(float y[TILE_ROWS], const struct quant_traits *t, const uint8_t *rows,
                            const struct activations *a) {
    const struct constants c = constants_of(t);
    uint32_t bytes = (uint32_t)t->block_bytes * TILE_ROWS;
    LOOP_ROLLED
    for (uint32_t half = 0; half < 2; half++) {
        const int16_t *q = a->q;
        const float *d = a->d;
        const int32_t *isum = t->group == 32 ? a->isum32 : a->isum16;
        v128_t f = wasm_f32x4_splat(0.0f);
        for (const uint8_t *tile = rows, *end = rows + a->n / 256 * bytes; tile < end; tile += bytes) {
            float scales[QUANT_MAX_GROUPS * 4];
            store_scales(scales, 4, t, tile, half);
            const struct words words = words_of(t, tile, half);
            const float *scale = scales;
            LOOP_ROLLED
            for (uint32_t i = 0; i < 8; i++, q += 32, d++) {
                OPAQUE(q, scale);
                v128_t signs = wasm_i32x4_splat(0);
                if (t->signs_kind != QUANT_SIGNS_SHIFT) signs = signs_of_four(t, words, i);
                v128_t dots = wasm_i32x4_mul(wasm_v128_load32_splat(isum++), wasm_i32x4_splat(-BIAS));
                LOOP_UNROLLED
                for (uint32_t j = 0; j < 4; j++) {
                    v128_t pairs[4];
                    unpack_vector(pairs, t, &c, words, signs, i, j);
                    for (uint32_t k = 0; k < 4; k++) {
                        v128_t x = wasm_v128_load32_splat(q + 8 * j + 2 * k);
                        dots = wasm_i32x4_add(dots, wasm_i32x4_dot_i16x8(pairs[k], x));
                    }
                    IN_ORDER(dots, f);
                    if ((j + 1) * 8 % t->group != 0) continue;
                    f = add_dots(f, dots, wasm_v128_load(scale), wasm_v128_load32_splat(d));
                    scale += 4;
                    if (j == 1) dots = wasm_i32x4_mul(wasm_v128_load32_splat(isum++), wasm_i32x4_splat(-BIAS));
                }
            }
        }
        wasm_v128_store(y + 4 * half, f);
    }
}

/* Not inlined: all types share its code, because a panel is multiplied with many tokens. */
static __attribute__((noinline)) void grid_unpack(struct panel *p, const struct quant_traits *t, const uint8_t *rows) {
    const struct constants c = constants_of(t);
    int16_t *to = p->pairs;
    float *scales = p->scales;
    uint32_t bytes = (uint32_t)t->block_bytes * TILE_ROWS;
    for (const uint8_t *tile = rows, *end = rows + p->n / 256 * bytes; tile < end; tile += bytes) {
        LOOP_ROLLED
        for (uint32_t half = 0; half < 2; half++) {
            store_scales(scales + 4 * half, TILE_ROWS, t, tile, half);
            const struct words words = words_of(t, tile, half);
            LOOP_ROLLED
            for (uint32_t v = 0; v < 32; v++) {
                v128_t pairs[4];
                v128_t signs = wasm_i32x4_splat(0);
                if (t->signs_kind != QUANT_SIGNS_SHIFT) signs = signs_of_four(t, words, v / 4);
                unpack_vector(pairs, t, &c, words, signs, v / 4, v % 4);
                for (uint32_t k = 0; k < 4; k++) {
                    v128_t codes = wasm_i16x8_sub(pairs[k], wasm_i16x8_splat(BIAS));
                    wasm_v128_store(to + 8 * TILE_ROWS * v + 8 * half + 16 * k, codes);
                }
            }
        }
        to += 256 * TILE_ROWS;
        scales += 256u / t->group * TILE_ROWS;
    }
    p->group = t->group;
    p->min_kind = NO_MIN;
}

#define GRID_TYPES(X) \
    X(QUANT_IQ2_XXS, iq2_xxs) X(QUANT_IQ2_XS, iq2_xs) X(QUANT_IQ2_S, iq2_s) X(QUANT_IQ3_XXS, iq3_xxs) \
    X(QUANT_IQ3_S, iq3_s) X(QUANT_IQ1_S, iq1_s) X(QUANT_IQ1_M, iq1_m)

#define DOT_AND_UNPACK(TYPE, NAME)                                                        \
static void NAME##_dot__simd128(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) { \
    grid_dot(y, &quant_types[TYPE], rows, a);                                                   \
}                                                                                         \
static void NAME##_unpack__simd128(struct panel *p, const uint8_t *rows) { grid_unpack(p, quant_traits(TYPE), rows); }
GRID_TYPES(DOT_AND_UNPACK)

void kernels_fill_grids(struct kernels *k) {
#define FILL(TYPE, NAME) k->dot[TYPE] = NAME##_dot__simd128, k->unpack[TYPE] = NAME##_unpack__simd128;
    GRID_TYPES(FILL)
}

#else
typedef int grids_simd128_is_empty;   /* ISO C wants a declaration in every file */
#endif

/* WASM SIMD128 kernels for the types with grids on packed weights: IQ1, IQ2 and IQ3, whose fields grids.h describes.
 *
 * The entries of a grid that 4 rows need are loaded one by one to the lanes of a register.  All else is done for the 4
 * rows at once: a nibble of an entry stands for one code of 3 bits or for two of 2 bits, and a swizzle replaces it by
 * the value of a code.  Signs are applied to bytes, which are then widened to 16 bits.
 *
 * A lane is a row, as in tiles_simd128.c, so one token is multiplied with codes as they are unpacked, and for many
 * tokens they are stored in a panel.
 */
#include "kernels/kernels.h"
#include "kernels/simd128.h"

#if defined(HAVE_SIMD128)

#include "kernels/grids.h"
#include "kernels/tiles_simd128.h"

/* The values that a nibble stands for: that of its one code of 3 bits twice, or those of its two codes of 2 bits. */
struct values { v128_t first, second; };

static struct values values_of(const struct grid_type *t) {
    int8_t first[16], second[16];
    for (size_t i = 0; i < 16; i++) {
        first[i] = t->values[t->n_entry == 2 ? i & 7 : i & 3];
        second[i] = t->values[t->n_entry == 2 ? i & 7 : i >> 2];
    }
    return (struct values) { wasm_v128_load(first), wasm_v128_load(second) };
}

/* Number i of a field in 4 rows, whose words begin at `words`. */
ALWAYS_INLINE v128_t field(const uint8_t *words, const struct grid_field *f, uint32_t i) {
    uint32_t at = f->first + i / 4 * f->four + i % 4 * f->step;
    return wasm_v128_and(wasm_u32x4_shr(word(words, at / 32), at % 32), wasm_i32x4_splat((1 << f->bits) - 1));
}

/* Returns the entries with the indexes in the lanes, with each nibble in a byte. */
ALWAYS_INLINE v128_t nibbles(const uint16_t *grid, v128_t index) {
    uint32_t at[4];
    wasm_v128_store(at, index);
    v128_t entry = wasm_i32x4_splat(0);
    entry = wasm_v128_load16_lane(grid + at[0], entry, 0);
    entry = wasm_v128_load16_lane(grid + at[1], entry, 2);
    entry = wasm_v128_load16_lane(grid + at[2], entry, 4);
    entry = wasm_v128_load16_lane(grid + at[3], entry, 6);
    return wasm_v128_and(wasm_v128_or(entry, wasm_i32x4_shl(entry, 12)), wasm_i8x16_splat(15));
}

/* Sets bit 7 of each lane so that the number of ones in bits 0 .. 7 is even.  Bits above 7 are undefined. */
ALWAYS_INLINE v128_t even_signs(v128_t signs) {
    v128_t odd = wasm_v128_xor(signs, wasm_u32x4_shr(signs, 4));
    odd = wasm_v128_xor(odd, wasm_u32x4_shr(odd, 2));
    odd = wasm_v128_xor(odd, wasm_u32x4_shr(odd, 1));
    return wasm_v128_or(signs, wasm_i32x4_shl(odd, 7));
}

/* Returns -1 in the bytes whose bit of `bit` is set in their lane's lowest byte, else 0. */
ALWAYS_INLINE v128_t byte_of_bit(v128_t lowest, v128_t bit) {
    return wasm_i8x16_eq(wasm_v128_and(lowest, bit), bit);
}

/* Stores four codes of 4 rows as two pairs in even-odd order. */
ALWAYS_INLINE void widen(v128_t pairs[2], v128_t codes) {
    pairs[0] = wasm_i16x8_shr(wasm_i16x8_shl(codes, 8), 8);
    pairs[1] = wasm_i16x8_shr(codes, 8);
}

/* Unpacks vector v of a superblock: the codes of 8 weights of 4 rows. */
ALWAYS_INLINE void unpack_vector(v128_t pairs[4], const struct grid_type *t, const struct values *values,
                                 const uint8_t *words, uint32_t v) {
    v128_t low = field(words, &t->low, v), high = wasm_i32x4_splat(0), n0, n1;
    if (t->high.bits) high = field(words, &t->high, v);
    if (t->n_entry == 2) {
        v128_t first = wasm_v128_and(low, wasm_i32x4_splat(255)), second = wasm_u32x4_shr(low, 8);
        v128_t bit = wasm_v128_and(high, wasm_i32x4_splat(1));
        n0 = nibbles(t->grid, wasm_v128_or(first, wasm_i32x4_shl(bit, 8)));
        n1 = nibbles(t->grid, wasm_v128_or(second, wasm_i32x4_shl(wasm_u32x4_shr(high, 1), 8)));
    } else {
        n0 = n1 = nibbles(t->grid, wasm_v128_or(low, wasm_i32x4_shl(high, 8)));
    }
    v128_t a = wasm_i8x16_swizzle(values->first, n0), b = wasm_i8x16_swizzle(values->second, n1);
    v128_t signs = field(words, &t->signs, v);
    if (t->signs.bits == 1) {
        v128_t two = wasm_v128_and(wasm_i32x4_shr(wasm_i32x4_shl(signs, 31), 31), wasm_i8x16_splat(2));
        a = wasm_i8x16_sub(a, two);
        b = wasm_i8x16_sub(b, two);
    } else {
        if (t->signs.bits == 7) signs = even_signs(signs);
        v128_t lowest = wasm_i8x16_shuffle(signs, signs, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
        v128_t minus_a = byte_of_bit(lowest, wasm_i32x4_splat(0x08040201));
        v128_t minus_b = byte_of_bit(lowest, wasm_i32x4_splat((int32_t)0x80402010));
        a = wasm_i8x16_sub(wasm_v128_xor(a, minus_a), minus_a);
        b = wasm_i8x16_sub(wasm_v128_xor(b, minus_b), minus_b);
    }
    widen(pairs, a);
    widen(pairs + 2, b);
}

/* Stores the scales of the groups of a superblock, (256 / group, 8) f32. */
static void store_scales(float *scales, const struct grid_type *t, const uint8_t *tile) {
    const uint8_t *words = tile + (t->words > 0 ? 2 * TILE_ROWS : 0);
    for (uint32_t half = 0; half < 2; half++, scales += 4, words += 16) {
        v128_t d;
        if (t->words > 0) {
            d = f16_small(wasm_i32x4_load16x4(tile + 8 * half));
        } else {   /* the high 4 bits of each u16 of words 12 and 13 */
            v128_t w0 = word(words, 12), w1 = word(words, 13), mask = wasm_i32x4_splat(15);
            v128_t first = wasm_v128_and(wasm_u32x4_shr(w0, 12), mask), second = wasm_u32x4_shr(w0, 28);
            v128_t third = wasm_v128_and(wasm_u32x4_shr(w1, 12), mask), fourth = wasm_u32x4_shr(w1, 28);
            d = wasm_v128_or(wasm_v128_or(first, wasm_i32x4_shl(second, 4)),
                             wasm_v128_or(wasm_i32x4_shl(third, 8), wasm_i32x4_shl(fourth, 12)));
            d = f16_small_low(d);
        }
        d = wasm_f32x4_mul(d, wasm_f32x4_splat(SUPERBLOCK_F16_FACTOR * t->factor));
        for (uint32_t g = 0; g < 256u / t->group; g++) {
            v128_t sc = wasm_v128_or(wasm_i32x4_shl(field(words, &t->scale, g), 1), wasm_i32x4_splat(1));
            wasm_v128_store(scales + TILE_ROWS * g, wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(sc)));
        }
    }
}

/* y = 8 packed rows times one token. */
static __attribute__((noinline)) void grid_dot(float y[TILE_ROWS], const struct grid_type *t, const uint8_t *rows,
                                               const struct activations *a) {
    const struct values values = values_of(t);
    const int16_t *q = a->q;
    const float *d = a->d;
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0;
    uint32_t bytes = t->bytes * TILE_ROWS, n_vector = t->group / 8;
    for (const uint8_t *tile = rows, *end = rows + a->n / 256 * bytes; tile < end; tile += bytes) {
        float scales[GRID_MAX_GROUPS * TILE_ROWS];
        store_scales(scales, t, tile);
        const uint8_t *words = tile + (t->words > 0 ? 2 * TILE_ROWS : 0);
        const float *scale = scales;
        for (uint32_t v = 0; v < 32; scale += TILE_ROWS) {
            v128_t dots[2] = { wasm_i32x4_splat(0), wasm_i32x4_splat(0) };
            v128_t dq = wasm_v128_load32_splat(d + v / 4);
            LOOP_ROLLED
            for (uint32_t vend = v + n_vector; v < vend; v++, q += 8) {
                LOOP_UNROLLED
                for (uint32_t half = 0; half < 2; half++) {
                    v128_t pairs[4];
                    unpack_vector(pairs, t, &values, words + 16 * half, v);
                    for (uint32_t i = 0; i < 4; i++) {
                        v128_t x = wasm_v128_load32_splat(q + 2 * i);
                        dots[half] = wasm_i32x4_add(dots[half], wasm_i32x4_dot_i16x8(pairs[i], x));
                    }
                }
            }
            f0 = add_dots(f0, dots[0], wasm_v128_load(scale), dq);
            f1 = add_dots(f1, dots[1], wasm_v128_load(scale + 4), dq);
        }
        d += 8;
    }
    wasm_v128_store(y, f0);
    wasm_v128_store(y + 4, f1);
}

static __attribute__((noinline)) void grid_unpack(struct panel *p, const struct grid_type *t, const uint8_t *rows) {
    const struct values values = values_of(t);
    int16_t *to = p->pairs;
    float *scales = p->scales;
    uint32_t bytes = t->bytes * TILE_ROWS;
    for (const uint8_t *tile = rows, *end = rows + p->n / 256 * bytes; tile < end; tile += bytes) {
        store_scales(scales, t, tile);
        scales += 256u / t->group * TILE_ROWS;
        const uint8_t *words = tile + (t->words > 0 ? 2 * TILE_ROWS : 0);
        for (uint32_t v = 0; v < 32; v++, to += 8 * TILE_ROWS) {
            LOOP_UNROLLED
            for (uint32_t half = 0; half < 2; half++) {
                v128_t pairs[4];
                unpack_vector(pairs, t, &values, words + 16 * half, v);
                for (uint32_t i = 0; i < 4; i++) wasm_v128_store(to + 8 * half + 16 * i, pairs[i]);
            }
        }
    }
    p->group = t->group;
    p->min_kind = NO_MIN;
}

#define GRID_TYPES(X)                                                                     \
    X(QUANT_IQ2_XXS, iq2_xxs)                                                             \
    X(QUANT_IQ2_XS, iq2_xs)                                                               \
    X(QUANT_IQ2_S, iq2_s)                                                                 \
    X(QUANT_IQ3_XXS, iq3_xxs)                                                             \
    X(QUANT_IQ3_S, iq3_s)                                                                 \
    X(QUANT_IQ1_S, iq1_s)                                                                 \
    X(QUANT_IQ1_M, iq1_m)

#define DOT_AND_UNPACK(TYPE, NAME)                                                        \
static void NAME##_dot__simd128(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) { \
    grid_dot(y, &grid_##NAME, rows, a);                                                   \
}                                                                                         \
static void NAME##_unpack__simd128(struct panel *p, const uint8_t *rows) { grid_unpack(p, &grid_##NAME, rows); }
GRID_TYPES(DOT_AND_UNPACK)

void kernels_fill_grids(struct kernels *k) {
#define FILL(TYPE, NAME) k->dot[TYPE] = NAME##_dot__simd128, k->unpack[TYPE] = NAME##_unpack__simd128;
    GRID_TYPES(FILL)
}

#else
typedef int grids_simd128_is_empty;   /* ISO C wants a declaration in every file */
#endif

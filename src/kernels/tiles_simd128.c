/* WASM SIMD128 on packed weights: for each type one walk over the words of a tile (quant/pack.h) that takes its codes
 * apart in pairs, and two uses of it: the dot with one token (NAME_dot) and the panel for many (NAME_unpack).
 *
 * A walk hands PAIR(i, w0, w1) the codes of pair i, in order B, of rows 0 .. 3 and 4 .. 7, as i16 without the type's
 * bias.  The dot counts the bias in as the first value of its sums: -bias * (sum of the activations' codes).
 * 16-bit lanes hold two bytes: a mask takes the even ones, a shift the odd ones.
 */
#include "kernels/kernels.h"

#if defined(__wasm_simd128__)

#include "kernels/f16_simd128.h"

/* ---- what all types share ---------------------------------------------------------------------------------------- */

/* f16 as f32 times 2^-112: exact, and enough where 2^112 can go into another factor.  None is infinite or NaN
 * (quant_pack); subnormal ones stay so, which costs x86 time but is rare where each 32 weights have a scale.
 * Of four i32 with the value of i16, and of the low and the high halves of four lanes. */
static inline v128_t f16_small(v128_t h) {
    return wasm_v128_and(wasm_i32x4_shl(h, 13), wasm_i32x4_splat((int32_t)0x8fffe000));
}
static inline v128_t f16_small_high(v128_t h) {
    return wasm_v128_and(wasm_i32x4_shr(h, 3), wasm_i32x4_splat((int32_t)0x8fffe000));
}
static inline v128_t f16_small_low(v128_t h) { return f16_small_high(wasm_i32x4_shl(h, 16)); }
#define F16_SMALL 0x1p112f

/* y + dots * (scale * d), per lane. */
static inline v128_t add_dots(v128_t y, v128_t dots, v128_t scale, v128_t d) {
    return wasm_f32x4_add(y, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(dots), wasm_f32x4_mul(scale, d)));
}
static inline v128_t subtract(v128_t y, v128_t min, v128_t sum) { return wasm_f32x4_sub(y, wasm_f32x4_mul(min, sum)); }

#define SPLAT(x, i) wasm_i32x4_shuffle(x, x, i, i, i, i)
#define DOT(acc, w, x) acc = wasm_i32x4_add(acc, wasm_i32x4_dot_i16x8(w, x))
/* PAIR of a dot: sums a0 and a1, activations of pairs 4k .. 4k + 3 in x[k]. */
#define DOT_PAIR(i, w0, w1)                                                               \
    do {                                                                                  \
        v128_t x_ = SPLAT(x[(i) / 4], (i) % 4);                                           \
        DOT(a0, w0, x_);                                                                  \
        DOT(a1, w1, x_);                                                                  \
    } while (0)
/* PAIR of a panel: codes less bias to pairs. */
#define STORE_PAIR(i, w0, w1)                                                             \
    do {                                                                                  \
        wasm_v128_store(pairs + 16 * (i), wasm_i16x8_sub(w0, bias));                      \
        wasm_v128_store(pairs + 16 * (i) + 8, wasm_i16x8_sub(w1, bias));                  \
    } while (0)

/* The even and the odd bytes of 16-bit lanes. */
static inline v128_t even_bytes_signed(v128_t v) { return wasm_i16x8_shr(wasm_i16x8_shl(v, 8), 8); }
static inline v128_t odd_bytes_signed(v128_t v) { return wasm_i16x8_shr(v, 8); }

/* ---- blocks of 32 ------------------------------------------------------------------------------------------------ */

/* Word j of 4: weights 4j .. 4j + 3 in the low nibbles, 16 more in the high ones. */
#define NIBBLES(PAIR, words, j)                                                           \
    do {                                                                                  \
        v128_t u0 = wasm_v128_load((words) + 32 * (j)), u1 = wasm_v128_load((words) + 32 * (j) + 16); \
        PAIR(2 * (j), wasm_v128_and(u0, m15), wasm_v128_and(u1, m15));                    \
        PAIR(2 * (j) + 1, wasm_v128_and(wasm_u16x8_shr(u0, 8), m15), wasm_v128_and(wasm_u16x8_shr(u1, 8), m15)); \
        PAIR(2 * (j) + 8, wasm_v128_and(wasm_u16x8_shr(u0, 4), m15), wasm_v128_and(wasm_u16x8_shr(u1, 4), m15)); \
        PAIR(2 * (j) + 9, wasm_u16x8_shr(u0, 12), wasm_u16x8_shr(u1, 12));                \
    } while (0)
#define WALK_NIBBLES(PAIR, words)                                                         \
    const v128_t m15 = wasm_i16x8_splat(15);                                              \
    NIBBLES(PAIR, words, 0);                                                              \
    NIBBLES(PAIR, words, 1);                                                              \
    NIBBLES(PAIR, words, 2);                                                              \
    NIBBLES(PAIR, words, 3)

/* Word j of 8: weights 4j .. 4j + 3. */
#define BYTES(PAIR, words, j)                                                             \
    do {                                                                                  \
        v128_t u0 = wasm_v128_load((words) + 32 * (j)), u1 = wasm_v128_load((words) + 32 * (j) + 16); \
        PAIR(2 * (j), even_bytes_signed(u0), even_bytes_signed(u1));                      \
        PAIR(2 * (j) + 1, odd_bytes_signed(u0), odd_bytes_signed(u1));                    \
    } while (0)
#define WALK_BYTES(PAIR, words)                                                           \
    BYTES(PAIR, words, 0);                                                                \
    BYTES(PAIR, words, 1);                                                                \
    BYTES(PAIR, words, 2);                                                                \
    BYTES(PAIR, words, 3);                                                                \
    BYTES(PAIR, words, 4);                                                                \
    BYTES(PAIR, words, 5);                                                                \
    BYTES(PAIR, words, 6);                                                                \
    BYTES(PAIR, words, 7)

/* A type of blocks of 32: its walk, the byte of a tile where the walk begins, what its codes are too large by, and
 * whether each d (f16, in lanes of 16 bits) has an m behind it (in the high halves of 32). */
#define BLOCKS_OF_32(NAME, WALK, TILE_BYTES, WORDS, BIAS, HAS_MIN)                        \
static void NAME##_dot(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a, uint32_t t) { \
    size_t n_block = a->n / 32;                                                           \
    const int16_t *q = a->q + (size_t)t * a->n;                                           \
    const float *d = a->d + t * n_block, *sum = a->sum32 + t * n_block;                   \
    const int32_t *isum = a->isum32 + t * n_block;                                        \
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0;                                          \
    for (const uint8_t *w = rows, *end = rows + n_block * (TILE_BYTES); w < end; w += (TILE_BYTES), q += 32) { \
        v128_t a0 = wasm_i32x4_splat(0), a1;                                              \
        if (BIAS) a0 = wasm_i32x4_mul(wasm_v128_load32_splat(isum++), wasm_i32x4_splat(-(BIAS))); \
        a1 = a0;                                                                          \
        const v128_t x[4] = { wasm_v128_load(q), wasm_v128_load(q + 8), wasm_v128_load(q + 16), \
                              wasm_v128_load(q + 24) };                                   \
        WALK(DOT_PAIR, w + (WORDS));                                                      \
        v128_t dq = wasm_f32x4_mul(wasm_v128_load32_splat(d++), wasm_f32x4_splat(F16_SMALL)); \
        if (HAS_MIN) {                                                                    \
            v128_t h0 = wasm_v128_load(w), h1 = wasm_v128_load(w + 16);                   \
            f0 = add_dots(f0, a0, f16_small_low(h0), dq);                                 \
            f1 = add_dots(f1, a1, f16_small_low(h1), dq);                                 \
            v128_t back = wasm_f32x4_splat(-F16_SMALL), s = wasm_v128_load32_splat(sum++); \
            f0 = subtract(f0, wasm_f32x4_mul(f16_small_high(h0), back), s);               \
            f1 = subtract(f1, wasm_f32x4_mul(f16_small_high(h1), back), s);               \
        } else {                                                                          \
            v128_t h = wasm_v128_load(w);                                                 \
            f0 = add_dots(f0, a0, f16_small(wasm_i32x4_extend_low_i16x8(h)), dq);         \
            f1 = add_dots(f1, a1, f16_small(wasm_i32x4_extend_high_i16x8(h)), dq);        \
        }                                                                                 \
    }                                                                                     \
    wasm_v128_store(y, f0);                                                               \
    wasm_v128_store(y + 4, f1);                                                           \
}                                                                                         \
static void NAME##_unpack(struct panel *p, const uint8_t *rows) {                         \
    const v128_t bias = wasm_i16x8_splat(BIAS), back = wasm_f32x4_splat(F16_SMALL);       \
    int16_t *pairs = p->pairs;                                                            \
    float *scales = p->scales, *mins = p->mins;                                           \
    for (const uint8_t *w = rows, *end = rows + p->n / 32 * (TILE_BYTES); w < end; w += (TILE_BYTES), pairs += 256) { \
        WALK(STORE_PAIR, w + (WORDS));                                                    \
        if (HAS_MIN) {                                                                    \
            for (int i = 0; i < 2; i++, scales += 4, mins += 4) {                         \
                v128_t h = wasm_v128_load(w + 16 * i);                                    \
                wasm_v128_store(scales, wasm_f32x4_mul(f16_small_low(h), back));          \
                wasm_v128_store(mins, wasm_f32x4_neg(wasm_f32x4_mul(f16_small_high(h), back))); \
            }                                                                             \
        } else {                                                                          \
            v128_t h = wasm_v128_load(w);                                                 \
            wasm_v128_store(scales, wasm_f32x4_mul(f16_small(wasm_i32x4_extend_low_i16x8(h)), back)); \
            wasm_v128_store(scales + 4, wasm_f32x4_mul(f16_small(wasm_i32x4_extend_high_i16x8(h)), back)); \
            scales += 8;                                                                  \
        }                                                                                 \
    }                                                                                     \
    p->group = 32;                                                                        \
    p->has_min = HAS_MIN;                                                                 \
}

BLOCKS_OF_32(q4_0, WALK_NIBBLES, 144, 16, 8, false)
BLOCKS_OF_32(q4_1, WALK_NIBBLES, 160, 32, 0, true)
BLOCKS_OF_32(q8_0, WALK_BYTES, 272, 16, 0, false)

/* ------------------------------------------------------------------------------------------------------------------ */

void kernels_fill_tiles(struct kernels *k) {
    k->dot[QUANT_Q4_0] = q4_0_dot;
    k->dot[QUANT_Q4_1] = q4_1_dot;
    k->dot[QUANT_Q8_0] = q8_0_dot;
    k->unpack[QUANT_Q4_0] = q4_0_unpack;
    k->unpack[QUANT_Q4_1] = q4_1_unpack;
    k->unpack[QUANT_Q8_0] = q8_0_unpack;
}

#else
typedef int tiles_simd128_is_empty;   /* ISO C wants a declaration in every file */
#endif

/* WASM SIMD128 on packed weights: the dot of 8 rows with one token, and the panel of 16-bit codes for many.
 *
 * Both are written once for blocks of 32 and once for superblocks, around what tiles_simd128.h takes out of a tile;
 * each type is a constant of that template, inlined.  A register holds the codes of 4 rows, four bytes of each: as 16-bit
 * lanes, a mask takes the even bytes and a shift the odd ones, and these are pairs in order B.  The dot counts the bias
 * of the codes in as the first value of its sums: -bias * (sum of the activations' codes).
 */
#include "kernels/kernels.h"

#if defined(__wasm_simd128__)

#include "kernels/tiles_simd128.h"

/* ---- eight weights of 8 rows ------------------------------------------------------------------------------------- */

#define SPLAT(x, i) wasm_i32x4_shuffle(x, x, i, i, i, i)
#define DOT(acc, w, x) acc = wasm_i32x4_add(acc, wasm_i32x4_dot_i16x8(w, x))

ALWAYS_INLINE v128_t even_bytes(v128_t v) { return wasm_v128_and(v, wasm_i16x8_splat(255)); }
ALWAYS_INLINE v128_t odd_bytes(v128_t v) { return wasm_u16x8_shr(v, 8); }

/* sum (rows 0 .. 3, rows 4 .. 7) += words j and j + 1 of group k times the activations x of these 8 weights. */
ALWAYS_INLINE void dot_8(v128_t sum[2], tile_codes *codes, const uint8_t *low, const uint8_t *high, uint32_t k,
                         uint32_t j, v128_t x) {
    v128_t c0 = codes(low, high, k, j), c1 = codes(low + 16, high + 16, k, j), s = SPLAT(x, 0);
    DOT(sum[0], even_bytes(c0), s);
    DOT(sum[1], even_bytes(c1), s);
    s = SPLAT(x, 1);
    DOT(sum[0], odd_bytes(c0), s);
    DOT(sum[1], odd_bytes(c1), s);
    c0 = codes(low, high, k, j + 1), c1 = codes(low + 16, high + 16, k, j + 1), s = SPLAT(x, 2);
    DOT(sum[0], even_bytes(c0), s);
    DOT(sum[1], even_bytes(c1), s);
    s = SPLAT(x, 3);
    DOT(sum[0], odd_bytes(c0), s);
    DOT(sum[1], odd_bytes(c1), s);
}

/* Word j of group k, less bias, to the two pairs of its weights. */
ALWAYS_INLINE void store_4(int16_t *pairs, tile_codes *codes, const uint8_t *low, const uint8_t *high, uint32_t k,
                           uint32_t j, int16_t bias) {
    for (uint32_t half = 0; half < 2; half++, pairs += 8, low += 16, high += 16) {
        v128_t c = codes(low, high, k, j);
        wasm_v128_store(pairs, wasm_i16x8_sub(even_bytes(c), wasm_i16x8_splat(bias)));
        wasm_v128_store(pairs + 16, wasm_i16x8_sub(odd_bytes(c), wasm_i16x8_splat(bias)));
    }
}

/* ---- blocks of 32 ------------------------------------------------------------------------------------------------ */

/* Where a tile has its words, what its codes are too large by, and whether each d has an m behind it. */
struct block {
    tile_codes *codes;
    uint32_t bytes, low, high;
    int16_t bias;
    bool has_min;
};

ALWAYS_INLINE void block_dot(const struct block *b, float y[TILE_ROWS], const uint8_t *rows,
                             const struct activations *a, uint32_t t) {
    size_t n_block = a->n / 32;
    const int16_t *q = a->q + (size_t)t * a->n;
    const float *d = a->d + t * n_block, *sum = a->sum32 + t * n_block;
    const int32_t *isum = a->isum32 + t * n_block;
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0;
    for (const uint8_t *w = rows, *end = rows + n_block * b->bytes; w < end; w += b->bytes, q += 32) {
        v128_t bias = wasm_i32x4_splat(0);
        if (b->bias) bias = wasm_i32x4_mul(wasm_v128_load32_splat(isum++), wasm_i32x4_splat(-b->bias));
        v128_t dots[2] = { bias, bias };
        /* The low and the high nibbles of the same words behind each other. */
        dot_8(dots, b->codes, w + b->low, w + b->high, 0, 0, wasm_v128_load(q));
        dot_8(dots, b->codes, w + b->low, w + b->high, 0, 4, wasm_v128_load(q + 16));
        dot_8(dots, b->codes, w + b->low, w + b->high, 0, 2, wasm_v128_load(q + 8));
        dot_8(dots, b->codes, w + b->low, w + b->high, 0, 6, wasm_v128_load(q + 24));
        v128_t dq = wasm_f32x4_mul(wasm_v128_load32_splat(d++), wasm_f32x4_splat(F16_SMALL));
        if (b->has_min) {
            v128_t h0 = wasm_v128_load(w), h1 = wasm_v128_load(w + 16);
            f0 = add_dots(f0, dots[0], f16_small_low(h0), dq);
            f1 = add_dots(f1, dots[1], f16_small_low(h1), dq);
            v128_t back = wasm_f32x4_splat(-F16_SMALL), s = wasm_v128_load32_splat(sum++);
            f0 = subtract(f0, wasm_f32x4_mul(f16_small_high(h0), back), s);
            f1 = subtract(f1, wasm_f32x4_mul(f16_small_high(h1), back), s);
        } else {
            v128_t h = wasm_v128_load(w);
            f0 = add_dots(f0, dots[0], f16_small(wasm_i32x4_extend_low_i16x8(h)), dq);
            f1 = add_dots(f1, dots[1], f16_small(wasm_i32x4_extend_high_i16x8(h)), dq);
        }
    }
    wasm_v128_store(y, f0);
    wasm_v128_store(y + 4, f1);
}

ALWAYS_INLINE void block_unpack(const struct block *b, struct panel *p, const uint8_t *rows) {
    const v128_t back = wasm_f32x4_splat(F16_SMALL);
    int16_t *pairs = p->pairs;
    float *scales = p->scales, *mins = p->mins;
    for (const uint8_t *w = rows, *end = rows + p->n / 32 * b->bytes; w < end; w += b->bytes) {
        for (uint32_t j = 0; j < 8; j++, pairs += 32) {
            store_4(pairs, b->codes, w + b->low, w + b->high, 0, j, b->bias);
        }
        for (uint32_t half = 0; half < 2; half++, scales += 4) {
            if (b->has_min) {
                v128_t h = wasm_v128_load(w + 16 * half);
                wasm_v128_store(scales, wasm_f32x4_mul(f16_small_low(h), back));
                wasm_v128_store(mins, wasm_f32x4_neg(wasm_f32x4_mul(f16_small_high(h), back)));
                mins += 4;
            } else {
                v128_t h = wasm_i32x4_load16x4(w + 8 * half);
                wasm_v128_store(scales, wasm_f32x4_mul(f16_small(h), back));
            }
        }
    }
    p->group = 32;
    p->has_min = b->has_min;
}

/* ---- superblocks of 256 ------------------------------------------------------------------------------------------ */

/* Where a tile has its words, how many groups there are until all is the same again some bytes further, and what the
 * codes are too large by. */
struct superblock {
    tile_codes *codes;
    tile_scales *scales;
    uint32_t bytes, low, high, period, low_step, high_step, group;
    int16_t bias;
    bool has_min;
};

ALWAYS_INLINE void superblock_dot(const struct superblock *b, float y[TILE_ROWS], const uint8_t *rows,
                                  const struct activations *a, uint32_t t) {
    const int16_t *q = a->q + (size_t)t * a->n;
    const float *d = a->d + t * (a->n / 32);
    const float *sum = (b->group == 32 ? a->sum32 : a->sum16) + t * (a->n / b->group);
    const int32_t *isum = (b->group == 32 ? a->isum32 : a->isum16) + t * (a->n / b->group);
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0;
    for (const uint8_t *w = rows, *end = rows + a->n / 256 * b->bytes; w < end; w += b->bytes) {
        float scales[16 * TILE_ROWS], mins[16 * TILE_ROWS];
        b->scales(scales, mins, w);
        const float *scale = scales, *min = mins;
        const uint8_t *low = w + b->low, *high = w + b->high;
        for (const int16_t *q_end = q + 256; q < q_end; low += b->low_step, high += b->high_step) {
#pragma clang loop unroll(full)
            for (uint32_t k = 0; k < b->period; k++, scale += 8) {
                v128_t bias = wasm_i32x4_splat(0);
                if (b->bias) bias = wasm_i32x4_mul(wasm_v128_load32_splat(isum++), wasm_i32x4_splat(-b->bias));
                v128_t dots[2] = { bias, bias };
                for (uint32_t j = 0; j < b->group / 4; j += 2, q += 8) {
                    dot_8(dots, b->codes, low, high, k, j, wasm_v128_load(q));
                }
                v128_t dq = wasm_v128_load32_splat(d + k * b->group / 32);
                f0 = add_dots(f0, dots[0], wasm_v128_load(scale), dq);
                f1 = add_dots(f1, dots[1], wasm_v128_load(scale + 4), dq);
                if (!b->has_min) continue;
                v128_t s = wasm_v128_load32_splat(sum++);
                f0 = subtract(f0, wasm_v128_load(min), s);
                f1 = subtract(f1, wasm_v128_load(min + 4), s);
                min += 8;
            }
            d += b->period * b->group / 32;
        }
    }
    wasm_v128_store(y, f0);
    wasm_v128_store(y + 4, f1);
}

ALWAYS_INLINE void superblock_unpack(const struct superblock *b, struct panel *p, const uint8_t *rows) {
    int16_t *pairs = p->pairs;
    float *scales = p->scales, *mins = p->mins;
    for (const uint8_t *w = rows, *end = rows + p->n / 256 * b->bytes; w < end; w += b->bytes) {
        b->scales(scales, mins, w);
        scales += 256 / b->group * TILE_ROWS;
        if (b->has_min) mins += 256 / b->group * TILE_ROWS;
        const uint8_t *low = w + b->low, *high = w + b->high;
        for (const int16_t *pairs_end = pairs + 256 * TILE_ROWS; pairs < pairs_end;
             low += b->low_step, high += b->high_step) {
            for (uint32_t k = 0; k < b->period; k++) {
                for (uint32_t j = 0; j < b->group / 4; j++, pairs += 32) {
                    store_4(pairs, b->codes, low, high, k, j, b->bias);
                }
            }
        }
    }
    p->group = b->group;
    p->has_min = b->has_min;
}

/* ---- the types --------------------------------------------------------------------------------------------------- */

#define UNPACK(TEMPLATE, NAME)                                                            \
static void NAME##_unpack(struct panel *p, const uint8_t *rows) { TEMPLATE##_unpack(&NAME, p, rows); }
#define DOT_AND_UNPACK(TEMPLATE, NAME)                                                    \
UNPACK(TEMPLATE, NAME)                                                                    \
static void NAME##_dot(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a, uint32_t t) { \
    TEMPLATE##_dot(&NAME, y, rows, a, t);                                                 \
}

static const struct block q4_0 = { q4_codes, 144, 16, 16, 8, false };
static const struct block q4_1 = { q4_codes, 160, 32, 32, 0, true };
static const struct block q5_0 = { q5_codes, 176, 48, 16, 16, false };
static const struct block q5_1 = { q5_codes, 192, 64, 32, 0, true };
static const struct block q8_0 = { q8_codes, 272, 16, 16, 128, false };
static const struct block iq4_nl = { iq4_codes, 144, 16, 16, 128, false };
DOT_AND_UNPACK(block, q4_0)
DOT_AND_UNPACK(block, q4_1)
DOT_AND_UNPACK(block, q5_0)
DOT_AND_UNPACK(block, q5_1)
DOT_AND_UNPACK(block, q8_0)
UNPACK(block, iq4_nl)

static const struct superblock q4_K = { q4_K_codes, q4_K_scales, 1152, 128, 128, 2, 256, 0, 32, 0, true };
static const struct superblock q5_K = { q5_K_codes, q4_K_scales, 1408, 384, 128, 8, 0, 0, 32, 0, true };
static const struct superblock q6_K = { q6_K_codes, q6_K_scales, 1680, 16, 1040, 8, 512, 256, 16, 32, false };
static const struct superblock q2_K = { q2_K_codes, q2_K_scales, 672, 128, 128, 8, 256, 0, 16, 0, true };
static const struct superblock q3_K = { q3_K_codes, q3_K_scales, 880, 272, 16, 16, 0, 0, 16, 4, false };
static const struct superblock iq4_xs = { iq4_codes, iq4_xs_scales, 1088, 64, 64, 1, 128, 0, 32, 128, false };
DOT_AND_UNPACK(superblock, q4_K)
DOT_AND_UNPACK(superblock, q5_K)
DOT_AND_UNPACK(superblock, q6_K)
UNPACK(superblock, q2_K)
UNPACK(superblock, q3_K)
UNPACK(superblock, iq4_xs)

void kernels_fill_tiles(struct kernels *k) {
    static const struct { uint32_t type; kernel_dot *dot; kernel_unpack *unpack; } types[] = {
        { QUANT_Q4_0, q4_0_dot, q4_0_unpack }, { QUANT_Q4_1, q4_1_dot, q4_1_unpack },
        { QUANT_Q5_0, q5_0_dot, q5_0_unpack }, { QUANT_Q5_1, q5_1_dot, q5_1_unpack },
        { QUANT_Q8_0, q8_0_dot, q8_0_unpack }, { QUANT_Q4_K, q4_K_dot, q4_K_unpack },
        { QUANT_Q5_K, q5_K_dot, q5_K_unpack }, { QUANT_Q6_K, q6_K_dot, q6_K_unpack },
        { QUANT_Q2_K, NULL, q2_K_unpack },     { QUANT_Q3_K, NULL, q3_K_unpack },
        { QUANT_IQ4_NL, NULL, iq4_nl_unpack }, { QUANT_IQ4_XS, NULL, iq4_xs_unpack },
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        k->dot[types[i].type] = types[i].dot;
        k->unpack[types[i].type] = types[i].unpack;
    }
}

#else
typedef int tiles_simd128_is_empty;   /* ISO C wants a declaration in every file */
#endif

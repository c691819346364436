/* WASM SIMD128 kernels of attention.  Each gives the same bits as its scalar namesake.  Loops advance pointers instead
 * of an index, because V8 then folds the offsets into its loads. */
/* Compiled for speed. */
#include "kernels/attention.h"
#include "kernels/simd128.h"

#if defined(HAVE_SIMD128)

#include "kernels/lanes_simd128.h"

#include "base/math.h"

#include <math.h>

/* Rounds |x| < 2^22 to i32 as rintf does: the bits of 1.5 * 2^23 + x are those of 1.5 * 2^23 plus x as an integer.
 * i32x4.trunc_sat_f32x4 would cost six instructions on x86, which has none that saturates in the same way. */
static inline v128_t round_x4(v128_t x) {
    const v128_t magic = register_f32x4(0x1.8p23f);
    return wasm_i32x4_sub(wasm_f32x4_add(x, magic), magic);
}

static inline v128_t round_x8(v128_t low, v128_t high) {
    return wasm_i16x8_narrow_i32x4(round_x4(low), round_x4(high));
}

/* Returns the codes of 8 floats. */
static inline v128_t quantize_x8(const float *x, v128_t inverse) {
    return round_x8(wasm_f32x4_mul(wasm_v128_load(x), inverse), wasm_f32x4_mul(wasm_v128_load(x + 4), inverse));
}

static float quantize__simd128(const float *x, int16_t *codes, size_t n, float max_code, float norm) {
    const v128_t magnitude_mask = wasm_i32x4_splat(0x7fffffff);
    size_t tail = n % 8, rest = n % 4;
    const float *end = x + (n - rest);
    v128_t m = wasm_i32x4_splat(0);
    for (const float *p = x; p < end; p += 4) m = wasm_u32x4_max(m, wasm_v128_and(wasm_v128_load(p), magnitude_mask));
    if (rest != 0) m = wasm_u32x4_max(m, wasm_v128_and(load_tail(end, rest), magnitude_mask));
    m = wasm_u32x4_max(m, wasm_i32x4_shuffle(m, m, 2, 3, 0, 1));
    m = wasm_u32x4_max(m, wasm_i32x4_shuffle(m, m, 1, 0, 3, 2));
    uint32_t amax_bits = (uint32_t)wasm_i32x4_extract_lane(m, 0);
    float amax = f32_from_bits(amax_bits);
    if (amax_bits >= 0x7f800000u || amax < ATTN_MIN) {
        memset(codes, 0, n * sizeof *codes);
        return amax < ATTN_MIN ? 0.0f : NAN;
    }
    v128_t sum = wasm_f32x4_splat(0.0f), inverse = wasm_f32x4_splat(1.0f / amax);
    for (const float *p = x; p < end; p += 4) {
        v128_t y = wasm_f32x4_mul(wasm_v128_load(p), inverse);
        sum = wasm_f32x4_add(sum, wasm_f32x4_mul(y, y));
    }
    if (rest != 0) {
        v128_t y = wasm_f32x4_mul(load_tail(end, rest), inverse);
        sum = wasm_f32x4_add(sum, wasm_f32x4_mul(y, y));
    }
    float bound = norm / (float)math_sqrt((double)sum_lanes(sum));
    if (bound > max_code) bound = max_code;
    inverse = wasm_f32x4_splat(bound / amax);
    for (end = x + (n - tail); x < end; x += 8, codes += 8) wasm_v128_store(codes, quantize_x8(x, inverse));
    if (tail != 0) {
        float lanes[8] = { 0 };
        int16_t rounded[8];
        memcpy(lanes, x, tail * sizeof *x);
        wasm_v128_store(rounded, quantize_x8(lanes, inverse));
        memcpy(codes, rounded, tail * sizeof *codes);
    }
    return amax / bound;
}

/* ---- products with K and V -----------------------------------------------------------------------------------------
 *
 * A tile of 8 lanes is multiplied with up to 4 queries or rows of weights.  With 4, registers hold 8 vectors of sums,
 * two vectors of codes of the tile, and a pair of codes of a query, which is splat as it is loaded: on x86 that
 * occupies no vector unit. */

/* Loads codes i .. i + 7 of a tile as 16-bit lanes. */
static inline v128_t load_codes(const uint8_t *tile, size_t i, bool is_wide) {
    return is_wide ? wasm_v128_load(tile + 2 * i) : wasm_i16x8_load8x8(tile + i);
}

#define DOT(acc, w, x) acc = wasm_i32x4_add(acc, wasm_i32x4_dot_i16x8(w, x))

/* For each query, the sums of lanes 0 .. 3 and 4 .. 7 of a tile. */
struct tile_sums { v128_t low[ATTN_QUERIES], high[ATTN_QUERIES]; };

/* Multiplies the 8 lanes of a tile, which ends at end, with n_query rows of codes.  x: (n_query, stride) codes.
 * n_query and is_wide are constants wherever this is inlined. */
ALWAYS_INLINE struct tile_sums dot_tile(const uint8_t *tile, const uint8_t *end, const int16_t *x, size_t stride,
                                        size_t n_query, bool is_wide) {
    struct tile_sums sums;
    const int16_t *row[ATTN_QUERIES];
    for (size_t t = 0; t < n_query; t++) {
        sums.low[t] = sums.high[t] = wasm_i32x4_splat(0);
        row[t] = x + t * stride;
    }
    LOOP_ROLLED
    for (; tile < end; tile += is_wide ? 128 : 64) {
        LOOP_UNROLLED
        for (size_t t = 0; t < n_query; t++) OPAQUE(tile, row[t]);
        LOOP_UNROLLED
        for (size_t i = 0; i < 4; i++) {
            v128_t w0 = load_codes(tile, 16 * i, is_wide), w1 = load_codes(tile, 16 * i + 8, is_wide);
            LOOP_UNROLLED
            for (size_t t = 0; t < n_query; t++) {
                v128_t pair = wasm_v128_load32_splat(row[t] + 2 * i);
                DOT(sums.low[t], w0, pair);
                DOT(sums.high[t], w1, pair);
            }
            LOOP_UNROLLED
            for (size_t t = 0; t < n_query; t++) IN_ORDER(sums.low[t], sums.high[t]);
        }
        LOOP_UNROLLED
        for (size_t t = 0; t < n_query; t++) row[t] += 8;
    }
    return sums;
}

static inline v128_t times(v128_t dots, v128_t scale) { return wasm_f32x4_mul(wasm_f32x4_convert_i32x4(dots), scale); }

ALWAYS_INLINE void scores_n(float *s, size_t stride, const void *k, const float *k_scale, size_t n_tile,
                            const int16_t *q, const float *q_scale, size_t n_dim, size_t n_query, bool is_wide) {
    const uint8_t *tile = k;
    size_t tile_bytes = n_dim * (is_wide ? 16 : 8);
    for (const float *end = k_scale + n_tile * ATTN_TILE; k_scale < end; k_scale += 8, s += 8, tile += tile_bytes) {
        struct tile_sums dots = dot_tile(tile, tile + tile_bytes, q, n_dim, n_query, is_wide);
        v128_t low = wasm_v128_load(k_scale), high = wasm_v128_load(k_scale + 4);
        LOOP_UNROLLED
        for (size_t t = 0; t < n_query; t++) {
            v128_t scale = wasm_v128_load32_splat(q_scale + t);
            wasm_v128_store(s + t * stride, times(dots.low[t], wasm_f32x4_mul(low, scale)));
            wasm_v128_store(s + t * stride + 4, times(dots.high[t], wasm_f32x4_mul(high, scale)));
        }
    }
}

/* Blocks are the outer loop, because they follow each other in memory.  out therefore holds the sums so far; the first
 * block does not read it. */
ALWAYS_INLINE void values_n(float *out, size_t stride, const void *v, size_t n_tile, size_t n_block,
                            const int16_t *w, const float *d, size_t n_w, size_t n_query, bool is_wide) {
    size_t tile_bytes = ATTN_BLOCK * ATTN_TILE * (is_wide ? 2 : 1);
    const uint8_t *block = v;
    for (const float *end = d + n_block; d < end; d++, w += ATTN_BLOCK, block += n_tile * tile_bytes) {
        v128_t step[ATTN_QUERIES];
        for (size_t t = 0; t < n_query; t++) {
            step[t] = wasm_v128_load32_splat(d + t * (n_w / ATTN_BLOCK));
        }
        float *y = out;
        const uint8_t *tile = block;
        for (const uint8_t *last = tile + n_tile * tile_bytes; tile < last; tile += tile_bytes, y += ATTN_TILE) {
            struct tile_sums dots = dot_tile(tile, tile + tile_bytes, w, n_w, n_query, is_wide);
            LOOP_UNROLLED
            for (size_t t = 0; t < n_query; t++) {
                v128_t low = wasm_f32x4_splat(0.0f), high = low;
                if (block != v) {
                    low = wasm_v128_load(y + t * stride);
                    high = wasm_v128_load(y + t * stride + 4);
                }
                wasm_v128_store(y + t * stride, wasm_f32x4_add(low, times(dots.low[t], step[t])));
                wasm_v128_store(y + t * stride + 4, wasm_f32x4_add(high, times(dots.high[t], step[t])));
            }
        }
    }
}

/* The 16-bit kernels have a loop for each number of queries. */
static void scores_i16__simd128(float *s, size_t stride, const void *k, const float *k_scale, size_t n_tile,
                                const int16_t *q, const float *q_scale, size_t n_dim, size_t n_query) {
    switch (n_query) {
    case 1: scores_n(s, stride, k, k_scale, n_tile, q, q_scale, n_dim, 1, true); break;
    case 2: scores_n(s, stride, k, k_scale, n_tile, q, q_scale, n_dim, 2, true); break;
    case 3: scores_n(s, stride, k, k_scale, n_tile, q, q_scale, n_dim, 3, true); break;
    default: scores_n(s, stride, k, k_scale, n_tile, q, q_scale, n_dim, 4, true);
    }
}

static void values_i16__simd128(float *out, size_t stride, const void *v, size_t n_tile, size_t n_block,
                                const int16_t *w, const float *d, size_t n_w, size_t n_query) {
    switch (n_query) {
    case 1: values_n(out, stride, v, n_tile, n_block, w, d, n_w, 1, true); break;
    case 2: values_n(out, stride, v, n_tile, n_block, w, d, n_w, 2, true); break;
    case 3: values_n(out, stride, v, n_tile, n_block, w, d, n_w, 3, true); break;
    default: values_n(out, stride, v, n_tile, n_block, w, d, n_w, 4, true);
    }
}

/* The 8-bit kernels have one loop, for 4 queries, which saves 9 KB of code.  It also computes results for queries from
 * n_query on, which callers ignore. */
static void scores_i8__simd128(float *s, size_t stride, const void *k, const float *k_scale, size_t n_tile,
                               const int16_t *q, const float *q_scale, size_t n_dim, size_t n_query) {
    (void)n_query;
    scores_n(s, stride, k, k_scale, n_tile, q, q_scale, n_dim, 4, false);
}

static void values_i8__simd128(float *out, size_t stride, const void *v, size_t n_tile, size_t n_block,
                               const int16_t *w, const float *d, size_t n_w, size_t n_query) {
    (void)n_query;
    values_n(out, stride, v, n_tile, n_block, w, d, n_w, 4, false);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static inline v128_t exp2__simd128(v128_t x) {
    const v128_t magic = register_f32x4(EXP2_ROUND);
    v128_t rounded = wasm_f32x4_add(x, magic), f = wasm_f32x4_sub(x, wasm_f32x4_sub(rounded, magic));
    v128_t e = mul_add(register_f32x4(EXP2_C3), register_f32x4(EXP2_C4), f);
    e = mul_add(register_f32x4(EXP2_C2), e, f);
    e = mul_add(register_f32x4(EXP2_C1), e, f);
    e = mul_add(register_f32x4(1.0f), e, f);
    return wasm_f32x4_mul(e, wasm_i32x4_shl(rounded, 23));
}

static float weigh__simd128(float *s, size_t n_seen, size_t n, float *top) {
    for (size_t i = n_seen; i < n; i++) s[i] = -INFINITY;
    v128_t m = wasm_f32x4_splat(-INFINITY), m1 = m, sum = wasm_f32x4_splat(0.0f);
    for (const float *p = s, *end = s + n; p < end; p += 8) {
        m = wasm_f32x4_pmax(m, wasm_v128_load(p));
        m1 = wasm_f32x4_pmax(m1, wasm_v128_load(p + 4));
    }
    m = wasm_f32x4_pmax(m, m1);
    m = wasm_f32x4_pmax(m, wasm_i32x4_shuffle(m, m, 2, 3, 0, 1));
    m = wasm_f32x4_pmax(m, wasm_i32x4_shuffle(m, m, 1, 0, 3, 2));
    *top = ceilf(wasm_f32x4_extract_lane(m, 0));
    m = wasm_f32x4_splat(*top);
    LOOP_ROLLED   /* unrolled, it takes 2 KB more and is no faster */
    for (float *p = s, *end = s + n; p < end; p += 8) {
        LOOP_UNROLLED
        for (size_t i = 0; i < 8; i += 4) {
            v128_t x = wasm_f32x4_sub(wasm_v128_load(p + i), m);
            v128_t e = wasm_v128_andnot(exp2__simd128(x), wasm_f32x4_lt(x, register_f32x4(ATTN_BITS_MIN)));
            wasm_v128_store(p + i, e);
            sum = wasm_f32x4_add(sum, e);
        }
    }
    return sum_lanes(sum);
}

/* Makes two passes over the row, because in a single pass the latencies of the sums and the division would add up block
 * by block. */
static void fold__simd128(const float *s, size_t n_seen, size_t n, const float *v_scale, int16_t *codes, float *d) {
    const v128_t magnitude_mask = wasm_i32x4_splat(0x7fffffff);
    float tail[ATTN_BLOCK];
    for (size_t b = 0; b < n / ATTN_BLOCK; b++) {
        const float *p = s + b * ATTN_BLOCK, *scale = attention_scales(b, n_seen, v_scale, tail);
        v128_t lanes = wasm_f32x4_splat(0.0f);
        LOOP_ROLLED
        for (const float *end = p + ATTN_BLOCK; p < end; p += 4, scale += 4) {
            v128_t y = wasm_f32x4_mul(wasm_v128_load(p), wasm_v128_load(scale));
            lanes = wasm_f32x4_add(lanes, wasm_v128_and(y, magnitude_mask));
        }
        d[b] = sum_lanes(lanes);
    }
    for (size_t b = 0; b < n / ATTN_BLOCK; b++, s += ATTN_BLOCK, codes += ATTN_BLOCK) {
        const float *scale = attention_scales(b, n_seen, v_scale, tail);
        float total = d[b];
        bool is_finite = total < INFINITY;
        v128_t inverse = wasm_f32x4_splat(is_finite && total >= ATTN_MIN ? ATTN_WEIGHTS / total : 0.0f);
        v128_t count = wasm_i32x4_splat(0);
        for (int i = 0; i < ATTN_BLOCK; i += 8) {
            v128_t low = wasm_f32x4_mul(wasm_v128_load(s + i), wasm_v128_load(scale + i));
            v128_t high = wasm_f32x4_mul(wasm_v128_load(s + i + 4), wasm_v128_load(scale + i + 4));
            v128_t rounded = round_x8(wasm_f32x4_mul(low, inverse), wasm_f32x4_mul(high, inverse));
            wasm_v128_store(codes + i, rounded);
            v128_t sign = wasm_v128_or(wasm_i16x8_shr(rounded, 15), wasm_i16x8_splat(1));
            count = wasm_i32x4_add(count, wasm_i32x4_dot_i16x8(rounded, sign));
        }
        if (!is_finite) memset(codes, 0, ATTN_BLOCK * sizeof *codes);
        count = wasm_i32x4_add(count, wasm_i32x4_shuffle(count, count, 2, 3, 0, 1));
        int32_t n_code = wasm_i32x4_extract_lane(count, 0) + wasm_i32x4_extract_lane(count, 1);
        d[b] = !is_finite ? NAN : n_code > 0 ? total / (float)n_code : 0.0f;
    }
}

/* ---- RoPE -------------------------------------------------------------------------------------------------------- */

static void rotate__simd128(float *a, float *b, size_t step, const float *cosine, const float *sine, size_t n) {
    for (; n >= 4; n -= 4, a += 4 * step, b += 4 * step, cosine += 4, sine += 4) {
        v128_t x0 = wasm_v128_load(a), x1 = wasm_v128_load(step == 1 ? b : a + 4);
        if (step == 2) {
            v128_t even = wasm_i32x4_shuffle(x0, x1, 0, 2, 4, 6);
            x1 = wasm_i32x4_shuffle(x0, x1, 1, 3, 5, 7);
            x0 = even;
        }
        v128_t c = wasm_v128_load(cosine), s = wasm_v128_load(sine);
        v128_t y0 = wasm_f32x4_sub(wasm_f32x4_mul(x0, c), wasm_f32x4_mul(x1, s));
        v128_t y1 = wasm_f32x4_add(wasm_f32x4_mul(x0, s), wasm_f32x4_mul(x1, c));
        wasm_v128_store(a, step == 1 ? y0 : wasm_i32x4_shuffle(y0, y1, 0, 4, 1, 5));
        wasm_v128_store(step == 1 ? b : a + 4, step == 1 ? y1 : wasm_i32x4_shuffle(y0, y1, 2, 6, 3, 7));
    }
    for (; n > 0; n--, a += step, b += step, cosine++, sine++) {
        float x0 = *a, x1 = *b;
        *a = x0 * *cosine - x1 * *sine;
        *b = x0 * *sine + x1 * *cosine;
    }
}

void attention_fill_simd128(struct attention_kernels *k) {
    k->quantize = quantize__simd128;
    k->scores[0] = scores_i8__simd128;
    k->scores[1] = scores_i16__simd128;
    k->weigh = weigh__simd128;
    k->fold = fold__simd128;
    k->values[0] = values_i8__simd128;
    k->values[1] = values_i16__simd128;
    k->rotate = rotate__simd128;
}

#else
typedef int attention_simd128_is_empty;   /* ISO C wants a declaration in every file */
#endif

/* The portable kernels of attention.  They define the bits that every other variant must give. */
#include "kernels/attention.h"

#include "base/math.h"
#include "kernels/simd128.h"

#include <math.h>

static float sum_lanes(const float lane[4]) { return (lane[0] + lane[1]) + (lane[2] + lane[3]); }

static float quantize__scalar(const float *x, int16_t *codes, size_t n, float max_code, float norm) {
    uint32_t amax_bits = 0;   /* bits of magnitudes compare as integers: NaN above infinity above all numbers */
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = f32_to_bits(x[i]) & 0x7fffffffu;
        if (bits > amax_bits) amax_bits = bits;
    }
    float amax = f32_from_bits(amax_bits);
    memset(codes, 0, n * sizeof *codes);
    if (amax_bits >= 0x7f800000u) return NAN;
    if (amax < ATTN_MIN) return 0.0f;
    float lane[4] = { 0 }, inverse = 1.0f / amax;
    for (size_t i = 0; i < n; i++) lane[i % 4] += (x[i] * inverse) * (x[i] * inverse);
    float bound = norm / (float)math_sqrt((double)sum_lanes(lane));   /* the code of amax before it is rounded */
    if (bound > max_code) bound = max_code;
    inverse = bound / amax;
    for (size_t i = 0; i < n; i++) codes[i] = (int16_t)rintf(x[i] * inverse);
    return amax / bound;
}

/* Returns code i of an array of 8-bit or 16-bit codes. */
static inline int32_t code(const void *codes, size_t i, bool is_wide) {
    return is_wide ? ((const int16_t *)codes)[i] : ((const int8_t *)codes)[i];
}

static inline void scores__scalar(float *s, size_t stride, const void *k, const float *k_scale, size_t n_tile,
                                  const int16_t *q, const float *q_scale, size_t n_dim, size_t n_query, bool is_wide) {
    for (size_t p = 0; p < n_tile * ATTN_TILE; p++) {
        size_t row = p / ATTN_TILE * ATTN_TILE * n_dim + p % ATTN_TILE * 2;
        for (size_t t = 0; t < n_query; t++) {
            int32_t dot = 0;
            for (size_t i = 0; i < n_dim; i++) {
                dot += code(k, row + i / 2 * (2 * ATTN_TILE) + i % 2, is_wide) * q[t * n_dim + i];
            }
            s[t * stride + p] = (float)dot * (k_scale[p] * q_scale[t]);
        }
    }
}

static void scores_i8__scalar(float *s, size_t stride, const void *k, const float *k_scale, size_t n_tile,
                              const int16_t *q, const float *q_scale, size_t n_dim, size_t n_query) {
    scores__scalar(s, stride, k, k_scale, n_tile, q, q_scale, n_dim, n_query, false);
}

static void scores_i16__scalar(float *s, size_t stride, const void *k, const float *k_scale, size_t n_tile,
                               const int16_t *q, const float *q_scale, size_t n_dim, size_t n_query) {
    scores__scalar(s, stride, k, k_scale, n_tile, q, q_scale, n_dim, n_query, true);
}

/* 2^x for ATTN_BITS_MIN <= x <= 0.  NaN gives NaN. */
static float exp2__scalar(float x) {
    float rounded = x + EXP2_ROUND, f = x - (rounded - EXP2_ROUND), e = EXP2_C4;
    e = e * f + EXP2_C3;
    e = e * f + EXP2_C2;
    e = e * f + EXP2_C1;
    e = e * f + 1.0f;
    return e * f32_from_bits(f32_to_bits(rounded) << 23);
}

static float weigh__scalar(float *s, size_t n_seen, size_t n, float *top) {
    float max = -INFINITY, sum[4] = { 0 };
    for (size_t i = n_seen; i < n; i++) s[i] = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (s[i] > max) max = s[i];
    }
    *top = ceilf(max);
    for (size_t i = 0; i < n; i++) {
        float x = s[i] - *top;
        s[i] = x < ATTN_BITS_MIN ? 0.0f : exp2__scalar(x);
        sum[i % 4] += s[i];
    }
    return sum_lanes(sum);
}

static void fold__scalar(const float *s, size_t n_seen, size_t n, const float *v_scale, int16_t *codes, float *d) {
    float tail[ATTN_BLOCK];
    for (size_t b = 0; b < n / ATTN_BLOCK; b++, s += ATTN_BLOCK, codes += ATTN_BLOCK) {
        const float *scale = attention_scales(b, n_seen, v_scale, tail);
        float lane[4] = { 0 };
        for (int i = 0; i < ATTN_BLOCK; i++) lane[i % 4] += fabsf(s[i] * scale[i]);
        float total = sum_lanes(lane);
        bool is_finite = total < INFINITY;
        float inverse = is_finite && total >= ATTN_MIN ? ATTN_WEIGHTS / total : 0.0f;
        int32_t n_code = 0;
        for (int i = 0; i < ATTN_BLOCK; i++) {
            codes[i] = is_finite ? (int16_t)rintf(s[i] * scale[i] * inverse) : 0;
            n_code += codes[i] < 0 ? -codes[i] : codes[i];
        }
        d[b] = !is_finite ? NAN : n_code > 0 ? total / (float)n_code : 0.0f;
    }
}

static inline void values__scalar(float *out, size_t stride, const void *v, size_t n_tile,
                                  size_t n_block, const int16_t *w, const float *d, size_t n_w, size_t n_query,
                                  bool is_wide) {
    for (size_t t = 0; t < n_query; t++, w += n_w, d += n_w / ATTN_BLOCK) {
        for (size_t i = 0; i < n_tile * ATTN_TILE; i++) {
            size_t at = i / ATTN_TILE * ATTN_TILE * ATTN_BLOCK + i % ATTN_TILE * 2;
            float y = 0.0f;
            for (size_t b = 0; b < n_block; b++) {
                int32_t dot = 0;
                for (size_t p = 0; p < ATTN_BLOCK; p++) {
                    size_t pair = b * n_tile * (ATTN_TILE * ATTN_BLOCK) + at + p / 2 * (2 * ATTN_TILE);
                    dot += code(v, pair + p % 2, is_wide) * w[b * ATTN_BLOCK + p];
                }
                y += (float)dot * d[b];
            }
            out[t * stride + i] = y;
        }
    }
}

static void values_i8__scalar(float *out, size_t stride, const void *v, size_t n_tile, size_t n_block,
                              const int16_t *w, const float *d, size_t n_w, size_t n_query) {
    values__scalar(out, stride, v, n_tile, n_block, w, d, n_w, n_query, false);
}

static void values_i16__scalar(float *out, size_t stride, const void *v, size_t n_tile, size_t n_block,
                               const int16_t *w, const float *d, size_t n_w, size_t n_query) {
    values__scalar(out, stride, v, n_tile, n_block, w, d, n_w, n_query, true);
}

static void rotate__scalar(float *a, float *b, size_t step, const float *cosine, const float *sine, size_t n) {
    for (size_t i = 0; i < n; i++, a += step, b += step) {
        float x0 = *a, x1 = *b;
        *a = x0 * cosine[i] - x1 * sine[i];
        *b = x0 * sine[i] + x1 * cosine[i];
    }
}

void attention_fill_scalar(struct attention_kernels *k) {
    k->quantize = quantize__scalar;
    k->scores[0] = scores_i8__scalar;
    k->scores[1] = scores_i16__scalar;
    k->weigh = weigh__scalar;
    k->fold = fold__scalar;
    k->values[0] = values_i8__scalar;
    k->values[1] = values_i16__scalar;
    k->rotate = rotate__scalar;
}

void attention_kernels_init(struct attention_kernels *k, bool scalar_only) {
    attention_fill_scalar(k);
#if defined(HAVE_SIMD128)
    if (!scalar_only) attention_fill_simd128(k);
#else
    (void)scalar_only;
#endif
}

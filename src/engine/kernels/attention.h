/* The inner loops of attention over K and V that are stored as integer codes, and of RoPE.  As in kernels.h, the scalar
 * kernels fill the table, an ISA overwrites the entries it has, and every variant gives the same bits.
 *
 * Two kernels multiply a stored matrix with up to 4 vectors: `scores` multiplies K with queries, and `values`
 * multiplies V with weights.  The vectors have 16-bit codes, and the 32-bit sums are exact.  A lane of a vector
 * register is a position of K or a dim of V, so nothing is summed across lanes.  Two elements of each lane are side by
 * side, because i32x4.dot_i16x8_s adds two products in each lane:
 *
 *   K   tiles of 8 positions               (n_position / 8, n_dim / 2, 8 positions, 2 dims)
 *   V   blocks of 32 positions, each in tiles of 8 dims
 *                         (n_position / 32, n_dim / 8, 16, 8 dims, 2 positions)
 *
 * Both are read in one stream from the first position to the last.
 *
 * n_dim is the width of a head of K or of V, rounded up to a multiple of 8, n_position is a multiple of 32, and the
 * padding is zero.  Every position has one scale for its K and one for its V; where a head has several scales, each of
 * its blocks of dims is a matrix of its own.  Sums stay below 2^31 because
 *   |k . q| <= |k| |q|               the Euclidean norms of both are below 2^15.5 (Cauchy-Schwarz)
 *   |sum of w v| <= sum of w max|v|  the codes w of the weights of 32 positions add up to at most 2^15, and |v| < 2^15
 * The largest 16-bit code of a K or a query is at least ATTN_NORM / sqrt(k_dim), which is 4074 for 128 dims: 12 bits
 * and a sign if all dims are equally large, and up to 15 bits otherwise.  8-bit codes of K and V take half the memory,
 * and their sums are smaller.  Queries and weights always have 16-bit codes. */
#ifndef PLUMB_KERNELS_ATTENTION_H
#define PLUMB_KERNELS_ATTENTION_H

#include "base/base.h"

#include <math.h>
#include <string.h>

enum { ATTN_TILE = 8, ATTN_QUERIES = 4, ATTN_BLOCK = 32 };
/* Upper bound of the Euclidean norm of the codes of a K or a query before they are rounded.  Rounding adds at most
 * sqrt(n) / 2, which is 128 for the longest head (65536), where the f32 sum of squares is off by another 46:
 * 46100 + 174 < 2^15.5 = 46340.9. */
#define ATTN_NORM 46100.0f
/* The sum of the codes of a block's weights before they are rounded.  Rounding adds 16 at most. */
#define ATTN_WEIGHTS 32751.0f
/* Scores are in bits, which means that they are exponents of 2: the weight of a position is 2^(score - top) (see
 * weigh).  The caller multiplies q_scale by ATTN_LOG2E = log2(e), so that 2^score is the exp of the usual softmax.
 * Where score - top is below ATTN_BITS_MIN, the weight is 0: even 4e9 positions of weight 2^-80 would not matter. */
#define ATTN_BITS_MIN (-80.0f)
#define ATTN_LOG2E 1.44269504f
/* Vectors whose largest magnitude is below this, and blocks whose sum is, are rounded to zero, because the reciprocals
 * must stay finite. */
#define ATTN_MIN 1e-30f

/* 2^f = 1 + f (C1 + f (C2 + ...)), |f| <= 1/2.  A minimax polynomial with a relative error of 3e-6.  That is less than
 * what is lost when a weight is rounded to a code: half a unit, which is 1.5e-5 even of the largest code. */
#define EXP2_C1 0.693124175f
#define EXP2_C2 0.240240991f
#define EXP2_C3 0.0559064262f
#define EXP2_C4 0.00958285294f
/* The low 8 bits of x + EXP2_ROUND are x rounded to an integer, plus 127: shifted left by 23, they are the f32 that is
 * 2 to that integer. */
#define EXP2_ROUND (0x1.8p23f + 127.0f)

struct attention_kernels {
    /* codes[i] = round(x[i] / scale) with |codes[i]| <= max_code <= 32767.  The Euclidean norm of the codes before
     * rounding is at most norm, which may be INFINITY.  Returns scale.  The scale is 0 if all |x| are below ATTN_MIN,
     * and NaN if x holds NaN or infinity; the codes are zeros in both cases. */
    float (*quantize)(const float *x, int16_t *codes, size_t n, float max_code, float norm);
    /* s[t * stride + p] = (k_p . q_t) (k_scale[p] * q_scale[t]) for n_tile tiles of K and n_query <= 4 queries.
     * k: 8-bit codes for scores[0], 16-bit codes for scores[1].  q: (4, n_dim) codes, n_dim % 8 == 0.
     * In scores and in values, kernels may compute with 4 queries even if n_query < 4.  So all arrays with a row for
     * each query must have 4 rows.  Rows from n_query on must be initialized in inputs and are undefined in outputs. */
    void (*scores[2])(float *s, size_t stride, const void *k, const float *k_scale, size_t n_tile, const int16_t *q,
                      const float *q_scale, size_t n_dim, size_t n_query);
    /* Turns the n scores of a query, n % 32 == 0, into weights, in place: s <- 2^(s - top).  Only the first n_seen > 0
     * scores are valid; the weights of the others are 0.  *top is the largest score, rounded up to an integer.
     * Returns the sum of s.  It is NaN if a score is NaN or +infinity, or all are -infinity. */
    float (*weigh)(float *s, size_t n_seen, size_t n, float *top);
    /* Multiplies such weights by scales of V, and quantizes the products in blocks of 32.
     *   codes[i] = s[i] v_scale[i] ATTN_WEIGHTS / total, rounded     total = sum of |s[i] v_scale[i]| in a block
     *   d[i / 32] = total / (sum of |codes[i]| in the block)
     * So s[i] v_scale[i] ~ codes[i] d[i / 32].  d makes up for the rounding, so that the sum of a block stays
     * the same: the errors of equal weights, which are all rounded in the same direction, would add up otherwise.  If
     * total is below ATTN_MIN, d is 0 and all codes of the block are zeros.  If a weight or the v_scale of one of the
     * n_seen positions is NaN, d of its block is NaN and the codes of the block are zeros. */
    void (*fold)(const float *s, size_t n_seen, size_t n, const float *v_scale, int16_t *codes, float *d);
    /* out[t * stride + i] = sum over n_block > 0 blocks b, in order, of f32(dot of the codes w_t and v_i in b) *
     * d_t[b], for n_tile tiles of 8 dims i and n_query <= 4 queries t.  v: 8-bit codes for values[0], 16-bit codes for
     * values[1].  w: (4, n_w) codes, d: (4, n_w / 32), both from fold. */
    void (*values[2])(float *out, size_t stride, const void *v, size_t n_tile, size_t n_block, const int16_t *w,
                      const float *d, size_t n_w, size_t n_query);
    /* Rotates the n pairs a[i * step], b[i * step] by n angles.  step is 1 (the array b does not overlap a) or 2
     * (b = a + 1).  a <- a cos - b sin, b <- a sin + b cos. */
    void (*rotate)(float *a, float *b, size_t step, const float *cosine, const float *sine, size_t n);
};

/* Returns the scales of block b, those from n_seen on as zeros: v_scale may hold anything there, and 0 times NaN is not
 * 0.  tail: room for a copy. */
static inline const float *attention_scales(size_t b, size_t n_seen, const float *v_scale, float tail[ATTN_BLOCK]) {
    size_t begin = b * ATTN_BLOCK, n = n_seen > begin ? n_seen - begin : 0;
    if (n >= ATTN_BLOCK) return v_scale + begin;
    memset(tail, 0, ATTN_BLOCK * sizeof *tail);
    memcpy(tail, v_scale + begin, n * sizeof *tail);
    return tail;
}

/* Makes the best table of this build, or the portable one if scalar_only. */
void attention_kernels_init(struct attention_kernels *k, bool scalar_only);
void attention_fill_scalar(struct attention_kernels *k);
void attention_fill_simd128(struct attention_kernels *k);   /* only in builds with SIMD128 */

#endif

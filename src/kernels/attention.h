/* The inner loops of attention, over K and V as integer codes.  As in kernels.h scalar fills the table, an ISA
 * overwrites, and every variant gives the same bits.
 *
 * A query times the keys, and the weights times the values, are both products of a matrix that is kept (K, V) with up
 * to 4 vectors that come and go, in 16-bit codes whose 32-bit sums are exact.  K and V lie so that a lane of a vector
 * is a position (K) or a dim (V), two elements of its row side by side for i32x4.dot_i16x8_s, and nothing is to be
 * summed across lanes:
 *
 *   K   tiles of 8 positions               (n_position / 8, n_dim / 2, 8 positions, 2 dims)
 *   V   blocks of 32 positions, of each tiles of 8 dims
 *                         (n_position / 32, n_dim / 8, 16, 8 dims, 2 positions)
 *
 * so that both are read in one stream from the first position to the last.
 *
 * n_dim is head_dim up to a multiple of 8, n_position a multiple of 32, with zeros for what is not there.  Every
 * position has one scale for its K and one for its V.  Sums stay below 2^31 since
 *   |k . q| <= |k| |q|               both codes' Euclidean norms are below 2^15.5 (Cauchy-Schwarz)
 *   |sum of w v| <= sum of w max|v|  weights of 32 positions sum up to 2^15, and |v| < 2^15
 * which leaves 13 to 15 bits and a sign to the largest code of a head.  Codes of 8 bits take half the memory; the sums
 * are smaller then. */
#ifndef PLUMB_KERNELS_ATTENTION_H
#define PLUMB_KERNELS_ATTENTION_H

#include "base/base.h"

#include <math.h>
#include <string.h>

enum { ATTN_TILE = 8, ATTN_QUERIES = 4, ATTN_BLOCK = 32 };
/* Euclidean norm of K's and of a query's codes before they are rounded, which adds sqrt(n) / 2 at most: 128 for the
 * longest head, 65536, and f32 sums of squares err by 46 there: 46100 + 174 < 2^15.5 = 46340.9. */
#define ATTN_NORM 46100.0f
/* Sum of the codes of the weights of a block before they are rounded, which adds 16 at most. */
#define ATTN_WEIGHTS 32751.0f
/* Scores are in bits: 2^score.  What is this far below the largest weighs nothing: 4e9 such positions at 2^-80. */
#define ATTN_BITS_MIN (-80.0f)
#define ATTN_LOG2E 1.44269504f   /* bits of a nat */
/* Numbers whose largest magnitude, or sum, is below are rounded to zero: the reciprocals must stay finite. */
#define ATTN_MIN 1e-30f

/* 2^f = 1 + f (C1 + f (C2 + ...)), |f| <= 1/2: minimax of the relative error, 3e-6, where a weight's code is rounded by
 * 1.5e-5 at least. */
#define EXP2_C1 0.693124175f
#define EXP2_C2 0.240240991f
#define EXP2_C3 0.0559064262f
#define EXP2_C4 0.00958285294f
/* x + EXP2_ROUND has in its low bits x rounded to an integer, plus 127. */
#define EXP2_ROUND (0x1.8p23f + 127.0f)

struct attention_kernels {
    /* codes[i] = round(x[i] / scale), |codes[i]| <= most <= 32767 and, but for the rounding, |codes| <= norm (no limit:
     * INFINITY).  Returns scale: 0 and zeros for x below ATTN_MIN, NaN and zeros if x holds NaN or infinity. */
    float (*quantize)(const float *x, int16_t *codes, size_t n, float most, float norm);
    /* s[t * stride + p] = (k_p . q_t) (k_scale[p] * q_scale[t]) of n_tile tiles of K and n_query <= 4 queries.
     * k: codes of 8 or 16 bits (table index: bytes of a code - 1); q: (4, n_dim) codes, n_dim % 8 == 0.  Here and of
     * values there is room for 4 queries in all that belongs to queries, and what lies behind n_query is undefined. */
    void (*scores[2])(float *s, size_t stride, const void *k, const float *k_scale, size_t n_tile, const int16_t *q,
                      const float *q_scale, size_t n_dim, size_t n_query);
    /* Of n scores, n % 32 == 0, the first n_seen > 0 are there: top is the least integer that none of them is above,
     * s <- 2^(s - top), 0 for the others, in place, and codes[i] = s[i] v_scale[i] / d[i / 32], rounded; d is such that
     * a block's sum is as it was: weights that are all alike err alike.  Returns the sum of s.  NaN or infinity among
     * the scores: the sum is NaN.  A scale of NaN where the score is seen: d of its block is NaN and its codes are
     * zeros. */
    float (*weigh)(float *s, size_t n_seen, size_t n, const float *v_scale, int16_t *codes, float *d, float *top);
    /* out[t * stride + i] = sum of w_t v over n_block > 0 blocks of n_tile tiles, of n_query <= 4 queries.
     * w: (4, n_w) codes, d: (4, n_w / 32). */
    void (*values[2])(float *out, size_t stride, const void *v, size_t n_tile, size_t n_block, const int16_t *w,
                      const float *d, size_t n_w, size_t n_query);
    /* Turns n pairs by angles: a[i * step] and b[i * step], step 1 (b behind a) or 2 (b = a + 1).
     * a <- a cos - b sin, b <- a sin + b cos. */
    void (*rotate)(float *a, float *b, size_t step, const float *cosine, const float *sine, size_t n);
};

/* Of all variants of weigh: scores that are not seen become -INFINITY, and tail the scales of the block that n_seen
 * ends in, with zeros for what is not seen: there may be anything, and 0 times NaN is not 0. */
static inline void attention_hide(float *s, size_t n_seen, size_t n, const float *v_scale, float tail[ATTN_BLOCK]) {
    size_t begin = (n_seen - 1) / ATTN_BLOCK * ATTN_BLOCK;
    for (size_t i = n_seen; i < n; i++) s[i] = -INFINITY;
    memset(tail, 0, ATTN_BLOCK * sizeof *tail);
    memcpy(tail, v_scale + begin, (n_seen - begin) * sizeof *tail);
}

/* The scales of block b. */
static inline const float *attention_scales(size_t b, size_t n_seen, const float *v_scale,
                                            const float tail[ATTN_BLOCK]) {
    return (b + 1) * ATTN_BLOCK <= n_seen ? v_scale + b * ATTN_BLOCK : tail;
}

/* The best table of this build, or the portable one alone. */
void attention_kernels_init(struct attention_kernels *k, bool scalar_only);
void attention_fill_scalar(struct attention_kernels *k);
void attention_fill_simd128(struct attention_kernels *k);   /* only in builds with SIMD128 */

#endif

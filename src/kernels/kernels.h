/* The kernel table: every inner loop of the fast pass, one set per instruction set, chosen once per session.
 *
 * Scalar fills the table, an ISA overwrites what it has.  Every variant gives the same bits: integer dots are exact,
 * and float sums run in four lanes, lane l taking elements l, l + 4, l + 8, ..., added as (l0 + l1) + (l2 + l3).
 * That fixed order is what lets native, Node, browser and wasmtime agree on every token.
 *
 * Matrix products work on panels of 4 weight rows, or of 8 for 4 tokens and more.  A panel is unpacked once and used
 * for all tokens of the batch:
 *   quantized types   codes i16, one f32 scale (and min) per group, against activations of 16 bits per block of 32
 *   F32, F16, BF16    f32 against f32
 */
#ifndef PLUMB_KERNELS_KERNELS_H
#define PLUMB_KERNELS_KERNELS_H

#include "base/base.h"
#include "kernels/unpack.h"
#include "quant/quant.h"

enum { PANEL_ROWS = 4, TILE_ROWS = 8, TILE_TOKENS = 4, ACT_BLOCK = 32 };
/* A block of activations whose largest magnitude is below this is rounded to zero: 32767 / amax must stay finite. */
#define ACT_AMAX_MIN 1e-30f

/* Activations of a batch, prepared for matrix products.  Rows of n elements, padded with zeros to a multiple of 32;
 * group arrays padded to a multiple of 4.
 *   x[i] ~ d[i / 32] * q[i], |q| <= 32767;  sum32[g], sum16[g]: d * (sum of the q of group g) */
struct activations {
    uint32_t n, n_token;
    const float *x;           /* (n_token, n) as given, not padded */
    int16_t *q;               /* (n_token, round_up(n, 32)) */
    float *d;                 /* (n_token, groups32) */
    float *sum32;             /* (n_token, groups32) */
    float *sum16;             /* (n_token, groups16) */
    bool quantized;           /* q, d and sums are made of this x */
};
/* Lengths of the padded rows above for n elements. */
static inline uint32_t act_groups32(uint32_t n) { return ((n + 31) / 32 + 3) / 4 * 4; }
static inline uint32_t act_groups16(uint32_t n) { return ((n + 15) / 16 + 3) / 4 * 4; }

/* 4 unpacked rows of n weights: w[r][i] = scale[r][i / group] * codes[r][i] - min[r][i / group]. */
struct panel {
    uint32_t n, group;
    bool has_min;
    int16_t *codes[TILE_ROWS];
    float *scale[TILE_ROWS];    /* padded with zeros to a multiple of 4 groups */
    float *min[TILE_ROWS];
    float *f32[PANEL_ROWS];     /* the rows themselves, for float types */
    int16_t *pairs;             /* (n / 2, 8, 2) the codes of 8 rows side by side, two elements of a row together */
    float *scales;              /* (n / group, 8) */
};

struct kernels {
    const char *name;           /* "scalar", "simd128" */
    /* Row unpackers by quant_type; NULL for float types and types without a kernel. */
    const struct unpack_traits *unpack[QUANT_TYPE_COUNT];
    /* One row of a float type to f32: F32, F16, BF16. */
    void (*f32_from_row[QUANT_TYPE_COUNT])(const void *src, float *dst, size_t n);
    /* (n) f32 -> q, d, sum32, sum16 of one token; n % 32 == 0.  A block that holds NaN or infinity gets d = NaN. */
    void (*quantize_i16)(const float *x, int16_t *q, float *d, float *sum32, float *sum16, size_t n);
    /* y[r] = row r of the panel . token, r < 4. */
    void (*dot_i16_g32)(float y[PANEL_ROWS], const struct panel *p, const int16_t *q, const float *d, const float *sum);
    void (*dot_i16_g16)(float y[PANEL_ROWS], const struct panel *p, const int16_t *q, const float *d, const float *sum);
    void (*dot_f32_x4)(float y[PANEL_ROWS], const struct panel *p, const float *x);
    /* Fills pairs and scales of a panel of 8 rows; this and tile_i16 are NULL where there are no tiles. */
    void (*interleave)(struct panel *p);
    /* y[t * stride + r] = row r of the panel . token t, r < 8, t < 4; q, d and sum of token t begin at q + t * n,
     * d + t * n_d and sum + t * n_sum.  The bits are those of dot_i16_g32 and dot_i16_g16. */
    void (*tile_i16)(float *y, size_t stride, const struct panel *p, const int16_t *q, const float *d, size_t n_d,
                     const float *sum, size_t n_sum);
    /* sum of a[i] b[i] */
    float (*dot_f32)(const float *a, const float *b, size_t n);
    /* y[i] += s x[i] */
    void (*add_scaled)(float *y, const float *x, float s, size_t n);
    /* y[i] = x[i] s w[i] */
    void (*mul_scaled)(float *y, const float *x, float s, const float *w, size_t n);
    /* x <- exp(x - max x) / sum, in place; n >= 1.  The sum's order is the four lanes' one. */
    void (*softmax)(float *x, size_t n);
    /* gate[i] <- gate[i] / (1 + exp(-gate[i])) * up[i] */
    void (*swiglu)(float *gate, const float *up, size_t n);
};

/* The best table of this build, or the portable one alone. */
void kernels_init(struct kernels *k, bool scalar_only);
void kernels_fill_scalar(struct kernels *k);
void kernels_fill_simd128(struct kernels *k);   /* only in builds with SIMD128 */

/* A weight type that matmul can multiply with. */
bool kernels_have(const struct kernels *k, uint32_t type);

/* Scratch of matmul: one panel for rows of up to n_max elements.  *bytes counts what was allocated. */
plumb_status panel_create(struct panel *p, uint32_t n_max, uint64_t *bytes);
void panel_free(struct panel *p);

/* Y = X W^T for all tokens.  W: n_out rows of row_bytes bytes of type, acts->n elements each.  X: acts, quantized here
 * if the type needs it and it is not yet.  Y: (n_token, n_out) f32.  Allocates nothing. */
void matmul(const struct kernels *k, uint32_t type, const uint8_t *w, size_t row_bytes, uint32_t n_out,
            struct activations *acts, struct panel *scratch, float *y);

#endif

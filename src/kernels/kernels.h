/* The kernel table: every inner loop of the fast pass, one set per instruction set, chosen once per session.  README.md
 * of this room explains its words: tile, panel, code, group, even-odd order.
 *
 * Scalar fills the table, an ISA overwrites what it has.  Every variant gives the same bits, whether tokens come alone
 * or in batches and whatever the number of threads: integer dots are exact, and float sums have one order.
 *   quantized types   y = sum over groups g, in order, of f32(dot of codes) * (scale[g] * d), less, of those with
 *                     minima, a second sum: over groups min[g] * sum[g], or over superblocks
 *                     f32(dot of the codes of minima and of sums) * (dmin * (step of the sums))
 *   float types       four lanes, lane l taking elements l, l + 4, l + 8, ..., added as (l0 + l1) + (l2 + l3)
 *
 * Products run over 8 rows of weights, packed as in repack/repack.h: a lane of a vector is a row, so nothing is summed
 * across lanes, and the scales of 4 rows are one vector.  For one token the packed bytes are multiplied as they are;
 * for more they are unpacked once to a panel of codes, which several tokens at a time are multiplied with.
 */
#ifndef PLUMB_KERNELS_KERNELS_H
#define PLUMB_KERNELS_KERNELS_H

#include "kernels/unpack.h"
#include "quant/quant.h"
#include "repack/repack.h"
#include "threads/pool.h"

enum { TILE_ROWS = REPACK_ROWS, TILE_TOKENS = 4, ACT_BLOCK = 32 };
/* A block of activations whose largest magnitude is below the first is rounded to zero, as max_code / amax must stay
 * finite; with a step above the second it counts as infinite: kernels multiply steps by 2^112. */
#define ACT_AMAX_MIN 1e-30f
#define ACT_STEP_MAX 0x1p15f

/* Sums of 32 or of 16 codes of activations, which the minima of superblocks are multiplied with.  The sums are stored
 * as codes in even-odd order, with one step for each 256 activations. */
struct sums {
    int16_t *q;   /* (n_token, n / 32) or (n_token, n / 16), |q| <= SUM_CODE_MAX */
    float *d;     /* (n_token, n / 256) */
};
enum { SUM_CODE_MAX = 32767 };

/* Activations of a batch, prepared for products.
 *   x[i] ~ d[i / 32] * (code of i), |code| <= max_code
 * The two precisions differ only in max_code.  Given 8-bit codes, the 16-bit kernels return exactly the same bits as
 * the relaxed 8-bit kernels.  max_code may change from product to product.
 * Codes are stored in even-odd order: four neighbours as 0 2 1 3, because a mask takes bytes 0 and 2 out of a 32-bit
 * word of weights at once, and a shift then takes bytes 1 and 3.  isum32[g] and isum16[g] are the sums of the codes of
 * group g, and sum32 is isum32 times d. */
struct activations {
    uint32_t n, n_token;
    const float *x;             /* (n_token, n) */
    int32_t max_code;           /* MAX_CODE_16 or MAX_CODE_8 */
    int16_t *q;                 /* (n_token, n) */
    int8_t *bytes;              /* NULL, or the codes once more, in natural order
                                     MAX_CODE_8    (n_token, n)
                                     MAX_CODE_16   (n_token, n / 4, 2, 4), code = 256 * [0] + [1], four together */
    int8_t *bytes_even_odd;            /* only of one token of MAX_CODE_16: the same, each four in even-odd order */
    float *d, *sum32;           /* (n_token, n / 32) */
    int32_t *isum32, *isum16;   /* (n_token, n / 32), (n_token, n / 16) */
    struct sums sums32, sums16; /* where n % 256 == 0 */
    bool quantized;             /* the codes are made of this x; only where n % 32 == 0 */
};
enum { MAX_CODE_16 = 127 * 256 + 127, MAX_CODE_8 = 127 };
struct kernels;
/* For up to n_token rows of n_max elements, with all that k wants, and max_code is that of its precision; *bytes counts
 * what was allocated. */
plumb_status activations_create(struct activations *a, uint32_t n_max, uint32_t n_token, const struct kernels *k,
                                uint64_t *bytes);
void activations_free(struct activations *a);
/* Where element i of a row is in even-odd order; also the way back. */
static inline size_t even_odd(size_t i) { return (i & ~(size_t)3) | (i & 1) << 1 | (i >> 1 & 1); }

/* 8 unpacked rows of n weights: w[r][i] = scales[i / group][r] * code of i, less a minimum.  One per thread. */
struct panel {
    uint32_t n, group;
    enum min_kind min_kind;
    bool in_bytes;      /* pairs has (n / 4, 8, 4) bytes instead: four codes of each row together, too large by bias */
    int32_t bias;
    int16_t *pairs;     /* (n / 2, 8, 2) codes in even-odd order: two of each row together */
    float *scales;      /* (n / group, 8) */
    float *mins;        /* (n / group, 8) of GROUP_MIN; (n / 256, 8) of SUPERBLOCK_MIN, which multiply min_codes: */
    int16_t *min_codes; /* (n / group / 2, 8, 2) in even-odd order */
    float *f32;         /* (2, ceil(n / 4), 4, 4) of float types: 4 weights of each of 4 rows, 0 behind the last */
    /* Scratch for one row that is not packed. */
    uint8_t *bytes;
    int16_t *codes, *min_code;
    float *scale, *min;
};
plumb_status panel_create(struct panel *p, uint32_t n_max, uint64_t *bytes);
void panel_free(struct panel *p);

/* Where weight i of row r stands in f32. */
static inline size_t float_at(size_t n, size_t r, size_t i) {
    return (r / 4 * ((n + 3) / 4) + i / 4) * 16 + r % 4 * 4 + i % 4;
}

/* A weight, (n_out, n_in) of type; the first n_packed rows are packed. */
struct matrix {
    uint32_t type, n_in, n_out, n_packed;
    const uint8_t *data;
    size_t row_bytes;
};

/* y (8) = 8 packed rows . the one token of a. */
typedef void kernel_dot(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a);
/* 8 packed rows of p->n elements to pairs, scales and minima, or to f32. */
typedef void kernel_unpack(struct panel *p, const uint8_t *rows);
/* y[r] = row r of the panel, without minima, . token t. */
typedef void kernel_panel_dot(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t);
/* y[i * stride + r] = row r . token t + i, i < 4. */
typedef void kernel_panel_dot_x4(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                 uint32_t t);

/* What a table's functions are made of; each has those of the one before where it has none of its own. */
enum kernels_isa { KERNELS_SCALAR, KERNELS_SIMD128, KERNELS_RELAXED };

struct kernels {
    const char *name;           /* "scalar", "simd128" ("sse41" natively), "relaxed" */
    enum kernels_isa isa;
    plumb_precision precision;  /* EXACT16 or FAST8 */
    bool wants_bytes;           /* activations have bytes, and the tables of bytes are filled */
    /* By quant_type; NULL: a panel is unpacked for one token too, and by portable code. */
    kernel_dot *dot[QUANT_TYPE_COUNT];
    kernel_unpack *unpack[QUANT_TYPE_COUNT];
    /* (n) f32 -> codes, d, isum32, isum16 and sum32 of token t; n % 32 == 0.  A block that holds NaN or infinity gets
     * d = NaN. */
    void (*quantize_i16)(struct activations *a, uint32_t t);
    kernel_panel_dot *panel_dot;
    kernel_panel_dot_x4 *panel_dot_x4;   /* NULL: panel_dot does it */
    /* y[i * stride + r] -= minima of row r . sums of token t + i, i < n, which is 1 or TILE_TOKENS; of panels that
     * have minima. */
    void (*subtract_mins)(float *y, size_t stride, const struct panel *p, const struct activations *a, uint32_t t,
                          uint32_t n);
    /* The same products of floats and x. */
    kernel_panel_dot *float_dot;
    kernel_panel_dot_x4 *float_dot_x4;
    /* Where codes have a byte, and where they have two: dots for these and, of panels in bytes, which only unpackers of
     * a table that has these make, the same again.  NULL dots: those above do it. */
    struct {
        kernel_dot *dot[QUANT_TYPE_COUNT];
        kernel_panel_dot *panel_dot;
        kernel_panel_dot_x4 *panel_dot_x4;
    } bytes[2];
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

/* The table for activations of that precision, EXACT16 or FAST8, of what this build has up to isa. */
void kernels_init(struct kernels *k, enum kernels_isa isa, plumb_precision precision);
void kernels_fill_scalar(struct kernels *k);
void kernels_fill_simd128(struct kernels *k);   /* only in builds with SIMD128 */
void kernels_fill_relaxed8(struct kernels *k);  /* only in builds with relaxed SIMD: bytes[0], and all panels' bytes */
void kernels_fill_relaxed16(struct kernels *k); /* bytes[1] */
void kernels_fill_tiles(struct kernels *k);     /* dot and unpack of SIMD128, called by it */
void kernels_fill_floats(struct kernels *k);    /* the same of float types */

/* The types whose codes have 7 bits at most, which every engine's relaxed dots take.  X(quant_type, template of
 * tiles.h, its constant there). */
#define RELAXED_TYPES(X)                                                                  \
    X(QUANT_Q4_0, block, q4_0)                                                            \
    X(QUANT_Q4_1, block, q4_1)                                                            \
    X(QUANT_Q5_0, block, q5_0)                                                            \
    X(QUANT_Q5_1, block, q5_1)                                                            \
    X(QUANT_Q4_K, superblock, q4_K)                                                       \
    X(QUANT_Q5_K, superblock, q5_K)                                                       \
    X(QUANT_Q6_K, superblock, q6_K)
/* The largest code that activations may have in a product with weights of that type: with all 8 bits of q8_0 dots are
 * no faster by rounding. */
int32_t kernels_max_code(plumb_precision precision, uint32_t type);
/* A weight type that matmul can multiply with. */
bool kernels_have(uint32_t type);
/* Matrices of one shape and type multiplied in a second by the SIMD128 and by the relaxed kernels for 16 bits, with one
 * token and with many; 0: not measured. */
enum { KERNELS_WAYS = 2, KERNELS_CALLS = 6 };
struct kernel_speeds {
    double of[KERNELS_WAYS][2];
    bool wrong;                 /* relaxed products were not those of SIMD128's kernels, once */
    bool settled;               /* wrong, or the clock is too coarse, or the third call or a later one found nothing
                                 * faster */
    uint32_t n_call;            /* calls that measured */
};

/* Measures, for some 4 ms, where there is a choice, and keeps what is better than *s; where there is none, or no
 * memory, *s stays as it is.  Relaxed products are compared with SIMD128's, bit for bit.  Call it KERNELS_CALLS times,
 * and not in a row: an engine runs code slowly at first, and compiles it better meanwhile.  Those after *s has settled
 * do nothing.  Weights are made up: a shape is known long before its bytes are there. */
void kernels_measure(struct kernel_speeds *s, uint32_t type, uint64_t n_in, uint64_t n_out);
/* The fastest table of that precision; none that is relaxed after a wrong product.  The speeds choose among tables that
 * give the same bits: the precision of the result is always the one that is asked for. */
void kernels_choose(struct kernels *k, plumb_precision precision, const struct kernel_speeds *s);

/* y[i] = X w[i]^T for all tokens, of n <= 3 matrices that share their input.  X: a, quantized here if a type needs it
 * and it is not yet.  y[i]: (n_token, n_out) f32.  panels: one per thread of the pool.  Allocates nothing. */
enum { MAX_PRODUCTS = 3 };
void matmul(const struct kernels *k, struct pool *pool, const struct matrix *w, float *const *y, uint32_t n,
            struct activations *a, struct panel *panels);

#endif

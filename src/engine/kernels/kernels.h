/* The kernel table: matrix products and loops over vectors of f32, with one table per instruction set, chosen once per
 * session.  The loops of attention have a table of their own (attention.h).  The README.md of this room defines its
 * terms: tile, panel, code, group, even-odd order.
 *
 * The scalar kernels fill every entry that must not be NULL, then each ISA overwrites the entries it has.  Every
 * variant gives the same bits, in batches of any size and with any number of threads, because integer dots are exact
 * and float sums have one order:
 *   quantized types   y = sum over groups g, in order, of f32(dot of codes) * (scale[g] * d).  Types with minima
 *                     subtract a second sum: over groups, min[g] * sum[g]; or over superblocks,
 *                     f32(dot of the codes of minima and of sums) * (dmin * (step of the sums))
 *   float types       four lanes; lane l takes elements l, l + 4, l + 8, ..., and y = (l0 + l1) + (l2 + l3)
 *
 * A kernel multiplies 8 rows of weights, packed as in repack/repack.h.  A lane of a vector is a row, so nothing is
 * summed across lanes, and the scales of 4 rows are one vector.  Only the SIMD128 dot of q8_0 gives each row two lanes
 * of integer sums, which it adds at the end of a block.  One token is multiplied with the packed bytes directly.  For
 * more tokens, the rows are first unpacked to a panel, which is multiplied with several tokens at a time.  Rows that
 * are not packed go through a panel too, even for one token, for example the last n_out % 8 rows.  Products with float
 * types use lanes in the other way: a vector holds four neighbours of one row.
 */
#ifndef PLUMB_KERNELS_KERNELS_H
#define PLUMB_KERNELS_KERNELS_H

#include "quant/quant.h"
#include "repack/repack.h"
#include "threads/pool.h"

enum { TILE_ROWS = REPACK_ROWS, TILE_TOKENS = 4, ACT_BLOCK = 32 };
/* A block of ACT_BLOCK activations whose largest magnitude (amax) is below ACT_AMAX_MIN is rounded to zero, because
 * max_code / amax must stay finite.  A block whose step, amax / max_code, is above ACT_STEP_MAX counts as infinite:
 * kernels multiply steps by F16_FACTOR = 2^112, and the product must stay finite. */
#define ACT_AMAX_MIN 1e-30f
#define ACT_STEP_MAX 0x1p15f

/* Sums of 32 or of 16 activations each, by which the minima of superblocks are multiplied.  The sums are stored as
 * codes in even-odd order, with one step for every 256 activations. */
struct sums {
    int16_t *q;   /* (n_token, n / 32) or (n_token, n / 16), |q| <= SUM_CODE_MAX */
    float *d;     /* (n_token, n / 256) */
};
enum { SUM_CODE_MAX = 32767 };

/* The activations of a batch, prepared for products.
 *   x[i] ~ d[i / 32] * (code of i), |code| <= max_code
 * The two precisions differ only in max_code.  Given 8-bit codes, the 16-bit kernels return exactly the same bits as
 * the relaxed 8-bit kernels.
 * activations_create allocates the arrays and sets max_code.  Before a product the caller sets n, n_token and x, which
 * is borrowed; it may also set max_code.  Whenever it has changed one of these or the floats at x, it sets quantized to
 * false, and the next matmul that needs codes makes them.
 * q is in even-odd order: four neighbours are stored as 0 2 1 3, because a mask takes bytes 0 and 2 out of a 32-bit
 * word of weights at once, and a shift then takes bytes 1 and 3.  isum32[g] and isum16[g] are the sums of the codes of
 * group g, and sum32 is isum32 times d. */
struct activations {
    uint32_t n, n_token;
    const float *x;             /* (n_token, n) */
    int32_t max_code;           /* MAX_CODE_16 or MAX_CODE_8 */
    int16_t *q;                 /* (n_token, n), for both precisions */
    int8_t *bytes;              /* NULL, or a second copy of the codes, in natural order, for relaxed kernels
                                     MAX_CODE_8    (n_token, n)
                                     MAX_CODE_16   (n_token, n / 4, 2, 4): the high bytes of four codes, then their
                                                   low ones; code = 256 * high + low */
    int8_t *bytes_even_odd;     /* (n / 4, 2, 4): bytes in even-odd order, only filled for one token and MAX_CODE_16.
                                 * The relaxed dots of q8_0 read it, because packed q8_0 is in even-odd order.  Panels
                                 * of bytes are in natural order for all types, so their kernels read bytes */
    float *d, *sum32;           /* (n_token, n / 32) */
    int32_t *isum32, *isum16;   /* (n_token, n / 32), (n_token, n / 16) */
    struct sums sums32, sums16; /* sums of 32 and of 16 activations; only filled if n % 256 == 0 */
    bool quantized;             /* the arrays above have been made from the current x and max_code.  They can only be
                                 * made if n % 32 == 0 */
};
/* MAX_CODE_16 is below 32767, because the high byte of a code must fit in an i8 when the low byte is signed too. */
enum { MAX_CODE_16 = 127 * 256 + 127, MAX_CODE_8 = 127 };
struct kernels;
/* Allocates room for n_token rows of n_max elements, with what the kernels k need, and sets max_code to that of k's
 * precision.  Adds the bytes allocated to *bytes.  After PLUMB_ERROR_MEMORY nothing stays allocated, though *bytes may
 * have grown. */
plumb_status activations_create(struct activations *a, uint32_t n_max, uint32_t n_token, const struct kernels *k,
                                uint64_t *bytes);
void activations_free(struct activations *a);
/* Returns the index of element i of a row in even-odd order.  The function is its own inverse. */
static inline size_t even_odd(size_t i) { return (i & ~(size_t)3) | (i & 1) << 1 | (i >> 1 & 1); }

/* 8 unpacked rows of n weights: w[r][i] = scales[i / group][r] * code[r][i], less a minimum.  Each thread has one and
 * unpacks into it again for every 8 rows.  Types with groups are unpacked to codes (quant_unpack); all others are
 * dequantized to f32, float types among them, and multiplied as float types are. */
struct panel {
    uint32_t n, group;
    enum min_kind min_kind;
    bool in_bytes;      /* pairs holds (n / 4, 8, 4) bytes: four codes of each row side by side in natural order, too
                         * large by bias */
    int32_t bias;       /* only used if in_bytes; other panels hold codes from which the bias is subtracted */
    uint32_t largest;   /* only used if in_bytes: the largest code that there can be */
    int16_t *pairs;     /* (n / 2, 8, 2) codes in even-odd order: two codes of each row side by side */
    float *scales;      /* (n / group, 8) */
    float *mins;        /* (n / group, 8) for GROUP_MIN; (n / 256, 8) for SUPERBLOCK_MIN: factors of min_codes */
    int16_t *min_codes; /* (n / group / 2, 8, 2) in even-odd order */
    float *f32;         /* (2, ceil(n / 4), 4 rows, 4 weights): rows 0 .. 3, then rows 4 .. 7; rows are padded with 0 */
    /* Scratch of the portable code, which unpacks one row at a time: the outputs of quant_unpack.  bytes holds the row
     * as in the file. */
    uint8_t *bytes;
    int16_t *codes, *min_code;
    float *scale, *min;
    float *strip;       /* STRIP_RESULTS results, before they are copied to where they belong */
};
enum { STRIP_RESULTS = 1 << 14 };
/* Allocates room for rows of n_max elements, of any type.  Adds the bytes allocated to *bytes. */
plumb_status panel_create(struct panel *p, uint32_t n_max, uint64_t *bytes);
void panel_free(struct panel *p);

/* Returns the index of weight i of row r in panel.f32. */
static inline size_t float_at(size_t n, size_t r, size_t i) {
    return (r / 4 * ((n + 3) / 4) + i / 4) * 16 + r % 4 * 4 + i % 4;
}

/* A matrix of weights, (n_out, n_in).  Its first n_packed rows are packed; n_packed is a multiple of 8.  data is
 * borrowed. */
struct matrix {
    uint32_t type, n_in, n_out, n_packed;
    const uint8_t *data;
    size_t row_bytes;
};

/* y (8) = 8 packed rows times the one token of a. */
typedef void kernel_dot(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a);
/* Unpacks 8 rows of p->n elements to p's pairs, scales and minima, or to its f32. */
typedef void kernel_unpack(struct panel *p, const uint8_t *rows);
/* y[r] = row r of the panel times token t.  Minima are not subtracted. */
typedef void kernel_panel_dot(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t);
/* y[i * stride + r] = row r times token t + i, i < 4.  Minima are not subtracted. */
typedef void kernel_panel_dot_x4(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                 uint32_t t);

/* What one token does to STATE_ROWS rows s of a state, of n elements each.  g, old and out have a number for each row,
 * the arrays here one for each element of a row:
 *   ADVANCE_DECAY    s <- decay s + g key, out = s . query
 *   ADVANCE_FADE     s <- fade s + g key, out = s . query
 *   ADVANCE_BEFORE   out = s . query, s <- fade s + g key
 *   ADVANCE_GATED    s <- fade s + g (1 - fade) key, out = s . query
 *   ADVANCE_REMOVE   s <- fade s + g key - old rate removal, out = s . query */
enum advance_kind { ADVANCE_DECAY, ADVANCE_FADE, ADVANCE_BEFORE, ADVANCE_GATED, ADVANCE_REMOVE };
enum { STATE_ROWS = 4 };
struct advance {
    enum advance_kind kind;
    uint32_t n;
    float decay;
    const float *fade, *key, *rate, *removal, *query;   /* (n); those that the kind does not name are not read */
};

/* Instruction sets.  The table of each has the entries of the one before, except those that it overwrites. */
enum kernels_isa { KERNELS_SCALAR, KERNELS_SIMD128, KERNELS_RELAXED, KERNELS_PAIRS };

struct kernels {
    const char *name;           /* "scalar", "simd128" ("sse41" natively), "relaxed", "relaxed-pairs" */
    enum kernels_isa isa;
    plumb_precision precision;  /* EXACT16 or FAST8 */
    bool needs_bytes;           /* activations need bytes, which the kernels of `bytes` below read */
    /* Indexed by quant_type.  If dot is NULL, one token is multiplied with a panel too.  If unpack is NULL, portable
     * code unpacks the panel. */
    kernel_dot *dot[QUANT_TYPE_COUNT];
    kernel_unpack *unpack[QUANT_TYPE_COUNT];
    /* (n) f32 -> codes, d, isum32, isum16 and sum32 of token t; n % 32 == 0.  A block that holds NaN or infinity, or
     * whose step is above ACT_STEP_MAX, gets d = NaN.  matmul makes sums32 and sums16 from the results. */
    void (*quantize_i16)(struct activations *a, uint32_t t);
    kernel_panel_dot *panel_dot;
    kernel_panel_dot_x4 *panel_dot_x4;   /* if NULL, panel_dot is called instead */
    /* y[i * stride + r] -= minima of row r times sums of token t + i, i < n.  n is 1 or TILE_TOKENS.  For panels that
     * have minima. */
    void (*subtract_mins)(float *y, size_t stride, const struct panel *p, const struct activations *a, uint32_t t,
                          uint32_t n);
    /* As panel_dot and panel_dot_x4, for float types: they multiply f32 with x. */
    kernel_panel_dot *float_dot;
    kernel_panel_dot_x4 *float_dot_x4;
    /* Kernels that read activations.bytes: [0] if max_code is MAX_CODE_8, [1] if it is MAX_CODE_16.  Where dot is NULL,
     * the one above is called.  panel_dot and panel_dot_x4 are for panels with in_bytes.  A panel is in_bytes if its
     * rows are packed and the table's unpacker for their type makes bytes, which only tables with needs_bytes have.  It
     * does not depend on max_code. */
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
    /* x <- exp(x - max x) / sum, in place; n >= 1.  The sum is taken in four lanes, as float types do. */
    void (*softmax)(float *x, size_t n);
    /* gate[i] <- gate[i] / (1 + exp(-gate[i])) * up[i] */
    void (*swiglu)(float *gate, const float *up, size_t n);
    /* gate[i] <- gelu(gate[i]) * up[i] with the tanh form of GELU, which equals
     *   z / 2 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) = z / (1 + exp(-z (GELU_1 + GELU_3 z^2))) */
    void (*geglu)(float *gate, const float *up, size_t n);
    /* x[i] <- gelu(x[i]), with the same form of GELU */
    void (*gelu)(float *x, size_t n);
    /* x[i] <- cap tanh(x[i] / cap) */
    void (*softcap)(float *x, float cap, size_t n);
    /* x[i] <- e^x[i], see expf.h */
    void (*exp)(float *x, size_t n);
    /* x[i] <- 1 / (1 + exp(-x[i])), and x[i] times that */
    void (*sigmoid)(float *x, size_t n);
    void (*silu)(float *x, size_t n);
    /* out (n_row) = (factor s) . x of each row of s (n_row, n), n_row <= STATE_ROWS */
    void (*row_dots)(float *out, const float *s, uint32_t n_row, float factor, const float *x, uint32_t n);
    /* See struct advance; s (n_row, n), n_row <= STATE_ROWS.  Sums are taken in four lanes, as float types do. */
    void (*advance)(float *out, float *s, uint32_t n_row, const struct advance *a, const float *g, const float *old);
};

/* Makes the table for activations of that precision, EXACT16 or FAST8, with the best kernels of this build up to
 * isa.  FAST8 without relaxed kernels is not faster than EXACT16, but gives the bits of FAST8. */
void kernels_init(struct kernels *k, enum kernels_isa isa, plumb_precision precision);
void kernels_fill_scalar(struct kernels *k);
/* These two compute what does not fill vectors in other tables, too. */
void row_dots__scalar(float *out, const float *s, uint32_t n_row, float factor, const float *x, uint32_t n);
void advance__scalar(float *out, float *s, uint32_t n_row, const struct advance *a, const float *g, const float *old);
void kernels_fill_simd128(struct kernels *k);   /* only in builds with SIMD128 */
/* These two only exist in builds with relaxed SIMD.  The first fills bytes[0] and, for both precisions, the entries of
 * unpack that make panels of bytes.  The second fills bytes[1]. */
void kernels_fill_relaxed8(struct kernels *k);
void kernels_fill_relaxed16(struct kernels *k);
void kernels_fill_pairs8(struct kernels *k);    /* the same, after those: overwrites entries of bytes[0] */
/* Entries of other tables that kernels_fill_pairs8 calls or keeps. */
kernel_panel_dot_x4 bytes_dot_x4__relaxed8;
kernel_unpack q6_K_unpack__simd128;
void kernels_fill_tiles(struct kernels *k);     /* called by kernels_fill_simd128: products of quantized types */
void kernels_fill_grids(struct kernels *k);     /* called by kernels_fill_simd128: products of IQ1, IQ2 and IQ3 */
void kernels_fill_floats(struct kernels *k);    /* called by kernels_fill_simd128: products of float types */

/* The types with relaxed kernels on every engine.  Their codes have at most 7 bits, which all engines' relaxed dots
 * multiply alike.  q8_0 is not among them: it has relaxed kernels on some engines only (tiles8_relaxed.c).
 * X(quant_type, template of tiles.h, its constant there). */
#define RELAXED_TYPES(X)                                                                  \
    PAIRS_TYPES(X)                                                                        \
    X(QUANT_Q6_K, superblock, q6_K)
/* Those whose codes have so few bits that sums of 16 bits are faster on some engines (tiles8_pairs.c). */
#define PAIRS_TYPES(X)                                                                    \
    X(QUANT_Q4_0, block, q4_0)                                                            \
    X(QUANT_Q4_1, block, q4_1)                                                            \
    X(QUANT_Q5_0, block, q5_0)                                                            \
    X(QUANT_Q5_1, block, q5_1)                                                            \
    X(QUANT_MXFP4, block, mxfp4)                                                          \
    X(QUANT_Q4_K, superblock, q4_K)                                                       \
    X(QUANT_Q5_K, superblock, q5_K)
/* Returns the largest code that activations may have in a product with weights of that type.  FAST8 rounds them to 8
 * bits only for RELAXED_TYPES: Q8_0, whose codes need all 8 bits, would be no faster with rounded activations.
 * For matrices that share activations, the caller takes the smallest result, so Q8_0 beside Q4_0 gets 8-bit codes. */
int32_t kernels_max_code(plumb_precision precision, uint32_t type);
/* The speeds of the SIMD128 and the relaxed kernels for 16-bit activations, as kernels_measure finds them. */
enum { KERNELS_CANDIDATES = 2, KERNELS_CALLS = 6 };
struct kernel_speeds {
    double per_second[KERNELS_CANDIDATES][2]; /* matrix products in a second, the most that any call measured:
                                               * [SIMD128, relaxed][one token, many tokens]; 0 if not measured */
    bool wrong;                 /* a relaxed product differed from SIMD128's */
    bool settled;               /* wrong, or the clock is too coarse, or the third call or a later one found nothing
                                 * faster */
    uint32_t n_call;            /* calls that measured */
};

/* Measures for some 4 ms if there is a choice of kernels, and keeps the speeds that are better than those in *s.  *s
 * does not change if there is no choice or no memory, or if the matrix is unsuitable: n_in > 32768, where 8 rows are
 * more than is measured at a time, or n_out < 8.  Relaxed products are compared with SIMD128's, bit for bit.  Call it
 * KERNELS_CALLS times, and not in a row: an engine runs code slowly at first, while it compiles a better version.
 * Calls after *s has settled do nothing.  The weights are made up, because a tensor's shape is known long before its
 * bytes arrive.  type, n_in and n_out are those of a tensor of a gguf: the type is known, n_in > 0, and whole blocks
 * fill a row. */
void kernels_measure(struct kernel_speeds *s, uint32_t type, uint64_t n_in, uint64_t n_out);
/* Makes the fastest table of that precision: RELAXED if that measured faster than SIMD128, and otherwise SIMD128 for
 * EXACT16 and PAIRS for FAST8.  It is SIMD128 if a relaxed kernel was wrong, or the build has none.  All tables of a
 * precision give the same bits, so the speeds change no result. */
void kernels_choose(struct kernels *k, plumb_precision precision, const struct kernel_speeds *s);

/* y[i] = X w[i]^T for all tokens and n <= MAX_PRODUCTS matrices that share their input X, which is a; every w[i].n_in
 * is a->n.  Quantizes a if a type needs it and it is not quantized yet.  y[i]: (n_token, n_out) f32.  panels: one per
 * thread of the pool.  Threads share the tiles of all matrices, and each result is computed by one thread.  Allocates
 * nothing, checks nothing, cannot fail and cannot be cancelled. */
enum { MAX_PRODUCTS = 3 };
void matmul(const struct kernels *k, struct pool *pool, const struct matrix *w, float *const *y, uint32_t n,
            struct activations *a, struct panel *panels);

#endif

/* WASM SIMD128 products with F32, F16 and BF16 weights.  Lane l of a sum takes elements l, l + 4, ... of a row.
 *
 * One token is multiplied with 8 packed rows directly, and halves are widened in registers.  Packed rows are one stream
 * of memory, and the 8 sums are independent: weights are read at 30 GB/s, but at 12 if rows are not packed (Node 20,
 * Zen 4).
 * For more tokens, 8 rows are first widened to a panel.  4 rows x 2 tokens at a time fill 8 registers with sums, so
 * that each load serves two or four products: 22 GMAC/s instead of 14.  With 4 x 3, registers spill (15 GMAC/s). */
/* Compiled for speed. */
#include "kernels/kernels.h"
#include "kernels/simd128.h"

#if defined(HAVE_SIMD128)

#include "kernels/lanes_simd128.h"

/* ---- 16 bytes of a row ----------------------------------------------------------------------------------------- */

/* Converts 8 halves (f16 or bf16) to f32: low gets the first four. */
struct eight { v128_t low, high; };
typedef struct eight widen(v128_t halves);

ALWAYS_INLINE struct eight widen_bf16(v128_t h) {
    v128_t zero = wasm_i32x4_splat(0);
    return (struct eight) { wasm_i16x8_shuffle(zero, h, 0, 8, 1, 9, 2, 10, 3, 11),
                            wasm_i16x8_shuffle(zero, h, 4, 12, 5, 13, 6, 14, 7, 15) };
}

/* Moves the sign, exponent and mantissa of each f16 to their places in an f32.  The result is the value times 2^-112 if
 * the f16 is finite, as packed ones are.  A subnormal f16 becomes a subnormal f32. */
ALWAYS_INLINE struct eight widen_f16_small(v128_t h) {
    v128_t upper = wasm_v128_and(wasm_i16x8_shr(h, 3), wasm_i16x8_splat((int16_t)0x8fff));
    v128_t lower = wasm_i16x8_shl(h, 13);
    return (struct eight) { wasm_i16x8_shuffle(lower, upper, 0, 8, 1, 9, 2, 10, 3, 11),
                            wasm_i16x8_shuffle(lower, upper, 4, 12, 5, 13, 6, 14, 7, 15) };
}

ALWAYS_INLINE struct eight widen_f16(v128_t h) {
    struct eight w = widen_f16_small(h);
    v128_t scale = wasm_f32x4_splat(F16_FACTOR);
    return (struct eight) { wasm_f32x4_mul(w.low, scale), wasm_f32x4_mul(w.high, scale) };
}

/* ---- one token, packed rows ------------------------------------------------------------------------------------ */

/* scale: the factor that to_f32 leaves out, which goes into x instead.  A packed tile has 8 halves of each row, and its
 * low four are added before its high four, so each lane takes elements in ascending order. */
ALWAYS_INLINE void dot_halves(float y[TILE_ROWS], const uint8_t *rows, const float *x, size_t n, widen *to_f32,
                              float scale) {
    v128_t sum[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++) sum[r] = wasm_f32x4_splat(0.0f);
    for (const float *end = x + n; x < end; x += 8, rows += 16 * TILE_ROWS) {
        v128_t x0 = wasm_f32x4_mul(wasm_v128_load(x), wasm_f32x4_splat(scale));
        v128_t x1 = wasm_f32x4_mul(wasm_v128_load(x + 4), wasm_f32x4_splat(scale));
        for (int r = 0; r < TILE_ROWS; r++) {
            struct eight w = to_f32(wasm_v128_load(rows + 16 * r));
            sum[r] = mul_add(mul_add(sum[r], w.low, x0), w.high, x1);
        }
    }
    for (int r = 0; r < TILE_ROWS; r++) y[r] = sum_lanes(sum[r]);
}

/* The same dots without a factor in x.  They are rare, so they need not be fast. */
static void dot_f16_large(float y[TILE_ROWS], const uint8_t *rows, const float *x, size_t n) {
    for (size_t r = 0; r < TILE_ROWS; r++, rows += 16) {
        float lane[4] = { 0 };
        for (size_t i = 0; i < n; i++) {
            lane[i % 4] += f32_from_f16(load_u16(rows + i / 8 * 16 * TILE_ROWS + i % 8 * 2)) * x[i];
        }
        y[r] = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    }
}

static void dot_F16__simd128(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) {
    const float *x = a->x;
    /* x is multiplied by the factor, and not the weights.  That saves a sixth of the work and does not change any
     * rounding.  But an |x| of 2^16 or more becomes infinite.  Then no sum is finite, so it is enough to look at one of
     * the 8. */
    dot_halves(y, rows, x, a->n, widen_f16_small, F16_FACTOR);
    if (y[0] - y[0] != 0.0f) dot_f16_large(y, rows, x, a->n);
}

static void dot_BF16__simd128(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) {
    dot_halves(y, rows, a->x, a->n, widen_bf16, 1.0f);
}

static void dot_F32__simd128(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) {
    const float *x = a->x;
    v128_t sum[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++) sum[r] = wasm_f32x4_splat(0.0f);
    for (const float *end = x + a->n; x < end; x += 4, rows += 16 * TILE_ROWS) {
        v128_t x0 = wasm_v128_load(x);
        for (int r = 0; r < TILE_ROWS; r++) sum[r] = mul_add(sum[r], wasm_v128_load(rows + 16 * r), x0);
    }
    for (int r = 0; r < TILE_ROWS; r++) y[r] = sum_lanes(sum[r]);
}

/* ---- panels ---------------------------------------------------------------------------------------------------- */

/* low: rows 0 .. 3 of the panel.  high: rows 4 .. 7. */
ALWAYS_INLINE void unpack_halves(struct panel *p, const uint8_t *rows, widen *to_f32) {
    float *low = p->f32, *high = low + float_at(p->n, 4, 0);
    for (size_t i = 0; i < p->n; i += 8, low += 32, high += 32, rows += 16 * TILE_ROWS) {
        for (int r = 0; r < TILE_ROWS; r++) {
            float *to = (r < 4 ? low : high) + r % 4 * 4;
            struct eight w = to_f32(wasm_v128_load(rows + 16 * r));
            wasm_v128_store(to, w.low);
            wasm_v128_store(to + 16, w.high);
        }
    }
}

static void unpack_F16__simd128(struct panel *p, const uint8_t *rows) { unpack_halves(p, rows, widen_f16); }
static void unpack_BF16__simd128(struct panel *p, const uint8_t *rows) { unpack_halves(p, rows, widen_bf16); }

static void unpack_F32__simd128(struct panel *p, const uint8_t *rows) {
    float *low = p->f32, *high = low + float_at(p->n, 4, 0);
    for (size_t i = 0; i < p->n; i += 4, low += 16, high += 16, rows += 128) {
        memcpy(low, rows, 64);
        memcpy(high, rows + 64, 64);
    }
}

/* Multiplies and adds four elements of 4 rows and n_token <= 2 tokens. */
ALWAYS_INLINE void step(v128_t sum[2][4], const float *w, v128_t x0, v128_t x1, size_t n_token) {
    for (int r = 0; r < 4; r++) {
        v128_t w0 = wasm_v128_load(w + 4 * r);
        sum[0][r] = mul_add(sum[0][r], w0, x0);
        if (n_token == 2) sum[1][r] = mul_add(sum[1][r], w0, x1);
    }
}

/* y[i * stride + r] = row r of 4 rows times token i of n_token <= 2.  x: (n_token, n).  For two tokens, n % 4 must be
 * 0: if a remainder might follow the loop, Cranelift keeps the loop's sums in memory (9.5 GMAC/s instead of 22). */
ALWAYS_INLINE void multiply(float *y, size_t stride, const float *w, const float *x, size_t n, size_t n_token) {
    v128_t sum[2][4];
    for (int r = 0; r < 4; r++) sum[0][r] = sum[1][r] = wasm_f32x4_splat(0.0f);
    const float *x1 = n_token == 2 ? x + n : x;
    for (const float *end = x + n / 4 * 4; x < end; x += 4, x1 += 4, w += 16) {
        step(sum, w, wasm_v128_load(x), wasm_v128_load(x1), n_token);
    }
    if (n_token == 1 && n % 4 != 0) step(sum, w, load_tail(x, n % 4), wasm_f32x4_splat(0.0f), n_token);
    for (size_t i = 0; i < n_token; i++, y += stride) {
        for (int r = 0; r < 4; r++) y[r] = sum_lanes(sum[i][r]);
    }
}

static void float_dot__simd128(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t) {
    const float *x = a->x + (size_t)t * a->n;
    for (size_t r = 0; r < TILE_ROWS; r += 4) multiply(y + r, 0, p->f32 + float_at(p->n, r, 0), x, p->n, 1);
}

static void float_dot_x4__simd128(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                  uint32_t t) {
    if (p->n % 4 != 0) {
        for (size_t i = 0; i < TILE_TOKENS; i++) float_dot__simd128(y + i * stride, p, a, t + (uint32_t)i);
        return;
    }
    for (size_t i = 0; i < 2 * TILE_ROWS; i += 4) {   /* 4 rows x 2 tokens each */
        size_t r = i % TILE_ROWS, first = i / TILE_ROWS * 2;   /* the first of 2 tokens */
        multiply(y + first * stride + r, stride, p->f32 + float_at(p->n, r, 0), a->x + (t + first) * a->n, p->n, 2);
    }
}

void kernels_fill_floats(struct kernels *k) {
    k->dot[QUANT_F32] = dot_F32__simd128;
    k->dot[QUANT_F16] = dot_F16__simd128;
    k->dot[QUANT_BF16] = dot_BF16__simd128;
    k->unpack[QUANT_F32] = unpack_F32__simd128;
    k->unpack[QUANT_F16] = unpack_F16__simd128;
    k->unpack[QUANT_BF16] = unpack_BF16__simd128;
    k->float_dot = float_dot__simd128;
    k->float_dot_x4 = float_dot_x4__simd128;
}

#else
typedef int floats_simd128_is_empty;   /* ISO C wants a declaration in every file */
#endif

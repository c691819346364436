/* WASM SIMD128 on packed weights: the dot of 8 rows with one token, and the panel of 16-bit codes for many, by the
 * template of tiles.h.  A register holds the codes of 4 rows, four bytes of each: as 16-bit lanes, a mask takes the
 * even bytes and a shift the odd ones, and these are pairs in order B.
 */
#include "kernels/kernels.h"
#include "kernels/simd128.h"

#if defined(HAVE_SIMD128)

#include "kernels/tiles_simd128.h"

/* ---- four weights of 8 rows -------------------------------------------------------------------------------------- */

typedef int16_t code;
ALWAYS_INLINE const code *codes_of(const struct activations *a) { return a->q; }
ALWAYS_INLINE code *panel_codes(struct panel *p) { return p->pairs; }

#define DOT(acc, w, x) acc = wasm_i32x4_add(acc, wasm_i32x4_dot_i16x8(w, x))

ALWAYS_INLINE v128_t even_bytes(v128_t v) { return wasm_v128_and(v, wasm_i16x8_splat(255)); }
ALWAYS_INLINE v128_t odd_bytes(v128_t v) { return wasm_u16x8_shr(v, 8); }

ALWAYS_INLINE void dot_4(v128_t sum[2], tile_codes *codes, const uint8_t *low, const uint8_t *high, uint32_t k,
                         uint32_t j, const code *q) {
    v128_t c0 = codes(low, high, k, j), c1 = codes(low + 16, high + 16, k, j);
    v128_t even = wasm_v128_load32_splat(q), odd = wasm_v128_load32_splat(q + 2);
    DOT(sum[0], even_bytes(c0), even);
    DOT(sum[1], even_bytes(c1), even);
    DOT(sum[0], odd_bytes(c0), odd);
    DOT(sum[1], odd_bytes(c1), odd);
}

/* Less bias, to the two pairs of the weights. */
ALWAYS_INLINE void store_4(int16_t *pairs, tile_codes *codes, const uint8_t *low, const uint8_t *high, uint32_t k,
                           uint32_t j, int16_t bias) {
    for (uint32_t half = 0; half < 2; half++, pairs += 8, low += 16, high += 16) {
        v128_t c = codes(low, high, k, j);
        wasm_v128_store(pairs, wasm_i16x8_sub(even_bytes(c), wasm_i16x8_splat(bias)));
        wasm_v128_store(pairs + 16, wasm_i16x8_sub(odd_bytes(c), wasm_i16x8_splat(bias)));
    }
}

/* store_4 subtracted the bias. */
ALWAYS_INLINE v128_t first_sum(const struct panel *p, const int32_t *isum) {
    (void)p, (void)isum;
    return wasm_i32x4_splat(0);
}

#include "kernels/tiles.h"

/* ---- the types --------------------------------------------------------------------------------------------------- */

#define DOT_AND_UNPACK(TEMPLATE, NAME)                                                    \
static void NAME##_unpack__simd128(struct panel *p, const uint8_t *rows) { TEMPLATE##_unpack(&NAME, p, rows); } \
static void NAME##_dot__simd128(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a, uint32_t t) { \
    TEMPLATE##_dot(&NAME, y, rows, a, t);                                                 \
}

DOT_AND_UNPACK(block, q4_0)
DOT_AND_UNPACK(block, q4_1)
DOT_AND_UNPACK(block, q5_0)
DOT_AND_UNPACK(block, q5_1)
DOT_AND_UNPACK(block, q8_0)
DOT_AND_UNPACK(block, iq4_nl)
DOT_AND_UNPACK(superblock, q2_K)
DOT_AND_UNPACK(superblock, q3_K)
DOT_AND_UNPACK(superblock, q4_K)
DOT_AND_UNPACK(superblock, q5_K)
DOT_AND_UNPACK(superblock, q6_K)
DOT_AND_UNPACK(superblock, iq4_xs)

static void panel_dot__simd128(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t) {
    panel_dot(y, p, a, t);
}
static void panel_dot_x4__simd128(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                  uint32_t t) {
    panel_dot_x4(y, stride, p, a, t);
}

void kernels_fill_tiles(struct kernels *k) {
    k->panel_dot = panel_dot__simd128;
    k->panel_dot_x4 = panel_dot_x4__simd128;
#define FILL(TYPE, NAME) k->dot[TYPE] = NAME##_dot__simd128, k->unpack[TYPE] = NAME##_unpack__simd128
    FILL(QUANT_Q4_0, q4_0);
    FILL(QUANT_Q4_1, q4_1);
    FILL(QUANT_Q5_0, q5_0);
    FILL(QUANT_Q5_1, q5_1);
    FILL(QUANT_Q8_0, q8_0);
    FILL(QUANT_IQ4_NL, iq4_nl);
    FILL(QUANT_Q2_K, q2_K);
    FILL(QUANT_Q3_K, q3_K);
    FILL(QUANT_Q4_K, q4_K);
    FILL(QUANT_Q5_K, q5_K);
    FILL(QUANT_Q6_K, q6_K);
    FILL(QUANT_IQ4_XS, iq4_xs);
}

#else
typedef int tiles_simd128_is_empty;   /* ISO C wants a declaration in every file */
#endif

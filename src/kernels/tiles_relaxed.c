/* Relaxed SIMD on packed weights, for activations of 8 bits: i32x4.relaxed_dot_i8x16_i7x16_add_s multiplies four codes
 * of each of 4 rows at once, which lie in a register as the template of tiles.h takes them out of a tile.
 *
 * Its second operand must be in 0 .. 127, or engines differ: so it gets the codes of the weights, before their bias is
 * subtracted.  Those of q8_0 and of the iq4 types are larger; these types keep the dots of 16 bits.  Two products of
 * 7 and 8 bits fit the 16 that engines may add them in: the integers are those of every other kernel, and the floats
 * too.
 */
#include "kernels/kernels.h"

#if defined(__wasm_relaxed_simd__)

#include "kernels/tiles_simd128.h"

/* ---- four weights of 8 rows -------------------------------------------------------------------------------------- */

typedef int8_t code;
ALWAYS_INLINE const code *codes_of(const struct activations *a) { return a->q8; }
ALWAYS_INLINE code *panel_codes(struct panel *p) { return (code *)p->pairs; }

#define SPLAT(x, i) wasm_i32x4_shuffle(x, x, i, i, i, i)
#define DOT(acc, w, x) acc = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w, acc)

ALWAYS_INLINE void dot_4(v128_t sum[2], tile_codes *codes, const uint8_t *low, const uint8_t *high, uint32_t k,
                         uint32_t j, const code *q) {
    v128_t x = wasm_v128_load32_splat(q);
    DOT(sum[0], codes(low, high, k, j), x);
    DOT(sum[1], codes(low + 16, high + 16, k, j), x);
}

/* The bias stays in: panel_dot subtracts it. */
ALWAYS_INLINE void store_4(code *quads, tile_codes *codes, const uint8_t *low, const uint8_t *high, uint32_t k,
                           uint32_t j, int16_t bias) {
    (void)bias;
    wasm_v128_store(quads, codes(low, high, k, j));
    wasm_v128_store(quads + 16, codes(low + 16, high + 16, k, j));
}

#include "kernels/tiles.h"

/* ---- panels of bytes --------------------------------------------------------------------------------------------- */

/* What the sums of a group begin with. */
ALWAYS_INLINE v128_t first_sum(const struct panel *p, const int32_t *isum) {
    return wasm_i32x4_mul(wasm_v128_load32_splat(isum), wasm_i32x4_splat(-p->bias));
}

#define DOT_STEP(i)                                                                       \
    do {                                                                                  \
        v128_t s = SPLAT(x, i);                                                           \
        DOT(a0, wasm_v128_load(w + 32 * (i)), s);                                         \
        DOT(a1, wasm_v128_load(w + 32 * (i) + 16), s);                                    \
    } while (0)

static void bytes_dot__relaxed(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t) {
    size_t n_d = a->n / 32, n_sum = a->n / p->group;
    const int8_t *q = a->q8 + (size_t)t * a->n, *w = (const int8_t *)p->pairs;
    const float *d = a->d + t * n_d, *sum = (p->group == 32 ? a->sum32 : a->sum16) + t * n_sum;
    const int32_t *isum = (p->group == 32 ? a->isum32 : a->isum16) + t * n_sum;
    const float *scales = p->scales, *mins = p->mins;
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0;
    for (size_t i = 0; i < p->n; i += p->group, scales += 8) {
        v128_t a0 = first_sum(p, isum++), a1 = a0;
        for (const int8_t *end = w + (size_t)p->group * 8; w < end; w += 128, q += 16) {
            v128_t x = wasm_v128_load(q);
            DOT_STEP(0);
            DOT_STEP(1);
            DOT_STEP(2);
            DOT_STEP(3);
        }
        v128_t dq = wasm_v128_load32_splat(d + i / ACT_BLOCK);
        f0 = add_dots(f0, a0, wasm_v128_load(scales), dq);
        f1 = add_dots(f1, a1, wasm_v128_load(scales + 4), dq);
        if (!p->has_min) continue;
        v128_t s = wasm_v128_load32_splat(sum++);
        f0 = subtract(f0, wasm_v128_load(mins), s);
        f1 = subtract(f1, wasm_v128_load(mins + 4), s);
        mins += 8;
    }
    wasm_v128_store(y, f0);
    wasm_v128_store(y + 4, f1);
}

/* Four weights of 8 rows and 4 tokens. */
#define TILE_STEP(i)                                                                      \
    do {                                                                                  \
        v128_t w0 = wasm_v128_load(w + 32 * (i)), w1 = wasm_v128_load(w + 32 * (i) + 16), s; \
        s = SPLAT(x0, i);                                                                 \
        DOT(a00, w0, s);                                                                  \
        DOT(a10, w1, s);                                                                  \
        s = SPLAT(x1, i);                                                                 \
        DOT(a01, w0, s);                                                                  \
        DOT(a11, w1, s);                                                                  \
        s = SPLAT(x2, i);                                                                 \
        DOT(a02, w0, s);                                                                  \
        DOT(a12, w1, s);                                                                  \
        s = SPLAT(x3, i);                                                                 \
        DOT(a03, w0, s);                                                                  \
        DOT(a13, w1, s);                                                                  \
    } while (0)
/* The end of a group for token i. */
#define TILE_SCALE(i)                                                                     \
    do {                                                                                  \
        v128_t dq = wasm_v128_load32_splat(d + (i) * n_d);                                \
        f0##i = add_dots(f0##i, a0##i, s0, dq);                                           \
        f1##i = add_dots(f1##i, a1##i, s1, dq);                                           \
    } while (0)
#define TILE_MIN(i)                                                                       \
    do {                                                                                  \
        v128_t s = wasm_v128_load32_splat(sum + (i) * n_sum);                             \
        f0##i = subtract(f0##i, m0, s);                                                   \
        f1##i = subtract(f1##i, m1, s);                                                   \
    } while (0)

static void bytes_dot_x4__relaxed(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                  uint32_t t) {
    size_t n_d = a->n / 32, n_sum = a->n / p->group;
    const int8_t *q0 = a->q8 + (size_t)t * a->n, *q1 = q0 + a->n, *q2 = q1 + a->n, *q3 = q2 + a->n;
    const int8_t *w = (const int8_t *)p->pairs;
    const float *d = a->d + t * n_d, *sum = (p->group == 32 ? a->sum32 : a->sum16) + t * n_sum;
    const int32_t *isum = (p->group == 32 ? a->isum32 : a->isum16) + t * n_sum;
    const float *scales = p->scales, *mins = p->mins;
    v128_t zero = wasm_i32x4_splat(0), f00 = zero, f01 = zero, f02 = zero, f03 = zero;
    v128_t f10 = zero, f11 = zero, f12 = zero, f13 = zero;
    for (size_t i = 0; i < p->n; i += p->group, scales += 8, isum++) {
        v128_t a00 = first_sum(p, isum), a01 = first_sum(p, isum + n_sum);
        v128_t a02 = first_sum(p, isum + 2 * n_sum), a03 = first_sum(p, isum + 3 * n_sum);
        v128_t a10 = a00, a11 = a01, a12 = a02, a13 = a03;
        for (const int8_t *end = w + (size_t)p->group * 8; w < end; w += 128, q0 += 16, q1 += 16, q2 += 16, q3 += 16) {
            v128_t x0 = wasm_v128_load(q0), x1 = wasm_v128_load(q1), x2 = wasm_v128_load(q2), x3 = wasm_v128_load(q3);
            TILE_STEP(0);
            TILE_STEP(1);
            TILE_STEP(2);
            TILE_STEP(3);
        }
        v128_t s0 = wasm_v128_load(scales), s1 = wasm_v128_load(scales + 4);
        TILE_SCALE(0);
        TILE_SCALE(1);
        TILE_SCALE(2);
        TILE_SCALE(3);
        if ((i + p->group) % ACT_BLOCK == 0) d++;
        if (!p->has_min) continue;
        v128_t m0 = wasm_v128_load(mins), m1 = wasm_v128_load(mins + 4);
        TILE_MIN(0);
        TILE_MIN(1);
        TILE_MIN(2);
        TILE_MIN(3);
        mins += 8;
        sum++;
    }
    const v128_t low[TILE_TOKENS] = { f00, f01, f02, f03 }, high[TILE_TOKENS] = { f10, f11, f12, f13 };
    for (size_t i = 0; i < TILE_TOKENS; i++, y += stride) {
        wasm_v128_store(y, low[i]);
        wasm_v128_store(y + 4, high[i]);
    }
}

/* ---- the types --------------------------------------------------------------------------------------------------- */

#define DOT_AND_UNPACK(TEMPLATE, NAME)                                                    \
static void NAME##_unpack__relaxed(struct panel *p, const uint8_t *rows) {                \
    TEMPLATE##_unpack(&NAME, p, rows);                                                    \
    p->in_bytes = true;                                                                   \
    p->bias = NAME.bias;                                                                  \
}                                                                                         \
static void NAME##_dot__relaxed(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a, uint32_t t) { \
    TEMPLATE##_dot(&NAME, y, rows, a, t);                                                 \
}

DOT_AND_UNPACK(block, q4_0)
DOT_AND_UNPACK(block, q4_1)
DOT_AND_UNPACK(block, q5_0)
DOT_AND_UNPACK(block, q5_1)
DOT_AND_UNPACK(superblock, q4_K)
DOT_AND_UNPACK(superblock, q5_K)
DOT_AND_UNPACK(superblock, q6_K)

void kernels_fill_relaxed(struct kernels *k) {
#define FILL(TYPE, NAME) k->dot[TYPE] = NAME##_dot__relaxed, k->unpack[TYPE] = NAME##_unpack__relaxed
    FILL(QUANT_Q4_0, q4_0);
    FILL(QUANT_Q4_1, q4_1);
    FILL(QUANT_Q5_0, q5_0);
    FILL(QUANT_Q5_1, q5_1);
    FILL(QUANT_Q4_K, q4_K);
    FILL(QUANT_Q5_K, q5_K);
    FILL(QUANT_Q6_K, q6_K);
    k->name = "relaxed";
    k->bytes_dot = bytes_dot__relaxed;
    k->bytes_dot_x4 = bytes_dot_x4__relaxed;
}

#else
typedef int tiles_relaxed_is_empty;   /* ISO C wants a declaration in every file */
#endif

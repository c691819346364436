/* Relaxed SIMD kernels on packed weights, for 16-bit activations.  Each activation is 256 * high + low, two signed
 * bytes that are multiplied separately.  Where an engine has one instruction for i32x4.relaxed_dot_i8x16_i7x16_add_s
 * (AVX-VNNI, ARM's dot products), two of them do what SIMD128 takes four instructions for, and the weights stay bytes.
 *
 * All integer dots, and so all results, are the same as those of SIMD128; tiles8_relaxed.c says what the second operand
 * may be.  Where an engine takes it as unsigned, the dot of q4_K masks the high nibbles in place: these codes are 16x
 * too large, up to 240, and their sums are divided by 16.
 */
/* Compiled for speed, and with -mrelaxed-simd. */
#include "kernels/kernels.h"
#include "kernels/simd128.h"

#if defined(HAVE_RELAXED)

#define BYTES_ARE_MULTIPLIED
#include "kernels/tiles_simd128.h"

/* ---- four weights of 8 rows -------------------------------------------------------------------------------------- */

/* Two bytes of a->bytes or a->bytes_even_odd, so that a pointer counts activations.  A code there is not an integer of
 * 16 bits: each four activations are stored as four high bytes and then four low ones. */
typedef int16_t code;
ALWAYS_INLINE const code *codes_of(const struct activations *a, bool even_odd) {
    return (const code *)(const void *)(even_odd ? a->bytes_even_odd : a->bytes);
}

/* Sums of high bytes for rows 0 .. 3 and 4 .. 7, then those of low bytes. */
enum { N_DOT = 4 };

#define DOT(acc, w, x) acc = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w, acc)

ALWAYS_INLINE void dot_4(v128_t dots[N_DOT], tile_codes *codes, const uint8_t *words, uint32_t k,
                         uint32_t j, const code *q) {
    v128_t c0 = codes(words, k, j), c1 = codes(words + 16, k, j);
    v128_t x_high = wasm_v128_load32_splat(q), x_low = wasm_v128_load32_splat(q + 2);
    DOT(dots[0], c0, x_high);
    DOT(dots[1], c1, x_high);
    DOT(dots[2], c0, x_low);
    DOT(dots[3], c1, x_low);
}

ALWAYS_INLINE v128_t both(v128_t high, v128_t low) { return wasm_i32x4_add(wasm_i32x4_shl(high, 8), low); }
ALWAYS_INLINE v128_t total(const v128_t dots[N_DOT], uint32_t half) { return both(dots[half], dots[2 + half]); }
ALWAYS_INLINE void in_order(v128_t dots[N_DOT], volatile v128_t sink[2]) {
    IN_ORDER(dots[0], dots[1]);
    IN_ORDER(dots[2], dots[3]);
    (void)sink;
}

#include "kernels/tiles.h"

/* ---- panels of 8 rows --------------------------------------------------------------------------------------------
 *
 * The codes of the weights are bytes, (n / 4, 8, 4), and are unpacked by tiles8_relaxed.c.  2 tokens at a time make 8
 * sums.  With two vectors of weights and one of activations that takes 11 registers, and the float sums take 4 more.
 *
 * In the names below, highHT and lowHT are the sums of high and of low bytes and fHT the float sums, of rows
 * 4H .. 4H + 3 and of token t + T.  The bias goes into the sums of low bytes only, because those of high bytes are
 * multiplied by 256. */

/* Multiplies four weights of each of 8 rows, in w0 and w1, with lane j of x, which has the high bytes, and with lane
 * j + 1, which has the low ones. */
#define PANEL_STEP(t, w0, w1, x, j)                                                       \
    do {                                                                                  \
        v128_t s = wasm_i32x4_shuffle(x, x, j, j, j, j);                                  \
        DOT(high0##t, w0, s);                                                             \
        DOT(high1##t, w1, s);                                                             \
        s = wasm_i32x4_shuffle(x, x, j + 1, j + 1, j + 1, j + 1);                         \
        DOT(low0##t, w0, s);                                                              \
        DOT(low1##t, w1, s);                                                              \
    } while (0)
#define PANEL_SCALE(t)                                                                    \
    do {                                                                                  \
        v128_t dq = wasm_v128_load32_splat(d + (t) * n_d);                                \
        f0##t = add_dots(f0##t, both(high0##t, low0##t), s0, dq);                         \
        f1##t = add_dots(f1##t, both(high1##t, low1##t), s1, dq);                         \
    } while (0)

/* n: 1 or 2 tokens.  group is that of p, as a constant. */
ALWAYS_INLINE void panel_dot(float *y, size_t stride, const struct panel *p, const struct activations *a, uint32_t t,
                             uint32_t n, uint32_t group) {
    size_t n_d = a->n / 32, n_sum = a->n / group;
    const code *q0 = codes_of(a, false) + (size_t)t * a->n, *q1 = q0 + a->n;
    const uint8_t *w = (const uint8_t *)p->pairs;
    const float *d = a->d + t * n_d, *scales = p->scales, *end = p->scales + p->n / group * 8;
    const int32_t *isum = (group == 32 ? a->isum32 : a->isum16) + t * n_sum;
    v128_t zero = wasm_i32x4_splat(0), f00 = zero, f10 = zero, f01 = zero, f11 = zero;
    v128_t minus_bias = wasm_i32x4_splat(-p->bias);
    for (; scales < end; scales += 8, isum++) {
        v128_t high00 = zero, high10 = zero, high01 = zero, high11 = zero;
        v128_t low00 = wasm_i32x4_mul(wasm_v128_load32_splat(isum), minus_bias), low10 = low00, low01 = zero;
        if (n == 2) low01 = wasm_i32x4_mul(wasm_v128_load32_splat(isum + n_sum), minus_bias);
        v128_t low11 = low01;
        LOOP_UNROLLED
        for (uint32_t i = 0; i < group; i += 8) {
            OPAQUE(w, scales);
            OPAQUE(q0, q1);
            v128_t w0 = wasm_v128_load(w + 8 * i), w1 = wasm_v128_load(w + 8 * i + 16);
            v128_t x0 = wasm_v128_load(q0 + i), x1 = zero;
            PANEL_STEP(0, w0, w1, x0, 0);
            if (n == 2) {
                x1 = wasm_v128_load(q1 + i);
                PANEL_STEP(1, w0, w1, x1, 0);
            }
            w0 = wasm_v128_load(w + 8 * i + 32);
            w1 = wasm_v128_load(w + 8 * i + 48);
            PANEL_STEP(0, w0, w1, x0, 2);
            if (n == 2) PANEL_STEP(1, w0, w1, x1, 2);
            IN_ORDER(high00, low00);
            IN_ORDER(high10, low10);
            IN_ORDER(high01, low01);
            IN_ORDER(high11, low11);
        }
        w += 8 * group;
        q0 += group;
        q1 += group;
        v128_t s0 = wasm_v128_load(scales), s1 = wasm_v128_load(scales + 4);
        PANEL_SCALE(0);
        if (n == 2) PANEL_SCALE(1);
        if (group == 32 || (scales - p->scales) % 16 != 0) d++;   /* two groups of 16 share a step */
    }
    wasm_v128_store(y, f00);
    wasm_v128_store(y + 4, f10);
    if (n == 1) return;
    wasm_v128_store(y + stride, f01);
    wasm_v128_store(y + stride + 4, f11);
}

/* ---- the types --------------------------------------------------------------------------------------------------- */

#define DOT_OF(TYPE, TEMPLATE, NAME)                                                            \
static void NAME##_dot__relaxed16(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) { \
    TEMPLATE##_dot(&NAME, y, rows, a);                                                 \
}

RELAXED_TYPES(DOT_OF)
DOT_OF(QUANT_Q8_0, block, q8_0)
DOT_OF(QUANT_Q8_0, block, q8_0_signed)
DOT_OF(QUANT_Q4_K, superblock, q4_K_unshifted)

static void bytes_dot__relaxed16(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t) {
    if (p->group == 16) panel_dot(y, 0, p, a, t, 1, 16);
    else panel_dot(y, 0, p, a, t, 1, 32);
}
static void bytes_dot_x4__relaxed16(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                    uint32_t t) {
    for (const uint32_t end = t + TILE_TOKENS; t < end; t += 2, y += 2 * stride) {
        if (p->group == 16) panel_dot(y, stride, p, a, t, 2, 16);
        else panel_dot(y, stride, p, a, t, 2, 32);
    }
}

void kernels_fill_relaxed16(struct kernels *k) {
#define FILL(TYPE, TEMPLATE, NAME) k->bytes[1].dot[TYPE] = NAME##_dot__relaxed16;
    RELAXED_TYPES(FILL)
    enum relaxed_bytes bytes = kernels_relaxed_bytes();
    if (bytes == RELAXED_BYTES_SIGNED) FILL(QUANT_Q8_0, block, q8_0_signed)
    if (bytes == RELAXED_BYTES_UNSIGNED) {
        FILL(QUANT_Q8_0, block, q8_0)
        FILL(QUANT_Q4_K, superblock, q4_K_unshifted)
    }
    k->bytes[1].panel_dot = bytes_dot__relaxed16;
    k->bytes[1].panel_dot_x4 = bytes_dot_x4__relaxed16;
}

#else
typedef int tiles16_relaxed_is_empty;   /* ISO C wants a declaration in every file */
#endif

/* Relaxed SIMD kernels on packed weights, for 8-bit activations and CPUs without an instruction for
 * i32x4.relaxed_dot_i8x16_i7x16_add_s, which engines then compile to three (x86) or more.  The first of these is
 * i16x8.relaxed_dot_i8x16_i7x16_s: it adds the products of two neighbours, a pair, in 16 bits.  Where the codes of
 * weights have few bits, several pairs are added in 16 bits, 8 lanes at a time, before they are widened to 32 bits.
 *
 * A pair is at most 2 * 127 * (largest code) in magnitude, 3,810 for 4 bits and 7,874 for 5, so 8 and 4 pairs fit in 16
 * bits and all sums are exact.  Of 6 bits only 2 would, which is no faster than SIMD128, so q6_K has the SIMD128
 * kernels in this table.  The codes are never negative and have 7 bits at most (tiles8_relaxed.c), so engines
 * multiply them alike.
 */
/* Compiled for speed, and with -mrelaxed-simd. */
#include "kernels/kernels.h"
#include "kernels/simd128.h"

#if defined(HAVE_RELAXED)

#define BYTES_ARE_MULTIPLIED
#include "kernels/tiles_simd128.h"

typedef int8_t code;
ALWAYS_INLINE const code *codes_of(const struct activations *a, bool even_odd) {
    (void)even_odd;   /* only q8_0 asks for it */
    return a->bytes;
}

enum { N_DOT = 2, LARGEST = 31 };
ALWAYS_INLINE v128_t total(const v128_t dots[N_DOT], uint32_t half) { return dots[half]; }

/* How many words, of four codes for each row, have sums of 16 bits: 8 or 4, as a group has 8 words. */
ALWAYS_INLINE uint32_t short_words(uint32_t largest) { return 8 * 2 * 127 * largest <= INT16_MAX ? 8 : 4; }

ALWAYS_INLINE v128_t pairs(v128_t w, v128_t x) { return wasm_i16x8_relaxed_dot_i8x16_i7x16(x, w); }
/* Adds the two pairs of each 32-bit lane. */
ALWAYS_INLINE v128_t widen(v128_t sums) { return wasm_i32x4_dot_i16x8(sums, wasm_i16x8_splat(1)); }

/* ---- a tile and one token ---------------------------------------------------------------------------------------- */

ALWAYS_INLINE void dot_group(v128_t dots[N_DOT], enum quant_type type, tile_codes *codes, const uint8_t *words,
                             uint32_t k, uint32_t n, bool halves, const code *q, volatile v128_t sink[2]) {
    const uint32_t n_short = short_words(largest_code(type));
    v128_t sums[2];
    LOOP_UNROLLED
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t j = halves ? i / 2 + i % 2 * 4 : i;
        const v128_t x = wasm_v128_load32_splat(q + 4 * j);
        LOOP_UNROLLED
        for (uint32_t half = 0; half < 2; half++) {
            const v128_t two = pairs(codes(words + 16 * half, k, j), x);
            sums[half] = i % n_short == 0 ? two : wasm_i16x8_add(sums[half], two);
        }
        if (i % 2) IN_ORDER(sums[0], sums[1]);
        if (i % n_short != n_short - 1) continue;
        dots[0] = wasm_i32x4_add(dots[0], widen(sums[0]));
        dots[1] = wasm_i32x4_add(dots[1], widen(sums[1]));
    }
    (void)sink;
}

#define PAIRS_ARE_ADDED
#include "kernels/tiles.h"

/* ---- a panel and four tokens ---------------------------------------------------------------------------------- */

/* For panels of bytes in groups of 32.  n_short is the short_words of their codes, and has_bias says whether their bias
 * is not 0; they are parameters so that they can be constants. */
ALWAYS_INLINE void panel_dot_x4(float *y, size_t stride, const struct panel *p, const struct activations *a, uint32_t t,
                                uint32_t n_short, bool has_bias) {
    const size_t n_group = a->n / 32;
    const uint8_t *w = (const uint8_t *)p->pairs;
    const float *d = a->d + t * n_group, *scales = p->scales, *end = scales + n_group * TILE_ROWS;
    const int32_t *isum = a->isum32 + t * n_group;
    const code *q[TILE_TOKENS];
    v128_t f[TILE_TOKENS][2], minus_bias = wasm_i32x4_splat(-p->bias);
    LOOP_UNROLLED
    for (uint32_t i = 0; i < TILE_TOKENS; i++) {
        q[i] = a->bytes + (size_t)(t + i) * a->n;
        f[i][0] = f[i][1] = wasm_f32x4_splat(0.0f);
    }
    for (; scales < end; scales += TILE_ROWS, w += 32 * TILE_ROWS, isum++, d++) {
        v128_t sums[TILE_TOKENS][2], dots[TILE_TOKENS][2];
        OPAQUE(w, q[0]);
        LOOP_UNROLLED
        for (uint32_t j = 0; j < 8; j++) {
            const v128_t w0 = wasm_v128_load(w + 32 * j), w1 = wasm_v128_load(w + 32 * j + 16);
            LOOP_UNROLLED
            for (uint32_t i = 0; i < TILE_TOKENS; i++) {
                const v128_t x = wasm_v128_load32_splat(q[i] + 4 * j), two0 = pairs(w0, x), two1 = pairs(w1, x);
                sums[i][0] = j % n_short == 0 ? two0 : wasm_i16x8_add(sums[i][0], two0);
                sums[i][1] = j % n_short == 0 ? two1 : wasm_i16x8_add(sums[i][1], two1);
                IN_ORDER(sums[i][0], sums[i][1]);
            }
            if (j % n_short != n_short - 1) continue;
            LOOP_UNROLLED
            for (uint32_t i = 0; i < TILE_TOKENS; i++) {
                for (uint32_t half = 0; half < 2; half++) {
                    const v128_t sum = widen(sums[i][half]);
                    dots[i][half] = j < n_short ? sum : wasm_i32x4_add(dots[i][half], sum);
                }
            }
        }
        const v128_t s0 = wasm_v128_load(scales), s1 = wasm_v128_load(scales + 4);
        LOOP_UNROLLED
        for (uint32_t i = 0; i < TILE_TOKENS; i++) {
            q[i] += 32;
            if (has_bias) {
                const v128_t first = wasm_i32x4_mul(wasm_v128_load32_splat(isum + i * n_group), minus_bias);
                dots[i][0] = wasm_i32x4_add(dots[i][0], first);
                dots[i][1] = wasm_i32x4_add(dots[i][1], first);
            }
            const v128_t dq = wasm_v128_load32_splat(d + i * n_group);
            f[i][0] = add_dots(f[i][0], dots[i][0], s0, dq);
            f[i][1] = add_dots(f[i][1], dots[i][1], s1, dq);
            IN_ORDER(f[i][0], f[i][1]);
        }
    }
    LOOP_UNROLLED
    for (uint32_t i = 0; i < TILE_TOKENS; i++, y += stride) {
        wasm_v128_store(y, f[i][0]);
        wasm_v128_store(y + 4, f[i][1]);
    }
}

static void panel_dot_x4__pairs8(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                 uint32_t t) {
    if (p->largest > LARGEST) bytes_dot_x4__relaxed8(y, stride, p, a, t);
    else if (short_words(p->largest) == 4) panel_dot_x4(y, stride, p, a, t, 4, true);
    else if (p->bias) panel_dot_x4(y, stride, p, a, t, 8, true);
    else panel_dot_x4(y, stride, p, a, t, 8, false);
}

/* ---- the types --------------------------------------------------------------------------------------------------- */

#define DOT_OF(TYPE, TEMPLATE, NAME)                                                      \
static void NAME##_dot__pairs8(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) { \
    TEMPLATE##_dot(&NAME, y, rows, a);                                                    \
}
PAIRS_TYPES(DOT_OF)

void kernels_fill_pairs8(struct kernels *k) {
#define FILL(TYPE, TEMPLATE, NAME) k->bytes[0].dot[TYPE] = NAME##_dot__pairs8;
    PAIRS_TYPES(FILL)
    k->unpack[QUANT_Q6_K] = q6_K_unpack__simd128;
    k->bytes[0].dot[QUANT_Q6_K] = NULL;
    k->name = "relaxed-pairs";
    k->isa = KERNELS_PAIRS;
    k->bytes[0].panel_dot_x4 = panel_dot_x4__pairs8;
}

#else
typedef int tiles8_pairs_is_empty;   /* ISO C wants a declaration in every file */
#endif

/* Panels for many tokens: tiles are unpacked to a panel, which is multiplied with 1 or with 4 tokens.  This is a
 * template, as tiles.h is.  In addition to what tiles.h needs, the file that includes it defines:
 *
 *   panel_codes(panel)              returns where the panel's codes are stored, (n / 4, 32): four of each of the 8 rows
 *   store_4(to, CODES, words, k, j, bias, even_odd)        stores four codes of each of the 8 rows.  It subtracts bias
 *                                   from each, unless first_sum makes up for it.  even_odd: CODES returns that order
 *   DOT(dots, w, x)                 dots += w times x, in each 32-bit lane
 *   first_sum(panel, isum)          returns the value with which the sum of a group begins: 0 if store_4 has subtracted
 *                                   the bias, else -bias * *isum
 *   BLOCK_LOOP                      LOOP_UNROLLED or LOOP_ROLLED, for the loop that unpacks a block
 *   GROUP_LOOP                      LOOP_UNROLLED or LOOP_ROLLED, for the loop over the codes of a group with 4 tokens
 */
#ifndef PLUMB_KERNELS_PANELS_H
#define PLUMB_KERNELS_PANELS_H

#include "kernels/tiles.h"

/* ---- from tiles -------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE void block_unpack(const struct block *b, struct panel *p, const uint8_t *rows) {
    const struct tile t = tile_of(b->type);
    const v128_t factor = wasm_f32x4_splat(scales_factor(b));
    code *to = panel_codes(p);
    float *scales = p->scales, *mins = p->mins;
    for (const uint8_t *w = rows, *end = rows + p->n / 32 * t.bytes; w < end; w += t.bytes) {
        OPAQUE(w, to);
        if (b->rolled) {
            LOOP_ROLLED
            for (uint32_t j = 0; j < 8; j++, to += 32) {
                store_4(to, b->codes, w + t.words, 0, j, b->bias, t.even_odd);
            }
        } else {
            BLOCK_LOOP
            for (uint32_t j = 0; j < 8; j++, to += 32) {
                store_4(to, b->codes, w + t.words, 0, j, b->bias, t.even_odd);
            }
        }
        if (t.has_min) {
            for (uint32_t half = 0; half < 2; half++, scales += 4, mins += 4) {
                v128_t h = wasm_v128_load(w + 16 * half);
                wasm_v128_store(scales, wasm_f32x4_mul(f16_small_low(h), factor));
                wasm_v128_store(mins, wasm_f32x4_neg(wasm_f32x4_mul(f16_small_high(h), factor)));
            }
        } else {
            v128_t s = load_scales(b, w);
            wasm_v128_store(scales, wasm_f32x4_mul(scales_f32(b, wasm_i32x4_extend_low_i16x8(s)), factor));
            wasm_v128_store(scales + 4, wasm_f32x4_mul(scales_f32(b, wasm_i32x4_extend_high_i16x8(s)), factor));
            scales += 8;
        }
    }
    p->group = 32;
    p->bias = b->bias;
    p->min_kind = t.has_min ? GROUP_MIN : NO_MIN;
}

ALWAYS_INLINE void superblock_unpack_of(const struct superblock *b, const struct tile *t, struct panel *p,
                                        const uint8_t *rows) {
    code *to = panel_codes(p);
    float *scales = p->scales, *mins = p->mins;
    int16_t *min_codes = p->min_codes;
    for (const uint8_t *w = rows, *end = rows + p->n / t->size * t->bytes; w < end; w += t->bytes) {
        uint8_t expanded[EXPANDED_BYTES];
        superblock_scales(b, t, scales, min_codes, mins, w);
        scales += t->size / t->group * TILE_ROWS;
        if (t->has_min) mins += TILE_ROWS, min_codes += 256 / t->group * TILE_ROWS;
        const uint8_t *words = superblock_words(b, t, expanded, w);
        for (const code *end_of_tile = to + t->size * TILE_ROWS; to < end_of_tile; words += b->step) {
            for (uint32_t k = 0; k < b->period; k++) {
                for (uint32_t j = 0; j < 8; j += t->group / 4) {
                    const uint8_t *words_j = words + b->four * j;
                    LOOP_ROLLED
                    for (uint32_t i = 0; i < t->group / 4; i++, to += 32) {
                        store_4(to, b->codes, words_j, k, i, b->bias, false);
                    }
                }
            }
        }
    }
    p->group = t->group;
    p->bias = b->bias;
    p->min_kind = t->has_min ? SUPERBLOCK_MIN : NO_MIN;
}
ALWAYS_INLINE void superblock_unpack(const struct superblock *b, struct panel *p, const uint8_t *rows) {
    const struct tile t = tile_of(b->type);
    superblock_unpack_of(b, &t, p, rows);
}

/* ---- panels of 8 rows ---------------------------------------------------------------------------------------------
 *
 * A lane is a row, as in tiles, so the scales of 4 rows are one vector.  4 tokens make 8 sums.  Two 16-bit activations,
 * or four of 8 bits, are splat as they are loaded, which occupies no vector unit of x86, and they are used at once.
 * With such loads Cranelift and the V8 of Node 20, which run modules without relaxed SIMD, spill registers, so these
 * modules splat by shuffles.  wasmtime, which is built on Cranelift, does 29 G multiplications a second by shuffles and
 * 26 by loads; Chromium does 30 by shuffles and 34 by loads.
 *
 * In the names below, aHT are integer sums and fHT float sums, of rows 4H .. 4H + 3 and of token t + T; with one token
 * there is no T. */

/* The number of codes in a register.  A 32-bit lane has LANES / 4 codes of a token or of a row. */
enum { LANES = 16 / sizeof(code) };
#if defined(HAVE_RELAXED)
#define SPLAT(q, i) wasm_v128_load32_splat((q) + (i) * LANES / 4)
#define STEP_IN_ORDER(a, b) IN_ORDER(a, b)
#else
#define SPLAT(q, i) wasm_i32x4_shuffle(wasm_v128_load(q), wasm_v128_load(q), i, i, i, i)
#define STEP_IN_ORDER(a, b) (void)0
#endif
/* Multiplies the 32-bit lane i at q with its weights in 8 rows. */
#define DOT_STEP(i)                                                                       \
    do {                                                                                  \
        v128_t s = SPLAT(q, i);                                                           \
        DOT(a0, wasm_v128_load(w + 2 * (i) * LANES), s);                                  \
        DOT(a1, wasm_v128_load(w + (2 * (i) + 1) * LANES), s);                            \
    } while (0)

ALWAYS_INLINE void panel_dot(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t) {
    size_t n_d = a->n / 32, n_sum = a->n / p->group;
    const code *q = codes_of(a, false) + (size_t)t * a->n, *w = (const code *)p->pairs;
    const float *d = a->d + t * n_d, *scales = p->scales;
    const int32_t *isum = (p->group == 32 ? a->isum32 : a->isum16) + t * n_sum;
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0;
    for (size_t i = 0; i < p->n; i += p->group, scales += 8) {
        v128_t a0 = first_sum(p, isum++), a1 = a0;
        for (const code *end = w + (size_t)p->group * 8; w < end; w += 8 * LANES, q += LANES) {
            DOT_STEP(0);
            DOT_STEP(1);
            DOT_STEP(2);
            DOT_STEP(3);
        }
        v128_t dq = wasm_v128_load32_splat(d + i / ACT_BLOCK);
        f0 = add_dots(f0, a0, wasm_v128_load(scales), dq);
        f1 = add_dots(f1, a1, wasm_v128_load(scales + 4), dq);
    }
    wasm_v128_store(y, f0);
    wasm_v128_store(y + 4, f1);
}

/* The same as DOT_STEP for 4 tokens. */
#define TILE_STEP(i)                                                                      \
    do {                                                                                  \
        v128_t w0 = wasm_v128_load(w + 2 * (i) * LANES), w1 = wasm_v128_load(w + (2 * (i) + 1) * LANES), s; \
        s = SPLAT(q0, i);                                                                 \
        DOT(a00, w0, s);                                                                  \
        DOT(a10, w1, s);                                                                  \
        s = SPLAT(q1, i);                                                                 \
        DOT(a01, w0, s);                                                                  \
        DOT(a11, w1, s);                                                                  \
        s = SPLAT(q2, i);                                                                 \
        DOT(a02, w0, s);                                                                  \
        DOT(a12, w1, s);                                                                  \
        s = SPLAT(q3, i);                                                                 \
        DOT(a03, w0, s);                                                                  \
        DOT(a13, w1, s);                                                                  \
        STEP_IN_ORDER(a00, a10);                                                          \
        STEP_IN_ORDER(a01, a11);                                                          \
        STEP_IN_ORDER(a02, a12);                                                          \
        STEP_IN_ORDER(a03, a13);                                                          \
    } while (0)
/* Ends a group for token i: scales its dots and adds them. */
#define TILE_SCALE(i)                                                                     \
    do {                                                                                  \
        v128_t dq = wasm_v128_load32_splat(d + (i) * n_d);                                \
        f0##i = add_dots(f0##i, a0##i, s0, dq);                                           \
        f1##i = add_dots(f1##i, a1##i, s1, dq);                                           \
        IN_ORDER(f0##i, f1##i);                                                           \
    } while (0)

/* As panel_dot, for 4 tokens.  group is that of p; it is a parameter so that it can be a constant. */
ALWAYS_INLINE void panel_dot_x4(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                uint32_t t, uint32_t group) {
    size_t n_d = a->n / 32, n_sum = a->n / group;
    const code *q0 = codes_of(a, false) + (size_t)t * a->n, *q1 = q0 + a->n, *q2 = q1 + a->n, *q3 = q2 + a->n;
    const code *w = (const code *)p->pairs;
    const float *d = a->d + t * n_d, *scales = p->scales;
    const int32_t *isum = (group == 32 ? a->isum32 : a->isum16) + t * n_sum;
    v128_t zero = wasm_i32x4_splat(0), f00 = zero, f01 = zero, f02 = zero, f03 = zero;
    v128_t f10 = zero, f11 = zero, f12 = zero, f13 = zero;
    volatile v128_t sink[2];
    for (size_t i = 0; i < p->n; i += group, scales += 8, isum++) {
        v128_t a00 = first_sum(p, isum), a01 = first_sum(p, isum + n_sum);
        v128_t a02 = first_sum(p, isum + 2 * n_sum), a03 = first_sum(p, isum + 3 * n_sum);
        v128_t a10 = a00, a11 = a01, a12 = a02, a13 = a03;
        GROUP_LOOP
        for (uint32_t j = 0; j < group; j += LANES, w += 8 * LANES) {
            OPAQUE(w, q0);
            TILE_STEP(0);
            TILE_STEP(1);
            TILE_STEP(2);
            TILE_STEP(3);
            q0 += LANES;
            q1 += LANES;
            q2 += LANES;
            q3 += LANES;
            IN_ORDER_STORED(sink, a00, a10);
            IN_ORDER_STORED(sink, a01, a11);
            IN_ORDER_STORED(sink, a02, a12);
            IN_ORDER_STORED(sink, a03, a13);
        }
        v128_t s0 = wasm_v128_load(scales), s1 = wasm_v128_load(scales + 4);
        TILE_SCALE(0);
        TILE_SCALE(1);
        TILE_SCALE(2);
        TILE_SCALE(3);
        if ((i + group) % ACT_BLOCK == 0) d++;   /* two groups of 16 share a step */
    }
    const v128_t low[TILE_TOKENS] = { f00, f01, f02, f03 }, high[TILE_TOKENS] = { f10, f11, f12, f13 };
    for (size_t i = 0; i < TILE_TOKENS; i++, y += stride) {
        wasm_v128_store(y, low[i]);
        wasm_v128_store(y + 4, high[i]);
    }
}

#endif

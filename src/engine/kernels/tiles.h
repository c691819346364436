/* The kernels on packed weights (repack/repack.h): one template for blocks of 32 and one for superblocks, which use the
 * codes and scales that tiles_simd128.h extracts from a tile.  A type is a constant struct that is inlined into its
 * template.  The file that includes this one first defines:
 *
 *   typedef ... code                 the code of an activation, and in panels.h of a weight
 *   codes_of(activations, even_odd)  returns (n_token, n) code.  even_odd selects the bytes in even-odd order, of one
 *                                    token; activations.q is always in that order
 *   N_DOT                            the number of vectors that hold the integer sums of one group of weights of 8
 *                                    rows.  The array of these vectors is called dots
 *   total(dots, half)                returns the finished dots of rows 4 half .. 4 half + 3
 *   in_order(dots, sink)             computes dots before anything that follows; it may store them to sink
 *   dot_4(dots, CODES, words, k, j, q)       dots += four codes times the activations at q
 *   dot_in_place(dots, CODES, words, q, sink)   dots += all codes of a group times the activations at q.  Returns
 *                                    false and does nothing if dot_4 is as good.  It has no k: it is for types with
 *                                    period 1.  Not used if BYTES_ARE_MULTIPLIED
 *
 * or, instead of the last three, defines PAIRS_ARE_ADDED and its own dot_group (tiles8_pairs.c).
 *
 * tiles8_relaxed.c multiplies bytes by bytes, tiles16_relaxed.c bytes by the two bytes of each activation, and
 * tiles_simd128.c 16-bit codes.  The codes of weights are too large by the type's bias, so a dot begins with
 * -bias * (sum of the activations' codes).
 */
#ifndef PLUMB_KERNELS_TILES_H
#define PLUMB_KERNELS_TILES_H

#include "kernels/tiles_simd128.h"

/* Initializes N_DOT sums: the last two, of rows 0 .. 3 and 4 .. 7, to v, and the others to 0.  If there are four, the
 * first two are those of high bytes, which total multiplies by 256. */
ALWAYS_INLINE void begin_with(v128_t dots[N_DOT], v128_t v) {
    LOOP_UNROLLED
    for (uint32_t i = 0; i < N_DOT; i++) dots[i] = i + 2 < N_DOT ? wasm_i32x4_splat(0) : v;
}

#if !defined(PAIRS_ARE_ADDED)
/* dots += n words, of four codes for each row, times the activations at q.  halves: words j and j + 4 are multiplied
 * together, because in types with nibbles they are the low and the high ones of the same word. */
ALWAYS_INLINE void dot_group(v128_t dots[N_DOT], enum quant_type type, tile_codes *codes, const uint8_t *words,
                             uint32_t k, uint32_t n, bool halves, const code *q, volatile v128_t sink[2]) {
#if !defined(BYTES_ARE_MULTIPLIED)
    if (dot_in_place(dots, codes, words, q, sink)) return;
#endif
    LOOP_UNROLLED
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = halves ? i / 2 + i % 2 * 4 : i;
        dot_4(dots, codes, words, k, j, q + 4 * j);
        if (i % 2) in_order(dots, sink);
    }
    (void)type;
}
#endif

/* A tile of a type, from its descriptor. */
struct tile {
    uint32_t size;       /* weights of each row */
    uint32_t bytes;
    uint32_t words;      /* offset of the words of codes */
    uint32_t group;      /* weights that share a scale: 16 or 32 */
    bool has_min;
    bool even_odd;       /* the codes are bytes in even-odd order */
};
ALWAYS_INLINE struct tile tile_of(enum quant_type type) {
    const struct quant_traits *t = &quant_types[type];
    return (struct tile) { t->block_size, TILE_ROWS * t->block_bytes, repack_words(t), t->group, t->min_kind != NO_MIN,
                           t->packing == QUANT_EVEN_ODD };
}

/* ---- blocks of 32 ------------------------------------------------------------------------------------------------ */

struct block {
    enum quant_type type;
    tile_codes *codes;
    int16_t bias;        /* what `codes` returns is too large by this */
    bool rolled;         /* unpacking to a panel is a loop, which has fewer bytes than 8 copies */
};

/* Without minima, a tile begins with the scales of its rows.  load_scales returns those of the 8 rows in 16-bit lanes,
 * and scales_f32 converts four of them, sign-extended to i32, to f32.  These are exact but for a factor.  An exponent e
 * stands for 2^(e - 128), and e < 254 in a tile.  Four times that is a normal f32 in any case. */
ALWAYS_INLINE bool has_exponents(const struct block *b) {
    return quant_types[b->type].d_kind == QUANT_SCALE_EXPONENTS;
}
ALWAYS_INLINE v128_t load_scales(const struct block *b, const uint8_t *tile) {
    return has_exponents(b) ? wasm_u16x8_load8x8(tile) : wasm_v128_load(tile);
}
ALWAYS_INLINE v128_t scales_f32(const struct block *b, v128_t s) {
    return has_exponents(b) ? wasm_i32x4_shl(wasm_i32x4_add(s, wasm_i32x4_splat(1)), 23) : f16_small(s);
}
ALWAYS_INLINE float scales_factor(const struct block *b) { return has_exponents(b) ? 0.25f : F16_FACTOR; }

/* y = 8 packed rows times one token.  f0 and f1 are the sums of rows 0 .. 3 and 4 .. 7, and m0 and m1 those of m * sum.
 * dq is the step of the activations, times the factor of the scales. */

ALWAYS_INLINE void block_dot(const struct block *b, float y[TILE_ROWS], const uint8_t *rows,
                             const struct activations *a) {
    const struct tile t = tile_of(b->type);
    size_t n_block = a->n / 32;
    const code *q = codes_of(a, t.even_odd);
    const float *d = a->d, *sum = a->sum32;
    const int32_t *isum = a->isum32;
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0, m0 = f0, m1 = f0;
    v128_t minus_bias = wasm_i32x4_splat(-b->bias), factor = wasm_f32x4_splat(scales_factor(b));
    volatile v128_t sink[2];
    IN_REGISTER(minus_bias);
    IN_REGISTER(factor);
    for (const uint8_t *w = rows, *end = rows + n_block * t.bytes; w < end; w += t.bytes, q += 32) {
        OPAQUE(w, q);
        v128_t first = wasm_i32x4_splat(0);
        if (b->bias) first = wasm_i32x4_mul(wasm_v128_load32_splat(isum++), minus_bias);
        v128_t dots[N_DOT];
        begin_with(dots, first);
        dot_group(dots, b->type, b->codes, w + t.words, 0, 8, true, q, sink);
        v128_t dq = wasm_f32x4_mul(wasm_v128_load32_splat(d++), factor);
        if (t.has_min) {
            v128_t h0 = wasm_v128_load(w), h1 = wasm_v128_load(w + 16);
            f0 = add_dots(f0, total(dots, 0), f16_small_low(h0), dq);
            f1 = add_dots(f1, total(dots, 1), f16_small_low(h1), dq);
            v128_t s = wasm_v128_load32_splat(sum++);
            m0 = mul_add(m0, wasm_f32x4_mul(f16_small_high(h0), factor), s);   /* m = -min, so it is added */
            m1 = mul_add(m1, wasm_f32x4_mul(f16_small_high(h1), factor), s);
        } else {
            v128_t s = load_scales(b, w);
            f0 = add_dots(f0, total(dots, 0), scales_f32(b, wasm_i32x4_extend_low_i16x8(s)), dq);
            f1 = add_dots(f1, total(dots, 1), scales_f32(b, wasm_i32x4_extend_high_i16x8(s)), dq);
        }
    }
    if (t.has_min) {
        f0 = wasm_f32x4_add(f0, m0);
        f1 = wasm_f32x4_add(f1, m1);
    }
    wasm_v128_store(y, f0);
    wasm_v128_store(y + 4, f1);
}

static const struct block q4_0 = { QUANT_Q4_0, q4_codes, .bias = 8 };
static const struct block q4_1 = { QUANT_Q4_1, q4_codes, .rolled = true };
static const struct block q5_0 = { QUANT_Q5_0, q5_codes, .bias = 16, .rolled = true };
static const struct block q5_1 = { QUANT_Q5_1, q5_codes, .rolled = true };
static const struct block q8_0 = { QUANT_Q8_0, q8_codes, .bias = 128 };
static const struct block q8_0_signed = { QUANT_Q8_0, q8_signed_codes, .bias = 0 };
static const struct block iq4_nl = { QUANT_IQ4_NL, iq4_codes, .bias = 128, .rolled = true };
static const struct block mxfp4 = { QUANT_MXFP4, mxfp4_codes, .bias = 12, .rolled = true };

/* ---- superblocks of 256, and blocks of 64 and 128 ---------------------------------------------------------------- */

struct superblock {
    enum quant_type type;
    tile_codes *codes;
    tile_scales *scales;   /* NULL: the type has one scale */
    tile_expand *expand;   /* NULL: `codes` reads the words of a tile */
    uint32_t period;       /* the layout of the words repeats after `period` times 32 weights */
    uint32_t step;         /* bytes of a tile from one period to the next; 0 if a superblock is one period */
    uint32_t four;         /* bytes of a tile for four weights of each row.  If group is 16, the second group of 32
                            * weights begins 4 * four bytes after the first */
    int16_t bias;          /* what `codes` returns is too large by this */
    uint8_t odd_shift;  /* for odd k, `codes` returns codes that are shifted to the left by this many bits */
};

ALWAYS_INLINE void superblock_scales(const struct superblock *b, const struct tile *t, float *scales,
                                     int16_t *min_codes, float *mins, const uint8_t *tile) {
    if (b->scales) b->scales(scales, min_codes, mins, tile);
    else d_scales(scales, tile, t->size / t->group);
}

/* Returns the words of a tile that `codes` reads. */
enum { EXPANDED_BYTES = 256 * TILE_ROWS / 4 };
ALWAYS_INLINE const uint8_t *superblock_words(const struct superblock *b, const struct tile *t,
                                              uint8_t expanded[EXPANDED_BYTES], const uint8_t *tile) {
    if (!b->expand) return tile + t->words;
    b->expand(expanded, tile + t->words);
    return expanded;
}

/* y = 8 packed rows times one token.  A group begins at weight 32 * k + 4 * j of its period, where j is 0, or also 4 if
 * groups have 16 weights.  dot_4 multiplies weights 4 * i .. 4 * i + 3 of the group. */

ALWAYS_INLINE void superblock_dot_of(const struct superblock *b, const struct tile *t, float y[TILE_ROWS],
                                     const uint8_t *rows, const struct activations *a) {
    const code *q = codes_of(a, false);
    const struct sums *sums = t->group == 32 ? &a->sums32 : &a->sums16;
    const float *d = a->d, *sum_d = sums->d;
    const int16_t *sum_q = sums->q;
    const int32_t *isum = t->group == 32 ? a->isum32 : a->isum16;
    v128_t f0 = wasm_f32x4_splat(0.0f), f1 = f0, min_sums[2] = { f0, f0 }, minus_bias = wasm_i32x4_splat(-b->bias);
    volatile v128_t sink[2];
    IN_REGISTER(minus_bias);
    for (const uint8_t *w = rows, *end = rows + a->n / t->size * t->bytes; w < end; w += t->bytes) {
        float scales[16 * TILE_ROWS], mins[TILE_ROWS];
        int16_t min_codes[16 * TILE_ROWS];
        uint8_t expanded[EXPANDED_BYTES];
        superblock_scales(b, t, scales, min_codes, mins, w);
        if (t->has_min) {
            add_mins(min_sums, min_codes, mins, sum_q, sum_d++, 256 / t->group);
            sum_q += 256 / t->group;
        }
        const float *scale = scales;
        const uint8_t *words = superblock_words(b, t, expanded, w);
        for (const code *q_end = q + t->size; q < q_end; words += b->step) {
            LOOP_UNROLLED
            for (uint32_t k = 0; k < b->period; k++) {
                v128_t dq = wasm_v128_load32_splat(d++);
                LOOP_ROLLED
                for (uint32_t j = 0; j < 8; j += t->group / 4, scale += 8) {
                    const uint8_t *words_j = words + b->four * j;
                    OPAQUE(words_j, q);
                    OPAQUE(scale, d);
                    v128_t first = wasm_i32x4_splat(0);
                    if (b->bias) first = wasm_i32x4_mul(wasm_v128_load32_splat(isum++), minus_bias);
                    v128_t dots[N_DOT];
                    begin_with(dots, first);
                    /* q advances after each group of 16, but for groups of 32 only after a whole period.  So no offset
                     * from one value of q occurs twice: if V8 sees one twice, it keeps the address on the stack. */
                    uint32_t at = t->group == 32 ? 32 * k : 0;
                    dot_group(dots, b->type, b->codes, words_j, k, t->group / 4, false, q + at, sink);
                    uint32_t shift = k % 2 * b->odd_shift;
                    f0 = add_dots(f0, wasm_i32x4_shr(total(dots, 0), shift), wasm_v128_load(scale), dq);
                    f1 = add_dots(f1, wasm_i32x4_shr(total(dots, 1), shift), wasm_v128_load(scale + 4), dq);
                    if (t->group < 32) q += t->group;
                    /* Computes f0 and f1 before the next group begins.  Otherwise the operands of the next group, and
                     * words that both groups use, are live at the same time and are spilled. */
                    sink[0] = f0;
                    IN_ORDER(f0, f1);
                }
            }
            if (t->group == 32) q += 32 * b->period;
        }
    }
    wasm_v128_store(y, wasm_f32x4_sub(f0, min_sums[0]));
    wasm_v128_store(y + 4, wasm_f32x4_sub(f1, min_sums[1]));
}
ALWAYS_INLINE void superblock_dot(const struct superblock *b, float y[TILE_ROWS], const uint8_t *rows,
                                  const struct activations *a) {
    const struct tile t = tile_of(b->type);
    superblock_dot_of(b, &t, y, rows, a);
}

static const struct superblock q4_K = {
    QUANT_Q4_K, q4_K_codes, .scales = q4_K_scales, .period = 2, .step = 256, .four = 32,
};
static const struct superblock q4_K_unshifted = {
    QUANT_Q4_K, q4_K_unshifted_codes, .scales = q4_K_scales, .period = 2, .step = 256, .four = 32, .odd_shift = 4,
};
static const struct superblock q5_K = {
    QUANT_Q5_K, q5_codes, .scales = q4_K_scales, .period = 1, .step = 160, .four = 20,
};
static const struct superblock q6_K = {
    QUANT_Q6_K, q6_K_codes, .scales = q6_K_scales, .period = 1, .step = 192, .four = 24, .bias = 32,
};
static const struct superblock q2_K = {
    QUANT_Q2_K, q2_K_codes, .scales = q2_K_scales, .period = 4, .step = 256, .four = 32,
};
static const struct superblock q3_K = {
    QUANT_Q3_K, q3_K_codes, .scales = q3_K_scales, .period = 8, .four = 32, .bias = 4,
};
static const struct superblock iq4_xs = {
    QUANT_IQ4_XS, iq4_codes, .scales = iq4_xs_scales, .period = 1, .step = 128, .four = 32, .bias = 128,
};
static const struct superblock nvfp4 = {
    QUANT_NVFP4, nvfp4_codes, .scales = nvfp4_scales, .period = 1, .step = 128, .four = 16, .bias = 12,
};

/* ---- codes of two bits, and one scale ----------------------------------------------------------------------------
 *
 * These types share one dot and one unpacker, to which the fields that differ are arguments. */

struct two_bits {
    enum quant_type type;
    tile_expand *expand;
};

static const struct two_bits tq2_0 = { QUANT_TQ2_0, NULL }, tq1_0 = { QUANT_TQ1_0, tq1_0_expand };
static const struct two_bits q2_0 = { QUANT_Q2_0, NULL }, q1_0 = { QUANT_Q1_0, q1_0_expand };

#endif

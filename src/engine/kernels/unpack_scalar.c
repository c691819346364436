/* The portable row unpackers.  For weight e of a block, they follow the formulas of quant/blocks.h, but leave out the
 * last product, scale * code, and the minimum, which is subtracted after it. */
#include "kernels/unpack.h"

#include "kernels/grids.h"
#include "quant/blocks.h"
#include "quant/quant.h"

#include <stddef.h>

static float load_f16(const uint8_t *p) { return f32_from_f16(load_u16(p)); }

/* ---- blocks of 32: one group each ----------------------------------------------------------------------------- */

/* Stores the 32 nibbles of 16 bytes, low ones first, after subtracting bias. */
static void store_nibbles(int16_t *codes, const uint8_t *qs, int bias) {
    for (size_t e = 0; e < 16; e++) {
        codes[e] = (int16_t)((qs[e] & 15) - bias);
        codes[e + 16] = (int16_t)((qs[e] >> 4) - bias);
    }
}

/* Stores the values that 2 n nibbles stand for, low nibbles first. */
static void store_values(int16_t *codes, const uint8_t *qs, const int8_t values[16], size_t n) {
    for (size_t e = 0; e < n; e++) {
        codes[e] = values[qs[e] & 15];
        codes[e + n] = values[qs[e] >> 4];
    }
}

static void unpack_q4_0__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    (void)min, (void)min_codes;
    const struct block_q4_0 *end = (const struct block_q4_0 *)src + n / 32;
    for (const struct block_q4_0 *b = src; b < end; b++, codes += 32) {
        *scale++ = load_f16(b->d);
        store_nibbles(codes, b->qs, 8);
    }
}

static void unpack_q4_1__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    (void)min_codes;
    const struct block_q4_1 *end = (const struct block_q4_1 *)src + n / 32;
    for (const struct block_q4_1 *b = src; b < end; b++, codes += 32) {
        *scale++ = load_f16(b->d);
        *min++ = -load_f16(b->m);
        store_nibbles(codes, b->qs, 0);
    }
}

/* The 5-bit code of weight e, for q5_0 and q5_1. */
static int q5_code(const uint8_t qh[4], const uint8_t qs[16], size_t e) {
    return (qs[e % 16] >> (e / 16 * 4) & 15) | (qh[e / 8] >> (e % 8) & 1) << 4;
}

static void unpack_q5_0__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    (void)min, (void)min_codes;
    const struct block_q5_0 *end = (const struct block_q5_0 *)src + n / 32;
    for (const struct block_q5_0 *b = src; b < end; b++, codes += 32) {
        *scale++ = load_f16(b->d);
        for (size_t e = 0; e < 32; e++) codes[e] = (int16_t)(q5_code(b->qh, b->qs, e) - 16);
    }
}

static void unpack_q5_1__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    (void)min_codes;
    const struct block_q5_1 *end = (const struct block_q5_1 *)src + n / 32;
    for (const struct block_q5_1 *b = src; b < end; b++, codes += 32) {
        *scale++ = load_f16(b->d);
        *min++ = -load_f16(b->m);
        for (size_t e = 0; e < 32; e++) codes[e] = (int16_t)q5_code(b->qh, b->qs, e);
    }
}

static void unpack_q8_0__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    (void)min, (void)min_codes;
    const struct block_q8_0 *end = (const struct block_q8_0 *)src + n / 32;
    for (const struct block_q8_0 *b = src; b < end; b++, codes += 32) {
        *scale++ = load_f16(b->d);
        for (size_t e = 0; e < 32; e++) codes[e] = b->qs[e];
    }
}

static void unpack_iq4_nl__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                  size_t n) {
    (void)min, (void)min_codes;
    const struct block_iq4_nl *end = (const struct block_iq4_nl *)src + n / 32;
    for (const struct block_iq4_nl *b = src; b < end; b++, codes += 32) {
        *scale++ = load_f16(b->d);
        store_values(codes, b->qs, quant_iq4_values, 16);
    }
}

static void unpack_mxfp4__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                 size_t n) {
    (void)min, (void)min_codes;
    const struct block_mxfp4 *end = (const struct block_mxfp4 *)src + n / 32;
    for (const struct block_mxfp4 *b = src; b < end; b++, codes += 32) {
        *scale++ = quant_mxfp4_scale(b->e);
        store_values(codes, b->qs, quant_fp4_values, 16);
    }
}

/* ---- superblocks of 256: 16 groups of 16 or 8 of 32 ----------------------------------------------------------- */

static void unpack_q2_K__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    const struct block_q2_K *end = (const struct block_q2_K *)src + n / 256;
    for (const struct block_q2_K *b = src; b < end; b++, codes += 256) {
        float d = load_f16(b->d);
        *min++ = load_f16(b->dmin);
        for (size_t g = 0; g < 16; g++) {
            *scale++ = d * (float)(b->scales[g] & 15);
            *min_codes++ = b->scales[g] >> 4;
        }
        for (size_t e = 0; e < 256; e++)
            codes[e] = (int16_t)(b->qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3);
    }
}

static void unpack_q3_K__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    (void)min, (void)min_codes;
    const struct block_q3_K *end = (const struct block_q3_K *)src + n / 256;
    for (const struct block_q3_K *b = src; b < end; b++, codes += 256) {
        float d = load_f16(b->d);
        for (size_t g = 0; g < 16; g++) *scale++ = d * (float)quant_q3_K_scale(b->scales, g);
        for (size_t e = 0; e < 256; e++) {
            int low = b->qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3, high = b->hmask[e % 32] >> (e / 32) & 1;
            codes[e] = (int16_t)((low | high << 2) - 4);
        }
    }
}

static void unpack_q4_K__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    const struct block_q4_K *end = (const struct block_q4_K *)src + n / 256;
    for (const struct block_q4_K *b = src; b < end; b++, codes += 256) {
        float d = load_f16(b->d);
        *min++ = load_f16(b->dmin);
        for (size_t g = 0; g < 8; g++) {
            *scale++ = d * (float)quant_q4_K_scale(b->scales, g);
            *min_codes++ = (int16_t)quant_q4_K_min(b->scales, g);
        }
        for (size_t e = 0; e < 256; e++)
            codes[e] = (int16_t)(b->qs[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15);
    }
}

static void unpack_q5_K__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    const struct block_q5_K *end = (const struct block_q5_K *)src + n / 256;
    for (const struct block_q5_K *b = src; b < end; b++, codes += 256) {
        float d = load_f16(b->d);
        *min++ = load_f16(b->dmin);
        for (size_t g = 0; g < 8; g++) {
            *scale++ = d * (float)quant_q4_K_scale(b->scales, g);
            *min_codes++ = (int16_t)quant_q4_K_min(b->scales, g);
        }
        for (size_t e = 0; e < 256; e++) {
            int low = b->qs[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15, high = b->qh[e % 32] >> (e / 32) & 1;
            codes[e] = (int16_t)(low | high << 4);
        }
    }
}

static void unpack_q6_K__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    (void)min, (void)min_codes;
    const struct block_q6_K *end = (const struct block_q6_K *)src + n / 256;
    for (const struct block_q6_K *b = src; b < end; b++, codes += 256) {
        float d = load_f16(b->d);
        for (size_t g = 0; g < 16; g++) *scale++ = d * (float)b->scales[g];
        for (size_t e = 0; e < 256; e++) {
            int low = b->ql[e / 128 * 64 + e % 64] >> (e % 128 / 64 * 4) & 15;
            int high = b->qh[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
            codes[e] = (int16_t)((low | high << 4) - 32);
        }
    }
}

static void unpack_iq4_xs__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                  size_t n) {
    (void)min, (void)min_codes;
    const struct block_iq4_xs *end = (const struct block_iq4_xs *)src + n / 256;
    for (const struct block_iq4_xs *b = src; b < end; b++, codes += 256) {
        float d = load_f16(b->d);
        for (size_t g = 0; g < 8; g++) {
            *scale++ = d * (float)quant_iq4_xs_scale(b, g);
            store_values(codes + 32 * g, b->qs + 16 * g, quant_iq4_values, 16);
        }
    }
}

/* ---- superblocks with grids -------------------------------------------------------------------------------------- */

/* Number i of a field. */
static unsigned grid_field(const uint8_t *words, const struct grid_field *f, size_t i) {
    size_t at = f->first + i / 4 * f->four + i % 4 * f->step;
    return load_u32(words + at / 32 * 4) >> at % 32 & ((1u << f->bits) - 1);
}

/* 8 signs from 7. */
static unsigned even_signs(unsigned signs) { return signs | ((unsigned)__builtin_popcount(signs) & 1) << 7; }

/* The codes of 8 weights, vector v of a block. */
static void unpack_vector(const struct grid_type *t, const uint8_t *words, size_t v, int16_t codes[8]) {
    unsigned low = grid_field(words, &t->low, v), high = grid_field(words, &t->high, v);
    unsigned signs = grid_field(words, &t->signs, v), code_mask = t->n_entry == 2 ? 7 : 3;
    uint16_t entry[2];
    if (t->n_entry == 2) {
        entry[0] = t->grid[(low & 255) | (high & 1) << 8];
        entry[1] = t->grid[low >> 8 | high >> 1 << 8];
    } else {
        entry[0] = t->grid[low | high << 8];
    }
    if (t->signs.bits == 7) signs = even_signs(signs);
    for (size_t j = 0; j < 8; j++) {
        unsigned code = t->n_entry == 2 ? (unsigned)entry[j / 4] >> quant_grid_shift(j % 4)
                                        : (unsigned)entry[0] >> quant_grid_shift(j);
        int value = t->values[code & code_mask];
        if (t->signs.bits == 1) value -= signs ? 2 : 0;
        else if (signs >> j & 1) value = -value;
        codes[j] = (int16_t)value;
    }
}

static void unpack_grids(const struct grid_type *t, const uint8_t *block, int16_t *codes, float *scale, size_t n) {
    for (const uint8_t *end = block + n / 256 * t->bytes; block < end; block += t->bytes, codes += 256) {
        const uint8_t *scales = block + offsetof(struct block_iq1_m, scales);
        float d = t->factor * f32_from_f16(t->words > 0 ? load_u16(block) : quant_iq1_m_d(scales));
        for (size_t g = 0; g < 256u / t->group; g++) {
            *scale++ = d * (float)(2 * grid_field(block + t->words, &t->scale, g) + 1);
        }
        for (size_t v = 0; v < 32; v++) unpack_vector(t, block + t->words, v, codes + 8 * v);
    }
}

#define UNPACK_GRIDS(NAME)                                                                \
static void unpack_##NAME##__scalar(const void *src, int16_t *codes, float *scale, float *min, \
                                    int16_t *min_codes, size_t n) {                       \
    (void)min, (void)min_codes;                                                           \
    unpack_grids(&grid_##NAME, src, codes, scale, n);                                     \
}
UNPACK_GRIDS(iq2_xxs)
UNPACK_GRIDS(iq2_xs)
UNPACK_GRIDS(iq2_s)
UNPACK_GRIDS(iq3_xxs)
UNPACK_GRIDS(iq3_s)
UNPACK_GRIDS(iq1_s)
UNPACK_GRIDS(iq1_m)

/* ---- nvfp4, and types with one scale for 64, 128 or 256 weights ------------------------------------------------ */

/* Stores d as the scale of n groups.  Returns where the next block's scales go. */
static float *store_scale(float *scale, const uint8_t d[2], size_t n) {
    for (size_t i = 0; i < n; i++) scale[i] = load_f16(d);
    return scale + n;
}

static void unpack_nvfp4__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                 size_t n) {
    (void)min, (void)min_codes;
    const struct block_nvfp4 *end = (const struct block_nvfp4 *)src + n / 64;
    for (const struct block_nvfp4 *b = src; b < end; b++) {
        for (size_t g = 0; g < 4; g++, codes += 16) {
            *scale++ = quant_nvfp4_scale(b->d[g]);
            store_values(codes, b->qs + 8 * g, quant_fp4_values, 8);
        }
    }
}

static void unpack_q1_0__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    (void)min, (void)min_codes;
    const struct block_q1_0 *end = (const struct block_q1_0 *)src + n / 128;
    for (const struct block_q1_0 *b = src; b < end; b++, codes += 128) {
        scale = store_scale(scale, b->d, 4);
        for (size_t e = 0; e < 128; e++) codes[e] = b->qs[e / 8] >> (e % 8) & 1 ? 1 : -1;
    }
}

static void unpack_q2_0__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                size_t n) {
    (void)min, (void)min_codes;
    const struct block_q2_0 *end = (const struct block_q2_0 *)src + n / 64;
    for (const struct block_q2_0 *b = src; b < end; b++, codes += 64) {
        scale = store_scale(scale, b->d, 2);
        for (size_t e = 0; e < 64; e++) codes[e] = (int16_t)((b->qs[e / 4] >> (e % 4 * 2) & 3) - 1);
    }
}

static void unpack_tq1_0__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                 size_t n) {
    (void)min, (void)min_codes;
    const struct block_tq1_0 *end = (const struct block_tq1_0 *)src + n / 256;
    for (const struct block_tq1_0 *b = src; b < end; b++, codes += 256) {
        scale = store_scale(scale, b->d, 8);
        for (size_t e = 0; e < 256; e++) codes[e] = (int16_t)(quant_tq1_0_digit(b, e) - 1);
    }
}

static void unpack_tq2_0__scalar(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes,
                                 size_t n) {
    (void)min, (void)min_codes;
    const struct block_tq2_0 *end = (const struct block_tq2_0 *)src + n / 256;
    for (const struct block_tq2_0 *b = src; b < end; b++, codes += 256) {
        scale = store_scale(scale, b->d, 8);
        for (size_t e = 0; e < 256; e++)
            codes[e] = (int16_t)((b->qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3) - 1);
    }
}

const struct unpack_traits *unpack_scalar(uint32_t type) {
    static const struct unpack_traits table[QUANT_TYPE_COUNT] = {
        [QUANT_Q4_0] = {32, NO_MIN, unpack_q4_0__scalar},
        [QUANT_Q4_1] = {32, GROUP_MIN, unpack_q4_1__scalar},
        [QUANT_Q5_0] = {32, NO_MIN, unpack_q5_0__scalar},
        [QUANT_Q5_1] = {32, GROUP_MIN, unpack_q5_1__scalar},
        [QUANT_Q8_0] = {32, NO_MIN, unpack_q8_0__scalar},
        [QUANT_Q2_K] = {16, SUPERBLOCK_MIN, unpack_q2_K__scalar},
        [QUANT_Q3_K] = {16, NO_MIN, unpack_q3_K__scalar},
        [QUANT_Q4_K] = {32, SUPERBLOCK_MIN, unpack_q4_K__scalar},
        [QUANT_Q5_K] = {32, SUPERBLOCK_MIN, unpack_q5_K__scalar},
        [QUANT_Q6_K] = {16, NO_MIN, unpack_q6_K__scalar},
        [QUANT_IQ4_NL] = {32, NO_MIN, unpack_iq4_nl__scalar},
        [QUANT_IQ4_XS] = {32, NO_MIN, unpack_iq4_xs__scalar},
        [QUANT_MXFP4] = {32, NO_MIN, unpack_mxfp4__scalar},
        [QUANT_IQ2_XXS] = {32, NO_MIN, unpack_iq2_xxs__scalar},
        [QUANT_IQ2_XS] = {16, NO_MIN, unpack_iq2_xs__scalar},
        [QUANT_IQ2_S] = {16, NO_MIN, unpack_iq2_s__scalar},
        [QUANT_IQ3_XXS] = {32, NO_MIN, unpack_iq3_xxs__scalar},
        [QUANT_IQ3_S] = {32, NO_MIN, unpack_iq3_s__scalar},
        [QUANT_IQ1_S] = {32, NO_MIN, unpack_iq1_s__scalar},
        [QUANT_IQ1_M] = {16, NO_MIN, unpack_iq1_m__scalar},
        [QUANT_NVFP4] = {16, NO_MIN, unpack_nvfp4__scalar},
        [QUANT_Q1_0] = {32, NO_MIN, unpack_q1_0__scalar},
        [QUANT_Q2_0] = {32, NO_MIN, unpack_q2_0__scalar},
        [QUANT_TQ1_0] = {32, NO_MIN, unpack_tq1_0__scalar},
        [QUANT_TQ2_0] = {32, NO_MIN, unpack_tq2_0__scalar},
    };
    return type < QUANT_TYPE_COUNT && table[type].row ? &table[type] : NULL;
}

/* The reference dequantizers, one per type.  Each applies the formula above its diagram in blocks.h to one weight e
 * after the other.  They are slow and obvious on purpose: kernels are checked against them.
 */
#include "quant/dequant.h"

#include "quant/blocks.h"
#include "quant/grids.h"

const int8_t quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t quant_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
const int8_t quant_iq2_values[3] = {8, 25, 43}, quant_iq3_xxs_values[8] = {4, 12, 20, 28, 36, 44, 52, 62};

static float load_f16(const uint8_t *p) { return f32_from_f16(load_u16(p)); }

/* ---- plain floats ------------------------------------------------------------------------------------------------ */

void quant_dequantize_f32(const void *src, float *dst, size_t n) {
    const uint8_t *p = src;
    for (size_t e = 0; e < n; e++) dst[e] = f32_from_bits(load_u32(p + 4 * e));
}

void quant_dequantize_f16(const void *src, float *dst, size_t n) {
    const uint8_t *p = src;
    for (size_t e = 0; e < n; e++) dst[e] = load_f16(p + 2 * e);
}

void quant_dequantize_bf16(const void *src, float *dst, size_t n) {
    const uint8_t *p = src;
    for (size_t e = 0; e < n; e++) dst[e] = f32_from_bf16(load_u16(p + 2 * e));
}

/* ---- blocks of 32 ------------------------------------------------------------------------------------------------ */

void quant_dequantize_q4_0(const void *src, float *dst, size_t n) {
    const struct block_q4_0 *end = (const struct block_q4_0 *)src + n / 32;
    for (const struct block_q4_0 *b = src; b < end; b++, dst += 32) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 32; e++) {
            int q = b->qs[e % 16] >> (e / 16 * 4) & 15;
            dst[e] = d * (float)(q - 8);
        }
    }
}

void quant_dequantize_q4_1(const void *src, float *dst, size_t n) {
    const struct block_q4_1 *end = (const struct block_q4_1 *)src + n / 32;
    for (const struct block_q4_1 *b = src; b < end; b++, dst += 32) {
        float d = load_f16(b->d), m = load_f16(b->m);
        for (size_t e = 0; e < 32; e++) {
            int q = b->qs[e % 16] >> (e / 16 * 4) & 15;
            dst[e] = d * (float)q + m;
        }
    }
}

/* The 5-bit code of weight e, for q5_0 and q5_1. */
static int q5_code(const uint8_t qh[4], const uint8_t qs[16], size_t e) {
    return (qs[e % 16] >> (e / 16 * 4) & 15) | (qh[e / 8] >> (e % 8) & 1) << 4;
}

void quant_dequantize_q5_0(const void *src, float *dst, size_t n) {
    const struct block_q5_0 *end = (const struct block_q5_0 *)src + n / 32;
    for (const struct block_q5_0 *b = src; b < end; b++, dst += 32) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 32; e++) dst[e] = d * (float)(q5_code(b->qh, b->qs, e) - 16);
    }
}

void quant_dequantize_q5_1(const void *src, float *dst, size_t n) {
    const struct block_q5_1 *end = (const struct block_q5_1 *)src + n / 32;
    for (const struct block_q5_1 *b = src; b < end; b++, dst += 32) {
        float d = load_f16(b->d), m = load_f16(b->m);
        for (size_t e = 0; e < 32; e++) dst[e] = d * (float)q5_code(b->qh, b->qs, e) + m;
    }
}

void quant_dequantize_q8_0(const void *src, float *dst, size_t n) {
    const struct block_q8_0 *end = (const struct block_q8_0 *)src + n / 32;
    for (const struct block_q8_0 *b = src; b < end; b++, dst += 32) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 32; e++) dst[e] = d * (float)b->qs[e];
    }
}

void quant_dequantize_iq4_nl(const void *src, float *dst, size_t n) {
    const struct block_iq4_nl *end = (const struct block_iq4_nl *)src + n / 32;
    for (const struct block_iq4_nl *b = src; b < end; b++, dst += 32) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 32; e++) {
            int q = b->qs[e % 16] >> (e / 16 * 4) & 15;
            dst[e] = d * (float)quant_iq4_values[q];
        }
    }
}

/* ---- superblocks of 256 ------------------------------------------------------------------------------------------ */

/* d is multiplied with the group's scale first, as in ggml: (d * sc) * q rounds differently from d * (sc * q). */

void quant_dequantize_q2_K(const void *src, float *dst, size_t n) {
    const struct block_q2_K *end = (const struct block_q2_K *)src + n / 256;
    for (const struct block_q2_K *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d), dmin = load_f16(b->dmin);
        for (size_t e = 0; e < 256; e++) {
            int q = b->qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
            float scale = d * (float)(b->scales[e / 16] & 15), min = dmin * (float)(b->scales[e / 16] >> 4);
            dst[e] = scale * (float)q - min;
        }
    }
}

void quant_dequantize_q3_K(const void *src, float *dst, size_t n) {
    const struct block_q3_K *end = (const struct block_q3_K *)src + n / 256;
    for (const struct block_q3_K *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) {
            int low = b->qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3, high = b->hmask[e % 32] >> (e / 32) & 1;
            float scale = d * (float)quant_q3_K_scale(b->scales, e / 16);
            dst[e] = scale * (float)((low | high << 2) - 4);
        }
    }
}

void quant_dequantize_q4_K(const void *src, float *dst, size_t n) {
    const struct block_q4_K *end = (const struct block_q4_K *)src + n / 256;
    for (const struct block_q4_K *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d), dmin = load_f16(b->dmin);
        for (size_t e = 0; e < 256; e++) {
            int q = b->qs[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15;
            float scale = d * (float)quant_q4_K_scale(b->scales, e / 32);
            float min = dmin * (float)quant_q4_K_min(b->scales, e / 32);
            dst[e] = scale * (float)q - min;
        }
    }
}

void quant_dequantize_q5_K(const void *src, float *dst, size_t n) {
    const struct block_q5_K *end = (const struct block_q5_K *)src + n / 256;
    for (const struct block_q5_K *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d), dmin = load_f16(b->dmin);
        for (size_t e = 0; e < 256; e++) {
            int low = b->qs[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15, high = b->qh[e % 32] >> (e / 32) & 1;
            float scale = d * (float)quant_q4_K_scale(b->scales, e / 32);
            float min = dmin * (float)quant_q4_K_min(b->scales, e / 32);
            dst[e] = scale * (float)(low | high << 4) - min;
        }
    }
}

void quant_dequantize_q6_K(const void *src, float *dst, size_t n) {
    const struct block_q6_K *end = (const struct block_q6_K *)src + n / 256;
    for (const struct block_q6_K *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) {
            int low = b->ql[e / 128 * 64 + e % 64] >> (e % 128 / 64 * 4) & 15;
            int high = b->qh[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
            float scale = d * (float)b->scales[e / 16];
            dst[e] = scale * (float)((low | high << 4) - 32);
        }
    }
}

void quant_dequantize_q8_K(const void *src, float *dst, size_t n) {
    const struct block_q8_K *end = (const struct block_q8_K *)src + n / 256;
    for (const struct block_q8_K *b = src; b < end; b++, dst += 256) {
        float d = f32_from_bits(load_u32(b->d));
        for (size_t e = 0; e < 256; e++) dst[e] = d * (float)b->qs[e];
    }
}

void quant_dequantize_iq4_xs(const void *src, float *dst, size_t n) {
    const struct block_iq4_xs *end = (const struct block_iq4_xs *)src + n / 256;
    for (const struct block_iq4_xs *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) {
            int q = b->qs[e / 32 * 16 + e % 16] >> (e % 32 / 16 * 4) & 15;
            float scale = d * (float)quant_iq4_xs_scale(b, e / 32);
            dst[e] = scale * (float)quant_iq4_values[q];
        }
    }
}

/* ---- 4-bit floats ------------------------------------------------------------------------------------------------ */

void quant_dequantize_mxfp4(const void *src, float *dst, size_t n) {
    const struct block_mxfp4 *end = (const struct block_mxfp4 *)src + n / 32;
    for (const struct block_mxfp4 *b = src; b < end; b++, dst += 32) {
        float d = quant_mxfp4_scale(b->e);
        for (size_t e = 0; e < 32; e++) {
            int q = b->qs[e % 16] >> (e / 16 * 4) & 15;
            dst[e] = d * (float)quant_fp4_values[q];
        }
    }
}

void quant_dequantize_nvfp4(const void *src, float *dst, size_t n) {
    const struct block_nvfp4 *end = (const struct block_nvfp4 *)src + n / 64;
    for (const struct block_nvfp4 *b = src; b < end; b++, dst += 64) {
        for (size_t e = 0; e < 64; e++) {
            int q = b->qs[e / 16 * 8 + e % 8] >> (e % 16 / 8 * 4) & 15;
            dst[e] = quant_nvfp4_scale(b->d[e / 16]) * (float)quant_fp4_values[q];
        }
    }
}

/* ---- two, three and four values ---------------------------------------------------------------------------------- */

void quant_dequantize_q1_0(const void *src, float *dst, size_t n) {
    const struct block_q1_0 *end = (const struct block_q1_0 *)src + n / 128;
    for (const struct block_q1_0 *b = src; b < end; b++, dst += 128) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 128; e++) dst[e] = b->qs[e / 8] >> (e % 8) & 1 ? d : -d;
    }
}

void quant_dequantize_q2_0(const void *src, float *dst, size_t n) {
    const struct block_q2_0 *end = (const struct block_q2_0 *)src + n / 64;
    for (const struct block_q2_0 *b = src; b < end; b++, dst += 64) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 64; e++) dst[e] = d * (float)((b->qs[e / 4] >> (e % 4 * 2) & 3) - 1);
    }
}

void quant_dequantize_tq1_0(const void *src, float *dst, size_t n) {
    const struct block_tq1_0 *end = (const struct block_tq1_0 *)src + n / 256;
    for (const struct block_tq1_0 *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) dst[e] = d * (float)(quant_tq1_0_digit(b, e) - 1);
    }
}

void quant_dequantize_tq2_0(const void *src, float *dst, size_t n) {
    const struct block_tq2_0 *end = (const struct block_tq2_0 *)src + n / 256;
    for (const struct block_tq2_0 *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) {
            int q = b->qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
            dst[e] = d * (float)(q - 1);
        }
    }
}

/* ---- grids ------------------------------------------------------------------------------------------------------- */

/* Scales are multiplied in ggml's order here, too.  Multiplying with -1 is exact. */

/* Value j of an entry of the grids of iq2 and of iq3_xxs. */
static float iq2_value(uint16_t entry, size_t j) { return (float)quant_iq2_values[entry >> quant_grid_shift(j) & 3]; }
static float iq3_xxs_value(uint16_t entry, size_t j) {
    return (float)quant_iq3_xxs_values[entry >> quant_grid_shift(j) & 7];
}

/* The sign of weight j of 8. */
static float sign_of(unsigned signs, size_t j) { return signs >> j & 1 ? -1.0f : 1.0f; }
/* 8 signs from 7: the last makes the number of minus signs even. */
static unsigned even_signs(unsigned signs) {
    unsigned odd = signs ^ signs >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return signs | (odd & 1) << 7;
}

void quant_dequantize_iq2_xxs(const void *src, float *dst, size_t n) {
    const struct block_iq2_xxs *end = (const struct block_iq2_xxs *)src + n / 256;
    for (const struct block_iq2_xxs *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) {
            const uint8_t *group = b->qs + e / 32 * 8;
            uint32_t packed = load_u32(group + 4);
            unsigned signs = even_signs(packed >> (e % 32 / 8 * 7) & 127);
            float scale = d * (0.5f + (float)(packed >> 28)) * 0.25f;
            dst[e] = scale * iq2_value(quant_iq2_xxs_grid[group[e % 32 / 8]], e % 8) * sign_of(signs, e % 8);
        }
    }
}

void quant_dequantize_iq2_xs(const void *src, float *dst, size_t n) {
    const struct block_iq2_xs *end = (const struct block_iq2_xs *)src + n / 256;
    for (const struct block_iq2_xs *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) {
            unsigned packed = load_u16(b->qs + e / 8 * 2), signs = even_signs(packed >> 9);
            float scale = d * (0.5f + (float)(b->scales[e / 32] >> (e % 32 / 16 * 4) & 15)) * 0.25f;
            dst[e] = scale * iq2_value(quant_iq2_xs_grid[packed & 511], e % 8) * sign_of(signs, e % 8);
        }
    }
}

void quant_dequantize_iq2_s(const void *src, float *dst, size_t n) {
    const struct block_iq2_s *end = (const struct block_iq2_s *)src + n / 256;
    for (const struct block_iq2_s *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) {
            unsigned index = b->qs[e / 8] | ((unsigned)b->qh[e / 32] >> (e % 32 / 8 * 2) & 3) << 8;
            float scale = d * (0.5f + (float)(b->scales[e / 32] >> (e % 32 / 16 * 4) & 15)) * 0.25f;
            dst[e] = scale * iq2_value(quant_iq2_s_grid[index], e % 8) * sign_of(b->signs[e / 8], e % 8);
        }
    }
}

void quant_dequantize_iq3_xxs(const void *src, float *dst, size_t n) {
    const struct block_iq3_xxs *end = (const struct block_iq3_xxs *)src + n / 256;
    for (const struct block_iq3_xxs *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) {
            uint32_t packed = load_u32(b->scales_signs + e / 32 * 4);
            unsigned signs = even_signs(packed >> (e % 32 / 8 * 7) & 127);
            float scale = d * (0.5f + (float)(packed >> 28)) * 0.5f;
            dst[e] = scale * iq3_xxs_value(quant_iq3_xxs_grid[b->qs[e / 4]], e % 4) * sign_of(signs, e % 8);
        }
    }
}

void quant_dequantize_iq3_s(const void *src, float *dst, size_t n) {
    const struct block_iq3_s *end = (const struct block_iq3_s *)src + n / 256;
    for (const struct block_iq3_s *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) {
            unsigned index = b->qs[e / 4] | ((unsigned)b->qh[e / 32] >> (e % 32 / 4) & 1) << 8;
            unsigned code = quant_iq3_s_grid[index] >> quant_grid_shift(e % 4) & 7u;
            float scale = d * (float)(1 + 2 * (b->scales[e / 64] >> (e % 64 / 32 * 4) & 15));
            dst[e] = scale * (float)(2 * code + 1) * sign_of(b->signs[e / 8], e % 8);
        }
    }
}

/* Value j of an entry of the grid of iq1, shifted by 1/8 up or down. */
static float iq1_value(unsigned index, size_t j, bool down) {
    return (float)((quant_iq1_grid[index] >> quant_grid_shift(j) & 3) - 1) + (down ? -0.125f : 0.125f);
}

void quant_dequantize_iq1_s(const void *src, float *dst, size_t n) {
    const struct block_iq1_s *end = (const struct block_iq1_s *)src + n / 256;
    for (const struct block_iq1_s *b = src; b < end; b++, dst += 256) {
        float d = load_f16(b->d);
        for (size_t e = 0; e < 256; e++) {
            unsigned packed = load_u16(b->qh + e / 32 * 2);
            unsigned index = b->qs[e / 8] | (packed >> (e % 32 / 8 * 3) & 7) << 8;
            float scale = d * (float)(2 * (packed >> 12 & 7) + 1);
            dst[e] = scale * iq1_value(index, e % 8, packed >> 15);
        }
    }
}

void quant_dequantize_iq1_m(const void *src, float *dst, size_t n) {
    const struct block_iq1_m *end = (const struct block_iq1_m *)src + n / 256;
    for (const struct block_iq1_m *b = src; b < end; b++, dst += 256) {
        float d = f32_from_f16(quant_iq1_m_d(b->scales));
        for (size_t e = 0; e < 256; e++) {
            unsigned high = (unsigned)b->qh[e / 16] >> (e % 16 / 8 * 4) & 15;
            unsigned code = (unsigned)load_u16(b->scales + e / 64 * 2) >> (e % 64 / 16 * 3) & 7;
            float scale = d * (float)(2 * code + 1);
            dst[e] = scale * iq1_value(b->qs[e / 8] | (high & 7) << 8, e % 8, high >> 3);
        }
    }
}

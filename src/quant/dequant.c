/* The reference dequantizers, one per type.  Each applies the formula above its diagram in blocks.h to one weight e
 * after the other.  They are slow and obvious on purpose: kernels are checked against them.
 */
#include "quant/dequant.h"

#include "quant/blocks.h"

const int8_t quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

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

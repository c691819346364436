/* Dequantizers that can make one known mistake each, written per element e from the diagrams of quant/blocks.h.  With
 * MISREAD_NONE they are the right ones.  Slow and obvious on purpose. */
#include "reference/quirks.h"

#include "quant/blocks.h"

/* ---- fields ------------------------------------------------------------------------------------------------------ */

/* A scale, or a value of F16. */
static float half(const uint8_t *p, enum misread misread) {
    return misread == MISREAD_BF16 ? f32_from_bf16(load_u16(p)) : f32_from_f16(load_u16(p));
}

/* The low four bits of element e of a group of 2 n: byte j holds j (low nibble) and j + n. */
static int nibble(const uint8_t *qs, size_t e, size_t n, enum misread misread) {
    size_t j = e % n, side = e / n;
    if (misread == MISREAD_LAYOUT) j = e / 2, side = e % 2;
    if (misread == MISREAD_NIBBLES) side = 1 - side;
    return qs[j] >> (4 * side) & 15;
}

/* The fifth bit, in its place, of element e of q5_0 and q5_1: bit e of 32. */
static int q5_high(const uint8_t qh[4], size_t e, enum misread misread) {
    size_t bit = e;
    if (misread == MISREAD_HIGH_ORDER) bit = e < 16 ? 2 * e : 2 * (e - 16) + 1;
    return misread == MISREAD_HIGH ? 0 : (qh[bit / 8] >> (bit % 8) & 1) << 4;
}

static void swap(float *a, float *b) {
    float was = *a;
    *a = *b;
    *b = was;
}

/* ---- blocks of 32 ------------------------------------------------------------------------------------------------ */

static void read_q4_0(enum misread misread, const struct block_q4_0 *b, float *dst) {
    float d = half(b->d, misread);
    int offset = misread == MISREAD_OFFSET ? 0 : 8;
    for (size_t e = 0; e < 32; e++) dst[e] = d * (float)(nibble(b->qs, e, 16, misread) - offset);
}

static void read_q4_1(enum misread misread, const struct block_q4_1 *b, float *dst) {
    float d = half(b->d, misread), m = half(b->m, misread);
    if (misread == MISREAD_D) swap(&d, &m);
    if (misread == MISREAD_MIN) m = -m;
    for (size_t e = 0; e < 32; e++) dst[e] = d * (float)nibble(b->qs, e, 16, misread) + m;
}

static void read_q5_0(enum misread misread, const struct block_q5_0 *b, float *dst) {
    float d = half(b->d, misread);
    int offset = misread == MISREAD_OFFSET ? 0 : 16;
    for (size_t e = 0; e < 32; e++) {
        int q = nibble(b->qs, e, 16, misread) | q5_high(b->qh, e, misread);
        dst[e] = d * (float)(q - offset);
    }
}

static void read_q5_1(enum misread misread, const struct block_q5_1 *b, float *dst) {
    float d = half(b->d, misread), m = half(b->m, misread);
    if (misread == MISREAD_D) swap(&d, &m);
    if (misread == MISREAD_MIN) m = -m;
    for (size_t e = 0; e < 32; e++) {
        int q = nibble(b->qs, e, 16, misread) | q5_high(b->qh, e, misread);
        dst[e] = d * (float)q + m;
    }
}

static void read_q8_0(enum misread misread, const struct block_q8_0 *b, float *dst) {
    float d = half(b->d, misread);
    for (size_t e = 0; e < 32; e++) dst[e] = d * (float)(misread == MISREAD_SIGN ? (uint8_t)b->qs[e] : b->qs[e]);
}

/* ---- superblocks of 256 ------------------------------------------------------------------------------------------ */

/* d * sc and dmin * mn of group i of q4_K and q5_K, their minimum to be subtracted. */
static void k_scale(enum misread misread, const uint8_t d[2], const uint8_t dmin[2], const uint8_t scales[12],
                    size_t i, float *scale, float *min) {
    unsigned sc = quant_q4_K_scale(scales, i), mn = quant_q4_K_min(scales, i);
    if (misread == MISREAD_SCALE_BITS && i >= 4) sc &= 15, mn &= 15;
    *scale = half(d, misread);
    *min = half(dmin, misread);
    if (misread == MISREAD_D) swap(scale, min);
    *scale *= (float)(misread == MISREAD_SCALES ? mn : sc);
    *min *= (float)(misread == MISREAD_SCALES ? sc : mn);
    if (misread == MISREAD_MIN) *min = -*min;
}

static void read_q4_K(enum misread misread, const struct block_q4_K *b, float *dst) {
    for (size_t e = 0; e < 256; e++) {
        float scale, min;
        k_scale(misread, b->d, b->dmin, b->scales, e / 32, &scale, &min);
        dst[e] = scale * (float)nibble(b->qs + e / 64 * 32, e % 64, 32, misread) - min;
    }
}

static void read_q5_K(enum misread misread, const struct block_q5_K *b, float *dst) {
    for (size_t e = 0; e < 256; e++) {
        float scale, min;
        k_scale(misread, b->d, b->dmin, b->scales, e / 32, &scale, &min);
        int high = b->qh[e % 32] >> (e / 32) & 1;
        if (misread == MISREAD_HIGH) high = 0;
        if (misread == MISREAD_HIGH_ORDER) high = b->qh[e / 8] >> (e % 8) & 1;
        dst[e] = scale * (float)(nibble(b->qs + e / 64 * 32, e % 64, 32, misread) | high << 4) - min;
    }
}

static void read_q6_K(enum misread misread, const struct block_q6_K *b, float *dst) {
    float d = half(b->d, misread);
    int offset = misread == MISREAD_OFFSET ? 0 : 32;
    for (size_t e = 0; e < 256; e++) {
        int low = nibble(b->ql + e / 128 * 64, e % 128, 64, misread);
        int high = b->qh[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
        if (misread == MISREAD_ORDER) {
            low = b->ql[e / 2] >> (e % 2 * 4) & 15;
            high = b->qh[e / 4] >> (e % 4 * 2) & 3;
        }
        if (misread == MISREAD_HIGH) high = 0;
        float scale = d * (float)(misread == MISREAD_SIGN ? (uint8_t)b->scales[e / 16] : b->scales[e / 16]);
        dst[e] = scale * (float)((low | high << 4) - offset);
    }
}

/* ---- all types --------------------------------------------------------------------------------------------------- */

static float read_bf16(enum misread misread, const uint8_t *p) {
    return misread == MISREAD_BF16 ? f32_from_f16(load_u16(p)) : f32_from_bf16(load_u16(p));
}

void quirk_misread(enum quant_type type, enum misread misread, const void *src, float *dst, size_t n) {
    const struct quant_traits *traits = quant_traits(type);
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i += traits->block_size, p += traits->block_bytes) {
        switch (type) {
        case QUANT_Q4_0: read_q4_0(misread, (const void *)p, dst + i); break;
        case QUANT_Q4_1: read_q4_1(misread, (const void *)p, dst + i); break;
        case QUANT_Q5_0: read_q5_0(misread, (const void *)p, dst + i); break;
        case QUANT_Q5_1: read_q5_1(misread, (const void *)p, dst + i); break;
        case QUANT_Q8_0: read_q8_0(misread, (const void *)p, dst + i); break;
        case QUANT_Q4_K: read_q4_K(misread, (const void *)p, dst + i); break;
        case QUANT_Q5_K: read_q5_K(misread, (const void *)p, dst + i); break;
        case QUANT_Q6_K: read_q6_K(misread, (const void *)p, dst + i); break;
        case QUANT_F16: dst[i] = half(p, misread); break;
        case QUANT_BF16: dst[i] = read_bf16(misread, p); break;
        default: traits->dequantize(p, dst + i, traits->block_size);   /* a type whose mistakes are not in the table */
        }
    }
}

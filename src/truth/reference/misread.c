/* Dequantizers that can make known mistakes, one at a time.  They follow the diagrams of quant/blocks.h element by
 * element; e is the index of an element.  With MISREAD_NONE they are right.  They are slow and obvious on purpose. */
#include "reference/quirks.h"

#include "quant/blocks.h"
#include "quant/grids.h"

#include <stddef.h>

/* ---- fields ------------------------------------------------------------------------------------------------------ */

/* Reads an f16: a scale, a minimum, or a weight of type F16. */
static float half(const uint8_t *p, enum misread misread) {
    return misread == MISREAD_BF16 ? f32_from_bf16(load_u16(p)) : f32_from_f16(load_u16(p));
}

/* Returns the low four bits of element e of a group of 2 n.  Byte j holds elements j (low nibble) and j + n. */
static int nibble(const uint8_t *qs, size_t e, size_t n, enum misread misread) {
    size_t j = e % n, side = e / n;
    if (misread == MISREAD_LAYOUT) j = e / 2, side = e % 2;
    if (misread == MISREAD_NIBBLES) side = 1 - side;
    return qs[j] >> (4 * side) & 15;
}

/* Returns the fifth bit of element e of q5_0 or q5_1, shifted into its place.  It is bit e of the 32 in qh. */
static int q5_high(const uint8_t qh[4], size_t e, enum misread misread) {
    size_t bit = e;
    if (misread == MISREAD_HIGH_ORDER) bit = e < 16 ? 2 * e : 2 * (e - 16) + 1;
    return misread == MISREAD_HIGH ? 0 : (qh[bit / 8] >> (bit % 8) & 1) << 4;
}

/* Returns two bits of element e of 256, from 64 bytes.  Each half of them holds 128 elements: byte l holds elements l,
 * l + 32, l + 64 and l + 96. */
static int two_bits(const uint8_t *bytes, size_t e, enum misread misread) {
    if (misread == MISREAD_ORDER) return bytes[e / 4] >> (e % 4 * 2) & 3;
    return bytes[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
}
/* Returns one bit of element e of 256, from 32 bytes.  Byte l holds elements l, l + 32, ... l + 224. */
static int one_bit(const uint8_t *bytes, size_t e, enum misread misread) {
    if (misread == MISREAD_HIGH) return 0;
    if (misread == MISREAD_ORDER || misread == MISREAD_HIGH_ORDER) return bytes[e / 8] >> (e % 8) & 1;
    return (bytes[e % 32] >> (e / 32) & 1) ^ (misread == MISREAD_HIGH_SIGN);
}

/* Returns the value of a code of iq4_nl or iq4_xs. */
static float iq4_value(int code, enum misread misread) {
    return (float)(misread == MISREAD_TABLE ? code - 8 : quant_iq4_values[code]);
}

/* Returns the value of a code of mxfp4 or nvfp4. */
static float fp4_value(int code, enum misread misread) {
    return (float)(misread == MISREAD_TABLE ? code - 8 : quant_fp4_values[code]);
}
/* Returns the value that is used for a scale of mxfp4 or nvfp4. */
static float fp4_scale(float scale, enum misread misread) { return misread == MISREAD_DOUBLED ? 2 * scale : scale; }

/* Returns the value that is used for a 6-bit scale.  scale is the right one, from which 32 has been subtracted. */
static float signed_scale(int scale, enum misread misread) {
    if (misread == MISREAD_SIGN) scale += 32;
    if (misread == MISREAD_SCALE_BITS) scale = ((scale + 32) & 15) - 32;
    return (float)scale;
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

static void read_iq4_nl(enum misread misread, const struct block_iq4_nl *b, float *dst) {
    float d = half(b->d, misread);
    for (size_t e = 0; e < 32; e++) dst[e] = d * iq4_value(nibble(b->qs, e, 16, misread), misread);
}

static void read_mxfp4(enum misread misread, const struct block_mxfp4 *b, float *dst) {
    float d = fp4_scale(quant_mxfp4_scale(b->e), misread);
    for (size_t e = 0; e < 32; e++) dst[e] = d * fp4_value(nibble(b->qs, e, 16, misread), misread);
}

/* ---- blocks of 64 ------------------------------------------------------------------------------------------------ */

static void read_nvfp4(enum misread misread, const struct block_nvfp4 *b, float *dst) {
    size_t n = misread == MISREAD_ORDER ? 32 : 16;   /* elements whose codes are in n / 2 bytes */
    for (size_t e = 0; e < 64; e++) {
        float d = fp4_scale(quant_nvfp4_scale(b->d[e / 16]), misread);
        dst[e] = d * fp4_value(nibble(b->qs + e / n * n / 2, e % n, n / 2, misread), misread);
    }
}

/* ---- superblocks of 256 ------------------------------------------------------------------------------------------ */

static void read_q2_K(enum misread misread, const struct block_q2_K *b, float *dst) {
    float d = half(b->d, misread), dmin = half(b->dmin, misread);
    if (misread == MISREAD_D) swap(&d, &dmin);
    if (misread == MISREAD_MIN) dmin = -dmin;
    for (size_t e = 0; e < 256; e++) {
        float sc = (float)(b->scales[e / 16] & 15), mn = (float)(b->scales[e / 16] >> 4);
        if (misread == MISREAD_SCALES) swap(&sc, &mn);
        dst[e] = d * sc * (float)two_bits(b->qs, e, misread) - dmin * mn;
    }
}

static void read_q3_K(enum misread misread, const struct block_q3_K *b, float *dst) {
    float d = half(b->d, misread);
    int offset = misread == MISREAD_OFFSET ? 0 : 4;
    for (size_t e = 0; e < 256; e++) {
        size_t i = e / 16;
        int sc = quant_q3_K_scale(b->scales, i);
        if (misread == MISREAD_SCALE_ORDER) {
            sc = ((b->scales[i / 2] >> (i % 2 * 4) & 15) | (b->scales[8 + i / 4] >> (i % 4 * 2) & 3) << 4) - 32;
        }
        int q = two_bits(b->qs, e, misread) | one_bit(b->hmask, e, misread) << 2;
        dst[e] = d * signed_scale(sc, misread) * (float)(q - offset);
    }
}

/* Sets *scale to d * sc and *min to dmin * mn of group i of q4_K or q5_K.  *min is to be subtracted. */
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
        int q = nibble(b->qs + e / 64 * 32, e % 64, 32, misread) | one_bit(b->qh, e, misread) << 4;
        dst[e] = scale * (float)q - min;
    }
}

static void read_q6_K(enum misread misread, const struct block_q6_K *b, float *dst) {
    float d = half(b->d, misread);
    int offset = misread == MISREAD_OFFSET ? 0 : 32;
    for (size_t e = 0; e < 256; e++) {
        int low = nibble(b->ql + e / 128 * 64, e % 128, 64, misread);
        if (misread == MISREAD_ORDER) low = b->ql[e / 2] >> (e % 2 * 4) & 15;
        int high = misread == MISREAD_HIGH ? 0 : two_bits(b->qh, e, misread);
        float scale = d * (float)(misread == MISREAD_SIGN ? (uint8_t)b->scales[e / 16] : b->scales[e / 16]);
        dst[e] = scale * (float)((low | high << 4) - offset);
    }
}

static void read_iq4_xs(enum misread misread, const struct block_iq4_xs *b, float *dst) {
    float d = half(b->d, misread);
    for (size_t e = 0; e < 256; e++) {
        int q = nibble(b->qs + e / 32 * 16, e % 32, 16, misread);
        dst[e] = d * signed_scale(quant_iq4_xs_scale(b, e / 32), misread) * iq4_value(q, misread);
    }
}

static void read_tq1_0(enum misread misread, const struct block_tq1_0 *b, float *dst) {
    static const int power_of_3[] = { 1, 3, 9, 27, 81 };
    float d = half(b->d, misread);
    int offset = misread == MISREAD_OFFSET ? 0 : 1;
    for (size_t e = 0; e < 256; e++) {
        uint8_t byte = e < 160 ? b->qs[e % 32] : e < 240 ? b->qs[32 + e % 16] : b->qh[e % 4];
        size_t digit = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
        if (misread == MISREAD_ORDER) {
            byte = e < 240 ? b->qs[e / 5] : b->qh[(e - 240) / 4];
            digit = e < 240 ? e % 5 : e % 4;
        }
        int t = (uint8_t)(byte * power_of_3[digit]) * 3 >> 8;
        if (misread == MISREAD_DIGITS) t = byte / power_of_3[digit] % 3;
        dst[e] = d * (float)(t - offset);
    }
}

static void read_tq2_0(enum misread misread, const struct block_tq2_0 *b, float *dst) {
    float d = half(b->d, misread);
    int offset = misread == MISREAD_OFFSET ? 0 : 1;
    for (size_t e = 0; e < 256; e++) dst[e] = d * (float)(two_bits(b->qs, e, misread) - offset);
}

/* ---- superblocks with grids -------------------------------------------------------------------------------------- */

/* What a block says of the vector of element e: its index into the grid, the low bits of the index, a bit for each
 * minus sign (IQ1: whether 1/8 is subtracted), and its scale. */
struct vector { unsigned index, low, signs, scale; };

static struct vector vector_of(enum quant_type type, const uint8_t *block, size_t e) {
    struct vector v = { 0 };
    size_t group = e / 32, n = e / 8 % 4;   /* n: the number of a vector of 8 in its group of 32 */
    if (type == QUANT_IQ2_XXS) {
        const struct block_iq2_xxs *b = (const void *)block;
        uint32_t packed = load_u32(b->qs + 8 * group + 4);
        v = (struct vector) { .low = b->qs[8 * group + n], .signs = packed >> 7 * n & 127, .scale = packed >> 28 };
        v.index = v.low;
    } else if (type == QUANT_IQ2_XS) {
        const struct block_iq2_xs *b = (const void *)block;
        unsigned packed = load_u16(b->qs + e / 8 * 2);
        v = (struct vector) { .low = packed & 511, .index = packed & 511, .signs = packed >> 9 };
        v.scale = b->scales[group] >> e % 32 / 16 * 4 & 15;
    } else if (type == QUANT_IQ2_S) {
        const struct block_iq2_s *b = (const void *)block;
        v = (struct vector) { .low = b->qs[e / 8], .signs = b->signs[e / 8] };
        v.index = v.low | (b->qh[group] >> 2 * n & 3u) << 8;
        v.scale = b->scales[group] >> e % 32 / 16 * 4 & 15;
    } else if (type == QUANT_IQ3_XXS) {
        const struct block_iq3_xxs *b = (const void *)block;
        uint32_t packed = load_u32(b->scales_signs + 4 * group);
        v = (struct vector) { .low = b->qs[e / 4], .index = b->qs[e / 4], .signs = packed >> 7 * n & 127,
                              .scale = packed >> 28 };
    } else if (type == QUANT_IQ3_S) {
        const struct block_iq3_s *b = (const void *)block;
        v = (struct vector) { .low = b->qs[e / 4], .signs = b->signs[e / 8] };
        v.index = v.low | (b->qh[group] >> e % 32 / 4 & 1u) << 8;
        v.scale = b->scales[e / 64] >> e % 64 / 32 * 4 & 15;
    } else if (type == QUANT_IQ1_S) {
        const struct block_iq1_s *b = (const void *)block;
        unsigned packed = load_u16(b->qh + 2 * group);
        v = (struct vector) { .low = b->qs[e / 8], .signs = packed >> 15, .scale = packed >> 12 & 7 };
        v.index = v.low | (packed >> 3 * n & 7) << 8;
    } else {
        const struct block_iq1_m *b = (const void *)block;
        unsigned high = b->qh[e / 16] >> e % 16 / 8 * 4 & 15;
        v = (struct vector) { .low = b->qs[e / 8], .signs = high >> 3, .index = b->qs[e / 8] | (high & 7) << 8 };
        v.scale = load_u16(b->scales + e / 64 * 2) >> e % 64 / 16 * 3 & 7;
    }
    return v;
}

/* Returns the value at `at` in an entry of the grid of a type. */
static float grid_value(enum quant_type type, unsigned index, size_t at) {
    size_t shift = quant_grid_shift(at);
    switch (type) {
    case QUANT_IQ2_XXS: return (float)quant_iq2_values[quant_iq2_xxs_grid[index] >> shift & 3];
    case QUANT_IQ2_XS: return (float)quant_iq2_values[quant_iq2_xs_grid[index] >> shift & 3];
    case QUANT_IQ2_S: return (float)quant_iq2_values[quant_iq2_s_grid[index] >> shift & 3];
    case QUANT_IQ3_XXS: return (float)quant_iq3_xxs_values[quant_iq3_xxs_grid[index] >> shift & 7];
    case QUANT_IQ3_S: return (float)(2 * (quant_iq3_s_grid[index] >> shift & 7) + 1);
    default: return (float)((quant_iq1_grid[index] >> shift & 3) - 1);
    }
}

static void read_grids(enum quant_type type, enum misread misread, const uint8_t *block, float *dst) {
    bool is_iq1 = type == QUANT_IQ1_S || type == QUANT_IQ1_M, is_iq3 = type == QUANT_IQ3_XXS || type == QUANT_IQ3_S;
    bool has_seven = type == QUANT_IQ2_XXS || type == QUANT_IQ2_XS || type == QUANT_IQ3_XXS;
    float d = half(block, misread), factor = type == QUANT_IQ3_XXS ? 0.5f : is_iq1 || is_iq3 ? 2.0f : 0.25f;
    if (type == QUANT_IQ1_M) d = f32_from_f16(quant_iq1_m_d(block + offsetof(struct block_iq1_m, scales)));
    for (size_t e = 0; e < 256; e++) {
        struct vector v = vector_of(type, block, e);
        float scale = d * factor * ((float)v.scale + (misread == MISREAD_HALF ? 0.0f : 0.5f));
        float value = grid_value(type, misread == MISREAD_HIGH ? v.low : v.index, is_iq3 ? e % 4 : e % 8);
        bool parity = __builtin_popcount(v.signs) & 1, minus = v.signs >> e % 8 & 1;
        if (has_seven && e % 8 == 7) minus = parity && misread != MISREAD_LAST_SIGN;
        if (is_iq1 && misread != MISREAD_SHIFT) value += v.signs ? -0.125f : 0.125f;
        dst[e] = scale * (minus && !is_iq1 && misread != MISREAD_SIGNS ? -value : value);
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
        case QUANT_Q2_K: read_q2_K(misread, (const void *)p, dst + i); break;
        case QUANT_Q3_K: read_q3_K(misread, (const void *)p, dst + i); break;
        case QUANT_Q4_K: read_q4_K(misread, (const void *)p, dst + i); break;
        case QUANT_Q5_K: read_q5_K(misread, (const void *)p, dst + i); break;
        case QUANT_Q6_K: read_q6_K(misread, (const void *)p, dst + i); break;
        case QUANT_IQ4_NL: read_iq4_nl(misread, (const void *)p, dst + i); break;
        case QUANT_IQ4_XS: read_iq4_xs(misread, (const void *)p, dst + i); break;
        case QUANT_MXFP4: read_mxfp4(misread, (const void *)p, dst + i); break;
        case QUANT_NVFP4: read_nvfp4(misread, (const void *)p, dst + i); break;
        case QUANT_TQ1_0: read_tq1_0(misread, (const void *)p, dst + i); break;
        case QUANT_TQ2_0: read_tq2_0(misread, (const void *)p, dst + i); break;
        case QUANT_IQ2_XXS:
        case QUANT_IQ2_XS:
        case QUANT_IQ2_S:
        case QUANT_IQ3_XXS:
        case QUANT_IQ3_S:
        case QUANT_IQ1_S:
        case QUANT_IQ1_M: read_grids(type, misread, p, dst + i); break;
        case QUANT_F16: dst[i] = half(p, misread); break;
        case QUANT_BF16: dst[i] = read_bf16(misread, p); break;
        default: traits->dequantize(p, dst + i, traits->block_size);   /* the table has no mistakes for this type */
        }
    }
}

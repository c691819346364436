/* The block layouts of ggml (ggml-common.h), as bytes.  A row of a GGUF file is only byte-aligned, so all fields are
 * bytes, and 16- and 32-bit fields are read with load_u16 and load_u32 (little-endian).
 *
 * The diagrams have one line per byte, with bit 7 on the left.  e is the index of a weight in its block and q[e] its
 * code; sc[i] and mn[i] are the scale and the minimum of group i.  tests/quant_test.c compares every bit with gguf-py.
 */
#ifndef PLUMB_QUANT_BLOCKS_H
#define PLUMB_QUANT_BLOCKS_H

#include "base/base.h"

/* ---- blocks of 32 weights with one scale ----------------------------------------------------------------------- */

/* w[e] = d * (q[e] - 8), q 0..15
 *    0..1   d, f16
 *    2+j    [ q[j+16] : 4 ][ q[j] : 4 ]     j = 0..15
 */
struct block_q4_0 { uint8_t d[2], qs[16]; };
_Static_assert(sizeof(struct block_q4_0) == 18, "q4_0");

/* w[e] = d * q[e] + m, q 0..15
 *    0..1   d, f16
 *    2..3   m, f16
 *    4+j    [ q[j+16] : 4 ][ q[j] : 4 ]     j = 0..15
 */
struct block_q4_1 { uint8_t d[2], m[2], qs[16]; };
_Static_assert(sizeof(struct block_q4_1) == 20, "q4_1");

/* w[e] = d * (q[e] - 16), q 0..31: four bits in qs, the fifth in qh
 *    0..1   d, f16
 *    2+i    [ q[8i+7] bit 4 ] ... [ q[8i] bit 4 ]              i = 0..3
 *    6+j    [ q[j+16] bits 3..0 : 4 ][ q[j] bits 3..0 : 4 ]    j = 0..15
 */
struct block_q5_0 { uint8_t d[2], qh[4], qs[16]; };
_Static_assert(sizeof(struct block_q5_0) == 22, "q5_0");

/* w[e] = d * q[e] + m, q 0..31
 *    0..1   d, f16
 *    2..3   m, f16
 *    4+i    as q5_0's qh     i = 0..3
 *    8+j    as q5_0's qs     j = 0..15
 */
struct block_q5_1 { uint8_t d[2], m[2], qh[4], qs[16]; };
_Static_assert(sizeof(struct block_q5_1) == 24, "q5_1");

/* w[e] = d * q[e], q -128..127 (writers keep to -127..127)
 *    0..1   d, f16
 *    2+e    [ q[e] : 8, two's complement ]     e = 0..31
 */
struct block_q8_0 { uint8_t d[2]; int8_t qs[32]; };
_Static_assert(sizeof(struct block_q8_0) == 34, "q8_0");

/* w[e] = d * iq4_values[q[e]]: the layout of q4_0, with a table of values for the codes
 *    0..1   d, f16
 *    2+j    [ q[j+16] : 4 ][ q[j] : 4 ]     j = 0..15
 */
struct block_iq4_nl { uint8_t d[2], qs[16]; };
_Static_assert(sizeof(struct block_iq4_nl) == 18, "iq4_nl");

/* w[e] = d * fp4_values[q[e]], d = 2^(e - 128)
 *    0      e
 *    1+j    [ q[j+16] : 4 ][ q[j] : 4 ]     j = 0..15
 */
struct block_mxfp4 { uint8_t e, qs[16]; };
_Static_assert(sizeof(struct block_mxfp4) == 17, "mxfp4");

/* ---- blocks of 64 and 128 weights -------------------------------------------------------------------------------- */

/* 4 groups of 16.  w[e] = d[e/16] * fp4_values[q[e]], d an unsigned float of 4 bits of exponent and 3 of mantissa
 *    0+i      [ unused : 1 ][ d[i] : 7 ]                 i = 0..3
 *    4+8i+j   [ q[16i+j+8] : 4 ][ q[16i+j] : 4 ]         i = 0..3, j = 0..7
 */
struct block_nvfp4 { uint8_t d[4], qs[32]; };
_Static_assert(sizeof(struct block_nvfp4) == 36, "nvfp4");

/* 128 weights.  w[e] = q[e] ? d : -d
 *    0..1   d, f16
 *    2+j    [ q[8j+7] ] ... [ q[8j] ]     j = 0..15
 */
struct block_q1_0 { uint8_t d[2], qs[16]; };
_Static_assert(sizeof(struct block_q1_0) == 18, "q1_0");

/* 64 weights.  w[e] = d * (q[e] - 1), q 0..3
 *    0..1   d, f16
 *    2+j    [ q[4j+3] : 2 ][ q[4j+2] : 2 ][ q[4j+1] : 2 ][ q[4j] : 2 ]     j = 0..15
 */
struct block_q2_0 { uint8_t d[2], qs[16]; };
_Static_assert(sizeof(struct block_q2_0) == 18, "q2_0");

/* ---- superblocks of 256: groups of 16 or 32 whose scales are themselves quantized -------------------------------- */

/* 16 groups of 16.  w[e] = (d * sc[e/16]) * q[e] - dmin * mn[e/16], q 0..3, sc and mn 0..15
 *    0+i       [ mn[i] : 4 ][ sc[i] : 4 ]                            i = 0..15
 *   16+32h+l   [ q[s+96] : 2 ][ q[s+64] : 2 ][ q[s+32] : 2 ][ q[s] : 2 ]   s = 128h + l, h = 0..1, l = 0..31
 *   80..81     d, f16
 *   82..83     dmin, f16
 */
struct block_q2_K { uint8_t scales[16], qs[64], d[2], dmin[2]; };
_Static_assert(sizeof(struct block_q2_K) == 84, "q2_K");

/* 16 groups of 16.  w[e] = (d * (sc[e/16] - 32)) * (q[e] - 4), q 0..7, sc 0..63
 *    0+l       [ q[l+224] bit 2 ] ... [ q[l+32] bit 2 ][ q[l] bit 2 ]      l = 0..31
 *   32+32h+l   [ q[s+96] : 2 ][ q[s+64] : 2 ][ q[s+32] : 2 ][ q[s] : 2 ]   bits 1..0; s, h, l as q2_K
 *   96+i       [ sc[i+8] bits 3..0 : 4 ][ sc[i] bits 3..0 : 4 ]            i = 0..7
 *  104+i       [ sc[i+12] : 2 ][ sc[i+8] : 2 ][ sc[i+4] : 2 ][ sc[i] : 2 ] bits 5..4; i = 0..3
 *  108..109    d, f16
 */
struct block_q3_K { uint8_t hmask[32], qs[64], scales[12], d[2]; };
_Static_assert(sizeof(struct block_q3_K) == 110, "q3_K");

/* 8 groups of 32.  w[e] = (d * sc[e/32]) * q[e] - dmin * mn[e/32], q 0..15, sc and mn 0..63
 *    0..1      d, f16
 *    2..3      dmin, f16
 *    4+i       [ sc[i+4] bits 5..4 : 2 ][ sc[i] : 6 ]                    i = 0..3
 *    8+i       [ mn[i+4] bits 5..4 : 2 ][ mn[i] : 6 ]                    i = 0..3
 *   12+i       [ mn[i+4] bits 3..0 : 4 ][ sc[i+4] bits 3..0 : 4 ]        i = 0..3
 *   16+32g+l   [ q[64g+l+32] : 4 ][ q[64g+l] : 4 ]                       g = 0..3, l = 0..31
 */
struct block_q4_K { uint8_t d[2], dmin[2], scales[12], qs[128]; };
_Static_assert(sizeof(struct block_q4_K) == 144, "q4_K");

/* As q4_K with q 0..31, the fifth bit of q in qh
 *    0..15     as q4_K
 *   16+l       [ q[l+224] bit 4 ] ... [ q[l+32] bit 4 ][ q[l] bit 4 ]    l = 0..31
 *   48+32g+l   [ q[64g+l+32] bits 3..0 : 4 ][ q[64g+l] bits 3..0 : 4 ]   g = 0..3, l = 0..31
 */
struct block_q5_K { uint8_t d[2], dmin[2], scales[12], qh[32], qs[128]; };
_Static_assert(sizeof(struct block_q5_K) == 176, "q5_K");

/* 16 groups of 16.  w[e] = (d * sc[e/16]) * (q[e] - 32), q 0..63, sc -128..127
 *    0+64h+l   [ q[128h+l+64] bits 3..0 : 4 ][ q[128h+l] bits 3..0 : 4 ]        h = 0..1, l = 0..63
 *  128+32h+l   [ q[s+96] : 2 ][ q[s+64] : 2 ][ q[s+32] : 2 ][ q[s] : 2 ]        bits 5..4; s = 128h + l, l = 0..31
 *  192+i       [ sc[i] : 8, two's complement ]                                  i = 0..15
 *  208..209    d, f16
 */
struct block_q6_K { uint8_t ql[128], qh[64]; int8_t scales[16]; uint8_t d[2]; };
_Static_assert(sizeof(struct block_q6_K) == 210, "q6_K");

/* w[e] = d * q[e], q -128..127.  This is ggml's format for activations.  sums has the sum of every 16 codes; it is
 * redundant and not read.
 *    0..3      d, f32
 *    4+e       [ q[e] : 8, two's complement ]     e = 0..255
 *  260..291    sums, 16 times i16
 */
struct block_q8_K { uint8_t d[4]; int8_t qs[256]; uint8_t sums[32]; };
_Static_assert(sizeof(struct block_q8_K) == 292, "q8_K");

/* 8 groups of 32.  w[e] = (d * (sc[e/32] - 32)) * iq4_values[q[e]], q 0..15, sc 0..63
 *    0..1      d, f16
 *    2+i       [ sc[4i+3] : 2 ][ sc[4i+2] : 2 ][ sc[4i+1] : 2 ][ sc[4i] : 2 ]   bits 5..4; i = 0..1
 *    4+i       [ sc[2i+1] bits 3..0 : 4 ][ sc[2i] bits 3..0 : 4 ]               i = 0..3
 *    8+16g+j   [ q[32g+j+16] : 4 ][ q[32g+j] : 4 ]                              g = 0..7, j = 0..15
 */
struct block_iq4_xs { uint8_t d[2], scales_h[2], scales_l[4], qs[128]; };
_Static_assert(sizeof(struct block_iq4_xs) == 136, "iq4_xs");

/* ---- superblocks of 256 with three values ------------------------------------------------------------------------ */

/* w[e] = d * (t[e] - 1), t 0..2.  A byte has up to five digits t of base 3, the most significant first, as the fraction
 * byte / 256: the integer part of 3 * fraction is the first digit, and the rest is the fraction of the next ones.
 *    0+l     t[l] t[l+32] t[l+64] t[l+96] t[l+128]              l = 0..31
 *   32+l     t[l+160] t[l+176] t[l+192] t[l+208] t[l+224]       l = 0..15
 *   48+l     t[l+240] t[l+244] t[l+248] t[l+252]                l = 0..3
 *   52..53   d, f16
 */
struct block_tq1_0 { uint8_t qs[48], qh[4], d[2]; };
_Static_assert(sizeof(struct block_tq1_0) == 54, "tq1_0");

/* w[e] = d * (q[e] - 1), q 0..3 (writers keep to 0..2)
 *    0+32h+l   [ q[s+96] : 2 ][ q[s+64] : 2 ][ q[s+32] : 2 ][ q[s] : 2 ]   s = 128h + l, h = 0..1, l = 0..31
 *   64..65     d, f16
 */
struct block_tq2_0 { uint8_t qs[64], d[2]; };
_Static_assert(sizeof(struct block_tq2_0) == 66, "tq2_0");

/* ---- superblocks of 256 whose codes are vectors of a grid (grids.h) -----------------------------------------------
 *
 * Below, v = e/8 counts the vectors of 8 weights; x[v] is the index of a vector, and g(x)[j] value j of the vector x.
 * Vectors of iq3 have 4 values, so w = e/4 counts them.  sg[e] is the sign of a weight: 1 is minus.  Where a vector has
 * 7 bits of signs, these are sg[8v] .. sg[8v+6], and sg[8v+7] makes the number of minus signs even. */

/* 8 groups of 32.  w[e] = (d * (sc[e/32] + 1/2) / 4) * g(x[e/8])[e%8], less where sg[e], sc 0..15
 *    0..1     d, f16
 *    2+8i+k   [ x[4i+k] : 8 ]                                                       i = 0..7, k = 0..3
 *    6+8i     u32: [ sc[i] : 4 ][ signs of vector 4i+3 : 7 ] ... [ signs of vector 4i : 7 ]    i = 0..7
 */
struct block_iq2_xxs { uint8_t d[2], qs[64]; };
_Static_assert(sizeof(struct block_iq2_xxs) == 66, "iq2_xxs");

/* 16 groups of 16.  w[e] as iq2_xxs, with sc[e/16]
 *    0..1     d, f16
 *    2+2v     u16: [ signs of vector v : 7 ][ x[v] : 9 ]     v = 0..31
 *   66+i      [ sc[2i+1] : 4 ][ sc[2i] : 4 ]                 i = 0..7
 */
struct block_iq2_xs { uint8_t d[2], qs[64], scales[8]; };
_Static_assert(sizeof(struct block_iq2_xs) == 74, "iq2_xs");

/* As iq2_xs, with 8 bits of signs
 *    0..1     d, f16
 *    2+v      [ x[v] bits 7..0 : 8 ]                                                        v = 0..31
 *   34+v      [ sg[8v+7] ] ... [ sg[8v] ]                                                   v = 0..31
 *   66+i      [ x[4i+3] : 2 ][ x[4i+2] : 2 ][ x[4i+1] : 2 ][ x[4i] : 2 ]   bits 9..8        i = 0..7
 *   74+i      [ sc[2i+1] : 4 ][ sc[2i] : 4 ]                                                i = 0..7
 */
struct block_iq2_s { uint8_t d[2], qs[32], signs[32], qh[8], scales[8]; };
_Static_assert(sizeof(struct block_iq2_s) == 82, "iq2_s");

/* 8 groups of 32.  w[e] = (d * (sc[e/32] + 1/2) / 2) * g(x[e/4])[e%4], less where sg[e], sc 0..15
 *    0..1     d, f16
 *    2+w      [ x[w] : 8 ]                                        w = 0..63
 *   66+4i     as the u32 of iq2_xxs, for the weights 32i .. 32i + 31      i = 0..7
 */
struct block_iq3_xxs { uint8_t d[2], qs[64], scales_signs[32]; };
_Static_assert(sizeof(struct block_iq3_xxs) == 98, "iq3_xxs");

/* 8 groups of 32.  w[e] = (d * (2 sc[e/32] + 1)) * g(x[e/4])[e%4], less where sg[e], sc 0..15
 *    0..1     d, f16
 *    2+w      [ x[w] bits 7..0 : 8 ]                         w = 0..63
 *   66+i      [ x[8i+7] bit 8 ] ... [ x[8i] bit 8 ]          i = 0..7
 *   74+v      [ sg[8v+7] ] ... [ sg[8v] ]                    v = 0..31
 *  106+i      [ sc[2i+1] : 4 ][ sc[2i] : 4 ]                 i = 0..3
 */
struct block_iq3_s { uint8_t d[2], qs[64], qh[8], signs[32], scales[4]; };
_Static_assert(sizeof(struct block_iq3_s) == 110, "iq3_s");

/* 8 groups of 32.  w[e] = (d * (2 sc[e/32] + 1)) * (g(x[e/8])[e%8] + shift), sc 0..7, shift -1/8 if sh[e/32], else 1/8
 *    0..1     d, f16
 *    2+v      [ x[v] bits 7..0 : 8 ]                                                               v = 0..31
 *   34+2i     u16: [ sh[i] : 1 ][ sc[i] : 3 ][ x[4i+3] : 3 ][ x[4i+2] : 3 ][ x[4i+1] : 3 ][ x[4i] : 3 ]
 *            bits 10..8 of x; i = 0..7
 */
struct block_iq1_s { uint8_t d[2], qs[32], qh[16]; };
_Static_assert(sizeof(struct block_iq1_s) == 50, "iq1_s");

/* 16 groups of 16.  w[e] as iq1_s, with sc[e/16] and a shift for each vector: sh[e/8]
 *    0+v      [ x[v] bits 7..0 : 8 ]                                                               v = 0..31
 *   32+i      [ sh[2i+1] : 1 ][ x[2i+1] bits 10..8 : 3 ][ sh[2i] : 1 ][ x[2i] bits 10..8 : 3 ]     i = 0..15
 *   48+2i     u16: [ bits 4i+3 .. 4i of d : 4 ][ sc[4i+3] : 3 ][ sc[4i+2] : 3 ][ sc[4i+1] : 3 ][ sc[4i] : 3 ]
 *            i = 0..3; d is an f16
 */
struct block_iq1_m { uint8_t qs[32], qh[16], scales[8]; };
_Static_assert(sizeof(struct block_iq1_m) == 56, "iq1_m");

/* ---- packed fields that more than one reader needs ------------------------------------------------------------ */

/* The values that the 16 codes of iq4_nl and iq4_xs stand for (kvalues_iq4nl of ggml-common.h). */
extern const int8_t quant_iq4_values[16];

/* The values that the 16 codes of mxfp4 and nvfp4 stand for: twice those of the 4-bit floats that they are, because the
 * scales above are half as large (kvalues_fp4 of ggml-common.h). */
extern const int8_t quant_fp4_values[16];

/* sc[i] and mn[i] of q4_K and q5_K, i = 0..7. */
static inline unsigned quant_q4_K_scale(const uint8_t scales[12], size_t i) {
    return i < 4 ? scales[i] & 63u : (scales[i + 4] & 15u) | (scales[i - 4] >> 6 & 3u) << 4;
}
static inline unsigned quant_q4_K_min(const uint8_t scales[12], size_t i) {
    return i < 4 ? scales[i + 4] & 63u : (scales[i + 4] >> 4 & 15u) | (scales[i] >> 6 & 3u) << 4;
}
/* sc[i] - 32 of q3_K, i = 0..15. */
static inline int quant_q3_K_scale(const uint8_t scales[12], size_t i) {
    return ((scales[i % 8] >> (i / 8 * 4) & 15) | (scales[8 + i % 4] >> (i / 4 * 2) & 3) << 4) - 32;
}
/* d of mxfp4: 2^(e - 128), which is subnormal for e = 0 and 1. */
static inline float quant_mxfp4_scale(uint8_t e) {
    return f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}
/* d of nvfp4: half the value of an unsigned float with 4 bits of exponent, whose bias is 7, and 3 bits of mantissa.
 * The largest exponent with the largest mantissa is 0, as in ggml, unless bit 7, which is otherwise unused, is set. */
static inline float quant_nvfp4_scale(uint8_t bits) {
    uint32_t exponent = bits >> 3 & 15, mantissa = bits & 7;
    if (bits == 0x7f) return 0.0f;
    if (exponent == 0) return (float)mantissa * 0x1p-10f;
    return f32_from_bits((exponent - 8 + 127) << 23 | mantissa << 20);
}
/* The bits of d of iq1_m: the high 4 bits of each u16 of the scales. */
static inline uint16_t quant_iq1_m_d(const uint8_t scales[8]) {
    unsigned d = 0;
    for (size_t i = 0; i < 4; i++) d |= (unsigned)(scales[2 * i + 1] >> 4) << 4 * i;
    return (uint16_t)d;
}
/* t[e] of tq1_0, e = 0..255. */
static inline int quant_tq1_0_digit(const struct block_tq1_0 *b, size_t e) {
    static const uint8_t power_of_3[5] = {1, 3, 9, 27, 81};
    uint8_t byte = e < 160 ? b->qs[e % 32] : e < 240 ? b->qs[32 + e % 16] : b->qh[e % 4];
    size_t digit = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
    uint8_t fraction = (uint8_t)(byte * power_of_3[digit]);
    return fraction * 3 >> 8;
}
/* sc[i] - 32 of iq4_xs, i = 0..7. */
static inline int quant_iq4_xs_scale(const struct block_iq4_xs *b, size_t i) {
    return ((b->scales_l[i / 2] >> (i % 2 * 4) & 15) | (b->scales_h[i / 4] >> (i % 4 * 2) & 3) << 4) - 32;
}

#endif

/* WASM SIMD128 row unpackers.  Each gives its scalar namesake's bits.
 *
 * Codes are assembled as bytes, bias included, and widened to i16 when stored; plain nibbles are widened when loaded.
 * A shift of bytes is a shift of 16-bit lanes whose strays the mask behind it removes: x86 has no shift of bytes.
 */
#include "kernels/unpack.h"

#include "quant/blocks.h"
#include "quant/quant.h"

#if defined(__wasm_simd128__)

#include "kernels/f16_simd128.h"


static inline v128_t bytes(uint8_t value) { return wasm_u8x16_splat(value); }

/* Bits of every byte of v, moved down or up and masked.  shift is a constant wherever this is called. */
static inline v128_t bits_right(v128_t v, uint32_t shift, uint8_t mask) {
    return wasm_v128_and(wasm_u16x8_shr(v, shift), bytes(mask));
}
static inline v128_t bits_left(v128_t v, uint32_t shift, uint8_t mask) {
    return wasm_v128_and(wasm_i16x8_shl(v, shift), bytes(mask));
}
static inline v128_t low_nibbles(v128_t v) { return wasm_v128_and(v, bytes(15)); }
static inline v128_t high_nibbles(v128_t v) { return bits_right(v, 4, 15); }

/* 16 codes. */
static inline void store_u8(int16_t *codes, v128_t v) {
    wasm_v128_store(codes, wasm_u16x8_extend_low_u8x16(v));
    wasm_v128_store(codes + 8, wasm_u16x8_extend_high_u8x16(v));
}
static inline void store_i8(int16_t *codes, v128_t v) {
    wasm_v128_store(codes, wasm_i16x8_extend_low_i8x16(v));
    wasm_v128_store(codes + 8, wasm_i16x8_extend_high_i8x16(v));
}

/* The nibbles of 16 bytes less bias: 16 low ones and 16 high ones.  Widening first costs less than widening last here:
 * the loads do it. */
static inline void store_nibbles(int16_t *low, int16_t *high, const uint8_t *qs, int16_t bias) {
    const v128_t mask = wasm_i16x8_splat(15), b = wasm_i16x8_splat(bias);
    v128_t v0 = wasm_u16x8_load8x8(qs), v1 = wasm_u16x8_load8x8(qs + 8);
    wasm_v128_store(low, wasm_i16x8_sub(wasm_v128_and(v0, mask), b));
    wasm_v128_store(low + 8, wasm_i16x8_sub(wasm_v128_and(v1, mask), b));
    wasm_v128_store(high, wasm_i16x8_sub(wasm_u16x8_shr(v0, 4), b));
    wasm_v128_store(high + 8, wasm_i16x8_sub(wasm_u16x8_shr(v1, 4), b));
}

/* ---- scales --------------------------------------------------------------------------------------------------- */

/* The scales of a row of n blocks of 32, which begin with d, f16, and, if min is not NULL, m, f16: four blocks at a
 * time, apart from the codes, as one conversion per block would cost as much as its codes. */
static inline void store_scales(float *scale, float *min, const void *src, size_t stride, size_t n) {
    const uint8_t *p = src;
    for (const float *end = scale + n / 4 * 4; scale < end; scale += 4, p += 4 * stride) {
        v128_t dm = wasm_v128_load32_zero(p);
        dm = wasm_v128_load32_lane(p + stride, dm, 1);
        dm = wasm_v128_load32_lane(p + 2 * stride, dm, 2);
        dm = wasm_v128_load32_lane(p + 3 * stride, dm, 3);
        wasm_v128_store(scale, f32_from_f16_x4(dm));
        if (min) {
            wasm_v128_store(min, wasm_f32x4_neg(f32_from_f16_x4(wasm_u32x4_shr(dm, 16))));
            min += 4;
        }
    }
    for (size_t k = 0; k < n % 4; k++, p += stride) {
        scale[k] = f32_from_f16(load_u16(p));
        if (min) min[k] = -f32_from_f16(load_u16(p + 2));
    }
}

static inline v128_t f16_splat(const uint8_t *p) { return wasm_f32x4_splat(f32_from_f16(load_u16(p))); }

/* dst[k] = d * v[k] for 8 or 16 integers, one product each. */
static inline void store_products_i16x8(float *dst, v128_t d, v128_t v) {
    wasm_v128_store(dst, wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(v))));
    wasm_v128_store(dst + 4, wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(v))));
}
static inline void store_products_i8x16(float *dst, v128_t d, v128_t v) {
    store_products_i16x8(dst, d, wasm_i16x8_extend_low_i8x16(v));
    store_products_i16x8(dst + 8, d, wasm_i16x8_extend_high_i8x16(v));
}

/* ---- blocks of 32: one group each ----------------------------------------------------------------------------- */

static void unpack_q4_0__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    (void)min;
    const struct block_q4_0 *b = src;
    store_scales(scale, NULL, b, sizeof *b, n / 32);
    for (const int16_t *end = codes + n; codes < end; codes += 32, b++) store_nibbles(codes, codes + 16, b->qs, 8);
}

static void unpack_q4_1__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    const struct block_q4_1 *b = src;
    store_scales(scale, min, b, sizeof *b, n / 32);
    for (const int16_t *end = codes + n; codes < end; codes += 32, b++) store_nibbles(codes, codes + 16, b->qs, 0);
}

/* Bits 0..15 (first = 0) or 16..31 (first = 2) of qh, one per byte: 0xff where the bit is 0. */
static inline v128_t absent_bits(v128_t qh, uint8_t first) {
    const v128_t byte = wasm_u64x2_make(first * 0x0101010101010101u, (first + 1u) * 0x0101010101010101u);
    const v128_t bit = wasm_u64x2_splat(0x8040201008040201u);
    return wasm_i8x16_eq(wasm_v128_and(wasm_i8x16_swizzle(qh, byte), bit), bytes(0));
}

/* low + 16 - 16 = low with the fifth bit, low - 16 = low | 0xf0 without. */
static void unpack_q5_0__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    (void)min;
    const struct block_q5_0 *b = src;
    store_scales(scale, NULL, b, sizeof *b, n / 32);
    for (const int16_t *end = codes + n; codes < end; codes += 32, b++) {
        v128_t v = wasm_v128_load(b->qs), qh = wasm_v128_load32_splat(b->qh);
        store_i8(codes, wasm_v128_or(low_nibbles(v), wasm_v128_and(absent_bits(qh, 0), bytes(0xf0))));
        store_i8(codes + 16, wasm_v128_or(high_nibbles(v), wasm_v128_and(absent_bits(qh, 2), bytes(0xf0))));
    }
}

static void unpack_q5_1__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    const struct block_q5_1 *b = src;
    store_scales(scale, min, b, sizeof *b, n / 32);
    for (const int16_t *end = codes + n; codes < end; codes += 32, b++) {
        v128_t v = wasm_v128_load(b->qs), qh = wasm_v128_load32_splat(b->qh);
        store_u8(codes, wasm_v128_or(low_nibbles(v), wasm_v128_andnot(bytes(0x10), absent_bits(qh, 0))));
        store_u8(codes + 16, wasm_v128_or(high_nibbles(v), wasm_v128_andnot(bytes(0x10), absent_bits(qh, 2))));
    }
}

static void unpack_q8_0__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    (void)min;
    const struct block_q8_0 *b = src;
    store_scales(scale, NULL, b, sizeof *b, n / 32);
    for (const int16_t *end = codes + n; codes < end; codes += 32, b++) {
        wasm_v128_store(codes, wasm_i16x8_load8x8(b->qs));
        wasm_v128_store(codes + 8, wasm_i16x8_load8x8(b->qs + 8));
        wasm_v128_store(codes + 16, wasm_i16x8_load8x8(b->qs + 16));
        wasm_v128_store(codes + 24, wasm_i16x8_load8x8(b->qs + 24));
    }
}

static void unpack_iq4_nl__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    (void)min;
    const struct block_iq4_nl *b = src;
    const v128_t values = wasm_v128_load(quant_iq4_values);
    store_scales(scale, NULL, b, sizeof *b, n / 32);
    for (const int16_t *end = codes + n; codes < end; codes += 32, b++) {
        v128_t v = wasm_v128_load(b->qs);
        store_i8(codes, wasm_i8x16_swizzle(values, low_nibbles(v)));
        store_i8(codes + 16, wasm_i8x16_swizzle(values, high_nibbles(v)));
    }
}

/* ---- superblocks of 256: 16 groups of 16 or 8 of 32 ----------------------------------------------------------- */

static void unpack_q2_K__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    const struct block_q2_K *b = src;
    for (const int16_t *end = codes + n; codes < end; b++, scale += 16, min += 16) {
        v128_t s = wasm_v128_load(b->scales);
        store_products_i8x16(scale, f16_splat(b->d), low_nibbles(s));
        store_products_i8x16(min, f16_splat(b->dmin), high_nibbles(s));
        for (const uint8_t *qs = b->qs; qs < b->qs + 64; qs += 32, codes += 128) {
            v128_t v0 = wasm_v128_load(qs), v1 = wasm_v128_load(qs + 16);
            store_u8(codes, bits_right(v0, 0, 3));
            store_u8(codes + 16, bits_right(v1, 0, 3));
            store_u8(codes + 32, bits_right(v0, 2, 3));
            store_u8(codes + 48, bits_right(v1, 2, 3));
            store_u8(codes + 64, bits_right(v0, 4, 3));
            store_u8(codes + 80, bits_right(v1, 4, 3));
            store_u8(codes + 96, bits_right(v0, 6, 3));
            store_u8(codes + 112, bits_right(v1, 6, 3));
        }
    }
}

/* sc[i] - 32 of all 16 groups of a q3_K block. */
static inline v128_t q3_K_scales(const uint8_t scales[12]) {
    v128_t low = wasm_v128_load64_splat(scales);
    uint32_t high = load_u32(scales + 8);
    v128_t low_bits = wasm_i64x2_shuffle(low_nibbles(low), high_nibbles(low), 0, 2);
    v128_t high_bits = wasm_u32x4_make(high << 4, high << 2, high, high >> 2);
    return wasm_i8x16_sub(wasm_v128_or(low_bits, wasm_v128_and(high_bits, bytes(0x30))), bytes(32));
}

/* 16 codes of q3_K: two bits, less 4 where the third is 0; missing has that third bit inverted, moved to bit 2. */
static inline void store_q3(int16_t *codes, v128_t low, v128_t missing) {
    store_i8(codes, wasm_i8x16_sub(low, missing));
}

static void unpack_q3_K__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    (void)min;
    const struct block_q3_K *b = src;
    for (const int16_t *end = codes + n; codes < end; b++, scale += 16, codes += 256) {
        store_products_i8x16(scale, f16_splat(b->d), q3_K_scales(b->scales));
        for (int half = 0; half < 32; half += 16) {
            v128_t missing = wasm_v128_not(wasm_v128_load(b->hmask + half));
            v128_t v0 = wasm_v128_load(b->qs + half), v1 = wasm_v128_load(b->qs + 32 + half);
            int16_t *c = codes + half;
            store_q3(c, bits_right(v0, 0, 3), bits_left(missing, 2, 4));
            store_q3(c + 32, bits_right(v0, 2, 3), bits_left(missing, 1, 4));
            store_q3(c + 64, bits_right(v0, 4, 3), bits_right(missing, 0, 4));
            store_q3(c + 96, bits_right(v0, 6, 3), bits_right(missing, 1, 4));
            store_q3(c + 128, bits_right(v1, 0, 3), bits_right(missing, 2, 4));
            store_q3(c + 160, bits_right(v1, 2, 3), bits_right(missing, 3, 4));
            store_q3(c + 192, bits_right(v1, 4, 3), bits_right(missing, 4, 4));
            store_q3(c + 224, bits_right(v1, 6, 3), bits_right(missing, 5, 4));
        }
    }
}

/* The 8 scales (bytes 0..7) and 8 minima (bytes 8..15) of a q4_K or q5_K block; v: its first 16 bytes. */
static inline v128_t q4_K_scales(v128_t v) {
    const v128_t first = wasm_u32x4_make(0xffffffffu, 0, 0xffffffffu, 0);       /* groups 0..3, whole in their byte */
    const v128_t in_low = wasm_u32x4_make(0, 0xffffffffu, 0, 0);                /* sc[4..7] */
    v128_t low = wasm_i8x16_shuffle(v, v, 4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    v128_t high = wasm_i8x16_shuffle(v, v, 4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11, 8, 9, 10, 11);
    v128_t last = wasm_v128_or(wasm_v128_bitselect(low_nibbles(low), high_nibbles(low), in_low),
                               bits_right(high, 2, 0x30));
    return wasm_v128_bitselect(wasm_v128_and(low, bytes(63)), last, first);
}

/* The head that q4_K and q5_K share: 16 bytes -> 8 scales and 8 minima. */
static inline void store_q4_K_scales(float *scale, float *min, const uint8_t *block) {
    v128_t s = q4_K_scales(wasm_v128_load(block));
    store_products_i16x8(scale, f16_splat(block), wasm_u16x8_extend_low_u8x16(s));
    store_products_i16x8(min, f16_splat(block + 2), wasm_u16x8_extend_high_u8x16(s));
}

static void unpack_q4_K__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    const struct block_q4_K *b = src;
    for (const int16_t *end = codes + n; codes < end; b++, scale += 8, min += 8) {
        store_q4_K_scales(scale, min, b->d);
        for (const uint8_t *qs = b->qs; qs < b->qs + 128; qs += 32, codes += 64) {
            store_nibbles(codes, codes + 32, qs, 0);
            store_nibbles(codes + 16, codes + 48, qs + 16, 0);
        }
    }
}

static void unpack_q5_K__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    const struct block_q5_K *b = src;
    for (const int16_t *end = codes + n; codes < end; b++, scale += 8, min += 8, codes += 256) {
        store_q4_K_scales(scale, min, b->d);
        for (int half = 0; half < 32; half += 16) {
            v128_t qh = wasm_v128_load(b->qh + half);
            const uint8_t *qs = b->qs + half;
            v128_t v0 = wasm_v128_load(qs), v1 = wasm_v128_load(qs + 32);
            v128_t v2 = wasm_v128_load(qs + 64), v3 = wasm_v128_load(qs + 96);
            int16_t *c = codes + half;
            store_u8(c, wasm_v128_or(low_nibbles(v0), bits_left(qh, 4, 16)));
            store_u8(c + 32, wasm_v128_or(high_nibbles(v0), bits_left(qh, 3, 16)));
            store_u8(c + 64, wasm_v128_or(low_nibbles(v1), bits_left(qh, 2, 16)));
            store_u8(c + 96, wasm_v128_or(high_nibbles(v1), bits_left(qh, 1, 16)));
            store_u8(c + 128, wasm_v128_or(low_nibbles(v2), bits_right(qh, 0, 16)));
            store_u8(c + 160, wasm_v128_or(high_nibbles(v2), bits_right(qh, 1, 16)));
            store_u8(c + 192, wasm_v128_or(low_nibbles(v3), bits_right(qh, 2, 16)));
            store_u8(c + 224, wasm_v128_or(high_nibbles(v3), bits_right(qh, 3, 16)));
        }
    }
}

/* 16 codes of q6_K: four bits, and two more at bits 5..4. */
static inline void store_q6(int16_t *codes, v128_t low, v128_t high) {
    store_i8(codes, wasm_i8x16_sub(wasm_v128_or(low, high), bytes(32)));
}

static void unpack_q6_K__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    (void)min;
    const struct block_q6_K *b = src;
    for (const int16_t *end = codes + n; codes < end; b++, scale += 16) {
        store_products_i8x16(scale, f16_splat(b->d), wasm_v128_load(b->scales));
        const uint8_t *ql = b->ql;
        for (const uint8_t *qh = b->qh; qh < b->qh + 64; qh += 32, ql += 64, codes += 128) {
            for (int half = 0; half < 32; half += 16) {
                v128_t v0 = wasm_v128_load(ql + half), v1 = wasm_v128_load(ql + 32 + half);
                v128_t high = wasm_v128_load(qh + half);
                int16_t *c = codes + half;
                store_q6(c, low_nibbles(v0), bits_left(high, 4, 0x30));
                store_q6(c + 32, low_nibbles(v1), bits_left(high, 2, 0x30));
                store_q6(c + 64, high_nibbles(v0), bits_right(high, 0, 0x30));
                store_q6(c + 96, high_nibbles(v1), bits_right(high, 2, 0x30));
            }
        }
    }
}

/* sc[i] - 32 of the 8 groups of an iq4_xs block, as i16.  Eight fields of 4 and of 2 bits are spread to eight bytes by
 * halving: lanes multiplied by powers of two would do it too, but LLVM makes those shifts, one lane after the other. */
static inline v128_t iq4_xs_scales(const struct block_iq4_xs *b) {
    uint64_t low = load_u32(b->scales_l), high = load_u16(b->scales_h);
    low = (low | low << 16) & 0x0000ffff0000ffffu;
    low = (low | low << 8) & 0x00ff00ff00ff00ffu;
    low = (low | low << 4) & 0x0f0f0f0f0f0f0f0fu;
    high = (high | high << 24) & 0x000000ff000000ffu;
    high = (high | high << 12) & 0x000f000f000f000fu;
    high = (high | high << 6) & 0x0303030303030303u;
    v128_t sc = wasm_u64x2_splat(low | high << 4);
    return wasm_i16x8_extend_low_i8x16(wasm_i8x16_sub(sc, bytes(32)));
}

static void unpack_iq4_xs__simd128(const void *src, int16_t *codes, float *scale, float *min, size_t n) {
    (void)min;
    const struct block_iq4_xs *b = src;
    const v128_t values = wasm_v128_load(quant_iq4_values);
    for (const int16_t *end = codes + n; codes < end; b++, scale += 8) {
        store_products_i16x8(scale, f16_splat(b->d), iq4_xs_scales(b));
        for (const uint8_t *qs = b->qs; qs < b->qs + 128; qs += 16, codes += 32) {
            v128_t v = wasm_v128_load(qs);
            store_i8(codes, wasm_i8x16_swizzle(values, low_nibbles(v)));
            store_i8(codes + 16, wasm_i8x16_swizzle(values, high_nibbles(v)));
        }
    }
}

const struct unpack_traits *unpack_simd128(uint32_t type) {
    static const struct unpack_traits table[QUANT_TYPE_COUNT] = {
        [QUANT_Q4_0] = {32, false, unpack_q4_0__simd128},
        [QUANT_Q4_1] = {32, true, unpack_q4_1__simd128},
        [QUANT_Q5_0] = {32, false, unpack_q5_0__simd128},
        [QUANT_Q5_1] = {32, true, unpack_q5_1__simd128},
        [QUANT_Q8_0] = {32, false, unpack_q8_0__simd128},
        [QUANT_Q2_K] = {16, true, unpack_q2_K__simd128},
        [QUANT_Q3_K] = {16, false, unpack_q3_K__simd128},
        [QUANT_Q4_K] = {32, true, unpack_q4_K__simd128},
        [QUANT_Q5_K] = {32, true, unpack_q5_K__simd128},
        [QUANT_Q6_K] = {16, false, unpack_q6_K__simd128},
        [QUANT_IQ4_NL] = {32, false, unpack_iq4_nl__simd128},
        [QUANT_IQ4_XS] = {32, false, unpack_iq4_xs__simd128},
    };
    return type < QUANT_TYPE_COUNT && table[type].row ? &table[type] : NULL;
}

#endif

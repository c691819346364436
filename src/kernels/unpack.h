/* Row unpackers: quantized weights -> integer codes with one scale (and minimum) per group, the form in which the dot
 * kernels take every type.
 *
 *   w[i] = scale[i / group] * codes[i] - m[i / group]          i < n, n % block_size == 0
 *   m[g] = 0, min[g] of GROUP_MIN, min[g * group / 256] * min_codes[g] of SUPERBLOCK_MIN
 *
 * codes (n) i16, the type's bias already subtracted (Q4_0: -8..7): |code| <= 127, but for the -128 that a hostile Q8_0
 * may hold.  scale (n / group) f32, min as many or (n / 256) f32, min_codes (n / group) i16 of 0 .. 63; what a type has
 * not it does not touch, and may be NULL.  src may have any alignment; the outputs must not overlap it.  A scale d * sc
 * is one f32 product, a type that adds m gives min = -m: so the line above, in f32, has the bits of the reference
 * dequantizer.
 */
#ifndef PLUMB_KERNELS_UNPACK_H
#define PLUMB_KERNELS_UNPACK_H

#include "base/base.h"

enum min_kind { NO_MIN, GROUP_MIN, SUPERBLOCK_MIN };

struct unpack_traits {
    uint8_t group;   /* 16 or 32 weights share a scale */
    enum min_kind min_kind;
    void (*row)(const void *src, int16_t *codes, float *scale, float *min, int16_t *min_codes, size_t n);
};

/* By quant_type; NULL where there is none: float types, Q8_K, types that cannot be read. */
const struct unpack_traits *unpack_scalar(uint32_t type);

#endif

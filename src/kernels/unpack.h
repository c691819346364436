/* Row unpackers: quantized weights -> integer codes with one scale (and minimum) per group, the form in which the dot
 * kernels take every type.
 *
 *   w[i] = scale[i / group] * codes[i] - min[i / group]        i < n, n % block_size == 0
 *
 * codes (n) i16, the type's bias already subtracted (Q4_0: -8..7): |code| <= 127, but for the -128 that a hostile Q8_0
 * may hold.  scale, min (n / group) f32; types without a minimum never touch min, which may then be NULL.  src may have
 * any alignment; the outputs must not overlap it.  A scale d * sc is one f32 product, a type that adds m gives
 * min = -m: so the line above, in f32, has the bits of the reference dequantizer.  Variants give the same bits.
 */
#ifndef PLUMB_KERNELS_UNPACK_H
#define PLUMB_KERNELS_UNPACK_H

#include "base/base.h"

struct unpack_traits {
    uint8_t group;   /* 16 or 32 weights share a scale */
    bool has_min;
    void (*row)(const void *src, int16_t *codes, float *scale, float *min, size_t n);
};

/* By quant_type; NULL where there is none: float types, Q8_K, types that cannot be read. */
const struct unpack_traits *unpack_scalar(uint32_t type);

#endif

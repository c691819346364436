/* Row unpackers: quantized weights -> integer codes with one scale (and minimum) per group.  kernels.c fills panels
 * with them where a row is not packed, or where the kernel table has no unpacker of its own.  They read rows as in the
 * file, and their outputs are in natural order; kernels.c stores them in even-odd order.
 *
 *   w[i] = scale[i / group] * codes[i] - m[i / group]          i < n, n % block_size == 0
 *   m[g] = 0 for NO_MIN, min[g] for GROUP_MIN, min[g * group / 256] * min_codes[g] for SUPERBLOCK_MIN
 *
 *   codes      (n) i16, after the type's bias is subtracted (Q4_0: -8 .. 7); for IQ types, the values of their tables.
 *              |code| <= 127, except that Q8_0 in a hostile file may hold -128
 *   scale      (n / group) f32
 *   min        (n / group) f32 for GROUP_MIN, (n / 256) f32 for SUPERBLOCK_MIN
 *   min_codes  (n / group) i16, 0 .. 63
 *
 * An output that a type does not have is not written and may be NULL.  src may have any alignment and must not overlap
 * the outputs.  A scale d * sc is one f32 product, and a type that adds m returns min = -m.  Evaluated in f32, the
 * formula above therefore gives the bits of the reference dequantizer.
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

/* Returns the unpacker of a quant_type.  NULL if it has none, as float types and Q8_K. */
const struct unpack_traits *unpack_scalar(uint32_t type);

#endif

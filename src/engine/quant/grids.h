/* The grids of the IQ1, IQ2 and IQ3 types: the vectors of 8 (IQ3: of 4) values that an index in a block stands for.
 *
 * An entry has a code for each value, with 2 bits in IQ1 and IQ2 and 3 bits in IQ3.  types.h has the values that they
 * stand for.  This takes a quarter of the bytes of the tables of ggml, which have the values.
 *
 * Nibbles 0, 2, 1 and 3 of an entry have codes 0, 1, 2 and 3 in their low bits.  In entries of 8 codes, their high bits
 * have codes 4, 5, 6 and 7.  So (entry | entry << 12) & 0x0f0f0f0f has the nibbles
 * in the order of the codes, one in each byte.
 */
#ifndef PLUMB_QUANT_GRIDS_H
#define PLUMB_QUANT_GRIDS_H

#include <stddef.h>
#include <stdint.h>

/* Returns the first bit of code j in an entry. */
static inline unsigned quant_grid_shift(size_t j) {
    return (unsigned)((j & 1) << 3 | (j & 2) << 1 | (j & 4) >> 1);
}

extern const uint16_t quant_iq1_grid[2048];      /* iq1_s and iq1_m */
extern const uint16_t quant_iq2_xxs_grid[256], quant_iq2_xs_grid[512], quant_iq2_s_grid[1024];
extern const uint16_t quant_iq3_xxs_grid[256], quant_iq3_s_grid[512];

#endif

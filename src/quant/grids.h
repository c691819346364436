/* The grids of the IQ1, IQ2 and IQ3 types: the vectors of 8 (IQ3: of 4) values that an index in a block stands for.
 *
 * An entry has a code for each value, the first in the lowest bits: 2 bits of IQ1 and IQ2, 3 bits of IQ3.  The codes
 * stand for the values below.  This takes a quarter of the bytes of the tables of ggml, which have the values.
 */
#ifndef PLUMB_QUANT_GRIDS_H
#define PLUMB_QUANT_GRIDS_H

#include <stdint.h>

extern const uint16_t quant_iq1_grid[2048];      /* iq1_s and iq1_m; a code c stands for c - 1 */
extern const uint16_t quant_iq2_xxs_grid[256], quant_iq2_xs_grid[512], quant_iq2_s_grid[1024];
extern const uint16_t quant_iq3_xxs_grid[256], quant_iq3_s_grid[512];   /* iq3_s: a code c stands for 2 c + 1 */

extern const int8_t quant_iq2_values[3], quant_iq3_xxs_values[8];

#endif

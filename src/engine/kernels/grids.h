/* Where the fields of the types with grids, IQ1, IQ2 and IQ3, are in a superblock.  These types differ only in the
 * tables below, so one portable function (unpack_scalar.c) and one set of vector functions (grids_simd128.c) serve all
 * seven.  quant/blocks.h has the diagrams, and quant/grids.h the grids.
 *
 *   code of a weight   IQ2, IQ3: the value of its code in the entry, or less that.  IQ1: 8 times the value, plus or
 *                      minus 1
 *   scale of a group   d * factor * (2 * sc + 1)
 */
#ifndef PLUMB_KERNELS_GRIDS_H
#define PLUMB_KERNELS_GRIDS_H

#include "quant/blocks.h"
#include "quant/grids.h"

/* A field that a block has for each vector of 8 weights or for each group.  Number i of it begins at bit
 * first + i / 4 * four + i % 4 * step of the words of a block, bit 0 of byte 0 being the first, and has `bits` bits.
 * It never crosses a word of 32 bits. */
struct grid_field { uint16_t first, four, step, bits; };

struct grid_type {
    const uint16_t *grid;
    int8_t values[8];          /* of the codes of an entry.  IQ1: 8 times the value, plus 1 */
    uint8_t bytes;             /* bytes of a block */
    uint8_t words;             /* offset of its words: 2, after d; IQ1_M: 0, because d is in the scales */
    uint8_t group;             /* weights that share a scale: 16 or 32 */
    uint8_t n_entry;           /* entries for 8 weights: 2 of 4 codes of 3 bits (IQ3) or 1 of 8 codes of 2 bits */
    float factor;
    /* The index of an entry, and of the next one if there are two: its low bits, and those above bit 7.  IQ2_XS has 9
     * bits in `low`. */
    struct grid_field low, high;
    /* 8 signs, of which 1 is minus; or 7, and the eighth makes the number of minus signs even; or 1 bit (IQ1), which
     * makes the codes of all 8 weights smaller by 2. */
    struct grid_field signs;
    struct grid_field scale;
};

enum { GRID_MAX_GROUPS = 16 };   /* of a superblock */

static const struct grid_type grid_iq2_xxs = {
    .grid = quant_iq2_xxs_grid, .values = { 8, 25, 43 }, .bytes = sizeof(struct block_iq2_xxs), .words = 2,
    .group = 32, .n_entry = 1, .factor = 0.125f,
    .low = { 0, 64, 8, 8 }, .signs = { 32, 64, 7, 7 }, .scale = { 60, 256, 64, 4 },
};
static const struct grid_type grid_iq2_xs = {
    .grid = quant_iq2_xs_grid, .values = { 8, 25, 43 }, .bytes = sizeof(struct block_iq2_xs), .words = 2,
    .group = 16, .n_entry = 1, .factor = 0.125f,
    .low = { 0, 64, 16, 9 }, .signs = { 9, 64, 16, 7 }, .scale = { 512, 16, 4, 4 },
};
static const struct grid_type grid_iq2_s = {
    .grid = quant_iq2_s_grid, .values = { 8, 25, 43 }, .bytes = sizeof(struct block_iq2_s), .words = 2,
    .group = 16, .n_entry = 1, .factor = 0.125f,
    .low = { 0, 32, 8, 8 }, .high = { 512, 8, 2, 2 }, .signs = { 256, 32, 8, 8 }, .scale = { 576, 16, 4, 4 },
};
static const struct grid_type grid_iq3_xxs = {
    .grid = quant_iq3_xxs_grid, .values = { 4, 12, 20, 28, 36, 44, 52, 62 }, .bytes = sizeof(struct block_iq3_xxs),
    .words = 2, .group = 32, .n_entry = 2, .factor = 0.25f,
    .low = { 0, 64, 16, 16 }, .signs = { 512, 32, 7, 7 }, .scale = { 540, 128, 32, 4 },
};
static const struct grid_type grid_iq3_s = {
    .grid = quant_iq3_s_grid, .values = { 1, 3, 5, 7, 9, 11, 13, 15 }, .bytes = sizeof(struct block_iq3_s),
    .words = 2, .group = 32, .n_entry = 2, .factor = 1.0f,
    .low = { 0, 64, 16, 16 }, .high = { 512, 8, 2, 2 }, .signs = { 576, 32, 8, 8 }, .scale = { 832, 16, 4, 4 },
};
static const struct grid_type grid_iq1_s = {
    .grid = quant_iq1_grid, .values = { -7, 1, 9 }, .bytes = sizeof(struct block_iq1_s), .words = 2,
    .group = 32, .n_entry = 1, .factor = 0.125f,
    .low = { 0, 32, 8, 8 }, .high = { 256, 16, 3, 3 }, .signs = { 271, 16, 0, 1 }, .scale = { 268, 64, 16, 3 },
};
static const struct grid_type grid_iq1_m = {
    .grid = quant_iq1_grid, .values = { -7, 1, 9 }, .bytes = sizeof(struct block_iq1_m), .words = 0,
    .group = 16, .n_entry = 1, .factor = 0.125f,
    .low = { 0, 32, 8, 8 }, .high = { 256, 16, 4, 3 }, .signs = { 259, 16, 4, 1 }, .scale = { 384, 16, 3, 3 },
};

#endif

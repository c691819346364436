/* The layout that weights have in memory: 8 rows side by side, so that a register holds the same place of 4 rows,
 * and all that is multiplied comes from memory in one stream.
 *
 * A tile is one block of 8 consecutive rows, in the 8 * block_bytes bytes that these blocks have in the file:
 *   types whose blocks have an odd half (block_bytes % 4 == 2)   the f16 d of rows 0 .. 7
 *   then, word by word                                          the little-endian u32 j of the blocks of rows 0 .. 7
 * where word j is of the block less that half.  Where that saves instructions for each token, words change:
 *   q5_0, q5_1, q5_K   words of nibbles and high bits become five words for each 32 weights: word i = 0 .. 4 has codes
 *                      4i .. 4i + 3, times 8, and in the low three bits of its bytes parts of the other 12 codes:
 *                      words 0, 1 and 2 the low three bits of codes 20 .. 23, 24 .. 27 and 28 .. 31; 3 and 4 the high
 *                      two of codes 20 .. 23 and 24 .. 27, above which 3 has bit 3 and 4 has bit 4 of codes 28 .. 31
 *   q6_K               they become three words for each 16 weights: word i = 0 .. 2 has codes 4i .. 4i + 3, times 4,
 *                      and in the low two bits of its bytes bits 2i and 2i + 1 of codes 12 .. 15
 *   q8_0               four codes are stored as 0 2 1 3 (the even-odd order of kernels/README.md), so that bytes are
 *                      widened to 16 bits by a mask and a shift
 * The f16 of superblocks (d, dmin) get an exponent with a bias of 25, not of 15, so that none is subnormal: their
 * magnitudes are 0, or 2^-24 to below 2^7.
 * Of F32, F16 and BF16 a tile is 16 bytes of row 0, of row 1, .. 7; rows must be multiples of 16 bytes.
 * The tiles of 8 rows follow each other, and take the place of the 8 rows.
 */
#ifndef PLUMB_REPACK_REPACK_H
#define PLUMB_REPACK_REPACK_H

#include "gguf/gguf.h"

enum { REPACK_ROWS = 8, REPACK_MORE_BIAS = 10 };

/* Is there such a layout for the type? */
bool repack_can(uint32_t type);
/* Would the rows be packed if their scales were 0? */
bool repack_can_rows(uint32_t type, size_t row_bytes);

/* Packs 8 rows of n_block blocks where they are; scratch is as large as they.  False, and nothing done, when a scale, a
 * minimum or an F16 weight is infinite or NaN, as kernels on tiles take f16 apart without looking, when one of a
 * superblock is 2^7 or more, or when rows of floats are no multiples of 16 bytes. */
bool repack_rows(uint32_t type, uint8_t *rows, size_t n_block, uint8_t *scratch);

/* The bytes of row r < 8 of packed rows, as in the file, to dst. */
void repack_undo_row(uint32_t type, const uint8_t *rows, size_t n_block, uint32_t r, uint8_t *dst);

/* Row i of a matrix at data whose first n_packed rows are packed, as in the file: in place where it can be, else in
 * buffer, of row_bytes bytes. */
const uint8_t *repack_file_row(uint32_t type, const uint8_t *data, size_t row_bytes, uint64_t n_packed, uint64_t i,
                         uint8_t *buffer);

/* ---- the tensors of a file --------------------------------------------------------------------------------------- */

/* Repacks the rows of matrices while their bytes arrive.  All zeros at first. */
struct repacker {
    uint8_t *scratch;   /* (capacity) bytes, which 8 rows of the widest tensor so far need */
    size_t capacity;
};
void repacker_free(struct repacker *r);
/* A gguf_on_data whose user is a struct repacker: packs the rows that have arrived whole, eight at a time, and counts
 * them in tensor->n_packed.  It stops for good at rows that repack_rows refuses.  PLUMB_ERROR_MEMORY. */
plumb_status repack_arrived(void *repacker, struct gguf_tensor *tensor, size_t n, struct error *err);
/* The bytes of row i of a tensor as in the file: in place, or in buffer (of gguf_row_bytes) if they are packed. */
const uint8_t *repack_tensor_row(const struct gguf_tensor *tensor, uint64_t i, uint8_t *buffer);

#endif

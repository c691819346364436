/* The layout of weights in memory: 8 rows side by side.  A register then holds the same part of 4 rows, and everything
 * that is multiplied is read from memory as one stream.
 *
 * A tile is one block of each of 8 consecutive rows, in the 8 * block_bytes bytes that these blocks have in the file:
 *   if block_bytes % 4 != 0   the scale of rows 0 .. 7, d (f16) or the exponent of mxfp4 (1 byte); the words below do
 *                             not include it
 *   then for each j           word j (u32, little-endian) of the blocks of rows 0 .. 7
 * The words of some types are changed, where that saves instructions for each token:
 *   q5_0, q5_1, q5_K   the words of nibbles and of high bits become five words for each 32 weights.  Word i = 0 .. 4
 *                      has codes 4i .. 4i + 3, times 8.  The low three bits of its bytes make the low five bits of
 *                      the bytes of these three words equal to the other codes:
 *                        w0 ^ w3 << 3             codes 20 .. 23
 *                        w1 ^ w4 << 3             codes 24 .. 27
 *                        w2 ^ w3 << 1 ^ w4 << 2   codes 28 .. 31
 *   q6_K               these words become three for each 16 weights.  Word i = 0 .. 2 has codes 4i .. 4i + 3, times 4.
 *                      The low two bits of its bytes make the low six bits of the bytes of w0 ^ w1 << 2 ^ w2 << 4 equal
 *                      to codes 12 .. 15
 *   q1_0               the 32 bits of a word are reordered: bit 2i + 1 of byte b has weight 4i + b, and bit 2i has
 *                      weight 4i + b + 16, i = 0 .. 3
 *   q2_0, tq2_0        word w has the codes of weights 16w .. 16w + 15: bits 2i and 2i + 1 of byte b have the code of
 *                      weight 16w + 4i + b
 *   q8_0               every four codes are stored as 0 2 1 3 (the even-odd order of kernels/README.md), so that a mask
 *                      and a shift widen bytes to 16 bits
 * In blocks of more than 32 weights, the exponents of the f16 (d, dmin) have a bias of 25 in place of 15, so that none
 * is subnormal: their magnitudes are 0, or from 2^-24 to below 2^7.
 * For F32, F16 and BF16, a tile is 16 bytes of row 0, 16 bytes of row 1, .. 7; rows must be multiples of 16 bytes.
 * The tiles of 8 rows follow each other, in the place of the 8 rows.
 */
#ifndef PLUMB_REPACK_REPACK_H
#define PLUMB_REPACK_REPACK_H

#include "gguf/gguf.h"
#include "quant/quant.h"

enum { REPACK_ROWS = 8, REPACK_EXTRA_BIAS = 10 };

/* Returns the first byte of the codes in a block, and the offset in a tile of the words that begin there. */
static inline uint32_t repack_first_code(const struct quant_traits *t) {
    const struct quant_field *low = &t->code.low, *high = &t->code.high;
    return (high->width > 0 && high->first < low->first ? high : low)->first / 8;
}
static inline uint32_t repack_words(const struct quant_traits *t) {
    return REPACK_ROWS * (repack_first_code(t) + (t->d == 0 ? 0 : t->block_bytes % 4u));
}

/* True if the layout exists for the type. */
bool repack_can(uint32_t type);
/* True if rows of this type and length can be packed, unless their values are among those that repack_rows refuses. */
bool repack_can_rows(uint32_t type, size_t row_bytes);

/* Packs 8 rows of n_block blocks in place.  scratch must be as large as the 8 rows.  Returns false and does nothing
 *   if a scale, a minimum or an F16 weight is infinite or NaN, because kernels on tiles do not check for that when they
 *   decode an f16;
 *   if a scale or a minimum of a block of more than 32 weights is 2^7 or more in magnitude;
 *   if a scale of mxfp4 is 2^126 or more, or one of nvfp4 has bit 7 set or all other bits;
 *   if rows of floats are not multiples of 16 bytes. */
bool repack_rows(uint32_t type, uint8_t *rows, size_t n_block, uint8_t *scratch);

/* Writes row r < 8 of 8 packed rows to dst, with its bytes as in the file. */
void repack_undo_row(uint32_t type, const uint8_t *rows, size_t n_block, uint32_t r, uint8_t *dst);

/* Returns row i, with its bytes as in the file, of a matrix at data whose first n_packed rows are packed.  A packed row
 * is written to buffer, which has row_bytes bytes; for any other row, the result points into data. */
const uint8_t *repack_file_row(uint32_t type, const uint8_t *data, size_t row_bytes, uint64_t n_packed, uint64_t i,
                         uint8_t *buffer);

/* ---- the tensors of a file --------------------------------------------------------------------------------------- */

/* Packs the rows of matrices while their bytes arrive.  Zero-initialize. */
struct repacker {
    uint8_t *scratch;   /* (capacity) bytes, enough for 8 rows of the widest tensor so far */
    size_t capacity;
};
void repacker_free(struct repacker *r);
/* A gguf_on_data function whose user is a struct repacker.  Packs the rows of a matrix that have arrived completely,
 * eight at a time, and counts them in tensor->n_packed.  At the first rows that repack_rows refuses, it stops for the
 * rest of the tensor.  PLUMB_ERROR_MEMORY if there is no memory for scratch. */
plumb_status repack_arrived(void *repacker, struct gguf_tensor *tensor, size_t n, struct error *err);
/* repack_file_row for a tensor.  buffer has gguf_row_bytes(tensor) bytes. */
const uint8_t *repack_tensor_row(const struct gguf_tensor *tensor, uint64_t i, uint8_t *buffer);

#endif

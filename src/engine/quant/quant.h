/* Tensor types.  types.h has one descriptor for each, which says where everything is in a block; whatever reads or
 * changes blocks takes it from there.  Type numbers and layouts are ggml's (enum ggml_type of ggml.h, ggml-common.h).
 */
#ifndef PLUMB_QUANT_H
#define PLUMB_QUANT_H

#include "base/base.h"

/* The type numbers of GGUF files. */
enum quant_type {
    QUANT_F32 = 0, QUANT_F16 = 1, QUANT_Q4_0 = 2, QUANT_Q4_1 = 3, QUANT_Q5_0 = 6, QUANT_Q5_1 = 7, QUANT_Q8_0 = 8,
    QUANT_Q2_K = 10, QUANT_Q3_K = 11, QUANT_Q4_K = 12, QUANT_Q5_K = 13, QUANT_Q6_K = 14, QUANT_Q8_K = 15,
    QUANT_IQ2_XXS = 16, QUANT_IQ2_XS = 17, QUANT_IQ3_XXS = 18, QUANT_IQ1_S = 19, QUANT_IQ4_NL = 20, QUANT_IQ3_S = 21,
    QUANT_IQ2_S = 22, QUANT_IQ4_XS = 23, QUANT_IQ1_M = 29, QUANT_BF16 = 30, QUANT_TQ1_0 = 34, QUANT_TQ2_0 = 35,
    QUANT_MXFP4 = 39, QUANT_NVFP4 = 40, QUANT_Q1_0 = 41, QUANT_Q2_0 = 42,
    QUANT_TYPE_COUNT = 43   /* the largest number that has a name, plus 1 */
};
enum { QUANT_MAX_BLOCK = 256, QUANT_MAX_GROUPS = 16 };   /* of weights in a block, of groups in a block */

/* `count` numbers of `width` <= 16 bits in a block.  Number i begins at bit
 *   first + i % n * step + i / n % n2 * step2 + i / n / n2 * step3
 * where bit 0 is the lowest of byte 0.  No number is in more than two bytes.  Numbers from count on are 0. */
struct quant_field {
    uint16_t count, first;
    uint8_t width, n, n2;
    int8_t step;
    int16_t step2;
    uint16_t step3;
};
/* Numbers whose low bits are in one field and whose high bits, if its width is not 0, are in another. */
struct quant_number { struct quant_field low, high; };

/* How d, the scale of a block, is stored. */
enum quant_scale {
    QUANT_SCALE_F32, QUANT_SCALE_F16, QUANT_SCALE_BF16,
    QUANT_SCALE_NIBBLES,     /* an f16, whose nibbles are the highest ones of four u16, the lowest first */
    QUANT_SCALE_EXPONENTS,   /* there is no d; a number e of `scale` stands for 2^(e - 128) */
    QUANT_SCALE_FLOAT8,      /* there is no d; a number of `scale` stands for half an unsigned float with 4 bits of
                              * exponent, whose bias is 7, and 3 of mantissa */
};
/* The minimum of the weights of a group: none; m, an f16 of the block; or dmin, an f16 of the block, times a number of
 * `min` of the group. */
enum min_kind { NO_MIN, GROUP_MIN, SUPERBLOCK_MIN };
/* The signs of a vector of 8 weights, of which 1 is minus: a bit for each; bits for seven, and the eighth makes the
 * number of minus signs even; or one bit, which makes the codes of all 8 smaller by 2. */
enum quant_signs { QUANT_SIGNS_EACH, QUANT_SIGNS_EVEN, QUANT_SIGNS_SHIFT };
/* How the words of a block change in a tile (repack.h). */
enum quant_packing {
    QUANT_UNCHANGED, QUANT_EVEN_ODD, QUANT_ONE_BIT, QUANT_TWO_BITS, QUANT_TWO_BITS_TQ, QUANT_FIVE_BITS,
    QUANT_FIVE_BITS_K, QUANT_SIX_BITS
};

/* w[e] = scale[e / group] * code[e] - min[e / group]
 *   scale[g]   d * factor * (scale_times * (number g of `scale`) + scale_plus)
 *   code[e]    number e of `code` less bias, or, with bias 0, its entry in `values`; in types with a grid, see
 *              quant_read_vectors
 *   min[g]     as min_kind says; -min[g] if min_is_added */
struct quant_traits {
    const char *name;        /* "Q4_K"; NULL for a number without a type */
    uint16_t block_size;     /* elements per block; 0 for a type of which only the name is known: it cannot be read */
    uint16_t block_bytes;
    uint8_t group;           /* 16 or 32 weights share a scale; 0: the type is dequantized before it is multiplied */
    uint8_t d, m;            /* the bytes at which d begins, and m or dmin, which is right after it */
    enum quant_scale d_kind;
    enum min_kind min_kind;
    bool min_is_added, signed_scales, signed_codes;   /* signed: numbers of 8 bits in two's complement */
    int8_t scale_times, scale_plus, bias;
    float factor;
    struct quant_number scale, min, code;
    /* Writes the codes of a block, (block_size).  NULL: the type is one float, d. */
    void (*read_codes)(const struct quant_traits *t, const uint8_t *block, int16_t *codes);
    const int8_t *values;    /* NULL, or one for each number; in types with a grid (8), one for each code of an entry */
    const uint16_t *grid;
    bool is_grid_of_4;       /* entries of the grid are vectors of 4 weights, not of 8 */
    struct quant_field signs;
    enum quant_signs signs_kind;
    enum quant_packing packing;
    double error;            /* the relative RMS error of quantizing Gaussian weights to the type */
};

/* Returns NULL for a number that has no name. */
const struct quant_traits *quant_traits(uint32_t type);

/* Converts n elements (n % block_size == 0) of a row at src, which may have any alignment, to (n) f32 at dst.  The
 * results equal those of ggml's dequantize_row_* and of gguf-py bit for bit, because products and sums are computed in
 * single precision and in their order.  Scales that are infinite or NaN follow the rules of IEEE arithmetic. */
void quant_dequantize(const struct quant_traits *t, const void *src, float *dst, size_t n);

/* Converts a block of a type with groups to
 *   codes       (block_size), |code| <= 127, except that Q8_0 in a hostile file may hold -128
 *   scale       (block_size / group)
 *   min         GROUP_MIN (block_size / group): min[g] of the formula above; SUPERBLOCK_MIN (1): dmin
 *   min_codes   SUPERBLOCK_MIN (block_size / group), 0 .. 63: min[g] is dmin times these
 * An output that a type does not have is not written and may be NULL.  block may have any alignment.  The formula
 * above, evaluated in f32, gives the bits of quant_dequantize. */
void quant_unpack(const struct quant_traits *t, const uint8_t *block, int16_t *codes, float *scale, float *min,
                  int16_t *min_codes);

/* Reads or replaces number i. */
uint32_t quant_get(const uint8_t *block, const struct quant_number *number, size_t i);
void quant_put(uint8_t *block, const struct quant_number *number, size_t i, uint32_t value);

/* Reads or replaces the bits of the f16 at byte `at`: d, or m or dmin. */
static inline uint16_t quant_get_half(const struct quant_traits *t, const uint8_t *block, size_t at) {
    unsigned half = 0;
    if (t->d_kind != QUANT_SCALE_NIBBLES) return load_u16(block + at);
    for (size_t i = 0; i < 4; i++) half |= (unsigned)(block[at + 2 * i + 1] >> 4) << 4 * i;
    return (uint16_t)half;
}
static inline void quant_put_half(const struct quant_traits *t, uint8_t *block, size_t at, uint16_t half) {
    for (size_t i = 0; t->d_kind == QUANT_SCALE_NIBBLES && i < 4; i++) {
        uint8_t *byte = &block[at + 2 * i + 1];
        *byte = (uint8_t)((*byte & 15) | (half >> 4 * i & 15) << 4);
    }
    if (t->d_kind == QUANT_SCALE_NIBBLES) return;
    block[at] = (uint8_t)half;
    block[at + 1] = (uint8_t)(half >> 8);
}

/* The functions read_codes: of numbers; of the digits of TQ1_0; and of vectors of 8 weights, whose numbers are their
 * indexes in a grid (grids.h).  In a grid of vectors of 4, such a number is two indexes: low bytes, then high bits. */
void quant_read_numbers(const struct quant_traits *t, const uint8_t *block, int16_t *codes);
void quant_read_digits(const struct quant_traits *t, const uint8_t *block, int16_t *codes);
void quant_read_vectors(const struct quant_traits *t, const uint8_t *block, int16_t *codes);

#endif

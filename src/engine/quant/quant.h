/* Tensor types: block layouts, one traits table, one reference dequantizer per type.  Type numbers and layouts are
 * ggml's (enum ggml_type of ggml.h, ggml-common.h).  blocks.h has a diagram of each layout.
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
enum { QUANT_MAX_BLOCK = 256 };   /* the largest block_size */

struct quant_traits {
    const char *name;        /* "Q4_K"; NULL for a number without a type */
    uint32_t block_size;     /* elements per block; 0 for a type of which only the name is known: it cannot be read */
    uint32_t block_bytes;    /* bytes per block */
    /* Converts n elements (n % block_size == 0) of a row at src to (n) f32 at dst.  NULL if block_size is 0. */
    void (*dequantize)(const void *src, float *dst, size_t n);
};

/* Returns NULL for a number that has no name. */
const struct quant_traits *quant_traits(uint32_t type);

#endif

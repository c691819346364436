/* The descriptors of all tensor types.  Nothing else in this tree knows where a field of a block is.
 *
 * Below, q[e] is the number e of `code`, sc[i] and mn[i] are the numbers i of `scale` and of `min`.  The tables are
 * visible here, so that kernels can take from them what must be constant when they are compiled.
 *
 * The errors of Q8_K and of all types before NVFP4 were measured on 15 matrices of Gaussian weights with rows of 256
 * and 512.  llama-quantize --pure (llama.cpp v0.5.0) quantized them from F32, and the gguf package dequantized them.
 * llama-quantize does not write Q8_K; its error was measured with numpy, from the definition of the type.  The others
 * were measured on four such matrices with ggml_quantize_chunk of that version, with equal importances where the type
 * needs some.
 */
#ifndef PLUMB_QUANT_TYPES_H
#define PLUMB_QUANT_TYPES_H

#include "quant/grids.h"
#include "quant/quant.h"

/* The values that the 16 codes of iq4_nl and iq4_xs stand for (kvalues_iq4nl of ggml-common.h). */
extern const int8_t quant_iq4_values[16];
/* The values that the 16 codes of mxfp4 and nvfp4 stand for: twice those of the 4-bit floats that they are, because the
 * scales above are half as large (kvalues_fp4 of ggml-common.h). */
extern const int8_t quant_fp4_values[16];
extern const int8_t quant_q1_values[2];
/* What the codes of entries of grids stand for.  IQ1: 8 times the values -1, 0 and 1, plus 1. */
static const int8_t quant_iq2_values[8] = { 8, 25, 43 }, quant_iq3_xxs_values[8] = { 4, 12, 20, 28, 36, 44, 52, 62 };
static const int8_t quant_iq3_s_values[8] = { 1, 3, 5, 7, 9, 11, 13, 15 }, quant_iq1_values[8] = { -7, 1, 9 };

/* ---- notation ---------------------------------------------------------------------------------------------------- */

/* Byte j of each `stride` bytes has numbers j, j + stride, j + 2 stride ..., the first in its lowest bits. */
#define STRIPES(COUNT, WIDTH, BYTE, STRIDE) \
    { (COUNT), 8 * (BYTE), (WIDTH), (STRIDE), 8 / (WIDTH), 8, (WIDTH), 8 * (STRIDE) }
/* From a bit on, four numbers that are `step` bits apart, and the next four `four` bits after the first. */
#define FOURS(COUNT, WIDTH, BIT, STEP, FOUR) { (COUNT), (BIT), (WIDTH), 4, 255, (STEP), (FOUR), 0 }
/* Numbers one after another from a bit on. */
#define SEQUENCE(COUNT, WIDTH, BIT) FOURS(COUNT, WIDTH, BIT, WIDTH, 4 * (WIDTH))

#define FLOAT(KIND, BYTES) .block_size = 1, .block_bytes = (BYTES), .d_kind = QUANT_SCALE_##KIND
/* The f16 d is at this byte. */
#define D_AT(BYTE) .d_kind = QUANT_SCALE_F16, .d = (BYTE)
/* d is the scale of all weights. */
#define ONE_SCALE .scale_plus = 1, .factor = 1
#define NUMBERS .read_codes = quant_read_numbers

/* 6-bit scales and minima of q4_K and q5_K, from byte 4 on.  The low bits of the first four scales, of the first four
 * minima and of the last four scales and minima follow each other.  The high bits of the last ones are in the high bits
 * of the first ones. */
#define K_SCALES .group = 32, D_AT(0), .m = 2, .min_kind = SUPERBLOCK_MIN, .scale_times = 1, .factor = 1, \
    .scale = { FOURS(8, 4, 32, 8, 64), FOURS(8, 2, 36, 8, 2) }, .min = { FOURS(8, 4, 64, 8, 36), FOURS(8, 2, 68, 8, 2) }

#define GRID .block_size = 256, .scale_times = 2, .scale_plus = 1, .read_codes = quant_read_vectors
#define KNOWN_BY_NAME(NAME) { .name = NAME }

/* ---- the types --------------------------------------------------------------------------------------------------- */

/* The missing numbers (4 5 31 32 33 36 37 38) belong to types that GGUF no longer allows. */
static const struct quant_traits quant_types[QUANT_TYPE_COUNT] = {
    [QUANT_F32] = { .name = "F32", FLOAT(F32, 4) },
    [QUANT_F16] = { .name = "F16", FLOAT(F16, 2), .error = 2.1e-4 },
    [QUANT_BF16] = { .name = "BF16", FLOAT(BF16, 2), .error = 1.66e-3 },

    /* Blocks of 32.  q4_0, q5_0: w[e] = d * (q[e] - bias); q4_1, q5_1: w[e] = d * q[e] + m; q8_0: w[e] = d * q[e] */
    [QUANT_Q4_0] = { .name = "Q4_0", .block_size = 32, .block_bytes = 18, .group = 32, D_AT(0), ONE_SCALE, NUMBERS,
        .code.low = STRIPES(32, 4, 2, 16), .bias = 8, .error = 0.086 },
    [QUANT_Q4_1] = { .name = "Q4_1", .block_size = 32, .block_bytes = 20, .group = 32, D_AT(0), ONE_SCALE, NUMBERS,
        .m = 2, .min_kind = GROUP_MIN, .min_is_added = true, .code.low = STRIPES(32, 4, 4, 16), .error = 0.078 },
    [QUANT_Q5_0] = { .name = "Q5_0", .block_size = 32, .block_bytes = 22, .group = 32, D_AT(0), ONE_SCALE, NUMBERS,
        .code = { STRIPES(32, 4, 6, 16), SEQUENCE(32, 1, 16) }, .bias = 16, .packing = QUANT_FIVE_BITS,
        .error = 0.0425 },
    [QUANT_Q5_1] = { .name = "Q5_1", .block_size = 32, .block_bytes = 24, .group = 32, D_AT(0), ONE_SCALE, NUMBERS,
        .m = 2, .min_kind = GROUP_MIN, .min_is_added = true,
        .code = { STRIPES(32, 4, 8, 16), SEQUENCE(32, 1, 32) }, .packing = QUANT_FIVE_BITS, .error = 0.038 },
    [QUANT_Q8_0] = { .name = "Q8_0", .block_size = 32, .block_bytes = 34, .group = 32, D_AT(0), ONE_SCALE, NUMBERS,
        .code.low = STRIPES(32, 8, 2, 32), .signed_codes = true, .packing = QUANT_EVEN_ODD, .error = 5.4e-3 },

    /* Superblocks of 256: groups of 16 or 32 whose scales are themselves quantized.
     * q2_K, q4_K, q5_K: w[e] = (d * sc[e / group]) * q[e] - dmin * mn[e / group]
     * q3_K: w[e] = (d * (sc[e / 16] - 32)) * (q[e] - 4); q6_K: w[e] = (d * sc[e / 16]) * (q[e] - 32) */
    [QUANT_Q2_K] = { .name = "Q2_K", .block_size = 256, .block_bytes = 84, .group = 16, D_AT(80), NUMBERS,
        .m = 82, .min_kind = SUPERBLOCK_MIN, .scale_times = 1, .factor = 1,
        .scale.low = STRIPES(16, 4, 0, 16), .min.low = FOURS(16, 4, 4, 8, 32), .code.low = STRIPES(256, 2, 16, 32),
        .error = 0.297 },
    [QUANT_Q3_K] = { .name = "Q3_K", .block_size = 256, .block_bytes = 110, .group = 16, D_AT(108), NUMBERS,
        .scale_times = 1, .scale_plus = -32, .factor = 1,
        .scale = { STRIPES(16, 4, 96, 8), STRIPES(16, 2, 104, 4) },
        .code = { STRIPES(256, 2, 32, 32), STRIPES(256, 1, 0, 32) }, .bias = 4, .error = 0.151 },
    [QUANT_Q4_K] = { .name = "Q4_K", .block_size = 256, .block_bytes = 144, K_SCALES, NUMBERS,
        .code.low = STRIPES(256, 4, 16, 32), .error = 0.0713 },
    [QUANT_Q5_K] = { .name = "Q5_K", .block_size = 256, .block_bytes = 176, K_SCALES, NUMBERS,
        .code = { STRIPES(256, 4, 48, 32), STRIPES(256, 1, 16, 32) }, .packing = QUANT_FIVE_BITS_K, .error = 0.0361 },
    [QUANT_Q6_K] = { .name = "Q6_K", .block_size = 256, .block_bytes = 210, .group = 16, D_AT(208), NUMBERS,
        .scale_times = 1, .factor = 1, .scale.low = SEQUENCE(16, 8, 8 * 192), .signed_scales = true,
        .code = { STRIPES(256, 4, 0, 64), STRIPES(256, 2, 128, 32) }, .bias = 32, .packing = QUANT_SIX_BITS,
        .error = 0.0178 },
    /* ggml's format for activations: w[e] = d * q[e].  Its last 32 bytes, the sums of every 16 codes, are redundant. */
    [QUANT_Q8_K] = { .name = "Q8_K", .block_size = 256, .block_bytes = 292, .d_kind = QUANT_SCALE_F32, ONE_SCALE,
        NUMBERS, .code.low = STRIPES(256, 8, 4, 128), .signed_codes = true, .error = 7e-3 },

    /* Codes that stand for the values of a table, v.  iq4_nl: w[e] = d * v[q[e]]; mxfp4: w[e] = 2^(sc - 128) * v[q[e]];
     * iq4_xs: w[e] = (d * (sc[e / 32] - 32)) * v[q[e]]; nvfp4: w[e] = float8(sc[e / 16]) * v[q[e]] */
    [QUANT_IQ4_NL] = { .name = "IQ4_NL", .block_size = 32, .block_bytes = 18, .group = 32, D_AT(0), ONE_SCALE, NUMBERS,
        .code.low = STRIPES(32, 4, 2, 16), .values = quant_iq4_values, .error = 0.0762 },
    [QUANT_IQ4_XS] = { .name = "IQ4_XS", .block_size = 256, .block_bytes = 136, .group = 32, D_AT(0), NUMBERS,
        .scale_times = 1, .scale_plus = -32, .factor = 1, .scale = { SEQUENCE(8, 4, 32), SEQUENCE(8, 2, 16) },
        .code.low = STRIPES(256, 4, 8, 16), .values = quant_iq4_values, .error = 0.0768 },
    [QUANT_MXFP4] = { .name = "MXFP4", .block_size = 32, .block_bytes = 17, .group = 32, NUMBERS,
        .d_kind = QUANT_SCALE_EXPONENTS, .factor = 1, .scale.low = STRIPES(1, 8, 0, 1),
        .code.low = STRIPES(32, 4, 1, 16), .values = quant_fp4_values, .error = 0.116 },
    [QUANT_NVFP4] = { .name = "NVFP4", .block_size = 64, .block_bytes = 36, .group = 16, NUMBERS,
        .d_kind = QUANT_SCALE_FLOAT8, .factor = 1, .scale.low = STRIPES(4, 8, 0, 4),
        .code.low = STRIPES(64, 4, 4, 8), .values = quant_fp4_values, .error = 0.0956 },

    /* Two, three and four values.  q1_0: w[e] = q[e] ? d : -d; the others: w[e] = d * (q[e] - 1).  A byte of tq1_0 has
     * up to five digits of base 3 (quant_read_digits); writers of tq2_0 keep to q 0..2. */
    [QUANT_Q1_0] = { .name = "Q1_0", .block_size = 128, .block_bytes = 18, .group = 32, D_AT(0), ONE_SCALE, NUMBERS,
        .code.low = SEQUENCE(128, 1, 16), .values = quant_q1_values, .packing = QUANT_ONE_BIT, .error = 0.602 },
    [QUANT_Q2_0] = { .name = "Q2_0", .block_size = 64, .block_bytes = 18, .group = 32, D_AT(0), ONE_SCALE, NUMBERS,
        .code.low = SEQUENCE(64, 2, 16), .bias = 1, .packing = QUANT_TWO_BITS, .error = 0.723 },
    [QUANT_TQ1_0] = { .name = "TQ1_0", .block_size = 256, .block_bytes = 54, .group = 32, D_AT(52), ONE_SCALE,
        .read_codes = quant_read_digits, .bias = 1, .error = 0.822 },
    [QUANT_TQ2_0] = { .name = "TQ2_0", .block_size = 256, .block_bytes = 66, .group = 32, D_AT(64), ONE_SCALE, NUMBERS,
        .code.low = STRIPES(256, 2, 0, 32), .bias = 1, .packing = QUANT_TWO_BITS_TQ, .error = 0.822 },

    /* Vectors of a grid, x = q[e / 8], and a sign for each weight (IQ1: a shift for each vector).
     * w[e] = (d * factor * (2 sc[e / group] + 1)) * code */
    [QUANT_IQ2_XXS] = { .name = "IQ2_XXS", GRID, .block_bytes = 66, .group = 32, D_AT(0), .factor = 0.125f,
        .grid = quant_iq2_xxs_grid, .values = quant_iq2_values, .code.low = FOURS(32, 8, 16, 8, 64),
        .signs = FOURS(32, 7, 48, 7, 64), .signs_kind = QUANT_SIGNS_EVEN, .scale.low = FOURS(8, 4, 76, 64, 256),
        .error = 0.346 },
    [QUANT_IQ2_XS] = { .name = "IQ2_XS", GRID, .block_bytes = 74, .group = 16, D_AT(0), .factor = 0.125f,
        .grid = quant_iq2_xs_grid, .values = quant_iq2_values, .code.low = FOURS(32, 9, 16, 16, 64),
        .signs = FOURS(32, 7, 25, 16, 64), .signs_kind = QUANT_SIGNS_EVEN, .scale.low = SEQUENCE(16, 4, 528),
        .error = 0.301 },
    [QUANT_IQ2_S] = { .name = "IQ2_S", GRID, .block_bytes = 82, .group = 16, D_AT(0), .factor = 0.125f,
        .grid = quant_iq2_s_grid, .values = quant_iq2_values, .code = { SEQUENCE(32, 8, 16), SEQUENCE(32, 2, 528) },
        .signs = SEQUENCE(32, 8, 272), .scale.low = SEQUENCE(16, 4, 592), .error = 0.267 },
    [QUANT_IQ3_XXS] = { .name = "IQ3_XXS", GRID, .block_bytes = 98, .group = 32, D_AT(0), .factor = 0.25f,
        .grid = quant_iq3_xxs_grid, .is_grid_of_4 = true, .values = quant_iq3_xxs_values,
        .code.low = SEQUENCE(32, 16, 16), .signs = FOURS(32, 7, 528, 7, 32), .signs_kind = QUANT_SIGNS_EVEN,
        .scale.low = FOURS(8, 4, 556, 32, 128), .error = 0.214 },
    [QUANT_IQ3_S] = { .name = "IQ3_S", GRID, .block_bytes = 110, .group = 32, D_AT(0), .factor = 1,
        .grid = quant_iq3_s_grid, .is_grid_of_4 = true, .values = quant_iq3_s_values,
        .code = { SEQUENCE(32, 16, 16), SEQUENCE(32, 2, 528) }, .signs = SEQUENCE(32, 8, 592),
        .scale.low = SEQUENCE(8, 4, 848), .error = 0.167 },
    [QUANT_IQ1_S] = { .name = "IQ1_S", GRID, .block_bytes = 50, .group = 32, D_AT(0), .factor = 0.125f,
        .grid = quant_iq1_grid, .values = quant_iq1_values,
        .code = { SEQUENCE(32, 8, 16), FOURS(32, 3, 272, 3, 16) }, .signs = FOURS(32, 1, 287, 0, 16),
        .signs_kind = QUANT_SIGNS_SHIFT, .scale.low = FOURS(8, 3, 284, 16, 64), .error = 0.489 },
    [QUANT_IQ1_M] = { .name = "IQ1_M", GRID, .block_bytes = 56, .group = 16, .d_kind = QUANT_SCALE_NIBBLES, .d = 48,
        .factor = 0.125f, .grid = quant_iq1_grid, .values = quant_iq1_values,
        .code = { SEQUENCE(32, 8, 0), FOURS(32, 3, 256, 4, 16) }, .signs = FOURS(32, 1, 259, 4, 16),
        .signs_kind = QUANT_SIGNS_SHIFT, .scale.low = FOURS(16, 3, 384, 3, 16), .error = 0.589 },

    [9] = KNOWN_BY_NAME("Q8_1"),
    [24] = KNOWN_BY_NAME("I8"),
    [25] = KNOWN_BY_NAME("I16"),
    [26] = KNOWN_BY_NAME("I32"),
    [27] = KNOWN_BY_NAME("I64"),
    [28] = KNOWN_BY_NAME("F64"),
};

#endif

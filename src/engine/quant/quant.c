/* The traits table: every type number that has a name in ggml.h, with a dequantizer if this engine reads the type. */
#include "quant/quant.h"

#include "quant/blocks.h"
#include "quant/dequant.h"

#define BLOCK(name, size, layout) {#name, size, sizeof(struct block_##layout), quant_dequantize_##layout}
#define KNOWN_BY_NAME(name) {#name, 0, 0, NULL}

/* The missing numbers (4 5 31 32 33 36 37 38) belong to types that GGUF no longer allows. */
static const struct quant_traits table[QUANT_TYPE_COUNT] = {
    [QUANT_F32] = {"F32", 1, 4, quant_dequantize_f32},
    [QUANT_F16] = {"F16", 1, 2, quant_dequantize_f16},
    [QUANT_BF16] = {"BF16", 1, 2, quant_dequantize_bf16},
    [QUANT_Q4_0] = BLOCK(Q4_0, 32, q4_0),
    [QUANT_Q4_1] = BLOCK(Q4_1, 32, q4_1),
    [QUANT_Q5_0] = BLOCK(Q5_0, 32, q5_0),
    [QUANT_Q5_1] = BLOCK(Q5_1, 32, q5_1),
    [QUANT_Q8_0] = BLOCK(Q8_0, 32, q8_0),
    [QUANT_Q2_K] = BLOCK(Q2_K, 256, q2_K),
    [QUANT_Q3_K] = BLOCK(Q3_K, 256, q3_K),
    [QUANT_Q4_K] = BLOCK(Q4_K, 256, q4_K),
    [QUANT_Q5_K] = BLOCK(Q5_K, 256, q5_K),
    [QUANT_Q6_K] = BLOCK(Q6_K, 256, q6_K),
    [QUANT_Q8_K] = BLOCK(Q8_K, 256, q8_K),
    [QUANT_IQ4_NL] = BLOCK(IQ4_NL, 32, iq4_nl),
    [QUANT_IQ4_XS] = BLOCK(IQ4_XS, 256, iq4_xs),
    [QUANT_IQ2_XXS] = BLOCK(IQ2_XXS, 256, iq2_xxs),
    [QUANT_IQ2_XS] = BLOCK(IQ2_XS, 256, iq2_xs),
    [QUANT_IQ3_XXS] = BLOCK(IQ3_XXS, 256, iq3_xxs),
    [QUANT_IQ1_S] = BLOCK(IQ1_S, 256, iq1_s),
    [QUANT_IQ3_S] = BLOCK(IQ3_S, 256, iq3_s),
    [QUANT_IQ2_S] = BLOCK(IQ2_S, 256, iq2_s),
    [QUANT_IQ1_M] = BLOCK(IQ1_M, 256, iq1_m),
    [QUANT_TQ1_0] = BLOCK(TQ1_0, 256, tq1_0),
    [QUANT_TQ2_0] = BLOCK(TQ2_0, 256, tq2_0),
    [QUANT_MXFP4] = BLOCK(MXFP4, 32, mxfp4),
    [QUANT_NVFP4] = BLOCK(NVFP4, 64, nvfp4),
    [QUANT_Q1_0] = BLOCK(Q1_0, 128, q1_0),
    [QUANT_Q2_0] = BLOCK(Q2_0, 64, q2_0),
    [9] = KNOWN_BY_NAME(Q8_1),
    [24] = KNOWN_BY_NAME(I8),
    [25] = KNOWN_BY_NAME(I16),
    [26] = KNOWN_BY_NAME(I32),
    [27] = KNOWN_BY_NAME(I64),
    [28] = KNOWN_BY_NAME(F64),
};

const struct quant_traits *quant_traits(uint32_t type) {
    return type < QUANT_TYPE_COUNT && table[type].name ? &table[type] : NULL;
}

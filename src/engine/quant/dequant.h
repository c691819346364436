/* The reference dequantizers.  Each converts n weights (n % block_size == 0) of a row at src, which may have any
 * alignment, to (n) f32 at dst.
 *
 * The results equal those of ggml's dequantize_row_* and of gguf-py bit for bit, because products and sums are computed
 * in single precision and in their order.  Scales that are infinite or NaN follow the rules of IEEE arithmetic.
 */
#ifndef PLUMB_QUANT_DEQUANT_H
#define PLUMB_QUANT_DEQUANT_H

#include <stddef.h>

void quant_dequantize_f32(const void *src, float *dst, size_t n);
void quant_dequantize_f16(const void *src, float *dst, size_t n);
void quant_dequantize_bf16(const void *src, float *dst, size_t n);
void quant_dequantize_q4_0(const void *src, float *dst, size_t n);
void quant_dequantize_q4_1(const void *src, float *dst, size_t n);
void quant_dequantize_q5_0(const void *src, float *dst, size_t n);
void quant_dequantize_q5_1(const void *src, float *dst, size_t n);
void quant_dequantize_q8_0(const void *src, float *dst, size_t n);
void quant_dequantize_q2_K(const void *src, float *dst, size_t n);
void quant_dequantize_q3_K(const void *src, float *dst, size_t n);
void quant_dequantize_q4_K(const void *src, float *dst, size_t n);
void quant_dequantize_q5_K(const void *src, float *dst, size_t n);
void quant_dequantize_q6_K(const void *src, float *dst, size_t n);
void quant_dequantize_q8_K(const void *src, float *dst, size_t n);
void quant_dequantize_iq4_nl(const void *src, float *dst, size_t n);
void quant_dequantize_iq4_xs(const void *src, float *dst, size_t n);
void quant_dequantize_iq2_xxs(const void *src, float *dst, size_t n);
void quant_dequantize_iq2_xs(const void *src, float *dst, size_t n);
void quant_dequantize_iq3_xxs(const void *src, float *dst, size_t n);
void quant_dequantize_iq1_s(const void *src, float *dst, size_t n);
void quant_dequantize_iq3_s(const void *src, float *dst, size_t n);
void quant_dequantize_iq2_s(const void *src, float *dst, size_t n);
void quant_dequantize_iq1_m(const void *src, float *dst, size_t n);
void quant_dequantize_tq1_0(const void *src, float *dst, size_t n);
void quant_dequantize_tq2_0(const void *src, float *dst, size_t n);
void quant_dequantize_mxfp4(const void *src, float *dst, size_t n);
void quant_dequantize_nvfp4(const void *src, float *dst, size_t n);
void quant_dequantize_q1_0(const void *src, float *dst, size_t n);
void quant_dequantize_q2_0(const void *src, float *dst, size_t n);

#endif

/* Quantizes the f32 of standard input with ggml's own quantizer of a type, and writes the blocks to standard output.
 * How it is compiled: as quant/ggml_dequantize.c.
 *
 *   ./ggml_quantize TYPE_NUMBER <floats >blocks
 */
#include <stdio.h>
#include <stdlib.h>

#include "ggml.h"

int main(int argc, char **argv) {
    enum ggml_type type = argc == 2 ? (enum ggml_type)atoi(argv[1]) : GGML_TYPE_COUNT;
    if (type != GGML_TYPE_Q8_0 && type != GGML_TYPE_Q4_0) return 2;
    float x[32];
    char block[34];
    while (fread(x, sizeof x, 1, stdin) == 1) {
        ggml_quantize_chunk(type, x, block, 0, 1, 32, NULL);   /* quantize_row_q8_0_ref or quantize_row_q4_0_ref */
        if (fwrite(block, ggml_type_size(type), 1, stdout) != 1) return 1;
    }
    return ferror(stdin) ? 1 : 0;
}

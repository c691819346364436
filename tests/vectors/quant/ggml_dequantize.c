/* Dequantizes the blocks of standard input with ggml's own dequantizer of a type, and writes f32 to standard output.
 *
 *   cc -O1 -I llama.cpp/ggml/include ggml_dequantize.c llama.cpp/build/ggml/src/libggml-base.a -lm -lpthread -lstdc++ \
 *      -fopenmp -o ggml_dequantize
 *   ./ggml_dequantize TYPE_NUMBER <blocks >floats
 */
#include <stdio.h>
#include <stdlib.h>

#include "ggml.h"

int main(int argc, char **argv) {
    enum ggml_type type = argc == 2 ? (enum ggml_type)atoi(argv[1]) : GGML_TYPE_COUNT;
    if (type >= GGML_TYPE_COUNT || !ggml_get_type_traits(type)->to_float) return 2;
    /* reading half-precision floats needs a table, which this makes */
    ggml_free(ggml_init((struct ggml_init_params) { 1 << 20, NULL, true }));
    size_t block_bytes = ggml_type_size(type);
    int64_t block_size = ggml_blck_size(type);
    void *block = malloc(block_bytes);
    float *weights = malloc((size_t)block_size * sizeof *weights);
    while (fread(block, block_bytes, 1, stdin) == 1) {
        ggml_get_type_traits(type)->to_float(block, weights, block_size);
        if (fwrite(weights, sizeof *weights, (size_t)block_size, stdout) != (size_t)block_size) return 1;
    }
    return ferror(stdin) ? 1 : 0;
}

#!/bin/sh
# Makes the models of this directory again.  LLAMA_DIR as in ../llama/make.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
quantize=$LLAMA_DIR/llama.cpp/build/bin/llama-quantize
"$quantize" --pure "$here/../synth/f32.gguf" "$here/f32-q4_0.gguf" Q4_0
"$quantize" --pure "$here/../synth/f32.gguf" "$here/f32-q8_0.gguf" Q8_0
"$quantize" --allow-requantize "$here/../synth/q6_k.gguf" "$here/q6_k-q4_k_m.gguf" Q4_K_M

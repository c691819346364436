#!/bin/sh
# Makes the llama.cpp vectors of this directory again.  Needs node, npm, git, cmake, a C compiler and python3.
#   MODELS=...     where SmolLM2-135M-Instruct.Q4_1.gguf and gemma-3-270m.Q4_K_M.gguf are (default: models/)
#   LLAMA_DIR=...  where llama.cpp is, or will be, put (default: a new temporary directory, 4 GB)
#   PYTHON=...     a python with numpy, gguf and jinja2 (default: a new venv in LLAMA_DIR)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
MODELS=${MODELS:-$here/../../../models}
LLAMA_DIR=${LLAMA_DIR:-$(mktemp -d)}
smollm2=$MODELS/SmolLM2-135M-Instruct.Q4_1.gguf gemma3=$MODELS/gemma-3-270m.Q4_K_M.gguf
for model in "$smollm2" "$gemma3"; do
    [ -r "$model" ] || { echo "make.sh: no model at $model" >&2; exit 1; }
done

echo "llama.cpp in $LLAMA_DIR" >&2
[ -d "$LLAMA_DIR/node_modules/@node-llama-cpp/linux-x64" ] ||
    npm install --prefix "$LLAMA_DIR" --ignore-scripts node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1
source=$LLAMA_DIR/llama.cpp
[ -d "$source" ] ||
    git clone -q "$LLAMA_DIR/node_modules/node-llama-cpp/llama/gitRelease.bundle" "$source"
[ -x "$source/build/bin/llama-quantize" ] || {
    cmake -S "$source" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF
    cmake --build "$source/build" --target llama-quantize
}
[ -n "${PYTHON:-}" ] || {
    PYTHON=$LLAMA_DIR/venv/bin/python
    [ -x "$PYTHON" ] || { python3 -m venv "$LLAMA_DIR/venv" && "$PYTHON" -m pip install -q numpy gguf==0.19.0 jinja2; }
}

bins=$LLAMA_DIR/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64
work=$LLAMA_DIR/vectors
mkdir -p "$work"
cc -std=gnu11 -O2 -Wall -Wextra -I"$source/include" -I"$source/ggml/include" "$here/logits.c" -o "$work/logits" \
    "$bins/libllama.v0.5.0.so" "$bins/libggml.v0.5.0.so" "$bins/libggml-base.so" -Wl,-rpath,"$bins" -lm

# llama.cpp takes GELU from a table of 16-bit floats (GGML_GELU_FP16).  This backend of the same source computes it.
exact=$LLAMA_DIR/exact
[ -e "$exact/build/bin/libggml-cpu.so" ] || {
    git -C "$source" archive --prefix=exact/ HEAD | tar x -C "$LLAMA_DIR"
    sed -i '/^#define GGML_GELU_.*FP16$/d' "$exact/ggml/src/ggml-cpu/vec.h"
    cmake -S "$exact" -B "$exact/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON \
        -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DLLAMA_CURL=OFF
    cmake --build "$exact/build" --target ggml-cpu
}

# Both backends are for AVX2 on any machine, so that the same sums come out.
logits() { "$work/logits" "$@"; }
# dequantize MODEL F32: the same numbers as F32
dequantize() { "$source/build/bin/llama-quantize" --allow-requantize "$1" "$2" F32 >"$work/quantize.log" 2>&1; }
# vectors TYPE MODEL BACKEND STRIDE NAME=TEXT...: every STRIDE-th logit of mixed.txt, and 64 choices after each TEXT
vectors() {
    type=$1 file=$2 backend=$3 stride=$4
    shift 4
    logits -f "$here/mixed.txt" -n 64 -s "$stride" -t 10 "$file" "$backend" "mixed.$type.bin"
    for name; do
        case $name in chat=*) special=-p ;; *) special= ;; esac
        logits $special -f "${name#*=}" -g 64 -t 2 "$file" "$backend" "${name%=*}.$type.bin"
    done
}
# divergence N MODEL F32 BACKEND: how far the run of the file itself is from that of the F32 file, N positions
divergence() {
    logits -f "$here/text.txt" -n "$1" -s 1 "$3" "$4" "$work/full.f32.bin"
    logits -f "$here/text.txt" -n "$1" -s 1 "$2" "$4" "$work/full.own.bin"
    "$PYTHON" "$here/vectors.py" divergence "$work/full.f32.bin" "$work/full.own.bin"
}

cd "$here"
backend=$bins/libggml-cpu-haswell.so f32=$work/SmolLM2-135M-Instruct.F32.gguf
dequantize "$smollm2" "$f32"
"$PYTHON" vectors.py render "$smollm2" >chat.txt
for type in f32 q4_1; do
    case $type in f32) file=$f32 ;; *) file=$smollm2 ;; esac
    vectors $type "$file" "$backend" 24 capital=capital.txt chat=chat.txt long=text.txt
    logits -f text.txt -n 512 -t 2 "$file" "$backend" text.$type.bin
done
"$PYTHON" vectors.py prompts smollm2 "$smollm2" "$f32" >prompts.json
"$PYTHON" numpy_pass.py "$f32" mixed.f32.bin
"$PYTHON" numpy_pass.py "$f32" text.f32.bin
"$PYTHON" numpy_pass.py "$smollm2" mixed.q4_1.bin
divergence 512 "$smollm2" "$f32" "$backend"

cd gemma3
backend=$exact/build/bin/libggml-cpu.so f32=$work/gemma-3-270m.F32.gguf
dequantize "$gemma3" "$f32"
{ cat ../text.txt && printf '\nSummary:'; } >long.txt
vectors f32 "$f32" "$backend" 257 \
    colours=colours.txt code=code.txt japanese=japanese.txt dialog=dialog.txt long=long.txt
"$PYTHON" ../vectors.py prompts gemma3 "$gemma3" "$f32" >prompts.json
"$PYTHON" ../numpy_pass.py "$f32" mixed.f32.bin
divergence 128 "$gemma3" "$f32" "$backend"

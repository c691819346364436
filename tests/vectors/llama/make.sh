#!/bin/sh
# Makes the llama.cpp vectors of this directory again.  Needs node, npm, git, cmake, a C compiler and python3.
#   MODEL=...      SmolLM2-135M-Instruct.Q4_1.gguf (default: models/ of this checkout)
#   LLAMA_DIR=...  where llama.cpp is, or will be, put (default: a new temporary directory, 2 GB)
#   PYTHON=...     a python with numpy, gguf and jinja2 (default: a new venv in LLAMA_DIR)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
MODEL=${MODEL:-$here/../../../models/SmolLM2-135M-Instruct.Q4_1.gguf}
LLAMA_DIR=${LLAMA_DIR:-$(mktemp -d)}
[ -r "$MODEL" ] || { echo "make.sh: no model at $MODEL" >&2; exit 1; }

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
f32=$work/SmolLM2-135M-Instruct.F32.gguf
"$source/build/bin/llama-quantize" --allow-requantize "$MODEL" "$f32" F32 >"$work/quantize.log" 2>&1

# The AVX2 backend on any machine, so that the same sums come out.
logits() { "$work/logits" "$@"; }
backend=$bins/libggml-cpu-haswell.so
cd "$here"
"$PYTHON" vectors.py render "$MODEL" >chat.txt
for type in f32 q4_1; do
    case $type in f32) file=$f32 ;; *) file=$MODEL ;; esac
    logits -f mixed.txt -n 64 -s 24 -t 10 "$file" "$backend" mixed.$type.bin
    logits -f text.txt -n 512 -t 2 "$file" "$backend" text.$type.bin
    logits -f capital.txt -g 64 -t 2 "$file" "$backend" capital.$type.bin
    logits -p -f chat.txt -g 64 -t 2 "$file" "$backend" chat.$type.bin
    logits -f text.txt -g 64 -t 2 "$file" "$backend" long.$type.bin
    logits -f text.txt -n 512 -s 1 "$file" "$backend" "$work/full.$type.bin"
done
"$PYTHON" vectors.py prompts "$MODEL" "$f32" >prompts.json
"$PYTHON" numpy_pass.py "$f32" mixed.f32.bin
"$PYTHON" numpy_pass.py "$f32" text.f32.bin
"$PYTHON" numpy_pass.py "$MODEL" mixed.q4_1.bin
"$PYTHON" vectors.py divergence "$work/full.f32.bin" "$work/full.q4_1.bin"

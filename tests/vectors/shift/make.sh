#!/bin/sh
# Makes llama.cpp's logits of 400 tokens in a context of 128, of which the first 4 stay when it is full: K and V in F32.
#   make.sh FOLDER    where ../../conformance/build.sh has built llama.cpp; PYTHONPATH must have numpy and gguf 0.19
set -eu
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")"
work=$folder/shift
mkdir -p "$work"
for model in qwen3 llama phi3 deepseek2 mistral3 graniteswitch; do
    python3 ../archs/f32.py "../archs/$model.gguf" "$work/model.gguf" --untie
    awk 'BEGIN { for (i = 0; i < 400; i++) printf "%d ", (i * 37 + int(i / 11)) % 60 }' >"$work/ids.txt"
    "$folder/logits" -i "$work/ids.txt" -s 4 -k 4:128 "$work/model.gguf" - "$model.bin"
done

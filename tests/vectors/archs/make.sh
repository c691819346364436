#!/bin/sh
# Makes the models of this directory, one for each architecture that plumb runs, and their taps again.  First run
# ../llama/make.sh and ../synth/make.sh with the same LLAMA_DIR and PYTHON (see there): this uses the llama.cpp, logits
# and CPU backend that they leave.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
synth=$here/../../../models/synth_archs.py
PYTHON=${PYTHON:-$LLAMA_DIR/venv/bin/python}
cpu=$LLAMA_DIR/exact/build/bin/libggml-cpu.so work=$LLAMA_DIR/vectors
echo "7 1 33 33 60 2 19 48" >"$work/archs.txt"
cd "$here"
rm -f ./*.gguf ./*.taps
"$PYTHON" "$synth" --list | while read -r name; do
    "$PYTHON" "$synth" "$name" "$name.gguf"
    "$PYTHON" "$synth" "$name" "$work/arch.gguf" --f32
    "$work/logits" -i "$work/archs.txt" -s 1 -d "$name.taps" "$work/arch.gguf" "$cpu" "$work/arch.bin"
done

#!/bin/sh
# Makes the vectors of this directory again, and those of tests/fuzz/corpus/trace that npz.py makes.  First run
# ../llama/make.sh with the same LLAMA_DIR and PYTHON (see there): this uses the llama.cpp, logits and python it leaves.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
PYTHON=${PYTHON:-$LLAMA_DIR/venv/bin/python}
backend=$LLAMA_DIR/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-cpu-haswell.so
work=$LLAMA_DIR/vectors
model=$here/../synth/f32.gguf

cmake --build "$LLAMA_DIR/llama.cpp/build" --target llama-eval-callback >"$work/build.log" 2>&1
# It ends without waiting for the thread that prints: the last lines may be missing or garbled.
while
    "$LLAMA_DIR/llama.cpp/build/bin/llama-eval-callback" -m "$model" -p 'plumb it' -fa off -ctk f32 -ctv f32 -c 64 \
        -t 1 >"$here/callback.txt" 2>&1
    ! grep -A 6 result_output "$here/callback.txt" | grep -q sum
do :; done
# The same run once more, all values of it.
sed -n 's/^[0-9.]* I   \([0-9]*\)$/\1/p' "$here/callback.txt" >"$work/ids.txt"
"$work/logits" -i "$work/ids.txt" -s 0 -d "$work/callback.dump" "$model" "$backend" "$work/callback.bin"
cd "$here"
"$PYTHON" npz.py "$work/callback.dump" "$work/ids.txt" ../../fuzz/corpus/trace

#!/bin/sh
# Makes the files of this directory again.  First run ../llama/make.sh with the same LLAMA_DIR and PYTHON (see there):
# this uses the llama.cpp, logits, F32 files and python it leaves, and puts the synthetic models into models/ (2 GB).
#   MODELS=...  where SmolLM2-135M-Instruct.Q4_1.gguf and gemma-3-270m.Q4_K_M.gguf are (default: models/)
#   TORCH=...   a python with torch, transformers and gguf (../../reference/transformers_dump.py); without it the .npz
#               are left as they are
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
models=$root/models
MODELS=${MODELS:-$models}
PYTHON=${PYTHON:-$LLAMA_DIR/venv/bin/python}
haswell=$LLAMA_DIR/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-cpu-haswell.so
work=$LLAMA_DIR/vectors
cd "$here"

# truth NAME MODEL F32 OPTION...: NAME.json by llama.cpp on the F32 file; how far it is from that on MODEL itself
truth() {
    name=$1 model=$2 f32=$3
    shift 3
    # llama.cpp's own backend takes GELU from a table of 16-bit floats.  In Gemma's kqv_out a few components are huge,
    # so 12 places do not represent a row.
    case $name in
        gemma3) backend=$LLAMA_DIR/exact/build/bin/libggml-cpu.so n_place=24 ;;
        *) backend=$haswell n_place=12 ;;
    esac
    "$work/logits" "$@" -d "$work/f32.dump" "$f32" "$backend" "$work/f32.bin"
    "$work/logits" "$@" -d "$work/own.dump" "$model" "$backend" "$work/own.bin"
    "$PYTHON" layers.py truth "$work/f32.dump" "$work/f32.bin" $n_place >"$name.json"
    "$PYTHON" layers.py own "$name" "$work/f32.dump" "$work/own.dump"
}

{
    printf 'The capital of France is Paris' >"$work/prompt.txt"
    for name in smollm2=SmolLM2-135M-Instruct.Q4_1 gemma3=gemma-3-270m.Q4_K_M; do
        model=${name#*=}
        truth "${name%=*}" "$MODELS/$model.gguf" "$work/${model%.*}.F32.gguf" -f "$work/prompt.txt"
    done
    echo 1 15043 29892 3186 777 >"$work/layers.txt"
    for name in tinyllama-2l.Q4_0 tinyllama-2l.Q4_K tinyllama-2l.Q5_K tinyllama-2l.Q6_K tinyllama-2l.Q8_0 \
        tinyllama-2l.F16 tinyllama-2l.F32 granite-2l.Q4_K; do
        model=$models/$name.gguf f32=$work/2l.gguf
        "$PYTHON" "$models/synth.py" "$model" --shape "${name%%-*}" --layers 2 --type "${name#*.}"
        if [ "${name#*.}" = F32 ]; then f32=$model
        else
            "$LLAMA_DIR/llama.cpp/build/bin/llama-quantize" --allow-requantize "$model" "$f32" F32 \
                >"$work/quantize.log" 2>&1
        fi
        truth "$name" "$model" "$f32" -i "$work/layers.txt"
    done
} >own.txt
rm -f "$work/2l.gguf"
(cd "$models" && sha256sum tinyllama-2l.*.gguf granite-2l.*.gguf) >sha256

for name in f32 qwen2; do
    [ -z "${TORCH:-}" ] || "$TORCH" ../../reference/transformers_dump.py ../synth/$name.gguf transformers-$name.npz \
        72 101 13 255 0 97
done

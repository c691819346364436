#!/bin/sh
# Makes the models and vectors of this directory and synth.txt again.  First run ../llama/make.sh with the same
# LLAMA_DIR and PYTHON (see there): this uses the llama.cpp, the backend that computes GELU, logits and python it
# leaves.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
PYTHON=${PYTHON:-$LLAMA_DIR/venv/bin/python}
backend=$LLAMA_DIR/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-cpu-haswell.so
work=$LLAMA_DIR/vectors

# 24 tokens of every sort, no control token.
ids="72 101 13 255 0 97 97 32 259 199 3 128 64 250 17 77 140 201 88 5 222 33 111 60"
echo "$ids" >"$work/ids.txt"
cd "$here"
rm -f ./*.gguf ./*.bin ./*.taps

# Rows of K-quants, IQ1 to IQ3, IQ4_XS and TQ are multiples of 256: one narrow layer keeps those files small.
k='--layers 1 --embd 256 --head-dim 8 --ff 32'
# name, options, what is special about it
rows="
f32|--type F32 --ff 32|F32
f16|--type F16 --ff 32|F16
bf16|--type BF16 --ff 32|BF16
q4_0|--type Q4_0|Q4_0
q4_1|--type Q4_1|Q4_1
q5_0|--type Q5_0|Q5_0
q5_1|--type Q5_1|Q5_1
q8_0|--type Q8_0|Q8_0
iq4_nl|--type IQ4_NL|IQ4_NL
q2_k|--type Q2_K $k|Q2_K
q3_k|--type Q3_K $k|Q3_K
q4_k|--type Q4_K $k|Q4_K
q5_k|--type Q5_K $k|Q5_K
q6_k|--type Q6_K $k|Q6_K
iq4_xs|--type IQ4_XS $k|IQ4_XS
iq1_s|--type IQ1_S $k|IQ1_S
iq1_m|--type IQ1_M $k|IQ1_M
iq2_xxs|--type IQ2_XXS $k|IQ2_XXS
iq2_xs|--type IQ2_XS $k|IQ2_XS
iq2_s|--type IQ2_S $k|IQ2_S
iq3_xxs|--type IQ3_XXS $k|IQ3_XXS
iq3_s|--type IQ3_S $k|IQ3_S
tq1_0|--type TQ1_0 $k|TQ1_0
tq2_0|--type TQ2_0 $k|TQ2_0
mxfp4|--type MXFP4 --embd 64 --head-dim 16 --ff 64|MXFP4
nvfp4|--type NVFP4 --embd 64 --head-dim 16 --ff 64|NVFP4
untied|--no-tied --vocab 263|output.weight of its own, vocabulary of an odd size
heads-1to1|--kv-heads 4|as many key heads as query heads, head_count_kv left out
heads-4to1|--kv-heads 1|one key head
key-length|--head-dim 16|attention.key_length 16 where embd / heads is 8
rope-linear|--rope-scaling 4 --rope-base 500|rope.scaling linear, factor 4, and rope.freq_base
rope-freqs|--rope-freqs|rope_freqs.weight
qwen2|--arch qwen2|arch qwen2: NEOX pairing, q, k, v biases
llama-bias|--bias --eps 0.01|arch llama with q, k, v biases; layer_norm_rms_epsilon 0.01
rope-partial|--arch qwen2 --rope-dim 4|rope.dimension_count 4 of 8; numpy only, llama.cpp refuses it
spm|--tokenizer llama|SentencePiece vocabulary
granite|--arch granite|arch granite: embedding_scale, residual_scale, attention.scale, logit_scale
qwen3|--arch qwen3 --embd 64 --head-dim 24|arch qwen3: a norm for each head of Q and K, attention.key_length 24
gemma3|--arch gemma3 --layers 4 --window 5 --window-period 3 --rope-base 1e6 --softcap 20|arch gemma3: norms before \
and after, GELU, a window of 5 in layers 0, 1 and 3, two frequency bases, a cap of the logits
gemma3-full|--arch gemma3 --layers 2 --kv-heads 1 --rope-base 1e6 --rope-scaling 8|arch gemma3 without windows
"
echo "$rows" | while IFS='|' read -r name options about; do
    [ -n "$name" ] || continue
    # shellcheck disable=SC2086
    "$PYTHON" "$root/models/synth.py" "$name.gguf" --type Q8_0 $options
    echo "$name.gguf $name.bin $about"
    [ "$name" = rope-partial ] && {
        "$PYTHON" "$here/../llama/numpy_pass.py" "$name.gguf" -i "$work/ids.txt" -o "$name.bin"
        continue
    }
    "$LLAMA_DIR/llama.cpp/build/bin/llama-quantize" --allow-requantize "$name.gguf" "$work/synth.gguf" F32 \
        >"$work/quantize.log" 2>&1
    case $name in gemma3*) cpu=$LLAMA_DIR/exact/build/bin/libggml-cpu.so ;; *) cpu=$backend ;; esac
    case $name in f32 | qwen2 | granite | qwen3 | gemma3) dump="-d $name.taps" ;; *) dump= ;; esac
    # shellcheck disable=SC2086
    "$work/logits" -i "$work/ids.txt" -s 1 $dump "$work/synth.gguf" "$cpu" "$name.bin"
    "$work/logits" -i "$work/ids.txt" -s 1 "$name.gguf" "$cpu" "$work/native.bin"
    # The F32 file against numpy (weights by the gguf package from the quantized file), and llama.cpp's own 8-bit path.
    "$PYTHON" "$here/../llama/numpy_pass.py" "$name.gguf" "$name.bin" "$work/native.bin" >&2
done >synth.txt

# q8_0 once more as three files of 8, 8 and 4 tensors.
cmake --build "$LLAMA_DIR/llama.cpp/build" --target llama-gguf-split
"$LLAMA_DIR/llama.cpp/build/bin/llama-gguf-split" --split --split-max-tensors 8 q8_0.gguf split

#!/bin/sh
# Makes the vectors of this directory again with llama-perplexity of llama.cpp v0.5.0:
#   LLAMA_PERPLEXITY=llama.cpp/build/bin/llama-perplexity sh make.sh
# A saved run (--kl-divergence-base) of three models, and what it prints: perplexities, and f32 against q4_0's run.
set -eu
cd "$(dirname "$0")"
run() {
    model=$1; shift
    "$LLAMA_PERPLEXITY" -m "../synth/$model.gguf" -c 48 -b 48 -t 1 -fa off -ctk f32 -ctv f32 "$@" 2>&1
}
numbers() { grep -oE '(Final estimate|Mean|Maximum|99.0%|Median|RMS Δp|Same top p:).*' || true; }
{
    for model in f32 q4_0 untied spm; do
        echo "$model"
        if [ $model = spm ]; then run $model -f text.txt | numbers
        else run $model -f text.txt --chunks 5 --kl-divergence-base $model.base | numbers
        fi
    done
    echo "f32 against q4_0"
    run f32 --kl-divergence --kl-divergence-base q4_0.base | numbers
} >llama.txt

#!/bin/sh
# Makes what make.py makes, and two models with heads of 32 elements: heads.gguf, and windows.gguf with windows.
#
#   tests/vectors/kv/make.sh GGML_QUANTIZE      (how that is compiled: ggml_quantize.c)
set -e
here=$(dirname "$0")
${PYTHON:-python3} "$here/make.py" "$1"
${PYTHON:-python3} "$here/../../../models/synth.py" "$here/heads.gguf" --type Q8_0 --embd 64 --heads 4 --kv-heads 2 \
    --head-dim 32 --ff 64 --vocab 260 --context 4096 --layers 2
${PYTHON:-python3} "$here/../../../models/synth.py" "$here/windows.gguf" --arch gemma3 --type Q8_0 --embd 32 --heads 2 \
    --kv-heads 1 --head-dim 32 --ff 32 --vocab 260 --context 4096 --layers 3 --window 5 --window-period 3

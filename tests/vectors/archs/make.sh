#!/bin/sh
# Makes the models of this directory, one for each architecture that plumb runs and one more for each that can have
# experts, and their taps again.
#   make.sh FOLDER [NAME...]    those of these architectures, or of all
#   make.sh FOLDER taps         makes only the taps again, from the models that are here: after a change of logits.c
# FOLDER is where ../../conformance/build.sh has built llama.cpp; PYTHONPATH must have numpy and gguf 0.19.
# models/synth_archs.py writes the first ones, llama.cpp's own conformance program with other shapes (shapes.sed) the
# others.  Truth is llama.cpp, with GELU computed instead of taken from its table of 16-bit floats (build.sh).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
synth=$here/../../../models/synth_archs.py
conformance=$(cd "$1" && pwd)
work=$conformance/archs
shift
names=$*
mkdir -p "$work"
libraries="build/common/libllama-common.a build/common/libllama-common-base.a build/src/libllama.a
    build/ggml/src/libggml.a build/ggml/src/libggml-cpu.a build/ggml/src/libggml-base.a -lpthread -ldl -fopenmp"
echo "7 1 33 33 60 2 19 48" >"$work/ids.txt"
printf "the cat, sat on a mat?" >"$work/text.txt"
# logits.c with other numbers in llama.cpp's Gemma 3n, where they are fixed: 4 layers with K and V, 2 sparse ones, and
# the widths of models/synth_archs.py.
small_gemma3n() {
    cd "$conformance/llama.cpp"
    sed 's/n_layer_sparsity = 10/n_layer_sparsity = 2/; s/f_sparsity_std_mul = [0-9.]*f/f_sparsity_std_mul = 0.5f/' \
        src/models/models.h >"$work/models.h"
    sed "s/n_layer_kv_from_start = 20;/n_layer_kv_from_start = 4, hparams.laurel_rank = 256, hparams.n_embd_altup = 32;/
        s|\"models.h\"|\"$work/models.h\"|" src/models/gemma3n.cpp >"$work/gemma3n.cpp"
    g++ -O1 -std=c++17 -w -Iinclude -Iggml/include -Iggml/src -Isrc -Isrc/models -c "$work/gemma3n.cpp" \
        -o "$work/gemma3n.o"
    # shellcheck disable=SC2086  # a list
    g++ -Wl,--allow-multiple-definition ../logits.o "$work/gemma3n.o" $libraries -o "$work/logits-gemma3n"
    cd "$here"
}
# The kinds of pooling, as logits.c numbers them, that a model is tried with; 4 needs a classifier.
taps() {
    program=$conformance/logits
    case $1 in
    gemma3n) program=$work/logits-gemma3n ;;
    bert | jina-bert-v2 | modern-bert | neo-bert | qwen3) set -- "$1" -e 01234 ;;
    *-bert* | eurobert | gemma-embedding | llama-embed | t5*) set -- "$1" -e 0123 ;;
    esac
    file=$1
    if [ "$file" = t5-deep ]; then
        python3 f32.py t5-deep.gguf "$work/f32.gguf" --deepen
        set -- "$@" -b 2
    fi
    shift
    "$program" -i "$work/ids.txt" -s 1 "$@" -d "$file.taps" "$work/f32.gguf" - "$work/logits.bin"
    [ "$file" != t5-gated ] || "$program" -f "$work/text.txt" -t 2 -g 40 "$work/f32.gguf" - "$file.greedy"
}
small_gemma3n
if [ "$names" = taps ]; then
    cd "$here"
    for model in *.gguf; do
        python3 f32.py "$model" "$work/f32.gguf"
        taps "${model%.gguf}"
    done
    exit
fi
cd "$conformance/llama.cpp"
sed -f "$here/shapes.sed" tests/test-llama-archs.cpp >tests/shapes.cpp
# Its saver refuses step35, of which it only saves half of the rotated elements; that is a model too.
sed '/case LLM_ARCH_STEP35:/d' src/llama-model-saver.cpp >src/saver.cpp
# shellcheck disable=SC2086  # a list
g++ -O1 -std=c++17 -w -Iinclude -Iggml/include -Iggml/src -Icommon -Ivendor -Isrc tests/shapes.cpp src/saver.cpp \
    $libraries -o "$work/shapes"
cd "$here"
is_wanted() { [ -z "$names" ] || case " $names " in *" $1 "*) ;; *) return 1 ;; esac; }
python3 "$synth" --list | while read -r name; do
    is_wanted "$name" || continue
    rm -f "$name.gguf" "$name-moe.gguf"
    python3 "$synth" "$name" "$name.gguf"
    python3 "$synth" "$name" "$work/f32.gguf" --f32
    taps "$name"
done
rows=$(sed -n 's/^    { "\([^"]*\)", steps_[a-z_]*, ROPE_.*/\1/p' ../../../src/engine/model/*.c)
[ -n "$rows" ] || { echo "make.sh: src/engine/model has no rows of architectures" >&2; exit 1; }
for name in $rows; do
    is_wanted "$name" || continue
    python3 "$synth" --list | grep -qx "$name" || rm -f "$name.gguf" "$name-moe.gguf"
    case $name in
    olmoe | dots1 | mpt | cogvlm | minicpm3) heads=4 ;;
    deepseek2 | mistral4) heads=1 ;;
    *) heads=2 ;;
    esac
    rm -f "$work"/*-dense.gguf "$work"/*-moe.gguf
    # With another seed two experts are so close that rounded activations choose another one, or the rounding shows
    # more.
    case $name in
    mellum | llada | laguna | grok | qwen35) seed=2 ;;
    bailingmoe) seed=3 ;;
    gpt-oss) seed=4 ;;
    *) seed=1 ;;
    esac
    case $name in   # more layers; delta rules and then experts, scans and YaRN's scores show more of the rounding
    hrm_text | qwen3next | qwen35moe | granitehybrid | falcon-h1 | nemotron_h* | mamba* | jamba | plamo2) spread=0.15 ;;
    deepseek2) spread=0.15 ;;
    kimi-linear) spread=0.08 ;;
    bailingmoe3) spread=0.06 ;;
    *) spread=0.3 ;;
    esac
    KV_HEADS=$heads "$work/shapes" -o "$work" -d $spread -s $seed -a "^$name\$" >"$work/shapes.log" 2>&1
    for kind in dense moe; do
        toy=$work/$name-$kind.gguf out=$name
        [ -f "$toy" ] || continue
        [ ! -f "$name.gguf" ] || [ $kind = dense ] || out=$name-moe
        case $name-$kind in ernie4_5-moe | nemotron_h_moe-dense) continue ;; esac   # it has none, or all have some
        [ ! -f "$out.gguf" ] || continue
        python3 toys.py "$toy" "$out.gguf" "$work/f32.gguf"
        taps "$out"
    done
done
is_wanted nemotron_h_moe || exit 0
python3 latent.py nemotron_h_moe.gguf nemotron_h_moe-latent.gguf "$work/f32.gguf"
taps nemotron_h_moe-latent

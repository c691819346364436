#!/bin/sh
# Makes the adapters of this directory, and llama.cpp's logits of each line of cases.txt: a model of ../archs, the name
# of the logits, and adapters, each with its scale and perhaps its layers.
#   make.sh FOLDER    where ../../conformance/build.sh has built llama.cpp; PYTHONPATH must have numpy and gguf 0.19
# llama.cpp gets all numbers in F32, and models with an output matrix of their own: it aborts if a LoRA changes
# embeddings that are the output matrix too.  plumb changes only the embeddings then, as PEFT does.
set -eu
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")"
work=$folder/adapters
mkdir -p "$work"
python3 make.py
echo "7 1 33 33 60 2 19 48 11 5 61 0 7 22 40 3" >"$work/ids.txt"
for adapter in *.gguf; do python3 ../archs/f32.py "$adapter" "$work/$adapter"; done
while read -r model name uses; do
    python3 ../archs/f32.py "../archs/$model.gguf" "$work/model.gguf" --untie
    set --
    for use in $(echo "$uses" | tr , ' '); do
        adapter=${use%%:*} rest=${use#*:}
        scale=${rest%%:*}
        case $adapter in *-control) option=-c ;; *) option=-l ;; esac
        set -- "$@" $option "$work/$adapter.gguf:$scale"
        case $rest in *:*) set -- "$@" -r "${rest#*:}" ;; esac
    done
    "$folder/logits" -i "$work/ids.txt" -s 1 "$@" "$work/model.gguf" - "$name.bin"
done <cases.txt

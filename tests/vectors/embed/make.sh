#!/bin/sh
# Makes the models of this directory and llama.cpp's results for them again.
#   make.sh FOLDER    where ../../conformance/build.sh has built llama.cpp; PYTHONPATH must have numpy and gguf 0.19
set -eu
here=$(cd "$(dirname "$0")" && pwd)
conformance=$(cd "$1" && pwd)
work=$conformance/embed
mkdir -p "$work"
python3 "$here/make.py"
cd "$conformance/llama.cpp"
sed -n '/^server_tokens format_prompt_rerank(/,/^}/p' tools/server/server-common.cpp >"$work/format_prompt_rerank.inc"
g++ -O1 -std=c++17 -w -I"$work" -Iinclude -Iggml/include -Icommon -Ivendor "$here/embed.cpp" \
    build/common/libllama-common.a build/common/libllama-common-base.a build/src/libllama.a build/ggml/src/libggml.a \
    build/ggml/src/libggml-cpu.a build/ggml/src/libggml-base.a -lpthread -ldl -fopenmp -o "$work/embed"
cd "$here"
for model in *.gguf; do
    python3 ../archs/f32.py "$model" "$work/f32.gguf"
    case $model in rank-*) set -- "the {document} in it" ;; *) set -- ;; esac
    [ "$model" != rank-qwen3.gguf ] || set -- "the thin one"   # llama.cpp replaces {document} in a query too
    "$work/embed" "$work/f32.gguf" texts.txt "${model%.gguf}.jsonl" "$@"
done

#!/bin/sh
# Makes the files of this folder again that are not written by hand.  Needs what tests/conformance/build.sh leaves in
# build/conformance (llama.cpp v0.5.0), a C++ compiler and gzip; takes a minute or two.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
llama=${LLAMA:-$here/../../../build/conformance/llama.cpp}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$llama"
libraries="build/common/libllama-common.a build/common/libllama-common-base.a build/src/libllama.a
    build/ggml/src/libggml.a build/ggml/src/libggml-cpu.a build/ggml/src/libggml-base.a -lpthread -ldl -fopenmp"
wrapped=_ZN5jinja16global_from_jsonI11common_jsonEEvRNS_7contextERKT_b
# shellcheck disable=SC2086  # a list
g++ -O1 -std=c++17 -Wall -Wno-unused-function -Iinclude -Iggml/include -Icommon -Ivendor "$here/render.cpp" $libraries \
    -Wl,--wrap=$wrapped,--wrap=time,--wrap=_ZNSt6chrono3_V212system_clock3nowEv -o "$work/render"
mkdir -p "$here/sources"
cp models/templates/*.jinja "$here/sources/"
"$work/render" "$here/conversations.json" "$here"
gzip -9nf "$here/texts.json"

# The families of models for which llama.cpp changes messages.
mkdir -p "$work/families/sources"
for name in LFM2-8B-A1B LFM2.5-8B-A1B StepFun3.5-Flash deepseek-ai-DeepSeek-V3.2 deepseek-ai-DeepSeek-V4 \
    google-gemma-4-31B-it google-gemma-4-31B-it-interleaved mistralai-Ministral-3-14B-Reasoning-2512 \
    openai-gpt-oss-120b unsloth-mistral-Devstral-Small-2507; do
    cp "$here/sources/$name.jinja" "$work/families/sources/"
done
"$work/render" "$here/families.json" "$work/families"
awk -F'\t' '{ print $1 "\t" $2 "\t" ($5 == "=" ? $4 : $5) }' "$work/families/expected.tsv" >"$here/families.tsv"

# shellcheck disable=SC2086
g++ -O1 -std=c++17 -Wall -Wno-unused-function -Iinclude -Iggml/include -Icommon -Ivendor "$here/language.cpp" \
    $libraries -o "$work/language"
"$work/language" "$here/language.tsv" >"$work/language.tsv"
mv "$work/language.tsv" "$here/language.tsv"

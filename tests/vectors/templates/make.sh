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

# shellcheck disable=SC2086
g++ -O1 -std=c++17 -Wall -Wno-unused-function -Iinclude -Iggml/include -Icommon -Ivendor "$here/language.cpp" \
    $libraries -o "$work/language"
"$work/language" "$here/language.tsv" >"$work/language.tsv"
mv "$work/language.tsv" "$here/language.tsv"

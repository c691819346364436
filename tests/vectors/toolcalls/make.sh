#!/bin/sh
# Makes cases.json again.  Needs what tests/conformance/build.sh leaves in build/conformance (llama.cpp v0.5.0) and a
# C++
# compiler; takes a minute or two.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
llama=${LLAMA:-$here/../../../build/conformance/llama.cpp}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$llama"
# Of llama.cpp's tests/test-chat.cpp: the tools, the messages and the cases of parsers.  A case is recorded, not
# checked.
{
    sed -n '1,/^static void test_msgs_oaicompat_json_conversion/p' tests/test-chat.cpp | sed '$d
        /server-chat\.h/d
        s/^class peg_test_builder;/#include "cases.cpp"\n&/
        s/test_peg_parser(tester_\.tmpls_\.get(),/record(tester_.template_path(), tester_.tmpls_.get(),/'
    sed -n '/^\/\/ Shared LFM2 parser cases/,/^static void test_template_generation_prompt/p' tests/test-chat.cpp |
        sed '$d'
    echo 'int main(void) { test_template_output_peg_parsers(false); write_cases(); }'
} >"$work/cases-main.cpp"
cp src/llama-grammar.h src/unicode.h "$work"
sed -i 's|"../src/|"|' "$work/cases-main.cpp"
libraries="build/common/libllama-common.a build/common/libllama-common-base.a build/src/libllama.a
    build/ggml/src/libggml.a build/ggml/src/libggml-cpu.a build/ggml/src/libggml-base.a -lpthread -ldl -fopenmp"
# shellcheck disable=SC2086  # a list
g++ -O0 -std=c++17 -w -I"$here" -Isrc -Iinclude -Iggml/include -Icommon -Ivendor "$work/cases-main.cpp" $libraries \
    -o "$work/cases"
"$work/cases" 2>"$work/log" >"$work/cases.json" || { tail "$work/log"; exit 1; }
mv "$work/cases.json" "$here/cases.json"

#!/bin/sh
# Builds llama.cpp v0.5.0 from the source that the npm package node-llama-cpp carries, its conformance program
# tests/test-llama-archs.cpp, and tests/vectors/llama/logits.c, and writes the toy models.  Needs npm, git, cmake and a
# C++ compiler; 15 minutes of two cores and 1.5 GB.
#   build.sh FOLDER
# leaves FOLDER/logits, FOLDER/quantize, FOLDER/toys/*.gguf and, with other shapes, FOLDER/shapes/*.gguf.  What is there
# already is not built again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
[ -d llama.cpp ] || {
    npm pack --silent node-llama-cpp@3.22.1 >/dev/null
    tar xzf node-llama-cpp-3.22.1.tgz package/llama/gitRelease.bundle
    git clone -q package/llama/gitRelease.bundle llama.cpp
    rm -r package node-llama-cpp-3.22.1.tgz
    # llama.cpp takes GELU from a table of 16-bit floats, which is wrong in the fourth digit.  Without the table it
    # computes the same formula in 32 bits.
    sed -i 's|^#define GGML_GELU_FP16|// &|' llama.cpp/ggml/src/ggml-cpu/vec.h
}
cd llama.cpp
[ -f build/common/libllama-common.a ] || {
    # The instructions of AVX2 on any machine, so that the same sums come out.
    cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF \
        -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
        -DLLAMA_BUILD_TESTS=OFF \
        -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON >../cmake.log
    cmake --build build --target llama-common -j "$(nproc)" >>../cmake.log
}
libraries="build/common/libllama-common.a build/common/libllama-common-base.a build/src/libllama.a
    build/ggml/src/libggml.a build/ggml/src/libggml-cpu.a build/ggml/src/libggml-base.a -lpthread -ldl -fopenmp"
# shellcheck disable=SC2086  # a list
[ -x ../test-llama-archs ] || g++ -O1 -std=c++17 -w -Iinclude -Iggml/include -Iggml/src -Icommon -Ivendor -Isrc \
    tests/test-llama-archs.cpp $libraries -o ../test-llama-archs
# shellcheck disable=SC2086
[ -x ../quantize ] || g++ -O1 -std=c++17 -w -Iinclude -Iggml/include -Icommon -Itools/quantize tools/quantize/*.cpp \
    $libraries -o ../quantize
[ -x ../shapes-archs ] || {
    sed -f "$here/../vectors/archs/shapes.sed" tests/test-llama-archs.cpp | sed -f "$here/shapes.sed" >tests/shapes.cpp
    # Its saver refuses step35, of which it only saves half of the rotated elements; that is a model too.
    sed '/case LLM_ARCH_STEP35:/d' src/llama-model-saver.cpp >src/saver.cpp
    # shellcheck disable=SC2086
    g++ -O1 -std=c++17 -w -Iinclude -Iggml/include -Iggml/src -Icommon -Ivendor -Isrc tests/shapes.cpp src/saver.cpp \
        $libraries -o ../shapes-archs
}
gcc -std=gnu11 -O2 -Iinclude -Iggml/include -c "$here/../vectors/llama/logits.c" -o ../logits.o
# shellcheck disable=SC2086
g++ ../logits.o $libraries -o ../logits
cd ..
[ -d toys ] || { mkdir toys.new && ./test-llama-archs -o toys.new >toys.log 2>&1 && mv toys.new toys; }
# With 3 heads of K and V, or with as many as of Q or one, where the program can't write or compute those.  It can't
# write some that plumb refuses.
[ -d shapes ] || {
    mkdir -p shapes.new
    for name in $(ls toys | sed 's/-[a-z]*\.gguf$//' | sort -u); do
        case $name in
        cogvlm | dots1 | minicpm3 | minimax-m3 | olmoe | qwen) heads=6 ;;
        deepseek2 | deepseek32 | glm-dsa | hy_v4 | mistral4) heads=1 ;;
        *) heads=3 ;;
        esac
        KV_HEADS=$heads ./shapes-archs -o shapes.new -d 0.15 -a "^$name\$" >>shapes.log 2>&1 ||
            echo "build.sh: no other shape of $name" >&2
    done
    mv shapes.new shapes
}
# Files of our own for architectures of which it writes none.
synth() { PYTHONPATH=$here/../../build/setup/py python3 "$here/../../models/synth_archs.py" "$@"; }
[ -f toys/gemma3n-dense.gguf ] || synth gemma3n toys/gemma3n-dense.gguf --f32 --fixed
[ -f toys/gemma4-dense.gguf ] || synth gemma4 toys/gemma4-dense.gguf --f32
[ -f toys/gemma4-moe.gguf ] || synth gemma4-moe toys/gemma4-moe.gguf --f32
[ -f toys/deepseek2-ocr-moe.gguf ] || synth deepseek2-ocr toys/deepseek2-ocr-moe.gguf --f32
for name in rwkv6 rwkv6qwen2 rwkv7 arwkv7 t5 t5-gated chameleon chameleon-swin graniteswitch graniteswitch-base; do
    [ -f "toys/$name-dense.gguf" ] || synth $name "toys/$name-dense.gguf" --f32
done

#!/bin/sh
# Builds llama.cpp v0.5.0 for WebAssembly with its own SIMD128 kernels, and links tests/bench/llama.c to it.  ggml takes
# those kernels only if CMake's name of the processor is wasm, which Emscripten does not say by itself.  Its source has
# nothing in relaxed SIMD.  Needs npm, git, cmake, emcc and EMCC_ENV, the variables that emcc is called with
# (wasm/toolchain.mk); five minutes on two cores.
#   build-llama-wasm.sh FOLDER OUT.js [threads]
# leaves the source in FOLDER and writes OUT.wasm beside OUT.js, and with threads OUT.worker.js.
set -eu
source=$1 out=$2 threads=${3-}
build=$source/build-wasm${threads:+-$threads} flags="-msimd128${threads:+ -pthread}"
sh "$(dirname "$0")/fetch-llama.sh" "$source"
# shellcheck disable=SC2086  # a list of NAME=VALUE
emcc_env() { env ${EMCC_ENV-} "$@"; }
emcc_env emcmake cmake -S "$source" -B "$build" -DEMSCRIPTEN_SYSTEM_PROCESSOR=wasm \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags -fexceptions" \
    -DCMAKE_HAVE_LIBC_PTHREAD=1 -DBUILD_SHARED_LIBS=OFF -DLLAMA_WASM_MEM64=OFF -DGGML_OPENMP=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF >"$build.log"
emcc_env cmake --build "$build" --target llama -j "$(nproc)" >>"$build.log"
# shellcheck disable=SC2086  # a list of options
emcc_env emcc -std=c11 -O3 -D_GNU_SOURCE $flags -Itests/bench -I"$source/include" -I"$source/ggml/include" \
    -c tests/bench/llama.c -o "$build/llama-bench.o"
# -O1 and BigInt: as in wasm/toolchain.mk, binaryen of an old Emscripten does not touch the module.
# The pool has a worker for each thread but the first, and for more threads than that nothing is measured.
# shellcheck disable=SC2086
emcc_env emcc -O1 -fexceptions ${threads:+-pthread -sPTHREAD_POOL_SIZE=1 -sPTHREAD_POOL_SIZE_STRICT=2} \
    "$build/llama-bench.o" "$build/src/libllama.a" "$build/ggml/src/libggml.a" \
    "$build/ggml/src/libggml-cpu.a" "$build/ggml/src/libggml-base.a" -sWASM_BIGINT -sALLOW_MEMORY_GROWTH \
    -sMAXIMUM_MEMORY=4294901760 -sINITIAL_MEMORY=67108864 -sTOTAL_STACK=5242880 -Wl,--no-stack-first -sMODULARIZE \
    -sEXPORT_NAME=createLlama -sENVIRONMENT=web,worker,node -sFORCE_FILESYSTEM -sERROR_ON_UNDEFINED_SYMBOLS=1 \
    -sEXPORTED_FUNCTIONS=_bench_open,_bench_feed,_bench_rewind,_bench_about,_malloc,_free \
    -sEXPORTED_RUNTIME_METHODS=ccall,UTF8ToString,FS,HEAPU8 -o "$out"
{ cat "$out"; printf 'export default createLlama;\n'; } >"${out%.js}.mjs"
# Emscripten's worker for Node is no ES module.
printf '{ "type": "commonjs" }\n' >"$(dirname "$out")/package.json"

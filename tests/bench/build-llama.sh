#!/bin/sh
# Builds llama.cpp v0.5.0 for this CPU, with all of its instructions, from the source that the npm package
# node-llama-cpp carries.  Needs npm, git, cmake and a C++ compiler; a quarter of an hour on two cores.
#   build-llama.sh FOLDER
# leaves the source in FOLDER and the libraries in FOLDER/build/bin.
set -eu
[ -d "$1" ] || {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && npm pack --silent node-llama-cpp@3.22.1 >/dev/null)
    tar xzf "$work/node-llama-cpp-3.22.1.tgz" -C "$work" package/llama/gitRelease.bundle
    git clone -q "$work/package/llama/gitRelease.bundle" "$1"
}
cmake -S "$1" -B "$1/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF >"$1/build.log"
cmake --build "$1/build" --target llama -j "$(nproc)" >>"$1/build.log"

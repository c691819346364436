#!/bin/sh
# Builds llama.cpp v0.5.0 for this CPU, with all of its instructions.  Needs npm, git, cmake and a C++ compiler; a
# quarter of an hour on two cores.
#   build-llama.sh FOLDER [server]
# leaves the source in FOLDER and the libraries in FOLDER/build/bin.  With "server" it builds the program llama-server,
# in FOLDER/build-server/bin.
set -eu
sh "$(dirname "$0")/fetch-llama.sh" "$1"
if [ "${2:-}" = server ]; then
    build=build-server target=llama-server server=ON
else
    build=build target=llama server=OFF
fi
# On some virtual machines the processor has AMX and the system does not allow it: then the first product is SIGILL.
amx=
if [ "$(uname -m)" = x86_64 ] && ! grep -q amx_int8 /proc/cpuinfo; then
    amx='-mno-amx-tile -mno-amx-int8 -mno-amx-bf16'
fi
cmake -S "$1" -B "$1/$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON \
    -DCMAKE_C_FLAGS="$amx" -DCMAKE_CXX_FLAGS="$amx" -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_COMMON=$server \
    -DLLAMA_BUILD_SERVER=$server -DLLAMA_BUILD_TOOLS=$server -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF >"$1/$build.log"
cmake --build "$1/$build" --target $target -j "$(nproc)" >>"$1/$build.log"

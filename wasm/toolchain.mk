# The one place that knows how compilers for WebAssembly differ.  Two libcs, two ways to link:
#   Emscripten (browser, Node): EMCC_RUN, EMCC_CFLAGS, EMCC_LDFLAGS, EMCC_STRIP, and what the variants add:
#                               EMCC_MT_CFLAGS, EMCC_MT_LDFLAGS, EMCC_RELAXED_CFLAGS (empty: no relaxed SIMD)
#   WASI (wasmtime):            WASI_CC, WASI_CFLAGS, WASI_LDFLAGS
# Nothing here runs a compiler: it looks at names and files only, so that `make` starts at once.

# The newest LLVM from 19 on that has both a clang and a wasm-ld; older ones lack the relaxed-SIMD intrinsics with
# final opcodes.  `make LLVM=19` picks one, `make LLVM=` takes what emcc itself brings.
LLVM ?= $(firstword $(foreach v,25 24 23 22 21 20 19,\
    $(if $(and $(wildcard /usr/bin/clang-$v),$(wildcard /usr/bin/wasm-ld-$v)),$v)))

# 65535 pages: the largest maximum that every linker takes.
MAX_MEMORY := 4294901760
STACK := 1048576
INITIAL_MEMORY := 16777216

# ---- Emscripten ----
EMCC ?= emcc
emcc_file := $(realpath $(shell command -v $(EMCC) 2>/dev/null))
EMCC_CFLAGS := -msimd128
# One plain .wasm and no JavaScript of Emscripten's: our own ES modules load it in every host.  emmalloc: 8 KB less than
# dlmalloc, and what a model allocates it does not do often.
EMCC_LDFLAGS := -sSTANDALONE_WASM --no-entry -sMALLOC=emmalloc -sALLOW_MEMORY_GROWTH \
    -sINITIAL_MEMORY=$(INITIAL_MEMORY) -sMAXIMUM_MEMORY=$(MAX_MEMORY) -sTOTAL_STACK=$(STACK)
# Threads without Emscripten's: -pthread would bring its JavaScript, and its libc of atomics.  Ours wait and notify in
# src/base/pool.c alone, which is the one file compiled with atomics; the others, and libc, compute in any thread, but
# only the main one may allocate.  No _Thread_local: nobody calls __wasm_init_tls.
# --no-check-features: wasm-ld otherwise wants every object in a shared memory to be compiled for atomics.
# The memory is imported, as all instances share it: web/engine/threads.js makes it, of INITIAL_MEMORY and MAX_MEMORY
# bytes, and gives each worker a stack.
EMCC_MT_CFLAGS := -matomics -mbulk-memory
EMCC_MT_LDFLAGS := -sIMPORTED_MEMORY -Wl,--shared-memory,--no-check-features,--export=__stack_pointer
EMCC_RELAXED_CFLAGS := -mrelaxed-simd
EMCC_STRIP := -Wl,--strip-all
# emcc takes imports of our own (src/base/clock.c, tests/harness.c) for undefined symbols.  A test knows all imports.
EMCC_LDFLAGS += -sERROR_ON_UNDEFINED_SYMBOLS=0 -sWARN_ON_UNDEFINED_SYMBOLS=0

ifneq ($(filter /usr/share/emscripten/%,$(emcc_file)),)
# The Emscripten of Debian and Ubuntu: 3.1.6 or so, with an LLVM that is too old and settings fixed at packaging.
# NODE_PATH: a Node from elsewhere does not search the distribution's modules, which emcc's own scripts need.
emcc_env := NODE_PATH=/usr/share/nodejs$(if $(NODE_PATH),:$(NODE_PATH))
ifneq ($(LLVM),)
# Another LLVM's clang and wasm-ld.  READ_METADATA=python: the default reader is binaryen 108, which cannot parse what
# a newer LLVM writes.
emcc_env += EM_LLVM_ADD_VERSION=$(LLVM) EM_CLANG_ADD_VERSION=$(LLVM) EMCC_READ_METADATA=python
# -O1 with BigInt is the highest level that leaves the module as wasm-ld wrote it: above, the same binaryen rewrites it.
EMCC_LDFLAGS += -O1 -sWASM_BIGINT
ifneq ($(filter-out 19 20 21,$(LLVM)),)
# From LLVM 22 on the stack comes first unless told otherwise, against the --global-base that emcc 3.1.6 passes.
EMCC_LDFLAGS += -Wl,--no-stack-first
endif
else
EMCC_LDFLAGS += -O2 -sWASM_BIGINT
# Its own LLVM is older than the final opcodes.
EMCC_RELAXED_CFLAGS :=
endif
else
# An emsdk brings a matching LLVM, binaryen and Node: nothing to override.  BigInt is off before Emscripten 4; from
# then on asking for it only warns.
EMCC_LDFLAGS += -O2 -sWASM_BIGINT
endif
EMCC_RUN = $(if $(emcc_file),,$(error no emcc on PATH: `make setup` installs it))$(strip $(emcc_env) $(EMCC))

# ---- WASI ----
WASI_CFLAGS := -msimd128
# --stack-first: an overflow traps instead of overwriting data.  No -O here: at a link step clang would run the
# wasm-opt it finds on PATH, and Debian's (108) silently corrupts relaxed dots.
WASI_LDFLAGS := -Wl,--max-memory=$(MAX_MEMORY) -Wl,-z,stack-size=$(STACK) -Wl,--stack-first -Wl,--strip-debug
ifneq ($(WASI_SDK_PATH),)
WASI_CC := $(WASI_SDK_PATH)/bin/clang
else
# wasi-libc of Debian lives under this triple; clang calls it deprecated, but does not find the headers under wasip1.
WASI_CC := clang$(if $(LLVM),-$(LLVM)) --target=wasm32-wasi -Wno-deprecated
endif

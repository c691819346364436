# The differences between compilers for WebAssembly are handled here only.  Two libcs, two ways to link:
#   Emscripten (browser, Node): EMCC_RUN, EMCC_CFLAGS, EMCC_LDFLAGS, EMCC_STRIP, WASM_OPT, and for the variants also
#                               EMCC_MT_CFLAGS, EMCC_MT_LDFLAGS, EMCC_RELAXED_CFLAGS (empty: no relaxed SIMD)
#   WASI (wasmtime):            WASI_CC, WASI_CFLAGS, WASI_LDFLAGS
# Nothing here runs a compiler.  Only names and files are checked, so that `make` starts at once.

# The newest installed LLVM, 19 or later, with both clang and wasm-ld.  Older ones lack the relaxed-SIMD intrinsics with
# the final opcodes.  `make LLVM=19` chooses one, `make LLVM=` uses the LLVM that comes with emcc.
LLVM ?= $(firstword $(foreach v,25 24 23 22 21 20 19,\
    $(if $(and $(wildcard /usr/bin/clang-$v),$(wildcard /usr/bin/wasm-ld-$v)),$v)))

# 65535 pages: the largest maximum that every linker accepts.
MAX_MEMORY := 4294901760
STACK := 1048576
INITIAL_MEMORY := 16777216

# ---- Emscripten ----
EMCC ?= emcc
emcc_file := $(realpath $(shell command -v $(EMCC) 2>/dev/null))
EMCC_CFLAGS := -msimd128
# The output is one plain .wasm, without Emscripten's JavaScript: our own ES modules load it in every host.
# emmalloc is 8 KB smaller than dlmalloc; its speed does not matter, since a model seldom allocates.
EMCC_LDFLAGS := -sSTANDALONE_WASM --no-entry -sMALLOC=emmalloc -sALLOW_MEMORY_GROWTH \
    -sINITIAL_MEMORY=$(INITIAL_MEMORY) -sMAXIMUM_MEMORY=$(MAX_MEMORY) -sTOTAL_STACK=$(STACK)
# Threads do not use Emscripten's: -pthread would bring its JavaScript and its libc with atomics.  Our threads wait and
# notify only in src/engine/threads/pool.c, the one file that is compiled with atomics.  All other code, libc included,
# may run in any thread, but only the main thread may allocate.  _Thread_local is not allowed: nobody calls
# __wasm_init_tls.
# --no-check-features: otherwise wasm-ld demands that every object for a shared memory is compiled with atomics.
# The memory is imported, since all instances share it.  web/engine/threads.js creates it with INITIAL_MEMORY and
# MAX_MEMORY bytes, and gives each worker a stack.
EMCC_MT_CFLAGS := -matomics -mbulk-memory
EMCC_MT_LDFLAGS := -sIMPORTED_MEMORY -Wl,--shared-memory,--no-check-features,--export=__stack_pointer
EMCC_RELAXED_CFLAGS := -mrelaxed-simd
EMCC_STRIP := -Wl,--strip-all
# emcc mistakes our own imports (src/engine/base/clock.c, tests/harness.c) for undefined symbols.  A test checks all
# imports.
EMCC_LDFLAGS += -sERROR_ON_UNDEFINED_SYMBOLS=0 -sWARN_ON_UNDEFINED_SYMBOLS=0

ifneq ($(filter /usr/share/emscripten/%,$(emcc_file)),)
# The Emscripten of Debian and Ubuntu is 3.1.6 or so; its LLVM is too old, and its settings are fixed by the package.
# NODE_PATH: emcc's scripts need the distribution's modules, which a Node from elsewhere does not search.
emcc_env := NODE_PATH=/usr/share/nodejs$(if $(NODE_PATH),:$(NODE_PATH))
ifneq ($(LLVM),)
# Uses the clang and wasm-ld of the LLVM chosen above.  READ_METADATA=python: the default reader is binaryen 108, which
# cannot parse the output of a newer LLVM.
emcc_env += EM_LLVM_ADD_VERSION=$(LLVM) EM_CLANG_ADD_VERSION=$(LLVM) EMCC_READ_METADATA=python
# -O1 with BigInt is the highest level that leaves the module as wasm-ld wrote it; above it, this binaryen rewrites it.
EMCC_LDFLAGS += -O1 -sWASM_BIGINT
# A current binaryen, npm's, makes the module 7 % smaller.  -O1: at -Os it also moves instructions, after which the
# kernels that multiply many tokens take twice as long.  coalesce-locals would give the old and the new value of a
# compare-and-exchange in src/engine/threads/pool.c the same local, which the baseline compiler of Node 20 gets wrong:
# two threads then compute the same chunk.  Test modules are optimized as well, so the C tests with threads would see
# that.
# The passes after -O1 save 2 %: functions that are called once are inlined, and numbers get fewer bytes.
WASM_OPT = node web/node_modules/binaryen/bin/wasm-opt -O1 --inlining-optimizing --rse --vacuum --reorder-functions \
    --reorder-locals --skip-pass=coalesce-locals $(WASM_FEATURES:%=--enable-%)
WASM_STRIP = node web/node_modules/binaryen/bin/wasm-opt --strip-debug --strip-producers $(WASM_FEATURES:%=--enable-%)
# The modules of the command line, of grammars and of templates have no such kernels and no threads.
WASM_SHRINK = node web/node_modules/binaryen/bin/wasm-opt -Oz --converge $(WASM_FEATURES:%=--enable-%)
WASM_FEATURES := simd relaxed-simd threads bulk-memory sign-ext mutable-globals nontrapping-float-to-int
ifneq ($(filter-out 19 20 21,$(LLVM)),)
# From LLVM 22 on the linker puts the stack first by default, which contradicts the --global-base of emcc 3.1.6.
EMCC_LDFLAGS += -Wl,--no-stack-first
endif
else
EMCC_LDFLAGS += -O2 -sWASM_BIGINT
# The LLVM that comes with this emcc is older than the final opcodes of relaxed SIMD.
EMCC_RELAXED_CFLAGS :=
endif
else
# An emsdk brings a matching LLVM, binaryen and Node, so nothing is overridden.  BigInt is off by default before
# Emscripten 4; from then on the option only causes a warning.
EMCC_LDFLAGS += -O2 -sWASM_BIGINT
endif
EMCC_RUN = $(if $(emcc_file),,$(error no emcc on PATH: `make setup` installs it))$(strip $(emcc_env) $(EMCC))

# ---- WASI ----
WASI_CFLAGS := -msimd128
# --stack-first: an overflow of the stack traps instead of overwriting data.  There is no -O here: with it, clang would
# run the wasm-opt that it finds on PATH when it links, and Debian's (108) silently corrupts relaxed dots.
WASI_LDFLAGS := -Wl,--max-memory=$(MAX_MEMORY) -Wl,-z,stack-size=$(STACK) -Wl,--stack-first -Wl,--strip-debug
ifneq ($(WASI_SDK_PATH),)
WASI_CC := $(WASI_SDK_PATH)/bin/clang
else
# Debian installs wasi-libc under this triple.  clang calls it deprecated, but does not find the headers under wasip1.
WASI_CC := clang$(if $(LLVM),-$(LLVM)) --target=wasm32-wasi -Wno-deprecated
endif

# ---- 64-bit addresses ----
# 262144 pages: the most that V8 gives a memory.
MAX_MEMORY64 := 17179869184
# The C library is our own (wasm/wasm64/library.mk), so clang links nothing by itself.  With --stack-first the stack and
# the static data lie below 4 GiB, on which wasm/wasm64/host.c and GATHER_BASE of src/engine/kernels/simd128.h depend.
WASM64_LDFLAGS := -nostdlib -Wl,--max-memory=$(MAX_MEMORY64) -Wl,-z,stack-size=$(STACK) -Wl,--stack-first \
    -Wl,--strip-debug
WASM64_WEB_LDFLAGS := -Wl,--no-entry -Wl,--initial-memory=$(INITIAL_MEMORY) -Wl,--strip-all
WASM64_MT_LDFLAGS := -Wl,--import-memory -Wl,--shared-memory,--no-check-features,--export=__stack_pointer

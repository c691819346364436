# The C library of the modules with 64-bit addresses (memory64), build/wasm64/libc.a.  No distribution has one, and
# Emscripten 3.1.6 builds none.  So the files that plumb needs are compiled from the sources of wasi-libc that zig
# brings, with the parts that zig replaces by its own code, the allocator and the compiler's runtime from Emscripten.
# host.c takes the place of wasi-libc's calls of its host, which only know 32-bit addresses.
wasm64_dir := build/wasm64
wasm64_libc := $(wasm64_dir)/libc.a
zig_libc := build/setup/zig/ziglang/lib/libc
emscripten_lib := $(dir $(emcc_file))system/lib

# The headers that know of 32 bits.  wasi/api.h asserts that addresses have as many, which host.c sees to; bits/stdint.h
# has the limits of sizes and addresses.
wasm64_headers := $(addprefix $(wasm64_dir)/include/,wasi/api.h bits/stdint.h)
$(wasm64_headers): $(wasm64_dir)/include/%: $(zig_libc)/include/wasm-wasi-musl/% wasm/wasm64/library.mk
	@mkdir -p $(@D)
	@echo "  $@"
	$Qsed -e '/^_Static_assert/d' -e '/^#error/d' -e '/PTR\|PTRDIFF\|SIZE/s/INT32/INT64/' $< > $@

WASM64_CC := clang$(if $(LLVM),-$(LLVM)) --target=wasm64-wasi -Wno-deprecated -nostdlibinc \
    -isystem $(wasm64_dir)/include -isystem $(zig_libc)/include/wasm-wasi-musl \
    -idirafter $(zig_libc)/include/generic-musl

# $(call named,FOLDER,NAMES): files of a folder.
named = $(patsubst %,$1/%.c,$2)
wasi_top := wasi/libc-top-half/musl/src
wasi_bottom := wasi/libc-bottom-half
cloudlibc := $(wasi_bottom)/cloudlibc/src/libc
wasm64_zig := \
    $(wasi_bottom)/crt/crt1-command.c \
    $(call named,$(wasi_bottom)/sources,__main_void __wasilibc_fd_renumber __wasilibc_initialize_environ \
        __wasilibc_rmdirat __wasilibc_unlinkat abort at_fdcwd chdir errno getcwd getentropy isatty posix preopens) \
    $(call named,$(cloudlibc)/errno,errno) \
    $(call named,$(cloudlibc)/fcntl,fcntl openat) \
    $(call named,$(cloudlibc)/stdio,renameat) \
    $(call named,$(cloudlibc)/stdlib,_Exit) \
    $(call named,$(cloudlibc)/sys/stat,fstat fstatat) \
    $(call named,$(cloudlibc)/sys/uio,readv writev) \
    $(call named,$(cloudlibc)/time,CLOCK_MONOTONIC CLOCK_REALTIME clock_gettime time) \
    $(call named,$(cloudlibc)/unistd,lseek read) \
    $(call named,$(wasi_top)/env,getenv) \
    $(call named,$(wasi_top)/errno,strerror) \
    $(call named,$(wasi_top)/exit,atexit exit) \
    $(call named,$(wasi_top)/internal,floatscan intscan libc shgetc) \
    $(call named,$(wasi_top)/math,__rem_pio2) \
    $(call named,$(wasi_top)/stdio,__fdopen __stdio_close __stdio_read __stdio_seek __stdio_write __stdout_write \
        fopen fputc getchar ofl stderr stdin stdout ungetc vfprintf vsnprintf fseek vfscanf vsscanf) \
    $(call named,$(wasi_top)/stdlib,strtod strtol) \
    $(call named,$(wasi_top)/string,memset) \
    $(call named,$(wasi_top)/time,__secs_to_tm __tm_to_secs __tz gmtime gmtime_r localtime strftime) \
    $(call named,musl/src/locale,__lctrans langinfo) \
    $(call named,musl/src/math,__cos __math_divzero __math_invalid __math_oflow __math_uflow __math_xflow \
        __rem_pio2_large __sin atan atan2 atanh copysignl erf exp exp2 exp_data expm1 fmax fmaxf fmin fminf fmodl \
        frexp frexpl hypot ilogb ldexp log log10 log1p log2 log2_data log_data lrintf nextafterf pow pow_data remainder \
        remquo rintf round scalbn scalbnl sqrt sqrt_data tanh) \
    $(call named,musl/src/multibyte,internal mbrtowc mbsinit wcrtomb wctomb) \
    $(call named,musl/src/stdio,__fmodeflags __overflow __stdio_exit __toread __towrite __uflow fclose ferror fflush \
        fileno fprintf fread fwrite ofl_add snprintf sprintf sscanf vprintf vsprintf) \
    $(call named,musl/src/stdlib,atoi qsort qsort_nr) \
    $(call named,musl/src/string,memchr memcmp memmem memrchr stpcpy strcat strchr strchrnul strcpy strcspn strdup \
        strncat strnlen strpbrk strrchr strspn strstr strtok) \
    $(call named,musl/src/time,__month_to_secs __year_to_secs timespec_get)
wasm64_musl := $(call named,libc/musl/src/string,memcpy memmove strcmp strlen strncmp) \
    $(call named,libc/musl/src/math,cos fabs fabsl floor sin)
wasm64_builtins := $(call named,compiler-rt/lib/builtins,addtf3 ashlti3 comparetf2 divtf3 extenddftf2 extendsftf2 \
    fixtfsi fixunstfsi floatsitf floatunsitf fp_mode lshrti3 multf3 multi3 subtf3 trunctfdf2 trunctfsf2)

# Sources of others are compiled without warnings.  a_cas_p: their header of atomics, of which nothing is used, refuses
# addresses that have no 32 bits.
wasm64_flags := -Os -std=gnu11 -w -mbulk-memory
libc_flags := -fno-builtin -DBULK_MEMORY_THRESHOLD=32 -Da_cas_p=a_cas_p -I$(wasm64_dir)/include \
    $(addprefix -I$(zig_libc)/,$(wasi_top)/include musl/src/include $(wasi_top)/internal musl/src/internal \
        wasi/libc-top-half/musl/arch/wasm32 musl/arch/generic wasi/libc-top-half/headers/private \
        $(wasi_bottom)/cloudlibc/src/include $(wasi_bottom)/cloudlibc/src $(wasi_bottom)/headers/private)
# comparetf2.c: its results have 32 bits where clang expects so, which this version knows of AArch64 only.
builtins_flags := -D__aarch64__ -I$(emscripten_lib)/compiler-rt/lib/builtins
dlmalloc_flags := -DHAVE_MMAP=0 -DUSE_LOCKS=0 -DMORECORE_CANNOT_TRIM=1 -DNO_MALLINFO=1 -DMALLOC_FAILURE_ACTION= \
    -DMALLOC_ALIGNMENT=16 -DNO_MALLOC_STATS=1 -DDEFAULT_GRANULARITY=65536 '-DABORT=__builtin_trap()' \
    -Dmalloc_getpagesize=65536 -DLACKS_TIME_H -DLACKS_SCHED_H $(foreach f,malloc free calloc realloc,-Ddl$f=$f)

# $(call library_rule,FOLDER OF THE SOURCES,NAME,FLAGS)
define library_rule
$(wasm64_dir)/libc/$2/%.o: $1/%.c $(wasm64_headers)
	@mkdir -p $$(@D)
	$$Q$(WASM64_CC) $(wasm64_flags) $3 -c $$< -o $$@
endef
$(eval $(call library_rule,$(zig_libc),zig,$(libc_flags)))
# A path outside of all folders that the host shows: older versions of wasi-libc say so, this one that there is no file.
$(addprefix $(wasm64_dir)/libc/zig/$(wasi_bottom)/sources/,posix.o preopens.o): $(wasm64_dir)/libc/%.o: \
    $(wasm64_dir)/patched/%.c $(wasm64_headers)
	@mkdir -p $(@D)
	$Q$(WASM64_CC) $(wasm64_flags) $(libc_flags) -c $< -o $@
$(wasm64_dir)/patched/zig/%: $(zig_libc)/%
	@mkdir -p $(@D)
	$Qsed 's/errno = ENOENT/errno = ENOTCAPABLE/' $< > $@
$(eval $(call library_rule,$(emscripten_lib)/libc,emscripten/libc,$(libc_flags)))
$(eval $(call library_rule,$(emscripten_lib)/compiler-rt,emscripten/compiler-rt,$(builtins_flags)))
$(wasm64_dir)/libc/emscripten/dlmalloc.o: $(emscripten_lib)/dlmalloc.c $(wasm64_headers)
	@mkdir -p $(@D)
	$Q$(WASM64_CC) $(wasm64_flags) $(dlmalloc_flags) -c $< -o $@
$(wasm64_dir)/libc/%.o: wasm/wasm64/%.c $(wasm64_headers)
	@mkdir -p $(@D)
	$Q$(WASM64_CC) -Os -std=c11 -D_GNU_SOURCE -Wall -Wextra $(if $(filter true,$(CI)),-Werror) -mbulk-memory -c $< -o $@

# crt1-command.c is linked by name, since nothing refers to it.
wasm64_crt := $(wasm64_dir)/libc/zig/$(wasi_bottom)/crt/crt1-command.o
$(wasm64_libc): $(filter-out $(wasm64_crt),$(patsubst %.c,$(wasm64_dir)/libc/zig/%.o,$(wasm64_zig))) \
    $(patsubst %.c,$(wasm64_dir)/libc/emscripten/%.o,$(wasm64_musl) $(wasm64_builtins) dlmalloc.c) \
    $(wasm64_dir)/libc/host.o $(wasm64_dir)/libc/heap.o
	@echo "  $@"
	$Qrm -f $@
	$Qllvm-ar$(if $(LLVM),-$(LLVM)) rcs $@ $^

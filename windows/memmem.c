/* memmem, whose time is linear, as the tokenizer needs it: that of musl, which zig ships. */
#include <libc/musl/src/string/memmem.c>

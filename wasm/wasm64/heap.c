/* The heap of a 64-bit module of the engine.  The command line has its own sbrk (src/cli/io.c). */
#include <errno.h>
#include <stdint.h>
#include <unistd.h>

enum { PAGE = 1 << 16 };
_Static_assert(SIZE_MAX == (size_t)-1 && UINTPTR_MAX == SIZE_MAX, "the headers have the limits of 64 bits");

extern char __heap_base;
static uintptr_t heap_end;   /* 0 until the first call */

/* Moves the end of the heap, and grows the memory only as far as it does not reach yet: another instance may have
 * grown it before (web/engine/threads.js).  Returns the former end. */
void *sbrk(intptr_t increment) {
    if (heap_end == 0) heap_end = ((uintptr_t)&__heap_base + 15) / 16 * 16;
    const uintptr_t start = heap_end;
    if (increment < 0 ? (uintptr_t)-increment > start : (uintptr_t)increment > UINTPTR_MAX - PAGE - start) goto full;
    const uintptr_t end = start + (uintptr_t)increment, size = __builtin_wasm_memory_size(0) * PAGE;
    if (end > size && __builtin_wasm_memory_grow(0, (end - size + PAGE - 1) / PAGE) == SIZE_MAX) goto full;
    heap_end = end;
    return (void *)start;
full:
    errno = ENOMEM;
    return (void *)-1;
}

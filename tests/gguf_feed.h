/* Feeds a gguf from memory and measures what it allocates; for the tests and the fuzz target. */
#ifndef PLUMB_GGUF_FEED_H
#define PLUMB_GGUF_FEED_H

#include "gguf/gguf.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FEED_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define FEED_ASAN
#endif
#if defined(FEED_ASAN)
size_t __sanitizer_get_current_allocated_bytes(void);
#endif

/* Bytes of heap in use: exact under ASan; in wasm the size of the memory, which grows when the heap must; else 0. */
static inline uint64_t heap_bytes(void) {
#if defined(FEED_ASAN)
    return __sanitizer_get_current_allocated_bytes();
#elif defined(__wasm__)
    return (uint64_t)__builtin_wasm_memory_size(0) * 65536;
#else
    return 0;
#endif
}

/* The memory that the reader may hold after n bytes: a fixed part (staging, first chunk, first tables), the tables of a
 * file made of the smallest keys, strings or tensors (up to 16 bytes per byte, twice because they double), and tensors
 * that a known file size covers. */
static inline uint64_t feed_allowance(uint64_t n, uint64_t file_size) {
    return 512 * 1024 + 16 * n + (file_size == PLUMB_SIZE_UNKNOWN ? 0 : file_size);
}

struct feed {
    size_t piece;         /* bytes committed at a time; 0: random sizes, of every magnitude */
    uint64_t random;      /* state, not 0 */
    uint64_t heap_start;  /* heap_bytes before gguf_create */
    uint64_t excess;      /* largest number of bytes beyond the allowance */
};

static inline size_t feed_piece(struct feed *f) {
    if (f->piece != 0) return f->piece;
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return (size_t)(f->random >> 40 & (((uint64_t)2 << (f->random >> 20) % 17) - 1));   /* 0 to 2^17 - 1 */
}

/* Gives g bytes until it fails or is complete; *taken gets how many it took. */
static inline plumb_status feed_bytes(struct gguf *g, struct feed *f, uint64_t file_size, const uint8_t *bytes,
                                      size_t n, size_t *taken, struct error *err) {
    *taken = 0;
    while (*taken < n) {
        void *window;
        size_t len;
        PLUMB_TRY(gguf_window(g, &window, &len, err));
        if (len == 0) break;
        ((uint8_t *)window)[len - 1] = 0xee;   /* the whole window is writable, and uncommitted bytes are not read */
        size_t take = feed_piece(f);
        if (take > len) take = len;
        if (take > n - *taken) take = n - *taken;
        memcpy(window, bytes + *taken, take);
        *taken += take;
        plumb_status status = gguf_commit(g, take, err);
        uint64_t heap = heap_bytes(), allowed = f->heap_start + feed_allowance(*taken, file_size);
        if (heap > allowed && heap - allowed > f->excess) f->excess = heap - allowed;
        if (status != PLUMB_OK) return status;
    }
    return PLUMB_OK;
}

/* The same, followed by gguf_finish. */
static inline plumb_status feed_file(struct gguf *g, struct feed *f, uint64_t file_size, const uint8_t *bytes, size_t n,
                                     struct error *err) {
    size_t taken;
    PLUMB_TRY(feed_bytes(g, f, file_size, bytes, n, &taken, err));
    return gguf_finish(g, err);
}

#endif

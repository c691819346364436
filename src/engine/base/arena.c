#include "base/arena.h"

#include <stdlib.h>

struct arena_block {
    struct arena_block *next;
    _Alignas(16) char data[];
};

void *arena_alloc(struct arena *a, uint64_t n, size_t size) {
    enum { BLOCK = 32768, ALIGN = 16 };
    uint64_t bytes;
    a->is_full = !mul_u64(n, size, &bytes) || bytes > a->limit;
    if (a->is_full) return NULL;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (bytes > a->n_free || !a->blocks) {
        const bool is_large = bytes > BLOCK / 4;
        const size_t room = is_large ? (size_t)bytes : BLOCK;
        a->is_full = room > a->limit - a->n_byte;
        struct arena_block *block = a->is_full ? NULL : calloc(1, sizeof *block + room);
        if (!block) return NULL;
        a->n_byte += room;
        /* a large piece has its own block, behind the one that is being filled */
        struct arena_block **at = is_large && a->blocks ? &a->blocks->next : &a->blocks;
        block->next = *at;
        *at = block;
        if (is_large) return block->data;
        a->n_free = room;
    }
    a->n_free -= (size_t)bytes;
    return a->blocks->data + a->n_free;
}

void arena_free(struct arena *a) {
    for (struct arena_block *block = a->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *a = (struct arena){.limit = a->limit};
}

#ifndef PLUMB_ARENA_H
#define PLUMB_ARENA_H

#include "base/base.h"

/* Memory that is freed at once.  Begins as {.limit = bytes}. */
struct arena {
    struct arena_block *blocks;   /* the first has n_free bytes left */
    size_t n_free, n_byte, limit; /* n_byte: of all blocks */
    bool is_full;                 /* the last failure is due to the limit */
};
/* Zeroed memory for n elements.  NULL if out of memory, or beyond the limit. */
void *arena_alloc(struct arena *a, uint64_t n, size_t size);
void arena_free(struct arena *a);

#endif

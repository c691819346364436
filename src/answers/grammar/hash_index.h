/* A hash index of the elements of an array, with open addressing and at most half full.  A slot has the number of an
 * element + 1; it is 0 if it is free. */
#ifndef PLUMB_HASH_INDEX_H
#define PLUMB_HASH_INDEX_H

#include "base/base.h"

struct hash_index {
    uint32_t *slots;
    size_t n_slot;   /* a power of 2; 0 before the first element */
};

/* FNV-1a. */
static inline uint64_t hash_bytes(const void *bytes, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 16777619u;
    return h ^ h >> 15;
}

/* Makes room for one more element.  There are n, with the hashes hash(user, i).  Returns false if out of memory; the
 * index is as before then.  The caller frees slots. */
bool hash_index_reserve(struct hash_index *index, size_t n, uint64_t (*hash)(const void *user, size_t i),
                        const void *user);
/* The slot at which the search for an element begins, and the one at which it goes on.  It ends at a free slot. */
static inline size_t hash_index_first(const struct hash_index *index, uint64_t hash) {
    return (size_t)hash & (index->n_slot - 1);
}
static inline size_t hash_index_next(const struct hash_index *index, size_t slot) {
    return (slot + 1) & (index->n_slot - 1);
}

#endif

/* Compiled for speed. */
#include "grammar/hash_index.h"

#include <stdlib.h>

bool hash_index_reserve(struct hash_index *index, size_t n, uint64_t (*hash)(const void *user, size_t i),
                        const void *user) {
    if (2 * n < index->n_slot) return true;
    struct hash_index larger = { .n_slot = index->n_slot > 0 ? 2 * index->n_slot : 64 };
    larger.slots = calloc(larger.n_slot, sizeof *larger.slots);
    if (!larger.slots) return false;
    for (size_t i = 0; i < n; i++) {
        size_t slot = hash_index_first(&larger, hash(user, i));
        while (larger.slots[slot] != 0) slot = hash_index_next(&larger, slot);
        larger.slots[slot] = (uint32_t)i + 1;
    }
    free(index->slots);
    *index = larger;
    return true;
}

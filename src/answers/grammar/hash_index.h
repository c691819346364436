/* Tables that have each element once, with open addressing and at most half full. */
#ifndef PLUMB_HASH_INDEX_H
#define PLUMB_HASH_INDEX_H

#include "base/base.h"

/* The elements of an array by their hashes.  A slot has the number of an element + 1; it is 0 if it is free. */
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

/* Sequences of integers, each once.  The ids count from 0.  Begins as {0}. */
struct sequences {
    uint64_t *items;
    size_t n_item, cap_item;
    size_t *begin;                  /* (n + 1) */
    size_t n, cap;
    struct hash_index index;
};
/* Returns the id of a sequence, UINT32_MAX if out of memory. */
uint32_t sequences_find(struct sequences *s, const uint64_t *items, size_t n);
void sequences_free(struct sequences *s);

/* Keys that are numbered from 0, in the order in which they are added.  Begins as {0}; the caller frees slots. */
struct key_set {
    struct key_slot { uint64_t key; uint32_t round, number; } *slots;   /* those of other rounds are free */
    size_t n_slot, n;
    uint32_t round;
};
/* Removes all keys; also called before the first one. */
void key_set_clear(struct key_set *set);
bool key_set_grow(struct key_set *set);
static inline size_t key_set_first(const struct key_set *set, uint64_t key) {
    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (set->n_slot - 1);
}
/* Returns the number of a key, which is added if it is new; UINT32_MAX if out of memory. */
static inline uint32_t key_set_number(struct key_set *set, uint64_t key) {
    if (2 * set->n >= set->n_slot && !key_set_grow(set)) return UINT32_MAX;
    size_t i = key_set_first(set, key);
    for (; set->slots[i].round == set->round; i = (i + 1) & (set->n_slot - 1)) {
        if (set->slots[i].key == key) return set->slots[i].number;
    }
    set->slots[i] = (struct key_slot){ key, set->round, (uint32_t)set->n };
    return (uint32_t)set->n++;
}

#endif

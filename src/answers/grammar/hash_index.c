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

/* ---- sequences --------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint64_t *items, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = (h ^ items[i]) * 0x9e3779b97f4a7c15u ^ h >> 29;
    return h ^ h >> 32;
}

static uint64_t hash_sequence(const void *user, size_t id) {
    const struct sequences *s = user;
    return hash_of(s->items + s->begin[id], s->begin[id + 1] - s->begin[id]);
}

static bool sequences_grow(struct sequences *s, size_t n) {
    if (!ARRAY_RESERVE(s->items, s->n_item, n + 1, &s->cap_item)) return false;   /* never NULL */
    if (!ARRAY_RESERVE(s->begin, s->n, 2, &s->cap)) return false;
    s->begin[0] = 0;
    return hash_index_reserve(&s->index, s->n, hash_sequence, s);
}

uint32_t sequences_find(struct sequences *s, const uint64_t *items, size_t n) {
    if (!sequences_grow(s, n)) return UINT32_MAX;
    size_t slot = hash_index_first(&s->index, hash_of(items, n));
    for (; s->index.slots[slot] != 0; slot = hash_index_next(&s->index, slot)) {
        size_t id = s->index.slots[slot] - 1, begin = s->begin[id];
        if (s->begin[id + 1] - begin == n && (n == 0 || memcmp(s->items + begin, items, n * sizeof *items) == 0)) {
            return (uint32_t)id;
        }
    }
    if (n > 0) memcpy(s->items + s->n_item, items, n * sizeof *items);
    s->n_item += n;
    s->begin[s->n + 1] = s->n_item;
    s->index.slots[slot] = (uint32_t)++s->n;
    return (uint32_t)s->n - 1;
}

void sequences_free(struct sequences *s) {
    free(s->items);
    free(s->begin);
    free(s->index.slots);
    *s = (struct sequences){0};
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

void key_set_clear(struct key_set *set) {
    set->n = 0;
    if (++set->round != 0) return;
    set->round = 1;
    memset(set->slots, 0, set->n_slot * sizeof *set->slots);
}

bool key_set_grow(struct key_set *set) {
    struct key_set larger = { .n_slot = set->n_slot > 0 ? 2 * set->n_slot : 64, .round = 1 };
    larger.slots = calloc(larger.n_slot, sizeof *larger.slots);
    if (!larger.slots) return false;
    for (size_t i = 0; i < set->n_slot; i++) {
        struct key_slot old = set->slots[i];
        if (old.round != set->round) continue;
        size_t at = key_set_first(&larger, old.key);
        while (larger.slots[at].round != 0) at = (at + 1) & (larger.n_slot - 1);
        larger.slots[at] = (struct key_slot){ old.key, 1, old.number };
    }
    larger.n = set->n;
    free(set->slots);
    *set = larger;
    return true;
}

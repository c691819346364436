#include "forward/snapshots.h"

#include <stdlib.h>

uint32_t snapshots_max(uint64_t size, uint32_t wanted) {
    if (size == 0) return 0;
    uint64_t n = SNAPSHOTS_BYTES / sizeof(float) / size;
    if (wanted > 0) n = wanted;
    else if (n > SNAPSHOTS_MAX) n = SNAPSHOTS_MAX;
    return n < 2 ? 2 : n > PLUMB_MAX_SNAPSHOTS ? PLUMB_MAX_SNAPSHOTS : (uint32_t)n;
}

void snapshots_init(struct snapshots *s, uint64_t size, uint32_t wanted) {
    *s = (struct snapshots) { .size = size, .max = snapshots_max(size, wanted) };
}

void snapshots_free(struct snapshots *s) {
    for (uint32_t i = 0; i < PLUMB_MAX_SNAPSHOTS; i++) shared_leave(&s->copies[i]);
}

/* Returns entry i, with memory that no other list has; NULL: there is none. */
static struct shared *own(struct snapshots *s, uint32_t i) {
    uint64_t n;
    if (s->copies[i] && s->copies[i]->n_owner == 1) return s->copies[i];
    shared_leave(&s->copies[i]);
    return s->copies[i] = mul_u64(s->size, sizeof(float), &n) ? shared_create(n) : NULL;
}

bool snapshots_reserve(struct snapshots *s) {
    for (uint32_t i = s->n; i < s->max; i++) {
        if (!own(s, i)) return false;
    }
    return true;
}

void snapshots_trim(struct snapshots *s) {
    for (uint32_t i = s->n; i < PLUMB_MAX_SNAPSHOTS; i++) shared_leave(&s->copies[i]);
}

uint64_t snapshots_held(const struct snapshots *s) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < PLUMB_MAX_SNAPSHOTS; i++) n += s->copies[i] ? s->size * sizeof(float) : 0;
    return n;
}

/* The entry of the copy that leaves the smallest gap goes to the end of the list. */
static void drop_one(struct snapshots *s) {
    uint32_t least = 0, gap = UINT32_MAX;
    for (uint32_t i = 0; i + 1 < s->n; i++) {
        uint32_t before = i > 0 ? s->at[i - 1] : 0;
        if (s->at[i + 1] - before >= gap) continue;
        gap = s->at[i + 1] - before;
        least = i;
    }
    struct shared *dropped = s->copies[least];
    s->n--;
    memmove(s->at + least, s->at + least + 1, (s->n - least) * sizeof *s->at);
    memmove(s->copies + least, s->copies + least + 1, (s->n - least) * sizeof *s->copies);
    s->copies[s->n] = dropped;
}

float *snapshots_add(struct snapshots *s, uint32_t n) {
    while (s->n >= s->max) drop_one(s);   /* those of a list with more were shared */
    if (!own(s, s->n)) return NULL;
    s->at[s->n++] = n;
    return snapshots_values(s, s->n - 1);
}

uint32_t snapshots_before(const struct snapshots *s, uint32_t n) {
    uint32_t i = s->n;
    while (i > 0 && s->at[i - 1] > n) i--;
    return i > 0 ? s->at[i - 1] : 0;
}

const float *snapshots_back(struct snapshots *s, uint32_t n) {
    while (s->n > 0 && s->at[s->n - 1] > n) s->n--;
    return s->n > 0 && s->at[s->n - 1] == n ? snapshots_values(s, s->n - 1) : NULL;
}

void snapshots_share(struct snapshots *to, const struct snapshots *from, uint32_t n) {
    to->n = 0;
    for (uint32_t i = 0; i < from->n && from->at[i] <= n; i++) {
        from->copies[i]->n_owner++;
        shared_leave(&to->copies[i]);
        to->copies[i] = from->copies[i];
        to->at[to->n++] = from->at[i];
    }
}

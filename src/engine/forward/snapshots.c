#include "forward/snapshots.h"

#include <stdlib.h>

uint32_t snapshots_max(uint64_t size) {
    if (size == 0) return 0;
    uint64_t n = SNAPSHOTS_BYTES / sizeof(float) / size;
    return n < 2 ? 2 : n > SNAPSHOTS_MAX ? SNAPSHOTS_MAX : (uint32_t)n;
}

bool snapshots_create(struct snapshots *s, uint64_t size, uint64_t *bytes) {
    *s = (struct snapshots){ .size = size, .max = snapshots_max(size) };
    for (uint32_t i = 0; i < s->max; i++) {
        if (!(s->values[i] = alloc_array(size, sizeof **s->values))) return false;
        *bytes += size * sizeof **s->values;
    }
    return true;
}

void snapshots_free(struct snapshots *s) {
    for (uint32_t i = 0; i < SNAPSHOTS_MAX; i++) free(s->values[i]);
}

float *snapshots_add(struct snapshots *s, uint32_t n) {
    if (s->n == s->max) {
        uint32_t least = 0, gap = UINT32_MAX;
        for (uint32_t i = 0; i + 1 < s->n; i++) {
            uint32_t before = i > 0 ? s->at[i - 1] : 0;
            if (s->at[i + 1] - before >= gap) continue;
            gap = s->at[i + 1] - before;
            least = i;
        }
        float *freed = s->values[least];
        s->n--;
        memmove(s->at + least, s->at + least + 1, (s->n - least) * sizeof *s->at);
        memmove(s->values + least, s->values + least + 1, (s->n - least) * sizeof *s->values);
        s->values[s->n] = freed;
    }
    s->at[s->n] = n;
    return s->values[s->n++];
}

uint32_t snapshots_before(const struct snapshots *s, uint32_t n) {
    uint32_t i = s->n;
    while (i > 0 && s->at[i - 1] > n) i--;
    return i > 0 ? s->at[i - 1] : 0;
}

const float *snapshots_back(struct snapshots *s, uint32_t n) {
    while (s->n > 0 && s->at[s->n - 1] > n) s->n--;
    return s->n > 0 && s->at[s->n - 1] == n ? s->values[s->n - 1] : NULL;
}

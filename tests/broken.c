#include "broken.h"

#include "fixture.h"
#include "test.h"

#include <stdlib.h>

bool broken_read(struct broken *b, const char *path) {
    memset(b, 0, sizeof *b);
    b->bytes = test_read_all(path, &b->n);
    b->good = b->bytes ? broken_load(b) : NULL;
    return CHECK(b->good && plumb_model_end(b->good) == PLUMB_OK, "%s: %s", path,
                 b->good ? plumb_model_error(b->good) : "no file");
}

void broken_free(struct broken *b) {
    plumb_model_free(b->good);
    free(b->bytes);
    memset(b, 0, sizeof *b);
}

uint8_t *broken_data(struct broken *b, const char *name, size_t *n_bytes) {
    plumb_tensor t;
    for (uint64_t i = 0; plumb_model_tensor(b->good, i, &t) == PLUMB_OK; i++) {
        if (strcmp(t.name, name) != 0) continue;
        if (n_bytes) *n_bytes = (size_t)t.n_bytes;
        return b->bytes + t.offset;
    }
    CHECK(false, "no tensor %s", name);
    return NULL;
}

uint8_t *broken_entry(struct broken *b, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 8; i + n <= b->n; i++) {
        if (load_u64(b->bytes + i - 8) == n && memcmp(b->bytes + i, name, n) == 0) return b->bytes + i + n;
    }
    CHECK(false, "no tensor %s", name);
    return NULL;
}

void broken_rename(struct broken *b, const char *name, const char *other) {
    uint8_t *end = broken_entry(b, name);
    size_t n = strlen(name);
    if (end && CHECK(strlen(other) == n, "names of one length")) memcpy(end - n, other, n);
}

plumb_model *broken_load(const struct broken *b) {
    plumb_model *m = plumb_model_create();
    if (CHECK(m && plumb_model_begin(m, PLUMB_SIZE_UNKNOWN) == PLUMB_OK
              && fixture_give(m, b->bytes, 0, b->n, SIZE_MAX) == PLUMB_OK, "%s",
              m ? plumb_model_error(m) : "out of memory")) return m;
    plumb_model_free(m);
    return NULL;
}

float broken_f32(const uint8_t *data, size_t i) { return f32_from_bits(load_u32(data + 4 * i)); }

void broken_set_f32(uint8_t *data, size_t i, float value) {
    uint32_t bits = f32_to_bits(value);
    for (size_t k = 0; k < 4; k++) data[4 * i + k] = (uint8_t)(bits >> 8 * k);
}

void broken_scale(struct broken *b, const char *name, float by, float offset) {
    size_t n = 0;
    uint8_t *data = broken_data(b, name, &n);
    for (size_t i = 0; data && i < n / 4; i++) broken_set_f32(data, i, broken_f32(data, i) * by + offset);
}

void broken_reverse_shape(struct broken *b, const char *name) {
    uint8_t *entry = broken_entry(b, name), first[8];
    if (!entry) return;
    memcpy(first, entry + 4, 8);
    memcpy(entry + 4, entry + 12, 8);
    memcpy(entry + 12, first, 8);
}

/* Files broken on purpose, for tests of reports that must detect it: the bytes of a good file, changed in place. */
#ifndef PLUMB_TESTS_BROKEN_H
#define PLUMB_TESTS_BROKEN_H

#include "base/base.h"

struct broken {
    uint8_t *bytes;
    size_t n;
    plumb_model *good;   /* loaded from the original bytes */
};

/* false and a failed check if there is no such file. */
bool broken_read(struct broken *b, const char *path);
void broken_free(struct broken *b);
/* The data of a tensor, and its directory entry after the name: n_dims u32, shape u64 each, type u32, offset u64.
 * Fails the case and returns NULL if there is no tensor with this name. */
uint8_t *broken_data(struct broken *b, const char *name, size_t *n_bytes);
uint8_t *broken_entry(struct broken *b, const char *name);
/* Changes the name of a tensor in the directory to another of the same length. */
void broken_rename(struct broken *b, const char *name, const char *other);
/* A model that has been given all bytes, before plumb_model_end. */
plumb_model *broken_load(const struct broken *b);

/* f32 values in a file. */
float broken_f32(const uint8_t *data, size_t i);
void broken_set_f32(uint8_t *data, size_t i, float value);
/* All values of an F32 tensor become value * by + offset. */
void broken_scale(struct broken *b, const char *name, float by, float offset);
/* Exchanges the two dimensions of a tensor, not its data. */
void broken_reverse_shape(struct broken *b, const char *name);

#endif

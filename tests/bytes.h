/* A growing row of little-endian bytes, for tests that write GGUF files.  Zero-initialize; free data. */
#ifndef PLUMB_TESTS_BYTES_H
#define PLUMB_TESTS_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct bytes { uint8_t *data; size_t n, capacity; };

/* Ends the program when memory runs out. */
static inline void put(struct bytes *b, const void *data, size_t n) {
    if (n > b->capacity - b->n) {
        b->capacity = 2 * (b->n + n) + 64;
        b->data = realloc(b->data, b->capacity);
        if (b->data == NULL) abort();
    }
    if (n != 0) memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void put_number(struct bytes *b, uint64_t value, size_t size) {
    uint8_t little[8];
    for (size_t i = 0; i < size; i++) little[i] = (uint8_t)(value >> 8 * i);
    put(b, little, size);
}

/* A plumb_write that appends to struct bytes, and a plumb_read from struct source. */
static inline void keep_bytes(void *user, const char *bytes, size_t n) { put(user, bytes, n); }

struct source { const uint8_t *bytes; size_t n, at; };

static inline size_t give_bytes(void *user, void *bytes, size_t n) {
    struct source *from = user;
    if (n > from->n - from->at) n = from->n - from->at;
    if (n > 0) memcpy(bytes, from->bytes + from->at, n);
    from->at += n;
    return n;
}

/* GGUF's string: its length as u64, and the bytes. */
static inline void put_string(struct bytes *b, const char *text, size_t n) {
    put_number(b, n, 8);
    put(b, text, n);
}

/* What precedes the value of a key: its name and type.  Does not count it in the header. */
static inline void put_key(struct bytes *b, const char *name, uint32_t type) {
    put_string(b, name, strlen(name));
    put_number(b, type, 4);
}

#endif

#include "base/base.h"

#include <stdlib.h>

void *alloc_array(uint64_t n, size_t size) {
    uint64_t bytes;
    if (!mul_u64(n, size, &bytes) || (size_t)bytes != bytes) return NULL;
    return malloc(bytes == 0 ? 1 : (size_t)bytes);   /* malloc(0) may be NULL, which would look like a failure */
}

bool alloc_resize(void *array, uint64_t n, size_t size) {
    uint64_t bytes;
    void *data;
    if (!mul_u64(n, size, &bytes) || (size_t)bytes != bytes) return false;
    memcpy(&data, array, sizeof data);
    data = realloc(data, (size_t)bytes);
    if (data) memcpy(array, &data, sizeof data);
    return data != NULL;
}

/* The same, unless it has room for n elements. */
static bool enlarge(void *array, uint64_t n, uint64_t larger, size_t *cap, size_t size) {
    if (n <= *cap) return true;
    if (!alloc_resize(array, larger, size)) return false;
    *cap = (size_t)larger;
    return true;
}

bool alloc_grow(void *array, size_t n, size_t *cap, size_t size) {
    return enlarge(array, (uint64_t)n + 1, 2 * (uint64_t)*cap + 4, cap, size);
}

bool alloc_reserve(void *array, size_t n, uint64_t more, size_t *cap, size_t size) {
    return enlarge(array, n + more, 2 * (uint64_t)*cap + more + 64, cap, size);
}

#include "base/base.h"

#include <stdlib.h>

void *alloc_array(uint64_t n, size_t size) {
    uint64_t bytes;
    if (!mul_u64(n, size, &bytes) || (size_t)bytes != bytes) return NULL;
    return malloc(bytes == 0 ? 1 : (size_t)bytes);   /* malloc(0) may be NULL, which would look like a failure */
}

void *alloc_grow(void *array, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return array;
    uint64_t more = 2 * (uint64_t)*cap + 4, bytes;
    if (!mul_u64(more, size, &bytes) || (size_t)bytes != bytes) return NULL;
    void *larger = realloc(array, (size_t)bytes);
    if (larger) *cap = (size_t)more;
    return larger;
}

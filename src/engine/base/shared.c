#include "base/shared.h"

#include <stdlib.h>

struct shared *shared_create(uint64_t n) {
    struct shared *s = n > SIZE_MAX - sizeof *s ? NULL : malloc(sizeof *s + (size_t)n);
    if (s) s->n_owner = 1;
    return s;
}

void shared_leave(struct shared **at) {
    if (*at && --(*at)->n_owner == 0) free(*at);
    *at = NULL;
}

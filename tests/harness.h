/* The part of the harness that only tests/main.c needs, beyond tests/test.h. */
#ifndef PLUMB_HARNESS_H
#define PLUMB_HARNESS_H

#include <stdbool.h>
#include <stddef.h>

enum { HARNESS_MAX_FILTERS = 2048 };
struct harness_selection {
    const char *const *filters;  /* cases whose name contains one of these, up to the first NULL; NULL: all cases */
    unsigned part, parts;        /* every `parts`-th of the others, from the `part`-th, which counts from 1; or 0 */
    unsigned every;              /* makes every third repetition (test_repeats), say; 1: all */
};
/* Runs the n rooms' test functions, printing TAP.  Returns 0 if a case ran, every filter matched, and none failed;
 * else 1. */
int harness_run(struct harness_selection wanted, void (*const rooms[])(void), size_t n);

#endif

/* What tests/main.c needs of the harness beyond tests/test.h. */
#ifndef PLUMB_HARNESS_H
#define PLUMB_HARNESS_H

#include <stddef.h>

/* Runs the n rooms' test functions, printing TAP.  filter: runs only the cases whose name contains it, NULL for all.
 * Returns 0 if at least one case ran and none failed, else 1. */
int harness_run(const char *filter, void (*const rooms[])(void), size_t n);

#endif

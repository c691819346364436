/* The part of the harness that only tests/main.c needs, beyond tests/test.h. */
#ifndef PLUMB_HARNESS_H
#define PLUMB_HARNESS_H

#include <stddef.h>

enum { HARNESS_MAX_FILTERS = 2048 };
/* Runs the n rooms' test functions, printing TAP.  filters: runs only the cases whose name contains one of them, up to
 * the first NULL; NULL for all cases.  Returns 0 if a case ran, every filter matched, and none failed; else 1. */
int harness_run(const char *const *filters, void (*const rooms[])(void), size_t n);
/* The same with the cases whose name contains one of the texts of `always`, and with every `parts`-th of the others,
 * from the one with the number `part`, which counts from 1: so the runs of all parts run every case. */
int harness_run_part(unsigned part, unsigned parts, const char *const *always, void (*const rooms[])(void), size_t n);

#endif

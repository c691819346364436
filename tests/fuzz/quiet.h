/* Captures standard output and standard error in memory while a part of the command line runs, so that a fuzz target
 * can read the output and the TAP of a replay stays clean.  Sanitizers report to the real standard error. */
#ifndef PLUMB_FUZZ_QUIET_H
#define PLUMB_FUZZ_QUIET_H

#include <stddef.h>

/* The output: n bytes and a 0, truncated to the buffer. */
struct said {
    char out[1 << 16], err[1 << 14];
    size_t n_out, n_err;
};

void quiet_begin(void);
void quiet_end(struct said *said);

#endif

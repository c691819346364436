/* Standard output and standard error kept in memory while a part of the command line runs, so that a fuzz target can
 * read what was said and the TAP of a replay stays clean.  Sanitizers report to the real standard error. */
#ifndef PLUMB_FUZZ_QUIET_H
#define PLUMB_FUZZ_QUIET_H

#include <stddef.h>

/* What was written: n bytes and a 0; of more than the buffer the first. */
struct said {
    char out[1 << 16], err[1 << 14];
    size_t n_out, n_err;
};

void quiet_begin(void);
void quiet_end(struct said *said);

#endif

/* What every fuzz target has. */
#ifndef PLUMB_FUZZ_FUZZ_H
#define PLUMB_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Called by libFuzzer, or by replay.c, with one input after the other.  Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program where a condition that must hold for every input does not. */
static inline void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s: %s\n", __BASE_FILE__, what);
    abort();
}

#endif

/* The interface of every fuzz target. */
#ifndef PLUMB_FUZZ_FUZZ_H
#define PLUMB_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* libFuzzer or replay.c calls this with one input after another.  Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program if a condition that must hold for every input does not hold. */
static inline void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s: %s\n", __BASE_FILE__, what);
    abort();
}

#endif

/* The interface of every fuzz target. */
#ifndef PLUMB_FUZZ_FUZZ_H
#define PLUMB_FUZZ_FUZZ_H

#include <plumb.h>

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

/* Loads a model that is not split; it must load. */
static inline plumb_model *read_model(const char *path) {
    plumb_model *m = plumb_model_create();
    FILE *file = fopen(path, "rb");
    require(m && file, path);
    require(plumb_model_begin(m, PLUMB_SIZE_UNKNOWN) == PLUMB_OK, path);
    for (;;) {
        void *data;
        size_t n;
        require(plumb_model_window(m, &data, &n) == PLUMB_OK, path);
        n = n > 0 ? fread(data, 1, n, file) : 0;
        if (n == 0) break;
        require(plumb_model_commit(m, n) == PLUMB_OK, path);
    }
    fclose(file);
    require(plumb_model_end(m) == PLUMB_OK, path);
    return m;
}

#endif

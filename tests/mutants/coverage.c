/* Which code each case of the C tests runs, for tests/mutants/native.mjs: linked into a test program whose engine is
 * compiled with -fsanitize-coverage=trace-pc, and with --wrap for the functions of the harness that run a case.
 *
 * Writes to the file that $PLUMB_COVERAGE names, a line per case: its name, the milliseconds that it took, and the
 * offsets, in hexadecimal, of the blocks that it ran.  They are separated by tabs. */
#define _POSIX_C_SOURCE 200809L
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern const char __executable_start[], etext[];

static uint8_t *ran;   /* one byte per byte of code */
static size_t n_ran;
static FILE *out;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
    const uintptr_t at = (uintptr_t)__builtin_return_address(0) - 1 - (uintptr_t)__executable_start;
    if (at < n_ran) ran[at] = 1;
}

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double begun;

static void begin(void) {
    if (!out) {
        n_ran = (size_t)(etext - __executable_start);
        ran = malloc(n_ran);
        out = fopen(getenv("PLUMB_COVERAGE"), "w");
        if (!ran || !out) abort();
    }
    memset(ran, 0, n_ran);
    begun = milliseconds();
}

static void end(const char *name) {
    bool any = false;
    for (size_t i = 0; i < n_ran && !any; i++) any = ran[i];
    if (!any) return;   /* skipped by a filter, or runs no code of the engine */
    fprintf(out, "%s\t%.1f", name, milliseconds() - begun);
    for (size_t i = 0; i < n_ran; i++)
        if (ran[i]) fprintf(out, "\t%zx", i);
    fputc('\n', out);
    fflush(out);
}

void __real_test_case(const char *name, void (*run)(void));
void __wrap_test_case(const char *name, void (*run)(void));
void __wrap_test_case(const char *name, void (*run)(void)) {
    begin();
    __real_test_case(name, run);
    end(name);
}

void __real_test_row(const char *name, void (*run)(const void *row), const void *row);
void __wrap_test_row(const char *name, void (*run)(const void *row), const void *row);
void __wrap_test_row(const char *name, void (*run)(const void *row), const void *row) {
    begin();
    __real_test_row(name, run, row);
    end(name);
}

void __wrap_test_rows(const char *prefix, void (*run)(const void *row), const void *rows, size_t n, size_t size);
void __wrap_test_rows(const char *prefix, void (*run)(const void *row), const void *rows, size_t n, size_t size) {
    for (size_t i = 0; i < n; i++) {
        const void *row = (const char *)rows + i * size;
        char name[256];
        snprintf(name, sizeof name, "%s%s", prefix, *(const char *const *)row);
        __wrap_test_row(name, run, row);
    }
}

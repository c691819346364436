/* The C test harness.  One program holds every room's tests and runs on every host: native (with sanitizers), Node,
 * Chromium (the Emscripten module in a worker) and wasmtime (WASI).  Output is TAP.
 *
 * A test file tests/<room>_test.c exports one function, test_<room>, that calls test_case for each of its cases; it is
 * listed in tests/main.c.  A case that checked nothing fails.
 */
#ifndef PLUMB_TEST_H
#define PLUMB_TEST_H

#include "base/base.h"

/* Runs the case and prints its TAP line, "room: what holds".  The name gives the ground truth if that is not obvious:
 * "quant: Q4_K equals gguf-py bit for bit". */
void test_case(const char *name, void (*run)(void));
/* The same with an argument, for table rows. */
void test_row(const char *name, void (*run)(const void *row), const void *row);
/* Runs a case for each row of an array of structs that begin with a name; the case is called prefix + name. */
#define TEST_ROWS(prefix, run, rows) test_rows(prefix, run, rows, sizeof(rows) / sizeof *(rows), sizeof *(rows))
void test_rows(const char *prefix, void (*run)(const void *row), const void *rows, size_t n, size_t size);

/* Whether to make the i-th of the proofs in a case, or of the cases, that differ in their data only.  In `make test`
 * the release build in Node makes all, other hosts and builds with sanitizers a sample (tests/main.c). */
bool test_repeats(size_t i);
/* TEST_ROWS for rows that differ in their data only. */
#define TEST_REPEATED_ROWS(prefix, run, rows) \
    test_repeated_rows(prefix, run, rows, sizeof(rows) / sizeof *(rows), sizeof *(rows))
void test_repeated_rows(const char *prefix, void (*run)(const void *row), const void *rows, size_t n, size_t size);

/* Counts a check; on failure prints file, line and the printf-like explanation with the numbers, and continues. */
#define CHECK(condition, ...) test_check((condition), __FILE__, __LINE__, #condition, __VA_ARGS__)
/* Like CHECK, but leaves the case on failure. */
#define REQUIRE(condition, ...)                       \
    do {                                              \
        if (!CHECK(condition, __VA_ARGS__)) return;   \
    } while (0)
#if defined(__GNUC__)
__attribute__((format(printf, 5, 6)))
#endif
bool test_check(bool condition, const char *file, int line, const char *text, const char *format, ...);

/* The larger of two errors.  NaN is the largest: fmax would ignore it, and a NaN result would count as right. */
static inline double worse(double worst, double error) { return worst >= error || worst != worst ? worst : error; }

/* Prints a TAP comment with figures that are useful even if the case passes. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void test_note(const char *format, ...);

/* Reads up to n bytes at offset of a file of the checkout ("tests/vectors/quant/Q4_0.bin"), on every host.  Returns
 * how many were read, -1 if there is no such file. */
int64_t test_read(const char *path, uint64_t offset, void *dst, size_t n);
/* The whole file, n bytes and a 0; the caller frees it.  Fails the case and returns NULL if there is no such file. */
void *test_read_all(const char *path, size_t *n);

#endif

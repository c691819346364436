/* The harness behind tests/test.h: runs cases, counts checks, prints TAP, reads files.
 *
 * A native or WASI program prints to stdout and reads with stdio.  Paths are relative to the working directory, which
 * must be the root of the checkout.  The Emscripten module has neither: its host gives two functions (tests/hosts/). */
#define _POSIX_C_SOURCE 200809L  /* fseeko: files beyond 2 GB */
#include "harness.h"
#include "test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    struct harness_selection wanted;
    bool matched[HARNESS_MAX_FILTERS];
    unsigned n_others;           /* cases that no filter names */
    unsigned n_case, n_failed;
    unsigned n_check, n_bad;  /* of the current case */
} harness;

#if defined(__EMSCRIPTEN__)
__attribute__((import_module("env"), import_name("test_print"))) void host_print(const char *text, size_t n);
__attribute__((import_module("env"), import_name("test_read")))
int64_t host_read(const char *path, size_t path_len, uint64_t offset, void *dst, size_t n);
#else
static void host_print(const char *text, size_t n) {
    fwrite(text, 1, n, stdout);
    fflush(stdout);  /* output before a crash must be visible */
}

static int64_t host_read(const char *path, size_t path_len, uint64_t offset, void *dst, size_t n) {
    (void)path_len;
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    int64_t got = -1;
    if (offset <= INT64_MAX && fseeko(file, (off_t)offset, SEEK_SET) == 0) got = (int64_t)fread(dst, 1, n, file);
    fclose(file);
    return got;
}
#endif

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
static void print(const char *format, ...) {
    char line[2048];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0) return;
    if ((size_t)n >= sizeof line) {
        n = (int)sizeof line - 1;
        line[n - 1] = '\n';
    }
    host_print(line, (size_t)n);
}

static void case_begin(void) { harness.n_check = harness.n_bad = 0; }

static bool case_wanted(const char *name) {
    const struct harness_selection *w = &harness.wanted;
    if (!w->filters) return true;
    bool wanted = false;
    for (size_t i = 0; w->filters[i] && i < HARNESS_MAX_FILTERS; i++) {
        if (!strstr(name, w->filters[i])) continue;
        harness.matched[i] = wanted = true;
    }
    return wanted || (w->parts && harness.n_others++ % w->parts == w->part - 1);
}

bool test_repeats(size_t i) { return i % harness.wanted.every == 0; }

static void case_end(const char *name) {
    if (harness.n_check == 0) {
        print("# the case checked nothing\n");
        harness.n_bad++;
    }
    if (harness.n_bad) harness.n_failed++;
    print("%sok %u - %s\n", harness.n_bad ? "not " : "", ++harness.n_case, name);
}

void test_case(const char *name, void (*run)(void)) {
    if (!case_wanted(name)) return;
    case_begin();
    run();
    case_end(name);
}

void test_row(const char *name, void (*run)(const void *row), const void *row) {
    if (!case_wanted(name)) return;
    case_begin();
    run(row);
    case_end(name);
}

static void named_row(const char *prefix, void (*run)(const void *row), const char *row) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", prefix, *(const char *const *)(const void *)row);
    test_row(name, run, row);
}

void test_rows(const char *prefix, void (*run)(const void *row), const void *rows, size_t n, size_t size) {
    for (size_t i = 0; i < n; i++) named_row(prefix, run, (const char *)rows + i * size);
}

void test_repeated_rows(const char *prefix, void (*run)(const void *row), const void *rows, size_t n, size_t size) {
    for (size_t i = 0; i < n; i++) {
        if (test_repeats(i)) named_row(prefix, run, (const char *)rows + i * size);
    }
}

bool test_check(bool condition, const char *file, int line, const char *text, const char *format, ...) {
    enum { SHOWN = 10 };  /* failures shown per case: a wrong kernel fails at every element */
    harness.n_check++;
    if (condition) return true;
    harness.n_bad++;
    if (harness.n_bad > SHOWN) return false;
    char why[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    for (char *c = why; *c; c++)
        if (*c == '\n') *c = ' ';  /* a TAP comment is one line */
    print("# %s:%d: %s: %s\n", file, line, text, why);
    if (harness.n_bad == SHOWN) print("# further failures of this case are not shown\n");
    return false;
}

void test_note(const char *format, ...) {
    char note[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(note, sizeof note, format, args);
    va_end(args);
    print("# %s\n", note);
}

int64_t test_read(const char *path, uint64_t offset, void *dst, size_t n) {
    return host_read(path, strlen(path), offset, dst, n);
}

void *test_read_all(const char *path, size_t *n) {
    size_t len = 0, cap = 1 << 16;
    char *data = malloc(cap + 1);
    int64_t got = -1;
    while (data && (got = test_read(path, len, data + len, cap - len)) > 0) {
        len += (size_t)got;
        if (len < cap) continue;
        char *grown = cap < SIZE_MAX / 4 ? realloc(data, cap * 2 + 1) : NULL;
        if (!grown) free(data);
        data = grown;
        cap *= 2;
    }
    CHECK(data, "%s: out of memory at %lu bytes", path, (unsigned long)len);
    CHECK(got >= 0, "%s: cannot be read", path);
    if (data && got >= 0) {
        data[len] = 0;
        *n = len;
        return data;
    }
    free(data);
    return NULL;
}

int harness_run(struct harness_selection wanted, void (*const rooms[])(void), size_t n) {
    const char *const *filters = wanted.filters;
    memset(&harness, 0, sizeof harness);
    harness.wanted = wanted;
    print("TAP version 13\n");
    for (size_t i = 0; i < n; i++) rooms[i]();
    for (size_t i = 0; filters && filters[i] && i < HARNESS_MAX_FILTERS; i++) {
        if (harness.matched[i]) continue;
        harness.n_failed++;
        print("not ok %u - no case has \"%s\" in its name\n", ++harness.n_case, filters[i]);
    }
    print("1..%u\n", harness.n_case);
    return harness.n_failed || !harness.n_case ? 1 : 0;
}

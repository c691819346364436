/* The test program: the list of the rooms that have tests, in the order the data flows. */
#include "harness.h"

#include <string.h>

/* TODO weak until every room has landed */
#define ROOMS(X) \
    X(base) X(gguf) X(quant) X(kernels_unpack) X(kernels) X(tokenizer) X(text) X(sampler) X(model) X(forward) X(session)

#define DECLARE(room) void test_##room(void) __attribute__((weak));
ROOMS(DECLARE)
static void none(void) {}
#define ENTRY(room) test_##room ? test_##room : none,

/* The truth room takes a release build and a minute: it runs only when it is asked for. */
void test_truth(void) __attribute__((weak));

int test_main(void);
static int run(const char *filter) {
    void (*const truth[])(void) = {test_truth ? test_truth : none};
    if (filter && strncmp(filter, "truth", 5) == 0) return harness_run(filter, truth, 1);
    void (*const rooms[])(void) = {ROOMS(ENTRY)};
    return harness_run(filter, rooms, sizeof rooms / sizeof rooms[0]);
}

#if defined(__EMSCRIPTEN__)
/* The module's only export of our own: its host calls it and reads the TAP. */
int test_main(void) { return run(NULL); }
#else
/* `tests` runs everything, `tests TEXT` the cases whose name contains TEXT. */
int main(int argc, char **argv) { return run(argc > 1 ? argv[1] : NULL); }
#endif

/* The test program: the list of the rooms that have tests, in the order the data flows. */
#include "harness.h"

#include <string.h>

#define ROOMS(X) \
    X(base) X(pool) X(quant) X(repack) X(gguf) X(kernels_unpack) X(kernels) X(model) X(tokenizer) X(text) \
    X(attention) X(kv_cache) X(plan) X(forward) X(tap) X(quirks) X(reference) X(many_experts) X(report) X(sampler) \
    X(session) X(embed) X(json) X(trace) X(trace_read) X(view) X(template) X(chat) X(diff) X(heads) X(experiment) \
    X(diagnose) X(fit) X(fit_heads) X(order) \
    X(weights) X(selfcheck) X(regular) X(grammar) X(grammar_check) X(json_schema)

#define DECLARE(room) void test_##room(void);
ROOMS(DECLARE)
#define ENTRY(room) test_##room,

/* These need a release build and minutes, so they run only on request. */
void test_truth(void);
void test_layers(void);

/* The cases that compute with several threads. */
static const char *const threads[] = {
    "pool:", "kernels:", "attention:", "forward:", "tap:", "session:", "selfcheck: nothing is wrong", NULL,
};

/* The cases that compute numbers, in which compilers and engines may differ.  Every host runs them all. */
static const char *const numbers[] = {
    "base:", "pool:", "quant:", "repack:", "kernels", "attention:", "kv_cache:", "plan:", "forward:", "tap:",
    "experts:", "sampler:", "session:", "embed:", NULL,
};

static int run(const char *const *filters) {
    static void (*const truth[])(void) = {test_layers, test_truth}, (*const rooms[])(void) = {ROOMS(ENTRY)};
    static const size_t n_rooms = sizeof rooms / sizeof rooms[0];
    if (!filters) return harness_run(NULL, rooms, n_rooms);
    if (strcmp(filters[0], "truth") == 0) {
        return harness_run(filters[1] ? filters + 1 : filters, truth, sizeof truth / sizeof truth[0]);
    }
    if (strcmp(filters[0], "threads") == 0) return harness_run(threads, rooms, n_rooms);
    for (unsigned part = 1; part <= 3; part++) {
        if (filters[0][0] != (char)('0' + part) || strcmp(filters[0] + 1, "/3") != 0) continue;
        return harness_run_part(part, 3, numbers, rooms, n_rooms);
    }
    return harness_run(filters, rooms, n_rooms);
}

#if defined(__EMSCRIPTEN__)
/* The module's only export besides Emscripten's; its host calls it and reads the TAP.  `wanted`: 0 for all cases, 1 to
 * 3 for "1/3" to "3/3", 4 for "threads". */
int test_main(int wanted);
int test_main(int wanted) {
    static const char *const words[] = {"1/3", "2/3", "3/3", "threads"};
    return run(wanted ? (const char *const[]) {words[wanted - 1], NULL} : NULL);
}
#else
/* `tests` runs all but truth, `tests TEXT...` the cases whose name contains one of the texts, `tests threads` those
 * that compute with several threads, `tests 1/3` those that compute numbers and a third of the others, `tests truth
 * [TEXT...]` those of real models. */
int main(int argc, char **argv) { return run(argc > 1 ? (const char *const *)argv + 1 : NULL); }
#endif

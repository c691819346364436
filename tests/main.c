/* The test program: the list of the rooms that have tests, in the order the data flows. */
#include "harness.h"

#include <string.h>

#define ROOMS(X) \
    X(base) X(pool) X(quant) X(repack) X(gguf) X(kernels_unpack) X(kernels) X(model) X(tokenizer) X(text) \
    X(attention) X(kv_cache) X(plan) X(forward) X(tap) X(known) X(reference) X(many_experts) X(report) X(sampler) \
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

/* What stands for a selection of cases. */
enum { N_PART = 3, N_SELECTION };
static const char *const selections[N_SELECTION] = {"1/3", "2/3", "3/3", "threads"};

static int run(const char *const *filters) {
    static void (*const truth[])(void) = {test_layers, test_truth}, (*const rooms[])(void) = {ROOMS(ENTRY)};
    static const size_t n_rooms = sizeof rooms / sizeof rooms[0];
    if (!filters) return harness_run(NULL, rooms, n_rooms);
    if (strcmp(filters[0], "truth") == 0) {
        return harness_run(filters[1] ? filters + 1 : filters, truth, sizeof truth / sizeof truth[0]);
    }
    for (unsigned i = 0; i < N_SELECTION; i++) {
        if (strcmp(filters[0], selections[i]) != 0) continue;
        return i < N_PART ? harness_run_part(i + 1, N_PART, numbers, rooms, n_rooms)
                          : harness_run(threads, rooms, n_rooms);
    }
    return harness_run(filters, rooms, n_rooms);
}

#if defined(__EMSCRIPTEN__)
/* The module's only export besides Emscripten's; its host calls it and reads the TAP.  `wanted`: 0 for all cases, or
 * 1 + an index of `selections`. */
int test_main(int wanted);
int test_main(int wanted) { return run(wanted ? (const char *const[]) {selections[wanted - 1], NULL} : NULL); }
#else
/* `tests` runs all but truth, `tests TEXT...` the cases whose name contains one of the texts, `tests threads` those
 * that compute with several threads, `tests 1/3` those that compute numbers and a third of the others, `tests truth
 * [TEXT...]` those of real models. */
int main(int argc, char **argv) { return run(argc > 1 ? (const char *const *)argv + 1 : NULL); }
#endif

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

static int run(const char *const *filters) {
    static void (*const truth[])(void) = {test_layers, test_truth}, (*const rooms[])(void) = {ROOMS(ENTRY)};
    if (filters && strcmp(filters[0], "truth") == 0) {
        return harness_run(filters[1] ? filters + 1 : filters, truth, sizeof truth / sizeof truth[0]);
    }
    if (filters && strcmp(filters[0], "threads") == 0) filters = threads;
    return harness_run(filters, rooms, sizeof rooms / sizeof rooms[0]);
}

#if defined(__EMSCRIPTEN__)
/* The module's only export besides Emscripten's; its host calls it and reads the TAP.  only_threads: as `threads`. */
int test_main(int only_threads);
int test_main(int only_threads) { return run(only_threads ? (const char *const[]) {"threads", NULL} : NULL); }
#else
/* `tests` runs all but truth, `tests TEXT...` the cases whose name contains one of the texts, `tests threads` those
 * that compute with several threads, `tests truth [TEXT...]` those of real models. */
int main(int argc, char **argv) { return run(argc > 1 ? (const char *const *)argv + 1 : NULL); }
#endif

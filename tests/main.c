/* The test program: the list of the rooms that have tests, in the order the data flows. */
#include "harness.h"

#include <string.h>

#define ROOMS(X) \
    X(base) X(pool) X(quant) X(repack) X(gguf) X(kernels_unpack) X(kernels) X(model) X(tokenizer) X(text) \
    X(attention) X(kv_cache) X(plan) X(forward) X(tap) X(known) X(reference) X(many_experts) X(report) X(sampler) \
    X(speculate) X(session) X(sessions) X(shift) X(state) X(embed) X(adapter) X(json) X(trace) X(trace_read) X(view) \
    X(template) X(chat) X(diff) X(heads) X(experiment) X(diagnose) X(fit) X(fit_heads) X(order) \
    X(weights) X(selfcheck) X(regular) X(grammar) X(grammar_check) X(json_schema)

#define DECLARE(room) void test_##room(void);
ROOMS(DECLARE)
#define ENTRY(room) test_##room,

/* These need a release build and minutes, so they run only on request. */
void test_truth(void);
void test_layers(void);

/* The cases that compute with several threads.  Long texts compute with them too, and need too long for every build. */
static const char *const threads[] = {
    "pool:", "kernels:", "attention:", "forward:", "tap:", "session:", "adapter: the same bits",
    "selfcheck: nothing is wrong", NULL,
};

/* The cases that compute numbers, in which compilers and engines may differ.  Every host runs them. */
static const char *const numbers[] = {
    "base:", "pool:", "quant:", "repack:", "kernels", "attention:", "kv_cache:", "plan:", "forward:", "tap:",
    "experts:", "sampler:", "session:", "long text:", "sessions:", "shift:", "state:", "embed:", "adapter:", NULL,
};

/* The words that select cases; tests/hosts/module.js has the same list. */
static const struct { const char *name; struct harness_selection cases; } selections[] = {
    { "all", { NULL, 0, 0, 1 } }, { "sample", { NULL, 0, 0, 6 } }, { "sample 1/3", { numbers, 1, 3, 3 } },
    { "numbers sample", { numbers, 0, 0, 3 } }, { "threads sample", { threads, 0, 0, 9 } },
};

static int run(struct harness_selection wanted) {
    static void (*const truth[])(void) = {test_layers, test_truth}, (*const rooms[])(void) = {ROOMS(ENTRY)};
    const char *const *filters = wanted.filters;
    if (!filters || strcmp(filters[0], "truth") != 0) return harness_run(wanted, rooms, sizeof rooms / sizeof *rooms);
    if (filters[1]) wanted.filters++;
    return harness_run(wanted, truth, sizeof truth / sizeof *truth);
}

#if defined(__EMSCRIPTEN__)
/* The module's only export besides Emscripten's; its host calls it and reads the TAP.  wanted: an index of
 * `selections`. */
int test_main(int wanted);
int test_main(int wanted) { return run(selections[wanted].cases); }
#else
/* `tests` runs all but truth, `tests TEXT...` the cases whose name contains one of the texts, `tests truth [TEXT...]`
 * those of real models.  `tests sample` runs all cases but makes every sixth of their repetitions, `tests "sample 1/3"`
 * every third and, of the cases that compute no numbers, a third, `tests "numbers sample"` those that compute numbers,
 * and `tests "threads sample"` those that compute with several threads and every ninth repetition. */
int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof selections / sizeof *selections; i++) {
        if (strcmp(argv[1], selections[i].name) == 0) return run(selections[i].cases);
    }
    return run((struct harness_selection){ .filters = argc > 1 ? (const char *const *)argv + 1 : NULL, .every = 1 });
}
#endif

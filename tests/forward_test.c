/* Both passes on tiny synthetic models: every tensor type, RoPE order and scaling, biases, head shapes, tied or not.
 * Truth: llama.cpp's logits on the same weights in F32 (tests/vectors/synth). */
#include "fixture.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct against_llama {
    struct llama_vectors v;
    double worst;        /* relative RMS of a position */
    uint32_t n_position; /* number of compared positions */
};

static void compare(void *user, uint32_t pos, const float *logits) {
    struct against_llama *a = user;
    a->worst = worse(a->worst, llama_distance(&a->v, pos, logits));
    a->n_position++;
}

static double distance(plumb_model *m, struct llama_vectors *v, const plumb_session_params *params) {
    struct against_llama a = { .v = *v, .worst = 0 };
    plumb_session *s = NULL;
    bool ok = CHECK(plumb_session_create(&s, m, params) == PLUMB_OK, "%s", plumb_model_error(m))
           && CHECK(plumb_session_feed_all(s, v->tokens, v->n_token, compare, &a) == PLUMB_OK, "%s",
                    plumb_session_error(s))
           && CHECK(a.n_position == v->n_token, "%u positions of %u were compared", a.n_position, v->n_token);
    plumb_session_free(s);
    return ok ? a.worst : INFINITY;
}

/* A line of synth.txt: model, vectors, and its special property. */
static void synth_row(const void *row) {
    char model[100], vectors[100], path[120];
    REQUIRE(sscanf(row, "%99s %99s", model, vectors) == 2, "%s", (const char *)row);
    struct llama_vectors v = { 0 };
    snprintf(path, sizeof path, "synth/%s", vectors);
    bool ok = llama_vectors_read(&v, path) && CHECK(v.n_record == v.n_token && v.n_token == 24, "%u", v.n_token);
    snprintf(path, sizeof path, "tests/vectors/synth/%s", model);
    plumb_model *m = ok ? fixture_load(path) : NULL;
    if (m) {
        plumb_session_params fast = { .n_ctx = 32, .precision = PLUMB_PRECISION_EXACT16 };
        plumb_session_params reference = { .n_ctx = 32, .pass = PLUMB_PASS_REFERENCE };
        double d_reference = distance(m, &v, &reference), d_fast = distance(m, &v, &fast);
        /* llama.cpp's f32 sums differ from f64 sums by 3e-7 to 8e-7 here.  16-bit activations add up to 2^-16 each. */
        CHECK(d_reference <= 1e-5, "reference pass: relative RMS %g", d_reference);
        CHECK(d_fast <= 1e-3, "fast pass: relative RMS %g", d_fast);
        test_note("relative RMS: reference %.2g, fast %.2g", d_reference, d_fast);
    }
    plumb_model_free(m);
    llama_vectors_free(&v);
}

void test_forward(void) {
    size_t n;
    char *list = test_read_all("tests/vectors/synth/synth.txt", &n);
    for (char *line = list; line && *line;) {
        char *end = strchr(line, '\n'), name[200];
        if (end) *end = '\0';
        char *special = strchr(line, ' ');
        special = special ? strchr(special + 1, ' ') : NULL;
        snprintf(name, sizeof name, "forward: llama.cpp's logits from both passes:%s", special ? special : line);
        test_row(name, synth_row, line);
        line = end ? end + 1 : line + strlen(line);
    }
    free(list);
}

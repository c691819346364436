/* Both passes on tiny synthetic models: every tensor type, RoPE order and scaling, biases, head shapes, tied or not.
 * Truth: llama.cpp's logits on the same weights in F32 (tests/vectors/synth). */
#include "broken.h"
#include "fixture.h"
#include "record.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_EMBD_HRM = 32 };

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

/* What the prompt's tokens make of layer 3 of hrm_text.gguf, in one batch: (n_token, n_embd), to free. */
static float *layer_3(plumb_model *m, plumb_pass pass) {
    static const int32_t ids[N_PROMPT] = { 7, 42, 13, 60 };
    struct record *run = calloc(1, sizeof *run);
    plumb_session_params params = { .n_ctx = 32, .pass = pass };
    plumb_session *s = NULL;
    float *values = NULL;
    if (CHECK(run && plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m))
        && CHECK(plumb_session_set_tap(s, record_tap, run) == PLUMB_OK
                 && plumb_session_feed_all(s, ids, N_PROMPT, NULL, NULL) == PLUMB_OK, "%s",
                 plumb_session_error(s))) {
        values = alloc_array((size_t)N_PROMPT * N_EMBD_HRM, sizeof *values);
        for (uint32_t pos = 0; values && pos < N_PROMPT; pos++) {
            memcpy(values + (size_t)pos * N_EMBD_HRM, record_at(run, "l_out", 3, pos), N_EMBD_HRM * sizeof *values);
        }
    }
    plumb_session_free(s);
    if (run) record_free(run);
    return values;
}

/* The 12 layers of hrm_text.gguf are two high cycles, each after two low ones.  In one high cycle after five low ones,
 * the first 4 layers compute the same, although no later state begins with the high one. */
static void one_cycle_case(void) {
    struct broken b;
    if (!broken_read(&b, "tests/vectors/archs/hrm_text.gguf")) return;
    uint8_t *low = broken_entry(&b, "hrm_text.hrm.l_cycles"), *high = broken_entry(&b, "hrm_text.hrm.h_cycles");
    if (low && high) {
        CHECK(low[4] == 2 && high[4] == 2, "%d low cycles, %d high ones", low[4], high[4]);
        low[4] = 5;
        high[4] = 1;
        plumb_model *m = broken_load(&b);
        if (m && CHECK(plumb_model_end(m) == PLUMB_OK, "%s", plumb_model_error(m))) {
            for (int i = 0; i < 2; i++) {
                plumb_pass pass = i ? PLUMB_PASS_REFERENCE : PLUMB_PASS_FAST;
                float *one = layer_3(m, pass), *two = layer_3(b.good, pass);
                CHECK(one && two && memcmp(one, two, (size_t)N_PROMPT * N_EMBD_HRM * sizeof *one) == 0, "pass %d", i);
                free(one);
                free(two);
            }
        }
        plumb_model_free(m);
    }
    broken_free(&b);
}

void test_forward(void) {
    test_case("forward: a model of one high cycle computes what the first of two does", one_cycle_case);
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

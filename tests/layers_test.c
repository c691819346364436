/* Truth by layer: every tap of two real models against what llama.cpp's evaluation callback shows of the same weights
 * in F32 (tests/vectors/layers, made by its make.sh).  Release builds only, like truth_test.c. */
#include "fixture.h"
#include "test.h"
#include "trace/trace.h"

#include <math.h>
#include <stdio.h>

struct layers_row {
    const char *truth, *model;
    plumb_pass pass;
    double most_first, most;             /* relative RMS allowed in layer 0, embd included, and anywhere */
    uint32_t n_tap, n_alone;             /* taps in the truth, and others, to which llama.cpp gives no name */
};

struct against_truth {
    const struct layers_row *row;
    plumb_trace *truth;
    double worst_first, worst, result;   /* largest error of layer 0, of all taps, of result_norm */
    struct tap_text worst_name;
    uint32_t n_tap, n_alone;
};

static double square(double x) { return x * x; }

/* The error of a row over the places that the truth has, or of its statistics if that is larger. */
static double row_error(const struct trace_row *row, const float *x, uint32_t n) {
    double d2 = 0, l2 = 0, sum = 0, sum2 = 0, min = INFINITY, max = -INFINITY;
    for (uint32_t i = 0; i < row->n_value; i++) {
        double l = (double)row->values[i];
        d2 += square((double)x[row->places ? row->places[i] : i] - l);
        l2 += square(l);
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x[i];
        sum2 += square((double)x[i]);
        min = fmin(min, (double)x[i]);
        max = fmax(max, (double)x[i]);
    }
    const struct trace_stats *s = &row->stats;
    double statistics = worse(fabs(sqrt(sum2 / n) - s->rms), fabs(sum / n - s->mean)) / s->rms;
    double extremes = worse(fabs(min - s->min), fabs(max - s->max)) / fmax(fabs(s->min), fabs(s->max));
    return worse(sqrt(d2 / l2), worse(statistics, extremes));
}

static void compare(void *user, const plumb_tap *tap) {
    struct against_truth *a = user;
    struct tap_text name;
    enum tap_id id;
    int32_t layer;
    if (tap->layer < 0) snprintf(name.text, sizeof name.text, "%s", tap->name);
    else snprintf(name.text, sizeof name.text, "%s-%d", tap->name, (int)tap->layer);
    const struct trace_tap *truth = NULL;
    if (tap_parse(name.text, strlen(name.text), &id, &layer)) truth = trace_find_tap(a->truth, id, layer);
    if (!truth) {
        a->n_alone++;
        return;
    }
    if (!CHECK(truth->n_row == tap->n_token, "%s: the truth has %u rows", name.text, truth->n_row)) return;
    double sum2 = 0;
    uint32_t n = tap->n_head * tap->n;
    for (uint32_t t = 0; t < tap->n_token; t++) {
        const struct trace_row *row = &truth->rows[t];
        if (!CHECK(row->pos == t && row->n_head * row->n == n && row->n_value >= 12, "%s: %u values of %u x %u at %u",
                   name.text, row->n_value, row->n_head, row->n, row->pos)) return;
        sum2 += square(row_error(row, tap->data + (size_t)t * n, n));
    }
    double distance = sqrt(sum2 / tap->n_token);
    bool is_first = tap->layer == 0 || strcmp(tap->name, "embd") == 0;
    CHECK(distance <= (is_first ? a->row->most_first : a->row->most), "%s: relative RMS %g", name.text, distance);
    if (is_first) a->worst_first = worse(a->worst_first, distance);
    if (strcmp(tap->name, "result_norm") == 0) a->result = distance;
    if (distance >= a->worst) {
        a->worst = distance;
        a->worst_name = name;
    }
    a->n_tap++;
}

static void layers_case(const void *row_) {
    const struct layers_row *row = row_;
    struct against_truth a = { .row = row, .truth = fixture_read_trace(row->truth) };
    plumb_model *m = a.truth ? fixture_load(row->model) : NULL;
    plumb_session *s = NULL;
    plumb_session_params params = { .n_ctx = 16, .pass = row->pass, .precision = PLUMB_PRECISION_EXACT16 };
    if (m && CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m))) {
        CHECK(plumb_session_set_tap(s, compare, &a) == PLUMB_OK, "%s", plumb_session_error(s));
        /* Requests all logits, as llama.cpp did, so the results have all tokens here too. */
        CHECK(plumb_session_feed_all(s, a.truth->tokens, a.truth->n_token, NULL, NULL) == PLUMB_OK, "%s",
              plumb_session_error(s));
        CHECK(a.n_tap == row->n_tap && a.n_alone == row->n_alone, "%u taps, %u that the truth does not have", a.n_tap,
              a.n_alone);
        CHECK(a.worst > 0 && a.result > 0, "no error at all: nothing was compared");
        test_note("relative RMS: layer 0 at most %.2g, worst of %u taps %.2g (%s), result_norm %.2g", a.worst_first,
                  a.n_tap, a.worst, a.worst_name.text, a.result);
    }
    plumb_session_free(s);
    plumb_model_free(m);
    plumb_trace_free(a.truth);
}

#define SMOLLM2 "tests/vectors/layers/smollm2.json", "models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define GEMMA3 "tests/vectors/layers/gemma3.json", "models/gemma-3-270m.Q4_K_M.gguf"

void test_layers(void) {
    static const struct layers_row rows[] = {   /* llama.cpp gives attn_out no name in gemma3 */
        { SMOLLM2, PLUMB_PASS_REFERENCE, 1e-5, 1e-5, 1 + 30 * 16 + 2, 0 },
        { GEMMA3, PLUMB_PASS_REFERENCE, 1e-5, 1e-5, 1 + 18 * 19 + 2, 18 },
        { SMOLLM2, PLUMB_PASS_FAST, 1e-3, 1e-2, 1 + 30 * 16 + 2, 0 },
        { GEMMA3, PLUMB_PASS_FAST, 1e-3, 1e-2, 1 + 18 * 19 + 2, 18 },
    };
    test_row("truth: SmolLM2, every tap of the reference pass is within 1e-5 of llama.cpp's on the F32 file",
             layers_case, &rows[0]);
    test_row("truth: Gemma 3, every tap of the reference pass is within 1e-5 of llama.cpp's on the F32 file",
             layers_case, &rows[1]);
    test_row("truth: SmolLM2, taps of the fast pass are within 1e-3 of llama.cpp's in layer 0, 1e-2 in all",
             layers_case, &rows[2]);
    test_row("truth: Gemma 3, taps of the fast pass are within 1e-3 of llama.cpp's in layer 0, 1e-2 in all",
             layers_case, &rows[3]);
}

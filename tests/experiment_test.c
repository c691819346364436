/* Experiments of a diagnosis: dumps with little content, and errors that are not the model's fault. */
#include "mistakes/known.h"
#include "record.h"
#include "api/model.h"
#include "test.h"
#include "diagnose/diagnose.h"
#include "trace/tokens.h"

#include <math.h>
#include <stdlib.h>

/* A dump of a run with this known mistake, which has only the statistics over all tokens. */
static plumb_trace *pooled(const struct model *m, const char *known) {
    struct record *run = record_known(m, known, record_ids);
    plumb_trace *t = plumb_trace_create();
    CHECK(t && trace_set_tokens(t, record_ids, N_TOKEN, N_PROMPT) == PLUMB_OK, "memory");
    for (size_t i = 0; i < run->n; i++) {   /* each tap, beginning at its first record */
        const plumb_tap *tap = &run->taps[i];
        enum tap_id id;
        struct trace_row *row;
        double n = 0, sum = 0, square = 0, min = INFINITY, max = -INFINITY;
        CHECK(tap_find(tap->name, strlen(tap->name), &id), "%s", tap->name);
        /* Here logits and keys do not cover all tokens. */
        if (tap->pos > 0 || id >= TAP_RESULT_NORM || id == TAP_KQ_SOFT_MAX) continue;
        for (uint32_t pos = 0; pos < N_TOKEN; pos++) {
            const float *values = record_at(run, tap->name, tap->layer, pos);
            for (uint32_t k = 0; k < tap->n_head * tap->n; k++, n++) {
                sum += (double)values[k];
                square += (double)values[k] * (double)values[k];
                min = fmin(min, (double)values[k]);
                max = fmax(max, (double)values[k]);
            }
        }
        if (!CHECK(trace_new_row(t, id, tap->layer, TRACE_ALL_TOKENS, &row) == PLUMB_OK, "%s", t->err.message)) break;
        row->stats = (struct trace_stats) { sum / n, sqrt(square / n), min, max, 0, 0 };
    }
    record_free(run);
    return t;
}

/* Largest error of the pass with this known mistake; without any if name is NULL. */
static double largest_error(struct experiment *e, const char *name) {
    struct error err;
    struct outcome o;
    const struct known_mistake *q = name ? known_find(name) : NULL;
    if (!CHECK(experiment_run(e, &q, q ? 1 : 0, ALL_LAYERS, &o, &err) == PLUMB_OK, "%s", err.message)) return NAN;
    double largest = -1;
    for (size_t i = 0; i < e->theirs->n_tap; i++) {
        CHECK(!isnan(o.error[i]), "tap %zu was not compared", i);
        largest = worse(largest, o.error[i]);
    }
    outcome_free(&o);
    return largest;
}

static void pooled_case(void) {
    struct error err;
    plumb_model *m = record_load("f32");
    REQUIRE(m, "no model");
    plumb_trace *t = pooled(m->model, "ffn.act=relu");
    struct experiment *e = NULL;
    if (CHECK(experiment_create(&e, m->model, t, &err) == PLUMB_OK, "%s", err.message)) {
        double truth = largest_error(e, NULL), right = largest_error(e, "ffn.act=relu");
        CHECK(truth > 0.1 && right < 1e-6, "%g without the known mistake, %g with it", truth, right);
        CHECK(largest_error(e, NULL) == truth, "another figure the second time");
    }
    experiment_free(e);
    plumb_trace_free(t);
    plumb_model_free(m);
}

/* What a rounding changes is measured where the dump has values: nothing before the first product, and something behind
 * it, as large as the rounding itself. */
static void effect_case(void) {
    struct error err;
    plumb_model *m = record_load("f32");
    REQUIRE(m, "no model");
    plumb_trace *t = plumb_trace_create();
    struct record *run = record_known(m->model, NULL, record_ids);
    struct experiment *e = NULL;
    const struct roundings bf16 = { .products = { .kind = ROUND_BF16 } };
    t->params.n_value = 8;
    CHECK(plumb_trace_set_tokens(t, record_ids, N_TOKEN, N_PROMPT) == PLUMB_OK, "%s", plumb_trace_error(t));
    for (size_t i = 0; i < run->n; i++) plumb_trace_add(t, &run->taps[i]);
    double *effect = alloc_array(t->n_tap, sizeof *effect);
    if (CHECK(experiment_create(&e, m->model, t, &err) == PLUMB_OK, "%s", err.message)) {
        CHECK(reference_set_rounding(e->reference, &bf16) == PLUMB_OK, "no memory");
        CHECK(experiment_effect_of_rounding(e, effect, &err) == PLUMB_OK, "%s", err.message);
        for (size_t i = 0; i < t->n_tap; i++) {
            bool is_before = t->taps[i].id == TAP_EMBD || (t->taps[i].id == TAP_ATTN_NORM && t->taps[i].layer == 0);
            double least = is_before ? 0 : 1e-4, most = is_before ? 1e-7 : 0.05;
            CHECK(effect[i] >= least && effect[i] <= most, "tap %d of layer %d: %g", (int)t->taps[i].id,
                  (int)t->taps[i].layer, effect[i]);
        }
        CHECK(largest_error(e, NULL) > 1e-4, "the pass no longer rounds");
    }
    free(effect);
    experiment_free(e);
    record_free(run);
    plumb_trace_free(t);
    plumb_model_free(m);
}

/* Where a rounding was recognized and errors add up, a single tap may have up to three times the error that the
 * rounding makes in it, at most 0.5: kqv_out-17 of Gemma 3 has 0.36 and 0.27 in a right run of llama.cpp.  If the rows
 * that show the rounding have little of it, as Q and K with their biases in Qwen 2.5, the noise is what it changes in
 * the first layer. */
static void limit_case(void) {
    static const struct { double error, effect, others, before; bool is_over; } rows[] = {
        { 0.36, 0.27, 0.03, 0.018, false }, { 0.36, 0.06, 0.03, 0.018, true }, { 0.6, 0.4, 0.03, 0.018, true },
        { 0.03, 0.01, 0.03, 0.0003, false }, { 0.3, 0.01, 0.03, 0.0003, true },
    };
    struct error err;
    plumb_model *m = record_load("f32");
    REQUIRE(m, "no model");
    plumb_trace *t = plumb_trace_create();
    struct record *run = record_known(m->model, NULL, record_ids);
    const plumb_report report = { 0 };
    struct diagnosis d = { .model = m->model, .theirs = t, .report = &report, .err = &err, .tolerance = 0.01,
                           .noise = { .products = "to 8 bits" } };
    t->params.n_value = 8;
    CHECK(plumb_trace_set_tokens(t, record_ids, N_TOKEN, N_PROMPT) == PLUMB_OK, "%s", plumb_trace_error(t));
    for (size_t i = 0; i < run->n; i++) plumb_trace_add(t, &run->taps[i]);
    struct outcome o = { .error = alloc_array(t->n_tap, sizeof *o.error) };
    double *effect = alloc_array(t->n_tap, sizeof *effect);
    bool is_ready = experiment_create(&d.experiment, m->model, t, &err) == PLUMB_OK && diagnose_prepare(&d) == PLUMB_OK;
    for (size_t k = 0; CHECK(is_ready, "%s", err.message) && k < sizeof rows / sizeof *rows; k++) {
        for (size_t i = 0; i < t->n_tap; i++) {
            bool is_it = t->taps[i].id == TAP_KQV_OUT && t->taps[i].layer == 1;
            o.error[i] = is_it ? rows[k].error : diagnose_is_noisy(&d, i) ? rows[k].others : 0;
            effect[i] = is_it ? rows[k].effect : 0.01;
        }
        d.noise.of_products.before = rows[k].before;
        diagnose_set_effect(&d, effect);
        CHECK(diagnose_explains(&d, &o) == !rows[k].is_over, "row %zu", k);
    }
    /* Layer 0 without one of its noisy taps: of an even and of an odd number of taps the median is that of errors. */
    for (size_t k = 0; k < 2 && is_ready; k++) {
        for (size_t i = 0; i < t->n_tap; i++) {
            bool is_out = k == 1 && t->taps[i].id == TAP_VCUR;
            o.error[i] = effect[i] = is_out ? (double)NAN : 0.001 * (double)(i * i);
        }
        diagnose_set_effect(&d, effect);
        CHECK(d.noise.effect_first == diagnose_typical(&d, &o, 0), "%g, not %g", d.noise.effect_first,
              diagnose_typical(&d, &o, 0));
    }
    free(o.error);
    free(effect);
    free(d.kinds);
    experiment_free(d.experiment);
    record_free(run);
    plumb_trace_free(t);
    plumb_model_free(m);
}

/* One row of a tap.  The file gives n_token, and tokens if it has them. */
struct refused {
    const char *name;
    const char *tap;
    const int32_t *tokens;
    uint32_t n_token;
    const char *why;
};
static const int32_t zeros[5000] = { 0 }, beyond[2] = { 0, 100000 };
static const struct refused refused[] = {
    { "tokens that are not known", "embd", NULL, 2, "does not list the tokens" },
    { "no tokens", "embd", NULL, 0, "does not list the tokens" },
    { "a token beyond the vocabulary", "embd", beyond, 2, "token 100000 at index 1" },
    { "more tokens than the model takes", "embd", zeros, 5000,
      "the dump has 5000 tokens, but the model was trained for" },
    { "layers beyond the model's", "l_out-7", zeros, 2,
      "all 1 taps of the dump are in layers that the model does not have" },
};

static void refused_row(const void *row) {
    const struct refused *r = row;
    struct error err = { 0 };
    plumb_model *m = record_load("f32");
    plumb_trace *t = plumb_trace_create();
    REQUIRE(m && t, "no model");
    enum tap_id id;
    int32_t layer;
    struct trace_row *added;
    CHECK(tap_parse(r->tap, strlen(r->tap), &id, &layer) > 0, "%s", r->tap);
    if (r->tokens) CHECK(trace_set_tokens(t, r->tokens, r->n_token, r->n_token) == PLUMB_OK, "%s", t->err.message);
    t->n_token = r->n_token;
    CHECK(trace_new_row(t, id, layer, 0, &added) == PLUMB_OK, "%s", t->err.message);
    CHECK(trace_new_row(t, TAP_L_OUT, 9, 0, &added) == PLUMB_OK, "%s", t->err.message);
    t->taps[t->n_tap - 1].n_row = 0;   /* a tap without rows does not count */
    struct experiment *e = NULL;
    CHECK(experiment_create(&e, m->model, t, &err) != PLUMB_OK && !e && strstr(err.message, r->why), "%s", err.message);
    experiment_free(e);
    plumb_trace_free(t);
    plumb_model_free(m);
}

/* The token list of an engine shows whether its tokens are doubtful. */
static void doubt_case(void) {
    plumb_model *m = record_load("spm");
    plumb_trace *t = plumb_trace_create();
    REQUIRE(m && t, "no model");
    int32_t bos = tokenizer_bos(m->tokenizer);
    const struct { int32_t ids[4]; uint32_t n, n_prompt; const char *says; } rows[] = {
        { { bos, 70, 71, 72 }, 4, 4, NULL },
        { { 70, 71, 72 }, 3, 3, "do not begin with BOS" },
        { { bos, bos, 70, 71 }, 4, 4, "begin with BOS twice" },
        { { bos, 70, 71, 71 }, 4, 4, "the last two of the prompt are the same token" },
        { { bos, 70, 71, 71 }, 4, 3, NULL },   /* decoded tokens, not part of the prompt */
    };
    for (size_t i = 0; CHECK(bos >= 0, "no BOS") && i < sizeof rows / sizeof *rows; i++) {
        CHECK(trace_set_tokens(t, rows[i].ids, rows[i].n, rows[i].n_prompt) == PLUMB_OK, "%s", t->err.message);
        const char *doubt = tokens_warning(t, m->tokenizer);
        CHECK(rows[i].says ? doubt && strstr(doubt, rows[i].says) : !doubt, "row %zu: %s", i, doubt ? doubt : "none");
    }
    plumb_trace_free(t);
    plumb_model_free(m);
}

void test_experiment(void);
void test_experiment(void) {
    test_case("experiment: statistics over all tokens distinguish a known mistake from the truth", pooled_case);
    test_case("experiment: what a rounding changes is measured in each tap", effect_case);
    test_case("experiment: up to three times what a recognized rounding changes in a tap is noise", limit_case);
    test_case("experiment: odd tokens are named", doubt_case);
    TEST_ROWS("experiment: refused: ", refused_row, refused);
}

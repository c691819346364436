/* plumb_diagnose on an engine whose mistakes and noise are made here by hand, on top of the reference pass.
 * tests/reference/prove.py tests every known mistake. */
#include "fixture.h"
#include "record.h"
#include "api/model.h"
#include "mistakes/known.h"
#include "test.h"
#include "trace/trace.h"

#include <stdio.h>
#include <math.h>
#include <stdlib.h>

/* ---- the engine -------------------------------------------------------------------------------------------------- */

enum { N_FF = 256 };   /* at least the model's n_ff */

struct engine {
    plumb_trace *trace;
    double noise;                 /* largest relative error of a product */
    int32_t relu_from, relu_to;   /* these layers use ReLU instead of SiLU */
    bool adds_nothing;            /* the feed forward's input is not added to its output */
    const char *wrong;            /* this tap is multiplied by 1.5 in layer 1, or if it is outside the layers */
    double by;                    /* 0: by 1.5 */
    bool at_random;               /* each of its values is multiplied by another number */
    bool in_all_layers, last_only;   /* in every layer; only in the last token */
    bool is_nan;                  /* its first head is NaN, of all tokens from the second on */
    double base, positions;       /* 0, or another base of RoPE; positions are multiplied by this number */
    uint32_t block;               /* the inputs of products are rounded to 8 bits in blocks of this size; 0: not */
    bool rounds_k;                /* Q and K are rounded to 8 bits in blocks of 32 */
    bool rounds_v;                /* V and attention weights are rounded to f16 */
    bool unrotated;               /* the dump has Q and K of layer 1 before RoPE in place of those after it */
    bool reverses;                /* the elements of each head of Q and K */
    bool bf16_attention;          /* Q, K, V and attention weights are rounded to bf16 */
    const char *only;             /* the dump has only this tap; NULL: all */
    const char *known;            /* a known mistake that it makes; NULL: none */
    uint32_t random;
    double gate[N_PROMPT * N_FF], up[N_PROMPT * N_FF], ffn_out[N_PROMPT * N_FF], q[N_PROMPT * N_FF], k[N_PROMPT * N_FF];
};

static bool is(const plumb_tap *tap, const char *name) { return strcmp(tap->name, name) == 0; }

/* Rounds n values to codes of 8 bits, with one scale for each block. */
static void to_int8(double *x, size_t n, uint32_t block) {
    for (size_t i = 0; i < n; i += block) {
        double max = 0;
        for (size_t k = i; k < i + block && k < n; k++) max = fabs(x[k]) > max ? fabs(x[k]) : max;
        for (size_t k = i; k < i + block && k < n && max > 0; k++) x[k] = round(x[k] * 127 / max) * max / 127;
    }
}

static void compute(void *user, const plumb_tap *tap, double *x) {
    static const char *const products[] = { "Qcur", "Kcur", "Vcur", "attn_out", "ffn_gate", "ffn_up", "ffn_out" };
    struct engine *e = user;
    size_t n = (size_t)tap->n_token * tap->n_head * tap->n;
    for (size_t k = 0; k < sizeof products / sizeof *products; k++) {
        for (size_t i = 0; i < n && is(tap, products[k]); i++) {
            e->random = e->random * 1664525u + 1013904223u;
            x[i] *= 1 + e->noise * ((double)(e->random >> 8) / (1 << 23) - 1);
        }
    }
    bool is_relu = is(tap, "ffn_swiglu") && tap->layer >= e->relu_from && tap->layer <= e->relu_to;
    for (size_t i = 0; i < n && is_relu; i++) x[i] = e->gate[i] > 0 ? e->gate[i] * e->up[i] : 0;
    for (size_t i = 0; i < n && is(tap, "l_out") && e->adds_nothing; i++) x[i] = e->ffn_out[i];
    for (size_t h = 0; h < (size_t)tap->n_token * tap->n_head && e->reverses; h++) {
        for (size_t i = 0; i < tap->n / 2 && (is(tap, "Qcur") || is(tap, "Kcur")); i++) {
            double *row = x + h * tap->n, first = row[i];
            row[i] = row[tap->n - 1 - i];
            row[tap->n - 1 - i] = first;
        }
    }
    bool is_wrong = e->wrong && is(tap, e->wrong) && (tap->layer == 1 || tap->layer < 0 || e->in_all_layers);
    is_wrong = is_wrong && !(e->last_only && tap->pos + tap->n_token < N_TOKEN);
    for (size_t t = 1; t < tap->n_token && is_wrong && e->is_nan; t++) {
        for (size_t i = 0; i < tap->n; i++) x[t * tap->n_head * tap->n + i] = (double)NAN;
    }
    is_wrong = is_wrong && !e->is_nan;
    for (size_t i = 0; i < n && is_wrong; i++) {
        e->random = e->random * 1664525u + 1013904223u;
        x[i] *= e->at_random ? 0.5 + (double)(e->random >> 8) / (1 << 24) : e->by > 0 ? e->by : 1.5;
    }
    double *kept = is(tap, "ffn_gate") ? e->gate : is(tap, "ffn_up") ? e->up : is(tap, "ffn_out") ? e->ffn_out
                 : is(tap, "Qcur") ? e->q : is(tap, "Kcur") ? e->k : NULL;
    if (kept && CHECK(n <= N_PROMPT * N_FF, "%zu values", n)) memcpy(kept, x, n * sizeof *x);
    float *shown = alloc_array(n, sizeof *shown);
    const double *before = is(tap, "Qcur_rope") ? e->q : is(tap, "Kcur_rope") ? e->k : NULL;
    bool is_before = before && e->unrotated && tap->layer == 1;
    for (size_t i = 0; i < n; i++) shown[i] = (float)(is_before ? before[i] : x[i]);
    plumb_tap copy = *tap;
    copy.data = shown;
    plumb_status status = e->only && !is(tap, e->only) ? PLUMB_OK : plumb_trace_add(e->trace, &copy);
    CHECK(status == PLUMB_OK, "%s", plumb_trace_error(e->trace));
    free(shown);
    /* The pass continues with these values, which the dump does not show.  Only products read them. */
    static const char *const inputs[] = { "attn_norm", "kqv_out", "ffn_norm", "ffn_swiglu", "result_norm" };
    size_t n_row = tap->n_head * tap->n;
    for (size_t k = 0; k < sizeof inputs / sizeof *inputs && e->block > 0; k++) {
        for (size_t i = 0; i < n && is(tap, inputs[k]); i += n_row) to_int8(x + i, n_row, e->block);
    }
    bool is_bf16 = is(tap, "Qcur_rope") || is(tap, "Kcur_rope") || is(tap, "Vcur") || is(tap, "kq_soft_max");
    bool is_f16 = e->rounds_v && (is(tap, "Vcur") || is(tap, "kq_soft_max"));
    int n_bit = is_f16 ? 11 : 8;   /* the first of which is not stored */
    for (size_t i = 0; i < n && (is_f16 || (e->bf16_attention && is_bf16)); i++) {
        int exponent;
        double part = frexp(x[i], &exponent);
        x[i] = ldexp(rint(ldexp(part, n_bit)), exponent - n_bit);
    }
    bool is_qk = is(tap, "Qcur_rope") || is(tap, "Kcur_rope");
    for (size_t i = 0; i < n && e->rounds_k && is_qk; i += tap->n) to_int8(x + i, tap->n, 32);
}

/* Returns the engine's dump of the first n_value values of each tap. */
static plumb_trace *run(const plumb_model *m, struct engine *e, uint32_t n_value) {
    struct error err;
    struct reference *r = NULL;
    e->trace = plumb_trace_create();
    e->trace->params.n_value = n_value;
    CHECK(plumb_trace_set_tokens(e->trace, record_ids, N_TOKEN, N_PROMPT) == PLUMB_OK, "%s",
          plumb_trace_error(e->trace));
    struct rope_plan *rope = &m->model->plan.ropes[ROPE_GLOBAL], right = *rope;
    if (e->base > 0) rope->freq_base = (float)e->base;
    if (e->positions > 0) rope->freq_scale *= (float)e->positions;
    plumb_status created = reference_create(&r, m->model, N_TOKEN, N_PROMPT, &err);   /* copies the plan */
    *rope = right;
    if (CHECK(created == PLUMB_OK, "%s", err.message)) {
        struct known_set known = { 0 };
        if (e->known && CHECK(known_find(e->known), "no mistake %s", e->known)) known_add(&known, known_find(e->known));
        if (e->known) known_apply(r, &known);
        reference_set_force(r, compute, e);
        reference_run(r, record_ids, N_PROMPT, 0, 0, NULL);
        for (uint32_t i = N_PROMPT; i < N_TOKEN; i++) reference_run(r, record_ids + i, 1, i, 0, NULL);
    }
    reference_free(r);
    return e->trace;
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

enum { N_SAID = 7 };

struct row {
    const char *name;
    struct engine engine;
    uint32_t n_value;
    double tolerance;
    plumb_verdict verdict;
    const char *says[N_SAID], *json[N_SAID], *not[N_SAID];
};

#define WHOLE UINT32_MAX
#define NO_RELU .relu_from = 1, .relu_to = 0
#define ROUNDED "except for noise of an unknown kind"
#define DIFFERS PLUMB_VERDICT_DIFFERS
#define AGREES PLUMB_VERDICT_AGREES
#define NOISE PLUMB_VERDICT_AGREES_BUT_NOISE
static const struct row rows[] = {
    { "diagnose: no mistake", { NO_RELU }, WHOLE, 0, AGREES, { "verdict: agrees with the truth" },
      { "\"agree\": true", "\"noise\": 0,", "\"allowed\": 0.01", "\"local\": null", "\"hidden\": {\"tried\": ",
        "\"in_noise\": []" }, { ROUNDED, "would hide" } },
    { "diagnose: the noise of rounded activations is no mistake", { .noise = 0.02, NO_RELU }, WHOLE, 0, NOISE,
      { "verdict: agrees with the truth", ROUNDED }, { "\"agree\": true", "\"noise\": 0.01" }, { NULL } },
    { "diagnose: nor is it where errors add up", { .noise = 0.02, NO_RELU }, 8, 0, NOISE,
      { "without whole activations: errors add up", "verdict: agrees with the truth", ROUNDED }, { "\"agree\": true" },
      { NULL } },
    { "diagnose: with a tolerance of one's own there is no noise", { .noise = 0.02, NO_RELU }, WHOLE, 0.001, DIFFERS,
      { "verdict: no set of up to 3 known mistakes, made in all layers,", "it diverges in layers 0-1\n" },
      { "\"agree\": false", "\"noise\": 0,", "\"allowed\": 0.001", "\"ranking\": []" }, { ROUNDED } },
    { "diagnose: more than noise is a mistake", { .noise = 0.2, NO_RELU }, WHOLE, 0, DIFFERS,
      { "verdict: no set of up to 3 known mistakes", "the first wrong step is Qcur-0", "with the weights attn_q" },
      { "\"noise\": 0," }, { ROUNDED, "feed one token" } },
    { "diagnose: a mistake under noise", { .noise = 0.02, .relu_to = 1 }, WHOLE, 0, DIFFERS,
      { "1. ffn.act=relu", "verdict: ffn.act=relu reproduces their numbers", ROUNDED },
      { "[\"ffn.act=relu\"]", "\"explains\": true" }, { NULL } },
    { "diagnose: a mistake under noise, where errors add up", { .noise = 0.02, .relu_to = 1 }, 8, 0, DIFFERS,
      { "verdict: ffn.act=relu reproduces their numbers", ROUNDED }, { "[\"ffn.act=relu\"]" }, { NULL } },
    { "diagnose: a mistake in one layer", { .relu_from = 1, .relu_to = 1 }, WHOLE, 0, DIFFERS,
      { "verdict: ffn.act=relu in layer 1 alone reproduces their numbers\n   their ffn_swiglu-1 " },
      { "\"local\": {\"mistakes\": [\"ffn.act=relu\"], \"mistake\": \"ffn.act=relu\", \"layers\": [1], "
        "\"parted\": [1], \"explains\": true, \"tap\": \"ffn_swiglu-1\"" }, { ROUNDED } },
    { "diagnose: a mistake in the first layer", { .relu_from = 0, .relu_to = 0 }, WHOLE, 0, DIFFERS,
      { "verdict: ffn.act=relu in layer 0 alone reproduces their numbers\n   their ffn_swiglu-0 " },
      { "\"layers\": [0], \"parted\": [0]" }, { NULL } },
    { "diagnose: a mistake in one layer, under noise", { .noise = 0.02, .relu_from = 1, .relu_to = 1 }, WHOLE, 0,
      DIFFERS,
      { "verdict: ffn.act=relu in layer 1 alone reproduces their numbers", ROUNDED }, { "\"layers\": [1]" }, { NULL } },
    { "diagnose: a mistake in one layer, and an unknown one in another",
      { .relu_from = 0, .relu_to = 0, .wrong = "kqv_out", .at_random = true }, WHOLE, 0, DIFFERS,
      { "verdict: their ffn_swiglu-0 is relu(gate) * up",
        "kqv_out-1 is wrong too, and nothing that was tried fits it" },
      { "\"layers\": [0], \"parted\": [0, 1], \"explains\": false" }, { "alone reproduces their numbers" } },
    { "diagnose: a mistake in all layers, and one in one", { .relu_from = 1, .relu_to = 1, .adds_nothing = true },
      WHOLE, 0, DIFFERS,
      { "verdict: ffn.act=relu in layer 1 alone + residual.ffn=missing reproduces their numbers" },
      { "\"mistake\": \"ffn.act=relu\", \"layers\": [1]" }, { NULL } },
    { "diagnose: a set's mistakes in the order of the computation, each by what the others leave",
      { .relu_to = 1, .adds_nothing = true }, WHOLE, 0, DIFFERS,
      { "1. ffn.act=relu + residual.ffn=missing\n   explains all", "against the other mistake alone",
        "their ffn_swiglu-0 (activated gate times up projection): ", "their l_out-0 (residual after the layer): ",
        "verdict: ffn.act=relu + residual.ffn=missing reproduces their numbers" },
      { "\"mistake\": \"ffn.act=relu\", \"text\": \"ReLU replaces the model's activation\", \"tap\": "
        "\"ffn_swiglu-0\"",
        "\"mistake\": \"residual.ffn=missing\", \"text\": \"the feed forward's input is not added to its output\", "
        "\"tap\": \"l_out-0\"" }, { "comes closest" } },
    { "diagnose: one step that is wrong in an unknown way", { NO_RELU, .wrong = "ffn_swiglu", .at_random = true },
      WHOLE, 0, DIFFERS,
      { "it diverges in layer 1\n", "the first wrong step is ffn_swiglu-1", "the fault is in this step" },
      { "\"ranking\": [],", "\"local\": null" },
      { "dump all values of", "feed one token", "comes closest", "F32 or F16" } },
    { "diagnose: behind a certain verdict there is no advice", { NO_RELU, .wrong = "ffn_swiglu" }, WHOLE, 0, DIFFERS,
      { "verdict: their ffn_swiglu-1 is 1.5 times what it should be" }, { "\"ranking\": []," },
      { "to narrow it down", "the first wrong step", "no set of up to" } },
    { "diagnose: one step outside the layers that is wrong in an unknown way",
      { NO_RELU, .wrong = "embd", .at_random = true }, WHOLE, 0, DIFFERS,
      { "it diverges only outside the layers\n", "the first wrong step is embd", "the fault is in this step" },
      { "\"ranking\": [],", "\"local\": null" }, { "it diverges in", "comes closest" } },
    { "diagnose: a few values of Q and K with one mistake", { NO_RELU, .reverses = true }, 8, 0, DIFFERS,
      { "their Qcur-0 has the elements of each head in reverse order, and so is Kcur" },
      { "\"found_by\": \"trying\"" }, { NULL } },
    { "diagnose: rounding to 8 bits is recognized", { .block = 32, NO_RELU }, WHOLE, 0, AGREES,
      { "their noise: the inputs of products are rounded to 8 bits in blocks of 32\n   with that rounding the median "
        "error of the truth falls from 0.00", "verdict: agrees with the truth; largest relative error" },
      { "\"noise\": 0,", "\"allowed\": 0.01,", "\"rounding\": {\"products\": {\"text\": \"the inputs of products are "
        "rounded to 8 bits in blocks of 32\", \"before\": 0.00", "\"attention\": null}" }, { "except for errors" } },
    { "diagnose: also where errors add up", { .block = 32, NO_RELU }, 8, 0, AGREES,
      { "are rounded to 8 bits in blocks of 32\n" }, { "\"agree\": true" }, { NULL } },
    { "diagnose: rounding of attention that hides that of products is recognized together with it",
      { .block = 32, .bf16_attention = true, NO_RELU, .only = "l_out" }, 8, 0, AGREES,
      { "their noise: Q, K, V and attention weights are rounded to bf16\n", "are rounded to 8 bits in blocks of 32\n" },
      { "\"before\": 0, \"after\": 0}" }, { "except for errors" } },
    { "diagnose: rounding of Q and K is recognized", { .block = 32, .rounds_k = true, NO_RELU }, WHOLE, 0, AGREES,
      { "8 bits in blocks of 32\n", "their noise: Q and K are rounded to 8 bits in blocks of 32\n" },
      { "\"attention\": {\"text\": \"Q and K are rounded" }, { "except for errors" } },
    { "diagnose: with heads of 8 elements, rounding of Q and K is not said to be that of rotated heads",
      { .block = 32, .rounds_k = true, .rounds_v = true, NO_RELU }, WHOLE, 0, AGREES,
      { "their noise: Q and K are rounded to 8 bits in blocks of 32, V and attention weights to f16\n" }, { NULL },
      { "rotated and rounded" } },
    { "diagnose: a factor that is smaller than the noise of 8 bits is measured",
      { .block = 32, NO_RELU, .wrong = "Vcur", .by = 1.003 }, WHOLE, 0, AGREES,
      { "measured: their Vcur-1 is 1.003 times what it should be" }, { NULL }, { NULL } },
    { "diagnose: known mistakes that would hide in noise are listed", { .noise = 0.02, NO_RELU, .only = "l_out" }, 8, 0,
      NOISE, { "known mistakes that were tried would show in this dump\n", "would hide in its noise:\n", "norm.eps=0",
              "would change nothing in it:\n" },
      { "\"in_noise\": [\"", "\"norm.eps=0\"", "\"without_effect\": [\"" }, { "nothing in it:\n      norm.eps=0" } },
    { "diagnose: a known mistake no larger than noise of an unknown kind, which most rows show",
      { .noise = 0.02, NO_RELU, .only = "l_out", .known = "rope.theta=100000" }, 8, 0, DIFFERS,
      { "verdict: rope.theta=100000 reproduces" }, { "\"hidden\": null" }, { NULL } },
    { "diagnose: a layer without RoPE is accused, although all taps behind it look like noise",
      { .noise = 0.02, NO_RELU, .unrotated = true }, 8, 0, DIFFERS,
      { "the first wrong step is Qcur_rope-1 (query after RoPE)" }, { "\"agree\": false" }, { "verdict: agrees" } },
    { "diagnose: an exact answer comes before noise of an unknown kind", { NO_RELU, .positions = 0.125 }, 8, 0, DIFFERS,
      { "verdict: their Qcur_rope-0 is rotated by 0.125 times the right angles", "and so is Kcur_rope" },
      { "\"needs_noise\": false" }, { ROUNDED, "verdict: rope.applied=none" } },
    { "diagnose: a small factor of an exact engine is no noise",
      { NO_RELU, .wrong = "ffn_out", .by = 1.03, .in_all_layers = true, .only = "l_out" }, 8, 0, DIFFERS,
      { "verdict: their ffn_up-0 is 1.03 times what", "or their ffn_out-0 is 1.03 times what it should be" },
      { "\"needs_noise\": false" }, { ROUNDED } },
    { "diagnose: a measured base comes before a listed one that is near", { NO_RELU, .base = 470000 }, WHOLE, 0,
      DIFFERS,
      { "verdict: their Qcur_rope-0 is rotated by frequencies of base 470000, not 10000" }, { "\"explains\": false" },
      { "reproduces their numbers", "to narrow it down" } },
    { "diagnose: and so does one that was fitted to a few values", { NO_RELU, .base = 470000 }, 8, 0, DIFFERS,
      { "verdict: their Qcur_rope-0 is rotated with the base 469" }, { NULL }, { "reproduces their numbers" } },
    { "diagnose: a row that is missing explains nothing", { NO_RELU, .wrong = "Vcur", .by = 3, .last_only = true },
      WHOLE, 0, DIFFERS, { "their Vcur-1 is 3 times what it should be" }, { NULL }, { "bos=missing" } },
    { "diagnose: nor in a few values",
      { NO_RELU, .wrong = "Vcur", .at_random = true, .last_only = true, .only = "l_out" }, 8, 0, DIFFERS,
      { "verdict: no set of up to 3 known mistakes" }, { NULL }, { "bos=missing" } },
    { "diagnose: NaN equals no NaN, and the report says where it begins", { NO_RELU, .wrong = "l_out", .is_nan = true },
      8, 0, DIFFERS, { "verdict: NaN first appears in l_out-1, token 1, element 0" },
      { "\"not_finite\": {\"tap\": \"l_out-1\", \"token\": 1, \"head\": null, \"element\": 0, \"value\": \"NaN\"}",
        "\"ranking\": []" }, { "reproduces their numbers" } },
    { "diagnose: NaN in one head", { NO_RELU, .wrong = "kqv_out", .is_nan = true }, WHOLE, 0, DIFFERS,
      { "verdict: NaN first appears in kqv_out-1, token 1, head 0, element 0", "its inputs are all theirs" },
      { "\"head\": 0, \"element\": 0, \"value\": \"NaN\"}", "\"ranking\": []" }, { "reproduces their numbers" } },
    { "diagnose: advice on attention", { NO_RELU, .wrong = "kqv_out", .at_random = true }, WHOLE, 0, DIFFERS,
      { "the first wrong step is kqv_out-1", "feed one token", "the fault is in this step" },
      { "\"ranking\": []" }, { "dump all values of" } },
    { "diagnose: advice on a dump in part, before any attention", { .noise = 0.2, NO_RELU }, 8, 0, DIFFERS,
      { "the first wrong step is Qcur-0", "dump all values of more of the steps before it" }, { NULL },
      { "feed one token" } },
    { "diagnose: advice on a dump in part", { NO_RELU, .wrong = "attn_norm", .at_random = true }, 8, 0, DIFFERS,
      { "the first wrong step is attn_norm-1", "dump all values of more of the steps before it", "feed one token" },
      { "\"local\": null" }, { "the fault is in this step" } },
};

static void check_says(const char *text, const char *const *says, bool is_said) {
    for (size_t i = 0; i < N_SAID && says[i]; i++) {
        CHECK((strstr(text, says[i]) != NULL) == is_said, "%s\"%s\": %s", is_said ? "no " : "", says[i], text);
    }
}

static void check_row(const void *arg) {
    const struct row *row = arg;
    plumb_model *m = record_load("f32");
    if (!m) return;
    struct engine engine = row->engine;
    plumb_trace *theirs = run(m, &engine, row->n_value);
    struct capture text = { 0 }, json = { 0 };
    plumb_report r = { .format = PLUMB_FORMAT_TEXT, .write = capture_write, .user = &text,
                       .tolerance = row->tolerance };
    plumb_verdict verdict;
    CHECK(plumb_diagnose(m, theirs, 0, &r, &verdict) == PLUMB_OK && verdict == row->verdict, "%d: %s", (int)verdict,
          plumb_model_error(m));
    if (text.text) {
        check_says(text.text, row->says, true);
        check_says(text.text, row->not, false);
    }
    r.format = PLUMB_FORMAT_JSON;
    r.user = &json;
    bool is_json_checked = row->json[0] || test_repeats((size_t)(row - rows));
    CHECK(!is_json_checked || (plumb_diagnose(m, theirs, 0, &r, &verdict) == PLUMB_OK && verdict == row->verdict),
          "%d: %s", (int)verdict, plumb_model_error(m));
    if (json.text) {
        check_says(json.text, row->json, true);
        double before = INFINITY;   /* findings are sorted, the best first */
        for (const char *at = json.text; (at = strstr(at, "\"score\": ")) != NULL; at++) {
            double score = strtod(at + strlen("\"score\": "), NULL);
            CHECK(score <= before + 1e-6, "a score of %g behind one of %g", score, before);
            before = score;
        }
    }
    capture_free(&text);
    capture_free(&json);
    plumb_trace_free(theirs);
    plumb_model_free(m);
}

static void another_model(void) {
    static const char json[] = "{\"tokens\":[1,70000],\"taps\":[{\"name\":\"embd\",\"token\":0,\"values\":[1]}]}";
    plumb_model *m = record_load("f32");
    plumb_trace *t = plumb_trace_create();
    struct capture told = { 0 };
    plumb_report r = { .write = capture_write, .user = &told };
    plumb_verdict says = PLUMB_VERDICT_AGREES;
    CHECK(plumb_trace_read(t, json, strlen(json)) == PLUMB_OK, "%s", plumb_trace_error(t));
    CHECK(m && plumb_diagnose(m, t, 0, &r, &says) == PLUMB_ERROR_TOKEN && says == DIFFERS, "a token of another model");
    CHECK(m && strstr(plumb_model_error(m), "token 70000 at index 1") && strstr(plumb_model_error(m), "same model?"),
          "%s", m ? plumb_model_error(m) : "");
    capture_free(&told);
    plumb_trace_free(t);
    plumb_model_free(m);
}

/* Adds a tap whose tokens and heads, of which there are as many, are exchanged. */
static void add_exchanged(plumb_trace *t, const plumb_tap *tap) {
    size_t n_row = tap->n_token, n = tap->n;
    float *x = alloc_array(n_row * n_row * n, sizeof *x);
    for (size_t i = 0; i < n_row * n_row; i++) {
        memcpy(x + i * n, tap->data + (i % n_row * n_row + i / n_row) * n, n * sizeof *x);
    }
    plumb_tap copy = *tap;
    copy.data = x;
    CHECK(plumb_trace_add(t, &copy) == PLUMB_OK, "%s", plumb_trace_error(t));
    free(x);
}

/* With as many heads as tokens and no mask, a file does not say which axis is which. */
static void unsure_axes(void) {
    static const struct { const char *known, *says; } cases[] = {
        { "attn.mask=none", "verdict: attn.mask=none reproduces their numbers" }, { NULL, "verdict: agrees" },
    };
    plumb_model *m = record_load("f32");
    REQUIRE(m, "no model");
    uint32_t n = m->model->plan.layers[0].attn.n_head;
    const id_set all = TAP_SET(QCUR) | TAP_SET(QCUR_ROPE) | TAP_SET(KQ_SOFT_MAX);
    const id_set exchanged[] = { all, TAP_SET(KQ_SOFT_MAX), TAP_SET(QCUR) | TAP_SET(QCUR_ROPE), 0 };
    for (size_t i = 0; i < 8; i++) {
        struct known_set known = { 0 };
        struct capture text = { 0 };
        if (cases[i / 4].known) known_add(&known, known_find(cases[i / 4].known));
        struct record *record = record_run(m->model, &known, record_ids, n, n, NULL, NULL);
        plumb_trace *t = plumb_trace_create();
        t->params.n_value = WHOLE;
        CHECK(plumb_trace_set_tokens(t, record_ids, n, n) == PLUMB_OK, "%s", plumb_trace_error(t));
        for (size_t k = 0; k < record->n; k++) {
            enum tap_id id;
            bool is_known = tap_find(record->taps[k].name, strlen(record->taps[k].name), &id);
            if (is_known && (exchanged[i % 4] >> id & 1)) add_exchanged(t, &record->taps[k]);
            else if (is_known && id < TAP_RESULT_NORM) plumb_trace_add(t, &record->taps[k]);
        }
        t->unsure_axes = all;
        plumb_report r = { .format = PLUMB_FORMAT_TEXT, .write = capture_write, .user = &text };
        plumb_verdict verdict;
        CHECK(plumb_diagnose(m, t, 0, &r, &verdict) == PLUMB_OK, "%s", plumb_model_error(m));
        CHECK(text.text && strstr(text.text, cases[i / 4].says), "row %zu: %s", i,
              text.text ? text.text : "no report");
        capture_free(&text);
        record_free(record);
        plumb_trace_free(t);
    }
    plumb_model_free(m);
}

void test_diagnose(void) {
    TEST_ROWS("", check_row, rows);
    test_case("diagnose: with as many heads as tokens both orders of the axes are tried", unsure_axes);
    test_case("diagnose: a token that the model does not have is an error", another_model);
}

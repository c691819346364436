/* What diff and diagnose say about dumps that are not as they should be: the reference pass's own activations, spoilt
 * here by hand, so that the right answers are known. */
#include "fixture.h"
#include "record.h"
#include "api/model.h"
#include "test.h"
#include "trace/view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- dumps ------------------------------------------------------------------------------------------------------- */

/* All activations of the truth. */
static plumb_trace *dump_of(const struct model *m) {
    struct record *run = record_known(m, NULL, record_ids);
    plumb_trace *t = plumb_trace_create();
    if (!CHECK(run && t, "memory")) return t;
    CHECK(trace_set_tokens(t, record_ids, N_TOKEN, N_PROMPT) == PLUMB_OK, "%s", t->err.message);
    t->params.n_value = UINT32_MAX;
    for (size_t i = 0; i < run->n; i++) {
        CHECK(plumb_trace_add(t, &run->taps[i]) == PLUMB_OK, "%s", plumb_trace_error(t));
    }
    record_free(run);
    return t;
}

static struct trace_tap *tap_of(plumb_trace *t, const char *name) {
    enum tap_id id;
    int32_t layer;
    bool is_known = tap_parse(name, strlen(name), &id, &layer) > 0;
    for (size_t i = 0; is_known && i < t->n_tap; i++) {
        if (t->taps[i].id == id && t->taps[i].layer == layer) return &t->taps[i];
    }
    CHECK(false, "the dump has no %s", name);
    return NULL;
}

/* Adds a row of n values x to a tap that the dump does not have. */
static void add_row(plumb_trace *t, const char *name, uint32_t pos, uint32_t n, float x) {
    enum tap_id id = TAP_EMBD;
    int32_t layer = -1;
    struct trace_row *row;
    float *values = alloc_array(n, sizeof *values);
    for (uint32_t i = 0; values && i < n; i++) values[i] = x;
    CHECK(values && tap_parse(name, strlen(name), &id, &layer) > 0, "%s", name);
    if (CHECK(trace_new_row(t, id, layer, pos, &row) == PLUMB_OK, "%s", t->err.message)) {
        CHECK(trace_set_values(t, row, id, 1, n, values, NULL, n) == PLUMB_OK, "%s", t->err.message);
    }
    free(values);
}

/* Sets n values of a row from `first` on, and the row's statistics. */
static void set_values(struct trace_tap *tap, uint32_t pos, uint32_t first, uint32_t n, float x) {
    for (uint32_t i = 0; tap && i < tap->n_row; i++) {
        struct trace_row *row = &tap->rows[i];
        if (row->pos != pos) continue;
        for (uint32_t k = first; k < first + n && k < row->n_value; k++) row->values[k] = x;
        row->stats = trace_stats_of(row->values, row->n_value);
    }
}

/* Shortens all rows of a tap to n values. */
static void shorten(struct trace_tap *tap, uint32_t n) {
    for (uint32_t i = 0; tap && i < tap->n_row; i++) {
        tap->rows[i].n_head = 1;
        tap->rows[i].n = tap->rows[i].n_value = n;
    }
}

/* Keeps only the taps in a layer. */
static void keep_layer(plumb_trace *t, int32_t layer) {
    for (size_t i = 0; i < t->n_tap; i++) {
        struct trace_tap *tap = &t->taps[i];
        for (uint32_t k = 0; k < tap->n_row && tap->layer != layer; k++) {
            free(tap->rows[k].values);
            free(tap->rows[k].entropy);
        }
        if (tap->layer != layer) tap->n_row = 0;
    }
}

static void count_from_one(plumb_trace *t) {
    for (size_t i = 0; i < t->n_tap; i++) t->taps[i].layer += t->taps[i].layer >= 0;
}

/* ---- spoilt dumps ------------------------------------------------------------------------------------------------ */

static void as_it_is(plumb_trace *t) { (void)t; }
static void layers_from_one(plumb_trace *t) { count_from_one(t); }
static void layer_0_called_1(plumb_trace *t) {
    keep_layer(t, 0);
    count_from_one(t);
}
static void layer_1_alone(plumb_trace *t) { keep_layer(t, 1); }
static void layer_7(plumb_trace *t) { add_row(t, "l_out-7", 0, 32, 1); }
static void short_query(plumb_trace *t) { shorten(tap_of(t, "Qcur-0"), 16); }
static void odd_length(plumb_trace *t) { shorten(tap_of(t, "ffn_up-1"), 63); }
static void absent_step(plumb_trace *t) { add_row(t, "Qcur_normed-1", 2, 32, 1); }
static void more_tokens(plumb_trace *t) { add_row(t, "result_norm", N_TOKEN, 32, 1); }
static void nan_in_a_head(plumb_trace *t) {
    set_values(tap_of(t, "Qcur_rope-1"), 2, 8 + 3, 1, NAN);
    set_values(tap_of(t, "l_out-1"), 2, 0, 32, NAN);
}
static void infinite_embedding(plumb_trace *t) { set_values(tap_of(t, "embd"), 5, 7, 1, -INFINITY); }
static void nan_everywhere(plumb_trace *t) {
    for (size_t i = 0; i < t->n_tap; i++) {
        for (uint32_t pos = 0; pos < N_TOKEN; pos++) set_values(&t->taps[i], pos, 0, UINT32_MAX / 2, NAN);
    }
}
static void counted_nan(plumb_trace *t) {
    struct trace_tap *tap = tap_of(t, "ffn_out-0");
    for (uint32_t i = 0; tap && i < tap->n_row; i++) {
        tap->rows[i].n_head = tap->rows[i].n = tap->rows[i].n_value = 0;
        tap->rows[i].stats.n_nan = i == 3 ? 12 : 0;
    }
}
static void zero_head(plumb_trace *t) {
    for (uint32_t pos = 4; pos <= 6; pos++) set_values(tap_of(t, "Kcur-1"), pos, 8, 8, 0);
}
static void zero_tokens(plumb_trace *t) {
    set_values(tap_of(t, "attn_out-0"), 3, 0, 32, 0);
    set_values(tap_of(t, "ffn_out-1"), 0, 0, 32, 0);
}

struct row {
    const char *name;
    void (*spoil)(plumb_trace *t);
    bool agree;
    const char *says[4], *json[3];   /* NULL ends them; none: there is no remark at all */
};
static const struct row spoilt_rows[] = {
    { "view: a complete dump gets no remark", as_it_is, true, { NULL }, { "\"n_ignored\": 0, \"remarks\": []" } },
    { "view: layers that count from 1 are shifted", layers_from_one, true,
      { "attn_norm-1: the dump counts layers from 1 to 2, and this report from 0: here this tap is attn_norm-0" },
      { "{\"kind\":\"layers_from_1\",\"name\":\"attn_norm-1\"" } },
    { "view: a part of the layers that counts from 1 is shifted, because it then agrees", layer_0_called_1, true,
      { "attn_norm-1: the dump counts layers from 1 to 1", "here this tap is attn_norm-0" }, { NULL } },
    { "view: a part of the layers that counts from 0 is not shifted", layer_1_alone, true, { NULL },
      { "\"remarks\": []" } },
    { "view: a layer that the model does not have", layer_7, true,
      { "l_out-7 was ignored: the model has 2 layers, numbered from 0" },
      { "\"n_ignored\": 1", "\"kind\":\"layer\"", "\"ignored\":true" } },
    { "view: a tap of another tap's length", short_query, true,
      { "Qcur-0 was ignored: token 0 has 16 values; expected 32; that is the length of Kcur, Vcur" },
      { "{\"kind\":\"length\",\"name\":\"Qcur-0\"" } },
    { "view: a tap of no tap's length", odd_length, true,
      { "ffn_up-1 was ignored: token 0 has 63 values; expected ", "; no step of the layer has that length" },
      { NULL } },
    { "view: a step that the model does not have", absent_step, true,
      { "Qcur_normed-1: this model does not have the step", "not compared, because there is no value" },
      { "\"not_compared\": [\"Qcur_normed-1\"]", "\"ignored\":false" } },
    { "view: rows of tokens that are not listed", more_tokens, true,
      { "result_norm: it has 1 more row than the 7 tokens that are listed" }, { "\"kind\":\"tokens\"" } },
    { "view: the first NaN, with its head, its inputs and what follows", nan_in_a_head, false,
      { "Qcur_rope-1: the first value that is not finite, NaN, is in token 2, head 1, element 3; of its inputs, Qcur-1 "
        "is finite; 1 later tap has such values too" }, { "\"kind\":\"not_finite\"" } },
    { "view: an infinity without inputs", infinite_embedding, false,
      { "embd: the first value that is not finite, -infinity, is in token 5, element 7; it has no inputs but the "
        "tokens and the weights" }, { NULL } },
    { "view: NaN everywhere", nan_everywhere, false,
      { "embd: the first value that is not finite, NaN, is in token 0, element 0" }, { NULL } },
    { "view: NaN that are only counted", counted_nan, false,
      { "ffn_out-0: the first values that are not finite are in token 3, which has 12 NaN and 0 infinities; of its "
        "inputs, ffn_swiglu-0 is finite" }, { NULL } },
    { "view: a head of zeros", zero_head, false, { "Kcur-1: all zeros in tokens 4-6, head 1\n" },
      { "{\"kind\":\"zeros\",\"name\":\"Kcur-1\"" } },
    { "view: tokens of zeros", zero_tokens, false,
      { "attn_out-0: all zeros in token 3; 1 other tap has zeros too" }, { NULL } },
};

/* A report on one line: runs of white space become one space. */
static char *squeeze(char *text) {
    size_t n = 0;
    for (const char *p = text; p && *p; p++) {
        char c = *p == '\n' ? ' ' : *p;
        if (c != ' ' || (n > 0 && text[n - 1] != ' ')) text[n++] = c;
    }
    if (text) text[n] = 0;
    return text;
}

static void check_says(const char *text, const char *what) {
    if (!text) text = "";
    CHECK(strstr(text, what) != NULL, "\"%s\" is not in %s", what, text);
}

static void spoilt(const void *arg) {
    const struct row *row = arg;
    plumb_model *m = record_load("f32");
    REQUIRE(m != NULL, "no model");
    plumb_trace *t = dump_of(m->model);
    row->spoil(t);
    for (int json = 0; json < 2; json++) {
        struct capture out = { 0 };
        plumb_verdict verdict;
        const plumb_report report = { .format = json ? PLUMB_FORMAT_JSON : PLUMB_FORMAT_TEXT, .write = capture_write,
                                      .user = &out };
        CHECK(plumb_diagnose(m, t, 1, &report, &verdict) == PLUMB_OK, "%s", plumb_model_error(m));
        CHECK((verdict == PLUMB_VERDICT_AGREES) == row->agree, "%s", out.text ? out.text : "no report");
        for (size_t i = 0; json && i < 3 && row->json[i]; i++) {
            check_says(out.text, row->json[i]);
        }
        const char *text = json ? NULL : squeeze(out.text);
        for (size_t i = 0; !json && i < 4 && row->says[i]; i++) {
            char said[400];
            snprintf(said, sizeof said, "%s", row->says[i]);
            squeeze(said);
            check_says(text, said);
        }
        bool has_remark = text && (strstr(text, "was ignored") || strstr(text, " not compared, because")
                                   || strstr(text, "counts layers from 1") || strstr(text, "not finite"));
        if (text && !row->says[0]) CHECK(!has_remark, "%s", text);
        capture_free(&out);
    }
    plumb_trace_free(t);
    plumb_model_free(m);
}

/* ---- views of logits --------------------------------------------------------------------------------------------- */

/* Logits beyond the vocabulary are dropped in the view only; ids beyond it are named, but at most 16 times. */
static void logits_case(void) {
    struct error err = { 0 };
    struct trace_view v;
    plumb_model *m = record_load("f32");
    plumb_trace *t = plumb_trace_create();
    REQUIRE(m && t, "no model");
    uint32_t n_vocab = m->model->plan.n_vocab;
    add_row(t, "result_output", 0, n_vocab + 8, 1);
    CHECK(view_begin(&v, t, &err) == PLUMB_OK && view_fit(&v, m->model, &err) == PLUMB_OK, "%s", err.message);
    char expected[160];
    snprintf(expected, sizeof expected, "there are %u logits for %u tokens of the vocabulary; the last 8 were taken "
             "for padding and dropped", n_vocab + 8, n_vocab);
    CHECK(v.t.n_tap == 1 && v.t.taps[0].rows[0].n == n_vocab && t->taps[0].rows[0].n == n_vocab + 8, "%zu taps",
          v.t.n_tap);
    CHECK(v.t.remarks.n == 1 && strcmp(v.t.remarks.list[0].text, expected) == 0, "%s",
          v.t.remarks.n > 0 ? v.t.remarks.list[0].text : "no remark");
    view_free(&v);
    trace_clear(t);

    for (uint32_t pos = 0; pos < 40; pos++) {
        struct trace_row *row;
        const uint32_t places[] = { 3, n_vocab + pos };
        const float values[] = { 7, 6.5f };
        REQUIRE(trace_new_row(t, TAP_RESULT_OUTPUT, -1, pos, &row) == PLUMB_OK, "%s", t->err.message);
        row->n_top = 2;
        CHECK(trace_set_values(t, row, TAP_RESULT_OUTPUT, 0, 0, values, places, 2) == PLUMB_OK, "%s", t->err.message);
    }
    CHECK(view_begin(&v, t, &err) == PLUMB_OK && view_fit(&v, m->model, &err) == PLUMB_OK, "%s", err.message);
    snprintf(expected, sizeof expected, "token 1 lists id %u with the logit 6.5, but the vocabulary has %u tokens, "
             "numbered from 0", n_vocab + 1, n_vocab);
    CHECK(v.t.n_tap == 1 && v.t.remarks.n == REMARKS_KEPT && v.t.remarks.n_of[REMARK_RANGE] == 40, "%zu remarks",
          v.t.remarks.n);
    CHECK(strcmp(v.t.remarks.list[1].text, expected) == 0, "%s", v.t.remarks.list[1].text);
    view_free(&v);
    plumb_trace_free(t);
    plumb_model_free(m);
}

/* A dump with layer n_layer, but not layer 0, proves that it counts from 1. */
static void numbering_case(void) {
    static const struct { int32_t layers[3]; enum view_numbering says; } rows[] = {   /* the model has layers 0 and 1 */
        { { 0, 1, -1 }, VIEW_FROM_0 }, { { 1, 2, -1 }, VIEW_FROM_1 }, { { 2, -1, -1 }, VIEW_FROM_1 },
        { { 1, -1, -1 }, VIEW_UNSURE }, { { 0, 2, -1 }, VIEW_FROM_0 }, { { 1, 3, -1 }, VIEW_FROM_0 },
        { { -1, -1, -1 }, VIEW_FROM_0 },
    };
    plumb_model *m = record_load("f32");
    REQUIRE(m != NULL, "no model");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_trace *t = plumb_trace_create();
        struct trace_row *row;
        for (size_t k = 0; t && k < 3; k++) {
            enum tap_id id = rows[i].layers[k] < 0 ? TAP_EMBD : TAP_L_OUT;
            CHECK(trace_new_row(t, id, rows[i].layers[k], (uint32_t)k, &row) == PLUMB_OK, "%s", t->err.message);
        }
        enum view_numbering numbering = view_numbering(t, m->model);
        CHECK(numbering == rows[i].says, "row %zu: %d", i, (int)numbering);
        plumb_trace_free(t);
    }
    plumb_model_free(m);
}

/* If nothing fits, the failure names a tap and the reason. */
static void nothing_fits(void) {
    struct capture out = { 0 };
    plumb_verdict says;
    const plumb_report report = { .format = PLUMB_FORMAT_TEXT, .write = capture_write, .user = &out };
    plumb_model *m = record_load("f32");
    plumb_trace *t = plumb_trace_create();
    REQUIRE(m && t, "no model");
    CHECK(trace_set_tokens(t, record_ids, N_TOKEN, N_PROMPT) == PLUMB_OK, "%s", t->err.message);
    add_row(t, "l_out-0", 0, 2048, 1);
    CHECK(plumb_diagnose(m, t, 1, &report, &says) == PLUMB_ERROR_ARGUMENT && says == PLUMB_VERDICT_DIFFERS, "%s",
          plumb_model_error(m));
    CHECK(strstr(plumb_model_error(m), "no tap of the dump fits this model: l_out-0: token 0 has 2048 values; expected "
                 "32; no step of the layer has that length"), "%s", plumb_model_error(m));
    capture_free(&out);
    plumb_trace_free(t);
    plumb_model_free(m);
}

/* ---- diff -------------------------------------------------------------------------------------------------------- */

static char *diff_report(plumb_model *m, plumb_trace *a, plumb_trace *b, plumb_format format, bool *agree) {
    struct capture out = { 0 };
    const plumb_report report = { .format = format, .write = capture_write, .user = &out, .name_a = "a",
                                  .name_b = "b" };
    CHECK(plumb_diff(a, b, m, &report, agree) == PLUMB_OK, "%s", plumb_trace_error(a));
    return out.text;
}

/* Without a model, the other side shows that layers count from 1.  With one, ids are checked. */
static void diff_case(void) {
    plumb_model *m = record_load("f32");
    REQUIRE(m != NULL, "no model");
    plumb_trace *a = dump_of(m->model), *b = dump_of(m->model);
    count_from_one(a);
    set_values(tap_of(b, "Vcur-1"), 1, 8, 8, 0);
    bool agree = true;
    char *text = squeeze(diff_report(NULL, a, b, PLUMB_FORMAT_TEXT, &agree));
    CHECK(!agree, "Vcur-1 differs");
    check_says(text, "attn_norm-1: the dump counts layers from 1 to 2");
    check_says(text, "Vcur-1: all zeros in token 1, head 1 ");
    check_says(text, "first diverge at Vcur-1");
    free(text);
    text = diff_report(NULL, a, b, PLUMB_FORMAT_JSON, &agree);
    check_says(text, "\"remarks\":[{\"kind\":\"layers_from_1\"");
    check_says(text, "\"remarks\":[{\"kind\":\"zeros\",\"name\":\"Vcur-1\"");
    free(text);
    static const char logits[] = "{\"tokens\":[1],\"taps\":[{\"name\":\"logits\",\"token\":0,"
                                 "\"top\":[[99999,2]]}]}";
    CHECK(plumb_trace_read(a, logits, sizeof logits - 1) == PLUMB_OK && plumb_trace_read(b, logits, sizeof logits - 1)
          == PLUMB_OK, "%s", plumb_trace_error(a));
    text = squeeze(diff_report(m, a, b, PLUMB_FORMAT_TEXT, &agree));
    check_says(text, "result_output: token 0 lists id 99999 with the logit 2, but the vocabulary has ");
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
    plumb_model_free(m);
}

/* ---- hostile names ----------------------------------------------------------------------------------------------- */

/* Thousands of unknown names and one of 10 kB: 16 are kept, and the text has one line of them. */
static void names_case(void) {
    size_t size = 400000, n = 0;
    char *json = malloc(size);
    plumb_trace *t = plumb_trace_create();
    REQUIRE(json && t, "memory");
    n += (size_t)snprintf(json, size, "{\"tokens\":[1],\"taps\":[{\"name\":\"");
    memset(json + n, 'x', 10000);
    n += 10000;
    n += (size_t)snprintf(json + n, size - n, "\",\"values\":[1]}");
    for (int i = 0; i < 5000; i++) n += (size_t)snprintf(json + n, size - n, ",{\"name\":\"\\u001b[2J%d\"}", i);
    n += (size_t)snprintf(json + n, size - n, ",{\"name\":\"l_out-3\",\"layer\":4,\"values\":[1]}"
                          ",{\"name\":\"l_out-99999999999\",\"values\":[1]},{\"name\":\"embd\",\"data\":[1]}"
                          ",{\"name\":\"l_out-0\",\"values\":[1],\"entropy\":[1]}]}");
    CHECK(plumb_trace_read(t, json, n) == PLUMB_OK, "%s", plumb_trace_error(t));
    CHECK(t->remarks.n_of[REMARK_UNKNOWN] == 5002 && t->remarks.n_of[REMARK_FORM] == 3 && t->remarks.n == 19,
          "%u unknown, %u odd, %zu kept", t->remarks.n_of[REMARK_UNKNOWN], t->remarks.n_of[REMARK_FORM], t->remarks.n);
    CHECK(remarks_n_ignored(&t->remarks) == 5005, "%u", remarks_n_ignored(&t->remarks));
    struct capture text = { 0 }, list = { 0 };
    struct report_writer w;
    report_begin(&w, capture_write, &text);
    remarks_text(&t->remarks, &w);
    report_flush(&w);
    report_begin(&w, capture_write, &list);
    remarks_json(&t->remarks, &w);
    report_flush(&w);
    squeeze(text.text);
    static const char *const says[] = {
        "5002 records were ignored, because no tap has their names: xxxx", "xxxx..., \\x1b[2J0, ", " and 4994 more",
        "l_out-3 was ignored: its name has layer 3, but \"layer\" is 4",
        "embd was ignored: it has neither values nor statistics; its member \"data\" is not known",
        "l_out-0 was ignored: only kq_soft_max has entropies",
    };
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) check_says(text.text, says[i]);
    CHECK(text.text && !strchr(text.text, 0x1b), "an escape");
    check_says(list.text, "{\"kind\":\"unknown_name\",\"name\":\"\\\\x1b[2J0\",\"text\":\"no tap has this name\","
               "\"ignored\":true}");
    capture_free(&text);
    capture_free(&list);
    plumb_trace_free(t);
    free(json);
}

/* A key that does not exist has a weight: the engine attends to an empty slot of its cache. */
static void padded_keys(void) {
    static const char json[] = "{\"tokens\":[7,8],\"taps\":[{\"name\":\"kq_soft_max-0\",\"token\":1,\"shape\":[2,4],"
        "\"values\":[0.5,0.5,0,0,0.5,0.25,0.25,0]},{\"name\":\"Qcur-0\",\"values\":[[[1],[2]],[[3],[4]]]}]}";
    plumb_trace *t = plumb_trace_create();
    REQUIRE(t && plumb_trace_read(t, json, sizeof json - 1) == PLUMB_OK, "%s", plumb_trace_error(t));
    REQUIRE(t->remarks.n == 2, "%zu remarks", t->remarks.n);
    const struct remark *key = &t->remarks.list[0], *axes = &t->remarks.list[1];
    CHECK(key->kind == REMARK_PADDING && strcmp(key->name, "kq_soft_max-0") == 0 && strcmp(key->text, "in head 1 of "
          "token 1, key 2 has the weight 0.25, but there are 2 tokens; weights of further keys were dropped") == 0,
          "%s: %s", key->name, key->text);
    CHECK(axes->kind == REMARK_AXES && strcmp(axes->text, "2 lists of 2 lists for 2 tokens were taken for tokens and "
          "heads, not for heads and tokens; \"shape\": [n_head, n] and \"token\" make it plain") == 0, "%s",
          axes->text);
    plumb_trace_free(t);
}

/* In an ONNX graph with biases, the product without its bias is not the tap, in whatever order they come. */
static void biases_case(void) {
    static const char json[] = "{\"tokens\":[7],\"taps\":["
        "{\"name\":\"/model/layers.0/self_attn/q_proj/MatMul_output_0\",\"values\":[1]},"
        "{\"name\":\"/model/layers.0/self_attn/q_proj/Add_output_0\",\"values\":[2]},"
        "{\"name\":\"/model/layers.0/self_attn/o_proj/MatMul_output_0\",\"values\":[3]}]}";
    plumb_trace *t = plumb_trace_create();
    REQUIRE(t && plumb_trace_read(t, json, sizeof json - 1) == PLUMB_OK, "%s", plumb_trace_error(t));
    struct trace_tap *q = tap_of(t, "Qcur-0"), *o = tap_of(t, "attn_out-0");
    CHECK(q && o && q->n_row == 1 && q->rows[0].values[0] == 2 && o->rows[0].values[0] == 3, "values");
    CHECK(t->remarks.n == 1 && t->remarks.list[0].kind == REMARK_SECOND && strstr(t->remarks.list[0].text, "the file "
          "also has the sum of this product and its bias, which is Qcur"), "%zu remarks", t->remarks.n);
    CHECK(t->by_module, "Q has the order of transformers");
    plumb_trace_free(t);
}

void test_view(void) {
    TEST_ROWS("", spoilt, spoilt_rows);
    test_case("view: logits beyond the vocabulary are dropped, and ids beyond it are named", logits_case);
    test_case("view: the layers that a dump has show how it counts them", numbering_case);
    test_case("view: a dump of which nothing fits the model", nothing_fits);
    test_case("view: diff shifts layers that count from 1, and names zeros", diff_case);
    test_case("view: thousands of unknown names, and long ones, are listed within bounds", names_case);
    test_case("view: weights of keys that do not exist, and lists whose order is not plain", padded_keys);
    test_case("view: products without their biases are not taps", biases_case);
}

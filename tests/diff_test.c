/* Comparisons worked by hand, the names of differences between token lists, and the three formats of plumb_diff's
 * report.  Every expected number is computed in the comment beside it, not by plumb. */
#include "fixture.h"
#include "test.h"
#include "trace/compare.h"
#include "base/json.h"
#include "trace/tokens.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct trace_stats unknown = { NAN, NAN, NAN, NAN, NAN, NAN };

static bool near(double x, double y) { return x == y || fabs(x - y) <= 1e-6 * fabs(y); }

/* A row of one head. */
static struct trace_row row_of(float *values, uint32_t *places, uint32_t n_value, uint32_t n) {
    return (struct trace_row) { .n_head = n > 0, .n = n, .n_value = n_value, .values = values, .places = places,
                                .stats = unknown };
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void whole_rows(void) {
    float x[] = { 3, 4, 0 }, y[] = { 0, 4, 3 }, huge[] = { 3e6f, 4e6f, 0 };
    struct trace_row a = row_of(x, NULL, 3, 3), b = row_of(y, NULL, 3, 3), h = row_of(huge, NULL, 3, 3);
    struct comparison c = { 0 };
    CHECK(isnan(compare_error(&c)) && isnan(compare_cosine(&c)), "nothing compared: %g", compare_error(&c));
    b.pos = 7;
    compare_rows(&c, &a, &b);   /* d = 3, 0, -3: sqrt(18 / 25); the dot product is 16 of 25 */
    CHECK(near(compare_error(&c), 0.848528137) && near(compare_cosine(&c), 0.64), "%.9g, %.9g", compare_error(&c),
          compare_cosine(&c));
    CHECK(c.max_d == 3 && c.max_pos == 7 && c.max_place == 0 && c.max_a == 3 && c.max_b == 0, "%g at [%u, %u]", c.max_d,
          c.max_pos, c.max_place);
    compare_rows(&c, &h, &h);   /* a token of huge values that agree: sqrt((18 / 25 + 0) / 2) = 0.6 */
    CHECK(near(compare_error(&c), 0.6) && c.n_row == 2 && c.n_value == 6, "%.9g", compare_error(&c));
}

static void sparse_rows(void) {
    float x[] = { 1, 2, 3 }, y[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, z[] = { 5, 2, 6 };
    uint32_t at_x[] = { 0, 5, 9 }, at_z[] = { 1, 5, 8 };
    struct trace_row a = row_of(x, at_x, 3, 10), b = row_of(y, NULL, 10, 10), s = row_of(z, at_z, 3, 10);
    struct comparison c = { 0 }, d = { 0 }, e = { 0 };
    compare_rows(&c, &a, &b);   /* d = 0, 1, 2 against 1, 1, 1: sqrt(5 / 3) */
    CHECK(near(compare_error(&c), 1.290994449) && c.n_value == 3 && c.max_place == 9, "%.9g", compare_error(&c));
    compare_rows(&d, &a, &s);   /* both have only place 5, with 2 and 2 */
    CHECK(compare_error(&d) == 0 && d.n_value == 1 && d.n_row == 1, "%g of %llu", compare_error(&d),
          (unsigned long long)d.n_value);
    struct trace_row other = row_of(y, NULL, 9, 9), none = row_of(NULL, NULL, 0, 10);
    other.n_head = 2;
    other.n = 4;
    compare_rows(&e, &a, &other);   /* 10 and 8 values */
    compare_rows(&e, &a, &none);
    CHECK(e.n_row == 0 && e.n_value == 0, "shapes that differ: %u rows", e.n_row);
}

static void nan_rows(void) {
    float x[] = { NAN, 1, -INFINITY, 1 }, y[] = { NAN, 1, -INFINITY, 1 }, z[] = { NAN, 1, INFINITY, 1 };
    struct trace_row a = row_of(x, NULL, 4, 4), same = row_of(y, NULL, 4, 4), other = row_of(z, NULL, 4, 4);
    struct comparison c = { 0 }, d = { 0 };
    compare_rows(&c, &a, &same);
    CHECK(compare_error(&c) == 0 && c.n_nan == 0 && c.max_d == 0, "%g", compare_error(&c));
    compare_rows(&d, &a, &other);
    CHECK(compare_error(&d) == 1 && d.n_nan == 1 && isinf(d.max_d) && d.max_place == 2, "%g, %llu", compare_error(&d),
          (unsigned long long)d.n_nan);
}

static void zero_rows(void) {
    float zeros[] = { 0, -0.0f }, x[] = { 0, 1e-30f };
    struct trace_row a = row_of(x, NULL, 2, 2), b = row_of(zeros, NULL, 2, 2);
    struct comparison c = { 0 }, d = { 0 };
    compare_rows(&c, &b, &b);
    CHECK(compare_error(&c) == 0 && isnan(compare_cosine(&c)), "zeros: %g", compare_error(&c));
    compare_rows(&d, &a, &b);
    CHECK(isinf(compare_error(&d)), "against zeros: %g", compare_error(&d));
}

static void rounded_rows(void) {
    float printed[] = { 0.0012f }, within[] = { 0.00124f }, beyond[] = { 0.0013f }, zero[] = { 0 }, tiny[] = { 4e-5f };
    struct trace_row b = row_of(printed, NULL, 1, 1), a = row_of(within, NULL, 1, 1), far = row_of(beyond, NULL, 1, 1),
                     z = row_of(zero, NULL, 1, 1), t = row_of(tiny, NULL, 1, 1);
    b.quantum = z.quantum = 1e-4f;
    struct comparison c = { 0 }, d = { 0 };
    compare_rows(&c, &a, &b);
    compare_rows(&c, &t, &z);
    CHECK(compare_error(&c) == 0 && c.n_row == 2, "within half a step: %g", compare_error(&c));
    compare_rows(&d, &far, &b);   /* 1e-4 - 5e-5, of sqrt(0.0012^2 + (5e-5)^2 / 3) */
    CHECK(fabs(compare_error(&d) - 0.0416546156) < 1e-5, "beyond it: %.9g", compare_error(&d));
}

static void statistics_rows(void) {
    float x[] = { 1, 2 };
    struct trace_row a = row_of(NULL, NULL, 0, 8), b = row_of(NULL, NULL, 0, 8);
    a.stats = (struct trace_stats) { 0.5, 2.0, -3, 4, 0, 0 };
    b.stats = (struct trace_stats) { 0.4, 2.2, -3, 5, 0, 0 };
    struct comparison c = { 0 }, d = { 0 }, e = { 0 };
    compare_rows(&c, &a, &b);   /* mean 0.1 / 2.2, RMS 0.2 / 2.2, max 1 / 5: the largest error is 0.2 */
    CHECK(near(compare_error(&c), 0.2) && c.n_row == 1 && c.n_value == 0, "%.9g", compare_error(&c));
    /* The first values agree, but the others cannot. */
    a.values = b.values = x;
    a.n_value = b.n_value = 2;
    compare_rows(&d, &a, &b);
    CHECK(near(compare_error(&d), 0.2) && d.n_value == 2, "%.9g", compare_error(&d));
    a.stats = b.stats;
    a.stats.n_nan = 3;
    compare_rows(&e, &a, &b);
    CHECK(compare_error(&e) == 1 && e.n_nan == 1, "%g", compare_error(&e));
}

static void padded_rows(void) {
    float x[] = { 0.5f, 0.25f, 0.25f, 1, 0, 0 }, y[] = { 0.5f, 0.5f, 1, 0 };
    struct trace_row a = row_of(x, NULL, 6, 3), b = row_of(y, NULL, 4, 2);
    a.n_head = b.n_head = 2;
    struct comparison c = { 0 }, d = { 0 };
    compare_rows(&c, &a, &b);   /* keys 0.5 0.25 0.25 | 1 0 0 against 0.5 0.5 0 | 1 0 0: sqrt(0.125 / 1.5) */
    CHECK(near(compare_error(&c), 0.288675135) && c.n_value == 6, "%.9g", compare_error(&c));
    compare_rows(&d, &b, &a);   /* the same d, against 0.25 + 2 * 0.0625 + 1 */
    CHECK(near(compare_error(&d), 0.301511345), "%.9g", compare_error(&d));
}

static void sum_rows(void) {
    float one[] = { 1, 0 }, none[] = { 0, 0 };
    struct trace_row rows[] = { row_of(one, NULL, 2, 2), row_of(none, NULL, 2, 2) }, sum = row_of(NULL, NULL, 0, 0);
    for (uint32_t i = 0; i < 2; i++) {
        rows[i].pos = i;
        rows[i].stats = trace_stats_of(rows[i].values, 2);
    }
    sum.pos = TRACE_ALL_TOKENS;
    sum.stats.mean = 0.25;   /* 1 of 4 values, whose RMS is 0.5 */
    struct trace_tap a = { .id = TAP_EMBD, .layer = -1, .n_row = 1, .rows = &sum };
    struct trace_tap b = { .id = TAP_EMBD, .layer = -1, .n_row = 2, .rows = rows };
    struct comparison c = { 0 }, d = { 0 }, e = { 0 };
    compare_taps(&c, &a, &b);
    CHECK(compare_error(&c) == 0 && c.n_row == 1, "%g of %u rows", compare_error(&c), c.n_row);
    sum.stats.mean = 0.5;
    compare_taps(&d, &a, &b);
    CHECK(near(compare_error(&d), 0.5), "%.9g", compare_error(&d));
    /* The rows of the tokens agree; only the sum shows the difference. */
    struct trace_row mixed[] = { rows[0], rows[1], sum };
    struct trace_tap both = { .id = TAP_EMBD, .layer = -1, .n_row = 3, .rows = mixed };
    compare_taps(&e, &both, &b);
    CHECK(near(compare_error(&e), 0.5) && e.n_row == 2 && e.n_value == 4, "%.9g of %u rows", compare_error(&e),
          e.n_row);
}

static void listed_rows(void) {
    float x[] = { 8, 6 }, y[] = { 6, 10 }, z[] = { 10, 7 };
    uint32_t at_x[] = { 3, 4 }, at_y[] = { 4, 7 }, at_z[] = { 7, 9 };
    struct trace_row a = row_of(x, at_x, 2, 0), s = row_of(y, at_y, 2, 0), b = row_of(z, at_z, 2, 0);
    a.n_top = b.n_top = s.n_top = 2;
    struct comparison c = { .use_top_bound = true }, d = c, e = { 0 }, f = c;
    /* Place 4 is 6 in both.  A's 8 is 6 at most in B, B's 10 is 6 at most in A: sqrt((4 + 16) / (36 + 36 + 100)). */
    compare_rows(&c, &a, &s);
    CHECK(near(compare_error(&c), 0.340997238) && c.n_value == 1 && c.n_bound == 2 && near(compare_cosine(&c), 1),
          "%.9g of %llu and %llu", compare_error(&c), (unsigned long long)c.n_value, (unsigned long long)c.n_bound);
    CHECK(c.max_d == 4 && c.max_place == 7 && c.max_a == 6 && c.max_b == 10, "%g at %u", c.max_d, c.max_place);
    /* No id is in both.  A's 8 is above 7, its 6 may be right; B's 10 and 7 are above 6: sqrt(18 / (49 + 100 + 49)). */
    compare_rows(&d, &a, &b);
    CHECK(near(compare_error(&d), 0.301511345) && d.n_value == 0 && d.n_bound == 3 && isnan(compare_cosine(&d)),
          "%.9g of %llu", compare_error(&d), (unsigned long long)d.n_bound);
    compare_rows(&e, &a, &b);   /* no error unless it is requested or the likeliest ids are known */
    a.n_top = b.n_top = 0;
    compare_rows(&f, &a, &b);
    CHECK(e.n_row == 0 && f.n_row == 0, "%u, %u rows", e.n_row, f.n_row);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* Tokens by their texts, "<s>~Hello~ world": the id of a text is its index in texts, whose first is BOS. */
static plumb_trace *tokens_of(const char *list, char texts[32][32]) {
    plumb_trace *t = plumb_trace_create();
    int32_t ids[32];
    size_t n = 0;
    const char *pieces[32];
    for (const char *at = list; *at && n < 32;) {
        size_t len = strcspn(at, "~");
        int32_t id = 0;
        while (texts[id][0] && (strlen(texts[id]) != len || memcmp(texts[id], at, len) != 0)) id++;
        memcpy(texts[id], at, len);
        ids[n] = id;
        pieces[n++] = texts[id];
        at += len + (at[len] == '~');
    }
    CHECK(trace_set_tokens(t, ids, n, n) == PLUMB_OK, "%s", plumb_trace_error(t));
    for (uint32_t i = 0; i < n; i++) trace_set_piece(t, i, pieces[i], strlen(pieces[i]));
    t->bos = 0;
    return t;
}

struct tokens_row {
    const char *name, *a, *b;
    enum tokens_kind kind;
    uint32_t first;
    const char *says;
};

static const struct tokens_row token_rows[] = {
    { "diff: the same tokens", "<s>~Hello~ world", "<s>~Hello~ world", TOKENS_SAME, 3, "same" },
    { "diff: one list begins the other", "<s>~Hello", "<s>~Hello~ world", TOKENS_PREFIX, 2, "A is a prefix of B" },
    { "diff: its last token again", "<s>~Hello~ world~ world", "<s>~Hello~ world", TOKENS_PREFIX, 3,
      "its tokens are compared; A has its last token twice" },
    { "diff: BOS missing", "Hello~ world", "<s>~Hello~ world", TOKENS_BOS_MISSING, 0, "BOS is missing in A" },
    { "diff: BOS added", "<s>~Hello~ world", "Hello~ world", TOKENS_BOS_ADDED, 0, "A begins with BOS" },
    { "diff: BOS doubled", "<s>~<s>~Hello~ world", "<s>~Hello~ world", TOKENS_BOS_DOUBLED, 1, "doubled in A" },
    { "diff: BOS doubled in the truth", "<s>~Hello", "<s>~<s>~Hello", TOKENS_BOS_SINGLE, 1, "doubled in B" },
    { "diff: the last token of a prompt twice", "<s>~Hello~ world~ world~!", "<s>~Hello~ world~!", TOKENS_REPEATED, 3,
      "A is fed one token twice" },
    { "diff: a space added in front", "<s>~ Hello~ world", "<s>~Hello~ world", TOKENS_SPACE_ADDED, 1, "space" },
    { "diff: a space of its own", "<s>~ ~Hello~ world", "<s>~Hello~ world", TOKENS_SPACE_ADDED, 1, "space" },
    { "diff: one space more, the same token again", "<s>~ ~ ~Hello", "<s>~ ~Hello", TOKENS_SPACE_ADDED, 2, "space" },
    { "diff: the space missing, and BOS too", "Hello~ world", "<s>~ Hello~ world", TOKENS_SPACE_MISSING, 0,
      "one space less at its beginning than that of B (add_space_prefix); also, the number of BOS tokens at the "
      "beginning is 0 in A and 1 in B" },
    { "diff: raw pieces of byte-level BPE", "<s>~\xc4\xa0Hello", "<s>~Hello", TOKENS_SPACE_ADDED, 1, "space" },
    { "diff: special tokens spelled out", "<s>~<|im~_start~|>~user", "<s>~<|im_start|>~user", TOKENS_SPECIAL_SPELLED, 1,
      "not parsed in A" },
    { "diff: special tokens parsed where the truth spells them", "<s>~[INST]~Hi", "<s>~[~INST~]~Hi",
      TOKENS_SPECIAL_PARSED, 1, "not parsed in B" },
    { "diff: another template", "<s>~[INST]~ Hi ~[/INST]", "<s>~<start_of_turn>~user~Hi~<end_of_turn>", TOKENS_TEMPLATE,
      1, "A uses Llama 2 or Mistral, B uses Gemma" },
    { "diff: no template", "<s>~Hi", "<s>~<start_of_turn>~user~Hi~<end_of_turn>", TOKENS_TEMPLATE, 1,
      "B uses Gemma, A uses none" },
    { "diff: a turn more", "<s>~<start_of_turn>~sys~<start_of_turn>~Hi", "<s>~<start_of_turn>~Hi", TOKENS_TEMPLATE, 2,
      "the number of \"<start_of_turn>\" is 2 in A and 1 in B" },
    { "diff: cut into other tokens", "<s>~Hel~lo", "<s>~Hello", TOKENS_SPLIT, 1, "split into different tokens" },
    { "diff: nothing but BOS", "<s>", "Hello", TOKENS_TEXT, 0, "the texts differ" },
    { "diff: another text", "<s>~Hello~ world", "<s>~Hello~ moon", TOKENS_TEXT, 2, "the texts differ" },
};

static void token_lists(const void *arg) {
    const struct tokens_row *row = arg;
    char texts[32][32] = { "<s>" };
    plumb_trace *a = tokens_of(row->a, texts), *b = tokens_of(row->b, texts);
    struct tokens_difference d;
    struct error err;
    CHECK(tokens_compare(&d, a, b, NULL, &err) == PLUMB_OK, "%s", err.message);
    CHECK(d.kind == row->kind && d.first == row->first, "%s at %u: %s", tokens_kind_name(d.kind), d.first, d.text);
    CHECK(strstr(d.text, row->says) != NULL, "%s", d.text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}


/* ---- reports ----------------------------------------------------------------------------------------------------- */

/* Joins the lines that were wrapped at column 80; two spaces separate paragraphs. */
static char *joined(char *text) {
    for (char *at = text; *at; at++) {
        if (*at == '\n') *at = ' ';
    }
    return text;
}

/* To be freed. */
static char *report(plumb_trace *a, plumb_trace *b, plumb_model *m, plumb_format format, bool *agree) {
    struct capture t = { 0 };
    plumb_report r = { .format = format, .write = capture_write, .user = &t, .name_a = "theirs.json",
                       .name_b = "<b>\"ours\"" };
    CHECK(plumb_diff(a, b, m, &r, agree) == PLUMB_OK && t.n > 0, "%s", plumb_trace_error(a));
    return t.text;
}

static plumb_trace *trace_of(const char *json) {
    plumb_trace *t = plumb_trace_create();
    CHECK(t && plumb_trace_read(t, json, strlen(json)) == PLUMB_OK, "%s: %s", json, t ? plumb_trace_error(t) : "");
    return t;
}

/* Four values of one token, 1 + error each, so the relative error of the tap against all ones is `error`. */
static void add_tap(plumb_trace *t, enum tap_id id, int32_t layer, float error) {
    float values[4] = { 1 + error, 1 + error, 1 + error, 1 + error };
    struct trace_row *row;
    if (CHECK(trace_new_row(t, id, layer, 0, &row) == PLUMB_OK, "%s", plumb_trace_error(t))) {
        CHECK(trace_set_values(t, row, id, 1, 4, values, NULL, 4) == PLUMB_OK, "%s", plumb_trace_error(t));
    }
}

/* Makes two traces of n_layer layers, both with the taps for which error_of is not NAN. */
static void make_pair(plumb_trace *sides[2], int32_t n_layer, float (*error_of)(enum tap_id id, int32_t layer)) {
    const int32_t token = 5;
    for (size_t s = 0; s < 2; s++) {
        sides[s] = plumb_trace_create();
        CHECK(trace_set_tokens(sides[s], &token, 1, 1) == PLUMB_OK, "%s", plumb_trace_error(sides[s]));
        for (enum tap_id id = 0; id < TAP_COUNT; id++) {
            bool in_layer = tap_spec(id)->in_layer;
            for (int32_t layer = in_layer ? 0 : -1; layer < (in_layer ? n_layer : 0); layer++) {
                float error = error_of(id, layer);
                if (!isnan(error)) add_tap(sides[s], id, layer, s == 0 ? error : 0);
            }
        }
    }
}

/* Checks that the verdict on them contains all of these texts, and not the last. */
static void check_verdict(int32_t n_layer, float (*error_of)(enum tap_id id, int32_t layer), bool expected,
                          const char *const says[], size_t n, const char *says_not) {
    plumb_trace *sides[2];
    make_pair(sides, n_layer, error_of);
    bool agree = !expected;
    char *text = report(sides[0], sides[1], NULL, PLUMB_FORMAT_TEXT, &agree);
    CHECK(agree == expected, "agree: %d", agree);
    const char *verdict = strstr(joined(text), "  They ");
    for (size_t i = 0; i < n; i++) CHECK(strstr(text, says[i]), "no \"%s\": %s", says[i], verdict ? verdict : text);
    CHECK(!strstr(text, says_not), "\"%s\": %s", says_not, verdict ? verdict : text);
    free(text);
    plumb_trace_free(sides[0]);
    plumb_trace_free(sides[1]);
}
#define SAYS(...) (const char *const[]) { __VA_ARGS__ }, sizeof((const char *const[]) { __VA_ARGS__ }) / sizeof(char *)

static float no_error(enum tap_id id, int32_t layer) { return id == TAP_FFN_OUT && layer == 1 ? 0.001f : 0; }

/* A mistake in RoPE of layer 1. */
static float rope_error(enum tap_id id, int32_t layer) {
    if (tap_place(0, id, layer) < tap_place(0, TAP_QCUR_ROPE, 1)) return 1e-4f;
    if (id == TAP_KCUR_ROPE && layer == 1) return 1e-4f;
    return id == TAP_QCUR_ROPE && layer == 1 ? 0.5f : 0.25f;
}

/* The same, but the traces have only the layers' outputs. */
static float rope_error_outside(enum tap_id id, int32_t layer) {
    return id == TAP_L_OUT ? rope_error(id, layer) : NAN;
}

/* 0.001 after layer 0, twice that after each layer: over 0.01 at layer 4. */
static float growing_error(enum tap_id id, int32_t layer) {
    if (id == TAP_EMBD) return 0;
    if (id >= TAP_RESULT_NORM) return 0.032f;
    return (float)(0.001 * pow(2, layer));
}

/* The same, with a mistake in layer 5. */
static float growing_error_and_jump(enum tap_id id, int32_t layer) {
    if (tap_place(0, id, layer) < tap_place(0, TAP_KQ_SOFT_MAX, 5)) return growing_error(id, layer);
    return 0.9f;
}

/* Weights of another type: all products of layer 0 have the same error. */
static float other_type(enum tap_id id, int32_t layer) {
    return id < TAP_QCUR ? 0 : id == TAP_QCUR && layer == 0 ? 0.04f : id == TAP_KCUR && layer == 0 ? 0.05f : 0.0625f;
}

/* Norms are wrong from a layer on whose input is right. */
static float norm_error(enum tap_id id, int32_t layer) { return layer < 1 || id == TAP_EMBD ? 0.0001f : 0.5f; }
static float first_norm_error(enum tap_id id, int32_t layer) {
    (void)layer;
    return id <= TAP_ENCODER_EMBD ? 0.0001f : 0.5f;
}

static float wrong_embedding(enum tap_id id, int32_t layer) {
    (void)layer;
    return id == TAP_EMBD ? 1 : NAN;
}

static void verdict_agree(void) {
    check_verdict(2, no_error, true, SAYS("They agree: ", " taps, relative errors up to 0.001 (ffn_out-1), tolerance "
                                          "0.01."), "first diverge");
}

static void verdict_jump(void) {
    check_verdict(3, rope_error, false,
                  SAYS(">>Qcur_rope-1 ", "> kq_soft_max-1 ", "  Kcur_rope-1 ",
                       "They first diverge at Qcur_rope-1 (query after RoPE): relative error 0.5 (of all 4 values), "
                       "tolerance 0.01.",
                       "Its inputs agree: Qcur_normed-1 (0.0001). So the fault is in this step.",
                       "`plumb diagnose` knows ", " mistakes that begin here. ",
                       "Next: plumb diagnose MODEL --against theirs.json"), "No single step");
}

/* The first tap of a layer depends only on the layer before, and in layer 0 on the embeddings. */
static void verdict_jump_at_norm(void) {
    check_verdict(2, norm_error, false,
                  SAYS("They first diverge at modalities-1 ",
                       "Its inputs agree: l_out-0 (0.0001). So the fault is in this step, or "),
                  "No single step");
    check_verdict(2, first_norm_error, false,
                  SAYS("They first diverge at modalities-0 ",
                       "Its inputs agree: embd (0.0001). So the fault is in this step, or "),
                  "No single step");
}

static void verdict_jump_outside(void) {
    check_verdict(3, rope_error_outside, false,
                  SAYS("They first diverge at l_out-1 (residual after the layer): relative error 0.25",
                       "Its inputs were not all compared. The nearest earlier taps agree: l_out-0 (0.0001)."),
                  "begin here");
}

/* The traces have no layers, so the inputs of result_norm are not known. */
static float result_norm_error(enum tap_id id, int32_t layer) {
    (void)layer;
    return id == TAP_EMBD ? 0.0001f : id == TAP_RESULT_NORM ? 0.5f : NAN;
}

static void verdict_no_layers(void) {
    check_verdict(0, result_norm_error, false,
                  SAYS("They first diverge at result_norm ", "The nearest earlier taps agree: embd (0.0001)."),
                  "Its inputs agree");
}

static void verdict_gradual(void) {
    check_verdict(6, growing_error, false,
                  SAYS("They first diverge at modalities-4 ",
                       "No single step is the cause: modalities-3 already has an error of 0.008.",
                       "From l_out-0 to l_out-5 the error goes from 0.001 to 0.032: x2.00 per layer.",
                       "activations rounded to 8 bits as in llama.cpp, add up"), "begin here");
}

static void verdict_gradual_and_jump(void) {
    check_verdict(6, growing_error_and_jump, false,
                  SAYS("They first diverge at modalities-4 ",
                       "But look at kq_soft_max-5: its error is 0.9, and that of its inputs is 0.032."),
                  "as in llama.cpp, add up");
}

static void verdict_siblings(void) {
    check_verdict(1, other_type, false,
                  SAYS("They first diverge at Qcur-0 ", "in how blk.0.attn_q.weight is read",
                       "Kcur-0 (0.05) and Vcur-0 (0.062), computed from the same input, diverge too: the fault "
                       "is not in one tensor",
                       "that begin here, and the usual mistakes in reading each type of weights.", "`plumb weights`"),
                  "No single step");
}

static void verdict_first_step(void) {
    check_verdict(0, wrong_embedding, false,
                  SAYS(">>embd ", "This is the first step, which looks up rows of token_embd.weight",
                       "the usual mistakes in reading each type of weights."), "No single step");
}

/* The embeddings have one token less than the token list: the first is missing. */
static void fewer_rows(void) {
    plumb_trace *a = trace_of("{\"tokens\":[1,5,6],\"taps\":[{\"name\":\"embd\",\"values\":[[2,0],[0,3]]}]}");
    plumb_trace *b = trace_of("{\"tokens\":[1,5,6],\"taps\":[{\"name\":\"embd\",\"values\":[[1,1],[2,0],[0,3]]}]}");
    bool agree = true;
    char *text = report(a, b, NULL, PLUMB_FORMAT_TEXT, &agree);
    CHECK(!agree && strstr(joined(text), " A has rows for 2 tokens but lists 3: was one of them, such as BOS, not "
                                         "fed? ") && !strstr(text, "B has rows"), "%s", text);
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

static void shapes(void) {
    plumb_trace *a = trace_of("{\"tokens\":[1],\"taps\":["
                              "{\"name\":\"Kcur-0\",\"token\":0,\"shape\":[9,2],\"values\":[1]},"
                              "{\"name\":\"Vcur-0\",\"token\":0,\"shape\":[6],\"values\":[2]}]}");
    plumb_trace *b = trace_of("{\"tokens\":[1],\"taps\":["
                              "{\"name\":\"Kcur-0\",\"token\":0,\"shape\":[3,2],\"values\":[1]},"
                              "{\"name\":\"Vcur-0\",\"token\":0,\"shape\":[3,2],\"values\":[2]},"
                              "{\"name\":\"l_out-0\",\"token\":0,\"values\":[2]}]}");
    bool agree = true;
    char *text = report(a, b, NULL, PLUMB_FORMAT_TEXT, &agree);
    CHECK(!agree, "shapes differ");
    const char *const says[] = { ">>Kcur-0             A has 9 x 2 values per token, B has 3 x 2 ", "  Vcur-0 ",
                                 "They first diverge at Kcur-0 (key before RoPE): A has 9 x 2 values per token, B has ",
                                 "0 taps are only in A, 1 only in B" };
    joined(text);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) CHECK(strstr(text, says[i]), "%s: %s", says[i], text);
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

/* Every field that a file can put into a report, in its most hostile form. */
static const char hostile_a[] =
    "{\"program\":\"<script>alert('x')</script>&\\u001b[2J\",\"tokens\":[1,2],\n"
    "\"pieces\":[\"<img src=x>\",\"\\\"&'\"],\n"
    "\"taps\":[{\"name\":\"<svg onload=x>\",\"token\":0,\"values\":[1]},\n"
    "{\"name\":\"l_out-0\",\"token\":0,\"values\":[1,2,4]},\n"
    "{\"name\":\"result_output\",\"token\":1,\"top\":[[2,7.5],[1,6.25]]}]}";
static const char hostile_b[] =
    "{\"tokens\":[1,2],\"taps\":[{\"name\":\"l_out-0\",\"token\":0,\"values\":[1,2,3]},\n"
    "{\"name\":\"result_output\",\"token\":1,\"top\":[[2,7.5],[9,6.5]]}]}";

static void text_lines(void) {
    plumb_trace *a = trace_of(hostile_a), *b = trace_of(hostile_b);
    bool agree = true;
    char *text = report(a, b, NULL, PLUMB_FORMAT_TEXT, &agree);
    /* |d| = 1 of sqrt(1 + 4 + 9); the cosine is 17 / sqrt(21 * 14).  Only id 2 is in both lists of logits; B has 6.5
     * for id 9, and A at most 6.25: 0.25 of sqrt(7.5 * 7.5 + 6.5 * 6.5). */
    static const char *const lines[] = {
        "A  theirs.json             <script>alert('x')</script>&\\x1b[2J, 2 tokens, 2 taps\n",
        "   1 record was ignored, because no tap has its name: <svg onload=x>\n",
        "B  <b>\"ours\"               2 tokens, 2 taps\n",
        "\n>>l_out-0                 1        3    0.267        1  [0, 2]        0.9914601\n",
        "\n> result_output           1        2   0.0252     0.25  [1, 9]        1.0000000\n",
        "likeliest after token 1\n",
        " 1     7.5000       2 \"\"&'\"                7.5000       2 \"\"&'\"\n",
        " 2     6.2500       1 \"<img src=x>\"        6.5000       9 \n--model MODEL shows the texts of the tokens\n\n",
    };
    CHECK(!agree, "they part");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) CHECK(strstr(text, lines[i]), "%s%s", lines[i], text);
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

static void json_fields(void) {
    plumb_trace *a = trace_of(hostile_a), *b = trace_of(hostile_b);
    bool agree = true;
    char *text = report(a, b, NULL, PLUMB_FORMAT_JSON, &agree);
    struct json j;
    struct json_text key;
    struct error err = { 0 };
    uint32_t n_seen = 0, n_tap = 0;
    json_begin(&j, text, strlen(text), &err);
    json_enter(&j, '{', "a diff");
    while (json_member(&j, &key)) {
        if (json_is(key, "format")) {
            n_seen += json_is(json_string(&j, "format"), "plumb diff");
        } else if (json_is(key, "tolerance")) {
            n_seen += json_number(&j, "tolerance") == 0.01;
        } else if (json_is(key, "n_over")) {
            n_seen += json_integer(&j, 0, 9, "n_over") == 2;
        } else if (json_is(key, "verdict")) {
            json_enter(&j, '{', "verdict");
            while (json_member(&j, &key)) {
                if (json_is(key, "kind")) n_seen += json_is(json_string(&j, "kind"), "jump");
                else if (json_is(key, "tap")) n_seen += json_is(json_string(&j, "tap"), "l_out-0");
                else json_skip(&j);
            }
        } else if (json_is(key, "taps")) {
            json_enter(&j, '[', "taps");
            for (; json_element(&j); n_tap++) {
                json_enter(&j, '{', "tap");
                while (json_member(&j, &key)) {
                    bool first = n_tap == 0;
                    if (first && json_is(key, "error")) n_seen += near(json_number(&j, "error"), 0.267261242);
                    else if (first && json_is(key, "cosine")) n_seen += near(json_number(&j, "cosine"), 0.991460142);
                    else if (!first && json_is(key, "n_value")) n_seen += json_integer(&j, 0, 9, "n_value") == 1;
                    else json_skip(&j);
                }
            }
        } else {
            json_skip(&j);
        }
    }
    CHECK(json_end(&j) == PLUMB_OK, "%s", err.message);
    CHECK(n_seen == 8 && n_tap == 2, "%u fields, %u taps: %s", n_seen, n_tap, text);
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

/* Only A says how many values a token has. */
static void one_shape(void) {
    plumb_trace *a = trace_of("{\"tokens\":[1],\"taps\":[{\"name\":\"embd\",\"token\":0,\"shape\":[2],"
                              "\"values\":[1,2]}]}"),
                *b = trace_of("{\"tokens\":[1],\"taps\":[{\"name\":\"embd\",\"token\":0,\"values\":[1,3]}]}");
    bool agree = true;
    char *text = report(a, b, NULL, PLUMB_FORMAT_TEXT, &agree);
    CHECK(!agree && strstr(joined(text), "of all 2 values"), "%s", text);
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

static size_t count(const char *text, const char *word) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++) n++;
    return n;
}

/* What stands between backticks in a verdict is code in the page. */
static void html_code(void) {
    plumb_trace *a = trace_of("{\"tokens\":[1],\"taps\":[{\"name\":\"embd\",\"values\":[[2,0]]}]}");
    plumb_trace *b = trace_of("{\"tokens\":[1],\"taps\":[{\"name\":\"embd\",\"values\":[[2,1]]}]}");
    bool agree = true;
    char *text = report(a, b, NULL, PLUMB_FORMAT_HTML, &agree);
    CHECK(!agree && strstr(text, "<code>plumb diagnose</code> knows 15 mistakes that begin here, and"), "%s",
          strstr(text, "<h1") ? strstr(text, "<h1") : text);
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

/* A colour for each decade below the tolerance, 0.01, and for each half above it, in the table and on the map. */
static void html_colours(void) {
    static const struct { float error; const char *colour; } rows[] = {
        { 0, "k0" }, { 5e-7f, "k1" }, { 5e-6f, "k2" }, { 5e-5f, "k3" }, { 5e-4f, "k4" }, { 5e-3f, "k5" },
        { 0.02f, "h1" }, { 0.05f, "h2" }, { 0.2f, "h3" }, { 0.5f, "h4" }, { 1e30f, "h4" },
    };
    enum { N = sizeof rows / sizeof *rows };
    char json[2][2000];
    for (int k = 0; k < 2; k++) {
        size_t n = (size_t)snprintf(json[k], sizeof json[k], "{\"tokens\":[1],\"taps\":[");
        for (int i = 0; i < N; i++) {
            n += (size_t)snprintf(json[k] + n, sizeof json[k] - n, "%s{\"name\":\"l_out-%d\",\"values\":[[%.9g]]}",
                                  i > 0 ? "," : "", i, 1 + (k == 0 ? (double)rows[i].error : 0));
        }
        snprintf(json[k] + n, sizeof json[k] - n, "]}");
    }
    plumb_trace *a = trace_of(json[0]), *b = trace_of(json[1]);
    bool agree = true;
    char *text = report(a, b, NULL, PLUMB_FORMAT_HTML, &agree);
    for (int i = 0; i < N; i++) {
        char cell[80], place[80];
        snprintf(cell, sizeof cell, "<i class=\"%s\"></i>l_out-%d<", rows[i].colour, i);
        snprintf(place, sizeof place, "<rect class=\"%s\" ", rows[i].colour);
        const char *title = strstr(text, "<title>l_out-");
        for (int k = 0; title && k < i; k++) title = strstr(title + 1, "<title>l_out-");
        CHECK(strstr(text, cell), "%s is not in the table", cell);
        CHECK(strstr(text, place) && strstr(text, place) < title, "%s is not on the map", place);
    }
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

/* If A's tokens are the first of B's, the activations of these are compared. */
static void prefix_taps(void) {
    plumb_trace *a = trace_of("{\"tokens\":[1,5],\"taps\":[{\"name\":\"embd\",\"values\":[[2,0],[0,3]]}]}");
    plumb_trace *b = trace_of("{\"tokens\":[1,5,6],\"taps\":[{\"name\":\"embd\",\"values\":[[2,0],[0,3],[1,1]]}]}");
    bool agree = false;
    char *text = report(a, b, NULL, PLUMB_FORMAT_TEXT, &agree);
    CHECK(agree && strstr(text, "They agree: 1 tap"), "%s", text);
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

static void html_page(void) {
    plumb_trace *a = trace_of(hostile_a), *b = trace_of(hostile_b);
    bool agree = true;
    char *text = report(a, b, NULL, PLUMB_FORMAT_HTML, &agree);
    static const char *const never[] = { "<script", "<img", "<b>\"", "onload=x>\"", "http:", "https:", "src=\"", "url(",
                                         "@import", "\x1b", "nan%", "inf%" };
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) CHECK(!strstr(text, never[i]), "%s is in it", never[i]);
    static const char *const says[] = { "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;\\x1b[2J",
                                        "&lt;b&gt;&quot;ours&quot;", "&lt;img src=x&gt;", "&quot;&amp;&#39;",
                                        "<h1 class=\"differ\">They first diverge at l_out-0 (residual after the layer)"
                                        "</h1>\n<p>relative error 0.27 (of 3 values per token), tolerance "
                                        "0.01.</p>",
                                        "<title>l_out-0: error 0.267, ", "largest error, at l_out-0</dt><dd>0.27</dd>",
                                        "<li class=\"off\"><code>9</code><span>6.500</span>", "default-src 'none'" };
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) CHECK(strstr(text, says[i]), "%s is not in it", says[i]);
    static const char *const elements[][2] = { { "<svg", "</svg>" }, { "<div", "</div>" }, { "<section", "</section>" },
                                               { "<p", "</p>" }, { "<li", "</li>" }, { "<td", "</td>" },
                                               { "<text", "</text>" }, { "<span", "</span>" }, { "<code", "</code>" } };
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        size_t n = count(text, elements[i][0]);
        if (i == 3) n -= count(text, "<polyline");
        if (i == 4) n -= count(text, "<line");
        CHECK(n > 0 && n == count(text, elements[i][1]), "%zu %s, %zu %s", n, elements[i][0],
              count(text, elements[i][1]), elements[i][1]);
    }
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

/* The traces have only ids; the vocabulary is the model's. */
static void tokens_by_model(void) {
    plumb_model *m = fixture_load("tests/vectors/synth/spm.gguf");
    if (!m) return;
    static const struct { const char *text; unsigned flags[2]; const char *kind; } rows[] = {
        { "ab", { 0, PLUMB_ADD_SPECIAL }, "\"verdict\":\"bos_missing\"" },
        { "<s>ab", { 0, PLUMB_PARSE_SPECIAL }, "\"verdict\":\"special_spelled\"" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_trace *sides[2] = { plumb_trace_create(), plumb_trace_create() };
        for (size_t s = 0; s < 2; s++) {
            int32_t ids[64];
            int64_t n = plumb_tokenize(m, rows[i].text, strlen(rows[i].text), rows[i].flags[s], ids, 64);
            if (CHECK(n > 0, "%d", (int)n)) plumb_trace_set_tokens(sides[s], ids, (size_t)n, (size_t)n);
        }
        bool agree = true;
        char *text = report(sides[0], sides[1], m, PLUMB_FORMAT_JSON, &agree);
        CHECK(!agree && strstr(text, rows[i].kind), "%s", text);
        free(text);
        plumb_trace_free(sides[0]);
        plumb_trace_free(sides[1]);
    }
    plumb_model_free(m);
}

/* Traces with at most ten logits: the lists show whether they diverge. */
static void lists_alone(void) {
    static const struct { const char *a, *b; bool agree; const char *says; } rows[] = {
        { "[3,8],[4,6]", "[7,10],[9,7]", false, "They first diverge at result_output (logits): relative error 0.3 (at "
          "least, from the lists of the likeliest tokens), tolerance 0.01. The likeliest tokens after token 1 differ: "
          "A's likeliest, 3 (8), is not among B's top 2; B's likeliest, 7 \" Paris\" (10), is not among A's top 2. The "
          "sides have no earlier tap " },
        { "[3,8],[7,6]", "[7,10],[3,7]", false, "A's likeliest, 3 (8), is number 2 of B's; B's likeliest, 7 "
          "\" Paris\" (10), is number 2 of A's." },
        { "[3,8],[7,6]", "[3,8],[7,9]", false, "Next: plumb diagnose MODEL --against theirs.json" },
        { "[3,8],[4,6.01]", "[3,8],[7,6.02]", true, "They agree: 1 taps" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_trace *sides[2];
        for (size_t s = 0; s < 2; s++) {
            char json[200];
            snprintf(json, sizeof json, "{\"tokens\":[1,2],\"texts\":[[7,\" Paris\"]],\"taps\":[{\"name\":\"logits\","
                     "\"token\":1,\"top\":[%s]}]}", s == 0 ? rows[i].a : rows[i].b);
            sides[s] = trace_of(json);
        }
        bool agree = !rows[i].agree;
        char *text = report(sides[0], sides[1], NULL, PLUMB_FORMAT_TEXT, &agree);
        CHECK(agree == rows[i].agree && strstr(joined(text), rows[i].says), "row %zu: %s", i, text);
        free(text);
        plumb_trace_free(sides[0]);
        plumb_trace_free(sides[1]);
    }
}

/* A's last token has only statistics, so the likeliest tokens of the one before it are shown. */
static void earlier_top(void) {
    plumb_trace *a = trace_of("{\"tokens\":[1,2],\"taps\":[{\"name\":\"logits\",\"token\":0,\"top\":[[3,8],[4,6]]},"
                              "{\"name\":\"logits\",\"token\":1,\"rms\":7}]}");
    plumb_trace *b = trace_of("{\"tokens\":[1,2],\"taps\":[{\"name\":\"logits\",\"token\":0,\"top\":[[3,8],[4,5]]},"
                              "{\"name\":\"logits\",\"token\":1,\"top\":[[9,8],[4,6]]}]}");
    bool agree = true;
    char *text = report(a, b, NULL, PLUMB_FORMAT_TEXT, &agree);
    CHECK(strstr(text, "likeliest after token 0\n"), "%s", text);
    free(text);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

/* The report asks about layers counted from 1, but not if both traces have the same layers or one has a subset. */
static void layers_from_one(void) {
    static const struct { const char *a, *b, *says; } rows[] = {
        { "[1,2]", "[0,1]", "A has layers 1 to 2, B has layers 0 to 1: does A count them from 1?" },
        { "[0,1]", "[1,2]", "B has layers 1 to 2, A has layers 0 to 1: does B count them from 1?" },
        { "[0,1]", "[0,1]", NULL }, { "[1]", "[0,1]", NULL }, { "[2]", "[1]", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_trace *sides[2] = { NULL, NULL };
        for (size_t s = 0; s < 2; s++) {
            const char *layers = s == 0 ? rows[i].a : rows[i].b;
            sides[s] = plumb_trace_create();
            add_tap(sides[s], TAP_EMBD, -1, s == 0 ? 1 : 0);
            for (const char *at = layers; *at; at++) {
                if (*at >= '0' && *at <= '9') add_tap(sides[s], TAP_L_OUT, *at - '0', 0);
            }
        }
        bool agree = true;
        char *text = report(sides[0], sides[1], NULL, PLUMB_FORMAT_TEXT, &agree);
        bool asks = strstr(text, "count them from 1?") != NULL;
        CHECK(!agree && asks == (rows[i].says != NULL), "row %zu: %s", i, text);
        CHECK(!asks || strstr(text, rows[i].says), "row %zu: %s", i, text);
        free(text);
        plumb_trace_free(sides[0]);
        plumb_trace_free(sides[1]);
    }
}

/* The suggested command examines the trace that is not plumb's, with its path quoted for the shell. */
static void next_command(void) {
    static const struct { const char *program_a, *program_b, *name_a, *name_b, *says; } rows[] = {
        { "mine", "plumb 0.1.0, fast pass", "a.json", "b.json", "--against a.json\n" },
        { "plumb 0.1.0, fast pass", "mine", "a.json", "dir/b,c-1.json", "--against dir/b,c-1.json\n" },
        { "plumb 0.1.0", "plumb 0.1.0", "a b.json", "b.json", "--against 'a b.json'\n" },
        { "", "plumbing", "it's.json", "b.json", "--against 'it'\\''s.json'\n" },
        { "", "", "$HOME", "b.json", "--against '$HOME'\n" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_trace *a = plumb_trace_create(), *b = plumb_trace_create();
        add_tap(a, TAP_EMBD, -1, 1);
        add_tap(b, TAP_EMBD, -1, 0);
        trace_set_source(a, rows[i].program_a, strlen(rows[i].program_a));
        trace_set_source(b, rows[i].program_b, strlen(rows[i].program_b));
        struct capture t = { 0 };
        plumb_report r = { .write = capture_write, .user = &t, .name_a = rows[i].name_a, .name_b = rows[i].name_b };
        bool agree = true;
        CHECK(plumb_diff(a, b, NULL, &r, &agree) == PLUMB_OK && !agree, "%s", plumb_trace_error(a));
        CHECK(t.text && strstr(t.text, rows[i].says), "row %zu: %s", i, t.text ? t.text : "");
        capture_free(&t);
        plumb_trace_free(a);
        plumb_trace_free(b);
    }
}

/* No line of the table or of the prose is wider than 80 columns, whatever is compared. */
static void columns(void) {
    plumb_trace *sides[2];
    make_pair(sides, 30, other_type);
    bool agree = true;
    char *text = report(sides[0], sides[1], NULL, PLUMB_FORMAT_TEXT, &agree);
    for (size_t n, at = 0; text && text[at]; at += n + (text[at + n] == '\n')) {
        n = strcspn(text + at, "\n");
        CHECK(n <= 80, "%.*s", (int)n, &text[at]);
    }
    free(text);
    plumb_trace_free(sides[0]);
    plumb_trace_free(sides[1]);
}

static void nothing(void) {
    plumb_trace *a = trace_of("{\"taps\":[{\"name\":\"embd\",\"token\":0,\"values\":[1]}]}");
    plumb_trace *b = trace_of("{\"taps\":[{\"name\":\"embd\",\"token\":1,\"values\":[1]}]}");
    plumb_report r = { .format = PLUMB_FORMAT_GGUF };
    bool agree = true;
    static const char *const says[] = { "\nNothing to compare: ", "\"kind\":\"nothing\"",
                                        "<h1 class=\"differ\">Nothing to compare</h1>" };
    for (plumb_format format = PLUMB_FORMAT_TEXT; format <= PLUMB_FORMAT_HTML; format++) {
        struct capture t = { 0 };
        const plumb_report all = { .format = format, .write = capture_write, .user = &t };
        agree = true;
        CHECK(plumb_diff(a, b, NULL, &all, &agree) == PLUMB_ERROR_ARGUMENT && !agree, "%s", plumb_trace_error(a));
        CHECK(strstr(plumb_trace_error(a), "nothing to compare: A has 1 taps, B has 1, and"), "%s",
              plumb_trace_error(a));
        CHECK(t.text && strstr(t.text, says[format]), "%s", t.text ? t.text : "");
        capture_free(&t);
    }
    agree = true;
    CHECK(plumb_diff(a, b, NULL, &r, &agree) == PLUMB_ERROR_ARGUMENT && !agree, "%s", plumb_trace_error(a));
    plumb_trace_free(a);
    plumb_trace_free(b);
}

/* A dump with n_prompt 0 and the embedding of the first token. */
static void no_prompt(void) {
    plumb_model *m = fixture_load("tests/vectors/synth/f32.gguf");
    plumb_trace *t = trace_of("{\"tokens\":[72,101],\"n_prompt\":0,\"taps\":["
                              "{\"name\":\"embd\",\"token\":0,\"values\":[-0.4766223]}]}");
    struct capture told = { 0 };
    plumb_report r = { .write = capture_write, .user = &told };
    plumb_verdict says = PLUMB_VERDICT_DIFFERS;
    if (m) {
        CHECK(plumb_diagnose(m, t, 1, &r, &says) == PLUMB_OK && says == PLUMB_VERDICT_AGREES, "%s",
              plumb_model_error(m));
    }
    capture_free(&told);
    plumb_trace_free(t);
    plumb_model_free(m);
}

void test_diff(void) {
    test_case("diff: errors of whole rows equal those worked by hand", whole_rows);
    test_case("diff: errors of rows with values at chosen places equal those worked by hand", sparse_rows);
    test_case("diff: NaN and infinity equal only themselves", nan_rows);
    test_case("diff: rows of zeros are compared without dividing by zero", zero_rows);
    test_case("diff: errors of values rounded for printing equal those worked by hand", rounded_rows);
    test_case("diff: errors of rows with only statistics equal those worked by hand", statistics_rows);
    test_case("diff: errors of attention to fewer and to more keys equal those worked by hand", padded_rows);
    test_case("diff: errors of a row that sums all tokens equal those worked by hand", sum_rows);
    test_case("diff: errors of lists of the likeliest tokens equal those worked by hand", listed_rows);
    TEST_ROWS("", token_lists, token_rows);
    test_case("diff: differences of token lists are named with a model's vocabulary", tokens_by_model);
    test_case("diff: traces that agree get the verdict that they agree", verdict_agree);
    test_case("diff: a jump of the error is located between a tap and its inputs", verdict_jump);
    test_case("diff: the first tap of a layer is compared with the layer before only", verdict_jump_at_norm);
    test_case("diff: a jump between taps that are far apart is found", verdict_jump_outside);
    test_case("diff: without layers, the embeddings are not taken for the inputs of the final norm", verdict_no_layers);
    test_case("diff: a gradual error is distinguished from a jump", verdict_gradual);
    test_case("diff: a jump after a gradual error is found", verdict_gradual_and_jump);
    test_case("diff: products of the same input that diverge together are named together", verdict_siblings);
    test_case("diff: a divergence at the first tap of all is found", verdict_first_step);
    test_case("diff: rows of fewer tokens than are listed are reported", fewer_rows);
    test_case("diff: different shapes are reported before different numbers", shapes);
    test_case("diff: the text report has the expected lines and escapes hostile names", text_lines);
    test_case("diff: the JSON report has the expected fields", json_fields);
    test_case("diff: one side's shape says that all values were compared", one_shape);
    test_case("diff: the HTML page has code where the verdict has backticks", html_code);
    test_case("diff: the HTML page shows each error in its colour", html_colours);
    test_case("diff: the likeliest tokens are those of the last token after which both sides know them", earlier_top);
    test_case("diff: the tokens that both sides have are compared", prefix_taps);
    test_case("diff: the HTML page escapes everything and loads nothing", html_page);
    test_case("diff: traces with only logits are compared by their lists", lists_alone);
    test_case("diff: layers that are counted from 1 are detected", layers_from_one);
    test_case("diff: the report suggests the next command", next_command);
    test_case("diff: no line exceeds 80 columns", columns);
    test_case("diff: traces with nothing in common give a status and a report", nothing);
    test_case("diff: diagnose accepts a prompt of no tokens", no_prompt);
}

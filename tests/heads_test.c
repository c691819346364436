/* The order of a head's elements in Q and K.  Ground truths: transformers on synth/f32.gguf, whose Q and K are permuted
 * by the converter, and on qwen2.gguf, whose are not (tests/vectors/layers); and examples worked by hand. */
#include "fixture.h"
#include "test.h"
#include "trace/heads.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static plumb_trace *trace_of(const char *json) {
    plumb_trace *t = plumb_trace_create();
    CHECK(t && plumb_trace_read(t, json, strlen(json)) == PLUMB_OK, "%s: %s", json, t ? plumb_trace_error(t) : "");
    return t;
}

static void record(void *user, const plumb_tap *tap) { plumb_trace_add(user, tap); }

/* plumb's reference pass on the tokens of another trace. */
static plumb_trace *record_truth(plumb_model *m, const plumb_trace *tokens, uint32_t n_value) {
    plumb_session *s = NULL;
    plumb_session_params p = { .n_ctx = 16, .pass = PLUMB_PASS_REFERENCE };
    plumb_trace_params params = { NULL, 0, UINT32_MAX, n_value };
    plumb_trace *t = plumb_trace_create();
    if (t && CHECK(plumb_session_create(&s, m, &p) == PLUMB_OK, "%s", plumb_model_error(m))) {
        CHECK(plumb_trace_begin(t, s, tokens->tokens, tokens->n_token, tokens->n_token, &params) == PLUMB_OK, "%s",
              plumb_trace_error(t));
        CHECK(plumb_session_set_tap(s, record, t) == PLUMB_OK, "%s", plumb_session_error(s));
        CHECK(plumb_session_feed(s, tokens->tokens, tokens->n_token) == PLUMB_OK, "%s", plumb_session_error(s));
    }
    plumb_session_free(s);
    return t;
}

/* The report contains all of these, and "Qcur and Kcur of A" if permuted is 'A', or neither if it is 0. */
static void check_diff(plumb_trace *a, plumb_trace *b, char permuted, bool expected, const char *says) {
    struct capture text = { 0 }, json = { 0 };
    plumb_report r = { .format = PLUMB_FORMAT_TEXT, .write = capture_write, .user = &text };
    char sentence[32], field[32];
    bool agree = !expected;
    CHECK(plumb_diff(a, b, NULL, &r, &agree) == PLUMB_OK, "%s", plumb_trace_error(a));
    r.format = PLUMB_FORMAT_JSON;
    r.user = &json;
    CHECK(plumb_diff(a, b, NULL, &r, &agree) == PLUMB_OK, "%s", plumb_trace_error(a));
    CHECK(agree == expected && strstr(text.text, says), "no \"%s\": %s", says, text.text);
    for (char side = 'A'; side <= 'B'; side++) {
        snprintf(sentence, sizeof sentence, "\nQcur and Kcur of %c have", side);
        CHECK((strstr(text.text, sentence) != NULL) == (permuted == side), "%s: %s", sentence + 1, text.text);
        snprintf(field, sizeof field, "\"%c\":{\"name\":\"%c\"", side - 'A' + 'a', side);
        const char *at = strstr(json.text, field), *value = at ? strstr(at, "\"qk_permuted\":") : NULL;
        CHECK(value && (strncmp(value, "\"qk_permuted\":true", 18) == 0) == (permuted == side), "%s: %s", field,
              json.text);
    }
    capture_free(&text);
    capture_free(&json);
}

static void check_diagnosis(plumb_model *m, plumb_trace *theirs, bool permuted, bool expected, const char *says) {
    struct capture text = { 0 }, json = { 0 };
    plumb_report r = { .format = PLUMB_FORMAT_TEXT, .write = capture_write, .user = &text };
    plumb_verdict agree = PLUMB_VERDICT_DIFFERS;
    CHECK(plumb_diagnose(m, theirs, 1, &r, &agree) == PLUMB_OK, "%s", plumb_model_error(m));
    r.format = PLUMB_FORMAT_JSON;
    r.user = &json;
    CHECK(plumb_diagnose(m, theirs, 1, &r, &agree) == PLUMB_OK, "%s", plumb_model_error(m));
    CHECK((agree == PLUMB_VERDICT_AGREES) == expected && strstr(text.text, says), "no \"%s\": %s", says, text.text);
    CHECK((strstr(text.text, "their Qcur and Kcur have") != NULL) == permuted, "%s", text.text);
    CHECK((strstr(json.text, "\"qk_permuted\": true") != NULL) == permuted, "%s", json.text);
    capture_free(&text);
    capture_free(&json);
}

/* ---- transformers ------------------------------------------------------------------------------------------------ */

struct theirs {
    const char *name, *model, *npz;
    bool permuted;
};

static const struct theirs files[] = {
    { "heads: what transformers computes for a llama agrees", "tests/vectors/synth/f32.gguf",
      "tests/vectors/layers/transformers-f32.npz", true },
    { "heads: what transformers computes for a qwen2 agrees, as it is", "tests/vectors/synth/qwen2.gguf",
      "tests/vectors/layers/transformers-qwen2.npz", false },
};

static void agreement(const void *arg) {
    const struct theirs *file = arg;
    plumb_model *m = fixture_load(file->model);
    plumb_trace *theirs = fixture_read_trace(file->npz);
    for (uint32_t n_value = 5; m && theirs && n_value > 0; n_value = n_value == 5 ? UINT32_MAX : 0) {
        plumb_trace *ours = record_truth(m, theirs, n_value);
        check_diff(theirs, ours, file->permuted ? 'A' : 0, true, "They agree: 23 taps");
        check_diff(ours, theirs, file->permuted ? 'B' : 0, true, "They agree: 23 taps");
        plumb_trace_free(ours);
    }
    if (theirs) check_diff(theirs, theirs, 0, true, "They agree: 23 taps");
    if (m && theirs) check_diagnosis(m, theirs, file->permuted, true, "agrees with the truth");
    /* Only the first five elements of heads of 8: 0, 2, 4, 6 and 1 in the GGUF. */
    for (size_t i = 0; theirs && i < theirs->n_tap; i++) {
        for (uint32_t j = 0; j < theirs->taps[i].n_row; j++) theirs->taps[i].rows[j].n_value = 5;
    }
    plumb_trace *ours = m && theirs ? record_truth(m, theirs, 5) : NULL;
    if (ours) check_diff(theirs, ours, file->permuted ? 'A' : 0, true, "They agree: 23 taps");
    if (ours) check_diagnosis(m, theirs, file->permuted, true, "without whole activations: errors add up");
    plumb_trace_free(ours);
    plumb_trace_free(theirs);
    plumb_model_free(m);
}

/* ---- mistakes are found in either order -------------------------------------------------------------------------- */

static struct trace_tap *find_tap(plumb_trace *t, enum tap_id id, int32_t layer) {
    for (size_t i = 0; i < t->n_tap; i++) {
        if (t->taps[i].id == id && t->taps[i].layer == layer) return &t->taps[i];
    }
    abort();
}

static void swap(float *a, float *b) {
    float x = *a;
    *a = *b;
    *b = x;
}

/* Exchanges two elements of one head. */
static void exchange(struct trace_row *row) { swap(&row->values[1], &row->values[2]); }
/* Makes one head of 8 elements 5 % too large. */
static void enlarge(struct trace_row *row) {
    for (size_t i = 8; i < 16; i++) row->values[i] *= 1.05f;
}
/* Exchanges the first two heads of 8 elements. */
static void exchange_heads(struct trace_row *row) {
    for (size_t i = 0; i < 8; i++) swap(&row->values[i], &row->values[8 + i]);
}

static void mistakes(void) {
    static void (*const spoil[])(struct trace_row *row) = { exchange, enlarge, exchange_heads };
    plumb_model *m = fixture_load(files[0].model);
    for (size_t i = 0; m && i < sizeof spoil / sizeof *spoil; i++) {
        for (int s = 0; s < 2; s++) {   /* transformers; a PyTorch engine with the GGUF's weights */
            plumb_trace *theirs = fixture_read_trace(files[0].npz);
            plumb_trace *ours = theirs ? record_truth(m, theirs, UINT32_MAX) : NULL;
            plumb_trace *spoilt = s == 0 ? theirs : ours ? record_truth(m, theirs, UINT32_MAX) : NULL;
            if (!ours || !spoilt) break;
            spoilt->by_module = true;
            check_diff(spoilt, ours, s == 0 ? 'A' : 0, true, "They agree");
            struct trace_tap *q = find_tap(spoilt, TAP_QCUR, 1), *k = find_tap(spoilt, TAP_KCUR, 1);
            for (uint32_t j = 0; j < q->n_row; j++) spoil[i](&q->rows[j]);
            check_diff(spoilt, ours, s == 0 ? 'A' : 0, false, "They first diverge at Qcur-1 ");
            check_diagnosis(m, spoilt, s == 0, false, "diverges from the truth: Qcur-1 ");
            for (uint32_t j = 0; j < k->n_row; j++) spoil[i](&k->rows[j]);
            check_diff(spoilt, ours, s == 0 ? 'A' : 0, false, "They first diverge at Qcur-1 ");
            check_diagnosis(m, spoilt, s == 0, false, "diverges from the truth: Qcur-1 ");
            if (spoilt != theirs) plumb_trace_free(spoilt);
            plumb_trace_free(ours);
            plumb_trace_free(theirs);
        }
    }
    plumb_model_free(m);
}

/* Numbers that match in neither order are not permuted. */
static void unrelated(void) {
    plumb_model *m = fixture_load(files[0].model);
    plumb_trace *theirs = fixture_read_trace(files[0].npz), *ours = m && theirs ? record_truth(m, theirs, 8) : NULL;
    uint32_t random = 1;
    for (size_t i = 0; ours && i < theirs->n_tap; i++) {
        struct trace_tap *tap = &theirs->taps[i];
        for (uint32_t j = 0; (tap->id == TAP_QCUR || tap->id == TAP_KCUR) && j < tap->n_row; j++) {
            for (uint32_t k = 0; k < tap->rows[j].n_value; k++) {
                random = random * 1664525u + 1013904223u;
                tap->rows[j].values[k] = (float)(int32_t)random / 1e9f;
            }
        }
    }
    if (ours) check_diff(theirs, ours, 0, false, "They first diverge at Qcur-0 ");
    plumb_trace_free(ours);
    plumb_trace_free(theirs);
    plumb_model_free(m);
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

/* One head of 4, Q = (1, 2, 3, 4) in the GGUF.  RoPE rotates its pairs by angles of cosine 0.6 and sine 0.8, and the
 * reverse: (0.6 - 1.6, 0.8 + 1.2) = (-1, 2) and (2.4 - 2.4, 1.8 + 3.2) = (0, 5).  Transformers has (1, 3, 2, 4) and
 * rotates the first with the third: (-1, 0, 2, 5).  The mistake is to rotate neighbours there, (1, 3) and (2, 4):
 * (0.6 - 2.4, 0.8 + 1.8) and (1.6 - 2.4, 1.2 + 3.2). */
#define TURNED(q, rope) "{\"tokens\":[1,2],\"taps\":[" q ",\"token\":1,\"shape\":[1,4],\"values\":" rope "}]}"
static const char gguf_turned[] =
    TURNED("{\"name\":\"Qcur-0\",\"token\":1,\"shape\":[1,4],\"values\":[1,2,3,4]},{\"name\":\"Qcur_rope-0\"",
           "[-1,2,0,5]");
#define THEIR_Q "{\"name\":\"model.layers.0.self_attn.q_proj\",\"token\":1,\"shape\":[4],\"values\":[1,3,2,4]},"

static void rope_by_hand(void) {
    plumb_trace *ours = trace_of(gguf_turned);
    plumb_trace *right = trace_of(TURNED(THEIR_Q "{\"name\":\"Qcur_rope-0\"", "[-1,0,2,5]"));
    plumb_trace *wrong = trace_of(TURNED(THEIR_Q "{\"name\":\"Qcur_rope-0\"", "[-1.8,2.6,-0.8,4.4]"));
    check_diff(right, ours, 'A', true, "They agree: 2 taps");
    check_diff(wrong, ours, 'A', false, "They first diverge at Qcur_rope-0 ");
    plumb_trace_free(ours);
    plumb_trace_free(right);
    plumb_trace_free(wrong);
}

/* Heads of 8: elements 0 to 3 move to 0, 2, 4, 6, elements 4 to 7 to 1, 3, 5, 7. */
static void places_by_hand(void) {
    static const uint32_t expected[] = { 0, 1, 2, 3, 4, 15, 18 };
    static const float values[] = { 10, 14, 11, 15, 12, 25, 31 };
    plumb_trace *t = trace_of("{\"tokens\":[5],\"taps\":[{\"name\":\"layers.3.self_attn.k_proj\",\"token\":0,\"rms\":7,"
                              "\"shape\":[24],\"places\":[0,1,2,4,5,15,17],\"values\":[10,11,12,14,15,25,31],"
                              "\"quantum\":0.5},"
                              "{\"name\":\"layers.3.self_attn.v_proj\",\"token\":0,\"values\":[1,2]}]}");
    struct plumb_trace permuted;
    struct error err;
    REQUIRE(t->by_module && heads_permute(&permuted, t, 8, &err) == PLUMB_OK, "permuted");
    const struct trace_row *row = &find_tap(&permuted, TAP_KCUR, 3)->rows[0];
    const struct trace_row *v = &find_tap(&permuted, TAP_VCUR, 3)->rows[0];
    CHECK(row->n_head == 3 && row->n == 8 && row->n_value == 7 && row->places, "%u x %u", row->n_head, row->n);
    for (uint32_t i = 0; i < row->n_value; i++) {
        CHECK(row->places[i] == expected[i] && row->values[i] == values[i], "%g at %u", (double)row->values[i],
              row->places[i]);
    }
    CHECK(row->stats.rms == 7 && row->quantum == 0.5f, "rms %g, rounded to %g", row->stats.rms, (double)row->quantum);
    CHECK(v->n_value == 2 && !v->places && v->values[1] == 2, "V has moved");
    const struct trace_row *before = &find_tap(t, TAP_KCUR, 3)->rows[0];
    CHECK(before->n_head == 1 && before->places[1] == 1 && before->values[1] == 11, "theirs has changed");
    heads_free(&permuted);
    plumb_trace_free(t);
}

/* The first and the last element of a head do not move.  They must not hide a mistake at a place that does. */
static void nothing_moves(void) {
#define TRACE(name, values) "{\"tokens\":[5],\"taps\":[{\"name\":\"" name "\",\"token\":0,\"shape\":[1,8],\"places\":" \
                            "[0,3,7],\"values\":" values "}]}"
    plumb_trace *ours = trace_of(TRACE("Qcur-0", "[1,2,3]"));
    plumb_trace *theirs = trace_of(TRACE("layers.0.self_attn.q_proj", "[1,5,3]"));
    check_diff(theirs, ours, 0, false, "They first diverge at Qcur-0 ");
    plumb_trace_free(ours);
    plumb_trace_free(theirs);
}

void test_heads(void) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) test_row(files[i].name, agreement, &files[i]);
    test_case("heads: mistakes in Q and K are found in either order", mistakes);
    test_case("heads: values that match neither order are left unchanged", unrelated);
    test_case("heads: a wrong RoPE order, worked by hand, is found", rope_by_hand);
    test_case("heads: values at chosen places are permuted as worked by hand", places_by_hand);
    test_case("heads: values that a permutation does not move decide nothing", nothing_moves);
}

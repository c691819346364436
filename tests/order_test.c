/* The order of taps and their inputs, for every architecture: what model_absent_taps and model_tap_inputs say about a
 * layer against what happens in the reference pass, and where diff and diagnose find a step that was made wrong. */
#include "api/model.h"
#include "fixture.h"
#include "reference/reference.h"
#include "test.h"
#include "trace/inputs.h"
#include "trace/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const int32_t ids[] = { 7, 1, 33, 33, 60, 2, 19, 48 };
enum { N_ID = sizeof ids / sizeof *ids, LAST = 1 };   /* LAST: the last layer of which steps are made wrong */

/* ---- wrong steps ------------------------------------------------------------------------------------------------- */

/* A run in which one tap is made wrong. */
struct run {
    struct plumb_trace *trace;         /* all values of the run */
    const struct plumb_trace *right;   /* if not NULL, all other taps get their values from it */
    enum tap_id wrong;
    int32_t layer;
    uint32_t n_expert;
};

static void record(void *user, const plumb_tap *tap) {
    struct run *r = user;
    CHECK(plumb_trace_add(r->trace, tap) == PLUMB_OK, "%s", plumb_trace_error(r->trace));
}

/* Each element changes by another factor, so that norms of all do not hide it.  Scores of experts are rotated, so that
 * other experts are used; instead of an expert the next one is used. */
static void make_wrong(const plumb_tap *tap, enum tap_id id, uint32_t n_expert, double *x) {
    size_t n = (size_t)tap->n_head * tap->n;
    bool is_choice = id >= TAP_FFN_ROUTER && id <= TAP_FFN_USED;
    for (size_t t = 0; t < tap->n_token; t++) {
        double *row = x + t * n, first = row[0];
        for (size_t i = 0; i < n; i++) {
            if (id == TAP_FFN_USED) row[i] = (double)(((uint32_t)row[i] + 1) % n_expert);
            else if (!is_choice) row[i] *= 1 + 0.1 * (double)(i % 7 + 1);
            else row[i] = i + 1 < n ? row[i + 1] : first;
        }
    }
}

static void force(void *user, const plumb_tap *tap, double *x) {
    const struct run *r = user;
    enum tap_id id;
    if (!CHECK(tap_find(tap->name, strlen(tap->name), &id), "%s", tap->name)) return;
    const struct trace_tap *right = r->right ? trace_find_tap(r->right, id, tap->layer) : NULL;
    size_t n = (size_t)tap->n_head * tap->n;
    for (size_t i = 0; right && i < tap->n_token * n; i++) x[i] = (double)right->rows[i / n].values[i % n];
    if (id != r->wrong || tap->layer != r->layer) return;
    make_wrong(tap, id, r->n_expert, x);
    /* With right values for the others, what the step computed counts as right; otherwise it is wrong. */
    if (r->right) return;
    for (size_t i = 0; i < tap->n_token * n; i++) {
        const struct trace_tap *own = trace_find_tap(r->trace, id, tap->layer);
        own->rows[i / n].values[i % n] = (float)x[i];
    }
}

static plumb_trace *run(const struct model *m, const struct plumb_trace *right, enum tap_id wrong, int32_t layer) {
    struct error err;
    struct reference *pass = NULL;
    struct run r = { plumb_trace_create(), right, wrong, layer, m->plan.max_expert };
    r.trace->params.n_value = UINT32_MAX;
    CHECK(plumb_trace_set_tokens(r.trace, ids, N_ID, N_ID) == PLUMB_OK, "%s", plumb_trace_error(r.trace));
    float *logits = alloc_array((uint64_t)N_ID * m->plan.n_vocab, sizeof *logits);
    if (CHECK(logits && reference_create(&pass, m, N_ID, N_ID, &err) == PLUMB_OK, "%s", err.message)) {
        CHECK(reference_set_tap(pass, (struct tap_sink) { record, &r }) == PLUMB_OK, "no memory");
        reference_set_force(pass, force, &r);
        if (m->plan.n_encoder > 0) reference_encode(pass, ids, N_ID);
        reference_run(pass, ids, N_ID, 0, N_ID, logits);
    }
    free(logits);
    reference_free(pass);
    return r.trace;
}

static bool differs(const struct trace_tap *a, const struct trace_tap *b) {
    double d2 = 0, b2 = 0;
    for (uint32_t t = 0; t < b->n_row; t++) {
        for (uint32_t i = 0; i < b->rows[t].n_value; i++) {
            double d = (double)a->rows[t].values[i] - (double)b->rows[t].values[i];
            d2 += d * d;
            b2 += (double)b->rows[t].values[i] * (double)b->rows[t].values[i];
        }
    }
    return d2 > 1e-10 * b2;   /* right values go on in f32 */
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* Returns the taps of a layer (-1: outside the layers) that change if only tap `wrong` of a layer is wrong. */
static id_set changed(const struct model *m, const struct plumb_trace *right, enum tap_id wrong, int32_t of_layer,
                        int32_t layer) {
    plumb_trace *t = run(m, right, wrong, of_layer);
    id_set set = 0;
    for (size_t i = 0; i < right->n_tap && t->n_tap == right->n_tap; i++) {
        bool is_wrong = right->taps[i].layer == layer && differs(&t->taps[i], &right->taps[i]);
        set |= is_wrong ? ID_SET(right->taps[i].id) : 0;
    }
    CHECK(t->n_tap == right->n_tap, "%zu taps, not %zu", t->n_tap, right->n_tap);
    plumb_trace_free(t);
    return set;
}

static void add(void *trace, const plumb_tap *tap) { plumb_trace_add(trace, tap); }

static void show_set(char *text, size_t n, id_set set) {
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        if (set >> i & 1) at += (size_t)snprintf(text + at, n - at, " %s", tap_spec((enum tap_id)i)->name);
    }
}

/* Returns the taps of a layer that are computed from a tap.  This is a function of its own because WebKitGTK once lost
 * the upper halves of these sets when it optimized the loop of inputs_row while that ran. */
static id_set computed_from(const struct model *m, enum tap_id id, id_set there, int32_t layer) {
    id_set set = 0;
    for (uint32_t k = 0; k < TAP_COUNT; k++) {
        id_set inputs = there >> k & 1 ? model_tap_inputs(m, (enum tap_id)k, layer) : 0;
        if (inputs >> id & 1) set |= ID_SET(k);
    }
    return set;
}

static void inputs_row(const void *row) {
    char path[120], expected_text[400], text[400];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", (const char *)row);
    plumb_model *m = fixture_load(path);
    REQUIRE(m, "%s", path);
    uint32_t order = model_tap_order(m->model);
    plumb_trace *right = run(m->model, NULL, TAP_COUNT, 0);
    for (int32_t layer = 0; layer < (int32_t)m->model->plan.n_layer; layer++) {
        id_set there = 0, absent = model_absent_taps(m->model, (uint32_t)layer), all = 0;
        for (uint32_t i = 0; i < TAP_COUNT; i++) {
            if (trace_find_tap(right, (enum tap_id)i, layer)) there |= ID_SET(i);
            if (tap_spec((enum tap_id)i)->in_layer) all |= ID_SET(i);
        }
        show_set(text, sizeof text, there ^ (all & ~absent));
        CHECK(there == (all & ~absent), "layer %d: there or absent:%s", (int)layer, text);
        for (uint32_t i = 0; i < TAP_COUNT; i++) {
            if (!(there >> i & 1)) continue;
            id_set usual = trace_inputs(order, (enum tap_id)i, absent);
            /* Only the model knows which K and V are of the encoder's output. */
            bool is_cross = m->model->plan.layers[layer].attn.reads_encoder && (i == TAP_KCUR || i == TAP_VCUR);
            CHECK(is_cross || usual == model_tap_inputs(m->model, (enum tap_id)i, layer), "layer %d: %s without the "
                  "model", (int)layer, tap_spec((enum tap_id)i)->name);
            struct tap_input before = model_tap_input(m->model, TAP_ATTN_NORM, layer, (enum tap_id)i);
            int32_t of_layer = i == TAP_ENCODED ? layer : before.layer;
            if (of_layer < 0) continue;
            id_set expected = computed_from(m->model, (enum tap_id)i, there, layer);
            if (i == TAP_L_OUT) expected &= ~TAP_SET(ENCODED);   /* it reads the l_out of its own layer */
            id_set found = changed(m->model, right, (enum tap_id)i, of_layer, layer);
            show_set(text, sizeof text, found);
            show_set(expected_text, sizeof expected_text, expected);
            CHECK(found == expected, "layer %d: %s changes%s, not%s", (int)layer, tap_spec((enum tap_id)i)->name, text,
                  expected_text);
        }
    }
    plumb_trace_free(right);
    plumb_model_free(m);
}

/* ---- the first wrong step ---------------------------------------------------------------------------------------- */

/* A right trace as `plumb trace` writes it to a file, with the order of its taps. */
static plumb_trace *through_file(const struct model *m, plumb_trace *t, plumb_format format) {
    struct capture file = { 0 };
    plumb_trace *read = plumb_trace_create();
    trace_set_order(t, model_tap_order(m));
    CHECK(plumb_trace_write(t, format, capture_write, &file) == PLUMB_OK, "%s", plumb_trace_error(t));
    CHECK(plumb_trace_read(read, file.text, file.n) == PLUMB_OK, "%s", plumb_trace_error(read));
    CHECK(read->order == t->order, "order %u, not %u", read->order, t->order);
    capture_free(&file);
    plumb_trace_free(t);
    return read;
}

/* The report of diff, or of diagnose if ours is NULL, without line breaks. */
static char *report(plumb_model *m, plumb_trace *theirs, plumb_trace *ours) {
    struct capture text = { 0 };
    bool agree = false;
    plumb_verdict says = PLUMB_VERDICT_DIFFERS;
    plumb_report r = { .format = PLUMB_FORMAT_TEXT, .write = capture_write, .user = &text };
    plumb_status status = ours ? plumb_diff(theirs, ours, NULL, &r, &agree) : plumb_diagnose(m, theirs, 1, &r, &says);
    CHECK(status == PLUMB_OK && !agree && says == PLUMB_VERDICT_DIFFERS && text.text, "status %d", (int)status);
    for (char *at = text.text; at && (at = strchr(at, '\n')) != NULL;) *at = ' ';
    return text.text;
}

/* Every kind of layer: what is made wrong in it for diagnose, and the verdict, if that is a mistake of a known kind. */
#define SHIFTED "has the elements of each row shifted by 1"
#define SCALED "is the right one times 1.1, 1.2 in heads 0, 1: what each head is multiplied by is wrong"
static const struct { const char *architecture; enum tap_id diagnosed; const char *verdict; } kinds[] = {
    { "cohere2", TAP_FFN_GATE, NULL },            /* parallel, one norm */
    { "gptneox", TAP_FFN_NORM, NULL },            /* parallel, two norms */
    { "hunyuan-dense", TAP_QCUR_ROPE, NULL },     /* Q and K are normalized after RoPE */
    { "olmo2", TAP_ATTN_POST_NORM, NULL },        /* norms after attention and feed forward only */
    { "gemma2", TAP_FFN_POST_NORM, NULL },        /* norms before and after */
    { "bitnet", TAP_FFN_SUB_NORM, NULL },         /* norms inside */
    { "llama4", TAP_EXPERT_GATE, NULL },          /* weights before the experts, a temperature, a layer without any */
    { "smallthinker", TAP_FFN_ROUTER, SHIFTED },  /* the router reads the input of the layer */
    { "gpt-oss", TAP_FFN_WEIGHTS_SOFTMAX, SCALED },
    { "qwen2moe", TAP_FFN_SHARED_GATE, "is 1.1 times what it should be" },
    { "glm4moe", TAP_FFN_PROBS_BIASED, SHIFTED },
    { "afmoe", TAP_ATTN_GATED, NULL },
    { "bert", TAP_FFN_SWIGLU, NULL },             /* norms after the residuals */
    { "rwkv7", TAP_WKV_KEY, NULL },               /* shifts and states */
    { "rwkv6", TAP_FFN_RECEPTANCE, NULL },        /* a gate behind the network */
};

static void wrong_row(const void *row) {
    enum tap_id diagnosed = kinds[*(const size_t *)row].diagnosed;
    const char *architecture = kinds[*(const size_t *)row].architecture;
    char path[120], says[200];
    uint32_t n_found = 0;
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", architecture);
    plumb_model *m = fixture_load(path);
    REQUIRE(m, "%s", path);
    plumb_trace *right = through_file(m->model, run(m->model, NULL, TAP_COUNT, 0), PLUMB_FORMAT_JSON);
    plumb_trace *same = through_file(m->model, run(m->model, NULL, TAP_COUNT, 0), PLUMB_FORMAT_GGUF);
    for (int32_t layer = 0; layer <= LAST; layer++) {
        id_set there = ~model_absent_taps(m->model, (uint32_t)layer);
        for (uint32_t i = TAP_ATTN_NORM; i <= TAP_L_OUT; i++) {
            if (!(there >> i & 1)) continue;
            const char *name = tap_spec((enum tap_id)i)->name;
            plumb_trace *theirs = run(m->model, NULL, (enum tap_id)i, layer);
            char *text = report(m, theirs, layer == 0 ? same : right);
            snprintf(says, sizeof says, "They first diverge at %s-%d (", name, (int)layer);
            CHECK(strstr(text, says), "%s: %s", says, strstr(text, "They first"));
            CHECK(strstr(text, "So the fault is in this"), "%s: %s", says, strstr(text, "They first"));
            free(text);
            if (i == diagnosed) {
                text = report(m, theirs, NULL);
                const char *named = kinds[*(const size_t *)row].verdict;
                if (named) snprintf(says, sizeof says, "verdict: their %s-%d %s (error ", name, (int)layer, named);
                else snprintf(says, sizeof says, "the first wrong step is %s-%d (", name, (int)layer);
                CHECK(strstr(text, says), "%s: %s", says, text);
                CHECK(!strstr(text, "verdict: their") == !named, "%s: %s", says, text);
                CHECK(named || strstr(text, "its inputs are all theirs"), "%s: %s", says, text);
                free(text);
                n_found++;
            }
            plumb_trace_free(theirs);
        }
    }
    CHECK(n_found > 0, "no layer has %s", tap_spec(diagnosed)->name);
    plumb_trace_free(right);
    plumb_trace_free(same);
    plumb_model_free(m);
}

/* ---- names that depend on the model ------------------------------------------------------------------------------ */

static void post_attention_case(void) {
    static const struct { const char *architecture, *tap; } rows[] = {
        { "llama", "ffn_norm" }, { "gemma2", "attn_post_norm" }, { "gemma3", "attn_post_norm" },
        { "olmo2", "attn_post_norm" }, { "glm4", "ffn_norm" },
    };
    static const plumb_trace_params params = { .taps = "post_attention_layernorm", .layer_last = UINT32_MAX,
                                               .n_value = 1 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[120];
        snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", rows[i].architecture);
        plumb_model *m = fixture_load(path);
        plumb_session *s = NULL;
        plumb_trace *t = plumb_trace_create();
        const plumb_session_params session = { .n_ctx = 16 };
        if (m && CHECK(plumb_session_create(&s, m, &session) == PLUMB_OK
                       && plumb_trace_begin(t, s, ids, N_ID, N_ID, &params) == PLUMB_OK
                       && plumb_session_set_tap(s, add, t) == PLUMB_OK, "%s", plumb_trace_error(t))) {
            plumb_session_feed(s, ids, N_ID);
            CHECK(t->n_tap == m->model->plan.n_layer, "%s: %zu taps", rows[i].architecture, t->n_tap);
            CHECK(t->n_tap > 0 && strcmp(tap_spec(t->taps[0].id)->name, rows[i].tap) == 0, "%s", rows[i].architecture);
        }
        plumb_session_free(s);
        plumb_trace_free(t);
        plumb_model_free(m);
    }
}

void test_order(void) {
    static size_t places[sizeof kinds / sizeof *kinds];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[120];
        places[i] = i;
        snprintf(name, sizeof name, "order: diff and diagnose name the first wrong step: %s", kinds[i].architecture);
        test_row(name, wrong_row, &places[i]);
    }
    test_case("order: post_attention_layernorm is the norm that the model has", post_attention_case);
    for (size_t i = 0; plan_architecture(i); i++) {
        char name[120];
        snprintf(name, sizeof name, "order: the inputs of each tap are those that change it: %s", plan_architecture(i));
        if (test_repeats(i)) test_row(name, inputs_row, plan_architecture(i));
    }
    test_row("order: the inputs of each tap are those that change it: gemma4-moe", inputs_row, "gemma4-moe");
}

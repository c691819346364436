/* `plumb diagnose` of dumps with errors, on a model with experts and on one without.
 *
 *   flags | a file: JSON, GGUF, .npz or text                                 with the flag FILE
 *   flags | the set of taps (8) | how many values | errors of 4 bytes each   without it
 *
 * Without the flag, the dump is that of the reference pass, in which each error changes one tap: all of it or a single
 * value.  The pass continues with the changed numbers.  The report is written, or the model has an error message.  A
 * dump without errors agrees, and one with a NaN does not.
 */
#include "api/model.h"
#include "reference/reference.h"
#include "trace/trace.h"
#include "fuzz.h"

#include <math.h>

enum { EXPERTS = 1, JSON = 2, KNOWN = 12, STRICT = 16, FILE_OF_BYTES = 32, N_PROMPT = 3, N_TOKEN = 5 };
static const int32_t tokens[N_TOKEN] = { 3, 7, 5, 11, 4 };

/* Models of one layer and 17 tokens (tests/fuzz/seeds.py). */
static plumb_model *load(const char *path) {
    FILE *file = fopen(path, "rb");
    plumb_model *m = plumb_model_create();
    require(file && m && fseek(file, 0, SEEK_END) == 0, path);
    long n = ftell(file);
    rewind(file);
    require(n > 0 && plumb_model_begin(m, (uint64_t)n) == PLUMB_OK, plumb_model_error(m));
    for (size_t left = (size_t)n; left > 0;) {
        void *window;
        size_t len;
        require(plumb_model_window(m, &window, &len) == PLUMB_OK && len > 0, plumb_model_error(m));
        if (len > left) len = left;
        require(fread(window, 1, len, file) == len, path);
        require(plumb_model_commit(m, len) == PLUMB_OK, plumb_model_error(m));
        left -= len;
    }
    require(plumb_model_end(m) == PLUMB_OK, plumb_model_error(m));
    fclose(file);
    return m;
}

/* ---- the dump ---------------------------------------------------------------------------------------------------- */

struct engine {
    plumb_trace *trace;
    id_set shown;                      /* the taps in the dump */
    const uint8_t *errors, *end;
    bool is_wrong, has_nan;            /* of what the dump shows */
};

/* Makes an error in an activation: all of it or one value becomes another number. */
static void spoil(struct engine *e, const uint8_t *error, double *x, size_t n) {
    static const double numbers[] = { 0, -1, 2, 0.5, 1.01, 1e30, INFINITY, NAN };
    double number = numbers[error[2] % 8];
    size_t first = error[2] & 8 ? error[3] * n / 256 : 0, end = error[2] & 8 ? first + 1 : n;
    for (size_t i = first; i < end; i++) x[i] = error[2] & 16 ? number : x[i] * number;
    e->is_wrong = true;
}

static void compute(void *user, const plumb_tap *tap, double *x) {
    struct engine *e = user;
    enum tap_id id;
    size_t n = (size_t)tap->n_token * tap->n_head * tap->n;
    if (!tap_find(tap->name, strlen(tap->name), &id)) return;
    plumb_tap copy = *tap;
    float *shown = malloc(n * sizeof *shown);
    require(shown != NULL, "no memory");
    for (const uint8_t *error = e->errors; error + 4 <= e->end && !tap_holds_indices(id); error += 4) {
        bool is_here = error[0] % TAP_COUNT == id && error[1] % N_TOKEN < tap->pos + tap->n_token;
        if (is_here) spoil(e, error, x, n);
    }
    for (size_t i = 0; i < n; i++) shown[i] = (float)x[i];
    for (size_t i = 0; i < n && (e->shown >> id & 1); i++) e->has_nan |= isnan(shown[i]);
    copy.data = shown;
    if (e->shown >> id & 1) require(plumb_trace_add(e->trace, &copy) == PLUMB_OK, plumb_trace_error(e->trace));
    free(shown);
}

/* The pass computes nothing from the logits, so they are only shown. */
static void on_tap(void *user, const plumb_tap *tap) {
    size_t n = (size_t)tap->n_token * tap->n_head * tap->n;
    double *x = strcmp(tap->name, "result_output") == 0 ? malloc(n * sizeof *x) : NULL;
    for (size_t i = 0; x && i < n; i++) x[i] = (double)tap->data[i];
    if (x) compute(user, tap, x);
    free(x);
}

/* Fills e->trace with the dump that the errors make. */
static void run(struct engine *e, const plumb_model *m) {
    struct error err;
    struct reference *r = NULL;
    float *logits = malloc(N_PROMPT * plumb_model_n_vocab(m) * sizeof *logits);
    require(plumb_trace_set_tokens(e->trace, tokens, N_TOKEN, N_PROMPT) == PLUMB_OK, plumb_trace_error(e->trace));
    require(logits && reference_create(&r, m->model, N_TOKEN, N_PROMPT, &err) == PLUMB_OK, "no memory");
    reference_set_force(r, compute, e);
    require(reference_set_tap(r, (struct tap_sink){ on_tap, e }) == PLUMB_OK, "no memory");
    reference_run(r, tokens, N_PROMPT, 0, N_PROMPT, logits);
    for (uint32_t i = N_PROMPT; i < N_TOKEN; i++) reference_run(r, tokens + i, 1, i, 1, logits);
    reference_free(r);
    free(logits);
}

/* ---- the target -------------------------------------------------------------------------------------------------- */

static void count(void *user, const char *bytes, size_t n) { *(size_t *)user += bytes ? n : 0; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static plumb_model *models[2];
    if (size < 18 || size > 1 << 16) return 0;
    if (!models[0]) models[0] = load("tests/fuzz/tiny.gguf");
    if (!models[1]) models[1] = load("tests/fuzz/experts.gguf");
    plumb_model *m = models[data[0] & EXPERTS];
    struct engine e = { .trace = plumb_trace_create(), .errors = data + 18, .end = data + size };
    require(e.trace != NULL, "no memory");
    bool is_file = data[0] & FILE_OF_BYTES, is_read = true;
    memcpy(&e.shown, data + 1, sizeof e.shown);
    e.trace->params.n_value = data[17] ? data[17] : UINT32_MAX;
    if (is_file) is_read = plumb_trace_read(e.trace, data + 1, size - 1) == PLUMB_OK;
    else run(&e, m);
    if (is_file && is_read && !e.trace->tokens) {
        is_read = plumb_trace_set_tokens(e.trace, tokens, N_TOKEN, N_PROMPT) == PLUMB_OK;
    }
    size_t n_said = 0;
    plumb_report report = { .format = data[0] & JSON ? PLUMB_FORMAT_JSON : PLUMB_FORMAT_TEXT, .write = count,
                            .user = &n_said, .tolerance = data[0] & STRICT ? 1e-3 : 0 };
    plumb_verdict says;
    if (is_read && e.trace->n_token <= 16) {
        plumb_status status = plumb_diagnose(m, e.trace, (data[0] & KNOWN) / 4, &report, &says);
        require(status == PLUMB_OK ? n_said > 0 : plumb_model_error(m)[0] != 0, "neither a report nor a message");
        require(is_file || status != PLUMB_OK || !(e.has_nan && says != PLUMB_VERDICT_DIFFERS), "NaN agrees");
        bool is_right = !is_file && status == PLUMB_OK && !e.is_wrong;
        require(!is_right || says == PLUMB_VERDICT_AGREES, "a dump without errors does not agree");
    }
    plumb_trace_free(e.trace);
    return 0;
}

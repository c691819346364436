/* See selfcheck.h.  This file contains the checks of a pass, the runs of the pass that they examine, the table of all
 * checks, and the report. */
#include "check/selfcheck.h"

#include "api/model.h"
#include "check/alone.h"
#include "reference/reference.h"
#include "trace/compare.h"
#include "trace/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

void check_set(struct check *c, enum verdict verdict, const char *format, ...) {
    va_list args;
    va_start(args, format);
    c->verdict = verdict;
    if (vsnprintf(c->why, sizeof c->why, format, args) < 0) c->why[0] = 0;
    va_end(args);
}

void check_detail(struct check *c, const char *format, ...) {
    uint32_t i = c->n_detail++;
    if (i >= SELFCHECK_MAX_DETAIL || c->out_of_memory) return;
    if ((i & (i - 1)) == 0) {   /* full at 0 and at powers of two: double the capacity */
        void *more = realloc(c->details, (i == 0 ? 1 : 2 * (size_t)i) * sizeof *c->details);
        c->out_of_memory = !more;
        if (!more) return;
        c->details = more;
    }
    va_list args;
    va_start(args, format);
    if (vsnprintf(c->details[i], sizeof *c->details, format, args) < 0) c->details[i][0] = 0;
    va_end(args);
}

/* ---- checks of a pass -------------------------------------------------------------------------------------------- */

/* The fast pass adds the weighted outputs of the experts in another order than the check does. */
#define EXPERTS_BOUND 1e-5

/* Checks what the router of a layer chose for token t.  Groups of experts restrict the choice, so with them only the
 * experts' numbers are checked. */
static void check_choice(struct check *c, const struct plumb_trace *t, int32_t layer, uint32_t row) {
    static const enum tap_id scores[] = { TAP_FFN_PROBS_BIASED, TAP_FFN_PROBS, TAP_FFN_ROUTER };
    const struct ffn_plan *p = &c->model->plan.layers[layer].ffn;
    const float *used = trace_find_tap(t, TAP_FFN_USED, layer)->rows[row].values, *choice = NULL;
    uint32_t n_better = 0;
    for (size_t i = 0; i < sizeof scores / sizeof *scores && !choice; i++) {
        const struct trace_tap *tap = trace_find_tap(t, scores[i], layer);
        choice = tap ? tap->rows[row].values : NULL;
    }
    for (uint32_t k = 0; k < p->n_used; k++) {
        bool is_known = used[k] >= 0 && (double)used[k] < p->n_expert;
        for (uint32_t j = 0; j < k; j++) is_known = is_known && used[j] != used[k];
        if (is_known) continue;
        check_detail(c, "ffn_moe_topk-%d: token %u: expert %g is not one of %u, or is used twice", (int)layer, row,
                     (double)used[k], p->n_expert);
        return;
    }
    float least = choice[(uint32_t)used[p->n_used - 1]];
    for (uint32_t e = 0; e < p->n_expert; e++) n_better += choice[e] > least;
    if (n_better == p->n_used - 1 || p->n_group > 1) return;
    if (n_better < p->n_used - 1) {   /* equal scores */
        for (uint32_t e = 0; e < p->n_expert; e++) n_better += choice[e] == least;
        if (n_better >= p->n_used) return;
    }
    check_detail(c, "ffn_moe_topk-%d: token %u: the last of %u experts is number %u by its score", (int)layer, row,
                 p->n_used, n_better + 1);
}

/* Checks the sum of the weights of token `row`, and the sum of the outputs. */
static void check_sums(struct check *c, const struct plumb_trace *t, int32_t layer, uint32_t row, double *worst) {
    const struct ffn_plan *p = &c->model->plan.layers[layer].ffn;
    const struct trace_tap *norm = trace_find_tap(t, TAP_FFN_WEIGHTS_NORM, layer);
    const struct trace_row *parts = &trace_find_tap(t, p->weights_first ? TAP_EXPERT_DOWN : TAP_EXPERT_WEIGHTED,
                                                    layer)->rows[row];
    const float *sums = trace_find_tap(t, TAP_FFN_EXPERTS, layer)->rows[row].values;
    double raw = 0, weights = 0, d2 = 0, s2 = 0;
    for (uint32_t k = 0; norm && k < p->n_used; k++) {
        raw += (double)trace_find_tap(t, TAP_FFN_WEIGHTS, layer)->rows[row].values[k];
        weights += (double)norm->rows[row].values[k];
    }
    /* A sum below 2^-14 is replaced by that before weights are divided by it. */
    bool is_tiny = p->gating != GATING_SOFTMAX_USED && raw < 6.2e-5;
    if (norm && !(fabs(weights - 1) <= EXPERTS_BOUND || is_tiny)) {
        check_detail(c, "ffn_moe_weights_norm-%d: token %u: the weights sum to %.6g", (int)layer, row, weights);
    }
    for (uint32_t i = 0; i < parts->n; i++) {
        double sum = 0, size = 0;
        for (uint32_t k = 0; k < p->n_used; k++) sum += (double)check_head(parts, k)[i];
        for (uint32_t k = 0; k < p->n_used; k++) size += fabs((double)check_head(parts, k)[i]);
        d2 += (sum - (double)sums[i]) * (sum - (double)sums[i]);
        s2 += size * size;
    }
    double error = s2 > 0 ? sqrt(d2 / s2) : d2 > 0 ? INFINITY : 0;
    *worst = fmax(*worst, error);
    if (error <= EXPERTS_BOUND) return;
    check_detail(c, "ffn_moe_out-%d: token %u: relative error %.2g against the sum of the experts", (int)layer, row,
                 error);
}

void selfcheck_experts(struct check *c, const struct plumb_trace *t) {
    double worst = 0;
    uint32_t n_layer = 0;
    for (uint32_t il = 0; il < c->model->plan.n_layer; il++) {
        const struct trace_tap *used = trace_find_tap(t, TAP_FFN_USED, (int32_t)il);
        n_layer += used != NULL;
        for (uint32_t row = 0; used && row < used->n_row; row++) {
            check_choice(c, t, (int32_t)il, row);
            check_sums(c, t, (int32_t)il, row, &worst);
        }
    }
    if (n_layer == 0) check_set(c, VERDICT_SKIP, "the model has no experts");
    else if (c->n_detail == 0) check_set(c, VERDICT_OK, "in %u layers, each token uses the experts with the best "
                                         "scores, and gets their weighted sum within %.1g (bound %g)", n_layer, worst,
                                         EXPERTS_BOUND);
    else check_set(c, VERDICT_FAIL, "%u faults in %u layers", c->n_detail, n_layer);
}

/* What a pass computes for each position. */
static const char *results_of(const struct check *c) {
    return c->model && !c->model->plan.has_logits ? "embeddings" : "logits";
}

void selfcheck_logits(struct check *c, const float *a, const float *b, uint32_t n_token, uint32_t n_element,
                      const char *what) {
    uint64_t n_other = 0;
    for (size_t i = 0; i < (size_t)n_token * n_element; i++) {
        if (f32_to_bits(a[i]) == f32_to_bits(b[i]) || a[i] == b[i]) continue;
        if (n_other++ > 0) continue;
        check_detail(c, "the first logit that differs: after token %zu, id %zu: %.9g and %.9g", i / n_element,
                     i % n_element, (double)a[i], (double)b[i]);
    }
    if (n_other == 0) check_set(c, VERDICT_OK, "%s: the %s of %u positions are exactly equal", what, results_of(c),
                                n_token);
    else check_set(c, VERDICT_FAIL, "%s: %llu of %llu %s differ", what, (unsigned long long)n_other,
                   (unsigned long long)n_token * n_element,
                   strcmp(results_of(c), "logits") == 0 ? "logits" : "elements of embeddings");
}

/* Bounds of the largest relative error of a tap: in a whole pass, and in a layer that gets the same input in both
 * passes.  The errors are not 0 because the fast pass rounds activations to 16 bits and sums in f32.  The worst taps of
 * SmolLM2 have 5e-4 and 3e-4. */
#define REFERENCE_BOUND 0.01
#define LAYER_BOUND 0.003

/* Finds the first value of a tap that is NaN or infinite, but for the logits -infinity of tokens that a model cannot
 * choose.  Returns false if there is none. */
static bool find_bad(const struct trace_tap *tap, uint32_t *pos, uint32_t *place) {
    for (uint32_t row = 0; row < tap->n_row; row++) {
        for (uint32_t i = 0; i < tap->rows[row].n_value; i++) {
            float value = tap->rows[row].values[i];
            if (isfinite(value) || (tap->id == TAP_RESULT_OUTPUT && value == -INFINITY)) continue;
            *pos = tap->rows[row].pos;
            *place = i;
            return true;
        }
    }
    return false;
}

/* Returns the relative error of a tap; INFINITY if the reference pass does not have it for the same number of
 * tokens. */
static double tap_error(const struct trace_tap *fast, const struct trace_tap *reference) {
    struct comparison sum = { 0 };
    if (!reference || reference->n_row != fast->n_row) return INFINITY;
    compare_taps(&sum, fast, reference);
    return compare_error(&sum);
}

void selfcheck_reference(struct check *c, const struct plumb_trace *fast, const struct plumb_trace *reference,
                         double bound) {
    double worst = 0, worst_of_layer = 0;
    uint32_t bad_pos = 0, bad_place = 0;
    const struct trace_tap *at = NULL, *at_of_layer = NULL, *first = NULL, *bad = NULL;
    for (size_t i = 0; i < fast->n_tap; i++) {
        const struct trace_tap *tap = &fast->taps[i];
        double error = tap_error(tap, trace_find_tap(reference, tap->id, tap->layer));
        if (!bad && find_bad(tap, &bad_pos, &bad_place)) bad = tap;
        if (!(error <= bound) && !first) first = tap;
        if (!at || !(error <= worst)) { worst = error; at = tap; }
        if (!at_of_layer || !(error <= worst_of_layer)) { worst_of_layer = error; at_of_layer = tap; }
        if (tap->layer >= 0 && i + 1 < fast->n_tap && tap[1].layer == tap->layer) continue;
        const char *name = tap_spec(at_of_layer->id)->name;
        if (tap->layer >= 0) check_detail(c, "layer %d: worst %.2g in %s", (int)tap->layer, worst_of_layer, name);
        else check_detail(c, "%s: %.2g", name, worst_of_layer);
        at_of_layer = NULL;
    }
    struct tap_text name, worst_name;
    if (at) tap_show(&worst_name, at->id, at->layer);
    if (!at) {
        check_set(c, VERDICT_SKIP, "the pass has no taps");
    } else if (bad) {
        check_set(c, VERDICT_FAIL, "%s is the first tap with NaN or infinity, at [%u, %u]",
                  tap_show(&name, bad->id, bad->layer), bad_pos, bad_place);
    } else if (first) {
        check_set(c, VERDICT_FAIL, "%s is the first tap over the bound %g; the worst is %s with a relative error of "
                  "%.2g", tap_show(&name, first->id, first->layer), bound, worst_name.text, worst);
    } else {
        check_set(c, VERDICT_OK, "%zu taps; worst relative error %.2g, %s (bound %g)", fast->n_tap, worst,
                  worst_name.text, bound);
    }
}

/* ---- the runs ---------------------------------------------------------------------------------------------------- */

enum { MAX_TOKEN = 12 };

struct selfcheck {
    const plumb_model *in;
    const char *load_error;        /* why the model could not be loaded; "" if it was */
    bool is_complete;              /* all bytes have arrived */
    const plumb_report *report;
    struct error *err;
    double done, share;          /* progress, as fractions of all the work: what was done before the current check, and
                                  * what this check takes.  prepare, which reads the tensors, counts as the first one */
    size_t n_stats;
    struct tensor_stats *stats;  /* (n_stats) statistics of all tensors */
    uint32_t n_token;            /* every run is fed the first n_token of ids */
    int32_t ids[MAX_TOKEN];
    float *logits, *other;       /* (n_token, n_vocab) of the first run, and of the run that is compared with it */
    struct plumb_trace *fast;    /* the trace of the first run */
    bool cannot_run;             /* the first run was not possible; *err says why */
    plumb_status status;
};

/* Reports progress.  part: how much of the current check is done, 0..1. */
static void progress(struct selfcheck *s, double part) {
    if (s->report->on_progress) s->report->on_progress(s->report->user, s->done + s->share * part);
}

/* Chooses the tokens for the runs: the first ones of a text, as many as cost about 4 G multiplications, but 2 to
 * MAX_TOKEN. */
static plumb_status choose_tokens(struct selfcheck *s) {
    static const char text[] = "The plumb line hangs straight; the wall, built in 1912, does not.";
    const struct model *m = s->in->model;
    uint64_t n_param = 1;
    for (size_t i = 0; i < s->n_stats; i++) n_param += s->stats[i].tensor->n_elements;
    uint64_t n = 4000000000u / n_param;
    s->n_token = n < 2 ? 2 : n > MAX_TOKEN ? MAX_TOKEN : (uint32_t)n;
    for (uint32_t i = 0; i < MAX_TOKEN; i++) s->ids[i] = (int32_t)((i * 37 + 5) % m->plan.n_vocab);
    if (!s->in->tokenizer) return PLUMB_OK;
    /* The ids above remain where the text has fewer tokens, and if it cannot be tokenized. */
    struct error err;
    int64_t n_id = tokenizer_encode(s->in->tokenizer, text, sizeof text - 1, PLUMB_ADD_SPECIAL, s->ids, MAX_TOKEN,
                                    &err);
    return n_id == PLUMB_ERROR_MEMORY ? error_set(s->err, PLUMB_ERROR_MEMORY, "%s", err.message) : PLUMB_OK;
}

/* Returns an empty trace that will keep all values of all taps; NULL if out of memory. */
static struct plumb_trace *create_trace(const struct selfcheck *s) {
    struct plumb_trace *t = plumb_trace_create();
    if (!t || trace_set_tokens(t, s->ids, s->n_token, s->n_token) == PLUMB_OK) {
        if (t) t->params.n_value = UINT32_MAX;
        if (t) trace_set_order(t, model_tap_order(s->in->model));
        return t;
    }
    plumb_trace_free(t);
    return NULL;
}

/* Elements of a position's results: logits, or an embedding in a model without logits. */
static uint32_t n_result(const struct selfcheck *s) { return plan_n_result(&s->in->model->plan); }

static void record(void *trace, const plumb_tap *tap) { plumb_trace_add(trace, tap); }   /* keeps its first error */

/* The precision of all runs except those of do_relaxed, which tries both. */
static const plumb_precision exact16 = PLUMB_PRECISION_EXACT16;

/* Runs the fast pass in steps of n_step tokens.  Writes the logits of every position to out, (n_token, n_vocab), and
 * the taps to trace, unless that is NULL. */
static plumb_status run_fast(struct selfcheck *s, uint32_t n_token, uint32_t n_step, enum kernels_isa isa,
                             plumb_precision precision, struct pool *pool, float *out,
                             struct plumb_trace *trace) {
    struct alone f;
    struct kernels k;
    kernels_init(&k, isa, precision);
    bool has_encoder = s->in->model->plan.n_encoder > 0;
    uint32_t n_ctx = has_encoder ? s->n_token : n_token;
    plumb_status status = alone_create(&f, s->in->model, n_ctx, n_step, &k, pool, s->err);
    if (status == PLUMB_OK && trace) status = forward_prepare_taps(f.forward);
    if (status == PLUMB_OK && trace) forward_use(f.forward, (struct tap_sink) { record, trace }, NULL);
    if (status == PLUMB_OK && has_encoder) forward_encode(f.forward, &f.sequence, s->ids, s->n_token);
    for (uint32_t pos = 0; status == PLUMB_OK && pos < n_token; pos += n_step) {
        uint32_t n = n_token - pos < n_step ? n_token - pos : n_step;
        alone_run(&f, s->ids + pos, n, pos, out + (size_t)pos * n_result(s));
    }
    alone_free(&f);
    return status == PLUMB_OK && trace ? trace->err.status : status;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void do_file(struct selfcheck *s, struct check *c) {
    uint64_t n_tensor = 0, n_bytes = 0;
    for (size_t i = 0; i < s->in->n_part; i++) n_tensor += gguf_n_tensor(s->in->parts[i]);
    for (size_t i = 0; i < s->n_stats; i++) n_bytes += s->stats[i].tensor->n_bytes;
    if (s->load_error[0]) check_set(c, VERDICT_FAIL, "%s", s->load_error);
    else check_set(c, VERDICT_OK, "%llu tensors of %.1f MB, all bytes were read, the architecture is %s",
                   (unsigned long long)n_tensor, (double)n_bytes / 1e6, s->in->model->plan.architecture);
}

static void report_problem(void *user, plumb_status status, const char *message) {
    (void)status;
    check_detail(user, "%s", message);
}

static void do_tensors(struct selfcheck *s, struct check *c) {
    struct error err = { 0 };
    const struct gguf_tensor *embd = gguf_find_in_parts(s->in->parts, s->in->n_part, "token_embd.weight");
    uint64_t n_vocab = s->in->tokenizer ? tokenizer_n_vocab(s->in->tokenizer) : embd ? embd->shape[1] : 0;
    plumb_status status = model_check_tensors(s->in->parts, s->in->n_part, (uint32_t)n_vocab, report_problem, c, &err);
    if (status == PLUMB_ERROR_MEMORY) s->status = error_set(s->err, status, "%s", err.message);
    if (status == PLUMB_OK) check_set(c, VERDICT_OK, "%zu tensors: none is missing, unknown, transposed or of a wrong "
                                      "shape", s->n_stats);
    else if (c->n_detail == 0) check_set(c, VERDICT_FAIL, "%s", err.message);   /* in a key, not in a tensor */
    else check_set(c, VERDICT_FAIL, "%u tensors are missing, unknown or of a wrong shape", c->n_detail);
}

static void do_statistics(struct selfcheck *s, struct check *c) { selfcheck_statistics(c, s->stats, s->n_stats); }
static void do_layers(struct selfcheck *s, struct check *c) { selfcheck_layers(c, s->stats, s->n_stats); }
static void do_head(struct selfcheck *s, struct check *c) { selfcheck_head(c, s->stats, s->n_stats); }
static void do_norms(struct selfcheck *s, struct check *c) { selfcheck_norms(c, s->stats, s->n_stats); }

/* If tokens of the model attend to later ones, skips the check and returns true. */
static bool skip_not_causal(const struct selfcheck *s, struct check *c) {
    if (plan_is_causal(&s->in->model->plan)) return false;
    check_set(c, VERDICT_SKIP, "tokens of this model attend to later ones");
    return true;
}

static void do_rope(struct selfcheck *s, struct check *c) { selfcheck_rope(c, s->fast); }
static void do_softmax(struct selfcheck *s, struct check *c) { selfcheck_softmax(c, s->fast); }
static void do_experts(struct selfcheck *s, struct check *c) { selfcheck_experts(c, s->fast); }
static void do_absorbed(struct selfcheck *s, struct check *c) { selfcheck_absorbed(c, s->fast); }

static void do_first(struct selfcheck *s, struct check *c) {
    if (!skip_not_causal(s, c)) selfcheck_first(c, s->fast);
}

static void do_batch(struct selfcheck *s, struct check *c) {
    if (skip_not_causal(s, c)) return;
    s->status = run_fast(s, s->n_token, 1, KERNELS_SIMD128, exact16, NULL, s->other, NULL);
    selfcheck_logits(c, s->logits, s->other, s->n_token, n_result(s), "in one batch and one by one");
}

/* Compares with runs without a cache, which compute the whole prefix again for every token. */
static void do_cache(struct selfcheck *s, struct check *c) {
    if (skip_not_causal(s, c)) return;
    uint32_t n_element = n_result(s);
    float *all = alloc_array((uint64_t)s->n_token * n_element, sizeof *all);
    if (!all) s->status = PLUMB_ERROR_MEMORY;
    for (uint32_t n = 1; s->status == PLUMB_OK && n <= s->n_token; n++) {
        s->status = run_fast(s, n, n, KERNELS_SIMD128, exact16, NULL, all, NULL);
        memcpy(s->other + (size_t)(n - 1) * n_element, all + (size_t)(n - 1) * n_element, n_element * sizeof *all);
        progress(s, (double)n / s->n_token);
    }
    free(all);
    selfcheck_logits(c, s->logits, s->other, s->n_token, n_element,
                     "with the KV cache and with every prefix recomputed");
}

/* A saved pass in memory. */
struct saved { char *bytes; size_t n, at; };

static void save_bytes(void *user, const char *bytes, size_t n) {
    struct saved *of = user;
    if (n > of->n - of->at) n = of->n - of->at;
    memcpy(of->bytes + of->at, bytes, n);
    of->at += n;
}

static size_t give_bytes(void *user, void *bytes, size_t n) {
    struct saved *of = user;
    if (n > of->n - of->at) n = of->n - of->at;
    memcpy(bytes, of->bytes + of->at, n);
    of->at += n;
    return n;
}

static plumb_status create_pass(struct selfcheck *s, const struct kernels *k, struct alone *f) {
    PLUMB_TRY(alone_create(f, s->in->model, s->n_token, s->n_token, k, NULL, s->err));
    if (s->in->model->plan.n_encoder > 0) forward_encode(f->forward, &f->sequence, s->ids, s->n_token);
    return PLUMB_OK;
}

/* Computes the first half of the tokens, and the others with another pass that was given what the first one keeps. */
static plumb_status run_saved(struct selfcheck *s, struct alone *f, struct alone *other) {
    uint32_t half = s->n_token / 2;
    struct saved saved = { 0 };
    struct transfer count = { .err = s->err };
    alone_run(f, s->ids, half, 0, s->other);
    PLUMB_TRY(sequence_exchange(&f->sequence, &count, half));
    saved.n = (size_t)count.at;
    saved.bytes = alloc_array(count.at, 1);
    if (!saved.bytes) return PLUMB_ERROR_MEMORY;
    struct transfer write = { .write = save_bytes, .user = &saved, .err = s->err };
    plumb_status status = sequence_exchange(&f->sequence, &write, half);
    saved.at = 0;
    struct transfer read = { .read = give_bytes, .user = &saved, .err = s->err };
    if (status == PLUMB_OK) status = sequence_exchange(&other->sequence, &read, half);
    free(saved.bytes);
    PLUMB_TRY(status);
    alone_run(other, s->ids + half, s->n_token - half, half, s->other + (size_t)half * n_result(s));
    return PLUMB_OK;
}

static void do_saved(struct selfcheck *s, struct check *c) {
    if (skip_not_causal(s, c)) return;
    struct alone f, other = { 0 };
    struct kernels k;
    kernels_init(&k, KERNELS_SIMD128, exact16);
    s->status = create_pass(s, &k, &f);
    if (s->status == PLUMB_OK) s->status = create_pass(s, &k, &other);
    if (s->status == PLUMB_OK) s->status = run_saved(s, &f, &other);
    alone_free(&f);
    alone_free(&other);
    selfcheck_logits(c, s->logits, s->other, s->n_token, n_result(s), "in one batch, and saved and continued");
}

/* Runs the pass with several threads, in one batch and one by one, and compares the logits with those of the first run.
 * Repeats each until a thread other than the caller's has taken part, but at most TRIES times. */
static plumb_status run_threads(struct selfcheck *s, struct check *c, struct pool *pool) {
    /* A pass has hundreds of loops, but on a busy machine the caller may finish all of them before other threads
     * wake. */
    enum { TRIES = 200 };
    uint32_t n_element = n_result(s), n_thread = pool_size(pool);
    static const char *const ways[] = { "in one batch", "one by one" };
    uint32_t n_taken[2] = { 0 };
    for (size_t way = 0; way < 2; way++) {
        uint32_t before = pool_n_taken(pool);
        for (int i = 0; i < TRIES && n_taken[way] == 0; i++) {
            PLUMB_TRY(run_fast(s, s->n_token, way == 0 ? s->n_token : 1, KERNELS_SIMD128, exact16, pool, s->other,
                               NULL));
            char what[80];
            snprintf(what, sizeof what, "with 1 and %u threads, %s", n_thread, ways[way]);
            selfcheck_logits(c, s->logits, s->other, s->n_token, n_element, what);
            if (c->verdict != VERDICT_OK) return PLUMB_OK;
            n_taken[way] = pool_n_taken(pool) - before;
        }
    }
    if (n_taken[0] == 0 || n_taken[1] == 0) {
        check_set(c, VERDICT_SKIP, "only the first thread took part in %d runs %s: the machine is busy, or the model "
                  "is too small", TRIES, ways[n_taken[0] > 0]);
    } else {
        check_set(c, VERDICT_OK, "with 1 and %u threads, in one batch and one by one: the %s of %u positions are "
                  "exactly equal; the other threads took part %u times", n_thread, results_of(c), s->n_token,
                  n_taken[0] + n_taken[1]);
    }
    return PLUMB_OK;
}

/* The logits must be exactly equal, because it must not matter which thread computes an element. */
static void do_threads(struct selfcheck *s, struct check *c) {
    if (skip_not_causal(s, c)) return;
    enum { THREADS = 4 };   /* may be more than there are processors */
    struct pool *pool = pool_create(THREADS);
    if (pool_size(pool) == 1) check_set(c, VERDICT_SKIP, "the engine has one thread here");
    else s->status = run_threads(s, c, pool);
    pool_free(pool);
}

static void do_simd(struct selfcheck *s, struct check *c) {
    struct kernels best, scalar;
    kernels_init(&best, KERNELS_SIMD128, exact16);
    kernels_init(&scalar, KERNELS_SCALAR, exact16);
    if (strcmp(best.name, scalar.name) == 0) {
        check_set(c, VERDICT_SKIP, "this build has only %s kernels (the WebAssembly builds have SIMD128)",
                  scalar.name);
        return;
    }
    char what[80];
    snprintf(what, sizeof what, "with %s and with %s kernels", best.name, scalar.name);
    s->status = run_fast(s, s->n_token, s->n_token, KERNELS_SCALAR, exact16, NULL, s->other, NULL);
    selfcheck_logits(c, s->logits, s->other, s->n_token, n_result(s), what);
}

/* Returns true if k has kernels for this type that differ from those of the other table. */
static bool has_own(const struct kernels *k, const struct kernels *other, uint32_t type) {
    return k->unpack[type] != other->unpack[type] || k->bytes[0].dot[type] != other->bytes[0].dot[type]
        || k->bytes[1].dot[type] != other->bytes[1].dot[type];
}

/* Returns how many of the model's matrices are multiplied by relaxed kernels, which need packed tiles of TILE_ROWS rows
 * (kernels.h). */
static uint32_t count_relaxed(const struct model *m, const struct kernels *relaxed, const struct kernels *simd128) {
    uint32_t n = 0;
    for (size_t i = 0; i < m->n_weight; i++) {
        const struct weight *w = &m->weights[i];
        bool is_looked_up = w == m->per_layer_embd.w || (w == m->token_embd.w && !model_is_tied(m));
        n += !is_looked_up && w->n_packed >= TILE_ROWS && has_own(relaxed, simd128, w->type);
    }
    return n;
}

/* Compares relaxed kernels with scalar ones, in both precisions.  FAST8 has two tables of them. */
static void do_relaxed(struct selfcheck *s, struct check *c) {
    enum { N = 8 };   /* a batch of 7 tokens, computed as 4 + 2 + 1, and a single token: each has kernels of its own */
    uint32_t n_element = n_result(s);
    struct kernels k, simd128;
    if (skip_not_causal(s, c)) return;
    kernels_init(&k, KERNELS_RELAXED, exact16);
    kernels_init(&simd128, KERNELS_SIMD128, exact16);
    if (k.isa != KERNELS_RELAXED) {
        check_set(c, VERDICT_SKIP, "this build has no relaxed SIMD");
        return;
    }
    uint32_t n_matrix = count_relaxed(s->in->model, &k, &simd128);
    if (n_matrix == 0) {
        check_set(c, VERDICT_SKIP, "the types of this model's weights have no relaxed kernels");
        return;
    }
    float *relaxed = alloc_array((uint64_t)N * n_element, sizeof *relaxed);
    float *scalar = alloc_array((uint64_t)N * n_element, sizeof *scalar);
    if (!relaxed || !scalar) s->status = PLUMB_ERROR_MEMORY;
    static const struct { enum kernels_isa isa; plumb_precision precision; } tables[] = {
        { KERNELS_RELAXED, PLUMB_PRECISION_EXACT16 },
        { KERNELS_RELAXED, PLUMB_PRECISION_FAST8 },
        { KERNELS_PAIRS, PLUMB_PRECISION_FAST8 },
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        plumb_precision p = tables[i].precision;
        if (s->status == PLUMB_OK) s->status = run_fast(s, N, N - 1, tables[i].isa, p, NULL, relaxed, NULL);
        if (s->status == PLUMB_OK) s->status = run_fast(s, N, N, KERNELS_SCALAR, p, NULL, scalar, NULL);
        char what[120];
        snprintf(what, sizeof what, "%s with relaxed and with scalar kernels", plumb_precision_name(p));
        if (s->status == PLUMB_OK) selfcheck_logits(c, relaxed, scalar, N, n_element, what);
        if (s->status != PLUMB_OK || c->verdict != VERDICT_OK) break;
    }
    if (s->status == PLUMB_OK && c->verdict == VERDICT_OK) {
        check_set(c, VERDICT_OK, "exact16 and fast8 with relaxed kernels, for %u matrices, and with scalar ones: the "
                  "%s of %d positions are exactly equal", n_matrix, results_of(c), N);
    }
    free(relaxed);
    free(scalar);
}

/* Replaces the input of every layer of the reference pass by that of the fast pass. */
static void force_layer_input(void *selfcheck, const plumb_tap *tap, double *x) {
    const struct selfcheck *s = selfcheck;
    enum tap_id id;
    const id_set inputs = TAP_SET(EMBD) | TAP_SET(ENCODER_EMBD) | TAP_SET(L_OUT) | TAP_SET(ENCODED);
    if (!tap_find(tap->name, strlen(tap->name), &id) || !(inputs >> id & 1)) return;
    const struct trace_tap *fast = trace_find_tap(s->fast, id, tap->layer);
    for (uint32_t t = 0; fast && t < tap->n_token; t++) {
        const struct trace_row *row = trace_find_row(fast, tap->pos + t);
        for (uint32_t i = 0; row && i < row->n_value; i++) x[(size_t)t * tap->n + i] = (double)row->values[i];
    }
}

/* Compares the fast pass with the reference pass.  layers_alone: the reference pass takes the input of every layer from
 * the fast pass, so that each layer is judged by itself. */
static void compare_passes(struct selfcheck *s, struct check *c, bool layers_alone) {
    struct reference *r;
    s->status = reference_create(&r, s->in->model, s->n_token, s->n_token, s->err);
    if (s->status != PLUMB_OK) return;
    struct plumb_trace *trace = create_trace(s);
    s->status = trace ? reference_set_tap(r, (struct tap_sink) { record, trace }) : PLUMB_ERROR_MEMORY;
    if (s->status == PLUMB_OK) {
        reference_set_force(r, layers_alone ? force_layer_input : NULL, s);
        if (s->in->model->plan.n_encoder > 0) reference_encode(r, s->ids, s->n_token);
        reference_run(r, s->ids, s->n_token, 0, s->n_token, s->other);
        s->status = trace->err.status;
    }
    reference_free(r);
    if (s->status == PLUMB_OK) selfcheck_reference(c, s->fast, trace, layers_alone ? LAYER_BOUND : REFERENCE_BOUND);
    plumb_trace_free(trace);
}

static void do_layer(struct selfcheck *s, struct check *c) { compare_passes(s, c, true); }
static void do_reference(struct selfcheck *s, struct check *c) { compare_passes(s, c, false); }

static void do_text(struct selfcheck *s, struct check *c) {
    uint64_t n_param = 0;
    for (size_t i = 0; i < s->n_stats; i++) n_param += s->stats[i].tensor->n_elements;
    if (!skip_not_causal(s, c)) s->status = selfcheck_text(c, s->in->tokenizer, n_param, s->err);
}

static void do_pairs(struct selfcheck *s, struct check *c) { (void)s; selfcheck_pairs(c); }
static void do_depth(struct selfcheck *s, struct check *c) { selfcheck_depth(c, s->stats, s->n_stats); }

static void do_tokenizer(struct selfcheck *s, struct check *c) { selfcheck_tokenizer(c, s->in->tokenizer); }

enum needs { NEEDS_NOTHING, NEEDS_DATA, NEEDS_TOKENIZER, NEEDS_MODEL };

/* The checks in the order of the report.  share: roughly the share of the time that a check takes, in units whose sum
 * is SHARE_ALL. */
static const struct row {
    const char *name, *what;
    enum needs needs;
    int share;
    void (*run)(struct selfcheck *s, struct check *c);
} table[] = {
    { "file", "the file is complete and its keys describe a model", NEEDS_NOTHING, 1, do_file },
    { "tensors", "the tensor directory matches the architecture", NEEDS_DATA, 1, do_tensors },
    { "statistics", "values of every tensor", NEEDS_DATA, 1, do_statistics },
    { "layers", "tensors are similar to those of the other layers", NEEDS_DATA, 1, do_layers },
    { "head", "tied or untied", NEEDS_DATA, 1, do_head },
    { "norms", "norm weights have their usual scale", NEEDS_DATA, 1, do_norms },
    { "depth", "norms change slowly from layer to layer", NEEDS_DATA, 1, do_depth },
    { "pairs", "rows that RoPE rotates together are alike in Q and K, not in V", NEEDS_MODEL, 2, do_pairs },
    { "tokenizer", "texts are restored from their tokens", NEEDS_TOKENIZER, 4, do_tokenizer },
    { "rope", "RoPE keeps norms", NEEDS_MODEL, 1, do_rope },
    { "softmax", "attention weights", NEEDS_MODEL, 1, do_softmax },
    { "position-0", "the first token alone", NEEDS_MODEL, 1, do_first },
    { "absorbed", "latent attention absorbed = plain", NEEDS_MODEL, 2, do_absorbed },
    { "experts", "the router's choice and the sum of the experts", NEEDS_MODEL, 1, do_experts },
    { "layer", "each layer alone", NEEDS_MODEL, 20, do_layer },
    { "batch", "prefill = step by step", NEEDS_MODEL, 10, do_batch },
    { "cache", "KV cache on = off", NEEDS_MODEL, 50, do_cache },
    { "saved", "saved = recomputed", NEEDS_MODEL, 10, do_saved },
    { "threads", "1 thread = N threads", NEEDS_MODEL, 1, do_threads },
    { "simd", "scalar = SIMD", NEEDS_MODEL, 10, do_simd },
    { "relaxed", "scalar = relaxed SIMD", NEEDS_MODEL, 10, do_relaxed },
    { "text", "perplexity of a known text", NEEDS_MODEL, 15, do_text },
    { "reference", "the fast pass agrees with the reference pass", NEEDS_MODEL, 20, do_reference },
};
#define N_ROW (sizeof table / sizeof *table)
#define SHARE_READ 30.0                  /* prepare, before the first check */
#define SHARE_ALL (SHARE_READ + 165.0)   /* 165: the sum of the table's shares */

static const char *verdict_name(enum verdict v) {
    static const char *const names[] = { "OK", "WARN", "FAIL", "SKIP" };
    return names[v];
}

static const char limits[] =
    "What leaves the model fluent is not seen here: a slightly wrong RoPE base or eps, a scaled matrix, gate and up "
    "exchanged in one layer. `plumb weights` finds such weights with a right file, and `plumb diagnose` compares a "
    "dump of an engine that answers well, which shows wrong keys too.";

static void run_row(struct selfcheck *s, const struct row *row, struct check *c) {
    enum needs needs = row->needs;
    if (needs != NEEDS_NOTHING && !s->is_complete) check_set(c, VERDICT_SKIP, "the file is not complete");
    else if (needs == NEEDS_TOKENIZER && !s->in->tokenizer) check_set(c, VERDICT_SKIP, "the tokenizer is not loaded");
    else if (needs == NEEDS_MODEL && !s->in->model) check_set(c, VERDICT_SKIP, "the model is not loaded");
    else if (needs == NEEDS_MODEL && s->cannot_run) check_set(c, VERDICT_FAIL, "%s", s->err->message);
    else row->run(s, c);
    if (c->out_of_memory) s->status = PLUMB_ERROR_MEMORY;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static void write_text(struct report_writer *w, const struct row *row, const struct check *c) {
    enum { INDENT = 18, SHOWN = 12 };   /* details beyond SHOWN are only in the JSON */
    report_printf(w, "%-4s  %-11s ", verdict_name(c->verdict), row->name);
    report_wrapped(w, c->why, strlen(c->why), INDENT);
    if (c->verdict != VERDICT_FAIL && c->verdict != VERDICT_WARN) return;
    for (uint32_t i = 0; i < c->n_detail && i < SHOWN; i++) {
        report_printf(w, "%*s", INDENT, "");
        report_wrapped(w, c->details[i], strlen(c->details[i]), INDENT);
    }
    if (c->n_detail > SHOWN) report_printf(w, "%*sand %u more; --json lists them\n", INDENT, "", c->n_detail - SHOWN);
}

static void write_json(struct report_writer *w, const struct row *row, const struct check *c) {
    report_printf(w, "%s\n    {\"name\": \"%s\", \"what\": \"%s\", \"verdict\": \"%s\", \"why\": ",
                  row == table ? "" : ",", row->name, row->what, verdict_name(c->verdict));
    report_json_text(w, "", c->why);
    report_printf(w, ", \"n_detail\": %u, \"details\": [", c->n_detail);
    for (uint32_t i = 0; i < c->n_detail && i < SELFCHECK_MAX_DETAIL; i++) {
        report_json_text(w, i > 0 ? ", " : "", c->details[i]);
    }
    report_bytes(w, "]}", 2);
}

/* Computes the statistics of all tensors and does the first run.  Does what is possible if the file is incomplete or
 * the model could not be built. */
static plumb_status prepare(struct selfcheck *s) {
    size_t n = 0;
    if (!s->is_complete) return PLUMB_OK;
    for (size_t i = 0; i < s->in->n_part; i++) n += (size_t)gguf_n_tensor(s->in->parts[i]);
    s->stats = alloc_array(n, sizeof *s->stats);
    if (!s->stats) return PLUMB_ERROR_MEMORY;
    for (size_t p = 0; p < s->in->n_part; p++) {
        for (uint64_t i = 0; i < gguf_n_tensor(s->in->parts[p]); i++) {
            PLUMB_TRY(tensor_stats_of(&s->stats[s->n_stats], gguf_tensor_at(s->in->parts[p], i), s->err));
            progress(s, (double)++s->n_stats / (double)n);
        }
    }
    if (!s->in->model) return PLUMB_OK;
    PLUMB_TRY(choose_tokens(s));
    uint64_t n_logit = (uint64_t)s->n_token * n_result(s);
    s->logits = alloc_array(n_logit, sizeof *s->logits);
    s->other = alloc_array(n_logit, sizeof *s->other);
    if (!s->logits || !s->other) return PLUMB_ERROR_MEMORY;
    s->fast = create_trace(s);
    if (!s->fast) return PLUMB_ERROR_MEMORY;
    plumb_status status = run_fast(s, s->n_token, s->n_token, KERNELS_SIMD128, exact16, NULL, s->logits, s->fast);
    s->cannot_run = status == PLUMB_ERROR_UNSUPPORTED;   /* a tensor type without a kernel */
    return s->cannot_run ? PLUMB_OK : status;
}

plumb_status plumb_selfcheck(plumb_model *m, const plumb_report *report, bool *ok) {
    struct error *err = &m->err;
    *ok = false;
    if (m->n_part == 0) return error_set(err, PLUMB_ERROR_STATE, "plumb_model_begin was not called");
    plumb_status loaded = plumb_model_end(m);
    if (loaded == PLUMB_ERROR_MEMORY) return loaded;
    char load_error[sizeof err->message] = "";
    if (loaded != PLUMB_OK) snprintf(load_error, sizeof load_error, "%s", err->message);
    if (report->format != PLUMB_FORMAT_TEXT && report->format != PLUMB_FORMAT_JSON) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "a selfcheck is written as text or JSON");
    }
    bool is_json = report->format == PLUMB_FORMAT_JSON;
    struct selfcheck s = { .in = m, .load_error = load_error, .is_complete = true, .report = report, .err = err,
                           .share = SHARE_READ / SHARE_ALL };
    for (size_t i = 0; i < m->n_part; i++) s.is_complete = s.is_complete && gguf_is_complete(m->parts[i]);
    struct report_writer w;
    report_begin(&w, report->write, report->user);
    uint32_t n_of[4] = { 0 };
    err->message[0] = 0;
    s.status = prepare(&s);
    if (s.status == PLUMB_OK && is_json) {
        report_json_text(&w, "{\n  \"plumb\": \"selfcheck\", \"model\": ", report->name_a ? report->name_a : "");
        report_printf(&w, ", \"checks\": [");
    }
    for (size_t i = 0; i < N_ROW && s.status == PLUMB_OK; i++) {
        struct check c = { .model = m->model };
        s.done += s.share;
        s.share = table[i].share / SHARE_ALL;
        run_row(&s, &table[i], &c);
        n_of[c.verdict]++;
        if (s.status == PLUMB_OK) (is_json ? write_json : write_text)(&w, &table[i], &c);
        report_flush(&w);
        progress(&s, 1);
        free(c.details);
    }
    *ok = s.status == PLUMB_OK && n_of[VERDICT_FAIL] == 0;
    if (s.status == PLUMB_OK && is_json) {
        report_printf(&w, "\n  ],\n  \"limits\": \"%s\",\n  \"ok\": %s\n}\n", limits, *ok ? "true" : "false");
    } else if (s.status == PLUMB_OK) {
        report_printf(&w, "%u OK, %u WARN, %u FAIL, %u SKIP\n", n_of[VERDICT_OK], n_of[VERDICT_WARN],
                      n_of[VERDICT_FAIL], n_of[VERDICT_SKIP]);
        report_wrapped(&w, limits, sizeof limits - 1, 0);
    }
    report_flush(&w);
    plumb_trace_free(s.fast);
    free(s.stats);
    free(s.logits);
    free(s.other);
    if (s.status == PLUMB_ERROR_MEMORY && !err->message[0]) {
        error_set(err, s.status, "out of memory: activations and logits of %u tokens", s.n_token);
    }
    return s.status;
}

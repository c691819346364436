/* Chooses the steps that are measured: of each kind of step the first that is wrong and whose inputs theirs has whole.
 * Runs the truth once more to keep what it computes in their layers, and lets fit.c analyse each. */
#include "diagnose/diagnose.h"

#include <math.h>
#include <stdlib.h>

/* FLOOR, FLOOR_ATTENTION: an error of a single step up to this is rounding; engines store K and V, and some the
 *     attention weights, as f16.
 * FLOOR_FACTOR: the floor of a dump with noise, as a multiple of the median error of the steps that agree.
 * STANDS_OUT: an error within the tolerance is measured too if it is larger than the floor by this factor. */
#define FLOOR 1e-5
#define FLOOR_ATTENTION 1e-3
#define FLOOR_FACTOR 3.0
#define STANDS_OUT 10.0

static double floor_of(const struct diagnosis *d, size_t i) {
    enum tap_id id = d->theirs->taps[i].id;
    bool is_attention = id == TAP_KQ_SOFT_MAX || id == TAP_KQV_OUT;
    double typical = d->typical[diagnose_is_noisy(d, i)];
    if (is_attention) typical = fmax(typical, d->noise.of_attention.before);   /* fit_attention.c does not round */
    return fmax(FLOOR_FACTOR * typical, is_attention ? FLOOR_ATTENTION : FLOOR);
}

/* Returns true if tap i is the output of a wrong step whose inputs are known. */
static bool is_wrong_step(const struct diagnosis *d, size_t i) {
    const struct trace_tap *tap = &d->theirs->taps[i];
    /* The inputs of the first wrong tap are right, even if theirs does not have them. */
    bool is_known = diagnose_inputs_known(d, i) || i == diagnose_first(d, &d->truth);
    if (!is_known || tap->id == TAP_RESULT_POOLED || isnan(d->truth.error[i])) return false;
    if (tap_holds_indices(tap->id)) return false;
    return diagnose_is_over(d, &d->truth, i) || d->truth.error[i] > STANDS_OUT * floor_of(d, i);
}

bool diagnose_is_measured_in(const struct diagnosis *d, const struct fit *f, int32_t layer) {
    if (f->is_supposed) return mistake_is_in(&f->supposed, layer, d->model->plan.n_layer);
    const struct trace_tap *tap = trace_find_tap(d->theirs, f->id, layer);
    return tap && is_wrong_step(d, (size_t)(tap - d->theirs->taps));
}

static bool is_in_layer(const struct diagnosis *d, int32_t layer) {
    for (uint32_t k = 0; k < d->n_measured; k++) {
        if (d->measured[k].layer == layer) return true;
    }
    return false;
}

/* A sink: keeps the taps of the layers that are measured. */
static void keep(void *user, const plumb_tap *tap) {
    struct diagnosis *d = user;
    if (is_in_layer(d, tap->layer)) plumb_trace_add(d->right, tap);
}

static plumb_status record(struct diagnosis *d) {
    d->right = plumb_trace_create();
    if (!d->right) return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: a trace");
    d->right->params.n_value = UINT32_MAX;
    d->right->order = d->theirs->order;
    PLUMB_TRY(trace_set_tokens(d->right, d->theirs->tokens, d->theirs->n_token, d->theirs->n_prompt));
    int32_t last = -1;
    bool with_results = false;
    for (uint32_t k = 0; k < d->n_measured; k++) {
        if (d->measured[k].layer > last) last = d->measured[k].layer;
        with_results |= d->measured[k].layer < 0;
    }
    uint32_t n_layer = with_results ? UINT32_MAX : (uint32_t)last + 1;
    PLUMB_TRY(experiment_truth(d->experiment, n_layer, (struct tap_sink){ keep, d }, d->err));
    if (d->right->err.status == PLUMB_OK) return PLUMB_OK;
    return error_set(d->err, d->right->err.status, "%s", plumb_trace_error(d->right));
}

plumb_status diagnose_measure(struct diagnosis *d) {
    const struct plumb_trace *theirs = d->experiment->theirs;
    id_set kinds = 0;
    for (int noisy = 0; noisy < 2; noisy++) {
        d->typical[noisy] = diagnose_typical_step(d, &d->truth, noisy);
        if (isnan(d->typical[noisy])) {
            return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: the errors of %zu taps", theirs->n_tap);
        }
    }
    for (size_t i = 0; i < theirs->n_tap && d->n_measured < DIAGNOSE_MEASURED; i++) {
        enum tap_id id = theirs->taps[i].id;
        if ((kinds >> id & 1) || !is_wrong_step(d, i)) continue;
        kinds |= ID_SET(id);
        d->measured[d->n_measured++] = (struct fit){ .model = d->model, .dump = theirs, .id = id,
            .layer = theirs->taps[i].layer, .tokens = theirs->tokens, .n_prompt = theirs->n_prompt,
            .rounding = d->noise.rounding.products, .floor = floor_of(d, i) };
    }
    if (d->n_measured == 0) return PLUMB_OK;
    PLUMB_TRY(record(d));
    for (uint32_t k = 0; k < d->n_measured; k++) {
        struct fit *f = &d->measured[k];
        f->right = d->right;
        plumb_status status = fit_begin(f) ? fit_analyse(f, d->err) : PLUMB_OK;
        if (f->out_of_memory) status = error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: measuring a step");
        fit_free(f);   /* the findings stay */
        PLUMB_TRY(status);
    }
    return PLUMB_OK;
}

void diagnose_measure_free(struct diagnosis *d) {
    for (uint32_t k = 0; k < d->n_measured; k++) fit_free(&d->measured[k]);
    plumb_trace_free(d->right);
    d->right = NULL;
}

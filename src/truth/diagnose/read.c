/* Decides which taps of a dump can be compared with the model, how the dump numbers its layers, and in which order it
 * has tokens and heads. */
#include "diagnose/diagnose.h"

#include <math.h>

/* To count layers from 1, the errors of their taps must be lower by this factor on average. */
#define CLEARLY_LOWER 3.0
/* To read axes in the other order, the errors of all rows must be lower by this factor, taken together. */
#define CLEARLY_CLOSER 10.0

/* Sets *mean to the mean of log10 of the errors of the taps in layers, against the truth.  NAN: none was compared. */
static plumb_status mean_error(const struct model *m, const struct trace_view *v, double *mean, struct error *err) {
    struct experiment *e;
    struct outcome o = { .n_known = 0 };
    uint32_t n = 0, end = 0;
    *mean = 0;
    PLUMB_TRY(experiment_create(&e, m, &v->t, err));
    for (size_t i = 0; i < v->t.n_tap; i++) {
        if (v->t.taps[i].layer >= (int32_t)end) end = (uint32_t)v->t.taps[i].layer + 1;
    }
    plumb_status status = experiment_run(e, NULL, 0, (struct layers) { 0, end }, &o, err);
    for (size_t i = 0; status == PLUMB_OK && i < v->t.n_tap; i++) {
        if (v->t.taps[i].layer < 0 || isnan(o.error[i])) continue;
        *mean += compare_log(o.error[i]);
        n++;
    }
    *mean /= n;   /* NAN if n is 0 */
    outcome_free(&o);
    experiment_free(e);
    return status;
}

/* Makes both views of a dump that may count its layers from 0 or from 1, and keeps the one that comes closer to the
 * truth: the usual one unless the other comes clearly closer. */
static plumb_status choose(struct trace_view *v, const struct model *m, const struct plumb_trace *theirs,
                           struct error *err) {
    struct trace_view shifted;
    double as_is, lowered = (double)NAN;
    PLUMB_TRY(mean_error(m, v, &as_is, err));
    plumb_status status = view_begin(&shifted, theirs, err);
    if (status == PLUMB_OK) status = view_shift(&shifted, err);
    if (status == PLUMB_OK) status = view_fit(&shifted, m, err);
    if (status == PLUMB_OK && !isnan(as_is)) status = mean_error(m, &shifted, &lowered, err);
    if (status == PLUMB_OK && lowered < as_is - log10(CLEARLY_LOWER)) {
        struct trace_view other = *v;
        *v = shifted;
        shifted = other;
    }
    view_free(&shifted);
    return status;
}

/* Sets *sum to the sum of log10 of the errors of the rows of some taps, against the truth. */
static plumb_status sum_errors(const struct model *m, const struct trace_view *v, id_set set, double *sum,
                               struct error *err) {
    struct experiment *e;
    struct outcome o = { .n_known = 0 };
    *sum = 0;
    PLUMB_TRY(experiment_create(&e, m, &v->t, err));
    plumb_status status = experiment_run(e, NULL, 0, ALL_LAYERS, &o, err);
    for (size_t i = 0; status == PLUMB_OK && i < v->t.n_tap; i++) {
        for (size_t k = e->first_row[i]; k < e->first_row[i + 1] && (set >> v->t.taps[i].id & 1); k++) {
            if (!isnan(o.row_error[k])) *sum += compare_log(o.row_error[k]);
        }
    }
    outcome_free(&o);
    experiment_free(e);
    return status;
}

/* Reads taps whose axes are unsure in both orders, and keeps the one that comes clearly closer to the truth.  A wrong
 * order has no row that is right; with a mistake, the right order mostly has one, such as that of the first token or,
 * without a mask, of the last one. */
static plumb_status choose_axes(struct trace_view *v, const struct model *m, id_set set, struct error *err) {
    double as_is, exchanged;
    if (set == 0) return PLUMB_OK;
    PLUMB_TRY(sum_errors(m, v, set, &as_is, err));
    PLUMB_TRY(view_exchange_axes(v, set, err));
    PLUMB_TRY(sum_errors(m, v, set, &exchanged, err));
    if (!(exchanged < as_is - log10(CLEARLY_CLOSER))) return view_exchange_axes(v, set, err);   /* back again */
    const char *name = "";
    for (uint32_t id = 0; id < TAP_COUNT && !*name; id++) {
        if (set >> id & 1) name = tap_spec((enum tap_id)id)->name;
    }
    return remarks_add(&v->t.remarks, err, REMARK_AXES, name, strlen(name), "both orders of tokens and heads were "
                       "tried; the other one comes closer to the truth and was used");
}

plumb_status diagnose_read(struct trace_view *v, const struct model *m, const struct plumb_trace *theirs,
                           struct error *err) {
    enum view_numbering numbering = view_numbering(theirs, m);
    PLUMB_TRY(view_begin(v, theirs, err));
    if (numbering == VIEW_FROM_1) PLUMB_TRY(view_shift(v, err));
    PLUMB_TRY(view_fit(v, m, err));
    if (v->t.n_tap == 0 && theirs->n_tap > 0 && theirs->n_token > 0 && v->t.remarks.n > 0) {
        const struct remark *last = &v->t.remarks.list[v->t.remarks.n - 1];
        return error_set(err, PLUMB_ERROR_ARGUMENT, "no tap of the dump fits this model: %s: %s", last->name,
                         last->text);
    }
    if (numbering == VIEW_UNSURE && v->t.n_tap > 0) PLUMB_TRY(choose(v, m, theirs, err));
    if (v->t.n_tap > 0) {   /* attention weights may be stored in another order than Q, from which they are computed */
        PLUMB_TRY(choose_axes(v, m, v->t.unsure_axes & ~TAP_SET(KQ_SOFT_MAX), err));
        PLUMB_TRY(choose_axes(v, m, v->t.unsure_axes & TAP_SET(KQ_SOFT_MAX), err));
    }
    return view_check_values(v, m, err);
}

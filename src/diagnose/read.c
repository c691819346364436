/* Decides which taps of a dump can be compared with the model, and how the dump numbers its layers. */
#include "diagnose/diagnose.h"

#include <math.h>

/* To count layers from 1, the errors of their taps must be lower by this factor on average. */
#define CLEARLY_LOWER 3.0

/* Sets *mean to the mean of log10 of the errors of the taps in layers, against the truth.  NAN: none was compared. */
static plumb_status mean_error(const struct model *m, const struct trace_view *v, double *mean, struct error *err) {
    struct experiment *e;
    struct outcome o = { .n_quirk = 0 };
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
    return view_check_values(v, m, err);
}

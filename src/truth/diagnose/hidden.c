/* Finds the known mistakes that a dump which agrees would not show: with such a mistake, too, the pass gives theirs.
 *
 * Every known mistake is run on the first layer of which theirs has something.  If it does not show there, it is run on
 * all. The work is bounded, so that a report of a large model does not wait for this. */
#include "diagnose/diagnose.h"

#include <math.h>
#include <stdlib.h>

/* The most multiplications of all runs together; a few seconds. */
#define MOST_WORK 6e9
/* Smaller errors are those of other sums in f32. */
#define LEAST 1e-5
/* Rows whose errors with and without a known mistake differ by less than this part are not changed by it. */
#define CHANGED 1e-3

/* How many multiplications a run of a layer takes. */
static double work_of_layer(const struct diagnosis *d) {
    double n = 0;
    for (size_t i = 0; i < d->model->n_weight; i++) {
        const struct weight *w = &d->model->weights[i];
        n += (double)w->n_in * w->n_out;
    }
    return n / d->model->plan.n_layer * d->theirs->n_token;
}

/* Returns true if some row of o differs from that of the truth. */
static bool changes(const struct diagnosis *d, const struct outcome *o) {
    for (size_t i = 0; i < d->experiment->first_row[d->theirs->n_tap]; i++) {
        double right = d->truth.row_error[i], wrong = o->row_error[i];
        if (!isnan(wrong) && wrong > 1e-6 && fabs(wrong - right) > CHANGED * right) return true;
    }
    for (size_t i = 0; i < d->theirs->n_tap; i++) {   /* taps of which theirs has statistics only */
        double right = d->truth.error[i], wrong = o->error[i];
        if (!isnan(wrong) && wrong > 1e-6 && fabs(wrong - right) > CHANGED * right) return true;
    }
    return false;
}

/* Runs a known mistake on some layers.  *shows: the dump would show it.  *changes_dump: it changes the dump. */
static plumb_status try(struct diagnosis *d, const struct known_mistake *q, struct layers layers, bool *shows,
                        bool *changes_dump) {
    struct outcome o = { 0 };
    plumb_status status = experiment_run(d->experiment, &q, 1, layers, &o, d->err);
    if (status == PLUMB_OK) {
        struct change change = diagnose_change(d, &o, &d->truth, LEAST);
        *shows = !diagnose_explains(d, &o) || diagnose_is_closer(d, &o, &d->truth)
              || change.n_closer > 3 * change.n_further;
        *changes_dump = changes(d, &o);
    }
    outcome_free(&o);
    return status;
}

plumb_status diagnose_find_hidden(struct diagnosis *d) {
    struct hidden *hidden = &d->hidden;
    size_t n_known = known_count(), n_open = 0;
    hidden->known = alloc_array(n_known, sizeof *hidden->known);
    hidden->without_effect = alloc_array(n_known, sizeof *hidden->without_effect);
    if (!hidden->known || !hidden->without_effect) {
        return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: %zu known mistakes", n_known);
    }
    /* Those that the first layers do not show; later those that hide. */
    const struct known_mistake **open = hidden->known;
    double work = 0, of_layer = work_of_layer(d);
    struct layers near = diagnose_first_layers(d, 1);
    uint32_t n_layer = d->model->plan.n_layer, n_near = (near.end < n_layer ? near.end : n_layer) - near.first;
    for (size_t i = 0; i < n_known; i++) {
        const struct known_mistake *q = known_at(i);
        bool shows = false, changes_dump = false;
        int applies = known_applies(q, d->model, d->bos);
        if (applies < 0) return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: a copy of the model's plan");
        if (!applies) continue;
        if (near.end != UINT32_MAX && work + n_near * of_layer <= MOST_WORK) {
            PLUMB_TRY(try(d, q, near, &shows, &changes_dump));
            work += n_near * of_layer;
        }
        if (shows) hidden->n_tried++;
        else open[n_open++] = q;
    }
    for (size_t i = 0; i < n_open; i++) {
        const struct known_mistake *q = open[i];
        bool shows, changes_dump;
        work += n_layer * of_layer;
        if (work > MOST_WORK) {
            hidden->n_untried = n_open - i;
            break;
        }
        PLUMB_TRY(try(d, q, ALL_LAYERS, &shows, &changes_dump));
        hidden->n_tried++;
        if (!shows && changes_dump) hidden->known[hidden->n++] = q;   /* n <= i, so what is open stays */
        if (!shows && !changes_dump) hidden->without_effect[hidden->n_without_effect++] = q;
    }
    return PLUMB_OK;
}

void diagnose_hidden_free(struct diagnosis *d) {
    free((void *)d->hidden.known);
    free((void *)d->hidden.without_effect);
}

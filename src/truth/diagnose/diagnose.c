/* The search: a beam search over sets of known mistakes.  The report is in diagnose_report.c.
 *
 *   truth -> every single known mistake, run up to the layer that diverges first -> the best few, run on all layers
 *         -> the best sets with one more known mistake, and so on, as long as that brings the numbers closer
 *
 * Sets are ranked by diagnose_score: how close they bring all taps (outcome.score), plus a small cost for each known
 * mistake.  A candidate is a set plus one more known mistake.
 */
#include "diagnose/diagnose.h"

#include "api/model.h"

#include <math.h>
#include <stdlib.h>

/* To count as a cause, a known mistake must lower the sum of log10 of the errors by this much, and must also reduce the
 * error of one tap by DIAGNOSE_FACTOR. */
#define GAIN 0.4
/* What reproduces theirs is outdone by a finding whose error is smaller by the factor OUTDONE_BY, if its own error is
 * more than OUTDONE: smaller ones may be the rounding of K and V to f16. */
#define OUTDONE 1e-3
#define OUTDONE_BY 5.0
/* The limits of the search.  BEAM: how many of the best sets of each size are extended where errors add up.
 * MAX_PROMOTED: how many of the best candidates that were run on the first layers are then run on all layers.
 * MAX_PAIRED: pairs of further known mistakes are made from this many of the best candidates. */
enum { BEAM = 4, MAX_PROMOTED = 4, MAX_PAIRED = 24 };

/* ---- experiments ------------------------------------------------------------------------------------------------- */

/* Reports progress after n_layer more layers were run.  n_due is an estimate: if the search takes longer, the reported
 * part of the work stays at 1. */
void diagnose_progress(struct diagnosis *d, double n_layer) {
    d->n_done += n_layer;
    if (!d->report->on_progress) return;
    d->report->on_progress(d->report->user, fmin(1, d->n_done / d->n_due));
}

/* Runs a set of n known mistakes on some layers. */
static plumb_status run(struct diagnosis *d, const struct known_mistake *const *known, uint32_t n, struct layers layers,
                        struct outcome *o) {
    plumb_status status = experiment_run(d->experiment, known, n, layers, o, d->err);
    uint32_t n_layer = d->model->plan.n_layer, end = layers.end < n_layer ? layers.end : n_layer;
    diagnose_progress(d, end - layers.first);
    return status;
}

/* Returns the layers to run to compute the tap that diverges first in o, from the first layer on.  These layers are
 * enough to try a known mistake, because a known mistake is made in every layer. */
static struct layers layers_to_run(const struct diagnosis *d, const struct outcome *o) {
    size_t at = diagnose_first(d, o);
    uint32_t n_layer = d->model->plan.n_layer;
    if (at == SIZE_MAX || d->theirs->taps[at].id >= TAP_RESULT_NORM) return ALL_LAYERS;
    uint32_t end = d->theirs->taps[at].layer < 0 ? 1 : (uint32_t)d->theirs->taps[at].layer + 1;
    return (struct layers){ 0, end < n_layer ? end : UINT32_MAX };
}

/* Returns the fewest layers to run to compute that tap: its own, if theirs has the layer's input. */
static struct layers own_layer(const struct diagnosis *d, const struct outcome *o) {
    struct layers layers = layers_to_run(d, o);
    uint32_t n_layer = d->model->plan.n_layer;
    size_t at = diagnose_first(d, o);
    bool is_known = d->is_exact_before && d->experiment->truth && d->experiment->first_layer > 0;
    if (is_known && o == &d->truth) layers.first = d->experiment->first_layer;
    if (is_known) return layers;
    bool is_late = at != SIZE_MAX && d->theirs->taps[at].id >= TAP_RESULT_NORM;
    uint32_t first = is_late ? n_layer : layers.end <= n_layer ? layers.end - 1 : n_layer - 1;
    if (experiment_can_begin(d->experiment, first)) layers.first = first;
    return layers;
}

/* Returns how much closer o is than base: the sum, over the taps that both computed, of the decrease of log10 of the
 * error.  Sets *largest to the largest decrease of a single tap; at least 0. */
static double closer(const struct diagnosis *d, const struct outcome *base, const struct outcome *o, double *largest) {
    double sum = 0;
    *largest = 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (isnan(o->error[i]) || isnan(base->error[i])) continue;
        double by = compare_log(base->error[i]) - compare_log(o->error[i]);
        sum += by;
        *largest = fmax(*largest, by);
    }
    return sum;
}

/* Returns what closer returns, or 0 if it is below GAIN or no tap improves by DIAGNOSE_FACTOR, unless most rows become
 * closer.  Returns 0 also if that may be chance, or if base explains everything and o does not. */
static double gain(const struct diagnosis *d, const struct outcome *base, const struct outcome *o) {
    double largest, sum = closer(d, base, o, &largest);
    if (diagnose_explains(d, base) && !diagnose_explains(d, o)) return 0;
    bool is_clear = largest >= log10(DIAGNOSE_FACTOR) && sum >= GAIN;
    bool is_closer = is_clear || (sum > 0 && diagnose_is_closer(d, base, o));
    return is_closer && !diagnose_is_lucky(d, base, o) ? sum : 0;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* Returns true if o is the outcome of this set of n known mistakes. */
static bool is_set(const struct outcome *o, const struct known_mistake *const *known, uint32_t n) {
    uint32_t n_same = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < o->n_known; k++) n_same += o->known[k] == known[i];
    }
    return n_same == n && o->n_known == n;
}

/* Returns the outcome of this set on all layers; NULL if it was not run or not kept. */
static const struct outcome *find(const struct diagnosis *d, const struct known_mistake *const *known, uint32_t n) {
    if (n == 0) return &d->truth;
    for (size_t i = 0; i < d->n_ranked; i++) {
        if (is_set(&d->ranked[i], known, n)) return &d->ranked[i];
    }
    for (size_t i = 0; i < d->n_other; i++) {
        if (is_set(&d->others[i], known, n)) return &d->others[i];
    }
    return NULL;
}

/* Orders known mistakes by the first tap that they change, in the order of the computation; ties by index in the
 * table. */
static int by_step(const void *a, const void *b) {
    const struct known_mistake *x = *(const struct known_mistake *const *)a;
    const struct known_mistake *y = *(const struct known_mistake *const *)b;
    enum tap_id at_x = TAP_COUNT, at_y = TAP_COUNT;
    tap_find(x->tap, strlen(x->tap), &at_x);
    tap_find(y->tap, strlen(y->tap), &at_y);
    if (at_x != at_y) return at_x < at_y ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Inserts o into ranked by its score and takes ownership of its arrays, also on failure. */
static plumb_status rank(struct diagnosis *d, struct outcome *o) {
    if (!ARRAY_GROW(d->ranked, d->n_ranked, &d->cap)) {
        outcome_free(o);
        return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: more than %zu explanations", d->n_ranked);
    }
    qsort(o->known, o->n_known, sizeof *o->known, by_step);
    size_t at = d->n_ranked;
    while (at > 0 && diagnose_score(&d->ranked[at - 1]) > diagnose_score(o) + 1e-9) at--;
    memmove(&d->ranked[at + 1], &d->ranked[at], (d->n_ranked - at) * sizeof *d->ranked);
    d->ranked[at] = *o;
    d->n_ranked++;
    return PLUMB_OK;
}

/* Returns true if the known mistake changes only results.  Only a run of all layers shows its effect. */
static bool is_late(const struct known_mistake *q) { return strncmp(q->tap, "result", 6) == 0; }

/* A known mistake in addition to those of a base set.  Most candidates are run on the first layers only
 * (layers_to_run). */
struct candidate {
    const struct known_mistake *known;
    size_t place;                 /* in the table */
    double gain, closer;          /* what the functions of these names return */
    double after;                 /* the new error of the tap that diverges first in base; INFINITY: it is still over */
    bool matters;                 /* the known mistake changes that error at all */
    struct outcome on_all;        /* the run on all layers; its arrays are NULL if only the first layers were run */
};

static int by_closeness(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->gain != y->gain) return x->gain < y->gain ? 1 : -1;
    if (x->closer != y->closer) return x->closer < y->closer ? 1 : -1;
    return x->place < y->place ? -1 : 1;
}

/* Runs a candidate on all layers, unless that was done, and ranks it if it gains there too. */
static plumb_status promote(struct diagnosis *d, const struct outcome *base, struct candidate *c) {
    const struct known_mistake *known[EXPERIMENT_KNOWN];
    memcpy(known, base->known, sizeof known);
    known[base->n_known] = c->known;
    if (find(d, known, base->n_known + 1)) return PLUMB_OK;
    if (!c->on_all.error) PLUMB_TRY(run(d, known, base->n_known + 1, ALL_LAYERS, &c->on_all));
    if (gain(d, base, &c->on_all) <= 0) return PLUMB_OK;
    struct outcome o = c->on_all;
    c->on_all = (struct outcome){ 0 };
    return rank(d, &o);
}

/* Runs base with each further known mistake that applies to the model and whose switch is not set in base, mostly on
 * the first layers.  base must not be exact, so that there is a tap to look at first.  candidates: (number of known
 * mistakes).  Fills *n of them, the best first. */
static plumb_status try_all(struct diagnosis *d, const struct outcome *base, struct candidate *candidates, size_t *n) {
    const struct known_mistake *known[EXPERIMENT_KNOWN];
    memcpy(known, base->known, sizeof known);
    struct known_set set = { 0 };
    for (uint32_t i = 0; i < base->n_known; i++) known_add(&set, known[i]);
    struct layers near = layers_to_run(d, base), own = own_layer(d, base);
    size_t first = diagnose_first(d, base);
    const struct known_mistake **q = &known[base->n_known];
    *n = 0;
    for (size_t i = 0; (*q = known_at(i)) != NULL; i++) {
        if (!known_is_free(&set, *q) || !known_applies(*q, d->model, d->bos)) continue;
        struct outcome o;
        struct layers layers = is_late(*q) ? ALL_LAYERS : near;
        if (own.first > 0) {   /* most known mistakes help nothing, which a single layer shows */
            PLUMB_TRY(run(d, known, base->n_known + 1, own, &o));
            double largest, by = closer(d, base, &o, &largest);
            if (by > 0 || is_late(*q)) outcome_free(&o);
            else layers = own;
        }
        if (layers.first == 0) PLUMB_TRY(run(d, known, base->n_known + 1, layers, &o));
        double largest, before = base->error[first], after = o.error[first];
        struct candidate *c = &candidates[(*n)++];
        *c = (struct candidate){ .known = *q, .place = i, .gain = gain(d, base, &o),
                                 .closer = closer(d, base, &o, &largest),
                                 .after = diagnose_is_over(d, &o, first) ? INFINITY : after,
                                 .matters = fabs(before - after) > 1e-6 * before };
        if (layers.first == 0 && layers.end == UINT32_MAX) c->on_all = o;
        else outcome_free(&o);
    }
    qsort(candidates, *n, sizeof *candidates, by_closeness);
    return PLUMB_OK;
}

/* Two mistakes in one step can hide each other, so that neither alone brings the numbers closer.  This function tries
 * pairs of the n candidates, as far as they change the tap that diverges first in base, and ranks base with the best
 * pair. */
static plumb_status try_pairs(struct diagnosis *d, const struct outcome *base, const struct candidate *candidates,
                              size_t n) {
    const struct known_mistake *known[EXPERIMENT_KNOWN], *best[2] = { NULL, NULL };
    memcpy(known, base->known, sizeof known);
    struct known_set set = { 0 };
    struct layers near = layers_to_run(d, base), own = own_layer(d, base);
    double best_gain = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i && candidates[i].matters; j++) {
            known[base->n_known] = candidates[j].known;
            known[base->n_known + 1] = candidates[i].known;
            set = (struct known_set){ 0 };
            known_add(&set, candidates[j].known);
            if (!candidates[j].matters || !known_is_free(&set, candidates[i].known)) continue;
            struct outcome o;
            PLUMB_TRY(run(d, known, base->n_known + 2, own, &o));
            double by = gain(d, base, &o);
            outcome_free(&o);
            if (by <= 0) continue;
            if (own.first > 0) {
                PLUMB_TRY(run(d, known, base->n_known + 2, near, &o));
                by = gain(d, base, &o);
                outcome_free(&o);
            }
            if (by <= best_gain) continue;
            best_gain = by;
            memcpy(best, known + base->n_known, sizeof best);
        }
    }
    if (best_gain <= 0) return PLUMB_OK;
    memcpy(known + base->n_known, best, sizeof best);
    if (find(d, known, base->n_known + 2)) return PLUMB_OK;
    struct outcome o;
    PLUMB_TRY(run(d, known, base->n_known + 2, ALL_LAYERS, &o));
    if (gain(d, base, &o) > 0) return rank(d, &o);
    outcome_free(&o);
    return PLUMB_OK;
}

/* Remembers in local_known base and the candidate that best corrects the tap that diverges first in base.  Does so
 * only if the pass continues from activations of theirs, because otherwise an error in one layer spreads to all later
 * ones. */
static void remember_local(struct diagnosis *d, const struct outcome *base, const struct candidate *candidates,
                           size_t n) {
    d->n_local_known = 0;
    double least = INFINITY;
    for (size_t i = 0; i < n && d->experiment->forced; i++) {
        if (candidates[i].after >= least) continue;
        least = candidates[i].after;
        memcpy(d->local_known, base->known, sizeof d->local_known);
        d->local_known[base->n_known] = candidates[i].known;
        d->n_local_known = base->n_known + 1;
    }
}

/* Ranks the best sets of base and one more known mistake.  If no single known mistake helps, ranks base and the best
 * pair. */
static plumb_status extend(struct diagnosis *d, const struct outcome *base) {
    size_t n = known_count();
    struct candidate *candidates = alloc_array(n, sizeof *candidates);
    if (!candidates) return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: %zu candidates", n);
    plumb_status status = try_all(d, base, candidates, &n);
    if (status == PLUMB_OK) remember_local(d, base, candidates, n);
    /* If all layers were run already, promoting a candidate costs nothing. */
    size_t n_promoted = layers_to_run(d, base).end == UINT32_MAX ? n : MAX_PROMOTED;
    /* Where errors add up, a known mistake that helps little in the first layers may help more in the others. */
    bool none_gains = n > 0 && candidates[0].gain <= 0, may_grow = none_gains && !d->experiment->forced;
    size_t n_before = d->n_ranked;
    for (size_t i = 0; i < n && i < n_promoted && status == PLUMB_OK; i++) {
        bool is_promising = candidates[i].gain > 0 || (may_grow && candidates[i].closer > 0);
        if (is_promising) status = promote(d, base, &candidates[i]);
    }
    if (status == PLUMB_OK && base->n_known == 0) status = diagnose_partial(d);
    /* One mistake is more likely than two. */
    bool is_stuck = none_gains && d->n_ranked == n_before && !diagnose_explains(d, base) && !d->is_supposed;
    if (status == PLUMB_OK && is_stuck && base->n_known + 2 <= d->max_known) {
        status = try_pairs(d, base, candidates, n < MAX_PAIRED ? n : MAX_PAIRED);
    }
    for (size_t i = 0; i < n; i++) outcome_free(&candidates[i].on_all);
    free(candidates);
    return status;
}

static plumb_status search(struct diagnosis *d) {
    PLUMB_TRY(diagnose_begin_partial(d));
    PLUMB_TRY(extend(d, &d->truth));
    /* If the pass continues from activations of theirs, steps are independent.  Extending the best set is enough. */
    size_t n_beam = d->experiment->forced ? 1 : BEAM;
    for (uint32_t n = 1; n < d->max_known && !d->is_supposed; n++) {
        struct outcome beam[BEAM];   /* shallow copies, since extend moves the entries of ranked; it removes none */
        size_t n_taken = 0;
        for (size_t i = 0; i < d->n_ranked && n_taken < n_beam; i++) {
            if (d->ranked[i].n_known == n) beam[n_taken++] = d->ranked[i];
        }
        if (d->n_ranked == 0 || diagnose_is_exact(d, &d->ranked[0])) break;
        for (size_t i = 0; i < n_taken; i++) {
            if (!diagnose_is_exact(d, &beam[i])) PLUMB_TRY(extend(d, &beam[i]));
        }
    }
    return PLUMB_OK;
}

/* ---- after the search -------------------------------------------------------------------------------------------- */

/* Runs a set on all layers and adds it to others, unless it was run before or others is full. */
static plumb_status add_other(struct diagnosis *d, const struct known_mistake *const *known, uint32_t n) {
    if (find(d, known, n) || d->n_other == DIAGNOSE_OTHERS) return PLUMB_OK;
    struct outcome *o = &d->others[d->n_other++];
    PLUMB_TRY(run(d, known, n, ALL_LAYERS, o));
    qsort(o->known, n, sizeof *o->known, by_step);
    return PLUMB_OK;
}

/* Writes the mistakes of o, except number k, to known.  Returns how many they are. */
static uint32_t set_without(const struct outcome *o, uint32_t k, const struct known_mistake **known) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_known; i++) {
        if (i != k) known[n++] = o->known[i];
    }
    return n;
}

const struct outcome *diagnose_without(const struct diagnosis *d, const struct outcome *o, uint32_t k) {
    const struct known_mistake *known[EXPERIMENT_KNOWN];
    uint32_t n = set_without(o, k, known);
    return find(d, known, n);
}

/* Runs each shown set once more without each of its known mistakes, as evidence for that known mistake. */
static plumb_status add_others(struct diagnosis *d) {
    for (size_t i = 0; i < d->n_ranked && i < DIAGNOSE_SHOWN; i++) {
        for (uint32_t k = 0; k < d->ranked[i].n_known; k++) {
            const struct known_mistake *known[EXPERIMENT_KNOWN];
            uint32_t n = set_without(&d->ranked[i], k, known);
            PLUMB_TRY(add_other(d, known, n));
        }
    }
    return PLUMB_OK;
}

/* Returns true if a set explains something: it reduces the error of the first tap that diverges from the truth by
 * DIAGNOSE_FACTOR, or brings most rows closer, or it corrects some tap whose inputs are known, whose error therefore is
 * not that of an earlier tap. */
static bool is_explanation(const struct diagnosis *d, const struct outcome *o) {
    size_t first = diagnose_first(d, &d->truth);
    if (o->error[first] * DIAGNOSE_FACTOR < d->truth.error[first]) return true;
    if (diagnose_is_closer(d, &d->truth, o)) return true;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        bool is_right = diagnose_inputs_known(d, i) && !diagnose_is_over(d, o, i) && diagnose_is_over(d, &d->truth, i);
        if (is_right) return true;
    }
    return false;
}

/* If the dump does not agree with the truth, keeps only those ranked sets that explain something. */
static void keep_explanations(struct diagnosis *d) {
    if (diagnose_explains(d, &d->truth)) return;
    size_t n = 0;
    for (size_t i = 0; i < d->n_ranked; i++) {
        if (is_explanation(d, &d->ranked[i])) d->ranked[n++] = d->ranked[i];
        else outcome_free(&d->ranked[i]);
    }
    d->n_ranked = n;
}

/* Records the known mistake in d->local if it corrects some of the layers.  A known mistake that explains the dump
 * takes the place of one that does not: see struct local. */
static void try_local(struct diagnosis *d, const struct known_mistake *known, const struct outcome *base,
                      const struct outcome *with) {
    struct local local = { known, base, with, diagnose_first(d, base), true };
    bool is_some = false;
    enum tap_id first;
    if (!tap_find(known->tap, strlen(known->tap), &first) || !tap_spec(first)->in_layer) return;   /* not per layer */
    for (int32_t layer = -1; layer < (int32_t)d->model->plan.n_layer; layer++) {
        bool diverges = diagnose_diverges(d, base, layer), diverges_with = diagnose_diverges(d, with, layer);
        is_some = is_some || (layer >= 0 && diverges && !diverges_with);
        local.explains = local.explains && (!diverges || (!diverges_with && layer >= 0));
    }
    if (is_some && (local.explains || !d->local.known)) d->local = local;
}

/* Looks for a mistake that is made in some layers only: a known mistake in addition to the best set, or one of its
 * own. */
static plumb_status find_local(struct diagnosis *d) {
    const struct outcome *best = diagnose_best(d);
    if (!d->experiment->forced || diagnose_explains(d, best)) return PLUMB_OK;
    uint32_t n = d->n_local_known;
    if (n > 0 && is_set(best, d->local_known, n - 1)) {
        PLUMB_TRY(add_other(d, d->local_known, n));
        const struct outcome *with = find(d, d->local_known, n);
        if (with) try_local(d, d->local_known[n - 1], best, with);
    }
    for (uint32_t k = 0; k < best->n_known && !d->local.explains; k++) {
        const struct outcome *base = diagnose_without(d, best, k);
        if (base) try_local(d, best->known[k], base, best);
    }
    return PLUMB_OK;
}

/* Searches, and looks at what was found. */
static plumb_status explain(struct diagnosis *d) {
    PLUMB_TRY(search(d));
    keep_explanations(d);
    PLUMB_TRY(add_others(d));
    PLUMB_TRY(find_local(d));
    return d->is_supposed ? PLUMB_OK : diagnose_measure(d);
}

/* ---- with noise of an unknown kind, and without ------------------------------------------------------------------ */

/* An explanation without noise must lower the noise that the truth seems to have by this factor. */
#define NOISE_IS_GONE 5.0

/* Returns the noise of an unknown kind that theirs may have, if o is what it computes. */
static double assumed_noise(struct diagnosis *d, const struct outcome *o) {
    bool before = d->assumes_noise;
    d->assumes_noise = true;
    double noise = d->noise.products ? 0 : diagnose_noise(d, o);
    d->assumes_noise = before;
    return noise;
}

/* Returns true if theirs may have noise of an unknown kind. */
static bool may_have_noise(struct diagnosis *d) {
    bool may = assumed_noise(d, &d->truth) > 0;
    for (size_t i = 0; i < d->n_ranked; i++) may = may || assumed_noise(d, &d->ranked[i]) > 0;
    return may;
}

/* Returns true if theirs is explained without noise of an unknown kind.  A set that leaves as much noise as the truth
 * has explains theirs only because the noise happens to be small. */
static bool is_explained(struct diagnosis *d) {
    const struct outcome *o = d->local.explains ? d->local.with : d->n_ranked > 0 ? &d->ranked[0] : &d->truth;
    if (d->n_measured > 0 && d->measured[0].n_clear > 0) return true;
    if (diagnose_explains(d, &d->truth)) return true;
    if (!d->local.explains && !diagnose_explains(d, o)) return false;
    return assumed_noise(d, o) * NOISE_IS_GONE <= assumed_noise(d, &d->truth);
}

/* Forgets what was found, but not the truth. */
static void forget(struct diagnosis *d) {
    for (size_t i = 0; i < d->n_ranked; i++) outcome_free(&d->ranked[i]);
    for (size_t i = 0; i < d->n_other; i++) outcome_free(&d->others[i]);
    diagnose_measure_free(d);
    experiment_end_mistakes(d->experiment);
    d->n_ranked = d->n_other = d->n_measured = d->n_local_known = 0;
    d->local = (struct local){ 0 };
    d->is_cut = d->is_supposed = false;
}

bool diagnose_is_not_finite(const struct diagnosis *d) {
    size_t at = diagnose_first(d, &d->truth);
    if (!d->odd.tap || at == SIZE_MAX || &d->theirs->taps[at] != d->odd.tap) return false;
    for (uint32_t k = 0; k < d->odd.tap->n_row; k++) {
        const struct trace_row *row = &d->odd.tap->rows[k];
        if (!(d->truth.row_error[d->experiment->first_row[at] + k] > d->tolerance)) continue;
        for (uint32_t i = 0; i < row->n_value; i++) {
            if (isfinite(row->values[i])) return false;
        }
    }
    return true;
}

/* Returns true if what was measured in the first wrong step fits theirs much better than the set that is said to
 * reproduce theirs: a listed number within the tolerance is not the number itself. */
static bool is_outdone(const struct diagnosis *d) {
    const struct outcome *o = d->local.explains ? d->local.with : diagnose_best(d);
    const struct fit *f = &d->measured[0];
    if (d->n_measured == 0 || f->n_clear == 0 || (!d->local.explains && !diagnose_explains(d, o))) return false;
    const struct trace_tap *tap = trace_find_tap(d->theirs, f->id, f->layer);
    size_t at = f->is_supposed || !tap ? diagnose_first(d, &d->truth) : (size_t)(tap - d->theirs->taps);
    return o->error[at] > OUTDONE && f->findings[0].error * OUTDONE_BY < o->error[at];
}

/* Fills d->effect if theirs does not agree although a rounding was recognized, and errors add up. */
static plumb_status measure_effect(struct diagnosis *d) {
    bool is_rounded = d->noise.products || d->noise.attention;
    if (!is_rounded || d->experiment->forced || diagnose_explains(d, &d->truth)) return PLUMB_OK;
    double *effect = alloc_array(d->theirs->n_tap, sizeof *effect);
    if (!effect) return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: errors of %zu taps", d->theirs->n_tap);
    plumb_status status = experiment_effect_of_rounding(d->experiment, effect, d->err);
    if (status == PLUMB_OK) diagnose_set_effect(d, effect);
    else free(effect);
    return status;
}

static plumb_status diagnose(struct diagnosis *d) {
    d->n_due = 2.0 * (double)known_count() + 4.0 * (double)MAX_PROMOTED * d->model->plan.n_layer;
    PLUMB_TRY(run(d, NULL, 0, ALL_LAYERS, &d->truth));
    if (diagnose_is_exact(d, &d->truth) || diagnose_is_not_finite(d)) return PLUMB_OK;
    PLUMB_TRY(measure_effect(d));
    PLUMB_TRY(explain(d));
    if (!is_explained(d) && may_have_noise(d)) {
        forget(d);
        d->assumes_noise = true;
        PLUMB_TRY(explain(d));
    }
    d->is_outdone = is_outdone(d);
    return PLUMB_OK;
}

static plumb_verdict verdict_of(const struct diagnosis *d) {
    if (!diagnose_explains(d, &d->truth) || d->n_ranked > 0) return PLUMB_VERDICT_DIFFERS;
    return diagnose_needs_noise(d, &d->truth, &d->truth) ? PLUMB_VERDICT_AGREES_BUT_NOISE : PLUMB_VERDICT_AGREES;
}

bool diagnose_needs_noise(const struct diagnosis *d, const struct outcome *o, const struct outcome *or_else) {
    return d->assumes_noise && !d->noise.products && diagnose_left(d, o, or_else) > d->tolerance;
}

/* ---- entry point ------------------------------------------------------------------------------------------------- */

plumb_status plumb_diagnose(plumb_model *model, plumb_trace *theirs, uint32_t max_known, const plumb_report *report,
                            plumb_verdict *verdict) {
    const struct model *m = model->model;
    const struct tokenizer *vocab = model->tokenizer;
    struct error *err = &model->err;
    *verdict = PLUMB_VERDICT_DIFFERS;
    if (!m) return error_set(err, PLUMB_ERROR_STATE, "the model is not completely loaded");
    if (model->headers_only) {
        return error_set(err, PLUMB_ERROR_STATE, "the model was loaded without its weights (plumb_model_rehearse)");
    }
    trace_set_order(theirs, model_tap_order(m));
    if (max_known > EXPERIMENT_KNOWN) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "sets of up to %u mistakes: at most %d are allowed", max_known,
                         EXPERIMENT_KNOWN);
    }
    if (report->format != PLUMB_FORMAT_TEXT && report->format != PLUMB_FORMAT_JSON) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "a diagnosis is written as text or JSON");
    }
    struct trace_view view;
    plumb_status status = diagnose_read(&view, m, theirs, err);
    struct diagnosis d = { .model = m, .theirs = &view.t, .report = report, .err = err, .bos = tokenizer_bos(vocab),
                           .tolerance = report->tolerance > 0 ? report->tolerance : 0.01,
                           .max_known = max_known > 0 ? max_known : EXPERIMENT_KNOWN };
    if (status == PLUMB_OK) status = experiment_create(&d.experiment, m, d.theirs, err);
    if (status == PLUMB_OK) d.doubt = tokens_warning(theirs, vocab);
    if (status == PLUMB_OK) status = diagnose_prepare(&d);
    if (status == PLUMB_OK) status = diagnose_recognize_noise(&d);
    if (status == PLUMB_OK) d.odd = view_not_finite(&view, m);
    if (status == PLUMB_OK) status = diagnose(&d);
    if (status == PLUMB_OK && diagnose_n_compared(&d) == 0) {
        status = error_set(err, PLUMB_ERROR_ARGUMENT, "none of the dump's activations could be compared: no shape fits "
                           "this model");
    }
    if (status == PLUMB_OK) {
        *verdict = verdict_of(&d);
        if (*verdict != PLUMB_VERDICT_DIFFERS) status = diagnose_find_hidden(&d);
    }
    if (status == PLUMB_OK) {
        struct report_writer w;
        report_begin(&w, report->write, report->user);
        if (report->format == PLUMB_FORMAT_JSON) diagnose_json(&d, *verdict, &w);
        else diagnose_text(&d, *verdict, &w);
        report_flush(&w);
    }
    forget(&d);
    free(d.ranked);
    diagnose_hidden_free(&d);
    free(d.kinds);
    free(d.effect);
    outcome_free(&d.truth);
    experiment_free(d.experiment);
    view_free(&view);
    return status;
}

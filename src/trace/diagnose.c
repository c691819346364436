/* The search: a beam over sets of quirks.
 *
 *   truth -> every single quirk, on the first layers only, as far as the first that parts -> the best few on all layers
 *         -> the best sets with one quirk more, and so on, as long as that brings the numbers closer
 *
 * Sets are ranked by how close they bring all taps together (struct outcome: score), less a little for each quirk.
 */
#include "trace/diagnose.h"

#include "trace/report.h"

#include <math.h>
#include <stdlib.h>

/* Nothing is left to explain below this error: what remains is the rounding of f32. */
#define ROUNDING 1e-6
/* A quirk must bring one tap closer at least by this factor, and the score down by GAIN, to be taken for a cause. */
#define FACTOR 3.0
#define GAIN 0.4
/* Each quirk of a set costs this much score, so that one that does nothing is no part of an explanation. */
#define COST 0.2
enum { BEAM = 4, PROMOTED = 4, PAIRED = 24, SHOWN = 5 };

struct diagnosis {
    struct experiment *experiment;
    const struct model *model;
    const struct plumb_trace *theirs;
    const plumb_report *report;
    struct error *err;
    int32_t bos;
    double tolerance;
    uint32_t max_quirk;
    struct outcome truth;
    struct outcome *ranked;              /* (n_ranked) of all layers, best first */
    size_t n_ranked, cap;
    double n_done, n_due;                /* progress, in layers */
};

static double total(const struct outcome *o) { return o->score + COST * o->n_quirk; }

/* ---- experiments ------------------------------------------------------------------------------------------------- */

static void progress(struct diagnosis *d, double n_layer) {
    d->n_done += n_layer;
    if (!d->report->on_progress) return;
    d->report->on_progress(d->report->user, fmin(1, d->n_done / d->n_due));
}

static plumb_status run(struct diagnosis *d, const struct quirk *const *quirks, uint32_t n, uint32_t n_layer,
                        struct outcome *o) {
    plumb_status status = experiment_run(d->experiment, quirks, n, n_layer, o, d->err);
    progress(d, n_layer < d->model->config.n_layer ? n_layer : d->model->config.n_layer);
    return status;
}

/* The first tap whose error is over the limit; SIZE_MAX: none. */
static size_t first_over(const struct diagnosis *d, const struct outcome *o, double limit) {
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (o->error[i] > limit) return i;
    }
    return SIZE_MAX;
}

static double largest_error(const struct diagnosis *d, const struct outcome *o) {
    double largest = 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (o->error[i] > largest) largest = o->error[i];
    }
    return largest;
}

/* Layers to compute so that what parts first is among them: quirks are the same in every layer. */
static uint32_t horizon(const struct diagnosis *d, const struct outcome *o) {
    size_t at = first_over(d, o, d->tolerance);
    if (at == SIZE_MAX) at = first_over(d, o, ROUNDING);
    uint32_t n_layer = d->model->config.n_layer;
    if (at == SIZE_MAX || d->theirs->taps[at].id >= TAP_RESULT_NORM) return UINT32_MAX;
    uint32_t layers = d->theirs->taps[at].layer < 0 ? 1 : (uint32_t)d->theirs->taps[at].layer + 1;
    return layers < n_layer ? layers : UINT32_MAX;
}

/* By how much o explains more than base does, over the taps of both. */
static double closer(const struct diagnosis *d, const struct outcome *base, const struct outcome *o, double *most) {
    double sum = 0;
    *most = 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (isnan(o->error[i]) || isnan(base->error[i])) continue;
        double by = outcome_log(base->error[i]) - outcome_log(o->error[i]);
        sum += by;
        *most = fmax(*most, by);
    }
    return sum;
}

/* The same; 0 where it is not enough to speak of. */
static double gain(const struct diagnosis *d, const struct outcome *base, const struct outcome *o) {
    double most, sum = closer(d, base, o, &most);
    return most >= log10(FACTOR) && sum >= GAIN ? sum : 0;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static bool is_ranked(const struct diagnosis *d, const struct quirk *const *quirks, uint32_t n) {
    for (size_t i = 0; i < d->n_ranked; i++) {
        uint32_t n_same = 0;
        for (uint32_t j = 0; j < n; j++) {
            for (uint32_t k = 0; k < d->ranked[i].n_quirk; k++) n_same += d->ranked[i].quirks[k] == quirks[j];
        }
        if (n_same == n && d->ranked[i].n_quirk == n) return true;
    }
    return false;
}

/* Takes o over, in its place. */
static plumb_status rank(struct diagnosis *d, struct outcome *o) {
    if (d->n_ranked == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 64;
        struct outcome *ranked = realloc(d->ranked, cap * sizeof *ranked);
        if (!ranked) {
            outcome_free(o);
            return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: %zu explanations", cap);
        }
        d->ranked = ranked;
        d->cap = cap;
    }
    size_t at = d->n_ranked;
    while (at > 0 && total(&d->ranked[at - 1]) > total(o) + 1e-9) at--;
    memmove(&d->ranked[at + 1], &d->ranked[at], (d->n_ranked - at) * sizeof *d->ranked);
    d->ranked[at] = *o;
    d->n_ranked++;
    return PLUMB_OK;
}

/* The first tap that a quirk changes is one of the results: only a whole pass shows it. */
static bool is_late(const struct quirk *q) { return strncmp(q->tap, "result", 6) == 0; }

/* A quirk on top of a base: what it gains on the first layers, and whether it changes what parts first. */
struct candidate {
    const struct quirk *quirk;
    double gain, closer;
    bool matters;
};

static int by_closeness(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->gain != y->gain) return x->gain < y->gain ? 1 : -1;
    if (x->closer != y->closer) return x->closer < y->closer ? 1 : -1;
    return x->quirk < y->quirk ? -1 : 1;
}

/* Runs base with n_more quirks on all layers and ranks that if it gains. */
static plumb_status promote(struct diagnosis *d, const struct outcome *base, const struct quirk *const *more,
                            uint32_t n_more) {
    const struct quirk *quirks[EXPERIMENT_QUIRKS];
    memcpy(quirks, base->quirks, sizeof quirks);
    memcpy(quirks + base->n_quirk, more, n_more * sizeof *more);
    if (is_ranked(d, quirks, base->n_quirk + n_more)) return PLUMB_OK;
    struct outcome o;
    PLUMB_TRY(run(d, quirks, base->n_quirk + n_more, UINT32_MAX, &o));
    if (gain(d, base, &o) > 0) return rank(d, &o);
    outcome_free(&o);
    return PLUMB_OK;
}

/* Runs every quirk that is free on top of base, on the first layers.  candidates: (number of quirks). */
static plumb_status try_all(struct diagnosis *d, const struct outcome *base, struct candidate *candidates, size_t *n) {
    const struct quirk *quirks[EXPERIMENT_QUIRKS];
    memcpy(quirks, base->quirks, sizeof quirks);
    struct quirks set = { 0 };
    for (uint32_t i = 0; i < base->n_quirk; i++) quirk_set(&set, quirks[i]);
    uint32_t near = horizon(d, base);
    size_t parted = first_over(d, base, d->tolerance);
    if (parted == SIZE_MAX) parted = first_over(d, base, ROUNDING);
    const struct quirk **q = &quirks[base->n_quirk];
    *n = 0;
    for (size_t i = 0; (*q = quirk_at(i)) != NULL; i++) {
        if (!quirk_is_free(&set, *q) || !quirk_applies(*q, d->model, d->bos)) continue;
        struct outcome o;
        PLUMB_TRY(run(d, quirks, base->n_quirk + 1, is_late(*q) ? UINT32_MAX : near, &o));
        double most, before = base->error[parted], after = o.error[parted];
        candidates[*n] = (struct candidate){ .quirk = *q, .gain = gain(d, base, &o),
                                             .matters = fabs(before - after) > 1e-6 * before };
        candidates[(*n)++].closer = closer(d, base, &o, &most);
        outcome_free(&o);
    }
    qsort(candidates, *n, sizeof *candidates, by_closeness);
    return PLUMB_OK;
}

/* Two mistakes in one step can hide each other: neither alone brings the numbers closer.  Tries the pairs of those that
 * change what parts first. */
static plumb_status try_pairs(struct diagnosis *d, const struct outcome *base, const struct candidate *candidates,
                              size_t n) {
    const struct quirk *quirks[EXPERIMENT_QUIRKS], *best[2] = { NULL, NULL };
    memcpy(quirks, base->quirks, sizeof quirks);
    struct quirks set = { 0 };
    uint32_t near = horizon(d, base);
    double best_gain = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i && candidates[i].matters; j++) {
            quirks[base->n_quirk] = candidates[j].quirk;
            quirks[base->n_quirk + 1] = candidates[i].quirk;
            set = (struct quirks){ 0 };
            quirk_set(&set, candidates[j].quirk);
            if (!candidates[j].matters || !quirk_is_free(&set, candidates[i].quirk)) continue;
            struct outcome o;
            PLUMB_TRY(run(d, quirks, base->n_quirk + 2, near, &o));
            double by = gain(d, base, &o);
            outcome_free(&o);
            if (by <= best_gain) continue;
            best_gain = by;
            memcpy(best, quirks + base->n_quirk, sizeof best);
        }
    }
    return best_gain > 0 ? promote(d, base, best, 2) : PLUMB_OK;
}

/* Ranks the best sets of base and one quirk more; of base and two more where no single one helps. */
static plumb_status extend(struct diagnosis *d, const struct outcome *base) {
    size_t n = 0;
    while (quirk_at(n)) n++;
    struct candidate *candidates = alloc_array(n, sizeof *candidates);
    if (!candidates) return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: %zu candidates", n);
    plumb_status status = try_all(d, base, candidates, &n);
    size_t n_promoted = horizon(d, base) == UINT32_MAX ? n : PROMOTED;   /* that was the whole pass already */
    for (size_t i = 0; i < n && i < n_promoted && candidates[i].gain > 0 && status == PLUMB_OK; i++) {
        status = promote(d, base, &candidates[i].quirk, 1);
    }
    if (status == PLUMB_OK && n > 0 && candidates[0].gain <= 0 && base->n_quirk + 2 <= d->max_quirk) {
        status = try_pairs(d, base, candidates, n < PAIRED ? n : PAIRED);
    }
    free(candidates);
    return status;
}

static plumb_status search(struct diagnosis *d) {
    size_t n_quirk = 0;
    while (quirk_at(n_quirk)) n_quirk++;
    d->n_due = 2.0 * (double)n_quirk + 4.0 * (double)PROMOTED * d->model->config.n_layer;
    PLUMB_TRY(run(d, NULL, 0, UINT32_MAX, &d->truth));
    if (largest_error(d, &d->truth) <= ROUNDING) return PLUMB_OK;
    PLUMB_TRY(extend(d, &d->truth));
    /* Whole activations make steps independent of each other: the best set is right as far as it goes. */
    size_t n_beam = d->experiment->forced ? 1 : BEAM;
    for (uint32_t n = 1; n < d->max_quirk; n++) {
        struct outcome beam[BEAM];   /* shallow: those in ranked move, but none goes */
        size_t n_taken = 0;
        for (size_t i = 0; i < d->n_ranked && n_taken < n_beam; i++) {
            if (d->ranked[i].n_quirk == n) beam[n_taken++] = d->ranked[i];
        }
        if (d->n_ranked == 0 || largest_error(d, &d->ranked[0]) <= ROUNDING) break;
        for (size_t i = 0; i < n_taken; i++) {
            if (largest_error(d, &beam[i]) > ROUNDING) PLUMB_TRY(extend(d, &beam[i]));
        }
    }
    return PLUMB_OK;
}

/* ---- what is said about a set ------------------------------------------------------------------------------------ */

/* What explained their numbers before quirk k of the set was added: the truth, or a ranked set of those before it. */
static const struct outcome *before(const struct diagnosis *d, const struct outcome *o, uint32_t k) {
    for (size_t i = 0; k > 0 && i < d->n_ranked; i++) {
        const struct outcome *other = &d->ranked[i];
        if (other->n_quirk == k && memcmp(other->quirks, o->quirks, k * sizeof *o->quirks) == 0) return other;
    }
    return &d->truth;
}

/* The first tap that parted before and that o brings closer; SIZE_MAX if there is none. */
static size_t evidence(const struct diagnosis *d, const struct outcome *base, const struct outcome *o) {
    double limit = first_over(d, base, d->tolerance) != SIZE_MAX ? d->tolerance : ROUNDING;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (base->error[i] > limit && o->error[i] * FACTOR < base->error[i]) return i;
    }
    return SIZE_MAX;
}

static bool explains(const struct diagnosis *d, const struct outcome *o) {
    return first_over(d, o, d->tolerance) == SIZE_MAX;
}

/* Sets of one size with the same score give the same numbers, as far as the dump shows them. */
static bool is_tied(const struct diagnosis *d, size_t i) {
    const struct outcome *first = &d->ranked[0], *o = &d->ranked[i];
    return i > 0 && o->n_quirk == first->n_quirk && fabs(o->score - first->score) < 1e-6;
}

static size_t n_compared(const struct diagnosis *d) {
    size_t n = 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) n += isnan(d->truth.error[i]) ? 0 : 1;
    return n;
}

static const char *tap_name(struct tap_text *buf, const struct diagnosis *d, size_t i) {
    return tap_show(buf, d->theirs->taps[i].id, d->theirs->taps[i].layer);
}

/* "rope.pairing=halves + ffn.act=gelu" */
static void print_set(struct report_writer *w, const struct outcome *o) {
    for (uint32_t k = 0; k < o->n_quirk; k++) report_printf(w, "%s%s", k > 0 ? " + " : "", o->quirks[k]->name);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* "0.61" or "0.99999": as many digits as tell it from 1. */
static void print_cosine(struct report_writer *w, double cosine) {
    if (isnan(cosine)) report_printf(w, "no cosine");
    else report_printf(w, fabs(1 - cosine) < 0.005 ? "cosine %.7f" : "cosine %.3f", cosine);
}

static void print_explanation(struct report_writer *w, const struct diagnosis *d, size_t at) {
    const struct outcome *o = &d->ranked[at];
    struct tap_text name;
    report_printf(w, "\n%zu. ", at + 1);
    print_set(w, o);
    size_t over = first_over(d, o, d->tolerance);
    if (over == SIZE_MAX) {
        report_printf(w, "\n   explains all %zu taps; largest relative error %.2g\n", n_compared(d),
                      largest_error(d, o));
    } else {
        report_printf(w, "\n   parts again at %s: relative error %.2g\n", tap_name(&name, d, over), o->error[over]);
    }
    for (uint32_t k = 0; k < o->n_quirk; k++) {
        const struct outcome *base = before(d, o, k);
        size_t i = evidence(d, base, o);
        report_printf(w, "   %s: %s\n", o->quirks[k]->name, o->quirks[k]->text);
        if (i == SIZE_MAX) continue;
        report_printf(w, "   their %s (%s): ", tap_name(&name, d, i), tap_spec(d->theirs->taps[i].id)->title);
        print_cosine(w, base->cosine[i]);
        report_printf(w, ", error %.2g to %s; ", base->error[i], k == 0 ? "the truth" : "the others alone");
        print_cosine(w, o->cosine[i]);
        report_printf(w, ", error %.2g with it\n", o->error[i]);
    }
}

/* The taps that one is computed from, and whether they agree. */
static void print_feeders(struct report_writer *w, const struct diagnosis *d, const struct outcome *o, size_t at) {
    const struct trace_tap *tap = &d->theirs->taps[at];
    const struct tap_spec *spec = tap_spec(tap->id);
    struct tap_text name;
    report_printf(w, "   it is computed from %s", *spec->fed_by ? spec->fed_by : "the token ids");
    if (*spec->weights) report_printf(w, " with the weights %s", spec->weights);
    report_printf(w, "\n");
    bool missing = false;
    for (size_t i = at; i-- > 0;) {   /* the last that agrees */
        if (isnan(o->error[i]) || o->error[i] > d->tolerance) continue;
        report_printf(w, "   the last step before it that agrees is %s\n", tap_name(&name, d, i));
        missing = tap_order(d->theirs->taps[i].id, d->theirs->taps[i].layer) + 1 < tap_order(tap->id, tap->layer);
        break;
    }
    report_printf(w, "   to narrow it down:\n");
    if (!d->experiment->forced || missing) {
        report_printf(w, "   - dump more steps of that layer, whole: with whole activations every step is judged from "
                      "its own input\n");
    }
    if (*spec->weights) {
        report_printf(w, "   - hold the weights against this file: write yours as a GGUF or dump a row; plumb weights "
                      "compares two files\n   - run an F32 or F16 file of the model: if the error goes, the "
                      "dequantizer makes it\n");
    }
    report_printf(w, "   - feed one token: at position 0 RoPE turns nothing and attention returns V; what still parts "
                  "there is neither\n   - feed the prompt at once, then token by token: what parts only in one way is "
                  "the cache or the positions\n");
}

static void print_text(struct report_writer *w, const struct diagnosis *d, bool agree) {
    const struct plumb_trace *t = d->theirs;
    struct tap_text name;
    report_printf(w, "theirs: ");
    const char *source = d->report->name_a ? d->report->name_a : t->source ? t->source : "a dump";
    report_text(w, source, strlen(source));
    report_printf(w, ", %u tokens (prompt of %u), %zu taps compared, %s\n", t->n_token, t->n_prompt, n_compared(d),
                  d->experiment->forced ? "whole: every step is judged from their own input"
                                        : "in part: errors add up along the pass");
    double limit = agree || first_over(d, &d->truth, d->tolerance) != SIZE_MAX ? d->tolerance : ROUNDING;
    size_t at = first_over(d, &d->truth, limit);
    if (agree) {
        report_printf(w, "verdict: agrees with the truth; largest relative error %.2g, tolerance %.2g\n",
                      largest_error(d, &d->truth), d->tolerance);
        return;
    }
    report_printf(w, "the first tap that parts from the truth: %s (%s): relative error %.2g, ", tap_name(&name, d, at),
                  tap_spec(t->taps[at].id)->title, d->truth.error[at]);
    print_cosine(w, d->truth.cosine[at]);
    report_printf(w, "\n");
    size_t n_shown = d->n_ranked < SHOWN ? d->n_ranked : SHOWN;
    while (n_shown < d->n_ranked && is_tied(d, n_shown)) n_shown++;
    for (size_t i = 0; i < n_shown; i++) print_explanation(w, d, i);

    const struct outcome *best = d->n_ranked > 0 ? &d->ranked[0] : &d->truth;
    report_printf(w, "\nverdict: ");
    if (d->n_ranked > 0 && explains(d, best)) {
        print_set(w, best);
        report_printf(w, " gives their numbers\n");
        for (size_t i = 1; i < d->n_ranked && is_tied(d, i); i++) {
            report_printf(w, "   so does ");
            print_set(w, &d->ranked[i]);
            report_printf(w, ": this dump cannot tell them apart\n");
        }
        return;
    }
    at = first_over(d, best, d->tolerance);
    if (at == SIZE_MAX) at = first_over(d, best, ROUNDING);
    report_printf(w, "no set of up to %u known mistakes gives their numbers", d->max_quirk);
    if (d->n_ranked > 0) {
        report_printf(w, "; ");
        print_set(w, best);
        report_printf(w, " comes nearest");
    }
    report_printf(w, "\n   the first wrong step%s is %s (%s)\n", d->n_ranked > 0 ? " then" : "",
                  tap_name(&name, d, at), tap_spec(t->taps[at].id)->title);
    print_feeders(w, d, best, at);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_fit(struct report_writer *w, const char *key, const struct outcome *o, size_t i) {
    report_printf(w, "\"%s\": {\"error\": ", key);
    report_json_number(w, o->error[i]);
    report_printf(w, ", \"cosine\": ");
    report_json_number(w, o->cosine[i]);
    report_printf(w, "}");
}

static void json_explanation(struct report_writer *w, const struct diagnosis *d, size_t at) {
    const struct outcome *o = &d->ranked[at];
    struct tap_text name;
    report_printf(w, "%s\n    {\"quirks\": [", at > 0 ? "," : "");
    for (uint32_t k = 0; k < o->n_quirk; k++) report_printf(w, "%s\"%s\"", k > 0 ? ", " : "", o->quirks[k]->name);
    report_printf(w, "], \"score\": ");
    report_json_number(w, d->truth.score - total(o));
    report_printf(w, ", \"explains\": %s, \"tied_with_first\": %s, \"largest_error\": ",
                  explains(d, o) ? "true" : "false", is_tied(d, at) ? "true" : "false");
    report_json_number(w, largest_error(d, o));
    report_printf(w, ", \"evidence\": [");
    for (uint32_t k = 0; k < o->n_quirk; k++) {
        const struct outcome *base = before(d, o, k);
        size_t i = evidence(d, base, o);
        report_printf(w, "%s{\"quirk\": \"%s\", \"text\": ", k > 0 ? ", " : "", o->quirks[k]->name);
        report_json_string(w, o->quirks[k]->text, strlen(o->quirks[k]->text));
        if (i != SIZE_MAX) {
            report_printf(w, ", \"tap\": \"%s\", ", tap_name(&name, d, i));
            json_fit(w, "before", base, i);
            report_printf(w, ", ");
            json_fit(w, "after", o, i);
        }
        report_printf(w, "}");
    }
    report_printf(w, "]}");
}

static void print_json(struct report_writer *w, const struct diagnosis *d, bool agree) {
    struct tap_text name;
    report_printf(w, "{\n  \"agree\": %s, \"forced\": %s, \"tokens\": %u, \"n_prompt\": %u, \"taps\": %zu, "
                  "\"tolerance\": %.9g,\n  \"truth\": {\"largest_error\": ", agree ? "true" : "false",
                  d->experiment->forced ? "true" : "false", d->theirs->n_token, d->theirs->n_prompt, n_compared(d),
                  d->tolerance);
    report_json_number(w, largest_error(d, &d->truth));
    size_t at = first_over(d, &d->truth, d->tolerance);
    if (at == SIZE_MAX && !agree) at = first_over(d, &d->truth, ROUNDING);
    if (at != SIZE_MAX) {
        report_printf(w, ", \"first_parted\": \"%s\", ", tap_name(&name, d, at));
        json_fit(w, "fit", &d->truth, at);
    }
    report_printf(w, "},\n  \"ranking\": [");
    for (size_t i = 0; i < d->n_ranked && (i < 4 * SHOWN || is_tied(d, i)); i++) json_explanation(w, d, i);
    report_printf(w, "]\n}\n");
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

plumb_status trace_diagnose(const struct model *m, int32_t bos, const struct plumb_trace *theirs, uint32_t max_quirk,
                            const plumb_report *report, struct error *err, bool *agree) {
    *agree = false;
    if (max_quirk > EXPERIMENT_QUIRKS) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "sets of up to %u mistakes: at most %d", max_quirk,
                         EXPERIMENT_QUIRKS);
    }
    if (report->format != PLUMB_FORMAT_TEXT && report->format != PLUMB_FORMAT_JSON) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "a diagnosis is written as text or JSON");
    }
    struct diagnosis d = { .model = m, .theirs = theirs, .report = report, .err = err, .bos = bos,
                           .tolerance = report->tolerance > 0 ? report->tolerance : 0.01,
                           .max_quirk = max_quirk > 0 ? max_quirk : EXPERIMENT_QUIRKS };
    plumb_status status = experiment_create(&d.experiment, m, theirs, err);
    if (status == PLUMB_OK) status = search(&d);
    if (status == PLUMB_OK && n_compared(&d) == 0) {
        status = error_set(err, PLUMB_ERROR_ARGUMENT, "none of the dump's activations could be compared: no shape fits "
                           "this model");
    }
    if (status == PLUMB_OK) {
        *agree = explains(&d, &d.truth) && d.n_ranked == 0;
        struct report_writer w;
        report_begin(&w, report->write, report->user);
        if (report->format == PLUMB_FORMAT_JSON) print_json(&w, &d, *agree);
        else print_text(&w, &d, *agree);
        report_flush(&w);
    }
    for (size_t i = 0; i < d.n_ranked; i++) outcome_free(&d.ranked[i]);
    free(d.ranked);
    outcome_free(&d.truth);
    experiment_free(d.experiment);
    return status;
}

/* Decides which errors of an outcome need an explanation, and which are noise.
 *
 * Many engines, llama.cpp among them, round activations to 8 bits before every product; their normal error is about
 * 1e-2 (docs/layers.md).  If a dump shows such an error in its first products already, a multiple of it is allowed for
 * every noisy tap.  Noisy taps are the products and what is computed from them, up to the next activation that theirs
 * has whole: from there on, the pass computes with theirs.  For all other taps the tolerance is the limit.
 */
#include "diagnose/diagnose.h"

#include <math.h>
#include <stdlib.h>

/* Errors up to this are the rounding of f32: an outcome with no larger error is exact.  The second is used where errors
 * add up along the pass. */
#define ROUNDING 1e-6
#define ROUNDING_ADDED_UP 1e-5
/* The same for a row of a dump in which errors add up. */
#define EXACT_ROW 1e-5
/* Rows of two outcomes differ if their errors do by the factor DIFFERENT; smaller errors count as ROUNDING_ROW. */
#define DIFFERENT 2.0
#define ROUNDING_ROW 3e-7
/* A set is closer than another below the noise if it is in most of the rows that it changes.
 * CHANGED, MUCH_CLOSER: the decimal logarithm of the error changes by it.
 * SIGMAS: the lead, in standard deviations of that of a fair coin.
 * LEAD: the lead as a part of the rows, where they are not independent.
 * LEAST_ROWS: fewer rows say nothing. */
#define CHANGED 1e-3
#define MUCH_CLOSER 0.1
#define SIGMAS 5.0
#define LEAD 0.6
#define LEAST_ROWS 10
/* NOISE_MAX: a median error of the first layer above this is not noise.
 * NOISE_FACTOR, NOISE_FACTOR_ADDED_UP: the error allowed for noisy taps, as a multiple of that median.  The second is
 *     used where errors add up along the pass.
 * NOISE_LIMIT, NOISE_LIMIT_SPOILT: the most that is allowed.  The second is used for outcomes with known mistakes.
 *
 * SmolLM2 with activations rounded to 8 bits has a median error of 0.007 in layer 0, and an error of at most 0.047, if
 * each product is judged by itself (docs/diagnose.md).  If errors add up, it has 0.01 and 0.09 (docs/layers.md).  A
 * text that a mistake has spoilt is more sensitive: the first 8 values of l_out have 0.017 and 0.27. */
#define NOISE_MAX 0.03
/* Where the truth is rounded as theirs is, and errors add up, the noise is 0 at first and returns layer by layer: a
 * difference in the last bit changes a code, and that changes others.  n layers after the first that theirs has, the
 * error allowed is NOISE_FIRST + n times the noise, up to NOISE_FACTOR_ADDED_UP. */
#define NOISE_FIRST 3.0
/* With a median error above this, codes differ from the first layer on, and so do those of later layers. */
#define SAME_CODES 1e-5
#define NOISE_FACTOR 10.0
#define NOISE_FACTOR_ADDED_UP 20.0
#define NOISE_LIMIT 0.15
#define NOISE_LIMIT_SPOILT 0.3
/* Where errors add up, noise makes the error of no tap larger than that of the median of its layer by this factor: 3.3
 * times is the most in SmolLM2 with activations in 8 bits, of which a dump has 8 values of each tap. */
#define NOISE_STANDS_OUT 6.0
/* An engine that rounds like the pass, but not in the same bits, differs from it by about what the rounding itself
 * changes.  A sum in which most cancels out makes that large in a single tap: in kqv_out-17 of Gemma 3 270M the
 * rounding of llama.cpp changes 0.27, and a right run of llama.cpp is 0.36 away.  Of six values of a row there may be
 * 2.8 times as much by chance (attn_norm-1 of Qwen 2.5 0.5B).  NOISE_LIMIT_OF_ROUNDING: the most that is allowed for
 * this reason. */
#define NOISE_OF_ROUNDING 3.0
#define NOISE_LIMIT_OF_ROUNDING 0.5
/* With a mistake, noise is explained if it is at most so many times that of any tap before. */
#define NOISE_GROWTH 4.0

/* The flags in diagnosis.kinds.  INPUTS_KNOWN: theirs has all inputs of the tap whole.  NOISY: the tap is noisy. */
enum { INPUTS_KNOWN = 1, NOISY = 2 };
static const id_set products = TAP_SET(QCUR) | TAP_SET(KCUR) | TAP_SET(VCUR) | TAP_SET(ATTN_OUT) | TAP_SET(FFN_GATE)
                               | TAP_SET(FFN_UP) | TAP_SET(FFN_ROUTER) | TAP_SET(ATTN_GATE) | TAP_SET(EXPERT_GATE)
                               | TAP_SET(EXPERT_UP) | TAP_SET(EXPERT_DOWN) | TAP_SET(FFN_SHARED_GATE)
                               | TAP_SET(FFN_SHARED) | TAP_SET(FFN_OUT) | TAP_SET(RESULT_OUTPUT);

plumb_status diagnose_prepare(struct diagnosis *d) {
    const struct plumb_trace *theirs = d->theirs;
    d->kinds = calloc(theirs->n_tap + 1, sizeof *d->kinds);
    if (!d->kinds) return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: %zu taps", theirs->n_tap);
    const struct trace_tap *embd = trace_find_tap(theirs, TAP_EMBD, -1);
    if (embd) d->kinds[embd - theirs->taps] = INPUTS_KNOWN;
    /* About the input of the layer: does theirs have it whole, and is it noisy? */
    bool is_whole_in = embd && experiment_is_whole(d->experiment, embd), is_noisy_in = false;
    int32_t n_layer = (int32_t)d->model->plan.n_layer;
    enum tap_id ids[TAP_COUNT];
    tap_sequence(theirs->order, ids);
    for (int32_t layer = 0; layer <= n_layer; layer++) {
        id_set whole = 0, noisy = 0;   /* sets of taps of this layer: whole in theirs; noisy and not whole */
        for (uint32_t i = 0; i < TAP_COUNT; i++) {
            enum tap_id id = ids[i];
            if (id == TAP_EMBD || tap_spec(id)->in_layer != (layer < n_layer)) continue;
            id_set feeds = model_tap_inputs(d->model, id, layer < n_layer ? layer : -1), same = tap_same_layer(feeds);
            bool takes_input = feeds != same;
            bool is_alone = !(same & ~whole) && (!takes_input || is_whole_in);
            bool is_noisy = (products >> id & 1) || (same & noisy) || (takes_input && is_noisy_in);
            const struct trace_tap *tap = trace_find_tap(theirs, id, layer < n_layer ? layer : -1);
            if (tap) d->kinds[tap - theirs->taps] = (uint8_t)((is_alone ? INPUTS_KNOWN : 0) | (is_noisy ? NOISY : 0));
            if (tap && experiment_is_whole(d->experiment, tap)) whole |= ID_SET(id);
            else if (is_noisy) noisy |= ID_SET(id);
        }
        is_whole_in = whole & TAP_SET(L_OUT);
        is_noisy_in = noisy & TAP_SET(L_OUT);
    }
    return PLUMB_OK;
}

bool diagnose_inputs_known(const struct diagnosis *d, size_t i) { return d->kinds[i] & INPUTS_KNOWN; }

bool diagnose_is_noisy(const struct diagnosis *d, size_t i) { return d->kinds[i] & NOISY; }

static double rounding(const struct diagnosis *d) { return d->experiment->forced ? ROUNDING : ROUNDING_ADDED_UP; }

double diagnose_median(double *values, size_t n) {
    if (n > 0) qsort(values, n, sizeof *values, compare_f64);
    return n > 0 ? values[n / 2] : 0;
}

/* Returns the median of the values of a layer's noisy taps; 0: it has none.  values: one for each tap, NAN: none */
static double median_of_layer(const struct diagnosis *d, const double *values, int32_t layer) {
    double noisy[TAP_COUNT];
    size_t n = 0;
    for (size_t i = 0; i < d->theirs->n_tap && n < TAP_COUNT; i++) {
        bool counts = d->theirs->taps[i].layer == layer && (d->kinds[i] & NOISY) && !isnan(values[i]);
        if (counts) noisy[n++] = values[i];
    }
    double upper = diagnose_median(noisy, n);
    return n > 0 ? (noisy[(n - 1) / 2] + upper) / 2 : 0;
}

double diagnose_typical(const struct diagnosis *d, const struct outcome *o, int32_t layer) {
    return median_of_layer(d, o->error, layer);
}

/* Returns true if a quarter of the noisy rows of a layer are exact.  Then the errors of the others are no noise, which
 * would be in all rows. */
static bool has_exact_rows(const struct diagnosis *d, const struct outcome *o, int32_t layer) {
    size_t n = 0, n_exact = 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (d->theirs->taps[i].layer != layer || !(d->kinds[i] & NOISY)) continue;
        for (size_t k = d->experiment->first_row[i]; k < d->experiment->first_row[i + 1]; k++) {
            if (isnan(o->row_error[k])) continue;
            n++;
            n_exact += o->row_error[k] <= EXACT_ROW;
        }
    }
    return 4 * n_exact >= n && n_exact > 0;
}

/* Returns the noise of the recognized rounding.  In rows that it made clearly closer there may be little of it: where
 * a large bias was added, as to Q and K of Qwen 2.5.  What the rounding changes in the first layer is the other
 * measure. */
static double recognized_noise(const struct diagnosis *d) {
    return fmin(fmax(d->noise.of_products.before, d->noise.effect_first), NOISE_MAX);
}

double diagnose_noise(const struct diagnosis *d, const struct outcome *o) {
    if (d->report->tolerance > 0) return 0;
    /* Where errors add up, a difference in the last bit changes the codes of later layers, and with them the noise. */
    if (d->noise.products && !d->experiment->forced) return recognized_noise(d);
    if (!d->noise.products && !d->assumes_noise) return 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (!(d->kinds[i] & NOISY) || isnan(o->error[i])) continue;
        int32_t layer = d->theirs->taps[i].layer;
        double noise = diagnose_typical(d, o, layer);
        return noise > ROUNDING && noise <= NOISE_MAX && !has_exact_rows(d, o, layer) ? noise : 0;
    }
    return 0;
}

static bool is_spoilt(const struct outcome *o) { return o->n_known > 0 || o->has_mistake; }

double diagnose_allowed(const struct diagnosis *d, const struct outcome *o) {
    double noise = diagnose_noise(d, o) * (d->experiment->forced ? NOISE_FACTOR : NOISE_FACTOR_ADDED_UP);
    return fmax(d->tolerance, fmin(noise, is_spoilt(o) ? NOISE_LIMIT_SPOILT : NOISE_LIMIT));
}

/* Returns the error with which tap i is judged.  Where errors add up, noise varies within a layer, because the error of
 * a tap may come from very few values: a noisy tap counts with the median of its layer if that is smaller.  But a tap
 * that stands out further than noise can make it counts with its own error. */
static double judged(const struct diagnosis *d, const struct outcome *o, size_t i, double allowed) {
    /* is_single: only the tap's own error counts, because it is that of one step or because it has no noise. */
    bool is_single = diagnose_inputs_known(d, i) || !(d->kinds[i] & NOISY) || allowed <= d->tolerance;
    double typical = is_single ? 0 : diagnose_typical(d, o, d->theirs->taps[i].layer);
    return is_single || o->error[i] > NOISE_STANDS_OUT * typical ? o->error[i] : fmin(o->error[i], typical);
}

/* Returns the first layer of which theirs has something noisy. */
static int32_t first_noisy_layer(const struct diagnosis *d) {
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (d->kinds[i] & NOISY && d->theirs->taps[i].layer >= 0) return d->theirs->taps[i].layer;
    }
    return 0;
}

void diagnose_set_effect(struct diagnosis *d, double *effect) {
    d->effect = effect;
    d->noise.effect_first = median_of_layer(d, effect, first_noisy_layer(d));
}

/* Returns the error up to which tap i agrees. */
static double limit_of(const struct diagnosis *d, size_t i, double allowed) {
    int32_t layer = d->theirs->taps[i].layer;
    double least = d->effect ? fmin(NOISE_OF_ROUNDING * d->effect[i], NOISE_LIMIT_OF_ROUNDING) : 0;
    bool is_same = d->noise.products && d->noise.of_products.after <= SAME_CODES;
    if (!(d->kinds[i] & NOISY)) return d->tolerance;
    if (!is_same || d->experiment->forced || layer < 0) return fmax(allowed, least);
    double factor = NOISE_FIRST + layer - first_noisy_layer(d);
    double grown = fmax(d->tolerance, factor * recognized_noise(d));
    return fmax(fmin(allowed, grown), least);
}

static bool is_over(const struct diagnosis *d, const struct outcome *o, size_t i, double allowed) {
    double limit = limit_of(d, i, allowed);
    if (!(o->error[i] > limit && judged(d, o, i, allowed) > limit)) return false;
    bool can_grow = is_spoilt(o) && allowed > d->tolerance && (d->kinds[i] & NOISY) && !d->experiment->forced;
    double before = 0;
    for (size_t k = 0; k < i && can_grow; k++) {
        if ((d->kinds[k] & NOISY) && o->error[k] > before) before = o->error[k];
    }
    return o->error[i] > fmin(NOISE_GROWTH * before, NOISE_LIMIT_SPOILT);
}

static size_t first_over(const struct diagnosis *d, const struct outcome *o) {
    double allowed = diagnose_allowed(d, o);
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (is_over(d, o, i, allowed)) return i;
    }
    return SIZE_MAX;
}

bool diagnose_explains(const struct diagnosis *d, const struct outcome *o) { return first_over(d, o) == SIZE_MAX; }

bool diagnose_is_over(const struct diagnosis *d, const struct outcome *o, size_t i) {
    return is_over(d, o, i, diagnose_allowed(d, o));
}

size_t diagnose_first(const struct diagnosis *d, const struct outcome *o) {
    size_t first = first_over(d, o);
    for (size_t i = 0; first == SIZE_MAX && i < d->theirs->n_tap; i++) {
        if (o->error[i] > rounding(d)) first = i;
    }
    return first;
}

size_t diagnose_evidence(const struct diagnosis *d, const struct outcome *base, const struct outcome *o) {
    bool all = diagnose_explains(d, base);
    double allowed = diagnose_allowed(d, base);
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        bool is_open = all ? base->error[i] > rounding(d) : is_over(d, base, i, allowed);
        if (is_open && o->error[i] * DIAGNOSE_FACTOR < base->error[i]) return i;
    }
    return SIZE_MAX;
}

bool diagnose_is_closer(const struct diagnosis *d, const struct outcome *base, const struct outcome *o) {
    size_t n_row = d->experiment->first_row[d->theirs->n_tap], n_closer = 0, n_further = 0, n_much = 0;
    for (size_t i = 0; i < n_row; i++) {
        if (isnan(base->row_error[i]) || isnan(o->row_error[i])) continue;
        double by = compare_log(base->row_error[i]) - compare_log(o->row_error[i]);
        n_closer += by > CHANGED;
        n_further += by < -CHANGED;
        n_much += by > MUCH_CLOSER;
    }
    double n = (double)(n_closer + n_further), lead = (double)n_closer - (double)n_further;
    if (d->experiment->forced) return lead > SIGMAS * sqrt(n) && n_closer >= LEAST_ROWS;
    return n_closer >= LEAST_ROWS && lead >= LEAD * n && 2 * n_much > n_closer + n_further;
}

bool diagnose_is_lucky(const struct diagnosis *d, const struct outcome *base, const struct outcome *o) {
    if (!d->noise.products || d->experiment->forced) return false;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        size_t n_closer = 0, n_further = 0, n = 0;
        bool is_noise = true;   /* the rows that become closer were no further than noise makes them */
        for (size_t k = d->experiment->first_row[i]; k < d->experiment->first_row[i + 1]; k++) {
            if (isnan(base->row_error[k]) || isnan(o->row_error[k])) continue;
            double before = fmax(base->row_error[k], ROUNDING_ROW), after = fmax(o->row_error[k], ROUNDING_ROW);
            bool is_closer = after * DIFFERENT < before;
            n++;
            n_closer += is_closer;
            n_further += before * DIFFERENT < after;
            is_noise &= !is_closer || before <= d->noise.of_products.before;
        }
        /* Behind all layers, one code that differs changes the rows of all later tokens. */
        bool is_late = d->theirs->taps[i].id >= TAP_RESULT_NORM;
        bool is_few = n_closer <= n_further || 4 * n_closer < n;
        if (n_closer + n_further > 0) return is_noise && (is_few || is_late);
    }
    return false;
}

bool diagnose_is_exact(const struct diagnosis *d, const struct outcome *o) {
    return diagnose_largest(d, o) <= rounding(d);
}

double diagnose_largest(const struct diagnosis *d, const struct outcome *o) {
    double largest = 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (o->error[i] > largest) largest = o->error[i];
    }
    return largest;
}

double diagnose_left(const struct diagnosis *d, const struct outcome *o, const struct outcome *or_else) {
    double left = 0, allowed = diagnose_allowed(d, o);
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (isnan(o->error[i])) continue;
        left = fmax(left, fmin(judged(d, o, i, allowed), judged(d, or_else, i, allowed)));
    }
    return left;
}

size_t diagnose_n_compared(const struct diagnosis *d) {
    size_t n = 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) n += isnan(d->truth.error[i]) ? 0 : 1;
    return n;
}

bool diagnose_diverges(const struct diagnosis *d, const struct outcome *o, int32_t layer) {
    double allowed = diagnose_allowed(d, o);
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (d->theirs->taps[i].layer == layer && is_over(d, o, i, allowed)) return true;
    }
    return false;
}

double diagnose_typical_step(const struct diagnosis *d, const struct outcome *o, bool noisy) {
    double *errors = alloc_array(d->theirs->n_tap, sizeof *errors), allowed = diagnose_allowed(d, o);
    size_t n = 0;
    if (!errors) return NAN;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        bool counts = diagnose_inputs_known(d, i) && diagnose_is_noisy(d, i) == noisy && !isnan(o->error[i]);
        if (counts && !is_over(d, o, i, allowed)) errors[n++] = o->error[i];
    }
    double median = diagnose_median(errors, n);
    free(errors);
    return median;
}

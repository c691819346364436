/* Which errors of an outcome are to be explained, and which are noise.
 *
 * Many engines round activations to 8 bits before every product, llama.cpp among them: 1e-2 or so is their normal error
 * (docs/layers.md).  Where a dump shows such an error in the first products already, that much more is allowed, to
 * whatever it can have reached: products, and what is computed from them, up to the next activation of theirs that is
 * known whole.  All else is held to the tolerance.
 */
#include "diagnose/diagnose.h"

#include <math.h>
#include <stdlib.h>

/* Nothing is left to explain below this error: what remains is the rounding of f32. */
#define ROUNDING 1e-6
/* Median error of the first layer up to which it is taken for noise; and what is allowed of taps then, as a multiple of
 * it and at most.  Where each product of SmolLM2 is judged by itself, rounding to 8 bits leaves 0.007 in layer 0 and
 * 0.047 at most; where errors add up 0.01 and 0.09 (docs/layers.md).  Text that a mistake has spoilt is more sensitive:
 * 0.017 and 0.27 of the first 8 values of l_out. */
#define NOISE_MOST 0.03
#define NOISE_FACTOR 10.0
#define NOISE_FACTOR_ADDED_UP 20.0
#define NOISE_LIMIT 0.15
#define NOISE_LIMIT_SPOILT 0.3

enum { ALONE = 1, NOISY = 2 };
#define BIT(id) (1u << TAP_##id)
static const uint32_t products = BIT(QCUR) | BIT(KCUR) | BIT(VCUR) | BIT(ATTN_OUT) | BIT(FFN_GATE) | BIT(FFN_UP)
                               | BIT(FFN_OUT) | BIT(RESULT_OUTPUT);

plumb_status diagnose_prepare(struct diagnosis *d) {
    const struct plumb_trace *theirs = d->theirs;
    d->kinds = calloc(theirs->n_tap + 1, sizeof *d->kinds);
    if (!d->kinds) return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: %zu taps", theirs->n_tap);
    const struct trace_tap *embd = trace_find_tap(theirs, TAP_EMBD, -1);
    if (embd) d->kinds[embd - theirs->taps] = ALONE;
    /* Of the layer's input: is it known whole, and may there be noise in it? */
    bool is_whole_in = embd && experiment_is_whole(d->experiment, embd), is_noisy_in = false;
    int32_t n_layer = (int32_t)d->model->config.n_layer;
    for (int32_t layer = 0; layer <= n_layer; layer++) {
        uint32_t whole = 0, noisy = 0;   /* sets of taps: known whole; not, and noisy */
        enum tap_id first = layer < n_layer ? TAP_ATTN_NORM : TAP_RESULT_NORM;
        enum tap_id last = layer < n_layer ? TAP_L_OUT : TAP_RESULT_OUTPUT;
        for (enum tap_id id = first; id <= last; id++) {
            uint32_t feeds = tap_inputs(id), same = tap_same_layer(feeds, id);
            bool takes_input = feeds != same;
            bool is_alone = !(same & ~whole) && (!takes_input || is_whole_in);
            bool is_noisy = (products >> id & 1) || (same & noisy) || (takes_input && is_noisy_in);
            const struct trace_tap *tap = trace_find_tap(theirs, id, layer < n_layer ? layer : -1);
            if (tap) d->kinds[tap - theirs->taps] = (uint8_t)((is_alone ? ALONE : 0) | (is_noisy ? NOISY : 0));
            if (tap && experiment_is_whole(d->experiment, tap)) whole |= 1u << id;
            else if (is_noisy) noisy |= 1u << id;
        }
        is_whole_in = whole & BIT(L_OUT);
        is_noisy_in = noisy & BIT(L_OUT);
    }
    return PLUMB_OK;
}

bool diagnose_is_alone(const struct diagnosis *d, size_t i) { return d->kinds[i] & ALONE; }

static int ascending(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Median error of the taps of a layer that may be noisy; 0 if there is none. */
static double typical(const struct diagnosis *d, const struct outcome *o, int32_t layer) {
    double errors[TAP_COUNT];
    size_t n = 0;
    for (size_t i = 0; i < d->theirs->n_tap && n < TAP_COUNT; i++) {
        bool counts = d->theirs->taps[i].layer == layer && (d->kinds[i] & NOISY) && !isnan(o->error[i]);
        if (counts) errors[n++] = o->error[i];
    }
    qsort(errors, n, sizeof *errors, ascending);
    return n > 0 ? (errors[(n - 1) / 2] + errors[n / 2]) / 2 : 0;
}

double diagnose_noise(const struct diagnosis *d, const struct outcome *o) {
    if (d->report->tolerance > 0) return 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (!(d->kinds[i] & NOISY) || isnan(o->error[i])) continue;
        double noise = typical(d, o, d->theirs->taps[i].layer);
        return noise > ROUNDING && noise <= NOISE_MOST ? noise : 0;
    }
    return 0;
}

double diagnose_allowed(const struct diagnosis *d, const struct outcome *o) {
    double noise = diagnose_noise(d, o) * (d->experiment->forced ? NOISE_FACTOR : NOISE_FACTOR_ADDED_UP);
    return fmax(d->tolerance, fmin(noise, o->n_quirk > 0 ? NOISE_LIMIT_SPOILT : NOISE_LIMIT));
}

/* Where taps are not judged by themselves errors add up: a mistake shows in most of what follows, and a single tap that
 * stands out, with its few values, is none. */
static double judged(const struct diagnosis *d, const struct outcome *o, size_t i, double allowed) {
    bool is_single = diagnose_is_alone(d, i) || !(d->kinds[i] & NOISY) || allowed <= d->tolerance;
    return is_single ? o->error[i] : fmin(o->error[i], typical(d, o, d->theirs->taps[i].layer));
}

static bool is_over(const struct diagnosis *d, const struct outcome *o, size_t i, double allowed) {
    double limit = d->kinds[i] & NOISY ? allowed : d->tolerance;
    return o->error[i] > limit && judged(d, o, i, allowed) > limit;
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
        if (o->error[i] > ROUNDING) first = i;
    }
    return first;
}

size_t diagnose_evidence(const struct diagnosis *d, const struct outcome *base, const struct outcome *o) {
    bool all = diagnose_explains(d, base);
    double allowed = diagnose_allowed(d, base);
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        bool is_open = all ? base->error[i] > ROUNDING : is_over(d, base, i, allowed);
        if (is_open && o->error[i] * DIAGNOSE_FACTOR < base->error[i]) return i;
    }
    return SIZE_MAX;
}

bool diagnose_is_exact(const struct diagnosis *d, const struct outcome *o) {
    return diagnose_largest(d, o) <= ROUNDING;
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

bool diagnose_parts(const struct diagnosis *d, const struct outcome *o, int32_t layer) {
    double allowed = diagnose_allowed(d, o);
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (d->theirs->taps[i].layer == layer && is_over(d, o, i, allowed)) return true;
    }
    return false;
}

/* Recognizes how an engine rounds activations, by trying: the truth is computed with each rounding of the tables below,
 * on the first layers of which theirs has something.  A rounding is recognized if it brings rows much closer to theirs
 * than the truth without it.  A mistake that changes a row hides its rounding, and the row then says nothing.  But many
 * mistakes leave some rows right: those of RoPE and attention, for instance, the rows of the first token.
 */
#include "diagnose/diagnose.h"

#include <math.h>
#include <stdlib.h>

/* CLEARLY: a row is closer, or further off, if its error changes by this factor.
 * LEAST: smaller errors are those of other sums in f32.  LEAST_ADDED_UP is for dumps that begin behind all layers.
 * MUCH: a rounding replaces one from earlier in its table only if it brings each row closer by so many powers of ten
 *     more, on average. */
#define CLEARLY 5.0
#define LEAST 2e-6
#define LEAST_ADDED_UP 1e-4
#define MUCH 0.2
/* N_LAYER: how many layers are looked at.  N_VALUE: a row with fewer values is left out, as chance could bring it
 * closer. */
enum { N_LAYER = 2, N_VALUE = 4 };
/* So many of the ways to round attention are also tried together with those of products. */
enum { N_TOGETHER = 6 };

/* A way to round, of products or of attention, and what the report says about it. */
struct way {
    struct roundings how;
    const char *text;
};
#define PRODUCTS(...) .how.products = { __VA_ARGS__ }, .text = "the inputs of products are rounded "
#define KEYS(...) .how.keys = { __VA_ARGS__ }
#define VALUES(...) .how.values = { __VA_ARGS__ }
#define F16 .kind = ROUND_F16
#define BF16 .kind = ROUND_BF16
#define INT8(n) .kind = ROUND_INT8, .block = n
#define Q8_0 .kind = ROUND_INT8, .block = 32, .has_f16_scale = true
#define STORED , .is_stored_only = true
#define ROTATED(how) , .rotation = ROTATE_##how

static const struct way of_products[] = {
    { PRODUCTS(INT8(32)) "to 8 bits in blocks of 32" },
    { PRODUCTS(INT8(0)) "to 8 bits with one scale for each row" },
    { PRODUCTS(F16) "to f16" },
    { PRODUCTS(BF16) "to bf16" },
    { PRODUCTS(INT8(256)) "to 8 bits in blocks of 256" },
    { PRODUCTS(INT8(64)) "to 8 bits in blocks of 64" },
    { PRODUCTS(INT8(128)) "to 8 bits in blocks of 128" },
    { PRODUCTS(Q8_0) "to 8 bits in blocks of 32 with scales in f16" },
    { PRODUCTS(.kind = ROUND_BY_TYPE) "as llama.cpp does: to 8 bits, or to f16 where the weights are f16" },
};
/* What rounds K also rounds Q, and what rounds V the attention weights, unless STORED. */
static const struct way of_attention[] = {
    { KEYS(F16), VALUES(F16), "Q, K, V and attention weights are rounded to f16" },
    { KEYS(BF16), VALUES(BF16), "Q, K, V and attention weights are rounded to bf16" },
    { KEYS(Q8_0 ROTATED(MOST)), VALUES(F16),
      "Q and K are rotated and rounded to 8 bits in blocks of 32, V and attention weights to f16" },
    { KEYS(Q8_0 ROTATED(MOST)), VALUES(Q8_0 ROTATED(64) STORED),
      "Q, K and V are rotated and rounded to 8 bits in blocks of 32" },
    { KEYS(Q8_0), VALUES(F16), "Q and K are rounded to 8 bits in blocks of 32, V and attention weights to f16" },
    { KEYS(F16 STORED), VALUES(F16 STORED), "K and V are rounded to f16" },
    { KEYS(BF16 STORED), VALUES(BF16 STORED), "K and V are rounded to bf16" },
    { KEYS(Q8_0 STORED), VALUES(Q8_0 STORED), "K and V are rounded to 8 bits in blocks of 32" },
    { KEYS(Q8_0 STORED), VALUES(F16 STORED), "K is rounded to 8 bits in blocks of 32, V to f16" },
    { KEYS(Q8_0), .text = "Q and K are rounded to 8 bits in blocks of 32" },
    { KEYS(F16), .text = "Q and K are rounded to f16" },
    { VALUES(F16), .text = "V and attention weights are rounded to f16" },
};

struct layers diagnose_first_layers(const struct diagnosis *d, uint32_t n) {
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        const struct trace_tap *tap = &d->theirs->taps[i];
        if (tap->layer < 0 || tap->n_row == 0) continue;
        uint32_t first = (uint32_t)tap->layer, end = first + n;
        bool can_begin = experiment_can_begin(d->experiment, first);
        return (struct layers){ can_begin ? first : 0, end < d->model->plan.n_layer ? end : UINT32_MAX };
    }
    return ALL_LAYERS;
}

static bool has_layers(const struct diagnosis *d) {
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (d->theirs->taps[i].layer >= 0 && d->theirs->taps[i].n_row > 0) return true;
    }
    return false;
}

struct change diagnose_change(const struct diagnosis *d, const struct outcome *base, const struct outcome *o,
                              double least) {
    struct change change = { 0 };
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        const struct trace_tap *tap = &d->theirs->taps[i];
        for (uint32_t k = 0; k < tap->n_row; k++) {
            size_t at = d->experiment->first_row[i] + k;
            double before = base->row_error[at], after = o->row_error[at];
            if (isnan(before) || isnan(after) || tap->rows[k].n_value < N_VALUE) continue;
            if (before > least && after * CLEARLY < before) {
                change.gain += compare_log(before) - compare_log(after);
                change.n_closer++;
            }
            change.n_further += after > least && before * CLEARLY < after;
        }
    }
    return change;
}

static bool is_rounded(const struct diagnosis *d, const struct outcome *o, double least) {
    for (size_t i = 0; i < d->experiment->first_row[d->theirs->n_tap]; i++) {
        if (o->row_error[i] > least) return true;
    }
    return false;
}

/* Fills *lowered with what the rounding of o changed. */
static plumb_status measure(struct diagnosis *d, const struct outcome *base, const struct outcome *o, double least,
                            struct lowered *lowered) {
    size_t n_row = d->experiment->first_row[d->theirs->n_tap], n = 0;
    double *before = alloc_array(n_row, sizeof *before), *after = alloc_array(n_row, sizeof *after);
    bool has_memory = before && after;
    for (size_t i = 0; i < n_row && has_memory; i++) {
        if (!(base->row_error[i] > least && o->row_error[i] * CLEARLY < base->row_error[i])) continue;
        before[n] = base->row_error[i];
        after[n++] = o->row_error[i];
    }
    if (has_memory) *lowered = (struct lowered){ diagnose_median(before, n), diagnose_median(after, n) };
    free(before);
    free(after);
    return has_memory ? PLUMB_OK : error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: errors of %zu rows", n_row);
}

/* Runs the truth on these layers, rounded as d->noise says. */
static plumb_status run(struct diagnosis *d, struct layers layers, struct outcome *o) {
    *o = (struct outcome){ 0 };
    if (reference_set_rounding(d->experiment->reference, &d->noise.rounding) != PLUMB_OK) {
        return error_set(d->err, PLUMB_ERROR_MEMORY, "out of memory: rounded activations");
    }
    return experiment_run(d->experiment, NULL, 0, layers, o, d->err);
}

/* Returns false for a way that rotates heads of which the model has none: see rounding.h. */
static bool is_possible(const struct diagnosis *d, const struct roundings *how) {
    bool rotates_k = how->keys.rotation != ROTATE_NONE, rotates_v = how->values.rotation != ROTATE_NONE;
    bool has_k = false, has_v = false;
    for (uint32_t i = 0; i < d->model->plan.n_layer; i++) {
        has_k |= rounding_can_rotate(d->model->plan.layers[i].attn.k_dim);
        has_v |= rounding_can_rotate(d->model->plan.layers[i].attn.v_dim);
    }
    return (has_k || !rotates_k) && (has_v || !rotates_v);
}

/* Tries ways to round in addition to d->noise.rounding.  If one is recognized, adds it there, sets *text and
 * *lowered, and replaces *base, the outcome without it, by that with it. */
static plumb_status recognize(struct diagnosis *d, const struct way *ways, size_t n, struct layers layers, double least,
                              struct outcome *base, const char **text, struct lowered *lowered) {
    struct outcome best = { 0 };
    const struct roundings before = d->noise.rounding;
    struct roundings found = before;
    double most = 0;
    for (size_t i = 0; i < n && is_rounded(d, base, least); i++) {
        struct outcome o;
        struct change change = { 0 };
        if (!is_possible(d, &ways[i].how)) continue;
        d->noise.rounding = before;
        if (ways[i].how.products.kind != ROUND_NONE) d->noise.rounding.products = ways[i].how.products;
        if (ways[i].how.keys.kind != ROUND_NONE) d->noise.rounding.keys = ways[i].how.keys;
        if (ways[i].how.values.kind != ROUND_NONE) d->noise.rounding.values = ways[i].how.values;
        plumb_status status = run(d, layers, &o);
        if (status == PLUMB_OK) change = diagnose_change(d, base, &o, least);
        bool is_better = change.n_closer > 3 * change.n_further
                      && change.gain > most + (*text ? MUCH * (double)change.n_closer : 0);
        if (is_better) {
            struct outcome other = best;
            best = o;
            o = other;
            found = d->noise.rounding;
            most = change.gain;
            *text = ways[i].text;
        }
        outcome_free(&o);
        if (status != PLUMB_OK) outcome_free(&best);
        PLUMB_TRY(status);
    }
    d->noise.rounding = found;
    if (!*text) return PLUMB_OK;
    plumb_status status = measure(d, base, &best, least, lowered);
    outcome_free(base);
    *base = best;
    return status;
}

plumb_status diagnose_recognize_noise(struct diagnosis *d) {
    struct noise *noise = &d->noise;
    struct outcome base;
    if (d->report->tolerance > 0) return PLUMB_OK;
    bool is_late = !has_layers(d);
    double least = is_late ? LEAST_ADDED_UP : LEAST;
    struct layers layers = diagnose_first_layers(d, N_LAYER);
    plumb_status status = run(d, layers, &base);
    if (status == PLUMB_OK) {
        status = recognize(d, of_products, sizeof of_products / sizeof *of_products, layers, least, &base,
                           &noise->products, &noise->of_products);
    }
    /* Where errors add up, the rounding of attention may hide that of products, so that only both together show. */
    for (size_t i = 0; i < N_TOGETHER && !noise->products && !is_late && status == PLUMB_OK; i++) {
        if (d->experiment->forced) break;
        if (!is_possible(d, &of_attention[i].how)) continue;
        noise->rounding = of_attention[i].how;
        status = recognize(d, of_products, sizeof of_products / sizeof *of_products, layers, least, &base,
                           &noise->products, &noise->of_products);
        if (noise->products) noise->attention = of_attention[i].text;
        else noise->rounding = (struct roundings){ 0 };
    }
    /* Behind all layers, the rounding of products hides that of attention. */
    if (status == PLUMB_OK && !is_late && !noise->attention) {
        status = recognize(d, of_attention, sizeof of_attention / sizeof *of_attention, layers, least, &base,
                           &noise->attention, &noise->of_attention);
    }
    outcome_free(&base);
    if (status != PLUMB_OK) return status;
    return reference_set_rounding(d->experiment->reference, &noise->rounding);   /* has its memory */
}

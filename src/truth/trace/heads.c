#include "trace/heads.h"

#include "trace/compare.h"

#include <math.h>
#include <stdlib.h>

/* Q and K are permuted if the permutation reduces the errors to less than this fraction, as a geometric mean over the
 * taps.  If the permuted order is right, about a tenth of the errors is left even with 4-bit weights.  If the numbers
 * fit in neither order, the errors of the two orders are only a few per cent apart. */
#define MAX_ERROR_RATIO 0.8

bool heads_has_order(enum tap_id id) {
    return id == TAP_QCUR || id == TAP_KCUR || id == TAP_QCUR_NORMED || id == TAP_KCUR_NORMED || id == TAP_QCUR_ROPE
        || id == TAP_KCUR_ROPE;
}

/* place: the place of an element in transformers' row.  Returns its place in the GGUF's row. */
static uint32_t place_in_gguf(uint32_t place, uint32_t head_dim) {
    uint32_t half = head_dim / 2, p = place % head_dim;
    return place - p + 2 * (p % half) + p / half;
}

/* Returns true if the row can be permuted: it consists of whole heads or, if its shape is not known, it has values. */
static bool has_heads(const struct trace_row *row, uint32_t head_dim) {
    uint64_t total = (uint64_t)row->n_head * row->n;
    if (total > 0) return total % head_dim == 0;
    return row->n_value > 0 && trace_place(row, row->n_value - 1) < UINT32_MAX - head_dim;
}

/* ---- finding the order ------------------------------------------------------------------------------------------- */

/* Returns the smallest n of all rows of Q and K; 0 if none is known or if it is odd.  The result is head_dim unless all
 * rows are like transformers' own, whose heads are side by side in one row of n_head 1.  The caller therefore takes the
 * smaller result of the two sides. */
static uint32_t find_head_dim(const struct plumb_trace *t) {
    uint32_t head_dim = UINT32_MAX;
    for (size_t i = 0; i < t->n_tap; i++) {
        const struct trace_tap *tap = &t->taps[i];
        for (uint32_t j = 0; j < tap->n_row && heads_has_order(tap->id); j++) {
            if (tap->rows[j].n > 0 && tap->rows[j].n < head_dim) head_dim = tap->rows[j].n;
        }
    }
    return head_dim % 2 == 0 ? head_dim : 0;   /* UINT32_MAX is odd */
}

/* Returns the value at a place of a row; NAN if the row does not have it. */
static double value_at(const struct trace_row *row, uint32_t place) {
    if (!row->places) return place < row->n_value ? (double)row->values[place] : (double)NAN;
    uint32_t low = 0, high = row->n_value;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (row->places[middle] < place) low = middle + 1;
        else high = middle;
    }
    return low < row->n_value && row->places[low] == place ? (double)row->values[low] : (double)NAN;
}

/* Returns log10 of a tap's error as it is, minus log10 of its error when it is permuted.  The result is positive if the
 * permuted tap fits better.  Only values that the permutation moves are compared.  NAN: in one of the two orders there
 * is nothing to compare. */
static double gain_of(const struct trace_tap *theirs, const struct trace_tap *ours, uint32_t head_dim) {
    double d2[2] = { 0 }, norm2[2] = { 0 };
    for (uint32_t i = 0; i < theirs->n_row; i++) {
        const struct trace_row *a = &theirs->rows[i], *b = trace_find_row(ours, a->pos);
        for (uint32_t k = 0; b && has_heads(a, head_dim) && k < a->n_value; k++) {
            uint32_t place = trace_place(a, k), places[2] = { place, place_in_gguf(place, head_dim) };
            for (int order = 0; order < 2 && places[0] != places[1]; order++) {
                double x = (double)a->values[k], y = value_at(b, places[order]);
                if (!isfinite(x) || !isfinite(y)) continue;
                d2[order] += (x - y) * (x - y);
                norm2[order] += y * y;
            }
        }
    }
    if (norm2[0] == 0 || norm2[1] == 0) return (double)NAN;
    return compare_log(sqrt(d2[0] / norm2[0])) - compare_log(sqrt(d2[1] / norm2[1]));
}

uint32_t heads_permuted(const struct plumb_trace *theirs, const struct plumb_trace *ours) {
    uint32_t dim_a = find_head_dim(theirs), dim_b = find_head_dim(ours), n = 0;
    uint32_t head_dim = dim_b == 0 || (dim_a > 0 && dim_a < dim_b) ? dim_a : dim_b;
    double gain = 0;
    for (size_t i = 0; head_dim > 0 && i < theirs->n_tap; i++) {
        const struct trace_tap *a = &theirs->taps[i];
        if (a->id != TAP_QCUR && a->id != TAP_KCUR) continue;
        const struct trace_tap *b = trace_find_tap(ours, a->id, a->layer);
        double of_tap = b ? gain_of(a, b, head_dim) : (double)NAN;
        if (isnan(of_tap)) continue;
        gain += of_tap;
        n++;
    }
    return n > 0 && gain > -log10(MAX_ERROR_RATIO) * n ? head_dim : 0;
}

/* ---- permuting Q and K ------------------------------------------------------------------------------------------- */

/* Sets *to to a permuted copy of a row, with values and places of its own.  Returns false if out of memory. */
static bool permute_row(struct trace_row *to, const struct trace_row *from, uint32_t head_dim) {
    uint32_t n = from->n_value;
    *to = *from;
    to->values = NULL;
    to->places = NULL;
    if (n == 0) return true;
    to->values = alloc_array(n, sizeof *to->values);
    to->places = alloc_array(n, sizeof *to->places);
    struct trace_value *all = alloc_array(n, sizeof *all);
    if (!to->values || !to->places || !all) {
        free(all);
        return false;   /* heads_free frees what *to has got, since n_row counts this row too */
    }
    bool moves = has_heads(from, head_dim);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = trace_place(from, i);
        all[i] = (struct trace_value) { moves ? place_in_gguf(place, head_dim) : place, from->values[i] };
    }
    qsort(all, n, sizeof *all, trace_by_place);
    for (uint32_t i = 0; i < n; i++) {
        to->values[i] = all[i].value;
        to->places[i] = all[i].place;
    }
    free(all);
    uint64_t total = (uint64_t)from->n_head * from->n;
    if (moves && total > 0) {
        to->n_head = (uint32_t)(total / head_dim);
        to->n = head_dim;
    }
    if (n == total) {   /* the places are 0, 1, 2... */
        free(to->places);
        to->places = NULL;
    }
    return true;
}

plumb_status heads_permute(struct plumb_trace *out, const struct plumb_trace *t, uint32_t head_dim, struct error *err) {
    *out = *t;
    out->n_tap = 0;
    out->taps = alloc_array(t->n_tap, sizeof *out->taps);
    if (!out->taps) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %zu taps", t->n_tap);
    while (out->n_tap < t->n_tap) {
        const struct trace_tap *from = &t->taps[out->n_tap];
        struct trace_tap *to = &out->taps[out->n_tap++];
        *to = *from;
        if (!heads_has_order(from->id) || from->n_row == 0) continue;
        to->n_row = 0;
        to->rows = alloc_array(from->n_row, sizeof *to->rows);
        bool ok = to->rows != NULL;
        for (; ok && to->n_row < from->n_row; to->n_row++) {
            ok = permute_row(&to->rows[to->n_row], &from->rows[to->n_row], head_dim);
        }
        if (!ok) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %u rows of Q or K", from->n_row);
    }
    return PLUMB_OK;
}

void heads_free(struct plumb_trace *permuted) {
    for (size_t i = 0; permuted->taps && i < permuted->n_tap; i++) {
        struct trace_tap *tap = &permuted->taps[i];
        if (!heads_has_order(tap->id)) continue;
        for (uint32_t j = 0; j < tap->n_row; j++) {
            free(tap->rows[j].values);
            free(tap->rows[j].places);
        }
        free(tap->rows);
    }
    free(permuted->taps);
    permuted->taps = NULL;
}

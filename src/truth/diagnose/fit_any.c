/* What can be wrong in any step: its output is zero, scaled, or clamped, or rows or elements of it are exchanged. */
#include "diagnose/fit.h"

#include <math.h>
#include <stdlib.h>

/* How many values the search for rows of other tokens may compare. */
enum { MAX_COMPARED = 1 << 28 };

/* Returns true if the right step is wrong in some head of token t. */
static bool is_wrong_token(const struct fit *f, uint32_t t) {
    for (uint32_t h = 0; h < f->theirs.n_head; h++) {
        if (f->wrong[(size_t)t * f->theirs.n_head + h]) return true;
    }
    return false;
}

/* ---- functions of the right output ------------------------------------------------------------------------------- */

static void try_functions(struct fit *f, double *y) {
    size_t n = f->theirs.n_token * fit_width(&f->theirs);
    const float *right = f->truth.x, *theirs = f->theirs.x;
    fit_propose(f, 0, y, "is zero");
    for (size_t i = 0; i < n; i++) y[i] = -(double)right[i];
    fit_propose(f, 0, y, "has the wrong sign");
    for (size_t i = 0; i < n; i++) y[i] = (double)right[i];
    double factor = fit_scale(f, y), sum = 0, n_sum = 0, max = 0;
    for (size_t i = 0; i < n; i++) y[i] = factor * (double)right[i];
    fit_propose(f, 1, y, "is %.6g times what it should be", factor);
    for (size_t i = 0; i < n; i++) {
        if (!f->wrong[i / f->theirs.n] || !isfinite(theirs[i])) continue;
        sum += (double)theirs[i] - (double)right[i];
        n_sum++;
        max = fmax(max, fabs((double)theirs[i]));
    }
    for (size_t i = 0; i < n; i++) y[i] = (double)right[i] + sum / n_sum;
    fit_propose(f, 1, y, "is what it should be plus %.6g", sum / n_sum);
    for (size_t i = 0; i < n; i++) y[i] = fmin(fmax((double)right[i], -max), max);
    fit_propose(f, 1, y, "is clamped to -%.6g .. %.6g", max, max);
    for (size_t i = 0; i < n; i++) y[i] = fabs((double)right[i]);
    fit_propose(f, 0, y, "has lost its signs");
}

enum { SHOWN = 4 };   /* how many numbers of a list a sentence has */

/* One factor for each token, or for each head. */
static void try_factors(struct fit *f, double *y) {
    uint32_t n = f->theirs.n, n_head = f->theirs.n_head, n_token = f->theirs.n_token;
    for (int by_head = 0; by_head < 2; by_head++) {
        const char *noun = by_head ? "head" : "token";
        uint32_t n_group = by_head ? n_head : n_token, n_shown = n_group < SHOWN ? n_group : SHOWN;
        char text[FIT_SENTENCE];
        size_t at = 0;
        if (n_group == 1) continue;
        report_append(text, sizeof text, &at, "is the right one times");
        for (uint32_t group = 0; group < n_group; group++) {
            double ab = 0, aa = 0;
            for (size_t b = 0; b < (size_t)n_token * n_head; b++) {
                if ((by_head ? b % n_head : b / n_head) != group) continue;
                for (size_t i = b * n; i < (b + 1) * n; i++) {
                    ab += (double)f->truth.x[i] * (double)f->theirs.x[i];
                    aa += (double)f->truth.x[i] * (double)f->truth.x[i];
                }
            }
            for (size_t b = 0; b < (size_t)n_token * n_head; b++) {
                if ((by_head ? b % n_head : b / n_head) != group) continue;
                for (size_t i = b * n; i < (b + 1) * n; i++) y[i] = aa > 0 ? ab / aa * (double)f->truth.x[i] : 0;
            }
            if (group < n_shown) report_append(text, sizeof text, &at, "%s %.3g", group > 0 ? "," : "",
                                               aa > 0 ? ab / aa : 0);
        }
        report_append(text, sizeof text, &at, "%s in %ss", n_shown < n_group ? " ..." : "", noun);
        for (uint32_t group = 0; group < n_shown; group++) {
            report_append(text, sizeof text, &at, "%s %u", group > 0 ? "," : "",
                          by_head ? group : f->theirs.pos[group]);
        }
        fit_propose(f, n_group, y, "%s%s: what each %s is multiplied by is wrong", text,
                    n_shown < n_group ? " ..." : "", noun);
    }
}

/* ---- other tokens ------------------------------------------------------------------------------------------------ */

/* Returns the squared relative error of two rows. */
static double row_error2(const float *a, const float *theirs, size_t n) {
    double sum = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        sum += ((double)a[i] - (double)theirs[i]) * ((double)a[i] - (double)theirs[i]);
        norm += (double)theirs[i] * (double)theirs[i];
    }
    return norm > 0 ? sum / norm : INFINITY;
}

/* Each token has the output of another one: by a rule, or of the one that is nearest to theirs. */
static void try_tokens(struct fit *f, double *y) {
    uint32_t n_token = f->theirs.n_token;
    size_t width = fit_width(&f->theirs);
    for (int kind = 0; kind < 5; kind++) {
        for (uint32_t t = 0; t < n_token; t++) {
            uint32_t from = kind == 0 ? (t > 0 ? t - 1 : 0) : kind == 1 ? (t + 1 < n_token ? t + 1 : t)
                          : kind == 2 ? 0 : kind == 3 ? n_token - 1 : n_token - 1 - t;
            for (size_t i = 0; i < width; i++) y[t * width + i] = (double)fit_row(&f->truth, from)[i];
        }
        static const char *const texts[] = { "the token before", "the next token", "the first token",
                                             "the last token", "the tokens in reverse order" };
        fit_propose(f, 0, y, "is that of %s", texts[kind]);
    }
    if ((uint64_t)n_token * n_token * width > MAX_COMPARED) return;
    uint32_t n_moved = 0, first = 0, first_from = 0;
    for (uint32_t t = 0; t < n_token; t++) {
        uint32_t best = t;
        double least = row_error2(fit_row(&f->truth, t), fit_row(&f->theirs, t), width);
        for (uint32_t s = 0; s < n_token; s++) {
            double error = row_error2(fit_row(&f->truth, s), fit_row(&f->theirs, t), width);
            if (error < 0.01 * least) least = error, best = s;
        }
        if (best != t && n_moved++ == 0) first = t, first_from = best;
        for (size_t i = 0; i < width; i++) y[t * width + i] = (double)fit_row(&f->truth, best)[i];
    }
    if (n_moved > 0) {
        fit_propose(f, n_moved, y, "has %u rows of other tokens; that of token %u is the one of token %u", n_moved,
                    f->theirs.pos[first], f->theirs.pos[first_from]);
    }
}

/* ---- other elements ---------------------------------------------------------------------------------------------- */

/* The nearest sums, on either side, of which the elements are compared. */
enum { NEAR = 4 };

/* A sum over the wrong tokens of an element of a row.  Its weights make it unlikely that two elements have the same. */
struct column { double sum; uint32_t at; };

static double column_sum(const struct fit *f, const struct fit_rows *r, size_t at) {
    double sum = 0;
    uint32_t weight = 1;
    for (uint32_t t = 0; t < r->n_token; t++) {
        if (!is_wrong_token(f, t)) continue;
        weight = weight * 1664525u + 1013904223u;
        sum += (double)fit_row(r, t)[at] * (1 + (double)(weight >> 16) / 65536);
    }
    return sum;
}

static int by_sum(const void *a, const void *b) {
    const struct column *x = a, *y = b;
    if (x->sum != y->sum) return x->sum < y->sum ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The squared distance of element `right` of the right output and element `theirs` of theirs, over all tokens. */
static double column_error2(const struct fit *f, size_t right, size_t theirs) {
    double sum = 0;
    for (uint32_t t = 0; t < f->theirs.n_token; t++) {
        double d = (double)fit_row(&f->truth, t)[right] - (double)fit_row(&f->theirs, t)[theirs];
        if (is_wrong_token(f, t)) sum += d * d;
    }
    return sum;
}

/* from[i]: the element of the right output that element i of theirs equals, or i if there is none that is nearer. */
static uint32_t *match_elements(struct fit *f) {
    size_t width = fit_width(&f->theirs);
    struct column *columns = fit_new(f, width, sizeof *columns);
    uint32_t *from = fit_new(f, width, sizeof *from);
    if (!columns || !from) return NULL;
    for (size_t i = 0; i < width; i++) {
        double sum = column_sum(f, &f->truth, i);
        columns[i] = (struct column){ isnan(sum) ? INFINITY : sum, (uint32_t)i };   /* NaN could not be sorted */
    }
    qsort(columns, width, sizeof *columns, by_sum);
    for (size_t i = 0; i < width; i++) {
        double sum = column_sum(f, &f->theirs, i), least = 1e-4 * column_error2(f, i, i);
        size_t low = 0, high = width;
        while (low < high) {   /* the first that is not smaller */
            size_t middle = low + (high - low) / 2;
            if (columns[middle].sum < sum) low = middle + 1;
            else high = middle;
        }
        from[i] = (uint32_t)i;
        for (size_t k = low > NEAR ? low - NEAR : 0; k < width && k < low + NEAR; k++) {
            double error2 = column_error2(f, columns[k].at, i);
            if (error2 < least) least = error2, from[i] = columns[k].at;
        }
    }
    return from;
}

/* Proposes the right output with element from(i) at i. */
static void propose_moved(struct fit *f, const uint32_t *from, uint32_t cost, double *y, const char *text) {
    size_t width = fit_width(&f->theirs);
    for (size_t k = 0; k < f->theirs.n_token * width; k++) {
        y[k] = (double)fit_row(&f->truth, (uint32_t)(k / width))[from[k % width]];
    }
    fit_propose(f, cost, y, "%s", text);
}

/* Says how elements are moved: the usual ways of reading an array in a wrong order, within each head or in a row. */
static void try_elements(struct fit *f, double *y) {
    size_t width = fit_width(&f->theirs);
    uint32_t *matched = match_elements(f), *from = fit_new(f, width, sizeof *from), n_moved = 0;
    if (!matched || !from) return;
    for (size_t i = 0; i < width; i++) n_moved += matched[i] != i;
    if (n_moved * 8 < width && n_moved != 2) return;
    for (int within = 0; within < 2; within++) {
        uint32_t unit = within ? f->theirs.n : (uint32_t)width;
        const char *of = within ? "each head" : "each row";
        if (unit < 2 || (within && f->theirs.n_head == 1)) continue;
        uint32_t shift = (matched[1] + unit - 1) % unit;
        for (size_t i = 0; i < width; i++) from[i] = (uint32_t)(i / unit * unit + (i % unit + shift) % unit);
        int by = shift > unit / 2 ? (int)shift - (int)unit : (int)shift, head = (int)f->theirs.n;
        propose_moved(f, from, 0, y, !within && by % head == 0 ? fit_say(f, "has the heads shifted by %d", by / head)
                                     : fit_say(f, "has the elements of %s shifted by %d", of, by));
        for (size_t i = 0; i < width; i++) from[i] = (uint32_t)(i / unit * unit + unit - 1 - i % unit);
        propose_moved(f, from, 0, y, fit_say(f, "has the elements of %s in reverse order", of));
        for (uint32_t a = 2; a <= unit / 2; a++) {   /* (a, unit / a) read as (unit / a, a) */
            if (unit % a) continue;
            for (size_t i = 0; i < width; i++) {
                uint32_t at = (uint32_t)(i % unit);
                from[i] = (uint32_t)(i - at) + at % a * (unit / a) + at / a;
            }
            if (from[1] != matched[1] && from[unit - 2] != matched[unit - 2]) continue;
            propose_moved(f, from, 0, y, fit_say(f, "has the elements of %s in the order of the transposed (%u, %u)",
                                                 of, a, unit / a));
        }
        for (uint32_t a = 2; a <= unit; a *= 2) {   /* in each group of a, one half twice */
            for (size_t i = 0; i < width && unit % a == 0; i++) {
                size_t at = i % a % (a / 2);
                from[i] = (uint32_t)(i - i % a + (matched[0] == 0 ? at : a / 2 + at));
            }
            if (unit % a || from[a / 2] != matched[a / 2]) continue;
            const char *half = matched[0] == 0 ? "first" : "second";
            propose_moved(f, from, 0, y, a == unit ? fit_say(f, "has the %s half of %s twice", half, of)
                                         : fit_say(f, "has the %s half of each %u elements twice", half, a));
        }
        for (uint32_t a = 2; a <= unit / 2; a++) {   /* groups of a in reverse order */
            if (unit % a) continue;
            for (size_t i = 0; i < width; i++) {
                from[i] = (uint32_t)(i / unit * unit + unit - a - i % unit / a * a + i % a);
            }
            if (from[0] != matched[0]) continue;
            bool are_heads = a == f->theirs.n && !within;
            propose_moved(f, from, 0, y, are_heads ? "has the heads in reverse order"
                          : fit_say(f, "has the groups of %u elements of %s in reverse order", a, of));
        }
        for (uint32_t a = 1; a <= unit / 2; a++) {   /* neighbouring groups of a exchanged */
            if (unit % (2 * a)) continue;
            for (size_t i = 0; i < width; i++) from[i] = (uint32_t)(i / a % 2 ? i - a : i + a);
            if (from[0] != matched[0]) continue;
            propose_moved(f, from, 0, y, fit_say(f, "has neighbouring groups of %u elements exchanged", a));
        }
    }
    char places[FIT_SENTENCE / 3], of_places[FIT_SENTENCE / 3];
    uint32_t n_shown = 0;
    size_t n = 0, n_of = 0;
    for (uint32_t i = 0; i < width && n_shown < SHOWN; i++) {   /* the first ones show the pattern */
        if (matched[i] == i) continue;
        report_append(places, sizeof places, &n, "%s %u", n_shown > 0 ? "," : "", i);
        report_append(of_places, sizeof of_places, &n_of, "%s %u", n_shown++ > 0 ? "," : "", matched[i]);
    }
    if (n_shown == 0) return;
    propose_moved(f, matched, f->theirs.n_token > 2 ? 3 : n_moved, y,   /* the other tokens confirm it */
                  fit_say(f, "has %u of %zu elements in another order: at%s are those that belong at%s", n_moved, width,
                          places, of_places));
}

/* Elements that were left at zero, or that repeat. */
static void try_zeros(struct fit *f, double *y) {
    size_t width = fit_width(&f->theirs), first = width, end = 0;
    for (size_t i = 0; i < width; i++) {
        bool is_zero = true;
        for (uint32_t t = 0; t < f->theirs.n_token; t++) {
            is_zero = is_zero && (!is_wrong_token(f, t) || fit_row(&f->theirs, t)[i] == 0);
        }
        if (is_zero && first == width) first = i;
        if (is_zero) end = i + 1;
    }
    if (first >= end) return;
    for (size_t k = 0; k < f->theirs.n_token * width; k++) {
        y[k] = k % width >= first && k % width < end ? 0 : (double)f->truth.x[k];
    }
    fit_propose(f, 0, y, "has zeros as elements %zu-%zu of each row", first, end - 1);
}

/* Other activations of the dump: of another layer, or of another step. */
static void try_taps(struct fit *f, double *y) {
    size_t width = fit_width(&f->theirs);
    for (size_t i = 0; i < f->dump->n_tap; i++) {
        const struct trace_tap *tap = &f->dump->taps[i];
        struct fit_rows rows;
        bool is_own = tap->id == f->id && tap->layer == f->layer;
        bool fits = tap->n_row > 0 && !tap->rows[0].places && tap->rows[0].n_value == width;
        uint64_t own_place = tap_place(f->dump->order, f->id, f->layer);
        if (is_own || !fits || tap_place(f->dump->order, tap->id, tap->layer) > own_place) continue;
        /* Most are not even near: look at one value before the rows are copied. */
        const struct trace_row *theirs = trace_find_row(tap, f->theirs.pos[0]);
        bool is_whole = theirs && !theirs->places && theirs->n_value == width;   /* rows may differ */
        double value = is_whole ? (double)theirs->values[width / 2] : (double)NAN, own = (double)f->theirs.x[width / 2];
        bool is_near = fabs(value - own) <= (10 * f->floor + 1e-3) * fabs(own);
        if (!is_near || !fit_tap(f, tap->id, tap->layer, &rows) || !fit_align(f, &rows)) continue;
        for (size_t k = 0; k < f->theirs.n_token * width; k++) y[k] = (double)rows.x[k];
        struct tap_text name;
        fit_propose(f, 1, y, "is %s", tap_show(&name, tap->id, tap->layer));   /* how it was computed says more */
    }
}

void fit_any(struct fit *f) {
    double *y = fit_new(f, f->theirs.n_token * fit_width(&f->theirs), sizeof *y);
    if (!y) return;
    try_functions(f, y);
    try_factors(f, y);
    try_tokens(f, y);
    try_elements(f, y);
    try_zeros(f, y);
    try_taps(f, y);
}

#include "trace/compare.h"

#include <float.h>
#include <math.h>

/* ---- values, one by one ------------------------------------------------------------------------------------------ */

/* Sums over one row. */
struct row_sums {
    double half_step;   /* largest |a - b| that rounding can explain: half of both sides' quanta together */
    double d2, b2;
    uint64_t n_value, n_bound;
    bool has_nan, has_skipped;
};

static void add_max(struct comparison *c, double d, double a, double b, uint32_t pos, uint32_t place) {
    /* The first value is kept even if d is 0, so that max_a and max_b are set.  (A pair of equal NaN or infinities is
     * counted but does not get here.  If the first pair is one, max_a and max_b stay 0 until some d is above 0.) */
    if (d <= c->max_d && c->n_value + c->n_bound > 1) return;
    c->max_d = d;
    c->max_pos = pos;
    c->max_place = place;
    c->max_a = a;
    c->max_b = b;
}

static void add_value(struct comparison *c, struct row_sums *sums, double a, double b, uint32_t pos, uint32_t place) {
    if (c->skips_nan && isnan(a) && isnan(b)) {
        sums->has_skipped = true;
        return;
    }
    sums->n_value++;
    c->n_value++;
    double d = fmax(fabs(a - b) - sums->half_step, 0);
    if (!isfinite(a) || !isfinite(b)) {
        if (a == b || (isnan(a) && isnan(b))) return;
        sums->has_nan = true;
        c->n_nan++;
        d = INFINITY;
    } else {
        sums->d2 += d * d;
        sums->b2 += b * b;
        c->sum_ab += a * b;
        c->sum_aa += a * a;
        c->sum_bb += b * b;
    }
    add_max(c, d, a, b, pos, place);
}

/* Adds a value that only one side has.  One of a and b is the value.  The other is an upper bound of the other side's
 * value, so the two do not enter the cosine. */
static void add_bound(struct comparison *c, struct row_sums *sums, double a, double b, uint32_t pos, uint32_t place) {
    double d = fabs(a - b) - sums->half_step;
    if (!isfinite(a) || !isfinite(b) || d < 0) return;
    sums->n_bound++;
    c->n_bound++;
    sums->d2 += d * d;
    sums->b2 += b * b;
    add_max(c, d, a, b, pos, place);
}

/* Returns an upper bound of the logits that a row does not have; INFINITY if none is known. */
static double max_elsewhere(const struct comparison *c, const struct trace_row *row) {
    struct trace_value top[TRACE_TOP];
    uint32_t n = c->use_top_bound ? trace_known_top(row, top) : 0;
    return n > 0 ? (double)top[n - 1].value : INFINITY;
}

/* Places ascend in both rows, so one pass over both meets every place that they share. */
static void add_values(struct comparison *c, struct row_sums *sums, const struct trace_row *a,
                       const struct trace_row *b) {
    const uint64_t end = UINT64_MAX;   /* larger than every place: this row has no more values */
    uint64_t total_a = (uint64_t)a->n_head * a->n, total_b = (uint64_t)b->n_head * b->n;
    /* See compare_rows.  If n differs, the same place is a different key on each side.  Places are then compared as
     * pairs (head, key), packed into one number. */
    bool padded = a->n > 0 && b->n > 0 && a->n_head == b->n_head && a->n != b->n;
    if (!padded && total_a > 0 && total_b > 0 && total_a != total_b) return;
    double max_a = max_elsewhere(c, a), max_b = max_elsewhere(c, b);
    for (uint32_t i = 0, j = 0; i < a->n_value || j < b->n_value;) {
        uint64_t at_a = i < a->n_value ? trace_place(a, i) : end, at_b = j < b->n_value ? trace_place(b, j) : end;
        if (padded && at_a != end) at_a = at_a / a->n << 32 | at_a % a->n;
        if (padded && at_b != end) at_b = at_b / b->n << 32 | at_b % b->n;
        if (at_a == at_b) {
            add_value(c, sums, (double)a->values[i], (double)b->values[j], b->pos, trace_place(b, j));
        } else if (padded && at_a < at_b && (uint32_t)at_a >= b->n) {
            add_value(c, sums, (double)a->values[i], 0, b->pos, trace_place(a, i));
        } else if (padded && at_b < at_a && (uint32_t)at_b >= a->n) {
            add_value(c, sums, 0, (double)b->values[j], b->pos, trace_place(b, j));
        } else if (at_a < at_b && (double)a->values[i] > max_b) {
            add_bound(c, sums, (double)a->values[i], max_b, b->pos, trace_place(a, i));
        } else if (at_b < at_a && (double)b->values[j] > max_a) {
            add_bound(c, sums, max_a, (double)b->values[j], b->pos, trace_place(b, j));
        }
        bool next_a = at_a <= at_b, next_b = at_b <= at_a;
        i += next_a;
        j += next_b;
    }
}

/* Returns d / scale.  A d below the smallest normal f32 counts as 0: some engines flush such values to 0, and none
 * rounds them well. */
static double ratio(double d, double scale) { return d < (double)FLT_MIN ? 0 : scale > 0 ? d / scale : INFINITY; }

/* ---- statistics -------------------------------------------------------------------------------------------------- */

static bool both_known(double a, double b) { return isfinite(a) && isfinite(b); }

/* Returns the largest of the relative differences; a negative number if no statistic is known on both sides. */
static double statistics_error(const struct trace_stats *a, const struct trace_stats *b) {
    double worst = -1, scale = isfinite(b->rms) ? b->rms : a->rms;
    if (both_known(a->rms, b->rms)) worst = fmax(worst, ratio(fabs(a->rms - b->rms), b->rms));
    if (both_known(a->mean, b->mean) && isfinite(scale)) worst = fmax(worst, ratio(fabs(a->mean - b->mean), scale));
    double floor = isfinite(scale) ? scale : 0;
    if (both_known(a->min, b->min)) worst = fmax(worst, ratio(fabs(a->min - b->min), fmax(fabs(b->min), floor)));
    if (both_known(a->max, b->max)) worst = fmax(worst, ratio(fabs(a->max - b->max), fmax(fabs(b->max), floor)));
    return worst;
}

static bool counts_differ(const struct trace_stats *a, const struct trace_stats *b) {
    return (both_known(a->n_nan, b->n_nan) && a->n_nan != b->n_nan)
        || (both_known(a->n_inf, b->n_inf) && a->n_inf != b->n_inf);
}

/* ---- rows, taps -------------------------------------------------------------------------------------------------- */

void compare_rows(struct comparison *c, const struct trace_row *a, const struct trace_row *b) {
    struct row_sums sums = { .half_step = 0.5 * ((double)a->quantum + (double)b->quantum) };
    add_values(c, &sums, a, b);
    /* Rounding to a step q adds about q^2 / 12 = (q / 2)^2 / 3 to the mean of the squares.  half_step is q / 2, where q
     * is the sum of both sides' steps.  With this term, values that were all printed as 0 do not count as exactly 0. */
    sums.b2 += (double)(sums.n_value + sums.n_bound) * sums.half_step * sums.half_step / 3;
    uint64_t total_a = (uint64_t)a->n_head * a->n, total_b = (uint64_t)b->n_head * b->n;
    double worst = -1, n_compared = (double)(sums.n_value + sums.n_bound);
    if (n_compared > 0) worst = ratio(sqrt(sums.d2 / n_compared), sqrt(sums.b2 / n_compared));
    bool all_values = sums.n_value > 0 && sums.n_value == total_b, same_shape = total_a == total_b;
    if (!all_values && (same_shape || total_a == 0 || total_b == 0)) {
        worst = fmax(worst, statistics_error(&a->stats, &b->stats));
        if (counts_differ(&a->stats, &b->stats)) {
            if (!sums.has_nan) c->n_nan++;
            sums.has_nan = true;
        }
    }
    bool is_all_nan = c->skips_nan && worst < 0 && (sums.has_skipped || b->stats.n_nan > 0);
    if (sums.has_nan || is_all_nan) worst = fmax(worst, 1);
    if (worst < 0) return;
    c->n_row++;
    c->sum_error2 += worst * worst;
}

/* Computes the statistics of all rows of a tap from pos first to last together.  A statistic that one of the rows does
 * not know becomes NaN or infinite.  Returns false if one of the rows is missing, or if they have no finite values. */
static bool merge_rows(const struct trace_tap *tap, uint32_t first, uint32_t last, struct trace_row *merged) {
    double n_all = 0, mean = 0, square = 0, min = INFINITY, max = -INFINITY, n_nan = 0, n_inf = 0;
    uint64_t n_row = 0;
    for (uint32_t i = 0; i < tap->n_row; i++) {
        const struct trace_row *row = &tap->rows[i];
        if (row->pos < first || row->pos > last || row->pos == TRACE_ALL_TOKENS) continue;
        double total = (double)row->n_head * row->n;
        const struct trace_stats *s = &row->stats;
        double n = total - (s->n_nan > 0 ? s->n_nan : 0) - (s->n_inf > 0 ? s->n_inf : 0);   /* finite values */
        n_row++;
        n_all += n;
        mean += n * s->mean;
        square += n * s->rms * s->rms;
        min = fmin(min, isfinite(s->min) ? s->min : -INFINITY);   /* infinite from here on if one is not known */
        max = fmax(max, isfinite(s->max) ? s->max : INFINITY);
        n_nan += s->n_nan;
        n_inf += s->n_inf;
    }
    if (n_row != (uint64_t)last - first + 1 || n_all == 0) return false;
    *merged = (struct trace_row) { .pos = TRACE_ALL_TOKENS };
    merged->stats = (struct trace_stats) { mean / n_all, sqrt(square / n_all), min, max, n_nan, n_inf };
    return true;
}

/* Returns the tap's row of all tokens together, which is its last; NULL if it has none.  Sets *first and *last to the
 * first and last pos of its other rows, or of the rows of `other` if it has no other rows. */
static const struct trace_row *all_tokens(const struct trace_tap *tap, const struct trace_tap *other, uint32_t *first,
                                          uint32_t *last) {
    if (tap->n_row == 0 || tap->rows[tap->n_row - 1].pos != TRACE_ALL_TOKENS) return NULL;
    uint32_t n = tap->n_row - 1;
    const struct trace_row *rows = n > 0 ? tap->rows : other->rows;
    if (n == 0) n = other->n_row;
    if (n == 0) return NULL;
    *first = rows[0].pos;
    *last = rows[n - 1].pos;
    return &tap->rows[tap->n_row - 1];
}

/* Compares the row of all tokens together with that of the other side, or with the merged rows of the other side. */
static void compare_merged(struct comparison *c, const struct trace_tap *a, const struct trace_tap *b) {
    uint32_t first, last;
    struct trace_row merged;
    const struct trace_row *all_a = all_tokens(a, b, &first, &last);
    bool is_merged = all_a && merge_rows(b, first, last, &merged);
    const struct trace_row *all_b = all_tokens(b, a, &first, &last);
    if (all_a && all_b) compare_rows(c, all_a, all_b);
    else if (is_merged) compare_rows(c, all_a, &merged);
    else if (all_b && merge_rows(a, first, last, &merged)) compare_rows(c, &merged, all_b);
}

void compare_all_tokens(struct comparison *c, const struct trace_tap *a, const struct trace_tap *b) {
    struct comparison all = { 0 };
    compare_merged(&all, a, b);
    if (c->n_row == 0) c->n_row = all.n_row;
    /* compare_error divides sum_error2 by n_row.  Multiplied by n_row, the error of the row of all tokens becomes a
     * lower bound of the tap's error. */
    c->sum_error2 = fmax(c->sum_error2, all.sum_error2 * c->n_row);
    if (c->n_nan == 0) c->n_nan = all.n_nan;
}

void compare_taps(struct comparison *c, const struct trace_tap *a, const struct trace_tap *b) {
    for (uint32_t i = 0, j = 0; i < a->n_row && j < b->n_row;) {
        uint32_t at_a = a->rows[i].pos, at_b = b->rows[j].pos;
        if (at_a == at_b && at_a != TRACE_ALL_TOKENS) compare_rows(c, &a->rows[i], &b->rows[j]);
        i += at_a <= at_b;
        j += at_b <= at_a;
    }
    compare_all_tokens(c, a, b);
}

double compare_error(const struct comparison *c) { return c->n_row > 0 ? sqrt(c->sum_error2 / c->n_row) : NAN; }

double compare_cosine(const struct comparison *c) {
    return c->sum_aa > 0 && c->sum_bb > 0 ? c->sum_ab / (sqrt(c->sum_aa) * sqrt(c->sum_bb)) : NAN;
}

double compare_log(double error) { return log10(fmin(fmax(error, 1e-7), 10)); }

/* Measures how far a row or a tap of one trace is from that of another.
 *
 * The relative RMS error of a row is |a - b| / |b|, where both norms are taken over the places that both sides have.
 * The error of a tap is the root mean square of its rows' errors.  A single norm over all tokens would be dominated by
 * the first token, whose activations are huge in trained models.
 */
#ifndef PLUMB_TRACE_COMPARE_H
#define PLUMB_TRACE_COMPARE_H

#include "trace/trace.h"

struct comparison {
    bool use_top_bound, skips_nan;   /* set by the caller: see compare_rows */
    uint64_t n_value;        /* values that both sides have */
    uint64_t n_bound;        /* values that only one side has and that exceed an upper bound of the other side's */
    uint32_t n_row;          /* rows compared, by values or by statistics */
    double sum_error2;       /* sum of the rows' squared relative errors */
    double sum_ab, sum_aa, sum_bb;   /* dot products of those n_value values that are finite on both sides */
    double max_d;            /* largest |a - b|, less what rounding explains */
    uint32_t max_pos, max_place;
    double max_a, max_b;     /* the values there */
    uint64_t n_nan;          /* places where the sides differ and one is NaN or infinite (max_d is then infinite), and
                              * rows where only the counts of such values differ.  The row's error is then at least 1 */
};

/* Compares two rows and adds the result to *c.
 *
 * The values are compared at the places that both rows have.  NaN equals NaN, unless skips_nan is set.  The statistics
 * that both sides know are compared too, unless all of b's values were compared.  The larger of the two errors counts.
 * Differences of mean and RMS are divided by b's RMS, so they never exceed the RMS error of all the values.
 * Differences of min and max are divided by b's min and max, or by its RMS if that is larger.
 *
 * A value that was rounded to a step (trace_row.quantum) may stand for any number within half a step.  The difference
 * of two values is the distance of the nearest numbers that they may stand for.
 *
 * If the two shapes have the same n_head but different n, the rows are taken for attention weights, whose n is the
 * number of keys; an engine with a padded cache has more of them.  A key that one side does not have counts as 0 there,
 * and statistics are not compared.  Rows whose n_head * n differs otherwise are not compared at all.  If nothing was
 * compared, nothing is added.
 *
 * skips_nan: NaN does not equal NaN, because two sums can be NaN for different reasons.  A place where both sides are
 * NaN says nothing, and a row in which nothing else can be compared counts as one that differs.
 *
 * use_top_bound: if a side's largest logits are known (trace_known_top), the smallest of them is an upper bound of all
 * logits that this side does not have.  If the other side has a value there that is above the bound, the two differ by
 * at least its distance from the bound, and this distance counts. */
void compare_rows(struct comparison *c, const struct trace_row *a, const struct trace_row *b);
/* Compares all rows of a tap.  *c must be zero except for what the caller sets. */
void compare_taps(struct comparison *c, const struct trace_tap *a, const struct trace_tap *b);
/* The last step of compare_taps, after the rows of single tokens.  If a side has a row of all tokens together
 * (TRACE_ALL_TOKENS), compares it with that of the other side.  If the other side has none, merges the statistics of
 * its rows, from the first to the last pos that the first side has (or of all its rows, if the first side has no other
 * rows), and compares with those.  The error counts if it is larger than that of the single rows. */
void compare_all_tokens(struct comparison *c, const struct trace_tap *a, const struct trace_tap *b);
/* Returns the relative error.  0: no difference beyond the rounding of printed values.  INFINITY: in some row, what was
 * compared is all zeros in b, but not in a.  NAN: nothing was compared. */
double compare_error(const struct comparison *c);
/* Returns log10 of an error.  An error below 1e-7 counts as 1e-7, because it is the rounding of f32.  One above 10
 * counts as 10, because a larger error says no more. */
double compare_log(double error);
/* Returns the cosine of all compared values as two vectors.  NAN: there are none, or one vector is all zeros. */
double compare_cosine(const struct comparison *c);

#endif

/* Measures how far a row or a tap of one trace is from that of another.
 *
 * The relative RMS error of a row is |a - b| / |b|, the norms being over the places that both have.  The error of a tap
 * is the root mean square of its rows' errors.  A single norm over all tokens would be dominated by the first one,
 * whose activations are huge in trained models.
 */
#ifndef PLUMB_TRACE_COMPARE_H
#define PLUMB_TRACE_COMPARE_H

#include "trace/trace.h"

struct comparison {
    bool use_top_bound;            /* set by the caller: see compare_rows */
    uint64_t n_value;        /* values that both sides have */
    uint64_t n_bound;        /* values that only one side has, compared with an upper bound of the other's */
    uint32_t n_row;          /* rows compared, by values or by statistics */
    double sum_error2;       /* sum of the rows' squared relative errors */
    double sum_ab, sum_aa, sum_bb;   /* dot products of the n_value values, the finite ones */
    double max_d;            /* largest |a - b|, less what rounding explains */
    uint32_t max_pos, max_place;
    double max_a, max_b;     /* the values there */
    uint64_t n_nan;          /* places where the sides differ and one is NaN or infinite (max_d is then infinite), and
                              * rows where only the counts of such values differ.  The row's error is then at least 1 */
};

/* Compares two rows and adds the result to *c.  Compares the values at the places that both rows have.  Unless these
 * are all the values of b, also compares the statistics that both know.  The larger of the two errors counts.
 * Differences of mean and RMS are relative to b's RMS; they never exceed the RMS error.  Differences of min and max are
 * relative to b's min and max, or to its RMS if that is larger.  NaN equals NaN.
 *
 * A value that was rounded to a step (trace_row.quantum) may stand for any number within half a step.  The difference
 * of two values is that of the nearest numbers that they may stand for.
 *
 * If the shapes differ in n alone, the rows are taken for attention weights, n being the number of keys, of which an
 * engine with a padded cache has more: keys that one side does not have are compared with 0.  If the shapes differ
 * otherwise, or the rows have nothing in common, nothing is added.
 *
 * use_top_bound: if a side's largest logits are known (trace_known_top), the smallest of them is an upper bound of all
 * logits that this side does not have.  If the other side has a value there that is above the bound, the two differ by
 * at least its distance from the bound, and this distance counts. */
void compare_rows(struct comparison *c, const struct trace_row *a, const struct trace_row *b);
/* Compares all rows of a tap.  *c must be zero except for use_top_bound. */
void compare_taps(struct comparison *c, const struct trace_tap *a, const struct trace_tap *b);
/* The last step of compare_taps, after the rows of single tokens.  Compares a row of all tokens together
 * (TRACE_ALL_TOKENS) with that of the other side or, if this has none, with the statistics of its rows taken together,
 * from the first to the last pos of the tap that has the row.  Its error counts if it is larger than that of the
 * rows. */
void compare_all_tokens(struct comparison *c, const struct trace_tap *a, const struct trace_tap *b);
/* Returns the relative error.  0: equal.  INFINITY: a row of b is all zeros and a's is not.  NAN: nothing was
 * compared. */
double compare_error(const struct comparison *c);
/* Returns log10 of an error.  The error is limited to at least 1e-7, since smaller ones are the rounding of f32, and to
 * at most 10, since larger ones say no more. */
double compare_log(double error);
/* Returns the cosine of all compared values as two vectors; NAN if there are none, or if one vector is all zeros. */
double compare_cosine(const struct comparison *c);

#endif

/* How far one row, one tap, one trace is from another.
 *
 * The relative RMS error of a tap is taken per token, |a - b| / |b| over the places that both have, and then as root
 * mean square over the tokens: a first token of huge activations, as trained models have them, must not hide the rest.
 */
#ifndef PLUMB_TRACE_COMPARE_H
#define PLUMB_TRACE_COMPARE_H

#include "trace/trace.h"

struct comparison {
    bool by_list;            /* in: see compare_rows */
    uint64_t n_value;        /* compared, one by one */
    uint64_t n_bound;        /* more, which one side alone has: held against what the other's can be at most */
    uint32_t n_row;          /* rows compared, by values or by statistics */
    double sum_error2;       /* of the rows' squared relative errors */
    double sum_ab, sum_aa, sum_bb;
    double max_d;            /* largest |a - b|, but for rounding */
    uint32_t max_pos, max_place;
    double max_a, max_b;     /* the values there */
    uint64_t n_nan;          /* places where the sides differ and one is NaN or infinite; each makes its row's error at
                              * least 1, max_d infinite */
};

/* A value that was rounded to a step (trace_row.quantum) stands for all within half a step of it: the distance of two
 * values is that of the nearest numbers that they can stand for.
 *
 * Adds a row: values where both have some at the same places and, unless these are all there are, the statistics that
 * both know; the larger error counts.  Differences of mean and RMS are taken relative to b's RMS (they never exceed the
 * RMS error), those of min and max relative to them, or to the RMS where that is larger.  NaN equals NaN.
 *
 * Rows whose shapes differ in n alone are attention to fewer or more keys, by engines that pad and engines that do not:
 * keys that one side does not have are zeros there.  Other shapes that differ, and rows with nothing in common, add
 * nothing.
 *
 * by_list: where a side has its likeliest logits (trace_likeliest), its others are no larger than the least of them;
 * what the other side alone has above that is as far off as that at least, and counts as if it were that far. */
void compare_rows(struct comparison *c, const struct trace_row *a, const struct trace_row *b);
/* Compares all rows of a tap; *c is zero before, but for by_list. */
void compare_taps(struct comparison *c, const struct trace_tap *a, const struct trace_tap *b);
/* The part of it that comes after the rows: one of all tokens together (TRACE_ALL_TOKENS) is held against the other's,
 * or against what the other's rows from its tap's first to its last pos add up to; it counts if its error is larger
 * than the rows'. */
void compare_all_tokens(struct comparison *c, const struct trace_tap *a, const struct trace_tap *b);
/* 0: equal.  INFINITY where a row of b is all zeros and a's is not.  NAN: nothing was compared. */
double compare_error(const struct comparison *c);
/* log10 of an error, limited to 1e-7, below which it is the rounding of f32, and to 10, above which it says no more. */
double compare_log(double error);
/* Of all values as two vectors; NAN without values or with a vector of zeros. */
double compare_cosine(const struct comparison *c);

#endif

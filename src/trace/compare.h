/* How far one row, one tap, one trace is from another.
 *
 * The relative RMS error of a tap is taken per token, |a - b| / |b| over the places that both have, and then as root
 * mean square over the tokens: a first token of huge activations, as trained models have them, must not hide the rest.
 */
#ifndef PLUMB_TRACE_COMPARE_H
#define PLUMB_TRACE_COMPARE_H

#include "trace/trace.h"

struct comparison {
    uint64_t n_value;        /* compared, one by one */
    uint32_t n_row;          /* rows compared, by values or by statistics */
    double sum_error2;       /* of the rows' squared relative errors */
    double sum_ab, sum_aa, sum_bb;
    double max_d;            /* largest |a - b| */
    uint32_t max_pos, max_place;
    double max_a, max_b;     /* the values there */
    uint64_t n_nan;          /* places where exactly one side is NaN or infinite; each makes its row's error at least 1 */
};

/* Adds a row: values where both have some at the same places, otherwise the statistics that both know (differences of
 * mean, rms, min and max relative to b's rms).  Nothing in common: nothing is added. */
void compare_rows(struct comparison *c, const struct trace_row *a, const struct trace_row *b);
/* Adds all rows of a tap; rows of all tokens together (TRACE_ALL_TOKENS) are held against what b's rows add up to. */
void compare_taps(struct comparison *c, const struct trace_tap *a, const struct trace_tap *b);
/* 0: equal.  INFINITY where b is all zeros and a is not. */
double compare_error(const struct comparison *c);
/* Of all values as two vectors; NAN without values or with a vector of zeros. */
double compare_cosine(const struct comparison *c);

#endif

/* The softmax of the reference pass and of mistakes. */
#ifndef PLUMB_REFERENCE_SOFTMAX_H
#define PLUMB_REFERENCE_SOFTMAX_H

#include <math.h>
#include <stddef.h>

/* What takes part in the sum beside the scores: one more score and n_zero scores of 0; -INFINITY, 0: none.  exponential
 * gets `least`, and softmax_exp takes smaller arguments for it. */
struct softmax_sum {
    double sink, n_zero, least;
    double (*exponential)(double score, double max, double least);
};

static inline double softmax_exp(double score, double max, double least) { return exp(fmax(score - max, least)); }

/* x_i = e^x_i / sum of all e^x_j, of n elements, stride apart; those of -INFINITY become 0. */
static inline void softmax_with(double *x, size_t n, size_t stride, struct softmax_sum of) {
    double max = of.n_zero > 0 ? fmax(0, of.sink) : of.sink;
    for (size_t i = 0; i < n; i++) max = fmax(max, x[i * stride]);
    double sum = of.sink == -INFINITY ? 0 : of.exponential(of.sink, max, -INFINITY);
    if (of.n_zero != 0) sum += of.n_zero * of.exponential(0, max, -INFINITY);
    for (size_t i = 0; i < n; i++) {
        double *e = x + i * stride;
        *e = *e == -INFINITY ? 0 : of.exponential(*e, max, of.least);
        sum += *e;
    }
    for (size_t i = 0; i < n; i++) {
        if (x[i * stride] != 0) x[i * stride] /= sum;   /* 0 stays 0 even if another score is NaN */
    }
}

static inline void softmax(double *x, size_t n, size_t stride) {
    softmax_with(x, n, stride, (struct softmax_sum){ -INFINITY, 0, -INFINITY, softmax_exp });
}

#endif

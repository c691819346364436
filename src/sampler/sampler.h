/* Logits + parameters + random numbers -> token.  Pure: no I/O, no clock, no libm; the same bits on every host.
 *
 * What tests need to see beyond plumb.h: the candidates that survive the filters, and the random numbers.
 */
#ifndef PLUMB_SAMPLER_H
#define PLUMB_SAMPLER_H

#include "base/base.h"

/* xoshiro256** 1.0 (Blackman and Vigna, https://prng.di.unimi.it/xoshiro256starstar.c), its state filled by
 * splitmix64 (https://prng.di.unimi.it/splitmix64.c) as its authors advise; any seed is good, 0 too. */
struct rng { uint64_t s[4]; };
void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_next(struct rng *rng);
/* Uniform in [0, 1): the upper 53 bits of rng_next times 2^-53. */
double rng_uniform(struct rng *rng);

struct candidate {
    double weight;  /* probability = weight / sum of the weights */
    float logit;    /* after bias and penalties, before temperature */
    float key;      /* what the present step orders by: higher first, equal ones by lower id */
    int32_t id;
};

/* What the next draw chooses from, without drawing: *n candidates with their weights, in the order in which the draw
 * walks them; *total is the sum of the weights in that order.  *n = 0: no token is possible (every logit is NaN or
 * -infinity).  Valid until the next call on the sampler. */
const struct candidate *sampler_candidates(plumb_sampler *s, const float *logits, size_t *n, double *total);

#endif

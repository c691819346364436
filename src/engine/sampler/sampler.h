/* Logits + parameters + random numbers -> token.  The sampler uses no I/O, no clock and no libm, so it gives the same
 * bits on every host.
 *
 * plumb.h has the public functions.  This header adds what tests need to see: the candidates that survive the filters,
 * and the random numbers.
 */
#ifndef PLUMB_SAMPLER_H
#define PLUMB_SAMPLER_H

#include "base/base.h"

/* xoshiro256** 1.0 (Blackman and Vigna, https://prng.di.unimi.it/xoshiro256starstar.c).  splitmix64
 * (https://prng.di.unimi.it/splitmix64.c) fills its state from the seed, as the authors advise.  Any seed is good,
 * including 0. */
struct rng { uint64_t s[4]; };
void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_next(struct rng *rng);
/* Uniform in [0, 1): the upper 53 bits of rng_next times 2^-53. */
double rng_uniform(struct rng *rng);

struct candidate {
    double weight;  /* probability = weight / sum of the weights */
    float logit;    /* after bias and penalties, before temperature */
    float key;      /* the current step orders candidates by it: higher keys first, then lower ids */
    int32_t id;
};

/* Returns the *n candidates that the next draw chooses from, without drawing.  They have their weights and are in the
 * order in which the draw walks them; *total is the sum of the weights in that order.  *n = 0 means that no token is
 * possible (every logit is NaN or -infinity).  The result is valid until the next call on the sampler. */
const struct candidate *sampler_candidates(plumb_sampler *s, const float *logits, size_t *n, double *total);

#endif

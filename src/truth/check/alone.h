/* The fast pass with one sequence, as the checks of a model run it. */
#ifndef PLUMB_TRUTH_ALONE_H
#define PLUMB_TRUTH_ALONE_H

#include "forward/forward.h"

struct alone {
    struct forward *forward;
    struct sequence sequence;
};

/* A pass for up to n_ctx tokens in batches of up to n_batch, with K and V in PLUMB_KV_I16; see forward_create.
 * alone_free must follow in any case.  PLUMB_ERROR_MEMORY. */
plumb_status alone_create(struct alone *a, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                          const struct kernels *k, struct pool *pool, struct error *err);
void alone_free(struct alone *a);
/* Computes n tokens at pos, and the results of all of them, (n, plan_n_result). */
void alone_run(struct alone *a, const int32_t *ids, uint32_t n, uint32_t pos, float *results);

#endif

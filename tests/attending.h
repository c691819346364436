/* Attention with one sequence, for the tests that store K and V and run attention themselves. */
#ifndef PLUMB_TESTS_ATTENDING_H
#define PLUMB_TESTS_ATTENDING_H

#include "forward/attention.h"

struct attending {
    struct attention *a;
    struct sequence s;
};

static inline bool attending_create(struct attending *x, const struct plan *plan, uint32_t n_ctx, uint32_t n_batch,
                                    plumb_kv_type type, const struct attention_kernels *kernels,
                                    const struct kernels *f32, struct pool *pool) {
    x->s = (struct sequence) { 0 };
    return attention_create(&x->a, plan, n_ctx, n_batch, type, kernels, f32, pool) == PLUMB_OK
        && sequence_create(&x->s, plan, n_ctx, n_batch, type, 0, false);
}

static inline void attending_free(struct attending *x) {
    attention_free(x->a);
    if (x->s.plan) sequence_free(&x->s);
}

static inline uint64_t attending_bytes(const struct attending *x) {
    return attention_bytes(x->a) + sequence_bytes(&x->s);
}

#endif

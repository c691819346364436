#include "check/alone.h"

plumb_status alone_create(struct alone *a, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                          const struct kernels *k, struct pool *pool, struct error *err) {
    *a = (struct alone) { 0 };
    PLUMB_TRY(forward_create(&a->forward, m, n_ctx, n_batch, PLUMB_KV_I16, k, pool, err));
    if (sequence_create(&a->sequence, &m->plan, n_ctx, n_batch, PLUMB_KV_I16, 0, false)) return PLUMB_OK;
    return sequence_no_memory(&m->plan, n_ctx, n_batch, PLUMB_KV_I16, 0, err);
}

void alone_free(struct alone *a) {
    if (a->sequence.plan) sequence_free(&a->sequence);
    forward_free(a->forward);
    *a = (struct alone) { 0 };
}

void alone_run(struct alone *a, const int32_t *ids, uint32_t n, uint32_t pos, float *results) {
    const struct piece piece = { &a->sequence, ids, n, pos, n, 0 };
    forward_run(a->forward, &piece, 1, results);   /* the sequence does not grow */
}

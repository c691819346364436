/* The fast forward pass: token ids -> logits, for one sequence with a KV cache.
 *
 * All memory is taken in forward_create; forward_run allocates nothing.
 */
#ifndef PLUMB_FORWARD_FORWARD_H
#define PLUMB_FORWARD_FORWARD_H

#include "threads/pool.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "model/tap.h"

struct forward;

/* n_ctx: positions the cache holds, in kv_type.  n_batch: most tokens of one forward_run.
 * pool: whose threads compute; NULL: the caller's alone.  It must outlive the pass. */
plumb_status forward_create(struct forward **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                            plumb_kv_type kv_type, const struct kernels *k, struct pool *pool, struct error *err);
void forward_free(struct forward *f);
/* PLUMB_ERROR_MEMORY if there is none for the attention weights that a tap shows; the sink stays as it was. */
plumb_status forward_set_tap(struct forward *f, struct tap_sink sink);
/* Bytes of KV cache and scratch. */
uint64_t forward_bytes(const struct forward *f);
const struct kernels *forward_kernels(const struct forward *f);

/* Computes n tokens (1..n_batch) at positions pos .. pos + n - 1 (< n_ctx), over the cache of positions < pos, and
 * writes their K and V into it.  logits of the last n_logits tokens: (n_logits, n_vocab) f32.
 * ids < n_vocab is the caller's to check. */
void forward_run(struct forward *f, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_logits, float *logits);

#endif

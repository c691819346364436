/* Attention over a KV cache: the step that turns queries into sums of values.
 *
 *   k, v (n_token, n_head_kv * head_dim) -> attention_store -> cache
 *   q (n_token, n_head * head_dim)       -> attention_run   -> attn (n_token, n_head * head_dim)
 *
 * kv_cache.h says how K and V are stored.  The bits of a token's result depend neither on the batch it comes in, nor on
 * the number of threads, nor on the kernels.  NaN or infinity in a K or V makes NaN of what attends to it, and of
 * nothing else.
 */
#ifndef PLUMB_FORWARD_ATTENTION_H
#define PLUMB_FORWARD_ATTENTION_H

#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "threads/pool.h"

struct attention;

/* For up to n_ctx positions.  Both kernel tables and pool (may be NULL) are borrowed.  PLUMB_ERROR_MEMORY if there is
 * no memory for what kv_cache_bytes says and some scratch. */
plumb_status attention_create(struct attention **out, const struct model_config *c, uint32_t n_ctx, plumb_kv_type type,
                              const struct attention_kernels *kernels, const struct kernels *f32, struct pool *pool);
void attention_free(struct attention *a);
/* Of cache and scratch. */
uint64_t attention_bytes(const struct attention *a);

/* Writes K and V of layer il, positions pos .. pos + n_token - 1.  What was kept from pos on is forgotten. */
void attention_store(struct attention *a, uint32_t il, const float *k, const float *v, uint32_t n_token, uint32_t pos);
/* attn = softmax(q k^T * scale) v per head, over all positions up to the token's own, which have been stored.  Vaswani
 * et al. 2017, eq. 1; query heads share a K/V head in groups (Ainslie et al. 2023); scale is 1 / sqrt(head_dim) unless
 * the model has another.  weights (n_token, n_head, pos + n_token): the softmax, unless NULL. */
void attention_run(struct attention *a, uint32_t il, const float *q, uint32_t n_token, uint32_t pos, float *attn,
                   float *weights);

#endif

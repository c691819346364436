/* Attention over the K and V of a sequence: the step that computes weighted sums of values from queries.  It has only
 * scratch, and the caches of an encoder's layers.
 *
 *   k (n_token, n_head_kv * k_dim), v (n_token, n_head_kv * v_dim) -> attention_store -> sequence
 *   q (n_token, n_head * k_dim)                                    -> attention_run   -> attn (n_token, n_head * v_dim)
 *
 * kv_cache.h says how K and V are stored.  The bits of a token's result depend neither on the batch it comes in (if the
 * model is causal), nor on the number of threads, nor on the kernels, nor on whether weights are requested.  With
 * integer codes, a NaN or infinity in K or V turns the result of every query that attends to it into NaN (of V, the
 * elements that are rotated together), and changes nothing else.
 */
#ifndef PLUMB_FORWARD_ATTENTION_H
#define PLUMB_FORWARD_ATTENTION_H

#include "forward/sequence.h"
#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "threads/pool.h"

struct attention;

/* Makes attention for sequences of up to n_ctx tokens, which are computed in batches of up to n_batch, with K and V of
 * that type.  plan, both kernel tables and pool (may be NULL) are borrowed and must outlive it.  kernels has the loops
 * over codes.  f32 has those over floats: all loops for PLUMB_KV_F32, and with codes the softcap and the loop that adds
 * up parts.  Fails with PLUMB_ERROR_MEMORY if there is no memory for its scratch. */
plumb_status attention_create(struct attention **out, const struct plan *plan, uint32_t n_ctx, uint32_t n_batch,
                              plumb_kv_type type, const struct attention_kernels *kernels, const struct kernels *f32,
                              struct pool *pool);
void attention_free(struct attention *a);
/* Frees the first one, in whose place the other comes: that can also do what attention_prepare_drop has prepared. */
void attention_replace(struct attention *old, struct attention *a);
/* Bytes of scratch. */
uint64_t attention_bytes(const struct attention *a);

/* In all functions below, s has the plan, batches and type of attention_create, and at most its context. */

/* Allocates what attention_drop needs for s, for any shift in a context of n_ctx.  Returns false if there is no
 * memory. */
bool attention_prepare_drop(struct attention *a, const struct sequence *s, uint32_t n_ctx);
/* Drops the positions n_keep .. n_keep + n_drop - 1 of all layers, n_drop >= ATTN_BLOCK.  Those behind them, up to
 * n_past - 1, move to their places, which sequence_prepare must have made: their K are rotated by the angles of -n_drop
 * positions, cosine and sine (n_rot / 2) of each of the plan's ropes, and rounded again.  Xiao et al. 2024, "Efficient
 * Streaming Language Models with Attention Sinks", section 3.2. */
void attention_drop(struct attention *a, struct sequence *s, uint32_t n_keep, uint32_t n_drop, uint32_t n_past,
                    float *const cosine[PLAN_ROPES], float *const sine[PLAN_ROPES]);
/* Stores K and V of layer il for positions pos .. pos + n_token - 1, for which sequence_prepare has made room.  All
 * positions before pos must be stored already.  Whatever was stored from pos on is lost.  pos is the end of what was
 * stored before or, to go back, what sequence_rewind returns. */
void attention_store(struct attention *a, struct sequence *s, uint32_t il, const float *k, const float *v,
                     uint32_t n_token, uint32_t pos);
/* attn = softmax(q k^T * scale) v for each head, over the positions that a token sees: those up to its own, which must
 * be stored, or the layer's window of them; if the layer is not causal, also the later ones of the batch; if it reads
 * the encoder's output, all s->n_encoded of the encoder.  If the layer has a softcap
 * or ALiBi, the softcap and then ALiBi are applied before the softmax.  The first token is at pos.
 * Vaswani et al. 2017, eq. 1; groups of query heads share a K/V head (Ainslie et al. 2023).  scale is 1 / sqrt(k_dim)
 * unless the layer has its own (model/plan.h).  sinks: NULL, or (n_head) a score of each head that takes part in the
 * softmax and has no V (Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks").  biases: NULL,
 * or (n_head, 2 PLAN_FAR + 1) what is added to the score of a key by its distance, from -PLAN_FAR on; farther ones have
 * the number at the end.  weights: NULL, or (n_token, n_head, pos + n_token) for the softmax, with 0 at the positions
 * that a token does not see; or a row for all tokens of the encoder. */
void attention_run(struct attention *a, const struct sequence *s, uint32_t il, const float *q, const float *sinks,
                   const float *biases, uint32_t n_token, uint32_t pos, float *attn, float *weights);

#endif

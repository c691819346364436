/* The fast forward pass: token ids -> logits or embeddings, for one sequence with a KV cache.
 *
 * It multiplies with quantized weights, in f32 and integers; reference/reference.h is its slow counterpart.  The bits
 * of a token's logits depend on the model, the adapters, the tokens that it sees, the precision of the kernels, kv_type
 * and, in models with rope_factors_long, n_ctx.  They do not depend on the batches, the number of threads, the
 * instruction set or taps.
 *
 * forward_create, forward_set_tap and forward_set_adapters allocate all memory.  forward_run allocates nothing, cannot
 * fail, and cannot be interrupted: a caller that wants to stop early runs small batches.
 */
#ifndef PLUMB_FORWARD_FORWARD_H
#define PLUMB_FORWARD_FORWARD_H

#include "base/transfer.h"
#include "threads/pool.h"
#include "kernels/kernels.h"
#include "model/adapter.h"
#include "model/model.h"
#include "model/tap.h"

struct forward;

/* n_ctx: positions that the cache holds, stored as kv_type.  n_batch: the most tokens in one forward_run; n_ctx if the
 * model has an encoder, which computes a whole text at once.
 * pool: the threads that compute; NULL: only the caller's.  m and pool are borrowed and must outlive *out (forward_free
 * asks pool for its size); *k is copied.  Fails with PLUMB_ERROR_MEMORY if there is no memory. */
plumb_status forward_create(struct forward **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                            plumb_kv_type kv_type, const struct kernels *k, struct pool *pool, struct error *err);
void forward_free(struct forward *f);
/* Sets the sink that receives the activations of later runs.  Fails with PLUMB_ERROR_MEMORY, and keeps the old sink, if
 * there is no memory for the attention weights that a tap shows. */
plumb_status forward_set_tap(struct forward *f, struct tap_sink sink);
/* Sets the adapters of later runs; NULL: none.  *set is borrowed.  The cache is to be taken for empty afterwards.
 * Fails with PLUMB_ERROR_MEMORY, and keeps the old ones, if there is no memory for scratch. */
plumb_status forward_set_adapters(struct forward *f, const struct adapter_set *set);
/* Bytes of KV cache and scratch. */
uint64_t forward_bytes(const struct forward *f);
const struct kernels *forward_kernels(const struct forward *f);

/* Returns how many of the first n_past tokens can be kept, at most n_past and perhaps none: the next run may begin
 * there.  n_past: at most as many as were computed.  Layers with windows keep a limited number of positions, so going
 * far back means to compute all tokens again.  Recurrent layers keep some snapshots of their states (snapshots.h):
 * those at the end of each run of several tokens, and of SNAPSHOTS_EVERY runs of one. */
uint32_t forward_rewind(const struct forward *f, uint32_t n_past);
/* Makes forward_drop possible for drops that leave n tokens, n_keep of which never move.  Fails with
 * PLUMB_ERROR_UNSUPPORTED if the tokens of this model cannot move, and with PLUMB_ERROR_MEMORY. */
plumb_status forward_prepare_drop(struct forward *f, uint32_t n_keep, uint32_t n, struct error *err);
/* Drops n_drop >= ATTN_BLOCK tokens behind the first n_keep > 0, of n_ctx in the cache, and moves those behind them to
 * their places (attention_drop).  States of recurrent layers stay as they are. */
void forward_drop(struct forward *f, uint32_t n_keep, uint32_t n_drop);
/* Computes n tokens (1..n_batch) at positions pos .. pos + n - 1 (< n_ctx).  Each attends to itself and to the
 * positions before it, all of them or those of the layer's window; in a model that is not causal, also to the later
 * ones of the n.  All positions < pos must be in the cache, from earlier runs.  The K and V of the n tokens are stored.
 * If the cache held tokens from pos on, it loses them all, so a caller goes back by a run at a smaller pos, which must
 * be one that forward_rewind returns.
 * results: (n_result, plan_n_result) f32 for the last n_result <= n tokens: logits, or embeddings if the model has no
 * logits.  It is not used if n_result is 0; NULL: only the embeddings are wanted.
 * The caller must check these limits, and that every id is >= 0 and < n_vocab. */
void forward_run(struct forward *f, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_result, float *results);
/* Computes the embeddings of n_text texts at once, from an empty cache: lengths (n_text) tokens of each, 1 or more, and
 * at most n_batch together.  ids has those of all texts, one after the other.  A text sees only itself, and its bits
 * are those that forward_run computes for it alone.  With taps, one text.  The cache is to be taken for empty
 * afterwards. */
void forward_run_texts(struct forward *f, const int32_t *ids, const uint32_t *lengths, uint32_t n_text);
/* Passes what the pass keeps of the first n_past tokens, which are those of the last run, or as many as forward_rewind
 * has returned since: sections kv (attention_exchange), then a section stat with the states of recurrent layers (n_past
 * and places before it, ascending: how many, then for each its place and plan_states_size floats).  A reader becomes
 * what the writer was, in whatever n_ctx and batches; its cache is to be taken for empty after a failure. */
plumb_status forward_exchange(struct forward *f, struct transfer *t, uint32_t n_past);
/* Computes a text of n tokens (1..n_ctx) with the encoder of a model that has one, and what the decoder reads of it.
 * All later runs are those of a decoder that reads this text; the cache is to be taken for empty. */
void forward_encode(struct forward *f, const int32_t *ids, uint32_t n);
/* The embeddings of the last run, (n_result, n_embd): what the norm after the last layer returned; in a model with an
 * encoder, those of the last forward_encode or forward_run_texts.  Valid until the next run. */
const float *forward_embeddings(const struct forward *f);
/* Makes one vector of the embeddings of n tokens, embeddings (n, n_embd).  kind: not PLUMB_POOLING_MODEL; the model
 * has it.  out: (model_n_pooled), or (n, model_n_pooled) with PLUMB_POOLING_NONE. */
void forward_pool(struct forward *f, const float *embeddings, uint32_t n, plumb_pooling kind, float *out);

#endif

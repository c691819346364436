/* The fast forward pass: token ids -> logits or embeddings.
 *
 * It multiplies with quantized weights, in f32 and integers; reference/reference.h is its slow counterpart.  What it
 * keeps of the tokens of a session is in a struct sequence; the pass itself has only scratch, which sessions share.
 * One run computes tokens of several sequences with one product for each matrix.  The bits of a token's logits depend
 * on the model, the adapters, the tokens that it sees, the precision of the kernels, the type of K and V and, in models
 * with rope_factors_long, n_ctx.  They do not depend on the batches, on other sequences in them, the number of threads,
 * the instruction set or taps.
 *
 * A run cannot be interrupted: a caller that wants to stop early runs small batches.
 */
#ifndef PLUMB_FORWARD_FORWARD_H
#define PLUMB_FORWARD_FORWARD_H

#include "forward/sequence.h"
#include "kernels/kernels.h"
#include "model/adapter.h"
#include "model/model.h"
#include "model/tap.h"
#include "threads/pool.h"

struct forward;

/* The tokens of one sequence in a batch: n of them at positions pos .. pos + n - 1 (< n_ctx).  Each attends to itself
 * and to the positions before it, all of them or those of the layer's window; in a model that is not causal, also to
 * the later ones of the n.  All positions < pos must be in the sequence, from earlier runs.  The K and V of the n
 * tokens are stored.  If the sequence had tokens from pos on, it loses them all, so a caller goes back by a run at a
 * smaller pos, which must be one that sequence_rewind returns.  n_result <= n: of so many of the last tokens results
 * are wanted. */
struct piece {
    struct sequence *sequence;
    const int32_t *ids;   /* (n) */
    uint32_t n, pos, n_result;
    uint32_t first;       /* of the pass: where in the batch its tokens are */
};

/* The pass for sequences of up to n_ctx tokens, with K and V of that type.  n_batch: the most tokens in one run; n_ctx
 * if the model has an encoder, which computes a whole text at once.
 * pool: the threads that compute; NULL: only the caller's.  m and pool are borrowed and must outlive *out (forward_free
 * asks pool for its size); *k is copied.  Fails with PLUMB_ERROR_MEMORY if there is no memory. */
plumb_status forward_create(struct forward **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                            plumb_kv_type kv_type, const struct kernels *k, struct pool *pool, struct error *err);
void forward_free(struct forward *f);
/* Makes the pass one for sequences of up to n_ctx tokens, if it was for fewer.  model_rope_factors must be the same for
 * both.  Returns false if there is no memory; the pass then stays as it is. */
bool forward_grow(struct forward *f, uint32_t n_ctx);
/* Allocates what taps show.  Fails with PLUMB_ERROR_MEMORY. */
plumb_status forward_prepare_taps(struct forward *f);
/* Allocates scratch for the products of adapters.  Fails with PLUMB_ERROR_MEMORY. */
plumb_status forward_prepare_adapters(struct forward *f, const struct adapter_set *set);
/* Sets where the activations of later runs go, for which forward_prepare_taps was called, and the adapters of later
 * runs; NULL: none.  *set is borrowed. */
void forward_use(struct forward *f, struct tap_sink sink, const struct adapter_set *set);
/* Bytes of scratch. */
uint64_t forward_bytes(const struct forward *f);
const struct kernels *forward_kernels(const struct forward *f);

/* Makes forward_drop possible for drops that leave n tokens, n_keep of which never move.  Fails with
 * PLUMB_ERROR_UNSUPPORTED if the tokens of this model cannot move, and with PLUMB_ERROR_MEMORY. */
plumb_status forward_prepare_drop(struct forward *f, const struct sequence *s, uint32_t n_keep, uint32_t n,
                                  struct error *err);
/* Drops n_drop >= ATTN_BLOCK tokens behind the first n_keep > 0, of n_ctx in the sequence, and moves those behind them
 * to their places (attention_drop).  States of recurrent layers stay as they are.  Returns false if there is no memory
 * for pages that were shared with other sequences; nothing has changed then. */
bool forward_drop(struct forward *f, struct sequence *s, uint32_t n_keep, uint32_t n_drop);
/* Computes the tokens of n_piece pieces, 1..n_batch together, each of another sequence.  With taps, one piece.
 * results: (n_result of all pieces, plan_n_result) f32: logits, or embeddings if the model has no logits.  It is not
 * used if there are none; NULL: only the embeddings are wanted.
 * The caller must check these limits, those of struct piece, and that every id is >= 0 and < n_vocab.  Returns n_piece,
 * or the first piece for whose K and V there is no memory, because its sequence grows; nothing is computed then. */
uint32_t forward_run(struct forward *f, const struct piece *pieces, uint32_t n_piece, float *results);
/* Computes the embeddings of n_piece texts at once: pieces of one sequence, which must be empty, from position 0 on.
 * A text sees only itself, and its bits are those that forward_run computes for it alone.  With taps, one text.  The
 * sequence is to be taken for empty afterwards.  Returns false if there is no memory for K and V. */
bool forward_run_texts(struct forward *f, const struct piece *pieces, uint32_t n_piece);
/* Computes a text of n tokens (1..n_ctx) with the encoder of a model that has one, and what the decoder reads of it.
 * All later runs of the sequence are those of a decoder that reads this text; it is to be taken for empty.  Returns
 * false if there is no memory for K and V. */
bool forward_encode(struct forward *f, struct sequence *s, const int32_t *ids, uint32_t n);
/* The embeddings of the last run, (n_result, n_embd): what the norm after the last layer returned; in a model with an
 * encoder, those of the last forward_encode or forward_run_texts.  Valid until the next run. */
const float *forward_embeddings(const struct forward *f);
/* Makes one vector of the embeddings of n tokens, embeddings (n, n_embd).  kind: not PLUMB_POOLING_MODEL; the model
 * has it.  out: (model_n_pooled), or (n, model_n_pooled) with PLUMB_POOLING_NONE. */
void forward_pool(struct forward *f, const float *embeddings, uint32_t n, plumb_pooling kind, float *out);

#endif

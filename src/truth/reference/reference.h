/* The reference pass, which defines what a GGUF means.  It dequantizes weights to f32, computes every sum and function
 * in f64, and uses no tricks.  It is slow; every faster path is compared with it.  mistakes/quirks.h lets it make known
 * mistakes.
 *
 * It differs from the fast pass (forward/forward.h) in that it does not round activations unless told to, stores K and
 * V in f64, runs in the caller's thread, and uses libm, whose last bits depend on the host.  It supports every type of
 * weight that can be dequantized.
 */
#ifndef PLUMB_REFERENCE_REFERENCE_H
#define PLUMB_REFERENCE_REFERENCE_H

#include "model/model.h"
#include "model/tap.h"
#include "reference/rounding.h"

struct reference;

/* n_ctx: positions that the cache holds.  n_batch: the most tokens in one reference_run.  m is borrowed. */
plumb_status reference_create(struct reference **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                              struct error *err);
void reference_free(struct reference *r);
/* Sets the sink that receives the activations of later runs.  Fails with PLUMB_ERROR_MEMORY, and keeps the old sink, if
 * there is no memory for an f32 copy of the largest tap. */
plumb_status reference_set_tap(struct reference *r, struct tap_sink sink);
/* Bytes of cache and scratch, without the scratch for single rows of weights. */
uint64_t reference_bytes(const struct reference *r);

/* Lets force change activations: every tap but result_output calls it, after the sink, with the activation itself, x
 * (tap->n_token, tap->n_head, tap->n).  The pass continues with whatever force writes to x.  The x of Kcur_rope and of
 * Vcur is in the cache, so later runs use it too.  tap->data is NULL if there is no sink.  force may be NULL. */
void reference_set_force(struct reference *r, void (*force)(void *user, const plumb_tap *tap, double *x), void *user);
/* Lets give replace products: it is called before every product of attention and of a feed-forward network without
 * experts, with the user of reference_set_force and the input x (n, n_in).  If it returns true, it has filled y
 * (n, n_out) with the product, its bias included, and the pass does not compute it.  give may be NULL. */
void reference_set_give(struct reference *r, bool (*give)(void *user, const struct affine *of, const double *x,
                                                          uint32_t n, double *y));
/* Lets all later runs compute the layers first .. end - 1 only.  If the model has more than `end`, no results are
 * written.  0, UINT32_MAX: all layers.  Of the layers before the first, force is called with l_out of the last one; it
 * must replace all of it.  Only for models without states. */
void reference_limit(struct reference *r, uint32_t first, uint32_t end);

/* Lets all later runs round activations; NULL: no longer.  *how is copied.  PLUMB_ERROR_MEMORY: nothing changed. */
plumb_status reference_set_rounding(struct reference *r, const struct roundings *how);

/* As forward_run, with the same limits. */
void reference_run(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_result,
                   float *results);
/* The embeddings of the last run, (n_result, n_embd), are copied to out. */
void reference_embeddings(const struct reference *r, uint32_t n_result, float *out);
/* The kind of pooling of the model, or what a mistake makes of it. */
plumb_pooling reference_pooling(const struct reference *r);
/* As forward_pool. */
void reference_pool(struct reference *r, const float *embeddings, uint32_t n, plumb_pooling kind, float *out);

#endif

/* The reference pass, which defines what a GGUF means.  It dequantizes weights to f32, computes every sum and function
 * in f64, and uses no tricks.  It is slow; every faster path is compared with it.  mistakes/known.h lets it make known
 * mistakes.
 *
 * It differs from the fast pass (forward/forward.h) in that it does not round activations unless told to, stores K and
 * V in f64, runs in the caller's thread, and uses libm, whose last bits depend on the host.  It supports every type of
 * weight that can be dequantized.
 */
#ifndef PLUMB_REFERENCE_REFERENCE_H
#define PLUMB_REFERENCE_REFERENCE_H

#include "model/adapter.h"
#include "model/model.h"
#include "model/tap.h"
#include "reference/rounding.h"

struct reference;

/* n_ctx: positions that the cache holds.  n_batch: as in forward_create.  m is borrowed. */
plumb_status reference_create(struct reference **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                              struct error *err);
void reference_free(struct reference *r);
/* Sets the sink that receives the activations of later runs.  Fails with PLUMB_ERROR_MEMORY, and keeps the old sink, if
 * there is no memory for an f32 copy of the largest tap. */
plumb_status reference_set_tap(struct reference *r, struct tap_sink sink);
/* As forward_set_adapters. */
plumb_status reference_set_adapters(struct reference *r, const struct adapter_set *set);
/* Bytes of cache and scratch, without the scratch for single rows of weights. */
uint64_t reference_bytes(const struct reference *r);

/* Lets force change activations between steps: every tap but result_output calls it, after the sink, with the
 * activation itself, x (tap->n_token, tap->n_head, tap->n).  The pass continues with whatever force writes to x.  The x
 * of Kcur_rope and of Vcur is in the cache, so later runs use it too.  tap->data is NULL if there is no sink.  force
 * may be NULL. */
void reference_set_force(struct reference *r, void (*force)(void *user, const plumb_tap *tap, double *x), void *user);
/* Lets all later runs round activations; NULL: no longer.  *how is copied.  PLUMB_ERROR_MEMORY: nothing changed. */
plumb_status reference_set_rounding(struct reference *r, const struct roundings *how);

/* The layers first .. end - 1, as far as the model has them. */
struct layers { uint32_t first, end; };
/* As forward_run, with the same limits. */
void reference_run(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_result,
                   float *results);
/* As forward_encode. */
void reference_encode(struct reference *r, const int32_t *ids, uint32_t n);
/* As forward_rewind. */
uint32_t reference_rewind(const struct reference *r, uint32_t n_past);
/* Computes some layers only.  If these lack the model's last one, no results are written.  If they lack its first one,
 * there must be a force, which is called with l_out of the layer before them and must replace all of it.  Only for
 * models without states. */
void reference_run_layers(struct reference *r, struct layers layers, const int32_t *ids, uint32_t n, uint32_t pos,
                          uint32_t n_result, float *results);
/* The embeddings of the last run, (n_result, n_embd), are copied to out. */
void reference_embeddings(const struct reference *r, uint32_t n_result, float *out);
/* The kind of pooling of the model, or what a mistake makes of it. */
plumb_pooling reference_pooling(const struct reference *r);
/* As forward_pool. */
void reference_pool(struct reference *r, const float *embeddings, uint32_t n, plumb_pooling kind, float *out);

#endif

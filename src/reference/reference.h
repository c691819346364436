/* The reference pass: what a GGUF means.  Weights dequantized to f32, every sum and function in f64, no tricks.
 * Slow; every faster path is measured against it.  With quirks it is wrong in ways that are known by name.
 */
#ifndef PLUMB_REFERENCE_REFERENCE_H
#define PLUMB_REFERENCE_REFERENCE_H

#include "model/model.h"
#include "model/tap.h"
#include "reference/quirks.h"

struct reference;

/* n_ctx: positions the cache holds.  n_batch: most tokens of one reference_run. */
plumb_status reference_create(struct reference **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                              struct error *err);
void reference_free(struct reference *r);
/* PLUMB_ERROR_MEMORY if there is none for a copy in f32 of the largest tap; the sink stays as it was. */
plumb_status reference_set_tap(struct reference *r, struct tap_sink sink);
uint64_t reference_bytes(const struct reference *r);

/* The mistakes that all later runs make, copied; NULL: none.  tokens_bos and tokens_last are not among them: see
 * quirk_tokens.  What a batch is decides some of them: the run at position 0 must then be the whole prompt, and every
 * later run one token. */
void reference_set_quirks(struct reference *r, const struct quirks *q);
/* Called at every tap but result_output, after the sink, with the activation itself: x (tap->n_token, tap->n_head,
 * tap->n).  What it writes there the pass goes on with, and so do later runs with the K and V of Kcur_rope and Vcur,
 * which are the cache's.  tap->data is NULL where there is no sink.  force NULL: none. */
void reference_set_force(struct reference *r, void (*force)(void *user, const plumb_tap *tap, double *x), void *user);
/* All later runs end after so many layers, without logits (none are written) unless these are all; UINT32_MAX: all. */
void reference_limit(struct reference *r, uint32_t n_layer);

/* As forward_run. */
void reference_run(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_logits,
                   float *logits);

#endif

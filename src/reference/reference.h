/* The reference pass: what a GGUF means.  Weights dequantized to f32, every sum and function in f64, no tricks.
 * Slow; every faster path is measured against it.
 */
#ifndef PLUMB_REFERENCE_REFERENCE_H
#define PLUMB_REFERENCE_REFERENCE_H

#include "model/model.h"
#include "model/tap.h"

struct reference;

/* n_ctx: positions the cache holds.  n_batch: most tokens of one reference_run. */
plumb_status reference_create(struct reference **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                              struct error *err);
void reference_free(struct reference *r);
/* PLUMB_ERROR_MEMORY if there is none for a copy in f32 of the largest tap; the sink stays as it was. */
plumb_status reference_set_tap(struct reference *r, struct tap_sink sink);
uint64_t reference_bytes(const struct reference *r);

/* As forward_run. */
void reference_run(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_logits,
                   float *logits);

#endif

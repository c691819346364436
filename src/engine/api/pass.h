/* A pass other than the fast one, as a session calls it: by pointers only, so that the engine is linked without the
 * reference pass, whose header describes each of these functions (reference/reference.h). */
#ifndef PLUMB_API_PASS_H
#define PLUMB_API_PASS_H

#include "model/adapter.h"
#include "model/model.h"
#include "model/tap.h"

struct reference;

struct plumb_pass_functions {
    plumb_status (*create)(struct reference **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                           struct error *err);
    void (*free)(struct reference *r);
    plumb_status (*set_tap)(struct reference *r, struct tap_sink sink);
    uint64_t (*bytes)(const struct reference *r);
    uint32_t (*rewind)(const struct reference *r, uint32_t n_past);
    void (*run)(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_result, float *results);
    void (*embeddings)(const struct reference *r, uint32_t n_result, float *out);
    void (*pool)(struct reference *r, const float *embeddings, uint32_t n, plumb_pooling kind, float *out);
    void (*encode)(struct reference *r, const int32_t *ids, uint32_t n);
    plumb_status (*set_adapters)(struct reference *r, const struct adapter_set *set);
};

#endif

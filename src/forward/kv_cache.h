/* The KV cache: K and V of every position so far, for each layer and each K/V head.
 *
 * K and V are stored as integer codes, with one scale for the K of a head at a position and one for its V, in the tiles
 * of kernels/attention.h; with PLUMB_KV_F32 they are stored as they come.
 *
 *   each of (n_layer, n_head_kv) -> parts of KV_PART positions -> K (positions, n_dim), then V (positions, n_dim)
 *
 * So attention reads K and V of a part as one stream of bytes.  In f32 all positions are one part.
 */
#ifndef PLUMB_FORWARD_KV_CACHE_H
#define PLUMB_FORWARD_KV_CACHE_H

#include "kernels/attention.h"
#include "model/model.h"

/* Positions of a part: a multiple of ATTN_BLOCK. */
enum { KV_PART = 1024 };

struct kv_cache {
    plumb_kv_type type;
    uint32_t code_bytes;            /* of an element: 1, 2 or, of f32, 4 */
    uint32_t head_dim, n_dim;       /* elements of a head's K or V; rounded up to ATTN_TILE */
    uint32_t n_head_kv, n_position; /* positions are rounded up to ATTN_BLOCK */
    uint32_t part;                  /* positions of a part; the last one may have fewer */
    uint8_t *codes;
    float *k_scale, *v_scale;       /* (n_layer, n_head_kv, n_position), NULL for f32 */
    uint64_t bytes;                 /* that it has allocated */
};

static inline uint32_t kv_round_up(uint32_t n, uint32_t to) { return (uint32_t)(((uint64_t)n + to - 1) / to * to); }

/* For up to n_ctx positions.  False if there is no memory; kv_cache_free then, too. */
bool kv_cache_init(struct kv_cache *cache, const struct model_config *c, uint32_t n_ctx, plumb_kv_type type);
void kv_cache_free(struct kv_cache *cache);
/* What kv_cache_init allocates, as a double: for any model and any context. */
double kv_cache_bytes(const struct model_config *c, uint32_t n_ctx, plumb_kv_type type);

/* Index of a position's scale in k_scale and v_scale. */
static inline size_t kv_cache_row(const struct kv_cache *cache, uint32_t il, uint32_t head, uint32_t p) {
    return ((size_t)il * cache->n_head_kv + head) * cache->n_position + p;
}
/* K and V of the part that position p is in. */
const uint8_t *kv_cache_k(const struct kv_cache *cache, uint32_t il, uint32_t head, uint32_t p);
const uint8_t *kv_cache_v(const struct kv_cache *cache, uint32_t il, uint32_t head, uint32_t p);
/* Stores k and v, (head_dim) each, as position p of a head.  scratch: (n_dim) codes, zeros from head_dim on; not used
 * for f32.  Positions are stored in ascending order: the first one of a tile of K or of a block of V clears all of it,
 * because kernels compute with whole tiles and drop the results of positions that are not there yet. */
void kv_cache_store(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t il, uint32_t head,
                    uint32_t p, const float *k, const float *v, int16_t *scratch);

#endif

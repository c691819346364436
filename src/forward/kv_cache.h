/* The KV cache: K and V of every position so far, for each layer and each K/V head.
 *
 * K and V are stored as integer codes in the tiles of kernels/attention.h.  Each head has one scale for its K and one
 * for its V at every position.  With PLUMB_KV_F32 the cache stores K and V unchanged.
 *
 *   each of (n_layer, n_head_kv) -> parts of KV_PART positions -> K (positions, n_dim), then V (positions, n_dim)
 *
 * So attention reads K and V of a part as one stream of bytes.  With PLUMB_KV_F32 all positions are one part.
 */
#ifndef PLUMB_FORWARD_KV_CACHE_H
#define PLUMB_FORWARD_KV_CACHE_H

#include "kernels/attention.h"
#include "model/model.h"

/* Positions in a part, a multiple of ATTN_BLOCK. */
enum { KV_PART = 1024 };

struct kv_cache {
    plumb_kv_type type;
    uint32_t code_bytes;            /* bytes of an element: 1, 2, or 4 for f32 */
    uint32_t head_dim, n_dim;       /* elements of a head's K or V; n_dim is rounded up to ATTN_TILE */
    uint32_t n_head_kv, n_position; /* n_position is n_ctx rounded up to ATTN_BLOCK */
    uint32_t part;                  /* positions in a part; the last one may have fewer */
    uint8_t *codes;
    float *k_scale, *v_scale;       /* (n_layer, n_head_kv, n_position), NULL for f32 */
    uint64_t bytes;                 /* allocated by the cache */
};

static inline uint32_t kv_round_up(uint32_t n, uint32_t to) { return (uint32_t)(((uint64_t)n + to - 1) / to * to); }

/* Makes a cache for up to n_ctx positions.  Returns false if there is no memory; kv_cache_free must follow then too. */
bool kv_cache_init(struct kv_cache *cache, const struct model_config *c, uint32_t n_ctx, plumb_kv_type type);
void kv_cache_free(struct kv_cache *cache);
/* Returns how many bytes kv_cache_init allocates.  It is a double, so no model or context overflows it. */
double kv_cache_bytes(const struct model_config *c, uint32_t n_ctx, plumb_kv_type type);

/* Index of a position's scale in k_scale and v_scale. */
static inline size_t kv_cache_row(const struct kv_cache *cache, uint32_t il, uint32_t head, uint32_t p) {
    return ((size_t)il * cache->n_head_kv + head) * cache->n_position + p;
}
/* The start of K and of V in the part that holds position p. */
uint8_t *kv_cache_k(const struct kv_cache *cache, uint32_t il, uint32_t head, uint32_t p);
uint8_t *kv_cache_v(const struct kv_cache *cache, uint32_t il, uint32_t head, uint32_t p);
/* Stores k and v, (head_dim) each, as position p of a head.  scratch: (n_dim) codes, zeros from head_dim on; not used
 * for f32.  Positions must be stored in ascending order: the first position of a K tile or of a V block clears all of
 * it, because kernels compute with whole tiles and drop the results of positions that are not there yet. */
void kv_cache_store(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t il, uint32_t head,
                    uint32_t p, const float *k, const float *v, int16_t *scratch);

#endif

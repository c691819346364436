/* The KV cache of a layer: K and V of every position so far, for each K/V head.
 *
 * K and V are stored as integer codes in the layouts of kernels/attention.h: K in tiles of ATTN_TILE positions, V in
 * blocks of ATTN_BLOCK positions.  Each head has one scale for its K and one for its V at every position.  With
 * PLUMB_KV_F32 the cache stores K and V unchanged, as rows (positions, k_row) and (positions, v_row).
 *
 *   each of n_head_kv -> parts of KV_PART positions -> K (positions, k_row), then V (positions, v_row)
 *
 * Attention computes with one part at a time (attention.c), so it reads K and V of a part as one stream of bytes.  With
 * PLUMB_KV_F32 all positions are one part.
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
    uint32_t k_dim, v_dim;          /* elements of a head's K, and of its V */
    uint32_t k_row, v_row;          /* k_dim and v_dim, rounded up to multiples of ATTN_TILE */
    uint32_t n_head_kv, n_position; /* n_position is n_ctx rounded up to a multiple of ATTN_BLOCK */
    uint32_t part_length;           /* positions in a part; the last part may have fewer */
    uint8_t *codes;                 /* all parts; for f32 they hold floats */
    float *k_scale, *v_scale;       /* (n_head_kv, n_position), NULL for f32 */
    uint64_t bytes;                 /* of codes and scales */
};

static inline uint32_t kv_round_up(uint32_t n, uint32_t to) { return (uint32_t)(((uint64_t)n + to - 1) / to * to); }

/* Computes the sizes of the cache of a layer for up to n_ctx positions.  Returns false if they exceed 64 bits. */
bool kv_cache_init(struct kv_cache *cache, const struct attn_plan *a, uint32_t n_ctx, plumb_kv_type type);
/* Gives the cache its memory.  memory: cache->bytes bytes, aligned for floats.  The caller owns it. */
void kv_cache_place(struct kv_cache *cache, uint8_t *memory);
/* Returns how many bytes the caches of all layers take.  It is a double, so no model or context overflows it. */
double kv_cache_bytes(const struct plan *p, uint32_t n_ctx, plumb_kv_type type);

/* Index of a position in (n_head_kv, n_position), where k_scale and v_scale have its scales. */
static inline size_t kv_cache_row(const struct kv_cache *cache, uint32_t head, uint32_t p) {
    return (size_t)head * cache->n_position + p;
}
/* The start of K and of V in the part that holds position p. */
uint8_t *kv_cache_k(const struct kv_cache *cache, uint32_t head, uint32_t p);
uint8_t *kv_cache_v(const struct kv_cache *cache, uint32_t head, uint32_t p);
/* Stores k (k_dim) and v (v_dim) as position p of a head.  scratch: (k_row or v_row, whichever is larger) codes; not
 * used for f32.  All positions before p must be stored already, and those after p are lost.  The first position of a K
 * tile or of a V block clears all of it: kernels compute with whole tiles and blocks, so the codes of positions that
 * are not stored yet must be initialized.  Kernels discard the results of these positions (attention_mask). */
void kv_cache_store(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t p,
                    const float *k, const float *v, int16_t *scratch);

#endif

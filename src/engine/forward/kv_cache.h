/* The KV cache of a layer: K and V of every position so far, for each K/V head.  A layer with a window needs only the
 * latest positions, so its cache is a ring if that takes less memory: position p then replaces position p - n_position.
 *
 * K and V are stored as integer codes in the layouts of kernels/attention.h: K in tiles of ATTN_TILE positions, V in
 * blocks of ATTN_BLOCK positions.  Each head has one scale for its K and one for its V at every position.  With
 * PLUMB_KV_F32 the cache stores K and V unchanged, as rows (positions, k_row) and (positions, v_row).
 *
 *   each of n_head_kv -> parts of KV_PART positions -> K (positions, k_row), then V (positions, v_row)
 *
 * Attention computes with one part at a time (attention.c), so it reads K and V of a part as one stream of bytes.  The
 * length of a ring is a multiple of KV_PART, so the positions of a part are in order there too.  With PLUMB_KV_F32 all
 * positions are one part.
 */
#ifndef PLUMB_FORWARD_KV_CACHE_H
#define PLUMB_FORWARD_KV_CACHE_H

#include "kernels/attention.h"
#include "model/model.h"

/* KV_PART: positions in a part, a multiple of ATTN_BLOCK.
 * KV_REWIND: a ring is long enough that its sequence can go back by that many tokens, such as the last question and
 * its answer.  With 480, windows of up to 513 tokens have rings of one part. */
enum { KV_PART = 1024, KV_REWIND = 480 };

struct kv_cache {
    plumb_kv_type type;
    uint32_t code_bytes;            /* bytes of an element: 1, 2, or 4 for f32 */
    uint32_t k_dim, v_dim;          /* elements of a head's K, and of its V */
    uint32_t k_row, v_row;          /* k_dim and v_dim, rounded up to multiples of ATTN_TILE */
    uint32_t n_head_kv, n_position; /* n_position is kv_cache_length */
    uint32_t part_length;           /* positions in a part; the last part may have fewer */
    uint32_t n_lost;                /* the first positions, which later ones have replaced; 0 without a ring */
    uint8_t *codes;                 /* all parts; for f32 they hold floats */
    float *k_scale, *v_scale;       /* (n_head_kv, n_position), NULL for f32 */
    uint64_t bytes;                 /* of codes and scales */
};

static inline uint32_t kv_round_up(uint32_t n, uint32_t to) { return (uint32_t)(((uint64_t)n + to - 1) / to * to); }

/* Returns for how many positions the cache of a layer has room: n_ctx, rounded up to a multiple of ATTN_BLOCK, or the
 * length of a ring if that is less.  In a model that is not causal, n_batch is n_ctx, so there are no rings. */
uint32_t kv_cache_length(const struct attn_plan *a, uint32_t n_ctx, uint32_t n_batch);
/* Computes the sizes of the cache of a layer for up to n_ctx positions, which are stored and read in batches of up to
 * n_batch.  Returns false if they exceed 64 bits. */
bool kv_cache_init(struct kv_cache *cache, const struct attn_plan *a, uint32_t n_ctx, uint32_t n_batch,
                   plumb_kv_type type);
/* Gives the cache its memory.  memory: cache->bytes bytes, aligned for floats.  The caller owns it. */
void kv_cache_place(struct kv_cache *cache, uint8_t *memory);
/* Returns how many bytes the caches and states of all layers take, and the snapshots of the states.  It is a double, so
 * no model or context overflows it. */
double kv_cache_bytes(const struct plan *p, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type);

/* Returns how many tokens a session holds if the caller asks for none: those that the model was trained for, or as many
 * as have at most PLUMB_DEFAULT_KV_BYTES of kv_cache_bytes with the default batch, but at least PLUMB_LEAST_CTX. */
uint32_t kv_cache_default(const struct plan *p, plumb_kv_type type);

/* Index of a position in (n_head_kv, n_position), where k_scale and v_scale have its scales. */
static inline size_t kv_cache_row(const struct kv_cache *cache, uint32_t head, uint32_t p) {
    return (size_t)head * cache->n_position + p % cache->n_position;
}
/* The start of K and of V in the part that holds position p. */
uint8_t *kv_cache_k(const struct kv_cache *cache, uint32_t head, uint32_t p);
uint8_t *kv_cache_v(const struct kv_cache *cache, uint32_t head, uint32_t p);
/* Must be called before the positions begin .. end - 1 are stored in any head: updates n_lost. */
void kv_cache_begin(struct kv_cache *cache, uint32_t begin, uint32_t end);
/* Stores k (k_dim) and v (v_dim) as position p of a head.  scratch: (k_row or v_row, whichever is larger) codes; not
 * used for f32.  All positions before p must be stored already, and those after p are lost.  The first position of a K
 * tile or of a V block clears all of it: kernels compute with whole tiles and blocks, so the codes of positions that
 * are not stored yet must be initialized.  Kernels discard the results of these positions (attention_mask). */
void kv_cache_store(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t p,
                    const float *k, const float *v, int16_t *scratch);

#endif

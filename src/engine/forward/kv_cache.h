/* The KV cache of a layer: K and V of every position so far, for each K/V head.  A layer with a window needs only the
 * latest positions, so its cache is a ring if that takes less memory: position p then replaces position p - n_position.
 *
 * K and V are stored as integer codes in the layouts of kernels/attention.h: K in tiles of ATTN_TILE positions, V in
 * blocks of ATTN_BLOCK positions.  The types of kv_format divide a head into slices, each with a scale of its own at
 * every position.  With PLUMB_KV_F32 the cache stores K and V unchanged, as rows (positions, k_row) and (positions,
 * v_row).
 *
 *   page of up to KV_PART positions -> each of n_head_kv -> K (slices, positions, k_row / slices), then V likewise
 *                                   -> scales of K (n_head_kv, slices, positions), then of V likewise
 *
 * Caches of several sequences that begin with the same tokens may share pages (kv_cache_share).  A page that has
 * several owners is copied before one of them writes to it (kv_cache_prepare).
 *
 * Codes of 4 bits are stored plus 8; byte j of 16 has the codes j and j + 16 of 32 (kv_cache_unpack).
 *
 * Q8_0 and Q4_0 store heads that are rotated (kv_rotate): an element that is much larger than its neighbours would make
 * the scale of its slice large, and a rotation spreads it over the head.  Ashkboos et al. 2024, "QuaRot".  Attention
 * rotates Q in the same way, which leaves the dots with K as they are, and rotates the weighted sums of V back.
 *
 * Attention computes with one page at a time (attention.c), so it reads K and V of a head as one stream of bytes.  The
 * length of a ring is a multiple of KV_PART, so the positions of a page are in order there too.
 */
#ifndef PLUMB_FORWARD_KV_CACHE_H
#define PLUMB_FORWARD_KV_CACHE_H

#include "base/shared.h"
#include "base/transfer.h"
#include "kernels/attention.h"
#include "model/model.h"

/* KV_PART: positions in a page, a multiple of ATTN_BLOCK.
 * KV_REWIND: a ring is long enough that its sequence can go back by that many tokens, such as the last question and
 * its answer.  With 480, windows of up to 513 tokens have rings of 1024 positions.
 * KV_SLICE: elements of a slice, a block of ggml's types. */
enum { KV_PART = 1024, KV_REWIND = 480, KV_SLICE = 32 };

/* bits: of an element.  scale_bytes: of a scale, which is an f32, or an f16 of KV_SLICE elements of a head; 0: none. */
struct kv_format { uint32_t bits, scale_bytes; };

struct kv_cache {
    plumb_kv_type type;
    struct kv_format format;
    uint32_t k_dim, v_dim;          /* elements of a head's K, and of its V */
    uint32_t k_row, v_row;          /* k_dim and v_dim, rounded up to multiples of ATTN_TILE */
    uint32_t n_k_slice, n_v_slice;  /* slices of a head */
    uint32_t n_head_kv, n_position; /* n_position is kv_cache_length */
    uint32_t n_lost;                /* the first positions, which later ones have replaced; 0 without a ring */
    uint32_t n_page;
    struct shared **pages;          /* (n_page) floats, or codes and then scales; NULL: not allocated yet */
    uint64_t bytes;                 /* of codes and scales of all positions */
};

/* Positions in page i: KV_PART, or fewer in the last one. */
static inline uint32_t kv_page_length(const struct kv_cache *cache, uint32_t i) {
    uint32_t left = cache->n_position - i * KV_PART;
    return left < KV_PART ? left : KV_PART;
}

/* Whether a type divides heads into slices of KV_SLICE elements, and stores them rotated. */
static inline bool kv_type_has_slices(plumb_kv_type type) { return type == PLUMB_KV_Q8_0 || type == PLUMB_KV_Q4_0; }

static inline uint32_t kv_round_up(uint32_t n, uint32_t to) { return (uint32_t)(((uint64_t)n + to - 1) / to * to); }

/* Returns for how many positions the cache of a layer has room: n_ctx, rounded up to a multiple of ATTN_BLOCK, or the
 * length of a ring if that is less.  In a model that is not causal, n_batch is n_ctx, so there are no rings. */
uint32_t kv_cache_length(const struct attn_plan *a, uint32_t n_ctx, uint32_t n_batch);
/* Makes an empty cache of a layer for up to n_ctx positions, which are stored and read in batches of up to n_batch.
 * Returns false if there is no memory for the list of its pages, or their sizes exceed 64 bits; kv_cache_free must
 * follow in any case. */
bool kv_cache_init(struct kv_cache *cache, const struct attn_plan *a, uint32_t n_ctx, uint32_t n_batch,
                   plumb_kv_type type);
/* Frees the pages that no other cache has.  *cache may be zeros. */
void kv_cache_free(struct kv_cache *cache);
/* Makes the pages of the positions begin .. end - 1 those of this cache alone, so that it can write to them: allocates
 * those that it does not have, and copies those that others have too.  It must be called before anything is stored.
 * Returns false if there is no memory; the cache then holds what it held before. */
bool kv_cache_prepare(struct kv_cache *cache, uint32_t begin, uint32_t end);
/* Makes `to`, which kv_cache_init has made alike, hold what `from` has of the positions before `end`.  They share the
 * pages. */
void kv_cache_share(struct kv_cache *to, const struct kv_cache *from, uint32_t end);
/* Leaves the pages that have no position before `end`; all of a ring only if end is 0. */
void kv_cache_trim(struct kv_cache *cache, uint32_t end);
/* Bytes of the pages that the cache has, those that others have too included. */
uint64_t kv_cache_held(const struct kv_cache *cache);
/* Returns how many bytes the caches and states of all layers take, and the snapshots of the states (n_snapshot: as in
 * snapshots_max).  It is a double, so no model or context overflows it. */
double kv_cache_bytes(const struct plan *p, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type, uint32_t n_snapshot);

/* Returns how many tokens a session holds if the caller asks for none: those that the model was trained for, or as many
 * as have at most PLUMB_DEFAULT_KV_BYTES of kv_cache_bytes with the default batch, but at least PLUMB_LEAST_CTX; see
 * plumb_model_default_ctx for what shortens it further. */
uint32_t kv_cache_default(const struct plan *p, plumb_kv_type type);

/* PLUMB_ERROR_UNSUPPORTED if type cannot store some head of the model. */
plumb_status kv_cache_check(const struct plan *p, plumb_kv_type type, struct error *err);

/* The bytes of n elements, a multiple of KV_SLICE unless they have whole bytes. */
static inline size_t kv_cache_size(const struct kv_cache *cache, uint64_t n) {
    return (size_t)(n * cache->format.bits / 8);
}
/* The start of a slice of K and of V in the page that holds position p. */
uint8_t *kv_cache_k(const struct kv_cache *cache, uint32_t head, uint32_t slice, uint32_t p);
uint8_t *kv_cache_v(const struct kv_cache *cache, uint32_t head, uint32_t slice, uint32_t p);
/* The scale of a slice of K and of V at position p; those of the next positions of its page follow. */
uint8_t *kv_cache_k_scale(const struct kv_cache *cache, uint32_t head, uint32_t slice, uint32_t p);
uint8_t *kv_cache_v_scale(const struct kv_cache *cache, uint32_t head, uint32_t slice, uint32_t p);
/* Returns n codes of 8 or 16 bits for the kernels: `codes` itself, or scratch (n) with codes of 4 bits unpacked, n % 32
 * == 0. */
const void *kv_cache_unpack(const struct kv_cache *cache, const uint8_t *codes, size_t n, int8_t *scratch);
/* Returns n scales as floats: `scales` itself, or scratch (n) with f16 widened. */
const float *kv_cache_widen(const struct kv_cache *cache, const uint8_t *scales, size_t n, float *scratch);
/* The tile of K, or the block of V, that has position p of slice j of a head: its codes, their bytes, and how many
 * positions it has; a row of f32 has one. */
struct kv_tile { uint8_t *codes; size_t bytes; uint32_t n; };
struct kv_tile kv_cache_k_tile(const struct kv_cache *cache, uint32_t head, uint32_t j, uint32_t p);
struct kv_tile kv_cache_v_block(const struct kv_cache *cache, uint32_t head, uint32_t j, uint32_t p);
/* Multiplies x (n) by the orthonormal Walsh-Hadamard matrix, which is its own inverse, in blocks of the largest power
 * of two that divides n. */
void kv_rotate(float *x, uint32_t n);
/* Returns a head x (n) as the cache stores it: x itself, or rotated (n). */
const float *kv_cache_rotate(const struct kv_cache *cache, const float *x, uint32_t n, float *rotated);
/* Quantizes a slice x (KV_SLICE) as ggml's quantize_row_q8_0_ref and quantize_row_q4_0_ref do, and returns its scale.
 * If x holds NaN or infinity, or the scale is beyond f16, it is NaN and the codes are zeros; they also are if all |x|
 * are below ATTN_MIN. */
uint16_t kv_quantize(plumb_kv_type type, const float *x, int16_t *codes);
/* Must be called before the positions begin .. end - 1 are stored in any head: updates n_lost. */
void kv_cache_begin(struct kv_cache *cache, uint32_t begin, uint32_t end);
/* Stores k (k_dim) and v (v_dim) as position p of a head.  scratch and rotated: (k_row or v_row, whichever is larger)
 * codes and floats; not used for f32.  All positions before p must be stored already, and those after p are lost.  The
 * first position of a K tile or of a V block clears all of it: kernels compute with whole tiles and blocks, so the
 * codes of positions that are not stored yet must be initialized.  Kernels discard the results of these positions
 * (weigh, attention_scales). */
void kv_cache_store(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t p,
                    const float *k, const float *v, int16_t *scratch, float *rotated);
/* Reads position p of a head: its K as floats, (k_dim), and behind them its V as it is stored.  record: (k_dim + v_row)
 * floats.  scratch: as in kv_cache_store. */
void kv_cache_take(const struct kv_cache *cache, uint32_t head, uint32_t p, float *record, int16_t *scratch);
/* Stores such a record as position p of a head, as kv_cache_store does: its K is rounded, and its V is not. */
void kv_cache_give(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t p,
                   const float *record, int16_t *scratch, float *rotated);
/* Must be called before records from position `from` on are given to position `to` and those after it, from > to:
 * returns the first position to take.  end: of the positions that are stored. */
uint32_t kv_cache_move(struct kv_cache *cache, uint32_t from, uint32_t to, uint32_t end);
/* Passes the positions before n_past that the cache has: the number of the first one, then of each head, block by
 * block, for each slice of K its codes (whole tiles) and scales, and the same of V (whole blocks; scales of stored
 * positions).  f32: rows.  first: the first position that a token at n_past sees.  Other positions are written as
 * zeros, so that the bytes depend only on the tokens that the cache holds, and on how many of the first ones it has
 * lost.
 * Caches of another length or for other batches read the same bytes.  What is read is checked, so that the sums of
 * kernels cannot overflow. */
plumb_status kv_cache_exchange(struct kv_cache *cache, struct transfer *t, uint32_t n_past, uint32_t first);

#endif

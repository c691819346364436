/* Compiled for speed. */
#include "forward/kv_cache.h"

#include "forward/snapshots.h"

#include <math.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static uint32_t element_bytes(plumb_kv_type type) {
    return type == PLUMB_KV_F32 ? sizeof(float) : type == PLUMB_KV_I16 ? sizeof(int16_t) : sizeof(int8_t);
}

/* A batch is stored before its tokens are computed.  Storing it clears all of the block of its last token, which are up
 * to ATTN_BLOCK - 1 positions after that token, while its first token still needs the window - 1 positions before
 * itself.  After going back, the next token is like the first one of a batch that holds the removed tokens. */
uint32_t kv_cache_length(const struct attn_plan *a, uint32_t n_ctx, uint32_t n_batch) {
    uint32_t all = kv_round_up(n_ctx, ATTN_BLOCK);
    uint64_t n = (uint64_t)a->window - 1 + (n_batch > KV_REWIND ? n_batch : KV_REWIND) + ATTN_BLOCK - 1;
    if (a->window == 0 || n > all) return all;
    uint32_t ring = kv_round_up((uint32_t)n, KV_PART);
    return ring < all ? ring : all;
}

double kv_cache_bytes(const struct plan *p, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type) {
    double bytes = 0;
    uint64_t n_state = plan_states_size(p);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct attn_plan *a = &p->layers[il].attn;
        if (!plan_has_kv(&p->layers[il])) continue;
        double elements = (double)kv_round_up(a->k_dim, ATTN_TILE) + kv_round_up(a->v_dim, ATTN_TILE);
        bytes += a->n_head_kv * (double)kv_cache_length(a, n_ctx, n_batch)
               * (elements * element_bytes(type) + (type == PLUMB_KV_F32 ? 0 : 2 * sizeof(float)));
    }
    return bytes + (double)n_state * (snapshots_max(n_state) + 1) * sizeof(float);
}

uint32_t kv_cache_default(const struct plan *p, plumb_kv_type type) {
    uint32_t most = p->n_ctx_train < PLUMB_MAX_CTX ? p->n_ctx_train : PLUMB_MAX_CTX;
    uint32_t fits = most < PLUMB_LEAST_CTX ? most : PLUMB_LEAST_CTX;
    while (most > fits) {   /* n tokens fit if n <= fits, and perhaps if n <= most */
        uint32_t n = most - (most - fits) / 2;
        if (kv_cache_bytes(p, n, plan_n_batch(p, n, 0), type) <= (double)PLUMB_DEFAULT_KV_BYTES) fits = n;
        else most = n - 1;
    }
    return fits;
}

bool kv_cache_init(struct kv_cache *cache, const struct attn_plan *a, uint32_t n_ctx, uint32_t n_batch,
                   plumb_kv_type type) {
    *cache = (struct kv_cache) {
        .type = type,
        .code_bytes = element_bytes(type),
        .k_dim = a->k_dim,
        .v_dim = a->v_dim,
        .k_row = kv_round_up(a->k_dim, ATTN_TILE),
        .v_row = kv_round_up(a->v_dim, ATTN_TILE),
        .n_head_kv = a->n_head_kv,
        .n_position = kv_cache_length(a, n_ctx, n_batch),
    };
    cache->part_length = type == PLUMB_KV_F32 ? cache->n_position : KV_PART;
    uint64_t n_row = (uint64_t)a->n_head_kv * cache->n_position, n;
    uint64_t n_scale = type == PLUMB_KV_F32 ? 0 : 2 * n_row * sizeof(float);
    return mul_u64(n_row, ((uint64_t)cache->k_row + cache->v_row) * cache->code_bytes, &n)
        && add_u64(n, n_scale, &cache->bytes);
}

/* The codes are followed by the scales of K and then those of V.  The codes take a multiple of 4 bytes, because
 * n_position is a multiple of 32, so the scales are aligned. */
void kv_cache_place(struct kv_cache *cache, uint8_t *memory) {
    size_t n_row = (size_t)cache->n_head_kv * cache->n_position;
    cache->codes = memory;
    if (cache->type == PLUMB_KV_F32) return;
    cache->k_scale = (float *)(void *)(memory + n_row * (cache->k_row + cache->v_row) * cache->code_bytes);
    cache->v_scale = cache->k_scale + n_row;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Returns the first position of the part that holds p, modulo n_position. */
static uint32_t part_begin(const struct kv_cache *cache, uint32_t p) {
    return p % cache->n_position / cache->part_length * cache->part_length;
}
/* Every position of the parts before takes a row of K and one of V. */
uint8_t *kv_cache_k(const struct kv_cache *cache, uint32_t head, uint32_t p) {
    uint32_t begin = part_begin(cache, p);
    return cache->codes + kv_cache_row(cache, head, begin) * (cache->k_row + cache->v_row) * cache->code_bytes;
}
/* V follows the K of all n positions of the part. */
uint8_t *kv_cache_v(const struct kv_cache *cache, uint32_t head, uint32_t p) {
    uint32_t n = cache->n_position - part_begin(cache, p);
    if (n > cache->part_length) n = cache->part_length;
    return kv_cache_k(cache, head, p) + (size_t)n * cache->k_row * cache->code_bytes;
}

/* ---- storing ----------------------------------------------------------------------------------------------------- */

/* Writes a code, which fits the type of the cache, as element i of codes. */
static inline void put(const struct kv_cache *cache, uint8_t *codes, size_t i, int16_t code) {
    if (cache->type == PLUMB_KV_I16) ((int16_t *)(void *)codes)[i] = code;
    else codes[i] = (uint8_t)code;
}

static float largest_code(const struct kv_cache *cache) { return cache->type == PLUMB_KV_I16 ? 32767.0f : 127.0f; }

/* Element i of position p goes to (i / 2, p % 8, i % 2) of the tile of p.  The scales of the tile's other positions are
 * cleared too, because the scores kernel reads 8 at a time.  The norm of a K is bounded so that dots fit 32 bits. */
static void store_k(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t p,
                    const float *x, int16_t *scratch) {
    float *scale = cache->k_scale + kv_cache_row(cache, head, p);
    size_t tile_bytes = (size_t)ATTN_TILE * cache->k_row * cache->code_bytes;
    uint8_t *tile = kv_cache_k(cache, head, p) + p % cache->part_length / ATTN_TILE * tile_bytes;
    if (p % ATTN_TILE == 0) {
        memset(tile, 0, tile_bytes);
        memset(scale, 0, ATTN_TILE * sizeof *scale);
    }
    memset(scratch + cache->k_dim, 0, (cache->k_row - cache->k_dim) * sizeof *scratch);
    *scale = kernels->quantize(x, scratch, cache->k_dim, largest_code(cache), ATTN_NORM);
    for (uint32_t i = 0; i < cache->k_row; i++) {
        put(cache, tile, (i / 2 * ATTN_TILE + p % ATTN_TILE) * 2 + i % 2, scratch[i]);
    }
}

/* Element i of position p goes to (i / 8, p % 32 / 2, i % 8, p % 2) of the block of p.  Scales of later positions need
 * not be cleared, because attention_mask reads none of them.  The norm of a V has no bound, because sums with V fit 32
 * bits by the bound on the codes of the weights (kernels/attention.h). */
static void store_v(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t p,
                    const float *x, int16_t *scratch) {
    size_t block_bytes = (size_t)ATTN_BLOCK * cache->v_row * cache->code_bytes;
    uint8_t *block = kv_cache_v(cache, head, p) + p % cache->part_length / ATTN_BLOCK * block_bytes;
    if (p % ATTN_BLOCK == 0) memset(block, 0, block_bytes);
    memset(scratch + cache->v_dim, 0, (cache->v_row - cache->v_dim) * sizeof *scratch);
    cache->v_scale[kv_cache_row(cache, head, p)] =
        kernels->quantize(x, scratch, cache->v_dim, largest_code(cache), INFINITY);
    for (uint32_t i = 0; i < cache->v_row; i++) {
        size_t tile = i / ATTN_TILE * (ATTN_TILE * ATTN_BLOCK);
        put(cache, block, tile + (p % ATTN_BLOCK / 2 * ATTN_TILE + i % ATTN_TILE) * 2 + p % 2, scratch[i]);
    }
}

/* Position 0 begins the sequence again: nothing before it is needed. */
void kv_cache_begin(struct kv_cache *cache, uint32_t begin, uint32_t end) {
    uint32_t cleared = kv_round_up(end, ATTN_BLOCK);
    if (begin == 0) cache->n_lost = 0;
    if (cleared > cache->n_position + cache->n_lost) cache->n_lost = cleared - cache->n_position;
}

void kv_cache_store(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t p,
                    const float *k, const float *v, int16_t *scratch) {
    if (cache->type == PLUMB_KV_F32) {
        size_t k_bytes = cache->k_row * sizeof *k, v_bytes = cache->v_row * sizeof *v, at = p % cache->part_length;
        memcpy(kv_cache_k(cache, head, p) + at * k_bytes, k, cache->k_dim * sizeof *k);
        memcpy(kv_cache_v(cache, head, p) + at * v_bytes, v, cache->v_dim * sizeof *v);
    } else {
        store_k(cache, kernels, head, p, k, scratch);
        store_v(cache, kernels, head, p, v, scratch);
    }
}

#include "forward/kv_cache.h"

#include <math.h>
#include <stdlib.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static uint32_t element_bytes(plumb_kv_type type) {
    return type == PLUMB_KV_F32 ? sizeof(float) : type == PLUMB_KV_I16 ? sizeof(int16_t) : sizeof(int8_t);
}

double kv_cache_bytes(const struct model_config *c, uint32_t n_ctx, plumb_kv_type type) {
    double rows = 2.0 * c->n_layer * c->n_head_kv * (double)kv_round_up(n_ctx, ATTN_BLOCK);
    return rows * ((double)kv_round_up(c->head_dim, ATTN_TILE) * element_bytes(type)
                   + (type == PLUMB_KV_F32 ? 0 : sizeof(float)));
}

static void *take(struct kv_cache *cache, uint64_t n, size_t size) {
    void *p = alloc_array(n, size);
    if (p) cache->bytes += n * size;
    return p;
}

bool kv_cache_init(struct kv_cache *cache, const struct model_config *c, uint32_t n_ctx, plumb_kv_type type) {
    *cache = (struct kv_cache) {
        .type = type,
        .code_bytes = element_bytes(type),
        .head_dim = c->head_dim,
        .n_dim = kv_round_up(c->head_dim, ATTN_TILE),
        .n_head_kv = c->n_head_kv,
        .n_position = kv_round_up(n_ctx, ATTN_BLOCK),
    };
    cache->part = type == PLUMB_KV_F32 ? cache->n_position : KV_PART;
    uint64_t n_row, n;   /* the product of these four numbers may exceed 64 bits */
    if (!mul_u64((uint64_t)c->n_layer * c->n_head_kv, cache->n_position, &n_row) || !mul_u64(n_row, cache->n_dim, &n)) {
        return false;
    }
    if (!(cache->codes = take(cache, n, 2 * (size_t)cache->code_bytes))) return false;
    if (type == PLUMB_KV_F32) return true;
    cache->k_scale = take(cache, n_row, sizeof *cache->k_scale);
    cache->v_scale = cache->k_scale ? take(cache, n_row, sizeof *cache->v_scale) : NULL;
    return cache->v_scale != NULL;
}

void kv_cache_free(struct kv_cache *cache) {
    free(cache->codes);
    free(cache->k_scale);
    free(cache->v_scale);
    *cache = (struct kv_cache) { 0 };
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

uint8_t *kv_cache_k(const struct kv_cache *cache, uint32_t il, uint32_t head, uint32_t p) {
    return cache->codes + kv_cache_row(cache, il, head, p / cache->part * cache->part) * 2 * cache->n_dim
                              * cache->code_bytes;
}
uint8_t *kv_cache_v(const struct kv_cache *cache, uint32_t il, uint32_t head, uint32_t p) {
    uint32_t n = cache->n_position - p / cache->part * cache->part;
    if (n > cache->part) n = cache->part;
    return kv_cache_k(cache, il, head, p) + (size_t)n * cache->n_dim * cache->code_bytes;
}

/* ---- storing ----------------------------------------------------------------------------------------------------- */

static inline void put(const struct kv_cache *cache, uint8_t *codes, size_t i, int16_t code) {
    if (cache->type == PLUMB_KV_I16) ((int16_t *)(void *)codes)[i] = code;
    else codes[i] = (uint8_t)code;
}

static float largest_code(const struct kv_cache *cache) { return cache->type == PLUMB_KV_I16 ? 32767.0f : 127.0f; }

static void store_k(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t il, uint32_t head,
                    uint32_t p, const float *x, int16_t *scratch) {
    float *scale = cache->k_scale + kv_cache_row(cache, il, head, p);
    size_t tile_bytes = (size_t)ATTN_TILE * cache->n_dim * cache->code_bytes;
    uint8_t *tile = kv_cache_k(cache, il, head, p) + p % cache->part / ATTN_TILE * tile_bytes;
    if (p % ATTN_TILE == 0) {
        memset(tile, 0, tile_bytes);
        memset(scale, 0, ATTN_TILE * sizeof *scale);
    }
    *scale = kernels->quantize(x, scratch, cache->head_dim, largest_code(cache), ATTN_NORM);
    for (uint32_t i = 0; i < cache->n_dim; i++) {
        put(cache, tile, (i / 2 * ATTN_TILE + p % ATTN_TILE) * 2 + i % 2, scratch[i]);
    }
}

static void store_v(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t il, uint32_t head,
                    uint32_t p, const float *x, int16_t *scratch) {
    size_t block_bytes = (size_t)ATTN_BLOCK * cache->n_dim * cache->code_bytes;
    uint8_t *block = kv_cache_v(cache, il, head, p) + p % cache->part / ATTN_BLOCK * block_bytes;
    if (p % ATTN_BLOCK == 0) memset(block, 0, block_bytes);
    cache->v_scale[kv_cache_row(cache, il, head, p)] =
        kernels->quantize(x, scratch, cache->head_dim, largest_code(cache), INFINITY);
    for (uint32_t i = 0; i < cache->n_dim; i++) {
        size_t tile = i / ATTN_TILE * (ATTN_TILE * ATTN_BLOCK);
        put(cache, block, tile + (p % ATTN_BLOCK / 2 * ATTN_TILE + i % ATTN_TILE) * 2 + p % 2, scratch[i]);
    }
}

void kv_cache_store(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t il, uint32_t head,
                    uint32_t p, const float *k, const float *v, int16_t *scratch) {
    if (cache->type == PLUMB_KV_F32) {
        size_t at = (size_t)p * cache->n_dim * sizeof *k, n = cache->head_dim * sizeof *k;
        memcpy(kv_cache_k(cache, il, head, p) + at, k, n);
        memcpy(kv_cache_v(cache, il, head, p) + at, v, n);
    } else {
        store_k(cache, kernels, il, head, p, k, scratch);
        store_v(cache, kernels, il, head, p, v, scratch);
    }
}

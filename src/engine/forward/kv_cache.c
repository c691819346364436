/* Compiled for speed. */
#include "forward/kv_cache.h"

#include "base/math.h"
#include "forward/snapshots.h"

#include <math.h>
#include <stdlib.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static struct kv_format format_of(plumb_kv_type type) {
    switch (type) {
    case PLUMB_KV_I16: return (struct kv_format) { 16, 4 };
    case PLUMB_KV_Q8_0: return (struct kv_format) { 8, 2 };
    case PLUMB_KV_Q4_0: return (struct kv_format) { 4, 2 };
    case PLUMB_KV_F32: break;
    }
    return (struct kv_format) { 32, 0 };
}

static uint32_t slices(plumb_kv_type type, uint32_t n_dim) { return kv_type_has_slices(type) ? n_dim / KV_SLICE : 1; }

/* Bytes of a position of one head. */
static uint64_t head_bytes(const struct kv_cache *cache) {
    uint64_t codes = ((uint64_t)cache->k_row + cache->v_row) * cache->format.bits / 8;
    return codes + ((uint64_t)cache->n_k_slice + cache->n_v_slice) * cache->format.scale_bytes;
}

plumb_status kv_cache_check(const struct plan *p, plumb_kv_type type, struct error *err) {
    for (uint32_t il = 0; kv_type_has_slices(type) && il < p->n_layer; il++) {
        const struct attn_plan *a = &p->layers[il].attn;
        uint32_t refused = a->k_dim % KV_SLICE > 0 ? a->k_dim : a->v_dim % KV_SLICE > 0 ? a->v_dim : 0;
        if (refused == 0 || !plan_has_kv(&p->layers[il])) continue;
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "K and V cannot be stored as %s, which has blocks of %d: the "
                         "model has heads of %u elements", plumb_kv_type_name(type), KV_SLICE, refused);
    }
    return PLUMB_OK;
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

double kv_cache_bytes(const struct plan *p, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type, uint32_t n_snapshot) {
    double bytes = 0, shared = 0;   /* layers of an encoder, computed one after the other, share the memory of one */
    uint64_t n_state = plan_states_size(p);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct attn_plan *a = &p->layers[il].attn;
        if (!plan_has_kv(&p->layers[il])) continue;
        double elements = (double)kv_round_up(a->k_dim, ATTN_TILE) + kv_round_up(a->v_dim, ATTN_TILE);
        double n_scale = (double)slices(type, a->k_dim) + slices(type, a->v_dim);
        struct kv_format format = format_of(type);
        double own = a->n_head_kv * (double)kv_cache_length(a, n_ctx, n_batch)
                   * (elements * format.bits / 8 + n_scale * format.scale_bytes);
        if (il >= p->n_encoder) bytes += own;
        else if (own > shared) shared = own;
    }
    return bytes + shared + (double)n_state * (snapshots_max(n_state, n_snapshot) + 1) * sizeof(float);
}

uint32_t kv_cache_default(const struct plan *p, plumb_kv_type type) {
    enum { ENCODER_CTX = 2048 };
    uint32_t most = p->n_ctx_train < PLUMB_MAX_CTX ? p->n_ctx_train : PLUMB_MAX_CTX;
    bool is_whole = !plan_is_causal(p) || p->n_encoder > 0;   /* its batch, and so its scratch, is a whole text */
    if (is_whole && most > ENCODER_CTX) most = ENCODER_CTX;
    uint32_t fits = most < PLUMB_LEAST_CTX ? most : PLUMB_LEAST_CTX;
    while (most > fits) {   /* n tokens fit if n <= fits, and perhaps if n <= most */
        uint32_t n = most - (most - fits) / 2;
        if (kv_cache_bytes(p, n, plan_n_batch(p, n, 0), type, 0) <= (double)PLUMB_DEFAULT_KV_BYTES) fits = n;
        else most = n - 1;
    }
    /* A session up to n_ctx_original takes the short factors of RoPE, whatever the type of K and V. */
    return fits < p->n_ctx_train && fits > p->n_ctx_original ? p->n_ctx_original : fits;
}

bool kv_cache_init(struct kv_cache *cache, const struct attn_plan *a, uint32_t n_ctx, uint32_t n_batch,
                   plumb_kv_type type) {
    *cache = (struct kv_cache) {
        .type = type,
        .format = format_of(type),
        .k_dim = a->k_dim,
        .v_dim = a->v_dim,
        .k_row = kv_round_up(a->k_dim, ATTN_TILE),
        .v_row = kv_round_up(a->v_dim, ATTN_TILE),
        .n_k_slice = slices(type, a->k_dim),
        .n_v_slice = slices(type, a->v_dim),
        .n_head_kv = a->n_head_kv,
        .n_position = kv_cache_length(a, n_ctx, n_batch),
    };
    cache->n_page = (cache->n_position - 1) / KV_PART + 1;
    cache->pages = calloc(cache->n_page, sizeof *cache->pages);
    return cache->pages && mul_u64((uint64_t)cache->n_head_kv * cache->n_position, head_bytes(cache), &cache->bytes);
}

void kv_cache_free(struct kv_cache *cache) {
    for (uint32_t i = 0; cache->pages && i < cache->n_page; i++) shared_leave(&cache->pages[i]);
    free(cache->pages);
    *cache = (struct kv_cache) { 0 };
}

static uint64_t page_bytes(const struct kv_cache *cache, uint32_t i) {
    return (uint64_t)kv_page_length(cache, i) * cache->n_head_kv * head_bytes(cache);   /* at most cache->bytes */
}

static bool prepare_page(struct kv_cache *cache, uint32_t i) {
    const struct shared *before = cache->pages[i];
    uint64_t n = page_bytes(cache, i);
    if (before && before->n_owner == 1) return true;
    struct shared *page = shared_create(n);
    if (!page) return false;
    if (before) memcpy(page->bytes, before->bytes, (size_t)n);
    shared_leave(&cache->pages[i]);
    cache->pages[i] = page;
    return true;
}

bool kv_cache_prepare(struct kv_cache *cache, uint32_t begin, uint32_t end) {
    uint32_t first = begin / KV_PART, n = begin < end ? (end - 1) / KV_PART - first + 1 : 0;
    for (uint32_t i = 0; i < n && i < cache->n_page; i++) {
        if (!prepare_page(cache, (first + i) % cache->n_page)) return false;
    }
    return true;
}

void kv_cache_share(struct kv_cache *to, const struct kv_cache *from, uint32_t end) {
    uint32_t n = end > 0 ? (end - 1) / KV_PART + 1 : 0;
    for (uint32_t i = 0; i < to->n_page; i++) {
        struct shared *page = i < n ? from->pages[i] : NULL;
        if (page) page->n_owner++;
        shared_leave(&to->pages[i]);
        to->pages[i] = page;
    }
    to->n_lost = end > 0 ? from->n_lost : 0;
}

void kv_cache_trim(struct kv_cache *cache, uint32_t end) {
    for (uint32_t i = end > 0 ? (end - 1) / KV_PART + 1 : 0; i < cache->n_page; i++) {
        if (cache->n_lost > 0 && end > 0) return;
        shared_leave(&cache->pages[i]);
    }
}

uint64_t kv_cache_held(const struct kv_cache *cache) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < cache->n_page; i++) n += cache->pages[i] ? page_bytes(cache, i) : 0;
    return n;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* A head has a row of K and one of V of each position of the page; V follows the K of all positions. */
static uint8_t *place(const struct kv_cache *cache, uint32_t head, bool is_v, uint32_t slice, uint32_t p) {
    uint32_t i = p % cache->n_position / KV_PART, n = kv_page_length(cache, i);
    uint64_t row = (uint64_t)head * n;   /* a count of elements may have more than 32 bits */
    uint64_t before = (is_v ? cache->k_row : 0)
                    + (uint64_t)slice * (is_v ? cache->v_row / cache->n_v_slice : cache->k_row / cache->n_k_slice);
    return cache->pages[i]->bytes + kv_cache_size(cache, row * (cache->k_row + cache->v_row) + n * before);
}
uint8_t *kv_cache_k(const struct kv_cache *cache, uint32_t head, uint32_t slice, uint32_t p) {
    return place(cache, head, false, slice, p);
}
uint8_t *kv_cache_v(const struct kv_cache *cache, uint32_t head, uint32_t slice, uint32_t p) {
    return place(cache, head, true, slice, p);
}

/* The scale at position p in a row of scales; the rows of K come first. */
static uint8_t *scale_at(const struct kv_cache *cache, uint32_t row, uint32_t p) {
    uint32_t at = p % cache->n_position, i = at / KV_PART;
    size_t n = kv_page_length(cache, i), n_code = n * cache->n_head_kv;
    return cache->pages[i]->bytes + kv_cache_size(cache, (uint64_t)n_code * (cache->k_row + cache->v_row))
         + ((size_t)row * n + at % KV_PART) * cache->format.scale_bytes;
}
uint8_t *kv_cache_k_scale(const struct kv_cache *cache, uint32_t head, uint32_t slice, uint32_t p) {
    return scale_at(cache, head * cache->n_k_slice + slice, p);
}
uint8_t *kv_cache_v_scale(const struct kv_cache *cache, uint32_t head, uint32_t slice, uint32_t p) {
    return scale_at(cache, cache->n_head_kv * cache->n_k_slice + head * cache->n_v_slice + slice, p);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

const void *kv_cache_unpack(const struct kv_cache *cache, const uint8_t *codes, size_t n, int8_t *scratch) {
    if (cache->format.bits != 4) return codes;
    for (size_t i = 0; i < n; i += 32, codes += 16) {
        for (size_t j = 0; j < 16; j++) scratch[i + j] = (int8_t)((codes[j] & 15) - 8);
        for (size_t j = 0; j < 16; j++) scratch[i + 16 + j] = (int8_t)((codes[j] >> 4) - 8);
    }
    return scratch;
}

/* The bits of an f16 in their places in an f32 are its value times 2^-112.  Scales are finite or NaN. */
const float *kv_cache_widen(const struct kv_cache *cache, const uint8_t *scales, size_t n, float *scratch) {
    if (cache->format.scale_bytes != 2) return (const float *)(const void *)scales;
    const uint16_t *h = (const uint16_t *)(const void *)scales;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(h[i] & 0x8000) << 16 | (uint32_t)(h[i] & 0x7fff) << 13;
        float x = f32_from_bits(bits) * 0x1p112f;
        scratch[i] = x < 65536.0f ? x : NAN;
    }
    return scratch;
}

/* ---- storing ----------------------------------------------------------------------------------------------------- */

/* The fast Walsh-Hadamard transform: Fino & Algazi 1976.  Every sum has two terms, so all compilers make the same
 * bits. */
void kv_rotate(float *x, uint32_t n) {
    uint32_t block = n & (0 - n);
    float factor = 1.0f / (float)math_sqrt((double)block);
    for (uint32_t half = 1; half < block; half *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * half) {
            float *a = x + i, *b = a + half;
            for (uint32_t j = 0; j < half; j++) {
                float sum = a[j] + b[j], difference = a[j] - b[j];
                a[j] = sum;
                b[j] = difference;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) x[i] *= factor;
}

const float *kv_cache_rotate(const struct kv_cache *cache, const float *x, uint32_t n, float *rotated) {
    if (!kv_type_has_slices(cache->type)) return x;
    memcpy(rotated, x, n * sizeof *x);
    kv_rotate(rotated, n);
    return rotated;
}

uint16_t kv_quantize(plumb_kv_type type, const float *x, int16_t *codes) {
    float amax = 0.0f, peak = 0.0f;   /* peak: the element with the largest magnitude */
    bool is_finite = true;
    for (int i = 0; i < KV_SLICE; i++) {
        float magnitude = fabsf(x[i]);
        is_finite = is_finite && magnitude < INFINITY;
        if (magnitude > amax) {
            amax = magnitude;
            peak = x[i];
        }
    }
    float scale = type == PLUMB_KV_Q8_0 ? amax / 127.0f : peak / -8.0f;
    uint16_t half = is_finite ? f16_from_f32(scale) : 0x7e00;
    if ((half & 0x7c00) == 0x7c00) half = 0x7e00;
    if (half == 0x7e00 || amax < ATTN_MIN) {
        memset(codes, 0, KV_SLICE * sizeof *codes);
        return half;
    }
    float inverse = 1.0f / scale;
    for (int i = 0; i < KV_SLICE; i++) {
        float y = x[i] * inverse;
        /* Of two integers that are equally near, Q8_0 takes the one away from zero. */
        if (type == PLUMB_KV_Q8_0) codes[i] = (int16_t)((double)y + (y < 0 ? -0.5 : 0.5));
        else codes[i] = (int16_t)((y + 8.5f < 15.0f ? (int)(y + 8.5f) : 15) - 8);
    }
    return half;
}

/* Quantizes a slice of n elements, or a whole head, and stores its scale.  norm: as of attention_kernels' quantize. */
static void quantize(const struct kv_cache *cache, const struct attention_kernels *kernels, const float *x, size_t n,
                     float norm, int16_t *codes, uint8_t *scale) {
    if (kv_type_has_slices(cache->type)) *(uint16_t *)(void *)scale = kv_quantize(cache->type, x, codes);
    else *(float *)(void *)scale = kernels->quantize(x, codes, n, 32767.0f, norm);
}

/* Writes a code, which fits the type of the cache, as element i of codes. */
static inline void put(const struct kv_cache *cache, uint8_t *codes, size_t i, int16_t code) {
    if (cache->type == PLUMB_KV_I16) ((int16_t *)(void *)codes)[i] = code;
    else if (cache->type == PLUMB_KV_Q8_0) codes[i] = (uint8_t)code;
    else {
        uint8_t *byte = &codes[i / 32 * 16 + i % 16];
        unsigned shift = i % 32 < 16 ? 0 : 4, bits = (unsigned)(code + 8) << shift;
        *byte = (uint8_t)((*byte & ~(15u << shift)) | bits);
    }
}

struct kv_tile kv_cache_k_tile(const struct kv_cache *cache, uint32_t head, uint32_t j, uint32_t p) {
    uint32_t n = cache->type == PLUMB_KV_F32 ? 1 : ATTN_TILE;
    size_t bytes = kv_cache_size(cache, (size_t)n * (cache->k_row / cache->n_k_slice));
    return (struct kv_tile) { kv_cache_k(cache, head, j, p) + p % KV_PART / n * bytes, bytes, n };
}
struct kv_tile kv_cache_v_block(const struct kv_cache *cache, uint32_t head, uint32_t j, uint32_t p) {
    uint32_t n = cache->type == PLUMB_KV_F32 ? 1 : ATTN_BLOCK;
    size_t bytes = kv_cache_size(cache, (size_t)n * (cache->v_row / cache->n_v_slice));
    return (struct kv_tile) { kv_cache_v(cache, head, j, p) + p % KV_PART / n * bytes, bytes, n };
}
/* Where element i of position p is among the codes of a tile or block: */
/* (i / 2, p % 8, i % 2) of the tile of p. */
static size_t k_at(uint32_t p, uint32_t i) { return (size_t)(i / 2 * ATTN_TILE + p % ATTN_TILE) * 2 + i % 2; }
/* (i / 8, p % 32 / 2, i % 8, p % 2) of the block of p. */
static size_t v_at(uint32_t p, uint32_t i) {
    size_t tile = i / ATTN_TILE * (ATTN_TILE * ATTN_BLOCK);
    return tile + (p % ATTN_BLOCK / 2 * ATTN_TILE + i % ATTN_TILE) * 2 + p % 2;
}

/* Reads the codes of n elements of slice j. */
static void get(const struct kv_cache *cache, bool is_v, uint32_t head, uint32_t j, uint32_t p, uint32_t n,
                int16_t *out) {
    const uint8_t *codes = (is_v ? kv_cache_v_block : kv_cache_k_tile)(cache, head, j, p).codes;
    for (uint32_t i = 0; i < n; i++) {
        size_t at = is_v ? v_at(p, i) : k_at(p, i);
        if (cache->type == PLUMB_KV_I16) out[i] = ((const int16_t *)(const void *)codes)[at];
        else if (cache->type == PLUMB_KV_Q8_0) out[i] = (int8_t)codes[at];
        else out[i] = (int16_t)((codes[at / 32 * 16 + at % 16] >> (at % 32 < 16 ? 0 : 4) & 15) - 8);
    }
}

/* Stores slice j.  The scales of the tile's other positions are cleared too, because the scores kernel reads 8 at a
 * time.  The norm of a K is bounded so that dots fit 32 bits. */
static void store_k(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t j,
                    uint32_t p, const float *x, int16_t *scratch) {
    uint32_t n = cache->k_dim / cache->n_k_slice, n_row = cache->k_row / cache->n_k_slice;
    uint8_t *scale = kv_cache_k_scale(cache, head, j, p);
    struct kv_tile tile = kv_cache_k_tile(cache, head, j, p);
    if (p % ATTN_TILE == 0) {
        memset(tile.codes, 0, tile.bytes);
        memset(scale, 0, ATTN_TILE * cache->format.scale_bytes);
    }
    memset(scratch + n, 0, (n_row - n) * sizeof *scratch);
    quantize(cache, kernels, x + (size_t)j * n, n, ATTN_NORM, scratch, scale);
    for (uint32_t i = 0; i < n_row; i++) put(cache, tile.codes, k_at(p, i), scratch[i]);
}

static void store_head_k(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t p,
                         const float *k, int16_t *scratch) {
    for (uint32_t j = 0; j < cache->n_k_slice; j++) store_k(cache, kernels, head, j, p, k, scratch);
}

/* Stores the codes of slice j.  The scales of later positions need not be cleared, because attention_scales reads none
 * of them. */
static void put_v(struct kv_cache *cache, uint32_t head, uint32_t j, uint32_t p, const int16_t *codes) {
    struct kv_tile block = kv_cache_v_block(cache, head, j, p);
    if (p % ATTN_BLOCK == 0) memset(block.codes, 0, block.bytes);
    for (uint32_t i = 0; i < cache->v_row / cache->n_v_slice; i++) put(cache, block.codes, v_at(p, i), codes[i]);
}

/* Stores slice j.  The norm of a V has no bound, because sums with V fit 32 bits by the bound on the codes of the
 * weights (kernels/attention.h). */
static void store_v(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t j,
                    uint32_t p, const float *x, int16_t *scratch) {
    uint32_t n = cache->v_dim / cache->n_v_slice, n_row = cache->v_row / cache->n_v_slice;
    memset(scratch + n, 0, (n_row - n) * sizeof *scratch);
    quantize(cache, kernels, x + (size_t)j * n, n, INFINITY, scratch, kv_cache_v_scale(cache, head, j, p));
    put_v(cache, head, j, p, scratch);
}

/* Position 0 begins the sequence again: nothing before it is needed. */
void kv_cache_begin(struct kv_cache *cache, uint32_t begin, uint32_t end) {
    uint32_t cleared = kv_round_up(end, ATTN_BLOCK);
    if (begin == 0) cache->n_lost = 0;
    if (cleared > cache->n_position + cache->n_lost) cache->n_lost = cleared - cache->n_position;
}

void kv_cache_store(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t p,
                    const float *k, const float *v, int16_t *scratch, float *rotated) {
    if (cache->type == PLUMB_KV_F32) {
        struct kv_tile k_row = kv_cache_k_tile(cache, head, 0, p), v_row = kv_cache_v_block(cache, head, 0, p);
        memset(k_row.codes, 0, k_row.bytes);   /* nobody reads the padding, but kv_cache_exchange writes it */
        memset(v_row.codes, 0, v_row.bytes);
        memcpy(k_row.codes, k, cache->k_dim * sizeof *k);
        memcpy(v_row.codes, v, cache->v_dim * sizeof *v);
        return;
    }
    store_head_k(cache, kernels, head, p, kv_cache_rotate(cache, k, cache->k_dim, rotated), scratch);
    v = kv_cache_rotate(cache, v, cache->v_dim, rotated);
    for (uint32_t j = 0; j < cache->n_v_slice; j++) store_v(cache, kernels, head, j, p, v, scratch);
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

uint32_t kv_cache_move(struct kv_cache *cache, uint32_t from, uint32_t to, uint32_t end) {
    uint32_t distance = from - to, lost = cache->n_lost;
    if (lost > 0) cache->n_lost = lost > from ? lost - distance : to;
    kv_cache_begin(cache, to, end - distance);
    return lost > from ? lost : from;
}

void kv_cache_take(const struct kv_cache *cache, uint32_t head, uint32_t p, float *record, int16_t *scratch) {
    float *v = record + cache->k_dim;
    if (cache->type == PLUMB_KV_F32) {
        memcpy(record, kv_cache_k_tile(cache, head, 0, p).codes, cache->k_dim * sizeof *v);
        memcpy(v, kv_cache_v_block(cache, head, 0, p).codes, cache->v_dim * sizeof *v);
        return;
    }
    uint32_t n = cache->k_dim / cache->n_k_slice, n_row = cache->v_row / cache->n_v_slice;
    for (uint32_t j = 0; j < cache->n_k_slice; j++) {
        float unpacked, scale = *kv_cache_widen(cache, kv_cache_k_scale(cache, head, j, p), 1, &unpacked);
        get(cache, false, head, j, p, n, scratch);
        for (uint32_t i = 0; i < n; i++) record[j * n + i] = scale * (float)scratch[i];
    }
    if (kv_type_has_slices(cache->type)) kv_rotate(record, cache->k_dim);
    int16_t *v_codes = (int16_t *)(void *)v;
    uint8_t *v_scales = (uint8_t *)(v_codes + cache->v_row);
    for (uint32_t j = 0; j < cache->n_v_slice; j++, v_codes += n_row, v_scales += cache->format.scale_bytes) {
        get(cache, true, head, j, p, n_row, v_codes);
        memcpy(v_scales, kv_cache_v_scale(cache, head, j, p), cache->format.scale_bytes);
    }
}

void kv_cache_give(struct kv_cache *cache, const struct attention_kernels *kernels, uint32_t head, uint32_t p,
                   const float *record, int16_t *scratch, float *rotated) {
    const float *v = record + cache->k_dim;
    if (cache->type == PLUMB_KV_F32) {
        kv_cache_store(cache, kernels, head, p, record, v, scratch, rotated);
        return;
    }
    const int16_t *codes = (const int16_t *)(const void *)v;
    const uint8_t *scales = (const uint8_t *)(codes + cache->v_row);
    store_head_k(cache, kernels, head, p, kv_cache_rotate(cache, record, cache->k_dim, rotated), scratch);
    for (uint32_t j = 0; j < cache->n_v_slice; j++) {
        put_v(cache, head, j, p, codes + (size_t)j * (cache->v_row / cache->n_v_slice));
        memcpy(kv_cache_v_scale(cache, head, j, p), scales + (size_t)j * cache->format.scale_bytes,
               cache->format.scale_bytes);
    }
}

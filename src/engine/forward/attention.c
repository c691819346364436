/* See attention.h.  The positions are divided into parts: the KV_PART positions of a page.  Up to 4 queries of one K/V
 * head form a unit, because the kernels take up to 4 at once.  For each part of a unit, run_part computes the scores,
 * the weights and the weighted sum of V before the next part begins, so that the scores stay in the L1 cache.  The
 * scores s_i are exponents of 2 (kernels/attention.h).  Part j of a query has
 *
 *   top_j = the largest s_i of the part, rounded up to an integer      w_i      = 2^(s_i - top_j)
 *   sum_j = sum of w_i                                                 values_j = sum of w_i v_i
 *
 * and end_unit adds up the parts, where top is the largest top_j:
 *
 *   attn = sum over j of values_j 2^(top_j - top)  /  sum over j of sum_j 2^(top_j - top)
 *
 * A sink counts as one more part, which has no values.
 *
 * As tops are integers, these factors are powers of 2: they take no exponential function, and products with them are
 * exact unless they underflow.  Parts begin at fixed positions and are added in ascending order, so the bits do not
 * depend on which thread computed which part.
 *
 * A batch of several tokens (a prompt) has many units, and each is computed by one thread (run_units).  A single token
 * has few, so the threads share its parts instead (run_token).  One thread then takes a part for all units of its K/V
 * head, so that K and V are read from memory once.
 *
 * With PLUMB_KV_F32 there are no units: run_f32 computes one query after the other. */
/* Compiled for speed. */
#include "forward/attention.h"

#include "base/math.h"
#include "forward/kv_cache.h"

#include <math.h>
#include <stdlib.h>

/* Up to 4 queries of one K/V head, with their intermediate results.  The queries of a K/V head are numbered token by
 * token: query t * n_group + g is that of token t of the batch and query head head_kv * n_group + g. */
struct unit {
    uint32_t head_kv, first, n;              /* queries first .. first + n - 1 of head_kv, n <= 4 */
    /* Each query sees positions from .. end - 1.  Both ascend: the last query sees the latest ones. */
    uint32_t from[ATTN_QUERIES], end[ATTN_QUERIES];
    uint32_t own[ATTN_QUERIES];              /* the positions of the queries */
    int16_t *q;                              /* (n_k_slice, 4, k_row / n_k_slice) codes, then room for k_row */
    float q_scale[ATTN_QUERIES];
    float *tops, *sums;                      /* (parts, 4) each: top, and the sum of 2^(score - top) */
    float *values;                           /* (parts, 4, v_row) the sum of V times 2^(score - top) */
};

/* Scratch memory of one thread. */
struct scratch {
    int16_t *code;                           /* (k_row or v_row) codes of the vector that is being stored */
    float *scores;                           /* (4, KV_PART) scores, then 2^(score - top); (n_ctx + 1) for f32 */
    float *v_scale;                          /* (KV_PART) scales of V, with 0 at positions before the window */
    int16_t *codes;                          /* (4, KV_PART) codes of weights times scales of V */
    float *code_scales;                      /* (4, KV_PART / 32) scales of these codes, one for each 32 positions */
    /* For types with slices: */
    float *rotated;                          /* (k_row or v_row) a head of K, V or Q */
    float *more;                             /* (4, KV_PART) scores of the slices of K after the first */
    int8_t *unpacked;                        /* (KV_PART, KV_SLICE) codes of 4 bits */
    float *scales;                           /* (KV_PART) scales of K or V as floats */
};

struct attention {
    const struct plan *plan;
    const struct attention_kernels *kernels;
    const struct kernels *f32;
    struct pool *pool;
    struct kv_cache *encoder;                /* (n_encoder) the caches of an encoder's layers, which are computed one
                                              * after the other, so that they share their pages */
    uint64_t bytes;                          /* of all memory that allocate has returned, and of these pages */
    struct scratch *scratch;                 /* one for each thread */
    struct unit *units;                      /* run_units uses one for each thread, run_token all that one token has;
                                              * there are as many as the larger of these numbers, and none for f32 */
    uint32_t n_unit;
    float *records;                          /* (n_record) of positions that are moved; see attention_prepare_drop */
    uint64_t n_record;
    /* The arguments of attention_store or attention_run while it runs, for the loops of the threads. */
    const struct attn_plan *layer;
    struct kv_cache *cache;                  /* the layer's */
    uint32_t n_group;                        /* query heads that share a K/V head */
    float scale;                             /* scores are multiplied by it */
    uint32_t n_token, pos;
    uint32_t n_encoded;                      /* tokens of the encoder, whose K and V the sequence has */
    const float *new_k, *new_v, *queries, *sinks, *biases;
    float *attn, *weights;
};

/* ---- memory -------------------------------------------------------------------------------------------------- */

static void *allocate(struct attention *a, uint64_t n, size_t size) {
    void *p = alloc_array(n, size);
    if (p) a->bytes += n * size;
    return p;
}

/* The longest rows of all layers, the largest number of units that one token has, and the context. */
struct maxima { uint32_t k_row, v_row, n_unit, n_ctx; };

static struct maxima maxima_of(const struct attention *a, uint32_t n_ctx) {
    struct maxima m = { .n_ctx = n_ctx };
    for (uint32_t il = 0; il < a->plan->n_layer; il++) {
        const struct attn_plan *layer = &a->plan->layers[il].attn;
        if (!plan_attends(&a->plan->layers[il])) continue;
        uint32_t k_row = kv_round_up(layer->k_dim, ATTN_TILE), v_row = kv_round_up(layer->v_dim, ATTN_TILE);
        uint32_t n_unit = layer->n_head_kv * ((layer->n_head / layer->n_head_kv - 1) / ATTN_QUERIES + 1);
        if (k_row > m.k_row) m.k_row = k_row;
        if (v_row > m.v_row) m.v_row = v_row;
        if (n_unit > m.n_unit) m.n_unit = n_unit;
    }
    return m;
}

static bool allocate_scratch(struct attention *a, struct scratch *s, const struct maxima *m, plumb_kv_type type) {
    if (type == PLUMB_KV_F32) return (s->scores = allocate(a, (uint64_t)m->n_ctx + 1, sizeof *s->scores)) != NULL;
    uint32_t n_row = m->k_row > m->v_row ? m->k_row : m->v_row;
    bool ok = (s->code = allocate(a, n_row, sizeof *s->code))
           && (s->scores = allocate(a, ATTN_QUERIES * KV_PART, sizeof *s->scores))
           && (s->v_scale = allocate(a, KV_PART, sizeof *s->v_scale))
           && (s->codes = allocate(a, ATTN_QUERIES * KV_PART, sizeof *s->codes))
           && (s->code_scales = allocate(a, ATTN_QUERIES * KV_PART / ATTN_BLOCK, sizeof *s->code_scales));
    if (ok && kv_type_has_slices(type)) {
        ok = (s->rotated = allocate(a, n_row, sizeof *s->rotated))
          && (s->more = allocate(a, ATTN_QUERIES * KV_PART, sizeof *s->more))
          && (s->unpacked = allocate(a, KV_PART * KV_SLICE, sizeof *s->unpacked))
          && (s->scales = allocate(a, KV_PART, sizeof *s->scales));
    }
    if (!ok) return false;
    /* The 8-bit SIMD kernels always compute with 4 queries, so the rows of all 4 must be initialized, even if a unit
     * has fewer. */
    memset(s->codes, 0, ATTN_QUERIES * KV_PART * sizeof *s->codes);
    memset(s->code_scales, 0, ATTN_QUERIES * KV_PART / ATTN_BLOCK * sizeof *s->code_scales);
    return true;
}

static bool allocate_unit(struct attention *a, struct unit *u, const struct maxima *m) {
    uint64_t n_q = (uint64_t)(ATTN_QUERIES + 1) * m->k_row, n_part = (m->n_ctx - 1) / KV_PART + 1;
    bool ok = (u->q = allocate(a, n_q, sizeof *u->q)) && (u->tops = allocate(a, ATTN_QUERIES * n_part, sizeof *u->tops))
           && (u->sums = allocate(a, ATTN_QUERIES * n_part, sizeof *u->sums))
           && (u->values = allocate(a, ATTN_QUERIES * n_part * m->v_row, sizeof *u->values));
    if (ok) memset(u->q, 0, (size_t)n_q * sizeof *u->q);
    return ok;
}

/* The largest cache of an encoder's layer gets pages, and the others have the same. */
static bool allocate_encoder(struct attention *a, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type) {
    uint32_t n = a->plan->n_encoder, most = 0;
    if (n == 0) return true;
    if (!(a->encoder = calloc(n, sizeof *a->encoder))) return false;
    for (uint32_t il = 0; il < n; il++) {
        if (!kv_cache_init(&a->encoder[il], &a->plan->layers[il].attn, n_ctx, n_batch, type)) return false;
        if (a->encoder[il].bytes > a->encoder[most].bytes) most = il;
    }
    if (!kv_cache_prepare(&a->encoder[most], 0, n_ctx)) return false;
    a->bytes += a->encoder[most].bytes;
    for (uint32_t il = 0; il < n; il++) {
        if (il != most) kv_cache_share(&a->encoder[il], &a->encoder[most], n_ctx);
    }
    return true;
}

static bool allocate_all(struct attention *a, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type) {
    uint32_t n_thread = pool_size(a->pool);
    if (!allocate_encoder(a, n_ctx, n_batch, type)) return false;
    struct maxima m = maxima_of(a, n_ctx);
    uint32_t n_unit = type == PLUMB_KV_F32 ? 0 : m.n_unit > n_thread ? m.n_unit : n_thread;
    if (!(a->scratch = allocate(a, n_thread, sizeof *a->scratch))) return false;
    memset(a->scratch, 0, n_thread * sizeof *a->scratch);
    for (uint32_t i = 0; i < n_thread; i++) {
        if (!allocate_scratch(a, &a->scratch[i], &m, type)) return false;
    }
    if (n_unit > 0 && !(a->units = allocate(a, n_unit, sizeof *a->units))) return false;
    if (n_unit > 0) memset(a->units, 0, n_unit * sizeof *a->units);
    for (; a->n_unit < n_unit; a->n_unit++) {
        if (!allocate_unit(a, &a->units[a->n_unit], &m)) {
            a->n_unit++;   /* attention_free also frees what this unit has allocated */
            return false;
        }
    }
    return true;
}

plumb_status attention_create(struct attention **out, const struct plan *plan, uint32_t n_ctx, uint32_t n_batch,
                              plumb_kv_type type, const struct attention_kernels *kernels, const struct kernels *f32,
                              struct pool *pool) {
    *out = NULL;
    struct attention *a = calloc(1, sizeof *a);
    if (!a) return PLUMB_ERROR_MEMORY;
    a->plan = plan;
    a->kernels = kernels;
    a->f32 = f32;
    a->pool = pool;
    if (!allocate_all(a, n_ctx, n_batch, type)) {
        attention_free(a);
        return PLUMB_ERROR_MEMORY;
    }
    *out = a;
    return PLUMB_OK;
}

void attention_free(struct attention *a) {
    if (!a) return;
    for (uint32_t i = 0; i < a->n_unit; i++) {
        free(a->units[i].q);
        free(a->units[i].tops);
        free(a->units[i].sums);
        free(a->units[i].values);
    }
    for (uint32_t i = 0; a->scratch && i < pool_size(a->pool); i++) {
        free(a->scratch[i].code);
        free(a->scratch[i].rotated);
        free(a->scratch[i].scores);
        free(a->scratch[i].more);
        free(a->scratch[i].unpacked);
        free(a->scratch[i].scales);
        free(a->scratch[i].v_scale);
        free(a->scratch[i].codes);
        free(a->scratch[i].code_scales);
    }
    for (uint32_t il = 0; a->encoder && il < a->plan->n_encoder; il++) kv_cache_free(&a->encoder[il]);
    free(a->encoder);
    free(a->scratch);
    free(a->units);
    free(a->records);
    free(a);
}

void attention_replace(struct attention *old, struct attention *a) {
    a->records = old->records;
    a->n_record = old->n_record;
    a->bytes += a->n_record * sizeof *a->records;
    old->records = NULL;
    attention_free(old);
}

uint64_t attention_bytes(const struct attention *a) { return a->bytes; }

/* The cache of layer il, or of the one whose K and V it has. */
static struct kv_cache *cache_of(const struct attention *a, const struct sequence *s, uint32_t il) {
    uint32_t of = il - a->plan->layers[il].kv_back;
    return of < a->plan->n_encoder ? &a->encoder[of] : &s->caches[of];
}

/* Sets the fields of the layer for attention_store and attention_run. */
static void begin_layer(struct attention *a, const struct sequence *s, uint32_t il, uint32_t n_token, uint32_t pos) {
    const struct attn_plan *layer = a->layer = &a->plan->layers[il].attn;
    a->cache = cache_of(a, s, il);
    a->n_group = layer->n_head / layer->n_head_kv;
    a->scale = layer->scale != 0.0f ? layer->scale : 1.0f / (float)math_sqrt((double)layer->k_dim);
    a->n_token = n_token;
    a->pos = pos;
    a->n_encoded = s->n_encoded;
}

/* ---- the new K and V --------------------------------------------------------------------------------------------- */

/* Stores the new K and V of K/V heads begin .. end - 1.  Threads do not share a head, so the positions of each head are
 * stored in ascending order, as kv_cache_store needs it. */
static void store_heads(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    struct attention *a = user;
    const struct attn_plan *l = a->layer;
    for (uint32_t h = begin; h < end; h++) {
        for (uint32_t t = 0; t < a->n_token; t++) {
            size_t row = (size_t)t * l->n_head_kv + h;
            kv_cache_store(a->cache, a->kernels, h, a->pos + t, a->new_k + row * l->k_dim, a->new_v + row * l->v_dim,
                           a->scratch[thread].code, a->scratch[thread].rotated);
        }
    }
}

/* ---- context shift ----------------------------------------------------------------------------------------------- */

/* Returns how many positions of a head are read before the first of them is written again: in a ring all, because the
 * places of new positions are those of others. */
static uint32_t moved_at_once(const struct kv_cache *cache, uint32_t n_ctx) {
    return cache->n_position < n_ctx ? cache->n_position : 1;
}

bool attention_prepare_drop(struct attention *a, const struct sequence *s, uint32_t n_ctx) {
    uint64_t most = 0;
    for (uint32_t il = 0; il < a->plan->n_layer; il++) {
        const struct kv_cache *cache = cache_of(a, s, il);
        if (!plan_has_kv(&a->plan->layers[il])) continue;
        uint64_t n = (uint64_t)moved_at_once(cache, n_ctx) * (cache->k_dim + cache->v_row);
        if (n > most) most = n;
    }
    if (most <= a->n_record) return true;
    if (!ARRAY_RESIZE(a->records, most)) return false;
    a->bytes += (most - a->n_record) * sizeof *a->records;
    a->n_record = most;
    return true;
}

/* Moves the positions first .. end - 1 of a head n_drop places towards the beginning. */
static void shift_head(struct attention *a, uint32_t head, uint32_t first, uint32_t end, uint32_t n_drop, uint32_t n,
                       const float *cosine, const float *sine) {
    struct kv_cache *cache = a->cache;
    const struct attn_plan *l = a->layer;
    const struct rope_plan *rope = l->rope == ROPE_NONE ? NULL : &a->plan->ropes[l->rope];
    uint32_t stride = rope && rope->pairing == ROPE_NORM ? 2 : 1, size = cache->k_dim + cache->v_row;
    uint32_t distance = stride == 2 ? 1 : rope ? rope->n_rot / 2 : 0, first_rotated = plan_rotated_from(l);
    for (uint32_t p = first; p < end; p += n) {
        if (n > end - p) n = end - p;
        for (uint32_t i = 0; i < n; i++) {
            float *record = a->records + (size_t)i * size, *k = record + first_rotated;
            kv_cache_take(cache, head, p + i, record, a->scratch->code);
            if (rope) a->kernels->rotate(k, k + distance, stride, cosine, sine, rope->n_rot / 2);
        }
        for (uint32_t i = 0; i < n; i++) {
            kv_cache_give(cache, a->kernels, head, p + i - n_drop, a->records + (size_t)i * size, a->scratch->code,
                          a->scratch->rotated);
        }
    }
}

void attention_drop(struct attention *a, struct sequence *s, uint32_t n_keep, uint32_t n_drop, uint32_t n_past,
                    float *const cosine[PLAN_ROPES], float *const sine[PLAN_ROPES]) {
    for (uint32_t il = 0; il < a->plan->n_layer; il++) {
        if (!plan_has_kv(&a->plan->layers[il])) continue;
        begin_layer(a, s, il, 0, 0);
        uint32_t first = kv_cache_move(a->cache, n_keep + n_drop, n_keep, n_past);
        for (uint32_t head = 0, rope = a->layer->rope; head < a->cache->n_head_kv; head++) {
            shift_head(a, head, first, n_past, n_drop, moved_at_once(a->cache, n_past),
                       rope == ROPE_NONE ? NULL : cosine[rope], rope == ROPE_NONE ? NULL : sine[rope]);
        }
    }
}

/* ---- attention over codes ---------------------------------------------------------------------------------------- */

/* What n queries cost that see as many positions each (pool.h).  A weight is made from each score. */
static uint64_t cost_of(const struct attention *a, uint64_t n, uint64_t n_seen) {
    return n * n_seen * ((uint64_t)a->layer->k_dim + a->layer->v_dim + POOL_ELEMENT);
}

/* Returns the row of query i of a unit in (n_token, n_head). */
static size_t query_row(const struct attention *a, const struct unit *u, uint32_t i) {
    uint32_t t = (u->first + i) / a->n_group, g = (u->first + i) % a->n_group;
    return (size_t)t * a->layer->n_head + u->head_kv * a->n_group + g;
}

/* Returns how many positions there are for the tokens of the batch. */
static uint32_t n_keys(const struct attention *a) {
    return a->layer->reads_encoder ? a->n_encoded : a->pos + a->n_token;
}

/* Returns the last position that the token at pos sees, plus 1. */
static uint32_t end_seen(const struct attention *a, uint32_t pos) {
    if (a->layer->reads_encoder) return a->n_encoded;
    if (a->layer->is_causal) return pos + 1;
    uint32_t end = a->pos + a->n_token, half = a->layer->window / 2;
    return a->layer->is_symmetric && half < end - pos ? pos + half + 1 : end;
}

/* Adds what the layer has for the distance between the query at own and the key of scores[i], at first + i: -slope *
 * distance with ALiBi, or the bias of the head.  factor: 1, or ATTN_LOG2E if scores are in bits. */
static void add_by_distance(const struct attention *a, float *scores, uint32_t first, uint32_t n, uint32_t own,
                            uint32_t head, float factor) {
    const float *biases = a->biases ? a->biases + (size_t)head * (2 * PLAN_FAR + 1) + PLAN_FAR : NULL;
    float slope = plan_alibi_slope(a->layer, head) * factor;
    if (a->layer->alibi == 0.0f && !biases) return;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = first + i, distance = key < own ? own - key : key - own;
        int32_t far = distance < PLAN_FAR ? (int32_t)distance : PLAN_FAR;
        if (biases) scores[i] += factor * biases[key < own ? -far : far];
        else scores[i] -= slope * (float)distance;
    }
}

/* Makes a unit of at most 4 queries of a K/V head, from query first on, and quantizes them.  q_scale is the scale of
 * the codes times the layer's scale and log2(e), so that the kernels compute scores in bits. */
static void begin_unit(const struct attention *a, struct unit *u, uint32_t head_kv, uint32_t first,
                       const struct scratch *s) {
    uint32_t n = a->n_token * a->n_group - first, k_dim = a->cache->k_dim, k_row = a->cache->k_row;
    uint32_t n_slice = a->cache->n_k_slice, n_row = k_row / n_slice;
    u->head_kv = head_kv;
    u->first = first;
    u->n = n < ATTN_QUERIES ? n : ATTN_QUERIES;
    for (uint32_t i = 0; i < u->n; i++) {
        const float *q = kv_cache_rotate(a->cache, a->queries + query_row(a, u, i) * k_dim, k_dim, s->rotated);
        int16_t *codes = u->q + (size_t)ATTN_QUERIES * k_row;
        float code_scale = a->kernels->quantize(q, codes, k_dim, 32767.0f, ATTN_NORM);
        memset(codes + k_dim, 0, (k_row - k_dim) * sizeof *codes);
        for (uint32_t j = 0; j < n_slice; j++) {
            memcpy(u->q + ((size_t)j * ATTN_QUERIES + i) * n_row, codes + (size_t)j * n_row, n_row * sizeof *codes);
        }
        u->q_scale[i] = code_scale * (a->scale * ATTN_LOG2E);
        u->own[i] = a->pos + (first + i) / a->n_group;
        u->end[i] = end_seen(a, u->own[i]);
        u->from[i] = plan_first_seen(a->layer, u->own[i]);
    }
}

/* The parts that queries with positions from .. end - 1 need are part_of(from) .. part_of(end - 1). */
static uint32_t part_of(uint32_t p) { return p / KV_PART; }

/* Returns the row of a->weights, which must not be NULL, for query i of a unit: n_keys weights. */
static float *weights_row(const struct attention *a, const struct unit *u, uint32_t i) {
    return a->weights + query_row(a, u, i) * n_keys(a);
}

/* The scores of n positions from begin on, which are in the part that begins at `part`: the sum of those of the slices
 * of K. */
static void score_slices(const struct attention *a, const struct unit *u, uint32_t part, uint32_t begin, uint32_t n,
                         const struct scratch *s) {
    const struct kv_cache *cache = a->cache;
    uint32_t n_row = cache->k_row / cache->n_k_slice, n_tile = (n - 1) / ATTN_TILE + 1;
    size_t n_code = (size_t)n_tile * ATTN_TILE * n_row, skipped = kv_cache_size(cache, (size_t)(begin - part) * n_row);
    for (uint32_t j = 0; j < cache->n_k_slice; j++) {
        const uint8_t *codes = kv_cache_k(cache, u->head_kv, j, part) + skipped;
        float *scores = j == 0 ? s->scores : s->more;
        a->kernels->scores[cache->format.bits > 8](scores, KV_PART,
            kv_cache_unpack(cache, codes, n_code, s->unpacked),
            kv_cache_widen(cache, kv_cache_k_scale(cache, u->head_kv, j, begin), n_tile * ATTN_TILE, s->scales),
            n_tile, u->q + (size_t)j * ATTN_QUERIES * n_row, u->q_scale, n_row, u->n);
        for (uint32_t t = 0; j > 0 && t < u->n; t++) {
            a->f32->add_scaled(s->scores + t * KV_PART, s->more + t * KV_PART, 1.0f, n_tile * ATTN_TILE);
        }
    }
}

/* Multiplies the weights of query t by scales of V.  The V of positions before `from` may be NaN, and 0 times NaN is
 * not 0. */
static void fold_scales(const struct attention *a, const float *scales, uint32_t from, uint32_t end, uint32_t n,
                        uint32_t t, const struct scratch *s) {
    if (from > 0) {
        memset(s->v_scale, 0, from * sizeof *scales);
        memcpy(s->v_scale + from, scales + from, (end - from) * sizeof *scales);
        scales = s->v_scale;
    }
    a->kernels->fold(s->scores + (size_t)t * KV_PART, end, n, scales, s->codes + (size_t)t * KV_PART,
                     s->code_scales + (size_t)t * (KV_PART / ATTN_BLOCK));
}

/* Computes part i of a unit: tops, sums, values, and weights relative to the part's top.  At least one query must see a
 * position of the part.  Kernels compute with n positions from begin on: the blocks with what some query sees.  Query t
 * sees positions [from, end) of them. */
static void run_part(const struct attention *a, struct unit *u, uint32_t i, const struct scratch *s) {
    const struct kv_cache *cache = a->cache;
    uint32_t part = i * KV_PART, begin = u->from[0] / ATTN_BLOCK * ATTN_BLOCK, last = u->end[u->n - 1];
    if (begin < part) begin = part;
    if (last - part > KV_PART) last = part + KV_PART;
    uint32_t n = kv_round_up(last - begin, ATTN_BLOCK), from[ATTN_QUERIES], end[ATTN_QUERIES];
    score_slices(a, u, part, begin, last - begin, s);
    for (uint32_t t = 0; t < u->n; t++) {
        float *w = s->scores + (size_t)t * KV_PART;
        from[t] = u->from[t] > begin ? u->from[t] - begin : 0;
        end[t] = u->end[t] <= begin || u->from[t] >= last ? 0 : u->end[t] - begin < n ? u->end[t] - begin : n;
        if (end[t] == 0) {   /* the values kernel uses these zeros; end_unit skips them */
            memset(s->codes + (size_t)t * KV_PART, 0, n * sizeof *s->codes);
            memset(s->code_scales + (size_t)t * (KV_PART / ATTN_BLOCK), 0, n / ATTN_BLOCK * sizeof *s->code_scales);
            continue;
        }
        for (uint32_t p = 0; p < from[t]; p++) w[p] = -INFINITY;   /* the positions before the window */
        if (a->layer->softcap != 0.0f) a->f32->softcap(w + from[t], a->layer->softcap * ATTN_LOG2E, end[t] - from[t]);
        uint32_t head = (uint32_t)(query_row(a, u, t) % a->layer->n_head);
        add_by_distance(a, w + from[t], begin + from[t], end[t] - from[t], u->own[t], head, ATTN_LOG2E);
        u->sums[i * ATTN_QUERIES + t] = a->kernels->weigh(w, end[t], n, &u->tops[i * ATTN_QUERIES + t]);
        if (a->weights) memcpy(weights_row(a, u, t) + begin + from[t], w + from[t], (end[t] - from[t]) * sizeof *w);
    }
    uint32_t n_row = cache->v_row / cache->n_v_slice;
    for (uint32_t j = 0; j < cache->n_v_slice; j++) {
        const uint8_t *codes = kv_cache_v(cache, u->head_kv, j, part);
        const float *scales = kv_cache_widen(cache, kv_cache_v_scale(cache, u->head_kv, j, begin), last - begin,
                                             s->scales);
        for (uint32_t t = 0; t < u->n; t++) {
            if (end[t] > 0) fold_scales(a, scales, from[t], end[t], n, t, s);
        }
        codes = kv_cache_unpack(cache, codes + kv_cache_size(cache, (size_t)(begin - part) * n_row),
                                (size_t)n * n_row, s->unpacked);
        a->kernels->values[cache->format.bits > 8](
            u->values + (size_t)i * ATTN_QUERIES * cache->v_row + (size_t)j * n_row, cache->v_row, codes,
            n_row / ATTN_TILE, n / ATTN_BLOCK, s->codes, s->code_scales, KV_PART, u->n);
    }
}

/* Returns 2^x for an integer x <= 0, but 0 below 2^-126, where floats are subnormal: the weights of such a part are
 * negligible.  Returns NaN for NaN, the difference of two equal infinite tops. */
static float power_of_two(float x) {
    if (x < -126.0f) return 0.0f;
    return x <= 0.0f ? f32_from_bits((uint32_t)((int32_t)x + 127) << 23) : x;
}

/* Adds up the parts of a unit and writes its rows of attn and weights.  Row j * ATTN_QUERIES + t of tops, sums and
 * values is part j of query t. */
static void end_unit(const struct attention *a, const struct unit *u) {
    uint32_t v_dim = a->cache->v_dim, n_key = n_keys(a);
    for (uint32_t t = 0; t < u->n; t++) {
        float *attn = a->attn + query_row(a, u, t) * v_dim, top = -INFINITY, sum = 0.0f;
        uint32_t first = part_of(u->from[t]) * ATTN_QUERIES + t, end = (part_of(u->end[t] - 1) + 1) * ATTN_QUERIES;
        memset(attn, 0, v_dim * sizeof *attn);
        for (uint32_t row = first; row < end; row += ATTN_QUERIES) top = u->tops[row] > top ? u->tops[row] : top;
        if (a->sinks) {
            float sink = a->sinks[query_row(a, u, t) % a->layer->n_head] * ATTN_LOG2E;
            top = sink > top ? ceilf(sink) : top;
            sum = (float)math_exp((double)(sink - top) * 0.69314718055994530942);
        }
        for (uint32_t row = first; row < end; row += ATTN_QUERIES) {
            float factor = power_of_two(u->tops[row] - top);
            sum += u->sums[row] * factor;
            a->f32->add_scaled(attn, u->values + (size_t)row * a->cache->v_row, factor, v_dim);
        }
        float inverse = 1.0f / sum;
        for (uint32_t i = 0; i < v_dim; i++) attn[i] *= inverse;
        if (kv_type_has_slices(a->cache->type)) kv_rotate(attn, v_dim);
        for (uint32_t p = 0; a->weights && p < n_key; p++) {
            float *w = weights_row(a, u, t) + p;
            if (p < u->from[t] || p >= u->end[t]) *w = 0.0f;
            else *w *= power_of_two(u->tops[part_of(p) * ATTN_QUERIES + t] - top) * inverse;
        }
    }
}

/* Returns how many units a K/V head has in this batch. */
static uint32_t units_of_head(const struct attention *a) { return (a->n_token * a->n_group - 1) / ATTN_QUERIES + 1; }

/* The loop of a batch of several tokens; i is an index into (n_head_kv, units of a head).  A thread computes all of its
 * units in the same struct, one after the other. */
static void run_units(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    struct unit *u = &a->units[thread];
    for (uint32_t i = begin; i < end; i++) {
        begin_unit(a, u, i / units_of_head(a), i % units_of_head(a) * ATTN_QUERIES, &a->scratch[thread]);
        for (uint32_t part = part_of(u->from[0]); part <= part_of(u->end[u->n - 1] - 1); part++) {
            run_part(a, u, part, &a->scratch[thread]);
        }
        end_unit(a, u);
    }
}

/* The loop of one token; i is an index into (n_head_kv, parts that it sees).  Threads write different parts of the same
 * units. */
static void run_parts(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    uint32_t first = part_of(plan_first_seen(a->layer, a->pos)), last = part_of(end_seen(a, a->pos) - 1);
    uint32_t n_part = last - first + 1, n = units_of_head(a);
    for (uint32_t i = begin; i < end; i++) {
        for (uint32_t j = 0; j < n; j++) {
            run_part(a, &a->units[i / n_part * n + j], first + i % n_part, &a->scratch[thread]);
        }
    }
}

/* Computes the only token of a batch.  The caller's thread begins and ends all units, which takes little time. */
static void run_token(struct attention *a) {
    uint32_t from = plan_first_seen(a->layer, a->pos), n = units_of_head(a), n_unit = a->layer->n_head_kv * n;
    uint64_t n_seen = end_seen(a, a->pos) - from, n_first = n_seen < KV_PART ? n_seen : KV_PART;
    uint32_t n_part = part_of(end_seen(a, a->pos) - 1) - part_of(from) + 1;
    for (uint32_t i = 0; i < n_unit; i++) begin_unit(a, &a->units[i], i / n, i % n * ATTN_QUERIES, a->scratch);
    pool_run(a->pool, a->layer->n_head_kv * n_part, cost_of(a, a->n_group, n_first), run_parts, a);
    for (uint32_t i = 0; i < n_unit; i++) end_unit(a, &a->units[i]);
}

/* ---- f32 --------------------------------------------------------------------------------------------------------- */

/* Returns how many of the positions p .. end - 1 are in the page of p. */
static uint32_t in_page(uint32_t p, uint32_t end) {
    uint32_t n = KV_PART - p % KV_PART;
    return n < end - p ? n : end - p;
}

/* The loop of PLUMB_KV_F32 for batches of any size; i is an index into (n_token, n_head). */
static void run_f32(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    const struct attn_plan *l = a->layer;
    float *scores = a->scratch[thread].scores;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t head_kv = i % l->n_head / a->n_group, pos = a->pos + i / l->n_head, n_key = n_keys(a);
        uint32_t from = plan_first_seen(l, pos), last = end_seen(a, pos), n_seen = last - from, head = i % l->n_head;
        const float *q = a->queries + (size_t)i * l->k_dim;
        float *attn = a->attn + (size_t)i * l->v_dim;
        for (uint32_t p = from, n; p < last; p += n) {
            n = in_page(p, last);
            const float *k = (const float *)(const void *)kv_cache_k_tile(a->cache, head_kv, 0, p).codes;
            for (uint32_t j = 0; j < n; j++) {
                scores[p - from + j] = a->f32->dot_f32(q, k + (size_t)j * a->cache->k_row, l->k_dim) * a->scale;
            }
        }
        if (l->softcap != 0.0f) a->f32->softcap(scores, l->softcap, n_seen);
        add_by_distance(a, scores, from, n_seen, pos, head, 1.0f);
        if (a->sinks) scores[n_seen] = a->sinks[head];   /* there is room for one more */
        a->f32->softmax(scores, n_seen + (a->sinks ? 1 : 0));
        memset(attn, 0, l->v_dim * sizeof *attn);
        for (uint32_t p = from, n; p < last; p += n) {
            n = in_page(p, last);
            const float *v = (const float *)(const void *)kv_cache_v_block(a->cache, head_kv, 0, p).codes;
            for (uint32_t j = 0; j < n; j++) {
                a->f32->add_scaled(attn, v + (size_t)j * a->cache->v_row, scores[p - from + j], l->v_dim);
            }
        }
        if (!a->weights) continue;
        float *weights = a->weights + (size_t)i * n_key;
        memset(weights, 0, n_key * sizeof *weights);
        memcpy(weights + from, scores, n_seen * sizeof *weights);
    }
}

/* ---- entry points for all cache types ---------------------------------------------------------------------------- */

void attention_store(struct attention *a, struct sequence *s, uint32_t il, const float *k, const float *v,
                     uint32_t n_token, uint32_t pos) {
    begin_layer(a, s, il, n_token, pos);
    kv_cache_begin(a->cache, pos, pos + n_token);
    a->new_k = k;
    a->new_v = v;
    pool_run(a->pool, a->layer->n_head_kv, (uint64_t)n_token * a->cache->k_row * POOL_ELEMENT, store_heads, a);
}

void attention_run(struct attention *a, const struct sequence *s, uint32_t il, const float *q, const float *sinks,
                   const float *biases, uint32_t n_token, uint32_t pos, float *attn, float *weights) {
    begin_layer(a, s, il, n_token, pos);
    a->queries = q;
    a->sinks = sinks;
    a->biases = biases;
    a->attn = attn;
    a->weights = weights;
    uint32_t n_seen = end_seen(a, pos + n_token / 2) - plan_first_seen(a->layer, pos + n_token / 2);
    uint32_t n_unit = a->layer->n_head_kv * units_of_head(a);
    if (a->cache->type == PLUMB_KV_F32) {
        pool_run(a->pool, n_token * a->layer->n_head, cost_of(a, 1, n_seen), run_f32, a);
    } else if (n_token == 1) run_token(a);
    else pool_run(a->pool, n_unit, cost_of(a, ATTN_QUERIES, n_seen), run_units, a);
}

/* See attention.h.  The positions are divided into parts of 1024.  Up to 4 queries of one K/V head form a unit, which
 * goes through the parts one by one: each part is taken from scores to sums at once, so that the scores stay in the L1
 * cache.  The weights of a part are 2^(score - top), where top is its largest score rounded up to an integer.  So parts
 * are added up with factors that are powers of 2, always in the same order, whichever thread computed them.
 * A prompt has many units, and one thread computes each.  A single token has few, so the threads share its parts
 * instead, and one thread takes a part for all queries of its K/V head, so that K and V are read from memory once. */
#include "forward/attention.h"

#include "base/math.h"
#include "forward/kv_cache.h"

#include <stdlib.h>

/* Multiplications in a chunk that is worth another thread, about 10 microseconds.  Computing a weight costs as much as
 * WEIGHT_COST multiplications. */
enum { CHUNK_COST = 300000, WEIGHT_COST = 32 };
/* Up to 4 queries of one K/V head, with their intermediate results. */
struct unit {
    uint32_t head_kv, first, n;              /* queries first .. first + n - 1; query t * n_group + h % n_group of
                                              * head_kv is that of head h for token t */
    uint32_t n_seen[ATTN_QUERIES];           /* how many positions each query sees; the last one sees the most */
    int16_t *q;                              /* (4, n_dim) codes */
    float q_scale[ATTN_QUERIES];
    float *tops, *sums;                      /* (parts, 4) each: top, and the sum of 2^(score - top) */
    float *values;                           /* (parts, 4, n_dim) the sum of V times 2^(score - top) */
};

/* Scratch memory of one thread. */
struct scratch {
    int16_t *code;                           /* (n_dim) codes of the vector that is being stored */
    float *scores;                           /* (4, KV_PART) scores, then 2^(score - top); (n_position) for f32 */
    int16_t *codes;                          /* (4, KV_PART) codes of weights times scales of V */
    float *steps;                            /* (4, KV_PART / 32) scales of these codes, one for each 32 positions */
};

struct attention {
    const struct model_config *config;
    const struct attention_kernels *kernels;
    const struct kernels *f32;
    struct pool *pool;
    struct kv_cache cache;
    uint32_t n_group;                        /* query heads that share a K/V head */
    float scale;                             /* scores are multiplied by it */
    uint64_t bytes;                          /* allocated for scratch and units */
    struct scratch *scratch;                 /* one for each thread */
    struct unit *units;                      /* as many as threads or as one token needs, whichever is more; none for
                                              * f32 */
    uint32_t n_unit;
    /* The arguments of the loop that the pool is running. */
    uint32_t il, n_token, pos;
    const float *new_k, *new_v, *queries;
    float *attn, *weights;
};

/* ---- memory -------------------------------------------------------------------------------------------------- */

static void *take(struct attention *a, uint64_t n, size_t size) {
    void *p = alloc_array(n, size);
    if (p) a->bytes += n * size;
    return p;
}

static bool take_scratch(struct attention *a, struct scratch *s) {
    if (a->cache.type == PLUMB_KV_F32) return (s->scores = take(a, a->cache.n_position, sizeof *s->scores)) != NULL;
    bool ok = (s->code = take(a, a->cache.n_dim, sizeof *s->code))
           && (s->scores = take(a, ATTN_QUERIES * KV_PART, sizeof *s->scores))
           && (s->codes = take(a, ATTN_QUERIES * KV_PART, sizeof *s->codes))
           && (s->steps = take(a, ATTN_QUERIES * KV_PART / ATTN_BLOCK, sizeof *s->steps));
    if (!ok) return false;
    memset(s->code, 0, a->cache.n_dim * sizeof *s->code);   /* the elements past head_dim stay 0 */
    /* The 8-bit SIMD kernels always compute with 4 queries, so those that are not there must be initialized. */
    memset(s->codes, 0, ATTN_QUERIES * KV_PART * sizeof *s->codes);
    memset(s->steps, 0, ATTN_QUERIES * KV_PART / ATTN_BLOCK * sizeof *s->steps);
    return true;
}

static bool take_unit(struct attention *a, struct unit *u) {
    uint64_t n_q = (uint64_t)ATTN_QUERIES * a->cache.n_dim, n_part = (a->cache.n_position - 1) / KV_PART + 1;
    bool ok = (u->q = take(a, n_q, sizeof *u->q)) && (u->tops = take(a, ATTN_QUERIES * n_part, sizeof *u->tops))
           && (u->sums = take(a, ATTN_QUERIES * n_part, sizeof *u->sums))
           && (u->values = take(a, n_q * n_part, sizeof *u->values));
    if (ok) memset(u->q, 0, (size_t)n_q * sizeof *u->q);
    return ok;
}

static bool take_all(struct attention *a) {
    uint32_t n_decode = a->config->n_head_kv * ((a->n_group - 1) / ATTN_QUERIES + 1), n_thread = pool_size(a->pool);
    uint32_t n_unit = a->cache.type == PLUMB_KV_F32 ? 0 : n_decode > n_thread ? n_decode : n_thread;
    if (!(a->scratch = take(a, n_thread, sizeof *a->scratch))) return false;
    memset(a->scratch, 0, n_thread * sizeof *a->scratch);
    for (uint32_t i = 0; i < n_thread; i++) {
        if (!take_scratch(a, &a->scratch[i])) return false;
    }
    if (n_unit > 0 && !(a->units = take(a, n_unit, sizeof *a->units))) return false;
    if (n_unit > 0) memset(a->units, 0, n_unit * sizeof *a->units);
    for (; a->n_unit < n_unit; a->n_unit++) {
        if (!take_unit(a, &a->units[a->n_unit])) {
            a->n_unit++;   /* attention_free also frees what this unit has allocated */
            return false;
        }
    }
    return true;
}

plumb_status attention_create(struct attention **out, const struct model_config *c, uint32_t n_ctx, plumb_kv_type type,
                              const struct attention_kernels *kernels, const struct kernels *f32, struct pool *pool) {
    *out = NULL;
    struct attention *a = calloc(1, sizeof *a);
    if (!a) return PLUMB_ERROR_MEMORY;
    a->config = c;
    a->kernels = kernels;
    a->f32 = f32;
    a->pool = pool;
    a->n_group = c->n_head / c->n_head_kv;
    a->scale = c->attention_scale != 0.0f ? c->attention_scale : 1.0f / (float)math_sqrt((double)c->head_dim);
    if (!kv_cache_init(&a->cache, c, n_ctx, type) || !take_all(a)) {
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
        free(a->scratch[i].scores);
        free(a->scratch[i].codes);
        free(a->scratch[i].steps);
    }
    free(a->scratch);
    free(a->units);
    kv_cache_free(&a->cache);
    free(a);
}

uint64_t attention_bytes(const struct attention *a) { return a->cache.bytes + a->bytes; }

/* ---- the new K and V --------------------------------------------------------------------------------------------- */

/* Stores the new K and V of K/V heads begin .. end - 1. */
static void store_heads(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    struct attention *a = user;
    const struct model_config *c = a->config;
    for (uint32_t h = begin; h < end; h++) {
        for (uint32_t t = 0; t < a->n_token; t++) {
            size_t at = ((size_t)t * c->n_head_kv + h) * c->head_dim;
            kv_cache_store(&a->cache, a->kernels, a->il, h, a->pos + t, a->new_k + at, a->new_v + at,
                           a->scratch[thread].code);
        }
    }
}

/* ---- the step, by units ------------------------------------------------------------------------------------------ */

/* Returns how many indices of a loop make a chunk, if each costs so many multiplications. */
static uint32_t grain(uint64_t cost) { return cost < CHUNK_COST ? (uint32_t)(CHUNK_COST / (cost + 1)) + 1 : 1; }

/* Returns the row of query i of a unit in (n_token, n_head). */
static size_t query_row(const struct attention *a, const struct unit *u, uint32_t i) {
    uint32_t t = (u->first + i) / a->n_group, g = (u->first + i) % a->n_group;
    return (size_t)t * a->config->n_head + u->head_kv * a->n_group + g;
}

/* Makes a unit of at most 4 queries of a head, from first on, and quantizes them. */
static void begin_unit(const struct attention *a, struct unit *u, uint32_t head_kv, uint32_t first) {
    uint32_t n = a->n_token * a->n_group - first;
    u->head_kv = head_kv;
    u->first = first;
    u->n = n < ATTN_QUERIES ? n : ATTN_QUERIES;
    for (uint32_t i = 0; i < u->n; i++) {
        const float *q = a->queries + query_row(a, u, i) * a->config->head_dim;
        int16_t *codes = u->q + (size_t)i * a->cache.n_dim;
        float step = a->kernels->quantize(q, codes, a->config->head_dim, 32767.0f, ATTN_NORM);
        u->q_scale[i] = step * (a->scale * ATTN_LOG2E);
        u->n_seen[i] = a->pos + (first + i) / a->n_group + 1;
    }
}

static uint32_t parts_of(uint32_t n_seen) { return (n_seen - 1) / KV_PART + 1; }

/* Returns the row of a->weights, which must not be NULL, for query i of a unit: pos + n_token weights. */
static float *weights_row(const struct attention *a, const struct unit *u, uint32_t i) {
    return a->weights + query_row(a, u, i) * (a->pos + a->n_token);
}

/* Computes part i of a unit, which at least the last of its queries must see. */
static void run_part(const struct attention *a, struct unit *u, uint32_t i, const struct scratch *s) {
    uint32_t begin = i * KV_PART, n_seen = u->n_seen[u->n - 1] - begin;
    if (n_seen > KV_PART) n_seen = KV_PART;
    const struct kv_cache *cache = &a->cache;
    uint32_t n = kv_round_up(n_seen, ATTN_BLOCK), n_dim = cache->n_dim;
    size_t row = kv_cache_row(cache, a->il, u->head_kv, begin);
    a->kernels->scores[cache->code_bytes - 1](s->scores, KV_PART, kv_cache_k(cache, a->il, u->head_kv, begin),
        cache->k_scale + row, (n_seen - 1) / ATTN_TILE + 1, u->q, u->q_scale, n_dim, u->n);
    for (uint32_t t = 0; t < u->n; t++) {
        float *w = s->scores + (size_t)t * KV_PART, *d = s->steps + (size_t)t * (KV_PART / ATTN_BLOCK);
        int16_t *codes = s->codes + (size_t)t * KV_PART;
        if (u->n_seen[t] <= begin) {   /* the kernel computes with these zeros, and end_unit skips the result */
            memset(codes, 0, n * sizeof *codes);
            memset(d, 0, n / ATTN_BLOCK * sizeof *d);
            continue;
        }
        uint32_t n_own = u->n_seen[t] - begin < n ? u->n_seen[t] - begin : n;
        u->sums[i * ATTN_QUERIES + t] =
            a->kernels->weigh(w, n_own, n, cache->v_scale + row, codes, d, &u->tops[i * ATTN_QUERIES + t]);
        if (a->weights) memcpy(weights_row(a, u, t) + begin, w, n_own * sizeof *w);
    }
    a->kernels->values[cache->code_bytes - 1](u->values + (size_t)i * ATTN_QUERIES * n_dim, n_dim,
        kv_cache_v(cache, a->il, u->head_kv, begin), n_dim / ATTN_TILE, n / ATTN_BLOCK, s->codes, s->steps, KV_PART,
        u->n);
}

/* Returns 2^x for an integer x <= 0, but 0 below 2^-126; NaN for NaN. */
static float power_of_two(float x) {
    if (x < -126.0f) return 0.0f;
    return x <= 0.0f ? f32_from_bits((uint32_t)((int32_t)x + 127) << 23) : x;
}

/* Adds up the parts of a unit and writes its rows of attn and weights. */
static void end_unit(const struct attention *a, const struct unit *u) {
    uint32_t n_dim = a->config->head_dim, n_key = a->pos + a->n_token;
    for (uint32_t t = 0; t < u->n; t++) {
        float *attn = a->attn + query_row(a, u, t) * n_dim, top = -INFINITY, sum = 0.0f;
        uint32_t n_part = parts_of(u->n_seen[t]);
        memset(attn, 0, n_dim * sizeof *attn);
        for (uint32_t i = t; i < n_part * ATTN_QUERIES; i += ATTN_QUERIES) top = u->tops[i] > top ? u->tops[i] : top;
        for (uint32_t i = t; i < n_part * ATTN_QUERIES; i += ATTN_QUERIES) {
            float by = power_of_two(u->tops[i] - top);
            sum += u->sums[i] * by;
            a->f32->add_scaled(attn, u->values + (size_t)i * a->cache.n_dim, by, n_dim);
        }
        float inverse = 1.0f / sum;
        for (uint32_t i = 0; i < n_dim; i++) attn[i] *= inverse;
        for (uint32_t p = 0; a->weights && p < n_key; p++) {
            float *w = weights_row(a, u, t) + p;
            if (p >= u->n_seen[t]) *w = 0.0f;
            else *w *= power_of_two(u->tops[p / KV_PART * ATTN_QUERIES + t] - top) * inverse;
        }
    }
}

static uint32_t units_of_head(const struct attention *a) { return (a->n_token * a->n_group - 1) / ATTN_QUERIES + 1; }

/* The loop of a prompt; i is an index into (n_head_kv, units of a head). */
static void run_units(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    struct unit *u = &a->units[thread];
    for (uint32_t i = begin; i < end; i++) {
        begin_unit(a, u, i / units_of_head(a), i % units_of_head(a) * ATTN_QUERIES);
        for (uint32_t part = 0; part < parts_of(u->n_seen[u->n - 1]); part++) {
            run_part(a, u, part, &a->scratch[thread]);
        }
        end_unit(a, u);
    }
}

/* The loop of one token; i is an index into (n_head_kv, parts). */
static void run_parts(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    uint32_t n_part = parts_of(a->pos + 1), n = units_of_head(a);
    for (uint32_t i = begin; i < end; i++) {
        for (uint32_t j = 0; j < n; j++) run_part(a, &a->units[i / n_part * n + j], i % n_part, &a->scratch[thread]);
    }
}

static void run_token(struct attention *a) {
    uint32_t n_seen = a->pos + 1, n = units_of_head(a), n_unit = a->config->n_head_kv * n;
    uint64_t n_first = n_seen < KV_PART ? n_seen : KV_PART;
    uint64_t cost = n_first * a->n_group * (2 * (uint64_t)a->cache.n_dim + WEIGHT_COST);
    for (uint32_t i = 0; i < n_unit; i++) begin_unit(a, &a->units[i], i / n, i % n * ATTN_QUERIES);
    pool_run(a->pool, a->config->n_head_kv * parts_of(n_seen), grain(cost), run_parts, a);
    for (uint32_t i = 0; i < n_unit; i++) end_unit(a, &a->units[i]);
}

/* ---- f32 --------------------------------------------------------------------------------------------------------- */

/* The loop for f32, of a prompt or one token; i is an index into (n_token, n_head). */
static void run_f32(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    const struct model_config *c = a->config;
    float *scores = a->scratch[thread].scores;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t head_kv = i % c->n_head / a->n_group, n_seen = a->pos + i / c->n_head + 1, n_key = a->pos + a->n_token;
        const float *k = (const float *)(const void *)kv_cache_k(&a->cache, a->il, head_kv, 0);
        const float *v = (const float *)(const void *)kv_cache_v(&a->cache, a->il, head_kv, 0);
        const float *q = a->queries + (size_t)i * c->head_dim;
        float *attn = a->attn + (size_t)i * c->head_dim;
        for (uint32_t p = 0; p < n_seen; p++) {
            scores[p] = a->f32->dot_f32(q, k + (size_t)p * a->cache.n_dim, c->head_dim) * a->scale;
        }
        a->f32->softmax(scores, n_seen);
        memset(attn, 0, c->head_dim * sizeof *attn);
        for (uint32_t p = 0; p < n_seen; p++) {
            a->f32->add_scaled(attn, v + (size_t)p * a->cache.n_dim, scores[p], c->head_dim);
        }
        if (!a->weights) continue;
        float *row = a->weights + (size_t)i * n_key;
        memcpy(row, scores, n_seen * sizeof *row);
        memset(row + n_seen, 0, (n_key - n_seen) * sizeof *row);
    }
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

void attention_store(struct attention *a, uint32_t il, const float *k, const float *v, uint32_t n_token, uint32_t pos) {
    a->il = il;
    a->n_token = n_token;
    a->pos = pos;
    a->new_k = k;
    a->new_v = v;
    pool_run(a->pool, a->config->n_head_kv, grain((uint64_t)n_token * a->cache.n_dim * WEIGHT_COST), store_heads, a);
}

void attention_run(struct attention *a, uint32_t il, const float *q, uint32_t n_token, uint32_t pos, float *attn,
                   float *weights) {
    a->il = il;
    a->n_token = n_token;
    a->pos = pos;
    a->queries = q;
    a->attn = attn;
    a->weights = weights;
    if (a->cache.type == PLUMB_KV_F32) pool_run(a->pool, n_token * a->config->n_head, 1, run_f32, a);
    else if (n_token == 1) run_token(a);
    else pool_run(a->pool, a->config->n_head_kv * units_of_head(a), 1, run_units, a);
}

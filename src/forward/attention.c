/* See attention.h.  A prompt is computed by units of 4 queries of one K/V head, each from scores to sums by one thread.
 * One token has only n_head queries: its scores, weights and sums are three loops, split by positions, heads and dims,
 * in which each K and V is read once for all queries of its head. */
#include "forward/attention.h"

#include "base/math.h"

#include <stdlib.h>

/* Multiplications of a chunk that is worth another thread: 10 microseconds.  A weight costs as many as WEIGHT_COST. */
enum { CHUNK_COST = 300000, WEIGHT_COST = 32 };
/* Tiles of K in a unit of the loop over scores: 512 positions. */
enum { PART_TILES = 64 };

/* Up to 4 queries of one K/V head on their way through the step. */
struct unit {
    uint32_t head_kv, first, n;              /* queries of the head: index t * n_group + (h % n_group) */
    uint32_t n_seen[ATTN_QUERIES], n_key;    /* positions each sees; all of them see, up to a multiple of 32 */
    int16_t *q;                              /* (n_dim / 2, 4, 4, 2) codes, as kernels/attention.h wants them */
    int16_t *code;                           /* (n_dim) of one vector on its way there, or into the cache */
    float q_scale[ATTN_QUERIES];
    float *scores;                           /* (4, n_position); then weights times their sum */
    int16_t *codes;                          /* (4, n_position) of weights times scales of V */
    float *steps;                            /* (4, n_position / 32) that codes count */
    float inverse[ATTN_QUERIES];             /* 1 / sum of weights */
};

struct attention {
    const struct model_config *config;
    const struct attention_kernels *kernels;
    const struct kernels *f32;
    struct pool *pool;
    plumb_kv_type type;
    uint32_t code_bytes;                     /* 2, 1 */
    uint32_t n_group, n_dim, n_position;     /* query heads of a K/V head; padded as in kernels/attention.h */
    float scale;
    uint64_t bytes;
    /* One (n_position, n_dim) for each of (n_layer, n_head_kv), of codes in tiles or of f32. */
    uint8_t *k, *v;
    float *k_scale, *v_scale;                /* (n_layer, n_head_kv, n_position), NULL for f32 */
    struct unit *units;                      /* one for each thread, or for each that one token has */
    uint32_t n_unit;
    /* What a loop over the pool is about. */
    uint32_t il, n_token, pos;
    const float *new_k, *new_v, *queries;
    float *attn, *weights;
};

/* ---- memory -------------------------------------------------------------------------------------------------- */

static uint32_t element_bytes(plumb_kv_type type) {
    return type == PLUMB_KV_F32 ? sizeof(float) : type == PLUMB_KV_I16 ? sizeof(int16_t) : sizeof(int8_t);
}

static uint64_t round_up(uint64_t n, uint32_t to) { return (n + to - 1) / to * to; }

double attention_cache_bytes(const struct model_config *c, uint32_t n_ctx, plumb_kv_type type) {
    double rows = 2.0 * c->n_layer * c->n_head_kv * (double)round_up(n_ctx, ATTN_BLOCK);
    return rows * ((double)round_up(c->head_dim, ATTN_TILE) * element_bytes(type)
                   + (type == PLUMB_KV_F32 ? 0 : sizeof(float)));
}

static void *take(struct attention *a, uint64_t n, size_t size) {
    void *p = alloc_array(n, size);
    if (p) a->bytes += n * size;
    return p;
}

static bool take_unit(struct attention *a, struct unit *u) {
    uint64_t n = (uint64_t)ATTN_QUERIES * a->n_position, n_q = (uint64_t)ATTN_QUERIES * a->n_dim;
    bool ok = (u->q = take(a, 4 * n_q, sizeof *u->q)) && (u->code = take(a, a->n_dim, sizeof *u->code))
           && (u->scores = take(a, n, sizeof *u->scores)) && (u->codes = take(a, n, sizeof *u->codes))
           && (u->steps = take(a, n / ATTN_BLOCK, sizeof *u->steps));
    if (!ok) return false;
    memset(u->code, 0, a->n_dim * sizeof *u->code);   /* behind head_dim nobody ever writes */
    memset(u->q, 0, 4 * (size_t)n_q * sizeof *u->q);
    if (a->code_bytes == 1) {                      /* whose kernels compute with 4 queries always */
        memset(u->codes, 0, (size_t)n * sizeof *u->codes);
        memset(u->steps, 0, (size_t)n / ATTN_BLOCK * sizeof *u->steps);
    }
    return true;
}

static bool take_all(struct attention *a) {
    const struct model_config *c = a->config;
    uint64_t n_row, n;   /* of three 32-bit numbers and a head: may pass 64 bits */
    if (!mul_u64((uint64_t)c->n_layer * c->n_head_kv, a->n_position, &n_row) || !mul_u64(n_row, a->n_dim, &n)) {
        return false;
    }
    if (!(a->k = take(a, n, element_bytes(a->type))) || !(a->v = take(a, n, element_bytes(a->type)))) return false;
    if (a->type != PLUMB_KV_F32) {
        if (!(a->k_scale = take(a, n_row, sizeof *a->k_scale))) return false;
        if (!(a->v_scale = take(a, n_row, sizeof *a->v_scale))) return false;
    }
    uint32_t n_decode = c->n_head_kv * ((a->n_group - 1) / ATTN_QUERIES + 1), n_thread = pool_size(a->pool);
    uint32_t n_unit = n_decode > n_thread ? n_decode : n_thread;
    if (!(a->units = take(a, n_unit, sizeof *a->units))) return false;
    memset(a->units, 0, n_unit * sizeof *a->units);
    for (; a->n_unit < n_unit; a->n_unit++) {
        if (!take_unit(a, &a->units[a->n_unit])) {
            a->n_unit++;   /* what it has is to be freed */
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
    a->type = type;
    a->code_bytes = element_bytes(type);
    a->n_group = c->n_head / c->n_head_kv;
    a->n_dim = (uint32_t)round_up(c->head_dim, ATTN_TILE);
    a->n_position = (uint32_t)round_up(n_ctx, ATTN_BLOCK);
    a->scale = c->attention_scale != 0.0f ? c->attention_scale : 1.0f / (float)math_sqrt((double)c->head_dim);
    if (!take_all(a)) {
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
        free(a->units[i].code);
        free(a->units[i].scores);
        free(a->units[i].codes);
        free(a->units[i].steps);
    }
    void *const owned[] = { a->k, a->v, a->k_scale, a->v_scale, a->units };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    free(a);
}

uint64_t attention_bytes(const struct attention *a) { return a->bytes; }

/* ---- what is kept ---------------------------------------------------------------------------------------------- */

/* First position of a head of the layer that is being computed: row of the scales, and of the codes or floats. */
static size_t head_row(const struct attention *a, uint32_t head_kv) {
    return ((size_t)a->il * a->config->n_head_kv + head_kv) * a->n_position;
}
static uint8_t *head_codes(const struct attention *a, uint8_t *cache, uint32_t head_kv) {
    return cache + head_row(a, head_kv) * a->n_dim * a->code_bytes;
}

static inline void put(const struct attention *a, uint8_t *codes, size_t i, int16_t code) {
    if (a->type == PLUMB_KV_I16) ((int16_t *)(void *)codes)[i] = code;
    else codes[i] = (uint8_t)code;
}

/* The largest code. */
static float most(const struct attention *a) { return a->type == PLUMB_KV_I16 ? 32767.0f : 127.0f; }

/* Position p of a head.  scratch: (n_dim) with zeros behind head_dim.  With the first position of a tile of K or a
 * block of V all of it is cleared: those behind are computed with, and dropped, before they are written. */
static void store_k(const struct attention *a, uint32_t head, uint32_t p, const float *x, int16_t *scratch) {
    float *scale = a->k_scale + head_row(a, head) + p;
    size_t tile_codes = (size_t)ATTN_TILE * a->n_dim;
    uint8_t *tile = head_codes(a, a->k, head) + p / ATTN_TILE * tile_codes * a->code_bytes;
    if (p % ATTN_TILE == 0) {
        memset(tile, 0, tile_codes * a->code_bytes);
        memset(scale, 0, ATTN_TILE * sizeof *scale);
    }
    *scale = a->kernels->quantize(x, scratch, a->config->head_dim, most(a), ATTN_NORM);
    for (uint32_t i = 0; i < a->n_dim; i++) {
        put(a, tile, (i / 2 * ATTN_TILE + p % ATTN_TILE) * 2 + i % 2, scratch[i]);
    }
}

enum { SPAN_DIMS = ATTN_SPAN * ATTN_TILE };
static uint32_t n_span(const struct attention *a) { return (a->n_dim - 1) / SPAN_DIMS + 1; }
static uint32_t tiles_of_span(const struct attention *a, uint32_t i) {
    uint32_t n = a->n_dim / ATTN_TILE - i * ATTN_SPAN;
    return n < ATTN_SPAN ? n : ATTN_SPAN;
}

static void store_v(const struct attention *a, uint32_t head, uint32_t p, const float *x, int16_t *scratch) {
    uint8_t *codes = head_codes(a, a->v, head);
    a->v_scale[head_row(a, head) + p] = a->kernels->quantize(x, scratch, a->config->head_dim, most(a), INFINITY);
    for (uint32_t first = 0; first < a->n_dim; first += SPAN_DIMS) {
        uint32_t n = tiles_of_span(a, first / SPAN_DIMS) * ATTN_TILE;
        size_t block = (size_t)first * a->n_position + p / ATTN_BLOCK * (size_t)ATTN_BLOCK * n;
        if (p % ATTN_BLOCK == 0) memset(codes + block * a->code_bytes, 0, (size_t)ATTN_BLOCK * n * a->code_bytes);
        for (uint32_t i = 0; i < n; i++) {
            size_t tile = block + i / ATTN_TILE * (ATTN_TILE * ATTN_BLOCK);
            put(a, codes, tile + (p % ATTN_BLOCK / 2 * ATTN_TILE + i % ATTN_TILE) * 2 + p % 2, scratch[first + i]);
        }
    }
}

static void store_f32(const struct attention *a, uint32_t head, uint32_t p, const float *k, const float *v) {
    size_t at = (size_t)p * a->n_dim * sizeof *k, n = a->config->head_dim * sizeof *k;
    memcpy(head_codes(a, a->k, head) + at, k, n);
    memcpy(head_codes(a, a->v, head) + at, v, n);
}

/* Heads begin .. end - 1. */
static void store_heads(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    const struct model_config *c = a->config;
    int16_t *scratch = a->units[thread].code;
    for (uint32_t h = begin; h < end; h++) {
        for (uint32_t t = 0; t < a->n_token; t++) {
            size_t at = ((size_t)t * c->n_head_kv + h) * c->head_dim;
            const float *k = a->new_k + at, *v = a->new_v + at;
            uint32_t p = a->pos + t;
            if (a->type == PLUMB_KV_F32) {
                store_f32(a, h, p, k, v);
            } else {
                store_k(a, h, p, k, scratch);
                store_v(a, h, p, v, scratch);
            }
        }
    }
}

/* ---- the step, by units ------------------------------------------------------------------------------------------ */

/* Units of cost multiplications each that make a chunk. */
static uint32_t grain(uint64_t cost) { return cost < CHUNK_COST ? (uint32_t)(CHUNK_COST / (cost + 1)) + 1 : 1; }

/* Where query i of a unit is in (n_token, n_head). */
static size_t query_row(const struct attention *a, const struct unit *u, uint32_t i) {
    uint32_t t = (u->first + i) / a->n_group, g = (u->first + i) % a->n_group;
    return (size_t)t * a->config->n_head + u->head_kv * a->n_group + g;
}

/* The queries of a head from first on, 4 at most. */
static void begin_unit(const struct attention *a, struct unit *u, uint32_t head_kv, uint32_t first) {
    uint32_t n = a->n_token * a->n_group - first;
    u->head_kv = head_kv;
    u->first = first;
    u->n = n < ATTN_QUERIES ? n : ATTN_QUERIES;
    for (uint32_t i = 0; i < u->n; i++) {
        const float *q = a->queries + query_row(a, u, i) * a->config->head_dim;
        float step = a->kernels->quantize(q, u->code, a->config->head_dim, 32767.0f, ATTN_NORM);
        for (uint32_t pair = 0; pair < a->n_dim / 2; pair++) {
            int16_t *to = u->q + ((size_t)pair * ATTN_QUERIES + i) * 8;
            for (int lane = 0; lane < 4; lane++) memcpy(to + 2 * lane, u->code + 2 * pair, 2 * sizeof *to);
        }
        u->q_scale[i] = step * (a->scale * ATTN_LOG2E);
        u->n_seen[i] = a->pos + (first + i) / a->n_group + 1;
    }
    u->n_key = (uint32_t)round_up(u->n_seen[u->n - 1], ATTN_BLOCK);
}

/* Of tiles begin .. end - 1 of K. */
static void score(const struct attention *a, struct unit *u, uint32_t begin, uint32_t end) {
    size_t at = (size_t)begin * ATTN_TILE;
    a->kernels->scores[a->code_bytes - 1](u->scores + at, a->n_position,
        head_codes(a, a->k, u->head_kv) + at * a->n_dim * a->code_bytes, a->k_scale + head_row(a, u->head_kv) + at,
        end - begin, u->q, u->q_scale, a->n_dim, u->n);
}

/* Of query i. */
static void weigh(const struct attention *a, struct unit *u, uint32_t i) {
    float *w = u->scores + (size_t)i * a->n_position;
    float sum = a->kernels->weigh(w, u->n_seen[i], u->n_key, a->v_scale + head_row(a, u->head_kv),
                                  u->codes + (size_t)i * a->n_position,
                                  u->steps + (size_t)i * (a->n_position / ATTN_BLOCK));
    u->inverse[i] = 1.0f / sum;
    if (!a->weights) return;
    uint32_t n_key = a->pos + a->n_token;
    float *row = a->weights + query_row(a, u, i) * n_key;
    for (uint32_t p = 0; p < n_key; p++) row[p] = p < u->n_seen[i] ? w[p] * u->inverse[i] : 0.0f;
}

/* Of span i of V. */
static void sum_values(const struct attention *a, const struct unit *u, uint32_t i) {
    float sums[ATTN_QUERIES][SPAN_DIMS];
    size_t at = (size_t)i * SPAN_DIMS, n = a->config->head_dim - at;
    a->kernels->values[a->code_bytes - 1](sums[0], SPAN_DIMS,
        head_codes(a, a->v, u->head_kv) + at * a->n_position * a->code_bytes, tiles_of_span(a, i),
        u->n_key / ATTN_BLOCK, u->codes, u->steps, a->n_position, u->inverse, u->n);
    if (n > SPAN_DIMS) n = SPAN_DIMS;
    for (uint32_t t = 0; t < u->n; t++) {
        memcpy(a->attn + query_row(a, u, t) * a->config->head_dim + at, sums[t], n * sizeof *a->attn);
    }
}

/* ---- a prompt -------------------------------------------------------------------------------------------------- */

static uint32_t units_of_head(const struct attention *a) { return (a->n_token * a->n_group - 1) / ATTN_QUERIES + 1; }

static void run_units(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    struct unit *u = &a->units[thread];
    for (uint32_t i = begin; i < end; i++) {
        begin_unit(a, u, i / units_of_head(a), i % units_of_head(a) * ATTN_QUERIES);
        score(a, u, 0, (u->n_seen[u->n - 1] - 1) / ATTN_TILE + 1);
        for (uint32_t t = 0; t < u->n; t++) weigh(a, u, t);
        for (uint32_t s = 0; s < n_span(a); s++) sum_values(a, u, s);
    }
}

/* ---- one token ------------------------------------------------------------------------------------------------- */

/* i: (n_head_kv, parts). */
static void score_parts(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    uint32_t n_tile = a->pos / ATTN_TILE + 1, n_part = (n_tile - 1) / PART_TILES + 1, n = units_of_head(a);
    (void)thread;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t first = i % n_part * PART_TILES, last = n_tile - first < PART_TILES ? n_tile : first + PART_TILES;
        for (uint32_t j = 0; j < n; j++) score(a, &a->units[i / n_part * n + j], first, last);
    }
}

/* i: (n_unit, 4). */
static void weigh_queries(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    (void)thread;
    for (uint32_t i = begin; i < end; i++) {
        struct unit *u = &a->units[i / ATTN_QUERIES];
        if (i % ATTN_QUERIES < u->n) weigh(a, u, i % ATTN_QUERIES);
    }
}

/* i: (n_head_kv, spans of V). */
static void sum_spans(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    uint32_t n = units_of_head(a);
    (void)thread;
    for (uint32_t i = begin; i < end; i++) {
        for (uint32_t j = 0; j < n; j++) sum_values(a, &a->units[i / n_span(a) * n + j], i % n_span(a));
    }
}

static void run_token(struct attention *a) {
    uint32_t n_head_kv = a->config->n_head_kv, n = units_of_head(a), n_part = a->pos / (PART_TILES * ATTN_TILE) + 1;
    uint64_t n_seen = (uint64_t)a->pos + 1;
    for (uint32_t i = 0; i < n_head_kv * n; i++) begin_unit(a, &a->units[i], i / n, i % n * ATTN_QUERIES);
    uint64_t part_cost = (n_seen < PART_TILES * ATTN_TILE ? n_seen : PART_TILES * ATTN_TILE) * a->n_dim * a->n_group;
    pool_run(a->pool, n_head_kv * n_part, grain(part_cost), score_parts, a);
    pool_run(a->pool, n_head_kv * n * ATTN_QUERIES, grain(n_seen * WEIGHT_COST), weigh_queries, a);
    pool_run(a->pool, n_head_kv * n_span(a), grain(n_seen * SPAN_DIMS * a->n_group), sum_spans, a);
}

/* ---- f32 --------------------------------------------------------------------------------------------------------- */

/* i: (n_token, n_head). */
static void run_f32(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct attention *a = user;
    const struct model_config *c = a->config;
    float *scores = a->units[thread].scores;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t head_kv = i % c->n_head / a->n_group, n_seen = a->pos + i / c->n_head + 1, n_key = a->pos + a->n_token;
        const float *k = (const float *)(const void *)head_codes(a, a->k, head_kv);
        const float *v = (const float *)(const void *)head_codes(a, a->v, head_kv);
        const float *q = a->queries + (size_t)i * c->head_dim;
        float *attn = a->attn + (size_t)i * c->head_dim;
        for (uint32_t p = 0; p < n_seen; p++) {
            scores[p] = a->f32->dot_f32(q, k + (size_t)p * a->n_dim, c->head_dim) * a->scale;
        }
        a->f32->softmax(scores, n_seen);
        memset(attn, 0, c->head_dim * sizeof *attn);
        for (uint32_t p = 0; p < n_seen; p++) {
            a->f32->add_scaled(attn, v + (size_t)p * a->n_dim, scores[p], c->head_dim);
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
    pool_run(a->pool, a->config->n_head_kv, grain((uint64_t)n_token * a->n_dim * WEIGHT_COST), store_heads, a);
}

void attention_run(struct attention *a, uint32_t il, const float *q, uint32_t n_token, uint32_t pos, float *attn,
                   float *weights) {
    a->il = il;
    a->n_token = n_token;
    a->pos = pos;
    a->queries = q;
    a->attn = attn;
    a->weights = weights;
    if (a->type == PLUMB_KV_F32) pool_run(a->pool, n_token * a->config->n_head, 1, run_f32, a);
    else if (n_token == 1) run_token(a);
    else pool_run(a->pool, a->config->n_head_kv * units_of_head(a), 1, run_units, a);
}

/* The rings of layers with windows: what they hold, and that nothing else tells them from caches that hold all
 * positions.  Truth: the same attention, and the same sessions, with batches of the whole context, which leave no room
 * to save, so that windows only mask. */
#include "attending.h"
#include "fixture.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

static uint32_t random_state;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * n >> 32);
}

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

static void lengths(void) {
    static const struct { uint32_t window, n_ctx, n_batch, n_position; } rows[] = {
        { 0, 5000, 64, 5024 },          /* no window: the context in whole blocks */
        { 1, 5000, 64, 1024 },
        { 512, 32768, 64, 1024 },       /* Gemma 3: 511 + 480 + 31 = 1022 */
        { 514, 32768, 64, 1024 },
        { 515, 32768, 64, 2048 },
        { 4096, 32768, 64, 5120 },      /* Gemma 2 */
        { 512, 32768, 482, 1024 },      /* a batch longer than what a sequence can go back */
        { 512, 32768, 483, 2048 },
        { 512, 1024, 64, 1024 },        /* a ring would not be shorter */
        { 512, 1000, 64, 1024 },
        { 512, 1025, 64, 1024 },
        { 512, 900, 64, 928 },
        { 512, 5000, 5000, 5024 },      /* a model that is not causal */
        { UINT32_MAX, 1 << 24, 64, 1 << 24 },
        { 1 << 24, 1 << 24, 64, 1 << 24 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct attn_plan a = { .window = rows[i].window };
        uint32_t n = kv_cache_length(&a, rows[i].n_ctx, rows[i].n_batch);
        CHECK(n == rows[i].n_position, "row %zu: %u positions, expected %u", i, n, rows[i].n_position);
        a.is_chunked = true;
        CHECK(kv_cache_length(&a, rows[i].n_ctx, rows[i].n_batch) == n, "row %zu: chunks have another length", i);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

enum { N_CTX = 3200, N_HEAD = 3, DIM = 32, MAX_BATCH = 482, N_POOL = 1500 };

struct ring {
    const char *name;
    uint32_t window;
    bool is_chunked;
    uint32_t n_batch, n_position;
};

/* Attention of one layer over a ring and over a whole cache, with the same random input. */
struct pair {
    const struct ring *row;
    struct layer_plan layer;
    struct plan plan;
    struct attending ring, whole;
    float pool[N_POOL + MAX_BATCH][DIM];   /* vectors from which inputs are drawn */
    float q[MAX_BATCH * N_HEAD * DIM];     /* N_HEAD query heads share one K/V head */
    float out[2][MAX_BATCH * N_HEAD * DIM];
};

static void store(struct pair *pair, const float *k, const float *v, uint32_t n, uint32_t pos) {
    attention_store(pair->ring.a, &pair->ring.s, 0, k, v, n, pos);
    attention_store(pair->whole.a, &pair->whole.s, 0, k, v, n, pos);
}

/* Stores and computes n tokens at pos.  Returns false if the outputs differ or are NaN. */
static bool step(struct pair *pair, uint32_t n, uint32_t pos) {
    store(pair, pair->pool[random_below(N_POOL)], pair->pool[random_below(N_POOL)], n, pos);
    for (uint32_t i = 0; i < n * N_HEAD; i++) {
        memcpy(pair->q + (size_t)i * DIM, pair->pool[random_below(N_POOL)], sizeof pair->pool[0]);
    }
    attention_run(pair->ring.a, &pair->ring.s, 0, pair->q, NULL, NULL, n, pos, pair->out[0], NULL);
    attention_run(pair->whole.a, &pair->whole.s, 0, pair->q, NULL, NULL, n, pos, pair->out[1], NULL);
    for (uint32_t i = 0; i < n * N_HEAD * DIM; i++) {
        bool same = f32_to_bits(pair->out[0][i]) == f32_to_bits(pair->out[1][i]) && !isnan(pair->out[0][i]);
        if (!CHECK(same, "%u tokens at %u: %g is output %u of the ring, %g of the whole cache", n, pos,
                   (double)pair->out[0][i], i, (double)pair->out[1][i])) return false;
    }
    return true;
}

/* A sequence that grows by random batches and goes back by random distances.  highest: the end of its longest state
 * since it was empty. */
static void walk(struct pair *pair) {
    const struct ring *row = pair->row;
    uint32_t pos = 0, highest = 0, n_kept = 0, n_lost = 0;
    for (uint32_t round = 0; round < 12; round++) {
        uint32_t end = pos + random_below(N_CTX - pos + 1);
        for (uint32_t n; pos < end; pos += n) {
            n = random_below(2) ? row->n_batch : 1 + random_below(row->n_batch);
            if (n > end - pos) n = end - pos;
            if (!step(pair, n, pos)) return;
        }
        if (pos > highest) highest = pos;
        uint32_t back = round % 3 == 0 ? KV_REWIND : random_below(round % 3 == 1 ? KV_REWIND : pos + 1);
        uint32_t target = back < pos ? pos - back : 0, kept = sequence_rewind(&pair->ring.s, target);
        CHECK(sequence_rewind(&pair->whole.s, target) == target, "the whole cache has lost position %u", target);
        CHECK(kept == target || kept == 0, "%u of %u positions", kept, target);
        if (highest - target <= KV_REWIND) CHECK(kept == target, "back from %u to %u: %u", highest, target, kept);
        if (highest - target > row->n_position) CHECK(kept == 0, "back from %u to %u: %u", highest, target, kept);
        if (kept == 0) highest = 0;
        pos = kept;
        n_kept += kept > 0;
        n_lost += kept < target;
    }
    CHECK(n_kept > 4 && n_lost > 0, "%u ways back were kept, %u were lost", n_kept, n_lost);
}

/* Both caches are first filled with NaN, which would show in any output that depends on what is not in the window. */
static void fill_with_nan(struct pair *pair) {
    static float nan[MAX_BATCH * DIM];
    for (size_t i = 0; i < sizeof nan / sizeof *nan; i++) nan[i] = NAN;
    for (uint32_t pos = 0, n; pos < N_CTX; pos += n) {
        n = N_CTX - pos < pair->row->n_batch ? N_CTX - pos : pair->row->n_batch;
        store(pair, nan, nan, n, pos);
    }
}

/* Whether a row tries this type of K and V.  Each row tries one at least. */
static bool tries_type(const struct ring *row, uint32_t type) {
    return type == row->window % 4 || test_repeats(row->window + type);
}

static void walk_row(const void *arg) {
    const struct ring *row = arg;
    static struct pair pair;
    struct attention_kernels kernels;
    struct kernels f32;
    attention_kernels_init(&kernels, false);
    kernels_init(&f32, KERNELS_SIMD128, PLUMB_PRECISION_EXACT16);
    pair.row = row;
    pair.layer.attn = (struct attn_plan) { .n_head = N_HEAD, .n_head_kv = 1, .k_dim = DIM, .v_dim = DIM,
                                           .window = row->window, .is_chunked = row->is_chunked, .is_causal = true };
    pair.plan = (struct plan) { .n_layer = 1, .layers = &pair.layer };
    random_state = row->window;
    for (size_t i = 0; i < sizeof pair.pool / sizeof(float); i++) {
        pair.pool[i / DIM][i % DIM] = (float)random_below(2001) * 1e-3f - 1;
    }
    for (uint32_t type = 0; type < 4; type++) {
        if (!tries_type(row, type)) continue;
        plumb_kv_type kv_type = (plumb_kv_type)type;
        pair.ring = pair.whole = (struct attending) { 0 };
        if (CHECK(attending_create(&pair.ring, &pair.plan, N_CTX, row->n_batch, kv_type, &kernels, &f32, NULL)
                  && attending_create(&pair.whole, &pair.plan, N_CTX, N_CTX, kv_type, &kernels, &f32, NULL),
                  "memory")) {
            uint64_t saved = N_CTX - row->n_position, of_position = 2 * DIM * sizeof(float);
            if (kv_type == PLUMB_KV_I16) of_position = 2 * DIM * 2 + 2 * sizeof(float);
            if (kv_type == PLUMB_KV_Q8_0) of_position = 2 * 34;
            if (kv_type == PLUMB_KV_Q4_0) of_position = 2 * 18;
            CHECK(attending_bytes(&pair.ring) + saved * of_position == attending_bytes(&pair.whole),
                  "%llu bytes, %llu of the whole cache", (unsigned long long)attending_bytes(&pair.ring),
                  (unsigned long long)attending_bytes(&pair.whole));
            fill_with_nan(&pair);
            walk(&pair);
        }
        attending_free(&pair.ring);
        attending_free(&pair.whole);
    }
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* The most tokens; a run has NEARBY more than a ring has positions. */
enum { N_IDS = 2400, NEARBY = 352 };

/* A toy Gemma 3 for a type of K and V, whose heads have as many elements as that needs: n_layer layers, all but one of
 * which have windows. */
struct toy { const char *path; uint32_t n_layer; };

static struct toy toy_for(plumb_kv_type type) {
    bool has_slices = kv_type_has_slices(type);
    return has_slices ? (struct toy) { "tests/vectors/kv/windows.gguf", 3 }
                      : (struct toy) { "tests/vectors/archs/gemma3.gguf", 7 };
}

/* The toy with this window. */
static plumb_model *load_with_window(struct toy toy, uint32_t window) {
    static const char key[] = "gemma3.attention.sliding_window";
    size_t n = 0, n_found = 0;
    uint8_t *file = test_read_all(toy.path, &n);
    for (size_t i = 0; file && i + sizeof key + 8 < n; i++) {
        const uint8_t *entry = file + i;
        if (memcmp(entry, key, sizeof key - 1) != 0 || load_u32(entry + sizeof key - 1) != 4) continue;   /* 4: u32 */
        memcpy(file + i + sizeof key - 1 + 4, &window, sizeof window);   /* after the type of the value */
        n_found++;
    }
    plumb_model *m = plumb_model_create();
    bool ok = CHECK(n_found == 1, "%zu keys", n_found)
           && CHECK(m && plumb_model_begin(m, n) == PLUMB_OK && fixture_give(m, file, 0, n, n) == PLUMB_OK
                    && plumb_model_end(m) == PLUMB_OK, "%s", m ? plumb_model_error(m) : "memory");
    free(file);
    if (ok) return m;
    plumb_model_free(m);
    return NULL;
}

static uint64_t hash_of(const float *logits, uint32_t n) {
    uint64_t hash = 0;
    for (uint32_t i = 0; logits && i < n; i++) hash = hash * 31 + f32_to_bits(logits[i]);
    return hash;
}

/* The logits after every token of a session with n tokens. */
struct straight {
    uint32_t n;
    plumb_session *s;
    int32_t ids[N_IDS];
    uint64_t hashes[N_IDS];
    uint32_t n_vocab;
};
static void keep_hash(void *user, uint32_t pos, const float *logits) {
    struct straight *run = user;
    run->hashes[pos] = hash_of(logits, run->n_vocab);
}

/* Feeds tokens [from, end) and compares the logits after the last one. */
static bool feed(plumb_session *s, const struct straight *run, uint32_t from, uint32_t end) {
    return CHECK(plumb_session_feed(s, run->ids + from, end - from) == PLUMB_OK, "%s", plumb_session_error(s))
        && CHECK(plumb_session_n_past(s) == end, "%u tokens, expected %u", plumb_session_n_past(s), end)
        && CHECK(hash_of(plumb_session_logits(s), run->n_vocab) == run->hashes[end - 1], "other logits after token %u",
                 end - 1);
}

/* Goes back from the end, each time by one token more, until the window is lost, and then over everything again. */
static void go_back(plumb_session *s, const struct straight *run, uint32_t n_position) {
    if (!feed(s, run, 0, run->n)) return;
    uint32_t n = run->n, kept;
    while ((kept = plumb_session_reuse(s, run->ids, n)) == n - 1 && feed(s, run, n - 1, n)) n--;
    CHECK(run->n - n >= KV_REWIND && run->n - n < n_position, "lost %u tokens before the end", run->n - n + 1);
    CHECK(kept == 0 && plumb_session_n_past(s) == 0 && !plumb_session_logits(s), "%u tokens kept", kept);
    if (!feed(s, run, 0, run->n)) return;
    /* A rewind computes again what is needed, here everything before token 300 and then nothing. */
    for (uint32_t to = 300; to > 290; to -= 5) {
        CHECK(plumb_session_rewind(s, to) == PLUMB_OK && plumb_session_n_past(s) == to && !plumb_session_logits(s),
              "%s, %u tokens", plumb_session_error(s), plumb_session_n_past(s));
        CHECK(memcmp(plumb_session_tokens(s), run->ids, to * sizeof *run->ids) == 0, "other tokens");
        if (!feed(s, run, to, to + 20)) return;
    }
    CHECK(plumb_session_rewind(s, 0) == PLUMB_OK && feed(s, run, 0, 1), "from the start");
}

static void sessions_row(const void *arg) {
    const struct ring *row = arg;
    static struct straight run;
    run.n = row->n_position + NEARBY;
    for (uint32_t type = 0; type < 4; type++) {
        if (!tries_type(row, type)) continue;
        struct toy toy = toy_for((plumb_kv_type)type);
        plumb_model *m = load_with_window(toy, row->window), *global = load_with_window(toy, N_IDS);
        REQUIRE(m && global, "no model");
        run.n_vocab = plumb_model_n_vocab(m);
        for (uint32_t i = 0; i < run.n; i++) run.ids[i] = (int32_t)((i * 37 + i / 11) % run.n_vocab);
        plumb_session_params params = { .n_ctx = run.n, .n_batch = run.n, .kv_type = (plumb_kv_type)type };
        plumb_session *s = NULL, *large = NULL;
        REQUIRE(plumb_session_create(&run.s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m));
        CHECK(plumb_session_feed_all(run.s, run.ids, run.n, keep_hash, &run) == PLUMB_OK, "%s",
              plumb_session_error(run.s));
        plumb_session_free(run.s);
        params.n_batch = row->n_batch;
        if (CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK
                  && plumb_session_create(&large, global, &params) == PLUMB_OK, "%s", plumb_model_error(m))) {
            double kv = plumb_model_kv_bytes(m, run.n, row->n_batch, params.kv_type, 0);
            double of_whole = plumb_model_kv_bytes(global, run.n, row->n_batch, params.kv_type, 0);
            double saved = (double)(plumb_session_bytes(large) - plumb_session_bytes(s));
            double n_id = (double)run.n, part = (toy.n_layer - 1.0) / toy.n_layer;   /* of the layers have rings */
            double expected = of_whole * part * (n_id - row->n_position) / n_id;
            CHECK(fabs(saved - expected) < 1 && fabs(of_whole - kv - expected) < 1, "%g bytes less, predicted %g, "
                  "expected %g", saved, of_whole - kv, expected);
            go_back(s, &run, row->n_position);
        }
        plumb_session_free(s);
        plumb_session_free(large);
        plumb_model_free(m);
        plumb_model_free(global);
    }
}

/* ---- dropped tokens ---------------------------------------------------------------------------------------------- */

enum { N_FULL = 1400, N_KEEP = 5, WIDE = 64, N_AFTER = 40 };

struct move {
    const char *name;
    enum rope_pairing pairing;
    uint32_t n_rot, window, n_drop;   /* n_rot 0: no RoPE */
    uint32_t n_plain;                 /* of latent attention: elements before those that are rotated */
};

/* x (WIDE) rotated by the angles of RoPE at a position: Su et al. 2021, eq. 34. */
static void rope_at(const struct move *row, uint32_t pos, const float *x, float *y) {
    memcpy(y, x, WIDE * sizeof *x);
    for (uint32_t i = 0; i < row->n_rot / 2; i++) {
        uint32_t a = row->n_plain + (row->pairing == ROPE_NORM ? 2 * i : i);
        uint32_t b = row->pairing == ROPE_NORM ? a + 1 : a + row->n_rot / 2;
        double angle = pos * pow(10000, -2.0 * i / row->n_rot);
        y[a] = (float)((double)x[a] * cos(angle) - (double)x[b] * sin(angle));
        y[b] = (float)((double)x[a] * sin(angle) + (double)x[b] * cos(angle));
    }
}

/* What attention must compute for q at own: tokens[p] is the token whose K and V are at position p. */
static void formula(const struct move *row, const float (*pool)[WIDE], const uint32_t *tokens, uint32_t own,
                    const float *q, double *out) {
    double sum = 0;
    memset(out, 0, WIDE * sizeof *out);
    for (uint32_t p = row->window > 0 && own >= row->window ? own - row->window + 1 : 0; p <= own; p++) {
        float k[WIDE];
        double score = 0;
        rope_at(row, p, pool[tokens[p]], k);
        for (uint32_t i = 0; i < WIDE; i++) score += (double)q[i] * (double)k[i];
        double w = exp(score / sqrt(WIDE));
        sum += w;
        for (uint32_t i = 0; i < WIDE; i++) out[i] += w * (double)pool[tokens[p]][WIDE - 1 - i];   /* V: K backwards */
    }
    for (uint32_t i = 0; i < WIDE; i++) out[i] /= sum;
}

static void store_token(struct attending *x, const struct move *row, const float (*pool)[WIDE], uint32_t token,
                        uint32_t pos) {
    float k[WIDE], v[WIDE];
    rope_at(row, pos, pool[token], k);
    for (uint32_t i = 0; i < WIDE; i++) v[i] = pool[token][WIDE - 1 - i];
    attention_store(x->a, &x->s, 0, k, v, 1, pos);
}

/* A full cache drops tokens and goes on, and so does another one which is fed what remains.  Both must be as near to
 * the formula, but for K that is rounded twice. */
static void move_row(const void *arg) {
    const struct move *row = arg;
    static float pool[N_FULL + N_AFTER][WIDE];
    static uint32_t tokens[N_FULL];
    struct attention_kernels kernels;
    struct kernels f32;
    attention_kernels_init(&kernels, false);
    kernels_init(&f32, KERNELS_SIMD128, PLUMB_PRECISION_EXACT16);
    struct layer_plan layer = { .attn = { .n_head = 1, .n_head_kv = 1, .k_dim = WIDE, .v_dim = WIDE,
                                          .rope = row->n_rot > 0 ? ROPE_LOCAL : ROPE_NONE, .window = row->window,
                                          .is_causal = true } };
    if (row->n_plain > 0) {
        layer.attn.latent = (struct latent_plan) { .n_kv = row->n_plain, .n_rotated = row->n_rot, .is_absorbed = true };
    }
    struct plan plan = { .n_layer = 1, .layers = &layer };
    plan.ropes[ROPE_LOCAL] = (struct rope_plan) { .pairing = row->pairing, .n_rot = row->n_rot };
    float cosines[WIDE], sines[WIDE];
    float *const cosine[PLAN_ROPES] = { NULL, cosines }, *const sine[PLAN_ROPES] = { NULL, sines };
    random_state = row->n_drop;
    for (size_t i = 0; i < sizeof pool / sizeof(float); i++) {
        pool[i / WIDE][i % WIDE] = (float)random_below(2001) * 1e-3f - 1;
    }
    for (uint32_t i = 0; i < row->n_rot / 2; i++) {
        double angle = -(double)row->n_drop * pow(10000, -2.0 * i / row->n_rot);
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
    for (uint32_t type = 0; type < 4; type++) {
        struct attending a[2] = { { 0 }, { 0 } };   /* the one that drops tokens, and the other */
        bool ok = true;
        for (int j = 0; j < 2; j++) {
            ok = CHECK(attending_create(&a[j], &plan, N_FULL, 8, (plumb_kv_type)type, &kernels, &f32, NULL),
                       "memory") && ok;
        }
        ok = ok && CHECK(attention_prepare_drop(a[0].a, &a[0].s, N_FULL), "memory");
        uint32_t n_past = N_FULL - row->n_drop;
        for (uint32_t p = 0; ok && p < N_FULL; p++) store_token(&a[0], row, pool, p, p);
        for (uint32_t p = 0; ok && p < n_past; p++) {
            tokens[p] = p < N_KEEP ? p : p + row->n_drop;
            store_token(&a[1], row, pool, tokens[p], p);
        }
        if (ok) attention_drop(a[0].a, &a[0].s, N_KEEP, row->n_drop, N_FULL, cosine, sine);
        double d2[2] = { 0, 0 }, l2 = 0;
        for (uint32_t t = 0; ok && t < N_AFTER && n_past < N_FULL; t++, n_past++) {
            float out[WIDE];
            double y[WIDE];
            tokens[n_past] = N_FULL + t;
            formula(row, (const float (*)[WIDE])pool, tokens, n_past, pool[t], y);
            for (int j = 0; j < 2; j++) {
                store_token(&a[j], row, pool, tokens[n_past], n_past);
                attention_run(a[j].a, &a[j].s, 0, pool[t], NULL, NULL, 1, n_past, out, NULL);
                for (uint32_t i = 0; i < WIDE; i++) d2[j] += ((double)out[i] - y[i]) * ((double)out[i] - y[i]);
            }
            for (uint32_t i = 0; i < WIDE; i++) l2 += y[i] * y[i];
        }
        double moved = sqrt(d2[0] / l2), fed = sqrt(d2[1] / l2);
        if (ok) CHECK(moved <= 1.6 * fed + 1e-6 && fed < 0.1, "%s: %g of moved tokens, %g of others",
                      plumb_kv_type_name((plumb_kv_type)type), moved, fed);
        test_note("%s: relative RMS %.2g of moved tokens, %.2g of others", plumb_kv_type_name((plumb_kv_type)type),
                  moved, fed);
        for (int j = 0; j < 2; j++) attending_free(&a[j]);
    }
}

void test_kv_cache(void) {
    static const struct ring rings[] = {
        { "a window of 1", 1, false, 1, 1024 },
        { "a window of 33, batches of 64", 33, false, 64, 1024 },
        { "a window of 512, batches of 482: no position to spare", 512, false, 482, 1024 },
        { "a window of 513, batches of 482: one position more", 513, false, 482, 2048 },
        { "a window of 1025, batches of 100", 1025, false, 100, 2048 },
        { "chunks of 300, batches of 64", 300, true, 64, 1024 },
        { "chunks of 514, batches of 7: no position to spare", 514, true, 7, 1024 },
    };
    static const struct ring toys[] = {
        { "a window of 3, batches of 64", 3, false, 64, 1024 },
        { "a window of 514, batches of 7: no position to spare", 514, false, 7, 1024 },
        { "a window of 600, batches of 100", 600, false, 100, 2048 },
    };
    static const struct move moves[] = {
        { "pairs side by side", ROPE_NORM, WIDE, 0, 700, .n_plain = 0 },
        { "pairs half a head apart", ROPE_NEOX, WIDE, 0, 697, .n_plain = 0 },
        { "half of a head rotated", ROPE_NEOX, WIDE / 2, 0, 32, .n_plain = 0 },
        { "the end of a head rotated", ROPE_NORM, 16, 0, 500, .n_plain = WIDE - 16 },
        { "no RoPE", ROPE_NORM, 0, 0, 33, .n_plain = 0 },
        { "a ring", ROPE_NEOX, WIDE, 200, 697, .n_plain = 0 },
        { "a ring, fewer dropped than lost", ROPE_NORM, WIDE, 500, 64, .n_plain = 0 },
    };
    test_case("kv_cache: rings are as long as windows, batches and ways back need", lengths);
    TEST_ROWS("kv_cache: attention over a ring has the bits of a whole cache: ", walk_row, rings);
    TEST_ROWS("kv_cache: positions that move have the formula's values: ", move_row, moves);
    TEST_ROWS("kv_cache: a session with rings goes back by any distance to the bits of a straight run: ", sessions_row,
              toys);
}

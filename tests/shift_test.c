/* Sessions that drop tokens when their context is full.  Truth: what a session holds does not depend on its batches, on
 * rewinds or on what it held before; tests/kv_cache_test.c and tests/vectors/shift have the values. */
#include "fixture.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_IDS = 3000, N_WALKS = 24 };

/* hashes[i]: of the logits after i + 1 tokens of a straight run. */
struct run {
    uint32_t n, n_vocab, n_hash;
    int32_t ids[N_IDS];
    uint64_t hashes[N_IDS];
};

static uint64_t hash_of(const float *logits, uint32_t n) {
    uint64_t hash = 0;
    for (uint32_t i = 0; logits && i < n; i++) hash = hash * 31 + f32_to_bits(logits[i]);
    return hash;
}
static void keep_hash(void *user, uint32_t pos, const float *logits) {
    struct run *run = user;
    run->hashes[run->n_hash++] = hash_of(logits, run->n_vocab);
    (void)pos;
}

static plumb_session *open(plumb_model *m, uint32_t n_ctx, uint32_t n_keep, plumb_kv_type type) {
    plumb_session *s = NULL;
    plumb_session_params params = { .n_ctx = n_ctx, .n_batch = 50, .kv_type = type };
    CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m));
    if (s) CHECK(plumb_session_set_shift(s, n_keep) == PLUMB_OK, "%s", plumb_session_error(s));
    return s;
}

struct shape { const char *model; uint32_t n_ctx, n_keep, n; plumb_kv_type type; };

/* A session is fed texts that share any number of tokens with what it was fed before: whatever it reuses, its logits
 * are those of the straight run. */
static void walk_row(const void *row) {
    const struct shape *of = row;
    static struct run run;
    char path[120];
    uint32_t state = 1, n_kept = 0, n_whole = 0;
    snprintf(path, sizeof path, "tests/vectors/%s.gguf", of->model);
    plumb_model *m = fixture_load(path);
    REQUIRE(m, "%s", path);
    run.n = of->n;
    run.n_hash = 0;
    run.n_vocab = plumb_model_n_vocab(m);
    for (uint32_t i = 0; i < run.n; i++) run.ids[i] = (int32_t)((i * 37 + i / 11) % run.n_vocab);
    plumb_session *straight = open(m, of->n_ctx, of->n_keep, of->type);
    plumb_session *s = open(m, of->n_ctx, of->n_keep, of->type);
    REQUIRE(straight && s, "no session");
    CHECK(plumb_session_feed_all(straight, run.ids, run.n, keep_hash, &run) == PLUMB_OK, "%s",
          plumb_session_error(straight));
    uint32_t n_dropped = plumb_session_n_dropped(straight), n_past = plumb_session_n_past(straight);
    CHECK(run.n_hash == run.n && n_past + n_dropped == run.n && n_past <= of->n_ctx && n_dropped > of->n_ctx,
          "%u tokens in the cache, %u dropped", n_past, n_dropped);
    CHECK(memcmp(plumb_session_tokens(straight), run.ids, of->n_keep * sizeof *run.ids) == 0
          && memcmp(plumb_session_tokens(straight) + of->n_keep, run.ids + of->n_keep + n_dropped,
                    (n_past - of->n_keep) * sizeof *run.ids) == 0, "other tokens remain");
    plumb_session_free(straight);
    uint64_t n_bytes = plumb_session_bytes(s);
    uint32_t most_dropped = 0;
    for (uint32_t i = 0, n = 0; i < N_WALKS; i++) {
        state = state * 1664525u + 1013904223u;
        uint32_t to = i % 3 == 0 ? (state >> 8) % run.n + 1 : n + (state >> 8) % 90;   /* far, or a bit on */
        if (i % 3 == 2) to = n > 40 ? n - (state >> 8) % 40 : 1;                         /* or a bit back */
        if (to > run.n) to = run.n;
        uint32_t kept = plumb_session_reuse(s, run.ids, to);
        if (!CHECK(kept < to, "%u of %u tokens are kept", kept, to)) break;
        n_kept += kept > of->n_ctx;
        n_whole += kept == 0;
        for (uint32_t at = kept, more; at < to; at += more) {
            more = 1 + (state >> 12) % 70;
            if (more > to - at) more = to - at;
            CHECK(plumb_session_feed(s, run.ids + at, more) == PLUMB_OK, "%s", plumb_session_error(s));
        }
        CHECK(plumb_session_n_past(s) + plumb_session_n_dropped(s) == to, "%u tokens in the cache, %u dropped, fed %u",
              plumb_session_n_past(s), plumb_session_n_dropped(s), to);
        if (plumb_session_n_dropped(s) > most_dropped) most_dropped = plumb_session_n_dropped(s);
        if (!CHECK(hash_of(plumb_session_logits(s), run.n_vocab) == run.hashes[to - 1], "other logits after %u tokens, "
                   "%u of them kept", to, kept)) break;
        n = to;
    }
    CHECK(n_kept > 0, "nothing was ever kept behind a drop");
    CHECK(plumb_session_bytes(s) - n_bytes == most_dropped * sizeof(int32_t), "%u more bytes for %u dropped tokens",
          (uint32_t)(plumb_session_bytes(s) - n_bytes), most_dropped);
    test_note("%u times kept behind a drop, %u times nothing", n_kept, n_whole);
    /* Without the option the session is one that never dropped anything. */
    plumb_session_params params = { .n_ctx = of->n_ctx, .kv_type = of->type };
    plumb_session *plain = NULL;
    REQUIRE(plumb_session_create(&plain, m, &params) == PLUMB_OK, "%s", plumb_model_error(m));
    CHECK(plumb_session_set_shift(s, 0) == PLUMB_OK && plumb_session_n_dropped(s) == 0
          && plumb_session_n_past(s) <= of->n_keep, "%u tokens are left", plumb_session_n_past(s));
    uint32_t kept = plumb_session_reuse(s, run.ids, of->n_ctx);
    CHECK(plumb_session_feed(s, run.ids + kept, of->n_ctx - kept) == PLUMB_OK
          && plumb_session_feed(plain, run.ids, of->n_ctx) == PLUMB_OK, "%s", plumb_session_error(s));
    CHECK(hash_of(plumb_session_logits(s), run.n_vocab) == hash_of(plumb_session_logits(plain), run.n_vocab),
          "other logits without the option");
    CHECK(plumb_session_feed(s, run.ids, 1) == PLUMB_ERROR_CONTEXT, "a full context is no error");
    plumb_session_free(plain);
    plumb_session_free(s);
    plumb_model_free(m);
}

/* A rewind counts the tokens that are in the cache; behind a drop it begins again, with the same tokens. */
static void rewind_case(void) {
    enum { N_CTX = 128, N_KEEP = 4, N = 300 };
    int32_t ids[N], seen[N_CTX];
    plumb_model *m = fixture_load("tests/vectors/archs/qwen3.gguf");
    plumb_session *s = open(m, N_CTX, N_KEEP, PLUMB_KV_I16), *fresh = open(m, N_CTX, N_KEEP, PLUMB_KV_I16);
    REQUIRE(s && fresh, "no session");
    uint32_t n_vocab = plumb_model_n_vocab(m);
    for (uint32_t i = 0; i < N; i++) ids[i] = (int32_t)(i * 37 % n_vocab);
    CHECK(plumb_session_feed(s, ids, N) == PLUMB_OK && plumb_session_n_dropped(s) == 186, "%u tokens dropped",
          plumb_session_n_dropped(s));
    memcpy(seen, plumb_session_tokens(s), sizeof seen);
    uint32_t n = plumb_session_n_past(s);
    CHECK(n == 114 && plumb_session_rewind(s, n + 1) == PLUMB_ERROR_ARGUMENT, "rewound forward");
    CHECK(plumb_session_rewind(s, 70) == PLUMB_OK && plumb_session_n_dropped(s) == 186, "%u tokens dropped",
          plumb_session_n_dropped(s));
    CHECK(plumb_session_rewind(s, 60) == PLUMB_OK && plumb_session_n_dropped(s) == 0 && plumb_session_n_past(s) == 60
          && memcmp(plumb_session_tokens(s), seen, 60 * sizeof *seen) == 0, "other tokens");
    CHECK(plumb_session_feed(s, ids, 1) == PLUMB_OK && plumb_session_feed(fresh, seen, 60) == PLUMB_OK
          && plumb_session_feed(fresh, ids, 1) == PLUMB_OK, "%s", plumb_session_error(s));
    CHECK(hash_of(plumb_session_logits(s), n_vocab) == hash_of(plumb_session_logits(fresh), n_vocab), "other logits");
    plumb_session_free(s);
    plumb_session_free(fresh);
    plumb_model_free(m);
}

/* ---- llama.cpp --------------------------------------------------------------------------------------------------- */

struct against_llama { struct llama_vectors v; double worst; uint32_t n; };

static void compare(void *user, uint32_t pos, const float *logits) {
    struct against_llama *a = user;
    double error = llama_distance(&a->v, a->n++, logits);
    if (!(error <= a->worst)) a->worst = error;
    (void)pos;
}

static void llama_row(const void *row) {
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", (const char *)row);
    plumb_model *m = fixture_load(path);
    snprintf(path, sizeof path, "shift/%s.bin", (const char *)row);
    struct against_llama a = { .n = 0 };
    REQUIRE(m && llama_vectors_read(&a.v, path), "%s", path);
    const double most = 2e-3;   /* at the worst of 400 positions: activations have 16 bits */
    for (int type = PLUMB_KV_I16; type <= PLUMB_KV_F32; type += PLUMB_KV_F32) {
        plumb_session *s = open(m, 128, 4, (plumb_kv_type)type);
        REQUIRE(s, "no session");
        a.n = 0;
        a.worst = 0;
        const char *name = plumb_kv_type_name((plumb_kv_type)type);
        CHECK(plumb_session_feed_all(s, a.v.tokens, a.v.n_token, compare, &a) == PLUMB_OK, "%s",
              plumb_session_error(s));
        CHECK(a.n == a.v.n_record && a.worst <= most, "%s: %g after %u tokens", name, a.worst, a.n);
        test_note("%s: relative RMS %.2g", name, a.worst);
        /* Feeding what remains anew gives something else. */
        plumb_session *fresh = open(m, 128, 4, (plumb_kv_type)type);
        CHECK(plumb_session_feed(fresh, plumb_session_tokens(s), plumb_session_n_past(s)) == PLUMB_OK, "%s",
              plumb_session_error(fresh));
        double other = llama_distance(&a.v, a.v.n_record - 1, plumb_session_logits(fresh));
        CHECK(other > 5 * most, "%g if computed anew", other);
        plumb_session_free(fresh);
        plumb_session_free(s);
    }
    llama_vectors_free(&a.v);
    plumb_model_free(m);
}

/* What cannot be done is refused before anything changes. */
static void refused_case(void) {
    static const struct { const char *model; uint32_t n_ctx, n_keep; plumb_pass pass; const char *message; } rows[] = {
        { "qwen3", 128, 65, PLUMB_PASS_FAST, "65 tokens cannot stay in a full context of 128: at most half of it can, "
          "and it must have at least 128" },
        { "qwen3", 127, 4, PLUMB_PASS_FAST, "4 tokens cannot stay in a full context of 127: at most half of it can, "
          "and it must have at least 128" },
        { "qwen3", 128, 4, PLUMB_PASS_REFERENCE, "the reference pass cannot drop tokens of a full context" },
        { "gpt2", 64, 4, PLUMB_PASS_FAST, "tokens cannot move in a full context: the model has learned an embedding of "
          "each position" },
        { "hunyuan-dense", 128, 4, PLUMB_PASS_FAST, "tokens cannot move in a full context: their keys are normalized "
          "after they are rotated" },
        { "t5", 128, 4, PLUMB_PASS_FAST, "tokens cannot move in a full context: the decoder reads those of an encoder, "
          "which do not move" },
        { "nomic-bert", 128, 4, PLUMB_PASS_FAST, "tokens cannot move in a full context: they attend to later ones" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[120];
        snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", rows[i].model);
        plumb_model *m = fixture_load(path);
        plumb_session *s = NULL;
        plumb_session_params params = { .n_ctx = rows[i].n_ctx, .pass = rows[i].pass };
        REQUIRE(m && plumb_session_create(&s, m, &params) == PLUMB_OK, "%s: %s", path, m ? plumb_model_error(m) : "");
        CHECK(plumb_session_set_shift(s, rows[i].n_keep) != PLUMB_OK
              && strcmp(plumb_session_error(s), rows[i].message) == 0, "%s: %s", path, plumb_session_error(s));
        CHECK(plumb_session_set_shift(s, 0) == PLUMB_OK, "off");
        plumb_session_free(s);
        plumb_model_free(m);
    }
    /* Embeddings are of texts that fit the context. */
    enum { N = 200 };
    int32_t ids[N] = { 0 };
    uint32_t length = N;
    plumb_model *m = fixture_load("tests/vectors/archs/qwen3.gguf");
    plumb_session *s = open(m, 128, 4, PLUMB_KV_I16);
    REQUIRE(s, "no session");
    CHECK(plumb_session_embed(s, ids, &length, 1, PLUMB_POOLING_MEAN) == PLUMB_ERROR_CONTEXT, "%s",
          plumb_session_error(s));
    plumb_session_free(s);
    plumb_model_free(m);
}

void test_shift(void) {
    static const struct shape shapes[] = {
        { "archs/qwen3", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/qwen3", 131, 1, 700, PLUMB_KV_F32 },
        { "kv/heads", 160, 60, 700, PLUMB_KV_Q8_0 },
        { "kv/heads", 160, 33, 700, PLUMB_KV_Q4_0 },
        { "archs/llama", 128, 64, 700, PLUMB_KV_I16 },
        { "archs/bloom", 128, 4, 700, PLUMB_KV_I16 },       /* ALiBi */
        { "archs/gemma3", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/gemma3", 1100, 7, 3000, PLUMB_KV_I16 },    /* rings */
        { "archs/gemma3", 1300, 90, 3000, PLUMB_KV_F32 },
        { "archs/llama4", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/gpt-oss", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/phi3", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/gemma3n", 128, 4, 700, PLUMB_KV_I16 },     /* shared K and V */
        { "archs/gemma4", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/deepseek2", 128, 4, 700, PLUMB_KV_I16 },   /* latent attention */
        { "archs/minicpm3", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/mamba2", 128, 4, 700, PLUMB_KV_I16 },      /* states */
        { "archs/rwkv7", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/falcon-h1", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/lfm2", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/qwen35", 128, 4, 700, PLUMB_KV_I16 },
        { "archs/graniteswitch", 128, 4, 700, PLUMB_KV_I16 },   /* adapters that dropped tokens switched on */
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char name[160];
        snprintf(name, sizeof name, "shift: texts of any length, whatever is reused, have the bits of one feed: %s, "
                 "%s, %u tokens", shapes[i].model, plumb_kv_type_name(shapes[i].type), shapes[i].n_ctx);
        test_row(name, walk_row, &shapes[i]);
    }
    static const char *const like_llama[] = { "qwen3", "llama", "phi3", "deepseek2", "mistral3", "graniteswitch" };
    for (size_t i = 0; i < sizeof like_llama / sizeof *like_llama; i++) {
        char name[80];
        snprintf(name, sizeof name, "shift: llama.cpp's logits: %s", like_llama[i]);
        test_row(name, llama_row, like_llama[i]);
    }
    test_case("shift: a rewind counts the tokens in the cache", rewind_case);
    test_case("shift: what cannot move is refused", refused_case);
}

/* Sessions on a tiny synthetic model (tests/vectors/synth): the bits do not depend on how the tokens are fed, and every
 * misuse gives a status. */
#include "bytes.h"
#include "fixture.h"
#include "api/model.h"
#include "forward/snapshots.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#define TINY "tests/vectors/synth/q8_0.gguf"

enum { N_IDS = 24 };

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static plumb_session *new_session(plumb_model *m, uint32_t n_ctx, uint32_t n_batch) {
    plumb_session *s = NULL;
    plumb_session_params params = { .n_ctx = n_ctx, .n_batch = n_batch, .precision = PLUMB_PRECISION_EXACT16 };
    if (m) CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m));
    return s;
}

/* Lets the encoder read a text, if the model has one. */
static void encode(plumb_session *s, const plumb_model *m, const int32_t *ids, size_t n) {
    if (m->model->plan.n_encoder == 0) return;
    CHECK(plumb_session_encode(s, ids, n) == PLUMB_OK, "%s", plumb_session_error(s));
}

/* Some ids of the tiny vocabulary, always the same. */
static void some_ids(plumb_model *m, int32_t *ids) {
    uint32_t n_vocab = plumb_model_n_vocab(m);
    for (uint32_t i = 0; i < N_IDS; i++) ids[i] = (int32_t)((i * 37 + 5) % n_vocab);
}

/* FNV-1a over the logits' bits. */
static uint64_t logits_hash(plumb_session *s, uint32_t n_vocab) {
    const float *logits = plumb_session_logits(s);
    CHECK(logits, "there are no logits: %s", plumb_session_error(s));
    return logits ? fixture_hash(logits, n_vocab * sizeof *logits) : 0;
}

static void piecewise_case(void) {
    size_t n = 0;
    uint8_t *file = test_read_all(TINY, &n);
    int32_t ids[N_IDS];
    uint64_t hash = 0;
    static const size_t pieces[] = { SIZE_MAX, 1, 7, 4096 };
    for (size_t i = 0; file && i < sizeof pieces / sizeof *pieces; i++) {
        plumb_model *m = plumb_model_create();
        CHECK(plumb_model_begin(m, i == 1 ? PLUMB_SIZE_UNKNOWN : n) == PLUMB_OK
              && fixture_give(m, file, 0, n, pieces[i]) == PLUMB_OK && plumb_model_end(m) == PLUMB_OK,
              "pieces of %zu: %s", pieces[i], plumb_model_error(m));
        plumb_session *s = new_session(m, 64, 0);
        if (s) {
            some_ids(m, ids);
            plumb_session_feed(s, ids, N_IDS);
            uint64_t h = logits_hash(s, plumb_model_n_vocab(m));
            CHECK(i == 0 || h == hash, "pieces of %zu: other logits", pieces[i]);
            hash = h;
        }
        plumb_session_free(s);
        plumb_model_free(m);
    }
    free(file);
}

/* One file cut into three parts at odd bytes: in the header, and within a tensor. */
static void cut_case(void) {
    size_t n = 0;
    uint8_t *file = test_read_all(TINY, &n);
    plumb_model *m = plumb_model_create();
    size_t cuts[] = { 0, 1001, n - 777, n };
    for (size_t i = 0; file && i < 3; i++) {
        CHECK(plumb_model_begin(m, n - cuts[i]) == PLUMB_OK
              && fixture_give(m, file, cuts[i], cuts[i + 1], 100) == PLUMB_OK, "part %zu: %s", i, plumb_model_error(m));
        CHECK(plumb_model_position(m) == cuts[i + 1] - cuts[i], "part %zu ends at %llu", i,
              (unsigned long long)plumb_model_position(m));
    }
    CHECK(plumb_model_end(m) == PLUMB_OK, "%s", plumb_model_error(m));
    plumb_model_free(m);
    free(file);
}

/* The same model as files of llama-gguf-split: all of them, in order. */
static plumb_status give_split(plumb_model *m, const int *order, size_t n_part) {
    for (size_t i = 0; i < n_part; i++) {
        char path[100];
        size_t n = 0;
        snprintf(path, sizeof path, "tests/vectors/synth/split-%05d-of-00003.gguf", order[i]);
        uint8_t *file = test_read_all(path, &n);
        plumb_status status = file ? plumb_model_begin(m, n) : PLUMB_ERROR_IO;
        if (status == PLUMB_OK) status = fixture_give(m, file, 0, n, 1000);
        free(file);
        PLUMB_TRY(status);
    }
    return plumb_model_end(m);
}

static void split_case(void) {
    plumb_model *whole = fixture_load(TINY), *m = plumb_model_create();
    CHECK(m && give_split(m, (const int[]){ 1, 2, 3 }, 3) == PLUMB_OK, "%s", plumb_model_error(m));
    plumb_session *a = new_session(whole, 64, 0), *b = new_session(m, 64, 0);
    if (a && b) {
        int32_t ids[N_IDS];
        some_ids(whole, ids);
        plumb_session_feed(a, ids, N_IDS);
        plumb_session_feed(b, ids, N_IDS);
        CHECK(logits_hash(a, plumb_model_n_vocab(whole)) == logits_hash(b, plumb_model_n_vocab(m)), "other logits");
        plumb_tensor t, u;
        uint64_t n_tensor = plumb_model_n_tensor(whole);
        CHECK(plumb_model_n_tensor(m) == n_tensor && n_tensor == 20, "%d tensors", (int)plumb_model_n_tensor(m));
        for (uint64_t i = 0; i < n_tensor; i++) {
            CHECK(plumb_model_tensor(whole, i, &t) == PLUMB_OK && plumb_model_tensor(m, i, &u) == PLUMB_OK
                  && strcmp(t.name, u.name) == 0 && t.n_bytes == u.n_bytes, "tensor %d", (int)i);
        }
        CHECK(plumb_model_tensor(m, n_tensor, &u) == PLUMB_ERROR_ARGUMENT, "a tensor behind the last");
    }
    plumb_session_free(a);
    plumb_session_free(b);
    plumb_model_free(m);
    plumb_model_free(whole);

    static const struct { int order[4]; size_t n; plumb_status status; const char *message; } wrong[] = {
        { { 1, 2 }, 2, PLUMB_ERROR_TRUNCATED, "split into 3 files, but 2 were given" },
        { { 1, 2, 3, 3 }, 4, PLUMB_ERROR_TRUNCATED, "split into 3 files, but 4 were given" },
        { { 1, 3, 2 }, 3, PLUMB_ERROR_METADATA, "file 2 of the split model is number 3 according" },
        { { 1, 2, 2 }, 3, PLUMB_ERROR_METADATA, "file 3 of the split model is number 2 according" },
        { { 2, 1, 3 }, 3, PLUMB_ERROR_METADATA, "file 1 of the split model is number 2 according" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        m = plumb_model_create();
        plumb_status status = give_split(m, wrong[i].order, wrong[i].n);
        CHECK(status == wrong[i].status && strstr(plumb_model_error(m), wrong[i].message), "row %zu: %s: %s", i,
              plumb_status_name(status), plumb_model_error(m));
        plumb_model_free(m);
    }
}

/* ---- rehearsal --------------------------------------------------------------------------------------------------- */

/* Only the headers of these files. */
static plumb_model *rehearse(const char *const *paths, size_t n_part, uint32_t *n_bytes) {
    plumb_model *m = plumb_model_create();
    bool ok = CHECK(plumb_model_headers_only(m) == PLUMB_OK, "%s", plumb_model_error(m));
    for (size_t i = 0; ok && i < n_part; i++) {
        size_t n = 0;
        uint8_t *file = test_read_all(paths[i], &n);
        ok = file && CHECK(plumb_model_begin(m, n) == PLUMB_OK && fixture_give(m, file, 0, n, 1000) == PLUMB_OK
                           && plumb_model_position(m) < n, "%s: %s, at %d", paths[i], plumb_model_error(m),
                           (int)plumb_model_position(m));
        free(file);
    }
    if (ok && CHECK(plumb_model_rehearse(m, n_bytes) == PLUMB_OK, "%s", plumb_model_error(m))) return m;
    plumb_model_free(m);
    return NULL;
}

static void count_tap(void *user, const plumb_tap *tap) {
    (void)tap;
    ++*(uint32_t *)user;
}

/* The memory of a session of the whole file, and a whole pass over zeros. */
static void rehearse_case(const void *row) {
    const char *path = *(const char *const *)row;
    uint32_t n_bytes;
    plumb_model *whole = fixture_load(path), *m = rehearse(&path, 1, &n_bytes);
    plumb_session *a = new_session(whole, 64, 0), *b = new_session(m, 64, 0);
    if (a && b) {
        plumb_model_info info_a, info_b;
        CHECK(plumb_model_get_info(whole, &info_a) == PLUMB_OK && plumb_model_get_info(m, &info_b) == PLUMB_OK
              && info_a.weight_bytes == info_b.weight_bytes, "bytes of weights");
        CHECK(plumb_session_bytes(a) == plumb_session_bytes(b), "%d bytes, the real session has %d",
              (int)plumb_session_bytes(b), (int)plumb_session_bytes(a));
        double kv = plumb_model_kv_bytes(m, 64, 0, PLUMB_KV_I16, 0);
        CHECK(kv == plumb_model_kv_bytes(whole, 64, 0, PLUMB_KV_I16, 0) && kv < (double)plumb_session_bytes(b),
              "%g bytes of K and V", kv);
        int32_t ids[N_IDS];
        some_ids(m, ids);
        CHECK(n_bytes >= info_b.weight_bytes, "%u bytes of zeros", n_bytes);
        CHECK(plumb_session_feed(b, ids, N_IDS) == PLUMB_OK && plumb_session_feed(b, ids, 1) == PLUMB_OK, "%s",
              plumb_session_error(b));
        const float *logits = plumb_session_logits(b);
        uint32_t n_vocab = plumb_model_n_vocab(m);
        for (uint32_t i = 0; i < n_vocab; i++) CHECK(logits[i] == 0, "logit %u: %g", i, (double)logits[i]);
        uint32_t n_step[2] = { 0, 0 };   /* as many steps as with weights, so that the time is comparable */
        plumb_session *const sessions[] = { a, b };
        for (int k = 0; k < 2; k++) {
            CHECK(plumb_session_set_tap(sessions[k], count_tap, &n_step[k]) == PLUMB_OK
                  && plumb_session_feed(sessions[k], ids, 1) == PLUMB_OK, "%s", plumb_session_error(sessions[k]));
        }
        bool is_gemma3 = strcmp(info_a.architecture, "gemma3") == 0;
        uint32_t n_in_layer = is_gemma3 ? 20 : strcmp(info_a.architecture, "qwen3") == 0 ? 18 : 16;
        CHECK(n_step[0] == 1 + info_a.n_layer * n_in_layer + 2 && n_step[1] == n_step[0], "%u steps, with weights %u",
              n_step[1], n_step[0]);
    }
    plumb_session_free(a);
    plumb_session_free(b);
    plumb_model_free(m);
    plumb_model_free(whole);
}

struct choices {
    uint32_t n_step;
    uint64_t experts;   /* a set: those that are used in any layer */
};

static void count_experts(void *user, const plumb_tap *tap) {
    struct choices *c = user;
    c->n_step++;
    size_t n = (size_t)tap->n_token * tap->n_head * tap->n;
    for (size_t i = 0; i < n && strcmp(tap->name, "ffn_moe_topk") == 0; i++) {
        c->experts |= 1ull << (uint32_t)tap->data[i];
    }
}

/* Other architectures: what a rehearsal says of memory is what a session of the whole file takes, its passes make as
 * many steps, and the tokens of a prompt use all experts. */
static void rehearse_architecture_row(const void *row) {
    char path[120];
    const char *paths[] = { path };
    uint32_t n_bytes;
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", (const char *)row);
    plumb_model *whole = fixture_load(path), *m = rehearse(paths, 1, &n_bytes);
    plumb_session *sessions[2] = { new_session(whole, 48, 0), new_session(m, 48, 0) };
    struct choices choices[2] = { { .n_step = 0 }, { .n_step = 0 } };
    if (sessions[0] && sessions[1]) {
        plumb_model_info info[2];
        plumb_model *const models[2] = { whole, m };
        double kv[2];
        for (int k = 0; k < 2; k++) {
            int32_t ids[N_IDS];
            some_ids(models[k], ids);
            CHECK(plumb_model_get_info(models[k], &info[k]) == PLUMB_OK, "%s", plumb_model_error(models[k]));
            kv[k] = plumb_model_kv_bytes(models[k], 48, 0, PLUMB_KV_I16, 0);
            encode(sessions[k], models[k], ids, N_IDS);
            CHECK(plumb_session_feed(sessions[k], ids, N_IDS) == PLUMB_OK, "%s", plumb_session_error(sessions[k]));
        }
        CHECK(plumb_session_bytes(sessions[0]) == plumb_session_bytes(sessions[1]) && kv[0] == kv[1]
              && info[0].weight_bytes == info[1].weight_bytes,
              "%d bytes, the real session has %d; %g and %g of K and V", (int)plumb_session_bytes(sessions[1]),
              (int)plumb_session_bytes(sessions[0]), kv[1], kv[0]);
        for (int k = 0; k < 2; k++) {
            int32_t ids[N_IDS];
            some_ids(models[k], ids);
            CHECK(plumb_session_rewind(sessions[k], 0) == PLUMB_OK
                  && plumb_session_set_tap(sessions[k], count_experts, &choices[k]) == PLUMB_OK
                  && plumb_session_feed(sessions[k], ids, N_IDS) == PLUMB_OK, "%s", plumb_session_error(sessions[k]));
        }
        uint32_t n_expert = m->model->plan.max_expert;
        CHECK(choices[0].n_step == choices[1].n_step, "%u steps, with weights %u", choices[1].n_step,
              choices[0].n_step);
        CHECK(choices[1].experts == (1ull << n_expert) - 1, "experts %llx of %u",
              (unsigned long long)choices[1].experts, n_expert);
    }
    for (int k = 0; k < 2; k++) plumb_session_free(sessions[k]);
    plumb_model_free(m);
    plumb_model_free(whole);
}

static void rehearse_split_case(void) {
    static const char *const paths[] = { "tests/vectors/synth/split-00001-of-00003.gguf",
        "tests/vectors/synth/split-00002-of-00003.gguf", "tests/vectors/synth/split-00003-of-00003.gguf" };
    uint32_t n_bytes;
    plumb_model *m = rehearse(paths, 3, &n_bytes), *whole = fixture_load(TINY);
    plumb_model_info info_a, info_b;
    if (m && whole) {
        CHECK(plumb_model_get_info(whole, &info_a) == PLUMB_OK && plumb_model_get_info(m, &info_b) == PLUMB_OK
              && info_a.weight_bytes == info_b.weight_bytes && info_a.n_param == info_b.n_param, "other sizes");
    }
    plumb_model_free(m);
    plumb_model_free(whole);

    /* The last file has only the first bytes of its header. */
    m = plumb_model_create();
    CHECK(plumb_model_headers_only(m) == PLUMB_OK, "%s", plumb_model_error(m));
    for (size_t i = 0; i < 3; i++) {
        size_t n = 0;
        uint8_t *file = test_read_all(paths[i], &n);
        CHECK(file && plumb_model_begin(m, n) == PLUMB_OK
              && fixture_give(m, file, 0, i < 2 ? n : 100, 1000) == PLUMB_OK, "%s", plumb_model_error(m));
        free(file);
    }
    CHECK(plumb_model_rehearse(m, &n_bytes) == PLUMB_ERROR_TRUNCATED, "%s", plumb_model_error(m));
    plumb_model_free(m);
}

/* A file that is not a model, or a model that cannot run, is detected from the header.  Calls need the right order. */
static void rehearse_wrong_case(void) {
    uint32_t n_bytes;
    size_t n = 0;
    uint8_t *file = test_read_all(TINY, &n);
    plumb_model *m = plumb_model_create();
    CHECK(plumb_model_rehearse(m, &n_bytes) == PLUMB_ERROR_STATE && strstr(plumb_model_error(m), "headers_only was"),
          "without headers_only: %s", plumb_model_error(m));
    CHECK(plumb_model_kv_bytes(m, 64, 0, PLUMB_KV_I16, 0) == 0, "before the header");
    CHECK(plumb_model_headers_only(m) == PLUMB_OK && plumb_model_rehearse(m, &n_bytes) == PLUMB_ERROR_STATE,
          "before begin");
    CHECK(file && plumb_model_begin(m, n) == PLUMB_OK && fixture_give(m, file, 0, 1000, 1000) == PLUMB_OK, "begin");
    CHECK(plumb_model_headers_only(m) == PLUMB_ERROR_STATE, "after begin");
    CHECK(plumb_model_rehearse(m, &n_bytes) == PLUMB_ERROR_TRUNCATED && n_bytes == 0, "in the header: %s",
          plumb_model_error(m));
    CHECK(plumb_model_kv_bytes(m, 64, 0, PLUMB_KV_I16, 0) == 0, "in the header");
    plumb_model *whole = fixture_load(TINY);
    const uint32_t n_ctx = 512;   /* the training context, which is the default */
    CHECK(fixture_give(m, file, 1000, n, 1000) == PLUMB_OK
          && plumb_model_kv_bytes(m, 0, 0, PLUMB_KV_I16, 0) == plumb_model_kv_bytes(whole, n_ctx, 0, PLUMB_KV_I16, 0),
          "%g bytes of K and V behind the header", plumb_model_kv_bytes(m, 0, 0, PLUMB_KV_I16, 0));
    plumb_model_free(whole);
    CHECK(plumb_model_end(m) == PLUMB_ERROR_TRUNCATED,
          "the end of a file of which there is only a header");
    plumb_model_free(m);
    m = plumb_model_create();
    static const char architecture[] = "general.architecture";
    for (size_t i = 0; file && i < 200; i++) {
        if (memcmp(file + i, architecture, sizeof architecture - 1) == 0) file[i + sizeof architecture - 1 + 12] = 'x';
    }
    CHECK(plumb_model_headers_only(m) == PLUMB_OK && plumb_model_begin(m, n) == PLUMB_OK
          && fixture_give(m, file, 0, n, 1000) == PLUMB_OK, "%s", plumb_model_error(m));
    CHECK(plumb_model_rehearse(m, &n_bytes) == PLUMB_ERROR_UNSUPPORTED
          && strstr(plumb_model_error(m), "\"xlama\" is not supported"), "%s", plumb_model_error(m));
    CHECK(plumb_model_kv_bytes(m, 64, 0, PLUMB_KV_I16, 0) == 0, "of a model that cannot run");
    plumb_model_free(m);
    free(file);
}

/* Without real weights a dump cannot be compared. */
static void is_not_diagnosed(plumb_model *m) {
    plumb_verdict says = PLUMB_VERDICT_AGREES;
    plumb_trace *t = plumb_trace_create();
    plumb_report report = { .format = PLUMB_FORMAT_TEXT };
    CHECK(plumb_diagnose(m, t, 1, &report, &says) == PLUMB_ERROR_STATE && says == PLUMB_VERDICT_DIFFERS
          && strstr(plumb_model_error(m), "without its weights"), "%s", plumb_model_error(m));
    plumb_trace_free(t);
}

/* If the largest tensor is too large for made-up weights, there are none, and nothing can be fed. */
static void rehearse_large_case(void) {
    static const char *const path = TINY;
    uint32_t n_bytes;
    plumb_model *m = rehearse(&path, 1, &n_bytes);
    REQUIRE(m, "no model");
    is_not_diagnosed(m);
    free(m->ring);   /* the state in which plumb_model_rehearse leaves a model with a tensor of more than 512 MiB */
    m->ring = NULL;
    model_rehearse(m->model, NULL, n_bytes);
    static const plumb_pass passes[] = { PLUMB_PASS_FAST, PLUMB_PASS_REFERENCE };
    for (size_t i = 0; i < 2; i++) {
        plumb_session *s = NULL;
        plumb_session_params params = { .n_ctx = 64, .pass = passes[i] };
        int32_t ids[N_IDS];
        some_ids(m, ids);
        if (!CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m))) continue;
        CHECK(plumb_session_bytes(s) > 0, "no bytes");
        CHECK(plumb_session_feed(s, ids, N_IDS) == PLUMB_ERROR_STATE
              && strstr(plumb_session_error(s), "too large to be replaced"), "%s", plumb_session_error(s));
        CHECK(plumb_session_feed_all(s, ids, 1, NULL, NULL) == PLUMB_ERROR_STATE && plumb_session_n_past(s) == 0
              && !plumb_session_logits(s), "%s", plumb_session_error(s));
        plumb_session_free(s);
    }
    is_not_diagnosed(m);
    plumb_model_free(m);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void batch_case(void) {
    plumb_model *m = fixture_load(TINY);
    int32_t ids[N_IDS];
    uint64_t expected = 0;
    static const uint32_t batches[] = { 64, 1, 5 };
    for (size_t i = 0; m && i < 3; i++) {
        plumb_session *s = new_session(m, 64, batches[i]);
        some_ids(m, ids);
        CHECK(s && plumb_session_feed(s, ids, N_IDS) == PLUMB_OK, "%s", s ? plumb_session_error(s) : "");
        uint64_t hash = s ? logits_hash(s, plumb_model_n_vocab(m)) : 0;
        CHECK(i == 0 || hash == expected, "batches of %u give other logits than one batch", batches[i]);
        expected = hash;
        plumb_session_free(s);
    }
    plumb_model_free(m);
}

/* feed_all from position 3 on, in batches of 6, 6, 6 and 3, gives the same bits as single steps at every position. */
struct beside_steps {
    plumb_session *steps;
    const int32_t *ids;
    uint32_t n_vocab, next;   /* the next expected position */
};

static void compare_step(void *user, uint32_t pos, const float *logits) {
    struct beside_steps *b = user;
    REQUIRE(pos == b->next++ && plumb_session_feed(b->steps, b->ids + pos, 1) == PLUMB_OK, "position %u", pos);
    CHECK(memcmp(logits, plumb_session_logits(b->steps), b->n_vocab * sizeof *logits) == 0, "position %u: other logits",
          pos);
}

static void feed_all_row(const void *pass) {
    plumb_model *m = fixture_load(TINY);
    plumb_session_params params = { .n_ctx = 64, .n_batch = 6, .pass = *(const plumb_pass *)pass,
                                    .precision = PLUMB_PRECISION_EXACT16 };
    plumb_session *all = NULL, *steps = NULL;
    if (m && CHECK(plumb_session_create(&all, m, &params) == PLUMB_OK
                   && plumb_session_create(&steps, m, &params) == PLUMB_OK, "%s", plumb_model_error(m))) {
        int32_t ids[N_IDS];
        some_ids(m, ids);
        struct beside_steps b = { steps, ids, plumb_model_n_vocab(m), 3 };
        CHECK((params.pass == PLUMB_PASS_REFERENCE) == (strcmp(plumb_session_kernels(all), "reference") == 0), "%s",
              plumb_session_kernels(all));
        /* keys and values of 64 positions, 2 layers and 2 heads of 8, f32 or f64 */
        CHECK(plumb_session_bytes(all) > 2 * 64 * 2 * 2 * 8 * sizeof(float), "%d bytes", (int)plumb_session_bytes(all));
        CHECK(plumb_session_feed(all, ids, 3) == PLUMB_OK && plumb_session_feed(steps, ids, 3) == PLUMB_OK, "feed");
        CHECK(plumb_session_feed_all(all, ids + 3, N_IDS - 3, compare_step, &b) == PLUMB_OK && b.next == N_IDS,
              "%u positions: %s", b.next, plumb_session_error(all));
        CHECK(logits_hash(all, b.n_vocab) == logits_hash(steps, b.n_vocab), "other logits after the last");
        /* the same with feed, which requests only the last position's logits */
        plumb_session_rewind(all, 3);
        CHECK(plumb_session_feed(all, ids + 3, N_IDS - 3) == PLUMB_OK
              && logits_hash(all, b.n_vocab) == logits_hash(steps, b.n_vocab), "other logits by feed");
        /* feed_all restores logits that a rewind discarded */
        plumb_session_rewind(all, N_IDS - 1);
        plumb_session_rewind(steps, N_IDS - 1);
        b.next = N_IDS - 1;
        CHECK(!plumb_session_logits(all) && plumb_session_feed_all(all, ids + b.next, 1, compare_step, &b) == PLUMB_OK
              && plumb_session_logits(all), "logits after feed_all");
    }
    plumb_session_free(all);
    plumb_session_free(steps);
    plumb_model_free(m);
}

static void rewind_case(void) {
    plumb_model *m = fixture_load(TINY);
    plumb_session *s = new_session(m, 64, 0);
    int32_t ids[N_IDS];
    REQUIRE(s, "no session");
    uint32_t n_vocab = plumb_model_n_vocab(m);
    some_ids(m, ids);
    plumb_session_feed(s, ids, N_IDS);
    uint64_t hash = logits_hash(s, n_vocab);

    int32_t other[N_IDS];
    memcpy(other, ids, sizeof ids);
    other[20] = (other[20] + 1) % (int32_t)n_vocab;
    CHECK(plumb_session_reuse(s, other, N_IDS) == 20, "%u tokens kept", plumb_session_n_past(s));
    CHECK(!plumb_session_logits(s), "logits of a token that is gone");
    CHECK(plumb_session_feed(s, other + 20, 4) == PLUMB_OK && logits_hash(s, n_vocab) != hash, "the other prompt");
    CHECK(plumb_session_reuse(s, ids, N_IDS) == 20, "%u tokens kept", plumb_session_n_past(s));
    CHECK(plumb_session_feed(s, ids + 20, 4) == PLUMB_OK && logits_hash(s, n_vocab) == hash, "logits after a rewind");
    CHECK(plumb_session_reuse(s, ids, N_IDS) == N_IDS - 1, "the last token is left to feed, %u kept",
          plumb_session_n_past(s));
    CHECK(plumb_session_rewind(s, N_IDS) == PLUMB_ERROR_ARGUMENT, "rewound forward");
    CHECK(memcmp(plumb_session_tokens(s), ids, 23 * sizeof *ids) == 0, "tokens in the cache");
    plumb_session_free(s);
    plumb_model_free(m);
}

/* Random rewinds and feeds in pieces give the logits of a session that was fed the same tokens at once. */
static void wander_row(const void *row) {
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", *(const char *const *)row);
    plumb_model *m = fixture_load(path);
    REQUIRE(m, "%s", path);
    uint32_t n_vocab = plumb_model_n_vocab(m), state = 1;
    int32_t ids[N_IDS];
    some_ids(m, ids);
    for (int pass = 0; pass < 2; pass++) {
        const plumb_session_params params = { .n_ctx = 32, .n_batch = 5,
                                              .pass = pass ? PLUMB_PASS_REFERENCE : PLUMB_PASS_FAST };
        uint64_t expected[N_IDS + 1] = { 0 };
        plumb_session *s = NULL;
        for (uint32_t n = 1; n <= N_IDS; n++) {
            plumb_session *fresh = NULL;
            struct plumb_session_params whole = params;
            whole.n_batch = 32;
            REQUIRE(plumb_session_create(&fresh, m, &whole) == PLUMB_OK, "%s", plumb_model_error(m));
            encode(fresh, m, ids, 7);
            CHECK(plumb_session_feed(fresh, ids, n) == PLUMB_OK, "%s", plumb_session_error(fresh));
            expected[n] = logits_hash(fresh, n_vocab);
            plumb_session_free(fresh);
        }
        REQUIRE(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m));
        encode(s, m, ids, 7);
        for (uint32_t i = 0, n = 0; i < 60; i++) {
            state = state * 1664525u + 1013904223u;
            uint32_t to = (state >> 8) % (n + 1), more = (state >> 20) % (N_IDS - to + 1);
            CHECK(plumb_session_rewind(s, to) == PLUMB_OK && plumb_session_n_past(s) == to, "%s",
                  plumb_session_error(s));
            CHECK(plumb_session_feed(s, ids + to, more) == PLUMB_OK, "%s", plumb_session_error(s));
            n = to + more;
            if (more > 0) CHECK(logits_hash(s, n_vocab) == expected[n], "pass %d: other logits of %u tokens, the last "
                                "%u of them behind a rewind", pass, n, more);
        }
        plumb_session_free(s);
    }
    plumb_model_free(m);
}

enum { LONG = 4096, N_LONG_PROMPT = 5 };

/* hash: of the logits after each of LONG tokens, which is the same on every host. */
struct long_text { const char *model; uint64_t hash; };

/* The logits after each of LONG tokens, as hashes of their bits. */
struct long_logits { uint32_t n_vocab; uint64_t hashes[LONG]; const char *way; };

static void compare_long(void *user, uint32_t pos, const float *logits) {
    const struct long_logits *is = user;
    CHECK(fixture_hash(logits, is->n_vocab * sizeof *logits) == is->hashes[pos], "other logits %s, after token %u",
          is->way, pos);
}

/* Feeds the tokens from `begin` on, and compares the logits after each. */
static void feed_long(plumb_session *s, struct long_logits *is, const int32_t *ids, uint32_t begin, const char *way) {
    is->way = way;
    CHECK(plumb_session_feed_all(s, ids + begin, LONG - begin, compare_long, is) == PLUMB_OK, "%s",
          plumb_session_error(s));
}

/* A greedy text of LONG tokens has the same logits step by step, at once, behind rewinds and edits, and in a session
 * that was saved and restored, there behind rewinds too. */
static void long_row(const void *row) {
    const struct long_text *of = row;
    static int32_t ids[LONG + 1];
    static struct long_logits is;
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", of->model);
    plumb_model *m = fixture_load(path);
    REQUIRE(m, "%s", path);
    is.n_vocab = plumb_model_n_vocab(m);
    plumb_session *steps = new_session(m, LONG, 0), *whole = new_session(m, LONG, 0);
    plumb_session *restored = new_session(m, LONG + 1000, 37);
    REQUIRE(steps && whole && restored, "no session");
    some_ids(m, ids);
    struct bytes saved[2] = { { NULL, 0, 0 } };
    static const uint32_t saved_at[] = { 1111, 4000 };
    for (uint32_t n = 0; n < LONG; n++) {
        if (!CHECK(plumb_session_feed(steps, ids + n, 1) == PLUMB_OK, "%s", plumb_session_error(steps))) break;
        const float *logits = plumb_session_logits(steps);
        is.hashes[n] = fixture_hash(logits, is.n_vocab * sizeof *logits);
        if (n + 1 >= N_LONG_PROMPT) ids[n + 1] = fixture_largest(logits, is.n_vocab);
        for (int k = 0; k < 2; k++) if (n + 1 == saved_at[k]) saved[k] = fixture_save(steps);
    }
    uint64_t hash = fixture_hash(is.hashes, sizeof is.hashes);
    CHECK(hash == of->hash, "%s: 0x%016llx", of->model, (unsigned long long)hash);
    feed_long(whole, &is, ids, 0, "at once");
    static const uint32_t places[] = { 4095, 3000, 64, 1 };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint32_t to = places[i];
        int32_t other = (ids[to] + 1) % (int32_t)is.n_vocab;
        CHECK(plumb_session_rewind(steps, to) == PLUMB_OK && plumb_session_feed(steps, &other, 1) == PLUMB_OK
              && plumb_session_rewind(steps, to) == PLUMB_OK, "%s", plumb_session_error(steps));
        feed_long(steps, &is, ids, to, "behind a rewind");
    }
    for (int k = 0; k < 2; k++) {
        CHECK(fixture_restore(restored, saved[k].data, saved[k].n) == PLUMB_OK, "%s", plumb_session_error(restored));
        compare_long(&is, saved_at[k] - 1, plumb_session_logits(restored));
        feed_long(restored, &is, ids, saved_at[k], "in a session that was restored");
        CHECK(plumb_session_rewind(restored, saved_at[k] - 100) == PLUMB_OK, "%s", plumb_session_error(restored));
        feed_long(restored, &is, ids, saved_at[k] - 100, "behind a rewind in a session that was restored");
        free(saved[k].data);
    }
    plumb_session_free(steps);
    plumb_session_free(whole);
    plumb_session_free(restored);
    plumb_model_free(m);
}

/* Going back in a recurrent model begins at the end of a batch before. */
static void snapshots_case(void) {
    plumb_model *m = fixture_load("tests/vectors/archs/lfm2.gguf");
    plumb_session *s = new_session(m, 64, 5);
    int32_t ids[N_IDS];
    REQUIRE(s, "no session");
    some_ids(m, ids);
    plumb_session_feed(s, ids, 20);
    for (int32_t i = 20; i < N_IDS; i++) plumb_session_feed(s, ids + i, 1);
    ids[17]++;
    CHECK(plumb_session_reuse(s, ids, N_IDS) == 15, "%u tokens kept", plumb_session_n_past(s));
    ids[3]++;
    CHECK(plumb_session_reuse(s, ids, N_IDS) == 0, "%u tokens kept", plumb_session_n_past(s));
    plumb_session_free(s);
    plumb_model_free(m);

    struct snapshots all;
    snapshots_init(&all, 3, 0);
    REQUIRE(snapshots_reserve(&all) && snapshots_held(&all) == 3 * SNAPSHOTS_MAX * sizeof(float), "%d bytes",
            (int)snapshots_held(&all));
    for (uint32_t n = 1; n <= 400; n++) snapshots_add(&all, n)[2] = (float)n;
    CHECK(all.n == SNAPSHOTS_MAX && all.at[all.n - 1] == 400, "%u, the last one after %u", all.n, all.at[all.n - 1]);
    for (uint32_t i = 0; i < all.n; i++) {
        const float *copy = snapshots_values(&all, i);
        CHECK(copy[2] == (float)all.at[i], "after %u: that of %g", all.at[i], (double)copy[2]);
        CHECK(snapshots_before(&all, all.at[i]) == all.at[i], "before %u", all.at[i]);
    }
    struct snapshots few;
    snapshots_init(&few, 3, 2);
    snapshots_share(&few, &all, 400);
    CHECK(few.n == SNAPSHOTS_MAX && snapshots_add(&few, 401), "%u shared", few.n);
    CHECK(few.n == 2 && few.at[1] == 401, "%u in a list of 2, the last one after %u", few.n, few.at[few.n - 1]);
    snapshots_free(&few);
    CHECK(snapshots_before(&all, all.at[3] - 1) == all.at[2], "between two of them");
    CHECK(!snapshots_back(&all, all.at[3] - 1) && all.n == 3, "%u behind a place without one", all.n);
    CHECK(snapshots_back(&all, 0) == NULL && all.n == 0 && snapshots_before(&all, 400) == 0, "%u of none", all.n);
    snapshots_free(&all);
    CHECK(snapshots_max(0, 5) == 0 && snapshots_max(1 << 20, 0) == 16 && snapshots_max(5000000, 0) == 3
          && snapshots_max(UINT64_MAX / 8, 0) == 2 && snapshots_max(5000000, 40) == 40
          && snapshots_max(3, 2) == 2, "the copies do not fit the budget");
}

static void overflow_case(void) {
    plumb_model *m = fixture_load(TINY);
    plumb_session *s = new_session(m, 16, 0);
    int32_t ids[N_IDS];
    REQUIRE(s, "no session");
    some_ids(m, ids);
    CHECK(plumb_session_feed(s, ids, 17) == PLUMB_ERROR_CONTEXT, "17 tokens into 16");
    CHECK(plumb_session_n_past(s) == 0, "nothing was computed, yet %u are in", plumb_session_n_past(s));
    CHECK(strstr(plumb_session_error(s), "17") && strstr(plumb_session_error(s), "16"), "%s", plumb_session_error(s));
    CHECK(plumb_session_feed(s, ids, 16) == PLUMB_OK, "%s", plumb_session_error(s));
    CHECK(plumb_session_feed(s, ids, 1) == PLUMB_ERROR_CONTEXT, "a 17th token");
    CHECK(plumb_session_logits(s) && plumb_session_n_past(s) == 16, "a refused token changed the session");
    int32_t wrong[] = { -1, (int32_t)plumb_model_n_vocab(m), INT32_MAX };
    plumb_session_rewind(s, 0);
    for (size_t i = 0; i < 3; i++) {
        CHECK(plumb_session_feed(s, &wrong[i], 1) == PLUMB_ERROR_TOKEN
              && strstr(plumb_session_error(s), "at index 0 is not in 0..259"), "token %d: %s", (int)wrong[i],
              plumb_session_error(s));
    }
    plumb_session_free(s);
    plumb_model_free(m);
}

static void state_case(void) {
    plumb_model *m = plumb_model_create();
    plumb_session *s;
    void *data;
    size_t n;
    CHECK(plumb_session_create(&s, m, NULL) == PLUMB_ERROR_STATE && !s, "a session on an empty model");
    CHECK(plumb_model_window(m, &data, &n) == PLUMB_ERROR_STATE, "a window before begin");
    CHECK(plumb_model_end(m) == PLUMB_ERROR_STATE, "end before begin");
    CHECK(plumb_tokenize(m, "a", 1, 0, NULL, 0) == PLUMB_ERROR_STATE, "tokens before the vocabulary");
    plumb_model_begin(m, 100);
    CHECK(plumb_model_end(m) == PLUMB_ERROR_TRUNCATED, "end before the bytes: %s", plumb_model_error(m));
    plumb_model_free(m);
    m = fixture_load(TINY);
    CHECK(m && plumb_model_begin(m, 100) == PLUMB_ERROR_STATE, "begin after end");
    CHECK(m && plumb_model_load_vocab(m) == PLUMB_OK && plumb_model_end(m) == PLUMB_OK, "a second end");
    uint64_t n_param = 0;
    plumb_tensor t;
    for (uint64_t i = 0; m && plumb_model_tensor(m, i, &t) == PLUMB_OK; i++) n_param += t.shape[0] * t.shape[1];
    plumb_model_info info = { .n_param = 0 };
    CHECK(m && plumb_model_get_info(m, &info) == PLUMB_OK && info.n_param == n_param && n_param > 260 * 32,
          "%llu parameters", (unsigned long long)info.n_param);
    int64_t at = m ? plumb_model_find_key(m, "llama.block_count") : 0;
    CHECK(m && at >= 0 && strcmp(plumb_model_key_name(m, (uint64_t)at), "llama.block_count") == 0, "key %d", (int)at);
    CHECK(m && plumb_model_find_key(m, "llama.block") == -1, "a key that is not there");
    plumb_session_params huge = { .n_ctx = UINT32_MAX };
    CHECK(m && plumb_session_create(&s, m, &huge) == PLUMB_ERROR_ARGUMENT, "4 G tokens of context");
    plumb_model_free(m);
}

/* Calls that a callback makes on its own session. */
struct inner {
    plumb_session *s;
    int32_t ids[N_IDS];
    plumb_status feed, feed_all, rewind, set_tap;
    uint32_t n_call, n_same;
};

static void ask(struct inner *in) {
    uint32_t n_past = plumb_session_n_past(in->s);
    in->feed = plumb_session_feed(in->s, in->ids, 5);
    in->feed_all = plumb_session_feed_all(in->s, in->ids, 5, NULL, NULL);
    in->rewind = plumb_session_rewind(in->s, 0);
    in->set_tap = plumb_session_set_tap(in->s, NULL, NULL);
    plumb_session_reuse(in->s, in->ids + 1, 2);
    in->n_same += plumb_session_n_past(in->s) == n_past;
    in->n_call++;
}
static void ask_on_tap(void *user, const plumb_tap *tap) {
    if (strcmp(tap->name, "l_out") == 0) ask(user);
}
static void ask_on_logits(void *user, uint32_t pos, const float *logits) {
    (void)pos, (void)logits;
    ask(user);
}

static void check_refused(const struct inner *in, const char *where) {
    CHECK(in->n_call > 0 && in->n_same == in->n_call, "%s: %u calls, %u left the cache as it was", where, in->n_call,
          in->n_same);
    CHECK(in->feed == PLUMB_ERROR_STATE && in->feed_all == PLUMB_ERROR_STATE && in->rewind == PLUMB_ERROR_STATE
          && in->set_tap == PLUMB_ERROR_STATE, "%s: feed %s, feed_all %s, rewind %s, set_tap %s", where,
          plumb_status_name(in->feed), plumb_status_name(in->feed_all), plumb_status_name(in->rewind),
          plumb_status_name(in->set_tap));
    CHECK(strstr(plumb_session_error(in->s), "callback"), "%s", plumb_session_error(in->s));
}

static void reentry_row(const void *pass) {
    plumb_model *m = fixture_load(TINY);
    plumb_session_params params = { .n_ctx = 64, .pass = *(const plumb_pass *)pass };
    plumb_session *plain = NULL, *s = NULL;
    REQUIRE(m && plumb_session_create(&plain, m, &params) == PLUMB_OK
            && plumb_session_create(&s, m, &params) == PLUMB_OK, "no session");
    struct inner in = { .s = s };
    int32_t ids[N_IDS];
    uint32_t n_vocab = plumb_model_n_vocab(m);
    some_ids(m, ids);
    memcpy(in.ids, ids, sizeof ids);
    plumb_session_feed(plain, ids, N_IDS);
    CHECK(plumb_session_set_tap(s, ask_on_tap, &in) == PLUMB_OK, "%s", plumb_session_error(s));
    CHECK(plumb_session_feed(s, ids, N_IDS) == PLUMB_OK, "%s", plumb_session_error(s));
    check_refused(&in, "on_tap");
    CHECK(logits_hash(s, n_vocab) == logits_hash(plain, n_vocab), "other logits");
    CHECK(plumb_session_set_tap(s, NULL, NULL) == PLUMB_OK && plumb_session_rewind(s, 0) == PLUMB_OK, "%s",
          plumb_session_error(s));
    in.n_call = in.n_same = 0;
    CHECK(plumb_session_feed_all(s, ids, N_IDS, ask_on_logits, &in) == PLUMB_OK, "%s", plumb_session_error(s));
    check_refused(&in, "on_logits");
    CHECK(logits_hash(s, n_vocab) == logits_hash(plain, n_vocab), "other logits");
    plumb_session_free(s);
    plumb_session_free(plain);
    plumb_model_free(m);
}

static void ranges_case(void) {
    plumb_model *m = fixture_load(TINY);
    REQUIRE(m, "no model");
    static const struct { plumb_session_params params; const char *message; } rows[] = {
        { { .n_thread = 65 }, "65 threads: 0 to 64" },
        { { .n_thread = UINT32_MAX }, "4294967295 threads" },
        { { .n_ctx = (1 << 24) + 1 }, "a context of 16777217 tokens: 0 to 16777216" },
        { { .n_ctx = UINT32_MAX }, "a context of 4294967295 tokens" },
        { { .n_batch = (1 << 16) + 1 }, "batches of 65537 tokens: 0 to 65536" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_session *s = NULL;
        plumb_status status = plumb_session_create(&s, m, &rows[i].params);
        CHECK(status == PLUMB_ERROR_ARGUMENT && !s && strstr(plumb_model_error(m), rows[i].message), "row %zu: %s, %s",
              i, plumb_status_name(status), status == PLUMB_OK ? "" : plumb_model_error(m));
        plumb_session_free(s);
    }
    plumb_session *s = NULL;
    CHECK(plumb_session_create(&s, m, &(plumb_session_params) { .n_ctx = 8, .n_batch = 1 << 16, .n_thread = 64 })
          == PLUMB_OK && plumb_session_n_batch(s) == 8, "the most: %s", plumb_model_error(m));
    plumb_session_free(s);
    plumb_model_free(m);
}

/* A truncated file continues where it ended: the position counts each byte once, also after a header and an error. */
static void position_case(void) {
    size_t n = 0;
    uint8_t *file = test_read_all(TINY, &n);
    REQUIRE(file, "no file");
    for (size_t piece = 1; piece <= 100000; piece *= 10) {
        plumb_model *m = plumb_model_create();
        size_t at = 0, len = 1;
        plumb_model_headers_only(m);
        plumb_model_begin(m, n);
        while (len > 0 && at < n) {
            void *data;
            if (!CHECK(plumb_model_window(m, &data, &len) == PLUMB_OK, "%s", plumb_model_error(m))) break;
            size_t take = len < piece ? len : piece;
            if (take > n - at) take = n - at;
            if (take > 0) memcpy(data, file + at, take);
            if (take > 0) plumb_model_commit(m, take);
            at += take;
            if (take > 0) CHECK(plumb_model_position(m) == at, "pieces of %zu: position %.0f after %zu bytes", piece,
                                (double)plumb_model_position(m), at);
        }
        plumb_model_free(m);
    }
    file[5000] ^= 0xff;   /* among the keys; it may do no harm */
    uint64_t bad = 0xffffffffffffffff;
    memcpy(file + 16, &bad, 8);   /* the number of keys */
    plumb_model *m = plumb_model_create();
    void *data;
    size_t len;
    plumb_model_begin(m, n);
    plumb_model_window(m, &data, &len);
    memcpy(data, file, 3000);
    CHECK(plumb_model_commit(m, 3000) != PLUMB_OK && plumb_model_position(m) == 3000, "%.0f after an error: %s",
          (double)plumb_model_position(m), plumb_model_error(m));
    plumb_model_free(m);
    free(file);
}

/* ---- allocation -------------------------------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__)
static size_t n_malloc;
/* AddressSanitizer calls this for every allocation of any kind. */
void __sanitizer_malloc_hook(const volatile void *p, size_t n);
void __sanitizer_malloc_hook(const volatile void *p, size_t n) {
    (void)p;
    (void)n;
    n_malloc++;
}

static void allocation_case(void) {
    plumb_model *m = fixture_load(TINY);
    plumb_session *s = NULL;   /* one thread: further threads allocate while they start */
    plumb_session_create(&s, m, &(plumb_session_params) { .n_ctx = 64, .n_thread = 1 });
    plumb_sampling params = plumb_sampling_default();
    plumb_sampler *sampler = NULL;
    int32_t ids[N_IDS];
    REQUIRE(s && plumb_sampler_create(&sampler, plumb_model_n_vocab(m), &params, NULL) == PLUMB_OK, "no session");
    some_ids(m, ids);
    plumb_session_feed(s, ids, N_IDS);
    plumb_text text = { { 0 }, 0 };
    char piece[256], out[1024];
    CHECK(n_malloc > 10, "the hook is not called: %zu", n_malloc);
    size_t before = n_malloc;
    for (int i = 0; i < 8; i++) {
        int32_t id = plumb_sampler_sample(sampler, plumb_session_logits(s));
        plumb_sampler_accept(sampler, id);
        int64_t n = plumb_token_piece(m, id, false, piece, sizeof piece);
        plumb_text_push(&text, piece, (size_t)n, out, sizeof out);
        CHECK(plumb_session_feed(s, &id, 1) == PLUMB_OK, "token %d: %s", i, plumb_session_error(s));
    }
    CHECK(n_malloc == before, "%zu allocations in 8 tokens", n_malloc - before);
    plumb_sampler_free(sampler);
    plumb_session_free(s);
    plumb_model_free(m);
}
#endif

/* The hash of logits after a batch and a step.  *ran gets the session's description of its kernels. */
static uint64_t precision_hash(plumb_model *m, plumb_precision precision, bool scalar, plumb_precision *ran) {
    plumb_session *s = NULL;
    plumb_session_params params = { .n_ctx = 64, .precision = precision, .force_scalar = scalar };
    int32_t ids[N_IDS];
    some_ids(m, ids);
    if (!CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m))) return 0;
    *ran = plumb_session_precision(s);
    CHECK(plumb_session_feed(s, ids, N_IDS - 1) == PLUMB_OK && plumb_session_feed(s, ids + N_IDS - 1, 1) == PLUMB_OK,
          "%s", plumb_session_error(s));
    uint64_t hash = logits_hash(s, plumb_model_n_vocab(m));
    plumb_session_free(s);
    return hash;
}

/* A file whose activations are rounded to 8 bits, and one of Q8_0, which keeps 16 bits. */
static void precision_row(const void *path) {
    plumb_model *m = fixture_load(path);
    if (!m) return;
    plumb_precision ran = PLUMB_PRECISION_FAST8;
    uint64_t exact16 = precision_hash(m, PLUMB_PRECISION_EXACT16, false, &ran);
    CHECK(ran == PLUMB_PRECISION_EXACT16, "%d", (int)ran);
    uint64_t fast8 = precision_hash(m, PLUMB_PRECISION_FAST8, false, &ran);
    CHECK(ran == PLUMB_PRECISION_FAST8, "%d", (int)ran);
    CHECK((fast8 == exact16) == (strcmp(path, TINY) == 0), "logits of 8 and of 16 bits are %s",
          fast8 == exact16 ? "the same" : "others");
    CHECK(precision_hash(m, PLUMB_PRECISION_FAST8, true, &ran) == fast8, "fast8 by portable kernels: other logits");
    plumb_session_params params = { .n_ctx = 0 };
    CHECK(params.precision == PLUMB_PRECISION_EXACT16, "the default precision is %s",
          plumb_precision_name(params.precision));

    plumb_session *s = NULL;
    params.precision = (plumb_precision)2;
    CHECK(plumb_session_create(&s, m, &params) == PLUMB_ERROR_ARGUMENT && !s
          && strstr(plumb_model_error(m), "2 is not a precision"), "%s", plumb_model_error(m));
    CHECK(!plumb_precision_name((plumb_precision)2), "2 has a name");
    params = (plumb_session_params) { .pass = PLUMB_PASS_REFERENCE };
    if (CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m))) {
        CHECK(plumb_session_precision(s) == PLUMB_PRECISION_EXACT16, "the reference pass");
    }
    plumb_session_free(s);
    plumb_model_free(m);
}

/* Embeddings do not depend on the batches, and misuse gives a status and no embedding. */
static void embed_case(void) {
    static const int32_t ids[] = { 7, 1, 33, 33, 60, 2, 19, 48 }, bad[] = { 7, 1, 64 };
    enum { N = sizeof ids / sizeof *ids };
    plumb_model *m = fixture_load("tests/vectors/archs/qwen3.gguf");
    plumb_session *all = NULL, *few = NULL;
    plumb_session_params one_batch = { .n_ctx = 8 }, batches = { .n_ctx = 8, .n_batch = 3 };
    bool ok = m && CHECK(plumb_session_create(&all, m, &one_batch) == PLUMB_OK
                         && plumb_session_create(&few, m, &batches) == PLUMB_OK, "%s", plumb_model_error(m));
    for (int kind = PLUMB_POOLING_NONE; ok && kind <= PLUMB_POOLING_RANK; kind++) {
        uint32_t n_vector, n, n_few;
        plumb_session_feed(few, ids, 2);   /* is forgotten */
        const uint32_t length = N;
        CHECK(plumb_session_embed(all, ids, &length, 1, (plumb_pooling)kind) == 1
              && plumb_session_embed(few, ids, &length, 1, (plumb_pooling)kind) == 1, "%s", plumb_session_error(few));
        const float *a = plumb_session_embedding(all, &n_vector, &n);
        const float *b = plumb_session_embedding(few, &n_vector, &n_few);
        CHECK(n == n_few && n_vector == (kind == PLUMB_POOLING_NONE ? N : 1)
              && memcmp(a, b, (size_t)n_vector * n * sizeof *a) == 0, "pooling %d: other bits in batches", kind);
        CHECK(plumb_session_n_past(few) == 0 && !plumb_session_logits(few), "%u tokens", plumb_session_n_past(few));
    }
    /* Texts of 1 token and of n. */
    const struct { uint32_t n; const int32_t *ids; plumb_pooling kind; plumb_status status; } rows[] = {
        { 0, ids, PLUMB_POOLING_MEAN, PLUMB_ERROR_ARGUMENT }, { 2, ids, (plumb_pooling)5, PLUMB_ERROR_ARGUMENT },
        { 2, ids, (plumb_pooling)-2, PLUMB_ERROR_ARGUMENT }, { 2, bad, PLUMB_POOLING_MEAN, PLUMB_ERROR_TOKEN },
    };
    for (size_t i = 0; ok && i < sizeof rows / sizeof *rows; i++) {
        uint32_t n_vector = 1, n = 1;
        int64_t status = plumb_session_embed(few, rows[i].ids, (const uint32_t[]) { 1, rows[i].n }, 2, rows[i].kind);
        CHECK(status == rows[i].status && plumb_session_error(few)[0], "row %zu: %d", i, (int)status);
        CHECK(!plumb_session_embedding(few, &n_vector, &n) && n_vector == 0 && n == 0, "row %zu has an embedding", i);
    }
    const uint32_t nine = 9;
    CHECK(!ok || plumb_session_embed(few, ids, &nine, 1, PLUMB_POOLING_MEAN) == PLUMB_ERROR_CONTEXT, "9 fit into 8");
    CHECK(!ok || plumb_session_embed(few, ids, &nine, 0, PLUMB_POOLING_MEAN) == PLUMB_ERROR_ARGUMENT, "no texts");
    plumb_session_free(all);
    plumb_session_free(few);
    plumb_model_free(m);
}

/* The bits of a text's embedding do not depend on the texts that are computed at once with it. */
static void embed_row(const void *row) {
    static const uint32_t lengths[] = { 3, 1, 12, 2, 7, 30, 1, 1, 5 };
    enum { N_TEXT = sizeof lengths / sizeof *lengths, N = 62 };
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", *(const char *const *)row);
    plumb_model *m = fixture_load(path);
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = (i * 29 + 7) % 64;
    for (int kind = PLUMB_POOLING_NONE; m && kind <= PLUMB_POOLING_LAST; kind++) {
        plumb_session *alone = NULL, *together = NULL;
        uint32_t n_vector, n, n_alone, most = 0, at = 0;
        CHECK(plumb_session_create(&alone, m, &(plumb_session_params) { .n_ctx = 40, .n_batch = 8 }) == PLUMB_OK
              && plumb_session_create(&together, m, &(plumb_session_params) { .n_ctx = 40, .n_thread = 2 }) == PLUMB_OK,
              "%s", plumb_model_error(m));
        for (uint32_t i = 0; together && i < N_TEXT;) {
            int64_t n_text = plumb_session_embed(together, ids + at, lengths + i, N_TEXT - i, (plumb_pooling)kind);
            if (!CHECK(n_text > 0 && n_text <= N_TEXT - i, "%s", plumb_session_error(together))) break;
            if (n_text > most) most = (uint32_t)n_text;
            const float *b = plumb_session_embedding(together, &n_vector, &n);
            for (int64_t left = n_text; left > 0; left--, at += lengths[i++]) {
                plumb_session_embed(alone, ids + at, &lengths[i], 1, (plumb_pooling)kind);
                const float *a = plumb_session_embedding(alone, &n_vector, &n_alone);
                CHECK(a && n_alone == n && memcmp(a, b, (size_t)n_vector * n * sizeof *a) == 0,
                      "pooling %d, text %u: other bits", kind, i);
                b += (size_t)n_vector * n;
            }
        }
        CHECK(at == N && most > 2, "%u tokens, at most %u texts at once", at, most);
        plumb_session_free(alone);
        plumb_session_free(together);
    }
    plumb_model_free(m);
}

/* Feeds the decoder's first token and then llama.cpp's greedy ones, and compares its own choices where llama.cpp's two
 * best logits are at least `apart`.  vectors: what logits.c has written for a text and -g. */
static void check_greedy(plumb_session *s, const struct llama_vectors *v, float apart) {
    int32_t id = 3;   /* decoder_start_token_id */
    for (uint32_t k = 0; k < v->n_record; k++) {
        if (!CHECK(plumb_session_feed(s, &id, 1) == PLUMB_OK, "%s", plumb_session_error(s))) return;
        int32_t best = fixture_largest(plumb_session_logits(s), v->n_vocab);
        float distance = llama_f32(v, k, 1 + v->n_sample + v->n_top)
                       - llama_f32(v, k, 2 + v->n_sample + v->n_top);
        id = llama_top_id(v, k);
        CHECK(best == id || distance < apart, "token %u is %d, not %d", k, (int)best, (int)id);
    }
}

/* What a decoder writes depends on the text that its encoder has read last, and equals what llama.cpp writes. */
static void encoder_row(const void *row) {
    static const char text[] = "the cat, sat on a mat?";
    const plumb_session_params params = { .n_ctx = 64, .pass = *(const plumb_pass *)row };
    plumb_model *m = fixture_load("tests/vectors/archs/t5-gated.gguf");
    plumb_session *s = NULL;
    struct llama_vectors v = { 0 };
    int32_t ids[65] = { 0 };
    REQUIRE(m && plumb_session_create(&s, m, &params) == PLUMB_OK, "no session");
    REQUIRE(llama_vectors_read(&v, "archs/t5-gated.greedy"), "no vectors");
    int64_t n = plumb_tokenize(m, text, sizeof text - 1, PLUMB_ADD_SPECIAL, ids, 64);
    CHECK(n == v.n_token - v.n_record + 1 && memcmp(ids, v.tokens, (size_t)n * sizeof *ids) == 0, "%lld tokens",
          (long long)n);
    plumb_model_info info;
    plumb_model_get_info(m, &info);
    CHECK(info.has_encoder && info.decoder_start == 3 && info.n_layer == 3 + 2 * 2, "%u layers", info.n_layer);
    /* misuse */
    static const int32_t beyond = 64;
    CHECK(plumb_session_feed(s, ids, 1) == PLUMB_ERROR_STATE && strstr(plumb_session_error(s), "t5 has an encoder"),
          "%s", plumb_session_error(s));
    CHECK(plumb_session_encode(s, ids, 0) == PLUMB_ERROR_ARGUMENT, "no tokens");
    CHECK(plumb_session_encode(s, ids, 65) == PLUMB_ERROR_CONTEXT, "65 tokens in 64");
    CHECK(plumb_session_encode(s, &beyond, 1) == PLUMB_ERROR_TOKEN && plumb_session_n_encoded(s) == 0, "token 64");
    /* the same text again, another one, and embeddings between */
    for (int i = 0; i < 4; i++) {
        uint32_t n_vector, n_element;
        if (i == 1) encode(s, m, ids, 64);
        if (i == 2) CHECK(plumb_session_embed(s, ids, &(uint32_t) { 9 }, 1, PLUMB_POOLING_MEAN) == 1
                          && plumb_session_embedding(s, &n_vector, &n_element) && n_element == 32, "no embedding");
        if (i == 2) CHECK(plumb_session_feed(s, ids, 1) == PLUMB_ERROR_STATE, "the text is still there");
        encode(s, m, ids, (size_t)n);
        CHECK(plumb_session_n_encoded(s) == n && plumb_session_n_past(s) == (i == 3 ? v.n_record : 0), "%u tokens",
              plumb_session_n_past(s));
        plumb_session_rewind(s, 0);
        check_greedy(s, &v, params.pass ? 0 : 0.05f);
    }
    CHECK(plumb_session_feed(s, ids, 25) == PLUMB_ERROR_CONTEXT, "the decoder's text has no limit");
    plumb_session *restored = NULL;
    if (!params.pass && plumb_session_create(&restored, m, &params) == PLUMB_OK) {   /* the text is saved with it */
        plumb_session_rewind(s, 20);
        struct bytes saved = fixture_save(s);
        CHECK(fixture_restore(restored, saved.data, saved.n) == PLUMB_OK, "%s", plumb_session_error(restored));
        CHECK(plumb_session_n_encoded(restored) == n && plumb_session_n_past(restored) == 20, "another text");
        plumb_session_feed(s, ids, 3);
        plumb_session_feed(restored, ids, 3);
        CHECK(logits_hash(s, v.n_vocab) == logits_hash(restored, v.n_vocab), "other bits");
        CHECK(fixture_restore(restored, saved.data, saved.n - 9) != PLUMB_OK
              && plumb_session_n_encoded(restored) == 0 && plumb_session_n_past(restored) == 0, "a part of it");
        free(saved.data);
        plumb_session_free(restored);
    }
    plumb_session_free(s);
    plumb_model_free(m);
    llama_vectors_free(&v);
    plumb_model *other = fixture_load(TINY);
    s = new_session(other, 16, 0);
    CHECK(s && plumb_session_encode(s, ids, 3) == PLUMB_ERROR_UNSUPPORTED, "llama has no encoder");
    plumb_session_free(s);
    plumb_model_free(other);
}

/* The K and V of a long text and of a long answer: steps over several parts of both, in any order, equal one batch. */
static void long_encoder_case(void) {
    enum { N = 1500 };
    plumb_model *m = fixture_load("tests/vectors/archs/t5.gguf");
    REQUIRE(m, "no model");
    static int32_t ids[N];
    uint64_t hash[2][2] = { { 0 } };
    for (int i = 0; i < N; i++) ids[i] = (i * 29 + 7) % 64;
    for (int type = 0; type < 2; type++) {
        if (!test_repeats((size_t)type)) continue;
        for (int by_steps = 0; by_steps < 2; by_steps++) {
            plumb_session *s = NULL;
            const plumb_session_params params = { .n_ctx = N, .n_thread = by_steps ? 3 : 1,
                                                  .kv_type = type ? PLUMB_KV_F32 : PLUMB_KV_I16 };
            REQUIRE(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m));
            encode(s, m, ids, by_steps ? 70 : N);
            encode(s, m, ids, N);
            CHECK(plumb_session_feed(s, ids, by_steps ? 1100 : 1110) == PLUMB_OK, "%s", plumb_session_error(s));
            for (int i = 1100; by_steps && i < 1110; i++) plumb_session_feed(s, ids + i, 1);
            hash[type][by_steps] = logits_hash(s, plumb_model_n_vocab(m));
            plumb_session_free(s);
        }
        CHECK(hash[type][0] == hash[type][1], "type %d: other bits", type);
    }
    CHECK(!test_repeats(1) || hash[0][0] != hash[1][0], "16 bits and f32");
    plumb_model_free(m);
}

void test_session(void) {
    /* Learned positions, RoPE, windows on both sides and on one, ALiBi, experts, causal or not. */
    static const char *const embedding[] = { "bert", "nomic-bert-moe", "jina-bert-v2", "modern-bert", "neo-bert",
        "eurobert", "gemma-embedding", "llama-embed", "qwen3", "gemma3", "gpt2", "llama4", "lfm2", "qwen35",
        "qwen3next", "falcon-h1", "mamba", "plamo2", "gemma4", "gemma3n", "deepseek2", "plm",
        "rwkv6", "rwkv7", "t5encoder", "kimi-linear", "minimax-01", "graniteswitch", "t5" };
    TEST_ROWS("session: embeddings of several texts have the bits of each text alone: ", embed_row, embedding);
    test_case("session: embeddings are the same in any batches, and misuse gives none", embed_case);
    test_case("session: a model loaded in pieces of 1, 7, 4096 bytes and at once gives the same bits", piecewise_case);
    test_case("session: a file cut at arbitrary bytes loads as one", cut_case);
    test_case("session: files of llama-gguf-split load as one model, only if complete and in order", split_case);
    static const char *const rehearsed[] = { TINY, "tests/vectors/synth/f32.gguf", "tests/vectors/synth/q4_k.gguf",
        "tests/vectors/synth/q6_k.gguf", "tests/vectors/synth/iq4_xs.gguf", "tests/vectors/synth/granite.gguf",
        "tests/vectors/synth/qwen2.gguf", "tests/vectors/synth/rope-freqs.gguf", "tests/vectors/synth/qwen3.gguf",
        "tests/vectors/synth/gemma3.gguf", "tests/vectors/synth/iq2_xs.gguf", "tests/vectors/synth/nvfp4.gguf" };
    for (size_t i = 0; i < sizeof rehearsed / sizeof *rehearsed; i++) {
        test_row("session: from a header alone, rehearsal predicts the memory of a session and runs it",
                 rehearse_case, &rehearsed[i]);
    }
    static const char *const others[] = { "olmoe", "gpt-oss", "llama4", "qwen2moe", "mimo2", "smallthinker", "gemma2",
                                          "deci", "openelm", "lfm2", "lfm2moe", "qwen35", "qwen35moe", "qwen3next",
                                          "granitehybrid", "falcon-h1", "nemotron_h", "nemotron_h_moe", "mamba2",
                                          "mamba", "jamba", "plamo2", "gemma4", "gemma4-moe", "gemma3n", "deepseek2",
                                          "minicpm3", "rwkv6", "rwkv7", "kimi-linear", "bailingmoe3",
                                          "minimax-01", "nemotron_h_moe-latent", "chameleon", "graniteswitch",
                                          "t5" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char name[120];
        snprintf(name, sizeof name, "session: from a header alone, rehearsal predicts the memory of %s", others[i]);
        test_row(name, rehearse_architecture_row, others[i]);
    }
    test_case("session: the headers of a split model rehearse too", rehearse_split_case);
    test_case("session: rehearsals in the wrong state, or of a model that cannot run, are errors", rehearse_wrong_case);
    test_case("session: a rehearsed model without weights cannot be fed", rehearse_large_case);
    test_case("session: a position counts every byte once", position_case);
    test_case("session: parameters out of range are refused with their range", ranges_case);
    static const plumb_pass both[] = { PLUMB_PASS_FAST, PLUMB_PASS_REFERENCE };
    test_row("session: fast pass: callbacks cannot feed or rewind the session", reentry_row, &both[0]);
    test_row("session: reference pass: callbacks cannot feed or rewind the session", reentry_row, &both[1]);
    test_case("session: one batch, batches of 5 and single steps give the same bits", batch_case);
    static const plumb_pass fast = PLUMB_PASS_FAST, reference = PLUMB_PASS_REFERENCE;
    test_row("session: fast pass: logits of every position equal those of single steps", feed_all_row, &fast);
    test_row("session: reference pass: logits of every position equal those of single steps", feed_all_row, &reference);
    test_case("session: a prompt fed again after a rewind gives the same bits", rewind_case);
    test_row("session: fast pass: a decoder writes what llama.cpp writes about the encoder's text", encoder_row, &fast);
    test_row("session: reference pass: a decoder writes what llama.cpp writes about the encoder's text", encoder_row,
             &reference);
    test_case("long text: a decoder's steps about it give the bits of one batch", long_encoder_case);
    static const char *const wanders[] = { "lfm2", "lfm2moe", "qwen35", "qwen3next", "granitehybrid",
                                           "granitehybrid-moe", "falcon-h1", "nemotron_h", "nemotron_h_moe", "mamba2",
                                           "mamba", "jamba", "jamba-moe", "plamo2", "gemma3", "gemma4", "gemma4-moe",
                                           "gemma3n", "llama4", "hrm_text", "talkie", "deepseek2", "minicpm3",
                                           "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7", "kimi-linear", "bailingmoe3",
                                           "minimax-01", "nemotron_h_moe-latent", "chameleon-swin",
                                           "graniteswitch", "graniteswitch-base", "t5", "t5-gated" };
    TEST_REPEATED_ROWS("session: any rewinds and batches give the bits of one batch: ", wander_row, wanders);
    static const struct long_text texts[] = {
        { "mamba2", 0xd9739d33d83779cf }, { "granitehybrid", 0xf055edecbf141933 }, { "qwen35", 0x5d1c1a7e667941fd },
        { "lfm2", 0x9a3226cfe3f88e0a }, { "gemma3", 0x9d298bf24e9f53fb }, { "gemma4", 0x31fd9db52a90bbcb },
        { "rwkv7", 0x4ca651e336f552ea }, { "kimi-linear", 0x85562ca81f8cf154 },
        { "graniteswitch", 0x6d52d29f210382b1 }, { "minimax-01", 0x59ae3bdab9e562f4 },
    };
    TEST_REPEATED_ROWS("long text: 4,096 greedy tokens, step by step, at once, rewound, saved and restored: ",
                       long_row, texts);
    test_case("session: snapshots of states end batches, and a few of many are kept", snapshots_case);
    test_case("session: context overflow and unknown tokens are errors that change nothing", overflow_case);
    test_case("session: calls in the wrong state are errors", state_case);
    test_row("session: precision: all kernels give the same 8-bit result, which differs from 16-bit", precision_row,
             "tests/vectors/synth/q4_0.gguf");
    test_row("session: precision: all kernels agree on superblocks of 4 bits", precision_row,
             "tests/vectors/synth/q4_k.gguf");
    test_row("session: precision: Q8_0 keeps 16 bits", precision_row, TINY);
#if defined(__SANITIZE_ADDRESS__)
    test_case("session: decoding a token allocates nothing", allocation_case);
#endif
}

/* Several sessions of one model: forks, what they share, and batches of several of them.  tests/state_test.c compares
 * the bits of random sequences of all that can be done with them. */
#include "fixture.h"
#include "api/session.h"
#include "test.h"

#include <stdlib.h>

#define ARCH(name) "tests/vectors/archs/" name ".gguf"
enum { N_CTX = 2000, N = 1100 };

struct several { plumb_model *m; plumb_session *s, *fork; uint32_t n_vocab; int32_t ids[N_CTX]; };

static bool open(struct several *x, const char *path, plumb_session_params params) {
    *x = (struct several) { .m = fixture_load(path) };
    if (!x->m) return false;
    x->n_vocab = plumb_model_n_vocab(x->m);
    for (uint32_t i = 0; i < N_CTX; i++) x->ids[i] = (int32_t)((i * 37 + i / 11) % x->n_vocab);
    return CHECK(plumb_session_create(&x->s, x->m, &params) == PLUMB_OK, "%s", plumb_model_error(x->m));
}

static void close(struct several *x) {
    plumb_session_free(x->s);
    plumb_session_free(x->fork);
    plumb_model_free(x->m);
}

static bool fork_it(struct several *x) {
    return CHECK(plumb_session_fork(&x->fork, x->s) == PLUMB_OK, "%s", plumb_session_error(x->s));
}

static bool same_logits(const struct several *x) {
    const float *a = plumb_session_logits(x->s), *b = plumb_session_logits(x->fork);
    return a && b && memcmp(a, b, x->n_vocab * sizeof *a) == 0;
}

/* A session of KV_PART + some tokens: its fork shares both pages of each layer, and then has its own second one. */
static void pages_case(void) {
    struct several x;
    REQUIRE(open(&x, ARCH("llama"), (plumb_session_params) { .n_ctx = N_CTX, .n_batch = 64, .n_thread = 1,
                                                             .grows = true }), "no session");
    struct sequence *s = &x.s->sequence;
    uint32_t n_layer = s->plan->n_layer;
    CHECK(kv_cache_held(&s->caches[0]) == 0, "an empty session that grows has %llu bytes of K and V",
          (unsigned long long)kv_cache_held(&s->caches[0]));
    CHECK(plumb_session_feed(x.s, x.ids, N) == PLUMB_OK && fork_it(&x), "%s", plumb_session_error(x.s));
    struct sequence *f = &x.fork->sequence;
    CHECK(plumb_session_n_past(x.fork) == N && same_logits(&x), "%u tokens", plumb_session_n_past(x.fork));
    for (uint32_t il = 0; il < n_layer; il++) {
        CHECK(s->caches[il].pages[0] == f->caches[il].pages[0] && s->caches[il].pages[0]->n_owner == 2
              && s->caches[il].pages[1]->n_owner == 2, "layer %u: not shared", il);
    }
    CHECK(plumb_session_feed(x.fork, x.ids + N, 1) == PLUMB_OK && plumb_session_feed(x.s, x.ids + N, 1) == PLUMB_OK
          && same_logits(&x), "other logits");
    for (uint32_t il = 0; il < n_layer; il++) {
        CHECK(s->caches[il].pages[0] == f->caches[il].pages[0] && s->caches[il].pages[1] != f->caches[il].pages[1],
              "layer %u: pages", il);
    }
    plumb_session_free(x.s);   /* the fork has its own share */
    x.s = NULL;
    CHECK(f->caches[0].pages[0]->n_owner == 1, "%u owners", f->caches[0].pages[0]->n_owner);
    CHECK(plumb_session_feed(x.fork, x.ids, 5) == PLUMB_OK, "%s", plumb_session_error(x.fork));
    close(&x);
}

/* Sessions of other contexts share the pass, which grows with them. */
static void contexts_case(void) {
    struct several x, alone;
    plumb_session_params params = { .n_ctx = 40, .n_batch = 16, .n_thread = 1 };
    REQUIRE(open(&x, ARCH("llama"), params), "no session");
    CHECK(plumb_session_feed(x.s, x.ids, 30) == PLUMB_OK, "%s", plumb_session_error(x.s));
    params.n_ctx = 1500;
    params.beside = x.s;
    REQUIRE(plumb_session_create(&x.fork, x.m, &params) == PLUMB_OK, "%s", plumb_model_error(x.m));
    CHECK(x.fork->work == x.s->work && x.s->work->n_owner == 2, "they do not share the pass");
    CHECK(plumb_session_common(x.fork, x.s, x.ids, 40) == 0, "contexts differ, and so do pages");
    plumb_feed feeds[] = { { x.s, x.ids + 30, 5, true, 0 }, { x.fork, x.ids, 1200, true, 0 } };
    size_t failed = 0;
    plumb_status status = plumb_sessions_feed(feeds, 2, &failed);
    CHECK(status == PLUMB_OK, "%s", plumb_session_error(feeds[failed].session));
    CHECK(feeds[0].n_done == 5 && feeds[1].n_done == 1200, "%zu and %zu done", feeds[0].n_done, feeds[1].n_done);
    params.beside = NULL;
    REQUIRE(open(&alone, ARCH("llama"), params), "no session");
    CHECK(plumb_session_fork(&alone.fork, alone.s) == PLUMB_OK && plumb_session_feed(alone.s, x.ids, 35) == PLUMB_OK
          && plumb_session_feed(alone.fork, x.ids, 1200) == PLUMB_OK, "%s", plumb_session_error(alone.s));
    CHECK(memcmp(plumb_session_logits(x.s), plumb_session_logits(alone.s), x.n_vocab * sizeof(float)) == 0
          && memcmp(plumb_session_logits(x.fork), plumb_session_logits(alone.fork), x.n_vocab * sizeof(float)) == 0,
          "other logits");
    plumb_session *other = NULL;
    params = (plumb_session_params) { .n_ctx = 40, .n_batch = 16, .n_thread = 1, .kv_type = PLUMB_KV_F32,
                                      .beside = x.s };
    CHECK(plumb_session_create(&other, x.m, &params) == PLUMB_OK && other->work != x.s->work, "another type");
    plumb_feed apart[] = { { x.s, x.ids, 1, true, 0 }, { other, x.ids, 1, true, 0 } };
    CHECK(plumb_sessions_feed(apart, 2, &failed) == PLUMB_ERROR_ARGUMENT && failed == 1
          && strstr(plumb_session_error(other), "other params"), "%s", plumb_session_error(other));
    plumb_session_free(other);
    close(&alone);
    close(&x);
}

/* A fork of a session that has dropped tokens drops others as it would. */
static void dropped_case(void) {
    struct several x;
    REQUIRE(open(&x, ARCH("llama"), (plumb_session_params) { .n_ctx = 140, .n_batch = 32, .n_thread = 1 }), "open");
    CHECK(plumb_session_set_shift(x.s, 4) == PLUMB_OK && plumb_session_feed(x.s, x.ids, 300) == PLUMB_OK
          && fork_it(&x), "%s", plumb_session_error(x.s));
    CHECK(plumb_session_n_dropped(x.fork) == plumb_session_n_dropped(x.s) && plumb_session_n_keep(x.fork) == 4,
          "%u dropped", plumb_session_n_dropped(x.fork));
    CHECK(plumb_session_common(x.fork, x.s, x.ids, 300) == 0, "dropped tokens cannot be taken");
    plumb_feed feeds[] = { { x.s, x.ids + 300, 200, true, 0 }, { x.fork, x.ids + 300, 200, true, 0 } };
    size_t failed = 0;
    CHECK(plumb_sessions_feed(feeds, 2, &failed) == PLUMB_OK && same_logits(&x), "%s", plumb_session_error(x.s));
    CHECK(plumb_session_reuse(x.fork, x.ids, 500) == 499, "%u in the cache", plumb_session_n_past(x.fork));
    close(&x);
}

/* A session that may drop tokens still can after the pass has grown for another one, whose rings are longer than its
 * context. */
static void grown_case(void) {
    struct several x;
    plumb_session_params params = { .n_ctx = 140, .n_batch = 32, .n_thread = 1 };
    REQUIRE(open(&x, ARCH("gemma3"), params) && plumb_session_set_shift(x.s, 4) == PLUMB_OK, "open");
    params.n_ctx = 1900;
    params.beside = x.s;
    REQUIRE(plumb_session_create(&x.fork, x.m, &params) == PLUMB_OK && x.fork->work == x.s->work, "%s",
            plumb_model_error(x.m));
    CHECK(plumb_session_feed(x.s, x.ids, 300) == PLUMB_OK && plumb_session_n_dropped(x.s) > 0, "%s",
          plumb_session_error(x.s));
    CHECK(plumb_session_set_shift(x.fork, 4) == PLUMB_OK && plumb_session_feed(x.fork, x.ids, N_CTX) == PLUMB_OK
          && plumb_session_n_dropped(x.fork) > 0, "%s", plumb_session_error(x.fork));
    uint64_t hash = fixture_hash(plumb_session_logits(x.fork), x.n_vocab * sizeof(float));
    plumb_session_free(x.fork);
    params.beside = NULL;
    REQUIRE(plumb_session_create(&x.fork, x.m, &params) == PLUMB_OK, "%s", plumb_model_error(x.m));
    CHECK(plumb_session_set_shift(x.fork, 4) == PLUMB_OK && plumb_session_feed(x.fork, x.ids, N_CTX) == PLUMB_OK
          && hash == fixture_hash(plumb_session_logits(x.fork), x.n_vocab * sizeof(float)), "other logits");
    close(&x);
}

/* The fork of a session whose encoder has read a text goes on about this text. */
static void encoder_case(void) {
    struct several x;
    REQUIRE(open(&x, ARCH("t5"), (plumb_session_params) { .n_ctx = 64, .n_thread = 1 }), "open");
    CHECK(plumb_session_encode(x.s, x.ids, 20) == PLUMB_OK && plumb_session_feed(x.s, x.ids, 3) == PLUMB_OK
          && fork_it(&x), "%s", plumb_session_error(x.s));
    CHECK(plumb_session_n_encoded(x.fork) == 20 && same_logits(&x), "%u", plumb_session_n_encoded(x.fork));
    CHECK(plumb_session_encode(x.s, x.ids + 5, 30) == PLUMB_OK && plumb_session_feed(x.s, x.ids, 4) == PLUMB_OK
          && plumb_session_feed(x.fork, x.ids + 3, 1) == PLUMB_OK && !same_logits(&x), "%s", plumb_session_error(x.s));
    CHECK(plumb_session_encode(x.s, x.ids, 20) == PLUMB_OK && plumb_session_feed(x.s, x.ids, 4) == PLUMB_OK
          && same_logits(&x), "other logits");
    close(&x);
}

static void on_tap(void *user, const plumb_tap *tap) { (void)user, (void)tap; }

/* What cannot be fed together is refused before anything is computed, with the number of the session. */
static void refused_case(void) {
    struct several x;
    size_t failed = 9;
    REQUIRE(open(&x, ARCH("lfm2"), (plumb_session_params) { .n_ctx = 40, .n_thread = 1 }), "open");
    CHECK(plumb_session_feed(x.s, x.ids, 30) == PLUMB_OK && fork_it(&x), "%s", plumb_session_error(x.s));
    const int32_t wrong = -1;
    const struct { plumb_feed second; plumb_status status; const char *message; } rows[] = {
        { { x.s, x.ids, 1, true, 0 }, PLUMB_ERROR_ARGUMENT, "another place" },
        { { x.fork, x.ids, 0, true, 0 }, PLUMB_ERROR_ARGUMENT, "no tokens" },
        { { x.fork, x.ids, 11, true, 0 }, PLUMB_ERROR_CONTEXT, "11 more tokens" },
        { { x.fork, &wrong, 1, true, 0 }, PLUMB_ERROR_TOKEN, "token -1" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_feed feeds[] = { { x.s, x.ids, 1, true, 0 }, rows[i].second };
        CHECK(plumb_sessions_feed(feeds, 2, &failed) == rows[i].status && failed == 1
              && strstr(plumb_session_error(feeds[1].session), rows[i].message), "row %zu: %zu, %s", i, failed,
              plumb_session_error(feeds[1].session));
    }
    CHECK(plumb_session_n_past(x.s) == 30 && plumb_session_n_past(x.fork) == 30, "something was computed");
    plumb_feed feeds[] = { { x.s, x.ids, 1, true, 0 }, { x.fork, x.ids, 1, true, 0 } };
    CHECK(plumb_session_set_tap(x.fork, on_tap, NULL) == PLUMB_OK && plumb_sessions_feed(feeds, 2, &failed)
          == PLUMB_ERROR_ARGUMENT && strstr(plumb_session_error(x.fork), "a tap"), "%s", plumb_session_error(x.fork));
    CHECK(plumb_session_set_tap(x.fork, NULL, NULL) == PLUMB_OK && plumb_sessions_feed(feeds, 0, &failed) == PLUMB_OK,
          "no feeds");
    CHECK(plumb_session_adopt(x.fork, x.s, 31) == PLUMB_ERROR_ARGUMENT && plumb_session_n_past(x.fork) == 30, "31");
    CHECK(plumb_session_adopt(x.fork, x.s, 29) == PLUMB_ERROR_ARGUMENT, "there is no snapshot after 29");
    plumb_session *reference = NULL, *fork = NULL;
    CHECK(plumb_session_create(&reference, x.m, &(plumb_session_params) { .n_ctx = 8, .pass = PLUMB_PASS_REFERENCE })
          == PLUMB_OK && plumb_session_fork(&fork, reference) == PLUMB_ERROR_UNSUPPORTED && !fork, "reference");
    plumb_session_free(reference);
    close(&x);
}

/* A session of the same model drafts what the caller will choose. */
static void draft_case(void) {
    struct several x;
    REQUIRE(open(&x, ARCH("llama"), (plumb_session_params) { .n_ctx = 128, .n_thread = 1 }), "no session");
    plumb_session *draft = NULL, *plain = NULL;
    plumb_session_params params = { .n_ctx = 100, .n_thread = 1 };
    REQUIRE(plumb_session_create(&draft, x.m, &params) == PLUMB_OK
            && plumb_session_create(&plain, x.m, &params) == PLUMB_OK, "no session");
    plumb_speculation how = { .n_least = 6, .n_most = 6, .draft = draft };
    CHECK(plumb_session_speculate(x.s, &how) == PLUMB_OK, "%s", plumb_session_error(x.s));
    CHECK(plumb_session_feed(x.s, x.ids, 20) == PLUMB_OK && plumb_session_feed(plain, x.ids, 20) == PLUMB_OK, "%s",
          plumb_session_error(x.s));
    CHECK(plumb_session_n_past(draft) == 20, "the draft model holds %u tokens of the prompt",
          plumb_session_n_past(draft));
    for (int i = 0; i < 60; i++) {
        int32_t id = fixture_largest(plumb_session_logits(plain), x.n_vocab);
        REQUIRE(memcmp(plumb_session_logits(plain), plumb_session_logits(x.s), x.n_vocab * sizeof(float)) == 0,
                "token %d: other logits", i);
        REQUIRE(plumb_session_feed(plain, &id, 1) == PLUMB_OK && plumb_session_feed(x.s, &id, 1) == PLUMB_OK, "%s",
                plumb_session_error(x.s));
    }
    uint64_t n_drafted = plumb_session_n_drafted(x.s), n_accepted = plumb_session_n_accepted(x.s);
    CHECK(n_accepted >= 50 && n_drafted - n_accepted <= 6, "%llu of %llu tokens accepted",
          (unsigned long long)n_accepted, (unsigned long long)n_drafted);
    how.draft = x.s;
    CHECK(plumb_session_speculate(x.s, &how) == PLUMB_ERROR_ARGUMENT, "a session drafts for itself");
    CHECK(plumb_session_speculate(x.s, NULL) == PLUMB_OK, "%s", plumb_session_error(x.s));
    plumb_session_free(plain);
    plumb_session_free(draft);
    close(&x);
}

/* The model of a file in which two tokens have changed their places. */
static plumb_model *load_swapped(const char *path) {
    size_t n;
    uint8_t *file = test_read_all(path, &n);
    plumb_model *m = plumb_model_create();
    for (size_t at = 9; file && at < n; at++) {
        bool is_token = file[at - 8] == 1 && memcmp(file + at - 7, "\0\0\0\0\0\0\0", 7) == 0;
        if (is_token && (file[at] == '#' || file[at] == '$')) file[at] = file[at] == '#' ? '$' : '#';
    }
    bool ok = file && m && plumb_model_begin(m, n) == PLUMB_OK && fixture_give(m, file, 0, n, n) == PLUMB_OK
           && plumb_model_end(m) == PLUMB_OK;
    CHECK(ok, "%s", m ? plumb_model_error(m) : "no memory");
    free(file);
    return m;
}

static void vocabularies_case(void) {
    static const char synth[] = "tests/vectors/synth/f32.gguf";
    plumb_model *models[] = { fixture_load(synth), fixture_load(synth), load_swapped(synth),
                              fixture_load(ARCH("llama")) };
    static const char *const errors[] = { NULL, "", "has another vocabulary: token 2 is \"$\", not \"#\"",
                                          "has another vocabulary: 64 tokens, not 260" };
    plumb_session *sessions[4] = { NULL };
    for (int i = 0; i < 4; i++) {
        REQUIRE(models[i] && plumb_session_create(&sessions[i], models[i], NULL) == PLUMB_OK, "model %d", i);
    }
    for (int i = 1; i < 4; i++) {
        plumb_speculation how = { .draft = sessions[i] };
        plumb_status status = plumb_session_speculate(sessions[0], &how);
        CHECK(status == (i == 1 ? PLUMB_OK : PLUMB_ERROR_ARGUMENT)
              && strstr(plumb_session_error(sessions[0]), errors[i]), "model %d: %s", i,
              plumb_session_error(sessions[0]));
    }
    for (int i = 0; i < 4; i++) plumb_session_free(sessions[i]);
    for (int i = 0; i < 4; i++) plumb_model_free(models[i]);
}

void test_sessions(void) {
    test_case("sessions: a fork shares pages until it writes to them", pages_case);
    test_case("sessions: other contexts and types beside a session", contexts_case);
    test_case("sessions: forks of a session that has dropped tokens", dropped_case);
    test_case("sessions: the pass grows for one that drops tokens", grown_case);
    test_case("sessions: forks of a session whose encoder has read a text", encoder_case);
    test_case("sessions: what cannot be fed together, or taken", refused_case);
    test_case("sessions: a draft model writes what is likely to follow", draft_case);
    test_case("sessions: a model with another vocabulary cannot draft", vocabularies_case);
}

/* Saved sessions: random sequences of all that can be done with a session give the bits of sessions that compute
 * everything anew, and bytes that are not a saved session of the model change nothing or leave an empty session. */
#include "bytes.h"
#include "fixture.h"
#include "api/session.h"
#include "test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static plumb_session *create(plumb_model *m, plumb_session_params params) {
    plumb_session *s = NULL;
    CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m));
    return s;
}

static uint64_t hash_of(const float *logits, uint32_t n_vocab) {
    return fixture_hash(logits, n_vocab * sizeof *logits);
}

/* ---- random sequences -------------------------------------------------------------------------------------------- */

enum { N_LONG = 1800, N_SHORT = 80 };

/* A session, the tokens that it must hold, and the session as it must be after plumb_session_restore. */
struct held {
    plumb_session *session;
    int32_t ids[N_LONG];
    uint32_t n, n_before;      /* n_before: how many it held before it was restored */
    bool has_logits;
};

struct walk {
    plumb_model *model;
    plumb_kv_type type;
    uint32_t n_vocab, n_max;   /* n_max: tokens that a sequence may have */
    uint64_t random, random_draft;   /* of the sequence, and of drafts */
    struct held held[2];       /* the second is a fork, from time to time */
    plumb_session *drafting[40];   /* (n_drafting) sessions that draft for others */
    uint32_t n_drafting;
    struct held saved;         /* what `bytes` are of; without a session */
    struct bytes bytes;
    /* The logits after each of n_known tokens, by a session that computed them anew. */
    int32_t known_ids[N_LONG];
    uint64_t known[N_LONG];
    uint32_t n_known, n_checked, n_together, n_adopted;
    uint64_t n_drafted, n_accepted;
    char done[400];            /* the steps so far, for messages */
};

static uint32_t next_below(uint64_t *random, uint32_t n) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*random >> 33) % n);
}
static uint32_t below(struct walk *w, uint32_t n) { return next_below(&w->random, n); }

PRINTF_LIKE(2, 3) static void tell(struct walk *w, const char *format, ...);
static void tell(struct walk *w, const char *format, ...) {
    size_t n = strlen(w->done);
    va_list args;
    va_start(args, format);
    vsnprintf(w->done + n, sizeof w->done - n, format, args);
    va_end(args);
}

/* A draft: the tokens that a session will be fed, as far as they are known, with mistakes. */
static uint32_t draft(void *user, int32_t *tokens, uint32_t n, uint32_t n_most) {
    struct walk *w = user;
    uint32_t n_draft = next_below(&w->random_draft, n_most + 1);
    for (uint32_t i = 0; i < n_draft; i++) {
        tokens[n + i] = (int32_t)(next_below(&w->random_draft, 4) * 7 % w->n_vocab);
        for (int k = 0; k < 2; k++) {
            const struct held *h = &w->held[k];
            bool is_known = n + i < h->n && memcmp(tokens, h->ids, n * sizeof *tokens) == 0;
            if (is_known && next_below(&w->random_draft, 8) > 0) tokens[n + i] = h->ids[n + i];
        }
    }
    return n_draft;
}

/* Lets a session compute ahead: not at all, by prompt lookup, or with drafts of any tokens. */
static void any_speculation(struct walk *w, plumb_session *s) {
    uint32_t how = next_below(&w->random_draft, 5);
    plumb_speculation speculation = { .lookup = true, .n_least = next_below(&w->random_draft, 5),
                                      .n_most = 4 + next_below(&w->random_draft, 12) };
    tell(w, how == 0 ? "" : how == 1 ? " (lookup)" : how == 2 ? " (model)" : " (drafts)");
    if (how == 0) return;
    if (how == 2 && w->n_drafting < sizeof w->drafting / sizeof *w->drafting) {
        speculation.lookup = next_below(&w->random_draft, 2);
        speculation.draft = w->drafting[w->n_drafting++] = create(w->model, (plumb_session_params) {
            .n_ctx = w->n_max - next_below(&w->random_draft, 30), .n_thread = 1, .grows = true });
    }
    CHECK(plumb_session_speculate(s, &speculation) == PLUMB_OK, "%s", plumb_session_error(s));
    if (how > 2) ahead_set_drafter(s, draft, w);
}

static void count_drafts(struct walk *w, plumb_session *s) {
    w->n_drafted += plumb_session_n_drafted(s);
    w->n_accepted += plumb_session_n_accepted(s);
    plumb_session_free(s);
}

/* Any context that holds the tokens, and any batch. */
static plumb_session *any_session(struct walk *w, bool force_scalar) {
    static const uint32_t batches[] = { 1, 3, 8, 33, 128, 1500 };   /* of the last, rings are as long as the context */
    plumb_session_params params = { .n_ctx = w->n_max + below(w, 100), .n_batch = batches[below(w, 6)],
                                    .kv_type = w->type, .n_thread = 1, .force_scalar = force_scalar,
                                    .grows = below(w, 2) };
    plumb_session *s = create(w->model, params);
    if (s) any_speculation(w, s);
    return s;
}

static int32_t any_id(struct walk *w) {   /* few different ones, so that sequences have beginnings in common */
    return (int32_t)(below(w, 4) * 7 % w->n_vocab);
}

static void know(void *user, uint32_t pos, const float *logits) {
    struct walk *w = user;
    w->known[pos] = hash_of(logits, w->n_vocab);
}

/* Computes the logits after each of n ids anew, unless they are known: in one batch, with caches as long as that. */
static void compute(struct walk *w, const int32_t *ids, uint32_t n) {
    if (n <= w->n_known && memcmp(ids, w->known_ids, n * sizeof *ids) == 0) return;
    plumb_session_params params = { .n_ctx = n, .n_batch = n, .kv_type = w->type, .n_thread = 1 };
    plumb_session *fresh = create(w->model, params);
    if (!fresh) return;
    CHECK(plumb_session_feed_all(fresh, ids, n, know, w) == PLUMB_OK, "%s", plumb_session_error(fresh));
    memcpy(w->known_ids, ids, n * sizeof *ids);
    w->n_known = n;
    plumb_session_free(fresh);
}

/* The session must hold its tokens, and have the logits after the last one, if any. */
static void check(struct walk *w, struct held *h) {
    plumb_session *s = h->session;
    if (!CHECK(plumb_session_n_past(s) == h->n && memcmp(plumb_session_tokens(s), h->ids, h->n * sizeof *h->ids) == 0,
               "%s: %u tokens, expected %u", w->done, plumb_session_n_past(s), h->n)) return;
    const float *logits = plumb_session_logits(s);
    CHECK((logits != NULL) == h->has_logits, "%s: logits: %d, expected %d", w->done, logits != NULL, h->has_logits);
    if (!logits || h->n == 0) return;
    compute(w, h->ids, h->n);
    CHECK(hash_of(logits, w->n_vocab) == w->known[h->n - 1], "%s: other logits after %u tokens", w->done, h->n);
    w->n_checked++;
}

struct compared { struct walk *w; struct held *h; };

static void compare(void *user, uint32_t pos, const float *logits) {
    struct compared *c = user;
    CHECK(hash_of(logits, c->w->n_vocab) == c->w->known[pos], "%s: other logits after token %u of %u", c->w->done, pos,
          c->h->n);
    c->w->n_checked++;
}

/* Feeds n tokens at once, in one call with all logits, or one by one. */
static void feed(struct walk *w, struct held *h, uint32_t n) {
    if (n > w->n_max - h->n) n = w->n_max - h->n;
    if (n == 0) return;
    uint32_t how = below(w, 3), begin = h->n;
    tell(w, " feed%s %u", how == 0 ? "" : how == 1 ? " all" : " one by one", n);
    for (uint32_t i = 0; i < n; i++) h->ids[h->n++] = any_id(w);
    h->has_logits = true;
    plumb_status status = PLUMB_OK;
    if (how == 0) status = plumb_session_feed(h->session, h->ids + begin, n);
    if (how == 1) {
        compute(w, h->ids, h->n);
        status = plumb_session_feed_all(h->session, h->ids + begin, n, compare, &(struct compared) { w, h });
    }
    for (uint32_t i = begin; how == 2 && i < h->n && status == PLUMB_OK; i++) {
        status = plumb_session_feed(h->session, h->ids + i, 1);
    }
    CHECK(status == PLUMB_OK, "%s: %s", w->done, plumb_session_error(h->session));
}

/* Becomes a prompt that has the first n tokens in common with what the session holds. */
static void edit(struct walk *w, struct held *h, uint32_t n) {
    static int32_t prompt[N_LONG];
    uint32_t more = 1 + below(w, 12);
    if (n + more > w->n_max) return;
    memcpy(prompt, h->ids, n * sizeof *prompt);
    for (uint32_t i = n; i < n + more; i++) prompt[i] = any_id(w);
    tell(w, " edit %u + %u", n, more);
    uint32_t kept = plumb_session_reuse(h->session, prompt, n + more);
    CHECK(kept < n + more && kept == plumb_session_n_past(h->session), "%s: %u kept", w->done, kept);
    CHECK(plumb_session_feed(h->session, prompt + kept, n + more - kept) == PLUMB_OK, "%s",
          plumb_session_error(h->session));
    memcpy(h->ids, prompt, (n + more) * sizeof *prompt);
    h->n = n + more;
    h->has_logits = true;
}

/* Restores bytes of what `from` held into a session that is there or a new one. */
static void take(struct walk *w, struct held *to, const struct held *from) {
    if (below(w, 2) == 0) {
        count_drafts(w, to->session);
        to->session = any_session(w, below(w, 4) == 0);
    }
    CHECK(fixture_restore(to->session, w->bytes.data, w->bytes.n) == PLUMB_OK, "%s: %s", w->done,
          plumb_session_error(to->session));
    memcpy(to->ids, from->ids, from->n * sizeof *from->ids);
    to->n_before = to->n;
    to->n = from->n;
    to->has_logits = from->has_logits;
}

/* Another session becomes what h is, and shares what it can. */
static void fork_of(struct walk *w, struct held *to, struct held *h) {
    plumb_session *session = NULL;
    CHECK(plumb_session_fork(&session, h->session) == PLUMB_OK, "%s: %s", w->done, plumb_session_error(h->session));
    count_drafts(w, to->session);
    uint32_t n_before = to->n;
    *to = *h;
    to->session = session;
    if (session) any_speculation(w, session);
    to->n_before = n_before;
}

/* Becomes a prompt that begins as the other session, and takes what that one has of it, if they are forks. */
static void adopt(struct walk *w, struct held *h, const struct held *other) {
    static int32_t prompt[N_LONG];
    uint32_t n = below(w, other->n + 1), n_all = n + 1 + below(w, 12);
    if (n_all > w->n_max) return;
    memcpy(prompt, other->ids, n * sizeof *prompt);
    for (uint32_t i = n; i < n_all; i++) prompt[i] = any_id(w);
    uint32_t common = plumb_session_common(h->session, other->session, prompt, n_all);
    tell(w, " adopt %u of %u", common, n_all);
    CHECK(common < n_all && common <= other->n, "%s", w->done);
    CHECK(plumb_session_common(h->session, h->session, prompt, n_all) <= h->n, "%s", w->done);
    if (common == 0) return;
    CHECK(plumb_session_adopt(h->session, other->session, common) == PLUMB_OK
          && plumb_session_feed(h->session, prompt + common, n_all - common) == PLUMB_OK, "%s: %s", w->done,
          plumb_session_error(h->session));
    memcpy(h->ids, prompt, n_all * sizeof *prompt);
    h->n = n_all;
    h->has_logits = true;
    w->n_adopted++;
}

/* Feeds both sessions at once, if they are forks. */
static void together(struct walk *w) {
    plumb_feed feeds[2];
    size_t failed = 0;
    uint32_t begin[2], n_min = w->held[0].n < w->held[1].n ? w->n_max - w->held[1].n : w->n_max - w->held[0].n;
    if (n_min == 0) return;
    for (int k = 0; k < 2; k++) {
        struct held *h = &w->held[k];
        uint32_t n = 1 + below(w, below(w, 2) ? 1 : n_min < 40 ? n_min : 40);
        begin[k] = h->n;
        for (uint32_t i = 0; i < n; i++) h->ids[h->n++] = any_id(w);
        feeds[k] = (plumb_feed) { h->session, h->ids + begin[k], n, below(w, 4) > 0, 0 };
    }
    tell(w, " together %zu and %zu", feeds[0].n, feeds[1].n);
    plumb_status status = plumb_sessions_feed(feeds, 2, &failed);
    for (int k = 0; k < 2; k++) {
        struct held *h = &w->held[k];
        if (status == PLUMB_OK) h->has_logits = feeds[k].wants_logits;
        else h->n = begin[k];   /* they have nothing in common */
        check(w, h);
    }
    w->n_together += status == PLUMB_OK;
    CHECK(status == PLUMB_OK || status == PLUMB_ERROR_ARGUMENT, "%s: %s", w->done,
          plumb_session_error(feeds[failed].session));
}

/* A place to go back to: near, anywhere, or after as many tokens as the session held before it was restored. */
static uint32_t place(struct walk *w, const struct held *h) {
    switch (below(w, 4)) {
    case 0: return h->n_before < h->n ? h->n_before : h->n;
    case 1: return below(w, h->n + 1);
    default: return h->n - below(w, h->n < 20 ? h->n + 1 : 20);
    }
}

static void step(struct walk *w, bool is_long) {
    struct held *h = &w->held[below(w, 2)], *other = h == w->held ? w->held + 1 : w->held;
    uint32_t n = 0;
    switch (below(w, 12)) {
    case 0: feed(w, h, 1 + below(w, is_long ? 900 : 30)); break;
    case 1: feed(w, h, 1 + below(w, 4)); break;
    case 2: feed(w, h, is_long && h->n < 1100 ? 1100 : 5); break;
    case 3:
        n = place(w, h);
        tell(w, " rewind %u", n);
        if (n < h->n) h->has_logits = false;
        h->n = n;
        CHECK(plumb_session_rewind(h->session, n) == PLUMB_OK, "%s", plumb_session_error(h->session));
        break;
    case 4: edit(w, h, place(w, h)); break;
    case 5:
        tell(w, " save");
        free(w->bytes.data);
        w->bytes = fixture_save(h->session);
        w->saved = *h;
        break;
    case 6:
        if (w->bytes.n == 0) break;
        tell(w, " restore");
        take(w, h, &w->saved);
        break;
    case 7: together(w); break;
    case 8: adopt(w, h, other); break;
    case 9:
    case 10:
        tell(w, " fork");
        fork_of(w, other, h);
        check(w, other);
        break;
    default:
        tell(w, " copy");
        free(w->bytes.data);
        w->bytes = fixture_save(h->session);
        w->saved = *h;
        take(w, other, h);
        check(w, other);
    }
    check(w, h);
}

/* The kinds of state.  is_ring: sequences long enough that rings of windows lose their first positions. */
static const struct kind { const char *name, *path; plumb_kv_type type; bool is_ring; } kinds[] = {
#define ARCH(name) "tests/vectors/archs/" name ".gguf"
#define KV(name) "tests/vectors/kv/" name ".gguf"
    { "attention, i16", ARCH("llama"), PLUMB_KV_I16, false },
    { "attention, f32", ARCH("llama"), PLUMB_KV_F32, false },
    { "attention, q8_0", KV("heads"), PLUMB_KV_Q8_0, false },
    { "attention, q4_0", KV("heads"), PLUMB_KV_Q4_0, false },
    { "ring of a window, i16", ARCH("gemma3"), PLUMB_KV_I16, true },
    { "ring of a window, f32", ARCH("gemma3"), PLUMB_KV_F32, true },
    { "ring of a window, q8_0", KV("windows"), PLUMB_KV_Q8_0, true },
    { "ring of a window, q4_0", KV("windows"), PLUMB_KV_Q4_0, true },
    { "ring of a window, sinks", ARCH("gpt-oss"), PLUMB_KV_I16, true },
    { "ring of chunks", ARCH("llama4"), PLUMB_KV_I16, true },
    { "shared K and V, gemma4", ARCH("gemma4"), PLUMB_KV_I16, true },
    { "shared K and V, gemma3n", ARCH("gemma3n"), PLUMB_KV_F32, true },
    { "latent attention, i16", ARCH("deepseek2"), PLUMB_KV_I16, false },
    { "latent attention, f32", ARCH("minicpm3"), PLUMB_KV_F32, false },
    { "Mamba", ARCH("mamba"), PLUMB_KV_I16, false },
    { "Mamba 2", ARCH("mamba2"), PLUMB_KV_I16, false },
    { "short convolution", ARCH("lfm2"), PLUMB_KV_I16, false },
    { "delta net, qwen35", ARCH("qwen35"), PLUMB_KV_I16, false },
    { "delta net, qwen3next", ARCH("qwen3next"), PLUMB_KV_F32, false },
    { "RWKV 6", ARCH("rwkv6"), PLUMB_KV_I16, false },
    { "RWKV 6 and attention", ARCH("rwkv6qwen2"), PLUMB_KV_I16, false },
    { "RWKV 7", ARCH("rwkv7"), PLUMB_KV_I16, false },
    { "RWKV 7 and attention", ARCH("arwkv7"), PLUMB_KV_I16, false },
    { "Kimi Delta Attention and latent attention", ARCH("kimi-linear"), PLUMB_KV_I16, false },
    { "lightning attention", ARCH("minimax-01"), PLUMB_KV_I16, false },
    { "hybrid, granite", ARCH("granitehybrid"), PLUMB_KV_I16, false },
    { "hybrid, falcon-h1", ARCH("falcon-h1"), PLUMB_KV_F32, false },
    { "hybrid, nemotron", ARCH("nemotron_h"), PLUMB_KV_I16, false },
    { "hybrid, jamba", ARCH("jamba"), PLUMB_KV_I16, false },
    { "hybrid, plamo2", ARCH("plamo2"), PLUMB_KV_I16, false },
    { "loops, hrm", ARCH("hrm_text"), PLUMB_KV_I16, false },
    { "adapters inside the file", ARCH("graniteswitch"), PLUMB_KV_I16, false },
};
enum { N_KIND = sizeof kinds / sizeof *kinds, N_STEP = 14 };

/* SEQUENCES, natively: how many sequences there are of all kinds together (`make sequences`); SEED: of the first. */
static uint32_t number(const char *name, uint32_t usual) {
#if !defined(__EMSCRIPTEN__)
    const char *text = getenv(name);
    if (text) return (uint32_t)strtoul(text, NULL, 10);
#endif
    (void)name;
    return usual;
}

static void sequences_row(const void *row) {
    const struct kind *kind = row;
    plumb_model *m = fixture_load(kind->path);
    REQUIRE(m, "%s", kind->path);
    uint32_t n = number("SEQUENCES", 12 * N_KIND) / N_KIND + 1, n_checked = 0, n_together = 0, n_adopted = 0;
    uint64_t n_drafted = 0, n_accepted = 0;
    struct walk *w = malloc(sizeof *w);
    REQUIRE(w, "no memory");
    for (uint32_t i = 0; i < n; i++) {
        bool is_long = kind->is_ring && i % 6 == 0;
        memset(w, 0, sizeof *w);
        w->model = m;
        w->type = kind->type;
        w->n_vocab = plumb_model_n_vocab(m);
        w->n_max = is_long ? N_LONG : N_SHORT;
        w->random = ((uint64_t)number("SEED", 1) << 32 | (uint64_t)(kind - kinds) << 24 | i) * 0x9e3779b97f4a7c15u;
        w->random_draft = w->random;
        snprintf(w->done, sizeof w->done, "sequence %u:", i);
        for (int k = 0; k < 2; k++) w->held[k].session = any_session(w, false);
        if (is_long) feed(w, w->held, 1100);
        for (int k = 0; k < N_STEP; k++) step(w, is_long);
        for (int k = 0; k < 2; k++) count_drafts(w, w->held[k].session);
        for (uint32_t k = 0; k < w->n_drafting; k++) plumb_session_free(w->drafting[k]);
        free(w->bytes.data);
        n_drafted += w->n_drafted;
        n_accepted += w->n_accepted;
        n_checked += w->n_checked;
        n_together += w->n_together;
        n_adopted += w->n_adopted;
    }
    CHECK(n_together > 0 && n_adopted > 0, "%u batches of two sessions, %u adopted", n_together, n_adopted);
    CHECK(m->model->plan.is_recurrent ? n_drafted == 0 : n_accepted > 0 && n_accepted < n_drafted,
          "%llu of %llu drafted tokens accepted", (unsigned long long)n_accepted, (unsigned long long)n_drafted);
    test_note("%u sequences, %u logits compared, %u batches of two sessions, %llu of %llu drafted tokens accepted", n,
              n_checked, n_together, (unsigned long long)n_accepted, (unsigned long long)n_drafted);
    free(w);
    plumb_model_free(m);
}

/* ---- bytes that are not right ------------------------------------------------------------------------------------ */

enum { N_ID = 70, N_HEAD = 12 + 16 + 48 + 8 };   /* N_HEAD: bytes up to the end of the section head without adapters */

static void some_ids(const plumb_model *m, int32_t *ids) {
    for (uint32_t i = 0; i < N_ID; i++) ids[i] = (int32_t)((i * 37 + 5) % plumb_model_n_vocab(m));
}

/* A session that was refused is as it was or empty, and works. */
static void check_works(plumb_session *s, plumb_model *m, bool is_kept, uint64_t hash, const char *what) {
    int32_t ids[N_ID];
    some_ids(m, ids);
    CHECK(plumb_session_n_past(s) == (is_kept ? 3 : 0), "%s: %u tokens", what, plumb_session_n_past(s));
    CHECK((plumb_session_logits(s) != NULL) == is_kept, "%s: logits", what);
    CHECK(plumb_session_rewind(s, 0) == PLUMB_OK && plumb_session_feed(s, ids, N_ID) == PLUMB_OK, "%s: %s", what,
          plumb_session_error(s));
    CHECK(hash_of(plumb_session_logits(s), plumb_model_n_vocab(m)) == hash, "%s: other logits", what);
    CHECK(plumb_session_rewind(s, 0) == PLUMB_OK && plumb_session_feed(s, ids, 3) == PLUMB_OK, "%s", what);
}

/* A model, a session that holds N_ID tokens saved, and another session, which holds 3. */
struct saved { plumb_model *m; plumb_session *s; struct bytes bytes; uint64_t hash; };

static struct saved save_some(const struct kind *kind) {
    struct saved x = { .m = fixture_load(kind->path) };
    int32_t ids[N_ID];
    plumb_session *from = x.m ? create(x.m, (plumb_session_params) { .n_ctx = 96, .kv_type = kind->type }) : NULL;
    if (!from) return x;
    some_ids(x.m, ids);
    plumb_session_feed(from, ids, N_ID - 3);
    for (uint32_t i = N_ID - 3; i < N_ID; i++) plumb_session_feed(from, ids + i, 1);
    x.hash = hash_of(plumb_session_logits(from), plumb_model_n_vocab(x.m));
    x.bytes = fixture_save(from);
    plumb_session_free(from);
    x.s = create(x.m, (plumb_session_params) { .n_ctx = 80, .kv_type = kind->type });
    if (x.s) plumb_session_feed(x.s, ids, 3);
    return x;
}

static void saved_free(struct saved *x) {
    free(x->bytes.data);
    plumb_session_free(x->s);
    plumb_model_free(x->m);
}

/* The file cut anywhere, and with a bit of any byte changed: each end, each beginning of a section, and some others. */
static void damaged_row(const void *row) {
    struct saved x = save_some(row);
    REQUIRE(x.s, "no session");
    size_t stride = x.bytes.n / 150 + 1;
    for (size_t at = 0; at < x.bytes.n; at += at < 2 * N_HEAD || at + 20 > x.bytes.n ? 1 : stride) {
        char what[60];
        snprintf(what, sizeof what, "cut at %zu", at);
        plumb_status status = fixture_restore(x.s, x.bytes.data, at);
        CHECK(status == PLUMB_ERROR_TRUNCATED && strstr(plumb_session_error(x.s), "the file ends here"), "%s: %s",
              what, plumb_session_error(x.s));
        check_works(x.s, x.m, at < N_HEAD, x.hash, what);
        snprintf(what, sizeof what, "byte %zu changed", at);
        x.bytes.data[at] ^= (uint8_t)(1 << at % 8);
        CHECK(fixture_restore(x.s, x.bytes.data, x.bytes.n) != PLUMB_OK && plumb_session_error(x.s)[0], "%s", what);
        check_works(x.s, x.m, at < N_HEAD, x.hash, what);
        x.bytes.data[at] ^= (uint8_t)(1 << at % 8);
    }
    CHECK(fixture_restore(x.s, x.bytes.data, x.bytes.n) == PLUMB_OK
          && hash_of(plumb_session_logits(x.s), plumb_model_n_vocab(x.m)) == x.hash, "%s", plumb_session_error(x.s));
    saved_free(&x);
}

/* The offset of the contents of a section, and *n, how many bytes they have; 0: there is none. */
static size_t find(const struct bytes *b, const char *tag, uint32_t index, size_t *n) {
    for (size_t at = 12; at + 24 <= b->n; at += 24 + *n) {
        *n = (size_t)load_u64(b->data + at + 8);
        if (memcmp(b->data + at, tag, 4) == 0 && load_u32(b->data + at + 4) == index) return at + 16;
    }
    return 0;
}

/* Makes the digests right. */
static void seal(struct bytes *b) {
    for (size_t at = 12, n; at + 24 <= b->n; at += 24 + n) {
        n = (size_t)load_u64(b->data + at + 8);
        if (n > b->n - at - 24) break;
        struct digest d;
        digest_begin(&d);
        digest_update(&d, b->data + at, 16 + n);
        uint64_t value = digest_end(&d);
        memcpy(b->data + at + 16 + n, &value, sizeof value);
    }
}

/* Bytes that a hostile writer has changed: value, of `size` bytes, at the offset in a section; offset -1: of all of it,
 * -8: its length.  The digests are right. */
static void hostile_case(void) {
    enum { OTHER = PLUMB_ERROR_ARGUMENT, FULL = PLUMB_ERROR_CONTEXT, WRONG = PLUMB_ERROR_METADATA };
    static const struct {
        const char *tag;
        uint32_t index, kind;
        int at;
        uint64_t value;
        size_t size;
        int status;
        const char *message;
    } rows[] = {
        { "head", 0, 0, 8, 3, 4, OTHER, "K and V of type f32 and precision exact16, but" },
        { "head", 0, 0, 8, 99, 4, OTHER, "K and V of type ? and precision exact16, but" },
        { "head", 0, 0, 12, 1, 4, OTHER, "type i16 and precision fast8, but this session has i16 and" },
        { "head", 0, 0, 0, 5, 8, OTHER, "the digest of its weights is 0000000000000005, and that of" },
        { "head", 0, 0, 24, 1, 4, OTHER, "saved with 1 adapters in use, and this session uses 0" },
        { "head", 0, 0, 28, 2, 4, WRONG, "70 tokens, with logits, in a context of 96" },
        { "head", 0, 0, 20, 97, 4, WRONG, "97 tokens, with logits, in a context of 96" },
        { "head", 0, 0, 20, 81, 4, FULL, "its 81 tokens do not fit: the context holds 80" },
        { "head", 0, 0, 20, 71, 4, WRONG, "the section has 280 more bytes, but 284 are needed" },
        { "head", 0, 0, 20, 69, 4, WRONG, "the section has 4 bytes more than it needs" },
        { "head", 0, 0, 20, 0, 4, WRONG, "0 tokens, with logits, in a context of 96" },
        { "head", 0, 0, -8, UINT64_MAX, 8, WRONG, "bytes more than it needs" },
        { "toks", 0, 0, -8, 1u << 31, 8, WRONG, "the section has 2147483368 bytes more than it needs" },
        { "toks", 0, 0, 8, 64, 4, WRONG, "token 64, 68 from here, is not in 0..63" },
        { "toks", 0, 0, 276, UINT32_MAX, 4, WRONG, "token -1, 1 from here, is not in 0..63" },
        { "toks", 0, 0, -16, 0x6b6f78, 4, WRONG, "a section toks 0 must begin 16 bytes before, not \"xok" },
        { "kv  ", 1, 0, 0, 32, 4, WRONG, "in section kv   1 from byte" },
        { "kv  ", 0, 0, 0, 1, 4, WRONG, "K and V begin at position 1, but the next token sees position 0" },
        { "head", 0, 0, 36, 1, 4, OTHER, "it has dropped tokens behind the first 0 in a context of 96, and" },
        { "kv  ", 0, 0, 4, 0x7fff7fff7fff7fff, 8, WRONG, "K of head 0 from position 0 on are too large" },
        { "kv  ", 0, 0, 4 + 32 * 16 * 2 + 32 * 4, 0x8000, 2, WRONG,
          "the codes of V of head 0 from position 0 on are too large" },
        { "stat", 0, 1, 0, 0, 4, WRONG, "there is no state after all 70 tokens" },
        { "stat", 0, 1, 0, 9, 4, WRONG, "the section has 0 more bytes, but 4 are needed" },
        { "stat", 0, 1, 4, 0, 4, WRONG, "state 0 is that after 0 tokens, but the one before is after 0" },
        { "stat", 0, 1, 4, 70, 4, WRONG, "state 1 is that after 70 tokens, but the one before is after 70" },
        { "stat", 0, 1, 4, 71, 4, WRONG, "and there are 70 tokens" },
        { "swch", 0, 2, 138, 4, 2, WRONG, "token 69 switches adapter 4 on, and the model has 3" },
        { "swch", 0, 2, -8, 142, 8, WRONG, "the section has 2 bytes more than it needs" },
    };
    static const struct kind of[] = { { "", ARCH("llama"), PLUMB_KV_I16, false }, { "", ARCH("mamba2"), 0, false },
                                      { "", ARCH("graniteswitch"), PLUMB_KV_I16, false } };
    struct saved all[] = { save_some(&of[0]), save_some(&of[1]), save_some(&of[2]) };
    REQUIRE(all[0].s && all[1].s && all[2].s, "no sessions");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct saved *x = &all[rows[i].kind];
        struct bytes changed = { NULL, 0, 0 };
        size_t n = 0;
        put(&changed, x->bytes.data, x->bytes.n);
        size_t at = find(&changed, rows[i].tag, rows[i].index, &n);
        REQUIRE(at > 0, "no section %s %u", rows[i].tag, rows[i].index);
        memcpy(changed.data + at + rows[i].at, &rows[i].value, rows[i].size);
        seal(&changed);
        plumb_status status = fixture_restore(x->s, changed.data, changed.n);
        CHECK((int)status == rows[i].status && strstr(plumb_session_error(x->s), rows[i].message), "row %zu: %s: %s", i,
              plumb_status_name(status), plumb_session_error(x->s));
        bool is_head = status != PLUMB_ERROR_METADATA || (strcmp(rows[i].tag, "head") == 0
            && !strstr(plumb_session_error(x->s), "section toks"));
        check_works(x->s, x->m, is_head, x->hash, rows[i].message);
        free(changed.data);
    }
    struct saved *x = &all[0];
    put(&x->bytes, "", 1);
    CHECK(fixture_restore(x->s, x->bytes.data, x->bytes.n) == PLUMB_ERROR_METADATA
          && strstr(plumb_session_error(x->s), "the saved session ends here, but there are more bytes"), "%s",
          plumb_session_error(x->s));
    check_works(x->s, x->m, false, x->hash, "more bytes");
    CHECK(fixture_restore(x->s, (const uint8_t *)"GGUF\3\0\0\0\0\0\0\0", 12) == PLUMB_ERROR_MAGIC
          && strstr(plumb_session_error(x->s), "it begins with \"GGUF\\x03"), "%s", plumb_session_error(x->s));
    x->bytes.data[8] = 2;
    CHECK(fixture_restore(x->s, x->bytes.data, x->bytes.n) == PLUMB_ERROR_VERSION
          && strstr(plumb_session_error(x->s), "has version 2, and only 1 can be read"), "%s",
          plumb_session_error(x->s));
    for (int k = 0; k < 3; k++) saved_free(&all[k]);
}

/* What a session cannot restore because it computes in another way. */
static void other_case(void) {
    static const struct kind llama = { "", ARCH("llama"), PLUMB_KV_I16, false };
    struct saved x = save_some(&llama);
    REQUIRE(x.s, "no session");
    static const struct { const char *path, *message; plumb_session_params params; plumb_status status; } rows[] = {
        { ARCH("qwen3"), "it was saved with another model", { .n_ctx = 96 }, PLUMB_ERROR_ARGUMENT },
        { ARCH("llama"), "but this session has f32 and exact16", { .n_ctx = 96, .kv_type = PLUMB_KV_F32 },
          PLUMB_ERROR_ARGUMENT },
        { ARCH("llama"), "but this session has i16 and fast8", { .n_ctx = 96, .precision = PLUMB_PRECISION_FAST8 },
          PLUMB_ERROR_ARGUMENT },
        { ARCH("llama"), "its 70 tokens do not fit: the context holds 69", { .n_ctx = 69 }, PLUMB_ERROR_CONTEXT },
        { ARCH("llama"), "sessions of the reference pass cannot be saved", { .n_ctx = 96,
          .pass = PLUMB_PASS_REFERENCE }, PLUMB_ERROR_UNSUPPORTED },
        { ARCH("llama"), "", { .n_ctx = 70, .n_batch = 1 }, PLUMB_OK },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_model *m = fixture_load(rows[i].path);
        plumb_session *s = m ? create(m, rows[i].params) : NULL;
        plumb_status status = s ? fixture_restore(s, x.bytes.data, x.bytes.n) : PLUMB_ERROR_IO;
        CHECK(s && status == rows[i].status && strstr(plumb_session_error(s), rows[i].message), "row %zu: %s", i,
              s ? plumb_session_error(s) : "");
        if (s) CHECK((plumb_session_save_bytes(s) == 0) == (rows[i].params.pass != NULL), "row %zu", i);
        plumb_session_free(s);
        plumb_model_free(m);
    }
    saved_free(&x);

    /* A model with other factors of RoPE beyond a context of 300 tokens. */
    static const struct kind phi3 = { "", ARCH("phi3"), PLUMB_KV_I16, false };
    x = save_some(&phi3);
    REQUIRE(x.s, "no session");
    x.m->model->plan.n_ctx_original = 300;
    plumb_session *s = create(x.m, (plumb_session_params) { .n_ctx = 301 });
    CHECK(s && fixture_restore(s, x.bytes.data, x.bytes.n) == PLUMB_ERROR_ARGUMENT
          && strstr(plumb_session_error(s), "context of 96 tokens, and the session's has 301: this model computes "
                    "differently beyond 300"), "%s", s ? plumb_session_error(s) : "");
    plumb_session_free(s);
    saved_free(&x);
}

struct inside { plumb_session *s; plumb_status save, restore; struct bytes bytes; };

static void ask(void *user, const plumb_tap *tap) {
    struct inside *in = user;
    (void)tap;
    in->restore = fixture_restore(in->s, in->bytes.data, in->bytes.n);
    in->save = plumb_session_save_bytes(in->s) > 0 ? PLUMB_OK : PLUMB_ERROR_STATE;
}

static void busy_case(void) {
    static const struct kind llama = { "", ARCH("llama"), PLUMB_KV_I16, false };
    struct saved x = save_some(&llama);
    int32_t id = 3;
    REQUIRE(x.s, "no session");
    struct inside in = { .s = x.s, .bytes = x.bytes };
    CHECK(plumb_session_set_tap(x.s, ask, &in) == PLUMB_OK && plumb_session_feed(x.s, &id, 1) == PLUMB_OK, "%s",
          plumb_session_error(x.s));
    CHECK(in.restore == PLUMB_ERROR_STATE && in.save == PLUMB_ERROR_STATE && plumb_session_n_past(x.s) == 4,
          "in a callback: %s", plumb_session_error(x.s));
    saved_free(&x);
}

/* An empty session, and one behind a rewind whose logits are gone. */
static void empty_case(void) {
    plumb_model *m = fixture_load(ARCH("lfm2"));
    plumb_session *a = m ? create(m, (plumb_session_params) { .n_ctx = 64 }) : NULL;
    plumb_session *b = m ? create(m, (plumb_session_params) { .n_ctx = 32 }) : NULL;
    int32_t ids[N_ID];
    REQUIRE(a && b, "no sessions");
    some_ids(m, ids);
    plumb_session_feed(b, ids, 20);
    struct bytes saved = fixture_save(a);
    CHECK(fixture_restore(b, saved.data, saved.n) == PLUMB_OK && plumb_session_n_past(b) == 0
          && !plumb_session_logits(b), "%s", plumb_session_error(b));
    free(saved.data);
    plumb_session_feed(a, ids, 20);
    plumb_session_feed(a, ids + 20, 5);
    plumb_session_rewind(a, 20);
    saved = fixture_save(a);
    CHECK(fixture_restore(b, saved.data, saved.n) == PLUMB_OK && plumb_session_n_past(b) == 20
          && !plumb_session_logits(b), "%s", plumb_session_error(b));
    plumb_session_feed(a, ids + 20, 5);
    plumb_session_feed(b, ids + 20, 5);
    CHECK(memcmp(plumb_session_logits(a), plumb_session_logits(b), plumb_model_n_vocab(m) * sizeof(float)) == 0,
          "other logits");
    CHECK(plumb_session_reuse(b, ids, 25) == 20, "%u kept", plumb_session_n_past(b));
    free(saved.data);
    plumb_session_free(a);
    plumb_session_free(b);
    plumb_model_free(m);
}

/* Rings of other lengths read the same bytes, and know which positions they do not have. */
static void ring_row(const void *row) {
    const struct kind *kind = row;
    plumb_model *m = fixture_load(kind->path);
    REQUIRE(m, "%s", kind->path);
    static int32_t ids[1500];
    uint32_t n_vocab = plumb_model_n_vocab(m);
    for (uint32_t i = 0; i < 1500; i++) ids[i] = (int32_t)((i * i + 3) % n_vocab);
    /* The caches of layers with windows hold 2048 and 1024 positions. */
    plumb_session *sessions[2];
    for (int k = 0; k < 2; k++) {
        uint32_t n_batch = k ? 8 : 1500;
        sessions[k] = create(m, (plumb_session_params) { .n_ctx = 4000, .n_batch = n_batch, .kv_type = kind->type });
    }
    REQUIRE(sessions[0] && sessions[1], "no sessions");
    for (int k = 0; k < 2; k++) {
        plumb_session *from = sessions[k], *to = sessions[!k];
        plumb_session_rewind(from, 0);
        plumb_session_feed(from, ids, 1500);
        struct bytes saved = fixture_save(from);
        CHECK(fixture_restore(to, saved.data, saved.n) == PLUMB_OK, "%s", plumb_session_error(to));
        CHECK(plumb_session_reuse(to, ids, 1401) == 1400, "%u kept", plumb_session_n_past(to));
        plumb_session_feed(to, ids + 1400, 100);
        CHECK(memcmp(plumb_session_logits(from), plumb_session_logits(to), n_vocab * sizeof(float)) == 0, "logits");
        CHECK(fixture_restore(to, saved.data, saved.n) == PLUMB_OK, "%s", plumb_session_error(to));
        CHECK(plumb_session_reuse(to, ids, 301) == 0, "%u kept", plumb_session_n_past(to));
        free(saved.data);
    }
    for (int k = 0; k < 2; k++) plumb_session_free(sessions[k]);
    plumb_model_free(m);
}

/* A session that has dropped tokens goes on where it is restored, if its context is full at the same tokens. */
static void dropped_row(const void *row) {
    enum { N_CTX = 140, N = 700 };
    const struct kind *kind = row;
    plumb_model *m = fixture_load(kind->path);
    REQUIRE(m, "%s", kind->path);
    static int32_t ids[N];
    uint32_t n_vocab = plumb_model_n_vocab(m);
    for (uint32_t i = 0; i < N; i++) ids[i] = (int32_t)((i * 37 + i / 11) % n_vocab);
    plumb_session *a = create(m, (plumb_session_params) { .n_ctx = N_CTX, .kv_type = kind->type });
    plumb_session *b = create(m, (plumb_session_params) { .n_ctx = N_CTX, .n_batch = 5, .kv_type = kind->type });
    REQUIRE(a && b && plumb_session_set_shift(a, 4) == PLUMB_OK, "no sessions");
    for (uint32_t at = 0; at < N; at += 100) {
        CHECK(plumb_session_feed(a, ids + at, 100) == PLUMB_OK, "%s", plumb_session_error(a));
        struct bytes saved = fixture_save(a);
        CHECK(plumb_session_set_shift(b, 0) == PLUMB_OK, "%s", plumb_session_error(b));
        bool has_dropped = plumb_session_n_dropped(a) > 0;
        CHECK(fixture_restore(b, saved.data, saved.n) == (has_dropped ? PLUMB_ERROR_ARGUMENT : PLUMB_OK), "%s",
              plumb_session_error(b));
        CHECK(plumb_session_set_shift(b, 4) == PLUMB_OK && fixture_restore(b, saved.data, saved.n) == PLUMB_OK, "%s",
              plumb_session_error(b));
        CHECK(plumb_session_n_dropped(b) == plumb_session_n_dropped(a), "%u dropped", plumb_session_n_dropped(b));
        uint32_t kept = plumb_session_reuse(b, ids, at + 100);
        CHECK(kept == at + 99 || plumb_session_n_past(b) < 100, "%u of %u kept", kept, at + 100);
        CHECK(plumb_session_feed(b, ids + kept, at + 100 - kept) == PLUMB_OK
              && hash_of(plumb_session_logits(a), n_vocab) == hash_of(plumb_session_logits(b), n_vocab), "logits");
        free(saved.data);
    }
    plumb_session_free(a);
    plumb_session_free(b);
    plumb_model_free(m);
}

/* Saves the session, whose last token was fed at once, and compares the bytes with those that another one gave. */
static void check_bytes(plumb_session *s, const struct bytes *expected, const char *what) {
    struct bytes is = fixture_save(s);
    size_t n = is.n < expected->n ? is.n : expected->n, at = 0;
    while (at < n && is.data[at] == expected->data[at]) at++;
    CHECK(at == n && is.n == expected->n, "%s: byte %zu differs, of %zu and %zu", what, at, is.n, expected->n);
    free(is.data);
}

/* The bytes do not know of tokens that were forgotten: of the same tokens they are the same, whatever was fed between.
 * Other positions of the last tile of K and block of V, which kernels do not mind, have what was there before. */
static void forgotten_row(const void *row) {
    const struct kind *kind = row;
    uint32_t n_first = kind->is_ring ? 1100 : 20, n = n_first + 8;   /* the n + 1 tokens end inside a tile of 8 */
    static int32_t ids[1120], others[15];
    plumb_model *m = fixture_load(kind->path);
    REQUIRE(m, "%s", kind->path);
    for (uint32_t i = 0; i < 1120; i++) ids[i] = (int32_t)((i * 37 + i / 11) % plumb_model_n_vocab(m));
    for (uint32_t i = 0; i < 15; i++) others[i] = (int32_t)((i * 5 + 1) % plumb_model_n_vocab(m));
    plumb_session_params params = { .n_ctx = kind->is_ring ? 1200 : 64, .n_batch = 40, .kv_type = kind->type };
    plumb_session *a = create(m, params), *b = create(m, params);
    params.n_batch = 1200;
    plumb_session *other = create(m, params);
    REQUIRE(a && b && other, "no sessions");
    plumb_session_feed(a, ids, n_first);
    plumb_session_feed(a, ids + n_first, 8);
    plumb_session_feed(a, ids + n, 1);
    struct bytes saved = fixture_save(a);
    CHECK(saved.n > 0 && plumb_session_n_past(a) == n + 1, "%u tokens", plumb_session_n_past(a));
    plumb_session_feed(b, ids, n_first);
    plumb_session_feed(b, others, 5);
    plumb_session_rewind(b, n_first);
    plumb_session_feed(b, ids + n_first, 8);
    for (int i = 0; i < 7; i++) plumb_session_feed(b, others + i, 1);   /* as far as that block has positions */
    plumb_session_rewind(b, n);
    plumb_session_feed(b, ids + n, 1);
    check_bytes(b, &saved, "after others");
    /* A session that saved goes on with the same bits, since what it cleared was forgotten. */
    plumb_session_feed(a, others, 9);
    plumb_session_feed(b, others, 9);
    CHECK(hash_of(plumb_session_logits(a), plumb_model_n_vocab(m)) == hash_of(plumb_session_logits(b),
          plumb_model_n_vocab(m)), "other logits");
    CHECK(fixture_restore(other, saved.data, saved.n) == PLUMB_OK, "%s", plumb_session_error(other));
    check_bytes(other, &saved, "restored");
    free(saved.data);
    plumb_session_free(a);
    plumb_session_free(b);
    plumb_session_free(other);
    plumb_model_free(m);
}

void test_state(void) {
    TEST_REPEATED_ROWS("state: random sequences give the bits of fresh sessions: ", sequences_row, kinds);
    static const struct kind damaged[] = {
        { "attention", ARCH("llama"), PLUMB_KV_I16, false }, { "q4_0", KV("heads"), PLUMB_KV_Q4_0, false },
        { "f32", ARCH("gemma3n"), PLUMB_KV_F32, false }, { "hybrid", ARCH("lfm2"), PLUMB_KV_I16, false },
        { "RWKV 7", ARCH("rwkv7"), PLUMB_KV_I16, false },
    };
    TEST_REPEATED_ROWS("state: a damaged file is refused and the session works: ", damaged_row, damaged);
    test_case("state: bytes that a hostile writer made are refused with place and numbers", hostile_case);
    test_case("state: a session that computes in another way restores nothing", other_case);
    test_case("state: callbacks of the session can neither save nor restore it", busy_case);
    static const struct kind rings[] = { { "i16", ARCH("gemma3"), PLUMB_KV_I16, true },
                                         { "f32", ARCH("gemma3"), PLUMB_KV_F32, true },
                                         { "q4_0", KV("windows"), PLUMB_KV_Q4_0, true } };
    TEST_ROWS("state: rings of any length read the same bytes: ", ring_row, rings);
    static const struct kind dropped[] = { { "i16", ARCH("llama"), PLUMB_KV_I16, false },
                                           { "q8_0", KV("heads"), PLUMB_KV_Q8_0, false },
                                           { "hybrid", ARCH("granitehybrid"), PLUMB_KV_I16, false } };
    TEST_ROWS("state: a session that has dropped tokens is restored: ", dropped_row, dropped);
    TEST_ROWS("state: forgotten tokens leave nothing in a saved session: ", forgotten_row, kinds);
    test_case("state: empty sessions, and those without logits", empty_case);
}

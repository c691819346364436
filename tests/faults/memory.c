/* Out-of-memory tests by SQLite's method: for every n the n-th allocation fails, and then all from the n-th on.  The
 * linker replaces malloc and its family by the functions below (-Wl,--wrap), so the engine under test is the one that
 * ships.
 *
 * Some scenarios allocate ten thousands of times at the same few places of the program.  So of all allocations with the
 * same callers only one fails: the first or any other, which SEED chooses (1 if it is not set).  With FAULTS=all (`make
 * faults`) every one does.
 *
 * A scenario is a piece of work with the engine.  For each n it must return PLUMB_ERROR_MEMORY with a message (a few
 * scenarios can do without the memory and then must succeed), leave as many blocks as before, and give the usual result
 * if it is repeated with the same objects.
 */
#include "../bytes.h"
#include "../fixture.h"
#include "../grammar_make.h"
#include "../harness.h"
#include "../test.h"
#include "../../wasm/trace.h"
#include "trace/trace.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the allocator ---------------------------------------------------------------------------------------------- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static struct {
    long n_done;        /* allocations since it was armed */
    long fails_at;      /* -1: none fails */
    bool fails_on;      /* all later ones fail too */
    long n_failed;
    long n_block;       /* blocks in use */
    size_t n_byte;      /* bytes in them */
    size_t n_peak;      /* largest n_byte; a block that moves counts twice */
    uint64_t *callers;  /* (n_callers) where these allocations are written, or NULL: what called_by returns for each */
    long n_callers;
    uintptr_t top;      /* the frame of main */
} heap = {.fails_at = -1};

/* A hash of the addresses to which the functions return that led to this allocation, at most DEPTH.  All code is
 * compiled with frame pointers: a frame begins with the address of the one before it, then comes that to return to. */
static uint64_t called_by(void) {
    enum { DEPTH = 5 };
    uint64_t hash = 0xcbf29ce484222325u;
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    for (int i = 0; i < DEPTH; i++) {
        const uintptr_t *at = (const uintptr_t *)frame;
        hash = (hash ^ at[1]) * 0x100000001b3u;
        if (at[0] <= frame || at[0] >= heap.top || at[0] % sizeof *at != 0) break;
        frame = at[0];
    }
    return hash;
}

static bool fails_now(void) {
    long i = heap.n_done++;
    if (i < heap.n_callers) heap.callers[i] = called_by();
    if (heap.fails_at < 0 || i < heap.fails_at || (i > heap.fails_at && !heap.fails_on)) return false;
    heap.n_failed++;
    return true;
}

static void *counted(void *p) {
    heap.n_block += p != NULL;
    heap.n_byte += malloc_usable_size(p);
    if (heap.n_byte > heap.n_peak) heap.n_peak = heap.n_byte;
    return p;
}

static void uncounted(void *p) {
    heap.n_block -= p != NULL;
    heap.n_byte -= malloc_usable_size(p);
}

void *__wrap_malloc(size_t n) { return fails_now() ? NULL : counted(__real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t size) { return fails_now() ? NULL : counted(__real_calloc(n, size)); }
void *__wrap_realloc(void *p, size_t n) {
    if (fails_now()) return NULL;
    void *moved = counted(__real_malloc(n));
    if (!moved || !p) return moved;
    size_t n_before = malloc_usable_size(p);
    memcpy(moved, p, n_before < n ? n_before : n);
    __wrap_free(p);
    return moved;
}
void __wrap_free(void *p) {
    uncounted(p);
    __real_free(p);
}

static void heap_arm(long at, bool on) {
    heap.n_done = heap.n_failed = 0;
    heap.fails_at = at;
    heap.fails_on = on;
}

/* ---- shared state of the scenarios ------------------------------------------------------------------------------ */

#define SYNTH "tests/vectors/synth/"
#define KINDS "tests/vectors/tokenizer/kinds/"
#define TINY "tests/fuzz/tiny.gguf"

enum { N_FED = 6, N_BATCH = 4 };
static const int32_t fed[N_FED] = {1, 4, 2, 8, 5, 7};

/* Created once, without failures, and used by all, so the next scenario sees any damage that a failure leaves. */
static struct {
    struct bytes tiny, spm, parts[3], kinds[5], json, text, npz, dump, lora;
    plumb_model *model, *spm_model, *other, *heads, *llama;
    plumb_session *fast, *reference;
    plumb_trace *trace, *read, *theirs;   /* theirs: made by the reference pass, */
    plumb_trace *wrong, *permuted;        /* with other values, and with Q and K as transformers have them */
    plumb_trace *odd_scores, *odd_products;   /* with values that no mistake explains */
} world;

/* The result of a scenario: all bits of its results, and the text of a report. */
static struct {
    uint64_t hash;
    char message[sizeof ((struct error *)NULL)->message];
    char report[1 << 18];
    size_t n_report;
} result;

static void note_bytes(const void *bytes, size_t n) {
    const uint8_t *b = bytes;
    for (size_t i = 0; i < n; i++) result.hash = (result.hash ^ b[i]) * 0x100000001b3u;
}

static void keep_report(void *user, const char *bytes, size_t n) {
    (void)user;
    if (n > sizeof result.report - 1 - result.n_report) n = sizeof result.report - 1 - result.n_report;
    memcpy(result.report + result.n_report, bytes, n);
    result.n_report += n;
    result.report[result.n_report] = 0;
}

static void note_report(void *user, const char *bytes, size_t n) {
    note_bytes(bytes, n);
    keep_report(user, bytes, n);
}

static void keep(void *user, const char *bytes, size_t n) {
    struct bytes *b = user;
    b->data = realloc(b->data, b->n + n);
    memcpy(b->data + b->n, bytes, n);
    b->n += n;
}

static plumb_status failed(plumb_status status, const char *message) {
    snprintf(result.message, sizeof result.message, "%s", message);
    return status;
}

/* Copies the failure of an object to the result. */
#define ON_MODEL(m, expr)                                                       \
    do {                                                                        \
        status = (expr);                                                        \
        if (status != PLUMB_OK) {                                               \
            failed(status, plumb_model_error(m));                               \
            goto done;                                                          \
        }                                                                       \
    } while (0)

/* ---- loading ---------------------------------------------------------------------------------------------------- */

/* Repeats a call that failed for lack of memory, now that there is memory: it must succeed. */
static void again(plumb_model *m, plumb_status (*call)(plumb_model *)) {
    long at = heap.fails_at, n_done = heap.n_done;
    heap.fails_at = -1;
    plumb_status status = call(m);
    CHECK(status == PLUMB_OK, "called again: %s: %s", plumb_status_name(status), plumb_model_error(m));
    heap.fails_at = at;
    heap.n_done = n_done;
}

static plumb_status load_parts(const struct bytes *parts, size_t n_part, bool known, size_t piece) {
    plumb_status status = PLUMB_ERROR_MEMORY;
    plumb_model *m = plumb_model_create();
    if (!m) return failed(status, "no memory for a model");
    for (size_t i = 0; i < n_part; i++) {
        status = plumb_model_begin(m, known ? parts[i].n : PLUMB_SIZE_UNKNOWN);
        if (status == PLUMB_ERROR_MEMORY && heap.fails_on) {   /* it may be called again */
            heap.fails_at = -1;
            CHECK(plumb_model_begin(m, PLUMB_SIZE_UNKNOWN) == PLUMB_OK, "%s", plumb_model_error(m));
        }
        ON_MODEL(m, status);
        ON_MODEL(m, fixture_give(m, parts[i].data, 0, parts[i].n, piece));
    }
    status = plumb_model_load_vocab(m);
    if (status == PLUMB_ERROR_MEMORY) failed(status, plumb_model_error(m)), again(m, plumb_model_load_vocab);
    if (status != PLUMB_OK) goto done;
    status = plumb_model_end(m);
    if (status == PLUMB_ERROR_MEMORY) failed(status, plumb_model_error(m)), again(m, plumb_model_end);
done:
    if (status == PLUMB_OK) {
        plumb_model_info info;
        plumb_model_get_info(m, &info);
        note_bytes(&info.n_param, sizeof info.n_param);
    }
    plumb_model_free(m);
    return status;
}

static plumb_status load_bpe(void) { return load_parts(&world.tiny, 1, true, 1000); }
static plumb_status load_spm(void) { return load_parts(&world.spm, 1, false, SIZE_MAX); }
static plumb_status load_split(void) { return load_parts(world.parts, 3, true, SIZE_MAX); }

/* The speed of a model from its header alone.  Without memory for made-up weights there is no speed. */
static plumb_status rehearse(void) {
    plumb_status status = PLUMB_ERROR_MEMORY;
    plumb_model *m = plumb_model_create();
    plumb_session *s = NULL;
    uint32_t n_ring = 0;
    if (!m) return failed(status, "no memory for a model");
    ON_MODEL(m, plumb_model_headers_only(m));
    ON_MODEL(m, plumb_model_begin(m, world.tiny.n));
    ON_MODEL(m, fixture_give(m, world.tiny.data, 0, world.tiny.n, SIZE_MAX));
    ON_MODEL(m, plumb_model_rehearse(m, &n_ring));
    plumb_session_params params = {.n_ctx = 8, .n_thread = 1};
    if (n_ring > 0) ON_MODEL(m, plumb_session_create(&s, m, &params));
    if (s) status = plumb_session_feed(s, fed, 2);
done:
    plumb_session_free(s);
    plumb_model_free(m);
    return status;
}

/* ---- sessions --------------------------------------------------------------------------------------------------- */

static plumb_status make_session(const plumb_session_params *params) {
    plumb_session *s = NULL;
    plumb_status status = plumb_session_create(&s, world.model, params);
    CHECK((status == PLUMB_OK) == (s != NULL), "%s, and a session", plumb_status_name(status));
    if (status != PLUMB_OK) return failed(status, plumb_model_error(world.model));
    status = plumb_session_feed(s, fed, N_FED);
    if (status == PLUMB_OK) note_bytes(plumb_session_logits(s), plumb_model_n_vocab(world.model) * sizeof(float));
    else failed(status, plumb_session_error(s));
    plumb_session_free(s);
    return status;
}

static plumb_status make_sessions(void) {
    plumb_session_params params = {.n_ctx = 12, .n_batch = N_BATCH, .n_thread = 1};
    for (int i = 0; i < 3; i++) {
        params.kv_type = i == 2 ? PLUMB_KV_F32 : PLUMB_KV_I16;
        params.precision = i == 1 ? PLUMB_PRECISION_FAST8 : PLUMB_PRECISION_EXACT16;
        params.force_scalar = i == 2;
        PLUMB_TRY(make_session(&params));
    }
    return make_session(&(plumb_session_params){.n_ctx = 12, .n_batch = N_BATCH, .pass = PLUMB_PASS_REFERENCE});
}

static plumb_status make_threads(void) {
    return make_session(&(plumb_session_params){.n_ctx = 12, .n_batch = N_BATCH, .n_thread = 3});
}

/* A session with K and V in slices, which drops tokens. */
static plumb_status drop_tokens(void) {
    enum { N_CTX = 128, N = 140 };
    plumb_session_params params = {.n_ctx = N_CTX, .n_batch = N_BATCH, .n_thread = 1, .kv_type = PLUMB_KV_Q8_0};
    plumb_session *s = NULL;
    plumb_status status = plumb_session_create(&s, world.heads, &params);
    if (status != PLUMB_OK) return failed(status, plumb_model_error(world.heads));
    status = plumb_session_set_shift(s, 4);
    int32_t ids[N] = { 0 };
    if (status == PLUMB_OK) status = plumb_session_feed(s, ids, N);
    if (status == PLUMB_OK) note_bytes(plumb_session_logits(s), plumb_model_n_vocab(world.heads) * sizeof(float));
    else failed(status, plumb_session_error(s));
    plumb_session_free(s);
    return status;
}

/* A session that grows, a fork of it, tokens of both in one batch, which writes to a page that they share, and one that
 * takes what another holds. */
static plumb_status share_session(void) {
    plumb_session_params params = {.n_ctx = 40, .n_batch = N_BATCH, .n_thread = 1, .grows = true};
    plumb_session *first = NULL, *fork = NULL, *other = NULL;
    plumb_status status = PLUMB_OK;
    size_t at = 0;
    ON_MODEL(world.model, plumb_session_create(&first, world.model, &params));
    params.beside = first;
    ON_MODEL(world.model, plumb_session_create(&other, world.model, &params));
    if (status != PLUMB_OK) goto done;
    status = plumb_session_feed(first, fed, N_FED);
    if (status == PLUMB_OK) status = plumb_session_fork(&fork, first);
    if (status != PLUMB_OK) failed(status, plumb_session_error(first));
    if (status != PLUMB_OK) goto done;
    plumb_feed feeds[] = {{first, fed, 1, true, 0}, {fork, fed + 1, N_FED - 1, true, 0}};
    status = plumb_sessions_feed(feeds, 2, &at);
    if (status != PLUMB_OK) failed(status, plumb_session_error(feeds[at].session));
    if (status != PLUMB_OK) goto done;
    for (int i = 0; i < 2; i++) {
        note_bytes(plumb_session_logits(feeds[i].session), plumb_model_n_vocab(world.model) * sizeof(float));
    }
    status = plumb_session_adopt(other, fork, N_FED);
    if (status == PLUMB_OK) status = plumb_session_feed(other, fed, 2);
    if (status != PLUMB_OK) failed(status, plumb_session_error(other));
    else note_bytes(plumb_session_logits(other), plumb_model_n_vocab(world.model) * sizeof(float));
done:
    plumb_session_free(first);   /* the pass is that of the first one, and stays */
    plumb_session_free(fork);
    plumb_session_free(other);
    return status;
}

/* A LoRA is loaded, used and no longer used. */
static plumb_status adapt(void) {
    plumb_adapter *adapter = NULL;
    plumb_session *s = NULL;
    plumb_session_params params = {.n_ctx = 12, .n_batch = N_BATCH, .n_thread = 1};
    plumb_status status = PLUMB_OK;
    ON_MODEL(world.llama, plumb_session_create(&s, world.llama, &params));
    ON_MODEL(world.llama, plumb_adapter_create(&adapter, world.llama, world.lora.n));
    for (size_t at = 0, n = 1; status == PLUMB_OK && n > 0; at += n) {
        void *data;
        status = plumb_adapter_window(adapter, &data, &n);
        if (status == PLUMB_OK && n > 0) memcpy(data, world.lora.data + at, n);
        if (status == PLUMB_OK && n > 0) status = plumb_adapter_commit(adapter, n);
    }
    if (status == PLUMB_OK) status = plumb_adapter_end(adapter);
    if (status != PLUMB_OK) {
        failed(status, plumb_adapter_error(adapter));
        goto done;
    }
    plumb_adapter_use use = {.adapter = adapter, .scale = 1};
    status = plumb_session_set_adapters(s, &use, 1);
    if (status == PLUMB_OK) status = plumb_session_feed(s, fed, N_FED);
    if (status == PLUMB_OK) note_bytes(plumb_session_logits(s), plumb_model_n_vocab(world.llama) * sizeof(float));
    if (status == PLUMB_OK) status = plumb_session_set_adapters(s, NULL, 0);
    if (status != PLUMB_OK) failed(status, plumb_session_error(s));
done:
    plumb_session_free(s);
    plumb_adapter_free(adapter);
    return status;
}

static void on_logits(void *user, uint32_t pos, const float *logits) {
    (void)user, (void)pos;
    note_bytes(logits, plumb_model_n_vocab(world.model) * sizeof *logits);
}

static void on_tap(void *user, const plumb_tap *tap) {
    (void)user;
    note_bytes(tap->data, (size_t)tap->n_token * tap->n_head * tap->n * sizeof *tap->data);
}

static plumb_status feed_session(plumb_session *s) {
    plumb_session_rewind(s, 0);
    plumb_status status = plumb_session_feed(s, fed, N_FED);
    if (status == PLUMB_OK) on_logits(NULL, 0, plumb_session_logits(s));
    plumb_session_rewind(s, 1);
    if (status == PLUMB_OK) status = plumb_session_feed_all(s, fed + 1, N_FED - 1, on_logits, NULL);
    if (status == PLUMB_OK) status = plumb_session_set_tap(s, on_tap, NULL);
    plumb_session_rewind(s, 0);
    if (status == PLUMB_OK) status = plumb_session_feed_all(s, fed, N_FED, NULL, NULL);
    if (status != PLUMB_OK) failed(status, plumb_session_error(s));
    CHECK(plumb_session_set_tap(s, NULL, NULL) == PLUMB_OK, "no taps, and no memory for them");
    return status;
}

static plumb_status feed_fast(void) { return feed_session(world.fast); }
static plumb_status feed_reference(void) { return feed_session(world.reference); }

static plumb_status embed_in(plumb_session *s) {
    uint32_t n_vector, n;
    static const uint32_t lengths[] = { 1, N_FED - 1 };
    int64_t n_text = plumb_session_embed(s, fed, lengths, 2, PLUMB_POOLING_MEAN);
    plumb_status status = n_text < 0 ? (plumb_status)n_text : PLUMB_OK;
    const float *embedding = plumb_session_embedding(s, &n_vector, &n);
    CHECK((status == PLUMB_OK) == (embedding != NULL), "%s, and an embedding", plumb_status_name(status));
    if (status != PLUMB_OK) return failed(status, plumb_session_error(s));
    note_bytes(embedding, (size_t)n_vector * n * sizeof *embedding);
    return PLUMB_OK;
}

static plumb_status embed(void) {
    PLUMB_TRY(embed_in(world.fast));
    return embed_in(world.reference);
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

static plumb_status tokenize(plumb_model *m, const char *text, unsigned flags) {
    int32_t ids[64];
    char back[256];
    int64_t n = plumb_tokenize(m, text, strlen(text), flags, ids, 64);
    if (n < 0) return failed((plumb_status)n, plumb_model_error(m));
    note_bytes(ids, (size_t)n * sizeof *ids);
    n = plumb_detokenize(m, ids, (size_t)n, true, back, sizeof back);
    if (n < 0) return failed((plumb_status)n, "no memory for the text");   /* this function keeps no message */
    note_bytes(back, (size_t)n);
    return PLUMB_OK;
}

static plumb_status tokenize_all(void) {
    unsigned flags = PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL;
    PLUMB_TRY(tokenize(world.model, "abcd<|im_start|>ab cd<|im_end|>kl", flags));
    return tokenize(world.spm_model, "Hello </s> wide\n\xc3\xa9 world", flags);
}

/* A query and a text that are joined by a template, with the end of the text left out. */
static plumb_status tokenize_pair(plumb_model *m) {
    int32_t ids[64];
    int64_t n = plumb_tokenize_input(m, "the thin", 8, "one of the things in it", 23, 0, 30, ids, 64);
    if (n < 0) return failed((plumb_status)n, plumb_model_error(m));
    note_bytes(ids, (size_t)n * sizeof *ids);
    return PLUMB_OK;
}

/* Vocabularies whose tokens are found by an automaton, which the first text makes; and one of a reranker. */
static plumb_status tokenize_kinds(void) {
    plumb_status status = PLUMB_OK;
    for (size_t i = 0; i < 5 && status == PLUMB_OK; i++) {
        plumb_model *m = plumb_model_create();
        if (!m) return failed(PLUMB_ERROR_MEMORY, "no memory for a model");
        if (i < 4) ON_MODEL(m, plumb_model_headers_only(m));
        ON_MODEL(m, plumb_model_begin(m, world.kinds[i].n));
        ON_MODEL(m, fixture_give(m, world.kinds[i].data, 0, world.kinds[i].n, SIZE_MAX));
        ON_MODEL(m, plumb_model_load_vocab(m));
        status = i == 4 ? tokenize_pair(m)
               : tokenize(m, "Hello, w\xc3\xa9rld  \xe4\xb8\xad", PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL);
    done:
        plumb_model_free(m);
    }
    return status;
}

static plumb_status follow_grammar(void) {
    static const char text[] = "root ::= \"a\" [a-d\\u00e9]{1,3} (\"k\" | root? \"j\" | pair | word)*";
    plumb_grammar *g = plumb_grammar_create(world.model);
    if (!g) return failed(PLUMB_ERROR_MEMORY, "no memory for a grammar");
    plumb_matcher *m = NULL;
    plumb_status status = plumb_grammar_define_schema(g, "pair", "{\"prefixItems\":[true,{\"x\":1}]}", 30, NULL);
    if (status == PLUMB_OK) status = plumb_grammar_define_regex(g, "word", "w\\b.*", 6);
    if (status == PLUMB_OK) status = plumb_grammar_parse(g, text, sizeof text - 1);
    if (status == PLUMB_OK) status = plumb_matcher_create(&m, g);
    for (int i = 0; status == PLUMB_OK && i < 5; i++) {
        const uint32_t *mask = plumb_matcher_mask(m);
        if (!mask) status = PLUMB_ERROR_MEMORY;
        else note_bytes(mask, (plumb_model_n_vocab(world.model) + 31) / 32 * sizeof *mask);
        if (status == PLUMB_OK) status = plumb_matcher_accept_text(m, &"abcja"[i], 1);
    }
    if (status != PLUMB_OK) failed(status, plumb_grammar_error(g));
    plumb_matcher_free(m);
    plumb_grammar_free(g);
    return status;
}

/* The first grammar of a model sorts its vocabulary. */
static plumb_status first_grammar(void) {
    static const char text[] = "root ::= \"a\"";
    plumb_status status = PLUMB_OK;
    plumb_grammar *g = NULL;
    plumb_model *m = plumb_model_create();
    if (!m) return failed(PLUMB_ERROR_MEMORY, "no memory for a model");
    ON_MODEL(m, plumb_model_headers_only(m));
    ON_MODEL(m, plumb_model_begin(m, world.kinds[0].n));
    ON_MODEL(m, fixture_give(m, world.kinds[0].data, 0, world.kinds[0].n, SIZE_MAX));
    ON_MODEL(m, plumb_model_load_vocab(m));
    g = plumb_grammar_create(m);
    if (!g) status = failed(PLUMB_ERROR_MEMORY, "no memory for a grammar");
    else status = plumb_grammar_parse(g, text, sizeof text - 1);
    if (g && status != PLUMB_OK) failed(status, plumb_grammar_error(g));
done:
    plumb_grammar_free(g);
    plumb_model_free(m);
    return status;
}

static void note_text(void *user, const char *bytes, size_t n) {
    (void)user;
    note_bytes(bytes, n);
}

static plumb_status check_grammar(void) {
    static const char text[] = "root ::= a (\"-\" root)? | \"n\" | e\na ::= [a-z] b\nb ::= \"n\"?\n"
                               "e ::= \"e\" e\nu ::= b";
    plumb_grammar *g = plumb_grammar_create(NULL);
    if (!g) return failed(PLUMB_ERROR_MEMORY, "no memory for a grammar");
    plumb_matcher *m = NULL;
    char rules[20];
    plumb_status status = plumb_grammar_parse(g, text, sizeof text - 1);
    if (status == PLUMB_OK) status = plumb_grammar_check(g, note_text, NULL);
    if (status == PLUMB_OK) status = plumb_matcher_create(&m, g);
    int64_t n = status == PLUMB_OK ? plumb_matcher_rules(m, rules, sizeof rules) : 0;
    if (n < 0) status = (plumb_status)n;
    if (status == PLUMB_OK) note_bytes(rules, (size_t)n);
    else failed(status, plumb_grammar_error(g));
    plumb_matcher_free(m);
    plumb_grammar_free(g);
    return status;
}

/* As hosts do: make the prompt of a chat, then tokenize it. */
static plumb_status chat(void) {
    static const char json[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"ab\"},{\"role\":\"user\",\"content\":"
                               "\"abcd\"}],\"add_generation_prompt\":true}";
    const char *prompt;
    const uint8_t *marks;
    int32_t ids[64];
    int64_t n = plumb_chat_render(world.other, json, sizeof json - 1, &prompt, &marks);
    if (n < 0) return failed((plumb_status)n, plumb_model_error(world.other));
    n = plumb_tokenize_marked(world.model, prompt, marks, (size_t)n, PLUMB_PARSE_SPECIAL, ids, 64);
    if (n < 0) return failed((plumb_status)n, plumb_model_error(world.model));
    note_bytes(ids, (size_t)n * sizeof *ids);
    return PLUMB_OK;
}

/* Languages of every kind, and a grammar of all. */
static plumb_status regular(void) {
    static const char assertions[] = "^(?!.?1)\\b(?:a|bc)?[^x-z]*$", search[] = "ab|\\p{Z}c";
    struct error err = {0};
    struct languages *all = languages_create(&err);
    if (!all) return failed(err.status, err.message);
    const struct number_range range = {.minimum = "-2", .integer = true};
    const struct language *a = language_regex(all, assertions, sizeof assertions - 1, REGEX_SEARCH);
    a = language_minus(all, a, language_regex(all, search, sizeof search - 1, REGEX_SEARCH));
    a = language_union(all, a, language_union(all, language_number(all, &range),
                                              language_format(all, "json-pointer", 12)));
    struct grammar *g;
    uint32_t n;
    bool is_empty = true;
    plumb_status status = make_language(&g, all, a, LANGUAGE_JSON, &err);
    a = language_intersect(all, a, language_length(all, 2, 30));
    if (status == PLUMB_OK) status = language_is_empty(all, a, &is_empty);
    if (status == PLUMB_OK) status = language_enumerate(all, a, 20, NULL, NULL, &n);
    if (status == PLUMB_OK) note_bytes(g->code, g->n_code * sizeof *g->code);
    else failed(status, err.message);
    grammar_free(g);
    languages_free(all);
    return status;
}

static plumb_status sample(void) {
    static const plumb_logit_bias bias[] = {{1, 0.5f}};
    static const float logits[8] = {1, 2, 3, 2, 1, 0, 1, 2};
    plumb_sampling params = plumb_sampling_default();
    params.repeat_penalty = 1.1f;
    params.n_bias = 1;
    params.bias = bias;
    plumb_sampler *s;
    const char *reason;
    plumb_status status = plumb_sampler_create(&s, 8, &params, &reason);
    if (status != PLUMB_OK) return failed(status, reason);
    for (int i = 0; i < 4; i++) {
        int32_t id = plumb_sampler_sample(s, logits);
        note_bytes(&id, sizeof id);
        plumb_sampler_accept(s, id);
    }
    plumb_sampler_free(s);
    return PLUMB_OK;
}

/* ---- traces and reports ----------------------------------------------------------------------------------------- */

static void record(void *user, const plumb_tap *tap) {
    plumb_status *status = user;
    if (*status == PLUMB_OK) *status = plumb_trace_add(world.trace, tap);
}

static plumb_status record_trace(plumb_session *s, uint32_t n_value) {
    plumb_status status, recorded = PLUMB_OK;
    plumb_trace_params params = {.taps = "*", .layer_last = UINT32_MAX, .n_value = n_value};
    status = plumb_trace_begin(world.trace, s, fed, N_FED, N_FED - 1, &params);
    if (status != PLUMB_OK) return failed(status, plumb_trace_error(world.trace));
    plumb_session_rewind(s, 0);
    status = plumb_session_set_tap(s, record, &recorded);
    if (status == PLUMB_OK) status = plumb_session_feed_all(s, fed, N_FED, NULL, NULL);
    if (status != PLUMB_OK) failed(status, plumb_session_error(s));
    plumb_session_set_tap(s, NULL, NULL);
    if (status == PLUMB_OK && recorded != PLUMB_OK) return failed(recorded, plumb_trace_error(world.trace));
    return status;
}

static plumb_status write_trace(plumb_format format) {
    plumb_status status = plumb_trace_write(world.trace, format, note_report, NULL);
    return status == PLUMB_OK ? status : failed(status, plumb_trace_error(world.trace));
}

static plumb_status record_values(void) {
    PLUMB_TRY(record_trace(world.fast, 8));
    PLUMB_TRY(write_trace(PLUMB_FORMAT_TEXT));
    return write_trace(PLUMB_FORMAT_JSON);
}

static plumb_status record_all(void) {
    PLUMB_TRY(record_trace(world.reference, UINT32_MAX));
    return write_trace(PLUMB_FORMAT_GGUF);
}

static plumb_status read_trace(const struct bytes *file) {
    plumb_status status = plumb_trace_read(world.read, file->data, file->n);
    if (status == PLUMB_OK) status = plumb_trace_write(world.read, PLUMB_FORMAT_JSON, note_report, NULL);
    return status == PLUMB_OK ? status : failed(status, plumb_trace_error(world.read));
}

static plumb_status read_json(void) { return read_trace(&world.json); }
static plumb_status read_callback(void) { return read_trace(&world.text); }
static plumb_status read_npz(void) { return read_trace(&world.npz); }
static plumb_status read_gguf(void) {
    PLUMB_TRY(read_trace(&world.dump));
    plumb_status status = plumb_trace_set_tokens(world.read, fed, N_FED, N_FED);
    return status == PLUMB_OK ? status : failed(status, plumb_trace_error(world.read));
}

static plumb_report report(plumb_format format) {
    return (plumb_report){.format = format, .write = note_report, .name_a = "a", .name_b = "b"};
}

static plumb_status diff(plumb_trace *a, plumb_format format) {
    plumb_report how = report(format);
    bool agree;
    plumb_status status = plumb_diff(a, world.theirs, world.model, &how, &agree);
    return status == PLUMB_OK ? status : failed(status, plumb_trace_error(a));
}

static plumb_status diff_all(void) {
    PLUMB_TRY(diff(world.wrong, PLUMB_FORMAT_TEXT));
    PLUMB_TRY(diff(world.theirs, PLUMB_FORMAT_JSON));
    return diff(world.wrong, PLUMB_FORMAT_HTML);
}

static plumb_status diff_permuted(void) { return diff(world.permuted, PLUMB_FORMAT_TEXT); }

static plumb_status on_tiny(plumb_status status) {
    return status == PLUMB_OK ? status : failed(status, plumb_model_error(world.model));
}

static plumb_status diagnose(plumb_trace *theirs) {
    plumb_report how = report(PLUMB_FORMAT_JSON);
    plumb_verdict verdict;
    return on_tiny(plumb_diagnose(world.model, theirs, 1, &how, &verdict));
}

static plumb_status diagnose_right(void) { return diagnose(world.theirs); }
static plumb_status diagnose_wrong(void) { return diagnose(world.wrong); }
static plumb_status diagnose_odd_scores(void) { return diagnose(world.odd_scores); }
static plumb_status diagnose_odd_products(void) { return diagnose(world.odd_products); }
static plumb_status diagnose_permuted(void) { return diagnose(world.permuted); }

static plumb_status selfcheck(void) {
    plumb_report how = report(PLUMB_FORMAT_JSON);
    how.write = keep_report;
    bool ok;
    plumb_status status = on_tiny(plumb_selfcheck(world.model, &how, &ok));
    /* How often other threads take part depends on the machine, so that row changes from run to run. */
    const char *line = result.report;
    for (size_t n; *line; line += n) {
        n = strcspn(line, "\n");
        n += line[n] == '\n';
        if (strncmp(line, "    {\"name\": \"threads\"", 22) != 0) note_bytes(line, n);
    }
    return status;
}

static plumb_status weights(void) {
    plumb_report how = report(PLUMB_FORMAT_JSON);
    bool agree;
    how.all = true;
    return on_tiny(plumb_weights(world.model, world.other, &how, &agree));
}

/* ---- wasm/trace.c ----------------------------------------------------------------------------------------------- */

int32_t host_piece(int32_t id, char *buf, size_t cap) {
    return (int32_t)plumb_token_piece(world.model, id, true, buf, cap);
}

/* Some steps of a pass, and the logits, of which the likeliest tokens get their texts. */
static plumb_status wasm_trace(void) {
    static const float values[260] = { 1, 3, 2 };
    plumb_status status = plumb_wasm_trace_begin(world.trace, "scalar", "exact16", 4, 260, 0, false, -1, fed, N_FED,
                                                 "*", 0, UINT32_MAX, 8);
    static const char *const names[] = { "attn_norm", "Qcur", "kq_soft_max", "ffn_out", "l_out" };
    for (int32_t i = 0; status == PLUMB_OK && i < 20; i++) {
        status = plumb_wasm_trace_add(world.trace, names[i % 5], i / 5, 0, 2, 4, 2, values);
    }
    if (status == PLUMB_OK) status = plumb_wasm_trace_add(world.trace, "result_output", -1, 0, 1, 1, 260, values);
    if (status != PLUMB_OK) return failed(status, plumb_trace_error(world.trace));
    struct plumb_wasm_bytes json;
    status = plumb_wasm_trace_json(world.trace, &json);
    note_bytes(json.bytes, json.bytes ? json.n : 0);
    if (status == PLUMB_OK && !json.bytes) status = PLUMB_ERROR_MEMORY;   /* as web/engine/traces.js does */
    if (status != PLUMB_OK) failed(status, "no memory for the JSON of a trace");
    free(json.bytes);
    return status;
}

/* Every kind of set and of shape, and an automaton of each. */
static plumb_status json_schema(void) {
    static const char schema[] =
        "{\"type\":[\"object\",\"array\",\"number\",\"null\"],\"minimum\":0.5,\"anyOf\":[{\"$ref\":"
        "\"#/$defs/a\"},{\"required\":[\"x\"]}],\"items\":{\"enum\":[1,\"b\",null]},\"uniqueItems\":true,"
        "\"$defs\":{\"a\":{"
        "\"properties\":{\"k\":{\"pattern\":\"^a+$\",\"maxLength\":5},\"d\":{\"format\":\"date\"}},"
        "\"patternProperties\":"
        "{\"^p\":{\"contains\":{\"$ref\":\"#\"}}},\"maxProperties\":2}},\"not\":{\"required\":[\"q\"]}}";
    const struct json_schema_options options = {.space = PLUMB_JSON_PRETTY};
    struct grammar_text warnings = {0};
    struct grammar *g;
    struct error err = {PLUMB_OK, ""};
    plumb_status status = make_schema(&g, schema, sizeof schema - 1, &options, &warnings, &err);
    if (status == PLUMB_OK) note_bytes(g->code, g->n_code * sizeof *g->code);
    else failed(status, err.message);
    grammar_free(g);
    grammar_text_free(&warnings);
    return status;
}

/* ---- every n ---------------------------------------------------------------------------------------------------- */

struct scenario {
    const char *name;
    plumb_status (*run)(void);
    long at_least;         /* minimum number of allocations, which detects a scenario that does nothing */
    const char *says;      /* can do without the memory: the result is then the same, or the report says this */
};

static plumb_status run(const struct scenario *s, long at, bool on, uint64_t *hash) {
    result.hash = 0xcbf29ce484222325u;
    result.message[0] = result.report[result.n_report = 0] = 0;
    heap_arm(at, on);
    plumb_status status = s->run();
    heap.fails_at = -1;
    *hash = result.hash;
    return status;
}

static bool names_memory(const char *text) { return strstr(text, "memory") != NULL; }

struct place { uint64_t callers; long at; };

static int by_callers(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    return x->callers != y->callers ? (x->callers > y->callers) - (x->callers < y->callers)
                                    : (x->at > y->at) - (x->at < y->at);
}

/* The callers of the allocations of all scenarios that ran, and whether only others shall fail. */
static bool only_new;
static struct { uint64_t *callers; size_t n, cap; } tried;

static bool was_tried(uint64_t callers, size_t n_tried) {
    for (size_t i = 0; i < n_tried; i++)
        if (tried.callers[i] == callers) return true;
    return false;
}

/* Returns which of the n allocations of a scenario shall fail, to be freed with the C library's own function; *n_chosen
 * is their number. */
static bool *choose(const struct scenario *s, long n, long *n_chosen) {
    const char *all = getenv("FAULTS"), *seed = getenv("SEED");
    uint64_t random = seed ? strtoull(seed, NULL, 10) : 1, hash;
    bool *chosen = __real_calloc((size_t)n + 1, sizeof *chosen);
    struct place *places = __real_calloc((size_t)n + 1, sizeof *places);
    heap.callers = __real_calloc((size_t)n + 1, sizeof *heap.callers);
    heap.n_callers = n;
    run(s, -1, false, &hash);
    heap.n_callers = 0;
    for (long i = 0; i < n; i++) places[i] = (struct place){heap.callers[i], i};
    qsort(places, (size_t)n, sizeof *places, by_callers);
    size_t n_tried = tried.n;
    for (long first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && places[end].callers == places[first].callers;) end++;
        if (was_tried(places[first].callers, n_tried)) {
            if (only_new) continue;
        } else {
            if (tried.n == tried.cap) {
                tried.cap = 2 * tried.cap + 1024;
                tried.callers = __real_realloc(tried.callers, tried.cap * sizeof *tried.callers);
            }
            tried.callers[tried.n++] = places[first].callers;
        }
        random = random * 6364136223846793005u + 1442695040888963407u;
        long other = random >> 32 & 1 ? (long)((random >> 33) % (uint64_t)(end - first)) : 0;
        chosen[places[first + other].at] = true;
    }
    *n_chosen = 0;
    for (long i = 0; i < n; i++) {
        chosen[i] = chosen[i] || (all && strcmp(all, "all") == 0);
        *n_chosen += chosen[i];
    }
    __real_free(places);
    __real_free(heap.callers);
    return chosen;
}

static void each_n(const void *row) {
    const struct scenario *s = row;
    uint64_t expected, hash;
    plumb_status status = run(s, -1, false, &expected);   /* a first run may keep blocks that later runs reuse */
    REQUIRE(status == PLUMB_OK, "%s: %s", plumb_status_name(status), result.message);
    long n_block = heap.n_block, n_run = 0, n_without = 0;
    status = run(s, -1, false, &hash);
    REQUIRE(status == PLUMB_OK && hash == expected, "not the same twice: %s %s", plumb_status_name(status),
            result.message);
    long n = heap.n_done;
    CHECK(n >= s->at_least, "%ld allocations", n);
    CHECK(heap.n_block == n_block, "%ld blocks after it, %ld before", heap.n_block, n_block);
    long n_chosen;
    bool *chosen = choose(s, n, &n_chosen);
    for (int on = 0; on < 2; on++) {
        const char *more = on ? " and all after" : "";
        for (long at = 0; at < n; at++) {
            if (!chosen[at]) continue;
            status = run(s, at, on, &hash);
            if (heap.n_failed == 0) {   /* a scenario that measures speeds allocates more if the machine is slow */
                CHECK(at >= s->at_least, "there is no allocation %ld of %ld", at, n);
                break;
            }
            n_run++;
            bool without = status == PLUMB_OK && s->says && (hash == expected || strstr(result.report, s->says));
            n_without += without;
            if (!CHECK(without || status == PLUMB_ERROR_MEMORY, "allocation %ld%s: %s: %s", at, more,
                       plumb_status_name(status), result.message)) goto done;
            if (!CHECK(without || names_memory(result.message), "allocation %ld%s: \"%s\" does not name memory", at,
                       more, result.message)) goto done;
            /* Remaining objects may hold less than before, but as much again after the same work.  Long scenarios do
             * this check only at some n. */
            if (n_run % (1 + n_chosen / 300) != 0) continue;
            status = run(s, -1, false, &hash);
            if (!CHECK(heap.n_block == n_block, "allocation %ld%s: %ld blocks leak", at, more,
                       heap.n_block - n_block)) goto done;
            if (!CHECK(status == PLUMB_OK && hash == expected, "after allocation %ld%s failed, the same work: %s: %s",
                       at, more, plumb_status_name(status), result.message)) goto done;
        }
    }
    test_note("%s: %ld allocations, %ld failures, %ld of them done without", s->name, n, n_run, n_without);
done:
    __real_free(chosen);
}

static void each_new_n(const void *row) {
    only_new = true;
    each_n(row);
    only_new = false;
}

/* These continue without memory: a block is not shrunk, fewer threads compute, a speed is not measured. */
#define SAME "the result is the same"

static const struct scenario scenarios[] = {
    {"a model with BPE, in pieces", load_bpe, 30, NULL}, {"a model with SentencePiece", load_spm, 30, NULL},
    {"a model in three files", load_split, 50, NULL}, {"a model's header, and its speed", rehearse, 50, SAME},
    {"sessions of every kind", make_sessions, 100, NULL},
    {"sessions that share what they hold", share_session, 40, NULL},
    {"a session with threads", make_threads, 60, SAME},
    {"a session of q8_0 that drops tokens", drop_tokens, 30, NULL}, {"an adapter", adapt, 60, NULL},
    {"feeding the fast pass", feed_fast, 2, NULL}, {"feeding the reference pass", feed_reference, 2, NULL},
    {"embeddings of both passes", embed, 4, NULL},
    {"tokens of a text", tokenize_all, 10, NULL}, {"tokens of other kinds", tokenize_kinds, 40, SAME},
    {"a chat", chat, 5, NULL}, {"a grammar", follow_grammar, 30, SAME},
    {"the first grammar of a model", first_grammar, 30, NULL},
    {"the check of a grammar", check_grammar, 20, NULL},
    {"a sampler", sample, 5, NULL}, {"regular languages", regular, 300, SAME},
    {"a trace, written as text and JSON", record_values, 100, SAME},
    {"a trace of all values, written as GGUF", record_all, 100, SAME},
    {"reading a trace of JSON", read_json, 100, SAME}, {"reading llama-eval-callback", read_callback, 20, NULL},
    {"reading numpy's arrays", read_npz, 10, NULL}, {"reading a GGUF dump", read_gguf, 50, SAME},
    {"a diff as text, JSON and HTML", diff_all, 9, NULL}, {"a diff of permuted heads", diff_permuted, 20, NULL},
    {"a diagnosis of a right dump", diagnose_right, 20, SAME},
    {"a diagnosis of a wrong dump", diagnose_wrong, 50, SAME},
    {"a diagnosis of permuted heads", diagnose_permuted, 50, SAME},
    {"a selfcheck", selfcheck, 500, "the engine has one thread here"}, {"weights of two files", weights, 30, NULL},
    {"what a WebAssembly host calls", wasm_trace, 100, SAME},
    {"a JSON schema", json_schema, 20, SAME},
};

/* Much of these is as in the scenarios above. */
static const struct scenario variants[] = {
    {"a diagnosis of scores that nothing explains", diagnose_odd_scores, 50, SAME},
    {"a diagnosis of products that nothing explains", diagnose_odd_products, 50, SAME},
};

/* ---- how much memory a file can make the reader take ------------------------------------------------------------ */

static void add_key(struct bytes *b, const char *name, uint32_t type) {
    uint64_t n_key = load_u64(b->data + 16) + 1;
    memcpy(b->data + 16, &n_key, 8);
    put_key(b, name, type);
}

/* A vocabulary of tokens, then merges, whose texts are numbers of n_text bytes.  All tokens have this token_type; 0: no
 * such key. */
struct hostile {
    const char *name;
    const char *model;
    uint32_t n_token, n_text, type, n_merge, n_merge_text;
    const char *message;   /* NULL: it is accepted */
    uint32_t n_key, n_tensor;   /* keys and tensors beside these; the bytes of tensors are not in the file */
    bool is_small;              /* it may take SMALL_BYTES in addition to 4 times the file */
    bool has_automaton;         /* and this, AUTOMATON_BYTES for each byte of its tokens */
};
/* The reader's buffers, a table of 4096 keys, and two automata over special tokens of 2 MiB. */
enum { SMALL_BYTES = 5 << 20 };
/* 20 for a node.  While the nodes grow, half of them are counted twice, and there are lists of the tokens. */
enum { AUTOMATON_BYTES = 60 };

static void put_strings(struct bytes *b, const char *key, uint32_t n, uint32_t n_text) {
    add_key(b, key, 9);
    put_number(b, 8, 4);
    put_number(b, n, 8);
    for (uint32_t i = 0; i < n; i++) {
        char text[64];
        for (uint32_t k = 0; k < n_text; k++) text[k] = (char)(33 + (k < 4 ? (i >> 7 * k & 127) : 1));
        if (n_text > 2 && strstr(key, "merges")) text[1] = ' ';
        put_string(b, text, n_text);
    }
}

static void write_hostile(struct bytes *b, const struct hostile *h) {
    put(b, "GGUF\3\0\0\0", 8);
    put_number(b, h->n_tensor, 8);
    put_number(b, 0, 8);
    add_key(b, "tokenizer.ggml.model", 8);
    put_string(b, h->model, strlen(h->model));
    add_key(b, "tokenizer.ggml.pre", 8);
    put_string(b, "smollm", 6);
    put_strings(b, "tokenizer.ggml.tokens", h->n_token, h->n_text);
    put_strings(b, "tokenizer.ggml.merges", h->n_merge, h->n_merge_text);
    if (h->type != 0) {
        add_key(b, "tokenizer.ggml.token_type", 9);
        put_number(b, 5, 4);
        put_number(b, h->n_token, 8);
        for (uint32_t i = 0; i < h->n_token; i++) put_number(b, h->type, 4);
    }
    char name[16];
    for (uint32_t i = 0; i < h->n_key; i++) {
        snprintf(name, sizeof name, "%x", i);
        add_key(b, name, 0);
        put_number(b, 1, 1);
    }
    for (uint32_t i = 0; i < h->n_tensor; i++) {   /* each of 32 bytes */
        put_string(b, name, (size_t)snprintf(name, sizeof name, "%x", i));
        put_number(b, 1, 4);
        put_number(b, 8, 8);
        put_number(b, 0, 4);
        put_number(b, 32 * (uint64_t)i, 8);
    }
}

/* n_file: the size of the whole file, if it is known. */
static plumb_status take(const struct bytes *file, uint64_t n_file, char *message, size_t cap) {
    static const char text[] = "!\"# and all the others, again and again: !!!\"\"\"###";
    int32_t ids[8];
    plumb_model *m = plumb_model_create();
    plumb_status status = plumb_model_headers_only(m);
    if (status == PLUMB_OK) status = plumb_model_begin(m, n_file);
    if (status == PLUMB_OK) status = fixture_give(m, file->data, 0, file->n, SIZE_MAX);
    if (status == PLUMB_OK) status = plumb_model_load_vocab(m);
    for (unsigned flags = 0; status == PLUMB_OK && flags < 3; flags += PLUMB_PARSE_SPECIAL) {
        int64_t n = plumb_tokenize(m, text, sizeof text - 1, flags, ids, 8);
        if (n < 0) status = (plumb_status)n;
    }
    snprintf(message, cap, "%s", plumb_model_error(m));
    plumb_model_free(m);
    return status;
}

static void is_bounded(const void *row) {
    const struct hostile *h = row;
    struct bytes file = {0};
    write_hostile(&file, h);
    for (int known = 0; known < 2; known++) {
        char message[480];
        size_t before = heap.n_peak = heap.n_byte;
        uint64_t n_file = known ? file.n + 32 * (uint64_t)h->n_tensor + 32 : PLUMB_SIZE_UNKNOWN;
        plumb_status status = take(&file, n_file, message, sizeof message);
        double ratio = (double)(heap.n_peak - before) / (double)file.n;
        CHECK((status != PLUMB_OK) == (h->message != NULL) && (!h->message || strstr(message, h->message)), "%s: %s",
              plumb_status_name(status), message);
        size_t most = 4 * file.n + (h->is_small ? SMALL_BYTES : 0);
        if (h->has_automaton) most += (size_t)AUTOMATON_BYTES * h->n_token * h->n_text;
        CHECK(heap.n_peak - before <= most,
              "%.2f times the %.3f MB of the file, its size %s", ratio, 1e-6 * (double)file.n,
              known ? "known" : "unknown");
        test_note("%.2f times %.1f MB%s", ratio, 1e-6 * (double)file.n, known ? "" : ", the size unknown");
    }
    free(file.data);
}

/* One more than a power of two, just after a hash table has doubled. */
enum { MANY = (1 << 20) + 1 };

static const struct hostile hostile[] = {
    {"tokens of 3 bytes, all normal", "gpt2", MANY, 3, 0, 0, 0, NULL, 0, 0, false, false},
    {"tokens of 3 bytes, all control", "gpt2", MANY, 3, 3, 0, 0, NULL, 0, 0, false, false},
    {"tokens of 3 bytes, all user-defined, SPM", "llama", MANY, 3, 4, 0, 0, "has no token <0xE2>", 0, 0, false, false},
    {"tokens of 40 bytes, all control", "gpt2", MANY / 4, 40, 3, 0, 0, NULL, 0, 0, false, false},
    {"empty tokens", "gpt2", MANY, 0, 0, 0, 0, "than 65536 empty strings", 0, 0, false, false},
    {"as many empty tokens as may be, and merges of 1 byte", "gpt2", 1 << 16, 0, 3, MANY, 1, NULL, 0, 0, false, false},
    {"empty merges", "gpt2", 1000, 3, 0, MANY, 0, "than 65536 empty strings", 0, 0, false, false},
    {"merges of 3 bytes", "gpt2", 1000, 3, 0, MANY, 3, NULL, 0, 0, false, false},
    {"a million tensors", "gpt2", 1000, 3, 0, 1000, 3, NULL, 0, 1000000, false, false},
    {"60,000 keys of few bytes", "gpt2", 1000, 3, 0, 1000, 3, "keys, at most 4096 are allowed", 60000, 0, false, false},
    {"4,000 keys of few bytes", "gpt2", 1000, 3, 0, 0, 0, NULL, 4000, 0, true, false},
    {"tokens of 4 bytes, WordPiece", "bert", MANY / 4, 4, 0, 0, 0, NULL, 0, 0, false, true},
    {"tokens of 60 bytes, Unigram", "t5", 20000, 60, 0, 0, 0, NULL, 0, 0, false, true},
    {"as many control tokens as an automaton holds", "gpt2", 20000, 3, 3, 0, 0, NULL, 0, 0, true, false},
};

/* An endless header is read only to 256 MiB, and not at all if it announces that it is longer. */
static void header_ends(void) {
    static const char head[] = "GGUF\3\0\0\0" "\0\0\0\0\0\0\0\0" "\0\20\0\0\0\0\0\0";
    enum { LIMIT = 1 << 28, STRING = 1 << 20 };
    static char text[STRING];
    memset(text, 'a', STRING);
    for (int endless = 0; endless < 2; endless++) {
        uint64_t n_read = sizeof head - 1;
        plumb_model *m = plumb_model_create();
        plumb_status status = plumb_model_begin(m, PLUMB_SIZE_UNKNOWN);
        struct bytes piece = {0};
        if (status == PLUMB_OK) status = fixture_give(m, (const uint8_t *)head, 0, sizeof head - 1, SIZE_MAX);
        for (uint32_t i = 0; status == PLUMB_OK && n_read < 2 * (uint64_t)LIMIT; i++) {
            char name[16];
            piece.n = 0;
            snprintf(name, sizeof name, "key-%u", i);
            put_string(&piece, name, strlen(name));
            put_number(&piece, 8, 4);
            put_number(&piece, endless ? STRING : LIMIT, 8);
            put(&piece, text, STRING);
            status = fixture_give(m, piece.data, 0, piece.n, SIZE_MAX);
            n_read += piece.n;
        }
        const char *message = plumb_model_error(m);
        CHECK(status == PLUMB_ERROR_METADATA && strstr(message, "the limit for headers"), "%s: %s",
              plumb_status_name(status), message);
        CHECK(n_read <= (endless ? LIMIT + 2 * (uint64_t)STRING : 2 * (uint64_t)STRING), "%.1f MB were read",
              1e-6 * (double)n_read);
        test_note("after %.1f MB: %s", 1e-6 * (double)n_read, message);
        plumb_model_free(m);
        free(piece.data);
    }
}

/* ---- hostile grammars ------------------------------------------------------------------------------------------- */

/* first, then `repeated` until the text has n bytes, then last; n = 0: only first. */
struct hostile_grammar {
    const char *name;
    plumb_status (*parse)(plumb_grammar *g, const char *text, size_t n);
    size_t n;
    const char *first, *repeated, *last;
    const char *message;   /* NULL: it is accepted */
};

static plumb_status parse_schema(plumb_grammar *g, const char *text, size_t n) {
    return plumb_grammar_parse_schema(g, text, n, NULL);
}

enum { TEN_MB = 10000000, MOST_MB = 64 };
#define TEN_CHOICES \
    "{\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]},{\"properties\":{\"c\":{\"maxLength\":7}}}]}"

static const struct hostile_grammar hostile_grammars[] = {
    {"GBNF: a literal", plumb_grammar_parse, TEN_MB, "root ::= \"", "abc", "\"", "too large"},
    {"GBNF: alternatives", plumb_grammar_parse, TEN_MB, "root ::= \"a\"", "|\"a\"", "", "too large"},
    {"GBNF: ranges of a class", plumb_grammar_parse, TEN_MB, "root ::= [", "\\u4e00\\u4e02", "]", NULL},
    {"GBNF: comments", plumb_grammar_parse, TEN_MB, "root ::= \"a\" ", "# comment\n", "", NULL},
    {"GBNF: repetitions", plumb_grammar_parse, TEN_MB, "root ::= ", "[a-z]{1,900} ", "", "too large"},
    {"GBNF: open groups", plumb_grammar_parse, TEN_MB, "root ::= ", "(", "", "more than 10000 groups"},
    {"a regular expression of letters", plumb_grammar_parse_regex, TEN_MB, "", "a", "", "more than 32 MB"},
    {"a regular expression of choices", plumb_grammar_parse_regex, TEN_MB, "", "(a|b)", "", "more than 32 MB"},
    {"nested repetitions of 10^9", plumb_grammar_parse_regex, 0, "((a{1000000000}){1000000000}){1000000000}", "", "",
     "2000000000 states"},
    {"2^30 states", plumb_grammar_parse_regex, 0, "(a|b)*a(a|b){30}", "", "", NULL},
    {"a pattern of 2^30 states", parse_schema, 0, "{\"not\":{\"pattern\":\"(a|b)*a(a|b){30}\"}}", "", "", "too many"},
    {"a schema of letters", parse_schema, TEN_MB, "{\"const\":\"", "a", "\"}", "/const: "},
    {"a pattern of letters", parse_schema, TEN_MB, "{\"pattern\":\"", "a", "\"}", "/pattern: "},
    {"a schema of values", parse_schema, TEN_MB, "{\"enum\":[", "\"a\",", "0]}", "more than 200000 values"},
    {"nested schemas", parse_schema, TEN_MB, "", "{\"items\":", "0", "levels"},
    {"merges of choices", parse_schema, TEN_MB, "{\"allOf\":[", TEN_CHOICES ",", "true]}", "more than"},
    {"3^40 merges of choices", parse_schema, 40 * sizeof TEN_CHOICES + 20, "{\"allOf\":[", TEN_CHOICES ",", "true]}",
     "more than 1000 combinations"},
};

static void grammar_is_bounded(const void *row) {
    const struct hostile_grammar *h = row;
    size_t n_first = strlen(h->first), n_repeated = strlen(h->repeated), n_last = strlen(h->last), n = n_first;
    char *text = malloc(h->n + n_first + n_repeated + n_last + 1);
    REQUIRE(text, "no memory");
    memcpy(text, h->first, n_first);
    for (; n + n_last < h->n; n += n_repeated) memcpy(text + n, h->repeated, n_repeated);
    memcpy(text + n, h->last, n_last);
    n += n_last;
    size_t before = heap.n_peak = heap.n_byte;
    plumb_grammar *g = plumb_grammar_create(NULL);
    plumb_matcher *m = NULL;
    plumb_status status = h->parse(g, text, n);
    const char *message = plumb_grammar_error(g);
    CHECK((status != PLUMB_OK) == (h->message != NULL) && (!h->message || strstr(message, h->message)), "%s: %s",
          plumb_status_name(status), message);
    if (status == PLUMB_OK && CHECK(plumb_matcher_create(&m, g) == PLUMB_OK, "%s", plumb_grammar_error(g))) {
        bool allowed[256];
        plumb_matcher_bytes(m, allowed);
        for (int i = 0; i < 1000 && plumb_matcher_accept_text(m, "a", 1) == PLUMB_OK; i++) {}
    }
    double mb = 1e-6 * (double)(heap.n_peak - before);
    CHECK(mb <= MOST_MB, "%.1f MB", mb);
    test_note("%.1f MB for %.1f MB%s%s", mb, 1e-6 * (double)n, h->message ? ": " : "", h->message ? message : "");
    plumb_matcher_free(m);
    plumb_grammar_free(g);
    free(text);
}

static bool read_bytes(struct bytes *b, const char *path) { return (b->data = test_read_all(path, &b->n)) != NULL; }

/* The JSON of theirs under the names of transformers' modules. */
static bool read_permuted(plumb_trace *t) {
    static const char *const names[][2] = {
        {"\"Qcur-0\"", "\"model.layers.0.self_attn.q_proj\""}, {"\"Kcur-0\"", "\"model.layers.0.self_attn.k_proj\""},
    };
    struct capture json = {0};
    const char *at = (const char *)world.json.data, *end = at + world.json.n;
    while (at < end) {
        size_t n_from = 1, i = 0;
        while (i < 2 && strncmp(at, names[i][0], strlen(names[i][0])) != 0) i++;
        if (i < 2) n_from = strlen(names[i][0]);
        capture_write(&json, i < 2 ? names[i][1] : at, i < 2 ? strlen(names[i][1]) : 1);
        at += n_from;
    }
    bool ok = plumb_trace_read(t, json.text, json.n) == PLUMB_OK && t->by_module;
    capture_free(&json);
    return CHECK(ok, "%s", plumb_trace_error(t));
}

/* One row instead of all, as from an engine that only gives statistics over all tokens. */
static void keep_all_tokens(struct trace_tap *tap) {
    for (; tap->n_row > 1; tap->n_row--) {
        struct trace_row *row = &tap->rows[tap->n_row - 1];
        free(row->values);
        free(row->places);
        free(row->entropy);
    }
    tap->rows[0].pos = TRACE_ALL_TOKENS;
}

/* Q and K of heads of 16 as in trace/heads.h. */
static void permute(struct plumb_trace *t) {
    for (size_t i = 0; i < t->n_tap; i++) {
        if (t->taps[i].id == TAP_L_OUT) keep_all_tokens(&t->taps[i]);
        bool moves = t->taps[i].id == TAP_QCUR || t->taps[i].id == TAP_KCUR;
        for (uint32_t row = 0; moves && row < t->taps[i].n_row; row++) {
            float *x = t->taps[i].rows[row].values, head[16];
            for (uint32_t at = 0; at + 16 <= t->taps[i].rows[row].n_value; at += 16) {
                memcpy(head, x + at, sizeof head);
                for (uint32_t p = 0; p < 16; p++) x[at + p] = head[2 * (p % 8) + p / 8];
            }
        }
    }
}

/* As from an engine that scales everything from a tap on wrongly, or each value by another factor, which no mistake
 * explains, so that all of them are tried. */
static void spoil(struct plumb_trace *t, enum tap_id from, bool is_odd) {
    for (size_t i = 0; i < t->n_tap; i++) {
        for (uint32_t row = 0; t->taps[i].id >= from && row < t->taps[i].n_row; row++) {
            float *values = t->taps[i].rows[row].values;
            for (uint32_t k = 0; k < t->taps[i].rows[row].n_value; k++)
                values[k] *= is_odd ? 1 + (float)((k + row) * 7919 % 13) / 26 : 1.5f;
        }
    }
}

static bool make_world(void) {
    if (!read_bytes(&world.tiny, TINY) || !read_bytes(&world.spm, SYNTH "spm.gguf")
        || !read_bytes(&world.parts[0], SYNTH "split-00001-of-00003.gguf")
        || !read_bytes(&world.parts[1], SYNTH "split-00002-of-00003.gguf")
        || !read_bytes(&world.parts[2], SYNTH "split-00003-of-00003.gguf")
        || !read_bytes(&world.kinds[0], KINDS "wordpiece.gguf") || !read_bytes(&world.kinds[1], KINDS "unigram.gguf")
        || !read_bytes(&world.kinds[2], KINDS "rwkv.gguf") || !read_bytes(&world.kinds[3], KINDS "plamo2.gguf")
        || !read_bytes(&world.kinds[4], "tests/vectors/embed/rank-qwen3.gguf")
        || !read_bytes(&world.lora, "tests/vectors/adapters/llama-lora.gguf")
        || !read_bytes(&world.text, "tests/fuzz/corpus/trace/text-of-one-token")
        || !read_bytes(&world.npz, "tests/fuzz/corpus/trace/npz-read-deflated")) return false;
    world.model = fixture_load(TINY);
    world.heads = fixture_load("tests/vectors/kv/heads.gguf");
    world.llama = fixture_load("tests/vectors/archs/llama.gguf");
    world.other = fixture_load(TINY);
    world.spm_model = fixture_load(SYNTH "spm.gguf");
    world.trace = plumb_trace_create();
    world.read = plumb_trace_create();
    world.theirs = plumb_trace_create();
    world.wrong = plumb_trace_create();
    world.permuted = plumb_trace_create();
    world.odd_scores = plumb_trace_create();
    world.odd_products = plumb_trace_create();
    if (!world.model || !world.heads || !world.llama || !world.other || !world.spm_model) return false;
    plumb_session_params fast = {.n_ctx = 12, .n_batch = N_BATCH, .n_thread = 1};
    plumb_session_params reference = {.n_ctx = 12, .n_batch = N_BATCH, .pass = PLUMB_PASS_REFERENCE};
    if (plumb_session_create(&world.fast, world.model, &fast) != PLUMB_OK
        || plumb_session_create(&world.reference, world.model, &reference) != PLUMB_OK) return false;
    return record_trace(world.reference, UINT32_MAX) == PLUMB_OK
        && plumb_trace_write(world.trace, PLUMB_FORMAT_GGUF, keep, &world.dump) == PLUMB_OK
        && plumb_trace_write(world.trace, PLUMB_FORMAT_JSON, keep, &world.json) == PLUMB_OK
        && plumb_trace_read(world.theirs, world.json.data, world.json.n) == PLUMB_OK
        && plumb_trace_read(world.wrong, world.json.data, world.json.n) == PLUMB_OK
        && plumb_trace_read(world.odd_scores, world.json.data, world.json.n) == PLUMB_OK
        && plumb_trace_read(world.odd_products, world.json.data, world.json.n) == PLUMB_OK
        && read_permuted(world.permuted);
}

static void free_world(void) {
    plumb_session_free(world.fast);
    plumb_session_free(world.reference);
    plumb_model *const models[] = {world.model, world.other, world.spm_model, world.heads, world.llama};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) plumb_model_free(models[i]);
    plumb_trace *const traces[] = {world.trace, world.read, world.theirs, world.wrong, world.permuted, world.odd_scores,
                                   world.odd_products};
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) plumb_trace_free(traces[i]);
    struct bytes *const files[] = {&world.tiny, &world.spm, world.parts, world.parts + 1, world.parts + 2, &world.json,
                                   &world.text, &world.npz, &world.dump, world.kinds, world.kinds + 1, world.kinds + 2,
                                   world.kinds + 3, world.kinds + 4, &world.lora};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) free(files[i]->data);
}

static void is_made(void) {
    REQUIRE(make_world(), "no objects to work with");
    spoil(world.wrong, TAP_KQV_OUT, false);
    spoil(world.odd_scores, TAP_KQ_SOFT_MAX, true);
    spoil(world.odd_products, TAP_QCUR, true);
    permute(world.permuted);
}

static void nothing_is_left(void) {
    free_world();
    CHECK(heap.n_block == 0, "%ld blocks are left", heap.n_block);
    __real_free(tried.callers);
}

static void each_scenario(void) {
    test_case("memory: the shared objects are created", is_made);
    TEST_ROWS("memory: each allocation fails in turn: ", each_n, scenarios);
    TEST_ROWS("memory: each allocation that is new fails in turn: ", each_new_n, variants);
    TEST_ROWS("memory: at most 4 times the file: ", is_bounded, hostile);
    test_case("memory: an endless header is refused", header_ends);
    TEST_ROWS("memory: at most 64 MB for a hostile grammar: ", grammar_is_bounded, hostile_grammars);
    test_case("memory: nothing is left at the end", nothing_is_left);
}

int main(int argc, char **argv) {
    heap.top = (uintptr_t)__builtin_frame_address(0);
    static void (*const rooms[])(void) = {each_scenario};
    const char *const *filters = argc > 1 ? (const char *const *)argv + 1 : NULL;
    return harness_run((struct harness_selection){ .filters = filters, .every = 1 }, rooms, 1);
}

/* LoRA and control vectors in both passes.  Truth: llama.cpp's logits with the same adapters
 * (tests/vectors/adapters). */
#include "api/model.h"
#include "bytes.h"
#include "fixture.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FOLDER "tests/vectors/adapters/"

enum { MAX_USE = 4, N_VOCAB = 64, N_ID = 6 };
static const int32_t ids[N_ID] = { 7, 1, 33, 60, 2, 19 };

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static plumb_status give(plumb_adapter *a, const uint8_t *bytes, size_t n, size_t piece) {
    for (size_t at = 0; at < n;) {
        void *data;
        size_t len;
        PLUMB_TRY(plumb_adapter_window(a, &data, &len));
        if (len == 0) break;
        if (len > piece) len = piece;
        if (len > n - at) len = n - at;
        memcpy(data, bytes + at, len);
        PLUMB_TRY(plumb_adapter_commit(a, len));
        at += len;
    }
    return plumb_adapter_end(a);
}

/* NULL and a failed check if it is refused. */
static plumb_adapter *load_adapter(plumb_model *m, const char *name) {
    char path[120];
    size_t n;
    snprintf(path, sizeof path, FOLDER "%s.gguf", name);
    uint8_t *bytes = test_read_all(path, &n);
    plumb_adapter *a = NULL;
    if (bytes && CHECK(plumb_adapter_create(&a, m, n) == PLUMB_OK, "%s", plumb_model_error(m))
        && !CHECK(give(a, bytes, n, 1000) == PLUMB_OK, "%s: %s", path, plumb_adapter_error(a))) {
        plumb_adapter_free(a);
        a = NULL;
    }
    free(bytes);
    return a;
}

/* A model, its adapters and a session. */
struct bench {
    plumb_model *model;
    plumb_adapter *adapters[MAX_USE];
    plumb_adapter_use uses[MAX_USE];
    size_t n;
    plumb_session *session;
};

/* names: those of the adapters, "a:0.5,b:1:2-3"; *ok becomes false if something is wrong. */
static struct bench bench_make(const char *model, const char *names, const plumb_session_params *params) {
    struct bench b = { .n = 0 };
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", model);
    b.model = fixture_load(path);
    for (const char *at = names; b.model && *at && b.n < MAX_USE; b.n++) {
        char name[60];
        int n_read = 0;
        plumb_adapter_use *use = &b.uses[b.n];
        if (!CHECK(sscanf(at, "%59[^:,]:%f%n", name, &use->scale, &n_read) == 2, "%s", at)) break;
        at += n_read;
        if (*at == ':' && sscanf(at, ":%u-%u%n", &use->first_layer, &use->last_layer, &n_read) == 2) at += n_read;
        use->adapter = b.adapters[b.n] = load_adapter(b.model, name);
        at += *at == ',';
    }
    if (b.model) {
        CHECK(plumb_session_create(&b.session, b.model, params) == PLUMB_OK, "%s", plumb_model_error(b.model));
    }
    return b;
}

static void bench_free(struct bench *b) {
    plumb_session_free(b->session);
    for (size_t i = 0; i < MAX_USE; i++) plumb_adapter_free(b->adapters[i]);
    plumb_model_free(b->model);
}

static bool use(struct bench *b, size_t n) {
    return b->session && CHECK(plumb_session_set_adapters(b->session, b->uses, n) == PLUMB_OK, "%s",
                               plumb_session_error(b->session));
}

/* The logits after ids, fed from the start; step: at once. */
static void feed(struct bench *b, size_t step, float logits[N_VOCAB]) {
    for (size_t i = 0; i < N_ID; i += step) {
        CHECK(plumb_session_feed(b->session, ids + i, step) == PLUMB_OK, "%s", plumb_session_error(b->session));
    }
    memcpy(logits, plumb_session_logits(b->session), N_VOCAB * sizeof *logits);
}

/* ---- llama.cpp's logits ------------------------------------------------------------------------------------------ */

struct against_llama { struct llama_vectors v; double worst; uint32_t n; };

static void compare(void *user, uint32_t pos, const float *logits) {
    struct against_llama *a = user;
    a->worst = worse(a->worst, llama_distance(&a->v, pos, logits));
    a->n++;
}

/* The relative RMS error at the worst position, of the first n adapters. */
static double distance(struct bench *b, size_t n, const struct llama_vectors *v) {
    struct against_llama a = { *v, 0, 0 };
    bool ok = use(b, n) && CHECK(plumb_session_feed_all(b->session, v->tokens, v->n_token, compare, &a) == PLUMB_OK,
                                 "%s", plumb_session_error(b->session));
    return ok && a.n == v->n_token ? a.worst : INFINITY;
}

/* A line of cases.txt. */
static void llama_row(const void *row) {
    char model[40], vectors[40], names[120], path[120];
    REQUIRE(sscanf(row, "%39s %39s %119s", model, vectors, names) == 3, "%s", (const char *)row);
    snprintf(path, sizeof path, "adapters/%s.bin", vectors);
    struct llama_vectors v;
    if (!llama_vectors_read(&v, path)) return;
    double errors[2] = { INFINITY, INFINITY }, without = 0;
    for (int i = 0; i < 2; i++) {
        plumb_session_params params = { .n_ctx = 32, .pass = i == 0 ? PLUMB_PASS_REFERENCE : PLUMB_PASS_FAST };
        struct bench b = bench_make(model, names, &params);
        if (b.session) {
            errors[i] = distance(&b, b.n, &v);
            without = distance(&b, 0, &v);
        }
        bench_free(&b);
    }
    /* As without adapters: f32 sums differ from f64 sums, and the fast pass rounds to 16 bits. */
    CHECK(errors[0] <= 1e-5, "reference pass: relative RMS %g", errors[0]);
    CHECK(errors[1] <= 1e-3, "fast pass: relative RMS %g", errors[1]);
    CHECK(without >= 0.1, "without adapters: relative RMS %g", without);
    test_note("relative RMS: reference %.2g, fast %.2g, without adapters %.2g", errors[0], errors[1], without);
    llama_vectors_free(&v);
}

/* ---- what must hold for any adapter ------------------------------------------------------------------------------ */

static bool same(const float *a, const float *b) { return memcmp(a, b, N_VOCAB * sizeof *a) == 0; }

static void exchange_case(void) {
    for (int i = 0; i < 2; i++) {
        plumb_session_params params = { .n_ctx = 32, .pass = i == 0 ? PLUMB_PASS_REFERENCE : PLUMB_PASS_FAST };
        struct bench b = bench_make("llama", "llama-lora:1,llama-types:1,llama-control:1", &params);
        float none[N_VOCAB], one[N_VOCAB], all[N_VOCAB], again[N_VOCAB];
        if (!b.session) return;
        feed(&b, N_ID, none);
        use(&b, 1);
        CHECK(plumb_session_n_past(b.session) == 0, "tokens of other adapters are kept");
        CHECK(!plumb_session_logits(b.session), "logits of other adapters are kept");
        feed(&b, N_ID, one);
        CHECK(!same(one, none), "the adapter changes nothing");
        use(&b, 1);
        CHECK(plumb_session_n_past(b.session) == N_ID && plumb_session_reuse(b.session, ids, N_ID) == N_ID - 1,
              "tokens of the same adapters are forgotten");
        use(&b, 3);
        feed(&b, N_ID, all);
        CHECK(!same(all, one), "the other adapters change nothing");
        b.uses[1].scale = b.uses[2].scale = 0;
        use(&b, 3);
        feed(&b, N_ID, again);
        CHECK(same(again, one), "an adapter with the scale 0 changes something");
        b.uses[0].scale = 0;
        use(&b, 3);
        feed(&b, N_ID, again);
        CHECK(same(again, none), "adapters with the scale 0 change something");
        use(&b, 0);
        CHECK(plumb_session_n_past(b.session) == N_ID, "no adapters are not the same as none");
        bench_free(&b);
    }
}

/* The bits of a batch, of single tokens, of several threads and of the portable kernels, with a tap and without. */
static void ignore(void *user, const plumb_tap *tap) { (void)user, (void)tap; }

static void same_bits_row(const void *row) {
    const char *model = row;
    char names[60];
    float first[N_VOCAB], logits[N_VOCAB];
    snprintf(names, sizeof names, "%s-lora:1", model);
    for (uint32_t i = 0; i < 5; i++) {
        plumb_session_params params = { .n_ctx = 32, .force_scalar = i == 1, .n_thread = i == 2 ? 3 : 1 };
        struct bench b = bench_make(model, names, &params);
        if (!b.session || !use(&b, 1)) return;
        if (i == 4) CHECK(plumb_session_set_tap(b.session, ignore, NULL) == PLUMB_OK, "tap");
        feed(&b, i == 3 ? 1 : N_ID, i == 0 ? first : logits);
        CHECK(i == 0 || same(first, logits), "way %u gives other bits", i);
        bench_free(&b);
    }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* A change of an adapter's bytes: the text `from` becomes `to`, of the same length, in every place; then at_u64 numbers
 * of 8 bytes after the first place, or one of 4 bytes, become `number`. */
struct broken_row {
    const char *name, *model, *adapter, *from, *to;
    int at;            /* bytes after `from` where the number is; 0: no number changes */
    uint32_t number;
    plumb_status status;
    const char *says;
};

static const struct broken_row broken[] = {
    { "a model", "llama", "../archs/llama", "", "", 0, 0, PLUMB_ERROR_METADATA, "general.type is \"\"" },
    { "another type", "llama", "llama-lora", "lora\022", "ia3a\022", 0, 0, PLUMB_ERROR_METADATA, "" },
    { "another architecture", "phi3", "llama-lora", "", "", 0, 0, PLUMB_ERROR_METADATA,
      "\"llama\", and this one is phi3" },
    { "a tensor that the model lacks", "llama", "llama-lora", "blk.1.attn_q.weight", "blk.9.attn_q.weight", 0, 0,
      PLUMB_ERROR_TENSOR, "blk.9.attn_q.weight\", which the model does not have" },
    { "a norm", "llama", "llama-lora", "blk.1.ffn_gate.weight", "blk.1.ffn_norm.weight", 0, 0, PLUMB_ERROR_UNSUPPORTED,
      "blk.1.ffn_norm.weight\", which is no matrix that adapters can change" },
    { "a bias", "llama", "llama-lora", "blk.1.attn_q.weight", "blk.1.ffn_down.bias", 0, 0, PLUMB_ERROR_UNSUPPORTED,
      "blk.1.ffn_down.bias\", which is no matrix" },
    { "a matrix of neither kind", "llama", "llama-lora", "blk.1.attn_k.weight.lora_a", "blk.1.attn_k.weight.lora_c", 0,
      0, PLUMB_ERROR_TENSOR, "blk.1.attn_k.weight.lora_c\" of the adapter ends neither in .lora_a nor in .lora_b" },
    { "only one matrix", "llama", "llama-lora", "blk.1.attn_q.weight.lora_b", "blk.1.attn_qqq_norm.weight", 0, 0,
      PLUMB_ERROR_TENSOR, "the adapter has only lora_a of tensor blk.1.attn_q.weight" },
    { "another rank", "llama", "llama-lora", "blk.2.attn_q.weight.lora_b", "blk.2.attn_q.weight.lora_b", 4, 3,
      PLUMB_ERROR_TENSOR, "lora_b [3, 64, 1] do not fit the model's [32, 64, 1]" },
    { "other rows", "llama", "llama-lora", "blk.2.attn_q.weight.lora_b", "blk.2.attn_q.weight.lora_b", 12, 63,
      PLUMB_ERROR_TENSOR, "lora_b [4, 63, 1] do not fit" },
    { "fewer experts", "qwen2moe", "qwen2moe-lora", "blk.2.ffn_up_exps.weight.lora_a",
      "blk.2.ffn_up_exps.weight.lora_a", 20, 3, PLUMB_ERROR_TENSOR, "lora_a [32, 4, 3] and lora_b [4, 64, 4]" },
    { "an alpha of NaN", "llama", "llama-lora", "adapter.lora.alpha", "adapter.lora.alpha", 4, 0x7fc00000,
      PLUMB_ERROR_METADATA, "adapter.lora.alpha: expected a finite number" },
    { "a layer of a larger model", "llama", "llama-control", "direction.2", "direction.3", 0, 0, PLUMB_ERROR_TENSOR,
      "the model has 3 layers" },
    { "the layer 0", "llama", "llama-control", "direction.2", "direction.0", 0, 0, PLUMB_ERROR_TENSOR,
      "expected direction.1" },
    { "no layer", "llama", "llama-control", "direction.2", "direction_2", 0, 0, PLUMB_ERROR_TENSOR, "direction_2" },
    { "another width", "llama", "llama-control", "direction.2", "direction.2", 4, 31, PLUMB_ERROR_TENSOR,
      "expected F32 [32], file has F32 of 31" },
};

static uint8_t *find(uint8_t *bytes, size_t n, const char *text, size_t n_text) {
    for (size_t i = 0; i + n_text <= n; i++) {
        if (memcmp(bytes + i, text, n_text) == 0) return bytes + i;
    }
    return NULL;
}

static void broken_case(const void *data) {
    const struct broken_row *row = data;
    char path[120];
    size_t n, n_from = strlen(row->from);
    snprintf(path, sizeof path, FOLDER "%s.gguf", row->adapter);
    uint8_t *bytes = test_read_all(path, &n);
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", row->model);
    plumb_model *m = fixture_load(path);
    plumb_adapter *a = NULL;
    if (bytes && m && CHECK(plumb_adapter_create(&a, m, n) == PLUMB_OK, "%s", plumb_model_error(m))) {
        uint8_t *at = n_from > 0 ? find(bytes, n, row->from, n_from) : bytes;
        CHECK(at, "no %s", row->from);
        for (; at && n_from > 0 && row->at == 0; at = find(bytes, n, row->from, n_from)) memcpy(at, row->to, n_from);
        uint8_t *number = at + n_from + row->at;
        for (int i = 0; row->at > 0 && i < 4; i++) number[i] = (uint8_t)(row->number >> 8 * i);
        plumb_status status = give(a, bytes, n, n);
        CHECK(status == row->status, "%s: %s", plumb_status_name(status), plumb_adapter_error(a));
        CHECK(strstr(plumb_adapter_error(a), row->says), "%s", plumb_adapter_error(a));
        plumb_session *s = NULL;
        plumb_adapter_use one = { a, 1, 0, 0 };
        REQUIRE(plumb_session_create(&s, m, NULL) == PLUMB_OK, "%s", plumb_model_error(m));
        CHECK(plumb_session_set_adapters(s, &one, 1) == PLUMB_ERROR_STATE, "a refused adapter is used");
        plumb_session_free(s);
    }
    plumb_adapter_free(a);
    plumb_model_free(m);
    free(bytes);
}

static void truncated_case(void) {
    size_t n;
    uint8_t *bytes = test_read_all(FOLDER "llama-lora.gguf", &n);
    plumb_model *m = fixture_load("tests/vectors/archs/llama.gguf");
    for (size_t i = 0; bytes && m && i < n; i += 997) {
        plumb_adapter *a;
        REQUIRE(plumb_adapter_create(&a, m, PLUMB_SIZE_UNKNOWN) == PLUMB_OK, "%s", plumb_model_error(m));
        CHECK(give(a, bytes, i, i + 1) == PLUMB_ERROR_TRUNCATED, "%zu of %zu bytes: %s", i, n, plumb_adapter_error(a));
        plumb_adapter_free(a);
    }
    plumb_model_free(m);
    free(bytes);
}

static void arguments_case(void) {
    plumb_session_params params = { .n_ctx = 32 };
    struct bench b = bench_make("llama", "llama-lora:1,llama-control:1", &params);
    plumb_model *other = fixture_load("tests/vectors/archs/llama.gguf"), *empty = plumb_model_create();
    plumb_adapter *a = NULL;
    float before[N_VOCAB], after[N_VOCAB];
    if (!b.session || !other || !use(&b, 1)) return;
    CHECK(plumb_adapter_create(&a, empty, 100) == PLUMB_ERROR_STATE && !a, "an adapter of no model");
    CHECK(plumb_adapter_is_control(b.adapters[1]) && !plumb_adapter_is_control(b.adapters[0]), "kinds");
    feed(&b, N_ID, before);
    plumb_adapter_use wrong[] = { { b.adapters[0], NAN, 0, 0 }, { b.adapters[1], 1, 2, 1 },
                                  { load_adapter(other, "llama-lora"), 1, 0, 0 } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(plumb_session_set_adapters(b.session, &wrong[i], 1) == PLUMB_ERROR_ARGUMENT, "use %zu is accepted", i);
    }
    CHECK(plumb_session_n_past(b.session) == N_ID, "a failure forgets tokens");
    CHECK(plumb_session_rewind(b.session, 0) == PLUMB_OK, "%s", plumb_session_error(b.session));
    feed(&b, N_ID, after);
    CHECK(same(before, after), "a failure exchanges adapters");
    plumb_adapter_free((plumb_adapter *)wrong[2].adapter);
    plumb_model_free(other);
    plumb_model_free(empty);
    bench_free(&b);
}

/* A saved session is restored only with the same adapters, which may be loaded again. */
static void saved_case(void) {
    const plumb_session_params params = { .n_ctx = 32 };
    struct bench a = bench_make("llama", "llama-lora:0.5,llama-control:1", &params);
    static const struct { const char *names, *message; plumb_status status; } rows[] = {
        { "llama-lora:0.5,llama-control:1", "", PLUMB_OK },
        { "", "it was saved with 2 adapters in use, and this session uses 0", PLUMB_ERROR_ARGUMENT },
        { "llama-lora:0.5", "it was saved with 2 adapters in use, and this session uses 1", PLUMB_ERROR_ARGUMENT },
        { "llama-lora:0.25,llama-control:1", "it was saved with another adapter 1: its digest", PLUMB_ERROR_ARGUMENT },
        { "llama-lora:0.5,llama-control:1:1-1", "it was saved with another adapter 2: its", PLUMB_ERROR_ARGUMENT },
        { "llama-types:0.5,llama-control:1", "it was saved with another adapter 1: its digest", PLUMB_ERROR_ARGUMENT },
    };
    REQUIRE(use(&a, a.n) && plumb_session_feed(a.session, ids, N_ID) == PLUMB_OK, "no session");
    struct bytes saved = fixture_save(a.session);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench b = bench_make("llama", rows[i].names, &params);
        if (!use(&b, b.n)) continue;
        CHECK(fixture_restore(b.session, saved.data, saved.n) == rows[i].status
              && strstr(plumb_session_error(b.session), rows[i].message), "row %zu: %s", i,
              plumb_session_error(b.session));
        const float *logits = plumb_session_logits(b.session);
        if (rows[i].status == PLUMB_OK) {
            CHECK(logits && memcmp(logits, plumb_session_logits(a.session), N_VOCAB * sizeof *logits) == 0, "logits");
        }
        bench_free(&b);
    }
    /* The digests of adapters, which do not change, are computed once. */
    size_t n_byte = 0;
    const struct gguf_tensor *t = gguf_tensor_at(a.adapters[0]->adapter->file, 0);
    if (t->n_bytes > 0) ((uint8_t *)(uintptr_t)t->data)[0] ^= 1;
    struct bytes again = fixture_save(a.session);
    while (n_byte < again.n && n_byte < saved.n && again.data[n_byte] == saved.data[n_byte]) n_byte++;
    CHECK(t->n_bytes > 0 && n_byte == saved.n && again.n == saved.n, "byte %zu differs: the file was read again",
          n_byte);
    free(again.data);
    free(saved.data);
    bench_free(&a);
}

void test_adapter(void) {
    size_t n;
    char *list = test_read_all(FOLDER "cases.txt", &n);
    for (char *line = list; line && *line;) {
        char *end = strchr(line, '\n'), name[200];
        if (end) *end = '\0';
        snprintf(name, sizeof name, "adapter: llama.cpp's logits from both passes: %s", line);
        test_row(name, llama_row, line);
        line = end ? end + 1 : line + strlen(line);
    }
    free(list);
    test_case("adapter: tokens belong to the adapters that computed them, and a scale of 0 is none", exchange_case);
    static const char *const models[] = { "llama", "chatglm", "qwen2moe", "gemma4-moe" };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char name[100];
        snprintf(name, sizeof name, "adapter: the same bits in batches, threads and all kernels: %s", models[i]);
        test_row(name, same_bits_row, models[i]);
    }
    TEST_ROWS("adapter: refused with its reason: ", broken_case, broken);
    test_case("adapter: any part of a file is incomplete", truncated_case);
    test_case("adapter: wrong arguments change nothing", arguments_case);
    test_case("adapter: a saved session is restored only with the adapters that it had", saved_case);
}

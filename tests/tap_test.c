/* Taps of both passes against llama.cpp's evaluation callback, tap by tap: the .taps files of tests/vectors/synth,
 * whose layout is in tests/vectors/llama/logits.c. */
#include "fixture.h"
#include "model/plan.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct against_dump {
    const uint8_t *dump;
    size_t n_dump;
    double most, worst;       /* relative RMS of a tap */
    uint32_t n_same, n_alone; /* taps with and without a record */
};

/* The last record with that name (of a long one, its last 24 bytes), and its shape in *ne.  NULL if the dump has
 * none. */
static const uint8_t *find_record(const struct against_dump *a, const char *name, uint32_t ne[4]) {
    const uint8_t *found = NULL;
    if (strlen(name) > 24) name += strlen(name) - 24;
    for (size_t at = 0; at + 40 <= a->n_dump;) {
        const uint8_t *record = a->dump + at;
        uint64_t n = 1;
        for (size_t i = 0; i < 4; i++) n *= load_u32(record + 24 + 4 * i);
        if (strncmp((const char *)record, name, 24) == 0) found = record;
        at += 40 + 4 * n;
    }
    for (size_t i = 0; found && i < 4; i++) ne[i] = load_u32(found + 24 + 4 * i);
    return found ? found + 40 : NULL;
}

static void compare(void *user, const plumb_tap *tap) {
    struct against_dump *a = user;
    char name[40];
    uint32_t ne[4];
    if (tap->layer < 0) snprintf(name, sizeof name, "%s", tap->name);
    else snprintf(name, sizeof name, "%s-%d", tap->name, (int)tap->layer);
    const uint8_t *record = find_record(a, name, ne);
    if (!record) {
        a->n_alone++;
        return;
    }
    /* ggml has the same order, fastest last here, except for the attention weights: (n_head, n_token, n_key). */
    bool is_weights = strcmp(tap->name, "kq_soft_max") == 0;
    uint32_t n_row = tap->n_token * tap->n_head;
    uint64_t n_theirs = (uint64_t)ne[0] * ne[1] * ne[2] * ne[3];
    if (strcmp(tap->name, "ffn_up") == 0 && n_theirs == 2 * (uint64_t)n_row * tap->n) {   /* with the gate inside */
        a->n_alone++;
        return;
    }
    if (!CHECK(n_theirs == (uint64_t)n_row * tap->n, "%s: %u x %u x %u", name,
               tap->n_token, tap->n_head, tap->n)) return;
    double d2 = 0, l2 = 0;
    for (uint32_t row = 0; row < n_row; row++) {
        uint32_t theirs = is_weights ? row % tap->n_head * tap->n_token + row / tap->n_head : row;
        for (uint32_t i = 0; i < tap->n; i++) {
            double l = (double)f32_from_bits(load_u32(record + 4 * ((size_t)theirs * tap->n + i)));
            double d = (double)tap->data[(size_t)row * tap->n + i] - l;
            if (isinf(l) && (double)tap->data[(size_t)row * tap->n + i] == l) continue;   /* a token without a logit */
            d2 += d * d;
            l2 += l * l;
        }
    }
    double distance = sqrt(d2 / l2);
    CHECK(distance <= a->most, "%s: relative RMS %g", name, distance);
    a->worst = worse(a->worst, distance);
    a->n_same++;
}

/* n_in_layer: taps of a layer.  n_alone: all taps that llama.cpp does not name. */
static void check_taps(const char *model, plumb_session_params params, double most, uint32_t n_in_layer,
                       uint32_t n_alone) {
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/synth/%s.taps", model);
    struct against_dump a = { .most = most };
    uint8_t *dump = test_read_all(path, &a.n_dump);
    a.dump = dump;
    struct llama_vectors v = { 0 };
    snprintf(path, sizeof path, "synth/%s.bin", model);
    bool ok = dump && llama_vectors_read(&v, path);
    snprintf(path, sizeof path, "tests/vectors/synth/%s.gguf", model);
    plumb_model *m = ok ? fixture_load(path) : NULL;
    plumb_session *s = NULL;
    params.n_ctx = 40;
    if (m && CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m))) {
        plumb_model_info info;
        plumb_model_get_info(m, &info);
        uint32_t last = v.n_token - 1, n_tap = 1 + info.n_layer * n_in_layer + 2;   /* embd, result_norm and _output */
        plumb_session_feed(s, v.tokens, v.n_token);
        float untapped = plumb_session_logits(s)[fixture_largest(plumb_session_logits(s), v.n_vocab)];
        plumb_session_rewind(s, 0);
        CHECK(plumb_session_set_tap(s, compare, &a) == PLUMB_OK, "%s", plumb_session_error(s));
        /* Requests all logits, as llama.cpp did, so the last layer's taps have all tokens here too. */
        plumb_session_feed_all(s, v.tokens, v.n_token, NULL, NULL);
        CHECK(a.n_same + a.n_alone == n_tap, "%u taps", a.n_same + a.n_alone);
        CHECK(a.n_alone == n_alone, "%u taps that llama.cpp does not name", a.n_alone);
        CHECK(plumb_session_set_tap(s, NULL, NULL) == PLUMB_OK, "taps off");
        plumb_session_rewind(s, last);
        plumb_session_feed(s, v.tokens + last, 1);
        CHECK(a.n_same + a.n_alone == n_tap, "a tap after they were turned off");
        CHECK(plumb_session_logits(s)[fixture_largest(plumb_session_logits(s), v.n_vocab)] == untapped,
              "taps changed the logits");
        test_note("worst relative RMS of %u taps %.2g", a.n_same, a.worst);
    }
    plumb_session_free(s);
    plumb_model_free(m);
    llama_vectors_free(&v);
    free(dump);
}

/* ---- each architecture ------------------------------------------------------------------------------------------- */

/* The ids of tests/vectors/archs/make.sh. */
static const int32_t arch_ids[] = { 7, 1, 33, 33, 60, 2, 19, 48 };
enum { N_ARCH_ID = sizeof arch_ids / sizeof *arch_ids };

/* A file has the name of its architecture, or that with "-moe" or another word behind it if no architecture has this
 * name. */
static bool is_file_of(const char *architecture, const char *name) {
    for (size_t i = 0; plan_architecture(i); i++) {
        if (strcmp(plan_architecture(i), name) == 0) return strcmp(architecture, name) == 0;
    }
    size_t n = strlen(architecture);
    return strncmp(name, architecture, n) == 0 && name[n] == '-';
}

/* Embeds the ids as one text. */
static int64_t embed(plumb_session *s, int kind) {
    return plumb_session_embed(s, arch_ids, &(uint32_t) { N_ARCH_ID }, 1, (plumb_pooling)kind);
}

/* The embeddings by each kind of pooling that the dump has: a record "mean" and so on, as logits.c names them. */
static void check_embeddings(struct against_dump *a, plumb_session *s, const plumb_model_info *info) {
    static const char *const names[] = { "none", "mean", "cls", "last", "rank" };
    uint32_t n_kind = 0;
    for (int kind = PLUMB_POOLING_NONE; kind <= PLUMB_POOLING_RANK; kind++) {
        uint32_t ne[4], n_vector, n;
        const uint8_t *record = find_record(a, names[kind], ne);
        if (!record) continue;
        n_kind++;
        if (!CHECK(embed(s, kind) == 1, "%s: %s", names[kind], plumb_session_error(s))) continue;
        const float *ours = plumb_session_embedding(s, &n_vector, &n);
        if (!CHECK(n == ne[0] && n_vector == ne[1], "%s: %u x %u, llama.cpp %u x %u", names[kind], n_vector, n, ne[1],
                   ne[0])) continue;
        double d2 = 0, l2 = 0;
        for (uint32_t i = 0; i < n_vector * n; i++) {
            double l = (double)f32_from_bits(load_u32(record + 4 * (size_t)i));
            d2 += ((double)ours[i] - l) * ((double)ours[i] - l);
            l2 += l * l;
        }
        CHECK(sqrt(d2 / l2) <= a->most, "%s: relative RMS %g", names[kind], sqrt(d2 / l2));
        a->worst = worse(a->worst, sqrt(d2 / l2));
        if (kind != (int)info->pooling) continue;
        CHECK(n == info->n_pooled, "%u elements, announced are %u", n, info->n_pooled);
        float kept[64 * N_ARCH_ID];
        memcpy(kept, ours, n_vector * n * sizeof *kept);
        embed(s, PLUMB_POOLING_MODEL);
        ours = plumb_session_embedding(s, &n_vector, &n);
        CHECK(ours && memcmp(kept, ours, n_vector * n * sizeof *kept) == 0, "the file's pooling is %s", names[kind]);
    }
    CHECK(n_kind >= 4 || info->has_logits, "only %u kinds of pooling", n_kind);
    if (n_kind == 4) {
        uint32_t n_vector, n;
        CHECK(embed(s, PLUMB_POOLING_RANK) == PLUMB_ERROR_UNSUPPORTED
              && !plumb_session_embedding(s, &n_vector, &n), "it ranks without a classifier");
    }
    if (info->has_logits) return;
    CHECK(plumb_session_feed(s, arch_ids, 1) == PLUMB_ERROR_UNSUPPORTED && !plumb_session_logits(s)
          && strstr(plumb_session_error(s), "is an embedding model"), "it has logits");
}

/* A pass of a model against llama.cpp's taps. */
static void check_pass(struct against_dump *a, plumb_model *m, plumb_session_params params, double most,
                       const char *what) {
    plumb_session *s = NULL;
    if (!CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m))) return;
    plumb_model_info info;
    plumb_model_get_info(m, &info);
    a->most = most;
    a->worst = 0;
    a->n_same = a->n_alone = 0;
    CHECK(plumb_session_set_tap(s, compare, a) == PLUMB_OK, "%s", plumb_session_error(s));
    if (info.has_encoder) {
        CHECK(plumb_session_encode(s, arch_ids, N_ARCH_ID) == PLUMB_OK, "%s", plumb_session_error(s));
    }
    plumb_session_feed_all(s, arch_ids, N_ARCH_ID, NULL, NULL);
    uint32_t n_least = info.n_layer * (info.has_encoder ? 6 : 9);   /* half of a decoder's layers have no network */
    CHECK(a->n_same > n_least && a->n_same > a->n_alone, "%u taps, %u that llama.cpp does not name", a->n_same,
          a->n_alone);
    test_note("%s: worst relative RMS of %u taps %.2g, %u have no name in llama.cpp", what, a->n_same, a->worst,
              a->n_alone);
    check_embeddings(a, s, &info);
    plumb_session_free(s);
}

/* Both passes of a model against llama.cpp's taps, which computed with its weights in F32.  With them, and K and V in
 * F32, the fast pass rounds nothing either, which shows that its formulas are right.  With the weights of the file it
 * rounds activations to 16 bits, by some 2e-5 in each product, and that adds up. */
static void arch_row(const void *row) {
    const char *name = row;
    char path[120];
    struct against_dump a = { 0 };
    snprintf(path, sizeof path, "tests/vectors/archs/%s.taps", name);
    uint8_t *dump = test_read_all(path, &a.n_dump);
    a.dump = dump;
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", name);
    plumb_model *m = dump ? fixture_load(path) : NULL, *in_f32 = m ? fixture_load_f32(path) : NULL;
    if (in_f32) {
        plumb_model_info info;
        plumb_model_get_info(m, &info);
        CHECK(is_file_of(info.architecture, name), "the file has the architecture %s", info.architecture);
        check_pass(&a, m, (plumb_session_params) { .n_ctx = 16, .pass = PLUMB_PASS_REFERENCE }, 1e-5, "reference");
        check_pass(&a, in_f32, (plumb_session_params) { .n_ctx = 16, .kv_type = PLUMB_KV_F32 }, 1e-5, "fast, F32");
        check_pass(&a, m, (plumb_session_params) { .n_ctx = 16, .kv_type = PLUMB_KV_F32 }, 5e-4, "fast");
        check_pass(&a, m, (plumb_session_params) { .n_ctx = 16, .kv_type = PLUMB_KV_I16 }, 2e-3, "fast, i16");
    }
    plumb_model_free(m);
    plumb_model_free(in_f32);
    free(dump);
}

/* ---- whole dumps ------------------------------------------------------------------------------------------------- */

static const plumb_session_params reference = { .pass = PLUMB_PASS_REFERENCE };
static const plumb_session_params fast = { .precision = PLUMB_PRECISION_EXACT16 };
static void llama_reference(void) { check_taps("f32", reference, 1e-5, 16, 0); }
/* f32 weights, f32 activations, and K and V in f32 */
static void llama_fast(void) { check_taps("f32", (plumb_session_params) { .kv_type = PLUMB_KV_F32 }, 1e-5, 16, 0); }
/* The default type of K and V is the only one that is not f32 here; for a head of 8 elements it has 14 bits. */
static void llama_fast_i16(void) { check_taps("f32", fast, 3e-4, 16, 0); }
/* llama.cpp gives attn_out no name in this architecture. */
static void qwen2_reference(void) { check_taps("qwen2", reference, 1e-5, 16, 2); }
static void qwen2_fast(void) { check_taps("qwen2", fast, 1e-3, 16, 2); }
static void granite_reference(void) { check_taps("granite", reference, 1e-5, 16, 0); }
static void granite_fast(void) { check_taps("granite", fast, 1e-3, 16, 0); }

static void qwen3_reference(void) { check_taps("qwen3", reference, 1e-5, 18, 2); }
static void qwen3_fast(void) { check_taps("qwen3", fast, 1e-3, 18, 2); }
/* llama.cpp takes GELU from a table of 16-bit floats. */
static void gemma3_reference(void) { check_taps("gemma3", reference, 1e-5, 20, 4); }
static void gemma3_fast(void) { check_taps("gemma3", fast, 1e-3, 20, 4); }

void test_tap(void) {
    for (size_t i = 0; plan_architecture(i); i++) {
        char name[120];
        snprintf(name, sizeof name, "tap: every step of both passes equals llama.cpp's: architecture %s",
                 plan_architecture(i));
        test_row(name, arch_row, plan_architecture(i));
    }
    /* Architectures that may have experts, gates, latent experts, other norms, or an adapter before any other. */
    static const char *const others[] = { "llama-moe", "granite-moe", "granitemoe-moe", "minicpm-moe",
                                                "mistral3-moe", "refact-moe", "granitehybrid-moe",
                                                "jamba-moe", "gemma4-moe", "t5encoder-gated", "t5-gated", "t5-deep",
                                                "nemotron_h_moe-latent", "chameleon-swin", "graniteswitch-base" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char name[120];
        snprintf(name, sizeof name, "tap: every step of both passes equals llama.cpp's: %s", others[i]);
        test_row(name, arch_row, others[i]);
    }
    test_case("tap: every step of the reference pass equals llama.cpp's, llama", llama_reference);
    test_case("tap: every step of the fast pass equals llama.cpp's, llama, K and V in f32", llama_fast);
    test_case("tap: every step of the fast pass equals llama.cpp's, llama", llama_fast_i16);
    test_case("tap: every step of the reference pass equals llama.cpp's, qwen2", qwen2_reference);
    test_case("tap: every step of the fast pass equals llama.cpp's, qwen2", qwen2_fast);
    test_case("tap: every step of the reference pass equals llama.cpp's, granite", granite_reference);
    test_case("tap: every step of the fast pass equals llama.cpp's, granite", granite_fast);
    test_case("tap: every step of the reference pass equals llama.cpp's, qwen3", qwen3_reference);
    test_case("tap: every step of the fast pass equals llama.cpp's, qwen3", qwen3_fast);
    test_case("tap: every step of the reference pass equals llama.cpp's, gemma3", gemma3_reference);
    test_case("tap: every step of the fast pass equals llama.cpp's, gemma3", gemma3_fast);
}

/* Models of more experts than any row of a matrix has elements: their biases and factors are longer than the scratch
 * for a row, and biases have as many rows as are packed together.  Truth is worked by hand. */
#include "api/model.h"
#include "broken.h"
#include "bytes.h"
#include "plumb_truth.h"
#include "test.h"

#include <stdio.h>

enum { EMBD = 8, EXPERTS = 64, USED = 2, N_ID = 5, ALIGNMENT = 32 };

static const int32_t ids[N_ID] = { 3, 1, 15, 0, 9 };

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A GGUF file that is being written: its keys, its directory of tensors, and their data. */
struct file {
    struct bytes keys, directory, data;
    uint32_t n_key, n_tensor;
};

static void add_text(struct file *f, const char *name, const char *value) {
    put_key(&f->keys, name, 8);
    put_string(&f->keys, value, strlen(value));
    f->n_key++;
}

static void add_number(struct file *f, const char *architecture, const char *suffix, uint32_t type, uint32_t value) {
    char name[100];
    snprintf(name, sizeof name, "%s.%s", architecture, suffix);
    put_key(&f->keys, name, type);
    put_number(&f->keys, value, 4);
    f->n_key++;
}

/* An F32 tensor of n_dims dimensions.  Its elements are small numbers that differ, times those of its last dimension's
 * factors, if there are any. */
static void add_tensor(struct file *f, const char *name, uint32_t n_dims, const uint32_t *shape, const float *factors) {
    uint32_t n = 1, n_each = 1;
    put_string(&f->directory, name, strlen(name));
    put_number(&f->directory, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) {
        put_number(&f->directory, shape[i], 8);
        n *= shape[i];
        n_each *= i + 1 < n_dims ? shape[i] : 1;
    }
    put_number(&f->directory, 0, 4);
    put_number(&f->directory, f->data.n, 8);
    for (uint32_t i = 0; i < n; i++) {
        float value = (float)((i * 37 + f->n_tensor * 11) % 29) / 16.0f - 0.75f;
        value *= factors ? factors[i / n_each] : 1.0f;
        put(&f->data, &value, sizeof value);
    }
    while (f->data.n % ALIGNMENT != 0) put_number(&f->data, 0, 1);
    f->n_tensor++;
}

static void add_vector(struct file *f, const char *name, const float *values, uint32_t n) {
    size_t at = f->data.n;
    add_tensor(f, name, 1, &n, NULL);
    memcpy(f->data.data + at, values, n * sizeof *values);
}

static void add_matrix(struct file *f, const char *name, uint32_t n_out) {
    add_tensor(f, name, 2, (uint32_t[]) { EMBD, n_out }, NULL);
}

/* Keys and tensors of a model of one layer that all architectures here have. */
static void begin(struct file *f, const char *architecture, const char *ffn_norm) {
    static const float ones[EMBD] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    static const struct { const char *suffix; uint32_t value; } counts[] = {
        { "block_count", 1 }, { "context_length", 16 }, { "embedding_length", EMBD }, { "feed_forward_length", EMBD },
        { "attention.head_count", 1 }, { "expert_count", EXPERTS }, { "expert_used_count", USED }, { "vocab_size", 16 },
    };
    add_text(f, "general.architecture", architecture);
    add_text(f, "tokenizer.ggml.model", "none");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        add_number(f, architecture, counts[i].suffix, 4, counts[i].value);
    }
    add_number(f, architecture, "attention.layer_norm_rms_epsilon", 6, 0x3727c5ac);   /* 1e-5 */
    add_matrix(f, "token_embd.weight", 16);
    add_vector(f, "output_norm.weight", ones, EMBD);
    add_matrix(f, "output.weight", 16);
    add_vector(f, "blk.0.attn_norm.weight", ones, EMBD);
    add_vector(f, ffn_norm, ones, EMBD);
    static const char *const projections[] = { "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                                               "blk.0.attn_output.weight" };
    for (size_t i = 0; i < 4; i++) add_matrix(f, projections[i], EMBD);
    add_matrix(f, "blk.0.ffn_gate_inp.weight", EXPERTS);
}

/* The model of a file, packed while it was read as all are.  Frees the parts of the file. */
static plumb_model *end(struct file *f) {
    struct bytes all = { 0 };
    put(&all, "GGUF", 4);
    put_number(&all, 3, 4);
    put_number(&all, f->n_tensor, 8);
    put_number(&all, f->n_key, 8);
    put(&all, f->keys.data, f->keys.n);
    put(&all, f->directory.data, f->directory.n);
    while (all.n % ALIGNMENT != 0) put_number(&all, 0, 1);
    put(&all, f->data.data, f->data.n);
    plumb_model *m = broken_load(&(struct broken) { .bytes = all.data, .n = all.n });
    CHECK(m && plumb_model_end(m) == PLUMB_OK, "%s", m ? plumb_model_error(m) : "no memory");
    free(all.data);
    free(f->keys.data);
    free(f->directory.data);
    free(f->data.data);
    return m;
}

static const uint32_t expert_shape[] = { EMBD, EMBD, EXPERTS };

/* ---- cases ------------------------------------------------------------------------------------------------------- */

/* Llama's experts: the factors of the down projections are powers of 2, in a tensor of their own or in the matrices. */
static plumb_model *with_factors(bool in_tensor) {
    struct file f = { 0 };
    float factors[EXPERTS];
    for (uint32_t e = 0; e < EXPERTS; e++) factors[e] = (float)(1 << e % 5) / 4.0f;
    begin(&f, "llama", "blk.0.ffn_norm.weight");
    add_tensor(&f, "blk.0.ffn_gate_exps.weight", 3, expert_shape, NULL);
    add_tensor(&f, "blk.0.ffn_up_exps.weight", 3, expert_shape, NULL);
    add_tensor(&f, "blk.0.ffn_down_exps.weight", 3, expert_shape, in_tensor ? NULL : factors);
    if (in_tensor) add_vector(&f, "blk.0.ffn_down_exps.scale", factors, EXPERTS);
    return end(&f);
}

static float largest_difference(const float *a, const float *b, size_t n) {
    float worst = 0;
    for (size_t i = 0; i < n; i++) {
        float d = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static void run(plumb_model *m, plumb_pass pass, void (*on_tap)(void *user, const plumb_tap *tap), void *user,
                float *logits) {
    plumb_session *s = NULL;
    const plumb_session_params params = { .n_ctx = 16, .pass = pass };
    if (!CHECK(m && plumb_session_create(&s, m, &params) == PLUMB_OK, "no session")) return;
    CHECK(plumb_session_set_tap(s, on_tap, user) == PLUMB_OK, "%s", plumb_session_error(s));
    CHECK(plumb_session_feed(s, ids, N_ID) == PLUMB_OK, "%s", plumb_session_error(s));
    if (logits) memcpy(logits, plumb_session_logits(s), 16 * sizeof *logits);
    plumb_session_free(s);
}

static void factors(void) {
    plumb_model *a = with_factors(true), *b = with_factors(false);
    for (int pass = 0; pass < 2; pass++) {
        float in_tensor[16], in_matrix[16];
        run(a, pass == 0 ? PLUMB_PASS_FAST : PLUMB_PASS_REFERENCE, NULL, NULL, in_tensor);
        run(b, pass == 0 ? PLUMB_PASS_FAST : PLUMB_PASS_REFERENCE, NULL, NULL, in_matrix);
        float worst = largest_difference(in_tensor, in_matrix, 16);
        CHECK(worst == 0.0f, "pass %d: logits differ by %g", pass, (double)worst);
    }
    plumb_model_free(a);
    plumb_model_free(b);
}

/* What the taps of a run show of the experts that tokens used and of their outputs. */
struct outputs { float used[N_ID * USED], down[N_ID * USED * EMBD]; uint32_t n; };

static void on_tap(void *user, const plumb_tap *tap) {
    struct outputs *o = user;
    size_t n = (size_t)tap->n_token * tap->n_head * tap->n;
    if (strcmp(tap->name, "ffn_moe_topk") == 0 && n == N_ID * USED) memcpy(o->used, tap->data, n * sizeof *tap->data);
    if (strcmp(tap->name, "ffn_moe_down") != 0 || n != N_ID * USED * EMBD) return;
    memcpy(o->down, tap->data, n * sizeof *tap->data);
    o->n++;
}

/* gpt-oss' experts, with down projections of zeros: what an expert returns is its row of the bias. */
static void biases(void) {
    struct file f = { 0 };
    float zeros[EXPERTS] = { 0 }, bias[EXPERTS][EMBD], sink = 0.5f, router[EXPERTS] = { [5] = 100, [9] = 50 };
    begin(&f, "gpt-oss", "blk.0.post_attention_norm.weight");
    add_number(&f, "gpt-oss", "expert_feed_forward_length", 4, EMBD);
    add_vector(&f, "blk.0.attn_sinks.weight", &sink, 1);
    add_vector(&f, "blk.0.ffn_gate_inp.bias", router, EXPERTS);
    add_tensor(&f, "blk.0.ffn_gate_exps.weight", 3, expert_shape, NULL);
    add_tensor(&f, "blk.0.ffn_up_exps.weight", 3, expert_shape, NULL);
    add_tensor(&f, "blk.0.ffn_down_exps.weight", 3, expert_shape, zeros);
    size_t at = f.data.n;
    add_matrix(&f, "blk.0.ffn_down_exps.bias", EXPERTS);
    memcpy(bias, f.data.data + at, sizeof bias);
    plumb_model *m = end(&f);
    for (int pass = 0; pass < 2 && m; pass++) {
        struct outputs o = { .n = 0 };
        run(m, pass == 0 ? PLUMB_PASS_FAST : PLUMB_PASS_REFERENCE, on_tap, &o, NULL);
        CHECK(o.n == 1, "%u taps", o.n);
        for (uint32_t i = 0; i < N_ID * USED; i++) {
            uint32_t e = (uint32_t)o.used[i];
            if (!CHECK(e == (i % USED == 0 ? 5 : 9), "pass %d: expert %u", pass, e)) break;
            CHECK(largest_difference(o.down + (size_t)i * EMBD, bias[e], EMBD) == 0.0f, "pass %d: expert %u", pass, e);
        }
    }
    plumb_model_free(m);
}

/* Biases, norms and factors are used where they are, so they stay as they are in the file; matrices are packed. */
static void packed(void) {
    plumb_model *m = with_factors(true);
    for (uint64_t i = 0; m && i < gguf_n_tensor(m->parts[0]); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->parts[0], i);
        bool is_matrix = t->n_dims > 1;
        CHECK((t->n_packed > 0) == is_matrix, "%s: %llu rows are packed", t->name.data,
              (unsigned long long)t->n_packed);
    }
    plumb_model_free(m);
}

void test_many_experts(void) {
    test_case("experts: factors of more experts than a row has elements equal factors in the matrices", factors);
    test_case("experts: biases of more experts than are packed together are those of the file", biases);
    test_case("experts: matrices are packed, norms and factors are not", packed);
}

/* The plan: every field that is not a shape of weights, and so checked when they are bound, changes logits or the
 * embedding, in both passes, in the tiny model of some architecture. */
#include "api/model.h"
#include "broken.h"
#include "check/describe.h"
#include "fixture.h"
#include "model/plan.h"
#include "test.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A field of the plan, or of the plan of the last layer (IN_LAYER) or of the second one, and how to change it. */
struct field {
    const char *name, *model;
    enum { IN_PLAN, IN_ROPE, IN_SECOND, IN_LAYER } where;
    size_t at;
    enum { FLOAT, COUNT, FLAG, KIND, STEPS } type;
    double value;   /* the new value; of STEPS it is steps_block */
};

static const int32_t ids[] = { 7, 1, 33, 33, 60, 2, 19, 48 };
enum { SECOND = 1, N_ID = sizeof ids / sizeof *ids };

static void *place_of(struct plan *p, const struct field *f) {
    uint8_t *base = f->where == IN_PLAN ? (uint8_t *)p : f->where == IN_ROPE ? (uint8_t *)&p->ropes[ROPE_GLOBAL]
                  : (uint8_t *)&p->layers[f->where == IN_SECOND ? SECOND : p->n_layer - 1];
    return base + f->at;
}

static void change(struct plan *p, const struct field *f) {
    void *place = place_of(p, f);
    switch (f->type) {
    case FLOAT: *(float *)place = (float)f->value; break;
    case COUNT: *(uint32_t *)place = (uint32_t)f->value; break;
    case FLAG: *(bool *)place = f->value != 0; break;
    case STEPS: *(steps_writer **)place = steps_block; break;
    case KIND: *(int *)place = (int)f->value; break;   /* all enums of the plan have the size of int */
    }
}

/* Writes what a model computes for the ids, at most N_RESULT elements: the logits after the last token, or the
 * embedding in a model without logits and for fields of the pooling, where rank_... are those of the classifier. */
enum { N_RESULT = 64 };
static bool compute(plumb_session *s, const struct field *f, bool has_logits, float *results) {
    bool is_pooling = strncmp(f->name, "pooling.", 8) == 0, is_rank = strncmp(f->name, "pooling.rank", 12) == 0;
    uint32_t n_vector, n = N_RESULT;
    const float *computed = NULL;
    if (has_logits && !is_pooling) {
        if (plumb_session_feed(s, ids, N_ID) == PLUMB_OK) computed = plumb_session_logits(s);
    } else {
        plumb_session_embed(s, ids, &(uint32_t) { N_ID }, 1, is_rank ? PLUMB_POOLING_RANK : PLUMB_POOLING_MODEL);
        computed = plumb_session_embedding(s, &n_vector, &n);
    }
    if (computed) memcpy(results, computed, (n < N_RESULT ? n : N_RESULT) * sizeof *results);
    return computed;
}

/* The same of a model whose field is changed, or of the model itself. */
static bool run(const char *path, plumb_pass pass, const struct field *f, bool is_changed, float *results) {
    plumb_model *m = fixture_load(path);
    plumb_session *s = NULL;
    plumb_session_params params = { .n_ctx = 16, .pass = pass };
    if (m && is_changed) change(&m->model->plan, f);
    static struct program programs[16];
    for (uint32_t il = 0; m && il < m->model->plan.n_layer; il++) {   /* the programs follow from the plan */
        programs[il] = program_of(&m->model->plan, m->model, il);
        m->model->layers[il].program = &programs[il];
    }
    memset(results, 0, N_RESULT * sizeof *results);
    bool ok = m && CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m))
           && CHECK(compute(s, f, m->model->plan.has_logits, results), "%s", plumb_session_error(s));
    plumb_session_free(s);
    plumb_model_free(m);
    return ok;
}

static void check_field(const void *row) {
    const struct field *f = row;
    char path[100];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", f->model);
    for (int pass = 0; pass < 2; pass++) {
        float right[N_RESULT], wrong[N_RESULT];
        plumb_pass which = pass == 0 ? PLUMB_PASS_FAST : PLUMB_PASS_REFERENCE;
        if (!run(path, which, f, false, right) || !run(path, which, f, true, wrong)) return;
        CHECK(memcmp(right, wrong, sizeof right) != 0, "the %s pass computes the same results",
              pass == 0 ? "fast" : "reference");
    }
}

/* ---- the description --------------------------------------------------------------------------------------------- */

struct description { const char *name, *says; };

/* By hand, from the keys of the files. */
static const struct description descriptions[] = {
    { "olmoe", "  3 layers of width 32, trained for 64 tokens, RMS norms\n  layers 0-2\n    attention of 4 heads of "
      "8, RoPE with base 10000\n    4 experts of 64, 2 for each token (softmax)\n" },
    { "gemma2", "  layers 0, 2\n    attention of 4 heads of 16, 2 for K and V, a window of 3 tokens, RoPE with base "
      "10000, scores up to 5\n    feed-forward network of 64\n    h = norm(attn_norm, x); q = attn_q h; k = attn_k "
      "h; v = attn_v h; q = rope(q); k = rope(k); heads = attention(q, k, v); h = attn_output heads; h = "
      "norm(post_attention_norm, h); x += h\n    h = norm(ffn_norm, x); gate = ffn_gate h; up = ffn_up h; gate = "
      "gelu(gate) * up; h = ffn_down gate; h = norm(post_ffw_norm, h); x += h\n  layers 1\n    attention of 4 heads "
      "of 16, 2 for K and V, RoPE" },
    { "arctic", "    h = norm(ffn_norm_exps, x); scores = ffn_gate_inp h; scores = softmax(scores); used = "
      "best(scores); weights = scores[used]; weights = weights / sum(weights); sum = experts(h, used, weights)\n    "
      "h = norm(attn_norm, x); q = attn_q h; k = attn_k h; v = attn_v h; q = rope(q); k = rope(k); heads = "
      "attention(q, k, v); h = attn_output heads; x += h\n    h = norm(ffn_norm, x); gate = ffn_gate h; up = ffn_up "
      "h; gate = silu(gate) * up; shared = ffn_down gate; sum += shared; h = sum; x += h\n" },
    { "command-r", "    h = norm(attn_norm, x); input = h; q = attn_q h; k = attn_k h; v = attn_v h; q = rope(q); k "
      "= rope(k); heads = attention(q, k, v); h = attn_output heads; x += h\n    gate = ffn_gate input; up = ffn_up "
      "input; gate = silu(gate) * up; h = ffn_down gate; x += h\n" },
    { "gpt-oss", "a window of 3 tokens, RoPE with base 10000, positions divided by 4 with YaRN\n    4 experts of 64, "
      "2 for each token (softmax of those used)\n" },
    { "llama4", "no RoPE, Q times a temperature\n    4 experts of 64, 2 for each token (sigmoid), and one of 64 for "
      "all tokens\n" },
    { "modern-bert", "layer norms, tokens see later ones\n  embeddings: a vector for each text, that of its first "
      "token; no logits\n" },
    { "nomic-bert", "  embeddings: a vector for each text, the mean over its tokens; no logits\n" },
    { "t5encoder", "    attention of 4 heads of 16, a bias for each of 16 buckets of distances\n" },
    { "t5", "  layers 0 to 3 are the encoder, where tokens see later ones; each of the 3 blocks of the decoder is two "
      "layers\n" },
    { "t5", "    h = norm(ffn_norm, x); up = ffn_up h; up = relu(up); h = ffn_down up; x += h\n    encoded = "
      "norm(enc.output_norm, x)\n  layers 4, 6, 8\n    attention of 4 heads of 16, a bias for each of 16 buckets of "
      "distances\n    h = norm(attn_norm, x); q = attn_q h; k = attn_k h; v = attn_v h; heads = attention(q, k, v); h "
      "= attn_o heads; x += h\n  layers 5, 7, 9\n    attention of 4 heads of 16, K and V of the encoder's output\n    "
      "feed-forward network of 64\n    h = norm(cross_attn_norm, x); q = cross_attn_q h; k = cross_attn_k encoded; v = "
      "cross_attn_v encoded; heads = attention(q, k, v); h = cross_attn_o heads; x += h\n" },
    { "eurobert", "  embeddings: a vector for each text, that of its last token; no logits\n" },
    { "qwen3", "  embeddings: a vector for each text, that of its last token\n" },
    { "bert", "  embeddings: a score for each text, from a classifier; no logits\n" },
    { "modern-bert", "  layers 1-2, 4\n    attention of 4 heads of 8, a window around it of 4 tokens, RoPE with base "
      "1000" },
    { "cohere2", "layer norms, attention and feed forward in parallel\n" },
    { "bloom", "attention of 4 heads of 8, 2 for K and V, ALiBi\n" },
    { "gptneox", "RoPE with base 10000 of 4 elements\n" },
    { "glm4moe", "from 1 of 2 groups" },
    { "falcon-h1", "  layers 0-4\n    attention of 4 heads of 8, 2 for K and V, RoPE with base 10000\n    scan of 4 "
      "heads of 16 with states of 8, 2 groups, convolution over 4 tokens\n    feed-forward network of 64\n" },
    { "nemotron_h", "  layers 0\n    attention of 4 heads of 8, no RoPE\n    h = norm(attn_norm, x); " },
    { "nemotron_h", "  layers 1, 3-4\n    scan of 4 heads of 16 with states of 8, 2 groups, convolution over 4 tokens\n"
      "    h = norm(attn_norm, x); scan_in = ssm_in h; z = scan_in[0:64]; conv_in = scan_in[64:160]; dt = "
      "scan_in[160:164]; conv = convolution(conv_in, ssm_conv1d); conv = silu(conv); b = conv[64:80]; c = conv[80:96]; "
      "dt = dt + ssm_dt; dt = softplus(dt); scan = scan(conv, b, c, dt, ssm_a, ssm_d); z = silu(z) * scan; z = "
      "norm(ssm_norm, z); h = ssm_out z; x += h\n" },
    { "nemotron_h", "  layers 2\n    feed-forward network of 64\n    h = norm(attn_norm, x); up = ffn_up h; up = "
      "relu2(up); h = ffn_down up; x += h\n" },
    { "rwkv7", "  layers 1-2\n    RWKV 7 of 2 heads of 32\n    feed-forward network of 64\n    h = norm(attn_norm, x); "
      "shift = before(h) - h; mixed = h + shift * time_mix_lerp_fused[0]; q = time_mix_receptance mixed; mixed = h + "
      "shift * time_mix_lerp_fused[2]; key = time_mix_key mixed; mixed = h + shift * time_mix_lerp_fused[3]; value = "
      "time_mix_value mixed; rank = time_mix_v1 mixed; mix = time_mix_v2 rank; mix = mix + time_mix_v0; mix = "
      "sigmoid(mix); value += (first_value - value) * mix; mixed = h + shift * time_mix_lerp_fused[1]; rank = "
      "time_mix_w1 mixed; rank = tanh(rank); fade = time_mix_w2 rank; fade = fade + time_mix_w0; fade = fade(fade); "
      "mixed = h + shift * time_mix_lerp_fused[4]; rank = time_mix_a1 mixed; rate = time_mix_a2 rank; rate = rate + "
      "time_mix_a0; rate = sigmoid(rate); removal = key * time_mix_k_k; removal = unit(removal); key *= 1 + (rate - "
      "1) * time_mix_k_a; bonus = value * sum(key * q * time_mix_r_k); heads = wkv(q, fade, key, value, removal, "
      "rate); heads = layer_norm(time_mix_ln, heads), by heads; heads += bonus; mixed = h + shift * "
      "time_mix_lerp_fused[5]; rank = time_mix_g1 mixed; rank = sigmoid(rank); gates = time_mix_g2 rank; heads *= "
      "gates; h = time_mix_output heads; x += h\n    h = norm(attn_norm_2, x); shift = before(h) - h; mixed = h + "
      "shift * channel_mix_lerp_k[0]; up = channel_mix_key mixed; up = relu2(up); h = channel_mix_value up; x += h\n" },
    { "rwkv6", "  layers 1\n    RWKV 6 of 4 heads of 8\n" },
    { "rwkv6", "lerps = time_mix_w2 rank, by heads; mixed = h + shift * (time_mix_lerp_r[0] + lerps[3]); " },
    { "rwkv6", "heads = wkv(q, fade, key, value, time_mix_first); " },
    { "rwkv6", "x += h\n    x *= 0.5\n" },
    { "rwkv6qwen2", "  layers 0-2\n    gated linear attention of 4 heads of 8, 2 for K and V\n" },
    { "plamo2", "z = scan_in[:, 0:16]; conv_in = scan_in[:, 16:32]; " },
    { "nemotron_h_moe-latent", "weights *= 2.5; narrow = ffn_latent_down h; narrow_sum = experts(narrow, used, "
      "weights)\n    sum = ffn_latent_up narrow_sum; up = ffn_up_shexp h; " },
    { "chameleon", "q = attn_q h; k = attn_k h; v = attn_v h; q = layer_norm(attn_q_norm, q), by heads; k = "
      "layer_norm(attn_k_norm, k), by heads; q = rope(q); k = rope(k); " },
    { "chameleon-swin", "q = attn_q x; k = attn_k x; v = attn_v x; q = layer_norm(attn_q_norm, q), by heads; k = "
      "layer_norm(attn_k_norm, k), by heads; q = rope(q); k = rope(k); heads = attention(q, k, v); h = attn_output "
      "heads; input = norm(attn_norm, h); x += input\n    gate = ffn_gate input; up = ffn_up input; gate = silu(gate) "
      "* up; h = ffn_down gate; h = norm(ffn_norm, h); x += h\n" },
    { "graniteswitch", "RMS norms\n  3 adapters of rank 8, which tokens switch on\n" },
    { "graniteswitch", "q = (attn_q + adapter) h; k = (attn_k + adapter) h; v = (attn_v + adapter) h; " },
    { "graniteswitch", "h = (ffn_down + adapter) gate; x += h * 0.22\n" },
};

static void description_row(const void *row) {
    const struct description *d = row;
    struct capture text = { 0 };
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", d->name);
    plumb_model *m = fixture_load(path);
    CHECK(m && plumb_model_describe(m, capture_write, &text) == PLUMB_OK, "%s", m ? plumb_model_error(m) : path);
    for (char *at = text.text; at && (at = strstr(at, "\n      ")) != NULL;) {   /* joins lines that were broken */
        *at++ = ' ';
        memmove(at, at + 6, strlen(at + 6) + 1);
    }
    CHECK(text.text && strstr(text.text, d->says), "%s", text.text);
    capture_free(&text);
    plumb_model_free(m);
}

static void no_description_case(void) {
    struct capture text = { 0 };
    plumb_model *m = plumb_model_create();
    CHECK(m && plumb_model_describe(m, capture_write, &text) == PLUMB_ERROR_STATE, "no header");
    capture_free(&text);
    plumb_model_free(m);
}

/* The third of three layers predicts further tokens, by its key: a u32 behind its name and its type. */
static void further_tokens_case(void) {
    static const char key[] = "olmoe.nextn_predict_layers";
    struct capture text = { 0 };
    struct broken b;
    if (!broken_read(&b, "tests/vectors/archs/olmoe.gguf")) return;
    for (size_t i = 0; i + sizeof key + 8 < b.n; i++) {
        if (memcmp(b.bytes + i, key, sizeof key - 1) == 0) b.bytes[i + sizeof key - 1 + 4] = 1;
    }
    plumb_model *m = broken_load(&b);
    CHECK(m && plumb_model_describe(m, capture_write, &text) == PLUMB_OK, "%s", m ? plumb_model_error(m) : "no model");
    CHECK(text.text && strstr(text.text, "  2 layers of width 32, trained for 64 tokens, RMS norms\n  1 more behind "
          "them predict further tokens, and are not computed\n  layers 0-1\n"), "%s", text.text);
    capture_free(&text);
    plumb_model_free(m);
    broken_free(&b);
}

static void many_kinds_case(void) {
    enum { N_LAYER = 1000 };
    static struct layer_plan layers[N_LAYER];
    struct plan plan = { .n_layer = N_LAYER, .n_embd = 32, .layers = layers };
    struct capture text = { 0 };
    struct report_writer w;
    for (uint32_t il = 0; il < N_LAYER; il++) layers[il].ffn.n_ff = il + 1;
    report_begin(&w, capture_write, &text);
    CHECK(describe_plan(&plan, NULL, &w) == PLUMB_OK, "out of memory");
    report_flush(&w);
    CHECK(text.text && strstr(text.text, "  layers 63\n") && !strstr(text.text, "  layers 64\n")
          && strstr(text.text, "  more kinds of layers, the first of them layer 64\n"), "%s", text.text);
    capture_free(&text);
}

/* Buckets of T5's distances; numbers of transformers' _relative_position_bucket, worked out with numpy in float32. */
static void bucket_case(void) {
    static const int32_t distances[] = { -300, -128, -127, -91, -90, -64, -63, -32, -31, -23, -22, -16, -15, -12, -11,
                                         -8, -7, -1, 0, 1, 7, 8, 11, 12, 16, 90, 91, 128, 400 };
    static const uint32_t around[] = { 15, 15, 15, 15, 14, 14, 13, 12, 11, 11, 10, 10, 9, 9, 8, 8, 7, 1, 0, 17, 23, 24,
                                       24, 25, 26, 30, 31, 31, 31 };
    static const uint32_t before[] = { 31, 31, 31, 29, 29, 26, 26, 21, 21, 18, 18, 16, 15, 12, 11, 8, 7, 1, 0, 0, 0, 0,
                                       0, 0, 0, 0, 0, 0, 0 };
    static const uint32_t few[] = { 7, 7, 7, 7, 7, 7, 7, 6, 6, 6, 5, 5, 5, 5, 5, 4, 4, 1, 0, 9, 12, 12, 13, 13, 13, 15,
                                    15, 15, 15 };
    for (size_t i = 0; i < sizeof distances / sizeof *distances; i++) {
        const struct attn_plan a32 = { .n_bucket = 32 }, c32 = { .n_bucket = 32, .is_causal = true };
        const struct attn_plan a16 = { .n_bucket = 16 };
        int32_t d = distances[i];
        CHECK(plan_bucket(&a32, d) == around[i], "%d is in bucket %u", d, plan_bucket(&a32, d));
        CHECK(plan_bucket(&c32, d) == before[i], "%d is in bucket %u", d, plan_bucket(&c32, d));
        CHECK(plan_bucket(&a16, d) == few[i], "%d is in bucket %u", d, plan_bucket(&a16, d));
    }
}

/* Blocks that are computed several times may be more layers than there are tensors. */
static void many_layers_case(void) {
    plumb_model *m = fixture_load("tests/vectors/archs/hrm_text.gguf");
    if (!m) return;
    uint32_t n_layer = m->model->plan.n_layer;
    struct plan plan = { 0 };
    struct error err = { 0 };
    CHECK(plan_create(&plan, m->parts, m->n_part, n_layer - 1, &err) == PLUMB_OK && plan.n_layer == n_layer, "%s",
          err.message);
    plan_free(&plan);
    plumb_model_free(m);
}

void test_plan(void) {
    TEST_ROWS("plan: it is described for people: ", description_row, descriptions);
    test_case("plan: of many kinds of layers the first 64 are described", many_kinds_case);
    test_case("plan: more layers than tensors", many_layers_case);
    test_case("plan: layers that predict further tokens are said to be left out", further_tokens_case);
    test_case("plan: without a header there is nothing to describe", no_description_case);
    #define ATTN(name, model, type, value) \
        { "attn." #name, model, IN_LAYER, offsetof(struct layer_plan, attn.name), type, value }
    #define SECOND(name, model, type, value) \
        { #name, model, IN_SECOND, offsetof(struct layer_plan, name), type, value }
    #define FFN(name, model, type, value) \
        { "ffn." #name, model, IN_LAYER, offsetof(struct layer_plan, ffn.name), type, value }
    #define ROPE(name, model, type, value) \
        { "rope." #name, model, IN_ROPE, offsetof(struct rope_plan, name), type, value }
    #define WHOLE(name, model, type, value) { #name, model, IN_PLAN, offsetof(struct plan, name), type, value }
    static const struct field fields[] = {
        ATTN(rope, "llama", COUNT, ROPE_NONE), ATTN(qk_norm, "hunyuan-dense", KIND, QK_NORM_HEAD),
        ATTN(window, "llama", COUNT, 2), ATTN(is_chunked, "cohere2", FLAG, 1), ATTN(scale, "llama", FLOAT, 0.5),
        ATTN(softcap, "gemma2", FLOAT, 0.1), ATTN(alibi, "bloom", FLOAT, 4),
        ATTN(n_bucket, "t5encoder-gated", COUNT, 8),
        ATTN(temperature_floor, "mistral3-moe", COUNT, 2), ATTN(temperature_scale, "mistral3-moe", FLOAT, 2),
        ATTN(temperature_offset, "mistral3-moe", COUNT, 2), ATTN(gate, "afmoe", KIND, ATTN_GATE_SOFTPLUS),
        ATTN(output_scale, "mimo2", FLOAT, 0.5),
        FFN(activation, "llama", KIND, ACT_GELU_TANH), FFN(activation, "gpt2", KIND, ACT_RELU_SQR),
        FFN(activation, "gpt-oss", KIND, ACT_SILU), FFN(activation, "smallthinker", KIND, ACT_SILU),
        FFN(n_used, "olmoe", COUNT, 1), FFN(gating, "qwen3moe", KIND, GATING_SIGMOID),
        FFN(weights_sum_to_1, "qwen3moe", FLAG, 0), FFN(weights_scale, "dots1", FLOAT, 0.3),
        FFN(weights_first, "llama4", FLAG, 0),
        FFN(n_group_used, "glm4moe", COUNT, 2), FFN(limit, "maple", FLOAT, 0.01),
        FFN(output_scale, "olmoe", FLOAT, 0.5), FFN(limit, "step35", FLOAT, 0.01), FFN(limit_late, "maple", FLAG, 1),
        FFN(limit_shared, "step35", FLOAT, 0.01), FFN(adjugate_scale, "grovemoe", FLOAT, 3),
        FFN(n_adjugate, "grovemoe", COUNT, 1),
        { "ends_loop", "nanbeige", IN_LAYER, offsetof(struct layer_plan, ends_loop), FLAG, 1 },
        { "state", "hrm_text", IN_SECOND, offsetof(struct layer_plan, state), KIND, STATE_HIGH },
        { "is_halved", "rwkv6", IN_SECOND, offsetof(struct layer_plan, is_halved), FLAG, 0 },
        ATTN(gate, "rwkv6", KIND, ATTN_GATE_SIGMOID),
        ROPE(pairing, "llama", KIND, ROPE_NEOX), ROPE(n_rot, "llama", COUNT, 4), ROPE(freq_base, "llama", FLOAT, 50),
        ROPE(freq_scale, "llama", FLOAT, 0.5), ROPE(magnitude, "llama", FLOAT, 1.5), ROPE(is_yarn, "gpt-oss", FLAG, 0),
        ROPE(has_factors, "llama", FLAG, 0), ROPE(sections, "qwen2vl", COUNT, 1000),
        ROPE(sections_interleaved, "qwen2vl", FLAG, 1), ROPE(ramp_low, "gpt-oss", FLOAT, 3),
        WHOLE(norm, "llama", KIND, NORM_LAYER), WHOLE(is_parallel, "command-r", FLAG, 0),
        WHOLE(steps, "smallthinker", STEPS, 0), WHOLE(steps, "arctic", STEPS, 0), WHOLE(steps, "talkie", STEPS, 0),
        WHOLE(steps, "hrm_text", STEPS, 0),
        SECOND(attn.is_causal, "llama", FLAG, 0), WHOLE(clamp_qkv, "llama", FLOAT, 0.1),
        WHOLE(norm_eps, "llama", FLOAT, 0.5),
        WHOLE(post_norm_eps, "muse-glimmer", FLOAT, 0.5), WHOLE(embedding_scale, "llama", FLOAT, 3),
        WHOLE(residual_scale, "llama", FLOAT, 0.5), WHOLE(logit_scale, "llama", FLOAT, 2),
        WHOLE(logit_softcap, "llama", FLOAT, 0.5),
        WHOLE(qk_norm_eps, "chameleon", FLOAT, 0.5), WHOLE(hidden_first, "chameleon", COUNT, 2),
        WHOLE(hidden_end, "chameleon", COUNT, 6), WHOLE(steps, "chameleon-swin", STEPS, 0),
        WHOLE(adapters.gain, "graniteswitch-base", FLOAT, 15),
        ATTN(is_symmetric, "modern-bert", FLAG, 0), SECOND(attn.is_causal, "eurobert", FLAG, 1),
        WHOLE(pooling.kind, "bert", KIND, PLUMB_POOLING_MEAN), WHOLE(pooling.rank_of, "bert", KIND, PLUMB_POOLING_LAST),
        WHOLE(pooling.rank_of, "modern-bert", KIND, PLUMB_POOLING_CLS), WHOLE(pooling.rank_gelu, "bert", FLAG, 1),
        WHOLE(pooling.rank_softmax, "qwen3", FLAG, 0), WHOLE(pooling.rank_softmax, "modern-bert", FLAG, 1),
    };
    test_case("plan: distances have the buckets of T5", bucket_case);
    TEST_ROWS("plan: a changed field changes the results of both passes: ", check_field, fields);
}

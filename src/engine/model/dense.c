/* The architectures without experts: what their keys say beside what all architectures have, and their rows. */
#include "base/math.h"
#include "model/architecture.h"

/* In the 27B models of Gemma, which llama.cpp knows by their number of layers, scores are divided by sqrt(n_embd /
 * n_head). */
static plumb_status set_27b_scale(struct key_reader *r, struct plan *p, uint32_t n_layer) {
    uint32_t width = p->n_embd / p->layers[0].attn.n_head;
    if (p->n_layer != n_layer) return PLUMB_OK;
    if (width == 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, more than the embedding length %u",
                         key_of(r, "attention.head_count"), p->layers[0].attn.n_head, p->n_embd);
    }
    for (uint32_t il = 0; il < n_layer; il++) p->layers[il].attn.scale = 1.0f / (float)math_sqrt(width);
    return PLUMB_OK;
}

static plumb_status plan_gemma3(struct key_reader *r, struct plan *p) {
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    PLUMB_TRY(key_scale(r, "final_logit_softcapping", &p->logit_softcap));
    PLUMB_TRY(set_27b_scale(r, p, 62));
    return plan_windows(r, p, 6, 0, 10000.0f);
}

static plumb_status plan_gemma(struct key_reader *r, struct plan *p) {
    (void)r;
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    return PLUMB_OK;
}

static plumb_status plan_gemma2(struct key_reader *r, struct plan *p) {
    float softcap = 50.0f;
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    p->logit_softcap = 30.0f;
    PLUMB_TRY(key_scale(r, "final_logit_softcapping", &p->logit_softcap));
    PLUMB_TRY(key_scale(r, "attn_logit_softcapping", &softcap));
    PLUMB_TRY(plan_like_windows(r, p, 2, 4096));
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.softcap = softcap;
    return set_27b_scale(r, p, 46);
}

/* Every fourth layer has no RoPE. */
static plumb_status plan_smollm3(struct key_reader *r, struct plan *p) {
    (void)r;
    for (uint32_t il = 3; il < p->n_layer; il += 4) p->layers[il].attn.rope = ROPE_NONE;
    return PLUMB_OK;
}

static plumb_status plan_qwen(struct key_reader *r, struct plan *p) {
    (void)r;   /* the key has twice the width */
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].ffn.n_ff /= 2;
    return PLUMB_OK;
}

/* A reranker's head reads the last token and ends in a softmax. */
static plumb_status plan_qwen3(struct key_reader *r, struct plan *p) {
    (void)r;
    p->pooling.rank_of = PLUMB_POOLING_LAST;
    p->pooling.rank_softmax = true;
    return PLUMB_OK;
}

static plumb_status plan_late_qk_norm(struct key_reader *r, struct plan *p) {
    (void)r;
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.qk_norm = QK_NORM_HEAD_ROPED;
    return PLUMB_OK;
}

static plumb_status plan_seed_oss(struct key_reader *r, struct plan *p) {
    (void)r;
    p->names[W_FFN_NORM] = "post_attention_norm";
    return PLUMB_OK;
}

/* Layers with windows have the same base, but no scaling. */
static plumb_status plan_olmo2(struct key_reader *r, struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.qk_norm = QK_NORM_ROW;
    PLUMB_TRY(plan_windows(r, p, 4, 0, 10000.0f));
    p->ropes[ROPE_LOCAL].freq_base = p->ropes[ROPE_GLOBAL].freq_base;
    return PLUMB_OK;
}

static plumb_status plan_olmo(struct key_reader *r, struct plan *p) {
    p->bare_norms = NORMS | SET(OUTPUT_NORM);
    return key_limit(r, "attention.clamp_kqv", &p->clamp_qkv);
}

static plumb_status plan_gptneox(struct key_reader *r, struct plan *p) {
    return gguf_get_bool(r->gguf, key_of(r, "use_parallel_residual"), &p->is_parallel, r->err);
}

/* The key logit_scale is a factor here, not a divisor. */
static plumb_status plan_command_r(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_logit_factor(r, p, 1.0f));
    return plan_parallel(r, p);
}

/* ALiBi by number of layers: 7B has RoPE, 13B has ALiBi, and others have neither, as in llama.cpp. */
static plumb_status plan_baichuan(struct key_reader *r, struct plan *p) {
    (void)r;
    if (p->n_layer != 32) plan_set_alibi(p, p->n_layer == 40 ? 8.0f : 0.0f);
    return PLUMB_OK;
}

static plumb_status plan_bloom(struct key_reader *r, struct plan *p) {
    (void)r;
    plan_set_alibi(p, 8.0f);
    return PLUMB_OK;
}

/* llama.cpp loads experts and does not use them. */
static plumb_status plan_refact(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias",
                                          "rope_freqs.weight", NULL };
    p->unused = unused;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (key_tensor(r, il, "ffn_gate_inp.weight")) plan_set_bare(p, &p->layers[il]);
    }
    return plan_bloom(r, p);
}

static plumb_status plan_jais(struct key_reader *r, struct plan *p) {
    float max = 0.0f;
    PLUMB_TRY(key_limit(r, "attention.max_alibi_bias", &max));
    plan_set_alibi(p, max);
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.scale = 1.0f / (float)p->layers[il].attn.k_dim;
    return PLUMB_OK;
}

static plumb_status plan_mpt(struct key_reader *r, struct plan *p) {
    float max = 0.0f;
    PLUMB_TRY(key_limit(r, "attention.max_alibi_bias", &max));
    plan_set_alibi(p, max);
    plan_set_qk_norm(p, QK_NORM_ROW);
    if (!key_tensor(r, 0, "attn_q_norm.weight")) {   /* llama.cpp ignores the norm of K then */
        static const char *const unused[] = { "attn_k_norm.weight", "attn_k_norm.bias", NULL };
        p->optional &= ~QK_NORM;
        p->unused = unused;
    }
    return key_limit(r, "attention.clamp_kqv", &p->clamp_qkv);
}

/* Learned positions take the place of RoPE. */
static plumb_status plan_positions(struct key_reader *r, struct plan *p) {
    (void)r;
    plan_set_alibi(p, 0.0f);
    return PLUMB_OK;
}

/* Liquid AI 2025, "LFM2 Technical Report".  Of the layers with attention all have a window, or none. */
static plumb_status plan_lfm2(struct key_reader *r, struct plan *p) {
    uint32_t window = 0;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "attention.sliding_window"), &window, r->err));
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.window = window;
    return plan_convolutions(r, p);
}

static plumb_status plan_cohere2(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_windows(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base));
    plan_rotate_windows_only(p);
    return plan_command_r(r, p);
}

/* Every token sees the whole batch. */
static plumb_status plan_diffusion(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "output.bias", "rope_freqs.weight", "attn_output.bias", "ffn_gate.bias",
                                          "ffn_up.bias", "ffn_down.bias", NULL };
    (void)r;
    p->unused = unused;
    plan_set_causal(p, false);
    return PLUMB_OK;
}

static plumb_status plan_exaone4(struct key_reader *r, struct plan *p) {
    if (p->n_layer != 64) return PLUMB_OK;   /* only the 32B models have windows, as in llama.cpp */
    PLUMB_TRY(plan_windows(r, p, 4, 4096, p->ropes[ROPE_GLOBAL].freq_base));
    plan_rotate_windows_only(p);
    return PLUMB_OK;
}

/* In the 40B models attention has a norm of its own, and attn_norm is that of the feed-forward network. */
static plumb_status plan_falcon(struct key_reader *r, struct plan *p) {
    if (!key_tensor(r, 0, "attn_norm_2.weight")) return plan_parallel(r, p);
    p->required |= SET(FFN_NORM);
    p->names[W_ATTN_NORM] = "attn_norm_2";
    p->names[W_FFN_NORM] = "attn_norm";
    return plan_parallel(r, p);
}

static plumb_status plan_glm4(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_sections(r, p, false));
    if (p->ropes[ROPE_GLOBAL].sections[0] > 0) p->ropes[ROPE_GLOBAL].pairing = ROPE_NEOX;
    p->has_post_self_attn = true;
    return PLUMB_OK;
}

static plumb_status plan_hunyuan(struct key_reader *r, struct plan *p) {
    float alpha = 0.0f;
    struct rope_plan *rope = &p->ropes[ROPE_GLOBAL];
    double k_dim = p->layers[0].attn.k_dim;
    plan_set_qk_norm(p, QK_NORM_HEAD_ROPED);
    PLUMB_TRY(key_limit(r, "rope.scaling.alpha", &alpha));
    double base = (double)rope->freq_base;
    if (alpha > 0.0f && k_dim > 2) base *= math_pow((double)alpha, k_dim / (k_dim - 2));
    if (!(base >= 1 && base <= 1e12)) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %g, which makes the frequency base %g", r->key,
                         (double)alpha, base);
    }
    rope->freq_base = (float)base;
    return PLUMB_OK;
}

static plumb_status plan_hunyuan_vl(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_hunyuan(r, p));
    return plan_sections(r, p, false);
}

static plumb_status plan_paddleocr(struct key_reader *r, struct plan *p) { return plan_sections(r, p, true); }

/* llama.cpp reads no epsilon. */
static plumb_status plan_qwen2vl(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "output.bias", NULL };
    p->unused = unused;
    p->norm_eps = 0.0f;
    return plan_sections(r, p, true);
}

static plumb_status plan_qwen3vl(struct key_reader *r, struct plan *p) {
    p->ropes[ROPE_GLOBAL].sections_interleaved = true;
    PLUMB_TRY(plan_qwen3(r, p));
    return plan_sections(r, p, true);
}

/* Qwen 3.5, 2026 */
plumb_status plan_qwen35(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_delta_nets(r, p));
    p->names[W_FFN_NORM] = "post_attention_norm";
    p->ropes[ROPE_GLOBAL].sections_interleaved = true;
    return plan_sections(r, p, true);
}

/* Google 2025, "Gemma 3n".  Where keys are missing, the numbers are those that llama.cpp has. */
static plumb_status plan_gemma3n(struct key_reader *r, struct plan *p) {
    const struct gguf_tensor *laurel = key_tensor(r, 0, "laurel_l.weight");
    uint32_t active = 0, window = 0, n_own = 20;
    p->n_stream = 4;
    p->logit_softcap = 30.0f;
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    p->bare_norms = SET(ATTN_V_NORM);
    p->n_narrow = laurel && laurel->shape[1] > 0 && laurel->shape[1] <= 1u << 16 ? (uint32_t)laurel->shape[1] : 64;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "altup.active_idx"), &active, r->err));
    if (active != 0) return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s is %u, expected 0", r->key, active);
    PLUMB_TRY(key_count(r, "altup.num_inputs", 64, &p->n_stream));
    if (p->n_stream < 2) return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is 1, expected at least 2", r->key);
    PLUMB_TRY(key_scale(r, "final_logit_softcapping", &p->logit_softcap));
    PLUMB_TRY(key_count(r, "attention.sliding_window", UINT32_MAX, &window));
    PLUMB_TRY(plan_windows(r, p, 5, window, 10000.0f));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->attn.scale = 1.0f;
        l->ffn.sparsity = il < 10 ? 1.6448533535003662f : 0.0f;   /* 95 % of a normal distribution are below it */
        PLUMB_TRY(key_number(r, key_of(r, "activation_sparsity_scale"), il, &l->ffn.sparsity));
    }
    PLUMB_TRY(plan_share_kv(r, p, p->n_layer > n_own ? p->n_layer - n_own : 0));
    PLUMB_TRY(plan_per_layer(r, p, 256));
    if (p->n_per_layer > 0) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is 0, expected at least 1", r->key);
}

/* Hu et al. 2024, "MiniCPM", the third generation, with its factors as in llama.cpp */
static plumb_status plan_minicpm3(struct key_reader *r, struct plan *p) {
    p->embedding_scale = 12.0f;
    p->residual_scale = 1.4f / (float)math_sqrt(p->n_layer);
    p->logit_scale = (float)p->n_embd / 256.0f;
    return plan_latent(r, p);
}

static plumb_status plan_unused_freqs(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "rope_freqs.weight", "rope_factors_long.weight",
                                          "rope_factors_short.weight", NULL };
    (void)r;
    p->unused = unused;
    return PLUMB_OK;
}

static plumb_status plan_stablelm(struct key_reader *r, struct plan *p) {
    plan_set_qk_norm(p, QK_NORM_HEADS);
    p->is_parallel = !key_tensor(r, 0, "ffn_norm.weight");
    return PLUMB_OK;
}

static double softplus(double z) { return z > 20 ? z : math_log(1 + math_exp(z)); }

static plumb_status plan_apertus(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "attn_q_norm.bias", "attn_k_norm.bias", NULL };
    p->unused = unused;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        float alpha_n = 1e7f, alpha_p = 1e7f, beta = 1e7f, eps = 1e7f;   /* refused, so the keys must be there */
        PLUMB_TRY(key_number(r, "xielu.alpha_n", il, &alpha_n));
        PLUMB_TRY(key_number(r, "xielu.alpha_p", il, &alpha_p));
        PLUMB_TRY(key_number(r, "xielu.beta", il, &beta));
        PLUMB_TRY(key_number(r, "xielu.eps", il, &eps));
        struct ffn_plan *f = &p->layers[il].ffn;
        f->xielu.a = (float)softplus((double)alpha_p);
        f->xielu.b = beta + (float)softplus((double)alpha_n);
        f->xielu.beta = beta;
        f->xielu.eps = eps;
    }
    return PLUMB_OK;
}

/* For texts.  llama.cpp rotates with a fixed base, whatever the keys say. */
static plumb_status plan_cogvlm(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "vis_attn_qkv.weight", "vis_attn_output.weight", "vis_gate.weight",
                                          "vis_down.weight", "vis_up.weight", "rope_freqs.weight", NULL };
    struct rope_plan *rope = &p->ropes[ROPE_GLOBAL];
    (void)r;
    p->unused = unused;
    rope->freq_base = 10000.0f;
    rope->freq_scale = rope->magnitude = 1.0f;
    rope->is_yarn = false;
    return PLUMB_OK;
}

static plumb_status plan_spark(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_like_windows(r, p, 1, 0));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.gate = ATTN_GATE_SIGMOID;
        p->layers[il].attn.gate_per_head = true;
    }
    return PLUMB_OK;
}

static plumb_status plan_muse(struct key_reader *r, struct plan *p) {
    p->logit_softcap = 30.0f;
    PLUMB_TRY(key_limit(r, "final_logit_softcapping", &p->logit_softcap));
    PLUMB_TRY(plan_windows(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base));
    PLUMB_TRY(plan_logit_factor(r, p, 1.0f));
    p->bare_norms = SET(TOKEN_EMBD_NORM);
    p->post_norm_eps = 1e-8f;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.gate = ATTN_GATE_SIGMOID;
        if (p->layers[il].attn.window == 0) p->layers[il].attn.rope = ROPE_NONE;
    }
    return PLUMB_OK;
}

static plumb_status plan_plamo3(struct key_reader *r, struct plan *p) {
    p->unsuffixed = POST_NORM;
    return plan_windows(r, p, 8, 0, 10000.0f);
}

/* The blocks of the file are computed several times, with output_norm between. */
static plumb_status plan_nanbeige(struct key_reader *r, struct plan *p) {
    uint32_t n_loop = 1, n_block = p->n_layer;
    bool skips_norm = false;
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "skip_loop_final_norm"), &skips_norm, r->err));
    PLUMB_TRY(key_count(r, "num_loops", 512, &n_loop));
    PLUMB_TRY(plan_repeat(r, p, n_loop));
    for (uint32_t il = n_block; il < p->n_layer && !skips_norm; il += n_block) p->layers[il - 1].ends_loop = true;
    return PLUMB_OK;
}

/* No norm has a weight but that of Q, which has a factor for each head; each layer adds the embedding. */
static plumb_status plan_talkie(struct key_reader *r, struct plan *p) {
    p->bare_norms = NORMS | SET(TOKEN_EMBD_NORM) | SET(ATTN_K_NORM) | SET(OUTPUT_NORM);
    plan_set_qk_norm(p, QK_NORM_GAIN_ROPED);
    return plan_logit_factor(r, p, 1.0f);
}

/* Chameleon Team 2024, "Chameleon", section 2.2: Q and K have layer norms.  The logits of the 8,192 codes of images are
 * left out as in llama.cpp, so that it answers in text. */
static plumb_status plan_chameleon(struct key_reader *r, struct plan *p) {
    bool norms_after = false;   /* Liu et al. 2022, "Swin Transformer V2": in the 34B model */
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "swin_norm"), &norms_after, r->err));
    plan_set_qk_norm(p, QK_NORM_HEADS);
    p->qk_norm_eps = 1e-5f;
    p->hidden_first = 4;
    p->hidden_end = 4 + 8192;
    if (!norms_after) return PLUMB_OK;
    p->steps = steps_norms_after;
    p->required = (p->required & ~NORMS) | POST_NORM;
    p->names[W_ATTN_POST_NORM] = "attn_norm";
    p->names[W_FFN_POST_NORM] = "ffn_norm";
    return PLUMB_OK;
}

/* Granite with adapters that tokens switch on. */
static plumb_status plan_granite_switch(struct key_reader *r, struct plan *p) {
    enum { MAX = 4096 };   /* as in llama.cpp */
    struct switch_plan *s = &p->adapters;
    PLUMB_TRY(plan_granite_rope(r, p));
    s->gain = 15.0f;
    PLUMB_TRY(key_count(r, "adapters.count", MAX, &s->n));
    PLUMB_TRY(key_count(r, "adapters.lora_rank", MAX, &s->n_rank));
    PLUMB_TRY(key_limit(r, "adapters.router_gain", &s->gain));
    for (int i = 0; i < 2; i++) {
        const struct gguf_key **ids = i == 0 ? &s->ids : &s->substitutes;
        const char *suffix = i == 0 ? "adapters.token_ids_activate" : "adapters.token_ids_substitute";
        PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, suffix), ids, r->err));
        if (*ids && (*ids)->n == s->n) continue;
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s has %llu elements for %u adapters", r->key,
                         *ids ? (unsigned long long)(*ids)->n : 0, s->n);
    }
    p->switched = ATTENTION | GATED;
    return PLUMB_OK;
}

/* The output matrix has rows for the 3,072 codes of sound, which are the last tokens. */
static plumb_status plan_qwen3tts(struct key_reader *r, struct plan *p) {
    if (key_tensor_outside(r, "output.weight")) p->n_logit = 3072;
    return plan_qwen3vl(r, p);
}

/* Two stacks of blocks: the low one is computed l_cycles times and then the high one once, all that h_cycles times.
 * block_count is the number of layers that this makes. */
static plumb_status plan_hrm_text(struct key_reader *r, struct plan *p) {
    enum { MAX = PLAN_MAX_REPEATED };
    uint32_t n_block = 0, h_cycles = 0, l_cycles = 0;
    PLUMB_TRY(key_scale(r, "embedding_scale", &p->embedding_scale));
    PLUMB_TRY(key_count(r, "hrm.layers_per_stack", MAX, &n_block));
    PLUMB_TRY(key_count(r, "hrm.h_cycles", MAX, &h_cycles));
    PLUMB_TRY(key_count(r, "hrm.l_cycles", MAX, &l_cycles));
    if (n_block * h_cycles * (l_cycles + 1) != p->n_layer) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s.hrm.layers_per_stack is %u, but %u times %u stacks of "
                         "that are not the %u layers", r->architecture, n_block, h_cycles, l_cycles + 1, p->n_layer);
    }
    p->bare_norms = NORMS | SET(OUTPUT_NORM);
    p->unsuffixed = SET(STATE_INIT);
    const struct layer_plan same = p->layers[0];   /* layers with the same weights have the same shapes */
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        bool is_high = il / n_block % (l_cycles + 1) == l_cycles;
        *l = same;
        l->block = il % n_block + (is_high ? n_block : 0);
        l->attn.gate = ATTN_GATE_SIGMOID;
        l->ends_loop = (il + 1) % n_block == 0 && il + 1 < p->n_layer;
        if (l->ends_loop) l->state = is_high ? STATE_HIGH : STATE_LOW;
    }
    return PLUMB_OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

const struct architecture plan_dense_rows[] = {
    { "qwen", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED,
      plan_qwen },
    { "qwen2", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, ATTENTION_BIAS | SET(OUTPUT), SCALED,
      NULL },
    { "qwen3", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED | SET(CLS_OUTPUT), QKV_BIAS, SCALED
      | GATED, plan_qwen3 },
    { "gemma", steps_block, ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE, SET(ATTN_QKV), QKV_BIAS, SCALED, plan_gemma },
    { "gemma2", steps_block, ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE | POST_NORM, SET(ATTN_QKV), QKV_BIAS, SCALED,
      plan_gemma2 },
    { "gemma3", steps_block, ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE | QK_NORM | POST_NORM, TIED, QKV_BIAS, SCALED,
      plan_gemma3 },
    { "gemma3n", steps_altup, ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE | QK_NORM | POST_NORM | PER_LAYER | ALTUP
      | LAUREL, TIED, QKV_BIAS, SCALED, plan_gemma3n },
    { "smollm3", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_smollm3 },
    { "internlm2", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, NULL },
    { "xverse", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, NULL },
    { "exaone", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, QKV_BIAS, SCALED, NULL },
    { "ernie4_5", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_unused_bias },
    { "maincoder", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED,
      plan_late_qk_norm },
    { "hunyuan-dense", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED,
      plan_hunyuan },
    { "seed_oss", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_seed_oss },
    { "pangu-embedded", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, ATTENTION_BIAS, SCALED,
      plan_unused_freqs },
    { "arcee", steps_block, ROPE_NORM, NORM_RMS, ACT_RELU_SQR, PLAIN, TIED | FREQS, QKV_BIAS, SCALED, NULL },
    { "olmo2", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, ENDS | SET(OUTPUT) | ATTENTION | GATED | QK_NORM | POST_NORM,
      SET(ATTN_QKV), QKV_BIAS, SCALED, plan_olmo2 },
    { "olmo", steps_block, ROPE_NORM, NORM_LAYER, ACT_SILU, SET(TOKEN_EMBD) | ATTENTION | GATED, TIED, QKV_BIAS, SCALED,
      plan_olmo },
    { "orion", steps_block, ROPE_NEOX, NORM_LAYER, ACT_SILU, DENSE, TIED, QKV_BIAS | NORM_BIAS, SCALED, NULL },
    { "starcoder2", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN, TIED, ATTENTION_BIAS | FFN | NORM_BIAS,
      SCALED, NULL },
    { "phi2", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, (PLAIN & ~SET(FFN_NORM)) | SET(OUTPUT), SET(ATTN_QKV),
      ATTENTION_BIAS | FFN | NORM_BIAS | SET(OUTPUT), SCALED, plan_parallel },
    { "falcon", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN & ~SET(FFN_NORM), TIED, NORM_BIAS, SCALED,
      plan_falcon },
    { "gptneox", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(OUTPUT), SET(ATTN_QKV), ATTENTION_BIAS
      | FFN | NORM_BIAS, SCALED, plan_gptneox },
    { "command-r", steps_block, ROPE_NORM, NORM_LAYER, ACT_SILU, DENSE & ~SET(FFN_NORM), SET(ATTN_QKV), QKV_BIAS,
      SCALED, plan_command_r },
    { "nemotron", steps_block, ROPE_NEOX, NORM_LAYER, ACT_RELU_SQR, PLAIN | SET(OUTPUT), SET(ATTN_QKV), ATTENTION_BIAS
      | FFN | NORM_BIAS, SCALED, NULL },
    { "apertus", steps_block, ROPE_NEOX, NORM_RMS, ACT_XIELU, PLAIN | QK_NORM | SET(OUTPUT), SET(ATTN_QKV) | FACTORS,
      ATTENTION_BIAS, SCALED, plan_apertus },
    { "bitnet", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | SET(ATTN_SUB_NORM) | SET(FFN_SUB_NORM), 0, 0,
      ATTENTION | GATED, NULL },
    { "cogvlm", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, 0, SET(ATTN_OUTPUT), plan_cogvlm },
    { "baichuan", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED,
      plan_baichuan },
    { "bloom", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(TOKEN_EMBD_NORM), TIED, ALL_BIAS
      | SET(TOKEN_EMBD_NORM), SCALED, plan_bloom },
    { "chatglm", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | SET(FFN_GATE_UP), TIED, QKV_BIAS, SCALED, NULL },
    { "codeshell", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(OUTPUT), SET(ATTN_QKV), ALL_BIAS,
      SCALED, NULL },
    { "cohere2", steps_block, ROPE_NORM, NORM_LAYER, ACT_SILU, DENSE & ~SET(FFN_NORM), SET(ATTN_QKV), QKV_BIAS, SCALED
      | GATED, plan_cohere2 },
    { "deci", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED | FACTORS, ATTENTION_BIAS | GATED, SCALED, NULL },
    { "dream", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_diffusion },
    { "exaone4", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, ENDS | ATTENTION | GATED | QK_NORM | POST_NORM, TIED
      | FREQS, QKV_BIAS, SCALED, plan_exaone4 },
    { "glm4", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | SET(FFN_GATE_UP) | POST_NORM, TIED, QKV_BIAS, SCALED,
      plan_glm4 },
    { "gpt2", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(POSITION_EMBD), TIED, ALL_BIAS, SCALED,
      plan_positions },
    { "hunyuan_vl", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED,
      plan_hunyuan_vl },
    { "jais", steps_block, ROPE_NEOX, NORM_LAYER, ACT_SILU, DENSE | SET(OUTPUT), SET(ATTN_QKV), ALL_BIAS | GATED,
      SCALED, plan_jais },
    { "jais2", steps_block, ROPE_NEOX, NORM_LAYER, ACT_RELU_SQR, PLAIN, TIED, ALL_BIAS, SCALED, NULL },
    { "llada", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_diffusion },
    { "mpt", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN, TIED | SET(POSITION_EMBD) | QK_NORM
      | SET(FFN_ACT_SCALES), ALL_BIAS | QK_NORM, SCALED, plan_mpt },
    { "muse-glimmer", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | SET(OUTPUT) | POST_NORM | QK_NORM
      | SET(ATTN_GATE), SET(ATTN_QKV), QKV_BIAS, SCALED, plan_muse },
    { "openelm", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, SET(ATTN_QKV), 0, SET(ATTN_OUTPUT),
      NULL },
    { "paddleocr", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, ATTENTION_BIAS, SCALED, plan_paddleocr },
    { "phi3", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | SET(FFN_GATE_UP), TIED | SET(ROPE_LONG)
      | SET(ROPE_SHORT), QKV_BIAS, SCALED, NULL },
    { "plamo", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, (DENSE & ~SET(FFN_NORM)) | SET(OUTPUT), SET(ATTN_QKV),
      QKV_BIAS, SCALED, plan_parallel },
    { "pockettts", steps_block, ROPE_NORM, NORM_LAYER, ACT_GELU_TANH, PLAIN, SET(ATTN_QKV), QKV_BIAS | NORM_BIAS,
      SCALED, NULL },
    { "qwen2vl", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_qwen2vl },
    { "qwen3vl", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED | SET(CLS_OUTPUT), QKV_BIAS, SCALED,
      plan_qwen3vl },
    { "refact", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_refact },
    { "spark2_5", steps_block, ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE | SET(ATTN_GATE), TIED, QKV_BIAS, SCALED,
      plan_spark },
    { "stablelm", steps_block, ROPE_NEOX, NORM_LAYER, ACT_SILU, (DENSE & ~SET(FFN_NORM)) | SET(OUTPUT), SET(ATTN_QKV)
      | SET(FFN_NORM) | QK_NORM, QKV_BIAS | NORM_BIAS, SCALED, plan_stablelm },
    { "starcoder", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(POSITION_EMBD), TIED, ALL_BIAS,
      SCALED, plan_positions },
    { "plamo3", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | SET(FFN_GATE_UP) | QK_NORM | POST_NORM, TIED, 0,
      SET(ATTN_OUTPUT), plan_plamo3 },
    { "nanbeige", steps_loop, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, QKV_BIAS, SCALED | GATED,
      plan_nanbeige },
    { "talkie", steps_add_embeddings, ROPE_NEOX, NORM_RMS, ACT_SILU, SET(TOKEN_EMBD) | SET(OUTPUT) | ATTENTION | GATED
      | SET(ATTN_Q_NORM) | SET(LAYER_OUT_SCALE), SET(ATTN_QKV), QKV_BIAS, SCALED | SET(FFN_DOWN), plan_talkie },
    { "chameleon", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS | QK_NORM, SCALED,
      plan_chameleon },
    { "graniteswitch", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, 0, 0, plan_granite_switch },
    { "qwen3tts", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED | SET(CLS_OUTPUT), QKV_BIAS, SCALED,
      plan_qwen3tts },
    { "hrm_text", steps_loop, ROPE_NEOX, NORM_RMS, ACT_SILU, SET(TOKEN_EMBD) | SET(STATE_INIT) | ATTENTION | GATED
      | SET(ATTN_GATE), TIED, QKV_BIAS, SCALED, plan_hrm_text },
    { "lfm2", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM | CONVOLUTION, TIED, QKV_BIAS, SCALED,
      plan_lfm2 },
    { "minicpm3", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE_LATENT | GATED, SET(OUTPUT) | FACTORS, 0,
      SET(ATTN_OUTPUT), plan_minicpm3 },
    { "plm", steps_block, ROPE_NORM, NORM_RMS, ACT_RELU_SQR, DENSE_LATENT | FFN, 0, 0, SET(ATTN_OUTPUT), plan_latent },
    { "qwen35", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM | DELTA_NET | BETA_ALPHA, SET(OUTPUT),
      QKV_BIAS | SET(DELTA_DT), SCALED | GATED | DELTA_NET_SCALED, plan_qwen35 },
    { .name = NULL },
};

/* The architectures of which some models have experts: what their keys say beside what all architectures have, and
 * their rows. */
#include "base/math.h"
#include "model/architecture.h"

/* The muP factors of Granite (Yang et al. 2022, "Tensor Programs V"), as in llama.cpp. */
static plumb_status plan_granite(struct key_reader *r, struct plan *p) {
    float attention_scale = 0.0f;
    PLUMB_TRY(key_scale(r, "embedding_scale", &p->embedding_scale));
    PLUMB_TRY(key_scale(r, "residual_scale", &p->residual_scale));
    PLUMB_TRY(key_scale(r, "attention.scale", &attention_scale));
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.scale = attention_scale;
    p->logit_scale = 0.0f;
    PLUMB_TRY(key_scale(r, "logit_scale", &p->logit_scale));
    if (p->logit_scale == 0.0f) {   /* logits are divided by it */
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing or 0", r->key);
    }
    return PLUMB_OK;
}

static plumb_status plan_minicpm(struct key_reader *r, struct plan *p) {
    p->embedding_scale = 12.0f;
    p->residual_scale = 1.4f / (float)math_sqrt(p->n_layer);
    p->logit_scale = 256.0f / (float)p->n_embd;
    PLUMB_TRY(key_scale(r, "embedding_scale", &p->embedding_scale));
    PLUMB_TRY(key_scale(r, "residual_scale", &p->residual_scale));
    return key_scale(r, "logit_scale", &p->logit_scale);
}

static plumb_status plan_granite_moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = 0;
    PLUMB_TRY(plan_granite(r, p));
    plan_use_n_ff(p);
    plan_sum_to_1(p);
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    plan_set_shared(p, n_ff);
    return PLUMB_OK;
}

/* llama.cpp reads this key as "the model has RoPE", only in this architecture. */
plumb_status plan_granite_rope(struct key_reader *r, struct plan *p) {
    bool has_rope = true;
    PLUMB_TRY(plan_granite_moe(r, p));
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "rope.scaling.finetuned"), &has_rope, r->err));
    for (uint32_t il = 0; !has_rope && il < p->n_layer; il++) p->layers[il].attn.rope = ROPE_NONE;
    return PLUMB_OK;
}

static plumb_status plan_granite_swa(struct key_reader *r, struct plan *p) {
    const struct gguf_key *rotated;
    PLUMB_TRY(plan_granite_moe(r, p));
    PLUMB_TRY(plan_windows(r, p, 1, 0, p->ropes[ROPE_GLOBAL].freq_base));
    PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, "attention.rope_pattern"), &rotated, r->err));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        bool has_rope = !rotated || il >= rotated->n || gguf_flag(rotated, il);
        p->layers[il].attn.rope = has_rope ? ROPE_GLOBAL : ROPE_NONE;
    }
    return PLUMB_OK;
}

plumb_status plan_llama(struct key_reader *r, struct plan *p) {
    (void)r;
    plan_use_n_ff(p);
    plan_sum_to_1(p);
    plan_set_shared(p, 0);
    return PLUMB_OK;
}

static plumb_status plan_minicpm_moe(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_llama(r, p));
    return plan_minicpm(r, p);
}

/* Q is multiplied by a factor that grows with the position. */
static plumb_status plan_mistral3(struct key_reader *r, struct plan *p) {
    float scale = 0.0f;
    PLUMB_TRY(plan_llama(r, p));
    PLUMB_TRY(key_scale(r, "rope.scaling.yarn_beta_fast", &r->beta_fast));
    PLUMB_TRY(key_scale(r, "rope.scaling.yarn_beta_slow", &r->beta_slow));
    PLUMB_TRY(key_scale(r, "rope.scaling.yarn_log_multiplier", &r->log_factor));
    PLUMB_TRY(key_scale(r, "attention.temperature_scale", &scale));
    for (uint32_t il = 0; scale != 0.0f && il < p->n_layer; il++) {
        p->layers[il].attn.temperature_scale = scale;
        p->layers[il].attn.temperature_floor = p->n_ctx_original;
    }
    return PLUMB_OK;
}

static plumb_status plan_qwen2moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = p->layers[0].ffn.n_ff;
    PLUMB_TRY(plan_narrow_experts(r, p));
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", n_ff, &n_ff));
    plan_set_shared(p, n_ff);
    return PLUMB_OK;
}

static plumb_status plan_qwen3moe(struct key_reader *r, struct plan *p) {
    plan_sum_to_1(p);
    return plan_narrow_experts(r, p);
}

static plumb_status plan_qwen3vlmoe(struct key_reader *r, struct plan *p) {
    p->ropes[ROPE_GLOBAL].sections_interleaved = true;
    PLUMB_TRY(plan_qwen3moe(r, p));
    return plan_sections(r, p, true);
}

static plumb_status plan_rnd1(struct key_reader *r, struct plan *p) {
    plan_set_causal(p, false);
    return plan_qwen3moe(r, p);
}

static plumb_status plan_llada_moe(struct key_reader *r, struct plan *p) {
    plan_set_causal(p, false);
    return plan_narrow_experts(r, p);
}

static plumb_status plan_olmoe(struct key_reader *r, struct plan *p) {
    (void)r;
    plan_use_n_ff(p);
    plan_set_qk_norm(p, QK_NORM_ROW);
    return PLUMB_OK;
}

static plumb_status plan_phimoe(struct key_reader *r, struct plan *p) {
    (void)r;
    plan_use_n_ff(p);
    plan_sum_to_1(p);
    return PLUMB_OK;
}

static plumb_status plan_deepseek(struct key_reader *r, struct plan *p) {
    float scale = 1.0f;
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(key_scale(r, "expert_weights_scale", &scale));
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].ffn.weights_scale = scale;
    return plan_shared(r, p, 0, p->layers[p->n_layer - 1].ffn.n_ff_expert);
}

/* Its RoPE has no keys: llama.cpp asserts this base and uses no scaling. */
static plumb_status plan_deepseek2_ocr(struct key_reader *r, struct plan *p) {
    struct rope_plan *rope = &p->ropes[ROPE_GLOBAL];
    PLUMB_TRY(plan_gating(r, p, GATING_SOFTMAX));
    PLUMB_TRY(plan_dense_lead(r, p));
    if (rope->freq_base != 10000.0f || rope->freq_scale != 1.0f || rope->magnitude != 1.0f) {
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "keys %s.rope: the base is %g, the positions are multiplied "
                         "by %g and the results by %g, expected 10000, 1 and 1", r->architecture,
                         (double)rope->freq_base, (double)rope->freq_scale, (double)rope->magnitude);
    }
    rope->n_rot = p->layers[0].attn.k_dim;
    return plan_shared(r, p, 0, p->layers[p->n_layer - 1].ffn.n_ff_expert);
}

/* attn_output_norm is the norm before the experts. */
static plumb_status plan_dbrx(struct key_reader *r, struct plan *p) {
    p->names[W_FFN_NORM] = "attn_output_norm";
    plan_use_n_ff(p);
    plan_sum_to_1(p);
    return key_limit(r, "attention.clamp_kqv", &p->clamp_qkv);
}

static plumb_status plan_ernie_moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = 0, step = 1;
    PLUMB_TRY(plan_unused_bias(r, p));
    plan_sum_to_1(p);
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(key_count(r, "interleave_moe_layer_step", 1u << 16, &step));
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    plan_set_shared(p, n_ff);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (p->layers[il].ffn.n_expert > 0 && (il + 1) % step != 0) plan_set_bare(p, &p->layers[il]);
    }
    return PLUMB_OK;
}

/* Layers with windows have no scaling. */
static plumb_status plan_mellum(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_qwen3moe(r, p));
    PLUMB_TRY(plan_windows(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base));
    p->ropes[ROPE_LOCAL].freq_base = p->ropes[ROPE_GLOBAL].freq_base;
    p->ropes[ROPE_LOCAL].is_yarn = false;
    p->ropes[ROPE_LOCAL].magnitude = 1.0f;
    return PLUMB_OK;
}

/* Experts whose gate and up projection are limited; only layers with windows are rotated. */
static plumb_status plan_maple(struct key_reader *r, struct plan *p) {
    plan_sum_to_1(p);
    PLUMB_TRY(plan_like_windows(r, p, 1, 0));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->ffn.limit = 1e7f;   /* refused, so the key must be there */
        PLUMB_TRY(key_swiglu_limit(r, "swiglu_clamp_exp", il, &l->ffn.limit));
        if (l->attn.window == 0) l->attn.rope = ROPE_NONE;
    }
    return PLUMB_OK;
}

/* Three of four layers see only their chunk of 8,192 tokens; the fourth is not rotated, and its Q grows with the
 * position.  These numbers are llama.cpp's. */
static plumb_status plan_llama4(struct key_reader *r, struct plan *p) {
    uint32_t step = 0;
    PLUMB_TRY(key_count(r, "interleave_moe_layer_step", 1u << 16, &step));
    PLUMB_TRY(plan_like_windows(r, p, 4, 8192));
    plan_set_qk_norm(p, QK_NORM_HEAD_ROPED);
    if (p->layers[0].ffn.n_expert != 128) p->bare_norms = QK_NORM;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->ffn.gating = GATING_SIGMOID;
        l->ffn.weights_first = true;
        if ((il + 1) % step != 0) plan_set_dense(l);
        if (l->attn.window > 0) l->attn.window = 8192;
        l->attn.is_chunked = true;
        if ((il + 1) % 4 != 0) continue;
        l->without |= QK_NORM;
        l->attn.rope = ROPE_NONE;
        l->attn.temperature_scale = 0.1f;
        l->attn.temperature_floor = 8192;
        l->attn.temperature_offset = 1;
    }
    plan_set_shared(p, p->layers[p->n_layer - 1].ffn.n_ff_expert);
    return PLUMB_OK;
}

static plumb_status plan_gpt_oss(struct key_reader *r, struct plan *p) {
    p->names[W_FFN_NORM] = "post_attention_norm";
    PLUMB_TRY(plan_like_windows(r, p, 2, 0));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].ffn.gating = GATING_SOFTMAX_USED;
        p->layers[il].ffn.limit = 7;
    }
    return PLUMB_OK;
}

static plumb_status plan_bailingmoe(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_gating(r, p, GATING_SOFTMAX));
    return plan_shared(r, p, 0, p->layers[0].ffn.n_ff_expert);
}

/* The width of the shared expert is the key's, times their number. */
static plumb_status plan_bailingmoe2(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = p->layers[p->n_layer - 1].ffn.n_ff_expert;
    PLUMB_TRY(plan_gating(r, p, 0));
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", n_ff, &n_ff));
    return plan_shared(r, p, 0, n_ff);
}

static plumb_status plan_hunyuan_moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = p->layers[0].ffn.n_ff;
    plan_use_n_ff(p);
    plan_sum_to_1(p);
    plan_set_qk_norm(p, QK_NORM_HEAD_ROPED);
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", n_ff, &n_ff));
    plan_set_shared(p, n_ff);
    return PLUMB_OK;
}

static plumb_status plan_dots1(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_gating(r, p, 0));
    PLUMB_TRY(plan_dense_lead(r, p));
    return plan_shared(r, p, 0, p->layers[p->n_layer - 1].ffn.n_ff_expert);
}

/* The window is 4,096, whatever the key says; the first of four layers has none and is not rotated. */
static plumb_status plan_smallthinker(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_gating(r, p, 0));
    PLUMB_TRY(plan_pattern(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base, true));
    p->ropes[ROPE_LOCAL].freq_scale = p->ropes[ROPE_GLOBAL].freq_scale;
    bool has_windows = false;
    for (uint32_t il = 0; il < p->n_layer; il++) has_windows = has_windows || p->layers[il].attn.window > 0;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->ffn.weights_sum_to_1 = true;
        l->ffn.weights_scale = 1.0f;
        if (l->attn.window > 0) l->attn.window = 4096;
        if (has_windows && p->n_layer != 4 && il % 4 == 0) l->attn.rope = ROPE_NONE;
    }
    return PLUMB_OK;
}

static plumb_status plan_afmoe(struct key_reader *r, struct plan *p) {
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    PLUMB_TRY(plan_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(plan_like_windows(r, p, 4, 0));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.gate = ATTN_GATE_SIGMOID;
        if ((il + 1) % 4 == 0) p->layers[il].attn.rope = ROPE_NONE;
    }
    return plan_shared(r, p, 0, p->layers[p->n_layer - 1].ffn.n_ff_expert);
}

static plumb_status plan_laguna(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = p->layers[p->n_layer - 1].ffn.n_ff_expert;
    PLUMB_TRY(plan_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(plan_pattern(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base, true));
    p->ropes[ROPE_LOCAL].is_yarn = false;
    p->ropes[ROPE_LOCAL].magnitude = 1.0f;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct gguf_tensor *gate = key_tensor(r, il, "attn_gate.weight");
        p->layers[il].attn.gate = ATTN_GATE_SOFTPLUS;
        p->layers[il].attn.gate_per_head = gate && gate->shape[1] == p->layers[il].attn.n_head;
    }
    PLUMB_TRY(plan_shared(r, p, 1, n_ff));
    n_ff = 0;
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    if (n_ff > 0) plan_set_shared(p, n_ff);
    return PLUMB_OK;
}

static plumb_status plan_exaone_moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = p->layers[p->n_layer - 1].ffn.n_ff_expert;
    PLUMB_TRY(plan_gating(r, p, 0));
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(plan_windows(r, p, 4, 128, p->ropes[ROPE_GLOBAL].freq_base));
    plan_rotate_windows_only(p);
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", n_ff, &n_ff));
    plan_set_shared(p, n_ff);
    return PLUMB_OK;
}

static plumb_status plan_glm4moe(struct key_reader *r, struct plan *p) {
    p->names[W_FFN_NORM] = "post_attention_norm";
    PLUMB_TRY(plan_narrow_experts(r, p));
    PLUMB_TRY(plan_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(plan_sections(r, p, false));
    return plan_shared(r, p, 0, p->layers[p->n_layer - 1].ffn.n_ff_expert);
}

static plumb_status plan_minimax_m2(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_gating(r, p, 0));
    plan_use_n_ff(p);
    plan_set_qk_norm(p, QK_NORM_ROW);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].ffn.weights_sum_to_1 = true;
        p->layers[il].ffn.weights_scale = 1.0f;
    }
    return PLUMB_OK;
}

static plumb_status plan_mimo2(struct key_reader *r, struct plan *p) {
    float scale = 0.0f;
    plan_dense_by_tensor(r, p);
    PLUMB_TRY(key_scale(r, "attention.value_scale", &scale));
    PLUMB_TRY(plan_windows(r, p, 1, 0, 10000.0f));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->ffn.gating = GATING_SIGMOID;
        l->ffn.weights_sum_to_1 = true;
        l->attn.output_scale = scale;
    }
    return PLUMB_OK;
}

/* A dense network beside the experts, which is here the expert that all tokens use. */
static void add_dense(struct plan *p, uint64_t n_ff) {
    p->names[W_FFN_GATE_SHARED] = "ffn_gate";
    p->names[W_FFN_UP_SHARED] = "ffn_up";
    p->names[W_FFN_DOWN_SHARED] = "ffn_down";
    plan_set_shared(p, n_ff);
}

/* The experts read another norm of the layer's input; Snowflake 2024. */
static plumb_status plan_arctic(struct key_reader *r, struct plan *p) {
    (void)r;
    plan_use_n_ff(p);
    plan_sum_to_1(p);
    add_dense(p, p->n_embd);
    return PLUMB_OK;
}

/* Google 2026, "Gemma 4".  Layers with a window may have other heads and another RoPE; those without one divide its
 * frequencies by rope_freqs.  Layers with experts have a dense network beside them. */
static plumb_status plan_gemma4(struct key_reader *r, struct plan *p) {
    uint32_t window = 0, k_dim = p->layers[0].attn.k_dim, v_dim = p->layers[0].attn.v_dim;
    PLUMB_TRY(key_count(r, "attention.sliding_window", UINT32_MAX, &window));
    PLUMB_TRY(plan_windows(r, p, 0, window, 10000.0f));
    p->logit_softcap = 30.0f;
    PLUMB_TRY(key_limit(r, "final_logit_softcapping", &p->logit_softcap));
    PLUMB_TRY(key_count(r, "attention.key_length_swa", 1u << 16, &k_dim));
    PLUMB_TRY(key_count(r, "attention.value_length_swa", 1u << 16, &v_dim));
    PLUMB_TRY(key_n_rot(r, "rope.dimension_count_swa", k_dim, &p->ropes[ROPE_LOCAL].n_rot));
    p->ropes[ROPE_LOCAL].has_factors = false;
    p->n_rope_factor = p->layers[0].attn.k_dim / 2;
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    p->bare_norms = SET(ATTN_V_NORM);
    p->names[W_FFN_NORM_EXPS] = "pre_ffw_norm_2";
    add_dense(p, 0);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->attn.scale = 1.0f;
        if (l->attn.window > 0) {
            l->attn.k_dim = k_dim;
            l->attn.v_dim = v_dim;
        } else {
            p->required |= FREQS;
        }
        if (l->attn.k_dim != l->attn.v_dim) {
            return error_set(r->err, PLUMB_ERROR_METADATA, "layer %u has keys of %u elements and values of %u, which "
                             "must be equal", il, l->attn.k_dim, l->attn.v_dim);
        }
        if (!key_tensor(r, il, "ffn_gate_inp.weight")) plan_set_dense(l);
        else if (l->ffn.n_expert > 0) l->without = ALL_DENSE, l->ffn.n_ff_shared = l->ffn.n_ff;
    }
    plan_sum_to_1(p);
    PLUMB_TRY(plan_share_kv(r, p, 0));
    return plan_per_layer(r, p, 0);
}

/* YaRN of Grok 2, in which rope.scaling.yarn_ext_factor says whether there is any. */
static plumb_status read_grok_rope(struct key_reader *r, struct rope_plan *rope) {
    float ext_factor = rope->is_yarn ? 1.0f : 0.0f, magnitude = 1.0f;
    r->beta_fast = 8.0f;
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "rope.scaling.yarn_ext_factor"), &ext_factor, r->err));
    if (ext_factor < 0.0f) ext_factor = rope->is_yarn ? 1.0f : 0.0f;   /* not set, as in llama.cpp */
    if (ext_factor != 0.0f && ext_factor != 1.0f) {
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s is %g, expected 0 or 1", r->key, (double)ext_factor);
    }
    rope->is_yarn = ext_factor == 1.0f;
    PLUMB_TRY(key_scale(r, "rope.scaling.yarn_attn_factor", &magnitude));
    PLUMB_TRY(key_scale(r, "rope.scaling.yarn_beta_fast", &r->beta_fast));
    PLUMB_TRY(key_scale(r, "rope.scaling.yarn_beta_slow", &r->beta_slow));
    if (!rope->is_yarn) rope->magnitude *= magnitude;
    return PLUMB_OK;
}

/* The defaults are those of Grok 1. */
static plumb_status plan_grok(struct key_reader *r, struct plan *p) {
    float scale = 0.08838834764831845f, softcap = 30.0f;
    p->embedding_scale = 78.38367176906169f;
    p->names[W_ATTN_POST_NORM] = "attn_output_norm";
    if (key_tensor(r, 0, "layer_output_norm.weight")) p->names[W_FFN_POST_NORM] = "layer_output_norm";
    plan_sum_to_1(p);
    PLUMB_TRY(key_scale(r, "embedding_scale", &p->embedding_scale));
    PLUMB_TRY(plan_logit_factor(r, p, 0.5773502691896257f));
    PLUMB_TRY(key_scale(r, "attention.output_scale", &scale));
    PLUMB_TRY(key_scale(r, "attn_logit_softcapping", &softcap));
    PLUMB_TRY(key_scale(r, "final_logit_softcapping", &p->logit_softcap));
    add_dense(p, key_tensor(r, 0, "ffn_up.weight") ? p->layers[0].ffn.n_ff : 0);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->attn.scale = scale;
        l->attn.softcap = softcap;
        if (l->ffn.n_ff_shared > 0) l->ffn.output_scale = 0.70710678118654752f;
    }
    return read_grok_rope(r, &p->ropes[ROPE_GLOBAL]);
}

static plumb_status plan_grovemoe(struct key_reader *r, struct plan *p) {
    uint32_t n_each = 0, n_ff = 0, n_expert = p->layers[0].ffn.n_expert;
    float scale = 0.0f;
    PLUMB_TRY(plan_narrow_experts(r, p));
    plan_sum_to_1(p);
    PLUMB_TRY(key_scale(r, "expert_group_scale", &scale));
    PLUMB_TRY(key_width(r, "expert_chunk_feed_forward_length", p->layers[0].attn.k_dim, &n_ff));
    PLUMB_TRY(key_count(r, "experts_per_group", n_expert, &n_each));
    if (n_expert % n_each != 0 || n_expert / n_each < p->layers[0].ffn.n_used) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected a divisor of the %u experts that makes "
                         "at least %u groups", r->key, n_each, n_expert, p->layers[0].ffn.n_used);
    }
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].ffn.n_adjugate = n_expert / n_each;
        p->layers[il].ffn.n_ff_adjugate = n_ff;
        p->layers[il].ffn.adjugate_scale = scale;
    }
    return PLUMB_OK;
}

static plumb_status plan_hy_v3(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = 0;
    plan_dense_by_tensor(r, p);
    p->unsuffixed = SET(FFN_EXPERT_BIAS);
    PLUMB_TRY(plan_narrow_experts(r, p));
    PLUMB_TRY(plan_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", p->layers[p->n_layer - 1].ffn.n_ff_expert, &n_ff));
    plan_set_shared(p, n_ff);
    return PLUMB_OK;
}

/* RMS norms if the key of their epsilon is not 0, else layer norms.  Layers with windows are rotated, and so are the
 * dense ones. */
static plumb_status plan_cohere2moe(struct key_reader *r, struct plan *p) {
    float rms_epsilon = 0.0f;
    uint32_t n_shared = 0, n_ff = 0, n_ff_expert = p->layers[0].ffn.n_ff_expert;
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "attention.layer_norm_rms_epsilon"), &rms_epsilon, r->err));
    p->norm = rms_epsilon == 0.0f ? NORM_LAYER : NORM_RMS;
    PLUMB_TRY(key_epsilon(r, p));
    PLUMB_TRY(plan_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(plan_pattern(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base, true));
    plan_rotate_windows_only(p);
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(plan_shared(r, p, 0, n_ff_expert));
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "expert_shared_count"), &n_shared, r->err));
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    if (n_shared > 0 && n_ff > 0) plan_set_shared(p, n_ff);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        if (l->ffn.n_expert == 0) l->attn.rope = ROPE_LOCAL;
        if (l->ffn.n_ff_shared > 0) l->ffn.output_scale = 0.5f;
    }
    PLUMB_TRY(plan_logit_factor(r, p, 1.0f));
    return plan_parallel(r, p);
}

/* Layers without a window rotate half as many pairs as the others. */
static plumb_status plan_step35(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = 0;
    plan_dense_by_tensor(r, p);
    PLUMB_TRY(plan_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(plan_windows(r, p, 1, 0, 10000.0f));
    p->ropes[ROPE_LOCAL].has_factors = false;
    if (p->ropes[ROPE_GLOBAL].n_rot % 4 != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "%s.rope.dimension_count is %u, expected a multiple of 4",
                         r->architecture, p->ropes[ROPE_GLOBAL].n_rot);
    }
    p->ropes[ROPE_GLOBAL].n_rot /= 2;
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    plan_set_shared(p, n_ff);
    p->n_rope_factor = 0;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        uint32_t n_pair = p->ropes[l->attn.rope].n_rot / 2;
        if (n_pair > p->n_rope_factor) p->n_rope_factor = n_pair;
        if (key_tensor(r, il, "attn_gate.weight")) l->attn.gate = ATTN_GATE_SIGMOID;
        l->attn.gate_per_head = true;
        l->ffn.limit_late = true;
        PLUMB_TRY(key_swiglu_limit(r, "swiglu_clamp_exp", il, &l->ffn.limit));
        PLUMB_TRY(key_swiglu_limit(r, "swiglu_clamp_shexp", il, &l->ffn.limit_shared));
    }
    return PLUMB_OK;
}

static plumb_status plan_lfm2moe(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_gating(r, p, 0));
    PLUMB_TRY(plan_dense_lead(r, p));
    plan_sum_to_1(p);
    return plan_convolutions(r, p);
}

/* Qwen 3.5 with experts, 2026 */
static plumb_status plan_qwen35moe(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_qwen2moe(r, p));
    plan_sum_to_1(p);
    return plan_qwen35(r, p);
}

/* Its feed forward is that of Qwen 3.5.  beta and alpha are one product, and groups of heads share Q and K. */
static plumb_status plan_qwen3next(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "ssm_in.weight", "ssm_in.scale", "ssm_in.input_scale",
                                          "attn_qkv.scale", "attn_gate.scale", "ssm_out.scale", NULL };
    p->unused = unused;
    PLUMB_TRY(plan_qwen2moe(r, p));
    plan_sum_to_1(p);
    p->names[W_FFN_NORM] = "post_attention_norm";
    PLUMB_TRY(plan_delta_nets(r, p));
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].delta.has_groups = true;
    return PLUMB_OK;
}

/* DeepSeek-AI 2024, "DeepSeek-V2".  YaRN enlarges the scores by (1 + 0.1 log_factor ln(s))^2, and RoPE's results by
 * (1 + 0.1 ln(s)) / (1 + 0.1 rope_factor ln(s)).  log_factor is ten times its key, as in llama.cpp. */
static plumb_status plan_latent_experts(struct key_reader *r, struct plan *p, float log_factor, float rope_factor) {
    const struct rope_plan *rope = &p->ropes[ROPE_GLOBAL];
    double ln_s = -math_log((double)rope->freq_scale), score = (double)rope->magnitude;
    float temperature = 0.0f;
    uint32_t floor = 0;
    PLUMB_TRY(plan_gating(r, p, GATING_SOFTMAX));
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(plan_latent(r, p));
    PLUMB_TRY(plan_shared(r, p, 0, p->layers[p->n_layer - 1].ffn.n_ff_expert));
    PLUMB_TRY(key_scale(r, "attention.temperature_scale", &temperature));
    if (temperature != 0.0f) PLUMB_TRY(key_count(r, "attention.temperature_length", UINT32_MAX, &floor));
    if (!rope->is_yarn || ln_s > 0) score *= 1 + 0.1 * ln_s;
    if (rope->is_yarn && ln_s > 0) score /= 1 + 0.1 * (double)rope_factor * ln_s;
    score *= 1 + 0.1 * (double)log_factor * ln_s;
    r->log_factor = rope_factor;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct attn_plan *a = &p->layers[il].attn;
        a->scale *= (float)(score * score);
        a->temperature_scale = temperature;
        a->temperature_floor = floor;
    }
    return PLUMB_OK;
}

/* YaRN enlarges only the scores. */
static plumb_status plan_deepseek2(struct key_reader *r, struct plan *p) {
    float log_factor = 0.0f;
    PLUMB_TRY(key_scale(r, "rope.scaling.yarn_log_multiplier", &log_factor));
    return plan_latent_experts(r, p, 10.0f * log_factor, log_factor != 0.0f ? 1.0f : 0.0f);
}

static plumb_status plan_mistral4(struct key_reader *r, struct plan *p) {
    float log_factor = 0.0f;
    PLUMB_TRY(key_scale(r, "rope.scaling.yarn_log_multiplier", &log_factor));
    return plan_latent_experts(r, p, 10.0f * log_factor, 10.0f * log_factor);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

const struct architecture plan_sparse_rows[] = {
    /* Its converters permute Q and K to this pairing. */
    { "llama", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS, TIED | FACTORS, ATTENTION_BIAS | GATED,
      SCALED | GATED | EXPERTS, plan_llama },
    /* It is converted as llama is. */
    { "granite", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS | SHARED, TIED | FACTORS, ATTENTION_BIAS
      | GATED, SCALED, plan_granite_rope },
    { "mistral3", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS, TIED | FACTORS, ATTENTION_BIAS | GATED,
      SCALED | GATED | EXPERTS, plan_mistral3 },
    { "minicpm", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS, TIED | FACTORS, ATTENTION_BIAS | GATED,
      SCALED, plan_minicpm_moe },
    { "granite_swa", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS | SHARED | SET(ATTN_SINKS), TIED
      | FACTORS, ATTENTION_BIAS | GATED, SCALED, plan_granite_swa },
    { "granitemoe", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS | SHARED, TIED | FACTORS, ATTENTION_BIAS
      | GATED, SCALED, plan_granite_moe },
    { "qwen2moe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | SHARED | SET(FFN_GATE_INP_SHARED) | SET(OUTPUT),
      SET(ATTN_QKV), QKV_BIAS, SCALED, plan_qwen2moe },
    { "qwen3moe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM, TIED, QKV_BIAS, SCALED | EXPERTS,
      plan_qwen3moe },
    { "qwen3vlmoe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM, TIED, QKV_BIAS, SCALED,
      plan_qwen3vlmoe },
    { "olmoe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS,
      SCALED, plan_olmoe },
    { "phimoe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | SET(OUTPUT), SET(ATTN_QKV) | SET(ROPE_LONG)
      | SET(ROPE_SHORT), ATTENTION_BIAS | NORM_BIAS | SET(OUTPUT), SCALED, plan_phimoe },
    { "deepseek", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED, TIED, QKV_BIAS, SCALED,
      plan_deepseek },
    { "deepseek2-ocr", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED, TIED | SET(FFN_EXPERT_BIAS)
      | SET(FFN_GATE_UP_EXPS), QKV_BIAS, SCALED, plan_deepseek2_ocr },
    { "dbrx", steps_block, ROPE_NEOX, NORM_LAYER, ACT_SILU, SPARSE | SET(OUTPUT), SET(ATTN_QKV), 0, SCALED, plan_dbrx },
    { "ernie4_5-moe", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED, TIED | SET(FFN_EXPERT_BIAS),
      QKV_BIAS, SCALED, plan_ernie_moe },
    { "llada-moe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS,
      SCALED, plan_llada_moe },
    { "rnd1", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM, TIED, QKV_BIAS, SCALED, plan_rnd1 },
    { "mellum", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS,
      SCALED | EXPERTS, plan_mellum },
    { "maple", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS,
      SCALED, plan_maple },
    { "llama4", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED, TIED | FREQS, QKV_BIAS, SCALED,
      plan_llama4 },
    { "gpt-oss", steps_block, ROPE_NEOX, NORM_RMS, ACT_SWIGLU_OAI, SPARSE | SET(OUTPUT) | SET(ATTN_SINKS),
      SET(ATTN_QKV), ATTENTION_BIAS | EXPERTS, SCALED, plan_gpt_oss },
    { "bailingmoe", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, SPARSE | SHARED | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS,
      SCALED, plan_bailingmoe },
    { "bailingmoe2", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM | SET(OUTPUT),
      SET(ATTN_QKV) | SET(FFN_EXPERT_BIAS), 0, SCALED, plan_bailingmoe2 },
    { "hunyuan-moe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | SHARED | QK_NORM, TIED, QKV_BIAS, SCALED,
      plan_hunyuan_moe },
    { "dots1", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM | SET(OUTPUT),
      SET(ATTN_QKV) | SET(FFN_EXPERT_BIAS), QKV_BIAS, SCALED, plan_dots1 },
    { "smallthinker", steps_router_first, ROPE_NEOX, NORM_RMS, ACT_RELU, SPARSE, TIED, QKV_BIAS, SCALED,
      plan_smallthinker },
    { "afmoe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM | POST_NORM
      | SET(ATTN_GATE) | SET(FFN_EXPERT_BIAS), TIED, QKV_BIAS, SCALED, plan_afmoe },
    { "laguna", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM | SET(ATTN_GATE)
      | SET(FFN_EXPERT_BIAS), TIED, QKV_BIAS, SCALED, plan_laguna },
    { "exaone-moe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM | SET(OUTPUT),
      SET(ATTN_QKV) | FREQS | SET(FFN_EXPERT_BIAS), QKV_BIAS, SCALED, plan_exaone_moe },
    { "glm4moe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | SET(FFN_EXPERT_BIAS), TIED
      | QK_NORM, QKV_BIAS, SCALED, plan_glm4moe },
    { "minimax-m2", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | SET(OUTPUT) | SET(FFN_EXPERT_BIAS),
      SET(ATTN_QKV), QKV_BIAS, SCALED, plan_minimax_m2 },
    { "mimo2", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SET(OUTPUT), SET(ATTN_QKV) | SET(ATTN_SINKS)
      | SET(FFN_EXPERT_BIAS), 0, SET(ATTN_OUTPUT), plan_mimo2 },
    { "arctic", steps_experts_first, ROPE_NORM, NORM_RMS, ACT_SILU, SPARSE | SHARED | SET(FFN_NORM_EXPS), TIED,
      QKV_BIAS, SCALED, plan_arctic },
    { "gemma4", steps_per_layer, ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, (SPARSE & ~SET(ATTN_V)) | GATED | SHARED | QK_NORM
      | POST_NORM | NORMS_BESIDE | PER_LAYER, TIED | SET(ATTN_V) | FREQS | SET(LAYER_OUT_SCALE)
      | SET(FFN_GATE_UP_EXPS), 0, SCALED | GATED | EXPERTS | SHARED, plan_gemma4 },
    { "grok", steps_block, ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, SPARSE | SHARED | POST_NORM, TIED, QKV_BIAS, SCALED,
      plan_grok },
    { "grovemoe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | ADJUGATE, TIED, QKV_BIAS, SCALED,
      plan_grovemoe },
    { "hy_v3", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM, TIED
      | SET(FFN_EXPERT_BIAS) | SET(FFN_GATE_UP_EXPS), QKV_BIAS, SCALED | GATED | EXPERTS | SHARED, plan_hy_v3 },
    { "cohere2moe", steps_block, ROPE_NORM, NORM_LAYER, ACT_SILU, (SPARSE & ~SET(FFN_NORM)) | GATED | SHARED, TIED
      | SET(FFN_GATE_UP_EXPS), QKV_BIAS, SCALED | GATED | EXPERTS | SHARED, plan_cohere2moe },
    { "step35", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | SET(OUTPUT), SET(ATTN_QKV)
      | QK_NORM | FACTORS | SET(ATTN_GATE) | SET(FFN_EXPERT_BIAS), QKV_BIAS, SCALED, plan_step35 },
    { "lfm2moe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | QK_NORM | CONVOLUTION, TIED
      | SET(FFN_EXPERT_BIAS), QKV_BIAS, SCALED, plan_lfm2moe },
    { "deepseek2", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, ENDS | NORMS | LATENT | EXPERTS | GATED | SHARED,
      SET(OUTPUT) | SET(FFN_EXPERT_BIAS) | SET(FFN_GATE_UP_EXPS), 0, SET(ATTN_OUTPUT), plan_deepseek2 },
    { "mistral4", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, ENDS | NORMS | LATENT | EXPERTS | GATED | SHARED,
      SET(OUTPUT) | SET(FFN_EXPERT_BIAS) | SET(FFN_GATE_UP_EXPS), 0, SET(ATTN_OUTPUT), plan_mistral4 },
    { "qwen35moe", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | SHARED | SET(FFN_GATE_INP_SHARED) | QK_NORM
      | DELTA_NET | BETA_ALPHA, SET(OUTPUT) | SET(FFN_GATE_UP_EXPS), QKV_BIAS | SET(DELTA_DT),
      SCALED | EXPERTS | SHARED | DELTA_NET_SCALED, plan_qwen35moe },
    { "qwen3next", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | SHARED | SET(FFN_GATE_INP_SHARED) | QK_NORM
      | DELTA_NET | SET(DELTA_BETA_ALPHA), SET(OUTPUT) | SET(FFN_GATE_UP_EXPS), QKV_BIAS | SET(DELTA_DT),
      SCALED | EXPERTS | SHARED, plan_qwen3next },
    { .name = NULL },
};

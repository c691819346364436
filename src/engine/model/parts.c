/* Parts of a plan that several architectures have; architecture.h says what the functions do. */
#include "base/math.h"
#include "model/architecture.h"

#include <stdlib.h>

void plan_set_dense(struct layer_plan *l) {
    l->without = ALL_EXPERTS;
    l->ffn.n_expert = 0;
    l->ffn.n_ff_expert = l->ffn.n_ff_shared = 0;
}

void plan_set_bare(struct plan *p, struct layer_plan *l) {
    static const char *const unused[] = { "ffn_gate_inp.weight", "exp_probs_b.bias", "ffn_gate_exps.weight",
                                          "ffn_up_exps.weight", "ffn_down_exps.weight", "ffn_gate_exps.scale",
                                          "ffn_up_exps.scale", "ffn_down_exps.scale", "ffn_gate_exps.input_scale",
                                          "ffn_up_exps.input_scale", "ffn_down_exps.input_scale",
                                          "ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight",
                                          "ffn_gate_shexp.scale", "ffn_up_shexp.scale", "ffn_down_shexp.scale",
                                          "ffn_gate_shexp.input_scale", "ffn_up_shexp.input_scale",
                                          "ffn_down_shexp.input_scale", "attn_output.bias", "rope_freqs.weight", NULL };
    p->unused = unused;
    plan_set_dense(l);
    l->without |= ALL_DENSE;
    l->ffn.n_ff = p->n_embd;
}

plumb_status plan_pattern(struct key_reader *r, struct plan *p, uint32_t period, uint32_t window, float freq_base,
                          bool windows_last) {
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "attention.sliding_window"), &window, r->err));
    if (window == 0) return PLUMB_OK;   /* llama.cpp ignores the other keys then */
    const struct gguf_key *pattern;
    PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, "attention.sliding_window_pattern"), &pattern, r->err));
    if (!pattern) PLUMB_TRY(key_count(r, "attention.sliding_window_pattern", 1u << 16, &period));
    if (pattern && pattern->n < p->n_layer) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s has %llu elements for %u layers", r->key,
                         (unsigned long long)pattern->n, p->n_layer);
    }
    struct rope_plan *local = &p->ropes[ROPE_LOCAL];
    *local = p->ropes[ROPE_GLOBAL];
    local->freq_base = freq_base;
    local->freq_scale = 1.0f;
    PLUMB_TRY(key_n_rot(r, "rope.dimension_count_swa", p->layers[0].attn.k_dim, &local->n_rot));
    PLUMB_TRY(key_freq_base(r, "rope.freq_base_swa", &local->freq_base));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        bool has_window = pattern ? gguf_flag(pattern, il) : il % period != (windows_last ? 0 : period - 1);
        if (!has_window) continue;
        p->layers[il].attn.window = window;
        p->layers[il].attn.rope = ROPE_LOCAL;
    }
    return PLUMB_OK;
}

plumb_status plan_windows(struct key_reader *r, struct plan *p, uint32_t period, uint32_t window, float freq_base) {
    return plan_pattern(r, p, period, window, freq_base, false);
}

plumb_status plan_like_windows(struct key_reader *r, struct plan *p, uint32_t period, uint32_t window) {
    PLUMB_TRY(plan_windows(r, p, period, window, p->ropes[ROPE_GLOBAL].freq_base));
    p->ropes[ROPE_LOCAL].freq_scale = p->ropes[ROPE_GLOBAL].freq_scale;
    return PLUMB_OK;
}

plumb_status plan_logit_factor(struct key_reader *r, struct plan *p, float factor) {
    PLUMB_TRY(key_scale(r, "logit_scale", &factor));
    p->logit_scale = 1.0f / factor;
    return PLUMB_OK;
}

plumb_status plan_dense_lead(struct key_reader *r, struct plan *p) {
    uint32_t n = 0;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "leading_dense_block_count"), &n, r->err));
    for (uint32_t il = 0; il < p->n_layer && il < n; il++) plan_set_dense(&p->layers[il]);
    return PLUMB_OK;
}

void plan_set_shared(struct plan *p, uint64_t n_ff) {
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        if (l->ffn.n_expert == 0) continue;
        l->ffn.n_ff_shared = (uint32_t)n_ff;
        if (n_ff == 0) l->without |= SHARED | SET(FFN_GATE_INP_SHARED);
    }
}

plumb_status plan_shared(struct key_reader *r, struct plan *p, uint32_t default_count, uint32_t each) {
    uint32_t n = default_count;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "expert_shared_count"), &n, r->err));
    if (n > 1024) return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected at most 1024", r->key, n);
    uint64_t n_ff = (uint64_t)n * each;
    if (n_ff > 1u << 24) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s makes a shared expert too wide", r->key);
    }
    plan_set_shared(p, n_ff);
    return PLUMB_OK;
}

plumb_status plan_gating(struct key_reader *r, struct plan *p, uint32_t gating) {
    bool plan_sum_to_1 = false;
    float scale = 1.0f;
    uint32_t given = 0;   /* 0 stands for no key */
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "expert_gating_func"), &given, r->err));
    if (given != 0) gating = given;
    if (gating < GATING_SOFTMAX || gating > GATING_SOFTMAX_USED) {
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s is %u, expected 1 to 3", r->key, gating);
    }
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "expert_weights_norm"), &plan_sum_to_1, r->err));
    PLUMB_TRY(key_scale(r, "expert_weights_scale", &scale));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct ffn_plan *f = &p->layers[il].ffn;
        f->gating = (enum gating)gating;
        f->weights_sum_to_1 = plan_sum_to_1;
        f->weights_scale = scale;
    }
    return PLUMB_OK;
}

void plan_use_n_ff(struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].ffn.n_ff_expert = p->layers[il].ffn.n_ff;
}

plumb_status plan_narrow_experts(struct key_reader *r, struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct ffn_plan *f = &p->layers[il].ffn;
        if (f->n_expert == 0) continue;
        PLUMB_TRY(key_width(r, "expert_feed_forward_length", f->n_ff / f->n_used, &f->n_ff_expert));
        if (f->n_ff_expert == 0) return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing", r->key);
    }
    return PLUMB_OK;
}

void plan_sum_to_1(struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].ffn.weights_sum_to_1 = true;
}

void plan_set_causal(struct plan *p, bool is_causal) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.is_causal = is_causal;
}

void plan_set_qk_norm(struct plan *p, enum qk_norm kind) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.qk_norm = kind;
}

void plan_set_alibi(struct plan *p, float max) {
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.alibi = max;
        p->layers[il].attn.rope = ROPE_NONE;
    }
}

void plan_rotate_windows_only(struct plan *p) {
    p->ropes[ROPE_LOCAL] = p->ropes[ROPE_GLOBAL];
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.rope = p->layers[il].attn.window > 0 ? ROPE_LOCAL : ROPE_NONE;
    }
}

plumb_status plan_sections(struct key_reader *r, struct plan *p, bool required) {
    const struct gguf_key *sections;
    PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, "rope.dimension_sections"), &sections, r->err));
    if (!sections && !required) return PLUMB_OK;
    uint64_t sum = 0;
    for (uint32_t i = 0; sections && sections->n == 4 && i < 4; i++) {
        uint64_t n = gguf_element(sections, i);
        p->ropes[ROPE_GLOBAL].sections[i] = n < 1u << 16 ? (uint32_t)n : 0;
        sum += n < 1u << 16 ? n : UINT32_MAX;
    }
    uint32_t *own = p->ropes[ROPE_GLOBAL].sections;
    bool is_none = !required && (own[0] == 0 || own[1] == 0);
    if (is_none) memset(own, 0, sizeof p->ropes[ROPE_GLOBAL].sections);
    if (sum > 0 && sum <= UINT32_MAX) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing or not four numbers of pairs", r->key);
}

void plan_dense_by_tensor(const struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight", "ffn_gate.scale",
                                          "ffn_up.scale", "ffn_down.scale", "ffn_gate.input_scale",
                                          "ffn_up.input_scale", "ffn_down.input_scale", "attn_q.bias", "attn_k.bias",
                                          "attn_v.bias", "attn_qkv.bias", NULL };
    p->unused = unused;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (!key_tensor(r, il, "ffn_gate_inp.weight")) plan_set_dense(&p->layers[il]);
    }
}

plumb_status plan_repeat(struct key_reader *r, struct plan *p, uint32_t n) {
    uint32_t n_block = p->n_layer;
    if ((uint64_t)n * n_block > PLAN_MAX_REPEATED) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, but %u times %u blocks are more than %d layers",
                         r->key, n, n, n_block, PLAN_MAX_REPEATED);
    }
    struct layer_plan *layers = realloc(p->layers, (size_t)n * n_block * sizeof *layers);
    if (!layers) return error_set(r->err, PLUMB_ERROR_MEMORY, "out of memory: the plan of %u layers", n * n_block);
    p->layers = layers;
    p->n_layer = n * n_block;
    for (uint32_t il = n_block; il < p->n_layer; il++) layers[il] = layers[il - n_block];
    return PLUMB_OK;
}

plumb_status plan_per_layer(struct key_reader *r, struct plan *p, uint32_t n) {
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "embedding_length_per_layer_input"), &n, r->err));
    if ((uint64_t)n * p->n_layer > 1u << 22) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, but %u layers of that are more than %u elements",
                         r->key, n, p->n_layer, 1u << 22);
    }
    p->n_per_layer = n;
    if (n == 0) p->required &= ~PER_LAYER;
    return PLUMB_OK;
}

plumb_status plan_share_kv(struct key_reader *r, struct plan *p, uint32_t n) {
    static const char *const unused[] = { "attn_k.weight", "attn_v.weight", "attn_k_norm.weight", "attn_k.scale",
                                          "attn_v.scale", "attn_k.input_scale", "attn_v.input_scale", NULL };
    p->unused = unused;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "attention.shared_kv_layers"), &n, r->err));
    if (n >= p->n_layer) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u of %u layers, expected fewer", r->key, n,
                         p->n_layer);
    }
    uint32_t n_own = p->n_layer - n;
    for (uint32_t il = n_own; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        const struct attn_plan *a = &l->attn, *of = NULL;
        /* llama.cpp expects a layer without a window last, and one with a window before it. */
        uint32_t back = a->window > 0 ? 2 : 1;
        if (n_own >= back) of = &p->layers[n_own - back].attn;
        if (!of || of->window != a->window || of->n_head_kv != a->n_head_kv || of->k_dim != a->k_dim
            || of->v_dim != a->v_dim) {
            return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, so layer %u reads K and V of layer %d, which "
                             "has another window or other heads", r->key, n, il, (int)n_own - (int)back);
        }
        l->kv_back = il - (n_own - back);
        l->without |= SET(ATTN_K) | SET(ATTN_V) | SET(ATTN_K_NORM) | SET(ATTN_V_NORM);
        p->shares_kv = true;
    }
    return PLUMB_OK;
}

plumb_status plan_parallel(struct key_reader *r, struct plan *p) {
    (void)r;
    p->is_parallel = true;
    return PLUMB_OK;
}

plumb_status plan_unused_bias(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "attn_output.bias", NULL };
    (void)r;
    p->unused = unused;
    return PLUMB_OK;
}

plumb_status plan_convolutions(struct key_reader *r, struct plan *p) {
    uint32_t n = 0;
    PLUMB_TRY(key_count(r, "shortconv.l_cache", 1u << 10, &n));
    if (n < 2) return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected at least 2", r->key, n);
    p->names[W_OUTPUT_NORM] = "token_embd_norm";
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        bool is_convolution = l->mixer == MIXER_CONVOLUTION;
        l->without |= is_convolution ? ATTENTION | SET(ATTN_QKV) | QK_NORM : CONVOLUTION;
        l->n_conv = is_convolution ? n : 0;
    }
    return PLUMB_OK;
}

plumb_status plan_latent(struct key_reader *r, struct plan *p) {
    const struct attn_plan *first = &p->layers[0].attn;   /* all layers have these widths */
    uint32_t k_dim = 0, v_dim = 0, n_q = 0;
    struct latent_plan l = { .n_rotated = p->ropes[ROPE_GLOBAL].n_rot };
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "attention.value_length_mla"), &v_dim, r->err));
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "attention.key_length_mla"), &k_dim, r->err));
    l.is_absorbed = k_dim > 0 && v_dim > 0;
    if (!l.is_absorbed) k_dim = first->k_dim;
    l.v_dim = l.is_absorbed ? v_dim : first->v_dim;
    if (k_dim < l.n_rotated + l.is_absorbed || k_dim > 1u << 16 || l.v_dim > 1u << 16) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "keys %s.attention: heads of K have %u elements, of which RoPE "
                         "rotates %u, and those of V have %u", r->architecture, k_dim, l.n_rotated, l.v_dim);
    }
    l.n_plain = k_dim - l.n_rotated;
    uint32_t il_first = 0;   /* the first layer that is latent */
    while (il_first + 1 < p->n_layer && !plan_attends(&p->layers[il_first])) il_first++;
    if (!key_tensor(r, il_first, "attn_q.weight")) PLUMB_TRY(key_count(r, "attention.q_lora_rank", 1u << 16, &n_q));
    l.n_q = n_q;
    PLUMB_TRY(key_count(r, "attention.kv_lora_rank", 1u << 16, &l.n_kv));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *layer = &p->layers[il];
        struct attn_plan *a = &layer->attn;
        if (!plan_attends(layer)) continue;
        uint32_t n_head_kv = l.is_absorbed ? 1 : a->n_head;
        bool fits = !l.is_absorbed || a->k_dim == l.n_kv + l.n_rotated;
        if (l.is_absorbed) a->v_dim = l.n_kv;   /* whatever the key says, as in llama.cpp */
        if (a->n_head_kv != n_head_kv || !fits) {
            return error_set(r->err, PLUMB_ERROR_METADATA, "keys %s.attention: layer %u has %u heads of K and V of %u "
                             "and %u elements, which is no latent attention with vectors of %u, of which %u are "
                             "rotated",
                             r->architecture, il, a->n_head_kv, a->k_dim, a->v_dim, l.n_kv, l.n_rotated);
        }
        a->latent = l;
        a->scale = 1.0f / (float)math_sqrt(k_dim);
        layer->without |= (n_q > 0 ? SET(ATTN_Q) : LATENT_Q) | (l.is_absorbed ? SET(LATENT_KV_B) : ABSORBED);
    }
    return PLUMB_OK;
}

plumb_status plan_delta_nets(struct key_reader *r, struct plan *p) {
    struct delta_plan d = { 0 };
    uint32_t n_conv = 0, n_inner = 0, interval = 4;
    const struct gguf_key *recurrent;
    PLUMB_TRY(key_count(r, "ssm.conv_kernel", 1u << 10, &n_conv));
    PLUMB_TRY(key_count(r, "ssm.state_size", 1u << 12, &d.dim));
    PLUMB_TRY(key_count(r, "ssm.group_count", 1u << 12, &d.n_key_head));
    PLUMB_TRY(key_count(r, "ssm.time_step_rank", 1u << 12, &d.n_head));
    PLUMB_TRY(key_count(r, "ssm.inner_size", 1u << 24, &n_inner));
    if (n_conv < 2 || n_inner != d.n_head * d.dim || d.n_head % d.n_key_head != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "keys %s.ssm: %u heads of %u elements, %u heads of keys, a "
                         "convolution over %u tokens and an inner size of %u do not fit together", r->architecture,
                         d.n_head, d.dim, d.n_key_head, n_conv, n_inner);
    }
    const struct attn_plan *a = &p->layers[0].attn;   /* all layers have these widths */
    if (a->k_dim != a->v_dim) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected %u, the width of the gates in attn_q",
                         key_of(r, "attention.value_length"), a->v_dim, a->k_dim);
    }
    PLUMB_TRY(key_count(r, "full_attention_interval", 1u << 16, &interval));
    PLUMB_TRY(key_recurrent(r, p, &recurrent));
    p->names[W_CONV_IN] = "attn_qkv";
    p->names[W_CONV_KERNEL] = "ssm_conv1d";
    p->names[W_CONV_OUT] = "ssm_out";
    p->unsuffixed |= SET(DELTA_A);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        bool is_delta = recurrent ? gguf_flag(recurrent, il) : (il + 1) % interval != 0;
        l->without |= is_delta ? ATTENTION | QK_NORM : DELTA_NET | BETA_ALPHA | SET(DELTA_BETA_ALPHA);
        l->attn.gate = is_delta ? ATTN_GATE_SILU : ATTN_GATE_SIGMOID;
        l->attn.gate_in_q = !is_delta;
        l->mixer = is_delta ? MIXER_DELTA_NET : MIXER_ATTENTION;
        if (!is_delta) continue;
        l->delta = d;
        l->n_conv = n_conv;
    }
    return PLUMB_OK;
}

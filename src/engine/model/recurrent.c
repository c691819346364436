/* The architectures with selective scans, RWKV and other linear attention, except those of Qwen: what their keys say
 * beside what all architectures have, and their rows. */
#include "base/math.h"
#include "model/architecture.h"

/* Weights of which a layer of one kind has no place for those of the others. */
#define OF_ATTENTION (ATTENTION | SET(ATTN_QKV) | QK_NORM)
#define OF_SCAN (SCAN | SCAN_X | SCAN_NORMS | SET(DELTA_NORM))

/* Reads the numbers of the scans.  Layers with 0 heads of K and V have a scan instead of attention. */
static plumb_status plan_scan(struct key_reader *r, struct plan *p, enum scan_kind kind) {
    struct scan_plan s = { .kind = kind, .n_group = 1 };
    uint32_t n_conv = 0, n_inner = 0;
    PLUMB_TRY(key_count(r, "ssm.conv_kernel", 1u << 10, &n_conv));
    PLUMB_TRY(key_count(r, "ssm.inner_size", 1u << 24, &n_inner));
    PLUMB_TRY(key_count(r, "ssm.state_size", 1u << 12, &s.n_state));
    if (kind == SCAN_MAMBA) {
        PLUMB_TRY(key_count(r, "ssm.time_step_rank", 1u << 16, &s.n_rank));
        s.n_head = n_inner;
    } else {
        PLUMB_TRY(key_count(r, "ssm.time_step_rank", 1u << 16, &s.n_head));
    }
    if (kind == SCAN_MAMBA_2) PLUMB_TRY(key_count(r, "ssm.group_count", 1u << 12, &s.n_group));
    if (kind == SCAN_PLAMO_2) s.n_rank = p->n_embd / 16 > 64 ? p->n_embd / 16 : 64;   /* as in llama.cpp */
    s.dim = n_inner / s.n_head;
    if (n_conv < 2 || s.dim * s.n_head != n_inner || s.n_head % s.n_group != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "keys %s.ssm: %u heads, %u groups of them, a convolution over "
                         "%u tokens and an inner size of %u do not fit together", r->architecture, s.n_head, s.n_group,
                         n_conv, n_inner);
    }
    p->scan = s;
    p->names[W_CONV_IN] = "ssm_in";
    p->names[W_CONV_KERNEL] = "ssm_conv1d";
    p->names[W_CONV_OUT] = "ssm_out";
    p->unsuffixed |= SET(DELTA_A) | SET(SCAN_D);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        if (l->mixer == MIXER_CONVOLUTION) l->mixer = MIXER_SCAN;
        if (plan_scans(l)) l->n_conv = n_conv;
        l->without |= (plan_attends(l) ? 0 : OF_ATTENTION) | (plan_scans(l) ? 0 : OF_SCAN);
    }
    return PLUMB_OK;
}

static void set_mixers(struct plan *p, enum mixer mixer) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].mixer = mixer;
}

static plumb_status plan_granite_hybrid(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_granite_rope(r, p));
    return plan_scan(r, p, SCAN_MAMBA_2);
}

/* Attention and a scan read the same input.  The factors of muP are in the weights. */
static plumb_status plan_falcon_h1(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "attn_output.bias", "rope_freqs.weight", NULL };
    p->unused = unused;
    p->unsuffixed |= SET(FFN_NORM);
    set_mixers(p, MIXER_BOTH);
    return plan_scan(r, p, SCAN_MAMBA_2);
}

static void set_no_network(struct layer_plan *l) {
    l->ffn.n_expert = 0;
    l->without |= ALL_DENSE | ALL_EXPERTS;
}

/* A layer is a feed-forward network if this has a width, or else attention if it has heads of K and V. */
static plumb_status plan_nemotron_h(struct key_reader *r, struct plan *p) {
    plan_set_alibi(p, 0.0f);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        if (l->ffn.n_ff > 0) l->mixer = MIXER_NONE;
        else set_no_network(l);
    }
    return plan_scan(r, p, SCAN_MAMBA_2);
}

/* Experts read and write vectors of moe_latent_size elements, if the key is there.  llama.cpp takes two square matrices
 * without it, too, or one of them. */
static plumb_status plan_latent_size(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(key_width(r, "moe_latent_size", p->n_embd, &p->n_narrow));
    *(p->n_narrow == p->n_embd ? &p->optional : &p->required) |= NARROW;
    p->names[W_NARROW] = "ffn_latent_down";
    p->names[W_WIDEN] = "ffn_latent_up";
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (p->layers[il].ffn.n_expert == 0) p->layers[il].without |= NARROW;
    }
    return PLUMB_OK;
}

static plumb_status plan_nemotron_h_moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = 0;
    PLUMB_TRY(plan_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(plan_narrow_experts(r, p));
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    plan_set_shared(p, n_ff);
    PLUMB_TRY(plan_nemotron_h(r, p));
    return plan_latent_size(r, p);
}

static plumb_status plan_mamba(struct key_reader *r, struct plan *p) {
    bool has_norms = false;   /* Falcon Mamba */
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "ssm.dt_b_c_rms"), &has_norms, r->err));
    if (has_norms) p->bare_norms |= SCAN_NORMS;
    set_mixers(p, MIXER_SCAN);
    return plan_scan(r, p, SCAN_MAMBA);
}

static plumb_status plan_mamba2(struct key_reader *r, struct plan *p) {
    set_mixers(p, MIXER_SCAN);
    return plan_scan(r, p, SCAN_MAMBA_2);
}

/* Layers without ffn_gate_inp have no experts. */
static plumb_status plan_jamba(struct key_reader *r, struct plan *p) {
    plan_set_alibi(p, 0.0f);
    plan_use_n_ff(p);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (!key_tensor(r, il, "ffn_gate_inp.weight")) plan_set_dense(&p->layers[il]);
    }
    return plan_scan(r, p, SCAN_MAMBA);
}

static plumb_status plan_plamo2(struct key_reader *r, struct plan *p) {
    plan_set_qk_norm(p, QK_NORM_HEADS);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.scale = 1.0f / (float)math_sqrt(p->layers[il].attn.v_dim);
    }
    p->unsuffixed |= SCAN_NORMS | POST_NORM;
    return plan_scan(r, p, SCAN_PLAMO_2);
}

/* ---- RWKV -------------------------------------------------------------------------------------------------------- */

/* Reads the numbers that all RWKV have.  has_kv_heads: a key may say that groups of heads share K and V.
 * token_shift_count must be what rwkv says, and is 2 if it is absent. */
static plumb_status plan_rwkv(struct key_reader *r, struct plan *p, struct rwkv_plan rwkv, bool has_kv_heads) {
    uint32_t dim = 0, n_head_kv = 0, n_ff = 0, n_shift = 2;
    PLUMB_TRY(key_count(r, "feed_forward_length", 1u << 22, &n_ff));
    PLUMB_TRY(key_count(r, "wkv.head_size", 1u << 12, &dim));
    if (p->n_embd % dim != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, which does not divide the %u elements of a token",
                         r->key, dim, p->n_embd);
    }
    uint32_t n_head = p->n_embd / dim;
    if (has_kv_heads) PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "attention.head_count"), &n_head_kv, r->err));
    if (has_kv_heads) PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "attention.head_count_kv"), &n_head_kv, r->err));
    if (n_head_kv == 0) n_head_kv = n_head;
    if (n_head % n_head_kv != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, which does not divide the %u heads", r->key,
                         n_head_kv, n_head);
    }
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "token_shift_count"), &n_shift, r->err));
    if (n_shift != rwkv.n_shift) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected %u", r->key, n_shift, rwkv.n_shift);
    }
    p->rwkv = rwkv;
    p->names[W_ATTN_Q] = "time_mix_receptance";
    p->names[W_ATTN_K] = "time_mix_key";
    p->names[W_ATTN_V] = "time_mix_value";
    p->names[W_ATTN_OUTPUT] = "time_mix_output";
    if (rwkv.n_shift == 2) {
        p->names[W_FFN_NORM] = "attn_norm_2";
        p->names[W_FFN_UP] = "channel_mix_key";
        p->names[W_FFN_DOWN] = "channel_mix_value";
    }
    static const char *const biases[] = { "attn_norm.bias", "attn_norm_2.bias", "time_mix_ln.bias" };
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        for (size_t i = 0; i < 3 && rwkv.n_shift == 2; i++) PLUMB_TRY(key_requires(r, il, biases[i]));
        l->mixer = MIXER_RWKV;
        l->ffn.n_ff = n_ff;
        l->attn.n_head = n_head;
        l->attn.n_head_kv = n_head_kv;
        l->attn.k_dim = l->attn.v_dim = dim;
    }
    return PLUMB_OK;
}

/* Layer 0 has no values of an earlier layer.  Layers of ARWKV may lack the gate. */
static plumb_status plan_rwkv_7(struct key_reader *r, struct plan *p, uint32_t n_shift) {
    static const char *const unused[] = { "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight", NULL };
    struct rwkv_plan rwkv = { .kind = RWKV_7, .n_shift = n_shift };
    bool has_gate = false;
    PLUMB_TRY(key_count(r, "attention.decay_lora_rank", 1u << 16, &rwkv.n_decay));
    PLUMB_TRY(key_count(r, "attention.iclr_lora_rank", 1u << 16, &rwkv.n_rate));
    if (p->n_layer > 1) {
        PLUMB_TRY(key_count(r, "attention.value_residual_mix_lora_rank", 1u << 16, &rwkv.n_value));
    }
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        bool has_both = key_tensor(r, il, "time_mix_g1.weight") && key_tensor(r, il, "time_mix_g2.weight");
        bool is_gated = n_shift == 2 || has_both;
        l->n_lerp_row = is_gated ? 6 : 5;
        l->without |= (il == 0 ? MIX_VALUE : 0) | (is_gated ? 0 : GATES_2);
        has_gate = has_gate || is_gated;
    }
    if (has_gate) PLUMB_TRY(key_count(r, "attention.gate_lora_rank", 1u << 16, &rwkv.n_gate));
    p->unused = unused;
    return plan_rwkv(r, p, rwkv, false);
}

static plumb_status plan_rwkv7(struct key_reader *r, struct plan *p) { return plan_rwkv_7(r, p, 2); }
static plumb_status plan_arwkv7(struct key_reader *r, struct plan *p) { return plan_rwkv_7(r, p, 1); }

/* Older files have the rows of time_mix_lerp_fused as tensors of their own. */
static plumb_status plan_rwkv_6(struct key_reader *r, struct plan *p, struct rwkv_plan rwkv) {
    PLUMB_TRY(key_count(r, "time_mix_extra_dim", 1u << 12, &rwkv.n_lerp));
    PLUMB_TRY(key_count(r, "time_decay_extra_dim", 1u << 16, &rwkv.n_decay));
    p->names[W_ATTN_GATE] = "time_mix_gate";
    p->names[W_DECAY] = "time_mix_decay";
    p->names[W_DECAY_1] = "time_mix_decay_w1";
    p->names[W_DECAY_2] = "time_mix_decay_w2";
    p->names[W_BONUS] = "time_mix_first";
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->n_lerp_row = RWKV_LERPS;
        l->attn.gate = rwkv.kind == RWKV_6 ? ATTN_GATE_SILU : ATTN_GATE_SIGMOID;
        l->without |= key_tensor(r, il, "time_mix_lerp_w.weight") ? SET(LERP) : LERPS_6;
    }
    return plan_rwkv(r, p, rwkv, rwkv.kind == RWKV_LINEAR);
}

/* x is divided by 2 after every so many layers, whose matrices are smaller so that f16 can have x. */
static plumb_status plan_rwkv6(struct key_reader *r, struct plan *p) {
    uint32_t n = 0;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "rescale_every_n_layers"), &n, r->err));
    for (uint32_t il = 0; n > 0 && il < p->n_layer; il++) p->layers[il].is_halved = (il + 1) % n == 0;
    return plan_rwkv_6(r, p, (struct rwkv_plan) { .kind = RWKV_6, .n_shift = 2 });
}

static plumb_status plan_rwkv6qwen2(struct key_reader *r, struct plan *p) {
    return plan_rwkv_6(r, p, (struct rwkv_plan) { .kind = RWKV_LINEAR, .n_shift = 1 });
}

/* ---- Kimi Delta Attention and lightning attention ---------------------------------------------------------------- */

/* Layers with 0 heads of K and V have Kimi Delta Attention, the others latent attention.  is_narrow: decays and gates
 * are products of two matrices, with as many elements between them as a head has. */
static plumb_status plan_kimi_delta(struct key_reader *r, struct plan *p, bool is_narrow, float least_decay) {
    struct delta_plan d = { .is_diagonal = true, .least_decay = least_decay };
    uint32_t n_conv = 0, n_head = p->layers[0].attn.n_head;
    PLUMB_TRY(key_count(r, "ssm.conv_kernel", 1u << 10, &n_conv));
    PLUMB_TRY(key_count(r, "kda.head_dim", 1u << 12, &d.dim));
    if (n_conv < 2) return error_set(r->err, PLUMB_ERROR_METADATA, "key %s.ssm.conv_kernel is %u, expected at least 2",
                                     r->architecture, n_conv);
    d.n_key_head = d.n_head = n_head;
    d.n_rank = is_narrow ? d.dim : 0;
    p->names[W_CONV_OUT] = "attn_output";
    p->names[W_DECAY_1] = "ssm_f_a";
    p->names[W_DECAY_2] = "ssm_f_b";
    p->names[W_GATE_1] = "ssm_g_a";
    p->names[W_GATE_2] = "ssm_g_b";
    p->unsuffixed |= SET(DELTA_A);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        if (l->mixer != MIXER_CONVOLUTION) {
            l->without |= (KIMI_DELTA & ~SET(ATTN_Q)) | SET(ATTN_QKV);
            continue;
        }
        l->mixer = MIXER_DELTA_NET;
        l->without |= (LATENT & ~SET(ATTN_Q)) | SET(ATTN_GATE);
        l->attn = (struct attn_plan){ .n_head = n_head, .n_head_kv = n_head, .k_dim = d.dim, .v_dim = d.dim,
                                      .rope = ROPE_NONE, .gate = ATTN_GATE_SIGMOID,
                                      .is_causal = l->attn.is_causal };
        l->delta = d;
        l->n_conv = n_conv;
    }
    PLUMB_TRY(plan_latent(r, p));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct latent_plan *latent = &p->layers[il].attn.latent;
        if (!plan_attends(&p->layers[il]) || latent->is_absorbed) continue;
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s.attention.key_length_mla or value_length_mla is missing "
                         "or 0", r->architecture);
    }
    return PLUMB_OK;
}

/* Kimi Team 2025, "Kimi Linear".  No layer is rotated. */
static plumb_status plan_kimi_linear(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias", NULL };
    p->unused = unused;
    PLUMB_TRY(plan_gating(r, p, 0));
    plan_sum_to_1(p);
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(plan_shared(r, p, 1, p->layers[p->n_layer - 1].ffn.n_ff_expert));
    plan_set_alibi(p, 0.0f);
    return plan_kimi_delta(r, p, true, 0.0f);
}

/* Ling 3.  Layers with latent attention have a gate for each head, and decays a lower bound. */
static plumb_status plan_bailingmoe3(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias", NULL };
    bool is_bounded = true;
    float least_decay = 0.0f;
    uint32_t n_ff = 0;
    p->unused = unused;
    PLUMB_TRY(plan_gating(r, p, 0));
    PLUMB_TRY(plan_dense_lead(r, p));
    PLUMB_TRY(plan_shared(r, p, 1, p->layers[p->n_layer - 1].ffn.n_ff_expert));
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    if (n_ff > 0) plan_set_shared(p, n_ff);
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "kda.safe_gate"), &is_bounded, r->err));
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "kda.gate_lower_bound"), &least_decay, r->err));
    if (!is_bounded || !(least_decay < 0.0f && least_decay >= -1e4f)) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "keys %s.kda: safe_gate is %s and gate_lower_bound %g, expected "
                         "true and -10000 to less than 0", r->architecture, is_bounded ? "true" : "false",
                         (double)least_decay);
    }
    PLUMB_TRY(plan_kimi_delta(r, p, false, least_decay));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->attn.gate = ATTN_GATE_SIGMOID;
        l->attn.gate_per_head = plan_attends(l);
        l->ffn.limit_late = true;
        PLUMB_TRY(key_swiglu_limit(r, "swiglu_clamp_exp", il, &l->ffn.limit));
        PLUMB_TRY(key_swiglu_limit(r, "swiglu_clamp_shexp", il, &l->ffn.limit_shared));
    }
    return PLUMB_OK;
}

/* MiniMax 2025, "MiniMax-01".  All but one of `interval` layers have lightning attention. */
static plumb_status plan_minimax_01(struct key_reader *r, struct plan *p) {
    uint32_t interval = 8;
    const struct gguf_key *recurrent;
    plan_use_n_ff(p);
    plan_sum_to_1(p);
    p->residual_scale = 0.0f;
    PLUMB_TRY(key_scale(r, "residual_scale", &p->residual_scale));
    if (p->residual_scale == 0.0f) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing or 0", r->key);
    }
    const struct attn_plan *a = &p->layers[0].attn;   /* all layers have these widths */
    if (a->k_dim != a->v_dim || p->n_layer < 2) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "keys %s: heads of K have %u elements and those of V %u, which "
                         "must be equal, in %u layers, of which there must be 2", r->architecture, a->k_dim, a->v_dim,
                         p->n_layer);
    }
    PLUMB_TRY(key_count(r, "full_attention_interval", 1u << 16, &interval));
    PLUMB_TRY(key_recurrent(r, p, &recurrent));
    p->rwkv.kind = RWKV_LIGHTNING;
    p->names[W_CONV_IN] = "attn_qkv";
    p->names[W_CONV_OUT] = "attn_output";
    p->names[W_ATTN_SUB_NORM] = "attn_norm_2";
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        bool is_recurrent = recurrent ? gguf_flag(recurrent, il) : (il + 1) % interval != 0;
        l->without |= is_recurrent ? ATTENTION | SET(ATTN_QKV) : LIGHTNING;
        if (!is_recurrent && l->mixer != MIXER_ATTENTION) {
            return error_set(r->err, PLUMB_ERROR_METADATA, "keys %s.attention.head_count and head_count_kv: layer %u "
                             "has attention, but no heads", r->architecture, il);
        }
        if (!is_recurrent) continue;
        l->mixer = MIXER_LIGHTNING;
        l->attn.n_head_kv = l->attn.n_head;
        l->attn.gate = ATTN_GATE_SIGMOID;
    }
    return PLUMB_OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

const struct architecture plan_recurrent_rows[] = {
    { "granitehybrid", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS | SHARED | SCAN | SET(DELTA_NORM),
      TIED | FREQS, ATTENTION_BIAS | GATED | SET(CONV_KERNEL), SCALED | SET(CONV_IN) | SET(CONV_OUT),
      plan_granite_hybrid },
    { "falcon-h1", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | SCAN, TIED | SET(DELTA_NORM), QKV_BIAS | GATED
      | SET(CONV_KERNEL), SCALED | SET(CONV_IN) | SET(CONV_OUT), plan_falcon_h1 },
    { "nemotron_h", steps_one, ROPE_NEOX, NORM_RMS, ACT_RELU_SQR, ENDS | SET(ATTN_NORM) | ATTENTION | FFN | SCAN
      | SET(DELTA_NORM), TIED, ATTENTION_BIAS | FFN | SET(CONV_KERNEL), SCALED | FFN | SET(CONV_IN) | SET(CONV_OUT),
      plan_nemotron_h },
    { "nemotron_h_moe", steps_one, ROPE_NEOX, NORM_RMS, ACT_RELU_SQR, ENDS | SET(ATTN_NORM) | ATTENTION | FFN | SCAN
      | SET(DELTA_NORM) | SET(FFN_GATE_INP) | SET(FFN_UP_EXPS) | SET(FFN_DOWN_EXPS) | SET(FFN_EXPERT_BIAS)
      | SET(FFN_UP_SHARED) | SET(FFN_DOWN_SHARED), TIED, ATTENTION_BIAS | FFN | SET(CONV_KERNEL), SCALED | FFN
      | SET(CONV_IN) | SET(CONV_OUT) | SET(FFN_UP_EXPS) | SET(FFN_DOWN_EXPS) | SET(FFN_UP_SHARED)
      | SET(FFN_DOWN_SHARED), plan_nemotron_h_moe },
    { "mamba2", steps_one, ROPE_NEOX, NORM_RMS, ACT_SILU, ENDS | SET(ATTN_NORM) | SCAN | SET(DELTA_NORM), SET(OUTPUT),
      SET(CONV_KERNEL), SET(CONV_IN) | SET(CONV_OUT), plan_mamba2 },
    { "mamba", steps_one, ROPE_NEOX, NORM_RMS, ACT_SILU, ENDS | SET(ATTN_NORM) | SCAN | SCAN_X, SET(OUTPUT),
      SET(CONV_KERNEL), SET(CONV_IN) | SET(CONV_OUT), plan_mamba },
    { "jamba", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | EXPERTS | SCAN | SCAN_X | SCAN_NORMS, TIED,
      QKV_BIAS | SET(CONV_KERNEL), SCALED | SET(CONV_IN) | SET(CONV_OUT), plan_jamba },
    { "plamo2", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | SET(FFN_GATE_UP) | QK_NORM | POST_NORM | SCAN
      | SCAN_X | SCAN_NORMS, TIED, 0, SET(ATTN_OUTPUT), plan_plamo2 },
    { "rwkv6", steps_block, ROPE_NEOX, NORM_LAYER, ACT_RELU_SQR, ENDS | NORMS | SET(TOKEN_EMBD_NORM) | SET(OUTPUT)
      | TIME_MIX_6 | LERPS_6 | SET(BONUS) | SET(HEADS_NORM) | CHANNEL_MIX | SET(CHANNEL_R) | SET(CHANNEL_GATE), 0,
      NORM_BIAS | SET(TOKEN_EMBD_NORM) | SET(HEADS_NORM), 0, plan_rwkv6 },
    { "rwkv6qwen2", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, ENDS | NORMS | SET(OUTPUT) | TIME_MIX_6 | GATED, 0,
      QKV | SET(OUTPUT_NORM), 0, plan_rwkv6qwen2 },
    { "rwkv7", steps_block, ROPE_NEOX, NORM_LAYER, ACT_RELU_SQR, ENDS | NORMS | SET(TOKEN_EMBD_NORM) | SET(OUTPUT)
      | TIME_MIX_7 | SET(HEADS_NORM) | CHANNEL_MIX, 0, NORM_BIAS | SET(TOKEN_EMBD_NORM) | SET(HEADS_NORM), 0,
      plan_rwkv7 },
    { "arwkv7", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, ENDS | NORMS | SET(OUTPUT) | TIME_MIX_7 | GATED,
      SET(HEADS_NORM), SET(HEADS_NORM), 0, plan_arwkv7 },
    { "kimi-linear", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, ENDS | NORMS | (LATENT & ~LATENT_Q) | KIMI_DELTA
      | EXPERTS | GATED | SHARED | SET(FFN_EXPERT_BIAS) | SET(OUTPUT), SET(ATTN_QKV), 0, SET(ATTN_OUTPUT),
      plan_kimi_linear },
    { "bailingmoe3", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, ENDS | NORMS | LATENT | SET(ATTN_GATE)
      | (KIMI_DELTA & ~(SET(DECAY_2) | SET(GATE_2))) | EXPERTS | GATED | SHARED | SET(FFN_EXPERT_BIAS),
      SET(OUTPUT) | SET(ATTN_QKV), 0, 0, plan_bailingmoe3 },
    { "minimax-01", steps_from_norm, ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | LIGHTNING, TIED, QKV_BIAS, SCALED,
      plan_minimax_01 },
    { .name = NULL },
};

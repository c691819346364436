/* The architectures with selective scans: what their keys say beside what all architectures have, and their rows. */
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
    PLUMB_TRY(plan_granite_switch(r, p));
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

static plumb_status plan_nemotron_h_moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = 0;
    PLUMB_TRY(plan_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(plan_narrow_experts(r, p));
    PLUMB_TRY(key_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    plan_set_shared(p, n_ff);
    return plan_nemotron_h(r, p);
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
    { .name = NULL },
};

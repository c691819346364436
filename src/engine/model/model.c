/* See model.h.  The weight specs say which tensor, of which shape, is bound to which weight. */
#include "model/model.h"

#include "base/decimal.h"
#include "base/math.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- names -> weights ------------------------------------------------------------------------------------------ */

/* Sizes of weights, which follow from the plan. */
enum dim {
    DIM_ONE, DIM_EMBD, DIM_QKV, DIM_Q, DIM_K, DIM_V, DIM_ATTN, DIM_Q_NORM, DIM_K_NORM, DIM_Q_NORMS, DIM_K_NORMS,
    DIM_GATE, DIM_HEAD, DIM_FF, DIM_GATE_UP, DIM_FF_EXPERT, DIM_GATE_UP_EXPERT, DIM_FF_SHARED, DIM_FF_ADJUGATE,
    DIM_EXPERT, DIM_ADJUGATE, DIM_VOCAB, DIM_LOGIT, DIM_POSITION, DIM_ROPE_FACTOR, DIM_TOKEN_TYPE, DIM_HIDDEN,
    DIM_CLASS, DIM_DENSE, DIM_CONV, DIM_CONV_IN, DIM_CONV_OUT, DIM_CONV_WIDTH, DIM_DELTA, DIM_DT,
    DIM_DELTA_HEAD, DIM_DELTA_HEADS, DIM_Q_ROWS, DIM_A, DIM_A_ROWS, DIM_D, DIM_D_ROWS, DIM_SCAN_X, DIM_STATE, DIM_RANK,
    DIM_SCAN_GROUPS, DIM_PER_LAYER, DIM_PER_LAYERS, DIM_STREAM, DIM_STREAMS, DIM_OTHERS, DIM_NARROW,
    DIM_EXPERT_ROW,
    DIM_LATENT_Q_A, DIM_LATENT_KV, DIM_LATENT, DIM_LATENT_KV_B, DIM_PLAIN, DIM_LATENT_V, DIM_BUCKET,
    DIM_LERP_ROWS, DIM_LERPS, DIM_LERP_RANK, DIM_LERP_RANKS, DIM_VALUE_RANK, DIM_DECAY_RANK, DIM_RATE_RANK,
    DIM_GATE_RANK, DIM_BONUS, DIM_BONUS_ROWS,
};

struct weight_spec {
    const char *name;      /* the tensor's name without ".weight"; in layers the part after "blk.N." */
    enum dim n_in, n_out;  /* shape [n_in, n_out], or [n_in] if n_out is DIM_ONE */
    enum dim n_matrix;     /* DIM_ONE, or how many there are: shape [n_in, n_out, n_matrix] */
    const char *suffix;    /* what follows the name, if it is not "weight" */
};

static const struct weight_spec specs[W_COUNT] = {
    [W_ALTUP_ROUTER_NORM] = { "altup_router_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_ALTUP_ROUTER] = { "altup_router", DIM_EMBD, DIM_STREAM, DIM_ONE, NULL },
    [W_ALTUP_PREDICT] = { "altup_predict_coef", DIM_STREAM, DIM_STREAMS, DIM_ONE, NULL },
    [W_NARROW] = { "laurel_l", DIM_EMBD, DIM_NARROW, DIM_ONE, NULL },
    [W_WIDEN] = { "laurel_r", DIM_NARROW, DIM_EMBD, DIM_ONE, NULL },
    [W_LAUREL_NORM] = { "laurel_post_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_ATTN_NORM] = { "attn_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_LATENT_Q_A] = { "attn_q_a", DIM_EMBD, DIM_LATENT_Q_A, DIM_ONE, NULL },
    [W_LATENT_Q_NORM] = { "attn_q_a_norm", DIM_LATENT_Q_A, DIM_ONE, DIM_ONE, NULL },
    [W_LATENT_Q_B] = { "attn_q_b", DIM_LATENT_Q_A, DIM_Q, DIM_ONE, NULL },
    [W_LATENT_KV] = { "attn_kv_a_mqa", DIM_EMBD, DIM_LATENT_KV, DIM_ONE, NULL },
    [W_LATENT_NORM] = { "attn_kv_a_norm", DIM_LATENT, DIM_ONE, DIM_ONE, NULL },
    [W_LATENT_KV_B] = { "attn_kv_b", DIM_LATENT, DIM_LATENT_KV_B, DIM_ONE, NULL },
    [W_LATENT_K_B] = { "attn_k_b", DIM_PLAIN, DIM_LATENT, DIM_HEAD, NULL },
    [W_LATENT_V_B] = { "attn_v_b", DIM_LATENT, DIM_LATENT_V, DIM_HEAD, NULL },
    [W_ATTN_QKV] = { "attn_qkv", DIM_EMBD, DIM_QKV, DIM_ONE, NULL },
    [W_ATTN_Q] = { "attn_q", DIM_EMBD, DIM_Q_ROWS, DIM_ONE, NULL },
    [W_ATTN_K] = { "attn_k", DIM_EMBD, DIM_K, DIM_ONE, NULL },
    [W_ATTN_V] = { "attn_v", DIM_EMBD, DIM_V, DIM_ONE, NULL },
    [W_ATTN_Q_NORM] = { "attn_q_norm", DIM_Q_NORM, DIM_Q_NORMS, DIM_ONE, NULL },
    [W_ATTN_K_NORM] = { "attn_k_norm", DIM_K_NORM, DIM_K_NORMS, DIM_ONE, NULL },
    [W_ATTN_V_NORM] = { "attn_v_norm", DIM_V, DIM_ONE, DIM_ONE, NULL },
    [W_ATTN_GATE] = { "attn_gate", DIM_EMBD, DIM_GATE, DIM_ONE, NULL },
    [W_ATTN_SINKS] = { "attn_sinks", DIM_HEAD, DIM_ONE, DIM_ONE, NULL },
    [W_ATTN_BUCKETS] = { "attn_rel_b", DIM_HEAD, DIM_BUCKET, DIM_ONE, NULL },
    [W_ATTN_SUB_NORM] = { "attn_sub_norm", DIM_ATTN, DIM_ONE, DIM_ONE, NULL },
    [W_ATTN_OUTPUT] = { "attn_output", DIM_ATTN, DIM_EMBD, DIM_ONE, NULL },
    [W_CONV_IN] = { "shortconv.in_proj", DIM_EMBD, DIM_CONV_IN, DIM_ONE, NULL },
    [W_CONV_KERNEL] = { "shortconv.conv", DIM_CONV, DIM_CONV_WIDTH, DIM_ONE, NULL },
    [W_CONV_Q] = { "ssm_conv1d_q", DIM_CONV, DIM_ONE, DIM_Q, NULL },
    [W_CONV_K] = { "ssm_conv1d_k", DIM_CONV, DIM_ONE, DIM_K, NULL },
    [W_CONV_V] = { "ssm_conv1d_v", DIM_CONV, DIM_ONE, DIM_V, NULL },
    [W_CONV_OUT] = { "shortconv.out_proj", DIM_CONV_OUT, DIM_EMBD, DIM_ONE, NULL },
    [W_DELTA_BETA_ALPHA] = { "ssm_ba", DIM_EMBD, DIM_DELTA_HEADS, DIM_ONE, NULL },
    [W_DELTA_BETA] = { "ssm_beta", DIM_EMBD, DIM_DELTA_HEAD, DIM_ONE, NULL },
    [W_DELTA_ALPHA] = { "ssm_alpha", DIM_EMBD, DIM_DELTA_HEAD, DIM_ONE, NULL },
    [W_DELTA_DT] = { "ssm_dt", DIM_DT, DIM_ONE, DIM_ONE, "bias" },
    [W_DELTA_A] = { "ssm_a", DIM_A, DIM_A_ROWS, DIM_ONE, NULL },
    [W_DELTA_NORM] = { "ssm_norm", DIM_DELTA, DIM_SCAN_GROUPS, DIM_ONE, NULL },
    [W_SCAN_X] = { "ssm_x", DIM_CONV_OUT, DIM_SCAN_X, DIM_ONE, NULL },
    [W_SCAN_DT_NORM] = { "ssm_dt_norm", DIM_RANK, DIM_ONE, DIM_ONE, NULL },
    [W_SCAN_B_NORM] = { "ssm_b_norm", DIM_STATE, DIM_ONE, DIM_ONE, NULL },
    [W_SCAN_C_NORM] = { "ssm_c_norm", DIM_STATE, DIM_ONE, DIM_ONE, NULL },
    [W_SCAN_DT] = { "ssm_dt", DIM_RANK, DIM_DELTA_HEAD, DIM_ONE, NULL },
    [W_SCAN_D] = { "ssm_d", DIM_D, DIM_D_ROWS, DIM_ONE, NULL },
    [W_LERP_X] = { "time_mix_lerp_x", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_LERP_1] = { "time_mix_w1", DIM_EMBD, DIM_LERP_RANKS, DIM_ONE, NULL },
    [W_LERP_2] = { "time_mix_w2", DIM_LERP_RANK, DIM_EMBD, DIM_LERPS, NULL },
    [W_LERP] = { "time_mix_lerp_fused", DIM_EMBD, DIM_LERP_ROWS, DIM_ONE, NULL },
    [W_LERP_W] = { "time_mix_lerp_w", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_LERP_K] = { "time_mix_lerp_k", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_LERP_V] = { "time_mix_lerp_v", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_LERP_R] = { "time_mix_lerp_r", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_LERP_G] = { "time_mix_lerp_g", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_VALUE] = { "time_mix_v0", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_VALUE_1] = { "time_mix_v1", DIM_EMBD, DIM_VALUE_RANK, DIM_ONE, NULL },
    [W_VALUE_2] = { "time_mix_v2", DIM_VALUE_RANK, DIM_EMBD, DIM_ONE, NULL },
    [W_DECAY] = { "time_mix_w0", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_DECAY_1] = { "time_mix_w1", DIM_EMBD, DIM_DECAY_RANK, DIM_ONE, NULL },
    [W_DECAY_2] = { "time_mix_w2", DIM_DECAY_RANK, DIM_Q, DIM_ONE, NULL },
    [W_RATE] = { "time_mix_a0", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_RATE_1] = { "time_mix_a1", DIM_EMBD, DIM_RATE_RANK, DIM_ONE, NULL },
    [W_RATE_2] = { "time_mix_a2", DIM_RATE_RANK, DIM_EMBD, DIM_ONE, NULL },
    [W_REMOVAL] = { "time_mix_k_k", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_REPLACEMENT] = { "time_mix_k_a", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_BONUS] = { "time_mix_r_k", DIM_BONUS, DIM_BONUS_ROWS, DIM_ONE, NULL },
    [W_HEADS_NORM] = { "time_mix_ln", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_GATE_1] = { "time_mix_g1", DIM_EMBD, DIM_GATE_RANK, DIM_ONE, NULL },
    [W_GATE_2] = { "time_mix_g2", DIM_GATE_RANK, DIM_ATTN, DIM_ONE, NULL },
    [W_CHANNEL_K] = { "channel_mix_lerp_k", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_CHANNEL_R] = { "channel_mix_lerp_r", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_CHANNEL_GATE] = { "channel_mix_receptance", DIM_EMBD, DIM_EMBD, DIM_ONE, NULL },
    [W_ATTN_POST_NORM] = { "post_attention_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_ATTN_OUT_NORM] = { "attn_output_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_ATTN_NORM_2] = { "attn_norm_2", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_FFN_NORM] = { "ffn_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_FFN_GATE_UP] = { "ffn_up", DIM_EMBD, DIM_GATE_UP, DIM_ONE, NULL },
    [W_FFN_GATE] = { "ffn_gate", DIM_EMBD, DIM_FF, DIM_ONE, NULL },
    [W_FFN_UP] = { "ffn_up", DIM_EMBD, DIM_FF, DIM_ONE, NULL },
    [W_FFN_ACT_SCALES] = { "ffn.act", DIM_FF, DIM_ONE, DIM_ONE, "scales" },
    [W_FFN_SUB_NORM] = { "ffn_sub_norm", DIM_FF, DIM_ONE, DIM_ONE, NULL },
    [W_FFN_DOWN] = { "ffn_down", DIM_FF, DIM_EMBD, DIM_ONE, NULL },
    [W_FFN_NORM_EXPS] = { "ffn_norm_exps", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_FFN_ROUTER_NORM] = { "ffn_gate_inp", DIM_EMBD, DIM_ONE, DIM_ONE, "scale" },
    [W_FFN_GATE_INP] = { "ffn_gate_inp", DIM_EMBD, DIM_EXPERT, DIM_ONE, NULL },
    [W_FFN_EXPERT_BIAS] = { "exp_probs_b", DIM_EXPERT, DIM_ONE, DIM_ONE, "bias" },
    [W_FFN_GATE_UP_EXPS] = { "ffn_gate_up_exps", DIM_EXPERT_ROW, DIM_GATE_UP_EXPERT, DIM_EXPERT, NULL },
    [W_FFN_GATE_EXPS] = { "ffn_gate_exps", DIM_EXPERT_ROW, DIM_FF_EXPERT, DIM_EXPERT, NULL },
    [W_FFN_UP_EXPS] = { "ffn_up_exps", DIM_EXPERT_ROW, DIM_FF_EXPERT, DIM_EXPERT, NULL },
    [W_FFN_DOWN_EXPS] = { "ffn_down_exps", DIM_FF_EXPERT, DIM_EXPERT_ROW, DIM_EXPERT, NULL },
    [W_FFN_GATE_ADJUGATE] = { "ffn_gate_chexps", DIM_EMBD, DIM_FF_ADJUGATE, DIM_ADJUGATE, NULL },
    [W_FFN_UP_ADJUGATE] = { "ffn_up_chexps", DIM_EMBD, DIM_FF_ADJUGATE, DIM_ADJUGATE, NULL },
    [W_FFN_DOWN_ADJUGATE] = { "ffn_down_chexps", DIM_FF_ADJUGATE, DIM_EMBD, DIM_ADJUGATE, NULL },
    [W_FFN_GATE_INP_SHARED] = { "ffn_gate_inp_shexp", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_FFN_GATE_SHARED] = { "ffn_gate_shexp", DIM_EMBD, DIM_FF_SHARED, DIM_ONE, NULL },
    [W_FFN_UP_SHARED] = { "ffn_up_shexp", DIM_EMBD, DIM_FF_SHARED, DIM_ONE, NULL },
    [W_FFN_DOWN_SHARED] = { "ffn_down_shexp", DIM_FF_SHARED, DIM_EMBD, DIM_ONE, NULL },
    [W_FFN_DENSE_POST_NORM] = { "post_ffw_norm_1", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_FFN_EXPS_POST_NORM] = { "post_ffw_norm_2", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_ALTUP_CORRECT] = { "altup_correct_coef", DIM_STREAM, DIM_STREAM, DIM_ONE, NULL },
    [W_ALTUP_SCALE] = { "altup_correct_scale", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_PER_LAYER_GATE] = { "inp_gate", DIM_EMBD, DIM_PER_LAYER, DIM_ONE, NULL },
    [W_PER_LAYER_PROJ] = { "proj", DIM_PER_LAYER, DIM_EMBD, DIM_ONE, NULL },
    [W_PER_LAYER_POST_NORM] = { "post_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_FFN_POST_NORM] = { "post_ffw_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_LAYER_OUT_SCALE] = { "layer_output_scale", DIM_ONE, DIM_ONE, DIM_ONE, NULL },
    [W_LAYER_OUT_NORM] = { "layer_output_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_TOKEN_EMBD] = { "token_embd", DIM_EMBD, DIM_VOCAB, DIM_ONE, NULL },
    [W_TOKEN_TYPES] = { "token_types", DIM_EMBD, DIM_TOKEN_TYPE, DIM_ONE, NULL },
    [W_POSITION_EMBD] = { "position_embd", DIM_EMBD, DIM_POSITION, DIM_ONE, NULL },
    [W_TOKEN_EMBD_NORM] = { "token_embd_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_STATE_INIT] = { "hrm.z_l_init", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_OUTPUT_NORM] = { "output_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_ENCODER_NORM] = { "enc.output_norm", DIM_EMBD, DIM_ONE, DIM_ONE, NULL },
    [W_OUTPUT] = { "output", DIM_EMBD, DIM_LOGIT, DIM_ONE, NULL },
    [W_ROPE_FREQS] = { "rope_freqs", DIM_ROPE_FACTOR, DIM_ONE, DIM_ONE, NULL },
    [W_ROPE_LONG] = { "rope_factors_long", DIM_ROPE_FACTOR, DIM_ONE, DIM_ONE, NULL },
    [W_ROPE_SHORT] = { "rope_factors_short", DIM_ROPE_FACTOR, DIM_ONE, DIM_ONE, NULL },
    [W_CLS] = { "cls", DIM_EMBD, DIM_HIDDEN, DIM_ONE, NULL },
    [W_CLS_NORM] = { "cls.norm", DIM_HIDDEN, DIM_ONE, DIM_ONE, NULL },
    [W_CLS_OUTPUT] = { "cls.output", DIM_HIDDEN, DIM_CLASS, DIM_ONE, NULL },
    [W_DENSE_2] = { "dense_2", DIM_EMBD, DIM_DENSE, DIM_ONE, NULL },
    [W_DENSE_3] = { "dense_3", DIM_DENSE, DIM_EMBD, DIM_ONE, NULL },
    [W_PER_LAYER_EMBD] = { "per_layer_token_embd", DIM_PER_LAYERS, DIM_VOCAB, DIM_ONE, NULL },
    [W_PER_LAYER_MODEL_PROJ] = { "per_layer_model_proj", DIM_EMBD, DIM_PER_LAYERS, DIM_ONE, NULL },
    [W_PER_LAYER_PROJ_NORM] = { "per_layer_proj_norm", DIM_PER_LAYER, DIM_ONE, DIM_ONE, NULL },
    [W_ALTUP_PROJ] = { "altup_proj", DIM_EMBD, DIM_EMBD, DIM_OTHERS, NULL },
    [W_ALTUP_UNEMBD] = { "altup_unembd_proj", DIM_EMBD, DIM_EMBD, DIM_OTHERS, NULL },
};

/* Sizes that differ by layer are those of layer il; outside the layers it is not used. */
static uint64_t dim_size(const struct plan *p, uint32_t il, enum dim dim) {
    const struct attn_plan *a = &p->layers[il].attn;
    const struct latent_plan *l = &a->latent;
    const struct ffn_plan *f = &p->layers[il].ffn;
    const struct delta_plan *d = &p->layers[il].delta;
    const struct scan_plan *s = &p->scan;
    bool is_scan = plan_scans(&p->layers[il]), is_mamba_2 = is_scan && s->kind == SCAN_MAMBA_2;
    const struct rwkv_plan *r = &p->rwkv;
    bool is_gain = a->qk_norm == QK_NORM_GAIN_ROPED;
    switch (dim) {
    case DIM_ONE: return 1;
    case DIM_EMBD: return p->n_embd;
    case DIM_Q: return (uint64_t)a->n_head * plan_head_dim(a);
    case DIM_K: return (uint64_t)a->n_head_kv * a->k_dim;
    case DIM_V: return (uint64_t)a->n_head_kv * a->v_dim;
    case DIM_ATTN: return (uint64_t)a->n_head * plan_head_out(a);
    case DIM_QKV: return dim_size(p, il, DIM_Q) + dim_size(p, il, DIM_K) + dim_size(p, il, DIM_V);
    case DIM_Q_NORM: return a->qk_norm == QK_NORM_ROW ? dim_size(p, il, DIM_Q) : is_gain ? 1 : a->k_dim;
    case DIM_K_NORM: return a->qk_norm == QK_NORM_ROW ? dim_size(p, il, DIM_K) : is_gain ? 1 : a->k_dim;
    case DIM_Q_NORMS: return a->qk_norm == QK_NORM_HEADS || is_gain ? a->n_head : 1;
    case DIM_K_NORMS: return a->qk_norm == QK_NORM_HEADS || is_gain ? a->n_head_kv : 1;
    case DIM_Q_ROWS: return dim_size(p, il, DIM_Q) * (a->gate_in_q ? 2 : 1);
    case DIM_GATE:
        return p->layers[il].mixer == MIXER_DELTA_NET ? dim_size(p, il, DIM_CONV_OUT)
                                                      : (uint64_t)a->n_head * (a->gate_per_head ? 1 : plan_head_out(a));
    case DIM_HEAD: return a->n_head;
    case DIM_BUCKET: return a->n_bucket;
    case DIM_FF: return f->n_ff;
    case DIM_GATE_UP: return 2 * (uint64_t)f->n_ff;
    case DIM_FF_EXPERT: return f->n_ff_expert;
    case DIM_GATE_UP_EXPERT: return 2 * (uint64_t)f->n_ff_expert;
    case DIM_FF_SHARED: return f->n_ff_shared;
    case DIM_FF_ADJUGATE: return f->n_ff_adjugate;
    case DIM_EXPERT: return f->n_expert;
    case DIM_ADJUGATE: return f->n_adjugate;
    case DIM_POSITION: return p->n_ctx_train;
    case DIM_VOCAB: return p->n_vocab;
    case DIM_LOGIT: return p->n_logit > 0 ? p->n_logit : p->n_vocab;
    case DIM_ROPE_FACTOR: return p->n_rope_factor;
    case DIM_TOKEN_TYPE: return p->n_token_type;
    case DIM_HIDDEN: return p->pooling.n_hidden;
    case DIM_CLASS: return p->pooling.n_class;
    case DIM_DENSE: return p->pooling.n_dense;
    case DIM_CONV: return p->layers[il].n_conv;
    case DIM_CONV_IN:
        if (is_scan) return plan_scan_in(s);
        if (p->layers[il].mixer == MIXER_LIGHTNING) return 3 * dim_size(p, il, DIM_Q);
        return plan_conv_width(p, il) * (p->layers[il].mixer == MIXER_CONVOLUTION ? 3 : 1);
    case DIM_CONV_WIDTH: return plan_conv_width(p, il);
    case DIM_CONV_OUT:
        if (is_scan) return plan_scan_width(s);
        if (p->layers[il].mixer == MIXER_LIGHTNING) return dim_size(p, il, DIM_ATTN);
        return p->layers[il].mixer == MIXER_CONVOLUTION ? p->n_embd : (uint64_t)d->n_head * d->dim;
    case DIM_DELTA: return is_scan ? plan_scan_width(s) / s->n_group : d->dim;
    case DIM_DELTA_HEAD: return is_scan ? s->n_head : d->n_head;
    case DIM_DT: return d->is_diagonal ? delta_n_decay(d) : dim_size(p, il, DIM_DELTA_HEAD);
    case DIM_DELTA_HEADS: return 2 * (uint64_t)d->n_head;
    case DIM_A:
        if (is_mamba_2 || d->is_diagonal) return 1;
        return is_scan && s->kind == SCAN_MAMBA ? s->n_state : dim_size(p, il, DIM_DELTA_HEAD);
    case DIM_A_ROWS: return d->is_diagonal ? d->n_head : is_scan && s->kind != SCAN_PLAMO_2 ? s->n_head : 1;
    case DIM_D: return is_mamba_2 ? 1 : s->n_head;
    case DIM_D_ROWS: return is_mamba_2 ? s->n_head : 1;
    case DIM_SCAN_X: return s->n_rank + 2 * (uint64_t)s->n_state;
    case DIM_STATE: return s->n_state;
    case DIM_RANK: return s->n_rank;
    case DIM_SCAN_GROUPS: return is_scan ? s->n_group : 1;
    case DIM_PER_LAYER: return p->n_per_layer;
    case DIM_STREAM: return p->n_stream;
    case DIM_STREAMS: return (uint64_t)p->n_stream * p->n_stream;
    case DIM_OTHERS: return p->n_stream - 1;
    case DIM_NARROW: return p->n_narrow;
    case DIM_EXPERT_ROW: return plan_expert_row(p);
    case DIM_PER_LAYERS: return (uint64_t)p->n_layer * p->n_per_layer;
    case DIM_LATENT_Q_A: return l->n_q;
    case DIM_LATENT_KV: return (uint64_t)l->n_kv + l->n_rotated;
    case DIM_LATENT: return l->n_kv;
    case DIM_LATENT_KV_B: return (uint64_t)a->n_head * (l->n_plain + l->v_dim);
    case DIM_PLAIN: return l->n_plain;
    case DIM_LATENT_V: return l->v_dim;
    case DIM_LERP_ROWS: return p->layers[il].n_lerp_row;
    case DIM_LERPS: return RWKV_LERPS;
    case DIM_LERP_RANK: return r->n_lerp;
    case DIM_LERP_RANKS: return (uint64_t)RWKV_LERPS * r->n_lerp;
    case DIM_VALUE_RANK: return r->n_value;
    case DIM_DECAY_RANK: return d->n_rank > 0 ? d->n_rank : d->is_diagonal ? delta_n_decay(d) : r->n_decay;
    case DIM_RATE_RANK: return r->n_rate;
    case DIM_GATE_RANK: return d->n_rank > 0 ? d->n_rank : d->is_diagonal ? delta_n_decay(d) : r->n_gate;
    case DIM_BONUS: return r->kind == RWKV_7 ? p->n_embd : a->k_dim;
    case DIM_BONUS_ROWS: return r->kind == RWKV_7 ? 1 : a->n_head;
    }
    return 0;
}

/* Writes the first n_dims dimensions as "[576, 192]". */
static void shape_text(char *buf, size_t cap, const uint64_t *shape, uint32_t n_dims) {
    int n = snprintf(buf, cap, "[");
    for (uint32_t i = 0; i < n_dims && n >= 0 && (size_t)n < cap; i++) {
        n += snprintf(buf + n, cap - (size_t)n, i == 0 ? "%llu" : ", %llu", (unsigned long long)shape[i]);
    }
    if (n >= 0 && (size_t)n < cap) snprintf(buf + n, cap - (size_t)n, "]");
}

/* Collects problems: the first one becomes *err, and on_problem gets all of them. */
struct problems {
    struct error *err;
    uint64_t n;
    model_on_problem *on_problem;   /* NULL: only the first one is wanted */
    void *user;
};

PRINTF_LIKE(3, 4) static void problem(struct problems *p, plumb_status status, const char *format, ...) {
    char message[sizeof p->err->message];
    va_list args;
    va_start(args, format);
    if (vsnprintf(message, sizeof message, format, args) < 0) message[0] = 0;
    va_end(args);
    if (p->n++ == 0) error_set(p->err, status, "%s", message);
    if (p->on_problem) p->on_problem(p->user, status, message);
}

/* A place for a tensor: what its shape must be, and the pointer to its weight; NULL: it is not used. */
struct slot {
    const struct weight **weight;
    uint64_t shape[4];
    uint32_t n_dims;
    bool is_f32;        /* norms, biases and factors are used in place as F32; every converter writes them so */
};

/* Adds tensor t of g to the model's weights and reports where t differs from what its slot needs. */
static void bind_weight(struct model *m, const struct slot *slot, struct gguf *g, const struct gguf_tensor *t,
                        struct problems *p) {
    const uint64_t *expected = slot->shape;
    if (t->shape[0] != expected[0] || t->shape[1] != expected[1] || t->shape[2] != expected[2]
        || t->shape[3] != expected[3]) {
        char has[100], needs[100];
        shape_text(has, sizeof has, t->shape, t->n_dims);
        shape_text(needs, sizeof needs, expected, slot->n_dims);
        bool is_transposed = slot->n_dims > 1 && t->shape[0] == expected[1] && t->shape[1] == expected[0]
                          && t->shape[2] == expected[2] && t->shape[3] == 1;
        problem(p, PLUMB_ERROR_TENSOR, "tensor %s: expected shape %s, file has %s %s%s", t->name.data, needs,
                quant_traits(t->type)->name, has, is_transposed ? ": it is transposed" : "");
    }
    if (slot->is_f32 && t->type != QUANT_F32) {
        problem(p, PLUMB_ERROR_UNSUPPORTED, "tensor %s: expected F32, file has %s", t->name.data,
                quant_traits(t->type)->name);
    }
    if (expected[1] * expected[2] > UINT32_MAX) {   /* each factor is far below 2^32 */
        problem(p, PLUMB_ERROR_UNSUPPORTED, "tensor %s has %llu rows, expected at most %u", t->name.data,
                (unsigned long long)(expected[1] * expected[2]), UINT32_MAX);
    }
    struct weight *w = &m->weights[m->n_weight];   /* of four dimensions two are 1 */
    *w = (struct weight) {
        .tensor = (uint32_t)m->n_weight++,
        .name = t->name.data, .traits = quant_traits(t->type), .type = t->type, .data = t->data,
        .n_in = (uint32_t)expected[0], .n_out = (uint32_t)(expected[1] * expected[2] * expected[3]),
        .n_matrix = (uint32_t)expected[2], .n_apart = (uint32_t)expected[1], .row_bytes = gguf_row_bytes(t),
        .n_packed = (uint32_t)t->n_packed, .file = g, .offset = t->offset,
    };
    m->types |= UINT64_C(1) << t->type;
    *slot->weight = w;
}

static struct affine *affine_of(struct model *m, uint32_t il, uint32_t id) {
    struct affine *const outside[] = { &m->token_embd, &m->token_types, &m->position_embd, &m->token_embd_norm,
                                       &m->state_init, &m->output_norm, &m->output, &m->rope_freqs, &m->rope_long,
                                       &m->rope_short, &m->cls, &m->cls_norm, &m->cls_output, &m->dense_2,
                                       &m->dense_3, &m->per_layer_embd, &m->per_layer_model_proj,
                                       &m->per_layer_proj_norm, &m->altup_proj, &m->altup_unembd, &m->encoder_norm };
    _Static_assert(sizeof outside / sizeof *outside == W_COUNT - W_LAYER_COUNT, "a place for each weight");
    return id < W_LAYER_COUNT ? &m->layers[il].w[id] : outside[id - W_LAYER_COUNT];
}

const char *model_weight_name(const struct plan *p, uint32_t id) {
    return p->names[id] ? p->names[id] : specs[id].name;
}

const char *model_weight_prefix(const struct plan *p, uint32_t il, uint32_t id) {
    bool is_own = id == W_ATTN_NORM || (id >= W_ATTN_Q && id <= W_ATTN_V) || id == W_ATTN_OUTPUT;
    return p->layers[il].attn.reads_encoder && is_own ? "cross_" : "";
}

/* The first layer with the weights of a block of the file; n_layer if none has them.  A block of a decoder is two
 * layers, each with weights of its own. */
static uint32_t layer_of_block(const struct plan *p, bool in_decoder, uint32_t block) {
    if (in_decoder) return p->n_encoder + 2 * block;
    uint32_t il = block;
    if (p->layers[block].block != block) for (il = 0; il < p->n_layer && p->layers[il].block != block; il++) { }
    return il;
}

/* The first layer with the weights of layer il. */
static uint32_t layer_alike(const struct plan *p, uint32_t il) {
    return p->n_encoder > 0 ? il : layer_of_block(p, false, p->layers[il].block);
}

/* The number of blocks in the file whose names have the prefix of the encoder, or of the decoder. */
static uint32_t n_blocks(const struct plan *p, bool in_decoder) {
    return in_decoder ? (p->n_layer - p->n_encoder) / 2 : p->n_encoder > 0 ? p->n_encoder : p->n_layer;
}

/* Returns what follows "blk." if a name of a tensor begins so after a prefix, or NULL. */
static const char *in_block(const char *name, const char *prefix) {
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || strncmp(name + n, "blk.", 4) != 0) return NULL;
    name += n + 4;
    return *name >= '0' && *name <= '9' ? name : NULL;
}

static const char *weight_suffix(uint32_t id) { return specs[id].suffix ? specs[id].suffix : "weight"; }

/* The place of the tensor with the name of weight `id` and what follows it: "weight", "bias", "scale", "input_scale",
 * "lora_a" or "lora_b".  Returns false if the architecture does not have the tensor. */
static bool find_part(struct model *m, uint32_t il, uint32_t id, const char *kind, struct slot *slot) {
    const struct plan *p = &m->plan;
    const struct weight_spec *spec = &specs[id];
    struct affine *of = affine_of(m, il, id);
    uint64_t n_in = dim_size(p, il, spec->n_in), n_out = dim_size(p, il, spec->n_out);
    uint64_t n_matrix = dim_size(p, il, spec->n_matrix);
    bool has_rows = spec->n_out == DIM_Q_NORMS || spec->n_out == DIM_K_NORMS || spec->n_out == DIM_A_ROWS
                 || spec->n_out == DIM_D_ROWS || spec->n_out == DIM_SCAN_GROUPS || spec->n_out == DIM_LERP_ROWS
                 || spec->n_out == DIM_BONUS_ROWS;
    bool is_vector = spec->n_out == DIM_ONE || has_rows, is_expert = spec->n_matrix != DIM_ONE;
    if (strcmp(kind, weight_suffix(id)) == 0) {
        uint32_t n_dims = is_expert ? 3 : n_out == 1 && is_vector ? 1 : 2;
        *slot = (struct slot) { &of->w, { n_in, n_out, n_matrix, 1 }, n_dims, is_vector };
        if (id == W_LERP) *slot = (struct slot) { &of->w, { n_in, 1, 1, n_out }, 4, true };   /* in all files */
        return true;
    }
    if (strcmp(kind, "bias") == 0) {
        uint64_t n_row = has_rows ? n_out : n_matrix;   /* of norms of heads, or of experts */
        uint32_t n_dims = n_row > 1 || is_expert ? 2 : 1;
        *slot = (struct slot) { &of->b, { is_vector ? n_in : n_out, n_row, 1, 1 }, n_dims, true };
        return p->biased >> id & 1;
    }
    bool is_a = strcmp(kind, "lora_a") == 0, is_b = strcmp(kind, "lora_b") == 0;
    if (is_a || is_b) {
        uint64_t n_rank = p->adapters.n_rank, n_adapter = (uint64_t)p->adapters.n + 1;
        *slot = (struct slot) { is_a ? &of->lora_a : &of->lora_b,
                                { is_a ? n_in : n_rank, is_a ? n_rank : n_out, n_adapter, 1 }, 3, false };
        return p->switched >> id & 1;
    }
    /* llama.cpp loads both for every matrix of a layer.  It uses no input_scale, and a scale only in some
     * architectures. */
    bool is_scale = strcmp(kind, "scale") == 0;
    *slot = (struct slot) { is_scale && p->scaled >> id & 1 ? &of->s : NULL, { n_matrix, 1, 1, 1 }, 1, true };
    return id < W_LAYER_COUNT && !is_vector && (is_scale || strcmp(kind, "input_scale") == 0);
}

/* The place of the tensor whose name ends so, if it is of one of the weights first .. end - 1.  Returns false if the
 * layer, or the model outside the layers, does not have it. */
static bool find_weight(struct model *m, uint32_t il, uint32_t first, uint32_t end, const char *rest,
                        struct slot *slot) {
    const struct plan *p = &m->plan;
    id_set set = (p->required | p->optional) & ~(first < W_LAYER_COUNT ? p->layers[il].without : 0);
    for (uint32_t i = first; i < end; i++) {
        const char *before = model_weight_prefix(p, il, i), *own = model_weight_name(p, i), *at = rest;
        size_t n = strlen(own), n_before = strlen(before);
        if (!(set >> i & 1) || strncmp(at, before, n_before) != 0) continue;
        at += n_before;
        if (strncmp(at, own, n) != 0) continue;   /* another weight may have this name */
        bool is_whole = at[n] == '\0' && p->unsuffixed >> i & 1;
        if (at[n] != '.' && !is_whole) continue;
        if (find_part(m, il, i, is_whole ? weight_suffix(i) : at + n + 1, slot)) return true;
    }
    return false;
}

/* Finds the place of a tensor by its name: "blk.3.attn_q.bias" is that of the bias of W_ATTN_Q in layer 3.  The place
 * of a tensor that is accepted but not used has no weight.  Returns false if the architecture does not have the
 * tensor. */
static bool find_slot(struct model *m, const char *name, struct slot *slot) {
    const struct plan *p = &m->plan;
    const char *rest = in_block(name, p->layers[0].prefix);
    bool in_decoder = !rest && p->n_encoder > 0 && (rest = in_block(name, p->layers[p->n_encoder].prefix)) != NULL;
    bool in_layer = rest != NULL;
    uint32_t il = 0;
    if (in_layer) {
        const char *end = rest;
        il = decimal_read_u32(&end);
        if (*end != '.' || (*rest == '0' && end != rest + 1)) return false;
        rest = end + 1;
    } else {
        rest = name;
    }
    *slot = (struct slot) { NULL, { 1, 1, 1, 1 }, 1, false };
    if (il >= n_blocks(p, in_decoder)) return il - n_blocks(p, in_decoder) < p->n_ignored_layer;
    if (in_layer && strcmp(rest, "attn_rot_embd.weight") == 0) return true;   /* old converters wrote it */
    /* The number in the name is that of a block, but of the layer in the names of factors, as in llama.cpp. */
    const char *dot = strrchr(rest, '.');
    bool is_factor = dot && (strcmp(dot, ".scale") == 0 || strcmp(dot, ".input_scale") == 0);
    if (in_layer && (!is_factor || p->n_encoder > 0)) il = layer_of_block(p, in_decoder, il);
    if (il == p->n_layer) return false;
    uint32_t first = in_layer ? 0 : W_LAYER_COUNT, end = in_layer ? W_LAYER_COUNT : W_COUNT;
    for (uint32_t k = 0; k < (in_decoder ? 2 : 1); k++) {
        if (find_weight(m, il + k, first, end, rest, slot)) return true;
    }
    *slot = (struct slot) { NULL, { 1, 1, 1, 1 }, 1, false };
    for (const char *const *unused = p->unused; unused && *unused; unused++) {
        if (strcmp(rest, *unused) == 0) return true;
    }
    return false;
}

_Static_assert(QUANT_TYPE_COUNT <= 64, "struct model has a bit for each type");

static void bind_part(struct model *m, struct gguf *g, struct problems *p) {
    for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct slot slot;
        if (!find_slot(m, t->name.data, &slot)) {
            struct shown shown;
            problem(p, PLUMB_ERROR_UNSUPPORTED, "tensor \"%s\" is not used by a %s model of %u blocks",
                    show_bytes(&shown, t->name.data, (size_t)t->name.n), m->plan.architecture,
                    n_blocks(&m->plan, false));
        } else if (slot.weight && *slot.weight) {
            problem(p, PLUMB_ERROR_TENSOR, "tensor %s is in more than one part of the split file", t->name.data);
        } else if (slot.weight) {
            bind_weight(m, &slot, g, t, p);
        }
    }
}

struct weight weight_rows(const struct weight *w, uint64_t first, uint64_t n_row) {
    struct weight rows = *w;
    rows.n_out = (uint32_t)n_row;
    rows.n_matrix = 1;
    rows.n_apart = rows.n_out;
    rows.n_packed = w->n_packed > first ? w->n_packed - (uint32_t)first : 0;
    if (rows.n_packed > n_row) rows.n_packed = (uint32_t)n_row;
    if (rows.data) rows.data += first * w->row_bytes;
    rows.offset += first * w->row_bytes;
    rows.first += (uint32_t)first;
    return rows;
}

/* A slice of a fused weight, of each of its matrices if there are several, or of its bias, whose elements are the
 * rows. */
static const struct weight *slice(struct model *m, const struct weight *fused, uint64_t first, uint64_t n_row,
                                  struct problems *p) {
    struct weight *w = &m->weights[m->n_weight++];
    if (fused->n_out == 1) {
        *w = *fused;
        w->n_in = (uint32_t)n_row;
        w->row_bytes = (size_t)n_row * sizeof(float);
        if (w->data) w->data += first * sizeof(float);
        w->offset += first * sizeof(float);
        return w;
    }
    if (fused->n_packed > 0 && first % REPACK_ROWS != 0) {
        problem(p, PLUMB_ERROR_UNSUPPORTED, "tensor %s: a part of it begins at row %llu, expected a multiple of %d",
                fused->name, (unsigned long long)first, REPACK_ROWS);
    }
    *w = weight_rows(fused, first, (uint64_t)(fused->n_matrix - 1) * fused->n_apart + n_row);
    w->n_out = (uint32_t)(fused->n_matrix * n_row);
    w->n_matrix = fused->n_matrix;
    w->n_apart = fused->n_apart;
    return w;
}

/* The weights whose rows a fused tensor has, in this order. */
static const struct { enum weight_id fused; uint32_t n; enum weight_id parts[3]; } fusions[] = {
    { W_ATTN_QKV, 3, { W_ATTN_Q, W_ATTN_K, W_ATTN_V } },
    { W_FFN_GATE_UP, 2, { W_FFN_GATE, W_FFN_UP } },
    { W_FFN_GATE_UP_EXPS, 2, { W_FFN_GATE_EXPS, W_FFN_UP_EXPS } },
};
/* Slices of the fused weights of a layer, with their biases. */
enum { SLICES = 2 * (3 + 2 + 2) };

/* Binds the parts of the fused weights of a layer. */
static void split_fused(struct model *m, uint32_t il, struct problems *p) {
    struct affine *w = m->layers[il].w;
    for (size_t i = 0; i < sizeof fusions / sizeof *fusions; i++) {
        const struct affine *fused = &w[fusions[i].fused];
        uint64_t first = 0;
        for (uint32_t k = 0; fused->w && k < fusions[i].n; k++) {
            struct affine *part = &w[fusions[i].parts[k]];
            uint64_t n_row = dim_size(&m->plan, il, specs[fusions[i].parts[k]].n_out);
            if (part->w) {
                problem(p, PLUMB_ERROR_TENSOR, "tensor %s: the file also has %s, which has the same rows",
                        part->w->name, fused->w->name);
            }
            part->w = slice(m, fused->w, first, n_row, p);
            part->b = fused->b ? slice(m, fused->b, first, n_row, p) : part->b;
            part->s = fused->s ? fused->s : part->s;
            first += n_row;
        }
    }
}

static void check_required(struct model *m, struct problems *p) {
    for (uint32_t i = W_LAYER_COUNT; i < W_COUNT; i++) {
        if (affine_of(m, 0, i)->w || !(m->plan.required >> i & 1)) continue;
        problem(p, PLUMB_ERROR_TENSOR, "tensor %s.weight is missing", model_weight_name(&m->plan, i));
    }
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        id_set required = m->plan.required & ~m->plan.layers[il].without;
        if (layer_alike(&m->plan, il) != il) continue;
        for (uint32_t i = 0; i < W_LAYER_COUNT; i++) {
            const struct affine *of = &m->layers[il].w[i];
            bool lacks_lora = m->plan.switched >> i & 1 && (!of->lora_a || !of->lora_b);
            if ((of->w && !lacks_lora) || !(required >> i & 1)) continue;
            problem(p, PLUMB_ERROR_TENSOR, "tensor %sblk.%u.%s%s.%s is missing", m->plan.layers[il].prefix,
                    m->plan.layers[il].block, model_weight_prefix(&m->plan, il, i), model_weight_name(&m->plan, i),
                    !of->w ? weight_suffix(i) : of->lora_a ? "lora_b" : "lora_a");
        }
    }
}

const float *model_rope_factors(const struct model *m, uint32_t rope, uint32_t n_ctx) {
    uint32_t padded = n_ctx > UINT32_MAX - 255 ? UINT32_MAX : (n_ctx + 255) / 256 * 256;   /* as in llama.cpp */
    const struct weight *w = m->rope_freqs.w;
    if (!w) w = padded > m->plan.n_ctx_original ? m->rope_long.w : m->rope_short.w;
    const struct rope_plan *r = &m->plan.ropes[rope];   /* layers with windows may rotate more pairs than there are */
    return w && w->data && r->has_factors && r->n_rot / 2 <= w->n_in ? (const float *)(const void *)w->data : NULL;
}

/* Angles are divided by these factors. */
static void check_factors(const struct weight *w, struct problems *p) {
    for (uint32_t i = 0; w && w->data && i < w->n_in; i++) {   /* no data if only the header was read */
        float factor = f32_from_bits(load_u32(w->data + 4 * (size_t)i));
        float size = factor < 0 ? -factor : factor;
        if (!(size >= 1e-4f && size <= 1e31f)) {   /* Gemma 4 has 1e30 for the pairs that it does not rotate */
            problem(p, PLUMB_ERROR_TENSOR, "tensor %s: element %u is %g, expected a magnitude of 0.0001 to 1e31",
                    w->name, i, (double)factor);
        }
    }
}

/* How many tensors have a place in the model.  Tensors with unknown names take no memory here. */
static uint64_t count_weights(struct model *m, struct gguf *const *parts, size_t n_part) {
    uint64_t n = 0;
    for (size_t i = 0; i < n_part; i++) {
        for (uint64_t k = 0; k < gguf_n_tensor(parts[i]); k++) {
            struct slot slot;
            n += find_slot(m, gguf_tensor_at(parts[i], k)->name.data, &slot);
        }
    }
    return n;
}

static void bind_all(struct model *m, struct gguf *const *parts, size_t n_part, struct problems *p) {
    for (size_t i = 0; i < n_part; i++) {
        bind_part(m, parts[i], p);
        for (uint64_t k = 0; k < gguf_n_tensor(parts[i]); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(parts[i], k);
            if (t->n_packed > 0 && gguf_row_bytes(t) > m->max_packed_row) m->max_packed_row = gguf_row_bytes(t);
        }
    }
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        const struct layer *first = &m->layers[layer_alike(&m->plan, il)];
        for (uint32_t i = 0; i < W_LAYER_COUNT; i++) {
            m->layers[il].w[i].w = first->w[i].w;
            m->layers[il].w[i].b = first->w[i].b;
        }
    }
    for (uint32_t il = 0; il < m->plan.n_layer && p->n == 0; il++) {
        struct affine *w = m->layers[il].w;
        split_fused(m, il, p);
        bool may_lack_v = (m->plan.optional & ~m->plan.layers[il].without) >> W_ATTN_V & 1;
        if (may_lack_v && !w[W_ATTN_V].w) w[W_ATTN_V] = w[W_ATTN_K];   /* V is K without its norm */
        const struct affine *buckets = &m->layers[plan_first(&m->plan, il)].w[W_ATTN_BUCKETS];
        if (m->plan.layers[il].attn.n_bucket > 0 && !w[W_ATTN_BUCKETS].w) w[W_ATTN_BUCKETS] = *buckets;
    }
    check_required(m, p);
    if (!m->output.w && m->plan.has_logits) m->output.w = m->token_embd.w;   /* tied */
    if (p->n > 0) return;   /* a tensor may have fewer elements than its weight says */
    check_factors(m->rope_freqs.w, p);
    check_factors(m->rope_long.w, p);
    check_factors(m->rope_short.w, p);
}

struct shared_program { struct program program; struct shared_program *next; };

/* The program of a layer, which may be that of one of the last kinds of layers.  NULL: out of memory. */
static const struct program *share_program(struct model *m, uint32_t il) {
    enum { N_LOOK = 8 };
    const struct program made = program_of(&m->plan, m, il);
    struct shared_program *p = m->programs;
    for (int i = 0; p && i < N_LOOK; i++, p = p->next) {
        if (program_equals(&p->program, &made)) return &p->program;
    }
    p = malloc(sizeof *p);
    if (!p) return NULL;
    *p = (struct shared_program){ made, m->programs };
    m->programs = p;
    return &p->program;
}

static plumb_status create(struct model **out, struct gguf *const *parts, size_t n_part, uint32_t n_vocab,
                           struct problems *problems) {
    struct error *err = problems->err;
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    if (!m) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the model needs %zu bytes", sizeof *m);
    uint64_t n_tensor = 0;
    for (size_t i = 0; i < n_part; i++) n_tensor += gguf_n_tensor(parts[i]);
    plumb_status status = plan_create(&m->plan, parts, n_part, n_tensor, err);
    if (status != PLUMB_OK) goto done;
    m->plan.n_vocab = n_vocab;
    if (m->plan.hidden_end > n_vocab) {
        status = error_set(err, PLUMB_ERROR_METADATA, "the vocabulary has %u tokens, but this architecture has codes "
                           "of images up to token %u", n_vocab, m->plan.hidden_end - 1);
        goto done;
    }
    if (m->plan.n_logit > n_vocab) {
        status = error_set(err, PLUMB_ERROR_METADATA, "the vocabulary has %u tokens, fewer than the %u rows that "
                           "output.weight has in this architecture", n_vocab, m->plan.n_logit);
        goto done;
    }
    if (m->plan.decoder_start >= 0 && (uint32_t)m->plan.decoder_start >= n_vocab) {
        status = error_set(err, PLUMB_ERROR_METADATA, "key %s.decoder_start_token_id is %d, but the vocabulary has %u "
                           "tokens", m->plan.architecture, (int)m->plan.decoder_start, n_vocab);
        goto done;
    }
    for (uint32_t i = 0; i < m->plan.adapters.n; i++) {
        uint64_t id = gguf_element(m->plan.adapters.substitutes, i);
        if (id < n_vocab) continue;
        status = error_set(err, PLUMB_ERROR_METADATA, "key %s.adapters.token_ids_substitute: element %u is no token, "
                           "of which there are %u", m->plan.architecture, i, n_vocab);
        goto done;
    }
    m->layers = calloc(m->plan.n_layer, sizeof *m->layers);
    uint64_t n_weight = m->layers ? count_weights(m, parts, n_part) + SLICES * (uint64_t)m->plan.n_layer : 0;
    m->weights = m->layers ? alloc_array(n_weight, sizeof *m->weights) : NULL;
    if (!m->weights) {
        status = error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the tables of %u layers", m->plan.n_layer);
        goto done;
    }
    bind_all(m, parts, n_part, problems);
    if (problems->n > 0) status = err->status;
    for (uint32_t il = 0; il < m->plan.n_layer && status == PLUMB_OK; il++) {
        m->layers[il].program = share_program(m, il);
        if (m->layers[il].program) continue;
        status = error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the program of a layer");
    }
done:
    if (status != PLUMB_OK) {
        model_free(m);
        return status;
    }
    *out = m;
    return PLUMB_OK;
}

plumb_status model_create(struct model **out, struct gguf *const *parts, size_t n_part, uint32_t n_vocab,
                          struct error *err) {
    struct problems problems = { .err = err };
    return create(out, parts, n_part, n_vocab, &problems);
}

plumb_status model_check_tensors(struct gguf *const *parts, size_t n_part, uint32_t n_vocab,
                                 model_on_problem *on_problem, void *user, struct error *err) {
    struct problems problems = { err, 0, on_problem, user };
    struct model *m;
    PLUMB_TRY(create(&m, parts, n_part, n_vocab, &problems));
    model_free(m);
    return PLUMB_OK;
}

/* ---- rehearsal ------------------------------------------------------------------------------------------------- */

enum { RING_ALIGNMENT = 64 };

/* A pass reads only some rows of a table of embeddings for each layer, which is far larger than all matrices: in a
 * rehearsal all its rows are the same one. */
static bool is_table(const struct model *m, const struct weight *w) { return w == m->per_layer_embd.w; }

static uint64_t ring_bytes(const struct model *m, const struct weight *w) {
    uint64_t n_row = is_table(m, w) ? 1 : w->n_out;
    return (w->row_bytes * n_row + RING_ALIGNMENT - 1) & ~(uint64_t)(RING_ALIGNMENT - 1);
}

uint64_t model_largest_weight(const struct model *m, uint64_t *all) {
    uint64_t largest = 0;
    *all = 0;
    for (size_t i = 0; i < m->n_weight; i++) {
        uint64_t n = ring_bytes(m, &m->weights[i]);
        *all += n;
        if (n > largest) largest = n;
    }
    return largest;
}

void model_rehearse(struct model *m, uint8_t *ring, uint64_t n) {
    uint64_t at = 0;
    for (size_t i = 0; i < m->n_weight; i++) {
        struct weight *w = &m->weights[i];
        uint64_t n_bytes = ring_bytes(m, w);
        if (n_bytes > n - at) at = 0;
        w->data = ring ? ring + at : NULL;
        bool can = w->n_out > 1 && repack_can_rows(w->type, w->row_bytes);
        if (w->n_matrix > 1 && w->n_out / w->n_matrix % REPACK_ROWS != 0) can = false;
        if (is_table(m, w)) can = false, w->row_bytes = 0;
        w->n_packed = can ? w->n_out / REPACK_ROWS * REPACK_ROWS : 0;
        w->n_apart = w->n_out / w->n_matrix;
        at += n_bytes;
    }
    m->rope_freqs.w = m->rope_long.w = m->rope_short.w = NULL;
    m->is_rehearsed = true;
}

id_set model_absent_taps(const struct model *m, uint32_t il) {
    id_set there = program_taps(m->layers[il].program, m, il), absent = 0;
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        if (tap_spec((enum tap_id)i)->in_layer && !(there >> i & 1)) absent |= ID_SET(i);
    }
    return absent;
}

id_set model_tap_inputs(const struct model *m, enum tap_id id, int32_t layer) {
    if (layer >= 0) return program_inputs(m->layers[layer].program, m, (uint32_t)layer, id);
    switch (id) {
    case TAP_EMBD: case TAP_ENCODER_EMBD: return 0;
    case TAP_PER_LAYER: return TAP_SET(EMBD);
    case TAP_RESULT_NORM: return TAP_SET(L_OUT);
    default: return TAP_SET(RESULT_NORM);
    }
}

struct tap_input model_tap_input(const struct model *m, enum tap_id id, int32_t layer, enum tap_id input) {
    const struct plan *p = &m->plan;
    if (input == TAP_ENCODED) return (struct tap_input) { input, (int32_t)p->n_encoder - 1 };
    if (input != TAP_L_OUT) return (struct tap_input) { input, tap_spec(input)->in_layer ? layer : -1 };
    if (id == TAP_ENCODED) return (struct tap_input) { input, layer };
    if (layer < 0) return (struct tap_input) { input, (int32_t)p->n_layer - 1 };
    if ((uint32_t)layer != plan_first(p, (uint32_t)layer)) return (struct tap_input) { input, layer - 1 };
    return (struct tap_input) { (uint32_t)layer < p->n_encoder ? TAP_ENCODER_EMBD : TAP_EMBD, -1 };
}

bool model_has_output_norms(const struct model *m) {
    id_set absent = ALL_IDS;
    for (uint32_t il = 0; il < m->plan.n_layer; il++) absent &= model_absent_taps(m, il);
    return !(absent & TAP_SET(ATTN_POST_NORM)) && !m->plan.has_post_self_attn;
}

uint32_t model_tap_order(const struct model *m) {
    const struct plan *p = &m->plan;
    uint32_t order = p->is_parallel ? TAP_ORDER_PARALLEL : 0;
    if (p->steps == steps_router_first) order |= TAP_ORDER_ROUTER_FIRST;
    if (p->steps == steps_one) order |= TAP_ORDER_ONE_NORM;
    if (p->steps == steps_experts_first) order |= TAP_ORDER_EXPERTS_FIRST;
    if (p->steps == steps_altup) order |= TAP_ORDER_ALTUP;
    if (p->steps == steps_from_norm) order |= TAP_ORDER_FROM_NORM;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (p->is_parallel && !m->layers[il].w[W_FFN_NORM].w) order |= TAP_ORDER_ONE_NORM;
        if (m->layers[il].w[W_FFN_ROUTER_NORM].w) order |= TAP_ORDER_EXPERTS_BESIDE;
        if (plan_norms_roped(&p->layers[il].attn)) order |= TAP_ORDER_NORM_AFTER_ROPE;
        if (p->layers[il].ffn.weights_first) order |= TAP_ORDER_WEIGHTS_FIRST;
        if (p->layers[il].ffn.n_adjugate > 0) order |= TAP_ORDER_ADJUGATES;
        if (p->layers[il].attn.latent.n_kv > 0) order |= TAP_ORDER_LATENT;
    }
    return order;
}

uint32_t model_n_pooled(const struct model *m, plumb_pooling kind) {
    const struct pooling_plan *p = &m->plan.pooling;
    if (kind != PLUMB_POOLING_RANK) return m->dense_2.w && !m->dense_3.w ? p->n_dense : m->plan.n_embd;
    /* A head of cls alone is one if that has a row for each class. */
    return m->cls_output.w || (m->cls.w && p->n_hidden == p->n_class) ? p->n_class : 0;
}

void model_free(struct model *m) {
    if (!m) return;
    plan_free(&m->plan);
    for (struct shared_program *p = m->programs, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(m->layers);
    free(m->weights);
    free(m);
}

void model_rope_angles(const struct model *m, uint32_t rope, uint32_t n_ctx, uint32_t pos, double *angles) {
    const struct rope_plan *r = &m->plan.ropes[rope];
    const float *factors = model_rope_factors(m, rope, n_ctx);
    for (uint32_t i = 0; i < r->n_rot / 2; i++) {
        double frequency = math_pow((double)r->freq_base, -2.0 * i / r->n_rot);
        if (factors) frequency /= (double)factors[i];
        frequency *= plan_yarn_factor(r, i);
        angles[i] = plan_rope_rotates(r, i) ? (double)pos * (double)r->freq_scale * frequency : 0.0;
    }
}

#include "model/tap.h"

const struct tap_spec *tap_spec(enum tap_id id) {
    static const struct tap_spec specs[TAP_COUNT] = {
        [TAP_EMBD] = { "embd", false, false },
        [TAP_PER_LAYER] = { "inp_per_layer", false, true },
        [TAP_ENCODER_EMBD] = { "enc_embd", false, true },
        [TAP_MODALITIES] = { "modalities", true, true },
        [TAP_PREDICTIONS] = { "predictions", true, true },
        [TAP_ACTIVE] = { "active_prediction", true, true },
        [TAP_ATTN_NORM] = { "attn_norm", true, false },
        [TAP_LAUREL] = { "laurel_out", true, true },
        [TAP_QCUR] = { "Qcur", true, false },
        [TAP_KCUR] = { "Kcur", true, false },
        [TAP_VCUR] = { "Vcur", true, false },
        [TAP_QCUR_NORMED] = { "Qcur_normed", true, true },
        [TAP_KCUR_NORMED] = { "Kcur_normed", true, true },
        [TAP_VCUR_NORMED] = { "Vcur_normed", true, true },
        [TAP_QCUR_ROPE] = { "Qcur_rope", true, false },
        [TAP_KCUR_ROPE] = { "Kcur_rope", true, false },
        [TAP_QCUR_SCALED] = { "Qcur_attn_temp_scaled", true, true },
        [TAP_KQ_SOFT_MAX] = { "kq_soft_max", true, false },
        [TAP_KQV_OUT] = { "kqv_out", true, false },
        [TAP_WKV_IN] = { "QKVcur", true, true },
        [TAP_WKV_SILU] = { "QKVcur_silu", true, true },
        [TAP_WKV_MIX] = { "wkv_value_mix", true, true },
        [TAP_WKV_VALUE] = { "wkv_value", true, true },
        [TAP_WKV_DECAY] = { "wkv_decay", true, true },
        [TAP_WKV_RATE] = { "wkv_rate", true, true },
        [TAP_WKV_REMOVAL] = { "wkv_removal", true, true },
        [TAP_WKV_KEY] = { "wkv_key", true, true },
        [TAP_WKV_BONUS] = { "wkv_bonus", true, true },
        [TAP_WKV] = { "wkv_output", true, true },
        [TAP_WKV_NORM] = { "wkv_norm", true, true },
        [TAP_WKV_SUM] = { "wkv_sum", true, true },
        [TAP_ATTN_GATE] = { "attn_gate_proj", true, true },
        [TAP_ATTN_GATED] = { "attn_gated", true, true },
        [TAP_ATTN_SUB_NORM] = { "attn_sub_norm", true, true },
        [TAP_LATENT_Q_A] = { "q_a", true, true },
        [TAP_LATENT_Q] = { "q", true, true },
        [TAP_LATENT_KV] = { "kv_cmpr_pe", true, true },
        [TAP_LATENT] = { "kv_cmpr", true, true },
        [TAP_LATENT_KV_B] = { "kv", true, true },
        [TAP_LATENT_HEADS] = { "kqv_latent", true, true },
        [TAP_ATTN_OUT] = { "attn_out", true, false },
        [TAP_CONV_IN] = { "conv_in", true, true },
        [TAP_DELTA_IN] = { "linear_attn_qkv_mixed", true, true },
        [TAP_DELTA_BETA] = { "beta", true, true },
        [TAP_DELTA_ALPHA] = { "alpha", true, true },
        [TAP_DELTA_BETA_SIGMOID] = { "beta_sigmoid", true, true },
        [TAP_DELTA_DECAY] = { "delta_decay", true, true },
        [TAP_SCAN_IN] = { "mamba_in_proj", true, true },
        [TAP_SCAN_Z] = { "mamba_z_split", true, true },
        [TAP_SCAN_X] = { "mamba_x_split", true, true },
        [TAP_SCAN_DT_IN] = { "mamba2_dt_split", true, true },
        [TAP_CONV] = { "conv", true, true },
        [TAP_CONV_GATED] = { "conv_gated", true, true },
        [TAP_CONV_SILU] = { "conv_output_silu", true, true },
        [TAP_DELTA] = { "delta_rule", true, true },
        [TAP_DELTA_GATED] = { "final_output", true, true },
        [TAP_SCAN_BCDT] = { "mamba_bcdt_proj", true, true },
        [TAP_SCAN_B] = { "mamba_B_raw", true, true },
        [TAP_SCAN_C] = { "mamba_C_raw", true, true },
        [TAP_SCAN_RANK] = { "mamba_dt_raw", true, true },
        [TAP_SCAN_B_NORMED] = { "mamba_B_normed", true, true },
        [TAP_SCAN_C_NORMED] = { "mamba_C_normed", true, true },
        [TAP_SCAN_RANK_NORMED] = { "mamba_dt_normed", true, true },
        [TAP_SCAN_DT] = { "mamba_dt_proj", true, true },
        [TAP_SCAN_STEP] = { "mamba_dt_softplus", true, true },
        [TAP_SCAN] = { "mamba2_y_add_d", true, true },
        [TAP_SCAN_GATED] = { "mamba_y_swiglu_z", true, true },
        [TAP_SCAN_NORM] = { "mamba_norm", true, true },
        [TAP_SCAN_OUT] = { "mamba_out", true, true },
        [TAP_DELTA_OUT] = { "linear_attn_out", true, true },
        [TAP_CONV_OUT] = { "conv_out", true, true },
        [TAP_ATTN_POST_NORM] = { "attn_post_norm", true, true },
        [TAP_FFN_INP] = { "ffn_inp", true, false },
        [TAP_FFN_NORM] = { "ffn_norm", true, false },
        [TAP_FFN_ROUTER] = { "ffn_moe_logits", true, true },
        [TAP_FFN_PROBS] = { "ffn_moe_probs", true, true },
        [TAP_FFN_PROBS_BIASED] = { "ffn_moe_probs_biased", true, true },
        [TAP_FFN_USED] = { "ffn_moe_topk", true, true },
        [TAP_FFN_WEIGHTS] = { "ffn_moe_weights", true, true },
        [TAP_FFN_WEIGHTS_SOFTMAX] = { "ffn_moe_weights_softmax", true, true },
        [TAP_FFN_WEIGHTS_NORM] = { "ffn_moe_weights_norm", true, true },
        [TAP_FFN_WEIGHTS_SCALED] = { "ffn_moe_weights_scaled", true, true },
        [TAP_FFN_NORM_EXPS] = { "ffn_norm_2", true, true },
        [TAP_EXPERT_GATE] = { "ffn_moe_gate", true, true },
        [TAP_EXPERT_UP] = { "ffn_moe_up", true, true },
        [TAP_EXPERT_SWIGLU] = { "ffn_moe_swiglu", true, true },
        [TAP_EXPERT_DOWN] = { "ffn_moe_down", true, true },
        [TAP_EXPERT_WEIGHTED] = { "ffn_moe_weighted", true, true },
        [TAP_FFN_EXPERTS] = { "ffn_moe_out", true, true },
        [TAP_FFN_MOE] = { "ffn_moe", true, true },
        [TAP_FFN_GATE] = { "ffn_gate", true, true },
        [TAP_FFN_UP] = { "ffn_up", true, false },
        [TAP_FFN_SWIGLU] = { "ffn_swiglu", true, false },
        [TAP_FFN_SUB_NORM] = { "ffn_sub_norm", true, true },
        [TAP_FFN_RECEPTANCE] = { "ffn_receptance", true, true },
        [TAP_FFN_SHARED_GATE] = { "ffn_shexp_gate_inp", true, true },
        [TAP_FFN_SHARED] = { "ffn_shexp", true, true },
        [TAP_FFN_MLP] = { "ffn_mlp", true, true },
        [TAP_FFN_OUT] = { "ffn_out", true, false },
        [TAP_FFN_POST_NORM] = { "ffn_post_norm", true, true },
        [TAP_OWN_IN] = { "pe_in", true, true },
        [TAP_CORRECTED] = { "corrected", true, true },
        [TAP_OWN_GATED] = { "first_prediction_gated", true, true },
        [TAP_OWN_SCALED] = { "first_prediction_scaled", true, true },
        [TAP_OWN_OUT] = { "per_layer_embd_out", true, true },
        [TAP_L_OUT] = { "l_out", true, false },
        [TAP_ENCODED] = { "enc_result_norm", true, true },
        [TAP_RESULT_NORM] = { "result_norm", false, false },
        [TAP_RESULT_OUTPUT] = { "result_output", false, false },
        [TAP_RESULT_POOLED] = { "result_embd_pooled", false, true },
    };
    return &specs[id];
}

const char *tap_order_name(uint32_t i) {
    static const char *const names[] = { "parallel", "one_norm", "norm_after_rope", "router_first", "weights_first",
                                        "experts_first", "adjugates", "experts_beside",
                                        "altup", "latent", "from_norm" };
    _Static_assert(TAP_ORDER_ALL == (1 << sizeof names / sizeof *names) - 1, "each flag has a name");
    return i < sizeof names / sizeof *names ? names[i] : NULL;
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

/* Where place `at` of a sequence is after the n places from `first` on moved to just before place `before`, which is
 * smaller. */
static uint32_t moved(uint32_t at, uint32_t first, uint32_t n, uint32_t before) {
    if (at >= before && at < first) return at + n;
    return at >= first && at < first + n ? at - first + before : at;
}

/* The index of a tap in the order of the computation.  No move changes the places that a later one names. */
static uint32_t rank(uint32_t order, enum tap_id id) {
    const uint32_t n_router = TAP_FFN_WEIGHTS_SCALED - TAP_FFN_ROUTER + 1;
    const uint32_t n_expert = TAP_FFN_EXPERTS - TAP_FFN_ROUTER + 1;
    uint32_t at = id;
    if (order & TAP_ORDER_NORM_AFTER_ROPE) at = moved(at, TAP_QCUR_ROPE, 2, TAP_QCUR_NORMED);
    if (order & TAP_ORDER_ROUTER_FIRST) at = moved(at, TAP_FFN_ROUTER, n_router, TAP_QCUR);
    if (order & TAP_ORDER_WEIGHTS_FIRST) at = moved(at, TAP_EXPERT_WEIGHTED, 1, TAP_EXPERT_GATE);
    if (order & TAP_ORDER_EXPERTS_FIRST) at = moved(at, TAP_FFN_ROUTER, n_expert, TAP_ATTN_NORM);
    return at;
}

void tap_sequence(uint32_t order, enum tap_id ids[TAP_COUNT]) {
    for (uint32_t i = 0; i < TAP_COUNT; i++) ids[rank(order, (enum tap_id)i)] = (enum tap_id)i;
}

uint64_t tap_place(uint32_t order, enum tap_id id, int32_t layer) {
    if (id <= TAP_ENCODER_EMBD) return id;
    if (id >= TAP_RESULT_NORM) return (uint64_t)UINT32_MAX * TAP_COUNT + id;
    return (uint64_t)(layer + 1) * TAP_COUNT + rank(order, id);
}

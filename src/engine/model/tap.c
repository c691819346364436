#include "model/tap.h"

const struct tap_spec *tap_spec(enum tap_id id) {
    static const struct tap_spec specs[TAP_COUNT] = {
        [TAP_EMBD] = { "embd", "token embedding", false, false, "token_embd" },
        [TAP_PER_LAYER] = { "inp_per_layer", "embeddings for each layer", false, true,
                            "per_layer_token_embd, per_layer_model_proj, per_layer_proj_norm" },
        [TAP_MODALITIES] = { "modalities", "how the streams of a token are mixed", true, true,
                             "altup_router, altup_router_norm" },
        [TAP_PREDICTIONS] = { "predictions", "predictions of all streams", true, true, "altup_predict_coef" },
        [TAP_ACTIVE] = { "active_prediction", "prediction of the first stream", true, true, "" },
        [TAP_ATTN_NORM] = { "attn_norm", "norm before attention", true, false, "attn_norm" },
        [TAP_LAUREL] = { "laurel_out", "path of few columns beside attention", true, true,
                         "laurel_l, laurel_r, laurel_post_norm" },
        [TAP_QCUR] = { "Qcur", "query before RoPE", true, false, "attn_q" },
        [TAP_KCUR] = { "Kcur", "key before RoPE", true, false, "attn_k" },
        [TAP_VCUR] = { "Vcur", "value", true, false, "attn_v" },
        [TAP_QCUR_NORMED] = { "Qcur_normed", "query after its norm", true, true, "attn_q_norm" },
        [TAP_KCUR_NORMED] = { "Kcur_normed", "key after its norm", true, true, "attn_k_norm" },
        [TAP_VCUR_NORMED] = { "Vcur_normed", "value after its norm", true, true, "" },
        [TAP_QCUR_ROPE] = { "Qcur_rope", "query after RoPE", true, false, "" },
        [TAP_KCUR_ROPE] = { "Kcur_rope", "key after RoPE", true, false, "" },
        [TAP_QCUR_SCALED] = { "Qcur_attn_temp_scaled", "query times its temperature", true, true, "" },
        [TAP_KQ_SOFT_MAX] = { "kq_soft_max", "attention weights", true, false, "" },
        [TAP_KQV_OUT] = { "kqv_out", "weighted sum of values, heads concatenated", true, false, "" },
        [TAP_ATTN_GATE] = { "attn_gate_proj", "gate of attention before its activation", true, true, "attn_gate" },
        [TAP_ATTN_GATED] = { "attn_gated", "weighted sum of values times the activated gate", true, true, "" },
        [TAP_ATTN_SUB_NORM] = { "attn_sub_norm", "norm of the weighted sum of values", true, true, "attn_sub_norm" },
        [TAP_LATENT_Q_A] = { "q_a", "norm of the vector that Q is a product of", true, true, "attn_q_a_norm" },
        [TAP_LATENT_Q] = { "q", "query of latent attention, before RoPE", true, true, "attn_q or attn_q_b" },
        [TAP_LATENT_KV] = { "kv_cmpr_pe", "latent vector and the part of K that is rotated", true, true,
                            "attn_kv_a_mqa" },
        [TAP_LATENT] = { "kv_cmpr", "norm of the latent vector", true, true, "attn_kv_a_norm" },
        [TAP_LATENT_KV_B] = { "kv", "K and V of all heads, of the latent vector", true, true, "attn_kv_b" },
        [TAP_LATENT_HEADS] = { "kqv_latent", "weighted sums of latent vectors", true, true, "" },
        [TAP_ATTN_OUT] = { "attn_out", "attention output", true, false, "attn_output" },
        [TAP_CONV_IN] = { "conv_in", "input of the convolution and its two gates", true, true, "shortconv.in_proj" },
        [TAP_DELTA_IN] = { "linear_attn_qkv_mixed", "Q, K and V before their convolution", true, true,
                           "attn_qkv of the delta net" },
        [TAP_DELTA_BETA] = { "beta", "beta before its sigmoid", true, true, "ssm_beta" },
        [TAP_DELTA_ALPHA] = { "alpha", "decay before its softplus", true, true, "ssm_alpha" },
        [TAP_DELTA_BETA_SIGMOID] = { "beta_sigmoid", "how much of a value replaces the old one", true, true, "" },
        [TAP_DELTA_DECAY] = { "delta_decay", "logarithm of the decay of the state", true, true, "ssm_a, ssm_dt" },
        [TAP_SCAN_IN] = { "mamba_in_proj", "input of the convolution, its gate and, in Mamba 2, dt", true, true,
                          "ssm_in" },
        [TAP_SCAN_Z] = { "mamba_z_split", "gate of the scan before its activation", true, true, "" },
        [TAP_SCAN_X] = { "mamba_x_split", "x and, in Mamba 2, B and C before their convolution", true, true, "" },
        [TAP_SCAN_DT_IN] = { "mamba2_dt_split", "dt before its bias", true, true, "" },
        [TAP_CONV] = { "conv", "convolution over the last tokens", true, true, "shortconv.conv" },
        [TAP_CONV_GATED] = { "conv_gated", "convolution times its second gate", true, true, "" },
        [TAP_CONV_SILU] = { "conv_output_silu", "activation after the convolution", true, true, "" },
        [TAP_DELTA] = { "delta_rule", "what the queries read of the states", true, true, "" },
        [TAP_DELTA_GATED] = { "final_output", "its norm times the activated gate", true, true, "ssm_norm" },
        [TAP_SCAN_BCDT] = { "mamba_bcdt_proj", "B, C and what dt is made of", true, true, "ssm_x" },
        [TAP_SCAN_B] = { "mamba_B_raw", "B: what of x enters the states", true, true, "" },
        [TAP_SCAN_C] = { "mamba_C_raw", "C: what is read of the states", true, true, "" },
        [TAP_SCAN_RANK] = { "mamba_dt_raw", "what dt is made of", true, true, "" },
        [TAP_SCAN_B_NORMED] = { "mamba_B_normed", "B after its norm", true, true, "ssm_b_norm" },
        [TAP_SCAN_C_NORMED] = { "mamba_C_normed", "C after its norm", true, true, "ssm_c_norm" },
        [TAP_SCAN_RANK_NORMED] = { "mamba_dt_normed", "what dt is made of, after its norm", true, true, "ssm_dt_norm" },
        [TAP_SCAN_DT] = { "mamba_dt_proj", "dt before its softplus", true, true, "ssm_dt" },
        [TAP_SCAN_STEP] = { "mamba_dt_softplus", "dt: the steps of time", true, true, "" },
        [TAP_SCAN] = { "mamba2_y_add_d", "what C reads of the states, and D x", true, true, "ssm_a, ssm_d" },
        [TAP_SCAN_GATED] = { "mamba_y_swiglu_z", "activated gate times the output of the scan", true, true, "" },
        [TAP_SCAN_NORM] = { "mamba_norm", "its norm", true, true, "ssm_norm" },
        [TAP_SCAN_OUT] = { "mamba_out", "output of the state-space layer", true, true, "ssm_out" },
        [TAP_DELTA_OUT] = { "linear_attn_out", "output of the delta net", true, true, "ssm_out" },
        [TAP_CONV_OUT] = { "conv_out", "output of the convolution", true, true, "shortconv.out_proj" },
        [TAP_ATTN_POST_NORM] = { "attn_post_norm", "norm after attention", true, true, "post_attention_norm" },
        [TAP_FFN_INP] = { "ffn_inp", "residual after attention", true, false, "" },
        [TAP_FFN_NORM] = { "ffn_norm", "norm before the feed-forward network", true, false, "ffn_norm" },
        [TAP_FFN_ROUTER] = { "ffn_moe_logits", "scores of the experts", true, true, "ffn_gate_inp" },
        [TAP_FFN_PROBS] = { "ffn_moe_probs", "probabilities of the experts", true, true, "" },
        [TAP_FFN_PROBS_BIASED] = { "ffn_moe_probs_biased", "probabilities by which experts are chosen", true, true,
                                   "exp_probs_b" },
        [TAP_FFN_USED] = { "ffn_moe_topk", "experts that a token uses, the best one first", true, true, "" },
        [TAP_FFN_WEIGHTS] = { "ffn_moe_weights", "probabilities of these experts", true, true, "" },
        [TAP_FFN_WEIGHTS_SOFTMAX] = { "ffn_moe_weights_softmax", "softmax over these experts", true, true, "" },
        [TAP_FFN_WEIGHTS_NORM] = { "ffn_moe_weights_norm", "weights divided by their sum", true, true, "" },
        [TAP_FFN_WEIGHTS_SCALED] = { "ffn_moe_weights_scaled", "weights times their scale", true, true, "" },
        [TAP_FFN_NORM_EXPS] = { "ffn_norm_2", "norm before the experts", true, true, "pre_ffw_norm_2" },
        [TAP_EXPERT_GATE] = { "ffn_moe_gate", "gates of the experts before their activation", true, true,
                              "ffn_gate_exps" },
        [TAP_EXPERT_UP] = { "ffn_moe_up", "up projections of the experts", true, true, "ffn_up_exps" },
        [TAP_EXPERT_SWIGLU] = { "ffn_moe_swiglu", "activated gates times up projections", true, true, "" },
        [TAP_EXPERT_DOWN] = { "ffn_moe_down", "outputs of the experts", true, true, "ffn_down_exps" },
        [TAP_EXPERT_WEIGHTED] = { "ffn_moe_weighted", "outputs of the experts times their weights", true, true, "" },
        [TAP_FFN_EXPERTS] = { "ffn_moe_out", "weighted sum of the experts", true, true, "" },
        [TAP_FFN_MOE] = { "ffn_moe", "norm after the experts", true, true, "post_ffw_norm_2" },
        [TAP_FFN_GATE] = { "ffn_gate", "gate before its activation", true, true, "ffn_gate" },
        [TAP_FFN_UP] = { "ffn_up", "up projection", true, false, "ffn_up" },
        [TAP_FFN_SWIGLU] = { "ffn_swiglu", "activated gate times up projection", true, false, "" },
        [TAP_FFN_SUB_NORM] = { "ffn_sub_norm", "norm before the down projection", true, true, "ffn_sub_norm" },
        [TAP_FFN_SHARED_GATE] = { "ffn_shexp_gate_inp", "gate of the shared expert before its activation", true, true,
                                  "ffn_gate_inp_shexp" },
        [TAP_FFN_SHARED] = { "ffn_shexp", "output of the expert that every token uses", true, true, "ffn_down_shexp" },
        [TAP_FFN_MLP] = { "ffn_mlp", "norm after the network beside the experts", true, true, "post_ffw_norm_1" },
        [TAP_FFN_OUT] = { "ffn_out", "feed-forward output", true, false, "ffn_down" },
        [TAP_FFN_POST_NORM] = { "ffn_post_norm", "norm after the feed-forward network", true, true, "post_ffw_norm" },
        [TAP_OWN_IN] = { "pe_in", "residual before the layer's own embedding", true, true, "" },
        [TAP_CORRECTED] = { "corrected", "all streams, corrected by the residual", true, true,
                            "altup_router, altup_correct_coef" },
        [TAP_OWN_GATED] = { "first_prediction_gated", "activated gate of the layer's own embedding", true, true,
                            "inp_gate" },
        [TAP_OWN_SCALED] = { "first_prediction_scaled", "it times the layer's own embedding", true, true, "" },
        [TAP_OWN_OUT] = { "per_layer_embd_out", "what the layer's own embedding adds", true, true, "proj, post_norm" },
        [TAP_L_OUT] = { "l_out", "residual after the layer", true, false, "" },
        [TAP_RESULT_NORM] = { "result_norm", "norm before the output matrix", false, false, "output_norm" },
        [TAP_RESULT_OUTPUT] = { "result_output", "logits", false, false, "output (token_embd if tied)" },
        [TAP_RESULT_POOLED] = { "result_embd_pooled", "one embedding for all tokens", false, true,
                                "cls, cls.norm, cls.output, dense_2, dense_3" },
    };
    return &specs[id];
}

const char *tap_order_name(uint32_t i) {
    static const char *const names[] = { "parallel", "one_norm", "norm_after_rope", "router_first", "weights_first",
                                        "experts_first", "adjugates", "experts_beside",
                                        "altup", "latent" };
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
    if (id <= TAP_PER_LAYER) return id;
    if (id >= TAP_RESULT_NORM) return (uint64_t)UINT32_MAX * TAP_COUNT + id;
    return (uint64_t)(layer + 1) * TAP_COUNT + rank(order, id);
}

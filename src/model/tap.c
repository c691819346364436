#include "model/tap.h"

#define INPUTS_1(a) 1, { TAP_##a }
#define INPUTS_2(a, b) 2, { TAP_##a, TAP_##b }
#define INPUTS_3(a, b, c) 3, { TAP_##a, TAP_##b, TAP_##c }

const struct tap_spec *tap_spec(enum tap_id id) {
    static const struct tap_spec specs[TAP_COUNT] = {
        [TAP_EMBD] = { "embd", "token embedding", false, false, 0, { 0 }, "token_embd" },
        [TAP_ATTN_NORM] = { "attn_norm", "norm before attention", true, false, INPUTS_1(L_OUT), "attn_norm" },
        [TAP_QCUR] = { "Qcur", "query before RoPE", true, false, INPUTS_1(ATTN_NORM), "attn_q" },
        [TAP_KCUR] = { "Kcur", "key before RoPE", true, false, INPUTS_1(ATTN_NORM), "attn_k" },
        [TAP_VCUR] = { "Vcur", "value", true, false, INPUTS_1(ATTN_NORM), "attn_v" },
        [TAP_QCUR_NORMED] = { "Qcur_normed", "query after its norm", true, true, INPUTS_1(QCUR), "attn_q_norm" },
        [TAP_KCUR_NORMED] = { "Kcur_normed", "key after its norm", true, true, INPUTS_1(KCUR), "attn_k_norm" },
        [TAP_QCUR_ROPE] = { "Qcur_rope", "query after RoPE", true, false, INPUTS_1(QCUR_NORMED), "" },
        [TAP_KCUR_ROPE] = { "Kcur_rope", "key after RoPE", true, false, INPUTS_1(KCUR_NORMED), "" },
        [TAP_KQ_SOFT_MAX] = { "kq_soft_max", "attention weights", true, false, INPUTS_2(QCUR_ROPE, KCUR_ROPE), "" },
        [TAP_KQV_OUT] = { "kqv_out", "weighted sum of values, heads concatenated", true, false,
                          INPUTS_2(KQ_SOFT_MAX, VCUR), "" },
        [TAP_ATTN_OUT] = { "attn_out", "attention output", true, false, INPUTS_1(KQV_OUT), "attn_output" },
        [TAP_ATTN_POST_NORM] = { "attn_post_norm", "norm after attention", true, true, INPUTS_1(ATTN_OUT),
                                 "post_attention_norm" },
        [TAP_FFN_INP] = { "ffn_inp", "residual after attention", true, false, INPUTS_2(ATTN_POST_NORM, L_OUT), "" },
        [TAP_FFN_NORM] = { "ffn_norm", "norm before the feed-forward network", true, false, INPUTS_1(FFN_INP),
                           "ffn_norm" },
        [TAP_FFN_GATE] = { "ffn_gate", "gate before its activation", true, false, INPUTS_1(FFN_NORM), "ffn_gate" },
        [TAP_FFN_UP] = { "ffn_up", "up projection", true, false, INPUTS_1(FFN_NORM), "ffn_up" },
        [TAP_FFN_SWIGLU] = { "ffn_swiglu", "activated gate times up projection", true, false,
                             INPUTS_2(FFN_GATE, FFN_UP), "" },
        [TAP_FFN_ROUTER] = { "ffn_moe_logits", "scores of the experts", true, true, INPUTS_1(FFN_NORM),
                             "ffn_gate_inp" },
        [TAP_FFN_USED] = { "ffn_moe_topk", "experts that a token uses, the best one first", true, true,
                           INPUTS_1(FFN_ROUTER), "" },
        [TAP_FFN_WEIGHTS] = { "ffn_moe_weights", "weights of these experts", true, true, INPUTS_1(FFN_ROUTER), "" },
        [TAP_FFN_EXPERTS] = { "ffn_moe_out", "weighted sum of the experts", true, true,
                              INPUTS_3(FFN_NORM, FFN_USED, FFN_WEIGHTS), "ffn_gate_exps, ffn_up_exps, ffn_down_exps" },
        [TAP_FFN_SHARED] = { "ffn_shexp", "output of the expert that every token uses", true, true,
                             INPUTS_1(FFN_NORM), "ffn_gate_shexp, ffn_up_shexp, ffn_down_shexp" },
        [TAP_FFN_OUT] = { "ffn_out", "feed-forward output", true, false, INPUTS_3(FFN_SWIGLU, FFN_EXPERTS, FFN_SHARED),
                          "ffn_down" },
        [TAP_FFN_POST_NORM] = { "ffn_post_norm", "norm after the feed-forward network", true, true, INPUTS_1(FFN_OUT),
                                "post_ffw_norm" },
        [TAP_L_OUT] = { "l_out", "residual after the layer", true, false, INPUTS_2(FFN_POST_NORM, FFN_INP), "" },
        [TAP_RESULT_NORM] = { "result_norm", "norm before the output matrix", false, false, INPUTS_1(L_OUT),
                              "output_norm" },
        [TAP_RESULT_OUTPUT] = { "result_output", "logits", false, false, INPUTS_1(RESULT_NORM),
                                "output (token_embd if tied)" },
    };
    return &specs[id];
}

uint64_t tap_inputs(enum tap_id id) {
    const struct tap_spec *spec = tap_spec(id);
    uint64_t set = 0;
    for (uint32_t i = 0; i < spec->n_input; i++) set |= UINT64_C(1) << spec->inputs[i];
    return set;
}

uint64_t tap_inputs_without(enum tap_id id, uint64_t absent) {
    /* An absent norm returns its input.  The other taps that may be absent belong to experts or to a network without
     * experts, and nothing takes their place. */
    const uint64_t norms = TAP_SET(ATTN_NORM) | TAP_SET(QCUR_NORMED) | TAP_SET(KCUR_NORMED) | TAP_SET(ATTN_POST_NORM)
                         | TAP_SET(FFN_NORM) | TAP_SET(FFN_POST_NORM);
    uint64_t set = tap_inputs(id);
    for (enum tap_id i = id; i-- > 0;) {   /* the inputs of a tap in the same layer have smaller ids */
        if (!((set & absent) >> i & 1)) continue;
        set &= ~(UINT64_C(1) << i);
        if (norms >> i & 1) set |= tap_inputs(i);
    }
    return set;
}

uint64_t tap_same_layer(uint64_t set, enum tap_id id) {
    uint64_t before = (UINT64_C(1) << id) - 1;
    return set & before & (id >= TAP_RESULT_NORM ? TAP_SET(RESULT_NORM) : before);
}

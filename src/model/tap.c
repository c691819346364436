#include "model/tap.h"

#define INPUTS_1(a) 1, { TAP_##a }
#define INPUTS_2(a, b) 2, { TAP_##a, TAP_##b }

const struct tap_spec *tap_spec(enum tap_id id) {
    static const struct tap_spec specs[TAP_COUNT] = {
        [TAP_EMBD] = { "embd", "token embedding", false, 0, { 0 }, "token_embd" },
        [TAP_ATTN_NORM] = { "attn_norm", "norm before attention", true, INPUTS_1(L_OUT), "attn_norm" },
        [TAP_QCUR] = { "Qcur", "query before RoPE", true, INPUTS_1(ATTN_NORM), "attn_q" },
        [TAP_KCUR] = { "Kcur", "key before RoPE", true, INPUTS_1(ATTN_NORM), "attn_k" },
        [TAP_VCUR] = { "Vcur", "value", true, INPUTS_1(ATTN_NORM), "attn_v" },
        [TAP_QCUR_ROPE] = { "Qcur_rope", "query after RoPE", true, INPUTS_1(QCUR), "" },
        [TAP_KCUR_ROPE] = { "Kcur_rope", "key after RoPE", true, INPUTS_1(KCUR), "" },
        [TAP_KQ_SOFT_MAX] = { "kq_soft_max", "attention weights", true, INPUTS_2(QCUR_ROPE, KCUR_ROPE), "" },
        [TAP_KQV_OUT] = { "kqv_out", "values by attention weight, heads joined", true, INPUTS_2(KQ_SOFT_MAX, VCUR),
                          "" },
        [TAP_ATTN_OUT] = { "attn_out", "attention's output", true, INPUTS_1(KQV_OUT), "attn_output" },
        [TAP_FFN_INP] = { "ffn_inp", "residual after attention", true, INPUTS_2(ATTN_OUT, L_OUT), "" },
        [TAP_FFN_NORM] = { "ffn_norm", "norm before the feed-forward net", true, INPUTS_1(FFN_INP), "ffn_norm" },
        [TAP_FFN_GATE] = { "ffn_gate", "gate before its activation", true, INPUTS_1(FFN_NORM), "ffn_gate" },
        [TAP_FFN_UP] = { "ffn_up", "what is gated", true, INPUTS_1(FFN_NORM), "ffn_up" },
        [TAP_FFN_SWIGLU] = { "ffn_swiglu", "activated gate times what is gated", true, INPUTS_2(FFN_GATE, FFN_UP),
                             "" },
        [TAP_FFN_OUT] = { "ffn_out", "feed-forward net's output", true, INPUTS_1(FFN_SWIGLU), "ffn_down" },
        [TAP_L_OUT] = { "l_out", "residual after the layer", true, INPUTS_2(FFN_OUT, FFN_INP), "" },
        [TAP_RESULT_NORM] = { "result_norm", "norm before the head", false, INPUTS_1(L_OUT), "output_norm" },
        [TAP_RESULT_OUTPUT] = { "result_output", "logits", false, INPUTS_1(RESULT_NORM),
                                "output (token_embd where tied)" },
    };
    return &specs[id];
}

uint32_t tap_inputs(enum tap_id id) {
    const struct tap_spec *spec = tap_spec(id);
    uint32_t set = 0;
    for (uint32_t i = 0; i < spec->n_input; i++) set |= 1u << spec->inputs[i];
    return set;
}

uint32_t tap_same_layer(uint32_t set, enum tap_id id) {
    uint32_t before = (1u << id) - 1;
    return set & before & (id >= TAP_RESULT_NORM ? 1u << TAP_RESULT_NORM : before);
}

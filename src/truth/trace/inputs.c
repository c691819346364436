#include "trace/inputs.h"

static id_set inputs_of(uint32_t order, enum tap_id id) {
    static const id_set usual[TAP_COUNT] = {
        [TAP_ATTN_NORM] = TAP_SET(L_OUT),
        [TAP_QCUR] = TAP_SET(ATTN_NORM),
        [TAP_KCUR] = TAP_SET(ATTN_NORM),
        [TAP_VCUR] = TAP_SET(ATTN_NORM),
        [TAP_QCUR_NORMED] = TAP_SET(QCUR),
        [TAP_KCUR_NORMED] = TAP_SET(KCUR),
        [TAP_QCUR_ROPE] = TAP_SET(QCUR_NORMED),
        [TAP_KCUR_ROPE] = TAP_SET(KCUR_NORMED),
        [TAP_QCUR_SCALED] = TAP_SET(QCUR_ROPE),
        [TAP_KQ_SOFT_MAX] = TAP_SET(QCUR_SCALED) | TAP_SET(KCUR_ROPE),
        [TAP_KQV_OUT] = TAP_SET(KQ_SOFT_MAX) | TAP_SET(VCUR),
        [TAP_ATTN_GATE] = TAP_SET(ATTN_NORM),
        [TAP_ATTN_GATED] = TAP_SET(KQV_OUT) | TAP_SET(ATTN_GATE),
        [TAP_ATTN_SUB_NORM] = TAP_SET(ATTN_GATED),
        [TAP_ATTN_OUT] = TAP_SET(ATTN_SUB_NORM),
        [TAP_CONV_IN] = TAP_SET(ATTN_NORM),
        [TAP_DELTA_IN] = TAP_SET(ATTN_NORM),
        [TAP_DELTA_BETA] = TAP_SET(ATTN_NORM),
        [TAP_DELTA_ALPHA] = TAP_SET(ATTN_NORM),
        [TAP_DELTA_BETA_SIGMOID] = TAP_SET(DELTA_BETA),
        [TAP_DELTA_DECAY] = TAP_SET(DELTA_ALPHA),
        [TAP_CONV_SILU] = TAP_SET(CONV),
        [TAP_DELTA] = TAP_SET(CONV_SILU) | TAP_SET(DELTA_BETA_SIGMOID) | TAP_SET(DELTA_DECAY),
        [TAP_DELTA_GATED] = TAP_SET(DELTA) | TAP_SET(ATTN_GATE),
        [TAP_DELTA_OUT] = TAP_SET(DELTA_GATED),
        [TAP_CONV] = TAP_SET(CONV_IN) | TAP_SET(DELTA_IN),
        [TAP_CONV_GATED] = TAP_SET(CONV) | TAP_SET(CONV_IN),
        [TAP_CONV_OUT] = TAP_SET(CONV_GATED),
        [TAP_ATTN_POST_NORM] = TAP_SET(ATTN_OUT),
        [TAP_FFN_INP] = TAP_SET(ATTN_POST_NORM) | TAP_SET(CONV_OUT) | TAP_SET(DELTA_OUT) | TAP_SET(L_OUT),
        [TAP_FFN_NORM] = TAP_SET(FFN_INP),
        [TAP_FFN_ROUTER] = TAP_SET(FFN_NORM),
        [TAP_FFN_PROBS] = TAP_SET(FFN_ROUTER),
        [TAP_FFN_PROBS_BIASED] = TAP_SET(FFN_PROBS),
        [TAP_FFN_USED] = TAP_SET(FFN_PROBS_BIASED),
        [TAP_FFN_WEIGHTS] = TAP_SET(FFN_PROBS) | TAP_SET(FFN_USED),
        [TAP_FFN_WEIGHTS_SOFTMAX] = TAP_SET(FFN_WEIGHTS),
        [TAP_FFN_WEIGHTS_NORM] = TAP_SET(FFN_WEIGHTS_SOFTMAX),
        [TAP_FFN_WEIGHTS_SCALED] = TAP_SET(FFN_WEIGHTS_NORM),
        [TAP_EXPERT_GATE] = TAP_SET(FFN_NORM) | TAP_SET(FFN_USED),
        [TAP_EXPERT_UP] = TAP_SET(FFN_NORM) | TAP_SET(FFN_USED),
        [TAP_EXPERT_SWIGLU] = TAP_SET(EXPERT_GATE) | TAP_SET(EXPERT_UP),
        [TAP_EXPERT_DOWN] = TAP_SET(EXPERT_SWIGLU) | TAP_SET(FFN_USED),
        [TAP_EXPERT_WEIGHTED] = TAP_SET(EXPERT_DOWN) | TAP_SET(FFN_WEIGHTS_SCALED),
        [TAP_FFN_EXPERTS] = TAP_SET(EXPERT_WEIGHTED),
        [TAP_FFN_GATE] = TAP_SET(FFN_NORM),
        [TAP_FFN_UP] = TAP_SET(FFN_NORM),
        [TAP_FFN_SWIGLU] = TAP_SET(FFN_GATE) | TAP_SET(FFN_UP),
        [TAP_FFN_SUB_NORM] = TAP_SET(FFN_SWIGLU),
        [TAP_FFN_SHARED_GATE] = TAP_SET(FFN_NORM),
        [TAP_FFN_SHARED] = TAP_SET(FFN_SUB_NORM) | TAP_SET(FFN_SHARED_GATE),
        [TAP_FFN_OUT] = TAP_SET(FFN_EXPERTS) | TAP_SET(FFN_SHARED),
        [TAP_FFN_POST_NORM] = TAP_SET(FFN_OUT),
        [TAP_L_OUT] = TAP_SET(FFN_POST_NORM) | TAP_SET(FFN_INP),
        [TAP_RESULT_NORM] = TAP_SET(L_OUT),
        [TAP_RESULT_OUTPUT] = TAP_SET(RESULT_NORM),
        [TAP_RESULT_POOLED] = TAP_SET(RESULT_NORM),
    };
    static const struct { uint32_t order; enum tap_id id; id_set inputs; } others[] = {
        { TAP_ORDER_ONE_NORM, TAP_FFN_NORM, TAP_SET(ATTN_NORM) },
        { TAP_ORDER_PARALLEL, TAP_FFN_NORM, TAP_SET(L_OUT) },
        { TAP_ORDER_NORM_AFTER_ROPE, TAP_QCUR_ROPE, TAP_SET(QCUR) },
        { TAP_ORDER_NORM_AFTER_ROPE, TAP_KCUR_ROPE, TAP_SET(KCUR) },
        { TAP_ORDER_NORM_AFTER_ROPE, TAP_QCUR_NORMED, TAP_SET(QCUR_ROPE) },
        { TAP_ORDER_NORM_AFTER_ROPE, TAP_KCUR_NORMED, TAP_SET(KCUR_ROPE) },
        { TAP_ORDER_NORM_AFTER_ROPE, TAP_QCUR_SCALED, TAP_SET(QCUR_NORMED) },
        { TAP_ORDER_NORM_AFTER_ROPE, TAP_KQ_SOFT_MAX, TAP_SET(QCUR_SCALED) | TAP_SET(KCUR_NORMED) },
        { TAP_ORDER_ROUTER_FIRST | TAP_ORDER_EXPERTS_FIRST, TAP_FFN_ROUTER, TAP_SET(L_OUT) },
        { TAP_ORDER_WEIGHTS_FIRST, TAP_EXPERT_WEIGHTED, TAP_SET(FFN_NORM) | TAP_SET(FFN_WEIGHTS_SCALED) },
        { TAP_ORDER_WEIGHTS_FIRST, TAP_EXPERT_GATE, TAP_SET(EXPERT_WEIGHTED) | TAP_SET(FFN_USED) },
        { TAP_ORDER_WEIGHTS_FIRST, TAP_EXPERT_UP, TAP_SET(EXPERT_WEIGHTED) | TAP_SET(FFN_USED) },
        { TAP_ORDER_WEIGHTS_FIRST, TAP_FFN_EXPERTS, TAP_SET(EXPERT_DOWN) },
        { TAP_ORDER_ADJUGATES, TAP_FFN_OUT, TAP_SET(FFN_PROBS) | TAP_SET(FFN_USED) | TAP_SET(FFN_EXPERTS) },
        { TAP_ORDER_EXPERTS_FIRST, TAP_EXPERT_GATE, TAP_SET(L_OUT) | TAP_SET(FFN_USED) },
        { TAP_ORDER_EXPERTS_FIRST, TAP_EXPERT_UP, TAP_SET(L_OUT) | TAP_SET(FFN_USED) },
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].id == id && (order & others[i].order)) return others[i].inputs;
    }
    return usual[id];
}

id_set trace_inputs(uint32_t order, enum tap_id id, id_set absent) {
    const id_set passed_on = TAP_SET(ATTN_NORM) | TAP_SET(QCUR_NORMED) | TAP_SET(KCUR_NORMED) | TAP_SET(QCUR_SCALED)
                             | TAP_SET(ATTN_GATED) | TAP_SET(ATTN_SUB_NORM) | TAP_SET(ATTN_POST_NORM)
                             | TAP_SET(FFN_NORM) | TAP_SET(FFN_PROBS) | TAP_SET(FFN_PROBS_BIASED)
                             | TAP_SET(FFN_WEIGHTS_SOFTMAX) | TAP_SET(FFN_WEIGHTS_NORM) | TAP_SET(FFN_WEIGHTS_SCALED)
                             | TAP_SET(FFN_SUB_NORM) | TAP_SET(FFN_SHARED) | TAP_SET(FFN_POST_NORM);
    enum tap_id ids[TAP_COUNT];
    tap_sequence(order, ids);
    id_set set = inputs_of(order, id);
    uint32_t i = 0;
    while (ids[i] != id) i++;
    while (i-- > 0) {   /* the inputs of a tap in the same layer come before it */
        if (!((set & absent) >> ids[i] & 1)) continue;
        set &= ~ID_SET(ids[i]);
        if (passed_on >> ids[i] & 1) set |= inputs_of(order, ids[i]);
    }
    return set;
}

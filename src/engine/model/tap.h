/* Taps: the steps of a pass whose results can be observed, in the order of the computation.  A tap is identified by
 * (id, layer); layer is -1 outside the layers.
 *
 * Models differ in which taps they have and in the order of some: see enum tap_order.
 */
#ifndef PLUMB_MODEL_TAP_H
#define PLUMB_MODEL_TAP_H

#include "base/base.h"
#include "base/id_set.h"

/* Receives the activations of a pass; see plumb_tap. */
struct tap_sink {
    void (*on_tap)(void *user, const plumb_tap *tap);   /* NULL: off */
    void *user;
};

/* The taps in the usual order of the computation.  TAP_MODALITIES to TAP_ENCODED come at most once for each layer.
 * TAP_FFN_GATE, TAP_FFN_UP and TAP_FFN_SWIGLU belong to a feed-forward network without experts or, in a layer with
 * experts, to the shared one.  The taps that are called after the experts, TAP_EXPERT_GATE to TAP_EXPERT_WEIGHTED, have
 * a row for each expert that a token uses, in the order of TAP_FFN_USED. */
enum tap_id {
    TAP_EMBD, TAP_PER_LAYER, TAP_ENCODER_EMBD,
    TAP_MODALITIES, TAP_PREDICTIONS, TAP_ACTIVE, TAP_ATTN_NORM, TAP_LAUREL, TAP_LATENT_Q_A, TAP_LATENT_Q,
    TAP_LATENT_KV, TAP_LATENT, TAP_LATENT_KV_B, TAP_WKV_IN, TAP_WKV_SILU, TAP_QCUR, TAP_KCUR, TAP_VCUR,
    TAP_QCUR_NORMED,
    TAP_KCUR_NORMED, TAP_VCUR_NORMED, TAP_QCUR_ROPE, TAP_KCUR_ROPE, TAP_QCUR_SCALED, TAP_KQ_SOFT_MAX, TAP_LATENT_HEADS,
    TAP_KQV_OUT, TAP_WKV_MIX, TAP_WKV_VALUE, TAP_WKV_DECAY, TAP_WKV_RATE, TAP_WKV_REMOVAL, TAP_WKV_KEY, TAP_WKV_BONUS,
    TAP_WKV, TAP_WKV_NORM, TAP_WKV_SUM, TAP_ATTN_GATE, TAP_ATTN_GATED, TAP_ATTN_SUB_NORM, TAP_ATTN_OUT, TAP_CONV_IN,
    TAP_DELTA_IN, TAP_DELTA_BETA, TAP_DELTA_ALPHA, TAP_DELTA_BETA_SIGMOID, TAP_DELTA_DECAY, TAP_SCAN_IN, TAP_SCAN_Z,
    TAP_SCAN_X, TAP_SCAN_DT_IN, TAP_CONV, TAP_CONV_GATED, TAP_CONV_SILU, TAP_DELTA, TAP_DELTA_GATED, TAP_SCAN_BCDT,
    TAP_SCAN_B, TAP_SCAN_C, TAP_SCAN_RANK, TAP_SCAN_B_NORMED, TAP_SCAN_C_NORMED, TAP_SCAN_RANK_NORMED, TAP_SCAN_DT,
    TAP_SCAN_STEP, TAP_SCAN, TAP_SCAN_GATED, TAP_SCAN_NORM, TAP_CONV_OUT, TAP_DELTA_OUT, TAP_SCAN_OUT,
    TAP_ATTN_POST_NORM, TAP_FFN_INP, TAP_FFN_NORM, TAP_FFN_ROUTER, TAP_FFN_PROBS, TAP_FFN_PROBS_BIASED, TAP_FFN_USED,
    TAP_FFN_WEIGHTS, TAP_FFN_WEIGHTS_SOFTMAX, TAP_FFN_WEIGHTS_NORM, TAP_FFN_WEIGHTS_SCALED, TAP_FFN_NORM_EXPS,
    TAP_EXPERT_GATE, TAP_EXPERT_UP, TAP_EXPERT_SWIGLU, TAP_EXPERT_DOWN, TAP_EXPERT_WEIGHTED, TAP_FFN_EXPERTS,
    TAP_FFN_MOE, TAP_FFN_GATE, TAP_FFN_UP, TAP_FFN_SWIGLU, TAP_FFN_SUB_NORM, TAP_FFN_RECEPTANCE, TAP_FFN_SHARED_GATE,
    TAP_FFN_SHARED, TAP_FFN_MLP, TAP_FFN_OUT, TAP_FFN_POST_NORM, TAP_OWN_IN, TAP_CORRECTED, TAP_OWN_GATED,
    TAP_OWN_SCALED, TAP_OWN_OUT, TAP_L_OUT, TAP_ENCODED,
    TAP_RESULT_NORM, TAP_RESULT_OUTPUT, TAP_RESULT_POOLED,
    TAP_COUNT
};

struct tap_spec {
    const char *name;        /* llama.cpp's name without "-layer"; Qcur and Kcur after RoPE end in _rope */
    bool in_layer;
    bool only_some;          /* only some models have it; in others its inputs take its place, or nothing does */
};

const struct tap_spec *tap_spec(enum tap_id id);

/* How a model's order of the computation differs from the usual one: a set of these flags. */
enum tap_order {
    TAP_ORDER_PARALLEL = 1,          /* ffn_norm is computed from the input of the layer */
    TAP_ORDER_ONE_NORM = 2,          /* the feed-forward network reads attn_norm */
    TAP_ORDER_NORM_AFTER_ROPE = 4,   /* Qcur_normed and Kcur_normed are computed from Qcur_rope and Kcur_rope */
    TAP_ORDER_ROUTER_FIRST = 8,      /* the router of the experts reads the input of the layer, before attention */
    TAP_ORDER_WEIGHTS_FIRST = 16,    /* the inputs of the experts, not their outputs, are multiplied by weights */
    TAP_ORDER_EXPERTS_FIRST = 32,    /* the router and the experts read the input of the layer, before attention */
    TAP_ORDER_ADJUGATES = 64,        /* ffn_out has adjugate experts too, whose weights are other probabilities */
    TAP_ORDER_EXPERTS_BESIDE = 128,  /* the router and the experts read norms of their own of the residual stream */
    TAP_ORDER_ALTUP = 256,           /* layers read and correct predictions of several streams */
    TAP_ORDER_LATENT = 512,          /* K and V are products of a latent vector, which Q may be multiplied by too */
    TAP_ORDER_FROM_NORM = 1024,      /* outputs are added to the norms that they are computed from */
    TAP_ORDER_ALL = 2047,
};
/* Names of the flags, for files: "parallel".  Returns the name of flag 1 << i; NULL if i is beyond the last one. */
const char *tap_order_name(uint32_t i);

/* Bit i of a set of taps is the tap with id i. */
#define TAP_SET(tap) ID_SET(TAP_##tap)
_Static_assert(TAP_COUNT <= 128, "a set has 128 bits");

/* The taps whose values are indices (of experts), not activations: no number is near another one, they have no noise,
 * and what computes with activations must leave them alone, since the pass reads memory with them. */
static inline bool tap_holds_indices(enum tap_id id) { return id == TAP_FFN_USED; }

/* Writes all taps to ids, in the order of the computation. */
void tap_sequence(uint32_t order, enum tap_id ids[TAP_COUNT]);
/* Returns a number that sorts taps in the order of the computation.  layer is used only for taps inside layers. */
uint64_t tap_place(uint32_t order, enum tap_id id, int32_t layer);
/* Returns the members of a set of inputs that belong to the same layer as the tap they are inputs of.  The others
 * belong to the layer before. */
static inline id_set tap_same_layer(id_set inputs) { return inputs & ~(TAP_SET(L_OUT) | TAP_SET(ENCODED)); }

#endif

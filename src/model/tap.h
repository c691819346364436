/* Taps: the steps of a pass whose results can be observed, in the order of the computation, and what each of them is
 * computed from.  A tap is identified by (id, layer); layer is -1 outside the layers.
 */
#ifndef PLUMB_MODEL_TAP_H
#define PLUMB_MODEL_TAP_H

#include "base/base.h"

/* Receives the activations of a pass; see plumb_tap. */
struct tap_sink {
    void (*on_tap)(void *user, const plumb_tap *tap);   /* NULL: off */
    void *user;
};

/* The taps in the order in which a pass computes them, except that some models normalize Q and K after RoPE, and that
 * in some the router comes before attention.  TAP_ATTN_NORM to TAP_L_OUT come at most once for each layer. */
enum tap_id {
    TAP_EMBD,
    TAP_ATTN_NORM, TAP_QCUR, TAP_KCUR, TAP_VCUR, TAP_QCUR_NORMED, TAP_KCUR_NORMED, TAP_QCUR_ROPE, TAP_KCUR_ROPE,
    TAP_KQ_SOFT_MAX, TAP_KQV_OUT, TAP_ATTN_OUT, TAP_ATTN_POST_NORM, TAP_FFN_INP, TAP_FFN_NORM, TAP_FFN_GATE, TAP_FFN_UP,
    TAP_FFN_SWIGLU, TAP_FFN_ROUTER, TAP_FFN_USED, TAP_FFN_WEIGHTS, TAP_FFN_EXPERTS, TAP_FFN_SHARED, TAP_FFN_OUT,
    TAP_FFN_POST_NORM, TAP_L_OUT,
    TAP_RESULT_NORM, TAP_RESULT_OUTPUT,
    TAP_COUNT
};

enum { TAP_MAX_INPUTS = 3 };

struct tap_spec {
    const char *name;        /* llama.cpp's name without "-layer"; Qcur and Kcur after RoPE end in _rope */
    const char *title;       /* a description for people: "query after RoPE" */
    bool in_layer;
    bool only_some;          /* only some models have it; in others its inputs take its place */
    /* The taps it is computed from.  Here TAP_L_OUT means the l_out of the layer before, or the embedding in layer 0;
     * for result_norm it means the l_out of the last layer. */
    uint8_t n_input;
    enum tap_id inputs[TAP_MAX_INPUTS];
    const char *weights;     /* the tensor it is computed with, "attn_q"; "" if there is none */
};

const struct tap_spec *tap_spec(enum tap_id id);

/* A set of taps is a uint64_t: bit i is the tap with id i. */
#define TAP_SET(tap) (UINT64_C(1) << TAP_##tap)
_Static_assert(TAP_COUNT <= 64, "a set of taps has 64 bits");

/* Returns the inputs of a tap. */
uint64_t tap_inputs(enum tap_id id);
/* The inputs of a tap in a model that lacks the taps in `absent`: a norm among those is replaced by its own input. */
uint64_t tap_inputs_without(enum tap_id id, uint64_t absent);
/* Returns the members of set = tap_inputs(id) that belong to the same layer as id.  The others belong to the layer
 * before. */
uint64_t tap_same_layer(uint64_t set, enum tap_id id);

/* Returns a number that sorts taps in the order of the computation.  layer is used only for taps inside layers. */
static inline uint64_t tap_order(enum tap_id id, int32_t layer) {
    if (id == TAP_EMBD) return 0;
    if (id >= TAP_RESULT_NORM) return (uint64_t)UINT32_MAX * TAP_COUNT + id;
    return (uint64_t)(layer + 1) * TAP_COUNT + id;
}

#endif

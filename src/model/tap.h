/* Taps: the steps of a pass whose results can be looked at, in the order of the computation, and what each is computed
 * from.  A tap is (id, layer); layer is -1 outside the layers.
 */
#ifndef PLUMB_MODEL_TAP_H
#define PLUMB_MODEL_TAP_H

#include "base/base.h"

/* Where a pass hands its activations to; see plumb_tap. */
struct tap_sink {
    void (*on_tap)(void *user, const plumb_tap *tap);   /* NULL: off */
    void *user;
};

/* In the order in which a pass computes them; those from TAP_ATTN_NORM to TAP_L_OUT once for each layer. */
enum tap_id {
    TAP_EMBD,
    TAP_ATTN_NORM, TAP_QCUR, TAP_KCUR, TAP_VCUR, TAP_QCUR_ROPE, TAP_KCUR_ROPE, TAP_KQ_SOFT_MAX, TAP_KQV_OUT,
    TAP_ATTN_OUT, TAP_FFN_INP, TAP_FFN_NORM, TAP_FFN_GATE, TAP_FFN_UP, TAP_FFN_SWIGLU, TAP_FFN_OUT, TAP_L_OUT,
    TAP_RESULT_NORM, TAP_RESULT_OUTPUT,
    TAP_COUNT
};

enum { TAP_MAX_INPUTS = 2 };

struct tap_spec {
    const char *name;        /* llama.cpp's, without "-layer"; Qcur and Kcur after RoPE end in _rope */
    const char *title;       /* for people: "query after RoPE" */
    bool in_layer;
    /* The taps it is computed from.  TAP_L_OUT is the l_out of the layer before, and in layer 0 the embedding; for
     * result_norm it is that of the last layer. */
    uint8_t n_input;
    enum tap_id inputs[TAP_MAX_INPUTS];
    const char *weights;     /* the tensors it is computed with, "attn_q"; "" where there are none */
};

const struct tap_spec *tap_spec(enum tap_id id);

/* The taps of inputs as a set of ids, bit by bit. */
uint32_t tap_inputs(enum tap_id id);
/* Those of a set that belong to the same layer as the tap which is computed from them; the others belong to the layer
 * before. */
uint32_t tap_same_layer(uint32_t set, enum tap_id id);

/* Position in the order of the computation; layer is that of a tap inside layers. */
static inline uint64_t tap_order(enum tap_id id, int32_t layer) {
    if (id == TAP_EMBD) return 0;
    if (id >= TAP_RESULT_NORM) return (uint64_t)UINT32_MAX * TAP_COUNT + id;
    return (uint64_t)(layer + 1) * TAP_COUNT + id;
}

#endif

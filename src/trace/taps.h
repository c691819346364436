/* The table of taps: their order in the computation, what each is made from, and the names that other programs give
 * them.  A tap is (id, layer); layer is -1 outside the layers.
 */
#ifndef PLUMB_TRACE_TAPS_H
#define PLUMB_TRACE_TAPS_H

#include "base/base.h"

/* In the order in which a pass computes them; those from TAP_ATTN_NORM to TAP_L_OUT once for each layer. */
enum tap_id {
    TAP_EMBD,
    TAP_ATTN_NORM, TAP_QCUR, TAP_KCUR, TAP_VCUR, TAP_QCUR_ROPE, TAP_KCUR_ROPE, TAP_KQ_SOFT_MAX, TAP_KQV_OUT,
    TAP_ATTN_OUT, TAP_FFN_INP, TAP_FFN_NORM, TAP_FFN_GATE, TAP_FFN_UP, TAP_FFN_SWIGLU, TAP_FFN_OUT, TAP_L_OUT,
    TAP_RESULT_NORM, TAP_RESULT_OUTPUT,
    TAP_COUNT
};

struct tap_spec {
    const char *name;        /* llama.cpp's, without "-layer"; Qcur and Kcur after RoPE end in _rope */
    bool in_layer;
    const char *title;       /* for people: "query after RoPE" */
    const char *fed_by;      /* the taps it is computed from, "Qcur_rope, Kcur_rope" */
    const char *weights;     /* the tensors it is computed with, "attn_q"; "" where there are none */
};

const struct tap_spec *tap_spec(enum tap_id id);

/* The taps of fed_by as a set of ids, bit by bit; and those of a set that belong to the same layer as the tap which
 * they feed: the others belong to the layer before. */
uint32_t tap_fed_by(enum tap_id id);
uint32_t tap_same_layer(uint32_t set, enum tap_id id);

/* The tap of this name as plumb says it, without a layer; n: bytes of the name.  false if there is none. */
bool tap_find(const char *name, size_t n, enum tap_id *id);
/* Layers from here on are no layers: llama.cpp has at most 512. */
#define TAP_MAX_LAYER 1000
/* Reads "l_out-3", "result_norm" or a name that another program uses for it (PyTorch module paths of transformers such
 * as "model.layers.3.self_attn.q_proj").  n: bytes of the name.  Returns 0 for a name that is no tap, 1 for plumb's
 * own, and for other programs' names other numbers, each its own. */
uint32_t tap_parse(const char *name, size_t n, enum tap_id *id, int32_t *layer);
/* Is a number that tap_parse returned that of a PyTorch module of a layer? */
bool tap_is_module(uint32_t number);
/* "l_out-3".  Returns buf. */
struct tap_text { char text[40]; };
const char *tap_show(struct tap_text *buf, enum tap_id id, int32_t layer);
/* Does "l_out-3" match one of the patterns, separated by commas, in which * is any text and ? any byte?  A pattern
 * without "-" matches the tap in every layer; so does the end of a module's path ("q_proj").  A pattern may also be any
 * name that tap_parse knows.  NULL matches all. */
bool tap_matches(const char *patterns, enum tap_id id, int32_t layer);
/* PLUMB_ERROR_ARGUMENT with the pattern if one of them matches no tap of a model: of its layers, those from first to
 * last.  UINT32_MAX as last: all from first on.  So too if the model has no such layers. */
plumb_status tap_check_patterns(const char *patterns, uint32_t n_layer, uint32_t first, uint32_t last,
                                struct error *err);
/* Position in the order of the computation; layer is that of a tap inside layers. */
static inline uint64_t tap_order(enum tap_id id, int32_t layer) {
    if (id == TAP_EMBD) return 0;
    if (id >= TAP_RESULT_NORM) return (uint64_t)UINT32_MAX * TAP_COUNT + id;
    return (uint64_t)(layer + 1) * TAP_COUNT + id;
}

#endif

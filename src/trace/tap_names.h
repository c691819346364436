/* The names of taps: plumb's own, those that other programs give them, and patterns of names. */
#ifndef PLUMB_TRACE_TAP_NAMES_H
#define PLUMB_TRACE_TAP_NAMES_H

#include "model/tap.h"

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
/* "kq_soft_max, Vcur": the taps that one is computed from, for people.  Returns buf. */
struct tap_inputs_text { char text[96]; };
const char *tap_show_inputs(struct tap_inputs_text *buf, enum tap_id id);
/* Does "l_out-3" match one of the patterns, separated by commas, in which * is any text and ? any byte?  A pattern
 * without "-" matches the tap in every layer; so does the end of a module's path ("q_proj").  A pattern may also be any
 * name that tap_parse knows.  NULL matches all. */
bool tap_matches(const char *patterns, enum tap_id id, int32_t layer);
/* PLUMB_ERROR_ARGUMENT with the pattern if one of them matches no tap of a model: of its layers, those from first to
 * last.  UINT32_MAX as last: all from first on.  So too if the model has no such layers. */
plumb_status tap_check_patterns(const char *patterns, uint32_t n_layer, uint32_t first, uint32_t last,
                                struct error *err);

#endif

/* The names of taps: plumb's own, those of other programs, and patterns of names. */
#ifndef PLUMB_TRACE_TAP_NAMES_H
#define PLUMB_TRACE_TAP_NAMES_H

#include "model/tap.h"

/* Finds the tap with this plumb name, without a layer.  n: bytes of the name.  Returns false if there is none. */
bool tap_find(const char *name, size_t n, enum tap_id *id);
/* The number of a layer must be below this; llama.cpp has at most 512 layers. */
#define TAP_MAX_LAYER 1000
/* Reads "l_out-3", "result_norm" or another program's name of a tap, such as a PyTorch module path of transformers
 * ("model.layers.3.self_attn.q_proj").  n: bytes of the name.  Returns 0 if no tap has this name, 1 if it is plumb's
 * own name, and a different number from 2 on for each of the other programs' names. */
uint32_t tap_parse(const char *name, size_t n, enum tap_id *id, int32_t *layer);
/* Returns true if tap_parse returned this number for a PyTorch module of a layer. */
bool tap_is_module(uint32_t number);
/* Writes "l_out-3", or without a layer "embd", to buf.  Returns its text. */
struct tap_text { char text[40]; };
const char *tap_show(struct tap_text *buf, enum tap_id id, int32_t layer);
/* Writes which taps this tap is computed from, for people: "kq_soft_max, Vcur".  Returns the text in buf. */
struct tap_inputs_text { char text[96]; };
const char *tap_show_inputs(struct tap_inputs_text *buf, enum tap_id id, uint32_t absent);
/* Returns true if the tap's name, such as "l_out-3", matches one of the patterns.  Patterns are separated by commas; in
 * them * stands for any text and ? for any byte.  A pattern without "-" matches the tap in every layer, and so does the
 * last word of a module's path ("q_proj").  A pattern may also be any name that tap_parse knows.  NULL matches all. */
bool tap_matches(const char *patterns, enum tap_id id, int32_t layer);
/* Checks patterns against a model of n_layer layers.  PLUMB_ERROR_ARGUMENT if the model does not have the layers first
 * to last, or if a pattern matches no tap outside the layers and none in these layers; the message has the pattern.  If
 * last is UINT32_MAX, it stands for the last layer. */
plumb_status tap_check_patterns(const char *patterns, uint32_t n_layer, uint32_t first, uint32_t last,
                                struct error *err);

#endif

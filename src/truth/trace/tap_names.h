/* The names of taps: plumb's own, those of other programs, and patterns of names. */
#ifndef PLUMB_TRACE_TAP_NAMES_H
#define PLUMB_TRACE_TAP_NAMES_H

#include "model/tap.h"

/* Finds a tap by plumb's name for it, without a layer.  n: bytes of the name.  Returns false if there is none. */
bool tap_find(const char *name, size_t n, enum tap_id *id);
/* A description of a tap for people: "query after RoPE". */
const char *tap_title(enum tap_id id);
/* The tensors that a tap is computed with, "attn_q"; "" if there are none. */
const char *tap_weights(enum tap_id id);
/* Returns true if a token's values may have an axis of heads, or of the experts that the token uses. */
bool tap_has_heads(enum tap_id id);
/* The index of a layer in a name must be below this.  llama.cpp supports at most 512 layers. */
#define TAP_MAX_LAYER 1000
/* Reads "l_out-3", "result_norm" or another program's name of a tap: a PyTorch module path of transformers
 * ("model.layers.3.self_attn.q_proj"), an output of an ONNX graph
 * ("/model/layers.3/self_attn/q_proj/MatMul_output_0"), a tensor of a GGUF ("blk.3.attn_q.weight").  n: bytes of the
 * name.  Sets *layer to -1 for a tap outside the layers.  Returns 0 if no tap has this name, 1 if it is plumb's own
 * name, and for each of the other programs' names a number of its own, from 2 on. */
uint32_t tap_parse(const char *name, size_t n, enum tap_id *id, int32_t *layer);
/* Returns true if tap_parse returned this number for a PyTorch module of a layer, also as a node of an ONNX graph. */
bool tap_is_module(uint32_t number);
/* Returns true if tap_parse returned this number for a product (or norm) in an ONNX graph.  If the graph then adds a
 * bias, only the sum is the tap: see trace_begin_tap. */
bool tap_is_without_bias(uint32_t number);
/* Returns true if tap_parse returned this number for post_attention_layernorm, which it takes for ffn_norm: see
 * trace_begin_tap. */
bool tap_is_post_attention(uint32_t number);
/* Writes the name of a tap to buf: "l_out-3" or, if layer is negative, "embd".  Returns buf->text. */
struct tap_text { char text[40]; };
const char *tap_show(struct tap_text *buf, enum tap_id id, int32_t layer);
/* Writes to buf, for people, the taps that a tap is computed from (model_tap_inputs): "kq_soft_max, Vcur".  Returns
 * buf->text. */
struct tap_inputs_text { char text[120]; };
const char *tap_show_inputs(struct tap_inputs_text *buf, enum tap_id id, id_set inputs);
/* Returns true if the tap's name, such as "l_out-3", matches one of the patterns.  Patterns are separated by commas; in
 * them * stands for any text and ? for any byte.  A pattern without "-" matches the tap in every layer, and so does the
 * last word of a module's path ("q_proj").  A pattern may also be any name that tap_parse knows.  NULL matches all.
 * has_output_norms: post_attention_layernorm is attn_post_norm, not ffn_norm. */
bool tap_matches(const char *patterns, bool has_output_norms, enum tap_id id, int32_t layer);
/* Checks patterns against a model of n_layer layers.  last: UINT32_MAX stands for the last layer.  PLUMB_ERROR_ARGUMENT
 * if the model does not have the layers first to last, or if a pattern matches neither a tap in these layers nor one
 * outside the layers; the message has the pattern. */
plumb_status tap_check_patterns(const char *patterns, bool has_output_norms, uint32_t n_layer, uint32_t first,
                                uint32_t last, struct error *err);

#endif

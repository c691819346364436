/* What wasm/trace.c has for JavaScript, and what it calls there. */
#ifndef PLUMB_WASM_TRACE_H
#define PLUMB_WASM_TRACE_H

#include "plumb_truth.h"

/* Writes at most cap bytes of the text of a token, and returns how many it has; below 0: there is no such token. */
#if defined(__wasm__)
__attribute__((import_module("env"), import_name("plumb_piece")))
#endif
int32_t host_piece(int32_t id, char *buf, size_t cap);

/* Everything that a plumb_write was given.  JavaScript frees bytes, which is NULL if memory ran out. */
struct plumb_wasm_bytes {
    char *bytes;
    size_t n, cap;
};

plumb_status plumb_wasm_trace_begin(plumb_trace *trace, const char *kernels, const char *precision, uint32_t n_layer,
                                    uint32_t n_vocab, uint32_t order, bool has_output_norms, int32_t bos,
                                    const int32_t *ids, size_t n, const char *taps, uint32_t layer_first,
                                    uint32_t layer_last, uint32_t n_value);
plumb_status plumb_wasm_trace_add(plumb_trace *trace, const char *name, int32_t layer, uint32_t pos, uint32_t n_token,
                                  uint32_t n_head, uint32_t n, const float *data);
plumb_status plumb_wasm_trace_json(plumb_trace *trace, struct plumb_wasm_bytes *out);

#endif

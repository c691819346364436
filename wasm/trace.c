/* The module of traces, dist/plumb-trace.wasm: src/truth/trace for the taps that JavaScript copies from the engine.  It
 * is a module of its own because a chat needs no traces.  wasm/trace.txt lists its exports; web/engine/traces.js is the
 * only caller. */
#include "trace.h"
#include "trace/trace.h"

#include <stdlib.h>

static int64_t piece(const struct plumb_trace *t, int32_t id, char *buf, size_t cap) {
    (void)t;
    return host_piece(id, buf, cap);
}

/* Begins a new trace of n tokens, which are all of the prompt; see struct trace_run and plumb_trace_params. */
plumb_status plumb_wasm_trace_begin(plumb_trace *trace, const char *kernels, const char *precision, uint32_t n_layer,
                                    uint32_t n_vocab, uint32_t order, bool has_output_norms, int32_t bos,
                                    const int32_t *ids, size_t n, const char *taps, uint32_t layer_first,
                                    uint32_t layer_last, uint32_t n_value) {
    const struct trace_run run = { .kernels = kernels, .precision = precision, .n_layer = n_layer, .n_vocab = n_vocab,
                                   .order = order, .has_output_norms = has_output_norms, .bos = bos, .piece = piece };
    const plumb_trace_params params = { .taps = taps, .layer_first = layer_first, .layer_last = layer_last,
                                        .n_value = n_value };
    return trace_begin(trace, &run, ids, n, n, &params);
}

plumb_status plumb_wasm_trace_add(plumb_trace *trace, const char *name, int32_t layer, uint32_t pos, uint32_t n_token,
                                  uint32_t n_head, uint32_t n, const float *data) {
    return plumb_trace_add(trace, &(plumb_tap){ name, layer, pos, n_token, n_head, n, data });
}

static void gather(void *user, const char *bytes, size_t n) {
    struct plumb_wasm_bytes *b = user;
    if (!b->bytes && b->cap > 0) return;   /* memory ran out in an earlier call */
    if (n > b->cap - b->n) {
        size_t cap = b->cap + (n > b->cap ? n : b->cap);
        char *grown = cap > b->cap ? realloc(b->bytes, cap) : NULL;
        if (!grown) free(b->bytes);
        b->bytes = grown;
        b->cap = cap ? cap : 1;
        if (!grown) return;
    }
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

plumb_status plumb_wasm_trace_json(plumb_trace *trace, struct plumb_wasm_bytes *out) {
    *out = (struct plumb_wasm_bytes){ NULL, 0, 0 };
    return plumb_trace_write(trace, PLUMB_FORMAT_JSON, gather, out);
}

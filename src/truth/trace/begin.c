/* A trace of what a session is about to compute. */
#include "api/model.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>

static plumb_status set_pieces(struct plumb_trace *t, uint32_t n_vocab) {
    for (uint32_t i = 0; i < t->n_token; i++) {
        int64_t n = t->piece(t, t->tokens[i], NULL, 0);
        if (n < 0) {
            return error_set(&t->err, PLUMB_ERROR_TOKEN, "token %d at index %u is not in 0..%u", (int)t->tokens[i], i,
                             n_vocab - 1);
        }
        char *piece = alloc_array((uint64_t)n, 1);
        if (!piece) return error_set(&t->err, PLUMB_ERROR_MEMORY, "out of memory: the text of a token");
        t->piece(t, t->tokens[i], piece, (size_t)n);
        plumb_status status = trace_set_piece(t, i, piece, (size_t)n);
        free(piece);
        PLUMB_TRY(status);
    }
    return PLUMB_OK;
}

static plumb_status copy_params(struct plumb_trace *t, const plumb_trace_params *params) {
    t->params = *params;
    if (!params->taps) return PLUMB_OK;
    size_t n = strlen(params->taps) + 1;
    char *taps = alloc_array(n, 1);
    t->params.taps = taps;
    if (!taps) return error_set(&t->err, PLUMB_ERROR_MEMORY, "out of memory: %zu bytes for names of taps", n);
    memcpy(taps, params->taps, n);
    return PLUMB_OK;
}

plumb_status trace_begin(struct plumb_trace *t, const struct trace_run *run, const int32_t *ids, size_t n,
                         size_t n_prompt, const plumb_trace_params *params) {
    trace_clear(t);   /* also sets the default parameters */
    t->has_output_norms = run->has_output_norms;
    if (params) {
        PLUMB_TRY(tap_check_patterns(params->taps, t->has_output_norms, run->n_layer, params->layer_first,
                                     params->layer_last, &t->err));
        PLUMB_TRY(copy_params(t, params));
    }
    char source[80];
    int n_source = strcmp(run->kernels, "reference") == 0
                 ? snprintf(source, sizeof source, "plumb " PLUMB_VERSION ", reference pass")
                 : snprintf(source, sizeof source, "plumb " PLUMB_VERSION ", fast pass, %s, %s", run->kernels,
                            run->precision);
    PLUMB_TRY(trace_set_source(t, source, (size_t)n_source));
    PLUMB_TRY(trace_set_tokens(t, ids, n, n_prompt));
    trace_set_order(t, run->order);
    t->bos = run->bos;
    t->piece = run->piece;
    tokenizer_weak_ref_set(&t->vocab, run->vocab);
    return set_pieces(t, run->n_vocab);
}

static int64_t piece_of_model(const struct plumb_trace *t, int32_t id, char *buf, size_t cap) {
    return t->vocab.t ? tokenizer_piece(t->vocab.t, id, true, buf, cap) : -1;
}

plumb_status plumb_trace_begin(plumb_trace *t, const plumb_session *session, const int32_t *ids, size_t n,
                               size_t n_prompt, const plumb_trace_params *params) {
    const plumb_model *model = session_model(session);
    const struct trace_run run = {
        .kernels = plumb_session_kernels(session), .n_layer = model->model->plan.n_layer,
        .precision = plumb_precision_name(plumb_session_precision(session)), .order = model_tap_order(model->model),
        .has_output_norms = model_has_output_norms(model->model), .bos = plumb_token_bos(model),
        .n_vocab = plumb_model_n_vocab(model), .piece = piece_of_model, .vocab = model->tokenizer,
    };
    return trace_begin(t, &run, ids, n, n_prompt, params);
}

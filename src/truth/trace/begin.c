/* plumb_trace_begin: a trace of what a session is about to compute. */
#include "api/model.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>

static plumb_status set_pieces(struct plumb_trace *t, const plumb_model *model) {
    for (uint32_t i = 0; i < t->n_token; i++) {
        int64_t n = plumb_token_piece(model, t->tokens[i], true, NULL, 0);
        if (n < 0) {
            return error_set(&t->err, PLUMB_ERROR_TOKEN, "token %d at index %u is not in 0..%u", (int)t->tokens[i], i,
                             plumb_model_n_vocab(model) - 1);
        }
        char *piece = alloc_array((uint64_t)n, 1);
        if (!piece) return error_set(&t->err, PLUMB_ERROR_MEMORY, "out of memory: the text of a token");
        plumb_token_piece(model, t->tokens[i], true, piece, (size_t)n);
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

plumb_status plumb_trace_begin(plumb_trace *t, const plumb_session *session, const int32_t *ids, size_t n,
                               size_t n_prompt, const plumb_trace_params *params) {
    trace_clear(t);   /* also sets the default parameters */
    const plumb_model *model = session_model(session);
    uint64_t absent = UINT64_MAX;
    for (uint32_t il = 0; il < model->model->plan.n_layer; il++) absent &= model_absent_taps(model->model, il);
    t->has_output_norms = !(absent & TAP_SET(ATTN_POST_NORM)) && !model->model->plan.has_post_self_attn;
    if (params) {
        PLUMB_TRY(tap_check_patterns(params->taps, t->has_output_norms, model->model->plan.n_layer, params->layer_first,
                                     params->layer_last, &t->err));
        PLUMB_TRY(copy_params(t, params));
    }
    const char *kernels = plumb_session_kernels(session);
    bool reference = strcmp(kernels, "reference") == 0;
    char source[80];
    int n_source = reference ? snprintf(source, sizeof source, "plumb " PLUMB_VERSION ", reference pass")
                             : snprintf(source, sizeof source, "plumb " PLUMB_VERSION ", fast pass, %s, %s", kernels,
                                        plumb_precision_name(plumb_session_precision(session)));
    PLUMB_TRY(trace_set_source(t, source, (size_t)n_source));
    PLUMB_TRY(trace_set_tokens(t, ids, n, n_prompt));
    trace_set_order(t, model_tap_order(model->model));
    t->bos = plumb_token_bos(model);
    tokenizer_weak_ref_set(&t->vocab, model->tokenizer);
    return set_pieces(t, model);
}

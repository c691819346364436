/* The public functions for traces and reports.  Each one checks the state of its models and passes their parts to the
 * room that does the work. */
#include "api/model.h"

#include "check/describe.h"
#include "check/selfcheck.h"
#include "check/weights.h"
#include "diagnose/diagnose.h"
#include "diff/diff.h"
#include "dump/dump.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- traces ------------------------------------------------------------------------------------------------------ */

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

plumb_status plumb_trace_read(plumb_trace *t, const void *bytes, size_t n) { return dump_read(t, bytes, n); }

plumb_status plumb_trace_write(plumb_trace *t, plumb_format format, plumb_write *write, void *user) {
    return dump_write(t, format, write, user);
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

plumb_status plumb_diff(plumb_trace *a, plumb_trace *b, plumb_model *model, const plumb_report *report, bool *agree) {
    *agree = false;
    if (report->format != PLUMB_FORMAT_TEXT && report->format != PLUMB_FORMAT_JSON
        && report->format != PLUMB_FORMAT_HTML) {
        return error_set(&a->err, PLUMB_ERROR_ARGUMENT, "a diff is written as text, JSON or HTML");
    }
    struct diff *d = alloc_array(1, sizeof *d);
    struct report_writer *w = alloc_array(1, sizeof *w);
    plumb_status status = PLUMB_ERROR_MEMORY;
    if (!d || !w) {
        error_set(&a->err, status, "out of memory: a diff of %zu taps", a->n_tap);
        goto done;
    }
    const struct model *m = model ? model->model : NULL;
    uint32_t order = m ? model_tap_order(m) : a->order | b->order;   /* most files do not say */
    trace_set_order(a, order);
    trace_set_order(b, order);
    status = diff_compare(d, a, b, m, model ? model->tokenizer : NULL, report, &a->err);
    if (status == PLUMB_OK) {
        *agree = diff_agrees(d);
        report_begin(w, report->write, report->user);
        if (report->format == PLUMB_FORMAT_TEXT) diff_text(d, w);
        else if (report->format == PLUMB_FORMAT_JSON) diff_json(d, w);
        else diff_html(d, w);
        report_flush(w);
        if (d->kind == DIFF_NOTHING) {
            status = error_set(&a->err, PLUMB_ERROR_ARGUMENT, "nothing to compare: A has %zu taps, B has %zu, and none "
                               "has values or statistics at the same places on both sides", a->n_tap, b->n_tap);
        }
    }
    diff_free(d);
done:
    free(d);
    free(w);
    return status;
}

plumb_status plumb_diagnose(plumb_model *model, plumb_trace *theirs, uint32_t max_quirk, const plumb_report *report,
                            plumb_verdict *verdict) {
    *verdict = PLUMB_VERDICT_DIFFERS;
    if (!model->model) return error_set(&model->err, PLUMB_ERROR_STATE, "the model is not completely loaded");
    if (model->headers_only) {
        return error_set(&model->err, PLUMB_ERROR_STATE, "the model was loaded without its weights "
                         "(plumb_model_rehearse)");
    }
    trace_set_order(theirs, model_tap_order(model->model));
    return trace_diagnose(model->model, model->tokenizer, theirs, max_quirk, report, &model->err, verdict);
}

bool plumb_quirk(size_t i, const char **name, const char **tap, const char **models, const char **text) {
    const struct quirk *q = quirk_at(i);
    if (!q) return false;
    *name = q->name;
    *tap = q->tap;
    *models = quirk_models(q);
    *text = q->text;
    return true;
}

bool plumb_quirk_applies(const plumb_model *model, size_t i) {
    const struct quirk *q = quirk_at(i);
    return q && model->model && quirk_applies(q, model->model, tokenizer_bos(model->tokenizer));
}

plumb_status plumb_selfcheck(plumb_model *m, const plumb_report *report, bool *ok) {
    *ok = false;
    if (m->n_part == 0) return error_set(&m->err, PLUMB_ERROR_STATE, "plumb_model_begin was not called");
    plumb_status status = plumb_model_end(m);
    if (status == PLUMB_ERROR_MEMORY) return status;
    char load_error[sizeof m->err.message] = "";
    if (status != PLUMB_OK) snprintf(load_error, sizeof load_error, "%s", m->err.message);
    struct selfcheck_input in = { m->parts, m->n_part, m->tokenizer, m->model, load_error, true };
    for (size_t i = 0; i < m->n_part; i++) in.is_complete = in.is_complete && gguf_is_complete(m->parts[i]);
    return selfcheck_run(&in, report, ok, &m->err);
}

plumb_status plumb_weights(plumb_model *a, plumb_model *b, const plumb_report *report, bool *agree) {
    plumb_model *const models[] = { a, b };
    *agree = false;
    for (size_t i = 0; i < 2; i++) {
        plumb_model *m = models[i];
        if (m->n_part == 0) return error_set(&a->err, PLUMB_ERROR_STATE, "plumb_model_begin was not called");
        for (size_t k = 0; k < m->n_part; k++) PLUMB_TRY(gguf_finish(m->parts[k], &a->err));
    }
    return weights_run(&(struct weights_file) { a->parts, a->n_part }, &(struct weights_file) { b->parts, b->n_part },
                       report, agree, &a->err);
}

plumb_status plumb_model_describe(plumb_model *m, plumb_write *write, void *user) {
    struct plan plan = { 0 };
    struct report_writer w;
    if (!plumb_model_has_header(m)) return error_set(&m->err, PLUMB_ERROR_STATE, "the header is not complete");
    report_begin(&w, write, user);
    const struct gguf_tensor *embd = gguf_find_in_parts(m->parts, m->n_part, "token_embd.weight");
    struct model *bound = NULL;
    struct error ignored = { PLUMB_OK, "" };   /* what is wrong with its tensors */
    if (embd) model_create(&bound, m->parts, m->n_part, (uint32_t)embd->shape[1], &ignored);
    plumb_status status = plan_create(&plan, m->parts, m->n_part, plumb_model_n_tensor(m), &m->err);
    if (status == PLUMB_OK) status = describe_plan(&plan, bound ? bound->layers : NULL, &w);
    if (status == PLUMB_ERROR_MEMORY) error_set(&m->err, status, "out of memory: the layers");
    plan_free(&plan);
    if (bound) model_free(bound);
    report_flush(&w);
    return status;
}

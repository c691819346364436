/* plumb_diagnose, plumb_quirk: the model opened for the trace room. */
#include "session/load.h"
#include "trace/diagnose.h"

plumb_status plumb_diagnose(plumb_model *model, plumb_trace *theirs, uint32_t max_quirk, const plumb_report *report,
                            bool *agree) {
    *agree = false;
    if (!model->model) return error_set(&model->err, PLUMB_ERROR_STATE, "the model is not loaded to its end");
    if (model->headers_only) {
        return error_set(&model->err, PLUMB_ERROR_STATE, "the model was rehearsed, and its weights are not there");
    }
    return trace_diagnose(model->model, model->tokenizer, theirs, max_quirk, report, &model->err, agree);
}

bool plumb_quirk(size_t i, const char **name, const char **tap, const char **text) {
    const struct quirk *q = quirk_at(i);
    if (!q) return false;
    *name = q->name;
    *tap = q->tap;
    *text = q->text;
    return true;
}

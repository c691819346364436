/* plumb_selfcheck and plumb_weights: a plumb_model's parts, handed to the trace room. */
#include "session/load.h"
#include "trace/selfcheck.h"
#include "trace/weights.h"

#include <stdio.h>

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

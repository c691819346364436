/* plumb_diff: the trace room's work, and the vocabulary of a model that it may ask for the texts of tokens. */
#include "session/load.h"
#include "trace/diff.h"

#include <stdlib.h>

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
    status = diff_compare(d, a, b, model ? model->tokenizer : NULL, report, &a->err);
    if (status == PLUMB_OK) {
        *agree = diff_agrees(d);
        report_begin(w, report->write, report->user);
        if (report->format == PLUMB_FORMAT_TEXT) diff_text(d, w);
        else if (report->format == PLUMB_FORMAT_JSON) diff_json(d, w);
        else diff_html(d, w);
        report_flush(w);
        if (d->kind == DIFF_NOTHING) {
            status = error_set(&a->err, PLUMB_ERROR_ARGUMENT, "nothing to compare: A has %zu taps, B %zu, and none in "
                               "common of which they know the same", a->n_tap, b->n_tap);
        }
    }
    diff_free(d);
done:
    free(d);
    free(w);
    return status;
}

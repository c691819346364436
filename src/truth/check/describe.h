/* What the plan of a model says, for people. */
#ifndef PLUMB_CHECK_DESCRIBE_H
#define PLUMB_CHECK_DESCRIBE_H

#include "model/model.h"
#include "trace/report.h"

/* Writes some lines: one for the model, and for each kind of layer its layers, attention, feed-forward network and its
 * program.  layers (n_layer): NULL if the weights are not known, which leaves the program out.  PLUMB_ERROR_MEMORY. */
plumb_status describe_plan(const struct plan *p, const struct layer *layers, struct report_writer *w);

#endif

/* What the plan of a model says, for people. */
#ifndef PLUMB_CHECK_DESCRIBE_H
#define PLUMB_CHECK_DESCRIBE_H

#include "model/plan.h"
#include "trace/report.h"

/* Writes some lines: one for the model, and for each kind of layer its layers, attention and feed-forward network.
 * PLUMB_ERROR_MEMORY. */
plumb_status describe_plan(const struct plan *p, struct report_writer *w);

#endif

/* What a tap is computed from in a model that is not known, but has the usual steps, in the order that a dump says.
 * model_tap_inputs says it of a known model. */
#ifndef PLUMB_TRACE_INPUTS_H
#define PLUMB_TRACE_INPUTS_H

#include "model/tap.h"

/* Returns the inputs of a tap, as model_tap_inputs does.  order: a set of enum tap_order.  absent: the taps that the
 * layer lacks; those that only pass on their input, such as norms, are replaced by it. */
id_set trace_inputs(uint32_t order, enum tap_id id, id_set absent);

#endif

/* Which known mistakes make the reference pass give somebody else's numbers? */
#ifndef PLUMB_TRACE_DIAGNOSE_H
#define PLUMB_TRACE_DIAGNOSE_H

#include "trace/experiment.h"

/* See plumb_diagnose.  bos: the tokenizer's BOS, -1 if it has none. */
plumb_status trace_diagnose(const struct model *m, int32_t bos, const struct plumb_trace *theirs, uint32_t max_quirk,
                            const plumb_report *report, struct error *err, bool *agree);

#endif

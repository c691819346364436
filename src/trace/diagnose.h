/* Which known mistakes make the reference pass give somebody else's numbers?
 *
 *   diagnose_search: dump -> struct diagnosis, the sets of quirks that bring the pass closer to it
 *   diagnose_text, diagnose_json: struct diagnosis -> bytes
 */
#ifndef PLUMB_TRACE_DIAGNOSE_H
#define PLUMB_TRACE_DIAGNOSE_H

#include "trace/experiment.h"
#include "trace/report.h"

/* A quirk must bring one tap closer at least by this factor to be taken for a cause. */
#define DIAGNOSE_FACTOR 3.0
/* Each quirk of a set costs this much score, so that one that does nothing is no part of an explanation. */
#define DIAGNOSE_COST 0.2

struct diagnosis {
    struct experiment *experiment;
    const struct model *model;
    const struct plumb_trace *theirs;
    const plumb_report *report;
    struct error *err;
    int32_t bos;
    double tolerance;
    uint32_t max_quirk;
    struct outcome truth;
    struct outcome *ranked;   /* (n_ranked) of all layers, best first */
    size_t n_ranked, cap;
    double n_done, n_due;     /* progress, in layers */
};

/* Less is better. */
static inline double diagnose_score(const struct outcome *o) { return o->score + DIAGNOSE_COST * o->n_quirk; }
/* An error over this is to be explained: the tolerance; where all taps are within it, the rounding of f32. */
double diagnose_limit(const struct diagnosis *d, const struct outcome *o);
/* The first tap over that limit; SIZE_MAX if there is none. */
size_t diagnose_first(const struct diagnosis *d, const struct outcome *o);
double diagnose_largest(const struct diagnosis *d, const struct outcome *o);
/* Are all taps within the tolerance? */
bool diagnose_explains(const struct diagnosis *d, const struct outcome *o);
/* How many taps were compared with the truth. */
size_t diagnose_n_compared(const struct diagnosis *d);

void diagnose_text(const struct diagnosis *d, bool agree, struct report_writer *w);
void diagnose_json(const struct diagnosis *d, bool agree, struct report_writer *w);   /* docs/diagnose.md */

/* See plumb_diagnose.  bos: the tokenizer's BOS, -1 if it has none. */
plumb_status trace_diagnose(const struct model *m, int32_t bos, const struct plumb_trace *theirs, uint32_t max_quirk,
                            const plumb_report *report, struct error *err, bool *agree);

#endif

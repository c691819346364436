/* Which known mistakes make the reference pass give somebody else's numbers?
 *
 *   diagnose.c: dump -> struct diagnosis, the sets of quirks that bring the pass closer to it
 *   diagnose_judge.c: which errors are to be explained, and which are noise
 *   diagnose_text, diagnose_json: struct diagnosis -> bytes
 */
#ifndef PLUMB_DIAGNOSE_DIAGNOSE_H
#define PLUMB_DIAGNOSE_DIAGNOSE_H

#include "diagnose/experiment.h"
#include "trace/report.h"
#include "trace/tokens.h"

/* A quirk must bring one tap closer at least by this factor to be taken for a cause. */
#define DIAGNOSE_FACTOR 3.0
/* Each quirk of a set costs this much score, so that one that does nothing is no part of an explanation. */
#define DIAGNOSE_COST 0.2

/* A mistake made in some layers only: each layer has the numbers of one of two outcomes. */
struct local {
    const struct quirk *quirk;            /* NULL: none was found */
    const struct outcome *base, *with;    /* without the quirk in any layer, and with it in all */
    size_t at;                            /* the first tap that parts from base */
    bool explains;                        /* of the two, one is right wherever the other is not */
};

enum { DIAGNOSE_SHOWN = 5, DIAGNOSE_OTHERS = DIAGNOSE_SHOWN * EXPERIMENT_QUIRKS + 1 };

struct diagnosis {
    struct experiment *experiment;
    const struct model *model;
    const struct plumb_trace *theirs;
    const plumb_report *report;
    struct error *err;
    int32_t bos;
    const char *doubt;        /* about their tokens, see tokens_doubt; may be NULL */
    double tolerance;
    uint32_t max_quirk;
    uint8_t *kinds;           /* (theirs->n_tap) of taps: diagnose_judge.c */
    struct outcome truth;
    struct outcome *ranked;   /* (n_ranked) of all layers, best first */
    size_t n_ranked, cap;
    struct outcome others[DIAGNOSE_OTHERS];   /* (n_other) of all layers, to hold ranked ones against */
    size_t n_other;
    const struct quirk *local_quirks[EXPERIMENT_QUIRKS];   /* (n_local_quirk) the set that was extended last, and the */
    uint32_t n_local_quirk;   /* quirk on top of it that makes right what parts first; 0: there is none */
    struct local local;
    double n_done, n_due;     /* progress, in layers */
};

/* Less is better. */
static inline double diagnose_score(const struct outcome *o) { return o->score + DIAGNOSE_COST * o->n_quirk; }
static inline const struct outcome *diagnose_best(const struct diagnosis *d) {
    return d->n_ranked > 0 ? &d->ranked[0] : &d->truth;
}
/* The outcome of a ranked set without its quirk k; NULL if it was not run. */
const struct outcome *diagnose_without(const struct diagnosis *d, const struct outcome *o, uint32_t k);

/* ---- diagnose_judge.c ---- */

/* Looks at what theirs has.  Fills kinds, which the others need. */
plumb_status diagnose_prepare(struct diagnosis *d);
/* Is all that tap i is computed from known whole, so that its error is that of one step? */
bool diagnose_is_alone(const struct diagnosis *d, size_t i);
/* Error of theirs from the first products on, as rounding activations to 8 bits leaves; 0: none, or too much for that.
 * The caller's own tolerance knows of no noise. */
double diagnose_noise(const struct diagnosis *d, const struct outcome *o);
/* The error up to which taps that have such noise agree; the tolerance where there is none. */
double diagnose_allowed(const struct diagnosis *d, const struct outcome *o);
/* Is the error of tap i more than tolerance and noise? */
bool diagnose_is_over(const struct diagnosis *d, const struct outcome *o, size_t i);
/* Is none? */
bool diagnose_explains(const struct diagnosis *d, const struct outcome *o);
/* The first tap whose error is to be explained: over that or, where none is, over the rounding of f32.  SIZE_MAX if
 * there is none. */
size_t diagnose_first(const struct diagnosis *d, const struct outcome *o);
/* The first tap of those that base leaves to be explained and o brings closer; SIZE_MAX if there is none. */
size_t diagnose_evidence(const struct diagnosis *d, const struct outcome *base, const struct outcome *o);
/* Is nothing left but the rounding of f32? */
bool diagnose_is_exact(const struct diagnosis *d, const struct outcome *o);
double diagnose_largest(const struct diagnosis *d, const struct outcome *o);
/* The largest error as it is judged: a single tap of few values that stands out from its layer counts as the layer.
 * Of the better of two outcomes at each tap. */
double diagnose_left(const struct diagnosis *d, const struct outcome *o, const struct outcome *or_else);
/* How many taps were compared with the truth. */
size_t diagnose_n_compared(const struct diagnosis *d);
/* Is a tap of this layer over?  Of layer -1: of those outside the layers. */
bool diagnose_parts(const struct diagnosis *d, const struct outcome *o, int32_t layer);

/* ---- diagnose_report.c ---- */

void diagnose_text(const struct diagnosis *d, bool agree, struct report_writer *w);
void diagnose_json(const struct diagnosis *d, bool agree, struct report_writer *w);   /* docs/diagnose.md */

/* See plumb_diagnose.  vocab: the model's. */
plumb_status trace_diagnose(const struct model *m, const struct tokenizer *vocab, const struct plumb_trace *theirs,
                            uint32_t max_quirk, const plumb_report *report, struct error *err, bool *agree);

#endif

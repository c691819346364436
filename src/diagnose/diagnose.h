/* Finds the known mistakes (quirks, quirk_table.h) with which the reference pass gives another engine's numbers.
 *
 *   diagnose.c: theirs -> struct diagnosis, the sets of quirks that bring the reference pass closer to theirs
 *   judge.c: which errors need an explanation, and which are noise
 *   diagnose_report.c: struct diagnosis -> text or JSON
 *
 * "Theirs" is the trace of the other engine; messages call it the dump.  "The truth" is the reference pass without
 * quirks.  A tap diverges, or is over, if its error is more than what is allowed.  A set of quirks is a hypothesis: the
 * engine makes exactly these mistakes.
 */
#ifndef PLUMB_DIAGNOSE_DIAGNOSE_H
#define PLUMB_DIAGNOSE_DIAGNOSE_H

#include "diagnose/experiment.h"
#include "trace/report.h"
#include "trace/tokens.h"

/* To count as a cause, a quirk must reduce the error of at least one tap by this factor. */
#define DIAGNOSE_FACTOR 3.0
/* Added to the score for each quirk of a set, so that a quirk without effect makes a set worse. */
#define DIAGNOSE_COST 0.2

/* A mistake made in some layers only: those have the numbers of `with`, the others the numbers of `base`. */
struct local {
    const struct quirk *quirk;            /* NULL: none was found */
    const struct outcome *base, *with;    /* the quirk in no layer, and the quirk in all layers */
    size_t at;                            /* the first tap at which theirs diverges from base */
    bool explains;                        /* each layer is right in base or in `with`, all else in base */
};

/* SHOWN: how many ranked sets the text shows, ties aside.  OTHERS: each of them without each of its quirks, and one set
 * for a mistake made in some layers only. */
enum { DIAGNOSE_SHOWN = 5, DIAGNOSE_OTHERS = DIAGNOSE_SHOWN * EXPERIMENT_QUIRKS + 1 };

struct diagnosis {
    struct experiment *experiment;
    const struct model *model;
    const struct plumb_trace *theirs;
    const plumb_report *report;
    struct error *err;
    int32_t bos;
    const char *doubt;        /* what is odd about their tokens, see tokens_warning; may be NULL */
    double tolerance;
    uint32_t max_quirk;
    uint8_t *kinds;           /* (theirs->n_tap) flags of judge.c: INPUTS_KNOWN, NOISY */
    struct outcome truth;
    struct outcome *ranked;   /* (n_ranked) sets run on all layers, best first */
    size_t n_ranked, cap;
    struct outcome others[DIAGNOSE_OTHERS];   /* (n_other) sets run on all layers, to compare ranked ones with */
    size_t n_other;
    /* (n_local_quirk) a set to try in some layers only: the set that was extended last and, at the end, the quirk that
     * best corrects the tap at which this set diverges first.  n_local_quirk is 0 if no quirk corrects that tap. */
    const struct quirk *local_quirks[EXPERIMENT_QUIRKS];
    uint32_t n_local_quirk;
    struct local local;
    double n_done, n_due;     /* progress: layers run so far, and an estimate of how many the search will run */
};

/* Smaller is better. */
static inline double diagnose_score(const struct outcome *o) { return o->score + DIAGNOSE_COST * o->n_quirk; }
static inline const struct outcome *diagnose_best(const struct diagnosis *d) {
    return d->n_ranked > 0 ? &d->ranked[0] : &d->truth;
}
/* The outcome of the set o without its quirk k; NULL if that was not run. */
const struct outcome *diagnose_without(const struct diagnosis *d, const struct outcome *o, uint32_t k);

/* ---- judge.c ---- */

/* Fills d->kinds from what theirs has; call it before the functions below.  PLUMB_ERROR_MEMORY. */
plumb_status diagnose_prepare(struct diagnosis *d);
/* Are all inputs of tap i known whole?  Then its error is that of one step. */
bool diagnose_inputs_known(const struct diagnosis *d, size_t i);
/* The median error of the first layer that has products, if it is as small as rounding activations to 8 bits leaves.
 * 0 if there is no such error, if it is larger, or if the caller set a tolerance, which then applies to all taps. */
double diagnose_noise(const struct diagnosis *d, const struct outcome *o);
/* The error up to which taps with such noise agree; the tolerance if there is none. */
double diagnose_allowed(const struct diagnosis *d, const struct outcome *o);
/* Is the error of tap i more than tolerance and noise? */
bool diagnose_is_over(const struct diagnosis *d, const struct outcome *o, size_t i);
/* Is no tap over? */
bool diagnose_explains(const struct diagnosis *d, const struct outcome *o);
/* The first tap that is over or, if none is, the first whose error is more than the rounding of f32.  SIZE_MAX if there
 * is none. */
size_t diagnose_first(const struct diagnosis *d, const struct outcome *o);
/* The first tap that base does not explain and o brings closer by DIAGNOSE_FACTOR; SIZE_MAX if there is none.  If base
 * is over at no tap, all errors above the rounding of f32 are candidates. */
size_t diagnose_evidence(const struct diagnosis *d, const struct outcome *base, const struct outcome *o);
/* Is every error within the rounding of f32? */
bool diagnose_is_exact(const struct diagnosis *d, const struct outcome *o);
double diagnose_largest(const struct diagnosis *d, const struct outcome *o);
/* The largest error, where each tap counts with the better of the two outcomes.  Errors are taken as judge.c judges
 * them: a noisy tap that stands out from its layer counts with the layer's median. */
double diagnose_left(const struct diagnosis *d, const struct outcome *o, const struct outcome *or_else);
/* How many taps of theirs were compared with the truth. */
size_t diagnose_n_compared(const struct diagnosis *d);
/* Is a tap of this layer over?  Layer -1 stands for the taps outside the layers. */
bool diagnose_diverges(const struct diagnosis *d, const struct outcome *o, int32_t layer);

/* ---- diagnose_report.c ---- */

void diagnose_text(const struct diagnosis *d, bool agree, struct report_writer *w);
void diagnose_json(const struct diagnosis *d, bool agree, struct report_writer *w);   /* docs/diagnose.md */

/* Does the work of plumb_diagnose and writes the report.  *agree: no tap diverges from the truth, and no set
 * of quirks was ranked, that is, none comes clearly closer.  vocab: the model's vocabulary.  PLUMB_ERROR_ARGUMENT if
 * max_quirk or the format is not supported, or if no tap of theirs can be compared; otherwise the errors of
 * experiment_create. */
plumb_status trace_diagnose(const struct model *m, const struct tokenizer *vocab, const struct plumb_trace *theirs,
                            uint32_t max_quirk, const plumb_report *report, struct error *err, bool *agree);

#endif

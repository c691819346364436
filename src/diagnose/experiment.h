/* One experiment of a diagnosis: the reference pass with a set of quirks, held against a foreign trace.
 *
 * Where the trace has whole activations the pass takes theirs and goes on from there, so that every step is judged by
 * itself, on their own input: an early mistake does not hide a later one.  What a trace has only in part is compared
 * and not taken over; errors then add up along the pass.
 */
#ifndef PLUMB_DIAGNOSE_EXPERIMENT_H
#define PLUMB_DIAGNOSE_EXPERIMENT_H

#include "reference/quirks.h"
#include "reference/reference.h"
#include "trace/compare.h"
#include "trace/heads.h"

enum { EXPERIMENT_QUIRKS = 3 };   /* most quirks of a set */

/* What came out.  error[i] and cosine[i] belong to the trace's tap i; NAN: not computed. */
struct outcome {
    const struct quirk *quirks[EXPERIMENT_QUIRKS];
    uint32_t n_quirk;
    double score;      /* sum of log10 of the errors: each tap that is reproduced ten times closer gives one less */
    double *error, *cosine;
};

struct experiment {
    const struct model *model;
    const struct plumb_trace *theirs;   /* or permuted */
    struct plumb_trace permuted;        /* theirs, if Q and K came in transformers' order, in the model's: heads.h */
    struct reference *reference;
    int32_t *tokens;        /* (theirs->n_token + 2) what is fed */
    float *logits;          /* (n_prompt + 1, n_vocab), NULL where theirs has no result */
    float *keys;            /* (n_head, theirs->n_token) a row of kq_soft_max as traces have it */
    struct comparison *sums;/* (theirs->n_tap) */
    struct trace_tap *own;  /* (theirs->n_tap) statistics of the pass's rows, of taps that theirs has of all tokens
                             * together; elsewhere without rows */
    size_t n_own;
    uint32_t first_result;  /* first position at which theirs has result_norm or result_output; UINT32_MAX: nowhere */
    bool forced;            /* theirs has whole activations */
};

plumb_status experiment_create(struct experiment **out, const struct model *m, const struct plumb_trace *theirs,
                               struct error *err);
void experiment_free(struct experiment *e);
/* *o owns two arrays; release with outcome_free.  n_layer: as reference_limit; the taps of later layers and of the
 * results are left out of the score then. */
plumb_status experiment_run(struct experiment *e, const struct quirk *const *quirks, uint32_t n_quirk,
                            uint32_t n_layer, struct outcome *o, struct error *err);
void outcome_free(struct outcome *o);
/* Does the pass go on with this tap of theirs?  (Not with logits: nothing is computed from them.) */
bool experiment_is_whole(const struct experiment *e, const struct trace_tap *tap);

#endif

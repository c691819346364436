/* Finds the known mistakes (mistakes/known.h) with which the reference pass gives another engine's numbers.
 *
 *   read.c: theirs -> those of its taps that can be compared, and remarks on the others
 *   diagnose.c: theirs -> struct diagnosis, the sets of known mistakes that bring the reference pass closer to theirs
 *   noise.c: how their activations are rounded
 *   judge.c: which errors need an explanation, and which are noise
 *   hidden.c: if theirs agrees, the known mistakes that theirs would not show
 *   partial.c: the mistake of a dump that has activations only in part (mistake.h)
 *   measure.c: the wrong steps whose inputs are known, and what was computed in them (fit.h)
 *   diagnose_report.c: struct diagnosis -> text or JSON
 *
 * "Theirs" is the trace of the other engine; messages call it the dump.  "The truth" is the reference pass without
 * known mistakes.  A tap diverges, or is over, if its error is larger than what is allowed for it.  A set of known
 * mistakes is a hypothesis: the engine makes exactly these mistakes.  An outcome is one run of the reference pass with
 * a set of known mistakes, compared with theirs (experiment.h).  It explains the dump if no tap is over.
 */
#ifndef PLUMB_DIAGNOSE_DIAGNOSE_H
#define PLUMB_DIAGNOSE_DIAGNOSE_H

#include "diagnose/experiment.h"
#include "diagnose/fit.h"
#include "trace/report.h"
#include "trace/tokens.h"
#include "trace/view.h"

/* To count as a cause, a known mistake must reduce the error of at least one tap by this factor. */
#define DIAGNOSE_FACTOR 3.0
/* Added to the score for each known mistake of a set, so that a known mistake without effect makes a set worse. */
#define DIAGNOSE_COST 0.2

/* A mistake made in some layers only: these have the numbers of `with`, everything else has the numbers of `base`. */
struct local {
    const struct known_mistake *known;            /* NULL: none was found */
    /* A set without the known mistake, and the same set with it in all layers. */
    const struct outcome *base, *with;
    size_t at;                            /* the first tap that diverges from base */
    bool explains;                        /* no tap of a layer is over in base, or none is over in `with`; and no tap
                                           * outside the layers is over in base */
};

/* The median error of the rows that a rounding made clearly closer, before and after. */
struct lowered { double before, after; };

/* How the engine rounds activations, as far as the dump shows it. */
struct noise {
    struct roundings rounding;    /* the pass rounds in this way too */
    const char *products, *attention;   /* this rounding in words; NULL: none was recognized */
    struct lowered of_products, of_attention;   /* of_attention: zeros if it was recognized together with products */
    double effect_first;          /* the median of diagnosis.effect in the first layer; 0: not measured */
};

/* What a dump that agrees says nothing of.  Both arrays are owned. */
struct hidden {
    const struct known_mistake **known;           /* (n) they change the dump, but by less than its noise */
    const struct known_mistake **without_effect;   /* (n_without_effect) they change nothing in the dump */
    size_t n, n_without_effect;
    size_t n_tried, n_untried;             /* n_untried: the work would have been too long */
};

/* DIAGNOSE_SHOWN: how many ranked sets the text shows; it shows more if they tie with the first.  DIAGNOSE_OTHERS:
 * space for each of the shown sets without each of its known mistakes, and for one set that is made in some layers
 * only. */
enum { DIAGNOSE_SHOWN = 5, DIAGNOSE_OTHERS = DIAGNOSE_SHOWN * EXPERIMENT_KNOWN + 1 };

/* How many steps are measured, each of another kind. */
enum { DIAGNOSE_MEASURED = 6 };

struct diagnosis {
    struct experiment *experiment;
    const struct model *model;
    const struct plumb_trace *theirs;
    const plumb_report *report;
    struct error *err;
    int32_t bos;
    const char *doubt;        /* what is odd about their tokens, see tokens_warning; may be NULL */
    double tolerance;
    uint32_t max_known;
    uint8_t *kinds;           /* (theirs->n_tap) what judge.c knows about each tap of theirs */
    struct noise noise;
    double *effect;           /* (theirs->n_tap) what the recognized rounding changes; NULL: see limit_of in judge.c */
    bool assumes_noise;       /* errors that no known rounding explains count as noise: see diagnose_noise */
    struct view_not_finite odd;   /* the first NaN or infinity of theirs */
    struct hidden hidden;     /* all zeros if theirs does not agree */
    struct outcome truth;
    struct outcome *ranked;   /* (n_ranked) sets run on all layers, best first */
    size_t n_ranked, cap;
    struct outcome others[DIAGNOSE_OTHERS];   /* (n_other) further sets, run on all layers, for comparison */
    size_t n_other;
    /* (n_local_known) A set whose last known mistake is tried in some layers only.  The others are the set that was
     * extended last, and the last known mistake is the one that best corrects the tap at which that set diverges
     * first.  n_local_known is 0 if no known mistake corrects that tap. */
    const struct known_mistake *local_known[EXPERIMENT_KNOWN];
    uint32_t n_local_known;
    struct local local;
    /* (n_measured) The first steps of each kind that are wrong and whose inputs are known, in the order of the
     * computation.  Those of which nothing fits theirs have no findings. */
    struct fit measured[DIAGNOSE_MEASURED];
    uint32_t n_measured;
    bool is_cut;                 /* partial.c did not try everything, because it would have taken too long */
    bool is_exact_before;        /* without noise, the taps before the first wrong one agree (partial.c) */
    bool is_supposed;            /* the only one was not measured, but found by partial.c */
    bool is_outdone;             /* the first one fits much better than the set that reproduces theirs */
    double typical[2];           /* diagnose_typical_step of the truth, for taps that are not noisy, and noisy ones */
    struct plumb_trace *right;   /* what the truth computes in their layers; NULL if nothing was measured */
    double n_done, n_due;     /* progress: layers run so far, and an estimate of how many the search will run */
};

/* Returns true if nothing that a search could explain diverges: all that is wrong in the first tap that diverges from
 * the truth is NaN or infinity, which no other number is near. */
bool diagnose_is_not_finite(const struct diagnosis *d);
/* Returns true if the verdict, on theirs with or without a mistake, needs noise of an unknown kind. */
bool diagnose_needs_noise(const struct diagnosis *d, const struct outcome *o, const struct outcome *or_else);
/* Reports progress after n_layer more layers were run (diagnose.c). */
void diagnose_progress(struct diagnosis *d, double n_layer);
/* Returns the number by which sets are ranked; a smaller one is better. */
static inline double diagnose_score(const struct outcome *o) { return o->score + DIAGNOSE_COST * o->n_known; }
static inline const struct outcome *diagnose_best(const struct diagnosis *d) {
    return d->n_ranked > 0 ? &d->ranked[0] : &d->truth;
}
/* Returns the outcome of the set o without its known mistake k; NULL if that set was not run. */
const struct outcome *diagnose_without(const struct diagnosis *d, const struct outcome *o, uint32_t k);

/* ---- judge.c ----
 *
 * A tap is noisy if it is a product, or is computed from one, and the engine may have rounded activations to 8 bits on
 * the way there (see judge.c). */

/* Fills d->kinds from what theirs has.  Must be called before the functions below.  PLUMB_ERROR_MEMORY. */
plumb_status diagnose_prepare(struct diagnosis *d);
/* Sets what the recognized rounding changes in each tap: (theirs->n_tap), owned by d from now on. */
void diagnose_set_effect(struct diagnosis *d, double *effect);
/* Returns true if theirs has all inputs of tap i whole.  Its error is then that of one step. */
bool diagnose_inputs_known(const struct diagnosis *d, size_t i);
/* Returns the median error of the noisy taps of a layer (-1: of those outside the layers); 0 if there are none. */
double diagnose_typical(const struct diagnosis *d, const struct outcome *o, int32_t layer);
/* Returns the median error of the noisy taps of the first layer that has any, if rounding activations to 8 bits can be
 * its cause, and if some rounding was recognized or d->assumes_noise is set.  Where errors add up and the rounding was
 * recognized, returns what that rounding does to the truth.
 * Returns 0 if the median is larger or is only the rounding of f32, if many rows are exact, if no tap is noisy, or if
 * the caller set a tolerance, which then applies to all taps. */
double diagnose_noise(const struct diagnosis *d, const struct outcome *o);
/* Returns the error up to which noisy taps agree.  It is a multiple of the noise, but at least the tolerance. */
double diagnose_allowed(const struct diagnosis *d, const struct outcome *o);
/* Returns true if tap i is over: its error is larger than diagnose_allowed if the tap is noisy, and larger than the
 * tolerance if it is not.  Where errors add up, a noisy tap is over only if its layer is, or if it stands out from it
 * further than noise can make it. */
bool diagnose_is_over(const struct diagnosis *d, const struct outcome *o, size_t i);
/* Returns true if no tap is over. */
bool diagnose_explains(const struct diagnosis *d, const struct outcome *o);
/* Returns the index of the first tap that is over.  If none is, returns the first whose error is more than the rounding
 * of f32.  Returns SIZE_MAX if there is none of these either. */
size_t diagnose_first(const struct diagnosis *d, const struct outcome *o);
/* Returns the index of the first tap that is over in base and whose error o reduces by DIAGNOSE_FACTOR; SIZE_MAX if
 * there is none.  If no tap is over in base, all taps count whose error in base is more than the rounding of f32. */
size_t diagnose_evidence(const struct diagnosis *d, const struct outcome *base, const struct outcome *o);
/* Returns true if o is closer to theirs than base in most rows, also below the noise.  Chance does that in one of a
 * million outcomes if the rows are independent, as where theirs has all inputs; where errors add up and they are not,
 * the rows must also be much closer. */
bool diagnose_is_closer(const struct diagnosis *d, const struct outcome *base, const struct outcome *o);
/* Returns true if o may be closer to theirs than base by chance: the rounding of theirs was recognized, and errors add
 * up.  A set that changes almost nothing may then happen to round like theirs through more layers than base.  It does
 * so in single rows, whereas a mistake shows in many rows of the first tap in which base and o differ. */
bool diagnose_is_lucky(const struct diagnosis *d, const struct outcome *base, const struct outcome *o);
/* Returns true if every error is within the rounding of f32. */
bool diagnose_is_exact(const struct diagnosis *d, const struct outcome *o);
/* Returns the largest error of all taps. */
double diagnose_largest(const struct diagnosis *d, const struct outcome *o);
/* Returns the largest error if each tap counts with the better of the two outcomes.  A single noisy tap that stands out
 * from its layer counts with the median of the layer. */
double diagnose_left(const struct diagnosis *d, const struct outcome *o, const struct outcome *or_else);
/* Returns how many taps of theirs were compared with the truth. */
size_t diagnose_n_compared(const struct diagnosis *d);
/* Returns true if a tap of this layer is over.  Layer -1 stands for the taps outside the layers. */
bool diagnose_diverges(const struct diagnosis *d, const struct outcome *o, int32_t layer);

/* Returns true if a tap is a product, or is computed from one, without another known activation between. */
bool diagnose_is_noisy(const struct diagnosis *d, size_t i);
/* Returns the median error of the taps whose inputs are known, that are noisy or not, and that are not over.  NAN: out
 * of memory. */
double diagnose_typical_step(const struct diagnosis *d, const struct outcome *o, bool noisy);

/* Sorts n values and returns the median, the upper of two; 0 if there are none. */
double diagnose_median(double *values, size_t n);

/* ---- read.c ---- */

/* Sets *v to what of theirs can be compared with the model, with remarks on the rest.  Release it with view_free, also
 * after a failure.  PLUMB_ERROR_ARGUMENT if no tap fits the model; otherwise the errors of experiment_create. */
plumb_status diagnose_read(struct trace_view *v, const struct model *m, const struct plumb_trace *theirs,
                           struct error *err);

/* ---- noise.c ---- */

/* Recognizes how theirs is rounded, fills d->noise, and lets all later runs round in the same way.  Does nothing if the
 * caller set a tolerance.  PLUMB_ERROR_MEMORY. */
plumb_status diagnose_recognize_noise(struct diagnosis *d);

/* How many rows of o are clearly closer to theirs, and further from theirs, than those of base. */
struct change {
    double gain;                 /* by how many powers of ten, of the rows that are clearly closer */
    size_t n_closer, n_further;
};

/* Compares the rows of two outcomes.  least: errors up to this are rounding. */
struct change diagnose_change(const struct diagnosis *d, const struct outcome *base, const struct outcome *o,
                              double least);
/* Returns the first n layers of which theirs has something, as far as they can be run. */
struct layers diagnose_first_layers(const struct diagnosis *d, uint32_t n);

/* ---- hidden.c ---- */

/* Fills d->hidden, for a dump that agrees.  PLUMB_ERROR_MEMORY. */
plumb_status diagnose_find_hidden(struct diagnosis *d);
void diagnose_hidden_free(struct diagnosis *d);

/* ---- measure.c ---- */

/* Fills d->measured.  PLUMB_ERROR_MEMORY. */
plumb_status diagnose_measure(struct diagnosis *d);
/* Returns true if the taps with the id of a measured step are wrong in this layer too. */
bool diagnose_is_measured_in(const struct diagnosis *d, const struct fit *f, int32_t layer);
void diagnose_measure_free(struct diagnosis *d);

/* ---- partial.c ---- */

/* To be called after the run of the truth.  If theirs has no activation whole and does not agree, lets runs begin with
 * the first layer that may be wrong.  PLUMB_ERROR_MEMORY. */
plumb_status diagnose_begin_partial(struct diagnosis *d);
/* Fills d->measured if theirs has no activation whole and no set of known mistakes explains it.  PLUMB_ERROR_MEMORY. */
plumb_status diagnose_partial(struct diagnosis *d);

/* ---- diagnose_report.c ---- */

void diagnose_text(const struct diagnosis *d, plumb_verdict verdict, struct report_writer *w);
void diagnose_json(const struct diagnosis *d, plumb_verdict verdict, struct report_writer *w);   /* docs/diagnose.md */

#endif

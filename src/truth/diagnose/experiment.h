/* One experiment of a diagnosis: runs the reference pass with a set of known mistakes and compares it with another
 * engine's trace ("theirs").
 *
 * Where the trace has a whole activation, the pass compares its own with it, replaces its own by theirs, and continues
 * from there.  A step whose inputs are all theirs is judged by itself, and an early mistake does not hide a later one.
 * Activations that the trace has only in part are compared, but they do not replace those of the pass, so errors add up
 * from step to step.
 */
#ifndef PLUMB_DIAGNOSE_EXPERIMENT_H
#define PLUMB_DIAGNOSE_EXPERIMENT_H

#include "mistakes/mistake.h"
#include "mistakes/known.h"
#include "reference/reference.h"
#include "trace/compare.h"
#include "trace/heads.h"

/* EXPERIMENT_KNOWN: the largest number of known mistakes in a set.  EXPERIMENT_PRODUCTS: the matrices of a layer
 * without experts. */
enum { EXPERIMENT_KNOWN = 3, EXPERIMENT_PRODUCTS = 7 };

/* The outcome of one run. */
struct outcome {
    const struct known_mistake *known[EXPERIMENT_KNOWN];
    uint32_t n_known;
    bool has_mistake;         /* one that no known mistake makes (mistake.h) */
    double score;             /* sum of log10 of the errors; a tap that comes ten times closer lowers it by 1 */
    double *error, *cosine;   /* (theirs->n_tap) each; NAN: the tap was not compared */
    double *row_error;        /* (first_row[theirs->n_tap]) of each row by its values; NAN: it was not compared */
};

struct experiment {
    const struct model *model;
    const struct plumb_trace *theirs;   /* borrowed, or &permuted */
    struct plumb_trace permuted;        /* theirs in the GGUF's order, if its Q and K had transformers' (heads.h) */
    struct reference *reference;
    int32_t *tokens;        /* (theirs->n_token + 3) the tokens that are run */
    float *logits;          /* (n_prompt + 2, n_vocab); NULL if theirs has no results */
    float *embeddings;      /* (theirs->n_token + 3, n_embd) of all tokens; NULL: theirs has no pooled embedding */
    float *pooled;          /* the vector that is made of them */
    float *keys;            /* (n_head, theirs->n_token) a row of kq_soft_max in the form that traces have */
    struct comparison *sums;/* (theirs->n_tap) the comparisons of the current run so far */
    struct trace_tap *own;  /* (n_own) statistics of the pass's rows, for taps of which theirs has statistics of all
                             * tokens together; other taps have no rows here */
    size_t n_own;           /* theirs->n_tap, or 0 before own is allocated */
    size_t *first_row;      /* (theirs->n_tap + 1) how many rows the taps before have */
    double *row_error;      /* of the outcome of the current run */
    uint32_t first_result;  /* first position at which theirs has result_norm or result_output; UINT32_MAX: none */
    struct mistakes *mistakes;      /* NULL until experiment_begin_mistakes */
    struct plumb_trace *truth;      /* what the truth computes in the layers first_layer - 1 and first_layer */
    uint32_t first_layer;           /* of the runs with mistakes */
    float *unpacked[EXPERIMENT_PRODUCTS];   /* the matrices of the first layer, (n_out, n_in); NULL until used */
    uint32_t n_first;               /* runs that begin with the first layer compute so many tokens, if that is enough */
    uint32_t n_batch;
    uint32_t pos;                   /* of the batch that is computed */
    bool is_trying;         /* a run with a mistake */
    uint64_t n_product;             /* multiplications of the runs with mistakes so far */
    double prints[TAP_COUNT];       /* of the last run: a number made of the first values of each tap of print_layer */
    int32_t print_layer;
    bool forced;            /* some tap of theirs is whole (experiment_is_whole), so the pass continues from it */
};

/* Borrows m and theirs.  PLUMB_ERROR_ARGUMENT if theirs does not list its tokens or has no taps of this model,
 * PLUMB_ERROR_TOKEN if a token is not in the vocabulary, PLUMB_ERROR_CONTEXT if it has more tokens than the model was
 * trained for, PLUMB_ERROR_MEMORY. */
plumb_status experiment_create(struct experiment **out, const struct model *m, const struct plumb_trace *theirs,
                               struct error *err);
void experiment_free(struct experiment *e);
#define ALL_LAYERS ((struct layers){ 0, UINT32_MAX })

/* Runs one set of known mistakes.  *o owns two arrays; release it with outcome_free.  The score leaves out the layers
 * that are not run and, if `end` is less than all layers, the results.  PLUMB_ERROR_MEMORY. */
plumb_status experiment_run(struct experiment *e, const struct known_mistake *const *known, uint32_t n_known,
                            struct layers layers, struct outcome *o, struct error *err);
/* Prepares runs with mistakes that begin with a layer: the truth computes its input, since theirs agrees with the truth
 * so far.  rounding: of the inputs of products in the pass.  Only for dumps without whole activations, and for models
 * without states.  PLUMB_ERROR_MEMORY. */
plumb_status experiment_begin_mistakes(struct experiment *e, uint32_t layer, const struct rounding *rounding,
                                       struct error *err);
/* Frees what experiment_begin_mistakes has prepared, so that it can prepare runs that begin with another layer. */
void experiment_end_mistakes(struct experiment *e);
/* Runs the pass with a mistake on the layers from first_layer up to end - 1, in f32 and mostly for a few tokens only
 * (n_first), or, if is_whole is true, on all layers from 0 on.  The score is that of the taps that were compared.
 * PLUMB_ERROR_MEMORY. */
plumb_status experiment_try(struct experiment *e, const struct mistake *m, bool is_whole, uint32_t end,
                            struct outcome *o, struct error *err);
/* Returns true if a run may begin with this layer, because theirs has its input whole for every token. */
bool experiment_can_begin(const struct experiment *e, uint32_t layer);
void outcome_free(struct outcome *o);
/* Runs the truth on the first n_layer layers, from theirs where that is whole, and gives its taps to the sink. */
plumb_status experiment_truth(struct experiment *e, uint32_t n_layer, struct tap_sink sink, struct error *err);
/* Sets effect (theirs->n_tap) to how much the current rounding of the pass changes each tap, at the places that theirs
 * has: relative errors; 0 where there are none.  PLUMB_ERROR_MEMORY. */
plumb_status experiment_effect_of_rounding(struct experiment *e, double *effect, struct error *err);
/* Returns true if the pass continues from this tap of theirs.  It never continues from logits, because nothing is
 * computed from them.  The function looks at the first row only, since the rows of a tap are mostly alike.  The pass
 * itself replaces its row only by those of theirs that are whole. */
bool experiment_is_whole(const struct experiment *e, const struct trace_tap *tap);

#endif

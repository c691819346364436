/* Measures what another engine computed in a wrong step whose inputs and output are known.
 *
 *   fit.c: which steps are measured, the table of analysers, which finding is the verdict
 *   fit_KIND.c: the analysers, one for each kind of step
 *
 * An analyser computes the step in many ways that an engine could take instead of the right one (hypotheses) and
 * proposes each result (fit_propose).  The frame compares it with theirs, and keeps it as a finding if it comes closer
 * than the right step.  An analyser never judges: it proposes, and what is proposed must be a function of the inputs
 * and of at most a few free numbers that were fitted to theirs.
 */
#ifndef PLUMB_DIAGNOSE_FIT_H
#define PLUMB_DIAGNOSE_FIT_H

#include "mistakes/mistake.h"
#include "model/program.h"
#include "reference/rounding.h"
#include "trace/report.h"
#include "trace/trace.h"

#include <math.h>

/* FIT_SENTENCE: bytes of a finding's sentence.  FIT_FINDINGS: how many of the best findings of a step are kept. */
enum { FIT_SENTENCE = 240, FIT_WHERE = 96, FIT_FINDINGS = 12 };

/* An activation: x (n_token, n_head, n).  pos: (n_token) the positions of the tokens, ascending. */
struct fit_rows {
    uint32_t n_token, n_head, n;
    const uint32_t *pos;
    const float *x;
};
static inline size_t fit_width(const struct fit_rows *r) { return (size_t)r->n_head * r->n; }
static inline const float *fit_row(const struct fit_rows *r, uint32_t t) { return r->x + t * fit_width(r); }

/* A hypothesis that comes closer to theirs than the right step.  Errors are relative RMS errors over the blocks (token,
 * head) in which the right step is wrong. */
struct finding {
    char sentence[FIT_SENTENCE];   /* "is x / mean(x^2) * w: the square root is missing" */
    char where[FIT_WHERE];         /* "only in heads 3, 5", "only in tokens 4-6"; "": everywhere */
    double error, right_error;     /* of the hypothesis; of the right step */
    uint32_t cost;                 /* how many numbers were fitted to theirs, how many mistakes it has beyond the first,
                                    * and 1 if the mistake is not made everywhere: among hypotheses that fit equally
                                    * well the simplest is the verdict */
    double print;                  /* a number made of all its values: hypotheses that are equal have the same */
    bool explains;                 /* only noise is left */
    enum tap_id step;              /* the step of a mistake that was supposed (partial.c); others leave it 0 */
};

/* A step that is measured. */
struct fit {
    const struct model *model;
    const struct plumb_trace *dump;    /* theirs */
    const struct plumb_trace *right;   /* what the right pass computes from their activations, in the layers measured */
    enum tap_id id;
    int32_t layer;                 /* -1: outside the layers */
    const int32_t *tokens;         /* (dump->n_token) */
    uint32_t n_prompt;             /* the tokens before it were computed as one prompt, the others one by one */
    struct fit_rows theirs, truth; /* the output of the step, and the right one for their inputs; of the same shape */
    struct rounding rounding;      /* of the inputs of products, also in the truth */
    double floor;                  /* an error up to this is rounding, or the noise that this dump has */
    struct finding findings[FIT_FINDINGS];   /* (n_finding) the best first */
    uint32_t n_finding;
    uint32_t n_clear;              /* 0: none of them explains theirs.  1: the first one is the verdict.  More: the dump
                                    * cannot tell the first n_clear apart */
    bool is_supposed;              /* not measured: the output is not known, and the mistake was supposed (partial.c) */
    struct mistake supposed;       /* then the first finding's */
    enum tap_id further;           /* the tap of which a dump would tell most of the tied findings apart */
    uint32_t n_apart;              /* into how many groups; 0: there is no such tap */
    uint32_t further_shape[2];     /* (n_head, n) of a token */
    /* Of the frame. */
    char text[FIT_SENTENCE];       /* what fit_say wrote last */
    bool *wrong;                   /* (n_token, n_head) the blocks in which the right step is wrong; n_wrong of them */
    size_t n_wrong;
    bool *wrong_elements;          /* (n_head * n) those of a row that the right step has wrong; n_wrong_element */
    size_t n_wrong_element;
    bool has_wrong_part;           /* a hypothesis may be made in these alone */
    double *block;                 /* (n) scratch */
    double right_error;            /* the error of the right step in these */
    bool out_of_memory;
    void **owned;                  /* (n_owned) what fit_new returned */
    size_t n_owned, cap;
    uint8_t *row_bytes;            /* scratch of fit_weight_row */
    size_t row_bytes_cap;
};

/* Allocates n elements of `size` bytes, all zeros, which live as long as the fit.  Returns NULL if out of memory; the
 * analyser then returns, and the frame reports it. */
void *fit_new(struct fit *f, uint64_t n, size_t size);
/* Finds an activation: theirs where the dump has it whole, else the one that the right pass computes from theirs.
 * Returns false if neither is known.  *rows has all tokens that are known; a row of kq_soft_max has a key for each
 * token of the dump. */
bool fit_tap(struct fit *f, enum tap_id id, int32_t layer, struct fit_rows *rows);
/* Keeps the rows of the tokens of the output.  Returns false if one is missing. */
bool fit_align(struct fit *f, struct fit_rows *rows);
/* Finds the input of the step that is in the set `among` (TAP_SET), with all rows that are known.  In the set, L_OUT
 * means the l_out of the layer before, or the embedding in layer 0.  If the layer lacks a tap, such as a norm, its own
 * input takes its place.  ALL_IDS: the only input.  Returns false if it is not known. */
bool fit_find_input(struct fit *f, id_set among, struct fit_rows *rows);
/* As fit_find_input, with the rows of the tokens of the output.  Returns false if one is missing. */
bool fit_input(struct fit *f, id_set among, struct fit_rows *rows);
/* The weight of the layer of the step, or of outside the layers. */
const struct affine *fit_weight(const struct fit *f, enum weight_id id);
/* The step of the layer's program that has the tap of the step; NULL: there is none. */
const struct step *fit_step(const struct fit *f);
/* A whole weight in f32, (n_out, n_in); NULL: there is none, or no memory. */
const float *fit_floats(struct fit *f, const struct weight *w);
/* Writes row i of a weight in f32 to row (n_in).  Returns false if out of memory. */
bool fit_weight_row(struct fit *f, const struct weight *w, size_t i, float *row);
/* Proposes y, of the shape of theirs.  cost: as in struct finding.  The format makes the sentence, which follows "their
 * NAME ".  Returns the error of y in the rows where the right step is wrong, also if y explains only some elements of
 * these rows. */
PRINTF_LIKE(4, 5) double fit_propose(struct fit *f, uint32_t cost, const double *y, const char *format, ...);
/* Writes a sentence, printf-like.  Returns it; it is valid until the next call. */
PRINTF_LIKE(2, 3) const char *fit_say(struct fit *f, const char *format, ...);
/* Returns the number by which y must be multiplied to come closest to theirs, where the right step is wrong.  A block
 * counts as much as any other.  NAN if there is none. */
double fit_scale(const struct fit *f, const double *y);

static inline double fit_nearest(double x) { return round(x) + 0.0; }   /* never -0 */
static inline bool fit_is_near(double x, double y, double tolerance) { return fabs(x - y) <= tolerance * fabs(y); }

/* ---- the analysers ----------------------------------------------------------------------------------------------- */

void fit_norm(struct fit *f);
void fit_linear(struct fit *f);
void fit_embedding(struct fit *f);
void fit_rope_early(struct fit *f);   /* Q, K and V, which no right step has rotated yet */
void fit_rope(struct fit *f);
void fit_attention_weights(struct fit *f);
void fit_attention_output(struct fit *f);
void fit_logits(struct fit *f);
void fit_activation(struct fit *f);
void fit_gated(struct fit *f);        /* a function of one activation times another one */
void fit_residual(struct fit *f);
void fit_scan(struct fit *f);
void fit_delta(struct fit *f);
void fit_wkv(struct fit *f);
void fit_convolution(struct fit *f);
void fit_bias(struct fit *f);         /* of the time steps of a scan */
void fit_decay(struct fit *f);        /* of a delta net */
void fit_fade(struct fit *f);         /* of RWKV and lightning attention */
void fit_per_layer(struct fit *f);    /* the embeddings for each layer */
void fit_own(struct fit *f);          /* their use in a layer */
void fit_any(struct fit *f);   /* what can be wrong in any step */
void fit_listed(struct fit *f);   /* the mistakes of mistake_list.c; after all others */

/* ---- the frame --------------------------------------------------------------------------------------------------- */

/* Fills f->theirs and f->truth; f has all members up to them.  Returns false if they cannot be compared, or if there is
 * no memory.  fit_free must follow in any case. */
bool fit_begin(struct fit *f);
/* Runs the analysers of the table that take the step, and judges what they propose.  PLUMB_ERROR_MEMORY. */
plumb_status fit_analyse(struct fit *f, struct error *err);
void fit_free(struct fit *f);

#endif

/* Mistakes in a step that no quirk makes: the formula of the step with another constant, input, tensor, order or axis.
 *
 *   mistake.c: computes a step with a mistake from the inputs that the pass has
 *   mistake_list.c: the mistakes that are tried, and a sentence for each
 *   partial.c: tries them on a dump that has activations only in part
 *
 * The reference pass computes the right step first, and calls mistakes_step with the result.  If the mistake concerns
 * this step, mistakes_step replaces the result.  It also keeps the results of all steps, because later steps are
 * computed from them.
 */
#ifndef PLUMB_DIAGNOSE_MISTAKE_H
#define PLUMB_DIAGNOSE_MISTAKE_H

#include "model/model.h"
#include "model/tap.h"
#include "reference/rounding.h"
#include "trace/trace.h"

enum mistake_kind {
    MISTAKE_NONE,         /* the right formula */
    MISTAKE_ORDER,        /* variant: enum array_order, along the axis */
    MISTAKE_SCALE,        /* the result times number */
    MISTAKE_LAYOUT,       /* variant: enum layout */
    MISTAKE_SKIP,         /* the result is the input */
    MISTAKE_INPUT,        /* input number `at` is another activation: tap `input`, of the layer before if is_before */
    MISTAKE_TENSOR,       /* the weight `weight` of layer from_layer, or of the own layer if it is -1; if the step that
                           * has this weight is in taps too, it has that of the step `input`: they are exchanged */
    MISTAKE_LAYER,        /* all steps of a layer have the weights of another one; variant: enum layer_map */
    MISTAKE_TRANSPOSED,   /* the matrix (n_out, n_in) is read as (n_in, n_out), transposed */
    MISTAKE_BIAS,         /* the bias times number */
    MISTAKE_NORM,         /* variant: enum norm_mistake */
    MISTAKE_EPS,          /* eps is number */
    MISTAKE_ROPE,         /* variant: enum rope_mistake, number; other: ROPE_PART has the frequencies of a small head */
    MISTAKE_SCORES,       /* variant: enum scores_mistake, number */
    MISTAKE_HEADS,        /* variant: enum heads_mistake, of K or V */
    MISTAKE_CACHE,        /* variant: enum cache_mistake */
    MISTAKE_GATE,         /* variant: enum gate_mistake */
    MISTAKE_SUM,          /* number * sublayer + other * residual */
    MISTAKE_TOKEN,        /* the embedding of the token `number` places further on */
    MISTAKE_LEFT_OUT,     /* a layer returns its input */
};

/* Along which axis of an array MISTAKE_ORDER acts.  AXIS_INPUT: the elements of the first input.  AXIS_COLUMNS: the
 * columns of the matrix.  AXIS_WEIGHT: the rows of the matrix, or the elements of the weight of a norm. */
enum axis { AXIS_ELEMENTS, AXIS_HEADS, AXIS_TOKENS, AXIS_INPUT, AXIS_COLUMNS, AXIS_WEIGHT };
enum array_order {
    ARRAY_REVERSED, ARRAY_NEXT, ARRAY_BEFORE, ARRAY_HALVES, ARRAY_NEIGHBOURS, ARRAY_FIRST_TWO, ARRAY_ENDS,
    ARRAY_EVENS_FIRST, ARRAY_INTERLEAVED, ARRAY_ALL_FIRST, ARRAY_ALL_LAST, ARRAY_HALF_TWICE, ARRAY_PAIRS_SAME,
    ARRAY_ZERO_FIRST, ARRAY_ZERO_LAST, ARRAY_ZERO_QUARTER, ARRAY_ZERO_HALF, ARRAY_ZERO_FOURTHS, ARRAY_ZERO_ODD,
    N_ARRAY_ORDER
};
/* An array is stored in one order of its axes and read in another. */
enum layout {
    LAYOUT_ELEMENT_HEAD, LAYOUT_HEAD_ELEMENT, LAYOUT_ELEMENT_TOKEN, LAYOUT_TOKEN_ELEMENT, LAYOUT_HEAD_TOKEN,
    LAYOUT_TOKEN_HEAD, N_LAYOUT
};
enum norm_mistake {
    NORM_NO_WEIGHT, NORM_WEIGHT_TWICE, NORM_WEIGHT_PLUS_1, NORM_NO_ROOT, NORM_NOT_DIVIDED, NORM_SUM, NORM_CENTERED,
    NORM_VARIANCE, NORM_TWICE, NORM_WEIGHT_FIRST, NORM_PARTS_2, NORM_PARTS_4, NORM_PARTS_8, NORM_TOKENS, NORM_MEAN_ABS,
    NORM_FIRST_HALF, NORM_ACROSS_TOKENS, N_NORM_MISTAKE
};
enum rope_mistake {
    ROPE_OTHER_PAIRS, ROPE_BACKWARD, ROPE_EXCHANGED, ROPE_NO_SINE, ROPE_NO_COSINE, ROPE_TWICE, ROPE_IN_PLACE,
    ROPE_OFFSET, ROPE_SCALED, ROPE_BASE, ROPE_PART, ROPE_EXPONENT, ROPE_DEGREES, ROPE_BATCH, ROPE_SAME_POSITION,
    ROPE_SECOND_PART, N_ROPE_MISTAKE
};
enum scores_mistake {
    SCORES_SCALE, SCORES_SOFTCAP, SCORES_FUTURE, SCORES_HIDDEN, SCORES_WINDOW, SCORES_MASK_LATE, SCORES_ZEROS,
    SCORES_OVER_HEADS, SCORES_OVER_TOKENS, SCORES_NO_SOFTMAX, SCORES_TWO_HIDDEN, N_SCORES_MISTAKE
};
enum heads_mistake {
    KV_MODULO, KV_REVERSED, KV_NEXT, KV_FIRST, KV_LAST, KV_EARLY, N_HEADS_MISTAKE
};
enum cache_mistake {
    CACHE_NOT_DECODED, CACHE_EARLY, CACHE_LATE, CACHE_ONE_SLOT, CACHE_PROMPT_REVERSED, CACHE_ONLY_OWN,
    CACHE_ROWS_BY_HEAD, CACHE_ROWS_BY_SLOT, N_CACHE_MISTAKE
};
enum gate_mistake {
    GLU_GELU_TANH, GLU_GELU_ERF, GLU_GELU_QUICK, GLU_SILU, GLU_RELU, GLU_RELU_SQR, GLU_SIGMOID, GLU_TANH,
    GLU_NONE, GLU_TWICE, GLU_SOFTPLUS, GLU_EXCHANGED, GLU_LATE, GLU_SUM, GLU_ALONE, GLU_UP_ALONE,
    N_GATE_MISTAKE
};

/* Which layer has the tensors of which: `first` those of from_layer, both exchanged, all those of from_layer... */
enum layer_map { MAP_ONE, MAP_EXCHANGED, MAP_ALL, MAP_NEXT, MAP_BEFORE, MAP_REVERSED, MAP_AS_TEXT, N_LAYER_MAP };

enum token_scope { TOKENS_ALL, TOKENS_DECODED, TOKENS_PROMPT, TOKENS_FIRST, TOKENS_LAST, N_TOKEN_SCOPE };

enum { EVERYWHERE = -1 };

struct mistake {
    uint64_t taps;              /* the steps that are wrong (TAP_SET) */
    enum mistake_kind kind;
    uint8_t variant, axis, at;
    bool is_before;
    enum tap_id input;
    enum weight_id weight;
    int32_t from_layer;
    uint32_t first;             /* the layer of which MISTAKE_LAYER was found */
    double number, other;
    int32_t layer, head;        /* EVERYWHERE, or the only one where the mistake is made */
    enum token_scope tokens;
};

/* What a pass with a mistake needs beside the reference pass. */
struct mistakes {
    const struct model *model;
    const int32_t *tokens;          /* (n_token) borrowed */
    uint32_t n_token, n_prompt, order;
    const struct mistake *mistake;  /* the current one; NULL: none */
    uint64_t supported;             /* the steps whose formula here gives what the pass gives */
    bool is_checking;               /* see mistakes_step */
    struct rounding rounding;       /* of the inputs of products, in the pass too */
    double *held[TAP_COUNT];        /* (n_held, n_head, width) the last results of each step, for a batch of tokens */
    size_t cap[TAP_COUNT];
    uint32_t n_held[TAP_COUNT];     /* 0: the step was not computed in this run */
    uint32_t n_head[TAP_COUNT], width[TAP_COUNT];
    double *rows[3];                /* (n_layer, n_token, max_k or max_v) Kcur_rope, Vcur and Kcur of all tokens */
    double *y, *x;                  /* scratch: results of a batch, an input in another order */
    size_t n_y, n_x;
    float *row;
    uint8_t *bytes;
    bool out_of_memory;
};

/* n_token, n_prompt, tokens: those of the dump.  PLUMB_ERROR_MEMORY. */
plumb_status mistakes_create(struct mistakes **out, const struct model *m, const int32_t *tokens, uint32_t n_token,
                             uint32_t n_prompt, struct error *err);
void mistakes_free(struct mistakes *s);
/* Must be called before every run. */
void mistakes_begin(struct mistakes *s, const struct mistake *m);
/* Returns true if the current mistake changes this step. */
bool mistakes_change(const struct mistakes *s, enum tap_id id, int32_t layer);
/* Must be called for every tap of a pass, with its result x (tap->n_token, tap->n_head, tap->n), in the order of the
 * computation.  Makes the current mistake in x or, if s->is_checking, compares x with the formula of the step and takes
 * the step out of s->supported if they differ. */
void mistakes_step(struct mistakes *s, const plumb_tap *tap, enum tap_id id, double *x);

/* ---- mistake_list.c ---- */

enum weight_id mistake_weight(enum tap_id id);   /* the weight of a step in a layer; W_COUNT: none */
/* The layer whose tensors this layer has with MISTAKE_LAYER. */
uint32_t mistake_layer(const struct mistake *m, uint32_t layer, uint32_t n_layer);
/* Whether a mistake is made in a layer. */
bool mistake_is_in(const struct mistake *m, int32_t layer, uint32_t n_layer);
/* Whether several steps can have it at once: it does not name one of their own inputs or tensors. */
bool mistake_can_be_shared(const struct mistake *m);
/* Whether it depends on which tokens are computed as one batch. */
bool mistake_is_of_batch(const struct mistake *m);
/* Calls try with every mistake of a step that is made everywhere and that applies to this model. */
void mistakes_list(const struct mistakes *s, enum tap_id id, int32_t layer,
                   void (*try)(void *user, const struct mistake *m), void *user);
/* Writes the sentence of a mistake, which follows "their NAME ", and where it is made. */
void mistake_say(const struct mistakes *s, const struct mistake *m, int32_t layer, char *text, size_t n);
void mistake_where(const struct mistake *m, char *text, size_t n);

#endif

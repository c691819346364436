/* Mistakes in a step that no known mistake makes: the formula of the step with another constant, input, tensor, order
 * or axis.
 *
 *   mistake.c: computes a step with a mistake from the inputs that the pass has
 *   mistake_list.c: the mistakes that are tried, and a sentence for each
 *   partial.c: tries them on a dump that has activations only in part
 *
 * The reference pass computes the right step first, and calls mistakes_step with the result.  If the mistake concerns
 * this step, mistakes_step replaces the result.  It also keeps the results of all steps, because later steps are
 * computed from them.
 */
#ifndef PLUMB_MISTAKES_MISTAKE_H
#define PLUMB_MISTAKES_MISTAKE_H

#include "mistakes/formulas.h"
#include "model/model.h"
#include "model/tap.h"
#include "reference/rounding.h"
#include "trace/trace.h"

#include <math.h>

enum mistake_kind {
    MISTAKE_NONE,         /* the right formula */
    MISTAKE_ORDER,        /* variant: enum array_order, along the axis */
    MISTAKE_SCALE,        /* the result times number */
    MISTAKE_LAYOUT,       /* variant: enum layout */
    MISTAKE_SKIP,         /* the result is the input */
    MISTAKE_INPUT,        /* input number `at` is another activation: tap `input`, of the layer before if is_before;
                           * with a chunk, K or V of those tokens only that variant, enum chunk_part, says */
    MISTAKE_TENSOR,       /* the weight `weight` of layer from_layer, or of the own layer if it is -1; if the step that
                           * has this weight is in taps too, it has that of the step `input`: they are exchanged */
    MISTAKE_LAYER,        /* all steps of a layer have the weights of another one; variant: enum layer_map */
    MISTAKE_TRANSPOSED,   /* the matrix (n_out, n_in) is read as (n_in, n_out), transposed */
    MISTAKE_BIAS,         /* the bias times number, or that of the weight `weight` if it is not W_COUNT */
    MISTAKE_FUSED,        /* the rows of several matrices in one; variant: enum fused_mistake */
    MISTAKE_NORMED,       /* the result is normalized, over each head (variant 0) or the row (1); weight: or W_COUNT */
    MISTAKE_ADDED_UP,     /* sums are not cleared: of heads, or of the tokens of a chunk; axis */
    MISTAKE_VALUES,       /* online softmax; variant: enum values_mistake, number: the keys of a tile */
    MISTAKE_NORM,         /* variant: enum norm_mistake */
    MISTAKE_EPS,          /* eps is number */
    MISTAKE_ROPE,         /* variant: enum rope_mistake, number */
    MISTAKE_SCORES,       /* variant: enum scores_mistake, number */
    MISTAKE_HEADS,        /* variant: enum kv_rule */
    MISTAKE_CACHE,        /* variant: enum cache_mistake */
    MISTAKE_GATE,         /* variant: enum gate_mistake */
    MISTAKE_SUM,          /* number * sublayer + other * residual; with a weight that is not W_COUNT, the norm of it */
    MISTAKE_TOKEN,        /* variant: enum token_mistake */
    MISTAKE_LEFT_OUT,     /* a layer returns its input */
    N_MISTAKE_KIND
};

/* Along which axis of an array MISTAKE_ORDER acts.  AXIS_INPUT: the elements of the first input.  AXIS_COLUMNS: the
 * columns of the matrix.  AXIS_WEIGHT: the rows of the matrix, or the elements of the weight of a norm. */
enum axis { AXIS_ELEMENTS, AXIS_HEADS, AXIS_TOKENS, AXIS_INPUT, AXIS_COLUMNS, AXIS_WEIGHT };
/* Tokens of a chunk of the prompt, which engines compute at once. */
enum chunk_part { CHUNK_PAST, CHUNK_OWN, N_CHUNK_PART };
/* The rows of Q, K and V, or of gate and up, that an engine takes as one matrix: those of each group of heads together,
 * in turn, or one matrix at the place of another. */
enum fused_mistake { FUSED_READ_BY_GROUP, FUSED_STORED_BY_GROUP, FUSED_ALTERNATE, FUSED_IN_HALVES, N_FUSED_MISTAKE };
enum values_mistake {
    VALUES_NOT_RESCALED, VALUES_SUM_NOT_RESCALED, VALUES_ONLY_SUM_RESCALED, VALUES_RESCALED_INVERSELY,
    VALUES_NOT_DIVIDED, VALUES_WITHOUT_TAIL, N_VALUES_MISTAKE
};
/* number places before or further on in the text; the next id, the one before, the id's low byte, or modulo half of the
 * ids; rows that begin half a row early or late. */
enum token_mistake {
    TOKEN_EARLIER, TOKEN_FURTHER, TOKEN_NEXT_ID, TOKEN_ID_BEFORE, TOKEN_LOW_BYTE, TOKEN_HALF, TOKEN_ROW_EARLY,
    TOKEN_ROW_LATE, N_TOKEN_MISTAKE
};
/* An array is stored in one order of its axes and read in another. */
enum layout {
    LAYOUT_ELEMENT_HEAD, LAYOUT_HEAD_ELEMENT, LAYOUT_ELEMENT_TOKEN, LAYOUT_TOKEN_ELEMENT, LAYOUT_HEAD_TOKEN,
    LAYOUT_TOKEN_HEAD, N_LAYOUT
};
enum norm_mistake {
    NORM_NO_WEIGHT, NORM_WEIGHT_TWICE, NORM_WEIGHT_PLUS_1, NORM_NO_ROOT, NORM_NOT_DIVIDED, NORM_SUM, NORM_LESS_MEAN,
    NORM_VARIANCE, NORM_TWICE, NORM_WEIGHT_FIRST, NORM_PARTS_2, NORM_PARTS_4, NORM_PARTS_8, NORM_TOKENS, NORM_MEAN_ABS,
    NORM_FIRST_HALF, NORM_ACROSS_TOKENS, NORM_ADDED_UP, NORM_FIRST_OF_ALL, NORM_WITHOUT_LAST, N_NORM_MISTAKE
};
enum rope_mistake {
    ROPE_OTHER_PAIRS, ROPE_BACKWARD, ROPE_EXCHANGED, ROPE_NO_SINE, ROPE_NO_COSINE, ROPE_TWICE, ROPE_IN_PLACE,
    ROPE_OFFSET, ROPE_SCALED, ROPE_BASE, ROPE_PART, ROPE_SMALL_HEAD, ROPE_EXPONENT, ROPE_DEGREES, ROPE_BATCH,
    ROPE_SAME_POSITION, ROPE_SECOND_PART, ROPE_FROZEN, ROPE_BY_HEAD, ROPE_FACTORS_MULTIPLIED, ROPE_CHUNK,
    ROPE_CHUNK_SAME, N_ROPE_MISTAKE
};
/* Those from SCORES_SINK_SCALED on are of models with sinks, those from SCORES_HIDDEN on of some tokens. */
enum scores_mistake {
    SCORES_SCALE, SCORES_SOFTCAP, SCORES_LATE, SCORES_EARLY, SCORES_NO_MASK, SCORES_MASK_LATE, SCORES_ZEROS,
    SCORES_OVER_HEADS, SCORES_OVER_TOKENS, SCORES_NO_SOFTMAX, SCORES_CLAMPED, SCORES_HIDDEN_WEAKLY, SCORES_PADDED,
    SCORES_HIDDEN_AT_0, SCORES_CHUNK_FUTURE, SCORES_CHUNK_ALONE, SCORES_CHUNK_FROM_0, SCORES_SINK_SCALED,
    SCORES_SINK_PLAIN, SCORES_SINK_BEFORE, SCORES_SINK_NEXT, SCORES_EARLY_ZEROS, SCORES_HIDDEN, SCORES_TWO_HIDDEN,
    SCORES_WINDOW, N_SCORES_MISTAKE
};
enum cache_mistake {
    CACHE_NOT_DECODED, CACHE_EARLY, CACHE_LATE, CACHE_ONE_SLOT, CACHE_PROMPT_REVERSED, CACHE_ONLY_OWN,
    CACHE_ROWS_BY_HEAD, CACHE_ROWS_BY_SLOT, CACHE_EXCHANGED, CACHE_REPEATED, CACHE_CHUNK_CLEARED, CACHE_CHUNK_FROM_0,
    N_CACHE_MISTAKE
};
enum gate_mistake {
    GLU_GELU_TANH, GLU_GELU_ERF, GLU_GELU_QUICK, GLU_SILU, GLU_RELU, GLU_RELU_SQR, GLU_SIGMOID, GLU_TANH,
    GLU_NONE, GLU_TWICE, GLU_SOFTPLUS, GLU_EXCHANGED, GLU_LATE, GLU_SUM, GLU_ALONE, GLU_UP_ALONE, GLU_HARD, GLU_HARD_02,
    GLU_EXP_CLAMPED, GLU_LIMITED, GLU_GATE_LIMITED, GLU_NO_ALPHA, GLU_NO_1, GLU_ALTERNATE,
    GLU_GELU_ROOT, GLU_GELU_CUBE,   /* number takes the place of sqrt(2 / pi), and of 0.044715 */
    N_GATE_MISTAKE
};

/* A variant of a kind: what is said of it, with a %g for its number and then for the other one, and the numbers that
 * are tried.  of_batch: it depends on which tokens are computed as one batch.  chunks: it is tried for prompts in
 * chunks, or for these alone.  What else is wrong, mistake.c says. */
struct variant {
    const char *text;
    const double *numbers;
    uint32_t n_number;          /* 0: it has none */
    bool of_batch;
    enum { CHUNKS_NONE, CHUNKS_TOO, CHUNKS_ALONE } chunks;
    enum norm_form form;
    uint32_t n_part;                  /* parts of a row that are normalized apart; 0: 1 */
    double (*activation)(double z);   /* NULL: the right one */
};
extern const struct variant mistake_norms[N_NORM_MISTAKE], mistake_gates[N_GATE_MISTAKE];

/* Which layer has the tensors of which: `first` those of from_layer, both exchanged, all those of from_layer... */
enum layer_map { MAP_ONE, MAP_EXCHANGED, MAP_ALL, MAP_NEXT, MAP_BEFORE, MAP_REVERSED, MAP_AS_TEXT, N_LAYER_MAP };

enum token_scope { TOKENS_ALL, TOKENS_DECODED, TOKENS_PROMPT, TOKENS_FIRST, TOKENS_LAST, N_TOKEN_SCOPE };

enum { EVERYWHERE = -1 };

struct mistake {
    id_set taps;                /* the steps that are wrong (TAP_SET) */
    enum mistake_kind kind;
    uint8_t variant, axis, at;
    bool is_before;
    enum tap_id input;
    enum weight_id weight;
    int32_t from_layer;
    uint32_t first;             /* the layer of which MISTAKE_LAYER was found */
    uint32_t chunk;             /* the prompt was computed in chunks of so many tokens; 0: that does not matter */
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
    id_set supported;               /* the steps whose formula here gives what the pass gives */
    bool is_checking;               /* see mistakes_step */
    id_set checked;                 /* the steps that are compared then */
    double same;                    /* up to this relative error they are the same */
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
/* Writes to x what the right formula of a supported step gives for the inputs that are kept. */
void mistakes_compute(struct mistakes *s, const plumb_tap *tap, enum tap_id id, double *x);

/* ---- mistake_list.c ---- */

enum operation { OP_OTHER, OP_EMBD, OP_NORM, OP_LINEAR, OP_ROPE, OP_SCORES, OP_VALUES, OP_GATE, OP_SUM };
enum operation mistake_operation(enum tap_id id);   /* what a step computes; OP_OTHER: no formula is known */
enum weight_id mistake_weight(enum tap_id id);   /* the weight of a step in a layer; W_COUNT: none */
id_set mistake_taps(enum weight_id weight);    /* the step of a layer that has this weight */
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

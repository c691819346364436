/* The table of known mistakes of engines that run GGUF files, each with a name.  A known mistake is an entry of
 * a table, which says in a sentence what such an engine does, to which models that can apply, and how the reference
 * pass computes it: as an edit of its copy of the plan or of the weights, or as a function that takes the place of a
 * right one (struct reference_steps).
 *
 *   known.c: sets of known mistakes, and the pass with a set
 *   known_norms.c, known_attention.c, known_recurrent.c, known_ffn.c, known_types.c: the entries, in the order of the
 *     computation
 *   misread.c: dequantizers with mistakes
 *
 * The sentences are exact: tests/reference/engine.py was written from them and from nothing else, and makes the same
 * mistakes.  In them h is one of n_head query heads, and g is one of n_head_kv key and value heads.  A batch is the
 * whole prompt (n_prompt tokens from position 0 on), or one token after it ("a step").  If a file has a residual_scale,
 * the outputs of attention and feed forward are multiplied by it when they are added.  Taps show what such an engine
 * would show: the weights that it used, the residual that it added to.
 */
#ifndef PLUMB_MISTAKES_KNOWN_H
#define PLUMB_MISTAKES_KNOWN_H

#include "reference/steps.h"

/* Mistakes in reading a block.  The table has an entry for each type for which a mistake makes sense. */
enum misread {
    MISREAD_NONE,
    MISREAD_NIBBLES,     /* low and high nibble of every byte swapped */
    MISREAD_LAYOUT,      /* byte j of a group holds elements 2j and 2j + 1, instead of j and j + group size */
    MISREAD_OFFSET,      /* codes taken as they are, without subtracting 1, 4, 8, 16 or 32 */
    MISREAD_MIN,         /* the minimum with the wrong sign */
    MISREAD_SCALES,      /* scale and minimum of each sub-block swapped */
    MISREAD_SCALE_BITS,  /* packed 6-bit scales and minima without their upper two bits, which are stored apart */
    MISREAD_SCALE_ORDER, /* packed 6-bit scales read in sequence */
    MISREAD_D,           /* the block's two f16 swapped */
    MISREAD_HIGH,        /* high bits, of codes or of indexes into a grid, not added */
    MISREAD_HIGH_ORDER,  /* high bits taken in another order */
    MISREAD_HIGH_SIGN,   /* high bits inverted */
    MISREAD_ORDER,       /* Q2_K, Q3_K, Q6_K, TQ1_0, TQ2_0: elements read in sequence; NVFP4: in the order of MXFP4 */
    MISREAD_TABLE,       /* IQ4_NL, IQ4_XS, MXFP4, NVFP4: codes taken as those of Q4_0 */
    MISREAD_DOUBLED,     /* MXFP4, NVFP4: scales not halved, though the values of the codes are doubled */
    MISREAD_DIGITS,      /* TQ1_0: bytes taken as integers of base 3, not as fractions */
    MISREAD_SIGNS,       /* IQ2, IQ3: all weights of a vector positive */
    MISREAD_LAST_SIGN,   /* IQ2_XXS, IQ2_XS, IQ3_XXS: the eighth sign, which the other seven determine, taken as plus */
    MISREAD_SHIFT,       /* IQ1: 1/8 neither added nor subtracted */
    MISREAD_HALF,        /* IQ1, IQ2, IQ3: 1/2 not added to the scales */
    MISREAD_SIGN,        /* signed bytes read as unsigned, or 32 not subtracted from scales */
    MISREAD_BF16,        /* f16 read as bf16, or BF16 as f16 */
};

/* What is done to the list of tokens. */
enum token_list { TOKENS_RIGHT, TOKENS_NO_BOS, TOKENS_TWO_BOS, TOKENS_LAST_TWICE, TOKENS_PADDED };

/* What a known mistake edits. */
struct edit {
    struct plan *plan;     /* a copy of the model's */
    struct model *model;   /* a copy with a table of layers of its own; its plan stays the right one */
    struct reference_steps *steps;
    uint8_t *misread;      /* by tensor type */
};

/* To which models a known mistake can apply.  One that makes an edit applies if the edit changes anything, so most
 * needs are only words. */
struct need {
    const char *text;
    bool (*holds)(const struct model *m);   /* NULL: what the edit changes says it */
};

struct known_mistake {
    const char *name;          /* "rope.pairing=halves" */
    const char *tap;           /* the first tap that it can change */
    const struct need *need;
    const char *text;          /* what the engine does wrong, exactly */
    const struct reference_steps *steps;   /* the functions that it replaces; NULL: none */
    void (*edit)(const struct known_mistake *q, struct edit *e);   /* NULL: none */
    void (*rewrite)(const struct known_mistake *q, struct program *p);   /* edits the steps of a layer; NULL: none */
    union { int32_t value; float number; };   /* for the edit */
    size_t at;                 /* for the edit: the place of a number */
    id_set weights;            /* for the edit: a set of enum weight_id */
    enum token_list tokens;
    enum quant_type type;      /* the type whose blocks it misreads */
    enum misread misread;
    bool is_first;             /* it is made before the other known mistakes of a set */
};

/* Returns the known mistake at index i of the table; NULL past the last. */
const struct known_mistake *known_at(size_t i);
size_t known_count(void);
/* Returns 1 if the known mistake could change anything in this model, 0 if not, and -1 if there is no memory to find
 * out.  Swapped nibbles of a type that no tensor has could not, for instance, and neither could a base of 10000 if the
 * file has the same.  bos: the tokenizer's BOS id, -1 if it has none. */
int known_applies(const struct known_mistake *q, const struct model *m, int32_t bos);
/* Whether any layer has a tap. */
bool known_has_tap(const struct model *m, enum tap_id id);
/* Says to which models the known mistake can apply: "all", or what they must have, "with RoPE". */
static inline const char *known_models(const struct known_mistake *q) { return q->need->text; }

/* A set of known mistakes. */
enum { KNOWN_MAX = 16 };
struct known_set { uint32_t n; const struct known_mistake *of[KNOWN_MAX]; };

static inline void known_add(struct known_set *set, const struct known_mistake *q) { set->of[set->n++] = q; }
/* Returns false if a known mistake of the set excludes q: they have the same name up to the "=", or change the same
 * step. */
bool known_is_free(const struct known_set *set, const struct known_mistake *q);
/* Sets the mistakes that all later runs of a pass make; NULL: none.  The caller must apply what concerns the list of
 * tokens itself.  Some mistakes depend on batches, so with known mistakes the run at position 0 must be the whole
 * prompt, and every later run one token. */
void known_apply(struct reference *r, const struct known_set *set);
/* Writes to out, (n + 3), the tokens that an engine with these known mistakes computes if it is asked to compute ids,
 * (n), the first *n_prompt of which are the prompt.  Returns how many it computes, and sets *n_prompt to the length of
 * its prompt. */
size_t known_tokens(const struct known_set *set, const int32_t *ids, size_t n, size_t *n_prompt, int32_t *out);

/* Dequantizes one row of n elements as an engine with the mistake does.  n is a multiple of the type's block size. */
void misread_row(enum quant_type type, enum misread misread, const void *src, float *dst, size_t n);

/* ---- the entries ------------------------------------------------------------------------------------------------- */

struct known_list { const struct known_mistake *of; size_t n; };
extern const struct known_list known_norms, known_attention, known_recurrent, known_ffn, known_types;

extern const struct need known_every, known_with_experts, known_with_pooling;   /* used in several files */

/* Columns of an entry: a need, functions, and edits. */
#define NEED(text, holds) &(const struct need){ text, holds }
#define STEPS(...) .steps = &(const struct reference_steps){ __VA_ARGS__ }
#define EDIT(function, to) .edit = function, .value = to
/* A number of the plan, or of the attention of all layers, becomes another one. */
#define PLAN(member, to) .edit = known_edit_plan, .at = offsetof(struct plan, member), .number = to
#define ATTENTION(member, to) .edit = known_edit_attention, .at = offsetof(struct attn_plan, member), .value = to
/* Weights, or biases of weights, are left out. */
#define SET(weight) ID_SET(W_##weight)
#define REMOVED(set) .edit = known_remove, .weights = set
#define WITHOUT_BIAS(set) .edit = known_remove_bias, .weights = set

void known_edit_plan(const struct known_mistake *q, struct edit *e);
void known_edit_attention(const struct known_mistake *q, struct edit *e);
void known_remove(const struct known_mistake *q, struct edit *e);
void known_remove_bias(const struct known_mistake *q, struct edit *e);

/* The step with a tap; NULL: there is none.  The step with the tap `at`, whose output is its input, does nothing. */
struct step *known_step(struct program *p, enum tap_id tap);
void known_rewrite_absent(const struct known_mistake *q, struct program *p);

/* Loops over the layers of a plan. */
#define EACH_LAYER(p, il) for (uint32_t il = 0; il < (p)->n_layer; il++)

#endif

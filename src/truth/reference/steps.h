/* The internals of the reference pass.  reference.c computes the right steps, and quirk_steps.c computes them as
 * engines with known mistakes do.
 */
#ifndef PLUMB_REFERENCE_STEPS_H
#define PLUMB_REFERENCE_STEPS_H

#include "reference/reference.h"

struct reference {
    const struct model *m;           /* right, or &edited if there are quirks */
    const struct model *right;
    struct model edited;             /* a copy of *right with a table of layers of its own, which quirks edit */
    struct plan plan;                /* a copy of the model's, or what the quirks make of it */
    const struct wrong_steps *wrong; /* the steps with the mistakes of quirks; NULL: the pass is right */
    struct quirks quirks;            /* valid if wrong is not NULL */
    struct roundings rounding;       /* all zeros: nothing is rounded */
    double *rounded;                 /* (n_batch, plan_max_row) rounded inputs of a product; NULL until it is needed */
    uint32_t n_ctx, n_batch;
    uint32_t first_layer, n_layer;   /* the layers first_layer .. n_layer - 1 are computed, as far as there are */
    uint64_t bytes;
    double *k, *v;                   /* (n_layer, n_ctx, n_head_kv, k_dim), (n_layer, n_ctx, n_head_kv, v_dim) */
    double *streams[STREAM_COUNT];   /* (n_batch, n) each, see enum stream; K and V are places in the cache */
    double *x, *h, *q, *attn;        /* the streams STREAM_X, STREAM_H, STREAM_Q and STREAM_HEADS */
    /* For experts; NULL in a model without them. */
    double *masked;                  /* (n_expert) what the experts of a token are chosen by */
    double *gates;                   /* (n_batch) of the expert that every token uses */
    double *expert_row;              /* (n_embd) output of an adjugate */
    double *expert_rows;             /* (n_batch, n_used, n_embd) inputs or outputs of all experts */
    uint32_t n_head_row;             /* elements of the longest vector after pooling */
    double *head;                    /* (2, n_head_row) two vectors between the steps after pooling */
    double *weights;                 /* (n_batch, n_head, n_ctx) scores, then attention weights, of a layer */
    double *frequencies[PLAN_ROPES]; /* (n_rot / 2) of each rope: the angle of a pair per position.  There is room for
                                      * k_dim, because a quirk may change n_rot */
    float *row;                      /* scratch for one dequantized row of any weight */
    uint8_t *row_bytes;              /* scratch for a row of a weight, with the bytes of the file */
    uint8_t *other_row;              /* the same for a row of any tensor; only tensor.offset=shifted uses it */
    uint32_t n_prompt;               /* tokens of the run at position 0 */
    struct tap_sink sink;
    float *tapped;                   /* a tap's values in f32; NULL until a sink is set */
    void (*force)(void *user, const plumb_tap *tap, double *x);
    void *force_user;
    bool (*give)(void *user, const struct affine *of, const double *x, uint32_t n, double *y);
    /* Used only by quirks. */
    double *rotated;                 /* (n_ctx) the position that the K of a slot was rotated to */
    double *key, *zeros;             /* (k_dim) scratch for a K, and zeros */
    double *fused;                   /* (max_q + max_k + max_v) scratch for the Q, K and V of a token */
};

/* One layer's cache and the batch that attends to it.  A slot is a place in the cache for the K and V of one token.
 * The n tokens of the batch are at positions pos, pos + 1... and in slots slot, slot + 1..., and slots 0 .. n_slot - 1
 * are filled.  slot is pos, except with kv.slot=overwritten. */
struct attended {
    const struct attn_plan *plan;
    double *k, *v;   /* (n_ctx, n_head_kv, k_dim), (n_ctx, n_head_kv, v_dim) */
    const float *sinks;   /* (n_head), or NULL */
    uint32_t n, pos, slot, n_slot;
};

/* The batch that a pass computes: n tokens, the first one at pos, whose K and V go to slot and the slots after it. */
struct batch { uint32_t n, pos, slot; };

/* What the function of a step gets. */
struct call {
    uint32_t il;
    struct batch b;
    const struct step *s;
    const struct layer_plan *layer;
    const struct affine *w;   /* the weight of the step, if it has one */
    const double *in;         /* (n, ...) as in enum step_kind */
    double *out;
    size_t n;                 /* elements of out */
};

/* ---- right steps that quirks use too ----------------------------------------------------------------------------- */

/* Row i of a weight, (n_in).  Valid until the next call. */
const float *reference_row(const struct reference *r, const struct weight *w, size_t i);
/* Returns x (n, n_in), the input of a product with w, as r->rounding rounds it: x itself, or scratch that is valid
 * until the next call. */
const double *reference_rounded(const struct reference *r, const struct weight *w, const double *x, size_t n);
/* sum of w_i x_i of n elements */
double reference_dot(const float *w, const double *x, uint32_t n);
/* The angle of pair i per position, without linear scaling.  width: n_rot, unless a mistake takes another one. */
double reference_frequency(const struct reference *r, uint32_t rope, uint32_t i, double width);
/* Rotates the first n_rot elements of x to a position, by the plan's rope of that index. */
void reference_rotate(const struct reference *r, uint32_t rope, double *x, double position);
double reference_score_divisor(const struct attn_plan *p);
/* What ALiBi subtracts from the score of a head.  distance: from the key to the query. */
double reference_alibi(const struct attn_plan *p, uint32_t head, double distance);
/* What becomes of the score of a head before the softmax: softcap and ALiBi. */
double reference_bend_score(const struct attn_plan *p, uint32_t head, double score, double distance);

void reference_tap(const struct reference *r, enum tap_id id, int32_t il, uint32_t pos, uint32_t n_token,
                   uint32_t n_head, uint32_t n, double *x);
/* Each of n rows of h (n, n_in) is the norm of x, times the weight, plus the bias. */
void reference_normalize(const struct reference *r, const struct affine *of, double eps, uint32_t n_in,
                         const double *x, uint32_t n, double *h);
/* An activation that needs no other numbers: all but ACT_SWIGLU_OAI and ACT_XIELU. */
double reference_activation(enum activation kind, double z);
/* activation(gate) * up, of one element; up is 1 without a gate.  limit: the plan's for this network */
double reference_activate(const struct reference *r, const struct ffn_plan *p, double limit, double gate, double up);
/* The values of a weight that the file has as F32. */
static inline const float *reference_floats(const struct weight *w) { return (const float *)(const void *)w->data; }

/* Steps of experts. */
void reference_softmax(struct reference *r, const struct call *c);
void reference_sigmoid(struct reference *r, const struct call *c);
void reference_best(struct reference *r, const struct call *c);
void reference_take(struct reference *r, const struct call *c);
void reference_sum_to_1(struct reference *r, const struct call *c);
void reference_experts(struct reference *r, const struct call *c);
void reference_adjugates(struct reference *r, const struct call *c);
void reference_gate_shared(struct reference *r, const struct call *c);

/* A right pass from now on. */
void reference_set_right(struct reference *r);

/* ---- the same steps with the mistakes of r->quirks --------------------------------------------------------------- */

/* A table of functions, so that a program which sets no quirks does not contain these steps. */
struct wrong_steps {
    const float *(*row)(const struct reference *r, const struct weight *w, size_t i);
    /* Called before the layers.  Returns the slot of the batch in the cache. */
    uint32_t (*begin)(struct reference *r, uint32_t n, uint32_t pos);
    /* Computes a wrong product and returns true, or returns false if the right product is to be computed. */
    bool (*projection)(const struct reference *r, const struct weight *w, const double *x, uint32_t n, double *y);
    /* Normalizes one row of n elements. */
    void (*norm)(const struct reference *r, double eps, const double *x, uint32_t n, double *h);
    /* By what an element is multiplied then, instead of by its weight. */
    double (*norm_weight)(const struct reference *r, double weight);
    /* The row of the learned positions for token t of the batch at pos. */
    uint32_t (*learned_position)(const struct reference *r, uint32_t pos, uint32_t t);
    /* Called before and after each step. */
    void (*before)(struct reference *r, const struct call *c);
    void (*after)(struct reference *r, const struct call *c);
    /* The first element of a head that is rotated. */
    uint32_t (*first_rotated)(const struct reference *r, const struct attn_plan *p);
    /* True if Q (is_q) or K is rotated at all. */
    bool (*rotates)(const struct reference *r, bool is_q);
    /* The position that the Q or K of token t of the batch at pos is rotated to; negative if angles are reversed. */
    double (*position)(const struct reference *r, uint32_t pos, uint32_t t, bool is_q);
    void (*attention_weights)(const struct reference *r, const struct attended *a, uint32_t n_key);
    void (*attention_values)(const struct reference *r, const struct attended *a, uint32_t n_key);
    /* Changes the scores (n_expert) by which the experts of a token are chosen. */
    void (*choose)(const struct reference *r, uint32_t n_expert, double *scores);
    /* Changes the experts that n tokens use, and their weights, (n, n_used) each. */
    void (*use)(const struct reference *r, const struct ffn_plan *p, uint32_t n, double *used, double *weights);
    void (*add_residual)(struct reference *r, const struct call *c);
    /* Limits one element of the gate and of the up projection. */
    void (*limit)(const struct reference *r, double limit, double *gate, double *up);
    /* Used if quirks.ffn_other_act is set. */
    double (*activation)(const struct reference *r, double z);
};

#endif

/* The internals of the reference pass: its state, and the functions of its steps.  A known mistake is an edit of the
 * plan, of the model or of these functions (mistakes/known.h). */
#ifndef PLUMB_REFERENCE_STEPS_H
#define PLUMB_REFERENCE_STEPS_H

#include "reference/reference.h"

#include <math.h>

struct reference;
struct attended;
struct call;

/* A batch that a pass is about to compute: n tokens, the first one at pos. */
struct prompt { struct layers layers; const int32_t *ids; uint32_t n, pos; };

/* The functions that the steps are made of. */
struct reference_steps {
    /* Called before and after each step; they may replace a stream. */
    void (*before)(struct reference *r, const struct call *c);
    void (*after)(struct reference *r, const struct call *c);
    /* The bytes of row i of a weight, and r->row (n_in) <- what they stand for. */
    const uint8_t *(*bytes)(const struct reference *r, const struct weight *w, size_t i);
    void (*dequantize)(const struct reference *r, const struct weight *w, const uint8_t *bytes);
    /* Returns x (n, n_in), the input of products with w, as an engine rounds it: x itself, or scratch that is valid
     * until the next call.  Rounds n rows of n_in elements of Q, K, V or (STREAM_HEADS) attention weights. */
    const double *(*input)(const struct reference *r, const struct weight *w, const double *x, size_t n);
    void (*heads)(const struct reference *r, enum stream of, double *x, size_t n, uint32_t n_in);
    /* y (n, n_out) = x (n, n_in) W^T; the same with factor, bias and limit, for steps of the kind STEP_PRODUCT */
    void (*linear)(const struct reference *r, const struct weight *w, enum weight_id id, const double *x, uint32_t n,
                   double *y);
    void (*product)(const struct reference *r, const struct affine *of, enum weight_id id, const double *x, uint32_t n,
                    double *y);
    /* Normalizes one row of n elements. */
    void (*norm)(const struct reference *r, double eps, const double *x, uint32_t n, double *h);
    /* By what an element is multiplied then, if this is its weight. */
    double (*norm_weight)(double weight);
    /* The token whose embedding is read for token t of a batch of n; an encoder reads its own. */
    int32_t (*token)(const int32_t *ids, uint32_t n, uint32_t t);
    /* The row of the learned positions, the slot in the cache, and the position to which Q (is_q) or K is rotated, of
     * token t of the batch at pos; t is 0 for the slot. */
    uint32_t (*learned_row)(const struct reference *r, uint32_t pos, uint32_t t);
    uint32_t (*slot)(const struct reference *r, uint32_t pos);
    double (*position)(const struct reference *r, uint32_t pos, uint32_t t, bool is_q);
    /* Whether Q (is_q) or K is rotated at all, and the first element of a head that is. */
    bool (*rotates)(bool is_q);
    uint32_t (*first_rotated)(const struct reference *r, const struct attn_plan *p);
    /* The angle of pair i of a rope per position, and the width by which its frequencies are computed. */
    double (*frequency)(const struct reference *r, uint32_t rope, uint32_t i, double width);
    uint32_t (*rope_width)(const struct plan *p, const struct rope_plan *rope);
    /* The head of K and V of query head h. */
    uint32_t (*kv_head)(const struct attn_plan *p, uint32_t h);
    /* Whether the token in slot `own` sees a slot, in a causal model without windows. */
    bool (*sees)(const struct attended *a, uint32_t own, uint32_t slot);
    /* Head g in a slot of the cache, of K as the query of token t reads it, of V. */
    const double *(*cached)(const struct reference *r, const struct attended *a, const double *cache, uint32_t dim,
                            uint32_t slot, uint32_t g);
    const double *(*key)(const struct reference *r, const struct attended *a, uint32_t t, uint32_t slot, uint32_t g);
    const double *(*value)(const struct reference *r, const struct attended *a, uint32_t slot, uint32_t g);
    /* The bucket of a distance. */
    uint32_t (*bucket)(const struct attn_plan *p, int32_t distance);
    /* What is subtracted from the score of a key at a distance. */
    double (*alibi)(const struct attn_plan *p, uint32_t head, double distance);
    /* e^max(score - max, least), where max is the largest score; how many scores of 0 take part in the sum, too */
    double (*exponential)(double score, double max, double least);
    double (*zeros)(void);
    /* r->weights (n, n_head, n_key) <- their softmax; r->attn (n, n_head, v_dim) <- the sums of V */
    void (*softmax)(const struct reference *r, const struct attended *a, uint32_t n_key);
    void (*values)(const struct reference *r, const struct attended *a, uint32_t n_key);
    /* An activation that needs no other numbers, and the limits of gate and up. */
    double (*activation)(enum activation kind, double z);
    void (*limit)(double limit, double *gate, double *up);
    /* By what experts are chosen, if this is their score; which of the two arrays has the weights of those used; the
     * expert that is computed for e, and the place of the weight for the expert at place k. */
    double (*choice)(double score);
    const double *(*weighed)(const double *probs, const double *biased);
    uint32_t (*expert)(uint32_t e, uint32_t n_expert);
    uint32_t (*weight_place)(uint32_t k, uint32_t n_used);
    /* Called before every batch; clears what layers keep between tokens before a text. */
    void (*begin)(struct reference *r, const struct prompt *p);
    /* The element of a kernel of n_conv for the token n_conv - 1 - j places before; after how many of the n tokens of a
     * batch the inputs end that a convolution keeps. */
    uint32_t (*kernel_place)(uint32_t j, uint32_t n_conv);
    uint32_t (*tail_end)(uint32_t n);
    /* The bias of dt, ln(1 + e^dt), by what a state is multiplied, and by what x is before it is added. */
    double (*dt_bias)(double bias);
    double (*softplus)(double dt);
    double (*decay)(double dt, double a);
    double (*fed)(double dt, double a, double b);
    /* The group of B and C of a head of a scan, and the head of Q and K of a head of V of a delta net. */
    uint32_t (*scan_group)(const struct scan_plan *p, uint32_t h);
    uint32_t (*key_head)(const struct delta_plan *d, uint32_t h);
    /* Whether Q, or K (is_k), of a delta net is divided by its length; what is subtracted from an element of V if the
     * state has `old` for K. */
    bool (*is_unit)(bool is_k);
    double (*recalled)(double old, double decay);
    /* The decay of column i of row j of a state, of those of all columns. */
    uint32_t (*decay_place)(uint32_t i, uint32_t j);
    /* What a state of lightning attention is multiplied by, and one of RWKV, of a number d. */
    double (*fade)(const struct plan *p, uint32_t il, uint32_t head);
    double (*wkv_fade)(enum rwkv_kind kind, double d);
    /* The element of the token before token t of a batch of n_token, in which it is *x and that of the next token
     * x[n]; *last is that of the last token before the batch. */
    double (*previous)(const double *last, const double *x, uint32_t t, uint32_t n_token, uint32_t n);
    double (*heads_eps)(const struct plan *p);   /* of the norms of RWKV's heads */
    /* The matrix of attn_k_b or attn_v_b (weight) that head h is multiplied by. */
    uint32_t (*head_matrix)(enum weight_id weight, uint32_t h, uint32_t n_head);
    /* The embeddings of layers: what the rows of the table and the sums with products are multiplied by, whether rows
     * are added before the norm of products, and whose part layer il uses. */
    double (*row_scale)(const struct plan *p);
    double (*row_sum_scale)(void);
    bool (*rows_first)(void);
    uint32_t (*own_part)(const struct plan *p, uint32_t il);
};

struct reference {
    const struct model *m;           /* right, or &edited if the pass is edited */
    const struct model *right;
    struct model edited;             /* a copy of *right with a table of layers of its own */
    struct program *programs;        /* (n_layer) of the edited layers */
    struct plan plan;                /* a copy of the model's */
    struct reference_steps steps, rounded_steps;   /* those of a pass without mistakes: they may round */
    uint8_t misread[QUANT_TYPE_COUNT];   /* by tensor type: enum misread (mistakes/known.h) */
    struct roundings rounding;       /* used by the functions of rounded_steps */
    double *rounded;                 /* (n_batch, plan_max_row) rounded inputs of a product; NULL until it is needed */
    uint32_t n_ctx, n_batch;
    uint64_t bytes;
    double *k, *v;                   /* (n_layer, n_ctx, n_head_kv, k_dim), (n_layer, n_ctx, n_head_kv, v_dim) */
    uint64_t n_state;                /* elements of state */
    double *state;                   /* what all layers keep between tokens */
    double **states;                 /* (n_layer) that of a layer, (plan_state_size) */
    uint32_t n_past;                 /* the tokens after which the states are */
    uint32_t n_encoded;              /* tokens of the encoder's text */
    double *streams[STREAM_COUNT];   /* (n_batch, n) each, see enum stream; K and V are places in the cache */
    double *x, *h, *q, *attn;        /* the streams STREAM_X, STREAM_H, STREAM_Q and STREAM_HEADS */
    /* For experts; NULL in a model without them. */
    double *masked;                  /* (n_expert) what the experts of a token are chosen by */
    double *gates;                   /* (n_batch) of the expert that every token uses */
    double *expert_row;              /* (n_embd) output of an adjugate */
    double *rows;                    /* (n_batch, plan_head_row) inputs and outputs of the products of heads */
    double *expert_rows;             /* (n_batch, n_used, plan_expert_row) inputs or outputs of all experts */
    uint32_t n_head_row;             /* elements of the longest vector after pooling */
    double *head;                    /* (2, n_head_row) two vectors between the steps after pooling */
    double *weights;                 /* (n_batch, n_head, n_ctx) scores, then attention weights, of a layer */
    double *frequencies[PLAN_ROPES]; /* (n_rot / 2) of each rope: the angle of a pair per position.  There is room for
                                      * k_dim, because a known mistake may change n_rot */
    float *row;                      /* scratch for one dequantized row of any weight */
    uint8_t *row_bytes;              /* scratch for a row of a weight, with the bytes of the file */
    uint8_t *other_row;              /* the same for a row of any tensor; only tensor.offset=shifted uses it */
    uint32_t n_prompt;               /* tokens of the run at position 0 */
    struct tap_sink sink;
    float *tapped;                   /* a tap's values in f32; NULL until a sink is set */
    void (*force)(void *user, const plumb_tap *tap, double *x);
    void *user;                      /* of force, and of edits of the steps */
    double *rotated;                 /* (n_ctx) the position that the K of a slot was rotated to */
    /* Used only by mistakes. */
    double *key, *zeros;             /* (k_dim) scratch for a K, and as many zeros as a K or V has elements */
    double *kept;                    /* (n_state) a copy of the state */
    double *fused;                   /* (max_q + max_k + max_v) scratch for the Q, K and V of a token */
    const struct adapter_set *adapters;   /* NULL: there are none */
    double *low_rank;                /* (n_batch, max_rank) products with A, also of adapters inside the file */
    double *logits;                  /* (n_batch, n_vocab) what they add to the logits; NULL: nothing */
    uint64_t adapt_bytes;            /* of both */
    uint32_t *switches;              /* (n_ctx) the adapters inside the file that tokens switch on; 0: none */
    uint32_t *adapter_of;            /* (n_batch) that of each token */
};

/* One layer's cache and the batch that attends to it.  A slot is a place in the cache for the K and V of one token.
 * The n tokens of the batch are at positions pos, pos + 1... and in slots slot, slot + 1..., and slots 0 .. n_slot - 1
 * are filled.  slot is pos, except with the mistake kv.slot=overwritten. */
struct attended {
    const struct attn_plan *plan;
    double *k, *v;   /* (n_ctx, n_head_kv, k_dim), (n_ctx, n_head_kv, v_dim) */
    const float *sinks;   /* (n_head), or NULL */
    const struct weight *buckets;   /* (n_bucket, n_head), or NULL */
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

extern const struct reference_steps reference_right_steps;

/* Row i of a weight, (n_in).  Valid until the next call. */
const float *reference_row(const struct reference *r, const struct weight *w, size_t i);
/* sum of w_i x_i of n elements */
double reference_dot(const float *w, const double *x, uint32_t n);
/* The right functions of struct reference_steps that mistakes use too. */
void reference_linear(const struct reference *r, const struct weight *w, enum weight_id id, const double *x, uint32_t n,
                      double *y);
void reference_product(const struct reference *r, const struct affine *of, enum weight_id id, const double *x,
                       uint32_t n, double *y);
double reference_frequency(const struct reference *r, uint32_t rope, uint32_t i, double width);
double reference_alibi(const struct attn_plan *p, uint32_t head, double distance);
const double *reference_cached(const struct reference *r, const struct attended *a, const double *cache, uint32_t dim,
                               uint32_t slot, uint32_t g);
void reference_values(const struct reference *r, const struct attended *a, uint32_t n_key);
double reference_activation(enum activation kind, double z);
double reference_unchanged(double x);
double reference_wkv_fade(enum rwkv_kind kind, double d);
double reference_previous(const double *last, const double *x, uint32_t t, uint32_t n_token, uint32_t n);
void reference_keep(struct reference *r, const struct prompt *p);   /* clears nothing */
const double *reference_weighed(const double *probs, const double *biased);
uint32_t reference_expert(uint32_t e, uint32_t n_expert);
uint32_t reference_weight_place(uint32_t k, uint32_t n_used);
/* Rotates the first n_rot elements of x to a position, by the plan's rope of that index. */
void reference_rotate(const struct reference *r, uint32_t rope, double *x, double position);

/* y (n, n_out) += what the adapters add to x W^T. */
void reference_adapt(const struct reference *r, const struct weight *w, const double *x, uint32_t n, double *y);
/* y (n, n_out) += what the adapters of the tokens, inside the file, add to x W^T. */
void reference_adapt_switched(const struct reference *r, const struct affine *of, const double *x, uint32_t n,
                              double *y);
/* Fills adapter_of for n tokens from pos on. */
void reference_choose_adapters(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos);
/* x (n, n_embd) += what they add to the embeddings of the tokens. */
void reference_adapt_embeddings(const struct reference *r, const int32_t *ids, uint32_t n, double *x);
/* At the end of layer il: adds the control vectors to the residual streams. */
void reference_adapt_layer(const struct reference *r, uint32_t il, uint32_t n);

void reference_tap(const struct reference *r, enum tap_id id, int32_t il, uint32_t pos, uint32_t n_token,
                   uint32_t n_head, uint32_t n, double *x);
/* Each of n rows of h (n, n_in) is the norm of x, times the weight, plus the bias. */
void reference_normalize(const struct reference *r, const struct affine *of, double eps, uint32_t n_in,
                         const double *x, uint32_t n, double *h);
/* activation(gate) * up, of one element; up is 1 without a gate.  limit: the plan's for this network */
double reference_activate(const struct reference *r, const struct ffn_plan *p, enum activation kind, double limit,
                          double gate, double up);
/* ln(1 + e^z), which is z where f32 cannot tell them apart, as in llama.cpp. */
static inline double reference_softplus(double z) { return z > 20 ? z : log1p(exp(z)); }
/* The values of a weight that the file has as F32. */
static inline const float *reference_floats(const struct weight *w) { return (const float *)(const void *)w->data; }

/* Steps of convolutions. */
void reference_convolve(struct reference *r, const struct call *c);
void reference_gate_conv(struct reference *r, const struct call *c);
/* Steps of delta nets. */
void reference_decay(struct reference *r, const struct call *c);
void reference_delta(struct reference *r, const struct call *c);
/* Steps of scans. */
void reference_softplus_step(struct reference *r, const struct call *c);
void reference_scan(struct reference *r, const struct call *c);

/* Steps of RWKV. */
void reference_shift(struct reference *r, const struct call *c);
void reference_lerp(struct reference *r, const struct call *c);
void reference_fade(struct reference *r, const struct call *c);
void reference_mix(struct reference *r, const struct call *c);
void reference_unit(struct reference *r, const struct call *c);
void reference_replace(struct reference *r, const struct call *c);
void reference_times(struct reference *r, const struct call *c);
void reference_bonus(struct reference *r, const struct call *c);
void reference_norm_heads(struct reference *r, const struct call *c);
void reference_wkv(struct reference *r, const struct call *c);

/* Steps of several residual streams. */
void reference_tanh(struct reference *r, const struct call *c);
void reference_predict(struct reference *r, const struct call *c);
void reference_correct(struct reference *r, const struct call *c);
void reference_first(struct reference *r, const struct call *c);
void reference_others(struct reference *r, const struct call *c);
void reference_split_streams(struct reference *r, uint32_t n_token);
void reference_merge_streams(struct reference *r, uint32_t n_token);

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
/* Must be called after edits: makes the programs of the layers and the frequencies anew. */
void reference_edited(struct reference *r);

#endif

/* The internals of the fast pass: forward.c has the layers and the steps of a dense one, experts.c the experts. */
#ifndef PLUMB_FORWARD_STEPS_H
#define PLUMB_FORWARD_STEPS_H

#include "base/math.h"
#include "forward/attention.h"
#include "forward/forward.h"

/* Scratch for the experts of a layer.  NULL in a model without experts. */
struct expert_scratch {
    float *masked;     /* (n_expert) what the experts of a token are chosen by, without those of other groups */
    uint32_t *tokens;  /* (n_token) those that use the expert that is being computed */
    float *x, *y;      /* (n_token, plan_expert_row) the expert's inputs and outputs */
    float *gates;      /* (n_token) of the shared expert, before the sigmoid */
    /* (n_token, n_used, n) what the taps from TAP_EXPERT_GATE on show, collected over all experts.  NULL until a sink
     * is set. */
    float *shown[TAP_EXPERT_WEIGHTED - TAP_EXPERT_GATE + 1];
};

/* What is known of a layer with a state. */
struct layer_state {
    size_t first;    /* where its state begins in that of a sequence */
    float *kernel;   /* (n_conv, plan_conv_width) the kernels with their rows as columns; NULL: it has none */
};

struct forward {
    const struct model *model;
    struct kernels kernels;
    struct attention_kernels attention_kernels;
    struct pool *pool;
    uint32_t n_ctx, n_batch;
    uint64_t bytes;
    plumb_kv_type kv_type;
    struct attention *attention;
    /* cos and sin of the angles of each of the plan's ropes: (n_ctx, n_rot / 2) each, filled for the first n_rope
     * positions.  They depend only on the position, so all sequences share them. */
    float *rope_cos[PLAN_ROPES], *rope_sin[PLAN_ROPES];
    double *rope_angles;   /* (n_rot / 2) scratch */
    uint32_t n_rope;
    /* Scratch for a batch. */
    float *streams[STREAM_COUNT];   /* (n_token, n) each, see enum stream; NULL if no program uses it */
    float *x, *norm; /* the streams STREAM_X and STREAM_H */
    float *rows;                    /* (n_token, plan_head_row) scratch for the products of heads; or NULL */
    struct expert_scratch experts;
    struct layer_state *states;     /* (n_layer) */
    float **biases;                 /* (n_layer) those of attention_run, of attn_rel_b; NULL: there are none */
    struct piece *pieces;  /* (n_token) those of the batch */
    uint32_t *positions;   /* (n_token) */
    int32_t *ids;          /* (n_token) */
    float *own_row;  /* (n_layer, n_per_layer) embeddings of a token, scratch; NULL: the model has none */
    float *head;     /* (2, plan_max_head) two vectors between the steps after pooling */
    struct tap_sink sink;
    /* (n_token, n_head, pos + n_token), with room for (n_batch, n_head, n_ctx): the attention weights of a layer, for
     * taps only.  NULL until a sink is set. */
    float *tapped;
    uint32_t n_tapped;     /* n_ctx when it was allocated */
    struct activations acts;   /* the input of the products that are being computed, with its codes */
    struct panel *panels;      /* one per thread */
    const struct adapter_set *adapters;   /* borrowed; NULL: there are none */
    float *low_rank, *delta;   /* scratch for their products, and for those of adapters inside the file: (n_token,
                                * max_rank), (ADAPT_TOKENS, max_out) */
    uint64_t n_low_rank, n_delta;   /* elements of both */
    uint32_t *adapter_of;      /* (n_token) the adapter inside the file that a token uses; NULL: there are none */
    bool lacks_base;           /* number 0 adds nothing, as in all published models */
};

/* The batch that a pass computes: n tokens, of n_piece pieces, one after the other.  pos: the position of the first
 * one. */
struct batch {
    uint32_t n, pos;
    const struct piece *pieces;
    uint32_t n_piece;
};

/* One product y (n_token, n_out) = x W^T s + b.  Its tap shows y as (n_token, n_head, n_out / n_head); TAP_COUNT: no
 * tap shows it. */
struct product {
    enum tap_id tap;
    const struct affine *of;
    float *y;
    uint32_t n_head;
    bool scale_last;   /* the factor multiplies W x + b, not W x */
    float clamp;       /* y is clamped to -clamp .. clamp; 0: it is not */
};

/* What the function of a step gets. */
struct call {
    uint32_t il;
    struct batch b;
    const struct step *s;
    const struct layer_plan *layer;
    const struct affine *w;   /* the weight of the step, if it has one */
    const float *in;          /* (n_token, ...) as in enum step_kind */
    float *out;
    size_t n;                 /* elements of out */
    uint32_t begin, end;      /* the tokens to compute: all, those of a piece, or a share of them for steps that threads
                               * share */
    const struct piece *piece;   /* of steps that compute the pieces one after the other */
};
/* Elements of a token in out, and the first element and the end of those tokens. */
static inline size_t call_each(const struct call *c) { return c->n / c->b.n; }
static inline size_t call_begin(const struct call *c) { return c->begin * call_each(c); }
static inline size_t call_end(const struct call *c) { return c->end * call_each(c); }

/* What the tokens of a call cost a loop that advances a state of n elements by each (pool.h). */
static inline uint64_t call_cost(const struct call *c, uint64_t n) { return (c->end - c->begin) * n * POOL_ELEMENT; }

/* The state of the layer in the sequence of the piece. */
static inline float *call_state(const struct forward *f, const struct call *c) {
    return c->piece->sequence->state + f->states[c->il].first;
}

/* Whether token t is the first one of its sequence, before which states are zeros. */
static inline bool begins_text(const struct call *c, uint32_t t) { return t == c->begin && c->piece->pos == 0; }

/* Tells the sink of x: (n_token, n_head, n).  The taps from TAP_EXPERT_GATE to TAP_EXPERT_WEIGHTED are of the tokens
 * in f->experts.tokens, and wait in f->experts.shown for those of other experts.  Does nothing for TAP_COUNT. */
void forward_tap(const struct forward *f, enum tap_id id, int32_t il, uint32_t pos, uint32_t n_token, uint32_t n_head,
                 uint32_t n, const float *x);
/* Each row of y (n_row, n) = x / sqrt(mean(x^2) + eps) * w + b, see forward.c. */
void forward_normalize(const struct forward *f, const struct affine *of, float eps, uint32_t n, const float *x,
                       uint32_t n_row, float *y);
/* y (n_token, n_out) += what the adapters add to x W^T. */
void forward_adapt(struct forward *f, const struct weight *w, const float *x, uint32_t n_token, float *y);
/* y (n_token, n_out) += what the adapters of the tokens, inside the file, add to x W^T. */
void forward_adapt_switched(struct forward *f, const struct affine *of, const float *x, uint32_t n_token, float *y);
/* Whether adapter 0 adds nothing to any product: its lora_b are zeros. */
bool forward_lacks_base(const struct model *m);
/* Fills adapter_of for the tokens of a batch, whose ids become those of the tokens whose embeddings they have. */
void forward_choose_adapters(struct forward *f, struct batch b);
/* x (n_token, n_embd) += what they add to the embeddings of the tokens. */
void forward_adapt_embeddings(struct forward *f, const int32_t *ids, uint32_t n_token, float *x);
/* At the end of layer il: adds the control vectors to the residual streams. */
void forward_adapt_layer(struct forward *f, uint32_t il, uint32_t n_token);
/* Computes n products of the same x (n_token, n_in), in one loop over the threads. */
void forward_multiply(struct forward *f, const float *x, uint32_t n_token, int32_t il, uint32_t pos,
                      const struct product *p, uint32_t n);
/* gate (n_token, n_ff) <- activation(gate) * up, see forward.c.  limit: as in the plan. */
void forward_activate(const struct forward *f, uint32_t il, enum activation activation, float limit, float *gate,
                      float *up, uint32_t n_token, uint32_t n_ff);

/* Some rows of the state of a head, and some tokens of a batch.  What is computed for the first rows can be kept in
 * decay (STATE_TOKENS) for the other rows of the head with the same tokens. */
struct state_rows { uint32_t head, first, n, begin, end; float *decay; };
enum { STATE_TOKENS = 32 };
/* Calls run for all rows of the heads begin .. end - 1 and the tokens of the call.  A few rows stay in the cache for
 * STATE_TOKENS tokens; a row sees the tokens in order. */
void forward_states(void *mixer, uint32_t begin, uint32_t end, uint32_t n_row, const struct call *c,
                    void (*run)(void *mixer, struct state_rows rows));

/* Steps of convolutions. */
void forward_convolve(struct forward *f, const struct call *c);
void forward_gate_conv(struct forward *f, const struct call *c);
/* Steps of delta nets. */
void forward_decay(struct forward *f, const struct call *c);
void forward_delta(struct forward *f, const struct call *c);

/* Steps of scans. */
void forward_softplus(struct forward *f, const struct call *c);
void forward_scan(struct forward *f, const struct call *c);

/* Steps of RWKV. */
void forward_shift(struct forward *f, const struct call *c);
void forward_lerp(struct forward *f, const struct call *c);
void forward_fade(struct forward *f, const struct call *c);
void forward_mix(struct forward *f, const struct call *c);
void forward_unit(struct forward *f, const struct call *c);
void forward_replace(struct forward *f, const struct call *c);
void forward_times(struct forward *f, const struct call *c);
void forward_bonus(struct forward *f, const struct call *c);
void forward_wkv(struct forward *f, const struct call *c);

/* Steps of several residual streams: the first is x.  The streams beside it begin as products of x, and in the end
 * their products and x are averaged in x. */
void forward_tanh(struct forward *f, const struct call *c);
void forward_predict(struct forward *f, const struct call *c);
void forward_correct(struct forward *f, const struct call *c);
void forward_first(struct forward *f, const struct call *c);
void forward_others(struct forward *f, const struct call *c);
void forward_split_streams(struct forward *f, struct batch b);
void forward_merge_streams(struct forward *f, struct batch b);

/* Steps of experts. */
void forward_sigmoid(struct forward *f, const struct call *c);
void forward_best(struct forward *f, const struct call *c);
void forward_take(struct forward *f, const struct call *c);
void forward_sum_to_1(struct forward *f, const struct call *c);
void forward_experts(struct forward *f, const struct call *c);
void forward_adjugates(struct forward *f, const struct call *c);
void forward_gate_shared(struct forward *f, const struct call *c);

/* ln(1 + e^z), which is z where f32 cannot tell them apart. */
static inline double softplus(double z) { return z > 20 ? z : math_log(1 + math_exp(z)); }

static inline struct matrix matrix_of(const struct weight *w) {
    return (struct matrix) { w->type, w->n_in, w->n_out, w->n_packed, w->data, w->row_bytes };
}

static inline const float *weight_floats(const struct weight *w) { return (const float *)(const void *)w->data; }

#endif

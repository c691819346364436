/* The program of a layer: a short list of steps that read and write streams.  program.c writes it, from the plan and
 * the weights that the file has; the fast pass and the reference pass each are a loop over it.
 *
 * A layer of Llama is:
 *
 *   h = norm(attn_norm, x)         tap attn_norm
 *   q = attn_q h                   tap Qcur
 *   k = attn_k h                   tap Kcur
 *   v = attn_v h                   tap Vcur
 *   q = rope(q)                    tap Qcur_rope
 *   k = rope(k)                    tap Kcur_rope
 *   heads = attention(q, k, v)     tap kqv_out
 *   h = attn_output heads          tap attn_out
 *   x += h                         tap ffn_inp
 *   h = norm(ffn_norm, x)          tap ffn_norm
 *   gate = ffn_gate h              tap ffn_gate
 *   up = ffn_up h                  tap ffn_up
 *   gate = activation(gate) * up   tap ffn_swiglu
 *   h = ffn_down gate              tap ffn_out
 *   x += h                         tap l_out
 */
#ifndef PLUMB_MODEL_PROGRAM_H
#define PLUMB_MODEL_PROGRAM_H

#include "model/plan.h"
#include "model/tap.h"

struct model;

/* Shapes are those of struct step, for each token. */
enum stream {
    STREAM_X,                  /* (n_embd) the residual stream */
    STREAM_H,                  /* (n_embd) what is computed of x, before it is added to x */
    STREAM_INPUT,              /* (n_embd) the input of the layer, or its norm */
    STREAM_EMBD,               /* (n_embd) the embeddings */
    STREAM_LOW, STREAM_HIGH,   /* (n_embd) the states of HRM */
    STREAM_SUM, STREAM_SHARED, /* (n_embd) the sum of the experts, and the output of the one that every token uses */
    STREAM_Q, STREAM_K, STREAM_V,   /* (n_head, k_dim), (n_head_kv, k_dim), (n_head_kv, v_dim) */
    STREAM_KEPT_K, STREAM_KEPT_V,   /* K and V of the layer plan_kept, of all texts of a batch */
    STREAM_ENCODED,            /* (n_embd) the output of the encoder, for its tokens; a pass computes what reads it once
                                * for all tokens of the decoder */
    STREAM_HEADS,              /* (n_head, v_dim) weighted sums of V */
    /* Latent attention: (n_q) what Q is a product of; (n_head, n_plain + n_rotated) Q; (n_kv + n_rotated) what K and V
     * are made of; (n_kv) its norm; (n_head, n_plain + v_dim) K and V; (n_head, n_kv) weighted sums. */
    STREAM_LATENT_Q_A, STREAM_LATENT_Q, STREAM_LATENT_KV, STREAM_LATENT, STREAM_LATENT_KV_B, STREAM_LATENT_HEADS,
    STREAM_CONV_IN,            /* conv_in h: (3, n_embd), whose rows are called b, c and x, or (1, plan_conv_width) */
    STREAM_CONV,               /* (plan_conv_width) what a convolution makes of it */
    STREAM_BETA, STREAM_DECAY, /* (n_head) of a delta net; decays may be (n_head, dim) */
    STREAM_BETA_DECAY,         /* (n_key_head, 2, n_head / n_key_head) both in one, for each head of Q and K */
    STREAM_SCAN_IN,            /* (plan_scan_in) ssm_in h */
    STREAM_Z,                  /* (n_head, dim) gates of a scan */
    STREAM_BCDT,               /* (n_rank + 2 n_state) ssm_x conv: B, C and rank, or rank, B and C */
    STREAM_RANK,               /* (n_rank) what dt is made of; between the matrices of a product of low rank */
    STREAM_B, STREAM_C,        /* (n_group, n_state) of a scan */
    STREAM_DT,                 /* (n_head) steps of time */
    STREAM_SCAN,               /* (n_head, dim) what a scan computes */
    STREAM_SHIFT,              /* (n_embd) the input of the token before, less that of the token */
    STREAM_MIXED,              /* (n_embd) a mixture of both */
    STREAM_LERPS,              /* (RWKV_LERPS, n_embd) the parts of the factors of mixtures that depend on the token */
    STREAM_FADE,               /* (1, n_head k_dim) what the columns of a state of RWKV are multiplied by */
    STREAM_MIX, STREAM_RATE,   /* (n_embd) how much of V that of layer 0 replaces; in-context learning rates */
    STREAM_KEY, STREAM_VALUE, STREAM_FIRST_VALUE,   /* K and V of RWKV and other linear attention, as Q, K and V
                                                     * above; V of layer 0 */
    STREAM_REMOVAL,            /* (n_head, k_dim) the key of what is removed from a state */
    STREAM_BONUS,              /* (n_head, v_dim) what a token adds to its own output */
    STREAM_Q_GATE,             /* (n_head, 2, k_dim) heads of Q, each with its gate */
    STREAM_QKV,                /* (n_head, 3, k_dim) heads of Q, each with those of K and V */
    STREAM_GATES,              /* (n_head, v_dim) or (n_head, 1): attn_gate h */
    STREAM_FF_GATE, STREAM_FF_UP,   /* (n_ff) or (n_ff_shared) */
    STREAM_OTHERS,             /* (n_stream - 1, n_embd) the residual streams beside x */
    STREAM_PREDICTED,          /* (n_stream, n_embd) their predictions, and then what corrects them */
    STREAM_MODES, STREAM_COEFS, STREAM_FACTORS,   /* (n_stream), (n_stream, n_stream), (n_stream) */
    STREAM_NARROW,             /* (n_narrow) a narrow row */
    STREAM_NARROW_SUM,         /* (n_narrow) the sum of experts that read one */
    STREAM_PER_LAYER,          /* (n_layer, n_per_layer) the embeddings of all layers */
    STREAM_OWN,                /* (n_per_layer) what a layer makes of its own */
    STREAM_SCORES, STREAM_CHOICE,   /* (n_expert) of the router; what experts are chosen by, if that is not the same */
    STREAM_USED, STREAM_WEIGHTS,    /* (n_used) the numbers of the experts, the best one first; their weights */
    STREAM_COUNT
};

enum step_kind {
    STEP_NORM,          /* out = norm(weight, in), over n_norm elements each */
    STEP_PRODUCT,       /* out = weight in */
    STEP_COPY,          /* out = in */
    STEP_SHOW,          /* shows out, where a step is absent whose tap is always there */
    STEP_SCALE,         /* out = in * factor */
    STEP_MULTIPLY,      /* out = in * weight, element by element, or its only element */
    STEP_TANH,          /* out = tanh(in) */
    STEP_PREDICT,       /* out = the streams x and others, plus products of them with the coefficients of in */
    STEP_CORRECT,       /* out += (x - out[0]) * (1 + in), for each stream of out */
    STEP_FIRST,         /* out = in[0] */
    STEP_OTHERS,        /* out = in[1], in[2] ... + h */
    STEP_SPARSE,        /* out = what of out is far above its mean */
    STEP_OWN,           /* out *= the layer's own part of in */
    STEP_DIVIDE,        /* out = in / weight, element by element */
    STEP_ADD,           /* out += in * factor; weight: the matrix that in is the output of, or W_COUNT */
    STEP_ADD_SCALED,    /* out += in * weight[0] */
    STEP_ADD_BIAS,      /* out = in + weight */
    STEP_ADD_STATES,    /* out = low + high */
    STEP_ROPE,          /* rotates the heads of out, from their element `first` on */
    STEP_TEMPERATURE,   /* multiplies out by the temperature of the position */
    STEP_ATTENTION,     /* out = attention(q, k, v) */
    STEP_PART,          /* of each n_to elements of out, n_norm ones from `to` on = of each n_from of in, those from
                         * `first` on */
    STEP_HEAD_PRODUCTS, /* the first elements of each head of out = the weight of the head times those of in */
    STEP_CONVOLVE,      /* out = the convolution of in, or of b x, over the last tokens, with weight; with W_CONV_Q, and
                         * W_CONV_K and W_CONV_V behind it */
    STEP_DECAY,         /* out = a * softplus(out + weight), or least_decay * sigmoid(a * (out + weight)) */
    STEP_SOFTPLUS,      /* out = ln(1 + e^out) */
    STEP_SCAN,          /* out = the scan of x, which in begins with, by b, c and dt */
    STEP_DELTA,         /* out = the delta rule for the Q, K and V of in, with beta and decay */
    STEP_SHIFT,         /* out = in of the token before - in; its place in the state begins at `first` */
    STEP_LERP,          /* out = in + shift * f; f: weight from `first` on, plus lerps from `to` on if n_to > 0 */
    STEP_FADE,          /* out = by what RWKV multiplies the columns of its states, a function of out, or constants */
    STEP_MIX,           /* out += (in - out) * mix */
    STEP_UNIT,          /* divides n_norm elements of out each by their length */
    STEP_REPLACE,       /* out *= 1 + (in - 1) * weight */
    STEP_BONUS,         /* out = value * sum(in * q * weight), for each head */
    STEP_WKV,           /* out = what q reads of the states of RWKV, into which in, key and value are written */
    STEP_NORM_HEADS,    /* out = layer norm(weight, in), over n_norm elements each, in a model of any norms */
    STEP_TIMES,         /* out *= in */
    STEP_GATE_CONV,     /* out *= c; in: b, c and x */
    STEP_GATE_HEADS,    /* out *= the sigmoid or softplus of in */
    STEP_ACTIVATE,      /* out = activation(out) * in, or activation(out) if in is out */
    STEP_SOFTMAX,       /* out = softmax(in), over all elements of a token */
    STEP_SIGMOID,       /* out = sigmoid(in) */
    STEP_BEST,          /* out = the indices of the largest of in, within the best groups */
    STEP_TAKE,          /* out = in at the indices in used */
    STEP_SUM_TO_1,      /* divides out by its sum */
    STEP_EXPERTS,       /* out = the experts in used for in, times weights */
    STEP_ADJUGATES,     /* out += the adjugates of the experts in used for in */
    STEP_GATE_SHARED,   /* out *= sigmoid(weight in) */
    STEP_KINDS
};

/* The shape of out for each token is (n_head, n).  tap: shows out after the step; TAP_COUNT: none does.  Attention,
 * experts and the gate of a shared expert have further taps inside. */
struct step {
    enum step_kind kind : 8;
    enum stream in : 8, out : 8;
    enum weight_id weight : 8;   /* W_COUNT: none */
    enum tap_id tap : 8;
    enum activation activation : 8;
    uint32_t n_head, n, n_norm, first, n_from, to, n_to;
    bool is_shared;     /* of STEP_PART: in has a single part, for all of out */
    float factor;
};

enum { PROGRAM_MAX_STEPS = 72 };

struct program { struct step steps[PROGRAM_MAX_STEPS]; uint32_t n; };

/* The program of layer il.  m: has the weights; a step whose weight is absent is left out. */
struct program program_of(const struct plan *p, const struct model *m, uint32_t il);

/* A program that is being written. */
struct maker;
/* Writes the steps of a layer; a row of the table of architectures names one of these. */
typedef void steps_writer(struct maker *m);
/* Attention, or what is instead of it, and then feed forward, or both in parallel, with norms before, after and behind
 * the sums. */
steps_writer steps_block;
/* Norms only after attention and feed forward, which reads what attention's norm returns. */
steps_writer steps_norms_after;
/* The router reads the input of the layer, before attention. */
steps_writer steps_router_first;
/* The experts read a norm of the layer's input, before attention. */
steps_writer steps_experts_first;
/* The embeddings are added at the end. */
steps_writer steps_add_embeddings;
/* One norm, and then what tokens tell each other or a feed-forward network, not both. */
steps_writer steps_one;
/* The embedding that a token has for each layer is added at the end, and then a factor may follow. */
steps_writer steps_per_layer;
/* Several residual streams are predicted before, and corrected after what a block computes. */
steps_writer steps_altup;
/* T5's: a layer is a block, or attention alone; the norm of the encoder's output comes after its last one. */
steps_writer steps_encoder_decoder;
/* What is computed of a norm is added to that norm, times the factor of the residual. */
steps_writer steps_from_norm;
/* The norm of the output ends a loop of blocks, and a state may be stored then. */
steps_writer steps_loop;

bool program_equals(const struct program *a, const struct program *b);

/* The set of streams that a step reads. */
id_set step_reads(const struct step *s);
/* The steps before step `end` on which the streams at that place depend, as a set: bit i is step i. */
id_set program_needs(const struct program *program, uint32_t end, id_set streams);
/* The steps for the K and V of a layer, as a set: those before attention on which they depend.  *attention becomes the
 * index of attention. */
id_set program_kv(const struct program *program, uint32_t *attention);
/* How many steps from step i on are products of the same stream, at most `most`; 1 if it is no product. */
uint32_t program_products(const struct program *program, uint32_t i, uint32_t most);
/* The taps of the steps of a layer and those inside them, as a set. */
id_set program_taps(const struct program *program, const struct model *m, uint32_t il);
/* The taps that a tap of a layer is computed from, as a set.  TAP_L_OUT: the residual stream at the layer's begin. */
id_set program_inputs(const struct program *program, const struct model *m, uint32_t il, enum tap_id id);

#define STREAM_SET(stream) ID_SET(STREAM_##stream)

#endif

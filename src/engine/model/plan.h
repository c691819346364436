/* The plan of a model: what each layer computes, with its numbers, and which weights it needs.  A row of the tables
 * in architecture.h and the keys of the file make it.  The fast pass and the reference pass each walk it, and they know
 * no names of architectures.
 *
 * What a layer computes is its program: see program.h.
 */
#ifndef PLUMB_MODEL_PLAN_H
#define PLUMB_MODEL_PLAN_H

#include "base/id_set.h"
#include "gguf/gguf.h"

/* Which two elements of a head RoPE rotates together. */
enum rope_pairing {
    ROPE_NORM,  /* (2i, 2i+1): the RoFormer paper; ggml's NORMAL */
    ROPE_NEOX,  /* (i, i + n_rot/2): GPT-NeoX, and most models whose converters do not permute Q and K */
};

enum activation {
    ACT_SILU,       /* z / (1 + e^-z) */
    ACT_GELU_TANH,  /* z / 2 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) */
    ACT_RELU,       /* max(z, 0) */
    ACT_RELU_SQR,   /* max(z, 0)^2 */
    ACT_SWIGLU_OAI, /* z / (1 + e^(-1.702 z)) (up + 1): gpt-oss */
    ACT_XIELU,      /* of ffn.xielu: a z^2 + beta z if z > 0, else b (e^min(z, eps) - 1 - z) + beta z.  Huang et al.
                     * 2024, "Deriving Activation Functions Using Integration" */
};

enum norm_kind {
    NORM_RMS,     /* x / sqrt(mean(x^2) + eps) */
    NORM_LAYER,   /* (x - mean) / sqrt(variance + eps) */
};

struct rope_plan {
    enum rope_pairing pairing;
    uint32_t n_rot;      /* the first n_rot elements of a head are rotated; even, <= k_dim */
    float freq_base;     /* theta */
    float freq_scale;    /* positions are multiplied by it (linear scaling: 1 / factor) */
    float magnitude;     /* cos and sin are multiplied by it */
    bool has_factors;    /* frequencies are divided by the elements of rope_freqs or rope_factors_long or _short */
    /* YaRN (Peng et al. 2023): pairs up to ramp_low are not scaled by freq_scale, those from ramp_high on are, and
     * those between partly. */
    bool is_yarn;
    float ramp_low, ramp_high;
    /* Of each sum of the sections, the pairs of the first three have the position of the token, and the others stay as
     * they are (Wang et al. 2024, "Qwen2-VL").  All 0: all pairs are rotated. */
    uint32_t sections[4];
    bool sections_interleaved;
};

/* Whether RoPE rotates pair i of a text. */
bool plan_rope_rotates(const struct rope_plan *r, uint32_t i);
/* What YaRN multiplies the frequency of pair i by, beside freq_scale: 1, or up to 1 / freq_scale. */
double plan_yarn_factor(const struct rope_plan *r, uint32_t i);

/* What the norms of Q and K are computed over, and when. */
enum qk_norm {
    QK_NORM_HEAD,         /* each head, before RoPE */
    QK_NORM_HEAD_ROPED,   /* each head, after RoPE */
    QK_NORM_ROW,          /* all heads of a token together, before RoPE */
    QK_NORM_HEADS,        /* each head, before RoPE, with weights of its own */
    QK_NORM_GAIN_ROPED,   /* each head, after RoPE, with one factor for each head */
};

/* By what the outputs of the heads are multiplied before attn_output: a function of attn_gate x, where x is the input
 * of attention. */
enum attn_gate { ATTN_GATE_NONE, ATTN_GATE_SIGMOID, ATTN_GATE_SOFTPLUS, ATTN_GATE_SILU };

/* Latent attention: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.  K and V of a token are products of a vector of n_kv
 * elements, beside the part of K that RoPE rotates, which all heads share.  Absorbed (its section 2.1.2), the head of K
 * and V is that vector, and attn_k_b and attn_v_b are applied to Q and to the outputs of the heads. */
struct latent_plan {
    uint32_t n_q;            /* Q is a product of a vector of n_q elements; 0: of the input of attention */
    uint32_t n_kv;           /* 0: attention is not latent */
    uint32_t n_plain;        /* elements of a head of Q and K that are not rotated; those behind them are */
    uint32_t n_rotated;
    uint32_t v_dim;          /* elements of a head of V, before they are absorbed */
    bool is_absorbed;
};

struct attn_plan {
    struct latent_plan latent;
    uint32_t n_head, n_head_kv;   /* n_head_kv divides n_head */
    uint32_t k_dim, v_dim;        /* elements of a head of Q and K, and of V */
    uint32_t rope;                /* index of the plan's ropes; ROPE_NONE: Q and K are not rotated */
    enum qk_norm qk_norm;         /* used if the layer has norms of Q and K */
    uint32_t window;              /* a token attends to itself and the window - 1 tokens before it; 0: to all of them */
    bool is_chunked;              /* instead the window begins at the last multiple of `window` */
    bool is_symmetric;            /* instead it attends to the tokens at most window / 2 before and after it */
    float scale;                  /* scores are multiplied by it; 0: by 1 / sqrt(k_dim) */
    float softcap;                /* then scores become softcap * tanh(scores / softcap); 0: they stay */
    float alibi;                  /* then a slope times the distance is subtracted, see plan_alibi_slope; 0: nothing */
    bool is_causal;               /* a token does not attend to the tokens after it */
    bool reads_encoder;           /* K and V are products of the encoder's output, and a token attends to all of it */
    uint32_t n_bucket;            /* then the number of attn_rel_b for the distance's bucket is added, see plan_bucket;
                                   * 0: nothing */
    /* If temperature_floor is not 0, Q is multiplied by 1 + temperature_scale * ln(1 + floor((position +
     * temperature_offset) / temperature_floor)): Llama 4 and Mistral, 2025. */
    uint32_t temperature_floor;
    float temperature_scale;
    uint32_t temperature_offset;
    enum attn_gate gate;
    bool gate_per_head;           /* one number for each head, not for each element */
    bool gate_in_q;               /* the rows of a head of Q are followed by those of its gate */
    float output_scale;           /* the output of attention is multiplied by it; 0: it is not */
};

/* Whether slot is in the window, or chunk, of the token in slot `own`, whatever else hides it.  All are without one.
 * Beltagy et al. 2020, "Longformer", section 3.1; chunks: Llama 4, 2025; symmetric windows: Warner et al. 2024,
 * "ModernBERT", section 2.1.2 */
static inline bool plan_window_has(const struct attn_plan *a, uint32_t own, uint32_t slot) {
    uint32_t distance = slot < own ? own - slot : slot - own;
    if (a->window == 0) return true;
    if (a->is_symmetric) return distance <= a->window / 2;
    return slot >= own || (a->is_chunked ? slot >= own - own % a->window : distance < a->window);
}

/* Whether the norms of Q and K come after RoPE. */
static inline bool plan_norms_roped(const struct attn_plan *a) {
    return a->qk_norm == QK_NORM_HEAD_ROPED || a->qk_norm == QK_NORM_GAIN_ROPED;
}

/* How the scores of a router become the weights of the experts that are used. */
enum gating {
    GATING_SOFTMAX = 1,       /* a softmax over all experts; the weights of those used are its values */
    GATING_SIGMOID = 2,       /* 1 / (1 + e^-z) of each */
    GATING_SOFTMAX_USED = 3,  /* a softmax over the experts that are used */
};

enum { PLAN_MAX_GROUPS = 64, PLAN_MAX_EXPERTS = 512 };   /* as in llama.cpp */

struct ffn_plan {
    uint32_t n_ff;
    enum activation activation;   /* of the gate or, without a gate, of the up projection */
    /* Experts; n_expert is 0 in a layer without them. */
    uint32_t n_expert, n_used, n_ff_expert;
    uint32_t n_ff_shared;         /* of the expert that every token uses beside the others; 0: there is none */
    enum gating gating;
    bool weights_sum_to_1;        /* weights are divided by their sum */
    float weights_scale;          /* then they are multiplied by it */
    bool weights_first;           /* an expert's input, not its output, is multiplied by its weight */
    struct { float a, b, beta, eps; } xielu;
    /* SwiGLU with min(gate, limit) and up within -limit .. limit, in the experts and in other networks; 0: there is no
     * limit. */
    float limit, limit_shared;
    bool limit_late;              /* min(silu(gate), limit) instead */
    /* A gate becomes max(gate - mean - sparsity * deviation, 0), over its n_ff elements; 0: it stays.  Google 2025,
     * "Gemma 3n" */
    float sparsity;
    float output_scale;           /* the sum of all experts is multiplied by it; 0: it is not */
    /* Adjugate experts (Wu et al. 2025, "GroveMoE"), each shared by n_expert / n_adjugate experts: those of the experts
     * that are used are applied to their sum, and their own sum times adjugate_scale is added to it. */
    uint32_t n_adjugate, n_ff_adjugate;
    float adjugate_scale;
    uint32_t n_group, n_group_used;   /* if n_group > 1, only experts of the n_group_used best groups can be used */
};

/* How one vector is made of the embeddings of all tokens, which are what the norm after the last layer returns. */
struct pooling_plan {
    plumb_pooling kind;           /* what the file says */
    /* PLUMB_POOLING_RANK: cls, tanh, cls.norm and cls.output, those that there are, of what another pooling gives. */
    plumb_pooling rank_of;
    bool rank_gelu;               /* GELU instead of tanh */
    bool rank_softmax;            /* a softmax over the result */
    uint32_t n_hidden, n_class;   /* rows of cls and of cls.output */
    uint32_t n_dense;             /* rows of dense_2 and columns of dense_3, which follow the other kinds of pooling */
};

/* The two states of HRM (Wang et al. 2025, "Hierarchical Reasoning Model"). */
enum state { STATE_NONE, STATE_LOW, STATE_HIGH, PLAN_STATES };

/* By what the tokens of a layer tell each other.  MIXER_BOTH: attention and a scan, of the same input; MIXER_NONE: by
 * nothing, the layer is a feed-forward network. */
enum mixer {
    MIXER_ATTENTION, MIXER_CONVOLUTION, MIXER_DELTA_NET, MIXER_SCAN, MIXER_BOTH, MIXER_RWKV, MIXER_LIGHTNING, MIXER_NONE
};

/* Gated delta net: Yang et al. 2024, "Gated Delta Networks".  Head h of V has a state of (dim, dim), and the Q and K of
 * head h % n_key_head or, if groups of heads share them, of head h / (n_head / n_key_head).  Kimi Delta Attention (Kimi
 * Team 2025, "Kimi Linear", section 3) decays each column of a state by itself. */
struct delta_plan {
    uint32_t n_key_head, n_head, dim;
    bool has_groups;
    bool is_diagonal;   /* each column decays by itself; Q, K and V have a matrix and a convolution each */
    uint32_t n_rank;    /* then: elements between the two matrices of decays, and of gates; 0: they are one matrix */
    float least_decay;  /* the logarithm of a decay is least_decay * sigmoid(a (x + dt)); 0: it is a softplus(x + dt) */
};

/* Elements of the decays of a token. */
static inline uint32_t delta_n_decay(const struct delta_plan *d) { return d->n_head * (d->is_diagonal ? d->dim : 1); }

static inline uint32_t delta_key_head(const struct delta_plan *d, uint32_t h) {
    return d->has_groups ? h / (d->n_head / d->n_key_head) : h % d->n_key_head;
}

/* How ssm_in, ssm_x and ssm_a are made.  Mamba: Gu & Dao 2023, "Mamba", with a head for each element.  Mamba 2: Dao &
 * Gu 2024, "Transformers are SSMs", section 7.1.  PLaMo 2: heads as in Mamba 2, and the rest as in Mamba. */
enum scan_kind { SCAN_NONE, SCAN_MAMBA, SCAN_MAMBA_2, SCAN_PLAMO_2 };

/* A selective scan.  Head h has a state of (dim, n_state), and the B and C of group h / (n_head / n_group). */
struct scan_plan {
    enum scan_kind kind;
    uint32_t n_head, dim, n_group, n_state;
    uint32_t n_rank;   /* elements of what ssm_dt multiplies; 0 in Mamba 2, which has no such matrix */
};

/* The recurrence of RWKV and its relatives.  RWKV_6: Peng et al. 2024, "Eagle and Finch"; RWKV_LINEAR: the same decays
 * in Yang et al. 2023, "Gated Linear Attention", for layers that were attention; RWKV_7: Peng et al. 2025, "RWKV-7
 * Goose"; RWKV_LIGHTNING: Qin et al. 2024, "Lightning Attention-2", whose decays are constants. */
enum rwkv_kind { RWKV_NONE, RWKV_6, RWKV_LINEAR, RWKV_7, RWKV_LIGHTNING };

/* The weights whose rows are the kernels of a layer's convolution, in this order; a layer lacks some of them. */
#define PLAN_KERNELS { W_CONV_KERNEL, W_CONV_Q, W_CONV_K, W_CONV_V }

enum { RWKV_LERPS = 5 };   /* mixtures of a token and the one before it in RWKV 6: for w, k, v, r and g */
#define RWKV_NORM_EPS 64e-5f   /* epsilon of the norms of heads, as in the authors' code */

/* RWKV.  A head has a state of (v_dim, k_dim), and vectors of a token are mixed with those of the token before it.  The
 * products of low rank have n_... elements between their two matrices. */
struct rwkv_plan {
    enum rwkv_kind kind;
    uint32_t n_shift;   /* 2: the feed-forward network mixes tokens too, and is that of RWKV; 1: it is another one; 0:
                         * no tokens are mixed */
    uint32_t n_lerp;    /* of the factors by which tokens are mixed; 0 in RWKV 7, where they do not depend on x */
    uint32_t n_decay, n_value, n_rate, n_gate;
};

/* Adapters inside the model's file: IBM 2025, "Granite Switch".  A token with one of n ids switches an adapter on for
 * itself and those after it; see plan_adapter_at.  What an adapter adds to products: see struct affine. */
struct switch_plan {
    uint32_t n, n_rank;           /* adapters, beside number 0, which is used before; rows of lora_a.  n is 0: none */
    float gain;
    const struct gguf_key *ids, *substitutes;   /* (n) ids, the last of equals counts; whose embeddings they have */
};

struct layer_plan {
    enum mixer mixer;
    struct attn_plan attn;   /* of MIXER_ATTENTION; of the others: heads and gate only */
    struct delta_plan delta;
    uint32_t n_conv;         /* of the other mixers: the tokens that their convolution is over; 0: there is none */
    uint32_t n_lerp_row;     /* of MIXER_RWKV: rows of time_mix_lerp_fused */
    uint32_t kv_back;        /* attention reads the K and V of the layer that is so many before it and has the same
                              * window and heads of K and V; 0: its own.  Brandon et al. 2024, "Reducing Transformer
                              * Key-Value Cache Size with Cross-Layer Attention" */
    struct ffn_plan ffn;
    id_set without;   /* the weights of the plan's sets for which this layer has no place */
    uint32_t block;     /* the layer has the weights of this block of the file; that of its own number, unless the
                         * blocks are computed several times, or a block of a decoder is two layers */
    const char *prefix; /* what is before "blk.N." in the names of its tensors: "", "enc." or "dec." */
    bool ends_loop;     /* after it x becomes its output_norm */
    enum state state;   /* which then is stored as this state, and x becomes the sum of both states */
    bool is_halved;     /* after it x is divided by 2 */
};

/* The weights of a layer, in the order in which a pass uses them, and then those outside the layers.  attn_qkv is three
 * matrices in one tensor, and ffn_gate_up two: their rows are bound to W_ATTN_Q, K and V, or to W_FFN_GATE and UP;
 * those of each expert of ffn_gate_up_exps to W_FFN_GATE_EXPS and UP_EXPS. */
enum weight_id {
    W_ALTUP_ROUTER_NORM, W_ALTUP_ROUTER, W_ALTUP_PREDICT, W_NARROW, W_WIDEN, W_LAUREL_NORM, W_ATTN_NORM,
    W_LATENT_Q_A, W_LATENT_Q_NORM, W_LATENT_Q_B, W_LATENT_KV, W_LATENT_NORM, W_LATENT_KV_B, W_LATENT_K_B, W_LATENT_V_B,
    W_ATTN_QKV, W_ATTN_Q, W_ATTN_K, W_ATTN_V, W_ATTN_Q_NORM, W_ATTN_K_NORM, W_ATTN_V_NORM, W_ATTN_GATE, W_ATTN_SINKS,
    W_ATTN_BUCKETS,
    W_ATTN_SUB_NORM, W_ATTN_OUTPUT, W_CONV_IN, W_CONV_KERNEL, W_CONV_Q, W_CONV_K, W_CONV_V, W_CONV_OUT,
    W_DELTA_BETA_ALPHA, W_DELTA_BETA, W_DELTA_ALPHA, W_DELTA_DT, W_DELTA_A, W_DELTA_NORM, W_SCAN_X, W_SCAN_DT_NORM,
    W_SCAN_B_NORM, W_SCAN_C_NORM, W_SCAN_DT, W_SCAN_D, W_LERP_X, W_LERP_1, W_LERP_2, W_LERP, W_LERP_W, W_LERP_K,
    W_LERP_V, W_LERP_R, W_LERP_G,
    W_VALUE, W_VALUE_1, W_VALUE_2, W_DECAY, W_DECAY_1, W_DECAY_2, W_RATE, W_RATE_1, W_RATE_2, W_REMOVAL, W_REPLACEMENT,
    W_BONUS, W_HEADS_NORM, W_GATE_1, W_GATE_2, W_CHANNEL_K, W_CHANNEL_R, W_CHANNEL_GATE, W_ATTN_POST_NORM,
    W_ATTN_OUT_NORM, W_ATTN_NORM_2, W_FFN_NORM, W_FFN_GATE_UP, W_FFN_GATE, W_FFN_UP, W_FFN_ACT_SCALES, W_FFN_SUB_NORM,
    W_FFN_DOWN, W_FFN_NORM_EXPS, W_FFN_ROUTER_NORM, W_FFN_GATE_INP, W_FFN_EXPERT_BIAS, W_FFN_GATE_UP_EXPS,
    W_FFN_GATE_EXPS, W_FFN_UP_EXPS, W_FFN_DOWN_EXPS, W_FFN_GATE_ADJUGATE, W_FFN_UP_ADJUGATE, W_FFN_DOWN_ADJUGATE,
    W_FFN_GATE_INP_SHARED, W_FFN_GATE_SHARED, W_FFN_UP_SHARED, W_FFN_DOWN_SHARED, W_FFN_DENSE_POST_NORM,
    W_FFN_EXPS_POST_NORM, W_FFN_POST_NORM, W_ALTUP_CORRECT, W_ALTUP_SCALE, W_PER_LAYER_GATE, W_PER_LAYER_PROJ,
    W_PER_LAYER_POST_NORM, W_LAYER_OUT_NORM, W_LAYER_OUT_SCALE,
    W_LAYER_COUNT,
    W_TOKEN_EMBD = W_LAYER_COUNT, W_TOKEN_TYPES, W_POSITION_EMBD, W_TOKEN_EMBD_NORM, W_STATE_INIT, W_OUTPUT_NORM,
    W_OUTPUT, W_ROPE_FREQS, W_ROPE_LONG, W_ROPE_SHORT, W_CLS, W_CLS_NORM, W_CLS_OUTPUT, W_DENSE_2, W_DENSE_3,
    W_PER_LAYER_EMBD, W_PER_LAYER_MODEL_PROJ, W_PER_LAYER_PROJ_NORM, W_ALTUP_PROJ, W_ALTUP_UNEMBD,
    W_ENCODER_NORM,
    W_COUNT
};
_Static_assert(W_COUNT <= 128, "a set has 128 bits");

/* Layers with windows may have frequencies of their own. */
enum { ROPE_GLOBAL, ROPE_LOCAL, PLAN_ROPES, ROPE_NONE = PLAN_ROPES };

struct maker;

/* Everything that a pass needs to know beside the weights. */
struct plan {
    const char *architecture;
    uint32_t n_layer, n_embd, n_vocab, n_ctx_train, n_token_type;
    uint32_t n_encoder;       /* the first layers, which are an encoder: they compute a text of its own, whose last norm
                               * layers with reads_encoder read; 0: there is none */
    int32_t decoder_start;    /* the token with which the decoder's text begins, if there is an encoder; -1: BOS */
    uint32_t n_ignored_layer; /* layers behind n_layer, which predict further tokens and are not computed */
    uint32_t n_logit;         /* rows of output.weight: logits of the last n_logit tokens of the vocabulary; those of
                               * the others are -infinity.  0: of all tokens */
    uint32_t hidden_first, hidden_end;   /* the logits of tokens hidden_first .. hidden_end - 1 are -infinity, too */
    uint32_t n_per_layer;     /* elements of the embedding that a token has for each layer beside its own; 0: none.
                               * Google 2025, "Gemma 3n" */
    uint32_t n_stream;        /* residual streams of a token, of which layers compute with the first, x: see
                               * forward/altup.c; 0: x alone */
    uint32_t n_narrow;        /* rows of the first of two matrices that make a row narrow and wide again: around the
                               * experts, which then read and write such rows (NVIDIA 2025, "Nemotron 3"), or beside
                               * attention (Menghani et al. 2024, "LAuReL") */
    uint32_t n_rope_factor;   /* elements of rope_freqs, rope_factors_long and rope_factors_short */
    uint32_t n_ctx_original;  /* sessions of more tokens use rope_factors_long, others rope_factors_short */
    bool is_parallel;         /* attention and feed forward both read a layer's input, and both are added to it */
    void (*steps)(struct maker *m);   /* writes the program of a layer: see program.h */
    enum norm_kind norm;
    bool has_logits;          /* there is an output matrix; otherwise the results of a pass are the embeddings */
    struct pooling_plan pooling;
    float clamp_qkv;          /* Q, K and V are clamped to -clamp_qkv .. clamp_qkv; 0: they are not */
    float post_norm_eps;      /* epsilon of the norms after attention and feed forward; 0: norm_eps */
    float qk_norm_eps;        /* norms of Q and K are layer norms with this epsilon; 0: they are like the others */
    float norm_eps;           /* epsilon of the norms, added to the mean square or to the variance */
    float embedding_scale;    /* embeddings are multiplied by it */
    float residual_scale;     /* the outputs of attention and feed forward are multiplied by it before they are added */
    float logit_scale;        /* logits are divided by it */
    float logit_softcap;      /* logits become softcap * tanh(logits / softcap); 0: they stay */
    struct rope_plan ropes[PLAN_ROPES];
    struct scan_plan scan;    /* of all layers with a scan */
    struct rwkv_plan rwkv;    /* of all layers with RWKV */
    /* The largest of all layers: heads; elements of Q or of the outputs of the heads, of K, of V, and of a row of the
     * gate, in experts too; experts, and those that a token uses. */
    uint32_t max_head;
    uint64_t max_q, max_k, max_v, max_ff;
    uint64_t max_latent;           /* of latent attention: a row */
    uint64_t max_conv, max_delta;  /* of a convolution: a row; of a delta net: decays */
    uint64_t max_scan;             /* of a scan: a row of its outputs */
    uint32_t max_expert, max_used;
    bool has_gates;                /* some layer has attn_gate */
    bool has_states;               /* some layer has a state */
    bool shares_kv;                /* some layer reads the K and V of another one */
    bool is_recurrent;             /* some layer keeps a state between tokens, of which only the latest one is known */
    bool has_post_self_attn;       /* transformers calls the norm after attention post_self_attn_layernorm */
    /* Sets of enum weight_id: bit i is weight i.  Each layer must have the required weights, except those in its
     * `without`, and may have the optional ones, the biases of the weights in biased and the factors of those in
     * scaled.  A step whose weight is absent is left out. */
    id_set required, optional, biased, scaled;
    id_set switched;             /* the matrices that adapters inside the file change */
    struct switch_plan adapters;
    id_set bare_norms;           /* norms that are computed without a weight */
    id_set unsuffixed;           /* weights whose tensors have names without ".weight" */
    const char *const *unused;     /* tensors that the file may have and no pass uses, without "blk.N."; ends in NULL */
    const char *names[W_COUNT];    /* names of weights in the file where they are not the usual ones, or NULL */
    struct layer_plan *layers;     /* (n_layer) */
};

/* Reads the keys of a model's first file, and looks in all of them for optional tensors.  n_tensor: of all files;
 * more layers than that are refused before their table is allocated, unless they can be blocks that are computed
 * several times.  *p must be all zeros; plan_free must follow, also after an error.  n_vocab stays 0, since no key says
 * it. */
plumb_status plan_create(struct plan *p, struct gguf *const *parts, size_t n_part, uint64_t n_tensor,
                         struct error *err);
/* Makes a copy with a table of layers of its own.  Returns false if there is no memory. */
bool plan_copy(struct plan *out, const struct plan *p);
void plan_free(struct plan *p);

/* The name of architecture i of the table; NULL if i is beyond its end. */
const char *plan_architecture(size_t i);

/* Whether tokens do not attend to later ones, so that a text can be fed in pieces; in the decoder, if there is one. */
static inline bool plan_is_causal(const struct plan *p) { return p->layers[p->n_encoder].attn.is_causal; }

/* How many tokens a session of n_ctx tokens computes at once if the caller asks for n_batch; 0 asks for the default.
 * All of them if tokens attend to later ones, also in an encoder.  A larger batch unpacks weights less often, but a
 * caller can stop only between batches, and a batch of a large model takes seconds. */
static inline uint32_t plan_n_batch(const struct plan *p, uint32_t n_ctx, uint32_t n_batch) {
    if (n_batch == 0) n_batch = p->max_expert > 0 ? 256 : p->n_embd <= 1024 ? 128 : 64;
    return plan_is_causal(p) && p->n_encoder == 0 && n_batch < n_ctx ? n_batch : n_ctx;
}

/* ALiBi: the score of a key is lowered by slope * distance, with max = attn.alibi and n = the largest power of two that
 * is at most n_head: heads h < n have the slope 2^(-max (h + 1) / n), the others 2^(-max (2 (h - n) + 1) / 2n).
 * Press et al. 2022, "Train Short, Test Long".  Returns 0 if max is 0. */
float plan_alibi_slope(const struct attn_plan *a, uint32_t head);

/* The bucket of a key `distance` tokens after the query, or before it if it is negative; 0 is the query itself.  Near
 * distances have a bucket each, those up to PLAN_FAR share them by their logarithm, and all beyond it have the last.
 * Unless attention is causal, half of the buckets are for keys after the query.
 * Raffel et al. 2020, "T5", section 2.1 */
enum { PLAN_FAR = 128 };
uint32_t plan_bucket(const struct attn_plan *a, int32_t distance);

/* The adapter that a token switches on, from 1 on; 0: none. */
uint32_t plan_adapter_of(const struct plan *p, int32_t id);
/* The token whose embedding a token has: itself, or another one if it switches an adapter on. */
int32_t plan_embedded_as(const struct plan *p, int32_t id);
/* The adapter that a token uses if, of the n_token tokens up to it, n_switch have switched one on, whose numbers have
 * this sum: the mean of the numbers of all tokens, 0 if they switch nothing, in which those that do weigh e^(2 gain)
 * times as much as others.  It is rounded.  If one was switched on, it is that one, unless the gain is small. */
uint32_t plan_adapter_at(const struct plan *p, uint32_t n_token, uint32_t n_switch, uint64_t sum);

/* The factor of Q at a position; 1 in a layer without temperature. */
float plan_temperature(const struct attn_plan *a, uint32_t pos);
/* Returns the first position that the token at pos sees.  A window of 0 has no limit.  A chunked window begins at the
 * last multiple of its length; pos is in the middle of a symmetric one, and at the end of any other. */
uint32_t plan_first_seen(const struct attn_plan *a, uint32_t pos);

/* The epsilon of a norm inside the layers, or of that of the output. */
static inline float plan_norm_eps(const struct plan *p, enum weight_id norm) {
    bool is_post = norm == W_ATTN_POST_NORM || norm == W_FFN_POST_NORM;
    bool is_qk = norm == W_ATTN_Q_NORM || norm == W_ATTN_K_NORM;
    if (norm == W_HEADS_NORM) return RWKV_NORM_EPS;
    if (is_qk && p->qk_norm_eps != 0.0f) return p->qk_norm_eps;
    return is_post && p->post_norm_eps != 0.0f ? p->post_norm_eps : p->norm_eps;
}

/* Elements of what a pass computes for each token: logits, or an embedding. */
static inline uint32_t plan_n_result(const struct plan *p) { return p->has_logits ? p->n_vocab : p->n_embd; }

/* Elements of the longest vector after pooling. */
uint32_t plan_max_head(const struct plan *p);

/* Whether a layer has attention, or a scan. */
static inline bool plan_attends(const struct layer_plan *l) {
    return l->mixer == MIXER_ATTENTION || l->mixer == MIXER_BOTH;
}
/* The first element of a head of K in the cache that RoPE rotates. */
static inline uint32_t plan_rotated_from(const struct attn_plan *a) {
    return a->latent.n_kv == 0 ? 0 : a->latent.is_absorbed ? a->latent.n_kv : a->latent.n_plain;
}
/* Elements of a head of Q and K, before they are absorbed in latent attention. */
static inline uint32_t plan_head_dim(const struct attn_plan *a) {
    return a->latent.n_kv > 0 ? a->latent.n_plain + a->latent.n_rotated : a->k_dim;
}
/* Elements of the output of a head, after those of latent attention were multiplied by attn_v_b. */
static inline uint32_t plan_head_out(const struct attn_plan *a) {
    return a->latent.n_kv > 0 ? a->latent.v_dim : a->v_dim;
}
/* Whether a layer stores K and V; otherwise it has no attention, or reads those of another layer. */
static inline bool plan_has_kv(const struct layer_plan *l) { return plan_attends(l) && l->kv_back == 0; }
/* Whether the layer has the state of RWKV and its relatives, a matrix for each head. */
static inline bool plan_has_wkv(const struct layer_plan *l) {
    return l->mixer == MIXER_RWKV || l->mixer == MIXER_LIGHTNING;
}
/* Whether it stores those of its own tokens, not of the encoder's. */
static inline bool plan_keeps_kv(const struct layer_plan *l) { return plan_has_kv(l) && !l->attn.reads_encoder; }
/* The first layer of the encoder or decoder that has layer il, which reads embeddings. */
static inline uint32_t plan_first(const struct plan *p, uint32_t il) { return il < p->n_encoder ? 0 : p->n_encoder; }
static inline bool plan_scans(const struct layer_plan *l) { return l->mixer == MIXER_SCAN || l->mixer == MIXER_BOTH; }

/* Elements of what a scan computes for each token, of its B or C, and of its product with ssm_in. */
static inline uint32_t plan_scan_width(const struct scan_plan *s) { return s->n_head * s->dim; }
static inline uint32_t plan_scan_group_width(const struct scan_plan *s) { return s->n_group * s->n_state; }
uint32_t plan_scan_in(const struct scan_plan *s);

/* Whether a layer can be computed from the output of the one before it: it reads nothing else of earlier layers. */
static inline bool plan_begins_at_layers(const struct plan *p) {
    return !p->has_states && !p->shares_kv && p->n_encoder == 0 && p->n_stream == 0 && p->rwkv.kind != RWKV_7;
}

/* The last layer that keeps something of a token for the tokens after it. */
uint32_t plan_last_keeper(const struct plan *p);
/* The layer whose K and V later layers read although those of another layer come between; n_layer if there is none. */
uint32_t plan_kept(const struct plan *p);

/* Elements of a row of a layer's convolution; 0: it has none. */
uint64_t plan_conv_width(const struct plan *p, uint32_t il);
/* Elements of the state that a layer keeps between tokens, beside K and V: the last inputs of a convolution, and then
 * the matrices (n_head, dim, dim) of a delta net or (n_head, dim, n_state) of a scan; the last inputs (n_shift, n_embd)
 * of RWKV, and then its matrices (n_head, v_dim, k_dim).  Those of all layers. */
uint64_t plan_state_size(const struct plan *p, uint32_t il);
uint64_t plan_states_size(const struct plan *p);

/* Elements that the products of a head read and write; 0 if no layer has any. */
uint64_t plan_head_row(const struct plan *p);

/* The most elements between the two matrices of a product of low rank; 0: there are none. */
uint32_t plan_max_rank(const struct plan *p);

/* What a state of lightning attention is multiplied by: e^-s, with s = 2^(-8 (head + 1) / n_head) (1 - il /
 * (n_layer - 1) + 1e-5), so that the first layers forget sooner.  Qin et al. 2024, "Lightning Attention-2", with the
 * slopes of ALiBi. */
double plan_fade(const struct plan *p, uint32_t il, uint32_t head);

/* Elements of the longest row of any matrix: max(n_embd, max_q, max_latent, max_ff, max_scan, pooling.n_dense,
 * n_layer * n_per_layer, n_narrow, n_stream, plan_max_rank, adapters.n_rank). */
uint64_t plan_max_row(const struct plan *p);
/* Elements of a row that an expert reads or writes. */
static inline uint32_t plan_expert_row(const struct plan *p) { return p->n_narrow > 0 ? p->n_narrow : p->n_embd; }
/* Elements of the largest row of all the experts of a token together: n_used * max(n_ff_expert, plan_expert_row) of any
 * layer; 0 without experts. */
uint64_t plan_max_used_row(const struct plan *p);

#endif

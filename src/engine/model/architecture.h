/* A row of the table of architectures, and what its function can use to make a plan.
 *
 * Data flow: the keys of a file -> key_*, which read and check one of them -> plan_*, each of which fills a part of the
 * plan that several architectures have -> the plan function of a row, which says what else differs.  dense.c has the
 * rows of architectures without experts, sparse.c those with experts, recurrent.c those with scans or RWKV, and
 * encoders.c those that compute embeddings instead of logits.  plan.c finds the row of a file and calls its function.
 * No other file knows an architecture's name.
 */
#ifndef PLUMB_MODEL_ARCHITECTURE_H
#define PLUMB_MODEL_ARCHITECTURE_H

#include "model/program.h"

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* The keys of a file, as a plan function gets them. */
struct key_reader {
    const struct gguf *gguf;        /* the first part, which has the keys */
    struct gguf *const *parts;
    size_t n_part;
    const char *architecture;
    struct error *err;
    char key[128];                  /* the key last asked for, "llama.block_count" */
    const char *prefix;             /* of the names of tensors that key_tensor looks for: struct layer_plan's */
    bool is_longrope;
    float beta_fast, beta_slow, log_factor;   /* of YaRN */
};

/* Below, suffix is the part of the key's name after "ARCHITECTURE.".  A value that is not allowed is
 * PLUMB_ERROR_METADATA. */

/* Returns the whole name of a key, which stays in r->key until the next call. */
const char *key_of(struct key_reader *r, const char *suffix);
bool key_is_text(const struct gguf_string *s, const char *text);
/* Reads a count that must be in 1..max.  Leaves *out unchanged if the key is absent; a missing key is an error if *out
 * is 0. */
plumb_status key_count(struct key_reader *r, const char *suffix, uint32_t max, uint32_t *out);
/* Reads a factor.  Leaves *out unchanged if the key is absent or, as in llama.cpp, 0. */
plumb_status key_scale(struct key_reader *r, const char *suffix, float *out);
/* Reads the epsilon of the plan's kind of norm. */
plumb_status key_epsilon(struct key_reader *r, struct plan *p);
/* Reads theta.  Leaves *out unchanged if the key is absent. */
plumb_status key_freq_base(struct key_reader *r, const char *suffix, float *out);
/* Reads how many elements of a head are rotated: an even number, at most k_dim. */
plumb_status key_n_rot(struct key_reader *r, const char *suffix, uint32_t k_dim, uint32_t *out);
/* Reads the width of a feed-forward network.  *out becomes `width` if the key is absent or 0. */
plumb_status key_width(struct key_reader *r, const char *suffix, uint32_t width, uint32_t *out);
/* Reads a limit, where 0 means that there is none.  Leaves *out unchanged if the key is absent. */
plumb_status key_limit(struct key_reader *r, const char *suffix, float *out);
/* Reads the number of layer il from a key with one number for each layer, or one for all.  key: its whole name. */
plumb_status key_number(struct key_reader *r, const char *key, uint32_t il, float *out);
/* Reads the limit of SwiGLU of layer il as key_number does; llama.cpp takes those up to 1e-6 for none, which is 0. */
plumb_status key_swiglu_limit(struct key_reader *r, const char *suffix, uint32_t il, float *out);
/* Reads which layers are recurrent, a flag for each; NULL: the key is absent. */
plumb_status key_recurrent(struct key_reader *r, const struct plan *p, const struct gguf_key **out);
/* Returns a tensor of block il, "attn_gate.weight", or NULL if no part of the model has it. */
const struct gguf_tensor *key_tensor(const struct key_reader *r, uint32_t il, const char *suffix);
/* PLUMB_ERROR_TENSOR if block il lacks a tensor that only some models may lack. */
plumb_status key_requires(const struct key_reader *r, uint32_t il, const char *suffix);
/* key_tensor for a tensor outside the layers. */
const struct gguf_tensor *key_tensor_outside(const struct key_reader *r, const char *name);

/* ---- sets of weights --------------------------------------------------------------------------------------------- */

#define SET(weight) ID_SET(W_##weight)
/* Sets of weights that many architectures share. */
#define ENDS (SET(TOKEN_EMBD) | SET(OUTPUT_NORM))
#define QKV (SET(ATTN_Q) | SET(ATTN_K) | SET(ATTN_V))
#define ATTENTION (QKV | SET(ATTN_OUTPUT))
#define QK_NORM (SET(ATTN_Q_NORM) | SET(ATTN_K_NORM))
#define CONVOLUTION (SET(CONV_IN) | SET(CONV_KERNEL) | SET(CONV_OUT))
#define DELTA_NET (CONVOLUTION | SET(DELTA_DT) | SET(DELTA_A) | SET(DELTA_NORM) | SET(ATTN_GATE))
#define BETA_ALPHA (SET(DELTA_BETA) | SET(DELTA_ALPHA))   /* of a delta net, if they are two products */
#define KIMI_DELTA (QKV | SET(CONV_OUT) | SET(CONV_Q) | SET(CONV_K) | SET(CONV_V) | DECAYS | GATES_2 | SET(DELTA_BETA) \
                    | SET(DELTA_DT) | SET(DELTA_A) | SET(DELTA_NORM))
#define DECAYS (SET(DECAY_1) | SET(DECAY_2))
#define LIGHTNING (SET(CONV_IN) | SET(CONV_OUT) | SET(ATTN_GATE) | SET(ATTN_SUB_NORM))
#define DELTA_NET_SCALED (SET(ATTN_GATE) | SET(CONV_IN) | SET(CONV_OUT) | BETA_ALPHA)
#define SCAN (CONVOLUTION | SET(DELTA_DT) | SET(DELTA_A) | SET(SCAN_D))
#define SCAN_X (SET(SCAN_X) | SET(SCAN_DT))
#define SCAN_NORMS (SET(SCAN_DT_NORM) | SET(SCAN_B_NORM) | SET(SCAN_C_NORM))
#define LERPS_6 (SET(LERP_W) | SET(LERP_K) | SET(LERP_V) | SET(LERP_R) | SET(LERP_G))   /* instead of LERP */
#define MIX_VALUE (SET(VALUE) | SET(VALUE_1) | SET(VALUE_2))
#define DECAY (SET(DECAY) | DECAYS)
#define GATES_2 (SET(GATE_1) | SET(GATE_2))
#define TIME_MIX_6 (ATTENTION | SET(ATTN_GATE) | SET(LERP_X) | SET(LERP_1) | SET(LERP_2) | SET(LERP) | DECAY)
#define TIME_MIX_7 (ATTENTION | SET(LERP) | MIX_VALUE | DECAY | SET(RATE) | SET(RATE_1) | SET(RATE_2) | SET(REMOVAL) \
                | SET(REPLACEMENT) | SET(BONUS) | GATES_2)
#define CHANNEL_MIX (FFN | SET(CHANNEL_K))   /* of RWKV */
#define LATENT_Q (SET(LATENT_Q_A) | SET(LATENT_Q_NORM) | SET(LATENT_Q_B))
#define LATENT_KV (SET(LATENT_KV) | SET(LATENT_NORM))
#define ABSORBED (SET(LATENT_K_B) | SET(LATENT_V_B))
#define LATENT (LATENT_Q | LATENT_KV | ABSORBED | SET(LATENT_KV_B) | SET(ATTN_Q) | SET(ATTN_OUTPUT))
#define POST_NORM (SET(ATTN_POST_NORM) | SET(FFN_POST_NORM))
#define FFN (SET(FFN_UP) | SET(FFN_DOWN))
#define GATED (SET(FFN_GATE) | FFN)
#define NORMS (SET(ATTN_NORM) | SET(FFN_NORM))
#define EXPERTS (SET(FFN_GATE_INP) | SET(FFN_GATE_EXPS) | SET(FFN_UP_EXPS) | SET(FFN_DOWN_EXPS))
#define SHARED (SET(FFN_GATE_SHARED) | SET(FFN_UP_SHARED) | SET(FFN_DOWN_SHARED))
#define ADJUGATE (SET(FFN_GATE_ADJUGATE) | SET(FFN_UP_ADJUGATE) | SET(FFN_DOWN_ADJUGATE))
/* Norms of experts, and of the dense network beside them. */
#define NORMS_BESIDE (SET(FFN_ROUTER_NORM) | SET(FFN_NORM_EXPS) | SET(FFN_DENSE_POST_NORM) | SET(FFN_EXPS_POST_NORM))
#define PER_LAYER (SET(PER_LAYER_GATE) | SET(PER_LAYER_PROJ) | SET(PER_LAYER_POST_NORM) | SET(PER_LAYER_EMBD) \
                   | SET(PER_LAYER_MODEL_PROJ) | SET(PER_LAYER_PROJ_NORM))
#define ALTUP (SET(ALTUP_ROUTER_NORM) | SET(ALTUP_ROUTER) | SET(ALTUP_PREDICT) | SET(ALTUP_CORRECT) | SET(ALTUP_SCALE) \
               | SET(ALTUP_PROJ) | SET(ALTUP_UNEMBD))
#define NARROW (SET(NARROW) | SET(WIDEN))
#define LAUREL (NARROW | SET(LAUREL_NORM))
#define ALL_EXPERTS (EXPERTS | SHARED | ADJUGATE | SET(FFN_EXPERT_BIAS) | SET(FFN_GATE_INP_SHARED) \
                     | SET(FFN_NORM_EXPS) | SET(FFN_GATE_UP_EXPS) | NORMS_BESIDE)
#define ALL_DENSE (GATED | SET(FFN_GATE_UP))
#define DENSE (ENDS | NORMS | ATTENTION | GATED)      /* Llama's */
#define SPARSE (ENDS | NORMS | ATTENTION | EXPERTS)   /* with experts instead */
#define DENSE_LATENT (ENDS | NORMS | LATENT)
#define PLAIN (ENDS | NORMS | ATTENTION | FFN)        /* without a gate */
#define TIED (SET(OUTPUT) | SET(ATTN_QKV))            /* output.weight may be missing, Q, K and V may be fused */
#define FREQS SET(ROPE_FREQS)
#define FACTORS (FREQS | SET(ROPE_LONG) | SET(ROPE_SHORT))
#define ALL_BIAS (ATTENTION_BIAS | FFN | NORM_BIAS)   /* of GPT-2 and its relatives */
/* The biases and factors of fused and separate Q, K and V. */
#define QKV_BIAS (QKV | SET(ATTN_QKV))
#define ATTENTION_BIAS (QKV_BIAS | SET(ATTN_OUTPUT))
#define NORM_BIAS (NORMS | SET(OUTPUT_NORM))
/* llama.cpp applies the factors of attention in all architectures, and those of the feed-forward network in some. */
#define SCALED ATTENTION_BIAS

/* ---- parts of a plan that several architectures have ------------------------------------------------------------- */

/* Makes this layer one without experts in a model that has some. */
void plan_set_dense(struct layer_plan *l);
/* Makes this layer one whose feed-forward network has no matrices, but only the activation of its input.
 * What llama.cpp loads for the experts of such a layer is not used. */
void plan_set_bare(struct plan *p, struct layer_plan *l);
/* Layers with a sliding window, and a frequency base of their own.  Of every `period` layers all but the last have the
 * window, or all but the first if windows_last; sliding_window_pattern is another period, or says for each layer
 * whether it has the window. */
plumb_status plan_pattern(struct key_reader *r, struct plan *p, uint32_t period, uint32_t window, float freq_base,
                          bool windows_last);
/* The same; all but the last have the window. */
plumb_status plan_windows(struct key_reader *r, struct plan *p, uint32_t period, uint32_t window, float freq_base);
/* The same, with the base and scaling of the layers without a window, unless the file has another base. */
plumb_status plan_like_windows(struct key_reader *r, struct plan *p, uint32_t period, uint32_t window);
/* The first leading_dense_block_count layers have no experts. */
plumb_status plan_dense_lead(struct key_reader *r, struct plan *p);
/* Gives all layers with experts a shared expert of width n_ff; 0: they have none. */
void plan_set_shared(struct plan *p, uint64_t n_ff);
/* A shared expert as wide as `each` experts times expert_shared_count.  default_count: if the key is absent. */
plumb_status plan_shared(struct key_reader *r, struct plan *p, uint32_t default_count, uint32_t each);
/* How weights of experts are made.  gating: if the key is absent; 0: it must be there. */
plumb_status plan_gating(struct key_reader *r, struct plan *p, uint32_t gating);
/* Experts as wide as feed_forward_length, whatever expert_feed_forward_length says. */
void plan_use_n_ff(struct plan *p);
/* Experts as wide as feed_forward_length / n_used if expert_feed_forward_length is absent. */
plumb_status plan_narrow_experts(struct key_reader *r, struct plan *p);
/* Layers without ffn_gate_inp have no experts.  The others may have the weights of a dense network, which are not
 * used. */
void plan_dense_by_tensor(const struct key_reader *r, struct plan *p);
/* The weights of the experts that a token uses are divided by their sum. */
void plan_sum_to_1(struct plan *p);
/* Whether tokens do not attend to later ones. */
void plan_set_causal(struct plan *p, bool is_causal);
void plan_set_qk_norm(struct plan *p, enum qk_norm kind);
/* All layers have ALiBi with this largest slope exponent, and no RoPE; 0: neither. */
void plan_set_alibi(struct plan *p, float max);
/* Layers without a window are not rotated; those with one have the base and scaling of the model. */
void plan_rotate_windows_only(struct plan *p);
/* The key logit_scale, if it is a factor of the logits and not their divisor.  factor: if the key is absent. */
plumb_status plan_logit_factor(struct key_reader *r, struct plan *p, float factor);
/* The sections of pairs that Qwen2-VL and others have for positions in images.  Where they are optional, there are none
 * if one of the first two is 0, as in llama.cpp. */
plumb_status plan_sections(struct key_reader *r, struct plan *p, bool required);
/* Layers with 0 heads of K and V have a convolution instead of attention. */
plumb_status plan_convolutions(struct key_reader *r, struct plan *p);
/* Qwen 3.5's gated delta nets, and sections of pairs. */
plumb_status plan_qwen35(struct key_reader *r, struct plan *p);
/* Latent attention, absorbed if the file says so.  Of LATENT, each layer needs what its form has. */
plumb_status plan_latent(struct key_reader *r, struct plan *p);
/* Most layers have a gated delta net instead of attention, and the others have gates in attn_q. */
plumb_status plan_delta_nets(struct key_reader *r, struct plan *p);
/* The muP factors of Granite, and its experts; whether it has RoPE. */
plumb_status plan_granite_rope(struct key_reader *r, struct plan *p);
/* Layers have embeddings of each token, n elements wide if the key is absent. */
plumb_status plan_per_layer(struct key_reader *r, struct plan *p, uint32_t n);
/* The last layers read the K and V of the last one before them that has the same window or, as they do, none.
 * n: how many, if the key is absent. */
plumb_status plan_share_kv(struct key_reader *r, struct plan *p, uint32_t n);
/* Attention and feed forward read the same input. */
plumb_status plan_parallel(struct key_reader *r, struct plan *p);
/* The most layers of a plan whose blocks are computed several times, as in llama.cpp. */
enum { PLAN_MAX_REPEATED = 512 };
/* Computes the blocks of the file n times, one after the other. */
plumb_status plan_repeat(struct key_reader *r, struct plan *p, uint32_t n);
/* Llama, which may have experts as wide as feed_forward_length. */
plumb_status plan_llama(struct key_reader *r, struct plan *p);
/* The file may have biases of attn_output, which are not used. */
plumb_status plan_unused_bias(struct key_reader *r, struct plan *p);

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct architecture {
    const char *name;                 /* general.architecture, and the prefix of its keys */
    steps_writer *steps;              /* writes the program of a layer */
    enum rope_pairing rope_pairing;   /* as llama.cpp's llama_model_rope_type */
    enum norm_kind norm;
    enum activation activation;
    id_set required, optional, biased, scaled;
    /* Reads what else the keys say; NULL: nothing.  All layers of the plan are filled, each with the same numbers,
     * except those that have a number for each layer in the file. */
    plumb_status (*plan)(struct key_reader *r, struct plan *p);
};

/* The tables; each ends in a row without a name. */
extern const struct architecture plan_dense_rows[], plan_sparse_rows[], plan_recurrent_rows[], plan_encoder_rows[];

#endif

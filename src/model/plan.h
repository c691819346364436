/* The plan of a model: what each layer computes, with its numbers, and which weights it needs.  A row of the table in
 * architectures.c and the keys of the file make it.  The fast pass and the reference pass each walk it, and they know
 * no names of architectures.
 *
 * A layer computes, where x (n_token, n_embd) is the residual stream and a norm without a weight returns its input
 * (attn_qkv is three matrices in one tensor; weights are bound to W_ATTN_Q, W_ATTN_K and W_ATTN_V):
 *
 *   x += norm(W_ATTN_POST_NORM, attention(norm(W_ATTN_NORM, x))) * residual_scale
 *   x += norm(W_FFN_POST_NORM, feed_forward(norm(W_FFN_NORM, x))) * residual_scale
 */
#ifndef PLUMB_MODEL_PLAN_H
#define PLUMB_MODEL_PLAN_H

#include "gguf/gguf.h"

/* Which two elements of a head RoPE rotates together. */
enum rope_pairing {
    ROPE_NORM,  /* (2i, 2i+1): the RoFormer paper; ggml's NORMAL */
    ROPE_NEOX,  /* (i, i + n_rot/2): GPT-NeoX, and every model whose converter does not permute Q and K */
};

enum activation {
    ACT_SILU,       /* z / (1 + e^-z) */
    ACT_GELU_TANH,  /* z / 2 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) */
    ACT_RELU_SQR,   /* max(z, 0)^2 */
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
};

/* What the norms of Q and K are computed over, and when. */
enum qk_norm {
    QK_NORM_HEAD,         /* each head, before RoPE */
    QK_NORM_HEAD_ROPED,   /* each head, after RoPE */
    QK_NORM_ROW,          /* all heads of a token together, before RoPE */
};

struct attn_plan {
    uint32_t n_head, n_head_kv;   /* n_head_kv divides n_head */
    uint32_t k_dim, v_dim;        /* elements of a head of Q and K, and of V */
    uint32_t rope;                /* index of the plan's ropes; ROPE_NONE: Q and K are not rotated */
    enum qk_norm qk_norm;         /* used if there are weights for it */
    uint32_t window;              /* a token attends to itself and the window - 1 tokens before it; 0: to all of them */
    float scale;                  /* scores are multiplied by it; 0: by 1 / sqrt(k_dim) */
    float softcap;                /* then scores become softcap * tanh(scores / softcap); 0: they stay */
};

struct ffn_plan {
    uint32_t n_ff;
    enum activation activation;   /* of the gate or, without a gate, of the up projection */
};

struct layer_plan {
    struct attn_plan attn;
    struct ffn_plan ffn;
};

/* The weights of a layer, in the order in which a pass uses them, and then those outside the layers. */
enum weight_id {
    W_ATTN_NORM, W_ATTN_QKV, W_ATTN_Q, W_ATTN_K, W_ATTN_V, W_ATTN_Q_NORM, W_ATTN_K_NORM, W_ATTN_OUTPUT,
    W_ATTN_POST_NORM, W_FFN_NORM, W_FFN_GATE, W_FFN_UP, W_FFN_DOWN, W_FFN_POST_NORM,
    W_LAYER_COUNT,
    W_TOKEN_EMBD = W_LAYER_COUNT, W_OUTPUT_NORM, W_OUTPUT, W_ROPE_FREQS,
    W_COUNT
};

/* Layers with windows may have frequencies of their own. */
enum { ROPE_GLOBAL, ROPE_LOCAL, PLAN_ROPES, ROPE_NONE = PLAN_ROPES };

struct plan {
    const char *architecture;
    uint32_t n_layer, n_embd, n_vocab, n_ctx_train;
    bool is_parallel;        /* attention and feed forward both read a layer's input, and both are added to it */
    enum norm_kind norm;
    float norm_eps;          /* epsilon of the norms, added to the mean square or to the variance */
    float embedding_scale;   /* embeddings are multiplied by it */
    float residual_scale;    /* the outputs of attention and feed forward are multiplied by it before they are added */
    float logit_scale;       /* logits are divided by it */
    float logit_softcap;     /* logits become softcap * tanh(logits / softcap); 0: they stay */
    struct rope_plan ropes[PLAN_ROPES];
    /* The largest of all layers: heads, elements of Q, of K, of V, and of a row of the gate. */
    uint32_t max_head;
    uint64_t max_q, max_k, max_v, max_ff;
    /* Sets of enum weight_id: bit i is weight i.  Each layer must have the required weights, and may have the optional
     * ones, the biases of the weights in biased and the factors of those in scaled.  A step whose weight is absent is
     * left out. */
    uint64_t required, optional, biased, scaled;
    uint64_t bare_norms;           /* norms that are computed without a weight */
    bool has_classifier;           /* the file may have the head of a reranker, which no pass uses */
    const char *ffn_norm_name;     /* the name of W_FFN_NORM in the file */
    struct layer_plan *layers;     /* (n_layer) */
};

/* Reads the keys of a model's first file.  n_tensor: of all files; as every layer has tensors, it bounds the number of
 * layers before their table is allocated.  *p must be all zeros; plan_free must follow, also after an error.  n_vocab
 * stays 0, since no key says it. */
plumb_status plan_create(struct plan *p, const struct gguf *g, uint64_t n_tensor, struct error *err);
/* Makes a copy with a table of layers of its own.  Returns false if there is no memory. */
bool plan_copy(struct plan *out, const struct plan *p);
void plan_free(struct plan *p);

/* The name of architecture i of the table; NULL if i is beyond its end. */
const char *plan_architecture(size_t i);

/* How many tokens a session holds if the caller asks for n_ctx; 0 asks for the default. */
static inline uint32_t plan_n_ctx(const struct plan *p, uint32_t n_ctx) {
    if (n_ctx > 0) return n_ctx;
    return p->n_ctx_train < 2048 ? p->n_ctx_train : 2048;
}

/* Elements of the longest row of any matrix: max(n_embd, n_ff, n_head * k_dim, n_head * v_dim). */
uint64_t plan_max_row(const struct plan *p);

#endif

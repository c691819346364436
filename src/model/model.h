/* Keys -> config; tensor names -> weights, type and shape checked together; the table of architectures.
 *
 * Weights stay as they are in the gguf, quantized, and are borrowed from it: it must outlive the model.
 */
#ifndef PLUMB_MODEL_MODEL_H
#define PLUMB_MODEL_MODEL_H

#include "gguf/gguf.h"
#include "quant/pack.h"
#include "quant/quant.h"

/* Which two elements of a head RoPE turns together. */
enum rope_pairing {
    ROPE_NORM,  /* (2i, 2i+1): the RoFormer paper; ggml's NORMAL */
    ROPE_NEOX,  /* (i, i + n_rot/2): GPT-NeoX, and whatever was not permuted on conversion */
};

struct model_config {
    const char *architecture;
    uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab, n_ctx_train;
    float rms_eps;           /* added to the mean square */
    enum rope_pairing rope_pairing;
    uint32_t n_rot;          /* elements of a head that RoPE turns, from the first; even, <= head_dim */
    float rope_freq_base;    /* theta */
    float rope_freq_scale;   /* positions are multiplied by it (linear scaling: 1 / factor) */
    /* Granite's, 1 where there are none: what muP needs (Yang et al. 2022, "Tensor Programs V"), as in llama.cpp. */
    float embedding_scale;   /* embeddings are multiplied by it */
    float residual_scale;    /* so is what attention and the feed forward add to the residual stream */
    float attention_scale;   /* and so are scores; 0: by 1 / sqrt(head_dim) */
    float logit_scale;       /* logits are divided by it */
};

/* A matrix (n_out, n_in), or a vector (n_out = 1).  data is NULL for an optional tensor that the file lacks. */
struct weight {
    const char *name;
    const struct quant_traits *traits;
    const uint8_t *data;
    uint32_t type;           /* enum quant_type */
    uint32_t n_in, n_out;
    size_t row_bytes;
    uint32_t n_packed;       /* the first rows, packed as in quant/pack.h */
    struct gguf *file;       /* that holds it, and where: */
    uint64_t offset;         /* bytes from the start of the data section */
};

/* Fields have GGUF's names; a *_bias is (n_out) F32 of the weight it follows, optional. */
struct layer {
    struct weight attn_norm;             /* (n_embd) */
    struct weight attn_q, attn_q_bias;   /* (n_head * head_dim, n_embd) */
    struct weight attn_k, attn_k_bias;   /* (n_head_kv * head_dim, n_embd) */
    struct weight attn_v, attn_v_bias;   /* (n_head_kv * head_dim, n_embd) */
    struct weight attn_output, attn_output_bias; /* (n_embd, n_head * head_dim) */
    struct weight ffn_norm;              /* (n_embd) */
    struct weight ffn_gate, ffn_up;      /* (n_ff, n_embd) */
    struct weight ffn_down;              /* (n_embd, n_ff) */
};

struct model {
    struct model_config config;
    struct weight token_embd;   /* (n_vocab, n_embd) */
    struct weight output_norm;  /* (n_embd) */
    struct weight output;       /* (n_vocab, n_embd); the same data as token_embd in a tied model */
    struct weight rope_freqs;   /* (n_rot / 2) F32 divisors of the frequencies, optional (Llama 3.1) */
    struct layer *layers;       /* (n_layer) */
    uint64_t types;             /* bit i: some weight is of type i (enum quant_type) */
    size_t max_packed_row;      /* bytes of the longest packed row of any tensor of the files, used or not */
};

/* What the keys of a model's first file say; c: zeros. */
plumb_status model_read_config(struct model_config *c, const struct gguf *g, struct error *err);
/* Tokens that a session holds if it is asked for n_ctx, or for none in particular (0). */
static inline uint32_t model_n_ctx(const struct model_config *c, uint32_t n_ctx) {
    if (n_ctx > 0) return n_ctx;
    return c->n_ctx_train < 2048 ? c->n_ctx_train : 2048;
}

/* Reads the keys of parts[0] and binds the tensors of all parts (several when the file was split).  n_vocab: of the
 * tokenizer; the embedding must have as many rows.  Every tensor of the file must have a place: one that this
 * architecture does not know would change its results, so it is PLUMB_ERROR_UNSUPPORTED. */
plumb_status model_create(struct model **out, struct gguf *const *parts, size_t n_part, uint32_t n_vocab,
                          struct error *err);
void model_free(struct model *m);

/* As model_create, for its errors alone: every tensor that is missing, without a place, of a wrong shape (transposed
 * ones are called so) or type is told to on_problem in one sentence, not only the first, which is also *err. */
typedef void model_on_problem(void *user, plumb_status status, const char *message);
plumb_status model_check_tensors(struct gguf *const *parts, size_t n_part, uint32_t n_vocab,
                                 model_on_problem *on_problem, void *user, struct error *err);

/* Gives the weights of a model of which only the header is there zeros to compute with, one behind the other in ring
 * and from its start again: a pass reads as much memory as with the real ones.  rope_freqs is left out, as angles are
 * divided by it.  ring: n zeros, at least model_largest_weight bytes and borrowed, or NULL: no weights. */
void model_rehearse(struct model *m, uint8_t *ring, uint64_t n);
/* Bytes of the largest one, and of all, rounded up as they lie in the ring. */
uint64_t model_largest_weight(const struct model *m, uint64_t *all);

/* The bytes of row i as in the file: in place, or in buffer (of row_bytes) if they are packed. */
static inline const uint8_t *weight_row(const struct weight *w, size_t i, uint8_t *buffer) {
    return quant_row(w->type, w->data, w->row_bytes, w->n_packed, i, buffer);
}

/* Is the embedding the output's matrix too? */
static inline bool model_is_tied(const struct model *m) { return m->output.data == m->token_embd.data; }

/* Elements of the longest row of any matrix: max(n_embd, n_ff, n_head * head_dim). */
uint64_t model_max_row(const struct model_config *c);

/* sin and cos of every RoPE angle of position pos: (n_rot / 2) each.  angle_i = pos * freq_scale * base^(-2i / n_rot)
 * / rope_freqs[i].  Same bits on every host. */
void model_rope_angles(const struct model *m, uint32_t pos, double *angles);

#endif

/* Keys -> config; tensor names -> weights, with type and shape checked together; the table of architectures.
 *
 * Weights stay quantized as they are in the gguf.  The model borrows them, so the gguf must outlive it.
 */
#ifndef PLUMB_MODEL_MODEL_H
#define PLUMB_MODEL_MODEL_H

#include "gguf/gguf.h"
#include "repack/repack.h"
#include "quant/quant.h"

/* Which two elements of a head RoPE rotates together. */
enum rope_pairing {
    ROPE_NORM,  /* (2i, 2i+1): the RoFormer paper; ggml's NORMAL */
    ROPE_NEOX,  /* (i, i + n_rot/2): GPT-NeoX, and every model whose converter does not permute Q and K */
};

struct model_config {
    const char *architecture;
    uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab, n_ctx_train;
    float rms_eps;           /* epsilon of the RMS norms, added to the mean square */
    enum rope_pairing rope_pairing;
    uint32_t n_rot;          /* RoPE rotates the first n_rot elements of a head; even, <= head_dim */
    float rope_freq_base;    /* theta */
    float rope_freq_scale;   /* positions are multiplied by it (linear scaling: 1 / factor) */
    /* The muP factors of Granite (Yang et al. 2022, "Tensor Programs V"), as in llama.cpp.  Other models have 1, and an
     * attention_scale of 0. */
    float embedding_scale;   /* embeddings are multiplied by it */
    float residual_scale;    /* the outputs of attention and feed forward are multiplied by it before they are added */
    float attention_scale;   /* scores are multiplied by it; 0: by 1 / sqrt(head_dim) */
    float logit_scale;       /* logits are divided by it */
};

/* A matrix (n_out, n_in), or a vector (n_out = 1).  data is NULL if the tensor is optional and the file lacks it. */
struct weight {
    const char *name;
    const struct quant_traits *traits;
    const uint8_t *data;
    uint32_t type;           /* enum quant_type */
    uint32_t n_in, n_out;
    size_t row_bytes;
    uint32_t n_packed;       /* the first n_packed rows are packed as in repack/repack.h */
    struct gguf *file;       /* the file that holds it */
    uint64_t offset;         /* bytes from the start of that file's data section */
};

/* Fields have GGUF's names.  A *_bias is optional, with one F32 for each n_out of the weight before it. */
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
    struct weight output;       /* (n_vocab, n_embd); a copy of token_embd, with the same data, in a tied model */
    struct weight rope_freqs;   /* (n_rot / 2) F32 divisors of the frequencies, optional (Llama 3.1) */
    struct layer *layers;       /* (n_layer) */
    uint64_t types;             /* bit i: some weight is of type i (enum quant_type) */
    size_t max_packed_row;      /* bytes of the longest packed row of any tensor of the files, used or not */
};

/* Reads the keys of a model's first file.  *c must be all zeros; n_vocab stays 0, since no key says it. */
plumb_status model_read_config(struct model_config *c, const struct gguf *g, struct error *err);
/* How many tokens a session holds if the caller asks for n_ctx; 0 asks for the default. */
static inline uint32_t model_n_ctx(const struct model_config *c, uint32_t n_ctx) {
    if (n_ctx > 0) return n_ctx;
    return c->n_ctx_train < 2048 ? c->n_ctx_train : 2048;
}

/* Reads the keys of parts[0] and binds the tensors of all parts (there are several if the file was split).  n_vocab is
 * the tokenizer's; the embedding must have as many rows.  A tensor that this architecture does not know would change
 * the results, so it is PLUMB_ERROR_UNSUPPORTED. */
plumb_status model_create(struct model **out, struct gguf *const *parts, size_t n_part, uint32_t n_vocab,
                          struct error *err);
void model_free(struct model *m);

/* Makes the checks of model_create and keeps no model.  on_problem gets one sentence for every tensor that is missing,
 * unknown, or of a wrong shape or type (a transposed one is called so).  *err is the first problem; problems with the
 * keys are in *err alone. */
typedef void model_on_problem(void *user, plumb_status status, const char *message);
plumb_status model_check_tensors(struct gguf *const *parts, size_t n_part, uint32_t n_vocab,
                                 model_on_problem *on_problem, void *user, struct error *err);

/* For a model of which only the header was read: lets its weights point to zeros, so that its speed can be measured.
 * The weights follow each other in ring and wrap around to its start, so that a pass reads as much memory as with the
 * real ones.  rope_freqs gets no data, because angles are divided by it.
 * ring: n >= model_largest_weight zero bytes, borrowed; NULL: no weight gets data. */
void model_rehearse(struct model *m, uint8_t *ring, uint64_t n);
/* Returns the bytes of the largest weight and sets *all to those of all weights, each rounded up as in the ring.  Tied
 * weights count once. */
uint64_t model_largest_weight(const struct model *m, uint64_t *all);

/* Returns the bytes of row i as in the file: in place, or unpacked into buffer (row_bytes) if they are packed. */
static inline const uint8_t *weight_row(const struct weight *w, size_t i, uint8_t *buffer) {
    return repack_file_row(w->type, w->data, w->row_bytes, w->n_packed, i, buffer);
}

/* True if the embedding is also the output matrix. */
static inline bool model_is_tied(const struct model *m) { return m->output.data == m->token_embd.data; }

/* Elements of the longest row of any matrix: max(n_embd, n_ff, n_head * head_dim). */
uint64_t model_max_row(const struct model_config *c);

/* The angles by which RoPE rotates the pairs of position pos: angles (n_rot / 2) in radians,
 * angle_i = pos * freq_scale * base^(-2i / n_rot) / rope_freqs[i].  They are the same bits on every host. */
void model_rope_angles(const struct model *m, uint32_t pos, double *angles);

#endif

/* Tensor names -> weights, with type and shape checked together.  plan.h has the plan that the keys give.
 *
 * Weights stay quantized as they are in the gguf.  The model borrows them, so the gguf must outlive it.
 */
#ifndef PLUMB_MODEL_MODEL_H
#define PLUMB_MODEL_MODEL_H

#include "gguf/gguf.h"
#include "model/plan.h"
#include "model/program.h"
#include "model/tap.h"
#include "repack/repack.h"
#include "quant/quant.h"

/* A matrix (n_out, n_in), a vector (n_out = 1), or n_matrix matrices of n_out / n_matrix rows each, one for each
 * expert. */
struct weight {
    const char *name;
    const struct quant_traits *traits;
    const uint8_t *data;     /* NULL only in a rehearsal without data */
    uint32_t type;           /* enum quant_type */
    uint32_t n_in, n_out, n_matrix;
    uint32_t n_apart;        /* rows from the start of a matrix to that of the next one */
    size_t row_bytes;
    uint32_t n_packed;       /* the first n_packed rows are packed as in repack/repack.h */
    struct gguf *file;       /* the file that holds it */
    uint64_t offset;         /* bytes from the start of that file's data section */
    uint32_t tensor, first;  /* the index of its whole tensor in the model's weights, and the row there of its first */
};

/* A weight with its bias: y = W x + b, or a norm's factors and what is added to its products.  w is NULL if the model
 * lacks the weight, b if it has no bias.  A bias has one F32 for each n_out of a matrix, or for each factor.  s is NULL
 * or one F32 by which products are multiplied: in attention W x, in the feed-forward network W x + b, as llama.cpp does
 * it (quantizers of NVFP4 write it).  Adapters inside the file add lora_b (lora_a x) to W x, with those matrices of the
 * two that are the token's adapter's: lora_a has n + 1 of (n_rank, n_in), lora_b as many of (n_out, n_rank). */
struct affine {
    const struct weight *w, *b, *s, *lora_a, *lora_b;
};

/* Whether s multiplies W x + b of this matrix, not W x. */
static inline bool weight_scales_last(enum weight_id id) {
    return (id >= W_FFN_GATE && id <= W_FFN_DOWN) || (id >= W_FFN_GATE_SHARED && id <= W_FFN_DOWN_SHARED);
}

struct layer {
    struct affine w[W_LAYER_COUNT];
    const struct program *program;
};

struct model {
    struct plan plan;
    struct affine token_embd;   /* (n_vocab, n_embd) */
    struct affine token_types;  /* (n_token_type, n_embd), optional: row 0 is added to every embedding */
    struct affine position_embd;    /* (n_ctx_train, n_embd), optional: learned positions */
    struct affine token_embd_norm;  /* (n_embd), optional: a norm of the embeddings */
    struct affine state_init;       /* (n_embd), optional: STATE_LOW of every token before the first layer */
    struct affine output_norm;  /* (n_embd), optional */
    struct affine encoder_norm; /* (n_embd) of the output of an encoder; none without one */
    struct affine output;       /* (n_vocab or n_logit, n_embd); in a tied model that of token_embd; none without
                                 * logits */
    struct affine rope_freqs;   /* (n_rope_factor) F32 divisors of the frequencies, optional (Llama 3.1) */
    struct affine rope_long, rope_short;   /* the same for sessions of many or few tokens (Phi-3) */
    /* What follows pooling, all optional: see struct pooling_plan. */
    struct affine cls, cls_norm, cls_output;   /* (n_hidden, n_embd), (n_hidden), (n_class, n_hidden) */
    struct affine dense_2, dense_3;            /* (n_dense, n_embd), (n_embd, n_dense) */
    /* Embeddings for each layer: (n_vocab, n_layer * n_per_layer), (n_layer * n_per_layer, n_embd), (n_per_layer). */
    struct affine per_layer_embd, per_layer_model_proj, per_layer_proj_norm;
    struct affine altup_proj, altup_unembd;    /* (n_stream - 1, n_embd, n_embd) */
    struct layer *layers;       /* (n_layer) */
    struct shared_program *programs;   /* of the layers; those with the same steps share one */
    struct weight *weights;     /* all weights that are bound, biases too, in the order of the file */
    size_t n_weight;
    uint64_t types;             /* bit i: some weight is of type i (enum quant_type) */
    bool is_rehearsed;          /* model_rehearse has replaced the weights by zeros */
    size_t max_packed_row;      /* bytes of the longest packed row of any tensor of the files, used or not */
};

/* A weight of layer il, or the norm of the output or of the encoder's. */
static inline const struct affine *model_affine(const struct model *m, uint32_t il, enum weight_id id) {
    if (id < W_LAYER_COUNT) return &m->layers[il].w[id];
    return id == W_ENCODER_NORM ? &m->encoder_norm : &m->output_norm;
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
 * real ones.  rope_freqs gets no data, because angles are divided by it.  Zeros choose no experts, so a pass then takes
 * others for each token.
 * ring: n >= model_largest_weight zero bytes, borrowed; NULL: no weight gets data. */
void model_rehearse(struct model *m, uint8_t *ring, uint64_t n);
/* Returns the bytes of the largest weight and sets *all to those of all weights, each rounded up as in the ring.  Tied
 * weights count once. */
uint64_t model_largest_weight(const struct model *m, uint64_t *all);

/* Rows first .. first + n_row - 1 of a matrix.  If rows are packed, first is a multiple of REPACK_ROWS. */
struct weight weight_rows(const struct weight *w, uint64_t first, uint64_t n_row);
/* Matrix i of n_matrix. */
static inline struct weight weight_expert(const struct weight *w, uint32_t i) {
    return weight_rows(w, (uint64_t)i * w->n_apart, w->n_out / w->n_matrix);
}

/* Returns the bytes of row i as in the file: in place, or unpacked into buffer (row_bytes) if they are packed. */
static inline const uint8_t *weight_row(const struct weight *w, size_t i, uint8_t *buffer) {
    return repack_file_row(w->type, w->data, w->row_bytes, w->n_packed, i, buffer);
}

/* The name of a weight (enum weight_id) in the model's files, without ".weight". */
const char *model_weight_name(const struct plan *p, uint32_t id);
/* What is before this name in layer il: "cross_" if it reads the output of an encoder, and else "". */
const char *model_weight_prefix(const struct plan *p, uint32_t il, uint32_t id);
/* The taps inside layers that the passes do not have in layer il, because it lacks the step: bit i is tap i. */
id_set model_absent_taps(const struct model *m, uint32_t il);
/* The taps that a tap is computed from, as a set; layer -1: a tap outside the layers.  TAP_L_OUT means l_out of the
 * layer before, or the embedding in layer 0; for result_norm it means l_out of the last layer. */
id_set model_tap_inputs(const struct model *m, enum tap_id id, int32_t layer);
/* The tap that one of these inputs is, and its layer: of the first layer of an encoder or decoder, TAP_L_OUT is its
 * embedding. */
struct tap_input { enum tap_id id; int32_t layer; };
struct tap_input model_tap_input(const struct model *m, enum tap_id id, int32_t layer, enum tap_id input);
/* Returns true if post_attention_layernorm is attn_post_norm, not ffn_norm (trace/tap_names.h). */
bool model_has_output_norms(const struct model *m);
/* The order of the taps: a set of enum tap_order. */
uint32_t model_tap_order(const struct model *m);

/* Elements of the vector that a kind of pooling gives; 0 if the model does not have it: see plumb_session_embed. */
uint32_t model_n_pooled(const struct model *m, plumb_pooling kind);

/* True if the embedding is also the output matrix. */
static inline bool model_is_tied(const struct model *m) { return m->output.w == m->token_embd.w; }

/* The divisors (n_rot / 2) of the frequencies of one of the plan's ropes in a session of n_ctx tokens; NULL: none. */
const float *model_rope_factors(const struct model *m, uint32_t rope, uint32_t n_ctx);
/* The angles by which one of the plan's ropes rotates the pairs of position pos in a session of n_ctx tokens: angles
 * (n_rot / 2) in radians, angle_i = pos * freq_scale * base^(-2i / n_rot) / factors[i], if the plan says no more.  They
 * are the same bits on every host. */
void model_rope_angles(const struct model *m, uint32_t rope, uint32_t n_ctx, uint32_t pos, double *angles);

#endif

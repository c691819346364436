/* Adapters: files that change what a model computes, without changing its weights.
 *
 *   LoRA            W x becomes W x + scale * alpha / rank * B (A x), of each matrix W that the file has A and B for:
 *                   Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.  A row of the
 *                   embeddings becomes that row plus scale * alpha / rank * B a, where a is the token's row of A.
 *   control vector  scale * direction.N is added to the residual stream at the end of layer N: Zou et al. 2023,
 *                   "Representation Engineering".
 *
 * The file's A and B stay as they are there, of any type.  A tensor that the model does not have, or that no pass
 * multiplies by, is refused; norms in a LoRA are ignored, as in llama.cpp.
 */
#ifndef PLUMB_MODEL_ADAPTER_H
#define PLUMB_MODEL_ADAPTER_H

#include "model/model.h"

/* What a LoRA adds to a tensor of n_matrix matrices (n_out, n_in), whose products are multiplied by factor.
 * a: n_matrix of (rank, n_in), b: n_matrix of (n_out, rank).  Of the embeddings, a is (n_vocab, rank) and b
 * (n_embd, rank).  a.data is NULL if the file has nothing for the tensor. */
struct adapter_pair {
    struct weight a, b;
    float factor;   /* alpha / rank; 1 if the file has no alpha, or 0 */
};

struct adapter {
    const struct model *model;
    struct gguf *file;
    struct adapter_pair *pairs;   /* (model->n_weight), those of the model's tensors; NULL in a control vector */
    float *directions;            /* (n_layer, n_embd), 0 where the file has none; NULL in a LoRA */
    uint32_t max_rank;
    uint64_t max_out;             /* the most rows of a matrix that a pair is for */
    _Atomic uint64_t digest;      /* what saved sessions know it by; 0: not computed yet */
};

/* Reads the adapter from file, which is complete and which it owns from now on, also after an error.  m is borrowed.
 * PLUMB_ERROR_METADATA: the keys do not say that it is an adapter, or one for this architecture; PLUMB_ERROR_TENSOR: a
 * tensor does not fit the model; PLUMB_ERROR_UNSUPPORTED: it is for a tensor that no adapter can change. */
plumb_status adapter_create(struct adapter **out, const struct model *m, struct gguf *file, struct error *err);
void adapter_free(struct adapter *a);

/* An adapter in use.  Of a control vector, the layers first_layer .. last_layer. */
struct adapter_use {
    struct adapter *adapter;
    float scale;   /* not 0 */
    uint32_t first_layer, last_layer;
};

/* The adapters that a pass uses, in this order. */
struct adapter_set {
    struct adapter_use *uses;   /* (n) */
    size_t n;
    float *directions;          /* (n_layer, n_embd) the sums of the control vectors; NULL: there is none */
    uint32_t max_rank;
    uint64_t max_out;
};

/* Makes a set of n uses, which are copied.  PLUMB_ERROR_MEMORY if there is no memory.  adapter_set_free must follow in
 * any case. */
plumb_status adapter_set_create(struct adapter_set *set, const struct model *m, const struct adapter_use *uses,
                                size_t n);
void adapter_set_free(struct adapter_set *set);

/* What an adapter adds to the product with w: a tensor of the model, or rows of one of its matrices.  a and b become
 * those of these rows, and *factor is that of the pair.  Returns false if it adds nothing. */
bool adapter_find(const struct adapter *adapter, const struct weight *w, struct weight *a, struct weight *b,
                  float *factor);
/* The same for the embeddings: a has a row for each token. */
const struct adapter_pair *adapter_embedding(const struct adapter *adapter);

#endif

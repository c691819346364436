/* Checks of a model file, and of the engine that runs it, that need no other engine.  Each check gives a verdict and
 * one line that says why.
 *
 *   plumb_selfcheck -> each row of the table in selfcheck.c: its function fills a struct check -> one line of report
 *
 * The checks of a pass take a trace of it, so that tests can give them wrong traces.
 */
#ifndef PLUMB_CHECK_SELFCHECK_H
#define PLUMB_CHECK_SELFCHECK_H

#include "gguf/gguf.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"
#include "trace/trace.h"

enum verdict {
    VERDICT_OK,
    VERDICT_WARN,   /* odd, but a correct model may have it */
    VERDICT_FAIL,
    VERDICT_SKIP,   /* there is nothing to check, or it cannot be checked */
};

struct check {
    enum verdict verdict;
    char why[240];            /* one line */
    uint32_t n_detail;        /* lines of detail that were added; only the first SELFCHECK_MAX_DETAIL are stored */
    char (*details)[240];     /* owned */
    bool out_of_memory;
    const struct model *model;   /* set by the caller, for the checks of a pass */
};
enum { SELFCHECK_MAX_DETAIL = 1000 };

/* Sets the verdict and its line, printf-like. */
PRINTF_LIKE(3, 4) void check_set(struct check *c, enum verdict verdict, const char *format, ...);
/* Adds a line of detail, printf-like.  Sets out_of_memory if there is no memory for it. */
PRINTF_LIKE(2, 3) void check_detail(struct check *c, const char *format, ...);

/* Returns the row->n values of head h of a row. */
static inline const float *check_head(const struct trace_row *row, uint32_t h) {
    return row->values + (size_t)h * row->n;
}

/* ---- checks of a pass: t is a trace of all its taps, whole ------------------------------------------------------- */

/* Checks that what RoPE rotates of each head of Q and K has the same Euclidean norm after it as before, times the
 * magnitude of the RoPE, and that the rest of the head is the same.  In latent attention RoPE reads a part of the
 * vectors that Q and K are made of. */
void selfcheck_rope(struct check *c, const struct plumb_trace *t);
/* Checks that attention weights are at least 0, sum to 1 for each head and token (with sinks to at most 1), and are 0
 * for the tokens that a token does not see: later ones, and those before its window. */
void selfcheck_softmax(struct check *c, const struct plumb_trace *t);
/* Checks the first token: at position 0 RoPE rotates nothing, and attention has a single key, so every head returns the
 * V of its group, times the attention weight, which is 1 without sinks. */
void selfcheck_first(struct check *c, const struct plumb_trace *t);
/* Checks latent attention that is absorbed: every head must give, within a bound, what it gives with K and V of its
 * own, which attn_k_b and attn_v_b make of the latent vectors (struct latent_plan). */
void selfcheck_absorbed(struct check *c, const struct plumb_trace *t);
/* Checks the experts of each token: they are different ones, no other has a better score, their weights sum to 1 if
 * they must, and ffn_moe_out is the sum of their weighted outputs. */
void selfcheck_experts(struct check *c, const struct plumb_trace *t);
/* Checks that two ways of computing the results give exactly equal numbers.  a, b: (n_token, n_element) logits, or
 * embeddings if c->model has no logits.  what: names the two ways, "in one batch and one by one".  0 equals -0, and NaN
 * equals a NaN of the same bits. */
void selfcheck_logits(struct check *c, const float *a, const float *b, uint32_t n_token, uint32_t n_element,
                      const char *what);
/* Checks that the relative RMS error of every tap of the fast pass against the reference pass is at most bound.  The
 * details name the worst tap of each layer and the taps outside the layers, even if the verdict is OK. */
void selfcheck_reference(struct check *c, const struct plumb_trace *fast, const struct plumb_trace *reference,
                         double bound);

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Statistics of a dequantized tensor, (n_row, n_in). */
struct tensor_stats {
    const struct gguf_tensor *tensor;
    uint64_t n_row;
    uint64_t n_nan, n_inf, first_bad;   /* first_bad: index of the first of them in the flattened tensor */
    uint64_t n_negative, n_one;         /* how many values are < 0, and how many are exactly 1 */
    uint64_t n_zero, first_zero;        /* if it has several matrices: how many are all 0, and the first of them */
    uint64_t n_constant, first_constant;/* if n_in > 1: how many rows have only equal values, and the first such row */
    double mean, rms, max_abs;          /* of the finite values */
    uint64_t max_place;                 /* index of max_abs in the flattened tensor */
    /* The usual magnitude: the RMS of each 32 elements is computed, and this is the geometric mean of those that are
     * not 0.  Unlike the RMS of the whole tensor, it hardly changes if a few blocks are wrong. */
    double usual;
};
/* Fails with PLUMB_ERROR_MEMORY if there is no memory for a row. */
plumb_status tensor_stats_of(struct tensor_stats *s, const struct gguf_tensor *t, struct error *err);

/* Checks that all values are finite, and that the values of a tensor are not all 0 and have a magnitude that trained
 * tensors have.  A bias only has to be finite. */
void selfcheck_statistics(struct check *c, const struct tensor_stats *stats, size_t n);
/* Checks that the RMS of every tensor is near that of the same tensor in the other layers. */
void selfcheck_layers(struct check *c, const struct tensor_stats *stats, size_t n);
/* Checks that the weights of each norm have a usual RMS, and that those of most norms are not centred on 0. */
void selfcheck_norms(struct check *c, const struct tensor_stats *stats, size_t n);
/* Checks that the file has embeddings, and that the output matrix, tied to them or not, is not all zeros. */
void selfcheck_head(struct check *c, const struct tensor_stats *stats, size_t n);

/* Checks that rows of Q and K which RoPE rotates together have similar lengths, with the pairing of the architecture,
 * and that rows of V do not: else K and V are exchanged, or rows are permuted.  Takes c->model. */
void selfcheck_pairs(struct check *c);
/* Checks that norms change slowly from layer to layer: else layers, or two kinds of norms, are exchanged. */
void selfcheck_depth(struct check *c, const struct tensor_stats *stats, size_t n);
/* Computes the perplexity of a text that every model of English knows, and judges it.  t may be NULL.  Skips what has
 * no logits or no texts, and toys.  n_param: weights of the model.  Takes c->model.  PLUMB_ERROR_MEMORY. */
plumb_status selfcheck_text(struct check *c, struct tokenizer *t, uint64_t n_param, struct error *err);
/* Judges a perplexity.  NaN fails. */
void selfcheck_perplexity(struct check *c, double perplexity, uint32_t n_token, uint32_t n_vocab);
/* Splits a name such as "blk.12.attn_q.weight" into the layer and the rest.  Returns false for a tensor outside the
 * layers. */
bool selfcheck_in_layer(const struct gguf_tensor *t, uint32_t *layer, const char **rest);

/* ---- tokenizer --------------------------------------------------------------------------------------------------- */

/* Checks that texts come back unchanged from their tokens, and that the text of each special token is parsed as one
 * token. */
void selfcheck_tokenizer(struct check *c, struct tokenizer *t);

#endif

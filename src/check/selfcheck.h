/* Checks of a model file, and of the engine running it, that need no other engine to compare with.  Each check gives a
 * verdict and one line that says why.
 *
 *   selfcheck_run -> for each row of the table in selfcheck.c: its function fills a struct check -> one line of report
 *
 * The checks of a pass are functions of a trace of it, so that tests can give them wrong traces.
 */
#ifndef PLUMB_CHECK_SELFCHECK_H
#define PLUMB_CHECK_SELFCHECK_H

#include "gguf/gguf.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"
#include "trace/trace.h"

enum verdict {
    VERDICT_OK,
    VERDICT_WARN,   /* odd, but correct models may have it */
    VERDICT_FAIL,
    VERDICT_SKIP,
};

struct check {
    enum verdict verdict;
    char why[240];            /* one line */
    uint32_t n_detail;        /* lines of detail; those beyond SELFCHECK_MAX_DETAIL are only counted */
    char (*details)[240];     /* owned */
    bool out_of_memory;
    bool norms_after_rope;   /* set by the caller: the pass computes the norms of Q and K after RoPE */
    bool has_sinks;          /* the same: attention weights may sum to less than 1 */
    bool sees_later;         /* the same: tokens attend to later ones */
};
enum { SELFCHECK_MAX_DETAIL = 1000 };

/* Sets the verdict and its line, printf-like. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void check_set(struct check *c, enum verdict verdict, const char *format, ...);
/* Adds a line of detail, printf-like.  Sets out_of_memory if there is no memory for it. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void check_detail(struct check *c, const char *format, ...);

/* ---- checks of a pass: t is a trace of all its taps, whole ------------------------------------------------------- */

/* Every head of Q and K has the same length after RoPE as before. */
void selfcheck_rope(struct check *c, const struct plumb_trace *t);
/* Attention weights are >= 0, sum to 1 per head and token, and are 0 for later tokens. */
void selfcheck_softmax(struct check *c, const struct plumb_trace *t);
/* At position 0 RoPE changes no value, and attention has a single key, so every head returns the V of its group. */
void selfcheck_first(struct check *c, const struct plumb_trace *t);
/* Two ways of computing the logits (n_token, n_vocab) give the same bits.  what names them: "in one batch and one by
 * one". */
void selfcheck_logits(struct check *c, const float *a, const float *b, uint32_t n_token, uint32_t n_vocab,
                      const char *what);
/* The relative RMS error of every tap of the fast pass against the reference pass is at most bound.  Its details name
 * the worst tap of each layer and the taps outside the layers, also if the verdict is OK. */
void selfcheck_reference(struct check *c, const struct plumb_trace *fast, const struct plumb_trace *reference,
                         double bound);

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Statistics of a dequantized tensor, (n_row, n_in). */
struct tensor_stats {
    const struct gguf_tensor *tensor;
    uint64_t n_row;
    uint64_t n_nan, n_inf, first_bad;   /* first_bad: index of the first of them in the flattened tensor */
    uint64_t n_negative, n_one;         /* values < 0; values that are exactly 1 */
    uint64_t n_constant, first_constant;/* rows in which all values are equal, if n_in > 1; the first of them */
    double mean, rms, max_abs;          /* of the finite values */
    uint64_t max_place;                 /* index of max_abs in the flattened tensor */
    /* The usual magnitude: the geometric mean of the RMS of every 32 elements that are not all 0.  Unlike the RMS, it
     * hardly changes if a few blocks are wrong. */
    double usual;
};
/* PLUMB_ERROR_MEMORY if there is none for a row. */
plumb_status tensor_stats_of(struct tensor_stats *s, const struct gguf_tensor *t, struct error *err);

/* The values are finite, not all 0, and of a magnitude that trained tensors have. */
void selfcheck_statistics(struct check *c, const struct tensor_stats *stats, size_t n);
/* The RMS of every tensor is near that of the same tensor in the other layers. */
void selfcheck_layers(struct check *c, const struct tensor_stats *stats, size_t n);
/* Norm weights have a usual RMS, and most norms do not lie around 0. */
void selfcheck_norms(struct check *c, const struct tensor_stats *stats, size_t n);
/* The embeddings are there, and the output matrix, tied to them or not, is not all zeros. */
void selfcheck_head(struct check *c, const struct tensor_stats *stats, size_t n);

/* ---- tokenizer --------------------------------------------------------------------------------------------------- */

/* Texts come back unchanged from their tokens, and each special token is parsed as itself. */
void selfcheck_tokenizer(struct check *c, struct tokenizer *t);

/* ---- all checks -------------------------------------------------------------------------------------------------- */

struct selfcheck_input {
    struct gguf *const *parts;     /* (n_part) of the file; complete if is_complete */
    size_t n_part;
    struct tokenizer *tokenizer;   /* NULL: there is none */
    const struct model *model;     /* NULL: it could not be built */
    const char *load_error;        /* the reason; "" if there is none */
    bool is_complete;              /* all bytes have arrived */
};
/* Runs all checks and writes the report.  *ok: no check failed.  PLUMB_ERROR_MEMORY; PLUMB_ERROR_ARGUMENT for a format
 * other than text and JSON. */
plumb_status selfcheck_run(const struct selfcheck_input *in, const plumb_report *report, bool *ok, struct error *err);

#endif

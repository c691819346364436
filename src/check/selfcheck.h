/* Checks of a file and of the engine on it that need no reference: each gives a verdict and one line of why.
 *
 *   selfcheck_run -> for each row of the table in selfcheck.c: its function fills a struct check -> one line of report
 *
 * Checks of a pass are functions over a trace of it, so that tests can hand them wrong ones.
 */
#ifndef PLUMB_CHECK_SELFCHECK_H
#define PLUMB_CHECK_SELFCHECK_H

#include "gguf/gguf.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"
#include "trace/trace.h"

enum verdict {
    VERDICT_OK,
    VERDICT_WARN,   /* odd, but models that are right may have it */
    VERDICT_FAIL,
    VERDICT_SKIP,
};

struct check {
    enum verdict verdict;
    char why[240];            /* one line */
    uint32_t n_detail;        /* lines behind it; those above SELFCHECK_MAX_DETAIL are only counted */
    char (*details)[240];     /* owned */
    bool out_of_memory;
};
enum { SELFCHECK_MAX_DETAIL = 1000 };

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void check_set(struct check *c, enum verdict verdict, const char *format, ...);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void check_detail(struct check *c, const char *format, ...);

/* ---- a run of a pass: a trace of all its taps, whole ------------------------------------------------------------- */

/* Each head of Q and K is as long after RoPE as before. */
void selfcheck_rope(struct check *c, const struct plumb_trace *t);
/* Rows of attention weights are >= 0, sum to 1, and are 0 after the token's own position. */
void selfcheck_softmax(struct check *c, const struct plumb_trace *t);
/* At position 0 RoPE turns by nothing, exactly, and attention has one key: every head gives the V of its group. */
void selfcheck_first(struct check *c, const struct plumb_trace *t);
/* Two ways to the same logits (n_token, n_vocab), bit for bit.  what: "in one batch and one by one". */
void selfcheck_logits(struct check *c, const float *a, const float *b, uint32_t n_token, uint32_t n_vocab,
                      const char *what);
/* Relative RMS error of every tap of the fast pass against the reference pass. */
void selfcheck_reference(struct check *c, const struct plumb_trace *fast, const struct plumb_trace *reference,
                         double bound);

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Of a dequantized tensor, (n_row, n_in). */
struct tensor_stats {
    const struct gguf_tensor *tensor;
    uint64_t n_row;
    uint64_t n_nan, n_inf, first_bad;   /* first_bad: place of the first of them in the flattened tensor */
    uint64_t n_negative, n_one;
    uint64_t n_constant, first_constant;/* rows of one value, n_in > 1 */
    double mean, rms, max_abs;          /* of the finite values */
    uint64_t max_place;
    /* Geometric mean of the RMS of every 32 elements that are not all 0: the usual magnitude, which a few wrong blocks,
     * unlike the RMS, do not move. */
    double usual;
};
plumb_status tensor_stats_of(struct tensor_stats *s, const struct gguf_tensor *t, struct error *err);

void selfcheck_statistics(struct check *c, const struct tensor_stats *stats, size_t n);
void selfcheck_layers(struct check *c, const struct tensor_stats *stats, size_t n);
void selfcheck_norms(struct check *c, const struct tensor_stats *stats, size_t n);
void selfcheck_head(struct check *c, const struct tensor_stats *stats, size_t n);

/* ---- tokenizer --------------------------------------------------------------------------------------------------- */

void selfcheck_tokenizer(struct check *c, struct tokenizer *t);

/* ---- all --------------------------------------------------------------------------------------------------------- */

struct selfcheck_input {
    struct gguf *const *parts;     /* complete, unless load says otherwise */
    size_t n_part;
    struct tokenizer *tokenizer;   /* NULL: there is none */
    const struct model *model;     /* NULL: it could not be built */
    const char *load_error;        /* why; "" */
    bool is_complete;              /* all bytes have arrived */
};
/* *ok: no check failed.  PLUMB_ERROR_MEMORY; PLUMB_ERROR_ARGUMENT for a format other than text and JSON. */
plumb_status selfcheck_run(const struct selfcheck_input *in, const plumb_report *report, bool *ok, struct error *err);

#endif

/* plumb_diff's work: two traces held against each other, tap by tap, and what the outcome means.
 *
 *   diff_compare: traces -> struct diff, which has every figure of the report
 *   diff_text, diff_json, diff_html: struct diff -> bytes
 */
#ifndef PLUMB_DIFF_DIFF_H
#define PLUMB_DIFF_DIFF_H

#include "trace/compare.h"
#include "trace/heads.h"
#include "trace/report.h"
#include "trace/tokens.h"

struct diff_tap {
    enum tap_id id;
    int32_t layer;
    struct comparison c;
    double error, cosine;
    double rms_a, rms_b;        /* of the tokens that both have; NAN: not known */
    bool shapes_differ;         /* then nothing was compared */
    uint32_t shape_a[2], shape_b[2];   /* (n_head, n) per token; 0, 0: not known */
    bool over;                  /* the tolerance, or shapes differ */
};

enum diff_kind {
    DIFF_AGREE,
    DIFF_TOKENS,      /* other tokens: nothing was compared */
    DIFF_NOTHING,     /* nothing that both sides know: that is no agreement, and no difference */
    DIFF_SHAPES,      /* the first tap that parts has another shape */
    DIFF_JUMP,        /* its error is at least DIFF_JUMP_FACTOR times that of every earlier tap */
    DIFF_GRADUAL,     /* it is not: the error has grown */
};
#define DIFF_JUMP_FACTOR 8

/* What a tap is computed from, as far as it was compared. */
struct diff_inputs {
    uint32_t n;
    size_t taps[TAP_COUNT];   /* (n) indices, latest first */
    bool direct;              /* they are all that feeds it, not what feeds steps between them and it */
    double error;             /* the largest; NAN: none is known */
};

struct diff {
    const struct plumb_trace *a, *b;   /* one of them may be permuted */
    char permuted_side;                /* 'A' or 'B': its Q and K came in transformers' order (heads.h); 0: neither */
    struct plumb_trace permuted;       /* that side in the GGUF's */
    const struct tokenizer *vocab;     /* may be NULL */
    const char *name_a, *name_b;
    double tolerance;
    struct tokens_difference tokens;
    size_t n_tap;
    struct diff_tap *taps;             /* (n_tap) those that both have, in the order of the computation */
    int32_t n_layer;                   /* the last layer among them + 1 */
    size_t n_only_a, n_only_b;         /* taps that one side has alone */
    size_t n_apart;                    /* taps of both that have nothing in common to compare */
    size_t n_over;
    enum diff_kind kind;
    size_t first;                      /* index of the first tap over the tolerance; n_tap: none */
    size_t worst;                      /* index of the largest error; n_tap: none */
    struct diff_inputs inputs;         /* of the first one over */
    double growth;                     /* of DIFF_GRADUAL: factor of the error from layer to layer; NAN: not known */
    uint32_t top_pos;                  /* token whose likeliest successors both sides know */
    uint32_t n_top_a, n_top_b;         /* 0: they do not */
    struct trace_value top_a[TRACE_TOP], top_b[TRACE_TOP];   /* ids and logits */
    size_t n_verdict;
    char verdict[2400];                /* paragraphs, each ended by '\n' */
};

/* names as in plumb_report.  Borrows everything.  diff_free also after a failure. */
plumb_status diff_compare(struct diff *d, const struct plumb_trace *a, const struct plumb_trace *b,
                          const struct tokenizer *vocab, const plumb_report *report, struct error *err);
void diff_free(struct diff *d);
static inline bool diff_agrees(const struct diff *d) { return d->kind == DIFF_AGREE; }
/* "agree", "tokens"... */
const char *diff_kind_name(enum diff_kind kind);

void diff_text(const struct diff *d, struct report_writer *w);
void diff_json(const struct diff *d, struct report_writer *w);    /* docs/diff.md */
void diff_html(const struct diff *d, struct report_writer *w);

#endif

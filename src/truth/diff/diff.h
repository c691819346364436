/* The work of plumb_diff: compares two traces tap by tap and says what the outcome means.  B counts as the truth.
 *
 *   diff_compare: traces -> struct diff, which holds every number of the report
 *   diff_text, diff_json, diff_html: struct diff -> bytes
 *
 * The sides diverge at a tap if its error is over the tolerance or its shapes differ.
 */
#ifndef PLUMB_DIFF_DIFF_H
#define PLUMB_DIFF_DIFF_H

#include "model/model.h"
#include "trace/compare.h"
#include "trace/heads.h"
#include "trace/report.h"
#include "trace/tokens.h"
#include "trace/view.h"

struct diff_tap {
    enum tap_id id;
    int32_t layer;
    struct comparison c;
    double error, cosine;       /* NAN if the shapes differ; the cosine is NAN also if no values were compared */
    double rms_a, rms_b;        /* over the tokens that both have or, if the RMS of one of them is not known, over the
                                 * compared values; NAN: neither is known */
    bool shapes_differ;         /* the shapes differ, so no values were compared */
    uint32_t shape_a[2], shape_b[2];   /* (n_head, n) of one token; 0, 0: not known */
    bool over;                  /* the error is over the tolerance, or the shapes differ */
};

enum diff_kind {
    DIFF_AGREE,
    DIFF_TOKENS,      /* the tokens differ: nothing was compared */
    DIFF_NOTHING,     /* the sides have nothing in common to compare: neither agreement nor difference */
    DIFF_SHAPES,      /* the first tap that diverges has different shapes */
    DIFF_JUMP,        /* the error of that tap is at least DIFF_JUMP_FACTOR times that of every earlier tap */
    DIFF_GRADUAL,     /* the error of that tap is less than this: it has grown step by step */
};
#define DIFF_JUMP_FACTOR 8

/* The nearest compared taps from which a tap is computed. */
struct diff_inputs {
    uint32_t n;
    size_t taps[TAP_COUNT];   /* (n) indices, latest first */
    bool direct;              /* these taps are its own inputs; false: some are inputs of missing taps in between */
    double error;             /* the largest error of these taps; NAN: none is known */
};

struct diff {
    const struct plumb_trace *a, *b;   /* the traces of the views; one of them may be &permuted */
    struct trace_view views[2];        /* of A and B, with layers counted from 0 and with remarks */
    char permuted_side;                /* 'A' or 'B': the side with Q and K in transformers' order (heads.h); 0: none */
    struct plumb_trace permuted;       /* that side in the GGUF's order */
    const struct model *model;         /* may be NULL */
    const struct tokenizer *vocab;     /* may be NULL */
    const char *name_a, *name_b;
    double tolerance;
    struct tokens_difference tokens;
    size_t n_tap;
    struct diff_tap *taps;             /* (n_tap) the taps that both have, in the order of the computation */
    int32_t n_layer;                   /* index of the last layer among these taps, plus 1.  A diff does not know the
                                        * model, so it takes this layer for the model's last */
    size_t n_only_a, n_only_b;         /* how many taps only A or only B has */
    size_t n_incomparable;             /* how many taps both have, but without any value or statistic in common */
    size_t n_over;                     /* how many taps are over the tolerance or have different shapes */
    enum diff_kind kind;
    size_t first;                      /* index of the first tap that diverges; n_tap: none */
    size_t worst;                      /* index of the tap with the largest error; n_tap: none */
    struct diff_inputs inputs;         /* of the first tap that diverges */
    double growth;                     /* for DIFF_GRADUAL: factor of the error per layer; NAN: not known */
    uint32_t top_pos;                  /* the last token after which both sides know the likeliest tokens */
    uint32_t n_top_a, n_top_b;         /* either is 0: there is no such token */
    struct trace_value top_a[TRACE_TOP], top_b[TRACE_TOP];   /* token ids and logits */
    size_t n_verdict;
    char verdict[2400];                /* paragraphs, each ended by '\n' */
};

/* Compares a with b, whose taps are in the same order.  model, which says which taps there are, and vocab may be
 * NULL.  *d borrows everything that it is given, including the names in report.  Release it with diff_free, also after
 * a failure. */
plumb_status diff_compare(struct diff *d, const struct plumb_trace *a, const struct plumb_trace *b,
                          const struct model *model, const struct tokenizer *vocab, const plumb_report *report,
                          struct error *err);
void diff_free(struct diff *d);
static inline bool diff_agrees(const struct diff *d) { return d->kind == DIFF_AGREE; }
/* Returns "agree", "tokens"... */
const char *diff_kind_name(enum diff_kind kind);

void diff_text(const struct diff *d, struct report_writer *w);
void diff_json(const struct diff *d, struct report_writer *w);    /* docs/diff.md */
void diff_html(const struct diff *d, struct report_writer *w);

#endif

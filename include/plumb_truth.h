/* plumb's truth tools: what a pass computes and what another engine says it computes, compared and explained.  The
 * engine (plumb.h) uses nothing of this header, and a program that calls nothing of it is linked without the tools.
 *
 *   a pass or a file -> plumb_trace -> plumb_diff, plumb_diagnose -> report
 *   one file or two  -> plumb_selfcheck, plumb_weights            -> report
 *
 * Failures are as in plumb.h; the message of one on a trace is plumb_trace_error.
 */
#ifndef PLUMB_TRUTH_H
#define PLUMB_TRUTH_H

#include "plumb.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The reference pass: the slow, exact definition with f32 weights and f64 sums. */
extern const struct plumb_pass_functions plumb_reference_pass;
#define PLUMB_PASS_REFERENCE (&plumb_reference_pass)

/* ---- traces: what a pass computed, and what another engine says it computed -------------------------------------- */

typedef enum plumb_format {
    PLUMB_FORMAT_TEXT = 0,  /* for a terminal */
    PLUMB_FORMAT_JSON = 1,  /* docs/trace.md, docs/diff.md, docs/diagnose.md */
    PLUMB_FORMAT_HTML = 2,  /* one self-contained page; for plumb_diff only */
    PLUMB_FORMAT_GGUF = 3,  /* whole tensors; for plumb_trace_write only */
} plumb_format;

typedef struct plumb_trace plumb_trace;

typedef struct plumb_trace_params {
    const char *taps;      /* names of the taps to keep, such as "l_out-*,result_output"; * stands for any text and ?
                            * for any byte.  The other names of a tap (docs/trace.md) are accepted too.  NULL: all */
    uint32_t layer_first;  /* the first layer whose taps are kept; this does not concern taps outside the layers */
    uint32_t layer_last;   /* the last one; UINT32_MAX: the model's last layer */
    uint32_t n_value;      /* how many of the first values of each tap and token are kept, for result_output also the
                            * ten largest unless it is 0; UINT32_MAX: all */
} plumb_trace_params;

/* Returns NULL if out of memory. */
plumb_trace *plumb_trace_create(void);
void plumb_trace_free(plumb_trace *trace);
/* The message of the last failure, or "" if there was none. */
const char *plumb_trace_error(const plumb_trace *trace);
/* Starts a new trace, and forgets the old one.  The caller will feed these n tokens to the session from an empty cache,
 * the first n_prompt of them as a prompt and the others one by one, and pass its taps to plumb_trace_add.  params may
 * be NULL: all taps, 8 values.  PLUMB_ERROR_ARGUMENT if a name in params->taps matches no tap in these layers, or if
 * the model does not have all of the layers. */
plumb_status plumb_trace_begin(plumb_trace *trace, const plumb_session *session, const int32_t *ids, size_t n,
                               size_t n_prompt, const plumb_trace_params *params);
/* Records a tap, as on_tap receives it: mean, RMS, extremes, counts of NaN and Inf, the first values, and for
 * kq_soft_max the entropy of each head.  After a failure, all further calls fail. */
plumb_status plumb_trace_add(plumb_trace *trace, const plumb_tap *tap);
/* Replaces the trace by that of a file, whose format is recognized by its bytes: a trace as JSON (written by plumb or
 * by another program: docs/trace.md) or GGUF, the text that llama-eval-callback prints, or arrays of numpy.savez. */
plumb_status plumb_trace_read(plumb_trace *trace, const void *bytes, size_t n);
/* Writes the trace as PLUMB_FORMAT_JSON, PLUMB_FORMAT_TEXT (a table) or PLUMB_FORMAT_GGUF, for which all values must
 * have been kept (n_value UINT32_MAX). */
plumb_status plumb_trace_write(plumb_trace *trace, plumb_format format, plumb_write *write, void *user);
/* The number of tokens that were fed, or 0 if it is not known. */
size_t plumb_trace_n_token(const plumb_trace *trace);
/* The ids of these tokens, or NULL if they are not known.  Valid until the trace is changed. */
const int32_t *plumb_trace_tokens(const plumb_trace *trace);
/* The number of values that the trace keeps for all taps and tokens.  The size of a file depends on it. */
uint64_t plumb_trace_n_value(const plumb_trace *trace);
/* Sets the tokens of a trace whose file does not have them.  n_prompt is as in plumb_trace_begin. */
plumb_status plumb_trace_set_tokens(plumb_trace *trace, const int32_t *ids, size_t n, size_t n_prompt);

/* Parameters of the reports below.  Zero-initialize. */
typedef struct plumb_report {
    plumb_format format;
    plumb_write *write;
    void *user;            /* for write and on_progress */
    double tolerance;      /* the largest relative error of numbers that agree.  0: 0.01 for plumb_diff and
                            * plumb_diagnose; for plumb_weights it then depends on the types of the tensors */
    const char *name_a, *name_b;   /* names of the two sides, such as file names; may be NULL.  plumb_diagnose and
                                    * plumb_selfcheck use only name_a */
    void (*on_progress)(void *user, double done);   /* done: 0..1; may be NULL; plumb_diff does not call it */
    bool all;              /* plumb_weights as text lists the tensors that agree too */
} plumb_report;

/* Compares a with b, which is taken for the truth.  model may be NULL; if it is given, the report can show the texts of
 * tokens.  *agree: no tap exceeds the tolerance, and the tokens are the same.  If the two sides have nothing in common
 * to compare, it writes the report and then returns PLUMB_ERROR_ARGUMENT.  Messages are in plumb_trace_error(a). */
plumb_status plumb_diff(plumb_trace *a, plumb_trace *b, plumb_model *model, const plumb_report *report, bool *agree);
/* What plumb_diagnose says of a dump. */
typedef enum plumb_verdict {
    PLUMB_VERDICT_DIFFERS,
    PLUMB_VERDICT_AGREES,            /* also if it rounds activations in a way that plumb recognizes */
    PLUMB_VERDICT_AGREES_BUT_NOISE   /* only if errors as small as those of rounded activations are noise, whose kind is
                                      * not known; not if report->tolerance is given */
} plumb_verdict;
/* Looks for known mistakes that make the reference pass compute the numbers in theirs, for up to max_known
 * of them together (at most 3; 0: 3).  *verdict: whether theirs agrees with the truth as it is (docs/diagnose.md).
 * PLUMB_FORMAT_TEXT or PLUMB_FORMAT_JSON.  Messages are in plumb_model_error(model). */
plumb_status plumb_diagnose(plumb_model *model, plumb_trace *theirs, uint32_t max_known, const plumb_report *report,
                            plumb_verdict *verdict);
/* Describes known mistake i of those that plumb_diagnose knows: *name, such as "rope.pairing=halves"; *tap, the first
 * tap that it changes; *models, "all" or the models that it concerns, such as "with RoPE"; *text, what the mistake is.
 * Returns false if i is past the last one. */
bool plumb_known_mistake(size_t i, const char **name, const char **tap, const char **models, const char **text);
/* Returns true if known mistake i can change any number of this model; false if the model is not completely loaded. */
bool plumb_known_mistake_applies(const plumb_model *model, size_t i);
/* Runs all checks that need no reference.  The report has one line for each: OK, WARN (unusual, but correct models may
 * have it), FAIL or SKIP, and the reason.  All available bytes of the model must have been committed, but
 * plumb_model_end need not have been called.  The report includes what plumb_model_commit has refused and what
 * plumb_model_end would refuse.  *ok: no check failed.  PLUMB_FORMAT_TEXT or PLUMB_FORMAT_JSON. */
plumb_status plumb_selfcheck(plumb_model *model, const plumb_report *report, bool *ok);
/* Compares the tensors of two files, of any types, by name and as dequantized, and says what would explain a
 * difference: a scale, an offset, permuted or transposed rows, a misread type...  *agree: every tensor is in both
 * files, and they differ by no more than their types explain, or than report->tolerance if that is not 0.  All bytes
 * must have been committed, but plumb_model_end need not have been called.  PLUMB_FORMAT_TEXT or PLUMB_FORMAT_JSON.
 * Messages are in plumb_model_error(a). */
plumb_status plumb_weights(plumb_model *a, plumb_model *b, const plumb_report *report, bool *agree);

/* Writes some lines of text about what the model computes, from its keys: heads, windows, RoPE, experts, and in which
 * layers.  Needs the header only.  Fails as plumb_model_end does if plumb does not support the keys. */
plumb_status plumb_model_describe(plumb_model *model, plumb_write *write, void *user);

#ifdef __cplusplus
}
#endif

#endif

/* A trace holds what is known about the activations of one run of plumb or of another engine.  It may be complete or
 * have only some of the taps, tokens and values.
 *
 *   struct plumb_trace -> taps, in the order of the computation -> rows, one for each token -> values and statistics
 *
 * A row stores some or all of its values.  The place of a value is its index in the flattened (n_head, n).  The same
 * structure therefore holds a whole activation, its first eight values, the first and last three of each head that
 * llama-eval-callback prints, or the ten largest logits.  Any two rows are compared at the places that both have.
 *
 * A trace may come from a file, so nothing in it is trusted.  A trace owns everything that its pointers lead to, except
 * vocab; trace_clear frees it.  The functions below copy what they are given.
 */
#ifndef PLUMB_TRACE_TRACE_H
#define PLUMB_TRACE_TRACE_H

#include "plumb_truth.h"
#include "tokenizer/tokenizer.h"
#include "trace/remarks.h"
#include "trace/tap_names.h"

/* Statistics of a row.  NAN: not known, or there is no finite value. */
struct trace_stats {
    double mean, rms;       /* of the finite values */
    double min, max;        /* of the finite values */
    double n_nan, n_inf;    /* how many values are NaN or infinite */
};

/* A tap may have this many more rows than there are tokens.  An engine that by mistake feeds BOS twice and the last
 * token twice computes two rows more than it lists tokens. */
#define TRACE_MAX_EXTRA_ROWS 2u
#define TRACE_ALL_TOKENS UINT32_MAX   /* pos of a row whose statistics cover all tokens together */

/* A value and its place in a row.  In a row of logits the place is the token id. */
struct trace_value {
    uint32_t place;
    float value;
};
int trace_by_place(const void *a, const void *b);   /* compares two struct trace_value, for qsort */

struct trace_row {
    uint32_t pos;           /* index of the token among those fed, or TRACE_ALL_TOKENS */
    uint32_t n_head, n;     /* shape (n_head, n); n_head is 1 if the tap has no heads; 0, 0: not known */
    uint32_t n_value;
    float *values;          /* (n_value) */
    uint32_t *places;       /* (n_value) ascending indices into the flattened (n_head, n).  NULL: 0, 1, 2... */
    uint32_t n_top;         /* result_output: this many of the values are the largest of the whole row; 0: not known */
    float quantum;          /* step that printing rounded the values to, 1e-4 for "%.4f"; 0: not rounded */
    struct trace_stats stats;
    float *entropy;         /* (n_head) entropies of kq_soft_max, in nats; NULL: not known */
};

/* Returns the place of value i of a row. */
static inline uint32_t trace_place(const struct trace_row *row, uint32_t i) { return row->places ? row->places[i] : i; }

/* Whether a row has all values of its token, n of them. */
static inline bool trace_is_whole(const struct trace_row *row, uint64_t n) {
    return !row->places && row->n_value > 0 && row->n_value == n && row->pos != TRACE_ALL_TOKENS;
}

struct trace_tap {
    enum tap_id id;
    int32_t layer;
    uint32_t n_row, cap;
    struct trace_row *rows; /* (n_row) ascending by pos; no two have the same pos */
    bool unsorted;          /* the rows do not ascend yet: see trace_new_row */
    uint32_t name;          /* what tap_parse returned for its name in the file; 0: trace_begin_tap was not called */
};

/* The text of a token, escaped like pieces. */
struct trace_text {
    int32_t id;
    char *text;
};

struct plumb_trace {
    struct error err;
    char *source;           /* the program that computed it; NULL if the trace does not say */
    int32_t *tokens;        /* (n_token) ids in the order they were fed; NULL: not known */
    uint32_t n_token;       /* 0: not known.  Some files show this number by their shapes, but not the ids */
    uint32_t n_prompt;      /* the first n_prompt tokens were computed as one prompt, the others one by one */
    char **pieces;          /* (n_token) texts of the tokens, escaped; NULL, or an element NULL: not known */
    struct trace_text *texts;        /* (n_text) texts of the likeliest tokens, ascending by id */
    size_t n_text, cap_text;
    bool unsorted_texts;             /* texts do not ascend yet: see trace_add_text */
    /* Writes at most cap bytes of a token's text, also of a control token, and returns how many it has; below 0: there
     * is no such token, or the model is freed.  NULL in a trace from a file. */
    int64_t (*piece)(const struct plumb_trace *t, int32_t id, char *buf, size_t cap);
    struct tokenizer_weak_ref vocab; /* used by piece; vocab.t is NULL once the model is freed */
    int32_t bos;            /* id of BOS; -1: not known */
    plumb_trace_params params;   /* what plumb_trace_add keeps; params.taps is owned */
    bool by_module;         /* the file calls Qcur or Kcur by their modules in transformers: see heads.h */
    bool has_output_norms;  /* post_attention_layernorm is attn_post_norm: see trace_begin_tap */
    id_set unsure_axes;     /* taps (TAP_SET) with as many heads as tokens, of which the file does not say which axis is
                             * which: see view_exchange_axes */
    id_set with_bias;       /* taps of which an ONNX graph has the sum with a bias too: see trace_begin_tap */
    struct remarks remarks; /* what was left out of the file, and what about it is odd */
    uint32_t order;         /* of the taps: a set of enum tap_order.  0 also if the trace does not say */
    size_t n_tap, cap;
    struct trace_tap *taps; /* (n_tap) ascending by tap_place */
};

/* Frees everything that the trace holds and resets it: no tokens, no taps, default params. */
void trace_clear(struct plumb_trace *t);
/* What is to be traced: facts of a session, and of its model. */
struct trace_run {
    const char *kernels, *precision;   /* their names; kernels are "reference" for the reference pass */
    uint32_t n_layer, n_vocab;
    uint32_t order;                    /* as in struct plumb_trace, like the members below */
    bool has_output_norms;
    int32_t bos;
    int64_t (*piece)(const struct plumb_trace *t, int32_t id, char *buf, size_t cap);
    struct tokenizer *vocab;           /* NULL if piece uses none */
};
/* plumb_trace_begin, which takes these facts from a session. */
plumb_status trace_begin(struct plumb_trace *t, const struct trace_run *run, const int32_t *ids, size_t n,
                         size_t n_prompt, const plumb_trace_params *params);
/* Copies n ids; n_prompt <= n as in struct plumb_trace.  Drops the pieces, and gives rows of kq_soft_max n keys.
 * PLUMB_ERROR_TOKEN for a negative id.  PLUMB_ERROR_ARGUMENT if n_prompt > n, or if the trace already has a row at
 * n + TRACE_MAX_EXTRA_ROWS or beyond. */
plumb_status trace_set_tokens(struct plumb_trace *t, const int32_t *ids, size_t n, size_t n_prompt);
plumb_status trace_set_source(struct plumb_trace *t, const char *source, size_t n);
/* Sets the text of token i < n_token, so the tokens must be set first.  The n bytes need not be UTF-8: control
 * characters are escaped, everything else is copied. */
plumb_status trace_set_piece(struct plumb_trace *t, uint32_t i, const char *bytes, size_t n);
/* Adds the text of a token that need not be among those fed; escapes it like trace_set_piece.  Ids may come in any
 * order, but unless they ascend, trace_sort must be called after the last one. */
plumb_status trace_add_text(struct plumb_trace *t, int32_t id, const char *bytes, size_t n);
/* Returns the escaped text of a token that trace_add_text added; NULL if there is none. */
const char *trace_text(const struct plumb_trace *t, int32_t id);
/* A file may give n_row rows of a tap without saying which tokens they belong to.  Returns the pos of the first of
 * them.  If there are fewer rows than tokens, they belong to the last tokens, because many engines compute logits for
 * the last token only.  Otherwise the first row belongs to token 0. */
uint32_t trace_first_token(const struct plumb_trace *t, uint64_t n_row);
/* Sorts the taps in another order (a set of enum tap_order), in which taps that are added later go too. */
void trace_set_order(struct plumb_trace *t, uint32_t order);
/* Reads and writes the order as a file has it: the names of its flags, "parallel,one_norm".  Reading ignores unknown
 * names; n: bytes of the text.  Writing returns buf->text. */
void trace_read_order(struct plumb_trace *t, const char *text, size_t n);
struct trace_order_text { char text[96]; };
const char *trace_show_order(struct trace_order_text *buf, uint32_t order);
/* Both return NULL if there is none. */
const struct trace_tap *trace_find_tap(const struct plumb_trace *t, enum tap_id id, int32_t layer);
const struct trace_row *trace_find_row(const struct trace_tap *tap, uint32_t pos);
/* The readers of JSON, GGUF and .npz files call this before they add the rows of a tap.  name and *id: what tap_parse
 * gave for the tap's name in the file, of n_text bytes at text; 0: no tap has it.  Sets *take to false, and adds a
 * remark with the reason, if the caller must leave out the rows: if no tap has the name, or if the trace has the tap
 * already under another name.  Hooks on all modules of transformers, for instance, see ffn_out as the output of both
 * mlp.down_proj and mlp.  Products of an ONNX graph are also left out if the tap is in with_bias.
 *
 * In most models of transformers, post_attention_layernorm is the norm before the feed-forward network (ffn_norm).  In
 * those that also have a pre_ or post_feedforward_layernorm or a pre_mlp_layernorm, such as Gemma 2 and 3, it is the
 * norm of the output of attention.  If has_output_norms is set, *id then becomes attn_post_norm. */
plumb_status trace_begin_tap(struct plumb_trace *t, enum tap_id *id, int32_t layer, uint32_t name, const char *text,
                             size_t n_text, bool *take);
/* Adds a row without values; all its statistics are unknown.  *row is valid until the tap's next row is added.
 * PLUMB_ERROR_ARGUMENT if the tap's last row has this pos too, or if n_token is known and pos is
 * n_token + TRACE_MAX_EXTRA_ROWS or beyond; the message names the tap and the token.  Rows may come in any order, but
 * unless they ascend, trace_sort must be called after the last one, before any look-up. */
plumb_status trace_new_row(struct plumb_trace *t, enum tap_id id, int32_t layer, uint32_t pos,
                           struct trace_row **row);
/* Sorts the rows of each tap, and the texts.  PLUMB_ERROR_ARGUMENT if two rows of a tap have the same pos; the message
 * names the tap and the token. */
plumb_status trace_sort(struct plumb_trace *t);
/* Sets the shape of a row (0, 0: not known) and copies n_value values (0: sets the shape only).  places NULL: they are
 * the first values.  PLUMB_ERROR_ARGUMENT if places do not ascend or, with a known shape, one is not below n_head * n.
 * If the values are complete, computes the row's statistics from them, unless its RMS is known already, and for
 * kq_soft_max also the entropies.
 * An engine with a padded cache has more keys in kq_soft_max than there are tokens.  If n_token is known, the n of
 * kq_soft_max therefore becomes n_token, and the keys beyond are dropped. */
plumb_status trace_set_values(struct plumb_trace *t, struct trace_row *row, enum tap_id id, uint32_t n_head,
                              uint32_t n, const float *values, const uint32_t *places, uint32_t n_value);
/* Returns the statistics of n values. */
struct trace_stats trace_stats_of(const float *values, size_t n);
enum { TRACE_TOP = 10 };
/* Finds the largest values stored in a row, without NaN.  The largest comes first; among equal values, the one with the
 * lower place.  Returns how many there are, at most TRACE_TOP. */
uint32_t trace_top(const struct trace_row *row, struct trace_value top[TRACE_TOP]);
/* Like trace_top, but returns only values that are known to be the largest of the whole row: all of them if the row has
 * all its values, otherwise the first n_top. */
uint32_t trace_known_top(const struct trace_row *row, struct trace_value top[TRACE_TOP]);

#endif

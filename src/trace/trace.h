/* A trace: what is known of the activations of one run, by plumb or by another engine, as much or as little as there
 * is of them.
 *
 *   struct trace -> taps, in the order of the computation -> rows, one for each token -> values and statistics
 *
 * A row keeps values with their places.  Whole activations, the first eight, the six that llama-eval-callback prints
 * and the ten likeliest logits are then the same thing, and any two rows are compared at the places both have.
 * Traces come from files: nothing in them is trusted.
 */
#ifndef PLUMB_TRACE_TRACE_H
#define PLUMB_TRACE_TRACE_H

#include "tokenizer/tokenizer.h"
#include "trace/tap_names.h"

/* Of the finite values.  NAN: not known. */
struct trace_stats {
    double mean, rms;
    double min, max;
    double n_nan, n_inf;
};

/* Rows beyond the tokens: an engine that feeds BOS and the last token twice computes two more than it was asked to. */
#define TRACE_MORE_TOKENS 2u
#define TRACE_ALL_TOKENS UINT32_MAX   /* pos of a row whose statistics are of all tokens together */

/* A value and its place in a row. */
struct trace_value {
    uint32_t place;
    float value;
};
int trace_by_place(const void *a, const void *b);   /* of struct trace_value, for qsort */

struct trace_row {
    uint32_t pos;           /* index of the token among those fed */
    uint32_t n_head, n;     /* shape (n_head, n), n_head 1 where a tap has no heads; 0, 0: not known */
    uint32_t n_value;
    float *values;          /* (n_value) */
    uint32_t *places;       /* (n_value) ascending; of each value in the flattened (n_head, n).  NULL: 0, 1, 2... */
    uint32_t n_top;         /* of result_output: so many of the values are the largest of the whole row; 0: not known */
    float quantum;          /* step of values that were rounded for printing, 1e-4 of "%.4f"; 0: not rounded */
    struct trace_stats stats;
    float *entropy;         /* (n_head) of kq_soft_max, in nats; NULL where it is not known */
};

/* Place of value i of a row. */
static inline uint32_t trace_place(const struct trace_row *row, uint32_t i) { return row->places ? row->places[i] : i; }

struct trace_tap {
    enum tap_id id;
    int32_t layer;
    uint32_t n_row, cap;
    struct trace_row *rows; /* (n_row) ascending pos, no two alike */
    bool unsorted;          /* not yet: see trace_new_row */
    uint32_t name;          /* number of its name in a file, of tap_parse; 0: none */
};

/* The text of a token, escaped as pieces are. */
struct trace_text {
    int32_t id;
    char *text;
};

struct plumb_trace {
    struct error err;
    char *source;           /* the program that computed it, "" if it does not say */
    int32_t *tokens;        /* (n_token) as they were fed; NULL if they are not known */
    uint32_t n_token;
    uint32_t n_prompt;      /* of them, those computed as one prompt; the rest was decoded one by one */
    char **pieces;          /* (n_token) texts of the tokens, escaped; NULL if not known */
    struct trace_text *texts;        /* (n_text) ascending ids, of the likeliest tokens */
    size_t n_text, cap_text;
    bool unsorted_texts;             /* not yet: see trace_add_text */
    struct tokenizer_loan vocab;     /* of the session that is recorded, as long as its model lives: where texts come
                                      * from */
    int32_t bos;            /* -1: not known */
    plumb_trace_params params;   /* what trace_add keeps; taps is owned */
    bool by_module;         /* Qcur or Kcur came under the names of transformers' modules: see heads.h */
    uint32_t n_ignored;     /* records under names that are no taps */
    char ignored[64];       /* the first such name */
    size_t n_tap, cap;
    struct trace_tap *taps; /* (n_tap) by tap_order */
};

/* Forgets everything. */
void trace_clear(struct plumb_trace *t);
/* Copies.  n_prompt: see struct plumb_trace; at most n. */
plumb_status trace_set_tokens(struct plumb_trace *t, const int32_t *ids, size_t n, size_t n_prompt);
plumb_status trace_set_source(struct plumb_trace *t, const char *source, size_t n);
/* The text of token i, any bytes: control characters are escaped, the rest is kept.  Tokens come first. */
plumb_status trace_set_piece(struct plumb_trace *t, uint32_t i, const char *bytes, size_t n);
/* The text of a token that need not be one of those fed, as trace_set_piece.  Ids may come in any order; unless they
 * ascend, trace_sort follows the last of them. */
plumb_status trace_add_text(struct plumb_trace *t, int32_t id, const char *bytes, size_t n);
/* What trace_add_text was given; NULL if there is none. */
const char *trace_text(const struct plumb_trace *t, int32_t id);
/* The token that the first of n_row rows without positions belongs to: fewer rows than tokens are those of the last
 * ones, as engines compute logits for the last token only. */
uint32_t trace_first_token(const struct plumb_trace *t, uint64_t n_row);
/* Counts a record that is no tap under this name, n bytes; the first one's is kept. */
void trace_ignore(struct plumb_trace *t, const char *name, size_t n);
/* NULL if there is none. */
const struct trace_tap *trace_find_tap(const struct plumb_trace *t, enum tap_id id, int32_t layer);
const struct trace_row *trace_find_row(const struct trace_tap *tap, uint32_t pos);
/* Begins a tap's rows from a file, under the name that tap_parse has this number for.  *second: it is another name of a
 * tap that has come already, whose rows are to be left out: hooks on all modules of transformers see ffn_out as the
 * output of mlp.down_proj and of mlp. */
plumb_status trace_begin_tap(struct plumb_trace *t, enum tap_id id, int32_t layer, uint32_t name, bool *second);
/* A new row, all statistics unknown.  PLUMB_ERROR_ARGUMENT with the place if the tap's last row is at this pos too.
 * Rows may come in any order; unless they ascend, trace_sort follows the last of them, before anything is found. */
plumb_status trace_new_row(struct plumb_trace *t, enum tap_id id, int32_t layer, uint32_t pos,
                           struct trace_row **row);
/* PLUMB_ERROR_ARGUMENT with the place if a tap has two rows at one pos. */
plumb_status trace_sort(struct plumb_trace *t);
/* Gives a row its shape and copies of n_value values (0: the shape only); places NULL: the first ones.  Places must
 * ascend and lie below n_head * n where the shape is known.  All n_head * n values give the row its statistics, unless
 * it has some, and of kq_soft_max its entropy.  Of kq_soft_max, whose number of keys differs between engines that pad
 * and engines that do not, only keys below the number of tokens are kept and n becomes that number (once tokens are
 * known). */
plumb_status trace_set_values(struct plumb_trace *t, struct trace_row *row, enum tap_id id, uint32_t n_head,
                              uint32_t n, const float *values, const uint32_t *places, uint32_t n_value);
/* Statistics of (n_head, n) values. */
struct trace_stats trace_stats_of(const float *values, size_t n);
enum { TRACE_TOP = 10 };
/* The largest values that a row has, largest first, of equal ones the lower place; NaN is none.  Returns how many. */
uint32_t trace_top(const struct trace_row *row, struct trace_value top[TRACE_TOP]);
/* The same if they are the largest of the whole row, which are known if all values are or n_top says so; else 0. */
uint32_t trace_likeliest(const struct trace_row *row, struct trace_value top[TRACE_TOP]);

#endif

/* How engines read K and V wrongly: which head each head of Q reads, where it is not h / (n_head / n_head_kv), which
 * slot of the cache, in which order, and of which layer.  The analyser of attention weights looks for that in K, and
 * that of attention's output in V. */
#ifndef PLUMB_DIAGNOSE_FIT_HEADS_H
#define PLUMB_DIAGNOSE_FIT_HEADS_H

#include "diagnose/fit.h"
#include "mistakes/formulas.h"

/* A way to read K or V. */
struct reading {
    const struct fit_rows *rows;   /* (n_key, n_kv, dim); NULL: the right ones */
    const uint32_t *heads;         /* (n_head) the head that each head of Q reads, n_kv: zeros; NULL: the right ones */
    const uint32_t *slots;         /* (n_token, n_key) the slot that is read for each token and key, n_key or more:
                                    * zeros; NULL: the key's own */
    enum cache_order order;
    bool is_whole;                 /* the order is that of all tokens, not of those that are there at the time */
    uint32_t n;                    /* only so many elements of a head count; 0: all */
};

struct reader {
    struct fit *f;
    const char *of, *by;           /* "K" and "head h of Q", or "V" and "head h" */
    enum tap_id id;
    struct fit_rows rows;          /* the right ones */
    uint32_t n_token, n_head, n_kv, n_key, dim;
    uint32_t *right_heads;         /* (n_head) the head that each head of Q should read */
    uint32_t *slots;               /* (n_token, n_key) scratch for a reading */
    float *row;                    /* (dim) scratch */
    /* Computes what follows from a reading; the error of head h then, where the right step is wrong; proposes it. */
    void (*read)(struct reader *r, const struct reading *how);
    double (*error)(struct reader *r, uint32_t h);
    void (*propose)(struct reader *r, uint32_t cost, const char *text);
};

/* Allocates what the reader needs.  All members but right_heads, slots and row must be set. */
void reader_begin(struct reader *r);
/* Returns the dim elements that head h of token t reads for key j; NULL: zeros.  Valid until the next call. */
const float *reader_row(const struct reader *r, const struct reading *how, uint32_t t, uint32_t h, uint32_t j);
/* How many keys are there when token t attends: those of its batch. */
uint32_t reader_filled(const struct reader *r, uint32_t t);
/* Finds another activation in the shape of the right rows.  Returns false if there is none. */
bool reader_take(const struct reader *r, enum tap_id id, int32_t layer, struct fit_rows *rows);

/* Tries the rules by which engines choose heads, and for each head the one that leaves the least. */
void reader_try_heads(struct reader *r);
/* Tries the slots before and after the right ones. */
void reader_try_shifts(struct reader *r);
/* Tries the same slots (n_key) for every token.  at: the last of the n_other that are not right. */
void reader_try_slots(struct reader *r, const uint32_t *slots, uint32_t at, uint32_t n_other);
/* Fills r->slots as if all tokens after the prompt were stored in one slot. */
void reader_overwrite(struct reader *r);
void reader_try_orders(struct reader *r);
/* Tries K or V of the other layers. */
void reader_try_layers(struct reader *r);

#endif

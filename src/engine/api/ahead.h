/* Tokens that a session has computed ahead of those that it was fed.
 *
 * A feed of few tokens may compute more: a draft of those that are likely to follow, with the logits after each.  They
 * lie in s->tokens behind the first n_past, and their K and V behind those of the others, so that for all other
 * functions the session holds only what it was fed.  If the caller then feeds these very tokens, there is nothing to
 * compute; if it feeds another one, they are forgotten, and what is stored of them is overwritten.  So a draft never
 * changes a bit: logits are those that a pass of one token computes, and the caller draws each token from them as ever.
 *
 *   feed 1 2 -> [1 2] 3 4 5     logits after 2; after 3, 4 and 5 in rows
 *   feed 3   -> [1 2 3] 4 5     logits after 3, from a row
 *   feed 7   -> [1 2 3 7] 8     4 and 5 are forgotten
 *
 * Layers with a state keep only the latest one, so models that have them do not compute ahead. */
#ifndef PLUMB_API_AHEAD_H
#define PLUMB_API_AHEAD_H

#include "plumb.h"
#include "speculate/costs.h"
#include "speculate/lookup.h"

/* AHEAD_BYTES: the most that rows take.  AHEAD_FED: a feed of more tokens is a prompt, which has no draft. */
enum { AHEAD_BYTES = 16 << 20, AHEAD_FED = 8 };
/* How sure a draft model is of a token: its probability is below 0.3, 0.5, 0.7, 0.9, or not. */
enum { AHEAD_SURE = 5 };

/* Writes at most n_most tokens that may follow the first n to tokens + n, and returns how many: of tests. */
typedef uint32_t ahead_drafter(void *user, int32_t *tokens, uint32_t n, uint32_t n_most);

struct ahead {
    plumb_speculation how;
    struct lookup lookup;
    struct rate rates[LOOKUP_CLASSES];
    struct rate sure[AHEAD_SURE];  /* of the draft model */
    uint8_t sureness[PLUMB_MAX_DRAFT];   /* of each token of its last draft */
    uint32_t n_by_model;           /* tokens of that draft; 0: the draft is another one's */
    float *rows;                   /* (n_row, n_vocab) the logits after the last token that was fed, and each of the
                                    * draft behind it; NULL: there was no draft yet */
    uint32_t n_row, row;           /* row: that of the logits after the last token that was fed */
    uint32_t n;                    /* tokens ahead that may still be fed */
    uint32_t n_taken;              /* of this draft */
    double base, worth, price;     /* in passes of one token: what the pass would cost without the draft, what a token
                                    * of it saves, and what it has cost */
    double drafting;               /* what the draft model has cost */
    uint64_t n_drafted, n_accepted;
    ahead_drafter *drafter;        /* NULL: that of `how` */
    void *user;
};

struct plumb_session;

/* Feeds the first of n ids, as far as they were computed ahead, and returns how many. */
size_t ahead_take(struct plumb_session *s, const int32_t *ids, size_t n);
/* Writes n ids, the next of the session, and a draft that follows them, behind the tokens of the session.  Returns the
 * length of the draft, for which there is room in a row each; 0: there is none.  n_other: the tokens of other sessions
 * in the pass, n_session of them.  n_most: tokens that the pass can have besides. */
uint32_t ahead_draft(struct plumb_session *s, const int32_t *ids, uint32_t n, uint32_t n_other, uint32_t n_session,
                     uint32_t n_most);
/* Computes the n tokens and the draft that ahead_draft has written.  Returns false if there is no memory for their K
 * and V. */
bool ahead_run(struct plumb_session *s, uint32_t n, uint32_t n_draft);
/* Lets the draft model read what the session was fed, at most one batch of it. */
void ahead_lead(struct plumb_session *s);
/* The session has computed n_draft tokens behind those that it was fed, and their logits are in its rows. */
void ahead_computed(struct plumb_session *s, uint32_t n_draft);
/* Forgets the tokens ahead. */
void ahead_forget(struct plumb_session *s);
/* The same; and the session now holds only its first n tokens, which are as they were. */
void ahead_keep(struct plumb_session *s, uint32_t n);
/* The same; and all its tokens may be others. */
void ahead_clear(struct plumb_session *s);
void ahead_free(struct ahead *a);
uint64_t ahead_bytes(const struct plumb_session *s);
/* For tests: makes all later drafts those of a function, as long as they may be; NULL ends that. */
void ahead_set_drafter(struct plumb_session *s, ahead_drafter *drafter, void *user);

#endif

/* The fields of plumb_session, for the files that implement it. */
#ifndef PLUMB_API_SESSION_H
#define PLUMB_API_SESSION_H

#include "api/ahead.h"
#include "api/model.h"
#include "api/pass.h"
#include "forward/forward.h"

/* More dropped tokens than this are not remembered, so that their bytes fit 32 bits. */
enum { SESSION_MAX_DROPPED = 1 << 29 };

/* The arrays of a batch of up to n sessions: the pieces, the feeds that they are of, the lengths of the drafts at their
 * ends, and logits (n_row, n_vocab). */
struct feeding {
    size_t n, n_row;
    struct piece *pieces;
    size_t *feed_of;
    uint32_t *drafts;
    float *logits;
};
void feeding_free(struct feeding *b);

/* The fast pass with its threads, which sessions of one model share. */
struct work {
    uint32_t n_owner;             /* sessions */
    struct pool *pool;            /* NULL: the caller's thread only */
    struct forward *forward;
    plumb_session_params params;  /* those of the first session; n_batch: the most tokens in a run */
    struct feeding feeding;
    struct costs costs;           /* of its runs */
};

struct plumb_session {
    struct error err;
    plumb_model *model;
    uint32_t n_ctx, n_batch, n_past;
    plumb_session_params params;  /* what it was created with; 0 in n_ctx and n_batch: the default that was chosen */
    plumb_pass pass;              /* NULL: the fast pass */
    struct work *work;            /* the fast pass; NULL: reference is used */
    struct forward *forward;      /* that of work, or NULL */
    struct sequence sequence;     /* what the fast pass keeps of the tokens */
    struct tap_sink sink;         /* where taps go */
    struct reference *reference;  /* the reference pass, called through `pass`; NULL: forward is used */
    int32_t *tokens;              /* (n_ctx); the first n_past are in the cache, and then may come those of a draft */
    uint32_t n_keep;              /* of plumb_session_set_shift; 0: a full context is an error */
    int32_t *dropped;             /* (dropped_room) n_dropped tokens that were in the cache behind the first n_keep */
    uint32_t n_dropped, dropped_room;
    int32_t *encoded;             /* (n_ctx) the n_encoded tokens of the encoder's text; NULL: there is no encoder */
    uint32_t n_encoded;
    float *logits;                /* (n_vocab) after the last token, if has_logits */
    bool has_logits;
    float *embedding;             /* (n_vector, n_pooled) of the last plumb_session_embed; NULL: none */
    uint32_t n_vector, n_pooled;
    bool is_running;              /* a feed is running: its callbacks must not change the session */
    struct adapter_set adapters;  /* those that computed the tokens in the cache */
    const plumb_model *drafts_for;   /* a model that is known to have the same vocabulary; NULL: none */
    struct ahead *ahead;          /* what was computed ahead; NULL: plumb_session_speculate was never called */
};

/* PLUMB_ERROR_STATE while a feed of the session is running. */
plumb_status session_check_idle(plumb_session *s);
/* The checks of plumb_session_feed. */
plumb_status session_check_feed(plumb_session *s, const int32_t *ids, size_t n);
/* Makes room in a full context, and sets *n_run to the number of tokens of the next batch, of n that remain. */
plumb_status session_next_batch(plumb_session *s, size_t n, uint32_t *n_run);
/* Whether the session uses these adapters. */
bool session_uses(const plumb_session *s, const struct adapter_use *uses, size_t n);
/* Makes s use the adapters of another session of its model. */
plumb_status session_copy_use(plumb_session *s, const plumb_session *from);
/* Frees the memory of a session that grows for tokens that it does not have. */
void session_trim(plumb_session *s);
/* Trims the session.  PLUMB_ERROR_MEMORY, and that there is no room for n tokens in a session that grows. */
plumb_status session_no_room(plumb_session *s, uint32_t n);
/* Lets the encoder read the n_encoded tokens of s->encoded. */
plumb_status session_run_encoder(plumb_session *s);
/* Must be called before the fast pass runs for this session: sets its taps and adapters. */
void session_use_pass(plumb_session *s);
/* Makes room for n dropped tokens, at most SESSION_MAX_DROPPED and a context.  Returns false if there is no memory. */
bool session_hold_dropped(plumb_session *s, uint32_t n);

#endif

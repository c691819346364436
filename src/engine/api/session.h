/* The fields of plumb_session, for the files that implement it. */
#ifndef PLUMB_API_SESSION_H
#define PLUMB_API_SESSION_H

#include "api/model.h"
#include "api/pass.h"
#include "forward/forward.h"

/* More dropped tokens than this are not remembered, so that their bytes fit 32 bits. */
enum { SESSION_MAX_DROPPED = 1 << 29 };

struct plumb_session {
    struct error err;
    plumb_model *model;
    uint32_t n_ctx, n_batch, n_past;
    struct pool *pool;            /* threads of the fast pass; NULL: the caller's only */
    plumb_pass pass;              /* NULL: the fast pass */
    plumb_kv_type kv_type;
    struct forward *forward;      /* the fast pass; NULL: reference is used */
    struct reference *reference;  /* the reference pass, called through `pass`; NULL: forward is used */
    int32_t *tokens;              /* (n_ctx); the first n_past are in the cache */
    uint32_t n_keep;              /* of plumb_session_set_shift; 0: a full context is an error */
    int32_t *dropped;             /* (n_dropped) tokens that were in the cache behind the first n_keep */
    uint32_t n_dropped;
    int32_t *encoded;             /* (n_ctx) the n_encoded tokens of the encoder's text; NULL: there is no encoder */
    uint32_t n_encoded;
    float *logits;                /* (n_vocab) after the last token, if has_logits */
    bool has_logits;
    float *embedding;             /* (n_vector, n_pooled) of the last plumb_session_embed; NULL: none */
    uint32_t n_vector, n_pooled;
    bool is_tapped;               /* there is a tap */
    bool is_running;              /* a feed is running: its callbacks must not change the session */
    struct adapter_set adapters;  /* those that computed the tokens in the cache */
};

/* PLUMB_ERROR_STATE while a feed of the session is running. */
plumb_status session_check_idle(plumb_session *s);

#endif

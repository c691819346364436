/* What the fast pass keeps of the tokens of a session: K and V of each layer, the states of recurrent layers, and which
 * adapters inside the file they switch on.  The pass itself (struct forward) has only scratch, so that sessions of one
 * model share it.
 *
 * Sequences that begin with the same tokens may share what they keep of them, until one of them writes to it
 * (sequence_fork). */
#ifndef PLUMB_FORWARD_SEQUENCE_H
#define PLUMB_FORWARD_SEQUENCE_H

#include "forward/kv_cache.h"
#include "forward/snapshots.h"
#include "model/plan.h"

struct sequence {
    const struct plan *plan;       /* borrowed */
    uint32_t n_ctx;                /* the most tokens */
    uint32_t n_past;               /* the tokens after which the states are */
    uint32_t n_encoded;            /* tokens of the encoder's text */
    struct kv_cache *caches;       /* (n_layer); zeros for a layer that stores nothing here */
    float *state;                  /* (snapshots.size) those of all layers, one after the other */
    struct snapshots snapshots;    /* of the states */
    uint16_t *switches;            /* (n_ctx) the adapters inside the file that tokens switch on, 0: none; NULL: the
                                    * model has none */
};

/* Makes an empty sequence of up to n_ctx tokens, which are computed in batches of up to n_batch.  n_snapshot: as in
 * snapshots_max.  grows: K and V, and snapshots, are allocated when they are needed, not at once.  Returns false if
 * there is no memory; sequence_free must follow in any case. */
bool sequence_create(struct sequence *s, const struct plan *plan, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type,
                     uint32_t n_snapshot, bool grows);
void sequence_free(struct sequence *s);
/* PLUMB_ERROR_MEMORY, and what a sequence, or a pass for it, would have needed. */
plumb_status sequence_no_memory(const struct plan *plan, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type,
                                uint32_t n_snapshot, struct error *err);
/* Makes `to`, which was created with the same plan, context, batch and type, hold what `from` holds of the first n_past
 * tokens, which sequence_rewind(from, n_past) must return.  They share all memory but that of the present states and of
 * the adapters that tokens switch on. */
void sequence_fork(struct sequence *to, const struct sequence *from, uint32_t n_past);
/* Makes room for the K and V of the tokens begin .. end - 1.  Returns false if there is no memory; what the sequence
 * holds stays as it is. */
bool sequence_prepare(struct sequence *s, uint32_t begin, uint32_t end);
/* The same for those of an encoder's text of n tokens, which the decoder reads. */
bool sequence_prepare_encoded(struct sequence *s, uint32_t n);
/* Forgets all but the first n_past tokens, which sequence_rewind has returned, and frees the memory that they do not
 * need. */
void sequence_trim(struct sequence *s, uint32_t n_past);
/* Returns how many of the first n_past tokens can be kept, at most n_past and perhaps none: the next run may begin
 * there.  n_past: at most as many as were computed.  Layers with windows keep a limited number of positions, so going
 * far back means to compute all tokens again.  Recurrent layers keep some snapshots of their states. */
uint32_t sequence_rewind(const struct sequence *s, uint32_t n_past);
/* Bytes of what is allocated, with what it shares with others. */
uint64_t sequence_bytes(const struct sequence *s);
/* Called before a run at pos: goes back to the states there, if they are those of other tokens. */
void sequence_begin(struct sequence *s, uint32_t pos);
/* Called after a run of n tokens: keeps a snapshot if a prompt may end here, and of a long answer one after every
 * SNAPSHOTS_EVERY tokens. */
void sequence_end(struct sequence *s, uint32_t n);
/* Passes what is kept of the first n_past tokens, which are those of the last run, or as many as sequence_rewind has
 * returned since: sections kv (kv_cache_exchange), then a section stat with the states of recurrent layers (n_past and
 * places before it, ascending: how many, then for each its place and plan_states_size floats), and a section swch with
 * the adapters inside the file that tokens switch on (n_past numbers of 16 bits).  A reader becomes what the writer
 * was, in whatever n_ctx and batches; it is to be taken for empty after a failure. */
plumb_status sequence_exchange(struct sequence *s, struct transfer *t, uint32_t n_past);

#endif

/* Several sessions of one model: forks, common prefixes, and tokens of several sessions in one batch. */
#include "api/session.h"

#include <stdlib.h>

/* ---- what sessions share ----------------------------------------------------------------------------------------- */

bool plumb_session_joins(const plumb_session *s, const plumb_session *other) {
    return s->work && s->work == other->work
        && session_uses(s, other->adapters.uses, other->adapters.n);
}

static bool are_alike(const plumb_session *a, const plumb_session *b) {
    return plumb_session_joins(a, b) && a->n_ctx == b->n_ctx && a->n_batch == b->n_batch;
}

uint32_t plumb_session_common(const plumb_session *s, const plumb_session *from, const int32_t *ids, size_t n) {
    uint32_t same = 0;
    if (s != from && !are_alike(s, from)) return 0;
    if (from->n_dropped > 0 || from->encoded) return 0;
    while (same < from->n_past && same + 1 < n && from->tokens[same] == ids[same]) same++;
    return from->forward ? sequence_rewind(&from->sequence, same) : same;
}

/* Makes s hold the first n_past tokens of a session that is alike. */
static void take(plumb_session *s, const plumb_session *from, uint32_t n_past) {
    bool is_whole = n_past == from->n_past;
    ahead_clear(s);
    sequence_fork(&s->sequence, &from->sequence, n_past);
    memcpy(s->tokens, from->tokens, n_past * sizeof *s->tokens);
    if (from->encoded) memcpy(s->encoded, from->encoded, from->n_encoded * sizeof *s->encoded);
    s->n_encoded = from->n_encoded;
    s->n_past = n_past;
    s->n_dropped = 0;
    s->has_logits = is_whole && from->has_logits;
    if (s->has_logits) memcpy(s->logits, from->logits, s->model->model->plan.n_vocab * sizeof *s->logits);
}

plumb_status plumb_session_adopt(plumb_session *s, const plumb_session *from, uint32_t n_past) {
    PLUMB_TRY(session_check_idle(s));
    if (s == from) return plumb_session_rewind(s, n_past);
    if (!are_alike(s, from) || n_past > from->n_past || from->n_dropped > 0
        || sequence_rewind(&from->sequence, n_past) != n_past) {
        return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "%u tokens of another session cannot be taken: see "
                         "plumb_session_common", n_past);
    }
    take(s, from, n_past);
    s->params.grows = true;   /* its pages are shared from now on */
    return PLUMB_OK;
}

/* Makes s, which is new, use the adapters of `from` and hold what it holds. */
static plumb_status copy(plumb_session *s, const plumb_session *from) {
    PLUMB_TRY(session_copy_use(s, from));
    if (!session_hold_dropped(s, from->n_dropped)) {
        return error_set(&s->err, PLUMB_ERROR_MEMORY, "out of memory: a list of %u tokens", from->n_dropped);
    }
    if (from->n_dropped > 0) memcpy(s->dropped, from->dropped, from->n_dropped * sizeof *s->dropped);
    take(s, from, from->n_past);
    s->n_keep = from->n_keep;
    s->n_dropped = from->n_dropped;
    return from->n_keep > 0 ? forward_prepare_drop(s->forward, &s->sequence, s->n_keep, s->n_ctx, &s->err) : PLUMB_OK;
}

plumb_status plumb_session_fork(plumb_session **out, plumb_session *from) {
    *out = NULL;
    PLUMB_TRY(session_check_idle(from));
    if (!from->forward) {
        return error_set(&from->err, PLUMB_ERROR_UNSUPPORTED, "sessions of the reference pass cannot be forked");
    }
    plumb_session *s;
    plumb_session_params params = from->params;
    params.beside = from;
    params.grows = true;
    plumb_status status = plumb_session_create(&s, from->model, &params);
    if (status != PLUMB_OK) return error_set(&from->err, status, "%s", plumb_model_error(from->model));
    status = copy(s, from);
    if (status == PLUMB_OK) {
        from->params.grows = true;   /* its pages are shared from now on */
        *out = s;
        return PLUMB_OK;
    }
    error_set(&from->err, status, "%s", s->err.message);
    plumb_session_free(s);
    return status;
}

/* ---- one batch for several sessions ------------------------------------------------------------------------------ */

static plumb_status check_feeds(const plumb_feed *feeds, size_t n_feed, size_t *failed) {
    for (size_t i = 0; i < n_feed; i++) {
        plumb_session *s = feeds[i].session, *first = feeds->session;
        *failed = i;
        PLUMB_TRY(session_check_feed(s, feeds[i].ids, feeds[i].n));
        bool is_twice = false, is_alike = plumb_session_joins(s, first);
        for (size_t j = 0; j < i; j++) is_twice = is_twice || feeds[j].session == s;
        if (feeds[i].n > 0 && is_alike && !s->sink.on_tap && !is_twice) continue;
        return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "session %zu of %zu cannot be fed together with the others: it "
                         "has %s", i, n_feed, feeds[i].n == 0 ? "no tokens" : is_twice ? "another place among them"
                         : s->sink.on_tap ? "a tap" : "other params or adapters");
    }
    return PLUMB_OK;
}

/* The arrays of a batch; NULL: there is no memory. */
static struct feeding *arrays_of(struct work *w, size_t n_feed) {
    struct feeding *b = &w->feeding;
    if (n_feed <= b->n) return b;
    struct feeding more = { .n = n_feed, .pieces = alloc_array(n_feed, sizeof *more.pieces),
                            .feed_of = alloc_array(n_feed, sizeof *more.feed_of),
                            .drafts = alloc_array(n_feed, sizeof *more.drafts) };
    bool ok = more.pieces && more.feed_of && more.drafts;
    if (ok) {
        more.n_row = b->n_row;
        more.logits = b->logits;
        b->logits = NULL;
    }
    feeding_free(ok ? b : &more);
    if (ok) *b = more;
    return ok ? b : NULL;
}

/* Makes room for the logits of n tokens. */
static bool make_rows(struct feeding *b, size_t n, uint32_t n_vocab) {
    if (n <= b->n_row) return true;
    float *rows = alloc_array((uint64_t)n * n_vocab, sizeof *rows);
    if (!rows) return false;
    free(b->logits);
    b->logits = rows;
    b->n_row = n;
    return true;
}

/* Takes the next tokens of the feeds, in their order, as long as there is room in a batch.  Returns how many pieces
 * there are, or a negative status. */
static int64_t gather(const plumb_feed *feeds, size_t n_feed, struct feeding *b, uint32_t n_free, size_t *failed) {
    int64_t n_piece = 0;
    for (size_t i = 0; i < n_feed && n_free > 0; i++) {
        plumb_session *s = feeds[i].session;
        size_t left = feeds[i].n - feeds[i].n_done;
        uint32_t n;
        if (left == 0) continue;
        *failed = i;
        PLUMB_TRY(session_next_batch(s, left, &n));
        if (n > n_free) n = n_free;
        n_free -= n;
        b->feed_of[n_piece] = i;
        b->pieces[n_piece++] = (struct piece) { &s->sequence, feeds[i].ids + feeds[i].n_done, n, s->n_past,
                                                feeds[i].wants_logits && n == left, 0 };
    }
    return n_piece;
}

/* Adds drafts behind the tokens of the pieces, as far as a batch has room, unless one of them is of a prompt. */
static void add_drafts(const plumb_feed *feeds, struct feeding *b, uint32_t n_piece, uint32_t n_batch) {
    uint32_t n_token = 0;
    bool are_answers = true;
    for (uint32_t i = 0; i < n_piece; i++) {
        b->drafts[i] = 0;
        n_token += b->pieces[i].n;
        are_answers = are_answers && b->pieces[i].n_result > 0 && b->pieces[i].n <= AHEAD_FED;
    }
    uint32_t n_left = n_batch - n_token < PLUMB_MAX_DRAFT ? n_batch - n_token : PLUMB_MAX_DRAFT;
    for (uint32_t i = 0; i < n_piece && are_answers; i++) {
        struct piece *piece = &b->pieces[i];
        plumb_session *s = feeds[b->feed_of[i]].session;
        uint32_t n = ahead_draft(s, piece->ids, piece->n, n_token - piece->n, n_piece - 1, n_left);
        b->drafts[i] = n;
        if (n == 0) continue;
        piece->ids = s->tokens + s->n_past;
        piece->n += n;
        piece->n_result += n;
        n_token += n;
        n_left -= n;
    }
}

/* Returns how many tokens of drafts there were. */
static uint32_t remove_drafts(struct feeding *b, uint32_t n_piece) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_piece; i++) {
        n += b->drafts[i];
        b->pieces[i].n -= b->drafts[i];
        b->pieces[i].n_result -= b->drafts[i];
        b->drafts[i] = 0;
    }
    return n;
}

/* The sessions of n_piece pieces now hold their tokens.  logits: of the results of all pieces. */
static void scatter(plumb_feed *feeds, struct feeding *b, uint32_t n_piece, uint32_t n_vocab, const float *logits) {
    for (uint32_t i = 0; i < n_piece; i++) {
        const struct piece *piece = &b->pieces[i];
        plumb_session *s = feeds[b->feed_of[i]].session;
        const uint32_t n_draft = b->drafts[i], n = piece->n - n_draft;
        if (n_draft == 0) ahead_forget(s);
        memmove(s->tokens + s->n_past, piece->ids, piece->n * sizeof *s->tokens);
        s->n_past += n;
        feeds[b->feed_of[i]].n_done += n;
        s->has_logits = piece->n_result > 0;
        if (n_draft > 0 && logits != s->ahead->rows) {
            memcpy(s->ahead->rows, logits, (size_t)piece->n_result * n_vocab * sizeof *logits);
        }
        if (n_draft > 0) ahead_computed(s, n_draft);
        else if (s->has_logits) memcpy(s->logits, logits, n_vocab * sizeof *logits);
        logits += (size_t)piece->n_result * n_vocab;
        if (n > AHEAD_FED) ahead_lead(s);
    }
}

/* Where the logits of the pieces go: the rows of a session that is alone, or those of all; without drafts if there is
 * no memory for them.  NULL: there is none for those after the tokens of the feeds. */
static float *place_of(const plumb_feed *feeds, struct feeding *b, uint32_t n_piece, uint32_t n_vocab) {
    size_t n_row = 0;
    for (uint32_t i = 0; i < n_piece; i++) n_row += b->pieces[i].n_result;
    if (n_piece == 1 && b->drafts[0] > 0) return feeds[b->feed_of[0]].session->ahead->rows;
    if (make_rows(b, n_row > n_piece ? n_row : n_piece, n_vocab)) return b->logits;
    return remove_drafts(b, n_piece) > 0 && make_rows(b, n_piece, n_vocab) ? b->logits : NULL;
}

/* Computes the pieces, without drafts if there is no memory for them, and sets *logits to those of the results, NULL if
 * there is no memory for these.  Returns how many pieces there was room for, as forward_run does. */
static uint32_t run(const plumb_feed *feeds, struct feeding *b, uint32_t n_piece, uint32_t n_vocab, float **logits) {
    struct work *w = feeds->session->work;
    const double start = clock_seconds();
    *logits = place_of(feeds, b, n_piece, n_vocab);
    uint32_t n_run = *logits ? forward_run(w->forward, b->pieces, n_piece, *logits) : 0, n_token = 0, n_result = 0;
    if (*logits && n_run < n_piece && remove_drafts(b, n_piece) > 0) return run(feeds, b, n_piece, n_vocab, logits);
    for (uint32_t i = 0; i < n_piece; i++) {
        n_token += b->pieces[i].n;
        n_result += b->pieces[i].n_result;
    }
    if (n_run == n_piece && n_result == n_token) costs_measure(&w->costs, n_token, clock_seconds() - start);
    return n_run;
}

plumb_status plumb_sessions_feed(plumb_feed *feeds, size_t n_feed, size_t *failed) {
    *failed = 0;
    for (size_t i = 0; i < n_feed; i++) feeds[i].n_done = 0;
    if (n_feed == 0) return PLUMB_OK;
    PLUMB_TRY(check_feeds(feeds, n_feed, failed));
    plumb_session *first = feeds->session;
    struct work *w = first->work;
    uint32_t n_vocab = first->model->model->plan.n_vocab, n_batch = w->params.n_batch;
    struct feeding *b = arrays_of(w, n_feed);
    for (size_t i = 0; i < n_feed && b; i++) {
        plumb_feed *feed = &feeds[i];
        feed->n_done = ahead_take(feed->session, feed->ids, feed->n);
        if (feed->n_done == feed->n) feed->session->has_logits = feed->wants_logits;
    }
    for (;;) {
        int64_t n_piece = b ? gather(feeds, n_feed, b, n_batch, failed) : 0;
        if (n_piece < 0 || (n_piece == 0 && b)) return (plumb_status)n_piece;
        uint32_t n = (uint32_t)n_piece;
        float *logits = NULL;
        if (b) add_drafts(feeds, b, n, n_batch);
        session_use_pass(first);
        uint32_t n_run = b ? run(feeds, b, n, n_vocab, &logits) : 0;
        if (!logits) {
            for (uint32_t i = 0; b && i < n; i++) session_trim(feeds[b->feed_of[i]].session);
            *failed = 0;
            return error_set(&first->err, PLUMB_ERROR_MEMORY, "out of memory: logits of %zu sessions", n_feed);
        }
        if (n_run < n) {
            *failed = b->feed_of[n_run];
            for (uint32_t i = 0; i < n; i++) session_trim(feeds[b->feed_of[i]].session);
            return session_no_room(feeds[*failed].session, b->pieces[n_run].n);
        }
        scatter(feeds, b, n, n_vocab, logits);
    }
}

#include "api/session.h"

#include "base/math.h"

#include <assert.h>
#include <stdlib.h>

/* The vocabulary of a draft model must be that of the session's model. */
static plumb_status check_draft(plumb_session *s, plumb_session *draft) {
    const plumb_model *m = s->model, *other = draft->model;
    uint32_t n = plumb_model_n_vocab(m), n_other = plumb_model_n_vocab(other);
    if (draft == s) return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "a session cannot draft for itself");
    if (!draft->forward || !other->model->plan.has_logits || other->model->plan.n_encoder > 0) {
        return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "the draft model (%s) does not continue texts",
                         other->model->plan.architecture);
    }
    if (n != n_other) {
        return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "the draft model has another vocabulary: %u tokens, not %u; "
                         "take a smaller model of the same family", n_other, n);
    }
    for (uint32_t i = 0; i < n && other != m && draft->drafts_for != m; i++) {
        char is[128], expected[128];
        int64_t n_is = plumb_token_piece(other, (int32_t)i, true, is, sizeof is);
        int64_t n_expected = plumb_token_piece(m, (int32_t)i, true, expected, sizeof expected);
        size_t n_same = n_is < (int64_t)sizeof is ? (size_t)(n_is > 0 ? n_is : 0) : sizeof is;
        if (n_is == n_expected && memcmp(is, expected, n_same) == 0) continue;
        struct shown a, b;
        size_t n_b = n_expected > 0 ? (size_t)n_expected : 0;
        if (n_b > sizeof expected) n_b = sizeof expected;
        return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "the draft model has another vocabulary: token %u is \"%s\", "
                         "not \"%s\"; take a smaller model of the same family", i, show_bytes(&a, is, n_same),
                         show_bytes(&b, expected, n_b));
    }
    draft->drafts_for = m;
    return PLUMB_OK;
}

plumb_status plumb_session_speculate(plumb_session *s, const plumb_speculation *how) {
    PLUMB_TRY(session_check_idle(s));
    if (how && how->draft) PLUMB_TRY(check_draft(s, how->draft));
    if (how && (how->n_most > PLUMB_MAX_DRAFT || how->n_least > PLUMB_MAX_DRAFT
                || (how->n_most > 0 && how->n_least > how->n_most))) {
        return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "drafts of %u to %u tokens: 0 to %d are allowed, and the least "
                         "not above the most", how->n_least, how->n_most, PLUMB_MAX_DRAFT);
    }
    const struct plan *p = &s->model->model->plan;
    bool can = s->forward && !p->is_recurrent && plan_is_causal(p) && p->has_logits;
    if (!how || (!how->lookup && !how->draft) || !can) {
        ahead_forget(s);
        if (!s->ahead) return PLUMB_OK;
        lookup_free(&s->ahead->lookup);
        free(s->ahead->rows);
        s->ahead->rows = NULL;
        s->ahead->n_row = 0;
        s->ahead->how = (plumb_speculation) { 0 };
        return PLUMB_OK;
    }
    if (!s->ahead) {
        s->ahead = calloc(1, sizeof *s->ahead);
        if (!s->ahead) {
            return error_set(&s->err, PLUMB_ERROR_MEMORY, "out of memory: %zu bytes for drafts", sizeof *s->ahead);
        }
        /* A match of more tokens is more often right; what is seen of this text soon replaces these values. */
        for (uint32_t i = 0; i < LOOKUP_CLASSES; i++) s->ahead->rates[i].right = 0.4 + 0.05 * i;
        for (uint32_t i = 0; i < AHEAD_SURE; i++) s->ahead->sure[i].right = 0.2 + 0.18 * i;
    }
    s->ahead->how = *how;
    return PLUMB_OK;
}

uint64_t plumb_session_n_drafted(const plumb_session *s) { return s->ahead ? s->ahead->n_drafted : 0; }
uint64_t plumb_session_n_accepted(const plumb_session *s) { return s->ahead ? s->ahead->n_accepted : 0; }

size_t plumb_session_n_ahead(const plumb_session *s, const int32_t *ids, size_t n) {
    size_t same = 0;
    while (s->ahead && same < n && same < s->ahead->n && ids[same] == s->tokens[s->n_past + same]) same++;
    return same;
}

void ahead_free(struct ahead *a) {
    if (!a) return;
    lookup_free(&a->lookup);
    free(a->rows);
    free(a);
}

uint64_t ahead_bytes(const plumb_session *s) {
    const struct ahead *a = s->ahead;
    if (!a) return 0;
    return sizeof *a + lookup_bytes(&a->lookup) + (uint64_t)a->n_row * s->model->model->plan.n_vocab * sizeof *a->rows;
}

void ahead_set_drafter(plumb_session *s, ahead_drafter *drafter, void *user) {
    ahead_forget(s);
    if (!s->ahead) return;
    s->ahead->drafter = drafter;
    s->ahead->user = user;
}

/* ---- the end of a draft ------------------------------------------------------------------------------------------ */

void ahead_forget(plumb_session *s) {
    struct ahead *a = s->ahead;
    if (!a) return;
    if (a->n + a->n_taken > 0) costs_settle(&s->work->costs, a->n_taken * a->worth - a->price);
    a->n = a->n_taken = a->n_by_model = 0;
}

void ahead_keep(plumb_session *s, uint32_t n) {
    ahead_forget(s);
    if (s->ahead) lookup_keep(&s->ahead->lookup, s->tokens, n);
}

void ahead_clear(plumb_session *s) {
    ahead_forget(s);
    if (s->ahead) lookup_clear(&s->ahead->lookup);
}

/* Adds the tokens up to n to the index, and counts how often it was right. */
static bool follow(plumb_session *s, uint32_t n) {
    struct ahead *a = s->ahead;
    struct lookup *l = &a->lookup;
    assert(l->n <= n);   /* ahead_keep was called whenever tokens were forgotten */
    bool ok = n - l->n <= AHEAD_FED + PLUMB_MAX_DRAFT || lookup_extend(l, s->tokens, n - 1, false);
    while (ok && l->n < n) {
        if (l->length > 0) rate_count(&a->rates[lookup_class(l, 0)], s->tokens[l->source] == s->tokens[l->n]);
        ok = lookup_extend(l, s->tokens, l->n + 1, true);
    }
    return ok;
}

size_t ahead_take(plumb_session *s, const int32_t *ids, size_t n) {
    struct ahead *a = s->ahead;
    size_t n_taken = plumb_session_n_ahead(s, ids, n);
    if (!a || a->n == 0) return 0;
    for (size_t i = a->n_taken; i < a->n_taken + n_taken && i < a->n_by_model; i++) {
        rate_count(&a->sure[a->sureness[i]], true);
    }
    if (n_taken < n && n_taken < a->n && a->n_taken + n_taken < a->n_by_model) {
        rate_count(&a->sure[a->sureness[a->n_taken + n_taken]], false);
    }
    s->n_past += (uint32_t)n_taken;
    a->row += (uint32_t)n_taken;
    a->n -= (uint32_t)n_taken;
    a->n_taken += (uint32_t)n_taken;
    a->n_accepted += n_taken;
    if (n_taken < n || a->n == 0) ahead_forget(s);
    if (n_taken == 0) return 0;
    const uint32_t n_vocab = s->model->model->plan.n_vocab;
    memcpy(s->logits, a->rows + (size_t)a->row * n_vocab, n_vocab * sizeof *s->logits);
    s->has_logits = true;
    return n_taken;
}

/* ---- drafts ------------------------------------------------------------------------------------------------------ */

/* Room for the logits of n tokens; how many of them there is room for. */
static uint32_t make_rows(plumb_session *s) {
    struct ahead *a = s->ahead;
    if (a->rows) return a->n_row;
    const uint64_t row = (uint64_t)s->model->model->plan.n_vocab * sizeof *a->rows;
    uint32_t most = PLUMB_MAX_DRAFT + 1;
    while (most > 1 && most * row > AHEAD_BYTES) most--;
    a->rows = most > 1 ? alloc_array(most * row, 1) : NULL;
    a->n_row = a->rows ? most : 0;
    return a->n_row;
}

/* The draft of the index is what follows its source, which is where it lies if that is the end of the text. */
static uint32_t plan_lookup(plumb_session *s, uint32_t n_token, double n_made, uint32_t n_most) {
    struct ahead *a = s->ahead;
    double chances[PLUMB_MAX_DRAFT];
    if (a->lookup.length == 0) return 0;
    for (uint32_t i = 0; i < n_most; i++) chances[i] = a->rates[lookup_class(&a->lookup, i)].right;
    uint32_t n = costs_plan(&s->work->costs, n_token, n_made, 0, chances, n_most);
    uint32_t n_least = a->how.n_least < n_most ? a->how.n_least : n_most;
    return n > n_least ? n : n_least;
}

/* What a token of the draft model costs, in passes of one token of this one; the size of both until it was measured. */
static double draft_cost(const plumb_session *s) {
    const struct costs *own = &s->work->costs, *of = &s->ahead->how.draft->work->costs;
    plumb_model_info large, small;
    if (own->single > 0 && of->single > 0) return of->single / own->single;
    plumb_model_get_info(s->model, &large);
    plumb_model_get_info(s->ahead->how.draft->model, &small);
    return (double)small.weight_bytes / ((double)large.weight_bytes + 1);
}

/* Lets the draft model hold the first n tokens, or a batch more of them than it does; returns how many it holds. */
static uint32_t lead(plumb_session *s, uint32_t n) {
    plumb_session *draft = s->ahead->how.draft;
    if (n > draft->n_ctx) return 0;
    uint32_t at = plumb_session_reuse(draft, s->tokens, n), left = n - at;
    if (left > draft->n_batch) left = draft->n_batch;
    return plumb_session_feed(draft, s->tokens + at, left) == PLUMB_OK ? at + left : 0;
}

void ahead_lead(plumb_session *s) {
    if (s->ahead && s->ahead->how.draft) lead(s, s->n_past);
}

/* Writes the draft of the draft model behind the n tokens of the session, as long as the next token is worth its
 * price. */
static uint32_t draft_by_model(plumb_session *s, uint32_t n, uint32_t n_token, double n_made, uint32_t n_most) {
    struct ahead *a = s->ahead;
    plumb_session *draft = a->how.draft;
    const struct costs *c = &s->work->costs;
    double chances[PLUMB_MAX_DRAFT], each = draft_cost(s), expected = n_made, chance = 1;
    uint32_t n_least = a->how.n_least < n_most ? a->how.n_least : n_most, n_draft = 0;
    for (uint32_t i = 0; i < n_most; i++) chances[i] = a->sure[AHEAD_SURE - 1].right;
    if (costs_plan(c, n_token, n_made, each, chances, n_most) == 0 && n_least == 0) return 0;
    double start = clock_seconds();
    bool is_led = lead(s, n) >= n;
    double before = clock_seconds();
    while (is_led && n_draft < n_most) {
        const float *logits = plumb_session_logits(draft);
        int32_t id;
        double sum = plumb_logits_top(logits, s->model->model->plan.n_vocab, 1, &id);
        if (id < 0) break;
        double p = math_exp((double)logits[id] - sum), spent = (1 + n_draft) * each;
        uint32_t sure = p < 0.3 ? 0 : p < 0.5 ? 1 : p < 0.7 ? 2 : p < 0.9 ? 3 : 4;
        chance *= a->sure[sure].right;
        bool pays = (expected + chance) / (costs_of(c, n_token + n_draft + 1) + spent)
                  > expected / (costs_of(c, n_token + n_draft) + spent);
        if (!pays && n_draft >= n_least) break;
        expected += chance;
        a->sureness[n_draft] = (uint8_t)sure;
        s->tokens[n + n_draft++] = id;
        if (n_draft == n_most || n + n_draft > draft->n_ctx) break;
        if (plumb_session_feed(draft, &id, 1) != PLUMB_OK) break;
        double now = clock_seconds();
        costs_measure(&draft->work->costs, 1, now - before);
        before = now;
    }
    a->drafting = c->single > 0 ? (clock_seconds() - start) / c->single : 0;
    a->n_by_model = n_draft;
    return n_draft;
}

uint32_t ahead_draft(plumb_session *s, const int32_t *ids, uint32_t n, uint32_t n_other, uint32_t n_session,
                     uint32_t n_most) {
    struct ahead *a = s->ahead;
    uint32_t n_free = s->n_ctx - s->n_past - n, most = a && a->how.n_most > 0 ? a->how.n_most : PLUMB_MAX_DRAFT;
    if (!a || (!a->how.lookup && !a->how.draft) || n > AHEAD_FED || s->sink.on_tap) return 0;
    if (n_most > n_free) n_most = n_free;
    if (n_most > most) n_most = most;
    memmove(s->tokens + s->n_past, ids, n * sizeof *ids);
    int32_t *to = s->tokens + s->n_past + n;
    if (a->drafter) {
        uint32_t n_row = make_rows(s);
        if (n_row == 0) return 0;
        return a->drafter(a->user, s->tokens, s->n_past + n, n_most < n_row ? n_most : n_row - 1);
    }
    uint32_t n_draft = 0;
    a->drafting = a->n_by_model = 0;
    if (a->how.lookup && follow(s, s->n_past + n)) n_draft = plan_lookup(s, n_other + n, n_session + 1, n_most);
    if (n_draft > 0 && make_rows(s) < n_draft + 1) n_draft = a->n_row > 0 ? a->n_row - 1 : 0;
    for (uint32_t i = 0; i < n_draft; i++) to[i] = s->tokens[a->lookup.source + i];
    if (n_draft == 0 && a->how.draft && make_rows(s) > 0) {
        if (n_most >= a->n_row) n_most = a->n_row - 1;
        n_draft = draft_by_model(s, s->n_past + n, n_other + n, n_session + 1, n_most);
    }
    struct costs *c = &s->work->costs;
    a->base = costs_of(c, n_other + n);
    a->worth = a->base / (n_session + 1);
    a->price = costs_of(c, n_other + n + n_draft) - a->base + a->drafting;
    if (n_draft == 0) costs_settle(c, -a->drafting);   /* the model may have drafted in vain */
    return n_draft;
}

bool ahead_run(plumb_session *s, uint32_t n, uint32_t n_draft) {
    struct ahead *a = s->ahead;
    const struct piece piece = { &s->sequence, s->tokens + s->n_past, n + n_draft, s->n_past, 1 + n_draft, 0 };
    const double start = clock_seconds();
    session_use_pass(s);
    if (forward_run(s->forward, &piece, 1, a->rows) == 0) return false;
    if (n == 1) a->price = costs_measure(&s->work->costs, 1 + n_draft, clock_seconds() - start) - a->base + a->drafting;
    s->n_past += n;
    ahead_computed(s, n_draft);
    return true;
}

void ahead_computed(plumb_session *s, uint32_t n_draft) {
    struct ahead *a = s->ahead;
    a->row = a->n_taken = 0;
    a->n = n_draft;
    a->n_drafted += n_draft;
    memcpy(s->logits, a->rows, s->model->model->plan.n_vocab * sizeof *s->logits);
    s->has_logits = true;
}

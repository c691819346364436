/* plumb_session: one sequence of tokens, the forward pass that computes it, and its KV cache.  Also implements
 * plumb_threads_*. */
#include "api/session.h"
#include "forward/kv_cache.h"

#include <math.h>
#include <stdlib.h>

/* ---- the pass that sessions share -------------------------------------------------------------------------------- */

static void leave_work(struct work *w) {
    if (!w || --w->n_owner > 0) return;
    forward_free(w->forward);
    pool_free(w->pool);
    feeding_free(&w->feeding);
    free(w);
}

void feeding_free(struct feeding *b) {
    free(b->pieces);
    free(b->feed_of);
    free(b->drafts);
    free(b->logits);
}

/* Whether a session with these params, whose n_ctx and n_batch are known, can use the pass of another one of the same
 * model. */
static bool can_share(const struct work *w, const struct model *m, const plumb_session_params *p) {
    const plumb_session_params *of = &w->params;
    bool same_ropes = true;
    for (uint32_t i = 0; i < PLAN_ROPES; i++) {
        same_ropes = same_ropes && model_rope_factors(m, i, p->n_ctx) == model_rope_factors(m, i, of->n_ctx);
    }
    return same_ropes && of->precision == p->precision && of->kv_type == p->kv_type && of->n_thread == p->n_thread
        && of->force_scalar == p->force_scalar && p->n_batch <= of->n_batch;
}

static struct work *share_work(struct work *w, const struct model *m, const plumb_session_params *p) {
    if (!w || !can_share(w, m, p) || !forward_grow(w->forward, p->n_ctx)) return NULL;
    w->n_owner++;
    return w;
}

static plumb_status create_work(struct work **out, plumb_model *model, const plumb_session_params *p,
                                struct error *err) {
    struct kernels k;
    struct work *w = *out = calloc(1, sizeof *w);
    if (!w) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %zu bytes for a session", sizeof *w);
    if (p->force_scalar) kernels_init(&k, KERNELS_SCALAR, p->precision);
    else kernels_choose(&k, p->precision, &model->speeds);
    w->n_owner = 1;
    w->pool = pool_create(p->n_thread);
    w->params = *p;
    costs_init(&w->costs);
    return forward_create(&w->forward, model->model, p->n_ctx, p->n_batch, p->kv_type, &k, w->pool, err);
}

void session_use_pass(plumb_session *s) { forward_use(s->forward, s->sink, s->adapters.n > 0 ? &s->adapters : NULL); }

/* ---- creating ---------------------------------------------------------------------------------------------------- */

static plumb_status create(plumb_session *s, const plumb_session_params *p, struct error *err) {
    const struct model *m = s->model->model;
    if (p->n_ctx > PLUMB_MAX_CTX) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "a context of %u tokens: 0 to %d are allowed", p->n_ctx,
                         PLUMB_MAX_CTX);
    }
    if (p->n_batch > PLUMB_MAX_BATCH) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "batches of %u tokens: 0 to %d are allowed", p->n_batch,
                         PLUMB_MAX_BATCH);
    }
    if (p->n_thread > PLUMB_MAX_THREADS) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "%u threads: 0 to %d are allowed", p->n_thread, PLUMB_MAX_THREADS);
    }
    if (p->beside && p->beside->model != s->model) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "the session that this one would be beside is another model's");
    }
    if (p->n_snapshot == 1 || p->n_snapshot > PLUMB_MAX_SNAPSHOTS) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "%u snapshots: 0 and 2 to %d are allowed", p->n_snapshot,
                         PLUMB_MAX_SNAPSHOTS);
    }
    s->n_ctx = p->n_ctx;
    s->n_batch = plan_n_batch(&m->plan, s->n_ctx, p->n_batch);
    if (!plumb_kv_type_name(p->kv_type)) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "%d is not a type of K and V", (int)p->kv_type);
    }
    if (!plumb_precision_name(p->precision)) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "%d is not a precision", (int)p->precision);
    }
    if (m->position_embd.w && s->n_ctx > m->plan.n_ctx_train) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "a context of %u tokens is too large: the model has learned only "
                         "%u positions", s->n_ctx, m->plan.n_ctx_train);
    }
    s->tokens = alloc_array(s->n_ctx, sizeof *s->tokens);
    s->logits = alloc_array(m->plan.n_vocab, sizeof *s->logits);
    bool has_encoder = m->plan.n_encoder > 0;
    if (has_encoder) s->encoded = alloc_array(s->n_ctx, sizeof *s->encoded);
    if (!s->tokens || !s->logits || (has_encoder && !s->encoded)) {
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %u tokens and %u logits", s->n_ctx,
                         m->plan.n_vocab);
    }
    s->params = *p;
    s->params.n_batch = s->n_batch;
    s->params.beside = NULL;
    s->pass = p->pass;
    if (s->pass) return s->pass->create(&s->reference, m, s->n_ctx, s->n_batch, err);
    PLUMB_TRY(kv_cache_check(&m->plan, p->kv_type, err));
    if (!sequence_create(&s->sequence, &m->plan, s->n_ctx, s->n_batch, p->kv_type, p->n_snapshot, p->grows)) {
        return sequence_no_memory(&m->plan, s->n_ctx, s->n_batch, p->kv_type, p->n_snapshot, err);
    }
    s->work = share_work(p->beside ? p->beside->work : NULL, m, &s->params);
    if (!s->work) PLUMB_TRY(create_work(&s->work, s->model, &s->params, err));
    s->forward = s->work->forward;
    return PLUMB_OK;
}

plumb_status plumb_session_create(plumb_session **out, plumb_model *model, const plumb_session_params *params) {
    plumb_session_params p = params ? *params : (plumb_session_params) { 0 };
    bool is_default = p.n_ctx == 0;
    *out = NULL;
    if (!model->model) return error_set(&model->err, PLUMB_ERROR_STATE, "the model is not completely loaded");
    if (is_default) p.n_ctx = kv_cache_default(&model->model->plan, p.kv_type);
    for (;; p.n_ctx = p.n_ctx / 2 > PLUMB_LEAST_CTX ? p.n_ctx / 2 : PLUMB_LEAST_CTX) {
        plumb_session *s = calloc(1, sizeof *s);
        if (!s) return error_set(&model->err, PLUMB_ERROR_MEMORY, "out of memory: %zu bytes for a session", sizeof *s);
        s->model = model;
        plumb_status status = create(s, &p, &model->err);
        if (status == PLUMB_OK) {
            *out = s;
            return PLUMB_OK;
        }
        plumb_session_free(s);
        if (status != PLUMB_ERROR_MEMORY || !is_default || p.n_ctx <= PLUMB_LEAST_CTX) return status;
    }
}

void plumb_session_free(plumb_session *s) {
    if (!s) return;
    ahead_free(s->ahead);
    if (s->pass) s->pass->free(s->reference);
    else if (s->sequence.plan) sequence_free(&s->sequence);
    leave_work(s->work);
    adapter_set_free(&s->adapters);
    free(s->tokens);
    free(s->dropped);
    free(s->encoded);
    free(s->logits);
    free(s->embedding);
    free(s);
}

const char *plumb_precision_name(plumb_precision precision) {
    switch (precision) {
    case PLUMB_PRECISION_EXACT16: return "exact16";
    case PLUMB_PRECISION_FAST8: return "fast8";
    }
    return NULL;
}

const char *plumb_kv_type_name(plumb_kv_type type) {
    switch (type) {
    case PLUMB_KV_I16: return "i16";
    case PLUMB_KV_Q8_0: return "q8_0";
    case PLUMB_KV_Q4_0: return "q4_0";
    case PLUMB_KV_F32: return "f32";
    }
    return NULL;
}

const plumb_model *session_model(const plumb_session *s) { return s->model; }
const char *plumb_session_error(const plumb_session *s) { return s->err.message; }
uint32_t plumb_session_n_ctx(const plumb_session *s) { return s->n_ctx; }
uint32_t plumb_session_n_batch(const plumb_session *s) { return s->n_batch; }
bool plumb_session_exceeds_training(const plumb_session *s) {
    const struct plan *p = &s->model->model->plan;
    bool attends = false;
    for (uint32_t il = 0; il < p->n_layer; il++) attends = attends || plan_attends(&p->layers[il]);
    return attends && s->n_ctx > p->n_ctx_train;
}
uint64_t plumb_session_bytes(const plumb_session *s) {
    uint64_t fast = s->forward ? forward_bytes(s->forward) + sequence_bytes(&s->sequence) : 0;
    uint64_t pass = s->forward ? fast : s->pass->bytes(s->reference);
    uint64_t n_text = s->encoded ? 2 : 1;
    uint64_t n_id = n_text * s->n_ctx + s->dropped_room;
    return pass + ahead_bytes(s) + n_id * sizeof *s->tokens + s->model->model->plan.n_vocab * sizeof *s->logits;
}
const char *plumb_session_kernels(const plumb_session *s) {
    return s->forward ? forward_kernels(s->forward)->name : "reference";
}
plumb_precision plumb_session_precision(const plumb_session *s) {
    return s->forward ? forward_kernels(s->forward)->precision : PLUMB_PRECISION_EXACT16;
}
uint32_t plumb_session_n_thread(const plumb_session *s) { return s->work ? pool_size(s->work->pool) : 1; }

uint32_t plumb_session_n_past(const plumb_session *s) { return s->n_past; }
const int32_t *plumb_session_tokens(const plumb_session *s) { return s->tokens; }
uint32_t plumb_session_n_encoded(const plumb_session *s) { return s->n_encoded; }

plumb_status session_check_idle(plumb_session *s) {
    if (!s->is_running) return PLUMB_OK;
    return error_set(&s->err, PLUMB_ERROR_STATE, "a callback of this session cannot feed, rewind or tap it");
}

void session_trim(plumb_session *s) {
    ahead_keep(s, s->n_past);
    if (s->params.grows) sequence_trim(&s->sequence, s->n_past);
}

plumb_status session_no_room(plumb_session *s, uint32_t n) {
    session_trim(s);
    return error_set(&s->err, PLUMB_ERROR_MEMORY, "out of memory: K and V of %u tokens behind %u", n, s->n_past);
}

/* How many tokens a full context of a session drops at once, and how many remain. */
static uint32_t shift_of(const plumb_session *s) { return (s->n_ctx - s->n_keep) / 2; }
static uint32_t n_shifted(const plumb_session *s) { return s->n_ctx - shift_of(s); }

/* Keeps the first n tokens, or as many of them as the pass can go on from, and returns their number.  Of the tokens
 * that remained when others were dropped, it keeps all, or none but those that never moved: K and V of some of them are
 * not those of a shorter text. */
static uint32_t keep(plumb_session *s, uint32_t n) {
    if (n == s->n_past) return n;
    s->has_logits = false;   /* they belong to a token that is removed */
    if (s->n_dropped > 0 && n < n_shifted(s) && n > s->n_keep) n = s->n_keep;
    s->n_past = s->forward ? sequence_rewind(&s->sequence, n) : s->pass->rewind(s->reference, n);
    if (s->n_past <= s->n_keep) s->n_dropped = 0;
    session_trim(s);
    return s->n_past;
}

/* Token i of those that were fed. */
static int32_t token_fed(const plumb_session *s, uint32_t i) {
    if (i < s->n_keep || s->n_dropped == 0) return s->tokens[i];
    return i < s->n_keep + s->n_dropped ? s->dropped[i - s->n_keep] : s->tokens[i - s->n_dropped];
}

uint32_t plumb_session_reuse(plumb_session *s, const int32_t *ids, size_t n) {
    uint32_t same = 0, n_dropped = s->n_dropped;
    while (same < s->n_past + n_dropped && same + 1 < n && token_fed(s, same) == ids[same]) same++;
    if (session_check_idle(s) != PLUMB_OK) return same;
    bool is_behind = same >= n_shifted(s) + n_dropped;   /* nothing that was dropped is missing */
    same = keep(s, n_dropped == 0 ? same : is_behind ? same - n_dropped : same < s->n_keep ? same : s->n_keep);
    return same + s->n_dropped;
}

bool session_hold_dropped(plumb_session *s, uint32_t n) {
    if (n <= s->dropped_room) return true;
    int32_t *grown = realloc(s->dropped, n * sizeof *grown);
    if (!grown) return false;
    s->dropped = grown;
    s->dropped_room = n;
    return true;
}

/* Drops tokens of a full context. */
static plumb_status shift(plumb_session *s) {
    uint32_t n = shift_of(s);
    if (s->n_dropped > SESSION_MAX_DROPPED || !session_hold_dropped(s, s->n_dropped + n)) {
        return error_set(&s->err, PLUMB_ERROR_MEMORY, "out of memory: a list of %u tokens, and of %u more",
                         s->n_dropped, n);
    }
    if (!forward_drop(s->forward, &s->sequence, s->n_keep, n)) return session_no_room(s, 0);
    ahead_clear(s);
    int32_t *moved = s->tokens + s->n_keep;
    memcpy(s->dropped + s->n_dropped, moved, n * sizeof *moved);
    memmove(moved, moved + n, (s->n_ctx - s->n_keep - n) * sizeof *moved);
    s->n_dropped += n;
    s->n_past -= n;
    return PLUMB_OK;
}

plumb_status plumb_session_set_shift(plumb_session *s, uint32_t n_keep) {
    PLUMB_TRY(session_check_idle(s));
    if (n_keep == s->n_keep) return PLUMB_OK;
    if (n_keep > 0 && !s->forward) {
        return error_set(&s->err, PLUMB_ERROR_UNSUPPORTED, "the reference pass cannot drop tokens of a full context");
    }
    bool is_possible = n_keep <= s->n_ctx / 2 && s->n_ctx >= PLUMB_LEAST_SHIFT_CTX;
    uint32_t n_left = is_possible ? n_keep + (s->n_ctx - n_keep + 1) / 2 : s->n_ctx;
    if (n_keep > 0) PLUMB_TRY(forward_prepare_drop(s->forward, &s->sequence, n_keep, n_left, &s->err));
    if (n_keep > 0 && !is_possible) {
        return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "%u tokens cannot stay in a full context of %u: at most half "
                         "of it can, and it must have at least %d", n_keep, s->n_ctx, PLUMB_LEAST_SHIFT_CTX);
    }
    if (s->n_dropped > 0) keep(s, s->n_keep);
    s->n_keep = n_keep;
    return PLUMB_OK;
}

uint32_t plumb_session_n_keep(const plumb_session *s) { return s->n_keep; }
uint32_t plumb_session_n_dropped(const plumb_session *s) { return s->n_dropped; }

/* Runs one batch of n <= n_batch tokens.  results: (n_result, plan_n_result) of the last n_result; NULL: only their
 * embeddings are wanted.  ids may be the session's own tokens. */
static plumb_status run(plumb_session *s, const int32_t *ids, uint32_t n, uint32_t n_result, float *results) {
    const struct piece piece = { &s->sequence, ids, n, s->n_past, n_result, 0 };
    ahead_forget(s);
    if (s->forward) {
        session_use_pass(s);
        if (forward_run(s->forward, &piece, 1, results) == 0) return session_no_room(s, n);
    } else {
        s->pass->run(s->reference, ids, n, s->n_past, n_result, results);
    }
    memmove(s->tokens + s->n_past, ids, n * sizeof *ids);
    s->n_past += n;
    return PLUMB_OK;
}

plumb_status plumb_session_rewind(plumb_session *s, uint32_t n_past) {
    PLUMB_TRY(session_check_idle(s));
    if (n_past > s->n_past) {
        return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "cannot rewind to token %u: only %u are in the cache", n_past,
                         s->n_past);
    }
    plumb_status status = PLUMB_OK;
    s->is_running = true;
    /* What the pass has lost is computed again. */
    for (uint32_t at = keep(s, n_past); at < n_past && status == PLUMB_OK; at = s->n_past) {
        status = run(s, s->tokens + at, n_past - at < s->n_batch ? n_past - at : s->n_batch, 0, NULL);
    }
    s->is_running = false;
    return status;
}

static plumb_status check_room(plumb_session *s, size_t n) {
    if (n <= s->n_ctx - s->n_past) return PLUMB_OK;
    return error_set(&s->err, PLUMB_ERROR_CONTEXT, "%zu more tokens do not fit: %u of the context's %u are used", n,
                     s->n_past, s->n_ctx);
}

/* Checks the tokens of a text, whatever was fed before. */
static plumb_status check_text(plumb_session *s, const int32_t *ids, size_t n) {
    uint32_t n_vocab = s->model->model->plan.n_vocab;
    PLUMB_TRY(session_check_idle(s));
    if (s->model->headers_only && !s->model->ring) {
        return error_set(&s->err, PLUMB_ERROR_STATE, "the model was loaded without its weights "
                         "(plumb_model_rehearse), and its largest tensor is too large to be replaced by zeros");
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab) {
            return error_set(&s->err, PLUMB_ERROR_TOKEN, "token %d at index %zu is not in 0..%u", (int)ids[i], i,
                             n_vocab - 1);
        }
    }
    return PLUMB_OK;
}

static plumb_status check_feed(plumb_session *s, const int32_t *ids, size_t n) {
    PLUMB_TRY(session_check_idle(s));
    if (n > 0 && s->n_past > 0 && !plan_is_causal(&s->model->model->plan)) {
        return error_set(&s->err, PLUMB_ERROR_STATE, "tokens of this model attend to later ones, so all of them must "
                         "be fed at once; %u were fed before", s->n_past);
    }
    if (n > 0 && s->encoded && s->n_encoded == 0) {
        return error_set(&s->err, PLUMB_ERROR_STATE, "%s has an encoder, which must read a text before the decoder "
                         "writes one (plumb_session_encode)", s->model->model->plan.architecture);
    }
    if (s->n_keep == 0) PLUMB_TRY(check_room(s, n));
    return check_text(s, ids, n);
}

plumb_status plumb_session_encode(plumb_session *s, const int32_t *ids, size_t n) {
    if (!s->encoded) {
        return error_set(&s->err, PLUMB_ERROR_UNSUPPORTED, "%s has no encoder beside a decoder: feed it the text",
                         s->model->model->plan.architecture);
    }
    PLUMB_TRY(check_text(s, ids, n));
    if (n > s->n_ctx) {
        return error_set(&s->err, PLUMB_ERROR_CONTEXT, "a text of %zu tokens for the encoder: the context has %u", n,
                         s->n_ctx);
    }
    if (n == 0) return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "the encoder needs at least one token");
    if (n == s->n_encoded && !s->sink.on_tap && memcmp(ids, s->encoded, n * sizeof *ids) == 0) return PLUMB_OK;
    keep(s, 0);
    memmove(s->encoded, ids, n * sizeof *ids);
    s->n_encoded = (uint32_t)n;
    s->is_running = true;
    plumb_status status = session_run_encoder(s);
    s->is_running = false;
    return status;
}

plumb_status session_run_encoder(plumb_session *s) {
    uint32_t n = s->n_encoded;
    if (!s->forward) {
        s->pass->encode(s->reference, s->encoded, n);
        return PLUMB_OK;
    }
    session_use_pass(s);
    if (forward_encode(s->forward, &s->sequence, s->encoded, n)) return PLUMB_OK;
    s->n_encoded = 0;
    return session_no_room(s, n);
}

plumb_status plumb_session_set_tap(plumb_session *s, void (*on_tap)(void *user, const plumb_tap *tap), void *user) {
    PLUMB_TRY(session_check_idle(s));
    struct tap_sink sink = { on_tap, user };
    plumb_status status = !s->forward ? s->pass->set_tap(s->reference, sink)
                        : on_tap ? forward_prepare_taps(s->forward) : PLUMB_OK;
    if (status == PLUMB_OK) {
        ahead_forget(s);   /* taps show all that is fed from now on */
        s->sink = sink;
        return PLUMB_OK;
    }
    return error_set(&s->err, status, "out of memory: attention weights of %u tokens by %u; use a smaller context",
                     s->n_batch, s->n_ctx);
}

bool session_uses(const plumb_session *s, const struct adapter_use *uses, size_t n) {
    const struct adapter_set *set = &s->adapters;
    size_t i = 0;
    while (i < n && n == set->n && uses[i].adapter == set->uses[i].adapter && uses[i].scale == set->uses[i].scale
           && uses[i].first_layer == set->uses[i].first_layer && uses[i].last_layer == set->uses[i].last_layer) i++;
    return i == n && n == set->n;
}

/* Uses the n adapters that have a scale other than 0. */
static plumb_status use_adapters(plumb_session *s, const struct adapter_use *uses, size_t n) {
    struct adapter_set set;
    if (session_uses(s, uses, n)) return PLUMB_OK;
    plumb_status status = adapter_set_create(&set, s->model->model, uses, n);
    struct adapter_set before = s->adapters;
    s->adapters = set;
    const struct adapter_set *used = n > 0 ? &s->adapters : NULL;
    if (status == PLUMB_OK && !s->forward) status = s->pass->set_adapters(s->reference, used);
    if (status == PLUMB_OK && s->forward && used) status = forward_prepare_adapters(s->forward, used);
    if (status != PLUMB_OK) {
        s->adapters = before;
        adapter_set_free(&set);
        return error_set(&s->err, status, "out of memory: the products of %zu adapters", n);
    }
    adapter_set_free(&before);
    keep(s, 0);
    s->n_encoded = 0;
    return PLUMB_OK;
}

plumb_status session_copy_use(plumb_session *s, const plumb_session *from) {
    return use_adapters(s, from->adapters.uses, from->adapters.n);
}

plumb_status plumb_session_set_adapters(plumb_session *s, const plumb_adapter_use *given, size_t n_given) {
    PLUMB_TRY(session_check_idle(s));
    struct adapter_use *uses = alloc_array(n_given, sizeof *uses);
    if (!uses) return error_set(&s->err, PLUMB_ERROR_MEMORY, "out of memory: a list of %zu adapters", n_given);
    plumb_status status = PLUMB_OK;
    size_t n = 0;
    for (size_t i = 0; i < n_given && status == PLUMB_OK; i++) {
        const plumb_adapter_use *use = &given[i];
        uint32_t last = use->first_layer == 0 && use->last_layer == 0 ? UINT32_MAX : use->last_layer;
        if (!use->adapter->adapter) {
            status = error_set(&s->err, PLUMB_ERROR_STATE, "adapter %zu is not completely loaded", i + 1);
        } else if (use->adapter->model != s->model) {
            status = error_set(&s->err, PLUMB_ERROR_ARGUMENT, "adapter %zu was loaded for another model", i + 1);
        } else if (!isfinite(use->scale)) {
            status = error_set(&s->err, PLUMB_ERROR_ARGUMENT, "adapter %zu: its scale must be a finite number", i + 1);
        } else if (last < use->first_layer) {
            status = error_set(&s->err, PLUMB_ERROR_ARGUMENT, "adapter %zu: layers %u to %u are none", i + 1,
                               use->first_layer, last);
        } else if (use->scale != 0.0f) {
            uses[n++] = (struct adapter_use) { use->adapter->adapter, use->scale, use->first_layer, last };
        }
    }
    if (status == PLUMB_OK) status = use_adapters(s, uses, n);
    free(uses);
    return status;
}

static plumb_status check_logits(plumb_session *s) {
    const struct plan *p = &s->model->model->plan;
    if (p->has_logits) return PLUMB_OK;
    return error_set(&s->err, PLUMB_ERROR_UNSUPPORTED, "%s is an embedding model: it computes embeddings of texts, and "
                     "no logits from which to generate text", p->architecture);
}

plumb_status session_next_batch(plumb_session *s, size_t n, uint32_t *n_run) {
    if (s->n_past == s->n_ctx) PLUMB_TRY(shift(s));
    uint32_t n_free = s->n_ctx - s->n_past, most = n_free < s->n_batch ? n_free : s->n_batch;
    *n_run = n < most ? (uint32_t)n : most;
    return PLUMB_OK;
}

plumb_status session_check_feed(plumb_session *s, const int32_t *ids, size_t n) {
    PLUMB_TRY(check_logits(s));
    return check_feed(s, ids, n);
}

/* Runs the last batch of a feed, with a draft behind it if one pays. */
static plumb_status run_last(plumb_session *s, const int32_t *ids, uint32_t n) {
    uint32_t n_draft = ahead_draft(s, ids, n, 0, 0, s->n_batch - n);
    if (n_draft > 0 && ahead_run(s, n, n_draft)) return PLUMB_OK;
    const double start = s->ahead && n == 1 ? clock_seconds() : 0;
    PLUMB_TRY(run(s, ids, n, 1, s->logits));
    if (s->work && s->ahead && n == 1) costs_measure(&s->work->costs, 1, clock_seconds() - start);
    s->has_logits = true;
    return PLUMB_OK;
}

plumb_status plumb_session_feed(plumb_session *s, const int32_t *ids, size_t n) {
    PLUMB_TRY(session_check_feed(s, ids, n));
    plumb_status status = PLUMB_OK;
    s->is_running = true;
    size_t n_taken = ahead_take(s, ids, n);
    ids += n_taken;
    n -= n_taken;
    for (uint32_t n_run; n > 0 && (status = session_next_batch(s, n, &n_run)) == PLUMB_OK; n -= n_run) {
        s->has_logits = false;
        if ((status = n_run == n ? run_last(s, ids, n_run) : run(s, ids, n_run, 0, NULL)) != PLUMB_OK) break;
        if (n_run > AHEAD_FED) ahead_lead(s);
        ids += n_run;
    }
    s->is_running = false;
    return status;
}

plumb_status plumb_session_feed_all(plumb_session *s, const int32_t *ids, size_t n,
                                    void (*on_logits)(void *user, uint32_t pos, const float *logits), void *user) {
    const struct plan *p = &s->model->model->plan;
    if (on_logits) PLUMB_TRY(check_logits(s));
    PLUMB_TRY(check_feed(s, ids, n));
    if (n == 0) return PLUMB_OK;
    uint32_t n_element = plan_n_result(p), n_max = n < s->n_batch ? (uint32_t)n : s->n_batch;
    float *all = alloc_array((uint64_t)n_max * n_element, sizeof *all);
    if (!all) return error_set(&s->err, PLUMB_ERROR_MEMORY, "out of memory: logits of %u positions", n_max);
    plumb_status status = PLUMB_OK;
    s->is_running = true;
    for (uint32_t n_run; n > 0 && (status = session_next_batch(s, n, &n_run)) == PLUMB_OK; n -= n_run) {
        uint32_t pos = s->n_past;
        if ((status = run(s, ids, n_run, n_run, all)) != PLUMB_OK) break;
        s->has_logits = p->has_logits;
        for (uint32_t t = 0; on_logits && t < n_run; t++) on_logits(user, pos + t, all + (size_t)t * n_element);
        if (p->has_logits) memcpy(s->logits, all + (size_t)(n_run - 1) * n_element, n_element * sizeof *all);
        ids += n_run;
    }
    s->is_running = false;
    free(all);
    return status;
}

/* ---- embeddings ------------------------------------------------------------------------------------------------ */

/* How many tokens of several texts are computed at once, at most.  More are not faster, and a caller cannot stop in
 * between. */
enum { TEXTS_BATCH = 256 };

/* Returns how many of the texts are computed at once: the first of any length, and as many others as fit beside it. */
static uint32_t count_texts(const plumb_session *s, const uint32_t *lengths, size_t n_text) {
    uint64_t most = s->n_batch < TEXTS_BATCH ? s->n_batch : TEXTS_BATCH, n = lengths[0];
    uint32_t i = 1;
    bool can = s->forward && !s->sink.on_tap;
    while (can && i < n_text && n + lengths[i] <= most) n += lengths[i++];
    return i;
}

/* Computes several texts at once with the fast pass, or one with its encoder. */
static plumb_status run_texts(plumb_session *s, const int32_t *ids, const uint32_t *lengths, uint32_t n_text) {
    struct piece texts[TEXTS_BATCH];
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_text; n += lengths[i++]) {
        texts[i] = (struct piece) { &s->sequence, ids + n, lengths[i], 0, lengths[i], 0 };
    }
    session_use_pass(s);
    return forward_run_texts(s->forward, texts, n_text) ? PLUMB_OK : session_no_room(s, n);
}

/* Computes texts of n tokens together from an empty cache, and leaves it empty.  embeddings: (n, n_embd). */
static plumb_status run_embeddings(plumb_session *s, const int32_t *ids, const uint32_t *lengths, uint32_t n_text,
                                   uint32_t n, float *embeddings) {
    uint32_t n_embd = s->model->model->plan.n_embd;
    bool has_encoder = s->encoded != NULL;
    plumb_status status = PLUMB_OK;
    s->n_encoded = 0;
    if (n_text > 1 || (has_encoder && s->forward)) {
        status = run_texts(s, ids, lengths, n_text);
        if (status == PLUMB_OK) memcpy(embeddings, forward_embeddings(s->forward), (size_t)n * n_embd * sizeof(float));
    } else if (has_encoder) {
        s->pass->encode(s->reference, ids, n);
        s->pass->embeddings(s->reference, n, embeddings);
    }
    for (uint32_t at = 0, n_run; n_text == 1 && !has_encoder && at < n && status == PLUMB_OK; at += n_run) {
        n_run = n - at < s->n_batch ? n - at : s->n_batch;
        if ((status = run(s, ids + at, n_run, n_run, NULL)) != PLUMB_OK) break;
        float *to = embeddings + (size_t)at * n_embd;
        if (s->forward) memcpy(to, forward_embeddings(s->forward), (size_t)n_run * n_embd * sizeof *to);
        else s->pass->embeddings(s->reference, n_run, to);
    }
    keep(s, 0);
    return status;
}

/* Makes the vectors of texts of the embeddings of their tokens. */
static void pool_texts(plumb_session *s, const uint32_t *lengths, uint32_t n_text, plumb_pooling pooling,
                       const float *from) {
    float *to = s->embedding;
    for (uint32_t i = 0; i < n_text; i++) {
        if (s->forward) forward_pool(s->forward, from, lengths[i], pooling, to);
        else s->pass->pool(s->reference, from, lengths[i], pooling, to);
        from += (size_t)lengths[i] * s->model->model->plan.n_embd;
        to += (pooling != PLUMB_POOLING_NONE ? 1 : (size_t)lengths[i]) * s->n_pooled;
    }
}

int64_t plumb_session_embed(plumb_session *s, const int32_t *ids, const uint32_t *lengths, size_t n_text,
                            plumb_pooling pooling) {
    const struct model *m = s->model->model;
    PLUMB_TRY(plumb_session_rewind(s, 0));
    free(s->embedding);
    s->embedding = NULL;
    if (n_text == 0) return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "there are no texts");
    uint32_t n_run = count_texts(s, lengths, n_text), n = 0;
    for (uint32_t i = 0; i < n_run; n += lengths[i++]) {
        PLUMB_TRY(check_room(s, lengths[i]));
        PLUMB_TRY(check_text(s, ids + n, lengths[i]));
        if (lengths[i] == 0) return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "no tokens have no embedding");
    }
    if (pooling == PLUMB_POOLING_MODEL) pooling = m->plan.pooling.kind;
    if (pooling < PLUMB_POOLING_NONE || pooling > PLUMB_POOLING_RANK) {
        return error_set(&s->err, PLUMB_ERROR_ARGUMENT, "%d is not a kind of pooling", (int)pooling);
    }
    bool is_pooled = pooling != PLUMB_POOLING_NONE;
    s->n_vector = is_pooled ? n_run : n;
    s->n_pooled = model_n_pooled(m, pooling);
    if (s->n_pooled == 0) {
        return error_set(&s->err, PLUMB_ERROR_UNSUPPORTED, "this %s model has no classifier, so it cannot rank",
                         m->plan.architecture);
    }
    float *embeddings = alloc_array((uint64_t)n * m->plan.n_embd, sizeof *embeddings);
    s->embedding = alloc_array((uint64_t)s->n_vector * s->n_pooled, sizeof *s->embedding);
    if (!embeddings || !s->embedding) {
        free(embeddings);
        free(s->embedding);
        s->embedding = NULL;
        return error_set(&s->err, PLUMB_ERROR_MEMORY, "out of memory: embeddings of %u tokens", n);
    }
    s->is_running = true;   /* pooling has a tap, too */
    plumb_status status = run_embeddings(s, ids, lengths, n_run, n, embeddings);
    if (status == PLUMB_OK) pool_texts(s, lengths, n_run, pooling, embeddings);
    s->is_running = false;
    free(embeddings);
    return status == PLUMB_OK ? (int64_t)n_run : status;
}

const float *plumb_session_embedding(const plumb_session *s, uint32_t *n_vector, uint32_t *n) {
    *n_vector = s->embedding ? s->n_vector : 0;
    *n = s->embedding ? s->n_pooled : 0;
    return s->embedding;
}

void plumb_threads_ready(uint32_t n_thread) { pool_set_ready(n_thread); }
void plumb_threads_serve(uint32_t thread) { pool_serve(thread); }
void plumb_threads_broken(void) { pool_break(); }
void plumb_threads_dismiss(void) { pool_dismiss(); }

float *plumb_session_logits(plumb_session *s) { return s->has_logits ? s->logits : NULL; }

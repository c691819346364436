/* plumb_session_save and plumb_session_restore.  A saved session is
 *
 *   "PLUMBSES" | version, u32 | sections (base/transfer.h):
 *   head   struct head, then for each adapter in use a struct used
 *   toks   the token ids, i32, of those in the cache
 *   drop   those of the tokens that were dropped before, if any (plumb_session_set_shift)
 *   text   the token ids of the encoder's text, if the model has one, which a reader computes again
 *   logs   the logits after the last token, (n_vocab) f32, if there are any
 *   kv     for each layer that stores K and V, and
 *   stat   if the model is recurrent: forward/sequence.h
 *
 * It has the weights' digest, not the weights, and K and V as the kernels read them.  So another layout of either needs
 * another VERSION.
 *
 * Tokens that the session has forgotten leave nothing in it.  Of the same tokens two sessions write the same bytes if
 * they have the same parameters, adapters and n_keep, have dropped the same tokens, and both have logits or none; but
 * rings say how many of their first positions they have lost, which those that have gone further and back have lost
 * more of, and states have their snapshots, which are after each run of several tokens. */
#include "api/session.h"

#include <stdio.h>

enum { VERSION = 1 };

struct head {
    uint64_t model;          /* its digest */
    uint32_t kv_type, precision, n_ctx, n_past;
    uint32_t n_adapter;
    uint32_t has_logits;     /* 0 or 1 */
    uint32_t n_keep, n_dropped;
    uint32_t n_encoded, unused;
};
_Static_assert(sizeof(struct head) == 48, "it is stored as it is in memory");

struct used {
    uint64_t adapter;        /* its digest */
    float scale;
    uint32_t first_layer, last_layer, unused;
};
_Static_assert(sizeof(struct used) == 24, "it is stored as it is in memory");

/* ---- what models and adapters are known by ----------------------------------------------------------------------- */

static void add_number(struct digest *d, uint64_t x) { digest_update(d, &x, sizeof x); }
static void add_string(struct digest *d, struct gguf_string s) {
    add_number(d, s.n);
    digest_update(d, s.data, (size_t)s.n);
}

/* Adds the keys whose names begin so. */
static void add_keys(struct digest *d, const struct gguf *file, const char *prefix) {
    for (uint64_t i = 0; i < gguf_n_key(file); i++) {
        const struct gguf_key *key = gguf_key_at(file, i);
        if (strncmp(key->name.data, prefix, strlen(prefix)) != 0) continue;
        add_string(d, key->name);
        add_number(d, key->type);
        add_number(d, key->n);
        for (uint64_t k = 0; key->type == GGUF_STRING && k < key->n; k++) add_string(d, key->strings[k]);
        if (key->type != GGUF_STRING) digest_update(d, key->values, (size_t)(key->n * gguf_type_bytes(key->type)));
    }
}

/* Adds all tensors as they are in memory. */
static void add_tensors(struct digest *d, struct gguf *file) {
    for (uint64_t i = 0; i < gguf_n_tensor(file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file, i);
        add_string(d, t->name);
        add_number(d, t->type);
        digest_update(d, t->shape, sizeof t->shape);
        add_number(d, t->n_packed);
        if (t->data) digest_update(d, t->data, (size_t)t->n_bytes);
    }
}

/* The keys that say what is computed, and all weights.  It reads the weights once, as a step of decoding does. */
static uint64_t digest_of_model(plumb_model *m) {
    uint64_t known = m->digest;
    if (known != 0) return known;
    struct digest d;
    digest_begin(&d);
    add_keys(&d, m->parts[0], "general.architecture");
    char prefix[80];
    snprintf(prefix, sizeof prefix, "%s.", m->model->plan.architecture);
    add_keys(&d, m->parts[0], prefix);
    for (size_t i = 0; i < m->n_part; i++) add_tensors(&d, m->parts[i]);
    known = digest_end(&d);
    return m->digest = known != 0 ? known : 1;
}

static uint64_t digest_of_adapter(struct adapter *a) {
    uint64_t known = a->digest;
    if (known != 0) return known;
    struct digest d;
    digest_begin(&d);
    add_keys(&d, a->file, "adapter.");
    add_tensors(&d, a->file);
    known = digest_end(&d);
    return a->digest = known != 0 ? known : 1;
}

/* ---- the sections ------------------------------------------------------------------------------------------------ */

/* What a body needs: the session, and for a reader what the head says. */
struct exchange { plumb_session *s; struct head head; };

/* Digests are 0 where bytes are only counted. */
static struct head head_of(const plumb_session *s, const struct transfer *t) {
    return (struct head) { transfer_counts(t) ? 0 : digest_of_model(s->model), (uint32_t)s->params.kv_type,
                           (uint32_t)plumb_session_precision(s), s->n_ctx, s->n_past, (uint32_t)s->adapters.n,
                           s->has_logits, s->n_keep, s->n_dropped, s->n_encoded, 0 };
}

/* Refuses what was computed in another way than this session computes. */
static plumb_status check_head(struct transfer *t, const plumb_session *s, const struct head *is) {
    const struct head own = head_of(s, t);
    const struct model *m = s->model->model;
    if (is->model != own.model) {
        return transfer_fail(t, PLUMB_ERROR_ARGUMENT, "it was saved with another model: the digest of its weights is "
                             "%016llx, and that of this model's is %016llx", (unsigned long long)is->model,
                             (unsigned long long)own.model);
    }
    if (is->kv_type != own.kv_type || is->precision != own.precision) {
        const char *type = plumb_kv_type_name((plumb_kv_type)is->kv_type);
        const char *precision = plumb_precision_name((plumb_precision)is->precision);
        return transfer_fail(t, PLUMB_ERROR_ARGUMENT, "it has K and V of type %s and precision %s, but this session "
                             "has %s and %s", type ? type : "?", precision ? precision : "?",
                             plumb_kv_type_name((plumb_kv_type)own.kv_type), plumb_precision_name(own.precision));
    }
    if (is->n_adapter != own.n_adapter) {
        return transfer_fail(t, PLUMB_ERROR_ARGUMENT, "it was saved with %u adapters in use, and this session uses %u",
                             is->n_adapter, own.n_adapter);
    }
    if (is->n_past > is->n_ctx || is->has_logits > (is->n_past > 0)) {
        return transfer_fail(t, PLUMB_ERROR_METADATA, "%u tokens, with%s logits, in a context of %u", is->n_past,
                             is->has_logits ? "" : "out", is->n_ctx);
    }
    if (is->n_dropped > 0 && (is->n_keep != own.n_keep || is->n_ctx != own.n_ctx)) {
        return transfer_fail(t, PLUMB_ERROR_ARGUMENT, "it has dropped tokens behind the first %u in a context of %u, "
                             "and this session keeps %u in a context of %u", is->n_keep, is->n_ctx, own.n_keep,
                             own.n_ctx);
    }
    if (is->n_dropped > SESSION_MAX_DROPPED || (is->n_dropped > 0 && is->n_past <= is->n_keep)) {
        return transfer_fail(t, PLUMB_ERROR_METADATA, "%u tokens were dropped, and %u are left, %u of them the first",
                             is->n_dropped, is->n_past, is->n_keep);
    }
    if (is->n_past > own.n_ctx) {
        return transfer_fail(t, PLUMB_ERROR_CONTEXT, "its %u tokens do not fit: the context holds %u", is->n_past,
                             own.n_ctx);
    }
    if (is->n_encoded > own.n_ctx) {
        return transfer_fail(t, PLUMB_ERROR_CONTEXT, "the %u tokens of the encoder's text do not fit: the context "
                             "holds %u", is->n_encoded, own.n_ctx);
    }
    if (s->encoded ? is->n_encoded == 0 && is->n_past > 0 : is->n_encoded > 0) {
        return transfer_fail(t, PLUMB_ERROR_METADATA, "%u tokens behind an encoder's text of %u", is->n_past,
                             is->n_encoded);
    }
    for (uint32_t i = 0; i < PLAN_ROPES; i++) {
        if (model_rope_factors(m, i, is->n_ctx) == model_rope_factors(m, i, own.n_ctx)) continue;
        return transfer_fail(t, PLUMB_ERROR_ARGUMENT, "it was saved with a context of %u tokens, and the session's has "
                             "%u: this model computes differently beyond %u", is->n_ctx, own.n_ctx,
                             m->plan.n_ctx_original);
    }
    return PLUMB_OK;
}

static plumb_status pass_head(void *of, struct transfer *t) {
    struct exchange *e = of;
    PLUMB_TRY(transfer_bytes(t, &e->head, sizeof e->head));
    if (transfer_reads(t)) PLUMB_TRY(check_head(t, e->s, &e->head));
    for (size_t i = 0; i < e->s->adapters.n; i++) {
        const struct adapter_use *use = &e->s->adapters.uses[i];
        const struct used own = { transfer_counts(t) ? 0 : digest_of_adapter(use->adapter), use->scale,
                                  use->first_layer, use->last_layer, 0 };
        struct used is = own;
        PLUMB_TRY(transfer_bytes(t, &is, sizeof is));
        if (memcmp(&is, &own, sizeof is) == 0) continue;
        return transfer_fail(t, PLUMB_ERROR_ARGUMENT, "it was saved with another adapter %zu: its digest is %016llx, "
                             "scale %g, layers %u to %u, and this session uses %016llx, %g, %u to %u", i + 1,
                             (unsigned long long)is.adapter, (double)is.scale, is.first_layer, is.last_layer,
                             (unsigned long long)own.adapter, (double)own.scale, own.first_layer, own.last_layer);
    }
    return PLUMB_OK;
}

static plumb_status pass_ids(const struct exchange *e, struct transfer *t, int32_t *ids, uint32_t n) {
    uint32_t n_vocab = e->s->model->model->plan.n_vocab;
    PLUMB_TRY(transfer_bytes(t, ids, n * sizeof *ids));
    for (uint32_t i = 0; transfer_reads(t) && i < n; i++) {
        if (ids[i] >= 0 && (uint32_t)ids[i] < n_vocab) continue;
        return transfer_fail(t, PLUMB_ERROR_METADATA, "token %d, %u from here, is not in 0..%u", (int)ids[i], n - i,
                             n_vocab - 1);
    }
    return PLUMB_OK;
}

static plumb_status pass_tokens(void *of, struct transfer *t) {
    const struct exchange *e = of;
    return pass_ids(e, t, e->s->tokens, e->head.n_past);
}

/* A reader allocates no more than a piece before the bytes for it are there. */
static plumb_status pass_dropped(void *of, struct transfer *t) {
    enum { PIECE = 1 << 14 };
    const struct exchange *e = of;
    for (uint32_t at = 0, n; at < e->head.n_dropped; at += n) {
        n = e->head.n_dropped - at < PIECE ? e->head.n_dropped - at : PIECE;
        if (!session_hold_dropped(e->s, at + n)) {
            return transfer_fail(t, PLUMB_ERROR_MEMORY, "out of memory: a list of %u tokens", at + n);
        }
        PLUMB_TRY(pass_ids(e, t, e->s->dropped + at, n));
    }
    return PLUMB_OK;
}

static plumb_status pass_text(void *of, struct transfer *t) {
    const struct exchange *e = of;
    return pass_ids(e, t, e->s->encoded, e->head.n_encoded);
}

static plumb_status pass_logits(void *of, struct transfer *t) {
    const struct exchange *e = of;
    return transfer_bytes(t, e->s->logits, e->s->model->model->plan.n_vocab * sizeof *e->s->logits);
}

static plumb_status pass_start(struct transfer *t) {
    static const char magic[8] = { 'P', 'L', 'U', 'M', 'B', 'S', 'E', 'S' };
    char is[sizeof magic];
    uint32_t version = VERSION;
    memcpy(is, magic, sizeof is);
    PLUMB_TRY(transfer_bytes(t, is, sizeof is));
    if (memcmp(is, magic, sizeof is) != 0) {
        struct shown shown;
        return error_set(t->err, PLUMB_ERROR_MAGIC, "this is not a saved session: it begins with \"%s\", not "
                         "\"PLUMBSES\"", show_bytes(&shown, is, sizeof is));
    }
    PLUMB_TRY(transfer_u32(t, &version));
    if (version == VERSION) return PLUMB_OK;
    return error_set(t->err, PLUMB_ERROR_VERSION, "this saved session has version %u, and only %d can be read", version,
                     VERSION);
}

/* ---- the whole file ---------------------------------------------------------------------------------------------- */

/* is_touched becomes true before anything in the session is replaced. */
static plumb_status pass_all(plumb_session *s, struct transfer *t, bool *is_touched) {
    struct exchange e = { s, { 0 } };
    if (!transfer_reads(t)) e.head = head_of(s, t);
    PLUMB_TRY(pass_start(t));
    PLUMB_TRY(transfer_section(t, "head", 0, pass_head, &e));
    *is_touched = true;
    PLUMB_TRY(transfer_section(t, "toks", 0, pass_tokens, &e));
    if (e.head.n_dropped > 0) PLUMB_TRY(transfer_section(t, "drop", 0, pass_dropped, &e));
    if (s->encoded) PLUMB_TRY(transfer_section(t, "text", 0, pass_text, &e));
    if (transfer_reads(t)) s->n_encoded = e.head.n_encoded;
    if (transfer_reads(t) && s->n_encoded > 0) PLUMB_TRY(session_run_encoder(s));
    if (e.head.has_logits) PLUMB_TRY(transfer_section(t, "logs", 0, pass_logits, &e));
    PLUMB_TRY(sequence_exchange(&s->sequence, t, e.head.n_past));
    if (!transfer_reads(t)) return PLUMB_OK;
    char more;
    if (t->read(t->user, &more, 1) > 0) {
        return transfer_fail(t, PLUMB_ERROR_METADATA, "the saved session ends here, but there are more bytes");
    }
    s->n_past = e.head.n_past;
    s->n_dropped = e.head.n_dropped;
    s->has_logits = e.head.has_logits;
    return PLUMB_OK;
}

static plumb_status check_can(plumb_session *s) {
    PLUMB_TRY(session_check_idle(s));
    if (!s->forward) {
        return error_set(&s->err, PLUMB_ERROR_UNSUPPORTED, "sessions of the reference pass cannot be saved");
    }
    if (s->model->headers_only) {
        return error_set(&s->err, PLUMB_ERROR_STATE, "the model was loaded without its weights (plumb_model_rehearse)");
    }
    return PLUMB_OK;
}

uint64_t plumb_session_save_bytes(plumb_session *s) {
    bool is_touched;
    struct transfer t = { .err = &s->err };
    return check_can(s) == PLUMB_OK && pass_all(s, &t, &is_touched) == PLUMB_OK ? t.at : 0;
}

plumb_status plumb_session_save(plumb_session *s, plumb_write *write, void *user) {
    bool is_touched;
    struct transfer t = { .write = write, .user = user, .err = &s->err };
    PLUMB_TRY(check_can(s));
    s->is_running = true;
    plumb_status status = pass_all(s, &t, &is_touched);
    s->is_running = false;
    return status;
}

plumb_status plumb_session_restore(plumb_session *s, plumb_read *read, void *user) {
    bool is_touched = false;
    struct transfer t = { .read = read, .user = user, .err = &s->err };
    PLUMB_TRY(check_can(s));
    ahead_clear(s);
    s->is_running = true;
    plumb_status status = pass_all(s, &t, &is_touched);
    s->is_running = false;
    if (status != PLUMB_OK && is_touched) {
        s->n_past = s->n_dropped = s->n_encoded = 0;
        session_trim(s);
        s->has_logits = false;
    }
    return status;
}

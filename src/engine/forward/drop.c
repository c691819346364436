/* Context shift: tokens of a full cache are dropped, and later ones move to their places.
 *
 * RoPE rotates a pair of elements of K by an angle that is proportional to the position, so K moves by a rotation back.
 * K and V without RoPE, and biases by distance, have no position of their own.  What has one in another way is refused:
 * learned embeddings of positions, norms behind RoPE whose weights are not the same for both elements of a pair, and
 * cross attention.  A state of a recurrent layer is that of all tokens, so it goes on.  An adapter that a dropped token
 * had switched on is off. */
#include "forward/steps.h"

static const char *why_not(const struct forward *f, const struct sequence *s, uint32_t n_keep, uint32_t n) {
    const struct model *m = f->model;
    if (m->plan.n_encoder > 0) return "the decoder reads those of an encoder, which do not move";
    if (!plan_is_causal(&m->plan)) return "they attend to later ones";
    if (m->position_embd.w) return "the model has learned an embedding of each position";
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        const struct attn_plan *a = &m->plan.layers[il].attn;
        if (!plan_has_kv(&m->plan.layers[il])) continue;
        bool is_plain = m->plan.norm == NORM_RMS && !m->layers[il].w[W_ATTN_K_NORM].w;
        if (a->qk_norm == QK_NORM_HEAD_ROPED && a->rope != ROPE_NONE && !is_plain) {
            return "their keys are normalized after they are rotated";
        }
        /* A ring may have lost the tokens that stay, so no window may reach them after a shift. */
        bool is_ring = s->caches[il].n_position < s->n_ctx;
        if (is_ring && a->window > n - n_keep) return "a window would reach those that stay";
    }
    return NULL;
}

plumb_status forward_prepare_drop(struct forward *f, const struct sequence *s, uint32_t n_keep, uint32_t n,
                                  struct error *err) {
    const char *reason = why_not(f, s, n_keep, n);
    if (reason) return error_set(err, PLUMB_ERROR_UNSUPPORTED, "tokens cannot move in a full context: %s", reason);
    if (attention_prepare_drop(f->attention, s, s->n_ctx)) return PLUMB_OK;
    return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the K and V of tokens that move");
}

/* The angles are in the tables of RoPE in the place of the last position, which will be filled again. */
bool forward_drop(struct forward *f, struct sequence *s, uint32_t n_keep, uint32_t n_drop) {
    float *cosine[PLAN_ROPES], *sine[PLAN_ROPES];
    if (!sequence_prepare(s, n_keep, s->n_ctx)) return false;
    for (uint32_t i = 0; i < PLAN_ROPES; i++) {
        uint32_t half = f->model->plan.ropes[i].n_rot / 2;
        cosine[i] = half > 0 ? f->rope_cos[i] + (size_t)(f->n_ctx - 1) * half : NULL;
        sine[i] = half > 0 ? f->rope_sin[i] + (size_t)(f->n_ctx - 1) * half : NULL;
        model_rope_angles(f->model, i, f->n_ctx, n_drop, f->rope_angles);
        for (uint32_t j = 0; j < half; j++) {
            double y, x;
            math_sincos(-f->rope_angles[j], &y, &x);
            cosine[i][j] = (float)x;
            sine[i][j] = (float)y;
        }
    }
    if (f->n_rope == f->n_ctx) f->n_rope--;
    attention_drop(f->attention, s, n_keep, n_drop, s->n_ctx, cosine, sine);
    uint32_t n_moved = s->n_ctx - n_keep - n_drop;
    if (s->switches) memmove(s->switches + n_keep, s->switches + n_keep + n_drop, n_moved * sizeof *s->switches);
    s->n_past = s->n_ctx - n_drop;
    snapshots_back(&s->snapshots, 0);   /* those before are of other positions */
    sequence_end(s, s->n_past);
    return true;
}

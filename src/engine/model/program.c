#include "model/program.h"

#include "model/model.h"

#include <assert.h>

/* A program that is being made. */
struct maker {
    const struct plan *plan;
    uint32_t il;
    const struct affine *w;
    struct program made;
};

static void put(struct maker *m, enum step_kind kind, enum stream in, enum stream out, enum weight_id weight) {
    assert(m->made.n < PROGRAM_MAX_STEPS);
    m->made.steps[m->made.n++] = (struct step){ kind, in, out, weight, TAP_COUNT };
}

/* The tap shows the stream that the last step wrote. */
static void show(struct maker *m, enum tap_id tap) { m->made.steps[m->made.n - 1].tap = tap; }

bool program_has_norm(const struct plan *p, uint32_t il, const struct affine *w, enum weight_id weight) {
    return w[weight].w || ((p->bare_norms & ~p->layers[il].without) >> weight & 1);
}

/* Returns the stream with the norm of `in`: out, or `in` itself if the layer lacks the norm. */
static enum stream norm(struct maker *m, enum weight_id weight, enum stream in, enum stream out, enum tap_id tap) {
    if (!program_has_norm(m->plan, m->il, m->w, weight)) return in;
    put(m, STEP_NORM, in, out, weight);
    show(m, tap);
    return out;
}

static void attention(struct maker *m) {
    const bool has_own_norm = m->w[W_FFN_NORM].w != NULL, is_parallel = m->plan->is_parallel;
    enum stream h = norm(m, W_ATTN_NORM, STREAM_X, STREAM_H, TAP_ATTN_NORM);
    if (is_parallel || m->w[W_ATTN_NORM_2].w) {
        put(m, STEP_COPY, is_parallel && !has_own_norm ? h : STREAM_X, STREAM_INPUT, W_COUNT);
    }
    put(m, STEP_ATTENTION, h, STREAM_H, W_COUNT);
    norm(m, W_ATTN_POST_NORM, STREAM_H, STREAM_H, TAP_ATTN_POST_NORM);
    put(m, STEP_ADD_RESIDUAL, STREAM_H, STREAM_X, W_ATTN_OUTPUT);
    norm(m, W_ATTN_OUT_NORM, STREAM_X, STREAM_X, TAP_COUNT);
    if (m->w[W_ATTN_NORM_2].w) put(m, STEP_ADD, STREAM_INPUT, STREAM_X, W_COUNT);
    norm(m, W_ATTN_NORM_2, STREAM_X, STREAM_X, TAP_COUNT);
    show(m, TAP_FFN_INP);
}

static void feed_forward(struct maker *m) {
    const bool has_experts = m->plan->layers[m->il].ffn.n_expert > 0;
    enum stream h = norm(m, W_FFN_NORM, m->plan->is_parallel ? STREAM_INPUT : STREAM_X, STREAM_H, TAP_FFN_NORM);
    if (has_experts && !m->w[W_FFN_NORM_EXPS].w) put(m, STEP_EXPERTS, h, STREAM_H, W_COUNT);
    put(m, has_experts ? STEP_SHARED : STEP_FEED_FORWARD, h, STREAM_H, W_COUNT);
    norm(m, W_FFN_POST_NORM, STREAM_H, STREAM_H, TAP_FFN_POST_NORM);
    put(m, STEP_ADD_RESIDUAL, STREAM_H, STREAM_X, W_FFN_DOWN);
    norm(m, W_LAYER_OUT_NORM, STREAM_X, STREAM_X, TAP_COUNT);
    if (m->w[W_LAYER_OUT_SCALE].w) put(m, STEP_ADD_SCALED, STREAM_EMBD, STREAM_X, W_LAYER_OUT_SCALE);
    show(m, TAP_L_OUT);
}

struct program program_of(const struct plan *p, uint32_t il, const struct affine *w) {
    struct maker m = { p, il, w, { .n = 0 } };
    const struct layer_plan *layer = &p->layers[il];
    if (w[W_FFN_NORM_EXPS].w) {   /* experts that read a norm of the layer's input */
        put(&m, STEP_EXPERTS, norm(&m, W_FFN_NORM_EXPS, STREAM_X, STREAM_H, TAP_COUNT), STREAM_H, W_COUNT);
    }
    if (layer->ffn.router_first) put(&m, STEP_ROUTER, STREAM_X, STREAM_X, W_COUNT);
    attention(&m);
    feed_forward(&m);
    if (layer->ends_loop) put(&m, STEP_NORM_OUTPUT, STREAM_X, STREAM_X, W_COUNT);
    if (layer->ends_loop && layer->state != STATE_NONE) {
        put(&m, STEP_COPY, STREAM_X, layer->state == STATE_LOW ? STREAM_LOW : STREAM_HIGH, W_COUNT);
        put(&m, STEP_ADD_STATES, STREAM_X, STREAM_X, W_COUNT);
    }
    return m.made;
}

bool program_uses(const struct program *program, enum stream stream) {
    for (uint32_t i = 0; i < program->n; i++) {
        if (program->steps[i].in == stream || program->steps[i].out == stream) return true;
    }
    return false;
}

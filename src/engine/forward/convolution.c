/* Steps of convolutions.  The state of a layer begins with what its kernel still reads of the tokens before a batch.
 * Compiled for speed. */
#include "forward/steps.h"

#include <stdlib.h>

struct convolve {
    const struct forward *f;
    const struct call *c;
    float *in;           /* (n_token, stride), of which the first n elements of a row are convolved */
    float *state;        /* (n_conv - 1, n) of the last tokens before the batch */
    const float *kernel; /* (n_conv, n) */
    size_t stride;
};

/* (b, c, x) becomes (b x, c, x) */
static void multiply_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct convolve *v = user;
    uint32_t n = v->c->s->n;
    for (uint32_t t = begin; t < end; t++) {
        float *b = v->in + t * v->stride;
        const float *x = b + 2 * n;
        for (uint32_t i = 0; i < n; i++) b[i] *= x[i];
    }
    (void)thread;
}

/* What is convolved of the token that is `at` tokens behind token t of the batch, which has `own` tokens of its text of
 * n_text tokens before it in the batch; NULL: zeros. */
static const float *input_at(const struct convolve *v, uint32_t t, uint32_t own, uint32_t n_text, int64_t at) {
    uint32_t n = v->c->s->n, n_state = v->c->layer->n_conv - 1;
    int64_t place = own + at;
    if (place >= n_text) return NULL;
    if (place >= 0) return v->in + (size_t)(t + at) * v->stride;
    return v->c->b.lengths ? NULL : v->state + (size_t)(place + n_state) * n;
}

/* out_t = b + sum over j < L of w_j in_(t - L + 1 + j), element by element; in a model whose tokens see later ones the
 * middle of the kernel is at t. */
static void convolve_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct convolve *v = user;
    const struct batch *b = &v->c->b;
    const struct weight *bias = v->c->w->b;
    uint32_t n = v->c->s->n, n_conv = v->c->layer->n_conv;
    int64_t first = plan_is_causal(&v->f->model->plan) ? -(int64_t)(n_conv - 1) : -(int64_t)((n_conv - 1) / 2);
    for (uint32_t t = begin; t < end; t++) {
        uint32_t own = v->f->positions[t] - b->pos, n_text = b->n;
        for (uint32_t i = 0, at = 0; b->lengths && at <= t; at += b->lengths[i++]) n_text = b->lengths[i];
        float *out = v->c->out + (size_t)t * n;
        if (bias) memcpy(out, weight_floats(bias), n * sizeof *out);
        else memset(out, 0, n * sizeof *out);
        for (uint32_t j = 0; j < n_conv; j++) {
            const float *x = input_at(v, t, own, n_text, first + j), *w = v->kernel + (size_t)j * n;
            for (uint32_t i = 0; x && i < n; i++) out[i] += w[i] * x[i];
        }
    }
    (void)thread;
}

void forward_convolve(struct forward *f, const struct call *c) {
    struct layer_state *s = &f->states[c->il];
    uint32_t n = c->s->n, n_state = c->layer->n_conv - 1;
    bool is_gated = c->layer->mixer == MIXER_CONVOLUTION;
    struct convolve v = { f, c, f->streams[STREAM_CONV_IN], s->values, s->kernel, (size_t)n * (is_gated ? 3 : 1) };
    if (is_gated) pool_share(f->pool, c->b.n, multiply_tokens, &v);
    pool_share(f->pool, c->b.n, convolve_tokens, &v);
    for (uint32_t j = 0; !c->b.lengths && j < n_state; j++) {   /* in ascending order, since it moves in place */
        int64_t at = (int64_t)c->b.n - n_state + j;
        const float *from = at < 0 ? s->values + (size_t)(at + n_state) * n : v.in + (size_t)at * v.stride;
        memmove(s->values + (size_t)j * n, from, n * sizeof *from);
    }
}

void forward_gate_conv(struct forward *f, const struct call *c) {
    uint32_t n = c->s->n;
    for (uint32_t t = c->begin; t < c->end; t++) {
        const float *gate = c->in + ((size_t)t * 3 + 1) * n;
        float *out = c->out + (size_t)t * n;
        for (uint32_t i = 0; i < n; i++) out[i] *= gate[i];
    }
    (void)f;
}

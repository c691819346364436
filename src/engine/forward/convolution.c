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
    for (uint32_t t = v->c->begin + begin; t < v->c->begin + end; t++) {
        float *b = v->in + t * v->stride;
        const float *x = b + 2 * n;
        for (uint32_t i = 0; i < n; i++) b[i] *= x[i];
    }
    (void)thread;
}

/* What is convolved of the token that is `at` tokens behind token t of the batch; NULL: zeros. */
static const float *input_at(const struct convolve *v, uint32_t t, int64_t at) {
    const struct call *c = v->c;
    int64_t place = (int64_t)t + at, before = place - c->begin;
    if (place >= c->end) return NULL;
    if (before >= 0) return v->in + (size_t)place * v->stride;
    return c->piece->pos == 0 ? NULL : v->state + (size_t)(before + c->layer->n_conv - 1) * c->s->n;
}

/* out_t = b + sum over j < L of w_j in_(t - L + 1 + j), element by element; in a model whose tokens see later ones the
 * middle of the kernel is at t. */
static void convolve_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct convolve *v = user;
    const struct weight *bias = v->c->w->b;
    uint32_t n = v->c->s->n, n_conv = v->c->layer->n_conv;
    int64_t first = plan_is_causal(&v->f->model->plan) ? -(int64_t)(n_conv - 1) : -(int64_t)((n_conv - 1) / 2);
    for (uint32_t t = v->c->begin + begin; t < v->c->begin + end; t++) {
        float *out = v->c->out + (size_t)t * n;
        if (bias) memcpy(out, weight_floats(bias), n * sizeof *out);
        else memset(out, 0, n * sizeof *out);
        for (uint32_t j = 0; j < n_conv; j++) {
            const float *x = input_at(v, t, first + j), *w = v->kernel + (size_t)j * n;
            for (uint32_t i = 0; x && i < n; i++) out[i] += w[i] * x[i];
        }
    }
    (void)thread;
}

void forward_convolve(struct forward *f, const struct call *c) {
    uint32_t n = c->s->n, n_state = c->layer->n_conv - 1, n_token = c->end - c->begin;
    bool is_gated = c->layer->mixer == MIXER_CONVOLUTION;
    struct convolve v = { f, c, f->streams[STREAM_CONV_IN], call_state(f, c), f->states[c->il].kernel,
                          (size_t)n * (is_gated ? 3 : 1) };
    if (is_gated) pool_run(f->pool, n_token, (uint64_t)n * POOL_ELEMENT, multiply_tokens, &v);
    pool_run(f->pool, n_token, (uint64_t)n * c->layer->n_conv * POOL_ELEMENT, convolve_tokens, &v);
    for (uint32_t j = 0; j < n_state; j++) {   /* in ascending order, since it moves in place */
        const float *from = input_at(&v, c->end, (int64_t)j - n_state);
        float *to = v.state + (size_t)j * n;
        if (from) memmove(to, from, n * sizeof *from);
        else memset(to, 0, n * sizeof *to);
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

/* Steps of convolutions.  The state of a layer begins with what its kernel still reads of the tokens before a batch. */
#include "reference/steps.h"

/* Element i of row `at` of what is convolved, in (n_token, n), or b x of in (n_token, 3, n). */
static double input_at(const struct call *c, int64_t at, uint32_t i, const double *state, uint32_t n_state) {
    uint32_t n = c->s->n;
    if (at < 0) return state[(size_t)(at + n_state) * n + i];
    if (c->layer->mixer != MIXER_CONVOLUTION) return c->in[(size_t)at * n + i];
    const double *in = c->in + (size_t)at * 3 * n;
    return in[i] * in[2 * n + i];
}

/* The kernel of element i: a row of one of the layer's weights, whose rows follow each other. */
static const float *kernel_of(const struct reference *r, const struct call *c, uint32_t i) {
    static const enum weight_id parts[] = PLAN_KERNELS;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        const struct weight *w = r->m->layers[c->il].w[parts[k]].w;
        if (w && i < w->n_out) return reference_row(r, w, i);
        if (w) i -= w->n_out;
    }
    return NULL;
}

/* out_t = b + sum over j < L of w_j in_(t - L + 1 + j), element by element; in a model whose tokens see later ones the
 * middle of the kernel is at t.  Before the first token and behind the last one there are zeros. */
void reference_convolve(struct reference *r, const struct call *c) {
    uint32_t n = c->s->n, n_conv = c->w->w->n_in, n_state = n_conv - 1;
    /* A mistake in the mask of attention does not concern convolutions. */
    int64_t first = plan_is_causal(&r->right->plan) ? -(int64_t)n_state : -(int64_t)(n_state / 2);
    int64_t end = r->steps.tail_end(c->b.n);
    double *state = r->states[c->il];   /* (n_state, n) of the last tokens before the batch */
    for (uint32_t i = 0; i < n; i++) {
        double bias = c->w->b ? (double)reference_floats(c->w->b)[i] : 0;
        const float *kernel = kernel_of(r, c, i);
        for (uint32_t t = 0; t < c->b.n; t++) {
            double sum = bias;
            for (uint32_t j = 0; j < n_conv && (int64_t)t + first + j < c->b.n; j++) {
                double x = input_at(c, (int64_t)t + first + j, i, state, n_state);
                sum += (double)kernel[r->steps.kernel_place(j, n_conv)] * x;
            }
            c->out[(size_t)t * n + i] = sum;
        }
        for (uint32_t j = 0; j < n_state; j++) {   /* each is read before it is written */
            state[(size_t)j * n + i] = input_at(c, end - n_state + j, i, state, n_state);
        }
    }
}

void reference_gate_conv(struct reference *r, const struct call *c) {
    uint32_t n = c->s->n;
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] *= c->in[i / n * 3 * n + n + i % n];
}

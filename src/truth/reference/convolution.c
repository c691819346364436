/* Steps of short convolutions.  The state of a layer is what its kernel still reads of the tokens before a batch. */
#include "reference/steps.h"

/* out_t = sum over j < L of w_j (b x)_(t - L + 1 + j), element by element; in a model whose tokens see later ones the
 * middle of the kernel is at t.  b x of tokens before the first one is 0.   Liquid AI 2025, "LFM2", section 2.2 */
void reference_convolve(struct reference *r, const struct call *c) {
    uint32_t n = c->s->n, n_conv = c->w->w->n_in, n_state = n_conv - 1;
    int64_t first = r->plan.is_causal ? -(int64_t)n_state : -(int64_t)(n_state / 2);
    double *state = r->states[c->il];   /* (n_state, n): b x of the last tokens before the batch */
    for (uint32_t i = 0; i < n; i++) {
        const float *kernel = reference_row(r, c->w->w, i);
        for (uint32_t t = 0; t < c->b.n; t++) {
            double sum = 0;
            for (uint32_t j = 0; j < n_conv; j++) {
                int64_t at = (int64_t)t + first + j;
                const double *in = c->in + (size_t)(at < 0 ? 0 : at) * 3 * n;
                if (at >= c->b.n) continue;
                sum += (double)kernel[j] * (at < 0 ? state[(size_t)(at + n_state) * n + i] : in[i] * in[2 * n + i]);
            }
            c->out[(size_t)t * n + i] = sum;
        }
        for (uint32_t j = 0; j < n_state; j++) {
            int64_t at = (int64_t)c->b.n - n_state + j;
            const double *in = c->in + (size_t)(at < 0 ? 0 : at) * 3 * n;
            state[(size_t)j * n + i] = at < 0 ? state[(size_t)(at + n_state) * n + i] : in[i] * in[2 * n + i];
        }
    }
}

void reference_gate_conv(struct reference *r, const struct call *c) {
    uint32_t n = c->s->n;
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] *= c->in[i / n * 3 * n + n + i % n];
}

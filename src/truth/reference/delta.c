/* Steps of gated delta nets: Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule". */
#include "reference/steps.h"

#include <math.h>
#include <stdlib.h>

void reference_decay(struct reference *r, const struct call *c) {
    const float *dt = reference_floats(c->w->w), *a = reference_floats(r->m->layers[c->il].w[W_DELTA_A].w);
    const struct delta_plan *d = &c->layer->delta;
    size_t n = delta_n_decay(d), each = n / d->n_head;
    for (size_t i = 0; i < c->n; i++) {
        double own = (double)a[i % n / each], z = c->out[i] + r->steps.dt_bias((double)dt[i % n]);
        c->out[i] = d->least_decay == 0 ? own * r->steps.softplus(z) : (double)d->least_decay / (1 + exp(-own * z));
    }
}

/* x (n) /= sqrt(sum of squares + eps), as in the authors' code */
static void make_unit(double *x, uint32_t n, double eps) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++) x[i] = x[i] / sqrt(sum + eps);
}

/* Q and K become units, and then, for each head and one token after the other, S <- S e^decay,
 * S <- S + (beta (v - S k)) k^T, out = S q / sqrt(dim): eq. 10 of the paper, and eq. 1 of Kimi Team 2025, "Kimi
 * Linear", where each column of S has its decay.  Row j of S has what element j of a value is made of. */
void reference_delta(struct reference *r, const struct call *c) {
    const struct delta_plan *d = &c->layer->delta;
    uint32_t dim = d->dim, n_row = (2 * d->n_key_head + d->n_head) * dim;
    double *states = r->states[c->il] + (size_t)(c->layer->n_conv - 1) * n_row;
    for (uint32_t t = 0; t < c->b.n; t++) {
        double *q = r->streams[STREAM_CONV] + (size_t)t * n_row, *k = q + (size_t)d->n_key_head * dim;
        const double *v = k + (size_t)d->n_key_head * dim;
        for (uint32_t h = 0; h < 2 * d->n_key_head; h++) {
            if (r->steps.is_unit(h >= d->n_key_head)) make_unit(q + (size_t)h * dim, dim, (double)r->plan.norm_eps);
        }
        for (uint32_t h = 0; h < d->n_head; h++, v += dim) {
            size_t at = (size_t)t * d->n_head + h, key = (size_t)r->steps.key_head(d, h) * dim;
            uint32_t n_decay = d->is_diagonal ? dim : 1;
            double *decays = r->streams[STREAM_DECAY] + at * n_decay, beta = r->streams[STREAM_BETA][at];
            for (uint32_t i = 0; i < n_decay; i++) decays[i] = r->steps.decay(1, decays[i]);
            for (uint32_t j = 0; j < dim; j++) {
                double *s = states + ((size_t)h * dim + j) * dim, old = 0, read = 0;
                for (uint32_t i = 0; i < dim; i++) {
                    double decay = decays[r->steps.decay_place(i, j) % n_decay];
                    s[i] *= decay;
                    old += r->steps.recalled(s[i], decay) * k[key + i];
                }
                for (uint32_t i = 0; i < dim; i++) s[i] += beta * (v[j] - old) * k[key + i];
                for (uint32_t i = 0; i < dim; i++) read += s[i] * q[key + i];
                c->out[at * dim + j] = read / sqrt(dim);
            }
        }
    }
}

/* Steps of selective scans: Gu & Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces"; Dao & Gu
 * 2024, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space Duality". */
#include "reference/steps.h"

void reference_softplus_step(struct reference *r, const struct call *c) {
    for (size_t i = 0; i < c->n; i++) c->out[i] = r->steps.softplus(c->out[i]);
}

/* For each element x of a token and its state S, one token after the other, S_i <- e^(dt A_i) S_i + dt B_i x and
 * y = sum of C_i S_i + D x: eq. 2 and algorithm 2 of the first paper, with Euler's rule for B as in its code.  In the
 * second one A is one number for each head, and groups of heads share B and C: section 7.1. */
void reference_scan(struct reference *r, const struct call *c) {
    const struct scan_plan *p = &r->plan.scan;
    uint32_t n = p->n_state, n_x = plan_scan_width(p), n_row = (uint32_t)plan_conv_width(&r->plan, c->il);
    double *states = r->states[c->il] + (size_t)(c->layer->n_conv - 1) * n_row;
    const struct weight *w_d = r->m->layers[c->il].w[W_SCAN_D].w;   /* NULL: a mistake */
    const float *a = reference_floats(c->w->w), *d = w_d ? reference_floats(w_d) : NULL;
    for (uint32_t t = 0; t < c->b.n; t++) {
        for (uint32_t k = 0; k < n_x; k++) {
            uint32_t h = k / p->dim, group = r->steps.scan_group(p, h);
            const double *b = r->streams[STREAM_B] + ((size_t)t * p->n_group + group) * n;
            const double *read = r->streams[STREAM_C] + ((size_t)t * p->n_group + group) * n;
            double x = c->in[(size_t)t * n_row + k], dt = r->streams[STREAM_DT][(size_t)t * p->n_head + h];
            double *s = states + (size_t)k * n, y = 0;
            for (uint32_t i = 0; i < n; i++) {
                double rate = (double)a[p->kind == SCAN_MAMBA ? (size_t)h * n + i : h];
                s[i] = r->steps.decay(dt, rate) * s[i] + r->steps.fed(dt, rate, b[i]) * x;
                y += read[i] * s[i];
            }
            c->out[(size_t)t * n_x + k] = y + (d ? (double)d[h] * x : 0);
        }
    }
}

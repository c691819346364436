/* Steps of selective scans: Gu & Dao 2023, "Mamba", and Dao & Gu 2024, "Transformers are SSMs".  Compiled for speed. */
#include "forward/steps.h"

static void soften_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct call *c = user;
    for (size_t i = (size_t)begin * c->s->n; i < (size_t)end * c->s->n; i++) {
        c->out[i] = (float)softplus((double)c->out[i]);
    }
    (void)thread;
}

void forward_softplus(struct forward *f, const struct call *c) {
    struct call own = *c;
    pool_share(f->pool, c->b.n, soften_tokens, &own);
}

/* s_i <- e^(dt a_i) s_i + add b_i, of n elements */
static void advance(const struct kernels *k, float *s, const float *a, const float *b, float dt, float add,
                    uint32_t n) {
    enum { PART = 64 };
    float decay[PART];
    for (uint32_t first = 0, m; first < n; first += m) {
        m = n - first < PART ? n - first : PART;
        for (uint32_t i = 0; i < m; i++) decay[i] = dt * a[first + i];
        k->exp(decay, m);
        for (uint32_t i = 0; i < m; i++) s[first + i] = s[first + i] * decay[i] + add * b[first + i];
    }
}

struct scan {
    const struct forward *f;
    const struct call *c;
    float *states;         /* (n_head, dim, n_state) */
    const float *a, *d;    /* (n_head, 1) or (n_head, n_state); (n_head) */
    size_t n_row;          /* elements of a row of in, which begins with x (n_head, dim) */
    bool is_scalar;        /* A has one number for each head */
};

/* S <- e^(dt A) S + dt x B^T, y = S C + D x, one token after the other: eq. 2 of the first paper, with the zero-order
 * hold for A and Euler's rule for B, as its code has it.  A text among several begins with zeros. */
static void run_heads(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct scan *v = user;
    const struct forward *f = v->f;
    const struct scan_plan *p = &f->model->plan.scan;
    uint32_t n = p->n_state, dim = p->dim;
    for (uint32_t h = begin; h < end; h++) {
        float *state = v->states + (size_t)h * dim * n;
        size_t group = h / (p->n_head / p->n_group);
        for (uint32_t t = 0; t < v->c->b.n; t++) {
            const float *b = f->streams[STREAM_B] + ((size_t)t * p->n_group + group) * n;
            const float *c = f->streams[STREAM_C] + ((size_t)t * p->n_group + group) * n;
            const float *x = v->c->in + t * v->n_row + (size_t)h * dim;
            size_t at = (size_t)t * p->n_head + h;
            float dt = f->streams[STREAM_DT][at], *y = v->c->out + at * dim;
            float decay = v->is_scalar ? (float)math_exp((double)(dt * v->a[h])) : 0.0f;
            bool is_new = v->c->b.lengths && f->positions[t] == v->c->b.pos;
            if (is_new) memset(state, 0, (size_t)dim * n * sizeof *state);
            for (uint32_t j = 0; j < dim; j++) {
                float *s = state + (size_t)j * n, add = dt * x[j];
                if (v->is_scalar) {
                    for (uint32_t i = 0; i < n; i++) s[i] = s[i] * decay + add * b[i];
                } else {
                    advance(&f->kernels, s, v->a + (size_t)h * n, b, dt, add, n);
                }
                y[j] = f->kernels.dot_f32(s, c, n) + v->d[h] * x[j];
            }
        }
    }
    (void)thread;
}

void forward_scan(struct forward *f, const struct call *c) {
    const struct plan *p = &f->model->plan;
    size_t n_row = (size_t)plan_conv_width(p, c->il);
    struct scan v = { f, c, f->states[c->il].values + (c->layer->n_conv - 1) * n_row, weight_floats(c->w->w),
                      weight_floats(f->model->layers[c->il].w[W_SCAN_D].w), n_row, p->scan.kind != SCAN_MAMBA };
    pool_run(f->pool, p->scan.n_head, p->scan.dim > 1 ? 1 : 32, run_heads, &v);
}

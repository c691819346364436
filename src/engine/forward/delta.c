/* Steps of gated delta nets: Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule".
 * Compiled for speed. */
#include "forward/steps.h"

/* The logarithms of decays, see enum step_kind. */
void forward_decay(struct forward *f, const struct call *c) {
    const struct delta_plan *d = &c->layer->delta;
    const float *dt = weight_floats(c->w->w), *a = weight_floats(f->model->layers[c->il].w[W_DELTA_A].w);
    size_t n = delta_n_decay(d), each = n / d->n_head;
    for (size_t i = call_begin(c); i < call_end(c); i++) {
        double z = (double)(c->out[i] + dt[i % n]);
        float own = a[i % n / each];
        c->out[i] = d->least_decay == 0.0f ? own * (float)softplus(z)
                                           : d->least_decay / (1.0f + (float)math_exp(-(double)own * z));
    }
}

struct delta {
    const struct forward *f;
    const struct call *c;
    float *states;   /* (n_head, dim, dim) */
    size_t n_row;    /* elements of the Q, K and V of a token, which STREAM_CONV has */
};

/* x (n) *= 1 / sqrt(sum of squares + eps), times scale */
static void make_unit(const struct kernels *k, float *x, uint32_t n, float eps, float scale) {
    float factor = scale / (float)math_sqrt((double)(k->dot_f32(x, x, n) + eps));
    for (uint32_t i = 0; i < n; i++) x[i] *= factor;
}

/* Q, divided by sqrt(dim) too, and K become units.  With a decay for each column, the logarithms of decays become their
 * exponentials, and STREAM_KEY, whose K was convolved, their products with K. */
static void normalize_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct delta *v = user;
    const struct delta_plan *d = &v->c->layer->delta;
    float eps = v->f->model->plan.norm_eps, scale = 1.0f / (float)math_sqrt(d->dim);
    for (uint32_t t = v->c->begin + begin; t < v->c->begin + end; t++) {
        float *row = v->f->streams[STREAM_CONV] + t * v->n_row;
        for (uint32_t h = 0; h < 2 * d->n_key_head; h++) {
            make_unit(&v->f->kernels, row + (size_t)h * d->dim, d->dim, eps, h < d->n_key_head ? scale : 1.0f);
        }
        if (!d->is_diagonal) continue;
        size_t n = delta_n_decay(d);
        float *decays = v->f->streams[STREAM_DECAY] + t * n, *faded = v->f->streams[STREAM_KEY] + t * n;
        v->f->kernels.exp(decays, n);
        v->f->kernels.mul_scaled(faded, row + n, 1.0f, decays, n);   /* K is behind Q, which has as many elements */
    }
    (void)thread;
}

/* S <- S e^decay, S <- S + (beta (v - S k)) k^T, out = S q, one token after the other: eq. 10 of the paper, and eq. 1
 * of Kimi Team 2025, "Kimi Linear", where each column of S has its decay.  Row j of S (dim, dim) has what element j of
 * a value is made of.  A text among several begins with zeros. */
static void run_rows(void *mixer, struct state_rows rows) {
    const struct delta *v = mixer;
    const struct delta_plan *d = &v->c->layer->delta;
    const struct kernels *k = &v->f->kernels;
    uint32_t dim = d->dim, h = rows.head;
    float *s = v->states + ((size_t)h * dim + rows.first) * dim, change[STATE_ROWS];
    for (uint32_t t = rows.begin; t < rows.end; t++) {
        size_t at = (size_t)t * d->n_head + h;
        const float *row = v->f->streams[STREAM_CONV] + t * v->n_row;
        const float *query = row + (size_t)delta_key_head(d, h) * dim, *key = query + (size_t)d->n_key_head * dim;
        const float *value = row + (2 * (size_t)d->n_key_head + h) * dim + rows.first;
        float beta = v->f->streams[STREAM_BETA][at], *decay = rows.decay + (t - rows.begin);
        struct advance of = { .kind = d->is_diagonal ? ADVANCE_FADE : ADVANCE_DECAY, .n = dim, .key = key,
                              .query = query, .fade = v->f->streams[STREAM_DECAY] + at * dim };
        if (rows.first == 0) *decay = d->is_diagonal ? 1.0f : (float)math_exp((double)v->f->streams[STREAM_DECAY][at]);
        of.decay = *decay;
        if (begins_text(v->c, t)) memset(s, 0, (size_t)rows.n * dim * sizeof *s);
        k->row_dots(change, s, rows.n, *decay, d->is_diagonal ? v->f->streams[STREAM_KEY] + at * dim : key, dim);
        for (uint32_t r = 0; r < rows.n; r++) change[r] = beta * (value[r] - change[r]);
        k->advance(v->c->out + at * dim + rows.first, s, rows.n, &of, change, NULL);
    }
}

static void run_heads(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    struct delta *v = user;
    forward_states(v, begin, end, v->c->layer->delta.dim, v->c, run_rows);
    (void)thread;
}

void forward_delta(struct forward *f, const struct call *c) {
    const struct delta_plan *d = &c->layer->delta;
    size_t n_row = (size_t)(2 * d->n_key_head + d->n_head) * d->dim;
    struct delta v = { f, c, call_state(f, c) + (c->layer->n_conv - 1) * n_row, n_row };
    pool_run(f->pool, c->end - c->begin, n_row * POOL_ELEMENT, normalize_tokens, &v);
    pool_run(f->pool, d->n_head, call_cost(c, (uint64_t)d->dim * d->dim), run_heads, &v);
}

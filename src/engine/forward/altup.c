/* Steps of a model with several residual streams: Baykal et al. 2023, "Alternating Updates for Efficient Transformers".
 * The layers compute with the first one, x, and what they compute corrects the prediction of each.
 * Compiled for speed. */
#include "forward/steps.h"

#include "base/math.h"

void forward_tanh(struct forward *f, const struct call *c) {
    for (size_t i = call_begin(c); i < call_end(c); i++) {
        c->out[i] = (float)(1 - 2 / (math_exp(2 * (double)c->in[i]) + 1));
    }
    (void)f;
}

/* Stream k of token t: x, or one of the others. */
static const float *stream_of(const struct forward *f, uint32_t t, uint32_t k) {
    const struct plan *p = &f->model->plan;
    size_t n = p->n_embd;
    return k == 0 ? f->x + t * n : f->streams[STREAM_OTHERS] + ((size_t)t * (p->n_stream - 1) + k - 1) * n;
}

/* out_j = stream_j + sum over k of coefficient_(j, k) stream_k: eq. 1 of the paper. */
void forward_predict(struct forward *f, const struct call *c) {
    uint32_t n_stream = c->s->n_head, n = c->s->n;
    for (uint32_t t = c->begin; t < c->end; t++) {
        const float *coefs = c->in + (size_t)t * n_stream * n_stream;
        float *out = c->out + (size_t)t * n_stream * n;
        for (uint32_t j = 0; j < n_stream; j++, out += n) {
            memcpy(out, stream_of(f, t, j), n * sizeof *out);
            for (uint32_t k = 0; k < n_stream; k++) {
                f->kernels.add_scaled(out, stream_of(f, t, k), coefs[j * n_stream + k], n);
            }
        }
    }
}

/* out_j += (x - out_0) (1 + factor_j): eq. 2 of the paper, whose factors depend on x here. */
void forward_correct(struct forward *f, const struct call *c) {
    uint32_t n_stream = c->s->n_head, n = c->s->n;
    for (uint32_t t = c->begin; t < c->end; t++) {
        const float *factors = c->in + (size_t)t * n_stream, *x = f->x + (size_t)t * n;
        float *first = c->out + (size_t)t * n_stream * n;
        for (uint32_t j = n_stream; j-- > 0;) {   /* the first one, which the others read, comes last */
            for (uint32_t i = 0; i < n; i++) first[j * n + i] += (x[i] - first[i]) * (1.0f + factors[j]);
        }
    }
}

/* out = the first stream of in */
void forward_first(struct forward *f, const struct call *c) {
    uint32_t n = c->s->n, n_stream = f->model->plan.n_stream;
    for (uint32_t t = c->begin; t < c->end; t++) {
        memcpy(c->out + (size_t)t * n, c->in + (size_t)t * n_stream * n, n * sizeof *c->out);
    }
}

/* out = the other streams of in, plus h */
void forward_others(struct forward *f, const struct call *c) {
    uint32_t n = c->s->n, n_other = c->s->n_head;
    for (uint32_t t = c->begin; t < c->end; t++) {
        const float *in = c->in + ((size_t)t * (n_other + 1) + 1) * n, *h = f->norm + (size_t)t * n;
        float *out = c->out + (size_t)t * n_other * n;
        for (uint32_t i = 0; i < n_other * n; i++) out[i] = in[i] + h[i % n];
    }
}

/* ---- outside the layers ------------------------------------------------------------------------------------------ */

/* to (n_token, n) = matrix j of w times from, with the magnitude of x. */
static void project(struct forward *f, struct batch b, const struct affine *of, uint32_t j, const float *from,
                    float *to) {
    const struct weight matrix = weight_expert(of->w, j);
    const struct affine one = { .w = &matrix };
    const struct product product = { TAP_COUNT, &one, to, 1, false, 0.0f };
    uint32_t n = f->model->plan.n_embd;
    forward_multiply(f, from, b.n, -1, b.pos, &product, 1);
    for (uint32_t t = 0; t < b.n; t++) {
        const float *x = f->x + (size_t)t * n;
        float *y = to + (size_t)t * n;
        float target = f->kernels.dot_f32(x, x, n), own = f->kernels.dot_f32(y, y, n);
        float factor = (float)(math_sqrt((double)target) / math_sqrt((double)own));
        for (uint32_t i = 0; i < n; i++) y[i] *= factor;
    }
}

void forward_split_streams(struct forward *f, struct batch b) {
    const struct plan *p = &f->model->plan;
    size_t n = p->n_embd, n_other = p->n_stream - 1;
    for (uint32_t j = 0; j < n_other; j++) {
        project(f, b, &f->model->altup_proj, j, f->x, f->norm);
        for (uint32_t t = 0; t < b.n; t++) {
            memcpy(f->streams[STREAM_OTHERS] + (t * n_other + j) * n, f->norm + t * n, n * sizeof(float));
        }
    }
}

void forward_merge_streams(struct forward *f, struct batch b) {
    const struct plan *p = &f->model->plan;
    size_t n = p->n_embd, n_other = p->n_stream - 1;
    float *sum = f->streams[STREAM_PREDICTED], *in = sum + b.n * n;   /* there is room for n_stream >= 2 of each */
    memcpy(sum, f->x, b.n * n * sizeof *sum);
    for (uint32_t j = 0; j < n_other; j++) {
        for (uint32_t t = 0; t < b.n; t++) memcpy(in + t * n, stream_of(f, t, j + 1), n * sizeof *in);
        project(f, b, &f->model->altup_unembd, j, in, f->norm);
        f->kernels.add_scaled(sum, f->norm, 1.0f, b.n * n);
    }
    for (size_t i = 0; i < b.n * n; i++) f->x[i] = sum[i] / (float)p->n_stream;
}

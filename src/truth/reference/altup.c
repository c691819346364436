/* Steps of a model with several residual streams: Baykal et al. 2023, "Alternating Updates for Efficient Transformers";
 * Google 2025, "Gemma 3n". */
#include "reference/steps.h"

void reference_tanh(struct reference *r, const struct call *c) {
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] = tanh(c->in[i]);
}

static const double *stream_of(const struct reference *r, size_t t, uint32_t k) {
    size_t n = r->plan.n_embd, n_other = r->plan.n_stream - 1;
    return k == 0 ? r->x + t * n : r->streams[STREAM_OTHERS] + (t * n_other + k - 1) * n;
}

/* out_j = stream_j + sum over k of coefficient_(j, k) stream_k                                                 eq. 1 */
void reference_predict(struct reference *r, const struct call *c) {
    uint32_t n_stream = c->s->n_head, n = c->s->n;
    for (size_t i = 0; i < c->n; i++) {
        size_t t = i / n / n_stream, j = i / n % n_stream, at = i % n;
        c->out[i] = stream_of(r, t, (uint32_t)j)[at];
        for (uint32_t k = 0; k < n_stream; k++) {
            c->out[i] += c->in[(t * n_stream + j) * n_stream + k] * stream_of(r, t, k)[at];
        }
    }
}

/* out_j += (x - out_0) (1 + factor_j)                                                                          eq. 2 */
void reference_correct(struct reference *r, const struct call *c) {
    uint32_t n_stream = c->s->n_head, n = c->s->n;
    for (size_t t = 0; t < c->b.n; t++) {
        for (uint32_t i = 0; i < n; i++) {
            double *out = c->out + t * n_stream * n + i, innovation = r->x[t * n + i] - *out;
            for (uint32_t j = 0; j < n_stream; j++) out[j * n] += innovation * (1 + c->in[t * n_stream + j]);
        }
    }
}

void reference_first(struct reference *r, const struct call *c) {
    for (size_t i = 0; i < c->n; i++) c->out[i] = c->in[i / c->s->n * r->plan.n_stream * c->s->n + i % c->s->n];
}

void reference_others(struct reference *r, const struct call *c) {
    size_t n = c->s->n, n_other = c->s->n_head;
    for (size_t i = 0; i < c->n; i++) {
        size_t t = i / n / n_other, j = i / n % n_other;
        c->out[i] = c->in[(t * (n_other + 1) + j + 1) * n + i % n] + r->h[t * n + i % n];
    }
}

/* to (n_token, n_embd) = matrix j times from, with the magnitude of x. */
static void project(struct reference *r, const struct affine *of, enum weight_id id, uint32_t j, const double *from,
                    uint32_t n_token, double *to) {
    const struct weight matrix = weight_expert(of->w, j);
    uint32_t n = r->plan.n_embd;
    r->steps.linear(r, &matrix, id, from, n_token, to);
    for (size_t t = 0; t < n_token; t++, to += n) {
        double target = 0, own = 0;
        for (uint32_t i = 0; i < n; i++) {
            target += r->x[t * n + i] * r->x[t * n + i];
            own += to[i] * to[i];
        }
        for (uint32_t i = 0; i < n; i++) to[i] *= sqrt(target) / sqrt(own);
    }
}

void reference_split_streams(struct reference *r, uint32_t n_token) {
    size_t n = r->plan.n_embd, n_other = r->plan.n_stream - 1;
    for (uint32_t j = 0; j < n_other; j++) {
        project(r, &r->m->altup_proj, W_ALTUP_PROJ, j, r->x, n_token, r->h);
        for (size_t t = 0; t < n_token; t++) {
            memcpy(r->streams[STREAM_OTHERS] + (t * n_other + j) * n, r->h + t * n, n * sizeof *r->h);
        }
    }
}

void reference_merge_streams(struct reference *r, uint32_t n_token) {
    size_t n = r->plan.n_embd;
    double *sum = r->streams[STREAM_PREDICTED], *in = sum + n_token * n;   /* there is room for n_stream >= 2 of each */
    memcpy(sum, r->x, n_token * n * sizeof *sum);
    for (uint32_t j = 1; j < r->plan.n_stream; j++) {
        for (size_t t = 0; t < n_token; t++) memcpy(in + t * n, stream_of(r, t, j), n * sizeof *in);
        project(r, &r->m->altup_unembd, W_ALTUP_UNEMBD, j - 1, in, n_token, r->h);
        for (size_t i = 0; i < n_token * n; i++) sum[i] += r->h[i];
    }
    for (size_t i = 0; i < n_token * n; i++) r->x[i] = sum[i] / r->plan.n_stream;
}

/* Steps of RWKV: Peng et al. 2024, "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence", arXiv
 * 2404.05892; Peng et al. 2025, "RWKV-7 Goose with Expressive Dynamic State Evolution", arXiv 2503.14456.  The state of
 * a layer begins with the last input of each of its shifts; the matrices of the heads follow. */
#include "reference/steps.h"

double reference_previous(const double *last, const double *x, uint32_t t, uint32_t n_token, uint32_t n) {
    (void)n_token;
    return t > 0 ? *(x - n) : *last;
}

/* shift_t = x_(t - 1) - x_t */
void reference_shift(struct reference *r, const struct call *c) {
    double *last = r->states[c->il] + c->s->first;
    uint32_t n = c->s->n;
    for (size_t i = 0; i < c->n; i++) {
        c->out[i] = r->steps.previous(last + i % n, c->in + i, (uint32_t)(i / n), c->b.n, n) - c->in[i];
    }
    memcpy(last, c->in + (size_t)(c->b.n - 1) * n, n * sizeof *last);
}

/* lerp(x_t, x_(t - 1), f) = x_t + shift_t f; f has a part that depends on the token in RWKV 6: "Finch Token Shift" */
void reference_lerp(struct reference *r, const struct call *c) {
    const float *weight = reference_floats(c->w->w) + c->s->first;
    for (size_t i = 0; i < c->n; i++) {
        size_t t = i / c->s->n, k = i % c->s->n;
        double f = (double)weight[k];
        if (c->s->n_to > 0) f += r->streams[STREAM_LERPS][t * c->s->n_to + c->s->to + k];
        c->out[i] = c->in[i] + r->streams[STREAM_SHIFT][i] * f;
    }
}

double reference_wkv_fade(enum rwkv_kind kind, double d) {
    return kind == RWKV_7 ? exp(-(double)0.606531f / (1 + exp(-d))) : exp(-exp(d));
}

/* RWKV 7: w = e^(-e^-0.5 sigmoid(d)), with the constant of the authors' code; RWKV 6: w = e^(-e^d); lightning
 * attention: a constant for each head */
void reference_fade(struct reference *r, const struct call *c) {
    const struct attn_plan *a = &c->layer->attn;
    for (size_t i = 0; i < c->n; i++) {
        bool is_lightning = r->plan.rwkv.kind == RWKV_LIGHTNING;
        c->out[i] = is_lightning ? r->steps.fade(&r->plan, c->il, (uint32_t)(i / a->k_dim % a->n_head))
                  : r->steps.wkv_fade(r->plan.rwkv.kind, c->out[i]);
    }
}

/* v = lerp(v, v of layer 0, mix) */
void reference_mix(struct reference *r, const struct call *c) {
    for (size_t i = 0; i < c->n; i++) c->out[i] += (c->in[i] - c->out[i]) * r->streams[STREAM_MIX][i];
}

/* x / max(|x|, 1e-12), as in the authors' code */
void reference_unit(struct reference *r, const struct call *c) {
    uint32_t n = c->s->n_norm;
    (void)r;
    for (double *x = c->out; x < c->out + c->n; x += n) {
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
        for (uint32_t i = 0; i < n; i++) x[i] /= fmax(sqrt(sum), 1e-12);
    }
}

/* k = k * lerp(1, a, alpha) */
void reference_replace(struct reference *r, const struct call *c) {
    const float *alpha = reference_floats(c->w->w);
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] *= 1 + (c->in[i] - 1) * (double)alpha[i % c->w->w->n_in];
}

void reference_times(struct reference *r, const struct call *c) {
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] *= c->in[i];
}

/* sum of q k w, of n elements */
static double weighted_dot(const double *q, const double *k, const float *w, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += q[i] * k[i] * (double)w[i];
    return sum;
}

/* u = (r (rho * k)^T) v, for each head */
void reference_bonus(struct reference *r, const struct call *c) {
    const struct attn_plan *a = &c->layer->attn;
    const float *rho = c->w->w ? reference_floats(c->w->w) : NULL;   /* NULL: a mistake */
    if (!rho) memset(c->out, 0, c->n * sizeof *c->out);
    for (size_t i = 0; rho && i < (size_t)c->b.n * a->n_head; i++) {
        size_t at = i * a->k_dim, at_v = i * a->v_dim;
        double sum = weighted_dot(r->streams[STREAM_Q] + at, c->in + at, rho + i % a->n_head * a->k_dim, a->k_dim);
        for (uint32_t j = 0; j < a->v_dim; j++) c->out[at_v + j] = sum * r->streams[STREAM_VALUE][at_v + j];
    }
}

/* (x - mean) / sqrt(variance + eps) of each head, times the weight, plus the bias, if there is one: Wu & He 2018,
 * "Group Normalization" */
void reference_norm_heads(struct reference *r, const struct call *c) {
    const float *weight = reference_floats(c->w->w), *bias = c->w->b ? reference_floats(c->w->b) : NULL;
    bool is_rwkv = c->s->weight == W_HEADS_NORM;
    double eps = is_rwkv ? r->steps.heads_eps(&r->plan) : (double)plan_norm_eps(&r->plan, c->s->weight);
    size_t n = c->s->n_norm, n_row = (size_t)c->w->w->n_in * c->w->w->n_out;
    for (size_t at = 0; at < c->n; at += n) {
        const double *x = c->in + at;
        double mean = 0, variance = 0;
        for (size_t i = 0; i < n; i++) mean += x[i] / (double)n;
        for (size_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (size_t i = 0; i < n; i++) {
            double normed = (x[i] - mean) / sqrt(variance + eps);
            c->out[at + i] = normed * (double)weight[(at + i) % n_row] + (bias ? (double)bias[(at + i) % n_row] : 0);
        }
    }
}

/* S <- S (diag(w) - removal^T (a * removal)) + v^T k, out = S r^T: "The Weighted Key Value State Evolution" */
static void wkv_7(const struct reference *r, const struct call *c, double *states) {
    const struct attn_plan *p = &c->layer->attn;
    for (size_t i = 0; i < (size_t)c->b.n * p->n_head; i++) {
        size_t at = i * p->k_dim;
        const double *q = r->streams[STREAM_Q] + at, *w = r->streams[STREAM_FADE] + at, *k = c->in + at;
        const double *a = r->streams[STREAM_RATE] + at, *removal = r->streams[STREAM_REMOVAL] + at;
        for (uint32_t j = 0; j < p->v_dim; j++) {
            double *s = states + (i % p->n_head * p->v_dim + j) * p->k_dim, old = 0, read = 0;
            double v = r->streams[STREAM_VALUE][i * p->v_dim + j];
            for (uint32_t m = 0; m < p->k_dim; m++) old += s[m] * removal[m];
            for (uint32_t m = 0; m < p->k_dim; m++) s[m] = s[m] * w[m] - old * a[m] * removal[m] + v * k[m];
            for (uint32_t m = 0; m < p->k_dim; m++) read += s[m] * q[m];
            c->out[i * p->v_dim + j] = read;
        }
    }
}

/* RWKV 6: out = (S + v^T (u * k)) r^T, S <- S diag(w) + v^T k: "Finch Time Mixing".  RWKV_LINEAR: S <- S diag(w) +
 * v^T ((1 - w) * k), out = S r^T / sqrt(dim): Yang et al. 2023, "Gated Linear Attention Transformers", eq. 3.
 * RWKV_LIGHTNING: S <- S diag(w) + v^T k, out = S r^T: Qin et al. 2024, "Lightning Attention-2", eq. 3 */
static void wkv_6(const struct reference *r, const struct call *c, double *states) {
    const struct attn_plan *p = &c->layer->attn;
    bool is_linear = r->plan.rwkv.kind == RWKV_LINEAR, has_bonus = r->plan.rwkv.kind == RWKV_6;
    for (size_t i = 0; i < (size_t)c->b.n * p->n_head; i++) {
        size_t at = i * p->k_dim, h = i % p->n_head;
        size_t kv = i / p->n_head * p->n_head_kv + h / (p->n_head / p->n_head_kv);
        const double *q = r->streams[STREAM_Q] + at, *w = r->streams[STREAM_FADE] + at, *k = c->in + kv * p->k_dim;
        double own = has_bonus && c->w->w ? weighted_dot(q, k, reference_floats(c->w->w) + h * p->k_dim, p->k_dim) : 0;
        for (uint32_t j = 0; j < p->v_dim; j++) {
            double *s = states + (h * p->v_dim + j) * p->k_dim, before = 0, after = 0;
            double v = r->streams[STREAM_VALUE][kv * p->v_dim + j];
            for (uint32_t m = 0; m < p->k_dim; m++) before += s[m] * q[m];
            for (uint32_t m = 0; m < p->k_dim; m++) s[m] = s[m] * w[m] + v * k[m] * (is_linear ? 1 - w[m] : 1);
            for (uint32_t m = 0; m < p->k_dim; m++) after += s[m] * q[m];
            c->out[i * p->v_dim + j] = has_bonus ? before + own * v : after / (is_linear ? sqrt(p->k_dim) : 1);
        }
    }
}

void reference_wkv(struct reference *r, const struct call *c) {
    double *states = r->states[c->il] + (size_t)r->plan.rwkv.n_shift * r->plan.n_embd;
    if (r->plan.rwkv.kind == RWKV_7) wkv_7(r, c, states);
    else wkv_6(r, c, states);
}

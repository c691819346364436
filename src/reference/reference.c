/* A Llama decoder as the papers write it.  Names and shapes:
 *
 *   x        (n_token, n_embd)              residual stream
 *   q        (n_token, n_head, head_dim)    queries of the new tokens
 *   k, v     (n_ctx, n_head_kv, head_dim)   per layer: keys and values of all tokens so far
 *
 *   for each layer:  x += W_o attention(rope(W_q h), rope(W_k h), W_v h),   h = rms_norm(x)
 *                    x += W_down (silu(W_gate h) * (W_up h)),               h = rms_norm(x)
 *   logits = W_output rms_norm(x)
 *
 * Every line is meant to be checked against its paper; do not make it faster. */
#include "reference/reference.h"

#include <math.h>
#include <stdlib.h>

struct reference {
    const struct model *m;
    uint32_t n_ctx;
    uint64_t bytes;
    double *k, *v;                   /* (n_layer, n_ctx, n_head_kv, head_dim) */
    double *x, *h, *q, *attn;        /* (n_batch, n_embd), (n_batch, n_embd), (n_batch, n_head * head_dim) twice */
    double *gate, *up;               /* (n_batch, n_ff) */
    double *scores;                  /* (n_ctx) */
    float *row;                      /* one dequantized row of any weight */
    struct tap_sink sink;
    float *tapped;                   /* a tap's values in f32, NULL while there is no sink */
    double *weights;                 /* (n_batch, n_head, n_ctx) attention weights of a layer, likewise */
    uint32_t n_batch;
};

/* x: (n_token, n_head, n). */
static void tap(const struct reference *r, const char *name, int32_t il, uint32_t pos, uint32_t n_token,
                uint32_t n_head, uint32_t n, const double *x) {
    if (!r->sink.on_tap) return;
    for (size_t i = 0; i < (size_t)n_token * n_head * n; i++) r->tapped[i] = (float)x[i];
    r->sink.on_tap(r->sink.user, &(plumb_tap) { name, il, pos, n_token, n_head, n, r->tapped });
}

static const float *dequantized_row(struct reference *r, const struct weight *w, size_t i) {
    w->traits->dequantize(w->data + i * w->row_bytes, r->row, w->n_in);
    return r->row;
}

/* sum of w_i x_i.  Four partial sums, only so that the additions need not wait for each other. */
static double dot(const float *w, const double *x, uint32_t n) {
    double sum[4] = { 0 };
    for (uint32_t i = 0; i < n / 4 * 4; i += 4) {
        for (uint32_t j = 0; j < 4; j++) sum[j] += (double)w[i + j] * x[i + j];
    }
    for (uint32_t i = n / 4 * 4; i < n; i++) sum[0] += (double)w[i] * x[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/* y (n, n_out) = x (n, n_in) W^T + b */
static void linear(struct reference *r, const struct weight *w, const struct weight *b, const double *x, uint32_t n,
                   double *y) {
    for (uint32_t o = 0; o < w->n_out; o++) {
        const float *row = dequantized_row(r, w, o);
        for (uint32_t t = 0; t < n; t++) y[(size_t)t * w->n_out + o] = dot(row, x + (size_t)t * w->n_in, w->n_in);
    }
    if (!b || !b->data) return;
    const float *bias = dequantized_row(r, b, 0);
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t o = 0; o < w->n_out; o++) y[(size_t)t * w->n_out + o] += (double)bias[o];
    }
}

/* h_i = x_i / sqrt(mean(x^2) + eps) * w_i       Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", eq. 4 */
static void rms_norm(struct reference *r, const struct weight *w, const double *x, uint32_t n, double *h) {
    const float *weight = dequantized_row(r, w, 0);
    for (uint32_t t = 0; t < n; t++, x += w->n_in, h += w->n_in) {
        double sum = 0;
        for (uint32_t i = 0; i < w->n_in; i++) sum += x[i] * x[i];
        double rms = sqrt(sum / w->n_in + (double)r->m->config.rms_eps);
        for (uint32_t i = 0; i < w->n_in; i++) h[i] = x[i] / rms * (double)weight[i];
    }
}

/* Pair i of a head turns by pos * base^(-2i / n_rot).    Su et al. 2021, "RoFormer", eq. 34; Llama 3.1 divides by
 * rope_freqs[i], linear scaling multiplies positions.  x (n, n_head, head_dim) */
static void rope(struct reference *r, double *x, uint32_t n_head, uint32_t n, uint32_t pos) {
    const struct model_config *c = &r->m->config;
    const float *factors = r->m->rope_freqs.data ? dequantized_row(r, &r->m->rope_freqs, 0) : NULL;
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t head = 0; head < n_head; head++, x += c->head_dim) {
            for (uint32_t i = 0; i < c->n_rot / 2; i++) {
                double frequency = pow((double)c->rope_freq_base, -2.0 * i / c->n_rot);
                if (factors) frequency /= (double)factors[i];
                double angle = (double)(pos + t) * (double)c->rope_freq_scale * frequency;
                uint32_t a = c->rope_pairing == ROPE_NORM ? 2 * i : i;
                uint32_t b = c->rope_pairing == ROPE_NORM ? 2 * i + 1 : i + c->n_rot / 2;
                double xa = x[a], xb = x[b];
                x[a] = xa * cos(angle) - xb * sin(angle);
                x[b] = xa * sin(angle) + xb * cos(angle);
            }
        }
    }
}

/* softmax(q k^T / sqrt(head_dim)) v, causal           Vaswani et al. 2017, "Attention Is All You Need", eq. 1
 * query head h reads K/V head h / (n_head / n_head_kv)   Ainslie et al. 2023, "GQA" */
static void attention(struct reference *r, const double *k, const double *v, uint32_t n, uint32_t pos) {
    const struct model_config *c = &r->m->config;
    size_t stride = (size_t)c->n_head_kv * c->head_dim;
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t h = 0; h < c->n_head; h++) {
            const double *q = r->q + ((size_t)t * c->n_head + h) * c->head_dim;
            double *out = r->attn + ((size_t)t * c->n_head + h) * c->head_dim;
            size_t head_kv = (size_t)(h / (c->n_head / c->n_head_kv)) * c->head_dim;
            uint32_t n_key = pos + t + 1;   /* a token sees itself and those before it */
            double max = -INFINITY, sum = 0;
            for (uint32_t p = 0; p < n_key; p++) {
                double dot = 0;
                for (uint32_t i = 0; i < c->head_dim; i++) dot += q[i] * k[p * stride + head_kv + i];
                r->scores[p] = dot / sqrt(c->head_dim);
                max = fmax(max, r->scores[p]);
            }
            for (uint32_t p = 0; p < n_key; p++) sum += r->scores[p] = exp(r->scores[p] - max);
            for (uint32_t p = 0; r->sink.on_tap && p < pos + n; p++) {
                r->weights[((size_t)t * c->n_head + h) * (pos + n) + p] = p < n_key ? r->scores[p] / sum : 0;
            }
            for (uint32_t i = 0; i < c->head_dim; i++) {
                double value = 0;
                for (uint32_t p = 0; p < n_key; p++) value += r->scores[p] / sum * v[p * stride + head_kv + i];
                out[i] = value;
            }
        }
    }
}

static void add(double *x, const double *y, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] += y[i];
}

void reference_run(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_logits,
                   float *logits) {
    const struct model *m = r->m;
    const struct model_config *c = &m->config;
    size_t n_x = (size_t)n * c->n_embd, n_kv = (size_t)c->n_head_kv * c->head_dim;
    for (uint32_t t = 0; t < n; t++) {
        const float *embedding = dequantized_row(r, &m->token_embd, (size_t)ids[t]);
        for (uint32_t i = 0; i < c->n_embd; i++) r->x[(size_t)t * c->n_embd + i] = (double)embedding[i];
    }
    tap(r, "embd", -1, pos, n, 1, c->n_embd, r->x);
    for (uint32_t il = 0; il < c->n_layer; il++) {
        const struct layer *l = &m->layers[il];
        double *k = r->k + (size_t)il * r->n_ctx * n_kv, *v = r->v + (size_t)il * r->n_ctx * n_kv;
        int32_t at = (int32_t)il;

        rms_norm(r, &l->attn_norm, r->x, n, r->h);
        tap(r, "attn_norm", at, pos, n, 1, c->n_embd, r->h);
        linear(r, &l->attn_q, &l->attn_q_bias, r->h, n, r->q);
        linear(r, &l->attn_k, &l->attn_k_bias, r->h, n, k + pos * n_kv);
        linear(r, &l->attn_v, &l->attn_v_bias, r->h, n, v + pos * n_kv);
        tap(r, "Qcur", at, pos, n, c->n_head, c->head_dim, r->q);
        tap(r, "Kcur", at, pos, n, c->n_head_kv, c->head_dim, k + pos * n_kv);
        tap(r, "Vcur", at, pos, n, c->n_head_kv, c->head_dim, v + pos * n_kv);
        rope(r, r->q, c->n_head, n, pos);
        rope(r, k + pos * n_kv, c->n_head_kv, n, pos);
        tap(r, "Qcur_rope", at, pos, n, c->n_head, c->head_dim, r->q);
        tap(r, "Kcur_rope", at, pos, n, c->n_head_kv, c->head_dim, k + pos * n_kv);
        attention(r, k, v, n, pos);
        tap(r, "kq_soft_max", at, pos, n, c->n_head, pos + n, r->weights);
        tap(r, "kqv_out", at, pos, n, c->n_head, c->head_dim, r->attn);
        linear(r, &l->attn_output, &l->attn_output_bias, r->attn, n, r->h);
        tap(r, "attn_out", at, pos, n, 1, c->n_embd, r->h);
        add(r->x, r->h, n_x);
        tap(r, "ffn_inp", at, pos, n, 1, c->n_embd, r->x);

        rms_norm(r, &l->ffn_norm, r->x, n, r->h);
        tap(r, "ffn_norm", at, pos, n, 1, c->n_embd, r->h);
        linear(r, &l->ffn_gate, NULL, r->h, n, r->gate);
        linear(r, &l->ffn_up, NULL, r->h, n, r->up);
        tap(r, "ffn_gate", at, pos, n, 1, c->n_ff, r->gate);
        tap(r, "ffn_up", at, pos, n, 1, c->n_ff, r->up);
        /* SwiGLU: silu(gate) * up, silu(z) = z / (1 + e^-z)      Shazeer 2020, "GLU Variants Improve Transformer" */
        for (size_t i = 0; i < (size_t)n * c->n_ff; i++) r->gate[i] = r->gate[i] / (1 + exp(-r->gate[i])) * r->up[i];
        tap(r, "ffn_swiglu", at, pos, n, 1, c->n_ff, r->gate);
        linear(r, &l->ffn_down, NULL, r->gate, n, r->h);
        tap(r, "ffn_out", at, pos, n, 1, c->n_embd, r->h);
        add(r->x, r->h, n_x);
        tap(r, "l_out", at, pos, n, 1, c->n_embd, r->x);
    }
    if (n_logits == 0) return;
    uint32_t first = n - n_logits;
    rms_norm(r, &m->output_norm, r->x + (size_t)first * c->n_embd, n_logits, r->h);
    tap(r, "result_norm", -1, pos + first, n_logits, 1, c->n_embd, r->h);
    for (uint32_t o = 0; o < c->n_vocab; o++) {
        const float *row = dequantized_row(r, &m->output, o);
        for (uint32_t t = 0; t < n_logits; t++) {
            logits[(size_t)t * c->n_vocab + o] = (float)dot(row, r->h + (size_t)t * c->n_embd, c->n_embd);
        }
    }
    if (!r->sink.on_tap) return;
    r->sink.on_tap(r->sink.user, &(plumb_tap) { "result_output", -1, pos + first, n_logits, 1, c->n_vocab, logits });
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static double *take(struct reference *r, uint64_t a, uint64_t b) {
    uint64_t n;
    double *p = mul_u64(a, b, &n) ? alloc_array(n, sizeof *p) : NULL;
    if (p) r->bytes += n * sizeof *p;
    return p;
}

plumb_status reference_create(struct reference **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                              struct error *err) {
    *out = NULL;
    const struct model_config *c = &m->config;
    uint64_t n_q = (uint64_t)c->n_head * c->head_dim, n_kv = (uint64_t)c->n_head_kv * c->head_dim;
    struct reference *r = calloc(1, sizeof *r);
    if (r) {
        r->m = m;
        r->n_ctx = n_ctx;
        r->n_batch = n_batch;
        r->row = alloc_array(model_max_row(c), sizeof *r->row);
    }
    if (!r || !r->row || !(r->k = take(r, (uint64_t)c->n_layer * n_ctx, n_kv))
        || !(r->v = take(r, (uint64_t)c->n_layer * n_ctx, n_kv)) || !(r->x = take(r, n_batch, c->n_embd))
        || !(r->h = take(r, n_batch, c->n_embd)) || !(r->q = take(r, n_batch, n_q))
        || !(r->attn = take(r, n_batch, n_q)) || !(r->gate = take(r, n_batch, c->n_ff))
        || !(r->up = take(r, n_batch, c->n_ff)) || !(r->scores = take(r, n_ctx, 1))) {
        reference_free(r);
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the reference pass with a context of %u tokens; ask "
                         "for a smaller context", n_ctx);
    }
    *out = r;
    return PLUMB_OK;
}

void reference_free(struct reference *r) {
    if (!r) return;
    void *const owned[] = { r->k, r->v, r->x, r->h, r->q, r->attn, r->gate, r->up, r->scores, r->row, r->tapped,
                            r->weights };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    free(r);
}

plumb_status reference_set_tap(struct reference *r, struct tap_sink sink) {
    const struct model_config *c = &r->m->config;
    uint64_t n_weight = (uint64_t)c->n_head * r->n_ctx, n_max = model_max_row(c), n;   /* of a token */
    if (n_weight > n_max) n_max = n_weight;
    if (sink.on_tap && !r->weights && !(r->weights = take(r, n_weight, r->n_batch))) return PLUMB_ERROR_MEMORY;
    if (sink.on_tap && !r->tapped) {
        r->tapped = mul_u64(n_max, r->n_batch, &n) ? alloc_array(n, sizeof *r->tapped) : NULL;
        if (!r->tapped) return PLUMB_ERROR_MEMORY;
        r->bytes += n * sizeof *r->tapped;
    }
    r->sink = sink;
    return PLUMB_OK;
}

uint64_t reference_bytes(const struct reference *r) { return r->bytes; }

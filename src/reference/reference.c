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
 * Granite also multiplies embeddings and what is added to x by factors, multiplies scores by a factor (instead of
 * dividing them by sqrt(head_dim)), and divides logits by one.
 *
 * Every line is meant to be checked against its paper; do not make it faster.  Where a quirk changes a step, a line
 * with `if (r->wrong)` leaves the step to quirk_steps.c.  r->wrong is NULL in a right pass: a reader can skip those
 * lines. */
#include "reference/steps.h"

#include <math.h>
#include <stdlib.h>

/* x: (n_token, n_head, n). */
static void tap(const struct reference *r, enum tap_id id, int32_t il, uint32_t pos, uint32_t n_token,
                uint32_t n_head, uint32_t n, double *x) {
    plumb_tap tap = { tap_spec(id)->name, il, pos, n_token, n_head, n, r->sink.on_tap ? r->tapped : NULL };
    for (size_t i = 0; r->sink.on_tap && i < (size_t)n_token * n_head * n; i++) r->tapped[i] = (float)x[i];
    if (r->sink.on_tap) r->sink.on_tap(r->sink.user, &tap);
    if (r->force) r->force(r->force_user, &tap, x);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

const float *reference_row(const struct reference *r, const struct weight *w, size_t i) {
    if (r->wrong) return r->wrong->row(r, w, i);
    w->traits->dequantize(weight_row(w, i, r->row_bytes), r->row, w->n_in);
    return r->row;
}

/* sum of w_i x_i, in four partial sums, only so that the additions do not wait for each other. */
double reference_dot(const float *w, const double *x, uint32_t n) {
    double sum[4] = { 0 };
    for (uint32_t i = 0; i < n / 4 * 4; i += 4) {
        for (uint32_t j = 0; j < 4; j++) sum[j] += (double)w[i + j] * x[i + j];
    }
    for (uint32_t i = n / 4 * 4; i < n; i++) sum[0] += (double)w[i] * x[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/* y (n, n_out) = x (n, n_in) W^T */
static void linear(const struct reference *r, const struct weight *w, const double *x, uint32_t n, double *y) {
    for (uint32_t o = 0; o < w->n_out; o++) {
        const float *row = reference_row(r, w, o);
        for (uint32_t t = 0; t < n; t++) {
            y[(size_t)t * w->n_out + o] = reference_dot(row, x + (size_t)t * w->n_in, w->n_in);
        }
    }
}

/* y (n, n_out) = x (n, n_in) W^T + b, the projections of attention */
static void projection(const struct reference *r, const struct weight *w, const struct weight *b, const double *x,
                       uint32_t n, double *y) {
    if (!(r->wrong && r->wrong->projection(r, w, x, n, y))) linear(r, w, x, n, y);
    if (!b->data || (r->wrong && r->quirks.attn_bias)) return;
    const float *bias = reference_row(r, b, 0);
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t o = 0; o < w->n_out; o++) y[(size_t)t * w->n_out + o] += (double)bias[o];
    }
}

/* ---- RMS norm ---------------------------------------------------------------------------------------------------- */

/* h_i = x_i / sqrt(mean(x^2) + eps) * w_i       Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", eq. 4 */
static void rms_norm(const struct reference *r, const struct weight *w, const double *x, uint32_t n, double *h) {
    const float *weight = reference_row(r, w, 0);
    for (uint32_t t = 0; t < n; t++, x += w->n_in, h += w->n_in) {
        if (r->wrong) {
            r->wrong->rms_norm(r, weight, x, w->n_in, h);
            continue;
        }
        double sum = 0;
        for (uint32_t i = 0; i < w->n_in; i++) sum += x[i] * x[i];
        double rms = sqrt(sum / w->n_in + (double)r->config.rms_eps);
        for (uint32_t i = 0; i < w->n_in; i++) h[i] = x[i] / rms * (double)weight[i];
    }
}

/* ---- RoPE -------------------------------------------------------------------------------------------------------- */

/* Pair i is rotated by base^(-2i / n_rot) for each position.     Su et al. 2021, "RoFormer", eq. 34
 * Llama 3.1 divides that by rope_freqs[i]. */
static void fill_frequencies(struct reference *r) {
    const struct model_config *c = &r->config;
    const struct weight *w = &r->m->rope_freqs;
    const float *factors = w->data ? reference_row(r, w, 0) : NULL;
    for (uint32_t i = 0; i < c->n_rot / 2; i++) {
        r->frequencies[i] = pow((double)c->rope_freq_base, -2.0 * i / c->n_rot);
        if (factors && i < w->n_in) r->frequencies[i] /= (double)factors[i];
    }
}

/* Linear scaling multiplies positions by rope_freq_scale. */
void reference_rotate(const struct reference *r, double *x, double position) {
    const struct model_config *c = &r->config;
    for (uint32_t i = 0; i < c->n_rot / 2; i++) {
        double angle = position * (double)c->rope_freq_scale * r->frequencies[i];
        uint32_t a = c->rope_pairing == ROPE_NORM ? 2 * i : i;
        uint32_t b = c->rope_pairing == ROPE_NORM ? 2 * i + 1 : i + c->n_rot / 2;
        double xa = x[a], xb = x[b];
        x[a] = xa * cos(angle) - xb * sin(angle);
        x[b] = xa * sin(angle) + xb * cos(angle);
    }
}

/* x: (n, n_head, head_dim), the Q or K of a batch. */
static void rope(const struct reference *r, double *x, uint32_t n_head, uint32_t n, uint32_t pos, bool is_q) {
    if (r->wrong && !r->wrong->rotates(r, is_q)) return;
    for (uint32_t t = 0; t < n; t++) {
        double position = pos + t;
        if (r->wrong) position = r->wrong->position(r, pos, t, is_q);
        for (uint32_t h = 0; h < n_head; h++, x += r->config.head_dim) reference_rotate(r, x, position);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Returns what scores are divided by: sqrt(head_dim), unless the model has a scale of its own. */
double reference_score_divisor(const struct model_config *c) {
    return c->attention_scale != 0 ? 1 / (double)c->attention_scale : sqrt(c->head_dim);
}

/* softmax(q k^T / sqrt(head_dim)) v, causal           Vaswani et al. 2017, "Attention Is All You Need", eq. 1
 * query head h reads K/V head h / (n_head / n_head_kv)   Ainslie et al. 2023, "GQA" */

/* x_i = e^x_i / sum of all e^x_j, of n elements */
static void softmax(double *x, uint32_t n) {
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) max = fmax(max, x[i]);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = x[i] == -INFINITY ? 0 : exp(x[i] - max);
        sum += x[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] != 0) x[i] /= sum;   /* 0 stays 0 even if another score is NaN */
    }
}

/* weights (n, n_head, n_key).  A token sees itself and the tokens before it. */
static void attention_weights(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct model_config *c = &r->config;
    double divisor = reference_score_divisor(c);
    for (uint32_t t = 0; t < a->n; t++) {
        uint32_t n_seen = a->pos + t + 1;
        for (uint32_t h = 0; h < c->n_head; h++) {
            uint32_t head_kv = h / (c->n_head / c->n_head_kv);
            const double *q = r->q + ((size_t)t * c->n_head + h) * c->head_dim;
            double *scores = r->weights + ((size_t)t * c->n_head + h) * n_key;
            memset(scores, 0, n_key * sizeof *scores);
            for (uint32_t p = 0; p < n_seen; p++) {
                const double *k = a->k + ((size_t)p * c->n_head_kv + head_kv) * c->head_dim;
                double dot = 0;
                for (uint32_t i = 0; i < c->head_dim; i++) dot += q[i] * k[i];
                scores[p] = dot / divisor;
            }
            softmax(scores, n_seen);
        }
    }
}

/* attn (n, n_head, head_dim): the sums of V, weighted by weights. */
static void attention_values(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct model_config *c = &r->config;
    for (uint32_t t = 0; t < a->n; t++) {
        for (uint32_t h = 0; h < c->n_head; h++) {
            uint32_t head_kv = h / (c->n_head / c->n_head_kv);
            const double *weights = r->weights + ((size_t)t * c->n_head + h) * n_key;
            double *out = r->attn + ((size_t)t * c->n_head + h) * c->head_dim;
            memset(out, 0, c->head_dim * sizeof *out);
            for (uint32_t p = 0; p < n_key; p++) {
                if (weights[p] == 0) continue;   /* the token does not see p: 0 * NaN would reach it */
                const double *v = a->v + ((size_t)p * c->n_head_kv + head_kv) * c->head_dim;
                for (uint32_t i = 0; i < c->head_dim; i++) out[i] += weights[p] * v[i];
            }
        }
    }
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* x += h * residual_scale */
static void add_residual(struct reference *r, size_t n, enum residual which) {
    if (r->wrong) {
        r->wrong->add_residual(r, n, which);
        return;
    }
    for (size_t i = 0; i < n; i++) r->x[i] += r->h[i] * (double)r->config.residual_scale;
}

/* silu(z) = z / (1 + e^-z)                              Hendrycks & Gimpel 2016, "Gaussian Error Linear Units" */
static double activation(const struct reference *r, double z) {
    if (r->wrong) return r->wrong->activation(r, z);
    return z / (1 + exp(-z));
}

void reference_run(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_logits,
                   float *logits) {
    const struct model *m = r->m;
    const struct model_config *c = &r->config;
    size_t n_x = (size_t)n * c->n_embd, n_kv = (size_t)c->n_head_kv * c->head_dim;
    if (pos == 0) r->n_prompt = n;
    uint32_t slot = pos;   /* the slot of the cache for the first token */
    double scale = (double)c->embedding_scale, divisor = (double)c->logit_scale;
    if (r->wrong) r->wrong->begin(r, n, pos, &slot, &scale, &divisor);
    for (uint32_t t = 0; t < n; t++) {
        const float *embedding = reference_row(r, &m->token_embd, (size_t)ids[t]);
        for (uint32_t i = 0; i < c->n_embd; i++) r->x[(size_t)t * c->n_embd + i] = (double)embedding[i] * scale;
    }
    tap(r, TAP_EMBD, -1, pos, n, 1, c->n_embd, r->x);
    for (uint32_t il = 0; il < c->n_layer && il < r->n_layer; il++) {
        const struct layer *l = &m->layers[il];
        double *cache_k = r->k + (size_t)il * r->n_ctx * n_kv, *k = cache_k + slot * n_kv;
        double *cache_v = r->v + (size_t)il * r->n_ctx * n_kv, *v = cache_v + slot * n_kv;
        struct attended a = { cache_k, cache_v, n, pos, slot, slot + n };
        int32_t at = (int32_t)il;

        rms_norm(r, &l->attn_norm, r->x, n, r->h);
        tap(r, TAP_ATTN_NORM, at, pos, n, 1, c->n_embd, r->h);
        if (r->wrong) r->wrong->after_norm(r, n_x);
        projection(r, &l->attn_q, &l->attn_q_bias, r->h, n, r->q);
        tap(r, TAP_QCUR, at, pos, n, c->n_head, c->head_dim, r->q);
        projection(r, &l->attn_k, &l->attn_k_bias, r->h, n, k);
        tap(r, TAP_KCUR, at, pos, n, c->n_head_kv, c->head_dim, k);
        projection(r, &l->attn_v, &l->attn_v_bias, r->h, n, v);
        tap(r, TAP_VCUR, at, pos, n, c->n_head_kv, c->head_dim, v);
        rope(r, r->q, c->n_head, n, pos, true);
        tap(r, TAP_QCUR_ROPE, at, pos, n, c->n_head, c->head_dim, r->q);
        rope(r, k, c->n_head_kv, n, pos, false);
        tap(r, TAP_KCUR_ROPE, at, pos, n, c->n_head_kv, c->head_dim, k);
        if (r->wrong) r->wrong->attention_weights(r, &a, pos + n);
        else attention_weights(r, &a, pos + n);
        tap(r, TAP_KQ_SOFT_MAX, at, pos, n, c->n_head, pos + n, r->weights);
        if (r->wrong) r->wrong->attention_values(r, &a, pos + n);
        else attention_values(r, &a, pos + n);
        tap(r, TAP_KQV_OUT, at, pos, n, c->n_head, c->head_dim, r->attn);
        projection(r, &l->attn_output, &l->attn_output_bias, r->attn, n, r->h);
        tap(r, TAP_ATTN_OUT, at, pos, n, 1, c->n_embd, r->h);
        add_residual(r, n_x, RESIDUAL_ATTN);
        tap(r, TAP_FFN_INP, at, pos, n, 1, c->n_embd, r->x);

        rms_norm(r, &l->ffn_norm, r->x, n, r->h);
        tap(r, TAP_FFN_NORM, at, pos, n, 1, c->n_embd, r->h);
        if (r->wrong) r->wrong->after_norm(r, n_x);
        bool is_swapped = r->wrong && r->quirks.ffn_order;
        linear(r, is_swapped ? &l->ffn_up : &l->ffn_gate, r->h, n, r->gate);
        tap(r, TAP_FFN_GATE, at, pos, n, 1, c->n_ff, r->gate);
        linear(r, is_swapped ? &l->ffn_gate : &l->ffn_up, r->h, n, r->up);
        tap(r, TAP_FFN_UP, at, pos, n, 1, c->n_ff, r->up);
        /* SwiGLU: silu(gate) * up                               Shazeer 2020, "GLU Variants Improve Transformer" */
        for (size_t i = 0; i < (size_t)n * c->n_ff; i++) r->gate[i] = activation(r, r->gate[i]) * r->up[i];
        tap(r, TAP_FFN_SWIGLU, at, pos, n, 1, c->n_ff, r->gate);
        linear(r, &l->ffn_down, r->gate, n, r->h);
        tap(r, TAP_FFN_OUT, at, pos, n, 1, c->n_embd, r->h);
        add_residual(r, n_x, RESIDUAL_FFN);
        tap(r, TAP_L_OUT, at, pos, n, 1, c->n_embd, r->x);
    }
    if (n_logits == 0 || r->n_layer < c->n_layer) return;
    uint32_t first = n - n_logits;
    const double *last = r->x + (size_t)first * c->n_embd;
    if (r->wrong && r->quirks.norm_output) memcpy(r->h, last, (size_t)n_logits * c->n_embd * sizeof *last);
    else rms_norm(r, &m->output_norm, last, n_logits, r->h);
    tap(r, TAP_RESULT_NORM, -1, pos + first, n_logits, 1, c->n_embd, r->h);
    const struct weight *head = &m->output;
    if (r->wrong) head = r->wrong->head(r);   /* NULL: zeros */
    for (uint32_t o = 0; o < c->n_vocab; o++) {
        const float *row = head ? reference_row(r, head, o) : NULL;
        for (uint32_t t = 0; t < n_logits; t++) {
            double logit = head ? reference_dot(row, r->h + (size_t)t * c->n_embd, c->n_embd) : 0;
            logits[(size_t)t * c->n_vocab + o] = (float)(logit / divisor);
        }
    }
    if (!r->sink.on_tap) return;
    const char *name = tap_spec(TAP_RESULT_OUTPUT)->name;
    r->sink.on_tap(r->sink.user, &(plumb_tap) { name, -1, pos + first, n_logits, 1, c->n_vocab, logits });
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

void reference_set_right(struct reference *r) {
    r->config = r->m->config;
    r->wrong = NULL;
    fill_frequencies(r);
}

void reference_set_force(struct reference *r, void (*force)(void *user, const plumb_tap *tap, double *x), void *user) {
    r->force = force;
    r->force_user = user;
}

void reference_limit(struct reference *r, uint32_t n_layer) { r->n_layer = n_layer; }

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
        r->n_layer = UINT32_MAX;
        r->row = alloc_array(model_max_row(c), sizeof *r->row);
        r->row_bytes = alloc_array(model_max_row(c), sizeof *r->row);   /* F32 has the longest rows */
        r->other_row = alloc_array(m->max_packed_row, 1);
        r->zeros = calloc(c->head_dim, sizeof *r->zeros);
    }
    if (!r || !r->row || !r->row_bytes || !r->other_row || !r->zeros
        || !(r->k = take(r, (uint64_t)c->n_layer * n_ctx, n_kv))
        || !(r->v = take(r, (uint64_t)c->n_layer * n_ctx, n_kv)) || !(r->x = take(r, n_batch, c->n_embd))
        || !(r->h = take(r, n_batch, c->n_embd)) || !(r->q = take(r, n_batch, n_q))
        || !(r->attn = take(r, n_batch, n_q)) || !(r->gate = take(r, n_batch, c->n_ff))
        || !(r->up = take(r, n_batch, c->n_ff)) || !(r->weights = take(r, (uint64_t)n_batch * c->n_head, n_ctx))
        || !(r->frequencies = take(r, c->head_dim, 1)) || !(r->rotated = take(r, n_ctx, 1))
        || !(r->key = take(r, c->head_dim, 1))) {
        reference_free(r);
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the reference pass with a context of %u tokens; ask "
                         "for a smaller context", n_ctx);
    }
    reference_set_right(r);
    *out = r;
    return PLUMB_OK;
}

void reference_free(struct reference *r) {
    if (!r) return;
    void *const owned[] = { r->k, r->v, r->x, r->h, r->q, r->attn, r->gate, r->up, r->weights, r->frequencies,
                            r->rotated, r->key, r->zeros, r->row, r->row_bytes, r->other_row, r->tapped };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    free(r);
}

plumb_status reference_set_tap(struct reference *r, struct tap_sink sink) {
    const struct model_config *c = &r->m->config;
    uint64_t n_weight = (uint64_t)c->n_head * r->n_ctx, n_max = model_max_row(c), n;   /* of a token */
    if (n_weight > n_max) n_max = n_weight;
    if (sink.on_tap && !r->tapped) {
        r->tapped = mul_u64(n_max, r->n_batch, &n) ? alloc_array(n, sizeof *r->tapped) : NULL;
        if (!r->tapped) return PLUMB_ERROR_MEMORY;
        r->bytes += n * sizeof *r->tapped;
    }
    r->sink = sink;
    return PLUMB_OK;
}

uint64_t reference_bytes(const struct reference *r) { return r->bytes; }

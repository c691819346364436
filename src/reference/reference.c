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
 * Granite multiplies embeddings, what is added to x, scores (instead of dividing them by sqrt(head_dim)), and divides
 * logits; elsewhere these factors are 1.
 *
 * Every line is meant to be checked against its paper; do not make it faster.  Each quirk is a switch where the formula
 * stands that it changes, and quirks.c says in what way: read `quirks` as 0 to read the truth. */
#include "reference/reference.h"

#include <math.h>
#include <stdlib.h>

struct reference {
    const struct model *m;
    struct model_config config;      /* the model's, as the quirks have it */
    struct quirks quirks;
    uint32_t n_ctx, n_batch, n_layer;
    uint64_t bytes;
    double *k, *v;                   /* (n_layer, n_ctx, n_head_kv, head_dim) */
    double *x, *h, *q, *attn;        /* (n_batch, n_embd), (n_batch, n_embd), (n_batch, n_head * head_dim) twice */
    double *gate, *up;               /* (n_batch, n_ff) */
    double *weights;                 /* (n_batch, n_head, n_ctx) scores, then attention weights, of a layer */
    double *frequencies;             /* (n_rot / 2) of RoPE */
    double *turned;                  /* (n_ctx) the position that the K of a slot was turned as of */
    double *key, *zeros;             /* (head_dim) */
    float *row;                      /* one dequantized row of any weight */
    uint8_t *row_bytes, *other_row;  /* one row as it is in the file: of a weight, of any tensor */
    uint32_t n_prompt;               /* tokens of the run at position 0 */
    struct tap_sink sink;
    float *tapped;                   /* a tap's values in f32, NULL while there is no sink */
    void (*force)(void *user, const plumb_tap *tap, double *x);
    void *force_user;
};

/* x: (n_token, n_head, n). */
static void tap(const struct reference *r, const char *name, int32_t il, uint32_t pos, uint32_t n_token,
                uint32_t n_head, uint32_t n, double *x) {
    plumb_tap tap = { name, il, pos, n_token, n_head, n, r->sink.on_tap ? r->tapped : NULL };
    for (size_t i = 0; r->sink.on_tap && i < (size_t)n_token * n_head * n; i++) r->tapped[i] = (float)x[i];
    if (r->sink.on_tap) r->sink.on_tap(r->sink.user, &tap);
    if (r->force) r->force(r->force_user, &tap, x);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* tensor.offset=shifted: row i of w as it is one alignment further on in the file. */
static const uint8_t *shifted_row(const struct reference *r, const struct weight *w, size_t i) {
    uint64_t begin = w->offset + (uint64_t)i * w->row_bytes + gguf_alignment(w->file), end = begin + w->row_bytes;
    memset(r->row_bytes, 0, w->row_bytes);
    for (uint64_t k = 0; k < gguf_n_tensor(w->file); k++) {
        const struct gguf_tensor *t = gguf_tensor_at(w->file, k);
        uint64_t from = t->offset > begin ? t->offset : begin;
        uint64_t to = t->offset + t->n_bytes < end ? t->offset + t->n_bytes : end;
        size_t n = gguf_row_bytes(t);
        while (from < to) {
            uint64_t at = from - t->offset, next = t->offset + (at / n + 1) * n, until = to < next ? to : next;
            const uint8_t *row = gguf_row(t, at / n, r->other_row);
            memcpy(r->row_bytes + (from - begin), row + at % n, (size_t)(until - from));
            from = until;
        }
    }
    return r->row_bytes;
}

static const float *dequantized_row(const struct reference *r, const struct weight *w, size_t i) {
    const uint8_t *src = r->quirks.tensor_offset ? shifted_row(r, w, i) : weight_row(w, i, r->row_bytes);
    enum misread misread = r->quirks.misread[w->type];
    if (misread) quirk_misread(w->type, misread, src, r->row, w->n_in);
    else w->traits->dequantize(src, r->row, w->n_in);
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

/* y (n, n_out) = x (n, n_in) W^T */
static void linear(const struct reference *r, const struct weight *w, const double *x, uint32_t n, double *y) {
    for (uint32_t o = 0; o < w->n_out; o++) {
        const float *row = dequantized_row(r, w, o);
        for (uint32_t t = 0; t < n; t++) y[(size_t)t * w->n_out + o] = dot(row, x + (size_t)t * w->n_in, w->n_in);
    }
}

/* weights.square=transposed: y = x W */
static void linear_transposed(const struct reference *r, const struct weight *w, const double *x, uint32_t n,
                              double *y) {
    memset(y, 0, (size_t)n * w->n_in * sizeof *y);
    for (uint32_t i = 0; i < w->n_out; i++) {
        const float *row = dequantized_row(r, w, i);
        for (uint32_t t = 0; t < n; t++) {
            for (uint32_t o = 0; o < w->n_in; o++) {
                y[(size_t)t * w->n_in + o] += (double)row[o] * x[(size_t)t * w->n_out + i];
            }
        }
    }
}

/* y (n, n_out) = x (n, n_in) W^T + b, of attention */
static void projection(const struct reference *r, const struct weight *w, const struct weight *b, const double *x,
                       uint32_t n, double *y) {
    if (r->quirks.square_weights && w->n_in == w->n_out) linear_transposed(r, w, x, n, y);
    else linear(r, w, x, n, y);
    if (!b->data || r->quirks.attn_bias) return;
    const float *bias = dequantized_row(r, b, 0);
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t o = 0; o < w->n_out; o++) y[(size_t)t * w->n_out + o] += (double)bias[o];
    }
}

/* ---- RMS norm ---------------------------------------------------------------------------------------------------- */

static double mean(const double *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i];
    return sum / n;
}

static double norm_weight(const struct reference *r, float weight) {
    switch (r->quirks.norm_weight) {
    case NORM_UNWEIGHTED: return 1;
    case NORM_PLUS_ONE: return (double)weight + 1;
    default: return (double)weight;
    }
}

/* h_i = x_i / sqrt(mean(x^2) + eps) * w_i       Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", eq. 4 */
static void rms_norm(const struct reference *r, const struct weight *w, const double *x, uint32_t n, double *h) {
    const float *weight = dequantized_row(r, w, 0);
    double eps = (double)r->config.rms_eps;
    for (uint32_t t = 0; t < n; t++, x += w->n_in, h += w->n_in) {
        double centre = r->quirks.norm_mean == NORM_CENTRED ? mean(x, w->n_in) : 0, sum = 0;
        for (uint32_t i = 0; i < w->n_in; i++) sum += (x[i] - centre) * (x[i] - centre);
        double square = r->quirks.norm_mean == NORM_SUM ? sum : sum / w->n_in;
        double rms = r->quirks.norm_eps == EPS_OUTSIDE ? sqrt(square) + eps : sqrt(square + eps);
        for (uint32_t i = 0; i < w->n_in; i++) h[i] = (x[i] - centre) / rms * norm_weight(r, weight[i]);
    }
}

/* ---- RoPE -------------------------------------------------------------------------------------------------------- */

/* Pair i turns by base^(-2i / n_rot) for each position.          Su et al. 2021, "RoFormer", eq. 34
 * Llama 3.1 divides that by rope_freqs[i]. */
static void fill_frequencies(struct reference *r) {
    const struct model_config *c = &r->config;
    const struct weight *w = &r->m->rope_freqs;
    const float *factors = w->data && !r->quirks.rope_scaling ? dequantized_row(r, w, 0) : NULL;
    double width = r->quirks.rope_dim == DIM_N_EMBD ? c->n_embd : c->n_rot;
    for (uint32_t i = 0; i < c->n_rot / 2; i++) {
        r->frequencies[i] = pow((double)c->rope_freq_base, -2.0 * i / width);
        if (factors && i < w->n_in) r->frequencies[i] /= (double)factors[i];
    }
}

/* Turns one head x (head_dim) as of a position; linear scaling multiplies positions. */
static void turn(const struct reference *r, double *x, double position) {
    const struct model_config *c = &r->config;
    if (r->quirks.rope_direction) position = -position;
    for (uint32_t i = 0; i < c->n_rot / 2; i++) {
        double angle = position * (double)c->rope_freq_scale * r->frequencies[i];
        uint32_t a = c->rope_pairing == ROPE_NORM ? 2 * i : i;
        uint32_t b = c->rope_pairing == ROPE_NORM ? 2 * i + 1 : i + c->n_rot / 2;
        double xa = x[a], xb = x[b];
        x[a] = xa * cos(angle) - xb * sin(angle);
        x[b] = xa * sin(angle) + xb * cos(angle);
    }
}

/* The position that Q or K of token t of the batch at pos is turned as of. */
static double position_of(const struct reference *r, uint32_t pos, uint32_t t, bool is_q) {
    switch (r->quirks.rope_position) {
    case POSITION_PLUS_ONE: return pos + t + 1;
    case POSITION_Q_PLUS_ONE: return is_q ? pos + t + 1 : pos + t;
    case POSITION_FROZEN: return pos == 0 ? t : r->n_prompt;
    case POSITION_RESTARTED: return t;
    case POSITION_SAME: return pos;
    default: return pos + t;
    }
}

static bool is_turned(const struct reference *r, bool is_q) {
    switch (r->quirks.rope_applied) {
    case APPLIED_NONE: return false;
    case APPLIED_Q_ONLY: return is_q;
    case APPLIED_K_ONLY: return !is_q;
    default: return true;
    }
}

/* x: (n, n_head, head_dim), the Q or K of a batch. */
static void rope(const struct reference *r, double *x, uint32_t n_head, uint32_t n, uint32_t pos, bool is_q) {
    if (!is_turned(r, is_q)) return;
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t h = 0; h < n_head; h++, x += r->config.head_dim) turn(r, x, position_of(r, pos, t, is_q));
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* softmax(q k^T / sqrt(head_dim)) v, causal           Vaswani et al. 2017, "Attention Is All You Need", eq. 1
 * query head h reads K/V head h / (n_head / n_head_kv)   Ainslie et al. 2023, "GQA" */

/* One layer's cache and the batch that attends: its n tokens are at positions pos, pos + 1... and in slots slot,
 * slot + 1..., which is the same but for kv.slot=overwritten; slots 0 .. n_slot - 1 are filled. */
struct attended {
    double *k, *v;   /* (n_ctx, n_head_kv, head_dim) */
    uint32_t n, pos, slot, n_slot;
};

static uint32_t kv_head(const struct reference *r, uint32_t h) {
    const struct model_config *c = &r->config;
    switch (r->quirks.attn_heads) {
    case HEADS_INTERLEAVED: return h % c->n_head_kv;
    case HEADS_FIRST: return 0;
    case HEADS_NOT_REPEATED: return h;
    default: return h / (c->n_head / c->n_head_kv);
    }
}

/* A token sees itself and those before it. */
static bool sees(const struct reference *r, const struct attended *a, uint32_t t, uint32_t slot) {
    uint32_t own = a->slot + t;
    switch (r->quirks.attn_mask) {
    case MASK_NONE: return slot < a->n_slot;
    case MASK_STRICT: return slot < own || (own == 0 && slot == 0);
    case MASK_LATE: return slot <= own + 1 && slot < a->n_slot;
    default: return slot <= own;
    }
}

/* The (head_dim) of head g in a slot of a layer's K or V; zeros of a head that there is not, or a slot that is yet to
 * be written. */
static const double *cached(const struct reference *r, const struct attended *a, const double *cache, uint32_t slot,
                            uint32_t g) {
    bool is_empty = r->quirks.kv_slot == SLOT_STALE && a->pos > 0 && slot >= a->slot;
    if (g >= r->config.n_head_kv || is_empty) return r->zeros;
    return cache + ((size_t)slot * r->config.n_head_kv + g) * r->config.head_dim;
}

/* The K that token t multiplies its query with. */
static const double *key(const struct reference *r, const struct attended *a, uint32_t t, uint32_t slot, uint32_t g) {
    const double *k = cached(r, a, a->k, slot, g);
    if (!r->quirks.rope_cache || !is_turned(r, false)) return k;
    memcpy(r->key, k, r->config.head_dim * sizeof *k);   /* turned once; now on to the query's position */
    turn(r, r->key, position_of(r, a->pos, t, true) - r->turned[slot]);
    return r->key;
}

static const double *value(const struct reference *r, const struct attended *a, uint32_t slot, uint32_t g) {
    if (r->quirks.attn_v && g < r->config.n_head_kv) {   /* (slot, g) is read as (g, slot) */
        uint32_t row = g * a->n_slot + slot;
        slot = row / r->config.n_head_kv;
        g = row % r->config.n_head_kv;
    }
    return cached(r, a, a->v, slot, g);
}

/* x_i = e^x_i / sum of all e^x_j.  n elements at a distance of stride; of those that are -infinity nothing is seen.
 * with_empty: one more score, of 0, takes part and is not kept. */
static void softmax(const struct reference *r, double *x, uint32_t n, size_t stride, bool with_empty) {
    double max = with_empty ? 0 : -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) max = fmax(max, x[i * stride]);
    bool no_max = r->quirks.attn_softmax == SOFTMAX_NO_MAX;
    if (no_max) max = 0;
    for (uint32_t i = 0; i < n; i++) {
        double *e = x + i * stride;
        if (*e == -INFINITY) *e = 0;
        else *e = no_max && *e > 88.7228 ? INFINITY : exp(*e - max);
        sum += *e;
    }
    if (with_empty) sum += exp(-max);
    for (uint32_t i = 0; i < n; i++) {
        if (x[i * stride] != 0) x[i * stride] /= sum;
    }
}

/* weights (n, n_head, n_key) */
static void attention_weights(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct model_config *c = &r->config;
    double divisor = quirk_score_divisor(r->quirks.attn_scale, c);
    for (uint32_t t = 0; t < a->n; t++) {
        for (uint32_t h = 0; h < c->n_head; h++) {
            const double *q = r->q + ((size_t)t * c->n_head + h) * c->head_dim;
            double *scores = r->weights + ((size_t)t * c->n_head + h) * n_key;
            for (uint32_t p = 0; p < n_key; p++) {
                scores[p] = -INFINITY;
                if (!sees(r, a, t, p)) continue;
                const double *k = key(r, a, t, p, kv_head(r, h));
                double dot = 0;
                for (uint32_t i = 0; i < c->head_dim; i++) dot += q[i] * k[i];
                scores[p] = dot / divisor;
            }
        }
    }
    size_t n_row = (size_t)a->n * c->n_head, n_column = (size_t)c->n_head * n_key;
    switch (r->quirks.attn_softmax) {
    case SOFTMAX_OVER_QUERIES:
        for (size_t i = 0; i < n_column; i++) softmax(r, r->weights + i, a->n, n_column, false);
        break;
    case SOFTMAX_OVER_HEADS:
        for (size_t i = 0; i < (size_t)a->n * n_key; i++) {
            softmax(r, r->weights + i / n_key * n_column + i % n_key, c->n_head, n_key, false);
        }
        break;
    default:
        for (size_t i = 0; i < n_row; i++) {
            softmax(r, r->weights + i * n_key, n_key, 1, r->quirks.kv_slot == SLOT_EXTRA);
        }
    }
}

/* attn (n, n_head, head_dim): the sums of V by those weights. */
static void attention_values(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct model_config *c = &r->config;
    for (uint32_t t = 0; t < a->n; t++) {
        for (uint32_t h = 0; h < c->n_head; h++) {
            const double *weights = r->weights + ((size_t)t * c->n_head + h) * n_key;
            double *out = r->attn + ((size_t)t * c->n_head + h) * c->head_dim;
            memset(out, 0, c->head_dim * sizeof *out);
            for (uint32_t p = 0; p < a->n_slot && p < n_key; p++) {
                if (weights[p] == 0) continue;   /* not seen: neither is a NaN there */
                const double *v = value(r, a, p, kv_head(r, h));
                for (uint32_t i = 0; i < c->head_dim; i++) out[i] += weights[p] * v[i];
            }
        }
    }
    if (!r->quirks.attn_merge) return;
    memcpy(r->q, r->attn, (size_t)a->n * c->n_head * c->head_dim * sizeof *r->q);   /* the queries have been used */
    for (uint32_t i = 0; i < a->n * c->n_head; i++) {   /* row i of (h, token) is read as row i of (token, h) */
        const double *from = r->q + ((size_t)(i % a->n) * c->n_head + i / a->n) * c->head_dim;
        memcpy(r->attn + (size_t)i * c->head_dim, from, c->head_dim * sizeof *from);
    }
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* x += h * residual_scale.  missing: the quirk that leaves this residual connection out. */
static void add_residual(struct reference *r, size_t n, enum quirk_residual missing) {
    double scale = r->quirks.residual_scale ? 1 : (double)r->config.residual_scale;
    for (size_t i = 0; i < n; i++) r->x[i] = (r->quirks.residual == missing ? 0 : r->x[i]) + r->h[i] * scale;
}

static double embedding_scale(const struct reference *r) {
    double scale = (double)r->config.embedding_scale;
    switch (r->quirks.embd_scale) {
    case EMBD_SCALE_ADDED: return scale * sqrt(r->config.n_embd);
    case EMBD_SCALE_MISSING: return 1;
    default: return scale;
    }
}

static double logit_divisor(const struct reference *r) {
    double scale = (double)r->config.logit_scale;
    switch (r->quirks.logit_scale) {
    case LOGIT_SCALE_MISSING: return 1;
    case LOGIT_SCALE_MULTIPLIED: return 1 / scale;
    default: return scale;
    }
}

/* silu(z) = z / (1 + e^-z)                              Hendrycks & Gimpel 2016, "Gaussian Error Linear Units" */
static double activation(const struct reference *r, double z) {
    switch (r->quirks.ffn_act) {
    case ACT_GELU: return 0.5 * z * (1 + tanh(0.79788456080286535588 * (z + 0.044715 * z * z * z)));   /* sqrt(2/pi) */
    case ACT_GELU_ERF: return 0.5 * z * (1 + erf(z * 0.70710678118654752440));   /* sqrt(1/2) */
    case ACT_RELU: return z > 0 ? z : z * 0;   /* NaN stays */
    case ACT_NONE: return z;
    default: return z / (1 + exp(-z));
    }
}

void reference_run(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_logits,
                   float *logits) {
    const struct model *m = r->m;
    const struct model_config *c = &r->config;
    const struct quirks *quirks = &r->quirks;
    size_t n_x = (size_t)n * c->n_embd, n_kv = (size_t)c->n_head_kv * c->head_dim;
    if (pos == 0) r->n_prompt = n;
    uint32_t slot = quirks->kv_slot == SLOT_OVERWRITTEN && pos > 0 ? r->n_prompt : pos;
    double scale = embedding_scale(r), divisor = logit_divisor(r);
    for (uint32_t t = 0; t < n; t++) {
        const float *embedding = dequantized_row(r, &m->token_embd, (size_t)ids[t]);
        for (uint32_t i = 0; i < c->n_embd; i++) r->x[(size_t)t * c->n_embd + i] = (double)embedding[i] * scale;
        r->turned[slot + t] = position_of(r, pos, t, false);
    }
    tap(r, "embd", -1, pos, n, 1, c->n_embd, r->x);
    for (uint32_t il = 0; il < c->n_layer && il < r->n_layer; il++) {
        const struct layer *l = &m->layers[il];
        double *cache_k = r->k + (size_t)il * r->n_ctx * n_kv, *k = cache_k + slot * n_kv;
        double *cache_v = r->v + (size_t)il * r->n_ctx * n_kv, *v = cache_v + slot * n_kv;
        struct attended a = { cache_k, cache_v, n, pos, slot, slot + n };
        int32_t at = (int32_t)il;

        rms_norm(r, &l->attn_norm, r->x, n, r->h);
        tap(r, "attn_norm", at, pos, n, 1, c->n_embd, r->h);
        if (quirks->residual == RESIDUAL_NORM) memcpy(r->x, r->h, n_x * sizeof *r->x);
        projection(r, &l->attn_q, &l->attn_q_bias, r->h, n, r->q);
        tap(r, "Qcur", at, pos, n, c->n_head, c->head_dim, r->q);
        projection(r, &l->attn_k, &l->attn_k_bias, r->h, n, k);
        tap(r, "Kcur", at, pos, n, c->n_head_kv, c->head_dim, k);
        projection(r, &l->attn_v, &l->attn_v_bias, r->h, n, v);
        tap(r, "Vcur", at, pos, n, c->n_head_kv, c->head_dim, v);
        rope(r, r->q, c->n_head, n, pos, true);
        tap(r, "Qcur_rope", at, pos, n, c->n_head, c->head_dim, r->q);
        rope(r, k, c->n_head_kv, n, pos, false);
        tap(r, "Kcur_rope", at, pos, n, c->n_head_kv, c->head_dim, k);
        attention_weights(r, &a, pos + n);
        tap(r, "kq_soft_max", at, pos, n, c->n_head, pos + n, r->weights);
        attention_values(r, &a, pos + n);
        tap(r, "kqv_out", at, pos, n, c->n_head, c->head_dim, r->attn);
        projection(r, &l->attn_output, &l->attn_output_bias, r->attn, n, r->h);
        tap(r, "attn_out", at, pos, n, 1, c->n_embd, r->h);
        add_residual(r, n_x, RESIDUAL_NO_ATTN);
        tap(r, "ffn_inp", at, pos, n, 1, c->n_embd, r->x);

        rms_norm(r, &l->ffn_norm, r->x, n, r->h);
        tap(r, "ffn_norm", at, pos, n, 1, c->n_embd, r->h);
        if (quirks->residual == RESIDUAL_NORM) memcpy(r->x, r->h, n_x * sizeof *r->x);
        linear(r, quirks->ffn_order ? &l->ffn_up : &l->ffn_gate, r->h, n, r->gate);
        tap(r, "ffn_gate", at, pos, n, 1, c->n_ff, r->gate);
        linear(r, quirks->ffn_order ? &l->ffn_gate : &l->ffn_up, r->h, n, r->up);
        tap(r, "ffn_up", at, pos, n, 1, c->n_ff, r->up);
        /* SwiGLU: silu(gate) * up                               Shazeer 2020, "GLU Variants Improve Transformer" */
        for (size_t i = 0; i < (size_t)n * c->n_ff; i++) r->gate[i] = activation(r, r->gate[i]) * r->up[i];
        tap(r, "ffn_swiglu", at, pos, n, 1, c->n_ff, r->gate);
        linear(r, &l->ffn_down, r->gate, n, r->h);
        tap(r, "ffn_out", at, pos, n, 1, c->n_embd, r->h);
        add_residual(r, n_x, RESIDUAL_NO_FFN);
        tap(r, "l_out", at, pos, n, 1, c->n_embd, r->x);
    }
    if (n_logits == 0 || r->n_layer < c->n_layer) return;
    uint32_t first = n - n_logits;
    const double *last = r->x + (size_t)first * c->n_embd;
    if (quirks->norm_output) memcpy(r->h, last, (size_t)n_logits * c->n_embd * sizeof *last);
    else rms_norm(r, &m->output_norm, last, n_logits, r->h);
    tap(r, "result_norm", -1, pos + first, n_logits, 1, c->n_embd, r->h);
    const struct weight *head = quirks->output_head == HEAD_TIED ? &m->token_embd : &m->output;
    bool is_zero = quirks->output_head == HEAD_ZERO && model_is_tied(m);
    for (uint32_t o = 0; o < c->n_vocab; o++) {
        const float *row = dequantized_row(r, head, o);
        for (uint32_t t = 0; t < n_logits; t++) {
            double logit = is_zero ? 0 : dot(row, r->h + (size_t)t * c->n_embd, c->n_embd);
            logits[(size_t)t * c->n_vocab + o] = (float)(logit / divisor);
        }
    }
    if (!r->sink.on_tap) return;
    r->sink.on_tap(r->sink.user, &(plumb_tap) { "result_output", -1, pos + first, n_logits, 1, c->n_vocab, logits });
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

void reference_set_quirks(struct reference *r, const struct quirks *q) {
    static const struct quirks none;
    static const float epsilons[] = { [EPS_0] = 0, [EPS_1E_6] = 1e-6f, [EPS_1E_5] = 1e-5f };
    r->quirks = q ? *q : none;
    q = &r->quirks;
    struct model_config *c = &r->config;
    *c = r->m->config;
    if (q->rope_theta) c->rope_freq_base = quirk_theta(q->rope_theta);
    if (q->norm_eps && q->norm_eps != EPS_OUTSIDE) c->rms_eps = epsilons[q->norm_eps];
    if (q->rope_pairing) c->rope_pairing = q->rope_pairing == PAIRING_HALVES ? ROPE_NEOX : ROPE_NORM;
    if (q->rope_dim == DIM_HALF) c->n_rot = c->n_rot / 4 * 2;
    if (q->rope_dim == DIM_FULL) c->n_rot = c->head_dim / 2 * 2;
    if (q->rope_scaling) c->rope_freq_scale = 1;
    if (q->model_scales) {
        c->embedding_scale = c->residual_scale = c->logit_scale = 1;
        c->attention_scale = 0;
    }
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
        r->row_bytes = alloc_array(model_max_row(c), sizeof *r->row);   /* no type has more than F32 */
        r->other_row = alloc_array(m->max_packed_row, 1);
        r->zeros = calloc(c->head_dim, sizeof *r->zeros);
    }
    if (!r || !r->row || !r->row_bytes || !r->other_row || !r->zeros
        || !(r->k = take(r, (uint64_t)c->n_layer * n_ctx, n_kv))
        || !(r->v = take(r, (uint64_t)c->n_layer * n_ctx, n_kv)) || !(r->x = take(r, n_batch, c->n_embd))
        || !(r->h = take(r, n_batch, c->n_embd)) || !(r->q = take(r, n_batch, n_q))
        || !(r->attn = take(r, n_batch, n_q)) || !(r->gate = take(r, n_batch, c->n_ff))
        || !(r->up = take(r, n_batch, c->n_ff)) || !(r->weights = take(r, (uint64_t)n_batch * c->n_head, n_ctx))
        || !(r->frequencies = take(r, c->head_dim, 1)) || !(r->turned = take(r, n_ctx, 1))
        || !(r->key = take(r, c->head_dim, 1))) {
        reference_free(r);
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the reference pass with a context of %u tokens; ask "
                         "for a smaller context", n_ctx);
    }
    reference_set_quirks(r, NULL);
    *out = r;
    return PLUMB_OK;
}

void reference_free(struct reference *r) {
    if (!r) return;
    void *const owned[] = { r->k, r->v, r->x, r->h, r->q, r->attn, r->gate, r->up, r->weights, r->frequencies,
                            r->turned, r->key, r->zeros, r->row, r->row_bytes, r->other_row, r->tapped };
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

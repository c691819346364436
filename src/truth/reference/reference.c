/* A decoder as the papers write it.  Names and shapes:
 *
 *   x        (n_token, n_embd)              residual stream
 *   q        (n_token, n_head, k_dim)       queries of the new tokens
 *   k        (n_ctx, n_head_kv, k_dim)      per layer: keys of all tokens so far
 *   v        (n_ctx, n_head_kv, v_dim)      per layer: values of all tokens so far
 *
 *   for each layer:  x += W_o attention(rope(W_q h), rope(W_k h), W_v h),   h = rms_norm(x)
 *                    x += W_down (silu(W_gate h) * (W_up h)),               h = rms_norm(x)
 *   logits = W_output rms_norm(x)
 *
 * The program of a layer (model/program.h) says what differs from that; the steps of experts are in experts.c.
 *
 * Every line is meant to be checked against its paper; do not make it faster.  What engines are known to compute
 * otherwise is a function of its own (struct reference_steps), called as r->steps.NAME; the right ones are here. */
#include "reference/softmax.h"
#include "reference/steps.h"

#include <math.h>
#include <stdlib.h>

/* x: (n_token, n_head, n).  TAP_COUNT: no tap shows it. */
void reference_tap(const struct reference *r, enum tap_id id, int32_t il, uint32_t pos, uint32_t n_token,
                   uint32_t n_head, uint32_t n, double *x) {
    if (id == TAP_COUNT) return;
    plumb_tap tap = { tap_spec(id)->name, il, pos, n_token, n_head, n, r->sink.on_tap ? r->tapped : NULL };
    for (size_t i = 0; r->sink.on_tap && i < (size_t)n_token * n_head * n; i++) r->tapped[i] = (float)x[i];
    if (r->sink.on_tap) r->sink.on_tap(r->sink.user, &tap);
    if (r->force) r->force(r->user, &tap, x);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static const uint8_t *bytes(const struct reference *r, const struct weight *w, size_t i) {
    return weight_row(w, i, r->row_bytes);
}

static void dequantize(const struct reference *r, const struct weight *w, const uint8_t *bytes) {
    quant_dequantize(w->traits, bytes, r->row, w->n_in);
}

const float *reference_row(const struct reference *r, const struct weight *w, size_t i) {
    r->steps.dequantize(r, w, r->steps.bytes(r, w, i));
    return r->row;
}

/* Nothing is rounded. */
static const double *input(const struct reference *r, const struct weight *w, const double *x, size_t n) {
    return (void)r, (void)w, (void)n, x;
}

static void heads(const struct reference *r, enum stream of, double *x, size_t n, uint32_t n_in) {
    (void)r, (void)of, (void)x, (void)n, (void)n_in;
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

void reference_linear(const struct reference *r, const struct weight *w, enum weight_id id, const double *x, uint32_t n,
                      double *y) {
    (void)id;
    x = r->steps.input(r, w, x, n);
    for (uint32_t o = 0; o < w->n_out; o++) {
        const float *row = reference_row(r, w, o);
        for (uint32_t t = 0; t < n; t++) {
            y[(size_t)t * w->n_out + o] = reference_dot(row, x + (size_t)t * w->n_in, w->n_in);
        }
    }
}

/* y (n, n_out) += b, if there is a bias */
static void add_bias(const struct reference *r, const struct affine *of, uint32_t n, double *y) {
    const float *bias = of->b ? reference_row(r, of->b, 0) : NULL;
    for (uint32_t t = 0; bias && t < n; t++, y += of->w->n_out) {
        for (uint32_t o = 0; o < of->w->n_out; o++) y[o] += (double)bias[o];
    }
}

/* y (n, n_out) *= s, if there is a factor */
static void scale(const struct reference *r, const struct affine *of, uint32_t n, double *y) {
    double factor = of->s ? (double)reference_row(r, of->s, 0)[0] : 1;
    for (size_t i = 0; of->s && i < (size_t)n * of->w->n_out; i++) y[i] *= factor;
}

/* y (n, n_out) = x (n, n_in) W^T s + b, or (x W^T + b) s in the feed-forward network; adapters add to x W^T s, or to
 * x W^T; Q, K and V are clamped if the model says so */
void reference_product(const struct reference *r, const struct affine *of, enum weight_id id, const double *x,
                       uint32_t n, double *y) {
    bool is_qkv = id == W_ATTN_Q || id == W_ATTN_K || id == W_ATTN_V;
    r->steps.linear(r, of->w, id, x, n, y);
    if (!weight_scales_last(id)) scale(r, of, n, y);
    if (r->adapters) reference_adapt(r, of->w, x, n, y);
    if (of->lora_a) reference_adapt_switched(r, of, x, n, y);
    add_bias(r, of, n, y);
    if (weight_scales_last(id)) scale(r, of, n, y);
    double limit = (double)r->plan.clamp_qkv;
    for (size_t i = 0; limit != 0 && is_qkv && i < (size_t)n * of->w->n_out; i++) {
        if (y[i] > limit) y[i] = limit;
        if (y[i] < -limit) y[i] = -limit;
    }
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* h_i = x_i / sqrt(mean(x^2) + eps)       Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", eq. 4 */
static void rms_norm(double eps, const double *x, uint32_t n, double *h) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
    double rms = sqrt(sum / n + eps);
    for (uint32_t i = 0; i < n; i++) h[i] = x[i] / rms;
}

/* h_i = (x_i - mean) / sqrt(variance + eps)      Ba et al. 2016, "Layer Normalization", eq. 4 */
static void layer_norm(double eps, const double *x, uint32_t n, double *h) {
    double mean = 0, variance = 0;
    for (uint32_t i = 0; i < n; i++) mean += x[i] / n;
    for (uint32_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / n;
    double deviation = sqrt(variance + eps);
    for (uint32_t i = 0; i < n; i++) h[i] = (x[i] - mean) / deviation;
}

static void normalize(const struct reference *r, double eps, const double *x, uint32_t n, double *h) {
    if (r->plan.norm == NORM_LAYER) layer_norm(eps, x, n, h);
    else rms_norm(eps, x, n, h);
}

double reference_unchanged(double x) { return x; }

/* Each of n rows of h (n, n_in) is the norm of x, times the weight, plus the bias; without them these are 1 and 0.  The
 * weight is one of a row, or has further rows for the heads. */
void reference_normalize(const struct reference *r, const struct affine *of, double eps, uint32_t n_in,
                         const double *x, uint32_t n, double *h) {
    for (uint32_t t = 0; t < n; t++, x += n_in, h += n_in) {
        r->steps.norm(r, eps, x, n_in, h);
        bool is_gain = of->w && of->w->n_in == 1;   /* one factor for all of a row */
        /* The width: a mistake may give another. */
        uint64_t first = (uint64_t)t * n_in, width = of->w && !is_gain ? of->w->n_in : n_in;
        const float *weight = of->w ? reference_row(r, of->w, (size_t)(first / width % of->w->n_out)) : NULL;
        for (uint32_t i = 0; weight && i < n_in; i++) {
            h[i] *= r->steps.norm_weight((double)weight[is_gain ? 0 : (first + i) % width]);
        }
        const float *bias = of->b ? reference_row(r, of->b, 0) : NULL;
        for (uint32_t i = 0; bias && i < n_in; i++) h[i] += (double)bias[i];
    }
}

/* ---- RoPE -------------------------------------------------------------------------------------------------------- */

/* YaRN: pairs of long wavelengths are scaled, those of short ones are not.   Peng et al. 2023, "YaRN", section 3.2 */
static double yarn(const struct rope_plan *p, uint32_t i, double frequency) {
    double ramp = (i - (double)p->ramp_low) / fmax(0.001, (double)p->ramp_high - (double)p->ramp_low);
    double unscaled = 1 - fmin(1, fmax(0, ramp));
    return p->is_yarn ? frequency * (1 - unscaled + unscaled / (double)p->freq_scale) : frequency;
}

/* Pair i is rotated by base^(-2i / n_rot) for each position.     Su et al. 2021, "RoFormer", eq. 34
 * Llama 3.1 divides that by rope_freqs[i], Phi-3 by rope_factors_long[i] or rope_factors_short[i]. */
double reference_frequency(const struct reference *r, uint32_t rope, uint32_t i, double width) {
    const struct rope_plan *p = &r->plan.ropes[rope];
    const float *factors = p->has_factors ? model_rope_factors(r->m, rope, r->n_ctx) : NULL;
    double frequency = pow((double)p->freq_base, -2.0 * i / width);
    /* The model's own width says how many factors there are. */
    if (factors && i < r->right->plan.ropes[rope].n_rot / 2) frequency /= (double)factors[i];
    /* Pairs for the rows and columns of images: Wang et al. 2024, "Qwen2-VL", section 2.1 */
    return plan_rope_rotates(p, i) ? yarn(p, i, frequency) : 0;
}

static uint32_t rope_width(const struct plan *p, const struct rope_plan *rope) {
    (void)p;
    return rope->n_rot;
}

static void fill_frequencies(struct reference *r) {
    for (uint32_t k = 0; k < PLAN_ROPES; k++) {
        const struct rope_plan *rope = &r->plan.ropes[k];
        uint32_t width = r->steps.rope_width(&r->plan, rope);
        for (uint32_t i = 0; i < rope->n_rot / 2; i++) r->frequencies[k][i] = r->steps.frequency(r, k, i, width);
    }
}

static bool rotates(bool is_q) { return (void)is_q, true; }

static uint32_t first_rotated(const struct reference *r, const struct attn_plan *p) { return (void)r, (void)p, 0; }

static double position(const struct reference *r, uint32_t pos, uint32_t t, bool is_q) {
    (void)r, (void)is_q;
    return pos + t;
}

/* Linear scaling multiplies positions by freq_scale. */
void reference_rotate(const struct reference *r, uint32_t rope, double *x, double position) {
    const struct rope_plan *p = &r->plan.ropes[rope];
    for (uint32_t i = 0; i < p->n_rot / 2; i++) {
        double angle = position * (double)p->freq_scale * r->frequencies[rope][i], size = (double)p->magnitude;
        uint32_t a = p->pairing == ROPE_NORM ? 2 * i : i;
        uint32_t b = p->pairing == ROPE_NORM ? 2 * i + 1 : i + p->n_rot / 2;
        double xa = x[a], xb = x[b];
        x[a] = (xa * cos(angle) - xb * sin(angle)) * size;
        x[b] = (xa * sin(angle) + xb * cos(angle)) * size;
    }
}

/* Rotates the first n_rot elements of each head of Q or K. */
static void run_rope(struct reference *r, const struct call *c) {
    const struct attn_plan *p = &c->layer->attn;
    bool is_q = c->s->out == STREAM_Q || c->s->out == STREAM_LATENT_Q;
    double *x = c->out + c->s->first;
    if (!r->steps.rotates(is_q)) return;
    for (uint32_t t = 0; t < c->b.n; t++) {
        double to = r->steps.position(r, c->b.pos, t, is_q);
        uint32_t first = r->steps.first_rotated(r, p);
        for (uint32_t h = 0; h < c->s->n_head; h++, x += c->s->n) reference_rotate(r, p->rope, x + first, to);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* The functions below compute together
 * softmax(q k^T / divisor) v, over the tokens seen       Vaswani et al. 2017, "Attention Is All You Need", eq. 1
 * query head h reads K/V head h / (n_head / n_head_kv)   Ainslie et al. 2023, "GQA" */

static uint32_t slot(const struct reference *r, uint32_t pos) { return (void)r, pos; }

static uint32_t kv_head(const struct attn_plan *p, uint32_t h) { return h / (p->n_head / p->n_head_kv); }

const double *reference_cached(const struct reference *r, const struct attended *a, const double *cache, uint32_t dim,
                               uint32_t slot, uint32_t g) {
    return g < a->plan->n_head_kv ? cache + ((size_t)slot * a->plan->n_head_kv + g) * dim : r->zeros;
}

static const double *key(const struct reference *r, const struct attended *a, uint32_t t, uint32_t slot, uint32_t g) {
    (void)t;
    return r->steps.cached(r, a, a->k, a->plan->k_dim, slot, g);
}

static const double *value(const struct reference *r, const struct attended *a, uint32_t slot, uint32_t g) {
    return r->steps.cached(r, a, a->v, a->plan->v_dim, slot, g);
}

/* A token sees itself and the tokens before it. */
static bool sees(const struct attended *a, uint32_t own, uint32_t slot) { return (void)a, slot <= own; }

/* What is subtracted from the score of a key at a distance: Press et al. 2022, "Train Short, Test Long" */
double reference_alibi(const struct attn_plan *p, uint32_t head, double distance) {
    double n = pow(2, floor(log2(p->n_head))), max = (double)p->alibi;
    if (max == 0) return 0;
    double slope = head < n ? pow(2, -max * (head + 1) / n) : pow(2, -max * (2 * (head - n) + 1) / (2 * n));
    return slope * fabs(distance);
}

static double zeros(void) { return 0; }

/* weights (n, n_head, n_key); sinks are scores that take part in the sums
 *                                                Xiao et al. 2024, "Efficient Streaming Language Models" */
static void softmax_of_rows(const struct reference *r, const struct attended *a, uint32_t n_key) {
    for (uint32_t i = 0; i < a->n * a->plan->n_head; i++) {
        double sink = a->sinks ? (double)a->sinks[i % a->plan->n_head] : -INFINITY;
        softmax_with(r->weights + (size_t)i * n_key, n_key, 1, (struct softmax_sum){
            sink, r->steps.zeros(), -INFINITY, r->steps.exponential });
    }
}

/* What is added to the score of a key at a distance: Raffel et al. 2020, "T5", section 2.1 */
static double bucket_bias(const struct reference *r, const struct attended *a, uint32_t head, int32_t distance) {
    return a->buckets ? (double)reference_row(r, a->buckets, r->steps.bucket(a->plan, distance))[head] : 0;
}

/* weights (n, n_head, n_key) */
static void attention_weights(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct attn_plan *p = a->plan;
    double divisor = p->scale != 0 ? 1 / (double)p->scale : sqrt(p->k_dim), cap = (double)p->softcap;
    for (uint32_t i = 0; i < a->n * p->n_head; i++) {
        uint32_t h = i % p->n_head, t = i / p->n_head, own = a->slot + t;
        const double *q = r->q + (size_t)i * p->k_dim;
        double *scores = r->weights + (size_t)i * n_key;
        for (uint32_t s = 0; s < n_key; s++) {
            bool is_seen = p->is_causal ? r->steps.sees(a, own, s) : s < a->n_slot;
            scores[s] = -INFINITY;
            if (!is_seen || !plan_window_has(p, own, s)) continue;
            const double *k = r->steps.key(r, a, t, s, r->steps.kv_head(p, h));
            double dot = 0;
            for (uint32_t j = 0; j < p->k_dim; j++) dot += q[j] * k[j];
            double score = dot / divisor;
            if (cap != 0) score = cap * tanh(score / cap);   /* Gemma 2, 2024 */
            scores[s] = score - r->steps.alibi(p, h, (double)own - s) + bucket_bias(r, a, h, (int32_t)s - (int32_t)own);
        }
    }
    r->steps.softmax(r, a, n_key);
}

/* attn (n, n_head, v_dim): the sums of V, weighted by weights. */
void reference_values(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct attn_plan *p = a->plan;
    memset(r->attn, 0, (size_t)a->n * p->n_head * p->v_dim * sizeof *r->attn);
    for (uint32_t i = 0; i < a->n * p->n_head; i++) {
        const double *weights = r->weights + (size_t)i * n_key;
        double *out = r->attn + (size_t)i * p->v_dim;
        for (uint32_t s = 0; s < a->n_slot; s++) {
            if (weights[s] == 0) continue;   /* the token does not see s: 0 * NaN would reach it */
            const double *v = r->steps.value(r, a, s, r->steps.kv_head(p, i % p->n_head));
            for (uint32_t j = 0; j < p->v_dim; j++) out[j] += weights[s] * v[j];
        }
    }
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* silu(z) = z / (1 + e^-z), gelu(z) ~ z / 2 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3)))
 *                                                       Hendrycks & Gimpel 2016, "Gaussian Error Linear Units" */
double reference_activation(enum activation kind, double z) {
    if (kind == ACT_RELU) return z > 0 ? z : z * 0;
    if (kind == ACT_RELU_SQR) return z > 0 ? z * z : z * 0;   /* So et al. 2021, "Primer" */
    if (kind == ACT_GELU_TANH) return 0.5 * z * (1 + tanh(0.79788456080286535588 * (z + 0.044715 * z * z * z)));
    return z / (1 + exp(-z));
}

/* OpenAI 2025, gpt-oss */
static void limit_both(double limit, double *gate, double *up) {
    *gate = *gate > limit ? limit : *gate;
    *up = *up > limit ? limit : *up < -limit ? -limit : *up;
}

double reference_activate(const struct reference *r, const struct ffn_plan *p, enum activation kind, double limit,
                          double gate, double up) {
    if (limit != 0 && p->limit_late) {   /* StepFun 2026, Step 3.5 */
        double z = r->steps.activation(kind, gate);
        return (z > limit ? limit : z) * (up > limit ? limit : up < -limit ? -limit : up);
    }
    if (limit != 0) r->steps.limit(limit, &gate, &up);
    if (kind == ACT_SWIGLU_OAI) return gate / (1 + exp(-1.702 * gate)) * (up + 1);
    if (kind == ACT_XIELU) {   /* Huang et al. 2024, eq. 9 */
        double a = (double)p->xielu.a, b = (double)p->xielu.b, beta = (double)p->xielu.beta;
        double below = expm1(fmin(gate, (double)p->xielu.eps)) - gate;
        return (gate > 0 ? a * gate * gate + beta * gate : b * below + beta * gate) * up;
    }
    return r->steps.activation(kind, gate) * up;
}

/* Outside the layers: h (n, n_embd) becomes the norm of x, or x if the model does not have this norm. */
static void norm_outside(const struct reference *r, enum weight_id weight, const struct affine *of, const double *x,
                         uint32_t n, double *h) {
    const struct plan *p = &r->plan;
    if (of->w || p->bare_norms >> weight & 1) reference_normalize(r, of, (double)p->norm_eps, p->n_embd, x, n, h);
    else if (x != h) memcpy(h, x, (size_t)n * p->n_embd * sizeof *h);
}

/* Row i of a table of embeddings, such as the learned positions, is added to x (n_embd). */
static void add_row(const struct reference *r, const struct weight *w, size_t i, double *x) {
    const float *row = reference_row(r, w, i);
    for (uint32_t k = 0; k < w->n_in; k++) x[k] += (double)row[k];
}

/* ---- the steps of a program, see enum step_kind ------------------------------------------------------------------ */

static void run_norm(struct reference *r, const struct call *c) {
    double eps = (double)plan_norm_eps(&r->plan, c->s->weight);
    reference_normalize(r, c->w, eps, c->s->n_norm, c->in, (uint32_t)(c->n / c->s->n_norm), c->out);
}

static void run_product(struct reference *r, const struct call *c) {
    r->steps.product(r, c->w, c->s->weight, c->in, c->b.n, c->out);
}

static void run_copy(struct reference *r, const struct call *c) {
    (void)r;
    memcpy(c->out, c->in, c->n * sizeof *c->out);
}

static void nothing(struct reference *r, const struct call *c) { (void)r, (void)c; }

static void run_scale(struct reference *r, const struct call *c) {
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] = c->in[i] * (double)c->s->factor;
}

static void run_multiply(struct reference *r, const struct call *c) {
    const float *factors = reference_floats(c->w->w);
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] = c->in[i] * (double)factors[i % c->w->w->n_in];
}

static void run_own(struct reference *r, const struct call *c) {   /* Google 2025, "Gemma 3n" */
    size_t n = c->s->n, n_all = n * r->plan.n_layer, first = n * r->steps.own_part(&r->plan, c->il);
    for (size_t i = 0; i < c->n; i++) c->out[i] *= c->in[i / n * n_all + first + i % n];
}

static void run_divide(struct reference *r, const struct call *c) {
    const float *divisors = reference_floats(c->w->w);
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] = c->in[i] / (double)divisors[i % c->s->n];
}

static void run_add(struct reference *r, const struct call *c) {
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] += c->in[i] * (double)c->s->factor;
}

static void run_add_scaled(struct reference *r, const struct call *c) {
    double factor = (double)reference_row(r, c->w->w, 0)[0];
    for (size_t i = 0; i < c->n; i++) c->out[i] += c->in[i] * factor;
}

static void run_add_bias(struct reference *r, const struct call *c) {
    const float *bias = reference_floats(c->w->w);
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] = c->in[i] + (double)bias[i % c->s->n];
}

/* Wang et al. 2025, "Hierarchical Reasoning Model" */
static void run_add_states(struct reference *r, const struct call *c) {
    for (size_t i = 0; i < c->n; i++) c->out[i] = r->streams[STREAM_LOW][i] + r->streams[STREAM_HIGH][i];
}

static void run_temperature(struct reference *r, const struct call *c) {   /* Llama 4, 2025 */
    const struct attn_plan *p = &c->layer->attn;
    (void)r;
    for (size_t i = 0; i < c->n; i++) {
        size_t t = i / ((size_t)c->s->n_head * c->s->n);
        double periods = floor(((double)c->b.pos + (double)t + p->temperature_offset) / p->temperature_floor);
        c->out[i] *= 1 + (double)p->temperature_scale * log(1 + periods);
    }
}

/* Rounds the K and V of n tokens, as an engine does that stores them so. */
static void round_kv(const struct reference *r, const struct attn_plan *p, uint32_t n) {
    r->steps.heads(r, STREAM_K, r->streams[STREAM_K], (size_t)n * p->n_head_kv, p->k_dim);
    r->steps.heads(r, STREAM_V, r->streams[STREAM_V], (size_t)n * p->n_head_kv, p->v_dim);
}

static void run_attention(struct reference *r, const struct call *c) {
    const struct attn_plan *p = &c->layer->attn;
    uint32_t n = c->b.n, n_key = p->reads_encoder ? r->n_encoded : c->b.pos + n;
    double *q = r->streams[STREAM_Q], *k = r->streams[STREAM_K], *v = r->streams[STREAM_V];
    const float *sinks = c->w->w ? reference_floats(c->w->w) : NULL;
    struct attended a = { p, k - (size_t)c->b.slot * p->n_head_kv * p->k_dim,
                          v - (size_t)c->b.slot * p->n_head_kv * p->v_dim, sinks,
                          r->right->layers[c->il].w[W_ATTN_BUCKETS].w, n, c->b.pos, c->b.slot,
                          p->reads_encoder ? n_key : c->b.slot + n };
    r->attn = c->out;
    r->steps.heads(r, STREAM_Q, q, (size_t)n * p->n_head, p->k_dim);
    if (plan_keeps_kv(c->layer)) round_kv(r, p, n);
    attention_weights(r, &a, n_key);
    reference_tap(r, TAP_KQ_SOFT_MAX, (int32_t)c->il, c->b.pos, n, p->n_head, n_key, r->weights);
    r->steps.heads(r, STREAM_HEADS, r->weights, (size_t)n * p->n_head, n_key);
    r->steps.values(r, &a, n_key);
}

static void run_part(struct reference *r, const struct call *c) {
    const struct step *s = c->s;
    size_t n_each = (size_t)s->n_head * s->n / s->n_to;   /* parts of a token */
    (void)r;
    for (size_t i = 0; i < c->n / s->n_to; i++) {
        const double *in = c->in + (s->is_shared ? i / n_each : i) * s->n_from + s->first;
        for (uint32_t j = 0; j < s->n_norm; j++) c->out[i * s->n_to + s->to + j] = in[j];
    }
}

static void run_head_products(struct reference *r, const struct call *c) {
    const struct step *s = c->s;
    double *x = r->rows, *y = x + (size_t)c->b.n * c->w->w->n_in;
    for (uint32_t h = 0; h < s->n_head; h++) {
        const struct weight w = weight_expert(c->w->w, r->steps.head_matrix(s->weight, h, s->n_head));
        for (uint32_t t = 0; t < c->b.n; t++) {
            const double *in = c->in + ((size_t)t * s->n_head + h) * s->n_from;
            for (uint32_t i = 0; i < w.n_in; i++) x[(size_t)t * w.n_in + i] = in[i];
        }
        r->steps.linear(r, &w, s->weight, x, c->b.n, y);
        for (uint32_t t = 0; t < c->b.n; t++) {
            double *out = c->out + ((size_t)t * s->n_head + h) * s->n;
            for (uint32_t i = 0; i < w.n_out; i++) out[i] = y[(size_t)t * w.n_out + i];
        }
    }
}

/* One gate for each head or each element          Qiu et al. 2025, "Gated Attention for Large Language Models" */
static void run_gate_heads(struct reference *r, const struct call *c) {
    const struct attn_plan *p = &c->layer->attn;
    uint32_t shared = p->gate_per_head ? plan_head_out(p) : 1;
    (void)r;
    for (size_t i = 0; i < c->n; i++) {
        double z = c->in[i / shared];
        double sigmoid = 1 / (1 + exp(-z));
        c->out[i] *= p->gate == ATTN_GATE_SIGMOID ? sigmoid
                   : p->gate == ATTN_GATE_SILU ? z * sigmoid : reference_softplus(z);
    }
}

/* activation(gate) * up                                          Shazeer 2020, "GLU Variants Improve Transformer" */
static void run_activate(struct reference *r, const struct call *c) {
    const struct ffn_plan *p = &c->layer->ffn;
    bool has_gate = c->s->in != c->s->out;
    double limit = (double)p->limit_shared;
    if (c->s->out == STREAM_CONV || c->s->out == STREAM_Z) {   /* no network's: mistakes in those do not change it */
        for (size_t i = 0; i < c->n; i++) {
            c->out[i] = reference_activation(c->s->activation, c->out[i]) * (has_gate ? c->in[i] : 1);
        }
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        c->out[i] = reference_activate(r, p, c->s->activation, limit, c->out[i], has_gate ? c->in[i] : 1);
    }
}

/* What is above mean + sparsity * deviation, of a sample of n elements                   Google 2025, "Gemma 3n" */
static void run_sparse(struct reference *r, const struct call *c) {
    uint32_t n = c->s->n;
    (void)r;
    for (double *x = c->out; x < c->out + c->n; x += n) {
        double mean = 0, variance = 0;
        for (uint32_t i = 0; i < n; i++) mean += x[i] / n;
        for (uint32_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / ((double)n - 1);
        double cut = mean + (double)c->layer->ffn.sparsity * sqrt(variance);
        for (uint32_t i = 0; i < n; i++) x[i] = x[i] - cut > 0 ? x[i] - cut : (x[i] - cut) * 0;
    }
}

/* Runs the steps of layer il that are in the set `which`. */
static void run_layer(struct reference *r, uint32_t il, struct batch b, id_set which) {
    static void (*const runs[STEP_KINDS])(struct reference *r, const struct call *c) = {
        [STEP_NORM] = run_norm, [STEP_PRODUCT] = run_product, [STEP_COPY] = run_copy, [STEP_SHOW] = nothing,
        [STEP_SCALE] = run_scale, [STEP_DIVIDE] = run_divide, [STEP_ADD] = run_add, [STEP_ADD_SCALED] = run_add_scaled,
        [STEP_ADD_BIAS] = run_add_bias, [STEP_ADD_STATES] = run_add_states, [STEP_ROPE] = run_rope,
        [STEP_TEMPERATURE] = run_temperature, [STEP_ATTENTION] = run_attention, [STEP_GATE_HEADS] = run_gate_heads,
        [STEP_ACTIVATE] = run_activate, [STEP_SOFTMAX] = reference_softmax, [STEP_SIGMOID] = reference_sigmoid,
        [STEP_BEST] = reference_best, [STEP_TAKE] = reference_take, [STEP_SUM_TO_1] = reference_sum_to_1,
        [STEP_EXPERTS] = reference_experts, [STEP_ADJUGATES] = reference_adjugates,
        [STEP_GATE_SHARED] = reference_gate_shared, [STEP_CONVOLVE] = reference_convolve,
        [STEP_GATE_CONV] = reference_gate_conv, [STEP_PART] = run_part, [STEP_HEAD_PRODUCTS] = run_head_products,
        [STEP_DECAY] = reference_decay, [STEP_DELTA] = reference_delta, [STEP_SOFTPLUS] = reference_softplus_step,
        [STEP_SCAN] = reference_scan,
        [STEP_MULTIPLY] = run_multiply,
        [STEP_OWN] = run_own, [STEP_TANH] = reference_tanh, [STEP_PREDICT] = reference_predict,
        [STEP_CORRECT] = reference_correct, [STEP_FIRST] = reference_first, [STEP_OTHERS] = reference_others,
        [STEP_SPARSE] = run_sparse, [STEP_SHIFT] = reference_shift, [STEP_LERP] = reference_lerp,
        [STEP_FADE] = reference_fade, [STEP_MIX] = reference_mix, [STEP_UNIT] = reference_unit,
        [STEP_REPLACE] = reference_replace, [STEP_BONUS] = reference_bonus, [STEP_WKV] = reference_wkv,
        [STEP_NORM_HEADS] = reference_norm_heads, [STEP_TIMES] = reference_times,
    };
    const struct program *program = r->m->layers[il].program;
    const struct layer_plan *layer = &r->plan.layers[il];
    r->streams[STREAM_K] = r->k + ((size_t)(il - layer->kv_back) * r->n_ctx * r->plan.max_k)
                         + (size_t)b.slot * layer->attn.n_head_kv * layer->attn.k_dim;
    r->streams[STREAM_V] = r->v + ((size_t)(il - layer->kv_back) * r->n_ctx * r->plan.max_v)
                         + (size_t)b.slot * layer->attn.n_head_kv * layer->attn.v_dim;
    for (uint32_t i = 0, n; i < program->n; i += n) {
        n = program_products(program, i, PROGRAM_MAX_STEPS);   /* products of one stream are shown together */
        if (!(which >> i & 1)) continue;
        for (uint32_t k = i; k < i + n; k++) {
            const struct step *s = &program->steps[k];
            const struct call c = { il, b, s, layer, model_affine(r->m, il, s->weight), r->streams[s->in],
                                    r->streams[s->out], (size_t)b.n * s->n_head * s->n };
            r->steps.before(r, &c);
            runs[s->kind](r, &c);
            r->steps.after(r, &c);
            if (r->adapters && s->tap == TAP_L_OUT) reference_adapt_layer(r, il, b.n);
        }
        for (uint32_t k = i; k < i + n; k++) {
            const struct step *s = &program->steps[k];
            reference_tap(r, s->tap, (int32_t)il, b.pos, b.n, s->n_head, s->n, r->streams[s->out]);
        }
    }
}

static int32_t token(const int32_t *ids, uint32_t n, uint32_t t) { return (void)n, ids[t]; }

static uint32_t head_matrix(enum weight_id weight, uint32_t h, uint32_t n_head) {
    return (void)weight, (void)n_head, h;
}

static double row_scale(const struct plan *p) { return sqrt(p->n_per_layer); }
static double row_sum_scale(void) { return 1 / sqrt(2); }
static bool rows_first(void) { return false; }
static uint32_t own_part(const struct plan *p, uint32_t il) { return (void)p, il; }

/* A token more than was asked for may be fed. */
static uint32_t learned_row(const struct reference *r, uint32_t pos, uint32_t t) {
    return pos + t < r->plan.n_ctx_train ? pos + t : r->plan.n_ctx_train - 1;
}

/* own (n, n_layer, n_per_layer) += the rows of the table for the tokens */
static void add_own_rows(const struct reference *r, const int32_t *ids, uint32_t n, double *own) {
    size_t n_row = (size_t)r->plan.n_layer * r->plan.n_per_layer;
    double factor = r->steps.row_scale(&r->plan);
    for (uint32_t t = 0; t < n; t++) {
        const float *embedding = reference_row(r, r->m->per_layer_embd.w, (size_t)ids[t]);
        for (size_t i = 0; i < n_row; i++) own[t * n_row + i] += (double)embedding[i] * factor;
    }
}

/* STREAM_PER_LAYER = (embedding * sqrt(n_per_layer) + norm(W x / sqrt(n_embd))) / sqrt(2), for each layer
 *                                                                                        Google 2025, "Gemma 3n" */
static void embed_layers(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos) {
    const struct model *m = r->m;
    const struct plan *p = &r->plan;
    size_t n_row = (size_t)p->n_layer * p->n_per_layer;
    double *own = r->streams[STREAM_PER_LAYER];
    if (n_row == 0) return;
    r->steps.product(r, &m->per_layer_model_proj, W_PER_LAYER_MODEL_PROJ, r->x, n, own);
    for (size_t i = 0; i < n * n_row; i++) own[i] /= sqrt(p->n_embd);
    if (r->steps.rows_first()) add_own_rows(r, ids, n, own);
    reference_normalize(r, &m->per_layer_proj_norm, (double)p->norm_eps, p->n_per_layer, own, n * p->n_layer, own);
    if (!r->steps.rows_first()) add_own_rows(r, ids, n, own);
    for (size_t i = 0; i < n * n_row; i++) own[i] *= r->steps.row_sum_scale();
    reference_tap(r, TAP_PER_LAYER, -1, pos, n, p->n_layer, p->n_per_layer, own);
}

/* Fills x with the embeddings, and the streams that keep them or begin with them. */
static void embed(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, enum tap_id tap) {
    const struct model *m = r->m;
    const struct plan *p = &r->plan;
    size_t n_x = (size_t)n * p->n_embd;
    double factor = (double)p->embedding_scale;
    reference_choose_adapters(r, ids, n, pos);
    for (uint32_t t = 0; t < n; t++) {
        int32_t id = tap == TAP_EMBD ? r->steps.token(ids, n, t) : ids[t];
        id = plan_embedded_as(p, id);
        const float *embedding = reference_row(r, m->token_embd.w, (size_t)id);
        double *x = r->x + (size_t)t * p->n_embd;
        for (uint32_t i = 0; i < p->n_embd; i++) x[i] = (double)embedding[i];
    }
    if (r->adapters) reference_adapt_embeddings(r, ids, n, r->x);
    for (size_t i = 0; i < n_x; i++) r->x[i] *= factor;
    for (uint32_t t = 0; t < n; t++) {
        double *x = r->x + (size_t)t * p->n_embd;
        if (m->token_types.w) add_row(r, m->token_types.w, 0, x);   /* Devlin et al. 2019, "BERT", figure 2 */
        if (m->position_embd.w) add_row(r, m->position_embd.w, r->steps.learned_row(r, pos, t), x);
    }
    norm_outside(r, W_TOKEN_EMBD_NORM, &m->token_embd_norm, r->x, n, r->x);
    reference_tap(r, tap, -1, pos, n, 1, p->n_embd, r->x);
    memcpy(r->streams[STREAM_EMBD], r->x, n_x * sizeof *r->x);
    embed_layers(r, ids, n, pos);
    if (p->n_stream > 0) reference_split_streams(r, n);
    for (size_t i = 0; p->has_states && i < n_x; i++) {
        r->streams[STREAM_LOW][i] = (double)reference_row(r, m->state_init.w, 0)[i % p->n_embd];
    }
    if (p->has_states) memcpy(r->streams[STREAM_HIGH], r->x, n_x * sizeof *r->x);
    for (size_t i = 0; p->has_states && i < n_x; i++) r->x[i] += r->streams[STREAM_LOW][i];
}

/* results (n_result, n_vocab): the logits of the last n_result of n tokens; or their embeddings */
static void finish(struct reference *r, uint32_t n, uint32_t pos, uint32_t n_result, float *results) {
    const struct model *m = r->m;
    const struct plan *p = &r->plan;
    double divisor = (double)p->logit_scale, cap = (double)p->logit_softcap;
    uint32_t first = n - n_result;
    if (p->n_stream > 0) reference_merge_streams(r, n);
    norm_outside(r, W_OUTPUT_NORM, &m->output_norm, r->x + (size_t)first * p->n_embd, n_result, r->h);
    reference_tap(r, TAP_RESULT_NORM, -1, pos + first, n_result, 1, p->n_embd, r->h);
    if (!results) return;
    if (!p->has_logits) {
        reference_embeddings(r, n_result, results);
        return;
    }
    const struct weight *head = m->output.w;   /* NULL: zeros */
    const struct weight *bias = m->output.b;
    uint32_t n_other = p->n_logit > 0 ? p->n_vocab - p->n_logit : 0;   /* the tokens that have no logit */
    size_t n_out = p->n_vocab - n_other;
    for (size_t i = 0; r->logits && i < n_result * n_out; i++) r->logits[i] = 0;
    if (head && r->logits) reference_adapt(r, head, r->h, n_result, r->logits);
    for (uint32_t t = 0; t < n_result; t++) {
        for (uint32_t o = 0; o < n_other; o++) results[(size_t)t * p->n_vocab + o] = -INFINITY;
    }
    const double *h = head ? r->steps.input(r, head, r->h, n_result) : NULL;
    for (uint32_t o = n_other; o < p->n_vocab; o++) {
        const float *row = head ? reference_row(r, head, o - n_other) : NULL;
        for (uint32_t t = 0; t < n_result; t++) {
            double logit = head ? reference_dot(row, h + (size_t)t * p->n_embd, p->n_embd) : 0;
            if (r->logits) logit += r->logits[t * n_out + o - n_other];
            if (bias) logit += (double)f32_from_bits(load_u32(bias->data + 4 * (size_t)o));
            logit /= divisor;
            if (cap != 0) logit = cap * tanh(logit / cap);      /* Gemma 2, 2024, "Logit soft-capping" */
            results[(size_t)t * p->n_vocab + o] = (float)logit;
        }
    }
    for (uint32_t t = 0; t < n_result; t++) {
        for (uint32_t o = p->hidden_first; o < p->hidden_end; o++) results[(size_t)t * p->n_vocab + o] = -INFINITY;
    }
    if (!r->sink.on_tap) return;
    const char *name = tap_spec(TAP_RESULT_OUTPUT)->name;
    r->sink.on_tap(r->sink.user, &(plumb_tap) { name, -1, pos + first, n_result, 1, p->n_vocab, results });
}

/* What the decoder reads of the encoder's output is computed once: its K and V. */
static bool reads_encoder(const struct reference *r, uint32_t il) { return r->plan.layers[il].attn.reads_encoder; }

void reference_encode(struct reference *r, const int32_t *ids, uint32_t n) {
    const struct batch b = { n, 0, 0 };
    r->n_encoded = n;
    embed(r, ids, n, 0, TAP_ENCODER_EMBD);
    for (uint32_t il = 0; il < r->plan.n_layer; il++) {
        uint32_t attention;
        if (il < r->plan.n_encoder) run_layer(r, il, b, ALL_IDS);
        else if (reads_encoder(r, il)) run_layer(r, il, b, program_kv(r->m->layers[il].program, &attention));
        if (reads_encoder(r, il)) round_kv(r, &r->plan.layers[il].attn, n);
    }
}

void reference_run_layers(struct reference *r, struct layers layers, const int32_t *ids, uint32_t n, uint32_t pos,
                          uint32_t n_result, float *results) {
    const struct plan *p = &r->plan;
    if (pos == 0) r->n_prompt = n;
    r->steps.begin(r, &(struct prompt){ layers, ids, n, pos });
    r->n_past = pos + n;
    struct batch b = { n, pos, r->steps.slot(r, pos) };
    for (uint32_t t = 0; t < n; t++) r->rotated[b.slot + t] = r->steps.position(r, pos, t, false);
    embed(r, ids, n, pos, TAP_EMBD);
    if (layers.first > 0) {
        plumb_tap tap = { tap_spec(TAP_L_OUT)->name, (int32_t)layers.first - 1, pos, n, 1, p->n_embd, NULL };
        r->force(r->user, &tap, r->x);
    }
    if (layers.first < p->n_encoder) layers.first = p->n_encoder;
    for (uint32_t il = layers.first; il < p->n_layer && il < layers.end; il++) {
        uint32_t attention;
        run_layer(r, il, b, reads_encoder(r, il) ? ~program_kv(r->m->layers[il].program, &attention) : ALL_IDS);
    }
    if (n_result > 0 && layers.end >= p->n_layer) finish(r, n, pos, n_result, results);
}

void reference_run(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_result,
                   float *results) {
    reference_run_layers(r, (struct layers){ 0, UINT32_MAX }, ids, n, pos, n_result, results);
}

uint32_t reference_rewind(const struct reference *r, uint32_t n_past) {
    return r->plan.is_recurrent && n_past != r->n_past ? 0 : n_past;
}

plumb_pooling reference_pooling(const struct reference *r) { return r->plan.pooling.kind; }

void reference_embeddings(const struct reference *r, uint32_t n_result, float *out) {
    const double *h = r->plan.n_encoder > 0 ? r->streams[STREAM_ENCODED] : r->h;
    for (size_t i = 0; i < (size_t)n_result * r->plan.n_embd; i++) out[i] = (float)h[i];
}

static double *allocate(struct reference *r, uint64_t a, uint64_t b) {
    uint64_t n;
    double *p = mul_u64(a, b, &n) ? alloc_array(n, sizeof *p) : NULL;
    if (p) r->bytes += n * sizeof *p;
    return p;
}

/* Elements of a row of a stream.  A known mistake may use a stream that no right layer uses.  K and V are in the
 * cache. */
static uint64_t stream_width(const struct plan *p, enum stream stream) {
    uint64_t n_ff = plan_max_used_row(p) > p->max_ff ? plan_max_used_row(p) : p->max_ff;
    const struct scan_plan *s = &p->scan;
    bool is_rwkv = p->rwkv.kind != RWKV_NONE;
    switch (stream) {
    case STREAM_ENCODED: return p->n_encoder > 0 ? p->n_embd : 0;
    case STREAM_LOW: case STREAM_HIGH: return p->has_states ? p->n_embd : 0;
    case STREAM_SUM: case STREAM_SHARED: return p->max_expert > 0 ? p->n_embd : 0;
    case STREAM_Q: case STREAM_HEADS: return p->max_q;
    case STREAM_K: case STREAM_V: return 0;
    case STREAM_GATES: return p->has_gates || is_rwkv ? p->max_q : 0;
    case STREAM_LERPS: return p->rwkv.n_lerp > 0 ? RWKV_LERPS * (uint64_t)p->n_embd : 0;
    case STREAM_SHIFT: case STREAM_MIXED: case STREAM_MIX: case STREAM_RATE: case STREAM_FIRST_VALUE:
    case STREAM_REMOVAL: case STREAM_BONUS:
        return is_rwkv ? p->n_embd : 0;
    case STREAM_FADE: return is_rwkv ? p->max_q : 0;
    case STREAM_KEY: case STREAM_VALUE: return is_rwkv || p->max_delta > 0 ? p->max_q : 0;
    case STREAM_QKV: return is_rwkv ? 3 * p->max_q : 0;
    case STREAM_CONV_IN: return 3 * p->max_conv;
    case STREAM_CONV: return p->max_conv;
    case STREAM_SCAN_IN: return plan_scan_in(s);
    case STREAM_Z: case STREAM_SCAN: return plan_scan_width(s);
    case STREAM_BCDT: return s->n_rank + 2 * (uint64_t)s->n_state;
    case STREAM_RANK: return plan_max_rank(p);
    case STREAM_B: case STREAM_C: return plan_scan_group_width(s);
    case STREAM_DT: return s->n_head;
    case STREAM_BETA: case STREAM_DECAY: return p->max_delta;
    case STREAM_BETA_DECAY: return 2 * p->max_delta;
    case STREAM_Q_GATE: return 2 * p->max_q;
    case STREAM_LATENT_Q_A: case STREAM_LATENT_Q: case STREAM_LATENT_KV: case STREAM_LATENT: case STREAM_LATENT_KV_B:
    case STREAM_LATENT_HEADS:
        return p->max_latent;
    case STREAM_FF_GATE: case STREAM_FF_UP:   /* without a matrix, a network passes its input on */
        return n_ff > p->n_embd ? n_ff : p->n_embd;
    case STREAM_PER_LAYER: return (uint64_t)p->n_layer * p->n_per_layer;
    case STREAM_OTHERS: case STREAM_PREDICTED: return (uint64_t)p->n_stream * p->n_embd;
    case STREAM_MODES: case STREAM_FACTORS: return p->n_stream;
    case STREAM_COEFS: return (uint64_t)p->n_stream * p->n_stream;
    case STREAM_NARROW: case STREAM_NARROW_SUM: return p->n_narrow;
    case STREAM_OWN: return p->n_per_layer;
    case STREAM_SCORES: case STREAM_CHOICE: return p->max_expert;
    case STREAM_USED: case STREAM_WEIGHTS: return p->max_used;
    default: return p->n_embd;
    }
}

/* Elements of the longest row of a matrix, a kernel or a stream, of which there may be a bias too. */
static uint64_t longest_row(const struct plan *p) {
    uint64_t n = plan_max_row(p);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (p->layers[il].n_conv > n) n = p->layers[il].n_conv;
    }
    for (uint32_t i = 0; i < STREAM_COUNT; i++) {
        uint64_t width = stream_width(p, (enum stream)i);
        if (width > n) n = width;
    }
    return n;
}

static bool allocate_states(struct reference *r) {
    const struct plan *p = &r->right->plan;
    r->n_state = plan_states_size(p);
    r->states = alloc_array(p->n_layer, sizeof *r->states);
    r->state = allocate(r, r->n_state, 1);
    r->kept = allocate(r, r->n_state, 1);
    double *at = r->state;
    for (uint32_t il = 0; r->states && at && il < p->n_layer; il++) {
        r->states[il] = at;
        at += (size_t)plan_state_size(p, il);
    }
    return r->states && at && r->kept;
}

static bool allocate_switches(struct reference *r) {
    r->switches = alloc_array(r->n_ctx, sizeof *r->switches);
    r->adapter_of = alloc_array(r->n_batch, sizeof *r->adapter_of);
    r->bytes += ((uint64_t)r->n_ctx + r->n_batch) * sizeof *r->switches;
    return r->switches && r->adapter_of;
}

static bool allocate_streams(struct reference *r) {
    for (uint32_t i = 0; i < STREAM_COUNT; i++) {
        uint64_t n = stream_width(&r->right->plan, (enum stream)i);
        if (n > 0 && !(r->streams[i] = allocate(r, r->n_batch, n))) return false;
    }
    r->x = r->streams[STREAM_X];
    r->h = r->streams[STREAM_H];
    r->q = r->streams[STREAM_Q];
    r->attn = r->streams[STREAM_HEADS];
    return true;
}

void reference_keep(struct reference *r, const struct prompt *p) { (void)r, (void)p; }
static void begin(struct reference *r, const struct prompt *p) {
    if (p->pos == 0) memset(r->state, 0, (size_t)r->n_state * sizeof *r->state);
}
static uint32_t kernel_place(uint32_t j, uint32_t n_conv) { return (void)n_conv, j; }
static uint32_t tail_end(uint32_t n) { return n; }
static double decay(double dt, double a) { return exp(dt * a); }
static double fed(double dt, double a, double b) { return (void)a, dt * b; }
static uint32_t scan_group(const struct scan_plan *p, uint32_t h) { return h / (p->n_head / p->n_group); }
static bool is_unit(bool is_k) { return (void)is_k, true; }
static double recalled(double old, double decay) { return (void)decay, old; }
static uint32_t decay_place(uint32_t i, uint32_t j) { return (void)j, i; }
/* e^-slope, with the slopes of ALiBi, smaller in later layers: Qin et al. 2024, "Lightning Attention-2" */
static double fade(const struct plan *p, uint32_t il, uint32_t head) {
    double slope = pow(2, -8 * (head + 1.0) / p->layers[il].attn.n_head);
    return exp(-slope * (1 - il / (p->n_layer - 1.0) + 1e-5));
}

static double heads_eps(const struct plan *p) { return (void)p, (double)RWKV_NORM_EPS; }

const struct reference_steps reference_right_steps = {
    .before = nothing, .after = nothing, .bytes = bytes, .dequantize = dequantize, .input = input,
    .heads = heads, .linear = reference_linear, .product = reference_product,
    .norm = normalize, .norm_weight = reference_unchanged, .token = token, .learned_row = learned_row, .slot = slot,
    .position = position, .rotates = rotates, .first_rotated = first_rotated, .frequency = reference_frequency,
    .rope_width = rope_width, .kv_head = kv_head, .sees = sees, .cached = reference_cached, .key = key, .value = value,
    .bucket = plan_bucket, .alibi = reference_alibi, .exponential = softmax_exp, .zeros = zeros,
    .softmax = softmax_of_rows, .values = reference_values, .activation = reference_activation, .limit = limit_both,
    .choice = reference_unchanged, .weighed = reference_weighed, .expert = reference_expert,
    .weight_place = reference_weight_place, .begin = begin, .kernel_place = kernel_place, .tail_end = tail_end,
    .dt_bias = reference_unchanged, .softplus = reference_softplus, .decay = decay, .fed = fed,
    .scan_group = scan_group, .key_head = delta_key_head, .is_unit = is_unit, .recalled = recalled,
    .decay_place = decay_place, .fade = fade, .wkv_fade = reference_wkv_fade, .previous = reference_previous,
    .heads_eps = heads_eps, .head_matrix = head_matrix, .row_scale = row_scale, .row_sum_scale = row_sum_scale,
    .rows_first = rows_first, .own_part = own_part,
};

/* ---- settings ---------------------------------------------------------------------------------------------------- */

void reference_set_right(struct reference *r) {
    const struct plan *p = &r->right->plan;
    struct layer_plan *plans = r->plan.layers;
    struct layer *layers = r->edited.layers;
    memcpy(plans, p->layers, p->n_layer * sizeof *plans);
    memcpy(layers, r->right->layers, p->n_layer * sizeof *layers);
    r->plan = *p;
    r->plan.layers = plans;
    r->edited = *r->right;
    r->edited.layers = layers;
    r->m = r->right;
    r->steps = r->rounded_steps;
    fill_frequencies(r);
}

void reference_edited(struct reference *r) {
    r->m = &r->edited;
    for (uint32_t il = 0; il < r->plan.n_layer; il++) {
        r->programs[il] = program_of(&r->plan, &r->edited, il);
        r->edited.layers[il].program = &r->programs[il];
    }
    fill_frequencies(r);
}

void reference_set_force(struct reference *r, void (*force)(void *user, const plumb_tap *tap, double *x), void *user) {
    r->force = force;
    r->user = user;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

plumb_status reference_create(struct reference **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                              struct error *err) {
    *out = NULL;
    const struct plan *p = &m->plan;
    struct reference *r = calloc(1, sizeof *r);
    uint32_t max_k_dim = 0, max_v_dim = 0;
    uint64_t n_row = longest_row(p);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (p->layers[il].attn.k_dim > max_k_dim) max_k_dim = p->layers[il].attn.k_dim;
        if (p->layers[il].attn.v_dim > max_v_dim) max_v_dim = p->layers[il].attn.v_dim;
    }
    if (r) {
        r->right = m;
        r->edited.layers = alloc_array(p->n_layer, sizeof *r->edited.layers);
        r->programs = alloc_array(p->n_layer, sizeof *r->programs);
        r->n_ctx = n_ctx;
        r->n_batch = n_batch = p->n_encoder > 0 ? n_ctx : n_batch;
        r->rounded_steps = reference_right_steps;
        r->row = alloc_array(n_row, sizeof *r->row);
        r->row_bytes = alloc_array(n_row, sizeof *r->row);   /* F32 has the longest rows */
        r->other_row = alloc_array(m->max_packed_row, 1);
        r->zeros = calloc(max_k_dim > max_v_dim ? max_k_dim : max_v_dim, sizeof *r->zeros);
        r->n_head_row = plan_max_head(p);
    }
    if (!r || !plan_copy(&r->plan, p) || !r->edited.layers || !r->programs || !r->row || !r->row_bytes
        || !r->other_row || !r->zeros
        || !(r->k = allocate(r, (uint64_t)p->n_layer * n_ctx, p->max_k))
        || !(r->v = allocate(r, (uint64_t)p->n_layer * n_ctx, p->max_v)) || !allocate_streams(r) || !allocate_states(r)
        || (p->max_expert > 0 && !(r->masked = allocate(r, p->max_expert, 1)))
        || (p->max_expert > 0 && !(r->expert_row = allocate(r, p->n_embd, 1)))
        || (p->max_expert > 0 && !(r->gates = allocate(r, n_batch, 1)))
        || (plan_head_row(p) > 0 && !(r->rows = allocate(r, n_batch, plan_head_row(p))))
        || (p->max_expert > 0 && !(r->expert_rows = allocate(r, n_batch, (uint64_t)p->max_used * plan_expert_row(p))))
        || !(r->head = allocate(r, 2, r->n_head_row))
        || !(r->weights = allocate(r, (uint64_t)n_batch * p->max_head, n_ctx))
        || !(r->frequencies[ROPE_GLOBAL] = allocate(r, max_k_dim, 1))
        || !(r->frequencies[ROPE_LOCAL] = allocate(r, max_k_dim, 1)) || !(r->rotated = allocate(r, n_ctx, 1))
        || (p->adapters.n > 0 && !allocate_switches(r))
        || reference_set_adapters(r, NULL) != PLUMB_OK
        || !(r->key = allocate(r, max_k_dim, 1)) || !(r->fused = allocate(r, p->max_q + p->max_k + p->max_v, 1))) {
        reference_free(r);
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the reference pass cannot allocate a context of %u "
                         "tokens; ask for a smaller context", n_ctx);
    }
    reference_set_right(r);
    *out = r;
    return PLUMB_OK;
}

void reference_free(struct reference *r) {
    if (!r) return;
    void *const owned[] = { r->plan.layers, r->edited.layers, r->programs, r->k, r->v, r->masked, r->expert_row,
                            r->gates, r->rows, r->expert_rows, r->head, r->weights, r->frequencies[ROPE_GLOBAL],
                            r->frequencies[ROPE_LOCAL], r->rotated, r->key, r->zeros, r->fused, r->row, r->row_bytes,
                            r->other_row, r->tapped, r->rounded, r->low_rank, r->logits, r->switches, r->adapter_of };
    r->streams[STREAM_K] = r->streams[STREAM_V] = NULL;   /* places in the cache */
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    for (size_t i = 0; i < STREAM_COUNT; i++) free(r->streams[i]);
    free(r->states);
    free(r->state);
    free(r->kept);
    free(r);
}

plumb_status reference_set_tap(struct reference *r, struct tap_sink sink) {
    const struct plan *p = &r->right->plan;
    uint64_t n_weight = (uint64_t)p->max_head * r->n_ctx, n_max = longest_row(p), n;   /* of a token */
    if (n_weight > n_max) n_max = n_weight;
    if (sink.on_tap && !r->tapped) {
        r->tapped = mul_u64(n_max, r->n_batch, &n) ? alloc_array(n, sizeof *r->tapped) : NULL;
        if (!r->tapped) return PLUMB_ERROR_MEMORY;
        r->bytes += n * sizeof *r->tapped;
    }
    r->sink = sink;
    return PLUMB_OK;
}

uint64_t reference_bytes(const struct reference *r) { return r->bytes + r->adapt_bytes; }

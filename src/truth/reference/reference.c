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
 * The plan (model/plan.h) says what differs from that: norms, positions, windows, factors, activations, gates, experts
 * (experts.c).  A step whose weight is absent is left out.
 *
 * Every line is meant to be checked against its paper; do not make it faster.  Where a quirk changes a step, a line
 * with `if (r->wrong)` leaves the step to quirk_steps.c.  r->wrong is NULL in a right pass: a reader can skip those
 * lines. */
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
    if (r->force) r->force(r->force_user, &tap, x);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

const float *reference_row(const struct reference *r, const struct weight *w, size_t i) {
    if (r->wrong) return r->wrong->row(r, w, i);
    w->traits->dequantize(weight_row(w, i, r->row_bytes), r->row, w->n_in);
    return r->row;
}

const double *reference_rounded(const struct reference *r, const struct weight *w, const double *x, size_t n) {
    if (r->rounding.products.kind == ROUND_NONE) return x;
    memcpy(r->rounded, x, n * w->n_in * sizeof *x);
    for (size_t t = 0; t < n; t++) {
        rounding_apply(&r->rounding.products, w->type, r->rounded + t * w->n_in, w->n_in);
    }
    return r->rounded;
}

/* Rounds Q, K, V or attention weights: n rows of n_in elements.  K and V are stored, the others are not. */
static void round_rows(const struct rounding *how, bool is_stored, double *x, size_t n, uint32_t n_in) {
    if (how->kind == ROUND_NONE || (how->is_stored_only && !is_stored)) return;
    for (size_t i = 0; i < n; i++) rounding_apply(how, QUANT_F32, x + i * n_in, n_in);
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
    x = reference_rounded(r, w, x, n);
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

/* y (n, n_out) = x (n, n_in) W^T s + b, the projections of attention; Q, K and V are clamped if the model says so */
static void projection(const struct reference *r, const struct affine *of, const double *x, uint32_t n, double *y,
                       bool is_qkv) {
    if (r->give && r->give(r->force_user, of, x, n, y)) return;
    bool is_done = r->wrong && r->wrong->projection(r, of->w, reference_rounded(r, of->w, x, n), n, y);
    if (!is_done) linear(r, of->w, x, n, y);
    scale(r, of, n, y);
    add_bias(r, of, n, y);
    double limit = (double)r->plan.clamp_qkv;
    for (size_t i = 0; limit != 0 && is_qkv && i < (size_t)n * of->w->n_out; i++) {
        if (y[i] > limit) y[i] = limit;
        if (y[i] < -limit) y[i] = -limit;
    }
}

/* y (n, n_out) = (x (n, n_in) W^T + b) s, the products of the feed-forward network */
static void ffn_product(const struct reference *r, const struct affine *of, const double *x, uint32_t n, double *y) {
    if (r->give && r->give(r->force_user, of, x, n, y)) return;
    linear(r, of->w, x, n, y);
    add_bias(r, of, n, y);
    scale(r, of, n, y);
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

/* Each of n rows of h (n, n_in) is the norm of x, times the weight, plus the bias; without them these are 1 and 0.  The
 * weight is one of a row, or has further rows for the heads. */
void reference_normalize(const struct reference *r, const struct affine *of, double eps, uint32_t n_in,
                         const double *x, uint32_t n, double *h) {
    for (uint32_t t = 0; t < n; t++, x += n_in, h += n_in) {
        if (r->wrong) r->wrong->norm(r, eps, x, n_in, h);
        else if (r->plan.norm == NORM_LAYER) layer_norm(eps, x, n_in, h);
        else rms_norm(eps, x, n_in, h);
        bool is_gain = of->w && of->w->n_in == 1;   /* one factor for all of a row */
        uint64_t first = (uint64_t)t * n_in, width = of->w && !is_gain ? of->w->n_in : n_in;   /* of a quirk: another */
        const float *weight = of->w ? reference_row(r, of->w, (size_t)(first / width % of->w->n_out)) : NULL;
        for (uint32_t i = 0; weight && i < n_in; i++) {
            double factor = (double)weight[is_gain ? 0 : (first + i) % width];
            h[i] *= r->wrong ? r->wrong->norm_weight(r, factor) : factor;
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

static void fill_frequencies(struct reference *r) {
    for (uint32_t k = 0; k < PLAN_ROPES; k++) {
        uint32_t n_rot = r->plan.ropes[k].n_rot;
        for (uint32_t i = 0; i < n_rot / 2; i++) r->frequencies[k][i] = reference_frequency(r, k, i, n_rot);
    }
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

/* x: (n, n_head, k_dim), the Q or K of a batch.  The first n_rot elements of each head are rotated. */
static void rope(const struct reference *r, const struct attn_plan *p, double *x, uint32_t n_head, uint32_t n,
                 uint32_t pos, bool is_q) {
    if (p->rope == ROPE_NONE || (r->wrong && !r->wrong->rotates(r, is_q))) return;
    for (uint32_t t = 0; t < n; t++) {
        double position = pos + t;
        if (r->wrong) position = r->wrong->position(r, pos, t, is_q);
        uint32_t first = r->wrong ? r->wrong->first_rotated(r, p) : 0;
        for (uint32_t h = 0; h < n_head; h++, x += p->k_dim) reference_rotate(r, p->rope, x + first, position);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Returns what scores are divided by: sqrt(k_dim), unless the layer has a scale of its own. */
double reference_score_divisor(const struct attn_plan *p) {
    return p->scale != 0 ? 1 / (double)p->scale : sqrt(p->k_dim);
}

/* attention_weights and attention_values below compute together
 * softmax(q k^T / divisor) v, over the tokens seen       Vaswani et al. 2017, "Attention Is All You Need", eq. 1
 * query head h reads K/V head h / (n_head / n_head_kv)   Ainslie et al. 2023, "GQA" */

/* x_i = e^x_i / sum of all e^x_j, of n elements.  sink: -INFINITY, or one more score that takes part in the sum
 *                                                Xiao et al. 2024, "Efficient Streaming Language Models" */
static void softmax(double *x, uint32_t n, double sink) {
    double max = sink;
    for (uint32_t i = 0; i < n; i++) max = fmax(max, x[i]);
    double sum = sink == -INFINITY ? 0 : exp(sink - max);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = x[i] == -INFINITY ? 0 : exp(x[i] - max);
        sum += x[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] != 0) x[i] /= sum;   /* 0 stays 0 even if another score is NaN */
    }
}

/* The positions from .. end - 1 that the token at `own` sees: itself and the tokens before it, or only the window - 1
 * tokens before it (Beltagy et al. 2020, "Longformer", section 3.1), or those of its chunk (Llama 4, 2025), or as many
 * before it as after it.  In a model that is not causal it also sees the later tokens of the batch. */
struct seen { uint32_t from, end; };
static struct seen seen_by(const struct reference *r, const struct attended *a, uint32_t own) {
    uint32_t window = a->plan->window;
    struct seen s = { 0, r->plan.is_causal ? own + 1 : a->pos + a->n };
    if (a->plan->is_symmetric) {   /* Warner et al. 2024, "ModernBERT", section 2.1.2 */
        s.from = own > window / 2 ? own - window / 2 : 0;
        if (s.end - own > window / 2) s.end = own + window / 2 + 1;
        return s;
    }
    if (window > 0 && a->plan->is_chunked) s.from = own - own % window;
    else if (window > 0 && own >= window) s.from = own - window + 1;
    return s;
}

/* What is subtracted from the score of a key at a distance: Press et al. 2022, "Train Short, Test Long" */
double reference_alibi(const struct attn_plan *p, uint32_t head, double distance) {
    double n = pow(2, floor(log2(p->n_head))), max = (double)p->alibi;
    if (max == 0) return 0;
    double slope = head < n ? pow(2, -max * (head + 1) / n) : pow(2, -max * (2 * (head - n) + 1) / (2 * n));
    return slope * fabs(distance);
}

double reference_bend_score(const struct attn_plan *p, uint32_t head, double score, double distance) {
    if (p->softcap != 0) score = (double)p->softcap * tanh(score / (double)p->softcap);   /* Gemma 2, 2024 */
    return score - reference_alibi(p, head, distance);
}

/* weights (n, n_head, n_key) */
static void attention_weights(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct attn_plan *p = a->plan;
    double divisor = reference_score_divisor(p);
    for (uint32_t t = 0; t < a->n; t++) {
        uint32_t own = a->pos + t;
        struct seen seen = seen_by(r, a, own);
        for (uint32_t h = 0; h < p->n_head; h++) {
            uint32_t head_kv = h / (p->n_head / p->n_head_kv);
            const double *q = r->q + ((size_t)t * p->n_head + h) * p->k_dim;
            double *scores = r->weights + ((size_t)t * p->n_head + h) * n_key;
            memset(scores, 0, n_key * sizeof *scores);
            for (uint32_t s = seen.from; s < seen.end; s++) {
                const double *k = a->k + ((size_t)s * p->n_head_kv + head_kv) * p->k_dim;
                double dot = 0;
                for (uint32_t i = 0; i < p->k_dim; i++) dot += q[i] * k[i];
                scores[s] = reference_bend_score(p, h, dot / divisor, (double)own - s);
            }
            softmax(scores + seen.from, seen.end - seen.from, a->sinks ? (double)a->sinks[h] : -INFINITY);
        }
    }
}

/* attn (n, n_head, v_dim): the sums of V, weighted by weights. */
static void attention_values(const struct reference *r, const struct attended *a, uint32_t n_key) {
    const struct attn_plan *p = a->plan;
    for (uint32_t t = 0; t < a->n; t++) {
        for (uint32_t h = 0; h < p->n_head; h++) {
            uint32_t head_kv = h / (p->n_head / p->n_head_kv);
            const double *weights = r->weights + ((size_t)t * p->n_head + h) * n_key;
            double *out = r->attn + ((size_t)t * p->n_head + h) * p->v_dim;
            memset(out, 0, p->v_dim * sizeof *out);
            for (uint32_t s = 0; s < n_key; s++) {
                if (weights[s] == 0) continue;   /* the token does not see s: 0 * NaN would reach it */
                const double *v = a->v + ((size_t)s * p->n_head_kv + head_kv) * p->v_dim;
                for (uint32_t i = 0; i < p->v_dim; i++) out[i] += weights[s] * v[i];
            }
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

double reference_activate(const struct reference *r, const struct ffn_plan *p, double limit, double gate, double up) {
    bool is_wrong = r->wrong && r->quirks.ffn_other_act;
    if (is_wrong && p->activation == ACT_SWIGLU_OAI) limit = 0;   /* it is a part of the activation */
    if (limit != 0 && p->limit_late) {   /* StepFun 2026, Step 3.5 */
        double z = is_wrong ? r->wrong->activation(r, gate) : reference_activation(p->activation, gate);
        return (z > limit ? limit : z) * (up > limit ? limit : up < -limit ? -limit : up);
    }
    if (limit != 0 && r->wrong) {
        r->wrong->limit(r, limit, &gate, &up);
    } else if (limit != 0) {   /* OpenAI 2025, gpt-oss */
        gate = gate > limit ? limit : gate;
        up = up > limit ? limit : up < -limit ? -limit : up;
    }
    if (is_wrong) return r->wrong->activation(r, gate) * up;
    if (p->activation == ACT_SWIGLU_OAI) return gate / (1 + exp(-1.702 * gate)) * (up + 1);
    if (p->activation == ACT_XIELU) {   /* Huang et al. 2024, eq. 9 */
        double a = (double)p->xielu.a, b = (double)p->xielu.b, beta = (double)p->xielu.beta;
        double below = expm1(fmin(gate, (double)p->xielu.eps)) - gate;
        return (gate > 0 ? a * gate * gate + beta * gate : b * below + beta * gate) * up;
    }
    return reference_activation(p->activation, gate) * up;
}

/* y (n, n_head, width) becomes the norm of x: of each head or, if the plan says so for Q and K, of all of them
 * together. */
static void norm(const struct reference *r, uint32_t il, enum weight_id weight, struct batch b, uint32_t n_head,
                 uint32_t width, const double *x, double *y) {
    bool is_of_qk = weight == W_ATTN_Q_NORM || weight == W_ATTN_K_NORM;
    uint32_t n_in = is_of_qk && r->plan.layers[il].attn.qk_norm == QK_NORM_ROW ? n_head * width : width;
    bool is_post = weight == W_ATTN_POST_NORM || weight == W_FFN_POST_NORM;
    double eps = (double)(is_post && r->plan.post_norm_eps != 0 ? r->plan.post_norm_eps : r->plan.norm_eps);
    uint32_t n_row = (uint32_t)((uint64_t)b.n * n_head * width / n_in);
    reference_normalize(r, &r->m->layers[il].w[weight], eps, n_in, x, n_row, y);
}

/* The same in place, for a norm that the layer may lack. */
static void norm_inside(const struct reference *r, uint32_t il, enum weight_id weight, struct batch b, enum tap_id id,
                        uint32_t n_head, uint32_t width, double *x) {
    if (!program_has_norm(&r->plan, il, r->m->layers[il].w, weight)) return;
    norm(r, il, weight, b, n_head, width, x, x);
    reference_tap(r, id, (int32_t)il, b.pos, b.n, n_head, width, x);
}

/* Outside the layers: h (n, n_embd) becomes the norm of x, or x if the model does not have this norm. */
static void norm_outside(const struct reference *r, enum weight_id weight, const struct affine *of, const double *x,
                         uint32_t n, double *h) {
    const struct plan *p = &r->plan;
    bool is_left_out = r->wrong && r->quirks.norm_output && weight == W_OUTPUT_NORM;
    bool has_norm = (of->w || p->bare_norms >> weight & 1) && !is_left_out;
    if (has_norm) reference_normalize(r, of, (double)p->norm_eps, p->n_embd, x, n, h);
    else if (x != h) memcpy(h, x, (size_t)n * p->n_embd * sizeof *h);
}

/* Row i of a table of embeddings, such as the learned positions, is added to x (n_embd). */
static void add_row(const struct reference *r, const struct weight *w, size_t i, double *x) {
    const float *row = reference_row(r, w, i);
    for (uint32_t k = 0; k < w->n_in; k++) x[k] += (double)row[k];
}

/* attn (n, n_head, v_dim) *= f(W_gate x), with one gate for each head or each element
 *                                                    Qiu et al. 2025, "Gated Attention for Large Language Models" */
static void gate_heads(struct reference *r, uint32_t il, struct batch b, const double *x) {
    const struct affine *of = &r->m->layers[il].w[W_ATTN_GATE];
    const struct attn_plan *p = &r->plan.layers[il].attn;
    uint32_t n_gate = of->w->n_out, shared = p->n_head * p->v_dim / n_gate;
    x = reference_rounded(r, of->w, x, b.n);
    for (size_t i = 0; i < (size_t)b.n * n_gate; i++) {
        const float *row = reference_row(r, of->w, i % n_gate);
        r->gates[i] = reference_dot(row, x + i / n_gate * of->w->n_in, of->w->n_in);
    }
    reference_tap(r, TAP_ATTN_GATE, (int32_t)il, b.pos, b.n, p->n_head, n_gate / p->n_head, r->gates);
    for (size_t i = 0; i < (size_t)b.n * p->n_head * p->v_dim; i++) {
        double z = r->gates[i / shared];
        r->attn[i] *= p->gate == ATTN_GATE_SIGMOID ? 1 / (1 + exp(-z)) : z > 20 ? z : log1p(exp(z));
    }
    reference_tap(r, TAP_ATTN_GATED, (int32_t)il, b.pos, b.n, p->n_head, p->v_dim, r->attn);
}

/* y (n, n_embd) <- W_o attention(rope(W_q x), rope(W_k x), W_v x) */
static void run_attention(struct reference *r, uint32_t il, struct batch b, const double *x, double *y) {
    const struct layer *l = &r->m->layers[il];
    const struct attn_plan *p = &r->plan.layers[il].attn;
    size_t n_k = (size_t)p->n_head_kv * p->k_dim, n_v = (size_t)p->n_head_kv * p->v_dim;
    double *cache_k = r->k + (size_t)il * r->n_ctx * r->plan.max_k, *k = cache_k + b.slot * n_k;
    double *cache_v = r->v + (size_t)il * r->n_ctx * r->plan.max_v, *v = cache_v + b.slot * n_v;
    const struct weight *sinks = l->w[W_ATTN_SINKS].w;
    const float *sink = sinks ? (const float *)(const void *)sinks->data : NULL;
    struct attended a = { p, cache_k, cache_v, sink, b.n, b.pos, b.slot, b.slot + b.n };
    uint32_t n = b.n, pos = b.pos;
    int32_t at = (int32_t)il;

    projection(r, &l->w[W_ATTN_Q], x, n, r->q, true);
    projection(r, &l->w[W_ATTN_K], x, n, k, true);
    projection(r, &l->w[W_ATTN_V], x, n, v, true);
    if (r->wrong) r->wrong->split_qkv(r, il, n, k, v);
    reference_tap(r, TAP_QCUR, at, pos, n, p->n_head, p->k_dim, r->q);
    reference_tap(r, TAP_KCUR, at, pos, n, p->n_head_kv, p->k_dim, k);
    reference_tap(r, TAP_VCUR, at, pos, n, p->n_head_kv, p->v_dim, v);
    round_rows(&r->rounding.values, true, v, (size_t)n * p->n_head_kv, p->v_dim);
    bool is_late = plan_norms_roped(p);
    if (!is_late) norm_inside(r, il, W_ATTN_Q_NORM, b, TAP_QCUR_NORMED, p->n_head, p->k_dim, r->q);
    if (!is_late) norm_inside(r, il, W_ATTN_K_NORM, b, TAP_KCUR_NORMED, p->n_head_kv, p->k_dim, k);
    rope(r, p, r->q, p->n_head, n, pos, true);
    reference_tap(r, TAP_QCUR_ROPE, at, pos, n, p->n_head, p->k_dim, r->q);
    rope(r, p, k, p->n_head_kv, n, pos, false);
    reference_tap(r, TAP_KCUR_ROPE, at, pos, n, p->n_head_kv, p->k_dim, k);
    if (is_late) norm_inside(r, il, W_ATTN_Q_NORM, b, TAP_QCUR_NORMED, p->n_head, p->k_dim, r->q);
    if (is_late) norm_inside(r, il, W_ATTN_K_NORM, b, TAP_KCUR_NORMED, p->n_head_kv, p->k_dim, k);
    for (uint32_t i = 0; p->temperature_floor > 0 && i < n * p->n_head * p->k_dim; i++) {   /* Llama 4, 2025 */
        uint32_t t = i / (p->n_head * p->k_dim);
        double periods = floor(((double)pos + t + p->temperature_offset) / p->temperature_floor);
        r->q[i] *= 1 + (double)p->temperature_scale * log(1 + periods);
    }
    if (p->temperature_floor > 0) reference_tap(r, TAP_QCUR_SCALED, at, pos, n, p->n_head, p->k_dim, r->q);
    round_rows(&r->rounding.keys, false, r->q, (size_t)n * p->n_head, p->k_dim);
    round_rows(&r->rounding.keys, true, k, (size_t)n * p->n_head_kv, p->k_dim);
    if (r->wrong) r->wrong->attention_weights(r, &a, pos + n);
    else attention_weights(r, &a, pos + n);
    reference_tap(r, TAP_KQ_SOFT_MAX, at, pos, n, p->n_head, pos + n, r->weights);
    round_rows(&r->rounding.values, false, r->weights, (size_t)n * p->n_head, pos + n);
    if (r->wrong) r->wrong->attention_values(r, &a, pos + n);
    else attention_values(r, &a, pos + n);
    reference_tap(r, TAP_KQV_OUT, at, pos, n, p->n_head, p->v_dim, r->attn);
    if (p->gate != ATTN_GATE_NONE) gate_heads(r, il, b, x);
    norm_inside(r, il, W_ATTN_SUB_NORM, b, TAP_ATTN_SUB_NORM, 1, p->n_head * p->v_dim, r->attn);
    projection(r, &l->w[W_ATTN_OUTPUT], r->attn, n, y, false);
    reference_tap(r, TAP_ATTN_OUT, at, pos, n, 1, r->plan.n_embd, y);
    for (size_t i = 0; p->output_scale != 0 && i < (size_t)n * r->plan.n_embd; i++) y[i] *= (double)p->output_scale;
}

/* y (n, n_embd) <- W_down (activation(W_gate x) * (W_up x))      Shazeer 2020, "GLU Variants Improve Transformer" */
static void run_feed_forward(struct reference *r, uint32_t il, struct batch b, const double *x, double *y) {
    const struct layer *l = &r->m->layers[il];
    const struct ffn_plan *p = &r->plan.layers[il].ffn;
    int32_t at = (int32_t)il;
    bool has_gate = l->w[W_FFN_GATE].w != NULL;
    const struct weight *w_scales = l->w[W_FFN_ACT_SCALES].w;
    const float *scales = w_scales ? (const float *)(const void *)w_scales->data : NULL;
    bool has_matrices = l->w[W_FFN_UP].w != NULL;   /* or only the activation is left */
    if (has_gate) {
        ffn_product(r, &l->w[W_FFN_GATE], x, b.n, r->gate);
        reference_tap(r, TAP_FFN_GATE, at, b.pos, b.n, 1, p->n_ff, r->gate);
    }
    if (has_matrices) ffn_product(r, &l->w[W_FFN_UP], x, b.n, r->up);
    else memcpy(r->up, x, (size_t)b.n * p->n_ff * sizeof *x);
    reference_tap(r, TAP_FFN_UP, at, b.pos, b.n, 1, p->n_ff, r->up);
    for (size_t i = 0; i < (size_t)b.n * p->n_ff; i++) {
        double z = has_gate ? r->gate[i] : r->up[i];
        r->gate[i] = reference_activate(r, p, (double)p->limit_shared, z, has_gate ? r->up[i] : 1);
        if (scales) r->gate[i] /= (double)scales[i % p->n_ff];
    }
    reference_tap(r, TAP_FFN_SWIGLU, at, b.pos, b.n, 1, p->n_ff, r->gate);
    norm_inside(r, il, W_FFN_SUB_NORM, b, TAP_FFN_SUB_NORM, 1, p->n_ff, r->gate);
    if (has_matrices) ffn_product(r, &l->w[W_FFN_DOWN], r->gate, b.n, y);
    else memcpy(y, r->gate, (size_t)b.n * p->n_ff * sizeof *y);
    reference_tap(r, TAP_FFN_OUT, at, b.pos, b.n, 1, r->plan.n_embd, y);
}

/* y += x * residual_scale; which: whose output x is */
static void add_output(struct reference *r, size_t n, enum weight_id which, const double *x, double *y) {
    if (r->wrong) r->wrong->add_residual(r, n, which == W_ATTN_OUTPUT ? RESIDUAL_ATTN : RESIDUAL_FFN);
    for (size_t i = 0; !r->wrong && i < n; i++) y[i] += x[i] * (double)r->plan.residual_scale;
}

/* x becomes the sum of both states                               Wang et al. 2025, "Hierarchical Reasoning Model" */
static void add_states(const struct reference *r, size_t n, double *x) {
    for (size_t i = 0; i < n; i++) x[i] = r->streams[STREAM_LOW][i] + r->streams[STREAM_HIGH][i];
}

/* Runs a step of layer il, see enum step_kind. */
static void run_step(struct reference *r, uint32_t il, struct batch b, const struct step *s) {
    const struct affine *w = r->m->layers[il].w;
    const double *in = r->streams[s->in];
    double *out = r->streams[s->out];
    size_t n = (size_t)b.n * r->plan.n_embd;
    bool reads_norm = s->kind == STEP_ATTENTION || s->kind == STEP_FEED_FORWARD || s->kind == STEP_SHARED
                      || (s->kind == STEP_EXPERTS && !w[W_FFN_NORM_EXPS].w);
    if (r->wrong && reads_norm) r->wrong->after_norm(r, in, n);
    double factor = s->kind == STEP_ADD_SCALED ? (double)reference_row(r, w[s->weight].w, 0)[0] : 1;
    switch (s->kind) {
    case STEP_NORM: norm(r, il, s->weight, b, 1, r->plan.n_embd, in, out); break;
    case STEP_NORM_OUTPUT: norm_outside(r, W_OUTPUT_NORM, &r->m->output_norm, in, b.n, out); break;
    case STEP_COPY: memcpy(out, in, n * sizeof *out); break;
    case STEP_ADD: case STEP_ADD_SCALED: for (size_t i = 0; i < n; i++) out[i] += in[i] * factor; break;
    case STEP_ADD_RESIDUAL: add_output(r, n, s->weight, in, out); break;
    case STEP_ADD_STATES: add_states(r, n, out); break;
    case STEP_ATTENTION: run_attention(r, il, b, in, out); break;
    case STEP_FEED_FORWARD: run_feed_forward(r, il, b, in, out); break;
    case STEP_ROUTER: reference_router(r, il, b, in); break;
    case STEP_EXPERTS: reference_experts(r, il, b, in); break;
    case STEP_SHARED: reference_shared(r, il, b, in); break;
    case STEP_KINDS: break;
    }
    reference_tap(r, s->tap, (int32_t)il, b.pos, b.n, 1, r->plan.n_embd, out);
}

/* Fills x with the embeddings, and the streams that keep them or begin with them. */
static void embed(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos) {
    const struct model *m = r->m;
    const struct plan *p = &r->plan;
    size_t n_x = (size_t)n * p->n_embd;
    double factor = (double)p->embedding_scale;
    for (uint32_t t = 0; t < n; t++) {
        const float *embedding = reference_row(r, m->token_embd.w, (size_t)ids[t]);
        double *x = r->x + (size_t)t * p->n_embd;
        for (uint32_t i = 0; i < p->n_embd; i++) x[i] = (double)embedding[i] * factor;
        if (m->token_types.w) add_row(r, m->token_types.w, 0, x);   /* Devlin et al. 2019, "BERT", figure 2 */
        uint32_t row = r->wrong ? r->wrong->learned_position(r, pos, t) : pos + t;
        if (m->position_embd.w) add_row(r, m->position_embd.w, row, x);
    }
    norm_outside(r, W_TOKEN_EMBD_NORM, &m->token_embd_norm, r->x, n, r->x);
    reference_tap(r, TAP_EMBD, -1, pos, n, 1, p->n_embd, r->x);
    memcpy(r->streams[STREAM_EMBD], r->x, n_x * sizeof *r->x);
    for (size_t i = 0; p->has_states && i < n_x; i++) {
        r->streams[STREAM_LOW][i] = (double)reference_row(r, m->state_init.w, 0)[i % p->n_embd];
    }
    if (p->has_states) memcpy(r->streams[STREAM_HIGH], r->x, n_x * sizeof *r->x);
    if (p->has_states) add_states(r, n_x, r->x);
}

/* results (n_result, n_vocab): the logits of the last n_result of n tokens; or their embeddings */
static void finish(struct reference *r, uint32_t n, uint32_t pos, uint32_t n_result, float *results) {
    const struct model *m = r->m;
    const struct plan *p = &r->plan;
    double divisor = (double)p->logit_scale, cap = (double)p->logit_softcap;
    uint32_t first = n - n_result;
    norm_outside(r, W_OUTPUT_NORM, &m->output_norm, r->x + (size_t)first * p->n_embd, n_result, r->h);
    reference_tap(r, TAP_RESULT_NORM, -1, pos + first, n_result, 1, p->n_embd, r->h);
    if (!results) return;
    if (!p->has_logits) {
        reference_embeddings(r, n_result, results);
        return;
    }
    const struct weight *head = m->output.w;   /* NULL: zeros */
    const double *h = head ? reference_rounded(r, head, r->h, n_result) : NULL;
    const struct weight *bias = m->output.b;
    uint32_t n_other = p->n_logit > 0 ? p->n_vocab - p->n_logit : 0;   /* the tokens that have no logit */
    for (uint32_t t = 0; t < n_result; t++) {
        for (uint32_t o = 0; o < n_other; o++) results[(size_t)t * p->n_vocab + o] = -INFINITY;
    }
    for (uint32_t o = n_other; o < p->n_vocab; o++) {
        const float *row = head ? reference_row(r, head, o - n_other) : NULL;
        for (uint32_t t = 0; t < n_result; t++) {
            double logit = head ? reference_dot(row, h + (size_t)t * p->n_embd, p->n_embd) : 0;
            if (bias) logit += (double)f32_from_bits(load_u32(bias->data + 4 * (size_t)o));
            logit /= divisor;
            if (cap != 0) logit = cap * tanh(logit / cap);      /* Gemma 2, 2024, "Logit soft-capping" */
            results[(size_t)t * p->n_vocab + o] = (float)logit;
        }
    }
    if (!r->sink.on_tap) return;
    const char *name = tap_spec(TAP_RESULT_OUTPUT)->name;
    r->sink.on_tap(r->sink.user, &(plumb_tap) { name, -1, pos + first, n_result, 1, p->n_vocab, results });
}

void reference_run(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t n_result,
                   float *results) {
    const struct plan *p = &r->plan;
    struct batch b = { n, pos, pos };
    if (pos == 0) r->n_prompt = n;
    if (r->wrong) b.slot = r->wrong->begin(r, n, pos);
    embed(r, ids, n, pos);
    if (r->first_layer > 0 && r->force) {   /* theirs is the input of the first layer */
        const char *name = tap_spec(TAP_L_OUT)->name;
        plumb_tap tap = { name, (int32_t)r->first_layer - 1, pos, n, 1, p->n_embd, NULL };
        r->force(r->force_user, &tap, r->x);
    }
    for (uint32_t il = r->first_layer; il < p->n_layer && il < r->n_layer; il++) {
        const struct program *program = &r->m->layers[il].program;
        for (uint32_t i = 0; i < program->n; i++) run_step(r, il, b, &program->steps[i]);
    }
    if (n_result > 0 && r->n_layer >= p->n_layer) finish(r, n, pos, n_result, results);
}

plumb_pooling reference_pooling(const struct reference *r) { return r->plan.pooling.kind; }

void reference_embeddings(const struct reference *r, uint32_t n_result, float *out) {
    for (size_t i = 0; i < (size_t)n_result * r->plan.n_embd; i++) out[i] = (float)r->h[i];
}

static double *allocate(struct reference *r, uint64_t a, uint64_t b) {
    uint64_t n;
    double *p = mul_u64(a, b, &n) ? alloc_array(n, sizeof *p) : NULL;
    if (p) r->bytes += n * sizeof *p;
    return p;
}

/* All of them: a quirk may use a stream that no right layer uses. */
static bool allocate_streams(struct reference *r) {
    for (uint32_t i = 0; i < STREAM_COUNT; i++) {
        bool is_state = i == STREAM_LOW || i == STREAM_HIGH;
        if (is_state && !r->right->plan.has_states) continue;
        if (!(r->streams[i] = allocate(r, r->n_batch, r->right->plan.n_embd))) return false;
    }
    r->x = r->streams[STREAM_X];
    r->h = r->streams[STREAM_H];
    return true;
}

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
    r->wrong = NULL;
    fill_frequencies(r);
}

void reference_set_force(struct reference *r, void (*force)(void *user, const plumb_tap *tap, double *x), void *user) {
    r->force = force;
    r->force_user = user;
}

void reference_set_give(struct reference *r, bool (*give)(void *user, const struct affine *of, const double *x,
                                                          uint32_t n, double *y)) {
    r->give = give;
}

void reference_limit(struct reference *r, uint32_t first, uint32_t end) {
    r->first_layer = first;
    r->n_layer = end;
}

plumb_status reference_set_rounding(struct reference *r, const struct roundings *how) {
    bool is_product = how && how->products.kind != ROUND_NONE;
    if (is_product && !r->rounded) {
        r->rounded = allocate(r, r->n_batch, plan_max_row(&r->right->plan));
        if (!r->rounded) return PLUMB_ERROR_MEMORY;
    }
    r->rounding = how ? *how : (struct roundings){ 0 };
    return PLUMB_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

plumb_status reference_create(struct reference **out, const struct model *m, uint32_t n_ctx, uint32_t n_batch,
                              struct error *err) {
    *out = NULL;
    const struct plan *p = &m->plan;
    struct reference *r = calloc(1, sizeof *r);
    uint32_t max_k_dim = 0;
    uint64_t n_ff = plan_max_used_row(p);
    if (p->max_ff > n_ff) n_ff = p->max_ff;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (p->layers[il].attn.k_dim > max_k_dim) max_k_dim = p->layers[il].attn.k_dim;
    }
    if (r) {
        r->right = m;
        r->edited.layers = alloc_array(p->n_layer, sizeof *r->edited.layers);
        r->n_ctx = n_ctx;
        r->n_batch = n_batch;
        r->n_layer = UINT32_MAX;
        r->row = alloc_array(plan_max_row(p), sizeof *r->row);
        r->row_bytes = alloc_array(plan_max_row(p), sizeof *r->row);   /* F32 has the longest rows */
        r->other_row = alloc_array(m->max_packed_row, 1);
        r->zeros = calloc(max_k_dim, sizeof *r->zeros);
        r->n_head_row = plan_max_head(p);
    }
    if (!r || !plan_copy(&r->plan, p) || !r->edited.layers || !r->row || !r->row_bytes || !r->other_row || !r->zeros
        || !(r->k = allocate(r, (uint64_t)p->n_layer * n_ctx, p->max_k))
        || !(r->v = allocate(r, (uint64_t)p->n_layer * n_ctx, p->max_v)) || !allocate_streams(r)
        || !(r->q = allocate(r, n_batch, p->max_q))
        || !(r->attn = allocate(r, n_batch, p->max_q)) || !(r->gate = allocate(r, n_batch, n_ff))
        || !(r->up = allocate(r, n_batch, n_ff))
        || (p->max_expert > 0 && !(r->scores = allocate(r, n_batch, p->max_expert)))
        || (p->max_expert > 0 && !(r->chosen = allocate(r, n_batch, 2 * (uint64_t)p->max_used)))
        || (p->max_expert > 0 && !(r->choice = allocate(r, (uint64_t)n_batch + 1, p->max_expert)))
        || (p->max_expert > 0 && !(r->expert = allocate(r, 2 * (uint64_t)n_batch, p->n_embd)))
        || (p->max_expert > 0 && !(r->expert_rows = allocate(r, n_batch, (uint64_t)p->max_used * p->n_embd)))
        || (p->has_gates && !(r->gates = allocate(r, n_batch, p->max_q)))
        || !(r->head = allocate(r, 2, r->n_head_row))
        || !(r->weights = allocate(r, (uint64_t)n_batch * p->max_head, n_ctx))
        || !(r->frequencies[ROPE_GLOBAL] = allocate(r, max_k_dim, 1))
        || !(r->frequencies[ROPE_LOCAL] = allocate(r, max_k_dim, 1)) || !(r->rotated = allocate(r, n_ctx, 1))
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
    void *const owned[] = { r->plan.layers, r->edited.layers, r->k, r->v, r->q, r->attn, r->gate, r->up, r->scores,
                            r->choice, r->chosen, r->expert, r->expert_rows, r->gates, r->head, r->weights,
                            r->frequencies[ROPE_GLOBAL], r->frequencies[ROPE_LOCAL], r->rotated, r->key, r->zeros,
                            r->fused, r->row, r->row_bytes, r->other_row, r->tapped, r->rounded };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    for (size_t i = 0; i < STREAM_COUNT; i++) free(r->streams[i]);
    free(r);
}

plumb_status reference_set_tap(struct reference *r, struct tap_sink sink) {
    const struct plan *p = &r->right->plan;
    uint64_t n_weight = (uint64_t)p->max_head * r->n_ctx, n_max = plan_max_row(p), n;   /* of a token */
    uint64_t n_used = plan_max_used_row(p);
    if (n_weight > n_max) n_max = n_weight;
    if (n_used > n_max) n_max = n_used;
    if (p->max_expert > n_max) n_max = p->max_expert;   /* there may be more experts than a row has elements */
    if (sink.on_tap && !r->tapped) {
        r->tapped = mul_u64(n_max, r->n_batch, &n) ? alloc_array(n, sizeof *r->tapped) : NULL;
        if (!r->tapped) return PLUMB_ERROR_MEMORY;
        r->bytes += n * sizeof *r->tapped;
    }
    r->sink = sink;
    return PLUMB_OK;
}

uint64_t reference_bytes(const struct reference *r) { return r->bytes; }

/* Experts in the reference pass:
 * y = sum over the used experts e of weight_e * W_down_e (activation(W_gate_e x) * W_up_e x)
 * plus W_down (activation(W_gate x) * W_up x) of the shared expert, times the sigmoid of its own gate if it has one
 * Shazeer et al. 2017, "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", eq. 1
 *
 * One token after the other, one row of one matrix after the other. */
#include "reference/steps.h"

#include <math.h>
#include <stdlib.h>

static double sigmoid(double z) { return 1 / (1 + exp(-z)); }

static void softmax(double *x, uint32_t n) {
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) max = fmax(max, x[i]);
    for (uint32_t i = 0; i < n; i++) sum += exp(x[i] - max);
    for (uint32_t i = 0; i < n; i++) x[i] = exp(x[i] - max) / sum;
}

/* W x + b of matrix e of n_matrix, times its factor (before the bias).  y (n_out). */
static void multiply(const struct reference *r, const struct affine *of, uint32_t e, const double *x, double *y) {
    uint32_t n_out = of->w->n_out / of->w->n_matrix;
    size_t first = (size_t)e * of->w->n_apart;
    x = reference_rounded(r, of->w, x, 1);
    /* Factors and biases of all experts may be longer than the scratch for a row. */
    double factor = of->s ? (double)((const float *)(const void *)of->s->data)[e] : 1;
    for (uint32_t o = 0; o < n_out; o++) {
        y[o] = factor * reference_dot(reference_row(r, of->w, first + o), x, of->w->n_in);
    }
    const float *bias = of->b ? (const float *)(const void *)of->b->data + (size_t)e * n_out : NULL;
    for (uint32_t o = 0; bias && o < n_out; o++) y[o] += (double)bias[o];
}

/* How many of the n values come before value i, if they are sorted from the largest to the smallest. */
static uint32_t rank_of(const double *values, uint32_t n, uint32_t i) {
    uint32_t rank = 0;
    for (uint32_t j = 0; j < n; j++) rank += values[j] > values[i] || (values[j] == values[i] && j < i);
    return rank;
}

/* True if the group of expert i is among those that may be used: groups are ranked by the sum of their two largest
 * values.  DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2 */
static bool is_in_group(const struct ffn_plan *p, const double *values, uint32_t i) {
    double scores[PLAN_MAX_GROUPS] = { 0 };
    uint32_t n = p->n_group > 1 ? p->n_expert / p->n_group : p->n_expert;
    if (p->n_group <= 1) return true;
    for (uint32_t j = 0; j < p->n_expert; j++) {
        if (rank_of(values + j / n * n, n, j % n) < 2) scores[j / n] += values[j];
    }
    return rank_of(scores, p->n_group, i / n) < p->n_group_used;
}

void reference_router(struct reference *r, uint32_t il, struct batch b, const double *x) {
    const struct affine *w = r->m->layers[il].w;
    const struct ffn_plan *p = &r->plan.layers[il].ffn;
    uint32_t n_embd = r->plan.n_embd, n_used = p->n_used, n_expert = p->n_expert;
    int32_t at = (int32_t)il;
    double *probs = r->scores, *used = r->chosen, *weights = r->chosen + (size_t)b.n * n_used;
    double *biased = r->choice, *masked = r->choice + (size_t)r->n_batch * n_expert;   /* masked: of one token */
    const float *bias = w[W_FFN_EXPERT_BIAS].w ? (const float *)(const void *)w[W_FFN_EXPERT_BIAS].w->data : NULL;
    for (uint32_t t = 0; t < b.n; t++) {
        multiply(r, &w[W_FFN_GATE_INP], 0, x + (size_t)t * n_embd, probs + (size_t)t * n_expert);
    }
    reference_tap(r, TAP_FFN_ROUTER, at, b.pos, b.n, 1, n_expert, probs);

    for (uint32_t t = 0; p->gating == GATING_SOFTMAX && t < b.n; t++) softmax(probs + (size_t)t * n_expert, n_expert);
    for (uint32_t i = 0; p->gating == GATING_SIGMOID && i < b.n * n_expert; i++) probs[i] = sigmoid(probs[i]);
    if (p->gating != GATING_SOFTMAX_USED) reference_tap(r, TAP_FFN_PROBS, at, b.pos, b.n, 1, n_expert, probs);
    for (uint32_t i = 0; i < b.n * n_expert; i++) biased[i] = probs[i] + (bias ? (double)bias[i % n_expert] : 0);
    if (bias) reference_tap(r, TAP_FFN_PROBS_BIASED, at, b.pos, b.n, 1, n_expert, biased);

    for (uint32_t t = 0; t < b.n; t++) {
        const double *choice = biased + (size_t)t * n_expert;
        for (uint32_t k = 0; k < n_used; k++) used[(size_t)t * n_used + k] = k;   /* if scores are NaN */
        for (uint32_t i = 0; i < n_expert; i++) masked[i] = is_in_group(p, choice, i) ? choice[i] : -INFINITY;
        if (r->wrong) r->wrong->choose(r, n_expert, masked);
        for (uint32_t i = 0; i < n_expert; i++) {
            uint32_t rank = rank_of(masked, n_expert, i);
            if (rank < n_used) used[(size_t)t * n_used + rank] = i;
        }
    }
    reference_tap(r, TAP_FFN_USED, at, b.pos, b.n, 1, n_used, used);

    const double *all = r->wrong && r->quirks.router_biased ? biased : probs;
    for (uint32_t i = 0; i < b.n * n_used; i++) weights[i] = all[(size_t)(i / n_used) * n_expert + (uint32_t)used[i]];
    reference_tap(r, TAP_FFN_WEIGHTS, at, b.pos, b.n, n_used, 1, weights);
    if (p->gating == GATING_SOFTMAX_USED) {
        for (uint32_t t = 0; t < b.n; t++) softmax(weights + (size_t)t * n_used, n_used);
        reference_tap(r, TAP_FFN_WEIGHTS_SOFTMAX, at, b.pos, b.n, n_used, 1, weights);
    }
    for (uint32_t t = 0; p->weights_sum_to_1 && t < b.n; t++) {
        double *of_token = weights + (size_t)t * n_used, sum = 0;
        for (uint32_t k = 0; k < n_used; k++) sum += of_token[k];
        sum = fmax(sum, 6.103515625e-5);   /* as in llama.cpp: the smallest normal f16 */
        for (uint32_t k = 0; k < n_used; k++) of_token[k] /= sum;
    }
    if (p->weights_sum_to_1) reference_tap(r, TAP_FFN_WEIGHTS_NORM, at, b.pos, b.n, n_used, 1, weights);
    if (p->weights_scale != 1.0f) {
        for (uint32_t i = 0; i < b.n * n_used; i++) weights[i] *= (double)p->weights_scale;
        reference_tap(r, TAP_FFN_WEIGHTS_SCALED, at, b.pos, b.n, n_used, 1, weights);
    }
    if (r->wrong) r->wrong->use(r, p, b.n, used, weights);
}

/* y (n, n_out): row i is the product of expert used[i] with row i / n_shared of x (n / n_shared, n_in).  used NULL:
 * of the only matrix. */
static void multiply_rows(const struct reference *r, const struct affine *of, const double *used, const double *x,
                          uint32_t n_shared, uint32_t n, double *y) {
    size_t n_out = of->w->n_out / of->w->n_matrix;
    for (size_t i = 0; i < n; i++) {
        multiply(r, of, used ? (uint32_t)used[i] : 0, x + i / n_shared * of->w->n_in, y + i * n_out);
    }
}

/* r->gate (n) <- the activated product of gate and up; without a gate, the activation is that of up */
static void activate(struct reference *r, const struct ffn_plan *p, double limit, bool has_gate, size_t n) {
    for (size_t i = 0; i < n; i++) {
        r->gate[i] = reference_activate(r, p, limit, has_gate ? r->gate[i] : r->up[i], has_gate ? r->up[i] : 1);
    }
}

/* sums (n_token, n_embd) <- the weighted sums of the experts' outputs for x (n_token, n_embd) */
static void used_experts(struct reference *r, uint32_t il, struct batch b, const double *x, double *sums) {
    const struct affine *w = r->m->layers[il].w;
    const struct ffn_plan *p = &r->plan.layers[il].ffn;
    uint32_t n_embd = r->plan.n_embd, n_used = p->n_used, n_ff = p->n_ff_expert, n = b.n * n_used;
    int32_t at = (int32_t)il;
    const double *used = r->chosen, *weights = r->chosen + n;
    double *rows = r->expert_rows;   /* (n_token, n_used, n_embd) */
    for (size_t i = 0; p->weights_first && i < (size_t)n * n_embd; i++) {
        rows[i] = x[i / n_embd / n_used * n_embd + i % n_embd] * weights[i / n_embd];
    }
    if (p->weights_first) reference_tap(r, TAP_EXPERT_WEIGHTED, at, b.pos, b.n, n_used, n_embd, rows);
    const double *in = p->weights_first ? rows : x;
    uint32_t n_shared = p->weights_first ? 1 : n_used;
    if (w[W_FFN_GATE_EXPS].w) {
        multiply_rows(r, &w[W_FFN_GATE_EXPS], used, in, n_shared, n, r->gate);
        reference_tap(r, TAP_EXPERT_GATE, at, b.pos, b.n, n_used, n_ff, r->gate);
    }
    multiply_rows(r, &w[W_FFN_UP_EXPS], used, in, n_shared, n, r->up);
    reference_tap(r, TAP_EXPERT_UP, at, b.pos, b.n, n_used, n_ff, r->up);
    activate(r, p, (double)p->limit, w[W_FFN_GATE_EXPS].w, (size_t)n * n_ff);
    reference_tap(r, TAP_EXPERT_SWIGLU, at, b.pos, b.n, n_used, n_ff, r->gate);
    multiply_rows(r, &w[W_FFN_DOWN_EXPS], used, r->gate, 1, n, rows);
    reference_tap(r, TAP_EXPERT_DOWN, at, b.pos, b.n, n_used, n_embd, rows);
    for (size_t i = 0; !p->weights_first && i < (size_t)n * n_embd; i++) rows[i] *= weights[i / n_embd];
    if (!p->weights_first) reference_tap(r, TAP_EXPERT_WEIGHTED, at, b.pos, b.n, n_used, n_embd, rows);
    memset(sums, 0, (size_t)b.n * n_embd * sizeof *sums);
    for (size_t i = 0; i < (size_t)n * n_embd; i++) sums[i / n_embd / n_used * n_embd + i % n_embd] += rows[i];
    reference_tap(r, TAP_FFN_EXPERTS, at, b.pos, b.n, 1, n_embd, sums);
}

/* out (n_token, n_embd) <- the expert that every token uses, times the sigmoid of its own gate if it has one */
static void shared_expert(struct reference *r, uint32_t il, struct batch b, const double *x, double *out) {
    const struct affine *w = r->m->layers[il].w;
    const struct ffn_plan *p = &r->plan.layers[il].ffn;
    const struct weight *own_gate = w[W_FFN_GATE_INP_SHARED].w;
    uint32_t n_embd = r->plan.n_embd, n_ff = p->n_ff_shared;
    int32_t at = (int32_t)il;
    if (w[W_FFN_GATE_SHARED].w) {
        multiply_rows(r, &w[W_FFN_GATE_SHARED], NULL, x, 1, b.n, r->gate);
        reference_tap(r, TAP_FFN_GATE, at, b.pos, b.n, 1, n_ff, r->gate);
    }
    multiply_rows(r, &w[W_FFN_UP_SHARED], NULL, x, 1, b.n, r->up);
    reference_tap(r, TAP_FFN_UP, at, b.pos, b.n, 1, n_ff, r->up);
    activate(r, p, (double)p->limit_shared, w[W_FFN_GATE_SHARED].w, (size_t)b.n * n_ff);
    reference_tap(r, TAP_FFN_SWIGLU, at, b.pos, b.n, 1, n_ff, r->gate);
    multiply_rows(r, &w[W_FFN_DOWN_SHARED], NULL, r->gate, 1, b.n, out);
    const double *gated = own_gate ? reference_rounded(r, own_gate, x, b.n) : NULL;
    for (uint32_t t = 0; own_gate && t < b.n; t++) {
        r->scores[t] = reference_dot(reference_row(r, own_gate, 0), gated + (size_t)t * n_embd, n_embd);
    }
    if (own_gate) reference_tap(r, TAP_FFN_SHARED_GATE, at, b.pos, b.n, 1, 1, r->scores);
    for (size_t i = 0; own_gate && i < (size_t)b.n * n_embd; i++) out[i] *= sigmoid(r->scores[i / n_embd]);
    reference_tap(r, TAP_FFN_SHARED, at, b.pos, b.n, 1, n_embd, out);
}

/* sums (n_token, n_embd) += the adjugates of the experts that are used, applied to it       Wu et al. 2025, "GroveMoE"
 * Their weights are the probabilities of the experts with the adjugates' numbers, as in llama.cpp. */
static void add_adjugates(struct reference *r, uint32_t il, struct batch b, double *sums) {
    const struct affine *w = r->m->layers[il].w;
    const struct ffn_plan *p = &r->plan.layers[il].ffn;
    uint32_t n_embd = r->plan.n_embd;
    double *x = r->expert_rows, *y = r->expert;   /* of one token */
    for (uint32_t t = 0; t < b.n; t++, sums += n_embd) {
        const double *used = r->chosen + (size_t)t * p->n_used, *probs = r->scores + (size_t)t * p->n_expert;
        double total = 0;
        for (uint32_t k = 0; k < p->n_used; k++) total += probs[(uint32_t)used[k] / (p->n_expert / p->n_adjugate)];
        memcpy(x, sums, n_embd * sizeof *x);
        for (uint32_t k = 0; k < p->n_used; k++) {
            uint32_t e = (uint32_t)used[k] / (p->n_expert / p->n_adjugate);
            multiply(r, &w[W_FFN_GATE_ADJUGATE], e, x, r->gate);
            multiply(r, &w[W_FFN_UP_ADJUGATE], e, x, r->up);
            activate(r, p, 0, true, p->n_ff_adjugate);
            multiply(r, &w[W_FFN_DOWN_ADJUGATE], e, r->gate, y);
            double weight = probs[e] / fmax(total, 6.103515625e-5) * (double)p->adjugate_scale;
            for (uint32_t j = 0; j < n_embd; j++) sums[j] += y[j] * weight;
        }
    }
}

void reference_experts(struct reference *r, uint32_t il, struct batch b, const double *x) {
    double *sums = r->expert + (size_t)r->n_batch * r->plan.n_embd;
    if (!r->plan.layers[il].ffn.router_first) reference_router(r, il, b, x);
    used_experts(r, il, b, x, sums);
    if (r->plan.layers[il].ffn.n_adjugate > 0) add_adjugates(r, il, b, sums);
}

void reference_shared(struct reference *r, uint32_t il, struct batch b, const double *x) {
    const struct ffn_plan *p = &r->plan.layers[il].ffn;
    double *shared = r->expert, *sums = r->expert + (size_t)r->n_batch * r->plan.n_embd;
    double scale = p->output_scale != 0 ? (double)p->output_scale : 1;
    bool has_shared = r->m->layers[il].w[W_FFN_DOWN_SHARED].w != NULL;
    if (has_shared) shared_expert(r, il, b, x, shared);
    for (size_t i = 0; i < (size_t)b.n * r->plan.n_embd; i++) {
        r->h[i] = (sums[i] + (has_shared ? shared[i] : 0)) * scale;
    }
    reference_tap(r, TAP_FFN_OUT, (int32_t)il, b.pos, b.n, 1, r->plan.n_embd, r->h);
}

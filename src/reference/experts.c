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
    /* Factors and biases of all experts may be longer than the scratch for a row. */
    double factor = of->s ? (double)((const float *)(const void *)of->s->data)[e] : 1;
    for (uint32_t o = 0; o < n_out; o++) {
        y[o] = factor * reference_dot(reference_row(r, of->w, (size_t)e * n_out + o), x, of->w->n_in);
    }
    const float *bias = of->b ? (const float *)(const void *)of->b->data + (size_t)e * n_out : NULL;
    for (uint32_t o = 0; bias && o < n_out; o++) y[o] += (double)bias[o];
}

/* y (n_embd) <- the network of expert e for one token x (n_embd); without a gate, the activation is that of up. */
static void network(struct reference *r, const struct ffn_plan *p, const struct affine *gate, const struct affine *up,
                    const struct affine *down, uint32_t e, const double *x, double *y) {
    multiply(r, up, e, x, r->up);
    if (gate->w) multiply(r, gate, e, x, r->gate);
    for (uint32_t i = 0; i < down->w->n_in; i++) {
        r->gate[i] = reference_activate(r, p, gate->w ? r->gate[i] : r->up[i], gate->w ? r->up[i] : 1);
    }
    multiply(r, down, e, r->gate, y);
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

/* Writes the experts of one token to used (n_used), the best one first, and their weights.  scores: (n_expert) of the
 * router; choice: (2, n_expert) scratch. */
static void choose(const struct ffn_plan *p, const float *bias, double *scores, double *choice, double *used,
                   double *weights) {
    double sum = 0;
    if (p->gating == GATING_SOFTMAX) softmax(scores, p->n_expert);
    for (uint32_t i = 0; p->gating == GATING_SIGMOID && i < p->n_expert; i++) scores[i] = sigmoid(scores[i]);
    double *biased = choice + p->n_expert;
    for (uint32_t i = 0; i < p->n_expert; i++) biased[i] = scores[i] + (bias ? (double)bias[i] : 0);
    for (uint32_t i = 0; i < p->n_expert; i++) choice[i] = is_in_group(p, biased, i) ? biased[i] : -INFINITY;
    for (uint32_t i = 0; i < p->n_expert; i++) {
        uint32_t rank = rank_of(choice, p->n_expert, i);
        if (rank >= p->n_used) continue;
        used[rank] = i;
        weights[rank] = scores[i];
    }
    if (p->gating == GATING_SOFTMAX_USED) softmax(weights, p->n_used);
    for (uint32_t k = 0; k < p->n_used; k++) sum += weights[k];
    if (!p->weights_sum_to_1) sum = 1;
    sum = fmax(sum, 6.103515625e-5);   /* as in llama.cpp: the smallest normal f16 */
    for (uint32_t k = 0; k < p->n_used; k++) weights[k] *= (double)p->weights_scale / sum;
}

void reference_router(struct reference *r, uint32_t il, struct batch b, const double *x) {
    const struct affine *w = r->m->layers[il].w;
    const struct ffn_plan *p = &r->plan.layers[il].ffn;
    uint32_t n_embd = r->plan.n_embd, n_used = p->n_used;
    int32_t at = (int32_t)il;
    double *used = r->chosen, *weights = r->chosen + (size_t)b.n * n_used;
    const struct weight *bias = w[W_FFN_EXPERT_BIAS].w;
    for (uint32_t t = 0; t < b.n; t++) {
        multiply(r, &w[W_FFN_GATE_INP], 0, x + (size_t)t * n_embd, r->scores + (size_t)t * p->n_expert);
    }
    reference_tap(r, TAP_FFN_ROUTER, at, b.pos, b.n, 1, p->n_expert, r->scores);
    for (uint32_t t = 0; t < b.n; t++) {
        choose(p, bias ? (const float *)(const void *)bias->data : NULL, r->scores + (size_t)t * p->n_expert, r->choice,
               used + (size_t)t * n_used, weights + (size_t)t * n_used);
    }
    reference_tap(r, TAP_FFN_USED, at, b.pos, b.n, 1, n_used, used);
    reference_tap(r, TAP_FFN_WEIGHTS, at, b.pos, b.n, 1, n_used, weights);
}

void reference_experts(struct reference *r, uint32_t il, struct batch b, const double *x) {
    const struct affine *w = r->m->layers[il].w;
    const struct ffn_plan *p = &r->plan.layers[il].ffn;
    uint32_t n_embd = r->plan.n_embd, n_used = p->n_used;
    size_t n_x = (size_t)b.n * n_embd;
    int32_t at = (int32_t)il;
    const double *used = r->chosen, *weights = r->chosen + (size_t)b.n * n_used;
    double *sums = r->expert + n_x, scale = p->output_scale != 0 ? (double)p->output_scale : 1;
    const struct weight *shared_gate = w[W_FFN_GATE_INP_SHARED].w;
    if (!p->router_first) reference_router(r, il, b, x);
    memset(sums, 0, n_x * sizeof *sums);
    for (uint32_t i = 0; i < b.n * n_used; i++) {
        double *in = r->expert + 2 * (size_t)r->n_batch * n_embd, *out = in + n_embd;
        double *sum = sums + (size_t)(i / n_used) * n_embd;
        double before = p->weights_first ? weights[i] : 1, after = p->weights_first ? 1 : weights[i];
        for (uint32_t j = 0; j < n_embd; j++) in[j] = x[(size_t)(i / n_used) * n_embd + j] * before;
        network(r, p, &w[W_FFN_GATE_EXPS], &w[W_FFN_UP_EXPS], &w[W_FFN_DOWN_EXPS], (uint32_t)used[i], in, out);
        for (uint32_t j = 0; j < n_embd; j++) sum[j] += out[j] * after;
    }
    reference_tap(r, TAP_FFN_EXPERTS, at, b.pos, b.n, 1, n_embd, sums);
    for (uint32_t t = 0; w[W_FFN_DOWN_SHARED].w && t < b.n; t++) {
        const double *own = x + (size_t)t * n_embd;
        double *out = r->expert + (size_t)t * n_embd;
        network(r, p, &w[W_FFN_GATE_SHARED], &w[W_FFN_UP_SHARED], &w[W_FFN_DOWN_SHARED], 0, own, out);
        double factor = shared_gate ? sigmoid(reference_dot(reference_row(r, shared_gate, 0), own, n_embd)) : 1;
        for (uint32_t j = 0; j < n_embd; j++) out[j] *= factor;
    }
    if (w[W_FFN_DOWN_SHARED].w) reference_tap(r, TAP_FFN_SHARED, at, b.pos, b.n, 1, n_embd, r->expert);
    for (size_t i = 0; i < n_x; i++) r->h[i] = (sums[i] + (w[W_FFN_DOWN_SHARED].w ? r->expert[i] : 0)) * scale;
    reference_tap(r, TAP_FFN_OUT, at, b.pos, b.n, 1, n_embd, r->h);
}

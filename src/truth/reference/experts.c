/* Experts in the reference pass:
 * y = sum over the used experts e of weight_e * W_down_e (activation(W_gate_e x) * W_up_e x)
 * plus W_down (activation(W_gate x) * W_up x) of the shared expert, times the sigmoid of its own gate if it has one
 * Shazeer et al. 2017, "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", eq. 1
 *
 * One token after the other, one row of one matrix after the other. */
#include "reference/softmax.h"
#include "reference/steps.h"

#include <math.h>
#include <stdlib.h>

static double sigmoid(double z) { return 1 / (1 + exp(-z)); }

/* W x + b of matrix e of n_matrix, times its factor (before the bias).  y (n_out). */
static void multiply(const struct reference *r, const struct affine *of, uint32_t e, const double *x, double *y) {
    uint32_t n_out = of->w->n_out / of->w->n_matrix;
    size_t first = (size_t)e * of->w->n_apart;
    const double *own = x;
    x = r->steps.input(r, of->w, x, 1);
    /* Factors and biases of all experts may be longer than the scratch for a row. */
    double factor = of->s ? (double)((const float *)(const void *)of->s->data)[e] : 1;
    for (uint32_t o = 0; o < n_out; o++) {
        y[o] = factor * reference_dot(reference_row(r, of->w, first + o), x, of->w->n_in);
    }
    const struct weight expert = weight_expert(of->w, e);
    if (r->adapters) reference_adapt(r, &expert, own, 1, y);
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

void reference_softmax(struct reference *r, const struct call *c) {
    uint32_t n = c->s->n_head * c->s->n;
    (void)r;
    for (size_t t = 0; t < c->b.n; t++) softmax(c->out + t * n, n, 1);
}

void reference_sigmoid(struct reference *r, const struct call *c) {
    (void)r;
    for (size_t i = 0; i < c->n; i++) c->out[i] = sigmoid(c->in[i]);
}

void reference_best(struct reference *r, const struct call *c) {
    const struct ffn_plan *p = &c->layer->ffn;
    for (uint32_t t = 0; t < c->b.n; t++) {
        const double *choice = c->in + (size_t)t * p->n_expert;
        double *used = c->out + (size_t)t * p->n_used;
        for (uint32_t k = 0; k < p->n_used; k++) used[k] = k;   /* if scores are NaN */
        for (uint32_t i = 0; i < p->n_expert; i++) {
            r->masked[i] = is_in_group(p, choice, i) ? r->steps.choice(choice[i]) : -INFINITY;
        }
        for (uint32_t i = 0; i < p->n_expert; i++) {
            uint32_t rank = rank_of(r->masked, p->n_expert, i);
            if (rank < p->n_used) used[rank] = i;
        }
    }
}

void reference_take(struct reference *r, const struct call *c) {
    const struct ffn_plan *p = &c->layer->ffn;
    const double *biased = r->m->layers[c->il].w[W_FFN_EXPERT_BIAS].w ? r->streams[STREAM_CHOICE] : c->in;
    const double *in = r->steps.weighed(c->in, biased), *used = r->streams[STREAM_USED];
    for (size_t i = 0; i < c->n; i++) c->out[i] = in[i / p->n_used * p->n_expert + (uint32_t)used[i]];
}

void reference_sum_to_1(struct reference *r, const struct call *c) {
    uint32_t n = c->layer->ffn.n_used;
    (void)r;
    for (uint32_t t = 0; t < c->b.n; t++) {
        double *weights = c->out + (size_t)t * n, sum = 0;
        for (uint32_t k = 0; k < n; k++) sum += weights[k];
        sum = fmax(sum, 6.103515625e-5);   /* as in llama.cpp: the smallest normal f16 */
        for (uint32_t k = 0; k < n; k++) weights[k] /= sum;
    }
}

const double *reference_weighed(const double *probs, const double *biased) { return (void)biased, probs; }
uint32_t reference_expert(uint32_t e, uint32_t n_expert) { return (void)n_expert, e; }
uint32_t reference_weight_place(uint32_t k, uint32_t n_used) { return (void)n_used, k; }

/* The weight of row i of the experts' inputs or outputs (n_token, n_used, n_embd). */
static double weight_of(const struct reference *r, const double *weights, uint32_t n_used, size_t i) {
    return weights[i - i % n_used + r->steps.weight_place((uint32_t)(i % n_used), n_used)];
}

/* y (n, n_out): row i is the product of expert used[i] with row i / n_shared of x (n / n_shared, n_in). */
static void multiply_rows(const struct reference *r, const struct affine *of, const double *used, const double *x,
                          uint32_t n_shared, uint32_t n, double *y) {
    size_t n_out = of->w->n_out / of->w->n_matrix;
    for (size_t i = 0; i < n; i++) multiply(r, of, (uint32_t)used[i], x + i / n_shared * of->w->n_in, y + i * n_out);
}

/* gate (n) <- the activated product of gate and up; without a gate, the activation is that of up */
static void activate(const struct reference *r, const struct ffn_plan *p, double limit, bool has_gate, size_t n) {
    double *gate = r->streams[STREAM_FF_GATE], *up = r->streams[STREAM_FF_UP];
    for (size_t i = 0; i < n; i++) {
        gate[i] = reference_activate(r, p, p->activation, limit, has_gate ? gate[i] : up[i], has_gate ? up[i] : 1);
    }
}

/* out (n_token, n_embd) <- the weighted sums of the experts' outputs for in (n_token, n_embd) */
void reference_experts(struct reference *r, const struct call *c) {
    const struct affine *w = r->m->layers[c->il].w;
    const struct ffn_plan *p = &c->layer->ffn;
    uint32_t n_embd = c->s->n, n_used = p->n_used, n_ff = p->n_ff_expert, pos = c->b.pos, n = c->b.n * n_used;
    int32_t at = (int32_t)c->il;
    double *used = r->streams[STREAM_USED], *weights = r->streams[STREAM_WEIGHTS];
    double *gate = r->streams[STREAM_FF_GATE], *up = r->streams[STREAM_FF_UP];
    double *rows = r->expert_rows;   /* (n_token, n_used, n_embd) */
    for (uint32_t i = 0; i < n; i++) used[i] = r->steps.expert((uint32_t)used[i], p->n_expert);
    for (size_t i = 0; p->weights_first && i < (size_t)n * n_embd; i++) {
        rows[i] = c->in[i / n_embd / n_used * n_embd + i % n_embd] * weight_of(r, weights, n_used, i / n_embd);
    }
    if (p->weights_first) reference_tap(r, TAP_EXPERT_WEIGHTED, at, pos, c->b.n, n_used, n_embd, rows);
    const double *in = p->weights_first ? rows : c->in;
    uint32_t n_shared = p->weights_first ? 1 : n_used;
    if (w[W_FFN_GATE_EXPS].w) {
        multiply_rows(r, &w[W_FFN_GATE_EXPS], used, in, n_shared, n, gate);
        reference_tap(r, TAP_EXPERT_GATE, at, pos, c->b.n, n_used, n_ff, gate);
    }
    multiply_rows(r, &w[W_FFN_UP_EXPS], used, in, n_shared, n, up);
    reference_tap(r, TAP_EXPERT_UP, at, pos, c->b.n, n_used, n_ff, up);
    activate(r, p, (double)p->limit, w[W_FFN_GATE_EXPS].w, (size_t)n * n_ff);
    reference_tap(r, TAP_EXPERT_SWIGLU, at, pos, c->b.n, n_used, n_ff, gate);
    multiply_rows(r, &w[W_FFN_DOWN_EXPS], used, gate, 1, n, rows);
    reference_tap(r, TAP_EXPERT_DOWN, at, pos, c->b.n, n_used, n_embd, rows);
    for (size_t i = 0; !p->weights_first && i < (size_t)n * n_embd; i++) {
        rows[i] *= weight_of(r, weights, n_used, i / n_embd);
    }
    if (!p->weights_first) reference_tap(r, TAP_EXPERT_WEIGHTED, at, pos, c->b.n, n_used, n_embd, rows);
    memset(c->out, 0, c->n * sizeof *c->out);
    for (size_t i = 0; i < (size_t)n * n_embd; i++) c->out[i / n_embd / n_used * n_embd + i % n_embd] += rows[i];
}

/* The sigmoid of the gate of the expert that every token uses */
void reference_gate_shared(struct reference *r, const struct call *c) {
    uint32_t n_embd = c->s->n;
    const double *in = r->steps.input(r, c->w->w, c->in, c->b.n);
    for (uint32_t t = 0; t < c->b.n; t++) {
        r->gates[t] = reference_dot(reference_row(r, c->w->w, 0), in + (size_t)t * n_embd, n_embd);
    }
    if (r->adapters) reference_adapt(r, c->w->w, c->in, c->b.n, r->gates);
    reference_tap(r, TAP_FFN_SHARED_GATE, (int32_t)c->il, c->b.pos, c->b.n, 1, 1, r->gates);
    for (size_t i = 0; i < c->n; i++) c->out[i] *= sigmoid(r->gates[i / n_embd]);
}

/* The adjugates of the experts that are used, applied to their sum             Wu et al. 2025, "GroveMoE"
 * Their weights are the probabilities of the experts with the adjugates' numbers, as in llama.cpp. */
void reference_adjugates(struct reference *r, const struct call *c) {
    const struct affine *w = r->m->layers[c->il].w;
    const struct ffn_plan *p = &c->layer->ffn;
    uint32_t n_embd = c->s->n, n_shared = p->n_expert / p->n_adjugate;
    for (uint32_t t = 0; t < c->b.n; t++) {
        const double *used = r->streams[STREAM_USED] + (size_t)t * p->n_used, *x = c->in + (size_t)t * n_embd;
        const double *probs = r->streams[STREAM_SCORES] + (size_t)t * p->n_expert;
        double total = 0, *out = c->out + (size_t)t * n_embd;
        for (uint32_t k = 0; k < p->n_used; k++) total += probs[(uint32_t)used[k] / n_shared];
        for (uint32_t k = 0; k < p->n_used; k++) {
            uint32_t e = (uint32_t)used[k] / n_shared;
            multiply(r, &w[W_FFN_GATE_ADJUGATE], e, x, r->streams[STREAM_FF_GATE]);
            multiply(r, &w[W_FFN_UP_ADJUGATE], e, x, r->streams[STREAM_FF_UP]);
            activate(r, p, 0, true, p->n_ff_adjugate);
            multiply(r, &w[W_FFN_DOWN_ADJUGATE], e, r->streams[STREAM_FF_GATE], r->expert_row);
            double weight = probs[e] / fmax(total, 6.103515625e-5) * (double)p->adjugate_scale;
            for (uint32_t j = 0; j < n_embd; j++) out[j] += r->expert_row[j] * weight;
        }
    }
}

/* Experts in the fast pass: a router chooses a few of many feed-forward networks for each token.
 * Shazeer et al. 2017, "Outrageously Large Neural Networks"; groups and biases: DeepSeek-AI 2024, "DeepSeek-V3".
 *
 * Of the weights, only those of the chosen experts are read.  Tokens of a batch that use the same expert are multiplied
 * together.  A token's sum adds its experts in ascending order, whatever the batch, so its bits do not depend on it. */
#include "forward/steps.h"

#include "base/math.h"

#include <math.h>

/* The smallest sum that weights are divided by, as in llama.cpp: the smallest normal f16. */
#define MIN_WEIGHT_SUM 6.103515625e-5f

static float sigmoid(float z) { return (float)(1.0 / (1.0 + math_exp(-(double)z))); }

/* Writes the indices of the n_best largest of n values to best, the largest first, and of equals the first one. */
static void find_best(const float *values, uint32_t n, uint32_t n_best, uint32_t *best) {
    for (uint32_t k = 0; k < n_best; k++) {
        uint32_t top = UINT32_MAX;
        for (uint32_t i = 0; i < n; i++) {
            bool is_taken = false;
            for (uint32_t j = 0; j < k; j++) is_taken = is_taken || best[j] == i;
            if (!is_taken && (top == UINT32_MAX || values[i] > values[top])) top = i;
        }
        best[k] = top;
    }
}

/* The sum of the two largest of n values. */
static float best_two(const float *values, uint32_t n) {
    uint32_t best[2];
    if (n == 1) return values[0];
    find_best(values, n, 2, best);
    return values[best[0]] + values[best[1]];
}

/* Lowers the values of all groups but the best n_group_used to -infinity. */
static void keep_groups(const struct ffn_plan *p, float *values) {
    float scores[PLAN_MAX_GROUPS];
    uint32_t best[PLAN_MAX_GROUPS];
    if (p->n_group <= 1) return;
    uint32_t n = p->n_expert / p->n_group;
    for (uint32_t g = 0; g < p->n_group; g++) scores[g] = best_two(values + g * n, n);
    find_best(scores, p->n_group, p->n_group_used, best);
    for (uint32_t g = 0; g < p->n_group; g++) {
        bool is_used = false;
        for (uint32_t k = 0; k < p->n_group_used; k++) is_used = is_used || best[k] == g;
        for (uint32_t i = 0; !is_used && i < n; i++) values[g * n + i] = -INFINITY;
    }
}

/* Chooses the experts of one token by its scores (n_expert), which become probabilities. */
static void choose(const struct forward *f, const struct ffn_plan *p, const float *bias, float *scores, uint32_t *used,
                   float *weights) {
    float *choice = f->experts.choice, sum = 0.0f;
    if (p->gating == GATING_SOFTMAX) f->kernels.softmax(scores, p->n_expert);
    for (uint32_t i = 0; p->gating == GATING_SIGMOID && i < p->n_expert; i++) scores[i] = sigmoid(scores[i]);
    for (uint32_t i = 0; i < p->n_expert; i++) choice[i] = scores[i] + (bias ? bias[i] : 0.0f);
    keep_groups(p, choice);
    find_best(choice, p->n_expert, p->n_used, used);
    for (uint32_t k = 0; k < p->n_used; k++) weights[k] = scores[used[k]];
    if (p->gating == GATING_SOFTMAX_USED) f->kernels.softmax(weights, p->n_used);
    for (uint32_t k = 0; k < p->n_used; k++) sum += weights[k];
    if (!(sum > MIN_WEIGHT_SUM) && sum == sum) sum = MIN_WEIGHT_SUM;
    for (uint32_t k = 0; k < p->n_used; k++) {
        weights[k] = (p->weights_sum_to_1 ? weights[k] / sum : weights[k]) * p->weights_scale;
    }
}

/* A weight of expert e, with its bias and its factor.  parts: where they are kept. */
static struct affine expert_of(const struct affine *of, uint32_t e, struct weight parts[3]) {
    if (!of->w) return (struct affine) { NULL, NULL, NULL };
    parts[0] = weight_expert(of->w, e);
    if (of->b) {
        parts[1] = *of->b;
        parts[1].data += (size_t)e * parts[0].n_out * sizeof(float);
    }
    if (of->s) {
        parts[2] = *of->s;
        parts[2].data += (size_t)e * sizeof(float);
    }
    return (struct affine) { &parts[0], of->b ? &parts[1] : NULL, of->s ? &parts[2] : NULL };
}

/* Adds the outputs of expert e to f->experts.out, for the tokens that use it. */
static void run_expert(struct forward *f, uint32_t il, struct batch b, uint32_t e, const float *x) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    const struct affine *w = f->model->layers[il].w;
    struct expert_scratch *s = &f->experts;
    uint32_t n_embd = f->model->plan.n_embd, n = 0;
    struct weight parts[3][3];
    const struct affine gate = expert_of(&w[W_FFN_GATE_EXPS], e, parts[0]);
    const struct affine up = expert_of(&w[W_FFN_UP_EXPS], e, parts[1]);
    const struct affine down = expert_of(&w[W_FFN_DOWN_EXPS], e, parts[2]);
    const struct ffn_weights network = { &gate, &up, &down, p->n_ff_expert, false, false };
    for (uint32_t i = 0; i < b.n * p->n_used; i++) {
        if (s->used[i] != e) continue;
        const float *row = x + (size_t)(i / p->n_used) * n_embd;
        float factor = p->weights_first ? s->weights[i] : 1.0f;
        for (uint32_t j = 0; j < n_embd; j++) s->x[(size_t)n * n_embd + j] = row[j] * factor;
        s->tokens[n++] = i;
    }
    if (n == 0) return;
    forward_feed_forward(f, &network, il, (struct batch) { n, b.pos }, s->x, s->y);
    for (uint32_t k = 0; k < n; k++) {
        float factor = p->weights_first ? 1.0f : s->weights[s->tokens[k]];
        float *out = s->out + (size_t)(s->tokens[k] / p->n_used) * n_embd;
        f->kernels.add_scaled(out, s->y + (size_t)k * n_embd, factor, n_embd);
    }
}

/* f->experts.out += the network that every token uses, times the sigmoid of its own gate if it has one. */
static void run_shared(struct forward *f, uint32_t il, struct batch b, const float *x) {
    const struct affine *w = f->model->layers[il].w;
    const struct ffn_weights shared = { &w[W_FFN_GATE_SHARED], &w[W_FFN_UP_SHARED], &w[W_FFN_DOWN_SHARED],
                                        f->model->plan.layers[il].ffn.n_ff_shared, true, false };
    const struct weight *gate = w[W_FFN_GATE_INP_SHARED].w;
    struct expert_scratch *s = &f->experts;
    uint32_t n_embd = f->model->plan.n_embd;
    forward_feed_forward(f, &shared, il, b, x, s->y);
    for (uint32_t t = 0; gate && t < b.n; t++) {
        float factor = sigmoid(f->kernels.dot_f32(weight_floats(gate), x + (size_t)t * n_embd, n_embd));
        for (uint32_t i = 0; i < n_embd; i++) s->y[(size_t)t * n_embd + i] *= factor;
    }
    forward_tap(f, TAP_FFN_SHARED, (int32_t)il, b.pos, b.n, 1, n_embd, s->y);
    f->kernels.add_scaled(s->out, s->y, 1.0f, (size_t)b.n * n_embd);
}

void forward_router(struct forward *f, uint32_t il, struct batch b, const float *x) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    const struct affine *w = f->model->layers[il].w;
    const struct weight *bias = w[W_FFN_EXPERT_BIAS].w;
    struct expert_scratch *s = &f->experts;
    uint32_t n_used = p->n_used;
    int32_t at = (int32_t)il;
    const struct product router = { TAP_FFN_ROUTER, &w[W_FFN_GATE_INP], s->scores, 1, false, 0.0f };
    forward_multiply(f, x, b.n, at, b.pos, &router, 1);
    for (uint32_t t = 0; t < b.n; t++) {
        choose(f, p, bias ? weight_floats(bias) : NULL, s->scores + (size_t)t * p->n_expert, s->used + t * n_used,
               s->weights + t * n_used);
    }
    for (uint32_t i = 0; i < b.n * n_used; i++) s->ids[i] = (float)s->used[i];
    forward_tap(f, TAP_FFN_USED, at, b.pos, b.n, 1, n_used, s->ids);
    forward_tap(f, TAP_FFN_WEIGHTS, at, b.pos, b.n, 1, n_used, s->weights);
}

void forward_experts(struct forward *f, uint32_t il, struct batch b, const float *x) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    struct expert_scratch *s = &f->experts;
    uint32_t n_embd = f->model->plan.n_embd;
    int32_t at = (int32_t)il;
    if (!p->router_first) forward_router(f, il, b, x);
    memset(s->out, 0, (size_t)b.n * n_embd * sizeof *s->out);
    for (uint32_t e = 0; e < p->n_expert; e++) run_expert(f, il, b, e, x);
    forward_tap(f, TAP_FFN_EXPERTS, at, b.pos, b.n, 1, n_embd, s->out);
    if (f->model->layers[il].w[W_FFN_DOWN_SHARED].w) run_shared(f, il, b, x);
    float scale = p->output_scale != 0.0f ? p->output_scale : 1.0f;
    for (size_t i = 0; i < (size_t)b.n * n_embd; i++) f->norm[i] = s->out[i] * scale;
    forward_tap(f, TAP_FFN_OUT, at, b.pos, b.n, 1, n_embd, f->norm);
}

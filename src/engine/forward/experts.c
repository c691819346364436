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

/* Adds the outputs of expert e of `all` to f->experts.out, for the tokens that use it. */
static void run_expert(struct forward *f, uint32_t il, struct batch b, const struct ffn_weights *all, uint32_t e,
                       const float *x) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    struct expert_scratch *s = &f->experts;
    uint32_t n_embd = f->model->plan.n_embd, n = 0;
    struct weight parts[3][3];
    const struct affine gate = expert_of(all->gate, e, parts[0]);
    const struct affine up = expert_of(all->up, e, parts[1]);
    const struct affine down = expert_of(all->down, e, parts[2]);
    struct ffn_weights network = *all;
    network.gate = &gate;
    network.up = &up;
    network.down = &down;
    enum tap_id weighted = all->taps[3] == TAP_EXPERT_DOWN ? TAP_EXPERT_WEIGHTED : TAP_COUNT;
    for (uint32_t i = 0; i < b.n * p->n_used; i++) {
        if (s->used[i] != e) continue;
        const float *row = x + (size_t)(i / p->n_used) * n_embd;
        float factor = p->weights_first ? s->weights[i] : 1.0f;
        for (uint32_t j = 0; j < n_embd; j++) s->x[(size_t)n * n_embd + j] = row[j] * factor;
        s->tokens[n++] = i;
    }
    if (n == 0) return;
    if (p->weights_first) forward_tap(f, weighted, (int32_t)il, b.pos, n, 1, n_embd, s->x);
    forward_feed_forward(f, &network, il, (struct batch) { n, b.pos, NULL }, s->x, s->y);
    for (uint32_t k = 0; k < n; k++) {
        float factor = p->weights_first ? 1.0f : s->weights[s->tokens[k]];
        float *out = s->out + (size_t)(s->tokens[k] / p->n_used) * n_embd;
        f->kernels.add_scaled(out, s->y + (size_t)k * n_embd, factor, n_embd);
        for (uint32_t j = 0; f->sink.on_tap && j < n_embd; j++) s->y[(size_t)k * n_embd + j] *= factor;
    }
    if (!p->weights_first) forward_tap(f, weighted, (int32_t)il, b.pos, n, 1, n_embd, s->y);
}

/* f->experts.out += the network that every token uses, times the sigmoid of its own gate if it has one. */
static void run_shared(struct forward *f, uint32_t il, struct batch b, const float *x) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    const struct affine *w = f->model->layers[il].w;
    const struct ffn_weights shared = { &w[W_FFN_GATE_SHARED], &w[W_FFN_UP_SHARED], &w[W_FFN_DOWN_SHARED],
                                        p->n_ff_shared, p->limit_shared, true, false,
                                        { TAP_FFN_GATE, TAP_FFN_UP, TAP_FFN_SWIGLU, TAP_COUNT } };
    const struct weight *gate = w[W_FFN_GATE_INP_SHARED].w;
    struct expert_scratch *s = &f->experts;
    uint32_t n_embd = f->model->plan.n_embd;
    forward_feed_forward(f, &shared, il, b, x, s->y);
    for (uint32_t t = 0; gate && t < b.n; t++) {
        s->gate[t] = f->kernels.dot_f32(weight_floats(gate), x + (size_t)t * n_embd, n_embd);
        float factor = sigmoid(s->gate[t]);
        for (uint32_t i = 0; i < n_embd; i++) s->y[(size_t)t * n_embd + i] *= factor;
    }
    if (gate) forward_tap(f, TAP_FFN_SHARED_GATE, (int32_t)il, b.pos, b.n, 1, 1, s->gate);
    forward_tap(f, TAP_FFN_SHARED, (int32_t)il, b.pos, b.n, 1, n_embd, s->y);
    f->kernels.add_scaled(s->out, s->y, 1.0f, (size_t)b.n * n_embd);
}

/* What the router's scores (n_token, n_expert) become: probabilities, and those with the bias in f->experts.choice. */
static void find_probabilities(struct forward *f, uint32_t il, struct batch b) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    const struct weight *bias = f->model->layers[il].w[W_FFN_EXPERT_BIAS].w;
    struct expert_scratch *s = &f->experts;
    size_t n = (size_t)b.n * p->n_expert;
    int32_t at = (int32_t)il;
    for (uint32_t t = 0; p->gating == GATING_SOFTMAX && t < b.n; t++) {
        f->kernels.softmax(s->scores + (size_t)t * p->n_expert, p->n_expert);
    }
    for (size_t i = 0; p->gating == GATING_SIGMOID && i < n; i++) s->scores[i] = sigmoid(s->scores[i]);
    if (p->gating != GATING_SOFTMAX_USED) forward_tap(f, TAP_FFN_PROBS, at, b.pos, b.n, 1, p->n_expert, s->scores);
    for (size_t i = 0; i < n; i++) {
        s->choice[i] = s->scores[i] + (bias ? weight_floats(bias)[i % p->n_expert] : 0.0f);
    }
    if (bias) forward_tap(f, TAP_FFN_PROBS_BIASED, at, b.pos, b.n, 1, p->n_expert, s->choice);
}

/* f->experts.weights (n_token, n_used): from the probabilities of the experts that are used to their weights. */
static void find_weights(struct forward *f, uint32_t il, struct batch b) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    uint32_t n = p->n_used;
    float *weights = f->experts.weights;
    int32_t at = (int32_t)il;
    forward_tap(f, TAP_FFN_WEIGHTS, at, b.pos, b.n, n, 1, weights);
    if (p->gating == GATING_SOFTMAX_USED) {
        for (uint32_t t = 0; t < b.n; t++) f->kernels.softmax(weights + (size_t)t * n, n);
        forward_tap(f, TAP_FFN_WEIGHTS_SOFTMAX, at, b.pos, b.n, n, 1, weights);
    }
    if (p->weights_sum_to_1) {
        for (uint32_t t = 0; t < b.n; t++) {
            float *of_token = weights + (size_t)t * n, sum = 0.0f;
            for (uint32_t k = 0; k < n; k++) sum += of_token[k];
            if (!(sum > MIN_WEIGHT_SUM) && sum == sum) sum = MIN_WEIGHT_SUM;
            for (uint32_t k = 0; k < n; k++) of_token[k] /= sum;
        }
        forward_tap(f, TAP_FFN_WEIGHTS_NORM, at, b.pos, b.n, n, 1, weights);
    }
    if (p->weights_scale != 1.0f) {
        for (size_t i = 0; i < (size_t)b.n * n; i++) weights[i] *= p->weights_scale;
        forward_tap(f, TAP_FFN_WEIGHTS_SCALED, at, b.pos, b.n, n, 1, weights);
    }
}

void forward_router(struct forward *f, uint32_t il, struct batch b, const float *x) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    struct expert_scratch *s = &f->experts;
    uint32_t n_used = p->n_used;
    int32_t at = (int32_t)il;
    const struct product router = { TAP_FFN_ROUTER, &f->model->layers[il].w[W_FFN_GATE_INP], s->scores, 1, false,
                                    0.0f };
    forward_multiply(f, x, b.n, at, b.pos, &router, 1);
    find_probabilities(f, il, b);
    for (uint32_t t = 0; t < b.n; t++) {
        keep_groups(p, s->choice + (size_t)t * p->n_expert);
        find_best(s->choice + (size_t)t * p->n_expert, p->n_expert, n_used, s->used + (size_t)t * n_used);
    }
    /* A trained router uses all experts about equally; the scores of a rehearsal are all 0, and would choose the same
     * ones for every token. */
    for (uint32_t i = 0; f->model->is_rehearsed && i < b.n * n_used; i++) {
        s->used[i] = (uint32_t)(((uint64_t)b.pos * n_used + i) % p->n_expert);
    }
    for (uint32_t i = 0; i < b.n * n_used; i++) {
        s->ids[i] = (float)s->used[i];
        s->weights[i] = s->scores[(size_t)(i / n_used) * p->n_expert + s->used[i]];
    }
    forward_tap(f, TAP_FFN_USED, at, b.pos, b.n, 1, n_used, s->ids);
    find_weights(f, il, b);
}

/* Tells the sink what the taps of all experts have collected. */
static void show_experts(const struct forward *f, uint32_t il, struct batch b) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    for (enum tap_id id = TAP_EXPERT_GATE; f->sink.on_tap && id <= TAP_EXPERT_WEIGHTED; id++) {
        uint32_t n = id < TAP_EXPERT_DOWN ? p->n_ff_expert : f->model->plan.n_embd;
        if (id == TAP_EXPERT_GATE && !f->model->layers[il].w[W_FFN_GATE_EXPS].w) continue;
        f->sink.on_tap(f->sink.user, &(plumb_tap) { tap_spec(id)->name, (int32_t)il, b.pos, b.n, p->n_used, n,
                                                    f->experts.shown[id - TAP_EXPERT_GATE] });
    }
}

/* f->experts.out += the adjugates of the experts that are used, applied to it.  Their weights are the probabilities
 * of the experts with the adjugates' numbers, as in llama.cpp.  Overwrites f->norm. */
static void run_adjugates(struct forward *f, uint32_t il, struct batch b) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    const struct affine *w = f->model->layers[il].w;
    struct expert_scratch *s = &f->experts;
    const struct ffn_weights all = { &w[W_FFN_GATE_ADJUGATE], &w[W_FFN_UP_ADJUGATE], &w[W_FFN_DOWN_ADJUGATE],
                                     p->n_ff_adjugate, 0.0f, false, false,
                                     { TAP_COUNT, TAP_COUNT, TAP_COUNT, TAP_COUNT } };
    for (uint32_t t = 0; t < b.n; t++) {
        uint32_t *used = s->used + (size_t)t * p->n_used;
        float *weights = s->weights + (size_t)t * p->n_used, sum = 0.0f;
        for (uint32_t k = 0; k < p->n_used; k++) {
            used[k] /= p->n_expert / p->n_adjugate;
            weights[k] = s->scores[(size_t)t * p->n_expert + used[k]];
            sum += weights[k];
        }
        if (!(sum > MIN_WEIGHT_SUM) && sum == sum) sum = MIN_WEIGHT_SUM;
        for (uint32_t k = 0; k < p->n_used; k++) {
            uint32_t first = 0;   /* experts with the same adjugate use it once, with the sum of their weights */
            weights[k] *= p->adjugate_scale / sum;
            while (used[first] != used[k]) first++;
            if (first == k) continue;
            weights[first] += weights[k];
            used[k] = UINT32_MAX;
        }
    }
    memcpy(f->norm, s->out, (size_t)b.n * f->model->plan.n_embd * sizeof *s->out);
    for (uint32_t e = 0; e < p->n_adjugate; e++) run_expert(f, il, b, &all, e, f->norm);
}

void forward_experts(struct forward *f, uint32_t il, struct batch b, const float *x) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    const struct affine *w = f->model->layers[il].w;
    struct expert_scratch *s = &f->experts;
    uint32_t n_embd = f->model->plan.n_embd;
    const struct ffn_weights all = { &w[W_FFN_GATE_EXPS], &w[W_FFN_UP_EXPS], &w[W_FFN_DOWN_EXPS], p->n_ff_expert,
                                     p->limit, false, false,
                                     { TAP_EXPERT_GATE, TAP_EXPERT_UP, TAP_EXPERT_SWIGLU, TAP_EXPERT_DOWN } };
    if (!p->router_first) forward_router(f, il, b, x);
    memset(s->out, 0, (size_t)b.n * n_embd * sizeof *s->out);
    for (uint32_t e = 0; e < p->n_expert; e++) run_expert(f, il, b, &all, e, x);
    show_experts(f, il, b);
    forward_tap(f, TAP_FFN_EXPERTS, (int32_t)il, b.pos, b.n, 1, n_embd, s->out);
    if (p->n_adjugate > 0) run_adjugates(f, il, b);
}

void forward_shared(struct forward *f, uint32_t il, struct batch b, const float *x) {
    const struct ffn_plan *p = &f->model->plan.layers[il].ffn;
    struct expert_scratch *s = &f->experts;
    uint32_t n_embd = f->model->plan.n_embd;
    if (f->model->layers[il].w[W_FFN_DOWN_SHARED].w) run_shared(f, il, b, x);
    float scale = p->output_scale != 0.0f ? p->output_scale : 1.0f;
    for (size_t i = 0; i < (size_t)b.n * n_embd; i++) f->norm[i] = s->out[i] * scale;
    forward_tap(f, TAP_FFN_OUT, (int32_t)il, b.pos, b.n, 1, n_embd, f->norm);
}

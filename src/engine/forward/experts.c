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
    if (!of->w) return (struct affine) { .w = NULL };
    parts[0] = weight_expert(of->w, e);
    if (of->b) {
        parts[1] = *of->b;
        parts[1].data += (size_t)e * parts[0].n_out * sizeof(float);
    }
    if (of->s) {
        parts[2] = *of->s;
        parts[2].data += (size_t)e * sizeof(float);
    }
    return (struct affine) { .w = &parts[0], .b = of->b ? &parts[1] : NULL, .s = of->s ? &parts[2] : NULL };
}

/* The matrices of all experts, and what their taps show; TAP_COUNT: no tap. */
struct networks {
    const struct affine *gate, *up, *down;   /* without a gate gate->w is NULL */
    uint32_t n_ff;
    float limit;                             /* as in the plan */
    enum tap_id gates, ups, activated, done, weighted;
};

/* f->experts.y (n, n_embd) = the output of expert e for f->experts.x (n, n_embd). */
static void run_network(struct forward *f, const struct call *c, const struct networks *all, uint32_t e, uint32_t n) {
    struct expert_scratch *s = &f->experts;
    struct weight parts[3][3];
    const struct affine gate = expert_of(all->gate, e, parts[0]);
    const struct affine up = expert_of(all->up, e, parts[1]);
    const struct affine down = expert_of(all->down, e, parts[2]);
    float *gates = f->streams[STREAM_FF_GATE], *ups = f->streams[STREAM_FF_UP];
    int32_t il = (int32_t)c->il;
    const struct product gate_up[] = { { all->gates, &gate, gates, 1, false, 0.0f },
                                       { all->ups, &up, ups, 1, false, 0.0f } };
    const struct product out = { all->done, &down, s->y, 1, false, 0.0f };
    bool has_gate = gate.w != NULL;
    float *activated = has_gate ? gates : ups;
    forward_multiply(f, s->x, n, il, c->b.pos, has_gate ? gate_up : gate_up + 1, has_gate ? 2 : 1);
    forward_activate(f, c->il, c->layer->ffn.activation, all->limit, activated, has_gate ? ups : NULL, n, all->n_ff);
    forward_tap(f, all->activated, il, c->b.pos, n, 1, all->n_ff, activated);
    forward_multiply(f, activated, n, il, c->b.pos, &out, 1);
}

/* Adds the outputs of expert e of `all` to c->out, for the tokens that use it. */
static void run_expert(struct forward *f, const struct call *c, const struct networks *all, uint32_t e) {
    const struct ffn_plan *p = &c->layer->ffn;
    struct expert_scratch *s = &f->experts;
    const float *used = f->streams[STREAM_USED], *weights = f->streams[STREAM_WEIGHTS];
    uint32_t n_embd = c->s->n, n = 0;
    for (uint32_t i = 0; i < c->b.n * p->n_used; i++) {
        if (used[i] != (float)e) continue;
        const float *row = c->in + (size_t)(i / p->n_used) * n_embd;
        float factor = p->weights_first ? weights[i] : 1.0f;
        for (uint32_t j = 0; j < n_embd; j++) s->x[(size_t)n * n_embd + j] = row[j] * factor;
        s->tokens[n++] = i;
    }
    if (n == 0) return;
    if (p->weights_first) forward_tap(f, all->weighted, (int32_t)c->il, c->b.pos, n, 1, n_embd, s->x);
    run_network(f, c, all, e, n);
    for (uint32_t k = 0; k < n; k++) {
        float factor = p->weights_first ? 1.0f : weights[s->tokens[k]];
        float *out = c->out + (size_t)(s->tokens[k] / p->n_used) * n_embd;
        f->kernels.add_scaled(out, s->y + (size_t)k * n_embd, factor, n_embd);
        for (uint32_t j = 0; f->sink.on_tap && j < n_embd; j++) s->y[(size_t)k * n_embd + j] *= factor;
    }
    if (!p->weights_first) forward_tap(f, all->weighted, (int32_t)c->il, c->b.pos, n, 1, n_embd, s->y);
}

/* ---- the steps --------------------------------------------------------------------------------------------------- */

void forward_gate_shared(struct forward *f, const struct call *c) {
    const float *gate = weight_floats(c->w->w);
    float *gates = f->experts.gates;
    uint32_t n_embd = c->s->n;
    for (uint32_t t = 0; t < c->b.n; t++) {
        gates[t] = f->kernels.dot_f32(gate, c->in + (size_t)t * n_embd, n_embd);
    }
    if (f->adapters) forward_adapt(f, c->w->w, c->in, c->b.n, gates);
    for (uint32_t t = 0; t < c->b.n; t++) {
        float factor = sigmoid(gates[t]);
        for (uint32_t i = 0; i < n_embd; i++) c->out[(size_t)t * n_embd + i] *= factor;
    }
    forward_tap(f, TAP_FFN_SHARED_GATE, (int32_t)c->il, c->b.pos, c->b.n, 1, 1, gates);
}

void forward_sigmoid(struct forward *f, const struct call *c) {
    size_t begin = call_begin(c), n = call_end(c) - begin;
    if (c->in != c->out) memcpy(c->out + begin, c->in + begin, n * sizeof *c->out);
    f->kernels.sigmoid(c->out + begin, n);
}

void forward_best(struct forward *f, const struct call *c) {
    const struct ffn_plan *p = &c->layer->ffn;
    float *masked = f->experts.masked;
    uint32_t best[PLAN_MAX_EXPERTS];
    for (uint32_t t = 0; t < c->b.n; t++) {
        memcpy(masked, c->in + (size_t)t * p->n_expert, p->n_expert * sizeof *masked);
        keep_groups(p, masked);
        find_best(masked, p->n_expert, p->n_used, best);
        for (uint32_t k = 0; k < p->n_used; k++) c->out[(size_t)t * p->n_used + k] = (float)best[k];
    }
    /* A trained router uses all experts about equally; the scores of a rehearsal are all 0, and would choose the same
     * ones for every token. */
    for (uint32_t i = 0; f->model->is_rehearsed && i < c->n; i++) {
        c->out[i] = (float)(((uint64_t)c->b.pos * p->n_used + i) % p->n_expert);
    }
}

void forward_take(struct forward *f, const struct call *c) {
    const struct ffn_plan *p = &c->layer->ffn;
    const float *used = f->streams[STREAM_USED];
    for (size_t i = 0; i < c->n; i++) c->out[i] = c->in[i / p->n_used * p->n_expert + (size_t)used[i]];
}

/* The sum of n weights, by which they are divided. */
static float sum_of(const float *weights, uint32_t n) {
    float sum = 0.0f;
    for (uint32_t k = 0; k < n; k++) sum += weights[k];
    return !(sum > MIN_WEIGHT_SUM) && sum == sum ? MIN_WEIGHT_SUM : sum;
}

void forward_sum_to_1(struct forward *f, const struct call *c) {
    uint32_t n = c->layer->ffn.n_used;
    for (uint32_t t = 0; t < c->b.n; t++) {
        float *weights = c->out + (size_t)t * n, sum = sum_of(weights, n);
        for (uint32_t k = 0; k < n; k++) weights[k] /= sum;
    }
    (void)f;
}

/* Tells the sink what the taps of all experts have collected. */
static void show_experts(const struct forward *f, const struct call *c) {
    const struct ffn_plan *p = &c->layer->ffn;
    for (enum tap_id id = TAP_EXPERT_GATE; f->sink.on_tap && id <= TAP_EXPERT_WEIGHTED; id++) {
        uint32_t n = id < TAP_EXPERT_DOWN ? p->n_ff_expert : c->s->n;
        if (id == TAP_EXPERT_GATE && !f->model->layers[c->il].w[W_FFN_GATE_EXPS].w) continue;
        f->sink.on_tap(f->sink.user, &(plumb_tap) { tap_spec(id)->name, (int32_t)c->il, c->b.pos, c->b.n, p->n_used, n,
                                                    f->experts.shown[id - TAP_EXPERT_GATE] });
    }
}

void forward_experts(struct forward *f, const struct call *c) {
    const struct ffn_plan *p = &c->layer->ffn;
    const struct affine *w = f->model->layers[c->il].w;
    const struct networks all = { &w[W_FFN_GATE_EXPS], &w[W_FFN_UP_EXPS], &w[W_FFN_DOWN_EXPS], p->n_ff_expert, p->limit,
                                  TAP_EXPERT_GATE, TAP_EXPERT_UP, TAP_EXPERT_SWIGLU, TAP_EXPERT_DOWN,
                                  TAP_EXPERT_WEIGHTED };
    memset(c->out, 0, c->n * sizeof *c->out);
    for (uint32_t e = 0; e < p->n_expert; e++) run_expert(f, c, &all, e);
    show_experts(f, c);
}

/* The weights of the adjugates are the probabilities of the experts with their numbers, as in llama.cpp.  Overwrites
 * the experts and weights of the tokens. */
void forward_adjugates(struct forward *f, const struct call *c) {
    const struct ffn_plan *p = &c->layer->ffn;
    const struct affine *w = f->model->layers[c->il].w;
    const struct networks all = { &w[W_FFN_GATE_ADJUGATE], &w[W_FFN_UP_ADJUGATE], &w[W_FFN_DOWN_ADJUGATE],
                                  p->n_ff_adjugate, 0.0f, TAP_COUNT, TAP_COUNT, TAP_COUNT, TAP_COUNT, TAP_COUNT };
    for (uint32_t t = 0; t < c->b.n; t++) {
        const float *scores = f->streams[STREAM_SCORES] + (size_t)t * p->n_expert;
        float *used = f->streams[STREAM_USED] + (size_t)t * p->n_used;
        float *weights = f->streams[STREAM_WEIGHTS] + (size_t)t * p->n_used;
        for (uint32_t k = 0; k < p->n_used; k++) {
            uint32_t e = (uint32_t)used[k] / (p->n_expert / p->n_adjugate);
            used[k] = (float)e;
            weights[k] = scores[e];
        }
        float sum = sum_of(weights, p->n_used);
        for (uint32_t k = 0; k < p->n_used; k++) {
            uint32_t first = 0;   /* experts with the same adjugate use it once, with the sum of their weights */
            weights[k] *= p->adjugate_scale / sum;
            while (used[first] != used[k]) first++;
            if (first == k) continue;
            weights[first] += weights[k];
            used[k] = -1.0f;
        }
    }
    for (uint32_t e = 0; e < p->n_adjugate; e++) run_expert(f, c, &all, e);
}

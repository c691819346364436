/* The entries of known.h about the residual stream, feed forward, experts and the head. */
#include "mistakes/formulas.h"
#include "mistakes/known.h"

#include <math.h>

/* ---- residual stream --------------------------------------------------------------------------------------------- */

static void without_input(const struct call *c, bool is_attention) {
    bool is_sum = c->s->kind == STEP_ADD && c->s->weight == (is_attention ? W_ATTN_OUTPUT : W_FFN_DOWN);
    if (is_sum) memset(c->out, 0, c->n * sizeof *c->out);
}
static void without_attention_input(struct reference *r, const struct call *c) { (void)r, without_input(c, true); }
static void without_ffn_input(struct reference *r, const struct call *c) { (void)r, without_input(c, false); }

/* x becomes its norm when attention or feed forward read that. */
static void residual_from_norm(struct reference *r, const struct call *c) {
    enum step_kind kind = c->s->kind;
    bool is_expert = kind == STEP_EXPERTS && !r->m->layers[c->il].w[W_FFN_NORM_EXPS].w;
    bool is_router = kind == STEP_PRODUCT && c->s->weight == W_FFN_GATE_INP;
    bool reads_norm = (kind == STEP_PRODUCT && !is_router) || kind == STEP_COPY || kind == STEP_SHIFT || is_expert;
    bool is_norm = c->s->in == STREAM_H || c->s->in == STREAM_INPUT;
    if (reads_norm && is_norm) memcpy(r->x, c->in, (size_t)c->b.n * r->plan.n_embd * sizeof *r->x);
}

/* Attention or feed forward reads a norm, not the residual stream. */
static bool has_norms_before(const struct model *m) {
    const struct affine *w = m->layers[0].w;
    if (m->plan.steps == steps_from_norm) return false;   /* it is right there */
    return w[W_ATTN_NORM].w || w[W_FFN_NORM].w || m->plan.bare_norms >> W_ATTN_NORM & 1;
}

/* A parallel layer may have one norm for both; a sequential one uses it twice. */
static void edit_block_order(const struct known_mistake *q, struct edit *e) {
    if (e->plan->is_parallel == q->value) return;
    e->plan->is_parallel = q->value;
    for (uint32_t il = 0; !q->value && il < e->plan->n_layer; il++) {
        struct affine *w = e->model->layers[il].w;
        if (!w[W_FFN_NORM].w) w[W_FFN_NORM] = w[W_ATTN_NORM];
    }
}

/* ---- feed forward ------------------------------------------------------------------------------------------------ */

static void edit_ffn_order(const struct known_mistake *q, struct edit *e) {
    static const enum weight_id pairs[][2] = { { W_FFN_GATE, W_FFN_UP }, { W_FFN_GATE_EXPS, W_FFN_UP_EXPS },
                                               { W_FFN_GATE_SHARED, W_FFN_UP_SHARED } };
    (void)q;
    EACH_LAYER(e->plan, il) {
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            struct affine *w = e->model->layers[il].w, gate = w[pairs[i][0]];
            if (!gate.w) continue;
            w[pairs[i][0]] = w[pairs[i][1]];
            w[pairs[i][1]] = gate;
        }
    }
}

static void edit_activation(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) {
        struct ffn_plan *f = &e->plan->layers[il].ffn;
        if (f->activation == ACT_SWIGLU_OAI) f->limit = 0;   /* it is a part of the activation */
        f->activation = (enum activation)q->value;
    }
}

static double act_gelu_erf(enum activation kind, double z) { return (void)kind, gelu_erf(z); }
static double act_gelu_quick(enum activation kind, double z) { return (void)kind, gelu_quick(z); }
static double act_none(enum activation kind, double z) { return (void)kind, z; }

static void edit_limit(const struct known_mistake *q, struct edit *e) {
    (void)q;
    EACH_LAYER(e->plan, il) e->plan->layers[il].ffn.limit = e->plan->layers[il].ffn.limit_shared = 0;
}

static void limit_one_sided(double limit, double *gate, double *up) {
    *gate = *gate > limit ? limit : *gate;
    *up = *up > limit ? limit : *up;
}
static void limit_swapped(double limit, double *gate, double *up) { reference_right_steps.limit(limit, up, gate); }

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* The last layer has experts if any has. */
static const struct ffn_plan *experts_of(const struct model *m) { return &m->plan.layers[m->plan.n_layer - 1].ffn; }

/* A limit after the activation is another one. */
/* Neither the experts nor other streams have inputs of their own. */
static bool has_one_input(const struct model *m) {
    const struct affine *w = m->layers[m->plan.n_layer - 1].w;
    bool is_usual = m->plan.n_stream == 0 && m->plan.steps != steps_from_norm;
    return !w[W_FFN_ROUTER_NORM].w && is_usual && (w[W_FFN_UP].w || w[W_FFN_UP_EXPS].w);
}
static bool has_limit(const struct model *m) {
    return (experts_of(m)->limit != 0 || experts_of(m)->limit_shared != 0) && !experts_of(m)->limit_late;
}
static bool has_more_experts(const struct model *m) { return experts_of(m)->n_expert > experts_of(m)->n_used; }
static bool has_several_experts(const struct model *m) {
    return experts_of(m)->n_expert > 0 && experts_of(m)->n_used > 1;
}
static bool has_router_bias(const struct model *m) { return m->layers[m->plan.n_layer - 1].w[W_FFN_EXPERT_BIAS].w; }

/* Loops over the networks with experts. */
#define EACH_SPARSE(p, f) \
    EACH_LAYER(p, il) for (struct ffn_plan *f = &(p)->layers[il].ffn; f && f->n_expert > 0; f = NULL)

static void edit_gating(const struct known_mistake *q, struct edit *e) {
    EACH_SPARSE(e->plan, f) f->gating = (enum gating)q->value;
}
static void edit_router_norm(const struct known_mistake *q, struct edit *e) {
    EACH_SPARSE(e->plan, f) if (f->gating != GATING_SOFTMAX_USED) f->weights_sum_to_1 = q->value;
}
static void edit_router_scale(const struct known_mistake *q, struct edit *e) {
    (void)q;
    EACH_SPARSE(e->plan, f) f->weights_scale = 1;
}
static void edit_router_groups(const struct known_mistake *q, struct edit *e) {
    (void)q;
    EACH_LAYER(e->plan, il) if (e->plan->layers[il].ffn.n_group > 1) e->plan->layers[il].ffn.n_group = 0;
}
static void edit_experts_used(const struct known_mistake *q, struct edit *e) {
    (void)q;
    EACH_SPARSE(e->plan, f) if (f->n_used > 1) f->n_used--;
}
static void edit_experts_weighted(const struct known_mistake *q, struct edit *e) {
    EACH_SPARSE(e->plan, f) f->weights_first = q->value;
}

static double smallest_first(double score) { return score == -INFINITY ? score : -score; }
static const double *weighed_biased(const double *probs, const double *biased) { return (void)probs, biased; }
static uint32_t next_expert(uint32_t i, uint32_t n_expert) { return i + 1 < n_expert ? i + 1 : 0; }
static uint32_t weights_reversed(uint32_t k, uint32_t n_used) { return n_used - 1 - k; }

/* ---- the head ---------------------------------------------------------------------------------------------------- */

static void edit_head_tied(const struct known_mistake *q, struct edit *e) {
    (void)q;
    if (e->model->output.w) e->model->output.w = e->model->token_embd.w;   /* encoders have none */
}
static void edit_head_zero(const struct known_mistake *q, struct edit *e) {
    (void)q;
    if (model_is_tied(e->model)) e->model->output.w = NULL;
}

static void edit_logits_multiplied(const struct known_mistake *q, struct edit *e) {
    (void)q;
    e->plan->logit_scale = 1 / e->plan->logit_scale;
}

static void edit_pooling(const struct known_mistake *q, struct edit *e) {
    struct pooling_plan *p = &e->plan->pooling;
    plumb_pooling *kind = p->kind == PLUMB_POOLING_RANK ? &p->rank_of : &p->kind;
    if (*kind != PLUMB_POOLING_NONE) *kind = (plumb_pooling)q->value;
}

/* ---- the entries ------------------------------------------------------------------------------------------------- */

static const struct need
    with_two_limits = { "with limits of gate and up before the activation", has_limit },
    with_several_experts = { "with several experts for each token", has_several_experts },
    with_router_bias = { "with a bias for the choice of experts", has_router_bias },
    with_logit_scale = { "with a factor of logits", NULL };

#define OTHER_ACTIVATION(function) STEPS(.activation = function), EDIT(edit_activation, ACT_SILU)

static const struct known_mistake known[] = {
    /* ---- residual stream, feed forward ---- */
    { "residual.attn=missing", "ffn_inp", &known_every, "the attention's input is not added to its output",
      STEPS(.before = without_attention_input) },
    { "residual.ffn=missing", "l_out", &known_every, "the feed forward's input is not added to its output",
      STEPS(.before = without_ffn_input) },
    { "residual.from=norm", "ffn_inp", NEED("with norms before attention or feed forward", has_norms_before), ""
      "attn_norm, not the layer's input, is added to the output of attention, and ffn_norm, not ffn_inp, to that of "
      "the feed forward", STEPS(.before = residual_from_norm) },
    { "residual.scale=missing", "ffn_inp", NEED("with a factor of residuals", NULL), "outputs of attention and feed "
      "forward are not multiplied by the file's residual_scale before they are added", PLAN(residual_scale, 1) },
    { "block.order=sequential", "ffn_gate", NEED("with parallel attention and feed forward", NULL), "feed forward "
      "reads the norm of ffn_inp, not of the layer's input; a model without ffn_norm uses attn_norm again",
      EDIT(edit_block_order, false) },
    { "block.order=parallel", "ffn_norm", NEED("with feed forward after attention", has_one_input), "feed forward "
      "reads the norm of the layer's input, not of ffn_inp; a model without ffn_norm reads what attention reads",
      EDIT(edit_block_order, true) },
    { "ffn.bias=missing", "ffn_moe_logits", NEED("with biases in feed forward", NULL), "no bias is added in the "
      "feed-forward network, in experts and in their router", WITHOUT_BIAS(SET(FFN_GATE) | SET(FFN_UP) | SET(FFN_DOWN)
      | SET(FFN_GATE_INP) | SET(FFN_GATE_EXPS) | SET(FFN_UP_EXPS) | SET(FFN_DOWN_EXPS) | SET(FFN_GATE_SHARED)
      | SET(FFN_UP_SHARED) | SET(FFN_DOWN_SHARED)) },
    { "ffn.order=swapped", "ffn_gate", NEED("with a gate in the feed-forward network", NULL), "the matrices of gate "
      "and up are swapped, in experts too, and the halves of a fused ffn_up: tap ffn_gate shows W_up h",
      EDIT(edit_ffn_order, 0) },
    { "ffn.act=gelu", "ffn_swiglu", &known_every, "GELU in its tanh form replaces the model's activation",
      EDIT(edit_activation, ACT_GELU_TANH) },
    { "ffn.act=gelu_erf", "ffn_swiglu", &known_every, "GELU in its exact form replaces the model's activation",
      OTHER_ACTIVATION(act_gelu_erf) },
    { "ffn.act=gelu_quick", "ffn_swiglu", &known_every, "z / (1 + e^(-1.702 z)) replaces the model's activation",
      OTHER_ACTIVATION(act_gelu_quick) },
    { "ffn.act=silu", "ffn_swiglu", &known_every, "SiLU replaces the model's activation",
      EDIT(edit_activation, ACT_SILU) },
    { "ffn.act=relu_sqr", "ffn_swiglu", &known_every, "the square of ReLU replaces the model's activation",
      EDIT(edit_activation, ACT_RELU_SQR) },
    { "ffn.act=relu", "ffn_swiglu", &known_every, "ReLU replaces the model's activation",
      EDIT(edit_activation, ACT_RELU) },
    { "ffn.act=none", "ffn_swiglu", &known_every, "gate times up, without an activation", OTHER_ACTIVATION(act_none) },
    { "ffn.limit=missing", "ffn_moe_swiglu", NEED("with limits of gate and up in the feed-forward network", NULL), ""
      "neither the gate nor up is limited", EDIT(edit_limit, 0) },
    { "ffn.limit=one_sided", "ffn_moe_swiglu", &with_two_limits, "up is limited only from above, like the gate",
      STEPS(.limit = limit_one_sided) },
    { "ffn.limit=swapped", "ffn_moe_swiglu", &with_two_limits, "the gate is limited on both sides, and up only from "
      "above", STEPS(.limit = limit_swapped) },

    /* ---- experts, head ---- */
    { "router.gating=softmax", "ffn_moe_weights", &known_with_experts, "the probabilities of experts are a softmax "
      "over all of them", EDIT(edit_gating, GATING_SOFTMAX) },
    { "router.gating=sigmoid", "ffn_moe_weights", &known_with_experts, "the probabilities of experts are sigmoids of "
      "their scores", EDIT(edit_gating, GATING_SIGMOID) },
    { "router.gating=softmax_used", "ffn_moe_weights", &known_with_experts, "experts are chosen by their scores, and "
      "their weights are a softmax over those that are used", EDIT(edit_gating, GATING_SOFTMAX_USED) },
    { "router.bias=missing", "ffn_moe_topk", &with_router_bias, "the bias by which experts are chosen is not added",
      REMOVED(SET(FFN_EXPERT_BIAS)) },
    { "router.bias=in_weights", "ffn_moe_weights", &with_router_bias, "the weights of experts contain the bias by "
      "which they are chosen", STEPS(.weighed = weighed_biased) },
    { "router.groups=ignored", "ffn_moe_topk", NEED("with groups of experts", NULL), "experts of all groups can be "
      "chosen", EDIT(edit_router_groups, 0) },
    { "router.norm=missing", "ffn_moe_weighted", &known_with_experts, "weights of experts are not divided by their sum",
      EDIT(edit_router_norm, false) },
    { "router.norm=added", "ffn_moe_weighted", &known_with_experts, "weights of experts are divided by their sum",
      EDIT(edit_router_norm, true) },
    { "router.scale=missing", "ffn_moe_weighted", NEED("with a scale of the weights of experts", NULL), "weights of "
      "experts are not multiplied by their scale", EDIT(edit_router_scale, 0) },
    { "experts.chosen=smallest", "ffn_moe_topk", NEED("with experts that a token does not use", has_more_experts), ""
      "the experts with the smallest probabilities are used, the smallest first, in the groups that may be used",
      STEPS(.choice = smallest_first) },
    { "experts.used=one_fewer", "ffn_moe_topk", &with_several_experts, "one expert fewer is used",
      EDIT(edit_experts_used, 0) },
    { "experts.index=plus_one", "ffn_moe_gate", &known_with_experts, "expert e + 1, or 0 after the last one, is "
      "computed in place of e, with the weight of e; ffn_moe_topk shows e", STEPS(.expert = next_expert) },
    { "experts.weights=reversed", "ffn_moe_weighted", &with_several_experts, "the weights of a token's experts are "
      "assigned in the opposite order; the taps of weights show the right one",
      STEPS(.weight_place = weights_reversed) },
    { "experts.weighted=input", "ffn_moe_gate", &known_with_experts, "the inputs of experts are multiplied by their "
      "weights, not the outputs", EDIT(edit_experts_weighted, true) },
    { "experts.weighted=output", "ffn_moe_weighted", &known_with_experts, "the outputs of experts are multiplied by "
      "their weights, not the inputs", EDIT(edit_experts_weighted, false) },
    { "shared.expert=missing", "ffn_out", NEED("with a shared expert", NULL), "the expert that every token uses is "
      "left out", REMOVED(SET(FFN_GATE_SHARED) | SET(FFN_UP_SHARED) | SET(FFN_DOWN_SHARED)) },
    { "shared.gate=missing", "ffn_shexp", NEED("with a gate of the shared expert", NULL), "the output of the expert "
      "that every token uses is not multiplied by its gate", REMOVED(SET(FFN_GATE_INP_SHARED)) },
    { "output.bias=missing", "result_output", NEED("with a bias of the head", NULL), "the head has no bias",
      WITHOUT_BIAS(SET(OUTPUT)) },
    { "output.head=tied", "result_output", NEED("with an output matrix of their own", NULL), "token_embd.weight is "
      "used as the head although the file has output.weight", EDIT(edit_head_tied, 0) },
    { "output.head=zero", "result_output", NEED("without an output matrix of their own", NULL), "the head is a matrix "
      "of zeros where the file has no output.weight", EDIT(edit_head_zero, 0) },
    { "logits.scale=missing", "result_output", &with_logit_scale, "logits are not divided by the file's logit_scale",
      PLAN(logit_scale, 1) },
    { "logits.scale=multiplied", "result_output", &with_logit_scale, "logits are multiplied by the file's logit_scale, "
      "not divided", EDIT(edit_logits_multiplied, 0) },
    { "softcap.logits=missing", "result_output", NEED("with a softcap of logits", NULL), "logits have no softcap",
      PLAN(logit_softcap, 0) },
    { "pooling.kind=mean", "result_embd_pooled", &known_with_pooling, "the mean of all tokens is taken, not the first "
      "or the last token", EDIT(edit_pooling, PLUMB_POOLING_MEAN) },
    { "pooling.kind=cls", "result_embd_pooled", &known_with_pooling, "the first token is taken, not the mean or the "
      "last token", EDIT(edit_pooling, PLUMB_POOLING_CLS) },
    { "pooling.kind=last", "result_embd_pooled", &known_with_pooling, "the last token is taken, not the mean or the "
      "first token", EDIT(edit_pooling, PLUMB_POOLING_LAST) },
};

const struct known_list known_ffn = { known, sizeof known / sizeof *known };

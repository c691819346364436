/* Quirks that are edits of a copied plan and of a copied table of weights.  diagnose/quirk_table.c says in words what
 * each quirk does.  An edit leaves alone what has no effect in the model, because a quirk applies to a model if its
 * edit changes anything (quirk_edits_change). */
#include "reference/quirks.h"

#include <math.h>
#include <stdlib.h>

/* Loops over the layers of a plan. */
#define EACH_LAYER(p, il) for (uint32_t il = 0; il < (p)->n_layer; il++)

/* ---- factors ----------------------------------------------------------------------------------------------------- */

static void edit_embedding_scale(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    if (value == EMBD_SCALE_ADDED) p->embedding_scale *= (float)sqrt(p->n_embd);
    else p->embedding_scale = 1;
}

/* With a scale of embeddings alone this is embd.scale=missing. */
static void edit_model_scales(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    bool has_others = p->residual_scale != 1 || p->layers[0].attn.scale != 0 || p->logit_scale != 1;
    if (p->embedding_scale == 1 || !has_others) return;
    p->embedding_scale = p->residual_scale = p->logit_scale = 1;
    EACH_LAYER(p, il) p->layers[il].attn.scale = 0;
}

static void edit_residual_scale(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    p->residual_scale = 1;
}

static void edit_logit_scale(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    p->logit_scale = value == LOGIT_SCALE_MULTIPLIED ? 1 / p->logit_scale : 1;
}

/* ---- norms, biases ----------------------------------------------------------------------------------------------- */

static void edit_norm_kind(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    p->norm = NORM_LAYER;
}

static void edit_norm_eps(struct plan *p, struct model *m, uint8_t value) {
    static const float epsilons[] = { [EPS_0] = 0, [EPS_1E_6] = 1e-6f, [EPS_1E_5] = 1e-5f };
    (void)m;
    p->norm_eps = epsilons[value];
    p->post_norm_eps = 0;   /* the same */
}

static void edit_attention_bias(struct plan *p, struct model *m, uint8_t value) {
    static const enum weight_id projections[] = { W_ATTN_Q, W_ATTN_K, W_ATTN_V, W_ATTN_OUTPUT };
    (void)value;
    EACH_LAYER(p, il) {
        for (size_t i = 0; i < sizeof projections / sizeof *projections; i++) m->layers[il].w[projections[i]].b = NULL;
    }
}

/* ---- RoPE: a rope with n_rot = 0 is not used, and a single pair turns by 1 whatever the base is ------------------ */

static void edit_pairing(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    for (int i = 0; i < PLAN_ROPES; i++) {
        if (p->ropes[i].n_rot > 2) p->ropes[i].pairing = value == PAIRING_HALVES ? ROPE_NEOX : ROPE_NORM;
    }
}

static void edit_rope_none(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    EACH_LAYER(p, il) p->layers[il].attn.rope = ROPE_NONE;
}

static void edit_theta(struct plan *p, struct model *m, uint8_t value) {
    static const float thetas[] = { [THETA_10000] = 1e4f, [THETA_100000] = 1e5f, [THETA_500000] = 5e5f,
                                    [THETA_1000000] = 1e6f };
    (void)m;
    for (int i = 0; i < PLAN_ROPES; i++) {
        if (p->ropes[i].n_rot > 2) p->ropes[i].freq_base = thetas[value];
    }
}

static void edit_rope_dim(struct plan *p, struct model *m, uint8_t value) {
    uint32_t k_dim = p->layers[0].attn.k_dim;
    (void)m;
    for (int i = 0; i < PLAN_ROPES; i++) {
        struct rope_plan *rope = &p->ropes[i];
        if (value == DIM_HALF && rope->n_rot >= 4) rope->n_rot = rope->n_rot / 4 * 2;
        if (value == DIM_FULL && rope->n_rot > 0) rope->n_rot = k_dim / 2 * 2;
    }
}

static void edit_rope_scaling(struct plan *p, struct model *m, uint8_t value) {
    (void)value;
    for (int i = 0; i < PLAN_ROPES; i++) {
        struct rope_plan *rope = &p->ropes[i];
        if (rope->n_rot == 0) continue;
        rope->freq_scale = rope->magnitude = 1;
        rope->is_yarn = false;
        if (m->rope_freqs.w || m->rope_long.w || m->rope_short.w) rope->has_factors = false;
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static void edit_attention_scale(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    EACH_LAYER(p, il) {
        struct attn_plan *a = &p->layers[il].attn;
        double usual = 1 / sqrt(a->k_dim), right = a->scale != 0 ? (double)a->scale : usual, scale = usual;
        if (value == SCALE_MISSING) scale = 1;
        if (value == SCALE_HEAD_DIM) scale = 1.0 / a->k_dim;
        if (value == SCALE_N_EMBD) scale = 1 / sqrt(p->n_embd);
        if (fabs(scale / right - 1) > 1e-6) a->scale = (float)scale;
    }
}

static void edit_causal(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    p->is_causal = false;
}

/* ---- feed forward, head ------------------------------------------------------------------------------------------ */

static void edit_ffn_order(struct plan *p, struct model *m, uint8_t value) {
    (void)value;
    EACH_LAYER(p, il) {
        struct affine *w = m->layers[il].w, gate = w[W_FFN_GATE];
        if (!gate.w) continue;
        w[W_FFN_GATE] = w[W_FFN_UP];
        w[W_FFN_UP] = gate;
    }
}

static void edit_activation(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    EACH_LAYER(p, il) p->layers[il].ffn.activation = value == FFN_GELU ? ACT_GELU_TANH : ACT_RELU;
}

static void edit_head(struct plan *p, struct model *m, uint8_t value) {
    bool is_tied = model_is_tied(m);
    (void)p;
    if (value == HEAD_TIED) m->output.w = m->token_embd.w;
    else if (is_tied) m->output.w = NULL;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

void quirk_edit(const struct quirks *q, struct plan *p, struct model *m) {
#define AT(switch) offsetof(struct quirks, switch)
    /* In this order.  It matters only for edits of the same number. */
    static const struct {
        size_t field;
        void (*edit)(struct plan *p, struct model *m, uint8_t value);
    } edits[] = {
        { AT(model_scales), edit_model_scales },
        { AT(embd_scale), edit_embedding_scale },
        { AT(residual_scale), edit_residual_scale },
        { AT(logit_scale), edit_logit_scale },
        { AT(norm_kind), edit_norm_kind },
        { AT(norm_eps), edit_norm_eps },
        { AT(attn_bias), edit_attention_bias },
        { AT(rope_pairing), edit_pairing },
        { AT(rope_theta), edit_theta },
        { AT(rope_dim), edit_rope_dim },
        { AT(rope_scaling), edit_rope_scaling },
        { AT(rope_none), edit_rope_none },
        { AT(attn_scale), edit_attention_scale },
        { AT(attn_causal), edit_causal },
        { AT(ffn_order), edit_ffn_order },
        { AT(ffn_act), edit_activation },
        { AT(output_head), edit_head },
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        uint8_t value = ((const uint8_t *)q)[edits[i].field];
        if (value) edits[i].edit(p, m, value);
    }
}

bool quirk_edits_change(const struct quirks *q, const struct model *m) {
    size_t n_layers = m->plan.n_layer * sizeof *m->layers, n_plans = m->plan.n_layer * sizeof *m->plan.layers;
    struct model edited;
    struct plan plan;
    memcpy(&edited, m, sizeof edited);   /* with the padding, as bytes are compared below */
    memcpy(&plan, &m->plan, sizeof plan);
    edited.layers = malloc(n_layers);
    plan.layers = malloc(n_plans);
    bool changes = true;
    if (edited.layers && plan.layers) {
        memcpy(edited.layers, m->layers, n_layers);
        memcpy(plan.layers, m->plan.layers, n_plans);
        quirk_edit(q, &plan, &edited);
        changes = memcmp(edited.layers, m->layers, n_layers) != 0 || memcmp(plan.layers, m->plan.layers, n_plans) != 0;
    }
    free(edited.layers);
    free(plan.layers);
    edited.layers = m->layers;
    plan.layers = m->plan.layers;
    return changes || memcmp(&edited, m, sizeof edited) != 0 || memcmp(&plan, &m->plan, sizeof plan) != 0;
}

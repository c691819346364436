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

static void edit_softcap_attn(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    EACH_LAYER(p, il) p->layers[il].attn.softcap = 0;
}

static void edit_softcap_logits(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    p->logit_softcap = 0;
}

/* ---- norms, biases ----------------------------------------------------------------------------------------------- */

static void edit_norm_kind(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    p->norm = value == NORM_CENTRED ? NORM_LAYER : NORM_RMS;
}

static void edit_norm_eps(struct plan *p, struct model *m, uint8_t value) {
    static const float epsilons[] = { [EPS_0] = 0, [EPS_1E_6] = 1e-6f, [EPS_1E_5] = 1e-5f };
    (void)m;
    p->norm_eps = epsilons[value];
    p->post_norm_eps = 0;   /* the same */
}

/* A layer's weights without those in the set `weights`, and without the biases of those in the set `biases`. */
static void remove_weights(const struct plan *p, struct model *m, uint64_t weights, uint64_t biases) {
    EACH_LAYER(p, il) {
        for (int i = 0; i < W_LAYER_COUNT; i++) {
            if (weights >> i & 1) m->layers[il].w[i] = (struct affine){ 0 };
            if (biases >> i & 1) m->layers[il].w[i].b = NULL;
        }
    }
}

#define SET(weight) (UINT64_C(1) << (W_##weight))

static void edit_norm_bias(struct plan *p, struct model *m, uint8_t value) {
    (void)value;
    remove_weights(p, m, 0, SET(ATTN_NORM) | SET(ATTN_Q_NORM) | SET(ATTN_K_NORM) | SET(ATTN_POST_NORM) | SET(FFN_NORM)
                            | SET(FFN_POST_NORM) | SET(ATTN_OUT_NORM) | SET(ATTN_NORM_2) | SET(LAYER_OUT_NORM));
    m->token_embd_norm.b = m->output_norm.b = NULL;
}

static void edit_norm_embd(struct plan *p, struct model *m, uint8_t value) {
    (void)p, (void)value;
    m->token_embd_norm = (struct affine){ 0 };
}

/* The weights of other norms take the places of those before attention and feed forward. */
static void edit_norm_post(struct plan *p, struct model *m, uint8_t value) {
    EACH_LAYER(p, il) {
        struct affine *w = m->layers[il].w;
        if (!w[W_ATTN_POST_NORM].w) continue;
        if (value == POST_BEFORE) w[W_ATTN_NORM] = w[W_ATTN_POST_NORM];
        if (value == POST_BEFORE) w[W_FFN_NORM] = w[W_FFN_POST_NORM];
        if (value == POST_AS_LLAMA) w[W_FFN_NORM] = w[W_ATTN_POST_NORM];
        if (value == POST_RESIDUAL) w[W_ATTN_OUT_NORM] = w[W_ATTN_POST_NORM];
        if (value == POST_RESIDUAL) w[W_LAYER_OUT_NORM] = w[W_FFN_POST_NORM];
        w[W_ATTN_POST_NORM] = w[W_FFN_POST_NORM] = (struct affine){ 0 };
    }
}

static void edit_norm_out(struct plan *p, struct model *m, uint8_t value) {
    EACH_LAYER(p, il) {
        struct affine *w = m->layers[il].w;
        if (!w[W_ATTN_OUT_NORM].w) continue;
        if (value == OUT_BEFORE) w[W_ATTN_NORM] = w[W_ATTN_OUT_NORM];
        if (value == OUT_BEFORE) w[W_FFN_NORM] = w[W_LAYER_OUT_NORM];
        w[W_ATTN_OUT_NORM] = w[W_LAYER_OUT_NORM] = (struct affine){ 0 };
    }
}

static void edit_qk_norm_applied(struct plan *p, struct model *m, uint8_t value) {
    uint64_t norms = SET(ATTN_K_NORM) | (value == QK_NORM_NONE ? SET(ATTN_Q_NORM) : 0);
    remove_weights(p, m, norms, 0);
    p->bare_norms &= ~norms;
}

static void edit_qk_norm_kind(struct plan *p, struct model *m, uint8_t value) {
    static const enum qk_norm kinds[][2] = {   /* right and wrong */
        [QK_NORM_OVER_ROW] = { QK_NORM_HEAD, QK_NORM_ROW }, [QK_NORM_OVER_HEAD] = { QK_NORM_ROW, QK_NORM_HEAD },
        [QK_NORM_LATE] = { QK_NORM_HEAD, QK_NORM_HEAD_ROPED }, [QK_NORM_EARLY] = { QK_NORM_HEAD_ROPED, QK_NORM_HEAD },
    };
    EACH_LAYER(p, il) {
        struct attn_plan *a = &p->layers[il].attn;
        bool is_bare = (p->bare_norms & ~p->layers[il].without) >> W_ATTN_Q_NORM & 1;
        bool has_norm = m->layers[il].w[W_ATTN_Q_NORM].w || is_bare;
        if (has_norm && a->qk_norm == kinds[value][0]) a->qk_norm = kinds[value][1];
    }
}

static void edit_attention_bias(struct plan *p, struct model *m, uint8_t value) {
    (void)value;
    remove_weights(p, m, 0, SET(ATTN_Q) | SET(ATTN_K) | SET(ATTN_V) | SET(ATTN_OUTPUT));
}

static void edit_ffn_bias(struct plan *p, struct model *m, uint8_t value) {
    (void)value;
    remove_weights(p, m, 0, SET(FFN_GATE) | SET(FFN_UP) | SET(FFN_DOWN) | SET(FFN_GATE_INP) | SET(FFN_GATE_EXPS)
                            | SET(FFN_UP_EXPS) | SET(FFN_DOWN_EXPS) | SET(FFN_GATE_SHARED) | SET(FFN_UP_SHARED)
                            | SET(FFN_DOWN_SHARED));
}

static void edit_output_bias(struct plan *p, struct model *m, uint8_t value) {
    (void)p, (void)value;
    m->output.b = NULL;
}

/* ---- types and positions of tokens ------------------------------------------------------------------------------- */

static void edit_types(struct plan *p, struct model *m, uint8_t value) {
    (void)p, (void)value;
    m->token_types = (struct affine){ 0 };
}

static void edit_positions(struct plan *p, struct model *m, uint8_t value) {
    (void)p, (void)value;
    m->position_embd = (struct affine){ 0 };
}

static void edit_alibi(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    EACH_LAYER(p, il) p->layers[il].attn.alibi = 0;
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

/* The smallest head of K that a rope rotates. */
static uint32_t smallest_head(const struct plan *p, int rope) {
    uint32_t dim = UINT32_MAX;
    EACH_LAYER(p, il) {
        const struct attn_plan *a = &p->layers[il].attn;
        if (a->rope == (uint32_t)rope && a->k_dim < dim) dim = a->k_dim;
    }
    return dim;
}

static void edit_rope_dim(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    for (int i = 0; i < PLAN_ROPES; i++) {
        struct rope_plan *rope = &p->ropes[i];
        if (value == DIM_HALF && rope->n_rot >= 4) rope->n_rot = rope->n_rot / 4 * 2;
        uint32_t k_dim = smallest_head(p, i);
        if (value == DIM_FULL && k_dim != UINT32_MAX) rope->n_rot = k_dim / 2 * 2;
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

/* The rope of the first layer that has one; ROPE_NONE: no layer has. */
static uint32_t first_rope(const struct plan *p) {
    EACH_LAYER(p, il) {
        if (p->layers[il].attn.rope != ROPE_NONE) return p->layers[il].attn.rope;
    }
    return ROPE_NONE;
}

static void edit_rope_layers(struct plan *p, struct model *m, uint8_t value) {
    uint32_t any = first_rope(p), own = p->layers[0].attn.rope;
    (void)m;
    EACH_LAYER(p, il) {   /* each layer is edited before the next one is read, but for the first one */
        uint32_t *rope = &p->layers[il].attn.rope, next = il + 1 < p->n_layer ? p->layers[il + 1].attn.rope : own;
        bool is_rotated = any != ROPE_NONE && (value == LAYERS_ALL || next != ROPE_NONE);
        if (!is_rotated) *rope = ROPE_NONE;
        else if (*rope == ROPE_NONE) *rope = any;
    }
}

/* True if two ropes rotate by the same angles. */
static bool is_same_rope(const struct rope_plan *a, const struct rope_plan *b, const struct model *m) {
    bool has_factors = m->rope_freqs.w || m->rope_long.w || m->rope_short.w;
    return a->n_rot == b->n_rot && a->freq_base == b->freq_base && a->freq_scale == b->freq_scale
        && a->magnitude == b->magnitude && a->is_yarn == b->is_yarn
        && (!has_factors || a->has_factors == b->has_factors);
}

static void edit_rope_base(struct plan *p, struct model *m, uint8_t value) {
    struct rope_plan global = p->ropes[ROPE_GLOBAL], local = p->ropes[ROPE_LOCAL];
    bool is_used[PLAN_ROPES + 1] = { false };
    EACH_LAYER(p, il) is_used[p->layers[il].attn.rope] = true;
    if (!is_used[ROPE_GLOBAL] || !is_used[ROPE_LOCAL] || is_same_rope(&global, &local, m)) return;
    p->ropes[ROPE_GLOBAL] = value == BASE_GLOBAL ? global : local;
    p->ropes[ROPE_LOCAL] = value == BASE_LOCAL ? local : global;
}

static void edit_rope_sections(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    for (int i = 0; i < PLAN_ROPES; i++) {
        bool is_whole = true;
        for (uint32_t k = 0; k < p->ropes[i].n_rot / 2; k++) is_whole = is_whole && plan_rope_rotates(&p->ropes[i], k);
        if (!is_whole) memset(p->ropes[i].sections, 0, sizeof p->ropes[i].sections);
    }
}

static void edit_yarn(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    for (int i = 0; i < PLAN_ROPES; i++) {
        struct rope_plan *rope = &p->ropes[i];
        if (!rope->is_yarn || rope->n_rot == 0) continue;
        if (value == YARN_LINEAR) rope->is_yarn = false;
        else rope->magnitude = 1;
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
    (void)m;
    p->is_causal = value == MASK_CAUSAL;
}

static void edit_qkv_order(struct plan *p, struct model *m, uint8_t value) {
    (void)value;
    EACH_LAYER(p, il) {
        struct affine *w = m->layers[il].w, k = w[W_ATTN_K];
        if (p->layers[il].attn.k_dim != p->layers[il].attn.v_dim) continue;
        w[W_ATTN_K] = w[W_ATTN_V];
        w[W_ATTN_V] = k;
    }
}

static void edit_sinks(struct plan *p, struct model *m, uint8_t value) {
    (void)value;
    remove_weights(p, m, SET(ATTN_SINKS), 0);
}

static void edit_temperature(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    EACH_LAYER(p, il) p->layers[il].attn.temperature_floor = 0;
}

static void edit_gate(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    EACH_LAYER(p, il) {
        enum attn_gate *gate = &p->layers[il].attn.gate;
        if (value == GATE_MISSING) *gate = ATTN_GATE_NONE;
        else if (*gate == ATTN_GATE_SIGMOID) *gate = ATTN_GATE_SOFTPLUS;
    }
}

static void edit_window_size(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    EACH_LAYER(p, il) {
        struct attn_plan *a = &p->layers[il].attn;
        uint32_t window = a->window;
        if (window > 0 && value == WINDOW_PLUS_ONE) window++;
        if (window > 1 && value == WINDOW_MINUS_ONE) window--;
        bool is_same = a->is_symmetric && window / 2 == a->window / 2;   /* only half of it counts */
        if (!is_same) a->window = window;
        if (value == WINDOW_IGNORED) a->window = 0;
    }
}

static void edit_window_layers(struct plan *p, struct model *m, uint8_t value) {
    uint32_t window = 0, own = p->layers[0].attn.window, n_with = 0;
    (void)m;
    EACH_LAYER(p, il) {
        if (p->layers[il].attn.window > 0) window = p->layers[il].attn.window, n_with++;
    }
    for (uint32_t il = 0; n_with < p->n_layer && il < p->n_layer; il++) {
        uint32_t *here = &p->layers[il].attn.window;
        if (value == LAYERS_SHIFTED) *here = il + 1 < p->n_layer ? p->layers[il + 1].attn.window : own;
        else *here = value == LAYERS_ALL || *here == 0 ? window : 0;
    }
}

static void edit_window_kind(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    EACH_LAYER(p, il) {
        struct attn_plan *a = &p->layers[il].attn;
        if (a->window > 0 && !a->is_symmetric) a->is_chunked = value == WINDOW_CHUNK;
    }
}

/* ---- feed forward, head ------------------------------------------------------------------------------------------ */

/* A parallel layer may have one norm for both; a sequential one uses it twice. */
static void edit_block_order(struct plan *p, struct model *m, uint8_t value) {
    bool is_sequential = value == ORDER_SEQUENTIAL;
    if (p->is_parallel != is_sequential) return;
    p->is_parallel = !is_sequential;
    for (uint32_t il = 0; is_sequential && il < p->n_layer; il++) {
        struct affine *w = m->layers[il].w;
        if (!w[W_FFN_NORM].w) w[W_FFN_NORM] = w[W_ATTN_NORM];
    }
}

static void edit_ffn_order(struct plan *p, struct model *m, uint8_t value) {
    static const enum weight_id pairs[][2] = { { W_FFN_GATE, W_FFN_UP }, { W_FFN_GATE_EXPS, W_FFN_UP_EXPS },
                                               { W_FFN_GATE_SHARED, W_FFN_UP_SHARED } };
    (void)value;
    EACH_LAYER(p, il) {
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            struct affine *w = m->layers[il].w, gate = w[pairs[i][0]];
            if (!gate.w) continue;
            w[pairs[i][0]] = w[pairs[i][1]];
            w[pairs[i][1]] = gate;
        }
    }
}

static void edit_activation(struct plan *p, struct model *m, uint8_t value) {
    static const enum activation acts[] = { [FFN_GELU] = ACT_GELU_TANH, [FFN_RELU] = ACT_RELU,
                                            [FFN_RELU_SQR] = ACT_RELU_SQR, [FFN_SILU] = ACT_SILU };
    (void)m;
    EACH_LAYER(p, il) {
        struct ffn_plan *f = &p->layers[il].ffn;
        if (f->activation == ACT_SWIGLU_OAI) f->limit = 0;   /* it is a part of the activation */
        f->activation = acts[value];
    }
}

static void edit_ffn_limit(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    EACH_LAYER(p, il) p->layers[il].ffn.limit = p->layers[il].ffn.limit_shared = 0;
}

static void edit_head(struct plan *p, struct model *m, uint8_t value) {
    bool is_tied = model_is_tied(m);
    (void)p;
    if (!m->output.w) return;   /* encoders have none */
    if (value == HEAD_TIED) m->output.w = m->token_embd.w;
    else if (is_tied) m->output.w = NULL;
}

static void edit_pooling(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    plumb_pooling *kind = p->pooling.kind == PLUMB_POOLING_RANK ? &p->pooling.rank_of : &p->pooling.kind;
    if (*kind != PLUMB_POOLING_NONE) *kind = (plumb_pooling)value;
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

static void edit_gating(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    EACH_LAYER(p, il) {
        if (p->layers[il].ffn.n_expert > 0) p->layers[il].ffn.gating = (enum gating)value;
    }
}

static void edit_router_norm(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    EACH_LAYER(p, il) {
        struct ffn_plan *f = &p->layers[il].ffn;
        if (f->n_expert > 0 && f->gating != GATING_SOFTMAX_USED) f->weights_sum_to_1 = value == ROUTER_NORM_ADDED;
    }
}

static void edit_router_scale(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    EACH_LAYER(p, il) {
        if (p->layers[il].ffn.n_expert > 0) p->layers[il].ffn.weights_scale = 1;
    }
}

static void edit_router_bias(struct plan *p, struct model *m, uint8_t value) {
    (void)value;
    remove_weights(p, m, SET(FFN_EXPERT_BIAS), 0);
}

static void edit_router_groups(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    EACH_LAYER(p, il) {
        if (p->layers[il].ffn.n_group > 1) p->layers[il].ffn.n_group = 0;
    }
}

static void edit_experts_used(struct plan *p, struct model *m, uint8_t value) {
    (void)m, (void)value;
    EACH_LAYER(p, il) {
        if (p->layers[il].ffn.n_expert > 0 && p->layers[il].ffn.n_used > 1) p->layers[il].ffn.n_used--;
    }
}

static void edit_experts_weighted(struct plan *p, struct model *m, uint8_t value) {
    (void)m;
    EACH_LAYER(p, il) {
        if (p->layers[il].ffn.n_expert > 0) p->layers[il].ffn.weights_first = value == WEIGHTED_INPUT;
    }
}

static void edit_shared_expert(struct plan *p, struct model *m, uint8_t value) {
    (void)value;
    remove_weights(p, m, SET(FFN_GATE_SHARED) | SET(FFN_UP_SHARED) | SET(FFN_DOWN_SHARED), 0);
}

static void edit_shared_gate(struct plan *p, struct model *m, uint8_t value) {
    (void)value;
    remove_weights(p, m, SET(FFN_GATE_INP_SHARED), 0);
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
        { AT(softcap_attn), edit_softcap_attn },
        { AT(softcap_logits), edit_softcap_logits },
        { AT(norm_kind), edit_norm_kind },
        { AT(norm_eps), edit_norm_eps },
        { AT(norm_bias), edit_norm_bias },
        { AT(norm_embd), edit_norm_embd },
        { AT(norm_post), edit_norm_post },
        { AT(norm_out), edit_norm_out },
        { AT(qk_norm_applied), edit_qk_norm_applied },
        { AT(qk_norm_kind), edit_qk_norm_kind },
        { AT(attn_bias), edit_attention_bias },
        { AT(ffn_bias), edit_ffn_bias },
        { AT(output_bias), edit_output_bias },
        { AT(types_missing), edit_types },
        { AT(position_missing), edit_positions },
        { AT(alibi_missing), edit_alibi },
        { AT(rope_pairing), edit_pairing },
        { AT(rope_sections), edit_rope_sections },
        { AT(rope_base), edit_rope_base },
        { AT(rope_theta), edit_theta },
        { AT(rope_dim), edit_rope_dim },
        { AT(rope_yarn), edit_yarn },
        { AT(rope_scaling), edit_rope_scaling },
        { AT(rope_layers), edit_rope_layers },
        { AT(rope_none), edit_rope_none },
        { AT(qkv_order), edit_qkv_order },
        { AT(attn_scale), edit_attention_scale },
        { AT(attn_causal), edit_causal },
        { AT(attn_sinks), edit_sinks },
        { AT(attn_temperature), edit_temperature },
        { AT(attn_gate), edit_gate },
        { AT(window_size), edit_window_size },
        { AT(window_layers), edit_window_layers },
        { AT(window_kind), edit_window_kind },
        { AT(block_order), edit_block_order },
        { AT(ffn_order), edit_ffn_order },
        { AT(ffn_act), edit_activation },
        { AT(ffn_limit), edit_ffn_limit },
        { AT(router_gating), edit_gating },
        { AT(router_norm), edit_router_norm },
        { AT(router_scale), edit_router_scale },
        { AT(router_no_bias), edit_router_bias },
        { AT(router_groups), edit_router_groups },
        { AT(experts_used), edit_experts_used },
        { AT(experts_weighted), edit_experts_weighted },
        { AT(shared_expert), edit_shared_expert },
        { AT(shared_gate), edit_shared_gate },
        { AT(output_head), edit_head },
        { AT(pooling_kind), edit_pooling },
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        uint8_t value = ((const uint8_t *)q)[edits[i].field];
        if (value) edits[i].edit(p, m, value);
    }
}

int quirk_edits_change(const struct quirks *q, const struct model *m) {
    size_t n_layers = m->plan.n_layer * sizeof *m->layers, n_plans = m->plan.n_layer * sizeof *m->plan.layers;
    struct model edited;
    struct plan plan;
    memcpy(&edited, m, sizeof edited);   /* with the padding, as bytes are compared below */
    memcpy(&plan, &m->plan, sizeof plan);
    edited.layers = malloc(n_layers);
    plan.layers = malloc(n_plans);
    bool changes = false, has_memory = edited.layers && plan.layers;
    if (has_memory) {
        memcpy(edited.layers, m->layers, n_layers);
        memcpy(plan.layers, m->plan.layers, n_plans);
        quirk_edit(q, &plan, &edited);
        changes = memcmp(edited.layers, m->layers, n_layers) != 0 || memcmp(plan.layers, m->plan.layers, n_plans) != 0;
    }
    free(edited.layers);
    free(plan.layers);
    edited.layers = m->layers;
    plan.layers = m->plan.layers;
    if (!has_memory) return -1;
    return changes || memcmp(&edited, m, sizeof edited) != 0 || memcmp(&plan, &m->plan, sizeof plan) != 0;
}

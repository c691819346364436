/* The table of quirks, and which of them make sense for a model.
 *
 * The sentences are exact: tests/reference/engine.py was written from them and from nothing else, and makes the same
 * mistakes.  In them h is one of n_head query heads, and g is one of n_head_kv key and value heads.  A batch is the
 * whole prompt (n_prompt tokens from position 0 on), or one token after it ("a step").  If a file has a residual_scale,
 * the outputs of attention and feed forward are multiplied by it when they are added.  Taps show what such an engine
 * would show: the weights that it used, the residual that it added to.
 */
#include "diagnose/quirk_table.h"

#include "api/model.h"

/* ---- to which models a quirk applies ----------------------------------------------------------------------------- */

/* What a model must have.  A quirk that is an edit applies if the edit changes anything, so most rows here are only
 * words; `holds` is for what an edit cannot know, and for quirks that are wrong steps. */
struct need {
    const char *text;
    bool (*holds)(const struct model *m, int32_t bos);   /* NULL: every model has it */
};

static bool has_bos(const struct model *m, int32_t bos) {
    (void)m;
    return bos >= 0;
}

static bool has_norm_weights(const struct model *m, int32_t bos) {
    (void)bos;
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        for (int i = 0; i < W_LAYER_COUNT; i++) {
            bool is_norm = i == W_ATTN_NORM || i == W_FFN_NORM || i == W_ATTN_POST_NORM || i == W_FFN_POST_NORM
                        || i == W_ATTN_OUT_NORM;
            if (is_norm && m->layers[il].w[i].w) return true;
        }
    }
    return false;
}

static bool has_output_norm(const struct model *m, int32_t bos) {
    (void)bos;
    return m->output_norm.w || m->plan.bare_norms >> W_OUTPUT_NORM & 1;
}

static bool has_eps(const struct model *m, int32_t bos) {
    (void)bos;
    return m->plan.norm_eps != 0;
}

static bool is_square(const struct weight *w) { return w && w->n_in == w->n_out; }

static bool has_square(const struct model *m, int32_t bos) {
    (void)bos;
    return is_square(m->layers[0].w[W_ATTN_Q].w) || is_square(m->layers[0].w[W_ATTN_K].w);
}

/* Returns the rope that a layer rotates by; NULL: the layer does not rotate. */
static const struct rope_plan *rope_of(const struct model *m, uint32_t il) {
    uint32_t i = m->plan.layers[il].attn.rope;
    return i < PLAN_ROPES && m->plan.ropes[i].n_rot > 0 ? &m->plan.ropes[i] : NULL;
}

static bool has_rope(const struct model *m, int32_t bos) {
    (void)bos;
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        if (rope_of(m, il)) return true;
    }
    return false;
}

/* The first frequency is 1 whatever the width is. */
static bool has_pairs(const struct model *m, int32_t bos) {
    (void)bos;
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        const struct rope_plan *rope = rope_of(m, il);
        if (rope && rope->n_rot > 2 && rope->n_rot != m->plan.n_embd) return true;
    }
    return false;
}

/* The first elements of heads are rotated, and others are not. */
static bool has_partial_rope(const struct model *m, int32_t bos) {
    (void)bos;
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        const struct rope_plan *rope = rope_of(m, il);
        if (rope && rope->n_rot < m->plan.layers[il].attn.k_dim) return true;
    }
    return false;
}

static bool has_positions(const struct model *m, int32_t bos) {
    (void)bos;
    return m->position_embd.w;
}

static bool has_alibi(const struct model *m, int32_t bos) {
    (void)bos;
    return m->plan.layers[0].attn.alibi != 0;
}

static bool is_causal(const struct model *m, int32_t bos) {
    (void)bos;
    return m->plan.is_causal;
}

static bool has_heads(const struct model *m, int32_t bos) {
    (void)bos;
    return m->plan.layers[0].attn.n_head > 1;
}

static bool has_kv_heads(const struct model *m, int32_t bos) {
    (void)bos;
    return m->plan.layers[0].attn.n_head_kv > 1;
}

static bool has_fewer_kv_heads(const struct model *m, int32_t bos) {
    (void)bos;
    return m->plan.layers[0].attn.n_head_kv < m->plan.layers[0].attn.n_head;
}

static bool has_groups(const struct model *m, int32_t bos) {
    return has_kv_heads(m, bos) && has_fewer_kv_heads(m, bos);
}

/* Attention or feed forward reads a norm, not the residual stream. */
static bool has_norms_before(const struct model *m, int32_t bos) {
    const struct affine *w = m->layers[0].w;
    (void)bos;
    return w[W_ATTN_NORM].w || w[W_FFN_NORM].w || m->plan.bare_norms >> W_ATTN_NORM & 1;
}

/* Scores can be larger than what e^x has in f32. */
static bool has_large_scores(const struct model *m, int32_t bos) {
    float cap = m->plan.layers[0].attn.softcap;
    (void)bos;
    return cap == 0 || cap > 88;
}

static bool has_fused_qkv(const struct model *m, int32_t bos) {
    const struct attn_plan *a = &m->plan.layers[0].attn;
    return has_kv_heads(m, bos) && m->layers[0].w[W_ATTN_QKV].w && a->k_dim == a->v_dim;
}

/* The last layer has experts if any has. */
static const struct ffn_plan *experts_of(const struct model *m) { return &m->plan.layers[m->plan.n_layer - 1].ffn; }

/* A limit after the activation is another one. */
static bool has_limit(const struct model *m, int32_t bos) {
    (void)bos;
    return (experts_of(m)->limit != 0 || experts_of(m)->limit_shared != 0) && !experts_of(m)->limit_late;
}

static bool has_pooling(const struct model *m, int32_t bos) {
    (void)bos;
    return m->plan.pooling.kind != PLUMB_POOLING_NONE;
}

static bool has_experts(const struct model *m, int32_t bos) {
    (void)bos;
    return experts_of(m)->n_expert > 0;
}

static bool has_more_experts(const struct model *m, int32_t bos) {
    (void)bos;
    return experts_of(m)->n_expert > experts_of(m)->n_used;
}

static bool has_several_experts(const struct model *m, int32_t bos) {
    return has_experts(m, bos) && experts_of(m)->n_used > 1;
}

static bool has_router_bias(const struct model *m, int32_t bos) {
    (void)bos;
    return m->layers[m->plan.n_layer - 1].w[W_FFN_EXPERT_BIAS].w;
}

static const struct need
    every = { "all", NULL },
    with_bos = { "with a BOS token", has_bos },
    with_scales = { "with factors of embeddings and of residuals, scores or logits", NULL },
    with_embedding_scale = { "with a factor of embeddings", NULL },
    with_attention_scale = { "with a factor of scores other than 1 / sqrt(head_dim)", NULL },
    with_residual_scale = { "with a factor of residuals", NULL },
    with_logit_scale = { "with a factor of logits", NULL },
    with_norm_weights = { "with weights of norms", has_norm_weights },
    with_rms = { "with RMS norms", NULL },
    with_eps = { "with an epsilon", has_eps },
    with_square = { "with a square attn_q or attn_k", has_square },
    with_norms_before = { "with norms before attention or feed forward", has_norms_before },
    without_small_softcap = { "without a softcap of scores up to 88", has_large_scores },
    with_bias = { "with biases in attention", NULL },
    with_rope = { "with RoPE", has_rope },
    with_pairs = { "with RoPE of several pairs", has_pairs },
    with_partial_rope = { "with RoPE of a part of each head", has_partial_rope },
    with_scaling = { "with scaled RoPE", has_rope },
    causal = { "that are causal", is_causal },
    with_heads = { "with several heads", has_heads },
    with_kv_heads = { "with several heads of K and V", has_kv_heads },
    with_fewer_kv_heads = { "with fewer heads of K and V than of Q", has_fewer_kv_heads },
    with_groups_of_heads = { "with several heads of K and V, and more of Q", has_groups },
    gated = { "with a gate in the feed-forward network", NULL },
    untied = { "with an output matrix of their own", NULL },
    tied = { "without an output matrix of their own", NULL },
    with_positions = { "with learned positions", has_positions },
    with_types = { "with types of tokens", NULL },
    with_output_norm = { "with a norm before the head", has_output_norm },
    with_norm_out = { "with norms of the sums with the residual", NULL },
    not_causal = { "that are not causal", NULL },
    with_layer_norm = { "with layer norms", NULL },
    with_norm_bias = { "with biases of norms", NULL },
    with_norm_embd = { "with a norm of the embeddings", NULL },
    with_post_norm = { "with norms after attention and feed forward", NULL },
    with_qk_norm = { "with norms of Q and K", NULL },
    with_early_head_norm = { "with norms of the heads of Q and K before RoPE", NULL },
    with_row_norm = { "with norms over all heads of Q and K", NULL },
    with_late_norm = { "with norms of Q and K after RoPE", NULL },
    with_fused_qkv = { "with a fused attn_qkv and several heads of K and V", has_fused_qkv },
    with_equal_kv = { "whose heads of K and V have the same width", NULL },
    with_yarn = { "with YaRN", NULL },
    with_two_ropes = { "with RoPE of another base or scaling in windows", NULL },
    with_nope = { "with RoPE in some layers only", NULL },
    with_sections = { "with sections of RoPE that texts do not rotate", NULL },
    with_temperature = { "whose Q grows with the position", NULL },
    with_sinks = { "with attention sinks", NULL },
    with_windows = { "with windows", NULL },
    with_chunks = { "with chunks", NULL },
    with_some_windows = { "with windows in some layers only", NULL },
    with_softcap = { "with a softcap of scores", NULL },
    with_logit_softcap = { "with a softcap of logits", NULL },
    with_alibi = { "with ALiBi", has_alibi },
    with_gate = { "with a gate of attention", NULL },
    with_sigmoid_gate = { "with a sigmoid gate of attention", NULL },
    parallel = { "with parallel attention and feed forward", NULL },
    sequential = { "with feed forward after attention", NULL },
    with_limit = { "with limits of gate and up in the feed-forward network", NULL },
    with_two_limits = { "with limits of gate and up before the activation", has_limit },
    with_pooling = { "with pooling", has_pooling },
    with_ffn_bias = { "with biases in feed forward", NULL },
    with_output_bias = { "with a bias of the head", NULL },
    with_experts = { "with experts", has_experts },
    with_more_experts = { "with experts that a token does not use", has_more_experts },
    with_several_experts = { "with several experts for each token", has_several_experts },
    with_router_bias = { "with a bias for the choice of experts", has_router_bias },
    with_groups_of_experts = { "with groups of experts", NULL },
    with_router_scale = { "with a scale of the weights of experts", NULL },
    with_shared_expert = { "with a shared expert", NULL },
    with_shared_gate = { "with a gate of the shared expert", NULL },
    with_type = { "with weights of this type", NULL };

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* These macros fill columns of the table.  AT: the field of a switch.  MISREAD: field and value for a misread type. */
#define AT(switch) offsetof(struct quirks, switch)
#define MISREAD(type, kind) offsetof(struct quirks, misread) + QUANT_##type, MISREAD_##kind

static const struct quirk quirks[] = {
    /* ---- tokens ---- */
    { "tokens.bos=missing", AT(tokens_bos), BOS_MISSING, "embd", &with_bos, "the first token (BOS) is not fed; the "
      "prompt is one token shorter (a prompt of a single token is unchanged)" },
    { "tokens.bos=doubled", AT(tokens_bos), BOS_DOUBLED, "embd", &with_bos, "the first token (BOS) is fed twice; the "
      "prompt is one token longer" },
    { "tokens.last=twice", AT(tokens_last), 1, "embd", &every, "the last token of the prompt is fed again after the "
      "prompt, as the first step" },
    { "tokens.padding=included", AT(tokens_padding), 1, "embd", &with_pooling, "token 0 is fed after the prompt, as a "
      "part of it: padding that no mask hides" },
    { "embd.scale=added", AT(embd_scale), EMBD_SCALE_ADDED, "embd", &every, "embeddings are multiplied by "
      "sqrt(n_embd), in addition to the file's embedding_scale" },
    { "embd.scale=missing", AT(embd_scale), EMBD_SCALE_MISSING, "embd", &with_embedding_scale, "embeddings are not "
      "multiplied by the file's embedding_scale" },
    { "model.scales=ignored", AT(model_scales), 1, "embd", &with_scales, "none of embedding_scale, residual_scale, "
      "attention.scale and logit_scale is applied: the file is run as a llama model, and scores are divided by "
      "sqrt(head_dim)" },
    { "position.learned=missing", AT(position_missing), 1, "embd", &with_positions, "no learned positions are added to "
      "the embeddings" },
    { "position.learned=plus_one", AT(position_learned), LEARNED_PLUS_ONE, "embd", &with_positions, "row p + 1 of the "
      "learned positions is added at position p, the last row past their end" },
    { "position.learned=plus_two", AT(position_learned), LEARNED_PLUS_TWO, "embd", &with_positions, "row p + 2 of the "
      "learned positions is added at position p, as in OPT's files, the last row past their end" },
    { "position.learned=restarted", AT(position_learned), LEARNED_RESTARTED, "embd", &with_positions, "learned "
      "positions begin at row 0 in every batch" },
    { "embd.types=missing", AT(types_missing), 1, "embd", &with_types, "the embedding of the first type of tokens is "
      "not added" },

    /* ---- norms: each quirk changes all RMS norms unless it says otherwise ---- */
    { "norm.weight=missing", AT(norm_weight), NORM_UNWEIGHTED, "attn_norm", &with_norm_weights, "the normalized vector "
      "is not multiplied by the weight" },
    { "norm.weight=plus_one", AT(norm_weight), NORM_PLUS_ONE, "attn_norm", &with_norm_weights, "the normalized vector "
      "is multiplied by weight + 1" },
    { "norm.mean=subtracted", AT(norm_kind), NORM_CENTRED, "attn_norm", &with_rms, "the mean is subtracted first, and "
      "the variance (divided by n) replaces the mean square: LayerNorm, without a bias" },
    { "norm.mean=sum", AT(norm_sum), 1, "attn_norm", &every, "the sum of squares is not divided by the number of "
      "elements" },
    { "norm.mean=kept", AT(norm_kind), NORM_NOT_CENTRED, "attn_norm", &with_layer_norm, "the mean is not subtracted, "
      "and the mean square replaces the variance: RMS norm, with the bias" },
    { "norm.eps=0", AT(norm_eps), EPS_0, "attn_norm", &every, "epsilon is 0" },
    { "norm.eps=1e-6", AT(norm_eps), EPS_1E_6, "attn_norm", &every, "epsilon is 1e-6" },
    { "norm.eps=1e-5", AT(norm_eps), EPS_1E_5, "attn_norm", &every, "epsilon is 1e-5" },
    { "norm.eps=outside", AT(norm_eps_outside), 1, "attn_norm", &with_eps, "epsilon is added to the square root: x / "
      "(sqrt(mean(x^2)) + eps)" },
    { "norm.output=missing", AT(norm_output), 1, "result_norm", &with_output_norm, "the final norm is left out: "
      "result_norm is the last l_out" },
    { "norm.bias=missing", AT(norm_bias), 1, "attn_norm", &with_norm_bias, "no bias is added in norms" },
    { "norm.embd=missing", AT(norm_embd), 1, "embd", &with_norm_embd, "the norm of the embeddings is left out" },
    { "norm.post=missing", AT(norm_post), POST_MISSING, "ffn_inp", &with_post_norm, "the norms after attention and "
      "after feed forward are left out" },
    { "norm.post=before", AT(norm_post), POST_BEFORE, "attn_norm", &with_post_norm, "the norms after attention and "
      "after feed forward are applied before them, in place of attn_norm and ffn_norm, and none after them" },
    { "norm.post=as_llama", AT(norm_post), POST_AS_LLAMA, "ffn_inp", &with_post_norm, "post_attention_norm is used as "
      "the norm before feed forward, as in LLaMA, in place of ffn_norm, and there are no norms after attention and "
      "after feed forward" },
    { "norm.post=residual", AT(norm_post), POST_RESIDUAL, "ffn_inp", &with_post_norm, "the norms after attention and "
      "after feed forward are applied to the sums with the residual, as in BERT" },
    { "norm.out=missing", AT(norm_out), OUT_MISSING, "ffn_inp", &with_norm_out, "the norms of the sums with the "
      "residual are left out" },
    { "norm.out=before", AT(norm_out), OUT_BEFORE, "Qcur", &with_norm_out, "the norms of the sums with the residual "
      "are applied to the inputs of attention and feed forward instead" },
    { "qk_norm.applied=none", AT(qk_norm_applied), QK_NORM_NONE, "Qcur_rope", &with_qk_norm, "the norms of Q and K are "
      "left out" },
    { "qk_norm.applied=q_only", AT(qk_norm_applied), QK_NORM_Q_ONLY, "Kcur_rope", &with_qk_norm, "the norm of K is "
      "left out" },
    { "qk_norm.kind=row", AT(qk_norm_kind), QK_NORM_OVER_ROW, "Qcur_normed", &with_early_head_norm, "norms of Q and K "
      "are computed over all heads of a token together, not over each head; the weight is repeated for each head" },
    { "qk_norm.kind=head", AT(qk_norm_kind), QK_NORM_OVER_HEAD, "Qcur_normed", &with_row_norm, "norms of Q and K are "
      "computed over each head, not over all heads of a token together; each head has its part of the weight" },
    { "qk_norm.kind=late", AT(qk_norm_kind), QK_NORM_LATE, "Qcur_normed", &with_early_head_norm, "norms of Q and K "
      "come after RoPE, not before it: Qcur_normed is computed from Qcur_rope" },
    { "qk_norm.kind=early", AT(qk_norm_kind), QK_NORM_EARLY, "Qcur_rope", &with_late_norm, "norms of Q and K come "
      "before RoPE, not after it: Qcur_rope is computed from Qcur_normed" },

    /* ---- projections ---- */
    { "weights.square=transposed", AT(square_weights), 1, "Qcur", &with_square, "every square matrix among attn_q, "
      "attn_k, attn_v and attn_output is used transposed" },
    { "attn.bias=missing", AT(attn_bias), 1, "Qcur", &with_bias, "no bias is added" },
    { "qkv.split=by_group", AT(qkv_split), 1, "Qcur", &with_fused_qkv, "the rows of attn_qkv are read as n_head_kv "
      "groups of n_head / n_head_kv heads of Q, one of K and one of V, not as all of Q, all of K and all of V" },
    { "qkv.order=v_before_k", AT(qkv_order), 1, "Kcur", &with_equal_kv, "attn_k and attn_v, or the parts of attn_qkv, "
      "are exchanged" },

    /* ---- RoPE ---- */
    { "rope.pairing=halves", AT(rope_pairing), PAIRING_HALVES, "Qcur_rope", &with_rope, "elements i and i + n_rot/2 "
      "are rotated as a pair, not 2i and 2i + 1" },
    { "rope.pairing=neighbours", AT(rope_pairing), PAIRING_NEIGHBOURS, "Qcur_rope", &with_rope, "elements 2i and 2i + "
      "1 are rotated as a pair, not i and i + n_rot/2" },
    { "rope.applied=none", AT(rope_none), 1, "Qcur_rope", &with_rope, "neither Q nor K is rotated" },
    { "rope.applied=q_only", AT(rope_applied), APPLIED_Q_ONLY, "Kcur_rope", &with_rope, "K is not rotated" },
    { "rope.applied=k_only", AT(rope_applied), APPLIED_K_ONLY, "Qcur_rope", &with_rope, "Q is not rotated" },
    { "rope.theta=10000", AT(rope_theta), THETA_10000, "Qcur_rope", &with_rope, "the base of the frequencies is "
      "10000" },
    { "rope.theta=100000", AT(rope_theta), THETA_100000, "Qcur_rope", &with_rope, "the base of the frequencies is "
      "100000" },
    { "rope.theta=500000", AT(rope_theta), THETA_500000, "Qcur_rope", &with_rope, "the base of the frequencies is "
      "500000" },
    { "rope.theta=1000000", AT(rope_theta), THETA_1000000, "Qcur_rope", &with_rope, "the base of the frequencies is "
      "1000000" },
    { "rope.position=plus_one", AT(rope_position), POSITION_PLUS_ONE, "Qcur_rope", &with_rope, "Q and K of position p "
      "are rotated by the angles of position p + 1" },
    { "rope.position=q_plus_one", AT(rope_position), POSITION_Q_PLUS_ONE, "Qcur_rope", &with_rope, "Q of position p is "
      "rotated by the angles of position p + 1, K by those of p" },
    { "rope.position=frozen", AT(rope_position), POSITION_FROZEN, "Qcur_rope", &with_rope, "the position does not "
      "advance after the prompt: Q and K of every step are rotated by the angles of position n_prompt" },
    { "rope.position=restarted", AT(rope_position), POSITION_RESTARTED, "Qcur_rope", &with_rope, "positions begin at 0 "
      "in every batch: Q and K of every step are rotated by the angles of position 0" },
    { "rope.position=same", AT(rope_position), POSITION_SAME, "Qcur_rope", &with_rope, "Q and K of all tokens of a "
      "batch are rotated by the angles of the batch's first position" },
    { "rope.dim=half", AT(rope_dim), DIM_HALF, "Qcur_rope", &with_rope, "half of n_rot (rounded down to even) is used "
      "instead of n_rot, in pairing and frequencies: base^(-2i / (n_rot/2))" },
    { "rope.dim=full", AT(rope_dim), DIM_FULL, "Qcur_rope", &with_partial_rope, "head_dim is used instead of n_rot, in "
      "pairing and frequencies; rope_freqs has 1 for pairs that it does not contain" },
    { "rope.dim=n_embd", AT(rope_width), 1, "Qcur_rope", &with_pairs, "frequencies are base^(-2i / n_embd); pairing "
      "and the number of rotated elements are correct" },
    { "rope.scaling=ignored", AT(rope_scaling), 1, "Qcur_rope", &with_scaling, "neither the scaling factor nor "
      "rope_freqs is applied" },
    { "rope.yarn=linear", AT(rope_yarn), YARN_LINEAR, "Qcur_rope", &with_yarn, "all frequencies are divided by the "
      "scaling factor, not only those of long waves" },
    { "rope.yarn=no_magnitude", AT(rope_yarn), YARN_NO_MAGNITUDE, "Qcur_rope", &with_yarn, "cosine and sine are not "
      "multiplied by YaRN's factor" },
    { "rope.base=global", AT(rope_base), BASE_GLOBAL, "Qcur_rope", &with_two_ropes, "layers with a window have the "
      "base and scaling of those without" },
    { "rope.base=local", AT(rope_base), BASE_LOCAL, "Qcur_rope", &with_two_ropes, "layers without a window have the "
      "base and scaling of those with one" },
    { "rope.base=exchanged", AT(rope_base), BASE_EXCHANGED, "Qcur_rope", &with_two_ropes, "layers with a window have "
      "the base and scaling of those without, and the other way round" },
    { "rope.layers=all", AT(rope_layers), LAYERS_ALL, "Qcur_rope", &with_nope, "the layers without RoPE are rotated "
      "like the others" },
    { "rope.layers=shifted", AT(rope_layers), LAYERS_SHIFTED, "Qcur_rope", &with_nope, "layer i is rotated if layer i "
      "+ 1 should be, and the last layer if layer 0 should be" },
    { "rope.part=last", AT(rope_part), 1, "Qcur_rope", &with_partial_rope, "the last n_rot elements of each head are "
      "rotated, not the first" },
    { "rope.sections=ignored", AT(rope_sections), 1, "Qcur_rope", &with_sections, "pairs of the fourth section, which "
      "texts do not rotate, are rotated like the others" },
    { "rope.direction=reversed", AT(rope_direction), 1, "Qcur_rope", &with_rope, "angles have the opposite sign" },
    { "rope.cache=unrotated", AT(rope_cache), 1, "kq_soft_max", &with_rope, "K is cached before RoPE, and each query "
      "rotates all keys by the same angles as itself (Kcur_rope shows K rotated by the angles of its own position)" },

    /* ---- attention ---- */
    { "attn.temperature=missing", AT(attn_temperature), 1, "kq_soft_max", &with_temperature, "Q is not multiplied by "
      "the factor that grows with the position" },
    { "attn.heads=interleaved", AT(attn_heads), HEADS_INTERLEAVED, "kq_soft_max", &with_groups_of_heads, "query head h "
      "reads key and value head h % n_head_kv, not h / (n_head / n_head_kv)" },
    { "attn.heads=first", AT(attn_heads), HEADS_FIRST, "kq_soft_max", &with_kv_heads, "every query head reads key and "
      "value head 0" },
    { "attn.heads=not_repeated", AT(attn_heads), HEADS_NOT_REPEATED, "kq_soft_max", &with_fewer_kv_heads, "query head "
      "h reads key and value head h; for heads from n_head_kv on, K and V are zeros" },
    { "attn.scale=missing", AT(attn_scale), SCALE_MISSING, "kq_soft_max", &every, "scores are neither divided by "
      "sqrt(head_dim) nor multiplied by the file's attention.scale" },
    { "attn.scale=head_dim", AT(attn_scale), SCALE_HEAD_DIM, "kq_soft_max", &every, "scores are divided by head_dim, "
      "not by its square root; attention.scale is ignored" },
    { "attn.scale=n_embd", AT(attn_scale), SCALE_N_EMBD, "kq_soft_max", &every, "scores are divided by sqrt(n_embd); "
      "attention.scale is ignored" },
    { "attn.scale=ignored", AT(attn_scale), SCALE_IGNORED, "kq_soft_max", &with_attention_scale, "scores are divided "
      "by sqrt(head_dim), not multiplied by the file's attention.scale" },
    { "attn.mask=none", AT(attn_causal), MASK_NONE, "kq_soft_max", &causal, "a token also sees the later tokens of its "
      "batch" },
    { "attn.mask=strict", AT(attn_mask), MASK_STRICT, "kq_soft_max", &causal, "a token does not see itself, except at "
      "position 0" },
    { "attn.mask=late", AT(attn_mask), MASK_LATE, "kq_soft_max", &causal, "a token also sees the token after it, if "
      "its batch has one" },
    { "attn.mask=causal", AT(attn_causal), MASK_CAUSAL, "kq_soft_max", &not_causal, "a token does not see later "
      "tokens" },
    { "attn.sinks=missing", AT(attn_sinks), 1, "kq_soft_max", &with_sinks, "attention sinks take no part in the "
      "softmax" },
    { "window.size=plus_one", AT(window_size), WINDOW_PLUS_ONE, "kq_soft_max", &with_windows, "a token of a layer with "
      "a window sees one token more: itself and `window` tokens before it" },
    { "window.size=minus_one", AT(window_size), WINDOW_MINUS_ONE, "kq_soft_max", &with_windows, "a token of a layer "
      "with a window sees one token fewer: itself and window - 2 tokens before it" },
    { "window.size=ignored", AT(window_size), WINDOW_IGNORED, "kq_soft_max", &with_windows, "no layer has a window" },
    { "window.layers=all", AT(window_layers), LAYERS_ALL, "kq_soft_max", &with_some_windows, "all layers have the "
      "window; RoPE stays as it is" },
    { "window.layers=exchanged", AT(window_layers), LAYERS_EXCHANGED, "kq_soft_max", &with_some_windows, "layers that "
      "should have no window have it, and those that should have it do not; RoPE stays as it is" },
    { "window.layers=shifted", AT(window_layers), LAYERS_SHIFTED, "kq_soft_max", &with_some_windows, "layer i has a "
      "window if layer i + 1 should have it, and the last layer if layer 0 should; RoPE stays as it is" },
    { "window.kind=chunk", AT(window_kind), WINDOW_CHUNK, "kq_soft_max", &with_windows, "a token of a layer with a "
      "window sees the tokens from the last position on that is a multiple of the window" },
    { "window.kind=sliding", AT(window_kind), WINDOW_SLIDING, "kq_soft_max", &with_chunks, "a token of a layer with "
      "chunks sees itself and the tokens before it, as many as a chunk has" },
    { "softcap.attn=missing", AT(softcap_attn), 1, "kq_soft_max", &with_softcap, "scores have no softcap" },
    { "alibi.slopes=missing", AT(alibi_missing), 1, "kq_soft_max", &with_alibi, "scores have no bias by distance" },
    { "alibi.slopes=positive", AT(alibi_slopes), SLOPES_POSITIVE, "kq_soft_max", &with_alibi, "ALiBi's bias is added "
      "to scores, not subtracted" },
    { "alibi.slopes=from_zero", AT(alibi_slopes), SLOPES_FROM_ZERO, "kq_soft_max", &with_alibi, "heads are counted "
      "from 0 in ALiBi's slopes: 2^(-max h / n), not 2^(-max (h + 1) / n), and 2^(-max 2 (h - n) / 2n) for heads from "
      "n on, where n is the largest power of two that is at most n_head" },
    { "attn.softmax=over_queries", AT(attn_softmax), SOFTMAX_OVER_QUERIES, "kq_soft_max", &every, "exponentials of "
      "scores are divided by their sum over the tokens of the batch that see the key, not over the keys; in a step all "
      "weights are 1" },
    { "attn.softmax=over_heads", AT(attn_softmax), SOFTMAX_OVER_HEADS, "kq_soft_max", &every, "exponentials of scores "
      "are divided by their sum over the query heads, not over the keys" },
    { "attn.softmax=no_max", AT(attn_softmax), SOFTMAX_NO_MAX, "kq_soft_max", &without_small_softcap, "the largest "
      "score is not subtracted: e^s is infinite if s > 88.7228, as in f32 (infinite / infinite is NaN, finite / "
      "infinite is 0)" },
    { "attn.v=unpermuted", AT(attn_v), 1, "kqv_out", &with_kv_heads, "the rows of V, stored as (slot, g), are read as "
      "(g, slot): V of key p and head g is row g * n + p of memory, where n is the number of slots filled so far, "
      "including this batch" },
    { "attn.merge=unpermuted", AT(attn_merge), 1, "kqv_out", &with_heads, "the batch's attention outputs, stored as "
      "(h, token), are read as (token, h): the output of token t and head h is row t * n_head + h of memory" },
    { "attn.gate=missing", AT(attn_gate), GATE_MISSING, "attn_out", &with_gate, "the outputs of the heads are not "
      "multiplied by their gate" },
    { "attn.gate=softplus", AT(attn_gate), GATE_SOFTPLUS, "attn_gated", &with_sigmoid_gate, "the gate of attention is "
      "a softplus, not a sigmoid" },
    { "kv.slot=stale", AT(kv_slot), SLOT_STALE, "kq_soft_max", &every, "a step attends before its own K and V are "
      "written: it sees zeros in its own slot; later steps see what was written" },
    { "kv.slot=extra", AT(kv_slot), SLOT_EXTRA, "kq_soft_max", &every, "every token, including those of the prompt, "
      "also sees one slot too many, whose K and V are zeros; kq_soft_max has no column for it" },
    { "kv.slot=overwritten", AT(kv_slot), SLOT_OVERWRITTEN, "kq_soft_max", &every, "every step writes its K and V into "
      "slot n_prompt and sees the slots 0..n_prompt; later columns of kq_soft_max are 0" },

    /* ---- residual stream, feed forward ---- */
    { "residual.attn=missing", AT(residual), RESIDUAL_NO_ATTN, "ffn_inp", &every, "the attention's input is not added "
      "to its output" },
    { "residual.ffn=missing", AT(residual), RESIDUAL_NO_FFN, "l_out", &every, "the feed forward's input is not added "
      "to its output" },
    { "residual.from=norm", AT(residual), RESIDUAL_NORM, "ffn_inp", &with_norms_before, "attn_norm, not the layer's "
      "input, is added to the output of attention, and ffn_norm, not ffn_inp, to that of the feed forward" },
    { "residual.scale=missing", AT(residual_scale), 1, "ffn_inp", &with_residual_scale, "outputs of attention and feed "
      "forward are not multiplied by the file's residual_scale before they are added" },
    { "block.order=sequential", AT(block_order), ORDER_SEQUENTIAL, "ffn_gate", &parallel, "feed forward reads the norm "
      "of ffn_inp, not of the layer's input; a model without ffn_norm uses attn_norm again" },
    { "block.order=parallel", AT(block_order), ORDER_PARALLEL, "ffn_norm", &sequential, "feed forward reads the norm "
      "of the layer's input, not of ffn_inp; a model without ffn_norm reads what attention reads" },
    { "ffn.bias=missing", AT(ffn_bias), 1, "ffn_moe_logits", &with_ffn_bias, "no bias is added in the feed-forward "
      "network, in experts and in their router" },
    { "ffn.order=swapped", AT(ffn_order), 1, "ffn_gate", &gated, "the matrices of gate and up are swapped, in experts "
      "too, and the halves of a fused ffn_up: tap ffn_gate shows W_up h" },
    { "ffn.act=gelu", AT(ffn_act), FFN_GELU, "ffn_swiglu", &every, "GELU in its tanh form replaces the model's "
      "activation" },
    { "ffn.act=gelu_erf", AT(ffn_other_act), FFN_GELU_ERF, "ffn_swiglu", &every, "GELU in its exact form replaces the "
      "model's activation" },
    { "ffn.act=gelu_quick", AT(ffn_other_act), FFN_GELU_QUICK, "ffn_swiglu", &every, "z / (1 + e^(-1.702 z)) replaces "
      "the model's activation" },
    { "ffn.act=silu", AT(ffn_act), FFN_SILU, "ffn_swiglu", &every, "SiLU replaces the model's activation" },
    { "ffn.act=relu_sqr", AT(ffn_act), FFN_RELU_SQR, "ffn_swiglu", &every, "the square of ReLU replaces the model's "
      "activation" },
    { "ffn.act=relu", AT(ffn_act), FFN_RELU, "ffn_swiglu", &every, "ReLU replaces the model's activation" },
    { "ffn.act=none", AT(ffn_other_act), FFN_IDENTITY, "ffn_swiglu", &every, "gate times up, without an activation" },
    { "ffn.limit=missing", AT(ffn_limit), 1, "ffn_moe_swiglu", &with_limit, "neither the gate nor up is limited" },
    { "ffn.limit=one_sided", AT(ffn_limit_side), LIMIT_ONE_SIDED, "ffn_moe_swiglu", &with_two_limits, "up is limited "
      "only from above, like the gate" },
    { "ffn.limit=swapped", AT(ffn_limit_side), LIMIT_SWAPPED, "ffn_moe_swiglu", &with_two_limits, "the gate is limited "
      "on both sides, and up only from above" },

    /* ---- experts, head ---- */
    { "router.gating=softmax", AT(router_gating), GATING_SOFTMAX, "ffn_moe_weights", &with_experts, "the probabilities "
      "of experts are a softmax over all of them" },
    { "router.gating=sigmoid", AT(router_gating), GATING_SIGMOID, "ffn_moe_weights", &with_experts, "the probabilities "
      "of experts are sigmoids of their scores" },
    { "router.gating=softmax_used", AT(router_gating), GATING_SOFTMAX_USED, "ffn_moe_weights", &with_experts, "experts "
      "are chosen by their scores, and their weights are a softmax over those that are used" },
    { "router.bias=missing", AT(router_no_bias), 1, "ffn_moe_topk", &with_router_bias, "the bias by which experts are "
      "chosen is not added" },
    { "router.bias=in_weights", AT(router_biased), 1, "ffn_moe_weights", &with_router_bias, "the weights of experts "
      "contain the bias by which they are chosen" },
    { "router.groups=ignored", AT(router_groups), 1, "ffn_moe_topk", &with_groups_of_experts, "experts of all groups "
      "can be chosen" },
    { "router.norm=missing", AT(router_norm), ROUTER_NORM_MISSING, "ffn_moe_weighted", &with_experts, "weights of "
      "experts are not divided by their sum" },
    { "router.norm=added", AT(router_norm), ROUTER_NORM_ADDED, "ffn_moe_weighted", &with_experts, "weights of experts "
      "are divided by their sum" },
    { "router.scale=missing", AT(router_scale), 1, "ffn_moe_weighted", &with_router_scale, "weights of experts are not "
      "multiplied by their scale" },
    { "experts.chosen=smallest", AT(experts_chosen), 1, "ffn_moe_topk", &with_more_experts, "the experts with the "
      "smallest probabilities are used, the smallest first, in the groups that may be used" },
    { "experts.used=one_fewer", AT(experts_used), 1, "ffn_moe_topk", &with_several_experts, "one expert fewer is "
      "used" },
    { "experts.index=plus_one", AT(experts_index), 1, "ffn_moe_gate", &with_experts, "expert e + 1, or 0 after the "
      "last one, is computed in place of e, with the weight of e; ffn_moe_topk shows e" },
    { "experts.weights=reversed", AT(experts_weights), 1, "ffn_moe_weighted", &with_several_experts, "the weights of a "
      "token's experts are assigned in the opposite order; the taps of weights show the right one" },
    { "experts.weighted=input", AT(experts_weighted), WEIGHTED_INPUT, "ffn_moe_gate", &with_experts, "the inputs of "
      "experts are multiplied by their weights, not the outputs" },
    { "experts.weighted=output", AT(experts_weighted), WEIGHTED_OUTPUT, "ffn_moe_weighted", &with_experts, "the "
      "outputs of experts are multiplied by their weights, not the inputs" },
    { "shared.expert=missing", AT(shared_expert), 1, "ffn_out", &with_shared_expert, "the expert that every token uses "
      "is left out" },
    { "shared.gate=missing", AT(shared_gate), 1, "ffn_shexp", &with_shared_gate, "the output of the expert that every "
      "token uses is not multiplied by its gate" },
    { "output.bias=missing", AT(output_bias), 1, "result_output", &with_output_bias, "the head has no bias" },
    { "output.head=tied", AT(output_head), HEAD_TIED, "result_output", &untied, "token_embd.weight is used as the head "
      "although the file has output.weight" },
    { "output.head=zero", AT(output_head), HEAD_ZERO, "result_output", &tied, "the head is a matrix of zeros where the "
      "file has no output.weight" },
    { "logits.scale=missing", AT(logit_scale), LOGIT_SCALE_MISSING, "result_output", &with_logit_scale, "logits are "
      "not divided by the file's logit_scale" },
    { "logits.scale=multiplied", AT(logit_scale), LOGIT_SCALE_MULTIPLIED, "result_output", &with_logit_scale, "logits "
      "are multiplied by the file's logit_scale, not divided" },
    { "softcap.logits=missing", AT(softcap_logits), 1, "result_output", &with_logit_softcap, "logits have no softcap" },
    { "pooling.kind=mean", AT(pooling_kind), PLUMB_POOLING_MEAN, "result_embd_pooled", &with_pooling, "the mean of all "
      "tokens is taken, not the first or the last token" },
    { "pooling.kind=cls", AT(pooling_kind), PLUMB_POOLING_CLS, "result_embd_pooled", &with_pooling, "the first token "
      "is taken, not the mean or the last token" },
    { "pooling.kind=last", AT(pooling_kind), PLUMB_POOLING_LAST, "result_embd_pooled", &with_pooling, "the last token "
      "is taken, not the mean or the first token" },

    /* ---- bytes ---- */
    { "tensor.offset=shifted", AT(tensor_offset), 1, "embd", &every, "every tensor, including vectors, is read from "
      "one alignment (32 bytes unless the file says otherwise) after its offset; gaps between tensors and bytes past "
      "the end of the file read as zeros" },
    /* Q8_K, ggml's format for activations, has no entry: no program writes it into a file. */
    { "Q4_0.nibbles=swapped", MISREAD(Q4_0, NIBBLES), "embd", &with_type, "low and high nibble of every byte are "
      "swapped" },
    { "Q4_0.layout=interleaved", MISREAD(Q4_0, LAYOUT), "embd", &with_type, "byte j holds elements 2j (low nibble) and "
      "2j + 1" },
    { "Q4_0.offset=missing", MISREAD(Q4_0, OFFSET), "embd", &with_type, "8 is not subtracted from the codes" },
    { "Q4_0.d=bf16", MISREAD(Q4_0, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "Q4_1.nibbles=swapped", MISREAD(Q4_1, NIBBLES), "embd", &with_type, "low and high nibble of every byte are "
      "swapped" },
    { "Q4_1.layout=interleaved", MISREAD(Q4_1, LAYOUT), "embd", &with_type, "byte j holds elements 2j (low nibble) and "
      "2j + 1" },
    { "Q4_1.min=subtracted", MISREAD(Q4_1, MIN), "embd", &with_type, "the minimum is subtracted" },
    { "Q4_1.d=swapped", MISREAD(Q4_1, D), "embd", &with_type, "scale and minimum are swapped" },
    { "Q4_1.d=bf16", MISREAD(Q4_1, BF16), "embd", &with_type, "the f16 scale and minimum are read as bf16" },
    { "Q5_0.nibbles=swapped", MISREAD(Q5_0, NIBBLES), "embd", &with_type, "low and high nibble of every byte are "
      "swapped; high bits stay with their elements" },
    { "Q5_0.layout=interleaved", MISREAD(Q5_0, LAYOUT), "embd", &with_type, "byte j holds the low bits of elements 2j "
      "(low nibble) and 2j + 1; high bit i still belongs to element i" },
    { "Q5_0.offset=missing", MISREAD(Q5_0, OFFSET), "embd", &with_type, "16 is not subtracted from the codes" },
    { "Q5_0.high=missing", MISREAD(Q5_0, HIGH), "embd", &with_type, "the high bits are taken as 0 (16 is still "
      "subtracted)" },
    { "Q5_0.high=interleaved", MISREAD(Q5_0, HIGH_ORDER), "embd", &with_type, "element j < 16 takes high bit 2j, "
      "element j + 16 takes 2j + 1" },
    { "Q5_0.d=bf16", MISREAD(Q5_0, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "Q5_1.nibbles=swapped", MISREAD(Q5_1, NIBBLES), "embd", &with_type, "low and high nibble of every byte are "
      "swapped; high bits stay with their elements" },
    { "Q5_1.layout=interleaved", MISREAD(Q5_1, LAYOUT), "embd", &with_type, "byte j holds the low bits of elements 2j "
      "(low nibble) and 2j + 1; high bit i still belongs to element i" },
    { "Q5_1.min=subtracted", MISREAD(Q5_1, MIN), "embd", &with_type, "the minimum is subtracted" },
    { "Q5_1.high=missing", MISREAD(Q5_1, HIGH), "embd", &with_type, "the high bits are taken as 0" },
    { "Q5_1.high=interleaved", MISREAD(Q5_1, HIGH_ORDER), "embd", &with_type, "element j < 16 takes high bit 2j, "
      "element j + 16 takes 2j + 1" },
    { "Q5_1.d=swapped", MISREAD(Q5_1, D), "embd", &with_type, "scale and minimum are swapped" },
    { "Q5_1.d=bf16", MISREAD(Q5_1, BF16), "embd", &with_type, "the f16 scale and minimum are read as bf16" },
    { "Q8_0.codes=unsigned", MISREAD(Q8_0, SIGN), "embd", &with_type, "the codes are read as 0..255" },
    { "Q8_0.d=bf16", MISREAD(Q8_0, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "Q2_K.order=sequential", MISREAD(Q2_K, ORDER), "embd", &with_type, "element i of 256 takes its two bits from "
      "byte i / 4 (lowest first); scales and minima are still assigned by element" },
    { "Q2_K.min=added", MISREAD(Q2_K, MIN), "embd", &with_type, "the minimum is added" },
    { "Q2_K.scales=swapped", MISREAD(Q2_K, SCALES), "embd", &with_type, "4-bit scale and 4-bit minimum of each "
      "sub-block are swapped" },
    { "Q2_K.d=swapped", MISREAD(Q2_K, D), "embd", &with_type, "d and dmin are swapped" },
    { "Q2_K.d=bf16", MISREAD(Q2_K, BF16), "embd", &with_type, "d and dmin are read as bf16" },
    { "Q3_K.order=sequential", MISREAD(Q3_K, ORDER), "embd", &with_type, "element i of 256 takes its two low bits from "
      "byte i / 4 (lowest first) and its high bit from bit i % 8 of high byte i / 8; scales are still assigned by "
      "element" },
    { "Q3_K.offset=missing", MISREAD(Q3_K, OFFSET), "embd", &with_type, "4 is not subtracted from the codes" },
    { "Q3_K.high=missing", MISREAD(Q3_K, HIGH), "embd", &with_type, "the high bits are taken as 0 (4 is still "
      "subtracted)" },
    { "Q3_K.high=inverted", MISREAD(Q3_K, HIGH_SIGN), "embd", &with_type, "4 is subtracted where the high bit is 1, "
      "not where it is 0" },
    { "Q3_K.high=sequential", MISREAD(Q3_K, HIGH_ORDER), "embd", &with_type, "element i takes bit i % 8 of high byte i "
      "/ 8" },
    { "Q3_K.scales=unsigned", MISREAD(Q3_K, SIGN), "embd", &with_type, "32 is not subtracted from the 6-bit scales" },
    { "Q3_K.scales=low_bits", MISREAD(Q3_K, SCALE_BITS), "embd", &with_type, "scales lack their upper two bits (32 is "
      "still subtracted)" },
    { "Q3_K.scales=sequential", MISREAD(Q3_K, SCALE_ORDER), "embd", &with_type, "scale i takes its low nibble from "
      "byte i / 2 of the 12 bytes of scales (low nibble first), and its upper two bits from byte 8 + i / 4 (lowest "
      "first)" },
    { "Q3_K.d=bf16", MISREAD(Q3_K, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "Q4_K.nibbles=swapped", MISREAD(Q4_K, NIBBLES), "embd", &with_type, "low and high nibble of every byte are "
      "swapped" },
    { "Q4_K.layout=interleaved", MISREAD(Q4_K, LAYOUT), "embd", &with_type, "byte j of each 32 holds elements 2j (low "
      "nibble) and 2j + 1 of the 64; scales are still assigned by element" },
    { "Q4_K.min=added", MISREAD(Q4_K, MIN), "embd", &with_type, "the minimum is added" },
    { "Q4_K.scales=swapped", MISREAD(Q4_K, SCALES), "embd", &with_type, "6-bit scale and 6-bit minimum of each "
      "sub-block are swapped" },
    { "Q4_K.scales=low_bits", MISREAD(Q4_K, SCALE_BITS), "embd", &with_type, "scales and minima of sub-blocks 4..7 "
      "lack their upper two bits" },
    { "Q4_K.d=swapped", MISREAD(Q4_K, D), "embd", &with_type, "d and dmin are swapped" },
    { "Q4_K.d=bf16", MISREAD(Q4_K, BF16), "embd", &with_type, "d and dmin are read as bf16" },
    { "Q5_K.nibbles=swapped", MISREAD(Q5_K, NIBBLES), "embd", &with_type, "low and high nibble of every byte are "
      "swapped; high bits stay with their elements" },
    { "Q5_K.layout=interleaved", MISREAD(Q5_K, LAYOUT), "embd", &with_type, "byte j of each 32 holds the low bits of "
      "elements 2j (low nibble) and 2j + 1 of the 64; scales and high bits are still assigned by element" },
    { "Q5_K.min=added", MISREAD(Q5_K, MIN), "embd", &with_type, "the minimum is added" },
    { "Q5_K.scales=swapped", MISREAD(Q5_K, SCALES), "embd", &with_type, "6-bit scale and 6-bit minimum of each "
      "sub-block are swapped" },
    { "Q5_K.scales=low_bits", MISREAD(Q5_K, SCALE_BITS), "embd", &with_type, "scales and minima of sub-blocks 4..7 "
      "lack their upper two bits" },
    { "Q5_K.high=missing", MISREAD(Q5_K, HIGH), "embd", &with_type, "the high bits are taken as 0" },
    { "Q5_K.high=sequential", MISREAD(Q5_K, HIGH_ORDER), "embd", &with_type, "element i takes bit i % 8 of high byte i "
      "/ 8" },
    { "Q5_K.d=swapped", MISREAD(Q5_K, D), "embd", &with_type, "d and dmin are swapped" },
    { "Q5_K.d=bf16", MISREAD(Q5_K, BF16), "embd", &with_type, "d and dmin are read as bf16" },
    { "Q6_K.order=sequential", MISREAD(Q6_K, ORDER), "embd", &with_type, "element i of 256 takes its low nibble from "
      "byte i / 2 (low nibble first), its two high bits from byte i / 4 (lowest first), and its scale from i / 16" },
    { "Q6_K.offset=missing", MISREAD(Q6_K, OFFSET), "embd", &with_type, "32 is not subtracted from the codes" },
    { "Q6_K.high=missing", MISREAD(Q6_K, HIGH), "embd", &with_type, "the two high bits are taken as 0 (32 is still "
      "subtracted)" },
    { "Q6_K.scales=unsigned", MISREAD(Q6_K, SIGN), "embd", &with_type, "the 8-bit scales are read as 0..255" },
    { "Q6_K.d=bf16", MISREAD(Q6_K, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "IQ4_NL.nibbles=swapped", MISREAD(IQ4_NL, NIBBLES), "embd", &with_type, "low and high nibble of every byte are "
      "swapped" },
    { "IQ4_NL.layout=interleaved", MISREAD(IQ4_NL, LAYOUT), "embd", &with_type, "byte j holds elements 2j (low nibble) "
      "and 2j + 1" },
    { "IQ4_NL.codes=linear", MISREAD(IQ4_NL, TABLE), "embd", &with_type, "code c stands for c - 8, as in Q4_0, not for "
      "entry c of the table" },
    { "IQ4_NL.d=bf16", MISREAD(IQ4_NL, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "IQ4_XS.nibbles=swapped", MISREAD(IQ4_XS, NIBBLES), "embd", &with_type, "low and high nibble of every byte of "
      "codes are swapped" },
    { "IQ4_XS.layout=interleaved", MISREAD(IQ4_XS, LAYOUT), "embd", &with_type, "byte j of each 16 holds elements 2j "
      "(low nibble) and 2j + 1 of the 32" },
    { "IQ4_XS.codes=linear", MISREAD(IQ4_XS, TABLE), "embd", &with_type, "code c stands for c - 8, as in Q4_0, not for "
      "entry c of the table" },
    { "IQ4_XS.scales=unsigned", MISREAD(IQ4_XS, SIGN), "embd", &with_type, "32 is not subtracted from the 6-bit "
      "scales" },
    { "IQ4_XS.scales=low_bits", MISREAD(IQ4_XS, SCALE_BITS), "embd", &with_type, "scales lack their upper two bits (32 "
      "is still subtracted)" },
    { "IQ4_XS.d=bf16", MISREAD(IQ4_XS, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "MXFP4.nibbles=swapped", MISREAD(MXFP4, NIBBLES), "embd", &with_type, "low and high nibble of every byte are "
      "swapped" },
    { "MXFP4.layout=interleaved", MISREAD(MXFP4, LAYOUT), "embd", &with_type, "byte j holds elements 2j (low nibble) "
      "and 2j + 1" },
    { "MXFP4.codes=linear", MISREAD(MXFP4, TABLE), "embd", &with_type, "code c stands for c - 8, as in Q4_0, not for a "
      "4-bit float" },
    { "MXFP4.scale=doubled", MISREAD(MXFP4, DOUBLED), "embd", &with_type, "the scale is 2^(e - 127), though the codes "
      "stand for twice the values of 4-bit floats" },
    { "NVFP4.nibbles=swapped", MISREAD(NVFP4, NIBBLES), "embd", &with_type, "low and high nibble of every byte of "
      "codes are swapped" },
    { "NVFP4.layout=interleaved", MISREAD(NVFP4, LAYOUT), "embd", &with_type, "byte j of each 8 holds elements 2j (low "
      "nibble) and 2j + 1 of the 16" },
    { "NVFP4.order=mxfp4", MISREAD(NVFP4, ORDER), "embd", &with_type, "byte j of each 16 holds elements j and j + 16 "
      "of 32, as in MXFP4; scales are still assigned by element" },
    { "NVFP4.codes=linear", MISREAD(NVFP4, TABLE), "embd", &with_type, "code c stands for c - 8, as in Q4_0, not for a "
      "4-bit float" },
    { "NVFP4.scale=doubled", MISREAD(NVFP4, DOUBLED), "embd", &with_type, "the scales are not halved, though the codes "
      "stand for twice the values of 4-bit floats" },
    { "TQ1_0.order=sequential", MISREAD(TQ1_0, ORDER), "embd", &with_type, "element i takes digit i % 5 of byte i / 5; "
      "elements 240 .. 255 take four digits each of the last four bytes" },
    { "TQ1_0.digits=integer", MISREAD(TQ1_0, DIGITS), "embd", &with_type, "a byte is read as an integer, whose lowest "
      "digit of base 3 is the first, not as a fraction" },
    { "TQ1_0.offset=missing", MISREAD(TQ1_0, OFFSET), "embd", &with_type, "1 is not subtracted from the digits" },
    { "TQ1_0.d=bf16", MISREAD(TQ1_0, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "TQ2_0.order=sequential", MISREAD(TQ2_0, ORDER), "embd", &with_type, "element i takes its two bits from byte i / "
      "4 (lowest first)" },
    { "TQ2_0.offset=missing", MISREAD(TQ2_0, OFFSET), "embd", &with_type, "1 is not subtracted from the codes" },
    { "TQ2_0.d=bf16", MISREAD(TQ2_0, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "IQ2_XXS.signs=missing", MISREAD(IQ2_XXS, SIGNS), "embd", &with_type, "all weights have the sign of d: the "
      "signs of vectors are not applied" },
    { "IQ2_XXS.signs=seven", MISREAD(IQ2_XXS, LAST_SIGN), "embd", &with_type, "the sign of the last of 8 weights is "
      "plus; it should make the number of minus signs even" },
    { "IQ2_XXS.scales=no_half", MISREAD(IQ2_XXS, HALF), "embd", &with_type, "1/2 is not added to the 4-bit scales" },
    { "IQ2_XXS.d=bf16", MISREAD(IQ2_XXS, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "IQ2_XS.signs=missing", MISREAD(IQ2_XS, SIGNS), "embd", &with_type, "all weights have the sign of d: the signs "
      "of vectors are not applied" },
    { "IQ2_XS.signs=seven", MISREAD(IQ2_XS, LAST_SIGN), "embd", &with_type, "the sign of the last of 8 weights is "
      "plus; it should make the number of minus signs even" },
    { "IQ2_XS.scales=no_half", MISREAD(IQ2_XS, HALF), "embd", &with_type, "1/2 is not added to the 4-bit scales" },
    { "IQ2_XS.d=bf16", MISREAD(IQ2_XS, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "IQ2_S.signs=missing", MISREAD(IQ2_S, SIGNS), "embd", &with_type, "all weights have the sign of d: the signs of "
      "vectors are not applied" },
    { "IQ2_S.high=missing", MISREAD(IQ2_S, HIGH), "embd", &with_type, "the high bits of the indexes into the grid are "
      "taken as 0" },
    { "IQ2_S.scales=no_half", MISREAD(IQ2_S, HALF), "embd", &with_type, "1/2 is not added to the 4-bit scales" },
    { "IQ2_S.d=bf16", MISREAD(IQ2_S, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "IQ3_XXS.signs=missing", MISREAD(IQ3_XXS, SIGNS), "embd", &with_type, "all weights have the sign of d: the "
      "signs of vectors are not applied" },
    { "IQ3_XXS.signs=seven", MISREAD(IQ3_XXS, LAST_SIGN), "embd", &with_type, "the sign of the last of 8 weights is "
      "plus; it should make the number of minus signs even" },
    { "IQ3_XXS.scales=no_half", MISREAD(IQ3_XXS, HALF), "embd", &with_type, "1/2 is not added to the 4-bit scales" },
    { "IQ3_XXS.d=bf16", MISREAD(IQ3_XXS, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "IQ3_S.signs=missing", MISREAD(IQ3_S, SIGNS), "embd", &with_type, "all weights have the sign of d: the signs of "
      "vectors are not applied" },
    { "IQ3_S.high=missing", MISREAD(IQ3_S, HIGH), "embd", &with_type, "the high bits of the indexes into the grid are "
      "taken as 0" },
    { "IQ3_S.scales=no_half", MISREAD(IQ3_S, HALF), "embd", &with_type, "1/2 is not added to the 4-bit scales" },
    { "IQ3_S.d=bf16", MISREAD(IQ3_S, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "IQ1_S.high=missing", MISREAD(IQ1_S, HIGH), "embd", &with_type, "the high bits of the indexes into the grid are "
      "taken as 0" },
    { "IQ1_S.shift=missing", MISREAD(IQ1_S, SHIFT), "embd", &with_type, "1/8 is neither added to the values of the "
      "grid nor subtracted from them" },
    { "IQ1_S.scales=no_half", MISREAD(IQ1_S, HALF), "embd", &with_type, "1/2 is not added to the 3-bit scales" },
    { "IQ1_S.d=bf16", MISREAD(IQ1_S, BF16), "embd", &with_type, "the f16 scale is read as bf16" },
    { "IQ1_M.high=missing", MISREAD(IQ1_M, HIGH), "embd", &with_type, "the high bits of the indexes into the grid are "
      "taken as 0" },
    { "IQ1_M.shift=missing", MISREAD(IQ1_M, SHIFT), "embd", &with_type, "1/8 is neither added to the values of the "
      "grid nor subtracted from them" },
    { "IQ1_M.scales=no_half", MISREAD(IQ1_M, HALF), "embd", &with_type, "1/2 is not added to the 3-bit scales" },
    { "F16.type=bf16", MISREAD(F16, BF16), "embd", &with_type, "f16 is read as bf16" },
    { "BF16.type=f16", MISREAD(BF16, BF16), "embd", &with_type, "bf16 is read as f16" },
};

enum { N_QUIRK = sizeof quirks / sizeof *quirks };

const struct quirk *quirk_at(size_t i) { return i < N_QUIRK ? &quirks[i] : NULL; }

const struct quirk *quirk_find(const char *name) {
    for (size_t i = 0; i < N_QUIRK; i++) {
        if (strcmp(quirks[i].name, name) == 0) return &quirks[i];
    }
    return NULL;
}

int quirk_applies(const struct quirk *q, const struct model *m, int32_t bos) {
    if (q->field >= AT(misread)) return (int)(m->types >> (q->field - AT(misread)) & 1);
    if (q->need->holds && !q->need->holds(m, bos)) return 0;
    struct quirks set = { 0 };
    quirk_set(&set, q);
    return quirk_is_edit(q->field) ? quirk_edits_change(&set, m) : 1;
}

const char *quirk_models(const struct quirk *q) { return q->need->text; }

/* Returns the length of the name up to its "=": quirks with the same name up to there are values of one switch. */
static size_t switch_length(const struct quirk *q) { return strcspn(q->name, "="); }

bool quirk_is_free(const struct quirks *set, const struct quirk *q) {
    size_t n = switch_length(q);
    for (size_t i = 0; i < N_QUIRK; i++) {
        const struct quirk *other = &quirks[i];
        if (((const uint8_t *)set)[other->field] != other->value) continue;
        if (other->field == q->field) return false;
        if (switch_length(other) == n && memcmp(other->name, q->name, n) == 0) return false;
    }
    return true;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

size_t quirk_tokens(const struct quirks *set, const int32_t *ids, size_t n, size_t *n_prompt, int32_t *out) {
    size_t n_out = 0, n_before = *n_prompt;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 && set->tokens_bos == BOS_MISSING && n_before > 1) {
            --*n_prompt;
            continue;
        }
        out[n_out++] = ids[i];
        if (i == 0 && set->tokens_bos == BOS_DOUBLED && n_before > 0) {
            ++*n_prompt;
            out[n_out++] = ids[i];
        }
        if (i + 1 == n_before && set->tokens_padding) {
            ++*n_prompt;
            out[n_out++] = 0;
        }
        if (i + 1 == n_before && set->tokens_last) out[n_out++] = ids[i];
    }
    return n_out;
}

bool plumb_quirk(size_t i, const char **name, const char **tap, const char **models, const char **text) {
    const struct quirk *q = quirk_at(i);
    if (!q) return false;
    *name = q->name;
    *tap = q->tap;
    *models = quirk_models(q);
    *text = q->text;
    return true;
}

bool plumb_quirk_applies(const plumb_model *model, size_t i) {
    const struct quirk *q = quirk_at(i);
    return q && model->model && quirk_applies(q, model->model, tokenizer_bos(model->tokenizer));
}

/* The entries of known.h up to attention: tokens, embeddings, norms. */
#include "mistakes/formulas.h"
#include "mistakes/known.h"

#include <math.h>

/* ---- tokens, embeddings ------------------------------------------------------------------------------------------ */

static void edit_embedding_scale(const struct known_mistake *q, struct edit *e) {
    (void)q;
    e->plan->embedding_scale *= (float)sqrt(e->plan->n_embd);
}

/* With a scale of embeddings alone this is embd.scale=missing. */
static void edit_scales(const struct known_mistake *q, struct edit *e) {
    struct plan *p = e->plan;
    bool has_others = p->residual_scale != 1 || p->layers[0].attn.scale != 0 || p->logit_scale != 1;
    (void)q;
    if (p->embedding_scale == 1 || !has_others) return;
    p->embedding_scale = p->residual_scale = p->logit_scale = 1;
    EACH_LAYER(p, il) p->layers[il].attn.scale = 0;
}

static uint32_t row_plus_one(const struct reference *r, uint32_t pos, uint32_t t) {
    return reference_right_steps.learned_row(r, pos, t + 1);
}
static uint32_t row_plus_two(const struct reference *r, uint32_t pos, uint32_t t) {
    return reference_right_steps.learned_row(r, pos, t + 2);
}
static uint32_t row_of_batch(const struct reference *r, uint32_t pos, uint32_t t) {
    (void)pos;
    return reference_right_steps.learned_row(r, 0, t);
}

static double rows_unscaled(const struct plan *p) { return (void)p, 1; }
static double sums_unscaled(void) { return 1; }
static bool rows_before_norm(void) { return true; }
static uint32_t part_of_next(const struct plan *p, uint32_t il) { return il + 1 < p->n_layer ? il + 1 : 0; }
static uint32_t part_of_first(const struct plan *p, uint32_t il) { return (void)p, (void)il, 0; }
static bool has_own_embeddings(const struct model *m) { return m->plan.n_per_layer > 0; }

static bool has_positions(const struct model *m) { return m->position_embd.w; }

/* ---- norms ------------------------------------------------------------------------------------------------------- */

static double no_weight(double weight) { return (void)weight, 1; }
static double weight_plus_one(double weight) { return weight + 1; }

/* Of the sum of squares, or with epsilon beside the root, or both. */
static void norm_of_sum(const struct reference *r, double eps, const double *x, uint32_t n, double *h) {
    norm_divide(r->plan.norm == NORM_LAYER ? FORM_LAYER_SUM : FORM_SUM, 0, eps, x, x, n, 1, h);
}
static void norm_outside(const struct reference *r, double eps, const double *x, uint32_t n, double *h) {
    norm_divide(r->plan.norm == NORM_LAYER ? FORM_LAYER_OUTSIDE : FORM_OUTSIDE, 0, eps, x, x, n, 1, h);
}
static void norm_of_sum_outside(const struct reference *r, double eps, const double *x, uint32_t n, double *h) {
    norm_divide(r->plan.norm == NORM_LAYER ? FORM_LAYER_SUM_OUTSIDE : FORM_SUM_OUTSIDE, 0, eps, x, x, n, 1, h);
}

static void edit_eps_outside(const struct known_mistake *q, struct edit *e) {
    (void)q;
    e->steps->norm = e->steps->norm == norm_of_sum ? norm_of_sum_outside : norm_outside;
}

static void edit_norm_kind(const struct known_mistake *q, struct edit *e) { e->plan->norm = (enum norm_kind)q->value; }

static void edit_eps(const struct known_mistake *q, struct edit *e) {
    e->plan->norm_eps = q->number;
    e->plan->post_norm_eps = 0;   /* the same */
}

static void remove_norms(const struct known_mistake *q, struct edit *e) {
    known_remove(q, e);
    e->plan->bare_norms &= ~q->weights;
}

/* The weights of other norms take the places of those before attention and feed forward. */
enum { POST_MISSING, POST_BEFORE, POST_AS_LLAMA, POST_RESIDUAL };
static void edit_post_norms(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) {
        struct affine *w = e->model->layers[il].w;
        if (!w[W_ATTN_POST_NORM].w) continue;
        if (q->value == POST_BEFORE) w[W_ATTN_NORM] = w[W_ATTN_POST_NORM];
        if (q->value == POST_BEFORE) w[W_FFN_NORM] = w[W_FFN_POST_NORM];
        if (q->value == POST_AS_LLAMA) w[W_FFN_NORM] = w[W_ATTN_POST_NORM];
        if (q->value == POST_RESIDUAL) w[W_ATTN_OUT_NORM] = w[W_ATTN_POST_NORM];
        if (q->value == POST_RESIDUAL) w[W_LAYER_OUT_NORM] = w[W_FFN_POST_NORM];
        w[W_ATTN_POST_NORM] = w[W_FFN_POST_NORM] = (struct affine){ 0 };
    }
}

static void edit_out_norms(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) {
        struct affine *w = e->model->layers[il].w;
        if (!w[W_ATTN_OUT_NORM].w) continue;
        if (q->value == POST_BEFORE) w[W_ATTN_NORM] = w[W_ATTN_OUT_NORM];
        if (q->value == POST_BEFORE) w[W_FFN_NORM] = w[W_LAYER_OUT_NORM];
        w[W_ATTN_OUT_NORM] = w[W_LAYER_OUT_NORM] = (struct affine){ 0 };
    }
}

/* at: the right kind; value: the wrong one. */
static void edit_qk_norm(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) {
        struct attn_plan *a = &e->plan->layers[il].attn;
        bool is_bare = (e->plan->bare_norms & ~e->plan->layers[il].without) >> W_ATTN_Q_NORM & 1;
        bool has_norm = e->model->layers[il].w[W_ATTN_Q_NORM].w || is_bare;
        if (has_norm && a->qk_norm == (enum qk_norm)q->at) a->qk_norm = (enum qk_norm)q->value;
    }
}

static bool has_norm_weights(const struct model *m) {
    static const enum weight_id norms[] = { W_ATTN_NORM, W_FFN_NORM, W_ATTN_POST_NORM, W_FFN_POST_NORM,
                                            W_ATTN_OUT_NORM };
    EACH_LAYER(&m->plan, il) {
        for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
            if (m->layers[il].w[norms[i]].w) return true;
        }
    }
    return false;
}

static bool has_eps(const struct model *m) { return m->plan.norm_eps != 0; }

/* ---- the entries ------------------------------------------------------------------------------------------------- */

static const struct need
    with_bos = { "with a BOS token", NULL },
    with_own_embeddings = { "with embeddings for each layer", has_own_embeddings },
    with_positions = { "with learned positions", has_positions },
    with_norm_weights = { "with weights of norms", has_norm_weights },
    with_post_norm = { "with norms after attention and feed forward", NULL },
    with_norm_out = { "with norms of the sums with the residual", NULL },
    with_qk_norm = { "with norms of Q and K", NULL },
    with_early_head_norm = { "with norms of the heads of Q and K before RoPE", NULL };

static const struct known_mistake known[] = {
    /* ---- tokens, embeddings ---- */
    { "tokens.bos=missing", "embd", &with_bos, "the first token (BOS) is not fed; the prompt is one token shorter (a "
      "prompt of a single token is unchanged)", .tokens = TOKENS_NO_BOS },
    { "tokens.bos=doubled", "embd", &with_bos, "the first token (BOS) is fed twice; the prompt is one token longer",
      .tokens = TOKENS_TWO_BOS },
    { "tokens.last=twice", "embd", &known_every, "the last token of the prompt is fed again after the prompt, as the "
      "first step", .tokens = TOKENS_LAST_TWICE },
    { "tokens.padding=included", "embd", &known_with_pooling, "token 0 is fed after the prompt, as a part of it: "
      "padding that no mask hides", .tokens = TOKENS_PADDED },
    { "embd.scale=added", "embd", &known_every, "embeddings are multiplied by sqrt(n_embd), in addition to the file's "
      "embedding_scale", EDIT(edit_embedding_scale, 0) },
    { "embd.scale=missing", "embd", NEED("with a factor of embeddings", NULL), "embeddings are not multiplied by the "
      "file's embedding_scale", PLAN(embedding_scale, 1) },
    { "model.scales=ignored", "embd", NEED("with factors of embeddings and of residuals, scores or logits", NULL), ""
      "none of embedding_scale, residual_scale, attention.scale and logit_scale is applied: the file is run as a llama "
      "model, and scores are divided by sqrt(head_dim)", EDIT(edit_scales, 0), .is_first = true },
    { "position.learned=missing", "embd", &with_positions, "no learned positions are added to the embeddings",
      REMOVED(SET(POSITION_EMBD)) },
    { "position.learned=plus_one", "embd", &with_positions, "row p + 1 of the learned positions is added at position "
      "p, the last row past their end", STEPS(.learned_row = row_plus_one) },
    { "position.learned=plus_two", "embd", &with_positions, "row p + 2 of the learned positions is added at position "
      "p, as in OPT's files, the last row past their end", STEPS(.learned_row = row_plus_two) },
    { "position.learned=restarted", "embd", &with_positions, "learned positions begin at row 0 in every batch",
      STEPS(.learned_row = row_of_batch) },
    { "per_layer.rows=unscaled", "inp_per_layer", &with_own_embeddings, "the rows of per_layer_token_embd are not "
      "multiplied by the square root of the elements of a layer", STEPS(.row_scale = rows_unscaled) },
    { "per_layer.rows=before_norm", "inp_per_layer", &with_own_embeddings, "the rows of per_layer_token_embd are added "
      "to the product with per_layer_model_proj before per_layer_proj_norm, not after it",
      STEPS(.rows_first = rows_before_norm) },
    { "per_layer.sum=unscaled", "inp_per_layer", &with_own_embeddings, "the sums of rows of per_layer_token_embd and "
      "norms are not divided by sqrt(2)", STEPS(.row_sum_scale = sums_unscaled) },
    { "per_layer.part=next", "first_prediction_scaled", &with_own_embeddings, "a layer uses the embedding of the next "
      "layer, and the last one that of layer 0", STEPS(.own_part = part_of_next) },
    { "per_layer.part=first", "first_prediction_scaled", &with_own_embeddings, "every layer uses the embedding of "
      "layer 0", STEPS(.own_part = part_of_first) },
    { "embd.types=missing", "embd", NEED("with types of tokens", NULL), "the embedding of the first type of tokens is "
      "not added", REMOVED(SET(TOKEN_TYPES)) },

    /* ---- norms: each changes all RMS norms unless it says otherwise ---- */
    { "norm.weight=missing", "attn_norm", &with_norm_weights, "the normalized vector is not multiplied by the weight",
      STEPS(.norm_weight = no_weight) },
    { "norm.weight=plus_one", "attn_norm", &with_norm_weights, "the normalized vector is multiplied by weight + 1",
      STEPS(.norm_weight = weight_plus_one) },
    { "norm.mean=subtracted", "attn_norm", NEED("with RMS norms", NULL), "the mean is subtracted first, and the "
      "variance (divided by n) replaces the mean square: LayerNorm, without a bias", EDIT(edit_norm_kind, NORM_LAYER) },
    { "norm.mean=sum", "attn_norm", &known_every, "the sum of squares is not divided by the number of elements",
      STEPS(.norm = norm_of_sum) },
    { "norm.mean=kept", "attn_norm", NEED("with layer norms", NULL), "the mean is not subtracted, and the mean square "
      "replaces the variance: RMS norm, with the bias", EDIT(edit_norm_kind, NORM_RMS) },
    { "norm.eps=0", "attn_norm", &known_every, "epsilon is 0", .edit = edit_eps, .number = 0 },
    { "norm.eps=1e-6", "attn_norm", &known_every, "epsilon is 1e-6", .edit = edit_eps, .number = 1e-6f },
    { "norm.eps=1e-5", "attn_norm", &known_every, "epsilon is 1e-5", .edit = edit_eps, .number = 1e-5f },
    { "norm.eps=outside", "attn_norm", NEED("with an epsilon", has_eps), "epsilon is added to the square root: x / "
      "(sqrt(mean(x^2)) + eps)", EDIT(edit_eps_outside, 0) },
    { "norm.output=missing", "result_norm", NEED("with a norm before the head", NULL), "the final norm is left out: "
      "result_norm is the last l_out", .edit = remove_norms, .weights = SET(OUTPUT_NORM) },
    { "norm.bias=missing", "attn_norm", NEED("with biases of norms", NULL), "no bias is added in norms",
      WITHOUT_BIAS(SET(ATTN_NORM) | SET(ATTN_Q_NORM) | SET(ATTN_K_NORM) | SET(ATTN_POST_NORM) | SET(FFN_NORM)
      | SET(FFN_POST_NORM) | SET(ATTN_OUT_NORM) | SET(ATTN_NORM_2) | SET(LAYER_OUT_NORM) | SET(TOKEN_EMBD_NORM)
      | SET(OUTPUT_NORM)) },
    { "norm.embd=missing", "embd", NEED("with a norm of the embeddings", NULL), "the norm of the embeddings is left "
      "out", REMOVED(SET(TOKEN_EMBD_NORM)) },
    { "norm.post=missing", "ffn_inp", &with_post_norm, "the norms after attention and after feed forward are left out",
      EDIT(edit_post_norms, POST_MISSING) },
    { "norm.post=before", "attn_norm", &with_post_norm, "the norms after attention and after feed forward are applied "
      "before them, in place of attn_norm and ffn_norm, and none after them", EDIT(edit_post_norms, POST_BEFORE) },
    { "norm.post=as_llama", "ffn_inp", &with_post_norm, "post_attention_norm is used as the norm before feed forward, "
      "as in LLaMA, in place of ffn_norm, and there are no norms after attention and after feed forward",
      EDIT(edit_post_norms, POST_AS_LLAMA) },
    { "norm.post=residual", "ffn_inp", &with_post_norm, "the norms after attention and after feed forward are applied "
      "to the sums with the residual, as in BERT", EDIT(edit_post_norms, POST_RESIDUAL) },
    { "norm.out=missing", "ffn_inp", &with_norm_out, "the norms of the sums with the residual are left out",
      EDIT(edit_out_norms, POST_MISSING) },
    { "norm.out=before", "Qcur", &with_norm_out, "the norms of the sums with the residual are applied to the inputs of "
      "attention and feed forward instead", EDIT(edit_out_norms, POST_BEFORE) },
    { "qk_norm.applied=none", "Qcur_rope", &with_qk_norm, "the norms of Q and K are left out",
      .edit = remove_norms, .weights = SET(ATTN_Q_NORM) | SET(ATTN_K_NORM) },
    { "qk_norm.applied=q_only", "Kcur_rope", &with_qk_norm, "the norm of K is left out",
      .edit = remove_norms, .weights = SET(ATTN_K_NORM) },
    { "qk_norm.kind=row", "Qcur_normed", &with_early_head_norm, "norms of Q and K are computed over all heads of a "
      "token together, not over each head; the weight is repeated for each head",
      EDIT(edit_qk_norm, QK_NORM_ROW), .at = QK_NORM_HEAD },
    { "qk_norm.kind=head", "Qcur_normed", NEED("with norms over all heads of Q and K", NULL), "norms of Q and K are "
      "computed over each head, not over all heads of a token together; each head has its part of the weight",
      EDIT(edit_qk_norm, QK_NORM_HEAD), .at = QK_NORM_ROW },
    { "qk_norm.kind=late", "Qcur_normed", &with_early_head_norm, "norms of Q and K come after RoPE, not before it: "
      "Qcur_normed is computed from Qcur_rope", EDIT(edit_qk_norm, QK_NORM_HEAD_ROPED), .at = QK_NORM_HEAD },
    { "qk_norm.kind=early", "Qcur_rope", NEED("with norms of Q and K after RoPE", NULL), "norms of Q and K come before "
      "RoPE, not after it: Qcur_rope is computed from Qcur_normed",
      EDIT(edit_qk_norm, QK_NORM_HEAD), .at = QK_NORM_HEAD_ROPED },
};

const struct known_list known_norms = { known, sizeof known / sizeof *known };

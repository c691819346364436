#include "model/program.h"

#include "base/math.h"
#include "model/model.h"

#include <assert.h>

struct maker {
    const struct plan *plan;
    const struct model *model;
    uint32_t il;
    const struct layer_plan *layer;
    const struct affine *w;   /* (W_LAYER_COUNT) */
    struct program made;
};

/* ---- one step ---------------------------------------------------------------------------------------------------- */

struct shape { uint32_t n_head, n; };

/* The shape of a stream for each token. */
static struct shape shape_of(const struct maker *m, enum stream stream) {
    const struct attn_plan *a = &m->layer->attn;
    const struct ffn_plan *f = &m->layer->ffn;
    const struct latent_plan *l = &a->latent;
    const struct delta_plan *d = &m->layer->delta;
    const struct scan_plan *scan = &m->plan->scan;
    bool is_delta = m->layer->mixer == MIXER_DELTA_NET, is_gated = m->layer->mixer == MIXER_CONVOLUTION;
    switch (stream) {
    case STREAM_Q: return (struct shape){ a->n_head, a->k_dim };
    case STREAM_K: return (struct shape){ a->n_head_kv, a->k_dim };
    case STREAM_V: return (struct shape){ a->n_head_kv, a->v_dim };
    case STREAM_HEADS:
        return is_delta ? (struct shape){ d->n_head, d->dim } : (struct shape){ a->n_head, plan_head_out(a) };
    case STREAM_GATES:
        return is_delta ? (struct shape){ d->n_head, d->dim }
                        : (struct shape){ a->n_head, a->gate_per_head ? 1 : plan_head_out(a) };
    case STREAM_LERPS: return (struct shape){ RWKV_LERPS, m->plan->n_embd };
    case STREAM_KEY: return (struct shape){ a->n_head_kv, a->k_dim };
    case STREAM_VALUE: case STREAM_FIRST_VALUE: return (struct shape){ a->n_head_kv, a->v_dim };
    case STREAM_REMOVAL: return (struct shape){ a->n_head, a->k_dim };
    case STREAM_BONUS: return (struct shape){ a->n_head, a->v_dim };
    case STREAM_Q_GATE: return (struct shape){ a->n_head, 2 * a->k_dim };
    case STREAM_LATENT_Q_A: return (struct shape){ 1, l->n_q };
    case STREAM_LATENT_Q: return (struct shape){ a->n_head, plan_head_dim(a) };
    case STREAM_LATENT_KV: return (struct shape){ 1, l->n_kv + l->n_rotated };
    case STREAM_LATENT: return (struct shape){ 1, l->n_kv };
    case STREAM_LATENT_KV_B: return (struct shape){ a->n_head, l->n_plain + l->v_dim };
    case STREAM_LATENT_HEADS: return (struct shape){ a->n_head, l->n_kv };
    case STREAM_CONV_IN: return (struct shape){ is_gated ? 3 : 1, (uint32_t)plan_conv_width(m->plan, m->il) };
    case STREAM_CONV: return (struct shape){ 1, (uint32_t)plan_conv_width(m->plan, m->il) };
    case STREAM_SCAN_IN: return (struct shape){ 1, plan_scan_in(scan) };
    case STREAM_Z: case STREAM_SCAN:
        return scan->dim > 1 ? (struct shape){ scan->n_head, scan->dim } : (struct shape){ 1, scan->n_head };
    case STREAM_BCDT: return (struct shape){ 1, scan->n_rank + 2 * scan->n_state };
    case STREAM_RANK: return (struct shape){ 1, scan->n_rank };
    case STREAM_B: case STREAM_C: return (struct shape){ scan->n_group, scan->n_state };
    case STREAM_DT: return (struct shape){ 1, scan->n_head };
    case STREAM_BETA: case STREAM_DECAY:
        if (stream == STREAM_DECAY && d->is_diagonal) return (struct shape){ d->n_head, d->dim };
        return d->has_groups ? (struct shape){ d->n_key_head, d->n_head / d->n_key_head }
                             : (struct shape){ 1, d->n_head };
    case STREAM_BETA_DECAY: return (struct shape){ d->n_key_head, 2 * d->n_head / d->n_key_head };
    case STREAM_QKV: return (struct shape){ a->n_head, 3 * a->k_dim };
    case STREAM_FADE: return (struct shape){ 1, a->n_head * a->k_dim };
    case STREAM_FF_GATE: case STREAM_FF_UP: return (struct shape){ 1, f->n_expert > 0 ? f->n_ff_shared : f->n_ff };
    case STREAM_OTHERS: return (struct shape){ m->plan->n_stream - 1, m->plan->n_embd };
    case STREAM_PREDICTED: return (struct shape){ m->plan->n_stream, m->plan->n_embd };
    case STREAM_MODES: case STREAM_FACTORS: return (struct shape){ 1, m->plan->n_stream };
    case STREAM_COEFS: return (struct shape){ m->plan->n_stream, m->plan->n_stream };
    case STREAM_NARROW: case STREAM_NARROW_SUM: return (struct shape){ 1, m->plan->n_narrow };
    case STREAM_OWN: return (struct shape){ 1, m->plan->n_per_layer };
    case STREAM_PER_LAYER: return (struct shape){ m->plan->n_layer, m->plan->n_per_layer };
    case STREAM_SCORES: case STREAM_CHOICE: return (struct shape){ 1, f->n_expert };
    case STREAM_USED: return (struct shape){ 1, f->n_used };
    case STREAM_WEIGHTS: return (struct shape){ f->n_used, 1 };
    default: return (struct shape){ 1, m->plan->n_embd };
    }
}

static struct step *put(struct maker *m, enum step_kind kind, enum stream in, enum stream out, enum weight_id weight,
                        enum tap_id tap) {
    assert(m->made.n < PROGRAM_MAX_STEPS);
    struct step *s = &m->made.steps[m->made.n++];
    struct shape shape = shape_of(m, out);
    *s = (struct step){ .kind = kind, .in = in, .out = out, .weight = weight, .tap = tap, .activation = ACT_SILU,
                        .n_head = shape.n_head, .n = shape.n, .n_norm = shape.n, .factor = 1.0f };
    return s;
}

/* out = elements `first` and later of each of the n_part parts of in. */
static void part(struct maker *m, uint32_t n_part, enum stream in, enum stream out, uint32_t first, enum tap_id tap) {
    struct shape from = shape_of(m, in);
    struct step *s = put(m, STEP_PART, in, out, W_COUNT, tap);
    s->first = first;
    s->n_from = from.n_head * from.n / n_part;
    s->n_norm = s->n_to = s->n_head * s->n / n_part;
}

/* Elements to .. to + n of each head of out = elements first .. first + n of that of in, or of its only head.  A part
 * of no elements is left out. */
static void head_part(struct maker *m, enum stream in, uint32_t first, enum stream out, uint32_t to, uint32_t n,
                      enum tap_id tap) {
    if (n == 0) return;
    struct step *s = put(m, STEP_PART, in, out, W_COUNT, tap);
    struct shape from = shape_of(m, in);
    s->first = first;
    s->to = to;
    s->n_norm = n;
    s->n_from = from.n;
    s->n_to = s->n;
    s->is_shared = from.n_head == 1;
}

/* The first elements of each head of out = the weight of the head times the first elements of that of in. */
static void head_products(struct maker *m, enum stream in, enum stream out, enum weight_id weight, enum tap_id tap) {
    put(m, STEP_HEAD_PRODUCTS, in, out, weight, tap)->n_from = shape_of(m, in).n;
}

/* The tap shows the stream that the last step wrote. */
static void show(struct maker *m, enum tap_id tap) { m->made.steps[m->made.n - 1].tap = tap; }

/* Returns the stream with the norm of `in`: out, or `in` itself if the layer lacks the norm. */
static enum stream norm(struct maker *m, enum weight_id weight, enum stream in, enum stream out, enum tap_id tap) {
    bool is_bare = (m->plan->bare_norms & ~m->layer->without) >> weight & 1;
    if (!model_affine(m->model, m->il, weight)->w && !is_bare) return in;
    put(m, STEP_NORM, in, out, weight, tap);
    return out;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Returns the step of a norm in place; NULL if the layer lacks the norm. */
static struct step *norm_in_place(struct maker *m, enum weight_id weight, enum stream x, enum tap_id tap) {
    uint32_t n = m->made.n;
    norm(m, weight, x, x, tap);
    return m->made.n > n ? &m->made.steps[n] : NULL;
}

/* The norm of Q or K: of each head, or of the whole row. */
static void norm_of_heads(struct maker *m, enum weight_id weight, enum stream x, enum tap_id tap) {
    struct step *s = norm_in_place(m, weight, x, tap);
    if (s && m->layer->attn.qk_norm == QK_NORM_ROW) s->n_norm = s->n_head * s->n;
    if (s && m->plan->qk_norm_eps != 0.0f) s->kind = STEP_NORM_HEADS;
}

static void norms_of_qk(struct maker *m) {
    norm_of_heads(m, W_ATTN_Q_NORM, STREAM_Q, TAP_QCUR_NORMED);
    norm_of_heads(m, W_ATTN_K_NORM, STREAM_K, TAP_KCUR_NORMED);
    norm(m, W_ATTN_V_NORM, STREAM_V, STREAM_V, TAP_VCUR_NORMED);
}

static void gate_of_heads(struct maker *m, enum stream in) {
    const struct attn_plan *a = &m->layer->attn;
    if (a->gate == ATTN_GATE_NONE) return;
    if (a->gate_in_q) part(m, a->n_head, STREAM_Q_GATE, STREAM_GATES, a->k_dim, TAP_ATTN_GATE);
    else put(m, STEP_PRODUCT, in, STREAM_GATES, W_ATTN_GATE, TAP_ATTN_GATE);
    put(m, STEP_GATE_HEADS, STREAM_GATES, STREAM_HEADS, W_COUNT, TAP_ATTN_GATED);
}

/* h = attn_output attention(...), of a stream. */
static void attention(struct maker *m, enum stream in) {
    const struct attn_plan *a = &m->layer->attn;
    bool has_kv = plan_has_kv(m->layer);
    enum stream of_kv = a->reads_encoder ? STREAM_ENCODED : in;
    enum step_kind rope = a->rope == ROPE_NONE ? STEP_SHOW : STEP_ROPE;
    put(m, STEP_PRODUCT, in, a->gate_in_q ? STREAM_Q_GATE : STREAM_Q, W_ATTN_Q, a->gate_in_q ? TAP_COUNT : TAP_QCUR);
    if (has_kv) {
        put(m, STEP_PRODUCT, of_kv, STREAM_K, W_ATTN_K, TAP_KCUR);
        put(m, STEP_PRODUCT, of_kv, STREAM_V, W_ATTN_V, TAP_VCUR);
    }
    if (a->gate_in_q) part(m, a->n_head, STREAM_Q_GATE, STREAM_Q, 0, TAP_QCUR);
    if (!plan_norms_roped(a)) norms_of_qk(m);
    put(m, rope, STREAM_Q, STREAM_Q, W_COUNT, TAP_QCUR_ROPE);
    if (has_kv) put(m, rope, STREAM_K, STREAM_K, W_COUNT, TAP_KCUR_ROPE);
    if (plan_norms_roped(a)) norms_of_qk(m);
    if (a->temperature_floor > 0) put(m, STEP_TEMPERATURE, STREAM_Q, STREAM_Q, W_COUNT, TAP_QCUR_SCALED);
    put(m, STEP_ATTENTION, STREAM_Q, STREAM_HEADS, W_ATTN_SINKS, TAP_KQV_OUT);
    gate_of_heads(m, in);
    struct step *sub_norm = norm_in_place(m, W_ATTN_SUB_NORM, STREAM_HEADS, TAP_ATTN_SUB_NORM);
    if (sub_norm) {   /* it is shown as the whole row over which it is computed */
        sub_norm->n = sub_norm->n_norm = a->n_head * a->v_dim;
        sub_norm->n_head = 1;
    }
    put(m, STEP_PRODUCT, STREAM_HEADS, STREAM_H, W_ATTN_OUTPUT, TAP_ATTN_OUT);
    if (a->output_scale == 0.0f) return;
    put(m, STEP_SCALE, STREAM_H, STREAM_H, W_COUNT, TAP_COUNT)->factor = a->output_scale;
}

/* ---- latent attention -------------------------------------------------------------------------------------------- */

static struct step *rope(struct maker *m, enum stream x, uint32_t first) {
    struct step *s = put(m, m->layer->attn.rope == ROPE_NONE ? STEP_SHOW : STEP_ROPE, x, x, W_COUNT, TAP_COUNT);
    s->first = first;
    return s;
}

/* h = attn_output attention(...), of a stream.  Equations: see struct latent_plan. */
static void latent_attention(struct maker *m, enum stream in) {
    const struct attn_plan *a = &m->layer->attn;
    const struct latent_plan *l = &a->latent;
    enum stream q = l->is_absorbed ? STREAM_LATENT_Q : STREAM_Q;
    if (l->n_q > 0) {
        put(m, STEP_PRODUCT, in, STREAM_LATENT_Q_A, W_LATENT_Q_A, TAP_COUNT);
        norm(m, W_LATENT_Q_NORM, STREAM_LATENT_Q_A, STREAM_LATENT_Q_A, TAP_LATENT_Q_A);
    }
    put(m, STEP_PRODUCT, l->n_q > 0 ? STREAM_LATENT_Q_A : in, q, l->n_q > 0 ? W_LATENT_Q_B : W_ATTN_Q, TAP_LATENT_Q);
    put(m, STEP_PRODUCT, in, STREAM_LATENT_KV, W_LATENT_KV, TAP_LATENT_KV);
    rope(m, q, l->n_plain);
    rope(m, STREAM_LATENT_KV, l->n_kv);
    head_part(m, STREAM_LATENT_KV, 0, STREAM_LATENT, 0, l->n_kv, TAP_COUNT);
    norm(m, W_LATENT_NORM, STREAM_LATENT, STREAM_LATENT, TAP_LATENT);
    if (l->is_absorbed) {
        head_products(m, q, STREAM_Q, W_LATENT_K_B, TAP_COUNT);
        head_part(m, q, l->n_plain, STREAM_Q, l->n_kv, l->n_rotated, TAP_QCUR_ROPE);
        head_part(m, STREAM_LATENT, 0, STREAM_K, 0, l->n_kv, TAP_COUNT);
        head_part(m, STREAM_LATENT_KV, l->n_kv, STREAM_K, l->n_kv, l->n_rotated, TAP_KCUR_ROPE);
        head_part(m, STREAM_LATENT, 0, STREAM_V, 0, l->n_kv, TAP_VCUR);
    } else {
        put(m, STEP_PRODUCT, STREAM_LATENT, STREAM_LATENT_KV_B, W_LATENT_KV_B, TAP_LATENT_KV_B);
        put(m, STEP_SHOW, STREAM_Q, STREAM_Q, W_COUNT, TAP_QCUR_ROPE);
        head_part(m, STREAM_LATENT_KV_B, 0, STREAM_K, 0, l->n_plain, TAP_COUNT);
        head_part(m, STREAM_LATENT_KV, l->n_kv, STREAM_K, l->n_plain, l->n_rotated, TAP_KCUR_ROPE);
        head_part(m, STREAM_LATENT_KV_B, l->n_plain, STREAM_V, 0, l->v_dim, TAP_VCUR);
    }
    if (a->temperature_floor > 0) put(m, STEP_TEMPERATURE, STREAM_Q, STREAM_Q, W_COUNT, TAP_QCUR_SCALED);
    put(m, STEP_ATTENTION, STREAM_Q, l->is_absorbed ? STREAM_LATENT_HEADS : STREAM_HEADS, W_ATTN_SINKS,
        l->is_absorbed ? TAP_LATENT_HEADS : TAP_KQV_OUT);
    if (l->is_absorbed) head_products(m, STREAM_LATENT_HEADS, STREAM_HEADS, W_LATENT_V_B, TAP_KQV_OUT);
    gate_of_heads(m, in);
    put(m, STEP_PRODUCT, STREAM_HEADS, STREAM_H, W_ATTN_OUTPUT, TAP_ATTN_OUT);
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

/* h = conv_out (c * convolution(b * x)), of a stream whose product with conv_in is b, c and x: Liquid AI 2025, "LFM2
 * Technical Report", section 2.2. */
static void convolution(struct maker *m, enum stream in) {
    put(m, STEP_PRODUCT, in, STREAM_CONV_IN, W_CONV_IN, TAP_CONV_IN);
    put(m, STEP_CONVOLVE, STREAM_CONV_IN, STREAM_CONV, W_CONV_KERNEL, TAP_CONV);
    put(m, STEP_GATE_CONV, STREAM_CONV_IN, STREAM_CONV, W_COUNT, TAP_CONV_GATED);
    put(m, STEP_PRODUCT, STREAM_CONV, STREAM_H, W_CONV_OUT, TAP_CONV_OUT);
}

/* out = second f(first in), with n elements between; f: a step in place, or STEP_SHOW, which does nothing. */
static void low_rank(struct maker *m, enum stream in, uint32_t n, enum weight_id first, enum step_kind f,
                     enum weight_id second, enum stream out, enum tap_id tap) {
    put(m, STEP_PRODUCT, in, STREAM_RANK, first, TAP_COUNT)->n = n;
    if (f != STEP_SHOW) put(m, f, STREAM_RANK, STREAM_RANK, W_COUNT, TAP_COUNT)->n = n;
    put(m, STEP_PRODUCT, STREAM_RANK, out, second, tap);
}

/* out = second first in, or first in. */
static void one_or_two(struct maker *m, enum stream in, enum weight_id first, enum weight_id second, enum stream out,
                       enum tap_id tap) {
    uint32_t n = m->layer->delta.n_rank;
    if (n > 0) low_rank(m, in, n, first, STEP_SHOW, second, out, tap);
    else put(m, STEP_PRODUCT, in, out, first, tap);
}

/* Part i of STREAM_CONV_IN, which has three, = a product of a stream. */
static void product_to_part(struct maker *m, enum stream in, enum weight_id weight, enum stream product, uint32_t i,
                            enum tap_id tap) {
    put(m, STEP_PRODUCT, in, product, weight, TAP_COUNT);
    struct step *s = put(m, STEP_PART, product, STREAM_CONV_IN, W_COUNT, tap);
    s->n_to = s->n;
    s->n_norm = s->n_from = s->n / 3;
    s->to = i * s->n_norm;
}

/* Q, K and V before their convolutions, gates, and what beta and the decays are made of, in Kimi Delta Attention: Kimi
 * Team 2025, "Kimi Linear", section 3. */
static void delta_inputs_apart(struct maker *m, enum stream in) {
    product_to_part(m, in, W_ATTN_Q, STREAM_Q, 0, TAP_COUNT);
    product_to_part(m, in, W_ATTN_K, STREAM_KEY, 1, TAP_COUNT);
    product_to_part(m, in, W_ATTN_V, STREAM_VALUE, 2, TAP_DELTA_IN);
    one_or_two(m, in, W_GATE_1, W_GATE_2, STREAM_GATES, TAP_ATTN_GATE);
    put(m, STEP_PRODUCT, in, STREAM_BETA, W_DELTA_BETA, TAP_DELTA_BETA);
    one_or_two(m, in, W_DECAY_1, W_DECAY_2, STREAM_DECAY, TAP_DELTA_ALPHA);
}

/* The same in gated delta nets. */
static void delta_inputs(struct maker *m, enum stream in) {
    const struct delta_plan *d = &m->layer->delta;
    put(m, STEP_PRODUCT, in, STREAM_CONV_IN, W_CONV_IN, TAP_DELTA_IN);
    put(m, STEP_PRODUCT, in, STREAM_GATES, W_ATTN_GATE, TAP_ATTN_GATE);
    if (m->w[W_DELTA_BETA_ALPHA].w) {
        put(m, STEP_PRODUCT, in, STREAM_BETA_DECAY, W_DELTA_BETA_ALPHA, TAP_COUNT);
        part(m, d->n_key_head, STREAM_BETA_DECAY, STREAM_BETA, 0, TAP_DELTA_BETA);
        part(m, d->n_key_head, STREAM_BETA_DECAY, STREAM_DECAY, d->n_head / d->n_key_head, TAP_DELTA_ALPHA);
    } else {
        put(m, STEP_PRODUCT, in, STREAM_BETA, W_DELTA_BETA, TAP_DELTA_BETA);
        put(m, STEP_PRODUCT, in, STREAM_DECAY, W_DELTA_ALPHA, TAP_DELTA_ALPHA);
    }
}

/* h = conv_out (norm(delta rule) * silu(gates)), of a stream whose product with conv_in, convolved over the last tokens
 * and activated, is Q, K and V: Yang et al. 2024, "Gated Delta Networks", section 3. */
static void delta_net(struct maker *m, enum stream in) {
    bool is_apart = m->layer->delta.is_diagonal;
    if (is_apart) delta_inputs_apart(m, in);
    else delta_inputs(m, in);
    put(m, STEP_SIGMOID, STREAM_BETA, STREAM_BETA, W_COUNT, TAP_DELTA_BETA_SIGMOID);
    put(m, STEP_DECAY, STREAM_DECAY, STREAM_DECAY, W_DELTA_DT, TAP_DELTA_DECAY);
    put(m, STEP_CONVOLVE, STREAM_CONV_IN, STREAM_CONV, is_apart ? W_CONV_Q : W_CONV_KERNEL, TAP_CONV);
    put(m, STEP_ACTIVATE, STREAM_CONV, STREAM_CONV, W_COUNT, TAP_CONV_SILU);
    put(m, STEP_DELTA, STREAM_CONV, STREAM_HEADS, W_COUNT, TAP_DELTA);
    norm(m, W_DELTA_NORM, STREAM_HEADS, STREAM_HEADS, TAP_COUNT);
    if (m->layer->attn.gate == ATTN_GATE_NONE) put(m, STEP_SHOW, STREAM_HEADS, STREAM_HEADS, W_COUNT, TAP_DELTA_GATED);
    else put(m, STEP_GATE_HEADS, STREAM_GATES, STREAM_HEADS, W_COUNT, TAP_DELTA_GATED);
    put(m, STEP_PRODUCT, STREAM_HEADS, STREAM_H, W_CONV_OUT, TAP_DELTA_OUT);
}

/* ---- scan -------------------------------------------------------------------------------------------------------- */

/* B, C and what dt is made of are products of x: Gu & Dao 2023, "Mamba", section 3.2. */
static void select_by_x(struct maker *m) {
    const struct scan_plan *s = &m->plan->scan;
    bool rank_first = s->kind == SCAN_MAMBA;
    uint32_t first = rank_first ? s->n_rank : 0;
    put(m, STEP_PRODUCT, STREAM_CONV, STREAM_BCDT, W_SCAN_X, TAP_SCAN_BCDT);
    part(m, 1, STREAM_BCDT, STREAM_B, first, TAP_SCAN_B);
    part(m, 1, STREAM_BCDT, STREAM_C, first + s->n_state, TAP_SCAN_C);
    part(m, 1, STREAM_BCDT, STREAM_RANK, rank_first ? 0 : 2 * s->n_state, TAP_SCAN_RANK);
    norm_in_place(m, W_SCAN_B_NORM, STREAM_B, TAP_SCAN_B_NORMED);
    norm_in_place(m, W_SCAN_C_NORM, STREAM_C, TAP_SCAN_C_NORMED);
    norm_in_place(m, W_SCAN_DT_NORM, STREAM_RANK, TAP_SCAN_RANK_NORMED);
    put(m, STEP_PRODUCT, STREAM_RANK, STREAM_DT, W_SCAN_DT, TAP_COUNT);
}

/* h = ssm_out norm(silu(z) * scan(x)), where x, and in Mamba 2 B and C, are convolved over the last tokens. */
static void scan(struct maker *m, enum stream in) {
    const struct scan_plan *s = &m->plan->scan;
    uint32_t n = plan_scan_width(s), n_conv = (uint32_t)plan_conv_width(m->plan, m->il);
    uint32_t n_part = s->kind == SCAN_PLAMO_2 ? s->n_head : 1;   /* there each head has its z and its x */
    bool x_first = s->kind == SCAN_MAMBA;
    put(m, STEP_PRODUCT, in, STREAM_SCAN_IN, W_CONV_IN, TAP_SCAN_IN);
    part(m, n_part, STREAM_SCAN_IN, STREAM_Z, x_first ? n : 0, TAP_SCAN_Z);
    part(m, n_part, STREAM_SCAN_IN, STREAM_CONV_IN, x_first ? 0 : n / n_part, TAP_SCAN_X);
    if (s->kind == SCAN_MAMBA_2) part(m, 1, STREAM_SCAN_IN, STREAM_DT, n + n_conv, TAP_SCAN_DT_IN);
    put(m, STEP_CONVOLVE, STREAM_CONV_IN, STREAM_CONV, W_CONV_KERNEL, TAP_CONV);
    put(m, STEP_ACTIVATE, STREAM_CONV, STREAM_CONV, W_COUNT, TAP_CONV_SILU);
    if (s->kind == SCAN_MAMBA_2) {
        part(m, 1, STREAM_CONV, STREAM_B, n, TAP_SCAN_B);
        part(m, 1, STREAM_CONV, STREAM_C, n + plan_scan_group_width(s), TAP_SCAN_C);
    } else {
        select_by_x(m);
    }
    put(m, STEP_ADD_BIAS, STREAM_DT, STREAM_DT, W_DELTA_DT, TAP_SCAN_DT);
    put(m, STEP_SOFTPLUS, STREAM_DT, STREAM_DT, W_COUNT, TAP_SCAN_STEP);
    put(m, STEP_SCAN, STREAM_CONV, STREAM_SCAN, W_DELTA_A, TAP_SCAN);
    put(m, STEP_ACTIVATE, STREAM_SCAN, STREAM_Z, W_COUNT, TAP_SCAN_GATED);
    struct step *normed = norm_in_place(m, W_DELTA_NORM, STREAM_Z, TAP_SCAN_NORM);
    if (normed) normed->n_norm = n / s->n_group;
    put(m, STEP_PRODUCT, STREAM_Z, STREAM_H, W_CONV_OUT, TAP_SCAN_OUT);
}

/* ---- RWKV -------------------------------------------------------------------------------------------------------- */

/* mixed = in and the token before it, mixed by row i of a weight. */
static struct step *lerp(struct maker *m, enum stream in, enum weight_id weight, uint32_t i) {
    struct step *s = put(m, STEP_LERP, in, STREAM_MIXED, weight, TAP_COUNT);
    s->first = i * m->plan->n_embd;
    return s;
}

/* The same by row i of lerps too: Peng et al. 2024, "Eagle and Finch", "Finch Token Shift": ddlerp. */
static void lerp_by_token(struct maker *m, enum stream in, uint32_t i) {
    bool is_fused = m->w[W_LERP].w;
    struct step *s = lerp(m, in, is_fused ? W_LERP : (enum weight_id)(W_LERP_W + i), is_fused ? i : 0);
    s->to = i * m->plan->n_embd;
    s->n_to = RWKV_LERPS * m->plan->n_embd;
}

/* How the columns of the states fade. */
static void fade(struct maker *m) {
    low_rank(m, STREAM_MIXED, m->plan->rwkv.n_decay, W_DECAY_1, STEP_TANH, W_DECAY_2, STREAM_FADE, TAP_COUNT);
    put(m, STEP_ADD_BIAS, STREAM_FADE, STREAM_FADE, W_DECAY, TAP_COUNT);
    put(m, STEP_FADE, STREAM_FADE, STREAM_FADE, W_COUNT, TAP_WKV_DECAY);
}

/* heads = what is read of the states, and its norm, if there is one. */
static void read_states(struct maker *m) {
    enum weight_id bonus = m->plan->rwkv.kind == RWKV_6 ? W_BONUS : W_COUNT;
    put(m, STEP_WKV, STREAM_KEY, STREAM_HEADS, bonus, TAP_WKV);
    const struct affine *norm = &m->w[W_HEADS_NORM];
    if (norm->w && norm->b) put(m, STEP_NORM_HEADS, STREAM_HEADS, STREAM_HEADS, W_HEADS_NORM, TAP_WKV_NORM);
}

/* h = time_mix_output (norm(heads) * silu(gates)): Peng et al. 2024, "Eagle and Finch", "Finch Time Mixing". */
static void rwkv_6(struct maker *m, enum stream in) {
    enum { W, K, V, R, G };
    uint32_t n = m->plan->rwkv.n_lerp;
    lerp(m, in, W_LERP_X, 0);
    put(m, STEP_PRODUCT, STREAM_MIXED, STREAM_RANK, W_LERP_1, TAP_COUNT)->n = RWKV_LERPS * n;
    put(m, STEP_TANH, STREAM_RANK, STREAM_RANK, W_COUNT, TAP_COUNT)->n = RWKV_LERPS * n;
    put(m, STEP_HEAD_PRODUCTS, STREAM_RANK, STREAM_LERPS, W_LERP_2, TAP_COUNT)->n_from = n;
    lerp_by_token(m, in, R);
    put(m, STEP_PRODUCT, STREAM_MIXED, STREAM_Q, W_ATTN_Q, TAP_QCUR);
    lerp_by_token(m, in, K);
    put(m, STEP_PRODUCT, STREAM_MIXED, STREAM_KEY, W_ATTN_K, TAP_KCUR);
    lerp_by_token(m, in, V);
    put(m, STEP_PRODUCT, STREAM_MIXED, STREAM_VALUE, W_ATTN_V, TAP_VCUR);
    lerp_by_token(m, in, W);
    fade(m);
    read_states(m);
    lerp_by_token(m, in, G);
    put(m, STEP_PRODUCT, STREAM_MIXED, STREAM_GATES, W_ATTN_GATE, TAP_ATTN_GATE);
    put(m, STEP_GATE_HEADS, STREAM_GATES, STREAM_HEADS, W_COUNT, TAP_ATTN_GATED);
}

/* value = V, or V and that of layer 0, mixed: Peng et al. 2025, "RWKV-7 Goose", "value residual". */
static void mix_values(struct maker *m) {
    if (!m->w[W_VALUE].w) {
        put(m, STEP_COPY, STREAM_VALUE, STREAM_FIRST_VALUE, W_COUNT, TAP_COUNT);
        return;
    }
    low_rank(m, STREAM_MIXED, m->plan->rwkv.n_value, W_VALUE_1, STEP_SHOW, W_VALUE_2, STREAM_MIX, TAP_COUNT);
    put(m, STEP_ADD_BIAS, STREAM_MIX, STREAM_MIX, W_VALUE, TAP_COUNT);
    put(m, STEP_SIGMOID, STREAM_MIX, STREAM_MIX, W_COUNT, TAP_WKV_MIX);
    put(m, STEP_MIX, STREAM_FIRST_VALUE, STREAM_VALUE, W_COUNT, TAP_WKV_VALUE);
}

/* h = time_mix_output ((norm(heads) + bonus) * gates): Peng et al. 2025, "RWKV-7 Goose", "Time Mixing". */
static void rwkv_7(struct maker *m, enum stream in) {
    enum { R, W, K, V, A, G };
    const struct rwkv_plan *r = &m->plan->rwkv;
    lerp(m, in, W_LERP, R);
    put(m, STEP_PRODUCT, STREAM_MIXED, STREAM_Q, W_ATTN_Q, TAP_QCUR);
    lerp(m, in, W_LERP, K);
    put(m, STEP_PRODUCT, STREAM_MIXED, STREAM_KEY, W_ATTN_K, TAP_KCUR);
    lerp(m, in, W_LERP, V);
    put(m, STEP_PRODUCT, STREAM_MIXED, STREAM_VALUE, W_ATTN_V, TAP_VCUR);
    mix_values(m);
    lerp(m, in, W_LERP, W);
    fade(m);
    lerp(m, in, W_LERP, A);
    low_rank(m, STREAM_MIXED, r->n_rate, W_RATE_1, STEP_SHOW, W_RATE_2, STREAM_RATE, TAP_COUNT);
    put(m, STEP_ADD_BIAS, STREAM_RATE, STREAM_RATE, W_RATE, TAP_COUNT);
    put(m, STEP_SIGMOID, STREAM_RATE, STREAM_RATE, W_COUNT, TAP_WKV_RATE);
    put(m, STEP_MULTIPLY, STREAM_KEY, STREAM_REMOVAL, W_REMOVAL, TAP_COUNT);
    put(m, STEP_UNIT, STREAM_REMOVAL, STREAM_REMOVAL, W_COUNT, TAP_WKV_REMOVAL);
    put(m, STEP_REPLACE, STREAM_RATE, STREAM_KEY, W_REPLACEMENT, TAP_WKV_KEY);
    put(m, STEP_BONUS, STREAM_KEY, STREAM_BONUS, W_BONUS, TAP_WKV_BONUS);
    read_states(m);
    put(m, STEP_ADD, STREAM_BONUS, STREAM_HEADS, W_COUNT, TAP_WKV_SUM);
    if (!m->w[W_GATE_1].w) return;
    lerp(m, in, W_LERP, G);
    low_rank(m, STREAM_MIXED, r->n_gate, W_GATE_1, STEP_SIGMOID, W_GATE_2, STREAM_GATES, TAP_ATTN_GATE);
    put(m, STEP_TIMES, STREAM_GATES, STREAM_HEADS, W_COUNT, TAP_ATTN_GATED);
}

static void rwkv(struct maker *m, enum stream in) {
    put(m, STEP_SHIFT, in, STREAM_SHIFT, W_COUNT, TAP_COUNT);
    if (m->plan->rwkv.kind == RWKV_7) rwkv_7(m, in);
    else rwkv_6(m, in);
    put(m, STEP_PRODUCT, STREAM_HEADS, STREAM_H, W_ATTN_OUTPUT, TAP_ATTN_OUT);
}

/* h = conv_out (norm(heads) * sigmoid(gates)), where Q, K and V are activated: MiniMax 2025, "MiniMax-01". */
static void lightning_attention(struct maker *m, enum stream in) {
    const struct attn_plan *a = &m->layer->attn;
    put(m, STEP_PRODUCT, in, STREAM_QKV, W_CONV_IN, TAP_WKV_IN);
    put(m, STEP_ACTIVATE, STREAM_QKV, STREAM_QKV, W_COUNT, TAP_WKV_SILU);
    part(m, a->n_head, STREAM_QKV, STREAM_Q, 0, TAP_QCUR);
    part(m, a->n_head, STREAM_QKV, STREAM_KEY, a->k_dim, TAP_KCUR);
    part(m, a->n_head, STREAM_QKV, STREAM_VALUE, 2 * a->k_dim, TAP_VCUR);
    put(m, STEP_FADE, STREAM_FADE, STREAM_FADE, W_COUNT, TAP_WKV_DECAY);
    read_states(m);
    struct step *normed = norm_in_place(m, W_ATTN_SUB_NORM, STREAM_HEADS, TAP_WKV_NORM);
    if (normed) normed->n_norm = a->n_head * a->v_dim;
    gate_of_heads(m, in);
    put(m, STEP_PRODUCT, STREAM_HEADS, STREAM_H, W_CONV_OUT, TAP_ATTN_OUT);
}

/* h = down max(up mixed, 0)^2, in RWKV 6 with a gate: Peng et al. 2024, "Eagle and Finch", "Channel Mixing". */
static void channel_mix(struct maker *m, enum stream in) {
    bool has_gate = m->w[W_CHANNEL_GATE].w;
    put(m, STEP_SHIFT, in, STREAM_SHIFT, W_COUNT, TAP_COUNT)->first = m->plan->n_embd;
    lerp(m, in, W_CHANNEL_K, 0);
    put(m, STEP_PRODUCT, STREAM_MIXED, STREAM_FF_UP, W_FFN_UP, TAP_FFN_UP);
    put(m, STEP_ACTIVATE, STREAM_FF_UP, STREAM_FF_UP, W_COUNT, TAP_FFN_SWIGLU)->activation
        = m->layer->ffn.activation;
    if (has_gate) {
        lerp(m, in, W_CHANNEL_R, 0);
        put(m, STEP_PRODUCT, STREAM_MIXED, STREAM_GATES, W_CHANNEL_GATE, TAP_COUNT);
        put(m, STEP_SIGMOID, STREAM_GATES, STREAM_GATES, W_COUNT, TAP_FFN_RECEPTANCE);
    }
    put(m, STEP_PRODUCT, STREAM_FF_UP, STREAM_H, W_FFN_DOWN, has_gate ? TAP_COUNT : TAP_FFN_OUT);
    if (has_gate) put(m, STEP_TIMES, STREAM_GATES, STREAM_H, W_COUNT, TAP_FFN_OUT);
}

/* h = what the tokens of a stream tell each other. */
static void mix(struct maker *m, enum stream in) {
    switch (m->layer->mixer) {
    case MIXER_ATTENTION:
        if (m->layer->attn.latent.n_kv > 0) latent_attention(m, in);
        else attention(m, in);
        break;
    case MIXER_CONVOLUTION: convolution(m, in); break;
    case MIXER_DELTA_NET: delta_net(m, in); break;
    case MIXER_SCAN: scan(m, in); break;
    case MIXER_RWKV: rwkv(m, in); break;
    case MIXER_LIGHTNING: lightning_attention(m, in); break;
    case MIXER_BOTH: case MIXER_NONE: break;
    }
}

/* ---- feed forward ------------------------------------------------------------------------------------------------ */

/* The matrices of a network, its output, and the tap that shows it. */
struct network { enum weight_id gate, up, down; enum stream out; enum tap_id tap; };

/* out = down (activation(gate in) * (up in)).  A network may lack the gate, or all matrices. */
static void network(struct maker *m, enum stream in, const struct network *of) {
    bool has_gate = m->w[of->gate].w, has_matrices = m->w[of->up].w;
    enum stream ff = has_gate ? STREAM_FF_GATE : STREAM_FF_UP;
    if (has_gate) put(m, STEP_PRODUCT, in, ff, of->gate, TAP_FFN_GATE);
    put(m, has_matrices ? STEP_PRODUCT : STEP_COPY, in, STREAM_FF_UP, of->up, TAP_FFN_UP);
    if (m->layer->ffn.sparsity != 0.0f) put(m, STEP_SPARSE, ff, ff, W_COUNT, TAP_COUNT);
    put(m, STEP_ACTIVATE, STREAM_FF_UP, ff, W_COUNT, TAP_COUNT)->activation = m->layer->ffn.activation;
    if (m->w[W_FFN_ACT_SCALES].w) put(m, STEP_DIVIDE, ff, ff, W_FFN_ACT_SCALES, TAP_COUNT);
    show(m, TAP_FFN_SWIGLU);
    norm(m, W_FFN_SUB_NORM, ff, ff, TAP_FFN_SUB_NORM);
    put(m, has_matrices ? STEP_PRODUCT : STEP_COPY, ff, of->out, of->down, of->tap);
}

/* Chooses the experts by a stream, and finds their weights. */
static void router(struct maker *m, enum stream in) {
    const struct ffn_plan *f = &m->layer->ffn;
    enum stream choice = STREAM_SCORES;
    put(m, STEP_PRODUCT, in, STREAM_SCORES, W_FFN_GATE_INP, TAP_FFN_ROUTER);
    if (f->gating != GATING_SOFTMAX_USED) {
        enum step_kind kind = f->gating == GATING_SIGMOID ? STEP_SIGMOID : STEP_SOFTMAX;
        put(m, kind, STREAM_SCORES, STREAM_SCORES, W_COUNT, TAP_FFN_PROBS);
    }
    if (m->w[W_FFN_EXPERT_BIAS].w) {
        choice = STREAM_CHOICE;
        put(m, STEP_ADD_BIAS, STREAM_SCORES, choice, W_FFN_EXPERT_BIAS, TAP_FFN_PROBS_BIASED);
    }
    put(m, STEP_BEST, choice, STREAM_USED, W_COUNT, TAP_FFN_USED);
    put(m, STEP_TAKE, STREAM_SCORES, STREAM_WEIGHTS, W_COUNT, TAP_FFN_WEIGHTS);
    if (f->gating == GATING_SOFTMAX_USED) {
        put(m, STEP_SOFTMAX, STREAM_WEIGHTS, STREAM_WEIGHTS, W_COUNT, TAP_FFN_WEIGHTS_SOFTMAX);
    }
    if (f->weights_sum_to_1) put(m, STEP_SUM_TO_1, STREAM_WEIGHTS, STREAM_WEIGHTS, W_COUNT, TAP_FFN_WEIGHTS_NORM);
    if (f->weights_scale != 1.0f) {
        put(m, STEP_SCALE, STREAM_WEIGHTS, STREAM_WEIGHTS, W_COUNT, TAP_FFN_WEIGHTS_SCALED)->factor = f->weights_scale;
    }
}

/* sum = the experts of a stream, which may read and write narrow rows: NVIDIA 2025, "Nemotron 3", latent experts. */
static void experts(struct maker *m, enum stream in) {
    bool narrows = m->w[W_NARROW].w, widens = m->w[W_WIDEN].w;
    if (narrows) put(m, STEP_PRODUCT, in, STREAM_NARROW, W_NARROW, TAP_COUNT);
    put(m, STEP_EXPERTS, narrows ? STREAM_NARROW : in, widens ? STREAM_NARROW_SUM : STREAM_SUM, W_FFN_DOWN_EXPS,
        TAP_FFN_EXPERTS);
    if (widens) put(m, STEP_PRODUCT, STREAM_NARROW_SUM, STREAM_SUM, W_WIDEN, TAP_COUNT);
    if (m->layer->ffn.n_adjugate == 0) return;
    put(m, STEP_COPY, STREAM_SUM, STREAM_SHARED, W_COUNT, TAP_COUNT);
    put(m, STEP_ADJUGATES, STREAM_SHARED, STREAM_SUM, W_FFN_DOWN_ADJUGATE, TAP_COUNT);
}

/* h = sum, and the output of the expert that every token uses, of a stream. */
static void shared_expert(struct maker *m, enum stream in) {
    static const struct network shared = { W_FFN_GATE_SHARED, W_FFN_UP_SHARED, W_FFN_DOWN_SHARED, STREAM_SHARED,
                                           TAP_FFN_SHARED };
    float scale = m->layer->ffn.output_scale;
    if (m->w[W_FFN_DOWN_SHARED].w) {
        network(m, in, &shared);
        if (m->w[W_FFN_GATE_INP_SHARED].w) {
            show(m, TAP_COUNT);
            put(m, STEP_GATE_SHARED, in, STREAM_SHARED, W_FFN_GATE_INP_SHARED, TAP_FFN_SHARED);
        }
        put(m, STEP_ADD, STREAM_SHARED, STREAM_SUM, W_COUNT, TAP_COUNT);
    }
    put(m, STEP_SCALE, STREAM_SUM, STREAM_H, W_COUNT, TAP_FFN_OUT)->factor = scale != 0.0f ? scale : 1.0f;
}

static bool program_uses(const struct program *program, enum stream stream) {
    for (uint32_t i = 0; i < program->n; i++) {
        const struct step *s = &program->steps[i];
        if (s->out == stream || step_reads(s) >> stream & 1) return true;
    }
    return false;
}

/* h = the output of the feed-forward network, or of the experts, for a stream. */
static void feed_forward(struct maker *m, enum stream in) {
    static const struct network dense = { W_FFN_GATE, W_FFN_UP, W_FFN_DOWN, STREAM_H, TAP_FFN_OUT };
    if (m->w[W_CHANNEL_K].w) {
        channel_mix(m, in);
        return;
    }
    if (m->layer->ffn.n_expert == 0) {
        network(m, in, &dense);
        return;
    }
    bool is_first = program_uses(&m->made, STREAM_SUM), is_routed = program_uses(&m->made, STREAM_USED);
    if (!is_routed) router(m, in);
    if (!is_first) experts(m, in);
    shared_expert(m, in);
}

/* h = a dense network and experts beside it, each with norms of its own, of the residual stream: Gemma 4, 2026. */
static void experts_beside(struct maker *m) {
    static const struct network dense = { W_FFN_GATE_SHARED, W_FFN_UP_SHARED, W_FFN_DOWN_SHARED, STREAM_SHARED,
                                          TAP_FFN_SHARED };
    norm(m, W_FFN_NORM, STREAM_X, STREAM_INPUT, TAP_FFN_NORM);
    norm(m, W_FFN_ROUTER_NORM, STREAM_X, STREAM_H, TAP_COUNT);
    put(m, STEP_SCALE, STREAM_H, STREAM_H, W_COUNT, TAP_COUNT)->factor = 1.0f / (float)math_sqrt(m->plan->n_embd);
    router(m, STREAM_H);
    norm(m, W_FFN_NORM_EXPS, STREAM_X, STREAM_H, TAP_FFN_NORM_EXPS);
    experts(m, STREAM_H);
    norm(m, W_FFN_EXPS_POST_NORM, STREAM_SUM, STREAM_SUM, TAP_FFN_MOE);
    if (m->w[dense.down].w) {
        network(m, STREAM_INPUT, &dense);
        norm(m, W_FFN_DENSE_POST_NORM, STREAM_SHARED, STREAM_SHARED, TAP_FFN_MLP);
        put(m, STEP_ADD, STREAM_SHARED, STREAM_SUM, W_COUNT, TAP_COUNT);
    }
    put(m, STEP_COPY, STREAM_SUM, STREAM_H, W_COUNT, TAP_FFN_OUT);
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

void steps_block(struct maker *m) {
    bool is_parallel = m->plan->is_parallel, has_norm_2 = m->w[W_ATTN_NORM_2].w;
    float scale = m->plan->residual_scale;
    enum stream in = norm(m, W_ATTN_NORM, STREAM_X, STREAM_H, TAP_ATTN_NORM), x = STREAM_X;
    if (is_parallel || has_norm_2) {
        bool has_own_norm = m->w[W_FFN_NORM].w;
        put(m, STEP_COPY, is_parallel && !has_own_norm ? in : STREAM_X, STREAM_INPUT, W_COUNT, TAP_COUNT);
    }
    if (is_parallel) x = STREAM_INPUT;
    if (m->layer->mixer == MIXER_BOTH) {   /* Zuo et al. 2025, "Falcon-H1", section 2 */
        put(m, STEP_COPY, in, STREAM_INPUT, W_COUNT, TAP_COUNT);
        attention(m, STREAM_INPUT);
        put(m, STEP_ADD, STREAM_H, STREAM_X, W_ATTN_OUTPUT, TAP_COUNT);
        scan(m, STREAM_INPUT);
    } else {
        mix(m, in);
    }
    norm(m, W_ATTN_POST_NORM, STREAM_H, STREAM_H, TAP_ATTN_POST_NORM);
    put(m, STEP_ADD, STREAM_H, STREAM_X, W_ATTN_OUTPUT, TAP_COUNT)->factor = scale;
    norm(m, W_ATTN_OUT_NORM, STREAM_X, STREAM_X, TAP_COUNT);
    if (has_norm_2) put(m, STEP_ADD, STREAM_INPUT, STREAM_X, W_COUNT, TAP_COUNT);
    norm(m, W_ATTN_NORM_2, STREAM_X, STREAM_X, TAP_COUNT);
    show(m, TAP_FFN_INP);
    if (m->w[W_FFN_ROUTER_NORM].w) experts_beside(m);
    else feed_forward(m, norm(m, W_FFN_NORM, x, STREAM_H, TAP_FFN_NORM));
    norm(m, W_FFN_POST_NORM, STREAM_H, STREAM_H, TAP_FFN_POST_NORM);
    put(m, STEP_ADD, STREAM_H, STREAM_X, W_FFN_DOWN, TAP_COUNT)->factor = scale;
    norm(m, W_LAYER_OUT_NORM, STREAM_X, STREAM_X, TAP_COUNT);
    if (m->layer->is_halved) put(m, STEP_SCALE, STREAM_X, STREAM_X, W_COUNT, TAP_COUNT)->factor = 0.5f;
    show(m, TAP_L_OUT);
}

/* The network reads what is added to x, not the sum, as in llama.cpp. */
void steps_norms_after(struct maker *m) {
    mix(m, STREAM_X);
    norm(m, W_ATTN_POST_NORM, STREAM_H, STREAM_INPUT, TAP_ATTN_POST_NORM);
    put(m, STEP_ADD, STREAM_INPUT, STREAM_X, W_ATTN_OUTPUT, TAP_FFN_INP);
    feed_forward(m, STREAM_INPUT);
    norm(m, W_FFN_POST_NORM, STREAM_H, STREAM_H, TAP_FFN_POST_NORM);
    put(m, STEP_ADD, STREAM_H, STREAM_X, W_FFN_DOWN, TAP_L_OUT);
}

void steps_one(struct maker *m) {
    enum stream in = norm(m, W_ATTN_NORM, STREAM_X, STREAM_H, TAP_ATTN_NORM);
    bool is_network = m->layer->mixer == MIXER_NONE;
    if (is_network) feed_forward(m, in);
    else mix(m, in);
    put(m, STEP_ADD, STREAM_H, STREAM_X, is_network ? W_FFN_DOWN : W_ATTN_OUTPUT, TAP_L_OUT);
}

void steps_encoder_decoder(struct maker *m) {
    if (m->layer->without >> W_FFN_DOWN & 1) steps_one(m);
    else steps_block(m);
    if (m->il + 1 == m->plan->n_encoder) norm(m, W_ENCODER_NORM, STREAM_X, STREAM_ENCODED, TAP_ENCODED);
}

/* MiniMax 2025, "MiniMax-01", after Wang et al. 2022, "DeepNet". */
void steps_from_norm(struct maker *m) {
    float scale = m->plan->residual_scale;
    norm(m, W_ATTN_NORM, STREAM_X, STREAM_INPUT, TAP_ATTN_NORM);
    mix(m, STREAM_INPUT);
    put(m, STEP_SCALE, STREAM_INPUT, STREAM_X, W_COUNT, TAP_COUNT)->factor = scale;
    put(m, STEP_ADD, STREAM_H, STREAM_X, W_ATTN_OUTPUT, TAP_FFN_INP);
    norm(m, W_FFN_NORM, STREAM_X, STREAM_INPUT, TAP_FFN_NORM);
    feed_forward(m, STREAM_INPUT);
    put(m, STEP_SCALE, STREAM_INPUT, STREAM_X, W_COUNT, TAP_COUNT)->factor = scale;
    put(m, STEP_ADD, STREAM_H, STREAM_X, W_FFN_DOWN, TAP_L_OUT);
}

void steps_router_first(struct maker *m) {
    if (m->layer->ffn.n_expert > 0) router(m, STREAM_X);
    steps_block(m);
}

void steps_experts_first(struct maker *m) {
    if (m->layer->ffn.n_expert > 0) {
        enum stream in = norm(m, W_FFN_NORM_EXPS, STREAM_X, STREAM_H, TAP_COUNT);
        router(m, in);
        experts(m, in);
    }
    steps_block(m);
}

void steps_add_embeddings(struct maker *m) {
    steps_block(m);
    show(m, TAP_COUNT);
    put(m, STEP_ADD_SCALED, STREAM_EMBD, STREAM_X, W_LAYER_OUT_SCALE, TAP_L_OUT);
}

/* h = what a layer makes of a stream and of its own embedding: Google 2025, "Gemma 3n". */
static void own_embedding(struct maker *m, enum stream in) {
    put(m, STEP_PRODUCT, in, STREAM_OWN, W_PER_LAYER_GATE, TAP_COUNT);
    put(m, STEP_ACTIVATE, STREAM_OWN, STREAM_OWN, W_COUNT, TAP_OWN_GATED)->activation = m->layer->ffn.activation;
    put(m, STEP_OWN, STREAM_PER_LAYER, STREAM_OWN, W_COUNT, TAP_OWN_SCALED);
    put(m, STEP_PRODUCT, STREAM_OWN, STREAM_H, W_PER_LAYER_PROJ, TAP_COUNT);
    norm(m, W_PER_LAYER_POST_NORM, STREAM_H, STREAM_H, TAP_OWN_OUT);
}

void steps_per_layer(struct maker *m) {
    steps_block(m);
    bool has_own = m->w[W_PER_LAYER_GATE].w, has_scale = m->w[W_LAYER_OUT_SCALE].w;
    if (has_own) {
        show(m, TAP_OWN_IN);
        own_embedding(m, STREAM_X);
        put(m, STEP_ADD, STREAM_H, STREAM_X, W_PER_LAYER_PROJ, TAP_L_OUT);
    }
    if (!has_scale) return;
    if (m->made.steps[m->made.n - 1].tap == TAP_L_OUT) show(m, TAP_COUNT);
    put(m, STEP_MULTIPLY, STREAM_X, STREAM_X, W_LAYER_OUT_SCALE, TAP_L_OUT);
}

/* modes = tanh(altup_router norm(x) / n_embd): how the streams of a token are mixed. */
static void altup_modes(struct maker *m, enum tap_id tap) {
    norm(m, W_ALTUP_ROUTER_NORM, STREAM_X, STREAM_H, TAP_COUNT);
    put(m, STEP_SCALE, STREAM_H, STREAM_H, W_COUNT, TAP_COUNT)->factor = 1.0f / (float)m->plan->n_embd;
    put(m, STEP_PRODUCT, STREAM_H, STREAM_MODES, W_ALTUP_ROUTER, TAP_COUNT);
    put(m, STEP_TANH, STREAM_MODES, STREAM_MODES, W_COUNT, tap);
}

/* Baykal et al. 2023, "Alternating Updates"; the path beside attention: Menghani et al. 2024, "LAuReL". */
void steps_altup(struct maker *m) {
    altup_modes(m, TAP_MODALITIES);
    put(m, STEP_PRODUCT, STREAM_MODES, STREAM_COEFS, W_ALTUP_PREDICT, TAP_COUNT);
    put(m, STEP_PREDICT, STREAM_COEFS, STREAM_PREDICTED, W_COUNT, TAP_PREDICTIONS);
    put(m, STEP_FIRST, STREAM_PREDICTED, STREAM_H, W_COUNT, TAP_ACTIVE);
    norm(m, W_ATTN_NORM, STREAM_H, STREAM_H, TAP_ATTN_NORM);
    put(m, STEP_PRODUCT, STREAM_H, STREAM_NARROW, W_NARROW, TAP_COUNT);
    put(m, STEP_PRODUCT, STREAM_NARROW, STREAM_INPUT, W_WIDEN, TAP_COUNT);
    norm(m, W_LAUREL_NORM, STREAM_INPUT, STREAM_INPUT, TAP_COUNT);
    put(m, STEP_ADD, STREAM_H, STREAM_INPUT, W_COUNT, TAP_LAUREL);
    attention(m, STREAM_H);
    norm(m, W_ATTN_POST_NORM, STREAM_H, STREAM_H, TAP_ATTN_POST_NORM);
    put(m, STEP_FIRST, STREAM_PREDICTED, STREAM_X, W_COUNT, TAP_COUNT);   /* what K and V need leaves x as it is */
    put(m, STEP_ADD, STREAM_H, STREAM_X, W_ATTN_OUTPUT, TAP_COUNT);
    put(m, STEP_ADD, STREAM_INPUT, STREAM_X, W_COUNT, TAP_COUNT);
    put(m, STEP_SCALE, STREAM_X, STREAM_X, W_COUNT, TAP_FFN_INP)->factor = 0.70710678118654752f;
    feed_forward(m, norm(m, W_FFN_NORM, STREAM_X, STREAM_H, TAP_FFN_NORM));
    norm(m, W_FFN_POST_NORM, STREAM_H, STREAM_H, TAP_FFN_POST_NORM);
    put(m, STEP_ADD, STREAM_H, STREAM_X, W_FFN_DOWN, TAP_OWN_IN);
    altup_modes(m, TAP_COUNT);
    put(m, STEP_PRODUCT, STREAM_MODES, STREAM_FACTORS, W_ALTUP_CORRECT, TAP_COUNT);
    put(m, STEP_CORRECT, STREAM_FACTORS, STREAM_PREDICTED, W_COUNT, TAP_CORRECTED);
    put(m, STEP_FIRST, STREAM_PREDICTED, STREAM_X, W_COUNT, TAP_COUNT);
    put(m, STEP_MULTIPLY, STREAM_X, STREAM_H, W_ALTUP_SCALE, TAP_COUNT);
    own_embedding(m, STREAM_H);
    put(m, STEP_OTHERS, STREAM_PREDICTED, STREAM_OTHERS, W_COUNT, TAP_COUNT);
    put(m, STEP_SHOW, STREAM_X, STREAM_X, W_COUNT, TAP_L_OUT);
}

void steps_loop(struct maker *m) {
    steps_block(m);
    if (!m->layer->ends_loop) return;
    norm(m, W_OUTPUT_NORM, STREAM_X, STREAM_X, TAP_COUNT);
    if (m->layer->state == STATE_NONE) return;
    put(m, STEP_COPY, STREAM_X, m->layer->state == STATE_LOW ? STREAM_LOW : STREAM_HIGH, W_COUNT, TAP_COUNT);
    put(m, STEP_ADD_STATES, STREAM_X, STREAM_X, W_COUNT, TAP_COUNT);
}

struct program program_of(const struct plan *p, const struct model *m, uint32_t il) {
    struct maker maker = { p, m, il, &p->layers[il], m->layers[il].w, { .n = 0 } };
    p->steps(&maker);
    return maker.made;
}

bool program_equals(const struct program *a, const struct program *b) {
    for (uint32_t i = 0; i < a->n && a->n == b->n; i++) {
        const struct step *s = &a->steps[i], *t = &b->steps[i];
        if (s->kind != t->kind || s->in != t->in || s->out != t->out || s->weight != t->weight || s->tap != t->tap
            || s->activation != t->activation || s->n_head != t->n_head || s->n != t->n || s->n_norm != t->n_norm
            || s->first != t->first || s->to != t->to || s->n_from != t->n_from || s->n_to != t->n_to
            || s->is_shared != t->is_shared || s->factor != t->factor) return false;
    }
    return a->n == b->n;
}

/* ---- what a program says ----------------------------------------------------------------------------------------- */

id_set step_reads(const struct step *s) {
    id_set in = ID_SET(s->in), out = ID_SET(s->out);
    switch (s->kind) {
    case STEP_ADD: case STEP_ADD_SCALED: case STEP_GATE_HEADS: case STEP_GATE_SHARED: case STEP_ACTIVATE:
    case STEP_GATE_CONV: case STEP_OWN: case STEP_REPLACE: case STEP_TIMES:
        return in | out;
    case STEP_LERP: return in | STREAM_SET(SHIFT) | (s->n_to > 0 ? STREAM_SET(LERPS) : 0);
    case STEP_MIX: return in | out | STREAM_SET(MIX);
    case STEP_BONUS: return in | STREAM_SET(Q) | STREAM_SET(VALUE);
    case STEP_WKV:
        return in | STREAM_SET(Q) | STREAM_SET(VALUE) | STREAM_SET(FADE) | STREAM_SET(REMOVAL) | STREAM_SET(RATE);
    case STEP_PREDICT: return in | STREAM_SET(X) | STREAM_SET(OTHERS);
    case STEP_CORRECT: return in | out | STREAM_SET(X);
    case STEP_OTHERS: return in | STREAM_SET(H);
    case STEP_PART: return s->n_norm < s->n_to ? in | out : in;
    case STEP_HEAD_PRODUCTS: return in | out;
    case STEP_ADD_STATES: return STREAM_SET(LOW) | STREAM_SET(HIGH);
    case STEP_ATTENTION: return STREAM_SET(Q) | STREAM_SET(K) | STREAM_SET(V);
    case STEP_SCAN: return in | STREAM_SET(B) | STREAM_SET(C) | STREAM_SET(DT);
    case STEP_DELTA: return in | STREAM_SET(BETA) | STREAM_SET(DECAY);
    case STEP_TAKE: return in | STREAM_SET(USED);
    case STEP_ADJUGATES: return in | out | STREAM_SET(SCORES) | STREAM_SET(USED);
    case STEP_EXPERTS: return in | STREAM_SET(USED) | STREAM_SET(WEIGHTS);
    default: return in;
    }
}

id_set program_needs(const struct program *program, uint32_t end, id_set streams) {
    id_set needed = 0;
    for (uint32_t i = end; i-- > 0;) {
        const struct step *s = &program->steps[i];
        if (!(streams >> s->out & 1)) continue;
        needed |= ID_SET(i);
        streams = (streams & ~ID_SET(s->out)) | step_reads(s);
    }
    return needed;
}

id_set program_kv(const struct program *program, uint32_t *attention) {
    uint32_t i = 0;
    while (i < program->n && program->steps[i].kind != STEP_ATTENTION) i++;
    *attention = i;
    return program_needs(program, i, STREAM_SET(K) | STREAM_SET(V));
}

uint32_t program_products(const struct program *program, uint32_t i, uint32_t most) {
    const struct step *s = &program->steps[i];
    uint32_t n = 1;
    if (s->kind != STEP_PRODUCT) return 1;
    while (n < most && i + n < program->n && s[n].kind == STEP_PRODUCT && s[n].in == s->in) n++;
    return n;
}

/* The taps of a step and those inside it. */
static id_set taps_of(const struct step *s, const struct model *m, uint32_t il) {
    id_set taps = s->tap != TAP_COUNT ? ID_SET(s->tap) : 0;
    if (s->kind == STEP_ATTENTION) taps |= TAP_SET(KQ_SOFT_MAX);
    if (s->kind == STEP_GATE_SHARED) taps |= TAP_SET(FFN_SHARED_GATE);
    if (s->kind != STEP_EXPERTS) return taps;
    if (m->layers[il].w[W_FFN_GATE_EXPS].w) taps |= TAP_SET(EXPERT_GATE);
    return taps | TAP_SET(EXPERT_UP) | TAP_SET(EXPERT_SWIGLU) | TAP_SET(EXPERT_DOWN) | TAP_SET(EXPERT_WEIGHTED);
}

id_set program_taps(const struct program *program, const struct model *m, uint32_t il) {
    id_set taps = 0;
    for (uint32_t i = 0; i < program->n; i++) taps |= taps_of(&program->steps[i], m, il);
    return taps;
}

/* What a tap is computed from: streams, and other taps inside the same step. */
struct reads { id_set streams, taps; };

/* s: the step that has the tap. */
static struct reads reads_of(const struct step *s, enum tap_id id, bool weights_first) {
    const id_set in = ID_SET(s->in), out = ID_SET(s->out);
    if (id != TAP_KQ_SOFT_MAX && s->kind == STEP_ATTENTION) {
        return (struct reads){ STREAM_SET(V), TAP_SET(KQ_SOFT_MAX) };
    }
    switch (id) {
    case TAP_KQ_SOFT_MAX: return (struct reads){ STREAM_SET(Q) | STREAM_SET(K), 0 };
    case TAP_FFN_SHARED_GATE: return (struct reads){ in, 0 };
    case TAP_EXPERT_WEIGHTED:
        return weights_first ? (struct reads){ in | STREAM_SET(WEIGHTS), 0 }
                             : (struct reads){ STREAM_SET(WEIGHTS), TAP_SET(EXPERT_DOWN) };
    case TAP_EXPERT_GATE: case TAP_EXPERT_UP:
        return weights_first ? (struct reads){ STREAM_SET(USED), TAP_SET(EXPERT_WEIGHTED) }
                             : (struct reads){ in | STREAM_SET(USED), 0 };
    case TAP_EXPERT_SWIGLU: return (struct reads){ 0, TAP_SET(EXPERT_GATE) | TAP_SET(EXPERT_UP) };
    case TAP_EXPERT_DOWN: return (struct reads){ STREAM_SET(USED), TAP_SET(EXPERT_SWIGLU) };
    case TAP_FFN_EXPERTS:
        return (struct reads){ 0, weights_first ? TAP_SET(EXPERT_DOWN) : TAP_SET(EXPERT_WEIGHTED) };
    default:
        return s->kind == STEP_GATE_SHARED ? (struct reads){ out, TAP_SET(FFN_SHARED_GATE) }
                                           : (struct reads){ step_reads(s), 0 };
    }
}

id_set program_inputs(const struct program *program, const struct model *m, uint32_t il, enum tap_id id) {
    uint32_t i = 0;
    while (i < program->n && !(taps_of(&program->steps[i], m, il) >> id & 1)) i++;
    if (i == program->n) return 0;
    struct reads reads = reads_of(&program->steps[i], id, m->plan.layers[il].ffn.weights_first);
    id_set inputs = reads.taps & taps_of(&program->steps[i], m, il), streams = reads.streams;
    while (i-- > 0) {
        const struct step *s = &program->steps[i];
        if (!(streams >> s->out & 1)) continue;
        streams &= ~ID_SET(s->out);
        if (s->tap != TAP_COUNT) inputs |= ID_SET(s->tap);
        else streams |= step_reads(s);
    }
    if (streams & STREAM_SET(ENCODED)) inputs |= TAP_SET(ENCODED);
    return streams & STREAM_SET(X) ? inputs | TAP_SET(L_OUT) : inputs;
}

/* The entries of known.h about layers that keep a state: convolutions, selective scans, delta nets, RWKV and lightning
 * attention.  "State" is the matrices of a scan, a delta net or a head; what a convolution keeps is its tail. */
#include "mistakes/known.h"

#include <math.h>

/* ---- what is kept between batches -------------------------------------------------------------------------------- */

/* Copies the tails or the states of all layers. */
static void copy_kept(const struct reference *r, bool is_tail, const double *from, double *to) {
    EACH_LAYER(&r->plan, il) {
        size_t n_conv = r->plan.layers[il].n_conv, n_all = (size_t)plan_state_size(&r->plan, il);
        size_t n_shift = n_all > 0 ? r->plan.rwkv.n_shift * (size_t)r->plan.n_embd : 0;
        size_t n_tail = n_conv > 0 ? (n_conv - 1) * (size_t)plan_conv_width(&r->plan, il) : n_shift;
        size_t at = (size_t)(r->states[il] - r->state) + (is_tail ? 0 : n_tail), n = is_tail ? n_tail : n_all - n_tail;
        for (size_t i = at; i < at + n; i++) to[i] = from ? from[i] : 0;
    }
}

static void clear_tails(struct reference *r, const struct prompt *p) {
    reference_right_steps.begin(r, p);
    copy_kept(r, true, NULL, r->state);
}
static void clear_states(struct reference *r, const struct prompt *p) {
    reference_right_steps.begin(r, p);
    copy_kept(r, false, NULL, r->state);
}
static void state_of_prompt(struct reference *r, const struct prompt *p) {
    reference_right_steps.begin(r, p);
    if (p->pos == r->n_prompt) copy_kept(r, false, r->state, r->kept);
    else if (p->pos > r->n_prompt) copy_kept(r, false, r->kept, r->state);
}

/* Computes the prompt, unseen, and then leaves what it kept. */
static void state_used(struct reference *r, const struct prompt *p) {
    struct tap_sink sink = r->sink;
    reference_right_steps.begin(r, p);
    if (p->pos > 0) return;
    r->sink.on_tap = NULL;
    r->steps.begin = reference_keep;
    reference_run_layers(r, p->layers, p->ids, p->n, 0, 0, NULL);
    r->steps.begin = state_used;
    r->sink = sink;
}

static uint32_t tail_late(uint32_t n) { return n - 1; }

/* ---- steps ------------------------------------------------------------------------------------------------------- */


/* The order of two parts of a row. */
static void rewrite_bc(const struct known_mistake *q, struct program *p) {
    struct step *b = known_step(p, TAP_SCAN_B), *c = known_step(p, TAP_SCAN_C);
    (void)q;
    if (!b || !c) return;
    uint32_t first = b->first;
    b->first = c->first;
    c->first = first;
}
static void rewrite_zx(const struct known_mistake *q, struct program *p) {
    struct step *z = known_step(p, TAP_SCAN_Z), *x = known_step(p, TAP_SCAN_X);
    (void)q;
    if (!z || !x) return;
    bool is_z_first = z->first == 0;
    z->first = is_z_first ? x->n_norm : 0;
    x->first = is_z_first ? 0 : z->n_norm;
}

static void rewrite_gate_absent(const struct known_mistake *q, struct program *p) {
    struct step *scan = known_step(p, TAP_SCAN_GATED), *delta = known_step(p, TAP_DELTA_GATED);
    (void)q;
    if (scan) scan->kind = STEP_COPY;
    if (delta) delta->kind = STEP_SHOW;
}

enum { NORM_ABSENT, NORM_OF_ROW, NORM_MOVED };
/* Before the gate of a scan, after that of a delta net. */
static void rewrite_norm(const struct known_mistake *q, struct program *p) {
    for (uint32_t i = 1; i + 1 < p->n; i++) {
        struct step *s = &p->steps[i], norm = *s;
        bool is_scan = s->tap == TAP_SCAN_NORM;
        if (s->kind != STEP_NORM || s->weight != W_DELTA_NORM) continue;
        if (q->value == NORM_ABSENT) s->kind = STEP_SHOW, s->weight = W_COUNT;
        if (q->value == NORM_OF_ROW && is_scan) s->n_norm = s->n_head * s->n;
        if (q->value == NORM_MOVED && is_scan) {
            *s = s[-1];
            s[-1] = norm;
            s[-1].in = s[-1].out = STREAM_SCAN;
        } else if (q->value == NORM_MOVED && s[1].kind == STEP_GATE_HEADS) {
            norm.tap = s[1].tap;
            *s = s[1];
            s->tap = TAP_COUNT;
            s[1] = norm;
        }
        return;
    }
}

/* ---- formulas ---------------------------------------------------------------------------------------------------- */

static uint32_t kernel_reversed(uint32_t j, uint32_t n_conv) { return n_conv - 1 - j; }

/* b c x is read as c b x. */
static void exchange_gates(struct reference *r, const struct call *c) {
    uint32_t n = r->plan.n_embd;
    if (c->s->kind != STEP_CONVOLVE || c->layer->mixer != MIXER_CONVOLUTION) return;
    for (double *row = r->streams[STREAM_CONV_IN], *end = row + (size_t)c->b.n * 3 * n; row < end; row += 3 * n) {
        for (uint32_t i = 0; i < n; i++) {
            double b = row[i];
            row[i] = row[n + i];
            row[n + i] = b;
        }
    }
}

static double zero(double x) { return (void)x, 0; }
static double decay_missing(double dt, double a) { return (void)dt, (void)a, 1; }
static double decay_inverted(double dt, double a) { return exp(-dt * a); }
static double decay_linear(double dt, double a) { return 1 + dt * a; }
static double fed_unscaled(double dt, double a, double b) { return (void)dt, (void)a, b; }
static double fed_exactly(double dt, double a, double b) { return a != 0 ? expm1(dt * a) / a * b : dt * b; }
static uint32_t group_interleaved(const struct scan_plan *p, uint32_t h) { return h % p->n_group; }

static bool no_unit(bool is_k) { return (void)is_k, false; }
static bool unit_of_q(bool is_k) { return !is_k; }
static double recall_nothing(double old, double decay) { return (void)old, (void)decay, 0; }
static double recall_before(double old, double decay) { return old / decay; }
static void read_unscaled(struct reference *r, const struct call *c) {
    (void)r;
    if (c->s->kind != STEP_DELTA) return;
    for (size_t i = 0; i < c->n; i++) c->out[i] *= sqrt(c->layer->delta.dim);
}

static uint32_t heads_by_turns(const struct delta_plan *d, uint32_t h) { return h % d->n_key_head; }
static uint32_t heads_by_group(const struct delta_plan *d, uint32_t h) { return h / (d->n_head / d->n_key_head); }
static void edit_delta_gate(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) {
        struct layer_plan *l = &e->plan->layers[il];
        if (l->mixer == MIXER_DELTA_NET && l->attn.gate) l->attn.gate = (enum attn_gate)q->value;
    }
}

/* ---- decays by column, and of lightning attention ---------------------------------------------------------------- */

static uint32_t decay_of_first(uint32_t i, uint32_t j) { return (void)i, (void)j, 0; }
static uint32_t decay_of_row(uint32_t i, uint32_t j) { return (void)i, j; }

static double fade_of_first_layer(const struct plan *p, uint32_t il, uint32_t head) {
    return (void)il, reference_right_steps.fade(p, 0, head);
}
static double fade_from_zero(const struct plan *p, uint32_t il, uint32_t head) {
    /* The slope of the head before is as many times larger as that of head 0 is than that of head 1. */
    double own = log(reference_right_steps.fade(p, il, head)), n = p->layers[il].attn.n_head;
    return exp(own * pow(2, 8 / n));
}
static double fade_missing(const struct plan *p, uint32_t il, uint32_t head) {
    return (void)p, (void)il, (void)head, 1;
}

/* ---- RWKV -------------------------------------------------------------------------------------------------------- */

static double token_itself(const double *last, const double *x, uint32_t t, uint32_t n_token, uint32_t n) {
    return (void)last, (void)t, (void)n_token, (void)n, *x;
}
static double token_after(const double *last, const double *x, uint32_t t, uint32_t n_token, uint32_t n) {
    return (void)last, t + 1 < n_token ? x[n] : *x;
}
static double token_of_batch(const double *last, const double *x, uint32_t t, uint32_t n_token, uint32_t n) {
    static const double none = 0;
    return (void)last, reference_previous(&none, x, t, n_token, n);
}
/* 2 x - y differs from x by x - y. */
static double token_reflected(const double *last, const double *x, uint32_t t, uint32_t n_token, uint32_t n) {
    return 2 * *x - reference_previous(last, x, t, n_token, n);
}
static double fade_of_one_exp(enum rwkv_kind kind, double d) { return (void)kind, exp(-d); }
static double fade_inverted(enum rwkv_kind kind, double d) { return 1 / reference_wkv_fade(kind, d); }
static double fade_unscaled(enum rwkv_kind kind, double d) { return (void)kind, exp(-1 / (1 + exp(-d))); }
static double heads_eps_of_model(const struct plan *p) { return (double)p->norm_eps; }

static bool has_rwkv(const struct model *m) {
    return m->plan.rwkv.kind != RWKV_NONE && m->plan.rwkv.kind != RWKV_LIGHTNING;
}
static bool has_rwkv_7(const struct model *m) { return m->plan.rwkv.kind == RWKV_7; }
static bool has_two_exps(const struct model *m) { return has_rwkv(m) && !has_rwkv_7(m); }
static bool has_heads_norm(const struct model *m) { return has_rwkv(m) && known_has_tap(m, TAP_WKV_NORM); }

/* ---- lightning attention ----------------------------------------------------------------------------------------- */

/* Q, K and V of all heads follow each other, not those of each head. */
static void rewrite_qkv_by_kind(const struct known_mistake *q, struct program *p) {
    static const enum tap_id taps[] = { TAP_QCUR, TAP_KCUR, TAP_VCUR };
    (void)q;
    for (uint32_t i = 0; i < 3; i++) {
        struct step *s = known_step(p, taps[i]);
        if (!s || s->in != STREAM_QKV) continue;
        s->n_norm = s->n_to = s->n_head * s->n;
        s->n_from = 3 * s->n_norm;
        s->first = i * s->n_norm;
    }
}
static void rewrite_norm_by_head(const struct known_mistake *q, struct program *p) {
    struct step *s = known_step(p, TAP_WKV_NORM);
    (void)q;
    if (s && s->kind == STEP_NORM) s->n_norm = s->n;
}
/* What is added to outputs is the input of the norm, times the factor. */
static void rewrite_residual(const struct known_mistake *q, struct program *p) {
    (void)q;
    for (uint32_t i = 0; i < p->n; i++) {
        struct step *s = &p->steps[i];
        if (s->kind == STEP_SCALE && s->in == STREAM_INPUT && s->out == STREAM_X) s->in = STREAM_X;
    }
}

/* ---- the entries ------------------------------------------------------------------------------------------------- */

static bool has_convolution(const struct model *m) { return known_has_tap(m, TAP_CONV); }
static bool has_gates(const struct model *m) { return known_has_tap(m, TAP_CONV_GATED); }
static bool has_scan(const struct model *m) { return known_has_tap(m, TAP_SCAN); }
static bool has_delta(const struct model *m) { return known_has_tap(m, TAP_DELTA); }
static bool has_state(const struct model *m) { return has_scan(m) || has_delta(m); }
static bool keeps_states(const struct model *m) { return has_state(m) || m->plan.rwkv.kind != RWKV_NONE; }
static bool keeps_any(const struct model *m) { return keeps_states(m) || has_convolution(m); }
static bool has_scan_groups(const struct model *m) {
    const struct scan_plan *p = &m->plan.scan;
    return has_scan(m) && p->n_group > 1 && p->n_group < p->n_head;
}

static bool shares_keys(const struct model *m, bool has_groups) {
    EACH_LAYER(&m->plan, il) {
        const struct delta_plan *d = &m->plan.layers[il].delta;
        if (d->n_key_head > 1 && d->n_key_head < d->n_head) return d->has_groups == has_groups;
    }
    return false;
}
static bool has_columns(const struct model *m) {
    EACH_LAYER(&m->plan, il) if (m->plan.layers[il].delta.is_diagonal) return true;
    return false;
}
static bool has_lightning(const struct model *m) { return m->plan.rwkv.kind == RWKV_LIGHTNING; }
static bool is_from_norm(const struct model *m) { return m->plan.steps == steps_from_norm; }
static bool has_delta_groups(const struct model *m) { return shares_keys(m, true); }
static bool has_delta_turns(const struct model *m) { return shares_keys(m, false); }

static const struct need with_convolution = { "with convolutions over tokens", has_convolution },
    with_gates = { "with gated convolutions over tokens", has_gates },
    with_kept = { "with states", keeps_states },
    with_state = { "with scans or delta nets", has_state }, with_scan = { "with scans", has_scan },
    with_delta = { "with delta nets", has_delta },
    with_columns = { "with a decay for each column of a state", has_columns },
    with_rwkv = { "with RWKV", has_rwkv },
    with_lightning = { "with lightning attention", has_lightning };

#define ABSENT(of) .rewrite = known_rewrite_absent, .at = TAP_##of
#define REWRITE(function, to) .rewrite = function, .value = to

static const struct known_mistake known[] = {
    { "conv.kernel=reversed", "conv", &with_convolution, "the kernel's first element belongs to the token itself, not "
      "its last", STEPS(.kernel_place = kernel_reversed) },
    { "conv.tail=missing", "conv", &with_convolution, "the tokens before a batch count as zeros in convolutions",
      STEPS(.begin = clear_tails) },
    { "conv.tail=late", "conv", &with_convolution, "what a convolution keeps of the last tokens ends one token before "
      "the end of the batch; a step of one token does not change it", STEPS(.tail_end = tail_late) },
    { "conv.bias=missing", "conv", NEED("with biases of convolutions over tokens", NULL), "no bias is added in "
      "convolutions", WITHOUT_BIAS(SET(CONV_KERNEL)) },
    { "conv.gates=exchanged", "conv", &with_gates, "the first third of the convolution's row multiplies its output, "
      "and the second one its input", STEPS(.before = exchange_gates) },
    { "conv.gate=missing", "conv_gated", &with_gates, "the output of a convolution is not multiplied by its gate",
      ABSENT(CONV_GATED) },
    { "conv.act=missing", "conv_output_silu", NEED("with an activation of convolutions over tokens", NULL), "there is "
      "no activation after a convolution", ABSENT(CONV_SILU) },

    { "state.start=used", "conv", NEED("with states or convolutions over tokens", keeps_any), "the prompt was computed "
      "once before, and what its scans, delta nets, convolutions, RWKV and lightning attention kept was not cleared",
      STEPS(.begin = state_used) },
    { "state.kept=none", "mamba2_y_add_d", &with_kept, "every batch begins with a state of zeros in scans, delta nets, "
      "RWKV and lightning attention", STEPS(.begin = clear_states) },
    { "state.kept=prompt", "mamba2_y_add_d", &with_kept, "every step begins with the state after the prompt in scans, "
      "delta nets, RWKV and lightning attention", STEPS(.begin = state_of_prompt) },
    { "state.decay=missing", "mamba2_y_add_d", &with_state, "states do not decay",
      STEPS(.decay = decay_missing) },
    { "state.decay=inverted", "mamba2_y_add_d", &with_state, "states are multiplied by e^(-dt A), not by e^(dt A): A, "
      "which is negative, has the other sign", STEPS(.decay = decay_inverted) },
    { "state.decay=linear", "mamba2_y_add_d", &with_state, "states are multiplied by 1 + dt A, not by e^(dt A)",
      STEPS(.decay = decay_linear) },
    { "dt.bias=missing", "mamba_dt_proj", &with_state, "no bias is added to dt in scans and delta nets",
      STEPS(.dt_bias = zero), ABSENT(SCAN_DT) },
    { "dt.softplus=missing", "mamba_dt_softplus", &with_state, "dt is not ln(1 + e^dt) in scans and delta nets, but "
      "stays", STEPS(.softplus = reference_unchanged) },

    { "scan.parts=exchanged", "mamba_z_split", &with_scan, "the gate z comes after x in the row that ssm_in computes "
      "if it should come before it, and the other way round; B and C stay behind x",
      .rewrite = rewrite_zx },
    { "scan.bc=exchanged", "mamba_B_raw", &with_scan, "the part of the row that is C is used as B, and the other way "
      "round", .rewrite = rewrite_bc },
    { "scan.b=unscaled", "mamba2_y_add_d", &with_scan, "B x, not dt B x, is added to the state",
      STEPS(.fed = fed_unscaled) },
    { "scan.b=exact", "mamba2_y_add_d", &with_scan, "(e^(dt A) - 1) / A B x, not dt B x, is added to the state",
      STEPS(.fed = fed_exactly) },
    { "scan.d=missing", "mamba2_y_add_d", &with_scan, "D x is not added to the output of a scan",
      REMOVED(SET(SCAN_D)) },
    { "scan.groups=interleaved", "mamba2_y_add_d", NEED("with groups of B and C in scans", has_scan_groups), "head h "
      "of a scan reads B and C of group h % n_group, not h / (n_head / n_group)",
      STEPS(.scan_group = group_interleaved) },
    { "recurrent.gate=missing", "mamba_y_swiglu_z", &with_state, "the output of a scan or delta net is not multiplied "
      "by its gate", .rewrite = rewrite_gate_absent },
    { "recurrent.norm=missing", "mamba_norm", NEED("with norms in scans or delta nets", NULL), "the output of a scan "
      "or delta net is not normalized", REWRITE(rewrite_norm, NORM_ABSENT) },
    { "recurrent.norm=row", "mamba_norm", NEED("with norms of groups in scans", NULL), "the output of a scan is "
      "normalized over the whole row, not over each group", REWRITE(rewrite_norm, NORM_OF_ROW) },
    { "recurrent.norm=moved", "mamba_y_swiglu_z", NEED("with norms in scans or delta nets", NULL), "the output of a "
      "scan is normalized before it is multiplied by its gate, and that of a delta net after it",
      REWRITE(rewrite_norm, NORM_MOVED) },

    { "delta.beta=unbounded", "beta_sigmoid", &with_delta, "beta is not a sigmoid, but what ssm_beta computes",
      ABSENT(DELTA_BETA_SIGMOID) },
    { "delta.unit=none", "delta_rule", &with_delta, "neither Q nor K of a delta net is divided by its length",
      STEPS(.is_unit = no_unit) },
    { "delta.unit=q_only", "delta_rule", &with_delta, "K of a delta net is not divided by its length",
      STEPS(.is_unit = unit_of_q) },
    { "delta.scale=missing", "delta_rule", &with_delta, "the output of a delta net is not divided by the square root "
      "of its heads' width", STEPS(.after = read_unscaled) },
    { "delta.rule=added", "delta_rule", &with_delta, "beta v k^T is added to the state, as in linear attention; what "
      "the state has for k is not subtracted from v", STEPS(.recalled = recall_nothing) },
    { "delta.rule=early", "delta_rule", &with_delta, "what the state has for k is read before the state decays",
      STEPS(.recalled = recall_before) },
    { "delta.heads=by_turns", "delta_rule", NEED("with groups of heads in delta nets", has_delta_groups), "head h of "
      "V uses head h % n of Q and K, of which there are n, not h / (heads of V / n)",
      STEPS(.key_head = heads_by_turns) },
    { "delta.heads=by_group", "delta_rule", NEED("with heads of Q and K used by turns in delta nets", has_delta_turns),
      "head h of V uses head h / (heads of V / n) of Q and K, of which there are n, not h % n",
      STEPS(.key_head = heads_by_group) },
    { "delta.gate=sigmoid", "final_output", &with_delta, "the gate of a delta net is a sigmoid, not SiLU",
      EDIT(edit_delta_gate, ATTN_GATE_SIGMOID) },
    { "delta.gate=silu", "final_output", &with_columns, "the gate of Kimi Delta Attention is SiLU, not a sigmoid",
      EDIT(edit_delta_gate, ATTN_GATE_SILU) },
    { "delta.decay=first", "delta_rule", &with_columns, "all columns of a state have the decay of the first one, as "
      "if there were one for each head", STEPS(.decay_place = decay_of_first) },
    { "delta.decay=rows", "delta_rule", &with_columns, "decays are of the rows of a state, which values are written "
      "to, not of its columns, which belong to elements of K", STEPS(.decay_place = decay_of_row) },

    { "shift.token=own", "Qcur", &with_rwkv, "where RWKV mixes a token x with the token before it, x itself takes the "
      "place of that", STEPS(.previous = token_itself) },
    { "shift.token=next", "Qcur", &with_rwkv, "where RWKV mixes a token x with the token before it, the token after x "
      "takes the place of that, and x itself in the last token of a batch", STEPS(.previous = token_after) },
    { "shift.kept=none", "Qcur", &with_rwkv, "zeros take the place of the token before a batch where RWKV mixes it "
      "with the first token of the batch", STEPS(.previous = token_of_batch) },
    { "shift.sign=reversed", "Qcur", &with_rwkv, "where RWKV mixes a token x with the token y before it, f (x - y) is "
      "added to x, not f (y - x)", STEPS(.previous = token_reflected) },
    { "wkv.decay=one_exp", "wkv_decay", NEED("with RWKV 6", has_two_exps), "states are multiplied by e^(-d), not by "
      "e^(-e^d)", STEPS(.wkv_fade = fade_of_one_exp) },
    { "wkv.decay=unscaled", "wkv_decay", NEED("with RWKV 7", has_rwkv_7), "states are multiplied by e^(-sigmoid(d)), "
      "not by e^(-0.606531 sigmoid(d))", STEPS(.wkv_fade = fade_unscaled) },
    { "wkv.decay=inverted", "wkv_decay", &with_rwkv, "the exponents of decays have the other sign: states are "
      "multiplied by e^(e^d), not by e^(-e^d), in RWKV 7 by e^(0.606531 sigmoid(d))",
      STEPS(.wkv_fade = fade_inverted) },
    { "wkv.bonus=missing", "wkv_output", NEED("with a bonus of the own token in RWKV", NULL), "the output of a token "
      "has no bonus of its own K and V", REMOVED(SET(BONUS)) },
    { "wkv.eps=model", "wkv_norm", NEED("with norms of the heads of RWKV", has_heads_norm), "norms of heads have the "
      "epsilon of the other norms, not 64e-5", STEPS(.heads_eps = heads_eps_of_model) },

    { "lightning.split=by_kind", "Qcur", &with_lightning, "the row of attn_qkv has Q of all heads, then K and then V, "
      "not Q, K and V of each head", .rewrite = rewrite_qkv_by_kind },
    { "lightning.act=missing", "QKVcur_silu", &with_lightning, "Q, K and V of lightning attention are not activated",
      ABSENT(WKV_SILU) },
    { "lightning.decay=missing", "wkv_decay", &with_lightning, "states of lightning attention do not decay",
      STEPS(.fade = fade_missing) },
    { "lightning.slopes=of_first", "wkv_decay", &with_lightning, "all layers of lightning attention decay as the "
      "first one: slopes are not multiplied by 1 - layer / (layers - 1)", STEPS(.fade = fade_of_first_layer) },
    { "lightning.slopes=from_zero", "wkv_decay", &with_lightning, "heads are counted from 0 in the slopes of "
      "lightning attention: 2^(-8 h / n), not 2^(-8 (h + 1) / n)", STEPS(.fade = fade_from_zero) },
    { "lightning.norm=heads", "wkv_norm", &with_lightning, "the output of lightning attention is normalized over each "
      "head, not over the whole row", .rewrite = rewrite_norm_by_head },
    { "lightning.residual=input", "ffn_inp", NEED("that adds outputs to norms", is_from_norm), "outputs are added to "
      "the inputs of norms times residual_scale, not to the norms times it", .rewrite = rewrite_residual },
};

const struct known_list known_recurrent = { known, sizeof known / sizeof *known };

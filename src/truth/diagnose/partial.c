/* Looks for the mistake of a dump that has activations only in part.
 *
 * The inputs of the first wrong layer are right, since what theirs has of the layers before agrees.  So every mistake
 * of mistake_list.c is tried in that layer alone, on the truth's own inputs.  The best ones are then tried in a run of
 * all layers: made everywhere, and made in this layer only.  A mistake is a finding if no tap of that run diverges.
 */
#include "diagnose/diagnose.h"

#include <math.h>
#include <stdlib.h>

/* BEST: how many mistakes are tried in all layers.  MAX_TOKEN: longer dumps are not searched.  MAX_PRODUCT: the search
 * in the first wrong layer ends after so many multiplications, and the report says so.
 * N_TRIED: about how many mistakes are tried, for the progress.
 * N_FIRST: most runs in that layer compute this many tokens from the first wrong one on.
 * GOOD: with an error below this, nothing that is made for some heads or tokens only is tried.  CLOSER: a mistake must
 * lower the error of the first wrong tap by this factor.  CLOSER_ON_AVERAGE: and those of all taps by this one.
 * NOT_EXACT: with a larger error, a known mistake that reproduces theirs may only be near the right one.
 * JUMP: an error jumps if it is this many times that of any tap before.
 * TIED: two mistakes are tied if the mean log10 of their errors differs by less.  FLOOR: errors below are rounding. */
enum { BEST = 10, MAX_TOKEN = 256, N_FIRST = 3, N_TRIED = 2500 };
#define MAX_PRODUCT UINT64_C(12000000000)
#define GOOD 1e-4
#define CLOSER 2.0
#define CLOSER_ON_AVERAGE 4.0
#define JUMP 4.0
#define NOT_EXACT 1e-3
#define TIED 0.05
#define FLOOR 2e-6

struct guess {
    struct mistake mistake;
    double error, score;   /* of the first wrong tap; of all that were compared */
    double print;          /* a number made of l_out: two mistakes with the same one are the same */
};

struct search {
    struct diagnosis *d;
    size_t first;              /* the tap that diverges first */
    uint32_t from, layer;      /* the layers that may be wrong: from .. layer */
    bool is_result;            /* all layers are right: it is a step behind them */
    struct guess best[BEST];
    uint32_t n_best;
    int32_t head;              /* the scope that is tried */
    enum token_scope tokens;
    plumb_status status;
};

/* The first step that is wrong. */
static enum tap_id step_of(const struct diagnosis *d, const struct mistake *m) {
    enum tap_id ids[TAP_COUNT], id = TAP_EMBD;
    tap_sequence(d->theirs->order, ids);
    for (uint32_t i = TAP_COUNT; i-- > 0;) {
        if (m->taps >> ids[i] & 1) id = ids[i];
    }
    return id;
}

/* Returns true if a step of the layers that may be wrong comes after the first wrong tap, which it cannot change. */
static bool is_after_first(const struct search *s, enum tap_id id) {
    const struct trace_tap *first = &s->d->theirs->taps[s->first];
    int32_t layer = (int32_t)s->layer;
    if (s->from < s->layer || first->layer != layer || !tap_spec(id)->in_layer) return false;
    return tap_place(s->d->theirs->order, id, layer) > tap_place(s->d->theirs->order, first->id, layer);
}

static double log_sum(const struct diagnosis *d, const struct outcome *o) {
    double sum = 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (!isnan(o->error[i])) sum += log10(fmin(fmax(o->error[i], FLOOR), 10));
    }
    return sum;
}

static void insert(struct search *s, const struct guess *g) {
    uint32_t at = s->n_best;
    enum tap_id step = step_of(s->d, &g->mistake);
    for (uint32_t i = 0; i < s->n_best; i++) {   /* two words for one mistake: the first one is the simpler one */
        bool is_same = fabs(s->best[i].print - g->print) <= 1e-6 * fabs(g->print);
        if (is_same && step_of(s->d, &s->best[i].mistake) == step) return;
    }
    while (at > 0 && s->best[at - 1].score > g->score + 1e-9) at--;
    if (at == BEST) return;
    if (s->n_best < BEST) s->n_best++;
    memmove(&s->best[at + 1], &s->best[at], (s->n_best - 1 - at) * sizeof *s->best);
    s->best[at] = *g;
}

/* Fills g with the outcome of a mistake in the layers that may be wrong.  Returns its error, or INFINITY if it was not
 * tried. */
static double run_mistake(struct search *s, const struct mistake *mistake, struct guess *g) {
    struct diagnosis *d = s->d;
    struct outcome o;
    *g = (struct guess){ .mistake = *mistake, .error = INFINITY };
    d->is_cut = d->is_cut || d->experiment->n_product > MAX_PRODUCT;
    if (s->status != PLUMB_OK || d->is_cut) return INFINITY;
    s->status = experiment_try(d->experiment, mistake, false, s->layer + 1, &o, d->err);
    if (s->status != PLUMB_OK) return INFINITY;
    diagnose_progress(d, s->layer + 1 - s->from);
    g->error = o.error[s->first];
    g->score = log_sum(d, &o);
    g->print = d->experiment->prints[TAP_L_OUT];
    outcome_free(&o);
    return g->error;
}

static void try_in_layer(void *user, const struct mistake *mistake) {
    struct search *s = user;
    struct guess g;
    struct mistake m = *mistake;
    m.head = s->head;
    m.tokens = s->tokens;
    if (run_mistake(s, &m, &g) * CLOSER < s->d->truth.error[s->first]) insert(s, &g);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static double error_with(struct search *s, struct mistake *m, double number, struct guess *g) {
    m->number = number;
    return run_mistake(s, m, g);
}

/* Looks for the number with which a mistake comes closest to theirs, from the best of a few numbers on. */
static void fit_number(struct search *s, struct mistake m, double low, double high) {
    enum { N_START = 9, N_STEP = 36 };
    const double golden = 0.6180339887498949;
    struct guess best = { .error = INFINITY }, g;
    double at = log(low), step = (log(high) - log(low)) / (N_START - 1);
    for (int i = 0; i < N_START; i++) {
        if (error_with(s, &m, exp(log(low) + i * step), &g) < best.error) best = g, at = log(low) + i * step;
    }
    double a = at - step, b = at + step, c = b - golden * (b - a), e = a + golden * (b - a);
    double of_c = error_with(s, &m, exp(c), &g), of_e = error_with(s, &m, exp(e), &g);
    for (int i = 0; i < N_STEP && fmin(of_c, of_e) > FLOOR; i++) {
        if (of_c < of_e) b = e, e = c, of_e = of_c, c = b - golden * (b - a), of_c = error_with(s, &m, exp(c), &g);
        else a = c, c = e, of_c = of_e, e = a + golden * (b - a), of_e = error_with(s, &m, exp(e), &g);
        if (g.error < best.error) best = g;
        if (i == 8 && best.error * CLOSER > s->d->truth.error[s->first]) return;
    }
    if (best.error * CLOSER < s->d->truth.error[s->first]) insert(s, &best);
}

static void try_numbers(struct search *s) {
    const struct mistakes *m = s->d->experiment->mistakes;
    const id_set both = TAP_SET(QCUR_ROPE) | TAP_SET(KCUR_ROPE), norms = TAP_SET(ATTN_NORM) | TAP_SET(FFN_NORM);
    const struct { id_set taps; enum mistake_kind kind; uint8_t variant; double low, high; } rows[] = {
        { both, MISTAKE_ROPE, ROPE_SCALED, 0.05, 20 }, { both, MISTAKE_ROPE, ROPE_BASE, 10, 1e8 },
        { TAP_SET(QCUR_ROPE), MISTAKE_ROPE, ROPE_SCALED, 0.05, 20 },
        { TAP_SET(KCUR_ROPE), MISTAKE_ROPE, ROPE_SCALED, 0.05, 20 },
        { TAP_SET(QCUR_ROPE), MISTAKE_ROPE, ROPE_BASE, 10, 1e8 },
        { TAP_SET(KCUR_ROPE), MISTAKE_ROPE, ROPE_BASE, 10, 1e8 },
        { TAP_SET(KQ_SOFT_MAX), MISTAKE_SCORES, SCORES_SCALE, 0.02, 50 },
        { TAP_SET(KQ_SOFT_MAX), MISTAKE_SCORES, SCORES_SOFTCAP, 0.5, 100 },
        { norms, MISTAKE_EPS, 0, 1e-9, 10 }, { TAP_SET(ATTN_NORM), MISTAKE_EPS, 0, 1e-9, 10 },
        { TAP_SET(FFN_NORM), MISTAKE_EPS, 0, 1e-9, 10 },
        { TAP_SET(FFN_SWIGLU), MISTAKE_GATE, GLU_GELU_ROOT, 0.05, 20 },
        { TAP_SET(FFN_SWIGLU), MISTAKE_GATE, GLU_GELU_CUBE, 1e-4, 10 },
    };
    bool is_gelu = s->d->model->plan.layers[s->layer].ffn.activation == ACT_GELU_TANH;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct mistake mistake = { .taps = rows[i].taps, .kind = rows[i].kind, .variant = rows[i].variant,
                                         .layer = EVERYWHERE, .head = EVERYWHERE };
        if (rows[i].kind == MISTAKE_GATE && !is_gelu) continue;
        if ((rows[i].taps & ~m->supported) || is_after_first(s, step_of(s->d, &mistake))) continue;
        fit_number(s, mistake, rows[i].low, rows[i].high);
    }
    for (uint32_t id = TAP_ATTN_NORM; id < TAP_L_OUT; id++) {
        if (m->width[id] == 0 || id == TAP_KQ_SOFT_MAX || is_after_first(s, (enum tap_id)id)) continue;
        fit_number(s, (struct mistake){ .taps = ID_SET(id), .kind = MISTAKE_SCALE, .layer = EVERYWHERE,
                                        .head = EVERYWHERE }, 0.05, 20);
    }
}

/* ---- what is tried ----------------------------------------------------------------------------------------------- */

static void try_steps(struct search *s) {
    struct mistakes *m = s->d->experiment->mistakes;
    enum tap_id ids[TAP_COUNT];
    tap_sequence(m->order, ids);
    for (uint32_t i = TAP_COUNT; i-- > 0;) {   /* the last steps first: they take the least time */
        enum tap_id id = ids[i];
        bool is_there = s->is_result ? id == TAP_RESULT_NORM
                      : tap_spec(id)->in_layer || (id == TAP_EMBD && s->from == 0);
        if (!is_there || m->width[id] == 0 || is_after_first(s, id)) continue;
        uint32_t n_head = s->head == EVERYWHERE ? 1 : m->n_head[id];
        for (uint32_t h = 0; h < n_head && n_head + (s->head == EVERYWHERE) > 1; h++) {
            if (s->head != EVERYWHERE) s->head = (int32_t)h;
            mistakes_list(m, id, (int32_t)s->layer, try_in_layer, s);
        }
    }
}

/* All steps of the layer with the tensors of another layer. */
static void try_layers(struct search *s) {
    const struct plan *p = &s->d->model->plan;
    id_set taps = 0;
    for (uint32_t id = 0; id < TAP_COUNT; id++) {
        if (tap_spec((enum tap_id)id)->in_layer && mistake_weight((enum tap_id)id) < W_COUNT) taps |= ID_SET(id);
    }
    for (uint32_t il = s->from; il < s->layer + 1; il++) {
        try_in_layer(s, &(struct mistake){ .taps = TAP_SET(L_OUT), .kind = MISTAKE_LEFT_OUT, .layer = (int32_t)il,
                                           .head = EVERYWHERE });
    }
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (il == s->layer) continue;
        try_in_layer(s, &(struct mistake){ .taps = taps, .kind = MISTAKE_LAYER, .variant = MAP_ONE, .first = s->layer,
                                           .from_layer = (int32_t)il, .layer = EVERYWHERE, .head = EVERYWHERE });
    }
}

/* ---- in all layers ----------------------------------------------------------------------------------------------- */

/* A mistake that was tried in all layers. */
struct whole { struct mistake mistake; double error, score; bool explains; };

static plumb_status try_whole(struct search *s, const struct mistake *mistake, struct whole *w) {
    struct diagnosis *d = s->d;
    struct outcome o;
    *w = (struct whole){ .mistake = *mistake };
    PLUMB_TRY(experiment_try(d->experiment, mistake, true, UINT32_MAX, &o, d->err));
    diagnose_progress(d, d->model->plan.n_layer);
    w->error = o.error[s->first];
    w->score = log_sum(d, &o);
    double before = log_sum(d, &d->truth);
    size_t n_wrong = 0;
    for (size_t i = s->first; i < d->theirs->n_tap; i++) n_wrong += isnan(o.error[i]) ? 0 : 1;
    bool is_closer = before - w->score >= (double)n_wrong * log10(CLOSER_ON_AVERAGE);
    w->explains = diagnose_explains(d, &o) && w->error * CLOSER < d->truth.error[s->first] && is_closer;
    outcome_free(&o);
    return PLUMB_OK;
}

static int by_score(const void *a, const void *b) {
    const struct whole *x = a, *y = b;
    if (x->explains != y->explains) return x->explains ? -1 : 1;
    return (x->score > y->score) - (x->score < y->score);
}

/* Steps whose tensors a loader treats alike: a mistake may be in several of them. */
static const id_set alike[] = {
    TAP_SET(QCUR) | TAP_SET(KCUR), TAP_SET(QCUR) | TAP_SET(KCUR) | TAP_SET(VCUR), TAP_SET(FFN_GATE) | TAP_SET(FFN_UP),
};
enum { N_ALIKE = sizeof alike / sizeof *alike, N_WAY = N_LAYER_MAP + N_ALIKE + 1 };

/* The ways in which a mistake of the first wrong layer can go on in the others. */
static uint32_t variants_of(const struct search *s, const struct mistake *m, struct mistake out[N_WAY]) {
    uint32_t n = 0, n_layer = s->d->model->plan.n_layer;
    if (m->kind == MISTAKE_LEFT_OUT || s->is_result) {
        out[0] = *m;
        return 1;
    }
    if (m->kind != MISTAKE_LAYER) {
        out[n] = *m;
        out[n++].layer = EVERYWHERE;
        for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
            bool is_of = (m->taps & alike[i]) && !(m->taps & ~alike[i]) && mistake_can_be_shared(m);
            if (!is_of) continue;
            out[n] = out[0];
            out[n++].taps = alike[i];
        }
        if (m->kind == MISTAKE_TENSOR && m->from_layer < 0) {
            out[n] = out[0];
            out[n++].taps |= mistake_taps(m->weight);
        }
        uint32_t end = n + 3;
        for (uint32_t il = s->from; il <= s->layer && n < end; il++) {
            out[n] = *m;
            out[n++].layer = (int32_t)il;
        }
        return n;
    }
    for (uint8_t map = 0; map < N_LAYER_MAP; map++) {
        struct mistake other = *m;
        other.variant = map;
        if (mistake_layer(&other, s->layer, n_layer) == (uint32_t)m->from_layer) out[n++] = other;
    }
    return n;
}

static void report(struct search *s, const struct whole *all, uint32_t n) {
    struct diagnosis *d = s->d;
    const struct mistake *best = &all[0].mistake;
    enum tap_id id = step_of(d, best);
    int32_t layer = id == TAP_EMBD || id == TAP_RESULT_NORM ? -1 : best->layer != EVERYWHERE ? best->layer
                  : best->kind == MISTAKE_LAYER ? (int32_t)best->first : (int32_t)s->from;
    bool is_left_out = best->kind == MISTAKE_LEFT_OUT;   /* the steps after it read another input */
    if (is_left_out && ++layer == (int32_t)d->model->plan.n_layer) layer = -1;
    if (is_left_out) id = layer < 0 ? TAP_RESULT_NORM : TAP_ATTN_NORM;
    struct fit *f = &d->measured[0];
    *f = (struct fit){ .model = d->model, .dump = d->theirs, .id = id, .layer = layer, .tokens = d->theirs->tokens,
                       .floor = FLOOR, .is_supposed = true, .supposed = *best };
    if (is_left_out) f->supposed.layer = layer;
    d->n_measured = 1;
    d->is_supposed = true;
    double limit = all[0].score + TIED * (double)diagnose_n_compared(d);
    for (uint32_t i = 0; i < n && i < FIT_FINDINGS && all[i].explains && all[i].score <= limit; i++) {
        struct finding *finding = &f->findings[f->n_finding++];
        const struct mistake *m = &all[i].mistake;
        *finding = (struct finding){ .error = all[i].error, .right_error = d->truth.error[s->first], .explains = true,
                                     .step = m->kind == MISTAKE_LEFT_OUT ? id : step_of(d, m) };
        mistake_say(d->experiment->mistakes, m, layer < 0 ? 0 : layer, finding->sentence, sizeof finding->sentence);
        mistake_where(m, finding->where, sizeof finding->where);
        f->n_clear++;
    }
}

/* Looks for the tap of the layer of which the tied mistakes give the most different values. */
static plumb_status choose_further(struct search *s, const struct whole *all) {
    struct diagnosis *d = s->d;
    struct experiment *e = d->experiment;
    struct fit *f = &d->measured[0];
    double prints[FIT_FINDINGS][TAP_COUNT];
    for (uint32_t i = 0; i < f->n_clear; i++) {
        struct outcome o;
        PLUMB_TRY(experiment_try(e, &all[i].mistake, false, s->layer + 1, &o, d->err));
        memcpy(prints[i], e->prints, sizeof prints[i]);
        outcome_free(&o);
    }
    enum tap_id ids[TAP_COUNT];
    tap_sequence(d->theirs->order, ids);
    for (uint32_t k = 0; k < TAP_COUNT; k++) {
        enum tap_id id = ids[k];
        uint32_t n_group = 0;
        for (uint32_t i = 0; i < f->n_clear; i++) {
            bool is_new = true;
            for (uint32_t j = 0; j < i && is_new; j++) {
                is_new = fabs(prints[i][id] - prints[j][id]) > 1e-5 * fabs(prints[j][id]);
            }
            n_group += is_new;
        }
        bool is_better = tap_spec(id)->in_layer && e->mistakes->width[id] > 0 && n_group > 1 && n_group > f->n_apart;
        if (!is_better) continue;
        f->further = id;
        f->n_apart = n_group;
        f->further_shape[0] = e->mistakes->n_head[id];
        f->further_shape[1] = e->mistakes->width[id];
    }
    return PLUMB_OK;
}

static plumb_status try_best(struct search *s) {
    struct whole all[BEST * N_WAY];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_best; i++) {
        struct mistake ways[N_WAY];
        uint32_t n_way = variants_of(s, &s->best[i].mistake, ways);
        /* If the best one explains everything when it is made everywhere, it is not made in one layer only. */
        bool is_everywhere = n > 0 && all[0].explains && ways[0].kind != MISTAKE_LAYER;
        for (uint32_t k = 0; k < n_way && (k == 0 || !is_everywhere); k++) {
            PLUMB_TRY(try_whole(s, &ways[k], &all[n++]));
        }
        /* The others of the list are worse already in this layer. */
        bool is_clear = i + 1 < s->n_best && s->best[i + 1].score > s->best[i].score + 2 && s->best[i].error < GOOD;
        if (is_clear) break;
    }
    qsort(all, n, sizeof *all, by_score);
    if (n == 0 || !all[0].explains) return PLUMB_OK;
    report(s, all, n);
    return s->d->measured[0].n_clear > 1 ? choose_further(s, all) : PLUMB_OK;
}

/* ---- entry point ------------------------------------------------------------------------------------------------- */

/* Fills the layers in which the mistake may be: those after the last layer of which a tap agrees, up to that of the
 * first tap that diverges. */
static void find_layers(struct search *s) {
    const struct diagnosis *d = s->d;
    const struct trace_tap *first = &d->theirs->taps[s->first];
    int32_t n_layer = (int32_t)d->model->plan.n_layer;
    double allowed = diagnose_allowed(d, &d->truth);
    s->from = 0;
    s->layer = (uint32_t)(first->id >= TAP_RESULT_NORM ? n_layer - 1 : first->layer < 0 ? 0 : first->layer);
    for (size_t i = 0; i < s->first; i++) {
        const struct trace_tap *tap = &d->theirs->taps[i];
        if (tap->layer < 0 || isnan(d->truth.error[i])) continue;
        if (d->truth.error[i] > allowed) continue;   /* it stands out in its layer, and may show the mistake */
        s->from = (uint32_t)tap->layer + (tap->id == TAP_L_OUT);
    }
    s->is_result = s->from >= d->model->plan.n_layer;
    if (s->from > s->layer) s->from = s->layer;
}

/* The first token in whose row the first wrong tap is wrong. */
static uint32_t first_wrong_token(const struct search *s) {
    const struct diagnosis *d = s->d;
    const struct trace_tap *tap = &d->theirs->taps[s->first];
    for (uint32_t k = 0; k < tap->n_row; k++) {
        double error = d->truth.row_error[d->experiment->first_row[s->first] + k];
        if (error * CLOSER > d->truth.error[s->first] / sqrt(tap->n_row)) return tap->rows[k].pos;
    }
    return UINT32_MAX;
}

/* Whether a mistake made for these tokens only can be what theirs shows first: the tokens before it are right. */
static bool may_be_of(const struct search *s, enum token_scope tokens) {
    uint32_t first = first_wrong_token(s);
    switch (tokens) {
    case TOKENS_DECODED: return first >= s->d->theirs->n_prompt;
    case TOKENS_LAST: return first + 1 >= s->d->theirs->n_token;
    default: return first < s->d->theirs->n_prompt;
    }
}

/* The search needs a dump without whole activations that does not agree. */
static bool can_search(const struct diagnosis *d) {
    return !d->experiment->forced && plan_begins_at_layers(&d->model->plan) && d->theirs->n_token <= MAX_TOKEN
        && diagnose_first(d, &d->truth) != SIZE_MAX && !diagnose_explains(d, &d->truth);
}

plumb_status diagnose_begin_partial(struct diagnosis *d) {
    if (!can_search(d)) return PLUMB_OK;
    struct search s = { .d = d, .first = diagnose_first(d, &d->truth) };
    find_layers(&s);
    /* With noise, a mistake that is made everywhere may show late: then the runs begin with layer 0, unless the error
     * jumps. */
    d->is_exact_before = true;
    for (size_t i = 0; i < s.first; i++) {
        if (d->truth.error[i] <= GOOD) continue;
        d->is_exact_before = false;
        double typical = diagnose_typical(d, &d->truth, d->theirs->taps[i].layer);
        if (typical * JUMP > d->truth.error[s.first]) s.from = 0;
    }
    return experiment_begin_mistakes(d->experiment, s.from, &d->noise.rounding.products, d->err);
}

plumb_status diagnose_partial(struct diagnosis *d) {
    /* A listed number may come close enough to hide the right one. */
    const struct outcome *best = diagnose_best(d);
    bool is_close = !d->noise.products && !d->assumes_noise && diagnose_largest(d, best) > NOT_EXACT;
    if (!can_search(d) || (diagnose_explains(d, best) && !is_close)) return PLUMB_OK;
    struct search s = { .d = d, .first = diagnose_first(d, &d->truth), .head = EVERYWHERE };
    find_layers(&s);
    s.from = d->experiment->first_layer;
    d->experiment->print_layer = (int32_t)s.layer;
    d->n_due += (double)N_TRIED * (s.layer + 1.0 - s.from) + 2.0 * (double)BEST * d->model->plan.n_layer;
    uint32_t token = first_wrong_token(&s);
    d->experiment->n_first = token < d->theirs->n_token ? token + N_FIRST : d->theirs->n_token;
    try_steps(&s);
    if (!s.is_result) try_layers(&s);
    if (!s.is_result && (s.n_best == 0 || s.best[0].error >= GOOD)) try_numbers(&s);
    for (enum token_scope tokens = TOKENS_DECODED; tokens < N_TOKEN_SCOPE; tokens++) {
        if (s.n_best > 0 && s.best[0].error < GOOD) break;
        if (!may_be_of(&s, tokens)) continue;
        s.tokens = tokens;
        try_steps(&s);
    }
    s.tokens = TOKENS_ALL;
    if (s.n_best == 0 || s.best[0].error >= GOOD) {
        s.head = 0;
        try_steps(&s);
    }
    PLUMB_TRY(s.status);
    return try_best(&s);
}

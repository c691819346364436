/* Tries the mistakes of mistake_list.c in a step whose inputs are known, if no analyser explains it.  They are made in
 * the batches in which the engine computed the tokens: the prompt, and then one token after the other.
 *
 * Where the dump lacks a step before this one, such as the attention weights of an engine that computes attention at
 * once, the mistakes of that step are tried too, and this step is computed from them.
 */
#include "diagnose/fit.h"

#include <stdio.h>

/* MAX_PRODUCT: products with a matrix are tried if each takes at most this many multiplications.  MANY: fitted numbers.
 * SAME: the rounding of activations in f32, up to which the formula of a step is that of the pass. */
enum { MAX_PRODUCT = 20000000, MANY = 3 };
#define SAME 1e-5

/* The rows of an activation of the layer, for all tokens. */
struct known_mistake { enum tap_id id; int32_t layer; struct fit_rows rows; };

struct listed {
    struct fit *f;
    struct mistakes *s;
    struct known_mistake inputs[TAP_COUNT];   /* (n_input) in the order of the computation */
    uint32_t n_input;
    enum tap_id changed;              /* the step that is wrong: f->id, or one of the inputs that the dump lacks */
    double *x;                        /* (n_token * width) a batch of the widest of them */
    double *y;                        /* (n_token, n_head, n) of theirs */
};

/* Copies the rows of a batch to x, in the shape that the pass gives them. */
static plumb_tap take(const struct known_mistake *of, uint32_t pos, uint32_t n_token, double *x) {
    uint32_t n_head = of->rows.n_head, n = of->rows.n, width = of->id == TAP_KQ_SOFT_MAX ? pos + n_token : n;
    for (size_t row = 0; row < (size_t)n_token * n_head; row++) {
        const float *from = of->rows.x + ((size_t)pos * n_head + row) * n;
        for (uint32_t i = 0; i < width; i++) x[row * width + i] = (double)from[i];
    }
    return (plumb_tap){ tap_spec(of->id)->name, of->layer, pos, n_token, n_head, width, NULL };
}

/* Computes a batch with a mistake and writes its rows to y. */
static void compute_batch(struct listed *l, const struct mistake *m, uint32_t pos, uint32_t n_token) {
    struct fit *f = l->f;
    const struct known_mistake own = { f->id, f->layer, f->truth };
    for (uint32_t i = 0; i < l->n_input; i++) {
        plumb_tap tap = take(&l->inputs[i], pos, n_token, l->x);
        l->s->mistake = l->inputs[i].id == l->changed ? m : NULL;
        mistakes_step(l->s, &tap, l->inputs[i].id, l->x);
    }
    plumb_tap tap = take(&own, pos, n_token, l->x);
    l->s->mistake = m;
    if (l->changed != f->id) mistakes_compute(l->s, &tap, f->id, l->x);
    else mistakes_step(l->s, &tap, f->id, l->x);
    uint32_t n = f->theirs.n;
    for (size_t row = 0; row < (size_t)n_token * tap.n_head; row++) {
        double *to = l->y + ((size_t)pos * tap.n_head + row) * n;
        for (uint32_t i = 0; i < n; i++) to[i] = i < tap.n ? l->x[row * tap.n + i] : 0;
    }
}

static void compute_all(struct listed *l, const struct mistake *m) {
    uint32_t n_token = l->f->theirs.n_token, n_prompt = l->f->n_prompt < n_token ? l->f->n_prompt : n_token;
    mistakes_begin(l->s, m);
    if (n_prompt > 0) compute_batch(l, m, 0, n_prompt);
    for (uint32_t pos = n_prompt; pos < n_token; pos++) compute_batch(l, m, pos, 1);
}

static void try_mistake(void *user, const struct mistake *m) {
    struct listed *l = user;
    struct fit *f = l->f;
    if (m->taps & (m->taps - 1) || f->out_of_memory) return;   /* of several steps: each is measured by itself */
    compute_all(l, m);
    f->out_of_memory |= l->s->out_of_memory;
    char text[FIT_SENTENCE];
    mistake_say(l->s, m, f->layer < 0 ? 0 : f->layer, text, sizeof text);
    bool is_own = l->changed == f->id;
    fit_propose(f, m->chunk > 0 && m->chunk < f->n_prompt ? 1 : 0, l->y, "%s%s%s%s", is_own ? "" : "is computed from ",
                is_own ? "" : tap_spec(l->changed)->name, is_own ? "" : " that ", text);
}

/* Whether the rows are those of all tokens and, of K and V, have the model's width. */
static bool is_usable(const struct fit *f, enum tap_id id, const struct fit_rows *rows) {
    bool is_k = id == TAP_KCUR || id == TAP_KCUR_ROPE, is_v = id == TAP_VCUR;
    uint64_t most = is_k ? f->model->plan.max_k : is_v ? f->model->plan.max_v : UINT64_MAX;
    return rows->n_token == f->theirs.n_token && fit_width(rows) <= most;
}

/* Finds the activations that come before the step.  Returns false if one of them is not known for all tokens. */
static bool find_inputs(struct listed *l) {
    struct fit *f = l->f;
    uint32_t n_layer = f->model->plan.n_layer, order = f->dump->order;
    enum tap_id ids[TAP_COUNT];
    tap_sequence(order, ids);
    if (f->layer < 0 && f->id != TAP_EMBD && f->id != TAP_RESULT_NORM) return false;
    if (f->layer != 0 || f->model->plan.has_states) {
        int32_t before = f->layer < 0 ? (int32_t)n_layer - 1 : f->layer - 1;
        /* The keys and values of the layer before are there to be mixed up with those of this one. */
        static const enum tap_id kept[] = { TAP_KCUR, TAP_VCUR, TAP_KCUR_ROPE, TAP_L_OUT };
        for (size_t i = 0; i < 4 && f->id != TAP_EMBD; i++) {
            struct known_mistake *k = &l->inputs[l->n_input];
            *k = (struct known_mistake){ .id = kept[i], .layer = before };
            if (fit_tap(f, k->id, k->layer, &k->rows)) l->n_input++;
        }
    }
    for (uint32_t i = 0; i < TAP_COUNT && f->id != TAP_EMBD && f->layer >= 0; i++) {
        bool is_embd = ids[i] == TAP_EMBD;
        if (is_embd ? f->layer != 0 : !tap_spec(ids[i])->in_layer || ids[i] == f->id) continue;
        if (!is_embd && tap_place(order, ids[i], 0) > tap_place(order, f->id, 0)) continue;
        if (l->n_input == TAP_COUNT || tap_holds_indices(ids[i])) continue;
        struct known_mistake *k = &l->inputs[l->n_input];
        *k = (struct known_mistake){ .id = ids[i], .layer = is_embd ? -1 : f->layer };
        if (fit_tap(f, k->id, k->layer, &k->rows)) l->n_input++;
    }
    for (uint32_t i = 0; i < l->n_input; i++) {
        if (!is_usable(f, l->inputs[i].id, &l->inputs[i].rows)) return false;
    }
    if (!is_usable(f, f->id, &f->theirs)) return false;
    return f->theirs.n_token == f->dump->n_token && f->truth.n_token == f->theirs.n_token;
}

void fit_listed(struct fit *f) {
    for (uint32_t i = 0; i < f->n_finding; i++) {   /* what has many fitted numbers is no explanation */
        if (f->findings[i].explains && f->findings[i].cost < MANY) return;
    }
    struct listed *l = fit_new(f, 1, sizeof *l);
    enum weight_id id = mistake_weight(f->id);
    const struct weight *w = id < W_COUNT ? fit_weight(f, id)->w : NULL;
    bool is_large = w && (uint64_t)w->n_in * w->n_out * f->theirs.n_token > MAX_PRODUCT;
    if (!l || is_large) return;
    l->f = f;
    if (!find_inputs(l)) return;
    size_t width = fit_width(&f->theirs);
    for (uint32_t i = 0; i < l->n_input; i++) {
        if (fit_width(&l->inputs[i].rows) > width) width = fit_width(&l->inputs[i].rows);
    }
    l->x = fit_new(f, f->theirs.n_token * width, sizeof *l->x);
    l->y = fit_new(f, f->theirs.n_token * fit_width(&f->theirs), sizeof *l->y);
    struct error err;
    bool is_created = l->x && l->y && mistakes_create(&l->s, f->model, f->dump->tokens, f->dump->n_token,
                                                      f->n_prompt, &err) == PLUMB_OK;
    f->out_of_memory |= !is_created;
    if (!is_created) return;
    l->s->rounding = f->rounding;
    l->s->same = SAME;
    l->s->checked = ID_SET(f->id);
    for (uint32_t i = 0; i < l->n_input; i++) {
        bool is_absent = l->inputs[i].layer == f->layer && !trace_find_tap(f->dump, l->inputs[i].id, f->layer);
        if (is_absent) l->s->checked |= ID_SET(l->inputs[i].id);
    }
    id_set tried = l->s->checked;
    l->s->is_checking = true;
    l->changed = f->id;
    compute_all(l, NULL);
    l->s->is_checking = false;
    id_set steps = model_tap_inputs(f->model, f->id, f->layer);
    for (uint32_t k = 0; k < TAP_COUNT; k++) {
        l->changed = (enum tap_id)k;
        bool is_tried = (tried >> k & 1) && (l->changed == f->id || (steps >> k & 1));
        bool can_go_on = l->changed == f->id || (l->s->supported >> f->id & 1);
        if (is_tried && can_go_on) mistakes_list(l->s, l->changed, f->layer < 0 ? 0 : f->layer, try_mistake, l);
    }
    mistakes_free(l->s);
}

/* See known.h. */
#include "mistakes/known.h"

#include "api/model.h"

#include <stdlib.h>

/* ---- the table --------------------------------------------------------------------------------------------------- */

static bool has_experts(const struct model *m) { return m->plan.layers[m->plan.n_layer - 1].ffn.n_expert > 0; }
static bool has_pooling(const struct model *m) { return m->plan.pooling.kind != PLUMB_POOLING_NONE; }

const struct need known_every = { "all", NULL }, known_with_experts = { "with experts", has_experts },
    known_with_pooling = { "with pooling", has_pooling };

const struct known_mistake *known_at(size_t i) {
    const struct known_list *const lists[] = { &known_norms, &known_attention, &known_recurrent, &known_ffn,
                                                &known_types };
    for (size_t k = 0; k < sizeof lists / sizeof *lists; i -= lists[k++]->n) {
        if (i < lists[k]->n) return &lists[k]->of[i];
    }
    return NULL;
}

size_t known_count(void) {
    return known_norms.n + known_attention.n + known_recurrent.n + known_ffn.n + known_types.n;
}

/* ---- functions that take the place of others --------------------------------------------------------------------- */

/* struct reference_steps has functions alone. */
enum { STEP = sizeof(void (*)(void)), ALL_STEPS = sizeof(struct reference_steps) };

static bool has_step(const struct known_mistake *q, size_t at) {
    static const uint8_t none[STEP];
    return q->steps && memcmp((const uint8_t *)q->steps + at, none, STEP) != 0;
}

static bool share_step(const struct known_mistake *a, const struct known_mistake *b) {
    for (size_t at = 0; at < ALL_STEPS; at += STEP) {
        if (has_step(a, at) && has_step(b, at)) return true;
    }
    return false;
}

static void replace(const struct known_mistake *q, struct reference_steps *steps) {
    for (size_t at = 0; at < ALL_STEPS; at += STEP) {
        if (has_step(q, at)) memcpy((uint8_t *)steps + at, (const uint8_t *)q->steps + at, STEP);
    }
}

/* ---- edits ------------------------------------------------------------------------------------------------------- */

void known_edit_plan(const struct known_mistake *q, struct edit *e) {
    memcpy((uint8_t *)e->plan + q->at, &q->number, sizeof q->number);
}

void known_edit_attention(const struct known_mistake *q, struct edit *e) {
    EACH_LAYER(e->plan, il) memcpy((uint8_t *)&e->plan->layers[il].attn + q->at, &q->value, sizeof q->value);
}

/* Calls edit with the weights of a set, as far as a model can have them: those of layers, and some outside. */
static void each_weight(struct edit *e, id_set set, void (*edit)(struct affine *of)) {
    struct model *m = e->model;
    struct affine *const outside[W_COUNT] = {
        [W_TOKEN_TYPES] = &m->token_types, [W_POSITION_EMBD] = &m->position_embd,
        [W_TOKEN_EMBD_NORM] = &m->token_embd_norm, [W_OUTPUT_NORM] = &m->output_norm, [W_OUTPUT] = &m->output };
    for (uint32_t id = 0; id < W_COUNT; id++) {
        if (!(set >> id & 1)) continue;
        if (id >= W_LAYER_COUNT) edit(outside[id]);
        for (uint32_t il = 0; id < W_LAYER_COUNT && il < e->plan->n_layer; il++) edit(&m->layers[il].w[id]);
    }
}

static void remove_weight(struct affine *of) { *of = (struct affine){ 0 }; }
static void remove_bias(struct affine *of) { of->b = NULL; }
void known_remove(const struct known_mistake *q, struct edit *e) { each_weight(e, q->weights, remove_weight); }
void known_remove_bias(const struct known_mistake *q, struct edit *e) { each_weight(e, q->weights, remove_bias); }

struct step *known_step(struct program *p, enum tap_id tap) {
    for (struct step *s = p->steps; s < p->steps + p->n; s++) {
        if (s->tap == tap) return s;
    }
    return NULL;
}

void known_rewrite_absent(const struct known_mistake *q, struct program *p) {
    struct step *s = known_step(p, (enum tap_id)q->at);
    if (s) s->kind = STEP_SHOW, s->weight = W_COUNT;
}

static void edit(const struct known_mistake *q, struct edit *e) {
    replace(q, e->steps);
    if (q->edit) q->edit(q, e);
}

static bool rewrites(const struct known_mistake *q, const struct model *m) {
    EACH_LAYER(&m->plan, il) {
        struct program program = *m->layers[il].program;
        if (q->rewrite) q->rewrite(q, &program);
        if (!program_equals(&program, m->layers[il].program)) return true;
    }
    return false;
}

/* Returns 1 if an edit changes anything in this model, 0 if not, and -1 if there is no memory to find out. */
static int changes(const struct known_mistake *q, const struct model *m) {
    size_t n_layers = m->plan.n_layer * sizeof *m->layers, n_plans = m->plan.n_layer * sizeof *m->plan.layers;
    struct reference_steps steps = reference_right_steps;
    struct model edited;
    struct plan plan;
    memcpy(&edited, m, sizeof edited);   /* with the padding, as bytes are compared below */
    memcpy(&plan, &m->plan, sizeof plan);
    edited.layers = malloc(n_layers);
    plan.layers = malloc(n_plans);
    bool is_other = rewrites(q, m), has_memory = edited.layers && plan.layers;
    if (has_memory) {
        memcpy(edited.layers, m->layers, n_layers);
        memcpy(plan.layers, m->plan.layers, n_plans);
        edit(q, &(struct edit){ &plan, &edited, &steps, NULL });
        is_other |= memcmp(edited.layers, m->layers, n_layers) != 0;
        is_other |= memcmp(plan.layers, m->plan.layers, n_plans) != 0;
    }
    free(edited.layers);
    free(plan.layers);
    edited.layers = m->layers;
    plan.layers = m->plan.layers;
    if (!has_memory) return -1;
    return is_other || memcmp(&edited, m, sizeof edited) != 0 || memcmp(&plan, &m->plan, sizeof plan) != 0
        || memcmp(&steps, &reference_right_steps, sizeof steps) != 0;
}

bool known_has_tap(const struct model *m, enum tap_id id) {
    EACH_LAYER(&m->plan, il) {
        if (program_taps(m->layers[il].program, m, il) >> id & 1) return true;
    }
    return false;
}

static bool is_in(const struct known_list *list, const struct known_mistake *q) {
    return q >= list->of && q < list->of + list->n;
}

int known_applies(const struct known_mistake *q, const struct model *m, int32_t bos) {
    if (q->misread) return (int)(m->types >> q->type & 1);
    if (q->tokens == TOKENS_NO_BOS || q->tokens == TOKENS_TWO_BOS) return bos >= 0;
    if (q->need->holds && !q->need->holds(m)) return 0;
    if (is_in(&known_attention, q) && !known_has_tap(m, TAP_KQ_SOFT_MAX)) return 0;
    if (is_in(&known_ffn, q) && q->need == &known_every && !known_has_tap(m, TAP_FFN_OUT)) return 0;
    return q->tokens ? 1 : changes(q, m);
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

static bool has(const struct known_set *set, const struct known_mistake *q) {
    for (uint32_t i = 0; i < set->n; i++) {
        if (set->of[i] == q) return true;
    }
    return false;
}

bool known_is_free(const struct known_set *set, const struct known_mistake *q) {
    size_t n = strcspn(q->name, "=");
    for (uint32_t i = 0; i < set->n; i++) {
        const struct known_mistake *other = set->of[i];
        bool has_name = strcspn(other->name, "=") == n && memcmp(other->name, q->name, n) == 0;
        bool has_type = q->misread && other->misread && q->type == other->type;
        if (has_name || has_type || share_step(q, other)) return false;
    }
    return true;
}

void known_apply(struct reference *r, const struct known_set *set) {
    const struct known_mistake *q;
    struct edit e = { &r->plan, &r->edited, &r->steps, r->misread };
    reference_set_right(r);
    memset(r->misread, MISREAD_NONE, sizeof r->misread);
    if (!set || set->n == 0) return;
    /* In the order of the table, which matters only for edits of the same number. */
    for (size_t i = 0; (q = known_at(i)); i++) {
        if (q->is_first && has(set, q)) edit(q, &e);
    }
    for (size_t i = 0; (q = known_at(i)); i++) {
        if (!q->is_first && has(set, q)) edit(q, &e);
    }
    reference_edited(r);
    for (uint32_t i = 0; i < set->n; i++) {
        EACH_LAYER(&r->plan, il) if (set->of[i]->rewrite) set->of[i]->rewrite(set->of[i], &r->programs[il]);
    }
}

static bool has_tokens(const struct known_set *set, enum token_list kind) {
    for (uint32_t i = 0; i < set->n; i++) {
        if (set->of[i]->tokens == kind) return true;
    }
    return false;
}

size_t known_tokens(const struct known_set *set, const int32_t *ids, size_t n, size_t *n_prompt, int32_t *out) {
    size_t n_out = 0, n_before = *n_prompt;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 && has_tokens(set, TOKENS_NO_BOS) && n_before > 1) {
            --*n_prompt;
            continue;
        }
        out[n_out++] = ids[i];
        if (i == 0 && has_tokens(set, TOKENS_TWO_BOS) && n_before > 0) {
            ++*n_prompt;
            out[n_out++] = ids[i];
        }
        if (i + 1 == n_before && has_tokens(set, TOKENS_PADDED)) {
            ++*n_prompt;
            out[n_out++] = 0;
        }
        if (i + 1 == n_before && has_tokens(set, TOKENS_LAST_TWICE)) out[n_out++] = ids[i];
    }
    return n_out;
}

bool plumb_known_mistake(size_t i, const char **name, const char **tap, const char **models, const char **text) {
    const struct known_mistake *q = known_at(i);
    if (!q) return false;
    *name = q->name;
    *tap = q->tap;
    *models = known_models(q);
    *text = q->text;
    return true;
}

bool plumb_known_mistake_applies(const plumb_model *model, size_t i) {
    const struct known_mistake *q = known_at(i);
    return q && model->model && known_applies(q, model->model, tokenizer_bos(model->tokenizer));
}

/* Goals: sets of claims that are stored once, and what of them has values. */
#include "grammar/schema_walk.h"

#include <stdlib.h>

/* ---- goals ------------------------------------------------------------------------------------------------------- */

uint32_t claim_simplify(struct schema *s, uint32_t claimed) {
    if ((claimed >> 1 & 3) != CLAIM_SCHEMA) return claimed;
    uint32_t node = claimed >> 3;
    bool negated = claimed & 1;
    for (int i = 0; i < MAX_NESTING && s->status == PLUMB_OK; i++) {
        if (schema_is_true(s, node)) return negated ? CLAIM_NOTHING : 0;
        if (s->nodes[node].kind == JSON_FALSE) return negated ? 0 : CLAIM_NOTHING;
        uint32_t ref = 0;
        bool others = false;
        for (uint32_t m = s->nodes[node].first; m != 0 && schema_work(s, 1); m = s->nodes[m].next) {
            enum keyword keyword = s->nodes[m].keyword;
            if (keyword == KEY_REF) ref = m;
            else others |= keyword != KEY_NONE && keyword_row(keyword)->on != 0;
        }
        if (ref == 0 || (others && s->draft > 2018)) break;
        node = schema_target(s, ref);
        schema_enter(s, node);
    }
    return claim(node, CLAIM_SCHEMA, negated);
}

static uint64_t hash_goal(const void *user, size_t i) {
    const struct schema *s = user;
    return hash_bytes(s->goals[i]->claims, s->goals[i]->n_claims * sizeof(uint32_t));
}

struct goal *goal_of(struct schema *s, const uint32_t *claims, size_t n, uint32_t node) {
    uint32_t *own = schema_alloc(s, (n + 1) * sizeof *own);
    size_t n_own = 0;
    if (!own || !schema_work(s, n)) return NULL;
    for (size_t i = 0; i < n; i++) {
        uint32_t c = claim_simplify(s, claims[i]);
        if (c != 0) own[n_own++] = c;
    }
    qsort(own, n_own, sizeof *own, compare_u32);
    size_t n_kept = 0;
    bool nothing = false;
    for (size_t i = 0; i < n_own; i++) {
        nothing |= own[i] == CLAIM_NOTHING || (n_kept > 0 && own[n_kept - 1] == (own[i] ^ 1) && own[i] & 1);
        if (n_kept == 0 || own[n_kept - 1] != own[i]) own[n_kept++] = own[i];
    }
    if (nothing) {
        own[0] = CLAIM_NOTHING;
        n_kept = 1;
    }
    if (s->status != PLUMB_OK) return NULL;
    if (!hash_index_reserve(&s->goal_index, s->n_goals, hash_goal, s)) return schema_no_memory(s);
    size_t slot = hash_index_first(&s->goal_index, hash_bytes(own, n_kept * sizeof *own));
    for (; s->goal_index.slots[slot] != 0; slot = hash_index_next(&s->goal_index, slot)) {
        struct goal *known = s->goals[s->goal_index.slots[slot] - 1];
        bool is_same = known->n_claims == n_kept && memcmp(known->claims, own, n_kept * sizeof *own) == 0;
        if (is_same) return known;
    }
    if (s->n_goals >= MAX_GOALS) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, node, "more than %d combinations of schemas", MAX_GOALS);
        return NULL;
    }
    struct goal *g = ARRAY_GROW(s->goals, s->n_goals, &s->goals_cap) ? schema_alloc(s, sizeof *g) : NULL;
    if (!g) return schema_no_memory(s);
    g->index = (uint32_t)s->n_goals;
    g->n_claims = (uint32_t)n_kept;
    g->claims = own;
    g->node = node;
    s->goals[s->n_goals++] = g;
    s->goal_index.slots[slot] = (uint32_t)s->n_goals;
    return g;
}

struct goal *goal_and(struct schema *s, const struct goal *a, uint32_t added) {
    uint32_t *claims = schema_alloc(s, (a->n_claims + 1) * sizeof *claims);
    if (!claims) return NULL;
    memcpy(claims, a->claims, a->n_claims * sizeof *claims);
    claims[a->n_claims] = added;
    return goal_of(s, claims, a->n_claims + 1, added >> 3);
}

bool goal_is_any(const struct goal *g) { return g->n_claims == 0; }

/* ---- all goals --------------------------------------------------------------------------------------------------- */

static void goal_expand(struct schema *s, struct goal *g) {
    if (g->is_expanded || g->is_expanding || goal_is_any(g) || s->status != PLUMB_OK) return;
    g->is_expanding = true;
    s->place = g->node;
    for (enum domain d = CONSTANTS; d <= NUMBERS; d++) {
        struct set set = s->any[d];
        for (uint32_t i = 0; i < g->n_claims; i++) set = set_and(s, d, set, set_of_claim(s, d, g->claims[i]));
        g->sets[d] = set_is_empty(s, d, set, g->node) ? s->none[d] : set;
    }
    struct shape **end = &g->shapes;
    for (enum domain d = ARRAYS; d <= OBJECTS; d++) {
        struct walk w = {.s = s, .goal = g, .domain = d, .end = end};
        walk_goal(&w);
        end = w.end;
    }
    g->is_expanding = false;
    g->is_expanded = true;
}

bool goal_expand_inside(struct schema *s, struct goal *g) {
    if (goal_is_any(g) || g->is_expanding || s->nesting >= MAX_NESTING / 2) return false;
    s->nesting += 2;
    goal_expand(s, g);
    s->nesting -= 2;
    return true;
}

struct goal *shape_needs(const struct shape *shape, bool (*lacks)(void *user, struct goal *g), void *user) {
    for (size_t i = 0; i < shape->n_known; i++) {
        if (shape->known[i].required && lacks(user, shape->known[i].goal)) return shape->known[i].goal;
    }
    for (size_t i = 0; i < shape->n_prefix && i < shape->min; i++) {
        if (lacks(user, shape->prefix[i])) return shape->prefix[i];
    }
    bool needs_rest = !shape->is_object && shape->min > shape->n_prefix;
    return needs_rest && lacks(user, shape->rest) ? shape->rest : NULL;
}

bool goal_is_productive(const struct goal *g) { return goal_is_any(g) || g->is_productive; }

static bool lacks_values(void *user, struct goal *g) {
    (void)user;
    return !goal_is_productive(g);
}

bool states_mark_alive(struct state *states, size_t n) {
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = n; i-- > 0;) {
            bool alive = states[i].accepts;
            for (size_t k = 0; k < states[i].n_steps && !alive; k++) {
                const struct step *step = &states[i].steps[k];
                alive = states[step->to].is_alive && (!step->goal || goal_is_productive(step->goal));
            }
            changed |= alive && !states[i].is_alive;
            states[i].is_alive |= alive;
        }
    }
    return states[0].is_alive;
}

bool shape_is_productive(const struct shape *shape) {
    if (shape->n_states > 0) return states_mark_alive(shape->states, shape->n_states);
    if (shape_needs(shape, lacks_values, NULL)) return false;
    if (!shape->is_object) return true;
    size_t n = 0, n_required = 0;
    for (size_t i = 0; i < shape->n_known; i++) {
        n += goal_is_productive(shape->known[i].goal);
        n_required += shape->known[i].required;
    }
    bool open = false;
    for (size_t i = 0; i < shape->n_cells; i++) open |= goal_is_productive(shape->cells[i].goal);
    if (shape->needs_other) return open && n_required < shape->max;
    return n_required <= shape->max && (open || n >= shape->min);
}

static void queue(struct schema *s, struct goal **list, size_t *n, struct goal *g) {
    if (g->is_queued || s->status != PLUMB_OK) return;
    g->is_queued = true;
    list[(*n)++] = g;
}

/* A goal without values that g needs: a required member or element of its only shape; NULL if there is none. */
static struct goal *needed_without_values(const struct goal *g) {
    const struct shape *shape = g->shapes;
    if (!shape || shape->next) return NULL;
    struct goal *needed = shape_needs(shape, lacks_values, NULL);
    return shape->n_states > 0 && needed == shape->rest ? NULL : needed;
}

void goals_expand(struct schema *s, struct goal *root) {
    if (!root || goal_is_any(root)) return;
    struct goal **list = schema_alloc(s, MAX_GOALS * sizeof *list);
    size_t n = 0;
    if (!list) return;
    queue(s, list, &n, root);
    for (size_t i = 0; i < n && s->status == PLUMB_OK; i++) {
        goal_expand(s, list[i]);
        for (struct shape *shape = list[i]->shapes; shape && s->status == PLUMB_OK; shape = shape->next) {
            for (size_t k = 0; k < shape->n_known; k++) queue(s, list, &n, shape->known[k].goal);
            for (size_t k = 0; k < shape->n_cells; k++) queue(s, list, &n, shape->cells[k].goal);
            for (size_t k = 0; k < shape->n_prefix; k++) queue(s, list, &n, shape->prefix[k]);
            if (!shape->is_object) queue(s, list, &n, shape->rest);
            for (size_t k = 0; k < shape->n_states; k++) {
                const struct state *state = &shape->states[k];
                for (size_t i_step = 0; i_step < state->n_steps; i_step++) {
                    queue(s, list, &n, state->steps[i_step].goal);
                }
            }
        }
    }
    /* Values are finite, so a goal has one if one of its shapes needs only goals that have one already. */
    for (bool changed = true; changed && s->status == PLUMB_OK;) {
        changed = false;
        for (size_t i = n; i-- > 0;) {
            struct goal *g = list[i];
            if (g->is_productive) continue;
            bool is = g->sets[CONSTANTS].constants != 0 || g->sets[STRINGS].language != s->none[STRINGS].language
                      || g->sets[NUMBERS].language != s->none[NUMBERS].language;
            for (const struct shape *shape = g->shapes; shape && !is; shape = shape->next) {
                is = schema_work(s, 1 + shape->n_known + shape->n_prefix) && shape_is_productive(shape);
            }
            g->is_productive = is && !goal_is_any(g);
            changed |= g->is_productive;
        }
    }
    if (s->status == PLUMB_OK && !root->is_productive) {
        const struct goal *why = root, *next = root;
        for (size_t i = 0; i < n && next; i++) {   /* a recursion without end has no last goal */
            why = next;
            next = needed_without_values(why);
        }
        schema_fail(s, PLUMB_ERROR_ARGUMENT, why->node, "no value is valid");
    }
}

/* Drafts become shapes: what each member and each element must fulfil, and what must be contained or unique. */
#include "grammar/schema_walk.h"

#include <stdlib.h>

/* ---- from a draft to a shape ------------------------------------------------------------------------------------- */

static void add_shape(struct walk *w, struct shape *shape) {
    if (++w->n_shapes > MAX_SHAPES) {
        schema_fail(w->s, PLUMB_ERROR_UNSUPPORTED, w->goal->node, "the alternatives have more than %d combinations",
                    MAX_SHAPES);
        return;
    }
    *w->end = shape;
    w->end = &shape->next;
}

/* Whether the entry e counts as evaluated for `others`, which is OTHERS or REST. */
static bool is_within(const struct entry *e, const struct entry *others) {
    if (!others->is_deep) return e->scope == others->scope;
    const struct scope *scope = e->scope;
    while (scope && scope != others->scope) scope = scope->outer;
    return scope != NULL && scope == others->scope;
}

/* Whether a deep entry is void because another one of its kind, within it, leaves nothing unevaluated. */
static bool is_void(const struct entry *deep, struct entry **all, size_t n) {
    for (size_t i = 0; i < n && deep->is_deep; i++) {
        if (all[i] != deep && all[i]->kind == deep->kind && is_within(all[i], deep)
            && !(all[i]->is_deep && all[i]->scope == deep->scope)) return true;
    }
    return false;
}

enum { MAX_PATTERNS = 20, MAX_CELLS = 64 };

struct name { struct slice name; bool required; const struct entry **members; size_t n, cap; };

static void add_member(struct schema *s, struct name *name, const struct entry *e) {
    if (name->n == name->cap) {
        const struct entry **larger = schema_alloc(s, (2 * name->cap + 2) * sizeof *larger);
        if (!larger) return;
        if (name->n > 0) memcpy(larger, name->members, name->n * sizeof *larger);
        name->members = larger;
        name->cap = 2 * name->cap + 2;
    }
    name->members[name->n++] = e;
}

struct objects {
    struct entry **entries, **patterns, **others;
    size_t n, n_patterns, n_others;
    bool has_properties;
    struct name *names;
    size_t n_names;
    uint32_t *slots;   /* a hash table of 1 + the index of a name */
    size_t n_slots;
    uint32_t *claims;  /* room for one of each entry */
};

static struct name *name_of(struct objects *o, struct slice text) {
    for (size_t i = (size_t)hash_bytes(text.data, text.n);; i++) {
        uint32_t *slot = &o->slots[i & (o->n_slots - 1)];
        if (*slot == 0) {
            o->names[o->n_names] = (struct name){.name = text};
            *slot = (uint32_t)++o->n_names;
        }
        if (slice_equal(o->names[*slot - 1].name, text)) return &o->names[*slot - 1];
    }
}

/* The goal of the member with a known name. */
static struct goal *goal_of_name(struct walk *w, struct objects *o, const struct name *name) {
    struct schema *s = w->s;
    size_t n = 0;
    uint32_t matching = 0;
    for (size_t i = 0; i < name->n; i++) o->claims[n++] = name->members[i]->claim;
    for (size_t i = 0; i < o->n_patterns; i++) {
        if (!language_has_slice(s, o->patterns[i]->names, name->name)) continue;
        matching |= (uint32_t)1 << i;
        o->claims[n++] = o->patterns[i]->claim;
    }
    for (size_t i = 0; i < o->n_others; i++) {
        bool named = false;
        for (size_t k = 0; k < name->n; k++) named |= is_within(name->members[k], o->others[i]);
        for (size_t k = 0; k < o->n_patterns; k++) {
            named |= (matching >> k & 1) != 0 && o->patterns[k]->scope && is_within(o->patterns[k], o->others[i]);
        }
        if (!named) o->claims[n++] = o->others[i]->claim;
    }
    schema_work(s, n + o->n_others + o->n_patterns);
    return goal_of(s, o->claims, n, name->n > 0 ? name->members[0]->node : w->goal->node);
}

struct part { const struct language *names; uint32_t matching; };   /* names: NULL for all */

/* Splits all names by the patterns.  Returns the number of parts, which are not empty. */
static size_t split_names(struct walk *w, const struct objects *o, struct part *parts) {
    struct schema *s = w->s;
    size_t n = 1;
    parts[0] = (struct part){language_any(s->languages), 0};
    if (!parts[0].names) schema_language_failed(s, w->goal->node);
    for (size_t i = 0; i < o->n_patterns && s->status == PLUMB_OK; i++) {
        for (size_t k = n; k-- > 0 && s->status == PLUMB_OK;) {
            struct part inside = {language_intersect(s->languages, parts[k].names, o->patterns[i]->names),
                                  parts[k].matching};
            struct part outside = {language_minus(s->languages, parts[k].names, o->patterns[i]->names),
                                   parts[k].matching};
            inside.matching |= (uint32_t)1 << i;
            const bool none_inside = schema_language_is_empty(s, inside.names, o->patterns[i]->node);
            const bool none_outside = schema_language_is_empty(s, outside.names, o->patterns[i]->node);
            if (!none_inside && !none_outside && n == MAX_CELLS) {
                schema_fail(s, PLUMB_ERROR_UNSUPPORTED, o->patterns[i]->node, "the patterns of properties overlap in "
                            "more than %d ways", MAX_CELLS);
            } else if (!none_inside && !none_outside) {
                parts[n++] = outside;
            }
            parts[k] = none_inside ? outside : inside;
        }
    }
    return n;
}

/* A part of all names without those that are known.  Most parts by patterns have none of these. */
static const struct language *without_known(struct walk *w, const struct objects *o, const struct language *part) {
    struct schema *s = w->s;
    struct slice *texts = schema_alloc(s, (o->n_names + 1) * sizeof *texts);
    size_t n = 0;
    for (size_t i = 0; i < o->n_names && texts; i++) {
        struct slice name = o->names[i].name;
        if (o->n_patterns > 0 && !language_has_slice(s, part, name)) continue;
        texts[n++] = name;
    }
    if (n == 0 || s->status != PLUMB_OK) return part;
    return language_minus(s->languages, part, language_strings(s->languages, texts, n));
}

/* The members whose names are not known. */
static void find_cells(struct walk *w, struct objects *o, struct shape *shape) {
    struct schema *s = w->s;
    if (s->options->closed && (o->has_properties || o->n_names > 0) && o->n_others == 0 && o->n_patterns == 0) return;
    struct part parts[MAX_CELLS];
    size_t n_parts = split_names(w, o, parts);
    shape->cells = schema_alloc(s, n_parts * sizeof *shape->cells);
    for (size_t p = 0; p < n_parts && s->status == PLUMB_OK; p++) {
        size_t n = 0;
        for (size_t i = 0; i < o->n_patterns; i++) {
            if (parts[p].matching >> i & 1) o->claims[n++] = o->patterns[i]->claim;
        }
        for (size_t k = 0; k < o->n_others; k++) {
            bool named = false;
            for (size_t i = 0; i < o->n_patterns; i++) {
                named |= (parts[p].matching >> i & 1) != 0 && o->patterns[i]->scope
                         && is_within(o->patterns[i], o->others[k]);
            }
            if (!named) o->claims[n++] = o->others[k]->claim;
        }
        struct goal *goal = goal_of(s, o->claims, n, w->goal->node);
        if (!goal || goal_is_nothing(goal)) continue;
        const bool any = o->n_names == 0 && o->n_patterns == 0;
        const struct language *names = any ? parts[p].names : without_known(w, o, parts[p].names);
        if (!any && schema_language_is_empty(s, names, w->goal->node)) continue;
        shape->cells[shape->n_cells++] = (struct cell){any ? NULL : names, goal};
    }
}

static struct entry **entries_of(struct walk *w, const struct draft *d) {
    struct entry **entries = schema_alloc(w->s, (d->n + 1) * sizeof *entries);
    size_t i = d->n;
    for (const struct entry *e = d->entries; e && entries; e = e->previous) entries[--i] = (struct entry *)(uintptr_t)e;
    return entries;
}

/* Whether a member without a known name can be what the draft wants to exist.  Refuses what depends on the member. */
static bool other_can_be(struct walk *w, const struct shape *shape, const struct entry *wanted) {
    struct schema *s = w->s;
    bool some = false, all = true;
    for (size_t i = 0; i < shape->n_cells && s->status == PLUMB_OK; i++) {
        const struct language *names = shape->cells[i].names ? shape->cells[i].names : language_any(s->languages);
        const struct language *inside = language_intersect(s->languages, names, wanted->names);
        const struct language *outside = language_minus(s->languages, names, wanted->names);
        some |= !schema_language_is_empty(s, inside, wanted->node);
        all &= schema_language_is_empty(s, outside, wanted->node);
    }
    struct goal *value = goal_of(s, &wanted->claim, 1, wanted->node);
    if (some && value && (!all || !goal_is_any(value))) {
        refuse_opposite(w, wanted->node);
    }
    return some;
}

/* One member fulfils the last of d->exist: one of those with known names, or another. */
static void finish_existing(struct walk *w, const struct draft *d) {
    struct schema *s = w->s;
    const struct entry *wanted = d->exist;
    struct draft rest = *d;
    rest.exist = wanted->previous;
    for (const struct entry *e = d->entries; e && s->status == PLUMB_OK; e = e->previous) {
        if ((e->kind != MEMBER && e->kind != REQUIRED) || !language_has_slice(s, wanted->names, e->name)) continue;
        bool is_first = true;
        for (const struct entry *k = d->entries; k != e && is_first && schema_work(s, 1); k = k->previous) {
            is_first = !((k->kind == MEMBER || k->kind == REQUIRED) && slice_equal(k->name, e->name));
        }
        if (!is_first || draft_contradicts(w, d, true, e->name)) continue;
        struct draft with = rest;
        draft_add(w, &with, (struct entry){.kind = MEMBER, .name = e->name, .claim = wanted->claim,
                                           .node = wanted->node});
        draft_add(w, &with, (struct entry){.kind = REQUIRED, .name = e->name, .node = wanted->node});
        finish_object(w, &with);
    }
    struct entry *own = schema_alloc(s, sizeof *own);
    if (!own) return;
    *own = *wanted;
    own->previous = d->other;
    rest.other = own;
    finish_object(w, &rest);
}

void finish_object(struct walk *w, const struct draft *d) {
    struct schema *s = w->s;
    if (d->exist) {
        finish_existing(w, d);
        return;
    }
    struct objects o = {.n = d->n, .n_slots = 16, .has_properties = d->has_properties};
    while (o.n_slots < 2 * d->n) o.n_slots *= 2;
    o.entries = entries_of(w, d);
    o.patterns = schema_alloc(s, (d->n + 1) * sizeof *o.patterns);
    o.others = schema_alloc(s, (d->n + 1) * sizeof *o.others);
    o.names = schema_alloc(s, (d->n + 1) * sizeof *o.names);
    o.slots = schema_alloc(s, o.n_slots * sizeof *o.slots);
    o.claims = schema_alloc(s, (d->n + 1) * sizeof *o.claims);
    struct shape *shape = schema_alloc(s, sizeof *shape);
    if (!shape || !o.claims || !o.slots || !schema_work(s, d->n)) return;
    for (size_t i = 0; i < o.n; i++) {
        struct entry *e = o.entries[i];
        if (e->kind == MEMBER) add_member(s, name_of(&o, e->name), e);
        else if (e->kind == PATTERN) o.patterns[o.n_patterns++] = e;
        else if (e->kind == OTHERS && !is_void(e, o.entries, o.n)) o.others[o.n_others++] = e;
    }
    for (size_t i = 0; i < o.n; i++) {
        if (o.entries[i]->kind == REQUIRED) name_of(&o, o.entries[i]->name)->required = true;
    }
    if (o.n_patterns > MAX_PATTERNS) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, o.patterns[0]->node, "more than %d patterns of properties",
                    MAX_PATTERNS);
    }
    shape->is_object = true;
    shape->min = d->min;
    shape->max = d->max;
    shape->known = schema_alloc(s, (o.n_names + 1) * sizeof *shape->known);
    for (size_t i = 0; i < o.n_names && s->status == PLUMB_OK; i++) {
        struct goal *goal = goal_of_name(w, &o, &o.names[i]);
        if (!goal) return;
        if (goal_is_nothing(goal) && o.names[i].required) return;
        if (goal_is_nothing(goal)) continue;
        shape->known[shape->n_known++] = (struct known_mistake){o.names[i].name, o.names[i].required, goal};
    }
    find_cells(w, &o, shape);
    for (const struct entry *e = d->other; e; e = e->previous) {
        if (!other_can_be(w, shape, e)) return;
        shape->needs_other = true;
    }
    if (s->status == PLUMB_OK) add_shape(w, shape);
}

enum { MAX_STATES = 2048, MAX_UNIQUE = 63, MAX_SUBSETS = 8192 };   /* subsets: of all arrays */

static struct goal *element_goal(const struct shape *shape, size_t i) {
    return i < shape->n_prefix ? shape->prefix[i] : shape->rest;
}

/* An automaton that counts the elements that each of n schemas must fit.  A state is the number of elements, up to the
 * last one that matters, and the counts.  If the count of a schema has no upper bound, an element that fits need not be
 * counted.  uncovered: what an element must fit unless it is one of those that cover it; NULL if nothing. */
static void make_counting(struct walk *w, struct shape *shape, const struct contained *c, size_t n,
                          const struct entry *uncovered) {
    struct schema *s = w->s;
    uint64_t last = shape->n_prefix > shape->min ? shape->n_prefix : shape->min, size = 1;
    if (shape->max != UINT32_MAX && shape->max > last) last = shape->max;
    for (size_t i = 0; i < n; i++) {
        if (c[i].from > last) last = c[i].from;
        if (uncovered && uncovered->index > last) last = uncovered->index;
        size *= (uint64_t)(c[i].max != UINT32_MAX ? c[i].max : c[i].min) + 1;
        if (size > MAX_STATES) size = MAX_STATES;
    }
    if (last == 0) last = 1;
    if (n > 3 || (last + 1) * size > MAX_STATES) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, c[0].node, "what is contained has too many combinations with the "
                    "length of the array");
        return;
    }
    shape->n_states = (size_t)((last + 1) * size);
    shape->states = schema_alloc(s, shape->n_states * sizeof *shape->states);
    for (size_t i = 0; i < shape->n_states && shape->states; i++) {
        struct state *state = &shape->states[i];
        size_t at = i / (size_t)size, rest = i % (size_t)size;
        uint32_t counts[3];
        state->is_first = i == 0;
        state->accepts = at >= shape->min;
        for (size_t k = 0; k < n; k++) {
            size_t base = (size_t)(c[k].max != UINT32_MAX ? c[k].max : c[k].min) + 1;
            counts[k] = (uint32_t)(rest % base);
            rest /= base;
            state->accepts &= counts[k] >= c[k].min;
        }
        if (at >= shape->max) continue;
        state->steps = schema_alloc(s, ((size_t)1 << n) * sizeof *state->steps);
        for (size_t fits = 0; fits < (size_t)1 << n && state->steps && schema_work(s, 1); fits++) {
            struct goal *goal = element_goal(shape, at);
            size_t to = at < last ? at + 1 : at, weight = 1, code = 0;
            bool possible = true, covered = !uncovered || at < uncovered->index;
            for (size_t k = 0; k < n; k++) {
                bool bounded = c[k].max != UINT32_MAX, yes = fits >> k & 1;
                uint32_t most = bounded ? c[k].max : c[k].min, count = counts[k] + yes;
                covered |= yes && c[k].covers;
                possible &= !(yes && at < c[k].from) && !(count > most && (bounded || !c[k].covers));
                if (count > most) count = most;
                if (goal && (yes || (bounded && at >= c[k].from))) goal = goal_and(s, goal, c[k].claim ^ !yes);
                code += weight * count;
                weight *= (size_t)most + 1;
            }
            if (goal && !covered) goal = goal_and(s, goal, uncovered->claim);
            if (!possible || !goal) continue;
            state->steps[state->n_steps++] = (struct step){.goal = goal, .to = (uint32_t)(to * (size_t)size + code)};
        }
    }
}

/* The values that fit the elements of an array whose elements differ. */
struct values { struct schema *s; uint32_t parent, n, nodes[MAX_UNIQUE]; enum value_kind kind; bool too_many; };

static bool add_value(void *user, const char *text, size_t n) {
    struct values *v = user;
    v->too_many = v->n == MAX_UNIQUE;
    if (v->too_many) return false;
    uint32_t node = schema_add_value(v->s, v->parent, v->kind, text, n);
    v->nodes[v->n++] = node;
    return node != 0;
}

/* Lists the values of a goal.  Returns false if there are more than MAX_UNIQUE, or arrays or objects among them. */
static bool list_values(struct schema *s, struct goal *goal, struct values *values) {
    static const struct { enum value_kind kind; const char *text; } constants[] =
        {{JSON_NULL, "null"}, {JSON_FALSE, "false"}, {JSON_TRUE, "true"}};
    if (!goal_expand_inside(s, goal) || goal->shapes) return false;
    for (int i = 0; i < 3; i++) {
        values->kind = constants[i].kind;
        if (goal->sets[CONSTANTS].constants >> i & 1) add_value(values, constants[i].text, 0);
    }
    for (enum domain domain = STRINGS; domain <= NUMBERS && s->status == PLUMB_OK; domain++) {
        uint32_t n = 0;
        const struct language *language = goal->sets[domain].language;
        if (language == s->none[domain].language) continue;
        if (language == s->any[domain].language) return false;
        values->kind = domain == STRINGS ? JSON_STRING : JSON_NUMBER;
        plumb_status status = language_enumerate(s->languages, language, MAX_UNIQUE + 1, add_value, values, &n);
        if (status == PLUMB_ERROR_MEMORY) schema_language_failed(s, values->parent);
        if (s->status == PLUMB_OK) s->err->status = PLUMB_OK;   /* a language that cannot be listed is too large */
        if (status != PLUMB_OK || values->too_many) return false;
    }
    return true;
}

/* How many sets of at most max of n values there are; more than MAX_STATES if there are more. */
static size_t count_subsets(size_t n, size_t max) {
    size_t of_size = 1, all = 1;
    for (size_t i = 1; i <= n && i <= max && all <= MAX_STATES; i++) {
        of_size = of_size * (n - i + 1) / i;
        all += of_size;
    }
    return all;
}

/* The number of a set of values, which is added if it is new. */
static uint32_t state_of_subset(struct schema *s, struct key_set *known, uint64_t *subsets, uint64_t subset) {
    const uint32_t number = key_set_number(known, subset);
    if (number == UINT32_MAX) schema_no_memory(s);
    else subsets[number] = subset;
    return number;
}

/* An automaton whose states are the sets of values that were there.  Refused unless these are few. */
static void make_unique(struct walk *w, struct shape *shape, uint32_t node, bool has_contained) {
    struct schema *s = w->s;
    struct values values = {.s = s, .parent = node};
    bool few = shape->n_prefix == 0 && !has_contained && list_values(s, shape->rest, &values);
    size_t n_states = few ? count_subsets(values.n, shape->max) : 0;
    if (!few || n_states > MAX_STATES || s->n_subsets + n_states > MAX_SUBSETS || s->status != PLUMB_OK) {
        schema_refuse(s, node, "uniqueItems is enforced only if the elements are null, booleans, strings and numbers "
                      "of which at most %d sets are possible, such as all sets of 11 values, or the pairs of 63; and "
                      "%d in a whole schema", MAX_STATES, MAX_SUBSETS);
        return;
    }
    s->n_subsets += n_states;
    struct key_set known = {0};
    uint64_t *subsets = schema_alloc(s, (n_states + 1) * sizeof *subsets);
    struct state *states = schema_alloc(s, n_states * sizeof *states);
    key_set_clear(&known);
    if (subsets && states) state_of_subset(s, &known, subsets, 0);
    for (size_t i = 0; i < known.n && s->status == PLUMB_OK; i++) {
        uint32_t size = 0;
        for (size_t k = 0; k < values.n; k++) size += (uint32_t)(subsets[i] >> k & 1);
        states[i].is_first = i == 0;
        states[i].accepts = size >= shape->min && size <= shape->max;
        if (size >= shape->max) continue;
        states[i].steps = schema_alloc(s, (values.n + 1) * sizeof *states[i].steps);
        for (uint32_t k = 0; k < values.n && states[i].steps && schema_work(s, 1); k++) {
            const uint32_t value = claim(values.nodes[k], CLAIM_VALUE, false);
            if (subsets[i] >> k & 1) continue;
            uint32_t to = state_of_subset(s, &known, subsets, subsets[i] | (uint64_t)1 << k);
            states[i].steps[states[i].n_steps++] = (struct step){.goal = goal_of(s, &value, 1, node), .to = to};
        }
    }
    free(known.slots);
    shape->states = states;
    shape->n_states = n_states;
}

void finish_array(struct walk *w, const struct draft *d) {
    struct schema *s = w->s;
    struct entry **entries = entries_of(w, d);
    uint32_t *claims = schema_alloc(s, (d->n + 1) * sizeof *claims);
    struct shape *shape = schema_alloc(s, sizeof *shape);
    if (!entries || !claims || !shape) return;
    struct entry *uncovered = NULL;
    size_t n_prefix = 0;
    for (size_t i = 0; i < d->n && schema_work(s, 1); i++) {
        struct entry *e = entries[i];
        if (e->kind == REST && e->is_deep) {
            struct entry *copy = schema_alloc(s, sizeof *copy);
            if (!copy) return;
            *copy = *e;
            for (size_t k = 0; k < d->n && schema_work(s, 1); k++) {
                if (entries[k]->kind == ELEMENT && is_within(entries[k], e) && entries[k]->index >= copy->index) {
                    copy->index = entries[k]->index + 1;
                }
            }
            bool covered = false;
            for (size_t k = 0; k < d->n; k++) covered |= entries[k]->kind == CONTAINS && is_within(entries[k], e);
            if (is_void(e, entries, d->n)) {
                copy->claim = 0;
            } else if (covered && uncovered) {
                schema_refuse(s, e->node, "several unevaluatedItems beside contains are not enforced");
            } else if (covered) {   /* each element is one of those contained, or fits unevaluatedItems */
                uncovered = schema_alloc(s, sizeof *uncovered);
                if (!uncovered) return;
                *uncovered = *copy;
                copy->claim = 0;
            }
            copy->is_deep = copy->claim != 0;
            entries[i] = e = copy;
        }
        size_t needs = e->kind == ELEMENT ? (size_t)e->index + 1 : e->kind == REST ? e->index : 0;
        if (needs > n_prefix) n_prefix = needs;
    }
    shape->min = d->min;
    shape->max = d->max;
    if (n_prefix > shape->max) n_prefix = shape->max;
    shape->prefix = schema_alloc(s, (n_prefix + 1) * sizeof *shape->prefix);
    for (size_t i = 0; i <= n_prefix && schema_work(s, d->n); i++) {
        size_t n = 0;
        uint32_t node = w->goal->node;
        for (size_t k = 0; k < d->n; k++) {
            const struct entry *e = entries[k];
            bool is_own = e->kind == ELEMENT && i < n_prefix && e->index == i;
            if (is_own || (e->kind == REST && (e->index <= i || i == n_prefix))) {
                claims[n++] = e->claim;
                node = e->node;
            }
        }
        struct goal *goal = goal_of(s, claims, n, node);
        if (!goal) return;
        if (i < n_prefix) shape->prefix[i] = goal;
        else shape->rest = goal;
        if (goal_is_nothing(goal) && i < shape->max) {
            shape->max = (uint32_t)i;
            n_prefix = i < n_prefix ? i : n_prefix;
        }
    }
    shape->n_prefix = n_prefix;
    if (s->status != PLUMB_OK || shape->min > shape->max) return;
    if (!shape->rest) shape->rest = goal_of(s, (const uint32_t[]){CLAIM_NOTHING}, 1, w->goal->node);
    struct contained *contained = schema_alloc(s, (d->n + 1) * sizeof *contained);
    size_t n_contained = 0;
    for (size_t i = 0; i < d->n && s->status == PLUMB_OK; i++) {
        const struct entry *e = entries[i];
        if (e->kind != CONTAINS) continue;
        contained[n_contained++] = (struct contained){e->claim, e->index, e->min, e->max, e->node,
                                                      uncovered && is_within(e, uncovered)};
    }
    if (d->unique != 0 && shape->max > 1) make_unique(w, shape, d->unique, n_contained > 0);
    if (n_contained > 0 && shape->n_states == 0) make_counting(w, shape, contained, n_contained, uncovered);
    if (s->status == PLUMB_OK) add_shape(w, shape);
}

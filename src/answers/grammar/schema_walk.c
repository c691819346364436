/* Claims on arrays and objects, until drafts of shapes are left. */
#include "grammar/schema_walk.h"

/* What a walk has to do: fulfil a claim, or one of the steps that alternatives consist of. */
enum op {
    OP_CLAIM, OP_PRESENT, OP_ABSENT, OP_MEMBER, OP_PATTERN, OP_ELEMENT, OP_MIN, OP_MAX, OP_CONTAINS, OP_DEPENDENCY
};
struct item {
    const struct item *next;
    enum op op;
    uint32_t claim, count, max;
    struct slice name;
    const struct scope *scope;
};
static void run(struct walk *w, const struct item *agenda, const struct item *waiting, struct draft d);

static void push(struct walk *w, const struct item **list, struct item item) {
    struct item *own = schema_alloc(w->s, sizeof *own);
    if (!own) return;
    *own = item;
    own->next = *list;
    *list = own;
}

static void push_claim(struct walk *w, const struct item **list, uint32_t claimed, const struct scope *scope) {
    push(w, list, (struct item){.op = OP_CLAIM, .claim = claimed, .scope = scope});
}

static void push_name(struct walk *w, const struct item **list, enum op op, struct slice name) {
    push(w, list, (struct item){.op = op, .name = name});
}

static void push_member(struct walk *w, const struct item **list, struct slice name, uint32_t claimed) {
    push(w, list, (struct item){.op = OP_MEMBER, .name = name, .claim = claimed});
    push_name(w, list, OP_PRESENT, name);
}

static void push_element(struct walk *w, const struct item **list, uint32_t i, uint32_t claimed) {
    push(w, list, (struct item){.op = OP_ELEMENT, .count = i, .claim = claimed});
    push(w, list, (struct item){.op = OP_MIN, .count = i + 1});
}

void draft_add(struct walk *w, struct draft *d, struct entry entry) {
    struct entry *own = schema_alloc(w->s, sizeof *own);
    if (!own) return;
    *own = entry;
    own->previous = d->entries;
    d->entries = own;
    d->n++;
}

static void at_least(struct draft *d, uint32_t n) {
    if (n > d->min) d->min = n;
}
static void at_most(struct draft *d, uint32_t n) {
    if (n < d->max) d->max = n;
}

/* The children of a node as an array, since lists are pushed in reverse. */
static uint32_t *children_of(struct walk *w, uint32_t node, size_t *n) {
    struct schema *s = w->s;
    uint32_t *children = schema_alloc(s, (s->nodes[node].n + 1) * sizeof *children);
    *n = 0;
    if (!children || !schema_work(s, s->nodes[node].n)) return NULL;
    for (uint32_t i = s->nodes[node].first; i != 0; i = s->nodes[i].next) children[(*n)++] = i;
    return children;
}

/* ---- claims that leave no choice --------------------------------------------------------------------------------- */

static bool has_child_of_domain(const struct walk *w, uint32_t list) {
    for (uint32_t i = w->s->nodes[list].first; i != 0; i = w->s->nodes[i].next) {
        if (kind_bit(w->s->nodes[i].kind) == domain_bit(w->domain)) return true;
    }
    return false;
}

static const struct scope *inner(struct walk *w, const struct scope *outer, uint32_t node) {
    struct scope *own = schema_alloc(w->s, sizeof *own);
    if (!own) return outer;
    own->outer = outer;
    own->depth = outer ? outer->depth + 1 : 0;
    if (own->depth > MAX_NESTING) {
        schema_fail(w->s, PLUMB_ERROR_UNSUPPORTED, node, "the schema refers to itself for the same value, or more than "
                    "%d schemas are nested for one value", MAX_NESTING);
    }
    return own;
}

bool refuse_opposite(struct walk *w, uint32_t m) {
    schema_refuse(w->s, m, "the opposite of this keyword is not enforced (not, oneOf or if ask for it)");
    return true;
}

/* Adds what a value that equals node must have. */
static bool apply_value(struct walk *w, uint32_t node, struct draft *d) {
    struct schema *s = w->s;
    if (kind_bit(s->nodes[node].kind) != domain_bit(w->domain)) return false;
    const struct scope *scope = inner(w, NULL, node);
    uint32_t i = 0;
    for (uint32_t m = s->nodes[node].first; m != 0 && schema_work(s, 1); m = s->nodes[m].next, i++) {
        uint32_t equal = claim(m, CLAIM_VALUE, false);
        if (w->domain == ARRAYS) {
            draft_add(w, d, (struct entry){.kind = ELEMENT, .index = i, .claim = equal, .node = m});
        } else {
            draft_add(w, d, (struct entry){.kind = MEMBER, .name = s->nodes[m].key, .claim = equal, .scope = scope,
                                           .node = m});
            draft_add(w, d, (struct entry){.kind = REQUIRED, .name = s->nodes[m].key, .node = m});
        }
    }
    if (w->domain == ARRAYS) {
        at_least(d, i);
        at_most(d, i);
    } else {
        draft_add(w, d, (struct entry){.kind = OTHERS, .claim = CLAIM_NOTHING, .scope = scope, .node = node});
    }
    return true;
}

/* minItems or minProperties, or the largest number (is_most), or its opposite.  Returns false if no number fits. */
static bool apply_count(struct draft *d, bool is_most, uint32_t count, bool negated) {
    if (negated && !is_most && count == 0) return false;
    if (is_most == negated) at_least(d, negated && count < UINT32_MAX ? count + 1 : count);
    else at_most(d, negated ? count - 1 : count);
    return true;
}

/* Whether the opposite of a keyword leaves a choice: which of its parts does not hold, or too few and too many. */
static bool has_parts(const struct schema *s, uint32_t m) {
    switch (s->nodes[m].keyword) {
    case KEY_ITEMS: case KEY_PREFIX_ITEMS: return s->nodes[m].kind == JSON_ARRAY;
    case KEY_CONTAINS: {
        uint32_t max = node_keyword(s, s->nodes[m].parent, KEY_MAX_CONTAINS);
        return max != 0 && node_count(s, max) != UINT32_MAX;
    }
    case KEY_REQUIRED: case KEY_PROPERTIES: case KEY_PATTERN_PROPERTIES:
    case KEY_DEPENDENT_REQUIRED: case KEY_DEPENDENT_SCHEMAS: case KEY_DEPENDENCIES: return true;
    default: return false;
    }
}

static bool apply_array_keyword(struct walk *w, uint32_t m, bool negated, const struct scope *scope, struct draft *d) {
    struct schema *s = w->s;
    uint32_t schema = s->nodes[m].parent, count = s->nodes[m].kind == JSON_NUMBER ? node_count(s, m) : 0;
    uint32_t prefix = node_keyword(s, schema, KEY_PREFIX_ITEMS), from = prefix != 0 ? s->nodes[prefix].n : 0;
    switch (s->nodes[m].keyword) {
    case KEY_MIN_ITEMS:
    case KEY_MAX_ITEMS:
        return apply_count(d, s->nodes[m].keyword == KEY_MAX_ITEMS, count, negated);
    case KEY_PREFIX_ITEMS:
    case KEY_ITEMS:
        if (s->nodes[m].kind == JSON_ARRAY) {
            uint32_t i = 0;
            for (uint32_t e = s->nodes[m].first; e != 0 && schema_work(s, 1); e = s->nodes[e].next, i++) {
                draft_add(w, d, (struct entry){.kind = ELEMENT, .index = i, .claim = claim(e, CLAIM_SCHEMA, false),
                                               .scope = scope, .node = e});
            }
            return true;
        }
        break;
    case KEY_ADDITIONAL_ITEMS: {
        uint32_t items = node_keyword(s, schema, KEY_ITEMS);
        if (items == 0 || s->nodes[items].kind != JSON_ARRAY) return !negated;
        from = s->nodes[items].n;
        break;
    }
    case KEY_UNEVALUATED_ITEMS:
        if (negated) return refuse_opposite(w, m);
        draft_add(w, d, (struct entry){.kind = REST, .is_deep = true, .claim = claim(m, CLAIM_SCHEMA, false),
                                       .scope = scope, .node = m});
        return true;
    case KEY_CONTAINS: {
        uint32_t min = node_keyword(s, schema, KEY_MIN_CONTAINS), max = node_keyword(s, schema, KEY_MAX_CONTAINS);
        uint32_t least = min != 0 ? node_count(s, min) : 1, most = max != 0 ? node_count(s, max) : UINT32_MAX;
        if (!negated) {
            if (least == 0 && most == UINT32_MAX && !w->s->has_unevaluated) return true;
            draft_add(w, d, (struct entry){.kind = CONTAINS, .claim = claim(m, CLAIM_SCHEMA, false), .min = least,
                                           .max = most, .scope = scope, .node = m});
            return least <= most;
        }
        if (least == 0) return false;
        if (least == 1) {
            draft_add(w, d, (struct entry){.kind = REST, .claim = claim(m, CLAIM_SCHEMA, true), .node = m});
        } else {
            draft_add(w, d, (struct entry){.kind = CONTAINS, .claim = claim(m, CLAIM_SCHEMA, false), .max = least - 1,
                                           .node = m});
        }
        return true;
    }
    case KEY_UNIQUE_ITEMS:
        if (s->nodes[m].kind == JSON_FALSE) return !negated;
        if (negated) return refuse_opposite(w, m);
        d->unique = m;
        return true;
    default: return true;
    }
    /* items or additionalItems: all elements from `from` on, or at least one that is not so */
    if (negated) {
        draft_add(w, d, (struct entry){.kind = CONTAINS, .index = from, .min = 1, .max = UINT32_MAX,
                                       .claim = claim(m, CLAIM_SCHEMA, true), .node = m});
    } else {
        draft_add(w, d, (struct entry){.kind = REST, .index = from, .claim = claim(m, CLAIM_SCHEMA, false),
                                       .scope = scope, .node = m});
    }
    return true;
}

/* Some member with one of these names must not fit the schema node. */
static void add_exists(struct walk *w, struct draft *d, const struct language *names, uint32_t claimed, uint32_t node) {
    struct entry *own = schema_alloc(w->s, sizeof *own);
    if (!names) schema_language_failed(w->s, node);
    if (!own) return;
    *own = (struct entry){.previous = d->exist, .kind = EXISTS, .names = names, .claim = claimed, .node = node};
    d->exist = own;
}

/* The names that additionalProperties is about. */
static const struct language *additional_names(struct walk *w, struct draft *d, uint32_t schema) {
    struct schema *s = w->s;
    uint32_t known = node_keyword(s, schema, KEY_PROPERTIES);
    uint32_t patterns = node_keyword(s, schema, KEY_PATTERN_PROPERTIES);
    struct slice *texts = schema_alloc(s, (s->nodes[known].n + 1) * sizeof *texts);
    size_t n = 0;
    uint32_t i = known != 0 && texts ? s->nodes[known].first : 0;
    for (; i != 0 && schema_work(s, 10); i = s->nodes[i].next) {
        texts[n++] = s->nodes[i].key;
        /* A known name, so that no other member has it. */
        draft_add(w, d, (struct entry){.kind = MEMBER, .name = s->nodes[i].key, .node = i});
    }
    const struct language *names = language_complement(s->languages, language_strings(s->languages, texts, n));
    for (i = patterns != 0 ? s->nodes[patterns].first : 0; i != 0 && schema_work(s, 10); i = s->nodes[i].next) {
        names = language_minus(s->languages, names, names_of_pattern(s, i, s->nodes[i].key));
    }
    return names;
}

static bool apply_object_keyword(struct walk *w, uint32_t m, bool negated, const struct scope *scope, struct draft *d,
                                 const struct item **waiting) {
    struct schema *s = w->s;
    uint32_t count = s->nodes[m].kind == JSON_NUMBER ? node_count(s, m) : 0;
    uint32_t positive = claim(m, CLAIM_SCHEMA, false);
    enum keyword keyword = s->nodes[m].keyword;
    switch (keyword) {
    case KEY_MIN_PROPERTIES:
    case KEY_MAX_PROPERTIES:
        return apply_count(d, keyword == KEY_MAX_PROPERTIES, count, negated);
    case KEY_REQUIRED:
    case KEY_PROPERTIES:
    case KEY_PATTERN_PROPERTIES:
        d->has_properties |= keyword == KEY_PROPERTIES;
        for (uint32_t i = s->nodes[m].first; i != 0 && schema_work(s, 1); i = s->nodes[i].next) {
            struct entry entry = {.kind = keyword == KEY_PROPERTIES ? MEMBER : PATTERN, .name = s->nodes[i].key,
                                  .claim = claim(i, CLAIM_SCHEMA, false), .scope = scope, .node = i};
            if (keyword == KEY_PATTERN_PROPERTIES) entry.names = names_of_pattern(s, i, entry.name);
            if (keyword == KEY_REQUIRED) entry = (struct entry){.kind = REQUIRED, .name = s->nodes[i].text, .node = i};
            draft_add(w, d, entry);
        }
        return true;
    case KEY_DEPENDENT_REQUIRED:
    case KEY_DEPENDENT_SCHEMAS:
    case KEY_DEPENDENCIES:
        for (uint32_t i = s->nodes[m].first; i != 0 && schema_work(s, 1); i = s->nodes[i].next) {
            push(w, waiting, (struct item){.op = OP_DEPENDENCY, .claim = claim(i, CLAIM_KEYWORD, false),
                                           .scope = scope});
        }
        return true;
    case KEY_PROPERTY_NAMES: {
        if (schema_is_true(s, m)) return !negated;
        const struct language *names = language_complement(s->languages, names_of(s, m));
        if (s->status == PLUMB_OK && !names) schema_language_failed(s, m);
        if (negated) add_exists(w, d, names, 0, m);
        else draft_add(w, d, (struct entry){.kind = PATTERN, .names = names, .claim = CLAIM_NOTHING, .node = m});
        return true;
    }
    case KEY_ADDITIONAL_PROPERTIES:
    case KEY_UNEVALUATED_PROPERTIES:
        if (negated && schema_is_true(s, m)) return false;
        if (negated && keyword == KEY_UNEVALUATED_PROPERTIES) return refuse_opposite(w, m);
        if (negated) {
            add_exists(w, d, additional_names(w, d, s->nodes[m].parent), positive ^ 1, m);
            return true;
        }
        draft_add(w, d, (struct entry){.kind = OTHERS, .is_deep = keyword == KEY_UNEVALUATED_PROPERTIES,
                                       .claim = positive, .scope = scope, .node = m});
        return true;
    default: return true;
    }
}

/* Returns false if the draft cannot be fulfilled any more. */
static bool apply_keyword(struct walk *w, const struct item *item, const struct item **agenda,
                          const struct item **waiting, struct draft *d) {
    struct schema *s = w->s;
    uint32_t m = item->claim >> 3;
    bool negated = item->claim & 1;
    enum keyword keyword = s->nodes[m].keyword;
    if ((keyword_row(keyword)->on & domain_bit(w->domain)) == 0) return !negated;
    const struct scope *scope = item->scope;
    switch (keyword) {
    case KEY_REF:
    case KEY_DYNAMIC_REF:
    case KEY_RECURSIVE_REF: {
        uint32_t target = schema_target(s, m);
        if (target != 0) push_claim(w, agenda, claim(target, CLAIM_SCHEMA, negated), scope);
        return target != 0;
    }
    case KEY_TYPE: {
        uint8_t constants;
        bool integers;
        return ((types_of(s, m, &constants, &integers) & domain_bit(w->domain)) != 0) != negated;
    }
    case KEY_CONST:
        push_claim(w, agenda, claim(m, CLAIM_VALUE, negated), NULL);
        return true;
    case KEY_NOT:
        push_claim(w, agenda, claim(m, CLAIM_SCHEMA, !negated), NULL);
        return true;
    case KEY_ENUM:
        if (!negated && !has_child_of_domain(w, m)) return false;
        if (!negated) break;
        for (uint32_t i = s->nodes[m].first; i != 0 && schema_work(s, 1); i = s->nodes[i].next) {
            push_claim(w, agenda, claim(i, CLAIM_VALUE, true), NULL);
        }
        return true;
    case KEY_ALL_OF:
    case KEY_ANY_OF:
        if (negated == (keyword == KEY_ALL_OF)) break;
        {
            size_t n;
            const uint32_t *children = children_of(w, m, &n);
            while (n > 0) push_claim(w, agenda, claim(children[--n], CLAIM_SCHEMA, negated), negated ? NULL : scope);
        }
        return true;
    case KEY_ONE_OF: break;
    case KEY_IF: {
        bool alone = node_keyword(s, s->nodes[m].parent, KEY_THEN) == 0
                     && node_keyword(s, s->nodes[m].parent, KEY_ELSE) == 0;
        if (alone && negated) return false;
        if (alone && !w->s->has_unevaluated) return true;
        break;
    }
    default:
        if (negated && has_parts(s, m)) break;
        return w->domain == ARRAYS ? apply_array_keyword(w, m, negated, scope, d)
                                   : apply_object_keyword(w, m, negated, scope, d, waiting);
    }
    push(w, waiting, *item);
    return true;
}

static bool apply_schema(struct walk *w, const struct item *item, const struct item **agenda,
                         const struct item **waiting) {
    struct schema *s = w->s;
    uint32_t node = item->claim >> 3;
    bool negated = item->claim & 1;
    schema_enter(s, node);
    if (s->nodes[node].kind != JSON_OBJECT) return (s->nodes[node].kind == JSON_TRUE) != negated;
    const struct scope *scope = inner(w, item->scope, node);
    uint32_t type = node_keyword(s, node, KEY_TYPE), ref = s->draft < 2019 ? node_keyword(s, node, KEY_REF) : 0;
    if (type != 0 && ref == 0) {
        uint8_t constants;
        bool integers;
        bool fits = (types_of(s, type, &constants, &integers) & domain_bit(w->domain)) != 0;
        if (!fits) return negated;
    }
    if (negated) {
        push(w, waiting, (struct item){.op = OP_CLAIM, .claim = item->claim, .scope = scope});
        return true;
    }
    if (ref != 0) {
        push_claim(w, agenda, claim(ref, CLAIM_KEYWORD, false), scope);
        return true;
    }
    size_t n;
    const uint32_t *members = children_of(w, node, &n);
    while (n > 0) {
        uint32_t m = members[--n];
        enum keyword keyword = s->nodes[m].keyword;
        if (keyword != KEY_NONE && (keyword_row(keyword)->on & domain_bit(w->domain)) != 0) {
            push_claim(w, agenda, claim(m, CLAIM_KEYWORD, false), scope);
        }
    }
    return true;
}

/* Whether the draft says the opposite of an alternative that a member is there or absent. */
bool draft_contradicts(struct walk *w, const struct draft *d, bool is_present, struct slice name) {
    for (const struct entry *e = d->entries; e && schema_work(w->s, 1); e = e->previous) {
        bool opposite = is_present ? e->kind == MEMBER && e->claim == CLAIM_NOTHING : e->kind == REQUIRED;
        if (opposite && slice_equal(e->name, name)) return true;
    }
    return false;
}

static bool apply(struct walk *w, const struct item *item, const struct item **agenda, const struct item **waiting,
                  struct draft *d) {
    uint32_t node = item->claim >> 3;
    switch (item->op) {
    case OP_CLAIM:
        switch ((enum claim_kind)(item->claim >> 1 & 3)) {
        case CLAIM_SCHEMA: return apply_schema(w, item, agenda, waiting);
        case CLAIM_KEYWORD: return apply_keyword(w, item, agenda, waiting, d);
        case CLAIM_VALUE: break;
        }
        if ((item->claim & 1) == 0) return apply_value(w, node, d);
        if (kind_bit(w->s->nodes[node].kind) == domain_bit(w->domain)) push(w, waiting, *item);
        return true;
    case OP_PRESENT:
    case OP_ABSENT:
        if (draft_contradicts(w, d, item->op == OP_PRESENT, item->name)) return false;
        draft_add(w, d, (struct entry){.kind = item->op == OP_PRESENT ? REQUIRED : MEMBER, .name = item->name,
                                       .claim = CLAIM_NOTHING});
        return true;
    case OP_MEMBER:
        draft_add(w, d, (struct entry){.kind = MEMBER, .name = item->name, .claim = item->claim, .node = node});
        return true;
    case OP_PATTERN: {
        add_exists(w, d, names_of_pattern(w->s, node, item->name), item->claim, node);
        return true;
    }
    case OP_ELEMENT:
        draft_add(w, d, (struct entry){.kind = ELEMENT, .index = item->count, .claim = item->claim, .node = node});
        return true;
    case OP_CONTAINS:
        draft_add(w, d, (struct entry){.kind = CONTAINS, .min = item->count, .max = item->max, .claim = item->claim,
                                       .node = node});
        return true;
    case OP_MIN: at_least(d, item->count); return true;
    case OP_MAX: at_most(d, item->count); return true;
    case OP_DEPENDENCY: push(w, waiting, *item); return true;
    }
    return true;
}

/* ---- claims that leave a choice ---------------------------------------------------------------------------------- */

/* A proof that a goal has no values looks at goals that it needs, at most so deep. */
struct proof { struct schema *s; uint32_t depth; };

static bool provably_empty(void *user, struct goal *g) {
    struct proof inner = *(struct proof *)user;
    struct schema *s = inner.s;
    if (inner.depth-- == 0 || !goal_expand_inside(s, g)) return false;
    for (enum domain d = CONSTANTS; d <= NUMBERS; d++) {
        if (!set_is_empty(s, d, g->sets[d], g->node)) return false;
    }
    for (const struct shape *shape = g->shapes; shape; shape = shape->next) {
        if (!shape_needs(shape, provably_empty, &inner)) return false;
    }
    return s->status == PLUMB_OK;
}

/* The value that a schema, or the schema it refers to, gives to a required member; 0 if there is none, or if the name
 * is not that of the member `as`.  as: 0 for the first such member, which *member becomes. */
static uint32_t required_const(struct walk *w, uint32_t schema, uint32_t as, uint32_t *member) {
    struct schema *s = w->s;
    uint32_t required = node_keyword(s, schema, KEY_REQUIRED), properties = node_keyword(s, schema, KEY_PROPERTIES);
    if (required == 0 || properties == 0) return 0;
    const size_t work = 1 + s->nodes[properties].n / 16;   /* of node_find */
    for (uint32_t r = s->nodes[required].first; r != 0 && schema_work(s, work); r = s->nodes[r].next) {
        if (as != 0 && !slice_equal(s->nodes[r].text, s->nodes[as].key)) continue;
        uint32_t found = node_find(s, properties, s->nodes[r].text);
        uint32_t value = found != 0 ? node_keyword(s, found, KEY_CONST) : 0;
        uint32_t list = found != 0 ? node_keyword(s, found, KEY_ENUM) : 0;
        if (value == 0 && list != 0 && s->nodes[list].n == 1) value = s->nodes[list].first;
        *member = found;
        if (value != 0 && s->nodes[value].kind == JSON_STRING) return value;
    }
    return 0;
}

/* Whether two schemas want different strings in the same required member: the usual way of telling objects apart. */
static bool have_discriminator(struct walk *w, uint32_t a, uint32_t b) {
    struct schema *s = w->s;
    uint32_t member = 0, ignored;
    uint32_t value = required_const(w, a, 0, &member), other = value != 0 ? required_const(w, b, member, &ignored) : 0;
    return other != 0 && !slice_equal(s->nodes[value].text, s->nodes[other].text);
}

/* Whether the type, or the values of enum or const, of a schema exclude the walk's domain. */
static bool is_other_domain(struct walk *w, uint32_t node) {
    struct schema *s = w->s;
    uint32_t type = node_keyword(s, node, KEY_TYPE), list = node_keyword(s, node, KEY_ENUM);
    uint32_t value = node_keyword(s, node, KEY_CONST);
    uint8_t constants;
    bool integers;
    schema_enter(s, node);
    if (s->status != PLUMB_OK) return false;
    return s->nodes[node].kind == JSON_FALSE
           || (type != 0 && (types_of(s, type, &constants, &integers) & domain_bit(w->domain)) == 0)
           || (list != 0 && !has_child_of_domain(w, list))
           || (value != 0 && kind_bit(s->nodes[value].kind) != domain_bit(w->domain));
}

/* Whether no value of the walk's domain fulfils two schemas of the list oneOf, and `required` beside it. */
static bool are_disjoint(struct walk *w, uint32_t one_of, uint32_t a, uint32_t b) {
    struct schema *s = w->s;
    if (is_other_domain(w, b) || (w->domain == OBJECTS && have_discriminator(w, a, b))) return true;
    uint32_t required = node_keyword(s, s->nodes[one_of].parent, KEY_REQUIRED);
    const uint32_t claims[3] = {claim(a, CLAIM_SCHEMA, false), claim(b, CLAIM_SCHEMA, false),
                                claim(required, CLAIM_KEYWORD, false)};
    struct goal *g = goal_of(s, claims, required != 0 ? 3 : 2, a);
    struct proof proof = {s, 3};
    if (!g || !goal_expand_inside(s, g)) return false;
    for (const struct shape *shape = g->shapes; shape; shape = shape->next) {
        if (shape->is_object == (w->domain == OBJECTS) && !shape_needs(shape, provably_empty, &proof)) return false;
    }
    return true;
}

static void branch_one_of(struct walk *w, uint32_t m, bool negated, const struct scope *scope,
                          const struct item *waiting, struct draft d) {
    struct schema *s = w->s;
    size_t n;
    uint32_t *children = children_of(w, m, &n);
    if (!children) return;
    size_t n_all = n;
    n = 0;
    for (size_t i = 0; i < n_all; i++) {
        children[n] = claim_simplify(s, claim(children[i], CLAIM_SCHEMA, false)) >> 3;
        if (claim_simplify(s, claim(children[i], CLAIM_SCHEMA, false)) == CLAIM_NOTHING) continue;
        n += !is_other_domain(w, children[n]);
    }
    for (size_t i = 0; i < n && s->status == PLUMB_OK; i++) {
        if (!negated) {
            const struct item *agenda = NULL;
            for (size_t k = n; k-- > 0;) {
                if (k != i && !are_disjoint(w, m, children[i], children[k])) {
                    push_claim(w, &agenda, claim(children[k], CLAIM_SCHEMA, true), NULL);
                }
            }
            push_claim(w, &agenda, claim(children[i], CLAIM_SCHEMA, false), scope);
            run(w, agenda, waiting, d);
        }
        for (size_t k = i + 1; k < n && negated; k++) {
            const struct item *agenda = NULL;
            push_claim(w, &agenda, claim(children[k], CLAIM_SCHEMA, false), NULL);
            push_claim(w, &agenda, claim(children[i], CLAIM_SCHEMA, false), NULL);
            run(w, agenda, waiting, d);
        }
    }
    if (!negated) return;
    const struct item *agenda = NULL;
    for (size_t i = 0; i < n; i++) push_claim(w, &agenda, claim(children[i], CLAIM_SCHEMA, true), NULL);
    run(w, agenda, waiting, d);
}

/* Each alternative alone; for unevaluated..., where it matters which of them hold, each set of them together. */
static void branch_any_of(struct walk *w, uint32_t m, const struct scope *scope, const struct item *waiting,
                          struct draft d) {
    struct schema *s = w->s;
    size_t n;
    const uint32_t *children = children_of(w, m, &n);
    if (!children) return;
    if (s->has_unevaluated && n > 8) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, m, "more than 8 alternatives beside unevaluated...");
        return;
    }
    size_t n_sets = s->has_unevaluated ? (size_t)1 << n : n + 1;
    for (size_t set = 1; set < n_sets && s->status == PLUMB_OK; set++) {
        const struct item *agenda = NULL;
        if (!s->has_unevaluated) push_claim(w, &agenda, claim(children[set - 1], CLAIM_SCHEMA, false), scope);
        else for (size_t i = n; i-- > 0;) {
            if (set >> i & 1) push_claim(w, &agenda, claim(children[i], CLAIM_SCHEMA, false), scope);
        }
        run(w, agenda, waiting, d);
    }
}

static void branch_if(struct walk *w, uint32_t m, bool negated, const struct scope *scope, const struct item *waiting,
                      struct draft d) {
    struct schema *s = w->s;
    static const enum keyword branches[2] = {KEY_THEN, KEY_ELSE};
    for (unsigned i = 0; i < 2; i++) {
        uint32_t branch = node_keyword(s, s->nodes[m].parent, branches[i]);
        if (branch == 0 && negated) continue;
        const struct item *agenda = NULL;
        if (branch != 0) push_claim(w, &agenda, claim(branch, CLAIM_SCHEMA, negated), negated ? NULL : scope);
        push_claim(w, &agenda, claim(m, CLAIM_SCHEMA, i == 1), i == 1 || negated ? NULL : scope);
        run(w, agenda, waiting, d);
    }
}

static void branch_dependency(struct walk *w, uint32_t entry, bool negated, const struct scope *scope,
                              const struct item *waiting, struct draft d) {
    struct schema *s = w->s;
    struct slice name = s->nodes[entry].key;
    const struct item *agenda = NULL;
    if (!negated) {
        run(w, &(const struct item){.op = OP_ABSENT, .name = name}, waiting, d);
        if (s->nodes[entry].kind != JSON_ARRAY) push_claim(w, &agenda, claim(entry, CLAIM_SCHEMA, false), scope);
        else for (uint32_t i = s->nodes[entry].first; i != 0; i = s->nodes[i].next) {
            push_name(w, &agenda, OP_PRESENT, s->nodes[i].text);
        }
        push_name(w, &agenda, OP_PRESENT, name);
        run(w, agenda, waiting, d);
    } else if (s->nodes[entry].kind != JSON_ARRAY) {
        push_claim(w, &agenda, claim(entry, CLAIM_SCHEMA, true), NULL);
        push_name(w, &agenda, OP_PRESENT, name);
        run(w, agenda, waiting, d);
    } else for (uint32_t i = s->nodes[entry].first; i != 0; i = s->nodes[i].next) {
        agenda = NULL;
        push_name(w, &agenda, OP_ABSENT, s->nodes[i].text);
        push_name(w, &agenda, OP_PRESENT, name);
        run(w, agenda, waiting, d);
    }
}

/* The opposite of a keyword, or of equality, that has parts: one alternative for each part that does not hold. */
static void branch_opposite(struct walk *w, uint32_t m, enum claim_kind kind, const struct item *waiting,
                            struct draft d) {
    struct schema *s = w->s;
    enum keyword keyword = kind == CLAIM_KEYWORD ? s->nodes[m].keyword : KEY_NONE;
    uint32_t i = 0;
    for (uint32_t part = s->nodes[m].first; part != 0 && s->status == PLUMB_OK; part = s->nodes[part].next, i++) {
        const struct item *agenda = NULL;
        struct slice name = s->nodes[part].key;
        uint32_t other = claim(part, CLAIM_SCHEMA, true), differs = claim(part, CLAIM_VALUE, true);
        if (keyword == KEY_NONE && w->domain == OBJECTS) {
            run(w, &(const struct item){.op = OP_ABSENT, .name = name}, waiting, d);
            push_member(w, &agenda, name, differs);
        } else if (keyword == KEY_NONE) {
            push_element(w, &agenda, i, differs);
        } else if (keyword == KEY_ALL_OF) {
            push_claim(w, &agenda, other, NULL);
        } else if (keyword == KEY_REQUIRED) {
            push_name(w, &agenda, OP_ABSENT, s->nodes[part].text);
        } else if (keyword == KEY_PROPERTIES) {
            push_member(w, &agenda, name, other);
        } else if (keyword == KEY_PATTERN_PROPERTIES) {
            push(w, &agenda, (struct item){.op = OP_PATTERN, .name = name, .claim = other});
        } else {   /* prefixItems, and items with a list */
            push_element(w, &agenda, i, other);
        }
        run(w, agenda, waiting, d);
    }
    if (keyword != KEY_NONE) return;
    run(w, &(const struct item){.op = OP_MIN, .count = i + 1}, waiting, d);
    if (w->domain == ARRAYS && i > 0) run(w, &(const struct item){.op = OP_MAX, .count = i - 1}, waiting, d);
}

static void branch(struct walk *w, const struct item *item, const struct item *waiting, struct draft d) {
    struct schema *s = w->s;
    uint32_t node = item->claim >> 3;
    bool negated = item->claim & 1;
    enum claim_kind kind = item->claim >> 1 & 3;
    if (item->op == OP_DEPENDENCY) {
        branch_dependency(w, node, negated, item->scope, waiting, d);
        return;
    }
    if (kind == CLAIM_SCHEMA) {   /* negated: one of its keywords does not hold */
        bool only_ref = s->draft < 2019 && node_keyword(s, node, KEY_REF) != 0;
        for (uint32_t m = s->nodes[node].first; m != 0 && s->status == PLUMB_OK; m = s->nodes[m].next) {
            enum keyword keyword = s->nodes[m].keyword;
            if (keyword == KEY_NONE || (only_ref && keyword != KEY_REF)) continue;
            run(w, &(const struct item){.claim = claim(m, CLAIM_KEYWORD, true), .scope = item->scope}, waiting, d);
        }
        return;
    }
    switch (kind == CLAIM_KEYWORD ? s->nodes[node].keyword : KEY_NONE) {
    case KEY_ENUM:
        for (uint32_t i = s->nodes[node].first; i != 0 && s->status == PLUMB_OK; i = s->nodes[i].next) {
            run(w, &(const struct item){.claim = claim(i, CLAIM_VALUE, false)}, waiting, d);
        }
        return;
    case KEY_ANY_OF: branch_any_of(w, node, item->scope, waiting, d); return;
    case KEY_ONE_OF: branch_one_of(w, node, negated, item->scope, waiting, d); return;
    case KEY_IF: branch_if(w, node, negated, item->scope, waiting, d); return;
    case KEY_DEPENDENT_REQUIRED:
    case KEY_DEPENDENT_SCHEMAS:
    case KEY_DEPENDENCIES:   /* negated */
        for (uint32_t i = s->nodes[node].first; i != 0 && s->status == PLUMB_OK; i = s->nodes[i].next) {
            branch_dependency(w, i, true, NULL, waiting, d);
        }
        return;
    case KEY_CONTAINS: {   /* negated, with maxContains: too few or too many */
        uint32_t min = node_keyword(s, s->nodes[node].parent, KEY_MIN_CONTAINS);
        uint32_t max = node_keyword(s, s->nodes[node].parent, KEY_MAX_CONTAINS);
        uint32_t least = min != 0 ? node_count(s, min) : 1, most = max != 0 ? node_count(s, max) : UINT32_MAX;
        struct item contains = {.op = OP_CONTAINS, .claim = claim(node, CLAIM_SCHEMA, false), .max = least - 1};
        if (least > 0) run(w, &contains, waiting, d);
        contains.count = most + 1;
        contains.max = UINT32_MAX;
        if (most != UINT32_MAX) run(w, &contains, waiting, d);
        return;
    }
    default: branch_opposite(w, node, kind, waiting, d);
    }
}

static void run(struct walk *w, const struct item *agenda, const struct item *waiting, struct draft d) {
    struct schema *s = w->s;
    if (++w->depth > 2 * MAX_NESTING) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, w->goal->node, "more than %d choices for one value", 2 * MAX_NESTING);
    }
    bool possible = s->status == PLUMB_OK;
    while (agenda && possible && schema_work(s, 1)) {
        const struct item *item = agenda;
        agenda = item->next;
        possible = apply(w, item, &agenda, &waiting, &d);
    }
    if (possible && s->status == PLUMB_OK && d.min <= d.max) {
        if (waiting) branch(w, waiting, waiting->next, d);
        else if (w->domain == OBJECTS) finish_object(w, &d);
        else finish_array(w, &d);
    }
    w->depth--;
}

void walk_goal(struct walk *w) {
    const struct item *agenda = NULL;
    for (uint32_t i = w->goal->n_claims; i-- > 0;) push_claim(w, &agenda, w->goal->claims[i], NULL);
    run(w, agenda, NULL, (struct draft){.max = UINT32_MAX});
}

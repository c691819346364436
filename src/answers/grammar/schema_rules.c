/* Goals as rules.  Each goal becomes a rule, and if the text is indented, one for each depth at which it stands.  The
 * names of all rules but the first begin with its name and "-". */
#include "grammar/schema.h"
#include "base/unicode.h"

#include <stdlib.h>

enum {
    MAX_PRETTY = 8,          /* values that lie deeper are written without white space */
    MAX_OBJECT_STATES = 4000,
    MAX_REPEATED = 10000,
    MAX_FREE_ORDER = 8       /* known members of an object whose order is free */
};

enum primitive { STRING, NUMBER, INTEGER, SPACE, N_PRIMITIVES };

struct written { const struct language *language; enum language_form form; uint32_t rule; };
struct place { struct goal *goal; uint32_t depth; };
struct writer {
    struct schema *s;
    struct rules *b;
    uint32_t root;               /* the first rule */
    struct place *places;        /* a queue of rules to be written */
    size_t n_places, at, cap;
    unsigned used;               /* bits of primitives */
    uint32_t values;             /* bit d: the rule of any value at depth d is needed */
    size_t n_rules;
    struct written written[N_MADE];   /* a ring of the languages that were written last */
    size_t n_written;
};

/* A rule that is being written: its alternatives. */
struct rule {
    struct writer *w;
    struct rules *b;
    struct choice choice;
    uint32_t rule, depth, n_parts;
};

static void begin(struct rule *r, struct writer *w, uint32_t rule, uint32_t depth) {
    *r = (struct rule){.w = w, .b = w->b, .choice = rules_choice(w->b), .rule = rule, .depth = depth};
    if (++w->n_rules > MAX_RULES) {
        schema_fail(w->s, PLUMB_ERROR_UNSUPPORTED, w->s->place, "the grammar has more than %d rules", MAX_RULES);
    }
}

static void end(struct rule *r) {
    rules_close(r->b, &r->choice);
    rules_end(r->b, r->rule, r->choice.first);
    if (r->b->status != PLUMB_OK) schema_language_failed(r->w->s, 0);
}

static void option(struct rule *r) { rules_option(r->b, &r->choice); }
static void put(struct rule *r, const char *text) { rules_text(r->b, text); }
static void put_rule(struct rule *r, uint32_t rule) { rules_symbol(r->b, OP_CALL, rule); }

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

/* Regular expressions.  Digits are bounded so that a number ends, and so that it is not too large for a double. */
static const struct { const char *name, *regex; } primitives[N_PRIMITIVES] = {
    [STRING] = {"string", "\"(?:[^\"\\\\\\x00-\\x1f]|\\\\(?:[\"\\\\/bfnrt]|u[0-9a-fA-F]{4}))*\""},
    [NUMBER] = {"number", "-?(?:[0-9]|[1-9][0-9]{1,20})(?:\\.[0-9]{1,20})?|"
                          "-?[0-9](?:\\.[0-9]{1,20})?[eE][-+]?(?:[0-9]{1,2}|[12][0-9]{2}|30[0-7])"},
    [INTEGER] = {"integer", "0|-?[1-9][0-9]{0,20}"},
    [SPACE] = {"space", " ?|\\n[ \\t]{0,20}"},
};

static void put_primitive(struct rule *r, enum primitive primitive) {
    r->w->used |= 1u << primitive;
    put_rule(r, rules_part(r->b, r->w->root, "-%s", primitives[primitive].name));
}

/* White space, if it is free. */
static void put_space(struct rule *r) {
    if (r->w->s->options->space == PLUMB_JSON_FREE) put_primitive(r, SPACE);
}

static bool is_pretty(const struct rule *r) {
    return r->w->s->options->space == PLUMB_JSON_PRETTY && r->depth < MAX_PRETTY;
}

/* A line end and the indentation of a depth, if the text is indented. */
static void put_indent(struct rule *r, uint32_t depth) {
    if (!is_pretty(r)) return;
    put(r, "\n");
    for (uint32_t i = 0; i < depth; i++) put(r, "  ");
}

/* An opening bracket, or a comma, with the white space after it. */
static void put_before(struct rule *r, const char *c) {
    put(r, c);
    put_indent(r, r->depth + 1);
    put_space(r);
}

/* A closing bracket with the white space before it. */
static void put_close(struct rule *r, const char *c) {
    put_space(r);
    put_indent(r, r->depth);
    put(r, c);
}

static void put_empty(struct rule *r, const char *open, const char *close) {
    put(r, open);
    put_space(r);
    put(r, close);
}

static void put_colon(struct rule *r) {
    put(r, is_pretty(r) ? ": " : ":");
    put_space(r);
}

/* A name, as JSON.stringify writes it, and a colon. */
static void put_key(struct rule *r, struct slice key) {
    uint32_t cp;
    put(r, "\"");
    for (size_t i = 0; i < key.n; rules_json_char(r->b, cp)) i += unicode_decode(key.data + i, key.n - i, &cp);
    put(r, "\"");
    put_colon(r);
}

/* ---- references -------------------------------------------------------------------------------------------------- */

static uint32_t clamp_depth(const struct writer *w, uint32_t depth) {
    if (w->s->options->space != PLUMB_JSON_PRETTY) return 0;
    return depth < MAX_PRETTY ? depth : MAX_PRETTY;
}

/* The rule of any value, or of any object or array. */
static uint32_t any_rule(const struct writer *w, const char *name, uint32_t depth) {
    return depth == 0 ? rules_part(w->b, w->root, "-%s", name) : rules_part(w->b, w->root, "-%s-d%u", name, depth);
}

static void put_any(struct rule *r, const char *name, uint32_t depth) {
    r->w->values |= (uint32_t)1 << depth;
    put_rule(r, any_rule(r->w, name, depth));
}

static uint32_t goal_rule(const struct writer *w, const struct goal *g, uint32_t depth) {
    char word[20];
    int n = 0;
    struct slice key = w->s->nodes[g->node].key;
    if (g->index == 0 && depth == 0) return w->root;
    for (size_t i = 0; i < key.n && n + 1 < (int)sizeof word; i++) {
        char c = key.data[i] >= 'A' && key.data[i] <= 'Z' ? (char)(key.data[i] + 32) : key.data[i];
        if (c >= 'a' && c <= 'z') word[n++] = c;   /* no digits, so that names of goals and of parts differ */
    }
    if (n == 0) word[n++] = 'v';
    return depth == 0 ? rules_part(w->b, w->root, "-%.*s-%u", n, word, g->index)
                      : rules_part(w->b, w->root, "-%.*s-%u-d%u", n, word, g->index, depth);
}

static const char *const constant_names[] = {"null", "false", "true"};

/* Writes all strings, numbers or integers.  Returns false for other languages. */
static bool put_all(struct rule *r, const struct language *l) {
    const struct schema *s = r->w->s;
    const enum primitive primitive = l == s->any[STRINGS].language ? STRING : l == s->any[NUMBERS].language ? NUMBER
                                     : l == s->any_integer ? INTEGER : N_PRIMITIVES;
    if (primitive != N_PRIMITIVES) put_primitive(r, primitive);
    return primitive != N_PRIMITIVES;
}

/* Writes what goals of null, booleans, all strings or numbers are, without a rule.  Returns false for others. */
static bool put_simple(struct rule *r, const struct goal *g) {
    struct schema *s = r->w->s;
    unsigned constants = g->sets[CONSTANTS].constants;
    const struct language *strings = g->sets[STRINGS].language, *numbers = g->sets[NUMBERS].language;
    bool no_strings = strings == s->none[STRINGS].language, no_numbers = numbers == s->none[NUMBERS].language;
    if (g->shapes || (constants != 0) + !no_strings + !no_numbers != 1) return false;
    if (constants == 6) {
        struct choice choice = rules_choice(r->b);
        put(r, "true");
        rules_next(r->b, &choice);
        put(r, "false");
        rules_close(r->b, &choice);
    } else if (constants != 0) {
        if ((constants & (constants - 1)) != 0) return false;
        put(r, constant_names[constants >> 1]);
    } else {
        return put_all(r, no_strings ? numbers : strings);
    }
    return true;
}

static void put_goal(struct rule *r, struct goal *g, uint32_t depth) {
    struct writer *w = r->w;
    depth = clamp_depth(w, depth);
    if (goal_is_any(g)) {
        put_any(r, "value", depth);
        return;
    }
    if (put_simple(r, g)) return;
    if (!g->shapes) depth = 0;
    put_rule(r, goal_rule(w, g, depth));
    if (g->depths >> depth & 1) return;
    if (!ARRAY_GROW(w->places, w->n_places, &w->cap)) {
        schema_no_memory(w->s);
        return;
    }
    w->places[w->n_places++] = (struct place){g, depth};
    g->depths |= (uint32_t)1 << depth;
}

/* A rule of its own for a part of r. */
static uint32_t part(const struct rule *r, char letter, uint32_t i) {
    return rules_part(r->b, r->rule, "-%c%u", letter, i);
}

/* That of a state, of an automaton of members (m) or of elements (a). */
static uint32_t state_rule(const struct rule *r, char kind, uint32_t id, size_t state) {
    return rules_part(r->b, r->rule, "-%c%u-%zu", kind, id, state);
}

static void put_language(struct rule *r, const struct language *l, enum language_form form, char letter) {
    struct writer *w = r->w;
    struct written *own = w->written, *const end = own + (w->n_written < N_MADE ? w->n_written : N_MADE);
    while (own < end && (own->language != l || own->form != form)) own++;
    if (own == end) {
        own = &w->written[w->n_written++ % N_MADE];
        *own = (struct written){l, form, part(r, letter, r->n_parts++)};
        if (w->s->status == PLUMB_OK && language_add(w->s->languages, l, form, r->b, own->rule) != PLUMB_OK) {
            schema_language_failed(w->s, 0);
        }
    }
    put_rule(r, own->rule);
}

/* A string that is in a language. */
static void put_string(struct rule *r, const struct language *l, char letter) {
    put(r, "\"");
    put_language(r, l, LANGUAGE_JSON, letter);
    put(r, "\"");
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

struct object {
    struct rule *r;
    uint32_t id;                     /* of the shape within its goal, for names */
    const struct known_mistake **known;      /* those that can be there */
    size_t n, n_required;
    bool has_others, needs_other;
    uint32_t others;                 /* the rule of a member without a known name */
    uint32_t min, max;               /* max: UINT32_MAX if there is no bound */
    uint32_t top;                    /* the count that stands for itself and all above, or the largest */
};

static void put_pair(struct rule *r, const struct known_mistake *known) {
    put_key(r, known->name);
    put_goal(r, known->goal, r->depth + 1);
}

static void write_others(struct object *o, const struct shape *shape) {
    struct rule pair;
    o->others = part(o->r, 'x', o->id);
    begin(&pair, o->r->w, o->others, o->r->depth);
    for (size_t i = 0; i < shape->n_cells; i++) {
        if (!goal_is_productive(shape->cells[i].goal)) continue;
        option(&pair);
        if (shape->cells[i].names) put_string(&pair, shape->cells[i].names, 'n');
        else put_primitive(&pair, STRING);
        put_colon(&pair);
        put_goal(&pair, shape->cells[i].goal, pair.depth + 1);
    }
    end(&pair);
}

static void put_others(const struct object *o, struct rule *r, bool at_least_one) {
    const size_t from = rules_at(r->b);
    if (!o->has_others) return;
    put_before(r, ",");
    put_rule(r, o->others);
    rules_repeat(r->b, from, at_least_one, COUNT_UNBOUNDED);
}

/* A member after another one. */
static void put_member(struct rule *r, const struct known_mistake *known) {
    const size_t from = rules_at(r->b);
    put_before(r, ",");
    put_pair(r, known);
    if (!known->required) rules_repeat(r->b, from, 0, 1);
}

/* The members from i on, after at least one: each follows a comma. */
static void put_tail(struct object *o, struct rule *r, size_t i) {
    for (; i < o->n; i++) {
        put_member(r, o->known[i]);
    }
    put_others(o, r, o->needs_other);
}

/* Members in order, without counting.  The first one is one of several if it is optional: then rules of their own say
 * what follows each. */
static void put_in_order(struct object *o) {
    struct rule *r = o->r;
    size_t n_first = 0;
    while (n_first < o->n && !o->known[n_first]->required) n_first++;
    bool may_be_empty = n_first == o->n && o->min == 0 && !o->needs_other;
    if (n_first < o->n) n_first++;
    if (may_be_empty) put_empty(r, "{", "}");
    if (may_be_empty) option(r);
    put_before(r, "{");
    struct choice first = rules_choice(r->b);
    for (size_t i = 0; i < n_first; i++) {
        rules_option(r->b, &first);
        put_pair(r, o->known[i]);
        if (n_first == 1 || i + 1 == o->n) put_tail(o, r, i + 1);
        else put_rule(r, part(r, 't', o->id * 1000 + (uint32_t)i + 1));
    }
    bool others_first = o->has_others && (n_first == 0 || !o->known[n_first - 1]->required);
    if (others_first) {
        rules_option(r->b, &first);
        put_rule(r, o->others);
        put_others(o, r, false);
    }
    rules_close(r->b, &first);
    put_close(r, "}");
    for (size_t i = 1; i <= n_first && i < o->n && n_first > 1; i++) {
        struct rule tail;
        begin(&tail, r->w, part(r, 't', o->id * 1000 + (uint32_t)i), r->depth);
        if (i == n_first || i + 1 == o->n) {
            put_tail(o, &tail, i);
        } else {
            put_member(&tail, o->known[i]);
            put_rule(&tail, part(r, 't', o->id * 1000 + (uint32_t)i + 1));
        }
        end(&tail);
    }
}

/* ---- objects with counts, or in any order: an automaton ---------------------------------------------------------- */

/* A state (i, count): in order, the members before i were written or left out, and count members were written.  In any
 * order, those of the set i were written, and count others. */

static bool is_free(const struct object *o) { return o->r->w->s->options->any_order && o->n > 0; }

static uint32_t state_index(const struct object *o, size_t i, uint32_t count) {
    return (uint32_t)i * (o->top + 1) + count;
}

/* Makes a state, with what may follow it. */
static void make_state(const struct object *o, size_t i, uint32_t count, struct state *state) {
    struct step steps[MAX_FREE_ORDER + 2];
    size_t n = 0;
    uint32_t total = count, next = count < o->top ? count + 1 : count;
    bool complete = true;
    for (size_t k = 0; k < o->n && is_free(o); k++) total += (uint32_t)(i >> k & 1);
    bool room = total < o->max;
    for (size_t k = is_free(o) ? 0 : i; k < o->n; k++) {
        if (is_free(o) && i >> k & 1) continue;
        complete &= !o->known[k]->required;
        if (!is_free(o) && k > i) continue;
        const uint32_t to = is_free(o) ? state_index(o, i | (size_t)1 << k, count) : state_index(o, i + 1, next);
        if (room) steps[n++] = (struct step){STEP_KNOWN, o->known[k]->goal, o->known[k], to};
        if (!is_free(o) && !o->known[k]->required) {
            steps[n++] = (struct step){STEP_SKIP, NULL, NULL, state_index(o, i + 1, count)};
        }
    }
    bool at_end = is_free(o) || i == o->n;
    if (o->has_others && room && at_end) steps[n++] = (struct step){STEP_OTHER, NULL, NULL, state_index(o, i, next)};
    *state = (struct state){
        .is_first = count == 0 && (!is_free(o) || i == 0), .n_steps = n,
        .accepts = at_end && complete && (count > 0 || !o->needs_other) && total >= o->min && total <= o->max,
        .steps = schema_alloc(o->r->w->s, (n + 1) * sizeof *steps),
    };
    if (state->steps) memcpy(state->steps, steps, n * sizeof *steps);
}

/* Writes the states of an automaton of members or elements, those from which it can end, each as a rule.  others: the
 * rule of a member without a known name. */
static void write_states(struct rule *r, char kind, uint32_t id, const struct state *states, size_t n,
                         uint32_t others) {
    const bool is_array = kind == 'a';
    put(r, is_array ? "[" : "{");
    put_rule(r, state_rule(r, kind, id, 0));
    for (size_t i = 0; i < n && r->w->s->status == PLUMB_OK; i++) {
        const struct state *state = &states[i];
        struct rule next;
        if (!state->is_alive) continue;
        begin(&next, r->w, state_rule(r, kind, id, i), r->depth);
        for (size_t k = 0; k < state->n_steps; k++) {
            const struct step *step = &state->steps[k];
            if (!states[step->to].is_alive || (step->goal && !goal_is_productive(step->goal))) continue;
            option(&next);
            if (step->kind != STEP_SKIP) put_before(&next, state->is_first ? "" : ",");
            if (step->kind == STEP_KNOWN) put_pair(&next, step->known);
            if (step->kind == STEP_OTHER) put_rule(&next, others);
            if (step->kind == STEP_ELEMENT) put_goal(&next, step->goal, r->depth + 1);
            put_rule(&next, state_rule(r, kind, id, step->to));
        }
        if (state->accepts) option(&next);
        if (state->accepts && state->is_first) put(&next, is_array ? "]" : "}");
        else if (state->accepts) put_close(&next, is_array ? "]" : "}");
        end(&next);
    }
}

static void put_states(struct object *o, uint32_t node) {
    struct schema *s = o->r->w->s;
    if (is_free(o) && o->n > MAX_FREE_ORDER) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, node, "%zu members in any order; at most %d are supported", o->n,
                    MAX_FREE_ORDER);
        return;
    }
    o->top = o->max != UINT32_MAX ? o->max : o->min > 0 ? o->min : 1;
    size_t n_rows = is_free(o) ? (size_t)1 << o->n : o->n + 1;
    if ((uint64_t)n_rows * ((uint64_t)o->top + 1) > MAX_OBJECT_STATES) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, node, "minProperties and maxProperties allow too many combinations of "
                    "members");
        return;
    }
    const size_t n = n_rows * (o->top + 1);
    struct state *states = schema_alloc(s, n * sizeof *states);
    for (size_t i = 0; i < n && s->status == PLUMB_OK; i++) {
        make_state(o, i / (o->top + 1), (uint32_t)(i % (o->top + 1)), &states[i]);
    }
    if (s->status != PLUMB_OK) return;
    states_mark_alive(states, n);
    write_states(o->r, 'm', o->id, states, n, o->others);
}

static uint32_t keyword_of_goal(const struct schema *s, const struct goal *g, enum keyword keyword) {
    uint32_t m = node_keyword(s, g->node, keyword);
    return m != 0 ? m : g->node;
}

static void put_object(struct rule *r, const struct goal *g, const struct shape *shape, uint32_t id) {
    struct schema *s = r->w->s;
    struct object o = {.r = r, .id = id, .min = shape->min, .max = shape->max, .needs_other = shape->needs_other};
    o.known = schema_alloc(s, (shape->n_known + 1) * sizeof *o.known);
    for (size_t i = 0; i < shape->n_known && o.known; i++) {
        if (!goal_is_productive(shape->known[i].goal)) continue;
        o.n_required += shape->known[i].required;
        o.known[o.n++] = &shape->known[i];
    }
    for (size_t i = 0; i < shape->n_cells; i++) o.has_others |= goal_is_productive(shape->cells[i].goal);
    if (o.min <= o.n_required) o.min = 0;
    if (!o.has_others && o.max >= o.n) o.max = UINT32_MAX;
    if (o.n == 0 && !o.has_others) {
        put_empty(r, "{", "}");
        return;
    }
    if (o.has_others) write_others(&o, shape);
    if (o.has_others && o.min > o.n_required + 1) {
        schema_refuse(s, keyword_of_goal(s, g, KEY_MIN_PROPERTIES), "minProperties is not enforced if it asks for "
                      "two or more members that are not required, since the same name could be written twice");
    }
    if (o.needs_other && o.min == 1) o.min = 0;
    bool counts = (o.min > 1 || (o.min == 1 && o.n_required > 0)) || o.max != UINT32_MAX;
    if (counts && o.needs_other && !is_free(&o)) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, g->node, "minProperties or maxProperties beside the opposite of "
                    "additionalProperties is not enforced");
    }
    if (counts || (s->options->any_order && o.n > 0 && (o.n > 1 || o.has_others))) put_states(&o, g->node);
    else put_in_order(&o);
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static void put_repeated(struct rule *r, struct goal *g, uint32_t min, uint32_t max) {
    const size_t from = rules_at(r->b);
    if (max == 0) return;
    put_before(r, ",");
    put_goal(r, g, r->depth + 1);
    rules_repeat(r->b, from, min, max);
}

/* The elements from one on, which may be left out. */
static void put_rest(struct rule *to, const struct rule *r, uint32_t i) {
    const size_t from = rules_at(to->b);
    put_rule(to, part(r, 'e', i));
    rules_repeat(to->b, from, 0, 1);
}

static void put_elements(struct rule *r, const struct shape *shape, uint32_t id, uint32_t node) {
    uint32_t min = shape->min, max = shape->max, n = (uint32_t)shape->n_prefix;
    for (uint32_t i = 0; i < n && i < max; i++) {
        if (!goal_is_productive(shape->prefix[i])) max = i;
    }
    if (!goal_is_productive(shape->rest) && max > n) max = n;
    if (n > max) n = max;
    if (min == 0) put_empty(r, "[", "]");
    if (min == 0 && max > 0) option(r);
    if (max == 0) return;
    if ((max != UINT32_MAX && max > MAX_REPEATED) || min > MAX_REPEATED) {
        schema_fail(r->w->s, PLUMB_ERROR_UNSUPPORTED, node, "minItems or maxItems above %d", MAX_REPEATED);
    }
    put_before(r, "[");
    put_goal(r, n > 0 ? shape->prefix[0] : shape->rest, r->depth + 1);
    for (uint32_t i = 1; i < n && i < min; i++) {
        put_before(r, ",");
        put_goal(r, shape->prefix[i], r->depth + 1);
    }
    uint32_t first = min > 1 ? min : 1;   /* the first element that is optional */
    if (first < n) {
        put_rest(r, r, id * 1000 + first);
    } else {
        uint32_t done = n > 0 ? n : 1;
        put_repeated(r, shape->rest, min > done ? min - done : 0, max == UINT32_MAX ? max : max - done);
    }
    put_close(r, "]");
    for (uint32_t i = first; i < n; i++) {
        struct rule next;
        begin(&next, r->w, part(r, 'e', id * 1000 + i), r->depth);
        put_before(&next, ",");
        put_goal(&next, shape->prefix[i], r->depth + 1);
        if (i + 1 < n) put_rest(&next, r, id * 1000 + i + 1);
        else put_repeated(&next, shape->rest, 0, max == UINT32_MAX ? max : max - n);
        end(&next);
    }
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

/* All arrays or all objects. */
static bool is_any_shape(const struct shape *shape) {
    if (shape->min > 0 || shape->max != UINT32_MAX || shape->n_states > 0) return false;
    if (!shape->is_object) return shape->n_prefix == 0 && goal_is_any(shape->rest);
    return shape->n_known == 0 && shape->n_cells == 1 && !shape->cells[0].names && goal_is_any(shape->cells[0].goal);
}

static void write_goal(struct writer *w, struct goal *g, uint32_t depth) {
    struct schema *s = w->s;
    struct rule r;
    s->place = g->node;
    begin(&r, w, goal_rule(w, g, depth), depth);
    if (goal_is_any(g) || put_simple(&r, g)) {
        if (goal_is_any(g)) put_any(&r, "value", depth);
        end(&r);
        return;
    }
    for (int i = 0; i < 3; i++) {
        if ((g->sets[CONSTANTS].constants >> i & 1) == 0) continue;
        option(&r);
        put(&r, constant_names[i]);
    }
    const struct language *strings = g->sets[STRINGS].language, *numbers = g->sets[NUMBERS].language;
    if (numbers != s->none[NUMBERS].language) {
        option(&r);
        if (!put_all(&r, numbers)) put_language(&r, numbers, LANGUAGE_PLAIN, 'n');
    }
    if (strings != s->none[STRINGS].language) {
        option(&r);
        if (!put_all(&r, strings)) put_string(&r, strings, 's');
    }
    uint32_t id = 0;
    for (const struct shape *shape = g->shapes; shape && s->status == PLUMB_OK; shape = shape->next, id++) {
        if (!shape_is_productive(shape)) continue;
        option(&r);
        if (is_any_shape(shape)) put_any(&r, shape->is_object ? "object" : "array", depth);
        else if (shape->is_object) put_object(&r, g, shape, id);
        else if (shape->n_states > 0) write_states(&r, 'a', id, shape->states, shape->n_states, 0);
        else put_elements(&r, shape, id, g->node);
    }
    end(&r);
}

/* The rule of any value at a depth, and those of any object and any array. */
static void write_any(struct writer *w, uint32_t depth) {
    static const char *const kinds[] = {"value", "object", "array"};
    struct rule r;
    const uint32_t inside = clamp_depth(w, depth + 1);
    for (int kind = 0; kind < 3; kind++) {
        const bool is_array = kind == 2;
        begin(&r, w, any_rule(w, kinds[kind], depth), depth);
        option(&r);
        if (kind == 0) {
            for (int i = 1; i < 3; i++, option(&r)) put_any(&r, kinds[i], depth);
            put_primitive(&r, STRING);
            option(&r);
            put_primitive(&r, NUMBER);
            for (int i = 2; i >= 0; i--) {
                option(&r);
                put(&r, constant_names[i]);
            }
            end(&r);
            continue;
        }
        put_empty(&r, is_array ? "[" : "{", is_array ? "]" : "}");
        option(&r);
        put_before(&r, is_array ? "[" : "{");
        size_t from = 0;
        for (int again = 0; again < 2; again++) {
            from = rules_at(w->b);
            if (again) put_before(&r, ",");
            if (!is_array) put_primitive(&r, STRING);
            if (!is_array) put_colon(&r);
            put_any(&r, "value", inside);
        }
        rules_repeat(w->b, from, 0, COUNT_UNBOUNDED);
        put_close(&r, is_array ? "]" : "}");
        end(&r);
    }
}

/* Adds the rules of a goal that goals_expand has expanded. */
static void add_rules(struct schema *s, struct goal *root) {
    const char *name = s->options->name ? s->options->name : "root";
    struct writer w = {.s = s, .b = s->rules, .root = rules_find(s->rules, name, strlen(name))};
    if (root && s->status == PLUMB_OK) {
        root->depths = 1;
        write_goal(&w, root, 0);
    }
    for (; w.at < w.n_places && s->status == PLUMB_OK; w.at++) {
        write_goal(&w, w.places[w.at].goal, w.places[w.at].depth);
    }
    for (uint32_t depth = 0; depth <= MAX_PRETTY && s->status == PLUMB_OK; depth++) {
        if (w.values >> depth & 1) write_any(&w, depth);
    }
    for (int i = 0; i < N_PRIMITIVES && s->status == PLUMB_OK; i++) {
        if (!(w.used >> i & 1)) continue;
        const uint32_t rule = rules_part(w.b, w.root, "-%s", primitives[i].name);
        if (rules_add_regex(w.b, rule, primitives[i].regex, strlen(primitives[i].regex)) != PLUMB_OK) {
            schema_language_failed(s, 0);
        }
    }
    free(w.places);
}

plumb_status rules_add_schema(struct rules *b, const char *json, size_t n, const struct json_schema_options *options,
                              struct grammar_text *warnings) {
    static const struct json_schema_options defaults = {0};
    struct schema s = {.options = options ? options : &defaults, .rules = b, .err = b->err, .warnings = warnings,
                       .arena.limit = MAX_BYTES};
    if (schema_read(&s, json, n) == PLUMB_OK) {
        sets_begin(&s);
        const uint32_t whole = claim(1, CLAIM_SCHEMA, false);
        struct goal *root = goal_of(&s, &whole, 1, 1);
        goals_expand(&s, root);
        add_rules(&s, root);
    }
    languages_free(s.languages);
    free(s.nodes);
    free(s.resources);
    free(s.sets);
    free(s.goals);
    free(s.goal_index.slots);
    arena_free(&s.arena);
    return s.status;
}

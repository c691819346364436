/* Goals as GBNF.  Each goal becomes a rule, and if the text is indented, one for each depth at which it stands.  The
 * names of all rules but the first begin with its name and "-". */
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_PRETTY = 8,          /* values that lie deeper are written without white space */
    MAX_OBJECT_STATES = 4000,
    MAX_REPEATED = 10000,
    MAX_FREE_ORDER = 8,      /* known members of an object whose order is free */
    MAX_NAME = 96            /* of a rule, with its 0; that of a goal has at most 66 bytes, of a part of it 92 */
};

enum primitive { STRING = 1, NUMBER = 2, INTEGER = 4, SPACE = 8 };

struct written { const struct language *language; enum language_form form; char name[MAX_NAME]; };
struct place { struct goal *goal; uint32_t depth; };
struct writer {
    struct schema *s;
    struct grammar_text *out;
    const char *name;            /* of the first rule */
    struct place *places;        /* a queue of rules to be written */
    size_t n_places, at, cap;
    unsigned used;               /* primitives */
    uint32_t values;             /* bit d: the rule of any value at depth d is needed */
    size_t n_rules;
    struct written written[N_MADE];   /* a ring of the languages that were written last */
    size_t n_written;
};

/* A rule that is being written. */
struct rule { struct writer *w; struct grammar_text text; char name[MAX_NAME]; uint32_t depth; uint32_t n_parts; };

static void put(struct rule *r, const char *text) { grammar_text_add(&r->text, text, strlen(text)); }

static void begin(struct rule *r, struct writer *w, const char *name, uint32_t depth) {
    *r = (struct rule){.w = w, .depth = depth};
    snprintf(r->name, sizeof r->name, "%s", name);
    grammar_text_print(&r->text, "%s ::=", name);
    if (++w->n_rules > MAX_RULES) {
        schema_fail(w->s, PLUMB_ERROR_UNSUPPORTED, w->s->place, "the grammar has more than %d rules", MAX_RULES);
    }
}

static void end(struct rule *r) {
    put(r, "\n");
    if (r->text.failed) schema_no_memory(r->w->s);
    else if (r->w->s->status == PLUMB_OK) grammar_text_add(r->w->out, r->text.data, r->text.n);
    if (r->w->out->n > LANGUAGE_MAX_TEXT) {
        schema_fail(r->w->s, PLUMB_ERROR_UNSUPPORTED, r->w->s->place, "up to here, the grammar takes more than %d MB",
                    LANGUAGE_MAX_TEXT >> 20);
    }
    grammar_text_free(&r->text);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

/* Digits are bounded so that a number ends, and so that it is not too large for a double. */
static const struct { unsigned primitive; const char *name, *text; } primitive_rules[] = {
    {STRING, "string",
     "\"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\""},
    {NUMBER, "number", "\"-\"? ([0-9] | [1-9] [0-9]{1,20}) (\".\" [0-9]{1,20})? | "
                       "\"-\"? [0-9] (\".\" [0-9]{1,20})? [eE] [-+]? ([0-9]{1,2} | [12] [0-9]{2} | \"30\" [0-7])"},
    {INTEGER, "integer", "\"0\" | \"-\"? [1-9] [0-9]{0,20}"},
    {SPACE, "space", "\" \"? | \"\\n\" [ \\t]{0,20}"},
};
enum { N_PRIMITIVES = sizeof primitive_rules / sizeof *primitive_rules };

static void put_primitive(struct rule *r, enum primitive primitive) {
    size_t i = 0;
    while (primitive_rules[i].primitive != (unsigned)primitive) i++;
    r->w->used |= primitive_rules[i].primitive;
    grammar_text_print(&r->text, " %s-%s", r->w->name, primitive_rules[i].name);
}

static void put_space(struct rule *r) {
    put_primitive(r, SPACE);
}

/* A line end and the indentation of a depth, within a literal. */
static void put_indent(struct rule *r, uint32_t depth) {
    put(r, "\\n");
    for (uint32_t i = 0; i < depth; i++) put(r, "  ");
}

static bool is_pretty(const struct rule *r) {
    return r->w->s->options->space == JSON_PRETTY && r->depth < MAX_PRETTY;
}

/* A bracket, or a comma, with the white space after it. */
static void put_before(struct rule *r, char c) {
    grammar_text_print(&r->text, " \"%c", c);
    if (is_pretty(r)) put_indent(r, r->depth + 1);
    put(r, "\"");
    if (r->w->s->options->space == JSON_FREE) put_space(r);
}

/* A closing bracket with the white space before it. */
static void put_close(struct rule *r, char c) {
    if (r->w->s->options->space == JSON_FREE) put_space(r);
    put(r, " \"");
    if (is_pretty(r)) put_indent(r, r->depth);
    grammar_text_print(&r->text, "%c\"", c);
}

static void put_empty(struct rule *r, const char *brackets) {
    grammar_text_print(&r->text, " \"%c", brackets[0]);
    if (r->w->s->options->space == JSON_FREE) {
        put(r, "\"");
        put_space(r);
        put(r, " \"");
    }
    grammar_text_print(&r->text, "%c\"", brackets[1]);
}

static void put_colon(struct rule *r) {
    put(r, is_pretty(r) ? ": \"" : ":\"");
    if (r->w->s->options->space == JSON_FREE) put_space(r);
}

/* A name, as JSON.stringify writes it, and a colon. */
static void put_key(struct rule *r, struct slice key) {
    static const char controls[] = "\b\t\n\f\r", letters[] = "btnfr";
    put(r, " \"\\\"");
    for (size_t i = 0; i < key.n; i++) {
        char c = key.data[i];
        const char *control = c != 0 ? strchr(controls, c) : NULL;
        if (c == '"' || c == '\\') grammar_text_print(&r->text, "\\\\\\%c", c);
        else if (control) grammar_text_print(&r->text, "\\\\%c", letters[control - controls]);
        else if ((uint8_t)c < 0x20) grammar_text_print(&r->text, "\\\\u%04x", (unsigned)c);
        else grammar_text_add(&r->text, &c, 1);
    }
    put(r, "\\\"");
    put_colon(r);
}

/* ---- references -------------------------------------------------------------------------------------------------- */

static uint32_t clamp_depth(const struct writer *w, uint32_t depth) {
    if (w->s->options->space != JSON_PRETTY) return 0;
    return depth < MAX_PRETTY ? depth : MAX_PRETTY;
}

/* The name of the rule of any value, or of any object or array. */
static void put_any(struct rule *r, const char *name, uint32_t depth) {
    r->w->values |= (uint32_t)1 << depth;
    grammar_text_print(&r->text, depth == 0 ? " %s-%s" : " %s-%s-d%u", r->w->name, name, depth);
}

static void name_goal(const struct writer *w, const struct goal *g, uint32_t depth, char *name, size_t n) {
    char word[20];
    size_t k = 0;
    struct slice key = w->s->nodes[g->node].key;
    for (size_t i = 0; i < key.n && k + 1 < sizeof word; i++) {
        char c = key.data[i] >= 'A' && key.data[i] <= 'Z' ? (char)(key.data[i] + 32) : key.data[i];
        if (c >= 'a' && c <= 'z') word[k++] = c;   /* no digits, so that names of goals and of parts differ */
    }
    word[k] = 0;
    if (g->index == 0 && depth == 0) snprintf(name, n, "%s", w->name);
    else if (depth == 0) snprintf(name, n, "%s-%s-%u", w->name, k > 0 ? word : "v", g->index);
    else snprintf(name, n, "%s-%s-%u-d%u", w->name, k > 0 ? word : "v", g->index, depth);
}

static const char *const constant_names[] = {" \"null\"", " \"false\"", " \"true\""};

/* Writes what goals of null, booleans, all strings or numbers are, without a rule.  Returns false for others. */
static bool put_simple(struct rule *r, const struct goal *g) {
    struct schema *s = r->w->s;
    unsigned constants = g->sets[CONSTANTS].constants;
    const struct language *strings = g->sets[STRINGS].language, *numbers = g->sets[NUMBERS].language;
    bool no_strings = strings == s->none[STRINGS].language, no_numbers = numbers == s->none[NUMBERS].language;
    if (g->shapes || (constants != 0) + !no_strings + !no_numbers != 1) return false;
    if (constants == 6) put(r, " (\"true\" | \"false\")");
    else if (constants != 0) {
        if ((constants & (constants - 1)) != 0) return false;
        put(r, constant_names[constants >> 1]);
    } else if (strings == s->any[STRINGS].language) {
        put_primitive(r, STRING);
    } else if (numbers == s->any[NUMBERS].language) {
        put_primitive(r, NUMBER);
    } else if (numbers == s->any_integer) {
        put_primitive(r, INTEGER);
    } else {
        return false;
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
    char name[MAX_NAME];
    name_goal(w, g, depth, name, sizeof name);
    grammar_text_print(&r->text, " %s", name);
    if (g->depths >> depth & 1) return;
    struct place *larger = alloc_grow(w->places, w->n_places, &w->cap, sizeof *larger);
    if (!larger) {
        schema_no_memory(w->s);
        return;
    }
    w->places = larger;
    w->places[w->n_places++] = (struct place){g, depth};
    g->depths |= (uint32_t)1 << depth;
}

/* Begins a rule of its own for a part of r, "NAME-letter-number", and refers to it. */
static void part_name(const struct rule *r, char letter, uint32_t i, char *name, size_t n) {
    snprintf(name, n, "%.80s-%c%u", r->name, letter, i);
}

static void put_language(struct rule *r, const struct language *l, enum language_form form, char letter) {
    struct writer *w = r->w;
    for (size_t i = 0; i < N_MADE && i < w->n_written; i++) {
        if (w->written[i].language != l || w->written[i].form != form) continue;
        grammar_text_print(&r->text, " %s", w->written[i].name);
        return;
    }
    struct written *own = &w->written[w->n_written++ % N_MADE];
    own->language = l;
    own->form = form;
    part_name(r, letter, r->n_parts++, own->name, sizeof own->name);
    grammar_text_print(&r->text, " %s", own->name);
    if (w->s->status == PLUMB_OK && language_write(w->s->languages, l, form, own->name, w->out) != PLUMB_OK) {
        schema_language_failed(w->s, 0);
    }
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

struct object {
    struct rule *r;
    uint32_t id;                     /* of the shape within its goal, for names */
    const struct known **known;      /* those that can be there */
    size_t n, n_required;
    bool has_others, needs_other;
    char others[MAX_NAME];           /* the rule of a member without a known name */
    uint32_t min, max;               /* max: UINT32_MAX if there is no bound */
    uint32_t top;                    /* the count that stands for itself and all above, or the largest */
};

static void put_pair(struct rule *r, const struct known *known) {
    put_key(r, known->name);
    put_goal(r, known->goal, r->depth + 1);
}

static void write_others(struct object *o, const struct shape *shape) {
    struct rule pair;
    part_name(o->r, 'x', o->id, o->others, sizeof o->others);
    begin(&pair, o->r->w, o->others, o->r->depth);
    const char *bar = "";
    for (size_t i = 0; i < shape->n_cells; i++) {
        if (!goal_is_productive(shape->cells[i].goal)) continue;
        put(&pair, bar);
        bar = " |";
        if (shape->cells[i].names) {
            put(&pair, " \"\\\"\"");
            put_language(&pair, shape->cells[i].names, LANGUAGE_JSON, 'n');
            put(&pair, " \"\\\"");
        } else {
            put_primitive(&pair, STRING);
            put(&pair, " \"");
        }
        put_colon(&pair);
        put_goal(&pair, shape->cells[i].goal, pair.depth + 1);
    }
    end(&pair);
}

static void put_others(const struct object *o, struct rule *r, bool at_least_one) {
    if (!o->has_others) return;
    put(r, " (");
    put_before(r, ',');
    grammar_text_print(&r->text, " %s )%c", o->others, at_least_one ? '+' : '*');
}

/* A member after another one. */
static void put_member(struct rule *r, const struct known *known) {
    if (!known->required) put(r, " (");
    put_before(r, ',');
    put_pair(r, known);
    if (!known->required) put(r, " )?");
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
    char name[MAX_NAME];
    while (n_first < o->n && !o->known[n_first]->required) n_first++;
    bool may_be_empty = n_first == o->n && o->min == 0 && !o->needs_other, has_members = o->n > 0 || o->has_others;
    if (n_first < o->n) n_first++;
    if (may_be_empty) put_empty(r, "{}");
    if (may_be_empty && has_members) put(r, " |");
    if (!has_members) return;
    put_before(r, '{');
    bool choice = n_first > 1 || (n_first == o->n && o->n > 0 && !o->known[n_first - 1]->required && o->has_others);
    if (choice) put(r, " (");
    for (size_t i = 0; i < n_first; i++) {
        if (i > 0) put(r, " |");
        put_pair(r, o->known[i]);
        if (n_first == 1 || i + 1 == o->n) {
            put_tail(o, r, i + 1);
        } else {
            part_name(r, 't', o->id * 1000 + (uint32_t)i + 1, name, sizeof name);
            grammar_text_print(&r->text, " %s", name);
        }
    }
    bool others_first = o->has_others && (n_first == 0 || !o->known[n_first - 1]->required);
    if (others_first) {
        if (n_first > 0) put(r, " |");
        grammar_text_print(&r->text, " %s", o->others);
        put_others(o, r, false);
    }
    if (choice) put(r, " )");
    put_close(r, '}');
    for (size_t i = 1; i <= n_first && i < o->n && n_first > 1; i++) {
        struct rule tail;
        part_name(r, 't', o->id * 1000 + (uint32_t)i, name, sizeof name);
        begin(&tail, r->w, name, r->depth);
        if (i == n_first || i + 1 == o->n) {
            put_tail(o, &tail, i);
        } else {
            put_member(&tail, o->known[i]);
            part_name(r, 't', o->id * 1000 + (uint32_t)i + 1, name, sizeof name);
            grammar_text_print(&tail.text, " %s", name);
        }
        end(&tail);
    }
}

/* ---- objects with counts, or in any order: an automaton ---------------------------------------------------------- */

/* A state (i, count): in order, the members before i were written or left out, and count members were written.  In any
 * order, those of the set i were written, and count others. */
enum move_kind { MOVE_KNOWN, MOVE_SKIP, MOVE_OTHER };
struct move { enum move_kind kind; size_t known, to; uint32_t count; };

static bool is_free(const struct object *o) { return o->r->w->s->options->any_order && o->n > 0; }

static size_t state_index(const struct object *o, size_t i, uint32_t count) { return i * (o->top + 1) + count; }

/* Lists what may follow a state, at most n + 2 moves; *accepts: the object may end there. */
static size_t moves_of(const struct object *o, size_t i, uint32_t count, struct move *moves, bool *accepts) {
    size_t n = 0;
    uint32_t total = count, next = count < o->top ? count + 1 : count;
    bool complete = true;
    for (size_t k = 0; k < o->n && is_free(o); k++) total += (uint32_t)(i >> k & 1);
    bool room = total < o->max;
    for (size_t k = is_free(o) ? 0 : i; k < o->n; k++) {
        if (is_free(o) && i >> k & 1) continue;
        complete &= !o->known[k]->required;
        if (!is_free(o) && k > i) continue;
        struct move known = {MOVE_KNOWN, k, is_free(o) ? i | (size_t)1 << k : i + 1, is_free(o) ? count : next};
        if (room) moves[n++] = known;
        if (!is_free(o) && !o->known[k]->required) moves[n++] = (struct move){MOVE_SKIP, 0, i + 1, count};
    }
    bool at_end = is_free(o) || i == o->n;
    if (o->has_others && room && at_end) moves[n++] = (struct move){MOVE_OTHER, 0, i, next};
    *accepts = at_end && complete && (count > 0 || !o->needs_other) && total >= o->min && total <= o->max;
    return n;
}

static void put_state(const struct object *o, struct rule *r, size_t i, uint32_t count) {
    grammar_text_print(&r->text, " %.66s-m%u-%zu", o->r->name, o->id, state_index(o, i, count));
}

static void put_separator(struct rule *r, bool first) {
    if (!first) {
        put_before(r, ',');
    } else if (is_pretty(r)) {
        put(r, " \"");
        put_indent(r, r->depth + 1);
        put(r, "\"");
    } else if (r->w->s->options->space == JSON_FREE) {
        put_space(r);
    }
}

static void write_state(const struct object *o, const bool *alive, size_t i, uint32_t count) {
    struct rule r;
    struct move moves[MAX_FREE_ORDER + 2];
    char name[MAX_NAME];
    bool accepts, first = count == 0 && (!is_free(o) || i == 0);
    size_t n = moves_of(o, i, count, moves, &accepts);
    snprintf(name, sizeof name, "%.66s-m%u-%zu", o->r->name, o->id, state_index(o, i, count));
    begin(&r, o->r->w, name, o->r->depth);
    const char *bar = "";
    for (size_t k = 0; k < n; k++) {
        if (!alive[state_index(o, moves[k].to, moves[k].count)]) continue;
        put(&r, bar);
        bar = " |";
        if (moves[k].kind != MOVE_SKIP) put_separator(&r, first);
        if (moves[k].kind == MOVE_KNOWN) put_pair(&r, o->known[moves[k].known]);
        if (moves[k].kind == MOVE_OTHER) grammar_text_print(&r.text, " %s", o->others);
        put_state(o, &r, moves[k].to, moves[k].count);
    }
    if (accepts) {
        put(&r, bar);
        if (first) put(&r, " \"}\"");
        else put_close(&r, '}');
    }
    end(&r);
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
    bool *alive = schema_alloc(s, n_rows * (o->top + 1)), accepts;
    if (!alive) return;
    struct move moves[MAX_FREE_ORDER + 2];
    for (size_t i = n_rows; i-- > 0;) {
        for (uint32_t count = o->top + 1; count-- > 0;) {
            size_t n = moves_of(o, i, count, moves, &accepts);
            for (size_t k = 0; k < n; k++) accepts |= alive[state_index(o, moves[k].to, moves[k].count)];
            alive[state_index(o, i, count)] = accepts;
        }
    }
    put(o->r, " \"{\"");
    put_state(o, o->r, 0, 0);
    for (size_t i = 0; i < n_rows && s->status == PLUMB_OK; i++) {
        for (uint32_t count = 0; count <= o->top; count++) {
            if (alive[state_index(o, i, count)]) write_state(o, alive, i, count);
        }
    }
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
        put_empty(r, "{}");
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
    if (max == 0) return;
    put(r, " (");
    put_before(r, ',');
    put_goal(r, g, r->depth + 1);
    if (min == 0 && max == UINT32_MAX) put(r, " )*");
    else if (max == UINT32_MAX) grammar_text_print(&r->text, " ){%u,}", min);
    else grammar_text_print(&r->text, " ){%u,%u}", min, max);
}

static void put_elements(struct rule *r, const struct shape *shape, uint32_t id, uint32_t node) {
    uint32_t min = shape->min, max = shape->max, n = (uint32_t)shape->n_prefix;
    for (uint32_t i = 0; i < n && i < max; i++) {
        if (!goal_is_productive(shape->prefix[i])) max = i;
    }
    if (!goal_is_productive(shape->rest) && max > n) max = n;
    if (n > max) n = max;
    if (min == 0) put_empty(r, "[]");
    if (min == 0 && max > 0) put(r, " |");
    if (max == 0) return;
    if ((max != UINT32_MAX && max > MAX_REPEATED) || min > MAX_REPEATED) {
        schema_fail(r->w->s, PLUMB_ERROR_UNSUPPORTED, node, "minItems or maxItems above %d", MAX_REPEATED);
    }
    put_before(r, '[');
    put_goal(r, n > 0 ? shape->prefix[0] : shape->rest, r->depth + 1);
    for (uint32_t i = 1; i < n && i < min; i++) {
        put_before(r, ',');
        put_goal(r, shape->prefix[i], r->depth + 1);
    }
    uint32_t first = min > 1 ? min : 1;   /* the first element that is optional */
    char name[MAX_NAME];
    if (first < n) {
        part_name(r, 'e', id * 1000 + first, name, sizeof name);
        grammar_text_print(&r->text, " %s?", name);
    } else {
        uint32_t done = n > 0 ? n : 1;
        put_repeated(r, shape->rest, min > done ? min - done : 0, max == UINT32_MAX ? max : max - done);
    }
    put_close(r, ']');
    for (uint32_t i = first; i < n; i++) {
        struct rule next;
        part_name(r, 'e', id * 1000 + i, name, sizeof name);
        begin(&next, r->w, name, r->depth);
        put_before(&next, ',');
        put_goal(&next, shape->prefix[i], r->depth + 1);
        if (i + 1 < n) {
            part_name(r, 'e', id * 1000 + i + 1, name, sizeof name);
            grammar_text_print(&next.text, " %s?", name);
        } else {
            put_repeated(&next, shape->rest, 0, max == UINT32_MAX ? max : max - n);
        }
        end(&next);
    }
}

static void put_automaton(struct rule *r, const struct shape *shape, uint32_t id) {
    char name[MAX_NAME];
    grammar_text_print(&r->text, " \"[\" %.66s-a%u-0", r->name, id);
    for (size_t i = 0; i < shape->n_states; i++) {
        const struct state *state = &shape->states[i];
        if (!state->is_alive) continue;
        struct rule next;
        const char *bar = "";
        snprintf(name, sizeof name, "%.66s-a%u-%u", r->name, id, (unsigned)i);
        begin(&next, r->w, name, r->depth);
        for (size_t k = 0; k < state->n_steps; k++) {
            const struct step *step = &state->steps[k];
            if (!shape->states[step->to].is_alive || !goal_is_productive(step->goal)) continue;
            put(&next, bar);
            bar = " |";
            put_separator(&next, i == 0);
            put_goal(&next, step->goal, r->depth + 1);
            grammar_text_print(&next.text, " %.66s-a%u-%u", r->name, id, step->to);
        }
        if (state->accepts) {
            put(&next, bar);
            if (i == 0) put(&next, " \"]\"");
            else put_close(&next, ']');
        }
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
    char name[MAX_NAME];
    s->place = g->node;
    name_goal(w, g, depth, name, sizeof name);
    begin(&r, w, name, depth);
    const char *bar = "";
    if (goal_is_any(g) || put_simple(&r, g)) {
        if (goal_is_any(g)) put_any(&r, "value", depth);
        end(&r);
        return;
    }
    for (int i = 0; i < 3; i++) {
        if ((g->sets[CONSTANTS].constants >> i & 1) == 0) continue;
        put(&r, bar);
        bar = " |";
        put(&r, constant_names[i]);
    }
    const struct language *strings = g->sets[STRINGS].language, *numbers = g->sets[NUMBERS].language;
    if (numbers != s->none[NUMBERS].language) {
        put(&r, bar);
        bar = " |";
        if (numbers == s->any[NUMBERS].language || numbers == s->any_integer) {
            put_primitive(&r, numbers == s->any_integer ? INTEGER : NUMBER);
        } else {
            put_language(&r, numbers, LANGUAGE_PLAIN, 'n');
        }
    }
    if (strings != s->none[STRINGS].language) {
        put(&r, bar);
        bar = " |";
        if (strings == s->any[STRINGS].language) {
            put_primitive(&r, STRING);
        } else {
            put(&r, " \"\\\"\"");
            put_language(&r, strings, LANGUAGE_JSON, 's');
            put(&r, " \"\\\"\"");
        }
    }
    uint32_t id = 0;
    for (const struct shape *shape = g->shapes; shape && s->status == PLUMB_OK; shape = shape->next, id++) {
        if (!shape_is_productive(shape)) continue;
        put(&r, bar);
        bar = " |";
        if (is_any_shape(shape)) put_any(&r, shape->is_object ? "object" : "array", depth);
        else if (shape->is_object) put_object(&r, g, shape, id);
        else if (shape->n_states > 0) put_automaton(&r, shape, id);
        else put_elements(&r, shape, id, g->node);
    }
    end(&r);
}

static void write_any(struct writer *w, uint32_t depth) {
    struct rule r;
    char suffix[12] = "", name[MAX_NAME];
    uint32_t inside = clamp_depth(w, depth + 1);
    if (depth > 0) snprintf(suffix, sizeof suffix, "-d%u", depth);
    snprintf(name, sizeof name, "%.66s-value%s", w->name, suffix);
    begin(&r, w, name, depth);
    grammar_text_print(&r.text, " %s-object%s | %s-array%s |", w->name, suffix, w->name, suffix);
    put_primitive(&r, STRING);
    put(&r, " |");
    put_primitive(&r, NUMBER);
    put(&r, " | \"true\" | \"false\" | \"null\"");
    end(&r);
    for (int is_array = 0; is_array < 2; is_array++) {
        snprintf(name, sizeof name, "%.66s-%s%s", w->name, is_array ? "array" : "object", suffix);
        begin(&r, w, name, depth);
        put_empty(&r, is_array ? "[]" : "{}");
        put(&r, " |");
        put_before(&r, is_array ? '[' : '{');
        for (int again = 0; again < 2; again++) {
            if (again) {
                put(&r, " (");
                put_before(&r, ',');
            }
            if (!is_array) {
                put_primitive(&r, STRING);
                put(&r, " \"");
                put_colon(&r);
            }
            put_any(&r, "value", inside);
        }
        put(&r, " )*");
        put_close(&r, is_array ? ']' : '}');
        end(&r);
    }
}

void schema_write(struct schema *s, struct goal *root, struct grammar_text *out) {
    struct writer w = {.s = s, .out = out, .name = s->options->name ? s->options->name : "root"};
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
    for (size_t i = 0; i < N_PRIMITIVES; i++) {
        if (!(w.used & primitive_rules[i].primitive)) continue;
        grammar_text_print(out, "%s-%s ::= %s\n", w.name, primitive_rules[i].name, primitive_rules[i].text);
    }
    free(w.places);
    if (out->failed) schema_no_memory(s);
}

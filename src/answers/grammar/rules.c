/* Rules -> the program of a grammar, and what is refused of it as a whole: left recursion, and marks without room. */
#include "grammar/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A repetition with fewer instructions than this is written out. */
enum { MAX_WRITTEN_OUT = 16 };

/* ---- code -------------------------------------------------------------------------------------------------------- */

/* Return 0, in the place of the number of a rule or a counter. */
static uint32_t no_memory(struct rules *b) {
    b->status = error_set(b->err, PLUMB_ERROR_MEMORY, "out of memory: a grammar");
    return 0;
}

static uint32_t too_large(struct rules *b) {
    b->status = error_set(b->err, PLUMB_ERROR_UNSUPPORTED, "the grammar is too large: it has more than %d characters "
                          "and symbols", GRAMMAR_MAX_CODE);
    return 0;
}

static uint32_t instruction(enum grammar_op op, int64_t arg) {
    return (uint32_t)((int32_t)arg * 16) | (uint32_t)op;
}

/* Makes room for n more instructions in an array of n_code.  Returns false after a failure. */
static bool reserve(struct rules *b, uint32_t **code, size_t n_code, size_t *cap, uint64_t n) {
    if (b->status != PLUMB_OK) return false;
    if (n > GRAMMAR_MAX_CODE - n_code) too_large(b);
    else if (!ARRAY_RESERVE(*code, n_code, n, cap)) no_memory(b);
    return b->status == PLUMB_OK;
}

static void emit(struct rules *b, enum grammar_op op, int64_t arg) {
    if (reserve(b, &b->code, b->n, &b->cap, 1)) b->code[b->n++] = instruction(op, arg);
}

static bool count_work(struct rules *b, uint64_t n) {
    b->work += n;
    if (b->work > GRAMMAR_MAX_WORK && b->status == PLUMB_OK) {
        b->status = error_set(b->err, PLUMB_ERROR_ARGUMENT, "the grammar is too complex: too many repetitions and "
                              "alternatives in each other");
    }
    return b->status == PLUMB_OK;
}

/* Inserts an instruction; the code from there on is moved. */
static void insert(struct rules *b, size_t at, enum grammar_op op, int64_t arg) {
    if (!reserve(b, &b->code, b->n, &b->cap, 1) || !count_work(b, b->n - at)) return;
    memmove(b->code + at + 1, b->code + at, (b->n - at) * sizeof *b->code);
    b->code[at] = instruction(op, arg);
    b->n++;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

struct rules *rules_create(struct error *err) {
    struct rules *b = calloc(1, sizeof *b);
    struct grammar *g = b ? calloc(1, sizeof *g) : NULL;
    if (g) {
        b->g = g;
        b->err = err;
        return b;
    }
    free(b);
    error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a grammar");
    return NULL;
}

void rules_free(struct rules *b) {
    if (!b) return;
    grammar_free(b->g);
    classes_free(&b->classes);
    free(b->code);
    free(b->index.slots);
    free(b);
}

void grammar_free(struct grammar *g) {
    if (!g) return;
    free(g->code);
    free(g->edges);
    free(g->nodes);
    free(g->names);
    free(g->rules);
    free(g->counters);
    free(g);
}

static uint64_t hash_rule(const void *user, size_t i) {
    const struct grammar *g = user;
    return hash_bytes(g->names + g->rules[i].name, g->rules[i].n_name);
}

/* The slot of the rule with a name, or the free one in which it belongs. */
static size_t find_slot(const struct rules *b, const char *name, size_t n) {
    size_t slot = hash_index_first(&b->index, hash_bytes(name, n));
    for (; b->index.slots[slot] != 0; slot = hash_index_next(&b->index, slot)) {
        const struct grammar_rule *rule = &b->g->rules[b->index.slots[slot] - 1];
        if (rule->n_name == n && memcmp(b->g->names + rule->name, name, n) == 0) break;
    }
    return slot;
}

uint32_t rules_find(struct rules *b, const char *name, size_t n) {
    struct grammar *g = b->g;
    if (b->status != PLUMB_OK) return 0;
    if (!hash_index_reserve(&b->index, g->n_rule, hash_rule, g)) return no_memory(b);
    uint32_t *slot = &b->index.slots[find_slot(b, name, n)];
    if (*slot != 0) return *slot - 1;
    if (g->n_rule == GRAMMAR_MAX_CODE || n > GRAMMAR_MAX_NAMES - g->n_name) return too_large(b);
    if (!ARRAY_GROW(g->rules, g->n_rule, &g->rule_cap)) return no_memory(b);
    if (!ARRAY_RESERVE(g->names, g->n_name, n, &g->name_cap)) return no_memory(b);
    g->rules[g->n_rule] = (struct grammar_rule){ (uint32_t)g->n_name, (uint32_t)n, RULE_UNDEFINED, 0 };
    if (n > 0) memcpy(g->names + g->n_name, name, n);
    g->n_name += n;
    *slot = (uint32_t)++g->n_rule;
    return *slot - 1;
}

uint32_t rules_part(struct rules *b, uint32_t rule, const char *format, ...) {
    char name[128];
    if (b->status != PLUMB_OK) return 0;
    const struct grammar_rule *r = &b->g->rules[rule];
    size_t n = r->n_name < sizeof name ? r->n_name : sizeof name - 1;
    memcpy(name, b->g->names + r->name, n);
    va_list args;
    va_start(args, format);
    const int more = vsnprintf(name + n, sizeof name - n, format, args);
    va_end(args);
    if (more > 0) n = n + (size_t)more < sizeof name ? n + (size_t)more : sizeof name - 1;
    return rules_find(b, name, n);
}

bool rules_has(const struct rules *b, const char *name) {
    return b->index.n_slot > 0 && b->index.slots[find_slot(b, name, strlen(name))] != 0;
}

void rules_end(struct rules *b, uint32_t rule, size_t from) {
    struct grammar *g = b->g;
    emit(b, OP_RETURN, rule);
    const size_t n = b->n - from;
    if (!reserve(b, &g->code, g->n_code, &g->code_cap, n)) return;
    if (rule >= b->kept.n_rule) g->rules[rule].start = (int32_t)g->n_code;
    memcpy(g->code + g->n_code, b->code + from, n * sizeof *g->code);
    g->n_code += n;
    b->n = from;
}

void rules_keep(struct rules *b) {
    const struct grammar *g = b->g;
    b->kept = (struct rules_kept){ g->n_code, g->n_rule, g->n_name, g->n_counter, g->most_behind };
}

void rules_rewind(struct rules *b) {
    struct grammar *g = b->g;
    g->n_code = b->kept.n_code;
    g->n_rule = b->kept.n_rule;
    g->n_name = b->kept.n_name;
    g->n_counter = b->kept.n_counter;
    g->most_behind = b->kept.most_behind;
    b->n = 0;
    b->work = 0;
    b->status = PLUMB_OK;
    for (size_t i = 0; i < b->index.n_slot; i++) {   /* these were added last, so no kept rule is found behind one */
        if (b->index.slots[i] > g->n_rule) b->index.slots[i] = 0;
    }
}

struct grammar *rules_take(struct rules *b) {
    struct grammar *g = b->g;
    b->g = NULL;
    rules_free(b);
    return g;
}

/* ---- symbols ----------------------------------------------------------------------------------------------------- */

void rules_class(struct rules *b, const struct span *spans, size_t n) {
    uint32_t node = 0;
    if (b->status == PLUMB_OK) b->status = classes_find(&b->classes, b->g, spans, n, &node, b->err);
    emit(b, OP_CLASS, node);
}

void rules_char(struct rules *b, uint32_t cp) {
    uint32_t *known = cp < 128 ? &b->ascii[cp] : NULL;
    if (known && *known != 0) {
        emit(b, OP_CLASS, *known - 1);
        return;
    }
    rules_class(b, &(const struct span){ char_index(cp), char_index(cp) }, 1);
    if (known && b->status == PLUMB_OK) *known = (uint32_t)arg_of(b->code[b->n - 1]) + 1;
}

void rules_text(struct rules *b, const char *ascii) {
    for (; *ascii; ascii++) rules_char(b, (uint8_t)*ascii);
}

char rules_json_escape(uint32_t cp) {
    static const char letters[] = "btn.fr";   /* of U+0008 to U+000D */
    if (cp == '"' || cp == '\\') return (char)cp;
    if (cp >= 0x20) return 0;
    return cp >= 8 && cp <= 13 && cp != 11 ? letters[cp - 8] : 'u';
}

void rules_json_char(struct rules *b, uint32_t cp) {
    static const char hex[] = "0123456789abcdef";
    const char escape = rules_json_escape(cp);
    rules_char(b, escape ? '\\' : cp);
    if (!escape) return;
    rules_char(b, (uint8_t)escape);
    if (escape == 'u') rules_text(b, (const char[]){ '0', '0', hex[cp >> 4], hex[cp & 15], 0 });
}

void rules_symbol(struct rules *b, enum grammar_op op, uint32_t arg) {
    if (op == OP_MARK && arg > b->g->most_behind) b->g->most_behind = arg;
    emit(b, op, arg);
}

/* Adds the bounds of a count.  Returns its number. */
static uint32_t add_counter(struct rules *b, uint32_t min, uint32_t max) {
    struct grammar *g = b->g;
    if (b->status == PLUMB_OK && g->n_counter == GRAMMAR_MAX_COUNTERS) {
        b->status = error_set(b->err, PLUMB_ERROR_UNSUPPORTED, "the grammar is too large: it has more than %d counted "
                              "repetitions", GRAMMAR_MAX_COUNTERS);
    }
    if (b->status != PLUMB_OK) return 0;
    if (!ARRAY_GROW(g->counters, g->n_counter, &g->counter_cap)) return no_memory(b);
    g->counters[g->n_counter] = (struct counter){ .min = min, .max = max };
    return (uint32_t)g->n_counter++;
}

void rules_count(struct rules *b, size_t from, uint32_t min, uint32_t max) {
    const uint32_t number = add_counter(b, min, max);
    insert(b, from, OP_COUNT, (int64_t)(b->n - from) + 1);
    emit(b, OP_LEAVE, number);
}

/* Repeats, and counts how often.
 *   x{20,40}   count(leave) mark x split(mark) leave
 *   x{0,40}    split(end) count(leave) mark x split(mark) leave */
static void repeat_counted(struct rules *b, size_t from, uint32_t min, uint32_t max) {
    const int64_t n = (int64_t)(b->n - from);
    insert(b, from, OP_MARK, 0);
    emit(b, OP_SPLIT, -(n + 1));
    rules_count(b, from, min > 0 ? min : 1, max);
    if (min == 0) insert(b, from, OP_SPLIT, n + 5);
}

/*   x{2,4}   x x split(end) x split(end) x
 *   x*       split(end) x split(x)
 *   x{2,}    x x split(second x) */
void rules_repeat(struct rules *b, size_t from, uint32_t min, uint32_t max) {
    const uint64_t n = b->n - from;
    const bool has_max = max != COUNT_UNBOUNDED;
    /* of instructions: below 2^54 */
    const uint64_t total = has_max ? min * n + (uint64_t)(max - min) * (n + 1) : min == 0 ? n + 2 : min * n + 1;
    if (max == 0) {
        b->n = from;
    } else if (n == 0) {
        return;   /* nothing, as often as one likes, is nothing */
    } else if (total > MAX_WRITTEN_OUT && (min > 1 || (max > 1 && has_max))) {
        repeat_counted(b, from, min, max);
    } else if (reserve(b, &b->code, b->n, &b->cap, total - n)) {
        const int64_t end = (int64_t)(from + total);
        if (min == 0) insert(b, from++, OP_SPLIT, (int64_t)total);
        for (uint32_t i = 1; b->status == PLUMB_OK && (i < min || (has_max && i < max)); i++) {
            if (i >= min) emit(b, OP_SPLIT, end - (int64_t)b->n);
            memcpy(b->code + b->n, b->code + from, (size_t)n * sizeof *b->code);
            b->n += (size_t)n;
        }
        if (!has_max) emit(b, OP_SPLIT, -(int64_t)n);
    }
}

struct choice rules_choice(const struct rules *b) { return (struct choice){ .first = b->n, .alternative = b->n }; }

/* The alternative before it becomes split(the new one) ... jump(end). */
void rules_next(struct rules *b, struct choice *c) {
    insert(b, c->alternative, OP_SPLIT, (int64_t)(b->n - c->alternative) + 2);
    emit(b, OP_JUMP, (int64_t)c->jump);   /* until the end is known, the jump before it */
    c->jump = c->alternative = b->n;
}

void rules_option(struct rules *b, struct choice *c) {
    if (c->is_begun) rules_next(b, c);
    c->is_begun = true;
}

void rules_close(struct rules *b, struct choice *c) {
    for (size_t jump = c->jump, before; jump != 0 && b->status == PLUMB_OK; jump = before) {
        before = (size_t)arg_of(b->code[jump - 1]);
        b->code[jump - 1] = instruction(OP_JUMP, (int64_t)(b->n - (jump - 1)));
    }
}

/* ---- checks of the whole grammar --------------------------------------------------------------------------------- */

/* Refuses the grammar because of a rule. */
static void refuse(struct rules *b, uint32_t rule, const char *what) {
    b->wrong = rule;
    b->status = error_set(b->err, PLUMB_ERROR_ARGUMENT, "%s", what);
}

static const char *show_rule(struct shown *shown, const struct grammar *g, uint32_t rule) {
    return show_bytes(shown, g->names + g->rules[rule].name, g->rules[rule].n_name);
}

static void find_root(struct rules *b) {
    struct grammar *g = b->g;
    bool found = false;
    for (uint32_t i = 0; i < g->n_rule && b->status == PLUMB_OK; i++) {
        const struct grammar_rule *r = &g->rules[i];
        const bool is_root = r->n_name == 4 && memcmp(g->names + r->name, "root", 4) == 0;
        if (is_root) g->root = i;
        found |= is_root;
        if (r->start != RULE_UNDEFINED) continue;
        struct shown name;
        char what[320];
        snprintf(what, sizeof what, "the rule %s is not defined", show_rule(&name, g, i));
        refuse(b, i, what);
    }
    if (!found && b->status == PLUMB_OK) refuse(b, RULE_NONE, "the grammar has no rule with the name root");
}

/* What can be reached without consuming anything: from each rule's start, past calls of rules that may be empty. */
struct reach {
    uint32_t *todo;          /* (n_code) */
    size_t n_todo;
    uint8_t *is_reached;     /* (n_code) */
    uint8_t *may_be_empty;   /* (n_rule) */
    /* Calls that are reached, in lists: of each rule, and for the search in each rule. */
    struct call { uint32_t at, before; } *calls;   /* (n_call) before: the number of the one before it + 1 */
    uint32_t n_call;
    uint32_t *last_call;     /* (n_rule) the number of the last one + 1 */
    uint32_t *path;          /* (n_rule) the rules on the path of the search */
    uint8_t *color;          /* (n_rule) 1: on the path; 2: done */
};

static void reach(struct reach *r, size_t at) {
    if (r->is_reached[at]) return;
    r->is_reached[at] = 1;
    r->todo[r->n_todo++] = (uint32_t)at;
}

/* Reaches what follows an instruction, unless it reads something. */
static void reach_next(struct reach *r, const struct grammar *g, size_t at) {
    const enum grammar_op op = op_of(g->code[at]);
    size_t next[2];
    if (op <= OP_NOT_TOKEN || (op == OP_CALL && !r->may_be_empty[arg_of(g->code[at])])) return;
    const size_t n = grammar_next(g, at, next);
    for (size_t i = 0; i < n; i++) reach(r, next[i]);
}

static void add_call(struct reach *r, uint32_t rule, uint32_t at) {
    r->calls[r->n_call] = (struct call){ at, r->last_call[rule] };
    r->last_call[rule] = ++r->n_call;
}

/* Fills may_be_empty, and the list of the calls of each rule that are reached. */
static void find_reached(struct reach *r, const struct grammar *g) {
    for (size_t i = 0; i < g->n_rule; i++) reach(r, (size_t)g->rules[i].start);
    while (r->n_todo > 0) {
        const uint32_t at = r->todo[--r->n_todo];
        const enum grammar_op op = op_of(g->code[at]);
        const int32_t arg = arg_of(g->code[at]);
        if (op == OP_CALL) add_call(r, (uint32_t)arg, at);
        reach_next(r, g, at);
        if (op != OP_RETURN || r->may_be_empty[arg]) continue;
        r->may_be_empty[arg] = 1;
        for (uint32_t i = r->last_call[arg]; i != 0; i = r->calls[i - 1].before) reach(r, r->calls[i - 1].at + 1);
    }
}

/* Whether a text may be empty from an instruction up to another one of the same rule.  is_reached is zeros, and is
 * again in the end. */
static bool may_be_empty(struct reach *r, const struct grammar *g, size_t from, size_t to, uint64_t *work) {
    r->n_todo = 0;
    reach(r, from);
    size_t n = 0;
    for (; n < r->n_todo && !r->is_reached[to]; n++) reach_next(r, g, r->todo[n]);
    const bool found = r->is_reached[to];
    while (r->n_todo > 0) r->is_reached[r->todo[--r->n_todo]] = 0;
    *work += n;
    return found;
}

/* Finds the counters whose iterations may be empty.  Between two bytes, such counters inside each other can be counted
 * in as many ways as the product of their bounds, so this product is limited.  Any other mark must stand directly
 * before something that reads a character. */
static void check_marks(struct rules *b, struct reach *r) {
    enum { MAX_EMPTY = 4096 };
    const struct grammar *g = b->g;
    /* The counters around the instruction whose bounds are at least 2, so there are at most 12: 2^12 is MAX_EMPTY. */
    struct { size_t end; uint64_t product; } around[12];
    size_t n_around = 0;
    memset(r->is_reached, 0, g->n_code);
    for (size_t at = 0; at < g->n_code && b->status == PLUMB_OK; at++) {
        if (op_of(g->code[at]) != OP_MARK) continue;
        const uint32_t before = at > 0 ? g->code[at - 1] : 0;
        const size_t leave = op_of(before) == OP_COUNT ? at - 1 + (size_t)arg_of(before) : 0;
        const uint32_t last = leave > 0 ? g->code[leave - 1] : 0, next = g->code[at + 1];
        uint64_t work = 1;
        while (n_around > 0 && around[n_around - 1].end < at) n_around--;
        if (op_of(last) != OP_SPLIT || (int64_t)leave - 1 + arg_of(last) != (int64_t)at) {
            if (op_of(next) <= OP_NOT_TOKEN || (op_of(next) == OP_CALL && !r->may_be_empty[arg_of(next)])) continue;
            refuse(b, RULE_NONE, "after a mark % there is no character, and no rule that cannot be empty");
            return;
        }
        if (may_be_empty(r, g, at + 1, leave - 1, &work)) {
            struct counter *c = &g->counters[arg_of(g->code[leave])];
            const uint64_t most = c->max == COUNT_UNBOUNDED ? c->min : c->max;
            c->is_exact = true;
            if (most > 1) {
                const uint64_t product = most * (n_around > 0 ? around[n_around - 1].product : 1);
                if (product > MAX_EMPTY) {
                    b->status = error_set(b->err, PLUMB_ERROR_UNSUPPORTED, "what may be empty is repeated more than "
                                          "%d times", MAX_EMPTY);
                    return;
                }
                around[n_around].end = leave;
                around[n_around++].product = product;
            }
        }
        count_work(b, work);
    }
}

/* Finds the most_behind of all counters.  A count's marks stand between its OP_COUNT and its OP_LEAVE, or in rules that
 * are called in front of that. */
static void find_behind(struct rules *b) {
    struct grammar *g = b->g;
    struct open { size_t leave; struct counter *counter; } *open = NULL;
    size_t n = 0, cap = 0;
    for (size_t at = 0; at < g->n_code && g->most_behind > 0; at++) {
        const enum grammar_op op = op_of(g->code[at]);
        while (n > 0 && open[n - 1].leave <= at) n--;
        struct counter *c = n > 0 ? open[n - 1].counter : NULL;
        uint32_t behind = 0;
        if (op == OP_MARK) behind = (uint32_t)arg_of(g->code[at]);
        if (c && op == OP_CALL && grammar_is_tail(g->code[grammar_skip_jumps(g, at + 1)])) behind = g->most_behind;
        if (c && behind > c->most_behind) c->most_behind = behind;
        if (op != OP_COUNT) continue;
        if (!ARRAY_GROW(open, n, &cap)) {
            no_memory(b);
            break;
        }
        const size_t leave = at + (size_t)arg_of(g->code[at]);
        open[n++] = (struct open){ leave, &g->counters[arg_of(g->code[leave])] };
    }
    free(open);
}

/* Names the rules of a cycle, from path[first] on: "root -> expr -> root".  A long one is cut. */
static void refuse_cycle(struct rules *b, const struct reach *r, size_t first, size_t n) {
    char what[640] = "left recursion: ";
    size_t length = strlen(what);
    struct shown name;
    for (size_t i = first; i <= n && length < 516; i++) {
        length += (size_t)snprintf(what + length, sizeof what - length, "%s%.70s", i > first ? " -> " : "",
                                   show_rule(&name, b->g, r->path[i == n ? first : i]));
    }
    refuse(b, r->path[first], what);
}

/* Looks for a rule that calls itself before anything is consumed, by a depth-first search without recursion. */
static void find_cycle(struct rules *b, struct reach *r) {
    const struct grammar *g = b->g;
    uint32_t owner = 0;   /* a rule's code ends with its return */
    r->n_call = 0;
    memset(r->last_call, 0, g->n_rule * sizeof *r->last_call);
    for (size_t at = g->n_code; at-- > 0;) {
        if (op_of(g->code[at]) == OP_RETURN) owner = (uint32_t)arg_of(g->code[at]);
        if (op_of(g->code[at]) != OP_CALL || !r->is_reached[at]) continue;
        add_call(r, owner, (uint32_t)at);
    }
    for (uint32_t i = 0; i < g->n_rule; i++) {
        if (r->color[i] != 0) continue;
        size_t n = 0;
        r->path[n++] = i;
        r->color[i] = 1;
        while (n > 0) {
            uint32_t *last = &r->last_call[r->path[n - 1]];
            if (*last == 0) {
                r->color[r->path[--n]] = 2;
                continue;
            }
            const struct call call = r->calls[*last - 1];
            uint32_t callee = (uint32_t)arg_of(g->code[call.at]);
            *last = call.before;
            if (r->color[callee] == 1) {
                size_t first = 0;
                while (r->path[first] != callee) first++;
                refuse_cycle(b, r, first, n);
                return;
            }
            if (r->color[callee] == 0) {
                r->color[callee] = 1;
                r->path[n++] = callee;
            }
        }
    }
}

plumb_status rules_finish(struct rules *b) {
    const struct grammar *g = b->g;
    size_t n_call = 0;
    b->wrong = RULE_NONE;
    find_root(b);
    if (b->status != PLUMB_OK) return b->status;
    for (size_t at = 0; at < g->n_code; at++) n_call += op_of(g->code[at]) == OP_CALL;
    struct reach r = {
        .todo = alloc_array(g->n_code, sizeof *r.todo), .is_reached = calloc(g->n_code, 1),
        .may_be_empty = calloc(g->n_rule, 1), .color = calloc(g->n_rule, 1),
        .calls = alloc_array(n_call, sizeof *r.calls), .last_call = calloc(g->n_rule, sizeof *r.last_call),
        .path = alloc_array(g->n_rule, sizeof *r.path),
    };
    if (r.todo && r.is_reached && r.may_be_empty && r.color && r.calls && r.last_call && r.path) {
        find_reached(&r, g);
        find_cycle(b, &r);
        if (b->status == PLUMB_OK) check_marks(b, &r);
        if (b->status == PLUMB_OK) find_behind(b);
        classes_finish(&b->classes, b->g);
    } else {
        no_memory(b);
    }
    void *all[] = { r.todo, r.is_reached, r.may_be_empty, r.color, r.calls, r.last_call, r.path };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    return b->status;
}

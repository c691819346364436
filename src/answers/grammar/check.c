#include "grammar/check.h"
#include "grammar/recognizer.h"

#include <stdlib.h>

static plumb_status no_memory(struct error *err) {
    return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the check of a grammar");
}

uint32_t grammar_rule_of(const struct grammar *g, size_t at) {
    while (op_of(g->code[at]) != OP_RETURN) at++;   /* the code of a rule ends with its return */
    return (uint32_t)arg_of(g->code[at]);
}

/* ---- rules that no text needs ------------------------------------------------------------------------------------ */

/* Whether the end of the rule is reached from an instruction, by what is known so far. */
static bool has_end(const struct grammar *g, const uint8_t *ends, size_t at) {
    const enum grammar_op op = op_of(g->code[at]);
    const int32_t arg = arg_of(g->code[at]);
    size_t next[2];
    bool has = false;
    if (op == OP_CLASS && g->nodes[arg].n == 0) return false;
    if (op == OP_CALL && !ends[g->rules[arg].start]) return false;
    for (size_t i = grammar_next(g, at, next); i-- > 0;) has |= ends[next[i]] != 0;
    return has;
}

/* The instructions from which one is reached without a choice of another rule: those that wait for it. */
struct waiting {
    uint32_t *first, *next, *to;   /* (n_code), (2 n_code + n_rule), the same: lists of numbers + 1 */
    uint32_t n;
};

static void wait_for(struct waiting *w, size_t at, size_t waiter) {
    w->to[w->n] = (uint32_t)waiter;
    w->next[w->n] = w->first[at];
    w->first[at] = ++w->n;
}

/* Fills uses->ends: begins with the returns, and goes back to what waits for them. */
static void find_ends(const struct grammar *g, uint8_t *ends, struct waiting *w, uint32_t *todo) {
    size_t n_todo = 0;
    for (size_t at = 0; at < g->n_code; at++) {
        const enum grammar_op op = op_of(g->code[at]);
        size_t next[2];
        for (size_t i = grammar_next(g, at, next); i-- > 0;) wait_for(w, next[i], at);
        if (op == OP_CALL) wait_for(w, (size_t)g->rules[arg_of(g->code[at])].start, at);
        if (op == OP_RETURN) todo[n_todo++] = (uint32_t)at;
        ends[at] = op == OP_RETURN;
    }
    while (n_todo > 0) {
        for (uint32_t i = w->first[todo[--n_todo]]; i != 0; i = w->next[i - 1]) {
            const uint32_t at = w->to[i - 1];
            if (ends[at] || !has_end(g, ends, at)) continue;
            ends[at] = 1;
            todo[n_todo++] = at;
        }
    }
}

/* Marks what the root needs: a search forward that only takes places from which an end is reached. */
static void find_used(const struct grammar *g, const struct grammar_uses *uses, uint8_t *is_seen, uint32_t *todo) {
    size_t n_todo = 0;
    const size_t start = (size_t)g->rules[g->root].start;
    if (uses->ends[start]) todo[n_todo++] = (uint32_t)start;
    is_seen[start] = 1;
    while (n_todo > 0) {
        const size_t at = todo[--n_todo];
        const enum grammar_op op = op_of(g->code[at]);
        const int32_t arg = arg_of(g->code[at]);
        size_t next[2], n = grammar_next(g, at, next);
        if (op == OP_CALL) next[n++] = (size_t)g->rules[arg].start;
        if (op == OP_RETURN) uses->rules[arg] = RULE_USED;
        for (size_t i = 0; i < n; i++) {
            if (is_seen[next[i]] || !uses->ends[next[i]]) continue;
            is_seen[next[i]] = 1;
            todo[n_todo++] = (uint32_t)next[i];
        }
    }
}

plumb_status grammar_find_uses(const struct grammar *g, struct grammar_uses *out, struct error *err) {
    *out = (struct grammar_uses){ alloc_array(g->n_rule, 1), alloc_array(g->n_code, 1) };
    const uint64_t n_wait = 2 * (uint64_t)g->n_code;
    struct waiting w = { calloc(g->n_code, sizeof *w.first), alloc_array(n_wait, sizeof *w.next),
                         alloc_array(n_wait, sizeof *w.to), 0 };
    uint32_t *todo = alloc_array(g->n_code, sizeof *todo);
    uint8_t *is_seen = calloc(g->n_code, 1);
    plumb_status status = PLUMB_OK;
    if (out->rules && out->ends && w.first && w.next && w.to && todo && is_seen) {
        find_ends(g, out->ends, &w, todo);
        for (size_t i = 0; i < g->n_rule; i++) {
            out->rules[i] = out->ends[g->rules[i].start] ? RULE_UNREACHABLE : RULE_ENDLESS;
        }
        find_used(g, out, is_seen, todo);
    } else {
        grammar_uses_free(out);
        status = no_memory(err);
    }
    free(w.first);
    free(w.next);
    free(w.to);
    free(todo);
    free(is_seen);
    return status;
}

void grammar_uses_free(struct grammar_uses *uses) {
    free(uses->rules);
    free(uses->ends);
    *uses = (struct grammar_uses){ 0 };
}

/* ---- texts with two derivations ---------------------------------------------------------------------------------- */

/* The search goes breadth first over the texts of all used rules at once.  A state is what the derivations of a text
 * have reached: configurations as in recognizer.h, each as often as derivations reach it, but at most twice.  Texts
 * with equal states are continued in the same way, so only the first of them is. */

enum { NO_PARENT = -1, FIRST_TOKEN = 256, BOTTOM = 0 };

/* Where a state comes from. */
struct origin {
    int32_t parent;    /* the state before its last byte or token; NO_PARENT: it begins a text */
    uint32_t symbol;   /* that byte, or FIRST_TOKEN + the token; without a parent, the rule */
};

/* An instruction and a stack, while a state is made. */
struct reached {
    uint64_t key;           /* stack << 22 | instruction */
    uint8_t count, fresh;   /* the derivations that reach it, at most 2, and how many of them are not followed yet */
};

struct search {
    const struct grammar *g;
    const uint8_t *ends;
    struct error *err;
    uint64_t work, max_work;
    bool is_over;          /* a limit was reached */
    struct sequences states;   /* of configurations, sorted */
    struct sequences stacks;   /* of two numbers: instruction << 32 | the stack below; count */
    struct origin *origins;    /* of each state, and of the one in which the search ends */
    size_t n_state, state_cap;
    /* The state that is being made. */
    struct key_set seen;       /* the keys of the places */
    struct reached *places;
    size_t n_place, place_cap;
    uint32_t *todo;
    size_t n_todo, todo_cap;
    config *made;
    size_t n_made, made_cap;
    unsigned n_end;        /* derivations that may end here, at most 2 */
};

static plumb_status push_stack(struct search *s, struct frame frame, uint32_t *out) {
    const uint64_t items[] = { (uint64_t)frame.at << 32 | frame.below, frame.count };
    *out = sequences_find(&s->stacks, items, 2);
    s->is_over |= s->stacks.n > CHECK_MAX_STACKS;
    return *out == UINT32_MAX ? no_memory(s->err) : PLUMB_OK;
}

static struct frame top_frame(const struct search *s, uint32_t stack) {
    const uint64_t *items = s->stacks.items + 2 * (size_t)stack;
    return (struct frame){ (uint32_t)(items[0] >> 32), (uint32_t)items[1], (uint32_t)items[0] };
}

static size_t n_config(const struct search *s, int32_t state) {
    return s->states.begin[state + 1] - s->states.begin[state];
}

static config config_of_state(const struct search *s, int32_t state, size_t i) {
    return s->states.items[s->states.begin[state] + i];
}

/* n more derivations reach an instruction. */
static plumb_status add_place(struct search *s, size_t at, uint32_t stack, unsigned n) {
    if (!s->ends[at] || s->is_over) return PLUMB_OK;
    s->is_over = ++s->work > s->max_work;
    const uint64_t key = (uint64_t)stack << 22 | at;
    const uint32_t number = key_set_number(&s->seen, key);
    if (number == s->n_place && ARRAY_GROW(s->places, s->n_place, &s->place_cap)) {
        s->places[s->n_place++] = (struct reached){ key, 0, 0 };
    }
    if (number >= s->n_place) return no_memory(s->err);
    struct reached *place = &s->places[number];
    if (n > 2u - place->count) n = 2u - place->count;
    if (n == 0) return PLUMB_OK;
    if (place->fresh == 0) {
        if (!ARRAY_GROW(s->todo, s->n_todo, &s->todo_cap)) return no_memory(s->err);
        s->todo[s->n_todo++] = number;
    }
    place->count = (uint8_t)(place->count + n);
    place->fresh = (uint8_t)(place->fresh + n);
    return PLUMB_OK;
}

static plumb_status add_config(struct search *s, config c) {
    if (!ARRAY_GROW(s->made, s->n_made, &s->made_cap)) return no_memory(s->err);
    s->made[s->n_made++] = c;
    return PLUMB_OK;
}

static void begin_state(struct search *s) {
    key_set_clear(&s->seen);
    s->n_place = s->n_todo = s->n_made = 0;
    s->n_end = 0;
}

/* Follows one place, for the derivations that are not followed yet. */
static plumb_status follow(struct search *s, struct reached *place) {
    const struct grammar *g = s->g;
    const size_t at = place->key & (GRAMMAR_MAX_CODE - 1);
    uint32_t stack = (uint32_t)(place->key >> 22);
    const int32_t arg = arg_of(g->code[at]);
    const unsigned n = place->fresh;
    struct frame frame = top_frame(s, stack);
    size_t next;
    place->fresh = 0;
    switch (op_of(g->code[at])) {
    case OP_CLASS: case OP_TOKEN: case OP_NOT_TOKEN:
        break;
    case OP_SPLIT:
        PLUMB_TRY(add_place(s, at + 1, stack, n)); /* fall through */
    case OP_JUMP:
        return add_place(s, (size_t)((int64_t)at + arg), stack, n);
    case OP_CALL:
        next = grammar_skip_jumps(g, at + 1);
        if (!grammar_is_tail(g->code[next])) {
            PLUMB_TRY(push_stack(s, (struct frame){ (uint32_t)next, 0, stack }, &stack));
        }
        return add_place(s, (size_t)g->rules[arg].start, stack, n);
    case OP_RETURN: case OP_LEAVE:
        next = frame_next(g, &frame);
        if (stack == BOTTOM) s->n_end = s->n_end + n < 2 ? s->n_end + n : 2;
        else if (next != NO_PLACE) return add_place(s, next, frame.below, n);
        break;
    case OP_COUNT:
        PLUMB_TRY(push_stack(s, (struct frame){ (uint32_t)((int64_t)at + arg), 0, stack }, &stack));
        return add_place(s, at + 1, stack, n);
    case OP_MARK:
        if (!frame_mark(g, &frame, (uint32_t)arg)) break;
        PLUMB_TRY(push_stack(s, frame, &stack));
        return add_place(s, at + 1, stack, n);
    }
    return PLUMB_OK;
}

/* Follows all places that were added.  If the state is new and goes on, it is stored. */
static plumb_status finish_state(struct search *s, int32_t parent, uint32_t symbol) {
    s->is_over |= s->work > s->max_work;
    while (s->n_todo > 0 && !s->is_over) PLUMB_TRY(follow(s, &s->places[s->todo[--s->n_todo]]));
    if (s->is_over) {
        s->n_end = 0;
        return PLUMB_OK;
    }
    for (size_t i = 0; i < s->n_place; i++) {
        const size_t at = s->places[i].key & (GRAMMAR_MAX_CODE - 1);
        const enum grammar_op op = op_of(s->g->code[at]);
        if (op != OP_CLASS && op != OP_TOKEN && op != OP_NOT_TOKEN) continue;
        const uint32_t node = op == OP_CLASS ? (uint32_t)arg_of(s->g->code[at]) : 0;
        for (unsigned k = 0; k < s->places[i].count; k++) {
            PLUMB_TRY(add_config(s, config_of(at, node, (uint32_t)(s->places[i].key >> 22))));
        }
    }
    if (s->n_made > 0) qsort(s->made, s->n_made, sizeof *s->made, compare_u64);
    size_t n = 0;
    for (size_t i = 0; i < s->n_made; i++) {
        if (n < 2 || s->made[n - 2] != s->made[i]) s->made[n++] = s->made[i];
    }
    if (n == 0 && s->n_end < 2) return PLUMB_OK;
    if (s->n_end < 2) {   /* else the search ends */
        const uint32_t id = sequences_find(&s->states, s->made, n);
        if (id == UINT32_MAX) return no_memory(s->err);
        if (id < s->n_state) return PLUMB_OK;
    }
    if (!ARRAY_GROW(s->origins, s->n_state, &s->state_cap)) return no_memory(s->err);
    s->origins[s->n_state++] = (struct origin){ parent, symbol };
    s->is_over |= s->states.n_item > CHECK_MAX_CONFIGS;
    return PLUMB_OK;
}

/* The bytes with which a state is continued: of those between which the grammar does not distinguish only one, a letter
 * or digit if there is one. */
static void find_bytes(const struct search *s, int32_t state, bool taken[256]) {
    static const char order[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    uint64_t allowed[4] = { 0 };
    bool is_done[256] = { false };
    memset(taken, 0, 256 * sizeof *taken);
    for (size_t i = 0; i < n_config(s, state); i++) config_add_bytes(s->g, config_of_state(s, state, i), allowed);
    for (unsigned i = 0; i < sizeof order - 1 + 256; i++) {
        const uint8_t b = i < sizeof order - 1 ? (uint8_t)order[i] : (uint8_t)(i - (sizeof order - 1) + ' ');
        if (!bytes_have(allowed, b) || is_done[s->g->class_of[b]]) continue;
        is_done[s->g->class_of[b]] = taken[b] = true;
    }
}

static plumb_status step_byte(struct search *s, int32_t from, uint8_t byte) {
    begin_state(s);
    s->work += n_config(s, from);
    for (size_t i = 0; i < n_config(s, from); i++) {
        const config c = config_of_state(s, from, i);
        const uint32_t at = config_at(c);
        if (op_of(s->g->code[at]) != OP_CLASS) continue;
        const struct byte_edge *edge = grammar_find_edge(s->g, config_node(c), byte);
        if (!edge) continue;
        if (edge->node == NODE_DONE) PLUMB_TRY(add_place(s, at + 1, config_stack(c), 1));
        else PLUMB_TRY(add_config(s, config_of(at, edge->node, config_stack(c))));
    }
    return finish_state(s, from, byte);
}

static plumb_status step_token(struct search *s, int32_t from, int32_t id) {
    begin_state(s);
    s->work += n_config(s, from);
    for (size_t i = 0; i < n_config(s, from); i++) {
        const config c = config_of_state(s, from, i);
        if (grammar_token_matches(s->g->code[config_at(c)], id)) {
            PLUMB_TRY(add_place(s, config_at(c) + 1, config_stack(c), 1));
        }
    }
    return finish_state(s, from, FIRST_TOKEN + (uint32_t)id);
}

static bool is_found(const struct search *s) { return s->n_end == 2; }

/* Continues a state with each byte, with each token that it names, and with one that it does not name. */
static plumb_status expand(struct search *s, int32_t from) {
    bool bytes[256];
    find_bytes(s, from, bytes);
    for (unsigned b = 0; b < 256; b++) {
        if (!bytes[b]) continue;
        PLUMB_TRY(step_byte(s, from, (uint8_t)b));
        if (is_found(s) || s->is_over) return PLUMB_OK;
    }
    int32_t other = 0;
    bool has_tokens = false;
    for (size_t i = 0; i < n_config(s, from); i++) {
        const uint32_t code = s->g->code[config_at(config_of_state(s, from, i))];
        if (op_of(code) == OP_CLASS) continue;
        has_tokens = true;
        if (arg_of(code) >= other) other = arg_of(code) + 1;
        PLUMB_TRY(step_token(s, from, arg_of(code)));
        if (is_found(s) || s->is_over) return PLUMB_OK;
    }
    return has_tokens ? step_token(s, from, other) : PLUMB_OK;
}

static plumb_status search(struct search *s, const struct grammar_uses *uses, struct ambiguity *out) {
    uint32_t stack;
    PLUMB_TRY(push_stack(s, (struct frame){ NO_PLACE, 0, 0 }, &stack));   /* BOTTOM */
    for (uint32_t i = 0; i < s->g->n_rule && !is_found(s) && !s->is_over; i++) {
        if (uses->rules[i] != RULE_USED) continue;
        begin_state(s);
        PLUMB_TRY(add_place(s, (size_t)s->g->rules[i].start, BOTTOM, 1));
        PLUMB_TRY(finish_state(s, NO_PARENT, i));
    }
    out->n_length = !is_found(s) && !s->is_over;
    for (size_t i = 0, end = s->n_state; i < s->n_state && !is_found(s) && !s->is_over; i++) {
        PLUMB_TRY(expand(s, (int32_t)i));
        if (is_found(s) || s->is_over || i + 1 < end) continue;
        out->n_length++;
        end = s->n_state;
    }
    out->is_found = is_found(s);
    out->is_complete = !is_found(s) && !s->is_over;
    return PLUMB_OK;
}

/* Writes the text of the last state, and finds its rule. */
static plumb_status write_text(const struct search *s, struct ambiguity *out) {
    size_t n = 0, last = s->n_state - 1;
    for (size_t i = last; s->origins[i].parent != NO_PARENT; i = (size_t)s->origins[i].parent) n++;
    uint32_t *symbols = alloc_array(n, sizeof *symbols);
    if (!symbols) return no_memory(s->err);
    size_t at = last;
    for (size_t k = n; k-- > 0; at = (size_t)s->origins[at].parent) symbols[k] = s->origins[at].symbol;
    out->rule = s->origins[at].symbol;
    for (size_t k = 0; k < n; k++) {
        const char byte = (char)symbols[k];
        if (symbols[k] < FIRST_TOKEN) grammar_text_add(&out->text, &byte, 1);
        else grammar_text_print(&out->text, "<[%u]>", (unsigned)(symbols[k] - FIRST_TOKEN));
    }
    free(symbols);
    return out->text.failed ? no_memory(s->err) : PLUMB_OK;
}

plumb_status grammar_find_ambiguity(const struct grammar *g, const struct grammar_uses *uses, uint64_t max_work,
                                    struct ambiguity *out, struct error *err) {
    *out = (struct ambiguity){ 0 };
    struct search s = { .g = g, .ends = uses->ends, .err = err, .max_work = max_work };
    plumb_status status = search(&s, uses, out);
    if (status == PLUMB_OK && out->is_found) status = write_text(&s, out);
    sequences_free(&s.states);
    sequences_free(&s.stacks);
    void *all[] = { s.origins, s.seen.slots, s.places, s.todo, s.made };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    if (status != PLUMB_OK) grammar_text_free(&out->text);
    return status;
}

/* Compiled for speed. */
#include "grammar/recognizer.h"

#include <stdlib.h>

static plumb_status no_memory(struct recognizer *r) {
    return error_set(&r->err, PLUMB_ERROR_MEMORY, "out of memory: the states of a grammar");
}

static plumb_status too_ambiguous(struct recognizer *r) {
    return error_set(&r->err, PLUMB_ERROR_UNSUPPORTED, "the grammar is too ambiguous: the ways to continue the text "
                     "take more than %d MB, or too long to follow", RECOGNIZER_HARD_BYTES >> 20);
}

/* Counts work; an error if there was too much of it. */
static plumb_status add_work(struct recognizer *r, uint64_t n) {
    r->work += n;
    return r->work <= RECOGNIZER_MAX_WORK ? PLUMB_OK : too_ambiguous(r);
}

/* ---- the tables of an automaton ---------------------------------------------------------------------------------- */

static void states_free(struct states *s) {
    free(s->configs);
    free(s->states);
    free(s->flags);
    free(s->next);
    free(s->local);
    free(s->stacks);
    free(s->frames);
    free(s->state_index.slots);
    free(s->stack_index.slots);
}

static uint64_t states_bytes(const struct states *s, uint32_t n_class) {
    return s->config_cap * sizeof *s->configs + s->stack_cap * sizeof *s->stacks + s->frame_cap * sizeof *s->frames +
           s->state_cap * (sizeof *s->states + sizeof *s->flags + (n_class + 1) * sizeof *s->next) +
           (s->state_index.n_slot + s->stack_index.n_slot) * sizeof *s->state_index.slots;
}

static uint64_t mix(uint64_t h) {
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ h >> 32;
}

/* Makes room for one more state. */
static plumb_status reserve_state(struct recognizer *r) {
    struct states *s = &r->s;
    const size_t row = r->g->n_class;
    if (states_bytes(s, r->g->n_class) > RECOGNIZER_HARD_BYTES) return too_ambiguous(r);
    if (s->n_state < s->state_cap) return PLUMB_OK;
    const size_t cap = s->state_cap > 0 ? 2 * s->state_cap : 64;
    const bool has_room = ARRAY_RESIZE(s->states, cap) && ARRAY_RESIZE(s->flags, cap)
                          && ARRAY_RESIZE(s->next, (uint64_t)cap * row) && ARRAY_RESIZE(s->local, cap);
    if (!has_room) return no_memory(r);
    s->state_cap = cap;
    return PLUMB_OK;
}

static uint64_t hash_state(const config *configs, size_t n, uint8_t flags) {
    uint64_t h = flags;
    for (size_t i = 0; i < n; i++) h = mix(h * 31 + configs[i]);
    return h;
}

static uint64_t hash_frames(const struct frame *f, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = mix(h * 31 + ((uint64_t)f[i].at << 32 | f[i].below)) + f[i].count;
    return mix(h);
}

static uint64_t hash_of_state(const void *user, size_t i) {
    const struct states *s = user;
    return hash_state(s->configs + s->states[i].first, s->states[i].n, s->flags[i]);
}

static uint64_t hash_of_stack(const void *user, size_t i) {
    const struct states *s = user;
    return hash_frames(s->frames + s->stacks[i].first, s->stacks[i].n);
}

/* Grows r->frames to hold n. */
static plumb_status reserve_frames(struct recognizer *r, size_t n) {
    return ARRAY_RESERVE(r->frames, 0, n, &r->frame_cap) ? PLUMB_OK : no_memory(r);
}

/* *out becomes the stack of n frames, which are sorted, and not in r->s. */
static plumb_status find_stack(struct recognizer *r, const struct frame *frames, size_t n, uint32_t *out) {
    struct states *s = &r->s;
    if (!hash_index_reserve(&s->stack_index, s->n_stack, hash_of_stack, s)) return no_memory(r);
    size_t slot = hash_index_first(&s->stack_index, hash_frames(frames, n));
    for (; s->stack_index.slots[slot] != 0; slot = hash_index_next(&s->stack_index, slot)) {
        *out = s->stack_index.slots[slot] - 1;
        const struct stack *other = &s->stacks[*out];
        if (other->n == n && memcmp(s->frames + other->first, frames, n * sizeof *frames) == 0) return PLUMB_OK;
    }
    if (s->n_stack >= STACK_NONE || states_bytes(s, r->g->n_class) > RECOGNIZER_HARD_BYTES) return too_ambiguous(r);
    if (!ARRAY_GROW(s->stacks, s->n_stack, &s->stack_cap)) return no_memory(r);
    if (!ARRAY_RESERVE(s->frames, s->n_frame, n, &s->frame_cap)) return no_memory(r);
    memcpy(s->frames + s->n_frame, frames, n * sizeof *frames);
    s->stacks[s->n_stack] = (struct stack){ (uint32_t)s->n_frame, (uint32_t)n };
    s->n_frame += n;
    *out = (uint32_t)s->n_stack++;
    s->stack_index.slots[slot] = *out + 1;
    return PLUMB_OK;
}

static plumb_status push_frame(struct recognizer *r, struct frame frame, uint32_t *out) {
    return find_stack(r, &frame, 1, out);
}

static int compare_frames(const void *a, const void *b) {
    const struct frame *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->count != y->count) return x->count < y->count ? -1 : 1;
    return (x->below > y->below) - (x->below < y->below);
}

/* *out becomes the stack with the frames of two. */
static plumb_status unite_stacks(struct recognizer *r, uint32_t a, uint32_t b, uint32_t *out) {
    *out = a;
    if (a == b) return PLUMB_OK;
    const struct stack x = r->s.stacks[a], y = r->s.stacks[b];
    PLUMB_TRY(reserve_frames(r, (size_t)x.n + y.n));
    size_t n = 0;
    for (uint32_t i = 0, j = 0; i < x.n || j < y.n; n++) {
        const struct frame *f = r->s.frames + x.first + i, *g = r->s.frames + y.first + j;
        const int order = i == x.n ? 1 : j == y.n ? -1 : compare_frames(f, g);
        r->frames[n] = order <= 0 ? *f : *g;
        i += order <= 0;
        j += order >= 0;
    }
    PLUMB_TRY(add_work(r, n));
    return n == x.n ? PLUMB_OK : find_stack(r, r->frames, n, out);
}

static plumb_status add_state(struct recognizer *r, const config *configs, size_t n, uint8_t flags) {
    struct states *s = &r->s;
    PLUMB_TRY(reserve_state(r));
    if (!ARRAY_RESERVE(s->configs, s->n_config, n, &s->config_cap)) return no_memory(r);
    if (n > 0) memcpy(s->configs + s->n_config, configs, n * sizeof *configs);
    s->states[s->n_state] = (struct configs){ (uint32_t)s->n_config, (uint32_t)n };
    s->flags[s->n_state] = flags;
    s->local[s->n_state] = 0;
    memset(s->next + s->n_state * r->g->n_class, 0, r->g->n_class * sizeof *s->next);
    s->n_config += n;
    s->n_state++;
    return PLUMB_OK;
}

/* *out becomes the state with these configurations, which are sorted. */
static plumb_status find_state(struct recognizer *r, const config *configs, size_t n, uint8_t flags, uint32_t *out) {
    struct states *s = &r->s;
    if (n == 0 && flags == 0) {
        *out = STATE_DEAD;
        return PLUMB_OK;
    }
    if (!hash_index_reserve(&s->state_index, s->n_state, hash_of_state, s)) return no_memory(r);
    size_t slot = hash_index_first(&s->state_index, hash_state(configs, n, flags));
    for (; s->state_index.slots[slot] != 0; slot = hash_index_next(&s->state_index, slot)) {
        *out = s->state_index.slots[slot] - 1;
        const struct configs *other = &s->states[*out];
        if (*out > STATE_DEAD && other->n == n && s->flags[*out] == flags &&
            (n == 0 || memcmp(s->configs + other->first, configs, n * sizeof *configs) == 0)) return PLUMB_OK;
    }
    *out = (uint32_t)s->n_state;
    PLUMB_TRY(add_state(r, configs, n, flags));
    s->state_index.slots[slot] = *out + 1;
    return PLUMB_OK;
}

/* Adds the two states and the two stacks that every automaton has. */
static plumb_status states_init(struct recognizer *r) {
    uint32_t stack;
    PLUMB_TRY(add_state(r, NULL, 0, 0));
    PLUMB_TRY(add_state(r, NULL, 0, 0));
    for (uint32_t i = 0; i < r->g->n_class; i++) r->s.next[STATE_DEAD * r->g->n_class + i] = STATE_DEAD;
    PLUMB_TRY(push_frame(r, (struct frame){ NO_PLACE, 0, STACK_BOTTOM }, &stack));
    return push_frame(r, (struct frame){ NO_PLACE, 0, STACK_UNKNOWN }, &stack);
}

/* ---- making a state ---------------------------------------------------------------------------------------------- */

static void begin_state(struct recognizer *r) {
    r->n_place = r->n_todo = r->todo_at = r->n_made = 0;
    r->made_flags = 0;
    key_set_clear(&r->seen);
}

/* *out becomes the place of an instruction, which is made if there is none. */
static plumb_status find_place(struct recognizer *r, size_t at, struct place **out) {
    const uint32_t number = key_set_number(&r->seen, at);
    if (number == r->n_place && ARRAY_GROW(r->places, r->n_place, &r->place_cap)) {
        r->places[r->n_place++] = (struct place){ (uint32_t)at, STACK_NONE, STACK_NONE };
    }
    if (number >= r->n_place) return no_memory(r);
    *out = &r->places[number];
    return PLUMB_OK;
}

/* The state includes what follows from this instruction with this stack. */
static plumb_status add_place(struct recognizer *r, size_t at, uint32_t stack) {
    struct place *place = NULL;
    PLUMB_TRY(find_place(r, at, &place));
    if (place->stack != STACK_NONE) {
        uint32_t both;
        PLUMB_TRY(unite_stacks(r, place->stack, stack, &both));
        if (both == place->stack) return PLUMB_OK;
        place->stack = both;
    } else {
        place->stack = stack;
    }
    if (place->fresh != STACK_NONE) return unite_stacks(r, place->fresh, stack, &place->fresh);
    place->fresh = stack;
    if (!ARRAY_GROW(r->todo, r->n_todo, &r->todo_cap)) return no_memory(r);
    r->todo[r->n_todo++] = (uint32_t)(place - r->places);
    return PLUMB_OK;
}

static plumb_status add_config(struct recognizer *r, uint32_t at, uint32_t node, uint32_t stack) {
    if (!ARRAY_GROW(r->made, r->n_made, &r->made_cap)) return no_memory(r);
    r->made[r->n_made++] = config_of(at, node, stack);
    if (op_of(r->g->code[at]) != OP_CLASS) r->made_flags |= STATE_TOKEN;
    return PLUMB_OK;
}

/* The end of a rule or of a count: goes on where each frame says. */
static plumb_status add_return(struct recognizer *r, uint32_t stack) {
    for (uint32_t i = 0; i < r->s.stacks[stack].n; i++) {
        const struct frame f = r->s.frames[r->s.stacks[stack].first + i];
        const uint32_t next = frame_next(r->g, &f);
        if (f.at == NO_PLACE) r->made_flags |= f.below == STACK_BOTTOM ? STATE_MAY_END : STATE_EXIT;
        else if (next != NO_PLACE) PLUMB_TRY(add_place(r, next, f.below));
    }
    return PLUMB_OK;
}

static plumb_status add_call(struct recognizer *r, size_t at, uint32_t stack, uint32_t rule) {
    size_t next = grammar_skip_jumps(r->g, at + 1);
    const struct frame frame = { (uint32_t)next, 0, stack };
    if (!grammar_is_tail(r->g->code[next])) PLUMB_TRY(push_frame(r, frame, &stack));
    return add_place(r, (size_t)r->g->rules[rule].start, stack);
}

/* A mark: goes on with the frames that have room for it. */
static plumb_status add_mark(struct recognizer *r, size_t at, uint32_t stack, uint32_t behind) {
    const struct stack s = r->s.stacks[stack];
    PLUMB_TRY(reserve_frames(r, s.n));
    size_t n = 0, n_unique = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        r->frames[n] = r->s.frames[s.first + i];
        n += frame_mark(r->g, &r->frames[n], behind);
    }
    PLUMB_TRY(add_work(r, s.n));
    if (n == 0) return PLUMB_OK;
    if (n > 1) qsort(r->frames, n, sizeof *r->frames, compare_frames);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && compare_frames(&r->frames[i], &r->frames[n_unique - 1]) == 0) continue;
        r->frames[n_unique++] = r->frames[i];
    }
    PLUMB_TRY(find_stack(r, r->frames, n_unique, &stack));
    return add_place(r, at + 1, stack);
}

static void sort_configs(config *c, size_t n) {
    if (n > 32) {
        qsort(c, n, sizeof *c, compare_u64);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        config x = c[i];
        size_t j = i;
        for (; j > 0 && c[j - 1] > x; j--) c[j] = c[j - 1];
        c[j] = x;
    }
}

/* Follows a place with the frames that are new. */
static plumb_status follow(struct recognizer *r, struct place *place) {
    const size_t at = place->at;
    const uint32_t stack = place->fresh, code = r->g->code[at];
    const int32_t arg = arg_of(code);
    const size_t target = (size_t)((int64_t)at + arg);
    place->fresh = STACK_NONE;
    uint32_t inside;
    switch (op_of(code)) {
    case OP_CLASS: case OP_TOKEN: case OP_NOT_TOKEN: return PLUMB_OK;
    case OP_SPLIT: PLUMB_TRY(add_place(r, at + 1, stack)); /* fall through */
    case OP_JUMP: return add_place(r, target, stack);
    case OP_CALL: return add_call(r, at, stack, (uint32_t)arg);
    case OP_RETURN: case OP_LEAVE: return add_return(r, stack);
    case OP_COUNT:
        PLUMB_TRY(push_frame(r, (struct frame){ (uint32_t)target, 0, stack }, &inside));
        return add_place(r, at + 1, inside);
    case OP_MARK: return add_mark(r, at, stack, (uint32_t)arg);
    }
    return PLUMB_OK;
}

/* Follows all places that were added, and finds the number of the state. */
static plumb_status finish_state(struct recognizer *r, uint32_t *out) {
    while (r->todo_at < r->n_todo) {
        PLUMB_TRY(add_work(r, 1));
        PLUMB_TRY(follow(r, &r->places[r->todo[r->todo_at++]]));
    }
    for (size_t i = 0; i < r->n_place; i++) {
        const uint32_t at = r->places[i].at, code = r->g->code[at];
        if (op_of(code) <= OP_NOT_TOKEN) {
            PLUMB_TRY(add_config(r, at, op_of(code) == OP_CLASS ? (uint32_t)arg_of(code) : 0, r->places[i].stack));
        }
    }
    PLUMB_TRY(add_work(r, r->n_made));
    sort_configs(r->made, r->n_made);
    size_t n = 0;
    for (size_t i = 0; i < r->n_made; i++) {
        const config c = r->made[i];
        if (n > 0 && config_place(r->made[n - 1]) == config_place(c)) {
            uint32_t stack;
            PLUMB_TRY(unite_stacks(r, config_stack(r->made[n - 1]), config_stack(c), &stack));
            r->made[n - 1] = config_of(config_at(c), config_node(c), stack);
        } else {
            r->made[n++] = c;
        }
    }
    if (n > 0) r->made_flags |= STATE_LIVE;
    return find_state(r, r->made, n, r->made_flags, out);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

plumb_status recognizer_step(struct recognizer *r, uint32_t state, uint8_t byte, uint32_t *to) {
    const struct grammar *g = r->g;
    size_t transition = (size_t)state * g->n_class + g->class_of[byte];
    uint32_t next = r->s.next[transition];
    if (next == STATE_UNMADE) {
        begin_state(r);
        PLUMB_TRY(add_work(r, r->s.states[state].n));
        for (uint32_t i = 0; i < r->s.states[state].n; i++) {
            config c = r->s.configs[r->s.states[state].first + i];
            uint32_t at = config_at(c), stack = config_stack(c);
            if (op_of(g->code[at]) != OP_CLASS) continue;
            const struct byte_edge *edge = grammar_find_edge(g, config_node(c), byte);
            if (!edge) continue;
            if (edge->node == NODE_DONE) PLUMB_TRY(add_place(r, at + 1, stack));
            else PLUMB_TRY(add_config(r, at, edge->node, stack));
        }
        PLUMB_TRY(finish_state(r, &next));
        r->s.next[transition] = next;
    }
    *to = next;
    return PLUMB_OK;
}

plumb_status recognizer_step_token(struct recognizer *r, uint32_t state, int32_t id, const char *bytes, size_t n,
                                uint32_t *to) {
    uint32_t after = n > 0 ? state : STATE_DEAD;
    for (size_t i = 0; i < n && after != STATE_DEAD; i++) {
        PLUMB_TRY(recognizer_step(r, after, (uint8_t)bytes[i], &after));
    }
    if (state_has(r, state, STATE_TOKEN)) {
        begin_state(r);
        for (uint32_t i = 0; i < r->s.states[state].n; i++) {
            config c = r->s.configs[r->s.states[state].first + i];
            if (!grammar_token_matches(r->g->code[config_at(c)], id)) continue;
            PLUMB_TRY(add_place(r, config_at(c) + 1, config_stack(c)));
        }
        for (uint32_t i = 0; i < r->s.states[after].n; i++) {
            config c = r->s.configs[r->s.states[after].first + i];
            PLUMB_TRY(add_config(r, config_at(c), config_node(c), config_stack(c)));
        }
        r->made_flags |= r->s.flags[after];
        PLUMB_TRY(finish_state(r, &after));
    }
    *to = after;
    return PLUMB_OK;
}

plumb_status recognizer_return(struct recognizer *r, uint32_t stack, uint32_t *out) {
    begin_state(r);
    PLUMB_TRY(add_return(r, stack));
    return finish_state(r, out);
}

plumb_status recognizer_group(struct recognizer *r, const config *configs, size_t n, uint32_t stack, uint32_t *out) {
    begin_state(r);
    for (size_t i = 0; i < n; i++) {
        const config c = configs[i];
        PLUMB_TRY(add_config(r, config_at(c), config_node(c), stack != STACK_NONE ? stack : config_stack(c)));
    }
    return finish_state(r, out);
}

plumb_status recognizer_one_frame(struct recognizer *r, uint32_t stack, uint32_t i, uint32_t *out) {
    return push_frame(r, r->s.frames[r->s.stacks[stack].first + i], out);
}

/* Replaces the count of a frame by one that stands for all as far from its bounds, and lowers the radius to the bytes
 * within which that makes no difference.  An iteration has at least one byte. */
static void generalize(const struct recognizer *r, struct frame *f, uint32_t longest, uint32_t *radius) {
    const struct counter *c = frame_counter(r->g, f);
    const uint32_t room = c->max == COUNT_UNBOUNDED ? UINT32_MAX : c->max - f->count;
    const uint32_t far = room > c->most_behind ? room - c->most_behind : 0;
    if (far < longest && far < *radius) *radius = far;
    if (f->count >= c->min) {
        f->count = COUNT_FREE + c->min;
    } else if (c->min - f->count >= (far < longest ? far : longest)) {
        if (c->min - f->count < longest && c->min - f->count < *radius) *radius = c->min - f->count;
        f->count = COUNT_LOW;
    } else {
        f->count += COUNT_FREE;
    }
}

plumb_status recognizer_local(struct recognizer *r, const config *configs, size_t n, uint32_t stack, uint32_t k,
                              uint32_t longest, struct local *out) {
    struct frame known[RECOGNIZER_MAX_KNOWN];
    uint32_t n_known = 0, n_return = 0;
    *out = (struct local){ STATE_DEAD, stack, UINT32_MAX };
    for (; n_known < RECOGNIZER_MAX_KNOWN; n_known++) {
        const struct stack *s = &r->s.stacks[out->rest];
        struct frame f = r->s.frames[s->first];
        const struct counter *counter = frame_counter(r->g, &f);
        if (s->n > 1 || f.at == NO_PLACE || (!counter && n_return == k)) break;
        n_return += !counter;
        out->rest = f.below;
        if (counter && !counter->is_exact) generalize(r, &f, longest, &out->radius);
        known[n_known] = f;
    }
    if (stack_is_counting(r, out->rest)) return PLUMB_OK;
    uint32_t top = out->rest == STACK_BOTTOM && n_return < k ? STACK_BOTTOM : STACK_UNKNOWN;
    while (n_known > 0) {
        known[--n_known].below = top;
        PLUMB_TRY(push_frame(r, known[n_known], &top));
    }
    return recognizer_group(r, configs, n, top, &out->state);
}

void config_add_bytes(const struct grammar *g, config c, uint64_t set[4]) {
    if (op_of(g->code[config_at(c)]) != OP_CLASS) return;
    const struct byte_node *node = &g->nodes[config_node(c)];
    for (uint32_t e = node->edge; e < node->edge + node->n; e++) {
        const unsigned low = g->edges[e].low, high = g->edges[e].high;
        for (unsigned word = low / 64; word <= high / 64; word++) {
            uint64_t bits = UINT64_MAX;
            if (word == low / 64) bits &= UINT64_MAX << low % 64;
            if (word == high / 64) bits &= UINT64_MAX >> (63 - high % 64);
            set[word] |= bits;
        }
    }
}

void recognizer_bytes(const struct recognizer *r, uint32_t state, uint64_t set[4]) {
    const struct configs *s = &r->s.states[state];
    set[0] = set[1] = set[2] = set[3] = 0;
    for (uint32_t i = 0; i < s->n; i++) config_add_bytes(r->g, r->s.configs[s->first + i], set);
}

plumb_status recognizer_forced(struct recognizer *r, uint32_t state, char *buf, size_t cap, size_t *n) {
    for (*n = 0; *n < cap && !(r->s.flags[state] & (STATE_MAY_END | STATE_TOKEN)); ++*n) {
        uint64_t allowed[4];
        unsigned byte = 256, n_allowed = 0;
        recognizer_bytes(r, state, allowed);
        for (unsigned b = 0; b < 256; b++) {
            if (!bytes_have(allowed, b)) continue;
            byte = b;
            n_allowed++;
        }
        if (n_allowed != 1) break;
        buf[*n] = (char)byte;
        PLUMB_TRY(recognizer_step(r, state, (uint8_t)byte, &state));
    }
    return PLUMB_OK;
}

/* ---- recognizers and positions ---------------------------------------------------------------------------------- */

plumb_status recognizer_create(struct recognizer **out, const struct grammar *g, struct error *err) {
    *out = NULL;
    struct recognizer *r = calloc(1, sizeof *r);
    if (!r) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a grammar's automaton");
    r->g = g;
    plumb_status status = states_init(r);
    if (status == PLUMB_OK) {
        *out = r;
    } else {
        *err = r->err;
        recognizer_free(r);
    }
    return status;
}

void recognizer_free(struct recognizer *r) {
    if (!r) return;
    mask_cache_free(r->masks);
    states_free(&r->s);
    free(r->places);
    free(r->todo);
    free(r->seen.slots);
    free(r->frames);
    free(r->made);
    free(r);
}

plumb_status position_init(struct position *p, struct recognizer *r) {
    *p = (struct position){ .r = r };
    uint32_t start;
    begin_state(r);
    PLUMB_TRY(add_place(r, (size_t)r->g->rules[r->g->root].start, STACK_BOTTOM));
    PLUMB_TRY(finish_state(r, &start));
    if (!ARRAY_GROW(p->states, 0, &p->cap)) return no_memory(r);
    p->states[0] = start;
    p->next = r->positions;
    p->before = &r->positions;
    if (p->next) p->next->before = &p->next;
    r->positions = p;
    return PLUMB_OK;
}

void position_free(struct position *p) {
    if (p->before) {
        *p->before = p->next;
        if (p->next) p->next->before = p->before;
    }
    free(p->states);
}

plumb_status position_push(struct position *p, uint32_t state) {
    if (!ARRAY_GROW(p->states, p->n + 1, &p->cap)) return no_memory(p->r);
    p->states[++p->n] = state;
    return PLUMB_OK;
}

/* ---- dropping states --------------------------------------------------------------------------------------------- */

/* Marks the states that are kept, and the stacks of their configurations. */
static void mark_kept(const struct recognizer *r, const struct states *from, uint32_t *states, uint32_t *stacks) {
    for (const struct position *p = r->positions; p; p = p->next) {
        for (size_t i = 0; i <= p->n; i++) states[p->states[i]] = 1;
    }
    for (size_t i = 0; i < from->n_state; i++) {
        if (from->local[i] != 0) states[i] = 1;
        for (uint32_t j = 0; states[i] != 0 && j < from->states[i].n; j++) {
            stacks[config_stack(from->configs[from->states[i].first + j])] = 1;
        }
    }
    for (size_t i = from->n_stack; i-- > 0;) {   /* what is below has a lower number */
        for (uint32_t j = 0; stacks[i] != 0 && j < from->stacks[i].n; j++) {
            stacks[from->frames[from->stacks[i].first + j].below] = 1;
        }
    }
}

/* *out becomes the stack of `from`, with the new numbers of what is below. */
static plumb_status copy_stack(struct recognizer *r, const struct states *from, struct stack stack,
                               const uint32_t *numbers, uint32_t *out) {
    PLUMB_TRY(reserve_frames(r, stack.n));
    for (uint32_t i = 0; i < stack.n; i++) {   /* the order of the numbers remains */
        r->frames[i] = from->frames[stack.first + i];
        r->frames[i].below = numbers[r->frames[i].below];
    }
    return find_stack(r, r->frames, stack.n, out);
}

/* Fills the empty automaton r->s with what is kept, in the old order, so configurations stay sorted.  states (n_state)
 * and stacks (n_stack) of zeros become the new numbers. */
static plumb_status copy_kept(struct recognizer *r, const struct states *from, uint32_t *states, uint32_t *stacks) {
    PLUMB_TRY(states_init(r));
    mark_kept(r, from, states, stacks);
    stacks[STACK_BOTTOM] = STACK_BOTTOM;
    stacks[STACK_UNKNOWN] = STACK_UNKNOWN;
    for (size_t i = STACK_UNKNOWN + 1; i < from->n_stack; i++) {
        if (stacks[i] != 0) PLUMB_TRY(copy_stack(r, from, from->stacks[i], stacks, &stacks[i]));
    }
    states[STATE_UNMADE] = STATE_UNMADE;
    states[STATE_DEAD] = STATE_DEAD;
    for (size_t i = STATE_DEAD + 1; i < from->n_state; i++) {
        if (states[i] == 0) continue;
        begin_state(r);
        for (uint32_t j = 0; j < from->states[i].n; j++) {
            config c = from->configs[from->states[i].first + j];
            PLUMB_TRY(add_config(r, config_at(c), config_node(c), stacks[config_stack(c)]));
        }
        PLUMB_TRY(find_state(r, r->made, r->n_made, from->flags[i], &states[i]));
        r->s.local[states[i]] = from->local[i];
    }
    return PLUMB_OK;
}

plumb_status recognizer_trim(struct recognizer *r) {
    r->work = 0;
    uint64_t bytes = states_bytes(&r->s, r->g->n_class);
    if (bytes < RECOGNIZER_SOFT_BYTES || bytes < 2 * r->trimmed_bytes) return PLUMB_OK;
    struct states from = r->s;
    uint32_t *states = calloc(from.n_state, sizeof *states), *stacks = calloc(from.n_stack, sizeof *stacks);
    r->s = (struct states){ 0 };
    plumb_status status = states && stacks ? copy_kept(r, &from, states, stacks) : no_memory(r);
    if (status == PLUMB_OK) {
        for (struct position *p = r->positions; p; p = p->next) {
            for (size_t i = 0; i <= p->n; i++) p->states[i] = states[p->states[i]];
        }
        r->n_trim++;
        r->trimmed_bytes = states_bytes(&r->s, r->g->n_class);
        states_free(&from);
    } else {
        states_free(&r->s);
        r->s = from;
    }
    free(states);
    free(stacks);
    return status;
}

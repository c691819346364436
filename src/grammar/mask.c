/* Masks: which tokens may follow a state.
 *
 * The configurations of a state are grouped by their stack.  A group without its stack is a local state: which tokens
 * it accepts inside its rule does not depend on what called the rule, so this local mask is computed once, by one walk
 * over the vocabulary's tree, and kept.  Where a token reaches the end of the rule and goes on, the walk notes the node
 * of the tree (an exit).  For each stack, the walk continues at these nodes, from the state after the rule.  XGrammar's
 * adaptive token mask cache (https://arxiv.org/abs/2411.15100) has the same two parts.  If there are many exits, local
 * states also know the upper places of the stack.
 *
 * Most states in which many tokens are allowed are inside of a text: they lead to themselves by most characters.  The
 * subtrees whose bytes are all of such kinds are not walked, and if the walk begins in such a state, their tokens are a
 * set that is kept (find_kinds).
 *
 * Local states know the counts on top of the stack, but not how far they are from their bounds if that is more than
 * the bytes of the longest token.  If a bound is nearer, at `radius` bytes, the local mask tells which tokens of so
 * many bytes are allowed, and a walk of the nodes with longer tokens finds the others.
 */
#include "grammar/recognizer.h"

#include <stdlib.h>

enum {
    LOCAL_CACHE_BYTES = 16 << 20,   /* local masks that are kept; when they exceed this, all are dropped */
    N_WHOLE = 16,                   /* whole masks that are kept */
    N_KIND_SET = 8,                 /* sets of the tokens of some kinds of bytes that are kept */
    MAX_GROUPS = 12,                /* a state with more groups is walked as a whole */
    MAX_EXIT_NODES = 1 << 14,       /* below the exits of a local mask, before another place of the stack is known */
    MIN_LOOP_BYTES = 32,            /* a state in which fewer may follow is walked as it is */
    MIN_RADIUS = 4                  /* below it, most tokens are longer, and a walk of the state ends soon */
};

/* Stored instead of a local mask's number if find_open found the state open. */
static const uint32_t LOCAL_OPEN = UINT32_MAX;

/* What a local state accepts, as a set, or as ids if they take less memory. */
struct local_mask {
    uint32_t *words, *ids, *exits;
    uint32_t n_id, n_exit, n_exit_nodes;
};

/* All tokens whose bytes are of some kinds. */
struct kind_set {
    uint32_t kinds, n;              /* n: tokens; kinds 0: free */
    uint32_t *words;
};

struct mask_cache {
    const struct pieces *v;
    struct kind_set sets[N_KIND_SET];   /* those that were used last come first */
    uint32_t n_word;
    struct local_mask *locals;
    size_t n_local, local_cap;
    uint64_t local_bytes;
    struct whole {
        uint32_t state, n_trim;     /* state 0: free */
        uint32_t *words;
    } whole[N_WHOLE];
    uint32_t *scratch;              /* (n_word) zeros, except during a walk */
    uint32_t *ids;                  /* (n_word) */
    uint32_t *exits;                /* of the walk */
    size_t n_exit, exit_cap;
    uint32_t *path_states, *path_ends;   /* (depth + 1) */
    bool *path_known;               /* (depth + 1) whether the bytes are of kinds whose tokens are allowed already */
    uint32_t *within, n_within;     /* (n_word) all tokens with at most n_within bytes */
    config *configs;                /* of the state, in the order of their stacks */
    size_t config_cap;
};

static plumb_status no_memory(struct recognizer *r) {
    return error_set(&r->err, PLUMB_ERROR_MEMORY, "out of memory: which of %u tokens a grammar allows",
                     r->masks ? r->masks->v->n_vocab : 0);
}

/* The tokens that a walk allows: a set, and a list of the first n_word of them if ids is not NULL.  Only tokens with
 * more than `over` and at most `most` bytes; most is MAX_PIECE for all. */
struct found {
    uint32_t *words, *ids, n, over, most;
    /* a state that leads to itself by these kinds of bytes; and those kinds of which all tokens are allowed already */
    uint32_t loop, loop_kinds, known_kinds;
    bool is_open;
};

static void allow(uint32_t *words, int32_t id) { words[id / 32] |= 1u << id % 32; }

/* Allows the tokens v->ids[first .. end). */
static void allow_range(const struct mask_cache *c, uint32_t first, uint32_t end, struct found *f) {
    for (uint32_t t = first; t < end; t++, f->n++) {
        allow(f->words, c->v->ids[t]);
        if (f->ids && f->n < c->n_word) f->ids[f->n] = (uint32_t)c->v->ids[t];
    }
}

static plumb_status note_exit(struct recognizer *r, uint32_t node) {
    struct mask_cache *c = r->masks;
    uint32_t *exits = alloc_grow(c->exits, c->n_exit, &c->exit_cap, sizeof *exits);
    if (!exits) return no_memory(r);
    c->exits = exits;
    exits[c->n_exit++] = node;
    return PLUMB_OK;
}

/* Allows those tokens of the nodes first .. end - 1 that the state accepts.  The nodes are whole subtrees. */
static plumb_status walk(struct recognizer *r, uint32_t state, uint32_t first, uint32_t end, struct found *f) {
    struct mask_cache *c = r->masks;
    const struct pieces *v = c->v;
    const uint32_t n_class = r->g->n_class;
    uint32_t *states = c->path_states, *ends = c->path_ends;
    size_t depth = 0;
    states[0] = state;
    ends[0] = end;
    c->path_known[0] = f->known_kinds != 0;
    for (uint32_t i = first; i < end;) {
        while (i == ends[depth]) depth--;
        uint32_t next = r->s.next[(size_t)states[depth] * n_class + r->g->class_of[v->bytes[i]]];
        if (next == STATE_UNMADE) PLUMB_TRY(recognizer_step(r, states[depth], v->bytes[i], &next));
        if (next == STATE_DEAD || v->longest[i] <= f->over) {
            i = v->ends[i];
            continue;
        }
        const bool is_known = c->path_known[depth] && f->known_kinds >> (v->kinds[i] & (KIND_INSIDE - 1)) & 1;
        uint32_t after = v->ends[i];
        if (next == f->loop && (v->below[i] & ~f->loop_kinds) == 0 && !(v->kinds[i] & KIND_INSIDE)) {
            if (!is_known || v->below[i] & ~f->known_kinds) allow_range(c, v->first[i], v->first[after], f);
            i = after;
            continue;
        }
        if (v->lengths[i] > f->over && !is_known) allow_range(c, v->first[i], v->first[i + 1], f);
        if (v->lengths[i] >= f->most) {
            i = after;
            continue;
        }
        if (after > i + 1) {
            uint8_t flags = r->s.flags[next];
            if (flags & STATE_EXIT) PLUMB_TRY(note_exit(r, i));
            if (!(flags & STATE_LIVE)) {
                i = after;
                continue;
            }
            depth++;
            states[depth] = next;
            ends[depth] = after;
            c->path_known[depth] = is_known;
        }
        i++;
    }
    return PLUMB_OK;
}

/* *to becomes the state to which all bytes low .. high lead; STATE_DEAD if there are several. */
static plumb_status common_next(struct recognizer *r, uint32_t state, unsigned low, unsigned high, uint32_t *to) {
    uint32_t next;
    for (unsigned b = low; b <= high; b++) {
        if (b > low && r->g->class_of[b] == r->g->class_of[b - 1]) continue;
        PLUMB_TRY(recognizer_step(r, state, (uint8_t)b, &next));
        if (b > low && next != *to) next = STATE_DEAD;
        *to = next;
        if (next == STATE_DEAD) break;
    }
    return PLUMB_OK;
}

/* *to becomes the state to which all characters of several bytes lead; STATE_DEAD if there are several. */
static plumb_status next_of_wide(struct recognizer *r, uint32_t state, uint32_t *to) {
    uint32_t common = STATE_DEAD;
    for (size_t i = 0; i < N_WIDE; i++) {
        const struct wide *w = &wide_characters[i];
        uint32_t at = STATE_DEAD;
        PLUMB_TRY(common_next(r, state, w->first[0], w->first[1], &at));
        PLUMB_TRY(common_next(r, at, w->second[0], w->second[1], &at));
        for (unsigned k = 0; k < w->n_more; k++) PLUMB_TRY(common_next(r, at, 0x80, 0xbf, &at));
        if (i > 0 && at != common) at = STATE_DEAD;
        common = at;
        if (at == STATE_DEAD) break;
    }
    *to = common;
    return PLUMB_OK;
}

/* to[kind] becomes the state to which all characters of the kind lead; STATE_DEAD if there are several. */
static plumb_status next_of_kinds(struct recognizer *r, uint32_t state, uint32_t to[N_KIND]) {
    bool is_seen[N_KIND] = { false };
    for (unsigned b = 0; b < 128; b++) {
        const enum byte_kind kind = kind_of_byte((uint8_t)b);
        uint32_t next = STATE_DEAD;
        if (!is_seen[kind] || to[kind] != STATE_DEAD) PLUMB_TRY(recognizer_step(r, state, (uint8_t)b, &next));
        to[kind] = is_seen[kind] && next != to[kind] ? STATE_DEAD : next;
        is_seen[kind] = true;
    }
    to[KIND_NOT_UTF8] = STATE_DEAD;
    return next_of_wide(r, state, &to[KIND_WIDE]);
}

/* Finds a state to which many kinds of characters lead, from the state and from itself.  If it may end its rule,
 * is_open is set instead: most nodes are exits. */
static plumb_status find_loop(struct recognizer *r, uint32_t state, struct found *f) {
    static const uint8_t common[] = { KIND_LOW, KIND_HIGH, KIND_DIGIT, KIND_OTHER, KIND_SPACE };
    uint32_t from[N_KIND], to[N_KIND], loop = STATE_DEAD;
    uint64_t bytes[4];
    unsigned n_byte = 0;
    recognizer_bytes(r, state, bytes);
    for (unsigned b = 0; b < 256; b++) n_byte += bytes_have(bytes, b);
    if (n_byte < MIN_LOOP_BYTES) return PLUMB_OK;
    PLUMB_TRY(next_of_kinds(r, state, from));
    for (size_t i = 0; i < sizeof common && loop == STATE_DEAD; i++) loop = from[common[i]];
    f->is_open = state_has(r, loop, STATE_EXIT);
    if (loop == STATE_DEAD || f->is_open) return PLUMB_OK;
    PLUMB_TRY(next_of_kinds(r, loop, to));
    for (unsigned kind = 0; kind < N_KIND; kind++) {
        if (to[kind] != loop) continue;
        f->loop_kinds |= 1u << kind;
        if (from[kind] == loop) f->known_kinds |= 1u << kind;
    }
    f->loop = f->loop_kinds != 0 ? loop : STATE_DEAD;
    return PLUMB_OK;
}

/* The tokens whose bytes are of the kinds in a set, valid until the next call; NULL if out of memory. */
static const struct kind_set *find_kinds(struct mask_cache *c, uint32_t kinds) {
    size_t at = 0;
    while (at < N_KIND_SET - 1 && c->sets[at].kinds != kinds && c->sets[at].kinds != 0) at++;
    struct kind_set set = c->sets[at];
    if (!set.words) set.words = alloc_array(c->n_word, sizeof *set.words);
    if (!set.words) return NULL;
    if (set.kinds != kinds) set.n = pieces_of_kinds(c->v, kinds, set.words);
    set.kinds = kinds;
    memmove(c->sets + 1, c->sets, at * sizeof *c->sets);
    c->sets[0] = set;
    return &c->sets[0];
}

/* Allows those of all tokens that the state accepts.  Most states accept few first bytes, so the others are skipped
 * without a step, and without looking at their nodes, which are far apart. */
static plumb_status walk_all(struct recognizer *r, uint32_t state, struct found *f) {
    struct mask_cache *c = r->masks;
    const struct pieces *v = c->v;
    uint64_t bytes[4];
    recognizer_bytes(r, state, bytes);
    if (f->over == 0 && f->most == MAX_PIECE) PLUMB_TRY(find_loop(r, state, f));
    if (f->known_kinds != 0) {
        const struct kind_set *set = find_kinds(c, f->known_kinds);
        if (!set) return no_memory(r);
        if (set->n < c->n_word) f->known_kinds = 0;   /* a list is as good */
        else f->n = set->n;
        for (uint32_t i = 0; f->known_kinds != 0 && i < c->n_word; i++) f->words[i] |= set->words[i];
    }
    for (unsigned b = 0; b < 256; b++) {
        if (bytes[b / 64] >> b % 64 == 0) b |= 63;   /* none of the others in this word */
        else if (bytes_have(bytes, b) && v->roots[b] != NO_PIECE) {
            PLUMB_TRY(walk(r, state, v->roots[b], v->ends[v->roots[b]], f));
        }
    }
    return PLUMB_OK;
}

static void drop_locals(struct recognizer *r) {
    struct mask_cache *c = r->masks;
    for (size_t i = 0; i < c->n_local; i++) {
        free(c->locals[i].words);
        free(c->locals[i].ids);
        free(c->locals[i].exits);
    }
    c->n_local = 0;
    c->local_bytes = 0;
    for (size_t i = 0; i < r->s.n_state; i++) r->s.local[i] = 0;
}

static uint32_t *copy_words(const uint32_t *from, size_t n) {
    uint32_t *to = alloc_array(n, sizeof *to);
    if (to && n > 0) memcpy(to, from, n * sizeof *to);
    return to;
}

/* Whether most nodes would be exits of the mask of a local state, so that more of the stack should be known. */
static plumb_status find_open(struct recognizer *r, uint32_t state, bool *is_open) {
    struct found f = { 0 };
    if (r->s.local[state] == 0) PLUMB_TRY(find_loop(r, state, &f));
    if (f.is_open) r->s.local[state] = LOCAL_OPEN;
    *is_open = r->s.local[state] == LOCAL_OPEN;
    return PLUMB_OK;
}

/* *out becomes the mask of a local state; valid until the next call. */
static plumb_status find_local(struct recognizer *r, uint32_t state, const struct local_mask **out) {
    struct mask_cache *c = r->masks;
    if (r->s.local[state] != 0 && r->s.local[state] != LOCAL_OPEN) {
        *out = &c->locals[r->s.local[state] - 1];
        return PLUMB_OK;
    }
    if (c->local_bytes > LOCAL_CACHE_BYTES) drop_locals(r);
    struct local_mask *locals = alloc_grow(c->locals, c->n_local, &c->local_cap, sizeof *locals);
    if (!locals) return no_memory(r);
    c->locals = locals;
    struct local_mask l = { 0 };
    struct found f = { .words = c->scratch, .ids = c->ids, .most = MAX_PIECE };
    c->n_exit = 0;
    plumb_status status = walk_all(r, state, &f);
    l.n_id = f.n;
    bool is_set = l.n_id >= c->n_word;
    if (status == PLUMB_OK && is_set) l.words = copy_words(c->scratch, c->n_word);
    else if (status == PLUMB_OK) l.ids = copy_words(c->ids, l.n_id);
    if (is_set) memset(c->scratch, 0, c->n_word * sizeof *c->scratch);
    else for (uint32_t i = 0; i < l.n_id; i++) c->scratch[c->ids[i] / 32] = 0;
    if (status != PLUMB_OK) return status;
    for (size_t i = 0; i < c->n_exit; i++) l.n_exit_nodes += c->v->ends[c->exits[i]] - c->exits[i] - 1;
    l.n_exit = (uint32_t)c->n_exit;
    l.exits = copy_words(c->exits, c->n_exit);
    if (!l.exits || !(l.words || l.ids)) {
        free(l.exits);
        free(l.words);
        free(l.ids);
        return no_memory(r);
    }
    c->local_bytes += sizeof l + 4 * (uint64_t)(l.n_exit + (l.words ? c->n_word : l.n_id));
    c->locals[c->n_local++] = l;
    r->s.local[state] = (uint32_t)c->n_local;
    *out = &c->locals[c->n_local - 1];
    return PLUMB_OK;
}

/* Allows what a state accepts, as far as that depends on its configurations only. */
static plumb_status walk_state(struct recognizer *r, uint32_t state, uint32_t over, uint32_t *words) {
    return walk_all(r, state, &(struct found){ .words = words, .over = over, .most = MAX_PIECE });
}

/* Makes c->within the set of all tokens with at most `most` bytes. */
static void set_within(struct mask_cache *c, uint32_t most) {
    const struct pieces *v = c->v;
    const uint32_t low = most < c->n_within ? most : c->n_within, high = most < c->n_within ? c->n_within : most;
    for (uint32_t i = v->of_length[low + 1]; i < v->of_length[high + 1]; i++) {
        c->within[v->by_length[i] / 32] ^= 1u << v->by_length[i] % 32;
    }
    c->n_within = most;
}

/* Allows the tokens of a local mask with at most so many bytes. */
static void add_local(struct mask_cache *c, const struct local_mask *l, uint32_t most, uint32_t *words) {
    set_within(c, most);
    for (uint32_t i = 0; l->words && i < c->n_word; i++) words[i] |= l->words[i] & c->within[i];
    for (uint32_t i = 0; l->ids && i < l->n_id; i++) {
        words[l->ids[i] / 32] |= c->within[l->ids[i] / 32] & 1u << l->ids[i] % 32;
    }
}

/* Allows what n configurations accept as text, all with the same stack. */
static plumb_status add_group(struct recognizer *r, const config *configs, size_t n, uint32_t stack, uint32_t *words) {
    struct mask_cache *c = r->masks;
    const uint32_t longest = c->v->depth < MAX_PIECE ? c->v->depth : MAX_PIECE;
    uint32_t after, state;
    struct local local;
    const struct local_mask *l = NULL;
    for (uint32_t k = 0;; k++) {
        PLUMB_TRY(recognizer_local(r, configs, n, stack, k, longest, &local));
        if (local.state == STATE_DEAD || local.radius < MIN_RADIUS) {
            PLUMB_TRY(recognizer_group(r, configs, n, stack, &state));
            return walk_state(r, state, 0, words);
        }
        PLUMB_TRY(recognizer_return(r, local.rest, &after));
        const bool is_last = k == RECOGNIZER_MAX_KNOWN || !state_has(r, after, STATE_LIVE);
        bool is_open = false;
        if (!is_last) PLUMB_TRY(find_open(r, local.state, &is_open));
        if (is_open) continue;
        PLUMB_TRY(find_local(r, local.state, &l));
        if (is_last || l->n_exit_nodes <= MAX_EXIT_NODES) break;
    }
    const uint32_t most = local.radius < longest ? local.radius : MAX_PIECE;
    add_local(c, l, most, words);
    for (uint32_t i = 0; state_has(r, after, STATE_LIVE) && i < l->n_exit; i++) {
        const uint32_t node = l->exits[i];
        if (c->v->lengths[node] >= most) continue;
        PLUMB_TRY(walk(r, after, node + 1, c->v->ends[node], &(struct found){ .words = words, .most = most }));
    }
    if (most == MAX_PIECE) return PLUMB_OK;
    PLUMB_TRY(recognizer_group(r, configs, n, stack, &state));
    return walk_state(r, state, most, words);
}

/* Allows what n configurations accept as text, all with the same stack.  If some of its frames count, each frame is a
 * stack of its own. */
static plumb_status add_frames(struct recognizer *r, const config *configs, size_t n, uint32_t *words) {
    const uint32_t stack = config_stack(configs[0]), n_frame = r->s.stacks[stack].n;
    if (n_frame == 1 || !stack_is_counting(r, stack)) return add_group(r, configs, n, stack, words);
    for (uint32_t i = 0; i < n_frame; i++) {
        uint32_t one;
        PLUMB_TRY(recognizer_one_frame(r, stack, i, &one));
        PLUMB_TRY(add_group(r, configs, n, one, words));
    }
    return PLUMB_OK;
}

static int by_stack(const void *a, const void *b) {
    const uint32_t x = config_stack(*(const config *)a), y = config_stack(*(const config *)b);
    return (x > y) - (x < y);
}

/* Allows the tokens of token elements. */
static void add_tokens(struct recognizer *r, const config *configs, size_t n, uint32_t *words) {
    const struct pieces *v = r->masks->v;
    for (size_t i = 0; i < n; i++) {
        uint32_t code = r->g->code[config_at(configs[i])];
        int32_t id = arg_of(code);
        if (op_of(code) == OP_TOKEN && (uint32_t)id < v->n_vocab) allow(words, id);
        for (uint32_t t = 0; op_of(code) == OP_NOT_TOKEN && t < v->n_vocab; t++) {
            if ((int32_t)t != id) allow(words, (int32_t)t);
        }
    }
}

/* Copies the configurations of a state, as new states move them, and sorts them by their stacks. */
static plumb_status copy_configs(struct recognizer *r, uint32_t state) {
    struct mask_cache *c = r->masks;
    const struct configs *s = &r->s.states[state];
    if (s->n > c->config_cap) {
        config *configs = realloc(c->configs, s->n * sizeof *configs);
        if (!configs) return no_memory(r);
        c->configs = configs;
        c->config_cap = s->n;
    }
    if (s->n > 0) memcpy(c->configs, r->s.configs + s->first, s->n * sizeof *c->configs);
    if (s->n > 1) qsort(c->configs, s->n, sizeof *c->configs, by_stack);
    return PLUMB_OK;
}

static plumb_status make_mask(struct recognizer *r, uint32_t state, uint32_t *words) {
    struct mask_cache *c = r->masks;
    const size_t n = r->s.states[state].n;
    memset(words, 0, c->n_word * sizeof *words);
    PLUMB_TRY(copy_configs(r, state));
    size_t n_group = 0;
    for (size_t i = 0; i < n && n_group <= MAX_GROUPS; i++) {
        const uint32_t stack = config_stack(c->configs[i]);
        if (i > 0 && stack == config_stack(c->configs[i - 1])) continue;
        n_group += stack_is_counting(r, stack) ? r->s.stacks[stack].n : 1;
    }
    if (n_group > MAX_GROUPS) {
        PLUMB_TRY(walk_state(r, state, 0, words));
    } else {
        for (size_t i = 0, end; i < n; i = end) {
            for (end = i + 1; end < n && config_stack(c->configs[end]) == config_stack(c->configs[i]);) end++;
            PLUMB_TRY(add_frames(r, c->configs + i, end - i, words));
        }
    }
    if (state_has(r, state, STATE_TOKEN)) add_tokens(r, c->configs, n, words);
    for (uint32_t i = 0; i < c->v->n_eog; i++) {   /* nothing but the end of the grammar allows these */
        int32_t id = c->v->eog[i];
        words[id / 32] &= ~(1u << id % 32);
        if (state_has(r, state, STATE_MAY_END)) allow(words, id);
    }
    return PLUMB_OK;
}

plumb_status recognizer_mask(struct recognizer *r, uint32_t state, const uint32_t **mask) {
    struct whole *w = &r->masks->whole[state % N_WHOLE];
    if (w->state != state || w->n_trim != r->n_trim) {
        w->state = STATE_UNMADE;
        r->work = 0;
        PLUMB_TRY(make_mask(r, state, w->words));
        w->state = state;
        w->n_trim = r->n_trim;
    }
    *mask = w->words;
    return PLUMB_OK;
}

plumb_status recognizer_set_vocabulary(struct recognizer *r, const struct pieces *v) {
    struct mask_cache *c = calloc(1, sizeof *c);
    if (!c) return no_memory(r);
    r->masks = c;
    c->v = v;
    c->n_word = (v->n_vocab + 31) / 32;
    c->scratch = calloc((size_t)c->n_word * (N_WHOLE + 2), sizeof *c->scratch);
    c->ids = alloc_array(c->n_word, sizeof *c->ids);
    c->path_states = alloc_array((uint64_t)v->depth + 1, sizeof *c->path_states);
    c->path_ends = alloc_array((uint64_t)v->depth + 1, sizeof *c->path_ends);
    c->path_known = alloc_array((uint64_t)v->depth + 1, sizeof *c->path_known);
    if (!c->scratch || !c->ids || !c->path_states || !c->path_ends || !c->path_known) {
        return no_memory(r);
    }
    c->within = c->scratch + c->n_word;
    for (size_t i = 0; i < N_WHOLE; i++) c->whole[i].words = c->scratch + (i + 2) * c->n_word;
    return PLUMB_OK;
}

void mask_cache_free(struct mask_cache *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n_local; i++) {
        free(c->locals[i].words);
        free(c->locals[i].ids);
        free(c->locals[i].exits);
    }
    for (size_t i = 0; i < N_KIND_SET; i++) free(c->sets[i].words);
    free(c->locals);
    free(c->configs);
    free(c->scratch);
    free(c->ids);
    free(c->exits);
    free(c->path_states);
    free(c->path_ends);
    free(c->path_known);
    free(c);
}

/* Masks: which tokens may follow a state.
 *
 * The configurations of a state are grouped by their stack.  A group without its stack is a local state: which tokens
 * it accepts inside its rule does not depend on what called the rule, so this local mask is computed once, by one walk
 * over the vocabulary's tree, and kept.  Where a token reaches the end of the rule and goes on, the walk notes the node
 * of the tree (an exit).  For each stack, the walk continues at these nodes, from the state after the rule.  XGrammar's
 * adaptive token mask cache (https://arxiv.org/abs/2411.15100) has the same two parts.  If there are many exits, local
 * states also know the upper places of the stack.
 *
 * Most states in which many tokens are allowed are inside of a text: most characters lead to one state, the loop, and
 * from there to itself.  Or all characters of some kinds may follow for a while, as in a label of a host name, which
 * has at most 63.  The tokens whose bytes are of such kinds are a set that is kept (find_kinds), and the walk begins
 * with it.  It does not visit subtrees of which the set says all.  Where a token of the set is refused, the walk takes
 * it away.
 *
 * Local states know the counts on top of the stack, but not how far they are from their bounds if that is more than
 * the bytes of the longest token.  If a bound is nearer, at `radius` bytes, the local mask tells which tokens of so
 * many bytes are allowed, and a walk of the nodes with longer tokens finds the others.
 */
/* Compiled for speed: masks then take little more than half the time, and the module is 6 KB larger. */
#include "grammar/recognizer.h"

#include <stdlib.h>

enum {
    LOCAL_CACHE_BYTES = 16 << 20,   /* local masks that are kept; when they exceed this, all are dropped */
    N_WHOLE = 16,                   /* whole masks that are kept */
    N_KIND_SET = 8,                 /* sets of the tokens of some kinds of bytes that are kept */
    MAX_GROUPS = 12,                /* a state with more groups is walked as a whole */
    MAX_EXIT_NODES = 1 << 14,       /* below the exits of a local mask, before another place of the stack is known */
    MIN_SHARE = 64,                 /* a state in whose walk are fewer nodes than one in 64 is walked as it is */
    MAX_REACH = 32,                 /* bytes as far as which find_reach looks, */
    MAX_REACHED = 4,                /* and states that it follows at once */
    MAX_AHEAD = 64,                 /* a state with more configurations is walked as it is: a look ahead visits all */
    MIN_RADIUS = 4                  /* below it, most tokens are longer, and a walk of the state ends soon */
};

/* Stored instead of a local mask's number if find_open found the state open. */
static const uint32_t LOCAL_OPEN = UINT32_MAX;

/* What a local state accepts, as a set, or as ids if they take less memory. */
struct local_mask {
    uint32_t *words, *ids, *exits;
    uint32_t n_id, n_exit, n_exit_nodes;
};

/* All tokens whose bytes are of some kinds, the first of them of other ones. */
struct kind_set {
    uint32_t first, kinds;          /* kinds 0: free */
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
    uint8_t *path_flags;            /* (depth + 1) */
    uint32_t *beyond, n_within;     /* (n_word) all tokens with more than n_within bytes */
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
    /* The kinds of characters that lead from the state `loop` to itself, or that may follow as far as `reach` bytes.
     * All tokens with at most `reach` bytes of these kinds whose first byte is of one of first_kinds are allowed
     * already, as far as the walk does not take them away.  first_kinds 0: none. */
    uint32_t loop, kinds, first_kinds, reach;
    bool begins_wide;        /* all characters of several bytes but the separators lead from the state to the loop */
    bool is_open, refuses_separators;   /* the loop accepts all characters of several bytes but U+2028 and U+2029 */
};

/* Of the path to a node.  All its bytes are of kinds whose tokens are allowed already; and its state is the loop, or
 * inside of a character that leads to the loop. */
enum { PATH_IS_KNOWN = 1, PATH_IS_LOOP = 2 };

static void allow(uint32_t *words, int32_t id) { words[id / 32] |= 1u << id % 32; }

/* Allows the tokens v->ids[first .. end). */
static void allow_range(const struct mask_cache *c, uint32_t first, uint32_t end, struct found *f) {
    for (uint32_t t = first; t < end; t++, f->n++) {
        allow(f->words, c->v->ids[t]);
        if (f->ids && f->n < c->n_word) f->ids[f->n] = (uint32_t)c->v->ids[t];
    }
}

/* Takes away the tokens of the nodes first .. end - 1, whole subtrees. */
static void refuse_nodes(const struct mask_cache *c, uint32_t first, uint32_t end, struct found *f) {
    for (uint32_t t = c->v->first[first]; t < c->v->first[end]; t++) {
        f->words[c->v->ids[t] / 32] &= ~(1u << c->v->ids[t] % 32);
    }
}

/* Returns the place of the first of n nodes, which are in order, that is not before `node`; n if there is none. */
static size_t place_of(const uint32_t *nodes, size_t n, uint32_t node) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (nodes[middle] < node) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Allows the tokens of the nodes first .. end - 1, which the loop accepts as far as there are no separators, or if they
 * are allowed already, takes away those with separators. */
static void allow_loop(const struct mask_cache *c, uint32_t first, uint32_t end, bool is_known, struct found *f) {
    const struct pieces *v = c->v;
    const size_t n = f->refuses_separators ? v->n_separator : 0;
    /* `first` itself leads to the loop. */
    for (size_t i = place_of(v->separators, n, first + 1); i < n && v->separators[i] < end; i++) {
        const uint32_t separator = v->separators[i];
        if (is_known) refuse_nodes(c, separator, v->ends[separator], f);
        else allow_range(c, v->first[first], v->first[separator], f);
        first = v->ends[separator];
    }
    if (!is_known) allow_range(c, v->first[first], v->first[end], f);
}

static plumb_status note_exit(struct recognizer *r, uint32_t node) {
    struct mask_cache *c = r->masks;
    if (!ARRAY_GROW(c->exits, c->n_exit, &c->exit_cap)) return no_memory(r);
    c->exits[c->n_exit++] = node;
    return PLUMB_OK;
}

/* Allows those tokens of the nodes first .. end - 1 that the state accepts.  The nodes are whole subtrees. */
static plumb_status walk(struct recognizer *r, uint32_t state, uint32_t first, uint32_t end, struct found *f) {
    struct mask_cache *c = r->masks;
    const struct pieces *v = c->v;
    const uint32_t n_class = r->g->n_class;
    uint32_t *states = c->path_states, *ends = c->path_ends;
    const bool has_text_loop = f->loop != STATE_UNMADE && (KINDS_OF_TEXT & ~f->kinds) == 0;
    const uint32_t *rare = has_text_loop ? v->rare + place_of(v->rare, v->n_rare, first) : NULL;
    size_t depth = 0;
    states[0] = state;
    ends[0] = end;
    c->path_flags[0] = (uint8_t)((f->first_kinds != 0 ? PATH_IS_KNOWN : 0) | (f->begins_wide ? PATH_IS_LOOP : 0));
    for (uint32_t i = first; i < end;) {
        while (i == ends[depth]) depth--;
        if (rare && depth > 0 && c->path_flags[depth] == (PATH_IS_KNOWN | PATH_IS_LOOP)) {   /* others are allowed */
            while (*rare < i) rare++;
            i = *rare < ends[depth] ? *rare : ends[depth];
            if (i == ends[depth]) continue;
        }
        uint32_t next = r->s.next[(size_t)states[depth] * n_class + r->g->class_of[v->bytes[i]]];
        if (next == STATE_UNMADE) PLUMB_TRY(recognizer_step(r, states[depth], v->bytes[i], &next));
        const uint32_t kinds = v->lengths[i] == 1 ? f->first_kinds : f->kinds;
        const bool is_known = c->path_flags[depth] & PATH_IS_KNOWN && kinds >> (v->kinds[i] & (KIND_INSIDE - 1)) & 1
                              && v->lengths[i] <= f->reach;
        uint32_t after = v->ends[i];
        if (next == STATE_DEAD || v->longest[i] <= f->over) {
            if (is_known) refuse_nodes(c, i, after, f);
            i = after;
            continue;
        }
        if (next == f->loop && (v->below[i] & ~f->kinds) == 0 && !(v->kinds[i] & KIND_INSIDE)) {
            allow_loop(c, i, after, is_known, f);
            i = after;
            continue;
        }
        if (is_known && f->loop == STATE_UNMADE && (v->below[i] & ~f->kinds) == 0 && v->longest[i] <= f->reach) {
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
                if (is_known) refuse_nodes(c, i + 1, after, f);
                i = after;
                continue;
            }
            depth++;
            states[depth] = next;
            ends[depth] = after;
            const bool is_inside = v->kinds[i] & KIND_INSIDE && c->path_flags[depth - 1] & PATH_IS_LOOP;
            c->path_flags[depth] = (uint8_t)((is_known ? PATH_IS_KNOWN : 0)
                                             | (next == f->loop || is_inside ? PATH_IS_LOOP : 0));
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

/* Follows all characters of a row of wide_characters.  *common becomes the state to which they lead, or STATE_DEAD if
 * there are several or it was another one before; it is STATE_UNMADE in front of the first row. */
static plumb_status follow_wide(struct recognizer *r, uint32_t state, struct wide w, uint32_t *common) {
    uint32_t at = STATE_DEAD;
    PLUMB_TRY(common_next(r, state, w.first[0], w.first[1], &at));
    PLUMB_TRY(common_next(r, at, w.second[0], w.second[1], &at));
    for (unsigned k = 0; k < w.n_more; k++) PLUMB_TRY(common_next(r, at, 0x80, 0xbf, &at));
    *common = *common == STATE_UNMADE || *common == at ? at : STATE_DEAD;
    return PLUMB_OK;
}

/* *to becomes the state to which all characters of several bytes lead, STATE_DEAD if there are several; without U+2028
 * and U+2029, which `.` of JavaScript does not match.  *separators becomes the state to which those two lead;
 * STATE_UNMADE if there are two. */
static plumb_status next_of_wide(struct recognizer *r, uint32_t state, uint32_t *to, uint32_t *separators) {
    static const struct wide parts[] = {   /* of E1 80 80 to EC BF BF, without E2 80 80 to E2 80 BF */
        { { 0xe1, 0xe1 }, { 0x80, 0xbf }, 1 }, { { 0xe2, 0xe2 }, { 0x81, 0xbf }, 1 },
        { { 0xe3, 0xec }, { 0x80, 0xbf }, 1 } };
    uint32_t at = STATE_DEAD, ends[2];
    *to = STATE_UNMADE;
    for (size_t i = 0; i < N_WIDE && *to != STATE_DEAD; i++) {
        const struct wide *w = &wide_characters[i];
        const bool has_separators = w->first[0] < 0xe2 && w->first[1] > 0xe2;
        if (!has_separators) PLUMB_TRY(follow_wide(r, state, *w, to));
        for (size_t k = 0; has_separators && k < sizeof parts / sizeof *parts; k++) {
            PLUMB_TRY(follow_wide(r, state, parts[k], to));
        }
    }
    PLUMB_TRY(recognizer_step(r, state, 0xe2, &at));
    PLUMB_TRY(recognizer_step(r, at, 0x80, &at));
    PLUMB_TRY(common_next(r, at, 0x80, 0xa7, &ends[0]));
    PLUMB_TRY(common_next(r, at, 0xaa, 0xbf, &ends[1]));
    PLUMB_TRY(recognizer_step(r, at, 0xa8, separators));
    PLUMB_TRY(recognizer_step(r, at, 0xa9, &at));
    if (at != *separators) *separators = STATE_UNMADE;
    if (ends[0] != *to || ends[1] != *to) *to = STATE_DEAD;
    return PLUMB_OK;
}

/* to[kind] becomes the state to which all characters of the kind lead, of KIND_WIDE as in next_of_wide; STATE_DEAD if
 * there are several. */
static plumb_status next_of_kinds(struct recognizer *r, uint32_t state, uint32_t to[N_KIND], uint32_t *separators) {
    bool is_seen[N_KIND] = { false };
    for (unsigned b = 0; b < 128; b++) {
        const enum byte_kind kind = kind_of_byte((uint8_t)b);
        uint32_t next = STATE_DEAD;
        if (!is_seen[kind] || to[kind] != STATE_DEAD) PLUMB_TRY(recognizer_step(r, state, (uint8_t)b, &next));
        to[kind] = is_seen[kind] && next != to[kind] ? STATE_DEAD : next;
        is_seen[kind] = true;
    }
    to[KIND_NOT_UTF8] = STATE_DEAD;
    return next_of_wide(r, state, &to[KIND_WIDE], separators);
}

/* The kinds of which all first bytes may follow, or, with is_most, more than half of them. */
static uint32_t kinds_of_bytes(const uint64_t bytes[4], bool is_most) {
    unsigned n[N_KIND] = { 0 }, n_live[N_KIND] = { 0 };
    for (unsigned b = 0; b < 256; b++) {
        const unsigned kind = b < 0x80 ? kind_of_byte((uint8_t)b) : KIND_WIDE;
        if (b >= 0x80 && (b < wide_characters[0].first[0] || b > wide_characters[N_WIDE - 1].first[1])) continue;
        n[kind]++;
        n_live[kind] += bytes_have(bytes, b);
    }
    uint32_t kinds = 0;
    for (unsigned kind = 0; kind < N_KIND; kind++) {
        const bool may_follow = is_most ? 2 * n_live[kind] > n[kind] : n[kind] > 0 && n_live[kind] == n[kind];
        if (may_follow) kinds |= 1u << kind;
    }
    return kinds;
}

/* Whether the walk of the nodes that begin with bytes of some kinds is so long that a loop is worth finding. */
static bool is_long(const struct pieces *v, const uint64_t bytes[4], uint32_t kinds) {
    uint32_t n = 0;
    for (unsigned b = 0; b < 256; b++) {
        const uint32_t root = bytes_have(bytes, b) ? v->roots[b] : NO_PIECE;
        const bool is_counted = root != NO_PIECE && kinds >> (v->kinds[root] & (KIND_INSIDE - 1)) & 1;
        if (is_counted) n += v->ends[root] - root;
    }
    return (uint64_t)n * MIN_SHARE >= v->n_node;
}

/* Finds a state to which many kinds of characters lead, from the state, or behind its first byte, and from itself.  If
 * it may end its rule, is_open is set instead: most nodes are exits. */
static plumb_status find_loop(struct recognizer *r, uint32_t state, const uint64_t bytes[4], struct found *f) {
    static const uint8_t common[] = { KIND_LOW, KIND_HIGH, KIND_DIGIT, KIND_OTHER, KIND_SPACE };
    uint32_t to[N_KIND], loop = STATE_DEAD, wide = STATE_DEAD, separators;
    for (unsigned b = 0; b < 2 && loop == STATE_DEAD; b++) {
        uint32_t at = state;
        for (unsigned first = 0; b == 1 && first < 256 && at == state; first++) {
            if (bytes_have(bytes, first)) PLUMB_TRY(recognizer_step(r, state, (uint8_t)first, &at));
        }
        PLUMB_TRY(next_of_kinds(r, at, to, &separators));
        if (b == 0) wide = to[KIND_WIDE];
        for (size_t i = 0; i < sizeof common && loop == STATE_DEAD; i++) loop = to[common[i]];
    }
    f->is_open = state_has(r, loop, STATE_EXIT);
    if (loop == STATE_DEAD || f->is_open) return PLUMB_OK;
    PLUMB_TRY(next_of_kinds(r, loop, to, &separators));
    f->refuses_separators = separators == STATE_DEAD;
    if (separators != STATE_DEAD && separators != loop) to[KIND_WIDE] = STATE_DEAD;
    for (unsigned kind = 0; kind < N_KIND; kind++) {
        if (to[kind] == loop) f->kinds |= 1u << kind;
    }
    f->first_kinds = f->kinds & kinds_of_bytes(bytes, true);
    if (f->kinds == 0) return PLUMB_OK;
    f->reach = MAX_PIECE;
    f->loop = loop;
    f->begins_wide = wide == loop;
    return PLUMB_OK;
}

/* The states to which characters of one byte lead. */
struct reached { uint32_t states[MAX_REACHED], n; };

/* *to becomes the states to which the bytes of some kinds lead from other states.  to->n is 0 if that may be none, the
 * end of a rule, or too many. */
static plumb_status follow_kinds(struct recognizer *r, const struct reached *from, uint32_t kinds, struct reached *to) {
    to->n = 0;
    for (uint32_t i = 0; i < from->n; i++) {
        for (unsigned b = 0; b < 128; b++) {
            uint32_t next, k = 0;
            if (!(kinds >> kind_of_byte((uint8_t)b) & 1)) continue;
            PLUMB_TRY(recognizer_step(r, from->states[i], (uint8_t)b, &next));
            while (k < to->n && to->states[k] != next) k++;
            if (k < to->n) continue;
            if (next == STATE_DEAD || state_has(r, next, STATE_EXIT) || k == MAX_REACHED) {
                to->n = 0;
                return PLUMB_OK;
            }
            to->states[to->n++] = next;
        }
    }
    return PLUMB_OK;
}

/* Finds kinds of characters of one byte of which all may follow for a while. */
static plumb_status find_reach(struct recognizer *r, uint32_t state, const uint64_t bytes[4], struct found *f) {
    struct reached reached = { { state }, 1 }, next;
    const uint32_t frequent = 1u << KIND_SPACE | 1u << KIND_DIGIT | 1u << KIND_LOW_HEX | 1u << KIND_LOW
                              | 1u << KIND_HIGH_HEX | 1u << KIND_HIGH | 1u << KIND_DASH | 1u << KIND_OTHER;
    const uint32_t first = kinds_of_bytes(bytes, false) & frequent;
    uint32_t kinds = frequent;
    if (!is_long(r->masks->v, bytes, first)) return PLUMB_OK;
    PLUMB_TRY(follow_kinds(r, &reached, first, &next));
    for (uint32_t i = 0; i < next.n; i++) {
        uint64_t after[4];
        recognizer_bytes(r, next.states[i], after);
        kinds &= kinds_of_bytes(after, false);
    }
    uint32_t reach = 0;
    for (; next.n > 0 && reach < MAX_REACH && reach < r->masks->v->depth; reach++) {
        reached = next;
        PLUMB_TRY(follow_kinds(r, &reached, kinds, &next));
    }
    if (reach < 2) return PLUMB_OK;
    f->kinds = kinds;
    f->first_kinds = first & kinds;
    f->reach = reach;
    return PLUMB_OK;
}

/* The tokens that find_loop or find_reach allows, of any length, valid until the next call; NULL if out of memory. */
static const struct kind_set *find_kinds(struct mask_cache *c, uint32_t first, uint32_t kinds) {
    size_t at = 0;
    for (const struct kind_set *s = c->sets; at < N_KIND_SET - 1 && s->kinds != 0; at++, s++) {
        if (s->kinds == kinds && s->first == first) break;
    }
    struct kind_set set = c->sets[at];
    if (!set.words) set.words = alloc_array(c->n_word, sizeof *set.words);
    if (!set.words) return NULL;
    if (set.kinds != kinds || set.first != first) pieces_of_kinds(c->v, first, kinds, set.words);
    set.first = first;
    set.kinds = kinds;
    memmove(c->sets + 1, c->sets, at * sizeof *c->sets);
    c->sets[0] = set;
    return &c->sets[0];
}

/* Makes c->beyond the set of all tokens with more than `most` bytes. */
static void set_beyond(struct mask_cache *c, uint32_t most) {
    const struct pieces *v = c->v;
    const uint32_t low = most < c->n_within ? most : c->n_within, high = most < c->n_within ? c->n_within : most;
    for (uint32_t i = v->of_length[low + 1]; i < v->of_length[high + 1]; i++) {
        c->beyond[v->by_length[i] / 32] ^= 1u << v->by_length[i] % 32;
    }
    c->n_within = most;
}

/* Allows the tokens with which the walk begins, if they are more than a list would have. */
static plumb_status allow_kinds(struct recognizer *r, const uint64_t bytes[4], struct found *f) {
    struct mask_cache *c = r->masks;
    const struct pieces *v = c->v;
    const struct kind_set *set = find_kinds(c, f->first_kinds, f->kinds);
    if (!set) return no_memory(r);
    set_beyond(c, f->reach);
    for (uint32_t i = 0; i < c->n_word; i++) {
        f->words[i] = set->words[i] & ~c->beyond[i];
        f->n += (uint32_t)__builtin_popcount(f->words[i]);
    }
    if (f->n < c->n_word) {
        memset(f->words, 0, c->n_word * sizeof *f->words);
        f->n = f->first_kinds = 0;
    }
    for (unsigned b = 0; b < 128 && f->first_kinds != 0; b++) {
        const bool is_refused = f->first_kinds >> kind_of_byte((uint8_t)b) & 1 && !bytes_have(bytes, b);
        if (is_refused && v->roots[b] != NO_PIECE) refuse_nodes(c, v->roots[b], v->ends[v->roots[b]], f);
    }
    for (unsigned b = 128; b < 256 && f->first_kinds >> KIND_WIDE & 1; b++) {
        if (!bytes_have(bytes, b) && v->roots[b] != NO_PIECE) refuse_nodes(c, v->roots[b], v->ends[v->roots[b]], f);
    }
    return PLUMB_OK;
}

/* Whether a look at what follows a state costs less than it may save. */
static bool may_look_ahead(const struct recognizer *r, uint32_t state, const uint64_t bytes[4]) {
    return r->s.states[state].n <= MAX_AHEAD && is_long(r->masks->v, bytes, UINT32_MAX);
}

/* Finds what the walk of a state need not visit. */
static plumb_status find_shortcut(struct recognizer *r, uint32_t state, const uint64_t bytes[4], struct found *f) {
    if (!may_look_ahead(r, state, bytes)) return PLUMB_OK;
    PLUMB_TRY(find_loop(r, state, bytes, f));
    if (f->loop == STATE_UNMADE && !f->is_open) PLUMB_TRY(find_reach(r, state, bytes, f));
    return f->first_kinds != 0 ? allow_kinds(r, bytes, f) : PLUMB_OK;
}

/* Allows those of all tokens that the state accepts.  Most states accept few first bytes, so the others are skipped
 * without a step, and without looking at their nodes, which are far apart. */
static plumb_status walk_all(struct recognizer *r, uint32_t state, struct found *f) {
    struct mask_cache *c = r->masks;
    const struct pieces *v = c->v;
    uint64_t bytes[4];
    recognizer_bytes(r, state, bytes);
    if (f->over == 0 && f->most == MAX_PIECE) PLUMB_TRY(find_shortcut(r, state, bytes, f));
    for (unsigned b = 0; b < 256; b++) {
        if (bytes[b / 64] >> b % 64 == 0) b |= 63;   /* none of the others in this word */
        else if (bytes_have(bytes, b) && v->roots[b] != NO_PIECE) {
            PLUMB_TRY(walk(r, state, v->roots[b], v->ends[v->roots[b]], f));
        }
    }
    return PLUMB_OK;
}

static void free_locals(struct mask_cache *c) {
    for (size_t i = 0; i < c->n_local; i++) {
        free(c->locals[i].words);
        free(c->locals[i].ids);
        free(c->locals[i].exits);
    }
    c->n_local = 0;
}

static void drop_locals(struct recognizer *r) {
    struct mask_cache *c = r->masks;
    free_locals(c);
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
    uint64_t bytes[4];
    recognizer_bytes(r, state, bytes);
    if (r->s.local[state] == 0 && may_look_ahead(r, state, bytes)) PLUMB_TRY(find_loop(r, state, bytes, &f));
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
    if (!ARRAY_GROW(c->locals, c->n_local, &c->local_cap)) return no_memory(r);
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
    struct mask_cache *c = r->masks;
    plumb_status status = walk_all(r, state, &(struct found){ .words = c->scratch, .over = over, .most = MAX_PIECE });
    for (uint32_t i = 0; i < c->n_word; i++) {
        words[i] |= c->scratch[i];
        c->scratch[i] = 0;
    }
    return status;
}

/* Allows the tokens of a local mask with at most so many bytes. */
static void add_local(struct mask_cache *c, const struct local_mask *l, uint32_t most, uint32_t *words) {
    set_beyond(c, most);
    for (uint32_t i = 0; l->words && i < c->n_word; i++) words[i] |= l->words[i] & ~c->beyond[i];
    for (uint32_t i = 0; l->ids && i < l->n_id; i++) {
        words[l->ids[i] / 32] |= ~c->beyond[l->ids[i] / 32] & 1u << l->ids[i] % 32;
    }
}

/* Allows what n configurations accept as text, all with the same stack. */
static plumb_status add_group(struct recognizer *r, const config *configs, size_t n, uint32_t stack, uint32_t *words) {
    struct mask_cache *c = r->masks;
    const uint32_t longest = c->v->depth;
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
    if (!ARRAY_RESERVE(c->configs, 0, s->n, &c->config_cap)) return no_memory(r);
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
    c->path_flags = alloc_array((uint64_t)v->depth + 1, sizeof *c->path_flags);
    if (!c->scratch || !c->ids || !c->path_states || !c->path_ends || !c->path_flags) {
        return no_memory(r);
    }
    c->beyond = c->scratch + c->n_word;
    c->n_within = MAX_PIECE;
    for (size_t i = 0; i < N_WHOLE; i++) c->whole[i].words = c->scratch + (i + 2) * c->n_word;
    return PLUMB_OK;
}

void mask_cache_free(struct mask_cache *c) {
    if (!c) return;
    free_locals(c);
    for (size_t i = 0; i < N_KIND_SET; i++) free(c->sets[i].words);
    free(c->locals);
    free(c->configs);
    free(c->scratch);
    free(c->ids);
    free(c->exits);
    free(c->path_states);
    free(c->path_ends);
    free(c->path_flags);
    free(c);
}

/* States of a grammar: what may follow a text.
 *
 * A state is a set of configurations.  Each of them is a place in the grammar, that is an instruction and a node of its
 * character class, and what may be on the stack there: a set of frames, each with such a set below it.  So the stacks
 * of all ways to read a text share what they have in common, and a state has at most one configuration for each place
 * (a graph-structured stack: Tomita, "An efficient augmented-context-free parsing algorithm", 1987).  Equal sets and
 * equal states are stored once, so a state has a number, and its transitions are stored when they are needed first: a
 * deterministic automaton that grows while it is used.  A call at the end of a rule or of a count pushes nothing.
 *
 * The same automaton has local states, whose stacks end in STACK_UNKNOWN: they stand for a place in a rule, whatever
 * called the rule.  Masks are cached by them (mask.c).
 *
 * Nothing here is recursive.  When the automaton exceeds RECOGNIZER_SOFT_BYTES, recognizer_trim drops all states that
 * no position refers to.  If it exceeds RECOGNIZER_HARD_BYTES, or a piece of work RECOGNIZER_MAX_WORK, the grammar is
 * too ambiguous for this text, which is PLUMB_ERROR_UNSUPPORTED.
 */
#ifndef PLUMB_GRAMMAR_RECOGNIZER_H
#define PLUMB_GRAMMAR_RECOGNIZER_H

#include "grammar/grammar.h"

enum {
    RECOGNIZER_SOFT_BYTES = 16 << 20,
    RECOGNIZER_HARD_BYTES = 48 << 20,
    RECOGNIZER_MAX_WORK = 1 << 25,   /* configurations and places that one mask, or one call of an api, visits */
    STACK_BOTTOM = 0,      /* its only frame is the end of the grammar */
    STACK_UNKNOWN = 1,     /* its only frame is unknown */
    STACK_NONE = (1 << 25) - 1,   /* no stack */
    RECOGNIZER_MAX_KNOWN = 4, /* places of a local state's stack that are known */
    STATE_UNMADE = 0,        /* a transition that is not known yet */
    STATE_DEAD = 1         /* no configurations: the text has left the grammar */
};

enum state_flags {
    STATE_LIVE = 1,        /* bytes or tokens may follow */
    STATE_MAY_END = 2,
    STATE_EXIT = 4,        /* local: the rule may end here, and what follows is unknown */
    STATE_TOKEN = 8        /* a token element may follow */
};

/* instruction << 42 | node << 25 | stack: in the order of the places. */
typedef uint64_t config;
static inline config config_of(size_t at, uint32_t node, uint32_t stack) {
    return (uint64_t)at << 42 | (uint64_t)node << 25 | stack;
}
static inline uint32_t config_at(config c) { return (uint32_t)(c >> 42); }
static inline uint32_t config_node(config c) { return (uint32_t)(c >> 25) & 0x1ffff; }
static inline uint64_t config_place(config c) { return c >> 25; }   /* instruction and node */
static inline uint32_t config_stack(config c) { return (uint32_t)c & STACK_NONE; }

/* What may be on a stack: n frames, sorted. */
struct stack { uint32_t first, n; };

/* An instruction that is reached while a state is made: the stack with which it is, and what of that was not followed
 * yet. */
struct place { uint32_t at, stack, fresh; };

struct configs {
    uint32_t first, n;     /* its configurations, sorted */
};

/* The automaton. */
struct states {
    config *configs;
    size_t n_config, config_cap;
    struct configs *states;
    uint8_t *flags;        /* (n_state) sets of enum state_flags */
    uint32_t *next;        /* (n_state, n_class) */
    uint32_t *local;       /* (n_state) its local mask in the cache + 1, or LOCAL_OPEN; 0: none (mask.c) */
    size_t n_state, state_cap;
    struct stack *stacks;
    size_t n_stack, stack_cap;
    struct frame *frames;
    size_t n_frame, frame_cap;
    struct hash_index state_index, stack_index;
};

struct mask_cache;
struct position;

struct recognizer {
    const struct grammar *g;
    struct states s;
    struct position *positions;    /* all positions on this recognizer, a list */
    struct mask_cache *masks;      /* NULL before recognizer_set_vocabulary */
    struct error err;
    /* The state that is being made. */
    struct place *places;
    struct key_set seen;   /* the instructions of the places */
    uint32_t *todo;        /* a queue of places to be followed */
    config *made;
    struct frame *frames;  /* of a stack that is being made */
    uint64_t work;         /* since the last recognizer_trim or recognizer_mask */
    size_t n_place, place_cap, n_todo, todo_at, todo_cap, n_made, made_cap, frame_cap;
    uint8_t made_flags;
    uint64_t trimmed_bytes;   /* of the automaton after the last recognizer_trim */
    uint32_t n_trim;          /* how often the numbers of states have changed */
};

/* A text's history: the state after each accepted part.  A part is a token or a piece of text. */
struct position {
    struct recognizer *r;
    struct position *next, **before;   /* links of the recognizer's list */
    uint32_t *states;                  /* (n + 1) states[0] is the start */
    size_t n, cap;
};

/* g must outlive the recognizer. */
plumb_status recognizer_create(struct recognizer **out, const struct grammar *g, struct error *err);
void recognizer_free(struct recognizer *r);

/* These return a status; the message is in r->err.  The state of a failed step is the one before it. */
plumb_status recognizer_step(struct recognizer *r, uint32_t state, uint8_t byte, uint32_t *to);
/* Accepts a token: its id for token elements, and its n bytes as text. */
plumb_status recognizer_step_token(struct recognizer *r, uint32_t state, int32_t id, const char *bytes, size_t n,
                                   uint32_t *to);
/* *out becomes the state after the rule on top of the stack has ended. */
plumb_status recognizer_return(struct recognizer *r, uint32_t stack, uint32_t *out);
/* *out becomes the state of n configurations, whose stacks are replaced by one if it is not STACK_NONE. */
plumb_status recognizer_group(struct recognizer *r, const config *configs, size_t n, uint32_t stack, uint32_t *out);
/* The stack with only one frame of another one. */
plumb_status recognizer_one_frame(struct recognizer *r, uint32_t stack, uint32_t i, uint32_t *out);
static inline bool stack_is_counting(const struct recognizer *r, uint32_t stack) {
    const struct stack *s = &r->s.stacks[stack];
    for (uint32_t i = 0; i < s->n; i++) {
        if (frame_counter(r->g, &r->s.frames[s->first + i])) return true;
    }
    return false;
}

/* A local state, which stands for several states. */
struct local {
    uint32_t state, rest;   /* rest: the stack below what is known */
    uint32_t radius;        /* it accepts the same tokens of at most so many bytes as the state; UINT32_MAX: all */
};
/* The local state of n configurations with a stack, of which the counts on top and the k frames below them are known.
 * Counts that are as far as `longest` bytes from their bounds stand for all such.  state is STATE_DEAD if there is no
 * local state, as several frames of which some count are below the first ones. */
plumb_status recognizer_local(struct recognizer *r, const config *configs, size_t n, uint32_t stack, uint32_t k,
                              uint32_t longest, struct local *out);
/* Adds the bytes that may follow to a set: bit b % 64 of word b / 64. */
void config_add_bytes(const struct grammar *g, config c, uint64_t set[4]);
/* set becomes the bytes that may follow. */
void recognizer_bytes(const struct recognizer *r, uint32_t state, uint64_t set[4]);
static inline bool bytes_have(const uint64_t set[4], unsigned byte) { return set[byte / 64] >> byte % 64 & 1; }
/* Writes the text that must follow, as plumb_matcher_forced does; *n becomes its length. */
plumb_status recognizer_forced(struct recognizer *r, uint32_t state, char *buf, size_t cap, size_t *n);
static inline bool state_has(const struct recognizer *r, uint32_t state, unsigned flag) {
    return (r->s.flags[state] & flag) != 0;
}

plumb_status position_init(struct position *p, struct recognizer *r);
void position_free(struct position *p);
static inline uint32_t position_state(const struct position *p) { return p->states[p->n]; }
plumb_status position_push(struct position *p, uint32_t state);
/* Called before each piece of work: drops states that no position refers to, if there are many.  Numbers of states
 * change. */
plumb_status recognizer_trim(struct recognizer *r);

/* ---- masks (mask.c) ---------------------------------------------------------------------------------------------- */

static const uint32_t NO_PIECE = UINT32_MAX;
enum { MAX_PIECE = 1023 };   /* bytes; no grammar allows a longer token */

/* Kinds of bytes: sets of them are known for subtrees.  A byte of a character of several bytes is KIND_WIDE, also if
 * the token ends before the character does. */
enum byte_kind {
    KIND_QUOTE, KIND_BACKSLASH, KIND_CONTROL, KIND_LINE, KIND_SPACE, KIND_DIGIT, KIND_LOW_HEX, KIND_LOW, KIND_HIGH_HEX,
    KIND_HIGH, KIND_DASH, KIND_ANGLE, KIND_SLASH, KIND_OTHER, KIND_WIDE, KIND_NOT_UTF8, N_KIND,
    KIND_INSIDE = 64     /* flag: the character goes on after this byte */
};
/* What a JSON string may have at any place. */
enum { KINDS_OF_TEXT = (1 << KIND_NOT_UTF8) - (1 << KIND_SPACE) };
/* Characters of several bytes: their first byte, their second one; n_more bytes 80 to BF follow. */
struct wide { uint8_t first[2], second[2], n_more; };
enum { N_WIDE = 8 };
extern const struct wide wide_characters[N_WIDE];
enum byte_kind kind_of_byte(uint8_t byte);   /* of ASCII */

/* The pieces of a vocabulary, as a tree of bytes in depth-first order.  The grammars of a model share it, so it does
 * not change once it is made. */
struct pieces {
    uint32_t n_vocab, n_node, depth;   /* depth: bytes of the longest piece */
    uint8_t *bytes;      /* (n_node) the last byte of the node's text */
    uint32_t *ends;      /* (n_node) the first node after its subtree */
    uint16_t *lengths;   /* (n_node) the length of the node's text */
    uint16_t *longest;   /* (n_node) and of the longest in its subtree */
    uint8_t *kinds;      /* (n_node) of the node's byte, and perhaps KIND_INSIDE */
    uint16_t *below;     /* (n_node) the kinds in its subtree without the node: a set of bits */
    /* (N_KIND, n_vocab / 32 rounded up) the tokens that have a byte of a kind, and that begin with one: sets of bits */
    uint32_t *having, *beginning;
    uint32_t *separators;   /* (n_separator) the nodes with which U+2028 and U+2029 end, in order */
    /* (n_rare + 1) the nodes that have in their subtree, with them, a byte of a kind that is not in KINDS_OF_TEXT, or a
     * separator, in order; then n_node. */
    uint32_t *rare;
    uint32_t n_separator, n_rare;
    uint32_t *first;     /* (n_node + 1) the tokens with the text of node i are ids[first[i] .. first[i + 1]) */
    int32_t *ids;
    int32_t *by_length;  /* all tokens of the tree in the order of their lengths; those with n bytes are */
    uint32_t of_length[MAX_PIECE + 2];   /* by_length[of_length[n] .. of_length[n + 1]) */
    uint32_t roots[256]; /* the nodes of the first bytes; NO_PIECE: no token begins with this byte */
    int32_t *eog;        /* (n_eog) the tokens that end a turn; they have no text here */
    uint32_t n_eog;
};
/* Makes the tree of a vocabulary.  Control tokens are not in it. */
plumb_status pieces_create(struct pieces **out, const struct vocabulary *vocabulary, struct error *err);
void pieces_free(struct pieces *v);
/* words (a bit for each token) becomes the set of the tokens whose first byte is of the kinds in one set, and whose
 * bytes are all of the kinds in another one. */
void pieces_of_kinds(const struct pieces *v, uint32_t first, uint32_t kinds, uint32_t *words);

/* v must outlive the recognizer. */
plumb_status recognizer_set_vocabulary(struct recognizer *r, const struct pieces *v);
void mask_cache_free(struct mask_cache *c);
/* *mask becomes a set of tokens, bit id % 32 of word id / 32: those that may follow.  Valid until the next call. */
plumb_status recognizer_mask(struct recognizer *r, uint32_t state, const uint32_t **mask);

#endif

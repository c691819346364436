/* A compiled grammar: a small program for each rule, which consumes the bytes of a text.
 *
 *   GBNF, schemas, regular expressions -> rules.h -> struct grammar -> recognizer.h (states, masks)
 *
 * An instruction has 4 bytes: an operation in the low 4 bits, and a signed argument above them.  Jumps are relative, so
 * that code can be copied for repetitions.  A character class is an automaton over the bytes of UTF-8, of nodes that
 * all classes share: equal nodes are one node.
 *
 * Repetitions are counted while a text is read, so their code does not depend on their bounds.  OP_COUNT pushes a frame
 * with a count of 0 on the stack, OP_MARK adds one to the count of the frame on top, and OP_LEAVE pops the frame.  The
 * return of a rule that is called in front of an OP_LEAVE does the same, as a call at the end of a rule pushes nothing.
 *
 * What a grammar is made of is untrusted; its size and the work of making it are bounded by the limits below.
 */
#ifndef PLUMB_GRAMMAR_H
#define PLUMB_GRAMMAR_H

#include "base/base.h"
#include "grammar/hash_index.h"

enum grammar_op {
    OP_CLASS,      /* node: consumes one character, from this node to NODE_DONE */
    OP_TOKEN,      /* id: consumes one token, whatever its text is */
    OP_NOT_TOKEN,  /* id: consumes any other token */
    OP_SPLIT,      /* distance: continues with the next instruction and at the distance */
    OP_JUMP,       /* distance: continues there */
    OP_CALL,       /* rule */
    OP_RETURN,     /* rule: the end of this rule */
    OP_COUNT,      /* distance to its OP_LEAVE: counts marks from here on */
    OP_MARK,       /* n: a mark, if n others still fit behind it; nothing if the frame on top does not count */
    OP_LEAVE       /* counter: ends the count, if there were enough marks */
};

enum {
    GRAMMAR_MAX_CODE = 1 << 22,      /* instructions */
    GRAMMAR_MAX_COUNT = (1 << 30) - 1,  /* of a repetition */
    GRAMMAR_MAX_COUNTERS = 1 << 17,
    GRAMMAR_MAX_NAMES = 1 << 29,     /* bytes of the names of all rules */
    GRAMMAR_MAX_TOKEN = (1 << 27) - 1,
    GRAMMAR_MAX_NODES = 1 << 17,     /* nodes of character classes, */
    GRAMMAR_MAX_EDGES = 1 << 20,     /* and their edges */
    GRAMMAR_MAX_DEPTH = 10000,       /* of groups in groups */
    GRAMMAR_MAX_WORK = 1 << 29,      /* instructions that are moved or copied while a grammar is parsed */
    NODE_DONE = GRAMMAR_MAX_NODES - 1,
    RULE_UNDEFINED = -1
};

/* The bounds of a count.  is_exact: an iteration may be empty, so that a byte may have several marks. */
struct counter {
    uint32_t min, max;      /* max: COUNT_UNBOUNDED, if there is none */
    uint32_t most_behind;   /* no OP_MARK that it counts has a larger argument */
    bool is_exact;
};
/* What a stack consists of: a place to return to; or, if that is an OP_LEAVE, a count. */
struct frame {
    uint32_t at, count, below;   /* below: the rest of the stack */
};
/* A count from COUNT_FREE on is that of a repetition without maximum, plus COUNT_FREE.  COUNT_LOW is one that will not
 * reach its minimum.  Masks need these (recognizer_local). */
enum { COUNT_FREE = 1 << 30, COUNT_LOW = INT32_MAX };
static const uint32_t COUNT_UNBOUNDED = UINT32_MAX, NO_PLACE = UINT32_MAX, RULE_NONE = UINT32_MAX;

struct byte_edge {
    uint8_t low, high;
    uint32_t node;     /* NODE_DONE: the character is complete */
};
/* Its edges are disjoint and in order. */
struct byte_node {
    uint32_t edge, n;
};

struct grammar_rule {
    uint32_t name, n_name;  /* its place in names */
    int32_t start;          /* its first instruction, RULE_UNDEFINED before its definition */
    uint32_t place;         /* where a text in GBNF names it first, + 1; 0: nowhere */
};

struct grammar {
    uint32_t *code;
    size_t n_code, code_cap;
    struct byte_edge *edges;
    size_t n_edge, edge_cap;
    struct byte_node *nodes;
    size_t n_node, node_cap;
    char *names;            /* of all rules, one after the other */
    size_t n_name, name_cap;
    struct grammar_rule *rules;
    size_t n_rule, rule_cap;
    uint32_t root;             /* a rule */
    struct counter *counters;
    size_t n_counter, counter_cap;
    uint32_t most_behind;      /* the largest argument of an OP_MARK */
    /* Bytes between which no edge distinguishes have the same class. */
    uint8_t class_of[256];
    uint32_t n_class;
};

static inline enum grammar_op op_of(uint32_t instruction) { return (enum grammar_op)(instruction & 15); }
static inline int32_t arg_of(uint32_t instruction) {
    return (int32_t)(instruction & ~15u) / 16;
}

/* The counter of a frame; NULL if it is a place to return to, or the end of a stack. */
static inline const struct counter *frame_counter(const struct grammar *g, const struct frame *f) {
    if (f->at == NO_PLACE || op_of(g->code[f->at]) != OP_LEAVE) return NULL;
    return &g->counters[arg_of(g->code[f->at])];
}
/* Adds a mark to a frame, behind which `behind` others must fit.  Returns false if they do not. */
static inline bool frame_mark(const struct grammar *g, struct frame *f, uint32_t behind) {
    const struct counter *c = frame_counter(g, f);
    if (!c) return false;
    if (f->count >= COUNT_FREE) {
        f->count += f->count < COUNT_FREE + c->min;
    } else if (c->max == COUNT_UNBOUNDED) {
        f->count += f->count < c->min;
    } else {
        f->count++;
        return f->count + (uint64_t)behind <= c->max;
    }
    return true;
}
/* Where a text goes on when a frame is popped; NO_PLACE if it cannot be popped. */
static inline uint32_t frame_next(const struct grammar *g, const struct frame *f) {
    const struct counter *c = frame_counter(g, f);
    if (!c) return f->at;
    const uint32_t count = f->count == COUNT_LOW ? 0 : f->count & (COUNT_FREE - 1);
    return count >= c->min ? f->at + 1 : NO_PLACE;
}
/* Whether a call in front of this instruction pushes nothing. */
static inline bool grammar_is_tail(uint32_t code) { return op_of(code) == OP_RETURN || op_of(code) == OP_LEAVE; }

/* The first instruction from there on that is no jump. */
static inline size_t grammar_skip_jumps(const struct grammar *g, size_t at) {
    while (op_of(g->code[at]) == OP_JUMP) at = (size_t)((int64_t)at + arg_of(g->code[at]));
    return at;
}

/* Lists the instructions of the same rule to which one leads, at most 2. */
static inline size_t grammar_next(const struct grammar *g, size_t at, size_t next[2]) {
    const enum grammar_op op = op_of(g->code[at]);
    size_t n = 0;
    if (op != OP_JUMP && op != OP_RETURN) next[n++] = at + 1;
    if (op == OP_JUMP || op == OP_SPLIT) next[n++] = (size_t)((int64_t)at + arg_of(g->code[at]));
    return n;
}

/* The edge of a node for a byte; NULL: there is none. */
static inline const struct byte_edge *grammar_find_edge(const struct grammar *g, uint32_t node, uint8_t byte) {
    const struct byte_edge *edges = g->edges + g->nodes[node].edge;
    size_t low = 0, high = g->nodes[node].n;
    while (low < high) {   /* the first edge that ends at the byte or after it */
        size_t middle = (low + high) / 2;
        if (edges[middle].high < byte) low = middle + 1;
        else high = middle;
    }
    return low < g->nodes[node].n && edges[low].low <= byte ? &edges[low] : NULL;
}
/* Whether a token element, given as its instruction, consumes a token. */
static inline bool grammar_token_matches(uint32_t code, int32_t id) {
    return op_of(code) == OP_TOKEN ? arg_of(code) == id : op_of(code) == OP_NOT_TOKEN && arg_of(code) != id;
}

struct pieces;   /* recognizer.h */

/* The vocabulary of a model, as grammars see it. */
struct vocabulary {
    uint32_t n_vocab;        /* 0: it is not loaded */
    /* Returns the only token of a text, special tokens included; -1 if it has none or several. */
    int32_t (*find)(void *user, const char *text, size_t n);
    /* Writes at most cap bytes of a token's text to buf, and returns how many it has.  Control tokens have a text only
     * if special is true. */
    int64_t (*piece)(void *user, int32_t id, bool special, char *buf, size_t cap);
    bool (*is_eog)(void *user, int32_t id);   /* whether the token ends a turn */
    void *user;
    struct pieces *pieces;   /* of all tokens; NULL before the first grammar */
};
/* Makes a plumb_grammar with these tokens, or none if v is NULL.  v must outlive it, and the caller frees its pieces.
 * Returns NULL if there is no memory. */
plumb_grammar *grammar_create(struct vocabulary *v);

void grammar_free(struct grammar *g);   /* NULL is allowed */

#endif

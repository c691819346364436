/* An Aho-Corasick automaton over the texts of tokens.  Reading a text byte by byte, it finds the tokens that end at
 * each byte, in time proportional to the text and to the tokens found.  A backward automaton has the texts in reverse:
 * it reads a text from its end, and finds the tokens that begin at each byte.
 */
#ifndef PLUMB_AUTOMATON_H
#define PLUMB_AUTOMATON_H

#include "base/base.h"

struct automaton_text {
    const char *data;
    uint32_t n;       /* bytes */
    int32_t id;       /* of the token */
};

/* A node is a prefix of a text.  The children of node i are first .. nodes[i + 1].first - 1, by ascending byte.  Node 0
 * is the empty text. */
struct automaton_node {
    uint32_t first;
    int32_t id;        /* the token with this text, -1: none; the highest of several */
    uint32_t fail;     /* the longest proper suffix of the text that is a node */
    uint32_t shorter;  /* the longest proper suffix that is a token; 0: none */
    uint8_t byte;      /* the last byte of the text */
};

struct automaton {
    struct automaton_node *nodes;   /* (n + 1) */
    uint32_t n;
    uint32_t root[256];             /* the child of node 0 for each byte; 0: none */
    uint32_t n_most;                /* the most tokens that end at one byte of any text */
};

/* Makes an automaton of n texts, which are put into another order; NULL if out of memory. */
struct automaton *automaton_create(struct automaton_text *texts, uint32_t n, bool backward);
void automaton_free(struct automaton *a);

/* Returns the child of a node for a byte; 0: none. */
uint32_t automaton_child(const struct automaton *a, uint32_t node, uint8_t byte);
/* Returns the node of the longest suffix of a node's text and this byte.  Adds the work to *n_step. */
uint32_t automaton_next(const struct automaton *a, uint32_t node, uint8_t byte, uint64_t *n_step);
/* Returns the node of the longest token that ends here; 0: none.  nodes[].shorter leads to the others. */
static inline uint32_t automaton_longest(const struct automaton *a, uint32_t node) {
    return a->nodes[node].id >= 0 ? node : a->nodes[node].shorter;
}

#endif

/* Making and walking automata.
 *
 * The nodes are made in the order of their lengths.  A node has a range of the texts, those that begin with its text,
 * and sorting the range by the next byte gives the ranges of its children.  So no text is compared with another, the
 * children of a node follow each other in memory, and suffixes, which are shorter, are made before the nodes that need
 * them.  This takes time proportional to the bytes of all texts, and 20 bytes for each node.
 */
#include "tokenizer/automaton.h"

#include <stdlib.h>

struct maker {
    struct automaton *a;
    size_t cap;
    struct automaton_text *texts, *sorted;   /* (n_text) */
    bool backward;
};

static uint8_t byte_at(const struct maker *m, const struct automaton_text *text, uint32_t depth) {
    return (uint8_t)text->data[m->backward ? text->n - 1 - depth : depth];
}

/* Sorts texts[low .. high) by the byte at depth. */
static void sort_texts(struct maker *m, uint32_t low, uint32_t high, uint32_t depth) {
    enum { FEW = 32 };
    struct automaton_text *texts = m->texts;
    if (high - low < FEW) {
        for (uint32_t i = low + 1; i < high; i++) {
            struct automaton_text text = texts[i];
            uint8_t byte = byte_at(m, &text, depth);
            uint32_t k = i;
            for (; k > low && byte_at(m, &texts[k - 1], depth) > byte; k--) texts[k] = texts[k - 1];
            texts[k] = text;
        }
        return;
    }
    uint32_t begin[257] = {0};
    for (uint32_t i = low; i < high; i++) begin[byte_at(m, &texts[i], depth) + 1]++;
    for (int b = 0; b < 256; b++) begin[b + 1] += begin[b];
    for (uint32_t i = low; i < high; i++) m->sorted[begin[byte_at(m, &texts[i], depth)]++] = texts[i];
    memcpy(texts + low, m->sorted, (size_t)(high - low) * sizeof *texts);
}

/* Until its children are made, a node's range of texts is in fail and shorter. */
static bool add_node(struct maker *m, uint8_t byte, uint32_t low, uint32_t high) {
    struct automaton *a = m->a;
    if (a->n == UINT32_MAX) return false;
    if (!ARRAY_GROW(a->nodes, a->n, &m->cap)) return false;
    a->nodes[a->n++] = (struct automaton_node){.id = -1, .fail = low, .shorter = high, .byte = byte};
    return true;
}

static bool add_children(struct maker *m, uint32_t node, uint32_t depth) {
    struct automaton_node *parent = &m->a->nodes[node];
    uint32_t low = parent->fail, high = parent->shorter;
    parent->first = m->a->n;
    for (uint32_t i = low; i < high; i++) {   /* the texts that end here come first */
        if (m->texts[i].n != depth) continue;
        struct automaton_text text = m->texts[i];
        if (text.id > parent->id) parent->id = text.id;
        m->texts[i] = m->texts[low];
        m->texts[low++] = text;
    }
    sort_texts(m, low, high, depth);
    while (low < high) {
        uint8_t byte = byte_at(m, &m->texts[low], depth);
        uint32_t end = low + 1;
        while (end < high && byte_at(m, &m->texts[end], depth) == byte) end++;
        if (!add_node(m, byte, low, end)) return false;
        low = end;
    }
    return true;
}

static bool add_nodes(struct maker *m, uint32_t n_text) {
    if (!add_node(m, 0, 0, n_text)) return false;
    uint32_t depth = 0, level_end = 1;   /* the nodes up to level_end are at most so deep */
    for (uint32_t node = 0; node < m->a->n; node++) {
        if (node == level_end) {
            level_end = m->a->n;
            depth++;
        }
        if (!add_children(m, node, depth)) return false;
    }
    uint32_t n = m->a->n;
    if (!add_node(m, 0, 0, 0)) return false;   /* where the children of the last node end */
    m->a->nodes[n].first = m->a->n = n;
    (void)ARRAY_RESIZE(m->a->nodes, (uint64_t)n + 1);   /* gives back what is left of the memory */
    return true;
}

/* A suffix of a node's text is a suffix of its parent's text and one byte more. */
static bool add_suffixes(struct automaton *a) {
    struct automaton_node *nodes = a->nodes;
    uint32_t *n_found = alloc_array(a->n, sizeof *n_found);   /* the tokens that end with each node */
    if (n_found == NULL) return false;
    uint64_t n_step = 0;
    nodes[0].fail = nodes[0].shorter = n_found[0] = 0;
    nodes[0].id = -1;   /* the empty text is in no text */
    for (uint32_t parent = 0; parent < a->n; parent++) {
        for (uint32_t i = nodes[parent].first; i < nodes[parent + 1].first; i++) {
            if (parent == 0) a->root[nodes[i].byte] = i;
            nodes[i].fail = parent == 0 ? 0 : automaton_next(a, nodes[parent].fail, nodes[i].byte, &n_step);
            nodes[i].shorter = automaton_longest(a, nodes[i].fail);
            n_found[i] = n_found[nodes[i].shorter] + (nodes[i].id >= 0);
            if (n_found[i] > a->n_most) a->n_most = n_found[i];
        }
    }
    free(n_found);
    return true;
}

struct automaton *automaton_create(struct automaton_text *texts, uint32_t n, bool backward) {
    struct automaton *a = calloc(1, sizeof *a);
    struct maker m = {.a = a, .texts = texts, .sorted = alloc_array(n, sizeof *texts), .backward = backward};
    bool done = a != NULL && m.sorted != NULL && add_nodes(&m, n) && add_suffixes(a);
    free(m.sorted);
    if (done) return a;
    automaton_free(a);
    return NULL;
}

void automaton_free(struct automaton *a) {
    if (a == NULL) return;
    free(a->nodes);
    free(a);
}

uint32_t automaton_child(const struct automaton *a, uint32_t node, uint8_t byte) {
    if (node == 0) return a->root[byte];
    uint32_t low = a->nodes[node].first, high = a->nodes[node + 1].first;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (a->nodes[middle].byte < byte) low = middle + 1;
        else high = middle;
    }
    return low < a->nodes[node + 1].first && a->nodes[low].byte == byte ? low : 0;
}

uint32_t automaton_next(const struct automaton *a, uint32_t node, uint8_t byte, uint64_t *n_step) {
    for (;;) {
        uint32_t child = automaton_child(a, node, byte);
        ++*n_step;
        if (child != 0 || node == 0) return child;
        node = a->nodes[node].fail;
    }
}

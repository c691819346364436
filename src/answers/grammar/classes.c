/* Character classes -> automata over the bytes of UTF-8.
 *
 * A range of code points becomes sequences of ranges of bytes, such as E4 B8 80-BF.  Of two sequences the ranges of the
 * first bytes are equal or disjoint, and so are those of the bytes that follow equal ones.  So the sequences of a class
 * form a tree, whose equal subtrees become one node.
 */
#include "grammar/grammar.h"

#include <stdlib.h>

struct byte_sequence {
    uint8_t n, low[4], high[4];
};

static plumb_status no_memory(struct error *err) {
    return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the character classes of a grammar");
}

static plumb_status too_large(struct error *err) {
    return error_set(err, PLUMB_ERROR_UNSUPPORTED, "the grammar is too large: its character classes need more than %d "
                     "states or %d transitions", (int)NODE_DONE, (int)GRAMMAR_MAX_EDGES);
}

plumb_status class_add(struct class_builder *b, uint32_t low, uint32_t high, struct error *err) {
    if (low > high) return PLUMB_OK;   /* [z-a] has no characters, as in llama.cpp */
    struct code_points *ranges = alloc_grow(b->ranges, b->n_range, &b->range_cap, sizeof *ranges);
    if (!ranges) return no_memory(err);
    b->ranges = ranges;
    ranges[b->n_range++] = (struct code_points){ low, high };
    return PLUMB_OK;
}

static int by_low(const void *a, const void *b) {
    const struct code_points *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* Sorts the ranges and joins those that touch. */
static void join_ranges(struct class_builder *b) {
    if (b->n_range < 2) return;
    qsort(b->ranges, b->n_range, sizeof *b->ranges, by_low);
    size_t last = 0;
    for (size_t i = 1; i < b->n_range; i++) {
        struct code_points *r = &b->ranges[i], *to = &b->ranges[last];
        if (r->low > to->high + 1) b->ranges[++last] = *r;
        else if (r->high > to->high) to->high = r->high;
    }
    b->n_range = last + 1;
}

/* Replaces the ranges, which are sorted and disjoint, by what is between them. */
static plumb_status negate(struct class_builder *b, struct error *err) {
    uint32_t next = 1;
    size_t kept = 0, n = b->n_range;
    for (size_t i = 0; i < n; i++) {
        struct code_points r = b->ranges[i];
        if (r.low > next) b->ranges[kept++] = (struct code_points){ next, r.low - 1 };
        if (r.high >= next) next = r.high + 1;
    }
    b->n_range = kept;
    return class_add(b, next, 0x10ffff, err);
}

static unsigned encode(uint32_t cp, uint8_t *to) {
    if (cp < 0x80) {
        to[0] = (uint8_t)cp;
        return 1;
    }
    unsigned n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (unsigned i = n; i-- > 1; cp >>= 6) to[i] = (uint8_t)(0x80 | (cp & 0x3f));
    static const uint8_t lead[5] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    to[0] = (uint8_t)(lead[n] | cp);
    return n;
}

/* Adds the sequences of one range, whose code points have encodings of the same length. */
static plumb_status add_sequences(struct class_builder *b, uint32_t low, uint32_t high, struct error *err) {
    struct code_points todo[16] = { { low, high } };
    size_t n = 1;
    while (n > 0) {
        struct code_points r = todo[--n];
        struct byte_sequence s = { 0 };
        s.n = (uint8_t)encode(r.low, s.low);
        bool is_cut = false;
        for (unsigned i = 1; i < s.n && !is_cut; i++) {
            uint32_t mask = (1u << 6 * i) - 1;
            if ((r.low & ~mask) == (r.high & ~mask)) continue;
            uint32_t cut = (r.low & mask) != 0 ? r.low | mask : (r.high & mask) != mask ? (r.high & ~mask) - 1 : r.high;
            if (cut == r.high) continue;
            todo[n++] = (struct code_points){ cut + 1, r.high };
            todo[n++] = (struct code_points){ r.low, cut };
            is_cut = true;
        }
        if (is_cut) continue;
        encode(r.high, s.high);
        struct byte_sequence *all = alloc_grow(b->sequences, b->n_sequence, &b->sequence_cap, sizeof *all);
        if (!all) return no_memory(err);
        b->sequences = all;
        all[b->n_sequence++] = s;
    }
    return PLUMB_OK;
}

static uint32_t hash_edges(const struct byte_edge *edges, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ edges[i].low) * 16777619u;
        h = (h ^ edges[i].high) * 16777619u;
        h = (h ^ edges[i].node) * 16777619u;
        h ^= h >> 15;
    }
    return h;
}

static bool is_node(const struct grammar *g, uint32_t node, const struct byte_edge *edges, size_t n) {
    if (g->nodes[node].n != n) return false;
    const struct byte_edge *own = g->edges + g->nodes[node].edge;
    for (size_t i = 0; i < n; i++) {
        if (own[i].low != edges[i].low || own[i].high != edges[i].high || own[i].node != edges[i].node) return false;
    }
    return true;
}

static uint64_t hash_node(const void *user, size_t i) {
    const struct grammar *g = user;
    return hash_edges(g->edges + g->nodes[i].edge, g->nodes[i].n);
}

/* *out becomes the node with these edges, an old one if there is one. */
static plumb_status find_node(struct class_builder *b, const struct byte_edge *edges, size_t n, uint32_t *out,
                              struct error *err) {
    struct grammar *g = b->g;
    if (!hash_index_reserve(&b->index, g->n_node, hash_node, g)) return no_memory(err);
    size_t slot = hash_index_first(&b->index, hash_edges(edges, n));
    for (; b->index.slots[slot] != 0; slot = hash_index_next(&b->index, slot)) {
        *out = b->index.slots[slot] - 1;
        if (is_node(g, *out, edges, n)) return PLUMB_OK;
    }
    if (g->n_node >= NODE_DONE || n > GRAMMAR_MAX_EDGES - g->n_edge) return too_large(err);
    struct byte_node *nodes = alloc_grow(g->nodes, g->n_node, &g->node_cap, sizeof *nodes);
    if (!nodes) return no_memory(err);
    g->nodes = nodes;
    nodes[g->n_node] = (struct byte_node){ (uint32_t)g->n_edge, (uint32_t)n };
    for (size_t i = 0; i < n; i++) {
        struct byte_edge *all = alloc_grow(g->edges, g->n_edge, &g->edge_cap, sizeof *all);
        if (!all) return no_memory(err);
        g->edges = all;
        all[g->n_edge++] = edges[i];
        b->is_bound[edges[i].low] = b->is_bound[edges[i].high + 1] = true;
    }
    b->index.slots[slot] = (uint32_t)g->n_node + 1;
    *out = (uint32_t)g->n_node++;
    return PLUMB_OK;
}

/* Makes the node of sequences[first .. end), which have equal ranges before `depth`.  It calls itself for the next
 * byte, so at most three times deep. */
static plumb_status make_node(struct class_builder *b, size_t first, size_t end, unsigned depth, uint32_t *out,
                              struct error *err) {
    struct byte_edge edges[256];
    size_t n = 0;
    while (first < end) {
        const struct byte_sequence *s = &b->sequences[first];
        struct byte_edge *edge = &edges[n];
        *edge = (struct byte_edge){ s->low[depth], s->high[depth], NODE_DONE };
        size_t next = first + 1;
        while (next < end && b->sequences[next].low[depth] == edge->low) next++;
        if (depth < 3 && depth + 1 < s->n) PLUMB_TRY(make_node(b, first, next, depth + 1, &edge->node, err));
        if (n > 0 && edge[-1].node == edge->node && edge[-1].high + 1 == edge->low) edge[-1].high = edge->high;
        else n++;
        first = next;
    }
    return find_node(b, edges, n, out, err);
}

plumb_status class_finish(struct class_builder *b, bool negated, uint32_t *node, struct error *err) {
    /* The code points whose encodings have the same length.  Surrogates are no characters. */
    static const struct code_points parts[] = {
        { 0, 0x7f }, { 0x80, 0x7ff }, { 0x800, 0xd7ff }, { 0xe000, 0xffff }, { 0x10000, 0x10ffff },
    };
    join_ranges(b);
    if (negated) PLUMB_TRY(negate(b, err));
    b->n_sequence = 0;
    for (size_t i = 0, part = 0; i < b->n_range && part < sizeof parts / sizeof *parts;) {
        struct code_points r = b->ranges[i], p = parts[part];
        uint32_t low = r.low > p.low ? r.low : p.low, high = r.high < p.high ? r.high : p.high;
        if (low <= high) PLUMB_TRY(add_sequences(b, low, high, err));
        if (r.high <= p.high) i++;
        else part++;
    }
    b->n_range = 0;
    return make_node(b, 0, b->n_sequence, 0, node, err);
}

void class_builder_finish(struct class_builder *b) {
    uint32_t class = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (byte > 0 && b->is_bound[byte]) class++;
        b->g->class_of[byte] = (uint8_t)class;
    }
    b->g->n_class = class + 1;
    free(b->index.slots);
    free(b->ranges);
    free(b->sequences);
}

/* Sets of characters -> automata over the bytes of UTF-8.
 *
 * A span of characters becomes sequences of ranges of bytes, such as E4 B8 80-BF.  Of two sequences the ranges of the
 * first bytes are equal or disjoint, and so are those of the bytes that follow equal ones.  So the sequences of a class
 * form a tree, whose equal subtrees become one node.
 */
#include "grammar/classes.h"
#include "base/unicode.h"

#include <stdlib.h>

struct byte_sequence {
    uint8_t n;
    char low[4], high[4];   /* bytes */
};

/* ---- spans ------------------------------------------------------------------------------------------------------- */

void spans_add(struct spans *s, uint32_t first, uint32_t last) {
    if (first >= 0xd800 && first < 0xe000) first = 0xe000;
    if (last >= 0xd800 && last < 0xe000) last = 0xd7ff;
    if (s->failed || first > last) return;
    s->failed = !ARRAY_GROW(s->data, s->n, &s->cap);
    if (!s->failed) s->data[s->n++] = (struct span){char_index(first), char_index(last)};
}

void spans_join(struct spans *s, bool negated) {
    size_t n = 0;
    if (s->n > 1) qsort(s->data, s->n, sizeof *s->data, compare_u32);   /* by their first characters */
    for (size_t i = 0; i < s->n; i++) {
        struct span span = s->data[i];
        if (n > 0 && span.first <= s->data[n - 1].last + 1) {
            if (span.last > s->data[n - 1].last) s->data[n - 1].last = span.last;
        } else {
            s->data[n++] = span;
        }
    }
    s->n = n;
    if (!negated || s->failed) return;
    uint32_t first = 0;
    s->n = 0;
    for (size_t i = 0; i < n; i++) {
        const struct span span = s->data[i];
        if (span.first > first) s->data[s->n++] = (struct span){first, span.first - 1};
        first = span.last + 1;
    }
    if (first < N_CHAR) spans_add(s, char_at(first), char_at(N_CHAR - 1));
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static plumb_status no_memory(struct error *err) {
    return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the character classes of a grammar");
}

static plumb_status too_large(struct error *err) {
    return error_set(err, PLUMB_ERROR_UNSUPPORTED, "the grammar is too large: its character classes need more than %d "
                     "states or %d transitions", (int)NODE_DONE, (int)GRAMMAR_MAX_EDGES);
}

/* Adds the sequences of one range, whose code points have encodings of the same length. */
static plumb_status add_sequences(struct classes *c, uint32_t low, uint32_t high, struct error *err) {
    struct span todo[16] = { { low, high } };
    size_t n = 1;
    while (n > 0) {
        struct span r = todo[--n];
        struct byte_sequence s = { 0 };
        s.n = (uint8_t)unicode_encode(r.first, s.low);
        bool is_cut = false;
        for (unsigned i = 1; i < s.n && !is_cut; i++) {
            uint32_t mask = (1u << 6 * i) - 1;
            if ((r.first & ~mask) == (r.last & ~mask)) continue;
            uint32_t cut = (r.first & mask) != 0 ? r.first | mask : (r.last & mask) != mask ? (r.last & ~mask) - 1
                                                                                           : r.last;
            if (cut == r.last) continue;
            todo[n++] = (struct span){ cut + 1, r.last };
            todo[n++] = (struct span){ r.first, cut };
            is_cut = true;
        }
        if (is_cut) continue;
        unicode_encode(r.last, s.high);
        if (!ARRAY_GROW(c->sequences, c->n_sequence, &c->sequence_cap)) return no_memory(err);
        c->sequences[c->n_sequence++] = s;
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
static plumb_status find_node(struct classes *c, struct grammar *g, const struct byte_edge *edges, size_t n,
                              uint32_t *out, struct error *err) {
    if (!hash_index_reserve(&c->index, g->n_node, hash_node, g)) return no_memory(err);
    size_t slot = hash_index_first(&c->index, hash_edges(edges, n));
    for (; c->index.slots[slot] != 0; slot = hash_index_next(&c->index, slot)) {
        *out = c->index.slots[slot] - 1;
        if (is_node(g, *out, edges, n)) return PLUMB_OK;
    }
    if (g->n_node >= NODE_DONE || n > GRAMMAR_MAX_EDGES - g->n_edge) return too_large(err);
    if (!ARRAY_GROW(g->nodes, g->n_node, &g->node_cap)) return no_memory(err);
    g->nodes[g->n_node] = (struct byte_node){ (uint32_t)g->n_edge, (uint32_t)n };
    for (size_t i = 0; i < n; i++) {
        if (!ARRAY_GROW(g->edges, g->n_edge, &g->edge_cap)) return no_memory(err);
        g->edges[g->n_edge++] = edges[i];
        c->is_bound[edges[i].low] = c->is_bound[edges[i].high + 1] = true;
    }
    c->index.slots[slot] = (uint32_t)g->n_node + 1;
    *out = (uint32_t)g->n_node++;
    return PLUMB_OK;
}

/* Makes the node of sequences[first .. end), which have equal ranges before `depth`.  It calls itself for the next
 * byte, so at most three times deep. */
static plumb_status make_node(struct classes *c, struct grammar *g, size_t first, size_t end, unsigned depth,
                              uint32_t *out, struct error *err) {
    struct byte_edge edges[256];
    size_t n = 0;
    while (first < end) {
        const struct byte_sequence *s = &c->sequences[first];
        struct byte_edge *edge = &edges[n];
        *edge = (struct byte_edge){ (uint8_t)s->low[depth], (uint8_t)s->high[depth], NODE_DONE };
        size_t next = first + 1;
        while (next < end && c->sequences[next].low[depth] == s->low[depth]) next++;
        if (depth < 3 && depth + 1 < s->n) PLUMB_TRY(make_node(c, g, first, next, depth + 1, &edge->node, err));
        if (n > 0 && edge[-1].node == edge->node && edge[-1].high + 1 == edge->low) edge[-1].high = edge->high;
        else n++;
        first = next;
    }
    return find_node(c, g, edges, n, out, err);
}

plumb_status classes_find(struct classes *c, struct grammar *g, const struct span *spans, size_t n, uint32_t *node,
                          struct error *err) {
    /* The characters whose encodings have the same length, on one side of the surrogates. */
    static const uint32_t ends[] = { 0x7f, 0x7ff, 0xd7ff, 0xf7ff, N_CHAR - 1 };
    c->n_sequence = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t first = spans[i].first;
        for (size_t part = 0; first <= spans[i].last; part++) {
            const uint32_t last = spans[i].last < ends[part] ? spans[i].last : ends[part];
            if (first > last) continue;
            PLUMB_TRY(add_sequences(c, char_at(first), char_at(last), err));
            first = last + 1;
        }
    }
    return make_node(c, g, 0, c->n_sequence, 0, node, err);
}

void classes_finish(const struct classes *c, struct grammar *g) {
    uint32_t class = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (byte > 0 && c->is_bound[byte]) class++;
        g->class_of[byte] = (uint8_t)class;
    }
    g->n_class = class + 1;
}

void classes_free(struct classes *c) {
    free(c->index.slots);
    free(c->sequences);
}

/* Sets of characters, and the automata over the bytes of UTF-8 that they become (classes.c).
 *
 * Characters are numbered without the gap of the surrogates (char_index), so that a span of them never contains one. */
#ifndef PLUMB_GRAMMAR_CLASSES_H
#define PLUMB_GRAMMAR_CLASSES_H

#include "grammar/grammar.h"

enum { N_CHAR = 0x110000 - 0x800 };   /* characters: code points without surrogates */

static inline uint32_t char_index(uint32_t cp) { return cp < 0xd800 ? cp : cp < 0xe000 ? 0xd800 : cp - 0x800; }
static inline uint32_t char_at(uint32_t index) { return index < 0xd800 ? index : index + 0x800; }

struct span { uint32_t first, last; };   /* both are included */

/* Spans in any order, while a set is made.  Begins as {0}; the caller frees data. */
struct spans {
    struct span *data;
    size_t n, cap;
    bool failed;   /* no memory */
};
/* Adds the code points first..last, without surrogates; nothing if last is before first. */
void spans_add(struct spans *s, uint32_t first, uint32_t last);
/* Sorts the spans and joins those that touch; negated: they become what is between them. */
void spans_join(struct spans *s, bool negated);

/* The nodes of a grammar's classes, while it is made.  Begins as {0}. */
struct classes {
    struct hash_index index;      /* of g->nodes */
    bool is_bound[257];           /* an edge begins at this byte, or ends before it */
    struct byte_sequence *sequences;
    size_t n_sequence, sequence_cap;
};
/* *node becomes the class of n spans as spans_join leaves them. */
plumb_status classes_find(struct classes *c, struct grammar *g, const struct span *spans, size_t n, uint32_t *node,
                          struct error *err);
/* Sets class_of and n_class. */
void classes_finish(const struct classes *c, struct grammar *g);
void classes_free(struct classes *c);

#endif

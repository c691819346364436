/* Deterministic automata over code points.  Private to the files of regular.h.
 *
 * Intervals of characters (char_index) that lead to the same states everywhere form a class; an automaton is a complete
 * table of states and classes.  Automata are minimal, and states and classes have a canonical order: equal languages
 * have equal automata.
 */
#ifndef PLUMB_GRAMMAR_DFA_H
#define PLUMB_GRAMMAR_DFA_H

#include "base/arena.h"
#include "grammar/classes.h"
#include "grammar/hash_index.h"
#include "grammar/regular.h"

enum {
    DFA_MAX_CELLS = 1000000,       /* of the table of an automaton, and 4 times that of all in a struct languages */
    DFA_MAX_CLASSES = 65535
};
#define DFA_NO_STATE UINT32_MAX

/* A set of characters: sorted spans that do not touch. */
struct charset {
    uint32_t n;
    struct span spans[];
};

struct dfa {
    uint32_t n_state, n_class, n_interval;
    uint32_t *starts;       /* (n_interval) the first character of each; starts[0] is 0 */
    uint16_t *class_of;     /* (n_interval) */
    uint32_t *next;         /* (n_state, n_class); state 0 is the start */
    uint8_t *accepts;       /* (n_state) */
    uint32_t dead, all;     /* the state from which no string is accepted, the one from which all are;
                             * DFA_NO_STATE: none */
};

struct languages {
    struct error *err;
    struct arena arena;
    uint64_t n_step, n_cell;
    uint32_t n_node;
    const struct language *any, *none, *empty;
};

/* Memory that is freed with all; NULL and an error if there is none. */
void *languages_alloc(struct languages *all, uint64_t n, size_t size);
/* Memory for temporary use; free() releases it.  NULL and an error if there is none. */
void *languages_temporary(struct languages *all, uint64_t n, size_t size);
plumb_status languages_no_memory(struct languages *all);
/* Counts work; an error if there was too much of it. */
bool languages_work(struct languages *all, uint64_t n_step);

/* As sequences_find; UINT32_MAX and an error also if the sequences have more than DFA_MAX_CELLS integers. */
uint32_t sequences_failed(struct languages *all, bool is_full);
static inline uint32_t sequences_id(struct languages *all, struct sequences *s, const uint64_t *items, size_t n) {
    const bool is_full = s->n_item + n > DFA_MAX_CELLS;
    const uint32_t id = is_full ? UINT32_MAX : sequences_find(s, items, n);
    return id != UINT32_MAX ? id : sequences_failed(all, is_full);
}

/* Makes room for a state in next and accepts of an automaton whose states are made one after the other and whose
 * classes are known.  cap: 0 at first. */
bool dfa_reserve(struct languages *all, struct dfa *d, uint32_t state, size_t *cap);
/* Makes a minimal automaton of a table whose states can all be reached.  The arrays of raw remain the caller's; its
 * classes are in the order of their first intervals. */
const struct dfa *dfa_minimize(struct languages *all, const struct dfa *raw);
const struct dfa *dfa_intersect(struct languages *all, const struct dfa *a, const struct dfa *b);
const struct dfa *dfa_complement(struct languages *all, const struct dfa *a);
/* For each state, the length of the shortest string that is accepted from it; UINT32_MAX if there is none. */
const uint32_t *dfa_shortest(struct languages *all, const struct dfa *a);
/* Whether from each state strings of all lengths are accepted, from the shortest one on. */
bool dfa_has_all_lengths(struct languages *all, const struct dfa *a, const uint32_t *shortest, bool *yes);
/* Whether a string is accepted whose length is in a range; most: LANGUAGE_UNBOUNDED. */
bool dfa_has_length(struct languages *all, const struct dfa *a, int64_t least, int64_t most, bool *yes);
bool dfa_equal(const struct dfa *a, const struct dfa *b);
uint32_t dfa_class(const struct dfa *a, uint32_t index);

#endif

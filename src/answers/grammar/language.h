/* The trees of languages.  Private to the files of regular.h. */
#ifndef PLUMB_GRAMMAR_LANGUAGE_H
#define PLUMB_GRAMMAR_LANGUAGE_H

#include "grammar/dfa.h"

enum language_kind {
    LANGUAGE_STRING,       /* chars[0..n), each a char_index */
    LANGUAGE_SET,          /* one character of set */
    LANGUAGE_CONCAT,       /* of n parts; 0 parts are the empty string */
    LANGUAGE_UNION,        /* of n parts; 0 parts are no string */
    LANGUAGE_REPEAT,       /* least..most times parts[0] */
    /* These and what contains them are written as automata. */
    LANGUAGE_AUTOMATON,    /* parts[0], but as an automaton */
    LANGUAGE_INTERSECT,    /* of parts[0] and parts[1] */
    LANGUAGE_COMPLEMENT,   /* of parts[0] */
    /* Assertions of regular expressions, which only occur inside a LANGUAGE_AUTOMATON. */
    LANGUAGE_START,        /* ^ */
    LANGUAGE_END,          /* $ */
    LANGUAGE_BOUNDARY,     /* \b */
    LANGUAGE_NO_BOUNDARY,  /* \B */
    LANGUAGE_AHEAD,        /* (?=parts[0]) */
    LANGUAGE_NOT_AHEAD     /* (?!parts[0]) */
};

struct language {
    enum language_kind kind;
    uint32_t depth;
    bool asserts;                      /* it has an assertion outside of a LANGUAGE_AUTOMATON */
    uint64_t n_state;                  /* of its nondeterministic automaton, at least; UINT64_MAX: more than that */
    uint32_t n;
    const struct language **parts;
    const uint32_t *chars;
    const struct charset *set;
    int64_t least, most;
    const struct dfa *dfa;             /* once it was made; parts may then be NULL */
};

/* What stands before a language.  Only assertions depend on it. */
enum before { BEFORE_NOTHING, BEFORE_OTHER, BEFORE_WORD, N_BEFORE };

/* Makes a node; parts are copied.  NULL and an error if a part is NULL or a limit is passed. */
const struct language *language_node(struct languages *all, enum language_kind kind,
                                     const struct language *const *parts, uint32_t n);
const struct language *language_chars(struct languages *all, const uint32_t *chars, uint32_t n);
const struct language *language_set(struct languages *all, const struct charset *set);
/* Whether the language is written as an automaton, not in its own shape. */
bool language_is_automaton(const struct language *a);
/* The same language, to be written as an automaton. */
const struct language *language_automaton(struct languages *all, const struct language *a);
/* A language with this automaton. */
const struct language *language_of_dfa(struct languages *all, const struct dfa *dfa);

/* A language in a range of lengths, and what it is written as: its automaton without the range, and marks that count.
 * behind (n_state): how many characters follow a state at least. */
struct counted {
    const struct dfa *dfa;
    const uint32_t *behind;
    int64_t least, most;
};
/* Whether the language is the intersection of another one, parts[0], with a range of lengths, parts[1]. */
bool language_has_range(const struct language *a);
/* Whether a language is to be counted: with the range its automaton would be large, and while characters follow that
 * are allowed without it, the range can still be kept.  *is false and an error if that fails. */
bool language_count(struct languages *all, const struct language *a, struct counted *out, bool *is);

/* The minimal automaton; NULL and an error on failure. */
const struct dfa *language_dfa(struct languages *all, const struct language *a);
/* The same of a regular expression, by its assertions after what stands before it. */
const struct dfa *language_dfa_after(struct languages *all, const struct language *a, enum before before);

/* As language_regex.  named, unless it is NULL, gives the language of (?&NAME), which the expressions of formats use to
 * refer to each other. */
const struct language *regex_language(struct languages *all, const char *regex, size_t n, enum regex_match match,
                                      const struct language *(*named)(struct languages *all, const char *name,
                                                                      size_t n));

/* ---- sets of characters ----------------------------------------------------------------------------------------- */

void spans_add_set(struct spans *s, const struct charset *set);
static inline bool charset_equal(const struct charset *x, const struct charset *y) {
    return x->n == y->n && memcmp(x->spans, y->spans, x->n * sizeof *x->spans) == 0;
}
/* Makes the set, or that of all other characters, and frees s. */
const struct charset *spans_set(struct languages *all, struct spans *s, bool negated);
/* 0-9, A-Z, a-z and _: \w. */
const struct charset *charset_word(struct languages *all);

#endif

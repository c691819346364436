/* Regular languages: sets of strings of Unicode code points (surrogates are never part of a string).
 *
 * A language is a tree: sets of characters, concatenation, alternation, repetition, intersection, complement.  Its rule
 * has that shape.  Where an intersection or a complement is part of it, or an assertion of a regular expression, it
 * becomes a minimal deterministic automaton, which becomes right-linear rules.
 *
 * All languages of a struct languages are immutable and belong to it; they are freed with it.  Every function that
 * makes a language returns NULL on failure, and NULL if one of the languages given to it is NULL, so that calls can be
 * nested.  The last failure is in the error that was given to languages_create:
 *   PLUMB_ERROR_ARGUMENT     a malformed regular expression, number or range; the message has the position
 *   PLUMB_ERROR_UNSUPPORTED  not regular or not supported (the message names it), or larger than the limits below
 *   PLUMB_ERROR_MEMORY
 */
#ifndef PLUMB_REGULAR_H
#define PLUMB_REGULAR_H

#include "base/base.h"
#include "grammar/rules.h"

struct language;
struct languages;

enum {
    LANGUAGE_MAX_STATES = 20000,        /* of an automaton, deterministic or not */
    LANGUAGE_MAX_NODES = 8000000,       /* of all trees of a struct languages */
    LANGUAGE_MAX_DEPTH = 250,           /* of groups in a regular expression, and of a tree */
    LANGUAGE_MAX_STEPS = 40000000,      /* of work of all that is made in a struct languages */
    LANGUAGE_MAX_BYTES = 32 << 20,      /* of memory of a struct languages */
    LANGUAGE_UNBOUNDED = -1             /* as the most of language_repeat and language_length */
};

struct languages *languages_create(struct error *err);   /* NULL if out of memory; err must outlive it */
void languages_free(struct languages *all);              /* NULL is allowed */

/* ---- making languages ------------------------------------------------------------------------------------------ */

const struct language *language_none(struct languages *all);                /* no string, not even the empty one */
const struct language *language_any(struct languages *all);                 /* every string */
const struct language *language_string(struct languages *all, const char *utf8, size_t n);
/* n strings; n = 0 is language_none. */
struct slice { const char *data; size_t n; };
const struct language *language_strings(struct languages *all, const struct slice *utf8, size_t n);
/* Strings of least..most code points. */
const struct language *language_length(struct languages *all, int64_t least, int64_t most);

const struct language *language_concat(struct languages *all, const struct language *a, const struct language *b);
const struct language *language_union(struct languages *all, const struct language *a, const struct language *b);
const struct language *language_repeat(struct languages *all, const struct language *a, int64_t least, int64_t most);
const struct language *language_intersect(struct languages *all, const struct language *a, const struct language *b);
const struct language *language_complement(struct languages *all, const struct language *a);
/* The strings of a that are not in b. */
const struct language *language_minus(struct languages *all, const struct language *a, const struct language *b);

enum regex_match {
    REGEX_WHOLE,     /* the whole string matches */
    REGEX_SEARCH     /* a part of the string matches, as JSON Schema's `pattern` and RegExp.test mean it */
};
/* The strings that an ECMA-262 regular expression matches, with its flag u and no other.  Refused by name, with the
 * position: back-references, lookbehind, modifiers, and \p{} of other properties than general categories L, M, N, P, S
 * and Z, and Any, ASCII, Emoji_Component, Extended_Pictographic and Regional_Indicator. */
const struct language *language_regex(struct languages *all, const char *regex, size_t n, enum regex_match match);

/* Decimal texts of numbers in a range.  Bounds and the divisor are texts of JSON numbers of any size ("-12", "0.5",
 * "1e3"), NULL if there is none.
 * Canonical form of an integer: 0, or an optional "-" and digits that do not begin with 0; so neither -0 nor 1.0 nor
 * 1e3.  A number also has an optional fraction with any digits (1.50), and unless multiple_of is given, the form with
 * an exponent that JavaScript writes: 1.5e+21, 1e-7.  No text has the value -0. */
struct number_range {
    const char *minimum, *exclusive_minimum, *maximum, *exclusive_maximum;
    const char *multiple_of;
    bool integer;
};
const struct language *language_number(struct languages *all, const struct number_range *range);

/* A format of JSON Schema 2020-12 by its name.  The regular ones: date, time, date-time, duration, email, hostname,
 * ipv4, ipv6, uri, uri-reference, iri, iri-reference, uri-template, uuid, json-pointer, relative-json-pointer.  Others
 * are PLUMB_ERROR_UNSUPPORTED. */
const struct language *language_format(struct languages *all, const char *name, size_t n);
/* True if language_format has it. */
bool language_has_format(const char *name, size_t n);

/* ---- questions ------------------------------------------------------------------------------------------------- */

/* These may have to make an automaton, so they return a status; that of a failed language is the failure. */
plumb_status language_is_empty(struct languages *all, const struct language *a, bool *yes);
plumb_status language_has(struct languages *all, const struct language *a, const char *utf8, size_t n, bool *yes);
/* Calls visit for each string, shortest first, up to limit of them.  *n is their number, limit + 1 if there are more
 * (or infinitely many).  Ends early if visit returns false.  visit may be NULL. */
plumb_status language_enumerate(struct languages *all, const struct language *a, uint32_t limit,
                                bool (*visit)(void *user, const char *utf8, size_t n), void *user, uint32_t *n);

/* ---- rules ----------------------------------------------------------------------------------------------------- */

enum language_form {
    LANGUAGE_PLAIN,
    LANGUAGE_JSON   /* the characters between the quotes of a JSON string, as rules_json_char writes them */
};
/* Defines a rule, and rules NAME-1, NAME-2 ... that it needs.  An empty language is PLUMB_ERROR_ARGUMENT, since there
 * is no rule that matches nothing.  b has the same struct error as all. */
plumb_status language_add(struct languages *all, const struct language *a, enum language_form form, struct rules *b,
                          uint32_t rule);

/* Defines a rule whose texts are the whole matches of a regular expression: for the option `regex`. */
plumb_status rules_add_regex(struct rules *b, uint32_t rule, const char *regex, size_t n);

#endif

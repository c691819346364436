/* The rules of a grammar while they are made: from GBNF (gbnf.c), regular languages (language_rules.c) and schemas
 * (schema_rules.c).
 *
 * A rule is what is added between rules_begin and rules_end, symbol after symbol; other rules can be made in between.
 * What encloses symbols, such as a repetition, takes the place at which they begin (rules_at).  After a failure nothing
 * is added any more, so that it is checked once, at the end.
 */
#ifndef PLUMB_GRAMMAR_RULES_H
#define PLUMB_GRAMMAR_RULES_H

#include "grammar/classes.h"
#include "grammar/grammar.h"

struct rules {
    struct grammar *g;         /* the rules that are complete, without what rules_finish adds */
    struct error *err;
    plumb_status status;       /* of the first failure, whose message is in err */
    uint32_t *code;            /* of the rules that are being made, the last one at the end */
    size_t n, cap;
    uint64_t work;
    struct hash_index index;   /* of g->rules, by their names */
    struct classes classes;
    uint32_t ascii[128];       /* the node of each character + 1; 0: not known */
    struct rules_kept { size_t n_code, n_rule, n_name, n_counter; uint32_t most_behind; } kept;
    uint32_t wrong;            /* the rule that rules_finish refused; RULE_NONE: no rule */
};

/* NULL if out of memory.  err must outlive it. */
struct rules *rules_create(struct error *err);
void rules_free(struct rules *b);   /* NULL is allowed */

/* ---- rules ------------------------------------------------------------------------------------------------------- */

/* The number of the rule with a name; it need not be defined yet. */
uint32_t rules_find(struct rules *b, const char *name, size_t n);
/* The same with the name of another rule and what printf appends to it, of at most 127 bytes in all. */
PRINTF_LIKE(3, 4) uint32_t rules_part(struct rules *b, uint32_t rule, const char *format, ...);
bool rules_has(const struct rules *b, const char *name);   /* whether it is defined */

/* Begins a rule.  Returns its place. */
static inline size_t rules_at(const struct rules *b) { return b->n; }
/* Defines a rule as what was added from a place on. */
void rules_end(struct rules *b, uint32_t rule, size_t from);

/* ---- symbols ----------------------------------------------------------------------------------------------------- */

void rules_char(struct rules *b, uint32_t cp);
void rules_text(struct rules *b, const char *ascii);
/* A character as JSON.stringify writes it in a string: \" \\ \b \f \n \r \t, \u00xx for other control characters. */
void rules_json_char(struct rules *b, uint32_t cp);
/* The letter after the backslash of that, 'u' for \u00xx, 0 if there is no backslash. */
char rules_json_escape(uint32_t cp);
/* One character of n sorted spans that do not touch. */
void rules_class(struct rules *b, const struct span *spans, size_t n);
/* OP_TOKEN or OP_NOT_TOKEN with an id, OP_CALL with a rule, OP_MARK with the number of marks behind it. */
void rules_symbol(struct rules *b, enum grammar_op op, uint32_t arg);

/* Repeats what was added from a place on.  max: COUNT_UNBOUNDED, or at most GRAMMAR_MAX_COUNT, as min. */
void rules_repeat(struct rules *b, size_t from, uint32_t min, uint32_t max);
/* Counts the marks in what was added from a place on: %{min,max}(...) of GBNF. */
void rules_count(struct rules *b, size_t from, uint32_t min, uint32_t max);

/* Alternatives, from the place `first` on. */
struct choice {
    size_t first, alternative, jump;   /* the current alternative; the last jump to the end + 1, 0: none */
    bool is_begun;
};
struct choice rules_choice(const struct rules *b);
void rules_next(struct rules *b, struct choice *c);     /* begins another alternative than the first */
void rules_option(struct rules *b, struct choice *c);   /* begins an alternative, which may be the first */
void rules_close(struct rules *b, struct choice *c);

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Checks all rules and completes the grammar.  PLUMB_ERROR_ARGUMENT: a rule is not defined, there is no root, or left
 * recursion, whose cycle is named. */
plumb_status rules_finish(struct rules *b);
/* Returns the grammar, which is finished, and frees all else. */
struct grammar *rules_take(struct rules *b);

/* Keeps what was added: no later definition replaces it, and rules_rewind leaves it.  That is for after a failure. */
void rules_keep(struct rules *b);
void rules_rewind(struct rules *b);

/* Adds the rules of a text in GBNF and finishes.  v is for token elements such as <think> and <[1000]>; it may be NULL:
 * then <[1000]> may have any id, and <think> is an error.  On failure the message has line and column, and the rules
 * must be rewound.  PLUMB_ERROR_ARGUMENT: a mistake, or left recursion; PLUMB_ERROR_UNSUPPORTED: too large. */
plumb_status rules_add_gbnf(struct rules *b, const char *text, size_t n, const struct vocabulary *v);

#endif

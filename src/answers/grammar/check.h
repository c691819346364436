/* What can be said of a grammar before it is used: which rules no text needs, and which text has two derivations.
 *
 * A derivation of a text is a path through the program: it says which alternative is taken everywhere, and how often
 * each repetition is repeated.  A grammar is ambiguous if one of its texts has two.  No program can tell of every
 * grammar whether it is, so grammar_find_ambiguity looks at all short texts, and says up to which length.
 */
#ifndef PLUMB_GRAMMAR_CHECK_H
#define PLUMB_GRAMMAR_CHECK_H

#include "grammar/grammar.h"
#include "grammar/text.h"

enum {
    CHECK_MAX_WORK = 1 << 24,       /* places that are visited: half a second, */
    CHECK_MAX_CONFIGS = 1 << 20,    /* configurations of states and */
    CHECK_MAX_STACKS = 1 << 20      /* stacks that are stored, before the search for an ambiguity is given up */
};

enum rule_use {
    RULE_USED,
    RULE_ENDLESS,       /* no text of finite length is derived from it */
    RULE_UNREACHABLE    /* no text of the root needs it */
};

/* What is known of each rule, and of each instruction. */
struct grammar_uses {
    uint8_t *rules;     /* (n_rule) enum rule_use */
    uint8_t *ends;      /* (n_code) whether the end of its rule can be reached from it, by a text of finite length */
};
plumb_status grammar_find_uses(const struct grammar *g, struct grammar_uses *out, struct error *err);
void grammar_uses_free(struct grammar_uses *uses);

struct ambiguity {
    bool is_found;            /* text is a shortest text that a rule derives in two ways: no text of a used rule with */
    uint32_t rule;            /* less bytes and tokens has two derivations */
    struct grammar_text text; /* bytes, and tokens of token elements as <[id]>; the caller frees it */
    bool is_complete;         /* not found, and all texts of all lengths were searched: the grammar is unambiguous */
    uint32_t n_length;        /* the search included all texts of used rules with fewer bytes and tokens than this */
};
/* A token that a token element consumes is compared with other token elements only, not with its text.  max_work:
 * CHECK_MAX_WORK, or less. */
plumb_status grammar_find_ambiguity(const struct grammar *g, const struct grammar_uses *uses, uint64_t max_work,
                                    struct ambiguity *out, struct error *err);

/* The rule that an instruction belongs to. */
uint32_t grammar_rule_of(const struct grammar *g, size_t at);

#endif

/* Grammars of one text each, for the tests. */
#ifndef PLUMB_GRAMMAR_MAKE_H
#define PLUMB_GRAMMAR_MAKE_H

#include "grammar/json_schema.h"
#include "grammar/regular.h"

/* Makes a grammar of rules to which something was added, with a status, and frees them.  *out: NULL on failure. */
static inline plumb_status make_of_rules(struct grammar **out, struct rules *b, plumb_status status) {
    if (status == PLUMB_OK) status = rules_finish(b);
    *out = status == PLUMB_OK ? rules_take(b) : NULL;
    if (status != PLUMB_OK) rules_free(b);
    return status;
}

static inline plumb_status make_grammar(struct grammar **out, const char *gbnf, size_t n, struct error *err) {
    struct rules *b = rules_create(err);
    *out = NULL;
    return b ? make_of_rules(out, b, rules_add_gbnf(b, gbnf, n, NULL)) : err->status;
}

/* With the rule root. */
static inline plumb_status make_language(struct grammar **out, struct languages *all, const struct language *a,
                                         enum language_form form, struct error *err) {
    struct rules *b = rules_create(err);
    *out = NULL;
    return b ? make_of_rules(out, b, language_add(all, a, form, b, rules_find(b, "root", 4))) : err->status;
}

static inline plumb_status make_regex(struct grammar **out, const char *regex, struct error *err) {
    struct rules *b = rules_create(err);
    *out = NULL;
    return b ? make_of_rules(out, b, rules_add_regex(b, rules_find(b, "root", 4), regex, strlen(regex))) : err->status;
}

static inline plumb_status make_schema(struct grammar **out, const char *schema, size_t n,
                                       const struct json_schema_options *options, struct grammar_text *warnings,
                                       struct error *err) {
    struct rules *b = rules_create(err);
    *out = NULL;
    return b ? make_of_rules(out, b, rules_add_schema(b, schema, n, options, warnings)) : err->status;
}

#endif

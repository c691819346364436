/* JSON Schema (2020-12, draft-07, draft-04) -> rules.
 *
 *   text --schema_tree.c--> values, keywords, references --schema_set.c, schema_walk.c, schema_shape.c--> what fits
 *        --schema_rules.c--> rules
 *
 * The grammar generates the JSON texts of values that are valid by the schema, and no others.  A keyword that cannot be
 * kept exactly is an error that begins with its JSON pointer: "/properties/a/uniqueItems: ...".  docs/grammars.md lists
 * what is kept and what is refused.
 */
#ifndef PLUMB_JSON_SCHEMA_H
#define PLUMB_JSON_SCHEMA_H

#include "base/base.h"
#include "grammar/rules.h"
#include "grammar/text.h"

/* White space between tokens: none; as JSON.stringify(value, null, 2) writes; or, after brackets, commas and colons and
 * before closing brackets, at most one space, or one line end with at most 20 spaces or tabs. */
struct json_schema_options {
    bool lenient;            /* a keyword that cannot be kept is ignored with a warning */
    bool any_order;          /* the members of an object in any order; otherwise as in the schema */
    bool closed;             /* an object schema with properties, even empty ones, that says nothing on other members
                              * allows no others */
    bool format_is_note;     /* format does not restrict, as the default of 2020-12 has it */
    plumb_json_space space;
    uint32_t draft;          /* 4, 7 or 2020; 0: as $schema says, otherwise 2020 */
    const char *name;        /* of the grammar's first rule, with which messages begin, too; NULL: "root" */
};

/* Defines a rule, and others whose names begin with its name and "-", by a schema, and appends sentences on what was
 * ignored to warnings (one a line; NULL is allowed), which the caller frees.  Unknown keywords and formats are ignored
 * with a warning, as JSON Schema has it.  options may be NULL: all zero.  On failure the message is in b->err, and the
 * rules must be rewound.
 *
 * PLUMB_ERROR_ARGUMENT       the text is not JSON, or not a schema, or no value is valid
 * PLUMB_ERROR_UNSUPPORTED    a keyword cannot be kept, or the schema exceeds a limit; the message begins with the place
 * PLUMB_ERROR_MEMORY */
plumb_status rules_add_schema(struct rules *b, const char *json, size_t n, const struct json_schema_options *options,
                              struct grammar_text *warnings);

#endif

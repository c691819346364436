/* What the files of the JSON Schema compiler share.
 *
 * Terms.  A node is a value of the schema's text.  A claim is something that a value may be asked to fulfil: a schema,
 * one keyword of it, or to equal a given value; or the opposite of one of these.  A goal is a set of claims which a
 * value must fulfil together: so allOf, $ref and siblings are merged by making one goal of them, `not` by turning
 * claims around.  Equal goals are the same object, so recursion ends.  A shape is one way for an array or an object to
 * fulfil a goal; anyOf, oneOf and others give a goal several shapes.
 *
 * Strings and numbers need no shapes: their texts that fulfil a goal are one regular language, whatever anyOf, oneOf,
 * not and if make of them.
 */
#ifndef PLUMB_GRAMMAR_SCHEMA_H
#define PLUMB_GRAMMAR_SCHEMA_H

#include "base/arena.h"
#include "grammar/hash_index.h"
#include "grammar/json_schema.h"
#include "grammar/regular.h"

enum {
    MAX_NODES = 200000,
    MAX_GOALS = 20000,
    MAX_SHAPES = 1000,           /* of one goal */
    MAX_NESTING = 100,           /* of schemas that apply to the same value */
    MAX_RULES = 40000,
    MAX_LENGTH = 100000,         /* of minLength and maxLength */
    MAX_BYTES = 32 << 20,
    MAX_WORK = 4000000
};

/* ---- schema_tree.c: values, keywords, references ---------------------------------------------------------------- */

enum value_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct node {
    uint8_t kind;
    uint8_t keyword;             /* of a member: what its key means in a schema; 0 if nothing */
    bool is_resource;            /* a schema with its own $id */
    bool is_entered;             /* a schema whose keywords were checked */
    uint32_t parent, first, next, n;   /* nodes, 0 if there is none; n: members or elements */
    uint32_t index;              /* of an element: its place in the array */
    uint32_t target;             /* of a reference: the schema, once it was found */
    uint32_t sets;               /* of a schema: 1 + its place in schema.sets, 0 if there is none yet */
    struct slice key;            /* of a member */
    struct slice text;           /* of a string, decoded; of a number, as it is written */
};

/* Kinds of values, of which a keyword restricts some and lets all others pass. */
enum { ON_CONSTANTS = 1, ON_STRINGS = 2, ON_NUMBERS = 4, ON_ARRAYS = 8, ON_OBJECTS = 16, ON_ALL = 31 };

enum keyword {
    KEY_NONE, KEY_REF, KEY_DYNAMIC_REF, KEY_RECURSIVE_REF,
    KEY_TYPE, KEY_ENUM, KEY_CONST, KEY_ALL_OF, KEY_ANY_OF, KEY_ONE_OF, KEY_NOT, KEY_IF, KEY_THEN, KEY_ELSE,
    KEY_MIN_LENGTH, KEY_MAX_LENGTH, KEY_PATTERN, KEY_FORMAT,
    KEY_MINIMUM, KEY_MAXIMUM, KEY_EXCLUSIVE_MINIMUM, KEY_EXCLUSIVE_MAXIMUM, KEY_MULTIPLE_OF,
    KEY_ITEMS, KEY_PREFIX_ITEMS, KEY_ADDITIONAL_ITEMS, KEY_CONTAINS, KEY_MIN_CONTAINS, KEY_MAX_CONTAINS,
    KEY_MIN_ITEMS, KEY_MAX_ITEMS, KEY_UNIQUE_ITEMS, KEY_UNEVALUATED_ITEMS,
    KEY_PROPERTIES, KEY_PATTERN_PROPERTIES, KEY_ADDITIONAL_PROPERTIES, KEY_PROPERTY_NAMES, KEY_REQUIRED,
    KEY_MIN_PROPERTIES, KEY_MAX_PROPERTIES, KEY_DEPENDENT_REQUIRED, KEY_DEPENDENT_SCHEMAS, KEY_DEPENDENCIES,
    KEY_UNEVALUATED_PROPERTIES,
    KEY_NULLABLE, KEY_ID, KEY_ANCHOR, KEY_DYNAMIC_ANCHOR, KEY_NOTE, KEY_DEFINITIONS, N_KEYWORDS
};

/* The form of a keyword's value. */
enum form {
    FORM_ANY, FORM_SCHEMA, FORM_SCHEMAS, FORM_SCHEMA_OR_SCHEMAS, FORM_MAP, FORM_STRING, FORM_STRINGS, FORM_TYPES,
    FORM_BOOLEAN, FORM_COUNT, FORM_NUMBER, FORM_NUMBER_OR_BOOLEAN, FORM_DIVISOR, FORM_LIST, FORM_MAP_OF_STRINGS,
    FORM_DEPENDENCIES
};
struct keyword_row { const char *name; uint8_t keyword, form, on; };
/* The row of a keyword other than KEY_NONE. */
const struct keyword_row *keyword_row(enum keyword keyword);

/* A set of values of one domain (schema_set.c): of null, false and true, bits; of the others a language. */
struct set {
    uint8_t constants;
    bool has_some;               /* it is known that the language is not empty */
    bool has_integers;           /* it is known that the language has only integers */
    const struct language *language;
};
enum domain { CONSTANTS, STRINGS, NUMBERS, EQUAL_NUMBERS, N_SCALARS, ARRAYS = N_SCALARS, OBJECTS };
/* The bit of a domain among ON_CONSTANTS... */
unsigned domain_bit(enum domain domain);

/* The set of a keyword with a text, or of lengths, so that equal languages are made and written once. */
struct made { uint32_t keyword, least, most; enum domain domain; struct slice text; struct set set; };
enum { N_MADE = 64 };

struct resource { uint32_t node; struct slice uri; };
struct sets { bool has[N_SCALARS]; struct set of[N_SCALARS]; };

struct schema {
    const struct json_schema_options *options;
    struct rules *rules;
    uint32_t draft;
    bool has_unevaluated;        /* some schema may ask what was evaluated */
    struct error *err;
    plumb_status status;         /* the first failure; everything returns soon after it */
    struct grammar_text *warnings;
    struct arena arena;          /* memory that is freed at the end */
    uint64_t work;
    struct node *nodes;          /* node 0 is the schema `true`, node 1 the root */
    size_t n_nodes, nodes_cap;
    struct resource *resources;
    size_t n_resources, resources_cap;
    struct sets *sets;
    size_t n_sets, sets_cap;
    struct languages *languages;
    struct set none[N_SCALARS], any[N_SCALARS];
    struct made made[N_MADE];    /* a ring */
    size_t n_made;
    const struct language *any_integer;
    const struct language *plain_numbers, *short_numbers;   /* NULL until they are needed (schema_set.c) */
    struct goal **goals;
    size_t n_goals, goals_cap;
    struct hash_index goal_index;
    uint32_t nesting;
    size_t n_subsets;            /* states of all automata of arrays whose elements differ */
    uint32_t place;              /* the schema whose values are found or written: for messages */
};

/* Memory that lives until the end; zeroed.  NULL if the compiler has failed, or fails now. */
void *schema_alloc(struct schema *s, size_t n);
/* Counts n units of work.  Returns false if the compiler has failed, or fails because that is too much. */
bool schema_work(struct schema *s, size_t n);
/* Fails with "POINTER: sentence", where the pointer is that of node, unless it has failed already. */
PRINTF_LIKE(4, 5) void schema_fail(struct schema *s, plumb_status status, uint32_t node, const char *format, ...);
/* A keyword that cannot be kept: fails, or adds a warning if the options are lenient. */
PRINTF_LIKE(3, 4) void schema_refuse(struct schema *s, uint32_t node, const char *format, ...);
void *schema_no_memory(struct schema *s);   /* returns NULL */
/* The failure of a call of regular.h on behalf of a keyword, or of rules.h; 0: of the place. */
void schema_language_failed(struct schema *s, uint32_t node);

/* Adds a string or number that is not in the text, as an element of parent; 0 after a failure. */
uint32_t schema_add_value(struct schema *s, uint32_t parent, enum value_kind kind, const char *text, size_t n);
plumb_status schema_read(struct schema *s, const char *json, size_t n);
/* The member of an object with this key or keyword; 0 if there is none. */
uint32_t node_find(const struct schema *s, uint32_t object, struct slice key);
uint32_t node_keyword(const struct schema *s, uint32_t object, enum keyword keyword);
/* Checks the forms of all keywords of a schema, once.  Warns of unknown ones. */
void schema_enter(struct schema *s, uint32_t node);
/* The target of a reference (the member $ref); 0 after a failure. */
uint32_t schema_target(struct schema *s, uint32_t ref);
/* A count such as minItems; UINT32_MAX if it is larger. */
uint32_t node_count(const struct schema *s, uint32_t node);

static inline bool slice_equal(struct slice a, struct slice b) {
    return a.n == b.n && memcmp(a.data, b.data, a.n) == 0;
}
static inline bool slice_is(struct slice a, const char *word) {
    return a.n == strlen(word) && memcmp(a.data, word, a.n) == 0;
}

/* ---- schema_set.c: scalars --------------------------------------------------------------------------------------- */

/* A claim: a node, what it is about, and whether the opposite is claimed. */
enum claim_kind { CLAIM_SCHEMA, CLAIM_KEYWORD, CLAIM_VALUE };
static inline uint32_t claim(uint32_t node, enum claim_kind kind, bool negated) {
    return node << 3 | (uint32_t)kind << 1 | negated;
}
static const uint32_t CLAIM_NOTHING = 1;   /* the opposite of node 0, which no value fulfils */

/* Prepares none, any and the languages. */
void sets_begin(struct schema *s);
/* The scalars of a domain that fulfil a claim. */
struct set set_of_claim(struct schema *s, enum domain domain, uint32_t claim);
struct set set_and(struct schema *s, enum domain domain, struct set a, struct set b);
/* node: for the message of a failure. */
bool schema_language_is_empty(struct schema *s, const struct language *l, uint32_t node);
bool set_is_empty(struct schema *s, enum domain domain, struct set a, uint32_t node);
/* The bits ON_... that the value of `type` names, and whether numbers must be integers. `nullable: true` beside it, of
 * OpenAPI 3.0, adds null. */
unsigned types_of(const struct schema *s, uint32_t type, uint8_t *constants, bool *integers);
/* Whether a format restricts strings or numbers that a type (0: any) allows. */
bool format_is_known(const struct schema *s, uint32_t format, uint32_t type);
/* Whether a schema is `true`, or an object that restricts nothing. */
bool schema_is_true(struct schema *s, uint32_t node);
unsigned kind_bit(enum value_kind kind);
bool language_has_slice(struct schema *s, const struct language *l, struct slice text);
/* The language of the names that a schema allows. */
const struct language *names_of(struct schema *s, uint32_t node);
/* The language of the names that a pattern of patternProperties matches; node: for the message of a failure. */
const struct language *names_of_pattern(struct schema *s, uint32_t node, struct slice regex);

/* ---- schema_goal.c: goals; schema_walk.h, schema_walk.c, schema_shape.c: shapes ---------------------------------- */

struct known_mistake { struct slice name; bool required; struct goal *goal; };
struct cell { const struct language *names; struct goal *goal; };   /* names: NULL for any */
struct contained { uint32_t claim, from, min, max, node; bool covers; };
/* What an array that must contain something, or no value twice, or an object whose members are counted or in any order,
 * may do next: an element, a known member or another one, or leave out a member; and the state after it. */
enum step_kind { STEP_ELEMENT, STEP_KNOWN, STEP_OTHER, STEP_SKIP };
struct step { enum step_kind kind; struct goal *goal; const struct known_mistake *known; uint32_t to; };
/* is_first: there is nothing before it.  is_alive: the automaton can end from there. */
struct state { bool is_first, accepts, is_alive; struct step *steps; size_t n_steps; };

struct shape {
    struct shape *next;
    bool is_object;
    uint32_t min, max;           /* members or elements; UINT32_MAX if there is no bound */
    /* objects: the members with known names, in order, and the others, in cells of names with the same claims */
    struct known_mistake *known;
    struct cell *cells;
    bool needs_other;            /* at least one of the others */
    size_t n_known, n_cells;
    /* arrays: the first elements and the others; or an automaton, from state 0 */
    struct goal **prefix;
    struct goal *rest;
    struct state *states;
    size_t n_prefix, n_states;
};

struct goal {
    uint32_t index, n_claims;
    const uint32_t *claims;      /* ascending */
    bool is_expanded, is_expanding, is_productive, is_queued;
    struct set sets[NUMBERS + 1];
    struct shape *shapes;
    uint32_t node;               /* for messages: what it came from */
    uint32_t depths;             /* bit d: schema_rules.c has queued it at depth d */
};

struct goal *goal_of(struct schema *s, const uint32_t *claims, size_t n, uint32_t node);
/* Finds the sets and shapes of a goal and of all that it needs, and whether they are productive: whether there are
 * values.  Fails if the root is not. */
void goals_expand(struct schema *s, struct goal *root);
bool goal_is_any(const struct goal *g);
bool goal_is_productive(const struct goal *g);
bool shape_is_productive(const struct shape *shape);
/* Marks the states that are alive.  Returns whether the first one is among them. */
bool states_mark_alive(struct state *states, size_t n);

#endif

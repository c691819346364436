/* The shapes in which arrays and objects fulfil a goal.
 *
 * A walk takes the claims of a goal one after the other.  A claim adds requirements to a draft of the shape, or splits
 * into further claims; one that leaves a choice (anyOf, the opposite of allOf ...) waits until all others are done, and
 * then the walk goes on once for each alternative (schema_walk.c).  A draft that is left when no claim is left becomes
 * a shape (schema_shape.c).
 */
#ifndef PLUMB_GRAMMAR_SCHEMA_WALK_H
#define PLUMB_GRAMMAR_SCHEMA_WALK_H

#include "grammar/schema.h"

/* The schema from which a requirement comes, and the schemas around it that apply to the same value.
 * additionalProperties asks which members its own schema names; unevaluatedProperties, which ones those within its
 * schema name. */
struct scope { const struct scope *outer; uint32_t depth; };

enum entry_kind { MEMBER, REQUIRED, PATTERN, OTHERS, EXISTS, ELEMENT, REST, CONTAINS };
struct entry {
    const struct entry *previous;
    enum entry_kind kind;
    bool is_deep;                 /* of OTHERS and REST: unevaluated... */
    uint32_t claim, node;
    struct slice name;
    const struct language *names;
    const struct scope *scope;
    uint32_t index, min, max;     /* of an element, or the first of the rest; of what is contained */
};

struct draft {
    const struct entry *entries;
    const struct entry *exist;   /* EXISTS: some member with one of these names must fulfil a claim */
    const struct entry *other;   /* those of them that no member with a known name fulfils */
    size_t n;
    uint32_t min, max, unique;
    bool has_properties;         /* a schema has the keyword, perhaps without any member */
};
struct walk {
    struct schema *s;
    struct goal *goal;
    enum domain domain;          /* ARRAYS or OBJECTS */
    struct shape **end;          /* where the next shape goes */
    size_t n_shapes;
    uint32_t depth;
};

/* Adds the shapes of the walk's goal and domain. */
void walk_goal(struct walk *w);
/* Finds the sets and shapes of a goal while another one is expanded.  Returns false if that is not possible, or if the
 * goal has none, since every value fulfils it. */
bool goal_expand_inside(struct schema *s, struct goal *g);
/* The first goal which a member or an element of each value of a shape must fulfil and that lacks something; NULL if
 * there is none. */
struct goal *shape_needs(const struct shape *shape, bool (*lacks)(void *user, struct goal *g), void *user);
struct goal *goal_and(struct schema *s, const struct goal *a, uint32_t claim);
static inline bool goal_is_nothing(const struct goal *g) { return g->n_claims == 1 && g->claims[0] == CLAIM_NOTHING; }
/* Follows schemas that are nothing but a reference, so that equal goals have equal claims.  0: every value fits. */
uint32_t claim_simplify(struct schema *s, uint32_t claim);

void draft_add(struct walk *w, struct draft *d, struct entry entry);
/* Whether a draft asks for a member that is to be absent, or the other way around. */
bool draft_contradicts(struct walk *w, const struct draft *d, bool is_present, struct slice name);
/* Makes shapes of a draft. */
void finish_object(struct walk *w, const struct draft *d);
void finish_array(struct walk *w, const struct draft *d);
/* Refuses the opposite of a keyword; returns true. */
bool refuse_opposite(struct walk *w, uint32_t m);

#endif

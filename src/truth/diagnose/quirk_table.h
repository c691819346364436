/* The table of quirks.  Each entry is a known mistake: its name, its switch in struct quirks, the first tap that it can
 * change, the models that it concerns, and a sentence that says what an engine with this mistake does.  The functions
 * below say which quirks could change anything in a model, and apply those that concern the list of tokens.
 */
#ifndef PLUMB_DIAGNOSE_QUIRK_TABLE_H
#define PLUMB_DIAGNOSE_QUIRK_TABLE_H

#include "reference/quirks.h"

struct quirk {
    const char *name;       /* "rope.pairing=halves" */
    size_t field;           /* offset of its switch in struct quirks */
    uint8_t value;
    const char *tap;        /* the first tap that it can change */
    const struct need *need;   /* to which models it can apply */
    const char *text;       /* what the engine does wrong, exactly */
};

/* Returns the quirk at index i of the table; NULL past the last. */
const struct quirk *quirk_at(size_t i);
/* Returns the quirk with this name; NULL if there is none. */
const struct quirk *quirk_find(const char *name);
/* Returns 1 if the quirk could change anything in this model, 0 if not, and -1 if there is no memory to find out.
 * Swapped nibbles of a type that no tensor has could not, for instance, and neither could a base of 10000 if the file
 * has the same.  bos: the tokenizer's BOS id, -1 if it has none. */
int quirk_applies(const struct quirk *q, const struct model *m, int32_t bos);
static inline void quirk_set(struct quirks *set, const struct quirk *q) { ((uint8_t *)set)[q->field] = q->value; }
/* Returns false if a quirk of the set excludes q: another value of the same switch. */
bool quirk_is_free(const struct quirks *set, const struct quirk *q);
/* Says to which models the quirk can apply: "all", or what they must have, "with RoPE". */
const char *quirk_models(const struct quirk *q);
/* Writes to out, (n + 3), the tokens that an engine with these quirks computes if it is asked to compute ids, (n), the
 * first *n_prompt of which are the prompt.  Returns how many it computes, and sets *n_prompt to the length of its
 * prompt. */
size_t quirk_tokens(const struct quirks *set, const int32_t *ids, size_t n, size_t *n_prompt, int32_t *out);

#endif

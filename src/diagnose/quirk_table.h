/* The table of quirks: for each known mistake its name, its switch in struct quirks, the first tap that it changes, and
 * the sentence that says what an engine with it does.
 */
#ifndef PLUMB_DIAGNOSE_QUIRK_TABLE_H
#define PLUMB_DIAGNOSE_QUIRK_TABLE_H

#include "reference/quirks.h"

struct quirk {
    const char *name;       /* "rope.pairing=halves" */
    size_t field;           /* offset of its switch in struct quirks */
    uint8_t value;
    const char *tap;        /* the first tap that it can change */
    const char *text;       /* what the engine does wrong, exactly */
};

/* The quirk at index i of the table; NULL past the last. */
const struct quirk *quirk_at(size_t i);
/* The quirk with this name; NULL if there is none. */
const struct quirk *quirk_find(const char *name);
/* True if the quirk could change anything in this model.  (Swapped nibbles of a type that no tensor has cannot, nor can
 * a base of 10000 if the file has the same.)  bos: the tokenizer's BOS id, -1 if it has none. */
bool quirk_applies(const struct quirk *q, const struct model *m, int32_t bos);
static inline void quirk_set(struct quirks *set, const struct quirk *q) { ((uint8_t *)set)[q->field] = q->value; }
static inline bool quirk_is_free(const struct quirks *set, const struct quirk *q) {
    return ((const uint8_t *)set)[q->field] == 0;
}
/* Writes to out the tokens that an engine with these quirks really computes if it is asked to compute ids (n), of which
 * the first *n_prompt are the prompt.  Returns their number, at most n + 2, and updates *n_prompt. */
size_t quirk_tokens(const struct quirks *set, const int32_t *ids, size_t n, size_t *n_prompt, int32_t *out);

#endif

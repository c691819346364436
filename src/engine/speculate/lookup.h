/* Prompt lookup: the tokens that followed the last ones the last time (Saxena 2023,
 * https://github.com/apoorvumang/prompt-lookup-decoding).
 *
 * The index has an entry for each token of a text and for each length of LOOKUP_GRAMS: where the n-gram that ends with
 * this token ended before.  It grows with the text, one token at a time, and going back removes the latest entries.
 *
 *   tokens -> hash of the last n -> chain of the places where n tokens with this hash end, the latest first
 *          -> the place that has the most tokens in common with the end of the text: the source
 *
 * As long as the text goes on as its source did, the source moves along and nothing is searched.  The tokens belong to
 * the caller, who passes them to each call; those that the index has must be the same each time. */
#ifndef PLUMB_SPECULATE_LOOKUP_H
#define PLUMB_SPECULATE_LOOKUP_H

#include "base/base.h"

/* LOOKUP_GRAMS: how many lengths of n-grams have entries.  LOOKUP_LONGEST: of a match, more tokens are not compared.
 * LOOKUP_CLASSES: see lookup_class. */
enum { LOOKUP_GRAMS = 3, LOOKUP_LONGEST = 32, LOOKUP_CLASSES = 12 };

struct lookup {
    uint32_t n, n_max;                 /* tokens in the index, and for how many there is memory */
    uint32_t n_bucket;                 /* a power of two */
    uint32_t *heads[LOOKUP_GRAMS];     /* (n_bucket) the latest end with this hash; 0: none */
    uint32_t *before[LOOKUP_GRAMS];    /* (n_max + 1) the end before this one with the same hash; 0: none */
    uint32_t source, length;           /* `length` tokens before `source` are those at the end of the text; 0: none */
    uint32_t left;                     /* where a match of at least LOOKUP_TRUSTED tokens ended; 0: nowhere */
    bool is_near;                      /* the source is near that place */
};

void lookup_free(struct lookup *l);
/* Adds the tokens up to n.  Searches for a source if `searches` is set, and otherwise there is none.  Returns false,
 * and the index is empty, if there is no memory. */
bool lookup_extend(struct lookup *l, const int32_t *tokens, uint32_t n, bool searches);
/* Keeps the first n tokens, whose values and those of the others are still the same. */
void lookup_keep(struct lookup *l, const int32_t *tokens, uint32_t n);
/* Forgets all tokens, whatever their values are now. */
void lookup_clear(struct lookup *l);
/* How much a source can be trusted whose match has n_more tokens more than now: 0..LOOKUP_CLASSES - 1. */
uint32_t lookup_class(const struct lookup *l, uint32_t n_more);
/* Bytes of the index. */
uint64_t lookup_bytes(const struct lookup *l);

#endif

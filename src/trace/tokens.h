/* How two lists of tokens differ, named: activations of different tokens cannot be compared, and most engines that
 * print gibberish were fed something else than their author thinks.
 */
#ifndef PLUMB_TRACE_TOKENS_H
#define PLUMB_TRACE_TOKENS_H

#include "tokenizer/tokenizer.h"
#include "trace/trace.h"

/* Of a, held against b: BOS_MISSING is missing in a. */
enum tokens_kind {
    TOKENS_SAME,
    TOKENS_UNKNOWN,           /* one side does not say what it was fed */
    TOKENS_PREFIX,            /* one list is the beginning of the other */
    TOKENS_BOS_MISSING, TOKENS_BOS_ADDED, TOKENS_BOS_DOUBLED, TOKENS_BOS_SINGLE,
    TOKENS_REPEATED,          /* one token is fed twice */
    TOKENS_SPACE_ADDED, TOKENS_SPACE_MISSING,
    TOKENS_SPECIAL_SPELLED,   /* the text of a special token was tokenized as plain text */
    TOKENS_SPECIAL_PARSED,    /* the reverse */
    TOKENS_TEMPLATE,          /* framed by another chat template */
    TOKENS_SPLIT,             /* the same text, cut into other tokens */
    TOKENS_TEXT,              /* other text */
    TOKENS_DIFFER,            /* ids differ, and their texts are not known */
};

struct tokens_difference {
    enum tokens_kind kind;
    uint32_t first;       /* index at which they part */
    char text[400];       /* a sentence, without the texts of tokens; the sides are called A and B */
};

/* "same", "bos_missing"... */
const char *tokens_kind_name(enum tokens_kind kind);
/* May the numbers of the tokens that both have be compared? */
static inline bool tokens_comparable(enum tokens_kind kind) { return kind <= TOKENS_PREFIX; }

/* t: the model's vocabulary, NULL if it is not at hand; then the pieces are those that the traces bring. */
plumb_status tokens_compare(struct tokens_difference *out, const struct plumb_trace *a, const struct plumb_trace *b,
                            const struct tokenizer *t, struct error *err);
/* What is odd in the tokens that an engine says it was fed, as a sentence about "they"; NULL if nothing is. */
const char *tokens_doubt(const struct plumb_trace *theirs, const struct tokenizer *t);
/* Text of a token as the vocabulary has it or a trace, special tokens included, control characters as \n or \xNN.
 * Writes at most cap bytes, no final 0; returns the length, -1 if nobody knows. */
int64_t tokens_piece(const struct plumb_trace *a, const struct plumb_trace *b, const struct tokenizer *t, int32_t id,
                     char *buf, size_t cap);

#endif

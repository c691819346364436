/* Finds out how the tokens of two traces differ and says it in a sentence.
 *
 * Activations of different tokens cannot be compared, and most engines that print gibberish were fed other tokens than
 * their author thinks.
 */
#ifndef PLUMB_TRACE_TOKENS_H
#define PLUMB_TRACE_TOKENS_H

#include "tokenizer/tokenizer.h"
#include "trace/trace.h"

/* What is different in a, compared with b: TOKENS_BOS_MISSING means that a lacks it.  Messages call them A and B. */
enum tokens_kind {
    /* Activations can be compared (tokens_comparable relies on this order). */
    TOKENS_SAME,
    TOKENS_UNKNOWN,           /* one side, or both, does not say what it was fed */
    TOKENS_PREFIX,            /* one list is the beginning of the other */
    /* Activations cannot be compared. */
    TOKENS_BOS_MISSING, TOKENS_BOS_ADDED, TOKENS_BOS_DOUBLED, TOKENS_BOS_SINGLE,   /* SINGLE: BOS is doubled in b */
    TOKENS_REPEATED,          /* one side is fed a token twice */
    TOKENS_SPACE_ADDED, TOKENS_SPACE_MISSING,
    TOKENS_SPECIAL_SPELLED,   /* a has the text of a special token tokenized as plain text */
    TOKENS_SPECIAL_PARSED,    /* the same of b */
    TOKENS_TEMPLATE,          /* different chat templates */
    TOKENS_SPLIT,             /* the same text, split into different tokens */
    TOKENS_TEXT,              /* different texts */
    TOKENS_DIFFER,            /* different ids, whose texts are not known */
};

struct tokens_difference {
    enum tokens_kind kind;
    uint32_t first;       /* index of the first token that differs */
    char text[400];       /* a sentence that calls the sides A and B; has no texts of tokens */
};

/* Returns "same", "bos_missing"... */
const char *tokens_kind_name(enum tokens_kind kind);
/* Returns true if the activations of the tokens that both sides have can be compared. */
static inline bool tokens_comparable(enum tokens_kind kind) { return kind <= TOKENS_PREFIX; }

/* Sets *out.  t: the model's vocabulary; if it is NULL, the texts are those that the traces have.  Fails only if out of
 * memory. */
plumb_status tokens_compare(struct tokens_difference *out, const struct plumb_trace *a, const struct plumb_trace *b,
                            const struct tokenizer *t, struct error *err);
/* Returns what is odd about the tokens that an engine says it was fed, as a sentence about "they"; NULL if nothing
 * is. */
const char *tokens_warning(const struct plumb_trace *theirs, const struct tokenizer *t);
/* Writes the text of a token, special tokens included, from the vocabulary or else from a trace.  Bytes below 0x20 are
 * written as \n or \xNN.  Writes at most cap bytes and no final 0.  Returns the length of the whole text; -1 if it is
 * not known. */
int64_t tokens_piece(const struct plumb_trace *a, const struct plumb_trace *b, const struct tokenizer *t, int32_t id,
                     char *buf, size_t cap);

#endif

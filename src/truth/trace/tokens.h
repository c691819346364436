/* Finds out how the tokens of two traces differ and says it in a sentence.
 *
 * Activations of different tokens cannot be compared, and most engines that print gibberish were fed tokens other than
 * those that their author thinks they were fed.
 */
#ifndef PLUMB_TRACE_TOKENS_H
#define PLUMB_TRACE_TOKENS_H

#include "tokenizer/tokenizer.h"
#include "trace/trace.h"

/* What is different in a, compared with b: TOKENS_BOS_MISSING means that a lacks BOS.  Messages call them A and B. */
enum tokens_kind {
    /* Activations can be compared (tokens_comparable relies on this order). */
    TOKENS_SAME,
    TOKENS_UNKNOWN,           /* one side, or both, does not say what it was fed */
    TOKENS_PREFIX,            /* one list is the beginning of the other */
    /* Activations cannot be compared. */
    TOKENS_BOS_MISSING, TOKENS_BOS_ADDED, TOKENS_BOS_DOUBLED, TOKENS_BOS_SINGLE,   /* SINGLE: BOS is doubled in b */
    TOKENS_REPEATED,          /* one side is fed a token twice */
    TOKENS_SPACE_ADDED, TOKENS_SPACE_MISSING,
    TOKENS_SPECIAL_SPELLED,   /* several tokens of a spell the text of a special token of b */
    TOKENS_SPECIAL_PARSED,    /* several tokens of b spell the text of a special token of a */
    TOKENS_TEMPLATE,          /* different chat templates */
    TOKENS_SPLIT,             /* the same text, split into different tokens */
    TOKENS_TEXT,              /* different texts */
    TOKENS_DIFFER,            /* different ids, whose texts are not known */
};

struct tokens_difference {
    enum tokens_kind kind;
    uint32_t first;       /* index of the first token that differs, or of the end of the shorter list */
    char text[400];       /* a sentence that calls the sides A and B; it contains no texts of tokens */
};

/* Returns "same", "bos_missing"... */
const char *tokens_kind_name(enum tokens_kind kind);
/* Returns true if the activations of the tokens that both sides have can be compared. */
static inline bool tokens_comparable(enum tokens_kind kind) { return kind <= TOKENS_PREFIX; }

/* Sets *out.  t: the model's vocabulary; if it is NULL, only the texts in the traces are known.  The only possible
 * failure is PLUMB_ERROR_MEMORY. */
plumb_status tokens_compare(struct tokens_difference *out, const struct plumb_trace *a, const struct plumb_trace *b,
                            const struct tokenizer *t, struct error *err);
/* Returns a sentence on what is odd about the tokens that an engine says it was fed, to be written after "their
 * tokens: "; NULL if nothing is odd. */
const char *tokens_warning(const struct plumb_trace *theirs, const struct tokenizer *t);
/* Writes the text of a token, special tokens included.  It comes from the vocabulary t or, if t is NULL or lacks the
 * id, from b or a.  Bytes below 0x20 are written as \n, \t, \r or \xNN.  Writes at most cap bytes and no final 0.
 * Returns the length of the whole text; -1 if it is not known. */
int64_t tokens_piece(const struct plumb_trace *a, const struct plumb_trace *b, const struct tokenizer *t, int32_t id,
                     char *buf, size_t cap);

#endif

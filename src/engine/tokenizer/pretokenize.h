/* Pre-tokenizers of byte-level BPE: they split a text into words before merging.
 *
 * A pre-tokenizer is a list of regular expressions, named by tokenizer.ggml.pre.  There is no regex engine.  An
 * expression is a table of alternatives ("rules"), which are tried in order at each position.  Each expression of the
 * list ("stage") splits the words of the one before it further.
 */
#ifndef PLUMB_PRETOKENIZE_H
#define PLUMB_PRETOKENIZE_H

#include "base/unicode.h"

struct pre_char {
    uint32_t cp;
    uint32_t sets;   /* the sets of characters (pretokenize.c) that it belongs to, one bit each */
};
struct pre_char pre_char_make(uint32_t cp);

struct pre_rule;
struct pretokenizer {
    const char *name;                        /* tokenizer.ggml.pre */
    const struct pre_rule *const *stages;    /* NULL-terminated */
    unsigned flags;
};
enum {
    PRE_IGNORE_MERGES = 1,  /* a word that is itself a token is not merged */
    PRE_ADD_BOS = 2,        /* add_bos_token is true by default */
    PRE_NO_BOS = 4,         /* there is no default BOS id */
    PRE_CLEAN_SPACES = 8,   /* decoding drops the spaces before ? ! . , 's 'm 're 've and around a lone apostrophe */
    PRE_NO_MERGES = 16,     /* the vocabulary may have no merges */
    PRE_PLAIN = 32,         /* tokens are UTF-8, without printable characters that stand for bytes; a byte that no
                             * token has is the token <0xHH> */
    PRE_MARK_SPACES = 64,   /* spaces become U+2581 */
    PRE_LINE_TOKENS = 128,  /* a word of line breaks that is itself a token is not merged */
    PRE_ALWAYS_BOS = 256,   /* add_bos_token is true whatever the file says */
    PRE_ADD_SEP = 1024,     /* add_sep_token is true by default */
    PRE_KEEP_CASE = 512,    /* letters keep their case by default */
};

/* NULL if the name is not known. */
const struct pretokenizer *pretokenizer_find(const char *name, size_t n);

/* Calls on_word(user, begin, end) for each word of chars[0..n), in order and without gaps.  Returns how many characters
 * it looked at, which is at most proportional to n. */
uint64_t pretokenize(const struct pretokenizer *pre, const struct pre_char *chars, size_t n,
                     void (*on_word)(void *user, size_t begin, size_t end), void *user);

#endif

/* Pre-tokenizers of byte-level BPE: where a text is cut into words before merges.
 *
 * Each is the list of regular expressions that tokenizer.ggml.pre names.  There is no regex engine: an expression is a
 * table of alternatives ("rules"), tried in order at each position, and a list of expressions ("stages") refines the
 * cut, the words of one being the texts of the next.
 */
#ifndef PLUMB_PRETOKENIZE_H
#define PLUMB_PRETOKENIZE_H

#include "tokenizer/unicode.h"

struct pre_char {
    uint32_t cp;
    uint32_t sets;   /* the sets of pretokenize.c that it belongs to */
};
struct pre_char pre_char_make(uint32_t cp);

struct pre_rule;
struct pretokenizer {
    const char *name;                        /* tokenizer.ggml.pre */
    const struct pre_rule *const *stages;    /* NULL-terminated */
    unsigned flags;
};
enum {
    PRE_IGNORE_MERGES = 1,  /* a word that is a token is that token, without merging */
    PRE_ADD_BOS = 2,        /* the default of add_bos_token */
    PRE_NO_BOS = 4,         /* no default BOS id */
    PRE_CLEAN_SPACES = 8,   /* decoding drops the spaces that English puts before none of ? ! . , 's 'm 're 've */
};

/* NULL if the name is not known. */
const struct pretokenizer *pretokenizer_find(const char *name, size_t n);

/* Calls on_word(user, begin, end) for each word of chars[0..n), in order, without gaps.  Returns how many characters it
 * looked at, which grows with n alone. */
uint64_t pretokenize(const struct pretokenizer *pre, const struct pre_char *chars, size_t n,
                     void (*on_word)(void *user, size_t begin, size_t end), void *user);

#endif

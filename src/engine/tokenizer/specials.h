/* Finds the special tokens in a text and cuts them out.
 *
 * The rule is llama.cpp's.  It takes the special tokens one by one, longer ones first, and lower ids first if they are
 * equally long.  It cuts each out of the text that is still raw, from left to right.  A token may take the white space
 * beside it along.
 *
 * The result is the same here, but the time grows with the text and not with the number of tokens.  An Aho-Corasick
 * automaton finds, at each byte, the longest token that ends there, and a heap brings these candidates into the order
 * of the rule.  See specials.c.
 *
 * The automaton is made for the first text and kept, if it takes no more memory than the special tokens do in the file,
 * or no more than 2 MiB, which is enough for 10,000 tokens of 8 bytes.  Otherwise each call makes automata for a part
 * of the tokens at a time and keeps none.  Then even a short text takes time proportional to the vocabulary: 8 ms for
 * 28 bytes with 80,000 special tokens.
 */
#ifndef PLUMB_SPECIALS_H
#define PLUMB_SPECIALS_H

#include "tokenizer/vocab.h"

/* A special token in the text: bytes left .. right - 1 are cut out, and the token takes their place. */
struct cut {
    int32_t id;
    uint32_t left, right;
};

/* What is cut out of a text.  Zero-initialize; specials_free releases it, after a failure too. */
struct cuts {
    struct cut *items;   /* (n) in the order in which they were made */
    size_t n, cap;
    uint32_t *owner;     /* (bytes of the text) 0: the byte is raw; i + 1: items[i] has cut it out.
                          * NULL: nothing is cut */
};

/* Finds the special tokens of text[0..n), n > 0, and cuts them out.  parse: also control and unknown tokens, not only
 * user-defined ones.  marks: (n), as in tokenizer_encode_marked, or NULL: a byte with a mark is part of no control or
 * unknown token.  Adds the number of steps it took to *n_step. */
plumb_status specials_find(struct tokenizer *t, const char *text, const uint8_t *marks, uint32_t n, bool parse,
                           struct cuts *out, uint64_t *n_step, struct error *err);
void specials_free(struct cuts *cuts);

void matcher_free(struct matcher *m);

#endif

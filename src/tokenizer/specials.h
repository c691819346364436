/* Special tokens in a text: where they are cut out of it.
 *
 * The rule is llama.cpp's: each special token in turn, the longest first and of equal lengths the one of the lower id,
 * is cut out of what is still raw, from left to right.  A token may take the white space beside it along.
 *
 * The result is the same here, but the time grows with the text and not with the number of tokens: an Aho-Corasick
 * automaton finds, at each byte, the longest token that ends there, and a heap brings these candidates into the order
 * of the rule.  See specials.c.
 *
 * The automaton is made for the first text and kept, if it takes no more memory than the special tokens do in the file,
 * or 2 MiB, as for 10,000 tokens of 8 bytes.  Where it takes more, each call makes automata for a part of the tokens at
 * a time and keeps none, so that even a short text takes time proportional to the vocabulary: 8 ms for 28 bytes with
 * 80,000 special tokens.
 */
#ifndef PLUMB_SPECIALS_H
#define PLUMB_SPECIALS_H

#include "tokenizer/vocab.h"

/* A special token in the text: bytes left..right are taken out, and stand for the token. */
struct cut {
    int32_t id;
    uint32_t left, right;
};

/* What is cut out of a text.  Zero-initialize; specials_free releases it, after a failure too. */
struct cuts {
    struct cut *items;   /* (n), in the order in which they were made */
    size_t n, cap;
    uint32_t *owner;     /* (bytes of the text) 0: raw, else the number of the cut that took the byte, from 1.
                          * NULL: nothing is cut */
};

/* Finds the special tokens of text[0..n).  parse: control and unknown tokens too, not only user-defined ones.
 * Adds to *n_step how much work that was. */
plumb_status specials_find(struct tokenizer *t, const char *text, uint32_t n, bool parse, struct cuts *out,
                           uint64_t *n_step, struct error *err);
void specials_free(struct cuts *cuts);

void matcher_free(struct matcher *m);

#endif

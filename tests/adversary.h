/* Vocabularies and texts that are made to be slow to tokenize.  The tests count the steps that they take, and
 * tests/bench/tokenizer.c measures their time. */
#ifndef PLUMB_TESTS_ADVERSARY_H
#define PLUMB_TESTS_ADVERSARY_H

#include "tokenizer/tokenizer.h"

struct vocabulary_writer;
struct adversary {
    const char *name;
    const char *unit;           /* the text is this, again and again, unless there is fill */
    size_t n_unit;              /* its bytes; 0: strlen(unit) */
    void (*add)(struct vocabulary_writer *w, size_t n);   /* tokens for a text of n bytes; NULL: none */
    void (*fill)(char *text, size_t n);                   /* writes the text; NULL: of units */
};

/* The last has a NULL name. */
extern const struct adversary adversaries[];
/* Of these no tokenizer is made. */
extern const struct adversary refused_adversaries[];

/* tokenizer.ggml.pre of one pre-tokenizer of each kind there is, and NULL, which stands for SentencePiece; then "". */
extern const char *const adversary_kinds[];

/* The vocabulary and the text (n bytes) of an adversary.  Both are to be freed; false if anything fails, and err says
 * what the vocabulary was refused for. */
struct attack {
    struct gguf *g;
    struct tokenizer *t;
    char *text;
    size_t n, n_file;   /* bytes of the text, and of the vocabulary as a file */
    struct error err;
};
bool attack_create(struct attack *out, const struct adversary *a, const char *kind, size_t n);
void attack_free(struct attack *a);

#endif

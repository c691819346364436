/* Vocabularies and texts that are made to be slow to tokenize.  The tests count the steps that they take, and
 * tests/bench/tokenizer.c measures their time. */
#ifndef PLUMB_TESTS_ADVERSARY_H
#define PLUMB_TESTS_ADVERSARY_H

#include "tokenizer/tokenizer.h"

struct vocabulary_writer;
struct adversary {
    const char *name;
    const char *unit;           /* the text repeats this, unless there is fill */
    size_t n_unit;              /* bytes of unit; 0: strlen(unit) */
    void (*add)(struct vocabulary_writer *w, size_t n);   /* adds tokens for a text of n bytes; NULL: none */
    void (*fill)(char *text, size_t n);                   /* writes the text; NULL: repeats unit */
};

/* Ends with a NULL name. */
extern const struct adversary adversaries[];
/* tokenizer_create refuses these vocabularies. */
extern const struct adversary refused_adversaries[];

/* tokenizer.ggml.pre of one pre-tokenizer of each kind, NULL for SentencePiece, and "model X" for tokenizer.ggml.model
 * X; ends with "". */
extern const char *const adversary_kinds[];

/* The vocabulary and the text (n bytes) of an adversary.  attack_free frees both.  false if anything fails; err says
 * why the vocabulary was refused. */
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

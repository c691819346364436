/* What the encoders share: the state of one tokenizer_encode, and one function for each way to encode. */
#ifndef PLUMB_ENCODER_H
#define PLUMB_ENCODER_H

#include "tokenizer/vocab.h"

#define NONE UINT32_MAX
#define SPACE_MARK "\xe2\x96\x81"   /* U+2581, SentencePiece's visible space */

struct list {              /* a growing array */
    void *items;
    uint64_t cap;
};

struct encoder {
    struct tokenizer *t;
    struct error *err;
    plumb_status status;   /* the first failure, after which nothing more is done */
    int32_t *ids;
    size_t cap;
    int64_t n;             /* ids found, of which the first cap are in ids */

    struct list chars;     /* struct pre_char: the characters of a raw text, for BPE */
    struct list text;      /* char: the text that is encoded, in the vocabulary's spelling */
    struct list symbols, heap;
    uint32_t n_pair;       /* pairs on the heap */
    struct list found;     /* what is found at each byte of a text */
    uint64_t n_step;       /* work done: cache lines of an index, moves in the heap and characters looked at */
};

/* Returns false, and keeps the status if it is the first failure. */
bool encoder_fail(struct encoder *e, plumb_status status);
/* Makes room for n items of size bytes, and at least doubles the capacity if it grows.  Returns false on failure. */
bool encoder_reserve(struct encoder *e, struct list *list, uint64_t n, size_t size);
void encoder_emit(struct encoder *e, int32_t id);
/* Emits the token for what is no token; fails if the vocabulary has none. */
void encoder_emit_unknown(struct encoder *e);
/* Makes the tokenizer's automaton of the tokens that are wanted (NULL: all; only the longest at each byte is looked
 * for), if it is not made yet. */
bool encoder_automaton(struct encoder *e, bool (*wanted)(const struct tokenizer *t, uint32_t id), bool backward);
/* Finds the longest token that begins at each byte of a text by the tokenizer's backward automaton: e->found has n ids,
 * -1: none. */
bool encoder_find_longest(struct encoder *e, const char *text, uint32_t n);

/* These encode raw text, which has no special tokens: raw[0..n), n > 0.  after_token: nothing or a special token is
 * before it. */
void encode_spm(struct encoder *e, const char *raw, uint32_t n, bool after_token);
void encode_bpe(struct encoder *e, const char *raw, uint32_t n, bool after_token);
void encode_dna(struct encoder *e, const char *raw, uint32_t n, bool after_token);
void encode_spaced(struct encoder *e, const char *raw, uint32_t n, bool after_token);
void encode_wordpiece(struct encoder *e, const char *raw, uint32_t n, bool after_token);
void encode_unigram(struct encoder *e, const char *raw, uint32_t n, bool after_token);
void encode_rwkv(struct encoder *e, const char *raw, uint32_t n, bool after_token);
void encode_plamo2(struct encoder *e, const char *raw, uint32_t n, bool after_token);

#endif

/* Text <-> token ids, from the GGUF's tokenizer.ggml.* keys alone.  The ids are the same as llama.cpp's.
 *
 * A tokenizer borrows the strings of the gguf, which must outlive it.  Everything in those keys is untrusted.
 */
#ifndef PLUMB_TOKENIZER_H
#define PLUMB_TOKENIZER_H

#include "gguf/gguf.h"

struct tokenizer;

/* A weak reference to a tokenizer: t becomes NULL when the tokenizer is freed.  Zero-initialize. */
struct tokenizer_weak_ref {
    struct tokenizer *t;
    struct tokenizer_weak_ref *next, **before;   /* links of the tokenizer's list of weak references */
};
/* Makes ref point to t instead of the tokenizer it had before; t may be NULL. */
void tokenizer_weak_ref_set(struct tokenizer_weak_ref *ref, struct tokenizer *t);

/* Fails with PLUMB_ERROR_UNSUPPORTED, which names it, for an unknown tokenizer.ggml.model or .pre, and with
 * PLUMB_ERROR_TOKENIZER or PLUMB_ERROR_METADATA, with place and numbers, for a vocabulary that contradicts itself. */
plumb_status tokenizer_create(struct tokenizer **out, const struct gguf *g, struct error *err);
void tokenizer_free(struct tokenizer *t);

uint32_t tokenizer_n_vocab(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);

/* These follow plumb_tokenize, plumb_tokenize_input, plumb_token_piece and plumb_detokenize in plumb.h. */
int64_t tokenizer_encode(struct tokenizer *t, const char *text, size_t len, unsigned flags, int32_t *ids, size_t cap,
                         struct error *err);
/* As tokenizer_encode, but a byte whose mark is not 0 is part of no control token, whatever the flags; marks: (len), or
 * NULL: no byte has one.  This decides for every host what is text and what is a token in a prompt. */
int64_t tokenizer_encode_marked(struct tokenizer *t, const char *text, const uint8_t *marks, size_t len, unsigned flags,
                                int32_t *ids, size_t cap, struct error *err);
/* rerank: the value of tokenizer.chat_template.rerank, whose data is NULL if the file has none; query.data is NULL if
 * there is no query. */
int64_t tokenizer_encode_input(struct tokenizer *t, struct gguf_string rerank, struct gguf_string query,
                               struct gguf_string text, unsigned flags, size_t n_max, int32_t *ids, size_t cap,
                               struct error *err);
int64_t tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, char *buf, size_t cap);
int64_t tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, char *buf, size_t cap);

#endif

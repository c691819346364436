/* The vocabulary in memory: what tokenizer.ggml.* says, checked, with an index from text to id.
 *
 * Token and merge texts are borrowed from the gguf; what is built beside them is a few bytes per token.
 */
#ifndef PLUMB_VOCAB_H
#define PLUMB_VOCAB_H

#include "tokenizer/pretokenize.h"
#include "tokenizer/tokenizer.h"

/* Hash index over strings: open addressing, at most half full.  The low n_bits bits of a slot are the string's number
 * + 1, 0 when free; the others are those of its hash.  A file can be all short strings, so a slot has 4 bytes. */
struct string_index {
    uint32_t *slots;
    uint32_t mask, n_bits;
};

enum token_attribute {
    TOKEN_NORMAL = 1, TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 4, TOKEN_USER_DEFINED = 8, TOKEN_BYTE = 16,
    TOKEN_LSTRIP = 32, TOKEN_RSTRIP = 64,   /* parsed with the white space before or after it */
    TOKEN_EOG = 128,                        /* ends a turn */
};

/* The longest text that is tokenized: 8 bytes for each of its bytes still count in 32 bits. */
enum { TEXT_MAX_BYTES = 1 << 28 };

/* A token whose text is cut out of the input before anything else (specials.h). */
struct special {
    uint32_t n;     /* bytes of its text */
    int32_t id;
};
struct matcher;

/* A polynomial hash of a text, modulo 2^64.  The hash of two texts put together follows from theirs in a few steps,
 * however long they are, so that a merge need not read the bytes that it joins. */
struct text_hash {
    uint64_t value;
    uint64_t power;   /* HASH_BASE to the number of bytes */
};
#define HASH_BASE UINT64_C(0x9e3779b97f4a7c15)
static inline struct text_hash hash_join(struct text_hash a, struct text_hash b) {
    return (struct text_hash){a.value * b.power + b.value, a.power * b.power};
}
struct text_hash hash_text(const char *s, uint64_t n);
/* What an index goes by: the slot where the search for a text begins is this, modulo the number of slots.  All bits of
 * the hash have a part in each bit of it. */
uint32_t hash_fold(struct text_hash hash);

struct tokenizer {
    bool is_bpe;                         /* tokenizer.ggml.model: gpt2, else llama */
    const struct pretokenizer *pre;      /* BPE only */
    uint32_t n_vocab;
    const struct gguf_string *texts;     /* (n_vocab), borrowed */
    uint8_t *attributes;                 /* (n_vocab) token_attribute */
    const uint8_t *scores;               /* (n_vocab) f32 or, if integer_scores, i32; NULL: all 0; borrowed */
    bool integer_scores;
    struct string_index index;           /* of texts */

    uint32_t n_merge;                    /* BPE only: "left right", in order of rank */
    const struct gguf_string *merges;    /* borrowed */
    struct string_index merge_index;

    int32_t byte_tokens[256];            /* SPM only: <0x00>...; -1 where there is none */
    struct special *specials;            /* the longest first, of equal lengths the lower id */
    uint32_t n_special;
    uint64_t matcher_most;               /* bytes that an automaton over them may take */
    struct matcher *matchers[2];         /* that find all of them in a text, without and with PLUMB_PARSE_SPECIAL;
                                          * NULL: not made yet, or it would take more than matcher_most */
    uint64_t n_step;                     /* of the last tokenizer_encode: what tests count instead of time */
    /* Tokens without text are [EMPTY_id], as in llama.cpp. */
    struct named_empty { uint32_t id; char text[24]; } *empties;   /* (n_empty), by id */
    uint32_t n_empty;

    struct tokenizer_loan *loans;        /* the first of those who keep it */
    int32_t bos, eos;                    /* -1: none */
    bool add_bos, add_eos, add_space_prefix, clean_spaces;
};

struct gguf_string token_text(const struct tokenizer *t, uint32_t id);
/* -1 if there is no such token. */
int32_t token_find(const struct tokenizer *t, const char *text, uint64_t n);
/* The same of a text whose hash is known.  Adds to *n_step how many lines of the cache it looked at in the
 * index, as merge_find does. */
int32_t token_find_hashed(const struct tokenizer *t, struct text_hash hash, const char *text, uint64_t n,
                          uint64_t *n_step);
float token_score(const struct tokenizer *t, uint32_t id);
/* Rank of the merge of the two texts text[0..n_left) and text[n_left..n_left + n_right), -1 if there is none. */
int64_t merge_find(const struct tokenizer *t, const char *text, struct text_hash left, size_t n_left,
                   struct text_hash right, size_t n_right, uint64_t *n_step);

/* GPT-2's printable stand-in for a byte: itself if it prints in Latin-1, else U+0100... in order. */
uint32_t byte_to_cp(uint8_t byte);
/* -1 if cp stands for no byte. */
int cp_to_byte(uint32_t cp);
/* What a hexadecimal digit of either case stands for, -1 if it is none. */
int hex_digit(char c);

#endif

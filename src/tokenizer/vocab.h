/* The vocabulary in memory: what tokenizer.ggml.* says, checked, with an index from text to id.
 *
 * Token and merge texts are borrowed from the gguf; what is built beside them is a few bytes per token.
 */
#ifndef PLUMB_VOCAB_H
#define PLUMB_VOCAB_H

#include "tokenizer/pretokenize.h"
#include "tokenizer/tokenizer.h"

/* Hash index over strings: open addressing, at most half full.  slot.entry is the string's number + 1, 0 when free. */
struct string_index {
    struct string_slot { uint32_t hash, entry; } *slots;
    uint32_t mask;
};

enum token_attribute {
    TOKEN_NORMAL = 1, TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 4, TOKEN_USER_DEFINED = 8, TOKEN_BYTE = 16,
    TOKEN_LSTRIP = 32, TOKEN_RSTRIP = 64,   /* parsed with the white space before or after it */
    TOKEN_EOG = 128,                        /* ends a turn */
};

/* A token whose text is cut out of the input before anything else. */
struct special {
    struct gguf_string text;
    int32_t id;
};

struct tokenizer {
    bool is_bpe;                         /* tokenizer.ggml.model: gpt2, else llama */
    const struct pretokenizer *pre;      /* BPE only */
    uint32_t n_vocab;
    const struct gguf_string *texts;     /* (n_vocab), borrowed */
    uint8_t *attributes;                 /* (n_vocab) token_attribute */
    const uint8_t *scores;               /* (n_vocab) f32 or, if integer_scores, i32; NULL: all 0; borrowed */
    bool integer_scores;
    struct string_index index;           /* of texts */
    uint64_t longest_text;

    uint32_t n_merge;                    /* BPE only: "left right", in order of rank */
    const struct gguf_string *merges;    /* borrowed */
    struct string_index merge_index;
    uint64_t longest_merge;

    int32_t byte_tokens[256];            /* SPM only: <0x00>...; -1 where there is none */
    struct special *specials;            /* sorted by text */
    uint32_t n_special;
    uint32_t special_begin[257];         /* by first byte */
    /* Tokens without text are [EMPTY_id], as in llama.cpp. */
    struct named_empty { uint32_t id; char text[24]; } *empties;   /* (n_empty), by id */
    uint32_t n_empty;

    int32_t bos, eos;                    /* -1: none */
    bool add_bos, add_eos, add_space_prefix, clean_spaces;
};

struct gguf_string token_text(const struct tokenizer *t, uint32_t id);
/* -1 if there is no such token. */
int32_t token_find(const struct tokenizer *t, const char *text, uint64_t n);
float token_score(const struct tokenizer *t, uint32_t id);
/* Rank of the merge of two adjacent texts, -1 if there is none.  scratch: longest_merge bytes. */
int64_t merge_find(const struct tokenizer *t, const char *left, size_t n_left, const char *right, size_t n_right,
                   char *scratch);

/* GPT-2's printable stand-in for a byte: itself if it prints in Latin-1, else U+0100... in order. */
uint32_t byte_to_cp(uint8_t byte);
/* -1 if cp stands for no byte. */
int cp_to_byte(uint32_t cp);
/* What a hexadecimal digit of either case stands for, -1 if it is none. */
int hex_digit(char c);

#endif

/* The vocabulary in memory: the checked contents of tokenizer.ggml.*, with an index from text to id.
 *
 * Token and merge texts are borrowed from the gguf.  The tables built from them take a few bytes per token.
 */
#ifndef PLUMB_VOCAB_H
#define PLUMB_VOCAB_H

#include "tokenizer/pretokenize.h"
#include "tokenizer/tokenizer.h"

/* A hash index over strings, with open addressing, at most half full.  The low n_bits bits of a slot are the string's
 * number + 1; the others are the same bits of its hash.  A free slot is 0.  A slot has only 4 bytes because a file may
 * consist of short strings. */
struct string_index {
    uint32_t *slots;
    uint32_t mask, n_bits;
};

enum token_attribute {
    TOKEN_NORMAL = 1, TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 4, TOKEN_USER_DEFINED = 8, TOKEN_BYTE = 16,
    TOKEN_LSTRIP = 32, TOKEN_RSTRIP = 64,   /* takes the white space before it, or after it, along */
    TOKEN_EOG = 128,                        /* ends a turn */
    TOKEN_SHOWN = 256,                      /* a control token that llama.cpp treats as one that users define */
};

/* The longest text that can be tokenized.  8 bytes for each of its bytes still fit in 32 bits. */
enum { TEXT_MAX_BYTES = 1 << 28 };

/* A token whose text is cut out of the input before anything else (specials.h). */
struct special {
    uint32_t n;     /* bytes of its text */
    int32_t id;
};
struct matcher;
/* The sets of specials that are searched for. */
enum token_set {
    SET_PLAIN,    /* all but control and unknown tokens: these are plain text unless they are to be parsed */
    SET_ALL,
    SET_MARKED,   /* those that may contain bytes with a mark: all but control and unknown tokens by the file */
    N_SET
};

/* A polynomial hash of a text, modulo 2^64.  hash_join gives the hash of two joined texts in constant time, so a merge
 * does not have to read the bytes that it joins. */
struct text_hash {
    uint64_t value;
    uint64_t power;   /* HASH_BASE to the number of bytes */
};
#define HASH_BASE UINT64_C(0x9e3779b97f4a7c15)
static inline struct text_hash hash_join(struct text_hash a, struct text_hash b) {
    return (struct text_hash){a.value * b.power + b.value, a.power * b.power};
}
struct text_hash hash_text(const char *s, uint64_t n);
/* Folds a hash into 32 bits, each of which depends on all bits of the hash.  The search for a text in an index begins
 * at this slot, modulo the number of slots. */
uint32_t hash_fold(struct text_hash hash);

struct automaton; /* automaton.h */
struct encoder;   /* encoder.h */
struct sink;      /* decode.c */

/* A kind of vocabulary: a value of tokenizer.ggml.model. */
struct vocab_kind {
    const char *model;
    /* Loads what only this kind has, after the tokens and their attributes; NULL: nothing. */
    plumb_status (*load)(struct tokenizer *t, const struct gguf *g, struct error *err);
    /* Encodes raw text (encoder.h); NULL: no text can be tokenized. */
    void (*encode)(struct encoder *e, const char *raw, uint32_t n, bool after_token);
    /* Writes the text of a token. */
    void (*put)(const struct tokenizer *t, struct sink *out, uint32_t id);
    int32_t bos, eos, unk, sep;   /* unless keys of the file say otherwise; -1: none */
    unsigned flags;
};
enum {
    KIND_BPE = 1,           /* has a pre-tokenizer */
    KIND_ADD_BOS = 2,       /* add_bos_token is true by default */
    KIND_ADD_EOS = 4,
    KIND_ADD_SEP = 8,
    KIND_ADD_SPACE = 16,    /* add_space_prefix is true by default */
    KIND_CLEAN_SPACES = 32, /* as PRE_CLEAN_SPACES */
    KIND_BOS_AND_SEP = 64,  /* a text gets these two, whatever add_bos_token and add_eos_token say */
    KIND_NO_ENDS = 128,     /* a text gets none of them */
    KIND_ANY_BYTES = 256,   /* a token of type byte may have any text */
    KIND_NORMALIZES = 512,  /* a text is changed before it is encoded, so decoding does not restore it */
};

struct tokenizer {
    const struct vocab_kind *kind;
    const struct pretokenizer *pre;      /* BPE only, otherwise NULL */
    uint32_t n_vocab;
    const struct gguf_string *texts;     /* (n_vocab), borrowed; NULL: no token has a text */
    uint16_t *attributes;                /* (n_vocab) sets of enum token_attribute */
    const uint8_t *types;                /* (n_vocab) i32, tokenizer.ggml.token_type; NULL: all normal; borrowed */
    const uint8_t *scores;               /* (n_vocab) f32, or i32 if integer_scores; NULL: all 0; borrowed */
    bool integer_scores;
    struct string_index index;           /* of texts */

    uint32_t n_merge;                    /* BPE only */
    const struct gguf_string *merges;    /* (n_merge) "left right", in order of rank; borrowed */
    struct string_index merge_index;

    struct automaton *automaton;         /* WordPiece, Unigram, RWKV, PLaMo 2: of their tokens (automaton.h); NULL
                                          * before the first text */
    struct automaton *user_automaton;    /* Unigram: of the user-defined tokens */
    const uint8_t *map;                  /* Unigram: (n_map) entries of the double array; borrowed, like the */
    const char *replacements;            /* (n_replacement) bytes of what they lead to */
    uint32_t n_map;
    uint64_t n_replacement;
    float unknown_score;                 /* Unigram: of a character that is no token */
    bool merge_spaces;                   /* Unigram: several spaces are one, and none are at the end */

    int32_t byte_tokens[256];            /* SPM, PLaMo 2, BPE of plain texts: the ids of <0x00>...; -1: none */
    uint32_t first_kmer;                 /* hybriddna: tokens from here on may end in KMER_MARK */
    struct special *specials;            /* (n_special), longer ones first, lower ids first if equally long */
    uint32_t n_special;
    uint64_t matcher_max_bytes;          /* bytes that an automaton over them may take */
    struct matcher *matchers[N_SET];     /* automata over sets of them; NULL: not made yet, or all of them would take
                                          * more than matcher_max_bytes */
    uint64_t n_step;                     /* steps of the last tokenizer_encode, which tests measure instead of time */
    /* Tokens without text are given the text [EMPTY_id], as in llama.cpp. */
    struct named_empty { uint32_t id; char text[24]; } *empties;   /* (n_empty), sorted by id */
    uint32_t n_empty;

    struct tokenizer_weak_ref *weak_refs;   /* list of the weak references that point here */
    int32_t bos, eos, unk, sep;          /* -1: none */
    bool add_bos, add_eos, add_sep, add_space_prefix, clean_spaces;
    bool lowercase, strip_accents;       /* what is done to a text before it is encoded */
};

/* The tokens that PLUMB_ADD_SPECIAL puts before and behind a text.  An id is -1 if the vocabulary lacks the token. */
struct ends {
    bool has_first, has_last;
    int32_t first, last;
};
struct ends tokenizer_ends(const struct tokenizer *t);

struct gguf_string token_text(const struct tokenizer *t, uint32_t id);
/* hybriddna writes KMER_MARK after a DNA sequence, which keeps it apart from the same letters in other text. */
#define KMER_MARK "\xee\x80\x80"   /* U+E000 */
/* The same without KMER_MARK: the text that the token stands for. */
struct gguf_string token_shown(const struct tokenizer *t, uint32_t id);
/* Returns the id of the token with this text; -1 if there is none. */
int32_t token_find(const struct tokenizer *t, const char *text, uint64_t n);
/* The same for a text whose hash is known.  Like merge_find, it adds the number of cache lines of the index that it
 * read to *n_step. */
int32_t token_find_hashed(const struct tokenizer *t, struct text_hash hash, const char *text, uint64_t n,
                          uint64_t *n_step);
float token_score(const struct tokenizer *t, uint32_t id);
/* Returns the rank of the merge of text[0..n_left) and text[n_left..n_left + n_right); -1 if there is none. */
int64_t merge_find(const struct tokenizer *t, const char *text, struct text_hash left, size_t n_left,
                   struct text_hash right, size_t n_right, uint64_t *n_step);

/* Returns the printable character that GPT-2's byte-level BPE writes for a byte: the byte itself if it is printable in
 * Latin-1, otherwise U+0100... in order. */
uint32_t byte_to_cp(uint8_t byte);
/* The inverse of byte_to_cp; -1 if cp stands for no byte. */
int cp_to_byte(uint32_t cp);
/* Returns the byte that the text <0xHH> stands for; -1 if it is not such a text. */
int byte_of_text(struct gguf_string text);

/* Writes n bytes of text. */
void sink_put(struct sink *out, const char *s, size_t n);
void put_spm(const struct tokenizer *t, struct sink *out, uint32_t id);
void put_bpe(const struct tokenizer *t, struct sink *out, uint32_t id);
void put_rwkv(const struct tokenizer *t, struct sink *out, uint32_t id);
void put_plamo2(const struct tokenizer *t, struct sink *out, uint32_t id);
void put_text(const struct tokenizer *t, struct sink *out, uint32_t id);

plumb_status load_unigram(struct tokenizer *t, const struct gguf *g, struct error *err);
plumb_status load_plamo2(struct tokenizer *t, const struct gguf *g, struct error *err);
/* Makes an automaton of the tokens that are wanted (NULL: all). */
plumb_status automaton_of_tokens(struct automaton **out, const struct tokenizer *t,
                                 bool (*wanted)(const struct tokenizer *t, uint32_t id), bool backward,
                                 struct error *err);

#endif

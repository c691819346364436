/* Text -> ids by merging: SentencePiece's merges and byte-level BPE.
 *
 * Merging takes O(n log n): the symbols form a linked list, and a heap holds the adjacent pairs that can merge.  A pair
 * whose sides have changed since it was added is skipped when it is taken.  Each symbol carries its hash, so looking up
 * a pair takes the same time whatever its length.
 */
#define _GNU_SOURCE  /* memmem */
#include "tokenizer/encoder.h"

struct symbol {
    uint32_t prev, next;   /* NONE at the ends */
    uint32_t start, n;     /* n bytes of the text from start on; n = 0 once it is merged into its left neighbour */
    struct text_hash hash;
};

struct pair {
    uint64_t key;          /* order << 32 | left.  The smallest key merges first, so equals merge from left to right */
    uint32_t right;
    uint32_t n;            /* bytes of both sides when the pair was added */
};

/* ---- merges ------------------------------------------------------------------------------------------------- */

/* Maps scores to integers so that a higher score gives a smaller integer, and NaN the largest. */
static uint32_t descending(float score) {
    if (score != score) return UINT32_MAX;
    uint32_t bits = f32_to_bits(score + 0.0f);   /* + 0 turns -0 into +0 */
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

/* Adds the pair of two neighbours to the heap if they can merge. */
static void add_pair(struct encoder *e, uint32_t left, uint32_t right) {
    if (left == NONE || right == NONE) return;
    const struct symbol *l = (struct symbol *)e->symbols.items + left, *r = (struct symbol *)e->symbols.items + right;
    const char *text = e->text.items;
    uint32_t order;
    if (e->t->pre != NULL) {
        int64_t rank = merge_find(e->t, text + l->start, l->hash, l->n, r->hash, r->n, &e->n_step);
        if (rank < 0) return;
        order = (uint32_t)rank;
    } else {
        int32_t id = token_find_hashed(e->t, hash_join(l->hash, r->hash), text + l->start, (uint64_t)l->n + r->n,
                                       &e->n_step);
        if (id < 0) return;
        order = descending(token_score(e->t, (uint32_t)id));
    }
    if (!encoder_reserve(e, &e->heap, (uint64_t)e->n_pair + 1, sizeof(struct pair))) return;
    struct pair *heap = e->heap.items, pair = {(uint64_t)order << 32 | left, right, l->n + r->n};
    uint32_t i = e->n_pair++;
    for (; i > 0 && heap[(i - 1) / 2].key > pair.key; i = (i - 1) / 2, e->n_step++) heap[i] = heap[(i - 1) / 2];
    heap[i] = pair;
}

static struct pair pop_pair(struct encoder *e) {
    struct pair *heap = e->heap.items, first = heap[0], last = heap[--e->n_pair];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < e->n_pair; i = child, e->n_step++) {
        if (child + 1 < e->n_pair && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= last.key) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return first;
}

/* Makes a symbol of each character of text[0..n), n > 0, and merges until no pair is left. */
static bool merge(struct encoder *e, uint32_t n) {
    const char *text = e->text.items;
    uint32_t n_symbol = 0;
    if (!encoder_reserve(e, &e->symbols, n, sizeof(struct symbol))) return false;
    e->n_step += n;
    struct symbol *symbols = e->symbols.items;
    for (uint32_t start = 0; start < n; n_symbol++) {
        uint32_t length = (uint32_t)unicode_length(text[start]);
        if (length > n - start) length = n - start;
        symbols[n_symbol] = (struct symbol){n_symbol - 1, n_symbol + 1, start, length,   /* 0 - 1 is NONE */
                                            hash_text(text + start, length)};
        start += length;
    }
    symbols[n_symbol - 1].next = NONE;
    e->n_pair = 0;
    for (uint32_t i = 1; i < n_symbol; i++) add_pair(e, i - 1, i);
    while (e->n_pair > 0 && e->status == PLUMB_OK) {
        struct pair pair = pop_pair(e);
        struct symbol *left = &symbols[(uint32_t)pair.key], *right = &symbols[pair.right];
        if (left->n == 0 || right->n == 0 || left->n + right->n != pair.n) continue;
        left->n += right->n;
        left->hash = hash_join(left->hash, right->hash);
        right->n = 0;
        left->next = right->next;
        if (left->next != NONE) symbols[left->next].prev = (uint32_t)pair.key;
        add_pair(e, left->prev, (uint32_t)pair.key);
        add_pair(e, (uint32_t)pair.key, left->next);
    }
    return e->status == PLUMB_OK;
}

/* ---- raw text ----------------------------------------------------------------------------------------------- */

/* Emits the symbols of e->text.  One that is not a token becomes a token for each of its bytes: <0xNN>, or that of its
 * spelling.  Bytes without one fail if they are required, and are dropped otherwise, as llama.cpp does. */
enum byte_kind { BYTES_REQUIRED, BYTES_PLAIN, BYTES_SPELT };
static void emit_symbols(struct encoder *e, enum byte_kind bytes) {
    const struct symbol *symbols = e->symbols.items;
    for (uint32_t i = 0; i != NONE && e->status == PLUMB_OK; i = symbols[i].next) {
        const char *text = (const char *)e->text.items + symbols[i].start;
        int32_t id = token_find_hashed(e->t, symbols[i].hash, text, symbols[i].n, &e->n_step);
        for (uint32_t k = 0; id < 0 && k < symbols[i].n && e->status == PLUMB_OK; k++) {
            const char *at = text + k;
            int32_t byte = bytes == BYTES_SPELT ? token_find_hashed(e->t, hash_text(at, 1), at, 1, &e->n_step)
                                                : e->t->byte_tokens[(uint8_t)*at];
            if (byte >= 0) {
                encoder_emit(e, byte);
            } else if (bytes == BYTES_REQUIRED) {
                encoder_fail(e, error_set(e->err, PLUMB_ERROR_TOKENIZER, "tokenize: the vocabulary has no token "
                                          "<0x%02X>, which the text needs", (unsigned)(uint8_t)*at));
            }
        }
        if (id >= 0) encoder_emit(e, id);
    }
}

/* Spaces become U+2581, and one is put before a text that follows no text. */
void encode_spm(struct encoder *e, const char *raw, uint32_t n, bool after_token) {
    bool add_space = after_token && e->t->add_space_prefix;
    uint32_t n_space = add_space, n_text = 0;
    for (uint32_t i = 0; i < n; i++) n_space += raw[i] == ' ';
    if (!encoder_reserve(e, &e->text, (uint64_t)n + 3 * (uint64_t)n_space, 1)) return;
    char *text = e->text.items;
    if (add_space) {
        memcpy(text, SPACE_MARK, 3);
        n_text = 3;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (raw[i] == ' ') {
            memcpy(text + n_text, SPACE_MARK, 3);
            n_text += 3;
        } else {
            text[n_text++] = raw[i];
        }
    }
    if (merge(e, n_text)) emit_symbols(e, BYTES_REQUIRED);
}

/* Writes a word in the vocabulary's spelling and returns its number of bytes: at most 8 for each character. */
static uint32_t spell(const struct encoder *e, const struct pre_char *chars, size_t n_char, char *text) {
    uint32_t n = 0;
    for (size_t i = 0; i < n_char; i++) {
        char utf8[4];
        size_t length = unicode_encode(chars[i].cp, utf8);
        if (e->t->pre->flags & PRE_PLAIN) {
            memcpy(text + n, utf8, length);
            n += (uint32_t)length;
            continue;
        }
        for (size_t k = 0; k < length; k++) n += (uint32_t)unicode_encode(byte_to_cp((uint8_t)utf8[k]), text + n);
    }
    return n;
}

/* Encodes a word of the pre-tokenizer. */
static void encode_word(void *user, size_t begin, size_t end) {
    struct encoder *e = user;
    if (e->status != PLUMB_OK || !encoder_reserve(e, &e->text, (uint64_t)(end - begin) * 8, 1)) return;
    const struct pre_char *chars = e->chars.items;
    char *text = e->text.items;
    unsigned flags = e->t->pre->flags;
    uint32_t n = spell(e, chars + begin, end - begin, text);
    if (flags & PRE_IGNORE_MERGES || (flags & PRE_LINE_TOKENS && chars[begin].cp == '\n')) {   /* words of \n alone */
        e->n_step += n;
        int32_t id = token_find_hashed(e->t, hash_text(text, n), text, n, &e->n_step);
        if (id >= 0) {
            encoder_emit(e, id);
            return;
        }
    }
    if (merge(e, n)) emit_symbols(e, flags & PRE_PLAIN ? BYTES_PLAIN : BYTES_SPELT);
}

static void encode_chars(struct encoder *e, const struct pre_char *chars, size_t n) {
    e->n_step += n + pretokenize(e->t->pre, chars, n, encode_word, e);
}

void encode_bpe(struct encoder *e, const char *raw, uint32_t n, bool after_token) {
    (void)after_token;
    if (!encoder_reserve(e, &e->chars, n, sizeof(struct pre_char))) return;
    struct pre_char *chars = e->chars.items;
    size_t n_char = 0;
    bool mark = (e->t->pre->flags & PRE_MARK_SPACES) != 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t cp;
        i += (uint32_t)unicode_decode(raw + i, n - i, &cp);
        chars[n_char++] = pre_char_make(mark && cp == ' ' ? 0x2581 : cp);
    }
    encode_chars(e, chars, n_char);
}

/* White space is left out and separates texts that are encoded by themselves. */
void encode_spaced(struct encoder *e, const char *raw, uint32_t n, bool after_token) {
    (void)after_token;
    if (!encoder_reserve(e, &e->chars, n, sizeof(struct pre_char))) return;
    struct pre_char *chars = e->chars.items;
    size_t n_char = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t cp;
        i += (uint32_t)unicode_decode(raw + i, n - i, &cp);
        if (!unicode_is_space(cp)) chars[n_char++] = pre_char_make(e->t->lowercase ? unicode_lower(cp) : cp);
        if (n_char == 0 || (i < n && !unicode_is_space(cp))) continue;
        encode_chars(e, chars, n_char);
        n_char = 0;
    }
}

/* ---- DNA ------------------------------------------------------------------------------------------------------ */

/* Encodes a sequence by the tokens of 6 of its letters, the last of which is filled up with A. */
static void encode_sequence(struct encoder *e, const char *s, uint32_t n, int32_t oov) {
    enum { K = 6 };
    for (uint32_t i = 0; i < n; i += K) {
        char kmer[K + sizeof KMER_MARK] = "AAAAAA" KMER_MARK;
        for (uint32_t k = 0; k < K && k < n - i; k++) {
            char c = s[i + k];
            kmer[k] = (char)(c >= 'a' && c <= 'z' ? c - 32 : c);
        }
        int32_t id = token_find(e->t, kmer, sizeof kmer - 1);
        encoder_emit(e, id >= 0 ? id : oov);
    }
}

/* Sequences are between <dna> and </dna>, or the end of the text. */
void encode_dna(struct encoder *e, const char *raw, uint32_t n, bool after_token) {
    static const char open[] = "<dna>", close[] = "</dna>";
    enum { N_OPEN = sizeof open - 1, N_CLOSE = sizeof close - 1 };
    int32_t begins = token_find(e->t, open, N_OPEN), ends = token_find(e->t, close, N_CLOSE);
    int32_t oov = token_find(e->t, "<oov>", 5);
    if (begins < 0 || ends < 0 || oov < 0) {
        encode_bpe(e, raw, n, after_token);
        return;
    }
    e->n_step += n;
    for (uint32_t i = 0; i < n && e->status == PLUMB_OK;) {
        const char *at = memmem(raw + i, n - i, open, N_OPEN);
        uint32_t begin = at ? (uint32_t)(at - raw) : n;
        if (begin > i) encode_bpe(e, raw + i, begin - i, after_token);
        if (!at) break;
        encoder_emit(e, begins);
        i = begin + N_OPEN;
        at = memmem(raw + i, n - i, close, N_CLOSE);
        uint32_t end = at ? (uint32_t)(at - raw) : n;
        encode_sequence(e, raw + i, end - i, oov);
        if (at) encoder_emit(e, ends);
        i = end + N_CLOSE;
        if (!at) break;
    }
}

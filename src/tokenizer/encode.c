/* Text -> ids.
 *
 *   text -> special tokens, which are cut out first (specials.h), and the raw text between them
 *        -> SPM: spaces become U+2581; merges run over the whole raw text, ordered by score
 *           BPE: the pre-tokenizer splits it into words; bytes become printable characters; merges run within a word,
 *           ordered by rank
 *        -> ids
 *
 * Merging takes O(n log n): the symbols form a linked list, and a heap holds the adjacent pairs that can merge.  A pair
 * whose sides have changed since it was added is skipped when it is taken.  Each symbol carries its hash, so looking up
 * a pair takes the same time whatever its length.
 */
#include "tokenizer/specials.h"

#include <stdlib.h>

#define NONE UINT32_MAX
#define SPACE_MARK "\xe2\x96\x81"   /* U+2581, SentencePiece's visible space */

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
    struct list text;      /* char: the text that symbols point into */
    struct list symbols, heap;
    uint32_t n_pair;       /* pairs on the heap */
    uint64_t n_step;       /* work done: cache lines of an index, moves in the heap and characters looked at */
};

static bool fail(struct encoder *e, plumb_status status) {
    if (e->status == PLUMB_OK) e->status = status;
    return false;
}

/* Makes room for n items of size bytes, and at least doubles the capacity if it grows. */
static bool reserve(struct encoder *e, struct list *list, uint64_t n, size_t size) {
    if (n <= list->cap) return true;
    uint64_t cap = n < 64 ? 64 : n > list->cap * 2 ? n : list->cap * 2, bytes;
    void *items = mul_u64(cap, size, &bytes) && bytes <= SIZE_MAX ? realloc(list->items, (size_t)bytes) : NULL;
    if (items == NULL) {
        return fail(e, error_set(e->err, PLUMB_ERROR_MEMORY, "tokenize: out of memory: %llu items of %zu bytes",
                                 (unsigned long long)cap, size));
    }
    list->items = items;
    list->cap = cap;
    return true;
}

static void emit(struct encoder *e, int32_t id) {
    if ((uint64_t)e->n < e->cap) e->ids[e->n] = id;
    e->n++;
}

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
    if (e->t->kind == VOCAB_BPE) {
        int64_t rank = merge_find(e->t, text + l->start, l->hash, l->n, r->hash, r->n, &e->n_step);
        if (rank < 0) return;
        order = (uint32_t)rank;
    } else {
        int32_t id = token_find_hashed(e->t, hash_join(l->hash, r->hash), text + l->start, (uint64_t)l->n + r->n,
                                       &e->n_step);
        if (id < 0) return;
        order = descending(token_score(e->t, (uint32_t)id));
    }
    if (!reserve(e, &e->heap, (uint64_t)e->n_pair + 1, sizeof(struct pair))) return;
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
    if (!reserve(e, &e->symbols, n, sizeof(struct symbol))) return false;
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

/* Encodes raw text.  A symbol that is not a token becomes one byte token for each of its bytes. */
static void encode_spm(struct encoder *e, const char *raw, uint32_t n, bool add_space) {
    uint32_t n_space = add_space, n_text = 0;
    for (uint32_t i = 0; i < n; i++) n_space += raw[i] == ' ';
    if (!reserve(e, &e->text, (uint64_t)n + 3 * (uint64_t)n_space, 1)) return;
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
    if (!merge(e, n_text)) return;
    const struct symbol *symbols = e->symbols.items;
    for (uint32_t i = 0; i != NONE; i = symbols[i].next) {
        int32_t id = token_find_hashed(e->t, symbols[i].hash, text + symbols[i].start, symbols[i].n,
                                       &e->n_step);
        for (uint32_t k = 0; id < 0 && k < symbols[i].n; k++) {
            uint8_t byte = (uint8_t)text[symbols[i].start + k];
            if (e->t->byte_tokens[byte] < 0) {
                fail(e, error_set(e->err, PLUMB_ERROR_TOKENIZER,
                                  "tokenize: the vocabulary has no token <0x%02X>, which the text needs",
                                  (unsigned)byte));
                return;
            }
            emit(e, e->t->byte_tokens[byte]);
        }
        if (id >= 0) emit(e, id);
    }
}

/* Encodes a word of the pre-tokenizer.  A symbol that is not a token is looked up byte by byte, and bytes that are not
 * tokens are dropped, as llama.cpp does if the vocabulary lacks a byte. */
static void encode_word(void *user, size_t begin, size_t end) {
    struct encoder *e = user;
    if (e->status != PLUMB_OK || !reserve(e, &e->text, (uint64_t)(end - begin) * 8, 1)) return;
    const struct pre_char *chars = e->chars.items;
    char *text = e->text.items, utf8[4];
    uint32_t n = 0;
    for (size_t i = begin; i < end; i++) {
        size_t length = unicode_encode(chars[i].cp, utf8);
        for (size_t k = 0; k < length; k++) {
            n += (uint32_t)unicode_encode(byte_to_cp((uint8_t)utf8[k]), text + n);
        }
    }
    if (e->t->pre->flags & PRE_IGNORE_MERGES) {
        e->n_step += n;
        int32_t id = token_find_hashed(e->t, hash_text(text, n), text, n, &e->n_step);
        if (id >= 0) {
            emit(e, id);
            return;
        }
    }
    if (!merge(e, n)) return;
    const struct symbol *symbols = e->symbols.items;
    for (uint32_t i = 0; i != NONE; i = symbols[i].next) {
        int32_t id = token_find_hashed(e->t, symbols[i].hash, text + symbols[i].start, symbols[i].n,
                                       &e->n_step);
        for (uint32_t k = 0; id < 0 && k < symbols[i].n; k++) {
            const char *at = text + symbols[i].start + k;
            int32_t byte = token_find_hashed(e->t, hash_text(at, 1), at, 1, &e->n_step);
            if (byte >= 0) emit(e, byte);
        }
        if (id >= 0) emit(e, id);
    }
}

static void encode_bpe(struct encoder *e, const char *raw, uint32_t n) {
    if (!reserve(e, &e->chars, n, sizeof(struct pre_char))) return;
    struct pre_char *chars = e->chars.items;
    size_t n_char = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t cp;
        i += (uint32_t)unicode_decode(raw + i, n - i, &cp);
        chars[n_char++] = pre_char_make(cp);
    }
    e->n_step += n + pretokenize(e->t->pre, chars, n_char, encode_word, e);
}

/* ---- whole texts ------------------------------------------------------------------------------------------------ */

static void encode(struct encoder *e, const char *text, uint32_t n, unsigned flags) {
    const struct tokenizer *t = e->t;
    bool add_special = (flags & PLUMB_ADD_SPECIAL) != 0;
    if (add_special && ((t->add_bos && t->bos < 0) || (t->add_eos && t->eos < 0))) {
        bool bos = t->add_bos && t->bos < 0;
        fail(e, error_set(e->err, PLUMB_ERROR_TOKENIZER, "tokenize: %s is true, but the vocabulary has no such token",
                          bos ? "tokenizer.ggml.add_bos_token" : "tokenizer.ggml.add_eos_token"));
        return;
    }
    if (add_special && t->add_bos) emit(e, t->bos);
    struct cuts cuts = {0};
    if (n > 0) {
        bool parse = (flags & PLUMB_PARSE_SPECIAL) != 0;
        e->status = specials_find(e->t, text, n, parse, &cuts, &e->n_step, e->err);
    }
    bool after_token = true;   /* SPM puts a space before raw text at the start and after every special token */
    for (uint32_t begin = 0, end; begin < n && e->status == PLUMB_OK; begin = end) {
        const struct cut *cut = cuts.owner && cuts.owner[begin] != 0 ? &cuts.items[cuts.owner[begin] - 1] : NULL;
        if (cut) {
            emit(e, cut->id);
            end = cut->right;
        } else {
            for (end = cuts.owner ? begin + 1 : n; end < n && cuts.owner[end] == 0;) end++;
            if (t->kind == VOCAB_BPE) encode_bpe(e, text + begin, end - begin);
            else encode_spm(e, text + begin, end - begin, t->add_space_prefix && after_token);
        }
        after_token = cut != NULL;
    }
    specials_free(&cuts);
    if (add_special && t->add_eos) emit(e, t->eos);
}

int64_t tokenizer_encode(struct tokenizer *t, const char *text, size_t len, unsigned flags, int32_t *ids, size_t cap,
                         struct error *err) {
    if (len > TEXT_MAX_BYTES) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "tokenize: the text has %zu bytes, at most %d are allowed", len,
                         TEXT_MAX_BYTES);
    }
    if (t->kind == VOCAB_IDS) {
        return error_set(err, PLUMB_ERROR_TOKENIZER, "tokenize: the model has no vocabulary of texts "
                         "(tokenizer.ggml.model is test or none); give token ids instead");
    }
    struct encoder e = {.t = t, .err = err, .ids = ids, .cap = cap};
    encode(&e, text, (uint32_t)len, flags);
    t->n_step = e.n_step;
    free(e.chars.items);
    free(e.text.items);
    free(e.symbols.items);
    free(e.heap.items);
    return e.status != PLUMB_OK ? (int64_t)e.status : e.n;
}

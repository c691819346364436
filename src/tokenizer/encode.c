/* Text -> ids.
 *
 *   text -> fragments: the tokens whose text is cut out first, and the raw text between them
 *        -> SPM: spaces become U+2581, merges run over the whole fragment, by score
 *           BPE: words of the pre-tokenizer, bytes become printable characters, merges run in a word, by rank
 *        -> ids
 *
 * Merges are O(n log n): a heap of adjacent pairs over a linked list of symbols, where a pair whose sides have changed
 * since is skipped when it comes up.
 */
#include "tokenizer/vocab.h"

#include <stdlib.h>

#define NONE UINT32_MAX
#define SPACE_MARK "\xe2\x96\x81"   /* U+2581, SentencePiece's visible space */

struct symbol {
    uint32_t prev, next;   /* NONE at the ends */
    uint32_t start, n;     /* bytes of the text; n = 0 once merged into its left neighbour */
};

struct pair {
    uint64_t key;          /* the smallest goes first: order << 32 | left, so the leftmost of equals */
    uint32_t right;
    uint32_t n;            /* bytes of both sides when it was found */
};

/* A piece of the input: a token, or (id < 0) raw text. */
struct fragment {
    int32_t id;
    uint32_t begin, end;
};

struct list {              /* a growing array */
    void *items;
    uint64_t cap;
};

struct encoder {
    const struct tokenizer *t;
    struct error *err;
    plumb_status status;   /* the first failure; everything after it does nothing */
    int32_t *ids;
    size_t cap;
    int64_t n;             /* ids found */

    struct list fragments, others;   /* the present ones and those being made of them */
    uint32_t n_fragment, n_other;
    struct list chars;     /* struct pre_char: a raw fragment, BPE */
    struct list text;      /* char: what symbols point into */
    struct list symbols, heap;
    uint32_t n_pair;
    struct list scratch;   /* char: longest_merge bytes */
};

static bool fail(struct encoder *e, plumb_status status) {
    if (e->status == PLUMB_OK) e->status = status;
    return false;
}

/* Room for n items, doubling. */
static bool reserve(struct encoder *e, struct list *list, uint64_t n, size_t size) {
    if (n <= list->cap) return true;
    uint64_t cap = n < 64 ? 64 : n > list->cap * 2 ? n : list->cap * 2, bytes;
    void *items = mul_u64(cap, size, &bytes) && bytes <= SIZE_MAX ? realloc(list->items, (size_t)bytes) : NULL;
    if (items == NULL) {
        return fail(e, error_set(e->err, PLUMB_ERROR_MEMORY, "tokenize: no memory for %llu items of %zu bytes",
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

/* Floats in reverse order as integers, NaN last. */
static uint32_t descending(float score) {
    if (score != score) return UINT32_MAX;
    uint32_t bits = f32_to_bits(score + 0.0f);   /* + 0 makes one zero of the two */
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

/* Puts the pair of two neighbours on the heap if they can merge. */
static void add_pair(struct encoder *e, uint32_t left, uint32_t right) {
    if (left == NONE || right == NONE) return;
    const struct symbol *l = (struct symbol *)e->symbols.items + left, *r = (struct symbol *)e->symbols.items + right;
    const char *text = e->text.items;
    uint32_t order;
    if (e->t->is_bpe) {
        int64_t rank = merge_find(e->t, text + l->start, l->n, text + r->start, r->n, e->scratch.items);
        if (rank < 0) return;
        order = (uint32_t)rank;
    } else {
        int32_t id = token_find(e->t, text + l->start, (uint64_t)l->n + r->n);
        if (id < 0) return;
        order = descending(token_score(e->t, (uint32_t)id));
    }
    if (!reserve(e, &e->heap, (uint64_t)e->n_pair + 1, sizeof(struct pair))) return;
    struct pair *heap = e->heap.items, pair = {(uint64_t)order << 32 | left, right, l->n + r->n};
    uint32_t i = e->n_pair++;
    for (; i > 0 && heap[(i - 1) / 2].key > pair.key; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = pair;
}

static struct pair take_pair(struct encoder *e) {
    struct pair *heap = e->heap.items, first = heap[0], last = heap[--e->n_pair];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < e->n_pair; i = child) {
        if (child + 1 < e->n_pair && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= last.key) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return first;
}

/* Makes symbols of the characters of text[0..n), n > 0, and merges until no pair is left. */
static bool merge(struct encoder *e, uint32_t n) {
    const char *text = e->text.items;
    uint32_t n_symbol = 0;
    if (!reserve(e, &e->symbols, n, sizeof(struct symbol))) return false;
    struct symbol *symbols = e->symbols.items;
    for (uint32_t start = 0; start < n; n_symbol++) {
        uint32_t length = (uint32_t)unicode_length(text[start]);
        if (length > n - start) length = n - start;
        symbols[n_symbol] = (struct symbol){n_symbol - 1, n_symbol + 1, start, length};   /* 0 - 1 is NONE */
        start += length;
    }
    symbols[n_symbol - 1].next = NONE;
    e->n_pair = 0;
    for (uint32_t i = 1; i < n_symbol; i++) add_pair(e, i - 1, i);
    while (e->n_pair > 0 && e->status == PLUMB_OK) {
        struct pair pair = take_pair(e);
        struct symbol *left = &symbols[(uint32_t)pair.key], *right = &symbols[pair.right];
        if (left->n == 0 || right->n == 0 || left->n + right->n != pair.n) continue;
        left->n += right->n;
        right->n = 0;
        left->next = right->next;
        if (left->next != NONE) symbols[left->next].prev = (uint32_t)pair.key;
        add_pair(e, left->prev, (uint32_t)pair.key);
        add_pair(e, (uint32_t)pair.key, left->next);
    }
    return e->status == PLUMB_OK;
}

/* ---- raw text ----------------------------------------------------------------------------------------------- */

/* Symbols that are no token are spelled out in byte tokens. */
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
        int32_t id = token_find(e->t, text + symbols[i].start, symbols[i].n);
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

/* A word of the pre-tokenizer.  Symbols that are no token are looked up byte by byte, and bytes that are none are left
 * out: what llama.cpp does with a vocabulary that lacks some byte. */
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
        int32_t id = token_find(e->t, text, n);
        if (id >= 0) {
            emit(e, id);
            return;
        }
    }
    if (!merge(e, n)) return;
    const struct symbol *symbols = e->symbols.items;
    for (uint32_t i = 0; i != NONE; i = symbols[i].next) {
        int32_t id = token_find(e->t, text + symbols[i].start, symbols[i].n);
        for (uint32_t k = 0; id < 0 && k < symbols[i].n; k++) {
            int32_t byte = token_find(e->t, text + symbols[i].start + k, 1);
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
    pretokenize(e->t->pre, chars, n_char, encode_word, e);
}

/* ---- fragments ---------------------------------------------------------------------------------------------- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void add_fragment(struct encoder *e, int32_t id, uint32_t begin, uint32_t end) {
    if (!reserve(e, &e->others, (uint64_t)e->n_other + 1, sizeof(struct fragment))) return;
    ((struct fragment *)e->others.items)[e->n_other++] = (struct fragment){id, begin, end};
}

/* The first of specials[low..high) whose byte at depth is at least `byte`. */
static uint32_t first_at_least(const struct special *specials, uint32_t low, uint32_t high, uint32_t depth,
                               unsigned byte) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((uint8_t)specials[middle].text.data[depth] < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Marks each special token that occurs in text: found[i] for specials[i].  Sorted by text, those that continue the
 * bytes read so far are a range, which every further byte narrows. */
static void find_specials(const struct tokenizer *t, const char *text, uint32_t n, uint8_t *found) {
    for (uint32_t pos = 0; pos < n; pos++) {
        uint32_t low = t->special_begin[(uint8_t)text[pos]], high = t->special_begin[(uint8_t)text[pos] + 1];
        for (uint32_t depth = 1; low < high; depth++) {
            if (t->specials[low].text.n == depth) found[low++] = 1;
            if (low == high || depth == n - pos) break;
            uint8_t byte = (uint8_t)text[pos + depth];
            low = first_at_least(t->specials, low, high, depth, byte);
            high = first_at_least(t->specials, low, high, depth, byte + 1u);
        }
    }
}

/* Cuts every occurrence of one special token out of the raw fragments, from the left. */
static void cut(struct encoder *e, const char *text, const struct special *special) {
    uint8_t attributes = e->t->attributes[special->id];
    uint32_t n = (uint32_t)special->text.n;
    e->n_other = 0;
    for (uint32_t i = 0; i < e->n_fragment; i++) {
        struct fragment f = ((struct fragment *)e->fragments.items)[i];
        uint32_t pos = f.begin;
        while (f.id < 0 && pos < f.end && n <= f.end - pos) {
            const char *found = memchr(text + pos, special->text.data[0], f.end - pos - n + 1);
            if (found == NULL) break;
            pos = (uint32_t)(found - text);
            if (memcmp(found, special->text.data, n) != 0) {
                pos++;
                continue;
            }
            uint32_t left = pos, right = pos + n;
            if (attributes & TOKEN_LSTRIP) while (left > f.begin && is_space(text[left - 1])) left--;
            if (attributes & TOKEN_RSTRIP) while (right < f.end && is_space(text[right])) right++;
            if (left > f.begin) add_fragment(e, -1, f.begin, left);
            add_fragment(e, special->id, pos, pos + n);
            f.begin = pos = right;
        }
        if (f.id >= 0 || f.begin < f.end) add_fragment(e, f.id, f.begin, f.end);
    }
    struct list swap = e->fragments;
    e->fragments = e->others;
    e->others = swap;
    e->n_fragment = e->n_other;
}

static int longer_first(const void *a, const void *b) {
    const struct special *x = *(const struct special *const *)a, *y = *(const struct special *const *)b;
    if (x->text.n != y->text.n) return x->text.n > y->text.n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* The whole text is one raw fragment; then each special token, the longest first, cuts what is still raw. */
static void partition(struct encoder *e, const char *text, uint32_t n, bool parse_special) {
    const struct tokenizer *t = e->t;
    add_fragment(e, -1, 0, n);
    e->fragments = e->others;
    e->others = (struct list){NULL, 0};
    e->n_fragment = e->n_other;
    if (t->n_special == 0 || e->status != PLUMB_OK) return;

    uint8_t *found = alloc_array(t->n_special, 1);
    const struct special **order = NULL;
    uint32_t n_found = 0;
    if (found != NULL) {
        memset(found, 0, t->n_special);
        find_specials(t, text, n, found);
        for (uint32_t i = 0; i < t->n_special; i++) n_found += found[i];
        order = alloc_array((uint64_t)n_found + 1, sizeof *order);
    }
    if (order == NULL) {
        fail(e, error_set(e->err, PLUMB_ERROR_MEMORY, "tokenize: no memory for %u special tokens",
                          (unsigned)t->n_special));
    } else {
        n_found = 0;
        for (uint32_t i = 0; i < t->n_special; i++) {
            bool plain = !parse_special && (t->attributes[t->specials[i].id] & (TOKEN_CONTROL | TOKEN_UNKNOWN));
            if (found[i] && !plain) order[n_found++] = &t->specials[i];
        }
        qsort(order, n_found, sizeof *order, longer_first);
        for (uint32_t i = 0; i < n_found && e->status == PLUMB_OK; i++) cut(e, text, order[i]);
    }
    free(found);
    free(order);
}

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
    if (n > 0) partition(e, text, n, (flags & PLUMB_PARSE_SPECIAL) != 0);
    bool after_token = true;   /* SPM puts its space before text at the start and after every token */
    for (uint32_t i = 0; i < e->n_fragment && e->status == PLUMB_OK; i++) {
        struct fragment f = ((struct fragment *)e->fragments.items)[i];
        if (f.id >= 0) emit(e, f.id);
        else if (t->is_bpe) encode_bpe(e, text + f.begin, f.end - f.begin);
        else encode_spm(e, text + f.begin, f.end - f.begin, t->add_space_prefix && after_token);
        after_token = f.id >= 0;
    }
    if (add_special && t->add_eos) emit(e, t->eos);
}

int64_t tokenizer_encode(struct tokenizer *t, const char *text, size_t len, unsigned flags, int32_t *ids, size_t cap,
                         struct error *err) {
    const size_t most = (size_t)1 << 28;   /* so that 8 bytes per character still count in 32 bits */
    if (len > most) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "tokenize: a text of %zu bytes, the most is %zu", len, most);
    }
    struct encoder e = {.t = t, .err = err, .ids = ids, .cap = cap};
    if (!t->is_bpe || reserve(&e, &e.scratch, t->longest_merge, 1)) encode(&e, text, (uint32_t)len, flags);
    free(e.fragments.items);
    free(e.others.items);
    free(e.chars.items);
    free(e.text.items);
    free(e.symbols.items);
    free(e.heap.items);
    free(e.scratch.items);
    return e.status != PLUMB_OK ? (int64_t)e.status : e.n;
}

/* Text -> ids.
 *
 *   text -> special tokens, which are cut out first (specials.h), and the raw text between them
 *        -> the encoder of the vocabulary's kind (table in vocab.c; merge.c, wordpiece.c, unigram.c, rwkv.c, plamo2.c)
 *        -> ids
 */
#include "tokenizer/automaton.h"
#include "tokenizer/encoder.h"
#include "tokenizer/specials.h"

#include <stdlib.h>

bool encoder_fail(struct encoder *e, plumb_status status) {
    if (e->status == PLUMB_OK) e->status = status;
    return false;
}

bool encoder_reserve(struct encoder *e, struct list *list, uint64_t n, size_t size) {
    if (n <= list->cap) return true;
    uint64_t cap = n < 64 ? 64 : n > list->cap * 2 ? n : list->cap * 2, bytes;
    void *items = mul_u64(cap, size, &bytes) && bytes <= SIZE_MAX ? realloc(list->items, (size_t)bytes) : NULL;
    if (items == NULL) {
        return encoder_fail(e, error_set(e->err, PLUMB_ERROR_MEMORY, "tokenize: out of memory: %llu items of %zu bytes",
                                 (unsigned long long)cap, size));
    }
    list->items = items;
    list->cap = cap;
    return true;
}

void encoder_emit(struct encoder *e, int32_t id) {
    if ((uint64_t)e->n < e->cap) e->ids[e->n] = id;
    e->n++;
}

void encoder_emit_unknown(struct encoder *e) {
    if (e->t->unk >= 0) {
        encoder_emit(e, e->t->unk);
        return;
    }
    encoder_fail(e, error_set(e->err, PLUMB_ERROR_TOKENIZER, "tokenize: a part of the text is no token, and the "
                              "vocabulary has no token for it (tokenizer.ggml.unknown_token_id)"));
}

/* The tokens that are found at one byte of a text are tried one by one, so a vocabulary that has many of them, such as
 * a, aa, aaa..., is refused.  XLM-RoBERTa has at most 13. */
enum { MAX_AT_ONE_BYTE = 256 };

bool encoder_automaton(struct encoder *e, bool (*wanted)(const struct tokenizer *t, uint32_t id), bool backward) {
    struct automaton **a = &e->t->automaton;
    if (*a == NULL) {
        plumb_status status = automaton_of_tokens(a, e->t, wanted, backward, e->err);
        if (status != PLUMB_OK) return encoder_fail(e, status);
    }
    if (wanted == NULL || (*a)->n_most <= MAX_AT_ONE_BYTE) return true;
    return encoder_fail(e, error_set(e->err, PLUMB_ERROR_TOKENIZER, "tokenizer.ggml.tokens: %u tokens may be at one "
                                     "place of a text, expected at most %d", (unsigned)(*a)->n_most, MAX_AT_ONE_BYTE));
}

bool encoder_find_longest(struct encoder *e, const char *text, uint32_t n) {
    if (!encoder_reserve(e, &e->found, n, sizeof(int32_t))) return false;
    const struct automaton *a = e->t->automaton;
    int32_t *ids = e->found.items;
    for (uint32_t i = n, node = 0; i-- > 0;) {
        node = automaton_next(a, node, (uint8_t)text[i], &e->n_step);
        ids[i] = a->nodes[automaton_longest(a, node)].id;   /* that of node 0 is -1 */
    }
    return true;
}

/* ---- whole texts ------------------------------------------------------------------------------------------------ */

struct ends tokenizer_ends(const struct tokenizer *t) {
    bool is_bare = t->kind->flags & KIND_NO_ENDS, both = t->kind->flags & KIND_BOS_AND_SEP;
    return (struct ends){ !is_bare && (t->add_bos || both), !is_bare && (t->add_eos || both), t->bos,
                          both ? t->sep : t->eos };
}

static void encode(struct encoder *e, const char *text, const uint8_t *marks, uint32_t n, unsigned flags) {
    const struct tokenizer *t = e->t;
    struct ends ends = flags & PLUMB_ADD_SPECIAL ? tokenizer_ends(t) : (struct ends){ false, false, -1, -1 };
    bool lacks_first = ends.has_first && ends.first < 0;
    if (lacks_first || (ends.has_last && ends.last < 0)) {
        bool both = t->kind->flags & KIND_BOS_AND_SEP;
        encoder_fail(e, error_set(e->err, PLUMB_ERROR_TOKENIZER,
                                  "tokenize: tokenizer.ggml.add_%s_token is true, but the vocabulary has no such token",
                                  lacks_first ? "bos" : both ? "sep" : "eos"));
        return;
    }
    if (ends.has_first) encoder_emit(e, ends.first);
    struct cuts cuts = {0};
    if (n > 0) {
        bool parse = (flags & PLUMB_PARSE_SPECIAL) != 0;
        e->status = specials_find(e->t, text, marks, n, parse, &cuts, &e->n_step, e->err);
    }
    bool after_token = !(flags & PLUMB_CONTINUES);
    for (uint32_t begin = 0, end; begin < n && e->status == PLUMB_OK; begin = end) {
        const struct cut *cut = cuts.owner && cuts.owner[begin] != 0 ? &cuts.items[cuts.owner[begin] - 1] : NULL;
        if (cut) {
            encoder_emit(e, cut->id);
            end = cut->right;
        } else {
            for (end = cuts.owner ? begin + 1 : n; end < n && cuts.owner[end] == 0;) end++;
            t->kind->encode(e, text + begin, end - begin, after_token);
        }
        after_token = cut != NULL;
    }
    specials_free(&cuts);
    if (ends.has_last) encoder_emit(e, ends.last);
}

int64_t tokenizer_encode_marked(struct tokenizer *t, const char *text, const uint8_t *marks, size_t len, unsigned flags,
                                int32_t *ids, size_t cap, struct error *err) {
    if (len > TEXT_MAX_BYTES) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "tokenize: the text has %zu bytes, at most %d are allowed", len,
                         TEXT_MAX_BYTES);
    }
    if (t->kind->encode == NULL) {
        return error_set(err, PLUMB_ERROR_TOKENIZER, "tokenize: the model has no vocabulary of texts "
                         "(tokenizer.ggml.model is %s); give token ids instead", t->kind->model);
    }
    struct encoder e = {.t = t, .err = err, .ids = ids, .cap = cap};
    encode(&e, text, marks, (uint32_t)len, flags);
    t->n_step = e.n_step;
    free(e.chars.items);
    free(e.text.items);
    free(e.symbols.items);
    free(e.heap.items);
    free(e.found.items);
    return e.status != PLUMB_OK ? (int64_t)e.status : e.n;
}

int64_t tokenizer_encode(struct tokenizer *t, const char *text, size_t len, unsigned flags, int32_t *ids, size_t cap,
                         struct error *err) {
    return tokenizer_encode_marked(t, text, NULL, len, flags, ids, cap, err);
}

/* The tokens of which an embedding or a reranker's score is made: those in front of the text, those of the text, and a
 * tail.  If there are too many, tokens are left out between the text and the tail. */
#include "tokenizer/vocab.h"

#include <stdlib.h>
#include <string.h>

/* A list of ids.  The first cap of them are written, and n counts all. */
struct list { int32_t *ids; size_t cap; int64_t n; };

static void put_id(struct list *out, int32_t id) {
    if ((uint64_t)out->n < out->cap) out->ids[out->n] = id;
    out->n++;
}

static plumb_status put_ids(struct list *out, struct tokenizer *t, struct gguf_string text, const uint8_t *marks,
                            unsigned flags, struct error *err) {
    size_t at = (uint64_t)out->n < out->cap ? (size_t)out->n : out->cap;
    int32_t *ids = at < out->cap ? out->ids + at : NULL;
    int64_t n = tokenizer_encode_marked(t, text.data, marks, (size_t)text.n, flags, ids, out->cap - at, err);
    if (n < 0) return (plumb_status)n;
    out->n += n;
    return PLUMB_OK;
}

/* Leaves tokens out, if there are more than n_max, and puts the tail behind the others.  n_front: how many are in front
 * of the text. */
static int64_t shorten(struct list *out, int64_t n_front, const int32_t *tail, size_t n_tail, size_t n_max,
                       struct error *err) {
    if (n_max == 0 || (uint64_t)out->n <= n_max) return out->n;
    if ((uint64_t)n_front + n_tail >= n_max) {
        return error_set(err, PLUMB_ERROR_CONTEXT, "no token of the text fits beside %llu others: at most %zu are "
                         "allowed", (unsigned long long)n_front + n_tail, n_max);
    }
    for (size_t i = n_max - n_tail; i < n_max && i < out->cap; i++) out->ids[i] = tail[i - (n_max - n_tail)];
    return (int64_t)n_max;
}

static int64_t encode_text(struct list *out, struct tokenizer *t, struct gguf_string text, unsigned flags,
                           size_t n_max, struct error *err) {
    struct ends ends = tokenizer_ends(t);
    PLUMB_TRY(put_ids(out, t, text, NULL, flags | PLUMB_ADD_SPECIAL, err));
    return shorten(out, ends.has_first, &ends.last, ends.has_last, n_max, err);
}

/* BOS query EOS SEP text EOS.  This is llama.cpp's format_prompt_rerank; it takes SEP for a missing EOS. */
static int64_t encode_pair(struct list *out, struct tokenizer *t, struct gguf_string query, struct gguf_string text,
                           size_t n_max, struct error *err) {
    int32_t eos = t->eos >= 0 ? t->eos : t->sep;
    if ((t->add_bos && t->bos < 0) || (t->add_eos && eos < 0) || (t->add_sep && t->sep < 0)) {
        return error_set(err, PLUMB_ERROR_TOKENIZER, "tokenize: the file asks for BOS, EOS or SEP around a query and a "
                         "text, but the vocabulary has no such token");
    }
    if (t->add_bos) put_id(out, t->bos);
    PLUMB_TRY(put_ids(out, t, query, NULL, 0, err));
    if (t->add_eos) put_id(out, eos);
    if (t->add_sep) put_id(out, t->sep);
    int64_t n_front = out->n;
    PLUMB_TRY(put_ids(out, t, text, NULL, 0, err));
    if (t->add_eos) put_id(out, eos);
    return shorten(out, n_front, &eos, t->add_eos, n_max, err);
}

/* ---- templates --------------------------------------------------------------------------------------------------- */

static bool starts_with(struct gguf_string s, uint64_t at, const char *name) {
    size_t n = strlen(name);
    return n <= s.n - at && memcmp(s.data + at, name, n) == 0;
}

/* Writes the template's bytes from begin to end with its placeholders replaced, or only counts if buf is NULL.  marks:
 * those of the bytes that replace placeholders become 1, the others 0. */
static uint64_t fill(struct gguf_string rerank, uint64_t begin, uint64_t end, struct gguf_string query,
                     struct gguf_string text, char *buf, uint8_t *marks) {
    uint64_t n = 0;
    for (uint64_t at = begin, step; at < end; at += step) {
        struct gguf_string piece = { rerank.data + at, 1 };
        step = 1;
        if (starts_with(rerank, at, "{query}")) {
            piece = query;
            step = strlen("{query}");
        } else if (starts_with(rerank, at, "{document}")) {
            piece = text;
            step = strlen("{document}");
        }
        if (buf) memcpy(buf + n, piece.data, (size_t)piece.n);
        if (buf) memset(marks + n, step > 1, (size_t)piece.n);
        n += piece.n;
    }
    return n;
}

/* Tokenizes the filled bytes from begin to end. */
static plumb_status put_filled(struct list *out, struct tokenizer *t, struct gguf_string rerank, uint64_t begin,
                               uint64_t end, struct gguf_string query, struct gguf_string text, struct error *err) {
    uint64_t n = fill(rerank, begin, end, query, text, NULL, NULL);
    char *filled = alloc_array(n + 1, 2);
    if (!filled) {
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a prompt of %llu bytes", (unsigned long long)n);
    }
    uint8_t *marks = (uint8_t *)filled + n + 1;
    fill(rerank, begin, end, query, text, filled, marks);
    plumb_status status = put_ids(out, t, (struct gguf_string) { filled, n }, marks, PLUMB_PARSE_SPECIAL, err);
    free(filled);
    return status;
}

static int64_t encode_template(struct list *out, struct tokenizer *t, struct gguf_string rerank,
                               struct gguf_string query, struct gguf_string text, size_t n_max, struct error *err) {
    PLUMB_TRY(put_filled(out, t, rerank, 0, rerank.n, query, text, err));
    if (n_max == 0 || (uint64_t)out->n <= n_max) return out->n;
    uint64_t begin = 0;
    while (begin < rerank.n && !starts_with(rerank, begin, "{document}")) begin++;
    uint64_t end = begin < rerank.n ? begin + strlen("{document}") : begin;
    struct list front = { NULL, 0, 0 }, tail = { alloc_array(n_max, sizeof(int32_t)), n_max, 0 };
    int64_t result = tail.ids ? PLUMB_OK : error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %zu tokens", n_max);
    if (result == PLUMB_OK) result = put_filled(&front, t, rerank, 0, begin, query, text, err);
    if (result == PLUMB_OK) result = put_filled(&tail, t, rerank, end, rerank.n, query, text, err);
    if (result == PLUMB_OK) result = shorten(out, front.n, tail.ids, (size_t)tail.n, n_max, err);
    free(tail.ids);
    return result;
}

int64_t tokenizer_encode_input(struct tokenizer *t, struct gguf_string rerank, struct gguf_string query,
                               struct gguf_string text, unsigned flags, size_t n_max, int32_t *ids, size_t cap,
                               struct error *err) {
    struct list out = { ids, cap, 0 };
    if (!query.data) return encode_text(&out, t, text, flags, n_max, err);
    if (!rerank.data) return encode_pair(&out, t, query, text, n_max, err);
    return encode_template(&out, t, rerank, query, text, n_max, err);
}

/* Ids -> text. */
#include "tokenizer/vocab.h"

#include <stdio.h>
#include <stdlib.h>

/* An output buffer that also counts the bytes that do not fit. */
struct sink {
    char *buf;
    size_t cap;
    uint64_t n;
    bool drop_space;   /* the next byte is dropped if it is a space */
};

void sink_put(struct sink *out, const char *s, size_t n) {
    if (out->drop_space && n > 0) {
        out->drop_space = false;
        if (s[0] == ' ') {
            s++;
            n--;
        }
    }
    if (out->n < out->cap) memcpy(out->buf + out->n, s, n < out->cap - out->n ? n : out->cap - (size_t)out->n);
    out->n += n;
}

/* Writes the bytes that the characters of text stand for.  A character that stands for no byte is shown as llama.cpp
 * shows it. */
static void put_bytes(struct sink *out, struct gguf_string text) {
    for (size_t i = 0; i < (size_t)text.n;) {
        uint32_t cp;
        i += unicode_decode(text.data + i, (size_t)text.n - i, &cp);
        int byte = cp_to_byte(cp);
        if (byte >= 0) {
            char c = (char)byte;
            sink_put(out, &c, 1);
            continue;
        }
        char utf8[4], hex[8];
        size_t n = unicode_encode(cp, utf8);
        sink_put(out, "[UNK_BYTE_0x", 12);
        for (size_t k = 0; k < n; k++) {
            sink_put(out, hex, (size_t)snprintf(hex, sizeof hex, "%02x", (unsigned)(uint8_t)utf8[k]));
        }
        sink_put(out, text.data, (size_t)text.n);
        sink_put(out, "]", 1);
    }
}

/* Writes spaces instead of U+2581. */
static void put_marked(struct sink *out, struct gguf_string text) {
    for (size_t i = 0; i < (size_t)text.n;) {
        bool mark = text.n - i >= 3 && memcmp(text.data + i, "\xe2\x96\x81", 3) == 0;
        sink_put(out, mark ? " " : text.data + i, 1);
        i += mark ? 3 : 1;
    }
}

/* Writes the text of a token; write is for normal tokens. */
static void put_token(const struct tokenizer *t, struct sink *out, uint32_t id,
                      void (*write)(struct sink *out, struct gguf_string text)) {
    uint16_t attributes = t->attributes[id];
    struct gguf_string text = token_shown(t, id);
    if (attributes & (TOKEN_CONTROL | TOKEN_UNKNOWN | TOKEN_USER_DEFINED)) {
        sink_put(out, text.data, (size_t)text.n);
    } else if (attributes & TOKEN_NORMAL) {
        write(out, text);
    } else if (attributes & TOKEN_BYTE) {
        char byte = (char)byte_of_text(text);
        sink_put(out, &byte, 1);
    }   /* unused and undefined tokens have no text */
}

void put_spm(const struct tokenizer *t, struct sink *out, uint32_t id) { put_token(t, out, id, put_marked); }
void put_bpe(const struct tokenizer *t, struct sink *out, uint32_t id) {
    put_token(t, out, id, t->pre->flags & PRE_MARK_SPACES ? put_marked : put_bytes);
}

void put_text(const struct tokenizer *t, struct sink *out, uint32_t id) {
    struct gguf_string text = token_text(t, id);
    sink_put(out, text.data, (size_t)text.n);
}

static void put_piece(const struct tokenizer *t, struct sink *out, uint32_t id, bool special) {
    if (special || !(t->attributes[id] & (TOKEN_CONTROL | TOKEN_UNKNOWN))) t->kind->put(t, out, id);
}

int64_t tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, char *buf, size_t cap) {
    if (id < 0 || (uint32_t)id >= t->n_vocab) return PLUMB_ERROR_TOKEN;
    struct sink out = {buf, cap, 0, false};
    put_piece(t, &out, (uint32_t)id, special);
    return (int64_t)out.n;
}

/* Removes the spaces of tokenized English in place, in the same three passes as llama.cpp, and returns the new length.
 * A pass never writes ahead of where it reads; `before` is the character that it read last. */
static size_t clean_spaces(char *s, size_t n) {
    char before = 0;
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {            /* the space before ? ! . , */
        char c = s[i];
        if (before == ' ' && (c == '?' || c == '!' || c == '.' || c == ',')) out--;
        s[out++] = before = c;
    }
    n = out;
    out = 0;
    before = 0;
    for (size_t i = 0; i < n; i++) {            /* both spaces around a single apostrophe */
        char c = s[i];
        bool alone = c == '\'' && before == ' ' && i + 1 < n && s[i + 1] == ' ';
        if (alone) out--;
        s[out++] = before = c;
        if (alone) {
            i++;
            before = 0;
        }
    }
    n = out;
    out = 0;
    before = 0;
    for (size_t i = 0; i < n; i++) {            /* the space before 's 'm 're 've */
        char c = s[i];
        if (before == ' ' && c == '\'' && i + 1 < n) {
            bool one = s[i + 1] == 's' || s[i + 1] == 'm';
            bool two = i + 2 < n && (s[i + 1] == 'r' || s[i + 1] == 'v') && s[i + 2] == 'e';
            if (one || two) out--;
        }
        s[out++] = before = c;
    }
    return out;
}

static void put_tokens(const struct tokenizer *t, struct sink *out, const int32_t *ids, size_t n, bool special) {
    for (size_t i = 0; i < n; i++) {
        out->drop_space = i == 0 && t->add_space_prefix;
        put_piece(t, out, (uint32_t)ids[i], special);
    }
}

int64_t tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, char *buf, size_t cap) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= t->n_vocab) return PLUMB_ERROR_TOKEN;
    }
    struct sink out = {buf, cap, 0, false};
    if (!t->clean_spaces) {
        put_tokens(t, &out, ids, n, special);
        return (int64_t)out.n;
    }
    /* Cleaning needs the whole text, and buf may be too small for it. */
    struct sink count = {NULL, 0, 0, false};
    put_tokens(t, &count, ids, n, special);
    out.buf = alloc_array(count.n, 1);
    out.cap = (size_t)count.n;
    if (out.buf == NULL) return PLUMB_ERROR_MEMORY;
    put_tokens(t, &out, ids, n, special);
    size_t length = clean_spaces(out.buf, (size_t)out.n);
    if (cap > 0) memcpy(buf, out.buf, length < cap ? length : cap);
    free(out.buf);
    return (int64_t)length;
}

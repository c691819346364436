/* RWKV: the text is divided into the longest tokens from left to right.
 *
 * The vocabulary writes bytes that do not print as \t, \n, \r, \xHH, and a backslash before any other character stands
 * for that character.  An automaton over the bytes of the tokens reads the text backward and finds the longest token
 * that begins at each byte.
 */
#include "tokenizer/automaton.h"
#include "tokenizer/encoder.h"

#include <stdlib.h>

/* Any character is taken for a digit, as llama.cpp does. */
static uint8_t digit(char c) { return (uint8_t)(c >= 'a' ? c - 'a' + 10 : c - '0'); }

/* Writes the bytes that a text stands for, at most its own number, and returns how many.  out NULL: only counts. */
static uint32_t unescape(struct gguf_string s, char *out) {
    uint32_t n = 0;
    for (uint64_t i = 0; i < s.n; n++) {
        char c = s.data[i++];
        if (c == '\\') {
            if (i == s.n) break;
            c = s.data[i++];
            if (c == 'x') {
                if (s.n - i < 2) break;
                c = (char)(uint8_t)((digit(s.data[i]) << 4) + digit(s.data[i + 1]));
                i += 2;
            } else {
                c = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
            }
        }
        if (out != NULL) out[n] = c;
    }
    return n;
}

static bool make_automaton(struct encoder *e) {
    struct tokenizer *t = e->t;
    if (t->automaton != NULL) return true;
    uint64_t n_byte = 0;
    for (uint32_t id = 0; id < t->n_vocab; id++) n_byte += token_text(t, id).n;
    struct automaton_text *texts = alloc_array(t->n_vocab, sizeof *texts);
    char *bytes = alloc_array(n_byte, 1);
    uint64_t at = 0;
    for (uint32_t id = 0; texts != NULL && bytes != NULL && id < t->n_vocab; id++) {
        texts[id] = (struct automaton_text){bytes + at, unescape(token_text(t, id), bytes + at), (int32_t)id};
        at += texts[id].n;
    }
    if (texts != NULL && bytes != NULL) t->automaton = automaton_create(texts, t->n_vocab, true);
    free(texts);
    free(bytes);
    if (t->automaton != NULL) return true;
    return encoder_fail(e, error_set(e->err, PLUMB_ERROR_MEMORY, "tokenize: out of memory: an automaton of %u tokens",
                                     (unsigned)t->n_vocab));
}

void encode_rwkv(struct encoder *e, const char *raw, uint32_t n, bool after_token) {
    (void)after_token;
    if (!make_automaton(e) || !encoder_find_longest(e, raw, n)) return;
    const int32_t *longest = e->found.items;
    for (uint32_t i = 0; i < n && e->status == PLUMB_OK;) {
        if (longest[i] >= 0) encoder_emit(e, longest[i]);
        else encoder_emit_unknown(e);
        i += longest[i] >= 0 ? unescape(token_text(e->t, (uint32_t)longest[i]), NULL) : 1;
    }
}

void put_rwkv(const struct tokenizer *t, struct sink *out, uint32_t id) {
    struct gguf_string text = token_text(t, id);
    for (uint64_t begin = 0, end; begin < text.n; begin = end) {   /* one character of the vocabulary at a time */
        bool escaped = text.data[begin] == '\\';
        end = begin + (escaped ? text.n - begin > 1 && text.data[begin + 1] == 'x' ? 4 : 2 : 1);
        if (end > text.n) end = text.n;
        char byte;
        if (unescape((struct gguf_string){text.data + begin, end - begin}, &byte) > 0) sink_put(out, &byte, 1);
    }
}

/* The check of a tokenizer: a text that is encoded and decoded again must be the same text. */
#include "check/selfcheck.h"

#include "tokenizer/vocab.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_TEXT = 400 };

/* The texts have no space before punctuation, because vocabularies with clean_up_tokenization_spaces drop it on
 * purpose. */
static const char *const texts[] = {
    "The quick brown fox jumps over the lazy dog.",
    "It's 3.14159; 1,234,567 and 0xDEADBEEF, 1e-9!",
    /* accents, precomposed and combining */
    "na\xc3\xafve caf\xc3\xa9 \xc3\x9c" "ber \xc5\x81\xc3\xb3" "d\xc5\xba e\xcc\x81",
    /* Greek, Cyrillic, Arabic; CJK and Hangul; emoji, joined emoji and flags */
    "\xce\x95\xce\xbb\xce\xbb\xce\xb7\xce\xbd\xce\xb9\xce\xba\xce\xac \xd0\xa0\xd1\x83 \xd8\xb9\xd8\xb1\xd8\xa8",
    "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xa8\xe4\xb8\xad\xe6\x96\x87\xe3\x80\x82\xed\x95\x9c\xea\xb5\xad",
    "\xf0\x9f\x98\x80 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac \xf0\x9f\x87\xa9\xf0\x9f\x87\xaa",
    " one  two   three    four\ttabs\t\tend  ",
    "lines\nlines\n\nlines\r\nend\n",
    "for (int i = 0; i < n; i++) {\n    a[i] += b[i] * 2;\n}\n",
    " ", "  ", "\n", "\n\n\n",
};

/* Encodes a text to ids, (MAX_TEXT), and returns how many there are.  Returns a negative number if the text cannot be
 * encoded, if it has more than MAX_TEXT tokens, or if an id is not in the vocabulary.  A detail then says why, or
 * out_of_memory is set. */
static int64_t encode(struct check *c, struct tokenizer *t, const char *text, size_t n, unsigned flags, int32_t *ids) {
    struct error err = { 0 };
    int64_t n_id = tokenizer_encode(t, text, n, flags, ids, MAX_TEXT, &err);
    struct shown shown;
    if (n_id == PLUMB_ERROR_MEMORY) c->out_of_memory = true;
    else if (n_id < 0) check_detail(c, "\"%s\" cannot be tokenized: %s", show_bytes(&shown, text, n), err.message);
    if (n_id > MAX_TEXT) check_detail(c, "\"%s\" has %lld tokens", show_bytes(&shown, text, n), (long long)n_id);
    for (int64_t i = 0; i < n_id && i < MAX_TEXT; i++) {
        if (ids[i] >= 0 && (uint32_t)ids[i] < tokenizer_n_vocab(t)) continue;
        check_detail(c, "\"%s\": token %d is not in 0..%u", show_bytes(&shown, text, n), (int)ids[i],
                     tokenizer_n_vocab(t) - 1);
        return -1;
    }
    return n_id <= MAX_TEXT ? n_id : -1;
}

/* Checks that the tokens of a text are decoded as the same text, unless the vocabulary is of a kind that changes it. */
static void check_text(struct check *c, struct tokenizer *t, const char *text, size_t n) {
    int32_t ids[MAX_TEXT];
    char back[MAX_TEXT];
    int64_t n_id = encode(c, t, text, n, 0, ids);
    if (n_id < 0 || t->kind->flags & KIND_NORMALIZES) return;
    int64_t n_back = tokenizer_decode(t, ids, (size_t)n_id, false, back, sizeof back);
    c->out_of_memory |= n_back == PLUMB_ERROR_MEMORY;
    if (c->out_of_memory || (n_back == (int64_t)n && memcmp(back, text, n) == 0)) return;
    struct shown theirs, ours;
    size_t n_shown = n_back < 0 ? 0 : n_back < MAX_TEXT ? (size_t)n_back : MAX_TEXT;
    check_detail(c, "\"%s\" is decoded as \"%s\"", show_bytes(&ours, text, n), show_bytes(&theirs, back, n_shown));
}

/* Returns true if a byte-level vocabulary has no token for some byte of this character.  Vocabularies lack the control
 * bytes that were not in the texts that they were made from (six in SmolLM2); llama.cpp drops such bytes too. */
static bool lacks_byte(const struct tokenizer *t, const char *text, size_t n) {
    if (t->pre == NULL || t->pre->flags & PRE_PLAIN) return false;
    for (size_t i = 0; i < n; i++) {
        char name[4];
        if (token_find(t, name, unicode_encode(byte_to_cp((uint8_t)text[i]), name)) < 0) return true;
    }
    return false;
}

/* Checks that the text of a special token is parsed as one token with that text. */
static void check_special(struct check *c, struct tokenizer *t, const struct special *special) {
    int32_t ids[MAX_TEXT];
    struct gguf_string wanted = token_text(t, (uint32_t)special->id);
    if (wanted.n > MAX_TEXT) return;
    int64_t n_id = encode(c, t, wanted.data, (size_t)wanted.n, PLUMB_PARSE_SPECIAL, ids);
    if (n_id < 0) return;
    if (n_id == 1) {   /* two tokens may have the same text */
        struct gguf_string text = token_text(t, (uint32_t)ids[0]);
        if (text.n == wanted.n && memcmp(text.data, wanted.data, (size_t)text.n) == 0) return;
    }
    struct shown shown;
    check_detail(c, "special token %d, \"%s\", is parsed as %lld tokens, the first is %d", (int)special->id,
                 show_bytes(&shown, wanted.data, (size_t)wanted.n), (long long)n_id, (int)ids[0]);
}

/* The time of the check grows with the number of special tokens.  No known model has more than MAX_SPECIALS.  If a
 * vocabulary does, only the FIRST_SPECIALS longest are checked, and the report says so. */
enum { MAX_SPECIALS = 10000, FIRST_SPECIALS = 200 };

void selfcheck_tokenizer(struct check *c, struct tokenizer *t) {
    if (t->kind->encode == NULL) {
        check_set(c, VERDICT_SKIP, "the vocabulary has no texts");
        return;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check_text(c, t, texts[i], strlen(texts[i]));
    uint32_t n_lacking = 0;
    for (uint32_t cp = 0; cp < 0x100; cp++) {   /* each of the characters U+0000 to U+00FF, in UTF-8 */
        char text[4];
        size_t n = unicode_encode(cp, text);
        if (lacks_byte(t, text, n)) n_lacking++;
        else check_text(c, t, text, n);
    }
    uint32_t n_special = t->n_special <= MAX_SPECIALS ? t->n_special : FIRST_SPECIALS;
    for (uint32_t i = 0; i < n_special; i++) check_special(c, t, &t->specials[i]);
    size_t n_text = sizeof texts / sizeof *texts + 0x100 - n_lacking;
    char specials[80];
    if (n_special == t->n_special) snprintf(specials, sizeof specials, "%u special tokens", n_special);
    else snprintf(specials, sizeof specials, "the %u longest of %u special tokens", n_special, t->n_special);
    if (c->n_detail > 0) {
        check_set(c, VERDICT_FAIL, "of %zu texts and %s, %u are not restored", n_text, specials, c->n_detail);
    } else if (t->kind->flags & KIND_NORMALIZES) {
        check_set(c, VERDICT_OK, "%zu texts have tokens, %s are one token each; this kind of vocabulary changes texts, "
                  "so they are not compared", n_text, specials);
    } else {
        char lacking[80];
        snprintf(lacking, sizeof lacking, n_lacking == 0 ? "all of the first 256 characters have a token"
                 : "%u of the first 256 characters have no token", n_lacking);
        check_set(c, VERDICT_OK, "%zu texts are restored, %s are one token each; %s", n_text, specials, lacking);
    }
}

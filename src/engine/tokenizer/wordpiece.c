/* WordPiece (bert): each word is divided into the longest tokens from left to right.
 *
 * A word of the text is written with U+2581 before it, as the vocabulary has it.  White space divides words, and
 * punctuation and Chinese characters are words by themselves.  The longest token that begins at each byte of a word
 * comes from an automaton that reads the word backward.
 */
#include "tokenizer/encoder.h"

/* The blocks that are divided into single characters; one begins later than that of Unicode, as in other programs. */
static bool is_chinese(uint32_t cp) {
    static const struct { uint32_t first, last; } blocks[] = {
        {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xf900, 0xfaff}, {0x20000, 0x2a6df}, {0x2a700, 0x2b81f},
        {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (cp >= blocks[i].first && cp <= blocks[i].last) return true;
    }
    return false;
}

/* Encodes a word of n bytes with its mark.  If a part of it begins no token, the whole word is unknown. */
static void encode_word(struct encoder *e, const char *word, uint32_t n) {
    if (!encoder_find_longest(e, word, n)) return;
    const int32_t *longest = e->found.items;
    uint32_t i = 0;
    while (i < n && longest[i] >= 0) i += (uint32_t)token_text(e->t, (uint32_t)longest[i]).n;
    if (i < n) {
        encoder_emit_unknown(e);
        return;
    }
    for (i = 0; i < n; i += (uint32_t)token_text(e->t, (uint32_t)longest[i]).n) encoder_emit(e, longest[i]);
}

void encode_wordpiece(struct encoder *e, const char *raw, uint32_t n, bool after_token) {
    (void)after_token;
    enum { N_MARK = sizeof SPACE_MARK - 1 };
    const struct tokenizer *t = e->t;
    if (!encoder_automaton(e, NULL, true) || !encoder_reserve(e, &e->text, (uint64_t)n * 4 + N_MARK, 1)) return;
    char *word = e->text.items;
    memcpy(word, SPACE_MARK, N_MARK);
    uint32_t n_word = N_MARK;
    for (uint32_t i = 0; i < n && e->status == PLUMB_OK;) {
        uint32_t cp;
        i += (uint32_t)unicode_decode(raw + i, n - i, &cp);
        if (t->strip_accents) cp = unicode_first(cp);
        enum unicode_class class = unicode_class_of(cp);
        bool space = unicode_is_space(cp);
        bool alone = class == UNICODE_PUNCTUATION || (class == UNICODE_SYMBOL && cp < 0x7f) || is_chinese(cp);
        bool dropped = cp == 0 || cp == 0xfffd || class == UNICODE_CONTROL ||
                       (t->strip_accents && class == UNICODE_MARK);
        if (dropped && !space) continue;
        if ((space || alone) && n_word > N_MARK) {
            encode_word(e, word, n_word);
            n_word = N_MARK;
        }
        if (space) continue;
        n_word += (uint32_t)unicode_encode(t->lowercase ? unicode_lower(cp) : cp, word + n_word);
        if (!alone) continue;
        encode_word(e, word, n_word);
        n_word = N_MARK;
    }
    if (n_word > N_MARK && e->status == PLUMB_OK) encode_word(e, word, n_word);
    e->n_step += n;
}

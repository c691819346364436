/* Any grammar and any text.
 *
 *   grammar, a zero byte, text
 *
 * The grammar is compiled or refused with an error message.  The verdict on the text is that of a slow, obvious
 * matcher.  Masks equal tokens tried alone, on the way through the text.  A second position on the same automaton has
 * the same states. */
#include "grammar/check.h"
#include "grammar/recognizer.h"
#include "../grammar_make.h"
#include "../grammar_reference.h"
#include "fuzz.h"

/* All bytes, some texts, and a token that ends a turn. */
static const char *const texts[] = { "ab", "aba", "\": \"", "\",", "\"}", "}}", "]]", "\xc3\xa9\x61",
                                     "\xe2\x82", "a\xf0\x9f", "  ", "\n\n", "12", "true", "\\\"" };
enum { N_TEXT = sizeof texts / sizeof *texts, N_VOCAB = 256 + N_TEXT + 1, EOG = N_VOCAB - 1 };

static int64_t piece(void *user, int32_t id, bool special, char *buf, size_t cap) {
    (void)user, (void)special;
    char byte = (char)id;
    const char *text = id < 256 ? &byte : texts[id - 256];
    size_t n = id < 256 ? 1 : strlen(text);
    if (n <= cap) memcpy(buf, text, n);
    return (int64_t)n;
}

static bool is_eog(void *user, int32_t id) {
    (void)user;
    return id == EOG;
}

static void check_mask(struct recognizer *r, uint32_t state) {
    const uint32_t *mask;
    if (recognizer_mask(r, state, &mask) != PLUMB_OK) return;
    uint32_t words[(N_VOCAB + 31) / 32];
    memcpy(words, mask, sizeof words);
    for (int32_t id = 0; id < N_VOCAB; id++) {
        char buf[8];
        uint32_t to = id == EOG && state_has(r, state, STATE_MAY_END) ? state : STATE_DEAD;
        size_t n = id == EOG ? 0 : (size_t)piece(NULL, id, false, buf, sizeof buf);
        if (id != EOG && recognizer_step_token(r, state, id, buf, n, &to) != PLUMB_OK) return;
        require((words[id / 32] >> id % 32 & 1) == (to != STATE_DEAD), "a mask differs from a token tried alone");
    }
}

/* Returns the bytes of the character at s, 0 if it is not UTF-8. */
static size_t decode(const uint8_t *s, size_t n, uint32_t *cp) {
    size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (length == 0 || length > n) return 0;
    *cp = length == 1 ? s[0] : s[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *cp = *cp << 6 | (s[i] & 0x3f);
    }
    bool is_short = (length == 3 && *cp < 0x800) || (length == 4 && *cp < 0x10000);
    return is_short || *cp > 0x10ffff || (*cp >= 0xd800 && *cp < 0xe000) ? 0 : length;
}

/* A text of the root with two derivations is a text of the grammar, and the root is used if it has a text. */
static void check_grammar(const struct grammar *g, struct position *p) {
    struct error err;
    struct grammar_uses uses;
    struct ambiguity found;
    require(grammar_find_uses(g, &uses, &err) == PLUMB_OK, "no memory");
    require(uses.rules[g->root] != RULE_UNREACHABLE, "the root is unreachable");
    require(grammar_find_ambiguity(g, &uses, 1 << 14, &found, &err) == PLUMB_OK, "no memory");
    require(!found.is_found || uses.rules[found.rule] == RULE_USED, "the text of a rule that is not used");
    uint32_t state = position_state(p);
    for (size_t i = 0; i < found.text.n && state != STATE_DEAD; i++) {
        if (recognizer_step(p->r, state, (uint8_t)found.text.data[i], &state) != PLUMB_OK) break;
    }
    bool has_tokens = found.text.data && strstr(found.text.data, "<[");
    require(!found.is_found || found.rule != g->root || has_tokens || p->r->err.status != PLUMB_OK
            || state_has(p->r, state, STATE_MAY_END), "the ambiguous text is not a text of the grammar");
    grammar_text_free(&found.text);
    grammar_uses_free(&uses);
}

static void follow(struct position *p, struct ref_grammar *reference, const uint8_t *text, size_t n) {
    uint32_t code_points[REF_CHARS];
    int n_char = 0;
    char verdict = REF_REFUSED;
    for (size_t at = 0, length; ; at += length) {
        uint32_t state = position_state(p);
        if (n_char < 6 || at == n) check_mask(p->r, state);
        if (verdict != REF_UNKNOWN) verdict = ref_verdict(reference, code_points, n_char);   /* it may take long */
        char found = state == STATE_DEAD ? REF_REFUSED
                   : state_has(p->r, state, STATE_MAY_END) ? REF_COMPLETE : REF_PREFIX;
        require(verdict == REF_UNKNOWN || verdict == found, "the slow matcher has another verdict");
        if (at == n || n_char == REF_CHARS || (length = decode(text + at, n - at, &code_points[n_char])) == 0) return;
        n_char++;
        if (recognizer_trim(p->r) != PLUMB_OK) return;
        state = position_state(p);
        for (size_t i = 0; i < length; i++) {
            if (recognizer_step(p->r, state, text[at + i], &state) != PLUMB_OK) return;
        }
        if (position_push(p, state) != PLUMB_OK) return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct ref_grammar reference;
    static struct pieces *pieces;
    struct error err = { 0 };
    const struct vocabulary vocabulary = { .n_vocab = N_VOCAB, .piece = piece, .is_eog = is_eog };
    if (!pieces) require(pieces_create(&pieces, &vocabulary, &err) == PLUMB_OK, err.message);
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    char *copy = malloc(n);   /* of exactly this size */
    require(copy != NULL || n == 0, "no memory");
    if (n > 0) memcpy(copy, data, n);
    struct grammar *g;
    plumb_status status = make_grammar(&g, copy, n, &err);
    require(status == err.status && (status == PLUMB_OK) == (err.message[0] == 0), "a failure without a sentence");
    require((status == PLUMB_OK) == (g != NULL), "a failure with a grammar");
    if (g) {
        struct recognizer *r;
        struct position p, again;
        require(recognizer_create(&r, g, &err) == PLUMB_OK && recognizer_set_vocabulary(r, pieces) == PLUMB_OK,
                "no recognizer");
        ref_parse(&reference, copy, n);
        if (position_init(&p, r) == PLUMB_OK) {
            check_grammar(g, &p);
            follow(&p, &reference, zero ? zero + 1 : data, zero ? size - n - 1 : 0);
            if (position_init(&again, r) == PLUMB_OK) require(again.states[0] == p.states[0], "two states are equal");
            position_free(&again);
        }
        position_free(&p);
        recognizer_free(r);
    }
    grammar_free(g);
    free(copy);
    return 0;
}

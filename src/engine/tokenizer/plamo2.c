/* PLaMo 2: the tokens with the highest sum of scores, where a character that is no token costs as much as a score of
 * -1000 and becomes a token for each of its bytes.
 *
 * The best sum from each character to the end of the text is computed from the end on.  An automaton that reads the
 * text backward finds the tokens that begin there.  Scores are integers, in units of 0.0001.
 */
#include "tokenizer/automaton.h"
#include "tokenizer/encoder.h"

enum { NO_TOKEN = -20000000, UNKNOWN = -10000000 };   /* scores */

static int32_t score_of(const struct tokenizer *t, uint32_t id) {
    double score = (double)token_score(t, id) * 1e4;
    if (!(score > (double)NO_TOKEN) || score > (double)INT32_MAX) return NO_TOKEN;
    return (int32_t)(score < 0 ? -(int64_t)(0.5 - score) : (int64_t)(score + 0.5));
}

static bool is_piece(const struct tokenizer *t, uint32_t id) {
    return !(t->attributes[id] & TOKEN_BYTE) && score_of(t, id) > NO_TOKEN;
}

plumb_status load_plamo2(struct tokenizer *t, const struct gguf *g, struct error *err) {
    (void)g;
    for (int byte = 0; byte < 256; byte++) t->byte_tokens[byte] = -1;
    for (uint32_t id = 0; id < t->n_vocab; id++) {
        int byte = t->attributes[id] & TOKEN_BYTE ? byte_of_text(token_text(t, id)) : -1;
        if (byte >= 0) t->byte_tokens[byte] = (int32_t)id;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (t->byte_tokens[byte] > 0) continue;   /* llama.cpp refuses a byte token with id 0, too */
        return error_set(err, PLUMB_ERROR_TOKENIZER, "tokenizer.ggml.tokens: no token of type byte is <0x%02X>",
                         (unsigned)byte);
    }
    return PLUMB_OK;
}

struct step {
    int64_t cost;   /* of the text from here on */
    uint32_t n;     /* bytes of the first token */
    int32_t id;     /* -1: a character as bytes */
};

/* Writes the text as UTF-8 and returns its bytes; a byte order mark at the beginning is left out. */
static uint32_t write_text(char *text, const char *raw, uint32_t n) {
    uint32_t n_text = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t cp;
        bool first = i == 0;
        i += (uint32_t)unicode_decode(raw + i, n - i, &cp);
        if (!first || cp != 0xfeff) n_text += (uint32_t)unicode_encode(cp, text + n_text);
    }
    return n_text;
}

static bool is_inside(const char *text, uint32_t i, uint32_t n) { return i < n && ((uint8_t)text[i] & 0xc0) == 0x80; }

void encode_plamo2(struct encoder *e, const char *raw, uint32_t n, bool after_token) {
    (void)after_token;
    const struct tokenizer *t = e->t;
    if (!encoder_automaton(e, is_piece, true) || !encoder_reserve(e, &e->text, (uint64_t)n * 3, 1)) return;
    const struct automaton *a = t->automaton;
    char *text = e->text.items;
    n = write_text(text, raw, n);
    if (!encoder_reserve(e, &e->found, (uint64_t)n + 1, sizeof(struct step))) return;
    struct step *steps = e->found.items;
    steps[n].cost = 0;
    for (uint32_t i = n, node = 0, next = n; i-- > 0;) {   /* next: where the character after this one begins */
        node = automaton_next(a, node, (uint8_t)text[i], &e->n_step);
        if (is_inside(text, i, n)) continue;
        struct step best = {INT64_MAX, next - i, -1};
        for (uint32_t k = automaton_longest(a, node); k != 0; k = a->nodes[k].shorter, e->n_step++) {
            uint32_t id = (uint32_t)a->nodes[k].id, length = (uint32_t)token_text(t, id).n;
            if (is_inside(text, i + length, n)) continue;
            int64_t cost = steps[i + length].cost - score_of(t, id);
            if (cost < best.cost) best = (struct step){cost, length, (int32_t)id};
        }
        if (steps[next].cost - UNKNOWN < best.cost) best = (struct step){steps[next].cost - UNKNOWN, next - i, -1};
        steps[i] = best;
        next = i;
    }
    for (uint32_t i = 0; i < n; i += steps[i].n) {
        if (steps[i].id >= 0) encoder_emit(e, steps[i].id);
        for (uint32_t k = 0; steps[i].id < 0 && k < steps[i].n; k++) {
            encoder_emit(e, t->byte_tokens[(uint8_t)text[i + k]]);
        }
    }
}

void put_plamo2(const struct tokenizer *t, struct sink *out, uint32_t id) {
    struct gguf_string text = token_text(t, id);
    int value = t->attributes[id] & TOKEN_BYTE ? byte_of_text(text) : -1;
    char byte = (char)value;
    if (value >= 0) sink_put(out, &byte, 1);
    else sink_put(out, text.data, (size_t)text.n);
}

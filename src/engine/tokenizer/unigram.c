/* Unigram (t5): the text is normalized, and then divided into the tokens with the highest sum of scores.
 *
 *   raw text -> characters and sequences that the vocabulary's map of characters replaces
 *            -> spaces become U+2581; one is put before the text, and several become one, if the file says so
 *            -> the best sum up to each character, from the tokens that end there, which an automaton finds
 *
 * tokenizer.ggml.precompiled_charsmap, which no one has checked:
 *
 *   u32 n | n bytes: u32 entries of a double array | replacements, each of which ends in a zero byte
 *   entry: bits 10-30 base, 9 the base is shifted by 8, 8 a sequence ends here, 0-7 and 31 the byte that leads here
 *
 * From the node at `i` the byte c leads to the entry i ^ c, if that entry has c, and then to the node i ^ c ^ base.  If
 * a sequence ends there, that node's entry is the place of its replacement.
 */
#include "tokenizer/automaton.h"
#include "tokenizer/encoder.h"

#include <float.h>

/* A map can be made so that its replacements are long, or so that a search goes on through the whole text.
 * SentencePiece's maps have sequences of up to 10 bytes and replacements of up to 33. */
enum { MAX_SEQUENCE = 64, MAX_REPLACEMENT = 256 };

/* ---- loading ---------------------------------------------------------------------------------------------------- */

/* Types of tokenizer.ggml.token_type. */
enum { TYPE_NORMAL = 1, TYPE_USER_DEFINED = 4, TYPE_UNUSED = 5 };
static uint32_t type_of(const struct tokenizer *t, uint32_t id) {
    return t->types != NULL ? load_u32(t->types + (size_t)id * 4) : TYPE_NORMAL;
}
static bool is_piece(const struct tokenizer *t, uint32_t id) {
    uint32_t type = type_of(t, id);
    return type == TYPE_NORMAL || type == TYPE_USER_DEFINED || type == TYPE_UNUSED;
}
static bool is_user_defined(const struct tokenizer *t, uint32_t id) { return type_of(t, id) == TYPE_USER_DEFINED; }

static plumb_status load_map(struct tokenizer *t, const struct gguf *g, struct error *err) {
    static const char name[] = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_key *key = gguf_find_key(g, name);
    enum gguf_type type = key != NULL && key->is_array && key->type == GGUF_INT8 ? GGUF_INT8 : GGUF_UINT8;
    PLUMB_TRY(gguf_get_array(g, name, type, &key, err));
    if (key == NULL) return PLUMB_OK;
    uint64_t n_double_array = key->n >= 4 ? load_u32(key->values) : 0;
    if (key->n < 4 || n_double_array + 4 >= key->n) {
        return error_set(err, PLUMB_ERROR_TOKENIZER, "%s: %llu bytes, of which %llu are a double array", name,
                         (unsigned long long)key->n, (unsigned long long)n_double_array);
    }
    t->map = key->values + 4;
    t->n_map = (uint32_t)(n_double_array / 4);
    t->replacements = (const char *)key->values + 4 + n_double_array;
    t->n_replacement = key->n - 4 - n_double_array;
    return PLUMB_OK;
}

plumb_status load_unigram(struct tokenizer *t, const struct gguf *g, struct error *err) {
    PLUMB_TRY(gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &t->merge_spaces, err));
    PLUMB_TRY(load_map(t, g, err));
    float lowest = FLT_MAX;
    for (uint32_t id = 0; id < t->n_vocab; id++) {
        float score = token_score(t, id);
        if (type_of(t, id) == TYPE_NORMAL && score < lowest) lowest = score;
    }
    t->unknown_score = lowest - 10.0f;
    return automaton_of_tokens(&t->user_automaton, t, is_user_defined, false, err);
}

/* ---- the normalized text ---------------------------------------------------------------------------------------- */

/* Returns the number of bytes of a sequence of UTF-8 as llama.cpp reads it; 0: it is none. */
static uint32_t sequence_length(const char *s, uint32_t n) {
    uint8_t first = (uint8_t)s[0];
    uint32_t length = (uint32_t)unicode_length(s[0]);
    if (first < 0x80) return 1;
    if (first < 0xc0 || first >= 0xf8 || length > n) return 0;
    for (uint32_t i = 1; i < length; i++) if (((uint8_t)s[i] & 0xc0) != 0x80) return 0;
    return length;
}

/* What the beginning of a text becomes. */
struct normal {
    const char *text;
    uint32_t n, n_raw;   /* bytes of it, and of what it replaces */
};

/* Returns an entry of the double array, and false if there is no such entry. */
static bool map_entry(const struct tokenizer *t, uint32_t i, uint32_t *entry) {
    if (i >= t->n_map) return false;
    *entry = load_u32(t->map + (size_t)i * 4);
    return true;
}
static uint32_t base_of(uint32_t entry) { return entry >> 10 << ((entry & 1u << 9) >> 6); }

static bool bad_map(struct encoder *e, const char *what) {
    return encoder_fail(e, error_set(e->err, PLUMB_ERROR_TOKENIZER, "tokenizer.ggml.precompiled_charsmap: %s", what));
}

/* Finds the longest sequence that raw begins with; out->n_raw is 0 if there is none. */
static bool find_sequence(struct encoder *e, const char *raw, uint32_t n, struct normal *out) {
    const struct tokenizer *t = e->t;
    *out = (struct normal){NULL, 0, 0};
    uint32_t entry, place = 0;
    if (t->n_map == 0) return true;
    uint32_t node = base_of(load_u32(t->map));
    for (uint32_t i = 0; i < n && i < MAX_SEQUENCE && raw[i] != 0; i++) {
        uint8_t byte = (uint8_t)raw[i];
        e->n_step++;
        node ^= byte;
        if (!map_entry(t, node, &entry)) return bad_map(e, "an entry lies outside of the double array");
        if ((entry & (1u << 31 | 0xff)) != byte) break;
        node ^= base_of(entry);
        if (!(entry & 1u << 8)) continue;
        if (!map_entry(t, node, &place)) return bad_map(e, "an entry lies outside of the double array");
        out->n_raw = i + 1;
    }
    if (out->n_raw == 0) return true;
    place &= ~(1u << 31);
    if (place >= t->n_replacement) return bad_map(e, "a replacement lies outside of the list");
    uint64_t most = t->n_replacement - place;
    if (most > MAX_REPLACEMENT + 1) most = MAX_REPLACEMENT + 1;
    out->text = t->replacements + place;
    const char *end = memchr(out->text, 0, (size_t)most);
    if (end == NULL) return bad_map(e, "a replacement does not end, or has more than 256 bytes");
    out->n = (uint32_t)(end - out->text);
    return true;
}

static bool normalize_start(struct encoder *e, const char *raw, uint32_t n, struct normal *out) {
    /* the longest beginning of a user-defined token stays as it is, even if the token does not follow */
    uint32_t i = 0;
    for (uint32_t node = 0; i < n; i++) {
        node = automaton_child(e->t->user_automaton, node, (uint8_t)raw[i]);
        if (node == 0) break;
    }
    e->n_step += i + 1;
    *out = (struct normal){raw, i, i};
    if (i > 0) return true;
    if (!find_sequence(e, raw, n, out)) return false;
    if (out->n_raw > 0) return true;
    uint32_t length = sequence_length(raw, n);
    *out = length > 0 ? (struct normal){raw, length, length} : (struct normal){"\xef\xbf\xbd", 3, 1};
    return true;
}

/* Writes the normalized text into e->text and returns its bytes; 0 on failure, too. */
static uint32_t normalize(struct encoder *e, const char *raw, uint32_t n) {
    const struct tokenizer *t = e->t;
    enum { N_MARK = sizeof SPACE_MARK - 1 };
    bool in_word = false, begun = false;   /* begun: a space was put before a word */
    uint64_t n_text = 0;
    for (uint32_t i = 0; i < n;) {
        struct normal normal;
        if (!normalize_start(e, raw + i, n - i, &normal)) return 0;
        i += normal.n_raw;
        if (!encoder_reserve(e, &e->text, n_text + (uint64_t)normal.n * (N_MARK + 1), 1)) return 0;
        char *text = e->text.items;
        for (uint32_t k = 0; k < normal.n; k++) {
            bool space = normal.text[k] == ' ', starts = !space && !in_word;
            if ((space && !t->merge_spaces) || (starts && (t->merge_spaces || (t->add_space_prefix && !begun)))) {
                memcpy(text + n_text, SPACE_MARK, N_MARK);
                n_text += N_MARK;
                begun |= starts;
            }
            if (!space) text[n_text++] = normal.text[k];
            in_word = !space;
        }
        e->n_step += normal.n;
        if (n_text <= UINT32_MAX - 8 * MAX_REPLACEMENT) continue;
        encoder_fail(e, error_set(e->err, PLUMB_ERROR_ARGUMENT, "tokenize: the normalized text is too long"));
        return 0;
    }
    return (uint32_t)n_text;
}

/* ---- the best tokens -------------------------------------------------------------------------------------------- */

struct best {
    double score;     /* of the text up to here */
    uint32_t start;   /* of the last token; NONE: no character ends here */
    int32_t id;       /* of the last token; -1: unknown */
};

/* Finds the best last token of the text up to `end`, whose last character begins at `last`. */
static struct best find_best(struct encoder *e, const struct best *best, uint32_t node, uint32_t last, uint32_t end) {
    const struct tokenizer *t = e->t;
    const struct automaton *a = t->automaton;
    struct best found = {-DBL_MAX, 0, -1};
    bool is_token = false;   /* the last character by itself */
    for (uint32_t k = automaton_longest(a, node); k != 0; k = a->nodes[k].shorter, e->n_step++) {
        uint32_t id = (uint32_t)a->nodes[k].id, start = end - (uint32_t)token_text(t, id).n;
        if (best[start].start == NONE) continue;
        is_token |= start == last;
        double score = best[start].score + (is_user_defined(t, id) ? 0.0 : (double)token_score(t, id));
        if (score > found.score) found = (struct best){score, start, (int32_t)id};
    }
    double unknown = best[last].score + (double)t->unknown_score;
    if (!is_token && unknown > found.score) found = (struct best){unknown, last, -1};
    return found;
}

void encode_unigram(struct encoder *e, const char *raw, uint32_t n_raw, bool after_token) {
    (void)after_token;
    if (!encoder_automaton(e, is_piece, false)) return;
    uint32_t n = normalize(e, raw, n_raw), n_path = 0;
    if (n == 0 || !encoder_reserve(e, &e->found, (uint64_t)n + 1, sizeof(struct best)) ||
        !encoder_reserve(e, &e->heap, (uint64_t)n + 1, sizeof(uint32_t))) return;
    const char *text = e->text.items;
    struct best *best = e->found.items;
    uint32_t *path = e->heap.items;   /* ends of the tokens, the last one first */
    best[0] = (struct best){0, 0, -1};
    for (uint32_t i = 0, node = 0, last = 0, next; i < n; last = next) {
        next = n - i > unicode_length(text[i]) ? i + (uint32_t)unicode_length(text[i]) : n;
        while (i < next) {
            node = automaton_next(e->t->automaton, node, (uint8_t)text[i++], &e->n_step);
            best[i].start = NONE;
        }
        best[i] = find_best(e, best, node, last, i);
    }
    for (uint32_t end = n; end > 0; end = best[end].start) path[n_path++] = end;
    for (bool unknown = false; n_path-- > 0 && e->status == PLUMB_OK;) {   /* unknown ones in a row are one */
        int32_t id = best[path[n_path]].id;
        if (id >= 0 && id != e->t->unk) encoder_emit(e, id);
        else if (!unknown) encoder_emit_unknown(e);
        unknown = id < 0 || id == e->t->unk;
    }
}

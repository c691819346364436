/* Any two regular expressions and any text.
 *
 *   flags | regular expression, a zero byte, another, a zero byte, text
 *
 * Bits 0 and 1 of the flags: a part of the text may match the first or the second one.  Bits 2 to 4: an operation on
 * them.  A language is made or refused with an error message within its limits.  Whether it has the text is what a slow
 * matcher finds, which follows the tree of the language by its definition, and what the grammar of the language allows,
 * as text and in a JSON string.
 */
#include "../grammar_make.h"
#include "fuzz.h"
#include "grammar/language.h"
#include "grammar/recognizer.h"
#include "base/unicode.h"

/* ---- the slow matcher -------------------------------------------------------------------------------------------- */

enum { MAX_CHARS = 20, MAX_STEPS = 200000 };
struct text { uint32_t chars[MAX_CHARS], first, end; };   /* the string is chars[first..end) */
static uint32_t n_step;

static bool is_word(const struct text *t, uint32_t i) {
    if (i < t->first || i >= t->end) return false;
    uint32_t c = t->chars[i];
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z');
}

/* Returns the places, as bits, at which a match may end that begins at one of `from`. */
static uint32_t reach(const struct language *a, const struct text *t, uint32_t from) {
    uint32_t to = 0;
    if (from == 0 || ++n_step > MAX_STEPS) return 0;
    switch (a->kind) {
    case LANGUAGE_STRING:
        for (uint32_t i = t->first; i <= t->end; i++) {
            bool same = (from >> i & 1) && a->n <= t->end - i;
            for (uint32_t j = 0; same && j < a->n; j++) same = t->chars[i + j] == char_at(a->chars[j]);
            if (same) to |= 1u << (i + a->n);
        }
        return to;
    case LANGUAGE_SET:
        for (uint32_t i = t->first; i < t->end; i++) {
            for (uint32_t j = 0; (from >> i & 1) && j < a->set->n; j++) {
                uint32_t c = char_index(t->chars[i]);
                if (c >= a->set->spans[j].first && c <= a->set->spans[j].last) to |= 1u << (i + 1);
            }
        }
        return to;
    case LANGUAGE_CONCAT:
        for (uint32_t i = 0; i < a->n; i++) from = reach(a->parts[i], t, from);
        return from;
    case LANGUAGE_UNION:
        for (uint32_t i = 0; i < a->n; i++) to |= reach(a->parts[i], t, from);
        return to;
    case LANGUAGE_REPEAT:
        for (int64_t i = 0; i < a->least && from != 0; i++) {
            uint32_t next = reach(a->parts[0], t, from);
            if (next == from) break;
            from = next;
        }
        to = from;
        for (int64_t i = a->least; (a->most == LANGUAGE_UNBOUNDED || i < a->most) && from != 0; i++) {
            from = reach(a->parts[0], t, from) & ~to;
            to |= from;
        }
        return to;
    case LANGUAGE_START: return from & 1u << t->first;
    case LANGUAGE_END: return from & 1u << t->end;
    case LANGUAGE_BOUNDARY:
    case LANGUAGE_NO_BOUNDARY:
        for (uint32_t i = t->first; i <= t->end; i++) {
            bool at_boundary = is_word(t, i) != (i > t->first && is_word(t, i - 1));
            if (at_boundary == (a->kind == LANGUAGE_BOUNDARY)) to |= from & 1u << i;
        }
        return to;
    case LANGUAGE_AHEAD:
    case LANGUAGE_NOT_AHEAD:
        for (uint32_t i = t->first; i <= t->end; i++) {
            uint32_t here = from & 1u << i;
            if ((reach(a->parts[0], t, here) != 0) == (a->kind == LANGUAGE_AHEAD)) to |= here;
        }
        return to;
    default:
        /* these look at nothing around the string that they match */
        for (uint32_t i = t->first; i <= t->end; i++) {
            for (uint32_t j = i; (from >> i & 1) && j <= t->end; j++) {
                struct text part = *t;
                part.first = i;
                part.end = j;
                bool in = reach(a->parts[0], &part, 1u << i) >> j & 1;
                if (a->kind == LANGUAGE_INTERSECT) in = in && (reach(a->parts[1], &part, 1u << i) >> j & 1);
                if (in != (a->kind == LANGUAGE_COMPLEMENT)) to |= 1u << j;
            }
        }
        return to;
    }
}

/* ---- the grammar ------------------------------------------------------------------------------------------------- */

static void check_grammar(struct languages *all, struct error *err, const struct language *a, enum language_form form,
                          const char *s, size_t n, bool wanted) {
    struct grammar *g = NULL;
    struct recognizer *r = NULL;
    struct position p;
    if (make_language(&g, all, a, form, err) != PLUMB_OK) {
        require(err->status == PLUMB_ERROR_UNSUPPORTED || (err->status == PLUMB_ERROR_ARGUMENT && !wanted),
                "a language with strings has no grammar");
    } else {
        require(recognizer_create(&r, g, err) == PLUMB_OK && position_init(&p, r) == PLUMB_OK, "no recognizer");
        uint32_t state = position_state(&p);
        bool ok = true;
        for (size_t i = 0; ok && i < n; i++) ok = recognizer_step(r, state, (uint8_t)s[i], &state) == PLUMB_OK;
        require(!ok || state_has(r, state, STATE_MAY_END) == wanted, "the grammar is another language");
        position_free(&p);
        recognizer_free(r);
        grammar_free(g);
    }
}

/* A text as JSON.stringify writes it between quotes. */
static size_t json_string(char *out, const char *s, size_t n) {
    static const char forms[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        const char *found = NULL;
        for (const char *c = forms; *c; c += 2) found = *c == s[i] ? c : found;
        if (found) length += (size_t)sprintf(out + length, "\\%c", found[1]);
        else if ((uint8_t)s[i] < 0x20) length += (size_t)sprintf(out + length, "\\u%04x", (unsigned)s[i]);
        else out[length++] = s[i];
    }
    return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > 4096) return 0;
    const char *regex[2] = {(const char *)data + 1, NULL}, *end = (const char *)data + size;
    const char *zero = memchr(regex[0], 0, size - 1), *text = end;
    size_t length[2] = {(size_t)((zero ? zero : end) - regex[0]), 0};
    if (zero) {
        regex[1] = zero + 1;
        zero = memchr(regex[1], 0, (size_t)(end - regex[1]));
        length[1] = (size_t)((zero ? zero : end) - regex[1]);
        if (zero) text = zero + 1;
    }
    struct error err = {0};
    struct languages *all = languages_create(&err);
    require(all != NULL, "no memory");
    const struct language *parts[2], *a;
    for (int i = 0; i < 2; i++) {
        enum regex_match match = data[0] >> i & 1 ? REGEX_SEARCH : REGEX_WHOLE;
        parts[i] = regex[i] ? language_regex(all, regex[i], length[i], match) : language_any(all);
    }
    switch (data[0] >> 2 & 7) {
    case 0: a = language_intersect(all, parts[0], parts[1]); break;
    case 1: a = language_union(all, parts[0], parts[1]); break;
    case 2: a = language_minus(all, parts[0], parts[1]); break;
    case 3: a = language_concat(all, parts[0], parts[1]); break;
    case 4: a = language_repeat(all, parts[0], data[0] >> 5, LANGUAGE_UNBOUNDED); break;
    case 5: a = language_complement(all, parts[0]); break;
    default: a = parts[0];
    }
    /* The text is made of whole characters, without surrogates. */
    struct text t = {.first = 0};
    char utf8[4 * MAX_CHARS], json[6 * 4 * MAX_CHARS + 1];
    size_t n = 0;
    for (const char *at = text; at < end && t.end < MAX_CHARS;) {
        uint32_t cp;
        at += unicode_decode(at, (size_t)(end - at), &cp);
        if (cp == 0 || (cp >= 0xd800 && cp < 0xe000)) continue;
        t.chars[t.end++] = cp;
        n += unicode_encode(cp, utf8 + n);
    }
    bool has;
    if (!a || language_has(all, a, utf8, n, &has) != PLUMB_OK) {
        require((err.status == PLUMB_ERROR_ARGUMENT || err.status == PLUMB_ERROR_UNSUPPORTED) && err.message[0] != 0,
                "a failure without a sentence");
    } else {
        n_step = 0;
        bool found = reach(a, &t, 1) >> t.end & 1;
        require(n_step > MAX_STEPS || found == has, "the automaton is another language");
        check_grammar(all, &err, a, LANGUAGE_PLAIN, utf8, n, has);
        check_grammar(all, &err, a, LANGUAGE_JSON, json, json_string(json, utf8, n), has);
    }
    languages_free(all);
    return 0;
}

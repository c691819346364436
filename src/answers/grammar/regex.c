/* A parser of ECMA-262 regular expressions: text -> the tree of a language.
 *
 * It reads the syntax of the flag u, and also what only the syntax without it allows and what can mean one thing only:
 * `\-` and `\@`, a `-` beside a class escape, `{`, `}` and `]` on their own.
 */
#include "grammar/emoji.h"
#include "grammar/language.h"
#include "base/unicode.h"

#include <stdio.h>
#include <stdlib.h>

struct parser {
    struct languages *all;
    const char *text;
    size_t n, at;
    uint32_t depth;
    const struct language *(*named)(struct languages *all, const char *name, size_t n);
};

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Refuses the expression at the character that begins at byte `at`.  Returns NULL. */
static const void *refuse_at(struct parser *p, size_t at, plumb_status status, const char *what) {
    size_t character = 1;
    uint32_t cp;
    for (size_t i = 0; i < at && i < p->n; character++) i += unicode_decode(p->text + i, p->n - i, &cp);
    struct shown shown;
    error_set(p->all->err, status, "character %zu of the regular expression \"%s\": %s", character,
              show_bytes(&shown, p->text, p->n), what);
    return NULL;
}

static const void *too_large(struct parser *p, size_t at, uint64_t n_state) {
    char what[100];
    snprintf(what, sizeof what, "its automaton has %llu states or more; at most %d are supported",
             (unsigned long long)n_state, LANGUAGE_MAX_STATES);
    return refuse_at(p, at, PLUMB_ERROR_UNSUPPORTED, what);
}

static const void *malformed(struct parser *p, size_t at, const char *what) {
    return refuse_at(p, at, PLUMB_ERROR_ARGUMENT, what);
}

static const void *unsupported(struct parser *p, size_t at, const char *what) {
    return refuse_at(p, at, PLUMB_ERROR_UNSUPPORTED, what);
}

static bool more(const struct parser *p) { return p->at < p->n; }
static bool next_is(const struct parser *p, const char *word) {
    size_t n = strlen(word);
    return n <= p->n - p->at && memcmp(p->text + p->at, word, n) == 0;
}
static bool skip(struct parser *p, const char *word) {
    if (!next_is(p, word)) return false;
    p->at += strlen(word);
    return true;
}
static uint32_t read_char(struct parser *p) {
    uint32_t cp;
    p->at += unicode_decode(p->text + p->at, p->n - p->at, &cp);
    return cp;
}

/* Reads exactly n hexadecimal digits; leaves the place unchanged if there are fewer. */
static bool read_hex(struct parser *p, uint32_t n, uint32_t *value) {
    *value = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t digit = p->at + i < p->n ? digit_value(p->text[p->at + i]) : 16;
        if (digit > 15) return false;
        *value = *value << 4 | digit;
    }
    p->at += n;
    return true;
}

/* Reads digits as an integer, INT32_MAX if it is larger.  Returns false if there are none. */
static bool read_count(struct parser *p, int64_t *value) {
    size_t begin = p->at;
    for (*value = 0; more(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++) {
        *value = *value * 10 + (p->text[p->at] - '0');
        if (*value > INT32_MAX) *value = INT32_MAX;
    }
    return p->at > begin;
}

/* ---- escapes and classes ---------------------------------------------------------------------------------------- */

/* \uXXXX, of which two may be the surrogates of one character, or \u{X...}, after the u. */
static bool read_unicode(struct parser *p, size_t begin, uint32_t *cp) {
    uint32_t low;
    if (skip(p, "{")) {
        size_t digits = p->at;
        for (*cp = 0; read_hex(p, 1, &low);) *cp = *cp > 0x10ffff ? *cp : *cp << 4 | low;
        if (p->at > digits && *cp <= 0x10ffff && skip(p, "}")) return true;
    } else if (read_hex(p, 4, cp)) {
        size_t at = p->at;
        if (*cp < 0xd800 || *cp > 0xdbff) return true;
        if (skip(p, "\\u") && read_hex(p, 4, &low) && low >= 0xdc00 && low <= 0xdfff) {
            *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
        } else {
            p->at = at;
        }
        return true;
    }
    malformed(p, begin, "\\u is followed by four hexadecimal digits or by a code point in braces");
    return false;
}

/* Reads the escape of one character, after its backslash. */
static bool read_escape(struct parser *p, bool in_class, uint32_t *cp) {
    size_t begin = p->at - 1;
    if (!more(p)) {
        malformed(p, begin, "a backslash ends it");
        return false;
    }
    *cp = read_char(p);
    switch (*cp) {
    case 't': *cp = '\t'; return true;
    case 'n': *cp = '\n'; return true;
    case 'v': *cp = '\v'; return true;
    case 'f': *cp = '\f'; return true;
    case 'r': *cp = '\r'; return true;
    case 'u': return read_unicode(p, begin, cp);
    case 'x':
        if (read_hex(p, 2, cp)) return true;
        malformed(p, begin, "\\x is followed by two hexadecimal digits");
        return false;
    case 'c':
        if (more(p) && (p->text[p->at] | 0x20) >= 'a' && (p->text[p->at] | 0x20) <= 'z') {
            *cp = (uint32_t)p->text[p->at++] & 31;
            return true;
        }
        malformed(p, begin, "\\c is followed by a letter");
        return false;
    case 'b':
        if (!in_class) break;
        *cp = '\b';
        return true;
    case 'k':
        unsupported(p, begin, "a back-reference is not regular");
        return false;
    default:
        if (*cp == '0' && !(more(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9')) {
            *cp = 0;
            return true;
        }
        if (*cp >= '0' && *cp <= '9') {
            if (*cp == '0' || in_class) malformed(p, begin, "an octal escape");
            else unsupported(p, begin, "a back-reference is not regular");
            return false;
        }
        if (*cp >= 0x80 || unicode_class_of(*cp) != UNICODE_LETTER) return true;
    }
    malformed(p, begin, "an unknown escape");
    return false;
}

/* The properties of \p{}: classes of unicode.h, and spans of emoji.h. */
enum { SEPARATORS = 100, ANY, ASCII };   /* beside the classes; separators are White_Space without controls */
#define SPANS(table) (table), sizeof (table) / sizeof *(table)
static const struct property {
    const char *name, *long_name;
    uint32_t class;
    const uint32_t *spans;   /* NULL: those of the class */
    size_t n_spans;
} properties[] = {
    {"L", "Letter", UNICODE_LETTER, NULL, 0}, {"N", "Number", UNICODE_NUMBER, NULL, 0},
    {"M", "Mark", UNICODE_MARK, NULL, 0}, {"M", "Combining_Mark", UNICODE_MARK, NULL, 0},
    {"P", "Punctuation", UNICODE_PUNCTUATION, NULL, 0}, {"P", "punct", UNICODE_PUNCTUATION, NULL, 0},
    {"S", "Symbol", UNICODE_SYMBOL, NULL, 0}, {"Z", "Separator", SEPARATORS, NULL, 0}, {"Any", "Any", ANY, NULL, 0},
    {"ASCII", "ASCII", ASCII, NULL, 0}, {"EComp", "Emoji_Component", 0, SPANS(emoji_component)},
    {"ExtPict", "Extended_Pictographic", 0, SPANS(extended_pictographic)},
    {"RI", "Regional_Indicator", 0, SPANS(regional_indicator)}
};

static void add_spaces(struct spans *s, uint32_t from) {
    for (uint32_t cp = from; cp <= 0x3000; cp++) {
        if (unicode_is_space(cp) && cp != 0x85) spans_add(s, cp, cp);
    }
}

static const struct charset *property_set(struct parser *p, const struct property *row, bool negated) {
    struct spans s = {0};
    for (size_t i = 0; i < row->n_spans; i++) {
        spans_add(&s, row->spans[i] >> 8, (row->spans[i] >> 8) + (row->spans[i] & 0xff));
    }
    for (uint32_t i = 0; i < unicode_ranges_count && !row->spans; i++) {
        if (unicode_range(i).class != row->class) continue;
        uint32_t last = i + 1 < unicode_ranges_count ? unicode_range(i + 1).first - 1 : 0x10ffff;
        spans_add(&s, unicode_range(i).first, last);
    }
    if (row->class == SEPARATORS) add_spaces(&s, ' ');
    if (row->class == ANY || row->class == ASCII) spans_add(&s, 0, row->class == ANY ? 0x10ffff : 0x7f);
    return spans_set(p->all, &s, negated);
}

static const struct charset *read_property(struct parser *p, size_t begin, bool negated) {
    size_t name = p->at + 1, end = name;
    while (end < p->n && p->text[end] != '}') end++;
    if (!next_is(p, "{") || end == p->n) {
        return malformed(p, begin, "\\p is followed by the name of a property in braces");
    }
    p->at = name;
    if (!skip(p, "General_Category=")) skip(p, "gc=");
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        const struct property *row = &properties[i];
        const char *names[] = {row->name, row->long_name};
        for (int j = 0; j < 2; j++) {
            if (end - p->at != strlen(names[j]) || !next_is(p, names[j])) continue;
            p->at = end + 1;
            return property_set(p, row, negated);
        }
    }
    return unsupported(p, begin, "this property of \\p{} is not supported; L, M, N, P, S, Z, Any, ASCII, "
                       "Emoji_Component, Extended_Pictographic and Regional_Indicator are");
}

/* Reads \d \D \s \S \w \W \p \P, of which the backslash is read.  Leaves *set NULL if it is another escape.  Returns
 * false on failure. */
static bool read_class_escape(struct parser *p, const struct charset **set) {
    struct spans s = {0};
    char c = more(p) ? p->text[p->at] : 0;
    *set = NULL;
    if (c == 0 || !strchr("dDsSwWpP", c)) return true;
    bool negated = (c & 0x20) == 0;
    p->at++;
    if (c == 'p' || c == 'P') return (*set = read_property(p, p->at - 2, negated)) != NULL;
    if (c == 'd' || c == 'D') {
        spans_add(&s, '0', '9');
    } else if (c == 's' || c == 'S') {
        add_spaces(&s, '\t');
        spans_add(&s, 0xfeff, 0xfeff);
    } else {
        spans_add_set(&s, charset_word(p->all));
    }
    return (*set = spans_set(p->all, &s, negated)) != NULL;
}

/* Reads one member of a class: a character, or the set of a class escape. */
static bool read_member(struct parser *p, const struct charset **set, uint32_t *cp) {
    *set = NULL;
    if (!more(p)) return true;   /* the caller finds that ] is missing */
    if (!skip(p, "\\")) {
        *cp = read_char(p);
        return true;
    }
    return read_class_escape(p, set) && (*set || read_escape(p, true, cp));
}

/* Reads a class after its [. */
static const struct charset *read_class(struct parser *p) {
    size_t begin = p->at - 1;
    struct spans s = {0};
    bool negated = skip(p, "^");
    while (more(p) && !next_is(p, "]")) {
        const struct charset *set, *last_set;
        uint32_t first = 0, last;
        size_t at = p->at;
        if (!read_member(p, &set, &first)) goto failed;
        last = first;
        if (set) spans_add_set(&s, set);
        if (next_is(p, "-") && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
            size_t dash = p->at++;
            if (!read_member(p, &last_set, &last)) goto failed;
            if (set || last_set) {   /* not a range: the "-" is a member */
                spans_add(&s, '-', '-');
                p->at = dash + 1;
                last = first;
            } else if (last < first) {
                malformed(p, at, "the range ends before it begins");
                goto failed;
            }
        }
        if (!set) spans_add(&s, first, last);
    }
    if (skip(p, "]")) return spans_set(p->all, &s, negated);
    malformed(p, begin, "the class has no ]");
failed:
    free(s.data);
    return NULL;
}

/* ---- the tree --------------------------------------------------------------------------------------------------- */

/* Nodes, while their number is not yet known. */
struct parts {
    const struct language **data;
    size_t n, cap;
};

static bool add_part(struct parser *p, struct parts *parts, const struct language *a) {
    if (!a) return false;
    if (!ARRAY_GROW(parts->data, parts->n, &parts->cap)) return languages_no_memory(p->all) == PLUMB_OK;
    parts->data[parts->n++] = a;
    return true;
}

static const struct language *join_parts(struct parser *p, struct parts *parts, enum language_kind kind, bool ok) {
    const struct language *a = NULL;
    if (ok) a = parts->n == 1 ? parts->data[0] : language_node(p->all, kind, parts->data, (uint32_t)parts->n);
    free(parts->data);
    return a;
}

static const struct language *read_union(struct parser *p);

/* Reads a group after its ( up to its ).  An assertion cannot be repeated. */
static const struct language *read_group(struct parser *p, bool *repeatable) {
    size_t begin = p->at - 1;
    enum language_kind kind = LANGUAGE_CONCAT;
    if (skip(p, "?")) {
        if (skip(p, "=")) kind = LANGUAGE_AHEAD;
        else if (skip(p, "!")) kind = LANGUAGE_NOT_AHEAD;
        else if (next_is(p, "<=") || next_is(p, "<!")) return unsupported(p, begin, "lookbehind is not supported");
        else if (p->named && skip(p, "&")) {
            size_t name = p->at;
            while (p->text[p->at++] != ')') {}
            return p->named(p->all, p->text + name, p->at - 1 - name);
        } else if (skip(p, "<")) {
            size_t name = p->at;
            while (more(p) && p->text[p->at] != '>' && p->text[p->at] != ')') p->at++;
            if (p->at == name || !skip(p, ">")) return malformed(p, begin, "the name of a group ends with >");
        } else if (!skip(p, ":")) {
            return unsupported(p, begin, "this kind of group is not supported");
        }
    }
    if (++p->depth > LANGUAGE_MAX_DEPTH) return unsupported(p, begin, "the groups are nested too deeply");
    const struct language *a = read_union(p);
    p->depth--;
    if (!a) return NULL;
    if (!skip(p, ")")) return malformed(p, begin, "the group has no )");
    if (kind == LANGUAGE_CONCAT) return a;
    *repeatable = false;
    return language_node(p->all, kind, &a, 1);
}

/* Reads *, +, ?, {m}, {m,} or {m,n}, and the ? of a lazy one, which is the same language.  Returns false if there is
 * none. */
static bool read_quantifier(struct parser *p, int64_t *least, int64_t *most) {
    size_t begin = p->at;
    *least = 0;
    *most = LANGUAGE_UNBOUNDED;
    if (skip(p, "+")) {
        *least = 1;
    } else if (skip(p, "?")) {
        *most = 1;
    } else if (skip(p, "{")) {
        bool ok = read_count(p, least);
        *most = *least;
        if (ok && skip(p, ",") && !next_is(p, "}")) ok = read_count(p, most);
        else if (ok && p->text[p->at - 1] == ',') *most = LANGUAGE_UNBOUNDED;
        if (!ok || !skip(p, "}")) {
            p->at = begin;   /* a brace on its own */
            return false;
        }
    } else if (!skip(p, "*")) {
        return false;
    }
    skip(p, "?");
    return true;
}

/* Reads an atom or an assertion. */
static const struct language *read_atom(struct parser *p, bool *repeatable) {
    struct languages *all = p->all;
    size_t begin = p->at;
    const struct charset *set = NULL;
    uint32_t cp = read_char(p);
    enum language_kind assertion = LANGUAGE_STRING;
    switch (cp) {
    case '(': return read_group(p, repeatable);
    case '[': return language_set(all, read_class(p));
    case '^': assertion = LANGUAGE_START; break;
    case '$': assertion = LANGUAGE_END; break;
    case '*': case '+': case '?': return malformed(p, begin, "there is nothing to repeat");
    case '.': {
        struct spans s = {0};
        spans_add(&s, '\n', '\n');
        spans_add(&s, '\r', '\r');
        spans_add(&s, 0x2028, 0x2029);
        return language_set(all, spans_set(all, &s, true));
    }
    case '\\':
        if (skip(p, "b")) assertion = LANGUAGE_BOUNDARY;
        else if (skip(p, "B")) assertion = LANGUAGE_NO_BOUNDARY;
        else if (!read_class_escape(p, &set) || (!set && !read_escape(p, false, &cp))) return NULL;
        break;
    default: break;
    }
    if (assertion != LANGUAGE_STRING) {
        *repeatable = false;
        return language_node(all, assertion, NULL, 0);
    }
    if (set) return language_set(all, set);
    if (cp >= 0xd800 && cp < 0xe000) return language_none(all);   /* half of a character */
    cp = char_index(cp);
    return language_chars(all, &cp, 1);
}

static const struct language *read_sequence(struct parser *p) {
    struct parts parts = {0};
    bool ok = true;
    while (ok && more(p) && !next_is(p, "|") && !next_is(p, ")")) {
        bool repeatable = true;
        size_t begin = p->at;
        const struct language *a = read_atom(p, &repeatable);
        int64_t least, most;
        size_t quantifier = p->at;
        if (a && read_quantifier(p, &least, &most)) {
            bool reversed = most != LANGUAGE_UNBOUNDED && most < least;
            if (!repeatable) a = malformed(p, quantifier, "an assertion cannot be repeated");
            else if (reversed) a = malformed(p, quantifier, "the most is less than the least");
            else a = language_repeat(p->all, a, least, most);
            if (a && a->n_state > LANGUAGE_MAX_STATES) a = too_large(p, begin, a->n_state);
        }
        ok = add_part(p, &parts, a);
    }
    return join_parts(p, &parts, LANGUAGE_CONCAT, ok);
}

static const struct language *read_union(struct parser *p) {
    struct parts parts = {0};
    struct spans chars = {0};
    bool ok, only_chars = true;
    do {
        const struct language *a = read_sequence(p);
        ok = add_part(p, &parts, a);
        if (ok && a->kind == LANGUAGE_SET) spans_add_set(&chars, a->set);
        else if (!ok || a->kind != LANGUAGE_STRING || a->n != 1) only_chars = false;
        else spans_add(&chars, char_at(a->chars[0]), char_at(a->chars[0]));
    } while (ok && skip(p, "|"));
    if (ok && only_chars && parts.n > 1) {   /* a|[bc] is [abc] */
        free(parts.data);
        return language_set(p->all, spans_set(p->all, &chars, false));
    }
    free(chars.data);
    return join_parts(p, &parts, LANGUAGE_UNION, ok);
}

/* ---- matches ---------------------------------------------------------------------------------------------------- */

/* The number of the parts of a lookahead without $ at its end. */
static uint32_t parts_ahead(const struct language *a) {
    uint32_t n = a->kind == LANGUAGE_CONCAT ? a->n : 1;
    while (n > 0 && (a->kind == LANGUAGE_CONCAT ? a->parts[n - 1] : a)->kind == LANGUAGE_END) n--;
    return n;
}

/* Whether it is a lookahead that has no other assertions than $ at its end. */
static bool is_lookahead(const struct language *a) {
    if (a->kind != LANGUAGE_AHEAD && a->kind != LANGUAGE_NOT_AHEAD) return false;
    const struct language *inner = a->parts[0];
    const struct language *const *parts = inner->kind == LANGUAGE_CONCAT ? inner->parts : &inner;
    for (uint32_t i = parts_ahead(inner); i-- > 0;) {
        if (parts[i]->asserts) return false;
    }
    return true;
}

/* All strings that match what is in a lookahead at their start. */
static const struct language *strings_ahead(struct languages *all, const struct language *a) {
    const struct language *const *parts = a->kind == LANGUAGE_CONCAT ? a->parts : &a;
    const uint32_t n = parts_ahead(a), n_all = a->kind == LANGUAGE_CONCAT ? a->n : 1;
    const struct language *inner = n == 1 ? parts[0] : language_node(all, LANGUAGE_CONCAT, parts, n);
    return n < n_all ? inner : language_concat(all, inner, language_any(all));
}

/* The strings with a match of an alternative, if only its ends have assertions.  *searches: it may begin anywhere. */
static const struct language *match_alternative(struct languages *all, const struct language *a, enum regex_match match,
                                                bool *searches) {
    enum { MAX_LOOKAHEADS = 8 };
    uint32_t first = 0, end = 1;
    const struct language *const *parts = &a;
    if (a->kind == LANGUAGE_CONCAT) {
        parts = a->parts;
        end = a->n;
    }
    bool starts = match == REGEX_WHOLE, ends = match == REGEX_WHOLE;
    for (; first < end && parts[first]->kind == LANGUAGE_START; first++) starts = true;
    for (; first < end && parts[end - 1]->kind == LANGUAGE_END; end--) ends = true;
    /* A lookahead at the start is an intersection, which may be too large by itself, but not together with a format or
     * counted.  Many of them are left to the automaton. */
    const uint32_t begin = first;
    while (starts && first < end && first - begin < MAX_LOOKAHEADS && is_lookahead(parts[first])) first++;
    const struct language *inner = end - first == 1 ? parts[first] :
                                   language_node(all, LANGUAGE_CONCAT, parts + first, end - first);
    *searches = *searches || !starts;
    if (!starts) inner = language_concat(all, language_any(all), inner);
    if (!ends) inner = language_concat(all, inner, language_any(all));
    if (first > begin && inner && inner->asserts) inner = language_automaton(all, inner);
    for (uint32_t i = begin; i < first; i++) {
        const struct language *ahead = strings_ahead(all, parts[i]->parts[0]);
        if (parts[i]->kind == LANGUAGE_NOT_AHEAD) ahead = language_complement(all, ahead);
        inner = language_intersect(all, ahead, inner);
    }
    return inner;
}

/* The strings with a match of a tree. */
static const struct language *matches_of(struct languages *all, const struct language *tree, enum regex_match match) {
    enum { MAX_SEARCH_STATES = 200 };   /* of an automaton that is preferred to a concatenation with any string */
    const struct language *any = language_any(all), *whole, *alternatives;
    bool searches = false, is_union = tree->kind == LANGUAGE_UNION && tree->n > 0;
    uint32_t n_part = is_union ? tree->n : 1;
    const struct language *const *parts = is_union ? tree->parts : &tree;
    const struct language **matches = languages_temporary(all, n_part, sizeof *matches);
    if (!matches) return NULL;
    for (uint32_t i = 0; i < n_part; i++) matches[i] = match_alternative(all, parts[i], match, &searches);
    alternatives = n_part == 1 ? matches[0] : language_node(all, LANGUAGE_UNION, matches, n_part);
    free(matches);
    if (!alternatives) return NULL;
    if (alternatives->asserts) {   /* not only at the ends */
        whole = match == REGEX_SEARCH ? language_concat(all, any, language_concat(all, tree, any)) : tree;
        whole = language_automaton(all, whole);
        return whole && language_dfa(all, whole) ? whole : NULL;
    }
    if (!searches) return alternatives;
    /* Where a match may begin anywhere, a small automaton is better than a grammar that reads most strings in many
     * ways. */
    plumb_status before = all->err->status;
    whole = language_automaton(all, alternatives);
    const struct dfa *dfa = whole ? language_dfa(all, whole) : NULL;
    if (dfa && dfa->n_state <= MAX_SEARCH_STATES) return whole;
    if (!dfa && all->err->status == PLUMB_ERROR_MEMORY) return NULL;
    all->err->status = before;
    return alternatives;
}

const struct language *regex_language(struct languages *all, const char *regex, size_t n, enum regex_match match,
                                      const struct language *(*named)(struct languages *all, const char *name,
                                                                      size_t n)) {
    struct parser p = {.all = all, .text = regex, .n = n, .named = named};
    const struct language *tree = read_union(&p);
    if (!tree || !language_any(all)) return NULL;
    if (more(&p)) return malformed(&p, p.at, "there is no ( for this )");
    if (tree->asserts && tree->n_state > LANGUAGE_MAX_STATES) return too_large(&p, 0, tree->n_state);
    return matches_of(all, tree, match);
}

const struct language *language_regex(struct languages *all, const char *regex, size_t n, enum regex_match match) {
    return regex_language(all, regex, n, match, NULL);
}

/* Languages -> GBNF.
 *
 * A tree is written in its own shape.  Of an automaton a state is written where it is used, if it is used once, and
 * otherwise as a rule.  No rule is left recursive, since all that stands before a reference reads a character, and
 * nothing that can be empty is repeated.
 */
#include "grammar/language.h"
#include "base/unicode.h"

#include <stdlib.h>

/* An automaton that is written.  rules[s]: the number of the rule of state s, NOT_YET if it has none so far, INLINE if
 * it is written where it is used, NAMED if it is the rule that the caller named. */
enum { NOT_YET = 0, INLINE = -1, NAMED = -2 };
struct written {
    const struct dfa *dfa;
    const uint32_t *behind;   /* if characters are counted: how many are behind a state at least; NULL: they are not */
    int32_t *rules;
};

/* Strings in the order of their characters, all with the same first `at` characters. */
struct strings {
    const struct language *const *data;   /* NULL: none */
    uint32_t n, at;
};

/* A rule that is referred to: the state of an automaton, a set of characters, or the rests of strings. */
struct pending {
    uint32_t automaton, state;
    const struct charset *set;   /* NULL: the strings, or the state */
    struct strings strings;
};

struct writer {
    struct languages *all;
    struct grammar_text *out;
    enum language_form form;
    const char *name;
    struct pending *pending;     /* rule i + 1 is pending[i] */
    size_t n_pending, cap_pending;
    struct written *automata;
    size_t n_automaton, cap_automaton;
    bool in_literal;             /* the text ends inside of "..." */
    bool spaced;                 /* the next symbol needs no space */
    bool failed;
};

/* What an expression stands in: an alternative needs parentheses in a sequence, a sequence if it is repeated. */
enum place { IN_RULE, IN_SEQUENCE, IN_REPEAT };

/* ---- symbols ----------------------------------------------------------------------------------------------------- */

static void end_literal(struct writer *w) {
    if (w->in_literal) grammar_text_add(w->out, "\"", 1);
    w->in_literal = false;
}

/* Begins a symbol, with a space before it where one is needed. */
static void begin_symbol(struct writer *w) {
    end_literal(w);
    if (!w->spaced) grammar_text_add(w->out, " ", 1);
    w->spaced = false;
}

static void open_group(struct writer *w) {
    begin_symbol(w);
    grammar_text_add(w->out, "(", 1);
    w->spaced = true;
}

static void close_group(struct writer *w) {
    end_literal(w);
    grammar_text_add(w->out, ")", 1);
    w->spaced = false;
}

static void alternative(struct writer *w) {
    begin_symbol(w);
    grammar_text_add(w->out, "|", 1);
}

static void put_reference(struct writer *w, int32_t rule) {
    begin_symbol(w);
    if (rule == NAMED) grammar_text_print(w->out, "%s", w->name);
    else grammar_text_print(w->out, "%s-%d", w->name, (int)rule);
}

/* Appends a code point in a literal or in a class. */
static void put_escaped(struct writer *w, uint32_t cp, bool in_class) {
    const char *short_form = cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : cp == '\t' ? "\\t" : cp == '\\' ? "\\\\" :
        cp == '"' && !in_class ? "\\\"" : cp == '[' && in_class ? "\\[" : cp == ']' && in_class ? "\\]" : NULL;
    char utf8[4];
    if (short_form) grammar_text_add(w->out, short_form, 2);
    else if (cp < 0x20 || cp == 0x7f || (in_class && (cp == '-' || cp == '^'))) {
        grammar_text_print(w->out, "\\x%02X", (unsigned)cp);
    } else if (cp > 0x7f && in_class) {
        grammar_text_print(w->out, cp > 0xffff ? "\\U%08X" : "\\u%04X", (unsigned)cp);
    } else {
        grammar_text_add(w->out, utf8, unicode_encode(cp, utf8));
    }
}

/* Appends a character of the text to a literal, which may have been begun. */
static void put_literal(struct writer *w, uint32_t cp) {
    if (!w->in_literal) {
        begin_symbol(w);
        grammar_text_add(w->out, "\"", 1);
        w->in_literal = true;
    }
    put_escaped(w, cp, false);
}

/* The letter after the backslash with which JSON.stringify escapes a character, 'u' for \u00xx, 0 if it does not. */
static char json_escape(uint32_t cp) {
    static const char letters[] = "btn.fr";   /* of U+0008 to U+000D */
    if (cp == '"' || cp == '\\') return (char)cp;
    if (cp >= 0x20) return 0;
    return cp >= 8 && cp <= 13 && cp != 11 ? letters[cp - 8] : 'u';
}

static void put_char(struct writer *w, uint32_t index) {
    static const char hex[] = "0123456789abcdef";
    uint32_t cp = char_at(index);
    char escape = w->form == LANGUAGE_JSON ? json_escape(cp) : 0;
    if (!escape) {
        put_literal(w, cp);
        return;
    }
    put_literal(w, '\\');
    put_literal(w, (uint32_t)escape);
    if (escape != 'u') return;
    put_literal(w, '0');
    put_literal(w, '0');
    put_literal(w, (uint32_t)hex[cp >> 4]);
    put_literal(w, (uint32_t)hex[cp & 15]);
}

static void put_spans(struct writer *w, const struct charset *set) {
    for (uint32_t i = 0; i < set->n; i++) {
        uint32_t first = set->spans[i].first, last = set->spans[i].last;
        if (first < 0xd800 && last >= 0xd800) {   /* around the surrogates */
            put_escaped(w, first, true);
            grammar_text_add(w->out, "-\\uD7FF", 7);
            first = 0xd800;
        }
        put_escaped(w, char_at(first), true);
        if (last == first) continue;
        if (last > first + 1) grammar_text_add(w->out, "-", 1);
        put_escaped(w, char_at(last), true);
    }
}

/* Appends [...], or [^...] where that is shorter, for a set of characters that are written as they are. */
static void put_class(struct writer *w, const struct charset *set) {
    if (set->n == 1 && set->spans[0].first == set->spans[0].last) {
        put_literal(w, char_at(set->spans[0].first));
        return;
    }
    struct spans others = {0};
    spans_add_set(&others, set);
    const struct charset *complement = spans_set(w->all, &others, true);
    if (!complement) {
        w->failed = true;
        return;
    }
    begin_symbol(w);
    if (complement->n == 0) {
        grammar_text_add(w->out, ".", 1);
        return;
    }
    /* everything from some character on counts as one span more, since it is around the surrogates */
    bool negated = complement->n < set->n + (set->spans[set->n - 1].last == N_CHAR - 1);
    grammar_text_add(w->out, negated ? "[^" : "[", negated ? 2 : 1);
    put_spans(w, negated ? complement : set);
    grammar_text_add(w->out, "]", 1);
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

/* Splits a set into what JSON writes as it is, and one bit for each character below U+0020 and for " and \ that it
 * escapes. */
enum { ESCAPE_QUOTE = 32, ESCAPE_BACKSLASH };
static const struct charset *split_set(struct writer *w, const struct charset *set, uint64_t *escaped) {
    struct spans raw = {0};
    *escaped = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        uint32_t first = set->spans[i].first, last = set->spans[i].last;
        for (; first < 0x20 && first <= last; first++) *escaped |= (uint64_t)1 << first;
        const uint32_t cuts[] = {'"', '\\'};
        for (int j = 0; j < 2; j++) {
            if (first > cuts[j] || last < cuts[j]) continue;
            *escaped |= (uint64_t)1 << (ESCAPE_QUOTE + j);
            if (first < cuts[j]) spans_add(&raw, first, cuts[j] - 1);
            first = cuts[j] + 1;
        }
        if (first <= last) spans_add(&raw, char_at(first), char_at(last));
    }
    return spans_set(w->all, &raw, false);
}

/* Appends an alternative: a literal and one of the given ASCII characters. */
static void put_escapes(struct writer *w, const char *literal, struct spans *chars, bool *first) {
    bool some = chars->n > 0;
    const struct charset *set = spans_set(w->all, chars, false);
    w->failed = w->failed || !set;
    if (!some || !set) return;
    if (!*first) alternative(w);
    *first = false;
    for (const char *c = literal; *c; c++) put_literal(w, (uint8_t)*c);
    put_class(w, set);
}

/* Appends the alternatives of a set whose characters are not all written as they are. */
static void put_alternatives(struct writer *w, const struct charset *set) {
    uint64_t escaped;
    const struct charset *raw = split_set(w, set, &escaped);
    if (!raw) {
        w->failed = true;
        return;
    }
    bool first = true;
    if (w->form == LANGUAGE_PLAIN) {
        raw = set;
        escaped = 0;
    }
    if (raw->n > 0) {
        put_class(w, raw);
        first = false;
    }
    struct spans letters = {0}, digits[2] = {{0}, {0}};
    if (escaped >> ESCAPE_QUOTE & 1) spans_add(&letters, '"', '"');
    if (escaped >> ESCAPE_BACKSLASH & 1) spans_add(&letters, '\\', '\\');
    for (uint32_t cp = 0; cp < 0x20; cp++) {
        if (!(escaped >> cp & 1)) continue;
        uint32_t letter = (uint8_t)json_escape(cp), digit = (uint8_t)"0123456789abcdef"[cp & 15];
        if (letter != 'u') spans_add(&letters, letter, letter);
        else spans_add(&digits[cp >> 4], digit, digit);
    }
    put_escapes(w, "\\", &letters, &first);
    put_escapes(w, "\\u000", &digits[0], &first);
    put_escapes(w, "\\u001", &digits[1], &first);
}

static int32_t add_pending(struct writer *w, struct pending pending) {
    struct pending *more = w->failed ? NULL : alloc_grow(w->pending, w->n_pending, &w->cap_pending, sizeof *more);
    if (!more) {
        if (!w->failed) languages_no_memory(w->all);
        w->failed = true;
        return 1;
    }
    w->pending = more;
    more[w->n_pending++] = pending;
    return (int32_t)w->n_pending;
}

static bool same_set(const struct charset *x, const struct charset *y) {
    return x->n == y->n && memcmp(x->spans, y->spans, x->n * sizeof *x->spans) == 0;
}

/* Whether nothing failed and the grammar is not too large. */
static bool has_room(struct writer *w) {
    if (w->out->n > LANGUAGE_MAX_TEXT && !w->failed) {
        error_set(w->all->err, PLUMB_ERROR_UNSUPPORTED, "up to here, the grammar takes more than %d MB",
                  LANGUAGE_MAX_TEXT >> 20);
        w->failed = true;
    }
    return !w->failed;
}

/* Appends a set as one symbol: a literal, a class, or the name of a rule. */
static void put_set(struct writer *w, const struct charset *set) {
    enum { MAX_INLINE = 16 };   /* spans */
    uint64_t escaped = 0;
    if (!has_room(w)) return;
    if (w->form == LANGUAGE_JSON && !split_set(w, set, &escaped)) {
        w->failed = true;
        return;
    }
    if (set->n == 1 && set->spans[0].first == set->spans[0].last) {
        put_char(w, set->spans[0].first);
    } else if (!escaped && set->n <= MAX_INLINE) {
        put_class(w, set);
    } else {
        size_t i = 0;
        while (i < w->n_pending && !(w->pending[i].set && same_set(w->pending[i].set, set))) i++;
        if (!languages_work(w->all, i)) w->failed = true;
        int32_t rule = i < w->n_pending ? (int32_t)i + 1 : add_pending(w, (struct pending){.set = set});
        put_reference(w, rule);
    }
}

/* ---- automata ---------------------------------------------------------------------------------------------------- */

/* The ways out of a state, without those that lead to the dead one. */
struct edges {
    struct edge { uint32_t to; const struct charset *set; } *data;
    uint32_t n;
    const struct charset *loop;   /* the way back to the state itself; NULL: none */
};

static struct edges edges_of(struct writer *w, const struct dfa *dfa, uint32_t state) {
    struct edges edges = {0};
    const uint32_t *next = dfa->next + (size_t)state * dfa->n_class;
    uint8_t *seen = languages_temporary(w->all, dfa->n_class, 1);
    edges.data = languages_temporary(w->all, dfa->n_class, sizeof *edges.data);
    w->failed = w->failed || !seen || !edges.data;
    if (seen) memset(seen, 0, dfa->n_class);
    for (uint32_t i = 0; i < dfa->n_interval && !w->failed; i++) {
        uint32_t class = dfa->class_of[i], to = next[class];
        if (seen[class] || to == dfa->dead) continue;
        struct spans spans = {0};
        for (uint32_t j = i; j < dfa->n_interval; j++) {
            if (next[dfa->class_of[j]] != to) continue;
            seen[dfa->class_of[j]] = 1;
            uint32_t last = j + 1 < dfa->n_interval ? dfa->starts[j + 1] - 1 : N_CHAR - 1;
            spans_add(&spans, char_at(dfa->starts[j]), char_at(last));
        }
        const struct charset *set = spans_set(w->all, &spans, false);
        if (!set || !languages_work(w->all, dfa->n_interval)) w->failed = true;
        else if (to == state) edges.loop = set;
        else edges.data[edges.n++] = (struct edge){to, set};
    }
    free(seen);
    return edges;
}

/* Appends a set that leads to a state, perhaps repeated, with a mark before each character if they are counted. */
static void put_step(struct writer *w, uint32_t automaton, struct edge edge, const char *repeated) {
    const uint32_t *behind = w->automata[automaton].behind;
    if (*repeated) end_literal(w);
    if (behind) {
        if (*repeated) open_group(w);
        begin_symbol(w);
        if (behind[edge.to] > 0) grammar_text_print(w->out, "%%%u", (unsigned)behind[edge.to]);
        else grammar_text_add(w->out, "%", 1);
    }
    put_set(w, edge.set);
    if (behind && *repeated) close_group(w);
    if (*repeated) {
        end_literal(w);
        grammar_text_add(w->out, repeated, strlen(repeated));
    }
}

/* Decides which states are rules: the start, those with two ways in, and some so that expressions do not get deep. */
static bool choose_rules(struct writer *w, const struct dfa *dfa, int32_t *rules) {
    enum { MAX_INLINE = 8 };
    uint32_t n = dfa->n_state, k = dfa->n_class;
    uint32_t *stamps = languages_temporary(w->all, 3 * (uint64_t)n, sizeof *stamps);
    if (!stamps || !languages_work(w->all, (uint64_t)n * k)) {
        free(stamps);
        return false;
    }
    uint32_t *n_in = stamps + n, *depth = n_in + n;
    memset(stamps, 0, 3 * (size_t)n * sizeof *stamps);
    n_in[0] = 2;
    for (uint32_t s = 0; s < n; s++) {
        for (uint32_t c = 0; c < k; c++) {
            uint32_t to = dfa->next[(size_t)s * k + c];
            if (to == s || stamps[to] == s + 1) continue;
            stamps[to] = s + 1;
            n_in[to]++;
        }
    }
    /* states are numbered breadth-first, so the only way into a state comes from one with a smaller number */
    for (uint32_t s = 0; s < n; s++) {
        uint32_t n_out = dfa->accepts[s], only = DFA_NO_STATE;
        rules[s] = n_in[s] > 1 || depth[s] > MAX_INLINE ? NOT_YET : INLINE;
        if (rules[s] == NOT_YET) depth[s] = 0;
        for (uint32_t c = 0; c < k; c++) {
            uint32_t to = dfa->next[(size_t)s * k + c];
            if (to == dfa->dead || to == only) continue;
            n_out++;
            only = to;
        }
        for (uint32_t c = 0; c < k; c++) {
            uint32_t to = dfa->next[(size_t)s * k + c];
            if (n_in[to] == 1 && to != s) depth[to] = depth[s] + (n_out > 1);
        }
    }
    free(stamps);
    return true;
}

static void put_state(struct writer *w, uint32_t automaton, uint32_t state, enum place place, bool looped);

/* Appends the set of an edge and then its state: nothing if no character follows, the name of its rule, or the state
 * itself. */
static void put_edge(struct writer *w, uint32_t automaton, struct edge edge) {
    for (;;) {
        const struct dfa *dfa = w->automata[automaton].dfa;
        int32_t *rule = &w->automata[automaton].rules[edge.to];
        struct edges edges = edges_of(w, dfa, edge.to);
        bool repeats = *rule == INLINE && edges.loop && same_set(edges.loop, edge.set);
        put_step(w, automaton, edge, repeats ? "+" : "");   /* x x* is x+ */
        bool ends = edges.n == 0 && !edges.loop, chain = edges.n == 1 && !edges.loop && !dfa->accepts[edge.to];
        struct edge next = chain ? edges.data[0] : edge;
        free(edges.data);
        if (w->failed || ends) return;
        if (repeats) {
            put_state(w, automaton, edge.to, IN_SEQUENCE, true);
            return;
        }
        if (*rule != INLINE) {
            if (*rule == NOT_YET) *rule = add_pending(w, (struct pending){.automaton = automaton, .state = edge.to});
            put_reference(w, *rule);
            return;
        }
        if (!chain) {
            put_state(w, automaton, edge.to, IN_SEQUENCE, false);
            return;
        }
        edge = next;
    }
}

/* Appends the strings that are accepted from a state.  looped: the way back to the state itself was appended. */
static void put_state(struct writer *w, uint32_t automaton, uint32_t state, enum place place, bool looped) {
    const struct dfa *dfa = w->automata[automaton].dfa;
    struct edges edges = edges_of(w, dfa, state);
    bool optional = dfa->accepts[state] && edges.n > 0;
    bool grouped = optional || (edges.n > 1 && (place != IN_RULE || edges.loop));
    if (edges.loop && !looped && !w->failed) put_step(w, automaton, (struct edge){state, edges.loop}, "*");
    if (grouped) open_group(w);
    for (uint32_t i = 0; i < edges.n && !w->failed; i++) {
        if (i > 0) alternative(w);
        put_edge(w, automaton, edges.data[i]);
    }
    if (grouped) close_group(w);
    if (optional) grammar_text_add(w->out, "?", 1);
    if (edges.n == 0 && !edges.loop) {   /* the empty string */
        begin_symbol(w);
        grammar_text_add(w->out, "\"\"", 2);
    }
    free(edges.data);
}

/* Returns the number of an automaton among those that are written; the rule of its start may be NAMED. */
static uint32_t add_automaton(struct writer *w, const struct dfa *dfa, const uint32_t *behind, int32_t start) {
    size_t i = 0;
    while (i < w->n_automaton && (w->automata[i].dfa != dfa || !w->automata[i].behind != !behind)) i++;
    if (i < w->n_automaton) return (uint32_t)i;
    struct written *more = alloc_grow(w->automata, i, &w->cap_automaton, sizeof *more);
    int32_t *rules = more ? languages_alloc(w->all, dfa->n_state, sizeof *rules) : NULL;
    if (more) w->automata = more;
    else languages_no_memory(w->all);
    if (!rules || !choose_rules(w, dfa, rules)) {
        w->failed = true;
        return 0;
    }
    rules[0] = start;
    more[w->n_automaton++] = (struct written){dfa, behind, rules};
    return (uint32_t)i;
}

/* Appends the name of the rule of an automaton. */
static void put_automaton(struct writer *w, const struct dfa *dfa, const uint32_t *behind) {
    uint32_t i = add_automaton(w, dfa, behind, NOT_YET);
    if (w->failed) return;
    int32_t *rule = &w->automata[i].rules[0];
    if (*rule == NOT_YET) *rule = add_pending(w, (struct pending){.automaton = i});
    put_reference(w, *rule);
}

/* Appends a language that is written as an automaton, or as a count of one. */
static void put_deterministic(struct writer *w, const struct language *a) {
    struct counted c;
    bool is_counted;
    w->failed = w->failed || !language_count(w->all, a, &c, &is_counted);
    const struct dfa *dfa = w->failed ? NULL : is_counted ? c.dfa : language_dfa(w->all, a);
    if (!dfa) {
        w->failed = true;
        return;
    }
    if (is_counted) {
        begin_symbol(w);
        if (c.most == LANGUAGE_UNBOUNDED) grammar_text_print(w->out, "%%{%lld,}(", (long long)c.least);
        else grammar_text_print(w->out, "%%{%lld,%lld}(", (long long)c.least, (long long)c.most);
        w->spaced = true;
    }
    put_automaton(w, dfa, is_counted ? c.behind : NULL);
    if (is_counted) close_group(w);
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static int compare_strings(const struct language *x, const struct language *y) {
    for (uint32_t i = 0; i < x->n && i < y->n; i++) {
        if (x->chars[i] != y->chars[i]) return x->chars[i] < y->chars[i] ? -1 : 1;
    }
    return (x->n > y->n) - (x->n < y->n);
}

static int by_chars(const void *a, const void *b) {
    return compare_strings(*(const struct language *const *)a, *(const struct language *const *)b);
}

/* The strings among the parts of a union, sorted, each once, but without the empty one.  None if no two have the same
 * first character: then their order remains. */
static struct strings sort_strings(struct writer *w, const struct language *a) {
    const struct language **data = languages_alloc(w->all, (uint64_t)a->n + 1, sizeof *data);
    uint32_t n = 0, n_unique = 0;
    bool shares = false;
    w->failed = w->failed || !data;
    for (uint32_t i = 0; data && i < a->n; i++) {
        if (a->parts[i]->kind == LANGUAGE_STRING && a->parts[i]->n > 0) data[n++] = a->parts[i];
    }
    if (n > 1) qsort(data, n, sizeof *data, by_chars);
    for (uint32_t i = 0; i < n; i++) {
        shares = shares || (i > 0 && data[i]->chars[0] == data[i - 1]->chars[0]);
        if (i == 0 || compare_strings(data[i], data[n_unique - 1]) != 0) data[n_unique++] = data[i];
    }
    return shares ? (struct strings){data, n_unique, 0} : (struct strings){0};
}

/* Appends what follows the common begin of strings.  What several of them begin with is written once, so that a text is
 * in few places, whatever their number.  Deep parts become rules, so neither this nor the GBNF is deeply nested. */
static void put_strings(struct writer *w, struct strings s, enum place place, uint32_t depth) {
    enum { MAX_INLINE = 30 };
    if (depth == MAX_INLINE) {
        put_reference(w, add_pending(w, (struct pending){.strings = s}));
        return;
    }
    const bool optional = s.n > 1 && s.data[0]->n == s.at;
    if (!has_room(w) || !languages_work(w->all, s.n)) {
        w->failed = true;
        return;
    }
    if (optional) s = (struct strings){s.data + 1, s.n - 1, s.at};
    const bool several = s.data[0]->chars[s.at] != s.data[s.n - 1]->chars[s.at];
    const bool group = optional || (several && place != IN_RULE);
    if (group) open_group(w);
    for (uint32_t i = 0, end; i < s.n; i = end) {
        const struct language *first = s.data[i];
        for (end = i + 1; end < s.n && s.data[end]->chars[s.at] == first->chars[s.at];) end++;
        const struct language *last = s.data[end - 1];
        if (i > 0) alternative(w);
        uint32_t k = s.at;
        for (; k < first->n && first->chars[k] == last->chars[k]; k++) put_char(w, first->chars[k]);
        if (end - i > 1) put_strings(w, (struct strings){s.data + i, end - i, k}, IN_SEQUENCE, depth + 1);
    }
    if (group) close_group(w);
    if (optional) grammar_text_add(w->out, "?", 1);
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */

/* Whether the language has the empty string. */
static bool is_nullable(struct writer *w, const struct language *a) {
    if (language_has_range(a)) return a->parts[1]->least == 0 && is_nullable(w, a->parts[0]);
    if (language_is_automaton(a)) {
        const struct dfa *dfa = language_dfa(w->all, a);
        w->failed = w->failed || !dfa;
        return dfa && dfa->accepts[0];
    }
    if (a->kind == LANGUAGE_STRING) return a->n == 0;
    if (a->kind == LANGUAGE_SET) return false;
    if (a->kind == LANGUAGE_REPEAT && a->least == 0) return true;
    for (uint32_t i = 0; i < a->n; i++) {
        if (is_nullable(w, a->parts[i]) != (a->kind == LANGUAGE_CONCAT)) return a->kind != LANGUAGE_CONCAT;
    }
    return a->kind == LANGUAGE_CONCAT;
}

/* Whether a part of the language has no string, which GBNF cannot write. */
static bool has_empty_part(struct writer *w, const struct language *a) {
    if (language_is_automaton(a)) {
        bool is_empty = false;
        w->failed = w->failed || language_is_empty(w->all, a, &is_empty) != PLUMB_OK;
        return is_empty;
    }
    if (a->kind == LANGUAGE_STRING || a->kind == LANGUAGE_SET) return false;
    for (uint32_t i = 0; i < a->n; i++) {
        if (has_empty_part(w, a->parts[i])) return true;
    }
    return a->kind == LANGUAGE_UNION && a->n == 0;
}

static bool is_empty_string(const struct language *a) {
    return (a->kind == LANGUAGE_STRING || a->kind == LANGUAGE_CONCAT) && a->n == 0;
}

static void put_language(struct writer *w, const struct language *a, enum place place);

static void put_repeat(struct writer *w, const struct language *a, enum place place) {
    if (a->most == 0 || is_empty_string(a->parts[0])) {
        put_language(w, &(const struct language){.kind = LANGUAGE_STRING}, place);
    } else if (a->least == 1 && a->most == 1) {
        put_language(w, a->parts[0], place);
    } else if (is_nullable(w, a->parts[0])) {
        const struct dfa *dfa = w->failed ? NULL : language_dfa(w->all, a);
        if (dfa) put_automaton(w, dfa, NULL);
        else w->failed = true;
    } else {
        bool group = place == IN_REPEAT;
        if (group) open_group(w);
        end_literal(w);
        put_language(w, a->parts[0], IN_REPEAT);
        end_literal(w);
        if (a->most == LANGUAGE_UNBOUNDED && a->least < 2) grammar_text_add(w->out, a->least == 0 ? "*" : "+", 1);
        else if (a->least == 0 && a->most == 1) grammar_text_add(w->out, "?", 1);
        else if (a->most == LANGUAGE_UNBOUNDED) grammar_text_print(w->out, "{%lld,}", (long long)a->least);
        else if (a->most == a->least) grammar_text_print(w->out, "{%lld}", (long long)a->least);
        else grammar_text_print(w->out, "{%lld,%lld}", (long long)a->least, (long long)a->most);
        if (group) close_group(w);
    }
}

/* Appends a language without empty parts. */
static void put_language(struct writer *w, const struct language *a, enum place place) {
    if (w->failed || !languages_work(w->all, 1)) {
        w->failed = true;
        return;
    }
    bool several = false, optional = false, group;
    struct strings strings;
    switch (a->kind) {
    case LANGUAGE_STRING:
        for (uint32_t i = 0; i < a->n; i++) put_char(w, a->chars[i]);
        if (a->n > 0) break;
        begin_symbol(w);
        grammar_text_add(w->out, "\"\"", 2);
        break;
    case LANGUAGE_SET:
        put_set(w, a->set);
        break;
    case LANGUAGE_CONCAT:
        group = place == IN_REPEAT && a->n > 1;
        if (group) open_group(w);
        for (uint32_t i = 0; i < a->n; i++) {
            if (is_empty_string(a->parts[i])) continue;
            put_language(w, a->parts[i], a->n > 1 ? IN_SEQUENCE : place);
            several = true;
        }
        if (!several) put_language(w, &(const struct language){.kind = LANGUAGE_STRING}, place);
        if (group) close_group(w);
        break;
    case LANGUAGE_UNION:
        strings = sort_strings(w, a);
        if (w->failed) break;
        for (uint32_t i = 0; i < a->n; i++) optional = optional || is_empty_string(a->parts[i]);
        group = optional || (a->n > 1 && place != IN_RULE);
        if (group) open_group(w);
        if (strings.n > 0) put_strings(w, strings, a->n > 1 ? IN_RULE : place, 0);
        several = strings.n > 0;
        for (uint32_t i = 0; i < a->n; i++) {
            if ((strings.n > 0 && a->parts[i]->kind == LANGUAGE_STRING) || is_empty_string(a->parts[i])) continue;
            if (several) alternative(w);
            put_language(w, a->parts[i], a->n > 1 ? IN_RULE : place);
            several = true;
        }
        if (!several) put_language(w, &(const struct language){.kind = LANGUAGE_STRING}, IN_RULE);
        if (group) close_group(w);
        if (optional && several) grammar_text_add(w->out, "?", 1);
        break;
    case LANGUAGE_REPEAT:
        put_repeat(w, a, place);
        break;
    default:
        put_deterministic(w, a);
    }
}

plumb_status language_write(struct languages *all, const struct language *a, enum language_form form, const char *name,
                            struct grammar_text *out) {
    if (!a) return all->err->status;
    struct writer w = {.all = all, .out = out, .form = form, .name = name, .spaced = true};
    bool empty = false;
    if (has_empty_part(&w, a)) {   /* the automaton has no empty parts, unless all is empty */
        const struct dfa *dfa = language_dfa(all, a);
        empty = dfa && dfa->dead == 0;
        a = language_of_dfa(all, dfa);
    }
    if (empty) error_set(all->err, PLUMB_ERROR_ARGUMENT, "no string is allowed, so there is no grammar");
    w.failed = w.failed || !a || empty;
    if (!w.failed) {
        grammar_text_print(out, "%s ::= ", name);
        struct counted c;
        bool is_counted = false;
        w.failed = !language_count(all, a, &c, &is_counted);
        const bool is_automaton = language_is_automaton(a) && !is_counted;
        const struct dfa *dfa = is_automaton && !w.failed ? language_dfa(all, a) : NULL;
        uint32_t i = dfa ? add_automaton(&w, dfa, NULL, NAMED) : 0;
        w.failed = w.failed || (is_automaton && !dfa);
        if (!w.failed && !dfa) put_language(&w, a, IN_RULE);
        else if (!w.failed) put_state(&w, i, 0, IN_RULE, false);
        end_literal(&w);
        grammar_text_add(out, "\n", 1);
    }
    for (size_t i = 0; i < w.n_pending && !w.failed; i++) {
        struct pending pending = w.pending[i];
        grammar_text_print(out, "%s-%zu ::= ", name, i + 1);
        w.spaced = true;
        if (pending.set) put_alternatives(&w, pending.set);
        else if (pending.strings.data) put_strings(&w, pending.strings, IN_RULE, 0);
        else put_state(&w, pending.automaton, pending.state, IN_RULE, false);
        end_literal(&w);
        grammar_text_add(out, "\n", 1);
    }
    if (!w.failed && out->failed) {
        languages_no_memory(all);
        w.failed = true;
    }
    free(w.pending);
    free(w.automata);
    return w.failed ? all->err->status : PLUMB_OK;
}

plumb_status grammar_from_regex(const char *regex, size_t n, const char *name, struct grammar_text *out,
                                struct error *err) {
    struct languages *all = languages_create(err);
    if (!all) return err->status;
    plumb_status status = language_write(all, language_regex(all, regex, n, REGEX_WHOLE), LANGUAGE_PLAIN, name, out);
    languages_free(all);
    return status;
}

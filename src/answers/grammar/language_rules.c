/* Languages -> rules.
 *
 * A tree becomes a rule of its own shape.  Of an automaton a state is added where it is used, if it is used once, and
 * otherwise as a rule.  No rule is left recursive, since all that stands before a reference reads a character, and
 * nothing that can be empty is repeated.
 */
#include "grammar/language.h"

#include <stdlib.h>

/* An automaton that is added.  rules[s]: the rule of state s, NOT_YET if it has none so far, INLINE if it is added
 * where it is used. */
static const uint32_t NOT_YET = UINT32_MAX, INLINE = UINT32_MAX - 1;
struct automaton {
    const struct dfa *dfa;
    const uint32_t *behind;   /* if characters are counted: how many are behind a state at least; NULL: they are not */
    uint32_t *rules;
};

/* Strings in the order of their characters, all with the same first `at` characters. */
struct strings {
    const struct language *const *data;   /* NULL: none */
    uint32_t n, at;
};

/* A rule that is referred to: the state of an automaton, a set of characters, or the rests of strings. */
struct pending {
    uint32_t rule, automaton, state;
    const struct charset *set;   /* NULL: the strings, or the state */
    struct strings strings;
};

struct writer {
    struct languages *all;
    struct rules *b;
    enum language_form form;
    uint32_t rule;               /* the one of the whole language */
    struct pending *pending;
    size_t n_pending, cap_pending;
    struct automaton *automata;
    size_t n_automaton, cap_automaton;
    bool failed;                 /* a function of a struct languages did */
};

/* Alternatives are added to `in`, if a language is a whole alternative there; in a sequence `in` is NULL, and they have
 * a choice of their own. */

static bool is_ok(const struct writer *w) { return !w->failed && w->b->status == PLUMB_OK; }

/* Counts work.  Returns false if something failed, or that was too much. */
static bool count_work(struct writer *w, uint32_t n) {
    if (is_ok(w)) w->failed = !languages_work(w->all, n);
    return is_ok(w);
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

static void put_char(struct writer *w, uint32_t index) {
    if (w->form == LANGUAGE_JSON) rules_json_char(w->b, char_at(index));
    else rules_char(w->b, char_at(index));
}

/* One of a set of characters that are written as they are.  A set with the last character is one of all but some: as
 * in GBNF, U+0000 is not in it. */
static void put_class(struct writer *w, const struct charset *set) {
    struct spans others = {0};
    if (set->spans[set->n - 1].last < N_CHAR - 1) {
        rules_class(w->b, set->spans, set->n);
        return;
    }
    spans_add_set(&others, set);
    spans_join(&others, true);
    spans_add(&others, 0, 0);
    spans_join(&others, true);
    if (others.failed) languages_no_memory(w->all);
    else rules_class(w->b, others.data, others.n);
    w->failed |= others.failed;
    free(others.data);
}

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

/* An alternative: a text and one of some ASCII characters. */
static void put_escapes(struct writer *w, struct choice *in, const char *text, struct spans *chars) {
    bool some = chars->n > 0;
    const struct charset *set = spans_set(w->all, chars, false);
    w->failed |= !set;
    if (!some || !set) return;
    rules_option(w->b, in);
    rules_text(w->b, text);
    put_class(w, set);
}

/* The alternatives of a set whose characters are not all written as they are. */
static void put_alternatives(struct writer *w, struct choice *in, const struct charset *set) {
    uint64_t escaped = 0;
    const struct charset *raw = w->form == LANGUAGE_JSON ? split_set(w, set, &escaped) : set;
    w->failed |= !raw;
    if (!raw) return;
    if (raw->n > 0) {
        rules_option(w->b, in);
        put_class(w, raw);
    }
    struct spans letters = {0}, digits[2] = {{0}, {0}};
    if (escaped >> ESCAPE_QUOTE & 1) spans_add(&letters, '"', '"');
    if (escaped >> ESCAPE_BACKSLASH & 1) spans_add(&letters, '\\', '\\');
    for (uint32_t cp = 0; cp < 0x20; cp++) {
        if (!(escaped >> cp & 1)) continue;
        uint32_t letter = (uint8_t)rules_json_escape(cp), digit = (uint8_t)"0123456789abcdef"[cp & 15];
        if (letter != 'u') spans_add(&letters, letter, letter);
        else spans_add(&digits[cp >> 4], digit, digit);
    }
    put_escapes(w, in, "\\", &letters);
    put_escapes(w, in, "\\u000", &digits[0]);
    put_escapes(w, in, "\\u001", &digits[1]);
}

/* The number of a new rule, which is added later. */
static uint32_t add_pending(struct writer *w, struct pending pending) {
    if (!is_ok(w)) return 0;
    if (!ARRAY_GROW(w->pending, w->n_pending, &w->cap_pending)) {
        languages_no_memory(w->all);
        w->failed = true;
        return 0;
    }
    pending.rule = rules_part(w->b, w->rule, "-%zu", w->n_pending + 1);
    w->pending[w->n_pending++] = pending;
    return pending.rule;
}

/* A set as one symbol: a character, a class, or a rule. */
static void put_set(struct writer *w, const struct charset *set) {
    enum { MAX_INLINE = 16 };   /* spans */
    uint64_t escaped = 0;
    if (!is_ok(w)) return;
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
        while (i < w->n_pending && !(w->pending[i].set && charset_equal(w->pending[i].set, set))) i++;
        if (!languages_work(w->all, i)) w->failed = true;
        const bool is_known = i < w->n_pending;
        rules_symbol(w->b, OP_CALL, is_known ? w->pending[i].rule : add_pending(w, (struct pending){.set = set}));
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

/* Decides which states are rules: the start, those with two ways in, and some so that expressions do not get deep. */
static bool choose_rules(struct writer *w, const struct dfa *dfa, uint32_t *rules) {
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

static void put_state(struct writer *w, struct choice *in, uint32_t automaton, uint32_t state, bool looped);

/* A set that leads to a state, with a mark before the character if characters are counted. */
static void put_step(struct writer *w, uint32_t automaton, struct edge edge) {
    const uint32_t *behind = w->automata[automaton].behind;
    if (behind) rules_symbol(w->b, OP_MARK, behind[edge.to]);
    put_set(w, edge.set);
}

/* The set of an edge and then its state: nothing if no character follows, its rule, or the state itself. */
static void put_edge(struct writer *w, uint32_t automaton, struct edge edge) {
    for (;;) {
        const struct dfa *dfa = w->automata[automaton].dfa;
        uint32_t *rule = &w->automata[automaton].rules[edge.to];
        struct edges edges = edges_of(w, dfa, edge.to);
        bool repeats = *rule == INLINE && edges.loop && charset_equal(edges.loop, edge.set);   /* x x* is x+ */
        const size_t from = rules_at(w->b);
        put_step(w, automaton, edge);
        if (repeats) rules_repeat(w->b, from, 1, COUNT_UNBOUNDED);
        bool ends = edges.n == 0 && !edges.loop, chain = edges.n == 1 && !edges.loop && !dfa->accepts[edge.to];
        struct edge next = chain ? edges.data[0] : edge;
        free(edges.data);
        if (!is_ok(w) || ends) return;
        if (*rule == NOT_YET) *rule = add_pending(w, (struct pending){.automaton = automaton, .state = edge.to});
        if (*rule != INLINE) {
            rules_symbol(w->b, OP_CALL, *rule);
            return;
        }
        if (repeats || !chain) {
            put_state(w, NULL, automaton, edge.to, repeats);
            return;
        }
        edge = next;
    }
}

/* The strings that are accepted from a state.  looped: the way back to the state itself was added. */
static void put_state(struct writer *w, struct choice *in, uint32_t automaton, uint32_t state, bool looped) {
    const struct dfa *dfa = w->automata[automaton].dfa;
    struct edges edges = edges_of(w, dfa, state);
    const size_t loop = rules_at(w->b);
    if (edges.loop && !looped && is_ok(w)) {
        put_step(w, automaton, (struct edge){state, edges.loop});
        rules_repeat(w->b, loop, 0, COUNT_UNBOUNDED);
    }
    const bool optional = dfa->accepts[state] && edges.n > 0, is_own = optional || !in || edges.loop;
    struct choice own = rules_choice(w->b), *choice = is_own ? &own : in;
    for (uint32_t i = 0; i < edges.n && is_ok(w); i++) {
        if (i > 0) rules_next(w->b, choice);
        put_edge(w, automaton, edges.data[i]);
    }
    if (is_own) rules_close(w->b, &own);
    if (optional) rules_repeat(w->b, own.first, 0, 1);
    free(edges.data);
}

/* Returns the number of an automaton among those that are added, whose start may have a rule. */
static uint32_t add_automaton(struct writer *w, const struct dfa *dfa, const uint32_t *behind, uint32_t start) {
    size_t i = 0;
    while (i < w->n_automaton && (w->automata[i].dfa != dfa || !w->automata[i].behind != !behind)) i++;
    if (i < w->n_automaton) return (uint32_t)i;
    const bool has_room = ARRAY_GROW(w->automata, i, &w->cap_automaton);
    uint32_t *rules = has_room ? languages_alloc(w->all, dfa->n_state, sizeof *rules) : NULL;
    if (!has_room) languages_no_memory(w->all);
    if (!rules || !choose_rules(w, dfa, rules)) {
        w->failed = true;
        return 0;
    }
    rules[0] = start;
    w->automata[w->n_automaton++] = (struct automaton){dfa, behind, rules};
    return (uint32_t)i;
}

/* The rule of an automaton. */
static void put_automaton(struct writer *w, const struct dfa *dfa, const uint32_t *behind) {
    w->failed |= !dfa;
    uint32_t i = w->failed ? 0 : add_automaton(w, dfa, behind, NOT_YET);
    if (w->failed) return;
    uint32_t *rule = &w->automata[i].rules[0];
    if (*rule == NOT_YET) *rule = add_pending(w, (struct pending){.automaton = i});
    rules_symbol(w->b, OP_CALL, *rule);
}

/* A maximum as rules.h has it. */
static uint32_t bound(int64_t most) { return most == LANGUAGE_UNBOUNDED ? COUNT_UNBOUNDED : (uint32_t)most; }

/* A language that is added as an automaton, or as a count of one. */
static void put_deterministic(struct writer *w, const struct language *a) {
    struct counted c;
    bool is_counted;
    const size_t from = rules_at(w->b);
    w->failed |= !language_count(w->all, a, &c, &is_counted);
    if (w->failed) return;
    if (!is_counted) {
        put_automaton(w, language_dfa(w->all, a), NULL);
        return;
    }
    put_automaton(w, c.dfa, c.behind);
    rules_count(w->b, from, (uint32_t)c.least, bound(c.most));
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

/* What follows the common begin of strings.  What several of them begin with is added once, so that a text is in few
 * places, whatever their number.  Deep parts become rules, so that this is not deeply nested. */
static void put_strings(struct writer *w, struct choice *in, struct strings s, uint32_t depth) {
    enum { MAX_INLINE = 30 };
    if (depth == MAX_INLINE) {
        rules_symbol(w->b, OP_CALL, add_pending(w, (struct pending){.strings = s}));
        return;
    }
    const bool optional = s.n > 1 && s.data[0]->n == s.at, is_own = optional || !in;
    if (!count_work(w, s.n)) return;
    if (optional) s = (struct strings){s.data + 1, s.n - 1, s.at};
    struct choice own = rules_choice(w->b), *choice = is_own ? &own : in;
    for (uint32_t i = 0, end; i < s.n; i = end) {
        const struct language *first = s.data[i];
        for (end = i + 1; end < s.n && s.data[end]->chars[s.at] == first->chars[s.at];) end++;
        const struct language *last = s.data[end - 1];
        if (i > 0) rules_next(w->b, choice);
        uint32_t k = s.at;
        for (; k < first->n && first->chars[k] == last->chars[k]; k++) put_char(w, first->chars[k]);
        if (end - i > 1) put_strings(w, NULL, (struct strings){s.data + i, end - i, k}, depth + 1);
    }
    if (is_own) rules_close(w->b, &own);
    if (optional) rules_repeat(w->b, own.first, 0, 1);
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

static void put_language(struct writer *w, struct choice *in, const struct language *a);

static void put_repeat(struct writer *w, struct choice *in, const struct language *a) {
    const size_t from = rules_at(w->b);
    if (a->most == 0 || is_empty_string(a->parts[0])) return;
    if (a->least == 1 && a->most == 1) {
        put_language(w, in, a->parts[0]);
    } else if (is_nullable(w, a->parts[0])) {
        put_automaton(w, w->failed ? NULL : language_dfa(w->all, a), NULL);
    } else {
        put_language(w, NULL, a->parts[0]);
        rules_repeat(w->b, from, (uint32_t)a->least, bound(a->most));
    }
}

static void put_union(struct writer *w, struct choice *in, const struct language *a) {
    const struct strings strings = sort_strings(w, a);
    bool several = strings.n > 0, optional = false;
    for (uint32_t i = 0; i < a->n; i++) optional = optional || is_empty_string(a->parts[i]);
    const bool is_own = optional || (a->n > 1 && !in);
    struct choice own = rules_choice(w->b), *choice = is_own ? &own : in;
    if (strings.n > 0) put_strings(w, choice, strings, 0);
    for (uint32_t i = 0; i < a->n; i++) {
        if ((strings.n > 0 && a->parts[i]->kind == LANGUAGE_STRING) || is_empty_string(a->parts[i])) continue;
        if (several) rules_next(w->b, choice);
        put_language(w, choice, a->parts[i]);
        several = true;
    }
    if (is_own) rules_close(w->b, &own);
    if (optional && several) rules_repeat(w->b, own.first, 0, 1);
}

/* A language without empty parts. */
static void put_language(struct writer *w, struct choice *in, const struct language *a) {
    if (!count_work(w, 1)) return;
    switch (a->kind) {
    case LANGUAGE_STRING:
        for (uint32_t i = 0; i < a->n; i++) put_char(w, a->chars[i]);
        break;
    case LANGUAGE_SET:
        put_set(w, a->set);
        break;
    case LANGUAGE_CONCAT:
        for (uint32_t i = 0; i < a->n; i++) put_language(w, a->n > 1 ? NULL : in, a->parts[i]);
        break;
    case LANGUAGE_UNION:
        put_union(w, in, a);
        break;
    case LANGUAGE_REPEAT:
        put_repeat(w, in, a);
        break;
    default:
        put_deterministic(w, a);
    }
}

plumb_status language_add(struct languages *all, const struct language *a, enum language_form form, struct rules *b,
                          uint32_t rule) {
    if (!a) return all->err->status;
    struct writer w = {.all = all, .b = b, .form = form, .rule = rule};
    if (has_empty_part(&w, a)) {   /* the automaton has no empty parts, unless all is empty */
        const struct dfa *dfa = language_dfa(all, a);
        a = language_of_dfa(all, dfa);
        w.failed |= !a || dfa->dead == 0;
        if (dfa && dfa->dead == 0) {
            error_set(all->err, PLUMB_ERROR_ARGUMENT, "no string is allowed, so there is no grammar");
        }
    }
    struct counted c;
    bool is_counted = false;
    w.failed = w.failed || !language_count(all, a, &c, &is_counted);
    struct choice choice = rules_choice(b);
    if (!w.failed && language_is_automaton(a) && !is_counted) {
        const struct dfa *dfa = language_dfa(all, a);
        w.failed = !dfa;
        if (dfa) add_automaton(&w, dfa, NULL, rule);
        if (!w.failed) put_state(&w, &choice, 0, 0, false);
    } else if (!w.failed) {
        put_language(&w, &choice, a);
    }
    rules_close(b, &choice);
    rules_end(b, rule, choice.first);
    for (size_t i = 0; i < w.n_pending && is_ok(&w); i++) {
        const struct pending pending = w.pending[i];
        choice = rules_choice(b);
        if (pending.set) put_alternatives(&w, &choice, pending.set);
        else if (pending.strings.data) put_strings(&w, &choice, pending.strings, 0);
        else put_state(&w, &choice, pending.automaton, pending.state, false);
        rules_close(b, &choice);
        rules_end(b, pending.rule, choice.first);
    }
    free(w.pending);
    free(w.automata);
    return w.failed ? all->err->status : b->status;
}

plumb_status rules_add_regex(struct rules *b, uint32_t rule, const char *regex, size_t n) {
    struct languages *all = languages_create(b->err);
    if (!all) return b->err->status;
    const struct language *a = language_regex(all, regex, n, REGEX_WHOLE);
    plumb_status status = language_add(all, a, LANGUAGE_PLAIN, b, rule);
    languages_free(all);
    return status;
}

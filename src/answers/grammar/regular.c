/* Trees of languages, sets of characters, and questions about languages. */
#include "grammar/language.h"
#include "base/unicode.h"

#include <stdlib.h>

/* ---- sets of characters ----------------------------------------------------------------------------------------- */

void spans_add(struct spans *s, uint32_t first, uint32_t last) {
    if (first >= 0xd800 && first < 0xe000) first = 0xe000;
    if (last >= 0xd800 && last < 0xe000) last = 0xd7ff;
    if (s->failed || first > last) return;
    struct span *data = alloc_grow(s->data, s->n, &s->cap, sizeof *data);
    if (data) {
        s->data = data;
        s->data[s->n++] = (struct span){char_index(first), char_index(last)};
    }
    s->failed = data == NULL;
}

void spans_add_set(struct spans *s, const struct charset *set) {
    if (!set) s->failed = true;
    for (uint32_t i = 0; !s->failed && i < set->n; i++) {
        spans_add(s, char_at(set->spans[i].first), char_at(set->spans[i].last));
    }
}

static int by_first(const void *a, const void *b) {
    uint32_t x = ((const struct span *)a)->first, y = ((const struct span *)b)->first;
    return x < y ? -1 : x > y;
}

const struct charset *spans_set(struct languages *all, struct spans *s, bool negated) {
    size_t n = 0;
    if (s->n > 1) qsort(s->data, s->n, sizeof *s->data, by_first);
    for (size_t i = 0; i < s->n; i++) {
        struct span span = s->data[i];
        if (n > 0 && span.first <= s->data[n - 1].last + 1) {
            if (span.last > s->data[n - 1].last) s->data[n - 1].last = span.last;
        } else {
            s->data[n++] = span;
        }
    }
    struct charset *set = NULL;
    if (s->failed) languages_no_memory(all);
    else set = languages_alloc(all, sizeof *set + (n + 1) * sizeof *set->spans, 1);
    if (set && !negated) {
        set->n = (uint32_t)n;
        if (n > 0) memcpy(set->spans, s->data, n * sizeof *set->spans);
    } else if (set) {
        uint32_t first = 0;
        set->n = 0;
        for (size_t i = 0; i < n; i++) {
            if (s->data[i].first > first) set->spans[set->n++] = (struct span){first, s->data[i].first - 1};
            first = s->data[i].last + 1;
        }
        if (first < N_CHAR) set->spans[set->n++] = (struct span){first, N_CHAR - 1};
    }
    free(s->data);
    *s = (struct spans){0};
    return set;
}

const struct charset *charset_word(struct languages *all) {
    struct spans s = {0};
    spans_add(&s, '0', '9');
    spans_add(&s, 'A', 'Z');
    spans_add(&s, '_', '_');
    spans_add(&s, 'a', 'z');
    return spans_set(all, &s, false);
}

/* ---- trees ------------------------------------------------------------------------------------------------------ */

static uint64_t add_saturated(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static bool too_many_parts(struct languages *all, uint64_t n) {
    if (n <= LANGUAGE_MAX_NODES - all->n_node) {
        all->n_node += (uint32_t)n;
        return false;
    }
    error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the regular languages have more than %d parts", LANGUAGE_MAX_NODES);
    return true;
}

/* A node of a kind; the caller fills its other fields. */
static struct language *leaf(struct languages *all, enum language_kind kind) {
    if (too_many_parts(all, 1)) return NULL;
    struct language *a = languages_alloc(all, 1, sizeof *a);
    if (a) *a = (struct language){.kind = kind, .n_state = 1};
    return a;
}

/* A concatenation of concatenations is one, and so is a union of unions: long ones do not become deep. */
static bool joins(enum language_kind kind, const struct language *part) {
    return part->kind == kind && (kind == LANGUAGE_CONCAT || kind == LANGUAGE_UNION);
}

static struct language *make_node(struct languages *all, enum language_kind kind,
                                  const struct language *const *parts, uint32_t n) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!parts[i]) return NULL;
        total += joins(kind, parts[i]) ? parts[i]->n : 1;
    }
    if (too_many_parts(all, total)) return NULL;
    struct language *a = leaf(all, kind);
    if (!a) return NULL;
    a->parts = languages_alloc(all, total + 1, sizeof *a->parts);
    if (!a->parts) return NULL;
    a->asserts = kind >= LANGUAGE_START;
    for (uint32_t i = 0; i < n; i++) {
        const struct language *const *from = &parts[i];
        uint32_t n_from = 1;
        if (joins(kind, parts[i])) {
            from = parts[i]->parts;
            n_from = parts[i]->n;
        }
        for (uint32_t j = 0; j < n_from; j++) {
            a->parts[a->n++] = from[j];
            a->n_state = add_saturated(a->n_state, from[j]->n_state);
            if (from[j]->depth >= a->depth) a->depth = from[j]->depth + 1;
            if (kind != LANGUAGE_AUTOMATON) a->asserts = a->asserts || from[j]->asserts;
        }
    }
    if (a->depth > LANGUAGE_MAX_DEPTH) {
        error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "a regular language is nested more than %d levels deep",
                  LANGUAGE_MAX_DEPTH);
        return NULL;
    }
    return a;
}

const struct language *language_node(struct languages *all, enum language_kind kind,
                                     const struct language *const *parts, uint32_t n) {
    return make_node(all, kind, parts, n);
}

const struct language *language_chars(struct languages *all, const uint32_t *chars, uint32_t n) {
    struct language *a = leaf(all, LANGUAGE_STRING);
    uint32_t *copy = a ? languages_alloc(all, (uint64_t)n + 1, sizeof *copy) : NULL;
    if (!copy) return NULL;
    if (n > 0) memcpy(copy, chars, n * sizeof *copy);
    a->chars = copy;
    a->n = n;
    a->n_state = n;
    return a;
}

const struct language *language_set(struct languages *all, const struct charset *set) {
    if (!set) return NULL;
    if (set->n == 1 && set->spans[0].first == set->spans[0].last) {
        return language_chars(all, &set->spans[0].first, 1);
    }
    struct language *a = leaf(all, set->n == 0 ? LANGUAGE_UNION : LANGUAGE_SET);
    if (a) a->set = set;
    return a;
}

const struct language *language_automaton(struct languages *all, const struct language *a) {
    return language_node(all, LANGUAGE_AUTOMATON, &a, 1);
}

const struct language *language_of_dfa(struct languages *all, const struct dfa *dfa) {
    struct language *a = dfa ? leaf(all, LANGUAGE_AUTOMATON) : NULL;
    if (!a) return NULL;
    a->dfa = dfa;
    a->n_state = dfa->n_state;
    return a;
}

const struct language *language_none(struct languages *all) {
    if (!all->none) all->none = language_node(all, LANGUAGE_UNION, NULL, 0);
    return all->none;
}

const struct language *language_any(struct languages *all) {
    if (!all->any) {
        struct spans nothing = {0};
        all->any = language_repeat(all, language_set(all, spans_set(all, &nothing, true)), 0, LANGUAGE_UNBOUNDED);
    }
    return all->any;
}

const struct language *language_string(struct languages *all, const char *utf8, size_t n) {
    if (too_many_parts(all, n)) return NULL;
    uint32_t *chars = languages_temporary(all, n, sizeof *chars), n_char = 0;
    if (!chars) return NULL;
    bool surrogate = false;   /* then it is no string of characters */
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += unicode_decode(utf8 + i, n - i, &cp);
        surrogate = surrogate || (cp >= 0xd800 && cp < 0xe000);
        chars[n_char++] = char_index(cp);
    }
    const struct language *a = surrogate ? language_none(all) : language_chars(all, chars, n_char);
    free(chars);
    return a;
}

const struct language *language_strings(struct languages *all, const char *const *utf8, const size_t *lengths,
                                        size_t n) {
    if (too_many_parts(all, n)) return NULL;
    const struct language **parts = languages_temporary(all, n, sizeof *parts), *a = NULL;
    if (!parts) return NULL;
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = (parts[i] = language_string(all, utf8[i], lengths[i])) != NULL;
    if (ok) a = language_node(all, LANGUAGE_UNION, parts, (uint32_t)n);
    free(parts);
    return a;
}

const struct language *language_repeat(struct languages *all, const struct language *a, int64_t least, int64_t most) {
    if (!a) return NULL;
    if (least < 0 || (most != LANGUAGE_UNBOUNDED && most < least)) {
        error_set(all->err, PLUMB_ERROR_ARGUMENT, "a repetition of at least %lld and at most %lld times",
                  (long long)least, (long long)most);
        return NULL;
    }
    struct language *repeat = make_node(all, LANGUAGE_REPEAT, &a, 1);
    if (!repeat) return NULL;
    uint64_t times = most == LANGUAGE_UNBOUNDED ? (uint64_t)least + 1 : (uint64_t)most, n_state;
    if (!mul_u64(add_saturated(a->n_state, 1), times, &n_state)) n_state = UINT64_MAX;
    repeat->least = least;
    repeat->most = most;
    repeat->n_state = n_state;
    return repeat;
}

const struct language *language_length(struct languages *all, int64_t least, int64_t most) {
    const struct language *any = language_any(all);
    return any ? language_repeat(all, any->parts[0], least, most) : NULL;
}

/* All strings of a range of lengths. */
static bool is_length(const struct language *a) {
    if (a->kind != LANGUAGE_REPEAT || a->parts[0]->kind != LANGUAGE_SET) return false;
    const struct charset *set = a->parts[0]->set;
    return set->n == 1 && set->spans[0].first == 0 && set->spans[0].last == N_CHAR - 1;
}

static bool in_range(const struct language *length, int64_t n) {
    return n >= length->least && (length->most == LANGUAGE_UNBOUNDED || n <= length->most);
}

const struct language *language_concat(struct languages *all, const struct language *a, const struct language *b) {
    return language_node(all, LANGUAGE_CONCAT, (const struct language *const[]){a, b}, 2);
}

const struct language *language_union(struct languages *all, const struct language *a, const struct language *b) {
    if (a && b && (a == b || (b->kind == LANGUAGE_UNION && b->n == 0))) return a;
    if (a && b && a->kind == LANGUAGE_UNION && a->n == 0) return b;
    return language_node(all, LANGUAGE_UNION, (const struct language *const[]){a, b}, 2);
}

/* Strings that are listed: a string, or a union of strings. */
static bool is_list(const struct language *a) {
    bool strings = a->kind == LANGUAGE_STRING || a->kind == LANGUAGE_UNION;
    for (uint32_t i = 0; i < a->n && a->kind == LANGUAGE_UNION && strings; i++) {
        strings = a->parts[i]->kind == LANGUAGE_STRING;
    }
    return strings;
}

static bool dfa_has(const struct dfa *dfa, const uint32_t *chars, uint32_t n) {
    uint32_t state = 0;
    for (uint32_t i = 0; i < n; i++) state = dfa->next[(size_t)state * dfa->n_class + dfa_class(dfa, chars[i])];
    return dfa->accepts[state];
}

/* Those of many listed strings that are in b, which needs no automaton of the list. */
static const struct language *list_and(struct languages *all, const struct language *list, const struct language *b) {
    const struct dfa *dfa = is_length(b) ? NULL : language_dfa(all, b);
    const struct language **kept = languages_temporary(all, list->n, sizeof *kept), *a = NULL;
    uint32_t n = 0;
    bool ok = kept && (dfa || is_length(b));
    for (uint32_t i = 0; ok && i < list->n; i++) {
        const struct language *one = list->parts[i];
        ok = languages_work(all, one->n);
        if (dfa ? dfa_has(dfa, one->chars, one->n) : in_range(b, one->n)) kept[n++] = one;
    }
    if (ok) a = language_node(all, LANGUAGE_UNION, kept, n);
    free(kept);
    return a;
}

bool language_has_range(const struct language *a) { return a->kind == LANGUAGE_INTERSECT && is_length(a->parts[1]); }

/* Two ranges of lengths. */
static const struct language *length_and(struct languages *all, const struct language *a, const struct language *b) {
    const bool has_most = a->most != LANGUAGE_UNBOUNDED && (b->most == LANGUAGE_UNBOUNDED || a->most < b->most);
    const int64_t least = a->least > b->least ? a->least : b->least, most = has_most ? a->most : b->most;
    return most != LANGUAGE_UNBOUNDED && most < least ? language_none(all) : language_length(all, least, most);
}

const struct language *language_intersect(struct languages *all, const struct language *a, const struct language *b) {
    enum { MANY = 64 };   /* listed strings, which are not made an automaton */
    const struct language *any = language_any(all);
    if (!a || !b || !any) return NULL;
    if (a == b || b == any) return a;
    if (a == any) return b;
    if (a->kind == LANGUAGE_UNION && a->n >= MANY && is_list(a)) return list_and(all, a, b);
    if (b->kind == LANGUAGE_UNION && b->n >= MANY && is_list(b)) return list_and(all, b, a);
    /* a range of lengths stands last, once */
    if (is_length(a)) {
        if (is_length(b)) return length_and(all, a, b);
        const struct language *other = a;
        a = b;
        b = other;
    }
    if (language_has_range(a)) {
        if (is_length(b)) return language_intersect(all, a->parts[0], length_and(all, a->parts[1], b));
        return language_intersect(all, language_intersect(all, a->parts[0], b), a->parts[1]);
    }
    if (language_has_range(b)) {
        return language_intersect(all, language_intersect(all, a, b->parts[0]), b->parts[1]);
    }
    /* a & (b0 & b1) is made as (a & b1) & b0: b may be too large by itself, as a pattern that counts in a lookahead. */
    if (b->kind == LANGUAGE_INTERSECT && !b->dfa) {
        return language_intersect(all, language_intersect(all, a, b->parts[1]), b->parts[0]);
    }
    return language_node(all, LANGUAGE_INTERSECT, (const struct language *const[]){a, b}, 2);
}

const struct language *language_complement(struct languages *all, const struct language *a) {
    if (a && a->kind == LANGUAGE_COMPLEMENT) return a->parts[0];
    if (a && a->kind == LANGUAGE_UNION && a->n == 0) return language_any(all);
    if (a && a == all->any) return language_none(all);
    return language_node(all, LANGUAGE_COMPLEMENT, &a, 1);
}

const struct language *language_minus(struct languages *all, const struct language *a, const struct language *b) {
    return language_intersect(all, a, language_complement(all, b));
}

/* ---- questions -------------------------------------------------------------------------------------------------- */

bool language_is_automaton(const struct language *a) {
    return a->kind == LANGUAGE_AUTOMATON || a->kind == LANGUAGE_INTERSECT || a->kind == LANGUAGE_COMPLEMENT;
}

plumb_status language_is_empty(struct languages *all, const struct language *a, bool *yes) {
    if (!a) return all->err->status;
    *yes = a->kind == LANGUAGE_UNION;
    if (language_has_range(a)) {
        const struct dfa *dfa = language_dfa(all, a->parts[0]);
        bool some = false;
        if (!dfa || !dfa_has_length(all, dfa, a->parts[1]->least, a->parts[1]->most, &some)) return all->err->status;
        *yes = !some;
    } else if (language_is_automaton(a)) {
        const struct dfa *dfa = language_dfa(all, a);
        if (!dfa) return all->err->status;
        *yes = dfa->dead == 0;
    }
    if (a->kind != LANGUAGE_CONCAT && a->kind != LANGUAGE_UNION && (a->kind != LANGUAGE_REPEAT || a->least == 0)) {
        return PLUMB_OK;
    }
    for (uint32_t i = 0; i < a->n; i++) {   /* one empty part of a concatenation is enough, a union needs all */
        PLUMB_TRY(language_is_empty(all, a->parts[i], yes));
        if (*yes != (a->kind == LANGUAGE_UNION)) return PLUMB_OK;
    }
    return PLUMB_OK;
}

bool language_count(struct languages *all, const struct language *a, struct counted *out, bool *is) {
    enum { FEW_STATES = 64 };
    *is = false;
    if (!language_has_range(a)) return true;
    const int64_t least = a->parts[1]->least, most = a->parts[1]->most;
    const struct dfa *dfa = language_dfa(all, a->parts[0]);
    if (!dfa) return false;
    if ((most != LANGUAGE_UNBOUNDED ? most : least) * dfa->n_state <= FEW_STATES) return true;
    const uint32_t *shortest = dfa_shortest(all, dfa);
    if (!shortest) return false;
    *out = (struct counted){dfa, shortest, least, most};
    *is = true;
    return least == 0 || dfa_has_all_lengths(all, dfa, shortest, is);
}

plumb_status language_is_any(struct languages *all, const struct language *a, bool *yes) {
    if (a && a == all->any) return *yes = true, PLUMB_OK;
    const struct dfa *dfa = a ? language_dfa(all, a) : NULL;
    if (!dfa) return all->err->status;
    *yes = dfa->all == 0;
    return PLUMB_OK;
}

plumb_status language_equals(struct languages *all, const struct language *a, const struct language *b, bool *yes) {
    const struct dfa *x = a ? language_dfa(all, a) : NULL, *y = x && b ? language_dfa(all, b) : NULL;
    if (!y) return all->err->status;
    *yes = dfa_equal(x, y);
    return PLUMB_OK;
}

plumb_status language_has(struct languages *all, const struct language *a, const char *utf8, size_t n, bool *yes) {
    const bool has_range = a && language_has_range(a);
    const struct dfa *dfa = a ? language_dfa(all, has_range ? a->parts[0] : a) : NULL;
    if (!dfa) return all->err->status;
    uint32_t state = 0;
    int64_t n_char = 0;
    *yes = false;
    for (size_t i = 0; i < n; n_char++) {
        uint32_t cp;
        i += unicode_decode(utf8 + i, n - i, &cp);
        if (cp >= 0xd800 && cp < 0xe000) return PLUMB_OK;
        state = dfa->next[(size_t)state * dfa->n_class + dfa_class(dfa, char_index(cp))];
    }
    *yes = dfa->accepts[state] && (!has_range || in_range(a->parts[1], n_char));
    return PLUMB_OK;
}

/* A walk over the strings of one length. */
struct walk {
    struct languages *all;
    const struct dfa *dfa;
    const uint8_t *can;        /* (length + 1, n_state) whether strings of that many characters are accepted */
    uint32_t limit, n;
    bool (*visit)(void *user, const char *utf8, size_t n);
    void *user;
    char *text;
    bool stopped;
};

/* Reports each string that begins with the n_text bytes and has `left` more characters. */
static bool walk_from(struct walk *w, uint32_t state, uint32_t left, size_t n_text);

/* The same for the characters first..last of the next interval. */
static bool walk_chars(struct walk *w, uint32_t to, uint32_t first, uint32_t last, uint32_t left, size_t n_text) {
    for (uint32_t c = first; c <= last && !w->stopped; c++) {
        if (!walk_from(w, to, left, n_text + unicode_encode(char_at(c), w->text + n_text))) return false;
    }
    return true;
}

static bool walk_from(struct walk *w, uint32_t state, uint32_t left, size_t n_text) {
    const struct dfa *dfa = w->dfa;
    if (left == 0) {
        if (w->n++ == w->limit) w->stopped = true;
        else if (w->visit && !w->visit(w->user, w->text, n_text)) w->stopped = true;
        return true;
    }
    if (!languages_work(w->all, dfa->n_interval)) return false;
    for (int printable = 1; printable >= 0; printable--) {   /* the printable ASCII characters come first */
        for (uint32_t i = 0; i < dfa->n_interval && !w->stopped; i++) {
            uint32_t to = dfa->next[(size_t)state * dfa->n_class + dfa->class_of[i]];
            uint32_t first = dfa->starts[i], last = i + 1 < dfa->n_interval ? dfa->starts[i + 1] - 1 : N_CHAR - 1;
            if (!w->can[(size_t)(left - 1) * dfa->n_state + to]) continue;
            uint32_t from = first > ' ' ? first : ' ', until = last < '~' ? last : '~';
            bool ok = true;
            if (printable) {
                if (from <= until) ok = walk_chars(w, to, from, until, left - 1, n_text);
            } else {
                if (first < ' ') ok = walk_chars(w, to, first, last < ' ' ? last : ' ' - 1, left - 1, n_text);
                if (ok && last > '~') ok = walk_chars(w, to, first > '~' ? first : '~' + 1, last, left - 1, n_text);
            }
            if (!ok) return false;
        }
    }
    return true;
}

plumb_status language_enumerate(struct languages *all, const struct language *a, uint32_t limit,
                                bool (*visit)(void *user, const char *utf8, size_t n), void *user, uint32_t *n) {
    enum { MAX_LENGTH = 1000 };   /* of the strings, and so of the recursion */
    struct walk w = {.all = all, .dfa = a ? language_dfa(all, a) : NULL, .limit = limit, .visit = visit, .user = user};
    if (!w.dfa) return all->err->status;
    uint32_t n_state = w.dfa->n_state;
    size_t cap = 0;
    uint8_t *can = NULL;
    plumb_status status = PLUMB_OK;
    w.text = languages_temporary(all, MAX_LENGTH + 1, 4);
    if (!w.text) return PLUMB_ERROR_MEMORY;
    for (uint32_t length = 0; !w.stopped; length++) {
        if (length > MAX_LENGTH) {
            status = error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "a language has strings of more than %d characters",
                               MAX_LENGTH);
            break;
        }
        if ((size_t)(length + 1) * n_state > cap) {
            cap = 2 * cap + n_state;
            uint8_t *larger = realloc(can, cap);
            if (!larger) {
                status = languages_no_memory(all);
                break;
            }
            w.can = can = larger;
        }
        uint8_t *now = can + (size_t)length * n_state;
        const uint8_t *before = length == 0 ? now : now - n_state;
        bool some = false;
        if (!languages_work(all, (uint64_t)n_state * w.dfa->n_class)) status = all->err->status;
        for (uint32_t s = 0; s < n_state && status == PLUMB_OK; s++) {
            now[s] = length == 0 && w.dfa->accepts[s];
            for (uint32_t c = 0; c < w.dfa->n_class && length > 0 && !now[s]; c++) {
                now[s] = before[w.dfa->next[(size_t)s * w.dfa->n_class + c]];
            }
            some = some || now[s];
        }
        if (status == PLUMB_OK && now[0] && !walk_from(&w, 0, length, 0)) status = all->err->status;
        if (status != PLUMB_OK || !some) break;   /* a finite language has no longer strings */
    }
    free(can);
    free(w.text);
    *n = w.n;
    return status;
}

/* Trees of languages, sets of characters, and questions about languages. */
#include "grammar/language.h"
#include "base/unicode.h"

#include <stdlib.h>

/* ---- sets of characters ----------------------------------------------------------------------------------------- */

void spans_add_set(struct spans *s, const struct charset *set) {
    if (!set) s->failed = true;
    for (uint32_t i = 0; !s->failed && i < set->n; i++) {
        spans_add(s, char_at(set->spans[i].first), char_at(set->spans[i].last));
    }
}

const struct charset *spans_set(struct languages *all, struct spans *s, bool negated) {
    struct charset *set = NULL;
    spans_join(s, negated);
    if (s->failed) languages_no_memory(all);
    else set = languages_alloc(all, sizeof *set + s->n * sizeof *set->spans, 1);
    if (set) {
        set->n = (uint32_t)s->n;
        if (s->n > 0) memcpy(set->spans, s->data, s->n * sizeof *set->spans);
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

const struct language *language_strings(struct languages *all, const struct slice *utf8, size_t n) {
    if (too_many_parts(all, n)) return NULL;
    const struct language **parts = languages_temporary(all, n, sizeof *parts), *a = NULL;
    if (!parts) return NULL;
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = (parts[i] = language_string(all, utf8[i].data, utf8[i].n)) != NULL;
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

/* Puts the character c behind a prefix. */
struct prefix { uint32_t state, n; char *text; };
static struct prefix longer(const struct prefix *p, uint32_t to, uint32_t c, char *text) {
    memcpy(text, p->text, p->n);
    return (struct prefix){to, p->n + (uint32_t)unicode_encode(char_at(c), text + p->n), text};
}

plumb_status language_enumerate(struct languages *all, const struct language *a, uint32_t limit,
                                bool (*visit)(void *user, const char *utf8, size_t n), void *user, uint32_t *n) {
    enum { MAX_LENGTH = 1000 };
    const struct dfa *dfa = a ? language_dfa(all, a) : NULL;
    const uint32_t *shortest = dfa ? dfa_shortest(all, dfa) : NULL;
    *n = 0;
    if (!shortest) return all->err->status;
    /* The prefixes of one length, and those of the next.  Each begins a string, so limit + 1 of them are enough. */
    const size_t n_prefix = (size_t)limit + 1;
    struct prefix *now = languages_temporary(all, n_prefix, sizeof *now);
    struct prefix *next = languages_temporary(all, n_prefix, sizeof *next);
    char *texts = languages_temporary(all, 2 * (uint64_t)n_prefix, 4 * MAX_LENGTH);
    size_t n_now = shortest[0] != UINT32_MAX, n_next = 0;
    plumb_status status = now && next && texts ? PLUMB_OK : PLUMB_ERROR_MEMORY;
    if (status == PLUMB_OK) now[0] = (struct prefix){0, 0, texts};
    for (uint32_t length = 0; n_now > 0 && status == PLUMB_OK; length++, n_now = n_next) {
        for (size_t i = 0; i < n_now; i++) {
            if (!dfa->accepts[now[i].state]) continue;
            if ((*n)++ == limit || (visit && !visit(user, now[i].text, now[i].n))) goto done;
        }
        n_next = 0;
        for (size_t i = 0; i < n_now && n_next < n_prefix && status == PLUMB_OK; i++) {
            if (!languages_work(all, dfa->n_interval)) status = all->err->status;
            for (uint32_t k = 0; k < dfa->n_interval && status == PLUMB_OK; k++) {
                const uint32_t to = dfa->next[(size_t)now[i].state * dfa->n_class + dfa->class_of[k]];
                const uint32_t end = k + 1 < dfa->n_interval ? dfa->starts[k + 1] : N_CHAR;
                for (uint32_t c = dfa->starts[k]; shortest[to] != UINT32_MAX && c < end && n_next < n_prefix; c++) {
                    char *text = texts + 4 * MAX_LENGTH * ((length + 1) % 2 * n_prefix + n_next);
                    if (length < MAX_LENGTH) next[n_next++] = longer(&now[i], to, c, text);
                    else status = error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "a language has strings of more than %d "
                                            "characters", MAX_LENGTH);
                    if (status != PLUMB_OK) break;
                }
            }
        }
        struct prefix *other = now;
        now = next;
        next = other;
    }
done:
    free(now);
    free(next);
    free(texts);
    return status;
}

/* From trees to deterministic automata, by way of nondeterministic ones.
 *
 * A thread is a state of the nondeterministic automaton and a set of obligations: states of deterministic automata
 * that must accept the rest of the string.  Lookaheads, $ and \b add obligations, so a deterministic state, which is a
 * set of threads, needs no lookahead of its own.
 */
#include "grammar/language.h"

#include <stdlib.h>

enum nfa_kind { NFA_CHARS, NFA_SPLIT, NFA_ASSERT, NFA_ACCEPT };
struct nfa_state {
    enum nfa_kind kind;
    uint32_t a, b;   /* CHARS: the number of a set, the next state; SPLIT: two states; ASSERT: an assertion, a state */
};

/* What an assertion obliges a thread to, by what stands before it. */
enum { OBLIGE_NOTHING = -1, OBLIGE_FAILURE = -2 };   /* or the number of an automaton */
struct assertion { int32_t obliges[N_BEFORE]; };

struct nfa {
    struct languages *all;
    struct nfa_state *states;
    uint32_t n;
    size_t cap;
    const struct charset **sets;      /* (n_set) each once */
    uint32_t n_set;
    size_t cap_set;
    struct hash_index set_index;
    struct assertion *assertions;
    uint32_t n_assertion;
    size_t cap_assertion;
    const struct dfa **automata;      /* of obligations */
    uint32_t n_automaton;
    size_t cap_automaton;
    uint32_t universal;               /* the state of a loop over any characters that accepts; DFA_NO_STATE: none */
    bool knows_words;                 /* there is a \b, so it matters whether a word character was before */
};

/* ---- trees -> nondeterministic automata -------------------------------------------------------------------------- */

static uint32_t add_state(struct nfa *nfa, enum nfa_kind kind, uint32_t a, uint32_t b) {
    if (nfa->n >= LANGUAGE_MAX_STATES) {
        error_set(nfa->all->err, PLUMB_ERROR_UNSUPPORTED, "the automaton has more than %d states", LANGUAGE_MAX_STATES);
        return DFA_NO_STATE;
    }
    struct nfa_state *states = alloc_grow(nfa->states, nfa->n, &nfa->cap, sizeof *states);
    if (!states) {
        languages_no_memory(nfa->all);
        return DFA_NO_STATE;
    }
    nfa->states = states;
    states[nfa->n] = (struct nfa_state){kind, a, b};
    return nfa->n++;
}

static uint64_t hash_set(const void *user, size_t i) {
    const struct charset *set = ((const struct nfa *)user)->sets[i];
    return hash_bytes(set->spans, set->n * sizeof *set->spans);
}

/* A state that reads a character of a set. */
static uint32_t add_chars(struct nfa *nfa, const struct charset *set, uint32_t next) {
    if (!set) return DFA_NO_STATE;
    const struct charset **sets = alloc_grow(nfa->sets, nfa->n_set, &nfa->cap_set, sizeof *sets);
    if (sets) nfa->sets = sets;
    if (!sets || !hash_index_reserve(&nfa->set_index, nfa->n_set, hash_set, nfa)) {
        languages_no_memory(nfa->all);
        return DFA_NO_STATE;
    }
    sets[nfa->n_set] = set;
    size_t slot = hash_index_first(&nfa->set_index, hash_set(nfa, nfa->n_set));
    for (; nfa->set_index.slots[slot] != 0; slot = hash_index_next(&nfa->set_index, slot)) {
        if (charset_equal(sets[nfa->set_index.slots[slot] - 1], set)) break;
    }
    if (nfa->set_index.slots[slot] == 0) nfa->set_index.slots[slot] = ++nfa->n_set;
    return add_state(nfa, NFA_CHARS, nfa->set_index.slots[slot] - 1, next);
}

static const struct charset *one_char(struct languages *all, uint32_t index) {
    struct spans s = {0};
    spans_add(&s, char_at(index), char_at(index));
    return spans_set(all, &s, false);
}

/* Returns the number of an automaton of obligations, OBLIGE_NOTHING or OBLIGE_FAILURE; INT32_MIN on failure. */
static int32_t oblige(struct nfa *nfa, const struct dfa *dfa) {
    if (!dfa) return INT32_MIN;
    if (dfa->all == 0) return OBLIGE_NOTHING;
    if (dfa->dead == 0) return OBLIGE_FAILURE;
    for (uint32_t i = 0; i < nfa->n_automaton; i++) {
        if (dfa_equal(nfa->automata[i], dfa)) return (int32_t)i;
    }
    const struct dfa **automata = alloc_grow(nfa->automata, nfa->n_automaton, &nfa->cap_automaton, sizeof *automata);
    if (!automata) {
        languages_no_memory(nfa->all);
        return INT32_MIN;
    }
    nfa->automata = automata;
    automata[nfa->n_automaton] = dfa;
    return (int32_t)nfa->n_automaton++;
}

/* Whatever begins with a, or does not. */
static const struct dfa *begins_with(struct languages *all, const struct language *a, enum before before, bool does) {
    const struct language *whole = language_concat(all, a, language_any(all));
    const struct dfa *dfa = whole ? language_dfa_after(all, whole, before) : NULL;
    return dfa && !does ? dfa_complement(all, dfa) : dfa;
}

static uint32_t add_assertion(struct nfa *nfa, const struct language *a, uint32_t next) {
    struct languages *all = nfa->all;
    struct assertion assertion;
    for (int before = 0; before < N_BEFORE; before++) {
        int32_t *obliges = &assertion.obliges[before];
        bool at_word = before == BEFORE_WORD;
        if (a->kind == LANGUAGE_START) {
            *obliges = before == BEFORE_NOTHING ? OBLIGE_NOTHING : OBLIGE_FAILURE;
        } else if (a->kind == LANGUAGE_END) {
            const struct language *nothing = language_chars(all, NULL, 0);
            *obliges = oblige(nfa, nothing ? language_dfa(all, nothing) : NULL);
        } else if (a->kind == LANGUAGE_BOUNDARY || a->kind == LANGUAGE_NO_BOUNDARY) {
            bool word = (a->kind == LANGUAGE_BOUNDARY) != at_word;
            *obliges = oblige(nfa, begins_with(all, language_set(all, charset_word(all)), BEFORE_NOTHING, word));
        } else if (before > 0 && !a->parts[0]->asserts) {
            *obliges = assertion.obliges[0];   /* it does not depend on what stands before it */
        } else {
            *obliges = oblige(nfa, begins_with(all, a->parts[0], (enum before)before, a->kind == LANGUAGE_AHEAD));
        }
        if (*obliges == INT32_MIN) return DFA_NO_STATE;
    }
    if (assertion.obliges[BEFORE_WORD] != assertion.obliges[BEFORE_OTHER]) nfa->knows_words = true;
    struct assertion *more = alloc_grow(nfa->assertions, nfa->n_assertion, &nfa->cap_assertion, sizeof *more);
    if (!more) {
        languages_no_memory(all);
        return DFA_NO_STATE;
    }
    nfa->assertions = more;
    more[nfa->n_assertion] = assertion;
    return add_state(nfa, NFA_ASSERT, nfa->n_assertion++, next);
}

/* The states of a deterministic automaton, each a list of alternatives. */
static uint32_t add_dfa(struct nfa *nfa, const struct dfa *dfa, uint32_t next) {
    if (!dfa) return DFA_NO_STATE;
    struct languages *all = nfa->all;
    uint32_t n = dfa->n_state, first = nfa->n, result = DFA_NO_STATE;
    for (uint32_t s = 0; s < n; s++) {
        if (add_state(nfa, NFA_SPLIT, DFA_NO_STATE, DFA_NO_STATE) == DFA_NO_STATE) return DFA_NO_STATE;
    }
    struct spans *to = languages_temporary(all, n, sizeof *to);
    if (!to) return DFA_NO_STATE;
    memset(to, 0, n * sizeof *to);
    for (uint32_t s = 0; s < n; s++) {
        if (!languages_work(all, (uint64_t)dfa->n_interval + n)) goto done;
        for (uint32_t i = 0; i < dfa->n_interval; i++) {
            uint32_t last = i + 1 < dfa->n_interval ? dfa->starts[i + 1] - 1 : N_CHAR - 1;
            uint32_t target = dfa->next[(size_t)s * dfa->n_class + dfa->class_of[i]];
            if (target != dfa->dead) spans_add(&to[target], char_at(dfa->starts[i]), char_at(last));
        }
        uint32_t list = dfa->accepts[s] ? next : DFA_NO_STATE;
        for (uint32_t t = 0; t < n; t++) {
            if (to[t].n == 0 && !to[t].failed) continue;
            uint32_t reads = add_chars(nfa, spans_set(all, &to[t], false), first + t);
            if (reads == DFA_NO_STATE) goto done;
            list = add_state(nfa, NFA_SPLIT, reads, list);
            if (list == DFA_NO_STATE) goto done;
        }
        nfa->states[first + s].a = list;   /* b remains DFA_NO_STATE, which is no state */
    }
    result = first;
done:
    for (uint32_t s = 0; s < n; s++) free(to[s].data);
    free(to);
    return result;
}

/* Adds the states of a tree and returns the first of them; `next` is what follows.  DFA_NO_STATE on failure. */
static uint32_t build(struct nfa *nfa, const struct language *a, uint32_t next) {
    struct languages *all = nfa->all;
    uint32_t state = next;
    if (!languages_work(all, 1)) return DFA_NO_STATE;
    switch (a->kind) {
    case LANGUAGE_STRING:
        for (uint32_t i = a->n; i-- > 0 && state != DFA_NO_STATE;) {
            state = add_chars(nfa, one_char(all, a->chars[i]), state);
        }
        return state;
    case LANGUAGE_SET:
        return add_chars(nfa, a->set, next);
    case LANGUAGE_CONCAT:
        for (uint32_t i = a->n; i-- > 0 && state != DFA_NO_STATE;) state = build(nfa, a->parts[i], state);
        return state;
    case LANGUAGE_UNION:
        state = add_state(nfa, NFA_SPLIT, DFA_NO_STATE, DFA_NO_STATE);   /* it leads nowhere */
        for (uint32_t i = a->n; i-- > 0 && state != DFA_NO_STATE;) {
            uint32_t part = build(nfa, a->parts[i], next);
            state = part == DFA_NO_STATE ? part : add_state(nfa, NFA_SPLIT, part, state);
        }
        return state;
    case LANGUAGE_REPEAT: {
        if (a->most == LANGUAGE_UNBOUNDED) {
            uint32_t loop = state = add_state(nfa, NFA_SPLIT, DFA_NO_STATE, next);
            uint32_t body = loop == DFA_NO_STATE ? loop : build(nfa, a->parts[0], loop);
            if (body == DFA_NO_STATE) return body;
            nfa->states[loop].a = body;
            if (a == all->any && nfa->states[next].kind == NFA_ACCEPT) nfa->universal = loop;
        }
        for (int64_t i = a->least; i < a->most && state != DFA_NO_STATE; i++) {
            uint32_t body = build(nfa, a->parts[0], state);
            state = body == DFA_NO_STATE ? body : add_state(nfa, NFA_SPLIT, body, next);
        }
        for (int64_t i = 0; i < a->least && state != DFA_NO_STATE; i++) state = build(nfa, a->parts[0], state);
        return state;
    }
    case LANGUAGE_AUTOMATON:
    case LANGUAGE_INTERSECT:
    case LANGUAGE_COMPLEMENT:
        return add_dfa(nfa, language_dfa(all, a), next);
    default:
        return add_assertion(nfa, a, next);
    }
}

/* ---- classes of characters --------------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int by_thread(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Fills the intervals of the automaton: its classes are the largest sets of intervals that no set and no automaton of
 * obligations tells apart. */
static bool make_classes(struct nfa *nfa, struct dfa *out) {
    struct languages *all = nfa->all;
    struct sequences signatures = {0};
    uint64_t n = 1;
    const struct charset *word = nfa->knows_words ? charset_word(all) : NULL;
    if (nfa->knows_words && !word) return false;
    for (uint32_t i = 0; i < nfa->n_set; i++) n += 2 * (uint64_t)nfa->sets[i]->n;
    for (uint32_t i = 0; i < nfa->n_automaton; i++) n += nfa->automata[i]->n_interval;
    if (word) n += 2 * word->n;
    out->starts = languages_temporary(all, n, sizeof *out->starts);
    out->class_of = languages_temporary(all, n, sizeof *out->class_of);
    /* the sets that contain the interval as bits, and its class in each automaton */
    uint32_t n_word = nfa->n_set / 64 + 1, n_signature = n_word + nfa->n_automaton;
    uint64_t *signature = languages_temporary(all, n_signature, sizeof *signature);
    uint32_t *at = languages_temporary(all, nfa->n_set, sizeof *at), n_start = 0;
    bool ok = out->starts && out->class_of && signature && at;
    if (!ok) goto done;
    out->starts[n_start++] = 0;
    for (uint32_t i = 0; i <= nfa->n_set; i++) {
        const struct charset *set = i < nfa->n_set ? nfa->sets[i] : word;
        for (uint32_t j = 0; set && j < set->n; j++) {
            out->starts[n_start++] = set->spans[j].first;
            if (set->spans[j].last + 1 < N_CHAR) out->starts[n_start++] = set->spans[j].last + 1;
        }
    }
    for (uint32_t i = 0; i < nfa->n_automaton; i++) {
        const struct dfa *dfa = nfa->automata[i];
        memcpy(out->starts + n_start, dfa->starts, dfa->n_interval * sizeof *dfa->starts);
        n_start += dfa->n_interval;
    }
    qsort(out->starts, n_start, sizeof *out->starts, by_number);
    memset(at, 0, nfa->n_set * sizeof *at);
    for (uint32_t i = 0; ok && i < n_start; i++) {
        uint32_t start = out->starts[i];
        if (i > 0 && start == out->starts[out->n_interval - 1]) continue;
        ok = languages_work(all, (uint64_t)n_signature + nfa->n_set);
        memset(signature, 0, n_signature * sizeof *signature);
        for (uint32_t j = 0; j < nfa->n_set; j++) {
            const struct charset *set = nfa->sets[j];
            while (at[j] < set->n && set->spans[at[j]].last < start) at[j]++;
            if (at[j] < set->n && set->spans[at[j]].first <= start) signature[j / 64] |= (uint64_t)1 << j % 64;
        }
        for (uint32_t j = 0; word && j < word->n; j++) {
            bool in = start >= word->spans[j].first && start <= word->spans[j].last;
            signature[nfa->n_set / 64] |= (uint64_t)in << nfa->n_set % 64;
        }
        for (uint32_t j = 0; j < nfa->n_automaton; j++) signature[n_word + j] = dfa_class(nfa->automata[j], start);
        uint32_t class = ok ? sequences_id(all, &signatures, signature, n_signature) : UINT32_MAX;
        if (class == UINT32_MAX || class >= DFA_MAX_CLASSES) {
            if (class != UINT32_MAX) {
                error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the automaton has more than %d classes of characters",
                          DFA_MAX_CLASSES);
            }
            ok = false;
            break;
        }
        out->starts[out->n_interval] = start;
        out->class_of[out->n_interval++] = (uint16_t)class;
    }
    out->n_class = (uint32_t)signatures.n;
done:
    sequences_free(&signatures);
    free(signature);
    free(at);
    return ok;
}

/* ---- subsets ----------------------------------------------------------------------------------------------------- */

struct subsets {
    struct nfa *nfa;
    struct dfa out;
    struct sequences states;        /* sets of threads: state << 32 | number of a set of obligations */
    struct sequences obligations;   /* number of an automaton << 32 | its state; set 0 is empty */
    uint8_t *members;               /* (n_set, n_class) */
    uint32_t *classes;              /* (n_automaton, n_class) its class */
    uint8_t *words;                 /* (n_class) */
    uint64_t *threads, *stack, *seen;
    uint32_t *stamps, stamp;
    size_t n_thread, cap_thread, n_stack, cap_stack, n_seen, n_slot;
    uint64_t *list;                 /* a set of obligations while it is made */
    size_t n_list, cap_list;
};

static bool push(struct subsets *s, uint64_t **items, size_t *n, size_t *cap, uint64_t item) {
    uint64_t *larger = alloc_grow(*items, *n, cap, sizeof *larger);
    if (!larger) return languages_no_memory(s->nfa->all) == PLUMB_OK;
    *items = larger;
    larger[(*n)++] = item;
    return true;
}

/* Remembers a thread; *is_new: it was not remembered since stamp changed. */
static bool remember(struct subsets *s, uint64_t thread, bool *is_new) {
    if (2 * (s->n_seen + 1) > s->n_slot) {
        size_t n = s->n_slot ? 2 * s->n_slot : 256;
        uint64_t *seen = languages_temporary(s->nfa->all, n, sizeof *seen);
        uint32_t *stamps = languages_temporary(s->nfa->all, n, sizeof *stamps);
        if (!seen || !stamps) {
            free(seen);
            free(stamps);
            return false;
        }
        memset(stamps, 0, n * sizeof *stamps);
        for (size_t i = 0; i < s->n_slot; i++) {
            if (s->stamps[i] != s->stamp) continue;
            size_t j = (s->seen[i] * 0x9e3779b97f4a7c15u >> 32) & (n - 1);
            while (stamps[j] == s->stamp) j = (j + 1) & (n - 1);
            seen[j] = s->seen[i];
            stamps[j] = s->stamp;
        }
        free(s->seen);
        free(s->stamps);
        s->seen = seen;
        s->stamps = stamps;
        s->n_slot = n;
    }
    size_t i = (thread * 0x9e3779b97f4a7c15u >> 32) & (s->n_slot - 1);
    for (; s->stamps[i] == s->stamp; i = (i + 1) & (s->n_slot - 1)) {
        if (s->seen[i] == thread) return *is_new = false, true;
    }
    s->seen[i] = thread;
    s->stamps[i] = s->stamp;
    s->n_seen++;
    *is_new = true;
    return true;
}

/* Sorts s->list and returns the number of the set. */
static uint32_t list_id(struct subsets *s) {
    size_t n = 0;
    if (s->n_list > 1) qsort(s->list, s->n_list, sizeof *s->list, by_thread);
    for (size_t i = 0; i < s->n_list; i++) {
        if (n == 0 || s->list[i] != s->list[n - 1]) s->list[n++] = s->list[i];
    }
    return sequences_id(s->nfa->all, &s->obligations, s->list, n);
}

/* Adds an obligation to a set. */
static bool add_obligation(struct subsets *s, uint32_t *set, uint32_t automaton) {
    s->n_list = 0;
    for (size_t i = s->obligations.begin[*set]; i < s->obligations.begin[*set + 1]; i++) {
        if (!push(s, &s->list, &s->n_list, &s->cap_list, s->obligations.items[i])) return false;
    }
    if (!push(s, &s->list, &s->n_list, &s->cap_list, (uint64_t)automaton << 32)) return false;
    return (*set = list_id(s)) != UINT32_MAX;
}

/* The set after a character; *fails: one of its obligations can no longer be met. */
static bool advance(struct subsets *s, uint32_t *set, uint32_t class, bool *fails) {
    const struct nfa *nfa = s->nfa;
    *fails = false;
    if (*set == 0) return true;
    s->n_list = 0;
    size_t begin = s->obligations.begin[*set], end = s->obligations.begin[*set + 1];
    if (!languages_work(nfa->all, end - begin)) return false;
    for (size_t i = begin; i < end; i++) {
        uint32_t automaton = (uint32_t)(s->obligations.items[i] >> 32), state = (uint32_t)s->obligations.items[i];
        const struct dfa *dfa = nfa->automata[automaton];
        uint32_t its_class = s->classes[(size_t)automaton * s->out.n_class + class];
        state = dfa->next[(size_t)state * dfa->n_class + its_class];
        if (state == dfa->dead) {
            *fails = true;
            return true;
        }
        if (state == dfa->all) continue;
        if (!push(s, &s->list, &s->n_list, &s->cap_list, (uint64_t)automaton << 32 | state)) return false;
    }
    return (*set = list_id(s)) != UINT32_MAX;
}

static bool may_end(const struct subsets *s, uint32_t set) {
    for (size_t i = s->obligations.begin[set]; i < s->obligations.begin[set + 1]; i++) {
        uint64_t item = s->obligations.items[i];
        if (!s->nfa->automata[item >> 32]->accepts[(uint32_t)item]) return false;
    }
    return true;
}

/* Follows the threads on the stack to states that read characters or accept.  Returns the deterministic state,
 * UINT32_MAX on failure. */
static uint32_t close_threads(struct subsets *s, enum before before) {
    struct nfa *nfa = s->nfa;
    bool is_new, accepts = false;
    s->n_thread = s->n_seen = 0;
    s->stamp++;
    while (s->n_stack > 0) {
        uint64_t thread = s->stack[--s->n_stack];
        uint32_t state = (uint32_t)(thread >> 32), set = (uint32_t)thread;
        if (!remember(s, thread, &is_new) || !languages_work(nfa->all, 1)) return UINT32_MAX;
        if (!is_new) continue;
        const struct nfa_state *q = &nfa->states[state];
        if (state == nfa->universal && set == 0) {   /* all strings are accepted from here, whatever the others do */
            s->n_stack = s->n_thread = 0;
            accepts = true;
            if (!push(s, &s->threads, &s->n_thread, &s->cap_thread, (uint64_t)q->a << 32)) return UINT32_MAX;
            break;
        }
        switch (q->kind) {
        case NFA_SPLIT:
            if (q->a != DFA_NO_STATE &&
                !push(s, &s->stack, &s->n_stack, &s->cap_stack, (uint64_t)q->a << 32 | set)) return UINT32_MAX;
            if (q->b != DFA_NO_STATE &&
                !push(s, &s->stack, &s->n_stack, &s->cap_stack, (uint64_t)q->b << 32 | set)) return UINT32_MAX;
            break;
        case NFA_ASSERT: {
            int32_t obliges = nfa->assertions[q->a].obliges[before];
            if (obliges == OBLIGE_FAILURE) break;
            if (obliges != OBLIGE_NOTHING && !add_obligation(s, &set, (uint32_t)obliges)) return UINT32_MAX;
            if (!push(s, &s->stack, &s->n_stack, &s->cap_stack, (uint64_t)q->b << 32 | set)) return UINT32_MAX;
            break;
        }
        default:
            if (!push(s, &s->threads, &s->n_thread, &s->cap_thread, thread)) return UINT32_MAX;
        }
    }
    if (s->n_thread > 1) qsort(s->threads, s->n_thread, sizeof *s->threads, by_thread);
    size_t n = 0;
    for (size_t i = 0; i < s->n_thread; i++) {
        uint64_t thread = s->threads[i], state = thread >> 32;
        /* a thread without obligations, which sorts first, does all that others in its state do */
        if (n > 0 && s->threads[n - 1] == state << 32) continue;
        if (nfa->states[state].kind == NFA_ACCEPT) accepts = accepts || may_end(s, (uint32_t)thread);
        else s->threads[n++] = thread;
    }
    /* states that accept have a last item of their own */
    if (accepts && !push(s, &s->threads, &n, &s->cap_thread, UINT64_MAX)) return UINT32_MAX;
    return sequences_id(nfa->all, &s->states, s->threads, n);
}

/* Fills what each set, each automaton of obligations and \w make of each class. */
static bool describe_classes(struct subsets *s) {
    const struct nfa *nfa = s->nfa;
    uint32_t k = s->out.n_class;
    if ((uint64_t)nfa->n_set * k > 4 * (uint64_t)DFA_MAX_CELLS || (uint64_t)nfa->n_automaton * k > DFA_MAX_CELLS) {
        error_set(nfa->all->err, PLUMB_ERROR_UNSUPPORTED, "the automaton has %u sets and %u classes of characters, too "
                  "many", (unsigned)nfa->n_set, (unsigned)k);
        return false;
    }
    s->members = languages_temporary(nfa->all, (uint64_t)nfa->n_set * k, 1);
    s->classes = languages_temporary(nfa->all, (uint64_t)nfa->n_automaton * k, sizeof *s->classes);
    s->words = languages_temporary(nfa->all, k, 1);
    if (!s->members || !s->classes || !s->words) return false;
    uint32_t described = 0;
    for (uint32_t i = 0; i < s->out.n_interval && described < k; i++) {
        if (s->out.class_of[i] != described) continue;   /* classes are numbered by their first intervals */
        uint32_t start = s->out.starts[i], cp = char_at(start), c = described++;
        if (!languages_work(nfa->all, nfa->n_set)) return false;
        s->words[c] = (cp >= '0' && cp <= '9') || (cp >= 'A' && cp <= 'Z') || cp == '_' || (cp >= 'a' && cp <= 'z');
        for (uint32_t j = 0; j < nfa->n_set; j++) {
            const struct charset *set = nfa->sets[j];
            uint32_t low = 0, high = set->n;
            while (low < high) {   /* the first span that ends at start or later */
                uint32_t middle = (low + high) / 2;
                if (set->spans[middle].last < start) low = middle + 1;
                else high = middle;
            }
            s->members[(size_t)j * k + c] = low < set->n && set->spans[low].first <= start;
        }
        for (uint32_t j = 0; j < nfa->n_automaton; j++) {
            s->classes[(size_t)j * k + c] = dfa_class(nfa->automata[j], start);
        }
    }
    return true;
}

static bool make_states(struct subsets *s, uint32_t start, enum before before) {
    const struct nfa *nfa = s->nfa;
    struct languages *all = nfa->all;
    struct dfa *out = &s->out;
    uint32_t k = out->n_class;
    size_t cap = 0;
    if (sequences_id(all, &s->obligations, NULL, 0) == UINT32_MAX) return false;
    if (!push(s, &s->stack, &s->n_stack, &s->cap_stack, (uint64_t)start << 32)) return false;
    if (close_threads(s, before) == UINT32_MAX) return false;
    for (uint32_t i = 0; i < s->states.n; i++) {
        if (s->states.n > LANGUAGE_MAX_STATES || s->states.n * (uint64_t)k > DFA_MAX_CELLS) {
            error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the automaton has %zu states or more and %u classes of "
                      "characters, too many", s->states.n, (unsigned)k);
            return false;
        }
        if (!dfa_reserve(all, out, i, &cap)) return false;
        size_t n = s->states.begin[i + 1] - s->states.begin[i];
        bool accepting = n > 0 && s->states.items[s->states.begin[i + 1] - 1] == UINT64_MAX;
        out->accepts[i] = accepting;
        n -= accepting;
        for (uint32_t c = 0; c < k; c++) {
            if (!languages_work(all, n + 1)) return false;
            s->n_stack = 0;
            for (size_t j = 0; j < n; j++) {
                uint64_t thread = s->states.items[s->states.begin[i] + j];
                const struct nfa_state *q = &nfa->states[thread >> 32];
                uint32_t set = (uint32_t)thread;
                bool fails;
                if (q->kind != NFA_CHARS || !s->members[(size_t)q->a * k + c]) continue;
                if (!advance(s, &set, c, &fails)) return false;
                if (!fails && !push(s, &s->stack, &s->n_stack, &s->cap_stack, (uint64_t)q->b << 32 | set)) return false;
            }
            uint32_t to = close_threads(s, nfa->knows_words && s->words[c] ? BEFORE_WORD : BEFORE_OTHER);
            if (to == UINT32_MAX) return false;
            out->next[(size_t)i * k + c] = to;
        }
    }
    out->n_state = (uint32_t)s->states.n;
    return true;
}

/* ---- the automaton of a tree ------------------------------------------------------------------------------------- */

static const struct dfa *determinize(struct languages *all, const struct language *a, enum before before) {
    struct nfa nfa = {.all = all, .universal = DFA_NO_STATE};
    struct subsets s = {.nfa = &nfa};
    const struct dfa *dfa = NULL;
    if (a->n_state > LANGUAGE_MAX_STATES) {
        error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the automaton has %llu states; at most %d are supported",
                  (unsigned long long)a->n_state, LANGUAGE_MAX_STATES);
        return NULL;
    }
    uint32_t accept = add_state(&nfa, NFA_ACCEPT, DFA_NO_STATE, DFA_NO_STATE);
    uint32_t start = accept == DFA_NO_STATE ? accept : build(&nfa, a, accept);
    if (start != DFA_NO_STATE && make_classes(&nfa, &s.out) && describe_classes(&s) &&
        make_states(&s, start, before)) {
        dfa = dfa_minimize(all, &s.out);
    }
    sequences_free(&s.states);
    sequences_free(&s.obligations);
    void *arrays[] = {nfa.states, nfa.sets, nfa.set_index.slots, nfa.assertions, nfa.automata, s.out.starts,
                      s.out.class_of, s.out.next, s.out.accepts, s.members, s.classes, s.words, s.threads, s.stack,
                      s.seen, s.stamps, s.list};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    return dfa;
}

const struct dfa *language_dfa_after(struct languages *all, const struct language *a, enum before before) {
    return a->asserts ? determinize(all, a, before) : language_dfa(all, a);
}

const struct dfa *language_dfa(struct languages *all, const struct language *a) {
    if (a->dfa) return a->dfa;
    const struct dfa *dfa, *other;
    switch (a->kind) {
    case LANGUAGE_AUTOMATON:
        dfa = determinize(all, a->parts[0], BEFORE_NOTHING);
        break;
    case LANGUAGE_COMPLEMENT:
        dfa = language_dfa(all, a->parts[0]);
        if (dfa) dfa = dfa_complement(all, dfa);
        break;
    case LANGUAGE_INTERSECT:
        dfa = language_dfa(all, a->parts[0]);
        other = dfa ? language_dfa(all, a->parts[1]) : NULL;
        dfa = other ? dfa_intersect(all, dfa, other) : NULL;
        break;
    default:
        dfa = determinize(all, a, BEFORE_NOTHING);
    }
    /* the one field of a language that changes: what it is remains the same */
    if (dfa) ((struct language *)(uintptr_t)a)->dfa = dfa;
    return dfa;
}

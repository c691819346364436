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

static uint32_t no_memory(struct nfa *nfa) {
    languages_no_memory(nfa->all);
    return DFA_NO_STATE;
}

static uint32_t add_state(struct nfa *nfa, enum nfa_kind kind, uint32_t a, uint32_t b) {
    if (nfa->n >= LANGUAGE_MAX_STATES) {
        error_set(nfa->all->err, PLUMB_ERROR_UNSUPPORTED, "the automaton has more than %d states", LANGUAGE_MAX_STATES);
        return DFA_NO_STATE;
    }
    if (!ARRAY_GROW(nfa->states, nfa->n, &nfa->cap)) return no_memory(nfa);
    nfa->states[nfa->n] = (struct nfa_state){kind, a, b};
    return nfa->n++;
}

static uint64_t hash_set(const void *user, size_t i) {
    const struct charset *set = ((const struct nfa *)user)->sets[i];
    return hash_bytes(set->spans, set->n * sizeof *set->spans);
}

/* A state that reads a character of a set. */
static uint32_t add_chars(struct nfa *nfa, const struct charset *set, uint32_t next) {
    if (!set) return DFA_NO_STATE;
    if (!ARRAY_GROW(nfa->sets, nfa->n_set, &nfa->cap_set)) return no_memory(nfa);
    if (!hash_index_reserve(&nfa->set_index, nfa->n_set, hash_set, nfa)) return no_memory(nfa);
    nfa->sets[nfa->n_set] = set;
    size_t slot = hash_index_first(&nfa->set_index, hash_set(nfa, nfa->n_set));
    for (; nfa->set_index.slots[slot] != 0; slot = hash_index_next(&nfa->set_index, slot)) {
        if (charset_equal(nfa->sets[nfa->set_index.slots[slot] - 1], set)) break;
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
    if (!ARRAY_GROW(nfa->automata, nfa->n_automaton, &nfa->cap_automaton)) {
        languages_no_memory(nfa->all);
        return INT32_MIN;
    }
    nfa->automata[nfa->n_automaton] = dfa;
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
    if (!ARRAY_GROW(nfa->assertions, nfa->n_assertion, &nfa->cap_assertion)) return no_memory(nfa);
    nfa->assertions[nfa->n_assertion] = assertion;
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
    qsort(out->starts, n_start, sizeof *out->starts, compare_u32);
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
    struct items { uint64_t *data; size_t n, cap; } threads, stack;
    struct key_set seen;            /* the threads that were followed to a state */
    struct items list;              /* a set of obligations while it is made */
};

static bool push(struct subsets *s, struct items *to, uint64_t item) {
    if (!ARRAY_GROW(to->data, to->n, &to->cap)) return languages_no_memory(s->nfa->all) == PLUMB_OK;
    to->data[to->n++] = item;
    return true;
}

/* Puts a state with a set of obligations on the stack. */
static bool push_thread(struct subsets *s, uint32_t state, uint32_t set) {
    return push(s, &s->stack, (uint64_t)state << 32 | set);
}

/* Sorts s->list and returns the number of the set. */
static uint32_t list_id(struct subsets *s) {
    size_t n = 0;
    uint64_t *list = s->list.data;
    if (s->list.n > 1) qsort(list, s->list.n, sizeof *list, compare_u64);
    for (size_t i = 0; i < s->list.n; i++) {
        if (n == 0 || list[i] != list[n - 1]) list[n++] = list[i];
    }
    return sequences_id(s->nfa->all, &s->obligations, list, n);
}

/* Adds an obligation to a set. */
static bool add_obligation(struct subsets *s, uint32_t *set, uint32_t automaton) {
    s->list.n = 0;
    for (size_t i = s->obligations.begin[*set]; i < s->obligations.begin[*set + 1]; i++) {
        if (!push(s, &s->list, s->obligations.items[i])) return false;
    }
    if (!push(s, &s->list, (uint64_t)automaton << 32)) return false;
    return (*set = list_id(s)) != UINT32_MAX;
}

/* The set after a character; *fails: one of its obligations can no longer be met. */
static bool advance(struct subsets *s, uint32_t *set, uint32_t class, bool *fails) {
    const struct nfa *nfa = s->nfa;
    *fails = false;
    if (*set == 0) return true;
    s->list.n = 0;
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
        if (!push(s, &s->list, (uint64_t)automaton << 32 | state)) return false;
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
    bool accepts = false;
    s->threads.n = 0;
    key_set_clear(&s->seen);
    while (s->stack.n > 0) {
        const uint64_t thread = s->stack.data[--s->stack.n];
        const size_t n_seen = s->seen.n;
        uint32_t state = (uint32_t)(thread >> 32), set = (uint32_t)thread;
        if (key_set_number(&s->seen, thread) == UINT32_MAX) return no_memory(nfa);
        if (!languages_work(nfa->all, 1)) return UINT32_MAX;
        if (s->seen.n == n_seen) continue;
        const struct nfa_state *q = &nfa->states[state];
        if (state == nfa->universal && set == 0) {   /* all strings are accepted from here, whatever the others do */
            s->stack.n = s->threads.n = 0;
            accepts = true;
            if (!push(s, &s->threads, (uint64_t)q->a << 32)) return UINT32_MAX;
            break;
        }
        switch (q->kind) {
        case NFA_SPLIT:
            if (q->a != DFA_NO_STATE && !push_thread(s, q->a, set)) return UINT32_MAX;
            if (q->b != DFA_NO_STATE && !push_thread(s, q->b, set)) return UINT32_MAX;
            break;
        case NFA_ASSERT: {
            int32_t obliges = nfa->assertions[q->a].obliges[before];
            if (obliges == OBLIGE_FAILURE) break;
            if (obliges != OBLIGE_NOTHING && !add_obligation(s, &set, (uint32_t)obliges)) return UINT32_MAX;
            if (!push_thread(s, q->b, set)) return UINT32_MAX;
            break;
        }
        default:
            if (!push(s, &s->threads, thread)) return UINT32_MAX;
        }
    }
    uint64_t *threads = s->threads.data;
    size_t n = 0;
    if (s->threads.n > 1) qsort(threads, s->threads.n, sizeof *threads, compare_u64);
    for (size_t i = 0; i < s->threads.n; i++) {
        uint64_t thread = threads[i], state = thread >> 32;
        /* a thread without obligations, which sorts first, does all that others in its state do */
        if (n > 0 && threads[n - 1] == state << 32) continue;
        if (nfa->states[state].kind == NFA_ACCEPT) accepts = accepts || may_end(s, (uint32_t)thread);
        else threads[n++] = thread;
    }
    s->threads.n = n;
    /* states that accept have a last item of their own */
    if (accepts && !push(s, &s->threads, UINT64_MAX)) return UINT32_MAX;
    return sequences_id(nfa->all, &s->states, s->threads.data, s->threads.n);
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
    if (!push_thread(s, start, 0)) return false;
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
            s->stack.n = 0;
            for (size_t j = 0; j < n; j++) {
                uint64_t thread = s->states.items[s->states.begin[i] + j];
                const struct nfa_state *q = &nfa->states[thread >> 32];
                uint32_t set = (uint32_t)thread;
                bool fails;
                if (q->kind != NFA_CHARS || !s->members[(size_t)q->a * k + c]) continue;
                if (!advance(s, &set, c, &fails)) return false;
                if (!fails && !push_thread(s, q->b, set)) return false;
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
                      s.out.class_of, s.out.next, s.out.accepts, s.members, s.classes, s.words, s.threads.data,
                      s.stack.data, s.seen.slots, s.list.data};
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

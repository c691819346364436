/* Deterministic automata: minimization by Hopcroft's method, intersection, complement. */
#include "grammar/dfa.h"

#include <stdlib.h>

/* ---- memory and work -------------------------------------------------------------------------------------------- */

plumb_status languages_no_memory(struct languages *all) {
    return error_set(all->err, PLUMB_ERROR_MEMORY, "out of memory in a regular language");
}

void *languages_alloc(struct languages *all, uint64_t n, size_t size) {
    void *p = arena_alloc(&all->arena, n, size);
    if (!p && !all->arena.is_full) languages_no_memory(all);
    else if (!p) error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the regular languages take more than %d MB",
                           LANGUAGE_MAX_BYTES >> 20);
    return p;
}

void *languages_temporary(struct languages *all, uint64_t n, size_t size) {
    void *p = alloc_array(n, size);
    if (!p) languages_no_memory(all);
    return p;
}

bool languages_work(struct languages *all, uint64_t n_step) {
    all->n_step += n_step;
    if (all->n_step <= LANGUAGE_MAX_STEPS) return true;
    error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "making an automaton takes more than %d steps", LANGUAGE_MAX_STEPS);
    return false;
}

struct languages *languages_create(struct error *err) {
    struct languages *all = calloc(1, sizeof *all);
    if (!all) error_set(err, PLUMB_ERROR_MEMORY, "out of memory in a regular language");
    else *all = (struct languages){.err = err, .arena.limit = LANGUAGE_MAX_BYTES};
    return all;
}

void languages_free(struct languages *all) {
    if (!all) return;
    arena_free(&all->arena);
    free(all);
}

uint32_t sequences_failed(struct languages *all, bool is_full) {
    if (!is_full) languages_no_memory(all);
    else error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the states of an automaton have more than %d parts",
                   DFA_MAX_CELLS);
    return UINT32_MAX;
}

/* ---- minimization ----------------------------------------------------------------------------------------------- */

/* Blocks of states that are not yet told apart.  Block b has the states elements[first[b] .. end[b]), of which the
 * first marked[b] go to the block that splits now. */
struct partition {
    uint32_t *elements, *place, *block_of, *first, *end, *marked;
    uint32_t n;
};

static void mark(struct partition *p, uint32_t state, uint32_t *touched, uint32_t *n_touched) {
    uint32_t block = p->block_of[state], to = p->first[block] + p->marked[block], from = p->place[state];
    if (from < to) return;   /* it is marked */
    if (p->marked[block]++ == 0) touched[(*n_touched)++] = block;
    uint32_t other = p->elements[to];
    p->elements[to] = state;
    p->place[state] = to;
    p->elements[from] = other;
    p->place[other] = from;
}

/* Moves the smaller part of a block, the marked states or the others, to a new one.  Returns the new block, UINT32_MAX
 * if all states of the block are marked. */
static uint32_t split(struct partition *p, uint32_t block) {
    uint32_t first = p->first[block], end = p->end[block], middle = first + p->marked[block], made = p->n;
    p->marked[block] = 0;
    if (middle == end) return UINT32_MAX;
    if (middle - first <= end - middle) {
        p->first[block] = middle;
        end = middle;
    } else {
        p->end[block] = middle;
        first = middle;
    }
    p->first[made] = first;
    p->end[made] = end;
    p->marked[made] = 0;
    for (uint32_t i = first; i < end; i++) p->block_of[p->elements[i]] = made;
    return p->n++;
}

/* Hopcroft, "An n log n algorithm for minimizing states in a finite automaton" (1971).  A waiting block splits the
 * others by the classes that lead into it; of a block that is split, the smaller part waits. */
static bool refine(struct languages *all, const struct dfa *a, struct partition *p, uint32_t *memory) {
    uint32_t n = a->n_state, k = a->n_class, n_touched, n_waiting = 0;
    uint32_t *inverse = memory, *begin = memory + (size_t)n * k, *waiting = begin + (size_t)n * k + 1;
    uint32_t *touched = waiting + n, *splitter = touched + n;
    memset(begin, 0, ((size_t)n * k + 1) * sizeof *begin);
    for (uint32_t s = 0; s < n; s++) {
        for (uint32_t c = 0; c < k; c++) begin[(size_t)c * n + a->next[(size_t)s * k + c] + 1]++;
    }
    for (size_t i = 0; i < (size_t)n * k; i++) begin[i + 1] += begin[i];
    for (uint32_t s = n; s-- > 0;) {   /* begin[i + 1] moves down to the begin of i, and begin[0] is 0 */
        for (uint32_t c = 0; c < k; c++) inverse[--begin[(size_t)c * n + a->next[(size_t)s * k + c] + 1]] = s;
    }
    uint32_t *start = begin + 1;       /* (class, state) of the list that ends at the next one */
    uint32_t total = n * k;
    for (uint32_t s = 0; s < n; s++) {
        p->elements[s] = p->place[s] = s;
        p->block_of[s] = 0;
    }
    p->first[0] = p->marked[0] = 0;
    p->end[0] = n;
    p->n = 1;
    n_touched = 0;
    for (uint32_t s = 0; s < n; s++) {
        if (a->accepts[s]) mark(p, s, touched, &n_touched);
    }
    if (n_touched > 0) split(p, 0);
    for (uint32_t b = 0; b < p->n; b++) waiting[n_waiting++] = b;
    while (n_waiting > 0) {
        uint32_t block = waiting[--n_waiting], n_splitter = p->end[block] - p->first[block];
        memcpy(splitter, p->elements + p->first[block], n_splitter * sizeof *splitter);
        if (!languages_work(all, (uint64_t)n_splitter * k)) return false;
        for (uint32_t c = 0; c < k; c++) {
            n_touched = 0;
            for (uint32_t i = 0; i < n_splitter; i++) {
                size_t list = (size_t)c * n + splitter[i];
                uint32_t end = list + 1 < (size_t)total ? start[list + 1] : total;
                for (uint32_t j = start[list]; j < end; j++) mark(p, inverse[j], touched, &n_touched);
            }
            for (uint32_t i = 0; i < n_touched; i++) {
                uint32_t made = split(p, touched[i]);
                if (made != UINT32_MAX) waiting[n_waiting++] = made;
            }
        }
    }
    return true;
}

/* Whether a table is too large.  One that is not yet minimal may have more states than LANGUAGE_MAX_STATES. */
static bool too_large(struct languages *all, uint64_t n_state, uint64_t n_class) {
    if (n_class < DFA_MAX_CLASSES && n_state * n_class <= DFA_MAX_CELLS) return false;
    error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the automaton has %llu states and %llu classes of characters, too "
              "many", (unsigned long long)n_state, (unsigned long long)n_class);
    return true;
}

/* Gives the classes with equal columns one number, in the order of their first intervals. */
static bool merge_classes(struct languages *all, const struct dfa *raw, const uint32_t *rows, uint32_t n_row,
                          uint32_t *merged, uint32_t *n_merged) {
    struct sequences columns = {0};
    uint64_t *column = languages_temporary(all, n_row, sizeof *column);
    bool ok = column != NULL;
    for (uint32_t c = 0; ok && c < raw->n_class; c++) {
        for (uint32_t s = 0; s < n_row; s++) column[s] = rows[(size_t)s * raw->n_class + c];
        merged[c] = sequences_id(all, &columns, column, n_row);
        ok = merged[c] != UINT32_MAX;
    }
    *n_merged = (uint32_t)columns.n;
    sequences_free(&columns);
    free(column);
    return ok;
}

/* Copies the table of the blocks, which are numbered breadth-first from the start. */
static const struct dfa *quotient(struct languages *all, const struct dfa *raw, const struct partition *p,
                                  uint32_t *memory) {
    uint32_t k = raw->n_class, n = 0;
    uint32_t *number = memory, *order = memory + p->n, *merged = order + p->n, *rows = merged + k, n_merged;
    if (p->n > LANGUAGE_MAX_STATES) {
        error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the automaton has more than %d states", LANGUAGE_MAX_STATES);
        return NULL;
    }
    for (uint32_t b = 0; b < p->n; b++) number[b] = UINT32_MAX;
    number[p->block_of[0]] = n;
    order[n++] = 0;   /* a state of each block */
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < k; c++) {
            uint32_t to = raw->next[(size_t)order[i] * k + c], block = p->block_of[to];
            if (number[block] == UINT32_MAX) {
                number[block] = n;
                order[n++] = to;
            }
            rows[(size_t)i * k + c] = number[block];
        }
    }
    if (!merge_classes(all, raw, rows, n, merged, &n_merged)) return NULL;
    all->n_cell += (uint64_t)n * n_merged;
    if (all->n_cell > 4 * (uint64_t)DFA_MAX_CELLS) {
        error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the automata have more than %d entries in all",
                  4 * DFA_MAX_CELLS);
        return NULL;
    }
    struct dfa *dfa = languages_alloc(all, 1, sizeof *dfa);
    if (!dfa) return NULL;
    *dfa = (struct dfa){.n_state = n, .n_class = n_merged, .dead = DFA_NO_STATE, .all = DFA_NO_STATE};
    dfa->starts = languages_alloc(all, raw->n_interval, sizeof *dfa->starts);
    dfa->class_of = languages_alloc(all, raw->n_interval, sizeof *dfa->class_of);
    dfa->next = languages_alloc(all, (uint64_t)n * n_merged, sizeof *dfa->next);
    dfa->accepts = languages_alloc(all, n, 1);
    if (!dfa->starts || !dfa->class_of || !dfa->next || !dfa->accepts) return NULL;
    for (uint32_t i = 0; i < raw->n_interval; i++) {
        uint16_t class = (uint16_t)merged[raw->class_of[i]];
        if (dfa->n_interval > 0 && dfa->class_of[dfa->n_interval - 1] == class) continue;
        dfa->starts[dfa->n_interval] = raw->starts[i];
        dfa->class_of[dfa->n_interval++] = class;
    }
    for (uint32_t s = 0; s < n; s++) {
        dfa->accepts[s] = raw->accepts[order[s]];
        bool stays = true;
        for (uint32_t c = 0; c < k; c++) {
            uint32_t to = rows[(size_t)s * k + c];
            dfa->next[(size_t)s * n_merged + merged[c]] = to;
            stays = stays && to == s;
        }
        if (stays) *(dfa->accepts[s] ? &dfa->all : &dfa->dead) = s;
    }
    return dfa;
}

const struct dfa *dfa_minimize(struct languages *all, const struct dfa *raw) {
    uint64_t n = raw->n_state, k = raw->n_class;
    if (too_large(all, n, k)) return NULL;
    struct partition p = {0};
    uint32_t *memory = languages_temporary(all, 2 * n * k + 2 * k + 3 * n + 4, sizeof *memory);
    p.elements = languages_temporary(all, 6 * n, sizeof *p.elements);
    const struct dfa *dfa = NULL;
    if (memory && p.elements) {
        p.place = p.elements + n;
        p.block_of = p.place + n;
        p.first = p.block_of + n;
        p.end = p.first + n;
        p.marked = p.end + n;
        if (refine(all, raw, &p, memory)) dfa = quotient(all, raw, &p, memory);
    }
    free(memory);
    free(p.elements);
    return dfa;
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

uint32_t dfa_class(const struct dfa *a, uint32_t index) {
    uint32_t low = 0, high = a->n_interval;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (a->starts[middle] <= index) low = middle;
        else high = middle;
    }
    return a->class_of[low];
}

bool dfa_equal(const struct dfa *a, const struct dfa *b) {
    return a->n_state == b->n_state && a->n_class == b->n_class && a->n_interval == b->n_interval &&
           memcmp(a->starts, b->starts, a->n_interval * sizeof *a->starts) == 0 &&
           memcmp(a->class_of, b->class_of, a->n_interval * sizeof *a->class_of) == 0 &&
           memcmp(a->accepts, b->accepts, a->n_state) == 0 &&
           memcmp(a->next, b->next, (size_t)a->n_state * a->n_class * sizeof *a->next) == 0;
}

const struct dfa *dfa_complement(struct languages *all, const struct dfa *a) {
    struct dfa *dfa = languages_alloc(all, 1, sizeof *dfa);
    uint8_t *accepts = languages_alloc(all, a->n_state, 1);
    if (!dfa || !accepts) return NULL;
    for (uint32_t s = 0; s < a->n_state; s++) accepts[s] = !a->accepts[s];
    *dfa = *a;
    dfa->accepts = accepts;
    dfa->all = a->dead;
    dfa->dead = a->all;
    return dfa;
}

/* Fills the intervals of the product, and for each of its classes the classes of a and b. */
static bool pair_classes(struct languages *all, const struct dfa *a, const struct dfa *b, struct dfa *out,
                         struct sequences *classes) {
    for (uint32_t i = 0, j = 0; i < a->n_interval || j < b->n_interval;) {
        uint32_t x = i < a->n_interval ? a->starts[i] : UINT32_MAX, y = j < b->n_interval ? b->starts[j] : UINT32_MAX;
        uint32_t start = x < y ? x : y;
        if (x == start) i++;
        if (y == start) j++;
        uint64_t pair = (uint64_t)a->class_of[i - 1] << 32 | b->class_of[j - 1];
        uint32_t id = sequences_id(all, classes, &pair, 1);
        if (id == UINT32_MAX || too_large(all, 1, id)) return false;
        out->starts[out->n_interval] = start;
        out->class_of[out->n_interval++] = (uint16_t)id;
    }
    out->n_class = (uint32_t)classes->n;
    return true;
}

bool dfa_reserve(struct languages *all, struct dfa *d, uint32_t state, size_t *cap) {
    if (state < *cap) return true;
    *cap = 2 * *cap + 64;
    return (ARRAY_RESIZE(d->next, (uint64_t)*cap * d->n_class) && ARRAY_RESIZE(d->accepts, *cap))
           || languages_no_memory(all) == PLUMB_OK;
}

/* Makes the states of the product, breadth-first from the pair of the starts. */
static bool pair_states(struct languages *all, const struct dfa *a, const struct dfa *b, struct dfa *out,
                        const struct sequences *classes, struct sequences *states) {
    /* All pairs with a dead state are one. */
    uint64_t pair = 0, dead = a->dead != DFA_NO_STATE ? (uint64_t)a->dead << 32 : b->dead;
    uint32_t k = out->n_class;
    size_t cap = 0;
    if (sequences_id(all, states, &pair, 1) == UINT32_MAX) return false;
    for (uint32_t s = 0; s < states->n; s++) {
        if (too_large(all, states->n, k) || !languages_work(all, k)) return false;
        if (!dfa_reserve(all, out, s, &cap)) return false;
        uint32_t of_a = (uint32_t)(states->items[s] >> 32), of_b = (uint32_t)states->items[s];
        out->accepts[s] = a->accepts[of_a] && b->accepts[of_b];
        for (uint32_t c = 0; c < k; c++) {
            uint64_t class = classes->items[c];
            uint32_t to_a = a->next[(size_t)of_a * a->n_class + (class >> 32)];
            uint32_t to_b = b->next[(size_t)of_b * b->n_class + (uint32_t)class];
            pair = (uint64_t)to_a << 32 | to_b;
            if (to_a == a->dead || to_b == b->dead) pair = dead;
            uint32_t to = sequences_id(all, states, &pair, 1);
            if (to == UINT32_MAX) return false;
            out->next[(size_t)s * k + c] = to;
        }
    }
    out->n_state = (uint32_t)states->n;
    return true;
}

const struct dfa *dfa_intersect(struct languages *all, const struct dfa *a, const struct dfa *b) {
    struct dfa out = {0};
    struct sequences classes = {0}, states = {0};
    const struct dfa *dfa = NULL;
    uint64_t n = (uint64_t)a->n_interval + b->n_interval;
    out.starts = languages_temporary(all, n, sizeof *out.starts);
    out.class_of = languages_temporary(all, n, sizeof *out.class_of);
    if (out.starts && out.class_of && pair_classes(all, a, b, &out, &classes) &&
        pair_states(all, a, b, &out, &classes, &states)) {
        dfa = dfa_minimize(all, &out);
    }
    sequences_free(&classes);
    sequences_free(&states);
    free(out.starts);
    free(out.class_of);
    free(out.next);
    free(out.accepts);
    return dfa;
}

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

/* The smallest value of the states after a state. */
static uint32_t least_next(const struct dfa *a, uint32_t state, const uint32_t *values) {
    uint32_t least = UINT32_MAX;
    for (uint32_t c = 0; c < a->n_class; c++) {
        const uint32_t value = values[a->next[(size_t)state * a->n_class + c]];
        if (value < least) least = value;
    }
    return least;
}

const uint32_t *dfa_shortest(struct languages *all, const struct dfa *a) {
    uint32_t *shortest = languages_alloc(all, a->n_state, sizeof *shortest);
    if (!shortest) return NULL;
    for (uint32_t s = 0; s < a->n_state; s++) shortest[s] = a->accepts[s] ? 0 : UINT32_MAX;
    for (bool changed = true; changed;) {   /* states are numbered from the start, so the order is good */
        changed = false;
        if (!languages_work(all, (uint64_t)a->n_state * a->n_class)) return NULL;
        for (uint32_t s = a->n_state; s-- > 0;) {
            const uint32_t next = least_next(a, s, shortest);
            if (next == UINT32_MAX || next + 1 >= shortest[s]) continue;
            shortest[s] = next + 1;
            changed = true;
        }
    }
    return shortest;
}

bool dfa_has_all_lengths(struct languages *all, const struct dfa *a, const uint32_t *shortest, bool *yes) {
    /* A state has the length after its shortest one only if a next state has a string that is not longer than that.
     * If this holds for all states, each has all lengths, by induction over the length. */
    *yes = true;
    for (uint32_t s = 0; s < a->n_state && *yes; s++) {
        *yes = shortest[s] == UINT32_MAX || least_next(a, s, shortest) <= shortest[s];
    }
    return languages_work(all, (uint64_t)a->n_state * a->n_class);
}

/* The states that can be reached in one step from others, which are replaced. */
static bool step_all(struct languages *all, const struct dfa *a, uint8_t *reached, uint8_t *next) {
    memset(next, 0, a->n_state);
    for (uint32_t s = 0; s < a->n_state; s++) {
        for (uint32_t c = 0; reached[s] && c < a->n_class; c++) next[a->next[(size_t)s * a->n_class + c]] = 1;
    }
    return languages_work(all, (uint64_t)a->n_state * a->n_class);
}

bool dfa_has_length(struct languages *all, const struct dfa *a, int64_t least, int64_t most, bool *yes) {
    /* what is not accepted within n_state characters more never is */
    const int64_t last = most != LANGUAGE_UNBOUNDED && most < least + a->n_state ? most : least + a->n_state;
    uint8_t *reached = languages_temporary(all, 2 * (uint64_t)a->n_state, 1);
    *yes = false;
    if (!reached) return false;
    uint8_t *next = reached + a->n_state;
    bool ok = true;
    memset(reached, 0, a->n_state);
    reached[0] = 1;
    for (int64_t length = 0; length <= last; length++) {
        for (uint32_t s = 0; length >= least && s < a->n_state; s++) *yes = *yes || (reached[s] && a->accepts[s]);
        ok = *yes || step_all(all, a, reached, next);
        if (!ok || *yes) break;
        const bool stays = memcmp(reached, next, a->n_state) == 0;
        memcpy(reached, next, a->n_state);
        if (stays && length < least) length = least - 1;   /* as it stays */
        else if (stays) break;
    }
    free(reached);
    return ok;
}

/* The automaton over special tokens, and the cuts.
 *
 *   specials, the longest first -> batches, each as large as its automaton may be; usually one batch has all of them
 *       -> each batch: the automaton runs over the raw bytes and finds for each byte the longest token that ends there
 *       -> a heap holds these candidates, ordered by (rank of the token, position in the text)
 *       -> the first one is cut out if all of its bytes are raw; otherwise it is replaced by the longest token that
 *          ends at the same byte and fits between that byte and the cut that is in the way
 *
 * In a text with marks two automata run: one of the tokens that marks do not prevent over all bytes, and one of all
 * tokens that begins anew behind each byte with a mark.
 *
 * A token that is too long even for a batch of its own is searched for with memmem.
 *
 * The number of steps is linear in the text, apart from the logarithm of the heap.  Longer tokens are cut first, so a
 * cut that overlaps a candidate is at least as long as the candidate and contains its first or its last byte.  If it
 * contains the last byte, no token can end there any more.  If it contains the first byte, the candidate ends after the
 * cut, within its own length.  So because of one cut at most as many candidates are replaced as the cut has bytes, and
 * cuts do not overlap.
 */
#define _GNU_SOURCE  /* memmem: linear in time, and takes no memory */
#include "tokenizer/specials.h"

#include <stdlib.h>

/* ---- the automaton ---------------------------------------------------------------------------------------------- */

enum { FIRST_OF_BRANCH = 1, HAS_BRANCHES = 2 };

/* A node is a prefix of a token.  Tokens are added in sorted order, and the nodes that a token does not share with the
 * token before it follow each other in memory.  So node i + 1 is a child of node i unless it starts a branch. */
struct node {
    uint32_t fail;    /* the node of the longest proper suffix of this prefix that is a prefix of some token */
    uint32_t found;   /* the longest token that this prefix ends with, an index into suffixes; 0: none */
    uint8_t byte, flags;
};

/* An edge to a child that does not follow its parent in memory.  The children of the root are in a table. */
struct branch { uint32_t from, to; };

/* A token of the batch, linked to the shorter tokens that it ends with. */
struct suffix {
    uint32_t next;    /* the longest of them; 0: none */
    uint32_t jump;    /* one further along the list; any of them is reached in about log(level) steps (Myers 1983) */
    uint32_t level;   /* how many tokens this token ends with, itself included */
};

struct matcher {
    uint32_t first, n;          /* specials[first .. first + n) of the tokenizer */
    uint32_t n_node, n_branch;
    struct node *nodes;         /* (n_node); nodes[0] is the root */
    struct branch *branches;    /* (n_branch), sorted by from, then by the byte of to */
    struct suffix *suffixes;    /* (n + 1); suffixes[i] is specials[first + i - 1], and suffixes[0] is none */
    uint32_t root[256];         /* the child of the root for each byte, 0: none */
};

/* Returns how many bytes a token of n bytes takes at most while the automaton is made. */
static uint64_t cost(uint64_t n) {
    return n * (sizeof(struct node) + sizeof(uint32_t)) + sizeof(struct branch) + sizeof(struct suffix) + 32;
}

void matcher_free(struct matcher *m) {
    if (!m) return;
    free(m->nodes);
    free(m->branches);
    free(m->suffixes);
    free(m);
}

/* Returns the index of the first branch whose from is not below the given one, or n_branch. */
static uint32_t first_branch(const struct matcher *m, uint32_t from) {
    uint32_t low = 0, high = m->n_branch;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (m->branches[middle].from < from) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool is_followed(const struct matcher *m, uint32_t node) {
    return node + 1 < m->n_node && !(m->nodes[node + 1].flags & FIRST_OF_BRANCH);
}

/* Returns the child of a node for a byte; 0: there is none. */
static uint32_t child(const struct matcher *m, uint32_t node, uint8_t byte) {
    if (node == 0) return m->root[byte];
    if (is_followed(m, node) && m->nodes[node + 1].byte == byte) return node + 1;
    if (!(m->nodes[node].flags & HAS_BRANCHES)) return 0;
    uint32_t low = first_branch(m, node), high = m->n_branch;
    if (high - low > 256) high = low + 256;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct branch b = m->branches[middle];
        if (b.from == node && m->nodes[b.to].byte == byte) return b.to;
        if (b.from == node && m->nodes[b.to].byte < byte) low = middle + 1;
        else high = middle;
    }
    return 0;
}

/* Returns the node that the automaton goes to when it reads a byte. */
static uint32_t follow(const struct matcher *m, uint32_t node, uint8_t byte, uint64_t *n_step) {
    uint32_t next;
    while ((next = child(m, node, byte)) == 0 && node != 0) {
        node = m->nodes[node].fail;
        ++*n_step;
    }
    ++*n_step;
    return next;
}

struct entry {
    const char *text;
    uint32_t n, suffix;
};

static int by_text(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return order != 0 ? order : x->n < y->n ? -1 : x->n > y->n;
}

static uint32_t common_prefix(const struct entry *a, const struct entry *b) {
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->text[n] == b->text[n]) n++;
    return n;
}

static int by_from(const void *a, const void *b) {
    const struct branch *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* Adds the nodes of n entries, which are sorted by text.  path: scratch, (bytes of the longest entry + 1). */
static void add_nodes(struct matcher *m, const struct entry *entries, uint32_t n, uint32_t *path) {
    m->n_node = 1;
    m->nodes[0] = (struct node){0, 0, 0, 0};
    path[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct entry *e = &entries[i];
        uint32_t shared = i > 0 ? common_prefix(e - 1, e) : 0, parent = path[shared];
        for (uint32_t depth = shared; depth < e->n; depth++) {
            uint32_t node = m->n_node++;
            m->nodes[node] = (struct node){0, 0, (uint8_t)e->text[depth], 0};
            path[depth + 1] = node;
        }
        uint32_t first = path[shared + 1];   /* entry i is not a prefix of entry i - 1, so it has one */
        m->nodes[path[e->n]].found = e->suffix;
        if (parent == 0) m->root[m->nodes[first].byte] = first;
        if (parent + 1 == first) continue;
        m->nodes[first].flags |= FIRST_OF_BRANCH;
        if (parent == 0) continue;
        m->nodes[parent].flags |= HAS_BRANCHES;
        m->branches[m->n_branch++] = (struct branch){parent, first};
    }
    qsort(m->branches, m->n_branch, sizeof *m->branches, by_from);
}

/* Sets fail and found of a node, given that of all shorter prefixes, and the suffix of the token that it ends. */
static void add_fail(struct matcher *m, uint32_t parent, uint32_t node, uint64_t *n_step) {
    struct node *x = &m->nodes[node];
    x->fail = parent == 0 ? 0 : follow(m, m->nodes[parent].fail, x->byte, n_step);
    uint32_t longest = m->nodes[x->fail].found;
    if (x->found == 0) {
        x->found = longest;
        return;
    }
    struct suffix *s = m->suffixes, *own = &s[x->found];
    uint32_t jump = s[longest].jump;
    bool skip = s[longest].level - s[jump].level == s[jump].level - s[s[jump].jump].level;
    *own = (struct suffix){longest, skip ? s[jump].jump : longest, s[longest].level + 1};
}

/* Calls add_fail for all nodes, from the shortest prefixes to the longest.  queue: scratch, (n_node). */
static void add_fails(struct matcher *m, uint32_t *queue, uint64_t *n_step) {
    uint32_t n = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (m->root[byte] == 0) continue;
        add_fail(m, 0, m->root[byte], n_step);
        queue[n++] = m->root[byte];
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = queue[i];
        if (is_followed(m, node)) {
            add_fail(m, node, node + 1, n_step);
            queue[n++] = node + 1;
        }
        if (!(m->nodes[node].flags & HAS_BRANCHES)) continue;
        for (uint32_t b = first_branch(m, node); b < m->n_branch && m->branches[b].from == node; b++) {
            add_fail(m, node, m->branches[b].to, n_step);
            queue[n++] = m->branches[b].to;
        }
    }
}

static bool is_matched(const struct tokenizer *t, uint32_t special, enum token_set set) {
    static const uint16_t without[] = {TOKEN_CONTROL | TOKEN_UNKNOWN, 0, TOKEN_CONTROL | TOKEN_UNKNOWN | TOKEN_SHOWN};
    return !(t->attributes[t->specials[special].id] & without[set]);
}

/* Makes the automaton over specials[first .. first + n); NULL if out of memory. */
static struct matcher *matcher_create(const struct tokenizer *t, uint32_t first, uint32_t n, enum token_set set,
                                      uint64_t *n_step) {
    struct matcher *m = calloc(1, sizeof *m);
    struct entry *entries = alloc_array(n, sizeof *entries);
    uint32_t *queue = NULL;
    bool done = false;
    if (!m || !entries) goto done;
    *m = (struct matcher){.first = first, .n = n};
    uint32_t n_entry = 0, longest = 0;
    uint64_t n_node = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_matched(t, first + i, set)) continue;
        struct special s = t->specials[first + i];
        entries[n_entry++] = (struct entry){token_text(t, (uint32_t)s.id).data, s.n, i + 1};
        if (s.n > longest) longest = s.n;
    }
    qsort(entries, n_entry, sizeof *entries, by_text);
    for (uint32_t i = 0; i < n_entry; i++) {
        n_node += entries[i].n - (i > 0 ? common_prefix(&entries[i - 1], &entries[i]) : 0);
    }
    *n_step += n_node;
    m->nodes = alloc_array(n_node, sizeof *m->nodes);
    m->branches = alloc_array(n_entry, sizeof *m->branches);
    m->suffixes = alloc_array((uint64_t)n + 1, sizeof *m->suffixes);
    queue = alloc_array(n_node > (uint64_t)longest + 1 ? n_node : (uint64_t)longest + 1, sizeof *queue);
    if (!m->nodes || !m->branches || !m->suffixes || !queue) goto done;
    m->suffixes[0] = (struct suffix){0, 0, 0};
    add_nodes(m, entries, n_entry, queue);
    add_fails(m, queue, n_step);
    done = true;
done:
    free(entries);
    free(queue);
    if (done) return m;
    matcher_free(m);
    return NULL;
}

/* ---- cuts ------------------------------------------------------------------------------------------------------- */

struct finder {
    struct tokenizer *t;
    const char *text;
    const uint8_t *marks;   /* (n), or NULL */
    uint32_t n;
    bool parse;
    struct cuts *cuts;
    uint64_t *heap;      /* candidates: index in specials << 32 | end << 2 | set; the smallest comes first */
    size_t n_heap, cap;
    uint64_t n_step;
};

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Cuts a special out of the raw bytes begin .. end - 1, together with the white space that it takes along. */
static bool cut(struct finder *f, uint32_t special, uint32_t begin, uint32_t end) {
    struct cuts *c = f->cuts;
    if (!c->owner) {
        c->owner = calloc(f->n, sizeof *c->owner);
        if (!c->owner) return false;
    }
    if (!ARRAY_GROW(c->items, c->n, &c->cap)) return false;
    int32_t id = f->t->specials[special].id;
    uint16_t attributes = f->t->attributes[id];
    bool left = attributes & TOKEN_LSTRIP;
    while (left && begin > 0 && c->owner[begin - 1] == 0 && is_space(f->text[begin - 1])) begin--;
    if (attributes & TOKEN_RSTRIP) while (end < f->n && c->owner[end] == 0 && is_space(f->text[end])) end++;
    c->items[c->n++] = (struct cut){id, begin, end};
    for (uint32_t i = begin; i < end; i++) c->owner[i] = (uint32_t)c->n;
    f->n_step += end - begin;
    return true;
}

/* Whether byte i may be part of a token that contains no byte with a mark. */
static bool is_unmarked(const struct finder *f, uint32_t i) { return !f->marks || f->marks[i] == 0; }

/* Cuts out every occurrence of a special that is too long for the automaton. */
static bool cut_long(struct finder *f, uint32_t special) {
    struct special s = f->t->specials[special];
    const char *wanted = token_text(f->t, (uint32_t)s.id).data;
    const struct cuts *c = f->cuts;
    const bool any = is_matched(f->t, special, SET_MARKED);   /* bytes, also those with a mark */
    uint32_t end = 0;   /* the end of the raw bytes around begin, if begin < end */
    for (uint32_t begin = 0; begin < f->n;) {
        f->n_step++;
        if (c->owner && c->owner[begin] != 0) {
            begin = c->items[c->owner[begin] - 1].right;
            continue;
        }
        if (!any && !is_unmarked(f, begin)) {
            begin++;
            continue;
        }
        if (begin >= end) {
            end = begin + 1;
            while (end < f->n && (!c->owner || c->owner[end] == 0) && (any || is_unmarked(f, end))) end++;
            f->n_step += end - begin;
        }
        const char *found = memmem(f->text + begin, end - begin, wanted, s.n);
        uint32_t at = found ? (uint32_t)(found - f->text) : end;
        f->n_step += at - begin;
        if (found && !cut(f, special, at, at + s.n)) return false;
        begin = found ? at + s.n : end;   /* the cut may extend further, over white space */
    }
    return true;
}

static bool push(struct finder *f, uint32_t special, uint32_t end, enum token_set set) {
    uint64_t key = (uint64_t)special << 32 | end << 2 | set;
    if (!ARRAY_GROW(f->heap, f->n_heap, &f->cap)) return false;
    uint64_t *heap = f->heap;
    size_t i = f->n_heap++;
    for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2, f->n_step++) heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
    f->n_step++;
    return true;
}

static uint64_t pop(struct finder *f) {
    uint64_t *heap = f->heap, first = heap[0], last = heap[--f->n_heap];
    size_t i = 0;
    for (size_t next; (next = 2 * i + 1) < f->n_heap; i = next, f->n_step++) {
        if (next + 1 < f->n_heap && heap[next + 1] < heap[next]) next++;
        if (heap[next] >= last) break;
        heap[i] = heap[next];
    }
    heap[i] = last;
    f->n_step++;
    return first;
}

/* The automata of a batch, by their sets; NULL: not needed. */
struct batch { struct matcher *matchers[N_SET]; };

/* Pushes the candidates of an automaton: for each raw byte the longest special that ends there. */
static bool find_candidates(struct finder *f, const struct batch *b, enum token_set set) {
    const struct cuts *c = f->cuts;
    const struct matcher *m = b->matchers[set];
    uint32_t node = 0;
    for (uint32_t i = 0; m && i < f->n;) {
        if (set == SET_ALL && !is_unmarked(f, i)) {
            i++;
            node = 0;
            continue;
        }
        if (c->owner && c->owner[i] != 0) {
            i = c->items[c->owner[i] - 1].right;
            node = 0;
            continue;
        }
        node = follow(m, node, (uint8_t)f->text[i++], &f->n_step);
        uint32_t found = m->nodes[node].found;
        if (found != 0 && !push(f, m->first + found - 1, i, set)) return false;
    }
    return true;
}

/* Returns the longest token of at most n bytes among suffix i and the tokens that it ends with; 0: none. */
static uint32_t longest_fitting(const struct finder *f, const struct matcher *m, uint32_t i, uint32_t n) {
    const struct special *before = f->t->specials + m->first - 1;   /* before[i] is that of suffix i > 0 */
    while (i != 0 && before[i].n > n) {
        uint32_t jump = m->suffixes[i].jump;
        i = jump != 0 && before[jump].n > n ? jump : m->suffixes[i].next;
    }
    return i;
}

static bool cut_batch(struct finder *f, const struct batch *b) {
    const struct cuts *c = f->cuts;
    for (enum token_set set = SET_PLAIN; set < N_SET; set++) {
        if (!find_candidates(f, b, set)) return false;
    }
    while (f->n_heap > 0) {
        uint64_t key = pop(f);
        enum token_set set = key & 3;
        uint32_t special = (uint32_t)(key >> 32), end = (uint32_t)key >> 2;
        uint32_t begin = end - f->t->specials[special].n;
        const struct matcher *m = b->matchers[set];
        if (c->owner && c->owner[end - 1] != 0) continue;
        if (!c->owner || c->owner[begin] == 0) {
            if (!cut(f, special, begin, end)) return false;
            continue;
        }
        uint32_t room = end - c->items[c->owner[begin] - 1].right;
        uint32_t shorter = longest_fitting(f, m, special - m->first + 1, room);
        if (shorter != 0 && !push(f, m->first + shorter - 1, end, set)) return false;
    }
    return true;
}

static bool find(struct finder *f) {
    const struct tokenizer *t = f->t;
    const bool needs[N_SET] = {!f->parse && !f->marks, f->parse, f->marks != NULL};
    const enum token_set set = f->parse ? SET_ALL : f->marks ? SET_MARKED : SET_PLAIN;   /* the largest one */
    struct matcher **kept = f->t->matchers;
    struct batch b = {{NULL, NULL, NULL}};
    bool has_all = true;
    for (size_t k = 0; k < N_SET; k++) {
        if (needs[k]) b.matchers[k] = kept[k];
        has_all = has_all && (kept[k] || !needs[k]);
    }
    if (has_all) return cut_batch(f, &b);
    for (uint32_t first = 0, end; first < t->n_special; first = end) {
        end = first + 1;
        uint64_t bytes = cost(t->specials[first].n);
        if (bytes > t->matcher_max_bytes) {
            bool fits = t->specials[first].n <= f->n;
            if (fits && is_matched(t, first, set) && !cut_long(f, first)) return false;
            continue;
        }
        while (end < t->n_special && bytes + cost(t->specials[end].n) <= t->matcher_max_bytes) {
            bytes += cost(t->specials[end++].n);
        }
        bool all = first == 0 && end == t->n_special;
        if (!all && t->specials[end - 1].n > f->n) continue;   /* the shortest is longer than the text */
        bool ok = true;
        for (enum token_set k = SET_PLAIN; k < N_SET && ok; k++) {
            if (!needs[k]) continue;
            if (!all || !kept[k]) b.matchers[k] = matcher_create(t, first, end - first, k, &f->n_step);
            if (all) kept[k] = b.matchers[k];
            ok = b.matchers[k] != NULL;
        }
        ok = ok && cut_batch(f, &b);
        for (size_t k = 0; k < N_SET && !all; k++) {
            matcher_free(b.matchers[k]);
            b.matchers[k] = NULL;
        }
        if (!ok) return false;
    }
    return true;
}

plumb_status specials_find(struct tokenizer *t, const char *text, const uint8_t *marks, uint32_t n, bool parse,
                           struct cuts *out, uint64_t *n_step, struct error *err) {
    struct finder f = {.t = t, .text = text, .marks = marks, .n = n, .parse = parse, .cuts = out};
    bool ok = find(&f);
    free(f.heap);
    *n_step += f.n_step;
    if (ok) return PLUMB_OK;
    return error_set(err, PLUMB_ERROR_MEMORY, "tokenize: out of memory: %u special tokens in %u bytes of text",
                     (unsigned)t->n_special, (unsigned)n);
}

void specials_free(struct cuts *cuts) {
    free(cuts->items);
    free(cuts->owner);
}

/* The vocabulary as a tree of bytes.  Nodes are in depth-first order, so that the walk of a subtree reads memory in one
 * direction, and a subtree that is refused is skipped by one jump. */
#include "grammar/recognizer.h"

#include <stdlib.h>

const struct wide wide_characters[N_WIDE] = {
    { { 0xc2, 0xdf }, { 0x80, 0xbf }, 0 }, { { 0xe0, 0xe0 }, { 0xa0, 0xbf }, 1 }, { { 0xe1, 0xec }, { 0x80, 0xbf }, 1 },
    { { 0xed, 0xed }, { 0x80, 0x9f }, 1 }, { { 0xee, 0xef }, { 0x80, 0xbf }, 1 }, { { 0xf0, 0xf0 }, { 0x90, 0xbf }, 2 },
    { { 0xf1, 0xf3 }, { 0x80, 0xbf }, 2 }, { { 0xf4, 0xf4 }, { 0x80, 0x8f }, 2 },
};

enum { MAX_PIECE_NODES = 1 << 24, MAX_PIECE_BYTES = 1 << 27 };

struct piece {
    const char *bytes;
    uint32_t n;
    int32_t id;
};

static int compare(const struct piece *a, const struct piece *b) {
    uint32_t n = a->n < b->n ? a->n : b->n;
    int order = memcmp(a->bytes, b->bytes, n);
    return order != 0 ? order : a->n < b->n ? -1 : a->n > b->n;
}

/* A merge sort: equal pieces stay in the order of their ids.  Returns the sorted array, a or its copy b. */
static struct piece *sort(struct piece *a, struct piece *b, size_t n) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t start = 0; start < n; start += 2 * width) {
            size_t middle = start + width < n ? start + width : n, end = middle + width < n ? middle + width : n;
            size_t i = start, j = middle;
            for (size_t k = start; k < end; k++) {
                b[k] = i < middle && (j >= end || compare(&a[i], &a[j]) <= 0) ? a[i++] : a[j++];
            }
        }
        struct piece *other = a;
        a = b;
        b = other;
    }
    return a;
}

static uint32_t common_bytes(const struct piece *a, const struct piece *b) {
    uint32_t n = a->n < b->n ? a->n : b->n, same = 0;
    while (same < n && a->bytes[same] == b->bytes[same]) same++;
    return same;
}

/* ---- kinds of bytes ---------------------------------------------------------------------------------------------- */

enum byte_kind kind_of_byte(uint8_t b) {
    if (b >= 0x80) return KIND_NOT_UTF8;
    if (b >= '0' && b <= '9') return KIND_DIGIT;
    if (b >= 'a' && b <= 'z') return b <= 'f' ? KIND_LOW_HEX : KIND_LOW;
    if (b >= 'A' && b <= 'Z') return b <= 'F' ? KIND_HIGH_HEX : KIND_HIGH;
    switch (b) {
    case '"': return KIND_QUOTE;
    case '\\': return KIND_BACKSLASH;
    case '\t': case '\n': case '\r': return KIND_LINE;
    case ' ': return KIND_SPACE;
    case '-': case '_': return KIND_DASH;
    case '<': case '>': return KIND_ANGLE;
    case '/': return KIND_SLASH;
    default: return b < ' ' || b == 0x7f ? KIND_CONTROL : KIND_OTHER;
    }
}

/* The rest of a character: the next byte, and how many follow it; n 0: none. */
struct rest { uint8_t low, high, n; };

/* The kind of a byte after the rest of a character, which becomes the rest after it. */
static uint8_t kind_after(struct rest *rest, uint8_t b) {
    if (rest->n > 0 && b >= rest->low && b <= rest->high) {
        *rest = (struct rest){ 0x80, 0xbf, (uint8_t)(rest->n - 1) };
        return (uint8_t)(KIND_WIDE | (rest->n > 0 ? KIND_INSIDE : 0));
    }
    const bool is_cut = rest->n > 0;
    *rest = (struct rest){ 0 };
    for (size_t i = 0; i < N_WIDE && !is_cut; i++) {
        const struct wide *w = &wide_characters[i];
        if (b < w->first[0] || b > w->first[1]) continue;
        *rest = (struct rest){ w->second[0], w->second[1], (uint8_t)(w->n_more + 1) };
        return KIND_WIDE | KIND_INSIDE;
    }
    return (uint8_t)(is_cut ? KIND_NOT_UTF8 : kind_of_byte(b));
}

void pieces_of_kinds(const struct pieces *v, uint32_t first, uint32_t kinds, uint32_t *words) {
    const size_t n_word = ((size_t)v->n_vocab + 31) / 32;
    memset(words, 0, n_word * sizeof *words);
    for (unsigned kind = 0; kind < N_KIND; kind++) {
        const uint32_t *beginning = v->beginning + kind * n_word;
        for (size_t i = 0; first >> kind & 1 && i < n_word; i++) words[i] |= beginning[i];
    }
    for (unsigned kind = 0; kind < N_KIND; kind++) {
        const uint32_t *having = v->having + kind * n_word;
        for (size_t i = 0; !(kinds >> kind & 1) && i < n_word; i++) words[i] &= ~having[i];
    }
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

static plumb_status no_memory(struct error *err) {
    return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the tokens of a vocabulary, sorted");
}

static void sort_by_length(struct pieces *v, const struct piece *pieces, uint32_t n) {
    uint32_t *begin = v->of_length;
    for (uint32_t i = 0; i < n; i++) begin[pieces[i].n + 1]++;
    for (uint32_t length = 0; length <= MAX_PIECE; length++) begin[length + 1] += begin[length];
    for (uint32_t i = n; i-- > 0;) {
        /* the begin of the next length moves down to the begin of this one */
        v->by_length[--begin[pieces[i].n + 1]] = pieces[i].id;
    }
    memmove(begin, begin + 1, (MAX_PIECE + 1) * sizeof *begin);
    begin[MAX_PIECE + 1] = n;
}

/* The subtree of the last node of a depth is complete. */
static void close_node(struct pieces *v, const uint32_t *open, uint32_t depth) {
    const uint32_t node = open[depth];
    v->ends[node] = v->n_node;
    if (depth == 0) return;
    const uint32_t above = open[depth - 1];
    if (v->longest[above] < v->longest[node]) v->longest[above] = v->longest[node];
    v->below[above] = (uint16_t)(v->below[above] | v->below[node] | 1u << (v->kinds[node] & (KIND_INSIDE - 1)));
}

/* Notes the kinds of the bytes of each token, and the nodes with which a line separator ends. */
static plumb_status note_kinds(struct pieces *v, struct error *err) {
    const size_t n_word = ((size_t)v->n_vocab + 31) / 32;
    size_t separator_cap = 0, depth = 0;
    uint32_t *path = alloc_array((uint64_t)v->depth + 1, sizeof *path);   /* the nodes above a node, */
    uint32_t *kinds = alloc_array((uint64_t)v->depth + 1, sizeof *kinds);   /* and the kinds as far as each of them */
    v->having = alloc_array((uint64_t)n_word * N_KIND, 2 * sizeof *v->having);
    v->beginning = v->having + (v->having ? n_word * N_KIND : 0);
    plumb_status status = path && kinds && v->having ? PLUMB_OK : no_memory(err);
    if (status == PLUMB_OK) memset(v->having, 0, n_word * N_KIND * 2 * sizeof *v->having);
    for (uint32_t i = 0; i < v->n_node && status == PLUMB_OK; i++) {
        while (depth > 0 && v->ends[path[depth - 1]] <= i) depth--;
        path[depth] = i;
        kinds[depth] = (depth > 0 ? kinds[depth - 1] : 0) | 1u << (v->kinds[i] & (KIND_INSIDE - 1));
        const unsigned first = v->kinds[path[0]] & (KIND_INSIDE - 1);
        for (uint32_t t = v->first[i]; t < v->first[i + 1]; t++) {
            v->beginning[first * n_word + (uint32_t)v->ids[t] / 32] |= 1u << v->ids[t] % 32;
            for (uint32_t rest = kinds[depth]; rest != 0; rest &= rest - 1) {
                v->having[(uint32_t)__builtin_ctz(rest) * n_word + (uint32_t)v->ids[t] / 32] |= 1u << v->ids[t] % 32;
            }
        }
        depth++;
        const bool is_separator = depth > 2 && v->kinds[i] == KIND_WIDE && (v->bytes[i] & 0xfe) == 0xa8
                                  && v->bytes[path[depth - 2]] == 0x80 && v->bytes[path[depth - 3]] == 0xe2;
        if (!is_separator) continue;
        if (ARRAY_GROW(v->separators, v->n_separator, &separator_cap)) v->separators[v->n_separator++] = i;
        else status = no_memory(err);
    }
    free(path);
    free(kinds);
    return status;
}

/* Finds v->rare. */
static plumb_status find_rare(struct pieces *v, struct error *err) {
    size_t cap = 0, next = 0;
    for (uint32_t i = 0; i <= v->n_node; i++) {
        while (next < v->n_separator && v->separators[next] < i) next++;
        const bool has_separator = i < v->n_node && next < v->n_separator && v->separators[next] < v->ends[i];
        const uint32_t kinds = i < v->n_node ? v->below[i] | 1u << (v->kinds[i] & (KIND_INSIDE - 1)) : ~0u;
        if (!has_separator && (kinds & ~(uint32_t)KINDS_OF_TEXT) == 0) continue;
        if (!ARRAY_GROW(v->rare, v->n_rare, &cap)) return no_memory(err);
        v->rare[v->n_rare++] = i;
    }
    v->n_rare--;
    return PLUMB_OK;
}

static plumb_status make_nodes(struct pieces *v, const struct piece *sorted, uint32_t n, struct error *err) {
    uint64_t n_node = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_node += sorted[i].n - (i > 0 ? common_bytes(&sorted[i - 1], &sorted[i]) : 0);
        if (sorted[i].n > v->depth) v->depth = sorted[i].n;
    }
    if (n_node > MAX_PIECE_NODES) {
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "the texts of the vocabulary's tokens are too long for "
                         "a grammar");
    }
    v->bytes = alloc_array(n_node, sizeof *v->bytes);
    v->ends = alloc_array(n_node, sizeof *v->ends);
    v->first = alloc_array(n_node + 1, sizeof *v->first);
    v->lengths = alloc_array(n_node, sizeof *v->lengths);
    v->longest = alloc_array(n_node, sizeof *v->longest);
    v->kinds = alloc_array(n_node, sizeof *v->kinds);
    v->below = alloc_array(n_node, sizeof *v->below);
    v->ids = alloc_array(n, sizeof *v->ids);
    v->by_length = alloc_array(n, sizeof *v->by_length);
    uint32_t *open = alloc_array(v->depth, sizeof *open);   /* the nodes on the path to the last piece */
    struct rest *rests = alloc_array((uint64_t)v->depth + 1, sizeof *rests);   /* before each of them */
    if (!v->bytes || !v->ends || !v->first || !v->lengths || !v->longest || !v->ids || !v->by_length ||
        !v->kinds || !v->below || !open || !rests) {
        free(open);
        free(rests);
        return no_memory(err);
    }
    for (unsigned b = 0; b < 256; b++) v->roots[b] = NO_PIECE;
    uint32_t depth = 0;
    rests[0] = (struct rest){ 0 };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = i > 0 ? common_bytes(&sorted[i - 1], &sorted[i]) : 0;
        while (depth > same) close_node(v, open, --depth);
        for (; depth < sorted[i].n; depth++) {
            if (depth == 0) v->roots[(uint8_t)sorted[i].bytes[0]] = v->n_node;
            open[depth] = v->n_node;
            v->lengths[v->n_node] = v->longest[v->n_node] = (uint16_t)(depth + 1);
            v->bytes[v->n_node] = (uint8_t)sorted[i].bytes[depth];
            rests[depth + 1] = rests[depth];
            v->kinds[v->n_node] = kind_after(&rests[depth + 1], v->bytes[v->n_node]);
            v->below[v->n_node] = 0;
            v->first[v->n_node++] = i;
        }
        v->ids[i] = sorted[i].id;
    }
    while (depth > 0) close_node(v, open, --depth);
    v->first[v->n_node] = n;
    free(open);
    free(rests);
    sort_by_length(v, sorted, n);
    return PLUMB_OK;
}

/* Reads the pieces of all tokens into *bytes, and makes *n pieces of them. */
static plumb_status read_pieces(struct pieces *v, const struct vocabulary *from, char **bytes, struct piece *pieces,
                                uint32_t *n, struct error *err) {
    size_t at = 0, cap = 0;
    for (uint32_t i = 0; i < v->n_vocab; i++) {
        if (from->is_eog(from->user, (int32_t)i)) {
            v->eog[v->n_eog++] = (int32_t)i;
            continue;
        }
        char *end = *bytes + (*bytes ? at : 0);
        int64_t length = from->piece(from->user, (int32_t)i, false, end, cap - at);
        if (length <= 0 || length > MAX_PIECE) continue;
        if (length > MAX_PIECE_BYTES - (int64_t)at) {
            return error_set(err, PLUMB_ERROR_UNSUPPORTED, "the texts of the vocabulary's tokens have more than %d MB",
                             MAX_PIECE_BYTES >> 20);
        }
        if ((size_t)length > cap - at) {
            if (!ARRAY_RESERVE(*bytes, at, (size_t)length, &cap)) return no_memory(err);
            from->piece(from->user, (int32_t)i, false, *bytes + at, cap - at);
        }
        at += (size_t)length;
        pieces[(*n)++] = (struct piece){ NULL, (uint32_t)length, (int32_t)i };
    }
    const char *next = *bytes;
    for (uint32_t i = 0; i < *n; next += pieces[i++].n) pieces[i].bytes = next;
    return PLUMB_OK;
}

plumb_status pieces_create(struct pieces **out, const struct vocabulary *vocabulary, struct error *err) {
    *out = NULL;
    uint32_t n_vocab = vocabulary->n_vocab;
    struct pieces *v = calloc(1, sizeof *v);
    struct piece *pieces = alloc_array(n_vocab, sizeof *pieces), *copy = alloc_array(n_vocab, sizeof *copy);
    char *bytes = NULL;
    uint32_t n = 0;
    plumb_status status = PLUMB_ERROR_MEMORY;
    if (v) v->eog = alloc_array(n_vocab, sizeof *v->eog);
    if (v && v->eog && pieces && copy) {
        v->n_vocab = n_vocab;
        status = read_pieces(v, vocabulary, &bytes, pieces, &n, err);
        if (status == PLUMB_OK) status = make_nodes(v, sort(pieces, copy, n), n, err);
        if (status == PLUMB_OK) status = note_kinds(v, err);
        if (status == PLUMB_OK) status = find_rare(v, err);
    } else {
        no_memory(err);
    }
    free(bytes);
    free(pieces);
    free(copy);
    if (status == PLUMB_OK) *out = v;
    else pieces_free(v);
    return status;
}

void pieces_free(struct pieces *v) {
    if (!v) return;
    free(v->bytes);
    free(v->ends);
    free(v->first);
    free(v->lengths);
    free(v->longest);
    free(v->kinds);
    free(v->below);
    free(v->having);
    free(v->separators);
    free(v->rare);
    free(v->ids);
    free(v->by_length);
    free(v->eog);
    free(v);
}

#include "speculate/lookup.h"

#include <stdlib.h>

/* The lengths of n-grams, the longest first.  CHAIN: how many places of a chain are looked at, so that a text that
 * repeats one token costs no more than another.  TRUSTED: a match of that many tokens is likely to be a copy; AFTER and
 * BEFORE: how far from the end of such a match a changed copy goes on. */
static const uint32_t grams[LOOKUP_GRAMS] = { 8, 4, 2 };
enum { LEAST_ROOM = 1024, CHAIN = 16, TRUSTED = 8, AFTER = 48, BEFORE = 16 };

static uint32_t hash(const struct lookup *l, const int32_t *end, uint32_t n) {
    uint64_t h = n;
    for (uint32_t i = 1; i <= n; i++) h = (h ^ (uint32_t)end[-(ptrdiff_t)i]) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) & (l->n_bucket - 1);
}

void lookup_free(struct lookup *l) {
    for (int g = 0; g < LOOKUP_GRAMS; g++) {
        free(l->heads[g]);
        free(l->before[g]);
    }
    *l = (struct lookup) { 0 };
}

uint64_t lookup_bytes(const struct lookup *l) {
    uint64_t n = l->n_max > 0 ? (uint64_t)l->n_bucket + l->n_max + 1 : 0;
    return n * LOOKUP_GRAMS * sizeof **l->heads;
}

void lookup_clear(struct lookup *l) {
    for (int g = 0; l->n_max > 0 && g < LOOKUP_GRAMS; g++) memset(l->heads[g], 0, l->n_bucket * sizeof **l->heads);
    l->n = l->source = l->length = l->left = 0;
}

/* Makes memory for n tokens; the index is empty then. */
static bool make_room(struct lookup *l, uint32_t n) {
    uint64_t n_max = LEAST_ROOM;
    while (n_max < n) n_max *= 2;
    lookup_free(l);
    if (n_max > UINT32_MAX / 2) return false;
    l->n_bucket = (uint32_t)n_max;
    for (int g = 0; g < LOOKUP_GRAMS; g++) {
        l->heads[g] = alloc_array(l->n_bucket, sizeof **l->heads);
        l->before[g] = alloc_array(n_max + 1, sizeof **l->before);
        if (!l->heads[g] || !l->before[g]) {
            lookup_free(l);
            return false;
        }
    }
    l->n_max = (uint32_t)n_max;
    lookup_clear(l);
    return true;
}

/* How many tokens before `end` are those at the end of the text. */
static uint32_t match(const struct lookup *l, const int32_t *tokens, uint32_t end) {
    uint32_t n = 0;
    while (n < end && n < LOOKUP_LONGEST && tokens[end - 1 - n] == tokens[l->n - 1 - n]) n++;
    return n;
}

static uint32_t distance(uint32_t a, uint32_t b) { return a > b ? a - b : b - a; }

/* Makes `end` the source if its match is longer; of equally long ones, the one nearest to where a copy ended. */
static void consider(struct lookup *l, const int32_t *tokens, uint32_t end) {
    uint32_t n = match(l, tokens, end);
    if (n < grams[LOOKUP_GRAMS - 1] || n < l->length) return;
    if (n == l->length && (l->left == 0 || distance(end, l->left) >= distance(l->source, l->left))) return;
    l->source = end;
    l->length = n;
}

static void search(struct lookup *l, const int32_t *tokens) {
    for (int g = 0; g < LOOKUP_GRAMS && l->length < grams[g]; g++) {
        if (l->n <= grams[g]) continue;
        uint32_t end = l->heads[g][hash(l, tokens + l->n, grams[g])];
        for (int i = 0; end > 0 && i < CHAIN; i++, end = l->before[g][end]) consider(l, tokens, end);
    }
    uint32_t first = l->left > BEFORE ? l->left - BEFORE : 1;
    for (uint32_t end = first; l->left > 0 && end <= l->left + AFTER && end < l->n; end++) consider(l, tokens, end);
    l->is_near = l->length > 0 && l->left > 0 && l->source + BEFORE >= l->left && l->source <= l->left + AFTER;
}

/* Adds one token.  Its own n-grams are entered after the search, which would find them. */
static void push(struct lookup *l, const int32_t *tokens, bool searches) {
    bool goes_on = l->length > 0 && tokens[l->source] == tokens[l->n];
    l->n++;
    if (goes_on && searches) {
        l->source++;
        l->length++;
        if (l->length >= TRUSTED) l->left = 0;
    } else {
        if (l->length >= TRUSTED) l->left = l->source;
        l->source = l->length = 0;
    }
    if (searches && l->length < TRUSTED) search(l, tokens);
    for (int g = 0; g < LOOKUP_GRAMS && l->n >= grams[LOOKUP_GRAMS - 1]; g++) {
        if (l->n < grams[g]) continue;
        uint32_t *head = &l->heads[g][hash(l, tokens + l->n, grams[g])];
        l->before[g][l->n] = *head;
        *head = l->n;
    }
}

bool lookup_extend(struct lookup *l, const int32_t *tokens, uint32_t n, bool searches) {
    if (n > l->n_max) {
        uint32_t source = l->source, length = l->length, left = l->left, n_before = l->n;
        bool is_near = l->is_near;
        if (!make_room(l, n)) return false;
        while (l->n < n_before) push(l, tokens, false);
        l->source = source;
        l->length = length;
        l->left = left;
        l->is_near = is_near;
    }
    while (l->n < n) push(l, tokens, searches);
    return true;
}

void lookup_keep(struct lookup *l, const int32_t *tokens, uint32_t n) {
    if (n >= l->n) return;
    for (; l->n > n; l->n--) {
        for (int g = 0; g < LOOKUP_GRAMS; g++) {
            if (l->n >= grams[g]) l->heads[g][hash(l, tokens + l->n, grams[g])] = l->before[g][l->n];
        }
    }
    l->source = l->length = l->left = 0;
}

uint32_t lookup_class(const struct lookup *l, uint32_t n_more) {
    static const uint32_t at_least[LOOKUP_CLASSES / 2 - 1] = { 3, 4, 6, 9, 17 };
    uint32_t class = 0;
    while (class < LOOKUP_CLASSES / 2 - 1 && l->length + n_more >= at_least[class]) class++;
    return 2 * class + l->is_near;
}

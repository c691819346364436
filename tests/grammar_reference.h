/* A slow, obvious matcher of GBNF, written apart from src/answers/grammar: the ground truth of its tests beside
 * llama.cpp.
 *
 * It parses by recursive descent into a tree, and matches by definition: match(node, position) is the set of the
 * positions at which a text of the node that begins at `position` can end.  A text is at most 60 characters, so a set
 * has 64 bits.  The grammar must have been accepted by rules_add_gbnf, so it has no mistakes and no left recursion. */
#ifndef PLUMB_TESTS_GRAMMAR_REFERENCE_H
#define PLUMB_TESTS_GRAMMAR_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { REF_NODES = 4000, REF_RANGES = 4000, REF_RULES = 64, REF_CHARS = 60, REF_STEPS = 200000 };
enum ref_kind { REF_EMPTY, REF_CLASS, REF_SEQUENCE, REF_EITHER, REF_REPEAT, REF_CALL };
enum ref_verdict { REF_REFUSED = '0', REF_PREFIX = '1', REF_COMPLETE = '2', REF_UNKNOWN = '?' };

struct ref_grammar {
    struct { enum ref_kind kind; int a, b; bool negated; uint64_t min, max; } nodes[REF_NODES];
    struct { uint32_t low, high; } ranges[REF_RANGES];
    struct { const char *name; size_t n; int node; } rules[REF_RULES];
    int n_node, n_range, n_rule;
    const char *at, *end;
    bool failed;             /* it has something that is left out here, or is too large */
    const uint32_t *text;
    int n_text;
    bool wants_more;         /* a character was looked for at the end of the text */
    long steps;
    bool known[REF_RULES][REF_CHARS + 1];
    uint64_t ends[REF_RULES][REF_CHARS + 1];
};

static int ref_node(struct ref_grammar *g, enum ref_kind kind, int a, int b) {
    if (g->n_node == REF_NODES) {
        g->failed = true;
        return 0;
    }
    g->nodes[g->n_node].kind = kind;
    g->nodes[g->n_node].a = a;
    g->nodes[g->n_node].b = b;
    return g->n_node++;
}

static char ref_peek(const struct ref_grammar *g) { return g->at < g->end ? *g->at : 0; }

static void ref_space(struct ref_grammar *g, bool newlines) {
    while (g->at < g->end) {
        if (*g->at == '#') {
            while (g->at < g->end && *g->at != '\n' && *g->at != '\r') g->at++;
        } else if (*g->at == ' ' || *g->at == '\t' || (newlines && (*g->at == '\n' || *g->at == '\r'))) {
            g->at++;
        } else {
            return;
        }
    }
}

static bool ref_is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

static uint32_t ref_utf8(const char **at, const char *end) {
    uint32_t c = (uint8_t)*(*at)++;
    int n = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    if (n > 0) c &= 0x3fu >> n;
    while (n-- > 0 && *at < end) c = c << 6 | ((uint8_t)*(*at)++ & 0x3f);
    return c;
}

static uint32_t ref_char(struct ref_grammar *g) {
    if (ref_peek(g) != '\\') return ref_utf8(&g->at, g->end);
    g->at++;
    char c = *g->at++;
    int n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n == 0) return c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : (uint8_t)c;
    char digits[9] = { 0 };
    memcpy(digits, g->at, (size_t)n);
    g->at += n;
    return (uint32_t)strtoul(digits, NULL, 16);
}

static int ref_rule(struct ref_grammar *g, const char *name, size_t n) {
    for (int i = 0; i < g->n_rule; i++) {
        if (g->rules[i].n == n && memcmp(g->rules[i].name, name, n) == 0) return i;
    }
    if (g->n_rule == REF_RULES) {
        g->failed = true;
        return 0;
    }
    g->rules[g->n_rule].name = name;
    g->rules[g->n_rule].n = n;
    return g->n_rule++;
}

static void ref_range(struct ref_grammar *g, uint32_t low, uint32_t high) {
    if (g->n_range == REF_RANGES) {
        g->failed = true;
        return;
    }
    g->ranges[g->n_range].low = low;
    g->ranges[g->n_range++].high = high;
}

/* A class of the ranges from `first` on. */
static int ref_class(struct ref_grammar *g, int first, bool negated) {
    int node = ref_node(g, REF_CLASS, first, g->n_range);
    g->nodes[node].negated = negated;
    return node;
}

static int ref_either(struct ref_grammar *g, bool nested, int depth);

static int ref_symbol(struct ref_grammar *g, int depth) {
    char c = ref_peek(g);
    int node = ref_node(g, REF_EMPTY, 0, 0);
    if (c == '"') {
        for (g->at++; ref_peek(g) != '"' && !g->failed;) {
            ref_range(g, ref_char(g), 0);
            g->ranges[g->n_range - 1].high = g->ranges[g->n_range - 1].low;
            node = ref_node(g, REF_SEQUENCE, node, ref_class(g, g->n_range - 1, false));
        }
        g->at++;
    } else if (c == '[') {
        bool negated = *++g->at == '^';
        g->at += negated;
        int first = g->n_range;
        for (; ref_peek(g) != ']' && !g->failed;) {
            uint32_t low = ref_char(g), high = low;
            if (ref_peek(g) == '-' && g->at[1] != ']') {
                g->at++;
                high = ref_char(g);
            }
            ref_range(g, low, high);
        }
        g->at++;
        if (g->n_range > first) node = ref_class(g, first, negated);
    } else if (c == '.') {
        g->at++;
        node = ref_class(g, g->n_range, true);
    } else if (c == '(') {
        g->at++;
        ref_space(g, true);
        node = ref_either(g, true, depth + 1);
        g->at++;
    } else if (ref_is_word(c)) {
        const char *name = g->at;
        while (ref_is_word(ref_peek(g))) g->at++;
        node = ref_node(g, REF_CALL, ref_rule(g, name, (size_t)(g->at - name)), 0);
    } else {
        g->failed = true;   /* a token element, or a count of marks */
    }
    return node;
}

static uint64_t ref_number(struct ref_grammar *g) {
    uint64_t x = 0;
    for (; ref_peek(g) >= '0' && ref_peek(g) <= '9'; g->at++) x = x > 1000000 ? x : x * 10 + (uint64_t)(*g->at - '0');
    return x;
}

static int ref_repeated(struct ref_grammar *g, bool nested, int depth) {
    int node = ref_symbol(g, depth);
    for (ref_space(g, nested); !g->failed; ref_space(g, nested)) {
        char c = ref_peek(g);
        uint64_t min = c == '+', max = c == '?' ? 1 : UINT64_MAX;
        if (c == '\0' || !strchr("*+?{", c)) break;
        g->at++;
        if (c == '{') {
            ref_space(g, nested);
            min = max = ref_number(g);
            ref_space(g, nested);
            if (ref_peek(g) == ',') {
                g->at++;
                ref_space(g, nested);
                max = ref_peek(g) == '}' ? UINT64_MAX : ref_number(g);
                ref_space(g, nested);
            }
            g->at++;
        }
        node = ref_node(g, REF_REPEAT, node, 0);
        g->nodes[node].min = min;
        g->nodes[node].max = max;
    }
    return node;
}

static int ref_either(struct ref_grammar *g, bool nested, int depth) {
    int either = -1;
    if (depth > 50) g->failed = true;
    while (!g->failed) {
        int sequence = ref_node(g, REF_EMPTY, 0, 0);
        for (char c; !g->failed && (c = ref_peek(g)) != 0 && (strchr("\"[.(<!%", c) || ref_is_word(c));) {
            sequence = ref_node(g, REF_SEQUENCE, sequence, ref_repeated(g, nested, depth));
        }
        either = either < 0 ? sequence : ref_node(g, REF_EITHER, either, sequence);
        if (ref_peek(g) != '|') break;
        g->at++;
        ref_space(g, true);
    }
    return either < 0 ? 0 : either;
}

static void ref_parse(struct ref_grammar *g, const char *text, size_t n) {
    memset(g, 0, sizeof *g);
    g->at = text;
    g->end = text + n;
    for (ref_space(g, true); g->at < g->end && !g->failed; ref_space(g, true)) {
        const char *name = g->at;
        while (ref_is_word(ref_peek(g))) g->at++;
        int rule = ref_rule(g, name, (size_t)(g->at - name));
        ref_space(g, false);
        g->at += 3;
        ref_space(g, true);
        int node = ref_either(g, false, 0);   /* the last definition of a rule counts */
        g->rules[rule].node = node;
    }
}

static bool ref_accepts(const struct ref_grammar *g, int node, uint32_t c) {
    bool found = false;
    for (int i = g->nodes[node].a; i < g->nodes[node].b; i++) {
        found = found || (g->ranges[i].low <= c && c <= g->ranges[i].high);
    }
    return g->nodes[node].negated ? !found && c != 0 : found;
}

static uint64_t ref_match(struct ref_grammar *g, int node, int at);

/* The ends of texts of the node that begin at any of these positions. */
static uint64_t ref_match_all(struct ref_grammar *g, int node, uint64_t from) {
    uint64_t ends = 0;
    for (int i = 0; i <= g->n_text; i++) {
        if (from >> i & 1) ends |= ref_match(g, node, i);
    }
    return ends;
}

static uint64_t ref_match(struct ref_grammar *g, int node, int at) {
    uint64_t ends = 0;
    if (++g->steps > REF_STEPS) return 0;
    switch (g->nodes[node].kind) {
    case REF_EMPTY:
        return UINT64_C(1) << at;
    case REF_CLASS:
        if (at == g->n_text) g->wants_more = true;
        return at < g->n_text && ref_accepts(g, node, g->text[at]) ? UINT64_C(1) << (at + 1) : 0;
    case REF_SEQUENCE:
        return ref_match_all(g, g->nodes[node].b, ref_match(g, g->nodes[node].a, at));
    case REF_EITHER:
        return ref_match(g, g->nodes[node].a, at) | ref_match(g, g->nodes[node].b, at);
    case REF_REPEAT: {
        uint64_t now = UINT64_C(1) << at, before = 0;
        for (uint64_t i = 0; now != 0 && i <= g->nodes[node].max && g->steps <= REF_STEPS; i++) {
            if (i >= g->nodes[node].min) {
                if ((ends | now) == ends) break;
                ends |= now;
            } else if (now == before) {
                i = g->nodes[node].min - 1;   /* nothing changes before the minimum */
            }
            before = now;
            if (i < g->nodes[node].max) now = ref_match_all(g, g->nodes[node].a, now);
        }
        return ends;
    }
    case REF_CALL: {
        int rule = g->nodes[node].a;
        if (!g->known[rule][at]) {
            g->ends[rule][at] = ref_match(g, g->rules[rule].node, at);
            g->known[rule][at] = true;
        }
        return g->ends[rule][at];
    }
    }
    return 0;
}

/* The verdict on n <= REF_CHARS code points; REF_UNKNOWN if it takes too long, or the grammar was too large. */
static char ref_verdict(struct ref_grammar *g, const uint32_t *text, int n) {
    int root = ref_rule(g, "root", 4);
    if (g->failed) return REF_UNKNOWN;
    g->text = text;
    g->n_text = n;
    g->wants_more = false;
    g->steps = 0;
    memset(g->known, 0, sizeof g->known);
    uint64_t ends = ref_match(g, g->rules[root].node, 0);
    if (g->steps > REF_STEPS) return REF_UNKNOWN;
    return ends >> n & 1 ? REF_COMPLETE : g->wants_more ? REF_PREFIX : REF_REFUSED;
}

#endif

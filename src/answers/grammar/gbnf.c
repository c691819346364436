/* GBNF -> struct grammar, in one pass over the text, as llama.cpp v0.5.0 reads it (src/llama-grammar.cpp).
 *
 * The code of a symbol is contiguous and ends where the next symbol begins, so a repetition copies it, and `|` and `*`
 * insert a split in front of it.  Groups are kept on a stack of the parser's own.
 *
 * What differs from llama.cpp: repetitions are exact up to GRAMMAR_MAX_COUNT (llama.cpp refuses products above 2,000,
 * and reads a larger maximum as none); a maximum below the minimum is refused; left recursion is also found behind
 * symbols that are empty indirectly; ("a"?)* is no left recursion; U+0000 is matched only where it is named; there are
 * counts of marks: %{2,5}(...) has 2 to 5 marks inside, and %3 is a mark behind which 3 others fit.
 */
#include "grammar/grammar.h"

#include <stdlib.h>

/* A group, or the whole rule: what is before the current alternative, and the current alternative. */
struct group {
    uint32_t open;          /* the place of its "(" */
    uint32_t first;         /* its first instruction */
    uint32_t alternative;   /* the first instruction of the current alternative */
    uint32_t jump;          /* the last jump to its end + 1, 0 if there is none; its argument is the one before */
    bool counts;            /* it counts marks */
    struct counter counter; /* with these bounds */
};

/* A repetition with fewer instructions than this is written out. */
enum { MAX_WRITTEN_OUT = 16 };

struct parser {
    const char *text;
    size_t n, at;
    const struct vocabulary *vocabulary;
    struct grammar *g;
    struct class_builder classes;
    struct error *err;
    struct group *groups;
    size_t n_group, group_cap;
    uint32_t symbol;        /* the first instruction of the last symbol */
    bool has_symbol;        /* there is one, which can be repeated */
    uint64_t work;
    struct hash_index index;   /* of g->rules, by their names */
};

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static plumb_status no_memory(struct error *err) {
    return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a grammar");
}

static void locate(const struct parser *p, size_t at, unsigned *line, unsigned *column) {
    *line = *column = 1;
    for (size_t i = 0; i < at; i++) {
        if (p->text[i] == '\n') {
            ++*line;
            *column = 1;
        } else if ((p->text[i] & 0xc0) != 0x80) {
            ++*column;
        }
    }
}

/* "line 2, column 5: expected `::=`, found "x..."". */
static plumb_status expected(struct parser *p, size_t at, const char *what) {
    unsigned line, column;
    locate(p, at, &line, &column);
    struct shown shown;
    size_t n = p->n - at < 24 ? p->n - at : 24;
    if (n == 0) {
        return error_set(p->err, PLUMB_ERROR_ARGUMENT, "line %u, column %u: expected %s, found the end of the grammar",
                         line, column, what);
    }
    return error_set(p->err, PLUMB_ERROR_ARGUMENT, "line %u, column %u: expected %s, found \"%s\"", line, column, what,
                     show_bytes(&shown, p->text + at, n));
}

static plumb_status mistake(struct parser *p, size_t at, const char *what) {
    unsigned line, column;
    locate(p, at, &line, &column);
    return error_set(p->err, PLUMB_ERROR_ARGUMENT, "line %u, column %u: %s", line, column, what);
}

static plumb_status too_large(struct parser *p) {
    unsigned line, column;
    locate(p, p->at, &line, &column);
    return error_set(p->err, PLUMB_ERROR_UNSUPPORTED, "line %u, column %u: the grammar is too large: it has more than "
                     "%d characters and symbols", line, column, GRAMMAR_MAX_CODE);
}

/* ---- code -------------------------------------------------------------------------------------------------------- */

static uint32_t instruction(enum grammar_op op, int64_t arg) {
    return (uint32_t)((int32_t)arg * 16) | (uint32_t)op;
}

/* Makes room for n more instructions. */
static plumb_status reserve(struct parser *p, uint64_t n) {
    struct grammar *g = p->g;
    if (n > GRAMMAR_MAX_CODE - g->n_code) return too_large(p);
    while (g->code_cap < g->n_code + n) {
        uint32_t *code = alloc_grow(g->code, g->code_cap, &g->code_cap, sizeof *code);
        if (!code) return no_memory(p->err);
        g->code = code;
    }
    return PLUMB_OK;
}

static void put(struct parser *p, enum grammar_op op, int64_t arg) {
    p->g->code[p->g->n_code++] = instruction(op, arg);
}

static plumb_status emit(struct parser *p, enum grammar_op op, int64_t arg) {
    PLUMB_TRY(reserve(p, 1));
    put(p, op, arg);
    return PLUMB_OK;
}

static plumb_status count_work(struct parser *p, uint64_t n) {
    p->work += n;
    if (p->work <= GRAMMAR_MAX_WORK) return PLUMB_OK;
    return mistake(p, p->at, "the grammar is too complex: too many repetitions and alternatives in each other");
}

/* Inserts an instruction; the code from there on is moved. */
static plumb_status insert(struct parser *p, uint32_t at, enum grammar_op op, int64_t arg) {
    struct grammar *g = p->g;
    PLUMB_TRY(reserve(p, 1));
    PLUMB_TRY(count_work(p, g->n_code - at));
    memmove(g->code + at + 1, g->code + at, (g->n_code - at) * sizeof *g->code);
    g->code[at] = instruction(op, arg);
    g->n_code++;
    return PLUMB_OK;
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

static char peek(const struct parser *p, size_t ahead) { return ahead < p->n - p->at ? p->text[p->at + ahead] : 0; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || is_digit(c); }

/* Reads the character at `at`.  Returns its length in bytes; 0 if it is not UTF-8. */
static size_t decode(const struct parser *p, size_t at, uint32_t *cp) {
    const uint8_t *s = (const uint8_t *)p->text + at;
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (n == 0 || n > p->n - at) return 0;
    *cp = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *cp = *cp << 6 | (s[i] & 0x3f);
    }
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    return *cp < least[n] || *cp > 0x10ffff || (*cp >= 0xd800 && *cp < 0xe000) ? 0 : n;
}

static plumb_status parse_hex(struct parser *p, int n, uint32_t *cp) {
    size_t start = p->at;
    p->at += 2;
    *cp = 0;
    for (int i = 0; i < n; i++, p->at++) {
        char c = peek(p, 0);
        int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 :
                    c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return expected(p, p->at, n == 2 ? "2 hexadecimal digits" : n == 4 ? "4 hexadecimal digits" :
                                                                                            "8 hexadecimal digits");
        *cp = *cp << 4 | (uint32_t)digit;
    }
    if (*cp > 0x10ffff) return mistake(p, start, "code points end at U+10FFFF");
    return PLUMB_OK;
}

/* Reads a character of a literal or class, perhaps escaped. */
static plumb_status parse_char(struct parser *p, uint32_t *cp) {
    if (p->at == p->n) return expected(p, p->at, "a character");
    if (peek(p, 0) != '\\') {
        size_t n = decode(p, p->at, cp);
        if (n == 0) return expected(p, p->at, "UTF-8");
        p->at += n;
        return PLUMB_OK;
    }
    char c = peek(p, 1);
    if (c == 'x') return parse_hex(p, 2, cp);
    if (c == 'u') return parse_hex(p, 4, cp);
    if (c == 'U') return parse_hex(p, 8, cp);
    static const char names[] = "trn\\\"[]-", values[] = "\t\r\n\\\"[]-";
    const char *found = c != 0 ? strchr(names, c) : NULL;
    if (!found) return expected(p, p->at, "an escape (\\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\-)");
    *cp = (uint8_t)values[found - names];
    p->at += 2;
    return PLUMB_OK;
}

static void skip_space(struct parser *p, bool newlines) {
    for (;; p->at++) {
        char c = peek(p, 0);
        if (c == '#') {
            while (p->at < p->n && peek(p, 0) != '\r' && peek(p, 0) != '\n') p->at++;
            c = peek(p, 0);
            if (!newlines || p->at == p->n) return;
        } else if (c != ' ' && c != '\t' && !(newlines && (c == '\r' || c == '\n'))) {
            return;
        }
    }
}

/* ---- rules by name ----------------------------------------------------------------------------------------------- */

static uint64_t hash_name(const char *name, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)name[i]) * 16777619u;
    return h ^ h >> 15;
}

static uint64_t hash_rule(const void *user, size_t i) {
    const struct parser *p = user;
    return hash_name(p->text + p->g->rules[i].name, p->g->rules[i].n_name);
}

/* *rule becomes the rule whose name is text[at .. at + n), a new one if there is none. */
static plumb_status find_rule(struct parser *p, size_t at, size_t n, uint32_t *rule) {
    struct grammar *g = p->g;
    if (!hash_index_reserve(&p->index, g->n_rule, hash_rule, p)) return no_memory(p->err);
    size_t slot = hash_index_first(&p->index, hash_name(p->text + at, n));
    for (; p->index.slots[slot] != 0; slot = hash_index_next(&p->index, slot)) {
        *rule = p->index.slots[slot] - 1;
        if (g->rules[*rule].n_name == n && memcmp(p->text + g->rules[*rule].name, p->text + at, n) == 0) {
            return PLUMB_OK;
        }
    }
    if (g->n_rule == GRAMMAR_MAX_CODE) return too_large(p);
    struct grammar_rule *rules = alloc_grow(g->rules, g->n_rule, &g->rule_cap, sizeof *rules);
    if (!rules) return no_memory(p->err);
    g->rules = rules;
    *rule = (uint32_t)g->n_rule;
    rules[g->n_rule++] = (struct grammar_rule){ (uint32_t)at, (uint32_t)n, RULE_UNDEFINED };
    p->index.slots[slot] = (uint32_t)g->n_rule;
    return PLUMB_OK;
}

static size_t name_length(const struct parser *p) {
    size_t n = 0;
    while (is_word(peek(p, n))) n++;
    return n;
}

/* ---- symbols ----------------------------------------------------------------------------------------------------- */

static bool is_nested(const struct parser *p) { return p->n_group > 1; }

static void begin_symbol(struct parser *p) {
    p->symbol = (uint32_t)p->g->n_code;
    p->has_symbol = true;
}

static plumb_status parse_literal(struct parser *p) {
    size_t start = p->at++;
    begin_symbol(p);
    p->has_symbol = peek(p, 0) != '"';   /* as in llama.cpp, "" cannot be repeated */
    while (peek(p, 0) != '"') {
        uint32_t cp = 0, node;
        if (p->at == p->n) return mistake(p, start, "a literal has no closing quote");
        size_t at = p->at;
        PLUMB_TRY(parse_char(p, &cp));
        if (cp >= 0xd800 && cp < 0xe000) return mistake(p, at, "a surrogate is not a character");
        PLUMB_TRY(class_add(&p->classes, cp, cp, p->err));
        PLUMB_TRY(class_finish(&p->classes, false, &node, p->err));
        PLUMB_TRY(emit(p, OP_CLASS, node));
    }
    p->at++;
    return PLUMB_OK;
}

static plumb_status parse_class(struct parser *p) {
    size_t start = p->at++;
    bool negated = peek(p, 0) == '^';
    p->at += negated;
    begin_symbol(p);
    p->has_symbol = peek(p, 0) != ']';   /* as in llama.cpp, [] and [^] are empty texts */
    while (peek(p, 0) != ']') {
        uint32_t low = 0, high;
        if (p->at == p->n) return mistake(p, start, "a class of characters has no closing bracket");
        PLUMB_TRY(parse_char(p, &low));
        high = low;
        if (peek(p, 0) == '-' && peek(p, 1) != ']') {
            p->at++;
            PLUMB_TRY(parse_char(p, &high));
        }
        PLUMB_TRY(class_add(&p->classes, low, high, p->err));
    }
    p->at++;
    if (!p->has_symbol) return PLUMB_OK;
    uint32_t node;
    PLUMB_TRY(class_finish(&p->classes, negated, &node, p->err));
    return emit(p, OP_CLASS, node);
}

static plumb_status parse_int(struct parser *p, const char *what, uint64_t *value) {
    if (!is_digit(peek(p, 0))) return expected(p, p->at, what);
    for (*value = 0; is_digit(peek(p, 0)); p->at++) {
        if (*value < UINT32_MAX) *value = *value * 10 + (uint64_t)(peek(p, 0) - '0');
    }
    return PLUMB_OK;
}

/* <[1000]>, <think>, and either with ! before it. */
static plumb_status parse_token(struct parser *p) {
    size_t start = p->at;
    enum grammar_op op = peek(p, 0) == '!' ? OP_NOT_TOKEN : OP_TOKEN;
    p->at += op == OP_NOT_TOKEN;
    if (peek(p, 0) != '<') return expected(p, p->at, "a token, such as <think>,");
    uint64_t id = 0;
    if (peek(p, 1) == '[') {
        p->at += 2;
        PLUMB_TRY(parse_int(p, "the id of a token", &id));
        if (peek(p, 0) != ']' || peek(p, 1) != '>') return expected(p, p->at, "]>");
        p->at += 2;
        if (id > (p->vocabulary ? p->vocabulary->n_vocab - 1 : GRAMMAR_MAX_TOKEN)) {
            return mistake(p, start, "no token has this id");
        }
    } else {
        size_t text = p->at;
        while (p->at < p->n && peek(p, 0) != '>') p->at++;
        if (p->at++ == p->n) return mistake(p, start, "a token has no closing >");
        if (!p->vocabulary) return mistake(p, start, "the text of a token needs the vocabulary of a model");
        int32_t found = p->vocabulary->find(p->vocabulary->user, p->text + text, p->at - text);
        if (found < 0) return mistake(p, start, "the vocabulary has no single token with this text");
        id = (uint64_t)found;
    }
    begin_symbol(p);
    return emit(p, op, (int64_t)id);
}

/* Adds the bounds of a count. */
static plumb_status add_counter(struct parser *p, struct counter counter, uint32_t *number) {
    struct grammar *g = p->g;
    if (g->n_counter == GRAMMAR_MAX_COUNTERS) {
        return error_set(p->err, PLUMB_ERROR_UNSUPPORTED, "the grammar is too large: it has more than %d counted "
                         "repetitions", GRAMMAR_MAX_COUNTERS);
    }
    struct counter *counters = alloc_grow(g->counters, g->n_counter, &g->counter_cap, sizeof *counters);
    if (!counters) return no_memory(p->err);
    g->counters = counters;
    *number = (uint32_t)g->n_counter;
    counters[g->n_counter++] = counter;
    return PLUMB_OK;
}

/* Repeats the last symbol, and counts how often.
 *   x{20,40}   count(leave) mark x split(mark) leave
 *   x{0,40}    split(end) count(leave) mark x split(mark) leave */
static plumb_status repeat_counted(struct parser *p, uint64_t min, uint64_t max) {
    struct grammar *g = p->g;
    const int64_t n = (int64_t)g->n_code - p->symbol;
    uint32_t number = 0;
    const struct counter counter = { .min = min > 0 ? (uint32_t)min : 1,
                                     .max = max == UINT64_MAX ? COUNT_UNBOUNDED : (uint32_t)max };
    PLUMB_TRY(add_counter(p, counter, &number));
    PLUMB_TRY(insert(p, p->symbol, OP_MARK, 0));
    PLUMB_TRY(insert(p, p->symbol, OP_COUNT, n + 3));
    PLUMB_TRY(emit(p, OP_SPLIT, -(n + 1)));
    PLUMB_TRY(emit(p, OP_LEAVE, number));
    return min > 0 ? PLUMB_OK : insert(p, p->symbol, OP_SPLIT, n + 5);
}

/* Repeats the last symbol, at least `min` and at most `max` times; UINT64_MAX: no limit.
 *   x{2,4}   x x split(end) x split(end) x
 *   x*       split(end) x split(x)
 *   x{2,}    x x split(second x) */
static plumb_status repeat(struct parser *p, size_t at, uint64_t min, uint64_t max) {
    struct grammar *g = p->g;
    if (!p->has_symbol) return mistake(p, at, "there is nothing before the repetition that could be repeated");
    uint64_t n = g->n_code - p->symbol, total;
    if (max == UINT64_MAX) total = min == 0 ? n + 2 : min * n + 1;
    else total = min * n + (max - min) * (n + 1);   /* below 2^54 */
    if (max == 0) {
        g->n_code = p->symbol;
        p->has_symbol = false;
        return PLUMB_OK;
    }
    if (total > MAX_WRITTEN_OUT && (min > 1 || (max > 1 && max != UINT64_MAX))) return repeat_counted(p, min, max);
    if (total > n) PLUMB_TRY(reserve(p, total - n));
    uint32_t from = p->symbol, end = (uint32_t)(p->symbol + total);
    if (min == 0) PLUMB_TRY(insert(p, from++, OP_SPLIT, (int64_t)total));
    for (uint64_t i = 1; i < min || (max != UINT64_MAX && i < max); i++) {
        if (i >= min) put(p, OP_SPLIT, (int64_t)end - (int64_t)g->n_code);
        if (n > 0) memcpy(g->code + g->n_code, g->code + from, (size_t)n * sizeof *g->code);
        g->n_code += (size_t)n;
    }
    if (max == UINT64_MAX) put(p, OP_SPLIT, -(int64_t)n);
    return PLUMB_OK;
}

/* Reads what is between the braces of a repetition or a count, from the minimum on. */
static plumb_status parse_bounds(struct parser *p, size_t at, uint64_t *min, uint64_t *max) {
    PLUMB_TRY(parse_int(p, "a number of repetitions", min));
    skip_space(p, is_nested(p));
    *max = *min;
    if (peek(p, 0) == ',') {
        p->at++;
        skip_space(p, is_nested(p));
        *max = UINT64_MAX;
        if (is_digit(peek(p, 0))) PLUMB_TRY(parse_int(p, "a number of repetitions", max));
        skip_space(p, is_nested(p));
    } else if (peek(p, 0) != '}') {
        return expected(p, p->at, "a comma or }");
    }
    if (peek(p, 0) != '}') return expected(p, p->at, "}");
    p->at++;
    if (*max < *min) return mistake(p, at, "the maximum of a repetition is below its minimum");
    if (*min > GRAMMAR_MAX_COUNT || (*max > GRAMMAR_MAX_COUNT && *max != UINT64_MAX)) {
        return mistake(p, at, "a repetition of more than 1073741823 times");
    }
    return PLUMB_OK;
}

static plumb_status parse_repeat(struct parser *p) {
    size_t at = p->at;
    char c = peek(p, 0);
    p->at++;
    skip_space(p, is_nested(p));
    if (c == '*') return repeat(p, at, 0, UINT64_MAX);
    if (c == '+') return repeat(p, at, 1, UINT64_MAX);
    if (c == '?') return repeat(p, at, 0, 1);
    uint64_t min = 0, max = 0;
    PLUMB_TRY(parse_bounds(p, at, &min, &max));
    return repeat(p, at, min, max);
}

static plumb_status open_group(struct parser *p) {
    if (p->n_group > GRAMMAR_MAX_DEPTH) return mistake(p, p->at, "more than 10000 groups in each other");
    struct group *groups = alloc_grow(p->groups, p->n_group, &p->group_cap, sizeof *groups);
    if (!groups) return no_memory(p->err);
    p->groups = groups;
    uint32_t at = (uint32_t)p->g->n_code;
    groups[p->n_group++] = (struct group){ .open = (uint32_t)p->at, .first = at, .alternative = at };
    p->has_symbol = false;
    return PLUMB_OK;
}

/* Begins another alternative: the one before it becomes split(the new one) ... jump(end of the group). */
static plumb_status begin_alternative(struct parser *p) {
    struct group *group = &p->groups[p->n_group - 1];
    PLUMB_TRY(insert(p, group->alternative, OP_SPLIT, (int64_t)(p->g->n_code - group->alternative) + 2));
    PLUMB_TRY(emit(p, OP_JUMP, group->jump));
    group->jump = (uint32_t)p->g->n_code;
    group->alternative = (uint32_t)p->g->n_code;
    p->has_symbol = false;
    return PLUMB_OK;
}

static plumb_status close_group(struct parser *p) {
    const struct group *group = &p->groups[--p->n_group];
    uint32_t number = 0;
    for (uint32_t jump = group->jump, before; jump != 0; jump = before) {
        uint32_t *code = &p->g->code[jump - 1];
        before = (uint32_t)arg_of(*code);
        *code = instruction(OP_JUMP, (int64_t)p->g->n_code - (int64_t)(jump - 1));
    }
    p->symbol = group->first;
    p->has_symbol = true;
    if (!group->counts) return PLUMB_OK;
    PLUMB_TRY(add_counter(p, group->counter, &number));
    PLUMB_TRY(insert(p, p->symbol, OP_COUNT, (int64_t)p->g->n_code - p->symbol + 1));
    return emit(p, OP_LEAVE, number);
}

/* %{2,5}( begins a group that counts marks; %3 is a mark. */
static plumb_status parse_count(struct parser *p) {
    const size_t at = p->at++;
    uint64_t min = 0, max = 0;
    if (peek(p, 0) == '{') {
        p->at++;
        PLUMB_TRY(parse_bounds(p, at, &min, &max));
        if (peek(p, 0) != '(') return expected(p, p->at, "`(`");
        PLUMB_TRY(open_group(p));
        p->at++;
        struct group *group = &p->groups[p->n_group - 1];
        group->counts = true;
        group->counter = (struct counter){ .min = (uint32_t)min,
                                           .max = max == UINT64_MAX ? COUNT_UNBOUNDED : (uint32_t)max };
        return PLUMB_OK;
    }
    if (is_digit(peek(p, 0))) PLUMB_TRY(parse_int(p, "a number of marks", &min));
    if (min > 1 << 20) return mistake(p, at, "a mark before more than 1048576 others");
    if (min > p->g->most_behind) p->g->most_behind = (uint32_t)min;
    p->has_symbol = false;
    return emit(p, OP_MARK, (int64_t)min);
}

static plumb_status parse_call(struct parser *p) {
    size_t n = name_length(p);
    uint32_t rule;
    PLUMB_TRY(find_rule(p, p->at, n, &rule));
    p->at += n;
    begin_symbol(p);
    return emit(p, OP_CALL, rule);
}

/* Reads what follows `::=`, up to what cannot be part of it. */
static plumb_status parse_alternatives(struct parser *p, uint32_t rule) {
    PLUMB_TRY(open_group(p));
    for (;;) {
        char c = peek(p, 0);
        if (c == '"') {
            PLUMB_TRY(parse_literal(p));
        } else if (c == '[') {
            PLUMB_TRY(parse_class(p));
        } else if (c == '<' || c == '!') {
            PLUMB_TRY(parse_token(p));
        } else if (is_word(c)) {
            PLUMB_TRY(parse_call(p));
        } else if (c == '.') {
            uint32_t node;
            p->at++;
            begin_symbol(p);
            PLUMB_TRY(class_finish(&p->classes, true, &node, p->err));
            PLUMB_TRY(emit(p, OP_CLASS, node));
        } else if (c == '*' || c == '+' || c == '?' || c == '{') {
            PLUMB_TRY(parse_repeat(p));
        } else if (c == '%') {
            PLUMB_TRY(parse_count(p));
        } else if (c == '(') {
            PLUMB_TRY(open_group(p));
            p->at++;
        } else if (c == '|') {
            p->at++;
            PLUMB_TRY(begin_alternative(p));
            skip_space(p, true);
        } else if (c == ')' && is_nested(p)) {
            p->at++;
            PLUMB_TRY(close_group(p));
        } else if (is_nested(p)) {
            return expected(p, p->at, "a symbol or `)`");
        } else {
            break;
        }
        skip_space(p, is_nested(p));
    }
    PLUMB_TRY(close_group(p));
    return emit(p, OP_RETURN, rule);
}

static plumb_status parse_rule(struct parser *p) {
    size_t n = name_length(p), at = p->at;
    if (n == 0) return expected(p, at, "the name of a rule");
    uint32_t rule;
    PLUMB_TRY(find_rule(p, at, n, &rule));
    p->at += n;
    skip_space(p, false);
    if (!(peek(p, 0) == ':' && peek(p, 1) == ':' && peek(p, 2) == '=')) return expected(p, p->at, "`::=`");
    p->at += 3;
    skip_space(p, true);
    uint32_t start = (uint32_t)p->g->n_code;
    PLUMB_TRY(parse_alternatives(p, rule));
    p->g->rules[rule].start = (int32_t)start;   /* as in llama.cpp, the last of several definitions counts */
    if (p->at < p->n && peek(p, 0) != '\r' && peek(p, 0) != '\n') {
        return expected(p, p->at, "a symbol or the end of the line");
    }
    skip_space(p, true);
    return PLUMB_OK;
}

/* ---- checks of the whole grammar --------------------------------------------------------------------------------- */

static plumb_status find_root(struct parser *p) {
    struct grammar *g = p->g;
    struct shown name;
    bool found = false;
    for (uint32_t i = 0; i < g->n_rule; i++) {
        const struct grammar_rule *r = &g->rules[i];
        if (r->start == RULE_UNDEFINED) {
            unsigned line, column;
            locate(p, r->name, &line, &column);
            return error_set(p->err, PLUMB_ERROR_ARGUMENT, "line %u, column %u: the rule %s is not defined", line,
                             column, show_bytes(&name, p->text + r->name, r->n_name));
        }
        if (r->n_name == 4 && memcmp(p->text + r->name, "root", 4) == 0) {
            g->root = i;
            found = true;
        }
    }
    if (found) return PLUMB_OK;
    return error_set(p->err, PLUMB_ERROR_ARGUMENT, "the grammar has no rule with the name root");
}

/* What can be reached without consuming anything: from each rule's start, past calls of rules that may be empty. */
struct reach {
    uint32_t *todo;          /* (n_code) */
    size_t n_todo;
    uint8_t *is_reached;     /* (n_code) */
    uint8_t *may_be_empty;   /* (n_rule) */
    /* Calls that are reached, in lists: of each rule, and for the search in each rule. */
    struct call { uint32_t at, before; } *calls;   /* (n_call) before: the number of the one before it + 1 */
    uint32_t n_call;
    uint32_t *last_call;     /* (n_rule) the number of the last one + 1 */
    uint32_t *path;          /* (n_rule) the rules on the path of the search */
    uint8_t *color;          /* (n_rule) 1: on the path; 2: done */
};

static void reach(struct reach *r, size_t at) {
    if (r->is_reached[at]) return;
    r->is_reached[at] = 1;
    r->todo[r->n_todo++] = (uint32_t)at;
}

static void add_call(struct reach *r, uint32_t rule, uint32_t at) {
    r->calls[r->n_call] = (struct call){ at, r->last_call[rule] };
    r->last_call[rule] = ++r->n_call;
}

/* Fills may_be_empty, and the list of the calls of each rule that are reached. */
static void find_reached(struct reach *r, const struct grammar *g) {
    for (size_t i = 0; i < g->n_rule; i++) reach(r, (size_t)g->rules[i].start);
    while (r->n_todo > 0) {
        uint32_t at = r->todo[--r->n_todo], code = g->code[at];
        int32_t arg = arg_of(code);
        switch (op_of(code)) {
        case OP_CLASS: case OP_TOKEN: case OP_NOT_TOKEN:
            break;
        case OP_SPLIT:
            reach(r, at + 1);
            reach(r, (size_t)((int64_t)at + arg));
            break;
        case OP_JUMP:
            reach(r, (size_t)((int64_t)at + arg));
            break;
        case OP_COUNT: case OP_MARK: case OP_LEAVE:
            reach(r, at + 1);
            break;
        case OP_CALL:
            if (r->may_be_empty[arg]) reach(r, at + 1);
            add_call(r, (uint32_t)arg, at);
            break;
        case OP_RETURN:
            if (r->may_be_empty[arg]) break;
            r->may_be_empty[arg] = 1;
            for (uint32_t i = r->last_call[arg]; i != 0; i = r->calls[i - 1].before) reach(r, r->calls[i - 1].at + 1);
            break;
        }
    }
}

/* Whether a text may be empty from an instruction up to another one of the same rule.  is_reached is zeros, and is
 * again in the end. */
static bool may_be_empty(struct reach *r, const struct grammar *g, size_t from, size_t to, uint64_t *work) {
    r->n_todo = 0;
    reach(r, from);
    size_t n = 0;
    for (; n < r->n_todo && !r->is_reached[to]; n++) {
        const uint32_t at = r->todo[n], code = g->code[at];
        const enum grammar_op op = op_of(code);
        if (op == OP_SPLIT || op >= OP_COUNT || (op == OP_CALL && r->may_be_empty[arg_of(code)])) reach(r, at + 1);
        if (op == OP_SPLIT || op == OP_JUMP) reach(r, (size_t)((int64_t)at + arg_of(code)));
    }
    const bool found = r->is_reached[to];
    while (r->n_todo > 0) r->is_reached[r->todo[--r->n_todo]] = 0;
    *work += n;
    return found;
}

/* Finds the counters whose iterations may be empty.  Between two bytes, such counters inside each other can be counted
 * in as many ways as the product of their bounds, so this product is limited.  Any other mark must stand directly
 * before something that reads a character. */
static plumb_status check_marks(struct parser *p, struct reach *r) {
    enum { MAX_EMPTY = 4096 };
    const struct grammar *g = p->g;
    /* The counters around the instruction whose bounds are at least 2, so there are at most 12: 2^12 is MAX_EMPTY. */
    struct { size_t end; uint64_t product; } around[12];
    size_t n_around = 0;
    memset(r->is_reached, 0, g->n_code);
    for (size_t at = 0; at < g->n_code; at++) {
        if (op_of(g->code[at]) != OP_MARK) continue;
        const uint32_t before = at > 0 ? g->code[at - 1] : 0;
        const size_t leave = op_of(before) == OP_COUNT ? at - 1 + (size_t)arg_of(before) : 0;
        const uint32_t last = leave > 0 ? g->code[leave - 1] : 0, next = g->code[at + 1];
        uint64_t work = 1;
        while (n_around > 0 && around[n_around - 1].end < at) n_around--;
        if (op_of(last) != OP_SPLIT || (int64_t)leave - 1 + arg_of(last) != (int64_t)at) {
            if (op_of(next) <= OP_NOT_TOKEN || (op_of(next) == OP_CALL && !r->may_be_empty[arg_of(next)])) continue;
            return error_set(p->err, PLUMB_ERROR_ARGUMENT, "after a mark %% there is no character, and no rule that "
                             "cannot be empty");
        }
        if (may_be_empty(r, g, at + 1, leave - 1, &work)) {
            struct counter *c = &g->counters[arg_of(g->code[leave])];
            const uint64_t most = c->max == COUNT_UNBOUNDED ? c->min : c->max;
            c->is_exact = true;
            if (most > 1) {
                const uint64_t product = most * (n_around > 0 ? around[n_around - 1].product : 1);
                if (product > MAX_EMPTY) {
                    return error_set(p->err, PLUMB_ERROR_UNSUPPORTED,
                                     "what may be empty is repeated more than %d times", MAX_EMPTY);
                }
                around[n_around].end = leave;
                around[n_around++].product = product;
            }
        }
        PLUMB_TRY(count_work(p, work));
    }
    return PLUMB_OK;
}

/* Finds the most_behind of all counters.  A count's marks stand between its OP_COUNT and its OP_LEAVE, or in rules that
 * are called in front of that. */
static plumb_status find_behind(struct parser *p) {
    struct grammar *g = p->g;
    struct open { size_t leave; struct counter *counter; } *open = NULL;
    size_t n = 0, cap = 0;
    if (g->most_behind == 0) return PLUMB_OK;
    for (size_t at = 0; at < g->n_code; at++) {
        const enum grammar_op op = op_of(g->code[at]);
        while (n > 0 && open[n - 1].leave <= at) n--;
        struct counter *c = n > 0 ? open[n - 1].counter : NULL;
        uint32_t behind = 0;
        if (op == OP_MARK) behind = (uint32_t)arg_of(g->code[at]);
        if (c && op == OP_CALL && grammar_is_tail(g->code[grammar_skip_jumps(g, at + 1)])) behind = g->most_behind;
        if (c && behind > c->most_behind) c->most_behind = behind;
        if (op != OP_COUNT) continue;
        struct open *larger = alloc_grow(open, n, &cap, sizeof *open);
        if (!larger) {
            free(open);
            return no_memory(p->err);
        }
        open = larger;
        const size_t leave = at + (size_t)arg_of(g->code[at]);
        open[n++] = (struct open){ leave, &g->counters[arg_of(g->code[leave])] };
    }
    free(open);
    return PLUMB_OK;
}

/* Names the rules of a cycle, from path[first] on: "root -> expr -> root".  A long one is cut. */
static plumb_status refuse_cycle(struct parser *p, const struct reach *r, size_t first, size_t n) {
    char names[640];
    size_t length = 0;
    struct shown name;
    for (size_t i = first; i <= n && length < 500; i++) {
        const struct grammar_rule *rule = &p->g->rules[r->path[i == n ? first : i]];
        const char *shown = show_bytes(&name, p->text + rule->name, rule->n_name);
        size_t n_shown = strlen(shown);
        if (i > first) {
            memcpy(names + length, " -> ", 4);
            length += 4;
        }
        if (n_shown > 70) n_shown = 70;
        memcpy(names + length, shown, n_shown);
        length += n_shown;
    }
    names[length] = 0;
    unsigned line, column;
    locate(p, p->g->rules[r->path[first]].name, &line, &column);
    return error_set(p->err, PLUMB_ERROR_ARGUMENT, "line %u, column %u: left recursion: %s", line, column, names);
}

/* Looks for a rule that calls itself before anything is consumed, by a depth-first search without recursion. */
static plumb_status find_cycle(struct parser *p, struct reach *r) {
    const struct grammar *g = p->g;
    uint32_t owner = 0;   /* a rule's code ends with its return */
    r->n_call = 0;
    memset(r->last_call, 0, g->n_rule * sizeof *r->last_call);
    for (size_t at = g->n_code; at-- > 0;) {
        if (op_of(g->code[at]) == OP_RETURN) owner = (uint32_t)arg_of(g->code[at]);
        if (op_of(g->code[at]) != OP_CALL || !r->is_reached[at]) continue;
        add_call(r, owner, (uint32_t)at);
    }
    for (uint32_t i = 0; i < g->n_rule; i++) {
        if (r->color[i] != 0) continue;
        size_t n = 0;
        r->path[n++] = i;
        r->color[i] = 1;
        while (n > 0) {
            uint32_t *last = &r->last_call[r->path[n - 1]];
            if (*last == 0) {
                r->color[r->path[--n]] = 2;
                continue;
            }
            const struct call call = r->calls[*last - 1];
            uint32_t callee = (uint32_t)arg_of(g->code[call.at]);
            *last = call.before;
            if (r->color[callee] == 1) {
                size_t first = 0;
                while (r->path[first] != callee) first++;
                return refuse_cycle(p, r, first, n);
            }
            if (r->color[callee] == 0) {
                r->color[callee] = 1;
                r->path[n++] = callee;
            }
        }
    }
    return PLUMB_OK;
}

static plumb_status check_recursion(struct parser *p) {
    const struct grammar *g = p->g;
    size_t n_call = 0;
    for (size_t at = 0; at < g->n_code; at++) n_call += op_of(g->code[at]) == OP_CALL;
    struct reach r = {
        .todo = alloc_array(g->n_code, sizeof *r.todo), .is_reached = calloc(g->n_code, 1),
        .may_be_empty = calloc(g->n_rule, 1), .color = calloc(g->n_rule, 1),
        .calls = alloc_array(n_call, sizeof *r.calls), .last_call = calloc(g->n_rule, sizeof *r.last_call),
        .path = alloc_array(g->n_rule, sizeof *r.path),
    };
    plumb_status status;
    if (r.todo && r.is_reached && r.may_be_empty && r.color && r.calls && r.last_call && r.path) {
        find_reached(&r, g);
        status = find_cycle(p, &r);
        if (status == PLUMB_OK) status = check_marks(p, &r);
        if (status == PLUMB_OK) status = find_behind(p);
    } else {
        status = no_memory(p->err);
    }
    void *all[] = { r.todo, r.is_reached, r.may_be_empty, r.color, r.calls, r.last_call, r.path };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    return status;
}

/* Copies the names of the rules, so that they can be shown when the text is gone. */
static plumb_status keep_names(struct parser *p) {
    struct grammar *g = p->g;
    size_t n = 0;
    for (size_t i = 0; i < g->n_rule; i++) n += g->rules[i].n_name;
    g->names = alloc_array(n, 1);
    if (!g->names) return no_memory(p->err);
    n = 0;
    for (size_t i = 0; i < g->n_rule; i++) {
        memcpy(g->names + n, p->text + g->rules[i].name, g->rules[i].n_name);
        g->rules[i].name = (uint32_t)n;
        n += g->rules[i].n_name;
    }
    return PLUMB_OK;
}

static plumb_status parse(struct parser *p) {
    if (p->n > UINT32_MAX / 2) return too_large(p);
    const char *zero = p->n > 0 ? memchr(p->text, 0, p->n) : NULL;
    if (zero) return mistake(p, (size_t)(zero - p->text), "a grammar has no zero bytes");
    skip_space(p, true);
    while (p->at < p->n) PLUMB_TRY(parse_rule(p));
    PLUMB_TRY(find_root(p));
    PLUMB_TRY(check_recursion(p));
    return keep_names(p);
}

plumb_status grammar_parse(struct grammar **out, const char *text, size_t n, const struct vocabulary *v,
                           struct error *err) {
    *out = NULL;
    struct grammar *g = calloc(1, sizeof *g);
    if (!g) return no_memory(err);
    struct parser p = { .text = text, .n = n, .vocabulary = v, .g = g, .err = err, .classes.g = g };
    plumb_status status = parse(&p);
    class_builder_finish(&p.classes);
    free(p.groups);
    free(p.index.slots);
    if (status == PLUMB_OK) *out = g;
    else grammar_free(g);
    return status;
}

void grammar_free(struct grammar *g) {
    if (!g) return;
    free(g->code);
    free(g->edges);
    free(g->nodes);
    free(g->names);
    free(g->rules);
    free(g->counters);
    free(g);
}

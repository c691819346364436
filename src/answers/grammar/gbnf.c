/* GBNF -> rules, in one pass over the text, as llama.cpp v0.5.0 reads it (src/llama-grammar.cpp).  It uses no
 * recursion: groups are kept on a stack.
 *
 * What differs from llama.cpp: repetitions are exact up to GRAMMAR_MAX_COUNT (llama.cpp refuses products above 2,000,
 * and reads a larger maximum as none); a maximum below the minimum is refused; left recursion is also found behind
 * symbols that are empty indirectly; ("a"?)* is no left recursion; U+0000 is matched only where it is named; there are
 * counts of marks: %{2,5}(...) has 2 to 5 marks inside, and %3 is a mark behind which 3 others fit.
 */
#include "grammar/rules.h"

#include <stdio.h>
#include <stdlib.h>

/* A group, or the whole rule. */
struct group {
    struct choice choice;
    bool counts;            /* it counts marks */
    uint32_t min, max;      /* with these bounds */
};

struct parser {
    struct rules *b;
    const char *text;
    size_t n, at;
    const struct vocabulary *vocabulary;
    struct group *groups;
    size_t n_group, group_cap;
    size_t symbol;          /* where the last symbol begins */
    bool has_symbol;        /* there is one, which can be repeated */
};

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Fails with "line 2, column 5: WHAT"; or passes on, with the place, that adding a rule has failed. */
static plumb_status fail(struct parser *p, size_t at, plumb_status status, const char *what) {
    unsigned line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        if (p->text[i] == '\n') {
            line++;
            column = 1;
        } else if ((p->text[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    return p->b->status = error_set(p->b->err, status, "line %u, column %u: %s", line, column, what);
}

static plumb_status no_memory(struct parser *p) {
    return p->b->status = error_set(p->b->err, PLUMB_ERROR_MEMORY, "out of memory: a grammar");
}

static plumb_status mistake(struct parser *p, size_t at, const char *what) {
    return fail(p, at, PLUMB_ERROR_ARGUMENT, what);
}

/* "line 2, column 5: expected `::=`, found "x..."". */
static plumb_status expected(struct parser *p, size_t at, const char *what) {
    struct shown shown;
    char sentence[400];
    const size_t n = p->n - at < 24 ? p->n - at : 24;
    if (n == 0) snprintf(sentence, sizeof sentence, "expected %s, found the end of the grammar", what);
    else snprintf(sentence, sizeof sentence, "expected %s, found \"%s\"", what, show_bytes(&shown, p->text + at, n));
    return mistake(p, at, sentence);
}

/* Gives the failure of a function of rules.h a place. */
static plumb_status check(struct parser *p, size_t at) {
    const plumb_status status = p->b->status;
    if (status == PLUMB_OK || status == PLUMB_ERROR_MEMORY) return status;
    const struct error error = *p->b->err;
    return fail(p, at, status, error.message);
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

static char peek(const struct parser *p, size_t ahead) { return ahead < p->n - p->at ? p->text[p->at + ahead] : 0; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || is_digit(c); }

static plumb_status parse_hex(struct parser *p, int n, uint32_t *cp) {
    size_t start = p->at;
    p->at += 2;
    *cp = 0;
    for (int i = 0; i < n; i++, p->at++) {
        const uint32_t digit = digit_value(peek(p, 0));
        if (digit > 15) return expected(p, p->at, n == 2 ? "2 hexadecimal digits" : n == 4 ? "4 hexadecimal digits" :
                                                                                            "8 hexadecimal digits");
        *cp = *cp << 4 | digit;
    }
    if (*cp > 0x10ffff) return mistake(p, start, "code points end at U+10FFFF");
    return PLUMB_OK;
}

/* Reads a character of a literal or class, perhaps escaped. */
static plumb_status parse_char(struct parser *p, uint32_t *cp) {
    if (p->at == p->n) return expected(p, p->at, "a character");
    if (peek(p, 0) != '\\') {
        size_t n = plumb_character(p->text + p->at, p->n - p->at, cp);
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

static size_t name_length(const struct parser *p) {
    size_t n = 0;
    while (is_word(peek(p, n))) n++;
    return n;
}

/* ---- symbols ----------------------------------------------------------------------------------------------------- */

static bool is_nested(const struct parser *p) { return p->n_group > 1; }

static void begin_symbol(struct parser *p) {
    p->symbol = rules_at(p->b);
    p->has_symbol = true;
}

static plumb_status parse_literal(struct parser *p) {
    size_t start = p->at++;
    begin_symbol(p);
    p->has_symbol = peek(p, 0) != '"';   /* as in llama.cpp, "" cannot be repeated */
    while (peek(p, 0) != '"') {
        uint32_t cp = 0;
        if (p->at == p->n) return mistake(p, start, "a literal has no closing quote");
        size_t at = p->at;
        PLUMB_TRY(parse_char(p, &cp));
        if (cp >= 0xd800 && cp < 0xe000) return mistake(p, at, "a surrogate is not a character");
        rules_char(p->b, cp);
        PLUMB_TRY(check(p, p->at));
    }
    p->at++;
    return PLUMB_OK;
}

/* Reads what is between the brackets of a class. */
static plumb_status parse_ranges(struct parser *p, size_t start, struct spans *spans) {
    while (peek(p, 0) != ']') {
        uint32_t low = 0, high;
        if (p->at == p->n) return mistake(p, start, "a class of characters has no closing bracket");
        PLUMB_TRY(parse_char(p, &low));
        high = low;
        if (peek(p, 0) == '-' && peek(p, 1) != ']') {
            p->at++;
            PLUMB_TRY(parse_char(p, &high));
        }
        spans_add(spans, low, high);   /* [z-a] has no characters, as in llama.cpp */
    }
    p->at++;
    return PLUMB_OK;
}

/* Adds one of the characters, or one of all others but U+0000.  Frees the spans. */
static plumb_status add_class(struct parser *p, struct spans *spans, bool negated) {
    if (negated) spans_add(spans, 0, 0);
    spans_join(spans, negated);
    if (spans->failed) no_memory(p);
    begin_symbol(p);
    rules_class(p->b, spans->data, spans->n);
    free(spans->data);
    return check(p, p->at);
}

static plumb_status parse_class(struct parser *p) {
    size_t start = p->at++;
    struct spans spans = { 0 };
    bool negated = peek(p, 0) == '^';
    p->at += negated;
    p->has_symbol = peek(p, 0) != ']';   /* as in llama.cpp, [] and [^] are empty texts */
    plumb_status status = parse_ranges(p, start, &spans);
    if (status == PLUMB_OK && p->has_symbol) return add_class(p, &spans, negated);
    free(spans.data);
    return status;
}

static plumb_status parse_int(struct parser *p, const char *what, uint64_t *value) {
    if (!is_digit(peek(p, 0))) return expected(p, p->at, what);
    for (*value = 0; is_digit(peek(p, 0)); p->at++) {
        if (*value < UINT32_MAX) *value = *value * 10 + (uint64_t)(peek(p, 0) - '0');
    }
    return PLUMB_OK;
}

static plumb_status add_symbol(struct parser *p, enum grammar_op op, uint32_t arg) {
    begin_symbol(p);
    rules_symbol(p->b, op, arg);
    return check(p, p->at);
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
    return add_symbol(p, op, (uint32_t)id);
}

/* Reads what is between the braces of a repetition or a count, from the minimum on.  *max: COUNT_UNBOUNDED if there is
 * none. */
static plumb_status parse_bounds(struct parser *p, size_t at, uint32_t *min, uint32_t *max) {
    uint64_t least = 0, most = COUNT_UNBOUNDED;
    bool has_most = true;
    PLUMB_TRY(parse_int(p, "a number of repetitions", &least));
    skip_space(p, is_nested(p));
    if (peek(p, 0) == ',') {
        p->at++;
        skip_space(p, is_nested(p));
        has_most = is_digit(peek(p, 0));
        if (has_most) PLUMB_TRY(parse_int(p, "a number of repetitions", &most));
        skip_space(p, is_nested(p));
    } else if (peek(p, 0) != '}') {
        return expected(p, p->at, "a comma or }");
    } else {
        most = least;
    }
    if (peek(p, 0) != '}') return expected(p, p->at, "}");
    p->at++;
    if (has_most && most < least) return mistake(p, at, "the maximum of a repetition is below its minimum");
    if (least > GRAMMAR_MAX_COUNT || (has_most && most > GRAMMAR_MAX_COUNT)) {
        return mistake(p, at, "a repetition of more than 1073741823 times");
    }
    *min = (uint32_t)least;
    *max = (uint32_t)most;
    return PLUMB_OK;
}

static plumb_status parse_repeat(struct parser *p) {
    size_t at = p->at;
    char c = peek(p, 0);
    uint32_t min = c == '+', max = c == '?' ? 1 : COUNT_UNBOUNDED;
    p->at++;
    skip_space(p, is_nested(p));
    if (c == '{') PLUMB_TRY(parse_bounds(p, at, &min, &max));
    if (!p->has_symbol) return mistake(p, at, "there is nothing before the repetition that could be repeated");
    p->has_symbol = max > 0;
    rules_repeat(p->b, p->symbol, min, max);
    return check(p, p->at);
}

static plumb_status open_group(struct parser *p, struct group group) {
    if (p->n_group > GRAMMAR_MAX_DEPTH) return mistake(p, p->at, "more than 10000 groups in each other");
    if (!ARRAY_GROW(p->groups, p->n_group, &p->group_cap)) return no_memory(p);
    group.choice = rules_choice(p->b);
    p->groups[p->n_group++] = group;
    p->has_symbol = false;
    return PLUMB_OK;
}

static plumb_status close_group(struct parser *p) {
    struct group *group = &p->groups[--p->n_group];
    rules_close(p->b, &group->choice);
    p->symbol = group->choice.first;
    p->has_symbol = true;
    if (group->counts) rules_count(p->b, p->symbol, group->min, group->max);
    return check(p, p->at);
}

/* %{2,5}( begins a group that counts marks; %3 is a mark. */
static plumb_status parse_count(struct parser *p) {
    const size_t at = p->at++;
    if (peek(p, 0) == '{') {
        struct group group = { .counts = true };
        p->at++;
        PLUMB_TRY(parse_bounds(p, at, &group.min, &group.max));
        if (peek(p, 0) != '(') return expected(p, p->at, "`(`");
        PLUMB_TRY(open_group(p, group));
        p->at++;
        return PLUMB_OK;
    }
    uint64_t behind = 0;
    if (is_digit(peek(p, 0))) PLUMB_TRY(parse_int(p, "a number of marks", &behind));
    if (behind > 1 << 20) return mistake(p, at, "a mark before more than 1048576 others");
    PLUMB_TRY(add_symbol(p, OP_MARK, (uint32_t)behind));
    p->has_symbol = false;
    return PLUMB_OK;
}

/* Reads the name of a rule. */
static plumb_status parse_name(struct parser *p, uint32_t *rule) {
    const size_t n = name_length(p);
    *rule = rules_find(p->b, p->text + p->at, n);
    PLUMB_TRY(check(p, p->at));
    struct grammar_rule *r = &p->b->g->rules[*rule];
    if (r->place == 0) r->place = (uint32_t)p->at + 1;
    p->at += n;
    return PLUMB_OK;
}

static plumb_status parse_call(struct parser *p) {
    uint32_t rule;
    PLUMB_TRY(parse_name(p, &rule));
    return add_symbol(p, OP_CALL, rule);
}

/* Reads what follows `::=`, up to what cannot be part of it. */
static plumb_status parse_alternatives(struct parser *p) {
    PLUMB_TRY(open_group(p, (struct group){ 0 }));
    for (;;) {
        const char c = peek(p, 0);
        switch (c) {
        case '"': PLUMB_TRY(parse_literal(p)); break;
        case '[': PLUMB_TRY(parse_class(p)); break;
        case '<': case '!': PLUMB_TRY(parse_token(p)); break;
        case '*': case '+': case '?': case '{': PLUMB_TRY(parse_repeat(p)); break;
        case '%': PLUMB_TRY(parse_count(p)); break;
        case '.':
            p->at++;
            PLUMB_TRY(add_class(p, &(struct spans){ 0 }, true));
            break;
        case '(':
            PLUMB_TRY(open_group(p, (struct group){ 0 }));
            p->at++;
            break;
        case '|':
            p->at++;
            rules_next(p->b, &p->groups[p->n_group - 1].choice);
            p->has_symbol = false;
            PLUMB_TRY(check(p, p->at));
            skip_space(p, true);
            break;
        default:
            if (!is_word(c) && !is_nested(p)) return close_group(p);
            if (!is_word(c) && c != ')') return expected(p, p->at, "a symbol or `)`");
            p->at += c == ')';
            PLUMB_TRY(c == ')' ? close_group(p) : parse_call(p));
        }
        skip_space(p, is_nested(p));
    }
}

static plumb_status parse_rule(struct parser *p) {
    uint32_t rule;
    if (name_length(p) == 0) return expected(p, p->at, "the name of a rule");
    PLUMB_TRY(parse_name(p, &rule));
    skip_space(p, false);
    if (!(peek(p, 0) == ':' && peek(p, 1) == ':' && peek(p, 2) == '=')) return expected(p, p->at, "`::=`");
    p->at += 3;
    skip_space(p, true);
    const size_t from = rules_at(p->b);
    PLUMB_TRY(parse_alternatives(p));
    rules_end(p->b, rule, from);   /* as in llama.cpp, the last of several definitions counts */
    PLUMB_TRY(check(p, p->at));
    if (p->at < p->n && peek(p, 0) != '\r' && peek(p, 0) != '\n') {
        return expected(p, p->at, "a symbol or the end of the line");
    }
    skip_space(p, true);
    return PLUMB_OK;
}

static plumb_status parse(struct parser *p) {
    if (p->n > UINT32_MAX / 2) return fail(p, 0, PLUMB_ERROR_UNSUPPORTED, "the grammar is too large");
    const char *zero = p->n > 0 ? memchr(p->text, 0, p->n) : NULL;
    if (zero) return mistake(p, (size_t)(zero - p->text), "a grammar has no zero bytes");
    skip_space(p, true);
    while (p->at < p->n) PLUMB_TRY(parse_rule(p));
    return rules_finish(p->b);
}

plumb_status rules_add_gbnf(struct rules *b, const char *text, size_t n, const struct vocabulary *v) {
    struct parser p = { .b = b, .text = text, .n = n, .vocabulary = v };
    b->wrong = RULE_NONE;
    plumb_status status = parse(&p);
    const uint32_t place = b->wrong == RULE_NONE ? 0 : b->g->rules[b->wrong].place;
    free(p.groups);
    return place > 0 ? check(&p, place - 1) : status;
}

/* The source of a template -> tokens. */
#include "template/tree.h"

struct lexer {
    struct render *r;
    const char *s;       /* n bytes and a final 0 */
    size_t n, at;
    uint32_t n_curly;    /* open braces inside an expression */
    struct tokens tokens;
};

static void fail_at(struct lexer *l, size_t at, const char *why) {
    l->r->at = at;
    render_fail(l->r, "%s", why);
}

static void add(struct lexer *l, enum token_kind kind, size_t at, struct text text) {
    struct token *items = render_grow(l->r, l->tokens.items, l->tokens.n, &l->tokens.cap, sizeof *items);
    if (!items) return;
    l->tokens.items = items;
    items[l->tokens.n++] = (struct token){kind, at, text};
}

/* Whether the byte k after the current one is in the set. */
static bool follows(const struct lexer *l, size_t k, const char *set) {
    return k < l->n - l->at && l->s[l->at + k] != 0 && strchr(set, l->s[l->at + k]) != NULL;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Reads the text before the next block.  Returns false if nothing of it is left. */
static bool read_text(struct lexer *l) {
    const char *s = l->s;
    size_t begin = l->at, end;
    bool after_block = false, strip_left = false;
    if (begin > 3) {
        after_block = s[begin - 1] == '}' && strchr("#%-", s[begin - 2]) && s[begin - 2] != 0;
        strip_left = s[begin - 1] == '}' && strchr("%}#", s[begin - 2]) && s[begin - 2] != 0 && s[begin - 3] == '-';
    }
    while (l->at < l->n && !(s[l->at] == '{' && follows(l, 1, "%{#"))) l->at++;
    end = l->at;
    if (s[l->at] == '{' && follows(l, 1, "%#-")) {
        for (size_t at = end; at > begin; at--) {
            if (at == 1 || s[at - 1] == '\n') {   /* as in llama.cpp, the first byte is removed, whatever it is */
                end = at == 1 ? 0 : at;
                break;
            }
            if (!is_space(s[at - 1])) break;
        }
    }
    size_t first = begin;
    if (after_block && first < end && s[first] == '\n') first++;
    while (strip_left && first < end && is_blank(s[first])) first++;
    bool strip_right = s[l->at] == '{' && follows(l, 1, "{%#") && follows(l, 2, "-");
    while (strip_right && first < end && is_blank(s[end - 1])) end--;
    if (first == end) return false;
    add(l, TOKEN_TEXT, begin, (struct text){s + first, end - first, 0});
    return true;
}

static void read_comment(struct lexer *l) {
    size_t begin = l->at;
    for (l->at += 2; !(l->s[l->at] == '#' && follows(l, 1, "}")); l->at++) {
        if (l->n - l->at <= 2) {
            fail_at(l, begin, "a comment is not closed by #}");
            return;
        }
    }
    add(l, TOKEN_COMMENT, begin, (struct text){"", 0, 0});
    l->at += 2;
}

static struct text read_while(struct lexer *l, bool (*belongs)(char)) {
    size_t begin = l->at;
    while (l->at < l->n && belongs(l->s[l->at])) l->at++;
    return (struct text){l->s + begin, l->at - begin, 0};
}

static struct text read_number(struct lexer *l) {
    struct text number = read_while(l, is_digit);
    if (l->s[l->at] == '.' && follows(l, 1, "0123456789")) {
        l->at++;
        number.n += 1 + read_while(l, is_digit).n;
    }
    return number;
}

static void read_string(struct lexer *l) {
    size_t begin = l->at;
    char quote = l->s[l->at++], *text = NULL;
    size_t end = l->at, n = 0;
    while (end < l->n && l->s[end] != quote) end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->n) {
        fail_at(l, begin, "a string is not closed");
        return;
    }
    text = render_alloc(l->r, end - l->at);
    while (text && l->at < end) {
        char c = l->s[l->at++];
        if (c == '\\') {
            static const char names[] = "ntrbfv\\'\"", meanings[] = "\n\t\r\b\f\v\\'\"";
            const char *name = memchr(names, l->s[l->at], sizeof names - 1);
            if (!name) {
                fail_at(l, l->at - 1, "unknown escape in a string");
                return;
            }
            c = meanings[name - names];
            l->at++;
        }
        text[n++] = c;
    }
    l->at++;
    add(l, TOKEN_STRING, begin, (struct text){text, n, 0});
}

/* Reads punctuation.  Returns false if there is none. */
static bool read_mark(struct lexer *l) {
    static const struct { char text[4]; enum token_kind kind; } marks[] = {
        {"{%-", TOKEN_OPEN_STATEMENT}, {"-%}", TOKEN_CLOSE_STATEMENT}, {"{{-", TOKEN_OPEN_EXPRESSION},
        {"-}}", TOKEN_CLOSE_EXPRESSION}, {"{%", TOKEN_OPEN_STATEMENT}, {"%}", TOKEN_CLOSE_STATEMENT},
        {"{{", TOKEN_OPEN_EXPRESSION}, {"}}", TOKEN_CLOSE_EXPRESSION}, {"(", TOKEN_OPEN_PAREN},
        {")", TOKEN_CLOSE_PAREN}, {"{", TOKEN_OPEN_CURLY}, {"}", TOKEN_CLOSE_CURLY}, {"[", TOKEN_OPEN_SQUARE},
        {"]", TOKEN_CLOSE_SQUARE}, {",", TOKEN_COMMA}, {".", TOKEN_DOT}, {":", TOKEN_COLON}, {"|", TOKEN_PIPE},
        {"<=", TOKEN_COMPARISON}, {">=", TOKEN_COMPARISON}, {"==", TOKEN_COMPARISON}, {"!=", TOKEN_COMPARISON},
        {"<", TOKEN_COMPARISON}, {">", TOKEN_COMPARISON}, {"+", TOKEN_SUM}, {"-", TOKEN_SUM}, {"~", TOKEN_SUM},
        {"*", TOKEN_PRODUCT}, {"/", TOKEN_PRODUCT}, {"%", TOKEN_PRODUCT}, {"=", TOKEN_ASSIGN},
    };
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        size_t n = strlen(marks[i].text);
        if (n > l->n - l->at || memcmp(l->s + l->at, marks[i].text, n) != 0) continue;
        if (l->n_curly > 0 && strcmp(marks[i].text, "}}") == 0) continue;   /* two objects end */
        add(l, marks[i].kind, l->at, (struct text){l->s + l->at, n, 0});
        if (marks[i].kind == TOKEN_OPEN_EXPRESSION) l->n_curly = 0;
        else if (marks[i].kind == TOKEN_OPEN_CURLY) l->n_curly++;
        else if (marks[i].kind == TOKEN_CLOSE_CURLY && l->n_curly > 0) l->n_curly--;
        l->at += n;
        return true;
    }
    return false;
}

/* Reads a sign and the number after it, if an operand is expected here.  Returns false if it is not a sign. */
static bool read_sign(struct lexer *l, enum token_kind last) {
    char c = l->s[l->at];
    if ((c != '-' && c != '+') || (c == '-' && follows(l, 1, "%}"))) return false;
    if (last == TOKEN_NAME || last == TOKEN_NUMBER || last == TOKEN_STRING || last == TOKEN_CLOSE_PAREN
        || last == TOKEN_CLOSE_SQUARE) return false;
    size_t begin = l->at++;
    struct text number = read_number(l);
    add(l, number.n > 0 ? TOKEN_NUMBER : TOKEN_SIGN, begin, (struct text){l->s + begin, 1 + number.n, 0});
    return true;
}

/* Reads one token inside a block. */
static void read_token(struct lexer *l, enum token_kind last) {
    if (l->s[l->at] == '-' && (last == TOKEN_OPEN_EXPRESSION || last == TOKEN_OPEN_STATEMENT)) l->at++;
    read_while(l, is_space);
    if (l->at == l->n) return;
    size_t begin = l->at;
    char c = l->s[begin];
    if (read_sign(l, last) || read_mark(l)) return;
    if (c == '\'' || c == '"') read_string(l);
    else if (is_digit(c)) add(l, TOKEN_NUMBER, begin, read_number(l));
    else if (is_word(c)) add(l, TOKEN_NAME, begin, read_while(l, is_word));
    else fail_at(l, begin, "this character has no meaning inside a block");
}

/* Returns a copy of the source with a 0 at the end, in which each line ends with one newline, and the last one with
 * none. */
static struct text normalized(struct render *r) {
    struct text source = r->source;
    char *copy = render_alloc(r, (uint64_t)source.n + 1);
    size_t n = 0;
    if (!copy) return (struct text){"", 0, 0};
    for (size_t i = 0; i < source.n; i++) {
        char c = source.data[i];
        if (c == '\r' && i + 1 < source.n && source.data[i + 1] == '\n') continue;
        copy[n++] = c == '\r' ? '\n' : c;
    }
    if (source.n > 0 && source.data[source.n - 1] == '\n') n--;
    copy[n] = 0;
    return (struct text){copy, n, 0};
}

struct tokens template_tokens(struct render *r) {
    r->source = normalized(r);
    struct lexer l = {.r = r, .s = r->source.data, .n = r->source.n};
    while (l.at < l.n && render_work(r, 1)) {
        enum token_kind last = l.tokens.n > 0 ? l.tokens.items[l.tokens.n - 1].kind : TOKEN_CLOSE_STATEMENT;
        bool outside = last == TOKEN_CLOSE_STATEMENT || last == TOKEN_CLOSE_EXPRESSION || last == TOKEN_COMMENT;
        if (outside && read_text(&l)) continue;
        if (l.at < l.n && l.s[l.at] == '{' && follows(&l, 1, "#")) read_comment(&l);
        else if (l.at < l.n) read_token(&l, last);
    }
    return l.tokens;
}

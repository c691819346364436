/* The source of a template -> tokens. */
#include "template/tree.h"

#include "base/unicode.h"

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
    if (!RENDER_GROW(l->r, l->tokens.items, l->tokens.n, &l->tokens.cap)) return;
    l->tokens.items[l->tokens.n++] = (struct token){kind, at, text};
}

/* Whether the byte k after the current one is in the set. */
static bool follows(const struct lexer *l, size_t k, const char *set) {
    return k < l->n - l->at && l->s[l->at + k] != 0 && strchr(set, l->s[l->at + k]) != NULL;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Where a text ends that stands before a block: lstrip_blocks removes the white space between the start of a line and
 * a block, unless a + follows.  is_line_start: the text begins a line. */
static size_t stripped_end(const struct lexer *l, size_t begin, size_t end, bool is_line_start) {
    const char *s = l->s;
    size_t at = end;
    while (at > begin && is_space(s[at - 1]) && s[at - 1] != '\n') at--;
    bool is_line = at > begin ? s[at - 1] == '\n' : is_line_start;
    return is_line && !follows(l, 2, "+") ? at : end;
}

/* Reads the text before the next block.  Returns false if nothing of it is left. */
static bool read_text(struct lexer *l) {
    const char *s = l->s;
    size_t begin = l->at, first = begin, end;
    bool after_block = begin > 3 && s[begin - 1] == '}' && (s[begin - 2] == '#' || s[begin - 2] == '%');
    bool strip_left = begin > 3 && s[begin - 1] == '}' && strchr("%}#", s[begin - 2]) && s[begin - 3] == '-';
    while (l->at < l->n && !(s[l->at] == '{' && follows(l, 1, "%{#"))) l->at++;
    end = l->at;
    while (strip_left && first < end && is_space(s[first])) first++;
    if (after_block && s[begin - 3] != '+' && first == begin && first < end && s[first] == '\n') first++;
    bool is_block = l->at < l->n && follows(l, 1, "%#");
    if (is_block) end = stripped_end(l, first, end, first == 0 || s[first - 1] == '\n');
    bool strip_right = l->at < l->n && follows(l, 2, "-");
    while (strip_right && first < end && is_space(s[end - 1])) end--;
    if (first >= end) return false;
    add(l, TOKEN_TEXT, begin, (struct text){s + first, end - first, 0});
    return true;
}

/* The bytes of {% word %} at a place, or 0 if it is something else.  *strips: whether white space behind it goes. */
static size_t tag_at(const struct lexer *l, size_t at, const char *word, bool *strips) {
    const char *s = l->s;
    size_t begin = at, n = strlen(word);
    if (l->n - at < n + 4 || s[at] != '{' || s[at + 1] != '%') return 0;
    at += s[at + 2] == '-' || s[at + 2] == '+' ? 3 : 2;
    while (at < l->n && is_space(s[at])) at++;
    if (l->n - at < n || memcmp(s + at, word, n) != 0) return 0;
    for (at += n; at < l->n && is_space(s[at]); at++) continue;
    *strips = at < l->n && s[at] == '-';
    at += *strips || (at < l->n && s[at] == '+');
    return l->n - at >= 2 && s[at] == '%' && s[at + 1] == '}' ? at + 2 - begin : 0;
}

/* Reads {% raw %} text {% endraw %}.  Returns false if no such block begins here. */
static bool read_raw(struct lexer *l) {
    bool strips, ends_strip;
    size_t begin = l->at, n = tag_at(l, begin, "raw", &strips), n_end = 0;
    if (n == 0) return false;
    size_t first = begin + n, at = first;
    while (at < l->n && (n_end = tag_at(l, at, "endraw", &ends_strip)) == 0) at++;
    if (n_end == 0) {
        fail_at(l, begin, "the block is not closed: there is no {% endraw %}");
        return true;
    }
    while (strips && first < at && is_space(l->s[first])) first++;
    l->at = at;
    size_t end = stripped_end(l, first, at, l->s[first - 1] == '\n');
    while (follows(l, 2, "-") && first < end && is_space(l->s[end - 1])) end--;
    add(l, TOKEN_TEXT, begin, (struct text){l->s + first, end - first, 0});
    add(l, TOKEN_COMMENT, at, (struct text){"", 0, 0});   /* text follows, as it does after a comment */
    l->at = at + n_end;
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
    size_t begin = l->at;
    read_while(l, is_digit);
    if (l->at > begin && l->s[l->at] == '.' && follows(l, 1, "0123456789")) {
        l->at++;
        read_while(l, is_digit);
    }
    bool has_sign = follows(l, 1, "+-");
    if (l->at > begin && follows(l, 0, "eE") && follows(l, 1 + has_sign, "0123456789")) {
        l->at += 1 + has_sign;
        read_while(l, is_digit);
    }
    return (struct text){l->s + begin, l->at - begin, 0};
}

/* Reads a character that Python writes as \ and a letter and digits: \x41, \u0041, \U00000041, \101.  l->at is behind
 * the \.  Returns its bytes in UTF-8, or 0 if it is something else. */
static size_t read_code(struct lexer *l, char out[4]) {
    char c = l->s[l->at];
    bool octal = c >= '0' && c <= '7';
    size_t n = octal ? 3 : c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, k = 0;
    uint32_t cp = 0, radix = octal ? 8 : 16;
    for (; k < n; k++) {
        const uint32_t value = digit_value(l->s[l->at + k + !octal]);   /* a 0 ends the source */
        if (value >= radix) break;
        cp = cp * radix + value;
    }
    if (k == 0 || (!octal && k < n) || cp > 0x10ffff) return 0;
    l->at += k + !octal;
    return unicode_encode(cp, out);
}

/* Reads what follows a \ in a string to text, as Python does: a \ that means nothing stays.  Returns the bytes. */
static size_t read_escape(struct lexer *l, char text[4]) {
    static const char names[] = "ntrbfva\\'\"", meanings[] = "\n\t\r\b\f\v\a\\'\"";
    const char *name = memchr(names, l->s[l->at], sizeof names - 1);
    size_t n = name ? 0 : read_code(l, text);
    if (n > 0) return n;
    text[0] = name ? meanings[name - names] : '\\';
    if (name) l->at++;
    if (name || l->s[l->at] != '\n') return 1;
    l->at++;
    return 0;   /* the string goes on in the next line */
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
    text = render_alloc(l->r, (uint64_t)(end - l->at) + 4);
    while (text && l->at < end) {
        char c = l->s[l->at++];
        if (c == '\\') n += read_escape(l, text + n);
        else text[n++] = c;
    }
    l->at++;
    add(l, TOKEN_STRING, begin, (struct text){text, n, 0});
}

/* Reads punctuation.  Returns false if there is none. */
static bool read_mark(struct lexer *l) {
    static const struct { char text[4]; enum token_kind kind; } marks[] = {
        {"{%-", TOKEN_OPEN_STATEMENT}, {"-%}", TOKEN_CLOSE_STATEMENT}, {"{%+", TOKEN_OPEN_STATEMENT},
        {"+%}", TOKEN_CLOSE_STATEMENT}, {"{{-", TOKEN_OPEN_EXPRESSION},
        {"-}}", TOKEN_CLOSE_EXPRESSION}, {"{%", TOKEN_OPEN_STATEMENT}, {"%}", TOKEN_CLOSE_STATEMENT},
        {"{{", TOKEN_OPEN_EXPRESSION}, {"}}", TOKEN_CLOSE_EXPRESSION}, {"(", TOKEN_OPEN_PAREN},
        {")", TOKEN_CLOSE_PAREN}, {"{", TOKEN_OPEN_CURLY}, {"}", TOKEN_CLOSE_CURLY}, {"[", TOKEN_OPEN_SQUARE},
        {"]", TOKEN_CLOSE_SQUARE}, {",", TOKEN_COMMA}, {".", TOKEN_DOT}, {":", TOKEN_COLON}, {"|", TOKEN_PIPE},
        {"<=", TOKEN_COMPARISON}, {">=", TOKEN_COMPARISON}, {"==", TOKEN_COMPARISON}, {"!=", TOKEN_COMPARISON},
        {"<", TOKEN_COMPARISON}, {">", TOKEN_COMPARISON}, {"+", TOKEN_SUM}, {"-", TOKEN_SUM}, {"~", TOKEN_JOIN},
        {"**", TOKEN_POWER}, {"*", TOKEN_PRODUCT}, {"//", TOKEN_PRODUCT}, {"/", TOKEN_PRODUCT},
        {"%", TOKEN_PRODUCT}, {"=", TOKEN_ASSIGN},
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

/* Whether the last token is a word behind which an operand follows. */
static bool after_operator(const struct lexer *l) {
    static const char *const words[] = {"and", "or", "not", "in", "is", "if", "elif", "else"};
    bool is_operator = false;
    for (size_t i = 0; i < sizeof words / sizeof words[0] && !is_operator; i++) {
        is_operator = text_is_word(l->tokens.items[l->tokens.n - 1].text, words[i]);
    }
    return is_operator;
}

/* Reads a sign and the number after it, if an operand is expected here.  Returns false if it is not a sign. */
static bool read_sign(struct lexer *l, enum token_kind last) {
    char c = l->s[l->at];
    if ((c != '-' && c != '+') || follows(l, 1, "%}")) return false;
    if (last == TOKEN_NUMBER || last == TOKEN_STRING || last == TOKEN_CLOSE_PAREN || last == TOKEN_CLOSE_SQUARE
        || last == TOKEN_CLOSE_CURLY || (last == TOKEN_NAME && !after_operator(l))) return false;
    size_t begin = l->at++;
    struct text number = read_number(l);
    add(l, number.n > 0 ? TOKEN_NUMBER : TOKEN_SIGN, begin, (struct text){l->s + begin, 1 + number.n, 0});
    return true;
}

/* Reads one token inside a block. */
static void read_token(struct lexer *l, enum token_kind last) {
    read_while(l, is_space);
    if (l->at == l->n) return;
    size_t begin = l->at;
    char c = l->s[begin];
    if (read_sign(l, last) || read_mark(l)) return;
    if (c == '\'' || c == '"') read_string(l);
    else if (is_digit(c)) add(l, TOKEN_NUMBER, begin, read_number(l));
    else if (is_word_byte(c)) add(l, TOKEN_NAME, begin, read_while(l, is_word_byte));
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
    if (n > 0 && copy[n - 1] == '\n') n--;
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
        if ((outside || last == TOKEN_TEXT) && l.at < l.n && read_raw(&l)) continue;
        if (l.at < l.n && l.s[l.at] == '{' && follows(&l, 1, "#")) read_comment(&l);
        else if (l.at < l.n) read_token(&l, last);
    }
    return l.tokens;
}

/* Tokens -> a tree, by recursive descent. */
#include "template/tree.h"

#include "base/decimal.h"

struct parser {
    struct render *r;
    struct tokens tokens;
    size_t at;
};

static const struct token *peek(const struct parser *p, size_t k) {
    static const struct token end = {TOKEN_END, 0, {"", 0, 0}};
    return p->r->stop == STOP_FAILED || k >= p->tokens.n - p->at ? &end : &p->tokens.items[p->at + k];
}

static bool is(const struct parser *p, enum token_kind kind) { return peek(p, 0)->kind == kind; }

static bool is_name(const struct parser *p, size_t k, const char *word) {
    return peek(p, k)->kind == TOKEN_NAME && text_is_word(peek(p, k)->text, word);
}

/* Where the next token is. */
static size_t place(const struct parser *p) {
    return is(p, TOKEN_END) ? p->r->source.n : peek(p, 0)->at;
}

static void fail_expected(struct parser *p, const char *what) {
    p->r->at = place(p);
    if (is(p, TOKEN_END)) {
        render_fail(p->r, "expected %s, but the template ends", what);
    } else {
        struct shown shown;
        render_fail(p->r, "expected %s, found '%s'", what,
                    show_bytes(&shown, peek(p, 0)->text.data, peek(p, 0)->text.n));
    }
}

/* Moves past the next token if it is of that kind. */
static bool take(struct parser *p, enum token_kind kind) {
    if (!is(p, kind)) return false;
    p->at++;
    return true;
}

static bool take_name(struct parser *p, const char *word) {
    if (!is_name(p, 0, word)) return false;
    p->at++;
    return true;
}

static void expect(struct parser *p, enum token_kind kind, const char *what) {
    if (!take(p, kind)) fail_expected(p, what);
}

/* Returns a node at the place, or NULL if the parser has failed. */
static struct node *make(struct parser *p, enum node_kind kind, size_t at, struct node *a, struct node *b) {
    struct node *node = p->r->stop == STOP_FAILED ? NULL : render_alloc(p->r, sizeof *node);
    if (node) *node = (struct node){.kind = kind, .at = at, .a = a, .b = b};
    return node;
}

static void add(struct parser *p, struct nodes *nodes, struct node *node) {
    if (RENDER_GROW(p->r, nodes->items, nodes->n, &nodes->cap)) nodes->items[nodes->n++] = node;
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

static struct node *parse_expression(struct parser *p);

/* Arguments in parentheses. */
static struct nodes parse_arguments(struct parser *p) {
    struct nodes list = {NULL, 0, 0};
    expect(p, TOKEN_OPEN_PAREN, "( before arguments");
    while (p->r->stop == STOP_NOT && !is(p, TOKEN_CLOSE_PAREN)) {
        size_t at = place(p);
        struct node *node;
        bool is_spread = is(p, TOKEN_PRODUCT) && text_is_word(peek(p, 0)->text, "*"), is_named = is(p, TOKEN_POWER);
        if (is_spread || is_named) {
            p->at++;
            node = make(p, NODE_SPREAD, at, parse_expression(p), NULL);
            if (node) node->flag = is_named;
        } else {
            node = parse_expression(p);
            if (take(p, TOKEN_ASSIGN)) node = make(p, NODE_NAMED, at, node, parse_expression(p));
        }
        add(p, &list, node);
        take(p, TOKEN_COMMA);
    }
    expect(p, TOKEN_CLOSE_PAREN, ") after arguments");
    return list;
}

/* Whether a tuple ends here. */
static bool ends_tuple(const struct parser *p) {
    enum token_kind kind = peek(p, 0)->kind;
    return kind == TOKEN_CLOSE_PAREN || kind == TOKEN_CLOSE_STATEMENT || kind == TOKEN_CLOSE_EXPRESSION
           || kind == TOKEN_ASSIGN || is_name(p, 0, "in");
}

/* Reads one expression, or a tuple of several with commas between them. */
static struct node *parse_sequence(struct parser *p, struct node *(*parse)(struct parser *)) {
    size_t at = place(p);
    struct node *first = parse(p);
    if (!is(p, TOKEN_COMMA)) return first;
    struct node *tuple = make(p, NODE_TUPLE, at, NULL, NULL);
    if (tuple) add(p, &tuple->list, first);
    while (take(p, TOKEN_COMMA) && !ends_tuple(p)) {
        struct node *item = parse(p);
        if (tuple) add(p, &tuple->list, item);
    }
    return tuple;
}

static struct value parse_number(struct parser *p, struct text text) {
    int64_t i = 0;
    double x = 0;
    bool is_float = false;
    for (size_t k = 0; k < text.n && !is_float; k++) is_float = strchr(".eE", text.data[k]) != NULL;
    if (is_float) {
        decimal_read(text.data, text.n, &x);
        return value_float(x);
    }
    if (!text_integer(text, 10, &i)) render_fail(p->r, "an integer does not fit 64 bits");
    return value_int(i);
}

/* The items between brackets, up to the closing one.  keys: each has a key before it. */
static void parse_items(struct parser *p, struct node *node, enum token_kind close, const char *what, bool keys) {
    while (p->r->stop == STOP_NOT && !is(p, close)) {
        add(p, &node->list, parse_expression(p));
        if (keys) {
            expect(p, TOKEN_COLON, ": after a key");
            add(p, &node->list, parse_expression(p));
        }
        take(p, TOKEN_COMMA);
    }
    expect(p, close, what);
}

static struct node *parse_primary(struct parser *p) {
    const struct token *token = peek(p, 0);
    size_t at = place(p);
    p->r->at = at;
    struct node *node = make(p, NODE_LITERAL, at, NULL, NULL);
    if (!node) return NULL;
    p->at++;
    switch (token->kind) {
    case TOKEN_NUMBER:
        node->literal = parse_number(p, token->text);
        break;
    case TOKEN_STRING: {
        struct output text = {NULL, 0, 0};
        output_add(p->r, &text, token->text);
        for (; is(p, TOKEN_STRING); p->at++) output_add(p->r, &text, peek(p, 0)->text);
        node->literal = value_output(&text);
        break;
    }
    case TOKEN_NAME:
        node->kind = NODE_VARIABLE;
        node->text = token->text;
        break;
    case TOKEN_OPEN_PAREN:
        node->kind = NODE_TUPLE;
        if (!is(p, TOKEN_CLOSE_PAREN)) node = parse_sequence(p, parse_expression);
        expect(p, TOKEN_CLOSE_PAREN, ")");
        break;
    case TOKEN_OPEN_SQUARE:
        node->kind = NODE_LIST;
        parse_items(p, node, TOKEN_CLOSE_SQUARE, "] after a list", false);
        break;
    case TOKEN_OPEN_CURLY:
        node->kind = NODE_OBJECT;
        parse_items(p, node, TOKEN_CLOSE_CURLY, "} after an object", true);
        break;
    default:
        p->at--;
        fail_expected(p, "an expression");
    }
    return node;
}

/* What is between the brackets of a[...]: an expression, a slice or nothing. */
static struct node *parse_subscript(struct parser *p) {
    size_t at = place(p), n = 0;
    struct node *parts[3] = {NULL, NULL, NULL};
    bool is_slice = false;
    while (p->r->stop == STOP_NOT && !is(p, TOKEN_CLOSE_SQUARE)) {
        if (n == 3) {
            fail_expected(p, "] after a slice");
            break;
        }
        if (!is(p, TOKEN_COLON)) parts[n] = parse_expression(p);
        n++;
        if (take(p, TOKEN_COLON)) is_slice = true;
    }
    if (!is_slice) return n > 0 ? parts[0] : make(p, NODE_BLANK, at, NULL, NULL);
    struct node *slice = make(p, NODE_SLICE, at, parts[0], parts[1]);
    if (slice) slice->c = parts[2];
    return slice;
}

/* Members and calls after an operand: a.b[c](d).e */
static struct node *parse_members(struct parser *p, struct node *node) {
    while (p->r->stop == STOP_NOT) {
        size_t at = place(p);
        if (take(p, TOKEN_DOT)) {
            node = make(p, NODE_MEMBER, at, node, parse_primary(p));
        } else if (take(p, TOKEN_OPEN_SQUARE)) {
            node = make(p, NODE_MEMBER, at, node, parse_subscript(p));
            expect(p, TOKEN_CLOSE_SQUARE, "]");
            if (node) node->flag = true;
        } else if (is(p, TOKEN_OPEN_PAREN)) {
            node = make(p, NODE_CALL, at, node, NULL);
            struct nodes list = parse_arguments(p);
            if (node) node->list = list;
        } else {
            break;
        }
    }
    return node;
}

/* The name of a filter or of a test, and its arguments if there are any. */
static struct node *parse_named_call(struct parser *p) {
    struct node *node = parse_primary(p);
    return is(p, TOKEN_OPEN_PAREN) ? parse_members(p, node) : node;
}

/* Whether an operand begins here that a test can have without parentheses: x is divisibleby 3. */
static bool begins_operand(const struct parser *p) {
    static const char *const words[] = {"else", "or", "and", "is", "if", "in", "not", "recursive"};
    enum token_kind kind = peek(p, 0)->kind;
    bool begins = kind == TOKEN_NAME || kind == TOKEN_STRING || kind == TOKEN_NUMBER || kind == TOKEN_OPEN_SQUARE
                  || kind == TOKEN_OPEN_CURLY;
    for (size_t i = 0; i < sizeof words / sizeof words[0] && begins; i++) begins = !is_name(p, 0, words[i]);
    return begins;
}

static struct node *parse_test_call(struct parser *p) {
    struct node *node = parse_named_call(p);
    if (!node || node->kind != NODE_VARIABLE || !begins_operand(p)) return node;
    struct node *call = make(p, NODE_CALL, node->at, node, NULL), *operand = parse_members(p, parse_primary(p));
    if (call) add(p, &call->list, operand);
    return call;
}

static struct node *parse_unary(struct parser *p) {
    if (!is(p, TOKEN_SIGN)) return parse_members(p, parse_primary(p));
    struct node *node = make(p, NODE_UNARY, place(p), NULL, NULL);
    if (!node || !render_enter(p->r)) return NULL;
    node->text = peek(p, 0)->text;
    p->at++;
    node->a = parse_unary(p);
    render_leave(p->r);
    return node;
}

static struct node *parse_test(struct parser *p) {
    struct node *node = parse_unary(p);
    for (;;) {
        size_t at = place(p);
        if (take(p, TOKEN_PIPE)) {
            node = make(p, NODE_FILTER, at, node, parse_named_call(p));
        } else if (take_name(p, "is")) {
            bool negate = take_name(p, "not");
            node = make(p, NODE_TEST, at, node, parse_test_call(p));
            if (node) node->flag = negate;
        } else {
            return node;
        }
    }
}

/* The binary operators by precedence, the weakest first.  "not" is between "and" and the comparisons. */
enum level { LEVEL_OR, LEVEL_AND, LEVEL_COMPARISON, LEVEL_SUM, LEVEL_JOIN, LEVEL_PRODUCT, LEVEL_POWER, LEVEL_NONE };

/* The level of the operator that comes next. */
static enum level operator_level(const struct parser *p) {
    switch (peek(p, 0)->kind) {
    case TOKEN_COMPARISON: return LEVEL_COMPARISON;
    case TOKEN_SUM: return LEVEL_SUM;
    case TOKEN_JOIN: return LEVEL_JOIN;
    case TOKEN_PRODUCT: return LEVEL_PRODUCT;
    case TOKEN_POWER: return LEVEL_POWER;
    default: break;
    }
    if (is_name(p, 0, "or")) return LEVEL_OR;
    if (is_name(p, 0, "and")) return LEVEL_AND;
    return is_name(p, 0, "in") || (is_name(p, 0, "not") && is_name(p, 1, "in")) ? LEVEL_COMPARISON : LEVEL_NONE;
}

static struct node *make_binary(struct parser *p, size_t at, struct text operator, struct node *a, struct node *b) {
    struct node *node = make(p, NODE_BINARY, at, a, b);
    if (node) node->text = operator;
    return node;
}

/* Adds a comparison, which has no left operand, to another one or to a chain. */
static struct node *extend_chain(struct parser *p, struct node *left, struct node *comparison) {
    struct node *chain = left->kind == NODE_CHAIN ? left : make(p, NODE_CHAIN, left->at, NULL, NULL);
    if (chain && chain != left) add(p, &chain->list, left);
    if (chain) add(p, &chain->list, comparison);
    return chain;
}

/* Reads operands and the operators between them, of that level and of stronger ones. */
static struct node *parse_binary(struct parser *p, enum level weakest) {
    if (!render_enter(p->r)) return NULL;
    struct node *left, *last = NULL;   /* last: left, if it is a comparison without parentheses */
    if (weakest <= LEVEL_COMPARISON && is_name(p, 0, "not")) {
        left = make(p, NODE_UNARY, place(p), NULL, NULL);
        if (left) left->text = peek(p, 0)->text;
        p->at++;
        struct node *operand = parse_binary(p, LEVEL_COMPARISON);
        if (left) left->a = operand;
    } else {
        left = parse_test(p);
    }
    for (enum level level; (level = operator_level(p)) != LEVEL_NONE && level >= weakest;) {
        size_t at = place(p);
        struct text operator = peek(p, 0)->text;
        p->at++;
        if (text_is_word(operator, "not")) {
            operator = text_of("not in");
            p->at++;
        }
        struct node *right = parse_binary(p, level + 1);
        if (level == LEVEL_COMPARISON && last) left = extend_chain(p, last, make_binary(p, at, operator, NULL, right));
        else left = make_binary(p, at, operator, left, right);
        last = level == LEVEL_COMPARISON ? left : NULL;
    }
    render_leave(p->r);
    return left;
}

static struct node *parse_expression(struct parser *p) {
    if (!render_enter(p->r)) return NULL;
    struct node *node = parse_binary(p, LEVEL_OR);
    size_t at = place(p);
    if (take_name(p, "if")) {
        struct node *test = parse_binary(p, LEVEL_OR);
        if (take_name(p, "else")) {
            node = make(p, NODE_TERNARY, at, test, node);
            struct node *otherwise = parse_expression(p);
            if (node) node->c = otherwise;
        } else {
            node = make(p, NODE_SELECT, at, node, test);
        }
    }
    render_leave(p->r);
    return node;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static struct node *parse_statement(struct parser *p);

static bool is_statement(const struct parser *p, const char *name) {
    return is(p, TOKEN_OPEN_STATEMENT) && is_name(p, 1, name);
}

/* Reads statements up to {% end %}, or up to one of two other statements, which may be NULL. */
static struct nodes parse_block(struct parser *p, const struct node *opening, const char *end, const char *or_this,
                                const char *or_that) {
    struct nodes list = {NULL, 0, 0};
    while (p->r->stop == STOP_NOT && !is_statement(p, end) && !(or_this && is_statement(p, or_this))
           && !(or_that && is_statement(p, or_that))) {
        if (is(p, TOKEN_END)) {
            p->r->at = opening ? opening->at : 0;
            render_fail(p->r, "the block is not closed: there is no {%% %s %%}", end);
            break;
        }
        add(p, &list, parse_statement(p));
    }
    return list;
}

static void expect_close(struct parser *p) { expect(p, TOKEN_CLOSE_STATEMENT, "%}"); }

/* Moves past {% name %}. */
static void expect_end(struct parser *p) {
    p->at += p->r->stop == STOP_NOT ? 2 : 0;
    expect_close(p);
}

/* Reads the end of an opening, the statements behind it and {% end %}. */
static void parse_body(struct parser *p, const struct node *node, struct nodes *body, const char *end) {
    expect_close(p);
    *body = parse_block(p, node, end, NULL, NULL);
    expect_end(p);
}

/* Reads the else part of a statement, if there is one, and its end. */
static void parse_else(struct parser *p, struct node *node, const char *end) {
    if (is_statement(p, "else")) {
        expect_end(p);
        node->more = parse_block(p, node, end, NULL, NULL);
    }
    expect_end(p);
}

/* Reads the rest of an if statement.  Each elif is an if statement alone in the else part of the one before it. */
static void parse_if(struct parser *p, struct node *node) {
    for (;;) {
        node->a = parse_expression(p);
        expect_close(p);
        node->list = parse_block(p, node, "endif", "elif", "else");
        if (p->r->stop != STOP_NOT || !is_statement(p, "elif")) break;
        struct node *elif = make(p, NODE_IF, peek(p, 1)->at, NULL, NULL);
        p->at += 2;
        add(p, &node->more, elif);
        if (!elif) return;
        node = elif;
    }
    parse_else(p, node, "endif");
}

/* An expression without if and else. */
static struct node *parse_or(struct parser *p) { return parse_binary(p, LEVEL_OR); }

static void parse_for(struct parser *p, struct node *node) {
    node->a = parse_sequence(p, parse_primary);
    if (!take_name(p, "in")) fail_expected(p, "in");
    node->b = parse_sequence(p, parse_or);
    if (take_name(p, "if")) node->c = parse_expression(p);
    node->flag = take_name(p, "recursive");
    expect_close(p);
    node->list = parse_block(p, node, "endfor", "else", NULL);
    parse_else(p, node, "endfor");
}

/* What a set statement can set. */
static struct node *parse_target(struct parser *p) { return parse_members(p, parse_primary(p)); }

/* The filters of a block, each after a bar. */
static void parse_filters(struct parser *p, struct nodes *filters) {
    while (take(p, TOKEN_PIPE)) add(p, filters, parse_named_call(p));
}

static void parse_set(struct parser *p, struct node *node) {
    node->a = parse_sequence(p, parse_target);
    if (take(p, TOKEN_ASSIGN)) {
        node->b = parse_sequence(p, parse_expression);
        expect_close(p);
    } else {
        parse_filters(p, &node->more);
        parse_body(p, node, &node->list, "endset");
    }
}

static void parse_with(struct parser *p, struct node *node) {
    while (p->r->stop == STOP_NOT && !is(p, TOKEN_CLOSE_STATEMENT)) {
        struct node *set = make(p, NODE_NAMED, place(p), parse_target(p), NULL);
        expect(p, TOKEN_ASSIGN, "= after a name");
        struct node *value = parse_expression(p);
        if (set) set->b = value;
        add(p, &node->list, set);
        take(p, TOKEN_COMMA);
    }
    parse_body(p, node, &node->more, "endwith");
}

static void parse_macro(struct parser *p, struct node *node) {
    node->a = parse_primary(p);
    node->list = parse_arguments(p);
    parse_body(p, node, &node->more, "endmacro");
}

static void parse_call_block(struct parser *p, struct node *node) {
    if (is(p, TOKEN_OPEN_PAREN)) node->list = parse_arguments(p);
    size_t at = place(p);
    if (!is(p, TOKEN_NAME)) fail_expected(p, "the name of a macro");
    node->a = make(p, NODE_CALL, at, parse_primary(p), NULL);
    struct nodes list = parse_arguments(p);
    if (node->a) node->a->list = list;
    parse_body(p, node, &node->more, "endcall");
}

static void parse_filter_block(struct parser *p, struct node *node) {
    add(p, &node->more, parse_named_call(p));
    parse_filters(p, &node->more);
    parse_body(p, node, &node->list, "endfilter");
}

static void parse_word(struct parser *p, struct node *node) {
    (void)node;
    expect_close(p);
}

static struct node *parse_tag(struct parser *p) {
    static const struct {
        const char *name;
        enum node_kind kind;
        void (*parse)(struct parser *, struct node *);
    } tags[] = {
        {"if", NODE_IF, parse_if}, {"for", NODE_FOR, parse_for}, {"set", NODE_SET, parse_set},
        {"with", NODE_WITH, parse_with},
        {"macro", NODE_MACRO, parse_macro}, {"call", NODE_CALL_BLOCK, parse_call_block},
        {"filter", NODE_FILTER_BLOCK, parse_filter_block}, {"break", NODE_BREAK, parse_word},
        {"continue", NODE_CONTINUE, parse_word},
        /* transformers marks the text of the assistant with these. */
        {"generation", NODE_NOTHING, parse_word}, {"endgeneration", NODE_NOTHING, parse_word},
    };
    p->at++;
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (!is_name(p, 0, tags[i].name)) continue;
        struct node *node = make(p, tags[i].kind, place(p), NULL, NULL);
        p->at++;
        if (node) tags[i].parse(p, node);
        return node;
    }
    fail_expected(p, "a statement: if, for, set, with, macro, call, filter, raw, break, continue or generation");
    return NULL;
}

static struct node *parse_statement(struct parser *p) {
    if (!render_enter(p->r)) return NULL;
    const struct token *token = peek(p, 0);
    struct node *node = NULL;
    switch (token->kind) {
    case TOKEN_COMMENT:
        node = make(p, NODE_NOTHING, token->at, NULL, NULL);
        p->at++;
        break;
    case TOKEN_TEXT:
        node = make(p, NODE_TEXT, token->at, NULL, NULL);
        if (node) node->literal = value_string(token->text);
        p->at++;
        break;
    case TOKEN_OPEN_STATEMENT:
        node = parse_tag(p);
        break;
    case TOKEN_OPEN_EXPRESSION:
        p->at++;
        node = parse_sequence(p, parse_expression);
        expect(p, TOKEN_CLOSE_EXPRESSION, "}}");
        break;
    default:
        fail_expected(p, "text or a block");
    }
    render_leave(p->r);
    return node;
}

struct nodes template_parse(struct render *r) {
    struct parser p = {.r = r, .tokens = template_tokens(r)};
    struct nodes list = {NULL, 0, 0};
    while (r->stop == STOP_NOT && !is(&p, TOKEN_END)) add(&p, &list, parse_statement(&p));
    return list;
}

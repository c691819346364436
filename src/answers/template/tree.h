/* From the source of a template to tokens (lexer.c) to a tree (parser.c).
 *
 * The grammar is that of Jinja 2 as transformers sets it up: the statements if, for, set, with, macro, call, filter,
 * raw, break, continue and generation, comments, and expressions.  The first newline after a block, and spaces between
 * the start of a line and a block, are not part of the text (trim_blocks, lstrip_blocks).
 */
#ifndef PLUMB_TEMPLATE_TREE_H
#define PLUMB_TEMPLATE_TREE_H

#include "template/value.h"

enum token_kind {
    TOKEN_END, TOKEN_TEXT, TOKEN_NUMBER, TOKEN_STRING, TOKEN_NAME, TOKEN_ASSIGN, TOKEN_OPEN_PAREN, TOKEN_CLOSE_PAREN,
    TOKEN_OPEN_STATEMENT, TOKEN_CLOSE_STATEMENT, TOKEN_OPEN_EXPRESSION, TOKEN_CLOSE_EXPRESSION, TOKEN_OPEN_SQUARE,
    TOKEN_CLOSE_SQUARE, TOKEN_OPEN_CURLY, TOKEN_CLOSE_CURLY, TOKEN_COMMA, TOKEN_DOT, TOKEN_COLON, TOKEN_PIPE,
    TOKEN_SUM,          /* + - */
    TOKEN_JOIN,         /* ~ */
    TOKEN_PRODUCT,      /* * / // % */
    TOKEN_POWER,        /* ** */
    TOKEN_COMPARISON,   /* < > <= >= == != */
    TOKEN_SIGN,         /* + - before an operand */
    TOKEN_COMMENT,
};

struct token {
    enum token_kind kind;
    size_t at;           /* in the source, which has no carriage returns any more */
    struct text text;    /* as written; of a string without quotes and escapes */
};

struct tokens { struct token *items; size_t n, cap; };

/* r->source must be the source; it is replaced by a copy without carriage returns.  Fails with a message. */
struct tokens template_tokens(struct render *r);

struct nodes { struct node **items; size_t n, cap; };

enum node_kind {
    NODE_TEXT,        /* literal: text outside of blocks */
    NODE_LITERAL,     /* literal */
    NODE_VARIABLE,    /* text */
    NODE_LIST,        /* list: items */
    NODE_TUPLE,       /* list: items */
    NODE_OBJECT,      /* list: keys and values in turn */
    NODE_BINARY,      /* a text b; text is the operator */
    NODE_CHAIN,       /* list: comparisons, NODE_BINARY, as in a < b < c; only the first of them has its operand a */
    NODE_UNARY,       /* text a */
    NODE_FILTER,      /* a | b */
    NODE_TEST,        /* a is b, or with flag a is not b */
    NODE_SELECT,      /* a if b, without else */
    NODE_TERNARY,     /* b if a else c */
    NODE_MEMBER,      /* a.b, or with flag a[b] */
    NODE_SLICE,       /* a:b:c in brackets, each may be NULL */
    NODE_BLANK,       /* nothing in brackets */
    NODE_CALL,        /* a(list) */
    NODE_NAMED,       /* a = b in an argument list */
    NODE_SPREAD,      /* *a in an argument list, or with flag **a */
    NODE_NOTHING,     /* a comment, or {% generation %} */
    NODE_IF,          /* if a list else more; an elif is an if alone in more */
    NODE_FOR,         /* for a in b if c list else more; c may be NULL; flag: it is recursive */
    NODE_SET,         /* set a = b, or with b == NULL the text of list, through the filters in more */
    NODE_WITH,        /* with list (of NODE_NAMED) more */
    NODE_MACRO,       /* macro a(list) more */
    NODE_CALL_BLOCK,  /* call(list) a more */
    NODE_FILTER_BLOCK,/* the text of list through the filters in more */
    NODE_BREAK, NODE_CONTINUE,
};

struct node {
    enum node_kind kind;
    bool flag;
    size_t at;        /* in the source */
    struct text text;
    struct value literal;
    struct node *a, *b, *c;
    struct nodes list, more;
};

/* The statements of the template.  Fails with a message. */
struct nodes template_parse(struct render *r);

#endif

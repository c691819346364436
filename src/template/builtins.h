/* Filters, methods, tests and functions of templates.  A filter and a method of the same name are the same function.
 * What llama.cpp's common/jinja does not have is an error that names it. */
#ifndef PLUMB_TEMPLATE_BUILTINS_H
#define PLUMB_TEMPLATE_BUILTINS_H

#include "template/value.h"

/* A call with its arguments: of a method and a filter the first one is the value that it belongs to. */
struct call {
    struct render *r;
    struct text name;
    const struct value *args;
    size_t n;
};

struct builtin {
    const char *name;
    unsigned kinds;    /* bit k: values of enum kind k have it */
    struct value (*call)(struct call *c);
};

/* Returns the filter or method of that name for values of that kind, or NULL. */
const struct builtin *builtin_method(struct value v, struct text name);
/* Returns the function that every template can call by that name, or NULL. */
const struct builtin *builtin_function(struct text name);
/* Whether args[0] passes the test, such as "defined". */
bool builtin_test(struct render *r, struct text name, const struct value *args, size_t n);
/* Whether needle is in haystack. */
bool builtin_in(struct render *r, struct value needle, struct value haystack);
/* s[start:stop:step] */
struct value builtin_slice(struct render *r, struct value v, int64_t start, int64_t stop, int64_t step);

/* The argument of that name, or else the one at position i if it has no name, or else undefined. */
struct value call_argument(const struct call *c, const char *name, size_t i);

#endif

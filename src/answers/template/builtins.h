/* Filters, methods, tests and functions of templates: those of Jinja 2 and of Python's values that chat templates use.
 * Any other is an error that names it. */
#ifndef PLUMB_TEMPLATE_BUILTINS_H
#define PLUMB_TEMPLATE_BUILTINS_H

#include "template/value.h"

/* A call with its arguments: of a method and a filter the first one is the value that it belongs to. */
struct call {
    struct render *r;
    struct text name;
    const struct value *args;
    size_t n;
    unsigned way;      /* of the builtin */
};

/* kinds: of a method, bit k: values of enum kind k have it; of a filter, what it makes of its value first.  way: in
 * which of several ways the function does it. */
struct builtin {
    const char *name;
    unsigned kinds;
    struct value (*call)(struct call *c);
    unsigned way;
};

/* Returns the method of that name for values of that kind, or NULL. */
const struct builtin *builtin_method(struct value v, struct text name);
/* Applies the filter to args[0]; the others are its arguments. */
struct value builtin_filter(struct render *r, struct text name, struct value *args, size_t n);
/* Returns the function that every template can call by that name, or NULL. */
const struct builtin *builtin_function(struct text name);
/* Whether args[0] passes the test, such as "defined". */
bool builtin_test(struct render *r, struct text name, const struct value *args, size_t n);
/* Whether needle is in haystack. */
bool builtin_in(struct render *r, struct value needle, struct value haystack);
/* v[start:stop:step], of which each may be undefined or none. */
struct value builtin_slice(struct render *r, struct value v, struct value start, struct value stop, struct value step);
/* The items of a list, the keys of an object, the characters of a string, or nothing of undefined, as a list. */
struct value builtin_items(struct render *r, struct value v);
/* The keys and values of an object, as a list of tuples. */
struct value builtin_pairs(struct render *r, const struct object *o);
/* Writes a time in the pattern of C's strftime, without what depends on a locale.  now: seconds since 1970 on the
 * clock of the place. */
void output_time(struct render *r, struct output *out, int64_t now, struct text format);
/* pattern % values, as in printf. */
struct value builtin_format(struct render *r, struct text pattern, struct value values);

#endif

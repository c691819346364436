/* The values of a template, and the memory and the limits of one rendering.
 *
 * A template is a program by whoever made the file.  Everything that a rendering creates lies in blocks of memory that
 * are freed together at its end, so the limit of bytes also bounds how much a value can grow.  Each step of the
 * evaluator and each byte that is written or searched counts as work.  The first failure stops the rendering: r->stop
 * is then STOP_FAILED, and every function returns soon with any value.
 *
 * Values behave as Python's.  A string is UTF-8, and its elements are characters; a byte that is not UTF-8 is one
 * character.  An integer has 64 bits.
 */
#ifndef PLUMB_TEMPLATE_VALUE_H
#define PLUMB_TEMPLATE_VALUE_H

#include "base/base.h"

enum kind {
    UNDEFINED, NONE, BOOLEAN, INTEGER, FLOAT, STRING, LIST, TUPLE, OBJECT, FUNCTION, NAMED
};

/* marks: the distance from each byte to its mark, which is 1 if the byte comes from the variables of the chat and not
 * from the template; 0: all bytes come from the template.  A part of a text has the same distance. */
struct text { const char *data; size_t n, marks; };

struct value {
    enum kind kind;
    union {
        bool truth;
        int64_t integer;
        double number;
        struct text text;
        struct list *list;           /* of LIST and TUPLE */
        struct object *object;
        struct function *function;
        struct named *named;         /* an argument with a name, such as indent=2 */
    } as;
};

/* is_read: a loop, an index or selectattr has looked for its items. */
struct list { struct value *items; size_t n, cap; bool is_read; };
/* The members are in the order in which they were added.  plain: a namespace or the variable loop, which have no
 * methods of objects.  call: what a recursive loop is called with, or NULL. */
struct object { struct member *members; size_t n, cap; bool plain; const struct function *call; };
struct member { struct value key, value; };
struct named { struct text name; struct value value; };
/* A function or a method (builtin), bound to the value before the point, or a macro, the body of a call block or a
 * recursive loop with the variables around it. */
struct function {
    struct text name;
    const struct builtin *builtin;   /* NULL for a macro or a call block */
    bool is_bound;
    struct value self;
    const struct node *node;
    struct scope *scope;
    size_t depth;                    /* of a recursive loop */
};

/* Text that is being written.  The marks of its bytes follow its cap bytes. */
struct output { char *data; size_t n, cap; };

enum stop { STOP_NOT, STOP_FAILED, STOP_BREAK, STOP_CONTINUE };

struct render {
    struct text source;              /* of the template, for the place of a failure */
    size_t at;                       /* where in the source the evaluator is */
    enum stop stop;
    struct error *err;
    struct block *blocks;            /* of memory */
    char *free_at;                   /* the unused rest of the last block */
    size_t n_free;
    uint64_t n_bytes, max_bytes, work, max_work;
    uint32_t depth;                  /* of nested evaluations and values */
    struct output grown;             /* the longest text that was joined; what is added to it needs no copy of it */
    int64_t now;                     /* seconds since 1970 on the clock of the place, for strftime_now */
};

/* ---- the rendering ----------------------------------------------------------------------------------------------- */

/* Stops the rendering with a message, which begins with the place r->at, unless it has failed already.  Returns
 * undefined. */
PRINTF_LIKE(2, 3) struct value render_fail(struct render *r, const char *format, ...);
/* Stops it for want of memory of the host. */
void render_no_memory(struct render *r, uint64_t n);
/* Counts n units of work.  Returns false if the rendering has failed, or fails because that is too much. */
bool render_work(struct render *r, uint64_t n);
/* To be called around each recursion.  Returns false, in which case render_leave must not follow. */
bool render_enter(struct render *r);
void render_leave(struct render *r);
/* Returns n bytes, which live until the end of the rendering, or NULL if it has failed. */
void *render_alloc(struct render *r, uint64_t n);
/* As ARRAY_GROW. */
#define RENDER_GROW(r, array, n, cap) render_grow(r, &(array), n, cap, sizeof *(array))
bool render_grow(struct render *r, void *array, size_t n, size_t *cap, size_t size);
void render_free(struct render *r);

/* Adds bytes of the template. */
void output_put(struct render *r, struct output *out, const void *bytes, size_t n);
void output_word(struct render *r, struct output *out, const char *word);
/* Adds a text with its marks. */
void output_add(struct render *r, struct output *out, struct text text);

/* ---- values ------------------------------------------------------------------------------------------------------ */

static inline struct text text_of(const char *word) { return (struct text){word, strlen(word), 0}; }
/* The n bytes from at on. */
static inline struct text text_part(struct text s, size_t at, size_t n) {
    return (struct text){s.data + at, n, s.marks};
}
/* Whether a byte of it comes from the variables. */
static inline bool text_is_marked(struct text s) {
    return s.marks > 0 && s.n > 0 && memchr(s.data + s.marks, 1, s.n) != NULL;
}
static inline bool text_is(struct text a, struct text b) { return a.n == b.n && memcmp(a.data, b.data, a.n) == 0; }
/* White space in ASCII. */
static inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
/* A letter, a digit or _ in ASCII. */
static inline bool is_word_byte(char c) { return digit_value(c) < 36 || c == '_'; }
static inline bool text_is_word(struct text a, const char *word) { return text_is(a, text_of(word)); }

static inline struct value value_undefined(void) { return (struct value){.kind = UNDEFINED}; }
static inline struct value value_bool(bool truth) { return (struct value){BOOLEAN, {.truth = truth}}; }
static inline struct value value_int(int64_t i) { return (struct value){INTEGER, {.integer = i}}; }
static inline struct value value_float(double x) { return (struct value){FLOAT, {.number = x}}; }
static inline struct value value_string(struct text text) { return (struct value){STRING, {.text = text}}; }
static inline struct text output_text(const struct output *out) {
    return out->n > 0 ? (struct text){out->data, out->n, out->cap} : (struct text){"", 0, 0};
}
static inline struct value value_output(const struct output *out) { return value_string(output_text(out)); }
/* An empty LIST, TUPLE or OBJECT. */
struct value value_empty(struct render *r, enum kind kind);
/* An empty LIST with room for n items. */
struct value value_list(struct render *r, uint64_t n);
/* Adds a copy of item at the end of a LIST or TUPLE. */
void list_add(struct render *r, struct list *list, struct value item);
/* Returns where the value of a key is, or NULL. */
struct value *object_find(struct render *r, const struct object *o, struct value key);
void object_set(struct render *r, struct object *o, struct value key, struct value item);
/* Sets a member that is not there yet. */
void object_set_default(struct render *r, struct object *o, const char *name, struct value item);

static inline bool is_list(struct value v) { return v.kind == LIST || v.kind == TUPLE; }
static inline bool is_number(struct value v) { return v.kind == INTEGER || v.kind == FLOAT; }
/* "string", "list"...: what messages call the kind. */
const char *kind_name(enum kind kind);
/* Whether an object can have the key; keys must not change. */
bool value_is_key(struct render *r, struct value v);
bool value_equal(struct render *r, struct value a, struct value b);
bool value_truth(struct value v);
/* Whether a comes before b.  Fails for values without an order. */
bool value_precedes(struct render *r, struct value a, struct value b);
/* Fails for anything but numbers, true and false. */
int64_t value_integer(struct render *r, struct value v);
double value_number(struct render *r, struct value v);
/* The nearest integer toward 0; 0 for NaN. */
int64_t integer_of(double x);

/* Writes the text of a value as Python's str does; nothing for undefined and functions. */
void value_write(struct render *r, struct output *out, struct value v);
struct text value_text(struct render *r, struct value v);
/* indent: spaces of a level; negative for a single line. */
struct json_style { int64_t indent; struct text item_separator, key_separator; };
void value_write_json(struct render *r, struct output *out, struct value v, const struct json_style *style,
                      uint32_t level);
/* Makes a value of JSON text.  what: names the text in the error if it is not JSON. */
struct value value_from_json(struct render *r, const char *what, const char *json, size_t n);

/* The number of characters, and the bytes of the first n characters; all bytes if there are not so many. */
size_t text_length(struct render *r, struct text s);
size_t text_prefix(struct render *r, struct text s, size_t n);
/* Reads a whole text as an integer, as Python's int does; base 0: that of its prefix, or 10.  Returns false if it is
 * none, or does not fit 64 bits. */
bool text_integer(struct text s, int64_t base, int64_t *value);
/* Bytes of s up to needle, or SIZE_MAX. */
size_t text_find(struct render *r, struct text s, struct text needle);

#endif

#include "template/value.h"

#include "base/decimal.h"
#include "base/json.h"
#include "base/unicode.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the rendering ----------------------------------------------------------------------------------------------- */

/* Nested calls of the evaluator that fit into the stack of a WebAssembly module, 1 MiB. */
enum { MAX_DEPTH = 250 };
/* Under sanitizers each allocation has a block of its own, so that they see a write behind it. */
#if defined __SANITIZE_ADDRESS__ || defined FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
enum { BLOCK_BYTES = 8 };
#else
enum { BLOCK_BYTES = 1 << 16 };
#endif

struct block { _Alignas(8) struct block *next; };   /* values follow it, also where pointers have 4 bytes */

struct value render_fail(struct render *r, const char *format, ...) {
    if (r->stop == STOP_FAILED) return value_undefined();
    r->stop = STOP_FAILED;
    char sentence[512];
    va_list args;
    va_start(args, format);
    if (vsnprintf(sentence, sizeof sentence, format, args) < 0) sentence[0] = 0;
    va_end(args);
    size_t line = 1, column = 1;
    for (size_t i = 0; i < r->at && i < r->source.n; i++) {
        if (r->source.data[i] == '\n') line++, column = 1;
        else column++;
    }
    error_set(r->err, PLUMB_ERROR_TEMPLATE, "tokenizer.chat_template, line %zu, column %zu: %s", line, column,
              sentence);
    return value_undefined();
}

void render_no_memory(struct render *r, uint64_t n) {
    if (r->stop == STOP_FAILED) return;
    r->stop = STOP_FAILED;
    error_set(r->err, PLUMB_ERROR_MEMORY, "tokenizer.chat_template: out of memory: %llu bytes", (unsigned long long)n);
}

bool render_work(struct render *r, uint64_t n) {
    r->work += n < r->max_work ? n : r->max_work;
    if (r->work > r->max_work) {
        render_fail(r, "it takes more than %llu steps", (unsigned long long)r->max_work);
    }
    return r->stop != STOP_FAILED;
}

bool render_enter(struct render *r) {
    if (r->depth == MAX_DEPTH) render_fail(r, "it is nested more than %d levels deep", MAX_DEPTH);
    if (r->stop == STOP_FAILED) return false;
    r->depth++;
    return true;
}

void render_leave(struct render *r) { r->depth--; }

void *render_alloc(struct render *r, uint64_t n) {
    if (!render_work(r, n)) return NULL;
    if (r->n_bytes > r->max_bytes || n > r->max_bytes - r->n_bytes) {
        render_fail(r, "it takes more than %llu bytes of memory", (unsigned long long)r->max_bytes);
        return NULL;
    }
    size_t rounded = n > 0 ? ((size_t)n + 7) & ~(size_t)7 : 8;
    if (rounded > r->n_free) {
        size_t size = rounded < BLOCK_BYTES ? BLOCK_BYTES : rounded;
        struct block *block = malloc(sizeof *block + size);
        if (!block) {
            render_no_memory(r, size);
            return NULL;
        }
        block->next = r->blocks;
        r->blocks = block;
        if (size > BLOCK_BYTES) {   /* a block of its own; the rest of the last one stays in use */
            r->n_bytes += rounded;
            return block + 1;
        }
        r->n_bytes += r->n_free;   /* nothing uses the rest of the last block any more */
        r->free_at = (char *)(block + 1);
        r->n_free = size;
    }
    void *bytes = r->free_at;
    r->free_at += rounded;
    r->n_free -= rounded;
    r->n_bytes += rounded;
    return bytes;
}

bool render_grow(struct render *r, void *array, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return true;
    size_t larger = 2 * *cap + 4;
    void *copy = render_alloc(r, (uint64_t)larger * size);
    void *old;
    if (!copy) return false;
    memcpy(&old, array, sizeof old);
    if (n > 0) memcpy(copy, old, n * size);
    memcpy(array, &copy, sizeof copy);
    *cap = larger;
    return true;
}

void render_free(struct render *r) {
    for (struct block *block = r->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    r->blocks = NULL;
}

void output_add(struct render *r, struct output *out, struct text text) {
    if (!render_work(r, (uint64_t)text.n + 16) || text.n == 0) return;   /* 16: about the time of a call */
    if (text.n > out->cap - out->n) {
        uint64_t cap = (uint64_t)out->n + text.n;
        cap += cap / 2 + 32;
        char *larger = render_alloc(r, 2 * cap);
        if (!larger) return;
        if (out->n > 0) {
            memcpy(larger, out->data, out->n);
            memcpy(larger + cap, out->data + out->cap, out->n);
        }
        out->data = larger;
        out->cap = (size_t)cap;
    }
    char *end = out->data + out->n;
    memcpy(end, text.data, text.n);
    if (text.marks > 0) memcpy(end + out->cap, text.data + text.marks, text.n);
    else memset(end + out->cap, 0, text.n);
    out->n += text.n;
}

void output_put(struct render *r, struct output *out, const void *bytes, size_t n) {
    output_add(r, out, (struct text){bytes, n, 0});
}

void output_word(struct render *r, struct output *out, const char *word) { output_put(r, out, word, strlen(word)); }

static void output_repeat(struct render *r, struct output *out, char c, uint64_t n) {
    for (uint64_t i = 0; i < n && r->stop != STOP_FAILED; i++) output_put(r, out, &c, 1);
}

/* ---- lists and objects ------------------------------------------------------------------------------------------- */

const char *kind_name(enum kind kind) {
    static const char *const names[] = {
        "undefined", "none", "boolean", "integer", "float", "string", "list", "tuple", "object", "function",
        "named argument",
    };
    return names[kind];
}

struct value value_empty(struct render *r, enum kind kind) {
    struct value v = {.kind = kind};
    if (kind == OBJECT) {
        v.as.object = render_alloc(r, sizeof *v.as.object);
        if (v.as.object) *v.as.object = (struct object){NULL, 0, 0, false, NULL};
    } else {
        v.as.list = render_alloc(r, sizeof *v.as.list);
        if (v.as.list) *v.as.list = (struct list){NULL, 0, 0, false};
    }
    return r->stop == STOP_FAILED ? value_undefined() : v;
}

struct value value_list(struct render *r, uint64_t n) {
    struct value v = value_empty(r, LIST);
    struct value *items = v.kind == LIST && n > 0 ? render_alloc(r, n * sizeof *items) : NULL;
    if (items) v.as.list->items = items, v.as.list->cap = (size_t)n;
    return v;
}

void list_add(struct render *r, struct list *list, struct value item) {
    if (RENDER_GROW(r, list->items, list->n, &list->cap)) list->items[list->n++] = item;
}

struct value *object_find(struct render *r, const struct object *o, struct value key) {
    if (!render_work(r, o->n)) return NULL;
    for (size_t i = 0; i < o->n && r->stop != STOP_FAILED; i++) {
        struct member *m = &o->members[i];
        bool texts = key.kind == STRING && m->key.kind == STRING;
        if (texts && key.as.text.n == m->key.as.text.n && !render_work(r, key.as.text.n / 8)) return NULL;
        bool found = texts ? text_is(key.as.text, m->key.as.text) : value_equal(r, key, m->key);
        if (found) return &m->value;
    }
    return NULL;
}

void object_set(struct render *r, struct object *o, struct value key, struct value item) {
    struct value *old = object_find(r, o, key);
    if (old) *old = item;
    else if (RENDER_GROW(r, o->members, o->n, &o->cap)) o->members[o->n++] = (struct member){key, item};
}

void object_set_default(struct render *r, struct object *o, const char *name, struct value item) {
    struct value key = value_string(text_of(name));
    if (!object_find(r, o, key)) object_set(r, o, key, item);
}

/* ---- what values are --------------------------------------------------------------------------------------------- */

bool value_is_key(struct render *r, struct value v) {
    if (v.kind != TUPLE) return v.kind >= NONE && v.kind <= STRING;
    if (!render_work(r, v.as.list->n) || !render_enter(r)) return false;
    bool is_key = true;
    for (size_t i = 0; i < v.as.list->n && is_key; i++) is_key = value_is_key(r, v.as.list->items[i]);
    render_leave(r);
    return is_key;
}

/* Returns a number, true or false as it is compared. */
static double number_of(struct value v) {
    if (v.kind == FLOAT) return v.as.number;
    if (v.kind == BOOLEAN) return v.as.truth;
    double x = (double)v.as.integer;   /* an integer without an exact double counts as infinite */
    bool is_exact = x < 0x1p63 && (int64_t)x == v.as.integer;
    return is_exact ? x : v.as.integer < 0 ? -INFINITY : INFINITY;
}

int64_t integer_of(double x) {
    if (isnan(x)) return 0;
    if (x >= 0x1p63) return INT64_MAX;
    return x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

static int64_t whole_of(struct value v) {
    return v.kind == INTEGER ? v.as.integer : v.kind == BOOLEAN ? v.as.truth
           : isfinite(v.as.number) ? integer_of(v.as.number) : 0;
}

static bool equal_lists(struct render *r, const struct list *a, const struct list *b) {
    bool equal = a->n == b->n;
    for (size_t i = 0; i < a->n && equal; i++) equal = value_equal(r, a->items[i], b->items[i]);
    return equal;
}

static bool equal_objects(struct render *r, const struct object *a, const struct object *b) {
    bool equal = a->n == b->n;
    for (size_t i = 0; i < a->n && equal; i++) {
        const struct value *other = object_find(r, b, a->members[i].key);
        equal = other && value_equal(r, a->members[i].value, *other);
    }
    return equal;
}

bool value_equal(struct render *r, struct value a, struct value b) {
    if (!render_work(r, 1)) return false;
    bool numbers = a.kind >= BOOLEAN && a.kind <= FLOAT && b.kind >= BOOLEAN && b.kind <= FLOAT;
    if (numbers) return whole_of(a) == whole_of(b) && !(number_of(a) < number_of(b) || number_of(a) > number_of(b))
                        && !isnan(number_of(a)) && !isnan(number_of(b));
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case STRING:
        return render_work(r, a.as.text.n) && text_is(a.as.text, b.as.text);
    case LIST: case TUPLE: case OBJECT: {
        if (!render_enter(r)) return false;
        bool equal = is_list(a) ? equal_lists(r, a.as.list, b.as.list) : equal_objects(r, a.as.object, b.as.object);
        render_leave(r);
        return equal;
    }
    case FUNCTION:
        return a.as.function == b.as.function;
    default:
        return a.kind != NAMED;
    }
}

bool value_precedes(struct render *r, struct value a, struct value b) {
    bool numbers = a.kind >= BOOLEAN && a.kind <= FLOAT && b.kind >= BOOLEAN && b.kind <= FLOAT;
    if (numbers && a.kind != FLOAT && b.kind != FLOAT) return whole_of(a) < whole_of(b);
    if (numbers) return number_of(a) < number_of(b);
    if (a.kind == STRING && b.kind == STRING) {
        struct text s = a.as.text, t = b.as.text;
        size_t n = s.n < t.n ? s.n : t.n;
        int order = render_work(r, n) && n > 0 ? memcmp(s.data, t.data, n) : 0;
        return order < 0 || (order == 0 && s.n < t.n);
    }
    if (is_list(a) && a.kind == b.kind) {
        const struct list *s = a.as.list, *t = b.as.list;
        size_t i = 0;
        if (!render_enter(r)) return false;
        while (i < s->n && i < t->n && value_equal(r, s->items[i], t->items[i])) i++;
        bool less = i < s->n && i < t->n ? value_precedes(r, s->items[i], t->items[i]) : s->n < t->n;
        render_leave(r);
        return less;
    }
    render_fail(r, "a value of the kind %s and one of the kind %s have no order", kind_name(a.kind), kind_name(b.kind));
    return false;
}

bool value_truth(struct value v) {
    switch (v.kind) {
    case UNDEFINED: case NONE: return false;
    case BOOLEAN: return v.as.truth;
    case INTEGER: return v.as.integer != 0;
    case FLOAT: return v.as.number < 0 || v.as.number > 0 || isnan(v.as.number);
    case STRING: return v.as.text.n > 0;
    case LIST: case TUPLE: return v.as.list->n > 0;
    case OBJECT: return v.as.object->n > 0;
    default: return true;
    }
}

int64_t value_integer(struct render *r, struct value v) {
    if (v.kind >= BOOLEAN && v.kind <= FLOAT) return whole_of(v);
    render_fail(r, "expected an integer, found a value of the kind %s", kind_name(v.kind));
    return 0;
}

double value_number(struct render *r, struct value v) {
    if (v.kind >= BOOLEAN && v.kind <= FLOAT) return v.kind == INTEGER ? (double)v.as.integer : number_of(v);
    render_fail(r, "expected a number, found a value of the kind %s", kind_name(v.kind));
    return 0;
}

/* ---- values as text ---------------------------------------------------------------------------------------------- */

static void write_integer(struct render *r, struct output *out, int64_t i) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)i);
    output_put(r, out, digits, (size_t)n);
}

/* Writes the shortest digits that stand for the number, as Python does.  Not a number and infinities: names of Python's
 * repr, or of its JSON. */
static void write_float(struct render *r, struct output *out, double x, bool as_json) {
    char digits[40];
    double back = 0;
    if (!isfinite(x)) {
        if (x < 0) output_word(r, out, "-");
        output_word(r, out, isnan(x) ? as_json ? "NaN" : "nan" : as_json ? "Infinity" : "inf");
        return;
    }
    for (int n = 0; n < 17 && (n == 0 || back < x || back > x); n++) {
        snprintf(digits, sizeof digits, "%.*e", n, x);
        decimal_read(digits, strlen(digits), &back);
    }
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10), n_digit = (int)(strchr(digits, 'e') - digits);
    bool is_plain = exponent >= -4 && exponent < 16;
    if (is_plain) {   /* the digits after the point are those of the mantissa that the exponent leaves, at least one */
        int first = digits[0] == '-', n_after = n_digit - first - (n_digit > first + 1 ? 2 : 1) - exponent;
        snprintf(digits, sizeof digits, "%.*f", n_after > 0 ? n_after : 1, x);
    }
    output_word(r, out, digits);
}

static void write_json_string(struct render *r, struct output *out, struct text text) {
    static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    output_put(r, out, "\"", 1);
    for (size_t i = 0, first = 0; i <= text.n; i++) {
        bool is_end = i == text.n;
        if (!is_end && (uint8_t)text.data[i] >= 0x20 && text.data[i] != '"' && text.data[i] != '\\') continue;
        output_add(r, out, text_part(text, first, i - first));
        first = i + 1;
        if (is_end) break;
        char escape[8] = {'\\'};
        const char *name = memchr(plain, text.data[i], sizeof plain - 1);
        if (name) escape[1] = names[name - plain];
        else snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(uint8_t)text.data[i]);
        output_word(r, out, escape);
    }
    output_put(r, out, "\"", 1);
}

/* Whether Python's repr shows a character as it is. */
static bool is_printable(uint32_t cp) {
    enum unicode_class class = unicode_class_of(cp);
    return cp == ' ' || (class != UNICODE_OTHER && class != UNICODE_CONTROL);
}

/* Writes a string inside a list or an object, as Python's repr does. */
static void write_quoted(struct render *r, struct output *out, struct text s) {
    bool has_single = s.n > 0 && memchr(s.data, '\'', s.n), has_double = s.n > 0 && memchr(s.data, '"', s.n);
    char quote[2] = {has_single && !has_double ? '"' : '\'', 0};
    output_word(r, out, quote);
    for (size_t at = 0, n; at < s.n && r->stop != STOP_FAILED; at += n) {
        uint32_t cp = 0;
        n = unicode_decode(s.data + at, s.n - at, &cp);
        char escape[12] = {'\\', s.data[at]};
        if (cp == '\n' || cp == '\r' || cp == '\t') escape[1] = cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't';
        else if (cp != '\\' && cp != (uint8_t)quote[0] && (is_printable(cp) || cp == 0xfffd)) escape[0] = 0;
        else if (cp < 0x20 || (cp >= 0x7f && cp < 0x100)) snprintf(escape, sizeof escape, "\\x%02x", (unsigned)cp);
        else if (cp > 0xff) snprintf(escape, sizeof escape, cp > 0xffff ? "\\U%08x" : "\\u%04x", (unsigned)cp);
        if (escape[0]) output_word(r, out, escape);
        else output_add(r, out, text_part(s, at, n));
    }
    output_word(r, out, quote);
}

/* Writes a value inside a list or an object. */
static void write_inner(struct render *r, struct output *out, struct value v) {
    if (v.kind == STRING) write_quoted(r, out, v.as.text);
    else if (v.kind == UNDEFINED) output_word(r, out, "Undefined");
    else if (v.kind == FUNCTION || v.kind == NAMED) output_word(r, out, kind_name(v.kind));
    else value_write(r, out, v);
}

static void write_items(struct render *r, struct output *out, struct value v, const struct json_style *style,
                        uint32_t level);

void value_write(struct render *r, struct output *out, struct value v) {
    if (!render_enter(r)) return;
    switch (v.kind) {
    case NONE: output_word(r, out, "None"); break;
    case BOOLEAN: output_word(r, out, v.as.truth ? "True" : "False"); break;
    case INTEGER: write_integer(r, out, v.as.integer); break;
    case FLOAT: write_float(r, out, v.as.number, false); break;
    case STRING: output_add(r, out, v.as.text); break;
    case LIST: case TUPLE: case OBJECT: write_items(r, out, v, NULL, 0); break;
    default: break;
    }
    render_leave(r);
}

struct text value_text(struct render *r, struct value v) {
    if (v.kind == STRING) return v.as.text;
    struct output out = {NULL, 0, 0};
    value_write(r, &out, v);
    return output_text(&out);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* Begins the line of a member or of the closing bracket. */
static void json_line(struct render *r, struct output *out, const struct json_style *style, uint32_t level) {
    if (style->indent >= 0) output_put(r, out, "\n", 1);
    if (style->indent > 0 && (uint64_t)style->indent <= r->max_bytes) {
        output_repeat(r, out, ' ', (uint64_t)style->indent * level);
    } else if (style->indent > 0) {
        render_fail(r, "tojson: an indent of %lld is too large", (long long)style->indent);
    }
}

/* Writes the name of a member: Python makes JSON of none, true and false, too. */
static void write_json_key(struct render *r, struct output *out, struct value key) {
    if (key.kind == NONE) output_word(r, out, "\"null\"");
    else if (key.kind == BOOLEAN) output_word(r, out, key.as.truth ? "\"true\"" : "\"false\"");
    else write_json_string(r, out, value_text(r, key));
}

/* Writes a list or an object as JSON, or, if style is NULL, as Python's repr does. */
static void write_items(struct render *r, struct output *out, struct value v, const struct json_style *style,
                        uint32_t level) {
    const bool is_object = v.kind == OBJECT, is_tuple = v.kind == TUPLE && !style;
    const size_t n = is_object ? v.as.object->n : v.as.list->n;
    output_word(r, out, is_object ? "{" : is_tuple ? "(" : "[");
    for (size_t i = 0; i < n && r->stop != STOP_FAILED; i++) {
        const struct value item = is_object ? v.as.object->members[i].value : v.as.list->items[i];
        if (i > 0) output_add(r, out, style ? style->item_separator : text_of(", "));
        if (style) json_line(r, out, style, level + 1);
        if (is_object && style) write_json_key(r, out, v.as.object->members[i].key);
        else if (is_object) write_inner(r, out, v.as.object->members[i].key);
        if (is_object) output_add(r, out, style ? style->key_separator : text_of(": "));
        if (style) value_write_json(r, out, item, style, level + 1);
        else write_inner(r, out, item);
    }
    if (style && n > 0) json_line(r, out, style, level);
    output_word(r, out, is_object ? "}" : !is_tuple ? "]" : n == 1 ? ",)" : ")");
}

void value_write_json(struct render *r, struct output *out, struct value v, const struct json_style *style,
                      uint32_t level) {
    if (!render_enter(r)) return;
    switch (v.kind) {
    case BOOLEAN: output_word(r, out, v.as.truth ? "true" : "false"); break;
    case FLOAT: write_float(r, out, v.as.number, true); break;
    case INTEGER: write_integer(r, out, v.as.integer); break;
    case STRING: write_json_string(r, out, v.as.text); break;
    case LIST: case TUPLE: case OBJECT: write_items(r, out, v, style, level); break;
    default: output_word(r, out, "null");
    }
    render_leave(r);
}

/* The marks follow the bytes. */
static struct text copy_json(struct render *r, struct json_text text) {
    char *copy = text.n > 0 ? render_alloc(r, 2 * (uint64_t)text.n) : NULL;
    if (!copy) return text_of("");
    memcpy(copy, text.data, text.n);
    memset(copy + text.n, 1, text.n);
    return (struct text){copy, text.n, text.n};
}

/* A number without a point and an exponent that fits 64 bits is an integer. */
static struct value read_number(struct json *j) {
    size_t first = j->at, digit = first + (first < j->n && j->bytes[first] == '-');
    /* The reader knows NaN and Infinity, too, which are no JSON. */
    if (digit >= j->n || j->bytes[digit] < '0' || j->bytes[digit] > '9') json_fail(j, first, "expected a value");
    double x = json_number(j, "a value");
    int64_t i;
    return text_integer((struct text){j->bytes + first, j->at - first, 0}, 10, &i) ? value_int(i) : value_float(x);
}

static struct value read_json(struct render *r, struct json *j) {
    struct value v = {.kind = NONE};
    char c = json_peek(j);
    if (c == '{') {
        v = value_empty(r, OBJECT);
        json_enter(j, '{', "an object");
        for (struct json_text key; v.kind == OBJECT && r->stop != STOP_FAILED && json_member(j, &key);) {
            struct value name = value_string(copy_json(r, key));
            object_set(r, v.as.object, name, read_json(r, j));
        }
    } else if (c == '[') {
        v = value_empty(r, LIST);
        json_enter(j, '[', "an array");
        while (v.kind == LIST && r->stop != STOP_FAILED && json_element(j)) list_add(r, v.as.list, read_json(r, j));
    } else if (c == '"') {
        v = value_string(copy_json(r, json_string(j, "a string")));
    } else if (json_word(j, "true")) {
        v = value_bool(true);
    } else if (json_word(j, "false")) {
        v = value_bool(false);
    } else if (!json_word(j, "null")) {
        v = read_number(j);
    }
    return v;
}

struct value value_from_json(struct render *r, const char *what, const char *json, size_t n) {
    struct json j;
    struct error err = {PLUMB_OK, ""};
    json_begin(&j, json, n, &err);
    j.max_depth = 63;
    struct value v = read_json(r, &j);
    if (r->stop == STOP_FAILED) json_fail(&j, j.at, "the template has failed");   /* what is left is not read */
    plumb_status status = json_end(&j);
    if (status == PLUMB_ERROR_MEMORY) {
        render_no_memory(r, n);
    } else if (status != PLUMB_OK && r->stop != STOP_FAILED) {
        r->stop = STOP_FAILED;
        error_set(r->err, PLUMB_ERROR_ARGUMENT, "%s: %s", what, err.message);
    }
    return v;
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

size_t text_prefix(struct render *r, struct text s, size_t n) {
    size_t at = 0;
    uint32_t cp;
    for (; n > 0 && at < s.n && render_work(r, 1); n--) at += unicode_decode(s.data + at, s.n - at, &cp);
    return at;
}

size_t text_length(struct render *r, struct text s) {
    size_t n = 0;
    uint32_t cp;
    for (size_t at = 0; at < s.n && render_work(r, 1); n++) at += unicode_decode(s.data + at, s.n - at, &cp);
    return n;
}

bool text_integer(struct text s, int64_t base, int64_t *value) {
    bool is_negative = s.n > 0 && s.data[0] == '-';
    if (s.n > 0 && (s.data[0] == '-' || s.data[0] == '+')) s = text_part(s, 1, s.n - 1);
    char mark = s.n > 2 && s.data[0] == '0' ? (char)(s.data[1] | 0x20) : 0;
    int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked && (base == 0 || base == marked)) {
        s = text_part(s, 2, s.n - 2);
        base = marked;
    }
    if (base == 0) base = 10;
    *value = 0;
    for (size_t i = 0; i < s.n; i++) {
        const int digit = (int)digit_value(s.data[i]);
        if (digit >= base || __builtin_mul_overflow(*value, base, value)
            || __builtin_add_overflow(*value, is_negative ? -digit : digit, value)) return false;
    }
    return s.n > 0;
}

size_t text_find(struct render *r, struct text s, struct text needle) {
    if (needle.n == 0) return 0;
    for (size_t at = 0; needle.n <= s.n - at && render_work(r, 8); at++) {
        const char *first = memchr(s.data + at, needle.data[0], s.n - at - needle.n + 1);
        if (!first) {
            render_work(r, s.n - at);
            break;
        }
        size_t found = (size_t)(first - s.data);
        if (!render_work(r, found - at + needle.n / 8)) break;
        at = found;
        if (memcmp(first, needle.data, needle.n) == 0) return at;
    }
    return SIZE_MAX;
}

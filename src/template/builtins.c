#include "template/builtins.h"

#include "base/decimal.h"
#include "tokenizer/unicode.h"

#include <stdio.h>
#include <time.h>

#define IS(kind) (1u << (kind))
#define ANY_LIST (IS(LIST) | IS(TUPLE))
#define ANY_NUMBER (IS(INTEGER) | IS(FLOAT))

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static struct value fail(struct call *c, const char *why) {
    render_fail(c->r, "%.*s: %s", (int)c->name.n, c->name.data, why);
    return value_undefined();
}

static struct value not_supported(struct call *c) { return fail(c, "this is not supported"); }

/* The argument at position i, which must be there. */
static struct value argument(struct call *c, size_t i) {
    if (i < c->n) return c->args[i];
    render_fail(c->r, "%.*s: expected more than %zu values, found %zu", (int)c->name.n, c->name.data, i, c->n);
    return value_undefined();
}

struct value call_argument(const struct call *c, const char *name, size_t i) {
    for (size_t k = 0; k < c->n; k++) {
        if (c->args[k].kind == NAMED && text_is_word(c->args[k].as.named->name, name)
            && c->args[k].as.named->value.kind != UNDEFINED) return c->args[k].as.named->value;
    }
    return i < c->n && c->args[i].kind != NAMED ? c->args[i] : value_undefined();
}

/* The argument at position i, which must be of one of the kinds. */
static struct value argument_of(struct call *c, size_t i, unsigned kinds) {
    struct value v = argument(c, i);
    if (c->r->stop == STOP_FAILED || (kinds & IS(v.kind))) return v;
    enum kind expected = UNDEFINED;
    while (!(kinds & IS(expected))) expected++;
    render_fail(c->r, "%.*s: argument %zu: expected a value of the kind %s, found %s", (int)c->name.n, c->name.data, i,
                kind_name(expected), kind_name(v.kind));
    return (struct value){.kind = UNDEFINED};
}

/* The same for a string; an empty one after a failure. */
static struct text text_argument(struct call *c, size_t i) {
    struct value v = argument_of(c, i, IS(STRING));
    return v.kind == STRING ? v.as.text : text_of("");
}

static bool count(struct call *c, size_t min, size_t max) {
    if (c->n >= min && c->n <= max) return true;
    render_fail(c->r, "%.*s: expected %zu to %zu values, found %zu", (int)c->name.n, c->name.data, min, max,
                c->n);
    return false;
}

/* ---- values of any kind ------------------------------------------------------------------------------------------ */

static struct value empty_string(struct call *c) { (void)c; return value_string(text_of("")); }
static struct value empty_list(struct call *c) { return value_empty(c->r, LIST); }
static struct value nothing(struct call *c) { (void)c; return value_undefined(); }
static struct value zero(struct call *c) { (void)c; return value_int(0); }
static struct value itself(struct call *c) { return c->args[0]; }
static struct value as_text(struct call *c) { return value_string(value_text(c->r, c->args[0])); }

/* default(value, otherwise, boolean=false) */
static struct value or_default(struct call *c) {
    struct value v = c->args[0], otherwise = c->n > 1 ? c->args[1] : value_undefined();
    if (v.kind != STRING && !count(c, 2, 3)) return value_undefined();
    bool by_truth = value_truth(c->r, call_argument(c, "boolean", 2));
    bool is_missing = by_truth ? !value_truth(c->r, v) : v.kind == UNDEFINED || v.kind == NONE;
    if (!is_missing) return v;
    return v.kind == STRING && otherwise.kind == UNDEFINED ? value_string(text_of("")) : otherwise;
}

/* Replaces each character outside of ASCII by \uXXXX. */
static struct text ascii_json(struct render *r, struct text json) {
    struct output out = {NULL, 0, 0};
    for (size_t at = 0, n; at < json.n && r->stop != STOP_FAILED; at += n) {
        uint32_t cp = (uint8_t)json.data[at];
        n = cp < 0x80 ? 1 : unicode_decode(json.data + at, json.n - at, &cp);
        char escape[16] = "";
        if (cp < 0x80) {
            output_add(r, &out, text_part(json, at, 1));
            continue;
        }
        if (cp >= 0x10000) {
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((cp - 0x10000) >> 10)),
                     (unsigned)(0xdc00 + ((cp - 0x10000) & 0x3ff)));
        } else {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)cp);
        }
        output_word(r, &out, escape);
    }
    return output_text(&out);
}

/* tojson(value, ensure_ascii=false, indent=none, separators=none, sort_keys=false) */
static struct value to_json(struct call *c) {
    if (!count(c, 1, 5)) return value_undefined();
    bool ascii = value_truth(c->r, call_argument(c, "ensure_ascii", 1));
    struct value indent = call_argument(c, "indent", 2), separators = call_argument(c, "separators", 3);
    if (value_truth(c->r, call_argument(c, "sort_keys", 4))) return fail(c, "sort_keys is not supported");
    struct json_style style = {indent.kind == INTEGER ? indent.as.integer : -1, text_of(", "), text_of(": ")};
    if (style.indent >= 0) style.item_separator = text_of(",");
    if (is_list(separators)) {
        const struct list *list = separators.as.list;
        if (list->n > 0) style.item_separator = value_text(c->r, list->items[0]);
        if (list->n > 1) style.key_separator = value_text(c->r, list->items[1]);
    }
    struct output out = {NULL, 0, 0};
    value_write_json(c->r, &out, c->args[0], &style, 0);
    struct text json = output_text(&out);
    return value_string(ascii ? ascii_json(c->r, json) : json);
}

static struct value length(struct call *c) {
    struct value v = c->args[0];
    return value_int((int64_t)(v.kind == STRING ? v.as.text.n : v.kind == OBJECT ? v.as.object->n : v.as.list->n));
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static struct value absolute(struct call *c) {
    struct value v = c->args[0];
    if (v.kind == FLOAT) return value_float(v.as.number < 0 ? -v.as.number : v.as.number);
    return value_int(v.as.integer < 0 && v.as.integer != INT64_MIN ? -v.as.integer : v.as.integer);
}

static struct value to_int(struct call *c) {
    struct value v = c->args[0];
    return value_int(v.kind == FLOAT ? integer_of(v.as.number) : value_integer(c->r, v));
}

static struct value to_float(struct call *c) {
    struct value v = c->args[0];
    return value_float(v.kind == FLOAT ? v.as.number : (double)value_integer(c->r, v));
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
static char to_upper(char c) { return (char)(is_lower(c) ? c - 'a' + 'A' : c); }
static char to_lower(char c) { return (char)(is_upper(c) ? c - 'A' + 'a' : c); }

/* Copies the string with other letters; only those of ASCII change.  begins_word: whether byte i begins a word. */
static struct value change_case(struct call *c, bool (*begins_word)(struct text s, size_t i)) {
    struct text s = c->args[0].as.text;
    struct output out = {NULL, 0, 0};
    output_add(c->r, &out, s);
    for (size_t i = 0; i < out.n; i++) out.data[i] = begins_word(s, i) ? to_upper(s.data[i]) : to_lower(s.data[i]);
    return value_output(&out);
}
static bool always(struct text s, size_t i) { (void)s, (void)i; return true; }
static bool never(struct text s, size_t i) { (void)s, (void)i; return false; }
static bool at_start(struct text s, size_t i) { (void)s; return i == 0; }
static bool after_space(struct text s, size_t i) { return i == 0 || is_space(s.data[i - 1]); }
static struct value upper(struct call *c) { return change_case(c, always); }
static struct value lower(struct call *c) { return change_case(c, never); }
static struct value capitalize(struct call *c) { return change_case(c, at_start); }
static struct value title(struct call *c) { return change_case(c, after_space); }

/* Removes white space, or the bytes of the argument chars, at the ends. */
static struct value strip_ends(struct call *c, bool left, bool right) {
    struct value chars = call_argument(c, "chars", 1);
    struct text s = c->args[0].as.text;
    struct text set = chars.kind == UNDEFINED ? text_of(" \t\n\v\f\r") : value_text(c->r, chars);
    if (!render_work(c->r, s.n)) return value_undefined();
    while (left && s.n > 0 && set.n > 0 && memchr(set.data, s.data[0], set.n) && render_work(c->r, set.n / 8)) {
        s.data++, s.n--;
    }
    while (right && s.n > 0 && set.n > 0 && memchr(set.data, s.data[s.n - 1], set.n) && render_work(c->r, set.n / 8)) {
        s.n--;
    }
    return value_string(s);
}
static struct value strip(struct call *c) { return strip_ends(c, true, true); }
static struct value lstrip(struct call *c) { return strip_ends(c, true, false); }
static struct value rstrip(struct call *c) { return strip_ends(c, false, true); }

static struct value starts_with(struct call *c) {
    struct text s = c->args[0].as.text, part = text_argument(c, 1);
    return value_bool(render_work(c->r, part.n) && part.n <= s.n && memcmp(s.data, part.data, part.n) == 0);
}

static struct value ends_with(struct call *c) {
    struct text s = c->args[0].as.text, part = text_argument(c, 1);
    return value_bool(render_work(c->r, part.n) && part.n <= s.n
                      && memcmp(s.data + s.n - part.n, part.data, part.n) == 0);
}

/* What a text is split at, by default a space. */
static struct text separator(struct call *c) {
    struct text text = c->n > 1 ? value_text(c->r, c->args[1]) : text_of(" ");
    if (text.n == 0) fail(c, "the separator is empty");
    return text;
}

/* How often a text is split at most; -1: there is no limit. */
static int64_t split_limit(struct call *c) {
    int64_t limit = c->n > 2 ? value_integer(c->r, c->args[2]) : -1;
    return limit < 0 ? -1 : limit;   /* INT64_MIN must not be decremented */
}

static struct value split(struct call *c) {
    if (!count(c, 1, 3)) return value_undefined();
    struct text s = c->args[0].as.text, by = separator(c);
    int64_t n_left = split_limit(c);
    struct value result = value_empty(c->r, LIST);
    while (c->r->stop == STOP_NOT) {
        size_t at = n_left-- != 0 ? text_find(c->r, s, by) : SIZE_MAX;
        if (c->r->stop != STOP_NOT) break;
        list_add(c->r, result.as.list, value_string(at == SIZE_MAX ? s : text_part(s, 0, at)));
        if (at == SIZE_MAX) break;
        s = text_part(s, at + by.n, s.n - at - by.n);
    }
    return result;
}

static void reverse_items(struct list *list) {
    for (size_t i = 0; i < list->n / 2; i++) {
        struct value item = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = item;
    }
}

static struct value rsplit(struct call *c) {
    if (!count(c, 1, 3)) return value_undefined();
    struct text s = c->args[0].as.text, by = separator(c);
    int64_t n_left = split_limit(c);
    struct value result = value_empty(c->r, LIST);
    for (size_t end = s.n; c->r->stop == STOP_NOT && n_left != 0 && end >= by.n;) {
        size_t at = end - by.n;
        if (!render_work(c->r, 1 + by.n / 8) || memcmp(s.data + at, by.data, by.n) != 0) {
            end--;
            continue;
        }
        list_add(c->r, result.as.list, value_string(text_part(s, end, s.n - end)));
        s.n = end = at;
        n_left--;
    }
    if (c->r->stop != STOP_NOT) return result;
    list_add(c->r, result.as.list, value_string(s));
    reverse_items(result.as.list);
    return result;
}

static struct value replace(struct call *c) {
    struct text s = c->args[0].as.text, old = text_argument(c, 1), by = text_argument(c, 2);
    if (c->n > 3 && value_integer(c->r, argument_of(c, 3, IS(INTEGER))) > 0) return fail(c, "count is not supported");
    struct output out = {NULL, 0, 0};
    if (old.n == 0) output_add(c->r, &out, by);
    while (c->r->stop == STOP_NOT) {
        size_t at = old.n > 0 ? text_find(c->r, s, old) : s.n > 0 ? 1 : SIZE_MAX;
        if (at == SIZE_MAX) break;
        output_add(c->r, &out, text_part(s, 0, at));
        output_add(c->r, &out, by);
        s = text_part(s, at + old.n, s.n - at - old.n);
    }
    output_add(c->r, &out, s);
    return value_output(&out);
}

/* format: replaces each {} by the next argument. */
static struct value format(struct call *c) {
    struct text s = c->args[0].as.text;
    struct output out = {NULL, 0, 0};
    size_t n_used = 1;
    for (size_t i = 0; i < s.n && c->r->stop == STOP_NOT; i++) {
        if (s.data[i] != '{') {
            output_add(c->r, &out, text_part(s, i, 1));
        } else if (i + 1 == s.n || s.data[i + 1] != '}') {
            return fail(c, "only {} is supported in the string");
        } else {
            value_write(c->r, &out, argument(c, n_used++));
            i++;
        }
    }
    return value_output(&out);
}

/* Reads an integer of 32 bits at the start of a string, after white space, as std::stoi does.  Returns false if there
 * is none. */
static bool read_integer(struct text s, int64_t base, int64_t *value) {
    size_t i = 0, n_digit = 0;
    while (i < s.n && is_space(s.data[i])) i++;
    bool is_negative = i < s.n && s.data[i] == '-';
    if (i < s.n && (s.data[i] == '-' || s.data[i] == '+')) i++;
    if ((base == 0 || base == 16) && s.n - i > 2 && s.data[i] == '0' && to_lower(s.data[i + 1]) == 'x') {
        i += 2;
        base = 16;
    }
    if (base == 0) base = i < s.n && s.data[i] == '0' ? 8 : 10;
    *value = 0;
    for (; i < s.n; i++, n_digit++) {
        char ch = to_lower(s.data[i]);
        int digit = ch >= '0' && ch <= '9' ? ch - '0' : is_lower(ch) ? ch - 'a' + 10 : 36;
        if (digit >= base) break;
        *value = *value * base + digit;
        if (*value > (int64_t)INT32_MAX + is_negative) return false;
    }
    if (is_negative) *value = -*value;
    return n_digit > 0;
}

static struct value string_to_int(struct call *c) {
    struct value otherwise = call_argument(c, "default", 1), base = call_argument(c, "base", 2);
    int64_t radix = base.kind == UNDEFINED ? 10 : value_integer(c->r, base), i;
    if (radix != 0 && (radix < 2 || radix > 36)) return fail(c, "the base must be 0 or 2 to 36");
    if (!render_work(c->r, c->args[0].as.text.n)) return value_undefined();
    if (read_integer(c->args[0].as.text, radix, &i)) return value_int(i);
    return value_int(otherwise.kind == UNDEFINED ? 0 : value_integer(c->r, otherwise));
}

static struct value string_to_float(struct call *c) {
    struct value otherwise = call_argument(c, "default", 1);
    struct text s = c->args[0].as.text;
    double x;
    if (!render_work(c->r, s.n)) return value_undefined();
    while (s.n > 0 && is_space(s.data[0])) s.data++, s.n--;
    if (decimal_read(s.data, s.n, &x) > 0) return value_float(x);
    return value_float(otherwise.kind == UNDEFINED ? 0 : value_number(c->r, otherwise));
}

/* indent(text, width=4, first=false, blank=false): puts spaces before the lines. */
static struct value indent(struct call *c) {
    if (!count(c, 1, 4)) return value_undefined();
    struct value width = call_argument(c, "width", 1);
    bool first = value_truth(c->r, call_argument(c, "first", 2));
    bool blank = value_truth(c->r, call_argument(c, "blank", 3));
    struct text s = c->args[0].as.text, margin = width.kind == STRING ? width.as.text : text_of("    ");
    if (width.kind == INTEGER) {
        if (width.as.integer < 0) return fail(c, "the width is negative");
        char *spaces = render_alloc(c->r, (uint64_t)width.as.integer);
        if (!spaces) return value_undefined();
        margin = (struct text){memset(spaces, ' ', (size_t)width.as.integer), (size_t)width.as.integer, 0};
    }
    struct output out = {NULL, 0, 0};
    for (size_t at = 0, end; at < s.n && c->r->stop == STOP_NOT; at = end + 1) {
        const char *newline = memchr(s.data + at, '\n', s.n - at);
        end = newline ? (size_t)(newline - s.data) : s.n;
        if (out.n > 0) output_put(c->r, &out, "\n", 1);
        /* As in llama.cpp, empty lines at the start are dropped, and the one after them counts as the first. */
        if (out.n == 0 ? first : end > at || blank) output_add(c->r, &out, margin);
        output_add(c->r, &out, text_part(s, at, end - at));
    }
    if (s.n > 0 && s.data[s.n - 1] == '\n') {
        output_put(c->r, &out, "\n", 1);
        if (blank) output_add(c->r, &out, margin);
    }
    return value_output(&out);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* A copy of the list, of its kind or of another. */
static struct value copy_list(struct call *c, enum kind kind) {
    struct value copy = value_empty(c->r, kind);
    const struct list *list = c->args[0].as.list;
    for (size_t i = 0; i < list->n && c->r->stop == STOP_NOT; i++) list_add(c->r, copy.as.list, list->items[i]);
    return copy;
}

static struct value to_list(struct call *c) { return copy_list(c, LIST); }

static struct value first(struct call *c) {
    const struct list *list = c->args[0].as.list;
    return list->n > 0 ? list->items[0] : value_undefined();
}

static struct value last(struct call *c) {
    const struct list *list = c->args[0].as.list;
    return list->n > 0 ? list->items[list->n - 1] : value_undefined();
}

/* Returns the item or the member of v that an attribute names, or undefined. */
static struct value attribute_of(struct call *c, struct value v, struct value attribute) {
    if (attribute.kind == INTEGER && is_list(v)) {
        int64_t i = attribute.as.integer, n = (int64_t)v.as.list->n;
        if (i < 0) i += n;
        return i >= 0 && i < n ? v.as.list->items[i] : value_undefined();
    }
    bool is_member = attribute.kind == STRING && v.kind == OBJECT;
    struct value *found = is_member ? object_find(c->r, v.as.object, attribute) : NULL;
    return found ? *found : value_undefined();
}

/* selectattr(list, attribute), selectattr(list, attribute, test, value) and, as llama.cpp has it, select(list, test,
 * value): the items that pass, or do not pass. */
static struct value select_items(struct call *c, bool passing) {
    if (!count(c, 2, 4)) return value_undefined();
    struct value attribute = argument_of(c, 1, IS(STRING)), result = value_empty(c->r, LIST);
    if (c->n == 4) argument_of(c, 2, IS(STRING));
    struct list *list = c->args[0].as.list;
    list->is_read = true;
    for (size_t i = 0; i < list->n && render_work(c->r, 32) && c->r->stop == STOP_NOT; i++) {
        struct value item = list->items[i], tested = item;
        if (c->n != 3 && item.kind != OBJECT) return fail(c, "an item is not an object");
        if (c->n != 3) tested = attribute_of(c, item, attribute);
        struct value test = c->n == 3 ? attribute : c->n == 4 ? c->args[2] : value_undefined();
        bool passes = c->n == 2 ? value_truth(c->r, tested)
                      : builtin_test(c->r, test.as.text, (struct value[]){tested, c->args[c->n - 1]}, 2);
        if (passes == passing && c->r->stop == STOP_NOT) list_add(c->r, result.as.list, item);
    }
    return result;
}
static struct value select_true(struct call *c) { return select_items(c, true); }
static struct value select_false(struct call *c) { return select_items(c, false); }

/* join(list, d='', attribute=none) */
static struct value join(struct call *c) {
    if (!count(c, 1, 3)) return value_undefined();
    struct value by = call_argument(c, "d", 1), attribute = call_argument(c, "attribute", 2);
    struct text between = by.kind == UNDEFINED ? text_of("") : value_text(c->r, by);
    struct output out = {NULL, 0, 0};
    const struct list *list = c->args[0].as.list;
    for (size_t i = 0; i < list->n && c->r->stop == STOP_NOT; i++) {
        struct value item = list->items[i];
        bool has = (attribute.kind == INTEGER && is_list(item)) || (attribute.kind == STRING && item.kind == OBJECT);
        if (has) item = attribute_of(c, item, attribute);
        if (item.kind != STRING && !is_number(item)) return fail(c, "an item is neither a string nor a number");
        if (i > 0) output_add(c->r, &out, between);
        value_write(c->r, &out, item);
    }
    return value_output(&out);
}

/* map(list, attribute=..., default=...) */
static struct value map(struct call *c) {
    argument(c, 1);
    if (c->r->stop != STOP_NOT) return value_undefined();
    if (c->args[1].kind != NAMED) return fail(c, "only map(attribute=...) is supported");
    struct value attribute = call_argument(c, "attribute", 1), otherwise = call_argument(c, "default", SIZE_MAX);
    if (attribute.kind != STRING && attribute.kind != INTEGER) return fail(c, "attribute is no string and no integer");
    struct value result = value_empty(c->r, c->args[0].kind);
    const struct list *list = c->args[0].as.list;
    for (size_t i = 0; i < list->n && c->r->stop == STOP_NOT; i++) {
        struct value item = attribute_of(c, list->items[i], attribute);
        list_add(c->r, result.as.list, item.kind == UNDEFINED ? otherwise : item);
    }
    return result;
}

static struct value append(struct call *c) {
    struct value item = argument(c, 1);
    if (c->args[0].kind == TUPLE) return fail(c, "a tuple cannot change");
    list_add(c->r, c->args[0].as.list, item);
    return c->args[0];
}

static struct value pop(struct call *c) {
    struct list *list = c->args[0].as.list;
    int64_t i = c->n > 1 ? value_integer(c->r, argument_of(c, 1, IS(INTEGER))) : -1, n = (int64_t)list->n;
    if (i < 0) i += n;
    if (c->args[0].kind == TUPLE) return fail(c, "a tuple cannot change");
    if (i < 0 || i >= n) return fail(c, "there is no such item");
    if (!render_work(c->r, list->n)) return value_undefined();
    struct value item = list->items[i];
    memmove(&list->items[i], &list->items[i + 1], (size_t)(n - 1 - i) * sizeof item);
    list->n--;
    return item;
}

static struct value reverse(struct call *c) {
    struct value copy = copy_list(c, c->args[0].kind);
    if (c->r->stop == STOP_NOT) reverse_items(copy.as.list);
    return copy;
}

/* Returns whether a comes before b.  Values of kinds that cannot be compared have no order. */
static bool precedes(struct render *r, struct value a, struct value b) {
    if (is_number(a) && is_number(b)) return value_number(r, a) < value_number(r, b);
    if ((a.kind == STRING || is_number(a)) && (b.kind == STRING || is_number(b))) {
        struct text s = value_text(r, a), t = value_text(r, b);
        size_t n = s.n < t.n ? s.n : t.n;
        int order = render_work(r, n) && n > 0 ? memcmp(s.data, t.data, n) : 0;
        return order < 0 || (order == 0 && s.n < t.n);
    }
    if (a.kind == BOOLEAN && b.kind == BOOLEAN) render_fail(r, "true and false have no order");
    return false;
}

/* Sorts n items by their keys: a merge sort, in which equal items keep their order. */
static void sort_members(struct render *r, struct member *m, size_t n, bool descending) {
    struct member *other = render_alloc(r, (uint64_t)n * sizeof *other);
    for (size_t width = 1; width < n && r->stop == STOP_NOT; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            size_t middle = n - begin > width ? begin + width : n, end = n - begin > 2 * width ? begin + 2 * width : n;
            size_t i = begin, k = middle;
            for (size_t to = begin; to < end && render_work(r, 1); to++) {
                bool second = i == middle || (k < end && (descending ? precedes(r, m[i].key, m[k].key)
                                                                     : precedes(r, m[k].key, m[i].key)));
                other[to] = second ? m[k++] : m[i++];
            }
        }
        if (r->stop == STOP_NOT) memcpy(m, other, n * sizeof *m);
    }
}

/* sort(list, reverse=false, case_sensitive=..., attribute=none).  As in llama.cpp, the case of letters counts. */
static struct value sort(struct call *c) {
    if (!count(c, 1, 4)) return value_undefined();
    bool descending = value_truth(c->r, call_argument(c, "reverse", 1));
    struct value attribute = call_argument(c, "attribute", 3), result = copy_list(c, c->args[0].kind);
    struct member *members = render_alloc(c->r, (uint64_t)c->args[0].as.list->n * sizeof *members);
    if (!members) return value_undefined();
    size_t n = result.as.list->n;
    for (size_t i = 0; i < n; i++) {
        struct value item = result.as.list->items[i], key = item;
        if (attribute.kind != UNDEFINED) key = attribute_of(c, item, attribute);
        bool is_missing = attribute.kind != UNDEFINED && key.kind == UNDEFINED;
        if (is_missing && n > 1) return fail(c, "an item lacks the attribute");
        members[i] = (struct member){key, item};
    }
    sort_members(c->r, members, n, descending);
    for (size_t i = 0; i < n; i++) result.as.list->items[i] = members[i].value;
    return result;
}

static struct value extreme(struct call *c, bool largest) {
    if (!count(c, 1, 4)) return value_undefined();
    if (call_argument(c, "attribute", 2).kind != UNDEFINED) return fail(c, "attribute is not supported");
    const struct list *list = c->args[0].as.list;
    struct value best = first(c);
    for (size_t i = 1; i < list->n && render_work(c->r, 1); i++) {
        struct value item = list->items[i];
        if (largest ? precedes(c->r, best, item) : precedes(c->r, item, best)) best = item;
    }
    return best;
}
static struct value smallest(struct call *c) { return extreme(c, false); }
static struct value largest(struct call *c) { return extreme(c, true); }

/* The items or bytes from start to stop. */
struct value builtin_slice(struct render *r, struct value v, int64_t start, int64_t stop, int64_t step) {
    int64_t n = v.kind == STRING ? (int64_t)v.as.text.n : (int64_t)v.as.list->n;
    if (step == 0) {
        render_fail(r, "the step of a slice is 0");
        return value_undefined();
    }
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;   /* of both ends */
    if (start < 0) start = start + n > 0 ? start + n : 0;
    else if (start > high) start = high;
    if (stop < low) stop = stop + n > low ? stop + n : low;
    else if (stop > high) stop = high;
    if (step > n) step = n + 1;
    if (step < -n) step = -n - 1;
    struct output out = {NULL, 0, 0};
    struct value list = v.kind == STRING ? v : value_empty(r, v.kind);
    for (int64_t i = start; (step > 0 ? i < stop : i > stop) && r->stop == STOP_NOT; i += step) {
        if (i < 0 || i >= n) continue;
        if (v.kind == STRING) output_add(r, &out, text_part(v.as.text, (size_t)i, 1));
        else list_add(r, list.as.list, v.as.list->items[i]);
    }
    return v.kind == STRING ? value_output(&out) : list;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static struct value get(struct call *c) {
    if (!count(c, 2, 3)) return value_undefined();
    struct value key = argument_of(c, 1, IS(STRING));
    struct value *found = c->r->stop == STOP_NOT ? object_find(c->r, c->args[0].as.object, key) : NULL;
    return found ? *found : c->n == 3 ? c->args[2] : (struct value){.kind = NONE};
}

enum part { KEYS, VALUES, ITEMS };
static struct value parts_of(struct call *c, enum part part) {
    struct value result = value_empty(c->r, LIST);
    const struct object *o = c->args[0].as.object;
    for (size_t i = 0; i < o->n && c->r->stop == STOP_NOT; i++) {
        struct value item = part == KEYS ? o->members[i].key : o->members[i].value;
        if (part == ITEMS) {
            struct value pair = value_empty(c->r, TUPLE);
            if (pair.kind == TUPLE) list_add(c->r, pair.as.list, o->members[i].key);
            if (pair.kind == TUPLE) list_add(c->r, pair.as.list, item);
            item = pair;
        }
        if (c->r->stop == STOP_NOT) list_add(c->r, result.as.list, item);
    }
    return result;
}
static struct value keys(struct call *c) { return parts_of(c, KEYS); }
static struct value values(struct call *c) { return parts_of(c, VALUES); }
static struct value items(struct call *c) { return parts_of(c, ITEMS); }

/* dictsort(object, case_sensitive=..., by='key', reverse=false): a sorted object. */
static struct value dictsort(struct call *c) {
    struct value by = call_argument(c, "by", 2);
    bool by_value = by.kind == STRING && text_is_word(by.as.text, "value");
    bool descending = value_truth(c->r, call_argument(c, "reverse", 3));
    const struct object *o = c->args[0].as.object;
    struct value result = value_empty(c->r, OBJECT);
    struct member *members = render_alloc(c->r, (uint64_t)o->n * sizeof *members);
    if (!members || result.kind != OBJECT) return value_undefined();
    /* The key is what it is sorted by; the other of both is the value. */
    for (size_t i = 0; i < o->n; i++) {
        members[i] = o->members[i];
        if (by_value) members[i] = (struct member){o->members[i].value, o->members[i].key};
    }
    sort_members(c->r, members, o->n, descending);
    for (size_t i = 0; i < o->n && by_value; i++) members[i] = (struct member){members[i].value, members[i].key};
    *result.as.object = (struct object){members, o->n, o->n, false};
    return result;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static struct value raise_exception(struct call *c) {
    struct shown shown;
    struct text why = text_argument(c, 0);
    if (c->r->stop == STOP_NOT) {
        render_fail(c->r, "the template refuses the chat: %s", show_bytes(&shown, why.data, why.n));
    }
    return value_undefined();
}

static struct value namespace_of(struct call *c) {
    struct value result = value_empty(c->r, OBJECT);
    for (size_t i = 0; i < c->n && c->r->stop == STOP_NOT; i++) {
        if (c->args[i].kind != NAMED) return fail(c, "an argument has no name");
        object_set(c->r, result.as.object, value_string(c->args[i].as.named->name), c->args[i].as.named->value);
    }
    return result;
}

static struct value strftime_now(struct call *c) {
    struct text text = text_argument(c, 0);
    char pattern[100], date[100];
    time_t now = (time_t)c->r->now;
    struct tm *local = localtime(&now);
    if (c->r->stop != STOP_NOT) return value_undefined();
    if (text.n >= sizeof pattern || (text.n > 0 && memchr(text.data, 0, text.n))) {
        return fail(c, "the format has more than 99 bytes or a zero byte");
    }
    memcpy(pattern, text.data, text.n);
    pattern[text.n] = 0;
    size_t n = local ? strftime(date, sizeof date, pattern, local) : 0;
    if (n == 0) return fail(c, "the format is wrong, or the date has more than 99 bytes");
    struct output out = {NULL, 0, 0};
    output_put(c->r, &out, date, n);
    return value_output(&out);
}

static struct value range(struct call *c) {
    int64_t bounds[3] = {0, 0, 1};
    for (size_t i = 0; i < c->n && i < 3; i++) {
        unsigned kinds = i == 0 ? IS(INTEGER) : IS(INTEGER) | IS(FLOAT) | IS(BOOLEAN);
        bounds[i] = value_integer(c->r, argument_of(c, i, kinds));
    }
    if (c->n < 1 || c->n > 3) return fail(c, "expected 1 to 3 arguments");
    if (c->n == 1) bounds[1] = bounds[0], bounds[0] = 0;
    if (bounds[2] == 0) return fail(c, "the step is 0");
    struct value result = value_empty(c->r, LIST);
    for (int64_t i = bounds[0]; (bounds[2] > 0 ? i < bounds[1] : i > bounds[1]) && c->r->stop == STOP_NOT;) {
        list_add(c->r, result.as.list, value_int(i));
        if (__builtin_add_overflow(i, bounds[2], &i)) break;
    }
    return result;
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

const struct builtin *builtin_function(struct text name) {
    static const struct builtin table[] = {
        {"raise_exception", 0, raise_exception}, {"namespace", 0, namespace_of}, {"strftime_now", 0, strftime_now},
        {"range", 0, range}, {"tojson", 0, to_json},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (text_is_word(name, table[i].name)) return &table[i];
    }
    return NULL;
}

const struct builtin *builtin_method(struct value v, struct text name) {
    enum {
        TEXT = IS(STRING), SEQUENCE = ANY_LIST, NUMBER = ANY_NUMBER, MISSING = IS(UNDEFINED), EMPTY = IS(NONE) | MISSING
    };
    static const struct builtin table[] = {
        {"default", EMPTY | IS(BOOLEAN) | NUMBER | TEXT | SEQUENCE, or_default},
        {"tojson", IS(NONE) | IS(BOOLEAN) | NUMBER | TEXT | SEQUENCE | IS(OBJECT), to_json},
        {"string", NUMBER, to_json},
        {"string", IS(NONE) | IS(BOOLEAN) | TEXT | SEQUENCE | IS(OBJECT), as_text}, {"string", MISSING, empty_string},
        {"safe", NUMBER, to_json}, {"safe", TEXT, itself}, {"safe", IS(NONE) | IS(BOOLEAN), as_text},
        {"safe", MISSING, empty_string},
        {"abs", NUMBER, absolute}, {"int", NUMBER | IS(BOOLEAN), to_int}, {"float", NUMBER | IS(BOOLEAN), to_float},
        {"int", TEXT, string_to_int}, {"float", TEXT, string_to_float},
        {"length", TEXT | SEQUENCE | IS(OBJECT), length}, {"length", MISSING, zero},
        {"upper", TEXT, upper}, {"lower", TEXT, lower}, {"capitalize", TEXT, capitalize}, {"title", TEXT, title},
        {"upper", MISSING, empty_string}, {"lower", MISSING, empty_string}, {"capitalize", MISSING, empty_string},
        {"title", MISSING, empty_string}, {"truncate", MISSING, empty_string},
        {"strip", TEXT, strip}, {"lstrip", TEXT, lstrip}, {"rstrip", TEXT, rstrip}, {"strip", MISSING, empty_string},
        {"startswith", TEXT, starts_with}, {"endswith", TEXT, ends_with},
        {"split", TEXT, split}, {"rsplit", TEXT, rsplit},
        {"replace", TEXT, replace}, {"replace", MISSING, empty_string},
        {"format", TEXT, format}, {"indent", TEXT, indent},
        {"join", SEQUENCE, join}, {"join", MISSING, empty_string}, {"join", TEXT | IS(OBJECT), not_supported},
        {"list", SEQUENCE, to_list}, {"list", MISSING, empty_list},
        {"first", SEQUENCE, first}, {"last", SEQUENCE, last}, {"first", MISSING, nothing}, {"last", MISSING, nothing},
        {"selectattr", SEQUENCE, select_true}, {"select", SEQUENCE, select_true}, {"selectattr", EMPTY, empty_list},
        {"select", EMPTY, empty_list},
        {"rejectattr", SEQUENCE, select_false}, {"reject", SEQUENCE, select_false}, {"rejectattr", EMPTY, empty_list},
        {"reject", EMPTY, empty_list},
        {"map", SEQUENCE, map}, {"map", EMPTY, empty_list}, {"append", SEQUENCE, append}, {"pop", SEQUENCE, pop},
        {"sort", SEQUENCE, sort}, {"sort", MISSING, empty_list}, {"reverse", SEQUENCE, reverse},
        {"reverse", MISSING, empty_list}, {"min", SEQUENCE, smallest}, {"max", SEQUENCE, largest},
        {"min", MISSING, nothing}, {"max", MISSING, nothing}, {"sum", MISSING, zero}, {"wordcount", MISSING, zero},
        {"unique", SEQUENCE, not_supported}, {"unique", EMPTY, empty_list},
        {"get", IS(OBJECT), get}, {"keys", IS(OBJECT), keys}, {"values", IS(OBJECT), values},
        {"items", IS(OBJECT), items}, {"items", EMPTY, empty_list}, {"dictsort", IS(OBJECT), dictsort},
    };
    if (v.kind == OBJECT && v.as.object->plain) return NULL;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if ((table[i].kinds & IS(v.kind)) && text_is_word(name, table[i].name)) return &table[i];
    }
    return NULL;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

bool builtin_in(struct render *r, struct value needle, struct value haystack) {
    if (haystack.kind == UNDEFINED) return false;
    if (haystack.kind == STRING && needle.kind == STRING) {
        return text_find(r, haystack.as.text, needle.as.text) != SIZE_MAX;
    }
    if (is_list(haystack)) {
        bool found = false;
        for (size_t i = 0; i < haystack.as.list->n && !found && render_work(r, 1); i++) {
            found = value_equal(r, needle, haystack.as.list->items[i]);
        }
        return found;
    }
    if (haystack.kind == OBJECT && value_is_key(r, needle)) return object_find(r, haystack.as.object, needle) != NULL;
    render_fail(r, "in: a value of the kind %s cannot be in one of the kind %s", kind_name(needle.kind),
                kind_name(haystack.kind));
    return false;
}

/* Tests that compare with one argument, and tests of an integer. */
enum test_kind {
    TEST_KIND, TEST_BOOL, TEST_EQUAL, TEST_ORDER, TEST_IN, TEST_ODD, TEST_DIVISIBLE, TEST_CASE, TEST_IS_TEST,
    TEST_NOT_SUPPORTED
};
static const struct test {
    const char *name;
    enum test_kind kind;
    unsigned value;    /* the kinds that pass; of the others what the comment at the use says */
} tests[] = {
    {"boolean", TEST_KIND, IS(BOOLEAN)}, {"callable", TEST_KIND, IS(FUNCTION)}, {"string", TEST_KIND, IS(STRING)},
    {"integer", TEST_KIND, IS(INTEGER)}, {"float", TEST_KIND, IS(FLOAT)}, {"number", TEST_KIND, ANY_NUMBER},
    {"iterable", TEST_KIND, ANY_LIST | IS(STRING) | IS(UNDEFINED)},
    {"sequence", TEST_KIND, ANY_LIST | IS(STRING) | IS(UNDEFINED)},
    {"mapping", TEST_KIND, IS(OBJECT)}, {"none", TEST_KIND, IS(NONE)}, {"undefined", TEST_KIND, IS(UNDEFINED)},
    {"defined", TEST_KIND, ~IS(UNDEFINED)}, {"true", TEST_BOOL, true}, {"false", TEST_BOOL, false},
    {"eq", TEST_EQUAL, true}, {"equalto", TEST_EQUAL, true}, {"ne", TEST_EQUAL, false},
    {"lt", TEST_ORDER, 0}, {"lessthan", TEST_ORDER, 0}, {"gt", TEST_ORDER, 1}, {"greaterthan", TEST_ORDER, 1},
    {"ge", TEST_ORDER, 2}, {"in", TEST_IN, 0}, {"odd", TEST_ODD, 1}, {"even", TEST_ODD, 0},
    {"divisibleby", TEST_DIVISIBLE, 0}, {"lower", TEST_CASE, 0}, {"upper", TEST_CASE, 1}, {"test", TEST_IS_TEST, 0},
    {"sameas", TEST_NOT_SUPPORTED, 0}, {"escaped", TEST_NOT_SUPPORTED, 0}, {"filter", TEST_NOT_SUPPORTED, 0},
};

static const struct test *find_test(struct text name) {
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (text_is_word(name, tests[i].name)) return &tests[i];
    }
    return NULL;
}

/* Whether two values that have an order are equal, which strings and numbers as texts can be. */
static bool compares_equal(struct render *r, struct value a, struct value b) {
    bool texts = (a.kind == STRING && is_number(b)) || (b.kind == STRING && is_number(a));
    bool same = a.kind == b.kind && (a.kind == STRING || a.kind == BOOLEAN);
    bool comparable = texts || same || (is_number(a) && is_number(b));
    if (!comparable) return false;
    return texts ? text_is(value_text(r, a), value_text(r, b)) : value_equal(r, a, b);
}

bool builtin_test(struct render *r, struct text name, const struct value *args, size_t n) {
    const struct test *test = find_test(name);
    struct call c = {r, name, args, n};
    struct value v = args[0];
    if (!test) {
        struct shown shown;
        render_fail(r, "there is no test '%s'", show_bytes(&shown, name.data, name.n));
        return false;
    }
    switch (test->kind) {
    case TEST_KIND: return test->value >> v.kind & 1;
    case TEST_BOOL: return v.kind == BOOLEAN && v.as.truth == (test->value != 0);
    case TEST_EQUAL: {
        if (!count(&c, 2, 2)) return false;
        bool comparable = is_number(v) || v.kind == STRING || v.kind == BOOLEAN;
        if (test->value) return compares_equal(r, v, args[1]);
        return comparable && (v.kind == BOOLEAN) == (args[1].kind == BOOLEAN) && args[1].kind >= BOOLEAN
               && args[1].kind <= STRING && !compares_equal(r, v, args[1]);
    }
    case TEST_ORDER:
        if (!count(&c, 2, 2)) return false;
        if (test->value == 0) return precedes(r, v, args[1]);
        if (precedes(r, args[1], v)) return true;
        return test->value == 2 && compares_equal(r, v, args[1]);
    case TEST_IN: return count(&c, 2, SIZE_MAX) && builtin_in(r, v, args[1]);
    case TEST_ODD: {
        struct value i = argument_of(&c, 0, IS(INTEGER));
        return i.kind == INTEGER && (i.as.integer & 1) == (int64_t)test->value;
    }
    case TEST_DIVISIBLE: {
        struct value a = argument_of(&c, 0, IS(INTEGER)), b = argument_of(&c, 1, IS(INTEGER));
        if (a.kind != INTEGER || b.kind != INTEGER) return false;
        if (b.as.integer == 0) fail(&c, "division by 0");
        return b.as.integer != 0 && (b.as.integer == -1 || a.as.integer % b.as.integer == 0);
    }
    case TEST_CASE: {
        struct text s = text_argument(&c, 0);
        bool passes = render_work(r, s.n);
        for (size_t i = 0; i < s.n && passes; i++) passes = !(test->value ? is_lower(s.data[i]) : is_upper(s.data[i]));
        return passes;
    }
    case TEST_IS_TEST: return find_test(text_argument(&c, 0)) != NULL;
    default:
        not_supported(&c);
        return false;
    }
}

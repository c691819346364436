#include "template/builtins.h"

#include "base/decimal.h"
#include "base/unicode.h"

#include <math.h>
#include <stdio.h>

#define IS(kind) (1u << (kind))
#define ANY_LIST (IS(LIST) | IS(TUPLE))
#define ANY_NUMBER (IS(INTEGER) | IS(FLOAT))
#define LOOP (1u << 31)   /* the variable loop, an object whose kind has no number of its own */

/* Ways of builtins: where to search, strip or fill; what is in a list; which items are selected; which characters are
 * asked for. */
enum { AT_START = 1, AT_END = 2, AT_BOTH = AT_START | AT_END, MUST_BE = 4, WITH_ZEROS = 8 };
enum { KEYS, VALUES, PAIRS };
enum { BY_ATTRIBUTE = 1, REJECTS = 2 };
enum { LETTERS, DIGITS, DECIMALS, LETTERS_OR_DIGITS, WHITE, UPPER, LOWER };

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static struct value fail(struct call *c, const char *why) {
    return render_fail(c->r, "%.*s: %s", (int)c->name.n, c->name.data, why);
}

/* The argument at position i, which must be there and have no name. */
static struct value argument(struct call *c, size_t i) {
    if (i < c->n && c->args[i].kind == NAMED) return fail(c, "an argument has a name that is not known");
    if (i < c->n) return c->args[i];
    return render_fail(c->r, "%.*s: expected more than %zu values, found %zu", (int)c->name.n, c->name.data, i, c->n);
}

/* The argument of that name, or else the one at position i if it has no name, or else undefined. */
static struct value call_argument(const struct call *c, const char *name, size_t i) {
    for (size_t k = 0; k < c->n; k++) {
        if (c->args[k].kind == NAMED && text_is_word(c->args[k].as.named->name, name)) {
            return c->args[k].as.named->value;
        }
    }
    return i < c->n && c->args[i].kind != NAMED ? c->args[i] : value_undefined();
}

/* The same as truth. */
static bool flag_argument(const struct call *c, const char *name, size_t i) {
    return value_truth(call_argument(c, name, i));
}

/* The argument at position i, which must be of one of the kinds. */
static struct value argument_of(struct call *c, size_t i, unsigned kinds) {
    struct value v = argument(c, i);
    if (c->r->stop == STOP_FAILED || (kinds & IS(v.kind))) return v;
    enum kind expected = UNDEFINED;
    while (!(kinds & IS(expected))) expected++;
    return render_fail(c->r, "%.*s: argument %zu: expected a value of the kind %s, found %s", (int)c->name.n,
                       c->name.data, i, kind_name(expected), kind_name(v.kind));
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

/* ---- characters -------------------------------------------------------------------------------------------------- */

/* The first character of a text that is not empty, and its length in bytes. */
struct character { uint32_t cp; size_t n; };
static struct character first_of(struct text s) {
    struct character c;
    c.n = unicode_decode(s.data, s.n, &c.cp);
    return c;
}

static struct text after(struct text s, size_t n) { return text_part(s, n, s.n - n); }
static struct text before(struct text s, size_t n) { return text_part(s, 0, n); }

/* The first character whose lower case is cp, or cp. */
static uint32_t upper_of(struct render *r, uint32_t cp) {
    if (cp < 0x80) return cp >= 'a' && cp <= 'z' ? cp - 'a' + 'A' : cp;
    if (!render_work(r, unicode_lowers_count / 8)) return cp;
    for (uint32_t i = 0; i < unicode_lowers_count; i++) {
        uint32_t upper = (uint32_t)((int64_t)cp - unicode_value(&unicode_lowers[i]));
        uint32_t key = unicode_key(&unicode_lowers[i]), at = upper - (key >> 8), n = key & 127;
        bool is_near = upper >= key >> 8 && at < 2 * n;
        if (is_near && upper > 0x7f && upper != cp && unicode_lower(upper) == cp) return upper;
    }
    return cp;
}

static bool is_letter(uint32_t cp) { return unicode_class_of(cp) == UNICODE_LETTER; }
static bool is_digit(uint32_t cp) { return unicode_class_of(cp) == UNICODE_NUMBER; }
static bool is_letter_or_digit(uint32_t cp) { return is_letter(cp) || is_digit(cp); }
static bool is_decimal(uint32_t cp) { return cp >= '0' && cp <= '9'; }
/* Python's white space: that of Unicode, and four separators of ASCII. */
static bool is_white(uint32_t cp) { return unicode_is_space(cp) || (cp >= 0x1c && cp <= 0x1f); }

/* Which characters begin a word, so that they become capitals. */
enum words { WORDS_NONE, WORDS_ALL, WORDS_START, WORDS_LETTERS, WORDS_BRACKETS };

/* Copies a text with small letters, but capitals where a word begins. */
static struct value change_case(struct render *r, struct text s, enum words words) {
    struct output out = {NULL, 0, 0};
    uint32_t last = 0;
    for (bool is_first = true; s.n > 0 && r->stop == STOP_NOT; is_first = false) {
        struct character c = first_of(s);
        bool behind_bracket = is_white(last) || (last > 0 && last < 0x80 && strchr("-({[<", (int)last));
        bool begins = words == WORDS_ALL || (words != WORDS_NONE && is_first)
                      || (words == WORDS_LETTERS && !is_letter(last)) || (words == WORDS_BRACKETS && behind_bracket);
        uint32_t cp = begins ? upper_of(r, c.cp) : unicode_lower(c.cp);
        char bytes[8];   /* of the character, and their marks */
        memset(bytes + 4, text_is_marked(before(s, c.n)), 4);
        output_add(r, &out, cp == c.cp ? before(s, c.n) : (struct text){bytes, unicode_encode(cp, bytes), 4});
        last = c.cp;
        s = after(s, c.n);
    }
    return value_output(&out);
}

/* upper, lower, capitalize and title.  The filter title begins words behind spaces and brackets, the method behind all
 * but letters. */
static struct value cased(struct call *c) { return change_case(c->r, c->args[0].as.text, (enum words)c->way); }

/* What a value is compared by in a sort: strings without the case of their letters. */
static struct value sort_key(struct render *r, struct value v, bool has_case) {
    return v.kind == STRING && !has_case ? change_case(r, v.as.text, WORDS_NONE) : v;
}

/* ---- values of any kind ------------------------------------------------------------------------------------------ */

static struct value itself(struct call *c) { return c->args[0]; }

/* default(value, default_value='', boolean=false) */
static struct value or_default(struct call *c) {
    struct value v = c->args[0];
    bool is_missing = flag_argument(c, "boolean", 2) ? !value_truth(v) : v.kind == UNDEFINED;
    if (!is_missing) return v;
    return c->n > 1 ? call_argument(c, "default_value", 1) : value_string(text_of(""));
}

/* Replaces each character outside of ASCII by \uXXXX. */
static struct text ascii_json(struct render *r, struct text json) {
    struct output out = {NULL, 0, 0};
    for (struct text rest = json; rest.n > 0 && r->stop != STOP_FAILED;) {
        struct character c = first_of(rest);
        char escape[16] = "";
        if (c.cp < 0x7f) {
            output_add(r, &out, before(rest, 1));
        } else if (c.cp >= 0x10000) {
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((c.cp - 0x10000) >> 10)),
                     (unsigned)(0xdc00 + ((c.cp - 0x10000) & 0x3ff)));
        } else {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c.cp);
        }
        output_word(r, &out, escape);
        rest = after(rest, c.n);
    }
    return output_text(&out);
}

static void sort_members(struct render *r, struct member *m, size_t n, bool descending);

/* A copy of a value in which the members of all objects are sorted by their keys. */
static struct value sorted_copy(struct render *r, struct value v) {
    if (!(is_list(v) || v.kind == OBJECT) || !render_enter(r)) return v;
    struct value copy = value_empty(r, v.kind);
    for (size_t i = 0; is_list(v) && i < v.as.list->n && r->stop == STOP_NOT; i++) {
        list_add(r, copy.as.list, sorted_copy(r, v.as.list->items[i]));
    }
    size_t n = v.kind == OBJECT ? v.as.object->n : 0;
    struct member *members = n > 0 ? render_alloc(r, (uint64_t)n * sizeof *members) : NULL;
    for (size_t i = 0; members && i < n && r->stop == STOP_NOT; i++) {
        members[i] = (struct member){v.as.object->members[i].key, sorted_copy(r, v.as.object->members[i].value)};
    }
    if (members && r->stop == STOP_NOT) {
        sort_members(r, members, n, false);
        *copy.as.object = (struct object){members, n, n, false, NULL};
    }
    render_leave(r);
    return copy;
}

/* tojson(value, ensure_ascii=false, indent=none, separators=none, sort_keys=false), as transformers has it */
static struct value to_json(struct call *c) {
    if (!count(c, 1, 5)) return value_undefined();
    struct value indent = call_argument(c, "indent", 2), separators = call_argument(c, "separators", 3);
    struct json_style style = {indent.kind == INTEGER ? indent.as.integer : -1, text_of(", "), text_of(": ")};
    if (c->args[0].kind == UNDEFINED) return fail(c, "an undefined value has no JSON");
    if (style.indent >= 0) style.item_separator = text_of(",");
    if (is_list(separators) && separators.as.list->n == 2) {
        style.item_separator = value_text(c->r, separators.as.list->items[0]);
        style.key_separator = value_text(c->r, separators.as.list->items[1]);
    }
    struct value v = flag_argument(c, "sort_keys", 4) ? sorted_copy(c->r, c->args[0]) : c->args[0];
    struct output out = {NULL, 0, 0};
    if (c->r->stop == STOP_NOT) value_write_json(c->r, &out, v, &style, 0);
    struct text json = output_text(&out);
    return value_string(flag_argument(c, "ensure_ascii", 1) ? ascii_json(c->r, json) : json);
}

static struct value length(struct call *c) {
    struct value v = c->args[0];
    if (v.kind == STRING) return value_int((int64_t)text_length(c->r, v.as.text));
    if (v.kind == OBJECT) return value_int((int64_t)v.as.object->n);
    if (v.kind == UNDEFINED) return value_int(0);
    if (!is_list(v)) return fail(c, "expected a string, a list or an object");
    return value_int((int64_t)v.as.list->n);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static struct value absolute(struct call *c) {
    struct value v = argument_of(c, 0, ANY_NUMBER | IS(BOOLEAN));
    if (v.kind == FLOAT) return value_float(fabs(v.as.number));
    int64_t i = c->r->stop == STOP_NOT ? value_integer(c->r, v) : 0;
    return value_int(i < 0 && i != INT64_MIN ? -i : i);
}

/* A text without the white space at its ends. */
static struct text trimmed(struct text s) {
    while (s.n > 0 && is_white(first_of(s).cp)) s = after(s, first_of(s).n);
    while (s.n > 0 && is_space(s.data[s.n - 1])) s.n--;
    return s;
}

/* Reads a whole value as a number.  Returns false if it is none. */
static bool read_number(struct call *c, struct value v, double *x) {
    if (v.kind >= BOOLEAN && v.kind <= FLOAT) *x = value_number(c->r, v);
    if (v.kind != STRING) return v.kind >= BOOLEAN && v.kind <= FLOAT;
    if (!render_work(c->r, v.as.text.n)) return false;
    struct text s = trimmed(v.as.text);
    return s.n > 0 && decimal_read(s.data, s.n, x) == s.n;
}

/* int(value, default=0, base=10) */
static struct value to_int(struct call *c) {
    struct value v = c->args[0], otherwise = call_argument(c, "default", 1), base = call_argument(c, "base", 2);
    int64_t radix = base.kind == UNDEFINED ? 10 : value_integer(c->r, base), i;
    double x;
    if (radix != 0 && (radix < 2 || radix > 36)) return fail(c, "the base must be 0 or 2 to 36");
    if (v.kind == INTEGER || v.kind == BOOLEAN) return value_int(value_integer(c->r, v));
    if (v.kind == STRING && render_work(c->r, v.as.text.n) && text_integer(trimmed(v.as.text), radix, &i)) {
        return value_int(i);
    }
    if (read_number(c, v, &x) && isfinite(x)) return value_int(integer_of(x));
    return otherwise.kind == UNDEFINED ? value_int(0) : otherwise;
}

/* float(value, default=0.0) */
static struct value to_float(struct call *c) {
    struct value otherwise = call_argument(c, "default", 1);
    double x;
    if (read_number(c, c->args[0], &x)) return value_float(x);
    return otherwise.kind == UNDEFINED ? value_float(0) : otherwise;
}

/* round(value, precision=0, method='common' or 'ceil' or 'floor') */
static struct value round_number(struct call *c) {
    struct value v = argument_of(c, 0, ANY_NUMBER | IS(BOOLEAN)), digits = call_argument(c, "precision", 1);
    struct value method = call_argument(c, "method", 2);
    int64_t n = digits.kind == UNDEFINED ? 0 : value_integer(c->r, digits);
    bool up = method.kind == STRING && text_is_word(method.as.text, "ceil");
    bool down = method.kind == STRING && text_is_word(method.as.text, "floor");
    if (c->r->stop != STOP_NOT) return v;
    if (n < -300 || n > 300) return fail(c, "the precision is not from -300 to 300");
    double x = value_number(c->r, v), scale = pow(10, (double)n);
    char text[700];
    if (up || down) return value_float((up ? ceil(x * scale) : floor(x * scale)) / scale);
    if (v.kind != FLOAT && n >= 0) return value_int(value_integer(c->r, v));
    if (v.kind != FLOAT) return value_int(integer_of(nearbyint(x * scale) / scale));
    if (n < 0) return value_float(nearbyint(x * scale) / scale);
    snprintf(text, sizeof text, "%.*f", (int)n, x);   /* rounds the exact value, a tie to the even digit */
    if (isfinite(x)) decimal_read(text, strlen(text), &x);
    return value_float(x);
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* Whether a set of characters has one, or without a set whether it is white space. */
static bool is_stripped(const struct text *set, struct text character) {
    if (!set) return is_white(first_of(character).cp);
    for (struct text rest = *set; rest.n > 0; rest = after(rest, first_of(rest).n)) {
        if (text_is(before(rest, first_of(rest).n), character)) return true;
    }
    return false;
}

/* The last character of a text that is not empty. */
static struct text last_character(struct text s) {
    size_t n = 1;
    while (n < 4 && n < s.n && ((uint8_t)s.data[s.n - n] & 0xc0) == 0x80) n++;
    struct text last = after(s, s.n - n);
    return first_of(last).n == n ? last : after(s, s.n - 1);
}

/* strip, lstrip, rstrip and trim: remove white space, or the characters of the argument chars, at the ends. */
static struct value strip(struct call *c) {
    struct value chars = call_argument(c, "chars", 1);
    struct text s = c->args[0].as.text, own = chars.kind == STRING ? chars.as.text : text_of("");
    const struct text *set = chars.kind == STRING ? &own : NULL;
    const bool left = c->way & AT_START, right = c->way & AT_END;
    if (chars.kind > NONE && chars.kind != STRING) return fail(c, "the characters are not a string");
    while (left && s.n > 0 && render_work(c->r, 1 + own.n / 8) && is_stripped(set, before(s, first_of(s).n))) {
        s = after(s, first_of(s).n);
    }
    while (right && s.n > 0 && render_work(c->r, 1 + own.n / 8) && is_stripped(set, last_character(s))) {
        s.n -= last_character(s).n;
    }
    return value_string(s);
}

static bool has_affix(struct call *c, struct text s, struct value affix) {
    bool found = false;
    for (size_t i = 0; affix.kind == TUPLE && i < affix.as.list->n && !found && c->r->stop == STOP_NOT; i++) {
        found = affix.as.list->items[i].kind == STRING && has_affix(c, s, affix.as.list->items[i]);
    }
    if (affix.kind == TUPLE) return found;
    struct text part = affix.as.text;
    if (!render_work(c->r, part.n) || part.n > s.n) return false;
    if (c->way == AT_END) s = after(s, s.n - part.n);
    return part.n == 0 || memcmp(s.data, part.data, part.n) == 0;
}

/* startswith and endswith: with a string, or one of a tuple. */
static struct value affix_test(struct call *c) {
    struct value affix = argument_of(c, 1, IS(STRING) | IS(TUPLE));
    return value_bool(c->r->stop == STOP_NOT && has_affix(c, c->args[0].as.text, affix));
}

/* removeprefix and removesuffix */
static struct value remove_affix(struct call *c) {
    struct text s = c->args[0].as.text, part = text_argument(c, 1);
    if (c->r->stop != STOP_NOT || !has_affix(c, s, c->args[1])) return value_string(s);
    return value_string(c->way == AT_END ? before(s, s.n - part.n) : after(s, part.n));
}

static void reverse_items(struct list *list) {
    for (size_t i = 0; i < list->n / 2; i++) {
        struct value item = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = item;
    }
}

/* The place of the last occurrence of a text in another, or SIZE_MAX. */
static size_t find_last(struct render *r, struct text s, struct text needle) {
    for (size_t at = s.n + 1; at-- > needle.n;) {
        if (!render_work(r, 1 + needle.n / 8)) break;
        if (needle.n == 0 || memcmp(s.data + at - needle.n, needle.data, needle.n) == 0) return at - needle.n;
    }
    return SIZE_MAX;
}

/* Removes the white space, or what is not white space, at an end of a text. */
static struct text skipped(struct call *c, struct text s, bool from_end, bool white) {
    while (s.n > 0 && render_work(c->r, 1)) {
        struct text character = from_end ? last_character(s) : before(s, first_of(s).n);
        if (is_white(first_of(character).cp) != white) break;
        s = from_end ? before(s, s.n - character.n) : after(s, character.n);
    }
    return s;
}

/* Splits at white space.  n_left: how often at most; negative: there is no limit. */
static void split_words(struct call *c, struct list *parts, struct text s, int64_t n_left, bool from_end) {
    for (s = skipped(c, s, from_end, true); s.n > 0 && c->r->stop == STOP_NOT;) {
        bool is_last = n_left-- == 0;
        struct text rest = is_last ? before(s, 0) : skipped(c, s, from_end, false);
        list_add(c->r, parts, value_string(is_last || !from_end ? before(s, s.n - rest.n) : after(s, rest.n)));
        s = skipped(c, rest, from_end, true);
    }
}

/* split and rsplit(sep=none, maxsplit=-1) */
static struct value split(struct call *c) {
    const bool from_end = c->way == AT_END;
    struct value sep = call_argument(c, "sep", 1), most = call_argument(c, "maxsplit", 2);
    struct text s = c->args[0].as.text;
    int64_t n_left = most.kind == UNDEFINED ? -1 : value_integer(c->r, most);
    struct value result = value_empty(c->r, LIST);
    if (n_left < 0) n_left = -1;   /* INT64_MIN must not be decremented */
    if (sep.kind > NONE && (sep.kind != STRING || sep.as.text.n == 0)) return fail(c, "the separator is not a text");
    if (c->r->stop != STOP_NOT) return result;
    if (sep.kind <= NONE) split_words(c, result.as.list, s, n_left, from_end);
    while (sep.kind == STRING && c->r->stop == STOP_NOT) {
        struct text by = sep.as.text;
        size_t at = n_left-- == 0 ? SIZE_MAX : from_end ? find_last(c->r, s, by) : text_find(c->r, s, by);
        if (c->r->stop != STOP_NOT) break;
        bool is_last = at == SIZE_MAX;
        list_add(c->r, result.as.list, value_string(is_last ? s : from_end ? after(s, at + by.n) : before(s, at)));
        if (is_last) break;
        s = from_end ? before(s, at) : after(s, at + by.n);
    }
    if (from_end && c->r->stop == STOP_NOT) reverse_items(result.as.list);
    return result;
}

/* partition and rpartition: what is before, the separator, and what is behind it. */
static struct value partition(struct call *c) {
    const bool from_end = c->way == AT_END;
    struct text s = c->args[0].as.text, by = text_argument(c, 1), none = text_of("");
    struct value result = value_empty(c->r, TUPLE);
    if (c->r->stop == STOP_NOT && by.n == 0) return fail(c, "the separator is empty");
    size_t at = c->r->stop != STOP_NOT ? SIZE_MAX : from_end ? find_last(c->r, s, by) : text_find(c->r, s, by);
    if (c->r->stop != STOP_NOT) return result;
    bool found = at != SIZE_MAX;
    list_add(c->r, result.as.list, value_string(found ? before(s, at) : from_end ? none : s));
    list_add(c->r, result.as.list, value_string(found ? by : none));
    list_add(c->r, result.as.list, value_string(found ? after(s, at + by.n) : from_end ? s : none));
    return result;
}

/* splitlines(keepends=false) */
static struct value split_lines(struct call *c) {
    struct value result = value_empty(c->r, LIST);
    bool keeps = flag_argument(c, "keepends", 1);
    for (struct text s = c->args[0].as.text; s.n > 0 && c->r->stop == STOP_NOT;) {
        size_t end = 0;
        while (end < s.n && s.data[end] != '\n' && s.data[end] != '\r' && render_work(c->r, 1)) end++;
        size_t next = end + (end < s.n) + (s.n - end > 1 && s.data[end] == '\r' && s.data[end + 1] == '\n');
        if (c->r->stop == STOP_NOT) list_add(c->r, result.as.list, value_string(before(s, keeps ? next : end)));
        s = after(s, next);
    }
    return result;
}

/* find, rfind and index: places in characters. */
static struct value place_of(struct call *c) {
    struct text s = c->args[0].as.text, part = text_argument(c, 1);
    if (c->r->stop != STOP_NOT) return value_undefined();
    size_t at = c->way == AT_END ? find_last(c->r, s, part) : text_find(c->r, s, part);
    if (at == SIZE_MAX && c->way == MUST_BE) return fail(c, "the text is not there");
    return value_int(at == SIZE_MAX ? -1 : (int64_t)text_length(c->r, before(s, at)));
}

static struct value count_text(struct call *c) {
    struct text s = c->args[0].as.text, part = text_argument(c, 1);
    int64_t n = part.n == 0 ? (int64_t)text_length(c->r, s) + 1 : 0;
    while (part.n > 0 && c->r->stop == STOP_NOT) {
        size_t at = text_find(c->r, s, part);
        if (at == SIZE_MAX) break;
        n++;
        s = after(s, at + part.n);
    }
    return value_int(n);
}

/* replace(old, new, count=-1) */
static struct value replace(struct call *c) {
    struct text s = c->args[0].as.text, old = text_argument(c, 1), by = text_argument(c, 2);
    struct value most = call_argument(c, "count", 3);
    int64_t n_left = most.kind <= NONE ? -1 : value_integer(c->r, most);
    struct output out = {NULL, 0, 0};
    if (n_left < 0) n_left = -1;
    for (bool is_first = true; c->r->stop == STOP_NOT && n_left-- != 0; is_first = false) {
        size_t at = old.n > 0 ? text_find(c->r, s, old) : is_first ? 0 : s.n > 0 ? first_of(s).n : SIZE_MAX;
        if (at == SIZE_MAX) break;
        output_add(c->r, &out, before(s, at));
        output_add(c->r, &out, by);
        s = after(s, at + old.n);
    }
    output_add(c->r, &out, s);
    return value_output(&out);
}

/* The method format: replaces each {}, {2} or {name} by an argument. */
static struct value format_method(struct call *c) {
    struct text s = c->args[0].as.text;
    struct output out = {NULL, 0, 0};
    for (size_t i = 0, n_used = 1; i < s.n && c->r->stop == STOP_NOT; i++) {
        bool is_double = i + 1 < s.n && s.data[i] == s.data[i + 1];
        if ((s.data[i] != '{' && s.data[i] != '}') || is_double) {
            output_add(c->r, &out, text_part(s, i, 1));
            i += is_double && (s.data[i] == '{' || s.data[i] == '}');
            continue;
        }
        const char *end = memchr(s.data + i, '}', s.n - i);
        struct text name = after(s, i + 1);
        if (s.data[i] == '}' || !end) return fail(c, "a bracket in the string is not closed");
        name.n = (size_t)(end - name.data);
        int64_t place;
        struct value v = value_undefined();
        if (name.n == 0) v = argument(c, n_used++);
        else if (text_integer(name, 10, &place) && place >= 0) v = argument(c, (size_t)place + 1);
        for (size_t k = 1; k < c->n && v.kind == UNDEFINED; k++) {
            bool is_it = c->args[k].kind == NAMED && text_is(c->args[k].as.named->name, name);
            if (is_it) v = c->args[k].as.named->value;
        }
        if (v.kind == UNDEFINED && name.n > 0) return fail(c, "only {}, {1} and {name} are supported in the string");
        value_write(c->r, &out, v);
        i = (size_t)(end - s.data);
    }
    return value_output(&out);
}

/* Writes a text by a part of a pattern, such as %-5.2s: of at least 5 and at most 2 characters. */
static void format_text(struct render *r, struct output *out, const char *pattern, struct text s) {
    bool is_left = strchr(pattern, '-') != NULL;
    const char *at = pattern + 1 + strspn(pattern + 1, "-+ #0"), *point = strchr(pattern, '.');
    uint32_t width = decimal_read_u32(&at), most = UINT32_MAX;
    if (point) point++, most = decimal_read_u32(&point);
    if (most < UINT32_MAX) s.n = text_prefix(r, s, most);
    size_t n = width > 0 ? text_length(r, s) : 0;
    if (is_left) output_add(r, out, s);
    for (; n < width && r->stop == STOP_NOT; n++) output_put(r, out, " ", 1);
    if (!is_left) output_add(r, out, s);
}

/* Writes a number by a part of a pattern, such as %5.2f. */
static void format_number(struct render *r, struct output *out, const char *pattern, char letter, struct value v) {
    char text[512], own[40];
    bool is_integer = strchr("diouxX", letter) != NULL;
    if (v.kind < BOOLEAN || v.kind > FLOAT) {
        render_fail(r, "%s: expected a number, found a value of the kind %s", pattern, kind_name(v.kind));
        return;
    }
    snprintf(own, sizeof own, "%.*s%s%c", (int)strlen(pattern) - 1, pattern, is_integer ? "ll" : "",
             letter == 'u' || letter == 'i' ? 'd' : letter);
    int n = is_integer ? snprintf(text, sizeof text, own, (long long)value_integer(r, v))
                       : snprintf(text, sizeof text, own, value_number(r, v));
    if (n < 0 || (size_t)n >= sizeof text) render_fail(r, "%s: the text is too long", pattern);
    else output_put(r, out, text, (size_t)n);
}

/* Whether a part of a pattern asks for at least 1000 characters or digits; the C library would allocate memory. */
static bool is_too_wide(const char *part) {
    size_t n_digit = 0;
    for (; *part && n_digit <= 3; part++) n_digit = *part >= '0' && *part <= '9' ? n_digit + 1 : 0;
    return n_digit > 3;
}

struct value builtin_format(struct render *r, struct text pattern, struct value values) {
    struct output out = {NULL, 0, 0};
    size_t n_used = 0, n_value = values.kind == TUPLE ? values.as.list->n : 1;
    for (size_t i = 0; i < pattern.n && r->stop == STOP_NOT; i++) {
        size_t begin = i;
        if (pattern.data[i] != '%') {
            output_add(r, &out, text_part(pattern, i, 1));
            continue;
        }
        for (i++; i < pattern.n && pattern.data[i] && strchr("-+ #0123456789.", pattern.data[i]); i++) continue;
        char letter = i < pattern.n ? pattern.data[i] : 0, part[32];
        if (letter == '%') {
            output_put(r, &out, "%", 1);
        } else if (!letter || !strchr("sdiouxXfFeEgG", letter) || i - begin + 1 >= sizeof part) {
            render_fail(r, "%%: the pattern is not supported");
        } else if (n_used == n_value) {
            render_fail(r, "%%: there are fewer values than places");
        } else {
            memcpy(part, pattern.data + begin, i - begin + 1);
            part[i - begin + 1] = 0;
            struct value v = values.kind == TUPLE ? values.as.list->items[n_used] : values;
            if (is_too_wide(part)) render_fail(r, "%s: at least 1000 characters are not supported", part);
            else if (letter == 's') format_text(r, &out, part, value_text(r, v));
            else format_number(r, &out, part, letter, v);
            n_used++;
        }
    }
    return value_output(&out);
}

/* The filter format: as the operator %. */
static struct value format_filter(struct call *c) {
    struct value values = value_empty(c->r, TUPLE);
    for (size_t i = 1; i < c->n && c->r->stop == STOP_NOT; i++) list_add(c->r, values.as.list, argument(c, i));
    return c->r->stop == STOP_NOT ? builtin_format(c->r, c->args[0].as.text, values) : values;
}

/* Whether a text has letters with a case, and all of them have this one. */
static bool has_case(struct render *r, struct text s, bool is_upper) {
    bool has = false;
    for (; s.n > 0 && r->stop == STOP_NOT; s = after(s, first_of(s).n)) {
        uint32_t cp = first_of(s).cp;
        bool upper = unicode_lower(cp) != cp, cased = upper || upper_of(r, cp) != cp;
        if (cased && upper != is_upper) return false;
        has = has || cased;
    }
    return has;
}

/* Whether a text is not empty and has only characters of a kind. */
static struct value all_are(struct call *c) {
    static bool (*const kinds[])(uint32_t cp) = {
        [LETTERS] = is_letter, [DIGITS] = is_digit, [DECIMALS] = is_decimal, [LETTERS_OR_DIGITS] = is_letter_or_digit,
        [WHITE] = is_white,
    };
    struct text s = c->args[0].as.text;
    if (c->way >= UPPER) return value_bool(has_case(c->r, s, c->way == UPPER));
    bool all = s.n > 0 && render_work(c->r, s.n);
    for (; all && s.n > 0; s = after(s, first_of(s).n)) all = kinds[c->way](first_of(s).cp);
    return value_bool(all);
}

/* ljust, rjust and zfill(width, fillchar=' ') */
static struct value fill(struct call *c) {
    const bool has_zeros = c->way & WITH_ZEROS;
    struct text s = c->args[0].as.text;
    struct value filler = call_argument(c, "fillchar", 2);
    struct text by = filler.kind == STRING ? filler.as.text : text_of(has_zeros ? "0" : " ");
    int64_t n = value_integer(c->r, argument(c, 1)) - (int64_t)text_length(c->r, s);
    struct output out = {NULL, 0, 0};
    bool has_sign = has_zeros && s.n > 0 && (s.data[0] == '-' || s.data[0] == '+');
    if (has_sign) output_add(c->r, &out, before(s, 1));
    if (has_sign) s = after(s, 1);
    if (c->way & AT_END) output_add(c->r, &out, s);
    for (; n > 0 && c->r->stop == STOP_NOT; n--) output_add(c->r, &out, by);
    if (c->way & AT_START) output_add(c->r, &out, s);
    return value_output(&out);
}

/* indent(text, width=4, first=false, blank=false): puts spaces, or the text that width is, before the lines. */
static struct value indent(struct call *c) {
    struct value width = call_argument(c, "width", 1);
    bool first = flag_argument(c, "first", 2), blank = flag_argument(c, "blank", 3);
    struct text s = c->args[0].as.text, margin = width.kind == STRING ? width.as.text : text_of("    ");
    if (width.kind == INTEGER || width.kind == BOOLEAN) {
        int64_t n = value_integer(c->r, width);
        char *spaces = n >= 0 ? render_alloc(c->r, (uint64_t)n) : NULL;
        if (n < 0) return fail(c, "the width is negative");
        if (!spaces) return value_undefined();
        margin = (struct text){memset(spaces, ' ', (size_t)n), (size_t)n, 0};
    }
    struct output out = {NULL, 0, 0};
    for (bool is_first = true; c->r->stop == STOP_NOT; is_first = false) {
        const char *newline = s.n > 0 ? memchr(s.data, '\n', s.n) : NULL;
        size_t n = newline ? (size_t)(newline - s.data) : s.n;
        if (is_first ? first : n > 0 || blank) output_add(c->r, &out, margin);
        output_add(c->r, &out, before(s, n + (newline != NULL)));
        if (!newline) break;
        s = after(s, n + 1);
    }
    return value_output(&out);
}

/* Escapes what has a meaning in HTML. */
static struct value escape(struct call *c) {
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct text s = c->args[0].as.text;
    struct output out = {NULL, 0, 0};
    for (size_t i = 0; i < s.n && c->r->stop == STOP_NOT; i++) {
        const char *found = s.data[i] ? strchr("&<>'\"", s.data[i]) : NULL;
        if (found) output_word(c->r, &out, names[found - (const char *)strchr("&<>'\"", '&')]);
        else output_add(c->r, &out, text_part(s, i, 1));
    }
    return value_output(&out);
}

static struct value word_count(struct call *c) {
    int64_t n = 0;
    bool inside = false;
    for (struct text s = c->args[0].as.text; s.n > 0 && render_work(c->r, 1); s = after(s, first_of(s).n)) {
        bool is_word = is_letter_or_digit(first_of(s).cp) || first_of(s).cp == '_';
        n += is_word && !inside;
        inside = is_word;
    }
    return value_int(n);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static struct value pair_of(struct render *r, struct value a, struct value b) {
    struct value pair = value_empty(r, TUPLE);
    if (r->stop == STOP_NOT) list_add(r, pair.as.list, a);
    if (r->stop == STOP_NOT) list_add(r, pair.as.list, b);
    return pair;
}

static struct value parts_of(struct render *r, const struct object *o, unsigned part) {
    struct value list = value_empty(r, LIST);
    for (size_t i = 0; i < o->n && r->stop == STOP_NOT; i++) {
        struct value key = o->members[i].key, item = o->members[i].value;
        list_add(r, list.as.list, part == KEYS ? key : part == VALUES ? item : pair_of(r, key, item));
    }
    return list;
}

struct value builtin_pairs(struct render *r, const struct object *o) { return parts_of(r, o, PAIRS); }

struct value builtin_items(struct render *r, struct value v) {
    if (is_list(v)) return v;
    if (v.kind == OBJECT) return parts_of(r, v.as.object, KEYS);
    struct value list = value_empty(r, LIST);
    if (v.kind != STRING && v.kind != UNDEFINED) {
        render_fail(r, "expected a list or an object, found a value of the kind %s", kind_name(v.kind));
    }
    for (struct text s = v.as.text; v.kind == STRING && s.n > 0 && r->stop == STOP_NOT;) {
        size_t n = first_of(s).n;
        list_add(r, list.as.list, value_string(before(s, n)));
        s = after(s, n);
    }
    return list;
}

/* A copy of the list, as a list. */
static struct value to_list(struct call *c) {
    const struct list *list = c->args[0].as.list;
    struct value copy = value_list(c->r, list->n);
    for (size_t i = 0; i < list->n && c->r->stop == STOP_NOT; i++) list_add(c->r, copy.as.list, list->items[i]);
    return copy;
}

/* first and last */
static struct value end_of(struct call *c) {
    const struct list *list = c->args[0].as.list;
    return list->n > 0 ? list->items[c->way == AT_END ? list->n - 1 : 0] : value_undefined();
}

static struct value reverse(struct call *c) {
    struct value copy = to_list(c);
    if (c->r->stop == STOP_NOT) reverse_items(copy.as.list);
    return copy;
}

/* Strings reversed are strings. */
static struct value reverse_any(struct call *c) {
    struct text s = c->args[0].as.text;
    struct output out = {NULL, 0, 0};
    struct value list = c->args[0].kind == STRING ? value_undefined() : builtin_items(c->r, c->args[0]);
    struct call of_list = {c->r, c->name, &list, 1, 0};
    if (c->r->stop != STOP_NOT || c->args[0].kind != STRING) return c->r->stop == STOP_NOT ? reverse(&of_list) : list;
    while (s.n > 0 && c->r->stop == STOP_NOT) {
        struct text character = last_character(s);
        output_add(c->r, &out, character);
        s.n -= character.n;
    }
    return value_output(&out);
}

/* Returns what a path of members and places leads to, such as "a.b" or 0, or undefined. */
static struct value attribute_of(struct call *c, struct value v, struct value path) {
    struct text rest = path.kind == STRING ? path.as.text : text_of("");
    for (bool is_last = false; !is_last && c->r->stop == STOP_NOT && render_work(c->r, rest.n + 1);) {
        const char *point = rest.n > 0 ? memchr(rest.data, '.', rest.n) : NULL;
        struct value key = path;
        int64_t i = 0;
        is_last = !point;
        if (path.kind == STRING) key = value_string(before(rest, point ? (size_t)(point - rest.data) : rest.n));
        if (path.kind == STRING && text_integer(key.as.text, 10, &i) && is_decimal((uint8_t)key.as.text.data[0])) {
            key = value_int(i);
        }
        struct value *found = v.kind == OBJECT ? object_find(c->r, v.as.object, key) : NULL;
        if (key.kind == INTEGER && is_list(v)) {
            i = key.as.integer < 0 ? key.as.integer + (int64_t)v.as.list->n : key.as.integer;
            if (i >= 0 && i < (int64_t)v.as.list->n) found = &v.as.list->items[i];
        }
        v = found ? *found : value_undefined();
        if (point) rest = after(rest, (size_t)(point - rest.data) + 1);
    }
    return v;
}

/* select and reject(list, test=none, arguments), selectattr and rejectattr(list, attribute, test=none, arguments): the
 * items that pass, or do not pass. */
static struct value select_items(struct call *c) {
    const bool of_attribute = c->way & BY_ATTRIBUTE, passing = !(c->way & REJECTS);
    struct value result = value_empty(c->r, LIST);
    size_t i_test = 1 + of_attribute;
    struct value path = of_attribute ? argument_of(c, 1, IS(STRING) | IS(INTEGER)) : value_undefined();
    if (c->n > i_test) argument_of(c, i_test, IS(STRING));
    struct list *list = c->args[0].as.list;
    list->is_read = true;
    size_t n = c->n > i_test ? c->n - i_test : 1;   /* of the values that the test compares */
    struct value *values = render_alloc(c->r, (uint64_t)n * sizeof *values);
    for (size_t i = 1; values && i < n; i++) values[i] = c->args[i_test + i];
    for (size_t i = 0; i < list->n && render_work(c->r, 32) && c->r->stop == STOP_NOT; i++) {
        struct value tested = of_attribute ? attribute_of(c, list->items[i], path) : list->items[i];
        values[0] = tested;
        bool passes = c->n > i_test ? builtin_test(c->r, c->args[i_test].as.text, values, n) : value_truth(tested);
        if (passes == passing && c->r->stop == STOP_NOT) list_add(c->r, result.as.list, list->items[i]);
    }
    return result;
}

/* join(list, d='', attribute=none) */
static struct value join(struct call *c) {
    struct value by = call_argument(c, "d", 1), attribute = call_argument(c, "attribute", 2);
    struct text between = value_text(c->r, by);
    struct output out = {NULL, 0, 0};
    const struct list *list = c->args[0].as.list;
    for (size_t i = 0; i < list->n && c->r->stop == STOP_NOT; i++) {
        struct value item = attribute.kind > NONE ? attribute_of(c, list->items[i], attribute) : list->items[i];
        if (i > 0) output_add(c->r, &out, between);
        value_write(c->r, &out, item);
    }
    return value_output(&out);
}

/* The method join of a separator. */
static struct value join_method(struct call *c) {
    struct value list = builtin_items(c->r, argument(c, 1)), args[2] = {list, c->args[0]};
    for (size_t i = 0; c->r->stop == STOP_NOT && i < list.as.list->n; i++) {
        if (list.as.list->items[i].kind != STRING) return fail(c, "an item is not a string");
    }
    struct call by = {c->r, c->name, args, 2, 0};
    return c->r->stop == STOP_NOT ? join(&by) : list;
}

/* map(list, filter, arguments) or map(list, attribute=..., default=...) */
static struct value map(struct call *c) {
    struct value result = value_empty(c->r, LIST), path = call_argument(c, "attribute", SIZE_MAX);
    struct value otherwise = call_argument(c, "default", SIZE_MAX);
    bool by_filter = path.kind == UNDEFINED;
    struct text name = by_filter ? text_argument(c, 1) : text_of("");
    const struct list *list = c->args[0].as.list;
    for (size_t i = 0; i < list->n && c->r->stop == STOP_NOT; i++) {
        size_t n = by_filter ? c->n - 1 : 0;
        struct value *args = by_filter ? render_alloc(c->r, (uint64_t)n * sizeof *args) : NULL;
        if (args) memcpy(args, c->args + 1, n * sizeof *args);
        if (args) args[0] = list->items[i];
        if (c->r->stop != STOP_NOT) break;
        struct value item = args ? builtin_filter(c->r, name, args, n) : attribute_of(c, list->items[i], path);
        list_add(c->r, result.as.list, !by_filter && item.kind == UNDEFINED ? otherwise : item);
    }
    return result;
}

static struct value append(struct call *c) {
    struct value item = argument(c, 1);
    if (c->args[0].kind == TUPLE) return fail(c, "a tuple cannot change");
    list_add(c->r, c->args[0].as.list, item);
    return (struct value){.kind = NONE};
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

static struct value index_of_item(struct call *c) {
    struct value item = argument(c, 1);
    const struct list *list = c->args[0].as.list;
    for (size_t i = 0; i < list->n && c->r->stop == STOP_NOT; i++) {
        if (value_equal(c->r, list->items[i], item)) return value_int((int64_t)i);
    }
    return fail(c, "there is no such item");
}

static struct value count_items(struct call *c) {
    struct value item = argument(c, 1);
    const struct list *list = c->args[0].as.list;
    int64_t n = 0;
    for (size_t i = 0; i < list->n && c->r->stop == STOP_NOT; i++) n += value_equal(c->r, list->items[i], item);
    return value_int(n);
}

/* Sorts n items by their keys: a merge sort, in which equal items keep their order. */
static void sort_members(struct render *r, struct member *m, size_t n, bool descending) {
    struct member *other = render_alloc(r, (uint64_t)n * sizeof *other);
    for (size_t width = 1; width < n && r->stop == STOP_NOT; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            size_t middle = n - begin > width ? begin + width : n, end = n - begin > 2 * width ? begin + 2 * width : n;
            size_t i = begin, k = middle;
            for (size_t to = begin; to < end && render_work(r, 1); to++) {
                bool second = i == middle || (k < end && (descending ? value_precedes(r, m[i].key, m[k].key)
                                                                     : value_precedes(r, m[k].key, m[i].key)));
                other[to] = second ? m[k++] : m[i++];
            }
        }
        if (r->stop == STOP_NOT) memcpy(m, other, n * sizeof *m);
    }
}

/* The values of members, sorted by their keys, as a list; an empty one if members is NULL. */
static struct value sorted_values(struct call *c, struct member *members, size_t n, bool descending) {
    struct value result = value_empty(c->r, LIST);
    if (members) sort_members(c->r, members, n, descending);
    if (!members) return result;
    for (size_t i = 0; i < n && c->r->stop == STOP_NOT; i++) list_add(c->r, result.as.list, members[i].value);
    return result;
}

/* The items of a list, each with what it is compared by.  NULL after a failure. */
static struct member *keyed_items(struct call *c, struct value attribute, bool case_sensitive) {
    const struct list *list = c->args[0].as.list;
    struct member *members = render_alloc(c->r, (uint64_t)list->n * sizeof *members);
    for (size_t i = 0; members && i < list->n && c->r->stop == STOP_NOT; i++) {
        struct value key = attribute.kind > NONE ? attribute_of(c, list->items[i], attribute) : list->items[i];
        members[i] = (struct member){sort_key(c->r, key, case_sensitive), list->items[i]};
    }
    return c->r->stop == STOP_NOT ? members : NULL;
}

/* sort(list, reverse=false, case_sensitive=false, attribute=none) */
static struct value sort(struct call *c) {
    struct member *members = keyed_items(c, call_argument(c, "attribute", 3), flag_argument(c, "case_sensitive", 2));
    return sorted_values(c, members, c->args[0].as.list->n, flag_argument(c, "reverse", 1));
}

/* min and max(list, case_sensitive=false, attribute=none) */
static struct value extreme(struct call *c) {
    const bool largest = c->way == AT_END;
    struct member *members = keyed_items(c, call_argument(c, "attribute", 2), flag_argument(c, "case_sensitive", 1));
    size_t n = c->args[0].as.list->n, best = 0;
    for (size_t i = 1; members && i < n && c->r->stop == STOP_NOT; i++) {
        struct value a = members[largest ? best : i].key, b = members[largest ? i : best].key;
        if (value_precedes(c->r, a, b)) best = i;
    }
    return members && n > 0 ? members[best].value : value_undefined();
}

/* unique(list, case_sensitive=false, attribute=none) */
static struct value unique(struct call *c) {
    struct value result = value_empty(c->r, LIST);
    struct member *members = keyed_items(c, call_argument(c, "attribute", 2), flag_argument(c, "case_sensitive", 1));
    size_t n = 0;
    for (size_t i = 0; members && i < c->args[0].as.list->n && c->r->stop == STOP_NOT; i++) {
        bool is_old = false;
        for (size_t k = 0; k < n && !is_old && c->r->stop == STOP_NOT; k++) {
            is_old = value_equal(c->r, members[k].key, members[i].key);
        }
        if (is_old) continue;
        list_add(c->r, result.as.list, members[i].value);
        members[n++] = members[i];
    }
    return result;
}

/* sum(list, attribute=none, start=0) */
static struct value sum(struct call *c) {
    struct value attribute = call_argument(c, "attribute", 1), total = call_argument(c, "start", 2);
    const struct list *list = c->args[0].as.list;
    if (total.kind == UNDEFINED) total = value_int(0);
    for (size_t i = 0; i < list->n && c->r->stop == STOP_NOT; i++) {
        struct value item = attribute.kind > NONE ? attribute_of(c, list->items[i], attribute) : list->items[i];
        bool integers = total.kind == INTEGER && item.kind == INTEGER;
        int64_t whole;
        if (integers && __builtin_add_overflow(total.as.integer, item.as.integer, &whole)) {
            return fail(c, "the sum does not fit 64 bits");
        }
        total = integers ? value_int(whole) : value_float(value_number(c->r, total) + value_number(c->r, item));
    }
    return total;
}

/* An end of a slice as Python adjusts it to n items: low and high are the ends where it stops. */
static int64_t slice_end(struct value end, int64_t otherwise, int64_t n, int64_t low, int64_t high) {
    if (end.kind != INTEGER) return otherwise;
    int64_t i = end.as.integer < 0 ? end.as.integer + n : end.as.integer;
    return i < low ? low : i > high ? high : i;
}

struct value builtin_slice(struct render *r, struct value v, struct value start, struct value stop,
                           struct value step_by) {
    int64_t step = step_by.kind == INTEGER ? step_by.as.integer : 1;
    if (step == 0) render_fail(r, "the step of a slice is 0");
    if (v.kind != STRING && !is_list(v) && v.kind != UNDEFINED) {
        render_fail(r, "a value of the kind %s has no slices", kind_name(v.kind));
    }
    if (r->stop != STOP_NOT || v.kind == UNDEFINED) return v;
    int64_t n = (int64_t)(v.kind == STRING ? text_length(r, v.as.text) : v.as.list->n);
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    int64_t begin = slice_end(start, step > 0 ? 0 : n - 1, n, low, high);
    int64_t end = slice_end(stop, step > 0 ? n : -1, n, low, high);
    if (v.kind == STRING && step == 1) {
        struct text s = v.as.text;
        size_t first_byte = text_prefix(r, s, (size_t)begin);
        s = after(s, first_byte);
        return value_string(before(s, end > begin ? text_prefix(r, s, (size_t)(end - begin)) : 0));
    }
    if (step > n) step = n + 1;
    if (step < -n) step = -n - 1;
    bool has_items = step > 0 ? begin < end : begin > end;
    struct value all = v.kind == STRING ? builtin_items(r, v) : v;
    struct value part = value_list(r, has_items ? (uint64_t)((end - begin) / step + 1) : 0);
    if (v.kind == TUPLE) part.kind = TUPLE;
    for (int64_t i = begin; (step > 0 ? i < end : i > end) && r->stop == STOP_NOT; i += step) {
        list_add(r, part.as.list, all.as.list->items[i]);
    }
    struct call joined = {r, text_of("slice"), &part, 1, 0};
    return v.kind == STRING && r->stop == STOP_NOT ? join(&joined) : part;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static struct value get(struct call *c) {
    if (!count(c, 2, 3)) return value_undefined();
    struct value *found = value_is_key(c->r, c->args[1]) ? object_find(c->r, c->args[0].as.object, c->args[1]) : NULL;
    return found ? *found : c->n == 3 ? argument(c, 2) : (struct value){.kind = NONE};
}

static struct value parts(struct call *c) { return parts_of(c->r, c->args[0].as.object, c->way); }

static struct value items_filter(struct call *c) {
    if (c->args[0].kind <= NONE) return value_empty(c->r, LIST);
    argument_of(c, 0, IS(OBJECT));
    return c->r->stop == STOP_NOT ? parts(c) : value_undefined();
}

/* dictsort(object, case_sensitive=false, by='key', reverse=false): sorted pairs. */
static struct value dictsort(struct call *c) {
    struct value by = call_argument(c, "by", 2);
    bool by_value = by.kind == STRING && text_is_word(by.as.text, "value");
    bool case_sensitive = flag_argument(c, "case_sensitive", 1);
    argument_of(c, 0, IS(OBJECT));
    const struct object *o = c->r->stop == STOP_NOT ? c->args[0].as.object : NULL;
    struct member *members = o ? render_alloc(c->r, (uint64_t)o->n * sizeof *members) : NULL;
    for (size_t i = 0; members && i < o->n && c->r->stop == STOP_NOT; i++) {
        struct member m = o->members[i];
        members[i] = (struct member){sort_key(c->r, by_value ? m.value : m.key, case_sensitive),
                                     pair_of(c->r, m.key, m.value)};
    }
    return sorted_values(c, members, members ? o->n : 0, flag_argument(c, "reverse", 3));
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* loop.cycle(a, b, ...): the argument whose turn it is. */
static struct value cycle(struct call *c) {
    const struct value *i = object_find(c->r, c->args[0].as.object, value_string(text_of("index0")));
    if (c->n < 2 || !i) return fail(c, "expected at least one value");
    return argument(c, 1 + (size_t)i->as.integer % (c->n - 1));
}

/* loop.changed(value): whether the value is another than in the last call. */
static struct value changed(struct call *c) {
    struct value name = value_string(text_of("")), now = argument(c, 1);
    const struct value *old = object_find(c->r, c->args[0].as.object, name);
    bool is_same = old && value_equal(c->r, *old, now);
    if (c->r->stop == STOP_NOT) object_set(c->r, c->args[0].as.object, name, now);
    return value_bool(!is_same);
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static struct value raise_exception(struct call *c) {
    char text[400];
    struct text why = text_argument(c, 0);
    if (c->r->stop == STOP_NOT) {
        snprintf(text, sizeof text, "%.*s", (int)(why.n < sizeof text ? why.n : sizeof text), why.data);
        plumb_make_plain(text);
        render_fail(c->r, "the template refuses the chat: %s", text);
    }
    return value_undefined();
}

/* dict(object, name=value, ...) */
static struct value dict(struct call *c) {
    struct value result = value_empty(c->r, OBJECT);
    for (size_t i = 0; i < c->n && c->r->stop == STOP_NOT; i++) {
        struct value v = c->args[i];
        if (v.kind != NAMED && v.kind != OBJECT) return fail(c, "an argument has no name");
        if (v.kind == NAMED) object_set(c->r, result.as.object, value_string(v.as.named->name), v.as.named->value);
        for (size_t k = 0; v.kind == OBJECT && k < v.as.object->n && c->r->stop == STOP_NOT; k++) {
            object_set(c->r, result.as.object, v.as.object->members[k].key, v.as.object->members[k].value);
        }
    }
    return result;
}

static struct value namespace_of(struct call *c) {
    struct value result = dict(c);
    if (c->r->stop == STOP_NOT) result.as.object->plain = true;
    return result;
}

static struct value strftime_now(struct call *c) {
    struct output out = {NULL, 0, 0};
    struct text format = text_argument(c, 0);
    if (c->r->stop == STOP_NOT) output_time(c->r, &out, c->r->now, format);
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
    double n = ((double)bounds[1] - (double)bounds[0]) / (double)bounds[2] + 1;   /* at least the number of items */
    struct value result = value_list(c->r, n > 0 ? n < 1e9 ? (uint64_t)n : 1000000000 : 0);
    for (int64_t i = bounds[0]; (bounds[2] > 0 ? i < bounds[1] : i > bounds[1]) && c->r->stop == STOP_NOT;) {
        list_add(c->r, result.as.list, value_int(i));
        if (__builtin_add_overflow(i, bounds[2], &i)) break;
    }
    return result;
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static const struct builtin *find_builtin(const struct builtin *table, size_t n, unsigned kinds, struct text name) {
    for (size_t i = 0; i < n; i++) {
        if ((!table[i].kinds || (table[i].kinds & kinds)) && text_is_word(name, table[i].name)) return &table[i];
    }
    return NULL;
}

const struct builtin *builtin_function(struct text name) {
    static const struct builtin table[] = {
        {"raise_exception", 0, raise_exception, 0}, {"namespace", 0, namespace_of, 0}, {"range", 0, range, 0},
        {"strftime_now", 0, strftime_now, 0}, {"dict", 0, dict, 0}, {"tojson", 0, to_json, 0},
    };
    return find_builtin(table, sizeof table / sizeof table[0], 0, name);
}

const struct builtin *builtin_method(struct value v, struct text name) {
    enum { TEXT = IS(STRING), ITEMS_OF = ANY_LIST, MEMBERS = IS(OBJECT) };
    static const struct builtin table[] = {
        {"upper", TEXT, cased, WORDS_ALL}, {"lower", TEXT, cased, WORDS_NONE}, {"capitalize", TEXT, cased, WORDS_START},
        {"title", TEXT, cased, WORDS_LETTERS}, {"strip", TEXT, strip, AT_BOTH}, {"lstrip", TEXT, strip, AT_START},
        {"rstrip", TEXT, strip, AT_END}, {"startswith", TEXT, affix_test, AT_START},
        {"endswith", TEXT, affix_test, AT_END}, {"removeprefix", TEXT, remove_affix, AT_START},
        {"removesuffix", TEXT, remove_affix, AT_END}, {"split", TEXT, split, AT_START}, {"rsplit", TEXT, split, AT_END},
        {"splitlines", TEXT, split_lines, 0}, {"partition", TEXT, partition, AT_START},
        {"rpartition", TEXT, partition, AT_END}, {"replace", TEXT, replace, 0}, {"find", TEXT, place_of, AT_START},
        {"rfind", TEXT, place_of, AT_END}, {"index", TEXT, place_of, MUST_BE}, {"count", TEXT, count_text, 0},
        {"join", TEXT, join_method, 0}, {"format", TEXT, format_method, 0}, {"isalpha", TEXT, all_are, LETTERS},
        {"isdigit", TEXT, all_are, DIGITS}, {"isdecimal", TEXT, all_are, DECIMALS},
        {"isnumeric", TEXT, all_are, DIGITS}, {"isalnum", TEXT, all_are, LETTERS_OR_DIGITS},
        {"isspace", TEXT, all_are, WHITE}, {"isupper", TEXT, all_are, UPPER}, {"islower", TEXT, all_are, LOWER},
        {"ljust", TEXT, fill, AT_END}, {"rjust", TEXT, fill, AT_START},
        {"zfill", TEXT, fill, AT_START | WITH_ZEROS},
        {"append", ITEMS_OF, append, 0}, {"pop", ITEMS_OF, pop, 0}, {"index", ITEMS_OF, index_of_item, 0},
        {"count", ITEMS_OF, count_items, 0},
        {"get", MEMBERS, get, 0}, {"keys", MEMBERS, parts, KEYS}, {"values", MEMBERS, parts, VALUES},
        {"items", MEMBERS, parts, PAIRS},
        {"cycle", LOOP, cycle, 0}, {"changed", LOOP, changed, 0},
    };
    bool is_plain = v.kind == OBJECT && v.as.object->plain;
    return find_builtin(table, sizeof table / sizeof table[0], is_plain ? LOOP : IS(v.kind), name);
}

/* What a filter makes of its value first: nothing, its text, or its items. */
enum { OF_ANY, OF_TEXT, OF_ITEMS };

static const struct builtin *find_filter(struct text name) {
    static const struct builtin filters[] = {
        {"default", OF_ANY, or_default, 0}, {"d", OF_ANY, or_default, 0}, {"tojson", OF_ANY, to_json, 0},
        {"string", OF_TEXT, itself, 0}, {"safe", OF_TEXT, itself, 0}, {"escape", OF_TEXT, escape, 0},
        {"e", OF_TEXT, escape, 0}, {"length", OF_ANY, length, 0}, {"count", OF_ANY, length, 0},
        {"abs", OF_ANY, absolute, 0}, {"int", OF_ANY, to_int, 0}, {"float", OF_ANY, to_float, 0},
        {"round", OF_ANY, round_number, 0}, {"upper", OF_TEXT, cased, WORDS_ALL}, {"lower", OF_TEXT, cased, WORDS_NONE},
        {"capitalize", OF_TEXT, cased, WORDS_START}, {"title", OF_TEXT, cased, WORDS_BRACKETS},
        {"trim", OF_TEXT, strip, AT_BOTH}, {"replace", OF_TEXT, replace, 0}, {"format", OF_TEXT, format_filter, 0},
        {"indent", OF_TEXT, indent, 0}, {"wordcount", OF_TEXT, word_count, 0}, {"join", OF_ITEMS, join, 0},
        {"list", OF_ITEMS, to_list, 0}, {"first", OF_ITEMS, end_of, AT_START},
        {"last", OF_ITEMS, end_of, AT_END},
        {"reverse", OF_ANY, reverse_any, 0}, {"sort", OF_ITEMS, sort, 0}, {"unique", OF_ITEMS, unique, 0},
        {"min", OF_ITEMS, extreme, AT_START}, {"max", OF_ITEMS, extreme, AT_END}, {"sum", OF_ITEMS, sum, 0},
        {"map", OF_ITEMS, map, 0}, {"select", OF_ITEMS, select_items, 0}, {"reject", OF_ITEMS, select_items, REJECTS},
        {"selectattr", OF_ITEMS, select_items, BY_ATTRIBUTE},
        {"rejectattr", OF_ITEMS, select_items, BY_ATTRIBUTE | REJECTS},
        {"items", OF_ANY, items_filter, PAIRS}, {"dictsort", OF_ANY, dictsort, 0},
    };
    return find_builtin(filters, sizeof filters / sizeof filters[0], ~0u, name);
}

struct value builtin_filter(struct render *r, struct text name, struct value *args, size_t n) {
    const struct builtin *filter = find_filter(name);
    struct shown shown;
    if (!filter) return render_fail(r, "there is no filter %s", show_bytes(&shown, name.data, name.n));
    /* Python refuses to loop over none. */
    if (filter->kinds == OF_ITEMS && args[0].kind == NONE) args[0] = value_undefined();
    if (filter->kinds == OF_TEXT) args[0] = value_string(value_text(r, args[0]));
    if (filter->kinds == OF_ITEMS) args[0] = builtin_items(r, args[0]);
    struct call c = {r, name, args, n, filter->way};
    return r->stop == STOP_NOT ? filter->call(&c) : value_undefined();
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
    if (haystack.kind == OBJECT && needle.kind == UNDEFINED) return false;
    if (haystack.kind == OBJECT && value_is_key(r, needle)) return object_find(r, haystack.as.object, needle) != NULL;
    render_fail(r, "in: a value of the kind %s cannot be in one of the kind %s", kind_name(needle.kind),
                kind_name(haystack.kind));
    return false;
}

enum test_kind {
    TEST_KIND,     /* whether the value is of one of the kinds */
    TEST_BOOL,     /* whether it is this one of true and false */
    TEST_EQUAL, TEST_ORDER, TEST_IN, TEST_SAME, TEST_ODD, TEST_DIVISIBLE, TEST_CASE, TEST_IS_TEST, TEST_IS_FILTER
};
/* Which order a test asks for. */
enum order { LESS, GREATER, LESS_OR_EQUAL, GREATER_OR_EQUAL };
static const struct test {
    const char *name;
    enum test_kind kind;
    unsigned value;
} tests[] = {
    {"boolean", TEST_KIND, IS(BOOLEAN)}, {"callable", TEST_KIND, IS(FUNCTION)}, {"string", TEST_KIND, IS(STRING)},
    {"integer", TEST_KIND, IS(INTEGER)}, {"float", TEST_KIND, IS(FLOAT)},
    {"number", TEST_KIND, ANY_NUMBER | IS(BOOLEAN)},
    {"iterable", TEST_KIND, ANY_LIST | IS(STRING) | IS(OBJECT) | IS(UNDEFINED)},
    {"sequence", TEST_KIND, ANY_LIST | IS(STRING) | IS(OBJECT) | IS(UNDEFINED)},
    {"mapping", TEST_KIND, IS(OBJECT)}, {"none", TEST_KIND, IS(NONE)}, {"undefined", TEST_KIND, IS(UNDEFINED)},
    {"defined", TEST_KIND, ~IS(UNDEFINED)}, {"true", TEST_BOOL, true}, {"false", TEST_BOOL, false},
    {"escaped", TEST_KIND, 0},
    {"eq", TEST_EQUAL, true}, {"equalto", TEST_EQUAL, true}, {"==", TEST_EQUAL, true},
    {"ne", TEST_EQUAL, false}, {"!=", TEST_EQUAL, false},
    {"lt", TEST_ORDER, LESS}, {"lessthan", TEST_ORDER, LESS}, {"<", TEST_ORDER, LESS},
    {"gt", TEST_ORDER, GREATER}, {"greaterthan", TEST_ORDER, GREATER}, {">", TEST_ORDER, GREATER},
    {"le", TEST_ORDER, LESS_OR_EQUAL}, {"<=", TEST_ORDER, LESS_OR_EQUAL},
    {"ge", TEST_ORDER, GREATER_OR_EQUAL}, {">=", TEST_ORDER, GREATER_OR_EQUAL},
    {"in", TEST_IN, 0}, {"sameas", TEST_SAME, 0}, {"odd", TEST_ODD, 1}, {"even", TEST_ODD, 0},
    {"divisibleby", TEST_DIVISIBLE, 0}, {"lower", TEST_CASE, false}, {"upper", TEST_CASE, true},
    {"test", TEST_IS_TEST, 0}, {"filter", TEST_IS_FILTER, 0},
};

static const struct test *find_test(struct text name) {
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (text_is_word(name, tests[i].name)) return &tests[i];
    }
    return NULL;
}

/* Whether two values are one: lists and objects that are stored once, other values that are equal. */
static bool is_same(struct render *r, struct value a, struct value b) {
    if (a.kind != b.kind) return false;
    return is_list(a) ? a.as.list == b.as.list : a.kind == OBJECT ? a.as.object == b.as.object : value_equal(r, a, b);
}

static bool has_order(struct render *r, enum order order, struct value a, struct value b) {
    bool swaps = order == GREATER || order == GREATER_OR_EQUAL;
    if (swaps ? value_precedes(r, b, a) : value_precedes(r, a, b)) return true;
    return (order == LESS_OR_EQUAL || order == GREATER_OR_EQUAL) && value_equal(r, a, b);
}

bool builtin_test(struct render *r, struct text name, const struct value *args, size_t n) {
    const struct test *test = find_test(name);
    struct call c = {r, name, args, n, 0};
    struct value v = args[0];
    if (!test) {
        struct shown shown;
        render_fail(r, "there is no test '%s'", show_bytes(&shown, name.data, name.n));
        return false;
    }
    bool has_other = test->kind == TEST_EQUAL || test->kind == TEST_ORDER || test->kind == TEST_IN
                     || test->kind == TEST_SAME || test->kind == TEST_DIVISIBLE;
    if (has_other && !count(&c, 2, 2)) return false;
    switch (test->kind) {
    case TEST_KIND: return test->value >> v.kind & 1;
    case TEST_BOOL: return v.kind == BOOLEAN && v.as.truth == (test->value != 0);
    case TEST_EQUAL: return value_equal(r, v, args[1]) == (test->value != 0);
    case TEST_ORDER: return has_order(r, (enum order)test->value, v, args[1]);
    case TEST_IN: return builtin_in(r, v, args[1]);
    case TEST_SAME: return is_same(r, v, args[1]);
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
    case TEST_CASE: return has_case(r, value_text(r, v), test->value != 0);
    case TEST_IS_TEST: return find_test(text_argument(&c, 0)) != NULL;
    default: return find_filter(text_argument(&c, 0)) != NULL;
    }
}

/* The text of a schema as nodes; what its keywords are; references within the document. */
#include "grammar/schema.h"

#include "base/decimal.h"
#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- memory, work, failures -------------------------------------------------------------------------------------- */

void *schema_no_memory(struct schema *s) {
    if (s->status == PLUMB_OK) s->status = error_set(s->err, PLUMB_ERROR_MEMORY, "out of memory: a JSON schema");
    return NULL;
}

void *schema_alloc(struct schema *s, size_t n) {
    void *p = s->status == PLUMB_OK ? arena_alloc(&s->arena, n, 1) : NULL;
    if (!p && !s->arena.is_full) schema_no_memory(s);
    else if (!p) schema_fail(s, PLUMB_ERROR_UNSUPPORTED, 0, "the schema takes more than %d MiB to compile",
                             MAX_BYTES >> 20);
    return p;
}

bool schema_work(struct schema *s, size_t n) {
    s->work += n;
    if (s->work > MAX_WORK) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, 0, "the schema takes more than %d steps to compile; its alternatives "
                    "have too many combinations", MAX_WORK);
    }
    return s->status == PLUMB_OK;
}

/* Writes the JSON pointer of a node; of a long one, the end. */
static const char *pointer_of(const struct schema *s, uint32_t node, char *buf, size_t n) {
    size_t at = n - 1;
    buf[at] = 0;
    while (node != 0 && s->nodes[node].parent != 0) {
        const struct node *parent = &s->nodes[s->nodes[node].parent];
        char index[16];
        struct slice key = s->nodes[node].key;
        if (parent->kind == JSON_ARRAY) {
            key = (struct slice){index, (size_t)snprintf(index, sizeof index, "%u", s->nodes[node].index)};
        }
        if (2 * key.n + 5 > at) {
            buf[--at] = '.';
            buf[--at] = '.';
            break;
        }
        for (size_t i = key.n; i > 0; i--) {
            char c = key.data[i - 1];
            if (c == '~' || c == '/') {
                buf[--at] = c == '~' ? '0' : '1';
                c = '~';
            }
            buf[--at] = c;
        }
        buf[--at] = '/';
        node = s->nodes[node].parent;
    }
    return buf + at;
}

void schema_fail(struct schema *s, plumb_status status, uint32_t node, const char *format, ...) {
    if (s->status != PLUMB_OK) return;
    char sentence[400], pointer[400];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    const char *at = pointer_of(s, node, pointer, sizeof pointer), *name = s->options->name;
    s->status = error_set(s->err, status, "%s%s: %s", name ? name : "", *at || name ? at : "JSON schema", sentence);
}

static void warn(struct schema *s, uint32_t node, const char *sentence) {
    char pointer[400];
    if (!s->warnings) return;
    grammar_text_print(s->warnings, "%s%s: %s\n", s->options->name ? s->options->name : "",
                       pointer_of(s, node, pointer, sizeof pointer), sentence);
    if (s->warnings->failed) schema_no_memory(s);
}

void schema_refuse(struct schema *s, uint32_t node, const char *format, ...) {
    char sentence[400];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (s->status == PLUMB_OK && s->options->lenient) warn(s, node, sentence);
    else schema_fail(s, PLUMB_ERROR_UNSUPPORTED, node, "%s", sentence);
}

void schema_language_failed(struct schema *s, uint32_t node) {
    char message[sizeof s->err->message];
    plumb_status status = s->err->status;
    if (s->status != PLUMB_OK) return;
    if (status == PLUMB_ERROR_MEMORY || status == PLUMB_OK) {
        schema_no_memory(s);
        return;
    }
    memcpy(message, s->err->message, sizeof message);
    schema_fail(s, status, node != 0 ? node : s->place, "%s%s", s->rules->status != PLUMB_OK ? "up to here, " : "",
                message);
}

/* ---- keywords ---------------------------------------------------------------------------------------------------- */

static const struct keyword_row rows[] = {
    {"$ref", KEY_REF, FORM_STRING, ON_ALL},
    {"$dynamicRef", KEY_DYNAMIC_REF, FORM_STRING, ON_ALL},
    {"$recursiveRef", KEY_RECURSIVE_REF, FORM_STRING, ON_ALL},
    {"type", KEY_TYPE, FORM_TYPES, ON_ALL},
    {"enum", KEY_ENUM, FORM_LIST, ON_ALL},
    {"const", KEY_CONST, FORM_ANY, ON_ALL},
    {"allOf", KEY_ALL_OF, FORM_SCHEMAS, ON_ALL},
    {"anyOf", KEY_ANY_OF, FORM_SCHEMAS, ON_ALL},
    {"oneOf", KEY_ONE_OF, FORM_SCHEMAS, ON_ALL},
    {"not", KEY_NOT, FORM_SCHEMA, ON_ALL},
    {"if", KEY_IF, FORM_SCHEMA, ON_ALL},
    {"then", KEY_THEN, FORM_SCHEMA, 0},
    {"else", KEY_ELSE, FORM_SCHEMA, 0},
    {"minLength", KEY_MIN_LENGTH, FORM_COUNT, ON_STRINGS},
    {"maxLength", KEY_MAX_LENGTH, FORM_COUNT, ON_STRINGS},
    {"pattern", KEY_PATTERN, FORM_STRING, ON_STRINGS},
    {"format", KEY_FORMAT, FORM_STRING, ON_STRINGS | ON_NUMBERS},
    {"minimum", KEY_MINIMUM, FORM_NUMBER, ON_NUMBERS},
    {"maximum", KEY_MAXIMUM, FORM_NUMBER, ON_NUMBERS},
    {"exclusiveMinimum", KEY_EXCLUSIVE_MINIMUM, FORM_NUMBER_OR_BOOLEAN, ON_NUMBERS},
    {"exclusiveMaximum", KEY_EXCLUSIVE_MAXIMUM, FORM_NUMBER_OR_BOOLEAN, ON_NUMBERS},
    {"multipleOf", KEY_MULTIPLE_OF, FORM_DIVISOR, ON_NUMBERS},
    {"items", KEY_ITEMS, FORM_SCHEMA_OR_SCHEMAS, ON_ARRAYS},
    {"prefixItems", KEY_PREFIX_ITEMS, FORM_SCHEMAS, ON_ARRAYS},
    {"additionalItems", KEY_ADDITIONAL_ITEMS, FORM_SCHEMA, ON_ARRAYS},
    {"contains", KEY_CONTAINS, FORM_SCHEMA, ON_ARRAYS},
    {"minContains", KEY_MIN_CONTAINS, FORM_COUNT, 0},
    {"maxContains", KEY_MAX_CONTAINS, FORM_COUNT, 0},
    {"minItems", KEY_MIN_ITEMS, FORM_COUNT, ON_ARRAYS},
    {"maxItems", KEY_MAX_ITEMS, FORM_COUNT, ON_ARRAYS},
    {"uniqueItems", KEY_UNIQUE_ITEMS, FORM_BOOLEAN, ON_ARRAYS},
    {"unevaluatedItems", KEY_UNEVALUATED_ITEMS, FORM_SCHEMA, ON_ARRAYS},
    {"properties", KEY_PROPERTIES, FORM_MAP, ON_OBJECTS},
    {"patternProperties", KEY_PATTERN_PROPERTIES, FORM_MAP, ON_OBJECTS},
    {"additionalProperties", KEY_ADDITIONAL_PROPERTIES, FORM_SCHEMA, ON_OBJECTS},
    {"propertyNames", KEY_PROPERTY_NAMES, FORM_SCHEMA, ON_OBJECTS},
    {"required", KEY_REQUIRED, FORM_STRINGS, ON_OBJECTS},
    {"minProperties", KEY_MIN_PROPERTIES, FORM_COUNT, ON_OBJECTS},
    {"maxProperties", KEY_MAX_PROPERTIES, FORM_COUNT, ON_OBJECTS},
    {"dependentRequired", KEY_DEPENDENT_REQUIRED, FORM_MAP_OF_STRINGS, ON_OBJECTS},
    {"dependentSchemas", KEY_DEPENDENT_SCHEMAS, FORM_MAP, ON_OBJECTS},
    {"dependencies", KEY_DEPENDENCIES, FORM_DEPENDENCIES, ON_OBJECTS},
    {"unevaluatedProperties", KEY_UNEVALUATED_PROPERTIES, FORM_SCHEMA, ON_OBJECTS},
    {"nullable", KEY_NULLABLE, FORM_ANY, 0},
    {"$id", KEY_ID, FORM_ANY, 0},
    {"id", KEY_ID, FORM_ANY, 0},
    {"$anchor", KEY_ANCHOR, FORM_ANY, 0},
    {"$dynamicAnchor", KEY_DYNAMIC_ANCHOR, FORM_ANY, 0},
    {"$defs", KEY_DEFINITIONS, FORM_MAP, 0},
    {"definitions", KEY_DEFINITIONS, FORM_MAP, 0},
    {"", KEY_NOTE, FORM_ANY, 0},
};
/* Keywords that restrict nothing. */
static const char *const notes[] = {
    "$schema", "$comment", "$vocabulary", "$recursiveAnchor", "title", "description", "default", "example", "examples",
    "readOnly", "writeOnly", "deprecated", "contentEncoding", "contentMediaType", "contentSchema",
};

const struct keyword_row *keyword_row(enum keyword keyword) {
    const struct keyword_row *row = rows;
    while (row->keyword != keyword) row++;
    return row;
}

static uint8_t keyword_of(struct slice key) {
    if (key.n == 0) return KEY_NONE;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (key.data[0] == rows[i].name[0] && slice_is(key, rows[i].name)) return rows[i].keyword;
    }
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        if (key.data[0] == notes[i][0] && slice_is(key, notes[i])) return KEY_NOTE;
    }
    return KEY_NONE;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static struct slice copy_text(struct schema *s, struct json_text text) {
    char *copy = schema_alloc(s, text.n + 1);
    if (!copy) return (struct slice){"", 0};
    memcpy(copy, text.data, text.n);
    return (struct slice){copy, text.n};
}

static uint32_t add_node(struct schema *s, uint32_t parent, enum value_kind kind) {
    if (s->n_nodes >= MAX_NODES) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, 0, "more than %d values", MAX_NODES);
        return 0;
    }
    if (!ARRAY_GROW(s->nodes, s->n_nodes, &s->nodes_cap)) {
        schema_no_memory(s);
        return 0;
    }
    s->nodes[s->n_nodes] = (struct node){.kind = (uint8_t)kind, .parent = parent};
    return (uint32_t)s->n_nodes++;
}

uint32_t schema_add_value(struct schema *s, uint32_t parent, enum value_kind kind, const char *text, size_t n) {
    struct slice copy = copy_text(s, (struct json_text){text, n});
    uint32_t node = add_node(s, parent, kind);
    if (node != 0) s->nodes[node].text = copy;
    return s->status == PLUMB_OK ? node : 0;
}

static struct slice read_number(struct schema *s, struct json *j) {
    size_t at = j->at;
    bool digit = j->n - at > 1 && j->bytes[at] == '-' ? j->bytes[at + 1] >= '0' && j->bytes[at + 1] <= '9'
                                                       : j->bytes[at] >= '0' && j->bytes[at] <= '9';
    if (!digit) {
        json_fail(j, at, "expected a value");
        return (struct slice){"", 0};
    }
    json_number(j, "a number");
    if (j->status != PLUMB_OK) return (struct slice){"", 0};
    return copy_text(s, (struct json_text){j->bytes + at, j->at - at});
}

/* Returns 0 after a failure. */
static uint32_t read_value(struct schema *s, struct json *j, uint32_t parent) {
    char c = json_peek(j);
    enum value_kind kind = c == '{' ? JSON_OBJECT : c == '[' ? JSON_ARRAY : c == '"' ? JSON_STRING
                           : json_word(j, "true") ? JSON_TRUE : json_word(j, "false") ? JSON_FALSE
                           : json_word(j, "null") ? JSON_NULL : JSON_NUMBER;
    uint32_t node = add_node(s, parent, kind);
    if (node == 0) return 0;
    struct slice text = {"", 0};
    if (kind == JSON_STRING) {
        text = copy_text(s, json_string(j, "a string"));
    } else if (kind == JSON_NUMBER) {
        if (c == 0) json_fail(j, j->n, "expected a value");
        else text = read_number(s, j);
    } else if (kind == JSON_ARRAY || kind == JSON_OBJECT) {
        json_enter(j, c, "a value");
        uint32_t last = 0, n = 0;
        struct json_text key;
        while (j->status == PLUMB_OK && (kind == JSON_ARRAY ? json_element(j) : json_member(j, &key))) {
            struct slice name = kind == JSON_ARRAY ? (struct slice){"", 0} : copy_text(s, key);
            uint32_t child = read_value(s, j, node);
            if (child == 0) return 0;
            s->nodes[child].key = name;
            s->nodes[child].index = n;
            uint8_t keyword = s->nodes[child].keyword = keyword_of(name);
            if (keyword == KEY_NOTE && s->nodes[child].kind == JSON_STRING) j->unpaired = 0;   /* no harm */
            s->has_unevaluated |= keyword == KEY_UNEVALUATED_ITEMS || keyword == KEY_UNEVALUATED_PROPERTIES;
            if (last == 0) s->nodes[node].first = child;
            else s->nodes[last].next = child;
            last = child;
            n++;
        }
        s->nodes[node].n = n;
    }
    s->nodes[node].text = text;
    return s->status == PLUMB_OK && j->status == PLUMB_OK ? node : 0;
}

uint32_t node_find(const struct schema *s, uint32_t object, struct slice key) {
    if (s->nodes[object].kind != JSON_OBJECT) return 0;
    uint32_t m = s->nodes[object].first;
    while (m != 0 && !slice_equal(s->nodes[m].key, key)) m = s->nodes[m].next;
    return m;
}

uint32_t node_keyword(const struct schema *s, uint32_t object, enum keyword keyword) {
    if (s->nodes[object].kind != JSON_OBJECT) return 0;
    uint32_t m = s->nodes[object].first;
    while (m != 0 && s->nodes[m].keyword != keyword) m = s->nodes[m].next;
    return m;
}

static double number_of(const struct schema *s, uint32_t node) {
    double value = 0;
    decimal_read(s->nodes[node].text.data, s->nodes[node].text.n, &value);
    return value;
}

uint32_t node_count(const struct schema *s, uint32_t node) {
    double value = number_of(s, node);
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* ---- the forms of keywords --------------------------------------------------------------------------------------- */

static bool is_schema(const struct schema *s, uint32_t node) {
    uint8_t kind = s->nodes[node].kind;
    return kind == JSON_OBJECT || kind == JSON_TRUE || kind == JSON_FALSE;
}

static bool all_are(const struct schema *s, uint32_t list, enum value_kind kind) {
    for (uint32_t i = s->nodes[list].first; i != 0; i = s->nodes[i].next) {
        if (s->nodes[i].kind != kind) return false;
    }
    return true;
}

/* Whether all elements or members are schemas, or, if strings is set, lists of strings. */
static bool all_schemas(const struct schema *s, uint32_t list, bool schemas, bool strings) {
    for (uint32_t i = s->nodes[list].first; i != 0; i = s->nodes[i].next) {
        bool fits = schemas && is_schema(s, i);
        fits |= strings && s->nodes[i].kind == JSON_ARRAY && all_are(s, i, JSON_STRING);
        if (!fits) return false;
    }
    return true;
}

static const char *const type_names[] = {"null", "boolean", "string", "number", "integer", "array", "object"};

static bool is_type(const struct schema *s, uint32_t node) {
    for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++) {
        if (s->nodes[node].kind == JSON_STRING && slice_is(s->nodes[node].text, type_names[i])) return true;
    }
    return false;
}

/* Returns what the value must be, or NULL if it is that. */
static const char *misfit(const struct schema *s, uint32_t node, enum form form) {
    const struct node *v = &s->nodes[node];
    bool list = v->kind == JSON_ARRAY, map = v->kind == JSON_OBJECT, number = v->kind == JSON_NUMBER;
    switch (form) {
    case FORM_ANY: return NULL;
    case FORM_SCHEMA: return is_schema(s, node) ? NULL : "a schema";
    case FORM_SCHEMAS:
        return list && v->n > 0 && all_schemas(s, node, true, false) ? NULL : "a list of schemas";
    case FORM_SCHEMA_OR_SCHEMAS:
        return is_schema(s, node) || (list && all_schemas(s, node, true, false)) ? NULL : "a schema";
    case FORM_MAP: return map && all_schemas(s, node, true, false) ? NULL : "an object of schemas";
    case FORM_STRING: return v->kind == JSON_STRING ? NULL : "a string";
    case FORM_STRINGS: return list && all_are(s, node, JSON_STRING) ? NULL : "a list of strings";
    case FORM_TYPES: {
        bool fits = list ? v->n > 0 : is_type(s, node);
        for (uint32_t i = v->first; i != 0 && fits; i = s->nodes[i].next) fits = list && is_type(s, i);
        return fits ? NULL : "null, boolean, string, number, integer, array or object, or a list of these";
    }
    case FORM_BOOLEAN: return v->kind == JSON_TRUE || v->kind == JSON_FALSE ? NULL : "true or false";
    case FORM_COUNT: {
        double value = number ? number_of(s, node) : -1;
        return value >= 0 && (value >= 4e9 || value == (double)(uint32_t)value) ? NULL : "an integer of at least 0";
    }
    case FORM_NUMBER: return number ? NULL : "a number";
    case FORM_NUMBER_OR_BOOLEAN: return number || v->kind == JSON_TRUE || v->kind == JSON_FALSE ? NULL : "a number";
    case FORM_DIVISOR: return number && number_of(s, node) > 0 ? NULL : "a number above 0";
    case FORM_LIST: return list ? NULL : "a list of values";
    case FORM_MAP_OF_STRINGS:
        return map && all_schemas(s, node, false, true) ? NULL : "an object of lists of strings";
    case FORM_DEPENDENCIES:
        return map && all_schemas(s, node, true, true) ? NULL : "an object of schemas and lists of strings";
    }
    return NULL;
}

/* Warns of a format that restricts nothing that the schema's type allows, and of nullable without a type. */
static void warn_of_note(struct schema *s, uint32_t schema, uint32_t m) {
    char sentence[200];
    struct shown shown;
    bool is_format = s->nodes[m].keyword == KEY_FORMAT && !s->options->format_is_note;
    bool is_nullable = s->nodes[m].keyword == KEY_NULLABLE && s->nodes[m].kind == JSON_TRUE;
    if (!is_format && !is_nullable) return;
    uint32_t type = node_keyword(s, schema, KEY_TYPE);
    if (is_nullable && type == 0) warn(s, m, "ignored: nullable adds null to a type, and there is none beside it");
    if (!is_format || format_is_known(s, m, type)) return;
    snprintf(sentence, sizeof sentence, "the format '%s' is not enforced",
             show_bytes(&shown, s->nodes[m].text.data, s->nodes[m].text.n));
    warn(s, m, sentence);
}

void schema_enter(struct schema *s, uint32_t node) {
    if (s->nodes[node].is_entered) return;
    s->nodes[node].is_entered = true;
    if (!is_schema(s, node)) schema_fail(s, PLUMB_ERROR_ARGUMENT, node, "expected a schema: an object, true or false");
    if (s->nodes[node].kind != JSON_OBJECT) return;
    bool only_ref = s->draft < 2019 && node_keyword(s, node, KEY_REF) != 0;
    for (uint32_t m = s->nodes[node].first; m != 0 && schema_work(s, 1 + s->nodes[m].n); m = s->nodes[m].next) {
        enum keyword keyword = s->nodes[m].keyword;
        if (only_ref && keyword != KEY_REF) continue;
        if (keyword == KEY_NONE) {
            warn(s, m, "unknown keyword, ignored");
            continue;
        }
        const char *wanted = misfit(s, m, keyword_row(keyword)->form);
        if (wanted) schema_fail(s, PLUMB_ERROR_ARGUMENT, m, "expected %s", wanted);
    }
    for (uint32_t m = s->nodes[node].first; m != 0 && !only_ref && s->status == PLUMB_OK; m = s->nodes[m].next) {
        warn_of_note(s, node, m);
    }
}

/* ---- references -------------------------------------------------------------------------------------------------- */

/* Joins three pieces. */
static struct slice join(struct schema *s, struct slice a, size_t n_a, struct slice b) {
    char *text = schema_alloc(s, n_a + b.n + 1);
    if (!text) return (struct slice){"", 0};
    if (n_a > 0) memcpy(text, a.data, n_a);
    if (b.n > 0) memcpy(text + n_a, b.data, b.n);
    return (struct slice){text, n_a + b.n};
}

static size_t find_byte(struct slice text, size_t from, char c) {
    while (from < text.n && text.data[from] != c) from++;
    return from;
}

/* Removes the segments "." and ".." of a path. */
static struct slice without_dots(struct slice uri, size_t path) {
    char *text = (char *)(uintptr_t)uri.data;
    size_t end = find_byte(uri, path, '#'), n = path, i = path;
    while (i < end) {
        size_t next = find_byte((struct slice){text, end}, i + 1, '/');
        size_t length = next - i;
        if (length == 2 && memcmp(text + i, "/.", 2) == 0) {
            if (next == end) text[n++] = '/';
        } else if (length == 3 && memcmp(text + i, "/..", 3) == 0) {
            while (n > path && text[--n] != '/') { }
            if (next == end) text[n++] = '/';
        } else {
            memmove(text + n, text + i, length);
            n += length;
        }
        i = next;
    }
    memmove(text + n, text + end, uri.n - end);
    return (struct slice){text, n + uri.n - end};
}

/* RFC 3986, 5.2. */
static struct slice resolve_uri(struct schema *s, struct slice base, struct slice ref) {
    size_t end = find_byte(base, 0, '#'), colon = find_byte(ref, 0, ':'), slash = find_byte(ref, 0, '/');
    base.n = end;
    if (ref.n == 0 || ref.data[0] == '#') return join(s, base, base.n, ref);
    if (colon < ref.n && colon < slash && colon < find_byte(ref, 0, '#')) return ref;
    size_t scheme = find_byte(base, 0, ':') + 1;
    if (scheme > base.n) scheme = 0;
    size_t path = scheme;
    if (base.n - scheme >= 2 && base.data[scheme] == '/' && base.data[scheme + 1] == '/') {
        path = find_byte(base, scheme + 2, '/');
    }
    if (ref.data[0] == '/') return join(s, base, ref.n > 1 && ref.data[1] == '/' ? scheme : path, ref);
    size_t last = base.n;
    while (last > path && base.data[last - 1] != '/') last--;
    struct slice uri = join(s, base, last, ref);
    return s->status == PLUMB_OK ? without_dots(uri, path) : uri;
}

static void add_resource(struct schema *s, uint32_t node, struct slice uri) {
    if (!ARRAY_GROW(s->resources, s->n_resources, &s->resources_cap)) {
        schema_no_memory(s);
        return;
    }
    if (uri.n > 0 && uri.data[uri.n - 1] == '#') uri.n--;
    s->resources[s->n_resources++] = (struct resource){node, uri};
}

static struct slice anchor_uri(struct schema *s, struct slice base, struct slice anchor) {
    struct slice fragment = join(s, (struct slice){"#", 1}, 1, anchor);
    return resolve_uri(s, base, fragment);
}

/* Registers the identifiers of a schema and of those in it. */
static void scan(struct schema *s, uint32_t node, struct slice base) {
    if (s->nodes[node].kind != JSON_OBJECT || s->status != PLUMB_OK) return;
    bool only_ref = s->draft < 2019 && node_keyword(s, node, KEY_REF) != 0;
    for (uint32_t m = s->nodes[node].first; m != 0 && !only_ref; m = s->nodes[m].next) {
        if (s->nodes[m].keyword != KEY_ID || s->nodes[m].kind != JSON_STRING) continue;
        if (slice_is(s->nodes[m].key, "id") != (s->draft == 4)) continue;
        struct slice uri = resolve_uri(s, base, s->nodes[m].text);
        add_resource(s, node, uri);
        if (find_byte(uri, 0, '#') + 1 >= uri.n) {
            base = uri;
            s->nodes[node].is_resource = true;
        }
    }
    if (node == 1 && !s->nodes[node].is_resource) {
        add_resource(s, node, (struct slice){"", 0});
        s->nodes[node].is_resource = true;
    }
    for (uint32_t m = s->nodes[node].first; m != 0; m = s->nodes[m].next) {
        enum keyword keyword = s->nodes[m].keyword;
        if (keyword == KEY_NONE) continue;
        if ((keyword == KEY_ANCHOR || keyword == KEY_DYNAMIC_ANCHOR) && s->nodes[m].kind == JSON_STRING && !only_ref) {
            add_resource(s, node, anchor_uri(s, base, s->nodes[m].text));
        }
        enum form form = keyword_row(keyword)->form;
        if (form == FORM_SCHEMA || form == FORM_SCHEMA_OR_SCHEMAS) scan(s, m, base);
        if (form == FORM_SCHEMAS || form == FORM_SCHEMA_OR_SCHEMAS || form == FORM_MAP || form == FORM_DEPENDENCIES) {
            if (form == FORM_SCHEMA_OR_SCHEMAS && s->nodes[m].kind == JSON_OBJECT) continue;
            for (uint32_t i = s->nodes[m].first; i != 0; i = s->nodes[i].next) scan(s, i, base);
        }
    }
}

/* Follows a JSON pointer, in which % and ~ escape, from a node.  Returns 0 if there is nothing. */
static uint32_t follow(struct schema *s, uint32_t node, struct slice pointer) {
    char *segment = schema_alloc(s, pointer.n + 1);
    if (!segment) return 0;
    size_t at = 0;
    while (at < pointer.n && node != 0) {
        size_t n = 0;
        for (at++; at < pointer.n && pointer.data[at] != '/'; at++) {
            char c = pointer.data[at];
            if (c == '%' && at + 2 < pointer.n) {
                char hex[3] = {pointer.data[at + 1], pointer.data[at + 2], 0}, *end;
                c = (char)strtoul(hex, &end, 16);
                if (end != hex + 2) return 0;
                at += 2;
            }
            if (n > 0 && segment[n - 1] == '~' && (c == '0' || c == '1')) segment[n - 1] = c == '0' ? 1 : '/';
            else segment[n++] = c;
        }
        for (size_t i = 0; i < n; i++) {
            if (segment[i] == 1) segment[i] = '~';   /* not before, since "~01" means "~1" */
        }
        const struct node *v = &s->nodes[node];
        if (!schema_work(s, v->n)) return 0;
        if (v->kind == JSON_ARRAY) {
            uint32_t i = 0, element = v->first;
            for (size_t k = 0; k < n; k++) i = segment[k] >= '0' && segment[k] <= '9' && i < MAX_NODES
                                                  ? i * 10 + (uint32_t)(segment[k] - '0') : MAX_NODES;
            for (; i > 0 && element != 0; i--) element = s->nodes[element].next;
            node = n > 0 ? element : 0;
        } else {
            node = node_find(s, node, (struct slice){segment, n});
        }
    }
    return node;
}

static struct slice base_of(const struct schema *s, uint32_t node) {
    while (node != 0 && !s->nodes[node].is_resource) node = s->nodes[node].parent;
    for (size_t i = 0; i < s->n_resources; i++) {
        struct slice uri = s->resources[i].uri;
        if (s->resources[i].node == node && find_byte(uri, 0, '#') == uri.n) return uri;
    }
    return (struct slice){"", 0};
}

static uint32_t find_uri(struct schema *s, struct slice uri) {
    for (size_t i = 0; i < s->n_resources && schema_work(s, 1); i++) {
        if (slice_equal(s->resources[i].uri, uri)) return s->resources[i].node;
    }
    return 0;
}

/* The target of a $dynamicRef depends on how a schema was reached if several have the same $dynamicAnchor. */
static bool is_ambiguous(struct schema *s, uint32_t target, struct slice ref) {
    size_t hash = find_byte(ref, 0, '#') + 1, same = 0;
    if (hash > ref.n || (hash < ref.n && ref.data[hash] == '/')) return false;
    struct slice name = {ref.data + hash, ref.n - hash};
    uint32_t own = node_keyword(s, target, KEY_DYNAMIC_ANCHOR);
    if (own == 0 || !slice_equal(s->nodes[own].text, name)) return false;
    for (uint32_t i = 1; i < s->n_nodes && schema_work(s, 1); i++) {
        same += s->nodes[i].keyword == KEY_DYNAMIC_ANCHOR && slice_equal(s->nodes[i].text, name);
    }
    return same > 1;
}

uint32_t schema_target(struct schema *s, uint32_t ref) {
    if (s->nodes[ref].target != 0 || s->status != PLUMB_OK) return s->nodes[ref].target;
    struct slice text = s->nodes[ref].text;
    struct slice uri = resolve_uri(s, base_of(s, s->nodes[ref].parent), text);
    size_t hash = find_byte(uri, 0, '#');
    uint32_t target = 0;
    if (hash + 1 < uri.n && uri.data[hash + 1] == '/') {
        uint32_t resource = find_uri(s, (struct slice){uri.data, hash});
        if (resource != 0) {
            target = follow(s, resource, (struct slice){uri.data + hash + 1, uri.n - hash - 1});
        }
    } else {
        if (hash + 1 == uri.n) uri.n = hash;
        target = find_uri(s, uri);
    }
    struct shown shown;
    show_bytes(&shown, text.data, text.n);
    if (target == 0) {
        bool outside = text.n > 0 && text.data[0] != '#';
        schema_fail(s, outside ? PLUMB_ERROR_UNSUPPORTED : PLUMB_ERROR_ARGUMENT, ref,
                    outside ? "there is no schema '%s' in this document, and no other is read"
                            : "there is no schema '%s'", shown.text);
    } else if (s->nodes[ref].keyword == KEY_DYNAMIC_REF && is_ambiguous(s, target, text)) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, ref, "several schemas have the $dynamicAnchor '%s'", shown.text);
    } else if (s->nodes[ref].keyword == KEY_RECURSIVE_REF && s->n_resources > 1) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, ref, "$recursiveRef in a document with several $id");
    }
    return s->nodes[ref].target = target;
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

static uint32_t draft_of(struct schema *s) {
    uint32_t m = node_find(s, 1, (struct slice){"$schema", 7});
    if (m == 0 || s->nodes[m].kind != JSON_STRING) return 2020;
    static const char older[][10] = {"draft-04", "draft-05", "draft-06", "draft-07"};
    struct slice text = s->nodes[m].text;
    for (size_t i = 0; i + 8 <= text.n; i++) {
        for (size_t k = 0; k < 4; k++) {
            if (memcmp(text.data + i, older[k], 8) == 0) return k < 2 ? 4 : 7;
        }
    }
    static const char *const newer[] = {"://json-schema.org/draft/", "://json-schema.org/schema"};
    for (size_t i = 0; i < text.n; i++) {
        for (size_t k = 0; k < 2; k++) {
            size_t n = strlen(newer[k]);
            if (n <= text.n - i && memcmp(text.data + i, newer[k], n) == 0) return 2020;
        }
    }
    struct shown shown;
    schema_refuse(s, m, "the dialect '%s' is not known", show_bytes(&shown, text.data, text.n));
    return 2020;
}

plumb_status schema_read(struct schema *s, const char *json, size_t n) {
    uint32_t cp;
    for (size_t at = 0, length; at < n; at += length) {
        length = plumb_character(json + at, n - at, &cp);
        if (length > 0) continue;
        return s->status = error_set(s->err, PLUMB_ERROR_ARGUMENT, "JSON, byte %zu: invalid UTF-8", at);
    }
    add_node(s, 0, JSON_TRUE);
    struct json j;
    json_begin(&j, json, n, s->err);
    j.max_depth = 63;
    if (s->status == PLUMB_OK) read_value(s, &j, 0);
    if (s->status != PLUMB_OK) {
        struct error kept = *s->err;   /* json_end must not replace the message */
        json_end(&j);
        *s->err = kept;
        return s->status;
    }
    plumb_status status = json_end(&j);
    if (status != PLUMB_OK) {
        if (status != PLUMB_ERROR_MEMORY) status = s->err->status = PLUMB_ERROR_ARGUMENT;
        return s->status = status;
    }
    if (j.unpaired != 0) {
        return s->status = error_set(s->err, PLUMB_ERROR_ARGUMENT, "JSON, byte %zu: a surrogate such as \\ud800 "
                                     "without its other half is no character", j.unpaired - 1);
    }
    s->draft = draft_of(s);
    if (s->options->draft != 0) s->draft = s->options->draft;
    scan(s, 1, (struct slice){"", 0});
    return s->status;
}

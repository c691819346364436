/* Which null, false, true, strings and numbers fulfil a claim.  These sets are closed under union, intersection and
 * complement, so every combination of schemas is exact.
 *
 * Numbers have two domains.  NUMBERS has the texts that the grammar writes: integers without a fraction.  Complements
 * are taken in EQUAL_NUMBERS, whose languages have with a text all others of the same value (1, 1.0, 1.00), so that the
 * opposite of 1 does not have 1.0.  Complements have no texts with an exponent. */
#include "base/decimal.h"
#include "grammar/schema.h"

static const uint8_t constant_bits[] = {[JSON_NULL] = 1, [JSON_FALSE] = 2, [JSON_TRUE] = 4};

unsigned domain_bit(enum domain domain) {
    static const uint8_t bits[] = {[CONSTANTS] = ON_CONSTANTS, [STRINGS] = ON_STRINGS, [NUMBERS] = ON_NUMBERS,
                                   [EQUAL_NUMBERS] = ON_NUMBERS, [ARRAYS] = ON_ARRAYS, [OBJECTS] = ON_OBJECTS};
    return bits[domain];
}

unsigned kind_bit(enum value_kind kind) {
    static const uint8_t bits[] = {[JSON_NULL] = ON_CONSTANTS, [JSON_FALSE] = ON_CONSTANTS, [JSON_TRUE] = ON_CONSTANTS,
                                   [JSON_NUMBER] = ON_NUMBERS, [JSON_STRING] = ON_STRINGS, [JSON_ARRAY] = ON_ARRAYS,
                                   [JSON_OBJECT] = ON_OBJECTS};
    return bits[kind];
}

void sets_begin(struct schema *s) {
    s->languages = languages_create(s->err);
    if (!s->languages) {
        schema_no_memory(s);
        return;
    }
    const struct number_range all = {0}, integers = {.integer = true};
    const struct language *none = language_none(s->languages);
    const struct language *numbers = language_number(s->languages, &all);
    s->any_integer = language_number(s->languages, &integers);
    const struct language *strings = language_any(s->languages);
    if (!none || !numbers || !s->any_integer || !strings) schema_language_failed(s, 0);
    for (int d = 0; d < N_SCALARS; d++) {
        s->none[d] = (struct set){.language = d == CONSTANTS ? NULL : none};
        s->any[d] = (struct set){.language = d == CONSTANTS ? NULL : d == STRINGS ? strings : numbers};
    }
    s->any[CONSTANTS].constants = 7;
}

/* All numbers of at most 15 digits without an exponent, which doubles tell apart: in what is left of them when others
 * are taken away, no number becomes one of those others when it is read. */
static const struct language *plain_numbers(struct schema *s) {
    static const char zero[] = "-0(\\.0+)?";
    if (s->plain_numbers) return s->plain_numbers;
    struct grammar_text regex = {0};
    grammar_text_print(&regex, "-?(0|[1-9]\\d{0,14}|\\d\\.\\d{1,14}");
    for (int i = 1; i < 14; i++) grammar_text_print(&regex, "|[1-9]\\d{%d}\\.\\d{1,%d}", i, 14 - i);
    grammar_text_print(&regex, ")");
    if (regex.failed) schema_no_memory(s);
    else s->plain_numbers = language_minus(s->languages,
                                           language_regex(s->languages, regex.data, regex.n, REGEX_WHOLE),
                                           language_regex(s->languages, zero, sizeof zero - 1, REGEX_WHOLE));
    grammar_text_free(&regex);
    return s->plain_numbers;
}

/* All numbers whose digits are bounded, so that they end and integers are exact. */
static struct set short_numbers(struct schema *s, uint32_t node) {
    static const char regex[] = "-?((0|[1-9]\\d{0,14})(\\.\\d{1,16})?|\\d(\\.\\d{1,16})?e[-+]\\d{1,3})";
    if (!s->short_numbers) {
        s->short_numbers = language_regex(s->languages, regex, sizeof regex - 1, REGEX_WHOLE);
        if (!s->short_numbers) schema_language_failed(s, node);
    }
    return (struct set){.language = s->short_numbers};
}

/* ---- combining --------------------------------------------------------------------------------------------------- */

static bool same(struct set a, struct set b) { return a.constants == b.constants && a.language == b.language; }

static struct set of_language(struct schema *s, enum domain domain, const struct language *l, uint32_t node) {
    if (l) return (struct set){.language = l};
    schema_language_failed(s, node);
    return s->none[domain];
}

struct set set_and(struct schema *s, enum domain domain, struct set a, struct set b) {
    if (domain == CONSTANTS) return (struct set){.constants = a.constants & b.constants};
    if (same(a, s->none[domain]) || same(b, s->any[domain]) || same(a, b) || s->status != PLUMB_OK) return a;
    if (same(b, s->none[domain]) || same(a, s->any[domain])) return b;
    if (a.language == s->any_integer && b.has_integers) return b;
    if (b.language == s->any_integer && a.has_integers) return a;
    return of_language(s, domain, language_intersect(s->languages, a.language, b.language), 0);
}

static struct set set_or(struct schema *s, enum domain domain, struct set a, struct set b) {
    if (domain == CONSTANTS) return (struct set){.constants = a.constants | b.constants};
    if (same(a, s->any[domain]) || same(b, s->none[domain]) || same(a, b) || s->status != PLUMB_OK) return a;
    if (same(b, s->any[domain]) || same(a, s->none[domain])) return b;
    struct set both = of_language(s, domain, language_union(s->languages, a.language, b.language), 0);
    both.has_some = a.has_some || b.has_some;
    return both;
}

/* The complement of b, which is a set of EQUAL_NUMBERS if the domain is NUMBERS. */
static struct set set_not(struct schema *s, enum domain domain, struct set b) {
    if (domain == CONSTANTS) return (struct set){.constants = 7 & ~b.constants};
    if (same(b, s->any[domain])) return s->none[domain];
    if (same(b, s->none[domain]) || s->status != PLUMB_OK) return s->any[domain];
    return of_language(s, domain, domain == STRINGS ? language_complement(s->languages, b.language)
                                                    : language_minus(s->languages, plain_numbers(s), b.language), 0);
}

bool schema_language_is_empty(struct schema *s, const struct language *l, uint32_t node) {
    bool empty = false;
    if (language_is_empty(s->languages, l, &empty) != PLUMB_OK) schema_language_failed(s, node);
    return empty;
}

bool set_is_empty(struct schema *s, enum domain domain, struct set a, uint32_t node) {
    if (domain == CONSTANTS) return a.constants == 0;
    if (a.has_some || same(a, s->none[domain]) || same(a, s->any[domain]) || s->status != PLUMB_OK) {
        return same(a, s->none[domain]);
    }
    return schema_language_is_empty(s, a.language, node);
}

bool language_has_slice(struct schema *s, const struct language *l, struct slice text) {
    bool has = false;
    if (s->status == PLUMB_OK && language_has(s->languages, l, text.data, text.n, &has) != PLUMB_OK) {
        schema_language_failed(s, 0);
    }
    return has;
}

/* ---- single keywords --------------------------------------------------------------------------------------------- */

unsigned types_of(const struct schema *s, uint32_t type, uint8_t *constants, bool *integers) {
    unsigned bits = 0;
    bool numbers = false;
    *constants = 0;
    *integers = false;
    uint32_t list = s->nodes[type].kind == JSON_ARRAY ? s->nodes[type].first : type;
    for (uint32_t i = list; i != 0; i = list == type ? 0 : s->nodes[i].next) {
        struct slice name = s->nodes[i].text;
        if (slice_is(name, "null")) *constants |= 1;
        else if (slice_is(name, "boolean")) *constants |= 6;
        else if (slice_is(name, "string")) bits |= ON_STRINGS;
        else if (slice_is(name, "array")) bits |= ON_ARRAYS;
        else if (slice_is(name, "object")) bits |= ON_OBJECTS;
        else {
            bits |= ON_NUMBERS;
            numbers |= slice_is(name, "number");
        }
    }
    *integers = (bits & ON_NUMBERS) != 0 && !numbers;
    uint32_t nullable = node_keyword(s, s->nodes[type].parent, KEY_NULLABLE);
    if (nullable != 0 && s->nodes[nullable].kind == JSON_TRUE) *constants |= 1;
    return bits | (*constants ? ON_CONSTANTS : 0);
}

/* Takes the zeros off the end of a fraction.  Returns false if the number has an exponent or is 0 with a sign, so that
 * its text is not the usual one. */
static bool plain_text(struct slice *text) {
    size_t point = text->n;
    for (size_t i = 0; i < text->n; i++) {
        if (text->data[i] == '.') point = i;
        if (text->data[i] == 'e' || text->data[i] == 'E') return false;
    }
    while (text->n > point && (text->data[text->n - 1] == '0' || text->n == point + 1)) text->n--;
    return !slice_is(*text, "-0");
}

static struct set set_of_value(struct schema *s, enum domain domain, uint32_t node) {
    const struct node *v = &s->nodes[node];
    if (kind_bit(v->kind) != domain_bit(domain)) return s->none[domain];
    if (domain == CONSTANTS) return (struct set){.constants = constant_bits[v->kind]};
    const struct language *l;
    struct slice text = v->text;
    if (domain == STRINGS || (domain == NUMBERS && plain_text(&text))) {
        l = language_string(s->languages, text.data, text.n);
    } else {
        const struct number_range range = {.minimum = v->text.data, .maximum = v->text.data};
        l = language_number(s->languages, &range);
    }
    struct set set = of_language(s, domain, l, node);
    set.has_some = true;
    return set;
}

static struct set set_of_enum(struct schema *s, enum domain domain, uint32_t list) {
    size_t n = 0;
    struct slice *texts = schema_alloc(s, (s->nodes[list].n + 1) * sizeof *texts);
    struct set set = s->none[domain];
    if (!texts) return set;
    for (uint32_t i = s->nodes[list].first; i != 0 && schema_work(s, 1); i = s->nodes[i].next) {
        const struct node *v = &s->nodes[i];
        if (kind_bit(v->kind) != domain_bit(domain)) continue;
        struct slice text = v->text;
        if (domain == STRINGS || (domain == NUMBERS && plain_text(&text))) {
            texts[n++] = text;
        } else {
            set = set_or(s, domain, set, set_of_value(s, domain, i));
        }
    }
    if (n == 0) return set;
    struct set strings = of_language(s, domain, language_strings(s->languages, texts, n), list);
    strings.has_some = true;
    return set_or(s, domain, set, strings);
}

/* The numbers in a range; integers: without a fraction. */
static struct set set_of_numbers(struct schema *s, enum domain domain, struct number_range range, bool integers,
                                 uint32_t node) {
    const char *bounds[] = {range.minimum, range.exclusive_minimum, range.maximum, range.exclusive_maximum};
    bool has_low = bounds[0] || bounds[1], has_high = bounds[2] || bounds[3], is_open = bounds[1] || bounds[3];
    double largest = 0;   /* magnitude of a bound */
    for (int i = 0; i < 4; i++) {
        double value = 0;
        if (bounds[i]) decimal_read(bounds[i], strlen(bounds[i]), &value);
        value = value < 0 ? -value : value;
        if (value > largest) largest = value;
    }
    struct set set = s->any[domain];
    range.integer = integers && domain == NUMBERS;
    if (!has_low && !has_high && !range.multiple_of) {
        if (range.integer) return (struct set){.language = s->any_integer, .has_integers = true};
        if (!integers) return set;
    }
    if (integers && domain == EQUAL_NUMBERS) {
        const struct number_range ones = {.multiple_of = "1"};
        set = of_language(s, domain, language_number(s->languages, &ones), node);
        if (!has_low && !has_high && !range.multiple_of) return set;
    }
    set = set_and(s, domain, set, of_language(s, domain, language_number(s->languages, &range), node));
    set.has_integers = range.integer;
    /* Integers between two bounds of at most 64 bits are exact: doubles keep their order.  Above 2^53 a double may
     * equal an exclusive bound, or be no multiple.  For others a large divisor may take too large an automaton, which
     * is found here, where the keyword is known. */
    double most = is_open || range.multiple_of ? 9007199254740991.0 : 18446744073709551616.0;
    if (domain != NUMBERS || (range.integer && has_low && has_high && largest <= most)) return set;
    /* A number beside an exclusive bound must not become the bound when it is read. */
    struct set exact = !range.integer && is_open ? of_language(s, domain, plain_numbers(s), node)
                                                 : short_numbers(s, node);
    struct set wanted = set;
    set = set_and(s, domain, set, exact);
    set.has_integers = range.integer;
    if (schema_language_is_empty(s, set.language, node) && !set_is_empty(s, domain, wanted, node)) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, node, "all numbers in this range have more digits than are written: at "
                    "most 15 before and 16 after the point, 15 in all beside an exclusive bound");
    }
    return set;
}

/* The formats of numbers, by OpenAPI's registry.  What is written of numbers fits a double, so that has no bounds. */
static const struct number_format { char name[8]; bool integers; const char *least, *most; } number_formats[] = {
    {"int8", true, "-128", "127"}, {"uint8", true, "0", "255"},
    {"int16", true, "-32768", "32767"}, {"uint16", true, "0", "65535"},
    {"int32", true, "-2147483648", "2147483647"}, {"uint32", true, "0", "4294967295"},
    {"int64", true, "-9223372036854775808", "9223372036854775807"}, {"uint64", true, "0", "18446744073709551615"},
    {"float", false, "-3.4028234663852886e38", "3.4028234663852886e38"}, {"double", false, NULL, NULL}
};

static const struct number_format *number_format_of(struct slice name) {
    for (size_t i = 0; i < sizeof number_formats / sizeof *number_formats; i++) {
        if (slice_is(name, number_formats[i].name)) return &number_formats[i];
    }
    return NULL;
}

/* All of a schema that restricts numbers, but for format, enum and the like. */
static struct set set_of_range(struct schema *s, enum domain domain, uint32_t schema, bool integers) {
    struct number_range range = {0};
    uint32_t node = schema;
    for (uint32_t m = s->nodes[schema].first; m != 0; m = s->nodes[m].next) {
        const char **bound = NULL;
        switch (s->nodes[m].keyword) {
        case KEY_MINIMUM: bound = &range.minimum; break;
        case KEY_MAXIMUM: bound = &range.maximum; break;
        case KEY_EXCLUSIVE_MINIMUM: bound = &range.exclusive_minimum; break;
        case KEY_EXCLUSIVE_MAXIMUM: bound = &range.exclusive_maximum; break;
        case KEY_MULTIPLE_OF: bound = &range.multiple_of; break;
        default: break;
        }
        if (!bound || s->nodes[m].kind != JSON_NUMBER) continue;
        *bound = s->nodes[m].text.data;
        node = m;
    }
    /* Draft-04 has exclusiveMinimum: true beside minimum. */
    uint32_t low = node_keyword(s, schema, KEY_EXCLUSIVE_MINIMUM);
    uint32_t high = node_keyword(s, schema, KEY_EXCLUSIVE_MAXIMUM);
    if (low != 0 && s->nodes[low].kind == JSON_TRUE) range.exclusive_minimum = range.minimum;
    if (high != 0 && s->nodes[high].kind == JSON_TRUE) range.exclusive_maximum = range.maximum;
    /* The bounds of a format are its own set, but a range that they close can have more digits. */
    uint32_t name = node_keyword(s, schema, KEY_FORMAT);
    const struct number_format *format = name != 0 ? number_format_of(s->nodes[name].text) : NULL;
    if (format && !s->options->format_is_note && node != schema) {
        if (!range.minimum && !range.exclusive_minimum) range.minimum = format->least;
        if (!range.maximum && !range.exclusive_maximum) range.maximum = format->most;
    }
    return set_of_numbers(s, domain, range, integers, node);
}

bool format_is_known(const struct schema *s, uint32_t format, uint32_t type) {
    struct slice name = s->nodes[format].text;
    uint8_t constants;
    bool integers;
    unsigned bits = type != 0 ? types_of(s, type, &constants, &integers) : ON_ALL;
    return (bits & ON_STRINGS && language_has_format(name.data, name.n))
           || (bits & ON_NUMBERS && number_format_of(name) != NULL);
}

/* Whether a pattern compiles, together with a format beside it. */
static bool compiles(struct schema *s, uint32_t pattern) {
    if (!s->options->lenient) return true;   /* the failure is that of the compiler */
    struct error err = {PLUMB_OK, ""};
    struct languages *own = languages_create(&err);
    struct slice regex = s->nodes[pattern].text;
    uint32_t format = node_keyword(s, s->nodes[pattern].parent, KEY_FORMAT);
    struct slice name = format != 0 ? s->nodes[format].text : (struct slice){"", 0};
    const struct language *l = own ? language_regex(own, regex.data, regex.n, REGEX_SEARCH) : NULL;
    if (l && language_has_format(name.data, name.n)) {
        l = language_intersect(own, language_format(own, name.data, name.n), l);
    }
    bool is_empty, fine = l && language_is_empty(own, l, &is_empty) == PLUMB_OK;
    languages_free(own);
    if (!fine) schema_refuse(s, pattern, "ignored: %s", err.message);
    return fine;
}

/* The set among those made last that has this keyword, domain, text and lengths; NULL if there is none. */
static const struct set *find_made(const struct schema *s, const struct made *wanted) {
    for (size_t i = 0; i < N_MADE && i < s->n_made; i++) {
        const struct made *made = &s->made[i];
        if (made->keyword == wanted->keyword && made->domain == wanted->domain && made->least == wanted->least
            && made->most == wanted->most && slice_equal(made->text, wanted->text)) return &made->set;
    }
    return NULL;
}

static struct set keep_made(struct schema *s, struct made made) {
    if (s->status == PLUMB_OK) s->made[s->n_made++ % N_MADE] = made;
    return made.set;
}

/* Makes the language of a pattern, a format or lengths, unless it was made before. */
static struct set set_of_made(struct schema *s, uint32_t m, struct made wanted) {
    const struct set *known = find_made(s, &wanted);
    if (known) return *known;
    struct slice text = wanted.text;
    int64_t most = wanted.most != UINT32_MAX ? (int64_t)wanted.most : LANGUAGE_UNBOUNDED;
    wanted.set = of_language(s, STRINGS, wanted.keyword == KEY_PATTERN
                             ? language_regex(s->languages, text.data, text.n, REGEX_SEARCH)
                             : wanted.keyword == KEY_FORMAT ? language_format(s->languages, text.data, text.n)
                             : language_length(s->languages, wanted.least, most), m);
    wanted.set.has_some = wanted.keyword != KEY_PATTERN;
    return keep_made(s, wanted);
}

const struct language *names_of_pattern(struct schema *s, uint32_t node, struct slice regex) {
    return set_of_made(s, node, (struct made){.keyword = KEY_PATTERN, .text = regex}).language;
}

static struct set set_of_number_format(struct schema *s, enum domain domain, uint32_t m) {
    struct made made = {.keyword = KEY_FORMAT, .domain = domain, .text = s->nodes[m].text};
    const struct number_format *format = number_format_of(made.text);
    const struct set *known = find_made(s, &made);
    if (known || !format || s->options->format_is_note) return known ? *known : s->any[domain];
    const struct number_range range = {.minimum = format->least, .maximum = format->most};
    made.set = set_of_numbers(s, domain, range, format->integers, m);
    made.set.has_some = true;
    return keep_made(s, made);
}

static struct set set_of_text_keyword(struct schema *s, uint32_t m) {
    struct slice text = s->nodes[m].text;
    uint32_t schema = s->nodes[m].parent, min = node_keyword(s, schema, KEY_MIN_LENGTH);
    uint32_t max = node_keyword(s, schema, KEY_MAX_LENGTH);
    switch (s->nodes[m].keyword) {
    case KEY_MIN_LENGTH:
    case KEY_MAX_LENGTH: {
        if (m == max && min != 0) break;   /* both are done together */
        uint32_t least = min != 0 ? node_count(s, min) : 0, most = max != 0 ? node_count(s, max) : UINT32_MAX;
        if (least > most) return s->none[STRINGS];
        if (least > MAX_LENGTH || (max != 0 && most > MAX_LENGTH)) {
            schema_fail(s, PLUMB_ERROR_UNSUPPORTED, m, "more than %d characters", MAX_LENGTH);
        }
        if (least == 0 && max == 0) break;
        return set_of_made(s, m, (struct made){.keyword = KEY_MIN_LENGTH, .least = least, .most = most,
                                                .text = {"", 0}});
    }
    case KEY_PATTERN:
        if (!compiles(s, m)) break;
        return set_of_made(s, m, (struct made){.keyword = KEY_PATTERN, .text = text});
    case KEY_FORMAT:
        if (s->options->format_is_note || !language_has_format(text.data, text.n)) break;
        return set_of_made(s, m, (struct made){.keyword = KEY_FORMAT, .text = text});
    default: break;
    }
    return s->any[STRINGS];
}

/* ---- schemas ----------------------------------------------------------------------------------------------------- */

static struct set set_of_schema(struct schema *s, enum domain domain, uint32_t node);

/* In NUMBERS, what is to be turned around is computed in EQUAL_NUMBERS. */
static enum domain opposite(enum domain domain) { return domain == NUMBERS ? EQUAL_NUMBERS : domain; }

static struct set set_of_one(struct schema *s, enum domain domain, uint32_t list) {
    enum domain other = opposite(domain);
    struct set some = s->none[domain], seen = s->none[other], twice = s->none[other];
    for (uint32_t i = s->nodes[list].first; i != 0; i = s->nodes[i].next) {
        struct set own = set_of_schema(s, domain, i), equal = other == domain ? own : set_of_schema(s, other, i);
        struct set both = set_and(s, other, seen, equal);
        if (!set_is_empty(s, other, both, i)) twice = set_or(s, other, twice, both);
        seen = set_or(s, other, seen, equal);
        some = set_or(s, domain, some, own);
    }
    return set_and(s, domain, some, set_not(s, domain, twice));
}

static struct set set_of_keyword(struct schema *s, enum domain domain, uint32_t m) {
    enum keyword keyword = s->nodes[m].keyword;
    uint32_t schema = s->nodes[m].parent;
    struct set set = s->any[domain];
    if ((keyword_row(keyword)->on & domain_bit(domain)) == 0) return set;
    switch (keyword) {
    case KEY_REF:
    case KEY_DYNAMIC_REF:
    case KEY_RECURSIVE_REF: {
        uint32_t target = schema_target(s, m);
        return target != 0 ? set_of_schema(s, domain, target) : set;
    }
    case KEY_TYPE: {
        uint8_t constants;
        bool integers;
        unsigned bits = types_of(s, m, &constants, &integers);
        if (domain == CONSTANTS) return (struct set){.constants = constants};
        if ((bits & domain_bit(domain)) == 0) return s->none[domain];
        return domain == STRINGS || !integers ? set : set_of_range(s, domain, schema, true);
    }
    case KEY_ENUM: return set_of_enum(s, domain, m);
    case KEY_CONST: return set_of_value(s, domain, m);
    case KEY_ALL_OF:
        for (uint32_t i = s->nodes[m].first; i != 0; i = s->nodes[i].next) {
            set = set_and(s, domain, set, set_of_schema(s, domain, i));
        }
        return set;
    case KEY_ANY_OF:
        set = s->none[domain];
        for (uint32_t i = s->nodes[m].first; i != 0; i = s->nodes[i].next) {
            set = set_or(s, domain, set, set_of_schema(s, domain, i));
        }
        return set;
    case KEY_ONE_OF: return set_of_one(s, domain, m);
    case KEY_NOT: return set_not(s, domain, set_of_schema(s, opposite(domain), m));
    case KEY_IF: {
        uint32_t then = node_keyword(s, schema, KEY_THEN), or_else = node_keyword(s, schema, KEY_ELSE);
        if (then == 0 && or_else == 0) return set;
        struct set yes = set_of_schema(s, domain, m);
        struct set no = set_not(s, domain, set_of_schema(s, opposite(domain), m));
        if (then != 0) yes = set_and(s, domain, yes, set_of_schema(s, domain, then));
        if (or_else != 0) no = set_and(s, domain, no, set_of_schema(s, domain, or_else));
        return set_or(s, domain, yes, no);
    }
    case KEY_MIN_LENGTH:
    case KEY_MAX_LENGTH:
    case KEY_PATTERN: return set_of_text_keyword(s, m);
    case KEY_FORMAT: return domain == STRINGS ? set_of_text_keyword(s, m) : set_of_number_format(s, domain, m);
    case KEY_MINIMUM:
    case KEY_MAXIMUM:
    case KEY_EXCLUSIVE_MINIMUM:
    case KEY_EXCLUSIVE_MAXIMUM:
    case KEY_MULTIPLE_OF: return set_of_range(s, domain, schema, false);
    default: return set;
    }
}

static struct set compute_set(struct schema *s, enum domain domain, uint32_t node) {
    if (s->nodes[node].kind != JSON_OBJECT) return s->nodes[node].kind == JSON_TRUE ? s->any[domain] : s->none[domain];
    struct set set = s->any[domain];
    uint32_t ref = node_keyword(s, node, KEY_REF), type = node_keyword(s, node, KEY_TYPE);
    if (ref != 0 && s->draft < 2019) return set_of_keyword(s, domain, ref);
    bool ranged = false;
    if (type != 0) {
        set = set_of_keyword(s, domain, type);
        if (domain == CONSTANTS ? set.constants == 0 : same(set, s->none[domain])) return set;
        ranged = domain >= NUMBERS && !same(set, s->any[domain]);   /* it is integer, with the bounds */
    }
    /* A format comes first, since a pattern beside it may be too large by itself. */
    uint32_t format = node_keyword(s, node, KEY_FORMAT);
    if (format != 0) set = set_and(s, domain, set, set_of_keyword(s, domain, format));
    for (uint32_t m = s->nodes[node].first; m != 0 && schema_work(s, 1); m = s->nodes[m].next) {
        enum keyword keyword = s->nodes[m].keyword;
        if (keyword == KEY_NONE || m == type || m == format) continue;
        if (keyword_row(keyword)->on == ON_NUMBERS) {
            if (ranged) continue;
            ranged = true;
        }
        set = set_and(s, domain, set, set_of_keyword(s, domain, m));
        if (domain != CONSTANTS && same(set, s->none[domain])) break;
    }
    return set;
}

static struct set set_of_schema(struct schema *s, enum domain domain, uint32_t node) {
    schema_enter(s, node);
    if (s->nesting >= MAX_NESTING) {
        schema_fail(s, PLUMB_ERROR_UNSUPPORTED, node, "the schema refers to itself for the same value, or more than %d "
                    "schemas are nested for one value", MAX_NESTING);
    }
    if (s->status != PLUMB_OK) return s->none[domain];
    if (s->nodes[node].sets == 0) {
        if (!ARRAY_GROW(s->sets, s->n_sets, &s->sets_cap)) {
            schema_no_memory(s);
            return s->none[domain];
        }
        s->sets[s->n_sets++] = (struct sets){0};
        s->nodes[node].sets = (uint32_t)s->n_sets;
    }
    uint32_t at = s->nodes[node].sets - 1;
    if (!s->sets[at].has[domain]) {
        s->nesting++;
        struct set set = compute_set(s, domain, node);
        s->nesting--;
        s->sets[at].of[domain] = set;
        s->sets[at].has[domain] = true;
    }
    return s->sets[at].of[domain];
}

struct set set_of_claim(struct schema *s, enum domain domain, uint32_t claimed) {
    enum claim_kind kind = claimed >> 1 & 3;
    uint32_t node = claimed >> 3;
    enum domain inner = claimed & 1 ? opposite(domain) : domain;
    struct set set = kind == CLAIM_SCHEMA ? set_of_schema(s, inner, node)
                     : kind == CLAIM_VALUE ? set_of_value(s, inner, node) : set_of_keyword(s, inner, node);
    return claimed & 1 ? set_not(s, domain, set) : set;
}

const struct language *names_of(struct schema *s, uint32_t node) { return set_of_schema(s, STRINGS, node).language; }

bool schema_is_true(struct schema *s, uint32_t node) {
    if (s->nodes[node].kind != JSON_OBJECT) return s->nodes[node].kind == JSON_TRUE;
    schema_enter(s, node);
    for (uint32_t m = s->nodes[node].first; m != 0 && schema_work(s, 1); m = s->nodes[m].next) {
        enum keyword keyword = s->nodes[m].keyword;
        if (keyword != KEY_NONE && keyword_row(keyword)->on != 0) return false;
    }
    return true;
}

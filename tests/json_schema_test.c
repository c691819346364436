/* The compiler of JSON Schema.  The truth is the JSON Schema test suite (vectors/README.md), and for single
 * schemas the specification's text. */
#include "test.h"
#include "grammar/recognizer.h"
#include "grammar_make.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- matching ---------------------------------------------------------------------------------------------------- */

/* A compiled schema. */
struct compiled {
    struct grammar *g;
    struct recognizer *r;
    struct error err;
    plumb_status status;
    bool is_noted;               /* a warning says that something else than an unknown keyword is not enforced */
};

static void compile(struct compiled *c, const char *schema, size_t n, const struct json_schema_options *options) {
    struct grammar_text warnings = {0};
    *c = (struct compiled){.err = {PLUMB_OK, ""}};
    c->status = make_schema(&c->g, schema, n, options, &warnings, &c->err);
    for (const char *line = warnings.data; line && line < warnings.data + warnings.n; line = strchr(line, '\n') + 1) {
        const char *known = strstr(line, ": unknown keyword, ignored\n");
        c->is_noted |= !known || known > strchr(line, '\n');
    }
    grammar_text_free(&warnings);
    if (c->status == PLUMB_OK) CHECK(recognizer_create(&c->r, c->g, &c->err) == PLUMB_OK, "%s", c->err.message);
}

static void compiled_free(struct compiled *c) {
    recognizer_free(c->r);
    grammar_free(c->g);
    *c = (struct compiled){.status = PLUMB_ERROR_STATE};
}

static bool accepts(const struct compiled *c, const char *text, size_t n) {
    struct position position;
    if (!c->r || position_init(&position, c->r) != PLUMB_OK) return false;
    uint32_t state = position_state(&position);
    plumb_status status = PLUMB_OK;
    for (size_t i = 0; i < n && status == PLUMB_OK && state != STATE_DEAD; i++) {
        status = recognizer_step(c->r, state, (uint8_t)text[i], &state);
    }
    CHECK(status == PLUMB_OK, "%s", c->r->err.message);
    bool yes = state != STATE_DEAD && state_has(c->r, state, STATE_MAY_END);
    position_free(&position);
    return yes;
}

/* ---- the JSON Schema test suite ---------------------------------------------------------------------------------- */

struct suite_row {
    const char *name, *path;
    struct json_schema_options options;
    unsigned enforced, refused, wrong;
};

/* The instances are in the order in which the suite has them, so the order of members is free.  The suites without
 * formats take format as a note, as they want it.
 * Wrong: hostnames with an A-label (xn--...) are all refused, valid ones too, since Punycode is not regular; and so are
 * email addresses with a quoted name or an IP address, which common validators refuse. */
static const struct suite_row suites[] = {
    {"2020-12", "tests/vectors/grammar/suite-2020-12.txt", {.any_order = true, .format_is_note = true, .draft = 2020},
     343, 40, 0},
    {"draft-07", "tests/vectors/grammar/suite-draft7.txt", {.any_order = true, .format_is_note = true, .draft = 7},
     239, 18, 0},
    {"draft-04", "tests/vectors/grammar/suite-draft4.txt", {.any_order = true, .format_is_note = true, .draft = 4},
     65, 8, 0},
    {"the schemas of llama.cpp's tests", "tests/vectors/grammar/suite-llama.txt",
     {.any_order = true, .format_is_note = true}, 75, 6, 0},
    {"schemas of npm packages", "tests/vectors/grammar/suite-real.txt", {0}, 21, 8, 0},
    {"schemas of npm packages, leniently", "tests/vectors/grammar/suite-real.txt", {.lenient = true}, 21, 8, 0},
    {"formats of 2020-12", "tests/vectors/grammar/suite-2020-12-formats.txt", {.draft = 2020}, 15, 11, 2},
    {"formats of draft-07", "tests/vectors/grammar/suite-draft7-formats.txt", {.draft = 7}, 14, 11, 1},
};

enum outcome { ENFORCED, REFUSED, WRONG, NONE };

/* With the members in order, and with free white space, a grammar must not accept more. */
static void compile_all(struct compiled c[3], const char *json, size_t n, struct json_schema_options options) {
    for (int i = 0; i < 3; i++) {
        compiled_free(&c[i]);
        compile(&c[i], json, n, &options);
        options.any_order = false;
        options.space = i == 0 ? PLUMB_JSON_COMPACT : PLUMB_JSON_FREE;
    }
}

/* A schema is enforced if the grammar accepts each valid instance and no other, or if it is refused because no value is
 * valid, and none is.  It is refused if an error or a warning names what cannot be kept; beside a warning each valid
 * instance is accepted. */
static void suite(const void *p) {
    const struct suite_row *row = p;
    size_t n;
    char *text = test_read_all(row->path, &n);
    unsigned counts[NONE + 1] = {0};
    struct compiled c[3] = {{.r = NULL}};
    const char *name = "";
    enum outcome outcome = NONE;
    for (char *line = text, *end; line && line < text + n; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + n - line));
        REQUIRE(end && end - line > 2, "a line without its end");
        *end = 0;
        const char *json = line + 2;
        size_t length = (size_t)(end - json);
        if (*line == '#') {
            name = json;
        } else if (*line == '=') {
            counts[outcome]++;
            compile_all(c, json, length, row->options);
            bool is_empty = c->status == PLUMB_ERROR_ARGUMENT && strstr(c->err.message, "no value is valid");
            bool is_named = c->err.message[0] == '/' || strncmp(c->err.message, "JSON schema: ", 13) == 0;
            outcome = (c->status == PLUMB_OK && !c->is_noted) || is_empty ? ENFORCED : REFUSED;
            CHECK(outcome == ENFORCED || is_named || c->is_noted, "%s: %s", name, c->err.message);
        } else if (c->is_noted && c->status == PLUMB_OK) {
            CHECK(*line == '-' || accepts(c, json, length), "%s: %s is valid", name, json);
        } else if (outcome != REFUSED) {
            bool valid = *line == '+', more = !valid && (accepts(&c[1], json, length) || accepts(&c[2], json, length));
            if (accepts(c, json, length) == valid && !more) continue;
            outcome = WRONG;
            if (row->wrong == 0) CHECK(false, "%s: %s is %s", name, json, valid ? "valid" : "invalid");
        }
    }
    counts[outcome]++;
    for (int i = 0; i < 3; i++) compiled_free(&c[i]);
    free(text);
    test_note("%s: %u schemas are enforced, %u refused by name, %u wrong", row->name, counts[ENFORCED], counts[REFUSED],
              counts[WRONG]);
    CHECK(counts[ENFORCED] == row->enforced && counts[REFUSED] == row->refused && counts[WRONG] == row->wrong,
          "expected %u, %u and %u", row->enforced, row->refused, row->wrong);
}

/* ---- single schemas ---------------------------------------------------------------------------------------------- */

struct match_row {
    const char *name, *schema;
    struct json_schema_options options;
    const char *yes[8], *no[8];
};

/* The pattern of hostnames in Zod 4.  The automaton of its lookahead and its labels has more than 20,000 states. */
#define HOSTNAME "\"^(?=.{1,253}\\\\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\\\.[a-zA-Z0-9]" \
    "(?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\\\\.?$\""

static const struct match_row matches[] = {
    {"members in the order of the schema",
     "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{}},\"required\":[\"a\"],\"additionalProperties\":false}",
         {0},
     {"{\"b\":1,\"a\":2}", "{\"a\":2}"}, {"{\"a\":2,\"b\":1}", "{\"b\":1}", "{}", "{\"a\":1,}", "{\"a\":1,\"a\":1}",
     "{\"a\":1,\"c\":1}", " {\"a\":2}", "{\"a\": 2}"}},
    {"an integer with all digits of a double", "{\"type\":\"integer\",\"minimum\":-9007199254740991,"
     "\"maximum\":9007199254740991,\"description\":\"cut \\ud83d\"}", {0},
     {"9007199254740991", "-9007199254740991", "0", "1650000000000000"},
     {"9007199254740992", "-9007199254740992", "90071992547409910", "1e5", "1.5"}},
    {"members in any order",
     "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{}},\"required\":[\"a\"],\"additionalProperties\":false}",
     {.any_order = true},
     {"{\"b\":1,\"a\":2}", "{\"a\":2,\"b\":1}", "{\"a\":2}"}, {"{\"b\":1}", "{\"a\":1,\"a\":1}", "{}"}},
    {"other members", "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}}}", {0},
     {"{}", "{\"a\":1}", "{\"abc\":1,\"\":2}", "{\"ab\":null,\"b\":[{}]}"}, {"{\"ab\":1}", "{\"a\":1,\"\\u0061b\":1}"}},
    {"no other members if the options say so", "{\"type\":\"object\",\"properties\":{\"a\":{}}}", {.closed = true},
     {"{}", "{\"a\":{\"b\":1}}"}, {"{\"b\":1}"}},
    {"no members at all if properties is empty", "{\"type\":\"object\",\"properties\":{}}", {.closed = true},
     {"{}"}, {"{\"b\":1}", "{\"\":{}}"}},
    {"a closed object with an empty one in a list", "{\"type\":\"object\",\"properties\":{\"a\":"
     "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{}}}}}", {.closed = true},
     {"{\"a\":[{},{}]}"}, {"{\"a\":[{\"b\":1}]}"}},
    {"other members of closed objects whose schema has no properties or names others", "{\"type\":\"array\","
     "\"prefixItems\":[{\"type\":\"object\"},{\"type\":\"object\",\"properties\":{},"
     "\"additionalProperties\":{\"type\":\"null\"}}]}", {.closed = true},
     {"[{\"b\":1},{\"b\":null}]"}, {"[{\"b\":1},{\"b\":1}]"}},
    {"optional members before a required "
     "one", "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":1},"
     "\"c\":{\"const\":1},\"d\":{\"const\":1}},\"required\":[\"c\"],\"additionalProperties\":false}", {0},
     {"{\"c\":1}", "{\"a\":1,\"c\":1,\"d\":1}", "{\"b\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1,\"d\":1}"},
     {"{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1,\"b\":1}", "{,\"c\":1}"}},
    {"a count of "
     "members", "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":1},\"c\":{\"const\":1}},"
     "\"additionalProperties\":false,\"minProperties\":2,\"maxProperties\":2}", {0},
     {"{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}"}, {"{}", "{\"a\":1}", "{\"a\":1,\"b\":1,\"c\":1}"}},
    {"indented "
     "text",
         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},\"b\":{}},"
     "\"additionalProperties\":false}", {.space = PLUMB_JSON_PRETTY},
     {"{}", "{\n  \"a\": []\n}",
      "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {\n    \"c\": [\n      {}\n    ]\n  }\n}"},
     {"{\"a\":[]}", "{\n  \"a\": [1]\n}", "{\n}", "{\n  \"a\": [\n  1\n  ]\n}"}},
    {"free white "
     "space", "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"}}}",
     {.space = PLUMB_JSON_FREE},
     {"[]", "[ ]", "[\n\t{\"a\": null,\n \"b\":null\n}]"},
     {"[  ]", "[{\"a\" :null}]", " []", "[] "}},
    {"integers", "{\"type\":\"integer\",\"minimum\":-1,\"exclusiveMaximum\":1e2,\"multipleOf\":3}", {0},
     {"0", "3", "99"}, {"-3", "-0", "102", "1", "3.0", "03", "+3"}},
    {"multiples that doubles hold", "{\"type\":\"integer\",\"multipleOf\":12}", {0},
     {"0", "-24", "508692704596920"}, {"50869270459692756", "26"}},
    {"fractions that doubles tell from the bound", "{\"type\":\"number\",\"exclusiveMaximum\":1.5}", {0},
     {"1.4", "1.49999999999999", "-7", "0"}, {"1.5", "1.4999999999999999"}},
    {"a bound that doubles do not tell from the integer before it",
     "{\"type\":\"integer\",\"minimum\":0,\"exclusiveMaximum\":1e18}", {0},
     {"0", "999999999999999"}, {"999999999999999999", "-1"}},
    {"the opposite of integers", "{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", {0},
     {"0.5", "-1.25"}, {"1", "1.0", "1e1", "0.0"}},
    {"one of two overlapping ranges", "{\"oneOf\":[{\"type\":\"number\",\"minimum\":1},{\"type\":\"integer\"}]}", {0},
     {"0", "-7", "1.5"}, {"1", "2", "0.5"}},
    {"one of two objects told apart by a "
     "member", "{\"oneOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}],\"$defs\":{"
     "\"a\":{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"null\"}},"
     "\"required\":[\"k\"],"
     "\"additionalProperties\":false},\"b\":{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"},"
     "\"y\":{\"$ref\":\"#\"}},\"required\":[\"k\",\"y\"],\"additionalProperties\":false}}}", {0},
     {"{\"k\":\"a\"}", "{\"k\":\"a\",\"x\":null}", "{\"k\":\"b\",\"y\":{\"k\":\"a\"}}"},
     {"{\"k\":\"b\"}", "{\"k\":\"a\",\"y\":{\"k\":\"a\"}}", "{\"k\":\"c\"}"}},
    {"if, then, else", "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]},\"b\":{}},\"required\":[\"a\"],"
     "\"if\":{\"properties\":{\"a\":{\"const\":1}}},\"then\":{\"required\":[\"b\"]},\"else\":{\"maxProperties\":1}}",
         {0},
     {"{\"a\":1,\"b\":0}", "{\"a\":2}"}, {"{\"a\":1}", "{\"a\":2,\"b\":0}"}},
    {"different elements of few values", "{\"type\":\"array\",\"items\":{\"enum\":[\"a\",1,null]},\"uniqueItems\":true,"
     "\"minItems\":1}", {0},
     {"[\"a\"]", "[null,\"a\",1]", "[1,null]"}, {"[]", "[1,1]", "[\"a\",null,\"a\"]"}},
    {"different elements of values of several kinds", "{\"type\":\"array\",\"items\":{\"enum\":["
     "1,2,3,4,5,6,7,8,9,\"a\",null]},\"uniqueItems\":true}", {0},
     {"[]", "[\"a\",9]", "[1,2,3,4,5,6,7,8,9,\"a\",null]", "[\"a\",9,8,7,6,5,4,3,2,1]"},
     {"[\"a\",\"a\"]", "[9,\"a\",9]", "[10]"}},
    {"few different elements of many values", "{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"null\"],"
     "\"minimum\":0,\"maximum\":61},\"uniqueItems\":true,\"maxItems\":2,\"minItems\":1}", {0},
     {"[0]", "[null,61]", "[6,61]", "[61,6]"}, {"[6,6]", "[null,null]", "[]", "[1,2,3]", "[62]"}},
    {"int32", "{\"type\":\"integer\",\"format\":\"int32\"}", {0},
     {"0", "2147483647", "-2147483648"}, {"2147483648", "-2147483649", "1.5", "99999999999999999999", "\"a\""}},
    {"uint32 without a type", "{\"format\":\"uint32\"}", {0},
     {"0", "4294967295", "\"a\"", "null"}, {"-1", "4294967296", "0.5"}},
    {"int64", "{\"type\":\"integer\",\"format\":\"int64\",\"minimum\":-1}", {0},
     {"-1", "9223372036854775807", "1000000000000000001"}, {"-2", "9223372036854775808"}},
    {"uint64", "{\"type\":\"integer\",\"format\":\"uint64\"}", {0},
     {"18446744073709551615"}, {"18446744073709551616", "-1"}},
    {"float", "{\"type\":\"number\",\"format\":\"float\"}", {0},
     {"1.5", "3.4e+38", "-3.4e+38"}, {"3.5e+38", "-1e+39"}},
    {"double", "{\"type\":\"number\",\"format\":\"double\"}", {0}, {"1.5", "1e+300"}, {"\"1\"", "1e+400"}},
    {"the opposite of int8", "{\"type\":\"number\",\"not\":{\"format\":\"int8\"}}", {0},
     {"128", "-129", "0.5"}, {"127", "-128", "1.0"}},
    {"formats as notes", "{\"type\":\"integer\",\"format\":\"int8\"}", {.format_is_note = true}, {"128"}, {"0.5"}},
    {"a pattern beside an unknown format", "{\"type\":\"string\",\"format\":\"colour\",\"pattern\":\"^#\"}", {0},
     {"\"#a\""}, {"\"a\""}},
    {"a pattern that is too large without the format beside it",
     "{\"pattern\":" HOSTNAME ",\"format\":\"hostname\"}", {0},
     {"\"example.com\"", "\"a\"", "\"a-b.c.d.e\""}, {"\"-a.com\"", "\"a..b\"", "\"a-\""}},
    {"emoji", "{\"type\":\"string\",\"pattern\":\"^(?=[^]*\\\\p{ExtPict})[\\\\p{Extended_Pictographic}"
     "\\\\p{Emoji_Component}]+$\"}", {0}, {"\"\U0001f600\"", "\"\u00a9\ufe0f\"", "\"1\U0001f3fb\u2764\""},
     {"\"1\"", "\"\"", "\"\U0001f600a\""}},
    {"a pattern that is too large, if the options are lenient",
     "{\"type\":\"string\",\"maxLength\":2,\"pattern\":" HOSTNAME "}", {.lenient = true}, {"\"--\""}, {"\"abc\""}},
    {"nullable", "{\"type\":\"string\",\"nullable\":true,\"maxLength\":1}", {0},
     {"null", "\"a\""}, {"\"ab\"", "1"}},
    {"nullable beside enum", "{\"type\":\"string\",\"nullable\":true,\"enum\":[\"a\"]}", {0}, {"\"a\""}, {"null"}},
    {"nullable without a type, and false", "{\"anyOf\":[{\"nullable\":true,\"enum\":[1]},"
     "{\"type\":\"array\",\"nullable\":false}]}", {0}, {"1", "[]"}, {"null"}},
    {"contains, with a least and a "
     "most", "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},"
     "\"minContains\":2,\"maxContains\":3}", {0},
     {"[5,6]", "[1,5,2,6,3]", "[5,5,5]"}, {"[]", "[5]", "[1,2,5]", "[5,5,5,5]", "[5,6,\"a\"]"}},
    {"names with a "
     "pattern",
         "{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"number\"},\"s$\":{\"type\":\"string\"}},"
     "\"additionalProperties\":false}", {0},
     {"{}", "{\"n\":1}", "{\"ns1\":1,\"as\":\"\"}"}, {"{\"ns\":1}", "{\"ns\":\"\"}", "{\"a\":1}"}},
    {"names in "
     "quotes",
         "{\"type\":\"object\",\"properties\":{\"a\\\"\\\\\\n\\u0001\":{\"const\":1}},\"additionalProperties\":false}",
     {0}, {"{\"a\\\"\\\\\\n\\u0001\":1}"}, {"{\"a\":1}"}},
    {"strings by length and pattern", "{\"type\":\"string\",\"pattern\":\"^a\",\"minLength\":2,\"maxLength\":3}", {0},
     {"\"ab\"", "\"a\\n\"", "\"a\xf0\x9f\x98\x80z\""}, {"\"a\"", "\"abcd\"", "\"ba\"", "\"a\n\""}},
    {"an open object that is not a closed one", "{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{}},"
     "\"additionalProperties\":false}}", {0}, {"{\"b\":1}", "{\"a\":1,\"b\":1}"}, {"{}", "{\"a\":1}"}},
};

static void matches_texts(const void *p) {
    const struct match_row *row = p;
    struct compiled c;
    compile(&c, row->schema, strlen(row->schema), &row->options);
    REQUIRE(c.status == PLUMB_OK, "%s", c.err.message);
    for (size_t i = 0; i < 8 && row->yes[i]; i++) CHECK(accepts(&c, row->yes[i], strlen(row->yes[i])), "%s",
                                                        row->yes[i]);
    for (size_t i = 0; i < 8 && row->no[i]; i++) CHECK(!accepts(&c, row->no[i], strlen(row->no[i])), "%s", row->no[i]);
    compiled_free(&c);
}

static void any_json(void) {
    for (int object = 0; object < 2; object++) {
        struct compiled c;
        const char *schema = object ? "{\"type\":\"object\"}" : "true";
        compile(&c, schema, strlen(schema), NULL);
        REQUIRE(c.r, "%s", c.err.message);
        static const char *const values[] = {"1e300", "[-0.5,\"\\u00e9\",[],{}]", "null"};
        for (size_t i = 0; i < 3; i++) CHECK(accepts(&c, values[i], strlen(values[i])) == !object, "%s", values[i]);
        CHECK(accepts(&c, "{\"\":{\"a\":[true]}}", 17), "an object");
        CHECK(!accepts(&c, "{\"a\":01}", 8) && !accepts(&c, "{a:1}", 5) && !accepts(&c, "{\"a\":1e400}", 11),
              "no JSON");
        compiled_free(&c);
    }
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

struct refused_row { const char *name, *schema; plumb_status status; const char *message; };

static const struct refused_row refused[] = {
    {"no JSON", "{\"type\": \"string\"", PLUMB_ERROR_ARGUMENT, "JSON ends after 17 bytes"},
    {"two values", "{} {}", PLUMB_ERROR_ARGUMENT, "JSON, byte 3: expected the end"},
    {"a number that Python writes", "{\"minimum\": NaN}", PLUMB_ERROR_ARGUMENT, "JSON, byte 12: expected a value"},
    {"nothing", "", PLUMB_ERROR_ARGUMENT, "JSON ends after 0 bytes"},
    {"64 levels", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", PLUMB_ERROR_ARGUMENT,
     "expected at most 63 levels"},
    {"invalid UTF-8", "{\"const\":\"\xc3\"}", PLUMB_ERROR_ARGUMENT, "JSON, byte 10: invalid UTF-8"},
    {"a surrogate in UTF-8", "{\"const\":\"\xed\xa0\x80\"}", PLUMB_ERROR_ARGUMENT, "JSON, byte 10: invalid UTF-8"},
    {"half of a pair of surrogates", "{\"const\":\"\\ud83d\"}", PLUMB_ERROR_ARGUMENT,
     "JSON, byte 10: a surrogate such as \\ud800"},
    {"half of one in a name", "{\"properties\":{\"\\udc00\":{}}}", PLUMB_ERROR_ARGUMENT, "JSON, byte 16: a surrogate"},
    {"draft-03", "{\"$schema\":\"http://json-schema.org/draft-03/schema#\"}", PLUMB_ERROR_UNSUPPORTED,
     "/$schema: the dialect"},
    {"only numbers that are not written", "{\"type\":\"integer\",\"minimum\":1e308}", PLUMB_ERROR_UNSUPPORTED,
     "/minimum: all numbers in this range have more digits than are written"},
    {"only numbers with too many digits after the point",
     "{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1e-30}", PLUMB_ERROR_UNSUPPORTED,
     "/exclusiveMaximum: all numbers"},
    {"bounds of many digits without a number between", "{\"type\":\"integer\",\"minimum\":5e20,\"maximum\":4e20}",
     PLUMB_ERROR_ARGUMENT, "no value is valid"},
    {"a required member without a value",
     "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"array\",\"minItems\":1,"
     "\"items\":{\"type\":\"string\",\"minLength\":5,\"maxLength\":3}}}}", PLUMB_ERROR_ARGUMENT,
     "/properties/a/items: no value is valid"},
    {"an array as a schema", "[]", PLUMB_ERROR_ARGUMENT, "JSON schema: expected a schema: an object, true or false"},
    {"a type that there is not", "{\"properties\":{\"a\":{\"type\":\"text\"}}}", PLUMB_ERROR_ARGUMENT,
     "/properties/a/type: expected null, boolean"},
    {"a count below 0", "{\"items\":{\"minLength\":-1}}", PLUMB_ERROR_ARGUMENT,
     "/items/minLength: expected an integer"},
    {"a count with a fraction", "{\"maxItems\":1.5}", PLUMB_ERROR_ARGUMENT, "/maxItems: expected an integer"},
    {"a bound that is a string", "{\"minimum\":\"1\"}", PLUMB_ERROR_ARGUMENT, "/minimum: expected a number"},
    {"a divisor of 0", "{\"multipleOf\":0}", PLUMB_ERROR_ARGUMENT, "/multipleOf: expected a number above 0"},
    {"a divisor with a large automaton", "{\"properties\":{\"a\":{\"type\":\"integer\",\"multipleOf\":7919}}}",
     PLUMB_ERROR_UNSUPPORTED, "/properties/a/multipleOf: the automaton has more than 20000 states"},
    {"an empty anyOf", "{\"anyOf\":[]}", PLUMB_ERROR_ARGUMENT, "/anyOf: expected a list of schemas"},
    {"properties that are a list", "{\"properties\":[]}", PLUMB_ERROR_ARGUMENT, "/properties: expected an object of "
                                                                                "schemas"},
    {"a required name that is a number", "{\"required\":[1]}", PLUMB_ERROR_ARGUMENT, "/required: expected a list of "
                                                                                     "strings"},
    {"a pattern that is no regular expression", "{\"pattern\":\"(\"}", PLUMB_ERROR_ARGUMENT, "/pattern: "},
    {"a pattern that is not regular", "{\"properties\":{\"a/b~c\":{\"pattern\":\"(a)\\\\1\"}}}",
     PLUMB_ERROR_UNSUPPORTED,
     "/properties/a~1b~0c/pattern: "},
    {"a schema without values", "false", PLUMB_ERROR_ARGUMENT, "JSON schema: no value is valid"},
    {"an empty enum", "{\"enum\":[]}", PLUMB_ERROR_ARGUMENT, "no value is valid"},
    {"two types at once", "{\"allOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]}", PLUMB_ERROR_ARGUMENT, "no "
                                                                                                            "value "
                                                                                                            "is valid"},
    {"a range without numbers", "{\"type\":\"integer\",\"exclusiveMinimum\":1,\"exclusiveMaximum\":2}",
     PLUMB_ERROR_ARGUMENT,
     "no value is valid"},
    {"a required member that is false", "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":false}}",
     PLUMB_ERROR_ARGUMENT, "no value is valid"},
    {"an endless object", "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}",
     PLUMB_ERROR_ARGUMENT, "no value is valid"},
    {"more required members than are allowed", "{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"maxProperties\":1}",
     PLUMB_ERROR_ARGUMENT, "no value is valid"},
    {"elements that must be equal and "
     "differ", "{\"type\":\"array\",\"items\":{\"const\":1},\"minItems\":2,\"uniqueItems\":true}",
     PLUMB_ERROR_ARGUMENT, "no value is valid"},
    {"a reference to itself", "{\"$ref\":\"#\"}", PLUMB_ERROR_UNSUPPORTED, "the schema refers to itself"},
    {"a reference to itself in a choice", "{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", PLUMB_ERROR_UNSUPPORTED,
     "the schema refers to itself"},
    {"two references in a ring", "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},"
     "\"$ref\":\"#/$defs/a\"}", PLUMB_ERROR_UNSUPPORTED, "the schema refers to itself"},
    {"a reference to nothing", "{\"items\":{\"$ref\":\"#/$defs/a\"}}", PLUMB_ERROR_ARGUMENT,
     "/items/$ref: there is no schema '#/$defs/a'"},
    {"another document", "{\"$ref\":\"https://example.com/a.json\"}", PLUMB_ERROR_UNSUPPORTED,
     "/$ref: there is no schema 'https://example.com/a.json' in this document"},
    {"another dialect", "{\"$schema\":\"https://example.com/dialect\"}", PLUMB_ERROR_UNSUPPORTED, "/$schema: the "
                                                                                                  "dialect"},
    {"different elements", "{\"type\":\"array\",\"uniqueItems\":true}", PLUMB_ERROR_UNSUPPORTED, "/uniqueItems: "},
    {"different strings of any length", "{\"type\":\"array\",\"items\":{\"type\":[\"string\",\"null\"],"
     "\"minLength\":1},\"uniqueItems\":true}", PLUMB_ERROR_UNSUPPORTED, "/uniqueItems: "},
    {"different ones of 12 values", "{\"type\":\"array\",\"items\":{\"enum\":[0,1,2,3,4,5,6,7,8,9,null,\"a\"]},"
     "\"uniqueItems\":true}", PLUMB_ERROR_UNSUPPORTED, "/uniqueItems: "},
    {"a pattern that is too large", "{\"properties\":{\"h\":{\"type\":\"string\",\"pattern\":" HOSTNAME "}}}",
     PLUMB_ERROR_UNSUPPORTED, "/properties/h: the automaton has "},
    {"no int32", "{\"type\":\"integer\",\"format\":\"int32\",\"minimum\":2147483648}", PLUMB_ERROR_ARGUMENT,
     "no value is valid"},
    {"two members of any name", "{\"type\":\"object\",\"minProperties\":2}", PLUMB_ERROR_UNSUPPORTED,
     "/minProperties: "},
    {"the opposite of unevaluatedProperties", "{\"not\":{\"unevaluatedProperties\":false}}", PLUMB_ERROR_UNSUPPORTED,
     "/not/unevaluatedProperties: the opposite"},
    {"a billion elements", "{\"type\":\"array\",\"maxItems\":1000000000}", PLUMB_ERROR_UNSUPPORTED, "above 10000"},
    {"a billion characters", "{\"minLength\":1000000000}", PLUMB_ERROR_UNSUPPORTED, "/minLength: more than 100000"},
    {"a billion billion "
     "characters", "{\"pattern\":\"(a{1000000000}){1000000000}\"}", PLUMB_ERROR_UNSUPPORTED, "/pattern: "},
    {"a billion that are "
     "contained", "{\"contains\":{},\"minContains\":1000000000}", PLUMB_ERROR_UNSUPPORTED, "/contains: "},
};

static void is_refused(const void *p) {
    const struct refused_row *row = p;
    struct error err = {PLUMB_OK, ""};
    struct grammar *g;
    plumb_status status = make_schema(&g, row->schema, strlen(row->schema), NULL, NULL, &err);
    CHECK(status == row->status && err.status == status, "%s: %d, %s", row->schema, (int)status, err.message);
    CHECK(strstr(err.message, row->message), "%s: %s", row->schema, err.message);
    grammar_free(g);
}

/* ---- warnings ---------------------------------------------------------------------------------------------------- */

static void warns(void) {
    static const char schema[] = "{\"type\":\"array\",\"uniqueItems\":true,\"description\":\"d\",\"x-order\":1,"
                                 "\"items\":{\"format\":\"colour\",\"pattern\":\"(?<!a)b\",\"nullable\":true},"
                                 "\"contains\":{\"type\":\"string\",\"format\":\"int32\"}}";
    const struct json_schema_options lenient = {.lenient = true};
    struct error err = {PLUMB_OK, ""};
    struct grammar_text warnings = {0};
    struct grammar *g;
    CHECK(make_schema(&g, schema, strlen(schema), &lenient, &warnings, &err) == PLUMB_OK, "%s", err.message);
    REQUIRE(warnings.data, "there are no warnings");
    static const char *const wanted[] = {"/uniqueItems: ", "/items/format: ", "/items/pattern: ignored: ",
                                         "/x-order: unknown keyword", "/items/nullable: ignored",
                                         "/contains/format: the format 'int32' is not enforced"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) CHECK(strstr(warnings.data, wanted[i]), "%s",
                                                                      warnings.data);
    size_t n = 0;
    for (size_t i = 0; i < warnings.n; i++) n += warnings.data[i] == '\n';
    CHECK(n == 6, "%zu warnings: %s", n, warnings.data);
    grammar_free(g);
    grammar_text_free(&warnings);
}

/* ---- hostile schemas: an error, after work that a limit bounds --------------------------------------------------- */

enum hostile {
    MERGES, CHOICES, REFERENCES, VALUES, LONG_STRING, LONG_NAME, MEMBERS, STRINGS, LONG_STRINGS, PATTERNS, OVERLAPPING,
    NEGATIONS, DEPENDENCIES, UNKNOWN, ALTERNATIVES, BESIDE_VALUES, LARGE_TARGET, DYNAMIC, WITHOUT_CONST, DIFFERENT
};
struct hostile_row { const char *name; enum hostile kind; unsigned n; const char *message; };

static const struct hostile_row hostile[] = {
    {"2^20 merges", MERGES, 20, "more than 1000 combinations"},
    {"2^20 merges of oneOf", CHOICES, 20, "more than 1000 combinations"},
    {"2^40 references", REFERENCES, 40, "to compile"},
    {"a million values", VALUES, 1000000, "more than 200000 values"},
    {"a string of 10 MB", LONG_STRING, 10000000, "/const: "},
    {"a title of 10 MB", LONG_NAME, 10000000, NULL},
    {"10,000 members", MEMBERS, 10000, NULL},
    {"100,000 members", MEMBERS, 100000, ""},
    {"an enum of 100,000 strings", STRINGS, 100000, NULL},
    {"an enum of long strings, 5 MB", LONG_STRINGS, 60000, "/properties/b: up to here, the grammar"},
    {"60 patterns of names", PATTERNS, 60, "/patternProperties/0: more than 20"},
    {"40 schemas of which one must fit", OVERLAPPING, 40, NULL},
    {"2^50 differences", NEGATIONS, 50, "more than 1000 combinations"},
    {"1,000 dependencies", DEPENDENCIES, 1000, "more than 200 choices"},
    {"60,000 unknown keywords", UNKNOWN, 60000, NULL},
    {"60,000 equal alternatives", ALTERNATIVES, 60000, NULL},
    {"4,000 objects beside 150,000 values", BESIDE_VALUES, 4000, NULL},
    {"15,000 references to a schema with 100,000 members", LARGE_TARGET, 15000, "to compile"},
    {"15,000 dynamic references beside 120,000 values", DYNAMIC, 15000, "to compile"},
    {"4 lists of different ones of 11 values", DIFFERENT, 4, NULL},
    {"200 lists of different ones of 11 values", DIFFERENT, 200, "/properties/4/uniqueItems: "},
    {"oneOf two objects with 20,000 members", WITHOUT_CONST, 20000, "to compile"},
};

static void repeat(struct grammar_text *t, const char *before, unsigned n, const char *format, const char *after) {
    grammar_text_print(t, "%s", before);
    for (unsigned i = 0; i < n; i++) {
        char piece[200];
        int length = snprintf(piece, sizeof piece, format, i, i + 1, i + 1);
        grammar_text_add(t, piece, (size_t)length);
        if (i + 1 < n) grammar_text_add(t, ",", 1);
    }
    grammar_text_print(t, "%s", after);
}

static void write_hostile(struct grammar_text *t, enum hostile kind, unsigned n) {
    switch (kind) {
    case MERGES:
        repeat(t, "{\"allOf\":[", n, "{\"anyOf\":[{\"required\":[\"a%u\"]},{\"required\":[\"b%u\"]}]}", "]}");
        break;
    case CHOICES:
        repeat(t, "{\"allOf\":[", n, "{\"oneOf\":[{\"required\":[\"a%u\"]},{\"required\":[\"b%u\"]}]}", "]}");
        break;
    case REFERENCES:
        repeat(t, "{\"$ref\":\"#/$defs/0\",\"$defs\":{", n,
               "\"%u\":{\"allOf\":[{\"$ref\":\"#/$defs/%u\"},{\"$ref\":\"#/$defs/%u\"}]}", ",\"40\":{}}}");
        break;
    case VALUES: repeat(t, "{\"enum\":[", n, "%u", "]}"); break;
    case LONG_STRING: repeat(t, "{\"const\":\"", n / 2, "a", "\"}"); break;
    case LONG_NAME: repeat(t, "{\"title\":\"", n / 2, "a", "\"}"); break;
    case MEMBERS: repeat(t, "{\"additionalProperties\":false,\"properties\":{", n, "\"%u\":{}", "}}"); break;
    case STRINGS: repeat(t, "{\"enum\":[", n, "\"value %u\"", "]}"); break;
    case LONG_STRINGS:
        repeat(t, "{\"properties\":{\"a\":{},\"b\":{\"enum\":[", n, "\"%u: a text that is so long that many of them "
               "are too much for a grammar, however it is written\"", "]}}}");
        break;
    case PATTERNS: repeat(t, "{\"patternProperties\":{", n, "\"%u\":{}", "}}"); break;
    case OVERLAPPING: repeat(t, "{\"oneOf\":[", n, "{\"properties\":{\"%u\":{\"type\":\"null\"}}}", "]}"); break;
    case NEGATIONS: repeat(t, "{\"not\":{\"enum\":[", n, "{\"a\":%u,\"b\":%u}", "]}}"); break;
    case DEPENDENCIES: repeat(t, "{\"dependentRequired\":{", n, "\"a%u\":[\"b%u\"]", "}}"); break;
    case UNKNOWN: repeat(t, "{\"allOf\":[", n, "{\"x%u\":1,\"type\":\"string\"}", "]}"); break;
    case ALTERNATIVES: repeat(t, "{\"anyOf\":[", n, "{\"title\":\"%u\",\"type\":\"string\"}", "]}"); break;
    case BESIDE_VALUES:
        repeat(t, "{\"$defs\":{\"values\":{\"enum\":[", 150000, "%u", "]}},");
        repeat(t, "\"additionalProperties\":false,\"properties\":{", n,
               "\"%u\":{\"additionalProperties\":false,\"properties\":{\"q%u\":{}}}", "}}");
        break;
    case LARGE_TARGET:
        repeat(t, "{\"$defs\":{\"large\":{", 100000, "\"x%u\":1", ",\"type\":\"null\"}},");
        repeat(t, "\"properties\":{", n, "\"%u\":{\"$ref\":\"#/$defs/large\"}", "}}");
        break;
    case DYNAMIC:
        repeat(t, "{\"$defs\":{\"a\":{\"$dynamicAnchor\":\"a\",\"type\":\"null\"},\"values\":{\"enum\":[", 120000, "%u",
               "]}},");
        repeat(t, "\"additionalProperties\":false,\"properties\":{", n, "\"%u\":{\"$dynamicRef\":\"#a\"}", "}}");
        break;
    case DIFFERENT:
        repeat(t, "{\"additionalProperties\":false,\"properties\":{", n, "\"%u\":{\"type\":\"array\","
               "\"uniqueItems\":true,\"items\":{\"enum\":[0,1,2,3,4,5,6,7,8,9,10]}}", "}}");
        break;
    case WITHOUT_CONST:
        grammar_text_print(t, "{\"oneOf\":[");
        for (unsigned i = 0; i < 2; i++) {
            repeat(t, "{\"type\":\"object\",\"required\":[", n, "\"%u\"", "],");
            repeat(t, "\"properties\":{", n, "\"%u\":{}", i == 0 ? "}}," : "}}]}");
        }
        break;
    }
}

static void is_bounded(const void *p) {
    const struct hostile_row *row = p;
    struct grammar_text schema = {0}, warnings = {0};
    struct grammar *g;
    struct error err = {PLUMB_OK, ""};
    write_hostile(&schema, row->kind, row->n);
    REQUIRE(schema.data && !schema.failed, "out of memory");
    double start = clock_seconds();
    plumb_status status = make_schema(&g, schema.data, schema.n, NULL, &warnings, &err);
    double seconds = clock_seconds() - start;
    CHECK(seconds < 5, "%.1f s", seconds);
    CHECK((status == PLUMB_OK) == (row->message == NULL), "%d, %s", (int)status, err.message);
    if (row->message) CHECK(strstr(err.message, row->message), "%s", err.message);
    grammar_text_free(&schema);
    grammar_free(g);
    grammar_text_free(&warnings);
}

void test_json_schema(void) {
    TEST_ROWS("json schema: the test suite: ", suite, suites);
    TEST_ROWS("json schema: ", matches_texts, matches);
    test_case("json schema: any value and any object", any_json);
    TEST_ROWS("json schema: refused: ", is_refused, refused);
    test_case("json schema: warnings name what is ignored", warns);
    TEST_ROWS("json schema: hostile: ", is_bounded, hostile);
}

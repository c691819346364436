/* The JSON reader against RFC 8259: the value of a text, or the byte where it is wrong.  UTF-8 is worked by hand from
 * the Unicode code charts, and equals the result of Python's json.loads. */
#include "test.h"
#include "base/json.h"

#include <math.h>

struct string_row {
    const char *name, *json;
    const char *text;      /* NULL: an error */
    const char *message;   /* of the error */
};

static const struct string_row strings[] = {
    {"nothing", "\"\"", "", NULL},
    {"every short escape", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", NULL},
    {"escapes of one, two and three bytes", "\"\\u0041\\u00e9\\u20AC\"", "A\xc3\xa9\xe2\x82\xac", NULL},
    {"the ends of one, two and three bytes", "\"\\u007f\\u0080\\u07ff\\u0800\\uffff\"",
     "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf", NULL},
    {"hexadecimal digits of both cases", "\"\\uabcd\\uABCD\\u09af\"", "\xea\xaf\x8d\xea\xaf\x8d\xe0\xa6\xaf", NULL},
    {"a surrogate pair", "\"\\ud83d\\ude00!\"", "\xf0\x9f\x98\x80!", NULL},
    {"the first pair", "\"\\ud800\\udc00\"", "\xf0\x90\x80\x80", NULL},
    {"the last pair", "\"\\udbff\\udfff\"", "\xf4\x8f\xbf\xbf", NULL},
    {"what lies around the surrogates", "\"\\ud7ff\\ue000\"", "\xed\x9f\xbf\xee\x80\x80", NULL},
    {"a high surrogate alone", "\"\\ud800\"", "\xef\xbf\xbd", NULL},
    {"a low surrogate alone", "\"\\udc00x\"", "\xef\xbf\xbdx", NULL},
    {"the last low surrogate alone", "\"\\udfff\"", "\xef\xbf\xbd", NULL},
    {"the last high surrogate before a letter", "\"\\udbffA\"", "\xef\xbf\xbd" "A", NULL},
    {"a high surrogate before another escape", "\"\\ud800\\n\"", "\xef\xbf\xbd\n", NULL},
    {"a high surrogate before a character", "\"\\ud800\\u0041\"", "\xef\xbf\xbd" "A", NULL},
    {"a high surrogate before what comes after the low ones", "\"\\ud800\\ue000\"", "\xef\xbf\xbd\xee\x80\x80", NULL},
    {"a high surrogate before what comes before the low ones", "\"\\ud800\\udbff\"", "\xef\xbf\xbd\xef\xbf\xbd", NULL},
    {"two high surrogates and a low one", "\"\\ud800\\ud83d\\ude00\"", "\xef\xbf\xbd\xf0\x9f\x98\x80", NULL},
    {"two low surrogates", "\"\\udc00\\udc00\"", "\xef\xbf\xbd\xef\xbf\xbd", NULL},
    {"bytes as they are", "\"\xc3\xa9 \x7f\"", "\xc3\xa9 \x7f", NULL},
    {"white space around it", " \t\r\n\"a\"\n", "a", NULL},
    {"three digits", "\"\\u004\"", NULL, "JSON, byte 1: expected an escape"},
    {"a letter beyond f", "\"\\u004g\"", NULL, "JSON, byte 1: expected an escape"},
    {"a character between 9 and A", "\"\\u004:\"", NULL, "JSON, byte 1: expected an escape"},
    {"a character before 0", "\"\\u/000\"", NULL, "JSON, byte 1: expected an escape"},
    {"an escape that there is not", "\"ab\\v\"", NULL, "JSON, byte 3: expected an escape"},
    {"a high surrogate before a broken escape", "\"\\ud800\\u12\"", NULL, "JSON, byte 7: expected an escape"},
    {"an escaped quotation mark at the end", "\"ab\\\"", NULL, "JSON ends after 5 bytes: expected '\"' at the end"},
    {"no end", "\"ab", NULL, "JSON ends after 3 bytes: expected '\"' at the end of the string that begins at byte 0"},
    {"a line end in it", "\"a\nb\"", NULL, "JSON, byte 2: expected no control byte in a string"},
    {"the last control byte", "\"a\x1f\"", NULL, "JSON, byte 2: expected no control byte in a string"},
    {"something after it", "\"a\" x", NULL, "JSON, byte 4: expected the end of the file after the value, found 'x'"},
    {"a number", "5", NULL, "JSON, byte 0: expected a text, found '5'"},
    {"nothing at all", "", NULL, "JSON ends after 0 bytes: expected a text"},
};

static void reads_string(const void *p) {
    const struct string_row *row = p;
    struct error err = {PLUMB_OK, ""};
    struct json j;
    json_begin(&j, row->json, strlen(row->json), &err);
    struct json_text text = json_string(&j, "a text");
    if (row->text) {
        CHECK(text.n == strlen(row->text) && memcmp(text.data, row->text, text.n + 1) == 0, "%s gives \"%s\", %s",
              row->json, text.data, err.message);
    }
    plumb_status status = json_end(&j);
    CHECK((status == PLUMB_OK) == (row->text != NULL), "%s: %s", row->json, err.message);
    if (row->message) CHECK(strstr(err.message, row->message), "%s: %s", row->json, err.message);
}

struct number_row {
    const char *name, *json;
    double value;
    const char *message;   /* NULL: it is a number */
};

static const struct number_row numbers[] = {
    {"zero", "0", 0, NULL},
    {"minus zero", "-0", -0.0, NULL},
    {"all parts", "-12.5e+2", -1250, NULL},
    {"a capital E and a minus", "25E-2", 0.25, NULL},
    {"an exponent without a sign", "1e3", 1000, NULL},
    {"a fraction below one", "0.5", 0.5, NULL},
    {"null", "null", NAN, NULL},
    {"NaN, as Python writes it", "NaN", NAN, NULL},
    {"nan, as C writes it", "-nan", NAN, NULL},
    {"infinity, as Python writes it", "-Infinity", -INFINITY, NULL},
    {"infinity, as C writes it", "inf", INFINITY, NULL},
    {"infinity as a text", "\"Infinity\"", INFINITY, NULL},
    {"minus infinity as a text", "\"-Infinity\"", -INFINITY, NULL},
    {"NaN as a text", "\"NaN\"", NAN, NULL},
    {"another text", "\"12\"", 0, "JSON, byte 0: expected a number"},
    {"a leading zero", "012", 0, "JSON, byte 0: expected a number without leading zeros"},
    {"a leading zero after a minus", "-00", 0, "JSON, byte 1: expected a number without leading zeros"},
    {"no digit after the point", "1.e5", 0, "JSON, byte 2: expected a digit after the decimal point"},
    {"no digit before the point", ".5", 0, "JSON, byte 0: expected a number"},
    {"no digit of the exponent", "1e+", 0, "JSON ends after 3 bytes: expected a digit of the exponent"},
    {"a plus", "+1", 0, "JSON, byte 0: expected a number"},
    {"a minus alone", "-", 0, "JSON ends after 1 bytes: expected a number"},
    {"nothing", "  ", 0, "JSON ends after 2 bytes: expected a number"},
    {"two numbers", "1 2", 0, "JSON, byte 2: expected the end of the file after the value"},
};

static void reads_number(const void *p) {
    const struct number_row *row = p;
    struct error err = {PLUMB_OK, ""};
    struct json j;
    json_begin(&j, row->json, strlen(row->json), &err);
    double value = json_number(&j, "a number");
    plumb_status status = json_end(&j);
    CHECK((status == PLUMB_OK) == (row->message == NULL), "%s: %s", row->json, err.message);
    if (row->message) {
        CHECK(strstr(err.message, row->message), "%s: %s", row->json, err.message);
    } else {
        bool same = isnan(row->value) ? isnan(value) : value == row->value && !signbit(value) == !signbit(row->value);
        CHECK(same, "%s is %g", row->json, value);
    }
}

static plumb_status integer(const char *text, int64_t min, int64_t max, int64_t *value, struct error *err) {
    struct json j;
    json_begin(&j, text, strlen(text), err);
    *value = json_integer(&j, min, max, "a count");
    return json_end(&j);
}

static void integers_have_bounds(void) {
    static const struct { const char *json; bool good; int64_t value; } rows[] = {
        {"-3", true, -3}, {"5", true, 5}, {"0", true, 0}, {"4.0", true, 4}, {"-4", false, 0}, {"6", false, 0},
        {"2.5", false, 0}, {"NaN", false, 0}, {"Infinity", false, 0}, {"\"5\"", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = {PLUMB_OK, ""};
        int64_t value;
        plumb_status status = integer(rows[i].json, -3, 5, &value, &err);
        CHECK((status == PLUMB_OK) == rows[i].good && (!rows[i].good || value == rows[i].value), "%s: %ld, %s",
              rows[i].json, (long)value, err.message);
    }
    struct error err = {PLUMB_OK, ""};
    int64_t value;
    CHECK(integer("7", -3, 5, &value, &err) != PLUMB_OK && value == -3, "the least stands in for a bad one");
    CHECK(strstr(err.message, "JSON, byte 0: expected a count, an integer from -3 to 5, found '7'"), "%s", err.message);
}

struct skip_row { const char *name, *json, *message; };

static const struct skip_row skipped[] = {
    {"all kinds of values", "[1, \"a\", true, false, null, {}, [], {\"a\": [{\"b\": 2}, [3]], \"c\": {}}]", NULL},
    {"an object after an array, and an array after an object", "{\"a\": [1, {\"b\": [2]}, 3], \"c\": 4}", NULL},
    {"a comma before the end of an array", "[1,]", "JSON, byte 3: expected a value"},
    {"a comma before the end of an object", "{\"a\": 1,}", "JSON, byte 8: expected a name in double quotes"},
    {"no comma between elements", "[1 2]", "JSON, byte 3: expected ',' or ']'"},
    {"no comma between members", "{\"a\": 1 \"b\": 2}", "JSON, byte 8: expected ',' or '}'"},
    {"no colon", "{\"a\" 1}", "JSON, byte 5: expected ':' after a name"},
    {"a comma at the beginning", "[,1]", "JSON, byte 1: expected a value"},
    {"the wrong bracket", "[1}", "JSON, byte 2: expected ',' or ']'"},
    {"a name without quotes", "{a: 1}", "JSON, byte 1: expected a name in double quotes"},
    {"half a word", "[tru]", "JSON, byte 1: expected a value"},
    {"no end", "[[1], [2]", "JSON ends after 9 bytes: expected ',' or ']'"},
    {"a comment", "[1] // one", "JSON, byte 4: expected the end of the file after the value"},
};

static void skips(const void *p) {
    const struct skip_row *row = p;
    struct error err = {PLUMB_OK, ""};
    struct json j;
    json_begin(&j, row->json, strlen(row->json), &err);
    json_skip(&j);
    plumb_status status = json_end(&j);
    CHECK((status == PLUMB_OK) == (row->message == NULL), "%s: %s", row->json, err.message);
    if (row->message) CHECK(strstr(err.message, row->message), "%s: %s", row->json, err.message);
}

/* 32 levels are read, by skipping and by entering; 33 are refused at the bracket of the last. */
static void levels_have_a_bound(void) {
    char text[80];
    for (uint32_t n = 31; n <= 33; n++) {
        memset(text, '[', n);
        memset(text + n, ']', n);
        struct error err = {PLUMB_OK, ""};
        struct json j;
        json_begin(&j, text, 2 * n, &err);
        json_skip(&j);
        CHECK((json_end(&j) == PLUMB_OK) == (n <= 32), "%u levels: %s", n, err.message);
        if (n == 33) CHECK(strstr(err.message, "JSON, byte 32: expected at most 32 levels"), "%s", err.message);
    }
}

/* After a failure every read returns nothing, and the first message stays. */
static void first_failure_stays(void) {
    static const char text[] = "{\"a\": x, \"b\": 2}";
    struct error err = {PLUMB_OK, ""};
    struct json j;
    struct json_text key;
    json_begin(&j, text, sizeof text - 1, &err);
    json_enter(&j, '{', "an object");
    CHECK(json_member(&j, &key) && json_is(key, "a") && !json_is(key, "ab") && !json_is(key, ""), "the first member");
    CHECK(json_number(&j, "a number") == 0, "x is no number");
    CHECK(!json_member(&j, &key) && key.n == 0 && !json_element(&j) && json_peek(&j) == 0, "there is no more");
    CHECK(json_string(&j, "a string").n == 0, "no string either");
    json_fail(&j, 0, "another sentence");
    CHECK(json_end(&j) == PLUMB_ERROR_METADATA, "the status of the first");
    CHECK(strstr(err.message, "JSON, byte 6: expected a number, found 'x, \"b\": 2}'"), "%s", err.message);

    json_begin(&j, "[1]", 3, &err);
    json_enter(&j, '{', "the options");
    CHECK(json_end(&j) == PLUMB_ERROR_METADATA, "an array is no object");
    CHECK(strstr(err.message, "JSON, byte 0: expected the options, which begins with '{', found '[1]'"), "%s",
          err.message);
    json_begin(&j, "\0", 1, &err);
    CHECK(json_peek(&j) == '?' && json_end(&j) == PLUMB_ERROR_METADATA, "a zero byte is no end");
}

void test_json(void) {
    TEST_ROWS("json: a string: ", reads_string, strings);
    TEST_ROWS("json: a number: ", reads_number, numbers);
    test_case("json: integers are checked against inclusive bounds", integers_have_bounds);
    TEST_ROWS("json: a value that is skipped: ", skips, skipped);
    test_case("json: 32 levels are read, 33 are refused", levels_have_a_bound);
    test_case("json: the first failure stays", first_failure_stays);
}

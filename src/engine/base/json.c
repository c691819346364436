#include "base/json.h"

#include "base/decimal.h"
#include "base/unicode.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void json_begin(struct json *j, const char *bytes, size_t n, struct error *err) {
    *j = (struct json) { .bytes = bytes, .n = n, .max_depth = 32, .err = err };
}

plumb_status json_end(struct json *j) {
    if (json_peek(j) != 0) json_fail(j, j->at, "expected the end of the file after the value");
    free(j->text);
    j->text = NULL;
    return j->status;
}

void json_fail(struct json *j, size_t at, const char *format, ...) {
    if (j->status != PLUMB_OK) return;
    char sentence[240];
    va_list args;
    va_start(args, format);
    if (vsnprintf(sentence, sizeof sentence, format, args) < 0) sentence[0] = 0;
    va_end(args);
    struct shown shown;
    j->at = j->n;
    if (at >= j->n) {
        j->status = error_set(j->err, PLUMB_ERROR_TRUNCATED, "JSON ends after %zu bytes: %s", j->n, sentence);
    } else {
        show_bytes(&shown, j->bytes + at, j->n - at < 16 ? j->n - at : 16);
        j->status = error_set(j->err, PLUMB_ERROR_METADATA, "JSON, byte %zu: %s, found '%s'", at, sentence, shown.text);
    }
}

char json_peek(struct json *j) {
    while (j->at < j->n && memchr(" \t\r\n", j->bytes[j->at], 4)) j->at++;
    if (j->status != PLUMB_OK || j->at == j->n) return 0;
    return j->bytes[j->at] != 0 ? j->bytes[j->at] : '?';   /* a zero byte must not look like the end */
}

/* ---- objects and arrays ----------------------------------------------------------------------------------------- */

void json_enter(struct json *j, char bracket, const char *what) {
    if (json_peek(j) != bracket) {
        json_fail(j, j->at, "expected %s, which begins with '%c'", what, bracket);
    } else if (j->depth == j->max_depth) {
        json_fail(j, j->at, "expected at most %u levels of objects and arrays", j->max_depth);
    } else {
        j->has_some &= ~((uint64_t)1 << ++j->depth);
        j->at++;
    }
}

/* Returns true if there is one more element before the closing bracket.  Otherwise leaves the object or array. */
static bool next(struct json *j, char bracket) {
    uint64_t bit = (uint64_t)1 << j->depth;
    char c = json_peek(j);
    bool had_some = (j->has_some & bit) != 0;
    j->has_some |= bit;
    if (c == bracket) {
        j->depth--;
        j->at++;
        return false;
    }
    if (had_some) {
        if (c != ',') json_fail(j, j->at, "expected ',' or '%c'", bracket);
        else j->at++;
    }
    return j->status == PLUMB_OK;
}

bool json_element(struct json *j) { return next(j, ']'); }

bool json_member(struct json *j, struct json_text *key) {
    *key = (struct json_text) { "", 0 };
    if (!next(j, '}')) return false;
    *key = json_string(j, "a name in double quotes");
    if (json_peek(j) != ':') json_fail(j, j->at, "expected ':' after a name");
    else j->at++;
    return j->status == PLUMB_OK;
}

bool json_word(struct json *j, const char *word) {
    size_t n = strlen(word);
    if (j->n - j->at < n || memcmp(j->bytes + j->at, word, n) != 0) return false;
    j->at += n;
    return true;
}

void json_skip(struct json *j) {
    uint32_t outside = j->depth;
    uint64_t objects = 0;   /* bit d: depth d is an object */
    do {
        if (j->depth > outside) {
            struct json_text key;
            /* At the end of an object or array, `continue` goes to the condition of the loop. */
            if (objects >> j->depth & 1 ? !json_member(j, &key) : !json_element(j)) continue;
        }
        char c = json_peek(j);
        if (c == '{' || c == '[') {
            json_enter(j, c, "a value");
            uint64_t bit = (uint64_t)1 << j->depth;
            objects = c == '{' ? objects | bit : objects & ~bit;
        } else if (c == '"') {
            json_string(j, "a string");
        } else if (!json_word(j, "true") && !json_word(j, "false")) {
            json_number(j, "a value");
        }
    } while (j->depth > outside && j->status == PLUMB_OK);
}

/* ---- strings ---------------------------------------------------------------------------------------------------- */

/* Returns the value of four hexadecimal digits at `at`, or -1. */
static int32_t read_hex4(const struct json *j, size_t at) {
    int32_t value = 0;
    for (size_t i = at; i < at + 4; i++) {
        if (i >= j->n) return -1;
        const uint32_t digit = digit_value(j->bytes[i]);
        if (digit > 15) return -1;
        value = value * 16 + (int32_t)digit;
    }
    return value;
}

/* Decodes the escape at j->at, a backslash, to UTF-8.  Returns how many bytes it wrote.  An unpaired surrogate becomes
 * U+FFFD, and j->unpaired tells. */
static size_t read_escape(struct json *j, char out[4]) {
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *name = j->at + 1 < j->n ? memchr(names, j->bytes[j->at + 1], sizeof names - 1) : NULL;
    if (name) {
        out[0] = meanings[name - names];
        j->at += 2;
        return 1;
    }
    int32_t unit = j->at + 1 < j->n && j->bytes[j->at + 1] == 'u' ? read_hex4(j, j->at + 2) : -1;
    if (unit < 0) {
        json_fail(j, j->at, "expected an escape such as \\n or \\u0041");
        return 0;
    }
    j->at += 6;
    uint32_t cp = (uint32_t)unit;
    if (cp >= 0xd800 && cp < 0xe000) {
        bool pair = cp < 0xdc00 && j->n - j->at >= 6 && j->bytes[j->at] == '\\' && j->bytes[j->at + 1] == 'u';
        int32_t low = pair ? read_hex4(j, j->at + 2) : -1;
        if (low >= 0xdc00 && low < 0xe000) {
            j->at += 6;
            cp = 0x10000 + ((cp - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
        } else {
            cp = 0xfffd;
            j->unpaired = j->at - 5;
        }
    }
    return unicode_encode(cp, out);
}

struct json_text json_string(struct json *j, const char *what) {
    struct json_text none = { "", 0 };
    if (json_peek(j) != '"') {
        json_fail(j, j->at, "expected %s", what);
        return none;
    }
    size_t first = ++j->at, n = 0;
    for (size_t end = first; n == 0; end++) {   /* n: upper bound, since no escape grows when decoded */
        if (end >= j->n) {
            json_fail(j, j->n, "expected '\"' at the end of the string that begins at byte %zu", first - 1);
            return none;
        }
        if (j->bytes[end] == '"') n = end - first + 1;
        else if (j->bytes[end] == '\\') end++;
    }
    if (n > j->cap) {
        if (!ARRAY_RESIZE(j->text, n)) {
            j->status = error_set(j->err, PLUMB_ERROR_MEMORY, "out of memory: a string of %zu bytes", n);
            return none;
        }
        j->cap = n;
    }
    size_t n_text = 0;
    while (j->status == PLUMB_OK && j->bytes[j->at] != '"') {
        char c = j->bytes[j->at];
        if ((unsigned char)c < 0x20) {
            json_fail(j, j->at, "expected no control byte in a string; a line end is written \\n");
        } else if (c == '\\') {
            n_text += read_escape(j, j->text + n_text);
        } else {
            j->text[n_text++] = c;
            j->at++;
        }
    }
    if (j->status != PLUMB_OK) return none;
    j->at++;
    j->text[n_text] = 0;
    return (struct json_text) { j->text, n_text };
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

static bool is_digit(const struct json *j) {
    return j->at < j->n && j->bytes[j->at] >= '0' && j->bytes[j->at] <= '9';
}

static void skip_digits(struct json *j) {
    while (is_digit(j)) j->at++;
}

/* Reads digits, then perhaps "." and digits, then perhaps an exponent: the number of RFC 8259 without its sign. */
static double unsigned_number(struct json *j, const char *what) {
    size_t first = j->at;
    if (!is_digit(j)) {
        json_fail(j, j->at, "expected %s", what);
        return 0;
    }
    if (json_word(j, "0") && is_digit(j)) {
        json_fail(j, first, "expected a number without leading zeros");
        return 0;
    }
    skip_digits(j);
    if (json_word(j, ".")) {
        if (!is_digit(j)) json_fail(j, j->at, "expected a digit after the decimal point");
        skip_digits(j);
    }
    if (json_word(j, "e") || json_word(j, "E")) {
        if (!json_word(j, "-")) json_word(j, "+");
        if (!is_digit(j)) json_fail(j, j->at, "expected a digit of the exponent");
        skip_digits(j);
    }
    double value = 0;
    if (j->status == PLUMB_OK) decimal_read(j->bytes + first, j->at - first, &value);
    return value;
}

double json_number(struct json *j, const char *what) {
    char c = json_peek(j);
    size_t at = j->at;
    if (c == '"') {
        struct json_text word = json_string(j, what);
        if (json_is(word, "NaN")) return NAN;
        if (json_is(word, "Infinity")) return INFINITY;
        if (json_is(word, "-Infinity")) return -INFINITY;
        json_fail(j, at, "expected %s", what);
        return 0;
    }
    if (c == 0) json_fail(j, j->n, "expected %s", what);
    if (json_word(j, "null")) return NAN;
    bool negative = c == '-';
    if (negative) j->at++;
    if (json_word(j, "NaN") || json_word(j, "nan")) return NAN;
    if (json_word(j, "Infinity") || json_word(j, "inf")) return negative ? -INFINITY : INFINITY;
    double value = unsigned_number(j, what);
    return negative ? -value : value;
}

int64_t json_integer(struct json *j, int64_t min, int64_t max, const char *what) {
    json_peek(j);
    size_t at = j->at;
    double value = json_number(j, what);
    if (j->status != PLUMB_OK) return min;
    if (!(value >= (double)min && value <= (double)max) || value != floor(value)) {
        json_fail(j, at, "expected %s, an integer from %lld to %lld", what, (long long)min, (long long)max);
        return min;
    }
    return (int64_t)value;
}

/* A JSON reader (RFC 8259) that is asked for what comes next, and builds no tree.
 *
 *   json_begin; json_enter(j, '{'); while (json_member(j, &key)) ... json_number(j) or json_skip(j) ...; json_end
 *
 * The first failure is kept: from then on every call returns at once (0, "", false), so that only the end needs to ask
 * for the status.  Messages give the byte and what was expected there.  Beyond RFC 8259, since Python's json.dumps
 * and C's printf print them, NaN, Infinity, nan, inf and these with a minus are numbers; so are NaN, Infinity and
 * -Infinity as strings, and null is NaN.
 * Refused: more than 32 levels, trailing commas, comments, control bytes in strings, anything after the value.
 */
#ifndef PLUMB_DUMP_JSON_H
#define PLUMB_DUMP_JSON_H

#include "base/base.h"

struct json {
    const char *bytes;
    size_t n, at;
    uint32_t depth;
    uint64_t has_some;      /* bit d: the object or array at depth d has a member already */
    char *text;             /* the last string, decoded */
    size_t cap;
    struct error *err;
    plumb_status status;
};

struct json_text {
    const char *data;       /* n bytes of UTF-8 and a 0; valid until the next string or key is read */
    size_t n;
};

/* n bytes of a text.  err: where the message goes. */
void json_begin(struct json *j, const char *bytes, size_t n, struct error *err);
/* Only white space may be left.  Frees what the reader holds; returns the status of everything. */
plumb_status json_end(struct json *j);
/* Fails at byte `at`, with a printf-like sentence. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void json_fail(struct json *j, size_t at, const char *format, ...);

/* The first byte of the next value, '{', '[', '"', 't', 'f', 'n', '-', a digit..., or 0 at the end or after a failure.
 * j->at is the byte where it begins. */
char json_peek(struct json *j);
/* Goes into an object '{' or an array '['; what: for the message, "the list of tokens". */
void json_enter(struct json *j, char bracket, const char *what);
/* Next member, its key read; false at the end, which is left behind.  The value must be read or skipped. */
bool json_member(struct json *j, struct json_text *key);
/* Next element; the same. */
bool json_element(struct json *j);
/* A value of any kind. */
void json_skip(struct json *j);

struct json_text json_string(struct json *j, const char *what);
/* Correctly rounded. */
double json_number(struct json *j, const char *what);
/* An integer from min to max. */
int64_t json_integer(struct json *j, int64_t min, int64_t max, const char *what);

static inline bool json_is(struct json_text text, const char *word) {
    return text.n == strlen(word) && memcmp(text.data, word, text.n) == 0;
}

#endif

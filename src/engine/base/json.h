/* A JSON pull parser (RFC 8259).  The caller asks for what comes next; no tree is built.
 *
 *   json_begin; json_enter(j, '{'); while (json_member(j, &key)) ... json_number(j) or json_skip(j) ...; json_end
 *
 * The first failure is kept.  From then on every call returns at once (0, "", false; json_integer returns min), so only
 * the end needs to check the status.  Messages give the byte offset and what was expected there.
 *
 * Beyond RFC 8259, it accepts as numbers what Python's json.dumps and C's printf write: NaN, Infinity, nan, inf and
 * these with a minus.  It also accepts the strings "NaN", "Infinity" and "-Infinity", and null as NaN.
 * It refuses more than max_depth levels, trailing commas, comments, control bytes in strings and anything after the
 * value.  It does not check that strings are valid UTF-8.
 */
#ifndef PLUMB_BASE_JSON_H
#define PLUMB_BASE_JSON_H

#include "base/base.h"

struct json {
    const char *bytes;
    size_t n, at;
    uint32_t depth;
    uint32_t max_depth;     /* 32, unless the caller sets another number up to 63 after json_begin */
    uint64_t has_some;      /* bit d: the object or array at depth d has a member already */
    char *text;             /* the last string, decoded */
    size_t cap;
    size_t unpaired;        /* 1 + the offset of an unpaired surrogate, which was read as U+FFFD; 0: none */
    struct error *err;
    plumb_status status;
};

struct json_text {
    const char *data;       /* n bytes and a final 0; valid until the next string or key is read */
    size_t n;
};

/* Begins to read n bytes, which must stay valid until json_end.  err gets the message of a failure. */
void json_begin(struct json *j, const char *bytes, size_t n, struct error *err);
/* Fails if anything but white space is left.  Frees what the reader owns.  Returns the status of the whole. */
plumb_status json_end(struct json *j);
/* Fails at byte `at` with a printf-like message, unless it has already failed. */
PRINTF_LIKE(3, 4) void json_fail(struct json *j, size_t at, const char *format, ...);

/* Skips white space and returns the next byte.  It is the first one of a value ('{', '[', '"', 't', 'f', 'n', '-', a
 * digit...) or of punctuation; 0 at the end or after a failure.  j->at is its offset. */
char json_peek(struct json *j);
/* Enters an object '{' or an array '['.  what: names it in the message, "the list of tokens". */
void json_enter(struct json *j, char bracket, const char *what);
/* Reads the key of the next member; the caller must then read or skip its value.  Returns false at the end of the
 * object, which it leaves. */
bool json_member(struct json *j, struct json_text *key);
/* Moves to the next element of an array, which the caller must read or skip.  Returns false at the end, as
 * json_member. */
bool json_element(struct json *j);
/* Skips a value of any kind. */
void json_skip(struct json *j);
/* Moves past the word if it is what comes next, such as "true" after json_peek has returned 't'. */
bool json_word(struct json *j, const char *word);

struct json_text json_string(struct json *j, const char *what);
/* Reads a number, correctly rounded. */
double json_number(struct json *j, const char *what);
/* Reads an integer from min to max; fails for other numbers. */
int64_t json_integer(struct json *j, int64_t min, int64_t max, const char *what);

static inline bool json_is(struct json_text text, const char *word) {
    return text.n == strlen(word) && memcmp(text.data, word, text.n) == 0;
}

#endif

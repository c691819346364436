#include "trace/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void report_begin(struct report_writer *w, plumb_write *write, void *user) {
    w->write = write;
    w->user = user;
    w->n = 0;
}

void report_flush(struct report_writer *w) {
    if (w->n > 0) w->write(w->user, w->buf, w->n);
    w->n = 0;
}

void report_bytes(struct report_writer *w, const char *bytes, size_t n) {
    while (n > 0) {
        if (w->n == sizeof w->buf) report_flush(w);
        size_t room = sizeof w->buf - w->n, n_copy = n < room ? n : room;
        memcpy(w->buf + w->n, bytes, n_copy);
        w->n += n_copy;
        bytes += n_copy;
        n -= n_copy;
    }
}

void report_printf(struct report_writer *w, const char *format, ...) {
    for (bool again = true; again;) {   /* text that does not fit is formatted again into an empty buffer */
        size_t room = sizeof w->buf - w->n;
        va_list args;
        va_start(args, format);
        int n = vsnprintf(w->buf + w->n, room, format, args);
        va_end(args);
        again = n > 0 && (size_t)n >= room && w->n > 0;
        if (again) report_flush(w);
        else if (n > 0) w->n += (size_t)n < room ? (size_t)n : room - 1;
    }
}

void report_append(char *text, size_t size, size_t *n, const char *format, ...) {
    size_t room = size - *n;
    va_list args;
    va_start(args, format);
    int n_more = vsnprintf(text + *n, room, format, args);
    va_end(args);
    if (n_more > 0) *n += (size_t)n_more < room ? (size_t)n_more : room - 1;
}

size_t report_text(struct report_writer *w, const char *text, size_t n) {
    size_t n_shown = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t n_char = plumb_character(text + i, n - i, &cp);
        bool shown = n_char > 0 && plumb_is_plain(cp);
        if (shown) report_bytes(w, text + i, n_char);
        else report_printf(w, "\\x%02x", (unsigned)(uint8_t)text[i]);
        n_shown += shown ? 1 : 4;
        i += shown ? n_char : 1;
    }
    return n_shown;
}

void report_wrapped(struct report_writer *w, const char *text, size_t n, size_t indent) {
    enum { WIDTH = 80 };
    size_t column = indent;
    for (size_t at = 0, n_word; at < n; at += n_word + 1) {
        const char *end = memchr(text + at, ' ', n - at);
        n_word = end ? (size_t)(end - text) - at : n - at;
        if (column > indent && column + 1 + n_word > WIDTH) {
            report_printf(w, "\n%*s", (int)indent, "");
            column = indent;
        } else if (at > 0) {
            report_bytes(w, " ", 1);
            column++;
        }
        column += report_text(w, text + at, n_word);
    }
    report_bytes(w, "\n", 1);
}

void report_ranges(struct report_writer *w, const uint8_t *kinds, size_t n, uint8_t wanted) {
    const char *between = "";
    for (size_t first = 0, end; first < n; first = end + 1) {
        for (end = first; end < n && kinds[end] == wanted; end++);
        if (end == first) continue;
        report_printf(w, "%s%zu", between, first);
        if (end - first > 1) report_printf(w, "-%zu", end - 1);
        between = ", ";
    }
}

void report_json_string(struct report_writer *w, const char *text, size_t n) {
    report_bytes(w, "\"", 1);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t n_char = plumb_character(text + i, n - i, &cp);
        if (n_char == 0) report_bytes(w, "\xef\xbf\xbd", 3);
        else if (cp == '"' || cp == '\\') report_printf(w, "\\%c", (int)cp);
        else if (!plumb_is_plain(cp)) report_printf(w, "\\u%04x", (unsigned)cp);
        else report_bytes(w, text + i, n_char);
        i += n_char > 0 ? n_char : 1;
    }
    report_bytes(w, "\"", 1);
}

void report_json_text(struct report_writer *w, const char *before, const char *text) {
    report_bytes(w, before, strlen(before));
    report_json_string(w, text, strlen(text));
}

const char *report_number(struct report_number *buf, double value) {
    if (isfinite(value)) snprintf(buf->text, sizeof buf->text, "%.9g", value);
    return isfinite(value) ? buf->text : "null";
}

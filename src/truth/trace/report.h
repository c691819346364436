/* Formats and buffers reports and traces, and hands them to a plumb_write.  A plumb_write returns nothing, so only the
 * caller who supplied it knows whether writing failed.
 *
 * Names and texts come from files.  They are written with report_text and report_json_string, which let
 * only plain characters (plumb_is_plain) through to a terminal and write valid UTF-8 whatever they are given.
 */
#ifndef PLUMB_TRACE_REPORT_H
#define PLUMB_TRACE_REPORT_H

#include "base/base.h"
#include "plumb_truth.h"

struct report_writer {
    plumb_write *write;
    void *user;
    size_t n;           /* bytes buffered in buf */
    char buf[4096];
};

void report_begin(struct report_writer *w, plumb_write *write, void *user);
/* Hands over what is left in the buffer.  Must be the last call of every report. */
void report_flush(struct report_writer *w);

void report_bytes(struct report_writer *w, const char *bytes, size_t n);
/* Like printf.  Text longer than buf is cut. */
PRINTF_LIKE(2, 3) void report_printf(struct report_writer *w, const char *format, ...);
/* Appends to a text of *n bytes and a 0 in an array of `size`.  What does not fit is cut. */
PRINTF_LIKE(4, 5) void report_append(char *text, size_t size, size_t *n, const char *format, ...);
/* Writes n bytes for a terminal.  Each byte of a character that is not plain, or of invalid UTF-8, becomes \xNN.
 * Returns how many characters it wrote. */
size_t report_text(struct report_writer *w, const char *text, size_t n);
/* Like report_text, but breaks the text at spaces into lines and ends the last line.  A line has at most 80 columns,
 * unless a single word needs more.  The caller has already written `indent` columns of the first line; each further
 * line begins with as many spaces. */
void report_wrapped(struct report_writer *w, const char *text, size_t n, size_t indent);
/* Writes "0-4, 6": the places of `wanted` in kinds (n). */
void report_ranges(struct report_writer *w, const uint8_t *kinds, size_t n, uint8_t wanted);
/* Writes n bytes as a JSON string with its quotes.  Characters that are not plain become \uNNNN, invalid UTF-8 becomes
 * U+FFFD. */
void report_json_string(struct report_writer *w, const char *text, size_t n);
/* Writes what comes before a text, and the text as a JSON string. */
void report_json_text(struct report_writer *w, const char *before, const char *text);
/* JSON_NUMBER: a number as JSON has it, for report_printf; with 9 digits, enough to restore an f32.  NaN and infinity,
 * which JSON does not have, become null. */
struct report_number { char text[32]; };
const char *report_number(struct report_number *buf, double value);
#define JSON_NUMBER(value) report_number(&(struct report_number){ "" }, value)

#endif

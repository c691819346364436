/* What all reports are written with: pieces of formatted text and JSON, gathered and handed to a plumb_write.
 *
 * Names and texts come from files: they are shown through report_text and report_json_string, which let no control
 * byte through to a terminal and write valid UTF-8 whatever they are given.
 */
#ifndef PLUMB_TRACE_REPORT_H
#define PLUMB_TRACE_REPORT_H

#include "base/base.h"

struct report_writer {
    plumb_write *write;
    void *user;
    size_t n;           /* bytes gathered in buf */
    char buf[4096];
};

void report_begin(struct report_writer *w, plumb_write *write, void *user);
/* Hands over what is left; the last call of every report. */
void report_flush(struct report_writer *w);

void report_bytes(struct report_writer *w, const char *bytes, size_t n);
/* printf-like; what is longer than buf is cut. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void report_printf(struct report_writer *w, const char *format, ...);
/* n bytes for a terminal: control characters and broken UTF-8 as \xNN.  Returns how many characters were written. */
size_t report_text(struct report_writer *w, const char *text, size_t n);
/* The same, its words in lines of at most 80 columns; the first line begins at column indent, where the others are
 * indented to.  Ends the line. */
void report_wrapped(struct report_writer *w, const char *text, size_t n, size_t indent);
/* n bytes as a JSON string with its quotes; broken UTF-8 becomes U+FFFD. */
void report_json_string(struct report_writer *w, const char *text, size_t n);
/* 9 digits, enough to give an f32 back; NaN and infinity, which JSON lacks, as null. */
void report_json_number(struct report_writer *w, double value);

#endif

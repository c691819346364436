/* A text that grows: warnings and reports. */
#ifndef PLUMB_GRAMMAR_TEXT_H
#define PLUMB_GRAMMAR_TEXT_H

#include "base/base.h"

/* Begins as {0}.  data has a 0 after its n bytes; NULL while nothing was added.  After a failed allocation, failed is
 * set and nothing is added any more, so that it is checked once, at the end. */
struct grammar_text {
    char *data;
    size_t n, cap;
    bool failed;
};

void grammar_text_add(struct grammar_text *text, const char *bytes, size_t n);
/* Appends as printf does. */
PRINTF_LIKE(2, 3) void grammar_text_print(struct grammar_text *text, const char *format, ...);
void grammar_text_free(struct grammar_text *text);

#endif

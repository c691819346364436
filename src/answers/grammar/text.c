#include "grammar/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void grammar_text_add(struct grammar_text *text, const char *bytes, size_t n) {
    if (text->failed) return;
    text->failed = !ARRAY_RESERVE(text->data, text->n, (uint64_t)n + 1, &text->cap);
    if (text->failed) return;
    memcpy(text->data + text->n, bytes, n);
    text->n += n;
    text->data[text->n] = 0;
}

void grammar_text_print(struct grammar_text *text, const char *format, ...) {
    char buf[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(buf, sizeof buf, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof buf) {
        grammar_text_add(text, buf, (size_t)n);
        return;
    }
    char *longer = n < 0 ? NULL : malloc((size_t)n + 1);
    if (!longer) {
        text->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(longer, (size_t)n + 1, format, args);
    va_end(args);
    grammar_text_add(text, longer, (size_t)n);
    free(longer);
}

void grammar_text_free(struct grammar_text *text) {
    free(text->data);
    *text = (struct grammar_text){0};
}

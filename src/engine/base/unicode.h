/* UTF-8, and what tokenizers ask of characters (Unicode 15.1, the version of llama.cpp's tables). */
#ifndef PLUMB_UNICODE_H
#define PLUMB_UNICODE_H

#include "base/base.h"

enum unicode_class {    /* general category: L*, N*, M*, P*, S*, C* without Cn; OTHER is everything else */
    UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_MARK, UNICODE_PUNCTUATION, UNICODE_SYMBOL, UNICODE_CONTROL
};

enum unicode_class unicode_class_of(uint32_t cp);
/* The White_Space property (25 code points). */
bool unicode_is_space(uint32_t cp);
/* Returns the (first) code point of the lower case; cp if it has none. */
uint32_t unicode_lower(uint32_t cp);
/* Returns the first code point of the canonical decomposition: a letter without its accents; cp if it has none. */
uint32_t unicode_first(uint32_t cp);

/* Decodes one code point from the n >= 1 bytes at s and returns how many bytes it took.  The rules are llama.cpp's, so
 * that the ids are the same.  A lead byte followed by its continuation bytes is decoded whatever its value (overlong
 * forms and surrogates included); any other byte is U+FFFD on its own.  Values above U+10FFFF, on which llama.cpp
 * throws, are U+FFFD byte by byte as well. */
size_t unicode_decode(const char *s, size_t n, uint32_t *cp);
/* Writes a code point <= 0x10FFFF as 1..4 bytes and returns how many. */
size_t unicode_encode(uint32_t cp, char out[4]);
/* Returns the length of a character by the high bits of its first byte alone; 1 for continuation bytes. */
static inline size_t unicode_length(char first) {
    uint8_t b = (uint8_t)first;
    return b < 0xc0 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

struct unicode_run { uint32_t first; int32_t value; };   /* unicode_tables.c */
extern const uint32_t unicode_ranges_count, unicode_lowers_count, unicode_firsts_count;
extern const uint32_t unicode_ranges[];
extern const struct unicode_run unicode_lowers[], unicode_firsts[];

#endif

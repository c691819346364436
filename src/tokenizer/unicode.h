/* UTF-8 and the character classes that pre-tokenizers use (Unicode 15.1, the version of llama.cpp's tables). */
#ifndef PLUMB_UNICODE_H
#define PLUMB_UNICODE_H

#include "base/base.h"

enum unicode_class {    /* general category: L*, N*, M*, P*, S*; OTHER is everything else */
    UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_MARK, UNICODE_PUNCTUATION, UNICODE_SYMBOL
};

enum unicode_class unicode_class_of(uint32_t cp);
/* The White_Space property (25 code points). */
bool unicode_is_space(uint32_t cp);

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

extern const uint32_t unicode_range_count;
extern const uint32_t unicode_ranges[];

#endif

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

/* The tables of unicode_tables.c, with as few bytes as these numbers need. */
extern const uint32_t unicode_ranges_count, unicode_lowers_count, unicode_firsts_count;
extern const uint8_t unicode_ranges[][3];
/* A key of 29 bits and a signed value of 19, whose high three bits are those of key_high. */
struct unicode_run { uint16_t key_low, key_high, value_low; };
extern const struct unicode_run unicode_lowers[], unicode_firsts[];
static inline uint32_t unicode_key(const struct unicode_run *run) {
    return run->key_low | (uint32_t)(run->key_high & 0x1fff) << 16;
}
static inline int32_t unicode_value(const struct unicode_run *run) {
    int32_t high = run->key_high >> 13;
    return (int32_t)run->value_low + ((high ^ 4) - 4) * 65536;
}
/* Range i < unicode_ranges_count of code points of one class. */
struct unicode_range { uint32_t first; enum unicode_class class; };
static inline struct unicode_range unicode_range(uint32_t i) {
    const uint8_t *r = unicode_ranges[i];
    uint32_t word = r[0] | (uint32_t)r[1] << 8 | (uint32_t)r[2] << 16;
    return (struct unicode_range) { word >> 3, (enum unicode_class)(word & 7) };
}

#endif

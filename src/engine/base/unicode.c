/* Lookups in the generated ranges, and UTF-8, where broken bytes are decoded as llama.cpp does. */
#include "base/unicode.h"

enum unicode_class unicode_class_of(uint32_t cp) {
    uint32_t low = 0, high = unicode_ranges_count;   /* ranges[low] begins at or before cp, ranges[high] after it */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (unicode_range(middle).first <= cp) low = middle;
        else high = middle;
    }
    return unicode_range(low).class;
}

bool unicode_is_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r');
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

/* Returns the last run that begins at or before cp; the first run if none does. */
static const struct unicode_run *find_run(const struct unicode_run *runs, uint32_t n, uint32_t cp) {
    uint32_t low = 0, high = n;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (unicode_key(&runs[middle]) >> 8 <= cp) low = middle;
        else high = middle;
    }
    return &runs[low];
}

uint32_t unicode_lower(uint32_t cp) {
    const struct unicode_run *run = find_run(unicode_lowers, unicode_lowers_count, cp);
    uint32_t key = unicode_key(run), at = cp - (key >> 8), stride = key >> 7 & 1, n = key & 127;
    bool has = at >> stride < n && (at & stride) == 0;
    return has ? (uint32_t)((int32_t)cp + unicode_value(run)) : cp;
}

uint32_t unicode_first(uint32_t cp) {
    if (cp >= 0xac00 && cp <= 0xd7a3) return 0x1100 + (cp - 0xac00) / 588;   /* a Hangul syllable's first letter */
    const struct unicode_run *run = find_run(unicode_firsts, unicode_firsts_count, cp);
    return cp - (unicode_key(run) >> 8) < (unicode_key(run) & 255) ? (uint32_t)unicode_value(run) : cp;
}

size_t unicode_decode(const char *s, size_t n, uint32_t *cp) {
    static const uint8_t lead_bits[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint8_t first = (uint8_t)s[0];
    size_t length = unicode_length(s[0]);
    bool is_lead = first < 0x80 || (first >= 0xc0 && first < 0xf8);
    *cp = 0xfffd;
    if (!is_lead || length > n) return 1;
    uint32_t value = first & lead_bits[length];
    for (size_t i = 1; i < length; i++) {
        if (((uint8_t)s[i] & 0xc0) != 0x80) return 1;
        value = value << 6 | ((uint8_t)s[i] & 0x3f);
    }
    if (value > 0x10ffff) return 1;
    *cp = value;
    return length;
}

size_t unicode_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t length = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length - 1; i > 0; i--, cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3f));
    out[0] = (char)(lead[length] | cp);
    return length;
}

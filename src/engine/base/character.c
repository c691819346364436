#include "base/base.h"

size_t plumb_character(const char *text, size_t n, uint32_t *cp) {
    const uint8_t *s = (const uint8_t *)text;
    *cp = s[0];
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    const size_t length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (length > n) return 0;
    *cp = s[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *cp = *cp << 6 | (s[i] & 0x3fu);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};   /* overlong forms are below it */
    return *cp >= least[length] && *cp <= 0x10ffff && (*cp < 0xd800 || *cp > 0xdfff) ? length : 0;
}

bool plumb_is_plain(uint32_t cp) {
    bool is_control = cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
    bool is_order = cp == 0x61c || cp == 0x200e || cp == 0x200f || (cp >= 0x202a && cp <= 0x202e)
                    || (cp >= 0x2066 && cp <= 0x2069);
    return !is_control && !is_order && cp != 0x2028 && cp != 0x2029;
}

void plumb_make_plain(char *text) {
    uint32_t cp;
    for (size_t at = 0, n = strlen(text), step; at < n; at += step) {
        step = plumb_character(text + at, n - at, &cp);
        if (step > 0 && plumb_is_plain(cp)) continue;
        if (step == 0) step = 1;
        memset(text + at, '?', step);
    }
}

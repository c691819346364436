/* plumb_text_push and plumb_text_flush: tokens may end inside a character, but the output has whole characters only.
 *
 * Broken bytes are handled as Unicode recommends and the WHATWG decoder does: the longest start of a character that
 * cannot be continued becomes one U+FFFD, and the byte that broke it is decoded again.  So the text does not depend on
 * how it is cut into pieces, and equals what TextDecoder makes of the joined bytes.
 */
#include "plumb.h"

#include <string.h>

/* Returns true if held[0..n) is the start of a character or a whole one.  *need: how many bytes the character has. */
static bool is_start(const uint8_t *held, size_t n, size_t *need) {
    uint8_t first = held[0];
    *need = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (first >= 0x80 && (first < 0xc2 || first > 0xf4)) return false;
    /* the range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF */
    uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (n > 1 && (held[1] < low || held[1] > high)) return false;
    for (size_t i = 2; i < n; i++) {
        if (held[i] < 0x80 || held[i] > 0xbf) return false;
    }
    return true;
}

/* Appends a character to the n bytes so far and returns their new number.  A character that does not fit is only
 * counted, and so are all after it, because *cap becomes 0. */
static size_t put(char *buf, size_t *cap, size_t n, const void *character, size_t n_bytes) {
    if (n <= *cap && n_bytes <= *cap - n) memcpy(buf + n, character, n_bytes);
    else *cap = 0;
    return n + n_bytes;
}

static const char replacement[] = "\xef\xbf\xbd";

size_t plumb_text_push(plumb_text *text, const char *piece, size_t n, char *buf, size_t cap) {
    size_t out = 0, need;
    for (size_t i = 0; i < n; i++) {
        text->held[text->n_held++] = (uint8_t)piece[i];
        if (!is_start(text->held, text->n_held, &need)) {
            out = put(buf, &cap, out, replacement, 3);
            if (text->n_held > 1) i--;   /* this byte broke the character; it may start the next one */
            text->n_held = 0;
        } else if (text->n_held == need) {
            out = put(buf, &cap, out, text->held, need);
            text->n_held = 0;
        }
    }
    return out;
}

size_t plumb_text_flush(plumb_text *text, char *buf, size_t cap) {
    size_t out = text->n_held > 0 ? put(buf, &cap, 0, replacement, 3) : 0;
    text->n_held = 0;
    return out;
}

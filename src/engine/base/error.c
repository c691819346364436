#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

plumb_status error_set(struct error *err, plumb_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (vsnprintf(err->message, sizeof err->message, format, args) < 0) err->message[0] = 0;
    va_end(args);
    /* Keeps the message a single line of text, whatever a file has put into it. */
    plumb_make_plain(err->message);
    return err->status = status;
}

const char *show_bytes(struct shown *buf, const void *bytes, size_t n) {
    static const char hex[] = "0123456789abcdef";
    const uint8_t *b = bytes;
    const size_t limit = 64;   /* 64 * "\xNN" + "..." + 0 = 260 <= sizeof buf->text */
    char *out = buf->text;
    for (size_t i = 0; i < n && i < limit; i++) {
        if (b[i] >= 0x20 && b[i] < 0x7f) {
            *out++ = (char)b[i];
        } else {
            *out++ = '\\';
            *out++ = 'x';
            *out++ = hex[b[i] >> 4];
            *out++ = hex[b[i] & 15];
        }
    }
    if (n > limit) {
        memcpy(out, "...", 3);
        out += 3;
    }
    *out = 0;
    return buf->text;
}

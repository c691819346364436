#include "base/transfer.h"

#include <stdarg.h>
#include <stdio.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are passed as they are in memory");

plumb_status transfer_fail(struct transfer *t, plumb_status status, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!t->tag) return error_set(t->err, status, "byte %llu: %s", (unsigned long long)t->at, text);
    return error_set(t->err, status, "byte %llu, in section %.4s %u from byte %llu: %s", (unsigned long long)t->at,
                     t->tag, t->index, (unsigned long long)t->begin, text);
}

/* Passes bytes that are not counted as contents of a section. */
static plumb_status move(struct transfer *t, void *bytes, size_t n) {
    size_t n_read = t->read && n > 0 ? t->read(t->user, bytes, n) : n;
    if (n_read < n) {
        t->at += n_read;
        return transfer_fail(t, PLUMB_ERROR_TRUNCATED, "the file ends here, and %zu more bytes must follow",
                             n - n_read);
    }
    if (t->write) t->write(t->user, bytes, n);
    if (t->write || t->read) digest_update(&t->digest, bytes, n);
    t->at += n;
    return PLUMB_OK;
}

plumb_status transfer_bytes(struct transfer *t, void *bytes, size_t n) {
    if (t->read && t->tag && n > t->left) {
        return transfer_fail(t, PLUMB_ERROR_METADATA, "the section has %llu more bytes, but %zu are needed",
                             (unsigned long long)t->left, n);
    }
    PLUMB_TRY(move(t, bytes, n));
    t->left -= n;
    return PLUMB_OK;
}

plumb_status transfer_skip(struct transfer *t, uint64_t n) {
    char dropped[256];
    for (uint64_t piece; n > 0; n -= piece) {
        piece = n < sizeof dropped ? n : sizeof dropped;
        PLUMB_TRY(transfer_bytes(t, dropped, (size_t)piece));
    }
    return PLUMB_OK;
}

plumb_status transfer_section(struct transfer *t, const char *tag, uint32_t index, transfer_body *body, void *of) {
    struct { char tag[4]; uint32_t index; uint64_t n; } head = { .index = index };
    memcpy(head.tag, tag, sizeof head.tag);
    if (!t->read) {
        struct transfer count = { .err = t->err };
        PLUMB_TRY(body(of, &count));
        head.n = count.at;
    }
    digest_begin(&t->digest);
    PLUMB_TRY(move(t, &head, sizeof head));
    if (memcmp(head.tag, tag, sizeof head.tag) != 0 || head.index != index) {
        struct shown shown;
        return transfer_fail(t, PLUMB_ERROR_METADATA, "a section %.4s %u must begin %zu bytes before, not \"%s\" %u",
                             tag, index, sizeof head, show_bytes(&shown, head.tag, sizeof head.tag), head.index);
    }
    t->tag = tag;
    t->index = index;
    t->begin = t->at - sizeof head;
    t->left = head.n;
    PLUMB_TRY(body(of, t));
    if (t->read && t->left > 0) {
        return transfer_fail(t, PLUMB_ERROR_METADATA, "the section has %llu bytes more than it needs",
                             (unsigned long long)t->left);
    }
    uint64_t is = digest_end(&t->digest), stored = is;
    PLUMB_TRY(move(t, &stored, sizeof stored));
    if (stored != is) {
        return transfer_fail(t, PLUMB_ERROR_METADATA, "its bytes have the digest %016llx, but it says %016llx",
                             (unsigned long long)is, (unsigned long long)stored);
    }
    t->tag = NULL;
    return PLUMB_OK;
}

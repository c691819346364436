/* A file of sections that is written, read or only counted, by the same code: transfer_bytes either writes bytes or
 * replaces them by those that it reads, so that a layout is described once.
 *
 *   section   tag, 4 characters | index, u32 | length of the contents, u64 | contents | XXH64 of all of this, u64
 *
 * Numbers are little-endian.  When a file is read, each length is checked before it is used, and the contents must be
 * checked by whoever reads them: the digest detects accidents only.  After a failure no more calls may follow.
 */
#ifndef PLUMB_BASE_TRANSFER_H
#define PLUMB_BASE_TRANSFER_H

#include "base/base.h"
#include "base/digest.h"

struct transfer {
    plumb_write *write;   /* one of the two, or none: bytes are counted */
    plumb_read *read;
    void *user;
    struct error *err;
    uint64_t at;          /* bytes so far */
    /* The section that is open. */
    const char *tag;
    uint32_t index;
    uint64_t begin, left; /* where it begins, and bytes of its contents that are left */
    struct digest digest;
};

static inline bool transfer_reads(const struct transfer *t) { return t->read != NULL; }
static inline bool transfer_counts(const struct transfer *t) { return !t->read && !t->write; }

/* Passes n bytes.  PLUMB_ERROR_TRUNCATED: the file ends before; PLUMB_ERROR_METADATA: the section does. */
plumb_status transfer_bytes(struct transfer *t, void *bytes, size_t n);
/* Reads n bytes that nobody needs, or counts as many; they are not written. */
plumb_status transfer_skip(struct transfer *t, uint64_t n);
static inline plumb_status transfer_u32(struct transfer *t, uint32_t *x) { return transfer_bytes(t, x, sizeof *x); }

/* Passes a section, whose contents body passes.  body is called twice when a file is written: first to count.  tag: 4
 * characters that stay. */
typedef plumb_status transfer_body(void *of, struct transfer *t);
plumb_status transfer_section(struct transfer *t, const char *tag, uint32_t index, transfer_body *body, void *of);
/* Sets the error: the section in which it is, the offset, and the message, printf-like. */
PRINTF_LIKE(3, 4) plumb_status transfer_fail(struct transfer *t, plumb_status status, const char *format, ...);

#endif

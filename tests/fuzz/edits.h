/* Inputs that change a right file, so that a small input stands for a large file.  Each edit has 8 bytes:
 *
 *   offset u32 | what u8 | value u8, u8, u8
 */
#ifndef PLUMB_FUZZ_EDITS_H
#define PLUMB_FUZZ_EDITS_H

#include "../bytes.h"
#include "base/base.h"

/* Most edits of a model change its weights, and few of them do anything: an edit with this bit of `what` is within the
 * first EDIT_BEGIN bytes. */
enum { EDIT_OF_BEGIN = 0x80, EDIT_BEGIN = 4096 };

static inline void edit_bytes(struct bytes *b, const uint8_t *edits, size_t n) {
    for (size_t i = 0; i + 8 <= n && b->n > 0; i += 8) {
        bool is_begin = edits[i + 4] & EDIT_OF_BEGIN && b->n > EDIT_BEGIN;
        size_t at = load_u32(edits + i) % (is_begin ? EDIT_BEGIN : b->n), left = b->n - at;
        const uint8_t *value = edits + i + 5;
        switch (edits[i + 4] % 5) {
        case 0: b->data[at] = value[0]; break;
        case 1: b->data[at] ^= value[0]; break;
        case 2: memcpy(b->data + at, value, left < 3 ? left : 3); break;
        case 3: b->n = at; break;
        default: memset(b->data + at, value[0], left < value[1] ? left : value[1]);
        }
    }
}

#endif

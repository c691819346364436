/* XXH64 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md) with seed 0.  It detects bytes that differ from those
 * that were digested before: it protects against accidents, not against an attacker. */
#ifndef PLUMB_BASE_DIGEST_H
#define PLUMB_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* The digest of some bytes, of which more may come. */
struct digest {
    uint64_t lanes[4];
    uint64_t total;       /* bytes so far */
    uint64_t rest[4];     /* the last total % 32 bytes, not yet hashed into the lanes */
};

void digest_begin(struct digest *digest);
void digest_update(struct digest *digest, const void *bytes, size_t n);
/* Returns the digest of all bytes so far.  More may follow afterwards. */
uint64_t digest_end(const struct digest *digest);

#endif

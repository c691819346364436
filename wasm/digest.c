/* XXH64 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md) with seed 0.  It detects bytes of a stored copy that
 * differ from the downloaded ones: it protects against accidents, not against an attacker.  It is part of the module
 * because bytes are read straight into the module's memory, where they are hashed in place, at several GB/s. */
#include "plumb.h"

#include <string.h>

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

/* The state of a digest: 80 bytes, which engine.js allocates. */
struct plumb_wasm_digest {
    uint64_t lanes[4];
    uint64_t total;       /* bytes so far */
    uint64_t rest[4];     /* the last total % 32 bytes, not yet hashed into the lanes */
    uint64_t unused;
};
_Static_assert(sizeof(struct plumb_wasm_digest) == 80, "engine.js allocates this much");

void plumb_wasm_digest_begin(struct plumb_wasm_digest *digest);
void plumb_wasm_digest_update(struct plumb_wasm_digest *digest, const unsigned char *data, size_t n);
void plumb_wasm_digest_end(const struct plumb_wasm_digest *digest, unsigned char out[8]);

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

static uint64_t load64(const unsigned char *p) {
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

static uint64_t round64(uint64_t lane, uint64_t word) { return rotate(lane + word * P2, 31) * P1; }

void plumb_wasm_digest_begin(struct plumb_wasm_digest *digest) {
    *digest = (struct plumb_wasm_digest){.lanes = {P1 + P2, P2, 0, 0 - P1}};
}

/* Hashes n bytes, a multiple of 32, into the lanes. */
static void take(uint64_t lanes[4], const unsigned char *p, size_t n) {
    uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
    for (const unsigned char *end = p + n; p < end; p += 32) {
        a = round64(a, load64(p));
        b = round64(b, load64(p + 8));
        c = round64(c, load64(p + 16));
        d = round64(d, load64(p + 24));
    }
    lanes[0] = a;
    lanes[1] = b;
    lanes[2] = c;
    lanes[3] = d;
}

void plumb_wasm_digest_update(struct plumb_wasm_digest *digest, const unsigned char *data, size_t n) {
    const size_t n_rest = digest->total % 32;
    unsigned char *rest = (unsigned char *)digest->rest;
    digest->total += n;
    if (n_rest) {
        const size_t more = n < 32 - n_rest ? n : 32 - n_rest;
        memcpy(rest + n_rest, data, more);
        data += more;
        n -= more;
        if (n_rest + more < 32) return;
        take(digest->lanes, rest, 32);
    }
    const size_t whole = n & ~(size_t)31;
    take(digest->lanes, data, whole);
    memcpy(rest, data + whole, n - whole);
}

/* Writes the digest of all bytes so far, the most significant byte first.  More bytes may follow afterwards. */
void plumb_wasm_digest_end(const struct plumb_wasm_digest *digest, unsigned char out[8]) {
    const uint64_t *lanes = digest->lanes;
    uint64_t h = P5;
    if (digest->total >= 32) {
        h = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
        for (int i = 0; i < 4; i++) h = (h ^ round64(0, lanes[i])) * P1 + P4;
    }
    h += digest->total;
    const unsigned char *p = (const unsigned char *)digest->rest;
    size_t n = digest->total % 32;
    for (; n >= 8; n -= 8, p += 8) h = rotate(h ^ round64(0, load64(p)), 27) * P1 + P4;
    if (n >= 4) {
        uint32_t word;
        memcpy(&word, p, 4);
        h = rotate(h ^ word * P1, 23) * P2 + P3;
        n -= 4;
        p += 4;
    }
    for (; n > 0; n--, p++) h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    h ^= h >> 32;
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(h >> (56 - 8 * i));
}

/* Compiled for speed. */
#include "base/digest.h"

#include "base/base.h"

_Static_assert(sizeof(struct digest) == 72, "engine.js allocates this much");

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

static uint64_t round64(uint64_t lane, uint64_t word) { return rotate(lane + word * P2, 31) * P1; }

void digest_begin(struct digest *digest) {
    *digest = (struct digest){.lanes = {P1 + P2, P2, 0, 0 - P1}};
}

/* Hashes n bytes, a multiple of 32, into the lanes. */
static void take(uint64_t lanes[4], const unsigned char *p, size_t n) {
    uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
    for (const unsigned char *end = p + n; p < end; p += 32) {
        a = round64(a, load_u64(p));
        b = round64(b, load_u64(p + 8));
        c = round64(c, load_u64(p + 16));
        d = round64(d, load_u64(p + 24));
    }
    lanes[0] = a;
    lanes[1] = b;
    lanes[2] = c;
    lanes[3] = d;
}

void digest_update(struct digest *digest, const void *bytes, size_t n) {
    const unsigned char *data = bytes;
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

uint64_t digest_end(const struct digest *digest) {
    const uint64_t *lanes = digest->lanes;
    uint64_t h = P5;
    if (digest->total >= 32) {
        h = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
        for (int i = 0; i < 4; i++) h = (h ^ round64(0, lanes[i])) * P1 + P4;
    }
    h += digest->total;
    const unsigned char *p = (const unsigned char *)digest->rest;
    size_t n = digest->total % 32;
    for (; n >= 8; n -= 8, p += 8) h = rotate(h ^ round64(0, load_u64(p)), 27) * P1 + P4;
    if (n >= 4) {
        h = rotate(h ^ load_u32(p) * P1, 23) * P2 + P3;
        n -= 4;
        p += 4;
    }
    for (; n > 0; n--, p++) h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

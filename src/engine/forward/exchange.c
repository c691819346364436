/* What a pass keeps of its tokens, as sections of a saved session: K and V, the states of recurrent layers, and which
 * adapters inside the file they switch on.  The same code writes and reads them (base/transfer.h). */
#include "forward/sequence.h"

/* ---- K and V ----------------------------------------------------------------------------------------------------- */

/* Whether the dots of n_tile tiles of K with any query fit 32 bits: the norm of each K is below 2^15.5. */
static bool are_keys(const int16_t *codes, size_t n_tile, uint32_t n_row) {
    for (size_t tile = 0; tile < n_tile; tile++) {
        uint64_t squares[ATTN_TILE] = { 0 };
        for (size_t i = 0; i < n_row; i++) {
            for (size_t p = 0; p < ATTN_TILE; p++) {
                int64_t code = codes[(i / 2 * ATTN_TILE + p) * 2 + i % 2];
                squares[p] += (uint64_t)(code * code);
            }
        }
        for (size_t p = 0; p < ATTN_TILE; p++) {
            if (squares[p] >= UINT64_C(1) << 31) return false;
        }
        codes += (size_t)ATTN_TILE * n_row;
    }
    return true;
}

/* Whether the sums of n codes of V, with weights, fit 32 bits: |v| < 2^15. */
static bool are_values(const int16_t *codes, size_t n) {
    bool ok = true;
    for (size_t i = 0; i < n; i++) ok = ok && codes[i] != INT16_MIN;
    return ok;
}

/* The positions begin .. end - 1 of the block at p, end <= ATTN_BLOCK.  is_kept: false if the cache has no room for
 * them. */
struct block { uint32_t p, begin, end; bool is_kept; };

/* The position in its block of code i of a slice whose rows have n_row elements, see kv_cache.h. */
static uint32_t position_of(const struct kv_cache *cache, bool is_v, size_t i, uint32_t n_row) {
    if (cache->type == PLUMB_KV_F32) return (uint32_t)(i / n_row);
    if (is_v) return (uint32_t)(i / (2 * ATTN_TILE) % (ATTN_BLOCK / 2) * 2 + i % 2);
    return (uint32_t)(i / ((size_t)ATTN_TILE * n_row) * ATTN_TILE + i / 2 % ATTN_TILE);
}

/* Writes n codes, with zeros instead of those of positions outside the block's begin .. end - 1, which are of tokens
 * that are lost or forgotten.  The cache stays as it is, as other sequences may have these tokens. */
static plumb_status write_held(const struct kv_cache *cache, struct transfer *t, bool is_v, struct block b,
                               const uint8_t *codes, size_t n, uint32_t n_row) {
    enum { PIECE = 512 };
    uint8_t piece[PIECE * sizeof(float)];
    size_t width = cache->format.bits / 8;
    for (size_t at = 0, n_piece; at < n; at += n_piece) {
        n_piece = n - at < PIECE ? n - at : PIECE;
        memcpy(piece, codes + kv_cache_size(cache, at), kv_cache_size(cache, n_piece));
        for (size_t i = 0; i < n_piece; i++) {
            uint32_t p = position_of(cache, is_v, at + i, n_row);
            if (p >= b.begin && p < b.end) continue;
            if (width > 0) memset(piece + i * width, 0, width);
            else piece[i / 32 * 16 + i % 16] &= i % 32 < 16 ? 0xf0 : 0x0f;
        }
        PLUMB_TRY(transfer_bytes(t, piece, kv_cache_size(cache, n_piece)));
    }
    return PLUMB_OK;
}

/* The same for scales of the block's first n positions. */
static plumb_status write_held_scales(const struct kv_cache *cache, struct transfer *t, struct block b,
                                      const uint8_t *scales, uint32_t n) {
    uint8_t held[ATTN_BLOCK * sizeof(float)] = { 0 };
    size_t size = cache->format.scale_bytes;
    memcpy(held + b.begin * size, scales + b.begin * size, (b.end - b.begin) * size);
    return transfer_bytes(t, held, n * size);
}

/* Passes the positions of a block of slice j of K or V. */
static plumb_status pass_slice(struct kv_cache *cache, struct transfer *t, uint32_t head, uint32_t j, bool is_v,
                               struct block b) {
    struct kv_tile tile = (is_v ? kv_cache_v_block : kv_cache_k_tile)(cache, head, j, b.p);
    uint32_t n_row = is_v ? cache->v_row / cache->n_v_slice : cache->k_row / cache->n_k_slice;
    uint32_t n_scale = is_v ? b.end : kv_round_up(b.end, ATTN_TILE);
    size_t n_tile = (b.end - 1) / tile.n + 1, bytes = n_tile * tile.bytes;
    size_t n_code = n_tile * tile.n * n_row, scale_bytes = n_scale * cache->format.scale_bytes;
    bool is_part = t->write && (b.begin > 0 || b.end < n_tile * tile.n);
    if (!b.is_kept) return transfer_skip(t, bytes + scale_bytes);
    if (is_part) PLUMB_TRY(write_held(cache, t, is_v, b, tile.codes, n_code, n_row));
    else PLUMB_TRY(transfer_bytes(t, tile.codes, bytes));
    const int16_t *wide = (const int16_t *)(const void *)tile.codes;
    bool is_wide = cache->type == PLUMB_KV_I16 && transfer_reads(t);
    if (is_wide && !(is_v ? are_values(wide, n_code) : are_keys(wide, n_tile, n_row))) {
        return transfer_fail(t, PLUMB_ERROR_METADATA, "the codes of %s of head %u from position %u on are too large",
                             is_v ? "V" : "K", head, b.p);
    }
    if (cache->type == PLUMB_KV_F32) return PLUMB_OK;
    uint8_t *scales = (is_v ? kv_cache_v_scale : kv_cache_k_scale)(cache, head, j, b.p);
    if (is_part) return write_held_scales(cache, t, b, scales, n_scale);
    return transfer_bytes(t, scales, scale_bytes);
}

plumb_status kv_cache_exchange(struct kv_cache *cache, struct transfer *t, uint32_t n_past, uint32_t first) {
    uint32_t from = n_past > 0 ? cache->n_lost : 0, lost = 0;
    PLUMB_TRY(transfer_u32(t, &from));
    if (transfer_reads(t)) {
        uint32_t end = kv_round_up(n_past, ATTN_BLOCK);
        if (from > first) {
            return transfer_fail(t, PLUMB_ERROR_METADATA, "K and V begin at position %u, but the next token sees "
                                 "position %u", from, first);
        }
        lost = end > cache->n_position ? end - cache->n_position : 0;
        cache->n_lost = from > lost ? from : lost;
    }
    for (uint32_t h = 0; h < cache->n_head_kv; h++) {
        for (uint32_t p = from / ATTN_BLOCK * ATTN_BLOCK; p < n_past; p += ATTN_BLOCK) {
            uint32_t end = n_past - p < ATTN_BLOCK ? n_past - p : ATTN_BLOCK;
            const struct block b = { p, p < from ? from - p : 0, end, p >= lost };
            for (uint32_t j = 0; j < cache->n_k_slice; j++) PLUMB_TRY(pass_slice(cache, t, h, j, false, b));
            for (uint32_t j = 0; j < cache->n_v_slice; j++) PLUMB_TRY(pass_slice(cache, t, h, j, true, b));
        }
    }
    return PLUMB_OK;
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

struct exchange { struct sequence *s; uint32_t n_past; };

/* The states after n_past tokens, and the snapshots before.  A reader keeps all of them as snapshots, as far as they
 * fit. */
static plumb_status pass_states(void *of, struct transfer *t) {
    const struct exchange *e = of;
    struct snapshots *all = &e->s->snapshots;
    float *state = e->s->state;
    size_t bytes = (size_t)all->size * sizeof *state;
    uint32_t n = 0, n_kept = 0, before = 0;
    while (!transfer_reads(t) && n_kept < all->n && all->at[n_kept] <= e->n_past) n_kept++;
    bool is_own = e->n_past > 0 && (n_kept == 0 || all->at[n_kept - 1] < e->n_past);   /* the latest has no snapshot */
    n = n_kept + is_own;
    PLUMB_TRY(transfer_u32(t, &n));
    if (transfer_reads(t)) all->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i < n_kept ? all->at[i] : e->n_past;
        PLUMB_TRY(transfer_u32(t, &at));
        if (at <= before || at > e->n_past) {
            return transfer_fail(t, PLUMB_ERROR_METADATA, "state %u is that after %u tokens, but the one before is "
                                 "after %u, and there are %u tokens", i, at, before, e->n_past);
        }
        before = at;
        PLUMB_TRY(transfer_bytes(t, i < n_kept ? snapshots_values(all, i) : state, bytes));
        float *copy = transfer_reads(t) ? snapshots_add(all, at) : NULL;
        if (copy) memcpy(copy, state, bytes);
    }
    if (!transfer_reads(t) || before == e->n_past) return PLUMB_OK;
    return transfer_fail(t, PLUMB_ERROR_METADATA, "there is no state after all %u tokens", e->n_past);
}

/* ---- adapters inside the file ------------------------------------------------------------------------------------ */

static plumb_status pass_switches(void *of, struct transfer *t) {
    const struct exchange *e = of;
    const uint16_t *switches = e->s->switches;
    PLUMB_TRY(transfer_bytes(t, e->s->switches, e->n_past * sizeof *switches));
    for (uint32_t i = 0; transfer_reads(t) && i < e->n_past; i++) {
        if (switches[i] <= e->s->plan->adapters.n) continue;
        return transfer_fail(t, PLUMB_ERROR_METADATA, "token %u switches adapter %u on, and the model has %u", i,
                             switches[i], e->s->plan->adapters.n);
    }
    return PLUMB_OK;
}

/* ---- a sequence -------------------------------------------------------------------------------------------------- */

struct stored { struct kv_cache *cache; uint32_t n_past, first; };

static plumb_status pass_cache(void *of, struct transfer *t) {
    const struct stored *stored = of;
    return kv_cache_exchange(stored->cache, t, stored->n_past, stored->first);
}

plumb_status sequence_exchange(struct sequence *s, struct transfer *t, uint32_t n_past) {
    struct exchange e = { s, n_past };
    if (transfer_reads(t) && !sequence_prepare(s, 0, n_past)) {
        return transfer_fail(t, PLUMB_ERROR_MEMORY, "out of memory: K and V of %u tokens", n_past);
    }
    for (uint32_t il = s->plan->n_encoder; il < s->plan->n_layer; il++) {
        if (!plan_keeps_kv(&s->plan->layers[il])) continue;
        struct stored stored = { &s->caches[il], n_past, plan_first_seen(&s->plan->layers[il].attn, n_past) };
        PLUMB_TRY(transfer_section(t, "kv  ", il, pass_cache, &stored));
    }
    if (s->snapshots.size > 0) PLUMB_TRY(transfer_section(t, "stat", 0, pass_states, &e));
    if (s->switches) PLUMB_TRY(transfer_section(t, "swch", 0, pass_switches, &e));
    if (transfer_reads(t)) s->n_past = n_past;
    return PLUMB_OK;
}

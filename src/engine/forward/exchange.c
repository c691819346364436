/* What a pass keeps of its tokens, as sections of a saved session: K and V, and the states of recurrent layers.  The
 * same code writes and reads them (base/transfer.h). */
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

/* Passes n <= ATTN_BLOCK positions from p on, where a block begins, of slice j of K or V.  is_kept: false if the cache
 * has no room for them. */
static plumb_status pass_slice(struct kv_cache *cache, struct transfer *t, uint32_t head, uint32_t j, bool is_v,
                               uint32_t p, uint32_t n, bool is_kept) {
    struct kv_tile tile = (is_v ? kv_cache_v_block : kv_cache_k_tile)(cache, head, j, p);
    uint32_t n_row = is_v ? cache->v_row / cache->n_v_slice : cache->k_row / cache->n_k_slice;
    size_t n_tile = (n - 1) / tile.n + 1, bytes = n_tile * tile.bytes;
    size_t scale_bytes = (is_v ? n : kv_round_up(n, ATTN_TILE)) * cache->format.scale_bytes;
    if (!is_kept) return transfer_skip(t, bytes + scale_bytes);
    PLUMB_TRY(transfer_bytes(t, tile.codes, bytes));
    const int16_t *wide = (const int16_t *)(const void *)tile.codes;
    bool is_wide = cache->type == PLUMB_KV_I16 && transfer_reads(t);
    if (is_wide && !(is_v ? are_values(wide, n_tile * tile.n * n_row) : are_keys(wide, n_tile, n_row))) {
        return transfer_fail(t, PLUMB_ERROR_METADATA, "the codes of %s of head %u from position %u on are too large",
                             is_v ? "V" : "K", head, p);
    }
    if (cache->type == PLUMB_KV_F32) return PLUMB_OK;
    return transfer_bytes(t, is_v ? kv_cache_v_scale(cache, head, j, p) : kv_cache_k_scale(cache, head, j, p),
                          scale_bytes);
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
            uint32_t n = n_past - p < ATTN_BLOCK ? n_past - p : ATTN_BLOCK;
            bool is_kept = p >= lost;
            for (uint32_t j = 0; j < cache->n_k_slice; j++) {
                PLUMB_TRY(pass_slice(cache, t, h, j, false, p, n, is_kept));
            }
            for (uint32_t j = 0; j < cache->n_v_slice; j++) {
                PLUMB_TRY(pass_slice(cache, t, h, j, true, p, n, is_kept));
            }
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
        PLUMB_TRY(transfer_bytes(t, i < n_kept ? all->copies[i]->values : state, bytes));
        float *copy = transfer_reads(t) ? snapshots_add(all, at) : NULL;
        if (copy) memcpy(copy, state, bytes);
    }
    if (!transfer_reads(t) || before == e->n_past) return PLUMB_OK;
    return transfer_fail(t, PLUMB_ERROR_METADATA, "there is no state after all %u tokens", e->n_past);
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
    if (transfer_reads(t)) s->n_past = n_past;
    return PLUMB_OK;
}

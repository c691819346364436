#include "forward/sequence.h"

#include <stdlib.h>

/* Whether the sequence has a cache for layer il.  Those of an encoder are scratch of attention. */
static bool has_cache(const struct sequence *s, uint32_t il) {
    return il >= s->plan->n_encoder && plan_has_kv(&s->plan->layers[il]);
}

/* What all caches and snapshots will take is first asked for at once, so that it is refused before much of it is
 * allocated, and the memory of a module grows in one step. */
static bool allocate_all(struct sequence *s, uint64_t n_bytes) {
    void *at_once = alloc_array(n_bytes, 1);
    free(at_once);
    return at_once && sequence_prepare(s, 0, s->n_ctx) && sequence_prepare_encoded(s, s->n_ctx)
        && snapshots_reserve(&s->snapshots);
}

bool sequence_create(struct sequence *s, const struct plan *plan, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type,
                     uint32_t n_snapshot, bool grows) {
    uint64_t n_state = plan_states_size(plan), n_bytes = 0;
    *s = (struct sequence) { .plan = plan, .n_ctx = n_ctx };
    snapshots_init(&s->snapshots, n_state, n_snapshot);
    s->caches = calloc(plan->n_layer, sizeof *s->caches);
    s->state = alloc_array(n_state, sizeof *s->state);
    if (!s->caches || !s->state || !mul_u64(n_state, s->snapshots.max * sizeof *s->state, &n_bytes)) return false;
    memset(s->state, 0, (size_t)n_state * sizeof *s->state);
    bool has_switches = plan->adapters.n > 0;
    if (has_switches && !(s->switches = alloc_array(n_ctx, sizeof *s->switches))) return false;
    for (uint32_t il = 0; il < plan->n_layer; il++) {
        if (!has_cache(s, il)) continue;
        if (!kv_cache_init(&s->caches[il], &plan->layers[il].attn, n_ctx, n_batch, type)) return false;
        if (!add_u64(n_bytes, s->caches[il].bytes, &n_bytes)) return false;
    }
    return grows || allocate_all(s, n_bytes);
}

void sequence_free(struct sequence *s) {
    for (uint32_t il = 0; s->caches && il < s->plan->n_layer; il++) kv_cache_free(&s->caches[il]);
    free(s->caches);
    free(s->state);
    free(s->switches);
    snapshots_free(&s->snapshots);
    *s = (struct sequence) { 0 };
}

plumb_status sequence_no_memory(const struct plan *plan, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type,
                                uint32_t n_snapshot, struct error *err) {
    double mib = kv_cache_bytes(plan, n_ctx, n_batch, type, n_snapshot) / 1048576.0;
    return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a context of %u tokens needs %.1f MiB for K and V and "
                     "more for a batch; ask for a smaller context", n_ctx, mib);
}

void sequence_fork(struct sequence *to, const struct sequence *from, uint32_t n_past) {
    size_t bytes = (size_t)to->snapshots.size * sizeof *to->state;
    for (uint32_t il = 0; il < to->plan->n_layer; il++) {
        if (!has_cache(to, il)) continue;
        bool is_cross = to->plan->layers[il].attn.reads_encoder;
        kv_cache_share(&to->caches[il], &from->caches[il], is_cross ? from->n_encoded : n_past);
    }
    snapshots_share(&to->snapshots, &from->snapshots, n_past);
    if (to->switches) memcpy(to->switches, from->switches, n_past * sizeof *to->switches);
    to->n_past = n_past;
    to->n_encoded = from->n_encoded;
    const float *copy = snapshots_back(&to->snapshots, n_past), *state = n_past == from->n_past ? from->state : copy;
    if (state) memcpy(to->state, state, bytes);
    else memset(to->state, 0, bytes);   /* n_past is 0 */
}

static bool prepare(struct sequence *s, bool is_cross, uint32_t begin, uint32_t end) {
    for (uint32_t il = 0; il < s->plan->n_layer; il++) {
        if (!has_cache(s, il) || s->plan->layers[il].attn.reads_encoder != is_cross) continue;
        if (!kv_cache_prepare(&s->caches[il], begin, end)) return false;
    }
    return true;
}

bool sequence_prepare(struct sequence *s, uint32_t begin, uint32_t end) { return prepare(s, false, begin, end); }
bool sequence_prepare_encoded(struct sequence *s, uint32_t n) { return prepare(s, true, 0, n); }

void sequence_trim(struct sequence *s, uint32_t n_past) {
    for (uint32_t il = 0; il < s->plan->n_layer; il++) {
        if (has_cache(s, il) && !s->plan->layers[il].attn.reads_encoder) kv_cache_trim(&s->caches[il], n_past);
    }
    snapshots_back(&s->snapshots, n_past);
    snapshots_trim(&s->snapshots);
}

uint32_t sequence_rewind(const struct sequence *s, uint32_t n_past) {
    bool must_go_back = s->plan->is_recurrent && n_past != s->n_past;
    uint32_t n = must_go_back ? snapshots_before(&s->snapshots, n_past) : n_past;
    for (uint32_t il = 0; il < s->plan->n_layer; il++) {
        if (plan_first_seen(&s->plan->layers[il].attn, n) < s->caches[il].n_lost) return 0;
    }
    return n;
}

uint64_t sequence_bytes(const struct sequence *s) {
    uint64_t n = s->snapshots.size * sizeof *s->state + snapshots_held(&s->snapshots);
    if (s->switches) n += s->n_ctx * sizeof *s->switches;
    for (uint32_t il = 0; il < s->plan->n_layer; il++) n += kv_cache_held(&s->caches[il]);
    return n;
}

void sequence_begin(struct sequence *s, uint32_t pos) {
    size_t bytes = (size_t)s->snapshots.size * sizeof *s->state;
    const float *snapshot = snapshots_back(&s->snapshots, pos);
    if (pos == 0) memset(s->state, 0, bytes);
    else if (pos != s->n_past && snapshot) memcpy(s->state, snapshot, bytes);
}

void sequence_end(struct sequence *s, uint32_t n) {
    const struct snapshots *all = &s->snapshots;
    uint32_t last = all->n > 0 ? all->at[all->n - 1] : 0;
    if (all->size == 0 || (n == 1 && s->n_past - last < SNAPSHOTS_EVERY)) return;
    float *copy = snapshots_add(&s->snapshots, s->n_past);
    if (copy) memcpy(copy, s->state, (size_t)all->size * sizeof *s->state);
}

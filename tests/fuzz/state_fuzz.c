/* Any bytes as a saved session.
 *
 *   which kind of state | how | edits of a right file (edits.h); or the file
 *
 * The file is refused with an error message, and the session still works.  Or it is restored: then SIMD kernels give
 * the bits of the portable ones on whatever K, V and states it has, after a rewind too, and it can be saved again, with
 * the same bytes from then on.
 */
#include "../bytes.h"
#include "base/base.h"
#include "base/digest.h"
#include "edits.h"
#include "fuzz.h"

#include <math.h>

enum { N_SHORT = 40, N_LONG = 1100, MAX_VOCAB = 512 };

/* is_long: rings of windows have lost their first positions.  n_keep: a full context drops tokens behind that many. */
static const struct kind { const char *path; plumb_kv_type type; bool is_long; uint32_t n_keep; } kinds[] = {
#define ARCH(name) "tests/vectors/archs/" name ".gguf"
#define KV(name) "tests/vectors/kv/" name ".gguf"
    { ARCH("llama"), PLUMB_KV_I16, false, 0 }, { KV("windows"), PLUMB_KV_Q4_0, false, 0 },
    { KV("heads"), PLUMB_KV_Q8_0, false, 0 }, { ARCH("gemma3n"), PLUMB_KV_F32, false, 0 },
    { ARCH("granitehybrid"), PLUMB_KV_I16, false, 0 }, { ARCH("lfm2"), PLUMB_KV_I16, false, 0 },
    { ARCH("rwkv7"), PLUMB_KV_I16, false, 0 }, { ARCH("qwen35"), PLUMB_KV_I16, false, 0 },
    { ARCH("gemma3"), PLUMB_KV_I16, true, 0 }, { KV("windows"), PLUMB_KV_Q4_0, true, 0 },
    { ARCH("gemma3"), PLUMB_KV_F32, true, 0 }, { ARCH("llama"), PLUMB_KV_I16, false, 4 },
    { KV("windows"), PLUMB_KV_Q8_0, true, 5 }, { ARCH("granitehybrid"), PLUMB_KV_F32, false, 3 },
    { ARCH("deepseek2"), PLUMB_KV_I16, false, 0 }, { ARCH("minicpm3"), PLUMB_KV_F32, false, 0 },
    { ARCH("mamba"), PLUMB_KV_I16, false, 0 }, { ARCH("mamba2"), PLUMB_KV_I16, false, 0 },
    { ARCH("kimi-linear"), PLUMB_KV_I16, false, 0 }, { ARCH("minimax-01"), PLUMB_KV_I16, false, 0 },
    { ARCH("rwkv6"), PLUMB_KV_I16, false, 0 }, { ARCH("arwkv7"), PLUMB_KV_F32, false, 0 },
    { ARCH("t5"), PLUMB_KV_I16, false, 0 }, { ARCH("gemma4"), PLUMB_KV_I16, false, 0 },
    { ARCH("hrm_text"), PLUMB_KV_I16, false, 0 }, { ARCH("llama4"), PLUMB_KV_I16, true, 0 },
};
enum { N_KIND = sizeof kinds / sizeof *kinds };

static uint32_t context_of(const struct kind *kind) {
    return (uint32_t)((kind->is_long ? N_LONG + 100 : N_SHORT + 24) + (kind->n_keep > 0 ? PLUMB_LEAST_SHIFT_CTX : 0));
}

/* If the model has an encoder, it reads a text. */
static plumb_session *create(plumb_model *m, const struct kind *kind, bool force_scalar) {
    static const int32_t text[] = { 5, 2, 9, 9, 1 };
    plumb_session *s;
    plumb_session_params params = { .n_ctx = context_of(kind), .kv_type = kind->type, .n_thread = 1,
                                    .force_scalar = force_scalar };
    plumb_model_info info;
    plumb_model_get_info(m, &info);
    require(plumb_session_create(&s, m, &params) == PLUMB_OK, plumb_model_error(m));
    require(plumb_session_set_shift(s, kind->n_keep) == PLUMB_OK, plumb_session_error(s));
    if (info.has_encoder) require(plumb_session_encode(s, text, 5) == PLUMB_OK, plumb_session_error(s));
    return s;
}

/* A right file: the last five tokens are a run of their own, and of a session that drops tokens some were dropped. */
static void save_right(plumb_model *m, const struct kind *kind, struct bytes *file) {
    plumb_session *s = create(m, kind, false);
    uint32_t n = (uint32_t)((kind->is_long ? N_LONG : N_SHORT) + (kind->n_keep > 0 ? 2 * PLUMB_LEAST_SHIFT_CTX : 0));
    int32_t *ids = malloc(n * sizeof *ids);
    require(ids != NULL && plumb_model_n_vocab(m) <= MAX_VOCAB, "the model has more tokens");
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 7 % 32);
    require(plumb_session_feed(s, ids, n - 5) == PLUMB_OK, plumb_session_error(s));
    require(plumb_session_feed(s, ids + n - 5, 5) == PLUMB_OK, plumb_session_error(s));
    require((plumb_session_n_dropped(s) > 0) == (kind->n_keep > 0), "tokens were dropped, or none");
    require(plumb_session_save(s, keep_bytes, file) == PLUMB_OK, plumb_session_error(s));
    plumb_session_free(s);
    free(ids);
}

/* Makes the digests right, as far as sections follow each other. */
static void seal(struct bytes *b) {
    for (size_t at = 12, n; at + 24 <= b->n; at += 24 + n) {
        uint64_t length = load_u64(b->data + at + 8);
        if (length > b->n - at - 24) break;
        n = (size_t)length;
        struct digest d;
        digest_begin(&d);
        digest_update(&d, b->data + at, 16 + n);
        uint64_t value = digest_end(&d);
        memcpy(b->data + at + 16 + n, &value, sizeof value);
    }
}

/* All NaN count as equal: which of two a sum returns depends on the compiler. */
static bool same_bits(const float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (f32_to_bits(a[i]) != f32_to_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) return false;
    }
    return true;
}

static void make_room(plumb_session *s, uint32_t n) {
    uint32_t n_ctx = plumb_session_n_ctx(s);
    if (plumb_session_n_past(s) + n <= n_ctx || plumb_session_n_keep(s) > 0) return;
    require(plumb_session_rewind(s, n_ctx - n) == PLUMB_OK, "rewind");
}

/* A restored text of an encoder may be none, and then nothing can be fed. */
static bool can_feed(const plumb_model *m, const plumb_session *s) {
    plumb_model_info info;
    plumb_model_get_info(m, &info);
    return !info.has_encoder || plumb_session_n_encoded(s) > 0;
}

static void check_same(const plumb_model *m, plumb_session *s, plumb_session *scalar) {
    static const int32_t ids[] = { 3, 1, 2 };
    uint32_t n_vocab = plumb_model_n_vocab(m);
    require(can_feed(m, s) == can_feed(m, scalar), "another text");
    for (int k = 0; k < 3 && can_feed(m, s); k++) {
        make_room(s, 3);
        make_room(scalar, 3);
        require(plumb_session_feed(s, ids, 3) == PLUMB_OK, plumb_session_error(s));
        for (int i = 0; i < 3; i++) {
            require(plumb_session_feed(scalar, ids + i, 1) == PLUMB_OK, plumb_session_error(scalar));
        }
        require(same_bits(plumb_session_logits(s), plumb_session_logits(scalar), n_vocab), "SIMD is not scalar");
        uint32_t to = plumb_session_n_past(s) / 2;
        require(plumb_session_rewind(s, to) == PLUMB_OK && plumb_session_rewind(scalar, to) == PLUMB_OK, "rewind");
    }
}

/* What a session saves, another one restores, and saves the same. */
static void check_again(plumb_session *s, plumb_session *other) {
    struct bytes files[2] = { { NULL, 0, 0 }, { NULL, 0, 0 } };
    require(plumb_session_save(s, keep_bytes, &files[0]) == PLUMB_OK && plumb_session_save_bytes(s) == files[0].n,
            "save");
    require(plumb_session_restore(other, give_bytes, &(struct source) { files[0].data, files[0].n, 0 }) == PLUMB_OK,
            plumb_session_error(other));
    require(plumb_session_save(other, keep_bytes, &files[1]) == PLUMB_OK, plumb_session_error(other));
    require(files[0].n == files[1].n && memcmp(files[0].data, files[1].data, files[0].n) == 0, "other bytes");
    for (int i = 0; i < 2; i++) free(files[i].data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static plumb_model *models[N_KIND];
    static struct bytes right[N_KIND];
    if (size < 2 || size > 1 << 17) return 0;
    const struct kind *kind = &kinds[data[0] % N_KIND];
    plumb_model **m = &models[kind - kinds];
    struct bytes file = { NULL, 0, 0 }, *of = &right[kind - kinds];
    unsigned how = data[1];
    if (!*m) {
        *m = read_model(kind->path);
        save_right(*m, kind, of);
    }
    if (how & 1) put(&file, data + 2, size - 2);
    else {
        put(&file, of->data, of->n);
        edit_bytes(&file, data + 2, size - 2);
    }
    if (how & 2) seal(&file);
    plumb_session *s = create(*m, kind, false), *scalar = create(*m, kind, true);
    static const int32_t before[] = { 1, 2 };
    require(plumb_session_feed(s, before, 2) == PLUMB_OK && plumb_session_feed(scalar, before, 2) == PLUMB_OK, "feed");
    plumb_status status = plumb_session_restore(s, give_bytes, &(struct source) { file.data, file.n, 0 });
    require(plumb_session_restore(scalar, give_bytes, &(struct source) { file.data, file.n, 0 }) == status,
            "other status");
    if (status != PLUMB_OK) {
        require(plumb_session_error(s)[0] != 0, "a failure without a sentence");
        require(status != PLUMB_ERROR_STATE, "the file's fault is called the caller's");
        uint32_t n = plumb_session_n_past(s);
        require(n == 0 || n == 2, "a failure left other tokens");
    }
    check_same(*m, s, scalar);
    check_again(s, scalar);
    free(file.data);
    plumb_session_free(s);
    plumb_session_free(scalar);
    return 0;
}

/* Any bytes as a saved session.
 *
 *   which kind of state | how | edits of a right file, 8 bytes each: offset u32, what u8, value u8, u8, u8; or the file
 *
 * The file is refused with an error message, and the session still works.  Or it is restored: then SIMD kernels give
 * the bits of the portable ones on whatever K, V and states it has, after a rewind too, and it can be saved again.
 */
#include "../bytes.h"
#include "base/base.h"
#include "base/digest.h"
#include "fuzz.h"

#include <math.h>

enum { N_KIND = 8, N_CTX = 64, N_TOKEN = 40, MAX_VOCAB = 512 };

static const struct { const char *path; plumb_kv_type type; } kinds[N_KIND] = {
    { "tests/vectors/archs/llama.gguf", PLUMB_KV_I16 }, { "tests/vectors/kv/windows.gguf", PLUMB_KV_Q4_0 },
    { "tests/vectors/kv/heads.gguf", PLUMB_KV_Q8_0 }, { "tests/vectors/archs/gemma3n.gguf", PLUMB_KV_F32 },
    { "tests/vectors/archs/granitehybrid.gguf", PLUMB_KV_I16 }, { "tests/vectors/archs/lfm2.gguf", PLUMB_KV_I16 },
    { "tests/vectors/archs/rwkv7.gguf", PLUMB_KV_I16 }, { "tests/vectors/archs/qwen35.gguf", PLUMB_KV_I16 },
};

static plumb_session *create(plumb_model *m, plumb_kv_type type, bool force_scalar) {
    plumb_session *s;
    plumb_session_params params = { .n_ctx = N_CTX, .kv_type = type, .n_thread = 1, .force_scalar = force_scalar };
    require(plumb_session_create(&s, m, &params) == PLUMB_OK, plumb_model_error(m));
    return s;
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

static void edit(struct bytes *b, const uint8_t *edits, size_t n) {
    for (size_t i = 0; i + 8 <= n && b->n > 0; i += 8) {
        size_t at = load_u32(edits + i) % b->n, left = b->n - at;
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

/* All NaN count as equal: which of two a sum returns depends on the compiler. */
static bool same_bits(const float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (f32_to_bits(a[i]) != f32_to_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) return false;
    }
    return true;
}

static void check_same(plumb_session *s, plumb_session *scalar, uint32_t n_vocab) {
    static const int32_t ids[] = { 3, 1, 2 };
    for (int k = 0; k < 3; k++) {
        if (plumb_session_n_past(s) + 3 > N_CTX) require(plumb_session_rewind(s, N_CTX - 3) == PLUMB_OK, "rewind");
        if (plumb_session_n_past(scalar) + 3 > N_CTX) {
            require(plumb_session_rewind(scalar, N_CTX - 3) == PLUMB_OK, "rewind");
        }
        require(plumb_session_feed(s, ids, 3) == PLUMB_OK, plumb_session_error(s));
        for (int i = 0; i < 3; i++) {
            require(plumb_session_feed(scalar, ids + i, 1) == PLUMB_OK, plumb_session_error(scalar));
        }
        require(same_bits(plumb_session_logits(s), plumb_session_logits(scalar), n_vocab), "SIMD is not scalar");
        uint32_t to = plumb_session_n_past(s) / 2;
        require(plumb_session_rewind(s, to) == PLUMB_OK && plumb_session_rewind(scalar, to) == PLUMB_OK, "rewind");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static plumb_model *models[N_KIND];
    static struct bytes right[N_KIND];
    if (size < 2 || size > 1 << 17) return 0;
    unsigned kind = data[0] % N_KIND, how = data[1];
    plumb_kv_type type = kinds[kind].type;
    if (!models[kind]) {
        models[kind] = read_model(kinds[kind].path);
        require(plumb_model_n_vocab(models[kind]) <= MAX_VOCAB, "the model has more tokens");
        plumb_session *s = create(models[kind], type, false);
        int32_t ids[N_TOKEN];
        for (int i = 0; i < N_TOKEN; i++) ids[i] = i * 7 % 32;
        require(plumb_session_feed(s, ids, N_TOKEN - 5) == PLUMB_OK, plumb_session_error(s));
        require(plumb_session_feed(s, ids, 5) == PLUMB_OK, plumb_session_error(s));
        require(plumb_session_save(s, keep_bytes, &right[kind]) == PLUMB_OK, plumb_session_error(s));
        plumb_session_free(s);
    }
    plumb_model *m = models[kind];
    struct bytes file = { NULL, 0, 0 };
    if (how & 1) put(&file, data + 2, size - 2);
    else {
        put(&file, right[kind].data, right[kind].n);
        edit(&file, data + 2, size - 2);
    }
    if (how & 2) seal(&file);
    plumb_session *s = create(m, type, false), *scalar = create(m, type, true);
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
    check_same(s, scalar, plumb_model_n_vocab(m));
    struct bytes again = { NULL, 0, 0 };
    require(plumb_session_save(s, keep_bytes, &again) == PLUMB_OK && plumb_session_save_bytes(s) == again.n, "save");
    require(plumb_session_restore(scalar, give_bytes, &(struct source) { again.data, again.n, 0 }) == PLUMB_OK,
            plumb_session_error(scalar));
    free(again.data);
    free(file.data);
    plumb_session_free(s);
    plumb_session_free(scalar);
    return 0;
}

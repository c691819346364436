/* A whole model: any bytes as a GGUF file, loaded as a host does, and a few tokens computed with it.
 *
 *   which checks (3 bits), which model (5 bits) | how, and which tokens | the file, or edits of that model (edits.h)
 *
 * The file is refused with an error message, or it runs: tokens are inside the vocabulary, the SIMD kernels give the
 * bits of the portable ones, a prompt in one batch gives the bits of single steps, and memory is bounded by the size of
 * the file.
 */
#include "../gguf_feed.h"
#include "edits.h"
#include "fuzz.h"
#include "plumb_truth.h"

#include <math.h>

/* While the fuzzer searches, only some inputs, selected by their bytes, get the slow checks, so that more inputs can be
 * tried.  replay.c defines this function, and then every check runs. */
__attribute__((weak)) bool fuzz_replays(void);

static bool has_turn(const uint8_t *data, size_t size, uint32_t of) {
    uint32_t hash = 0x811c9dc5u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * 0x01000193u;
    return (hash ^ hash >> 16) % of == 0 || fuzz_replays;
}

enum { N_CTX = 8, N_TOKEN = 3 };

/* Models of tests/vectors/archs of every kind of layer, for inputs that are edits.  The number 0 means that the file
 * follows, and the first one has the number 1. */
static const char *const archs[] = {
    "llama", "gemma3", "gpt-oss", "qwen3moe", "deepseek2", "minicpm3", "lfm2", "mamba", "mamba2", "jamba-moe", "plamo2",
    "granitehybrid", "falcon-h1", "qwen35", "qwen3next", "kimi-linear", "minimax-01", "rwkv6", "rwkv7", "arwkv7", "t5",
    "t5-gated", "t5encoder", "gemma3n", "gemma4-moe", "hrm_text", "bailingmoe3", "mistral4", "grovemoe", "llama4",
    "openelm",
};
_Static_assert(sizeof archs / sizeof *archs == 31, "there are 5 bits");

static void read_file(const char *arch, struct bytes *file) {
    char path[120], piece[4096];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", arch);
    FILE *from = fopen(path, "rb");
    require(from != NULL, path);
    for (size_t n; (n = fread(piece, 1, sizeof piece, from)) > 0;) put(file, piece, n);
    fclose(from);
}

static void check_status(plumb_status status, const char *message) {
    require(status == PLUMB_OK || message[0] != 0, "a failure without a sentence");
    require(status != PLUMB_ERROR_ARGUMENT && status != PLUMB_ERROR_STATE, "the file's fault is called the caller's");
}

static plumb_status load(plumb_model *m, const uint8_t *file, size_t n, bool known) {
    PLUMB_TRY(plumb_model_begin(m, known ? n : PLUMB_SIZE_UNKNOWN));
    for (size_t at = 0; at < n;) {
        void *window;
        size_t len;
        PLUMB_TRY(plumb_model_window(m, &window, &len));
        if (len == 0) break;
        if (len > n - at) len = n - at;
        memcpy(window, file + at, len);
        PLUMB_TRY(plumb_model_commit(m, len));
        at += len;
    }
    return plumb_model_end(m);
}

/* What the model computes for the tokens, or NULL: the logits after the last one, or its embedding if the model has no
 * logits.  The caller frees the *n results. */
static float *run(plumb_model *m, plumb_session_params params, const int32_t *ids, uint32_t step, size_t n_file,
                  uint32_t *n) {
    plumb_session *s;
    params.n_ctx = N_CTX;
    params.n_batch = step;
    params.n_thread = 1;
    plumb_status status = plumb_session_create(&s, m, &params);
    check_status(status, plumb_model_error(m));
    if (status != PLUMB_OK) return NULL;
    /* Rows of activations and logits, each backed by a row or a column of weights, and a cache of N_CTX tokens. */
    require(plumb_session_bytes(s) <= (1u << 20) + 64 * (uint64_t)n_file, "the session is too large for the file");
    plumb_model_info info;
    plumb_model_get_info(m, &info);
    const float *computed;
    if (info.has_encoder) require(plumb_session_encode(s, ids, N_TOKEN) == PLUMB_OK, plumb_session_error(s));
    if (info.has_logits) {
        bool sees_later = plumb_session_n_batch(s) > step && !info.has_encoder;
        if (sees_later) step = N_TOKEN;
        for (uint32_t i = 0; i < N_TOKEN; i += step) {
            status = plumb_session_feed(s, ids + i, N_TOKEN - i < step ? N_TOKEN - i : step);
            require(status == PLUMB_OK, plumb_session_error(s));
        }
        *n = plumb_model_n_vocab(m);
        computed = plumb_session_logits(s);
    } else {
        uint32_t n_vector;
        const uint32_t n_id = N_TOKEN;
        if (plumb_session_embed(s, ids, &n_id, 1, PLUMB_POOLING_RANK) < 0) {   /* only some have a classifier */
            require(plumb_session_embed(s, ids, &n_id, 1, PLUMB_POOLING_LAST) == 1, plumb_session_error(s));
        }
        computed = plumb_session_embedding(s, &n_vector, n);
    }
    float *results = malloc(*n * sizeof *results);
    require(results != NULL && computed != NULL, "no results");
    memcpy(results, computed, *n * sizeof *results);
    plumb_session_free(s);
    return results;
}

/* All NaN count as equal: which of two a sum returns depends on the compiler. */
static bool same_bits(const float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (f32_to_bits(a[i]) != f32_to_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) return false;
    }
    return true;
}

static void check_passes(plumb_model *m, unsigned how, const int32_t *ids, size_t n_file, bool slow) {
    plumb_session_params fast = {.kv_type = (plumb_kv_type)(how % 4),
                                 .precision = how & 4 ? PLUMB_PRECISION_FAST8 : PLUMB_PRECISION_EXACT16};
    plumb_session_params scalar = fast, reference = {.pass = PLUMB_PASS_REFERENCE};
    scalar.force_scalar = true;
    uint32_t n = 0;
    float *batch = run(m, fast, ids, N_TOKEN, n_file, &n), *steps = run(m, fast, ids, 1, n_file, &n);
    float *portable = run(m, scalar, ids, N_TOKEN, n_file, &n);
    float *exact = slow ? run(m, reference, ids, N_TOKEN, n_file, &n) : NULL;
    if (batch && steps) require(same_bits(batch, steps, n), "one batch differs from single steps");
    if (batch && portable) require(same_bits(batch, portable, n), "SIMD differs from portable kernels");
    float *all[] = {batch, steps, portable, exact};
    for (int i = 0; i < 4; i++) {
        int32_t top[4];
        if (all[i]) plumb_logits_top(all[i], n, 4, top);
        for (int k = 0; all[i] && k < 4; k++) require(top[k] < (int64_t)n, "a top token outside the vocabulary");
        free(all[i]);
    }
}

static void forget(void *user, const char *bytes, size_t n) {
    *(uint32_t *)user += n > 0 ? (uint8_t)bytes[n - 1] : 0;
}

static void check_text(plumb_model *m, uint32_t n_vocab) {
    static const char text[] = "ab a<s>\xc3\xa9</s> ba";
    int32_t ids[64];
    int64_t n = plumb_tokenize(m, text, sizeof text - 1, PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL, ids, 64);
    for (int64_t i = 0; i < n && i < 64; i++) require((uint32_t)ids[i] < n_vocab, "an id outside the vocabulary");
    char piece[256];
    for (uint32_t id = 0; id < n_vocab; id++) {
        require(plumb_token_piece(m, (int32_t)id, true, piece, sizeof piece) >= 0, "a token without a text");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct bytes files[sizeof archs / sizeof *archs];
    if (size < 2 || size > 1 << 17) return 0;
    unsigned what = data[0] % 8, which = data[0] / 8, how = data[1];
    struct bytes file = { NULL, 0, 0 };
    if (which == 0) {
        put(&file, data + 2, size - 2);
    } else {
        struct bytes *right = &files[which - 1];
        if (right->n == 0) read_file(archs[which - 1], right);
        put(&file, right->data, right->n);
        edit_bytes(&file, data + 2, size - 2);
    }
    plumb_model *m = plumb_model_create();
    require(m != NULL, "no memory");
    plumb_status status = PLUMB_OK;
    uint32_t sum = 0, n_ring;
    bool ok;
    plumb_report report = {.format = how & 1 ? PLUMB_FORMAT_JSON : PLUMB_FORMAT_TEXT, .write = forget, .user = &sum};
    if (what == 1) status = plumb_model_headers_only(m);
    if (status == PLUMB_OK) status = load(m, file.data, file.n, how & 8);
    if (what == 1 && plumb_model_has_header(m)) status = plumb_model_rehearse(m, &n_ring);
    check_status(status, plumb_model_error(m));
    if (status == PLUMB_OK) {
        uint32_t n_vocab = plumb_model_n_vocab(m);
        int32_t ids[N_TOKEN];
        for (uint32_t i = 0; i < N_TOKEN; i++) ids[i] = (int32_t)((how >> 4) * (i + 1) % n_vocab);
        check_text(m, n_vocab);
        if (what != 1 || n_ring > 0) check_passes(m, how, ids, file.n, has_turn(data, size, 8));
    }
    /* For any file: its metadata, and its error. */
    if (what == 2 && has_turn(data, size, 32)) check_status(plumb_selfcheck(m, &report, &ok), plumb_model_error(m));
    if (what == 3) check_status(plumb_weights(m, m, &report, &ok), plumb_model_error(m));
    char value[40];
    for (uint64_t i = 0; i < plumb_model_n_key(m); i++) {
        uint64_t n = plumb_model_key_count(m, i);
        for (uint64_t k = 0; k < n && k < 4; k++) {
            sum += (uint32_t)plumb_model_key_value(m, i, n - 1 - k, value, sizeof value);
        }
    }
    plumb_model_free(m);
    free(file.data);
    return 0;
}

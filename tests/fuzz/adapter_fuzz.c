/* Any bytes as an adapter of a small model, which then computes a few tokens with it.
 *
 *   which model | how | the file
 *
 * The file is refused with an error message, or it runs: the SIMD kernels give the bits of the portable ones, a prompt
 * in one batch gives the bits of single steps, and the reference pass runs too.
 */
#include "base/base.h"
#include "fuzz.h"
#include "plumb_truth.h"

#include <math.h>

enum { N_TOKEN = 3, MAX_VOCAB = 64 };
static const int32_t ids[N_TOKEN] = { 3, 7, 5 };

static plumb_status load(plumb_adapter *a, const uint8_t *file, size_t n, size_t piece) {
    for (size_t at = 0; at < n;) {
        void *window;
        size_t len;
        PLUMB_TRY(plumb_adapter_window(a, &window, &len));
        if (len == 0) break;
        if (len > piece) len = piece;
        if (len > n - at) len = n - at;
        memcpy(window, file + at, len);
        PLUMB_TRY(plumb_adapter_commit(a, len));
        at += len;
    }
    return plumb_adapter_end(a);
}

/* The logits after the last token.  step: tokens that are fed at once. */
static void run(plumb_model *m, plumb_session_params params, const plumb_adapter *a, float scale, uint32_t step,
                float logits[MAX_VOCAB]) {
    plumb_session *s;
    const plumb_adapter_use use = { a, scale, 0, 0 };
    params.n_ctx = 8;
    params.n_thread = 1;
    require(plumb_session_create(&s, m, &params) == PLUMB_OK, plumb_model_error(m));
    require(plumb_session_set_adapters(s, &use, a ? 1 : 0) == PLUMB_OK, plumb_session_error(s));
    for (uint32_t i = 0; i < N_TOKEN; i += step) {
        require(plumb_session_feed(s, ids + i, step) == PLUMB_OK, plumb_session_error(s));
    }
    memcpy(logits, plumb_session_logits(s), plumb_model_n_vocab(m) * sizeof *logits);
    plumb_session_free(s);
}

/* All NaN count as equal: which of two a sum returns depends on the compiler. */
static bool same_bits(const float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (f32_to_bits(a[i]) != f32_to_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) return false;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = { "tests/fuzz/tiny.gguf", "tests/fuzz/experts.gguf",
                                         "tests/vectors/archs/llama.gguf" };
    static plumb_model *models[3];
    if (size < 2 || size > 1 << 17) return 0;
    unsigned which = data[0] % 3, how = data[1];
    if (!models[which]) models[which] = read_model(paths[which]);
    plumb_model *m = models[which];
    uint32_t n_vocab = plumb_model_n_vocab(m);
    require(n_vocab <= MAX_VOCAB, "the model has more tokens");
    plumb_adapter *a;
    require(plumb_adapter_create(&a, m, how & 8 ? size - 2 : PLUMB_SIZE_UNKNOWN) == PLUMB_OK, plumb_model_error(m));
    plumb_status status = load(a, data + 2, size - 2, how & 16 ? 7 : size);
    if (status == PLUMB_OK) {
        float scale = (float)((int)(how >> 5) - 3), batch[MAX_VOCAB], other[MAX_VOCAB];
        plumb_session_params fast = { .precision = how & 4 ? PLUMB_PRECISION_FAST8 : PLUMB_PRECISION_EXACT16 };
        plumb_session_params scalar = fast, reference = { .pass = PLUMB_PASS_REFERENCE };
        scalar.force_scalar = true;
        run(m, fast, a, scale, N_TOKEN, batch);
        run(m, fast, a, scale, 1, other);
        require(same_bits(batch, other, n_vocab), "one batch differs from single steps");
        run(m, scalar, a, scale, N_TOKEN, other);
        require(same_bits(batch, other, n_vocab), "SIMD differs from portable kernels");
        run(m, reference, a, scale, N_TOKEN, other);
    } else {
        require(plumb_adapter_error(a)[0] != 0, "a failure without a sentence");
        bool is_caller = status == PLUMB_ERROR_ARGUMENT || status == PLUMB_ERROR_STATE;
        require(!is_caller, "the file's fault is called the caller's");
    }
    plumb_adapter_free(a);
    return 0;
}

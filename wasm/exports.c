/* Wrappers for the public functions that take or fill structs.  Their arguments are numbers and pointers only, so
 * that JavaScript can call them without knowing the layout of a struct.  wasm/exports.txt lists all exports;
 * web/engine/engine.js is the only caller. */
#define _DEFAULT_SOURCE  /* sbrk */
#include "api/model.h"
#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *plumb_wasm_heap_end(void);
plumb_status plumb_wasm_model_info(const plumb_model *model, const char **architecture, double numbers[15]);
plumb_status plumb_wasm_model_tensor(const plumb_model *model, uint64_t i, const char **type, double *n_bytes);
plumb_status plumb_wasm_session_create(plumb_session **out, plumb_model *model, double n_ctx, double n_batch,
                                       double n_thread, plumb_precision precision, plumb_kv_type kv_type,
                                       double n_snapshot, plumb_session *beside, bool grows);
plumb_status plumb_wasm_sampler_create(plumb_sampler **out, uint32_t n_vocab, const double *values, uint32_t n_bias,
                                       const plumb_logit_bias *bias, uint64_t seed, const char **reason);
plumb_status plumb_wasm_session_speculate(plumb_session *session, bool lookup, double n_least, double n_most,
                                          plumb_session *draft);
plumb_status plumb_wasm_feed_tapped(plumb_session *session, const int32_t *ids, size_t n, size_t n_encoded);
void plumb_wasm_taps(const plumb_session *session, uint32_t *order, bool *has_output_norms);
double plumb_wasm_session_save_bytes(plumb_session *session);
plumb_status plumb_wasm_session_save(plumb_session *session);
plumb_status plumb_wasm_session_restore(plumb_session *session);
double plumb_wasm_vocabulary(const plumb_model *model, uint32_t *ends, uint8_t *kinds, char *texts, size_t cap);

/* Counts are passed as doubles: JavaScript wraps 32-bit integers around, so that 2^32 would arrive as 0.  A value that
 * is not a uint32 becomes UINT32_MAX, which is out of every range. */
static uint32_t to_uint32_t(double x) {
    return x >= 0 && x < UINT32_MAX && x == (uint32_t)x ? (uint32_t)x : UINT32_MAX;
}
static float to_float(double x) { return (float)x; }

/* JavaScript writes biases as pairs of 32-bit words, adapters as an address and three of those, a plumb_feed as five
 * words as large as an address, and zeroes 8 bytes for a plumb_text. */
enum { ADDRESS = sizeof(void *) };
_Static_assert(sizeof(plumb_logit_bias) == 8 && offsetof(plumb_logit_bias, bias) == 4, "engine.js writes this layout");
_Static_assert(sizeof(plumb_adapter_use) == (ADDRESS == 4 ? 16 : 24)
               && offsetof(plumb_adapter_use, last_layer) == ADDRESS + 8, "session.js writes this layout");
_Static_assert(sizeof(plumb_feed) == 5 * ADDRESS && offsetof(plumb_feed, wants_logits) == 3 * ADDRESS
               && offsetof(plumb_feed, n_done) == 4 * ADDRESS, "engine.js writes this layout");
_Static_assert(sizeof(plumb_text) <= 8, "engine.js allocates 8 bytes");

/* The end of the heap: this instance has written nothing at this address or above. */
void *plumb_wasm_heap_end(void) { return sbrk(0); }

/* numbers: one value for each name in INFO of engine.js, in that order; all are below 2^53. */
plumb_status plumb_wasm_model_info(const plumb_model *model, const char **architecture, double numbers[15]) {
    plumb_model_info info;
    plumb_status status = plumb_model_get_info(model, &info);
    if (status != PLUMB_OK) return status;
    const double values[15] = {(double)info.n_param, (double)info.weight_bytes, info.n_layer, info.n_embd, info.n_head,
                               info.n_head_kv, info.head_dim, info.n_ff, info.n_vocab, info.n_ctx_train,
                               info.n_pooled, info.has_logits, info.pooling, info.has_encoder, info.decoder_start};
    *architecture = info.architecture;
    for (int i = 0; i < 15; i++) numbers[i] = values[i];
    return PLUMB_OK;
}

plumb_status plumb_wasm_model_tensor(const plumb_model *model, uint64_t i, const char **type, double *n_bytes) {
    plumb_tensor tensor;
    plumb_status status = plumb_model_tensor(model, i, &tensor);
    if (status != PLUMB_OK) return status;
    *type = tensor.type;
    *n_bytes = (double)tensor.n_bytes;
    return PLUMB_OK;
}

plumb_status plumb_wasm_session_create(plumb_session **out, plumb_model *model, double n_ctx, double n_batch,
                                       double n_thread, plumb_precision precision, plumb_kv_type kv_type,
                                       double n_snapshot, plumb_session *beside, bool grows) {
    const plumb_session_params params = {.n_ctx = to_uint32_t(n_ctx), .n_batch = to_uint32_t(n_batch),
                                         .n_thread = to_uint32_t(n_thread), .precision = precision,
                                         .kv_type = kv_type, .n_snapshot = to_uint32_t(n_snapshot),
                                         .grows = grows, .beside = beside};
    return plumb_session_create(out, model, &params);
}

plumb_status plumb_wasm_session_speculate(plumb_session *session, bool lookup, double n_least, double n_most,
                                          plumb_session *draft) {
    const plumb_speculation how = {lookup, to_uint32_t(n_least), to_uint32_t(n_most), draft};
    return plumb_session_speculate(session, &how);
}

/* values: of the parameters in the order of PLUMB_SAMPLING_TABLE. */
plumb_status plumb_wasm_sampler_create(plumb_sampler **out, uint32_t n_vocab, const double *values, uint32_t n_bias,
                                       const plumb_logit_bias *bias, uint64_t seed, const char **reason) {
    plumb_sampling params = {.n_bias = n_bias, .bias = bias, .seed = seed};
#define TAKE(type, name, ...) params.name = to_##type(*values++);
    PLUMB_SAMPLING_TABLE(TAKE)
    return plumb_sampler_create(out, n_vocab, &params, reason);
}

/* Writes all tokens of a vocabulary as vocabulary.h says: ends and kinds for each token, and at most cap bytes of
 * texts.  Returns how many bytes the texts have. */
double plumb_wasm_vocabulary(const plumb_model *model, uint32_t *ends, uint8_t *kinds, char *texts, size_t cap) {
    size_t n = 0;
    for (uint32_t i = 0; i < plumb_model_n_vocab(model); i++) {
        int32_t id = (int32_t)i;
        int64_t plain = plumb_token_piece(model, id, false, NULL, 0);
        int64_t length = plumb_token_piece(model, id, true, n < cap ? texts + n : NULL, n < cap ? cap - n : 0);
        if (length > 0) n += (size_t)length;
        ends[i] = (uint32_t)n;
        kinds[i] = (uint8_t)((plain <= 0 ? KIND_CONTROL : 0) | (plumb_token_is_eog(model, id) ? KIND_EOG : 0));
    }
    return (double)n;
}

/* ---- taps -------------------------------------------------------------------------------------------------------- */

__attribute__((import_module("env"), import_name("plumb_on_tap")))
void host_on_tap(const char *name, int32_t layer, uint32_t pos, uint32_t n_token, uint32_t n_head, uint32_t n,
                 const float *data);

static void on_tap(void *user, const plumb_tap *tap) {
    (void)user;
    host_on_tap(tap->name, tap->layer, tap->pos, tap->n_token, tap->n_head, tap->n, tap->data);
}

/* Feeds n ids and passes all taps to JavaScript, with the logits of every token.  n_encoded: how many of the ids an
 * encoder reads first; 0: there is none, or it has a text. */
plumb_status plumb_wasm_feed_tapped(plumb_session *session, const int32_t *ids, size_t n, size_t n_encoded) {
    plumb_status status = plumb_session_set_tap(session, on_tap, NULL);
    if (status != PLUMB_OK) return status;
    if (n_encoded > 0) status = plumb_session_encode(session, ids, n_encoded);
    if (status == PLUMB_OK) status = plumb_session_feed_all(session, ids, n, NULL, NULL);
    plumb_session_set_tap(session, NULL, NULL);
    return status;
}

/* What struct trace_run of src/truth/trace has of a model's taps. */
void plumb_wasm_taps(const plumb_session *session, uint32_t *order, bool *has_output_norms) {
    const struct model *model = session_model(session)->model;
    *order = model_tap_order(model);
    *has_output_norms = model_has_output_norms(model);
}

/* ---- saved sessions ---------------------------------------------------------------------------------------------- */

__attribute__((import_module("env"), import_name("plumb_on_write"))) void host_on_write(const char *bytes, size_t n);
__attribute__((import_module("env"), import_name("plumb_on_read"))) size_t host_on_read(void *bytes, size_t n);

static void on_write(void *user, const char *bytes, size_t n) {
    (void)user;
    host_on_write(bytes, n);
}
static size_t on_read(void *user, void *bytes, size_t n) {
    (void)user;
    return host_on_read(bytes, n);
}

double plumb_wasm_session_save_bytes(plumb_session *session) { return (double)plumb_session_save_bytes(session); }
plumb_status plumb_wasm_session_save(plumb_session *session) { return plumb_session_save(session, on_write, NULL); }
plumb_status plumb_wasm_session_restore(plumb_session *session) {
    return plumb_session_restore(session, on_read, NULL);
}

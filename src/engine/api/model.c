/* plumb_model: joins gguf, model and tokenizer.  Implements the public functions that load a model, query it, and
 * tokenize with it. */
#include "api/model.h"

#include "base/decimal.h"
#include "forward/kv_cache.h"
#include "tokenizer/vocab.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

plumb_model *plumb_model_create(void) { return calloc(1, sizeof(plumb_model)); }

void plumb_model_free(plumb_model *m) {
    if (!m) return;
    model_free(m->model);
    tokenizer_free(m->tokenizer);
    if (m->vocabulary) m->free_vocabulary(m->vocabulary);
    for (size_t i = 0; i < m->n_part; i++) gguf_free(m->parts[i]);
    free(m->parts);
    repacker_free(&m->repacker);
    free(m->ring);
    free(m->prompt);
    free(m->chat_template);
    free(m);
}

const char *plumb_model_error(const plumb_model *m) { return m->err.message; }

/* ---- loading --------------------------------------------------------------------------------------------------- */

static struct gguf *current(const plumb_model *m) { return m->n_part > 0 ? m->parts[m->n_part - 1] : NULL; }

static plumb_status wrong_state(plumb_model *m, const char *what) {
    return error_set(&m->err, PLUMB_ERROR_STATE, "%s", what);
}

plumb_status plumb_model_begin(plumb_model *m, uint64_t size) {
    if (m->model) return wrong_state(m, "the model is already loaded");
    struct gguf *g = current(m);
    if (g && !gguf_is_complete(g) && !(m->headers_only && gguf_has_header(g))) {   /* the part continues the file */
        m->bytes_before = gguf_position(g);
        uint64_t total = PLUMB_SIZE_UNKNOWN;
        if (size != PLUMB_SIZE_UNKNOWN && !add_u64(m->bytes_before, size, &total)) total = PLUMB_SIZE_UNKNOWN;
        gguf_set_file_size(g, total);
        return PLUMB_OK;
    }
    struct gguf **parts = realloc(m->parts, (m->n_part + 1) * sizeof *parts);
    if (parts) m->parts = parts;
    g = parts ? gguf_create(size) : NULL;
    if (!g) return error_set(&m->err, PLUMB_ERROR_MEMORY, "out of memory: the reader of part %zu", m->n_part + 1);
    gguf_set_on_data(g, repack_arrived, &m->repacker);
    if (m->headers_only) gguf_header_only(g);
    m->parts[m->n_part++] = g;
    m->bytes_before = m->measured_at = 0;
    return PLUMB_OK;
}

plumb_status plumb_model_window(plumb_model *m, void **data, size_t *len) {
    *data = NULL;
    *len = 0;
    if (!current(m)) return wrong_state(m, "plumb_model_begin was not called");
    return gguf_window(current(m), data, len, &m->err);
}

plumb_status plumb_model_headers_only(plumb_model *m) {
    if (m->n_part > 0) return wrong_state(m, "plumb_model_headers_only must be called before plumb_model_begin");
    m->headers_only = true;
    return PLUMB_OK;
}

/* While a file arrives, the kernels are measured again after every MEASURE_EVERY_BYTES bytes.  They are not measured
 * for a file with fewer than MEASURE_MIN_BYTES of tensors: it is fast with any kernels, and it is loaded before they
 * could be measured. */
enum { MEASURE_EVERY_BYTES = 6 << 20, MEASURE_MIN_BYTES = 1 << 20 };

/* True for a matrix that is among the largest of its layer and has the type that most weights have.  Every architecture
 * has one of them, and none has both in a layer. */
static bool is_typical(const struct gguf_tensor *t) {
    return gguf_name_ends(t, ".ffn_up.weight") || gguf_name_ends(t, ".ffn_up_exps.weight");
}

/* Measures with the shape and type of such a matrix of a layer in the middle. */
static void measure_kernels(plumb_model *m) {
    struct gguf *g = current(m);
    uint64_t n = 0, before = 0, bytes = 0;
    if (m->speeds.settled || m->speeds.n_call == KERNELS_CALLS) return;   /* saves the search below */
    m->measured_at = gguf_position(g);
    for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
        n += is_typical(gguf_tensor_at(g, i));
        bytes += gguf_tensor_at(g, i)->n_bytes;
    }
    for (uint64_t i = 0; bytes >= MEASURE_MIN_BYTES && i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (!is_typical(t) || before++ != n / 2) continue;
        kernels_measure(&m->speeds, t->type, t->shape[0], t->shape[1]);
    }
}

plumb_status plumb_model_commit(plumb_model *m, size_t n) {
    struct gguf *g = current(m);
    if (!g) return wrong_state(m, "plumb_model_begin was not called");
    PLUMB_TRY(gguf_commit(g, n, &m->err));
    bool due = m->measured_at == 0 || gguf_position(g) >= m->measured_at + MEASURE_EVERY_BYTES;
    if (gguf_has_header(g) && due) measure_kernels(m);
    return PLUMB_OK;
}

bool plumb_model_has_header(const plumb_model *m) { return m->n_part > 0 && gguf_has_header(m->parts[0]); }

uint64_t plumb_model_position(const plumb_model *m) {
    return current(m) ? gguf_position(current(m)) - m->bytes_before : 0;
}

/* Checks that part i is file i of a split model of n_part files. */
static plumb_status check_order(plumb_model *m, size_t i, uint32_t n_part) {
    uint32_t no = UINT32_MAX;
    if (n_part < 2) return PLUMB_OK;
    PLUMB_TRY(gguf_get_u32(m->parts[i], "split.no", &no, &m->err));
    if (no == i) return PLUMB_OK;
    return error_set(&m->err, PLUMB_ERROR_METADATA, "file %zu of the split model is number %u according to split.no: "
                     "give the files in order", i + 1, no + 1);
}

/* Reads the number of files from the first one; 1 if the model is not split. */
static plumb_status read_n_part(plumb_model *m, uint32_t *n_part) {
    *n_part = 1;
    PLUMB_TRY(gguf_get_u32(m->parts[0], "split.count", n_part, &m->err));
    if (*n_part == 0) *n_part = 1;   /* a file that was never split may say 0 */
    return PLUMB_OK;
}

plumb_status plumb_model_load_vocab(plumb_model *m) {
    if (m->tokenizer) return PLUMB_OK;
    if (!current(m)) return wrong_state(m, "plumb_model_begin was not called");
    if (!plumb_model_has_header(m)) return gguf_finish(m->parts[0], &m->err);
    uint32_t n_part;
    PLUMB_TRY(read_n_part(m, &n_part));
    PLUMB_TRY(check_order(m, 0, n_part));   /* the other files have no vocabulary */
    return tokenizer_create(&m->tokenizer, m->parts[0], &m->err);
}

/* Checks that there are as many files as split.count says, in their order. */
static plumb_status check_split(plumb_model *m) {
    uint32_t n_part;
    PLUMB_TRY(read_n_part(m, &n_part));
    if (m->n_part != n_part) {
        return error_set(&m->err, PLUMB_ERROR_TRUNCATED, "the model is split into %u files, but %zu were given", n_part,
                         m->n_part);
    }
    for (size_t i = 0; i < m->n_part; i++) PLUMB_TRY(check_order(m, i, n_part));
    return PLUMB_OK;
}

/* The part that plumb_model_end and plumb_model_rehearse have in common. */
static plumb_status finish_loading(plumb_model *m) {
    PLUMB_TRY(check_split(m));
    PLUMB_TRY(plumb_model_load_vocab(m));
    for (int i = 0; i < KERNELS_CALLS; i++) measure_kernels(m);   /* a small file ends before all calls were made */
    return model_create(&m->model, m->parts, m->n_part, tokenizer_n_vocab(m->tokenizer), &m->err);
}

plumb_status plumb_model_end(plumb_model *m) {
    if (m->model) return PLUMB_OK;
    if (!current(m)) return wrong_state(m, "plumb_model_begin was not called");
    for (size_t i = 0; i < m->n_part; i++) PLUMB_TRY(gguf_finish(m->parts[i], &m->err));
    return finish_loading(m);
}

/* RING_BYTES is more than caches hold, so that the weights are read from memory, as those of a real model are.
 * A larger tensor needs a larger ring, up to RING_MAX_BYTES. */
enum { RING_BYTES = 64 << 20, RING_MAX_BYTES = 512 << 20 };

plumb_status plumb_model_rehearse(plumb_model *m, uint32_t *n_bytes) {
    *n_bytes = 0;
    if (!m->headers_only || m->model) return wrong_state(m, "plumb_model_headers_only was not called first");
    if (!current(m)) return wrong_state(m, "plumb_model_begin was not called");
    for (size_t i = 0; i < m->n_part; i++) {
        if (!gguf_has_header(m->parts[i])) return gguf_finish(m->parts[i], &m->err);
    }
    PLUMB_TRY(finish_loading(m));
    uint64_t all, n = model_largest_weight(m->model, &all);
    if (n < RING_BYTES) n = all < RING_BYTES ? all : RING_BYTES;
    m->ring = n <= RING_MAX_BYTES ? alloc_array(n, 1) : NULL;
    /* The zeros must be written: pages that were never written share one physical page, which stays in the fastest
     * cache. */
    if (m->ring) memset(m->ring, 0, (size_t)n);
    model_rehearse(m->model, m->ring, n);
    if (m->ring) *n_bytes = (uint32_t)n;
    return PLUMB_OK;
}

uint32_t plumb_model_default_ctx(const plumb_model *m, plumb_kv_type type) {
    return m->model ? kv_cache_default(&m->model->plan, type) : 0;
}

static double kv_bytes(const struct plan *p, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type,
                       uint32_t n_snapshot) {
    uint32_t n_default = n_ctx == 0 ? kv_cache_default(p, type) : 0;
    if (n_ctx == 0) n_ctx = n_default < PLUMB_LEAST_CTX ? n_default : PLUMB_LEAST_CTX;
    return kv_cache_bytes(p, n_ctx, plan_n_batch(p, n_ctx, n_batch), type, n_snapshot);
}

plumb_status plumb_model_check_kv(plumb_model *m, plumb_kv_type type) {
    struct plan plan = {0};
    struct error ignored = {0};
    plumb_status status = PLUMB_OK;
    if (m->model) return kv_cache_check(&m->model->plan, type, &m->err);
    if (plumb_model_has_header(m) && plan_create(&plan, m->parts, m->n_part, UINT64_MAX, &ignored) == PLUMB_OK) {
        status = kv_cache_check(&plan, type, &m->err);
    }
    plan_free(&plan);
    return status;
}

double plumb_model_kv_bytes(const plumb_model *m, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type,
                            uint32_t n_snapshot) {
    struct plan plan = {0};
    struct error ignored = {0};
    if (m->model) return kv_bytes(&m->model->plan, n_ctx, n_batch, type, n_snapshot);
    double bytes = 0;   /* the number of tensors is not known before all parts of a split model are read */
    if (plumb_model_has_header(m) && plan_create(&plan, m->parts, m->n_part, UINT64_MAX, &ignored) == PLUMB_OK) {
        bytes = kv_bytes(&plan, n_ctx, n_batch, type, n_snapshot);
    }
    plan_free(&plan);
    return bytes;
}

/* ---- queries --------------------------------------------------------------------------------------------------- */

static const struct gguf_key *key_at(const plumb_model *m, uint64_t i) {
    return i < plumb_model_n_key(m) ? gguf_key_at(m->parts[0], i) : NULL;
}

uint64_t plumb_model_n_key(const plumb_model *m) { return plumb_model_has_header(m) ? gguf_n_key(m->parts[0]) : 0; }

int64_t plumb_model_find_key(const plumb_model *m, const char *name) {
    for (uint64_t i = 0; i < plumb_model_n_key(m); i++) {
        if (strcmp(key_at(m, i)->name.data, name) == 0) return (int64_t)i;
    }
    return -1;
}

const char *plumb_model_key_name(const plumb_model *m, uint64_t i) {
    const struct gguf_key *key = key_at(m, i);
    return key ? key->name.data : NULL;
}

const char *plumb_model_key_type(const plumb_model *m, uint64_t i) {
    static const char *const arrays[GGUF_TYPE_COUNT] = {
        [GGUF_UINT8] = "array of uint8", [GGUF_INT8] = "array of int8", [GGUF_UINT16] = "array of uint16",
        [GGUF_INT16] = "array of int16", [GGUF_UINT32] = "array of uint32", [GGUF_INT32] = "array of int32",
        [GGUF_FLOAT32] = "array of float32", [GGUF_BOOL] = "array of bool", [GGUF_STRING] = "array of string",
        [GGUF_UINT64] = "array of uint64", [GGUF_INT64] = "array of int64", [GGUF_FLOAT64] = "array of float64",
    };
    const struct gguf_key *key = key_at(m, i);
    if (!key) return NULL;
    return key->is_array ? arrays[key->type] : gguf_type_name(key->type);
}

uint64_t plumb_model_key_count(const plumb_model *m, uint64_t i) {
    const struct gguf_key *key = key_at(m, i);
    return key ? key->n : 0;
}

/* Formats with as few digits as read back as the same number: from 6 for F32 and from 15 for F64, at most 17. */
static void format_float(char *text, size_t cap, double value, bool single) {
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, cap, "%.*g", digits, value);
        double back = 0;   /* infinity and NaN are not read back, and look alike with any number of digits */
        decimal_read(text, strlen(text), &back);
        if (single ? (float)back == (float)value : back == value) return;
    }
}

static void format_scalar(char *text, size_t cap, enum gguf_type type, const uint8_t *v) {
    double f64;
    uint64_t bits;
    switch (type) {
    case GGUF_UINT8: snprintf(text, cap, "%u", v[0]); break;
    case GGUF_INT8: snprintf(text, cap, "%d", (int8_t)v[0]); break;
    case GGUF_BOOL: snprintf(text, cap, "%s", v[0] ? "true" : "false"); break;
    case GGUF_UINT16: snprintf(text, cap, "%u", load_u16(v)); break;
    case GGUF_INT16: snprintf(text, cap, "%d", (int16_t)load_u16(v)); break;
    case GGUF_UINT32: snprintf(text, cap, "%" PRIu32, load_u32(v)); break;
    case GGUF_INT32: snprintf(text, cap, "%" PRId32, (int32_t)load_u32(v)); break;
    case GGUF_UINT64: snprintf(text, cap, "%" PRIu64, load_u64(v)); break;
    case GGUF_INT64: snprintf(text, cap, "%" PRId64, (int64_t)load_u64(v)); break;
    case GGUF_FLOAT32: format_float(text, cap, (double)f32_from_bits(load_u32(v)), true); break;
    case GGUF_FLOAT64:
        bits = load_u64(v);
        memcpy(&f64, &bits, sizeof f64);
        format_float(text, cap, f64, false);
        break;
    case GGUF_STRING: case GGUF_ARRAY: case GGUF_TYPE_COUNT: break;
    }
}

static size_t copy_out(const char *src, size_t n, char *buf, size_t cap) {
    if (cap > 0) {
        size_t n_copy = n < cap ? n : cap - 1;
        memcpy(buf, src, n_copy);
        buf[n_copy] = '\0';
    }
    return n;
}

size_t plumb_model_key_value(const plumb_model *m, uint64_t i, uint64_t j, char *buf, size_t cap) {
    static const uint8_t width[GGUF_TYPE_COUNT] = {
        [GGUF_UINT8] = 1, [GGUF_INT8] = 1, [GGUF_BOOL] = 1, [GGUF_UINT16] = 2, [GGUF_INT16] = 2, [GGUF_UINT32] = 4,
        [GGUF_INT32] = 4, [GGUF_FLOAT32] = 4, [GGUF_UINT64] = 8, [GGUF_INT64] = 8, [GGUF_FLOAT64] = 8,
    };
    const struct gguf_key *key = key_at(m, i);
    if (!key || j >= key->n) return copy_out("", 0, buf, cap);
    if (key->type == GGUF_STRING) return copy_out(key->strings[j].data, (size_t)key->strings[j].n, buf, cap);
    char text[64] = "";
    format_scalar(text, sizeof text, key->type, key->values + j * width[key->type]);
    return copy_out(text, strlen(text), buf, cap);
}

uint64_t plumb_model_n_tensor(const plumb_model *m) {
    uint64_t n = 0;
    for (size_t p = 0; p < m->n_part; p++) n += gguf_has_header(m->parts[p]) ? gguf_n_tensor(m->parts[p]) : 0;
    return n;
}

plumb_status plumb_model_tensor(const plumb_model *m, uint64_t i, plumb_tensor *out) {
    for (size_t p = 0; p < m->n_part && gguf_has_header(m->parts[p]); p++) {
        uint64_t n = gguf_n_tensor(m->parts[p]);
        if (i >= n) {
            i -= n;
            continue;
        }
        const struct gguf_tensor *t = gguf_tensor_at(m->parts[p], i);
        *out = (plumb_tensor) { .name = t->name.data, .type = quant_traits(t->type)->name, .n_dims = t->n_dims,
                                .offset = gguf_data_offset(m->parts[p]) + t->offset, .n_bytes = t->n_bytes };
        memcpy(out->shape, t->shape, sizeof out->shape);
        return PLUMB_OK;
    }
    return PLUMB_ERROR_ARGUMENT;
}

plumb_status plumb_model_get_info(const plumb_model *m, plumb_model_info *out) {
    if (!m->model) return PLUMB_ERROR_STATE;
    const struct plan *p = &m->model->plan;
    const struct attn_plan *a = &p->layers[0].attn;
    *out = (plumb_model_info) { .architecture = p->architecture, .n_layer = p->n_layer, .n_embd = p->n_embd,
                                .n_head = a->n_head, .n_head_kv = a->n_head_kv, .head_dim = a->k_dim,
                                .n_ff = p->layers[0].ffn.n_ff, .n_vocab = p->n_vocab, .n_ctx_train = p->n_ctx_train,
                                .has_logits = p->has_logits, .has_encoder = p->n_encoder > 0, .decoder_start = -1,
                                .pooling = p->pooling.kind,
                                .n_pooled = model_n_pooled(m->model, p->pooling.kind) };
    if (out->has_encoder) out->decoder_start = p->decoder_start >= 0 ? p->decoder_start : plumb_token_bos(m);
    for (size_t part = 0; part < m->n_part; part++) {
        for (uint64_t i = 0; i < gguf_n_tensor(m->parts[part]); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(m->parts[part], i);
            out->n_param += t->n_elements;
            out->weight_bytes += t->n_bytes;
        }
    }
    return PLUMB_OK;
}

/* ---- tokenizer --------------------------------------------------------------------------------------------------- */

int64_t plumb_tokenize(plumb_model *m, const char *text, size_t len, unsigned flags, int32_t *ids, size_t cap) {
    if (!m->tokenizer) return wrong_state(m, "the vocabulary is not loaded");
    return tokenizer_encode(m->tokenizer, text, len, flags, ids, cap, &m->err);
}

int64_t plumb_tokenize_marked(plumb_model *m, const char *text, const uint8_t *marks, size_t len, unsigned flags,
                              int32_t *ids, size_t cap) {
    if (!m->tokenizer) return wrong_state(m, "the vocabulary is not loaded");
    if (!marks || !(flags & PLUMB_ADD_SPECIAL)) {
        return tokenizer_encode_marked(m->tokenizer, text, marks, len, flags, ids, cap, &m->err);
    }
    /* No EOS, because the chat goes on, and a BOS only if the template wrote none. */
    const struct ends ends = tokenizer_ends(m->tokenizer);
    int64_t n = tokenizer_encode(m->tokenizer, "", 0, PLUMB_ADD_SPECIAL, NULL, 0, &m->err);   /* are they there? */
    if (n < 0) return n;
    int32_t first = -1;
    flags &= ~(unsigned)PLUMB_ADD_SPECIAL;
    n = tokenizer_encode_marked(m->tokenizer, text, marks, len, flags, &first, 1, &m->err);
    if (n < 0) return n;
    const bool adds_bos = ends.has_first && (n == 0 || first != ends.first);
    const size_t n_written = adds_bos && cap > 0;
    if (n_written > 0) ids[0] = ends.first;
    n = tokenizer_encode_marked(m->tokenizer, text, marks, len, flags, n_written > 0 ? ids + 1 : ids, cap - n_written,
                                &m->err);
    return n < 0 ? n : n + adds_bos;
}

int64_t plumb_tokenize_input(plumb_model *m, const char *query, size_t n_query, const char *text, size_t n_text,
                             unsigned flags, size_t n_max, int32_t *ids, size_t cap) {
    struct gguf_string rerank = { NULL, 0 };
    if (!m->tokenizer) return wrong_state(m, "the vocabulary is not loaded");
    PLUMB_TRY(gguf_get_string(m->parts[0], "tokenizer.chat_template.rerank", &rerank, &m->err));
    return tokenizer_encode_input(m->tokenizer, rerank, (struct gguf_string) { query, n_query },
                                  (struct gguf_string) { text, n_text }, flags, n_max, ids, cap, &m->err);
}

int64_t plumb_token_piece(const plumb_model *m, int32_t id, bool special, char *buf, size_t cap) {
    if (!m->tokenizer) return PLUMB_ERROR_STATE;
    return tokenizer_piece(m->tokenizer, id, special, buf, cap);
}

int64_t plumb_detokenize(const plumb_model *m, const int32_t *ids, size_t n, bool special, char *buf, size_t cap) {
    if (!m->tokenizer) return PLUMB_ERROR_STATE;
    return tokenizer_decode(m->tokenizer, ids, n, special, buf, cap);
}

uint32_t plumb_model_n_vocab(const plumb_model *m) { return m->tokenizer ? tokenizer_n_vocab(m->tokenizer) : 0; }
int32_t plumb_token_bos(const plumb_model *m) { return m->tokenizer ? tokenizer_bos(m->tokenizer) : -1; }
int32_t plumb_token_eos(const plumb_model *m) { return m->tokenizer ? tokenizer_eos(m->tokenizer) : -1; }
bool plumb_token_is_eog(const plumb_model *m, int32_t id) { return m->tokenizer && tokenizer_is_eog(m->tokenizer, id); }

#include "fixture.h"

#include "bytes.h"
#include "gguf_feed.h"
#include "quant/quant.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- models and traces ------------------------------------------------------------------------------------------- */

plumb_status fixture_give(plumb_model *m, const uint8_t *file, size_t at, size_t end, size_t piece) {
    while (at < end) {
        void *data;
        size_t n;
        PLUMB_TRY(plumb_model_window(m, &data, &n));
        if (n == 0) break;
        if (n > piece) n = piece;
        if (n > end - at) n = end - at;
        memcpy(data, file + at, n);
        PLUMB_TRY(plumb_model_commit(m, n));
        at += n;
    }
    return PLUMB_OK;
}

static plumb_status load(plumb_model *m, const char *path) {
    PLUMB_TRY(plumb_model_begin(m, PLUMB_SIZE_UNKNOWN));
    for (uint64_t at = 0;;) {
        void *data;
        size_t n;
        PLUMB_TRY(plumb_model_window(m, &data, &n));
        int64_t n_read = n > 0 ? test_read(path, at, data, n) : 0;
        if (n_read <= 0) return plumb_model_end(m);
        PLUMB_TRY(plumb_model_commit(m, (size_t)n_read));
        at += (uint64_t)n_read;
    }
}

plumb_model *fixture_load(const char *path) {
    plumb_model *m = plumb_model_create();
    if (CHECK(m && load(m, path) == PLUMB_OK, "%s: %s", path, m ? plumb_model_error(m) : "out of memory")) return m;
    plumb_model_free(m);
    return NULL;
}

/* Where the directory of tensors begins: it ends before the padding of the data. */
static size_t directory_of(struct gguf *g, const uint8_t *file) {
    size_t n = 0, end = (size_t)gguf_data_offset(g);
    for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        n += 8 + (size_t)t->name.n + 4 + 8 * t->n_dims + 4 + 8;
    }
    const struct gguf_tensor *first = gguf_tensor_at(g, 0);
    while (memcmp(file + end - n + 8, first->name.data, (size_t)first->name.n) != 0) end--;
    return end - n;
}

static void put_f32(struct bytes *out, struct gguf *g, const uint8_t *file) {
    enum { ALIGNMENT = 32 };   /* GGUF's default */
    uint64_t offset = 0;
    put(out, file, directory_of(g, file));
    for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        put_string(out, t->name.data, (size_t)t->name.n);
        put_number(out, t->n_dims, 4);
        for (uint32_t k = 0; k < t->n_dims; k++) put_number(out, t->shape[k], 8);
        put_number(out, QUANT_F32, 4);
        put_number(out, offset, 8);
        offset += (4 * t->n_elements + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        while (out->n % ALIGNMENT != 0) put_number(out, 0, 1);
        float *values = malloc((size_t)t->n_elements * sizeof *values);
        if (!values) abort();
        quant_dequantize(quant_traits(t->type), file + gguf_data_offset(g) + t->offset, values, (size_t)t->n_elements);
        put(out, values, (size_t)t->n_elements * sizeof *values);
        free(values);
    }
    while (out->n % ALIGNMENT != 0) put_number(out, 0, 1);
}

plumb_model *fixture_load_f32(const char *path) {
    size_t n;
    uint8_t *file = test_read_all(path, &n);
    struct gguf *g = file ? gguf_create(n) : NULL;
    struct feed feed = { .piece = SIZE_MAX };
    struct error err;
    struct bytes out = { 0 };
    if (g && CHECK(feed_file(g, &feed, n, file, n, &err) == PLUMB_OK, "%s", path)) put_f32(&out, g, file);
    plumb_model *m = plumb_model_create();
    if (!CHECK(m && plumb_model_begin(m, out.n) == PLUMB_OK && fixture_give(m, out.data, 0, out.n, SIZE_MAX) == PLUMB_OK
               && plumb_model_end(m) == PLUMB_OK, "%s in F32: %s", path, m ? plumb_model_error(m) : "no memory")) {
        plumb_model_free(m);
        m = NULL;
    }
    gguf_free(g);
    free(file);
    free(out.data);
    return m;
}

uint64_t fixture_hash(const void *bytes, size_t n) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
    return hash;
}

struct bytes fixture_save(plumb_session *s) {
    struct bytes saved = { NULL, 0, 0 };
    CHECK(plumb_session_save(s, keep_bytes, &saved) == PLUMB_OK, "%s", plumb_session_error(s));
    CHECK(plumb_session_save_bytes(s) == saved.n, "%d bytes were foretold, %d are written",
          (int)plumb_session_save_bytes(s), (int)saved.n);
    return saved;
}

plumb_status fixture_restore(plumb_session *s, const uint8_t *bytes, size_t n) {
    return plumb_session_restore(s, give_bytes, &(struct source) { bytes, n, 0 });
}

plumb_trace *fixture_read_trace(const char *path) {
    size_t n;
    void *bytes = test_read_all(path, &n);
    plumb_trace *t = bytes ? plumb_trace_create() : NULL;
    if (t && !CHECK(plumb_trace_read(t, bytes, n) == PLUMB_OK, "%s: %s", path, plumb_trace_error(t))) {
        plumb_trace_free(t);
        t = NULL;
    }
    free(bytes);
    return t;
}

int32_t fixture_largest(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return (int32_t)best;
}

/* ---- captured output --------------------------------------------------------------------------------------------- */

const struct f16_places *fixture_f16_places(uint32_t type) {
    static const struct f16_places places[] = {
        { QUANT_Q4_0, 1, { 0 } }, { QUANT_Q4_1, 2, { 0, 2 } }, { QUANT_Q5_0, 1, { 0 } }, { QUANT_Q5_1, 2, { 0, 2 } },
        { QUANT_Q8_0, 1, { 0 } }, { QUANT_Q2_K, 2, { 80, 82 } }, { QUANT_Q3_K, 1, { 108 } },
        { QUANT_Q4_K, 2, { 0, 2 } }, { QUANT_Q5_K, 2, { 0, 2 } }, { QUANT_Q6_K, 1, { 208 } },
        { QUANT_IQ4_NL, 1, { 0 } }, { QUANT_IQ4_XS, 1, { 0 } }, { QUANT_IQ2_XXS, 1, { 0 } },
        { QUANT_IQ2_XS, 1, { 0 } }, { QUANT_IQ2_S, 1, { 0 } }, { QUANT_IQ3_XXS, 1, { 0 } }, { QUANT_IQ3_S, 1, { 0 } },
        { QUANT_IQ1_S, 1, { 0 } }, { QUANT_TQ1_0, 1, { 52 } }, { QUANT_TQ2_0, 1, { 64 } }, { QUANT_Q1_0, 1, { 0 } },
        { QUANT_Q2_0, 1, { 0 } }, { UINT32_MAX, 0, { 0 } },
    };
    const struct f16_places *p = places;
    while (p->n > 0 && p->type != type) p++;
    return p;
}

void capture_write(void *user, const char *bytes, size_t n) {
    struct capture *t = user;
    char *text = realloc(t->text, t->n + n + 1);
    if (!CHECK(text, "out of memory")) return;
    memcpy(text + t->n, bytes, n);
    t->text = text;
    t->n += n;
    text[t->n] = 0;
}

void capture_free(struct capture *t) {
    free(t->text);
    memset(t, 0, sizeof *t);
}

double capture_number(const struct capture *t, const char *name, const char *field) {
    char text[120];
    snprintf(text, sizeof text, "\"name\": \"%s\"", name);
    const char *at = t->text ? strstr(t->text, text) : NULL;
    snprintf(text, sizeof text, "\"%s\": ", field);
    at = at ? strstr(at, text) : NULL;
    return at ? strtod(at + strlen(text), NULL) : NAN;
}

/* ---- llama.cpp's vectors ----------------------------------------------------------------------------------------- */

bool llama_vectors_read(struct llama_vectors *v, const char *path) {
    char full[200];
    size_t n = 0;
    snprintf(full, sizeof full, "tests/vectors/%s", path);
    memset(v, 0, sizeof *v);
    v->file = test_read_all(full, &n);
    if (!v->file || !CHECK(n >= 32 && memcmp(v->file, "PLMBLOGT", 8) == 0, "%s: no vectors", full)) return false;
    uint32_t *const fields[] = { &v->n_vocab, &v->n_token, &v->n_record, &v->stride, &v->n_sample, &v->n_top };
    for (size_t i = 0; i < 6; i++) *fields[i] = load_u32(v->file + 8 + 4 * i);
    v->records = v->file + 32 + 4 * (size_t)v->n_token;
    v->record_bytes = 4 * (1 + (size_t)v->n_sample + 2 * (size_t)v->n_top);
    v->tokens = alloc_array(v->n_token, sizeof *v->tokens);
    for (uint32_t i = 0; v->tokens && i < v->n_token; i++) v->tokens[i] = (int32_t)load_u32(v->file + 32 + 4 * i);
    return CHECK(v->tokens && v->n_record > 0 && v->n_record <= v->n_token
                 && n == 32 + 4 * (size_t)v->n_token + v->n_record * v->record_bytes,
                 "%s: %zu bytes do not fit its header", full, n);
}

void llama_vectors_free(struct llama_vectors *v) {
    free(v->tokens);
    free(v->file);
    memset(v, 0, sizeof *v);
}

static uint32_t word(const struct llama_vectors *v, uint32_t k, size_t i) {
    return load_u32(v->records + k * v->record_bytes + 4 * i);
}

float llama_f32(const struct llama_vectors *v, uint32_t k, size_t i) { return f32_from_bits(word(v, k, i)); }

int32_t llama_top_id(const struct llama_vectors *v, uint32_t k) { return (int32_t)word(v, k, 1 + v->n_sample); }

float llama_margin(const struct llama_vectors *v, uint32_t k) {
    size_t top = 1 + v->n_sample + v->n_top;
    return llama_f32(v, k, top) - llama_f32(v, k, top + 1);
}

double llama_distance(const struct llama_vectors *v, uint32_t k, const float *logits) {
    double d2 = 0, l2 = 0;
    for (uint32_t i = 0; i < v->n_sample; i++) {
        double l = (double)llama_f32(v, k, 1 + i), d = (double)logits[i * v->stride] - l;
        d2 += d * d;
        l2 += l * l;
    }
    return sqrt(d2 / l2);
}

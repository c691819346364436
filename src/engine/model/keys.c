/* Reading the keys of an architecture; architecture.h says what the functions do. */
#include "model/architecture.h"

#include <stdio.h>

const char *key_of(struct key_reader *r, const char *suffix) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->architecture, suffix);
    return r->key;
}

bool key_is_text(const struct gguf_string *s, const char *text) {
    return s->n == strlen(text) && memcmp(s->data, text, strlen(text)) == 0;
}

plumb_status key_count(struct key_reader *r, const char *suffix, uint32_t max, uint32_t *out) {
    const struct gguf_key *layers;   /* a number for each layer: here that of the first one that has any */
    uint64_t i = 0;
    PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, suffix), &layers, r->err));
    while (layers && i + 1 < layers->n && gguf_element(layers, i) == 0) i++;
    if (layers && layers->n > 0 && gguf_element(layers, i) <= UINT32_MAX) *out = (uint32_t)gguf_element(layers, i);
    else PLUMB_TRY(gguf_get_u32(r->gguf, r->key, out, r->err));
    if (*out == 0 && !gguf_find_key(r->gguf, r->key)) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing", r->key);
    }
    if (*out == 0 || *out > max) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected 1 to %u", r->key, *out, max);
    }
    return PLUMB_OK;
}

plumb_status key_scale(struct key_reader *r, const char *suffix, float *out) {
    float scale = 0.0f;
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, suffix), &scale, r->err));
    if (!(scale == 0.0f || (scale >= 1e-6f && scale <= 1e6f))) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %g, expected 1e-6 to 1e6", r->key, (double)scale);
    }
    if (scale != 0.0f) *out = scale;
    return PLUMB_OK;
}

plumb_status key_epsilon(struct key_reader *r, struct plan *p) {
    const char *suffix = p->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    p->norm_eps = -1.0f;
    bool is_other = p->steps == steps_one && !gguf_find_key(r->gguf, key_of(r, suffix));   /* Nemotron-H */
    if (is_other) suffix = "attention.layer_norm_epsilon";
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, suffix), &p->norm_eps, r->err));
    if (p->norm_eps >= 0.0f && p->norm_eps <= 1.0f) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing or not from 0 to 1", r->key);
}

plumb_status key_freq_base(struct key_reader *r, const char *suffix, float *out) {
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, suffix), out, r->err));
    if (*out >= 1.0f && *out <= 1e12f) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %g, expected 1 to 1e12", r->key, (double)*out);
}

plumb_status key_n_rot(struct key_reader *r, const char *suffix, uint32_t k_dim, uint32_t *out) {
    PLUMB_TRY(key_count(r, suffix, k_dim, out));
    if (*out % 2 == 0) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected an even number", r->key, *out);
}

plumb_status key_width(struct key_reader *r, const char *suffix, uint32_t width, uint32_t *out) {
    enum { MAX_WIDTH = 1 << 22 };
    *out = 0;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, suffix), out, r->err));
    if (*out > MAX_WIDTH) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected at most %d", r->key, *out, MAX_WIDTH);
    }
    if (*out == 0) *out = width;
    return PLUMB_OK;
}

plumb_status key_limit(struct key_reader *r, const char *suffix, float *out) {
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, suffix), out, r->err));
    if (*out >= 0.0f && *out <= 1e30f) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %g, expected 0 to 1e30", r->key, (double)*out);
}

plumb_status key_number(struct key_reader *r, const char *key, uint32_t il, float *out) {
    const struct gguf_key *k = gguf_find_key(r->gguf, key);
    if (k && k->is_array && k->type == GGUF_FLOAT32 && il < k->n) {
        *out = f32_from_bits(load_u32(k->values + 4 * (size_t)il));
    } else {
        PLUMB_TRY(gguf_get_f32(r->gguf, key, out, r->err));
    }
    if (*out >= -1e6f && *out <= 1e6f) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing, or %g for layer %u, expected -1e6 to 1e6", key,
                     (double)*out, il);
}

plumb_status key_swiglu_limit(struct key_reader *r, const char *suffix, uint32_t il, float *out) {
    PLUMB_TRY(key_number(r, key_of(r, suffix), il, out));
    if (*out <= 1e-6f) *out = 0.0f;
    return PLUMB_OK;
}

plumb_status key_recurrent(struct key_reader *r, const struct plan *p, const struct gguf_key **out) {
    PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, "attention.recurrent_layers"), out, r->err));
    if (*out && (*out)->n < p->n_layer) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s has %llu elements for %u layers", r->key,
                         (unsigned long long)(*out)->n, p->n_layer);
    }
    return PLUMB_OK;
}

const struct gguf_tensor *key_tensor_outside(const struct key_reader *r, const char *name) {
    return gguf_find_in_parts(r->parts, r->n_part, name);
}

const struct gguf_tensor *key_tensor(const struct key_reader *r, uint32_t il, const char *suffix) {
    char name[64];
    snprintf(name, sizeof name, "%sblk.%u.%s", r->prefix, il, suffix);
    return key_tensor_outside(r, name);
}

plumb_status key_requires(const struct key_reader *r, uint32_t il, const char *suffix) {
    if (key_tensor(r, il, suffix)) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_TENSOR, "tensor %sblk.%u.%s is missing", r->prefix, il, suffix);
}

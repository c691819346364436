/* Typed access to keys, on top of gguf_find_key. */
#include "gguf/gguf.h"

#include <inttypes.h>
#include <math.h>

static plumb_status wrong_type(const struct gguf_key *k, const char *expected, struct error *err) {
    struct shown shown;
    return error_set(err, PLUMB_ERROR_METADATA, "key \"%s\" is %s%s, expected %s",
                     show_bytes(&shown, k->name.data, (size_t)k->name.n), k->is_array ? "an array of " : "",
                     gguf_type_name(k->type), expected);
}

/* Element i of a key as an integer; negative numbers become larger than UINT32_MAX.  Returns false for other types. */
static bool integer_at(const struct gguf_key *k, uint64_t i, uint64_t *value) {
    const uint8_t *v = k->values;
    switch (k->type) {
    case GGUF_UINT8: *value = v[i]; return true;
    case GGUF_INT8: *value = (uint64_t)(int8_t)v[i]; return true;
    case GGUF_UINT16: *value = load_u16(v + 2 * i); return true;
    case GGUF_INT16: *value = (uint64_t)(int16_t)load_u16(v + 2 * i); return true;
    case GGUF_UINT32: *value = load_u32(v + 4 * i); return true;
    case GGUF_INT32: *value = (uint64_t)(int32_t)load_u32(v + 4 * i); return true;
    case GGUF_UINT64: case GGUF_INT64: *value = load_u64(v + 8 * i); return true;
    default: return false;
    }
}

plumb_status gguf_get_u32(const struct gguf *g, const char *name, uint32_t *out, struct error *err) {
    static const char expected[] = "an integer from 0 to 4294967295";
    const struct gguf_key *k = gguf_find_key(g, name);
    if (k == NULL) return PLUMB_OK;
    uint64_t value;
    if (k->is_array || !integer_at(k, 0, &value)) return wrong_type(k, expected, err);
    if (value > UINT32_MAX) {
        struct shown shown;
        show_bytes(&shown, k->name.data, (size_t)k->name.n);
        if (k->type == GGUF_UINT64)
            return error_set(err, PLUMB_ERROR_METADATA, "key \"%s\" is %" PRIu64 ", expected %s", shown.text, value,
                             expected);
        return error_set(err, PLUMB_ERROR_METADATA, "key \"%s\" is %" PRId64 ", expected %s", shown.text,
                         (int64_t)value, expected);
    }
    *out = (uint32_t)value;
    return PLUMB_OK;
}

plumb_status gguf_get_f32(const struct gguf *g, const char *name, float *out, struct error *err) {
    const struct gguf_key *k = gguf_find_key(g, name);
    if (k == NULL) return PLUMB_OK;
    if (k->is_array || (k->type != GGUF_FLOAT32 && k->type != GGUF_FLOAT64)) return wrong_type(k, "float32", err);
    if (k->type == GGUF_FLOAT32) {
        *out = f32_from_bits(load_u32(k->values));
        return PLUMB_OK;
    }
    uint64_t bits = load_u64(k->values);
    double value;
    memcpy(&value, &bits, 8);
    if (fabs(value) > 0x1.fffffep127 && !isinf(value)) {
        struct shown shown;
        return error_set(err, PLUMB_ERROR_METADATA, "key \"%s\" is %g, which float32 cannot represent",
                         show_bytes(&shown, k->name.data, (size_t)k->name.n), value);
    }
    *out = (float)value;
    return PLUMB_OK;
}

plumb_status gguf_get_bool(const struct gguf *g, const char *name, bool *out, struct error *err) {
    const struct gguf_key *k = gguf_find_key(g, name);
    if (k == NULL) return PLUMB_OK;
    if (k->is_array || k->type != GGUF_BOOL) return wrong_type(k, "bool", err);
    *out = k->values[0] != 0;
    return PLUMB_OK;
}

plumb_status gguf_get_flags(const struct gguf *g, const char *name, const struct gguf_key **out, struct error *err) {
    *out = NULL;
    const struct gguf_key *k = gguf_find_key(g, name);
    uint64_t value;
    if (k == NULL || !k->is_array) return PLUMB_OK;
    if (k->type != GGUF_BOOL && k->n > 0 && !integer_at(k, 0, &value)) {
        return wrong_type(k, "an array of bool or of integers", err);
    }
    *out = k;
    return PLUMB_OK;
}

uint64_t gguf_element(const struct gguf_key *flags, uint64_t i) {
    uint64_t value = 0;
    if (flags->type == GGUF_BOOL) return flags->values[i] != 0;
    return integer_at(flags, i, &value) ? value : UINT64_MAX;
}

plumb_status gguf_get_string(const struct gguf *g, const char *name, struct gguf_string *out, struct error *err) {
    const struct gguf_key *k = gguf_find_key(g, name);
    if (k == NULL) return PLUMB_OK;
    if (k->is_array || k->type != GGUF_STRING) return wrong_type(k, "string", err);
    *out = k->strings[0];
    return PLUMB_OK;
}

plumb_status gguf_get_array(const struct gguf *g, const char *name, enum gguf_type type, const struct gguf_key **out,
                            struct error *err) {
    *out = NULL;
    const struct gguf_key *k = gguf_find_key(g, name);
    if (k == NULL) return PLUMB_OK;
    if (!k->is_array || k->type != type) {
        char expected[32] = "an array of ";
        strncat(expected, gguf_type_name(type), sizeof expected - sizeof "an array of ");
        return wrong_type(k, expected, err);
    }
    *out = k;
    return PLUMB_OK;
}

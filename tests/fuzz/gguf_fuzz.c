/* Fuzz target of the GGUF reader.  The first byte seeds the sizes of pieces, the rest is the file.
 * A file is read four times: size known or not, all at once or in pieces.  Traps if memory exceeds what the bytes
 * justify, if pieces change the outcome or if the result is inconsistent. */
#include "../gguf_feed.h"

#include "quant/quant.h"
#include "repack/repack.h"
#include "fuzz.h"

#define MUST(condition) do { if (!(condition)) __builtin_trap(); } while (0)

static uint32_t touch(const void *bytes, uint64_t n) {
    uint32_t sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += ((const uint8_t *)bytes)[i];
    return sum;
}

/* Reads everything that a complete header promises. */
static uint32_t walk(struct gguf *g) {
    uint32_t sum = 0;
    struct error err;
    for (uint64_t i = 0; i < gguf_n_key(g); i++) {
        const struct gguf_key *k = gguf_key_at(g, i), *array;
        const char *name = k->name.data;
        MUST(k->type != GGUF_ARRAY && k->type < GGUF_TYPE_COUNT && (k->is_array || k->n == 1));
        MUST(strlen(name) == k->name.n && gguf_find_key(g, name) == k);
        static const uint8_t sizes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        if (k->type != GGUF_STRING) sum += touch(k->values, k->n * sizes[k->type]);
        for (uint64_t j = 0; k->type == GGUF_STRING && j < k->n; j++) {
            sum += touch(k->strings[j].data, k->strings[j].n);
            MUST(k->strings[j].data[k->strings[j].n] == 0);
        }
        uint32_t u32;
        float f32;
        bool yes;
        struct gguf_string string;
        int n_kind = (gguf_get_u32(g, name, &u32, &err) == PLUMB_OK) + (gguf_get_f32(g, name, &f32, &err) == PLUMB_OK) +
                     (gguf_get_bool(g, name, &yes, &err) == PLUMB_OK) +
                     (gguf_get_string(g, name, &string, &err) == PLUMB_OK);
        for (enum gguf_type t = 0; t < GGUF_TYPE_COUNT; t++)
            n_kind += gguf_get_array(g, name, t, &array, &err) == PLUMB_OK;
        MUST(n_kind <= 1);
    }
    for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
        struct gguf_tensor *t = gguf_tensor_at(g, i);
        MUST(t->n_dims >= 1 && t->n_dims <= 4 && t->n_bytes > 0 && t->n_received <= t->n_bytes);
        MUST(t->n_elements == t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]);
        MUST(t->n_bytes == t->n_elements / quant_traits(t->type)->block_size * quant_traits(t->type)->block_bytes);
        MUST(gguf_find_tensor(g, t->name.data) == t);
        MUST(t->n_received == 0 || t->data != NULL);
        if (gguf_is_complete(g)) MUST(t->n_received == t->n_bytes);
        MUST(t->n_packed * gguf_row_bytes(t) <= t->n_received);
        sum += touch(t->data, t->n_received);
    }
    return sum;
}

/* packs: with packed weights, as models are read. */
static plumb_status read_once(const uint8_t *file, size_t n, uint64_t file_size, struct feed feed, bool packs,
                              struct error *err) {
    feed.heap_start = heap_bytes();
    *err = (struct error){PLUMB_OK, ""};
    struct gguf *g = gguf_create(file_size);
    MUST(g != NULL);
    struct repacker repacker = {0};
    if (packs) gguf_set_on_data(g, repack_arrived, &repacker);
    plumb_status status = feed_file(g, &feed, file_size, file, n, err);
    MUST(status == err->status && (status == PLUMB_OK || err->message[0] != 0));
    MUST(status != PLUMB_ERROR_ARGUMENT);
    MUST(feed.excess == 0);
    if (gguf_has_header(g)) walk(g);
    gguf_free(g);
    repacker_free(&repacker);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct feed whole = {.piece = SIZE_MAX, .random = 1}, pieces = {.piece = 0, .random = data[0] + 1u};
    if (data[0] == 0) pieces.piece = 1;
    struct error err[4];
    plumb_status known = read_once(data + 1, size - 1, size - 1, whole, false, &err[0]);
    plumb_status streamed = read_once(data + 1, size - 1, PLUMB_SIZE_UNKNOWN, whole, false, &err[1]);
    read_once(data + 1, size - 1, size - 1, pieces, true, &err[2]);
    read_once(data + 1, size - 1, PLUMB_SIZE_UNKNOWN, pieces, true, &err[3]);
    MUST((known == PLUMB_OK) == (streamed == PLUMB_OK));
    for (int i = 0; i < 2; i++)
        MUST(err[i].status == err[i + 2].status && strcmp(err[i].message, err[i + 2].message) == 0);
    return 0;
}

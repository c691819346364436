/* Writes and reads a trace of whole tensors as a GGUF v3 file, which the gguf Python package opens too.
 *
 *   general.architecture "plumb-trace" | plumb.trace.program | .tokens | .n_prompt | .pieces | .bos
 *   plumb.trace.tap_order
 *   one F32 tensor for each tap: its name is the tap's, its shape (n, n_head, n_token), fastest dimension first as in
 *   GGUF; n_head is left out if it is 1
 *
 * The rows of a tensor belong to the last tokens, mostly to all of them; if the file does not list the tokens, they
 * belong to tokens 0, 1, 2...  If a tap has other rows, plumb.trace.rows.<tap> lists their positions.
 *
 * The writer refuses a trace with a row that lacks some of its values.  It does not write statistics, entropies, texts
 * and rows of all tokens together (TRACE_ALL_TOKENS).  The reader accepts tensors of every type that plumb can
 * dequantize.  It refuses a file whose general.architecture is another one, because that is a model; a file without
 * this key is taken for a trace.
 */
#include "dump/dump.h"
#include "gguf/gguf.h"
#include "quant/quant.h"
#include "trace/report.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGNMENT = 32 };   /* GGUF's default, since the file has no general.alignment */

/* ---- writing ---------------------------------------------------------------------------------------------------- */

struct out {
    struct report_writer w;
    uint64_t n;   /* bytes written so far */
};

static void put(struct out *o, const void *bytes, size_t n) {
    report_bytes(&o->w, bytes, n);
    o->n += n;
}

static void put_u32(struct out *o, uint32_t v) {
    const uint8_t bytes[4] = { (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24) };
    put(o, bytes, 4);
}

static void put_u64(struct out *o, uint64_t v) {
    put_u32(o, (uint32_t)v);
    put_u32(o, (uint32_t)(v >> 32));
}

static void put_string(struct out *o, const char *s) {
    put_u64(o, strlen(s));
    put(o, s, strlen(s));
}

static void put_key(struct out *o, const char *name, enum gguf_type type) {
    put_string(o, name);
    put_u32(o, (uint32_t)type);
}

static void put_array(struct out *o, const char *name, enum gguf_type type, uint64_t n) {
    put_key(o, name, GGUF_ARRAY);
    put_u32(o, (uint32_t)type);
    put_u64(o, n);
}

static void pad(struct out *o) {
    static const char zeros[ALIGNMENT];
    put(o, zeros, (ALIGNMENT - o->n % ALIGNMENT) % ALIGNMENT);
}

/* Returns how many rows of a tap belong to single tokens.  A row of all tokens together is the last one. */
static uint32_t n_row_of(const struct trace_tap *tap) {
    return tap->n_row > 0 && tap->rows[tap->n_row - 1].pos == TRACE_ALL_TOKENS ? tap->n_row - 1 : tap->n_row;
}

/* Returns true if the reader will give the tap's rows their positions without a list of them.  It knows the number of
 * tokens only from their ids, so t->n_token does not count if the trace does not have the ids. */
static bool are_last_tokens(const struct plumb_trace *t, const struct trace_tap *tap) {
    uint32_t n = n_row_of(tap), first = t->tokens ? trace_first_token(t, n) : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (tap->rows[i].pos != first + i) return false;
    }
    return true;
}

static plumb_status check_whole(struct plumb_trace *t, const struct trace_tap *tap) {
    for (uint32_t i = 0; i < n_row_of(tap); i++) {
        const struct trace_row *row = &tap->rows[i];
        uint64_t size = (uint64_t)row->n_head * row->n;
        struct tap_text name;
        tap_show(&name, tap->id, tap->layer);
        if (size == 0 || row->n_value != size || row->places) {
            return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "%s of token %u: %u of %llu values are known; a GGUF holds "
                             "whole tensors", name.text, row->pos, row->n_value, (unsigned long long)size);
        }
        if (row->n_head != tap->rows[0].n_head || row->n != tap->rows[0].n) {
            return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "%s: %u x %u for token %u, but %u x %u for token %u",
                             name.text, tap->rows[0].n_head, tap->rows[0].n, tap->rows[0].pos, row->n_head, row->n,
                             row->pos);
        }
    }
    return PLUMB_OK;
}

static void put_keys(struct out *o, const struct plumb_trace *t) {
    put_key(o, "general.architecture", GGUF_STRING);
    put_string(o, "plumb-trace");
    if (t->source) {
        put_key(o, "plumb.trace.program", GGUF_STRING);
        put_string(o, t->source);
    }
    if (t->tokens) {
        put_array(o, "plumb.trace.tokens", GGUF_INT32, t->n_token);
        for (uint32_t i = 0; i < t->n_token; i++) put_u32(o, (uint32_t)t->tokens[i]);
        put_key(o, "plumb.trace.n_prompt", GGUF_UINT32);
        put_u32(o, t->n_prompt);
    }
    if (t->tokens && t->pieces) {
        put_array(o, "plumb.trace.pieces", GGUF_STRING, t->n_token);
        for (uint32_t i = 0; i < t->n_token; i++) put_string(o, t->pieces[i] ? t->pieces[i] : "");
    }
    if (t->bos >= 0) {
        put_key(o, "plumb.trace.bos", GGUF_INT32);
        put_u32(o, (uint32_t)t->bos);
    }
    if (t->order) {
        struct trace_order_text order;
        put_key(o, "plumb.trace.tap_order", GGUF_STRING);
        put_string(o, trace_show_order(&order, t->order));
    }
}

static const char *rows_key(char buf[64], const struct trace_tap *tap) {
    struct tap_text name;
    snprintf(buf, 64, "plumb.trace.rows.%s", tap_show(&name, tap->id, tap->layer));
    return buf;
}

plumb_status dump_write_gguf(struct plumb_trace *t, plumb_write *write, void *user) {
    uint64_t n_tensor = 0, n_key = 1;
    n_key += t->source ? 1 : 0;
    n_key += t->tokens ? 2 : 0;
    n_key += t->tokens && t->pieces ? 1 : 0;
    n_key += t->bos >= 0 ? 1 : 0;
    n_key += t->order ? 1 : 0;
    for (size_t i = 0; i < t->n_tap; i++) {
        PLUMB_TRY(check_whole(t, &t->taps[i]));
        n_tensor += n_row_of(&t->taps[i]) > 0;
        n_key += !are_last_tokens(t, &t->taps[i]);
    }
    struct out o = { .n = 0 };
    report_begin(&o.w, write, user);
    put(&o, "GGUF", 4);
    put_u32(&o, 3);
    put_u64(&o, n_tensor);
    put_u64(&o, n_key);
    put_keys(&o, t);
    char key[64];
    for (size_t i = 0; i < t->n_tap; i++) {
        const struct trace_tap *tap = &t->taps[i];
        if (are_last_tokens(t, tap)) continue;
        put_array(&o, rows_key(key, tap), GGUF_INT32, n_row_of(tap));
        for (uint32_t k = 0; k < n_row_of(tap); k++) put_u32(&o, tap->rows[k].pos);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < t->n_tap; i++) {
        const struct trace_tap *tap = &t->taps[i];
        if (n_row_of(tap) == 0) continue;
        const struct trace_row *row = &tap->rows[0];
        struct tap_text name;
        put_string(&o, tap_show(&name, tap->id, tap->layer));
        put_u32(&o, row->n_head > 1 ? 3 : 2);
        put_u64(&o, row->n);
        if (row->n_head > 1) put_u64(&o, row->n_head);
        put_u64(&o, n_row_of(tap));
        put_u32(&o, QUANT_F32);
        put_u64(&o, offset);
        uint64_t n_bytes = 4 * (uint64_t)row->n_value * n_row_of(tap);   /* no overflow: all the values are in memory */
        offset += (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    pad(&o);
    for (size_t i = 0; i < t->n_tap; i++) {
        for (uint32_t k = 0; k < n_row_of(&t->taps[i]); k++) {
            const struct trace_row *row = &t->taps[i].rows[k];
            for (uint32_t v = 0; v < row->n_value; v++) put_u32(&o, f32_to_bits(row->values[v]));
        }
        pad(&o);
    }
    report_flush(&o.w);
    return PLUMB_OK;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Gives all bytes of the file to the GGUF reader, which keeps copies. */
static plumb_status receive(struct plumb_trace *t, struct gguf *g, const uint8_t *bytes, size_t n) {
    while (n > 0) {
        void *data;
        size_t len;
        PLUMB_TRY(gguf_window(g, &data, &len, &t->err));
        if (len == 0) break;   /* only padding is left */
        if (len > n) len = n;
        memcpy(data, bytes, len);
        PLUMB_TRY(gguf_commit(g, len, &t->err));
        bytes += len;
        n -= len;
    }
    return gguf_finish(g, &t->err);
}

/* Reads an array of int32, the type with which the gguf package writes a list of integers.  The caller frees *ids.  If
 * the key is absent, *ids is NULL and *n is 0. */
static plumb_status get_ids(struct plumb_trace *t, const struct gguf *g, const char *name, int32_t **ids,
                            uint64_t *n) {
    const struct gguf_key *key;
    *ids = NULL;
    *n = 0;
    PLUMB_TRY(gguf_get_array(g, name, GGUF_INT32, &key, &t->err));
    if (!key) return PLUMB_OK;
    *ids = alloc_array(key->n, sizeof **ids);
    if (!*ids) return error_set(&t->err, PLUMB_ERROR_MEMORY, "out of memory: %s", name);
    *n = key->n;
    for (uint64_t i = 0; i < key->n; i++) (*ids)[i] = (int32_t)load_u32(key->values + 4 * i);
    return PLUMB_OK;
}

static plumb_status read_keys(struct plumb_trace *t, const struct gguf *g) {
    struct gguf_string architecture = { "plumb-trace", 11 }, program = { NULL, 0 };
    PLUMB_TRY(gguf_get_string(g, "general.architecture", &architecture, &t->err));
    if (architecture.n != 11 || memcmp(architecture.data, "plumb-trace", 11) != 0) {
        struct shown shown;
        return error_set(&t->err, PLUMB_ERROR_METADATA, "general.architecture is \"%s\": this GGUF is a model, not a "
                         "trace (plumb-trace)", show_bytes(&shown, architecture.data, (size_t)architecture.n));
    }
    PLUMB_TRY(gguf_get_string(g, "plumb.trace.program", &program, &t->err));
    if (program.data) PLUMB_TRY(trace_set_source(t, program.data, (size_t)program.n));
    struct gguf_string order = { "", 0 };
    PLUMB_TRY(gguf_get_string(g, "plumb.trace.tap_order", &order, &t->err));
    trace_read_order(t, order.data, (size_t)order.n);
    uint64_t n;
    int32_t *ids;
    plumb_status status = get_ids(t, g, "plumb.trace.tokens", &ids, &n);
    uint32_t n_prompt = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    if (status == PLUMB_OK) status = gguf_get_u32(g, "plumb.trace.n_prompt", &n_prompt, &t->err);
    if (status == PLUMB_OK && n > 0) status = trace_set_tokens(t, ids, (size_t)n, n_prompt);
    free(ids);
    PLUMB_TRY(status);
    uint32_t bos = UINT32_MAX;
    PLUMB_TRY(gguf_get_u32(g, "plumb.trace.bos", &bos, &t->err));
    if (bos <= INT32_MAX) t->bos = (int32_t)bos;
    const struct gguf_key *pieces;
    PLUMB_TRY(gguf_get_array(g, "plumb.trace.pieces", GGUF_STRING, &pieces, &t->err));
    if (pieces && pieces->n != t->n_token) {
        return error_set(&t->err, PLUMB_ERROR_METADATA, "plumb.trace.pieces: %llu texts for %u tokens",
                         (unsigned long long)pieces->n, t->n_token);
    }
    for (uint32_t i = 0; pieces && i < t->n_token; i++) {
        PLUMB_TRY(trace_set_piece(t, i, pieces->strings[i].data, (size_t)pieces->strings[i].n));
    }
    return PLUMB_OK;
}

static plumb_status read_rows(struct plumb_trace *t, const struct gguf_tensor *x, enum tap_id id, int32_t layer,
                              const int32_t *positions, uint64_t n_position) {
    struct tap_text name;
    tap_show(&name, id, layer);
    const struct quant_traits *traits = quant_traits(x->type);
    if (!traits || traits->block_size == 0) {
        return error_set(&t->err, PLUMB_ERROR_UNSUPPORTED, "%s: tensors of type %u cannot be read", name.text, x->type);
    }
    uint64_t n_head = x->n_dims >= 3 ? x->shape[1] : 1, n_row = x->n_dims >= 2 ? x->shape[x->n_dims - 1] : 1;
    uint64_t size;
    if (x->n_dims > 3 || !mul_u64(x->shape[0], n_head, &size) || size > UINT32_MAX || n_row >= UINT32_MAX) {
        return error_set(&t->err, PLUMB_ERROR_TENSOR, "%s: expected a shape of at most (n, n_head, n_token), less than "
                         "2^32 values per token", name.text);
    }
    if (positions && n_position != n_row) {
        return error_set(&t->err, PLUMB_ERROR_METADATA, "plumb.trace.rows.%s: %llu positions for %llu rows", name.text,
                         (unsigned long long)n_position, (unsigned long long)n_row);
    }
    for (uint64_t i = 0; positions && i < n_row; i++) {
        if (positions[i] >= 0) continue;
        return error_set(&t->err, PLUMB_ERROR_METADATA, "plumb.trace.rows.%s: position %d of row %llu is negative",
                         name.text, (int)positions[i], (unsigned long long)i);
    }
    float *values = alloc_array(size, sizeof *values);
    if (!values) return error_set(&t->err, PLUMB_ERROR_MEMORY, "out of memory: a row of %s", name.text);
    size_t row_bytes = (size_t)(x->n_bytes / n_row);
    plumb_status status = PLUMB_OK;
    for (uint64_t i = 0; i < n_row && status == PLUMB_OK; i++) {
        uint32_t pos = positions ? (uint32_t)positions[i] : (uint32_t)(trace_first_token(t, n_row) + i);
        struct trace_row *row;
        quant_dequantize(traits, x->data + i * row_bytes, values, (size_t)size);
        status = trace_new_row(t, id, layer, pos, &row);
        if (status != PLUMB_OK) break;
        status = trace_set_values(t, row, id, (uint32_t)n_head, (uint32_t)x->shape[0], values, NULL, (uint32_t)size);
    }
    free(values);
    return status;
}

static plumb_status read_tensor(struct plumb_trace *t, const struct gguf *g, const struct gguf_tensor *x) {
    enum tap_id id;
    int32_t layer;
    uint32_t name = tap_parse(x->name.data, (size_t)x->name.n, &id, &layer);
    bool take;
    PLUMB_TRY(trace_begin_tap(t, &id, layer, name, x->name.data, (size_t)x->name.n, &take));
    if (!take) return PLUMB_OK;
    char key[64];
    int32_t *positions;
    uint64_t n_position;
    PLUMB_TRY(get_ids(t, g, rows_key(key, &(struct trace_tap) { .id = id, .layer = layer }), &positions, &n_position));
    plumb_status status = read_rows(t, x, id, layer, positions, n_position);
    free(positions);
    return status;
}

plumb_status dump_read_gguf(struct plumb_trace *t, const void *bytes, size_t n) {
    struct gguf *g = gguf_create(n);
    if (!g) return error_set(&t->err, PLUMB_ERROR_MEMORY, "out of memory: the reader of a GGUF file");
    plumb_status status = receive(t, g, bytes, n);
    if (status == PLUMB_OK) status = read_keys(t, g);
    for (uint64_t i = 0; status == PLUMB_OK && i < gguf_n_tensor(g); i++) {
        status = read_tensor(t, g, gguf_tensor_at(g, i));
    }
    gguf_free(g);
    return status;
}

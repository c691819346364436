/* plumb_trace_read and plumb_trace_write.  A file's format is recognized by its first bytes: "GGUF", "PK" (zip) or '{'.
 * Everything else is read as text of llama-eval-callback, whose reader says what is wrong with it. */
#include "dump/dump.h"

static plumb_status read_any(struct plumb_trace *t, const char *bytes, size_t n) {
    if (n >= 4 && memcmp(bytes, "GGUF", 4) == 0) return dump_read_gguf(t, bytes, n);
    if (n >= 2 && memcmp(bytes, "PK", 2) == 0) return dump_read_npz(t, bytes, n);
    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) {   /* a byte order mark, which some editors add */
        bytes += 3;
        n -= 3;
    }
    size_t at = 0;
    while (at < n && memchr(" \t\r\n", bytes[at], 4)) at++;
    if (at < n && bytes[at] == '{') return dump_read_json(t, bytes, n);
    return dump_read_callback(t, bytes, n);
}

/* Returns true if some name in the file contains this text.  All formats store names as plain bytes, so it is enough to
 * search the whole file for them. */
static bool has_name(const char *bytes, size_t n, const char *text) {
    size_t n_text = strlen(text);
    for (size_t i = 0; n >= n_text && i <= n - n_text; i++) {
        const char *at = memchr(bytes + i, text[0], n - n_text - i + 1);
        if (!at) return false;
        if (memcmp(at, text, n_text) == 0) return true;
        i = (size_t)(at - bytes);
    }
    return false;
}

plumb_status plumb_trace_read(plumb_trace *t, const void *bytes, size_t n) {
    trace_clear(t);
    t->has_output_norms = has_name(bytes, n, "_feedforward_layernorm") || has_name(bytes, n, "pre_mlp_layernorm");
    static const struct { const char *name; enum tap_id id; } sums[] = {
        { "q_proj/Add", TAP_QCUR }, { "k_proj/Add", TAP_KCUR }, { "v_proj/Add", TAP_VCUR },
        { "o_proj/Add", TAP_ATTN_OUT }, { "gate_proj/Add", TAP_FFN_GATE }, { "up_proj/Add", TAP_FFN_UP },
        { "down_proj/Add", TAP_FFN_OUT },
    };
    bool has_sums = has_name(bytes, n, "_proj/Add");
    for (size_t i = 0; i < sizeof sums / sizeof *sums && has_sums; i++) {
        if (has_name(bytes, n, sums[i].name)) t->with_bias |= ID_SET(sums[i].id);
    }
    plumb_status status = read_any(t, bytes, n);
    if (status == PLUMB_OK) status = trace_sort(t);
    if (status != PLUMB_OK) {
        struct error err = t->err;
        trace_clear(t);
        t->err = err;
    }
    return status;
}

plumb_status plumb_trace_write(plumb_trace *t, plumb_format format, plumb_write *write, void *user) {
    if (format == PLUMB_FORMAT_GGUF) return dump_write_gguf(t, write, user);
    if (format != PLUMB_FORMAT_JSON && format != PLUMB_FORMAT_TEXT) {
        return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "a trace is written as text, JSON or GGUF, not as format %d",
                         (int)format);
    }
    if (format == PLUMB_FORMAT_TEXT) dump_write_table(t, write, user);
    else dump_write_json(t, write, user);
    return PLUMB_OK;
}

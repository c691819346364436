/* Any bytes as a trace: JSON, GGUF, .npz, or the text of llama-eval-callback.
 *
 * They are read or refused with an error message.  A trace that was read satisfies struct plumb_trace: rows and places
 * ascend, places and tokens are in range.  Written as JSON it can be read again.
 */
#include "trace/trace.h"
#include "fuzz.h"

#include <math.h>

static void check_row(const struct plumb_trace *t, const struct trace_tap *tap, const struct trace_row *row) {
    uint64_t n = (uint64_t)row->n_head * row->n;
    require(row == tap->rows || row[-1].pos < row->pos, "rows do not ascend");
    require(row->pos == TRACE_ALL_TOKENS || t->n_token == 0
            || row->pos < (uint64_t)t->n_token + TRACE_MAX_EXTRA_ROWS, "a row behind the last token");
    require(n == 0 || row->n_value <= n, "more values than places");
    double sum = 0;   /* reads all of them, so that the sanitizer detects a list that is too short */
    for (uint32_t i = 0; i < row->n_value; i++) {
        sum += (double)row->values[i];
        if (!row->places) continue;
        require(n == 0 || row->places[i] < n, "a place outside the row");
        require(i == 0 || row->places[i - 1] < row->places[i], "places do not ascend");
    }
    for (uint32_t h = 0; row->entropy && h < row->n_head; h++) sum += (double)row->entropy[h];
    require(sum <= INFINITY || isnan(sum), "a sum of nothing");
}

struct bytes { char *data; size_t n, cap; };

static void gather(void *user, const char *bytes, size_t n) {
    struct bytes *b = user;
    if (n > b->cap - b->n) {
        b->cap = 2 * (b->n + n);
        b->data = realloc(b->data, b->cap);
        require(b->data != NULL, "no memory");
    }
    memcpy(b->data + b->n, bytes, n);
    b->n += n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    plumb_trace *t = plumb_trace_create();
    require(t != NULL, "no memory");
    bool ok = plumb_trace_read(t, data, size) == PLUMB_OK;
    require(ok == (plumb_trace_error(t)[0] == 0), "an error without a sentence");
    require(t->n_prompt <= t->n_token, "a prompt of more than there is");
    for (size_t i = 0; i < t->n_tap; i++) {
        const struct trace_tap *tap = &t->taps[i];
        require(i == 0 || tap_place(t->order, tap[-1].id, tap[-1].layer) < tap_place(t->order, tap->id, tap->layer),
                "taps do not ascend");
        for (uint32_t j = 0; j < tap->n_row; j++) check_row(t, tap, &tap->rows[j]);
    }
    if (ok) {
        struct bytes json = {NULL, 0, 0};
        require(plumb_trace_write(t, PLUMB_FORMAT_JSON, gather, &json) == PLUMB_OK, "it is not written");
        if (plumb_trace_read(t, json.data, json.n) != PLUMB_OK) require(false, plumb_trace_error(t));
        free(json.data);
    }
    plumb_trace_free(t);
    return 0;
}

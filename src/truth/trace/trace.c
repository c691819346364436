#include "trace/trace.h"

#include "base/math.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const plumb_trace_params default_params = { NULL, 0, UINT32_MAX, 8 };

static plumb_status out_of_memory(struct plumb_trace *t, uint64_t n, const char *what) {
    return error_set(&t->err, PLUMB_ERROR_MEMORY, "out of memory: %llu %s", (unsigned long long)n, what);
}

/* ---- the whole trace -------------------------------------------------------------------------------------------- */

plumb_trace *plumb_trace_create(void) {
    plumb_trace *t = calloc(1, sizeof *t);
    if (t) trace_clear(t);
    return t;
}

void plumb_trace_free(plumb_trace *t) {
    if (!t) return;
    trace_clear(t);
    free(t);
}

const char *plumb_trace_error(const plumb_trace *t) { return t->err.message; }
size_t plumb_trace_n_token(const plumb_trace *t) { return t->n_token; }
const int32_t *plumb_trace_tokens(const plumb_trace *t) { return t->tokens; }
uint64_t plumb_trace_n_value(const plumb_trace *t) {
    uint64_t n = 0;
    for (size_t i = 0; i < t->n_tap; i++) {
        for (uint32_t j = 0; j < t->taps[i].n_row; j++) n += t->taps[i].rows[j].n_value;
    }
    return n;
}

static void free_pieces(struct plumb_trace *t) {
    for (uint32_t i = 0; t->pieces && i < t->n_token; i++) free(t->pieces[i]);
    free(t->pieces);
    t->pieces = NULL;
}

static void free_texts(struct plumb_trace *t) {
    for (size_t i = 0; i < t->n_text; i++) free(t->texts[i].text);
    free(t->texts);
}

void trace_clear(struct plumb_trace *t) {
    for (size_t i = 0; i < t->n_tap; i++) {
        for (uint32_t j = 0; j < t->taps[i].n_row; j++) {
            free(t->taps[i].rows[j].values);
            free(t->taps[i].rows[j].places);
            free(t->taps[i].rows[j].entropy);
        }
        free(t->taps[i].rows);
    }
    free(t->taps);
    free_pieces(t);
    free_texts(t);
    free(t->tokens);
    free((char *)t->params.taps);
    free(t->source);
    remarks_free(&t->remarks);
    tokenizer_weak_ref_set(&t->vocab, NULL);
    *t = (struct plumb_trace) { .bos = -1, .params = default_params };
}

plumb_status trace_set_source(struct plumb_trace *t, const char *source, size_t n) {
    char *copy = alloc_array((uint64_t)n + 1, 1);
    if (!copy) return out_of_memory(t, n, "bytes for the name of a program");
    memcpy(copy, source, n);
    copy[n] = 0;
    free(t->source);
    t->source = copy;
    return PLUMB_OK;
}

/* Returns a new string in which control characters are written as \n or \x1b; NULL if there is no memory. */
static char *escaped(const char *bytes, size_t n) {
    char *text = alloc_array((uint64_t)n * 4 + 1, 1), *out = text;
    if (!text) return NULL;
    for (size_t k = 0; k < n; k++) {
        uint8_t byte = (uint8_t)bytes[k];
        if (byte == '\n' || byte == '\t' || byte == '\r') {
            *out++ = '\\';
            *out++ = byte == '\n' ? 'n' : byte == '\t' ? 't' : 'r';
        } else if (byte < 0x20 || byte == 0x7f) {
            out += snprintf(out, 5, "\\x%02x", byte);
        } else {
            *out++ = (char)byte;
        }
    }
    *out++ = 0;
    char *fit = realloc(text, (size_t)(out - text));
    return fit ? fit : text;
}

plumb_status trace_set_piece(struct plumb_trace *t, uint32_t i, const char *bytes, size_t n) {
    assert(i < t->n_token);
    if (!t->pieces) {
        t->pieces = calloc(t->n_token, sizeof *t->pieces);
        if (!t->pieces) return out_of_memory(t, t->n_token, "texts of tokens");
    }
    char *text = escaped(bytes, n);
    if (!text) return out_of_memory(t, n, "bytes for the text of a token");
    free(t->pieces[i]);
    t->pieces[i] = text;
    return PLUMB_OK;
}

/* Returns the index of the first text whose id is not below this one. */
static size_t text_index(const struct plumb_trace *t, int32_t id) {
    size_t low = 0, high = t->n_text;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->texts[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return low;
}

const char *trace_text(const struct plumb_trace *t, int32_t id) {
    size_t i = text_index(t, id);
    return i < t->n_text && t->texts[i].id == id ? t->texts[i].text : NULL;
}

static plumb_status insert_text(struct plumb_trace *t, size_t at, int32_t id, const char *bytes, size_t n) {
    if (!ARRAY_GROW(t->texts, t->n_text, &t->cap_text)) return out_of_memory(t, t->n_text, "texts of tokens");
    char *text = escaped(bytes, n);
    if (!text) return out_of_memory(t, n, "bytes for the text of a token");
    memmove(t->texts + at + 1, t->texts + at, (t->n_text++ - at) * sizeof *t->texts);
    t->texts[at] = (struct trace_text) { id, text };
    return PLUMB_OK;
}

plumb_status trace_add_text(struct plumb_trace *t, int32_t id, const char *bytes, size_t n) {
    t->unsorted_texts |= t->n_text > 0 && t->texts[t->n_text - 1].id > id;
    return insert_text(t, t->n_text, id, bytes, n);
}

uint32_t trace_first_token(const struct plumb_trace *t, uint64_t n_row) {
    return n_row < t->n_token ? t->n_token - (uint32_t)n_row : 0;
}

/* ---- taps and rows ---------------------------------------------------------------------------------------------- */

/* Returns the index of the first tap that is not before (id, layer). */
static size_t tap_index(const struct plumb_trace *t, enum tap_id id, int32_t layer) {
    uint64_t place = tap_place(t->order, id, layer);
    size_t low = 0, high = t->n_tap;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tap_place(t->order, t->taps[middle].id, t->taps[middle].layer) < place) low = middle + 1;
        else high = middle;
    }
    return low;
}

const struct trace_tap *trace_find_tap(const struct plumb_trace *t, enum tap_id id, int32_t layer) {
    size_t i = tap_index(t, id, layer);
    return i < t->n_tap && t->taps[i].id == id && t->taps[i].layer == layer ? &t->taps[i] : NULL;
}

/* Moves the taps one by one to their places.  There are few that move, and not far, since a layer has few. */
void trace_set_order(struct plumb_trace *t, uint32_t order) {
    t->order = order;
    for (size_t i = 1; i < t->n_tap; i++) {
        struct trace_tap tap = t->taps[i];
        uint64_t place = tap_place(order, tap.id, tap.layer);
        size_t to = i;
        for (; to > 0 && tap_place(order, t->taps[to - 1].id, t->taps[to - 1].layer) > place; to--) {
            t->taps[to] = t->taps[to - 1];
        }
        t->taps[to] = tap;
    }
}

void trace_read_order(struct plumb_trace *t, const char *text, size_t n) {
    uint32_t order = 0;
    for (size_t at = 0, end; at < n; at = end + 1) {
        for (end = at; end < n && text[end] != ',';) end++;
        for (uint32_t i = 0; tap_order_name(i); i++) {
            const char *name = tap_order_name(i);
            if (strlen(name) == end - at && memcmp(name, text + at, end - at) == 0) order |= 1u << i;
        }
    }
    trace_set_order(t, order);
}

const char *trace_show_order(struct trace_order_text *buf, uint32_t order) {
    size_t n = 0;
    buf->text[0] = 0;
    for (uint32_t i = 0; tap_order_name(i); i++) {
        if (!(order >> i & 1)) continue;
        n += (size_t)snprintf(buf->text + n, sizeof buf->text - n, "%s%s", n > 0 ? "," : "", tap_order_name(i));
    }
    return buf->text;
}

/* Returns the index of the first row that is not before pos.  Checks the end first, since rows mostly come in order. */
static uint32_t row_index(const struct trace_tap *tap, uint32_t pos) {
    if (tap->n_row == 0 || tap->rows[tap->n_row - 1].pos < pos) return tap->n_row;
    uint32_t low = 0, high = tap->n_row - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tap->rows[middle].pos < pos) low = middle + 1;
        else high = middle;
    }
    return low;
}

const struct trace_row *trace_find_row(const struct trace_tap *tap, uint32_t pos) {
    uint32_t i = row_index(tap, pos);
    return i < tap->n_row && tap->rows[i].pos == pos ? &tap->rows[i] : NULL;
}

static struct trace_tap *get_tap(struct plumb_trace *t, enum tap_id id, int32_t layer) {
    size_t i = tap_index(t, id, layer);
    if (i < t->n_tap && t->taps[i].id == id && t->taps[i].layer == layer) return &t->taps[i];
    if (!ARRAY_GROW(t->taps, t->n_tap, &t->cap)) return NULL;
    memmove(t->taps + i + 1, t->taps + i, (t->n_tap++ - i) * sizeof *t->taps);
    t->taps[i] = (struct trace_tap) { .id = id, .layer = layer };
    return &t->taps[i];
}

plumb_status trace_begin_tap(struct plumb_trace *t, enum tap_id *id, int32_t layer, uint32_t name, const char *text,
                             size_t n_text, bool *take) {
    *take = false;
    if (name == 0) return remarks_add(&t->remarks, &t->err, REMARK_UNKNOWN, text, n_text, "no tap has this name");
    if (t->with_bias >> *id & 1 && tap_is_without_bias(name)) {
        return remarks_add(&t->remarks, &t->err, REMARK_SECOND, text, n_text, "the file also has the sum of this "
                           "product and its bias, which is %s", tap_spec(*id)->name);
    }
    if (t->has_output_norms && tap_is_post_attention(name)) *id = TAP_ATTN_POST_NORM;
    struct trace_tap *tap = get_tap(t, *id, layer);
    if (!tap) return out_of_memory(t, t->n_tap, "taps");
    if (tap->name != 0 && tap->name != name) {
        struct tap_text tap_name;
        return remarks_add(&t->remarks, &t->err, REMARK_SECOND, text, n_text, "the file has %s already, under another "
                           "name", tap_show(&tap_name, *id, layer));
    }
    *take = true;
    tap->name = name;
    if ((*id == TAP_QCUR || *id == TAP_KCUR) && tap_is_module(name)) t->by_module = true;
    return PLUMB_OK;
}

static plumb_status twice(struct plumb_trace *t, const struct trace_tap *tap, uint32_t pos) {
    struct tap_text name;
    tap_show(&name, tap->id, tap->layer);
    if (pos == TRACE_ALL_TOKENS) {
        return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "%s occurs twice for all tokens together", name.text);
    }
    return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "%s occurs twice for token %u", name.text, pos);
}

plumb_status trace_new_row(struct plumb_trace *t, enum tap_id id, int32_t layer, uint32_t pos,
                           struct trace_row **row) {
    if (t->n_token > 0 && pos >= (uint64_t)t->n_token + TRACE_MAX_EXTRA_ROWS && pos != TRACE_ALL_TOKENS) {
        struct tap_text name;
        return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "%s of token %u, but there are %u tokens (the first is 0)",
                         tap_show(&name, id, layer), pos, t->n_token);
    }
    struct trace_tap *tap = get_tap(t, id, layer);
    if (!tap) return out_of_memory(t, t->n_tap, "taps");
    uint32_t last = tap->n_row > 0 ? tap->rows[tap->n_row - 1].pos : 0;
    if (tap->n_row > 0 && last == pos) return twice(t, tap, pos);
    size_t cap = tap->cap;
    bool has_room = tap->n_row < UINT32_MAX / 4 && ARRAY_GROW(tap->rows, tap->n_row, &cap);
    if (!has_room) return out_of_memory(t, tap->n_row, "rows of a tap");
    tap->cap = (uint32_t)cap;
    tap->unsorted |= last > pos;
    *row = &tap->rows[tap->n_row++];
    **row = (struct trace_row) { .pos = pos, .stats = { NAN, NAN, NAN, NAN, NAN, NAN } };
    return PLUMB_OK;
}

static int by_pos(const void *a, const void *b) {
    const struct trace_row *p = a, *q = b;
    return (p->pos > q->pos) - (p->pos < q->pos);
}

static plumb_status sort_tap(struct plumb_trace *t, struct trace_tap *tap) {
    if (!tap->unsorted) return PLUMB_OK;
    qsort(tap->rows, tap->n_row, sizeof *tap->rows, by_pos);
    tap->unsorted = false;
    for (uint32_t i = 1; i < tap->n_row; i++) {
        if (tap->rows[i].pos == tap->rows[i - 1].pos) return twice(t, tap, tap->rows[i].pos);
    }
    return PLUMB_OK;
}

static int by_id(const void *a, const void *b) {
    const struct trace_text *p = a, *q = b;
    return (p->id > q->id) - (p->id < q->id);
}

/* Files may have rows in any order.  Sorting them once takes less time than inserting each at its place, which would be
 * quadratic. */
plumb_status trace_sort(struct plumb_trace *t) {
    if (t->unsorted_texts) qsort(t->texts, t->n_text, sizeof *t->texts, by_id);
    t->unsorted_texts = false;
    for (size_t i = 0; i < t->n_tap; i++) PLUMB_TRY(sort_tap(t, &t->taps[i]));
    return PLUMB_OK;
}

/* ---- statistics ------------------------------------------------------------------------------------------------- */

/* Eight independent accumulators.  In a single one, each addition would have to wait for the one before.  The source
 * fixes the order of the additions, so all hosts get the same result. */
enum { N_LANE = 8 };

static struct trace_stats finish(uint64_t n, uint64_t n_nan, uint64_t n_inf, double sum, double square, double min,
                                 double max) {
    struct trace_stats s = { NAN, NAN, NAN, NAN, (double)n_nan, (double)n_inf };
    if (n > n_nan + n_inf) {
        double n_finite = (double)(n - n_nan - n_inf);
        s.mean = sum / n_finite;
        s.rms = math_sqrt(square / n_finite);
        s.min = min;
        s.max = max;
    }
    return s;
}

/* Like trace_stats_of, for values of which some are NaN or infinite. */
static struct trace_stats stats_of_finite(const float *values, size_t n) {
    uint64_t n_nan = 0, n_inf = 0;
    double sum = 0, square = 0, min = INFINITY, max = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        double v = (double)values[i];
        if (isnan(v)) {
            n_nan++;
        } else if (isinf(v)) {
            n_inf++;
        } else {
            sum += v;
            square += v * v;
            min = v < min ? v : min;
            max = v > max ? v : max;
        }
    }
    return finish(n, n_nan, n_inf, sum, square, min, max);
}

struct trace_stats trace_stats_of(const float *values, size_t n) {
    double sum[N_LANE] = { 0 }, square[N_LANE] = { 0 };
    float min[N_LANE], max[N_LANE];
    for (size_t k = 0; k < N_LANE; k++) {
        min[k] = INFINITY;
        max[k] = -INFINITY;
    }
    size_t i = 0;
    for (; i + N_LANE <= n; i += N_LANE) {
        for (size_t k = 0; k < N_LANE; k++) {
            float v = values[i + k];
            sum[k] += (double)v;
            square[k] += (double)v * (double)v;
            min[k] = v < min[k] ? v : min[k];
            max[k] = v > max[k] ? v : max[k];
        }
    }
    for (size_t k = 0; i < n; i++, k++) {
        float v = values[i];
        sum[k] += (double)v;
        square[k] += (double)v * (double)v;
        min[k] = v < min[k] ? v : min[k];
        max[k] = v > max[k] ? v : max[k];
    }
    for (size_t k = 1; k < N_LANE; k++) {
        sum[0] += sum[k];
        square[0] += square[k];
        min[0] = min[k] < min[0] ? min[k] : min[0];
        max[0] = max[k] > max[0] ? max[k] : max[0];
    }
    /* Squares of finite f32 cannot overflow a double, so the sum is not finite only if some of the values are not. */
    if (!isfinite(square[0])) return stats_of_finite(values, n);
    return finish(n, 0, 0, sum[0], square[0], (double)min[0], (double)max[0]);
}

int trace_by_place(const void *a, const void *b) {
    const struct trace_value *p = a, *q = b;
    return (p->place > q->place) - (p->place < q->place);
}

uint32_t trace_top(const struct trace_row *row, struct trace_value top[TRACE_TOP]) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < row->n_value; i++) {
        uint32_t at = n;
        if (isnan(row->values[i])) continue;
        while (at > 0 && top[at - 1].value < row->values[i]) at--;
        if (at == TRACE_TOP) continue;
        n += n < TRACE_TOP;
        memmove(top + at + 1, top + at, (n - 1 - at) * sizeof *top);
        top[at] = (struct trace_value) { trace_place(row, i), row->values[i] };
    }
    return n;
}

uint32_t trace_known_top(const struct trace_row *row, struct trace_value top[TRACE_TOP]) {
    bool is_whole = row->n_value > 0 && row->n_value == (uint64_t)row->n_head * row->n;
    uint32_t n = is_whole || row->n_top > 0 ? trace_top(row, top) : 0;
    return is_whole || n < row->n_top ? n : row->n_top;
}

/* s: statistics of n values.  Returns the statistics of these values and n_zero zeros together. */
static struct trace_stats with_zeros(struct trace_stats s, double n, double n_zero) {
    double n_finite = n - s.n_nan - s.n_inf;
    if (isnan(n_finite)) n_finite = n;   /* the counts are not known; mostly they are 0 */
    if (n_finite <= 0) return (struct trace_stats) { 0, 0, 0, 0, s.n_nan, s.n_inf };
    s.mean *= n_finite / (n_finite + n_zero);
    s.rms *= math_sqrt(n_finite / (n_finite + n_zero));
    s.min = s.min > 0 ? 0 : s.min;   /* NAN (not known) stays NAN */
    s.max = s.max < 0 ? 0 : s.max;
    return s;
}

/* Returns -sum p ln p of (n) probabilities, in nats; 0 ln 0 is 0. */
static float entropy_of(const float *p, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] != 0) sum -= (double)p[i] * math_log((double)p[i]);
    }
    return (float)sum;
}

static plumb_status set_entropy(struct plumb_trace *t, struct trace_row *row, const float *p, uint32_t n_head,
                                uint32_t n) {
    float *entropy = alloc_array(n_head, sizeof *entropy);
    if (!entropy) return out_of_memory(t, n_head, "entropies");
    for (uint32_t h = 0; h < n_head; h++) entropy[h] = entropy_of(p + (size_t)h * n, n);
    free(row->entropy);
    row->entropy = entropy;
    return PLUMB_OK;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* Adds a remark if the row gives a key a weight although there is no such token. */
static plumb_status check_padding(struct plumb_trace *t, const struct trace_row *row) {
    for (uint32_t i = 0; i < row->n_value; i++) {
        uint32_t place = trace_place(row, i);
        if (place % row->n < t->n_token || row->values[i] == 0) continue;
        struct tap_text name = { "kq_soft_max" };
        bool is_kept = t->remarks.n_of[REMARK_PADDING] < REMARKS_KEPT;
        for (size_t k = 0; is_kept && k < t->n_tap; k++) {   /* the row knows its tap only by its address */
            const struct trace_tap *tap = &t->taps[k];
            bool is_in = tap->n_row > 0 && row >= tap->rows && row < tap->rows + tap->n_row;
            if (is_in) tap_show(&name, tap->id, tap->layer);
        }
        return remarks_add(&t->remarks, &t->err, REMARK_PADDING, name.text, strlen(name.text), "in head %u of token "
                           "%u, key %u has the weight %.3g, but there are %u tokens; weights of further keys were "
                           "dropped", place / row->n, row->pos, place % row->n, (double)row->values[i], t->n_token);
    }
    return PLUMB_OK;
}

/* Gives a row of kq_soft_max as many keys as there are tokens.  Drops the values of the further keys of a padded cache.
 * If the row has fewer keys, the weights of the missing ones are 0, but no values are stored for them: the zeros could
 * take far more memory than the file has bytes. */
static plumb_status canonical_keys(struct plumb_trace *t, struct trace_row *row) {
    uint32_t n = row->n, n_key = t->n_token;
    if (n_key == 0 || n == 0 || n == n_key || row->pos == TRACE_ALL_TOKENS) return PLUMB_OK;
    if ((uint64_t)row->n_head * n_key > UINT32_MAX) {
        return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "kq_soft_max of %u heads and %u tokens is too large",
                         row->n_head, n_key);
    }
    if (n > n_key) PLUMB_TRY(check_padding(t, row));
    bool was_whole = row->n_value == row->n_head * n;
    if (row->n_value > 0 && !row->places) {
        row->places = alloc_array(row->n_value, sizeof *row->places);
        if (!row->places) return out_of_memory(t, row->n_value, "places of values");
        for (uint32_t i = 0; i < row->n_value; i++) row->places[i] = i;
    }
    uint32_t n_kept = 0;
    bool gaps = false;
    for (uint32_t i = 0; i < row->n_value; i++) {
        uint32_t head = row->places[i] / n, key = row->places[i] % n;
        if (key >= n_key) continue;
        row->values[n_kept] = row->values[i];
        row->places[n_kept] = head * n_key + key;
        gaps |= row->places[n_kept] != n_kept;
        n_kept++;
    }
    row->n_value = n_kept;
    row->n = n_key;
    if (!gaps) {
        free(row->places);
        row->places = NULL;
    }
    if (n < n_key) {
        row->stats = with_zeros(row->stats, (double)row->n_head * n, (double)row->n_head * (n_key - n));
    } else if (was_whole) {
        row->stats = trace_stats_of(row->values, n_kept);
    } else {
        /* The values of the dropped keys are not all known, but a correct engine has only zeros there.  The sums
         * therefore stay the same, and are divided by fewer keys.  The minimum may be one of the dropped zeros, so the
         * minimum of the rest is not known. */
        row->stats.mean *= (double)n / n_key;
        row->stats.rms *= math_sqrt((double)n / n_key);
        row->stats.min = NAN;
    }
    return PLUMB_OK;
}

plumb_status trace_set_values(struct plumb_trace *t, struct trace_row *row, enum tap_id id, uint32_t n_head,
                              uint32_t n, const float *values, const uint32_t *places, uint32_t n_value) {
    const char *name = tap_spec(id)->name;
    uint64_t size = (uint64_t)n_head * n, limit = size > 0 ? size : UINT32_MAX;
    if (size > UINT32_MAX || n_value > limit) {
        return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "%s of token %u: %u values do not fit the shape %u x %u", name,
                         row->pos, n_value, n_head, n);
    }
    for (uint32_t i = 0; places && i < n_value; i++) {
        if (places[i] >= limit || (i > 0 && places[i] <= places[i - 1])) {
            return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "%s of token %u: the place of value %u is %u; places "
                             "must ascend and be below %llu", name, row->pos, i, places[i], (unsigned long long)limit);
        }
    }
    float *copy = NULL;
    uint32_t *copy_places = NULL;
    if (n_value > 0 && !(copy = alloc_array(n_value, sizeof *copy))) return out_of_memory(t, n_value, "values");
    if (n_value > 0 && places && !(copy_places = alloc_array(n_value, sizeof *copy_places))) {
        free(copy);
        return out_of_memory(t, n_value, "places of values");
    }
    if (copy) memcpy(copy, values, n_value * sizeof *copy);
    if (copy_places) memcpy(copy_places, places, n_value * sizeof *copy_places);
    free(row->values);
    free(row->places);
    row->values = copy;
    row->places = copy_places;
    row->n_value = n_value;
    row->n_head = size > 0 ? n_head : 0;
    row->n = size > 0 ? n : 0;
    if (size > 0 && n_value == size) {   /* places, if given, can only be 0, 1, 2... */
        free(row->places);
        row->places = NULL;
        if (isnan(row->stats.rms)) row->stats = trace_stats_of(values, n_value);
        if (id == TAP_KQ_SOFT_MAX) PLUMB_TRY(set_entropy(t, row, values, n_head, n));
    }
    return id == TAP_KQ_SOFT_MAX ? canonical_keys(t, row) : PLUMB_OK;
}

plumb_status trace_set_tokens(struct plumb_trace *t, const int32_t *ids, size_t n, size_t n_prompt) {
    if (n >= UINT32_MAX || n_prompt > n) {
        return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "there are %zu tokens, but the prompt has %zu", n, n_prompt);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0) {
            return error_set(&t->err, PLUMB_ERROR_TOKEN, "token %d at index %zu: ids cannot be negative", (int)ids[i],
                             i);
        }
    }
    for (size_t i = 0; n > 0 && i < t->n_tap; i++) {
        const struct trace_tap *tap = &t->taps[i];
        for (uint32_t j = 0; j < tap->n_row; j++) {
            uint32_t pos = tap->rows[j].pos;
            if (pos < (uint64_t)n + TRACE_MAX_EXTRA_ROWS || pos == TRACE_ALL_TOKENS) continue;
            struct tap_text name;
            return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "%s of token %u, but there are %zu tokens (the first is 0)",
                             tap_show(&name, tap->id, tap->layer), pos, n);
        }
    }
    int32_t *copy = n > 0 ? alloc_array(n, sizeof *copy) : NULL;
    if (n > 0 && !copy) return out_of_memory(t, n, "tokens");
    if (n > 0) memcpy(copy, ids, n * sizeof *ids);
    free_pieces(t);
    free(t->tokens);
    t->tokens = copy;
    t->n_token = (uint32_t)n;
    t->n_prompt = (uint32_t)n_prompt;
    for (size_t i = 0; i < t->n_tap; i++) {
        for (uint32_t j = 0; t->taps[i].id == TAP_KQ_SOFT_MAX && j < t->taps[i].n_row; j++) {
            PLUMB_TRY(canonical_keys(t, &t->taps[i].rows[j]));
        }
    }
    return PLUMB_OK;
}

plumb_status plumb_trace_set_tokens(plumb_trace *t, const int32_t *ids, size_t n, size_t n_prompt) {
    return trace_set_tokens(t, ids, n, n_prompt);
}

/* ---- recording -------------------------------------------------------------------------------------------------- */

/* Stores the texts of the likeliest tokens, for readers of the trace that do not have the vocabulary. */
static plumb_status store_texts(struct plumb_trace *t, const struct trace_value *top, uint32_t n_top) {
    for (uint32_t i = 0; t->piece && i < n_top; i++) {
        char piece[256];   /* a longer text is cut */
        int32_t id = (int32_t)top[i].place;
        size_t at = text_index(t, id);
        if (at < t->n_text && t->texts[at].id == id) continue;
        int64_t n = t->piece(t, id, piece, sizeof piece);
        if (n < 0) continue;
        PLUMB_TRY(insert_text(t, at, id, piece, n < (int64_t)sizeof piece ? (size_t)n : sizeof piece));
    }
    return PLUMB_OK;
}

/* Stores the first n_first logits of a token and the n_top largest ones, top, which say more about the token than any
 * others.  Sorts top by place. */
static plumb_status store_likeliest(struct plumb_trace *t, struct trace_row *row, const float *logits,
                                   uint32_t n_first, struct trace_value *top, uint32_t n_top) {
    row->n_top = n_top;
    qsort(top, n_top, sizeof *top, trace_by_place);
    row->values = alloc_array((uint64_t)n_first + n_top, sizeof *row->values);
    row->places = alloc_array((uint64_t)n_first + n_top, sizeof *row->places);
    if (!row->values || !row->places) return out_of_memory(t, (uint64_t)n_first + n_top, "logits");
    for (uint32_t i = 0; i < n_first; i++) {
        row->values[i] = logits[i];
        row->places[i] = i;
    }
    row->n_value = n_first;
    for (uint32_t i = 0; i < n_top; i++) {
        if (top[i].place < n_first) continue;
        row->values[row->n_value] = top[i].value;
        row->places[row->n_value++] = top[i].place;
    }
    return PLUMB_OK;
}

/* Adds the row of one token, of shape (n_head, n).  data: (n_head, n_data).  n is more than n_data only for
 * kq_soft_max: the keys from n_data on belong to tokens that are still to come, and their weights are 0. */
static plumb_status add_row(struct plumb_trace *t, enum tap_id id, int32_t layer, uint32_t pos, uint32_t n_head,
                            uint32_t n, uint32_t n_data, const float *data) {
    struct trace_row *row;
    PLUMB_TRY(trace_new_row(t, id, layer, pos, &row));
    row->n_head = n_head;
    row->n = n;
    size_t size = (size_t)n_head * n_data;
    row->stats = trace_stats_of(data, size);
    if (n > n_data) row->stats = with_zeros(row->stats, (double)size, (double)n_head * (n - n_data));
    if (id == TAP_KQ_SOFT_MAX) PLUMB_TRY(set_entropy(t, row, data, n_head, n_data));
    uint64_t n_all = (uint64_t)n_head * n;
    uint32_t n_keep = n_all < t->params.n_value ? (uint32_t)n_all : t->params.n_value;
    if (n_keep == 0) return PLUMB_OK;
    if (id == TAP_RESULT_OUTPUT) {
        /* trace_top only reads the values, so the cast that drops const is safe. */
        const struct trace_row all = { .n_value = row->n, .values = (float *)(uintptr_t)data };
        struct trace_value top[TRACE_TOP];
        uint32_t n_top = trace_top(&all, top);
        PLUMB_TRY(store_texts(t, top, n_top));
        if (n_keep < n_all) return store_likeliest(t, row, data, n_keep, top, n_top);
    }
    row->values = alloc_array(n_keep, sizeof *row->values);
    if (!row->values) return out_of_memory(t, n_keep, "values");
    row->n_value = n_keep;
    if (n == n_data) {
        memcpy(row->values, data, n_keep * sizeof *data);
    } else {
        for (uint32_t i = 0; i < n_keep; i++) row->values[i] = i % n < n_data ? data[i / n * n_data + i % n] : 0;
    }
    return PLUMB_OK;
}

plumb_status plumb_trace_add(plumb_trace *t, const plumb_tap *tap) {
    if (t->err.status != PLUMB_OK) return t->err.status;
    enum tap_id id;
    if (!tap_find(tap->name, strlen(tap->name), &id)) {
        return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "\"%s\" is not a tap", tap->name);
    }
    const plumb_trace_params *p = &t->params;
    if (tap->layer >= 0 && ((uint32_t)tap->layer < p->layer_first || (uint32_t)tap->layer > p->layer_last)) {
        return PLUMB_OK;
    }
    if (!tap_matches(p->taps, t->has_output_norms, id, tap->layer)) return PLUMB_OK;
    uint32_t n = tap->n;
    if (id == TAP_KQ_SOFT_MAX && t->n_token > n) n = t->n_token;
    if ((uint64_t)tap->n_head * n > UINT32_MAX) {
        return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "%s: the shape %u x %u is too large", tap->name, tap->n_head,
                         n);
    }
    for (uint32_t i = 0; i < tap->n_token; i++) {
        PLUMB_TRY(add_row(t, id, tap->layer, tap->pos + i, tap->n_head, n, tap->n,
                          tap->data + (size_t)i * tap->n_head * tap->n));
    }
    struct trace_tap *to = get_tap(t, id, tap->layer);
    return to ? sort_tap(t, to) : out_of_memory(t, t->n_tap, "taps");
}

/* Reads a trace from JSON.  plumb writes this format, and the author of an engine can print it with ten lines of code.
 * The schema is docs/trace.md.
 *
 * Members may come in any order, so the text is read twice.  The first pass checks the syntax of the whole and finds
 * where the tokens, their texts and the taps begin.  The second pass reads these lists.  All records share one set of
 * buffers.
 */
#include "base/json.h"

#include "dump/dump.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A growing array of one type. */
struct list {
    void *data;
    size_t n, cap;
};

/* The members of one record of "taps". */
struct record {
    size_t at;                 /* offset of its first byte */
    char name[128];
    size_t n_name;             /* may be more than fits in name; no tap has such a name */
    int64_t layer;             /* -1: the tap has none, or it is in the name */
    int64_t token, first;      /* -1: not given */
    uint64_t n_head, n;        /* 0, 0: not given */
    struct trace_stats stats;
    bool has_stats, nested;    /* has some statistics; "values" is a list of lists */
    struct shown unknown;      /* the first member that is not known; "" if there is none */
    uint32_t n_top;            /* length of "top", or the member "n_top": see struct trace_row */
    float quantum;
};

struct json_reader {
    struct plumb_trace *t;
    struct json j;
    struct record record;
    size_t n_list_max;         /* the largest number of lists in a record without "token" */
    bool has_token;            /* some record has "token" or "first_token" */
    struct list values;        /* float: all numbers of "values", without the brackets */
    struct list ends;          /* size_t: if "values" is a list of lists, one for each: the index in values of the end
                                * of that list, which mostly belongs to one token */
    struct list inner;         /* size_t: the same for the lists inside the first of these lists */
    struct list places;        /* uint32_t */
    struct list top;           /* struct trace_value */
    struct list entropy;       /* float */
};

/* Appends an item of size bytes.  A failure is kept in r->j. */
static void push(struct json_reader *r, struct list *list, const void *item, size_t size) {
    if (!alloc_grow(&list->data, list->n, &list->cap, size)) {
        if (r->j.status == PLUMB_OK) {
            r->j.status = error_set(r->j.err, PLUMB_ERROR_MEMORY, "out of memory: %zu numbers", list->n);
        }
        return;
    }
    memcpy((char *)list->data + list->n++ * size, item, size);
}

/* The values of other engines may be doubles beyond the range of f32; they become infinite. */
static float to_float(double v) {
    if (v > (double)FLT_MAX) return INFINITY;
    if (v < -(double)FLT_MAX) return -INFINITY;
    return (float)v;
}

/* ---- lists ------------------------------------------------------------------------------------------------------ */

static void push_value(struct json_reader *r, struct list *list, const char *what) {
    float value = to_float(json_number(&r->j, what));
    push(r, list, &value, sizeof value);
}

/* Appends the numbers of a list and of all lists in it, at any depth, to r->values.  Unless ends is NULL, appends to it
 * the end of each list that is directly in this one.  The recursion is bounded, because the JSON reader limits the
 * depth. */
static void read_flat(struct json_reader *r, struct list *ends) {
    json_enter(&r->j, '[', "a list of values");
    while (json_element(&r->j)) {
        if (json_peek(&r->j) == '[') {
            read_flat(r, NULL);
            if (ends) push(r, ends, &r->values.n, sizeof r->values.n);
        } else {
            push_value(r, &r->values, "a number, the next value");
        }
    }
}

static void read_values(struct json_reader *r) {
    r->values.n = r->ends.n = r->inner.n = 0;
    r->record.nested = false;
    json_enter(&r->j, '[', "the list of values");
    while (json_element(&r->j)) {
        bool is_list = json_peek(&r->j) == '[';
        if (r->values.n + r->ends.n > 0 && is_list != r->record.nested) {
            json_fail(&r->j, r->j.at, "expected %s, like the elements before it in the list of values",
                      is_list ? "a number" : "a list");
        } else if (is_list) {
            r->record.nested = true;
            read_flat(r, r->ends.n == 0 ? &r->inner : NULL);
            push(r, &r->ends, &r->values.n, sizeof r->values.n);
        } else {
            push_value(r, &r->values, "a number, the next value");
        }
    }
}

static void read_places(struct json_reader *r) {
    r->places.n = 0;
    json_enter(&r->j, '[', "the list of places");
    while (json_element(&r->j)) {
        uint32_t place = (uint32_t)json_integer(&r->j, 0, UINT32_MAX - 1, "the place of a value");
        push(r, &r->places, &place, sizeof place);
    }
}

static void read_top(struct json_reader *r) {
    r->top.n = 0;
    json_enter(&r->j, '[', "the list of the likeliest tokens");
    while (json_element(&r->j)) {
        struct trace_value p = { 0, 0 };
        json_enter(&r->j, '[', "a pair of token id and logit");
        if (json_element(&r->j)) p.place = (uint32_t)json_integer(&r->j, 0, INT32_MAX, "a token id");
        if (json_element(&r->j)) p.value = to_float(json_number(&r->j, "a logit"));
        else json_fail(&r->j, r->j.at, "expected a logit after the token id");
        if (json_element(&r->j)) json_fail(&r->j, r->j.at, "expected ']' after a pair of token id and logit");
        push(r, &r->top, &p, sizeof p);
    }
}

/* Reads "shape".  n is its last dimension, n_head the product of all others. */
static void read_shape(struct json_reader *r) {
    struct record *rec = &r->record;
    rec->n_head = rec->n = 0;
    json_enter(&r->j, '[', "the shape of one token's values");
    while (json_element(&r->j)) {
        size_t at = r->j.at;
        uint64_t n = (uint64_t)json_integer(&r->j, 1, UINT32_MAX, "a dimension");
        rec->n_head = rec->n == 0 ? 1 : rec->n_head * rec->n;
        rec->n = n;
        if (rec->n_head * rec->n > UINT32_MAX) json_fail(&r->j, at, "expected a shape of less than 2^32 values");
    }
}

/* ---- a record --------------------------------------------------------------------------------------------------- */

static void read_stat(struct json_reader *r, double *stat) {
    *stat = json_number(&r->j, "a number");
    r->record.has_stats |= !isnan(*stat);
}

static void read_record(struct json_reader *r) {
    struct json *j = &r->j;
    struct record *rec = &r->record;
    json_peek(j);
    *rec = (struct record) { .at = j->at, .layer = -1, .token = -1, .first = -1,
                             .stats = { NAN, NAN, NAN, NAN, NAN, NAN } };
    r->values.n = r->ends.n = r->inner.n = r->places.n = r->top.n = r->entropy.n = 0;
    json_enter(j, '{', "a record of a tap");
    for (struct json_text key; json_member(j, &key);) {
        if (json_is(key, "name")) {
            struct json_text name = json_string(j, "the name of a tap");
            memcpy(rec->name, name.data, name.n < sizeof rec->name ? name.n : sizeof rec->name);
            rec->n_name = name.n;
        } else if (json_is(key, "layer")) {
            rec->layer = json_integer(j, -1, 999999, "a layer");
        } else if (json_is(key, "token")) {
            rec->token = json_integer(j, 0, UINT32_MAX - 1, "the index of a token");
        } else if (json_is(key, "first_token")) {
            rec->first = json_integer(j, 0, UINT32_MAX - 1, "the index of the first token");
        } else if (json_is(key, "shape")) {
            read_shape(r);
        } else if (json_is(key, "mean")) {
            read_stat(r, &rec->stats.mean);
        } else if (json_is(key, "rms")) {
            read_stat(r, &rec->stats.rms);
        } else if (json_is(key, "min")) {
            read_stat(r, &rec->stats.min);
        } else if (json_is(key, "max")) {
            read_stat(r, &rec->stats.max);
        } else if (json_is(key, "nan")) {
            read_stat(r, &rec->stats.n_nan);
        } else if (json_is(key, "inf")) {
            read_stat(r, &rec->stats.n_inf);
        } else if (json_is(key, "entropy")) {
            r->entropy.n = 0;
            json_enter(j, '[', "the list of entropies");
            while (json_element(j)) push_value(r, &r->entropy, "the entropy of a head");
        } else if (json_is(key, "quantum")) {
            rec->quantum = to_float(json_number(j, "the step that values were rounded to"));
        } else if (json_is(key, "n_top")) {
            rec->n_top = (uint32_t)json_integer(j, 0, UINT32_MAX, "the number of values that are the largest of all");
        } else if (json_is(key, "values")) {
            read_values(r);
        } else if (json_is(key, "places")) {
            read_places(r);
        } else if (json_is(key, "top")) {
            read_top(r);
        } else {
            if (!rec->unknown.text[0]) show_bytes(&rec->unknown, key.data, key.n);
            json_skip(j);
        }
    }
    if (r->top.n > 0) rec->n_top = (uint32_t)(r->top.n < UINT32_MAX ? r->top.n : UINT32_MAX);
    if (rec->n_name == 0) json_fail(j, rec->at, "expected \"name\" in a record of a tap");
    if (!(rec->quantum >= 0 && rec->quantum <= FLT_MAX)) json_fail(j, rec->at, "expected a \"quantum\" of at least 0");
    if (r->places.n > 0 && r->places.n != r->values.n) {
        json_fail(j, rec->at, "expected as many places as values, not %zu and %zu", r->places.n, r->values.n);
    }
}

/* Returns the number of bytes in rec->name, which holds the beginning of a longer name. */
static size_t name_length(const struct record *rec) {
    return rec->n_name < sizeof rec->name ? rec->n_name : sizeof rec->name;
}

/* Finds the tap of a record, whose layer is in "name" or in "layer".  Returns what tap_parse returns. */
static uint32_t record_tap(const struct record *rec, enum tap_id *id, int32_t *layer) {
    if (rec->n_name > sizeof rec->name) return 0;   /* no tap has such a long name */
    uint32_t number = tap_parse(rec->name, rec->n_name, id, layer);
    if (number > 0) return rec->layer < 0 || *layer == rec->layer ? number : 0;
    char name[sizeof rec->name + 12];
    memcpy(name, rec->name, rec->n_name);
    size_t n = rec->n_name;
    name[n++] = '-';
    char digits[8];
    size_t n_digit = 0;
    for (int64_t rest = rec->layer; rest > 0 || n_digit == 0; rest /= 10) digits[n_digit++] = (char)('0' + rest % 10);
    while (n_digit > 0) name[n++] = digits[--n_digit];
    return rec->layer >= 0 ? tap_parse(name, n, id, layer) : 0;
}

/* Adds a remark on the record. */
PRINTF_LIKE(3, 4) static plumb_status remark(struct json_reader *r, enum remark_kind kind, const char *format, ...) {
    const struct record *rec = &r->record;
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return remarks_add(&r->t->remarks, &r->t->err, kind, rec->name, name_length(rec), "%s", text);
}

/* Adds remarks on what the record lacks, or says in a way that can mean two things.  has_heads: its tap has heads. */
static plumb_status check_record(struct json_reader *r, bool has_heads) {
    const struct record *rec = &r->record;
    uint32_t n_token = r->t->n_token;
    if (r->values.n == 0 && r->top.n == 0 && r->entropy.n == 0 && !rec->has_stats) {
        PLUMB_TRY(rec->unknown.text[0]
                  ? remark(r, REMARK_FORM, "it has neither values nor statistics; its member \"%s\" is not known",
                           rec->unknown.text)
                  : remark(r, REMARK_FORM, "it has neither values nor statistics"));
    }
    /* In (n_head, n_token, n), the lists of the first axis would be taken for tokens. */
    if (!has_heads || !rec->nested || rec->token >= 0 || rec->n > 0 || n_token < 2 || r->inner.n != n_token
        || r->ends.n > n_token || r->ends.n == 1) {
        return PLUMB_OK;
    }
    return remark(r, REMARK_AXES, "%zu lists of %zu lists for %u tokens were taken for tokens and heads, not for heads "
                  "and tokens; \"shape\": [n_head, n] and \"token\" make it plain", r->ends.n, r->inner.n, n_token);
}

/* Merges "values", which are at "places" or are the first ones, with "top".  The result is in r->values and r->places,
 * in ascending order of the places.  Fails if a place has two different values. */
static plumb_status merge_sparse(struct json_reader *r) {
    float *values = r->values.data;
    uint32_t *places = r->places.data;
    for (uint32_t i = 0; i < r->values.n; i++) {
        struct trace_value p = { r->places.n > 0 ? places[i] : i, values[i] };
        push(r, &r->top, &p, sizeof p);
    }
    PLUMB_TRY(r->j.status);
    struct trace_value *all = r->top.data;
    qsort(all, r->top.n, sizeof *all, trace_by_place);
    r->values.n = r->places.n = 0;
    for (size_t i = 0; i < r->top.n; i++) {
        if (i > 0 && all[i].place == all[i - 1].place) {
            if (f32_to_bits(all[i].value) == f32_to_bits(all[i - 1].value)) continue;
            return error_set(&r->t->err, PLUMB_ERROR_ARGUMENT, "place %u has two values", all[i].place);
        }
        push(r, &r->values, &all[i].value, sizeof all[i].value);
        push(r, &r->places, &all[i].place, sizeof all[i].place);
    }
    return r->j.status;
}

/* Adds one row with the elements first to end - 1 of r->values.  with_stats: the record's statistics and entropies
 * belong to this row. */
static plumb_status add_record_row(struct json_reader *r, enum tap_id id, int32_t layer, uint32_t pos, size_t first,
                                   size_t end, bool with_stats) {
    const struct record *rec = &r->record;
    struct trace_row *row;
    if (end - first > UINT32_MAX) {
        return error_set(&r->t->err, PLUMB_ERROR_ARGUMENT, "%zu values are too many", end - first);
    }
    PLUMB_TRY(trace_new_row(r->t, id, layer, pos, &row));
    row->quantum = rec->quantum;
    if (id == TAP_RESULT_OUTPUT) row->n_top = rec->n_top;
    if (with_stats) row->stats = rec->stats;
    uint64_t n_head = rec->n_head, n = rec->n;
    if (id == TAP_KQ_SOFT_MAX && n == 0 && end == first && r->entropy.n <= UINT32_MAX) {
        n_head = r->entropy.n;   /* one entropy for each head; there are as many keys as tokens */
        n = r->t->n_token;
    }
    PLUMB_TRY(trace_set_values(r->t, row, id, (uint32_t)n_head, (uint32_t)n,
                               end > first ? (float *)r->values.data + first : NULL,
                               r->places.n > 0 ? r->places.data : NULL, (uint32_t)(end - first)));
    if (r->entropy.n == 0 || row->entropy) return PLUMB_OK;
    if (!with_stats || pos == TRACE_ALL_TOKENS || id != TAP_KQ_SOFT_MAX || row->n_head == 0) {
        return remark(r, REMARK_FORM, id != TAP_KQ_SOFT_MAX ? "only kq_soft_max has entropies"
                      : "its entropies belong to one token, so they need \"token\" and \"shape\"");
    }
    if (r->entropy.n != row->n_head) {
        return error_set(&r->t->err, PLUMB_ERROR_ARGUMENT, "%zu entropies for %u heads", r->entropy.n, row->n_head);
    }
    row->entropy = alloc_array(r->entropy.n, sizeof(float));
    if (!row->entropy) return error_set(&r->t->err, PLUMB_ERROR_MEMORY, "out of memory: %zu entropies", r->entropy.n);
    memcpy(row->entropy, r->entropy.data, r->entropy.n * sizeof(float));
    return PLUMB_OK;
}

/* Adds the rows of a record.  These are the cases, in the order of the code:
 *   lists, no "token"   one row for each list.  The statistics become a row of all tokens together, unless there is
 *                       only one token
 *   other values        one row with the numbers of all lists, merged with "places" and "top".  With a flat list,
 *                       "first_token" means the same as "token".  Without either, the trace must not have several
 *                       tokens.  If it has one, the row belongs to it.  If the tokens are not known, the row is at 0,
 *                       and the statistics become a row of all tokens together
 *   no values           one row that has only the statistics, of "token" or of all tokens together */
static plumb_status add_record(struct json_reader *r) {
    struct plumb_trace *t = r->t;
    struct record *rec = &r->record;
    enum tap_id id;
    int32_t layer;
    uint32_t name = record_tap(rec, &id, &layer);
    bool take;
    if (name == 0 && rec->layer >= 0 && tap_parse(rec->name, name_length(rec), &id, &layer) > 0) {
        return remark(r, REMARK_FORM, "its name has layer %d, but \"layer\" is %d", (int)layer, (int)rec->layer);
    }
    PLUMB_TRY(trace_begin_tap(t, &id, layer, name, rec->name, name_length(rec), &take));
    if (!take) return PLUMB_OK;
    PLUMB_TRY(check_record(r, tap_has_heads(id)));
    /* A single list that contains a list for each token has PyTorch's batch axis in front.  It could also be one token
     * with as many heads as there are tokens; if "shape" is given, it tells the two apart. */
    if (t->n_token > 1 && r->ends.n == 1 && r->inner.n == t->n_token
        && (rec->n == 0 || r->values.n > rec->n_head * rec->n)) {
        struct list ends = r->ends;
        r->ends = r->inner;
        r->inner = ends;
    }
    /* If the shape of one token is given and a flat list has the values of all tokens, split it by tokens. */
    uint64_t size = rec->n_head * rec->n;
    if (!rec->nested && t->n_token > 1 && r->values.n > 0 && r->places.n == 0 && size > 0
        && r->values.n / t->n_token == size && r->values.n % t->n_token == 0) {
        rec->nested = true;
        for (size_t end = (size_t)size; end <= r->values.n; end += (size_t)size) push(r, &r->ends, &end, sizeof end);
        PLUMB_TRY(r->j.status);
    }
    if (!rec->nested && rec->token < 0) rec->token = rec->first;
    bool is_single = rec->token >= 0;
    r->has_token = r->has_token || is_single || rec->first >= 0;
    if (rec->nested && !is_single) {
        if (r->places.n + r->top.n > 0) {
            return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "\"token\" is missing: places and top belong to one token");
        }
        size_t n_row = r->ends.n, first = 0;
        const size_t *ends = r->ends.data;
        uint64_t pos = rec->first >= 0 ? (uint64_t)rec->first : trace_first_token(t, n_row);
        if (n_row >= UINT32_MAX || pos + n_row > UINT32_MAX) {
            return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "%zu tokens from %llu on are too many", n_row,
                             (unsigned long long)pos);
        }
        if (n_row > r->n_list_max) r->n_list_max = n_row;
        bool alone = n_row == 1 && t->n_token == 1;
        for (size_t i = 0; i < n_row; first = ends[i++]) {
            PLUMB_TRY(add_record_row(r, id, layer, (uint32_t)(pos + i), first, ends[i], alone));
        }
        if (alone || !rec->has_stats) return PLUMB_OK;
        return add_record_row(r, id, layer, TRACE_ALL_TOKENS, 0, 0, true);
    }
    if (r->places.n + r->top.n > 0) PLUMB_TRY(merge_sparse(r));
    uint32_t pos = is_single ? (uint32_t)rec->token : 0;
    bool together = !is_single && t->n_token != 1;   /* the statistics cover all tokens */
    if (r->values.n > 0) {
        if (!is_single && t->n_token > 1) {
            return error_set(&t->err, PLUMB_ERROR_ARGUMENT, "\"token\" is missing: there are %u tokens, but the %zu "
                             "values are not one list per token", t->n_token, r->values.n);
        }
        PLUMB_TRY(add_record_row(r, id, layer, pos, 0, r->values.n, !together));
        if (!together || !rec->has_stats) return PLUMB_OK;
    }
    r->places.n = 0;
    return add_record_row(r, id, layer, together ? TRACE_ALL_TOKENS : pos, 0, 0, true);
}

/* ---- the whole file --------------------------------------------------------------------------------------------- */

struct contents {
    size_t tokens, pieces, texts, taps;   /* offsets in the text where these lists begin; 0: there is none */
    int64_t n_prompt;                     /* -1: not given */
};

static void read_outline(struct json_reader *r, struct contents *c) {
    struct json *j = &r->j;
    json_enter(j, '{', "a trace");
    for (struct json_text key; json_member(j, &key);) {
        size_t *section = json_is(key, "tokens") ? &c->tokens : json_is(key, "pieces") ? &c->pieces
                          : json_is(key, "texts") ? &c->texts : json_is(key, "taps") ? &c->taps : NULL;
        json_peek(j);
        if (section) {
            if (*section) json_fail(j, j->at, "expected one list of each kind");
            *section = j->at;
            json_skip(j);
        } else if (json_is(key, "plumb_trace")) {
            json_integer(j, 1, 1, "the version of the format");
        } else if (json_is(key, "program")) {
            struct json_text program = json_string(j, "the name of a program");
            plumb_status status = trace_set_source(r->t, program.data, program.n);
            if (j->status == PLUMB_OK) j->status = status;
        } else if (json_is(key, "tap_order")) {
            struct json_text order = json_string(j, "names of an order of taps");
            trace_read_order(r->t, order.data, order.n);
        } else if (json_is(key, "n_prompt")) {
            c->n_prompt = json_integer(j, 0, UINT32_MAX - 1, "the number of the prompt's tokens");
        } else if (json_is(key, "bos")) {
            r->t->bos = (int32_t)json_integer(j, -1, INT32_MAX, "a token id or -1");
        } else {
            json_skip(j);
        }
    }
    if (c->taps == 0 && j->status == PLUMB_OK) {
        j->status = error_set(j->err, PLUMB_ERROR_METADATA, "the member \"taps\", the list of records, is missing");
    }
}

static void read_tokens(struct json_reader *r, int64_t n_prompt) {
    struct list ids = { 0 };
    json_enter(&r->j, '[', "the list of token ids");
    while (json_element(&r->j)) {
        int32_t id = (int32_t)json_integer(&r->j, 0, INT32_MAX, "a token id");
        push(r, &ids, &id, sizeof id);
    }
    if (r->j.status == PLUMB_OK && ids.n > 0) {
        r->j.status = trace_set_tokens(r->t, ids.data, ids.n, n_prompt < 0 ? ids.n : (size_t)n_prompt);
    }
    free(ids.data);
}

static void read_pieces(struct json_reader *r) {
    json_peek(&r->j);
    size_t at = r->j.at;
    uint32_t n = 0;
    json_enter(&r->j, '[', "the list of the tokens' texts");
    while (json_element(&r->j)) {
        struct json_text piece = json_string(&r->j, "the text of a token");
        if (n == r->t->n_token) json_fail(&r->j, at, "expected one text for each of %u tokens", n);
        if (r->j.status == PLUMB_OK) r->j.status = trace_set_piece(r->t, n++, piece.data, piece.n);
    }
    if (n != r->t->n_token) json_fail(&r->j, at, "expected one text for each of %u tokens, not %u", r->t->n_token, n);
}

static void read_texts(struct json_reader *r) {
    json_enter(&r->j, '[', "the list of texts");
    while (json_element(&r->j)) {
        int32_t id = 0;
        json_enter(&r->j, '[', "a pair of token id and text");
        if (json_element(&r->j)) id = (int32_t)json_integer(&r->j, 0, INT32_MAX, "a token id");
        if (!json_element(&r->j)) json_fail(&r->j, r->j.at, "expected a text after the token id");
        struct json_text text = json_string(&r->j, "the text of a token");
        if (r->j.status == PLUMB_OK) r->j.status = trace_add_text(r->t, id, text.data, text.n);
        if (json_element(&r->j)) json_fail(&r->j, r->j.at, "expected ']' after a pair of token id and text");
    }
}

static void read_taps(struct json_reader *r) {
    json_enter(&r->j, '[', "the list of taps");
    while (json_element(&r->j)) {
        read_record(r);
        if (r->j.status != PLUMB_OK) return;
        r->j.status = add_record(r);
        if (r->j.status != PLUMB_OK) {
            char message[sizeof r->t->err.message];
            memcpy(message, r->t->err.message, sizeof message);
            error_set(&r->t->err, r->j.status, "JSON, the record at byte %zu: %s", r->record.at, message);
            return;
        }
    }
}

/* Moves every row to the token before its own.  Lists without "token" were taken for those of the last tokens.  But if
 * the record with the most lists has one list less than there are tokens, the engine dropped BOS or has not fed the
 * last token, and the lists count from the first token that it fed, as in .npz.  No row is at token 0, because every
 * record has fewer lists than there are tokens, and none names its token. */
static void count_from_first(struct plumb_trace *t) {
    for (size_t i = 0; i < t->n_tap; i++) {
        for (uint32_t j = 0; j < t->taps[i].n_row; j++) {
            struct trace_row *row = &t->taps[i].rows[j];
            if (row->pos != TRACE_ALL_TOKENS) row->pos--;
        }
    }
}

plumb_status dump_read_json(struct plumb_trace *t, const char *bytes, size_t n) {
    struct json_reader r = { .t = t };
    struct contents c = { .n_prompt = -1 };
    json_begin(&r.j, bytes, n, &t->err);
    read_outline(&r, &c);
    plumb_status status = json_end(&r.j);
    /* Reads the lists again, each from where it begins.  The syntax of what follows has been checked already. */
    const struct { size_t at; void (*read)(struct json_reader *r); } sections[] = {
        { c.tokens, NULL }, { c.pieces, read_pieces }, { c.texts, read_texts }, { c.taps, read_taps },
    };
    for (size_t i = 0; i < sizeof sections / sizeof *sections && status == PLUMB_OK; i++) {
        if (sections[i].at == 0) continue;
        json_begin(&r.j, bytes, n, &t->err);
        r.j.at = sections[i].at;
        if (sections[i].read) sections[i].read(&r);
        else read_tokens(&r, c.n_prompt);
        status = r.j.status;
        free(r.j.text);
    }
    if (status == PLUMB_OK && !r.has_token && r.n_list_max > 1 && r.n_list_max + 1 == t->n_token) count_from_first(t);
    struct list *lists[] = { &r.values, &r.ends, &r.inner, &r.places, &r.top, &r.entropy };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]->data);
    return status;
}

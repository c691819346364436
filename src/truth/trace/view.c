#include "trace/view.h"

#include "trace/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- begin, free, layers ----------------------------------------------------------------------------------------- */

plumb_status view_begin(struct trace_view *v, const struct plumb_trace *t, struct error *err) {
    *v = (struct trace_view) { .t = *t };
    v->t.taps = NULL;
    v->t.n_tap = 0;
    v->t.remarks = (struct remarks) { .n = 0 };
    if (t->n_tap > 0) {
        v->t.taps = alloc_array(t->n_tap, sizeof *v->t.taps);
        if (!v->t.taps) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a view of %zu taps", t->n_tap);
        memcpy(v->t.taps, t->taps, t->n_tap * sizeof *v->t.taps);
        v->t.n_tap = t->n_tap;
    }
    return remarks_copy(&v->t.remarks, &t->remarks, err);
}

void view_free(struct trace_view *v) {
    free(v->t.taps);
    free(v->logits);
    for (size_t i = 0; i < v->n_owned; i++) free(v->owned[i]);
    free(v->owned);
    v->owned = NULL;
    v->n_owned = v->cap = 0;
    remarks_free(&v->t.remarks);
    v->t.taps = NULL;
    v->t.n_tap = 0;
    v->logits = NULL;
}

enum view_numbering view_numbering(const struct plumb_trace *t, const struct model *m) {
    int32_t first = INT32_MAX, last = -1, n_layer = (int32_t)m->plan.n_layer;
    for (size_t i = 0; i < t->n_tap; i++) {
        int32_t layer = t->taps[i].layer;
        if (layer < 0 || t->taps[i].n_row == 0) continue;
        first = layer < first ? layer : first;
        last = layer > last ? layer : last;
    }
    if (last < 0 || first == 0 || last > n_layer) return VIEW_FROM_0;
    /* With layers behind n_layer that are not computed, layer n_layer alone proves nothing. */
    if (last == n_layer) return m->plan.n_ignored_layer == 0 || first == 1 ? VIEW_FROM_1 : VIEW_FROM_0;
    return VIEW_UNSURE;
}

plumb_status view_shift(struct trace_view *v, struct error *err) {
    struct tap_text name = { "" }, shifted = { "" };
    int32_t last = 0;
    for (size_t i = 0; i < v->t.n_tap; i++) {
        struct trace_tap *tap = &v->t.taps[i];
        if (tap->layer < 0) continue;
        if (tap->n_row > 0) last = tap->layer > last ? tap->layer : last;
        if (tap->n_row > 0 && !name.text[0]) {
            tap_show(&name, tap->id, tap->layer);
            tap_show(&shifted, tap->id, tap->layer - 1);
        }
        tap->layer--;
    }
    return remarks_add(&v->t.remarks, err, REMARK_SHIFTED, name.text, strlen(name.text), "the dump counts layers from "
                       "1 to %d, and this report from 0: here this tap is %s", (int)last, shifted.text);
}

/* ---- the order of axes ------------------------------------------------------------------------------------------- */

/* Allocates n elements that live as long as the view. */
static void *own(struct trace_view *v, uint64_t n, size_t size) {
    void *p = ARRAY_GROW(v->owned, v->n_owned, &v->cap) ? alloc_array(n, size) : NULL;
    if (p) v->owned[v->n_owned++] = p;
    return p;
}

/* Returns true if a tap has as many whole rows as heads. */
static bool is_square(const struct trace_tap *tap) {
    for (uint32_t i = 0; i < tap->n_row; i++) {
        const struct trace_row *row = &tap->rows[i];
        bool is_whole = !row->places && row->n_value == (uint64_t)row->n_head * row->n && row->n == tap->rows[0].n;
        if (!is_whole || row->n_head != tap->n_row || row->pos == TRACE_ALL_TOKENS) return false;
    }
    return tap->n_row > 1;
}

plumb_status view_exchange_axes(struct trace_view *v, id_set set, struct error *err) {
    for (size_t i = 0; i < v->t.n_tap; i++) {
        struct trace_tap *tap = &v->t.taps[i];
        if (!(set >> tap->id & 1) || !is_square(tap)) continue;
        size_t n_row = tap->n_row, n = tap->rows[0].n, n_value = n_row * n;
        struct trace_row *rows = own(v, n_row, sizeof *rows);
        float *values = rows ? own(v, (uint64_t)n_row * n_value, sizeof *values) : NULL;
        if (!values) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %zu rows", n_row);
        for (size_t t = 0; t < n_row; t++, values += n_value) {
            rows[t] = tap->rows[t];
            rows[t].values = values;
            rows[t].entropy = NULL;
            for (size_t h = 0; h < n_row; h++) memcpy(values + h * n, tap->rows[h].values + t * n, n * sizeof *values);
            rows[t].stats = trace_stats_of(values, n_value);
        }
        tap->rows = rows;
    }
    return PLUMB_OK;
}

/* ---- what the model has ------------------------------------------------------------------------------------------ */

/* Returns the step of a layer that has a tap; NULL: it is inside a step, outside the layers, or absent. */
static const struct step *step_of(const struct model *m, enum tap_id id, uint32_t il) {
    const struct program *program = m->layers[il].program;
    for (uint32_t i = 0; i < program->n; i++) {
        if (program->steps[i].tap == id) return &program->steps[i];
    }
    return NULL;
}

uint64_t view_row_size(const struct model *m, enum tap_id id, int32_t layer, uint32_t n_token) {
    const struct plan *p = &m->plan;
    uint32_t il = layer >= 0 && layer < (int32_t)p->n_layer ? (uint32_t)layer : 0;
    const struct ffn_plan *f = &p->layers[il].ffn;
    const struct step *step = step_of(m, id, il);
    if (step) return (uint64_t)step->n_head * step->n;
    switch (id) {   /* those inside steps, and outside the layers */
    case TAP_KQ_SOFT_MAX: return (uint64_t)p->layers[il].attn.n_head * n_token;
    case TAP_EXPERT_GATE: case TAP_EXPERT_UP: case TAP_EXPERT_SWIGLU: return (uint64_t)f->n_used * f->n_ff_expert;
    case TAP_EXPERT_DOWN: case TAP_EXPERT_WEIGHTED: return (uint64_t)f->n_used * p->n_embd;
    case TAP_PER_LAYER: return (uint64_t)p->n_layer * p->n_per_layer;
    case TAP_FFN_SHARED_GATE: return 1;
    case TAP_RESULT_OUTPUT: return p->n_vocab;
    case TAP_RESULT_POOLED: return model_n_pooled(m, p->pooling.kind);
    default: return tap_spec(id)->in_layer ? 0 : p->n_embd;
    }
}

/* Returns the taps that a layer of the model lacks or, for layer -1, those that it lacks outside the layers. */
static id_set absent_in(const struct model *m, int32_t layer) {
    id_set absent = m->plan.has_logits ? 0 : TAP_SET(RESULT_OUTPUT);
    if (m->plan.n_per_layer == 0) absent |= TAP_SET(PER_LAYER);
    if (m->plan.n_encoder == 0) absent |= TAP_SET(ENCODER_EMBD);
    if (m->plan.pooling.kind == PLUMB_POOLING_NONE) absent |= TAP_SET(RESULT_POOLED);
    return layer < 0 || layer >= (int32_t)m->plan.n_layer ? absent : model_absent_taps(m, (uint32_t)layer);
}

/* Returns how many values the row shows that its token has: those of its shape, or those up to the last place. */
static uint64_t length_of(const struct trace_row *row) {
    if (row->n_head > 0) return (uint64_t)row->n_head * row->n;
    return row->n_value > 0 ? (uint64_t)trace_place(row, row->n_value - 1) + 1 : 0;
}

/* Returns true if a row fits into `size` values of the model's tap. */
static bool fits(const struct trace_row *row, enum tap_id id, uint64_t size, uint32_t n_token) {
    if (size == 0 || row->pos == TRACE_ALL_TOKENS) return true;   /* not known, or none of the values */
    if (id == TAP_KQ_SOFT_MAX) return row->n_head == 0 || n_token == 0 || (uint64_t)row->n_head * n_token == size;
    /* The likeliest logits may have ids that are out of range: view_check_vocabulary. */
    if (id == TAP_RESULT_OUTPUT && row->n_head == 0) return true;
    return row->n_head > 0 ? length_of(row) == size : length_of(row) <= size;
}

/* Writes to text which taps of the layer have rows of n values. */
static void name_taps(char *text, size_t size, const struct model *m, int32_t layer, uint64_t n, uint32_t n_token) {
    enum { SHOWN = 3 };
    id_set absent = absent_in(m, layer);
    size_t at = 0, n_named = 0;
    for (uint32_t i = 0; i < TAP_COUNT && n_named < SHOWN; i++) {
        enum tap_id id = (enum tap_id)i;
        bool is_here = tap_spec(id)->in_layer == (layer >= 0) && !(absent >> i & 1);
        if (!is_here || view_row_size(m, id, layer, n_token) != n) continue;
        report_append(text, size, &at, "%s%s", n_named++ > 0 ? ", " : "; that is the length of ", tap_spec(id)->name);
    }
    if (n_named == 0) report_append(text, size, &at, "; no step %s has that length",
                                    layer < 0 ? "outside the layers" : "of the layer");
}

static plumb_status remark_length(struct trace_view *v, const struct model *m, const struct trace_tap *tap,
                                  const struct trace_row *row, uint64_t size, struct error *err) {
    struct tap_text name;
    char others[120] = "";
    const char *at_least = row->n_head > 0 ? "" : "at least ";
    tap_show(&name, tap->id, tap->layer);
    if (tap->id == TAP_KQ_SOFT_MAX) {
        return remarks_add(&v->t.remarks, err, REMARK_LENGTH, name.text, strlen(name.text), "token %u has %u heads; "
                           "expected %llu", row->pos, row->n_head, (unsigned long long)(size / v->t.n_token));
    }
    name_taps(others, sizeof others, m, tap->layer, length_of(row), v->t.n_token);
    return remarks_add(&v->t.remarks, err, REMARK_LENGTH, name.text, strlen(name.text), "token %u has %s%llu values; "
                       "expected %llu%s", row->pos, at_least, (unsigned long long)length_of(row),
                       (unsigned long long)size, others);
}

/* Drops the logits of ids from n_vocab on, with which some engines pad the output matrix. */
static plumb_status drop_padding(struct trace_view *v, struct trace_tap *tap, uint32_t n_vocab, struct error *err) {
    uint64_t n = tap->n_row > 0 ? length_of(&tap->rows[0]) : 0;
    bool is_padded = tap->n_row > 0 && !v->logits && n > n_vocab && n <= n_vocab + (uint64_t)n_vocab / 4;
    for (uint32_t i = 0; i < tap->n_row && is_padded; i++) {
        const struct trace_row *row = &tap->rows[i];
        is_padded = row->pos != TRACE_ALL_TOKENS && row->n_head == 1 && row->n == n && row->n_value == n;
    }
    if (!is_padded) return PLUMB_OK;
    v->logits = alloc_array(tap->n_row, sizeof *v->logits);
    if (!v->logits) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: logits of %u tokens", tap->n_row);
    memcpy(v->logits, tap->rows, tap->n_row * sizeof *v->logits);
    tap->rows = v->logits;
    for (uint32_t i = 0; i < tap->n_row; i++) {
        struct trace_row *row = &tap->rows[i];
        row->n = row->n_value = n_vocab;
        row->stats = trace_stats_of(row->values, n_vocab);
    }
    const char *name = tap_spec(tap->id)->name;
    return remarks_add(&v->t.remarks, err, REMARK_PADDING, name, strlen(name), "there are %llu logits for %u tokens of "
                       "the vocabulary; the last %llu were taken for padding and dropped", (unsigned long long)n,
                       n_vocab, (unsigned long long)n - n_vocab);
}

/* Adds remarks on experts that the layer does not have and on rows beyond the tokens. */
static plumb_status check_range(struct trace_view *v, const struct model *m, const struct trace_tap *tap,
                                struct error *err) {
    struct tap_text name;
    tap_show(&name, tap->id, tap->layer);
    uint32_t n_beyond = 0, n_expert = tap_holds_indices(tap->id) ? m->plan.layers[tap->layer].ffn.n_expert : 0;
    bool is_odd = false;
    for (uint32_t i = 0; i < tap->n_row; i++) {
        const struct trace_row *row = &tap->rows[i];
        n_beyond += v->t.n_token > 0 && row->pos >= v->t.n_token && row->pos != TRACE_ALL_TOKENS;
        for (uint32_t k = 0; n_expert > 0 && k < row->n_value && !is_odd; k++) {
            double expert = (double)row->values[k];
            if (expert >= 0 && expert < n_expert) continue;
            is_odd = true;
            PLUMB_TRY(remarks_add(&v->t.remarks, err, REMARK_RANGE, name.text, strlen(name.text), "token %u uses "
                                  "expert %g, but the layer has %u experts, numbered from 0", row->pos, expert,
                                  n_expert));
        }
    }
    if (n_beyond == 0) return PLUMB_OK;
    return remarks_add(&v->t.remarks, err, REMARK_TOKENS, name.text, strlen(name.text), "it has %u more row%s "
                       "than the %u tokens that are listed", n_beyond, n_beyond == 1 ? "" : "s", v->t.n_token);
}

/* Sets *keep to false, and adds a remark, if a tap cannot be compared with the model's. */
static plumb_status fit_tap(struct trace_view *v, const struct model *m, struct trace_tap *tap, bool *keep,
                            struct error *err) {
    struct tap_text name;
    tap_show(&name, tap->id, tap->layer);
    *keep = false;
    if (tap->n_row == 0) return PLUMB_OK;
    if (tap->layer >= (int32_t)m->plan.n_layer) {
        return remarks_add(&v->t.remarks, err, REMARK_LAYER, name.text, strlen(name.text), "the model has %u layers, "
                           "numbered from 0", m->plan.n_layer);
    }
    *keep = true;
    if (absent_in(m, tap->layer) >> tap->id & 1) {
        return remarks_add(&v->t.remarks, err, REMARK_ABSENT, name.text, strlen(name.text), "this model does not have "
                           "the step, so there is nothing to compare it with");
    }
    uint64_t size = view_row_size(m, tap->id, tap->layer, v->t.n_token);
    if (tap->id == TAP_RESULT_OUTPUT) PLUMB_TRY(drop_padding(v, tap, m->plan.n_vocab, err));
    for (uint32_t i = 0; i < tap->n_row; i++) {
        if (fits(&tap->rows[i], tap->id, size, v->t.n_token)) continue;
        *keep = false;
        return remark_length(v, m, tap, &tap->rows[i], size, err);
    }
    return check_range(v, m, tap, err);
}

plumb_status view_fit(struct trace_view *v, const struct model *m, struct error *err) {
    size_t n = 0;
    for (size_t i = 0; i < v->t.n_tap; i++) {
        bool keep;
        PLUMB_TRY(fit_tap(v, m, &v->t.taps[i], &keep, err));
        if (keep) v->t.taps[n++] = v->t.taps[i];
    }
    v->t.n_tap = n;
    return m->plan.has_logits ? view_check_vocabulary(v, m->plan.n_vocab, err) : PLUMB_OK;
}

plumb_status view_check_vocabulary(struct trace_view *v, uint32_t n_vocab, struct error *err) {
    const struct trace_tap *tap = trace_find_tap(&v->t, TAP_RESULT_OUTPUT, -1);
    for (uint32_t i = 0; tap && i < tap->n_row; i++) {
        const struct trace_row *row = &tap->rows[i];
        uint32_t last = row->n_value > 0 ? trace_place(row, row->n_value - 1) : 0;   /* places ascend */
        if (row->n_head > 0 || last < n_vocab) continue;
        const char *name = tap_spec(tap->id)->name;
        PLUMB_TRY(remarks_add(&v->t.remarks, err, REMARK_RANGE, name, strlen(name), "token %u lists id %u with the "
                              "logit %.4g, but the vocabulary has %u tokens, numbered from 0", row->pos, last,
                              (double)row->values[row->n_value - 1], n_vocab));
    }
    return PLUMB_OK;
}

/* ---- values that are not finite ---------------------------------------------------------------------------------- */

/* Returns the number of elements in a head of a row: of its shape or, if that has one head, of the model's. */
static uint32_t head_size(const struct model *m, const struct trace_tap *tap, const struct trace_row *row) {
    if (row->n_head > 1 || !m || tap->layer < 0 || tap->layer >= (int32_t)m->plan.n_layer) return row->n;
    const struct step *step = step_of(m, tap->id, (uint32_t)tap->layer);
    return step ? step->n : row->n;
}

/* Returns the index of the first stored value that is not finite; n_value if all are. */
static uint32_t first_not_finite(const struct trace_row *row, enum tap_id id) {
    uint32_t i = 0;
    bool is_known = row->stats.n_nan == 0 && row->stats.n_inf == 0;   /* false if the statistics are not known */
    if (is_known && row->n_value == (uint64_t)row->n_head * row->n) return row->n_value;
    while (i < row->n_value && (isfinite(row->values[i]) || (id == TAP_RESULT_OUTPUT && row->values[i] < 0))) i++;
    return i;
}

/* Returns the first row of a tap that is not finite; NULL if all are. */
static const struct trace_row *find_not_finite(const struct trace_tap *tap) {
    for (uint32_t i = 0; i < tap->n_row; i++) {
        const struct trace_row *row = &tap->rows[i];
        bool is_counted = row->stats.n_nan > 0 || (row->stats.n_inf > 0 && tap->id != TAP_RESULT_OUTPUT);
        if (is_counted || first_not_finite(row, tap->id) < row->n_value) return row;
    }
    return NULL;
}

static void show_token(char *text, size_t size, size_t *at, uint32_t pos) {
    if (pos == TRACE_ALL_TOKENS) report_append(text, size, at, "all tokens together");
    else report_append(text, size, at, "token %u", pos);
}

/* Says whether the inputs of a tap are finite.  All earlier taps are, as far as the dump has them. */
static void show_inputs(char *text, size_t size, size_t *at, const struct trace_view *v, const struct model *m,
                        const struct trace_tap *tap) {
    id_set in_dump = 0, absent = 0;
    int32_t before = tap->layer - 1;
    for (size_t i = 0; i < v->t.n_tap; i++) {
        const struct trace_tap *other = &v->t.taps[i];
        if (other->layer == tap->layer) in_dump |= ID_SET(other->id);
        if (tap->layer < 0 && other->layer > before) before = other->layer;   /* the results follow the last layer */
    }
    for (uint32_t i = 0; i < TAP_COUNT; i++) absent |= (id_set)tap_spec((enum tap_id)i)->only_some << i;
    id_set inputs = m && tap->layer < (int32_t)m->plan.n_layer ? model_tap_inputs(m, tap->id, tap->layer)
                    : trace_inputs(v->t.order, tap->id, absent & ~in_dump), n_here = 0, n_missing = 0;
    struct tap_text name;
    char missing[120] = "";
    size_t n_text = 0;
    bool is_whole = true;
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        if (!(inputs >> i & 1)) continue;
        enum tap_id id = (enum tap_id)i;
        int32_t layer = id == TAP_L_OUT ? before : tap->layer;
        if (id == TAP_L_OUT && layer < 0) id = TAP_EMBD;
        bool is_known = m && m->plan.n_encoder > 0 && tap->layer < (int32_t)m->plan.n_layer;
        struct tap_input known = is_known ? model_tap_input(m, tap->id, tap->layer, (enum tap_id)i)
                                          : (struct tap_input){ id, layer };
        id = known.id;
        layer = known.layer;
        const struct trace_tap *input = trace_find_tap(&v->t, id, layer);
        tap_show(&name, id, layer);
        if (!input || input->n_row == 0) {
            report_append(missing, sizeof missing, &n_text, "%s%s", n_missing++ > 0 ? " and " : "", name.text);
            continue;
        }
        const struct trace_row *row = &input->rows[0];
        is_whole = is_whole && row->n_value > 0 && row->n_value == (uint64_t)row->n_head * row->n;
        report_append(text, size, at, "%s%s", n_here++ > 0 ? " and " : "; of its inputs, ", name.text);
    }
    if (inputs == 0) report_append(text, size, at, "; it has no inputs but the tokens and the weights");
    if (n_here > 0) report_append(text, size, at, n_here > 1 ? " are finite%s" : " is finite%s",
                                  is_whole ? "" : " where the dump has values");
    if (n_missing > 0) report_append(text, size, at, n_missing > 1 ? "; its inputs %s are not in the dump"
                                     : "; its input %s is not in the dump", missing);
}

struct view_not_finite view_not_finite(const struct trace_view *v, const struct model *m) {
    struct view_not_finite first = { .tap = NULL };
    for (size_t i = 0; i < v->t.n_tap; i++) {
        const struct trace_row *row = find_not_finite(&v->t.taps[i]);
        first.n_tap += row != NULL;
        if (!row || first.tap) continue;
        first.tap = &v->t.taps[i];
        first.row = row;
    }
    if (!first.tap) return first;
    uint32_t i = first_not_finite(first.row, first.tap->id), n = head_size(m, first.tap, first.row);
    first.has_place = i < first.row->n_value;
    if (!first.has_place) return first;
    uint32_t place = trace_place(first.row, i);
    first.value = first.row->values[i];
    first.has_head = n > 0 && tap_has_heads(first.tap->id);
    first.head = first.has_head ? place / n : 0;
    first.element = first.has_head ? place % n : place;
    return first;
}

static plumb_status check_finite(struct trace_view *v, const struct model *m, struct error *err) {
    struct view_not_finite first = view_not_finite(v, m);
    const struct trace_row *row = first.row;
    if (!first.tap) return PLUMB_OK;
    char text[260] = "";
    size_t at = 0;
    if (first.has_place) {
        report_append(text, sizeof text, &at, "the first value that is not finite, %s, is in ",
                      isnan(first.value) ? "NaN" : first.value > 0 ? "infinity" : "-infinity");
        show_token(text, sizeof text, &at, row->pos);
        if (first.has_head) report_append(text, sizeof text, &at, ", head %u", first.head);
        report_append(text, sizeof text, &at, ", element %u", first.element);
    } else {
        report_append(text, sizeof text, &at, "the first values that are not finite are in ");
        show_token(text, sizeof text, &at, row->pos);
        report_append(text, sizeof text, &at, ", which has %.0f NaN and %.0f infinities",
                      row->stats.n_nan > 0 ? row->stats.n_nan : 0, row->stats.n_inf > 0 ? row->stats.n_inf : 0);
    }
    show_inputs(text, sizeof text, &at, v, m, first.tap);
    if (first.n_tap > 1) report_append(text, sizeof text, &at, first.n_tap > 2 ? "; %zu later taps have such values too"
                                       : "; %zu later tap has such values too", first.n_tap - 1);
    struct tap_text name;
    tap_show(&name, first.tap->id, first.tap->layer);
    return remarks_add(&v->t.remarks, err, REMARK_NOT_FINITE, name.text, strlen(name.text), "%s", text);
}

/* ---- zeros ------------------------------------------------------------------------------------------------------- */

/* Returns true if n values from `first` on are all zeros. */
static bool are_zeros(const struct trace_row *row, uint64_t first, uint64_t n) {
    for (uint64_t i = first; i < first + n; i++) {
        if (row->values[i] != 0) return false;
    }
    return true;
}

/* What of a row is zeros: none, the whole row, or first its head `head`, and n_head heads in all. */
struct zeros {
    bool whole;
    uint32_t head, n_head;
};

static struct zeros zeros_of(const struct model *m, const struct trace_tap *tap, const struct trace_row *row) {
    enum { ENOUGH = 4 };   /* fewer values say little about the row */
    struct zeros z = { .whole = row->stats.rms == 0 };
    bool is_complete = row->n_value > 0 && row->n_value == (uint64_t)row->n_head * row->n;
    if (row->quantum > 0 || z.whole) return z;   /* small values are printed as 0 */
    if (!is_complete) {
        bool is_sparse = row->places || tap->id == TAP_KQ_SOFT_MAX || row->n_value < ENOUGH || isfinite(row->stats.rms);
        z.whole = !is_sparse && are_zeros(row, 0, row->n_value);
        return z;
    }
    uint32_t n = tap_has_heads(tap->id) ? head_size(m, tap, row) : 0;
    for (uint64_t first = 0; n > 0 && first + n <= row->n_value; first += n) {
        if (row->values[first] != 0 || !are_zeros(row, first, n)) continue;
        if (z.n_head++ == 0) z.head = (uint32_t)(first / n);
    }
    return z;
}

static bool has_zeros(struct zeros z) { return z.whole || z.n_head > 0; }

static plumb_status check_zeros(struct trace_view *v, const struct model *m, struct error *err) {
    const struct trace_tap *first = NULL;
    struct zeros what = { .whole = false };
    size_t n_tap = 0;
    uint32_t from = 0, to = 0, n_row = 0;
    for (size_t i = 0; i < v->t.n_tap; i++) {
        const struct trace_tap *tap = &v->t.taps[i];
        bool is_here = false;
        /* The only expert that a token uses may be expert 0, and its gate 0. */
        for (uint32_t k = 0; k < tap->n_row && !tap_holds_indices(tap->id) && !(first && is_here); k++) {
            struct zeros z = zeros_of(m, tap, &tap->rows[k]);
            if (!has_zeros(z)) continue;
            is_here = true;
            if (first) continue;
            first = tap;
            what = z;
            from = to = tap->rows[k].pos;
            for (n_row = 1; k + n_row < tap->n_row && tap->rows[k + n_row].pos == to + 1; n_row++) {
                struct zeros next = zeros_of(m, tap, &tap->rows[k + n_row]);
                if (next.whole != z.whole || next.head != z.head || next.n_head != z.n_head) break;
                to++;
            }
        }
        n_tap += is_here;
    }
    if (!first) return PLUMB_OK;
    char text[160] = "all zeros in ";
    size_t at = strlen(text);
    if (to > from) report_append(text, sizeof text, &at, "tokens %u-%u", from, to);
    else show_token(text, sizeof text, &at, from);
    if (!what.whole) report_append(text, sizeof text, &at, ", head %u", what.head);
    if (what.n_head > 1) report_append(text, sizeof text, &at, " and %u more", what.n_head - 1);
    if (n_tap > 1) report_append(text, sizeof text, &at, n_tap > 2 ? "; %zu other taps have zeros too"
                                 : "; %zu other tap has zeros too", n_tap - 1);
    struct tap_text name;
    tap_show(&name, first->id, first->layer);
    return remarks_add(&v->t.remarks, err, REMARK_ZEROS, name.text, strlen(name.text), "%s", text);
}

plumb_status view_check_values(struct trace_view *v, const struct model *m, struct error *err) {
    PLUMB_TRY(check_finite(v, m, err));
    return check_zeros(v, m, err);
}

/* Compares two traces and finds out what the numbers mean.  diff_report.c and diff_html.c write the report. */
#include "diff/diff.h"

#include "api/model.h"
#include "mistakes/known.h"
#include "trace/inputs.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- numbers of one tap ------------------------------------------------------------------------------------------ */

/* Sets shape to the (n_head, n) of the first row whose shape is known; to 0, 0 if there is none. */
static void shape_of(const struct trace_tap *tap, uint32_t shape[2]) {
    shape[0] = shape[1] = 0;
    for (uint32_t i = 0; i < tap->n_row && shape[0] == 0; i++) {
        if (tap->rows[i].pos == TRACE_ALL_TOKENS) continue;
        shape[0] = tap->rows[i].n_head;
        shape[1] = tap->rows[i].n;
    }
}

/* Returns true if both shapes are known and differ.  Only the number of elements counts: the values of a token are in
 * the same order whether an engine calls them one head or many.  For kq_soft_max only n_head counts, because an engine
 * may pad the keys. */
static bool shapes_differ(enum tap_id id, const uint32_t a[2], const uint32_t b[2]) {
    if (a[0] == 0 || b[0] == 0) return false;
    if (id == TAP_KQ_SOFT_MAX) return a[0] != b[0];
    return (uint64_t)a[0] * a[1] != (uint64_t)b[0] * b[1];
}

/* Sets rms_a and rms_b to the RMS over the tokens that both have or, if one of these is not known, over the compared
 * values. */
static void rms_of(struct diff_tap *out, const struct trace_tap *a, const struct trace_tap *b) {
    double square_a = 0, square_b = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_row; i++) {
        const struct trace_row *row = trace_find_row(b, a->rows[i].pos);
        if (!row) continue;
        square_a += a->rows[i].stats.rms * a->rows[i].stats.rms;
        square_b += row->stats.rms * row->stats.rms;
        n++;
    }
    out->rms_a = sqrt(square_a / n);
    out->rms_b = sqrt(square_b / n);
    if ((n > 0 && isfinite(out->rms_a) && isfinite(out->rms_b)) || out->c.n_value == 0) return;
    out->rms_a = sqrt(out->c.sum_aa / (double)out->c.n_value);
    out->rms_b = sqrt(out->c.sum_bb / (double)out->c.n_value);
}

/* Compares a tap.  Returns false if the two sides have nothing in common to compare. */
static bool compare_tap(struct diff_tap *out, const struct trace_tap *a, const struct trace_tap *b, double tolerance) {
    *out = (struct diff_tap) { .id = a->id, .layer = a->layer, .error = NAN, .cosine = NAN };
    shape_of(a, out->shape_a);
    shape_of(b, out->shape_b);
    out->shapes_differ = shapes_differ(a->id, out->shape_a, out->shape_b);
    if (!out->shapes_differ) {
        out->c.use_top_bound = true;
        compare_taps(&out->c, a, b);
        out->error = compare_error(&out->c);
        out->cosine = compare_cosine(&out->c);
    }
    rms_of(out, a, b);
    out->over = out->shapes_differ || out->error > tolerance;
    return out->shapes_differ || out->c.n_row > 0;
}

/* If a side has Q and K under the names of transformers' modules, their elements may have transformers' order
 * (heads.h).  If they do, permutes them to the GGUF's order. */
static plumb_status find_order(struct diff *d, struct error *err) {
    const struct plumb_trace **sides[] = { &d->a, &d->b };
    for (int s = 0; s < 2; s++) {
        const struct plumb_trace *side = *sides[s];
        uint32_t head_dim = side->by_module ? heads_permuted(side, *sides[!s]) : 0;
        if (head_dim == 0) continue;
        PLUMB_TRY(heads_permute(&d->permuted, side, head_dim, err));
        *sides[s] = &d->permuted;
        d->permuted_side = "AB"[s];
        break;
    }
    return PLUMB_OK;
}

static plumb_status compare_all(struct diff *d, struct error *err) {
    const struct plumb_trace *a = d->a, *b = d->b;
    d->taps = alloc_array(a->n_tap < b->n_tap ? a->n_tap : b->n_tap, sizeof *d->taps);
    if (!d->taps) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the comparison of %zu taps", a->n_tap);
    for (size_t i = 0; i < a->n_tap; i++) {
        const struct trace_tap *other = trace_find_tap(b, a->taps[i].id, a->taps[i].layer);
        if (!other) d->n_only_a++;
        else if (compare_tap(&d->taps[d->n_tap], &a->taps[i], other, d->tolerance)) d->n_tap++;
        else d->n_incomparable++;
    }
    d->n_only_b = b->n_tap - (a->n_tap - d->n_only_a);
    d->first = d->worst = d->n_tap;
    for (size_t i = d->n_tap; i-- > 0;) {
        const struct diff_tap *tap = &d->taps[i];
        if (tap->layer >= d->n_layer) d->n_layer = tap->layer + 1;
        d->n_over += tap->over;
        if (tap->over) d->first = i;
        if (isnan(tap->error)) continue;
        if (d->worst == d->n_tap || tap->error >= d->taps[d->worst].error) d->worst = i;
    }
    return PLUMB_OK;
}

/* ---- views of both sides ----------------------------------------------------------------------------------------- */

/* The first and the last layer of a trace, and how many layers it has. */
struct layer_span {
    int32_t first, last;
    uint32_t n;
};

static struct layer_span layers_of(const struct plumb_trace *t) {
    struct layer_span l = { .first = -1, .last = -1 };
    for (size_t i = 0; i < t->n_tap; i++) {   /* the taps are in the order of the layers */
        int32_t layer = t->taps[i].layer;
        if (layer < 0 || layer == l.last) continue;
        if (l.n++ == 0) l.first = layer;
        l.last = layer;
    }
    return l;
}

/* Returns true if a has layers 1 to n, and b layers 0 to n - 1. */
static bool may_count_from_one(const struct plumb_trace *a, const struct plumb_trace *b) {
    struct layer_span one = layers_of(a), zero = layers_of(b);
    return one.first == 1 && zero.first == 0 && one.last == zero.last + 1 && one.n == zero.n;
}

/* Returns the mean of log10 of the errors of the taps in layers, where layer i of a is layer i - shift of b.  NAN:
 * nothing was compared. */
static double mean_error(const struct plumb_trace *a, const struct plumb_trace *b, int32_t shift) {
    double sum = 0;
    uint32_t n = 0;
    for (size_t i = 0; i < a->n_tap; i++) {
        const struct trace_tap *tap = &a->taps[i];
        const struct trace_tap *other = tap->layer < 0 ? NULL : trace_find_tap(b, tap->id, tap->layer - shift);
        struct comparison c = { .use_top_bound = false };
        if (other) compare_taps(&c, tap, other);
        if (c.n_row == 0) continue;
        sum += compare_log(compare_error(&c));
        n++;
    }
    return sum / n;
}

/* Shifts the layers of a view that counts them from 1: the model proves it, or the other side, if the errors are then
 * clearly lower. */
static plumb_status find_numbering(struct diff *d, size_t side, struct error *err) {
    static const char own[] = "plumb ";
    struct trace_view *v = &d->views[side];
    const struct plumb_trace *other = &d->views[!side].t;
    if (v->t.source && strncmp(v->t.source, own, sizeof own - 1) == 0) return PLUMB_OK;
    bool is_shifted = d->model && view_numbering(&v->t, d->model) == VIEW_FROM_1;
    if (!is_shifted && may_count_from_one(&v->t, other)) {
        double as_is = mean_error(&v->t, other, 0), lowered = mean_error(&v->t, other, 1);
        /* Without a layer that both have as it is, the errors of the shifted ones alone must show it. */
        is_shifted = lowered < (isnan(as_is) ? -1 : as_is - 0.5);
    }
    return is_shifted ? view_shift(v, err) : PLUMB_OK;
}

/* Makes the views of both sides. */
static plumb_status read_sides(struct diff *d, struct error *err) {
    const struct plumb_trace *const sides[] = { d->a, d->b };
    for (size_t s = 0; s < 2; s++) PLUMB_TRY(view_begin(&d->views[s], sides[s], err));
    for (size_t s = 0; s < 2; s++) PLUMB_TRY(find_numbering(d, s, err));
    for (size_t s = 0; s < 2; s++) {
        if (d->vocab) PLUMB_TRY(view_check_vocabulary(&d->views[s], tokenizer_n_vocab(d->vocab), err));
        PLUMB_TRY(view_check_values(&d->views[s], d->model, err));
    }
    d->a = &d->views[0].t;
    d->b = &d->views[1].t;
    return PLUMB_OK;
}

/* ---- the likeliest tokens ---------------------------------------------------------------------------------------- */

/* Finds the last token after which both sides know the likeliest tokens. */
static void compare_top(struct diff *d) {
    const struct trace_tap *a = trace_find_tap(d->a, TAP_RESULT_OUTPUT, -1);
    const struct trace_tap *b = trace_find_tap(d->b, TAP_RESULT_OUTPUT, -1);
    for (uint32_t i = a && b ? a->n_row : 0; i-- > 0;) {
        const struct trace_row *row = trace_find_row(b, a->rows[i].pos);
        if (!row || row->pos == TRACE_ALL_TOKENS) continue;
        d->top_pos = row->pos;
        d->n_top_a = trace_known_top(&a->rows[i], d->top_a);
        d->n_top_b = trace_known_top(row, d->top_b);
        if (d->n_top_a > 0 && d->n_top_b > 0) return;
    }
}

/* ---- the inputs of a tap ----------------------------------------------------------------------------------------- */

/* Returns the index of a tap, by binary search; n_tap if it was not compared. */
static size_t find_tap(const struct diff *d, enum tap_id id, int32_t layer) {
    size_t low = 0, high = d->n_tap;
    uint64_t place = tap_place(d->a->order, id, layer);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tap_place(d->a->order, d->taps[middle].id, d->taps[middle].layer) < place) low = middle + 1;
        else high = middle;
    }
    return low < d->n_tap && d->taps[low].id == id && d->taps[low].layer == layer ? low : d->n_tap;
}

/* Returns the taps that a layer lacks, without a model: those of which neither trace has a record in this layer, all of
 * them if one of the traces is complete, otherwise those that only some models have.  If both traces lack the layer,
 * any other counts. */
static id_set absent_in(const struct diff *d, int32_t layer) {
    const id_set in_all = TAP_SET(QCUR) | TAP_SET(KCUR) | TAP_SET(VCUR) | TAP_SET(ATTN_OUT) | TAP_SET(FFN_INP)
                          | TAP_SET(FFN_OUT) | TAP_SET(L_OUT);
    const id_set in_rwkv = in_all | TAP_SET(WKV);
    const id_set in_attention = in_all | TAP_SET(QCUR_ROPE) | TAP_SET(KCUR_ROPE) | TAP_SET(KQ_SOFT_MAX)
                                | TAP_SET(KQV_OUT);
    const struct plumb_trace *const sides[] = { d->a, d->b };
    id_set here[2] = { 0 }, anywhere = 0, some = 0;
    if (layer < 0) return 0;
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < sides[s]->n_tap; i++) {
            const struct trace_tap *tap = &sides[s]->taps[i];
            anywhere |= ID_SET(tap->id);
            here[s] |= tap->layer == layer ? ID_SET(tap->id) : 0;
        }
    }
    bool is_complete = false;
    for (size_t s = 0; s < 2; s++) is_complete |= !(in_attention & ~here[s]) || !(in_rwkv & ~here[s]);
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        const struct tap_spec *spec = tap_spec((enum tap_id)i);
        some |= (id_set)(spec->only_some || (is_complete && spec->in_layer)) << i;
    }
    if (d->a->order & TAP_ORDER_ONE_NORM) some |= TAP_SET(FFN_NORM);
    return some & ~(here[0] | here[1] ? here[0] | here[1] : anywhere);
}

/* Returns the taps of the same layer, and perhaps TAP_L_OUT, that a tap is computed from. */
static id_set inputs_of(const struct diff *d, enum tap_id id, int32_t layer) {
    bool is_known = d->model && layer < (int32_t)d->model->plan.n_layer;
    return is_known ? model_tap_inputs(d->model, id, layer) : trace_inputs(d->a->order, id, absent_in(d, layer));
}

/* Returns the nearest compared taps from which `tap` is computed.  An input that was not compared is replaced by its
 * own inputs, layer by layer down to the embeddings.
 *
 * want is the set of ids that are looked for in the current layer, earlier the set for the layer before.  Inputs in the
 * same layer come before the tap that is computed from them, so one loop covers a layer.  Before layer 0, embd takes
 * the place of l_out.  The layer before the results is the last one compared (n_layer).  If the model has later layers,
 * which the traces lack, in.direct is true for result_norm nevertheless. */
static struct diff_inputs find_inputs(const struct diff *d, size_t tap) {
    struct diff_inputs in = { .direct = true, .error = NAN };
    enum tap_id of = d->taps[tap].id, ids[TAP_COUNT];
    int32_t layer = d->taps[tap].layer;
    bool is_result = of >= TAP_RESULT_NORM;
    id_set feeds = inputs_of(d, of, layer);
    id_set want = tap_same_layer(feeds), earlier = feeds ^ want;
    tap_sequence(d->a->order, ids);
    if (of == TAP_ENCODED) want = earlier, earlier = 0;   /* the l_out of its own layer */
    for (;;) {
        if (earlier & TAP_SET(ENCODED)) {   /* which d->model knows to be in another layer */
            size_t i = find_tap(d, TAP_ENCODED, (int32_t)d->model->plan.n_encoder - 1);
            if (i == d->n_tap) in.direct = false;
            else if (in.n < TAP_COUNT) in.error = fmax(in.error, d->taps[in.taps[in.n++] = i].error);
            earlier &= ~TAP_SET(ENCODED);
        }
        for (uint32_t at = TAP_COUNT; at-- > 0;) {
            enum tap_id id = ids[at];
            if (!(want >> id & 1)) continue;
            size_t i = find_tap(d, id, layer);
            if (i < d->n_tap) {
                if (in.n < TAP_COUNT) in.taps[in.n++] = i;
                in.error = fmax(in.error, d->taps[i].error);
                continue;
            }
            in.direct = false;
            id_set more = inputs_of(d, id, layer), same = tap_same_layer(more);
            want |= same;   /* they come before it, so this loop still reaches them */
            earlier |= more ^ same;
        }
        if (earlier == 0) return in;
        if (is_result && d->n_layer == 0) in.direct = false;   /* no layer was compared */
        bool is_known = !is_result && d->model && layer < (int32_t)d->model->plan.n_layer;
        struct tap_input before = { TAP_EMBD, is_result ? d->n_layer - 1 : layer - 1 };
        if (is_known) before = model_tap_input(d->model, TAP_ATTN_NORM, layer, TAP_L_OUT);
        layer = before.layer;
        is_result = false;
        want = layer < 0 ? ID_SET(before.id) : earlier;
        earlier = 0;
    }
}

/* Returns the next jump: the first tap after d->first whose inputs were all compared and whose error is at least
 * DIFF_JUMP_FACTOR times that of its inputs and of every earlier tap.  Returns n_tap if there is none. */
static size_t find_jump(const struct diff *d) {
    double largest = 0;   /* largest error of the taps so far */
    for (size_t i = 0; i < d->n_tap; i++) {
        double error = d->taps[i].error;
        if (i > d->first && error >= DIFF_JUMP_FACTOR * largest) {
            struct diff_inputs in = find_inputs(d, i);
            if (in.direct && error >= DIFF_JUMP_FACTOR * in.error) return i;
        }
        largest = fmax(largest, error);
    }
    return d->n_tap;
}

/* Returns the factor by which the error of a tap grows per layer.  Takes the tap that comes last in a layer (l_out, if
 * possible) among those whose error is above 0 and finite in at least two layers, and compares the first of these
 * layers with the last.  Sets *from and *to to the indices of the tap in the two layers.  Returns NAN if there is no
 * such tap. */
static double find_growth(const struct diff *d, size_t *from, size_t *to) {
    for (enum tap_id id = TAP_L_OUT; id >= TAP_ATTN_NORM; id--) {
        *from = *to = d->n_tap;
        for (size_t i = 0; i < d->n_tap; i++) {
            if (d->taps[i].id != id || !(d->taps[i].error > 0) || !isfinite(d->taps[i].error)) continue;
            if (*from == d->n_tap) *from = i;
            *to = i;
        }
        if (*from == *to) continue;
        double layers = d->taps[*to].layer - d->taps[*from].layer;
        return pow(d->taps[*to].error / d->taps[*from].error, 1 / layers);
    }
    return NAN;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

#define add(d, ...) report_append((d)->verdict, sizeof (d)->verdict, &(d)->n_verdict, __VA_ARGS__)

static const char *show(struct tap_text *buf, const struct diff *d, size_t i) {
    return tap_show(buf, d->taps[i].id, d->taps[i].layer);
}

/* Adds "Qcur_rope-0 (0.61) and Kcur_rope-0 (1e-06)", in the order of the computation. */
static void add_inputs(struct diff *d, const struct diff_inputs *in) {
    for (uint32_t k = in->n; k-- > 0;) {
        struct tap_text name;
        const char *after = k == 0 ? "" : k == 1 ? " and " : ", ";
        add(d, "%s (%.2g)%s", show(&name, d, in->taps[k]), d->taps[in->taps[k]].error, after);
    }
}

/* Adds "blk.3.attn_q.weight", or several such names, or outside the layers "output.weight (token_embd if tied)". */
static void add_weights(struct diff *d, const struct diff_tap *tap) {
    const char *weights = tap_weights(tap->id), *name = weights;
    size_t n = strcspn(name, " ");
    if (tap->layer < 0) add(d, "%.*s.weight%s", (int)n, name, name + n);
    for (; tap->layer >= 0 && *name; name += n + strspn(name + n, ", ")) {
        n = strcspn(name, ",");
        add(d, "%sblk.%d.%.*s.weight", name == weights ? "" : ", ", (int)tap->layer, (int)n, name);
    }
}

/* Says from which values the error was computed. */
static void add_values(struct diff *d, const struct diff_tap *tap) {
    const uint32_t *shape = tap->shape_a[0] > 0 ? tap->shape_a : tap->shape_b;
    uint64_t n = tap->c.n_value, each = n / tap->c.n_row;
    if (tap->c.n_bound > 0) add(d, "at least, from the lists of the likeliest tokens");
    else if (n == 0) add(d, "from statistics");
    else if (n % tap->c.n_row > 0) add(d, "of %llu values", (unsigned long long)n);
    else if (each == (uint64_t)shape[0] * shape[1]) add(d, "of all %llu values", (unsigned long long)each);
    else add(d, "of %llu values per token", (unsigned long long)each);
}

static void add_first(struct diff *d) {
    const struct diff_tap *tap = &d->taps[d->first];
    struct tap_text name;
    add(d, "They first diverge at %s (%s): ", show(&name, d, d->first), tap_title(tap->id));
    if (tap->shapes_differ) {
        add(d, "A has %u x %u values per token, B has %u x %u.\n", tap->shape_a[0], tap->shape_a[1], tap->shape_b[0],
            tap->shape_b[1]);
    } else if (isinf(tap->error)) {
        add(d, "B is all zeros where A is not.\n");
    } else {
        add(d, "relative error %.2g (", tap->error);
        add_values(d, tap);
        add(d, "), tolerance %g.\n", d->tolerance);
    }
    if (tap->c.n_nan > 0) {
        add(d, "Differences in NaN or infinite values: %llu.\n", (unsigned long long)tap->c.n_nan);
    }
}

/* Names a side's likeliest token, and its rank on the other side. */
static void add_likeliest(struct diff *d, char side, const struct trace_value *token, char other,
                          const struct trace_value *top, uint32_t n) {
    char piece[96];
    int64_t n_piece = tokens_piece(d->a, d->b, d->vocab, (int32_t)token->place, piece, sizeof piece);
    uint32_t rank = 0;
    while (rank < n && top[rank].place != token->place) rank++;
    add(d, "%c's likeliest, %u ", side, token->place);
    if (n_piece >= 0) add(d, "\"%.*s\" ", n_piece < (int64_t)sizeof piece ? (int)n_piece : (int)sizeof piece, piece);
    add(d, "(%.4g), is ", (double)token->value);
    if (rank < n) add(d, "number %u of %c's", rank + 1, other);
    else add(d, "not among %c's top %u", other, n);
}

/* Names the likeliest tokens of both sides if the logits diverge first and the two tokens are not the same. */
static void add_top(struct diff *d) {
    if (d->taps[d->first].id != TAP_RESULT_OUTPUT || d->n_top_a == 0 || d->n_top_b == 0) return;
    if (d->top_a[0].place == d->top_b[0].place) return;
    add(d, "The likeliest tokens after token %u differ: ", d->top_pos);
    add_likeliest(d, 'A', &d->top_a[0], 'B', d->top_b, d->n_top_b);
    add(d, "; ");
    add_likeliest(d, 'B', &d->top_b[0], 'A', d->top_a, d->n_top_a);
    add(d, ".\n");
}

/* Says where to look for the fault, given that no earlier tap diverges. */
static void add_step(struct diff *d) {
    const struct diff_tap *tap = &d->taps[d->first];
    const char *weights = tap_weights(tap->id);
    if (tap->id == TAP_EMBD) {
        add(d, "This is the first step, which looks up rows of ");
        add_weights(d, tap);
        add(d, " by token id. Check how that tensor is read: its type, the layout of its blocks, its offset in the "
            "file.%s\n", fabs(tap->cosine) < 0.2 ? " The cosine is near 0: these are not copies of the same rows, but "
            "rows of other tokens or of another model." : "");
    } else if (d->inputs.n == 0) {
        add(d, "The sides have no earlier tap in common: the fault may be anywhere up to here.\n");
    } else if (!d->inputs.direct) {
        add(d, "Its inputs were not all compared. The nearest earlier taps agree: ");
        add_inputs(d, &d->inputs);
        add(d, ". The fault is after them; trace the steps in between to locate it.\n");
    } else {
        add(d, "Its inputs agree: ");
        add_inputs(d, &d->inputs);
        add(d, ". So the fault is in this step");
        if (weights[0]) {
            add(d, ", or in how ");
            add_weights(d, tap);
            add(d, strchr(weights, ',') ? " are read" : " is read");
        }
        add(d, ".\n");
    }
}

/* If the other products of the same input diverge too, says that the fault is not in a single tensor. */
static void add_siblings(struct diff *d) {
    const struct diff_tap *first = &d->taps[d->first];
    if (first->id != TAP_QCUR && first->id != TAP_FFN_GATE) return;
    size_t x = find_tap(d, first->id == TAP_QCUR ? TAP_KCUR : TAP_FFN_UP, first->layer);
    size_t y = find_tap(d, first->id == TAP_QCUR ? TAP_VCUR : TAP_FFN_UP, first->layer);
    if (x == d->n_tap || y == d->n_tap || !d->taps[x].over || !d->taps[y].over) return;
    struct tap_text name;
    add(d, "%s (%.2g)", show(&name, d, x), d->taps[x].error);
    if (x != y) add(d, " and %s (%.2g)", show(&name, d, y), d->taps[y].error);
    add(d, ", computed from the same input, diverge too: the fault is not in one tensor, but in how their type is "
        "read, rounded or multiplied.\n");
}

/* Says how many known mistakes (mistakes/known.h) begin at this tap.  Only `plumb diagnose`, which has the model, can
 * find out which of them it is.  Misread types are not counted, because they can begin at any matrix. */
static void add_known(struct diff *d) {
    const struct tap_spec *spec = tap_spec(d->taps[d->first].id);
    bool is_matrix = tap_weights(d->taps[d->first].id)[0] && !strstr(spec->name, "norm");
    uint32_t n = 0;
    for (size_t i = 0; known_at(i); i++) {
        n += strcmp(known_at(i)->tap, spec->name) == 0 && !known_at(i)->misread;
    }
    if (n == 0 && !is_matrix) return;
    add(d, "`plumb diagnose` knows ");
    if (n > 0) add(d, "%u mistake%s here%s", n, n == 1 ? " that begins" : "s that begin", is_matrix ? ", and " : ".\n");
    if (is_matrix) add(d, "the usual mistakes in reading each type of weights.\n");
}

/* before: index of the earlier tap with the largest error, which is not far below that of the first tap that
 * diverges. */
static void add_gradual(struct diff *d, size_t before) {
    struct tap_text name, last;
    add(d, "No single step is the cause: %s already has an error of %.2g.\n", show(&name, d, before),
        d->taps[before].error);
    size_t from, to;
    d->growth = find_growth(d, &from, &to);
    if (!isnan(d->growth)) {
        add(d, "From %s to %s the error goes from %.2g to %.2g: x%.2f per layer.\n", show(&name, d, from),
            show(&last, d, to), d->taps[from].error, d->taps[to].error, d->growth);
    }
    size_t jump = find_jump(d);
    if (jump < d->n_tap) {
        add(d, "But look at %s: its error is %.2g, and that of its inputs is %.2g.\n", show(&name, d, jump),
            d->taps[jump].error, find_inputs(d, jump).error);
    } else {
        add(d, "Errors of quantized weights, or of activations rounded to 8 bits as in llama.cpp, add up like this; a "
            "mistake shows as a jump. A larger --tolerance accepts them.\n");
    }
}

/* If Q and K of a side were permuted, says so. */
static void add_order(struct diff *d) {
    if (d->permuted_side == 0) return;
    add(d, "Qcur and Kcur of %c have the elements of a head in transformers' order (pairs are half a head apart); they "
        "were permuted to the GGUF's order (pairs are adjacent).\n", d->permuted_side);
}

/* Points out a side that has rows for one token less than it lists: an engine that drops BOS may still list it. */
static void add_fewer(struct diff *d) {
    const struct plumb_trace *const sides[] = { d->a, d->b };
    for (size_t s = 0; s < 2; s++) {
        uint32_t n = 0;
        for (size_t i = 0; i < sides[s]->n_tap; i++) {
            const struct trace_tap *tap = &sides[s]->taps[i];
            for (uint32_t j = 0; j < tap->n_row; j++) {
                if (tap->rows[j].pos != TRACE_ALL_TOKENS && tap->rows[j].pos >= n) n = tap->rows[j].pos + 1;
            }
        }
        if (n < 2 || n + 1 != sides[s]->n_token) continue;
        add(d, "%c has rows for %u tokens but lists %u: was one of them, such as BOS, not fed?\n",
            "AB"[s], n, n + 1);
    }
}

/* Points out a side that has layers 1 to n if the other has 0 to n - 1, and the errors do not show how it counts. */
static void add_layers(struct diff *d) {
    const struct plumb_trace *const sides[] = { d->a, d->b };
    for (size_t s = 0; s < 2; s++) {
        if (!may_count_from_one(sides[s], sides[!s])) continue;
        int32_t last = layers_of(sides[s]).last;
        add(d, "%c has layers 1 to %d, %c has layers 0 to %d: does %c count them from 1?\n", "AB"[s], (int)last,
            "BA"[s], (int)last - 1, "AB"[s]);
    }
}

/* Adds a path as one word of a shell command, quoted if necessary. */
static void add_path(struct diff *d, const char *path) {
    size_t n_safe = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-");
    if (path[0] && !path[n_safe]) {
        add(d, "%s", path);
        return;
    }
    add(d, "'");
    for (; *path; path++) add(d, *path == '\'' ? "'\\''" : "%c", *path);
    add(d, "'");
}

/* Suggests the next command, which diagnoses the side that is not plumb's own. */
static void add_next(struct diff *d) {
    static const char own[] = "plumb ";
    bool own_a = d->a->source && strncmp(d->a->source, own, sizeof own - 1) == 0;
    bool own_b = d->b->source && strncmp(d->b->source, own, sizeof own - 1) == 0;
    add(d, "Next: plumb diagnose MODEL --against ");
    add_path(d, own_a && !own_b ? d->name_b : d->name_a);
    add(d, "\n");
}

static void add_divergence(struct diff *d) {
    const struct diff_tap *tap = &d->taps[d->first];
    add_first(d);
    add_top(d);
    add_layers(d);
    add_order(d);
    add_fewer(d);
    d->inputs = find_inputs(d, d->first);
    /* Rounding in every step shows in all taps, so the error is compared with the largest of all earlier ones. */
    size_t before = 0;   /* index of the tap with that error; without meaning if first is 0 */
    for (size_t i = 1; i < d->first; i++) {
        if (d->taps[i].error > d->taps[before].error) before = i;
    }
    d->kind = tap->shapes_differ ? DIFF_SHAPES
        : d->first > 0 && tap->error < DIFF_JUMP_FACTOR * d->taps[before].error ? DIFF_GRADUAL : DIFF_JUMP;
    if (d->kind == DIFF_GRADUAL) {
        add_gradual(d, before);
        return;
    }
    add_step(d);
    add_siblings(d);
    if (d->kind == DIFF_JUMP && d->inputs.direct) add_known(d);
    if (d->kind == DIFF_JUMP && tap->error < 0.2 && tap_weights(tap->id)[0]) {
        add(d, "Another type of the same weights, such as Q4_0 instead of F16, also gives an error of this size: "
            "`plumb weights` compares two files.\n");
    }
    add_next(d);
}

static void find_verdict(struct diff *d) {
    struct tap_text name;
    if (!tokens_comparable(d->tokens.kind)) {
        d->kind = DIFF_TOKENS;
        add(d, "The tokens differ: %s.\n", d->tokens.text);
        add(d, "They first differ at index %u. Activations of different tokens cannot be compared: feed both sides the "
            "same ids, as `plumb trace MODEL --tokens 1,2,3` does.\n", d->tokens.first);
    } else if (d->n_tap == 0) {
        d->kind = DIFF_NOTHING;
        add(d, "Nothing to compare: no tap has values or statistics at the same places on both sides.\n");
        if (d->a->n_tap == 0 || d->b->n_tap == 0) {
            add(d, "%s no taps with known names; docs/trace.md lists the names.\n",
                d->b->n_tap > 0 ? "A has" : d->a->n_tap > 0 ? "B has" : "Both have");
        }
        add_layers(d);
    } else if (d->first < d->n_tap) {
        add_divergence(d);
    } else {
        d->kind = DIFF_AGREE;
        add(d, "They agree: %zu taps, relative errors up to %.2g (%s), tolerance %g.\n", d->n_tap,
            d->taps[d->worst].error, show(&name, d, d->worst), d->tolerance);
        add_order(d);
    }
}

/* ---- entry points ------------------------------------------------------------------------------------------------ */

plumb_status diff_compare(struct diff *d, const struct plumb_trace *a, const struct plumb_trace *b,
                          const struct model *model, const struct tokenizer *vocab, const plumb_report *report,
                          struct error *err) {
    *d = (struct diff) { .a = a, .b = b, .model = model, .vocab = vocab, .growth = NAN };
    d->name_a = report->name_a ? report->name_a : "A";
    d->name_b = report->name_b ? report->name_b : "B";
    d->tolerance = report->tolerance > 0 ? report->tolerance : 0.01;
    PLUMB_TRY(read_sides(d, err));
    PLUMB_TRY(tokens_compare(&d->tokens, a, b, vocab, err));
    if (tokens_comparable(d->tokens.kind)) {
        PLUMB_TRY(find_order(d, err));
        PLUMB_TRY(compare_all(d, err));
        compare_top(d);
    }
    find_verdict(d);
    return PLUMB_OK;
}

void diff_free(struct diff *d) {
    free(d->taps);
    d->taps = NULL;
    heads_free(&d->permuted);
    for (size_t s = 0; s < 2; s++) view_free(&d->views[s]);
}

const char *diff_kind_name(enum diff_kind kind) {
    static const char *const names[] = {
        [DIFF_AGREE] = "agree", [DIFF_TOKENS] = "tokens", [DIFF_NOTHING] = "nothing", [DIFF_SHAPES] = "shapes",
        [DIFF_JUMP] = "jump", [DIFF_GRADUAL] = "gradual",
    };
    return names[kind];
}

plumb_status plumb_diff(plumb_trace *a, plumb_trace *b, plumb_model *model, const plumb_report *report, bool *agree) {
    *agree = false;
    if (report->format != PLUMB_FORMAT_TEXT && report->format != PLUMB_FORMAT_JSON
        && report->format != PLUMB_FORMAT_HTML) {
        return error_set(&a->err, PLUMB_ERROR_ARGUMENT, "a diff is written as text, JSON or HTML");
    }
    struct diff *d = alloc_array(1, sizeof *d);
    struct report_writer *w = alloc_array(1, sizeof *w);
    plumb_status status = PLUMB_ERROR_MEMORY;
    if (!d || !w) {
        error_set(&a->err, status, "out of memory: a diff of %zu taps", a->n_tap);
        goto done;
    }
    const struct model *m = model ? model->model : NULL;
    uint32_t order = m ? model_tap_order(m) : a->order | b->order;   /* most files do not say */
    trace_set_order(a, order);
    trace_set_order(b, order);
    status = diff_compare(d, a, b, m, model ? model->tokenizer : NULL, report, &a->err);
    if (status == PLUMB_OK) {
        *agree = diff_agrees(d);
        report_begin(w, report->write, report->user);
        if (report->format == PLUMB_FORMAT_TEXT) diff_text(d, w);
        else if (report->format == PLUMB_FORMAT_JSON) diff_json(d, w);
        else diff_html(d, w);
        report_flush(w);
        if (d->kind == DIFF_NOTHING) {
            status = error_set(&a->err, PLUMB_ERROR_ARGUMENT, "nothing to compare: A has %zu taps, B has %zu, and none "
                               "has values or statistics at the same places on both sides", a->n_tap, b->n_tap);
        }
    }
    diff_free(d);
done:
    free(d);
    free(w);
    return status;
}

/* See experiment.h.  At every tap the reference pass calls on_tap, which compares its activation with theirs, and then
 * force, which replaces it by theirs. */
#include "diagnose/experiment.h"

#include "trace/view.h"

#include <math.h>
#include <stdlib.h>

/* Runs with mistakes compute up to so many tokens as one batch. */
enum { MAX_ONE_BATCH = 64 };

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Returns the row of token t of a tap.  Its values are borrowed from the tap or from e->keys.  The rows of kq_soft_max
 * in a trace have one key for each of its tokens, but the pass has only the keys so far; the others become zeros. */
static struct trace_row row_of(const struct experiment *e, const plumb_tap *tap, enum tap_id id, uint32_t t) {
    size_t n = (size_t)tap->n_head * tap->n;
    struct trace_row row = { .pos = tap->pos + t, .n_head = tap->n_head, .n = tap->n, .n_value = (uint32_t)n,
                             .values = (float *)tap->data + t * n };
    if (id == TAP_KQ_SOFT_MAX) {
        uint32_t n_key = e->theirs->n_token, n_same = tap->n < n_key ? tap->n : n_key;
        for (uint32_t h = 0; h < tap->n_head; h++) {
            float *key = e->keys + (size_t)h * n_key;
            memset(key, 0, n_key * sizeof *key);
            memcpy(key, row.values + (size_t)h * tap->n, n_same * sizeof *key);
        }
        row.values = e->keys;
        row.n = n_key;
        row.n_value = tap->n_head * n_key;
    }
    return row;
}

/* Returns the same tap of theirs; NULL if there is none.  Sets *id to the tap's id. */
static const struct trace_tap *their_tap(const struct experiment *e, const plumb_tap *tap, enum tap_id *id) {
    return tap_find(tap->name, strlen(tap->name), id) ? trace_find_tap(e->theirs, *id, tap->layer) : NULL;
}

/* Returns their row of a token; NULL if there is none.  A pooled embedding has one row, for which a file may give any
 * token, or none. */
static const struct trace_row *their_row(const struct trace_tap *their, uint32_t pos) {
    return their->id == TAP_RESULT_POOLED && their->n_row == 1 ? their->rows : trace_find_row(their, pos);
}

/* Compares an activation of the pass with theirs, and keeps its statistics in own if those are needed. */
static void compare(struct experiment *e, const plumb_tap *tap, enum tap_id id, const struct trace_tap *their) {
    struct comparison *sum = &e->sums[their - e->theirs->taps];
    for (uint32_t t = 0; t < tap->n_token; t++) {
        const struct trace_row *theirs = their_row(their, tap->pos + t);
        struct trace_tap *own = &e->own[their - e->theirs->taps];
        if (!theirs && !own->rows) continue;
        struct trace_row ours = row_of(e, tap, id, t);
        ours.stats = trace_stats_of(ours.values, ours.n_value);
        if (own->n_row < own->cap) {
            own->rows[own->n_row] = ours;
            own->rows[own->n_row++].n_value = 0;   /* the values are not kept */
        }
        if (!theirs) continue;
        /* The error is relative to theirs, which is the same for every set of known mistakes. */
        double before = sum->sum_error2;
        uint32_t n_row = sum->n_row;
        compare_rows(sum, &ours, theirs);
        size_t at = e->first_row[their - e->theirs->taps] + (size_t)(theirs - their->rows);
        if (sum->n_row > n_row) e->row_error[at] = sqrt(fmax(0, sum->sum_error2 - before));
    }
}

static void on_tap(void *user, const plumb_tap *tap) {
    struct experiment *e = user;
    enum tap_id id;
    const struct trace_tap *their = their_tap(e, tap, &id);
    bool is_later = e->is_trying && mistakes_change(e->mistakes, id, tap->layer);   /* compared after the change */
    if (their && !is_later) compare(e, tap, id, their);
}

/* Returns true if the values of a row can take the place of those of the pass.  A row of ffn_moe_topk has indices of
 * experts, which the pass uses without a check. */
static bool can_replace(const struct experiment *e, const struct trace_row *row, enum tap_id id, int32_t layer) {
    for (uint32_t i = 0; tap_holds_indices(id) && i < row->n_value; i++) {
        if (!(row->values[i] >= 0 && (double)row->values[i] < e->model->plan.layers[layer].ffn.n_expert)) return false;
    }
    return true;
}

/* Overwrites x with rows of the truth. */
static void restore(const struct experiment *e, enum tap_id id, int32_t layer, uint32_t pos, uint32_t n_token, size_t n,
                    double *x) {
    const struct trace_tap *right = trace_find_tap(e->truth, id, layer);
    for (uint32_t t = 0; right && t < n_token; t++) {
        const struct trace_row *row = trace_find_row(right, pos + t);
        for (size_t i = 0; row && i < n && i < row->n_value; i++) x[t * n + i] = (double)row->values[i];
    }
}

/* Gives the mistakes an activation of the pass, and compares it if it became another one. */
static void make_mistake(struct experiment *e, const plumb_tap *tap, enum tap_id id, const struct trace_tap *their,
                         double *x) {
    size_t n = (size_t)tap->n_token * tap->n_head * tap->n;
    bool is_input = !tap->data;   /* the input of the first layer */
    const struct mistake *mistake = e->mistakes->mistake;
    if (is_input) {
        restore(e, id, tap->layer, tap->pos, tap->n_token, tap->n, x);
        e->mistakes->mistake = NULL;
    }
    mistakes_step(e->mistakes, tap, id, x);
    e->mistakes->mistake = mistake;
    bool is_changed = !is_input && mistakes_change(e->mistakes, id, tap->layer);
    float *data = (float *)tap->data;   /* the pass's own copy, which it fills anew for every tap */
    for (size_t i = 0; is_changed && i < n; i++) data[i] = (float)x[i];
    if (is_changed && their) compare(e, tap, id, their);
    size_t n_first = tap->n < 8 ? tap->n : 8;
    bool has_print = tap->layer == e->print_layer && !is_input && !tap_holds_indices(id);
    for (size_t i = 0; has_print && i < n_first; i++) {
        e->prints[id] += x[i] * (double)(i + 1) + x[n - tap->n + i] * (double)(i + 9);
    }
}

/* Overwrites x, the pass's activation, with those rows of theirs that are whole. */
static void force(void *user, const plumb_tap *tap, double *x) {
    struct experiment *e = user;
    enum tap_id id;
    const struct trace_tap *their = their_tap(e, tap, &id);
    if (e->is_trying) {
        make_mistake(e, tap, id, their, x);
        return;
    }
    bool is_known_input = e->truth && !tap->data && tap->layer + 1 == (int32_t)e->first_layer;
    if (is_known_input) restore(e, id, tap->layer, tap->pos, tap->n_token, tap->n, x);
    if (!their || id == TAP_RESULT_OUTPUT) return;
    uint32_t n_key = id == TAP_KQ_SOFT_MAX ? e->theirs->n_token : tap->n;
    for (uint32_t t = 0; t < tap->n_token; t++) {
        const struct trace_row *row = trace_find_row(their, tap->pos + t);
        bool is_whole = row && trace_is_whole(row, (uint64_t)tap->n_head * n_key);
        if (!is_whole || !can_replace(e, row, id, tap->layer)) continue;
        for (uint32_t h = 0; h < tap->n_head; h++) {
            double *to = x + ((size_t)t * tap->n_head + h) * tap->n;
            for (uint32_t i = 0; i < tap->n && i < n_key; i++) to[i] = (double)row->values[(size_t)h * n_key + i];
        }
    }
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

static plumb_status reserve_outcome(struct outcome *o, size_t n_tap, size_t n_row, struct error *err) {
    o->error = alloc_array(n_tap, sizeof *o->error);
    o->cosine = alloc_array(n_tap, sizeof *o->cosine);
    o->row_error = alloc_array((uint64_t)n_row + 1, sizeof *o->row_error);
    for (size_t i = 0; o->row_error && i < n_row; i++) o->row_error[i] = (double)NAN;
    if (o->error && o->cosine && o->row_error) return PLUMB_OK;
    outcome_free(o);
    return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: errors of %zu taps", n_tap);
}

void outcome_free(struct outcome *o) {
    free(o->error);
    free(o->cosine);
    free(o->row_error);
    o->error = o->cosine = o->row_error = NULL;
}

/* Runs the first n of e->tokens: n_prompt of them as one batch, the others one by one.  with_results: also computes the
 * results of the tokens from first_result on. */
static void feed(struct experiment *e, size_t n, size_t n_prompt, struct layers layers, bool with_results) {
    uint32_t pos = 0;
    if (e->model->plan.n_encoder > 0) reference_encode(e->reference, e->tokens, (uint32_t)n);
    while (pos < n) {
        uint32_t n_run = pos == 0 && n_prompt > 0 ? (uint32_t)n_prompt : 1, end = pos + n_run;
        e->pos = pos;
        uint32_t n_logits = !with_results || e->first_result >= end ? 0
                          : e->first_result > pos ? end - e->first_result : n_run;
        reference_run_layers(e->reference, layers, e->tokens + pos, n_run, pos, n_logits, e->logits);
        if (e->embeddings && with_results) {
            reference_embeddings(e->reference, n_run, e->embeddings + (size_t)pos * e->model->plan.n_embd);
        }
        pos = end;
    }
    if (e->embeddings && with_results) {
        reference_pool(e->reference, e->embeddings, (uint32_t)n, reference_pooling(e->reference), e->pooled);
    }
}

/* Counts each row of theirs from token n on as wrong.  A run of fewer tokens does not compute it, and what is missing
 * explains nothing. */
static void count_missing(struct experiment *e, size_t n, struct layers layers) {
    for (size_t i = 0; i < e->theirs->n_tap; i++) {
        const struct trace_tap *tap = &e->theirs->taps[i];
        bool is_late = tap->id >= TAP_RESULT_NORM, is_first = tap->id == TAP_EMBD;
        bool is_run = is_late ? layers.end >= e->model->plan.n_layer : is_first ? layers.first == 0
                    : (uint32_t)tap->layer >= layers.first && (uint32_t)tap->layer < layers.end;
        for (uint32_t k = 0; k < tap->n_row && is_run && tap->id != TAP_RESULT_POOLED; k++) {
            if (tap->rows[k].pos < n || tap->rows[k].pos >= e->theirs->n_token) continue;
            e->row_error[e->first_row[i] + k] = 1;
            e->sums[i].sum_error2 += 1;
            e->sums[i].n_row++;
        }
    }
}

/* Runs some layers on the first n of e->tokens, and fills the errors and the score of o. */
static void run(struct experiment *e, size_t n, size_t n_prompt, struct layers layers, struct outcome *o) {
    const struct plumb_trace *theirs = e->theirs;
    e->row_error = o->row_error;
    memset(e->sums, 0, theirs->n_tap * sizeof *e->sums);
    for (size_t i = 0; i < theirs->n_tap; i++) {
        e->own[i].n_row = 0;
        e->sums[i].skips_nan = true;
    }
    feed(e, n, n_prompt, layers, layers.end >= e->model->plan.n_layer);
    if (!e->is_trying) count_missing(e, n, layers);
    for (size_t i = 0; i < theirs->n_tap; i++) {
        if (e->own[i].rows) compare_all_tokens(&e->sums[i], &e->own[i], &theirs->taps[i]);
        bool compared = e->sums[i].n_row > 0;
        o->error[i] = compared ? compare_error(&e->sums[i]) : (double)NAN;
        o->cosine[i] = compared ? compare_cosine(&e->sums[i]) : (double)NAN;
        if (compared) o->score += compare_log(o->error[i]);
    }
}

plumb_status experiment_run(struct experiment *e, const struct known_mistake *const *known, uint32_t n_known,
                            struct layers layers, struct outcome *o, struct error *err) {
    *o = (struct outcome){ .n_known = n_known };
    PLUMB_TRY(reserve_outcome(o, e->theirs->n_tap, e->first_row[e->theirs->n_tap], err));
    struct known_set set = { 0 };
    for (uint32_t i = 0; i < n_known; i++) {
        o->known[i] = known[i];
        known_add(&set, known[i]);
    }
    known_apply(e->reference, &set);
    size_t n_prompt = e->theirs->n_prompt;
    size_t n = known_tokens(&set, e->theirs->tokens, e->theirs->n_token, &n_prompt, e->tokens);
    run(e, n, n_prompt, layers, o);
    return PLUMB_OK;
}

/* ---- runs with mistakes ------------------------------------------------------------------------------------------ */

static const enum tap_id products[] = { TAP_QCUR, TAP_KCUR, TAP_VCUR, TAP_ATTN_OUT, TAP_FFN_GATE, TAP_FFN_UP,
                                        TAP_FFN_OUT };
enum { N_PRODUCT = sizeof products / sizeof *products };
_Static_assert((int)N_PRODUCT == (int)EXPERIMENT_PRODUCTS, "unpacked has a place for each product");

/* The sum of w_i x_i of n elements, in f32 and in partial sums that compilers turn into vectors. */
static float dot(const float *w, const float *x, uint32_t n) {
    float sum[16] = { 0 };
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (uint32_t k = 0; k < 16; k++) sum[k] += w[i + k] * x[i + k];
    }
    for (; i < n; i++) sum[0] += w[i] * x[i];
    for (uint32_t k = 1; k < 16; k++) sum[0] += sum[k];
    return sum[0];
}

/* Unpacks product i of the first layer for all later runs.  NULL: out of memory. */
static const float *unpack(struct experiment *e, size_t i, const struct weight *w) {
    if (e->unpacked[i]) return e->unpacked[i];
    uint64_t n;
    float *x = mul_u64(w->n_in, w->n_out, &n) ? alloc_array(n, sizeof *x) : NULL;
    uint8_t *bytes = alloc_array(w->row_bytes, 1);
    for (uint32_t o = 0; x && bytes && o < w->n_out; o++) {
        quant_dequantize(w->traits, weight_row(w, o, bytes), x + (size_t)o * w->n_in, w->n_in);
    }
    free(bytes);
    if (!bytes) {
        free(x);
        x = NULL;
    }
    return e->unpacked[i] = x;
}

/* y (n, n_out) = x (n, n_in) W^T in f32, which is enough to sort out mistakes. */
static bool multiply(struct experiment *e, size_t i, const struct weight *w, const double *x, uint32_t n, double *y) {
    const float *rows = unpack(e, i, w);
    float *input = alloc_array((uint64_t)n * w->n_in, sizeof *input);
    double *row = alloc_array(w->n_in, sizeof *row);
    for (uint32_t t = 0; input && row && t < n; t++) {
        memcpy(row, x + (size_t)t * w->n_in, w->n_in * sizeof *row);
        rounding_apply(&e->mistakes->rounding, w->type, row, w->n_in);
        for (uint32_t k = 0; k < w->n_in; k++) input[(size_t)t * w->n_in + k] = (float)row[k];
    }
    for (uint32_t o = 0; rows && input && row && o < w->n_out; o++) {
        for (uint32_t t = 0; t < n; t++) {
            y[(size_t)t * w->n_out + o] = (double)dot(rows + (size_t)o * w->n_in, input + (size_t)t * w->n_in, w->n_in);
        }
    }
    bool is_done = rows && input && row;
    free(input);
    free(row);
    return is_done;
}

/* In runs that begin with the first layer: products that come before every wrong step are those of the truth, and the
 * others are computed in f32. */
static bool give(struct experiment *e, const struct affine *of, const double *x, uint32_t n, double *y) {
    const struct weight *w = of->w;
    id_set taps = e->mistakes->mistake->taps & ~TAP_SET(RESULT_NORM);
    size_t i = 0;
    while (i < N_PRODUCT && e->model->layers[e->first_layer].w[mistake_weight(products[i])].w != w) i++;
    if (i == N_PRODUCT) return false;
    uint64_t place = tap_place(e->theirs->order, products[i], 0);
    bool is_later = false;
    for (uint32_t id = 0; id < TAP_COUNT; id++) {
        is_later = is_later || ((taps >> id & 1) && tap_place(e->theirs->order, (enum tap_id)id, 0) <= place);
    }
    if (!is_later) restore(e, products[i], (int32_t)e->first_layer, e->pos, n, w->n_out, y);
    if (!is_later) return true;
    e->n_product += (uint64_t)w->n_in * w->n_out * n;
    return !of->b && !of->s && !of->lora_a && e->model->plan.clamp_qkv == 0 && multiply(e, i, w, x, n, y);
}

static void product(const struct reference *r, const struct affine *of, enum weight_id id, const double *x, uint32_t n,
                    double *y) {
    if (!give(r->user, of, x, n, y)) reference_product(r, of, id, x, n, y);
}

/* A sink: keeps what runs with mistakes need of the truth. */
static void keep_truth(void *user, const plumb_tap *tap) {
    struct experiment *e = user;
    int32_t first = (int32_t)e->first_layer;
    bool is_input = tap->layer == first - 1 && strcmp(tap->name, tap_spec(TAP_L_OUT)->name) == 0;
    bool is_product = false;
    for (size_t i = 0; i < N_PRODUCT; i++) {
        is_product = is_product || (tap->layer == first && strcmp(tap->name, tap_spec(products[i])->name) == 0);
    }
    if (is_input || is_product) plumb_trace_add(e->truth, tap);
}

plumb_status experiment_begin_mistakes(struct experiment *e, uint32_t layer, const struct rounding *rounding,
                                       struct error *err) {
    const struct plumb_trace *theirs = e->theirs;
    if (e->mistakes) return PLUMB_OK;
    PLUMB_TRY(mistakes_create(&e->mistakes, e->model, theirs->tokens, theirs->n_token, theirs->n_prompt, err));
    e->mistakes->rounding = *rounding;
    e->truth = plumb_trace_create();
    if (!e->truth) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a trace");
    e->truth->params.n_value = UINT32_MAX;
    PLUMB_TRY(trace_set_tokens(e->truth, theirs->tokens, theirs->n_token, theirs->n_prompt));
    e->first_layer = layer;
    e->print_layer = INT32_MIN;
    e->is_trying = e->mistakes->is_checking = true;   /* this run also fills the rows of K and V of all layers */
    plumb_status status = experiment_truth(e, UINT32_MAX, (struct tap_sink){ keep_truth, e }, err);
    e->is_trying = e->mistakes->is_checking = false;
    if (status == PLUMB_OK && e->truth->err.status != PLUMB_OK) {
        status = error_set(err, e->truth->err.status, "%s", plumb_trace_error(e->truth));
    }
    if (status == PLUMB_OK && e->mistakes->out_of_memory) {
        status = error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the steps of %u tokens", theirs->n_token);
    }
    return status;
}

void experiment_end_mistakes(struct experiment *e) {
    if (!e) return;
    mistakes_free(e->mistakes);
    plumb_trace_free(e->truth);
    for (size_t i = 0; i < N_PRODUCT; i++) {
        free(e->unpacked[i]);
        e->unpacked[i] = NULL;
    }
    e->mistakes = NULL;
    e->truth = NULL;
    e->first_layer = e->n_first = 0;
    e->n_product = 0;
}

plumb_status experiment_try(struct experiment *e, const struct mistake *m, bool is_whole, uint32_t end,
                            struct outcome *o, struct error *err) {
    *o = (struct outcome){ .has_mistake = true };
    PLUMB_TRY(reserve_outcome(o, e->theirs->n_tap, e->first_row[e->theirs->n_tap], err));
    known_apply(e->reference, NULL);
    e->reference->steps.product = is_whole ? reference_product : product;
    mistakes_begin(e->mistakes, m);
    e->is_trying = true;
    memset(e->prints, 0, sizeof e->prints);
    memcpy(e->tokens, e->theirs->tokens, e->theirs->n_token * sizeof *e->tokens);
    /* One batch takes less time: every weight is unpacked once. */
    size_t n = !is_whole && e->n_first < e->theirs->n_token ? e->n_first : e->theirs->n_token;
    bool is_one = !mistake_is_of_batch(m) && plan_is_causal(&e->model->plan) && n <= e->n_batch;
    if (mistake_is_of_batch(m) || !plan_is_causal(&e->model->plan)) n = e->theirs->n_token;
    size_t n_prompt = is_one ? n : e->theirs->n_prompt;
    uint32_t last = end < e->model->plan.n_layer ? end : e->model->plan.n_layer;
    for (uint32_t il = e->first_layer + 1; il < last && !is_whole; il++) {   /* give counts those of the first layer */
        for (size_t i = 0; i < N_PRODUCT; i++) {
            const struct weight *w = e->model->layers[il].w[mistake_weight(products[i])].w;
            if (w) e->n_product += (uint64_t)w->n_in * w->n_out * n;
        }
    }
    run(e, n, n_prompt, (struct layers){ is_whole ? 0 : e->first_layer, end }, o);
    e->mistakes->mistake = NULL;
    e->is_trying = false;
    if (!e->mistakes->out_of_memory) return PLUMB_OK;
    outcome_free(o);
    return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the steps of %u tokens", e->theirs->n_token);
}

/* ---- set up ------------------------------------------------------------------------------------------------------ */

static plumb_status check_theirs(const struct model *m, const struct plumb_trace *theirs, struct error *err) {
    if (!theirs->tokens || theirs->n_token == 0) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "the dump does not list the tokens that were fed; they must be "
                         "given");
    }
    for (uint32_t i = 0; i < theirs->n_token; i++) {
        if (theirs->tokens[i] < 0 || (uint32_t)theirs->tokens[i] >= m->plan.n_vocab) {
            return error_set(err, PLUMB_ERROR_TOKEN, "token %d at index %u of the dump is not in 0..%u: is it the same "
                             "model?",
                             (int)theirs->tokens[i], i, m->plan.n_vocab - 1);
        }
    }
    if (theirs->n_token > m->plan.n_ctx_train) {
        return error_set(err, PLUMB_ERROR_CONTEXT, "the dump has %u tokens, but the model was trained for %u",
                         theirs->n_token, m->plan.n_ctx_train);
    }
    size_t n_tap = 0;
    for (size_t i = 0; i < theirs->n_tap; i++) {
        if (theirs->taps[i].layer < (int32_t)m->plan.n_layer && theirs->taps[i].n_row > 0) return PLUMB_OK;
        n_tap += theirs->taps[i].n_row > 0;
    }
    if (n_tap > 0) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "all %zu taps of the dump are in layers that the model does not "
                         "have: it has %u, numbered from 0", n_tap, m->plan.n_layer);
    }
    const struct remark *first = remarks_first_ignored(&theirs->remarks);
    return error_set(err, PLUMB_ERROR_ARGUMENT, "the dump has no activations with known names%s%s",
                     first ? "; the first record that was ignored is " : "", first ? first->name : "");
}

bool experiment_can_begin(const struct experiment *e, uint32_t layer) {
    const struct trace_tap *tap = layer > 0 ? trace_find_tap(e->theirs, TAP_L_OUT, (int32_t)layer - 1) : NULL;
    if (!tap || !plan_begins_at_layers(&e->model->plan)) return false;
    for (uint32_t t = 0; t < e->theirs->n_token; t++) {
        const struct trace_row *row = trace_find_row(tap, t);
        if (!row || !trace_is_whole(row, e->model->plan.n_embd)) return false;
    }
    return true;
}

bool experiment_is_whole(const struct experiment *e, const struct trace_tap *tap) {
    return tap->n_row > 0 && tap->id != TAP_RESULT_OUTPUT
        && trace_is_whole(&tap->rows[0], view_row_size(e->model, tap->id, tap->layer, e->theirs->n_token));
}

/* Allocates e->own.  A tap of which theirs has statistics of all tokens together gets a row for each of the n_ctx
 * tokens that the pass may compute.  Returns false if out of memory. */
static bool reserve_own(struct experiment *e, uint32_t n_ctx) {
    e->own = calloc(e->theirs->n_tap, sizeof *e->own);
    if (!e->own) return false;
    e->n_own = e->theirs->n_tap;
    for (size_t i = 0; i < e->theirs->n_tap; i++) {
        const struct trace_tap *their = &e->theirs->taps[i];
        e->own[i].id = their->id;
        e->own[i].layer = their->layer;
        if (their->n_row == 0 || their->rows[their->n_row - 1].pos != TRACE_ALL_TOKENS) continue;
        e->own[i].rows = alloc_array(n_ctx, sizeof *e->own[i].rows);
        if (!e->own[i].rows) return false;
        e->own[i].cap = n_ctx;
    }
    return true;
}

/* Sets first_result and forced. */
static void inspect_rows(struct experiment *e) {
    e->first_result = UINT32_MAX;
    for (size_t i = 0; i < e->theirs->n_tap; i++) {
        const struct trace_tap *tap = &e->theirs->taps[i];
        if (tap->n_row == 0) continue;
        uint32_t first = tap->rows[0].pos == TRACE_ALL_TOKENS ? 0 : tap->rows[0].pos;
        if (tap->id == TAP_RESULT_POOLED) first = 0;   /* it is made of all tokens */
        if (tap->id >= TAP_RESULT_NORM && first < e->first_result) e->first_result = first;
        if (experiment_is_whole(e, tap)) e->forced = true;
    }
}

/* ---- the order of Q and K ---------------------------------------------------------------------------------------- */

/* What find_order gives to its callbacks.  trace gets the Q and K that the truth computes, from inputs of theirs where
 * these are whole. */
struct truth {
    struct experiment *experiment;
    struct plumb_trace *trace;
};

static void record_heads(void *user, const plumb_tap *tap) {
    const struct truth *truth = user;
    if (strcmp(tap->name, "Qcur") == 0 || strcmp(tap->name, "Kcur") == 0) plumb_trace_add(truth->trace, tap);
}

/* Like force, but leaves out the taps whose order is in question. */
static void force_others(void *user, const plumb_tap *tap, double *x) {
    const struct truth *truth = user;
    enum tap_id id;
    if (their_tap(truth->experiment, tap, &id) && !heads_has_order(id)) force(truth->experiment, tap, x);
}

static plumb_status set_tap(struct experiment *e, struct tap_sink sink, struct error *err) {
    if (reference_set_tap(e->reference, sink) == PLUMB_OK) return PLUMB_OK;
    return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the activations of %u tokens", e->theirs->n_token);
}

/* If theirs has Q and K under the names of transformers' modules, their elements may have transformers' order
 * (heads.h).  If they do, permutes them and makes the result e->theirs. */
static plumb_status find_order(struct experiment *e, struct error *err) {
    if (!e->theirs->by_module) return PLUMB_OK;
    struct truth truth = { e, plumb_trace_create() };
    if (!truth.trace) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a trace");
    truth.trace->params.n_value = UINT32_MAX;
    plumb_status status = set_tap(e, (struct tap_sink){ record_heads, &truth }, err);
    if (status == PLUMB_OK) {
        reference_set_force(e->reference, force_others, &truth);
        memcpy(e->tokens, e->theirs->tokens, e->theirs->n_token * sizeof *e->tokens);
        feed(e, e->theirs->n_token, e->theirs->n_prompt, ALL_LAYERS, false);
        if (truth.trace->err.status != PLUMB_OK) {
            status = error_set(err, truth.trace->err.status, "%s", plumb_trace_error(truth.trace));
        }
    }
    uint32_t head_dim = status == PLUMB_OK ? heads_permuted(e->theirs, truth.trace) : 0;
    if (head_dim > 0) {
        status = heads_permute(&e->permuted, e->theirs, head_dim, err);
        if (status == PLUMB_OK) e->theirs = &e->permuted;   /* after a failure the copy lacks taps */
    }
    plumb_trace_free(truth.trace);
    return status;
}

/* ---- the truth --------------------------------------------------------------------------------------------------- */

plumb_status experiment_truth(struct experiment *e, uint32_t n_layer, struct tap_sink sink, struct error *err) {
    PLUMB_TRY(set_tap(e, sink, err));
    known_apply(e->reference, NULL);
    memcpy(e->tokens, e->theirs->tokens, e->theirs->n_token * sizeof *e->tokens);
    feed(e, e->theirs->n_token, e->theirs->n_prompt, (struct layers){ 0, n_layer }, n_layer >= e->model->plan.n_layer);
    return set_tap(e, (struct tap_sink){ on_tap, e }, err);
}

/* A copy of theirs that gets the pass's own values at the same places. */
struct shadow {
    const struct experiment *e;
    struct plumb_trace t;
    struct trace_row *rows;   /* of all taps */
    float *values;            /* of all rows */
};

static plumb_status make_shadow(struct shadow *s, const struct experiment *e, struct error *err) {
    const struct plumb_trace *theirs = e->theirs;
    uint64_t n_value = 0;
    for (size_t i = 0; i < theirs->n_tap; i++) {
        for (uint32_t k = 0; k < theirs->taps[i].n_row; k++) n_value += theirs->taps[i].rows[k].n_value;
    }
    *s = (struct shadow){ .e = e, .t = *theirs };
    s->t.by_module = false;   /* the values have the order of the pass */
    s->t.taps = alloc_array(theirs->n_tap, sizeof *s->t.taps);
    s->rows = alloc_array(e->first_row[theirs->n_tap], sizeof *s->rows);
    s->values = alloc_array(n_value, sizeof *s->values);
    if (!s->t.taps || !s->rows || !s->values) {
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %zu taps without rounding", theirs->n_tap);
    }
    memset(s->values, 0, (size_t)n_value * sizeof *s->values);   /* alloc_array has checked the size */
    float *values = s->values;
    for (size_t i = 0; i < theirs->n_tap; i++) {
        s->t.taps[i] = theirs->taps[i];
        s->t.taps[i].rows = s->rows + e->first_row[i];
        for (uint32_t k = 0; k < theirs->taps[i].n_row; k++) {
            struct trace_row *row = &s->t.taps[i].rows[k];
            *row = theirs->taps[i].rows[k];
            row->values = values;
            row->entropy = NULL;
            row->quantum = 0;
            row->stats = (struct trace_stats){ NAN, NAN, NAN, NAN, NAN, NAN };
            values += row->n_value;
        }
    }
    return PLUMB_OK;
}

/* A sink: fills the shadow. */
static void fill_shadow(void *user, const plumb_tap *tap) {
    struct shadow *s = user;
    enum tap_id id;
    const struct trace_tap *their = their_tap(s->e, tap, &id);
    for (uint32_t t = 0; their && t < tap->n_token; t++) {
        const struct trace_row *theirs = their_row(their, tap->pos + t);
        if (!theirs) continue;
        float *values = s->rows[s->e->first_row[their - s->e->theirs->taps] + (size_t)(theirs - their->rows)].values;
        struct trace_row ours = row_of(s->e, tap, id, t);
        for (uint32_t k = 0; k < theirs->n_value; k++) {
            uint32_t place = trace_place(theirs, k);
            values[k] = place < ours.n_value ? ours.values[place] : 0;
        }
    }
}

plumb_status experiment_effect_of_rounding(struct experiment *e, double *effect, struct error *err) {
    struct shadow s;
    struct experiment *exact = NULL;
    struct outcome o = { 0 };
    plumb_status status = make_shadow(&s, e, err);
    if (status == PLUMB_OK) status = experiment_truth(e, UINT32_MAX, (struct tap_sink){ fill_shadow, &s }, err);
    if (status == PLUMB_OK) status = experiment_create(&exact, e->model, &s.t, err);
    if (status == PLUMB_OK) status = experiment_run(exact, NULL, 0, ALL_LAYERS, &o, err);
    for (size_t i = 0; status == PLUMB_OK && i < e->theirs->n_tap; i++) {
        effect[i] = isnan(o.error[i]) ? 0 : o.error[i];
    }
    outcome_free(&o);
    experiment_free(exact);
    free(s.t.taps);
    free(s.rows);
    free(s.values);
    return status;
}

/* ---- create, free ------------------------------------------------------------------------------------------------ */

plumb_status experiment_create(struct experiment **out, const struct model *m, const struct plumb_trace *theirs,
                               struct error *err) {
    *out = NULL;
    PLUMB_TRY(check_theirs(m, theirs, err));
    struct experiment *e = calloc(1, sizeof *e);
    if (!e) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %zu bytes for a diagnosis", sizeof *e);
    e->model = m;
    e->theirs = theirs;
    inspect_rows(e);
    /* One known mistake feeds BOS twice, and one feeds padding, both in the prompt.  Another feeds the prompt's last
     * token again, as the first step. */
    uint32_t n_ctx = theirs->n_token + 3, n_batch = theirs->n_prompt + 2;
    if (n_batch < theirs->n_token && theirs->n_token <= MAX_ONE_BATCH) n_batch = theirs->n_token;
    e->n_batch = n_batch;
    const struct plan *p = &m->plan;
    bool is_pooled = p->pooling.kind != PLUMB_POOLING_NONE && trace_find_tap(theirs, TAP_RESULT_POOLED, -1);
    plumb_status status = reference_create(&e->reference, m, n_ctx, n_batch, err);
    if (status == PLUMB_OK) {
        e->tokens = alloc_array(n_ctx, sizeof *e->tokens);
        e->first_row = calloc(theirs->n_tap + 1, sizeof *e->first_row);
        for (size_t i = 0; e->first_row && i < theirs->n_tap; i++) {
            e->first_row[i + 1] = e->first_row[i] + theirs->taps[i].n_row;
        }
        e->keys = alloc_array((uint64_t)m->plan.max_head * theirs->n_token, sizeof *e->keys);
        e->sums = alloc_array(theirs->n_tap, sizeof *e->sums);
        if (e->first_result != UINT32_MAX) {
            e->logits = alloc_array((uint64_t)n_batch * plan_n_result(&m->plan), sizeof *e->logits);
        }
        if (is_pooled) {
            e->embeddings = alloc_array((uint64_t)n_ctx * p->n_embd, sizeof *e->embeddings);
            e->pooled = alloc_array(model_n_pooled(m, p->pooling.kind), sizeof *e->pooled);
        }
        bool has_own = reserve_own(e, n_ctx), has_pooled = !is_pooled || (e->embeddings && e->pooled);
        bool has_logits = e->logits || e->first_result == UINT32_MAX;
        if (!e->tokens || !e->first_row || !e->keys || !e->sums || !has_own || !has_pooled || !has_logits) {
            status = error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the diagnosis of %u tokens", theirs->n_token);
        }
    }
    if (status == PLUMB_OK) status = find_order(e, err);
    if (status == PLUMB_OK) status = set_tap(e, (struct tap_sink){ on_tap, e }, err);
    if (status != PLUMB_OK) {
        experiment_free(e);
        return status;
    }
    reference_set_force(e->reference, force, e);
    *out = e;
    return PLUMB_OK;
}

void experiment_free(struct experiment *e) {
    if (!e) return;
    experiment_end_mistakes(e);
    reference_free(e->reference);
    /* This uses n_own, not theirs->n_tap, because n_own is 0 if e->own could not be allocated. */
    for (size_t i = 0; i < e->n_own; i++) free(e->own[i].rows);
    free(e->own);
    free(e->tokens);
    free(e->first_row);
    free(e->keys);
    free(e->sums);
    free(e->logits);
    free(e->embeddings);
    free(e->pooled);
    heads_free(&e->permuted);
    free(e);
}

/* The mistakes that are tried in each step, and how they are said.  They are what a formula leaves open to a mistake:
 * each of its constants, inputs and tensors, and each axis of its arrays. */
#include "mistakes/mistake.h"

#include "trace/report.h"
#include "trace/tap_names.h"

#include <math.h>
#include <stdio.h>

/* Steps that engines compute with the same function.  A mistake in it is made in all of them. */
static const id_set together[] = {
    TAP_SET(ATTN_NORM) | TAP_SET(FFN_NORM) | TAP_SET(RESULT_NORM), TAP_SET(QCUR_NORMED) | TAP_SET(KCUR_NORMED),
    TAP_SET(QCUR_ROPE) | TAP_SET(KCUR_ROPE), TAP_SET(KQ_SOFT_MAX) | TAP_SET(KQV_OUT),
    TAP_SET(FFN_INP) | TAP_SET(L_OUT),
};

static bool is_norm_of_layer(enum tap_id id) { return mistake_operation(id) == OP_NORM && id != TAP_RESULT_NORM; }

struct list {
    const struct mistakes *s;
    enum tap_id id;
    int32_t layer;
    void (*try)(void *user, const struct mistake *m);
    void *user;
};

bool mistake_can_be_shared(const struct mistake *m) {
    return m->kind != MISTAKE_INPUT && m->kind != MISTAKE_TENSOR;
}

/* Tries a mistake in the step alone and, from the first step of several that are computed alike, in all of these. */
static void try_one(const struct list *l, struct mistake m) {
    m.layer = m.head = EVERYWHERE;
    m.taps = ID_SET(l->id);
    l->try(l->user, &m);
    for (size_t i = 0; i < sizeof together / sizeof *together && mistake_can_be_shared(&m); i++) {
        bool is_first = (together[i] & m.taps) && !(together[i] & (m.taps - 1));
        if (!is_first) continue;
        m.taps = together[i];
        l->try(l->user, &m);
        return;
    }
}

/* Tries a mistake that depends on how the prompt was split into chunks: in 2, 4, 8... tokens, and not at all. */
static void try_chunks(const struct list *l, struct mistake m) {
    for (uint32_t size = 2; size < l->s->n_prompt && size <= 64; size *= 2) {
        m.chunk = size;
        try_one(l, m);
    }
    m.chunk = l->s->n_prompt;
    if (m.chunk > 0) try_one(l, m);
}

/* Tries the variants first .. end - 1 of a kind. */
static void try_variants(const struct list *l, enum mistake_kind kind, int first, int end) {
    for (int v = first; v < end; v++) try_one(l, (struct mistake){ .kind = kind, .variant = (uint8_t)v });
}

/* Tries a variant of a kind with each of n numbers. */
static void try_each(const struct list *l, enum mistake_kind kind, int variant, const double *numbers, size_t n) {
    for (size_t i = 0; i < n; i++) {
        try_one(l, (struct mistake){ .kind = kind, .variant = (uint8_t)variant, .number = numbers[i] });
    }
}
#define TRY_NUMBERS(l, kind, variant, ...) try_each(l, kind, variant, (const double[]){ __VA_ARGS__ }, \
                                                    sizeof((const double[]){ __VA_ARGS__ }) / sizeof(double))

static void try_orders(const struct list *l, enum axis axis, uint32_t n) {
    for (uint8_t order = 0; order < N_ARRAY_ORDER && n > 1; order++) {
        if (axis == AXIS_TOKENS && order > ARRAY_ZERO_LAST) break;
        bool is_of_blocks = order >= ARRAY_ZERO_LAST_8 && order <= ARRAY_BEFORE_BLOCK;
        bool has_blocks = n > 32 && axis != AXIS_HEADS && (axis != AXIS_ELEMENTS || order < ARRAY_ZERO_BLOCKS);
        if (is_of_blocks && !has_blocks) continue;
        try_one(l, (struct mistake){ .kind = MISTAKE_ORDER, .variant = order, .axis = (uint8_t)axis });
    }
}

static void try_arrays(const struct list *l) {
    const struct mistakes *s = l->s;
    uint32_t n_head = s->n_head[l->id], n = s->width[l->id];
    double root = sqrt(s->model->plan.n_embd);
    TRY_NUMBERS(l, MISTAKE_SCALE, 0, 0, 2, 0.5, -1, 3, 4, 0.25, 10, 0.1, 1.1, 0.9, 1.5, root, 1 / root);
    if (l->id == TAP_KQ_SOFT_MAX) return;   /* its elements are keys: see try_attention */
    try_chunks(l, (struct mistake){ .kind = MISTAKE_ADDED_UP, .axis = AXIS_TOKENS });
    if (n_head > 1) try_one(l, (struct mistake){ .kind = MISTAKE_ADDED_UP, .axis = AXIS_HEADS });
    try_orders(l, AXIS_ELEMENTS, n);
    try_orders(l, AXIS_TOKENS, s->n_prompt);
    if (n_head > 1) try_orders(l, AXIS_HEADS, n_head);
    for (uint8_t layout = 0; layout < N_LAYOUT; layout++) {
        bool has_heads = layout != LAYOUT_ELEMENT_TOKEN && layout != LAYOUT_TOKEN_ELEMENT;
        if (has_heads && n_head == 1) continue;
        try_one(l, (struct mistake){ .kind = MISTAKE_LAYOUT, .variant = layout });
    }
}

/* The other activations of the layer that have the width of input number `at`. */
static void try_inputs(const struct list *l, uint8_t at, uint32_t width) {
    const struct mistakes *s = l->s;
    static const enum tap_id of_layer[] = {
        TAP_EMBD, TAP_L_OUT, TAP_ATTN_NORM, TAP_QCUR, TAP_KCUR, TAP_VCUR, TAP_QCUR_NORMED, TAP_KCUR_NORMED,
        TAP_QCUR_ROPE, TAP_KCUR_ROPE, TAP_KQV_OUT, TAP_ATTN_OUT, TAP_FFN_INP, TAP_FFN_NORM, TAP_FFN_GATE, TAP_FFN_UP,
        TAP_FFN_SWIGLU, TAP_FFN_OUT,
    };
    for (size_t i = 0; i < sizeof of_layer / sizeof *of_layer; i++) {
        enum tap_id input = of_layer[i];
        if (s->n_head[input] * s->width[input] != width) continue;
        try_one(l, (struct mistake){ .kind = MISTAKE_INPUT, .at = at, .input = input });
    }
}

id_set mistake_taps(enum weight_id weight) {
    id_set taps = 0;
    for (uint32_t id = 0; id < TAP_COUNT; id++) {
        bool has = tap_spec((enum tap_id)id)->in_layer && mistake_weight((enum tap_id)id) == weight;
        if (has) taps |= ID_SET(id);
    }
    return taps;
}

static void try_tensors(const struct list *l) {
    const struct model *model = l->s->model;
    enum weight_id own = mistake_weight(l->id);
    const struct weight *w = model->layers[l->layer].w[own].w;
    if (!w) return;
    for (uint32_t id = 0; id < W_LAYER_COUNT; id++) {
        const struct weight *other = model->layers[l->layer].w[id].w;
        bool fits = other && other->n_in == w->n_in && other->n_out == w->n_out && other->n_matrix <= 1;
        if (!fits || id == own) continue;
        struct mistake m = { .kind = MISTAKE_TENSOR, .weight = (enum weight_id)id, .input = l->id, .from_layer = -1 };
        try_one(l, m);
        m.taps = ID_SET(l->id) | mistake_taps((enum weight_id)id);   /* the two are exchanged */
        m.layer = m.head = EVERYWHERE;
        if (m.taps & (m.taps - 1) && (enum weight_id)id > own) l->try(l->user, &m);
    }
    for (uint32_t il = 0; il < model->plan.n_layer; il++) {
        for (uint32_t id = 0; id < W_LAYER_COUNT; id++) {
            const struct weight *other = model->layers[il].w[id].w;
            bool fits = other && other->n_in == w->n_in && other->n_out == w->n_out && other->n_matrix <= 1;
            if (!fits || il == (uint32_t)l->layer) continue;
            try_one(l, (struct mistake){ .kind = MISTAKE_TENSOR, .weight = (enum weight_id)id,
                                         .from_layer = (int32_t)il });
        }
    }
}

static void try_rope(const struct list *l) {
    try_variants(l, MISTAKE_ROPE, ROPE_OTHER_PAIRS, ROPE_OFFSET);
    TRY_NUMBERS(l, MISTAKE_ROPE, ROPE_OFFSET, 1, -1, 2, -2, 5, 10);
    TRY_NUMBERS(l, MISTAKE_ROPE, ROPE_SCALED, 0.5, 0.25, 0.125, 2, 4, 8);
    TRY_NUMBERS(l, MISTAKE_ROPE, ROPE_BASE, 10, 100, 500, 1000, 5000, 10000, 20000, 50000, 100000, 500000, 1e6, 1e7);
    TRY_NUMBERS(l, MISTAKE_ROPE, ROPE_PART, 0.5, 0.25);
    for (int k = 1; k <= 2; k++) {
        try_one(l, (struct mistake){ .kind = MISTAKE_ROPE, .variant = ROPE_PART, .number = 0.5 / k, .other = 1 });
    }
    TRY_NUMBERS(l, MISTAKE_ROPE, ROPE_EXPONENT, 0.5, 2, -1);
    try_variants(l, MISTAKE_ROPE, ROPE_DEGREES, ROPE_SECOND_PART);
    TRY_NUMBERS(l, MISTAKE_ROPE, ROPE_SECOND_PART, 0.5);
    try_variants(l, MISTAKE_ROPE, ROPE_FROZEN, N_ROPE_MISTAKE);
    try_chunks(l, (struct mistake){ .kind = MISTAKE_ROPE, .variant = ROPE_CHUNK });
    try_chunks(l, (struct mistake){ .kind = MISTAKE_ROPE, .variant = ROPE_CHUNK_SAME });
}

static void try_attention(const struct list *l) {
    const struct mistakes *s = l->s;
    const struct attn_plan *a = &s->model->plan.layers[l->layer].attn;
    double root = sqrt(a->k_dim), width = sqrt(s->model->plan.n_embd);
    TRY_NUMBERS(l, MISTAKE_SCORES, SCORES_SCALE, root, 1 / root, root / width, 2, 0.5, sqrt(2), sqrt(0.5), log(2),
                1 / log(2), -1, 0, root / a->k_dim * 2, 0.1 * root, 10, 0.1, 1.1, 0.9, sqrt(a->n_head),
                1 / sqrt(a->n_head));
    TRY_NUMBERS(l, MISTAKE_SCORES, SCORES_SOFTCAP, 50, 30, 20, 10, 5, 2, 1);
    TRY_NUMBERS(l, MISTAKE_SCORES, SCORES_FUTURE, 1, 2, -1, -2, UINT32_MAX);
    try_variants(l, MISTAKE_SCORES, SCORES_MASK_LATE, SCORES_TWO_HIDDEN);
    static const double least[] = { -2, -4, -5, -8, -10, -16, -20 };
    for (size_t i = 0; i < sizeof least / sizeof *least; i++) {
        try_one(l, (struct mistake){ .kind = MISTAKE_SCORES, .variant = SCORES_CLAMPED, .number = least[i] });
        if (i > 4) continue;
        try_chunks(l, (struct mistake){ .kind = MISTAKE_SCORES, .variant = SCORES_HIDDEN_WEAKLY, .number = least[i] });
        try_one(l, (struct mistake){ .kind = MISTAKE_SCORES, .variant = SCORES_PADDED, .number = 4 << i });
    }
    try_chunks(l, (struct mistake){ .kind = MISTAKE_SCORES, .variant = SCORES_HIDDEN_WEAKLY, .number = 0, .other = 1 });
    for (uint8_t v = SCORES_CHUNK_FUTURE; v <= SCORES_CHUNK_FROM_0; v++) {
        try_chunks(l, (struct mistake){ .kind = MISTAKE_SCORES, .variant = v });
    }
    bool has_sinks = s->model->layers[l->layer].w[W_ATTN_SINKS].w != NULL;
    if (has_sinks) try_variants(l, MISTAKE_SCORES, SCORES_SINK_SCALED, N_SCORES_MISTAKE);
    for (int future = -2; future < 0; future++) {   /* the first tokens see no key: all zeros */
        try_one(l, (struct mistake){ .kind = MISTAKE_SCORES, .variant = SCORES_FUTURE, .number = future, .other = 1 });
    }
    for (uint32_t i = 0; i < s->n_token && i < 8; i++) {
        try_one(l, (struct mistake){ .kind = MISTAKE_SCORES, .variant = SCORES_HIDDEN, .number = i });
        for (uint32_t k = i + 1; k < s->n_token && k < 8; k++) {
            try_one(l, (struct mistake){ .kind = MISTAKE_SCORES, .variant = SCORES_TWO_HIDDEN, .number = i,
                                         .other = k });
        }
        if (i > 0) try_one(l, (struct mistake){ .kind = MISTAKE_SCORES, .variant = SCORES_WINDOW, .number = i });
    }
}

/* K is read by kq_soft_max, V by kqv_out. */
static void try_cache(const struct list *l) {
    bool is_k = l->id == TAP_KQ_SOFT_MAX;
    const struct attn_plan *a = &l->s->model->plan.layers[l->layer].attn;
    if (a->n_head > 1) try_variants(l, MISTAKE_HEADS, 0, N_KV_RULE);
    for (uint8_t v = 0; v < CACHE_CHUNK_CLEARED; v++) {
        try_one(l, (struct mistake){ .kind = MISTAKE_CACHE, .variant = v });
        bool is_order = v == CACHE_ROWS_BY_HEAD || v == CACHE_ROWS_BY_SLOT;
        if (is_order) try_chunks(l, (struct mistake){ .kind = MISTAKE_CACHE, .variant = v });
    }
    try_chunks(l, (struct mistake){ .kind = MISTAKE_CACHE, .variant = CACHE_CHUNK_CLEARED });
    try_chunks(l, (struct mistake){ .kind = MISTAKE_CACHE, .variant = CACHE_CHUNK_FROM_0 });
    for (uint8_t v = 0; v < N_VALUES_MISTAKE && !is_k; v++) {
        for (uint32_t size = 1; size <= 64; size = size < 4 ? 4 : 2 * size) {
            bool has_tile = v != VALUES_NOT_DIVIDED || size == 1;
            if (has_tile && size < l->s->n_token) {
                try_one(l, (struct mistake){ .kind = MISTAKE_VALUES, .variant = v, .number = size });
            }
        }
    }
    const enum tap_id rows[] = { TAP_KCUR_ROPE, TAP_KCUR, TAP_VCUR };
    for (int before = 0; before < 2; before++) {
        for (size_t i = 0; i < 3; i++) {
            bool is_right = !before && rows[i] == (is_k ? TAP_KCUR_ROPE : TAP_VCUR);
            if (is_right || (before && l->layer == 0)) continue;
            struct mistake m = { .kind = MISTAKE_INPUT, .at = 1, .input = rows[i], .is_before = before };
            try_one(l, m);
            for (m.variant = 0; m.variant < N_CHUNK_PART; m.variant++) try_chunks(l, m);
        }
    }
}

static void try_sums(const struct list *l) {
    static const double pairs[][2] = { { 1, 0 }, { 0, 1 }, { 1, 2 }, { 2, 1 }, { 1, -1 }, { -1, 1 }, { 0.5, 1 },
                                       { 1, 0.5 }, { 0.5, 0.5 }, { 2, 2 }, { 0, 2 }, { 2, 0 }, { 1, 3 }, { 3, 1 } };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        try_one(l, (struct mistake){ .kind = MISTAKE_SUM, .number = pairs[i][0], .other = pairs[i][1],
                                     .weight = W_COUNT });
    }
    static const enum weight_id weights[] = { W_ATTN_POST_NORM, W_FFN_POST_NORM, W_FFN_NORM, W_ATTN_NORM };
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        try_one(l, (struct mistake){ .kind = MISTAKE_SUM, .number = 1, .other = 1, .weight = weights[i] });
    }
}

static void try_biases(const struct list *l) {
    static const double times[] = { 0, 2, -1, 0.5, 0.1 };
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        try_one(l, (struct mistake){ .kind = MISTAKE_BIAS, .number = times[i], .weight = W_COUNT });
    }
    static const enum weight_id others[] = { W_ATTN_Q, W_ATTN_K, W_ATTN_V };
    struct mistake m = { .kind = MISTAKE_BIAS, .number = 1 };
    for (size_t i = 0; i < 3; i++) {
        m.weight = others[i];
        try_one(l, m);
    }
    m.weight = W_COUNT, m.variant = 1;
    if (l->s->n_head[l->id] > 1) try_one(l, m);
}

/* Q, K and V as rows of one matrix, and norms of them. */
static void try_fused(const struct list *l) {
    try_variants(l, MISTAKE_FUSED, FUSED_READ_BY_GROUP, FUSED_ALTERNATE);
    static const enum weight_id weights[] = { W_COUNT, W_ATTN_Q_NORM, W_ATTN_K_NORM };
    for (size_t i = 0; i < 3; i++) {
        for (uint8_t over_row = 0; over_row < 2; over_row++) {
            try_one(l, (struct mistake){ .kind = MISTAKE_NORMED, .weight = weights[i], .variant = over_row });
        }
    }
}

void mistakes_list(const struct mistakes *s, enum tap_id id, int32_t layer,
                   void (*try)(void *user, const struct mistake *m), void *user) {
    struct list l = { s, id, layer, try, user };
    enum operation operation = mistake_operation(id);
    uint32_t width = s->n_head[id] * s->width[id];
    bool is_known = s->supported >> id & 1;
    try_arrays(&l);
    if (!is_known) return;
    if (operation == OP_NORM) {
        try_one(&l, (struct mistake){ .kind = MISTAKE_SKIP });
        try_variants(&l, MISTAKE_NORM, 0, N_NORM_MISTAKE);
        TRY_NUMBERS(&l, MISTAKE_EPS, 0, 0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 1e-8, 1e-12);
        try_chunks(&l, (struct mistake){ .kind = MISTAKE_NORM, .variant = NORM_ADDED_UP });
        for (uint32_t n = 4; n <= 1024; n *= 2) {
            struct mistake m = { .kind = MISTAKE_NORM, .variant = NORM_FIRST_OF_ALL, .number = n };
            try_one(&l, m);
            m.variant = NORM_WITHOUT_LAST;
            if (n <= 32) try_one(&l, m);
        }
    }
    if (is_norm_of_layer(id)) {
        const struct weight *w = s->model->layers[layer].w[mistake_weight(id)].w;
        try_orders(&l, AXIS_WEIGHT, w ? w->n_in : 1);
        try_inputs(&l, 0, width);
        try_tensors(&l);
    }
    if (operation == OP_LINEAR) {
        const struct affine *of = &s->model->layers[layer].w[mistake_weight(id)];
        try_orders(&l, AXIS_INPUT, of->w->n_in);
        for (uint8_t order = ARRAY_ALL_FIRST; order <= ARRAY_PAIRS_SAME; order++) {   /* the others: see AXIS_INPUT */
            try_one(&l, (struct mistake){ .kind = MISTAKE_ORDER, .variant = order, .axis = AXIS_COLUMNS });
        }
        if (of->b || s->n_head[id] > 1) try_orders(&l, AXIS_WEIGHT, of->w->n_out);
        try_one(&l, (struct mistake){ .kind = MISTAKE_TRANSPOSED });
        if (of->b) try_biases(&l);
        bool is_ffn = id == TAP_FFN_GATE || id == TAP_FFN_UP;
        if (id == TAP_QCUR || id == TAP_KCUR || id == TAP_VCUR) try_fused(&l);
        if (is_ffn) try_variants(&l, MISTAKE_FUSED, FUSED_ALTERNATE, N_FUSED_MISTAKE);
        try_inputs(&l, 0, of->w->n_in);
        try_tensors(&l);
    }
    if (operation == OP_ROPE) {
        try_one(&l, (struct mistake){ .kind = MISTAKE_SKIP });
        try_inputs(&l, 0, width);
        try_rope(&l);
        enum weight_id norm = id == TAP_QCUR_ROPE ? W_ATTN_Q_NORM : W_ATTN_K_NORM;
        try_one(&l, (struct mistake){ .kind = MISTAKE_NORMED, .weight = norm });
    }
    if (id == TAP_KQ_SOFT_MAX) {
        try_inputs(&l, 0, s->n_head[TAP_QCUR_ROPE] * s->width[TAP_QCUR_ROPE]);
        try_attention(&l);
    }
    if (id == TAP_KQ_SOFT_MAX || id == TAP_KQV_OUT) try_cache(&l);
    for (uint8_t v = 0; v < N_GATE_MISTAKE && operation == OP_GATE; v++) {
        static const double limits[] = { 0, 1, 2, 3, 5, 6, 7, 8, 10, 20 };
        bool has_limit = v == GLU_EXP_CLAMPED || v == GLU_LIMITED || v == GLU_GATE_LIMITED;
        if (v == GLU_GELU_ROOT || v == GLU_GELU_CUBE) continue;   /* their numbers are fitted, see partial.c */
        for (size_t i = 0; i < (has_limit ? sizeof limits / sizeof *limits : 1); i++) {
            try_one(&l, (struct mistake){ .kind = MISTAKE_GATE, .variant = v, .number = limits[i] });
        }
    }
    if (id == TAP_FFN_SWIGLU) try_inputs(&l, 0, width);
    if (id == TAP_FFN_SWIGLU) try_inputs(&l, 1, width);
    if (operation == OP_SUM) {
        try_sums(&l);
        try_inputs(&l, 0, width);
        try_inputs(&l, 1, width);
    }
    if (id == TAP_EMBD) TRY_NUMBERS(&l, MISTAKE_TOKEN, TOKEN_FURTHER, -2, -1, 1, 2);
    if (id == TAP_EMBD) try_variants(&l, MISTAKE_TOKEN, TOKEN_NEXT_ID, N_TOKEN_MISTAKE);
}

/* ---- sentences --------------------------------------------------------------------------------------------------- */

static const char *const order_texts[N_ARRAY_ORDER] = {
    [ARRAY_REVERSED] = "%s in reverse order",
    [ARRAY_NEXT] = "%s shifted by one: each is the next one",
    [ARRAY_BEFORE] = "%s shifted by one: each is the one before it",
    [ARRAY_HALVES] = "the two halves of %s exchanged",
    [ARRAY_NEIGHBOURS] = "%s exchanged with their neighbours",
    [ARRAY_FIRST_TWO] = "the first two of %s exchanged",
    [ARRAY_ENDS] = "the first and the last of %s exchanged",
    [ARRAY_EVENS_FIRST] = "%s in another order: first the even ones, then the odd ones",
    [ARRAY_INTERLEAVED] = "%s in another order: those of the two halves in turn",
    [ARRAY_ALL_FIRST] = "the first of %s repeated in place of all",
    [ARRAY_ALL_LAST] = "the last of %s in place of all",
    [ARRAY_HALF_TWICE] = "the first half of %s twice",
    [ARRAY_PAIRS_SAME] = "each second of %s the same as the one before it, the first of the pair repeated",
    [ARRAY_ZERO_FIRST] = "the first of %s zero",
    [ARRAY_ZERO_LAST] = "the last of %s zero",
    [ARRAY_ZERO_QUARTER] = "the last quarter of %s zero",
    [ARRAY_ZERO_HALF] = "the last half of %s zero",
    [ARRAY_ZERO_FOURTHS] = "every fourth of %s zero",
    [ARRAY_ZERO_ODD] = "every second of %s zero",
    [ARRAY_ZERO_THIRD] = "the last third of %s zero",
    [ARRAY_ZERO_LAST_8] = "the last 8 of %s zero",
    [ARRAY_ZERO_LAST_16] = "the last 16 of %s zero",
    [ARRAY_ZERO_LAST_32] = "the last 32 of %s zero",
    [ARRAY_ZERO_BLOCKS] = "every second block of 32 of %s zero",
    [ARRAY_NEXT_BLOCK] = "%s shifted by a block of 32: each is the one 32 places further on",
    [ARRAY_BEFORE_BLOCK] = "%s shifted by a block of 32: each is the one 32 places before it",
    [ARRAY_FOURTHS_SAME] = "every fourth of %s the same as the one before it, a repeated row",
};

static const char *const rope_texts[N_ROPE_MISTAKE] = {
    [ROPE_OTHER_PAIRS] = "is rotated in the other kind of pairs",
    [ROPE_BACKWARD] = "is rotated in the other direction",
    [ROPE_EXCHANGED] = "is rotated with sine and cosine exchanged",
    [ROPE_NO_SINE] = "is rotated without the sine",
    [ROPE_NO_COSINE] = "is rotated without the cosine",
    [ROPE_TWICE] = "is rotated twice",
    [ROPE_IN_PLACE] = ("is rotated in place: the second element of a pair is computed from the first after it was "
                       "rotated"),
    [ROPE_OFFSET] = "is rotated for a position shifted by %g",
    [ROPE_SCALED] = "is rotated by %g times the right angles, as if positions were scaled",
    [ROPE_BASE] = "is rotated with the base %g",
    [ROPE_PART] = "has only a part of its elements rotated: %g of them",
    [ROPE_EXPONENT] = "is rotated with %g times the right exponents of the frequencies",
    [ROPE_DEGREES] = "is rotated by angles in degrees that are taken for radians",
    [ROPE_BATCH] = "is rotated for the position in the batch, not in the text",
    [ROPE_SAME_POSITION] = "is rotated for the position of the first token of the batch",
    [ROPE_SECOND_PART] = "has only the last part of its elements rotated: %g of them",
    [ROPE_CHUNK] = "is rotated for the position in the chunk, not in the text",
    [ROPE_CHUNK_SAME] = "is rotated for the position of the first token of the chunk",
    [ROPE_FROZEN] = "is rotated for the position of the first decoded token, in all tokens after the prompt",
    [ROPE_BY_HEAD] = "is rotated for the position plus the number of the head",
    [ROPE_FACTORS_MULTIPLIED] = "is rotated with frequencies that are multiplied by the file's factors, not divided",
};

static const char *const scores_texts[N_SCORES_MISTAKE] = {
    [SCORES_SCALE] = "is the softmax of %g times the right scores: their scale is wrong",
    [SCORES_SOFTCAP] = "is the softmax of scores with a softcap of %g (tanh)",
    [SCORES_FUTURE] = "has a mask that ends %g keys too late",
    [SCORES_HIDDEN] = "does not see the key of token %g",
    [SCORES_TWO_HIDDEN] = "does not see the keys of tokens %g and %g",
    [SCORES_WINDOW] = "sees only the last %g keys, as if there were a window",
    [SCORES_MASK_LATE] = "is masked after the softmax, so that its sum is too small",
    [SCORES_ZEROS] = "has hidden keys that count as scores of 0 in the sum",
    [SCORES_OVER_HEADS] = "is a softmax over the heads, another axis",
    [SCORES_OVER_TOKENS] = "is a softmax over the tokens of the batch, another axis",
    [SCORES_NO_SOFTMAX] = "is the scores themselves, without the softmax",
    [SCORES_CLAMPED] = "has exponentials whose arguments are clamped: exp of at least %g",
    [SCORES_PADDED] = "has sums in tiles of %g keys, where those that the last tile lacks count as scores of 0",
    [SCORES_HIDDEN_WEAKLY] = "has hidden keys in its sum: the mask adds only %g to their scores",
    [SCORES_CHUNK_FUTURE] = "has no causal mask in a chunk: it sees the later tokens of its own chunk",
    [SCORES_CHUNK_ALONE] = "sees only the keys of its own chunk",
    [SCORES_CHUNK_FROM_0] = "has a mask that counts keys from 0 in a chunk, not from the chunk's position",
    [SCORES_SINK_SCALED] = "has attention sinks that are multiplied by the scale of the scores",
    [SCORES_SINK_PLAIN] = "has attention sinks that are added to the sum as they are, without exp",
    [SCORES_SINK_BEFORE] = "has the attention sink of the head before in each head",
    [SCORES_SINK_NEXT] = "has the attention sink of the next head in each head",
};

static const char *const heads_texts[N_KV_RULE] = {
    [KV_MODULO] = "has heads that read the heads of %s in another order: head h reads head h %% %u",
    [KV_REVERSED] = "has heads that read the heads of %s in reverse order",
    [KV_NEXT] = "has heads that read the next head of %s",
    [KV_FIRST] = "has all heads read the first head of %s",
    [KV_LAST] = "has all heads read the last head of %s",
    [KV_EARLY] = "has groups of heads that begin one head too early: head h reads head (h + 1) / group of %s",
};

static const char *const cache_texts[N_CACHE_MISTAKE] = {
    [CACHE_NOT_DECODED] = "reads zeros as the %s of decoded tokens: they are not stored in the cache",
    [CACHE_EARLY] = "reads the %s of decoded tokens that are stored one slot too early",
    [CACHE_LATE] = "reads the %s of decoded tokens that are stored one slot too late",
    [CACHE_ONE_SLOT] = "reads the %s of decoded tokens that all use the last slot of the prompt",
    [CACHE_PROMPT_REVERSED] = "reads the %s of the prompt's tokens from the cache in reverse order",
    [CACHE_ONLY_OWN] = "reads only the %s of the own token in the cache",
    [CACHE_ROWS_BY_HEAD] = "has rows of %s, stored as (token, head), read as (head, token)",
    [CACHE_ROWS_BY_SLOT] = "has rows of %s, stored as (head, token), read as (token, head)",
    [CACHE_EXCHANGED] = "reads K and V of the cache exchanged",
    [CACHE_REPEATED] = "reads the %s of token j / group for token j: they are repeated along the tokens, not the heads",
    [CACHE_CHUNK_CLEARED] = "reads zeros as the %s of the chunks of the prompt before its own",
    [CACHE_CHUNK_FROM_0] = "reads the %s of chunks that are all stored from slot 0 on",
};

static const char *const values_texts[N_VALUES_MISTAKE] = {
    [VALUES_NOT_RESCALED] = "has sums that online softmax does not rescale when a later tile has a larger maximum",
    [VALUES_SUM_NOT_RESCALED] = "has a sum of exponentials that online softmax does not rescale to a larger maximum",
    [VALUES_ONLY_SUM_RESCALED] = "has a sum of values that online softmax does not rescale to a larger maximum",
    [VALUES_RESCALED_INVERSELY] = "has sums that online softmax rescales by the inverse of the right factor",
    [VALUES_NOT_DIVIDED] = "is not divided by the sum of the exponentials",
    [VALUES_WITHOUT_TAIL] = "has sums that leave out the last, incomplete tile of keys",
};

static const char *const fused_texts[N_FUSED_MISTAKE] = {
    [FUSED_READ_BY_GROUP] = "has rows of the matrices of Q, K and V that are read by groups of heads, but stored one "
                            "matrix after the other",
    [FUSED_STORED_BY_GROUP] = "has rows of the matrices of Q, K and V that are stored by groups of heads, but read one "
                              "matrix after the other",
    [FUSED_ALTERNATE] = "has rows of the matrices of gate and up that are taken to alternate",
    [FUSED_IN_HALVES] = "has rows of the matrices of gate and up that alternate, but are read as two halves",
};

static const char *const token_texts[N_TOKEN_MISTAKE] = {
    [TOKEN_NEXT_ID] = "has the rows of the tokens with the next ids",
    [TOKEN_ID_BEFORE] = "has the rows of the tokens with the ids before",
    [TOKEN_LOW_BYTE] = "has the rows of ids of which only the low byte is left",
    [TOKEN_HALF] = "has the rows of ids that begin anew at half of the vocabulary",
    [TOKEN_ROW_EARLY] = "has rows that begin half a row too early",
    [TOKEN_ROW_LATE] = "has rows that begin half a row too late",
};

#pragma GCC diagnostic ignored "-Wformat-nonliteral"

void mistake_say(const struct mistakes *s, const struct mistake *m, int32_t layer, char *text, size_t size) {
    size_t n = 0;
    struct tap_text name;
    enum tap_id first = TAP_EMBD;
    while (!(m->taps >> first & 1)) first++;
    bool is_k = first == TAP_KQ_SOFT_MAX;
    const char *cached = m->taps & TAP_SET(KQ_SOFT_MAX) && m->taps & TAP_SET(KQV_OUT) ? "K and V" : is_k ? "K" : "V";
    char what[40];
    text[0] = '\0';
    switch (m->kind) {
    case MISTAKE_ORDER: {
        static const char *const axes[] = { "its elements", "its heads", "the tokens of a batch",
                                            "the elements of its input", "the columns of its matrix",
                                            "the rows of its matrix" };
        bool is_norm = m->axis == AXIS_WEIGHT && is_norm_of_layer(first);
        bool by_head = m->axis == AXIS_ELEMENTS && s->n_head[first] > 1;
        snprintf(what, sizeof what, "%s", is_norm ? "the elements of its weight" : by_head ? "the elements of each head"
                                          : axes[m->axis]);
        report_append(text, size, &n, "has ");
        report_append(text, size, &n, order_texts[m->variant], what);
        break;
    }
    case MISTAKE_SCALE:
        if (m->number == 0) report_append(text, size, &n, "is zero: it is left out");
        else if (m->number == -1) report_append(text, size, &n, "has the wrong sign: it is -1 times what it should be");
        else report_append(text, size, &n, "is %.6g times what it should be", m->number);
        break;
    case MISTAKE_LAYOUT: {
        static const char *const axes[N_LAYOUT][2] = {
            { "element, head", "head, element" }, { "head, element", "element, head" },
            { "element, token", "token, element" }, { "token, element", "element, token" },
            { "token, head, element", "head, token, element" }, { "head, token, element", "token, head, element" },
        };
        report_append(text, size, &n, "has its elements in a transposed order: stored as (%s), read as (%s)",
                      axes[m->variant][0], axes[m->variant][1]);
        break;
    }
    case MISTAKE_SKIP: report_append(text, size, &n, "is its input: the step is left out"); break;
    case MISTAKE_LEFT_OUT:
        report_append(text, size, &n, "is computed from %s instead of its input: layer %d is left out",
                      tap_show(&name, m->layer > 0 ? TAP_L_OUT : TAP_EMBD, m->layer - 1), (int)m->layer);
        break;
    case MISTAKE_INPUT: {
        bool is_cache = m->at == 1 && (first == TAP_KQ_SOFT_MAX || first == TAP_KQV_OUT);
        bool is_residual = m->at == 1 && (first == TAP_FFN_INP || first == TAP_L_OUT);
        bool is_later = m->input != TAP_L_OUT && tap_place(s->order, m->input, 0) >= tap_place(s->order, first, 0)
                     && m->input != TAP_EMBD;
        bool is_before = m->is_before || is_later;
        int32_t of = is_before ? layer - 1 : m->input == TAP_L_OUT ? layer - 1 : m->input == TAP_EMBD ? -1 : layer;
        enum tap_id input = m->input == TAP_L_OUT && layer == 0 ? TAP_EMBD : m->input;
        report_append(text, size, &n, "is computed from %s instead of %s%s",
                      tap_show(&name, input, input == TAP_EMBD ? -1 : of),
                      is_cache ? is_k ? "K" : "V" : is_residual ? "the residual" : m->at == 1 ? "its second input"
                               : "its input", is_before ? ", the one of the layer before" : "");
        if (m->chunk > 0) {
            const char *which = m->variant == CHUNK_PAST ? "before" : "of";
            report_append(text, size, &n, ", for the tokens %s its own chunk", which);
        }
        break;
    }
    case MISTAKE_TENSOR: {
        bool is_exchanged = m->taps & (m->taps - 1), is_second = is_exchanged && mistake_weight(first) == m->weight;
        enum weight_id other = is_second ? mistake_weight(m->input) : m->weight;
        const struct weight *w = s->model->layers[m->from_layer >= 0 ? m->from_layer : layer].w[other].w;
        const struct weight *own = s->model->layers[layer].w[mistake_weight(first)].w;
        report_append(text, size, &n, "has %s %s instead of %s", is_norm_of_layer(first) ? "the weight" : "the matrix",
                      w ? w->name : "?", own ? own->name : "?");
        if (is_exchanged) {
            report_append(text, size, &n, ": the two are exchanged");
            return;
        }
        break;
    }
    case MISTAKE_LAYER: {
        static const char *const maps[N_LAYER_MAP] = {
            "layer %u has the tensors of layer %u", "layers %u and %u are exchanged",
            "all layers have the tensors of one (layer %u: those of %u)",
            "each layer has the tensors of the next one (layer %u: those of %u)",
            "each layer has the tensors of the one before (layer %u: those of %u)",
            "the layers are in reverse order (layer %u: those of %u)",
            "the layers are sorted as text (layer %u: those of %u)",
        };
        uint32_t from = mistake_layer(m, (uint32_t)layer, s->model->plan.n_layer);
        const struct weight *w = s->model->layers[from].w[mistake_weight(first)].w;
        report_append(text, size, &n, "is computed with %s: ", w ? w->name : "another tensor");
        report_append(text, size, &n, maps[m->variant], (uint32_t)layer, from);
        return;
    }
    case MISTAKE_TRANSPOSED:
        report_append(text, size, &n, "has its matrix read transposed: its dimensions are exchanged");
        break;
    case MISTAKE_BIAS:
        if (m->weight != W_COUNT) {
            const struct weight *b = s->model->layers[layer].w[m->weight].b;
            report_append(text, size, &n, "has the bias %s instead of its own", b ? b->name : "?");
        } else if (m->variant) {
            report_append(text, size, &n, "has the bias of its first head in all heads");
        } else if (m->number == 0 || m->number == 2) {
            report_append(text, size, &n, m->number == 0 ? "lacks its bias" : "has its bias added twice");
        } else {
            report_append(text, size, &n, "has its bias times %g", m->number);
        }
        break;
    case MISTAKE_FUSED: report_append(text, size, &n, "%s", fused_texts[m->variant]); break;
    case MISTAKE_NORMED: {
        const struct weight *w = m->weight == W_COUNT ? NULL : s->model->layers[layer].w[m->weight].w;
        bool is_roped = first == TAP_QCUR_ROPE || first == TAP_KCUR_ROPE;
        report_append(text, size, &n, "is normalized over each %s%s, with %s%s", m->variant ? "row" : "head", is_roped
                      ? " after RoPE, not before it" : "", w ? "the weight " : "no weight", w ? w->name : "");
        break;
    }
    case MISTAKE_ADDED_UP:
        report_append(text, size, &n, "has sums that are not cleared between %s: each is added to those before",
                      m->axis == AXIS_HEADS ? "heads" : "tokens");
        break;
    case MISTAKE_VALUES: report_append(text, size, &n, "%s", values_texts[m->variant]); break;
    case MISTAKE_NORM: report_append(text, size, &n, mistake_norms[m->variant].text, m->number); break;
    case MISTAKE_EPS: report_append(text, size, &n, "is the norm with an eps of %g", m->number); break;
    case MISTAKE_ROPE: report_append(text, size, &n, rope_texts[m->variant], m->number); break;
    case MISTAKE_SCORES:
        if (m->variant == SCORES_FUTURE && m->number < 0) {
            report_append(text, size, &n, "has a mask that ends %g keys too early", -m->number);
        } else if (m->variant == SCORES_FUTURE && m->number > 100) {
            report_append(text, size, &n, "has no causal mask: it sees all keys of the batch");
        } else {
            report_append(text, size, &n, scores_texts[m->variant], m->number, m->other);
        }
        break;
    case MISTAKE_HEADS:
        report_append(text, size, &n, heads_texts[m->variant],
                      cached, s->model->plan.layers[layer < 0 ? 0 : layer].attn.n_head_kv);
        break;
    case MISTAKE_CACHE: report_append(text, size, &n, cache_texts[m->variant], cached); break;
    case MISTAKE_GATE: report_append(text, size, &n, mistake_gates[m->variant].text, m->number, m->number); break;
    case MISTAKE_SUM: {
        char factors[2][32] = { "", "" };
        if (m->number != 1) snprintf(factors[0], sizeof factors[0], "%g * ", m->number);
        if (m->other != 1) snprintf(factors[1], sizeof factors[1], "%g * ", m->other);
        const char *sub = first == TAP_FFN_INP ? "attn_out" : "ffn_out", *res = first == TAP_FFN_INP ? "its input" :
                          "ffn_inp";
        if (m->other == 0) report_append(text, size, &n, "is %s%s: the residual is missing", factors[0], sub);
        else if (m->number == 0) report_append(text, size, &n, "is %s%s: %s is not added", factors[1], res, sub);
        else report_append(text, size, &n, "is %s%s%s + %s%s%s", m->weight == W_COUNT ? "" : "the norm of ", factors[0],
                           sub, factors[1], res, m->weight == W_COUNT ? "" : ": the norm comes after the residual");
        break;
    }
    case MISTAKE_TOKEN:
        if (m->variant != TOKEN_FURTHER) report_append(text, size, &n, "%s", token_texts[m->variant]);
        else report_append(text, size, &n, "is that of the token %g places %s", fabs(m->number),
                      m->number < 0 ? "before" : "further on");
        break;
    default: break;
    }
    if (m->chunk > 0 && m->chunk < s->n_prompt) report_append(text, size, &n, " (chunks of %u tokens)", m->chunk);
    id_set others = m->taps & ~ID_SET(first) & ~TAP_SET(RESULT_NORM);
    for (uint32_t id = 0; id < TAP_COUNT; id++) {
        if (others >> id & 1) report_append(text, size, &n, ", and so is %s", tap_spec((enum tap_id)id)->name);
    }
}

void mistake_where(const struct mistake *m, char *text, size_t size) {
    static const char *const tokens[N_TOKEN_SCOPE] = {
        "", "tokens that were decoded one by one", "tokens of the prompt", "token 0", "the last token",
    };
    size_t n = 0;
    text[0] = '\0';
    if (m->kind == MISTAKE_LEFT_OUT || m->kind == MISTAKE_LAYER) return;   /* the sentence says it */
    if (m->layer == EVERYWHERE && m->head == EVERYWHERE && m->tokens == TOKENS_ALL) return;
    const char *between = "only in ";
    if (m->head != EVERYWHERE) report_append(text, size, &n, "%shead %d", between, (int)m->head), between = ", ";
    if (m->tokens != TOKENS_ALL) report_append(text, size, &n, "%s%s", between, tokens[m->tokens]), between = ", ";
    if (m->layer != EVERYWHERE) report_append(text, size, &n, "%slayer %d", between, (int)m->layer);
}

/* The mistakes that are tried in each step, and how they are said.  They are what a formula leaves open to a mistake:
 * each of its constants, inputs and tensors, and each axis of its arrays. */
#include "mistakes/mistake.h"

#include "trace/report.h"
#include "trace/tap_names.h"

#include <math.h>
#include <stdio.h>

/* ---- variants, in the order in which they are tried -------------------------------------------------------------- */

#define SAYS(...) { .text = __VA_ARGS__ }
#define NUMBERS(...) .numbers = (const double[]){ __VA_ARGS__ }, \
                     .n_number = sizeof (const double[]){ __VA_ARGS__ } / sizeof(double)
#define LIMITS NUMBERS(0, 1, 2, 3, 5, 6, 7, 8, 10, 20)

const struct variant mistake_norms[N_NORM_MISTAKE] = {
    [NORM_NO_WEIGHT] = SAYS("is the norm without its weight"),
    [NORM_WEIGHT_TWICE] = SAYS("has its weight applied twice"),
    [NORM_WEIGHT_PLUS_1] = SAYS("is multiplied by 1 + its weight"),
    [NORM_NO_ROOT] = SAYS("is x / mean(x^2) * w: the square root is missing", .form = FORM_NO_ROOT),
    [NORM_NOT_DIVIDED] = SAYS("is x * w: it is not divided by the root of the mean square", .form = FORM_NONE),
    [NORM_SUM] = SAYS("is divided by the root of the sum of squares, not of their mean", .form = FORM_SUM),
    [NORM_LESS_MEAN] = SAYS("has the mean subtracted from its input", .form = FORM_CENTRED),
    [NORM_VARIANCE] = SAYS("is a layer norm: the mean is subtracted, and the variance takes the place of the mean "
                           "square", .form = FORM_LAYER),
    [NORM_TWICE] = SAYS("is the norm of the norm: it is applied twice"),
    [NORM_WEIGHT_FIRST] = SAYS("is the norm of the input times the weight: the weight comes first"),
    [NORM_PARTS_2] = SAYS("is computed over each half of a row, another axis", .n_part = 2),
    [NORM_PARTS_4] = SAYS("is computed over each quarter of a row, another axis", .n_part = 4),
    [NORM_PARTS_8] = SAYS("is computed over each of 8 parts of a row, another axis", .n_part = 8),
    [NORM_TOKENS] = SAYS("is computed over all tokens of the batch together, another axis", .of_batch = true),
    [NORM_ACROSS_TOKENS] = SAYS("is computed over the tokens of the batch, another axis", .of_batch = true),
    [NORM_MEAN_ABS] = SAYS("is divided by the mean of the absolute values", .form = FORM_ABS),
    [NORM_FIRST_HALF] = SAYS("is divided by the root of the mean square of the first half of a row", .form = FORM_HALF),
    [NORM_ADDED_UP] = SAYS("has sums of squares that are not cleared between tokens",
                           .of_batch = true, .chunks = CHUNKS_TOO),
    [NORM_FIRST_OF_ALL] = SAYS("has the squares of the first %g elements of a row alone in its sum",
                               .form = FORM_FIRST_SOME, NUMBERS(4, 8, 16, 32, 64, 128, 256, 512, 1024)),
    [NORM_WITHOUT_LAST] = SAYS("has a sum of squares that leaves out the last %g elements of a row",
                               .form = FORM_LESS_SOME, NUMBERS(4, 8, 16, 32)),
};

static const struct variant eps[] = {
    SAYS("is the norm with an eps of %g", NUMBERS(0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 1e-8, 1e-12)),
};

static const struct variant ropes[N_ROPE_MISTAKE] = {
    [ROPE_OTHER_PAIRS] = SAYS("is rotated in the other kind of pairs"),
    [ROPE_BACKWARD] = SAYS("is rotated in the other direction"),
    [ROPE_EXCHANGED] = SAYS("is rotated with sine and cosine exchanged"),
    [ROPE_NO_SINE] = SAYS("is rotated without the sine"),
    [ROPE_NO_COSINE] = SAYS("is rotated without the cosine"),
    [ROPE_TWICE] = SAYS("is rotated twice"),
    [ROPE_IN_PLACE] = SAYS("is rotated in place: the second element of a pair is computed from the first after it was "
                           "rotated"),
    [ROPE_OFFSET] = SAYS("is rotated for a position shifted by %g", NUMBERS(1, -1, 2, -2, 5, 10)),
    [ROPE_SCALED] = SAYS("is rotated by %g times the right angles, as if positions were scaled",
                         NUMBERS(0.5, 0.25, 0.125, 2, 4, 8)),
    [ROPE_BASE] = SAYS("is rotated with the base %g",
                       NUMBERS(10, 100, 500, 1000, 5000, 10000, 20000, 50000, 100000, 500000, 1e6, 1e7)),
    [ROPE_PART] = SAYS("has only a part of its elements rotated: %g of them", NUMBERS(0.5, 0.25)),
    [ROPE_SMALL_HEAD] = SAYS("has only a part of its elements rotated: %g of them", NUMBERS(0.5, 0.25)),
    [ROPE_EXPONENT] = SAYS("is rotated with %g times the right exponents of the frequencies", NUMBERS(0.5, 2, -1)),
    [ROPE_DEGREES] = SAYS("is rotated by angles in degrees that are taken for radians"),
    [ROPE_BATCH] = SAYS("is rotated for the position in the batch, not in the text", .of_batch = true),
    [ROPE_SAME_POSITION] = SAYS("is rotated for the position of the first token of the batch", .of_batch = true),
    [ROPE_SECOND_PART] = SAYS("has only the last part of its elements rotated: %g of them", NUMBERS(0.5)),
    [ROPE_FROZEN] = SAYS("is rotated for the position of the first decoded token, in all tokens after the prompt"),
    [ROPE_BY_HEAD] = SAYS("is rotated for the position plus the number of the head"),
    [ROPE_FACTORS_MULTIPLIED] = SAYS("is rotated with frequencies that are multiplied by the file's factors, not "
                                     "divided"),
    [ROPE_CHUNK] = SAYS("is rotated for the position in the chunk, not in the text", .chunks = CHUNKS_ALONE),
    [ROPE_CHUNK_SAME] = SAYS("is rotated for the position of the first token of the chunk", .chunks = CHUNKS_ALONE),
};

static const struct variant scores[N_SCORES_MISTAKE] = {
    [SCORES_SCALE] = SAYS("is the softmax of %g times the right scores: their scale is wrong"),
    [SCORES_SOFTCAP] = SAYS("is the softmax of scores with a softcap of %g (tanh)", NUMBERS(50, 30, 20, 10, 5, 2, 1)),
    [SCORES_LATE] = SAYS("has a mask that ends %g keys too late", NUMBERS(1, 2), .of_batch = true),
    [SCORES_EARLY] = SAYS("has a mask that ends %g keys too early", NUMBERS(1, 2), .of_batch = true),
    [SCORES_NO_MASK] = SAYS("has no causal mask: it sees all keys of the batch", .of_batch = true),
    [SCORES_MASK_LATE] = SAYS("is masked after the softmax, so that its sum is too small", .of_batch = true),
    [SCORES_ZEROS] = SAYS("has hidden keys that count as scores of 0 in the sum", .of_batch = true),
    [SCORES_OVER_HEADS] = SAYS("is a softmax over the heads, another axis"),
    [SCORES_OVER_TOKENS] = SAYS("is a softmax over the tokens of the batch, another axis", .of_batch = true),
    [SCORES_NO_SOFTMAX] = SAYS("is the scores themselves, without the softmax"),
    [SCORES_CLAMPED] = SAYS("has exponentials whose arguments are clamped: exp of at least %g",
                            NUMBERS(-2, -4, -5, -8, -10, -16, -20)),
    [SCORES_HIDDEN_WEAKLY] = SAYS("has hidden keys in its sum: the mask adds only %g to their scores",
                                  NUMBERS(-2, -4, -5, -8, -10), .chunks = CHUNKS_ALONE),
    [SCORES_PADDED] = SAYS("has sums in tiles of %g keys, where those that the last tile lacks count as scores of 0",
                           NUMBERS(4, 8, 16, 32, 64), .of_batch = true),
    [SCORES_HIDDEN_AT_0] = SAYS("has hidden keys in its sum: the mask adds only 0 to their scores",
                                .chunks = CHUNKS_ALONE),
    [SCORES_CHUNK_FUTURE] = SAYS("has no causal mask in a chunk: it sees the later tokens of its own chunk",
                                 .chunks = CHUNKS_ALONE),
    [SCORES_CHUNK_ALONE] = SAYS("sees only the keys of its own chunk", .chunks = CHUNKS_ALONE),
    [SCORES_CHUNK_FROM_0] = SAYS("has a mask that counts keys from 0 in a chunk, not from the chunk's position",
                                 .chunks = CHUNKS_ALONE),
    [SCORES_SINK_SCALED] = SAYS("has attention sinks that are multiplied by the scale of the scores"),
    [SCORES_SINK_PLAIN] = SAYS("has attention sinks that are added to the sum as they are, without exp"),
    [SCORES_SINK_BEFORE] = SAYS("has the attention sink of the head before in each head"),
    [SCORES_SINK_NEXT] = SAYS("has the attention sink of the next head in each head"),
    [SCORES_EARLY_ZEROS] = SAYS("has a mask that ends %g keys too early", NUMBERS(2, 1), .of_batch = true),
    [SCORES_HIDDEN] = SAYS("does not see the key of token %g"),
    [SCORES_TWO_HIDDEN] = SAYS("does not see the keys of tokens %g and %g"),
    [SCORES_WINDOW] = SAYS("sees only the last %g keys, as if there were a window"),
};

static const struct variant heads[N_KV_RULE] = {
    [KV_MODULO] = SAYS("has heads that read the heads of %s in another order: head h reads head h %% %u"),
    [KV_REVERSED] = SAYS("has heads that read the heads of %s in reverse order"),
    [KV_NEXT] = SAYS("has heads that read the next head of %s"),
    [KV_FIRST] = SAYS("has all heads read the first head of %s"),
    [KV_LAST] = SAYS("has all heads read the last head of %s"),
    [KV_EARLY] = SAYS("has groups of heads that begin one head too early: head h reads head (h + 1) / group of %s"),
};

static const struct variant caches[N_CACHE_MISTAKE] = {
    [CACHE_NOT_DECODED] = SAYS("reads zeros as the %s of decoded tokens: they are not stored in the cache"),
    [CACHE_EARLY] = SAYS("reads the %s of decoded tokens that are stored one slot too early"),
    [CACHE_LATE] = SAYS("reads the %s of decoded tokens that are stored one slot too late"),
    [CACHE_ONE_SLOT] = SAYS("reads the %s of decoded tokens that all use the last slot of the prompt"),
    [CACHE_PROMPT_REVERSED] = SAYS("reads the %s of the prompt's tokens from the cache in reverse order"),
    [CACHE_ONLY_OWN] = SAYS("reads only the %s of the own token in the cache"),
    [CACHE_ROWS_BY_HEAD] = SAYS("has rows of %s, stored as (token, head), read as (head, token)", .chunks = CHUNKS_TOO),
    [CACHE_ROWS_BY_SLOT] = SAYS("has rows of %s, stored as (head, token), read as (token, head)", .chunks = CHUNKS_TOO),
    [CACHE_EXCHANGED] = SAYS("reads K and V of the cache exchanged"),
    [CACHE_REPEATED] = SAYS("reads the %s of token j / group for token j: they are repeated along the tokens, not the "
                            "heads"),
    [CACHE_CHUNK_CLEARED] = SAYS("reads zeros as the %s of the chunks of the prompt before its own",
                                 .chunks = CHUNKS_ALONE),
    [CACHE_CHUNK_FROM_0] = SAYS("reads the %s of chunks that are all stored from slot 0 on", .chunks = CHUNKS_ALONE),
};

static const struct variant values[N_VALUES_MISTAKE] = {
    [VALUES_NOT_RESCALED] = SAYS("has sums that online softmax does not rescale when a later tile has a larger "
                                 "maximum"),
    [VALUES_SUM_NOT_RESCALED] = SAYS("has a sum of exponentials that online softmax does not rescale to a larger "
                                     "maximum"),
    [VALUES_ONLY_SUM_RESCALED] = SAYS("has a sum of values that online softmax does not rescale to a larger maximum"),
    [VALUES_RESCALED_INVERSELY] = SAYS("has sums that online softmax rescales by the inverse of the right factor"),
    [VALUES_NOT_DIVIDED] = SAYS("is not divided by the sum of the exponentials"),
    [VALUES_WITHOUT_TAIL] = SAYS("has sums that leave out the last, incomplete tile of keys"),
};

static const struct variant fused[N_FUSED_MISTAKE] = {
    [FUSED_READ_BY_GROUP] = SAYS("has rows of the matrices of Q, K and V that are read by groups of heads, but stored "
                                 "one matrix after the other"),
    [FUSED_STORED_BY_GROUP] = SAYS("has rows of the matrices of Q, K and V that are stored by groups of heads, but "
                                   "read one matrix after the other"),
    [FUSED_ALTERNATE] = SAYS("has rows of the matrices of gate and up that are taken to alternate"),
    [FUSED_IN_HALVES] = SAYS("has rows of the matrices of gate and up that alternate, but are read as two halves"),
};

static double hard_swish_02(double z) { return z * fmin(fmax(0.2 * z + 0.5, 0), 1); }

const struct variant mistake_gates[N_GATE_MISTAKE] = {
    [GLU_GELU_TANH] = SAYS("is gelu_tanh(gate) * up", .activation = gelu_tanh),
    [GLU_GELU_ERF] = SAYS("is gelu_erf(gate) * up", .activation = gelu_erf),
    [GLU_GELU_QUICK] = SAYS("is gelu_quick(gate) * up", .activation = gelu_quick),
    [GLU_SILU] = SAYS("is silu(gate) * up", .activation = silu),
    [GLU_RELU] = SAYS("is relu(gate) * up", .activation = relu),
    [GLU_RELU_SQR] = SAYS("is relu(gate)^2 * up", .activation = relu_square),
    [GLU_SIGMOID] = SAYS("is sigmoid(gate) * up", .activation = sigmoid),
    [GLU_TANH] = SAYS("is tanh(gate) * up", .activation = tanh),
    [GLU_NONE] = SAYS("is gate * up: the activation is left out", .activation = identity),
    [GLU_TWICE] = SAYS("is silu(silu(gate)) * up: the activation is applied twice", .activation = silu_twice),
    [GLU_SOFTPLUS] = SAYS("is softplus(gate) * up", .activation = softplus),
    [GLU_EXCHANGED] = SAYS("is silu(up) * gate: gate and up are exchanged"),
    [GLU_LATE] = SAYS("is silu(gate * up): the activation comes after the product"),
    [GLU_SUM] = SAYS("is silu(gate) + up: the sum instead of the product"),
    [GLU_ALONE] = SAYS("is silu(gate): up is left out"),
    [GLU_UP_ALONE] = SAYS("is up: the gate is left out"),
    [GLU_HARD] = SAYS("is gate * hard sigmoid(gate) * up", .activation = hard_swish),
    [GLU_HARD_02] = SAYS("is gate * hard sigmoid(gate) * up, with a slope of 0.2", .activation = hard_swish_02),
    [GLU_EXP_CLAMPED] = SAYS("is silu(gate) * up with the argument of exp clamped to -%g .. %g", LIMITS),
    [GLU_LIMITED] = SAYS("has gate and up clamped to a limit of %g", LIMITS),
    [GLU_GATE_LIMITED] = SAYS("has the gate clamped to a limit of %g on both sides", LIMITS),
    [GLU_NO_ALPHA] = SAYS("has silu without its factor alpha, 1.702", .activation = silu),
    [GLU_NO_1] = SAYS("is silu(gate) * up: 1 is not added to up", .activation = silu),
    [GLU_ALTERNATE] = SAYS("has gates and up projections that are taken to alternate"),
    [GLU_GELU_ROOT] = SAYS("is gelu(gate) * up with %g for its constant sqrt(2/pi)"),
    [GLU_GELU_CUBE] = SAYS("is gelu(gate) * up with %g for its constant 0.044715"),
};

static const struct variant token_rows[N_TOKEN_MISTAKE] = {
    [TOKEN_EARLIER] = SAYS("is that of the token %g places before", NUMBERS(2, 1)),
    [TOKEN_FURTHER] = SAYS("is that of the token %g places further on", NUMBERS(1, 2)),
    [TOKEN_NEXT_ID] = SAYS("has the rows of the tokens with the next ids"),
    [TOKEN_ID_BEFORE] = SAYS("has the rows of the tokens with the ids before"),
    [TOKEN_LOW_BYTE] = SAYS("has the rows of ids of which only the low byte is left"),
    [TOKEN_HALF] = SAYS("has the rows of ids that begin anew at half of the vocabulary"),
    [TOKEN_ROW_EARLY] = SAYS("has rows that begin half a row too early"),
    [TOKEN_ROW_LATE] = SAYS("has rows that begin half a row too late"),
};

/* NULL: the kind has no variants. */
static const struct variant *const variants[N_MISTAKE_KIND] = {
    [MISTAKE_NORM] = mistake_norms, [MISTAKE_EPS] = eps, [MISTAKE_ROPE] = ropes, [MISTAKE_SCORES] = scores,
    [MISTAKE_HEADS] = heads, [MISTAKE_CACHE] = caches, [MISTAKE_VALUES] = values, [MISTAKE_FUSED] = fused,
    [MISTAKE_GATE] = mistake_gates, [MISTAKE_TOKEN] = token_rows,
};

bool mistake_is_of_batch(const struct mistake *m) {
    bool is_kind = m->kind == MISTAKE_CACHE || (m->kind == MISTAKE_LAYOUT && m->variant >= LAYOUT_ELEMENT_TOKEN)
                || ((m->kind == MISTAKE_ADDED_UP || m->kind == MISTAKE_ORDER) && m->axis == AXIS_TOKENS);
    return m->chunk > 0 || is_kind || (variants[m->kind] && variants[m->kind][m->variant].of_batch);
}

/* ---- what is tried ----------------------------------------------------------------------------------------------- */

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
    for (int i = first; i < end; i++) {
        const struct variant *v = &variants[kind][i];
        for (uint32_t k = 0; k < (v->n_number > 0 ? v->n_number : 1); k++) {
            struct mistake m = { .kind = kind, .variant = (uint8_t)i, .number = v->n_number > 0 ? v->numbers[k] : 0 };
            if (v->chunks != CHUNKS_ALONE) try_one(l, m);
            if (v->chunks != CHUNKS_NONE) try_chunks(l, m);
        }
    }
}

/* Tries a kind with each of n numbers. */
static void try_each(const struct list *l, enum mistake_kind kind, const double *numbers, size_t n) {
    for (size_t i = 0; i < n; i++) try_one(l, (struct mistake){ .kind = kind, .number = numbers[i] });
}
#define TRY_NUMBERS(l, kind, ...) try_each(l, kind, (const double[]){ __VA_ARGS__ }, \
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
    TRY_NUMBERS(l, MISTAKE_SCALE, 0, 2, 0.5, -1, 3, 4, 0.25, 10, 0.1, 1.1, 0.9, 1.5, root, 1 / root);
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
    for (int32_t from = -1; w && from < (int32_t)model->plan.n_layer; from++) {   /* -1: of the own layer */
        for (enum weight_id id = 0; id < W_LAYER_COUNT && from != l->layer; id++) {
            const struct weight *other = model->layers[from < 0 ? l->layer : from].w[id].w;
            bool fits = other && other->n_in == w->n_in && other->n_out == w->n_out && other->n_matrix <= 1;
            if (!fits || (from < 0 && id == own)) continue;
            struct mistake m = { .kind = MISTAKE_TENSOR, .weight = id, .input = l->id, .from_layer = from };
            try_one(l, m);
            m.taps = ID_SET(l->id) | mistake_taps(id);   /* the two are exchanged */
            m.layer = m.head = EVERYWHERE;
            if (from < 0 && m.taps & (m.taps - 1) && id > own) l->try(l->user, &m);
        }
    }
}

static void try_attention(const struct list *l) {
    const struct mistakes *s = l->s;
    const struct attn_plan *a = &s->model->plan.layers[l->layer].attn;
    double dim = plan_head_dim(a), root = sqrt(dim), width = sqrt(s->model->plan.n_embd);
    TRY_NUMBERS(l, MISTAKE_SCORES, root, 1 / root, root / width, 2, 0.5, sqrt(2), sqrt(0.5), log(2), 1 / log(2), -1, 0,
                root / dim * 2, 0.1 * root, 10, 0.1, 1.1, 0.9, sqrt(a->n_head), 1 / sqrt(a->n_head));
    try_variants(l, MISTAKE_SCORES, SCORES_SCALE + 1, SCORES_SINK_SCALED);
    bool has_sinks = s->model->layers[l->layer].w[W_ATTN_SINKS].w != NULL;
    try_variants(l, MISTAKE_SCORES, has_sinks ? SCORES_SINK_SCALED : SCORES_EARLY_ZEROS, SCORES_HIDDEN);
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
    try_variants(l, MISTAKE_CACHE, 0, N_CACHE_MISTAKE);
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
        try_variants(&l, MISTAKE_EPS, 0, 1);
    }
    if (is_norm_of_layer(id)) {
        const struct weight *w = s->model->layers[layer].w[mistake_weight(id)].w;
        try_orders(&l, AXIS_WEIGHT, w ? w->n_in : 1);
        try_inputs(&l, 0, width);
        try_tensors(&l);
    }
    const struct affine *of = operation == OP_LINEAR ? &s->model->layers[layer].w[mistake_weight(id)] : NULL;
    if (of && of->w) {   /* other layers may have it alone */
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
        try_variants(&l, MISTAKE_ROPE, 0, N_ROPE_MISTAKE);
        enum weight_id norm = id == TAP_QCUR_ROPE ? W_ATTN_Q_NORM : W_ATTN_K_NORM;
        try_one(&l, (struct mistake){ .kind = MISTAKE_NORMED, .weight = norm });
    }
    if (id == TAP_KQ_SOFT_MAX) {
        try_inputs(&l, 0, s->n_head[TAP_QCUR_ROPE] * s->width[TAP_QCUR_ROPE]);
        try_attention(&l);
    }
    if (id == TAP_KQ_SOFT_MAX || id == TAP_KQV_OUT) try_cache(&l);
    /* The numbers of the others are fitted, see partial.c. */
    if (operation == OP_GATE) try_variants(&l, MISTAKE_GATE, 0, GLU_GELU_ROOT);
    if (id == TAP_FFN_SWIGLU) try_inputs(&l, 0, width);
    if (id == TAP_FFN_SWIGLU) try_inputs(&l, 1, width);
    if (operation == OP_SUM) {
        try_sums(&l);
        try_inputs(&l, 0, width);
        try_inputs(&l, 1, width);
    }
    if (id == TAP_EMBD) try_variants(&l, MISTAKE_TOKEN, 0, N_TOKEN_MISTAKE);
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
    case MISTAKE_HEADS: case MISTAKE_CACHE:
        report_append(text, size, &n, variants[m->kind][m->variant].text, cached,
                      s->model->plan.layers[layer < 0 ? 0 : layer].attn.n_head_kv);
        break;
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
    case MISTAKE_GATE: report_append(text, size, &n, mistake_gates[m->variant].text, m->number, m->number); break;
    default: report_append(text, size, &n, variants[m->kind][m->variant].text, m->number, m->other); break;
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

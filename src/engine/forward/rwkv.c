/* Steps of RWKV: Peng et al. 2024, "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence", arXiv
 * 2404.05892; Peng et al. 2025, "RWKV-7 Goose with Expressive Dynamic State Evolution", arXiv 2503.14456.  The state of
 * a layer begins with the last input of each of its shifts; the matrices of the heads follow.  A text among several
 * begins with zeros.  Compiled for speed. */
#include "forward/steps.h"

struct rwkv {
    struct forward *f;
    const struct call *c;
    float *state;   /* of a shift: (n_embd); of heads: (n_head, v_dim, k_dim), with a row for each element of a value */
};

/* ---- mixtures of a token and the one before it ------------------------------------------------------------------- */

static void shift_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct rwkv *v = user;
    size_t n = v->c->s->n;
    for (uint32_t t = v->c->begin + begin; t < v->c->begin + end; t++) {
        const float *x = v->c->in + t * n, *before = t == v->c->begin ? v->state : x - n;
        float *out = v->c->out + t * n;
        for (size_t i = 0; i < n; i++) out[i] = before[i] - x[i];
    }
    (void)thread;
}

void forward_shift(struct forward *f, const struct call *c) {
    size_t n = c->s->n;
    struct rwkv v = { f, c, call_state(f, c) + c->s->first };
    if (c->piece->pos == 0) memset(v.state, 0, n * sizeof *v.state);
    pool_run(f->pool, c->end - c->begin, n * POOL_ELEMENT, shift_tokens, &v);
    memcpy(v.state, c->in + (c->end - 1) * n, n * sizeof *v.state);
}

void forward_lerp(struct forward *f, const struct call *c) {
    const float *weight = weight_floats(c->w->w) + c->s->first;
    size_t n = c->s->n;
    for (uint32_t t = c->begin; t < c->end; t++) {
        const float *x = c->in + t * n, *shift = f->streams[STREAM_SHIFT] + t * n;
        const float *own = c->s->n_to > 0 ? f->streams[STREAM_LERPS] + (size_t)t * c->s->n_to + c->s->to : NULL;
        float *out = c->out + t * n;
        for (size_t i = 0; i < n; i++) out[i] = x[i] + shift[i] * (own ? own[i] + weight[i] : weight[i]);
    }
}

/* ---- what is made of the mixtures -------------------------------------------------------------------------------- */

/* The decays of lightning attention are the same for all tokens. */
static void fade_evenly(const struct forward *f, const struct call *c) {
    const struct attn_plan *a = &c->layer->attn;
    for (size_t i = call_begin(c); i < call_end(c); i += a->k_dim) {
        float fade = (float)plan_fade(&f->model->plan, c->il, (uint32_t)(i / a->k_dim % a->n_head));
        for (uint32_t j = 0; j < a->k_dim; j++) c->out[i + j] = fade;
    }
}

/* RWKV 7: e^(-e^-0.5 sigmoid(x)), with the constant of the authors' code; RWKV 6: e^(-e^x). */
void forward_fade(struct forward *f, const struct call *c) {
    if (f->model->plan.rwkv.kind == RWKV_LIGHTNING) {
        fade_evenly(f, c);
        return;
    }
    const struct kernels *k = &f->kernels;
    bool is_7 = f->model->plan.rwkv.kind == RWKV_7;
    float *x = c->out + call_begin(c);
    size_t n = call_end(c) - call_begin(c);
    for (size_t i = 0; is_7 && i < n; i++) x[i] = -x[i];
    k->exp(x, n);
    for (size_t i = 0; i < n; i++) x[i] = is_7 ? -0.606531f / (1.0f + x[i]) : -x[i];
    k->exp(x, n);
}

void forward_mix(struct forward *f, const struct call *c) {
    const float *mix = f->streams[STREAM_MIX];
    for (size_t i = call_begin(c); i < call_end(c); i++) c->out[i] += (c->in[i] - c->out[i]) * mix[i];
}

/* The length of zeros counts as 1e-12, as in llama.cpp. */
void forward_unit(struct forward *f, const struct call *c) {
    uint32_t n = c->s->n_norm;
    for (size_t i = call_begin(c); i < call_end(c); i += n) {
        float length = (float)math_sqrt((double)f->kernels.dot_f32(c->out + i, c->out + i, n));
        float factor = 1.0f / (length > 1e-12f ? length : 1e-12f);
        for (uint32_t j = 0; j < n; j++) c->out[i + j] *= factor;
    }
}

void forward_replace(struct forward *f, const struct call *c) {
    const float *w = weight_floats(c->w->w);
    uint32_t n = c->w->w->n_in;
    for (size_t i = call_begin(c); i < call_end(c); i++) c->out[i] *= 1.0f + (c->in[i] - 1.0f) * w[i % n];
    (void)f;
}

void forward_times(struct forward *f, const struct call *c) {
    for (size_t i = call_begin(c); i < call_end(c); i++) c->out[i] *= c->in[i];
    (void)f;
}

/* sum of q k w, of n elements */
static float weighted_dot(const struct kernels *kernels, const float *q, const float *k, const float *w, uint32_t n) {
    enum { PART = 64 };
    float product[PART], sum = 0.0f;
    for (uint32_t first = 0, m; first < n; first += m) {
        m = n - first < PART ? n - first : PART;
        kernels->mul_scaled(product, k + first, 1.0f, w + first, m);
        sum += kernels->dot_f32(product, q + first, m);
    }
    return sum;
}

void forward_bonus(struct forward *f, const struct call *c) {
    const struct attn_plan *a = &c->layer->attn;
    const float *q = f->streams[STREAM_Q], *value = f->streams[STREAM_VALUE], *w = weight_floats(c->w->w);
    for (size_t i = (size_t)c->begin * a->n_head; i < (size_t)c->end * a->n_head; i++) {
        size_t at = i * a->k_dim;
        float sum = weighted_dot(&f->kernels, q + at, c->in + at, w + i % a->n_head * a->k_dim, a->k_dim);
        for (uint32_t j = 0; j < a->v_dim; j++) c->out[i * a->v_dim + j] = value[i * a->v_dim + j] * sum;
    }
}

/* ---- the states -------------------------------------------------------------------------------------------------- */

/* One token after the other.
 *   RWKV 7        S <- S (diag(fade) - removal^T (rate * removal)) + value^T key, out = S q^T: "RWKV-7 Goose",
 *                 "The Weighted Key Value State Evolution"
 *   RWKV 6        out = (S + value^T (bonus * key)) q^T, S <- S diag(fade) + value^T key: "Eagle and Finch",
 *                 "Finch Time Mixing"
 *   RWKV_LINEAR   S <- S diag(fade) + value^T ((1 - fade) * key), out = S q^T / sqrt(k_dim): Yang et al. 2023, "Gated
 *                 Linear Attention Transformers", eq. 3
 *   RWKV_LIGHTNING  S <- S diag(fade) + value^T key, out = S q^T: Qin et al. 2024, "Lightning Attention-2", eq. 3
 * Groups of heads may share K and V. */
static void run_rows(void *mixer, struct state_rows rows) {
    static const enum advance_kind kinds[] = {
        [RWKV_6] = ADVANCE_BEFORE, [RWKV_LINEAR] = ADVANCE_GATED, [RWKV_7] = ADVANCE_REMOVE,
        [RWKV_LIGHTNING] = ADVANCE_FADE,
    };
    const struct rwkv *v = mixer;
    const struct forward *f = v->f;
    const struct attn_plan *a = &v->c->layer->attn;
    enum rwkv_kind kind = f->model->plan.rwkv.kind;
    uint32_t dim = a->k_dim, h = rows.head;
    float scale = kind == RWKV_LINEAR ? 1.0f / (float)math_sqrt(dim) : 1.0f, old[STATE_ROWS];
    const float *bonus = kind == RWKV_6 ? weight_floats(v->c->w->w) + (size_t)h * dim : NULL;
    float *s = v->state + ((size_t)h * a->v_dim + rows.first) * dim;
    for (uint32_t t = rows.begin; t < rows.end; t++) {
        size_t i = (size_t)t * a->n_head + h, kv = (size_t)t * a->n_head_kv + h / (a->n_head / a->n_head_kv);
        struct advance of = { .kind = kinds[kind], .n = dim, .fade = f->streams[STREAM_FADE] + i * dim,
                              .key = v->c->in + kv * dim, .query = f->streams[STREAM_Q] + i * dim };
        const float *value = f->streams[STREAM_VALUE] + kv * a->v_dim + rows.first;
        float *out = v->c->out + i * a->v_dim + rows.first;
        if (begins_text(v->c, t)) memset(s, 0, (size_t)rows.n * dim * sizeof *s);
        if (kind == RWKV_7) {
            of.rate = f->streams[STREAM_RATE] + i * dim;
            of.removal = f->streams[STREAM_REMOVAL] + i * dim;
            f->kernels.row_dots(old, s, rows.n, 1.0f, of.removal, dim);
        }
        f->kernels.advance(out, s, rows.n, &of, value, old);
        float *own = rows.decay + (t - rows.begin);
        if (rows.first == 0) *own = bonus ? weighted_dot(&f->kernels, of.query, of.key, bonus, dim) : 0.0f;
        for (uint32_t r = 0; r < rows.n; r++) out[r] = bonus ? out[r] + *own * value[r] : out[r] * scale;
    }
}

static void run_heads(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    struct rwkv *v = user;
    forward_states(v, begin, end, v->c->layer->attn.v_dim, v->c, run_rows);
    (void)thread;
}

void forward_wkv(struct forward *f, const struct call *c) {
    const struct plan *p = &f->model->plan;
    struct rwkv v = { f, c, call_state(f, c) + (size_t)p->rwkv.n_shift * p->n_embd };
    pool_run(f->pool, c->layer->attn.n_head, call_cost(c, (uint64_t)c->layer->attn.k_dim * c->layer->attn.v_dim),
             run_heads, &v);
}

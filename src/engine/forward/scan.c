/* Steps of selective scans: Gu & Dao 2023, "Mamba", and Dao & Gu 2024, "Transformers are SSMs".  Compiled for speed. */
#include "forward/steps.h"

void forward_softplus(struct forward *f, const struct call *c) {
    for (size_t i = call_begin(c); i < call_end(c); i++) c->out[i] = (float)softplus((double)c->out[i]);
    (void)f;
}

/* s_i <- e^(dt a_i) s_i + add b_i, of n elements */
static void advance(const struct kernels *k, float *s, const float *a, const float *b, float dt, float add,
                    uint32_t n) {
    enum { PART = 64 };
    float decay[PART];
    for (uint32_t first = 0, m; first < n; first += m) {
        m = n - first < PART ? n - first : PART;
        for (uint32_t i = 0; i < m; i++) decay[i] = dt * a[first + i];
        k->exp(decay, m);
        for (uint32_t i = 0; i < m; i++) s[first + i] = s[first + i] * decay[i] + add * b[first + i];
    }
}

void forward_states(void *mixer, uint32_t begin, uint32_t end, uint32_t n_row, const struct call *c,
                    void (*run)(void *mixer, struct state_rows rows)) {
    float decay[STATE_TOKENS];
    struct state_rows rows = { .decay = decay };
    for (rows.head = begin; rows.head < end; rows.head++) {
        for (rows.begin = c->begin; rows.begin < c->end; rows.begin = rows.end) {
            rows.end = c->end - rows.begin < STATE_TOKENS ? c->end : rows.begin + STATE_TOKENS;
            for (rows.first = 0; rows.first < n_row; rows.first += rows.n) {
                rows.n = n_row - rows.first < STATE_ROWS ? n_row - rows.first : STATE_ROWS;
                run(mixer, rows);
            }
        }
    }
}

struct scan {
    const struct forward *f;
    const struct call *c;
    float *states;         /* (n_head, dim, n_state) */
    const float *a, *d;    /* (n_head, 1) or (n_head, n_state); (n_head) */
    size_t n_row;          /* elements of a row of in, which begins with x (n_head, dim) */
    bool is_scalar;        /* A has one number for each head */
};

/* S <- e^(dt A) S + dt x B^T, y = S C + D x, one token after the other: eq. 2 of the first paper, with the zero-order
 * hold for A and Euler's rule for B, as its code has it.  A text among several begins with zeros. */
static void run_rows(void *mixer, struct state_rows rows) {
    const struct scan *v = mixer;
    const struct forward *f = v->f;
    const struct scan_plan *p = &f->model->plan.scan;
    uint32_t n = p->n_state, h = rows.head;
    float *s = v->states + ((size_t)h * p->dim + rows.first) * n, add[STATE_ROWS], out[STATE_ROWS];
    size_t group = h / (p->n_head / p->n_group);
    for (uint32_t t = rows.begin; t < rows.end; t++) {
        size_t at = (size_t)t * p->n_head + h, of_group = ((size_t)t * p->n_group + group) * n;
        const float *b = f->streams[STREAM_B] + of_group, *c = f->streams[STREAM_C] + of_group;
        const float *x = v->c->in + t * v->n_row + (size_t)h * p->dim + rows.first;
        float dt = f->streams[STREAM_DT][at], *y = v->c->out + at * p->dim + rows.first;
        if (begins_text(v->c, t)) memset(s, 0, (size_t)rows.n * n * sizeof *s);
        for (uint32_t r = 0; r < rows.n; r++) add[r] = dt * x[r];
        if (v->is_scalar) {
            float *decay = rows.decay + (t - rows.begin);
            if (rows.first == 0) *decay = (float)math_exp((double)(dt * v->a[h]));
            struct advance of = { .kind = ADVANCE_DECAY, .n = n, .decay = *decay, .key = b, .query = c };
            f->kernels.advance(out, s, rows.n, &of, add, NULL);
        }
        for (uint32_t r = 0; r < rows.n && !v->is_scalar; r++) {
            advance(&f->kernels, s + (size_t)r * n, v->a + (size_t)h * n, b, dt, add[r], n);
            out[r] = f->kernels.dot_f32(s + (size_t)r * n, c, n);
        }
        for (uint32_t r = 0; r < rows.n; r++) y[r] = out[r] + v->d[h] * x[r];
    }
}

static void run_heads(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    struct scan *v = user;
    forward_states(v, begin, end, v->f->model->plan.scan.dim, v->c, run_rows);
    (void)thread;
}

void forward_scan(struct forward *f, const struct call *c) {
    const struct plan *p = &f->model->plan;
    size_t n_row = (size_t)plan_conv_width(p, c->il);
    struct scan v = { f, c, call_state(f, c) + (c->layer->n_conv - 1) * n_row, weight_floats(c->w->w),
                      weight_floats(f->model->layers[c->il].w[W_SCAN_D].w), n_row, p->scan.kind != SCAN_MAMBA };
    pool_run(f->pool, p->scan.n_head, call_cost(c, (uint64_t)p->scan.dim * p->scan.n_state), run_heads, &v);
}

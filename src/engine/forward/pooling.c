/* Pooling: one vector is made of the embeddings of all tokens, and goes through a classifier's head or dense layers.
 * struct pooling_plan says which. */
#include "forward/steps.h"

/* y (n_embd) = one vector of the embeddings of n tokens, x (n, n_embd). */
static void pool_rows(const struct forward *f, const float *x, uint32_t n, plumb_pooling kind, float *y) {
    uint32_t n_embd = f->model->plan.n_embd;
    if (kind != PLUMB_POOLING_MEAN) {
        memcpy(y, x + (size_t)(kind == PLUMB_POOLING_LAST ? n - 1 : 0) * n_embd, n_embd * sizeof *y);
        return;
    }
    memset(y, 0, n_embd * sizeof *y);
    for (uint32_t t = 0; t < n; t++) f->kernels.add_scaled(y, x + (size_t)t * n_embd, 1.0f, n_embd);
    for (uint32_t i = 0; i < n_embd; i++) y[i] /= (float)n;
}

/* Replaces the vector in the first half of f->head by its product with a matrix, if the model has it.  *n: its
 * elements. */
static void multiply(struct forward *f, const struct affine *of, uint32_t *n) {
    float *y = f->head + plan_max_head(&f->model->plan);
    const struct product product = { TAP_COUNT, of, y, 1, false, 0.0f };
    if (!of->w) return;
    *n = of->w->n_out;
    forward_multiply(f, f->head, 1, -1, 0, &product, 1);
    memcpy(f->head, y, *n * sizeof *y);
}

/* The steps after pooling, on the vector in f->head.  *n: its elements. */
static void run_head(struct forward *f, plumb_pooling kind, uint32_t *n) {
    const struct model *m = f->model;
    const struct pooling_plan *p = &m->plan.pooling;
    if (kind != PLUMB_POOLING_RANK) {
        multiply(f, &m->dense_2, n);
        multiply(f, &m->dense_3, n);
        return;
    }
    multiply(f, &m->cls, n);
    if (m->cls.w && p->rank_gelu) f->kernels.gelu(f->head, *n);
    else if (m->cls.w) f->kernels.softcap(f->head, 1.0f, *n);   /* tanh */
    if (m->cls.w && m->cls_norm.w) forward_normalize(f, &m->cls_norm, m->plan.norm_eps, *n, f->head, 1, f->head);
    multiply(f, &m->cls_output, n);
    if (p->rank_softmax) f->kernels.softmax(f->head, *n);
}

void forward_pool(struct forward *f, const float *embeddings, uint32_t n, plumb_pooling kind, float *out) {
    const struct plan *p = &f->model->plan;
    uint32_t n_vector = kind == PLUMB_POOLING_NONE ? n : 1, n_out = model_n_pooled(f->model, kind);
    for (uint32_t i = 0; i < n_vector; i++) {
        uint32_t n_element = p->n_embd;
        plumb_pooling of = kind == PLUMB_POOLING_RANK ? p->pooling.rank_of : kind;
        pool_rows(f, embeddings + (size_t)i * p->n_embd, n_vector == 1 ? n : 1, of, f->head);
        run_head(f, kind, &n_element);
        memcpy(out + (size_t)i * n_out, f->head, n_out * sizeof *out);
    }
    uint32_t first = kind == PLUMB_POOLING_NONE ? 0 : n - 1;
    forward_tap(f, TAP_RESULT_POOLED, -1, first, n_vector, 1, n_out, out);
}

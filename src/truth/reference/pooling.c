/* Pooling in the reference pass:
 * mean, the first token (Devlin et al. 2019, "BERT", section 3.1) or the last one; then, for a rank, a classifier
 *   c = W_cls_output norm(tanh(W_cls x + b)) + b
 * and otherwise the dense layers of sentence-transformers, y = W_dense_3 W_dense_2 x. */
#include "reference/softmax.h"
#include "reference/steps.h"

#include <math.h>

/* y <- W x + b, if the model has W; returns y then, and otherwise x. */
static double *linear(const struct reference *r, const struct affine *of, double *x, double *y) {
    if (!of->w) return x;
    for (uint32_t o = 0; o < of->w->n_out; o++) y[o] = reference_dot(reference_row(r, of->w, o), x, of->w->n_in);
    const float *bias = of->b ? (const float *)(const void *)of->b->data : NULL;
    for (uint32_t o = 0; bias && o < of->w->n_out; o++) y[o] += (double)bias[o];
    return y;
}

/* The head of a classifier, over one vector x.  y: scratch. */
static double *rank(const struct reference *r, double *x, double *y) {
    const struct pooling_plan *p = &r->plan.pooling;
    const struct model *m = r->m;
    double *h = linear(r, &m->cls, x, y);
    for (uint32_t i = 0; m->cls.w && i < p->n_hidden; i++) {
        h[i] = p->rank_gelu ? reference_activation(ACT_GELU_TANH, h[i]) : tanh(h[i]);
    }
    if (m->cls.w && m->cls_norm.w) reference_normalize(r, &m->cls_norm, (double)r->plan.norm_eps, p->n_hidden, h, 1, h);
    double *c = linear(r, &m->cls_output, h, h == x ? y : x);
    if (p->rank_softmax) softmax(c, p->n_class, 1);
    return c;
}

void reference_pool(struct reference *r, const float *embeddings, uint32_t n, plumb_pooling kind, float *out) {
    const struct plan *p = &r->plan;
    uint32_t n_vector = kind == PLUMB_POOLING_NONE ? n : 1, n_out = model_n_pooled(r->m, kind);
    plumb_pooling of = kind == PLUMB_POOLING_RANK ? p->pooling.rank_of : kind;
    for (uint32_t v = 0; v < n_vector; v++) {
        double *x = r->head, *y = r->head + r->n_head_row;
        uint32_t from = kind == PLUMB_POOLING_NONE ? v : of == PLUMB_POOLING_LAST ? n - 1 : 0;
        uint32_t end = of == PLUMB_POOLING_MEAN ? n : from + 1;
        for (uint32_t i = 0; i < p->n_embd; i++) {
            double sum = 0;
            for (uint32_t t = from; t < end; t++) sum += (double)embeddings[(size_t)t * p->n_embd + i];
            x[i] = sum / (end - from);
        }
        double *result = NULL;
        if (kind == PLUMB_POOLING_RANK) {
            result = rank(r, x, y);
        } else {
            result = linear(r, &r->m->dense_2, x, y);
            result = linear(r, &r->m->dense_3, result, result == x ? y : x);
        }
        for (uint32_t i = 0; i < n_out; i++) out[(size_t)v * n_out + i] = (float)result[i];
    }
    uint32_t first = kind == PLUMB_POOLING_NONE ? 0 : n - 1;
    if (!r->sink.on_tap) return;
    const char *name = tap_spec(TAP_RESULT_POOLED)->name;
    r->sink.on_tap(r->sink.user, &(plumb_tap) { name, -1, first, n_vector, 1, n_out, out });
}

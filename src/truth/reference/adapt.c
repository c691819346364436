/* Adapters in the reference pass, and those inside the model's file.
 * W x + scale alpha / rank B (A x)                Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"
 * x + scale direction, at the end of a layer      Zou et al. 2023, "Representation Engineering" */
#include "reference/steps.h"

#include <stdlib.h>

plumb_status reference_set_adapters(struct reference *r, const struct adapter_set *set) {
    const struct weight *output = r->right->output.w;
    struct weight a, b;
    float factor;
    uint64_t max_rank = r->right->plan.adapters.n_rank, n_logit = 0;
    if (set && set->max_rank > max_rank) max_rank = set->max_rank;
    uint64_t n_low = r->n_batch * max_rank;
    for (size_t i = 0; set && output && i < set->n; i++) {
        if (adapter_find(set->uses[i].adapter, output, &a, &b, &factor)) n_logit = (uint64_t)r->n_batch * output->n_out;
    }
    double *low_rank = alloc_array(n_low, sizeof *low_rank);
    double *logits = n_logit > 0 ? alloc_array(n_logit, sizeof *logits) : NULL;
    if (!low_rank || (n_logit > 0 && !logits)) {
        free(low_rank);
        free(logits);
        return PLUMB_ERROR_MEMORY;
    }
    free(r->low_rank);
    free(r->logits);
    r->low_rank = low_rank;
    r->logits = logits;
    r->adapt_bytes = (n_low + n_logit) * sizeof *logits;
    r->adapters = set;
    return PLUMB_OK;
}

/* y (n, n_out) += low_rank B^T * factor */
static void add_products(const struct reference *r, const struct weight *b, uint32_t n, double factor, double *y) {
    const double *z = r->steps.input(r, b, r->low_rank, n);
    for (uint32_t o = 0; o < b->n_out; o++) {
        const float *row = reference_row(r, b, o);
        for (size_t t = 0; t < n; t++) y[t * b->n_out + o] += factor * reference_dot(row, z + t * b->n_in, b->n_in);
    }
}

void reference_adapt(const struct reference *r, const struct weight *w, const double *x, uint32_t n, double *y) {
    for (size_t i = 0; i < r->adapters->n; i++) {
        const struct adapter_use *use = &r->adapters->uses[i];
        struct weight a, b;
        float factor;
        if (!adapter_find(use->adapter, w, &a, &b, &factor)) continue;
        const double *in = r->steps.input(r, &a, x, n);
        for (uint32_t k = 0; k < a.n_out; k++) {
            const float *row = reference_row(r, &a, k);
            for (size_t t = 0; t < n; t++) r->low_rank[t * a.n_out + k] = reference_dot(row, in + t * a.n_in, a.n_in);
        }
        add_products(r, &b, n, (double)factor * (double)use->scale, y);
    }
}

/* The mean, rounded, of the numbers of the adapters that the tokens up to one switch on, where a token that switches
 * weighs e^gain, and one that does not, with the number 0, e^-gain                      IBM 2025, "Granite Switch" */
void reference_choose_adapters(struct reference *r, const int32_t *ids, uint32_t n, uint32_t pos) {
    const struct switch_plan *p = &r->plan.adapters;
    for (uint32_t t = 0; p->n > 0 && t < n; t++) r->switches[pos + t] = plan_adapter_of(&r->plan, ids[t]);
    for (uint32_t t = 0; p->n > 0 && t < n; t++) {
        double sum = 0, weights = 0;
        for (uint32_t i = 0; i <= pos + t; i++) {
            double weight = r->switches[i] > 0 ? 1 : exp(-2 * (double)p->gain);
            sum += weight * r->switches[i];
            weights += weight;
        }
        float mean = weights > 0 ? (float)(sum / weights) : 0;
        r->adapter_of[t] = (uint32_t)((double)mean + 0.5);
    }
}

void reference_adapt_switched(const struct reference *r, const struct affine *of, const double *x, uint32_t n,
                              double *y) {
    for (size_t t = 0; t < n; t++) {
        const struct weight a = weight_expert(of->lora_a, r->adapter_of[t]);
        const struct weight b = weight_expert(of->lora_b, r->adapter_of[t]);
        const double *in = r->steps.input(r, &a, x + t * a.n_in, 1);
        for (uint32_t k = 0; k < a.n_out; k++) r->low_rank[k] = reference_dot(reference_row(r, &a, k), in, a.n_in);
        add_products(r, &b, 1, 1, y + t * b.n_out);
    }
}

void reference_adapt_embeddings(const struct reference *r, const int32_t *ids, uint32_t n, double *x) {
    for (size_t i = 0; i < r->adapters->n; i++) {
        const struct adapter_use *use = &r->adapters->uses[i];
        const struct adapter_pair *pair = adapter_embedding(use->adapter);
        if (!pair) continue;
        size_t rank = pair->a.n_in;
        for (size_t t = 0; t < n; t++) {
            const float *row = reference_row(r, &pair->a, (size_t)plan_embedded_as(&r->plan, ids[t]));
            for (size_t k = 0; k < rank; k++) r->low_rank[t * rank + k] = (double)row[k];
        }
        add_products(r, &pair->b, n, (double)pair->factor * (double)use->scale, x);
    }
}

void reference_adapt_layer(const struct reference *r, uint32_t il, uint32_t n) {
    size_t n_embd = r->plan.n_embd, n_other = r->plan.n_stream > 0 ? r->plan.n_stream - 1 : 0;
    if (!r->adapters->directions) return;
    const float *direction = r->adapters->directions + il * n_embd;
    for (size_t i = 0; i < n * n_embd; i++) r->x[i] += (double)direction[i % n_embd];
    for (size_t i = 0; i < n * n_other * n_embd; i++) r->streams[STREAM_OTHERS][i] += (double)direction[i % n_embd];
}

/* What follows the output matrix: scale, softcap, and what an engine may do to logits before it shows them.  That the
 * logits are those of another matrix or of another activation is for fit_linear. */
#include "diagnose/fit.h"

#include <math.h>

/* The logits before the plan's softcap. */
static double uncapped(double cap, double z) {
    return cap != 0 ? cap * atanh(fmin(fmax(z / cap, -1 + 1e-12), 1 - 1e-12)) : z;
}

/* The mean of the cap that explains each logit whose right value is large enough to tell, by halving an interval:
 * cap * tanh(z / cap) grows with the cap. */
static double find_cap(const struct fit *f, double own) {
    double sum = 0, n = 0;
    size_t n_value = f->theirs.n_token * fit_width(&f->theirs);
    for (size_t i = 0; i < n_value && n < 1000; i++) {
        double z = uncapped(own, (double)f->truth.x[i]), theirs = (double)f->theirs.x[i];
        double low = fabs(theirs), high = 1e4;
        bool tells = fabs(z) > 1 && z * theirs > 0 && fabs(theirs) < fabs(z) * (1 - 1e-4);
        if (!tells) continue;
        for (int step = 0; step < 100; step++) {
            double cap = (low + high) / 2;
            if (cap * tanh(fabs(z) / cap) < fabs(theirs)) low = cap;
            else high = cap;
        }
        sum += low;
        n++;
    }
    return n > 0 ? sum / n : 0;
}

void fit_logits(struct fit *f) {
    const struct plan *p = &f->model->plan;
    size_t width = fit_width(&f->theirs), n = f->theirs.n_token * width;
    double *y = fit_new(f, n, sizeof *y), own = (double)p->logit_softcap;
    if (!y) return;
    for (int kind = 0; kind < 4; kind++) {
        for (uint32_t t = 0; t < f->theirs.n_token; t++) {
            const float *right = fit_row(&f->truth, t);
            double max = -INFINITY, sum = 0, mean = 0;
            for (size_t i = 0; i < width; i++) max = fmax(max, (double)right[i]);
            for (size_t i = 0; i < width; i++) sum += exp((double)right[i] - max);
            for (size_t i = 0; i < width; i++) mean += (double)right[i] / (double)width;
            for (size_t i = 0; i < width; i++) {
                double z = (double)right[i] - max;
                y[t * width + i] = kind == 0 ? z - log(sum) : kind == 1 ? exp(z) / sum : kind == 2 ? z
                                 : (double)right[i] - mean;
            }
        }
        static const char *const texts[] = { "is the logarithm of the softmax of the logits",
                                             "is the softmax of the logits: probabilities",
                                             "is the logits minus the largest one", "is the logits minus their mean" };
        fit_propose(f, 0, y, "%s", texts[kind]);
    }
    if (own != 0) {
        for (size_t i = 0; i < n; i++) y[i] = uncapped(own, (double)f->truth.x[i]);
        fit_propose(f, 0, y, "has no softcap of %g", own);
        for (size_t i = 0; i < n; i++) y[i] = own * tanh((double)f->truth.x[i] / own);
        fit_propose(f, 0, y, "has the softcap twice");
        for (size_t i = 0; i < n; i++) y[i] = tanh(uncapped(own, (double)f->truth.x[i]) / own);
        fit_propose(f, 0, y, "is not multiplied by the softcap after tanh");
        for (size_t i = 0; i < n; i++) y[i] = own * tanh(uncapped(own, (double)f->truth.x[i]));
        fit_propose(f, 0, y, "is not divided by the softcap before tanh");
        for (size_t i = 0; i < n; i++) y[i] = fmin(fmax(uncapped(own, (double)f->truth.x[i]), -own), own);
        fit_propose(f, 0, y, "is clamped to the softcap instead of bent by tanh");
    }
    for (size_t i = 0; i < n; i++) y[i] = tanh(uncapped(own, (double)f->truth.x[i]));
    fit_propose(f, 0, y, "is tanh of the logits");
    double cap = find_cap(f, own);
    if (!(cap > 0)) return;
    for (size_t i = 0; i < n; i++) y[i] = cap * tanh(uncapped(own, (double)f->truth.x[i]) / cap);
    fit_propose(f, 1, y, "has a softcap of %.6g; the model has %g", cap, own);
}

/* What can be wrong in any step: it is skipped, its output is scaled or shifted, or rows or elements are exchanged. */
#include "diagnose/fit.h"

#include <math.h>

/* Proposes the right output times a number, which is fitted where the right step is wrong. */
static void try_factor(struct fit *f, double *y) {
    size_t n = f->theirs.n_token * fit_width(&f->theirs);
    double ab = 0, aa = 0;
    for (size_t i = 0; i < n; i++) {
        double a = (double)f->truth.x[i], b = (double)f->theirs.x[i];
        if (!f->wrong[i / f->theirs.n] || !isfinite(a) || !isfinite(b)) continue;
        ab += a * b;
        aa += a * a;
    }
    if (!(aa > 0)) return;
    double factor = ab / aa;
    for (size_t i = 0; i < n; i++) y[i] = factor * (double)f->truth.x[i];
    fit_propose(f, 1, y, "is %.6g times what it should be", factor);
}

void fit_scaled(struct fit *f) {
    size_t n = f->theirs.n_token * fit_width(&f->theirs);
    double *y = fit_new(f, n, sizeof *y);
    if (!y) return;
    fit_propose(f, 0, y, "is zero");
    try_factor(f, y);
}

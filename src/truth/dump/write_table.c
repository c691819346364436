/* Writes a trace as a table for people: one line for each tap, with its statistics over all tokens, and a second one
 * for kq_soft_max, with the mean of its entropies. */
#include "base/math.h"
#include "dump/dump.h"
#include "trace/report.h"

#include <math.h>
#include <stdio.h>

/* Statistics of all rows of a tap together; NAN if one of the rows does not know them.  n: the number of finite values.
 * entropy: the mean over the tokens and heads whose entropy is known. */
struct total { double n, mean, rms, min, max, n_nan, n_inf, entropy; };

static struct total total_of(const struct trace_tap *tap) {
    struct total t = { .min = INFINITY, .max = -INFINITY };
    double n_entropy = 0;
    for (uint32_t i = 0; i < tap->n_row; i++) {
        const struct trace_row *row = &tap->rows[i];
        const struct trace_stats *s = &row->stats;
        double n = (double)row->n_head * row->n - s->n_nan - s->n_inf;   /* mean and rms are of the finite values */
        t.n_nan += s->n_nan;
        t.n_inf += s->n_inf;
        for (uint32_t h = 0; row->entropy && h < row->n_head; h++) t.entropy += (double)row->entropy[h];
        if (row->entropy) n_entropy += row->n_head;
        if (n == 0) continue;
        t.n += n;
        t.mean += s->mean * n;
        t.rms += s->rms * s->rms * n;
        t.min = s->min < t.min || isnan(s->min) ? s->min : t.min;
        t.max = s->max > t.max || isnan(s->max) ? s->max : t.max;
    }
    t.mean = t.n != 0 ? t.mean / t.n : (double)NAN;   /* NAN too if n is not known */
    t.rms = t.n != 0 ? math_sqrt(t.rms / t.n) : (double)NAN;
    if (t.n == 0) t.min = t.max = (double)NAN;
    t.entropy = n_entropy > 0 ? t.entropy / n_entropy : (double)NAN;
    return t;
}

static void number(struct report_writer *w, double value) {
    if (isnan(value)) report_printf(w, " %9s", "-");
    else report_printf(w, " %9.3g", value);
}

void dump_write_table(const struct plumb_trace *t, plumb_write *write, void *user) {
    struct report_writer w;
    report_begin(&w, write, user);
    if (t->source && t->source[0] != 0) {
        report_text(&w, t->source, strlen(t->source));
        report_printf(&w, ", ");
    }
    report_printf(&w, "%u token%s", t->n_token, t->n_token == 1 ? "" : "s");
    if (t->n_prompt < t->n_token) report_printf(&w, ", %u of them as a prompt", t->n_prompt);
    report_printf(&w, "\n%-15s %6s %9s %9s %9s %9s %9s %7s\n", "tap", "tokens", "shape", "mean", "rms", "min", "max",
                  "NaN/Inf");
    for (size_t i = 0; i < t->n_tap; i++) {
        const struct trace_tap *tap = &t->taps[i];
        if (tap->n_row == 0) continue;
        const struct trace_row *last = &tap->rows[tap->n_row - 1];
        struct tap_text name;
        char shape[24];
        if (last->n_head > 1) snprintf(shape, sizeof shape, "%ux%u", last->n_head, last->n);
        else snprintf(shape, sizeof shape, "%u", last->n);
        struct total total = total_of(tap);
        report_printf(&w, "%-15s %6u %9s", tap_show(&name, tap->id, tap->layer), tap->n_row, shape);
        number(&w, total.mean);
        number(&w, total.rms);
        number(&w, total.min);
        number(&w, total.max);
        report_printf(&w, " %7.0f\n", total.n_nan + total.n_inf);
        /* The entropy gets a line of its own instead of a column, since only kq_soft_max has it. */
        if (tap->id == TAP_KQ_SOFT_MAX && !isnan(total.entropy)) {
            report_printf(&w, "%-15s %6u %9u %9.3g\n", "  entropy", tap->n_row, last->n_head, total.entropy);
        }
    }
    report_flush(&w);
}

/* Writes a trace as JSON, one record a line.  The schema is docs/trace.md. */
#include "dump/dump.h"
#include "trace/report.h"

#include <math.h>
#include <stdio.h>

/* Writes a number with enough digits to restore it: 9 for an f32, 17 for a double.  NaN and infinity are written as
 * strings, which every JSON reader accepts. */
static void write_number(struct report_writer *w, double value, int n_digit) {
    if (isnan(value)) {
        report_bytes(w, "\"NaN\"", 5);
    } else if (isinf(value)) {
        if (value > 0) report_bytes(w, "\"Infinity\"", 10);
        else report_bytes(w, "\"-Infinity\"", 11);
    } else if (value == 0 && signbit(value)) {
        report_bytes(w, "-0.0", 4);   /* Python reads "-0" as the integer 0 */
    } else {
        char text[40];
        int n = snprintf(text, sizeof text, "%.*g", n_digit, value);
        for (int i = 0; i < n; i++) {
            if (text[i] == ',') text[i] = '.';   /* the decimal point of some locales */
        }
        report_bytes(w, text, (size_t)n);
    }
}

static void write_stat(struct report_writer *w, const char *name, double value, int n_digit) {
    if (isnan(value)) return;   /* not known */
    report_printf(w, ",\"%s\":", name);
    write_number(w, value, n_digit);
}

static void write_floats(struct report_writer *w, const char *name, const float *values, uint32_t n) {
    report_printf(w, ",\"%s\":[", name);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) report_bytes(w, ",", 1);
        write_number(w, (double)values[i], 9);
    }
    report_bytes(w, "]", 1);
}

static void write_row(struct report_writer *w, const char *name, const struct trace_row *row) {
    report_printf(w, "{\"name\":\"%s\"", name);
    if (row->pos != TRACE_ALL_TOKENS) report_printf(w, ",\"token\":%u", row->pos);
    if (row->n_head > 1) report_printf(w, ",\"shape\":[%u,%u]", row->n_head, row->n);
    else if (row->n > 0) report_printf(w, ",\"shape\":[%u]", row->n);
    write_stat(w, "mean", row->stats.mean, 17);
    write_stat(w, "rms", row->stats.rms, 17);
    write_stat(w, "min", row->stats.min, 9);
    write_stat(w, "max", row->stats.max, 9);
    write_stat(w, "nan", row->stats.n_nan, 17);
    write_stat(w, "inf", row->stats.n_inf, 17);
    if (row->entropy) write_floats(w, "entropy", row->entropy, row->n_head);
    if (row->quantum > 0) write_stat(w, "quantum", (double)row->quantum, 9);
    if (row->n_top > 0) report_printf(w, ",\"n_top\":%u", row->n_top);
    if (row->places) {
        report_bytes(w, ",\"places\":[", 11);
        for (uint32_t i = 0; i < row->n_value; i++) report_printf(w, i > 0 ? ",%u" : "%u", row->places[i]);
        report_bytes(w, "]", 1);
    }
    if (row->n_value > 0) write_floats(w, "values", row->values, row->n_value);
    report_bytes(w, "}", 1);
}

void dump_write_json(const struct plumb_trace *t, plumb_write *write, void *user) {
    struct report_writer w;
    report_begin(&w, write, user);
    report_printf(&w, "{\"plumb_trace\":1");
    if (t->source) report_json_text(&w, ",\n\"program\":", t->source);
    if (t->tokens) {
        report_printf(&w, ",\n\"tokens\":[");
        for (uint32_t i = 0; i < t->n_token; i++) report_printf(&w, i > 0 ? ",%d" : "%d", (int)t->tokens[i]);
        report_printf(&w, "],\n\"n_prompt\":%u", t->n_prompt);
    }
    if (t->tokens && t->pieces) {
        report_printf(&w, ",\n\"pieces\":[");
        for (uint32_t i = 0; i < t->n_token; i++) {
            report_json_text(&w, i > 0 ? "," : "", t->pieces[i] ? t->pieces[i] : "");
        }
        report_bytes(&w, "]", 1);
    }
    if (t->n_text > 0) {
        report_printf(&w, ",\n\"texts\":[");
        for (size_t i = 0; i < t->n_text; i++) {
            report_printf(&w, "%s[%d,", i > 0 ? "," : "", (int)t->texts[i].id);
            report_json_string(&w, t->texts[i].text, strlen(t->texts[i].text));
            report_bytes(&w, "]", 1);
        }
        report_bytes(&w, "]", 1);
    }
    if (t->bos >= 0) report_printf(&w, ",\n\"bos\":%d", (int)t->bos);
    struct trace_order_text order;
    if (t->order) report_printf(&w, ",\n\"tap_order\":\"%s\"", trace_show_order(&order, t->order));
    report_printf(&w, ",\n\"taps\":[");
    const char *between = "\n";
    for (size_t i = 0; i < t->n_tap; i++) {
        struct tap_text name;
        tap_show(&name, t->taps[i].id, t->taps[i].layer);
        for (uint32_t k = 0; k < t->taps[i].n_row; k++) {
            report_bytes(&w, between, strlen(between));
            write_row(&w, name.text, &t->taps[i].rows[k]);
            between = ",\n";
        }
    }
    report_printf(&w, "\n]}\n");
    report_flush(&w);
}

/* plumb inspect prints keys, tensors and the totals of each type.  It reads the header only. */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_ELEMENTS = 8, SHOWN_BYTES = 200 };

/* Element j of key i as text of *n bytes, to be freed. */
static char *key_value(const plumb_model *model, uint64_t i, uint64_t j, size_t *n) {
    *n = plumb_model_key_value(model, i, j, NULL, 0);
    char *text = allocate(*n + 1);
    plumb_model_key_value(model, i, j, text, *n + 1);
    return text;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static uint64_t n_shown(const plumb_model *model, uint64_t i) {
    uint64_t n = plumb_model_key_count(model, i);
    return n < SHOWN_ELEMENTS ? n : SHOWN_ELEMENTS;
}

/* ---- totals ------------------------------------------------------------------------------------------------------ */

struct total { const char *type; uint64_t n_tensor, n_element, n_bytes; };
enum { MAX_TYPES = 64 };   /* upper bound; GGUF has fewer */

static uint64_t n_elements(const plumb_tensor *t) { return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]; }

static size_t sum_types(const plumb_model *model, struct total *totals) {
    size_t n = 0;
    plumb_tensor t;
    for (uint64_t i = 0; plumb_model_tensor(model, i, &t) == PLUMB_OK; i++) {
        size_t k = 0;
        while (k < n && strcmp(totals[k].type, t.type) != 0) k++;
        if (k == MAX_TYPES) continue;
        if (k == n) totals[n++] = (struct total){ .type = t.type };
        totals[k].n_tensor++;
        totals[k].n_element += n_elements(&t);
        totals[k].n_bytes += t.n_bytes;
    }
    return n;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

static void print_key(const plumb_model *model, uint64_t i) {
    const char *type = plumb_model_key_type(model, i);
    uint64_t count = plumb_model_key_count(model, i);
    bool is_array = strncmp(type, "array", 5) == 0, quoted = ends_with(type, "string");
    out("  ");
    out_escaped(plumb_model_key_name(model, i), strlen(plumb_model_key_name(model, i)));
    if (is_array) out("  %s [%" PRIu64 "]", type, count);
    else out("  %s", type);
    for (uint64_t j = 0; j < n_shown(model, i); j++) {
        size_t n;
        char *value = key_value(model, i, j, &n);
        out(quoted ? " \"" : " ");
        out_escaped(value, n < SHOWN_BYTES ? n : SHOWN_BYTES);
        if (quoted) out("\"");
        if (n > SHOWN_BYTES) out("... (%zu bytes)", n);
        free(value);
    }
    out(count > SHOWN_ELEMENTS ? " ...\n" : "\n");
}

static void print_total(const struct total *t) {
    double bits = t->n_element > 0 ? 8 * (double)t->n_bytes / (double)t->n_element : 0;
    out("  %-7s  %5" PRIu64 " tensors  %14" PRIu64 " elements  %14" PRIu64 " bytes  %6.3f bits per element\n", t->type,
        t->n_tensor, t->n_element, t->n_bytes, bits);
}

static void write_text(void *user, const char *bytes, size_t n) {
    (void)user;
    out_bytes(bytes, n);
}

static void print_text(plumb_model *model, const char *path) {
    out_text(path);
    out("\n\nwhat it computes\n");
    /* Files that are no models, and models that plumb does not run, can be inspected too. */
    if (plumb_model_describe(model, write_text, NULL) != PLUMB_OK) {
        out("  ");
        out_text(plumb_model_error(model));
        out("\n");
    }
    out("\n%" PRIu64 " keys\n", plumb_model_n_key(model));
    for (uint64_t i = 0; i < plumb_model_n_key(model); i++) print_key(model, i);
    out("\n%" PRIu64 " tensors\n", plumb_model_n_tensor(model));
    plumb_tensor t;
    for (uint64_t i = 0; plumb_model_tensor(model, i, &t) == PLUMB_OK; i++) {
        char shape[100];
        int at = 0;
        for (uint32_t d = 0; d < t.n_dims; d++) {
            at += snprintf(shape + at, sizeof shape - (size_t)at, d > 0 ? " x %" PRIu64 : "%" PRIu64, t.shape[d]);
        }
        out("  ");
        out_escaped(t.name, strlen(t.name));
        int n_pad = strlen(t.name) < 28 ? 28 - (int)strlen(t.name) : 0;
        out("%*s  %-7s  %-16s  %" PRIu64 " bytes\n", n_pad, "", t.type, shape, t.n_bytes);
    }
    struct total totals[MAX_TYPES], all = { .type = "all" };
    size_t n = sum_types(model, totals);
    out("\ntotals\n");
    for (size_t i = 0; i < n; i++) {
        print_total(&totals[i]);
        all.n_tensor += totals[i].n_tensor;
        all.n_element += totals[i].n_element;
        all.n_bytes += totals[i].n_bytes;
    }
    print_total(&all);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void json_value(const char *type, const char *value, size_t n) {
    /* JSON has no numbers for infinities and NaN: they become strings. */
    bool is_number = !ends_with(type, "string") && strpbrk(value, "0123456789") != NULL;
    if (is_number || ends_with(type, "bool")) out_bytes(value, n);
    else out_json_string(value, n);
}

static void json_key(const plumb_model *model, uint64_t i) {
    const char *name = plumb_model_key_name(model, i), *type = plumb_model_key_type(model, i);
    bool is_array = strncmp(type, "array", 5) == 0;
    out(i > 0 ? ",\n    " : "\n    ");
    out_json_string(name, strlen(name));
    out(": {\"type\": \"%s\", \"count\": %" PRIu64 ", \"value\": %s", type, plumb_model_key_count(model, i),
        is_array ? "[" : "");
    for (uint64_t j = 0; j < n_shown(model, i); j++) {
        size_t n;
        char *value = key_value(model, i, j, &n);
        if (j > 0) out(", ");
        json_value(type, value, n);
        free(value);
    }
    out(is_array ? "]}" : "}");
}

static void print_json(const plumb_model *model) {
    out("{\n  \"keys\": {");
    for (uint64_t i = 0; i < plumb_model_n_key(model); i++) json_key(model, i);
    out("\n  },\n  \"tensors\": [");
    plumb_tensor t;
    for (uint64_t i = 0; plumb_model_tensor(model, i, &t) == PLUMB_OK; i++) {
        out(i > 0 ? ",\n    {\"name\": " : "\n    {\"name\": ");
        out_json_string(t.name, strlen(t.name));
        out(", \"type\": \"%s\", \"shape\": [", t.type);
        for (uint32_t d = 0; d < t.n_dims; d++) out(d > 0 ? ", %" PRIu64 : "%" PRIu64, t.shape[d]);
        out("], \"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", t.offset, t.n_bytes);
    }
    struct total totals[MAX_TYPES];
    size_t n = sum_types(model, totals);
    out("\n  ],\n  \"totals\": {");
    for (size_t i = 0; i < n; i++) {
        out("%s\n    \"%s\": {\"tensors\": %" PRIu64 ", \"elements\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
            i > 0 ? "," : "", totals[i].type, totals[i].n_tensor, totals[i].n_element, totals[i].n_bytes);
    }
    out("\n  }\n}\n");
}

/* Prints a message if the size of the file is known and the file ends before its tensors do. */
static void report_cut(const plumb_model *model, const char *path) {
    uint64_t size = file_size(path), end = 0;
    plumb_tensor t;
    for (uint64_t i = 0; plumb_model_tensor(model, i, &t) == PLUMB_OK; i++) {
        if (t.offset + t.n_bytes > end) end = t.offset + t.n_bytes;
    }
    if (size < end) {
        print_error(0, "%s: it has %" PRIu64 " bytes, but its tensors end at byte %" PRIu64 ": the rest is missing",
                    path, size, end);
    }
}

int run_inspect(const struct options *options) {
    plumb_model *model;
    int code = load_model(&model, options->files, options->n_file, LOAD_HEADER);
    if (code != EXIT_OK) return code;
    if (options->json) print_json(model);
    else print_text(model, options->files[0]);
    if (options->n_file == 1) report_cut(model, options->files[0]);
    plumb_model_free(model);
    return out_close(EXIT_OK);
}

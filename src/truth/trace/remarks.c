#include "trace/remarks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The text names this many of the records that share a reason, and this many remarks of each other kind.  JSON has all
 * that are kept. */
enum { SHOWN_NAMES = 8, SHOWN = 4 };

const char *remark_kind_name(enum remark_kind kind) {
    static const char *const names[REMARK_COUNT] = {
        [REMARK_UNKNOWN] = "unknown_name", [REMARK_SECOND] = "second_name", [REMARK_FORM] = "form",
        [REMARK_LAYER] = "layer", [REMARK_ABSENT] = "absent_step", [REMARK_LENGTH] = "length", [REMARK_AXES] = "axes",
        [REMARK_SHIFTED] = "layers_from_1", [REMARK_PADDING] = "padding", [REMARK_RANGE] = "out_of_range",
        [REMARK_TOKENS] = "tokens", [REMARK_NOT_FINITE] = "not_finite", [REMARK_ZEROS] = "zeros",
    };
    return names[kind];
}

plumb_status remarks_add(struct remarks *r, struct error *err, enum remark_kind kind, const char *name, size_t n,
                         const char *format, ...) {
    if (r->n_of[kind] < REMARKS_KEPT) {
        if (!ARRAY_GROW(r->list, r->n, &r->cap)) {
            return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %zu remarks on a dump", r->n);
        }
        struct remark *to = &r->list[r->n++];
        struct shown shown;
        to->kind = kind;
        snprintf(to->name, sizeof to->name, "%.67s", show_bytes(&shown, name, n));
        va_list args;
        va_start(args, format);
        vsnprintf(to->text, sizeof to->text, format, args);
        va_end(args);
    }
    r->n_of[kind] += r->n_of[kind] < UINT32_MAX;
    return PLUMB_OK;
}

plumb_status remarks_copy(struct remarks *out, const struct remarks *r, struct error *err) {
    *out = *r;
    out->cap = r->n;
    out->list = NULL;
    if (r->n == 0) return PLUMB_OK;
    out->list = alloc_array(r->n, sizeof *out->list);
    if (!out->list) {
        *out = (struct remarks) { .n = 0 };
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %zu remarks on a dump", r->n);
    }
    memcpy(out->list, r->list, r->n * sizeof *out->list);
    return PLUMB_OK;
}

void remarks_free(struct remarks *r) {
    free(r->list);
    *r = (struct remarks) { .n = 0 };
}

uint32_t remarks_n_ignored(const struct remarks *r) {
    uint64_t n = 0;
    for (int kind = 0; kind < REMARK_COUNT; kind++) n += remark_ignores((enum remark_kind)kind) ? r->n_of[kind] : 0;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

const struct remark *remarks_first_ignored(const struct remarks *r) {
    for (size_t i = 0; i < r->n; i++) {
        if (remark_ignores(r->list[i].kind)) return &r->list[i];
    }
    return NULL;
}

/* Writes one line for all records whose name no tap has: there may be hundreds, as in llama-eval-callback's output. */
static void text_unknown(const struct remarks *r, struct report_writer *w) {
    char text[SHOWN_NAMES * 70 + 120];
    size_t n = 0, n_named = 0;
    uint32_t n_all = r->n_of[REMARK_UNKNOWN];
    if (n_all == 0) return;
    report_append(text, sizeof text, &n, n_all == 1 ? "%u record was ignored, because no tap has its name:"
                  : "%u records were ignored, because no tap has their names:", n_all);
    for (size_t i = 0; i < r->n && n_named < SHOWN_NAMES; i++) {
        if (r->list[i].kind != REMARK_UNKNOWN) continue;
        report_append(text, sizeof text, &n, "%s %s", n_named > 0 ? "," : "", r->list[i].name);
        n_named++;
    }
    if (n_all > n_named) report_append(text, sizeof text, &n, " and %zu more", n_all - n_named);
    report_printf(w, "   ");
    report_wrapped(w, text, n, 3);
}

void remarks_text(const struct remarks *r, struct report_writer *w) {
    text_unknown(r, w);
    for (int kind = REMARK_UNKNOWN + 1; kind < REMARK_COUNT; kind++) {
        size_t n_shown = 0;
        for (size_t i = 0; i < r->n && n_shown < SHOWN; i++) {
            const struct remark *remark = &r->list[i];
            if ((int)remark->kind != kind) continue;
            char text[sizeof remark->name + sizeof remark->text + 20];
            size_t n = 0;
            report_append(text, sizeof text, &n, "%s%s: %s", remark->name,
                          remark_ignores(remark->kind) ? " was ignored" : "", remark->text);
            report_printf(w, "   ");
            report_wrapped(w, text, n, 3);
            n_shown++;
        }
        if (r->n_of[kind] > n_shown) report_printf(w, "   and %zu more like this\n", r->n_of[kind] - n_shown);
    }
}

void remarks_json(const struct remarks *r, struct report_writer *w) {
    report_printf(w, "[");
    for (size_t i = 0; i < r->n; i++) {
        const struct remark *remark = &r->list[i];
        report_printf(w, "%s{\"kind\":\"%s\"", i > 0 ? "," : "", remark_kind_name(remark->kind));
        report_json_text(w, ",\"name\":", remark->name);
        report_json_text(w, ",\"text\":", remark->text);
        report_printf(w, ",\"ignored\":%s}", remark_ignores(remark->kind) ? "true" : "false");
    }
    report_printf(w, "]");
}

/* Writes a diff as text for a terminal, and as JSON (docs/diff.md). */
#include "diff/diff.h"

#include <math.h>
#include <stdio.h>

static void write_text(struct report_writer *w, const char *text) { report_text(w, text, strlen(text)); }

/* Pads a text of n characters to `width` with spaces, but with at least one. */
static void pad(struct report_writer *w, size_t n, size_t width) {
    do report_bytes(w, " ", 1);
    while (++n < width);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void text_side(struct report_writer *w, char letter, const char *name, const struct plumb_trace *t) {
    report_printf(w, "%c  ", letter);
    pad(w, report_text(w, name, strlen(name)), 24);
    if (t->source && t->source[0]) {
        write_text(w, t->source);
        report_bytes(w, ", ", 2);
    }
    if (t->tokens) report_printf(w, "%u tokens, ", t->n_token);
    report_printf(w, "%zu taps\n", t->n_tap);
    remarks_text(&t->remarks, w);
}

/* Writes a paragraph in lines of at most 80 characters, unless a single word needs more.  Lines are not broken at a
 * space after a quotation mark, because the space may be the beginning of a token's text. */
static void text_paragraph(struct report_writer *w, const char *text, size_t n) {
    enum { WIDTH = 80 };
    size_t column = 0;
    for (size_t at = 0, end; at < n; at = end + 1) {
        size_t n_word = 0;
        for (end = at; end < n && (text[end] != ' ' || text[end - (end > 0)] == '"'); end++) {
            n_word += (text[end] & 0xc0) != 0x80;
        }
        bool is_full = column > 0 && column + 1 + n_word > WIDTH;
        if (at > 0) report_bytes(w, is_full ? "\n" : " ", 1);
        report_text(w, text + at, end - at);
        column = (is_full || at == 0 ? 0 : column + 1) + n_word;
    }
    report_bytes(w, "\n", 1);
}

/* Writes a token's text in quotes.  Returns the number of characters written; 0 if the text is not known. */
static size_t text_piece(const struct diff *d, struct report_writer *w, int32_t id) {
    char piece[96];
    int64_t n = tokens_piece(d->a, d->b, d->vocab, id, piece, sizeof piece);
    if (n < 0) return 0;
    report_bytes(w, "\"", 1);
    size_t n_shown = report_text(w, piece, n < (int64_t)sizeof piece ? (size_t)n : sizeof piece);
    report_bytes(w, "\"", 1);
    return n_shown + 2;
}

/* Writes both lists of tokens around the index where they differ.  Returns true if the texts of all tokens that it
 * wrote are known. */
static bool text_tokens(const struct diff *d, struct report_writer *w) {
    enum { BEFORE = 2, AFTER = 4 };
    bool is_known = true;
    uint32_t from = d->tokens.first > BEFORE ? d->tokens.first - BEFORE : 0;
    const struct plumb_trace *const sides[] = { d->a, d->b };
    report_printf(w, "\nfrom token %u on\n", from);
    for (size_t s = 0; s < 2; s++) {
        report_printf(w, "%c ", "AB"[s]);
        for (uint32_t i = from; i < sides[s]->n_token && i < d->tokens.first + AFTER; i++) {
            report_printf(w, i == d->tokens.first ? "  | %d " : "  %d ", (int)sides[s]->tokens[i]);
            is_known &= text_piece(d, w, sides[s]->tokens[i]) > 0;
        }
        report_bytes(w, "\n", 1);
    }
    return is_known;
}

/* Writes the line of tap i. */
static void text_tap(const struct diff *d, struct report_writer *w, size_t i) {
    const struct diff_tap *tap = &d->taps[i];
    struct tap_text name;
    tap_show(&name, tap->id, tap->layer);
    report_printf(w, "%-2s%-18s", i == d->first ? ">>" : tap->over ? ">" : "", name.text);
    if (tap->shapes_differ) {
        report_printf(w, " A has %u x %u values per token, B has %u x %u\n", tap->shape_a[0], tap->shape_a[1],
                      tap->shape_b[0], tap->shape_b[1]);
        return;
    }
    /* Two columns of numbers that are mostly short make room for a longer name. */
    size_t n = strlen(name.text), longer = n > 18 ? n - 18 : 0, of_tokens = longer < 4 ? longer : 4;
    size_t of_values = longer - of_tokens < 5 ? longer - of_tokens : 5;
    report_printf(w, "%*u", 7 - (int)of_tokens, tap->c.n_row);
    uint64_t n_value = tap->c.n_value + tap->c.n_bound;
    if (n_value > 0) {
        char at[32];
        snprintf(at, sizeof at, "[%u, %u]", tap->c.max_pos, tap->c.max_place);
        report_printf(w, "%*llu %8.3g %8.3g  %-14s", 9 - (int)of_values, (unsigned long long)n_value, tap->error,
                      tap->c.max_d, at);
        if (isnan(tap->cosine)) report_printf(w, "-\n");
        else report_printf(w, "%.7f\n", tap->cosine);
    } else {
        report_printf(w, "%*s %8.3g %8s  from statistics\n", 9 - (int)of_values, "-", tap->error, "-");
    }
}

/* Writes the likeliest tokens of both sides.  Returns true if the texts of all of them are known. */
static bool text_top(const struct diff *d, struct report_writer *w) {
    uint32_t n = d->n_top_a > d->n_top_b ? d->n_top_a : d->n_top_b;
    report_printf(w, "\nlikeliest after token %u%s\n", d->top_pos, d->top_a[0].place == d->top_b[0].place ? ""
                  : ": the first is not the same");
    report_printf(w, "    %-36s%s\n", "A", "B");
    bool is_known = true;
    for (uint32_t i = 0; i < n; i++) {
        report_printf(w, "%2u  ", i + 1);
        size_t n_shown = 0;
        if (i < d->n_top_a) {
            char figures[40];
            int n_figures = snprintf(figures, sizeof figures, "%9.4f %7d ", (double)d->top_a[i].value,
                                     (int)d->top_a[i].place);
            report_printf(w, "%s", figures);
            size_t n_piece = text_piece(d, w, (int32_t)d->top_a[i].place);
            is_known &= n_piece > 0;
            n_shown = (size_t)n_figures + n_piece;
        }
        pad(w, n_shown, 36);
        if (i < d->n_top_b) {
            report_printf(w, "%9.4f %7d ", (double)d->top_b[i].value, (int)d->top_b[i].place);
            is_known &= text_piece(d, w, (int32_t)d->top_b[i].place) > 0;
        }
        report_bytes(w, "\n", 1);
    }
    return is_known;
}

/* Names the first taps that only `t` has: " (Qcur-0, Kcur-0...)". */
static void text_only(struct report_writer *w, const struct plumb_trace *t, const struct plumb_trace *other) {
    enum { SHOWN = 3 };
    size_t n = 0;
    for (size_t i = 0; i < t->n_tap && n <= SHOWN; i++) {
        struct tap_text name;
        if (trace_find_tap(other, t->taps[i].id, t->taps[i].layer)) continue;
        if (n++ == SHOWN) report_printf(w, "...");
        else report_printf(w, "%s%s", n > 1 ? ", " : " (", tap_show(&name, t->taps[i].id, t->taps[i].layer));
    }
    if (n > 0) report_printf(w, ")");
}

void diff_text(const struct diff *d, struct report_writer *w) {
    text_side(w, 'A', d->name_a, d->a);
    text_side(w, 'B', d->name_b, d->b);
    bool is_known = true;
    if (!tokens_comparable(d->tokens.kind)) is_known = text_tokens(d, w);
    else if (d->tokens.kind != TOKENS_SAME) text_paragraph(w, d->tokens.text, strlen(d->tokens.text));
    if (d->n_tap > 0) {
        report_printf(w, "\n  %-18s%7s%9s %8s %8s  %-14s%s\n", "tap", "tokens", "values", "error", "max |d|", "at",
                      "cosine");
        for (size_t i = 0; i < d->n_tap; i++) text_tap(d, w, i);
    }
    if (d->n_only_a + d->n_only_b > 0) {
        report_printf(w, "%zu taps are only in A", d->n_only_a);
        text_only(w, d->a, d->b);
        report_printf(w, ", %zu only in B", d->n_only_b);
        text_only(w, d->b, d->a);
        report_bytes(w, "\n", 1);
    }
    if (d->n_incomparable > 0) report_printf(w, "%zu taps have nothing in common to compare\n", d->n_incomparable);
    if (d->n_top_a > 0 && d->n_top_b > 0) is_known &= text_top(d, w);
    if (!is_known && !d->vocab) report_printf(w, "--model MODEL shows the texts of the tokens\n");
    report_bytes(w, "\n", 1);
    for (const char *at = d->verdict; *at;) {
        size_t n = strcspn(at, "\n");
        if (strncmp(at, "Next: ", 6) == 0) {   /* a command to copy: not wrapped */
            report_text(w, at, n);
            report_bytes(w, "\n", 1);
        } else {
            text_paragraph(w, at, n);
        }
        at += n + (at[n] == '\n');
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_side(const struct diff *d, struct report_writer *w, const char *key, const char *name,
                      const struct plumb_trace *t, size_t n_only) {
    report_printf(w, "\"%s\":{", key);
    report_json_text(w, "\"name\":", name);
    report_json_text(w, ",\"source\":", t->source ? t->source : "");
    report_printf(w, ",\"tokens\":");
    for (uint32_t i = 0; t->tokens && i < t->n_token; i++) report_printf(w, "%s%d", i ? "," : "[", (int)t->tokens[i]);
    report_printf(w, t->tokens ? "]" : "null");
    report_printf(w, ",\"n_tap\":%zu,\"n_only_here\":%zu,\"n_ignored\":%u,\"qk_permuted\":%s,\"remarks\":",
                  t->n_tap, n_only, remarks_n_ignored(&t->remarks), t == &d->permuted ? "true" : "false");
    remarks_json(&t->remarks, w);
    report_printf(w, "},\n");
}

/* Writes {"id":3,"piece":"x" */
static void json_piece(const struct diff *d, struct report_writer *w, int32_t id) {
    char piece[96];
    int64_t n = tokens_piece(d->a, d->b, d->vocab, id, piece, sizeof piece);
    report_printf(w, "{\"id\":%d,\"piece\":", (int)id);
    if (n < 0) report_printf(w, "null");
    else report_json_string(w, piece, n < (int64_t)sizeof piece ? (size_t)n : sizeof piece);
}

/* Writes {"id":3,"piece":"x"} for token i of t, or null if there is no such token. */
static void json_token(const struct diff *d, struct report_writer *w, const struct plumb_trace *t, uint32_t i) {
    if (i < t->n_token) json_piece(d, w, t->tokens[i]);
    report_printf(w, i < t->n_token ? "}" : "null");
}

static void json_tokens(const struct diff *d, struct report_writer *w) {
    report_printf(w, "\"tokens\":{\"verdict\":\"%s\"", tokens_kind_name(d->tokens.kind));
    report_json_text(w, ",\"text\":", d->tokens.text);
    if (d->tokens.kind == TOKENS_SAME || d->tokens.kind == TOKENS_UNKNOWN) {
        report_printf(w, ",\"index\":null,\"a\":null,\"b\":null},\n");
        return;
    }
    report_printf(w, ",\"index\":%u,\"a\":", d->tokens.first);
    json_token(d, w, d->a, d->tokens.first);
    report_printf(w, ",\"b\":");
    json_token(d, w, d->b, d->tokens.first);
    report_printf(w, "},\n");
}

static void json_shape(struct report_writer *w, const char *key, const uint32_t shape[2]) {
    if (shape[0] == 0) report_printf(w, ",\"%s\":null", key);
    else report_printf(w, ",\"%s\":[%u,%u]", key, shape[0], shape[1]);
}

static void json_tap(struct report_writer *w, const struct diff_tap *tap) {
    struct tap_text name;
    report_printf(w, "{\"tap\":\"%s\",\"layer\":", tap_show(&name, tap->id, tap->layer));
    if (tap->layer < 0) report_printf(w, "null");
    else report_printf(w, "%d", (int)tap->layer);
    report_printf(w, ",\"over\":%s,\"n_token\":%u,\"n_value\":%llu,\"n_bound\":%llu,\"error\":%s,\"cosine\":%s,"
                  "\"rms_a\":%s,\"rms_b\":%s,\"n_nan\":%llu,\"max\":", tap->over ? "true" : "false", tap->c.n_row,
                  (unsigned long long)tap->c.n_value, (unsigned long long)tap->c.n_bound, JSON_NUMBER(tap->error),
                  JSON_NUMBER(tap->cosine), JSON_NUMBER(tap->rms_a), JSON_NUMBER(tap->rms_b),
                  (unsigned long long)tap->c.n_nan);
    if (tap->c.n_value + tap->c.n_bound > 0) {
        report_printf(w, "{\"d\":%s,\"token\":%u,\"place\":%u,\"a\":%s,\"b\":%s}", JSON_NUMBER(tap->c.max_d),
                      tap->c.max_pos, tap->c.max_place, JSON_NUMBER(tap->c.max_a), JSON_NUMBER(tap->c.max_b));
    } else {
        report_printf(w, "null");
    }
    json_shape(w, "shape_a", tap->shape_a);
    json_shape(w, "shape_b", tap->shape_b);
    report_bytes(w, "}", 1);
}

static void json_candidates(const struct diff *d, struct report_writer *w, const char *key,
                            const struct trace_value *top, uint32_t n) {
    report_printf(w, "\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) report_bytes(w, ",", 1);
        json_piece(d, w, (int32_t)top[i].place);
        report_printf(w, ",\"logit\":%s}", JSON_NUMBER((double)top[i].value));
    }
    report_bytes(w, "]", 1);
}

static void json_verdict(const struct diff *d, struct report_writer *w) {
    report_printf(w, "\"verdict\":{\"kind\":\"%s\",\"tap\":", diff_kind_name(d->kind));
    struct tap_text name;
    if (d->first < d->n_tap) {
        const struct diff_tap *tap = &d->taps[d->first];
        report_printf(w, "\"%s\"", tap_show(&name, tap->id, tap->layer));
        report_json_text(w, ",\"title\":", tap_title(tap->id));
        report_json_text(w, ",\"weights\":", tap_weights(tap->id));
    } else {
        report_printf(w, "null,\"title\":null,\"weights\":null");
    }
    report_printf(w, ",\"inputs\":[");
    for (uint32_t k = d->inputs.n; k-- > 0;) {
        const struct diff_tap *tap = &d->taps[d->inputs.taps[k]];
        report_printf(w, "{\"tap\":\"%s\",\"error\":%s}%s", tap_show(&name, tap->id, tap->layer),
                      JSON_NUMBER(tap->error), k > 0 ? "," : "");
    }
    report_printf(w, "],\"inputs_direct\":%s,\"growth\":%s", d->inputs.direct ? "true" : "false",
                  JSON_NUMBER(d->growth));
    report_json_text(w, ",\"text\":", d->verdict);
    report_printf(w, "}");
}

void diff_json(const struct diff *d, struct report_writer *w) {
    report_printf(w, "{\"format\":\"plumb diff\",\"agree\":%s,\"tolerance\":%s,\n", diff_agrees(d) ? "true" : "false",
                  JSON_NUMBER(d->tolerance));
    json_side(d, w, "a", d->name_a, d->a, d->n_only_a);
    json_side(d, w, "b", d->name_b, d->b, d->n_only_b);
    json_tokens(d, w);
    json_verdict(d, w);
    report_printf(w, ",\n\"n_over\":%zu,\"n_incomparable\":%zu,\"taps\":[", d->n_over, d->n_incomparable);
    for (size_t i = 0; i < d->n_tap; i++) {
        report_printf(w, i == 0 ? "\n" : ",\n");
        json_tap(w, &d->taps[i]);
    }
    report_printf(w, "],\n\"top\":");
    if (d->n_top_a > 0 && d->n_top_b > 0) {
        report_printf(w, "{\"token\":%u,\"same_first\":%s,", d->top_pos,
                      d->top_a[0].place == d->top_b[0].place ? "true" : "false");
        json_candidates(d, w, "a", d->top_a, d->n_top_a);
        report_bytes(w, ",", 1);
        json_candidates(d, w, "b", d->top_b, d->n_top_b);
        report_bytes(w, "}", 1);
    } else {
        report_printf(w, "null");
    }
    report_printf(w, "}\n");
}

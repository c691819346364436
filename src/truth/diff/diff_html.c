/* Writes a diff as one self-contained HTML page: it has no scripts and loads no fonts or pictures.
 *
 * Drawings are SVG with percentages as coordinates, so that they fit any width while their text keeps its size.
 * Colours are CSS classes, so that the page follows the system's light or dark mode.  Every text from a trace goes
 * through html_text.
 */
#include "diff/diff.h"

#include <math.h>
#include <stdio.h>

static const char page_head[] =
    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n";

/* The classes of errors (see colour) and their colours.  k0: no error.  k1 to k5: below the tolerance, one for each
 * decade, where k5 is the nearest to it.  h1 to h4: above the tolerance, one for each half decade. */
static const char page_style[] =
    "<style>\n"
    ":root{--ground:#faf9f6;--raised:#fff;--said:#efece5;--ink:#1f1e1b;--quiet:#6a665e;--line:#dedad1;\n"
    "--alarm:#a3341f;--fine:#2a6b58;--one:#2f5578;--two:#b4622a;--three:#6b4f9a;--k0:#e9efec;--k1:#d6e6e3;\n"
    "--k2:#b9d6d3;--k3:#95c1c2;--k4:#6ba6ab;--k5:#45858f;--h1:#f2c14e;--h2:#ea9538;--h3:#d65f28;--h4:#ab2318}\n"
    "@media(prefers-color-scheme:dark){:root{--ground:#161514;--raised:#201f1d;--said:#2c2a27;--ink:#eae8e3;\n"
    "--quiet:#a09b92;--line:#37342f;--alarm:#f0907c;--fine:#86cdb4;--one:#93b9dc;--two:#e6a56f;--three:#b9a0e6;\n"
    "--k0:#232b2a;--k1:#243635;--k2:#264545;--k3:#2a5658;--k4:#316b6f;--k5:#3f878c;--h1:#d9a93c;--h2:#e3893a;\n"
    "--h3:#e6633b;--h4:#f4433a}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--ground);color:var(--ink);-webkit-text-size-adjust:100%;font:1rem/1.55 system-ui,\n"
    "-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:76rem;margin:auto;padding:clamp(1.25rem,4vw,3rem) clamp(1rem,4vw,2rem) 4rem;display:grid;\n"
    "grid-template-columns:minmax(0,1fr);gap:2.75rem}\n"
    "h1,h2,p,dl,dd,ol{margin:0;padding:0}\n"
    "h1{font-size:clamp(1.5rem,5vw,2.25rem);line-height:1.15;letter-spacing:-.02em;font-weight:650;\n"
    "overflow-wrap:anywhere}\n"
    "h1.differ{color:var(--alarm)}h1.agree{color:var(--fine)}\n"
    "h2{font-size:1.0625rem;font-weight:650;letter-spacing:-.01em}\n"
    "header,section{display:grid;grid-template-columns:minmax(0,1fr);gap:.9rem}\n"
    "header p{max-width:60rem;text-wrap:pretty}h1+p::first-letter{text-transform:uppercase}\n"
    ".quiet,figcaption{color:var(--quiet);font-size:.8125rem}\n"
    "code,.mono{font-family:ui-monospace,\"SF Mono\",Menlo,\"DejaVu Sans Mono\",monospace;font-size:.9em;\n"
    "unicode-bidi:isolate;overflow-wrap:anywhere}\n"
    ".next code{display:block;background:var(--said);border-radius:.5rem;padding:.6rem .8rem}\n"
    ".sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,18rem),1fr));gap:.75rem}\n"
    ".card{background:var(--raised);border:1px solid var(--line);border-radius:.75rem;padding:.8rem 1rem;min-width:0}\n"
    ".card b{display:block;overflow-wrap:anywhere;font-weight:600}\n"
    ".facts{display:flex;flex-wrap:wrap;gap:.35rem 2.25rem}.facts dt{color:var(--quiet);font-size:.8125rem}\n"
    ".facts dd{font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums;letter-spacing:-.01em}\n"
    ".chips{display:flex;flex-wrap:wrap;gap:.3rem;list-style:none}\n"
    ".chips li{background:var(--raised);border:1px solid var(--line);border-radius:.4rem;padding:.1rem .45rem;\n"
    "max-width:100%;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8125rem}\n"
    ".chips small{color:var(--quiet);margin-inline-end:.4rem}.chips .off{border-color:var(--alarm);\n"
    "box-shadow:0 0 0 1px var(--alarm)}\n"
    "svg{display:block;width:100%;overflow:visible}svg text{fill:var(--quiet);font-size:11px}\n"
    ".drawn{display:grid;grid-template-columns:5rem minmax(0,1fr)}\n"
    ".map rect{stroke:var(--ground);stroke-width:1.5px}.map rect.none{fill:none;stroke:var(--line);stroke-width:1px;\n"
    "stroke-dasharray:2 2}.map rect.first{fill:none;stroke:var(--ink);stroke-width:2.5px}\n"
    ".k0{fill:var(--k0);background:var(--k0)}.k1{fill:var(--k1);background:var(--k1)}\n"
    ".k2{fill:var(--k2);background:var(--k2)}.k3{fill:var(--k3);background:var(--k3)}\n"
    ".k4{fill:var(--k4);background:var(--k4)}.k5{fill:var(--k5);background:var(--k5)}\n"
    ".h1{fill:var(--h1);background:var(--h1)}.h2{fill:var(--h2);background:var(--h2)}\n"
    ".h3{fill:var(--h3);background:var(--h3)}.h4{fill:var(--h4);background:var(--h4)}\n"
    ".across{display:none}\n"
    "@media(min-width:80rem){svg .across{display:inline;font-size:10px}.down{display:none}\n"
    ".names{margin-top:-3.4rem}}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:.3rem 1rem;font-size:.8125rem;color:var(--quiet);align-items:center}\n"
    ".legend i,td i{display:inline-block;width:.8rem;height:.8rem;border-radius:.2rem;margin-inline-end:.4rem;\n"
    "vertical-align:-.08rem}.legend span{white-space:nowrap}\n"
    ".legend svg{display:inline-block;width:1.6rem;height:.6rem;margin-inline-end:.4rem}\n"
    ".charts{display:grid;gap:2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}\n"
    "figure{margin:0;display:grid;grid-template-columns:minmax(0,1fr);gap:.6rem;align-content:start}\n"
    ".chart{grid-template-columns:3rem minmax(0,1fr)}.grid{stroke:var(--line);stroke-width:1px}\n"
    ".limit{stroke:var(--alarm);stroke-width:1px;stroke-dasharray:5 4}\n"
    "polyline{fill:none;stroke-width:1.75px;stroke-linejoin:round;vector-effect:non-scaling-stroke}\n"
    "polyline.b{stroke-width:7px;opacity:.28;stroke-linecap:round}\n"
    ".one{stroke:var(--one)}.two{stroke:var(--two)}.three{stroke:var(--three)}\n"
    "circle{stroke:none}circle.one{fill:var(--one)}circle.two{fill:var(--two)}circle.three{fill:var(--three)}\n"
    ".top{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:.75rem}\n"
    ".top ol{list-style:none;margin-top:.4rem;font-variant-numeric:tabular-nums}\n"
    ".top li{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:0 .75rem;padding:.28rem 0;\n"
    "border-top:1px solid var(--line);font-size:.875rem}\n"
    ".top li>:first-child{white-space:pre;overflow:hidden;text-overflow:ellipsis}\n"
    ".top small{color:var(--quiet);grid-row:2}.top li>span{text-align:end}\n"
    "@media(min-width:46rem){.top li{grid-template-columns:minmax(0,1fr) 5rem 5rem}\n"
    ".top small{grid-row:1;grid-column:2}}\n"
    ".top .off>:first-child{color:var(--alarm)}\n"
    "summary{cursor:pointer;font-size:1.0625rem;font-weight:650;letter-spacing:-.01em}details>div{margin-top:.9rem}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.8125rem;\n"
    "font-variant-numeric:tabular-nums}\n"
    "th,td{text-align:end;padding:.22rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}\n"
    "th{color:var(--quiet);font-weight:500}\n"
    "th:first-child,td:first-child{text-align:start;padding-inline-start:0}tr.over td{color:var(--alarm)}\n"
    "tr.first td{font-weight:650}\n"
    "@media(max-width:46rem){.more{display:none}th,td{padding-inline:.35rem}}\n"
    "</style>\n";

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Writes n bytes of text with HTML's special characters escaped. */
static void html_text(struct report_writer *w, const char *text, size_t n) {
    size_t begin = 0;
    for (size_t i = 0; i <= n; i++) {
        const char *entity = i == n ? "" : text[i] == '<' ? "&lt;" : text[i] == '>' ? "&gt;" : text[i] == '&' ? "&amp;"
            : text[i] == '"' ? "&quot;" : text[i] == '\'' ? "&#39;" : NULL;
        if (!entity) continue;
        report_text(w, text + begin, i - begin);
        report_bytes(w, entity, strlen(entity));
        begin = i + 1;
    }
}

static void html_string(struct report_writer *w, const char *text) { html_text(w, text, strlen(text)); }

/* Writes a token's text.  If the text is not known, writes the id and returns false. */
static bool html_piece(const struct diff *d, struct report_writer *w, int32_t id) {
    char piece[96];
    int64_t n = tokens_piece(d->a, d->b, d->vocab, id, piece, sizeof piece);
    if (n < 0) report_printf(w, "%d", (int)id);
    else html_text(w, piece, n < (int64_t)sizeof piece ? (size_t)n : sizeof piece);
    return n >= 0;
}

/* ---- the top of the page ----------------------------------------------------------------------------------------- */

/* Returns the length of the headline, which is the verdict's first line up to its colon.  html_verdict writes the
 * rest. */
static size_t n_headline(const struct diff *d) {
    const char *colon = strstr(d->verdict, ": ");
    return colon ? (size_t)(colon - d->verdict) : strcspn(d->verdict, "\n");
}

/* Writes a text in which what stands between backticks becomes <code>. */
static void html_sentence(struct report_writer *w, const char *text, size_t n) {
    for (bool is_code = false; n > 0; is_code = !is_code) {
        const char *tick = memchr(text, '`', n);
        size_t n_part = tick ? (size_t)(tick - text) : n;
        if (is_code) report_printf(w, "<code>");
        html_text(w, text, n_part);
        if (is_code) report_printf(w, "</code>");
        text += n_part + (tick != NULL);
        n -= n_part + (tick != NULL);
    }
}

static void html_verdict(const struct diff *d, struct report_writer *w) {
    static const char next[] = "Next: ";
    size_t n_head = n_headline(d);
    for (const char *at = d->verdict + n_head + strspn(d->verdict + n_head, ": "); *at;) {
        size_t n = strcspn(at, "\n"), n_next = sizeof next - 1;
        bool is_next = strncmp(at, next, n_next) == 0;
        report_printf(w, is_next ? "<p class=\"next\"><code>" : "<p>");
        if (is_next) html_text(w, at + n_next, n - n_next);
        else html_sentence(w, at, n);
        report_printf(w, is_next ? "</code></p>\n" : "</p>\n");
        at += n + (at[n] == '\n');
    }
}

static void html_side(struct report_writer *w, char letter, const char *name, const struct plumb_trace *t) {
    report_printf(w, "<div class=\"card\"><span class=\"quiet\">%c</span><b>", letter);
    html_string(w, name);
    report_printf(w, "</b><span class=\"quiet\">");
    if (t->source && t->source[0]) {
        html_string(w, t->source);
        report_printf(w, " &middot; ");
    }
    if (t->tokens) report_printf(w, "%u tokens &middot; ", t->n_token);
    report_printf(w, "%zu taps</span></div>\n", t->n_tap);
}

static void html_facts(const struct diff *d, struct report_writer *w) {
    report_printf(w, "<dl class=\"facts\">");
    report_printf(w, "<div><dt>taps compared</dt><dd>%zu</dd></div>", d->n_tap);
    report_printf(w, "<div><dt>over the tolerance</dt><dd>%zu</dd></div>", d->n_over);
    if (d->worst < d->n_tap) {
        const struct diff_tap *tap = &d->taps[d->worst];
        struct tap_text name;
        report_printf(w, "<div><dt>largest error, at %s</dt><dd>%.2g</dd></div>",
                      tap_show(&name, tap->id, tap->layer), tap->error);
    }
    report_printf(w, "<div><dt>tolerance</dt><dd>%g</dd></div></dl>\n", d->tolerance);
    if (d->n_only_a + d->n_only_b + d->n_incomparable > 0) {
        report_printf(w, "<p class=\"quiet\">Only in A: %zu taps, only in B: %zu; in both, but with nothing in common "
                      "to compare: %zu.</p>\n", d->n_only_a, d->n_only_b, d->n_incomparable);
    }
}

/* Writes the tokens of t from index `from` on.  off: the index of the token to mark; UINT32_MAX: none. */
static void html_chips(const struct diff *d, struct report_writer *w, const struct plumb_trace *t, uint32_t from,
                       uint32_t off) {
    enum { MAX_CHIPS = 40 };
    report_printf(w, "<ol class=\"chips\">");
    for (uint32_t i = from; i < t->n_token && i - from < MAX_CHIPS; i++) {
        report_printf(w, "<li%s title=\"id %d\"><small>%u</small><code>", i == off ? " class=\"off\"" : "",
                      (int)t->tokens[i], i);
        html_piece(d, w, t->tokens[i]);
        report_printf(w, "</code></li>");
    }
    if (t->n_token - from > MAX_CHIPS) report_printf(w, "<li>+%u</li>", t->n_token - from - MAX_CHIPS);
    report_printf(w, "</ol>\n");
}

static void html_tokens(const struct diff *d, struct report_writer *w) {
    const struct plumb_trace *known = d->b->tokens ? d->b : d->a;
    if (!known->tokens) return;
    bool same = d->tokens.kind == TOKENS_SAME || d->tokens.kind == TOKENS_UNKNOWN;
    report_printf(w, "<section><h2>Tokens</h2>\n");
    if (d->tokens.kind != TOKENS_SAME && tokens_comparable(d->tokens.kind)) {
        report_printf(w, "<p class=\"quiet\">");
        html_string(w, d->tokens.text);
        report_printf(w, "</p>\n");
    }
    if (same) {
        html_chips(d, w, known, 0, UINT32_MAX);
    } else {
        uint32_t from = d->tokens.first > 4 ? d->tokens.first - 4 : 0;
        report_printf(w, "<p class=\"quiet\">A</p>");
        html_chips(d, w, d->a, from, d->tokens.first);
        report_printf(w, "<p class=\"quiet\">B</p>");
        html_chips(d, w, d->b, from, d->tokens.first);
    }
    report_printf(w, "</section>\n");
}

/* ---- the map ----------------------------------------------------------------------------------------------------- */

/* Returns the CSS class for the error of a tap. */
static const char *colour(const struct diff *d, const struct diff_tap *tap) {
    static const char *const below[] = { "k5", "k4", "k3", "k2", "k1" }, *const above[] = { "h1", "h2", "h3", "h4" };
    if (tap->shapes_differ || isinf(tap->error)) return "h4";
    if (tap->error == 0) return "k0";
    double decades = log10(tap->error / d->tolerance);
    if (decades > 0) return above[decades < 2 ? (size_t)(decades * 2) : 3];
    return below[decades > -4 ? (size_t)-decades : 4];
}

static void html_legend(const struct diff *d, struct report_writer *w) {
    report_printf(w, "<p class=\"legend\"><span>relative error</span><span><i class=\"k0\"></i>0</span>"
                  "<span><i class=\"k1\"></i>up to %g</span>", d->tolerance * 1e-4);
    for (int decade = 3; decade >= 0; decade--) {
        report_printf(w, "<span><i class=\"k%d\"></i>%g</span>", 5 - decade, d->tolerance * pow(10, -decade));
    }
    for (int half = 1; half <= 3; half++) {
        report_printf(w, "<span><i class=\"h%d\"></i>%.1g</span>", half, d->tolerance * pow(10, 0.5 * half));
    }
    report_printf(w, "<span><i class=\"h4\"></i>above</span></p>\n");
}

/* Writes the cell of tap i.  x and width are in percent, y and height in pixels. */
static void html_cell(const struct diff *d, struct report_writer *w, size_t i, double x, double width, size_t y,
                      unsigned height) {
    const struct diff_tap *tap = &d->taps[i];
    struct tap_text name;
    report_printf(w, "<rect class=\"%s\" x=\"%.3f%%\" y=\"%zu\" width=\"%.3f%%\" height=\"%u\" rx=\"3\"><title>%s",
                  colour(d, tap), x, y, width, height, tap_show(&name, tap->id, tap->layer));
    if (tap->shapes_differ) report_printf(w, ": shapes differ");
    else report_printf(w, ": error %.3g", tap->error);
    if (!isnan(tap->cosine)) report_printf(w, ", cosine %.6f", tap->cosine);
    if (tap->c.n_value > 0) {
        report_printf(w, ", max |d| %.3g at [%u, %u]", tap->c.max_d, tap->c.max_pos, tap->c.max_place);
    }
    report_printf(w, "</title></rect>\n");
}

/* Writes the map.  Its rows are layers and its columns are taps; both are left out if nothing in them was compared.
 * Taps outside the layers are bars over the whole width. */
static void html_map(const struct diff *d, struct report_writer *w) {
    enum { ROW = 17, NAMES = 78, BAR = 21 };   /* pixels */
    uint32_t n_column = 0, n_row = 0, n_bar = 0;
    enum tap_id columns[TAP_COUNT];
    bool has[TAP_COUNT] = { false };
    for (size_t i = 0; i < d->n_tap; i++) {
        has[d->taps[i].id] = true;
        if (d->taps[i].layer < 0) n_bar++;
        else n_row += i == 0 || d->taps[i - 1].layer != d->taps[i].layer;
    }
    for (enum tap_id id = TAP_ATTN_NORM; id <= TAP_L_OUT; id++) {
        if (has[id]) columns[n_column++] = id;
    }
    unsigned names = n_column > 0 ? NAMES : 0;
    size_t height = names + (size_t)n_row * ROW + (size_t)n_bar * BAR + 4, y;
    report_printf(w, "<section><h2>Layers and taps</h2>\n");
    html_legend(d, w);
    report_printf(w, "<div class=\"drawn%s\" style=\"max-width:%urem\"><svg height=\"%zu\">\n",
                  n_column > 0 ? " names" : "", 5 + 8 * (n_column + 1), height);
    y = names;
    for (size_t i = 0; i < d->n_tap; i++) {   /* names of the rows */
        const struct diff_tap *tap = &d->taps[i];
        if (tap->layer >= 0 && i > 0 && d->taps[i - 1].layer == tap->layer) continue;
        unsigned step = tap->layer < 0 ? BAR : ROW;
        report_printf(w, "<text x=\"100%%\" dx=\"-8\" y=\"%zu\" text-anchor=\"end\">", y + step / 2 + 4);
        if (tap->layer < 0) report_printf(w, "%s</text>", tap_spec(tap->id)->name);
        else report_printf(w, "%d</text>", (int)tap->layer);
        y += step;
    }
    report_printf(w, "</svg>\n<svg class=\"map\" height=\"%zu\" role=\"img\" aria-label=\"relative error by layer and "
                  "tap\">\n", height);
    double width = 100.0 / (n_column > 0 ? n_column : 1), first_x = 0;
    size_t first_y = 0;
    for (uint32_t k = 0; k < n_column; k++) {   /* names of the columns, rotated on narrow screens */
        const char *name = tap_spec(columns[k])->name;
        report_printf(w, "<svg x=\"%.3f%%\" y=\"%d\"><text class=\"down\" transform=\"rotate(-90)\" y=\"4\">%s</text>"
                      "<text class=\"across\" text-anchor=\"middle\">%s</text></svg>\n", (k + 0.5) * width, NAMES - 8,
                      name, name);
    }
    y = names;
    for (size_t i = 0; i < d->n_tap;) {
        int32_t layer = d->taps[i].layer;
        if (layer < 0) {
            if (i == d->first) first_y = y;
            html_cell(d, w, i++, 0, 100, y + 2, BAR - 4);
            y += BAR;
            continue;
        }
        for (uint32_t k = 0; k < n_column; k++) {
            if (i < d->n_tap && d->taps[i].layer == layer && d->taps[i].id == columns[k]) {
                if (i == d->first) {
                    first_x = k * width;
                    first_y = y;
                }
                html_cell(d, w, i++, k * width, width, y, ROW);
            } else {
                report_printf(w, "<rect class=\"none\" x=\"%.3f%%\" y=\"%zu\" width=\"%.3f%%\" height=\"%d\" rx=\"3\">"
                              "<title>%s-%d: not compared</title></rect>\n", k * width + width * 0.3,
                              y + ROW / 2 - 1, width * 0.4, 1, tap_spec(columns[k])->name, (int)layer);
            }
        }
        y += ROW;
    }
    if (d->first < d->n_tap) {   /* drawn last, on top of its neighbours */
        bool is_bar = d->taps[d->first].layer < 0;
        report_printf(w, "<rect class=\"first\" x=\"%.3f%%\" y=\"%zu\" width=\"%.3f%%\" height=\"%d\" rx=\"3\" "
                      "pointer-events=\"none\"/>\n", first_x, first_y + (is_bar ? 2 : 0), is_bar ? 100 : width,
                      is_bar ? BAR - 4 : ROW);
    }
    report_printf(w, "</svg></div></section>\n");
}

/* ---- curves by depth --------------------------------------------------------------------------------------------- */

enum curve { CURVE_ERROR, CURVE_RMS_A, CURVE_RMS_B };

static double curve_value(const struct diff_tap *tap, enum curve curve) {
    return curve == CURVE_ERROR ? tap->error : curve == CURVE_RMS_A ? tap->rms_a : tap->rms_b;
}

static const struct { enum tap_id id; const char *colour; } series[] = {
    { TAP_L_OUT, "one" }, { TAP_ATTN_OUT, "two" }, { TAP_FFN_OUT, "three" },
};
enum { N_SERIES = sizeof series / sizeof *series };

/* The axes of a chart: decades on the y axis, layers on the x axis. */
struct axes {
    double low, high;       /* log10 of the values at the bottom and at the top */
    int32_t first, last;    /* layers */
    bool has_points;
};

static double axis_x(const struct axes *axes, int32_t layer) {
    if (axes->last == axes->first) return 50;
    return 2 + 96 * ((double)layer - axes->first) / ((double)axes->last - axes->first);
}

static double axis_y(const struct axes *axes, double value) {
    double decade = value > 0 ? log10(value) : axes->low;
    decade = fmin(fmax(decade, axes->low), axes->high);
    return 100 - 100 * (decade - axes->low) / (axes->high - axes->low);
}

/* Widens the axes to hold all points of the series of a curve.  The y axis stays within 1e-9 to 1e9. */
static void stretch(const struct diff *d, struct axes *axes, enum curve curve) {
    for (size_t i = 0; i < d->n_tap; i++) {
        double value = curve_value(&d->taps[i], curve);
        bool is_drawn = false;
        for (size_t s = 0; s < N_SERIES; s++) is_drawn |= series[s].id == d->taps[i].id;
        if (!is_drawn || isnan(value)) continue;
        if (!axes->has_points) axes->first = d->taps[i].layer;
        axes->has_points = true;
        axes->last = d->taps[i].layer;
        if (!(value > 0) || isinf(value)) continue;
        axes->low = fmin(axes->low, fmax(floor(log10(value)), -9));
        axes->high = fmax(axes->high, fmin(ceil(log10(value)), 9));
    }
}

/* Draws the curve of series s, with a point for each layer.  B's RMS is a wide line without points, which lies under
 * A's. */
static void html_line(const struct diff *d, struct report_writer *w, const struct axes *axes, enum curve curve,
                      size_t s) {
    report_printf(w, "<svg viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\" height=\"100%%\">"
                  "<polyline class=\"%s%s\" points=\"", series[s].colour, curve == CURVE_RMS_B ? " b" : "");
    for (size_t i = 0; i < d->n_tap; i++) {
        double value = curve_value(&d->taps[i], curve);
        if (d->taps[i].id != series[s].id || isnan(value)) continue;
        report_printf(w, "%.2f,%.2f ", axis_x(axes, d->taps[i].layer), axis_y(axes, value));
    }
    report_printf(w, "\"/></svg>\n");
    if (curve == CURVE_RMS_B) return;
    for (size_t i = 0; i < d->n_tap; i++) {
        const struct diff_tap *tap = &d->taps[i];
        double value = curve_value(tap, curve);
        struct tap_text name;
        if (tap->id != series[s].id || isnan(value)) continue;
        report_printf(w, "<circle class=\"%s\" cx=\"%.2f%%\" cy=\"%.2f%%\" r=\"2.5\"><title>%s: ", series[s].colour,
                      axis_x(axes, tap->layer), axis_y(axes, value), tap_show(&name, tap->id, tap->layer));
        if (curve == CURVE_ERROR) report_printf(w, "error %.3g</title></circle>\n", value);
        else report_printf(w, "RMS %.4g in A, %.4g in B</title></circle>\n", tap->rms_a, tap->rms_b);
    }
}

/* Opens a chart and writes its axes.  The caller has opened a <figure> for it.  This function leaves an <svg> open,
 * into which html_line draws; html_keys closes everything. */
static void html_axes(struct report_writer *w, const struct axes *axes) {
    enum { HEIGHT = 220 };
    int step = axes->high - axes->low > 8 ? 2 : 1;
    report_printf(w, "<div class=\"drawn chart\"><svg height=\"%d\">", HEIGHT);
    for (int decade = (int)axes->low; decade <= (int)axes->high; decade += step) {
        report_printf(w, "<text x=\"100%%\" dx=\"-8\" y=\"%.2f%%\" dy=\"4\" text-anchor=\"end\">%g</text>",
                      axis_y(axes, pow(10, decade)), pow(10, decade));
    }
    report_printf(w, "</svg>\n<svg height=\"%d\">\n", HEIGHT);
    for (int decade = (int)axes->low; decade <= (int)axes->high; decade += step) {
        double y = axis_y(axes, pow(10, decade));
        report_printf(w, "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>", y, y);
    }
    int32_t every = (axes->last - axes->first) / 8 + 1;
    for (int32_t layer = axes->first; layer <= axes->last; layer += every) {
        report_printf(w, "<text x=\"%.2f%%\" y=\"100%%\" dy=\"17\" text-anchor=\"middle\">%d</text>\n",
                      axis_x(axes, layer), (int)layer);
    }
}

/* Closes what html_axes and its caller have opened, and writes the legend.  both: the chart has curves of A and of B.
 * If it is false, the chart has the line of the tolerance. */
static void html_keys(const struct diff *d, struct report_writer *w, bool both) {
    report_printf(w, "</svg></div><p class=\"legend\" style=\"margin-top:1.1rem\">");
    for (size_t s = 0; s < N_SERIES; s++) {
        bool is_there = false;
        for (size_t i = 0; i < d->n_tap; i++) is_there |= d->taps[i].id == series[s].id;
        if (!is_there) continue;
        report_printf(w, "<span><svg><line class=\"%s\" x1=\"0\" x2=\"100%%\" y1=\"50%%\" y2=\"50%%\" "
                      "stroke-width=\"2\"/></svg>%s</span>", series[s].colour, tap_spec(series[s].id)->name);
    }
    if (both) {
        report_printf(w, "<span><svg><line class=\"one\" x1=\"4\" x2=\"90%%\" y1=\"50%%\" y2=\"50%%\" "
                      "stroke-width=\"7\" opacity=\".28\" stroke-linecap=\"round\"/></svg>B; A is the line</span>");
    } else {
        report_printf(w, "<span><svg><line class=\"limit\" x1=\"0\" x2=\"100%%\" y1=\"50%%\" y2=\"50%%\"/></svg>"
                      "tolerance</span>");
    }
    report_printf(w, "</p></figure>\n");
}

static void html_curves(const struct diff *d, struct report_writer *w) {
    double limit = log10(d->tolerance);
    struct axes error = { .low = floor(limit) - 1, .high = ceil(limit + 1e-9) };
    struct axes rms = { .low = INFINITY, .high = -INFINITY };
    stretch(d, &error, CURVE_ERROR);
    stretch(d, &rms, CURVE_RMS_A);
    stretch(d, &rms, CURVE_RMS_B);
    if (!error.has_points) return;
    report_printf(w, "<section><div class=\"charts\"><figure><h2>Error by depth</h2><figcaption>relative RMS error of "
                  "each layer's outputs</figcaption>\n");
    html_axes(w, &error);
    double y = axis_y(&error, d->tolerance);
    report_printf(w, "<line class=\"limit\" x1=\"0\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>\n", y, y);
    for (size_t s = N_SERIES; s-- > 0;) html_line(d, w, &error, CURVE_ERROR, s);
    html_keys(d, w, false);
    if (rms.has_points && isfinite(rms.low)) {
        if (rms.high - rms.low < 1) rms.high = rms.low + 1;
        report_printf(w, "<figure><h2>RMS by depth</h2><figcaption>root mean square of the values themselves"
                      "</figcaption>\n");
        html_axes(w, &rms);
        for (size_t s = N_SERIES; s-- > 0;) html_line(d, w, &rms, CURVE_RMS_B, s);
        for (size_t s = N_SERIES; s-- > 0;) html_line(d, w, &rms, CURVE_RMS_A, s);
        html_keys(d, w, true);
    }
    report_printf(w, "</div></section>\n");
}

/* ---- the likeliest tokens, the table ----------------------------------------------------------------------------- */

static void html_candidates(const struct diff *d, struct report_writer *w, char letter,
                            const struct trace_value *top, uint32_t n, const struct trace_value *other,
                            uint32_t n_other) {
    report_printf(w, "<div class=\"card\"><span class=\"quiet\">%c</span><ol>\n", letter);
    for (uint32_t i = 0; i < n; i++) {
        bool same = i < n_other && other[i].place == top[i].place;
        report_printf(w, "<li%s><code>", same ? "" : " class=\"off\"");
        bool is_known = html_piece(d, w, (int32_t)top[i].place);
        report_printf(w, "</code><span>%.3f</span><small>", (double)top[i].value);
        if (is_known) report_printf(w, "%d</small></li>\n", (int)top[i].place);
        else report_printf(w, "&nbsp;</small></li>\n");   /* keeps the row's height */
    }
    report_printf(w, "</ol></div>\n");
}

static void html_top(const struct diff *d, struct report_writer *w) {
    if (d->n_top_a == 0 || d->n_top_b == 0) return;
    bool same = d->top_a[0].place == d->top_b[0].place;
    report_printf(w, "<section><h2>Likeliest next tokens</h2><p class=\"quiet\">after token %u, by logit; the first "
                  "%s</p><div class=\"top\">\n", d->top_pos, same ? "is the same" : "is not the same");
    html_candidates(d, w, 'A', d->top_a, d->n_top_a, d->top_b, d->n_top_b);
    html_candidates(d, w, 'B', d->top_b, d->n_top_b, d->top_a, d->n_top_a);
    report_printf(w, "</div></section>\n");
}

static void html_row(const struct diff *d, struct report_writer *w, size_t i) {
    const struct diff_tap *tap = &d->taps[i];
    struct tap_text name;
    report_printf(w, "<tr class=\"%s%s\"><td><i class=\"%s\"></i>%s</td>", tap->over ? "over" : "",
                  i == d->first ? " first" : "", colour(d, tap), tap_show(&name, tap->id, tap->layer));
    if (tap->shapes_differ) {
        report_printf(w, "<td colspan=\"8\">%u &times; %u in A, %u &times; %u in B</td></tr>\n", tap->shape_a[0],
                      tap->shape_a[1], tap->shape_b[0], tap->shape_b[1]);
        return;
    }
    report_printf(w, "<td>%.3g</td>", tap->error);
    if (isnan(tap->cosine)) report_printf(w, "<td>&ndash;</td>");
    else report_printf(w, "<td>%.6f</td>", tap->cosine);
    if (tap->c.n_value + tap->c.n_bound > 0) {
        report_printf(w, "<td>%.3g</td><td class=\"more\">[%u, %u]</td><td class=\"more\">%.6g</td>"
                      "<td class=\"more\">%.6g</td>", tap->c.max_d, tap->c.max_pos, tap->c.max_place, tap->c.max_a,
                      tap->c.max_b);
    } else {
        report_printf(w, "<td>&ndash;</td><td class=\"more\" colspan=\"3\">from statistics</td>");
    }
    report_printf(w, "<td class=\"more\">%u</td><td class=\"more\">%llu</td></tr>\n", tap->c.n_row,
                  (unsigned long long)(tap->c.n_value + tap->c.n_bound));
}

static void html_table(const struct diff *d, struct report_writer *w) {
    enum { OPEN = 60 };   /* a table with more rows is closed at first */
    report_printf(w, "<section><details%s><summary>All %zu taps</summary><div class=\"wide\"><table>\n<thead><tr>"
                  "<th>tap</th><th>error</th><th>cosine</th><th>max |d|</th><th class=\"more\">[token, place]</th>"
                  "<th class=\"more\">A</th><th class=\"more\">B</th><th class=\"more\">tokens</th>"
                  "<th class=\"more\">values</th></tr></thead><tbody>\n", d->n_tap <= OPEN ? " open" : "", d->n_tap);
    for (size_t i = 0; i < d->n_tap; i++) html_row(d, w, i);
    report_printf(w, "</tbody></table></div></details></section>\n");
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

void diff_html(const struct diff *d, struct report_writer *w) {
    report_bytes(w, page_head, sizeof page_head - 1);
    report_printf(w, "<title>plumb diff: ");
    html_text(w, d->verdict, n_headline(d));
    report_printf(w, "</title>\n");
    report_bytes(w, page_style, sizeof page_style - 1);
    report_printf(w, "<main>\n<header><p class=\"quiet\">plumb diff</p><h1 class=\"%s\">",
                  diff_agrees(d) ? "agree" : "differ");
    html_text(w, d->verdict, n_headline(d));
    report_printf(w, "</h1>\n");
    html_verdict(d, w);
    report_printf(w, "<div class=\"sides\">");
    html_side(w, 'A', d->name_a, d->a);
    html_side(w, 'B', d->name_b, d->b);
    report_printf(w, "</div>\n");
    if (d->n_tap > 0) html_facts(d, w);
    report_printf(w, "</header>\n");
    html_tokens(d, w);
    if (d->n_tap > 0) {
        html_map(d, w);
        html_curves(d, w);
    }
    html_top(d, w);
    if (d->n_tap > 0) html_table(d, w);
    report_printf(w, "</main>\n</html>\n");
}

/* Measures what RoPE did (Su et al. 2021, "RoFormer", section 3.4.2).  The rows before and after it are known, so the
 * angle by which each pair of elements was rotated can be solved for.
 *
 *   pairs: every distance between the two elements is tried, with an angle that is free for each token and pair
 *   positions: from the angles of a row, whose pairs have known frequencies.  Pairs that rotate slowly say how many
 *       whole turns the others made
 *   frequencies: from the angles of a pair at all tokens; then base, exponents and factors from the frequencies
 *   what is no rotation: least squares over the products of cosines and sines of the right angles
 */
#include "diagnose/fit.h"

#include "trace/report.h"

#include <math.h>
#include <stdio.h>

#define PI 3.14159265358979323846

/* n pairs: elements 2i and 2i + 1 if they are neighbours (distance 1), else elements first + i and
 * first + i + distance. */
struct pairing { uint32_t first, distance, n; };

struct rope {
    struct fit *f;
    struct fit_rows before;
    const struct rope_plan *plan;
    bool rotates;              /* false: the right step leaves the rows as they are */
    uint32_t n_pair;           /* half of the elements of a head */
    uint32_t last_pos;         /* the position of the last token */
    struct pairing right;
    double *frequencies;       /* (n_pair) the right ones, in radians per position; 0 beyond n_rot / 2 */
    double *plain;             /* (n_pair) base^(-2i / n_rot): without scaling, factors and YaRN */
    double *measured, *offset; /* (n_pair) frequencies, and angles at position 0, that were solved for */
    double *tried;             /* (n_pair) frequencies of a hypothesis */
    bool *turned;              /* (n_pair) whether a pair has an angle that is not 0 */
    uint32_t *order;           /* (n_pair) the pairs of frequencies above 0, the smallest frequency first */
    uint32_t n_order;
    double *sums;              /* (n_token, n_pair, 2) products of pairs after and before, as complex numbers */
    double *solved, *positions;/* (n_token, n_head) positions that were solved for; those of a hypothesis */
    double *y;                 /* (n_token, n_head, n) a hypothesis */
};

static uint32_t element_a(struct pairing p, uint32_t i) { return p.first + (p.distance == 1 ? 2 * i : i); }
static uint32_t element_b(struct pairing p, uint32_t i) { return element_a(p, i) + p.distance; }
static double wrap(double angle) { return remainder(angle, 2 * PI); }
static bool is_same(struct pairing a, struct pairing b) { return a.first == b.first && a.distance == b.distance; }

/* ---- hypotheses -------------------------------------------------------------------------------------------------- */

/* Writes to y what RoPE makes of the rows.  positions NULL: those of the tokens.  offset NULL: 0. */
static void rotate(const struct rope *r, const struct pairing *pairs, const double *positions,
                   const double *frequencies, const double *offset, double magnitude) {
    const struct fit_rows *x = &r->before;
    size_t n_row = (size_t)x->n_token * x->n_head;
    for (size_t row = 0; row < n_row; row++) {
        const float *from = x->x + row * x->n;
        double *to = r->y + row * x->n, position = positions ? positions[row] : x->pos[row / x->n_head];
        for (uint32_t i = 0; i < x->n; i++) to[i] = (double)from[i];
        for (uint32_t i = 0; i < pairs->n; i++) {
            double angle = position * frequencies[i] + (offset ? offset[i] : 0), c = cos(angle), s = sin(angle);
            double a = (double)from[element_a(*pairs, i)], b = (double)from[element_b(*pairs, i)];
            to[element_a(*pairs, i)] = (a * c - b * s) * magnitude;
            to[element_b(*pairs, i)] = (a * s + b * c) * magnitude;
        }
    }
}

/* Returns the factor of y that comes closest to theirs where the right step is wrong; 1 if no factor comes much closer
 * than y does. */
static double fit_size(const struct rope *r) {
    const struct fit_rows *theirs = &r->f->theirs;
    size_t n_row = (size_t)theirs->n_token * theirs->n_head;
    double yy = 0, yt = 0, tt = 0;
    for (size_t row = 0; row < n_row; row++) {
        for (uint32_t i = 0; r->f->wrong[row] && i < theirs->n; i++) {
            double y = r->y[row * theirs->n + i], t = (double)theirs->x[row * theirs->n + i];
            yy += y * y;
            yt += y * t;
            tt += t * t;
        }
    }
    if (!(yy > 0)) return 1;
    double without = yy - 2 * yt + tt, with = tt - yt * yt / yy;
    return with < without / 9 ? yt / yy : 1;
}

static void write_pairing(char *text, size_t size, size_t *n, struct pairing p) {
    if (p.distance == 1 && p.first > 0) report_append(text, size, n, "%u + 2i and %u + 2i", p.first, p.first + 1);
    else if (p.distance == 1) report_append(text, size, n, "2i and 2i + 1");
    else if (p.first == 0) report_append(text, size, n, "i and i + %u", p.distance);
    else report_append(text, size, n, "%u + i and %u + i", p.first, p.first + p.distance);
}

/* Proposes a rotation and, if it explains theirs better, the same times a number.  The text follows "is rotated ". */
static void propose_said(struct rope *r, const struct pairing *pairs, const double *positions,
                         const double *frequencies, const double *offset, uint32_t cost, const char *text) {
    char text_of_pairs[128] = "";
    bool is_right_angle = !positions && !offset && frequencies == r->frequencies;
    size_t n = 0, n_value = (size_t)r->before.n_token * fit_width(&r->before);
    if (!is_same(*pairs, r->right)) {
        report_append(text_of_pairs, sizeof text_of_pairs, &n, ", and the pairs are elements ");
        write_pairing(text_of_pairs, sizeof text_of_pairs, &n, *pairs);
        report_append(text_of_pairs, sizeof text_of_pairs, &n, " of a head, not ");
        write_pairing(text_of_pairs, sizeof text_of_pairs, &n, r->right);
        cost += is_right_angle ? 0 : 1;
    }
    rotate(r, pairs, positions, frequencies, offset, r->rotates ? (double)r->plan->magnitude : 1);
    fit_propose(r->f, cost, r->y, "is rotated %s%s", text, text_of_pairs);
    double size = fit_size(r);
    if (fit_is_near(size, 1, 1e-6)) return;
    for (size_t i = 0; i < n_value; i++) r->y[i] *= size;
    fit_propose(r->f, cost + 1, r->y, "is rotated %s%s, and multiplied by %.6g", text, text_of_pairs, size);
}
#define propose(r, pairs, positions, frequencies, offset, cost, ...) \
    propose_said(r, pairs, positions, frequencies, offset, cost, fit_say((r)->f, __VA_ARGS__))

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* Fills r->sums: for each token and pair the sum of conj(before) * after over the heads, whose argument is the angle.
 * Returns the error with these angles, relative to theirs. */
static double solve_angles(struct rope *r, const struct pairing *pairs) {
    const struct fit_rows *x = &r->before, *theirs = &r->f->theirs;
    double after2 = 0, before2 = 0, products = 0, rest2 = 0;
    memset(r->sums, 0, (size_t)x->n_token * r->n_pair * 2 * sizeof *r->sums);
    size_t n_row = (size_t)x->n_token * x->n_head;
    for (size_t row = 0; row < n_row; row++) {
        if (!r->f->wrong[row]) continue;
        const float *from = x->x + row * x->n, *to = theirs->x + row * x->n;
        double *sums = r->sums + row / x->n_head * r->n_pair * 2, moved2 = 0;
        for (uint32_t i = 0; i < pairs->n; i++) {
            double a = (double)from[element_a(*pairs, i)], b = (double)from[element_b(*pairs, i)];
            double c = (double)to[element_a(*pairs, i)], d = (double)to[element_b(*pairs, i)];
            sums[2 * i] += a * c + b * d;
            sums[2 * i + 1] += a * d - b * c;
            before2 += a * a + b * b;
            after2 += c * c + d * d;
            moved2 += (a - c) * (a - c) + (b - d) * (b - d);
        }
        double all2 = 0;   /* elements outside of the pairs stay as they are */
        for (uint32_t i = 0; i < x->n && 2 * pairs->n < x->n; i++) {
            double d = (double)from[i] - (double)to[i];
            all2 += d * d;
        }
        if (2 * pairs->n < x->n) rest2 += fmax(all2 - moved2, 0);
    }
    for (size_t i = 0; i < (size_t)x->n_token * r->n_pair; i++) products += hypot(r->sums[2 * i], r->sums[2 * i + 1]);
    if (!(before2 > 0) || !(after2 > 0)) return INFINITY;
    return sqrt(fmax(after2 - products * products / before2, 0) / after2 + rest2 / after2);
}

/* ---- positions --------------------------------------------------------------------------------------------------- */

/* Fills r->solved with the position of each row at which its pairs have their angles.  A row whose right step is right
 * has its own position.  The slower a pair, the fewer whole turns it can have made: each pair is taken at the turn that
 * comes closest to the position that the slower ones gave. */
static void solve_positions(struct rope *r, const struct pairing *pairs) {
    const struct fit_rows *x = &r->before;
    for (size_t row = 0; row < (size_t)x->n_token * x->n_head; row++) {
        const float *from = x->x + row * x->n, *to = r->f->theirs.x + row * x->n;
        double own = x->pos[row / x->n_head], moved = 0, sum = 0, weight = 0;
        for (uint32_t k = 0; k < r->n_order && r->f->wrong[row]; k++) {
            uint32_t i = r->order[k];
            if (i >= pairs->n) continue;
            double a = (double)from[element_a(*pairs, i)], b = (double)from[element_b(*pairs, i)];
            double c = (double)to[element_a(*pairs, i)], d = (double)to[element_b(*pairs, i)];
            double f = r->frequencies[i], w = (a * a + b * b) * f, expected = moved * f;
            double angle = expected + wrap(atan2(a * d - b * c, a * c + b * d) - own * f - expected);
            sum += w * angle;
            weight += w * f;
            if (weight > 0) moved = sum / weight;
        }
        r->solved[row] = own + moved;
    }
}

/* Proposes the positions scale * pos + by_head * head + shift. */
static void try_line(struct rope *r, const struct pairing *pairs, double scale, double by_head, double shift,
                     uint32_t cost, const char *text) {
    const struct fit_rows *x = &r->before;
    for (size_t row = 0; row < (size_t)x->n_token * x->n_head; row++) {
        double head = (double)(row % x->n_head);
        r->positions[row] = scale * x->pos[row / x->n_head] + by_head * head + shift;
    }
    propose_said(r, pairs, r->positions, r->frequencies, NULL, cost, text);
}

enum { SHOWN = 6 };   /* how many positions a sentence has */

/* Positions that differ between the prompt and what follows it, or follow no rule. */
static void try_lists_of_positions(struct rope *r, const struct pairing *pairs) {
    const struct fit_rows *x = &r->before;
    uint32_t n_decoded = 0, shown = 0;
    double sum = 0;
    char text[160], right[80];
    size_t n = 0, n_right = 0;
    report_append(text, sizeof text, &n, "as at position");
    for (uint32_t t = 0; t < x->n_token; t++) {
        const double *solved = r->solved + (size_t)t * x->n_head;
        double mean = 0;
        uint32_t n_wrong = 0;
        for (uint32_t h = 0; h < x->n_head; h++) {
            if (!r->f->wrong[(size_t)t * x->n_head + h]) continue;
            mean += solved[h];
            n_wrong++;
        }
        mean = n_wrong > 0 ? fit_nearest(mean / n_wrong) : x->pos[t];
        if (x->pos[t] >= r->f->n_prompt) n_decoded++, sum += mean;
        if (n_wrong > 0 && shown++ < SHOWN) {
            report_append(text, sizeof text, &n, "%s %.9g", shown > 1 ? "," : "", mean);
            report_append(right, sizeof right, &n_right, "%s %u", shown > 1 ? "," : "", x->pos[t]);
        }
        for (uint32_t h = 0; h < x->n_head; h++) r->positions[(size_t)t * x->n_head + h] = mean;
    }
    bool is_one = shown == 1;
    report_append(text, sizeof text, &n, "%s instead of%s", shown > SHOWN ? " ..." : "", shown > 0 ? right : "");
    propose_said(r, pairs, r->positions, r->frequencies, NULL, is_one ? 0 : shown, text);
    if (n_decoded == 0 || n_decoded == x->n_token || is_one) return;
    double fixed = fit_nearest(sum / n_decoded);
    for (int restarts = 0; restarts < 2; restarts++) {
        for (size_t row = 0; row < (size_t)x->n_token * x->n_head; row++) {
            uint32_t pos = x->pos[row / x->n_head], in_decoded = pos - r->f->n_prompt;
            r->positions[row] = pos < r->f->n_prompt ? pos : restarts ? in_decoded : fixed;
        }
        propose_said(r, pairs, r->positions, r->frequencies, NULL, 0,
                     restarts ? "by positions that begin at 0 again after the prompt"
                              : fit_say(r->f, "as at position %.9g in every token after the prompt", fixed));
    }
}

static void try_positions(struct rope *r, const struct pairing *pairs) {
    const struct fit_rows *x = &r->before;
    double n_row = 0, sum = 0, moved = 0, square = 0, product = 0;
    uint32_t n_token = 0;
    bool is_decoding = true;   /* only tokens after the prompt are wrong: try_lists_of_positions knows two cases */
    solve_positions(r, pairs);
    for (uint32_t t = 0; t < x->n_token; t++) {
        bool any = false;
        for (uint32_t h = 0; h < x->n_head; h++) {
            size_t row = (size_t)t * x->n_head + h;
            if (!r->f->wrong[row]) continue;
            double pos = x->pos[t];
            any = true;
            is_decoding &= x->pos[t] >= r->f->n_prompt;
            n_row++;
            sum += r->solved[row];
            moved += r->solved[row] - pos;
            square += pos * pos;
            product += pos * r->solved[row];
        }
        n_token += any;
    }
    if (n_row == 0) return;
    try_lists_of_positions(r, pairs);
    try_line(r, pairs, -1, 0, 0, 0, "in the opposite direction");
    if (n_token > 1) {
        double by = fit_nearest(moved / n_row), same = fit_nearest(sum / n_row);
        double scale = square > 0 ? product / square : 1;
        bool restarts = is_decoding && by + r->f->n_prompt == 0;
        if (by != 0 && !restarts) {
            try_line(r, pairs, 1, 0, by, 0, fit_say(r->f, "as at position p %c %.9g in the token at p",
                                                    by < 0 ? '-' : '+', fabs(by)));
        }
        if (!is_decoding) {
            try_line(r, pairs, 0, 0, same, 0, fit_say(r->f, "as at position %.9g in every token", same));
        }
        try_line(r, pairs, -1, 0, r->last_pos, 0, "by positions that count from the last token");
        double degrees = fit_is_near(scale, PI / 180, 1e-3) ? PI / 180
                       : fit_is_near(scale, 180 / PI, 1e-3) ? 180 / PI : 0;
        double whole = scale > 1 ? round(scale) : 1 / round(1 / scale);
        bool is_whole = fit_is_near(scale, whole, 1e-3);
        if (degrees != 0) scale = degrees;
        else if (is_whole) scale = whole;
        double right = r->rotates ? (double)r->plan->freq_scale : 1;
        bool is_other = fabs(scale) > 1e-6 && fabs(scale - 1) > 1e-6 && fabs(scale + 1) > 1e-6;
        if (is_other) {
            try_line(r, pairs, scale, 0, 0, degrees != 0 || is_whole ? 0 : 1, degrees != 0
                ? fit_say(r->f, "by angles times %s: cosine and sine are taken of degrees, not radians",
                          degrees < 1 ? "pi / 180" : "180 / pi")
                : scale == 2 ? "twice: all angles are 2 times the right ones"
                : fit_say(r->f, "by positions times %.6g, not times %.6g", scale * right, right));
        }
    }
    if (x->n_head > 1) {
        try_line(r, pairs, 0, 1, 0, 0, "by the index of the head instead of the position");
        try_line(r, pairs, x->n_head, 1, 0, 0, "by the index of the row (token, head) instead of the position");
    }
}

/* ---- frequencies ------------------------------------------------------------------------------------------------- */

/* Fills measured, offset and turned from r->sums.  Steps from one token to a later one are free of the angle at
 * position 0; the frequency that short steps give says how many whole turns the longer ones have. */
static void solve_frequencies(struct rope *r, uint32_t n) {
    const struct fit_rows *x = &r->before;
    for (uint32_t i = 0; i < n; i++) {
        double frequency = 0, re = 0, im = 0, size = 0;
        for (uint32_t step = 1; step < x->n_token; step *= 2) {
            double step_re = 0, step_im = 0;
            for (uint32_t t = 0; t + step < x->n_token; t++) {
                const double *a = r->sums + ((size_t)t * r->n_pair + i) * 2;
                const double *b = r->sums + ((size_t)(t + step) * r->n_pair + i) * 2;
                if (x->pos[t + step] - x->pos[t] != step) continue;
                step_re += a[0] * b[0] + a[1] * b[1];
                step_im += a[0] * b[1] - a[1] * b[0];
            }
            if (step_re == 0 && step_im == 0) break;
            frequency += wrap(atan2(step_im, step_re) - frequency * step) / step;
        }
        for (uint32_t t = 0; t < x->n_token; t++) {
            const double *s = r->sums + ((size_t)t * r->n_pair + i) * 2;
            double angle = frequency * x->pos[t];
            re += s[0] * cos(angle) + s[1] * sin(angle);
            im += s[1] * cos(angle) - s[0] * sin(angle);
            size += hypot(s[0], s[1]);
        }
        r->measured[i] = frequency;
        r->offset[i] = atan2(im, re);
        /* If the angles of a pair are within the noise, it is as the pair before it, unless the right ones are not
         * within the noise either. */
        double right = r->frequencies[i] * r->last_pos, theirs = fabs(frequency) * r->last_pos;
        if (fabs(r->offset[i]) > theirs) theirs = fabs(r->offset[i]);
        bool is_clear = size > 0 && theirs > 5 * r->f->floor, is_clearly_still = right > 10 * r->f->floor;
        r->turned[i] = is_clear || (!is_clearly_still && right > 0 && i > 0 && r->turned[i - 1]);
    }
}

/* Makes the angle at position 0 zero, and measures the frequencies anew. */
static void without_offset(struct rope *r, uint32_t n) {
    const struct fit_rows *x = &r->before;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0, weight = 0, start = r->measured[i];
        for (uint32_t t = 0; t < x->n_token; t++) {
            const double *s = r->sums + ((size_t)t * r->n_pair + i) * 2;
            double pos = x->pos[t], w = hypot(s[0], s[1]) * pos, guess = start * pos;
            if (w == 0) continue;
            double angle = weight == 0 && start == 0 ? atan2(s[1], s[0]) : guess + wrap(atan2(s[1], s[0]) - guess);
            sum += w * angle;
            weight += w * pos;
        }
        r->measured[i] = weight > 0 ? sum / weight : 0;
    }
}

/* Returns x with at most two digits if it is close to that, else x. */
static double rounded(double x) {
    if (!(x > 0) || !(x < 1e15)) return x;
    double unit = pow(10, floor(log10(x)) - 1), near = round(x / unit) * unit;
    return fit_is_near(x, near, 2e-3) ? near : x;
}

/* Proposes factor * e^(slope * i) as the frequencies of the first n pairs. */
static void propose_law(struct rope *r, const struct pairing *pairs, uint32_t n, double factor, double slope,
                        uint32_t cost, const char *text) {
    for (uint32_t i = 0; i < r->n_pair; i++) r->tried[i] = i < n ? factor * exp(slope * i) : 0;
    propose_said(r, pairs, NULL, r->tried, NULL, cost, text);
}
#define try_law(r, pairs, n, factor, slope, cost, ...) \
    propose_law(r, pairs, n, factor, slope, cost, fit_say((r)->f, __VA_ARGS__))

/* Fits ln(frequency) = ln(factor) + slope * i for the first n pairs.  The larger a frequency is, the more exact it
 * is. */
static void try_laws(struct rope *r, const struct pairing *pairs, uint32_t n) {
    double w1 = 0, wi = 0, wii = 0, wl = 0, wil = 0, base = (double)r->plan->freq_base;
    uint32_t n_rot = r->plan->n_rot, n_right = n_rot / 2;
    for (uint32_t i = 0; i < n; i++) {
        double f = r->measured[i], w = f * f, l = f > 0 ? log(f) : 0;
        if (!(f > 0)) continue;
        w1 += w;
        wi += w * i;
        wii += w * i * i;
        wl += w * l;
        wil += w * i * l;
    }
    if (n < 2 || wii <= 0 || !(base > 1)) return;
    char count[48] = "";
    if (n != n_right) snprintf(count, sizeof count, " of %u pairs, not %u,", n, n_right);
    double slope = wil / wii, their_base = exp(-slope * n_rot / 2), near = rounded(their_base);
    if (their_base < 1.1) return;   /* try_indices has the one case of which this is known */
    double width = -2 * log(base) / slope, whole = round(width);
    /* One number: the base, or what 2i is divided by. */
    bool has_width = fit_is_near(width, whole, 2e-4) && whole >= 2 && whole != n_rot;
    bool is_named = near != their_base;
    if (has_width) {
        try_law(r, pairs, n, 1, -2 * log(base) / whole, 0, "by frequencies%s of %.9g^(-2i / %.9g), not %.9g^(-2i / %u)",
                count, base, whole, base, n_rot);
    }
    if (is_named && !fit_is_near(near, base, 1e-5)) {
        try_law(r, pairs, n, 1, -2 * log(near) / n_rot, has_width, "by frequencies%s of base %.9g, not %.9g", count,
                near, base);
    } else if (n > n_right) {
        try_law(r, pairs, n, 1, -2 * log(base) / n_rot, 0, "by frequencies%s of the right base", count);
    }
    if (!fit_is_near(their_base, base, 1e-5)) {
        try_law(r, pairs, n, 1, slope, 1, "by frequencies%s of base %.6g, not %.9g", count, their_base, base);
    }
    double det = w1 * wii - wi * wi;
    if (n < 3 || !(det > 0)) return;
    slope = (w1 * wil - wi * wl) / det;
    double log_factor = (wl - slope * wi) / w1, begin = round(log_factor / slope), right = -2 * log(base) / n_rot;
    if (begin != 0 && fabs(begin) < n_rot) {
        try_law(r, pairs, n, exp(right * begin), right, 0, "by frequencies%s whose exponents begin at i = %.9g", count,
                begin);
    }
    try_law(r, pairs, n, exp(log_factor), slope, 2, "by frequencies%s of %.6g x %.6g^(-2i / %u), not %.9g^(-2i / %u)",
            count, exp(log_factor), exp(-slope * n_rot / 2), n_rot, base, n_rot);
}

/* Scaling and factors, which some files have, in other ways. */
static void try_factors(struct rope *r, const struct pairing *pairs) {
    static const struct { int scale, factor; const char *text; } ways[] = {
        { 0, 0, "by frequencies with neither the scaling factor nor the factors of pairs" },
        { 1, 0, "by frequencies without the factors of pairs" },
        { 0, 1, "by frequencies without the scaling factor" },
        { 1, -1, "by frequencies multiplied by the factors of pairs, not divided by them" },
        { 1, 2, "by frequencies divided twice by the factors of pairs" },
        { -1, 1, "by frequencies multiplied by the scaling factor, not divided by it" },
        { 2, 1, "by frequencies divided twice by the scaling factor" },
    };
    double scale = (double)r->plan->freq_scale;
    bool has_scale = scale != 1, has_factors = false;
    for (uint32_t i = 0; i < r->plan->n_rot / 2; i++) {
        has_factors |= r->frequencies[i] > 0 && !fit_is_near(r->frequencies[i], r->plain[i] * scale, 1e-6);
    }
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        bool is_other = (has_scale && ways[k].scale != 1) || (has_factors && ways[k].factor != 1);
        if (!is_other) continue;
        for (uint32_t i = 0; i < r->n_pair; i++) {
            double factor = r->plain[i] > 0 ? r->frequencies[i] / (r->plain[i] * scale) : 0;
            r->tried[i] = r->plain[i] * pow(scale, ways[k].scale) * (factor > 0 ? pow(factor, ways[k].factor) : 0);
        }
        if (k == 0 && has_scale != has_factors) continue;   /* another row says it in fewer words */
        propose(r, pairs, NULL, r->tried, NULL, 0, "%s", ways[k].text);
    }
}

/* Another base, but the right scaling and factors: the frequencies of pair i are the right ones times a power of i. */
static void try_base(struct rope *r, const struct pairing *pairs) {
    double weight = 0, sum = 0, base = (double)r->plan->freq_base, scale = (double)r->plan->freq_scale;
    bool has_factors = false;
    for (uint32_t i = 0; i < r->plan->n_rot / 2 && i < pairs->n; i++) {
        double f = r->measured[i], right = r->frequencies[i];
        if (!(f > 0) || !(right > 0)) continue;
        has_factors |= !fit_is_near(right, r->plain[i] * scale, 1e-6);
        weight += f * f * i * i;
        sum += f * f * i * log(f / right);
    }
    double theirs = weight > 0 ? base * exp(-sum / weight * r->plan->n_rot / 2) : base, near = rounded(theirs);
    if (!has_factors && scale == 1) return;   /* try_laws knows this */
    for (int is_near_one = 0; is_near_one < 2; is_near_one++) {
        double b = is_near_one ? near : theirs;
        if (fit_is_near(b, base, 1e-5) || (is_near_one && near == theirs)) continue;
        for (uint32_t i = 0; i < r->n_pair; i++) {
            r->tried[i] = r->frequencies[i] * pow(b / base, -2.0 * i / r->plan->n_rot);
        }
        propose(r, pairs, NULL, r->tried, NULL, is_near_one ? 0 : 1, "by frequencies of base %.9g, not %.9g, with the "
                "right scaling and factors", b, base);
    }
}

/* Exponents by other indices of pairs. */
static void try_indices(struct rope *r, const struct pairing *pairs) {
    static const char *const texts[] = {
        "by the same frequency, 1, in all pairs: the exponents are 0, as in a division of integers",
        "by frequencies of i / 2 rounded down instead of i",
        "by the frequencies of the pairs in reverse order",
    };
    uint32_t n = r->plan->n_rot / 2;
    for (int way = 0; way < 3 && n > 1; way++) {
        for (uint32_t i = 0; i < r->n_pair; i++) {
            uint32_t j = way == 0 ? 0 : way == 1 ? i / 2 : n - 1 - i;
            r->tried[i] = i < n ? way == 2 ? r->frequencies[j] : r->plain[j] * (double)r->plan->freq_scale : 0;
        }
        propose(r, pairs, NULL, r->tried, NULL, 0, "%s", texts[way]);
    }
}

/* The right frequencies, but only some pairs are rotated. */
static void try_part(struct rope *r, const struct pairing *pairs) {
    uint32_t first = UINT32_MAX, end = 0, n_turned = 0, n = r->plan->n_rot / 2;
    for (uint32_t i = 0; i < n && i < pairs->n; i++) {
        if (!r->turned[i]) continue;
        if (first == UINT32_MAX) first = i;
        end = i + 1;
        n_turned++;
    }
    if (n_turned == 0 || n_turned == n) return;
    for (uint32_t i = 0; i < r->n_pair; i++) {
        r->tried[i] = i < pairs->n && r->turned[i] ? r->frequencies[i] : 0;
    }
    propose_said(r, pairs, NULL, r->tried, NULL, n_turned == end - first ? 0 : 1,
                 n_turned == 1 ? fit_say(r->f, "in pair %u alone, of %u pairs", first, n) : n_turned == end - first
                 ? fit_say(r->f, "in the pairs %u to %u alone, of %u pairs", first, end - 1, n)
                 : fit_say(r->f, "in %u pairs alone, of %u; pair %u is the first", n_turned, n, first));
}

static void try_frequencies(struct rope *r, const struct pairing *pairs) {
    uint32_t n = pairs->n;
    try_indices(r, pairs);
    try_factors(r, pairs);
    solve_angles(r, pairs);
    solve_frequencies(r, n);
    try_part(r, pairs);
    for (uint32_t i = 0; i < n; i++) r->tried[i] = -r->frequencies[i];
    for (uint32_t i = 0; i < n; i++) r->offset[i] = i < r->plan->n_rot / 2 ? PI / 2 : 0;
    propose(r, pairs, NULL, r->tried, r->offset, 0, "with sine and cosine exchanged");
    without_offset(r, n);
    uint32_t n_turned = 0, n_right = r->plan->n_rot / 2 < n ? r->plan->n_rot / 2 : n;
    for (uint32_t i = 0; i < n; i++) {
        if (r->turned[i]) n_turned = i + 1;
    }
    try_laws(r, pairs, n_right);
    if (n_turned != n_right) try_laws(r, pairs, n_turned);
    try_base(r, pairs);
    uint32_t at = 0;
    while (at + 1 < n && fit_is_near(r->measured[at], r->frequencies[at], 1e-3)) at++;
    propose(r, pairs, NULL, r->measured, NULL, n, "by other frequencies: %.6g in pair %u, the right one is %.6g",
            r->measured[at], at, r->frequencies[at]);
}

/* ---- what is no rotation ----------------------------------------------------------------------------------------- */

/* a' and b' are sums of these factors times a, then of these times b. */
enum { TERMS = 5, COEFFICIENTS = 2 * TERMS };
static const char *const term_names[TERMS] = { "", " cos", " sin", " cos sin", " sin^2" };

static void terms_of(double angle, double terms[TERMS]) {
    double c = cos(angle), s = sin(angle);
    terms[0] = 1;
    terms[1] = c;
    terms[2] = s;
    terms[3] = c * s;
    terms[4] = s * s;
}

/* Solves m x = y for both columns of y by elimination; a little is added to the diagonal, as few tokens may leave some
 * of the sums undetermined. */
static void solve(double m[COEFFICIENTS][COEFFICIENTS], double y[COEFFICIENTS][2]) {
    double trace = 0;
    for (int i = 0; i < COEFFICIENTS; i++) trace += m[i][i];
    for (int i = 0; i < COEFFICIENTS; i++) m[i][i] += 1e-10 * trace + 1e-300;
    for (int i = 0; i < COEFFICIENTS; i++) {
        for (int j = 0; j < COEFFICIENTS; j++) {
            double factor = j == i ? 0 : m[j][i] / m[i][i];
            for (int k = i; k < COEFFICIENTS; k++) m[j][k] -= factor * m[i][k];
            for (int k = 0; k < 2; k++) y[j][k] -= factor * y[i][k];
        }
    }
    for (int i = 0; i < COEFFICIENTS; i++) {
        for (int k = 0; k < 2; k++) y[i][k] /= m[i][i];
    }
}

/* Writes "a cos - b sin". */
static void write_form(char *text, size_t size, size_t *n, double form[COEFFICIENTS][2], int which) {
    bool any = false;
    for (int i = 0; i < COEFFICIENTS; i++) {
        double value = form[i][which];
        if (value == 0) continue;
        report_append(text, size, n, "%s", value < 0 ? any ? " - " : "-" : any ? " + " : "");
        if (fabs(value) != 1) report_append(text, size, n, "%.9g ", fabs(value));
        report_append(text, size, n, "%c%s", i < TERMS ? 'a' : 'b', term_names[i % TERMS]);
        any = true;
    }
    if (!any) report_append(text, size, n, "0");
}

static void try_forms(struct rope *r, const struct pairing *pairs) {
    static const double in_place[2][COEFFICIENTS][2] = {   /* the second element from the new first one; the reverse */
        { [1] = { 1, 0 }, [3] = { 0, 1 }, [TERMS + 1] = { 0, 1 }, [TERMS + 2] = { -1, 0 }, [TERMS + 4] = { 0, -1 } },
        { [1] = { 1, 0 }, [2] = { 0, 1 }, [4] = { -1, 0 }, [TERMS + 1] = { 0, 1 }, [TERMS + 3] = { -1, 0 } },
    };
    const struct fit_rows *x = &r->before, *theirs = &r->f->theirs;
    size_t n_row = (size_t)x->n_token * x->n_head;
    double m[COEFFICIENTS][COEFFICIENTS] = { 0 }, form[COEFFICIENTS][2] = { 0 }, terms[TERMS];
    for (size_t row = 0; row < n_row; row++) {
        const float *from = x->x + row * x->n, *to = theirs->x + row * x->n;
        for (uint32_t i = 0; i < pairs->n && r->f->wrong[row]; i++) {
            double a = (double)from[element_a(*pairs, i)], b = (double)from[element_b(*pairs, i)];
            double c = (double)to[element_a(*pairs, i)], d = (double)to[element_b(*pairs, i)];
            if (r->frequencies[i] == 0) continue;
            terms_of(x->pos[row / x->n_head] * r->frequencies[i], terms);
            for (int j = 0; j < COEFFICIENTS; j++) {
                double left = terms[j % TERMS] * (j < TERMS ? a : b);
                for (int k = 0; k < COEFFICIENTS; k++) m[j][k] += left * terms[k % TERMS] * (k < TERMS ? a : b);
                form[j][0] += left * c;
                form[j][1] += left * d;
            }
        }
    }
    solve(m, form);
    for (int i = 0; i < COEFFICIENTS; i++) {
        for (int k = 0; k < 2; k++) {
            double whole = round(form[i][k]);
            if (!(fabs(form[i][k] - whole) < 0.1) || fabs(whole) > 2) return;
            form[i][k] = whole == 0 ? 0 : whole;
        }
    }
    for (size_t row = 0; row < n_row; row++) {
        const float *from = x->x + row * x->n;
        double *to = r->y + row * x->n;
        for (uint32_t i = 0; i < x->n; i++) to[i] = (double)from[i];
        for (uint32_t i = 0; i < pairs->n; i++) {
            double a = (double)from[element_a(*pairs, i)], b = (double)from[element_b(*pairs, i)], sums[2] = { 0 };
            if (i >= r->plan->n_rot / 2) continue;
            terms_of(x->pos[row / x->n_head] * r->frequencies[i], terms);
            for (int j = 0; j < COEFFICIENTS; j++) {
                for (int k = 0; k < 2; k++) sums[k] += form[j][k] * terms[j % TERMS] * (j < TERMS ? a : b);
            }
            to[element_a(*pairs, i)] = sums[0];
            to[element_b(*pairs, i)] = sums[1];
        }
    }
    uint32_t cost = 0;
    for (int i = 0; i < 2 * COEFFICIENTS; i++) cost += form[i / 2][i % 2] != 0 ? 1 : 0;
    char text[FIT_SENTENCE] = "", elements[80] = "";
    size_t n = 0, n_elements = 0;
    write_pairing(elements, sizeof elements, &n_elements, *pairs);
    bool is_second = memcmp(form, in_place[0], sizeof form) == 0;
    bool is_first = memcmp(form, in_place[1], sizeof form) == 0;
    if (is_second || is_first) {
        report_append(text, sizeof text, &n, "the %s element is computed from the %s one after its rotation",
                      is_second ? "second" : "first", is_second ? "first" : "second");
        cost = 0;
    } else {
        report_append(text, sizeof text, &n, "pairs (a, b) become (");
        write_form(text, sizeof text, &n, form, 0);
        report_append(text, sizeof text, &n, ", ");
        write_form(text, sizeof text, &n, form, 1);
        report_append(text, sizeof text, &n, "), not (a cos - b sin, a sin + b cos)");
    }
    fit_propose(r->f, cost, r->y, "is not a rotation of the elements %s: %s", elements, text);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static bool allocate(struct rope *r) {
    const struct fit_rows *x = &r->before;
    size_t n_row = (size_t)x->n_token * x->n_head;
    r->n_pair = x->n / 2;
    r->frequencies = fit_new(r->f, r->n_pair, sizeof *r->frequencies);
    r->plain = fit_new(r->f, r->n_pair, sizeof *r->plain);
    r->measured = fit_new(r->f, r->n_pair, sizeof *r->measured);
    r->offset = fit_new(r->f, r->n_pair, sizeof *r->offset);
    r->tried = fit_new(r->f, r->n_pair, sizeof *r->tried);
    r->turned = fit_new(r->f, r->n_pair, sizeof *r->turned);
    r->order = fit_new(r->f, r->n_pair, sizeof *r->order);
    r->sums = fit_new(r->f, (uint64_t)x->n_token * r->n_pair * 2, sizeof *r->sums);
    r->solved = fit_new(r->f, n_row, sizeof *r->solved);
    r->positions = fit_new(r->f, n_row, sizeof *r->positions);
    r->y = fit_new(r->f, (uint64_t)n_row * x->n, sizeof *r->y);
    return !r->f->out_of_memory;
}

/* Fills the right frequencies and the order of the pairs by them. */
static void find_right(struct rope *r, uint32_t rope) {
    const struct rope_plan *p = r->plan;
    uint32_t n = p->n_rot / 2;
    model_rope_angles(r->f->model, rope, r->f->dump->n_token, 1, r->frequencies);
    for (uint32_t i = 0; i < n; i++) {
        r->plain[i] = pow((double)p->freq_base, -2.0 * i / p->n_rot);
        if (!(r->frequencies[i] > 0)) continue;
        uint32_t at = r->n_order++;
        for (; at > 0 && r->frequencies[r->order[at - 1]] > r->frequencies[i]; at--) r->order[at] = r->order[at - 1];
        r->order[at] = i;
    }
    const struct step *s = fit_step(r->f);   /* of latent attention, it only shows what was rotated from n_plain on */
    uint32_t first = s && s->kind == STEP_SHOW ? r->f->model->plan.layers[r->f->layer].attn.latent.n_plain : 0;
    struct pairing pairs = { first, p->pairing == ROPE_NORM ? 1 : n, n };
    r->right = pairs;
}

/* Tries what turns with these pairs, if that can explain theirs. */
static void try_pairs(struct rope *r, struct pairing pairs) {
    bool is_right = is_same(pairs, r->right) && pairs.n == r->right.n;
    if (!is_right && solve_angles(r, &pairs) > r->f->floor) return;
    if (!is_right || !r->rotates) propose(r, &pairs, NULL, r->frequencies, NULL, 0, "by the right angles");
    try_positions(r, &pairs);
    try_frequencies(r, &pairs);
}

/* rope: which of the plan's. */
static void analyse(struct fit *f, const struct fit_rows *before, uint32_t rope, bool rotates) {
    struct rope r = { .f = f, .before = *before, .rotates = rotates };
    uint32_t n = before->n;
    r.plan = &f->model->plan.ropes[rope];
    if (n < 2 || r.plan->n_rot < 2 || r.plan->n_rot > n || !allocate(&r)) return;
    find_right(&r, rope);
    r.last_pos = before->pos[before->n_token - 1];
    size_t n_value = (size_t)before->n_token * fit_width(before);
    for (size_t i = 0; i < n_value; i++) r.y[i] = (double)before->x[i];
    if (rotates) {
        double error = fit_propose(f, 0, r.y, "is not rotated");
        double size = fit_size(&r);
        for (size_t i = 0; i < n_value; i++) r.y[i] *= size;
        if (!fit_is_near(size, 1, 1e-6)) error = fit_propose(f, 1, r.y, "is not rotated, and multiplied by %.6g", size);
        if (error <= f->floor) return;   /* any pairs would do, with angles of 0 */
        if (!fit_is_near((double)r.plan->magnitude, 1, 1e-6)) {
            rotate(&r, &r.right, NULL, r.frequencies, NULL, 1);
            fit_propose(f, 0, r.y, "is rotated without multiplying cosine and sine by %.6g",
                        (double)r.plan->magnitude);
        }
    }
    struct pairing neighbours = { 0, 1, n / 2 }, right_half = { 0, r.plan->n_rot / 2, r.plan->n_rot / 2 };
    struct pairing right_neighbours = { 0, 1, r.plan->n_rot / 2 };
    try_pairs(&r, r.right);
    if (!is_same(r.right, neighbours)) try_pairs(&r, right_neighbours);
    if (r.plan->n_rot < n) try_pairs(&r, neighbours);
    struct pairing last = { n - r.plan->n_rot, 1, r.plan->n_rot / 2 };
    if (last.first > 0 && !is_same(r.right, last)) try_pairs(&r, last);
    for (uint32_t distance = 2; distance <= n / 2; distance++) {
        for (uint32_t first = 0; first <= n - 2 * distance; first += n - 2 * distance) {
            struct pairing halves = { first, distance, distance };
            if (!is_same(halves, r.right)) try_pairs(&r, halves);
            if (n == 2 * distance) break;
        }
    }
    if (!rotates) return;
    try_forms(&r, &r.right);
    struct pairing other = r.right.distance == 1 ? right_half : right_neighbours;
    try_forms(&r, &other);
}

/* The rope of the layer, or of any layer if this one has none. */
static uint32_t rope_of(const struct model *m, int32_t layer) {
    uint32_t own = m->plan.layers[layer].attn.rope;
    for (uint32_t il = 0; il < m->plan.n_layer && own == ROPE_NONE; il++) own = m->plan.layers[il].attn.rope;
    return own;
}

void fit_rope(struct fit *f) {
    struct fit_rows before;
    uint32_t rope = rope_of(f->model, f->layer);
    if (rope == ROPE_NONE || !fit_input(f, ALL_IDS, &before) || fit_width(&before) != fit_width(&f->theirs)) return;
    before.n_head = f->theirs.n_head;
    before.n = f->theirs.n;
    analyse(f, &before, rope, f->model->plan.layers[f->layer].attn.rope != ROPE_NONE);
}

void fit_rope_early(struct fit *f) {
    uint32_t rope = rope_of(f->model, f->layer);
    if (rope != ROPE_NONE) analyse(f, &f->truth, rope, false);
}

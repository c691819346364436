/* Languages of the decimal texts of numbers in a range.
 *
 * A text is an optional "-" and a magnitude.  Automata compare a magnitude with a bound digit by digit, and compute its
 * remainder; the language of a range is their intersection.
 */
#include "grammar/language.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the numbers that are given ---------------------------------------------------------------------------------- */

enum { MAX_DIGITS = 2000 };   /* before and after the point */

/* The value 0.DIGITS * 10^point, whose first and last digits are not 0.  It is 0 if there are none. */
struct decimal {
    bool negative;
    char digits[MAX_DIGITS];
    int32_t n, point;
};

static bool read_decimal(struct languages *all, const char *text, struct decimal *d) {
    const char *c = text;
    int64_t exponent = 0, n_zero = 0, point = 0;
    *d = (struct decimal){.negative = *c == '-'};
    c += d->negative;
    const char *begin = c;
    bool after_point = false, too_long = false;
    for (; (*c >= '0' && *c <= '9') || (*c == '.' && !after_point && c > begin); c++) {
        if (*c == '.') {
            after_point = true;
            continue;
        }
        if (*c == '0') {
            if (d->n > 0) n_zero++;
        } else {
            for (; n_zero > 0 && d->n < MAX_DIGITS; n_zero--) d->digits[d->n++] = '0';
            if (d->n < MAX_DIGITS) d->digits[d->n++] = *c;
            else too_long = true;
        }
        if (!after_point && (d->n > 0)) point++;
        if (after_point && d->n == 0) point--;
    }
    bool ok = c > begin && c[-1] != '.';
    if (ok && (*c | 0x20) == 'e') {
        bool minus = *++c == '-';
        c += *c == '-' || *c == '+';
        ok = *c >= '0' && *c <= '9';
        for (; *c >= '0' && *c <= '9'; c++) {
            if (exponent <= 4 * MAX_DIGITS) exponent = exponent * 10 + (*c - '0');
        }
        if (minus) exponent = -exponent;
    }
    struct shown shown;
    if (!ok || *c != 0) {
        error_set(all->err, PLUMB_ERROR_ARGUMENT, "\"%s\" is no JSON number", show_bytes(&shown, text, strlen(text)));
        return false;
    }
    point += exponent;
    if (d->n == 0) {
        d->negative = false;
        d->point = 0;
        return true;
    }
    if (too_long || point > MAX_DIGITS || point - d->n < -MAX_DIGITS) {
        error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the number %s has more than %d digits before or after the point",
                  show_bytes(&shown, text, strlen(text)), MAX_DIGITS);
        return false;
    }
    d->point = (int32_t)point;
    return true;
}

/* The digits before the point, at least one, and after it. */
static int32_t n_whole(const struct decimal *d) { return d->point > 0 ? d->point : 1; }
static int32_t n_fraction(const struct decimal *d) { return d->n > d->point ? d->n - d->point : 0; }
/* Digit i before or after the point, counted from the left. */
static uint32_t digit_at(const struct decimal *d, int32_t at) {
    return at >= 0 && at < d->n ? (uint32_t)(d->digits[at] - '0') : 0;
}
static uint32_t whole_digit(const struct decimal *d, int32_t i) { return d->point > 0 ? digit_at(d, i) : 0; }
static uint32_t fraction_digit(const struct decimal *d, int32_t i) { return digit_at(d, d->point + i); }

/* ---- automata over digits ---------------------------------------------------------------------------------------- */

/* The classes of characters: others, the point, the digits. */
enum { CLASS_POINT = 1, CLASS_DIGIT = 2, N_CLASS = 12, N_INTERVAL = 14 };
static uint32_t digit_starts[N_INTERVAL] = {0, '.', '/', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ':'};
static uint16_t digit_classes[N_INTERVAL] = {0, 1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0};

/* Makes room for n states, which all lead to the last one. */
static bool begin_table(struct languages *all, struct dfa *raw, uint32_t n) {
    *raw = (struct dfa){.n_state = n, .n_class = N_CLASS, .n_interval = N_INTERVAL, .starts = digit_starts,
                        .class_of = digit_classes};
    raw->next = languages_temporary(all, (uint64_t)n * N_CLASS, sizeof *raw->next);
    raw->accepts = languages_temporary(all, n, 1);
    if (!raw->next || !raw->accepts) {
        free(raw->next);
        free(raw->accepts);
        return false;
    }
    for (uint32_t i = 0; i < n * N_CLASS; i++) raw->next[i] = n - 1;
    memset(raw->accepts, 0, n);
    return true;
}

static const struct language *end_table(struct languages *all, struct dfa *raw) {
    const struct dfa *dfa = dfa_minimize(all, raw);
    free(raw->next);
    free(raw->accepts);
    return language_of_dfa(all, dfa);
}

enum { LESS = 1, EQUAL = 2, GREATER = 4 };

/* Sets where the digits of a state lead that compares with one digit of the bound. */
static void compare_digit(struct dfa *raw, uint32_t state, uint32_t digit, uint32_t less, uint32_t equal,
                          uint32_t greater) {
    for (uint32_t i = 0; i < 10; i++) {
        raw->next[state * N_CLASS + CLASS_DIGIT + i] = i < digit ? less : i == digit ? equal : greater;
    }
}

/* The magnitudes, of the form 12 or 12.50, that compare with |bound| as wanted.  The text must be well-formed. */
static const struct language *compared(struct languages *all, const struct decimal *bound, uint32_t wanted) {
    uint32_t n = (uint32_t)n_whole(bound), k = (uint32_t)n_fraction(bound);
    /* after i digits that equal the bound's, n states for those that are less, n for those that are greater */
    uint32_t less = n, greater = 2 * n, longer = 3 * n + 1, below = longer + 1, above = below + 1;
    uint32_t fraction = above + 1, total = fraction + k + 2;   /* k + 1 states after the point, and the dead one */
    bool is_less = wanted & LESS, is_equal = wanted & EQUAL, is_greater = wanted & GREATER;
    struct dfa raw;
    if (!begin_table(all, &raw, total)) return NULL;
    for (uint32_t i = 0; i <= n; i++) {
        if (i < n) compare_digit(&raw, i, whole_digit(bound, (int32_t)i), less + i + 1, i + 1, greater + i + 1);
        else compare_digit(&raw, i, 0, longer, longer, longer);
        raw.next[i * N_CLASS + CLASS_POINT] = i < n ? below : fraction;
        raw.accepts[i] = i < n || k > 0 ? is_less : is_equal;
    }
    for (uint32_t i = 1; i <= n; i++) {
        compare_digit(&raw, less + i, 0, 0, i < n ? less + i + 1 : longer, i < n ? less + i + 1 : longer);
        compare_digit(&raw, greater + i, 0, 0, i < n ? greater + i + 1 : longer, i < n ? greater + i + 1 : longer);
        raw.next[(less + i) * N_CLASS + CLASS_POINT] = below;
        raw.next[(greater + i) * N_CLASS + CLASS_POINT] = i < n ? below : above;
        raw.accepts[less + i] = is_less;
        raw.accepts[greater + i] = i < n ? is_less : is_greater;
    }
    compare_digit(&raw, longer, 0, 0, longer, longer);
    raw.next[longer * N_CLASS + CLASS_POINT] = above;
    compare_digit(&raw, below, 0, 0, below, below);
    compare_digit(&raw, above, 0, 0, above, above);
    raw.accepts[longer] = raw.accepts[above] = is_greater;
    raw.accepts[below] = is_less;
    for (uint32_t i = 0; i <= k; i++) {
        uint32_t state = fraction + i;
        if (i < k) compare_digit(&raw, state, fraction_digit(bound, (int32_t)i), below, state + 1, above);
        else compare_digit(&raw, state, 0, 0, state, above);
        raw.accepts[state] = i < k ? is_less : is_equal;
    }
    return end_table(all, &raw);
}

/* The magnitudes that are multiples of a number, which is M / 10^s for integers M and s. */
static const struct language *multiples(struct languages *all, const struct decimal *of, const char *text) {
    uint64_t m = 0, power = 1;
    uint32_t s = (uint32_t)n_fraction(of);
    int32_t n = of->point + (int32_t)s;
    for (int32_t i = 0; i < n && m <= LANGUAGE_MAX_STATES; i++) m = m * 10 + digit_at(of, i);
    struct shown shown;
    if (m == 0 || of->negative) {
        error_set(all->err, PLUMB_ERROR_ARGUMENT, "multiples of %s, which is not greater than 0",
                  show_bytes(&shown, text, strlen(text)));
        return NULL;
    }
    if (m * (s + 2) >= LANGUAGE_MAX_STATES) {
        error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "multiples of %s take an automaton of %llu states or more; at "
                  "most %d are supported", show_bytes(&shown, text, strlen(text)), (unsigned long long)m * (s + 2),
                  LANGUAGE_MAX_STATES);
        return NULL;
    }
    struct dfa raw;
    /* row 0: the remainder of the digits before the point; row 1 + j: after the point and j more digits */
    if (!begin_table(all, &raw, (uint32_t)m * (s + 2) + 1)) return NULL;
    for (uint32_t row = s + 2; row-- > 0;) {
        /* power is 10 to the digits that are missing */
        for (uint32_t r = 0; r < m; r++) {
            uint32_t state = row * (uint32_t)m + r, to = row == 0 ? 0 : (row + 1) * (uint32_t)m;
            for (uint32_t digit = 0; digit < 10 && row <= s; digit++) {
                raw.next[state * N_CLASS + CLASS_DIGIT + digit] = to + (uint32_t)((r * 10 + digit) % m);
            }
            if (row == s + 1) raw.next[state * N_CLASS + CLASS_DIGIT] = state;   /* only zeros follow */
            if (row == 0) raw.next[state * N_CLASS + CLASS_POINT] = (uint32_t)m + r;
            raw.accepts[state] = r * power % m == 0;
        }
        if (row > 1) power = power * 10 % m;
    }
    return end_table(all, &raw);
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

struct bound {
    struct decimal value;
    uint32_t wanted;          /* how the number compares with it */
};

static const struct language *syntax(struct languages *all, const char *regex) {
    return regex_language(all, regex, strlen(regex), REGEX_WHOLE, NULL);
}

static uint32_t mirrored(uint32_t wanted) {
    return (wanted & EQUAL) | (wanted & LESS ? GREATER : 0) | (wanted & GREATER ? LESS : 0);
}

/* The magnitudes, in the form of a regular expression, of the numbers with this sign that compare with the bounds as
 * wanted.  Without the negative sign, there is a number 0 unless it is excluded. */
static const struct language *magnitudes(struct languages *all, const char *regex, bool negative, bool zero,
                                         const struct bound *bounds, uint32_t n) {
    static struct decimal nothing;   /* not const, so that it takes no bytes of a module */
    const struct language *a = syntax(all, regex);
    if (negative || !zero) a = language_intersect(all, a, compared(all, &nothing, GREATER));
    for (uint32_t i = 0; i < n; i++) {
        const struct bound *bound = &bounds[i];
        if (bound->value.negative == negative && (bound->value.n > 0 || !negative)) {
            uint32_t wanted = negative ? mirrored(bound->wanted) : bound->wanted;
            a = language_intersect(all, a, compared(all, &bound->value, wanted));
        } else if (!(bound->wanted & (negative ? LESS : GREATER))) {
            return language_none(all);   /* the bound is on the other side of 0 */
        }
    }
    return a;
}

/* Exponents, with their sign, that compare with one as wanted. */
static const struct language *exponents(struct languages *all, int32_t with, uint32_t wanted) {
    char text[16];
    struct bound *bound = languages_temporary(all, 1, sizeof *bound);
    if (!bound) return NULL;
    snprintf(text, sizeof text, "%d", (int)with);
    const struct language *a = NULL;
    bound->wanted = wanted;
    if (read_decimal(all, text, &bound->value)) {
        a = language_union(all, language_concat(all, syntax(all, "e\\+"),
                                                magnitudes(all, "[1-9][0-9]*", false, false, bound, 1)),
                           language_concat(all, syntax(all, "e-"),
                                           magnitudes(all, "[1-9][0-9]*", true, false, bound, 1)));
    }
    free(bound);
    return a;
}

#define MANTISSA "[1-9](?:\\.[0-9]*[1-9])?"

/* As magnitudes, in JavaScript's form with an exponent: 1.5e+21.  It never is 0. */
static const struct language *scientific(struct languages *all, bool negative, const struct bound *bounds, uint32_t n) {
    const struct language *a = syntax(all, MANTISSA "e[+-][1-9][0-9]*");
    for (uint32_t i = 0; i < n; i++) {
        const struct bound *bound = &bounds[i];
        if (bound->value.n > 0 && bound->value.negative == negative) {
            uint32_t wanted = negative ? mirrored(bound->wanted) : bound->wanted;
            int32_t exponent = bound->value.point - 1;
            struct bound *mantissa = languages_temporary(all, 1, sizeof *mantissa);
            if (!mantissa) return NULL;
            *mantissa = *bound;
            mantissa->value.point = 1;
            mantissa->value.negative = false;
            mantissa->wanted = wanted;
            const struct language *equal = language_concat(all, magnitudes(all, MANTISSA, false, true, mantissa, 1),
                                                           exponents(all, exponent, EQUAL));
            free(mantissa);
            const struct language *other = language_concat(all, syntax(all, MANTISSA),
                                                           exponents(all, exponent, wanted & (LESS | GREATER)));
            a = language_intersect(all, a, language_union(all, equal, other));
        } else if (!(bound->wanted & (negative ? LESS : GREATER))) {
            return language_none(all);
        }
    }
    return a;
}

const struct language *language_number(struct languages *all, const struct number_range *range) {
    const struct { const char *text; uint32_t wanted; } given[] = {
        {range->minimum, GREATER | EQUAL}, {range->exclusive_minimum, GREATER},
        {range->maximum, LESS | EQUAL}, {range->exclusive_maximum, LESS}
    };
    struct bound *bounds = languages_temporary(all, 5, sizeof *bounds);   /* the last is multiple_of */
    const struct language *a = NULL, *multiple = NULL, *minus = language_string(all, "-", 1);
    uint32_t n = 0;
    if (!bounds) return NULL;
    for (int i = 0; i < 4; i++) {
        if (!given[i].text) continue;
        if (!read_decimal(all, given[i].text, &bounds[n].value)) goto done;
        bounds[n++].wanted = given[i].wanted;
    }
    if (range->multiple_of) {
        if (!read_decimal(all, range->multiple_of, &bounds[4].value)) goto done;
        multiple = multiples(all, &bounds[4].value, range->multiple_of);
        if (!multiple) goto done;
    }
    const char *regex = range->integer ? "0|[1-9][0-9]*" : "(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?";
    const struct language *parts[2];
    for (int negative = 0; negative < 2; negative++) {
        const struct language *part = magnitudes(all, regex, negative, true, bounds, n);
        if (multiple) part = language_intersect(all, part, multiple);
        else if (!range->integer) part = language_union(all, part, scientific(all, negative, bounds, n));
        parts[negative] = negative ? language_concat(all, minus, part) : part;
    }
    a = language_automaton(all, language_union(all, parts[0], parts[1]));
done:
    free(bounds);
    return a;
}

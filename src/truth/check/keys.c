/* See keys.h.  The reader marks the keys that it finds while the plan and the tokenizer of a file are made. */
#include "check/keys.h"

#include "base/decimal.h"
#include "model/plan.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>

/* Makes the plan of a file, and its tokenizer, for the keys that they read.  Returns false if there is no plan: then
 * plumb does not run the model. */
static bool read_keys(struct plan *plan, struct gguf *const *parts, size_t n_part, bool *no_memory) {
    struct error ignored;
    struct tokenizer *tokenizer = NULL;
    uint64_t n_tensor = 0;
    for (size_t i = 0; i < n_part; i++) n_tensor += gguf_n_tensor(parts[i]);
    gguf_mark_keys(parts[0], true);
    plumb_status has_tokenizer = tokenizer_create(&tokenizer, parts[0], &ignored);
    plumb_status has_plan = plan_create(plan, parts, n_part, n_tensor, &ignored);
    gguf_mark_keys(parts[0], false);
    if (has_tokenizer == PLUMB_OK) tokenizer_free(tokenizer);
    *no_memory |= has_tokenizer == PLUMB_ERROR_MEMORY || has_plan == PLUMB_ERROR_MEMORY;
    return has_plan == PLUMB_OK;
}

/* Whether both plans say the same.  Their memory is zero where no field is, as plan_create requires. */
static bool equal_plans(const struct plan *a, const struct plan *b) {
    struct plan copy = *b;
    copy.layers = a->layers;
    return memcmp(a, &copy, sizeof copy) == 0 && memcmp(a->layers, b->layers, a->n_layer * sizeof *a->layers) == 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool is_float(const struct gguf_key *k) { return k->type == GGUF_FLOAT32 || k->type == GGUF_FLOAT64; }

static double float_at(const struct gguf_key *k, uint64_t i) {
    double value;
    if (k->type == GGUF_FLOAT32) return (double)f32_from_bits(load_u32(k->values + 4 * i));
    uint64_t bits = load_u64(k->values + 8 * i);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Whether the values at a place are the same, whatever types of integers or floats they have. */
static bool equal_at(const struct gguf_key *a, const struct gguf_key *b, uint64_t i) {
    if (i >= a->n || i >= b->n) return i >= a->n && i >= b->n;
    if (a->type == GGUF_STRING && b->type == GGUF_STRING) {
        return a->strings[i].n == b->strings[i].n
               && memcmp(a->strings[i].data, b->strings[i].data, (size_t)a->strings[i].n) == 0;
    }
    if (is_float(a) && is_float(b)) {
        double x = float_at(a, i), y = float_at(b, i);
        return x == y || (x != x && y != y);
    }
    bool is_integer = a->type != GGUF_STRING && b->type != GGUF_STRING && !is_float(a) && !is_float(b);
    return is_integer && gguf_element(a, i) == gguf_element(b, i);
}

/* Returns whether they differ. */
static bool compare(struct key_difference *d) {
    const struct gguf_key *a = d->a, *b = d->b;
    d->place = d->n = 0;
    if (!a || !b) return true;
    if (!a->is_array && !b->is_array) return !equal_at(a, b, 0);
    const uint64_t n = a->n > b->n ? a->n : b->n;
    for (uint64_t i = 0; i < n; i++) {
        if (equal_at(a, b, i)) continue;
        if (d->n == 0) d->place = i;
        d->n++;
    }
    return d->n > 0 || a->is_array != b->is_array;
}

/* Writes a number with as many digits as it needs: 1e-05 and not 9.99999975e-06. */
static void write_float(struct report_writer *w, double value, bool is_f32, bool is_json) {
    char digits[40];
    double read = 0;
    if (value - value != 0) {   /* NaN or infinite */
        report_printf(w, is_json ? "null" : "%g", value);
        return;
    }
    for (int n = 6; n <= 17; n++) {
        snprintf(digits, sizeof digits, "%.*g", n, value);
        bool is_read = decimal_read(digits, strlen(digits), &read) > 0;
        if (is_read && (is_f32 ? (float)read == (float)value : read == value)) break;
    }
    report_printf(w, "%s", digits);
}

void keys_write_value(struct report_writer *w, const struct gguf_key *k, uint64_t place, bool is_json) {
    enum { MAX_SHOWN = 60 };   /* bytes of a string */
    if (!k || place >= k->n) {
        report_printf(w, is_json ? "null" : "-");
    } else if (k->type == GGUF_STRING) {
        const struct gguf_string s = k->strings[place];
        size_t n = is_json || s.n < MAX_SHOWN ? (size_t)s.n : MAX_SHOWN;
        if (is_json) {
            report_json_string(w, s.data, n);
        } else {
            report_bytes(w, "\"", 1);
            report_text(w, s.data, n);
            report_printf(w, n < s.n ? "...\"" : "\"");
        }
    } else if (is_float(k)) {
        write_float(w, float_at(k, place), k->type == GGUF_FLOAT32, is_json);
    } else if (k->type == GGUF_BOOL) {
        report_printf(w, gguf_element(k, place) ? "true" : "false");
    } else if (k->type == GGUF_UINT64) {
        report_printf(w, "%llu", (unsigned long long)gguf_element(k, place));
    } else {
        report_printf(w, "%lld", (long long)gguf_element(k, place));
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Compares the keys of one file with those of the other.  is_b: only those that the other one lacks. */
static void compare_file(const struct gguf *one, const struct gguf *other, bool is_b, bool same_plan,
                         void (*found)(void *user, const struct key_difference *difference), void *user) {
    static const char tokenizer[] = "tokenizer.";
    for (uint64_t i = 0; i < gguf_n_key(one); i++) {
        const struct gguf_key *k = gguf_key_at(one, i), *same = gguf_find_key(other, k->name.data);
        if (!k->is_read && !(same && same->is_read)) continue;
        if (is_b && same) continue;
        if (same_plan && strncmp(k->name.data, tokenizer, sizeof tokenizer - 1) != 0) continue;
        struct key_difference d = { .a = is_b ? NULL : k, .b = is_b ? k : same };
        if (compare(&d)) found(user, &d);
    }
}

plumb_status keys_compare(struct gguf *const *a, size_t n_part_a, struct gguf *const *b, size_t n_part_b,
                          void (*found)(void *user, const struct key_difference *difference), void *user,
                          struct error *err) {
    struct plan plans[2] = { 0 };
    bool no_memory = false;
    bool has_a = read_keys(&plans[0], a, n_part_a, &no_memory), has_b = read_keys(&plans[1], b, n_part_b, &no_memory);
    bool same_plan = has_a && has_b && equal_plans(&plans[0], &plans[1]);
    plan_free(&plans[0]);
    plan_free(&plans[1]);
    if (no_memory) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the plans and tokenizers of the files");
    compare_file(a[0], b[0], false, same_plan, found, user);
    compare_file(b[0], a[0], true, same_plan, found, user);
    return PLUMB_OK;
}

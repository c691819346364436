#include "check/moved.h"

#include "quant/quant.h"
#include "repack/repack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A value fits if it differs by at most this part of itself, because dumps in bf16 are rounded by 0.4 %, and by
 * CANCELLED of the largest value of its block or row: a scale times a code, less a minimum, leaves an error near 0. */
#define TOLERANCE 0.006
#define CANCELLED 1e-5
/* Passes that find nothing are given up after MAX_FRUITLESS tensors, and all passes after MAX_LOOKED bytes: a pass over
 * the 98 MB of SmolLM2 takes 0.3 to 1.2 s. */
enum { MAX_FRUITLESS = 4 };
#define MAX_LOOKED (UINT64_C(3) << 30)
enum { MAX_ROWS = 64, MAX_WINDOW = QUANT_MAX_BLOCK, MAX_WINDOW_BYTES = 4 * QUANT_MAX_BLOCK, CHUNK = 1 << 16 };

/* ---- the bytes of the file --------------------------------------------------------------------------------------- */

struct moved_span {
    const struct gguf_tensor *t;
    size_t part;
    uint64_t byte;   /* of its beginning in the file of that part */
};

static int by_place(const void *a, const void *b) {
    const struct moved_span *x = a, *y = b;
    if (x->part != y->part) return (x->part > y->part) - (x->part < y->part);
    return (x->byte > y->byte) - (x->byte < y->byte);
}

static plumb_status list_spans(struct moved_search *m, struct error *err) {
    uint64_t n = 0;
    if (m->spans) return PLUMB_OK;
    for (size_t p = 0; p < m->n_part; p++) n += gguf_n_tensor(m->parts[p]);
    m->spans = alloc_array(n, sizeof *m->spans);
    if (!m->spans) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the places of %llu tensors",
                                    (unsigned long long)n);
    for (size_t p = 0; p < m->n_part; p++) {
        for (uint64_t i = 0; i < gguf_n_tensor(m->parts[p]); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(m->parts[p], i);
            m->spans[m->n_span++] = (struct moved_span) { t, p, gguf_data_offset(m->parts[p]) + t->offset };
        }
    }
    qsort(m->spans, m->n_span, sizeof *m->spans, by_place);
    return PLUMB_OK;
}

void moved_free(struct moved_search *m) {
    free(m->spans);
    m->spans = NULL;
}

/* Returns the index of the last tensor that begins at or before a byte of a part; n_span if there is none. */
static size_t span_at(const struct moved_search *m, size_t part, uint64_t byte) {
    size_t low = 0, high = m->n_span;   /* the first one after it is in low .. high */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct moved_span *s = &m->spans[middle];
        if (s->part < part || (s->part == part && s->byte <= byte)) low = middle + 1;
        else high = middle;
    }
    return low > 0 && m->spans[low - 1].part == part ? low - 1 : m->n_span;
}

/* The first byte of the data of a part, and the end of its last tensor. */
static uint64_t data_begin(const struct moved_search *m, size_t part) { return gguf_data_offset(m->parts[part]); }
static uint64_t data_end(const struct moved_search *m, size_t part) {
    size_t i = span_at(m, part, UINT64_MAX);
    return i < m->n_span ? m->spans[i].byte + m->spans[i].t->n_bytes : 0;
}

/* Copies n bytes of a part to out; the gaps between tensors are zeros.  row: scratch for a row of any tensor.  Returns
 * false if some of them are before the data, which is not stored, or after it. */
static bool read_bytes(const struct moved_search *m, size_t part, uint64_t byte, size_t n, uint8_t *row, uint8_t *out) {
    if (byte < data_begin(m, part) || byte > data_end(m, part) || n > data_end(m, part) - byte) return false;
    size_t i = span_at(m, part, byte);
    memset(out, 0, n);
    for (; i < m->n_span && m->spans[i].part == part && m->spans[i].byte < byte + n; i++) {
        const struct moved_span *s = &m->spans[i];
        uint64_t from = byte > s->byte ? byte - s->byte : 0, end = byte + n - s->byte;
        size_t row_bytes = gguf_row_bytes(s->t);
        if (end > s->t->n_bytes) end = s->t->n_bytes;
        for (uint64_t at = from, next; at < end; at = next) {
            uint64_t r = at / row_bytes;
            next = (r + 1) * row_bytes < end ? (r + 1) * row_bytes : end;
            const uint8_t *src = repack_tensor_row(s->t, r, row);
            memcpy(out + (size_t)(s->byte + at - byte), src + (size_t)(at - r * row_bytes), (size_t)(next - at));
        }
    }
    return true;
}

/* ---- what is sought ---------------------------------------------------------------------------------------------- */

/* Some values of the wrong tensor, and bounds of the bits that a block with these values begins with. */
struct sought {
    const struct gguf_tensor *theirs, *own;
    const struct quant_traits *as;       /* of own */
    uint32_t n, n_bytes;                 /* the window: n values, in n_bytes bytes of the type */
    uint64_t place;                      /* of the window from the beginning of own, in bytes */
    float window[MAX_WINDOW];
    float largest;
    uint32_t at, width, mask, low, high; /* the little-endian bits of `width` bytes at byte `at`; width 0: any fit */
    float *row_a, *row_b;                /* (shape[0]) scratch */
    uint8_t *bytes, *packed;             /* scratch for a row of own, and for a row of any tensor of the file */
    uint8_t *chunk;                      /* (CHUNK + MAX_WINDOW_BYTES) scratch */
};

/* Returns a bound of the difference of two values of a group, in units of d: 15 codes times a scale of 63 in Q4_K. */
static double span_of(const struct quant_traits *t) {
    uint32_t n_bit = t->code.low.width + t->code.high.width, n_scale = t->scale.low.width + t->scale.high.width;
    uint32_t n_code = t->grid ? 8 : n_bit > 0 ? 1u << n_bit : 3;
    double of_codes = n_code - 1, lowest = t->scale_plus, highest = lowest + t->scale_times * ((1 << n_scale) - 1);
    for (uint32_t i = 0; t->values && i < n_code; i++) of_codes = fmax(of_codes, 2 * abs(t->values[i]));
    return of_codes * fmax(fabs(lowest), fabs(highest)) * (double)t->factor;
}

/* Returns the least f16, as bits without a sign, whose value is at least x. */
static uint32_t f16_at_least(double x) {
    uint32_t low = 0, high = 0x7c00;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if ((double)f32_from_f16((uint16_t)middle) >= x) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* Sets the bounds for a window of floats of this type: those of its first value. */
static void bound_float(struct sought *s) {
    double x = fabs((double)s->window[0]), low = x * (1 - TOLERANCE), high = x * (1 + TOLERANCE);
    uint32_t type = s->own->type;
    s->at = 0;
    s->width = type == QUANT_F32 ? 4 : 2;
    s->mask = type == QUANT_F32 ? 0x7fffffff : 0x7fff;
    s->low = type == QUANT_F16 ? f16_at_least(low) : f32_to_bits((float)low) >> (type == QUANT_BF16 ? 16 : 0);
    s->high = type == QUANT_F16 ? f16_at_least(high) : (f32_to_bits((float)high) >> (type == QUANT_BF16 ? 16 : 0)) + 1;
}

/* Sets the bounds of the scale for a window of blocks.  Two values of different codes differ by at least d. */
static void bound_scale(struct sought *s) {
    double least = INFINITY, most = 0;
    for (uint32_t i = 0; i < 16; i++) {
        for (uint32_t k = 0; k < i; k++) {
            double d = fabs((double)s->window[i] - (double)s->window[k]);
            most = fmax(most, d);
        }
    }
    for (uint32_t i = 0; i < 16; i++) {
        for (uint32_t k = 0; k < i; k++) {
            double d = fabs((double)s->window[i] - (double)s->window[k]);
            if (d > most * TOLERANCE / 2) least = fmin(least, d);
        }
    }
    s->at = s->as->d;
    s->width = s->as->d_kind == QUANT_SCALE_F16 ? 2 : 0;
    s->mask = 0x7fff;
    s->low = f16_at_least(most / span_of(s->as) * (1 - TOLERANCE));
    s->high = f16_at_least(least * (1 + 4 * TOLERANCE) + TOLERANCE * most);
}

/* Returns true if n values can be told from others: all are finite, and not all are equal. */
static bool is_distinct(const float *x, uint32_t n) {
    uint32_t n_other = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;
        if (!isfinite(x[i])) return false;
        while (k < i && x[k] != x[i]) k++;
        n_other += k == i;
    }
    return n_other >= 2 && x[0] != 0;
}

/* Chooses the window: the first that can be told from others, from the middle of the tensor on, because its end or its
 * beginning may have been read from outside the data.  Returns false if there is none. */
static bool choose_window(struct sought *s) {
    uint64_t n_in = s->own->shape[0], n_row = gguf_n_row(s->own);
    s->n = s->as->block_size > 1 ? s->as->block_size : n_in < 16 ? (uint32_t)n_in : 16;
    s->n_bytes = s->n / s->as->block_size * s->as->block_bytes;
    for (uint64_t k = 0; k < n_row && k < MAX_ROWS; k++) {
        uint64_t r = (n_row / 2 + k) % n_row;
        const uint8_t *src = repack_tensor_row(s->theirs, r, s->bytes);
        quant_dequantize(quant_traits(s->theirs->type), src, s->row_a, (size_t)n_in);
        for (uint64_t i = 0; i + s->n <= n_in; i += s->n) {
            if (!is_distinct(s->row_a + i, s->n < 16 ? s->n : 16)) continue;
            memcpy(s->window, s->row_a + i, s->n * sizeof *s->window);
            s->largest = 0;
            for (uint32_t j = 0; j < s->n; j++) s->largest = fmaxf(s->largest, fabsf(s->window[j]));
            s->place = r * gguf_row_bytes(s->own) + i / s->as->block_size * s->as->block_bytes;
            if (!isfinite(s->largest)) continue;
            if (s->as->block_size == 1) bound_float(s);
            else bound_scale(s);
            return true;
        }
    }
    return false;
}

/* ---- trying a place ---------------------------------------------------------------------------------------------- */

static bool is_equal(float a, float b, float largest) {
    return a == b || (isnan(a) && isnan(b)) || fabsf(a - b) <= (float)TOLERANCE * fabsf(b) + (float)CANCELLED * largest;
}

/* Compares up to MAX_ROWS rows, evenly spaced, with what is read from a place.  byte: of the tensor's first row; it may
 * be in the header, whose bytes are not stored.  Returns true, and fills *out, if nearly all of the rows that are in
 * the data are equal. */
static bool try_place(const struct moved_search *m, const struct sought *s, size_t part, uint64_t byte,
                      struct moved *out) {
    uint64_t n_row = gguf_n_row(s->own), n_sample = n_row < MAX_ROWS ? n_row : MAX_ROWS, n_compared = 0, n_equal = 0;
    size_t row_bytes = gguf_row_bytes(s->own), n_in = (size_t)s->own->shape[0];
    if (byte > INT64_MAX) return false;   /* before the file */
    for (uint64_t k = 0; k < n_sample; k++) {
        uint64_t r = n_sample > 1 ? k * (n_row - 1) / (n_sample - 1) : 0;
        if (!read_bytes(m, part, byte + r * row_bytes, row_bytes, s->packed, s->bytes)) continue;
        quant_dequantize(s->as, s->bytes, s->row_b, n_in);
        quant_dequantize(quant_traits(s->theirs->type), repack_tensor_row(s->theirs, r, s->bytes), s->row_a, n_in);
        float largest = 0;
        for (size_t i = 0; i < n_in; i++) {
            if (isfinite(s->row_b[i])) largest = fmaxf(largest, fabsf(s->row_b[i]));
        }
        size_t i = 0;
        while (i < n_in && is_equal(s->row_a[i], s->row_b[i], largest)) i++;
        n_compared++;
        n_equal += i == n_in && largest > 0;
        if (n_compared >= 4 && n_equal < n_compared / 2) return false;
    }
    if (n_compared * 2 < n_sample || n_equal < n_compared - n_compared / 8) return false;
    size_t span = span_at(m, part, byte);
    *out = (struct moved) { .is_found = true, .part = part, .byte = byte, .n_compared = n_compared,
                            .n_equal = n_equal };
    if (span < m->n_span && byte >= data_begin(m, part)) {
        out->in = m->spans[span].t;
        out->in_byte = byte - m->spans[span].byte;
    }
    return true;
}

/* Returns true if the bits at a place are within the bounds, and the values there are those of the window. */
static bool fits(const struct sought *s, const uint8_t *src) {
    const uint8_t *at = src + s->at;
    uint32_t bits = (s->width == 4 ? load_u32(at) : s->width == 2 ? load_u16(at) : 0) & s->mask;
    if (s->width > 0 && (bits < s->low || bits > s->high)) return false;
    _Alignas(8) uint8_t block[MAX_WINDOW_BYTES];
    float values[MAX_WINDOW];
    memcpy(block, src, s->n_bytes);
    quant_dequantize(s->as, block, values, s->n);
    uint32_t i = 0;
    while (i < s->n && is_equal(s->window[i], values[i], s->largest)) i++;
    return i == s->n;
}

/* Looks at every byte of a part, up to MAX_LOOKED. */
static bool scan_part(struct moved_search *m, const struct sought *s, size_t part, struct moved *out) {
    uint64_t begin = data_begin(m, part), end = data_end(m, part);
    for (uint64_t at = begin; at < end && m->n_looked < MAX_LOOKED; at += CHUNK) {
        size_t n = end - at < CHUNK + s->n_bytes - 1 ? (size_t)(end - at) : CHUNK + s->n_bytes - 1;
        if (!read_bytes(m, part, at, n, s->packed, s->chunk)) return false;
        m->n_looked += CHUNK;
        for (size_t i = 0; i + s->n_bytes <= n; i++) {
            if (!fits(s, s->chunk + i)) continue;
            if (try_place(m, s, part, at + i - s->place, out)) return true;
        }
        if (m->on_progress) m->on_progress(m->user, (double)(at - begin) / (double)(end - begin));
    }
    return false;
}

static bool scan(struct moved_search *m, const struct sought *s, struct moved *out) {
    for (size_t part = 0; part < m->n_part; part++) {
        if (scan_part(m, s, part, out)) return true;
    }
    m->n_fruitless++;
    return false;
}

bool moved_is_exhausted(const struct moved_search *m) {
    return m->n_fruitless >= MAX_FRUITLESS || m->n_looked >= MAX_LOOKED;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* Notes the distance of a place that was found, before those that are known. */
static void note_shift(struct moved_search *m, int64_t shift) {
    enum { N_SHIFT = sizeof m->shifts / sizeof *m->shifts };
    for (uint32_t i = 0; i < m->n_shift; i++) {
        if (m->shifts[i] == shift) return;
    }
    memmove(m->shifts + 1, m->shifts, (N_SHIFT - 1) * sizeof *m->shifts);
    m->shifts[0] = shift;
    if (m->n_shift < N_SHIFT) m->n_shift++;
}

/* Tries the distances that other tensors have, then the place of every other tensor, then all bytes. */
static void search(struct moved_search *m, struct sought *s, size_t own_part, struct moved *out) {
    uint64_t own = data_begin(m, own_part) + s->own->offset;
    struct moved at_home;
    if (try_place(m, s, own_part, own, &at_home)) return;   /* few rows are wrong, so the tensor is not moved */
    for (uint32_t i = 0; i < m->n_shift && !out->is_found; i++) {
        try_place(m, s, own_part, own + (uint64_t)m->shifts[i], out);
    }
    for (size_t i = 0; i < m->n_span && !out->is_found; i++) {
        if (m->spans[i].t != s->own) try_place(m, s, m->spans[i].part, m->spans[i].byte, out);
    }
    if (!out->is_found && !moved_is_exhausted(m) && choose_window(s)) scan(m, s, out);
    if (!out->is_found) return;
    out->own_byte = own;
    if (out->part == own_part) note_shift(m, (int64_t)(out->byte - own));
}

plumb_status moved_find(struct moved_search *m, const struct gguf_tensor *theirs, const struct gguf_tensor *own,
                        struct moved *out, struct error *err) {
    struct sought s = { .theirs = theirs, .own = own, .as = quant_traits(own->type) };
    *out = (struct moved) { 0 };
    if (theirs->type != own->type && quant_traits(theirs->type)->block_size > 1) return PLUMB_OK;
    PLUMB_TRY(list_spans(m, err));
    size_t own_part = 0, widest = 0;
    for (size_t i = 0; i < m->n_span; i++) {
        size_t n = gguf_row_bytes(m->spans[i].t);
        if (n > widest) widest = n;
        if (m->spans[i].t == own) own_part = m->spans[i].part;
    }
    size_t n_bytes = gguf_row_bytes(own) > gguf_row_bytes(theirs) ? gguf_row_bytes(own) : gguf_row_bytes(theirs);
    s.row_a = alloc_array(own->shape[0], sizeof *s.row_a);
    s.row_b = alloc_array(own->shape[0], sizeof *s.row_b);
    s.bytes = alloc_array(n_bytes, 1);
    s.packed = alloc_array(widest, 1);
    s.chunk = alloc_array(CHUNK + MAX_WINDOW_BYTES, 1);
    plumb_status status = PLUMB_OK;
    if (!s.row_a || !s.row_b || !s.bytes || !s.packed || !s.chunk) {
        status = error_set(err, PLUMB_ERROR_MEMORY, "out of memory: two rows of %s, %llu elements", own->name.data,
                           (unsigned long long)own->shape[0]);
    } else {
        search(m, &s, own_part, out);
    }
    free(s.row_a);
    free(s.row_b);
    free(s.bytes);
    free(s.packed);
    free(s.chunk);
    return status;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

const char *moved_distance(struct moved_text *buf, const struct moved_search *m, const struct moved *where,
                           const struct gguf_tensor *own) {
    const struct quant_traits *traits = quant_traits(own->type);
    bool is_before = where->byte < where->own_byte;
    uint64_t n = is_before ? where->own_byte - where->byte : where->byte - where->own_byte;
    uint64_t row = gguf_row_bytes(own), block = traits->block_bytes;
    char unit[80] = "";
    if (is_before && n == data_begin(m, where->part)) {
        snprintf(unit, sizeof unit, " (counted from the beginning of the file, not of its data)");
    } else if (n % row == 0 && gguf_n_row(own) > 1) {
        snprintf(unit, sizeof unit, " (%llu row%s)", (unsigned long long)(n / row), n / row == 1 ? "" : "s");
    } else if (n % block == 0) {
        snprintf(unit, sizeof unit, " (%llu %s%s)", (unsigned long long)(n / block),
                 traits->block_size > 1 ? "block" : "value", n / block == 1 ? "" : "s");
    } else if (n * 2 == block) {
        snprintf(unit, sizeof unit, " (half a block)");
    }
    snprintf(buf->text, sizeof buf->text, "%llu byte%s%s %s", (unsigned long long)n, n == 1 ? "" : "s", unit,
             is_before ? "before" : "after");
    return buf->text;
}

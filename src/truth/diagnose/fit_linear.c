/* Products with a matrix, y = W x.  Each hypothesis takes other rows (of another tensor, of blocks that are read in
 * another way) or another x (of another activation, permuted, with elements left out or scaled).  A hypothesis is first
 * tried on a few rows, and computed for all rows only if these are right. */
#include "diagnose/fit.h"
#include "mistakes/known.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* SAMPLE: rows on which hypotheses are tried.  MAX_TRANSPOSED: elements of the largest matrix that is tried as its
 * transpose, for which it must be in memory as f32.  PARTS: how many products of the sample the search for elements
 * looks at. */
enum { SAMPLE = 32, MAX_TRANSPOSED = 1 << 24, PARTS = 256 };

/* How the bytes of a row are read. */
enum reading {
    READ_RIGHT, READ_TYPE, READ_MISREAD,
    /* The f16 at an offset in each block is that of the block before, of the next one or of the first one; 1, 0, or has
     * the wrong sign. */
    READ_BEFORE, READ_NEXT, READ_FIRST, READ_ONE, READ_ZERO, READ_MINUS,
    /* The scales of the parts of a block (bit 0 of which) and their minima (bit 1) are 1, all that of the first part,
     * or in another order. */
    READ_PARTS_ONE, READ_PARTS_FIRST, READ_PARTS_BEFORE, READ_PARTS_NEXT, READ_PARTS_REVERSED,
    /* Both of Q4_K and Q5_K, as if their 12 bytes were packed in another way. */
    READ_PACKED_SCALES_FIRST, READ_PACKED_PAIRS, READ_PACKED_BY_TWO,
    READ_BEFORE_ANY, READ_NEXT_ANY,   /* as READ_BEFORE and READ_NEXT, across the ends of rows */
    READ_MOVED,   /* the f16 are taken from the other end of the block */
    READ_BITS,    /* one of the two fields of the codes is in another order: see edit_bits */
    READ_EARLY,    /* the codes of a block with two f16 begin after the first */
    READ_OFFSET,   /* codes are larger by the integer in which */
    N_READING
};

/* The rows and the x of a product. */
struct way {
    const struct weight *w;
    enum reading reading;
    uint32_t which;          /* READ_TYPE: a type.  READ_MISREAD: enum misread.  READ_BITS: BITS_OF.  Others: the offset
                              * of an f16 */
    uint32_t first_row;      /* row o of the product is row first_row + o of the weight */
    const double *x;         /* (n_token, n_in) */
};

struct linear {
    struct fit *f;
    struct affine of;
    struct fit_rows input;
    const double *x;         /* (n_token, n_in) */
    double *rounded;         /* (n_token, n_in) the x of a way, as the engine rounds it */
    bool is_rounded;         /* the x of the ways that are tried is rounded already */
    uint32_t n_token, n_in, n_out;
    bool scales_last;        /* the bias is added before the scale */
    bool is_logits;
    double limit;            /* Q, K and V are clamped; 0: they are not */
    bool *wrong_rows;        /* (n_out) the right step is wrong for some token */
    uint32_t n_wrong_row;
    uint32_t sample[SAMPLE], n_sample;
    double right_error2;     /* of the right step, in the sample */
    double *sampled;         /* (SAMPLE, n_token) */
    float *row, *right;      /* (n_in) */
    uint8_t *bytes, *edited, *beside;
    double *y;               /* (n_token, n_out) */
};

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Where the f16 scales of a block are; n of them. */
static uint32_t scale_offsets(const struct quant_traits *t, uint32_t offsets[2]) {
    offsets[0] = t->d;
    offsets[1] = t->m;
    return t->block_size == 1 || t->d_kind != QUANT_SCALE_F16 ? 0 : t->min_kind == NO_MIN ? 1 : 2;
}

/* beside: the row before, or the next one; NULL: there is none */
static void edit_scales(const struct way *way, const uint8_t *bytes, const uint8_t *beside, uint8_t *edited) {
    const struct quant_traits *traits = way->w->traits;
    size_t n_block = way->w->n_in / traits->block_size, size = traits->block_bytes;
    memcpy(edited, bytes, n_block * size);
    for (size_t i = 0; i < n_block; i++) {
        bool is_before = way->reading == READ_BEFORE || way->reading == READ_BEFORE_ANY;
        bool is_next = way->reading == READ_NEXT || way->reading == READ_NEXT_ANY;
        size_t from = is_before ? (i > 0 ? i - 1 : 0) : is_next ? (i + 1 < n_block ? i + 1 : i)
                    : way->reading == READ_FIRST ? 0 : i;
        uint8_t *to = edited + i * size + way->which;
        bool is_beside = way->reading >= READ_BEFORE_ANY && beside && from == i;
        memcpy(to, (is_beside ? beside + (is_next ? 0 : n_block - 1) * size : bytes + from * size) + way->which, 2);
        if (way->reading == READ_ONE) to[0] = 0, to[1] = 0x3c;
        if (way->reading == READ_ZERO) to[0] = to[1] = 0;
        if (way->reading == READ_MINUS) to[1] ^= 0x80;
    }
}

/* How many parts of a block have a small scale.  Only types whose codes are plain numbers count. */
static uint32_t count_parts(const struct quant_traits *t) { return t->values ? 0 : t->scale.low.count; }

/* Six bits of the bytes q, from bit `at` on, the lowest first. */
static uint32_t six_bits(const uint8_t *q, uint32_t at) {
    uint32_t low = (uint32_t)q[at / 8] >> at % 8, high = at % 8 > 2 ? (uint32_t)q[at / 8 + 1] << (8 - at % 8) : 0;
    return (low | high) & 63;
}

/* Part j of Q4_K and Q5_K, read from the 12 bytes q as engines do that expect another packing. */
static uint32_t get_packed(enum reading reading, const uint8_t *q, uint32_t j, bool is_min) {
    if (reading == READ_PACKED_SCALES_FIRST) return six_bits(q, 6 * (is_min ? 8 + j : j));
    if (reading == READ_PACKED_PAIRS) return six_bits(q, 6 * (2 * j + is_min));
    const uint8_t *two = q + j / 2 + (is_min ? 4 : 0);
    return j % 2 == 0 ? two[0] & 63u : (uint32_t)two[0] >> 6 | (two[2] & 15u) << 2;
}

static void edit_parts(const struct way *way, const uint8_t *bytes, uint8_t *edited) {
    const struct quant_traits *traits = way->w->traits;
    uint32_t n = count_parts(traits);
    size_t n_block = way->w->n_in / traits->block_size, size = traits->block_bytes;
    memcpy(edited, bytes, n_block * size);
    for (size_t i = 0; i < n_block; i++) {
        for (uint32_t j = 0; j < n; j++) {
            uint32_t from = way->reading == READ_PARTS_FIRST ? 0 : way->reading == READ_PARTS_BEFORE ? (j + n - 1) % n
                          : way->reading == READ_PARTS_NEXT ? (j + 1) % n : n - 1 - j;
            for (uint32_t is_min = 0; is_min < 2; is_min++) {
                if (!(way->which >> is_min & 1)) continue;
                const struct quant_number *parts = is_min ? &traits->min : &traits->scale;
                uint32_t value = quant_get(bytes + i * size, parts, from);
                if (way->reading == READ_PARTS_ONE) value = (uint32_t)(is_min ? 1 : 1 - traits->scale_plus);
                if (way->reading >= READ_PACKED_SCALES_FIRST) {
                    value = get_packed(way->reading, bytes + i * size + traits->scale.low.first / 8, j, is_min);
                }
                quant_put(edited + i * size, parts, j, value);
            }
        }
    }
}

/* Moves the codes of each block to where a reading finds them that begins after the first of two f16. */
static void edit_codes(const struct way *way, const uint8_t *bytes, uint8_t *edited) {
    size_t size = way->w->traits->block_bytes, n = way->w->n_in / way->w->traits->block_size, m = way->w->traits->m;
    memcpy(edited, bytes, n * size);
    for (; n > 0; n--, bytes += size, edited += size) memcpy(edited + m + 2, bytes + m, size - m - 2);
}

/* One of the two fields of the codes; count 0: there is none.  In types of two bits and fewer, and in those whose codes
 * are not plain numbers, nothing is tried. */
static struct quant_number code_field(const struct quant_traits *t, bool is_high) {
    bool is_tried = t->read_codes == quant_read_numbers && !t->values && t->code.low.width + t->code.high.width > 2;
    if (!is_tried || t->signed_codes) return (struct quant_number){ .low.count = 0 };
    return (struct quant_number){ .low = is_high ? t->code.high : t->code.low };
}

/* Orders of elements within groups, whose size is even: orders of all of them, then those of a half of them. */
static const struct { enum array_order order; const char *text; } orders[] = {
    { ARRAY_REVERSED, "in reverse" }, { ARRAY_HALVES, "in exchanged halves" },
    { ARRAY_INTERLEAVED, "from both halves in turn" }, { ARRAY_EVENS_FIRST, "dealt to halves" },
    { ARRAY_NEXT, "shifted by one" }, { ARRAY_BEFORE, "shifted back by one" },
    { ARRAY_HALF_TWICE, "from the first half twice" }, { ARRAY_SECOND_HALF, "from the second half twice" },
};
enum { N_ORDER = sizeof orders / sizeof *orders, N_ORDER_OF_ALL = N_ORDER - 2, N_ORDER_OF_BITS = 4 };

/* Units of elements that are taken in another order, and the groups in which they are.  BITS_OF: which of the fields,
 * the order or N_ORDER for zeros, and the unit. */
static const struct { uint32_t unit, group; } bit_units[] = {
    { 1, 16 }, { 1, 32 }, { 32, 64 }, { 32, 128 }, { 1, 256 },
};
enum { N_BIT_UNIT = sizeof bit_units / sizeof *bit_units };
#define BITS_OF(is_high, order, unit) ((uint32_t)(is_high) | (uint32_t)(order) << 1 | (uint32_t)(unit) << 5)

/* Takes the bits of one field of the codes in another order. */
static void edit_bits(const struct way *way, const uint8_t *bytes, uint8_t *edited) {
    uint32_t n = way->w->traits->block_size, order = way->which >> 1 & 15;
    struct quant_number field = code_field(way->w->traits, way->which & 1);
    uint32_t unit = bit_units[way->which >> 5].unit, group = bit_units[way->which >> 5].group;
    size_t size = way->w->traits->block_bytes, n_block = way->w->n_in / n;
    memcpy(edited, bytes, n_block * size);
    for (; n_block > 0; n_block--, bytes += size, edited += size) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t from = i;
            if (order < N_ORDER) {
                uint32_t other = array_place(orders[order].order, i % group / unit, group / unit);
                from = i - i % group + other * unit + i % unit;
            }
            quant_put(edited, &field, i, order < N_ORDER ? quant_get(bytes, &field, from) : 0);
        }
    }
}

/* Moves the f16 of each block from the other end of it. */
static void edit_ends(const struct way *way, const uint8_t *bytes, uint8_t *edited) {
    size_t size = way->w->traits->block_bytes, n = way->w->n_in / way->w->traits->block_size;
    size_t moved = way->which == 0 ? size - 2 : 2;   /* the bytes that come to lie after the others */
    for (; n > 0; n--, bytes += size, edited += size) {
        memcpy(edited, bytes + moved, size - moved);
        memcpy(edited + size - moved, bytes, moved);
    }
}

/* Adds an integer times the scale of its block to each element. */
static void add_offset(const struct way *way, const uint8_t *bytes, float *row) {
    const struct quant_traits *traits = way->w->traits;
    for (size_t i = 0; i < way->w->n_in; i++) {
        float d = f32_from_f16(load_u16(bytes + i / traits->block_size * traits->block_bytes + traits->d));
        row[i] += d * (float)(int32_t)way->which;
    }
}

/* l->row (n_in) <- row o of a way */
static bool read_row(struct linear *l, const struct way *way, uint32_t o) {
    const struct weight *w = way->w;
    size_t at = (size_t)way->first_row + o;
    if (at >= w->n_out) return false;
    if (way->reading == READ_RIGHT) return fit_weight_row(l->f, w, at, l->row);
    const uint8_t *bytes = weight_row(w, at, l->bytes);
    if (way->reading == READ_TYPE) {
        quant_dequantize(quant_traits(way->which), bytes, l->row, w->n_in);
    } else if (way->reading == READ_MISREAD) {
        misread_row((enum quant_type)w->type, (enum misread)way->which, bytes, l->row, w->n_in);
    } else if (way->reading == READ_OFFSET) {
        quant_dequantize(w->traits, bytes, l->row, w->n_in);
        add_offset(way, bytes, l->row);
    } else {
        bool is_any = way->reading == READ_BEFORE_ANY || way->reading == READ_NEXT_ANY;
        size_t other = way->reading == READ_NEXT_ANY ? at + 1 : at - 1;   /* SIZE_MAX, if it is the first */
        const uint8_t *beside = is_any && other < w->n_out ? weight_row(w, other, l->beside) : NULL;
        if (way->reading == READ_EARLY) edit_codes(way, bytes, l->edited);
        else if (way->reading == READ_BITS) edit_bits(way, bytes, l->edited);
        else if (way->reading == READ_MOVED) edit_ends(way, bytes, l->edited);
        else if (way->reading >= READ_PARTS_ONE && !is_any) edit_parts(way, bytes, l->edited);
        else edit_scales(way, bytes, beside, l->edited);
        quant_dequantize(w->traits, l->edited, l->row, w->n_in);
    }
    return true;
}

static double dot(const float *w, const double *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)w[i] * x[i];
    return sum;
}

static double element(const struct weight *w, uint32_t i) {   /* of a vector of F32 */
    return (double)f32_from_bits(load_u32(w->data + 4 * (size_t)i));
}

/* What becomes of the sum of row o. */
static double finish(const struct linear *l, uint32_t o, double sum) {
    const struct plan *p = &l->f->model->plan;
    double bias = l->of.b ? element(l->of.b, o) : 0, by = l->of.s ? element(l->of.s, 0) : 1;
    if (l->is_logits) {
        double cap = (double)p->logit_softcap, logit = (sum + bias) / (double)p->logit_scale;
        return cap != 0 ? cap * tanh(logit / cap) : logit;
    }
    sum = l->scales_last ? (sum + bias) * by : sum * by + bias;
    return l->limit != 0 ? fmin(fmax(sum, -l->limit), l->limit) : sum;
}

static double theirs_at(const struct linear *l, uint32_t t, uint32_t o) {
    return (double)fit_row(&l->f->theirs, t)[o];
}

/* Returns true if the right step is wrong for token t in the head of row o. */
static bool is_wrong(const struct linear *l, uint32_t t, uint32_t o) {
    return l->f->wrong[(size_t)t * l->f->theirs.n_head + o / l->f->theirs.n];
}

/* ---- trying ------------------------------------------------------------------------------------------------------ */

static void propose(struct linear *l, uint32_t cost, const char *text) { fit_propose(l->f, cost, l->y, "%s", text); }

/* Returns x (n_token, n_in) as the engine rounds it before it is multiplied by w; scratch. */
static const double *round_x(struct linear *l, const struct weight *w, const double *x) {
    if (l->f->rounding.kind == ROUND_NONE) return x;
    memcpy(l->rounded, x, (size_t)l->n_token * l->n_in * sizeof *x);
    for (size_t t = 0; t < l->n_token; t++) {
        rounding_apply(&l->f->rounding, w->type, l->rounded + t * l->n_in, l->n_in);
    }
    return l->rounded;
}

/* Tries a way on the sample, and proposes it if the sample is right. */
static void try_said(struct linear *l, const struct way *way, uint32_t cost, const char *text) {
    const double *x = l->is_rounded ? way->x : round_x(l, way->w, way->x);
    double sum = 0, norm = 0;
    for (uint32_t s = 0; s < l->n_sample; s++) {
        if (!read_row(l, way, l->sample[s])) return;
        for (uint32_t t = 0; t < l->n_token; t++) {
            if (!is_wrong(l, t, l->sample[s])) continue;
            double theirs = theirs_at(l, t, l->sample[s]);
            double d = finish(l, l->sample[s], dot(l->row, x + (size_t)t * l->n_in, l->n_in)) - theirs;
            sum += d * d;
            norm += theirs * theirs;
        }
    }
    double floor = 3 * l->f->floor;
    if (!(sum <= floor * floor * norm) || !(sum < 0.25 * l->right_error2)) return;
    for (uint32_t o = 0; o < l->n_out; o++) {
        if (!read_row(l, way, o)) return;
        for (uint32_t t = 0; t < l->n_token; t++) {
            l->y[(size_t)t * l->n_out + o] = finish(l, o, dot(l->row, x + (size_t)t * l->n_in, l->n_in));
        }
    }
    propose(l, cost, text);
}
#define try_way(l, way, cost, ...) try_said(l, way, cost, fit_say((l)->f, __VA_ARGS__))

/* ---- other rows -------------------------------------------------------------------------------------------------- */

static void try_tensors(struct linear *l) {
    const struct model *m = l->f->model;
    for (size_t i = 0; i < m->n_weight; i++) {
        const struct weight *w = &m->weights[i];
        bool is_same = w == l->of.w || w->data == l->of.w->data;
        if (is_same || w->n_in != l->n_in || w->n_out < l->n_out || w->n_matrix > 1 || !w->data) continue;
        try_way(l, &((struct way){ w, READ_RIGHT, 0, 0, l->x }), 0, "is the product with %s instead of %s", w->name,
                l->of.w->name);
        if (w->n_out == l->n_out || w->n_out > 4 * l->n_out) continue;
        try_way(l, &((struct way){ w, READ_RIGHT, 0, w->n_out - l->n_out, l->x }), 0,
                "is the product with the last rows of %s instead of %s", w->name, l->of.w->name);
    }
}

typedef void try_fn(struct linear *l, const struct way *way, uint32_t cost, const char *text);
#define TRY_MISREAD(reading, which, format, ...) try(l, &(struct way){ w, reading, which, 0, l->x }, 0, fit_say( \
    l->f, "is of a misread %s: %s: " format, w->name, w->traits->name, __VA_ARGS__))

static void try_bits(struct linear *l, try_fn *try) {
    const struct weight *w = l->of.w;
    for (uint32_t is_high = 0; is_high < 2 && code_field(w->traits, is_high).low.count > 0; is_high++) {
        bool is_only = !is_high && code_field(w->traits, true).low.count == 0;
        const char *what = is_high ? "high bits of the codes" : is_only ? "codes" : "low bits of the codes";
        for (uint32_t u = 0; u < N_BIT_UNIT; u++) {
            if (bit_units[u].group > w->traits->block_size) continue;
            for (uint32_t order = 0; order < N_ORDER_OF_BITS; order++) {
                TRY_MISREAD(READ_BITS, BITS_OF(is_high, order, u), "the %s are taken %s, in each group of %u%s", what,
                            orders[order].text, bit_units[u].group, bit_units[u].unit > 1 ? " by 32" : "");
            }
        }
        TRY_MISREAD(READ_BITS, BITS_OF(is_high, N_ORDER, 0), "the %s are ignored", what);
    }
}

/* Tries the ways in which blocks can be misread. */
static void try_readings(struct linear *l, try_fn *try) {
    const struct weight *w = l->of.w;
    const struct quant_traits *traits = w->traits;
    for (size_t i = 0; known_at(i); i++) {
        const struct known_mistake *q = known_at(i);
        if (!q->misread || q->type != w->type) continue;
        TRY_MISREAD(READ_MISREAD, q->misread, "%s", q->text);
    }
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        const struct quant_traits *other = quant_traits(type);
        bool fits = other && other->block_size > 0 && type != w->type && w->n_in % other->block_size == 0
                 && other->block_bytes * traits->block_size == traits->block_bytes * other->block_size;
        if (!fits) continue;
        try(l, &(struct way){ w, READ_TYPE, type, 0, l->x }, 0, fit_say(l->f, "is of %s read as %s; it is %s", w->name,
                                                                        other->name, traits->name));
    }
    static const char *const comments[N_READING] = {
        [READ_BEFORE] = "is that of the block before", [READ_NEXT] = "is that of the next block",
        [READ_FIRST] = "is that of the row's first block", [READ_ONE] = "is taken as 1",
        [READ_ZERO] = "is taken as 0", [READ_MINUS] = "has the wrong sign", [READ_PARTS_ONE] = "are taken as 1",
        [READ_PARTS_FIRST] = "are all that of the first part", [READ_PARTS_BEFORE] = "are those of the part before",
        [READ_PARTS_NEXT] = "are those of the next part", [READ_PARTS_REVERSED] = "are in reverse order",
        [READ_PACKED_SCALES_FIRST] = "are read as 16 numbers of 6 bits in a row, the scales first",
        [READ_PACKED_PAIRS] = "are read as 16 numbers of 6 bits in a row, each scale before its minimum",
        [READ_PACKED_BY_TWO] = "are read from byte j / 2, those of odd parts with low bits from its upper two",
        [READ_BEFORE_ANY] = "is that of the block before, at the start of a row that of the row before",
        [READ_NEXT_ANY] = "is that of the next block, at the end of a row that of the next row" };
    uint32_t offsets[2], n_offset = scale_offsets(traits, offsets);
    for (uint32_t k = 0; k < n_offset; k++) {
        for (int reading = READ_BEFORE; reading <= READ_NEXT_ANY; reading++) {
            if (!comments[reading] || (reading >= READ_PARTS_ONE && reading < READ_BEFORE_ANY)) continue;
            TRY_MISREAD((enum reading)reading, offsets[k], "the %s f16 of each block %s",
                        n_offset == 1 ? "only" : k == 0 ? "first" : "second", comments[reading]);
        }
    }
    if (n_offset == 1) {
        TRY_MISREAD(READ_MOVED, offsets[0], "the scale of each block is taken from its %s",
                    offsets[0] == 0 ? "end" : "start");
    }
    try_bits(l, try);
    bool has_minima = traits->min_kind == SUPERBLOCK_MIN, has_high = traits->code.high.width > 0;
    for (int reading = READ_PARTS_ONE; reading <= READ_PARTS_REVERSED && count_parts(traits) > 0; reading++) {
        static const char *const parts[] = { "", "scales", "minima", "scales and minima" };
        for (uint32_t which = 1; which <= (has_minima ? 3 : 1); which++) {
            TRY_MISREAD((enum reading)reading, which, "the %s of the parts of a block %s", parts[which],
                        comments[reading]);
        }
    }
    bool is_packed = has_minima && traits->min.high.width > 0;
    for (int reading = READ_PACKED_SCALES_FIRST; reading <= READ_PACKED_BY_TWO && is_packed; reading++) {
        TRY_MISREAD((enum reading)reading, 3, "the scales and minima of the parts of a block %s", comments[reading]);
    }
    if (traits->min_kind == GROUP_MIN || (has_minima && has_high)) {
        TRY_MISREAD(has_minima ? READ_MISREAD : READ_EARLY, has_minima ? MISREAD_ORDER : 0, "%s", has_minima
                    ? "element i has the low bits of byte i / 2 and the high bit i % 8 of byte i / 8"
                    : "the codes of a block begin two bytes too early, in its second f16");
    }
    bool has_codes = n_offset > 0 && traits->block_size == 32 && !traits->values;
    static const int32_t steps[] = { -1, 1, -8, 8, -16, 16 };
    for (size_t k = 0; k < sizeof steps / sizeof *steps && has_codes; k++) {
        TRY_MISREAD(READ_OFFSET, (uint32_t)steps[k], "codes are too %s by %d", steps[k] > 0 ? "large" : "small",
                    abs((int)steps[k]));
    }
}

/* The elements of the matrix in the order (n_in, n_out): its transpose, if it is square. */
static void try_transposed(struct linear *l) {
    const struct weight *w = l->of.w;
    if ((uint64_t)l->n_in * l->n_out > MAX_TRANSPOSED || l->n_in == 1 || l->n_out == 1) return;
    const float *all = fit_floats(l->f, w);
    double *sums = fit_new(l->f, l->n_out, sizeof *sums);
    if (!all || !sums) return;
    const double *in = round_x(l, w, l->x);
    for (uint32_t t = 0; t < l->n_token; t++) {
        memset(sums, 0, l->n_out * sizeof *sums);
        for (uint32_t i = 0; i < l->n_in; i++) {
            double x = in[(size_t)t * l->n_in + i];
            for (uint32_t o = 0; o < l->n_out; o++) sums[o] += x * (double)all[(size_t)i * l->n_out + o];
        }
        for (uint32_t o = 0; o < l->n_out; o++) l->y[(size_t)t * l->n_out + o] = finish(l, o, sums[o]);
    }
    propose(l, 0, l->n_in == l->n_out ? "is the product with the transposed matrix"
                                      : "is the product with a matrix of exchanged dimensions");
}

/* ---- another x --------------------------------------------------------------------------------------------------- */

#define try_x(l, x, cost, ...) try_way(l, &((struct way){ (l)->of.w, READ_RIGHT, 0, 0, x }), cost, __VA_ARGS__)

/* Other activations with as many elements, of this layer and the one before. */
static void try_inputs(struct linear *l, double *x) {
    struct fit *f = l->f;
    int32_t n_layer = (int32_t)f->model->plan.n_layer, own = f->layer < 0 ? n_layer : f->layer;
    for (int i = 0; i < TAP_COUNT; i++) {
        enum tap_id id = (enum tap_id)i;
        bool in_layer = tap_spec(id)->in_layer;
        for (int32_t back = 0; back < (in_layer ? 3 : 1); back++) {
            int32_t layer = in_layer ? own - back : -1;
            struct fit_rows rows;
            bool is_known = trace_find_tap(f->dump, id, layer) || trace_find_tap(f->right, id, layer);
            bool is_after = layer == f->layer && id >= f->id;
            if (!is_known || is_after || id == TAP_KQ_SOFT_MAX || layer >= n_layer) continue;
            if (!fit_tap(f, id, layer, &rows) || fit_width(&rows) != l->n_in || !fit_align(f, &rows)) continue;
            for (size_t k = 0; k < (size_t)l->n_token * l->n_in; k++) x[k] = (double)rows.x[k];
            struct tap_text name;
            try_x(l, x, 0, "is the product with %s instead of its input", tap_show(&name, id, layer));
        }
    }
}

/* Fills x with the input of the token that is `by` after that of each output.  Returns false if one is not known. */
static bool shift_inputs(const struct linear *l, const struct fit_rows *rows, int64_t by, double *x) {
    for (uint32_t t = 0; t < l->n_token; t++) {
        uint32_t from = 0;
        while (from < rows->n_token && (int64_t)rows->pos[from] != (int64_t)l->f->theirs.pos[t] + by) from++;
        if (from == rows->n_token) return false;
        for (uint32_t i = 0; i < l->n_in; i++) x[(size_t)t * l->n_in + i] = (double)fit_row(rows, from)[i];
    }
    return true;
}

/* The inputs of other tokens, where the dump has fewer outputs: engines compute the logits of one token only. */
static void try_tokens(struct linear *l, double *x) {
    struct fit_rows rows;
    if (!fit_find_input(l->f, ALL_IDS, &rows) || rows.n_token <= l->n_token) return;
    if (shift_inputs(l, &rows, -1, x)) try_x(l, x, 0, "is that of the token before");
    if (shift_inputs(l, &rows, 1, x)) try_x(l, x, 0, "is that of the next token");
    for (uint32_t s = 0; l->n_token == 1 && s < rows.n_token; s++) {
        if (!shift_inputs(l, &rows, (int64_t)rows.pos[s] - (int64_t)l->f->theirs.pos[0], x)) continue;
        try_x(l, x, 0, "is that of token %u", rows.pos[s]);
    }
}

static void try_orders(struct linear *l, double *x) {
    const uint32_t sizes[] = { 2, 4, 8, 16, 32, 64, 128, 256, l->n_in };
    char group[40] = "";
    size_t n_x = (size_t)l->n_token * l->n_in;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t size = sizes[k];
        if (l->n_in % size || size % 2) continue;
        if (size < l->n_in) snprintf(group, sizeof group, ", in each group of %u", size);
        else group[0] = '\0';
        for (int order = 0; order < N_ORDER; order++) {
            /* Other columns for the same inputs, and, where that is not the same as another order of columns, other
             * inputs for the same columns. */
            for (int of_x = 0; of_x <= (order >= N_ORDER_OF_ALL ? 1 : 0); of_x++) {
                memset(x, 0, n_x * sizeof *x);
                const double *in = of_x ? l->x : round_x(l, l->of.w, l->x);
                for (size_t i = 0; i < n_x; i++) {
                    size_t other = i - i % size + array_place(orders[order].order, (uint32_t)(i % size), size);
                    if (of_x) x[i] = in[other];
                    else x[other] += in[i];
                }
                l->is_rounded = !of_x;
                try_x(l, x, 0, "is a product whose %s are taken %s%s", of_x ? "inputs" : "columns", orders[order].text,
                      group);
                l->is_rounded = false;
            }
        }
    }
    for (uint32_t a = 3; a <= l->n_in / 2; a++) {   /* (a, n_in / a) as (n_in / a, a) */
        if (l->n_in % a) continue;
        for (size_t i = 0; i < n_x; i++) {
            size_t at = i % l->n_in;
            x[i] = l->x[i - at + at % a * (l->n_in / a) + at / a];
        }
        try_x(l, x, 0, "is a product whose inputs are in the order of the transposed (%u, %u)", a, l->n_in / a);
    }
    for (uint32_t i = 0; i < l->n_in; i++) {   /* one of the first and the next one, or the last and the first one */
        uint32_t other = i + 1 < l->n_in ? i + 1 : 0;
        if (i >= 8 && other != 0) continue;
        const double *in = round_x(l, l->of.w, l->x);
        memcpy(x, in, n_x * sizeof *x);
        for (size_t t = 0; t < l->n_token; t++) {
            x[t * l->n_in + i] = in[t * l->n_in + other];
            x[t * l->n_in + other] = in[t * l->n_in + i];
        }
        l->is_rounded = true;
        try_x(l, x, 0, "is a product in which the columns %u and %u are exchanged", i, other);
        l->is_rounded = false;
    }
}

/* Functions of x. */
static void try_functions(struct linear *l, double *x) {
    size_t n = (size_t)l->n_token * l->n_in;
    for (size_t i = 0; i < n; i++) x[i] = fabs(l->x[i]);
    try_x(l, x, 0, "is a product whose inputs have lost their signs");
    for (size_t i = 0; i < n; i++) x[i] = fmax(l->x[i], 0);
    try_x(l, x, 0, "is a product whose negative inputs are taken as 0");
    static const uint32_t sizes[] = { 32, 256, 0 };
    for (size_t k = 0; k < 3; k++) {   /* rounded to 8 bits, so that the largest becomes 128, which wraps around */
        uint32_t size = sizes[k] == 0 ? l->n_in : sizes[k];
        if (l->n_in % size) continue;
        for (size_t i = 0; i < n; i += size) {
            double max = 0;
            for (size_t j = i; j < i + size; j++) max = fmax(max, fabs(l->x[j]));
            for (size_t j = i; j < i + size; j++) {
                double q = max > 0 ? round(l->x[j] / max * 128) : 0;
                x[j] = (q > 127 ? q - 256 : q) * max / 128;
            }
        }
        l->is_rounded = true;
        try_x(l, x, 0, "is a product of inputs rounded to 8 bits, of which the largest wrap around");
        l->is_rounded = false;
    }
}

/* The elements first .. end - 1 of x count `by` times: finds those for which that explains the sample. */
static void try_parts(struct linear *l, double *x) {
    uint32_t n_in = l->n_in, n_token = l->n_token < PARTS ? l->n_token : PARTS;   /* tokens that are looked at */
    uint32_t n_sample = l->n_sample * n_token <= PARTS ? l->n_sample : PARTS / n_token, n_row = n_sample * n_token;
    /* (n_in + 1, n_row): the sums of the first i products of each row of the sample and token */
    double *sums = fit_new(l->f, (uint64_t)(n_in + 1) * n_row, sizeof *sums);
    double *rest = fit_new(l->f, n_row, sizeof *rest);
    if (!sums || !rest || l->is_logits) return;
    memcpy(x, round_x(l, l->of.w, l->x), (size_t)l->n_token * n_in * sizeof *x);
    double norm = 0, before = 0;
    for (uint32_t s = 0; s < n_sample; s++) {
        if (!read_row(l, &(struct way){ l->of.w, READ_RIGHT, 0, 0, l->x }, l->sample[s])) return;
        for (uint32_t t = 0; t < n_token; t++) {
            uint32_t at = s * n_token + t;
            for (uint32_t i = 0; i < n_in; i++) {
                double product = (double)l->row[i] * x[(size_t)t * n_in + i];
                sums[(size_t)(i + 1) * n_row + at] = sums[(size_t)i * n_row + at] + product;
            }
            double theirs = theirs_at(l, t, l->sample[s]);
            if (!is_wrong(l, t, l->sample[s])) {   /* says nothing */
                for (uint32_t i = 1; i <= n_in; i++) sums[(size_t)i * n_row + at] = 0;
                continue;
            }
            rest[at] = theirs - finish(l, l->sample[s], sums[(size_t)n_in * n_row + at]);
            norm += theirs * theirs;
            before += rest[at] * rest[at];
        }
    }
    const uint32_t sizes[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 0 };   /* 0: up to the end or from the start */
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        double least = before, best_by = 0;
        uint32_t best_first = 0, best_end = 0;
        for (uint32_t i = 0; i < (sizes[k] ? n_in / sizes[k] : 2 * n_in); i++) {
            uint32_t first = sizes[k] ? i * sizes[k] : i < n_in ? i : 0;
            uint32_t end = sizes[k] ? first + sizes[k] : i < n_in ? n_in : i - n_in;
            double ab = 0, aa = 0, bb = 0;
            if (first >= end || end - first == n_in) continue;
            for (uint32_t at = 0; at < n_row; at++) {
                double part = sums[(size_t)end * n_row + at] - sums[(size_t)first * n_row + at];
                ab += part * rest[at];
                aa += part * part;
                bb += rest[at] * rest[at];
            }
            double error2 = aa > 0 ? bb - ab * ab / aa : INFINITY;
            if (!(error2 < 0.5 * least)) continue;
            least = error2;
            best_first = first, best_end = end, best_by = 1 + ab / aa;
        }
        double floor = 3 * l->f->floor;
        if (best_end == 0 || least > floor * floor * norm) continue;
        double nearest = round(best_by);
        bool is_whole = fabs(best_by - nearest) < fmax(1e-3, l->f->floor);
        if (is_whole) best_by = nearest;
        memcpy(x, round_x(l, l->of.w, l->x), (size_t)l->n_token * n_in * sizeof *x);
        for (size_t i = 0; i < (size_t)l->n_token * n_in; i++) {
            if (i % n_in >= best_first && i % n_in < best_end) x[i] *= best_by;
        }
        char which[40], what[40] = "is left out";
        if (best_end - best_first == 1) snprintf(which, sizeof which, "element %u", best_first);
        else snprintf(which, sizeof which, "each of the elements %u-%u", best_first, best_end - 1);
        if (best_by != 0) snprintf(what, sizeof what, "counts %.6g times", best_by);
        l->is_rounded = true;
        try_x(l, x, is_whole ? 0 : 1, "is a product in which %s of %u %s", which, n_in, what);
        l->is_rounded = false;
    }
}

/* ---- bias, scale ------------------------------------------------------------------------------------------------- */

/* What follows the sum: the right step without its bias or scale, or with them in another way. */
static void try_ends(struct linear *l) {
    struct affine right = l->of;
    struct way way = { l->of.w, READ_RIGHT, 0, 0, l->x };
    l->of.b = NULL;
    if (right.b) try_way(l, &way, 0, "is the product without its bias");
    l->of = right;
    l->of.s = NULL;
    if (right.s) try_way(l, &way, 0, "is the product without its factor");
    l->of = right;
    l->scales_last = !l->scales_last;
    if (right.s && right.b) try_way(l, &way, 0, "is the product with its bias and factor in exchanged order");
    l->scales_last = !l->scales_last;
    double limit = l->limit;
    l->limit = 0;
    if (limit != 0) try_way(l, &way, 0, "is not clamped");
    l->limit = limit;
    for (size_t i = 0; i < l->f->model->n_weight; i++) {   /* the biases of other products, or norms for a bias */
        const struct weight *b = &l->f->model->weights[i];
        if (b->type != QUANT_F32 || b->n_out != 1 || b->n_in != l->n_out || b == right.b || !b->data) continue;
        l->of.b = b;
        try_way(l, &way, 0, "is the product plus %s%s%s", b->name, right.b ? " instead of " : "",
                right.b ? right.b->name : "");
    }
    l->of = right;
    static const struct { double more; const char *text; } times[] = {   /* biases more than the right one */
        { 1, "is the product with its bias added twice" }, { -2, "is the product with its bias subtracted" } };
    for (size_t k = 0; k < sizeof times / sizeof *times && right.b; k++) {
        for (size_t at = 0; at < (size_t)l->n_token * l->n_out; at++) {
            l->y[at] = (double)l->f->truth.x[at] + times[k].more * element(right.b, (uint32_t)(at % l->n_out));
        }
        propose(l, 0, times[k].text);
    }
}

/* ---- the analyser ------------------------------------------------------------------------------------------------ */

static enum weight_id weight_of(const struct fit *f) {
    bool is_shared = f->layer >= 0 && f->model->plan.layers[f->layer].ffn.n_expert > 0;
    switch (f->id) {
    case TAP_ATTN_GATE: return W_ATTN_GATE;
    case TAP_FFN_ROUTER: return W_FFN_GATE_INP;
    case TAP_FFN_GATE: return is_shared ? W_FFN_GATE_SHARED : W_FFN_GATE;
    case TAP_FFN_UP: return is_shared ? W_FFN_UP_SHARED : W_FFN_UP;
    case TAP_FFN_OUT: return is_shared ? W_COUNT : W_FFN_DOWN;
    case TAP_RESULT_OUTPUT: return W_OUTPUT;
    default: break;
    }
    enum weight_id id = mistake_weight(f->id);
    const struct step *s = fit_step(f);
    return id == W_COUNT && s && s->kind == STEP_PRODUCT ? s->weight : id;
}

/* Allocates what reading a row of any weight needs, and y. */
static void allocate(struct linear *l, uint32_t n_out) {
    size_t own = l->of.w->row_bytes, most = l->f->model->max_packed_row, row_bytes = own > most ? own : most;
    l->row = fit_new(l->f, l->n_in, sizeof *l->row);
    l->bytes = fit_new(l->f, row_bytes, 1);
    l->edited = fit_new(l->f, row_bytes, 1);
    l->beside = fit_new(l->f, row_bytes, 1);
    l->y = fit_new(l->f, (uint64_t)l->n_token * n_out, sizeof *l->y);
}

/* Fills wrong_rows and the sample, which is taken from them. */
static bool choose_rows(struct linear *l) {
    const struct fit *f = l->f;
    l->wrong_rows = fit_new(l->f, l->n_out, sizeof *l->wrong_rows);
    if (!l->wrong_rows) return false;
    for (uint32_t t = 0; t < l->n_token; t++) {
        double norm = 0;
        for (uint32_t o = 0; o < l->n_out; o++) {
            double right = (double)fit_row(&f->truth, t)[o];
            if (isfinite(right)) norm += right * right / l->n_out;
        }
        double limit = 3 * f->floor * sqrt(norm);
        for (uint32_t o = 0; o < l->n_out; o++) {
            double d = fabs(theirs_at(l, t, o) - (double)fit_row(&f->truth, t)[o]);
            if (d > limit && is_wrong(l, t, o)) l->wrong_rows[o] = true;
        }
    }
    for (uint32_t o = 0; o < l->n_out; o++) l->n_wrong_row += l->wrong_rows[o];
    if (l->n_wrong_row == 0) return false;
    uint32_t step = (l->n_wrong_row + SAMPLE - 1) / SAMPLE, seen = 0;
    for (uint32_t o = 0; o < l->n_out && l->n_sample < SAMPLE; o++) {
        if (!l->wrong_rows[o] || seen++ % step) continue;
        l->sample[l->n_sample++] = o;
        for (uint32_t t = 0; t < l->n_token; t++) {
            double d = theirs_at(l, t, o) - (double)fit_row(&f->truth, t)[o];
            if (is_wrong(l, t, o)) l->right_error2 += d * d;
        }
    }
    return true;
}

void fit_linear(struct fit *f) {
    const struct plan *p = &f->model->plan;
    enum weight_id id = weight_of(f);
    if (id == W_COUNT) return;
    struct linear l = { .f = f, .of = *fit_weight(f, id), .is_logits = f->id == TAP_RESULT_OUTPUT };
    if (!l.of.w || !l.of.w->data || l.of.w->n_matrix > 1 || (l.is_logits && p->n_logit > 0)) return;
    l.n_token = f->theirs.n_token;
    l.n_in = l.of.w->n_in;
    l.n_out = l.of.w->n_out;
    l.scales_last = weight_scales_last(id);
    bool is_qkv = f->id == TAP_QCUR || f->id == TAP_KCUR || f->id == TAP_VCUR;
    l.limit = is_qkv ? (double)p->clamp_qkv : 0;
    if (!fit_input(f, ALL_IDS, &l.input) || fit_width(&l.input) != l.n_in) return;
    if (fit_width(&f->theirs) != l.n_out) return;
    size_t n_x = (size_t)l.n_token * l.n_in;
    double *x = fit_new(f, n_x, sizeof *x), *other = fit_new(f, n_x, sizeof *other);
    allocate(&l, l.n_out);
    l.rounded = fit_new(f, n_x, sizeof *l.rounded);
    if (f->out_of_memory || !choose_rows(&l)) return;
    for (size_t i = 0; i < n_x; i++) x[i] = (double)l.input.x[i];
    l.x = x;
    try_tensors(&l);
    try_readings(&l, try_said);
    try_transposed(&l);
    try_inputs(&l, other);
    try_tokens(&l, other);
    try_orders(&l, other);
    try_functions(&l, other);
    try_parts(&l, other);
    try_ends(&l);
}

/* ---- the embedding ----------------------------------------------------------------------------------------------- */

/* Proposes the right embedding with other rows in place of those of the tokens. */
static void try_lookup(struct linear *l, const struct way *way, uint32_t cost, const char *text) {
    struct fit *f = l->f;
    double scale = (double)f->model->plan.embedding_scale;
    for (uint32_t t = 0; t < l->n_token; t++) {
        if (!fit_weight_row(f, l->of.w, (size_t)f->tokens[f->theirs.pos[t]], l->right)) return;
        if (!read_row(l, way, (uint32_t)f->tokens[f->theirs.pos[t]])) return;
        for (uint32_t i = 0; i < l->n_in; i++) {
            double other = ((double)l->row[i] - (double)l->right[i]) * scale;
            l->y[(size_t)t * l->n_in + i] = (double)fit_row(&f->truth, t)[i] + other;
        }
    }
    fit_propose(f, cost, l->y, "%s", text);
}

/* Proposes the right embedding with the elements of each row in another order. */
static void try_row_orders(struct linear *l) {
    for (uint32_t size = 2; size <= l->n_in; size *= 2) {
        if (l->n_in % size) continue;
        for (int order = 0; order < N_ORDER; order++) {
            for (size_t i = 0; i < (size_t)l->n_token * l->n_in; i++) {
                uint32_t other = array_place(orders[order].order, (uint32_t)(i % size), size);
                l->y[i] = (double)l->f->truth.x[i - i % size + other];
            }
            fit_propose(l->f, 0, l->y, "has its elements taken %s, in each group of %u", orders[order].text, size);
        }
    }
}

void fit_embedding(struct fit *f) {
    const struct model *m = f->model;
    struct linear l = { .f = f, .of = m->token_embd };
    if (!l.of.w->data || m->token_embd_norm.w || fit_width(&f->theirs) != l.of.w->n_in) return;
    l.n_token = f->theirs.n_token;
    l.n_in = l.of.w->n_in;
    size_t n = (size_t)l.n_token * l.n_in;
    l.right = fit_new(f, l.n_in, sizeof *l.right);
    allocate(&l, l.n_in);
    if (f->out_of_memory) return;
    try_readings(&l, try_lookup);
    try_row_orders(&l);
    for (size_t i = 0; i < m->n_weight; i++) {
        const struct weight *w = &m->weights[i];
        if (w->n_in != l.n_in || w->n_out < m->plan.n_vocab || w->data == l.of.w->data || !w->data) continue;
        try_lookup(&l, &(struct way){ w, READ_RIGHT, 0, 0, NULL }, 0,
                   fit_say(f, "has the rows of %s instead of %s", w->name, l.of.w->name));
    }
    try_lookup(&l, &(struct way){ l.of.w, READ_RIGHT, 0, 1, NULL }, 0, "has the rows of the tokens with the next ids");
    if (m->plan.embedding_scale == 1) return;
    for (size_t i = 0; i < n; i++) l.y[i] = (double)f->truth.x[i] / (double)m->plan.embedding_scale;
    fit_propose(f, 0, l.y, "is not multiplied by %g", (double)m->plan.embedding_scale);
}

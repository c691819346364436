/* plumb_weights: compares the tensors of two files by name, whatever their types: how large the difference is, how much
 * of it the types explain, and what would explain the rest.  Then it compares the keys that decide what is computed
 * (keys.h).
 *
 *   pair of tensors -> judge: sums, error, scale, offset -> find_suspicions: what would make the two agree -> report
 *
 * Both tensors are dequantized row by row.  Two types explain a relative RMS error of sqrt(e_a^2 + e_b^2), where e_a
 * and e_b are the errors of quantizing Gaussian weights to these types.  Trained weights have outliers, and the errors
 * of quantizing them are up to 1.3 times larger.
 *
 * Each pair of tensors is read once and judged.  If the types do not explain the difference, a list of hypotheses is
 * tried, most of them on a sample of the rows.  A hypothesis that makes the two agree is a suspicion.
 */
#include "api/model.h"
#include "base/decimal.h"
#include "check/keys.h"
#include "check/moved.h"
#include "mistakes/known.h"
#include "trace/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A tensor agrees if its error is at most this times what the types explain. */
#define WEIGHTS_SLACK 1.6

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* A tensor as a hypothesis reads it: misread, as another type, with its rows permuted, or none of these. */
struct view {
    const struct gguf_tensor *tensor;
    enum misread misread;
    const struct quant_traits *as;   /* a type of which a row has as many bytes; NULL: its own */
    bool is_swapped;    /* the bytes of each value of this type are reversed; for types of single values */
    uint32_t n_head;    /* the rows of each of n_head heads are permuted; 0: they are not */
    bool from_pairs;    /* true: the tensor has GGUF's order, and the view has Hugging Face's.  Rows i and i + half of a
                         * head in the view are rows 2i and 2i + 1 in the tensor.  false: the reverse */
};

/* Dequantizes row i of a view to out, (shape[0]).  bytes: scratch for the bytes of one row. */
static void read_row(const struct view *v, uint64_t i, uint8_t *bytes, float *out) {
    const struct gguf_tensor *t = v->tensor;
    uint64_t n_row = gguf_n_row(t);
    if (v->n_head > 0) {
        uint64_t head_dim = n_row / v->n_head, half = head_dim / 2, r = i % head_dim;
        i += (v->from_pairs ? r % half * 2 + r / half : r % 2 * half + r / 2) - r;
    }
    const uint8_t *src = repack_tensor_row(t, i, bytes);
    const struct quant_traits *as = v->as ? v->as : quant_traits(t->type);
    size_t n = gguf_row_bytes(t), width = as->block_bytes;
    if (v->is_swapped) {
        if (src != bytes) memcpy(bytes, src, n);
        src = bytes;
        for (size_t at = 0; at + width <= n; at += width) {
            for (size_t k = 0; k < width / 2; k++) {
                uint8_t byte = bytes[at + k];
                bytes[at + k] = bytes[at + width - 1 - k];
                bytes[at + width - 1 - k] = byte;
            }
        }
    }
    if (v->misread) misread_row((enum quant_type)t->type, v->misread, src, out, (size_t)t->shape[0]);
    else quant_dequantize(as, src, out, (size_t)t->shape[0]);
}

struct pair_sums {
    uint64_t n, n_bad;             /* places; those where the sides differ and one of them is NaN or infinite */
    double dd, aa, bb, ab, d;      /* sums of (a - b)^2, a^2, b^2, a b and a - b */
    double max_d;                  /* largest |a - b| */
    uint64_t max_place;            /* its index in the flattened tensor */
    float max_a, max_b;            /* the values there */
};

/* Adds n pairs of values to the sums.  place: index of a[0] and b[0] in the flattened tensor. */
static void add_values(struct pair_sums *s, const float *a, const float *b, size_t n, uint64_t place) {
    for (size_t i = 0; i < n; i++) {
        double x = (double)a[i], y = (double)b[i], d = x - y;
        s->n++;
        if (!isfinite(x) || !isfinite(y)) {
            s->n_bad += !(x == y || (isnan(x) && isnan(y)));
            continue;
        }
        s->dd += d * d;
        s->aa += x * x;
        s->bb += y * y;
        s->ab += x * y;
        s->d += d;
        if (fabs(d) > s->max_d) {
            s->max_d = fabs(d);
            s->max_place = place + i;
            s->max_a = a[i];
            s->max_b = b[i];
        }
    }
}

/* Returns the relative RMS error of a against b. */
static double error_of(const struct pair_sums *s) {
    if (s->n_bad > 0) return INFINITY;
    return s->dd == 0 ? 0 : sqrt(s->dd / s->bb);
}

/* ---- a pair of tensors ------------------------------------------------------------------------------------------- */

enum { MAX_SUSPICION = 6 };

struct pair {
    const plumb_model *file_b;
    struct moved_search *moves;        /* (2) of values of A in B, and of values of B in A */
    struct moved moved;
    bool is_moved_b;                   /* moved is a place in A that has the values of B */
    const char *name;
    const struct gguf_tensor *a, *b;   /* NULL: the file has no such tensor */
    bool same_shape;
    struct pair_sums sums;
    double error, expected, bound;     /* the error, what the types explain, and up to where the two agree */
    double scale, offset;              /* a is about scale * b, or about b + offset */
    bool differs;                      /* the error is over bound, or a is scaled or offset; "parts" in the JSON */
    uint32_t n_suspicion;
    char suspicions[MAX_SUSPICION][400];
    bool out_of_memory;                /* a hypothesis could not be tried */
    float *row_a, *row_b;              /* scratch */
    uint8_t *bytes;
};

/* Adds a suspicion, printf-like, if there is room. */
PRINTF_LIKE(2, 3) static void suspect(struct pair *p, const char *format, ...) {
    va_list args;
    if (p->n_suspicion == MAX_SUSPICION) return;
    va_start(args, format);
    char *text = p->suspicions[p->n_suspicion++];
    if (vsnprintf(text, sizeof *p->suspicions, format, args) < 0) text[0] = 0;
    va_end(args);
}

/* Returns the error of view a against view b over at most 64 of their rows, evenly spaced. */
static double view_error(struct pair *p, const struct view *a, const struct view *b) {
    struct pair_sums s = { 0 };
    uint64_t n_row = gguf_n_row(a->tensor), n_sample = n_row < 64 ? n_row : 64;
    for (uint64_t k = 0; k < n_sample; k++) {
        uint64_t i = k * n_row / n_sample;
        read_row(a, i, p->bytes, p->row_a);
        read_row(b, i, p->bytes, p->row_b);
        add_values(&s, p->row_a, p->row_b, (size_t)a->tensor->shape[0], 0);
    }
    return error_of(&s);
}

/* Reads row i of both tensors. */
static void read_both(struct pair *p, uint64_t i) {
    read_row(&(struct view) { .tensor = p->a }, i, p->bytes, p->row_a);
    read_row(&(struct view) { .tensor = p->b }, i, p->bytes, p->row_b);
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Returns the error of A against B over the same rows as view_error, with every block of n values sorted, so that the
 * order within a block does not matter.  Returns INFINITY if the length of a row is not a multiple of n. */
static double sorted_error(struct pair *p, size_t n) {
    struct pair_sums s = { 0 };
    size_t n_in = (size_t)p->a->shape[0];
    uint64_t n_row = gguf_n_row(p->a), n_sample = n_row < 64 ? n_row : 64;
    if (n_in % n != 0) return INFINITY;
    for (uint64_t k = 0; k < n_sample; k++) {
        read_both(p, k * n_row / n_sample);
        for (size_t i = 0; i < n_in; i += n) {
            qsort(p->row_a + i, n, sizeof *p->row_a, by_value);
            qsort(p->row_b + i, n, sizeof *p->row_b, by_value);
        }
        add_values(&s, p->row_a, p->row_b, n_in, 0);
    }
    return error_of(&s);
}

/* Returns the error of at most 16 rows of A, of the first matrix if there are several, against the values that B
 * transposed has there if its rows of B->shape[1] values follow each other without gaps.  If the shape of A is not the
 * transposed one, this is what an engine has that transposes B and keeps its shape.  INFINITY if out of memory. */
static double transposed_error(struct pair *p) {
    struct pair_sums s = { 0 };
    enum { N_LOOK = 16 };
    uint64_t n_in = p->a->shape[0], n_row = p->a->shape[1], n_sample = n_row < N_LOOK ? n_row : N_LOOK;
    uint64_t n_row_b = p->b->shape[1];
    float *rows = alloc_array(n_sample * n_in, sizeof *rows);   /* (n_sample, n_in) of A */
    p->out_of_memory |= !rows;
    if (!rows) return INFINITY;
    for (uint64_t k = 0; k < n_sample; k++) {
        read_row(&(struct view) { .tensor = p->a }, k * n_row / n_sample, p->bytes,
                 rows + (size_t)(k * n_in));
    }
    for (uint64_t r = 0; r < n_row_b; r++) {
        read_row(&(struct view) { .tensor = p->b }, r, p->bytes, p->row_b);
        for (uint64_t k = 0; k < n_sample; k++) {
            uint64_t place = k * n_row / n_sample * n_in;   /* of the row in A; every n_row_b-th value is in row r */
            for (uint64_t i = (r + n_row_b - place % n_row_b) % n_row_b; i < n_in; i += n_row_b) {
                add_values(&s, &rows[(size_t)(k * n_in + i)], &p->row_b[(size_t)((place + i) / n_row_b)], 1, 0);
            }
        }
    }
    free(rows);
    return error_of(&s);
}

/* ---- hypotheses -------------------------------------------------------------------------------------------------- */

/* llama.cpp's converter for Llama permutes the rows of attn_q and attn_k within each head (conversion/llama.py,
 * permute).  Returns the number of heads of this tensor; 0 if it is another tensor, or if the number is not known.  The
 * key may have one number, or one for each layer. */
static uint32_t n_permuted_head(const struct pair *p) {
    bool is_q = gguf_name_ends(p->a, ".attn_q.weight") || gguf_name_ends(p->a, ".attn_q.bias");
    bool is_k = gguf_name_ends(p->a, ".attn_k.weight") || gguf_name_ends(p->a, ".attn_k.bias");
    if ((!is_q && !is_k) || strncmp(p->a->name.data, "blk.", 4) != 0) return 0;
    const struct gguf *keys = p->file_b->parts[0];
    const struct gguf_key *heads;
    struct gguf_string name = { NULL, 0 };
    struct error ignored;
    const char *layer = p->a->name.data + 4;
    char key[128];
    if (gguf_get_string(keys, "general.architecture", &name, &ignored) != PLUMB_OK || !name.data) return 0;
    snprintf(key, sizeof key, "%.60s.attention.head_count_kv", name.data);
    heads = is_k ? gguf_find_key(keys, key) : NULL;
    snprintf(key, sizeof key, "%.60s.attention.head_count", name.data);
    if (!heads) heads = gguf_find_key(keys, key);
    if (!heads || (heads->type != GGUF_UINT32 && heads->type != GGUF_INT32)) return 0;
    uint64_t i = heads->is_array ? decimal_read_u32(&layer) : 0;
    uint32_t n_head = i < heads->n ? load_u32(heads->values + 4 * i) : 0;
    uint64_t n_row = p->a->n_elements / (p->a->n_dims == 1 ? 1 : p->a->shape[0]);
    return n_head > 0 && n_row % n_head == 0 && n_row / n_head % 2 == 0 ? n_head : 0;
}

/* Returns the expert of B whose first row is that of expert i of A; n_expert if there is none. */
static uint64_t find_expert(struct pair *p, uint64_t i, uint64_t n_expert) {
    uint64_t n_row = p->a->shape[1];
    read_row(&(struct view) { .tensor = p->a }, i * n_row, p->bytes, p->row_a);
    for (uint64_t j = 0; j < n_expert; j++) {
        struct pair_sums s = { 0 };
        read_row(&(struct view) { .tensor = p->b }, j * n_row, p->bytes, p->row_b);
        add_values(&s, p->row_a, p->row_b, (size_t)p->a->shape[0], 0);
        if (error_of(&s) <= p->bound) return j;
    }
    return n_expert;
}

/* Tries whether the experts are in another order, for instance in that of their numbers as texts (0, 1, 10, 11...).
 * This takes time quadratic in their number, so a tensor with more than any model that plumb runs is left out. */
static void try_expert_order(struct pair *p) {
    enum { MAX_EXPERTS = 512 };
    uint64_t n_expert = p->a->n_dims == 3 && p->a->shape[2] <= MAX_EXPERTS ? p->a->shape[2] : 0;
    uint64_t moved = n_expert, to = 0;
    for (uint64_t i = 0; i < n_expert; i++) {
        uint64_t j = find_expert(p, i, n_expert);
        if (j == n_expert) return;
        if (j == i || moved < n_expert) continue;
        moved = i;
        to = j;
    }
    if (moved == n_expert) return;
    suspect(p, "the experts are in another order: expert %llu of A is expert %llu of B", (unsigned long long)moved,
            (unsigned long long)to);
}

static const struct gguf_tensor *find_tensor(const plumb_model *f, const char *name) {
    return gguf_find_in_parts(f->parts, f->n_part, name);
}

static bool same_shape(const struct gguf_tensor *a, const struct gguf_tensor *b) {
    return memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

/* Tries whether A is another tensor of the same layer in B. */
static void try_siblings(struct pair *p) {
    static const char *const siblings[][2] = {
        { "ffn_gate.", "ffn_up." }, { "ffn_gate_exps.", "ffn_up_exps." }, { "ffn_gate_shexp.", "ffn_up_shexp." },
        { "attn_k.", "attn_v." }, { "attn_q.", "attn_output." }, { "attn_q_norm.", "attn_k_norm." },
        { "attn_norm.", "ffn_norm." }, { "post_attention_norm.", "ffn_norm." },
        { "post_attention_norm.", "post_ffw_norm." },
    };
    for (size_t i = 0; i < 2 * (sizeof siblings / sizeof *siblings); i++) {
        const char *from = siblings[i / 2][i % 2], *to = siblings[i / 2][1 - i % 2];
        const char *at = strstr(p->a->name.data, from);
        if (!at) continue;
        char name[160];
        snprintf(name, sizeof name, "%.*s%s%s", (int)(at - p->a->name.data), p->a->name.data, to, at + strlen(from));
        const struct gguf_tensor *other = find_tensor(p->file_b, name);
        if (!other || !same_shape(p->a, other)) continue;
        if (view_error(p, &(struct view) { .tensor = p->a }, &(struct view) { .tensor = other }) <= p->bound) {
            suspect(p, "it is B's %s", name);
        }
    }
}

/* Tries whether one side holds the values that a known misreading of the other's blocks gives. */
static void try_misreads(struct pair *p) {
    const struct gguf_tensor *const tensors[] = { p->b, p->a };
    for (size_t side = 0; side < 2; side++) {
        const struct gguf_tensor *t = tensors[side], *other = tensors[1 - side];
        const struct known_mistake *q;
        for (size_t i = 0; (q = known_at(i)); i++) {
            if (!q->misread || q->type != t->type) continue;
            struct view wrong = { .tensor = t, .misread = q->misread };
            if (view_error(p, &(struct view) { .tensor = other }, &wrong) > p->bound) continue;
            suspect(p, "%s has %s's blocks, misread (%s): %s", side == 0 ? "A" : "B", side == 0 ? "B" : "A", q->name,
                    q->text);
        }
    }
}

/* Tries whether one side holds what the other's bytes give if they are read as another type of the same size, or with
 * the bytes of each number reversed. */
static void try_types(struct pair *p) {
    const struct gguf_tensor *const tensors[] = { p->b, p->a };
    for (size_t side = 0; side < 2; side++) {
        const struct gguf_tensor *t = tensors[side];
        const struct quant_traits *own = quant_traits(t->type);
        const struct view other = { .tensor = tensors[1 - side] };
        const char *theirs = side == 0 ? "A" : "B", *ours = side == 0 ? "B" : "A";
        for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
            const struct quant_traits *as = quant_traits(type);
            if (!as || as->block_size == 0 || t->shape[0] % as->block_size != 0) continue;
            if (t->shape[0] / as->block_size * as->block_bytes != gguf_row_bytes(t)) continue;
            const struct view read = { .tensor = t, .as = as }, swapped = { .tensor = t, .as = as, .is_swapped = true };
            if (as != own && view_error(p, &other, &read) <= p->bound) {
                suspect(p, "%s has %s's bytes, read as %s instead of %s", theirs, ours, as->name, own->name);
            } else if (as->block_size == 1 && view_error(p, &other, &swapped) <= p->bound) {
                suspect(p, "%s has %s's bytes, with the bytes of each %s reversed", theirs, ours, as->name);
            }
        }
    }
}

/* Tries whether the rows are in another order: a few rows of A are looked for among all rows of B. */
static void try_row_order(struct pair *p) {
    enum { N_LOOK = 16, MIN_FOUND = 14 };
    uint64_t n_row = gguf_n_row(p->a), n_in = p->a->shape[0], at[N_LOOK], found[N_LOOK];
    if (n_row < N_LOOK) return;
    float *rows = alloc_array(N_LOOK * n_in, sizeof *rows);
    for (uint64_t k = 0; rows && k < N_LOOK; k++) {
        at[k] = k * (n_row - 1) / (N_LOOK - 1);
        found[k] = n_row;
        read_row(&(struct view) { .tensor = p->a }, at[k], p->bytes, rows + (size_t)(k * n_in));
    }
    for (uint64_t r = 0; rows && r < n_row; r++) {
        read_row(&(struct view) { .tensor = p->b }, r, p->bytes, p->row_b);
        for (uint64_t k = 0; k < N_LOOK; k++) {
            struct pair_sums first = { 0 }, all = { 0 };
            if (found[k] < n_row) continue;
            add_values(&first, rows + (size_t)(k * n_in), p->row_b, (size_t)(n_in < 32 ? n_in : 32), 0);
            if (error_of(&first) > 2 * p->bound) continue;
            add_values(&all, rows + (size_t)(k * n_in), p->row_b, (size_t)n_in, 0);
            if (error_of(&all) <= p->bound) found[k] = r;
        }
    }
    free(rows);
    p->out_of_memory |= !rows;
    if (!rows) return;
    uint64_t n_found = 0, n_same = 0, n_turned = 0, n_reversed = 0, first = N_LOOK;
    uint64_t turn = (found[N_LOOK / 2] + n_row - at[N_LOOK / 2]) % n_row;
    for (uint64_t k = 0; k < N_LOOK; k++) {
        if (found[k] == n_row) continue;
        n_found++;
        n_same += found[k] == at[k];
        n_turned += found[k] == (at[k] + turn) % n_row;
        n_reversed += found[k] == n_row - 1 - at[k];
        if (first == N_LOOK && found[k] != at[k]) first = k;
    }
    if (n_found < MIN_FOUND || n_same == n_found) return;
    unsigned long long from = (unsigned long long)at[first], to = (unsigned long long)found[first];
    /* Rows that are only shifted, with other data at one end, are data from another place: see try_places. */
    if (n_turned == n_found && n_found < N_LOOK) return;
    if (n_reversed == n_found) suspect(p, "the rows are in reverse order: row %llu of A is row %llu of B", from, to);
    else if (n_turned == n_found) suspect(p, "the rows are shifted by %llu, and the last are the first: row %llu of A "
                                          "is row %llu of B", (unsigned long long)turn, from, to);
    else suspect(p, "the rows are in another order: row %llu of A is row %llu of B", from, to);
}

/* Looks for the values anywhere in the other file.  A is taken for what an engine has read, and B for the file, unless
 * only B has single numbers. */
static plumb_status try_places(struct pair *p, struct error *err) {
    p->is_moved_b = quant_traits(p->b->type)->block_size == 1 && quant_traits(p->a->type)->block_size > 1;
    struct moved_search *m = &p->moves[p->is_moved_b];
    const struct gguf_tensor *own = p->is_moved_b ? p->a : p->b;
    char theirs = p->is_moved_b ? 'B' : 'A', file = p->is_moved_b ? 'A' : 'B';
    const struct moved *at = &p->moved;
    PLUMB_TRY(moved_find(m, p->is_moved_b ? p->b : p->a, own, &p->moved, err));
    if (!at->is_found) return PLUMB_OK;
    struct moved_text far;
    char in[160] = "";
    if (at->in && at->in_byte == 0) snprintf(in, sizeof in, ", where %.64s begins", at->in->name.data);
    else if (at->in) snprintf(in, sizeof in, ", byte %llu of %.64s", (unsigned long long)at->in_byte,
                              at->in->name.data);
    suspect(p, "%c has the data at byte %llu of %c%s: %s its own place, byte %llu (%llu of %llu rows that were "
            "compared are equal)", theirs, (unsigned long long)at->byte, file, in, moved_distance(&far, m, at, own),
            (unsigned long long)at->own_byte, (unsigned long long)at->n_equal, (unsigned long long)at->n_compared);
    return PLUMB_OK;
}

/* Adds as suspicions what would make the two agree. */
static plumb_status find_suspicions(struct pair *p, struct error *err) {
    const struct pair_sums *s = &p->sums;
    const struct view a = { .tensor = p->a };
    if (s->n_bad > 0) {
        try_types(p);
        if (p->n_suspicion == 0) PLUMB_TRY(try_places(p, err));
        suspect(p, "differences in NaN or infinite values: %llu", (unsigned long long)s->n_bad);
        return PLUMB_OK;
    }
    if (s->aa == 0 || s->bb == 0) {
        suspect(p, "%s is all zeros", s->aa == 0 ? "A" : "B");
        return PLUMB_OK;
    }
    /* The sums of squares that are left of a - scale * b and of a - b - offset. */
    double scaled2 = s->aa - s->ab * p->scale, shifted2 = s->dd - s->d * p->offset;
    if (scaled2 <= p->bound * p->bound * s->aa) {
        suspect(p, "A is B scaled by %.4g", p->scale);
    } else if (shifted2 <= p->bound * p->bound * s->bb) {
        bool is_one = gguf_name_ends(p->a, "norm.weight") && fabs(fabs(p->offset) - 1) < 0.01;
        suspect(p, "A is B offset by %.4g%s", p->offset, is_one ? ": the 1 that Gemma's norms omit" : "");
    }
    for (uint32_t n_head = n_permuted_head(p), from_pairs = 0; n_head > 0 && from_pairs < 2; from_pairs++) {
        /* This is tried for matrices only, not for a bias, which has one row. */
        struct view permuted = { .tensor = p->b, .n_head = n_head, .from_pairs = from_pairs };
        if (p->a->n_dims < 2 || view_error(p, &a, &permuted) > p->bound) continue;
        suspect(p, "the rows are permuted as for RoPE: A has %s order, B has %s",
                from_pairs ? "Hugging Face's" : "GGUF's", from_pairs ? "GGUF's" : "Hugging Face's");
    }
    if (p->a->n_dims >= 2 && p->a->shape[1] > 1 && transposed_error(p) <= p->bound) {
        suspect(p, p->a->shape[0] == p->a->shape[1] ? "A is B transposed" : "A has the values of B transposed, in B's "
                "shape");
    }
    try_expert_order(p);
    try_siblings(p);
    try_misreads(p);
    try_types(p);
    if (p->n_suspicion == 0) try_row_order(p);
    if (p->n_suspicion == 0) PLUMB_TRY(try_places(p, err));
    for (size_t n = 32; n <= 256 && p->n_suspicion == 0; n *= 2) {
        /* Sorted samples of one distribution are always similar, so an error of 0.15, for instance, means nothing. */
        if (sorted_error(p, n) > fmin(p->bound, 0.1)) continue;
        suspect(p, "each block of %zu holds the same values in another order: nibbles swapped, or another misreading",
                n);
    }
    return PLUMB_OK;
}

/* ---- judging a pair ---------------------------------------------------------------------------------------------- */

/* Judges a pair whose shapes differ. */
static void judge_shapes(struct pair *p) {
    p->differs = true;
    bool reversed = p->a->n_dims >= 2 && p->b->n_dims == p->a->n_dims && p->a->shape[0] == p->b->shape[1]
                    && p->a->shape[1] == p->b->shape[0] && p->a->shape[2] == p->b->shape[2]
                    && p->a->shape[3] == p->b->shape[3];
    if (!reversed) {
        suspect(p, "shapes differ");
    } else if (transposed_error(p) <= p->bound) {
        suspect(p, "A is B transposed");
    } else {
        /* Rows follow each other without gaps.  If only the shape is reversed, the first row of the wider tensor holds
         * the first n_row rows of the narrower one. */
        struct pair_sums s = { 0 };
        const struct gguf_tensor *wide = p->a->shape[0] > p->b->shape[0] ? p->a : p->b;
        const struct gguf_tensor *narrow = wide == p->a ? p->b : p->a;
        size_t n_in = (size_t)narrow->shape[0], n_row = (size_t)(wide->shape[0] / n_in);
        read_row(&(struct view) { .tensor = wide }, 0, p->bytes, p->row_a);
        for (size_t i = 0; i < n_row; i++) {
            read_row(&(struct view) { .tensor = narrow }, i, p->bytes, p->row_b + i * n_in);
        }
        add_values(&s, p->row_a, p->row_b, n_row * n_in, 0);
        if (error_of(&s) <= p->bound) suspect(p, "the shape is reversed, the values are in the same order");
        else suspect(p, "the shape is reversed, the values are not those of B transposed");
    }
}

/* Judges a pair of one shape. */
static plumb_status judge(struct pair *p, struct error *err) {
    struct pair_sums *s = &p->sums;
    uint64_t n_in = p->a->shape[0];
    for (uint64_t i = 0; i < gguf_n_row(p->a); i++) {
        read_both(p, i);
        add_values(s, p->row_a, p->row_b, (size_t)n_in, i * n_in);
    }
    p->error = error_of(s);
    p->scale = s->bb > 0 ? s->ab / s->bb : NAN;
    p->offset = s->d / (double)s->n;
    /* Noise of relative size e reduces the scale by about e^2 and hardly changes the mean.  Scale and offset therefore
     * show small mistakes that the error of a coarse type would hide. */
    bool is_exact = s->dd == 0 && s->n_bad == 0;
    bool scaled = fabs(p->scale - 1) > p->bound * p->bound + 0.01;
    bool shifted = fabs(p->offset) > (0.3 * p->bound + 1e-4) * sqrt(s->bb / (double)s->n);
    p->differs = !is_exact && (!(p->error <= p->bound) || scaled || shifted);
    if (!p->differs) return PLUMB_OK;
    PLUMB_TRY(find_suspicions(p, err));
    if (p->error <= p->bound && p->n_suspicion == 0) {
        suspect(p, scaled ? "the noise is that of the types, but A is B scaled by %.4g"
                          : "the noise is that of the types, but A is B offset by %.4g", scaled ? p->scale : p->offset);
    }
    return PLUMB_OK;
}

static plumb_status compare(struct pair *p, double tolerance, struct error *err) {
    double error_a = quant_traits(p->a->type)->error, error_b = quant_traits(p->b->type)->error;
    p->same_shape = same_shape(p->a, p->b);
    p->expected = sqrt(error_a * error_a + error_b * error_b);
    p->bound = tolerance > 0 ? tolerance : WEIGHTS_SLACK * p->expected + 1e-6;
    uint64_t n = p->a->shape[0] > p->b->shape[0] ? p->a->shape[0] : p->b->shape[0];
    p->row_a = alloc_array(n, sizeof *p->row_a);
    p->row_b = alloc_array(n, sizeof *p->row_b);
    p->bytes = alloc_array(n, sizeof *p->row_a);   /* no type has more bytes per value than F32 */
    plumb_status status = PLUMB_OK;
    if (!p->row_a || !p->row_b || !p->bytes) {
        status = error_set(err, PLUMB_ERROR_MEMORY, "out of memory: two rows of %s, %llu elements", p->a->name.data,
                           (unsigned long long)n);
    } else if (p->same_shape) {
        status = judge(p, err);
    } else {
        judge_shapes(p);
    }
    if (status == PLUMB_OK && p->out_of_memory) {
        status = error_set(err, PLUMB_ERROR_MEMORY, "out of memory: 16 rows of %s, %llu elements", p->a->name.data,
                           (unsigned long long)n);
    }
    free(p->row_a);
    free(p->row_b);
    free(p->bytes);
    return status;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* Counts of pairs: all; those that differ; those with a tensor in one file only; those that the text has shown. */
struct totals { uint32_t n, n_differ, n_alone, n_shown; };

static const char *type_name(const struct gguf_tensor *t) { return t ? quant_traits(t->type)->name : "-"; }

static void write_text(struct report_writer *w, const struct pair *p, bool is_first) {
    const struct pair_sums *s = &p->sums;
    if (is_first) {
        report_printf(w, "%-5s %-26s %-6s %-6s %-8s %-8s %-7s %-9s %s\n", "", "tensor", "A", "B", "error", "expected",
                      "scale", "cosine", "max |A - B|");
    }
    report_printf(w, "%-5s ", !p->a ? "B" : !p->b ? "A" : p->differs ? "DIFF" : "ok");
    for (size_t n = report_text(w, p->name, strlen(p->name)); n < 26; n++) report_bytes(w, " ", 1);
    report_printf(w, " %-6s %s", type_name(p->a), type_name(p->b));
    if (!p->a || !p->b) {
        report_printf(w, "%*s only in %s\n", 6 - (int)strlen(type_name(p->b)), "", p->a ? "A" : "B");
        return;
    }
    if (p->same_shape) {
        report_printf(w, "%*s %-8.3g %-8.3g %-7.4f %-9.6f %.3g at [", 6 - (int)strlen(type_name(p->b)), "",
                      p->error, p->expected, p->scale, s->ab / sqrt(s->aa * s->bb), s->max_d);
        uint64_t row = s->max_place / p->a->shape[0], column = s->max_place % p->a->shape[0];
        if (p->a->n_dims == 3) report_printf(w, "%llu, ", (unsigned long long)(row / p->a->shape[1]));
        if (p->a->n_dims == 3) row %= p->a->shape[1];
        report_printf(w, "%llu, %llu]", (unsigned long long)row, (unsigned long long)column);
    }
    report_bytes(w, "\n", 1);
    for (uint32_t i = 0; i < p->n_suspicion; i++) {
        report_printf(w, "      ");
        report_text(w, p->suspicions[i], strlen(p->suspicions[i]));
        report_bytes(w, "\n", 1);
    }
    if (p->differs && p->n_suspicion == 0) report_printf(w, "      no known mistake explains it\n");
}

static void write_side(struct report_writer *w, const char *side, const struct gguf_tensor *t) {
    if (!t) return;
    report_printf(w, ", \"type_%s\": \"%s\", \"shape_%s\": [", side, type_name(t), side);
    for (uint32_t i = 0; i < t->n_dims; i++) {
        report_printf(w, "%s%llu", i > 0 ? ", " : "", (unsigned long long)t->shape[i]);
    }
    report_bytes(w, "]", 1);
}

static void write_json(struct report_writer *w, const struct pair *p, bool is_first) {
    report_json_text(w, is_first ? "\n    {\"name\": " : ",\n    {\"name\": ", p->name);
    report_printf(w, ", \"verdict\": \"%s\"", !p->a ? "only in b" : !p->b ? "only in a" : p->differs ? "parts" : "ok");
    write_side(w, "a", p->a);
    write_side(w, "b", p->b);
    if (p->a && p->b && p->same_shape) {
        const struct { const char *name; double value; } numbers[] = {
            { "error", p->error }, { "expected", p->expected }, { "scale", p->scale }, { "offset", p->offset },
            { "cosine", p->sums.ab / sqrt(p->sums.aa * p->sums.bb) }, { "max_d", p->sums.max_d },
            { "max_a", (double)p->sums.max_a }, { "max_b", (double)p->sums.max_b },
        };
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            report_printf(w, ", \"%s\": %s", numbers[i].name, JSON_NUMBER(numbers[i].value));
        }
        report_printf(w, ", \"max_place\": %llu", (unsigned long long)p->sums.max_place);
    }
    const struct moved *at = &p->moved;
    if (at->is_found) {
        report_printf(w, ", \"moved\": {\"values_of\": \"%c\", \"byte\": %llu, \"own_byte\": %llu, "
                      "\"part\": %zu, \"in\": ", p->is_moved_b ? 'b' : 'a', (unsigned long long)at->byte,
                      (unsigned long long)at->own_byte, at->part);
        if (at->in) report_json_string(w, at->in->name.data, (size_t)at->in->name.n);
        else report_printf(w, "null");
        report_printf(w, ", \"in_byte\": %llu, \"n_compared\": %llu, \"n_equal\": %llu}",
                      (unsigned long long)at->in_byte, (unsigned long long)at->n_compared,
                      (unsigned long long)at->n_equal);
    }
    report_printf(w, ", \"suspicions\": [");
    for (uint32_t i = 0; i < p->n_suspicion; i++) report_json_text(w, i > 0 ? ", " : "", p->suspicions[i]);
    report_bytes(w, "]}", 2);
}

/* Returns the tensor of f that corresponds to the tensor of this name in the other file.  If f has no output.weight,
 * that is its embeddings, which are also its head. */
static const struct gguf_tensor *counterpart(const plumb_model *f, const char *name) {
    const struct gguf_tensor *t = find_tensor(f, name);
    return t || strcmp(name, "output.weight") != 0 ? t : find_tensor(f, "token_embd.weight");
}

static plumb_status add_pair(struct report_writer *w, const plumb_report *report, struct pair *p, struct totals *sum,
                             struct error *err) {
    if (p->a && p->b) PLUMB_TRY(compare(p, report->tolerance, err));
    if (report->format == PLUMB_FORMAT_JSON) write_json(w, p, sum->n == 0);
    else if (report->all || p->differs || !p->a || !p->b) write_text(w, p, sum->n_shown++ == 0);
    sum->n++;
    sum->n_differ += p->differs;
    sum->n_alone += !p->a || !p->b;
    return PLUMB_OK;
}

/* The report on keys. */
struct key_report {
    struct report_writer *w;
    bool is_json;
    uint32_t n;
};

static void add_key(void *user, const struct key_difference *d) {
    struct key_report *r = user;
    struct report_writer *w = r->w;
    const struct gguf_key *k = d->a ? d->a : d->b;
    if (r->is_json) {
        report_printf(w, "%s\n    {\"name\": ", r->n > 0 ? "," : "");
        report_json_string(w, k->name.data, (size_t)k->name.n);
        report_printf(w, ", \"a\": ");
    } else {
        report_printf(w, "KEY   ");
        report_text(w, k->name.data, (size_t)k->name.n);
        if (d->n > 0) report_printf(w, "[%llu]", (unsigned long long)d->place);
        report_printf(w, "  A ");
    }
    keys_write_value(w, d->a, d->place, r->is_json);
    report_printf(w, r->is_json ? ", \"b\": " : "  B ");
    keys_write_value(w, d->b, d->place, r->is_json);
    if (r->is_json) {
        report_printf(w, d->n > 0 ? ", \"place\": %llu, \"n_place\": %llu}" : "}", (unsigned long long)d->place,
                      (unsigned long long)d->n);
    } else if (d->a && d->b && d->n > 0) {
        report_printf(w, "  (%llu of %llu and %llu values differ)\n", (unsigned long long)d->n,
                      (unsigned long long)d->a->n, (unsigned long long)d->b->n);
    } else {
        report_printf(w, "\n");
    }
    r->n++;
}

/* Progress, and the searches for moved values, which report a part of the share of their tensor. */
struct progress {
    const plumb_report *report;
    double done, share;   /* fractions of all the work: what was done before the current tensor, and what it takes */
    struct moved_search moves[2];
};

static void show_progress(void *user, double part) {
    const struct progress *p = user;
    if (p->report->on_progress) p->report->on_progress(p->report->user, p->done + p->share * part);
}

/* Adds the pairs of all tensors of a.  is_b: instead adds those of the tensors of b that a lacks, and of a head of b
 * that a ties to its embeddings. */
static plumb_status add_file(struct report_writer *w, struct progress *progress, const plumb_model *a,
                             const plumb_model *b, bool is_b, struct totals *sum, struct error *err) {
    const plumb_model *file = is_b ? b : a;
    for (size_t k = 0; k < file->n_part; k++) {
        uint64_t n = gguf_n_tensor(file->parts[k]);
        for (uint64_t i = 0; i < n; i++) {
            const struct gguf_tensor *t = gguf_tensor_at(file->parts[k], i);
            struct pair p = { .file_b = b, .name = t->name.data, .moves = progress->moves };
            *(is_b ? &p.b : &p.a) = t;
            *(is_b ? &p.a : &p.b) = is_b ? counterpart(a, t->name.data) : counterpart(b, t->name.data);
            bool is_tied = p.a && p.b && strcmp(p.a->name.data, p.b->name.data) != 0;
            progress->share = is_b ? 0 : 1 / ((double)n * (double)file->n_part);
            if (!is_b || !p.a || is_tied) PLUMB_TRY(add_pair(w, progress->report, &p, sum, err));
            if (!is_b) show_progress(progress, 1);
            progress->done += progress->share;
        }
    }
    return PLUMB_OK;
}

plumb_status plumb_weights(plumb_model *a, plumb_model *b, const plumb_report *report, bool *agree) {
    struct error *err = &a->err;
    *agree = false;
    for (size_t i = 0; i < 2; i++) {
        const plumb_model *m = i == 0 ? a : b;
        if (m->n_part == 0) return error_set(err, PLUMB_ERROR_STATE, "plumb_model_begin was not called");
        for (size_t k = 0; k < m->n_part; k++) PLUMB_TRY(gguf_finish(m->parts[k], err));
    }
    if (report->format != PLUMB_FORMAT_TEXT && report->format != PLUMB_FORMAT_JSON) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "a comparison of weights is written as text or JSON");
    }
    bool is_json = report->format == PLUMB_FORMAT_JSON;
    const char *const names[] = { report->name_a ? report->name_a : "A", report->name_b ? report->name_b : "B" };
    struct report_writer w;
    struct totals sum = { 0 };
    report_begin(&w, report->write, report->user);
    if (is_json) report_printf(&w, "{\n  \"plumb\": \"weights\"");
    for (size_t i = 0; i < 2; i++) {
        report_printf(&w, is_json ? ", \"%c\": " : "%c  ", is_json ? "ab"[i] : "AB"[i]);
        if (is_json) report_json_string(&w, names[i], strlen(names[i]));
        else report_text(&w, names[i], strlen(names[i]));
        if (!is_json) report_bytes(&w, "\n", 1);
    }
    if (is_json) report_printf(&w, ",\n  \"tensors\": [");
    struct progress progress = { .report = report };
    for (size_t i = 0; i < 2; i++) {
        const plumb_model *searched = i == 0 ? b : a;
        progress.moves[i] = (struct moved_search) { .parts = searched->parts, .n_part = searched->n_part,
                                                    .on_progress = show_progress, .user = &progress };
    }
    plumb_status status = add_file(&w, &progress, a, b, false, &sum, err);
    if (status == PLUMB_OK) status = add_file(&w, &progress, a, b, true, &sum, err);
    bool is_exhausted = moved_is_exhausted(&progress.moves[0]) || moved_is_exhausted(&progress.moves[1]);
    for (size_t i = 0; i < 2; i++) moved_free(&progress.moves[i]);
    if (is_json) report_printf(&w, "\n  ],\n  \"keys\": [");
    struct key_report keys = { &w, is_json, 0 };
    if (status == PLUMB_OK) status = keys_compare(a->parts, a->n_part, b->parts, b->n_part, add_key, &keys, err);
    *agree = status == PLUMB_OK && sum.n_differ == 0 && sum.n_alone == 0 && keys.n == 0;
    if (is_json) {
        report_printf(&w, "\n  ],\n  \"n_tensor\": %u, \"n_parts\": %u, \"n_alone\": %u, \"agree\": %s, "
                      "\"search_stopped\": %s, \"n_key\": %u\n}\n", sum.n, sum.n_differ, sum.n_alone,
                      *agree ? "true" : "false", is_exhausted ? "true" : "false", keys.n);
    } else {
        if (is_exhausted) {
            report_printf(&w, "The search of every byte of the file was stopped after %u tensors that are nowhere; for "
                          "later tensors only the places of tensors, and distances found before, were tried.\n",
                          progress.moves[0].n_fruitless + progress.moves[1].n_fruitless);
        }
        char limit[60] = "their types explain";
        if (report->tolerance > 0) snprintf(limit, sizeof limit, "the tolerance of %g allows", report->tolerance);
        if (sum.n_differ + sum.n_alone == 0) {
            report_printf(&w, "%u tensors: no difference is larger than %s\n", sum.n, limit);
        } else {
            report_printf(&w, "%u tensors: %u differ more than %s, %u are in one file only, %u agree\n", sum.n,
                          sum.n_differ, limit, sum.n_alone, sum.n - sum.n_differ - sum.n_alone);
        }
        if (keys.n > 0) report_printf(&w, "keys that the model or its tokenizer reads: %u differ\n", keys.n);
    }
    report_flush(&w);
    return status;
}

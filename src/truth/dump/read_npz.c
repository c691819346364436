/* Reads the arrays that numpy.savez and numpy.savez_compressed write: a zip file of .npy files.
 *
 *   end of directory -> directory -> member (stored or deflated, CRC-32) -> .npy: header, elements -> rows
 *
 * An array has the name of its tap (tap_parse).  `tokens` (or `input_ids`) are the ids, and `n_prompt` is how many of
 * them were one prompt.  These are the shapes; a batch axis of 1 may come in front:
 *   (n_token, n)                                 any tap but kq_soft_max; the heads of Q, K, V and kqv_out side by side
 *   (1, n) or (n)                                the last token only, as many engines compute logits
 *   (n_token, n_head, n), (n_head, n_token, n)   Q, K, V, kqv_out, and kq_soft_max with n keys; a token's experts
 * If there are as many tokens as heads, the last form is ambiguous.  The array then gets a remark that says which order
 * was assumed, unless it has attention weights whose causal mask shows it, or the form that transformers returns,
 * (1, n_head, n_token, n_key).
 *
 * The arrays of taps may unpack to 16 times the bytes of the file and 256 MiB.  Activations hardly pack at all: the
 * attention weights of a causal model, half of them zeros, to a half.
 *
 * The reader refuses big-endian arrays, element types other than those in type_size, encrypted members, compressions
 * other than DEFLATE, and members that share bytes of the file.
 */
#include "dump/inflate.h"

#include "dump/dump.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_DIM = 4, UNPACKED_MIN = 256 << 20, UNPACKED_RATIO = 16 };

/* A file in the zip file. */
struct member {
    const char *name;         /* (n_name) in the directory, without .npy */
    size_t n_name;
    uint32_t method, crc;     /* 0 stored, 8 deflated */
    uint64_t n_packed, n;     /* bytes in the zip file, and unpacked */
    const uint8_t *packed;
};

struct array {
    struct shown name;
    enum tap_id id;
    int32_t layer;
    uint8_t *owned;           /* the unpacked bytes; NULL if the member is stored */
    const uint8_t *data;
    char type[3];             /* as in numpy's descr, "f4" */
    uint32_t size;            /* bytes of an element */
    uint32_t n_dim;
    uint64_t dim[MAX_DIM], stride[MAX_DIM];   /* strides in elements */
};

struct npz_reader {
    struct plumb_trace *t;
    struct error *err;        /* the trace's own */
    const uint8_t *bytes;
    size_t n;
    uint64_t n_packed;        /* sum over the members read so far */
    uint64_t n_unpacked;      /* the same, of those that are deflated and needed */
    uint64_t n_token;         /* 0: not known yet */
    int usual;                /* what usual_order returns */
    struct array tokens, n_prompt;
    size_t n_array, cap;
    struct array *arrays;     /* (n_array) arrays of taps */
};

/* ---- the zip file (PKWARE's APPNOTE 6.3, 4.3 and 4.5.3) ---------------------------------------------------------- */

static uint32_t crc32_of(const uint8_t *p, size_t n) {
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

/* Finds out where the directory begins and how many members it lists. */
static plumb_status find_directory(struct npz_reader *r, uint64_t *at, uint64_t *n_member) {
    size_t end = r->n < 22 ? 0 : r->n - 22, first = end > 65535 ? end - 65535 : 0;   /* a comment may follow */
    while (end > first && load_u32(r->bytes + end) != 0x06054b50) end--;
    if (r->n < 22 || load_u32(r->bytes + end) != 0x06054b50)
        return error_set(r->err, PLUMB_ERROR_TRUNCATED,
                         "%zu bytes without the end of a zip directory: not an .npz file, or truncated", r->n);
    const uint8_t *p = r->bytes + end;
    *n_member = load_u16(p + 10);
    *at = load_u32(p + 16);
    if ((*n_member == 0xffff || *at == 0xffffffff) && end >= 20 && load_u32(p - 20) == 0x07064b50) {
        uint64_t at64 = load_u64(p - 12);
        if (at64 > end || end - at64 < 56 || load_u32(r->bytes + at64) != 0x06064b50)
            return error_set(r->err, PLUMB_ERROR_METADATA,
                             "no end record of a zip64 directory at byte %llu, where its locator points",
                             (unsigned long long)at64);
        *n_member = load_u64(r->bytes + at64 + 32);
        *at = load_u64(r->bytes + at64 + 48);
    }
    return PLUMB_OK;
}

/* Replaces the values that are 0xffffffff.  The zip64 extra field has the right ones, in the same order, and no
 * others. */
static void take_zip64(const uint8_t *extra, size_t n, uint64_t *values[3]) {
    while (n >= 4) {
        size_t id = load_u16(extra), length = load_u16(extra + 2);
        if (length > n - 4) return;
        const uint8_t *p = extra + 4;
        for (size_t i = 0, left = length; id == 1 && i < 3; i++) {
            if (*values[i] != 0xffffffff) continue;
            if (left < 8) return;
            *values[i] = load_u64(p);
            p += 8;
            left -= 8;
        }
        extra += 4 + length;
        n -= 4 + length;
    }
}

/* Reads and checks the directory entry at *at, and moves *at to the next entry. */
static plumb_status read_entry(struct npz_reader *r, uint64_t *at, struct member *m) {
    if (*at > r->n || r->n - *at < 46 || load_u32(r->bytes + *at) != 0x02014b50)
        return error_set(r->err, PLUMB_ERROR_TRUNCATED, "the zip directory has no entry at byte %llu of %zu",
                         (unsigned long long)*at, r->n);
    const uint8_t *p = r->bytes + *at;
    size_t n_name = load_u16(p + 28), n_extra = load_u16(p + 30), n_comment = load_u16(p + 32);
    if (n_name + n_extra + n_comment > r->n - *at - 46)
        return error_set(r->err, PLUMB_ERROR_TRUNCATED, "the zip directory's entry at byte %llu is cut off",
                         (unsigned long long)*at);
    *at += 46 + n_name + n_extra + n_comment;
    uint64_t offset = load_u32(p + 42);
    *m = (struct member){.name = (const char *)p + 46, .n_name = n_name, .method = load_u16(p + 10),
                         .crc = load_u32(p + 16), .n_packed = load_u32(p + 20), .n = load_u32(p + 24)};
    take_zip64(p + 46 + n_name, n_extra, (uint64_t *[3]){&m->n, &m->n_packed, &offset});
    struct shown name;
    show_bytes(&name, m->name, n_name);
    if (n_name >= 4 && memcmp(m->name + n_name - 4, ".npy", 4) == 0) m->n_name -= 4;
    if ((load_u16(p + 8) & 1) != 0) return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "%s is encrypted", name.text);
    if (m->method != 0 && m->method != 8)
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "%s: zip method %u; expected 0 (stored) or 8 (deflated)",
                         name.text, m->method);
    if (offset > r->n || r->n - offset < 30 || load_u32(r->bytes + offset) != 0x04034b50)
        return error_set(r->err, PLUMB_ERROR_TRUNCATED, "%s: no zip entry begins at byte %llu of %zu", name.text,
                         (unsigned long long)offset, r->n);
    const uint8_t *local = r->bytes + offset;
    uint64_t data = offset + 30 + load_u16(local + 26) + load_u16(local + 28);
    if (data > r->n || m->n_packed > r->n - data)
        return error_set(r->err, PLUMB_ERROR_TRUNCATED, "%s: %llu bytes from byte %llu on do not fit in %zu", name.text,
                         (unsigned long long)m->n_packed, (unsigned long long)data, r->n);
    m->packed = r->bytes + data;
    /* If the packed sizes add up to more than the file has, some members share bytes.  Such a zip bomb could unpack to
     * more than an honest file of its size. */
    r->n_packed += m->n_packed;
    if (r->n_packed > r->n) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "%s shares its bytes with another array", name.text);
    }
    if (m->method == 0 ? m->n != m->n_packed : m->n / INFLATE_MAX_RATIO > m->n_packed)
        return error_set(r->err, PLUMB_ERROR_METADATA, "%s: %llu bytes cannot unpack to %llu", name.text,
                         (unsigned long long)m->n_packed, (unsigned long long)m->n);
    return PLUMB_OK;
}

/* Sets a->data to the m->n bytes of a member, unpacked if necessary, and checks their CRC-32. */
static plumb_status unpack(struct npz_reader *r, const struct member *m, struct array *a) {
    a->data = m->packed;
    if (m->method == 8) {
        const char *why;
        const uint64_t most = UNPACKED_MIN + UNPACKED_RATIO * (uint64_t)r->n;
        if (m->n > most - r->n_unpacked)
            return error_set(r->err, PLUMB_ERROR_METADATA, "%s unpacks to %llu bytes: with the arrays before it "
                             "that is more than the %llu that a file of %zu bytes may have; save it with numpy.savez",
                             a->name.text, (unsigned long long)m->n, (unsigned long long)most, r->n);
        r->n_unpacked += m->n;
        a->owned = alloc_array(m->n, 1);
        if (!a->owned)
            return error_set(r->err, PLUMB_ERROR_MEMORY, "out of memory: %llu bytes of %s", (unsigned long long)m->n,
                             a->name.text);
        if (!inflate_bytes(m->packed, (size_t)m->n_packed, a->owned, (size_t)m->n, &why))
            return error_set(r->err, PLUMB_ERROR_METADATA, "%s cannot be unpacked: %s", a->name.text, why);
        a->data = a->owned;
    }
    uint32_t crc = crc32_of(a->data, (size_t)m->n);
    if (crc != m->crc)
        return error_set(r->err, PLUMB_ERROR_METADATA, "%s is damaged: its CRC-32 is %08x, not %08x", a->name.text, crc,
                         m->crc);
    return PLUMB_OK;
}

/* ---- one array (numpy.lib.format) -------------------------------------------------------------------------------- */

/* Returns what follows 'key': in the header; NULL if the key is not there. */
static const char *find_key(const char *text, const char *end, const char *key) {
    size_t n = strlen(key);
    for (const char *p = text; (size_t)(end - p) > n; p++) {
        if (memcmp(p, key, n) != 0) continue;
        for (p += n; p < end && (*p == ' ' || *p == ':'); p++) continue;
        return p;
    }
    return NULL;
}

static bool read_shape(struct array *a, const char *p, const char *end) {
    if (p == end || *p++ != '(') return false;
    for (a->n_dim = 0;; a->n_dim++) {
        while (p < end && (*p == ' ' || *p == ',')) p++;
        if (p == end) return false;
        if (*p == ')') return true;
        uint64_t v = 0;
        const char *digits = p;
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            if (!mul_u64(v, 10, &v) || !add_u64(v, (uint64_t)(*p - '0'), &v)) return false;
        if (p == digits || a->n_dim == MAX_DIM) return false;
        a->dim[a->n_dim] = v;
    }
}

/* Returns the size of an element in bytes; 0 for a type that is not supported. */
static uint32_t type_size(const char type[3]) {
    static const char *const known[] = {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(type, known[i]) == 0) return (uint32_t)(type[1] - '0');
    return 0;
}

/* Reads the type, shape and strides of an array from the n bytes at a->data, and moves a->data to its elements. */
static plumb_status read_header(struct npz_reader *r, struct array *a, uint64_t n) {
    const char *name = a->name.text;
    const uint8_t *p = a->data;
    if (n < 12 || memcmp(p, "\x93NUMPY", 6) != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "%s is not an .npy array", name);
    }
    uint64_t length = p[6] == 1 ? load_u16(p + 8) : load_u32(p + 8), at = p[6] == 1 ? 10 : 12;
    if (p[6] < 1 || p[6] > 3) {
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "%s: .npy version %u; expected 1 to 3", name, p[6]);
    }
    if (length > n - at) {
        return error_set(r->err, PLUMB_ERROR_TRUNCATED, "%s: a header of %llu bytes in an entry of %llu", name,
                         (unsigned long long)length, (unsigned long long)n);
    }
    const char *text = (const char *)p + at, *end = text + length;
    const char *type = find_key(text, end, "'descr'"), *order = find_key(text, end, "'fortran_order'"),
               *shape = find_key(text, end, "'shape'");
    if (!type || !order || !shape || end - type < 5)
        return error_set(r->err, PLUMB_ERROR_METADATA, "%s: the .npy header lacks descr, fortran_order or shape", name);
    bool native = type[0] == '\'' && (type[1] == '<' || type[1] == '|') && type[4] == '\'';
    if (native) memcpy(a->type, type + 2, 2);
    a->size = native ? type_size(a->type) : 0;
    if (a->size == 0) {
        struct shown shown;
        const char *stop = memchr(type, ',', (size_t)(end - type));
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED,
                         "%s: elements of type %s are not supported; save it with .astype('<f4')", name,
                         show_bytes(&shown, type, (size_t)((stop ? stop : end) - type)));
    }
    if (!read_shape(a, shape, end)) {
        struct shown shown;
        const char *stop = memchr(shape, '}', (size_t)(end - shape));
        return error_set(r->err, PLUMB_ERROR_METADATA, "%s: expected a shape of up to %d numbers, found %s", name,
                         MAX_DIM, show_bytes(&shown, shape, (size_t)((stop ? stop : end) - shape)));
    }
    bool fortran = order < end && *order == 'T';
    uint64_t total = 1, bytes;
    bool fits = true;
    for (uint32_t i = 0; i < a->n_dim; i++) {
        uint32_t axis = fortran ? i : a->n_dim - 1 - i;   /* the fastest axis first */
        a->stride[axis] = total;
        fits = fits && mul_u64(total, a->dim[axis], &total);
    }
    if (!fits || !mul_u64(total, a->size, &bytes) || bytes != n - at - length)
        return error_set(r->err, PLUMB_ERROR_TENSOR, "%s: its shape does not match its %llu bytes of %s", name,
                         (unsigned long long)(n - at - length), a->type);
    if (total == 0 || total > UINT32_MAX - 1)
        return error_set(r->err, PLUMB_ERROR_TENSOR, "%s has %llu elements; expected 1 to %u", name,
                         (unsigned long long)total, UINT32_MAX - 1);
    a->data += at + length;
    return PLUMB_OK;
}

/* Returns element i, counted in the order of the file: i is the sum of the indices times their strides. */
static double element(const struct array *a, uint64_t i) {
    const uint8_t *p = a->data + i * a->size;
    switch (a->type[0] << 8 | a->type[1]) {
    case 'f' << 8 | '2': return (double)f32_from_f16(load_u16(p));
    case 'f' << 8 | '4': return (double)f32_from_bits(load_u32(p));
    case 'f' << 8 | '8': { uint64_t bits = load_u64(p); double d; memcpy(&d, &bits, 8); return d; }
    case 'i' << 8 | '1': return (int8_t)p[0];
    case 'i' << 8 | '2': return (int16_t)load_u16(p);
    case 'i' << 8 | '4': return (int32_t)load_u32(p);
    case 'i' << 8 | '8': return (double)(int64_t)load_u64(p);
    case 'u' << 8 | '2': return load_u16(p);
    case 'u' << 8 | '4': return load_u32(p);
    case 'u' << 8 | '8': return (double)load_u64(p);
    default: return p[0];
    }
}

/* Writes a shape such as "(1, 9, 576)".  Returns the text in buf. */
static const char *show_shape(struct shown *buf, const struct array *a) {
    size_t n = 0;
    for (uint32_t i = 0; i < a->n_dim && n < sizeof buf->text - 24; i++)
        n += (size_t)snprintf(buf->text + n, sizeof buf->text - n, "%s%llu", i ? ", " : "(",
                              (unsigned long long)a->dim[i]);
    snprintf(buf->text + n, sizeof buf->text - n, "%s", n == 0 ? "()" : a->n_dim == 1 ? ",)" : ")");
    return buf->text;
}

/* ---- from axes to rows ------------------------------------------------------------------------------------------- */

/* Reads element i as a whole number from 0 to max. */
static plumb_status whole_number(struct npz_reader *r, const struct array *a, uint64_t i, int64_t max, int64_t *v) {
    double d = element(a, i);
    if (!(d >= 0 && d <= (double)max && d == floor(d)))
        return error_set(r->err, PLUMB_ERROR_ARGUMENT, "%s: %g is not a whole number from 0 to %lld", a->name.text, d,
                         (long long)max);
    *v = (int64_t)d;
    return PLUMB_OK;
}

static plumb_status take_tokens(struct npz_reader *r) {
    const struct array *a = &r->tokens;
    if (!a->data && r->n_prompt.data) {
        return remarks_add(&r->t->remarks, r->err, REMARK_FORM, "n_prompt", strlen("n_prompt"), "there is no array of "
                           "the tokens, so it has no meaning");
    }
    if (!a->data) return PLUMB_OK;
    uint64_t n = a->n_dim == 0 ? 1 : a->dim[a->n_dim - 1];
    struct shown shape;
    if (a->n_dim > 2 || (a->n_dim == 2 && a->dim[0] != 1))
        return error_set(r->err, PLUMB_ERROR_TENSOR, "%s is %s; expected the ids of one text", a->name.text,
                         show_shape(&shape, a));
    int64_t n_prompt = (int64_t)n, id = 0;
    if (r->n_prompt.data) {
        if (r->n_prompt.n_dim > 1 || (r->n_prompt.n_dim == 1 && r->n_prompt.dim[0] != 1))
            return error_set(r->err, PLUMB_ERROR_TENSOR, "n_prompt is %s; expected one number",
                             show_shape(&shape, &r->n_prompt));
        PLUMB_TRY(whole_number(r, &r->n_prompt, 0, (int64_t)n, &n_prompt));
    }
    int32_t *ids = alloc_array(n, sizeof *ids);
    if (!ids) return error_set(r->err, PLUMB_ERROR_MEMORY, "out of memory: %llu tokens", (unsigned long long)n);
    plumb_status status = PLUMB_OK;
    for (uint64_t i = 0; i < n && status == PLUMB_OK; i++) {
        status = whole_number(r, a, i, INT32_MAX, &id);
        ids[i] = (int32_t)id;
    }
    if (status == PLUMB_OK) status = trace_set_tokens(r->t, ids, (size_t)n, (size_t)n_prompt);
    free(ids);
    r->n_token = n;
    return status;
}

/* Sets r->n_token to the largest number of tokens in an array whose shape alone shows which axis is the token.  If the
 * ids are known, their number counts instead, unless the arrays have one token less or up to TRACE_MAX_EXTRA_ROWS more:
 * an engine may drop BOS or feed a token twice. */
static plumb_status count_tokens(struct npz_reader *r) {
    uint64_t n_max = 0;
    for (size_t i = 0; i < r->n_array; i++) {
        const struct array *a = &r->arrays[i];
        bool batch = a->n_dim == 3 && a->dim[0] == 1 && !tap_has_heads(a->id);
        uint64_t n = a->n_dim == 2 && a->id != TAP_KQ_SOFT_MAX ? a->dim[0] : batch ? a->dim[1] : 0;
        if (n > n_max) n_max = n;
    }
    if (r->n_token > 0) {
        if (n_max > 1 && n_max + 1 >= r->n_token && n_max <= r->n_token + TRACE_MAX_EXTRA_ROWS) r->n_token = n_max;
        return PLUMB_OK;
    }
    r->n_token = n_max;
    if (r->n_token == 0 && r->n_array > 0)
        return error_set(r->err, PLUMB_ERROR_TENSOR,
                         "no array shows the number of tokens; add an array of their ids, named tokens");
    r->t->n_token = r->t->n_prompt = (uint32_t)r->n_token;
    return PLUMB_OK;
}

/* The index of each axis; -1: there is none. */
struct axes { int token, head, n; };

/* Returns true if the array has an axis of heads and one of tokens, and perhaps a batch axis of 1 in front.  Sets
 * *first to the index of the first of the two axes. */
static bool has_two_axes(const struct array *a, int *first) {
    *first = (int)a->n_dim - 3;
    return tap_has_heads(a->id) && (a->n_dim == 3 || (a->n_dim == 4 && a->dim[0] == 1));
}

/* Returns 1 if the arrays of heads whose shape shows which axis is the token have that axis first, 2 if they have it
 * second, 3 if some have it first and some second, and 0 if there are no such arrays. */
static int usual_order(const struct npz_reader *r) {
    int order = 0, first;
    for (size_t i = 0; i < r->n_array; i++) {
        const struct array *a = &r->arrays[i];
        if (!has_two_axes(a, &first)) continue;
        bool is_first = a->dim[first] == r->n_token, is_second = a->dim[first + 1] == r->n_token;
        if (is_first != is_second) order |= is_first ? 1 : 2;
    }
    return order;
}

/* Returns true if no token attends to a later one, with the tokens on axis `token` and the heads on axis `head`. */
static bool is_causal(const struct array *a, int token, int head) {
    int key = (int)a->n_dim - 1;
    for (uint64_t t = 0; t < a->dim[token]; t++) {
        for (uint64_t h = 0; h < a->dim[head]; h++) {
            for (uint64_t k = t + 1; k < a->dim[key]; k++) {
                if (element(a, t * a->stride[token] + h * a->stride[head] + k * a->stride[key]) != 0) return false;
            }
        }
    }
    return true;
}

/* Decides which of two axes of the same length is the token.  A causal mask shows it.  Otherwise the axis is taken for
 * that of the other arrays, or for the usual one, and a remark says so. */
static plumb_status choose_axis(struct npz_reader *r, const struct array *a, int first, struct axes *x) {
    bool weights = a->id == TAP_KQ_SOFT_MAX;
    int usual = r->usual, second = first + 1;
    bool token_first = usual == 1 || (usual != 2 && a->n_dim == 3);   /* with a batch axis, as in transformers */
    bool causal_first = weights && is_causal(a, first, second), causal_second = weights && is_causal(a, second, first);
    bool is_plain = causal_first != causal_second;
    if (is_plain) token_first = causal_first;
    x->token = token_first ? first : second;
    x->head = token_first ? second : first;
    if (is_plain) return PLUMB_OK;
    r->t->unsure_axes |= ID_SET(a->id);
    struct shown shape;
    return remarks_add(&r->t->remarks, r->err, REMARK_AXES, a->name.text, strlen(a->name.text), "with as many heads as "
                       "tokens, %s does not say which axis is which; it was taken for %s%s, %s; to make it plain, save "
                       "it as %s", show_shape(&shape, a), a->n_dim == 4 ? "(1, " : "(",
                       token_first ? "n_token, n_head, n)" : "n_head, n_token, n)",
                       usual == 1 || usual == 2 ? "like other arrays of the file" : "the usual order",
                       weights ? "(1, n_head, n_token, n_key)" : "(n_token, n_head * n)");
}

static plumb_status find_axes(struct npz_reader *r, const struct array *a, struct axes *x) {
    struct shown shape;
    const char *name = a->name.text;
    show_shape(&shape, a);
    bool heads = tap_has_heads(a->id), weights = a->id == TAP_KQ_SOFT_MAX;
    uint64_t n_token = r->n_token;
    int n_dim = (int)a->n_dim;
    bool batch = n_dim == (heads ? 4 : 3) && a->dim[0] == 1;
    *x = (struct axes){-1, -1, n_dim - 1};
    if (n_dim == 1 && !weights) return PLUMB_OK;
    if ((n_dim == 2 && !weights) || (batch && !heads)) {
        x->token = n_dim - 2;
        uint64_t n = a->dim[x->token];
        if (n == n_token || (n == 1 && n_dim == 2)) return PLUMB_OK;
        return error_set(r->err, PLUMB_ERROR_TENSOR, "%s is %s, of %llu tokens; expected %llu", name, shape.text,
                         (unsigned long long)n, (unsigned long long)n_token);
    }
    if (!heads || !(n_dim == 3 || batch))
        return error_set(r->err, PLUMB_ERROR_TENSOR, "%s is %s; expected %s", name, shape.text,
                         weights ? "(n_token, n_head, n_key)"
                         : heads ? "(n_token, n) or (n_token, n_head, n)" : "(n_token, n)");
    int first = n_dim - 3, second = n_dim - 2;
    bool is_first = a->dim[first] == n_token, is_second = a->dim[second] == n_token;
    if (!is_first && !is_second)
        return error_set(r->err, PLUMB_ERROR_TENSOR, "%s is %s; no axis has the length %llu, the number of tokens",
                         name, shape.text, (unsigned long long)n_token);
    if (is_first && is_second && n_token > 1 && !(weights && batch)) return choose_axis(r, a, first, x);
    bool token_first = is_first && !(is_second && weights && batch);
    x->token = token_first ? first : second;
    x->head = token_first ? second : first;
    return PLUMB_OK;
}

static plumb_status add_rows(struct npz_reader *r, const struct array *a) {
    struct axes x;
    PLUMB_TRY(find_axes(r, a, &x));
    uint64_t n_row = x.token < 0 ? 1 : a->dim[x.token], n_head = x.head < 0 ? 1 : a->dim[x.head], n = a->dim[x.n];
    float *values = alloc_array(n_head * n, sizeof *values);
    if (!values) return error_set(r->err, PLUMB_ERROR_MEMORY, "out of memory: a row of %s", a->name.text);
    plumb_status status = PLUMB_OK;
    for (uint64_t i = 0; i < n_row && status == PLUMB_OK; i++) {
        uint64_t at = x.token < 0 ? 0 : i * a->stride[x.token];
        for (uint64_t j = 0; j < n_head * n; j++) {
            uint64_t head = x.head < 0 ? 0 : j / n * a->stride[x.head];
            values[j] = (float)element(a, at + head + j % n * a->stride[x.n]);
        }
        struct trace_row *row;
        /* find_axes allows n_token rows, or one row, which belongs to the last token. */
        uint32_t pos = (uint32_t)(r->n_token - n_row + i);
        status = trace_new_row(r->t, a->id, a->layer, pos, &row);
        if (status == PLUMB_OK)
            status = trace_set_values(r->t, row, a->id, (uint32_t)n_head, (uint32_t)n, values, NULL,
                                      (uint32_t)(n_head * n));
    }
    free(values);
    return status;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static bool is_named(const struct member *m, const char *name) {
    return m->n_name == strlen(name) && memcmp(m->name, name, m->n_name) == 0;
}

/* Keeps the array of a member that is a tap, the tokens or n_prompt.  Adds a remark on any other member, and on second
 * names of a tap. */
static plumb_status read_member(struct npz_reader *r, const struct member *m) {
    struct array a = {.id = TAP_COUNT}, *to;
    show_bytes(&a.name, m->name, m->n_name);
    uint32_t name = tap_parse(m->name, m->n_name, &a.id, &a.layer);
    if (is_named(m, "tokens") || is_named(m, "input_ids")) {
        to = &r->tokens;
    } else if (is_named(m, "n_prompt")) {
        to = &r->n_prompt;
    } else {
        bool take;
        PLUMB_TRY(trace_begin_tap(r->t, &a.id, a.layer, name, m->name, m->n_name, &take));
        if (!take) return PLUMB_OK;
        if (!ARRAY_GROW(r->arrays, r->n_array, &r->cap)) {
            return error_set(r->err, PLUMB_ERROR_MEMORY, "out of memory: more than %zu arrays", r->n_array);
        }
        to = &r->arrays[r->n_array];
        *to = (struct array){.n_dim = 0};
        r->n_array++;
    }
    if (to->data) return error_set(r->err, PLUMB_ERROR_METADATA, "there are two arrays of tokens or of n_prompt");
    plumb_status status = unpack(r, m, &a);
    if (status == PLUMB_OK) status = read_header(r, &a, m->n);
    *to = a;   /* dump_read_npz frees it, whatever the status */
    return status;
}

static plumb_status read_all(struct npz_reader *r) {
    uint64_t at = 0, n_member = 0;
    PLUMB_TRY(find_directory(r, &at, &n_member));
    for (uint64_t i = 0; i < n_member; i++) {
        struct member m;
        PLUMB_TRY(read_entry(r, &at, &m));
        PLUMB_TRY(read_member(r, &m));
    }
    PLUMB_TRY(take_tokens(r));
    PLUMB_TRY(count_tokens(r));
    r->usual = usual_order(r);
    for (size_t i = 0; i < r->n_array; i++) PLUMB_TRY(add_rows(r, &r->arrays[i]));
    return PLUMB_OK;
}

plumb_status dump_read_npz(struct plumb_trace *t, const void *bytes, size_t n) {
    struct npz_reader r = {.t = t, .err = &t->err, .bytes = bytes, .n = n};
    plumb_status status = read_all(&r);
    for (size_t i = 0; i < r.n_array; i++) free(r.arrays[i].owned);
    free(r.arrays);
    free(r.tokens.owned);
    free(r.n_prompt.owned);
    return status;
}

/* The push parser and the memory of the tensors.  The header has this layout, all little-endian:
 *
 *   'GGUF' | version u32 | n_tensor u64 | n_key u64
 *   n_key times:     name string | type u32 | value;  an array is: element type u32 | n u64 | elements
 *   n_tensor times:  name string | n_dims u32 | shape u64 * n_dims | type u32 | offset u64
 *   a string:        length u64 | bytes
 *
 * The header is a sequence of small fields of known length and of runs of bytes (names, strings, numbers).  A field is
 * parsed when all of it is in the staging buffer; a run is copied out as its bytes arrive.  Every table and every run
 * grows with its bytes, so memory follows what was received, not what was announced.  Tables do not move as they grow:
 * there would be two copies for a while, and WebAssembly's memory keeps the holes that old copies leave.  After the
 * header, the tensors are filled in the order of their offsets.
 */
#include "gguf/gguf.h"

#include "quant/quant.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    STAGING_SIZE = 64 * 1024,
    CHUNK_SIZE = 64 * 1024,
    /* Limits of the specification.  A name with its final 0 fits in a chunk. */
    MAX_KEY_NAME = 65535,
    MAX_TENSOR_NAME = 64,
    MAX_DIMS = 4,
    /* Bytes of the shortest key (a name of 1 byte, a u8) and of the shortest tensor (a name of 1 byte, 1 dimension). */
    MIN_KEY_BYTES = 8 + 1 + 4 + 1,
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
    DEFAULT_ALIGNMENT = 32,
    /* The limits below are our own, except for MAX_LENGTH.
     *
     * Real files use 32 to 65536; a file that asks for more than a huge page is broken or hostile. */
    MAX_ALIGNMENT = 1 << 24,
    /* The largest models have thousands of tensors and tens of keys.  A key can take more than four times as many bytes
     * in memory as in the file. */
    MAX_TENSORS = 1 << 24,
    MAX_KEYS = 1 << 12,
    /* Bytes of a string and elements of an array; ggml's limit. */
    MAX_LENGTH = 1 << 30,
    /* Real headers have at most 30 MB.  The limit ends the reading of a header that never ends. */
    MAX_HEADER = 1 << 28,
    /* An empty string takes 8 bytes in a file and more than four times as many in memory. */
    MAX_EMPTY_STRINGS = 1 << 16,
};

/* What the parser is waiting for. */
enum state {
    NEXT_ITEM,   /* nothing: it begins the next key or tensor, or ends the header */
    READ_MAGIC, READ_VERSION, READ_COUNTS,
    READ_KEY_NAME_LENGTH, READ_KEY_TYPE, READ_ARRAY_HEAD, READ_STRING_LENGTH,
    READ_TENSOR_NAME_LENGTH, READ_TENSOR_DIMS, READ_TENSOR_REST,
    READ_KEY_NAME, READ_NUMBERS, READ_STRING, READ_TENSOR_NAME,
    READ_DATA
};

/* Memory for names and values.  Small runs share a chunk.  A larger run has a chunk of its own, which grows. */
struct chunk {
    struct chunk *next;          /* the chunk made after this one */
    uint64_t capacity, used;
    uint8_t bytes[];
};

/* An array of structs of one size, in blocks, so that no struct moves when the array grows. */
enum { BLOCK_ITEMS = 256 };
struct table {
    char **blocks;
    size_t n_block, block_capacity;
    size_t size;                 /* bytes of an item */
    uint64_t n;                  /* number of items */
};

struct gguf {
    struct error error;          /* the first failure; every later call returns it too */
    uint64_t file_size;
    enum state state;
    uint64_t position;           /* file offset of the next byte to be parsed or delivered */
    uint64_t item_position;      /* file offset of the field or run that is being parsed, for messages */
    size_t n_staged, i_staged;   /* bytes in staging; the first i_staged of them are parsed */
    size_t window;               /* length of the last window, 0 once it is committed */

    uint32_t version;
    uint64_t alignment, data_offset;
    uint64_t n_key, n_tensor;    /* as announced */
    struct table keys, tensors;  /* the last item is the one that is being read */
    /* Pointers to the names of all keys and tensors, sorted by name.  A name is the first member of its struct. */
    const struct gguf_string **keys_by_name, **tensors_by_name;

    struct chunk *chunks;        /* list of all chunks, oldest first */
    struct chunk **newest;       /* the pointer to the last chunk of the list */
    struct chunk *open;          /* the chunk that small runs go to */
    /* The run that is being read: run_size bytes from byte run_start of run_chunk on, n_run of which have arrived. */
    struct chunk *run_chunk;
    uint64_t run_start, run_size, n_run;
    /* The strings of the key that is being read, each after its length.  They are in chunk strings_in from byte
     * strings_at on (nowhere if it is NULL), and then in all chunks made after strings_after (all if it is NULL). */
    struct chunk *strings_in, *strings_after;
    uint64_t strings_at, n_string, n_empty_string;

    struct gguf_tensor **by_offset;   /* (n_tensor) sorted by offset */
    uint64_t data_bytes;         /* bytes of all tensors together */
    uint64_t i_tensor;           /* index in by_offset of the tensor that is being filled */
    uint64_t data_capacity;      /* bytes allocated for that tensor */
    bool header_only, marks_keys;
    gguf_on_data *on_data;       /* may be NULL */
    void *on_data_user;

    uint8_t staging[STAGING_SIZE];
};

static const struct { const char *name; uint8_t size; } type_traits[GGUF_TYPE_COUNT] = {
    [GGUF_UINT8] = {"uint8", 1},     [GGUF_INT8] = {"int8", 1},       [GGUF_UINT16] = {"uint16", 2},
    [GGUF_INT16] = {"int16", 2},     [GGUF_UINT32] = {"uint32", 4},   [GGUF_INT32] = {"int32", 4},
    [GGUF_FLOAT32] = {"float32", 4}, [GGUF_BOOL] = {"bool", 1},       [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0},     [GGUF_UINT64] = {"uint64", 8},   [GGUF_INT64] = {"int64", 8},
    [GGUF_FLOAT64] = {"float64", 8},
};

const char *gguf_type_name(enum gguf_type type) {
    return (unsigned)type < GGUF_TYPE_COUNT ? type_traits[type].name : "unknown";
}
size_t gguf_type_bytes(enum gguf_type type) { return (unsigned)type < GGUF_TYPE_COUNT ? type_traits[type].size : 0; }

struct gguf *gguf_create(uint64_t file_size) {
    struct gguf *g = malloc(sizeof *g);
    if (g == NULL) return NULL;
    memset(g, 0, offsetof(struct gguf, staging));
    g->file_size = file_size;
    g->state = READ_MAGIC;
    g->newest = &g->chunks;
    g->keys.size = sizeof(struct gguf_key);
    g->tensors.size = sizeof(struct gguf_tensor);
    g->alignment = DEFAULT_ALIGNMENT;
    return g;
}

static void *item(const struct table *t, uint64_t i) {
    return t->blocks[i / BLOCK_ITEMS] + i % BLOCK_ITEMS * t->size;
}
static struct gguf_key *key_at(const struct gguf *g, uint64_t i) { return item(&g->keys, i); }
static struct gguf_tensor *tensor_at(const struct gguf *g, uint64_t i) { return item(&g->tensors, i); }

static void table_free(struct table *t) {
    for (size_t i = 0; i < t->n_block; i++) free(t->blocks[i]);
    free(t->blocks);
}

void gguf_free(struct gguf *g) {
    if (g == NULL) return;
    for (uint64_t i = 0; i < g->tensors.n; i++) free(tensor_at(g, i)->data);
    for (uint64_t i = 0; i < g->keys.n; i++)
        if (key_at(g, i)->type == GGUF_STRING) free((void *)key_at(g, i)->strings);
    for (struct chunk *c = g->chunks, *next; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
    table_free(&g->keys);
    table_free(&g->tensors);
    free(g->keys_by_name);
    free(g->tensors_by_name);
    free(g->by_offset);
    free(g);
}

/* ---- failures ----------------------------------------------------------------------------------------------- */

struct place { char text[352]; };

/* Names the key or tensor that is being read, as in 'key 3 "general.name"'. */
static const char *place(const struct gguf *g, struct place *buf) {
    struct shown shown;
    const struct gguf_string *name = NULL;
    if (g->tensors.n != 0) name = &tensor_at(g, g->tensors.n - 1)->name;
    else if (g->keys.n != 0) name = &key_at(g, g->keys.n - 1)->name;
    if (name == NULL) {
        snprintf(buf->text, sizeof buf->text, "header");
    } else {
        const char *kind = g->tensors.n != 0 ? "tensor" : "key";
        uint64_t i = (g->tensors.n != 0 ? g->tensors.n : g->keys.n) - 1;
        if (name->data == NULL) snprintf(buf->text, sizeof buf->text, "%s %" PRIu64, kind, i);
        else snprintf(buf->text, sizeof buf->text, "%s %" PRIu64 " \"%s\"", kind, i,
                      show_bytes(&shown, name->data, (size_t)name->n));
    }
    return buf->text;
}

/* Sets the reader's failure, with the place of the field or run that is being parsed. */
PRINTF_LIKE(3, 4) static plumb_status fail(struct gguf *g, plumb_status status, const char *format, ...) {
    char what[256];
    struct place where;
    va_list args;
    va_start(args, format);
    if (vsnprintf(what, sizeof what, format, args) < 0) what[0] = 0;
    va_end(args);
    return error_set(&g->error, status, "%s at byte %" PRIu64 ": %s", place(g, &where), g->item_position,
                     what);
}

static plumb_status fail_memory(struct gguf *g, uint64_t n, size_t size) {
    return fail(g, PLUMB_ERROR_MEMORY, "out of memory: cannot allocate %" PRIu64 " times %zu bytes", n, size);
}

/* Bytes of the file that are still to be parsed; 0 if more bytes have come than the file was said to have. */
static uint64_t bytes_left(const struct gguf *g) {
    return g->file_size > g->position ? g->file_size - g->position : 0;
}

static plumb_status fail_truncated(struct gguf *g, uint64_t n, const char *what, uint64_t bytes) {
    return fail(g, PLUMB_ERROR_TRUNCATED, "%" PRIu64 " %s need %" PRIu64 " bytes, but the file has only %" PRIu64
                " more", n, what, bytes, bytes_left(g));
}

/* ---- memory that follows the bytes received ----------------------------------------------------------------- */

/* True if the file can have n bytes that begin skip bytes after the next one to be parsed. */
static bool file_holds(const struct gguf *g, uint64_t skip, uint64_t n) {
    if (g->file_size == PLUMB_SIZE_UNKNOWN) return true;
    return skip <= bytes_left(g) && n <= bytes_left(g) - skip;
}

/* True if a header can have n bytes that begin skip bytes after the next one to be parsed. */
static bool header_holds(const struct gguf *g, uint64_t skip, uint64_t n) {
    return skip <= MAX_HEADER && n <= MAX_HEADER - skip && g->position <= MAX_HEADER - skip - n;
}

static plumb_status fail_header(struct gguf *g, uint64_t n, const char *what) {
    return fail(g, PLUMB_ERROR_METADATA, "%" PRIu64 " %s extend beyond byte %d, the limit for headers", n, what,
                MAX_HEADER);
}

/* Adds an item, all of whose bytes are 0. */
static plumb_status table_add(struct gguf *g, struct table *t) {
    if (t->n == (uint64_t)t->n_block * BLOCK_ITEMS) {
        if (!ARRAY_GROW(t->blocks, t->n_block, &t->block_capacity)) {
            return fail_memory(g, t->n_block, sizeof *t->blocks);
        }
        t->blocks[t->n_block] = alloc_array(BLOCK_ITEMS, t->size);
        if (t->blocks[t->n_block] == NULL) return fail_memory(g, BLOCK_ITEMS, t->size);
        t->n_block++;
    }
    memset(item(t, t->n), 0, t->size);
    t->n++;
    return PLUMB_OK;
}

/* Adds a chunk if chunk is NULL; otherwise changes the capacity of chunk, which must be the newest.  It may move. */
static plumb_status chunk_resize(struct gguf *g, struct chunk *chunk, uint64_t capacity, struct chunk **out) {
    uint64_t bytes = sizeof(struct chunk) + capacity;
    struct chunk *c = (size_t)bytes == bytes ? realloc(chunk, (size_t)bytes) : NULL;
    if (c == NULL) return fail_memory(g, capacity, 1);
    if (chunk == NULL) {
        c->next = NULL;
        c->used = 0;
        if (*g->newest != NULL) g->newest = &(*g->newest)->next;
    }
    c->capacity = capacity;
    *out = *g->newest = c;
    return PLUMB_OK;
}

/* Starts a run of n bytes.  It is stored with `before` bytes of the caller's in front of it and a 0 after it. */
static plumb_status run_begin(struct gguf *g, enum state state, size_t before, uint64_t n) {
    uint64_t need = before + n + 1;
    if (need <= CHUNK_SIZE) {
        if (g->open == NULL || g->open->capacity - g->open->used < need)
            PLUMB_TRY(chunk_resize(g, NULL, CHUNK_SIZE, &g->open));
        g->run_chunk = g->open;
    } else {
        PLUMB_TRY(chunk_resize(g, NULL, CHUNK_SIZE, &g->run_chunk));
        if (state == READ_STRING) g->open = NULL;   /* the next string goes to a chunk after this one */
    }
    g->run_start = g->run_chunk->used + before;
    g->run_size = n;
    g->n_run = 0;
    g->state = state;
    return PLUMB_OK;
}

/* Appends as many of n bytes to the run as it still needs; *taken is their number. */
static plumb_status run_append(struct gguf *g, const uint8_t *bytes, size_t n, size_t *taken) {
    uint64_t missing = g->run_size - g->n_run;
    if (n > missing) n = (size_t)missing;
    uint64_t need = g->run_start + g->n_run + n + 1, capacity = g->run_chunk->capacity;
    if (need > capacity) {   /* happens only to a run with a chunk of its own */
        uint64_t max = g->run_start + g->run_size + 1;
        capacity = capacity < max / 2 ? 2 * capacity : max;   /* enough, as n <= STAGING_SIZE <= CHUNK_SIZE */
        PLUMB_TRY(chunk_resize(g, g->run_chunk, capacity, &g->run_chunk));
    }
    uint8_t *end = g->run_chunk->bytes + g->run_start + g->n_run;
    memcpy(end, bytes, n);
    g->n_run += n;
    if (g->n_run == g->run_size) {
        end[n] = 0;
        g->run_chunk->used = need;
    }
    *taken = n;
    return PLUMB_OK;
}

/* ---- names -------------------------------------------------------------------------------------------------- */

static int compare_strings(const struct gguf_string *a, const struct gguf_string *b) {
    int order = memcmp(a->data, b->data, (size_t)(a->n < b->n ? a->n : b->n));
    return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

static int compare_names(const void *pa, const void *pb) {
    return compare_strings(*(const struct gguf_string *const *)pa, *(const struct gguf_string *const *)pb);
}

/* Fails with the indices of the first two items that have this name. */
static plumb_status fail_equal_names(struct gguf *g, const struct table *t, const struct gguf_string *name,
                                     const char *kind, plumb_status status) {
    uint64_t found[2] = {0}, n = 0;
    for (uint64_t i = 0; n < 2 && i < t->n; i++) if (compare_strings(item(t, i), name) == 0) found[n++] = i;
    struct shown shown;
    return error_set(&g->error, status, "%s %" PRIu64 " has the same name as %s %" PRIu64 ": \"%s\"", kind, found[1],
                     kind, found[0], show_bytes(&shown, name->data, (size_t)name->n));
}

/* Sorts pointers to the names of all items, which begin with their names, and refuses equal names.  Sorting takes
 * n log n steps for any file, while a hostile file could fill a hash table with collisions. */
static plumb_status sort_names(struct gguf *g, const struct table *t, const char *kind, plumb_status status,
                               const struct gguf_string ***out) {
    const struct gguf_string **names = alloc_array(t->n, sizeof *names);
    if (names == NULL) return fail_memory(g, t->n, sizeof *names);
    *out = names;
    for (uint64_t i = 0; i < t->n; i++) names[i] = item(t, i);
    qsort(names, (size_t)t->n, sizeof *names, compare_names);
    for (uint64_t i = 1; i < t->n; i++) {
        if (compare_strings(names[i - 1], names[i]) == 0) return fail_equal_names(g, t, names[i], kind, status);
    }
    return PLUMB_OK;
}

static const void *find_name(const struct gguf_string **names, uint64_t n, const char *name) {
    if (names == NULL) return NULL;
    struct gguf_string wanted = {.data = name, .n = strlen(name)};
    uint64_t low = 0, high = n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = compare_strings(names[middle], &wanted);
        if (order == 0) return names[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

static plumb_status check_name_length(struct gguf *g, plumb_status status, uint64_t n, uint64_t max) {
    if (n == 0 || n > max)
        return fail(g, status, "the name has %" PRIu64 " bytes, expected 1 to %" PRIu64, n, max);
    if (!file_holds(g, 8, n)) return fail_truncated(g, n, "bytes of a name", 8 + n);
    if (!header_holds(g, 8, n)) return fail_header(g, n, "bytes of a name");
    return PLUMB_OK;
}

/* Makes the finished run a name.  Callers get names as C strings, so a name must not contain a 0. */
static plumb_status set_name(struct gguf *g, plumb_status status, struct gguf_string *name) {
    name->data = (const char *)g->run_chunk->bytes + g->run_start;
    name->n = g->run_size;
    if (memchr(name->data, 0, (size_t)name->n) != NULL) return fail(g, status, "the name contains a zero byte");
    return PLUMB_OK;
}

/* ---- keys --------------------------------------------------------------------------------------------------- */

static struct gguf_key *key(struct gguf *g) { return key_at(g, g->keys.n - 1); }

/* Writes a length as bytes of 7 bits, the lowest first; all but the last have the high bit set.  Returns their
 * number. */
enum { MAX_LENGTH_BYTES = 5 };
static size_t put_length(uint8_t *at, uint64_t n) {
    size_t i = 0;
    for (; n > 127; n >>= 7) at[i++] = (uint8_t)(n | 128);
    at[i++] = (uint8_t)n;
    return i;
}

/* Makes the table of a key's strings, after all of them have arrived. */
static plumb_status list_strings(struct gguf *g, struct gguf_key *k) {
    if (k->n == 0) return PLUMB_OK;
    struct gguf_string *strings = alloc_array(k->n, sizeof *strings);
    if (strings == NULL) return fail_memory(g, k->n, sizeof *strings);
    k->strings = strings;
    const struct chunk *c = g->strings_in;
    uint64_t at = g->strings_at;
    for (uint64_t i = 0; i < k->n; i++) {
        if (c == NULL || at == c->used) {
            if (c != g->strings_in) c = c->next;
            else c = g->strings_after != NULL ? g->strings_after->next : g->chunks;
            at = 0;
        }
        uint64_t n = 0;
        for (unsigned shift = 0, more = 1; more; shift += 7) {
            uint8_t byte = c->bytes[at++];
            n |= (uint64_t)(byte & 127) << shift;
            more = byte & 128;
        }
        strings[i] = (struct gguf_string){.data = (const char *)c->bytes + at, .n = n};
        at += n + 1;
    }
    return PLUMB_OK;
}

/* Ends a key, whose numbers (the run) or strings are complete, and checks the values that the reader itself relies
 * on. */
static plumb_status end_key(struct gguf *g) {
    struct gguf_key *k = key(g);
    if (k->type == GGUF_STRING) {
        PLUMB_TRY(list_strings(g, k));
    } else {
        k->values = g->run_chunk->bytes + g->run_start;
    }
    for (uint64_t i = 0; k->type == GGUF_BOOL && i < k->n; i++)
        if (k->values[i] > 1)
            return fail(g, PLUMB_ERROR_METADATA, "bool %" PRIu64 " of %" PRIu64 " is %u, expected 0 or 1", i, k->n,
                        k->values[i]);
    static const char alignment[] = "general.alignment";
    if (k->name.n == sizeof alignment - 1 && memcmp(k->name.data, alignment, sizeof alignment) == 0) {
        if (k->is_array || k->type != GGUF_UINT32)
            return fail(g, PLUMB_ERROR_METADATA, "expected uint32, found %s%s", k->is_array ? "an array of " : "",
                        gguf_type_name(k->type));
        g->alignment = load_u32(k->values);
        if (g->alignment == 0 || (g->alignment & (g->alignment - 1)) != 0 || g->alignment > MAX_ALIGNMENT)
            return fail(g, PLUMB_ERROR_METADATA, "%" PRIu64 " is not a power of two from 1 to %d", g->alignment,
                        MAX_ALIGNMENT);
    }
    g->state = NEXT_ITEM;
    return PLUMB_OK;
}

/* Begins the values of a key whose type and count are known.  skip: bytes of the field that they were read from. */
static plumb_status begin_values(struct gguf *g, size_t skip) {
    struct gguf_key *k = key(g);
    uint64_t size = k->type == GGUF_STRING ? 8 : type_traits[k->type].size;
    if (k->n > MAX_LENGTH)
        return fail(g, PLUMB_ERROR_METADATA, "the array has %" PRIu64 " elements, at most %d are allowed", k->n,
                    MAX_LENGTH);
    if (!file_holds(g, skip, k->n * size))
        return fail_truncated(g, k->n, k->type == GGUF_STRING ? "strings" : "values", skip + k->n * size);
    if (!header_holds(g, skip, k->n * size))
        return fail_header(g, k->n, k->type == GGUF_STRING ? "strings" : "values");
    if (k->type != GGUF_STRING) return run_begin(g, READ_NUMBERS, 0, k->n * size);
    g->n_string = g->n_empty_string = 0;
    g->strings_in = g->open;
    g->strings_at = g->open != NULL ? g->open->used : 0;
    g->strings_after = *g->newest;
    g->state = READ_STRING_LENGTH;
    return PLUMB_OK;
}

static plumb_status check_value_type(struct gguf *g, uint32_t type) {
    if (type >= GGUF_TYPE_COUNT)
        return fail(g, PLUMB_ERROR_METADATA, "value type %" PRIu32 " is unknown, expected 0 to %d", type,
                    GGUF_TYPE_COUNT - 1);
    return PLUMB_OK;
}

static plumb_status begin_string(struct gguf *g, uint64_t n) {
    uint8_t length[MAX_LENGTH_BYTES];
    size_t n_length = put_length(length, n);
    PLUMB_TRY(run_begin(g, READ_STRING, n_length, n));
    memcpy(g->run_chunk->bytes + g->run_start - n_length, length, n_length);
    return PLUMB_OK;
}

static plumb_status end_string(struct gguf *g) {
    if (g->run_size == 0 && g->n_empty_string++ == MAX_EMPTY_STRINGS)
        return fail(g, PLUMB_ERROR_METADATA, "the array has more than %d empty strings", MAX_EMPTY_STRINGS);
    if (++g->n_string == key(g)->n) return end_key(g);
    g->state = READ_STRING_LENGTH;
    return PLUMB_OK;
}

/* ---- tensor directory --------------------------------------------------------------------------------------- */

static struct gguf_tensor *tensor(struct gguf *g) { return tensor_at(g, g->tensors.n - 1); }

/* Reads shape, type and offset of a tensor from p, after its n_dims is known. */
static plumb_status read_tensor(struct gguf *g, const uint8_t *p) {
    struct gguf_tensor *t = tensor(g);
    t->n_elements = 1;
    for (uint32_t i = 0; i < MAX_DIMS; i++) t->shape[i] = i < t->n_dims ? load_u64(p + 8 * i) : 1;
    for (uint32_t i = 0; i < MAX_DIMS; i++) {
        if (t->shape[i] == 0 || t->shape[i] > INT64_MAX)
            return fail(g, PLUMB_ERROR_TENSOR, "dimension %" PRIu32 " is %" PRId64 ", expected 1 or more", i,
                        (int64_t)t->shape[i]);
        if (!mul_u64(t->n_elements, t->shape[i], &t->n_elements) || t->n_elements > INT64_MAX)
            return fail(g, PLUMB_ERROR_TENSOR, "shape [%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                        "] has 2^63 elements or more", t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    }
    p += 8 * t->n_dims;
    t->type = load_u32(p);
    const struct quant_traits *traits = quant_traits(t->type);
    if (traits == NULL || traits->name == NULL)
        return fail(g, PLUMB_ERROR_UNSUPPORTED, "tensor type %" PRIu32 " is unknown or was removed from the format",
                    t->type);
    if (traits->block_size == 0)
        return fail(g, PLUMB_ERROR_UNSUPPORTED, "tensor type %s (%" PRIu32 ") is not supported by this version",
                    traits->name, t->type);
    if (t->shape[0] % traits->block_size != 0)
        return fail(g, PLUMB_ERROR_TENSOR, "a row has %" PRIu64 " elements, expected a multiple of %" PRIu32
                    ", the block size of %s", t->shape[0], traits->block_size, traits->name);
    if (!mul_u64(t->n_elements / traits->block_size, traits->block_bytes, &t->n_bytes) || t->n_bytes > INT64_MAX)
        return fail(g, PLUMB_ERROR_TENSOR, "%" PRIu64 " elements of type %s take 2^63 bytes or more", t->n_elements,
                    traits->name);
    t->offset = load_u64(p + 4);
    if (t->offset % g->alignment != 0)
        return fail(g, PLUMB_ERROR_TENSOR, "offset %" PRIu64 " is not a multiple of the alignment %" PRIu64,
                    t->offset, g->alignment);
    g->state = NEXT_ITEM;
    return PLUMB_OK;
}

static int compare_offsets(const void *pa, const void *pb) {
    const struct gguf_tensor *a = *(struct gguf_tensor *const *)pa, *b = *(struct gguf_tensor *const *)pb;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return compare_strings(&a->name, &b->name);   /* makes the result of qsort unique */
}

/* Ends the header: checks that tensors do not overlap, and sorts them into the order in which their bytes arrive. */
static plumb_status end_header(struct gguf *g) {
    PLUMB_TRY(sort_names(g, &g->tensors, "tensor", PLUMB_ERROR_TENSOR, &g->tensors_by_name));
    g->data_offset = (g->position + g->alignment - 1) & ~(g->alignment - 1);
    g->by_offset = alloc_array(g->n_tensor, sizeof *g->by_offset);
    if (g->by_offset == NULL) return fail_memory(g, g->n_tensor, sizeof *g->by_offset);
    for (uint64_t i = 0; i < g->n_tensor; i++) g->by_offset[i] = tensor_at(g, i);
    qsort(g->by_offset, (size_t)g->n_tensor, sizeof *g->by_offset, compare_offsets);
    uint64_t end = 0;
    for (uint64_t i = 0; i < g->n_tensor; i++) {
        const struct gguf_tensor *t = g->by_offset[i];
        struct shown shown, before;
        show_bytes(&shown, t->name.data, (size_t)t->name.n);
        if (t->offset < end) {
            const struct gguf_tensor *b = g->by_offset[i - 1];
            return error_set(&g->error, PLUMB_ERROR_TENSOR, "tensor \"%s\" at offset %" PRIu64 " overlaps tensor \"%s\""
                             ", which ends at offset %" PRIu64, shown.text, t->offset,
                             show_bytes(&before, b->name.data, (size_t)b->name.n), end);
        }
        g->data_bytes += t->n_bytes;   /* no more than the end of this tensor, as tensors do not overlap */
        uint64_t file_end;
        if (!add_u64(t->offset, t->n_bytes, &end) || !add_u64(end, g->data_offset, &file_end) ||
            file_end > INT64_MAX)
            return error_set(&g->error, PLUMB_ERROR_TENSOR, "tensor \"%s\": %" PRIu64 " bytes at offset %" PRIu64
                             " end beyond byte 2^63", shown.text, t->n_bytes, t->offset);
        if (g->file_size != PLUMB_SIZE_UNKNOWN && file_end > g->file_size)
            return error_set(&g->error, PLUMB_ERROR_TRUNCATED, "tensor \"%s\": its %" PRIu64 " bytes end at byte %"
                             PRIu64 ", but the file ends at byte %" PRIu64, shown.text, t->n_bytes, file_end,
                             g->file_size);
    }
    g->state = READ_DATA;
    return PLUMB_OK;
}

static plumb_status next_item(struct gguf *g) {
    if (g->keys.n < g->n_key) {
        PLUMB_TRY(table_add(g, &g->keys));
        g->state = READ_KEY_NAME_LENGTH;
        return PLUMB_OK;
    }
    if (g->keys_by_name == NULL)
        PLUMB_TRY(sort_names(g, &g->keys, "key", PLUMB_ERROR_METADATA, &g->keys_by_name));
    if (g->tensors.n == g->n_tensor) return end_header(g);
    PLUMB_TRY(table_add(g, &g->tensors));
    g->state = READ_TENSOR_NAME_LENGTH;
    return PLUMB_OK;
}

/* ---- header ------------------------------------------------------------------------------------------------- */

static plumb_status read_version(struct gguf *g, uint32_t version) {
    g->version = version;
    if (version == 2 || version == 3) return PLUMB_OK;
    if ((version & 0xffff) == 0 && version != 0)
        return fail(g, PLUMB_ERROR_VERSION, "version 0x%08" PRIx32 " looks like a big-endian file, which is not"
                    " supported", version);
    return fail(g, PLUMB_ERROR_VERSION, "GGUF version %" PRIu32 " is not supported, expected 2 or 3", version);
}

static plumb_status read_counts(struct gguf *g, uint64_t n_tensor, uint64_t n_key) {
    if (n_tensor > MAX_TENSORS)
        return fail(g, PLUMB_ERROR_TENSOR, "the file has %" PRIu64 " tensors, at most %d are allowed", n_tensor,
                    MAX_TENSORS);
    if (n_key > MAX_KEYS)
        return fail(g, PLUMB_ERROR_METADATA, "the file has %" PRIu64 " keys, at most %d are allowed", n_key, MAX_KEYS);
    uint64_t key_bytes = n_key * MIN_KEY_BYTES, tensor_bytes = n_tensor * MIN_TENSOR_BYTES;
    if (!file_holds(g, 16, key_bytes)) return fail_truncated(g, n_key, "keys", 16 + key_bytes);
    if (!file_holds(g, 16 + key_bytes, tensor_bytes)) return fail_truncated(g, n_tensor, "tensors", 16 + tensor_bytes);
    if (!header_holds(g, 16 + key_bytes, tensor_bytes)) return fail_header(g, n_tensor, "tensors");
    g->n_tensor = n_tensor;
    g->n_key = n_key;
    g->state = NEXT_ITEM;
    return PLUMB_OK;
}

/* What a file is that begins with 4 bytes other than GGUF, and what to do with it; "" if these do not show it. */
static const char *other_file(const uint8_t *p) {
#define UNPACK ": it is an archive or compressed; unpack it"
#define CONVERT "; convert the model to GGUF"
#define PAGE ": it is a web page; the address is not that of the file, or needs a login"
    static const struct { uint8_t n; char bytes[5]; const char *text; } known[] = {
        {4, "vers", ": it is a Git LFS pointer; fetch the file with git lfs pull"},
        {4, "PK\3\4", ": it is a zip archive or a PyTorch checkpoint; unpack it or convert the model to GGUF"},
        {2, "\x1f\x8b", UNPACK}, {4, "\x28\xb5\x2f\xfd", UNPACK}, {3, "BZh", UNPACK}, {4, "\xfd" "7zX", UNPACK},
        {2, "7z", UNPACK}, {4, "Rar!", UNPACK}, {2, "<!", PAGE}, {2, "<h", PAGE}, {2, "<H", PAGE}, {2, "<?", PAGE},
        {1, "{", ": it is JSON, perhaps a server's error"}, {4, "Entr", ": it is a server's error"},
        {4, "Inva", ": it is a server's error"}, {4, "Acce", ": it is a server's error"},
        {1, "\x80", ": it is a PyTorch checkpoint" CONVERT}, {4, "\x89HDF", ": it is HDF5" CONVERT},
        {4, "lmgg", ": it is older than GGUF" CONVERT}, {4, "tjgg", ": it is older than GGUF" CONVERT},
        {4, "\0\0\0\0", ": it begins with zeros; load it again"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (memcmp(p, known[i].bytes, known[i].n) == 0) return known[i].text;
    }
    /* The first number of safetensors is the length of its header, in 8 bytes. */
    return p[3] == 0 ? ": it may be safetensors" CONVERT : "";
}

/* Bytes of the field that the parser is waiting for; 0 for runs and data. */
static size_t field_size(struct gguf *g) {
    switch (g->state) {
    case READ_MAGIC: case READ_VERSION: case READ_KEY_TYPE: case READ_TENSOR_DIMS: return 4;
    case READ_KEY_NAME_LENGTH: case READ_STRING_LENGTH: case READ_TENSOR_NAME_LENGTH: return 8;
    case READ_ARRAY_HEAD: return 12;
    case READ_COUNTS: return 16;
    case READ_TENSOR_REST: return 8 * (size_t)tensor(g)->n_dims + 12;
    default: return 0;
    }
}

/* Parses the field at p, of field_size bytes, and sets the next state.  g->position is still the field's. */
static plumb_status parse_field(struct gguf *g, const uint8_t *p) {
    switch (g->state) {
    case READ_MAGIC:
        if (memcmp(p, "GGUF", 4) != 0) {
            struct shown shown;
            return fail(g, PLUMB_ERROR_MAGIC, "magic \"%s\" is not \"GGUF\"%s", show_bytes(&shown, p, 4),
                        other_file(p));
        }
        g->state = READ_VERSION;
        return PLUMB_OK;
    case READ_VERSION:
        PLUMB_TRY(read_version(g, load_u32(p)));
        g->state = READ_COUNTS;
        return PLUMB_OK;
    case READ_COUNTS:
        return read_counts(g, load_u64(p), load_u64(p + 8));
    case READ_KEY_NAME_LENGTH:
        PLUMB_TRY(check_name_length(g, PLUMB_ERROR_METADATA, load_u64(p), MAX_KEY_NAME));
        return run_begin(g, READ_KEY_NAME, 0, load_u64(p));
    case READ_KEY_TYPE:
        if (load_u32(p) == GGUF_ARRAY) {
            key(g)->is_array = true;
            g->state = READ_ARRAY_HEAD;
            return PLUMB_OK;
        }
        PLUMB_TRY(check_value_type(g, load_u32(p)));
        key(g)->type = (enum gguf_type)load_u32(p);
        key(g)->n = 1;
        return begin_values(g, 4);
    case READ_ARRAY_HEAD:
        if (load_u32(p) == GGUF_ARRAY) return fail(g, PLUMB_ERROR_METADATA, "arrays of arrays are not supported");
        PLUMB_TRY(check_value_type(g, load_u32(p)));
        key(g)->type = (enum gguf_type)load_u32(p);
        key(g)->n = load_u64(p + 4);
        PLUMB_TRY(begin_values(g, 12));
        return g->state == READ_STRING_LENGTH && key(g)->n == 0 ? end_key(g) : PLUMB_OK;
    case READ_STRING_LENGTH: {
        uint64_t n = load_u64(p);
        if (n > MAX_LENGTH)
            return fail(g, PLUMB_ERROR_METADATA, "string %" PRIu64 " has %" PRIu64 " bytes, at most %d are allowed",
                        g->n_string, n, MAX_LENGTH);
        if (!file_holds(g, 8, n)) return fail_truncated(g, n, "bytes of a string", 8 + n);
        if (!header_holds(g, 8, n)) return fail_header(g, n, "bytes of a string");
        return begin_string(g, n);
    }
    case READ_TENSOR_NAME_LENGTH:
        PLUMB_TRY(check_name_length(g, PLUMB_ERROR_TENSOR, load_u64(p), MAX_TENSOR_NAME));
        return run_begin(g, READ_TENSOR_NAME, 0, load_u64(p));
    case READ_TENSOR_DIMS:
        if (load_u32(p) == 0 || load_u32(p) > MAX_DIMS)
            return fail(g, PLUMB_ERROR_TENSOR, "the tensor has %" PRIu32 " dimensions, expected 1 to %d", load_u32(p),
                        MAX_DIMS);
        tensor(g)->n_dims = load_u32(p);
        g->state = READ_TENSOR_REST;
        return PLUMB_OK;
    case READ_TENSOR_REST:
        return read_tensor(g, p);
    default: return PLUMB_OK;
    }
}

/* Ends a run, after all of its bytes have arrived. */
static plumb_status end_run(struct gguf *g) {
    switch (g->state) {
    case READ_KEY_NAME:
        g->state = READ_KEY_TYPE;
        return set_name(g, PLUMB_ERROR_METADATA, &key(g)->name);
    case READ_TENSOR_NAME:
        g->state = READ_TENSOR_DIMS;
        return set_name(g, PLUMB_ERROR_TENSOR, &tensor(g)->name);
    case READ_NUMBERS: return end_key(g);
    case READ_STRING: return end_string(g);
    default: return PLUMB_OK;
    }
}

static void consume(struct gguf *g, size_t n) {
    g->i_staged += n;
    g->position += n;
}

/* Parses as many of the staged bytes as it can. */
static plumb_status parse_header(struct gguf *g) {
    while (g->state != READ_DATA) {
        const uint8_t *p = g->staging + g->i_staged;
        size_t n = g->n_staged - g->i_staged, size = field_size(g);
        if (g->state == NEXT_ITEM) {
            PLUMB_TRY(next_item(g));
        } else if (size != 0) {
            if (n < size) break;
            g->item_position = g->position;
            PLUMB_TRY(parse_field(g, p));
            consume(g, size);
        } else {
            if (g->n_run == 0) g->item_position = g->position;
            PLUMB_TRY(run_append(g, p, n, &n));
            consume(g, n);
            if (g->n_run < g->run_size) break;
            PLUMB_TRY(end_run(g));
        }
    }
    return PLUMB_OK;
}

/* ---- tensor data -------------------------------------------------------------------------------------------- */

/* Says where the next bytes of the data section go, and how many of them: to a tensor, or to staging for the bytes of
 * the gap before it.  *len is 0 after the last tensor. */
static plumb_status data_window(struct gguf *g, uint8_t **data, size_t *len) {
    *data = g->staging;
    *len = 0;
    if (g->i_tensor == g->n_tensor) return PLUMB_OK;
    struct gguf_tensor *t = g->by_offset[g->i_tensor];
    uint64_t start = g->data_offset + t->offset, end = start + t->n_bytes;
    if (g->position < start) {
        uint64_t gap = start - g->position;
        *len = gap < STAGING_SIZE ? (size_t)gap : STAGING_SIZE;
        return PLUMB_OK;
    }
    if ((size_t)g->data_bytes != g->data_bytes)   /* better now than after a download of 4 GB */
        return error_set(&g->error, PLUMB_ERROR_MEMORY, "the tensors have %" PRIu64 " bytes, but only %zu can be "
                         "addressed here: choose a smaller model, one with fewer bits per weight, or a program with "
                         "64-bit addresses",
                         g->data_bytes, (size_t)SIZE_MAX);
    if (t->n_received == g->data_capacity) {
        /* Allocates all of it at once if the file is known to be large enough. */
        bool known = g->file_size != PLUMB_SIZE_UNKNOWN && end <= g->file_size;
        uint64_t capacity = g->data_capacity == 0 ? STAGING_SIZE : g->data_capacity;
        capacity = known || capacity > t->n_bytes / 2 ? t->n_bytes : 2 * capacity;
        void *p = (size_t)capacity == capacity ? realloc(t->data, (size_t)capacity) : NULL;
        if (p == NULL) {
            struct shown shown;
            return error_set(&g->error, PLUMB_ERROR_MEMORY, "out of memory: tensor \"%s\" needs %" PRIu64 " bytes",
                             show_bytes(&shown, t->name.data, (size_t)t->name.n), capacity);
        }
        t->data = p;
        g->data_capacity = capacity;
    }
    *data = t->data + t->n_received;
    *len = (size_t)(g->data_capacity - t->n_received);
    return PLUMB_OK;
}

void gguf_set_on_data(struct gguf *g, gguf_on_data *on_data, void *user) {
    g->on_data = on_data;
    g->on_data_user = user;
}

void gguf_header_only(struct gguf *g) { g->header_only = true; }

/* Takes note that n bytes of the last data_window have been written. */
static plumb_status data_commit(struct gguf *g, size_t n) {
    if (g->i_tensor < g->n_tensor) {
        struct gguf_tensor *t = g->by_offset[g->i_tensor];
        if (g->position >= g->data_offset + t->offset) {
            t->n_received += n;
            if (g->on_data) PLUMB_TRY(g->on_data(g->on_data_user, t, n, &g->error));
            if (t->n_received == t->n_bytes) {
                g->i_tensor++;
                g->data_capacity = 0;
            }
        }
    }
    g->position += n;
    return PLUMB_OK;
}

/* ---- the caller's side -------------------------------------------------------------------------------------- */

plumb_status gguf_window(struct gguf *g, void **data, size_t *len, struct error *err) {
    uint8_t *at = g->staging + g->n_staged;
    *len = 0;
    *data = at;
    g->window = 0;
    if (g->error.status == PLUMB_OK) {
        if (g->state == READ_DATA && !g->header_only) data_window(g, &at, len);
        else if (g->state != READ_DATA) *len = STAGING_SIZE - g->n_staged;
    }
    if (g->error.status != PLUMB_OK) {
        *err = g->error;
        return err->status;
    }
    *data = at;
    g->window = *len;
    return PLUMB_OK;
}

/* Parses staged header bytes and hands what follows the header to the tensors. */
static plumb_status consume_staged(struct gguf *g) {
    PLUMB_TRY(parse_header(g));
    if (g->state == READ_DATA && g->header_only) return PLUMB_OK;
    while (g->state == READ_DATA && g->i_staged < g->n_staged) {
        uint8_t *data;
        size_t n, left = g->n_staged - g->i_staged;
        PLUMB_TRY(data_window(g, &data, &n));
        if (n == 0 || n > left) n = left;   /* n is 0 for bytes after the last tensor, which are dropped */
        if (data != g->staging) memcpy(data, g->staging + g->i_staged, n);
        PLUMB_TRY(data_commit(g, n));
        g->i_staged += n;
    }
    g->n_staged -= g->i_staged;
    memmove(g->staging, g->staging + g->i_staged, g->n_staged);
    g->i_staged = 0;
    return PLUMB_OK;
}

plumb_status gguf_commit(struct gguf *g, size_t n, struct error *err) {
    if (g->error.status == PLUMB_OK) {
        if (n > g->window)
            return error_set(err, PLUMB_ERROR_ARGUMENT, "%zu bytes were committed, but the window has only %zu", n,
                             g->window);
        g->window = 0;
        if (g->state == READ_DATA) {
            data_commit(g, n);   /* puts its failure into g->error */
        } else {
            g->n_staged += n;
            consume_staged(g);
        }
    }
    if (g->error.status != PLUMB_OK) *err = g->error;
    return g->error.status;
}

plumb_status gguf_finish(const struct gguf *g, struct error *err) {
    if (g->error.status != PLUMB_OK) {
        *err = g->error;
        return err->status;
    }
    if (g->state != READ_DATA) {
        struct place where;
        return error_set(err, PLUMB_ERROR_TRUNCATED, "the file ends at byte %" PRIu64 ", inside %s",
                         gguf_position(g), place(g, &where));
    }
    if (g->i_tensor < g->n_tensor) {
        const struct gguf_tensor *t = g->by_offset[g->i_tensor];
        struct shown shown;
        return error_set(err, PLUMB_ERROR_TRUNCATED, "the file ends at byte %" PRIu64 ": tensor \"%s\" has %" PRIu64
                         " of %" PRIu64 " bytes, and %" PRIu64 " more tensors are missing", g->position,
                         show_bytes(&shown, t->name.data, (size_t)t->name.n), t->n_received, t->n_bytes,
                         g->n_tensor - g->i_tensor - 1);
    }
    return PLUMB_OK;
}

void gguf_set_file_size(struct gguf *g, uint64_t file_size) { g->file_size = file_size; }
bool gguf_has_header(const struct gguf *g) { return g->state == READ_DATA; }
bool gguf_is_complete(const struct gguf *g) { return g->state == READ_DATA && g->i_tensor == g->n_tensor; }
/* g->position counts the parsed bytes, so only the staged bytes after i_staged are added. */
uint64_t gguf_position(const struct gguf *g) { return g->position + g->n_staged - g->i_staged; }

uint32_t gguf_version(const struct gguf *g) { return g->version; }
uint64_t gguf_alignment(const struct gguf *g) { return g->alignment; }
uint64_t gguf_data_offset(const struct gguf *g) { return g->data_offset; }

uint64_t gguf_n_key(const struct gguf *g) { return gguf_has_header(g) ? g->n_key : 0; }
const struct gguf_key *gguf_key_at(const struct gguf *g, uint64_t i) {
    return i < gguf_n_key(g) ? key_at(g, i) : NULL;
}
const struct gguf_key *gguf_find_key(const struct gguf *g, const char *name) {
    const struct gguf_key *k = gguf_has_header(g) ? find_name(g->keys_by_name, g->n_key, name) : NULL;
    if (k && g->marks_keys) ((struct gguf_key *)k)->is_read = true;
    return k;
}
void gguf_mark_keys(struct gguf *g, bool on) { g->marks_keys = on; }
uint64_t gguf_n_tensor(const struct gguf *g) { return gguf_has_header(g) ? g->n_tensor : 0; }
struct gguf_tensor *gguf_tensor_at(struct gguf *g, uint64_t i) {
    return i < gguf_n_tensor(g) ? tensor_at(g, i) : NULL;
}
struct gguf_tensor *gguf_find_tensor(struct gguf *g, const char *name) {
    return gguf_has_header(g) ? (struct gguf_tensor *)find_name(g->tensors_by_name, g->n_tensor, name) : NULL;
}
const struct gguf_tensor *gguf_find_in_parts(struct gguf *const *parts, size_t n_part, const char *name) {
    const struct gguf_tensor *t = NULL;
    for (size_t i = 0; i < n_part && !t; i++) t = gguf_find_tensor(parts[i], name);
    return t;
}
bool gguf_name_ends(const struct gguf_tensor *t, const char *end) {
    size_t n = strlen(end);
    return t->name.n >= n && memcmp(t->name.data + t->name.n - n, end, n) == 0;
}

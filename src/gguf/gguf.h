/* GGUF v2/v3 reader: bytes -> keys + tensor directory + tensor data, fed in pieces of any size.
 * Format: the GGUF specification of the ggml project (docs/gguf.md).  Knows no model and no tokenizer.
 *
 *   magic 'GGUF' | version u32 | n_tensor u64 | n_key u64 | keys | tensor directory | pad to alignment | tensor data
 *
 * A push parser: gguf_window says where the next bytes go, gguf_commit that they are there.  Header bytes pass through
 * a small staging buffer, of which only keys, values and names are kept; tensor bytes are written by the caller at
 * their final place.  No allocation is larger than what the bytes seen, or a known file size, can justify.
 *
 * Refused, beyond what contradicts itself: names that are empty, contain a 0 or are longer than the specification
 * allows (65535 bytes for keys, 64 for tensors), arrays of arrays, dimensions of 0, tensors that overlap, alignments
 * that are no power of two up to 2^24, strings of more than 2^30 bytes, arrays of more than 2^30 elements or 2^16 empty
 * strings, more than 2^12 keys or 2^24 tensors, a header of more than 2^28 bytes.  Tensors may lie in any order and
 * with gaps between them.
 */
#ifndef PLUMB_GGUF_H
#define PLUMB_GGUF_H

#include "base/base.h"

enum gguf_type {
    GGUF_UINT8, GGUF_INT8, GGUF_UINT16, GGUF_INT16, GGUF_UINT32, GGUF_INT32, GGUF_FLOAT32, GGUF_BOOL, GGUF_STRING,
    GGUF_ARRAY, GGUF_UINT64, GGUF_INT64, GGUF_FLOAT64, GGUF_TYPE_COUNT
};

struct gguf_string {
    const char *data;   /* n bytes, then a 0 that is not counted; may hold zeros and any other byte */
    uint64_t n;
};

/* One key.  Scalars are arrays of one element. */
struct gguf_key {
    struct gguf_string name;
    enum gguf_type type;      /* element type; never GGUF_ARRAY (nested arrays are refused) */
    bool is_array;
    uint64_t n;               /* elements */
    const uint8_t *values;    /* n little-endian elements, of a type other than string */
    const struct gguf_string *strings;  /* n strings, of type string */
};

struct gguf_tensor {
    struct gguf_string name;
    uint32_t type;            /* enum quant_type */
    uint32_t n_dims;          /* 1..4 */
    uint64_t shape[4];        /* fastest dimension first, unused ones 1 */
    uint64_t offset;          /* from the start of the data section, as in the file */
    uint64_t n_bytes;
    uint64_t n_elements;
    uint8_t *data;            /* n_bytes, owned by the gguf; NULL until its first byte is due, moves until the last */
    uint64_t n_received;      /* bytes of data that have arrived */
    uint64_t n_packed;        /* the first rows, packed as in repack/repack.h; the others are as in the file */
};

struct gguf;

/* Size of the file in bytes or PLUMB_SIZE_UNKNOWN.  NULL if out of memory. */
struct gguf *gguf_create(uint64_t file_size);
void gguf_free(struct gguf *g);

/* As plumb_model_window and plumb_model_commit.  After a failure every further call returns the same failure.
 * Committing more than the window holds is PLUMB_ERROR_ARGUMENT and changes nothing. */
plumb_status gguf_window(struct gguf *g, void **data, size_t *len, struct error *err);
plumb_status gguf_commit(struct gguf *g, size_t n, struct error *err);
/* Replaces what is known of the size of the whole file.  The header's promises are held against it as they are read,
 * so the size of only a first piece of a file would have it refused. */
void gguf_set_file_size(struct gguf *g, uint64_t file_size);
/* Called each time n more bytes of a tensor have arrived.  It may rewrite the bytes that have arrived in place.  A
 * status that is not PLUMB_OK ends the reading, with the message that it puts into err. */
typedef plumb_status gguf_on_data(void *user, struct gguf_tensor *tensor, size_t n, struct error *err);
void gguf_set_on_data(struct gguf *g, gguf_on_data *on_data, void *user);
/* No byte behind the header is wanted: the window is empty there. */
void gguf_header_only(struct gguf *g);
bool gguf_has_header(const struct gguf *g);
/* True when every byte that the directory names has arrived. */
bool gguf_is_complete(const struct gguf *g);
/* PLUMB_ERROR_TRUNCATED with place and numbers unless complete. */
plumb_status gguf_finish(const struct gguf *g, struct error *err);
/* Bytes committed so far = file offset of the next window. */
uint64_t gguf_position(const struct gguf *g);

/* Keys and tensors, once gguf_has_header: before, there are none. */
uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_alignment(const struct gguf *g);
uint64_t gguf_data_offset(const struct gguf *g);
uint64_t gguf_n_key(const struct gguf *g);
const struct gguf_key *gguf_key_at(const struct gguf *g, uint64_t i);
/* NULL if there is none.  A binary search. */
const struct gguf_key *gguf_find_key(const struct gguf *g, const char *name);
uint64_t gguf_n_tensor(const struct gguf *g);
struct gguf_tensor *gguf_tensor_at(struct gguf *g, uint64_t i);
struct gguf_tensor *gguf_find_tensor(struct gguf *g, const char *name);
/* The same in a model's files. */
const struct gguf_tensor *gguf_find_in_parts(struct gguf *const *parts, size_t n_part, const char *name);
/* ".attn_q.weight" of "blk.3.attn_q.weight". */
bool gguf_name_ends(const struct gguf_tensor *t, const char *end);
/* Rows of shape[0] elements. */
static inline uint64_t gguf_n_row(const struct gguf_tensor *t) { return t->n_elements / t->shape[0]; }
static inline size_t gguf_row_bytes(const struct gguf_tensor *t) { return (size_t)(t->n_bytes / gguf_n_row(t)); }

const char *gguf_type_name(enum gguf_type type);

/* Typed access.  Absent key: *out keeps its value (the default), PLUMB_OK.  A key of another kind is
 * PLUMB_ERROR_METADATA: integers accept every integer type whose value fits, floats accept F32 and F64. */
plumb_status gguf_get_u32(const struct gguf *g, const char *name, uint32_t *out, struct error *err);
plumb_status gguf_get_f32(const struct gguf *g, const char *name, float *out, struct error *err);
plumb_status gguf_get_bool(const struct gguf *g, const char *name, bool *out, struct error *err);
plumb_status gguf_get_string(const struct gguf *g, const char *name, struct gguf_string *out, struct error *err);
/* *out = NULL when absent; PLUMB_ERROR_METADATA when it is no array of this element type. */
plumb_status gguf_get_array(const struct gguf *g, const char *name, enum gguf_type type, const struct gguf_key **out,
                            struct error *err);

#endif

/* GGUF v2/v3 reader: bytes -> keys + tensor directory + tensor data, fed in pieces of any size.
 * Format: the GGUF specification of the ggml project (docs/gguf.md).  Knows no model and no tokenizer.
 *
 *   magic 'GGUF' | version u32 | n_tensor u64 | n_key u64 | keys | tensor directory | pad to alignment | tensor data
 *
 * This is a push parser: gguf_window says where the next bytes go, and gguf_commit is told that they are there.  Header
 * bytes pass through a small staging buffer, and only keys, values and names are kept.  Tensor bytes are written by the
 * caller where they stay.  No allocation is larger than the bytes received so far, or a known file size, can justify.
 *
 * Besides files that contradict themselves, the reader refuses: names that are empty, contain a 0 or are longer than
 * the specification allows (65535 bytes for keys, 64 for tensors); arrays of arrays; dimensions of 0; tensors that
 * overlap; alignments other than powers of two up to 2^24; strings of more than 2^30 bytes; arrays of more than 2^30
 * elements or 2^16 empty strings; more than 2^12 keys or 2^24 tensors; headers of more than 2^28 bytes.  Tensors may be
 * in any order and have gaps between them.
 */
#ifndef PLUMB_GGUF_H
#define PLUMB_GGUF_H

#include "base/base.h"

enum gguf_type {
    GGUF_UINT8, GGUF_INT8, GGUF_UINT16, GGUF_INT16, GGUF_UINT32, GGUF_INT32, GGUF_FLOAT32, GGUF_BOOL, GGUF_STRING,
    GGUF_ARRAY, GGUF_UINT64, GGUF_INT64, GGUF_FLOAT64, GGUF_TYPE_COUNT
};

struct gguf_string {
    const char *data;   /* n bytes of any value, then a 0 that n does not count */
    uint64_t n;
};

/* A key and its values.  A scalar is stored like an array of one element. */
struct gguf_key {
    struct gguf_string name;
    enum gguf_type type;      /* element type; never GGUF_ARRAY, as nested arrays are refused */
    bool is_array;
    uint64_t n;               /* number of elements */
    const uint8_t *values;    /* n little-endian elements, for all types but GGUF_STRING */
    const struct gguf_string *strings;  /* n strings, for GGUF_STRING */
    bool is_read;             /* gguf_find_key has found it since gguf_mark_keys */
};

struct gguf_tensor {
    struct gguf_string name;
    uint32_t type;            /* enum quant_type */
    uint32_t n_dims;          /* 1..4 */
    uint64_t shape[4];        /* fastest dimension first; unused ones are 1 */
    uint64_t offset;          /* from the start of the data section, as in the file */
    uint64_t n_bytes;
    uint64_t n_elements;
    uint8_t *data;            /* n_bytes, owned by the gguf.  NULL until a window is asked for its first byte; may move
                               * until its last byte has arrived */
    uint64_t n_received;      /* bytes of data that have arrived */
    uint64_t n_packed;        /* rows at the start that are packed (repack/repack.h); the others are as in the file */
};

struct gguf;

/* file_size: in bytes, or PLUMB_SIZE_UNKNOWN.  Returns NULL if out of memory. */
struct gguf *gguf_create(uint64_t file_size);
void gguf_free(struct gguf *g);

/* These are like plumb_model_window and plumb_model_commit.  After a failure, every further call returns the same
 * failure.  Committing more bytes than the window has is PLUMB_ERROR_ARGUMENT and changes nothing. */
plumb_status gguf_window(struct gguf *g, void **data, size_t *len, struct error *err);
plumb_status gguf_commit(struct gguf *g, size_t n, struct error *err);
/* Replaces the known size of the whole file.  What the header announces is checked against this size as it is read, so
 * a file is refused if the size is that of its first piece only. */
void gguf_set_file_size(struct gguf *g, uint64_t file_size);
/* The reader calls it each time n more bytes of a tensor have arrived.  It may rewrite the bytes that have arrived in
 * place.  If it fails, the reader fails with its status and with the message that it has put into err. */
typedef plumb_status gguf_on_data(void *user, struct gguf_tensor *tensor, size_t n, struct error *err);
void gguf_set_on_data(struct gguf *g, gguf_on_data *on_data, void *user);
/* Makes the reader stop after the header: windows are empty from then on. */
void gguf_header_only(struct gguf *g);
/* True once the keys and the tensor directory have been read. */
bool gguf_has_header(const struct gguf *g);
/* True once all bytes of all tensors have arrived. */
bool gguf_is_complete(const struct gguf *g);
/* PLUMB_OK if the file is complete, else PLUMB_ERROR_TRUNCATED with place and numbers, or the failure of the reader. */
plumb_status gguf_finish(const struct gguf *g, struct error *err);
/* The number of bytes committed so far, which is the file offset of the next window. */
uint64_t gguf_position(const struct gguf *g);

/* Keys and tensors.  There are none before gguf_has_header is true. */
uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_alignment(const struct gguf *g);
uint64_t gguf_data_offset(const struct gguf *g);
uint64_t gguf_n_key(const struct gguf *g);
const struct gguf_key *gguf_key_at(const struct gguf *g, uint64_t i);
/* Both find functions do a binary search, and return NULL if there is no such name. */
const struct gguf_key *gguf_find_key(const struct gguf *g, const char *name);
/* While on, gguf_find_key marks the keys that it finds. */
void gguf_mark_keys(struct gguf *g, bool on);
uint64_t gguf_n_tensor(const struct gguf *g);
struct gguf_tensor *gguf_tensor_at(struct gguf *g, uint64_t i);
struct gguf_tensor *gguf_find_tensor(struct gguf *g, const char *name);
/* Finds a tensor in the files of a split model. */
const struct gguf_tensor *gguf_find_in_parts(struct gguf *const *parts, size_t n_part, const char *name);
/* True if the tensor's name ends in end: "blk.3.attn_q.weight" ends in ".attn_q.weight". */
bool gguf_name_ends(const struct gguf_tensor *t, const char *end);
/* The number of rows, of shape[0] elements each, and the bytes of a row. */
static inline uint64_t gguf_n_row(const struct gguf_tensor *t) { return t->n_elements / t->shape[0]; }
static inline size_t gguf_row_bytes(const struct gguf_tensor *t) { return (size_t)(t->n_bytes / gguf_n_row(t)); }

const char *gguf_type_name(enum gguf_type type);
/* The bytes of a value; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type type);

/* Typed access.  If the key is absent, these return PLUMB_OK and leave *out, the default, unchanged.  A key of another
 * kind is PLUMB_ERROR_METADATA.  An integer may be of any integer type if its value fits, a float may be F32 or F64. */
plumb_status gguf_get_u32(const struct gguf *g, const char *name, uint32_t *out, struct error *err);
plumb_status gguf_get_f32(const struct gguf *g, const char *name, float *out, struct error *err);
plumb_status gguf_get_bool(const struct gguf *g, const char *name, bool *out, struct error *err);
plumb_status gguf_get_string(const struct gguf *g, const char *name, struct gguf_string *out, struct error *err);
/* Sets *out to NULL if the key is absent or is not an array.  PLUMB_ERROR_METADATA if it is an array of something else
 * than bool or integers. */
plumb_status gguf_get_flags(const struct gguf *g, const char *name, const struct gguf_key **out, struct error *err);
/* Element i, which must be below flags->n, of such an array: bool is 0 or 1.  UINT64_MAX if it is negative. */
uint64_t gguf_element(const struct gguf_key *flags, uint64_t i);
/* True if element i is true or not 0. */
static inline bool gguf_flag(const struct gguf_key *flags, uint64_t i) { return gguf_element(flags, i) != 0; }
/* Sets *out to NULL if the key is absent.  PLUMB_ERROR_METADATA if it is not an array of this element type. */
plumb_status gguf_get_array(const struct gguf *g, const char *name, enum gguf_type type, const struct gguf_key **out,
                            struct error *err);

#endif

/* plumb: GGUF language models in WebAssembly.  The public header of the engine, and of the chat templates and grammars
 * of its answers.  plumb_truth.h has the tools that compare engines.
 *
 *   bytes -> plumb_model (push loader: header, tensors, vocabulary)
 *         -> plumb_session (KV cache: feed tokens, read logits, rewind)  <- plumb_adapter (LoRA, control vectors)
 *         -> plumb_sampler (logits -> token)
 *         -> plumb_text (tokens -> whole UTF-8 characters)
 *
 * A function that can fail returns a plumb_status, or a negative plumb_status in place of a length.  The object then
 * keeps a message of one sentence with the place and the numbers (plumb_model_error, plumb_session_error,
 * plumb_adapter_error); functions on a const object keep none.  Nothing here prints, exits or aborts.
 * A loaded model does not change, and its sessions are independent of each other.  Two threads must not use the same
 * object at the same time.
 */
#ifndef PLUMB_H
#define PLUMB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLUMB_VERSION "0.1.0"

/* 0 is success.  Failures are negative, in families of ten. */
typedef enum plumb_status {
    PLUMB_OK = 0,
    /* mistakes of the caller */
    PLUMB_ERROR_ARGUMENT = -1,      /* a parameter is out of its documented range */
    PLUMB_ERROR_STATE = -2,         /* the object is not ready for the call (a session on a half-loaded model) */
    /* resources */
    PLUMB_ERROR_MEMORY = -10,       /* an allocation failed; the message has the sizes */
    PLUMB_ERROR_IO = -11,           /* reading or writing failed (command line and hosts only) */
    /* broken files */
    PLUMB_ERROR_MAGIC = -20,        /* not a GGUF file, or not a saved session */
    PLUMB_ERROR_VERSION = -21,      /* a GGUF version other than 2 and 3, or another version of saved sessions */
    PLUMB_ERROR_TRUNCATED = -22,    /* the file is incomplete, or a file of a split model is missing */
    PLUMB_ERROR_METADATA = -23,     /* a key has a wrong type, length or value, is missing, or appears twice; a saved
                                     * session contradicts itself or its digests */
    PLUMB_ERROR_TENSOR = -24,       /* a tensor has a wrong name, shape, type, offset or size, or is missing */
    /* what this version cannot run */
    PLUMB_ERROR_UNSUPPORTED = -30,  /* architecture, tensor type, pre-tokenizer, RoPE scaling...; the message says */
    PLUMB_ERROR_TOKENIZER = -31,    /* the vocabulary contradicts itself */
    PLUMB_ERROR_TEMPLATE = -32,     /* there is no chat template, or it cannot be run; the message says why */
    /* running a model */
    PLUMB_ERROR_CONTEXT = -40,      /* more tokens than the session's context holds */
    PLUMB_ERROR_TOKEN = -41         /* a token id outside the vocabulary */
} plumb_status;

/* "PLUMB_ERROR_MAGIC" and so on; "PLUMB_ERROR" for a number that is not a status. */
const char *plumb_status_name(plumb_status status);

/* Receives a file or a report piece by piece. */
typedef void plumb_write(void *user, const char *bytes, size_t n);
/* Gives the next n bytes of a file: writes them to bytes, and returns how many.  Fewer than n: the file ends. */
typedef size_t plumb_read(void *user, void *bytes, size_t n);

/* ---- model: bytes in, weights and vocabulary ---------------------------------------------------------------- */

typedef struct plumb_model plumb_model;

#define PLUMB_SIZE_UNKNOWN UINT64_MAX

/* Returns NULL if out of memory. */
plumb_model *plumb_model_create(void);
void plumb_model_free(plumb_model *model);
/* The message of the last failure, or "" if there was none.  Valid until the next call on the model. */
const char *plumb_model_error(const plumb_model *model);

/* To load a model, call plumb_model_begin, then plumb_model_window and plumb_model_commit in turn until all bytes are
 * written, then plumb_model_end.
 *
 * plumb_model_begin starts the next part.  A plain file is one part.  Several parts are either the files of
 * `gguf-split`, each with its own header, or one file cut at arbitrary bytes: if the file before it is incomplete, a
 * new part continues that file.  size: bytes in this part and in all later parts together, or PLUMB_SIZE_UNKNOWN.  If
 * the size is known, a header that announces more than that is refused before anything is allocated for it. */
plumb_status plumb_model_begin(plumb_model *model, uint64_t size);
/* Says where the next bytes go: the caller may write up to *len bytes at *data.  *len is 0 if the file needs no more
 * bytes; any that follow are padding and may be dropped.  Weights need no copy: they are written where they stay. */
plumb_status plumb_model_window(plumb_model *model, void **data, size_t *len);
/* Tells the model that n bytes (n <= *len of the last window) were written.  Now and then a call takes some
 * milliseconds longer, because it measures which kernels are the fastest on this machine. */
plumb_status plumb_model_commit(plumb_model *model, size_t n);
/* True once the keys and the tensor directory of the first part are complete, so that the queries below can be used. */
bool plumb_model_has_header(const plumb_model *model);
/* Offset in the current part of the next window's first byte, from which an interrupted download can resume. */
uint64_t plumb_model_position(const plumb_model *model);
/* Builds the vocabulary, which is all that the tokenizer functions need.  It can be called as soon as the header is
 * complete (PLUMB_ERROR_TRUNCATED before), and does nothing if the vocabulary is there already. */
plumb_status plumb_model_load_vocab(plumb_model *model);
/* Ends loading, after the last byte: checks that all bytes have arrived, reads the architecture, binds the weights and
 * builds the vocabulary. */
plumb_status plumb_model_end(plumb_model *model);

/* Metadata: the keys of the first part, 0 .. plumb_model_n_key - 1.  Strings are valid as long as the model.
 * plumb_model_find_key returns -1 if there is no such key; plumb_model_key_name and plumb_model_key_type return NULL if
 * there is no key i. */
uint64_t plumb_model_n_key(const plumb_model *model);
int64_t plumb_model_find_key(const plumb_model *model, const char *key);
const char *plumb_model_key_name(const plumb_model *model, uint64_t i);
/* "uint32", "string", "array of string"... */
const char *plumb_model_key_type(const plumb_model *model, uint64_t i);
/* The number of elements of an array, or 1 for a scalar. */
uint64_t plumb_model_key_count(const plumb_model *model, uint64_t i);
/* Writes element j of key i to buf as text: numbers in decimal, bools as true or false, strings as their bytes, which
 * may have any values.  Writes at most cap bytes, including a final 0, and returns the full length without the 0. */
size_t plumb_model_key_value(const plumb_model *model, uint64_t i, uint64_t j, char *buf, size_t cap);

/* The tensor directory: the tensors of all parts whose headers have been read. */
typedef struct plumb_tensor {
    const char *name;
    const char *type;      /* "F32", "Q4_K"... */
    uint32_t n_dims;       /* 1..4 */
    uint64_t shape[4];     /* fastest dimension first; unused ones are 1 */
    uint64_t offset;       /* of its first byte, from the start of its GGUF file */
    uint64_t n_bytes;
} plumb_tensor;
uint64_t plumb_model_n_tensor(const plumb_model *model);
/* PLUMB_ERROR_ARGUMENT if there is no tensor i. */
plumb_status plumb_model_tensor(const plumb_model *model, uint64_t i, plumb_tensor *out);

/* How one vector is made of the embeddings of all tokens, with the numbers of the key pooling_type. */
typedef enum plumb_pooling {
    PLUMB_POOLING_MODEL = -1,  /* as the file says, or NONE if it says nothing */
    PLUMB_POOLING_NONE = 0,    /* it is not made: each token has a vector */
    PLUMB_POOLING_MEAN = 1,    /* their mean */
    PLUMB_POOLING_CLS = 2,     /* that of the first token */
    PLUMB_POOLING_LAST = 3,    /* that of the last token */
    PLUMB_POOLING_RANK = 4     /* the numbers of a classifier, such as the score of a reranker */
} plumb_pooling;

/* Properties of a loaded model. */
typedef struct plumb_model_info {
    const char *architecture;  /* general.architecture */
    uint64_t n_param;          /* elements of all tensors together */
    uint64_t weight_bytes;     /* bytes of all tensors together */
    uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab, n_ctx_train;
    bool has_logits;           /* false: the model only computes embeddings, for plumb_session_embed */
    bool has_encoder;          /* true: a text is encoded (plumb_session_encode), and then a decoder is fed; layers
                                * counts those of both, with two for each block of the decoder */
    int32_t decoder_start;     /* the first token of what the decoder is fed; -1 without an encoder */
    plumb_pooling pooling;     /* as the file says */
    uint32_t n_pooled;         /* elements of a vector that this pooling gives; 0 if the model lacks the classifier */
} plumb_model_info;
/* PLUMB_ERROR_STATE before plumb_model_end or plumb_model_rehearse has succeeded. */
plumb_status plumb_model_get_info(const plumb_model *model, plumb_model_info *out);

/* ---- trying out a model without its weights ---------------------------------------------------------------------- */

/* Makes the model read headers only: *len of a window is 0 once the header of its file is complete, and the next part
 * is then another file.  Must be called before the first plumb_model_begin. */
plumb_status plumb_model_headers_only(plumb_model *model);
/* Replaces plumb_model_end after plumb_model_headers_only, and makes all of its checks that need no weights.  Sessions
 * on the model take as much memory as they would with the real weights, and run at the same speed, but every weight is
 * zero.  The weights share a buffer of *n_bytes: at most 64 MiB, or the size of the largest tensor if that is more.
 * *n_bytes is 0 if the buffer would take more than 512 MiB or cannot be allocated; feeding a session then returns
 * PLUMB_ERROR_STATE.  plumb_diagnose always returns PLUMB_ERROR_STATE on such a model. */
plumb_status plumb_model_rehearse(plumb_model *model, uint32_t *n_bytes);

/* ---- tokenizer ------------------------------------------------------------------------------------------------ */

enum plumb_token_flags {
    PLUMB_ADD_SPECIAL = 1,    /* add BOS and EOS if the file's add_bos_token and add_eos_token ask for them */
    PLUMB_PARSE_SPECIAL = 2,  /* turn the text of a special token into that token; otherwise it is plain text */
    PLUMB_CONTINUES = 4,      /* the text continues another one, so add_space_prefix puts no space before it (of the
                               * vocabularies of models that generate; t5's always has it) */
};

/* These functions need plumb_model_load_vocab or plumb_model_end.
 *
 * Writes the token ids of len bytes of text to ids, the first cap of them, and returns how many there are.  The text
 * may have any bytes; invalid UTF-8 is tokenized as in llama.cpp.  Returns a negative plumb_status on failure. */
int64_t plumb_tokenize(plumb_model *model, const char *text, size_t len, unsigned flags, int32_t *ids, size_t cap);
/* As plumb_tokenize, for a prompt that was made of texts of users.  marks: len bytes; where one is not 0, that byte of
 * the text is part of no control token, whatever the flags, also where it and its neighbours spell one.  Of
 * what PLUMB_ADD_SPECIAL adds there is only BOS, if the prompt does not begin with it: no EOS, because the chat goes
 * on.  marks NULL: as plumb_tokenize. */
int64_t plumb_tokenize_marked(plumb_model *model, const char *text, const uint8_t *marks, size_t len, unsigned flags,
                              int32_t *ids, size_t cap);
/* Writes the tokens of which plumb_session_embed makes the embedding of a text.  With query NULL they are those of
 * plumb_tokenize with PLUMB_ADD_SPECIAL and flags.  Otherwise they are those of a query and a text, for a reranker: as
 * in llama.cpp's server the file's tokenizer.chat_template.rerank says how the two are joined, or they are
 * BOS query EOS SEP text EOS, where the file says which of these tokens there are.
 * With a query, flags are not used: only the file's rerank template can write special tokens such as <|im_end|>.
 * n_max: if there are more tokens, the last ones of the text are left out, but not what follows the text; 0: no limit.
 * PLUMB_ERROR_CONTEXT if there is no room for any token of the text, PLUMB_ERROR_TOKENIZER if the vocabulary lacks a
 * token that the file asks for.  The result is as for plumb_tokenize. */
int64_t plumb_tokenize_input(plumb_model *model, const char *query, size_t n_query, const char *text, size_t n_text,
                             unsigned flags, size_t n_max, int32_t *ids, size_t cap);
/* Writes the bytes of one token to buf, at most cap and without a final 0, and returns their full number.  If special
 * is false, control tokens such as <|im_end|> have no bytes.  Returns a negative plumb_status on failure. */
int64_t plumb_token_piece(const plumb_model *model, int32_t id, bool special, char *buf, size_t cap);
/* Writes the text of n tokens to buf, as llama.cpp's llama_detokenize does: it joins the pieces and removes the space
 * that add_space_prefix puts in front.  special, buf, cap and the result are as for plumb_token_piece. */
int64_t plumb_detokenize(const plumb_model *model, const int32_t *ids, size_t n, bool special, char *buf, size_t cap);
/* The number of tokens in the vocabulary, or 0 before it is loaded. */
uint32_t plumb_model_n_vocab(const plumb_model *model);
/* The ids of BOS and EOS, or -1 if the vocabulary has none. */
int32_t plumb_token_bos(const plumb_model *model);
int32_t plumb_token_eos(const plumb_model *model);
/* True if the token ends a turn: EOS, EOT, EOM, and tokens with texts that are known to mean the same. */
bool plumb_token_is_eog(const plumb_model *model, int32_t id);

/* Uses a chat template of n bytes, a Jinja program, instead of the file's; "chatml" is ChatML.  It is copied. */
plumb_status plumb_chat_use_template(plumb_model *model, const char *source, size_t n);
/* Whether the file has a chat template, or one was given.  Otherwise the chats of plumb_chat_render are in ChatML, as
 * in llama.cpp. */
bool plumb_chat_has_template(const plumb_model *model);
/* Makes the prompt of a chat with the model's chat template, a Jinja program in the file; limits keep it from taking
 * long or much memory.  json: n bytes, an object with the variables of the template: "messages", an array of objects as
 * in OpenAI's API, and perhaps "add_generation_prompt" (true opens the assistant's turn), "tools" (an array, or its
 * JSON text) and others that the template knows, such as "enable_thinking".  With "continue_final_message" (true, or
 * "content" or "reasoning_content") the prompt ends with the text of the last message, which is the assistant's, so
 * that the model goes on with it, as in transformers: true stands for the content if there is some, or else the
 * reasoning.  Messages are adapted to what the template accepts, as llama.cpp's server does; a system message describes
 * tools if the template does not.  The prompt is to be tokenized by plumb_tokenize_marked with these marks, which all
 * bytes have that come from json (but roles), and with PLUMB_ADD_SPECIAL and PLUMB_PARSE_SPECIAL.
 * Returns its length, or a negative plumb_status on failure: PLUMB_ERROR_ARGUMENT if json is not such an object,
 * PLUMB_ERROR_TEMPLATE if there is none and the model has an encoder, or if the template fails, refuses the chat or
 * reaches a limit.  Dates are those of the C library's localtime, so only one thread may be in this function at a time.
 * *prompt ends with a 0; it and *marks are valid until the next call of this function or plumb_model_free.  Needs
 * plumb_model_load_vocab or plumb_model_end. */
int64_t plumb_chat_render(plumb_model *model, const char *json, size_t n, const char **prompt, const uint8_t **marks);
/* A text that ends an answer to such a prompt, besides the tokens for which plumb_token_is_eog is true; NULL if there
 * is none.  llama.cpp's server has one for a few families of models, which it knows by their templates. */
const char *plumb_chat_stop(const plumb_model *model);

/* Returns the length in bytes of the UTF-8 character at the beginning of a text of n > 0 bytes, and sets *cp to it; 0
 * if no character begins there. */
size_t plumb_character(const char *text, size_t n, uint32_t *cp);
/* Whether a character of a file can be printed as it is.  Control characters (U+0000 to U+001F, U+007F to U+009F),
 * those that change the order of a text (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069) and ends of lines
 * (U+2028, U+2029) cannot: a terminal would do what they say. */
bool plumb_is_plain(uint32_t cp);
/* Replaces the bytes of characters that are not plain, and those of no character, by "?".  text ends with a 0. */
void plumb_make_plain(char *text);

/* Joins the pieces of tokens to text in whole UTF-8 characters.  If a piece ends inside a character, the bytes of that
 * character are held back until it is complete.  Bytes that cannot be part of a character become U+FFFD.
 * Zero-initialize it before the first push. */
typedef struct plumb_text {
    uint8_t held[4];
    uint8_t n_held;
} plumb_text;
/* Appends a piece of n bytes to the bytes held back, writes the characters that are now complete to buf, and returns
 * their length in bytes, at most n * 3 + 12.  At most cap bytes are written; characters that do not fit are lost. */
size_t plumb_text_push(plumb_text *text, const char *piece, size_t n, char *buf, size_t cap);
/* To be called at the end: if bytes are still held back, writes U+FFFD in their place.  Returns its length, 3, or 0. */
size_t plumb_text_flush(plumb_text *text, char *buf, size_t cap);

/* ---- session: the forward pass over a KV cache ------------------------------------------------------------------ */

typedef struct plumb_session plumb_session;

/* Which pass computes: the fast one, with kernels on quantized weights, or PLUMB_PASS_REFERENCE of plumb_truth.h. */
typedef const struct plumb_pass_functions *plumb_pass;
#define PLUMB_PASS_FAST NULL

/* How the fast pass stores K and V.  I16 has one scale for the K and one for the V of every head and position.  Q8_0
 * and Q4_0 are ggml's types, with the same codes and scales: a scale of 16 bits for each 32 elements of a head.  They
 * need heads whose lengths are multiples of 32, which are multiplied by a Walsh-Hadamard matrix before they are
 * rounded, as in llama.cpp. */
typedef enum plumb_kv_type {
    PLUMB_KV_I16 = 0,   /* 16-bit codes: half the memory of f32, nearly the same results, and the fastest */
    PLUMB_KV_Q8_0 = 1,  /* 8-bit codes: 0.53 times the memory of I16 */
    PLUMB_KV_Q4_0 = 2,  /* 4-bit codes: 0.28 times the memory of I16, but less precise than anything else in the pass */
    PLUMB_KV_F32 = 3,   /* unrounded; slow */
} plumb_kv_type;
/* "i16", "q8_0", "q4_0", "f32"; NULL for any other number. */
const char *plumb_kv_type_name(plumb_kv_type type);
/* How many tokens a session holds by default: the model's training context, or as many tokens as have K and V of
 * PLUMB_DEFAULT_KV_BYTES if that is less, but at least PLUMB_LEAST_CTX of the training context.  If that is shorter
 * than the training context, it is at most the original context of a model with long and short factors of RoPE.  A
 * model whose tokens see later ones has at most 2,048.  It depends on nothing but the file and the type.
 * 0 before plumb_model_end or plumb_model_rehearse. */
uint32_t plumb_model_default_ctx(const plumb_model *model, plumb_kv_type type);
/* PLUMB_ERROR_UNSUPPORTED if a session cannot have this type, because the model's heads do not fit it.  It is known
 * from the header on; before it is complete, and if its keys do not describe a model, the result is PLUMB_OK. */
plumb_status plumb_model_check_kv(plumb_model *model, plumb_kv_type type);
/* The bytes that the K and V of a session take, and the states of recurrent layers with their snapshots (n_ctx, n_batch
 * and n_snapshot: as in plumb_session_params, but n_ctx 0 is the fewest tokens that a session has by default).  Returns
 * 0 if the header is not complete or its keys do not describe a model. */
double plumb_model_kv_bytes(const plumb_model *model, uint32_t n_ctx, uint32_t n_batch, plumb_kv_type type,
                            uint32_t n_snapshot);

/* To how many bits the fast pass rounds activations, in blocks of 32, before it multiplies them with quantized weights.
 * The same precision gives the same bits on every host and with all kernels, and only the caller chooses it. */
typedef enum plumb_precision {
    PLUMB_PRECISION_EXACT16 = 0,  /* 16 bits */
    PLUMB_PRECISION_FAST8 = 1,    /* 8 bits, as in llama.cpp, for Q4, Q5 and Q6 weights and for weights that share their
                                   * input; 16 bits for all others.  Faster on some CPUs only; the text is different */
} plumb_precision;
/* "exact16", "fast8"; NULL for any other number. */
const char *plumb_precision_name(plumb_precision precision);

/* The largest values in plumb_session_params; tools/tables.mjs copies them for JavaScript.  No machine has the memory
 * for more: even with a small model a context of 2^24 tokens takes 100 GB. */
enum { PLUMB_MAX_CTX = 16777216, PLUMB_MAX_BATCH = 65536, PLUMB_MAX_THREADS = 64, PLUMB_MAX_SNAPSHOTS = 64 };
/* The most bytes of K and V (plumb_model_kv_bytes) that a session has by default, and the tokens below which this does
 * not shorten a context. */
enum { PLUMB_DEFAULT_KV_BYTES = 512 << 20, PLUMB_LEAST_CTX = 1024 };

typedef struct plumb_session_params {
    uint32_t n_ctx;    /* tokens that the KV cache holds; 0: plumb_model_default_ctx.  If there is no memory for the
                        * default, it is halved, to PLUMB_LEAST_CTX at least */
    uint32_t n_batch;  /* tokens of a prompt that are computed at once; reduced to n_ctx; 0: 256 if the model has
                        * experts, else 128, or 64 if its embeddings are wider than 1024.  It is always n_ctx if tokens
                        * attend to later ones. */
    plumb_pass pass;
    plumb_kv_type kv_type;
    bool force_scalar; /* use only the portable kernels in the fast pass; tests compare SIMD kernels with them */
    uint32_t n_thread; /* threads of the fast pass, including the caller's; results do not depend on it.  0: one
                        * for each processor that the process may use, or in WebAssembly as many as the host has
                        * made ready (plumb_threads_ready) */
    plumb_precision precision;
    uint32_t n_snapshot;   /* copies of the states of recurrent layers that are kept, to go back to: after each prompt,
                        * and after every 64 tokens of an answer; 2 to PLUMB_MAX_SNAPSHOTS.  0: as many as fit into
                        * 64 MiB, but 2 to 16 */
    bool grows;        /* K and V are allocated when tokens need them, so that feeding the session may fail with
                        * PLUMB_ERROR_MEMORY; it then is as it was before the batch that did not fit */
    plumb_session *beside;  /* NULL, or a session of the same model, which may be freed first: both share threads and
                             * scratch, if their params without n_ctx are the same, n_batch is not larger, and both
                             * n_ctx have the same factors of RoPE; a model with an encoder needs an n_ctx that is not
                             * larger */
} plumb_session_params;

/* Creates a session on a loaded model, which must outlive it.  params may be NULL, which is the same as all zeros.
 * PLUMB_ERROR_ARGUMENT if a value is out of range, PLUMB_ERROR_MEMORY if the context does not fit into memory,
 * PLUMB_ERROR_UNSUPPORTED if kv_type cannot store the model's heads.  On
 * failure *out is NULL and plumb_model_error(model) has the message. */
plumb_status plumb_session_create(plumb_session **out, plumb_model *model, const plumb_session_params *params);
void plumb_session_free(plumb_session *session);
/* The message of the last failure, or "" if there was none. */
const char *plumb_session_error(const plumb_session *session);
/* The context and the batch size that are in use. */
uint32_t plumb_session_n_ctx(const plumb_session *session);
uint32_t plumb_session_n_batch(const plumb_session *session);
/* Whether the context is longer than what the model was trained for.  False if no layer has attention: states know of
 * no positions. */
bool plumb_session_exceeds_training(const plumb_session *session);
/* Bytes that the session has allocated: the KV cache, scratch memory, tokens, also those that were dropped
 * (plumb_session_set_shift), and logits. */
uint64_t plumb_session_bytes(const plumb_session *session);
/* The kernels in use: "simd128" (natively "sse41"), "relaxed" or "scalar"; "reference" for the reference pass. */
const char *plumb_session_kernels(const plumb_session *session);
/* The precision in use.  It is EXACT16 for the reference pass, which does not round activations at all. */
plumb_precision plumb_session_precision(const plumb_session *session);
/* The number of threads in use: at most as many as requested, and fewer if they cannot be started. */
uint32_t plumb_session_n_thread(const plumb_session *session);

/* The number of tokens in the cache, and their ids in order.  The pointer is valid as long as the session. */
uint32_t plumb_session_n_past(const plumb_session *session);
const int32_t *plumb_session_tokens(const plumb_session *session);

/* A session must not be used from its own callbacks (on_tap, on_logits, and those of save and restore).  There, all
 * functions that would change it return PLUMB_ERROR_STATE, and plumb_session_reuse changes nothing. */

/* If a layer attends only to a window of the latest tokens, the fast pass keeps the K and V of that window there, and
 * enough older ones that the last 480 tokens can be forgotten.  If more are forgotten, those before them may have to be
 * computed again, which gives the same results.  plumb_session_rewind does that itself.  plumb_session_reuse leaves it
 * to the caller, who can feed them in pieces and stop in between. */

/* Lets the encoder of a model that has one beside a decoder (plumb_model_info.has_encoder), such as T5, read a text of
 * n tokens, at most n_ctx and at least one.  The decoder then writes about this text: the session forgets the tokens
 * that it was fed, and the next ones begin with decoder_start.  The same text as before changes nothing, unless there
 * is a tap.  PLUMB_ERROR_UNSUPPORTED if the model has no such encoder; the other errors are those of
 * plumb_session_feed, which itself returns PLUMB_ERROR_STATE as long as there is no text.  plumb_session_embed and
 * plumb_session_set_adapters forget the text. */
plumb_status plumb_session_encode(plumb_session *session, const int32_t *ids, size_t n);
/* The number of tokens of the encoder's text; 0: there is none. */
uint32_t plumb_session_n_encoded(const plumb_session *session);

/* Keeps the longest common prefix of the cache and the n ids, and forgets all tokens after it.  Returns how many tokens
 * are kept, none if the prefix must be computed again; the caller then feeds the other ids.  The last id is never part
 * of the prefix, so that feeding it computes its logits. */
uint32_t plumb_session_reuse(plumb_session *session, const int32_t *ids, size_t n);
/* Keeps the first n_past tokens and forgets the others.  PLUMB_ERROR_ARGUMENT if there are fewer.  Tokens that must be
 * computed again take as long as in plumb_session_feed, and taps show them. */
plumb_status plumb_session_rewind(plumb_session *session, uint32_t n_past);
/* Computes n more tokens, in batches of n_batch, and the logits after the last of them.  With n = 1 this is one step of
 * decoding, which allocates nothing but the list of dropped tokens.  Nothing is computed on failure:
 * PLUMB_ERROR_CONTEXT if n_past + n > n_ctx, unless plumb_session_set_shift was called, PLUMB_ERROR_TOKEN if an id is
 * not in the vocabulary, PLUMB_ERROR_UNSUPPORTED if the model computes no logits. */
plumb_status plumb_session_feed(plumb_session *session, const int32_t *ids, size_t n);
/* Like plumb_session_feed, but computes the logits after every token, for on_logits or for taps.  If on_logits is not
 * NULL, it is called for each position pos with its logits: (n_vocab) f32, valid during that call.  Without on_logits
 * a model that computes no logits can be fed too, for its taps. */
plumb_status plumb_session_feed_all(plumb_session *session, const int32_t *ids, size_t n,
                                    void (*on_logits)(void *user, uint32_t pos, const float *logits), void *user);
/* Makes a full context no error: the session then drops tokens and goes on.  The first n_keep stay, and of the others
 * the older half is dropped.  What remains moves to the places behind the first ones: K is rotated back by as many
 * positions, and rounded again, while V and states of recurrent layers stay as they are (Xiao et al. 2024, "Efficient
 * Streaming Language Models with Attention Sinks"; llama.cpp calls it context shift).  So the tokens that remain still
 * know of those that were dropped, unlike tokens that are fed anew, and texts have no end.
 *
 * What a session holds depends on n_keep and on all tokens that were fed to it, but not on its batches.
 * plumb_session_reuse compares ids with all of them: it returns how many are kept, those that were dropped included, so
 * that the same feeds make the same bits.  plumb_session_rewind, plumb_session_n_past and plumb_session_tokens count
 * the tokens that are in the cache.  Going back behind the last drop means to begin again with the first n_keep tokens;
 * so does going back by more than a window's 480 tokens, or the snapshots of a recurrent layer, if any were dropped.
 *
 * n_keep: 0, as at first: a full context is an error.  If tokens were dropped, a change forgets all but those that
 * never moved.  PLUMB_ERROR_ARGUMENT if n_keep is more than half of the context, or the context is shorter than
 * PLUMB_LEAST_SHIFT_CTX.  PLUMB_ERROR_UNSUPPORTED if tokens cannot move: positions are learned embeddings, keys are
 * normalized after RoPE, tokens attend to later ones, or in the reference pass. */
enum { PLUMB_LEAST_SHIFT_CTX = 128 };
plumb_status plumb_session_set_shift(plumb_session *session, uint32_t n_keep);
/* Its n_keep, and how many tokens were dropped behind the first n_keep. */
uint32_t plumb_session_n_keep(const plumb_session *session);
uint32_t plumb_session_n_dropped(const plumb_session *session);
/* Makes a session beside `from` that holds what it holds, with the same params; it grows.  Both share K, V and
 * snapshots until one of them changes, so that a fork takes little time and memory; from now on `from` grows, too
 * (plumb_session_params).  Free it with plumb_session_free.
 * PLUMB_ERROR_UNSUPPORTED in the reference pass, PLUMB_ERROR_MEMORY; *out is then NULL, and plumb_session_error(from)
 * has the message. */
plumb_status plumb_session_fork(plumb_session **out, plumb_session *from);
/* Returns how many tokens at the beginning of ids plumb_session_adopt can take from another session, as
 * plumb_session_reuse counts them, or plumb_session_reuse would keep if from is the session itself.  0 if the sessions
 * do not share their pass (plumb_session_params.beside), or differ in n_ctx, n_batch or adapters, if `from` has dropped
 * tokens, or if the model has an encoder.  Changes nothing. */
uint32_t plumb_session_common(const plumb_session *session, const plumb_session *from, const int32_t *ids, size_t n);
/* Forgets what the session holds, and takes the first n_past tokens of `from` with what was computed for them, as
 * plumb_session_fork does; from now on it grows.  n_past: what plumb_session_common has returned, else
 * PLUMB_ERROR_ARGUMENT. */
plumb_status plumb_session_adopt(plumb_session *session, const plumb_session *from, uint32_t n_past);

/* Whether plumb_sessions_feed takes both sessions: they share their pass and use the same adapters. */
bool plumb_session_joins(const plumb_session *session, const plumb_session *other);
/* Tokens for one of several sessions. */
typedef struct plumb_feed {
    plumb_session *session;
    const int32_t *ids;   /* (n), n > 0 */
    size_t n;
    bool wants_logits;    /* after the last token */
    size_t n_done;        /* written: how many tokens were computed; n unless there is an error */
} plumb_feed;
/* Does what plumb_session_feed does for each of several sessions that share their pass, but multiplies the tokens of
 * all of them with a matrix at once.  The bits of each are those that it computes alone.  If one of them cannot be fed,
 * *failed is its index, plumb_session_error has the message, and nothing is computed; after PLUMB_ERROR_MEMORY some
 * batches may have been (n_done).  PLUMB_ERROR_ARGUMENT if sessions do not share their pass, use
 * different adapters, have a tap, or if one of them comes twice. */
plumb_status plumb_sessions_feed(plumb_feed *feeds, size_t n_feed, size_t *failed);

/* Speculation: a step of decoding may compute more tokens than it is fed, those that are likely to follow, because a
 * pass of several tokens takes less time than as many passes of one.  If the caller then feeds these tokens, there is
 * nothing to compute.  The bits of logits are those of single steps, so the caller draws each token from them as ever,
 * and no answer depends on it.  Except for the time that calls take, and for memory, nothing shows it: positions,
 * tokens and saved sessions are those that were fed.  (Of a window, up to 32 older positions fewer are kept, so that
 * going far back may compute more again.)
 * Sessions of models with recurrent layers, of models that are not causal and of the reference pass do not speculate;
 * nor does a session while it has a tap. */
enum { PLUMB_MAX_DRAFT = 15 };
typedef struct plumb_speculation {
    bool lookup;        /* prompt lookup: what followed the last tokens before, in what the session holds */
    uint32_t n_least;   /* tokens of a draft at least, if there is one: 0 leaves it to what passes cost here */
    uint32_t n_most;    /* tokens of a draft at most, up to PLUMB_MAX_DRAFT; 0: that */
    plumb_session *draft;   /* NULL, or a session of a smaller model with the same vocabulary: where lookup has no
                             * draft, that model writes one, greedily.  It is fed what this session is fed, by its
                             * feeds.  Nothing else may use it, and it must outlive this session or the next call */
} plumb_speculation;
/* Sets how the session speculates; NULL: not at all, as at first.  PLUMB_ERROR_ARGUMENT if a number is out of range or
 * the vocabularies differ, PLUMB_ERROR_MEMORY. */
plumb_status plumb_session_speculate(plumb_session *session, const plumb_speculation *how);
/* How many tokens were computed in drafts, and how many of those were then fed. */
uint64_t plumb_session_n_drafted(const plumb_session *session);
uint64_t plumb_session_n_accepted(const plumb_session *session);
/* Of n ids, how many of the first ones are computed already: feeding them takes no time. */
size_t plumb_session_n_ahead(const plumb_session *session, const int32_t *ids, size_t n);
/* Computes embeddings of texts: one vector for each, or one for each token with PLUMB_POOLING_NONE.  ids has the tokens
 * of the texts one after the other, and lengths (n_text) their numbers, 1 or more.  A call computes the first texts, as
 * many as are fast to compute at once (one if there is a tap), and returns how many, or a negative plumb_status; the
 * caller goes on with the others.  Vectors are not normalized.  Their bits do not depend on the other texts.  The
 * session is empty afterwards.  The errors are those of plumb_session_feed; PLUMB_ERROR_ARGUMENT if n_text or a length
 * is 0; PLUMB_ERROR_UNSUPPORTED if the model does not have this kind of pooling. */
int64_t plumb_session_embed(plumb_session *session, const int32_t *ids, const uint32_t *lengths, size_t n_text,
                            plumb_pooling pooling);
/* What the last plumb_session_embed has computed: (*n_vector, *n) f32, valid until the next one.  NULL if there was
 * none, or if it failed. */
const float *plumb_session_embedding(const plumb_session *session, uint32_t *n_vector, uint32_t *n);
/* The logits after the last token fed: (n_vocab) f32, valid until the next feed.  NULL before the first feed, and after
 * tokens were forgotten until the next feed. */
float *plumb_session_logits(plumb_session *session);

/* A saved session holds its tokens, the logits after the last one, the K and V of their positions, and the states of
 * recurrent layers with their snapshots: all that a session needs to go on with the same bits, on any host, after any
 * rewind too.  It takes about as many bytes as these do in memory (src/engine/api/state.c has the layout).
 *
 * plumb_session_save writes it in pieces.  Both functions need no second copy of it.  Not for the reference pass
 * (PLUMB_ERROR_UNSUPPORTED).  The first one of a model reads all of its weights, for their digest, which takes about as
 * long as a step.  plumb_session_save_bytes returns how many bytes plumb_session_save would write now; 0 if it
 * cannot. */
plumb_status plumb_session_save(plumb_session *session, plumb_write *write, void *user);
uint64_t plumb_session_save_bytes(plumb_session *session);
/* Makes the session the one that was saved, instead of what it holds.  It must have the same model, adapters in use,
 * type of K and V and precision (else PLUMB_ERROR_ARGUMENT), and a context that holds the tokens (PLUMB_ERROR_CONTEXT);
 * n_ctx and n_batch may differ, but of models with long and short factors of RoPE n_ctx must be on the same side of the
 * original context.  The bytes may come from anywhere: PLUMB_ERROR_MAGIC, _VERSION, _TRUNCATED and _METADATA name the
 * place and the numbers.  After PLUMB_ERROR_MAGIC, _VERSION, _ARGUMENT or _CONTEXT the session is as it was.  After
 * other failures it is as it was or, if the head of the file was right, empty. */
plumb_status plumb_session_restore(plumb_session *session, plumb_read *read, void *user);

/* ---- adapters: LoRA and control vectors ------------------------------------------------------------------------- */

/* A file that changes what a model computes, without changing its weights: a LoRA (general.type is adapter), which adds
 * scale * alpha / rank * B (A x) to products of matrices with x (Hu et al. 2021, "LoRA"), or a control vector
 * (general.architecture is controlvector), which adds scale * direction.N to the residual stream at the end of layer N,
 * counted from 0.  Norms in a LoRA are ignored, as in llama.cpp; every matrix that it has is changed, although
 * llama.cpp skips some, such as those of latent attention and RWKV. */
typedef struct plumb_adapter plumb_adapter;

/* Creates an adapter for a loaded model, which must outlive it.  size: bytes of its file, or PLUMB_SIZE_UNKNOWN.  Then
 * plumb_adapter_window and plumb_adapter_commit, which are like those of a model, take its bytes in turn.  On failure
 * *out is NULL and plumb_model_error(model) has the message. */
plumb_status plumb_adapter_create(plumb_adapter **out, plumb_model *model, uint64_t size);
void plumb_adapter_free(plumb_adapter *adapter);
/* The message of the last failure, or "" if there was none. */
const char *plumb_adapter_error(const plumb_adapter *adapter);
plumb_status plumb_adapter_window(plumb_adapter *adapter, void **data, size_t *len);
plumb_status plumb_adapter_commit(plumb_adapter *adapter, size_t n);
/* Ends loading, after the last byte: checks every tensor against the model.  PLUMB_ERROR_TENSOR or _METADATA: it is no
 * adapter, or one for another model; PLUMB_ERROR_UNSUPPORTED: it changes a tensor that no adapter can change. */
plumb_status plumb_adapter_end(plumb_adapter *adapter);
/* True for a control vector, false for a LoRA and before plumb_adapter_end. */
bool plumb_adapter_is_control(const plumb_adapter *adapter);

typedef struct plumb_adapter_use {
    const plumb_adapter *adapter;
    float scale;                       /* 0: as if it were not there */
    uint32_t first_layer, last_layer;  /* of a control vector: the layers that it changes; both 0: all */
} plumb_adapter_use;

/* Makes all later feeds use these n adapters together; 0: none.  They must be of the session's model and ended, and
 * must outlive the session or the next call.  Unless the list is the same as before, the session forgets all tokens,
 * as they were computed with other adapters.  PLUMB_ERROR_ARGUMENT if a scale is not finite or a range of layers ends
 * before it begins; nothing has changed after a failure. */
plumb_status plumb_session_set_adapters(plumb_session *session, const plumb_adapter_use *uses, size_t n);

/* A WebAssembly module that is built with threads cannot start them itself.  Its host instantiates it again in each
 * worker, on the same memory and with a stack of its own, and calls plumb_threads_serve there, with thread = 1, 2...
 * That call computes the worker's share of the main instance's sessions, only one of which may run at a time, and
 * returns after plumb_threads_dismiss.  In the main instance, the host calls
 *   plumb_threads_ready      when threads 1 .. n_thread - 1 have started, or are about to;
 *   plumb_threads_broken     when a worker has trapped: a feed that waits for it then traps too;
 *   plumb_threads_dismiss    after the last use of a session.
 * On all other hosts these functions do nothing. */
void plumb_threads_ready(uint32_t n_thread);
void plumb_threads_serve(uint32_t thread);
void plumb_threads_broken(void);
void plumb_threads_dismiss(void);

/* ---- taps: every step of a pass ------------------------------------------------------------------------------- */

/* A tap: the result of one named step for one batch.  Names are llama.cpp's: embd; then for each layer attn_norm, Qcur,
 * Kcur, Vcur, Qcur_rope, Kcur_rope (llama.cpp names these two Qcur and Kcur again), kq_soft_max, kqv_out, attn_out,
 * ffn_inp, ffn_norm, ffn_gate, ffn_up, ffn_swiglu, ffn_out, l_out; then result_norm and result_output, which have only
 * the tokens whose logits are computed, or result_embd_pooled for an embedding.  Models that have such norms also show
 * Qcur_normed, Kcur_normed, attn_post_norm and ffn_post_norm; steps that a model lacks do not appear. */
typedef struct plumb_tap {
    const char *name;
    int32_t layer;         /* from 0 on; -1 for embd and the results */
    uint32_t pos;          /* position of the first token */
    uint32_t n_token;
    uint32_t n_head;       /* heads, or 1 */
    uint32_t n;            /* elements per token and head.  For kq_soft_max these are the keys 0 .. n - 1; keys that
                            * the token does not see are 0 */
    const float *data;     /* (n_token, n_head, n) f32, valid during the call */
} plumb_tap;

/* Makes all later feeds call on_tap after every step, in the order of the computation; NULL stops that.  Without
 * on_tap, taps cost one branch per step.  PLUMB_ERROR_MEMORY if there is no memory for the attention weights of a
 * batch. */
plumb_status plumb_session_set_tap(plumb_session *session, void (*on_tap)(void *user, const plumb_tap *tap),
                                   void *user);

/* ---- log-probabilities ------------------------------------------------------------------------------------------- */

/* Writes the ids of the k largest of (n_vocab) logits to ids, (k), the largest first; of equal logits the lower id
 * comes first.  NaN and -infinity are left out, and missing ids are -1.  Returns the natural logarithm of the sum of
 * exp(logit) over all tokens: a logit minus this sum is the log-probability of its token. */
double plumb_logits_top(const float *logits, uint32_t n_vocab, uint32_t k, int32_t *ids);

/* ---- sampler: logits -> token, pure ------------------------------------------------------------------------------ */

typedef struct plumb_logit_bias {
    int32_t token;
    float bias;   /* added to the logit; -INFINITY forbids the token */
} plumb_logit_bias;

/* The parameters of sampling.  The steps are applied in this order: logit bias, penalties, top-k, typical, top-p,
 * min-p, temperature, draw.
 *
 * This table is the only place that has their types, ranges, defaults and names: the struct below, the sampler's checks
 * and the command line are made of it here, and tools/tables.mjs makes JavaScript's of it, with the chat page's
 * settings and the reference.  JavaScript calls top_k topK, and OpenAI's API calls it top_k, as here.
 *
 * type and name, the least and the largest value, the default, the range of OpenAI's API where it is narrower, the
 * option of the command line, its label on the chat page (NULL: not there), the step of its arrows, a hint, a sentence
 * in which X or N is the value. */
#define PLUMB_SAMPLING_TABLE(ROW) \
    ROW(float, temperature, 0, 1e6, 0.8, (0, 2), "--temp", "Temperature", 0.05, "0: always the likeliest", \
        "temperature, 0 is greedy") \
    ROW(uint32_t, top_k, 0, 2147483647, 40, (), "--top-k", "Top k", 1, "0: off", \
        "keep the N likeliest tokens, 0 is off") \
    ROW(float, top_p, 0, 1, 0.95, (), "--top-p", "Top p", 0.01, "1: off", \
        "keep the likeliest tokens whose probabilities add up to X, 1 is off") \
    ROW(float, min_p, 0, 1, 0.05, (), "--min-p", "Min p", 0.01, "0: off", \
        "keep tokens at least X times as likely as the likeliest, 0 is off") \
    ROW(float, typical_p, 0, 1, 1, (), "--typical", "Typical p", 0.01, "1: off", \
        "locally typical sampling, 1 is off") \
    ROW(float, repeat_penalty, 1e-6, 1e6, 1, (), "--repeat-penalty", "Repetition", 0.05, "1: off", \
        "divide the logits of recent tokens, 1 is off") \
    ROW(float, presence_penalty, -1e6, 1e6, 0, (-2, 2), "--presence-penalty", "Presence", 0.1, "0: off", \
        "subtract from the logits of recent tokens") \
    ROW(float, frequency_penalty, -1e6, 1e6, 0, (-2, 2), "--frequency-penalty", "Frequency", 0.1, "0: off", \
        "the same, once for each occurrence") \
    ROW(uint32_t, penalty_last_n, 0, 16777216, 64, (), "--repeat-last-n", NULL, 1, NULL, \
        "how many tokens the penalties look at")

typedef struct plumb_sampling {
#define PLUMB_FIELD(type, name, ...) type name;
    PLUMB_SAMPLING_TABLE(PLUMB_FIELD)
#undef PLUMB_FIELD
    uint32_t n_bias;
    const plumb_logit_bias *bias;
    uint64_t seed;
} plumb_sampling;
/* The defaults of the table, no bias, seed 0. */
plumb_sampling plumb_sampling_default(void);

typedef struct plumb_sampler plumb_sampler;

/* Copies params.  PLUMB_ERROR_ARGUMENT if a value is NaN or out of its range.  reason may be NULL; otherwise *reason
 * becomes a message, "" on success, that need not be freed. */
plumb_status plumb_sampler_create(plumb_sampler **out, uint32_t n_vocab, const plumb_sampling *params,
                                  const char **reason);
void plumb_sampler_free(plumb_sampler *sampler);
/* Counts a token of the text, prompt or answer, for the penalties.  Ids outside the vocabulary are ignored. */
void plumb_sampler_accept(plumb_sampler *sampler, int32_t token);
/* Returns the next token.  logits: (n_vocab) f32, which are not changed.  With the same seed, the same calls and the
 * same logits, every host draws the same tokens.  Tokens with logits of NaN or -infinity are never chosen; if there are
 * no others, the result is -1.  Of equal logits the lower id ranks first.  Allocates nothing. */
int32_t plumb_sampler_sample(plumb_sampler *sampler, const float *logits);
/* The same, but only tokens whose bit is set in `allowed` can be chosen: bit id % 32 of word id / 32, as in
 * plumb_matcher_mask.  All steps see only these tokens, so probabilities are shares of what is allowed.  allowed may be
 * NULL: all. */
int32_t plumb_sampler_sample_allowed(plumb_sampler *sampler, const float *logits, const uint32_t *allowed);

/* ---- grammars: what an answer may be ---------------------------------------------------------------------------- */

/* A compiled grammar.  It can be used for any number of answers, one after the other or at the same time. */
typedef struct plumb_grammar plumb_grammar;

/* model: its vocabulary must be loaded, and it must outlive the grammar.  NULL: the grammar matches texts, but no
 * tokens.  Returns NULL if out of memory.  Only one thread at a time may create and parse grammars of the same model,
 * as the first one sorts its vocabulary.  Then they are independent of each other. */
plumb_grammar *plumb_grammar_create(plumb_model *model);
void plumb_grammar_free(plumb_grammar *grammar);
/* The message of the last failure of the grammar or one of its matchers, or "" if there was none. */
const char *plumb_grammar_error(const plumb_grammar *grammar);
/* Compiles n bytes of GBNF, llama.cpp's language of grammars (src/answers/grammar/README.md).  A plumb_grammar is
 * parsed once.  PLUMB_ERROR_ARGUMENT: the text has a mistake, with line and column, or left recursion, with its cycle;
 * PLUMB_ERROR_UNSUPPORTED: it is too large. */
plumb_status plumb_grammar_parse(plumb_grammar *grammar, const char *gbnf, size_t n);
/* The same with a regular expression of ECMA-262, which the whole text must match.  PLUMB_ERROR_UNSUPPORTED names what
 * is not regular. */
plumb_status plumb_grammar_parse_regex(plumb_grammar *grammar, const char *regex, size_t n);

/* White space in JSON: none; as JSON.stringify(value, null, 2) writes; or, where JSON allows it, at most one space, or
 * one line end with at most 20 spaces or tabs. */
typedef enum plumb_json_space { PLUMB_JSON_COMPACT, PLUMB_JSON_PRETTY, PLUMB_JSON_FREE } plumb_json_space;

/* All zero is the default. */
typedef struct plumb_schema_options {
    bool lenient;     /* a keyword that cannot be kept is ignored with a warning; otherwise it is an error */
    bool any_order;   /* the members of objects in any order; otherwise in the order of the schema */
    bool closed;      /* an object whose schema has properties and says nothing on others has no others */
    plumb_json_space space;
} plumb_schema_options;

/* The same with a JSON Schema (2020-12 or draft-07, as text): the grammar's texts are the JSON texts of the values that
 * are valid by it.  options may be NULL.  PLUMB_ERROR_ARGUMENT: it is not a schema, or no value is valid;
 * PLUMB_ERROR_UNSUPPORTED: a keyword cannot be kept.  The message begins with the JSON pointer of the place. */
plumb_status plumb_grammar_parse_schema(plumb_grammar *grammar, const char *json, size_t n,
                                        const plumb_schema_options *options);

/* Rules for a grammar that is not parsed yet: the text of plumb_grammar_parse can use them by their name, of 1 to 32
 * letters and digits, as in
 *
 *   plumb_grammar_define_schema(g, "weather", "{\"type\":\"object\"}", 17, NULL);
 *   plumb_grammar_parse(g, "root ::= \"weather(\" weather \")\"", 31);
 *
 * The names of auxiliary rules begin with the rule's name and "-".  Errors are those of plumb_grammar_parse_regex and
 * _schema, and PLUMB_ERROR_ARGUMENT for a name that is not one, or is defined twice.  Messages and warnings on a schema
 * begin with the name and the JSON pointer: "weather/properties/a: ...". */
plumb_status plumb_grammar_define_regex(plumb_grammar *grammar, const char *rule, const char *regex, size_t n);
plumb_status plumb_grammar_define_schema(plumb_grammar *grammar, const char *rule, const char *json, size_t n,
                                         const plumb_schema_options *options);
/* What was ignored in schemas, one sentence a line; "" if nothing. */
const char *plumb_grammar_warnings(const plumb_grammar *grammar);

/* Writes what can be said of a grammar, a line each: rules that no text of the grammar needs or that derive no text of
 * finite length, and whether a text has two derivations: a shortest one, or up to which length none has.  How far that
 * search goes is bounded.  A token that a token element consumes is compared with other token elements only. */
plumb_status plumb_grammar_check(plumb_grammar *grammar, plumb_write *write, void *user);

/* Follows one text through a grammar.  What it has accepted is a list of parts, each a token or a text. */
typedef struct plumb_matcher plumb_matcher;

/* The grammar must be parsed, and must outlive the matcher. */
plumb_status plumb_matcher_create(plumb_matcher **out, plumb_grammar *grammar);
void plumb_matcher_free(plumb_matcher *matcher);
/* Accepts n tokens, one part each.  PLUMB_ERROR_ARGUMENT if the grammar does not allow one of them; none is accepted
 * then.  Tokens that end a turn are allowed where the grammar may end, and change nothing.  Other control tokens are
 * allowed only where the grammar has token elements. */
plumb_status plumb_matcher_accept(plumb_matcher *matcher, const int32_t *ids, size_t n);
/* Accepts a text as one part; all of it or nothing, as above. */
plumb_status plumb_matcher_accept_text(plumb_matcher *matcher, const char *text, size_t n);
/* The number of accepted parts. */
size_t plumb_matcher_n_part(const plumb_matcher *matcher);
/* Keeps the first n_part parts.  PLUMB_ERROR_ARGUMENT if there are fewer. */
plumb_status plumb_matcher_rewind(plumb_matcher *matcher, size_t n_part);
/* True if what was accepted is a whole text of the grammar. */
bool plumb_matcher_may_end(const plumb_matcher *matcher);
/* The tokens that may follow, as a set for plumb_sampler_sample_allowed, valid until the next call on the grammar or a
 * matcher of it.  NULL on failure: there is no model, or no memory, or the grammar is too ambiguous. */
const uint32_t *plumb_matcher_mask(plumb_matcher *matcher);
/* allowed[b] becomes true if byte b may follow. */
void plumb_matcher_bytes(const plumb_matcher *matcher, bool allowed[256]);
/* Writes the names of the rules that the text is in, with ", " between them, to buf, at most cap bytes.  Returns the
 * length of all, or a negative plumb_status.  The rules that called these are not among them. */
int64_t plumb_matcher_rules(const plumb_matcher *matcher, char *buf, size_t cap);
/* Writes the text that must follow to buf, at most cap bytes: it ends where the grammar may end, where there is a
 * choice, or where a token element may follow.  It can end inside a character.  Returns its length, or a negative
 * plumb_status. */
int64_t plumb_matcher_forced(plumb_matcher *matcher, char *buf, size_t cap);

#ifdef __cplusplus
}
#endif

#endif

/* plumb: GGUF language models in WebAssembly.  The only public header.
 *
 *   bytes -> plumb_model (push loader: header, tensors, vocabulary)
 *         -> plumb_session (KV cache: feed tokens, read logits, rewind)
 *         -> plumb_sampler (logits -> token)
 *         -> plumb_text (tokens -> whole UTF-8 characters)
 *
 * Every function that can fail returns a plumb_status; the object it was called on keeps one sentence
 * (plumb_model_error, plumb_session_error) with the place and the numbers.  Nothing here prints, exits or aborts.
 * A model is immutable once loaded; sessions on it are independent.  No object may be used by two threads at once.
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

/* 0 is success, failures are negative, in families of ten. */
typedef enum plumb_status {
    PLUMB_OK = 0,
    /* the caller */
    PLUMB_ERROR_ARGUMENT = -1,      /* a parameter is out of its documented range */
    PLUMB_ERROR_STATE = -2,         /* the call does not fit the object's state (a session on a half-loaded model) */
    /* resources */
    PLUMB_ERROR_MEMORY = -10,       /* an allocation failed; the message has the sizes */
    PLUMB_ERROR_IO = -11,           /* reading or writing failed (command line and hosts only) */
    /* the file */
    PLUMB_ERROR_MAGIC = -20,        /* not a GGUF file */
    PLUMB_ERROR_VERSION = -21,      /* a GGUF version other than 2 and 3 */
    PLUMB_ERROR_TRUNCATED = -22,    /* the bytes end before what the header announces */
    PLUMB_ERROR_METADATA = -23,     /* a key: bad type, length, duplicate, wrong or missing value */
    PLUMB_ERROR_TENSOR = -24,       /* a tensor: bad name, shape, type, offset, size, or missing */
    /* what this version cannot run */
    PLUMB_ERROR_UNSUPPORTED = -30,  /* architecture, tensor type, pre-tokenizer, rope scaling...; the message says */
    PLUMB_ERROR_TOKENIZER = -31,    /* the vocabulary contradicts itself */
    PLUMB_ERROR_TEMPLATE = -32,     /* no chat template, or one whose family is not known */
    /* running */
    PLUMB_ERROR_CONTEXT = -40,      /* more tokens than the session's context holds */
    PLUMB_ERROR_TOKEN = -41         /* a token id outside the vocabulary */
} plumb_status;

/* "PLUMB_ERROR_MAGIC" and so on; "PLUMB_ERROR" for numbers that are no status. */
const char *plumb_status_name(plumb_status status);

/* ---- model: bytes in, weights and vocabulary ---------------------------------------------------------------- */

typedef struct plumb_model plumb_model;

#define PLUMB_SIZE_UNKNOWN UINT64_MAX

/* NULL if out of memory. */
plumb_model *plumb_model_create(void);
void plumb_model_free(plumb_model *model);
/* The sentence for the last failure, "" if there was none.  Valid until the next call on the model. */
const char *plumb_model_error(const plumb_model *model);

/* Starts the next part.  Call it once for a plain file.  Several parts are either the files of `gguf-split` (each with
 * its own header) or one file cut at arbitrary bytes: a part that begins while the file before it is incomplete
 * continues it.  size: bytes of this part and of all that will follow it, or PLUMB_SIZE_UNKNOWN; a known size lets a
 * header that promises more than can come be refused before anything is allocated for it. */
plumb_status plumb_model_begin(plumb_model *model, uint64_t size);
/* Where the next bytes go: up to *len bytes may be written at *data.  *len is 0 when this part needs no more bytes
 * (any further bytes are padding and may be dropped).  During tensor data *data is the weights' final place. */
plumb_status plumb_model_window(plumb_model *model, void **data, size_t *len);
/* Says that n bytes (n <= *len of the last window) were written there.  Takes some milliseconds longer now and then, as
 * it measures which kernels are the fastest here. */
plumb_status plumb_model_commit(plumb_model *model, size_t n);
/* True once keys and tensor directory of the first part are complete: the queries below may be used. */
bool plumb_model_has_header(const plumb_model *model);
/* Byte in the current part at which the next window begins (where a broken download resumes). */
uint64_t plumb_model_position(const plumb_model *model);
/* Builds the vocabulary as soon as the header is there; enough for the tokenizer functions.  Idempotent. */
plumb_status plumb_model_load_vocab(plumb_model *model);
/* After the last byte: checks that everything arrived, reads the architecture, binds the weights, builds the vocab. */
plumb_status plumb_model_end(plumb_model *model);

/* Metadata.  Indices run over plumb_model_n_key; find returns -1 if there is no such key. */
uint64_t plumb_model_n_key(const plumb_model *model);
int64_t plumb_model_find_key(const plumb_model *model, const char *key);
const char *plumb_model_key_name(const plumb_model *model, uint64_t i);
/* "uint32", "string", "array of string"... */
const char *plumb_model_key_type(const plumb_model *model, uint64_t i);
/* Number of elements of an array, 1 for a scalar. */
uint64_t plumb_model_key_count(const plumb_model *model, uint64_t i);
/* Element j as text (numbers in decimal, bools as true/false; strings as their bytes, which may hold anything).
 * Writes at most cap bytes including a final 0 and returns the full length without it. */
size_t plumb_model_key_value(const plumb_model *model, uint64_t i, uint64_t j, char *buf, size_t cap);

/* Tensor directory, over all parts read so far. */
typedef struct plumb_tensor {
    const char *name;
    const char *type;      /* "F32", "Q4_K"... */
    uint32_t n_dims;       /* 1..4 */
    uint64_t shape[4];     /* fastest dimension first, unused ones 1 */
    uint64_t offset;       /* of its first byte in its part */
    uint64_t n_bytes;
} plumb_tensor;
uint64_t plumb_model_n_tensor(const plumb_model *model);
plumb_status plumb_model_tensor(const plumb_model *model, uint64_t i, plumb_tensor *out);

/* What runs, after plumb_model_end. */
typedef struct plumb_model_info {
    const char *architecture;  /* general.architecture */
    uint64_t n_param;          /* elements of all tensors */
    uint64_t weight_bytes;     /* bytes held for tensors */
    uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab, n_ctx_train;
} plumb_model_info;
plumb_status plumb_model_get_info(const plumb_model *model, plumb_model_info *out);

/* ---- before the weights are there ------------------------------------------------------------------------------ */

/* Of each part only the header is wanted: windows end behind it, and a part that begins is another file.  Before the
 * first plumb_model_begin. */
plumb_status plumb_model_headers_only(plumb_model *model);
/* In place of plumb_model_end then: makes all its checks that need no weights.  Sessions on the model hold what they
 * would hold, and compute with weights made up of zeros, at the speed of the real ones: they lie over each other in
 * *n_bytes, 64 MiB or as much as the largest tensor needs.  *n_bytes is 0 where that is more than 512 MiB or there is
 * no memory for it; feeding a session is PLUMB_ERROR_STATE then.  plumb_diagnose is PLUMB_ERROR_STATE in any case. */
plumb_status plumb_model_rehearse(plumb_model *model, uint32_t *n_bytes);

/* ---- tokenizer ------------------------------------------------------------------------------------------------ */

enum plumb_token_flags {
    PLUMB_ADD_SPECIAL = 1,    /* BOS/EOS as the file's add_bos_token/add_eos_token ask */
    PLUMB_PARSE_SPECIAL = 2,  /* text of special tokens becomes those tokens; otherwise it is plain text */
};

/* Token ids of len bytes of text (any bytes; invalid UTF-8 is tokenized as llama.cpp does).  Returns how many there
 * are; writes the first cap of them.  Negative: a plumb_status. */
int64_t plumb_tokenize(plumb_model *model, const char *text, size_t len, unsigned flags, int32_t *ids, size_t cap);
/* The bytes of one token (special: also control tokens such as <|im_end|>, otherwise those are empty).  Returns the
 * full length, writes at most cap bytes, no final 0.  Negative: a plumb_status. */
int64_t plumb_token_piece(const plumb_model *model, int32_t id, bool special, char *buf, size_t cap);
/* The text of ids, as llama.cpp's llama_detokenize: pieces joined, the space that add_space_prefix put in front
 * removed.  Same conventions. */
int64_t plumb_detokenize(const plumb_model *model, const int32_t *ids, size_t n, bool special, char *buf, size_t cap);
uint32_t plumb_model_n_vocab(const plumb_model *model);
/* -1 where the vocabulary has none. */
int32_t plumb_token_bos(const plumb_model *model);
int32_t plumb_token_eos(const plumb_model *model);
/* Does this token end a turn (EOS, EOT, EOM and their known texts)? */
bool plumb_token_is_eog(const plumb_model *model, int32_t id);

typedef struct plumb_message {
    const char *role;     /* "system", "user", "assistant" */
    const char *content;  /* UTF-8 */
} plumb_message;

/* Formats a chat by the model's known template family (recognized in tokenizer.chat_template; hosts with a Jinja
 * engine should run that template itself).  add_assistant: open the assistant's turn.  Returns the full length,
 * writes at most cap bytes.  Negative: a plumb_status. */
int64_t plumb_chat_format(plumb_model *model, const plumb_message *messages, size_t n, bool add_assistant, char *buf,
                          size_t cap);

/* Tokens to text in whole characters: a piece that ends inside a UTF-8 character is held back until it is complete;
 * bytes that can never become one come out as U+FFFD.  Zero-initialize before the first push. */
typedef struct plumb_text {
    uint8_t held[4];
    uint8_t n_held;
} plumb_text;
/* Writes the complete characters of held + piece to buf and returns how many bytes they have: at most n * 3 + 12.  Of
 * those, at most cap are written; characters that do not fit are lost. */
size_t plumb_text_push(plumb_text *text, const char *piece, size_t n, char *buf, size_t cap);
/* The same of what is still held at the end: U+FFFD, 3 bytes, or nothing. */
size_t plumb_text_flush(plumb_text *text, char *buf, size_t cap);

/* ---- session: the forward pass over a KV cache ------------------------------------------------------------------ */

typedef struct plumb_session plumb_session;

typedef enum plumb_pass {
    PLUMB_PASS_FAST = 0,       /* kernels on quantized weights */
    PLUMB_PASS_REFERENCE = 1,  /* the slow, exact definition: f32 weights, f64 sums */
} plumb_pass;

/* How the fast pass keeps K and V; with each a scale for every head and position. */
typedef enum plumb_kv_type {
    PLUMB_KV_I16 = 0,  /* codes of 16 bits: half of f32's memory, results nearly those of f32, and the fastest */
    PLUMB_KV_Q8 = 1,   /* codes of 8 bits: half of that, less precise than anything else in the pass */
    PLUMB_KV_F32 = 2,  /* as they are computed; slow */
} plumb_kv_type;
/* "i16", "q8", "f32"; NULL for numbers that are none. */
const char *plumb_kv_type_name(plumb_kv_type type);
/* Bytes of K and V that a session of n_ctx tokens (0: as in plumb_session_params) keeps; 0 before the header is there,
 * and where its keys make no model. */
double plumb_model_kv_bytes(const plumb_model *model, uint32_t n_ctx, plumb_kv_type type);

/* How precisely the fast pass rounds activations, in blocks of 32, for its products with quantized weights.  The same
 * precision gives the same bits on every host and with every kind of kernels; the host never chooses it. */
typedef enum plumb_precision {
    PLUMB_PRECISION_EXACT16 = 0,  /* to 16 bits */
    PLUMB_PRECISION_FAST8 = 1,    /* to 8 bits, as llama.cpp does, for weights of 4 to 6 bits and what shares their
                                   * input; others keep 16.  Faster on some CPUs only, and other text */
} plumb_precision;
/* "exact16", "fast8"; NULL for numbers that are none. */
const char *plumb_precision_name(plumb_precision precision);

typedef struct plumb_session_params {
    uint32_t n_ctx;    /* tokens the KV cache holds, at most 2^24; 0: the smaller of the model's training context and
                        * 2048 */
    uint32_t n_batch;  /* tokens of a prompt computed at once, at most 65536, and no more than n_ctx are; 0: 64 */
    plumb_pass pass;
    plumb_kv_type kv_type;
    bool force_scalar; /* fast pass with the portable kernels only: what tests compare SIMD with */
    uint32_t n_thread; /* of the fast pass, the caller's among them, at most 64; results do not depend on it.  0: one
                        * for each processor that the process may use, in WebAssembly as many as its host has made
                        * ready (plumb_threads_ready) */
    plumb_precision precision;
} plumb_session_params;

/* params may be NULL.  PLUMB_ERROR_ARGUMENT for a value out of range, PLUMB_ERROR_MEMORY for a context that memory
 * cannot hold.  On failure *out is NULL and plumb_model_error(model) has the message.  The model must outlive
 * the session. */
plumb_status plumb_session_create(plumb_session **out, plumb_model *model, const plumb_session_params *params);
void plumb_session_free(plumb_session *session);
const char *plumb_session_error(const plumb_session *session);
uint32_t plumb_session_n_ctx(const plumb_session *session);
uint32_t plumb_session_n_batch(const plumb_session *session);
/* Bytes of KV cache and scratch. */
uint64_t plumb_session_bytes(const plumb_session *session);
/* What runs: "simd128", "relaxed", "scalar" or "reference". */
const char *plumb_session_kernels(const plumb_session *session);
/* How activations are rounded.  EXACT16 for the reference pass too, which rounds none. */
plumb_precision plumb_session_precision(const plumb_session *session);
/* How many threads compute: never more than were asked for, fewer where they cannot be had. */
uint32_t plumb_session_n_thread(const plumb_session *session);

/* Tokens in the cache, and the tokens themselves (n_past of them, in order). */
uint32_t plumb_session_n_past(const plumb_session *session);
const int32_t *plumb_session_tokens(const plumb_session *session);
/* Keeps the longest common prefix of the cache and ids, drops the rest, and returns its length: the caller feeds
 * ids + length.  At least the last id is left to feed, so that there are logits after it. */
uint32_t plumb_session_reuse(plumb_session *session, const int32_t *ids, size_t n);
/* Forgets all tokens from position n_past on. */
plumb_status plumb_session_rewind(plumb_session *session, uint32_t n_past);
/* A session cannot be used from its own callbacks (on_tap, on_logits): feeds, rewind and set_tap return
 * PLUMB_ERROR_STATE there, and reuse changes nothing.
 *
 * Computes n more tokens, in batches of n_batch, and the logits after the last one.  n = 1 is the decoding step and
 * allocates nothing.  PLUMB_ERROR_CONTEXT (nothing is computed) when n_past + n > n_ctx. */
plumb_status plumb_session_feed(plumb_session *session, const int32_t *ids, size_t n);
/* As feed, but computes the logits of every position, as taps may want them, and hands them to on_logits unless that is
 * NULL: (n_vocab) f32, valid during the call. */
plumb_status plumb_session_feed_all(plumb_session *session, const int32_t *ids, size_t n,
                                    void (*on_logits)(void *user, uint32_t pos, const float *logits), void *user);
/* Logits after the last token fed: (n_vocab) f32, valid until the next feed; NULL before the first. */
float *plumb_session_logits(plumb_session *session);

/* A WebAssembly module built with threads cannot start them: its host instantiates it once more on the same memory in
 * each worker, with a stack of its own, and calls plumb_threads_serve there.  The call stays there, and computes what
 * the sessions of the main instance, used by one thread at a time, leave to threads 1, 2...  plumb_threads_ready tells
 * the main instance that there are n_thread - 1 of them, plumb_threads_broken that one of them has trapped;
 * plumb_threads_dismiss lets them return, after the last use of a session.  On all other hosts these do nothing. */
void plumb_threads_ready(uint32_t n_thread);
void plumb_threads_serve(uint32_t thread);
void plumb_threads_broken(void);
void plumb_threads_dismiss(void);

/* ---- taps: every step of a pass ------------------------------------------------------------------------------- */

/* One named activation of one batch.  Names are llama.cpp's: embd, and for each layer attn_norm, Qcur, Kcur, Vcur,
 * Qcur_rope, Kcur_rope (llama.cpp names them Qcur and Kcur again), kq_soft_max, kqv_out, attn_out, ffn_inp, ffn_norm,
 * ffn_gate, ffn_up, ffn_swiglu, ffn_out, l_out; then result_norm and result_output, of those tokens whose logits were
 * asked for. */
typedef struct plumb_tap {
    const char *name;
    int32_t layer;         /* -1: embd, result_norm, result_output */
    uint32_t pos;          /* of the first token */
    uint32_t n_token;
    uint32_t n_head;       /* heads, or 1 */
    uint32_t n;            /* elements per token and head; of kq_soft_max the keys 0 .. n - 1, those to come are 0 */
    const float *data;     /* (n_token, n_head, n) f32, valid during the call */
} plumb_tap;

/* Calls on_tap for every step of all later feeds, in the order of the computation; NULL ends it.  Without it taps cost
 * one branch per step. */
plumb_status plumb_session_set_tap(plumb_session *session, void (*on_tap)(void *user, const plumb_tap *tap),
                                   void *user);

/* ---- traces: what a pass computed, and what another engine says it computed -------------------------------------- */

/* Receives a file or a report, piece by piece. */
typedef void plumb_write(void *user, const char *bytes, size_t n);

typedef enum plumb_format {
    PLUMB_FORMAT_TEXT = 0,  /* for a terminal */
    PLUMB_FORMAT_JSON = 1,  /* docs/trace.md */
    PLUMB_FORMAT_HTML = 2,  /* one self-contained page; of a diff */
    PLUMB_FORMAT_GGUF = 3,  /* whole tensors; of a trace */
} plumb_format;

typedef struct plumb_trace plumb_trace;

typedef struct plumb_trace_params {
    const char *taps;      /* names to keep, "l_out-*,result_output": * is any text, ? any byte; NULL: all.
                            * Other names of a tap (docs/trace.md) are known too. */
    uint32_t layer_first;  /* of the taps inside layers, those from layer_first ... */
    uint32_t layer_last;   /* ... to layer_last; UINT32_MAX: the last one */
    uint32_t n_value;      /* first values kept of each tap and token, of result_output the ten largest too unless it
                            * is 0; UINT32_MAX: all */
} plumb_trace_params;

/* NULL if out of memory. */
plumb_trace *plumb_trace_create(void);
void plumb_trace_free(plumb_trace *trace);
const char *plumb_trace_error(const plumb_trace *trace);
/* Begins to record a session that will be fed these n tokens from an empty cache, the first n_prompt of them as a
 * prompt and the others one by one; forgets what was there.  params may be NULL: all taps, 8 values.
 * PLUMB_ERROR_ARGUMENT if one of params->taps is the name of no tap, or the model lacks one of the layers. */
plumb_status plumb_trace_begin(plumb_trace *trace, const plumb_session *session, const int32_t *ids, size_t n,
                               size_t n_prompt, const plumb_trace_params *params);
/* Records what an on_tap was given: mean, RMS, extremes, NaN and Inf counts, first values, and of kq_soft_max the
 * entropy of each head.  After a failure all further calls fail. */
plumb_status plumb_trace_add(plumb_trace *trace, const plumb_tap *tap);
/* Reads a file, whatever it is: a trace as JSON (by plumb or anyone: docs/trace.md) or GGUF, the text that
 * llama-eval-callback prints, or arrays saved by numpy.savez.  Forgets what was there. */
plumb_status plumb_trace_read(plumb_trace *trace, const void *bytes, size_t n);
/* PLUMB_FORMAT_JSON, PLUMB_FORMAT_TEXT (a table) or PLUMB_FORMAT_GGUF (of a trace with n_value UINT32_MAX). */
plumb_status plumb_trace_write(plumb_trace *trace, plumb_format format, plumb_write *write, void *user);
/* Tokens that were fed; 0 if the trace does not say. */
size_t plumb_trace_n_token(const plumb_trace *trace);
/* (plumb_trace_n_token) their ids, valid as long as the trace is not changed; NULL if it does not say. */
const int32_t *plumb_trace_tokens(const plumb_trace *trace);
/* Values that it keeps, of all taps and tokens: what makes a file of it large. */
uint64_t plumb_trace_n_value(const plumb_trace *trace);
/* Tells a trace the tokens that its file did not. */
plumb_status plumb_trace_set_tokens(plumb_trace *trace, const int32_t *ids, size_t n, size_t n_prompt);

/* What the reports below share.  Zero-initialize. */
typedef struct plumb_report {
    plumb_format format;
    plumb_write *write;
    void *user;
    double tolerance;      /* relative error from which two numbers part; 0: the default of each report, 0.01 */
    const char *name_a, *name_b;   /* what to call the two sides, file names for instance; may be NULL */
    void (*on_progress)(void *user, double done);   /* 0..1; may be NULL */
    bool all;              /* of plumb_weights as text: the tensors that agree too */
} plumb_report;

/* Holds a against b, which is taken for the truth.  model may be NULL; with it token texts can be named.
 * *agree: no tap is over the tolerance and the tokens are the same.  PLUMB_ERROR_ARGUMENT, behind the report, where
 * the sides know nothing in common; the message is a's. */
plumb_status plumb_diff(plumb_trace *a, plumb_trace *b, plumb_model *model, const plumb_report *report, bool *agree);
/* Looks for up to max_quirk (0: 3) known mistakes with which the reference pass gives their numbers.
 * *agree: the trace agrees with the truth as it is; with a tolerance of 0 also where it is off by no more than rounding
 * activations to 8 bits leaves (docs/diagnose.md). */
plumb_status plumb_diagnose(plumb_model *model, plumb_trace *theirs, uint32_t max_quirk, const plumb_report *report,
                            bool *agree);
/* The quirks that plumb_diagnose knows, by index: false past the last.  name "rope.pairing=halves", tap the first one
 * it changes, text what the mistake is. */
bool plumb_quirk(size_t i, const char **name, const char **tap, const char **text);
/* All checks that need no reference, one line each: OK, WARN (odd, but right models may have it), FAIL or SKIP, and
 * why.  All that is there of the model must have been committed.  What commit refused is part of the report, and so is
 * what plumb_model_end would, which need not have been called.  *ok: none failed.  PLUMB_FORMAT_TEXT or _JSON, here and
 * of plumb_weights. */
plumb_status plumb_selfcheck(plumb_model *model, const plumb_report *report, bool *ok);
/* Compares the dequantized tensors of two files, of any types, by name, and names what would explain a difference:
 * a scale, an offset, permuted or transposed rows, a misread type...  *agree: all are in both files and no farther
 * apart than their types explain, or than report->tolerance.  Only the bytes must have arrived; failures are a's. */
plumb_status plumb_weights(plumb_model *a, plumb_model *b, const plumb_report *report, bool *agree);

/* ---- log-probabilities ------------------------------------------------------------------------------------------- */

/* The k largest of (n_vocab) logits, largest first, of equal ones the lower id first, to ids; -1 where there are only
 * NaN and -infinity left.  Returns the logarithm of the sum of all exp(logit): less that, a logit is the natural
 * logarithm of its token's probability. */
double plumb_logits_top(const float *logits, uint32_t n_vocab, uint32_t k, int32_t *ids);

/* ---- sampler: logits -> token, pure ------------------------------------------------------------------------------ */

typedef struct plumb_logit_bias {
    int32_t token;
    float bias;   /* added to the logit; -INFINITY forbids the token */
} plumb_logit_bias;

/* Applied in this order: logit bias, penalties, top-k, typical, top-p, min-p, temperature, draw.
 * A value in brackets turns the step off. */
typedef struct plumb_sampling {
    float temperature;        /* >= 0 (0: greedy) */
    uint32_t top_k;           /* at most INT32_MAX (0) */
    float top_p;              /* (1) */
    float min_p;              /* (0) */
    float typical_p;          /* (1) */
    float repeat_penalty;     /* (1) */
    float presence_penalty;   /* (0) */
    float frequency_penalty;  /* (0) */
    uint32_t penalty_last_n;  /* how many recent tokens the penalties look at, at most 2^24 (0: off) */
    uint32_t n_bias;          /* (0) */
    const plumb_logit_bias *bias;
    uint64_t seed;
} plumb_sampling;
/* temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, penalty_last_n 64, all else off, seed 0. */
plumb_sampling plumb_sampling_default(void);

typedef struct plumb_sampler plumb_sampler;

/* Copies params.  PLUMB_ERROR_ARGUMENT for a NaN or a value out of range; *reason (may be NULL) says which. */
plumb_status plumb_sampler_create(plumb_sampler **out, uint32_t n_vocab, const plumb_sampling *params,
                                  const char **reason);
void plumb_sampler_free(plumb_sampler *sampler);
/* Tells the penalties of a token that is in the text (prompt or answer).  Ids outside the vocabulary are ignored. */
void plumb_sampler_accept(plumb_sampler *sampler, int32_t token);
/* The next token; (n_vocab) f32 logits are read only.  Same seed, same calls, same logits: same tokens on every host.
 * NaN and -infinity are never chosen; -1 if there is nothing else.  Of equal logits the lower id ranks first.
 * Allocates nothing. */
int32_t plumb_sampler_sample(plumb_sampler *sampler, const float *logits);

#ifdef __cplusplus
}
#endif

#endif

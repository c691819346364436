/* The command line, native and WASI: declarations shared by its files.  It uses the library through its public
 * headers only.
 *
 *   main.c        main, and the commands tokenize, score, bench
 *   run.c         run, and the answers of chat
 *   chat.c        chat
 *   inspect.c     inspect
 *   trace.c       trace, logits
 *   perplexity.c  perplexity
 *   embed.c       embed, rank
 *   grammar.c     grammar
 *   reports.c     diff, selfcheck, weights, diagnose
 *   options.c     one table of options: parsing, help
 *   names.h       their names in other programs
 *   model.c       reading models; prompts and token ids; sessions
 *   io.c          files and standard streams, messages, progress, time, Ctrl-C
 */
#ifndef PLUMB_CLI_H
#define PLUMB_CLI_H

#include "plumb_truth.h"

/* Exit codes of the process.  If the reader of its output closes the pipe early, that is not a failure: it has what it
 * wanted. */
enum { EXIT_OK = 0, EXIT_DIFFERENT = 1, EXIT_USAGE = 2, EXIT_NOISE = 4, EXIT_INTERRUPTED = 130 };
/* The exit code of a failure: 1, but 3 in the commands that report, where 1 means that two things differ or a check
 * failed. */
extern int exit_failed;

#if defined(__GNUC__)
#define PRINTF_LIKE(at, args) __attribute__((format(printf, at, args)))
#else
#define PRINTF_LIKE(at, args)
#endif

/* ---- options ----------------------------------------------------------------------------------------------------- */

enum command {
    COMMAND_RUN, COMMAND_CHAT, COMMAND_INSPECT, COMMAND_TOKENIZE, COMMAND_SCORE, COMMAND_BENCH, COMMAND_TRACE,
    COMMAND_LOGITS, COMMAND_PERPLEXITY, COMMAND_EMBED, COMMAND_RANK, COMMAND_GRAMMAR, COMMAND_DIFF, COMMAND_SELFCHECK,
    COMMAND_WEIGHTS, COMMAND_DIAGNOSE, COMMAND_COUNT
};

enum { MAX_FILES = 64, MAX_ADAPTERS = 16, MAX_STOPS = 64 };

/* A value of --lora or --control-vector, FILE[:SCALE]. */
struct adapter_option { const char *path; float scale; bool is_control; };

struct options {
    enum command command;
    const char *files[MAX_FILES];        /* the files of the model, in order; in diff and weights the two sides */
    size_t n_file;
    const char *text;                    /* TEXT of tokenize, FILE of perplexity, embed, rank */
    const char *prompt, *system, *tools, *ids;
    const char *input;                   /* the file that is read in the place of standard input */
    const char *chat_template, *template_file;
    const char *stops[MAX_STOPS];        /* texts that end an answer */
    size_t n_stop;
    bool interactive;                    /* run goes on as a chat */
    uint32_t n_predict;                  /* 0: the default of the run command */
    uint32_t n_prompt, n_repeat, n_top, n_chunk, n_known;
    uint32_t n_ctx, n_batch, n_thread;
    plumb_sampling sampling;
    bool has_seed;
    plumb_trace_params trace;
    const char *output, *model, *against, *html, *base, *save;
    double tolerance;
    const char *prefix, *query, *query_prefix;
    const char *grammar, *gbnf;          /* a file, or the grammar itself; at most one of these two and the next two */
    const char *json_schema, *regex;     /* a file, or the schema itself if it begins with {; the expression itself */
    plumb_schema_options schema;
    uint32_t n_dimension;                /* 0: all */
    plumb_pooling pooling;               /* if has_pooling */
    bool has_pooling, no_normalize, truncate;
    plumb_precision precision;
    plumb_kv_type kv_type;
    uint32_t n_snapshot;
    uint32_t n_keep;              /* of plumb_session_set_shift */
    enum speculate { SPECULATE_LOOKUP, SPECULATE_OFF } speculate;
    uint32_t n_draft_least, n_draft_most;   /* of plumb_speculation */
    const char *draft;            /* the file of the draft model */
    const char *load_state, *save_state;
    struct adapter_option adapters[MAX_ADAPTERS];
    size_t n_adapter;
    uint32_t control_layers[2];          /* the first and the last one */
    bool reference, scalar, raw, chat, print_ids, parse_special, no_special, json, profile, list, all;
};

/* Parses the words after the program's name into *options, and sets exit_failed.  Returns false if the process should
 * end with *exit_code: help was printed, or one line that says what is wrong. */
bool parse_options(int argc, char **argv, struct options *options, int *exit_code);
/* Says which option of run a chat cannot have; NULL if none is given. */
const char *belongs_to_one(const struct options *options);
/* The name as it is typed, such as "run". */
const char *command_name(enum command command);

/* ---- messages, input, output ------------------------------------------------------------------------------------- */

/* Prints "plumb: ..." in one line on standard error; returns code. */
PRINTF_LIKE(2, 3) int print_error(int code, const char *format, ...);
/* Prints "plumb: WHERE: PLUMB_ERROR_...: MESSAGE" the same way; returns exit_failed. */
int report(const char *where, plumb_status status, const char *message);
/* Prints the last error also as JSON on standard output, once: {"error": {"code", "message"}}.  any: whatever was
 * printed, else what was printed with a code that is not 0. */
void out_json_error(bool any);

/* These functions write to standard output.  After the first failure they write nothing more. */
PRINTF_LIKE(1, 2) void out(const char *format, ...);
void out_bytes(const void *bytes, size_t n);
void out_flush(void);
bool out_failed(void);
/* These write text of files, and only what plumb_is_plain: the bytes of other characters, and those that are no UTF-8,
 * become \xNN.  out_escaped is for text between quotes: it also escapes quotes, backslashes and ends of lines. */
void out_escaped(const char *bytes, size_t n);
/* Writes the text of a model: as it is, but on a terminal as out_escaped, except tabs and ends of lines. */
void out_shown(const char *bytes, size_t n);
void out_text(const char *text);
/* Wraps text into lines of at most 80 columns and ends the last one.  The first line continues at column, the others
 * are indented.  An empty line is kept, a single newline counts as a space. */
void out_wrapped(const char *text, size_t column, size_t indent);
/* Writes a JSON string with its quotes; what is not plain becomes \uNNNN, and invalid UTF-8 bytes become U+FFFD. */
void out_json_string(const char *bytes, size_t n);
/* Writes a JSON number with that many significant digits: 9 give an f32 back exactly, 17 an f64.  Infinities and NaN,
 * which JSON cannot express, become null. */
void out_json_number(double value, int digits);
/* Flushes.  Returns code, or exit_failed after a message if writing failed for any reason but a closed pipe. */
int out_close(int code);

/* Whether the path ends in ".gguf". */
bool has_gguf_suffix(const char *path);
/* Whether both paths lead to the same regular file. */
bool same_file(const char *a, const char *b);
/* Writes a file completely or not at all: the bytes go to FILE.part, which is renamed to FILE at the end.  If FILE is
 * not a regular file, but a device, a pipe or a link, it is written directly.  path "-" is standard output. */
struct writer { const char *path; void *stream; int error; bool is_part; };
/* Returns EXIT_OK, or exit_failed after a message.  Only one file can be open at a time. */
int writer_open(struct writer *w, const char *path);
/* A plumb_write whose user is the writer.  Ends the process if it was interrupted. */
void writer_write(void *user, const char *bytes, size_t n);
/* Closes the file.  If code is not EXIT_OK, a regular FILE stays as it was.  Returns code, or exit_failed after a
 * message. */
int writer_close(struct writer *w, int code);

/* Whether standard input is a terminal, and whether standard output is one, too. */
bool is_typed(void);
bool is_terminal(void);
/* Whether standard input has been piped in: it is a pipe or a file. */
bool is_piped(void);
/* Whether standard input is no terminal and has bytes; waits for the first one. */
bool has_input(void);
/* Whether a path is standard input: "-", or the same pipe or file. */
bool is_standard_input(const char *path);
/* Says that standard input is waited for, if a second has passed. */
void wait_for_input(void);
/* Returns all bytes of a file with a 0 after them, to be freed; path "-" is standard input.  On failure it prints a
 * message, sets *code and returns NULL. */
char *read_file(const char *path, size_t *n, int *code);
/* As malloc, but if memory is out it ends the process with a message. */
void *allocate(size_t n);

/* A line on standard error that overwrites itself.  It is shown on a terminal only, once a task has taken a second. */
struct progress {
    bool terminal, shown;
    double start, last;
};
void progress_begin(struct progress *p);
/* Shows the text and the estimated seconds left.  done: the finished share of the task, 0..1, or NAN if unknown. */
PRINTF_LIKE(3, 4) void progress_show(struct progress *p, double done, const char *format, ...);
void progress_end(struct progress *p);

/* The time of a monotonic clock, in seconds. */
double now(void);
/* A random seed: 32 bits from the system's random source, or from the clock if there is none. */
uint64_t random_seed(void);
/* Must be called first.  Afterwards the first Ctrl-C makes interrupted() true and the second ends the process.  Writing
 * to a closed pipe is an error instead of a signal.  Under WASI, relative paths begin in the current directory. */
void start_process(void);
bool interrupted(void);
/* Makes interrupted() false, so that Ctrl-C can interrupt what comes next. */
void forget_interrupt(void);
/* While on, the first Ctrl-C ends the process.  For long calls that cannot check interrupted(). */
void end_at_interrupt(bool on);

/* ---- models, prompts, sessions: these print their failures and return exit codes --------------------------------- */

enum load { LOAD_HEADER, LOAD_VOCAB, LOAD_BYTES, LOAD_CHECKED, LOAD_ALL };
/* Reads the files of a model as far as is needed.  LOAD_BYTES reads all bytes but does not call plumb_model_end.
 * LOAD_CHECKED also reads all bytes and accepts any file: plumb_selfcheck reports what is wrong with it.
 * *out is NULL unless EXIT_OK is returned. */
int load_model(plumb_model **out, const char *const *files, size_t n_file, enum load what);

/* The size of a regular file in bytes; PLUMB_SIZE_UNKNOWN for anything else. */
uint64_t file_size(const char *path);

struct ids { int32_t *data; size_t n; };
/* The token ids of a text by plumb_tokenize_marked; data is to be freed, and is NULL on failure. */
struct ids tokenize(plumb_model *model, const char *text, const uint8_t *marks, size_t len, unsigned flags);
/* The token ids given by --ids or --tokens, "1,2,3"; data is to be freed, and is NULL on failure. */
struct ids parse_ids(const struct options *o, uint32_t n_vocab);

/* The text of -p, of --file or of standard input.  run joins them, the input first; its text is NULL if a chat is to
 * begin.  owned: the text if it must be freed, else NULL. */
struct prompt { const char *text; size_t len; char *owned; };
int read_prompt(struct prompt *prompt, const struct options *o);
/* Makes the template of --chat-template or --chat-template-file that of the model. */
int use_chat_template(plumb_model *model, const struct options *o);
/* The tokens of a chat in the model's chat template; data is to be freed, and is NULL on failure. */
struct message { const char *role, *text; size_t n; };
struct ids chat_ids(plumb_model *model, const struct options *o, const struct message *messages, size_t n);
/* The tokens that a command feeds, at least one: those of --tokens, or those of the prompt, which is put into the
 * model's chat template unless o->raw or the model has an encoder.  ids->data must be freed even on failure. */
int input_ids(struct ids *ids, plumb_model *model, const struct options *o, const struct prompt *prompt);
/* The bytes of a token, including special tokens; to be freed. */
char *token_piece(const plumb_model *model, int32_t id, size_t *n);

/* Compiles the grammar of --grammar, --gbnf, --json-schema or --regex, and prints its warnings.  *out is NULL if none
 * is given.  model may be NULL. */
int load_grammar(plumb_grammar **out, plumb_model *model, const struct options *o);

/* A session with the adapters of --lora and --control-vector.  Returns NULL after a message. */
plumb_session *create_session(plumb_model *model, const struct options *o);
/* Lets the encoder read a text; does nothing if the model has none. */
int encode(const plumb_model *model, plumb_session *session, const int32_t *ids, size_t n);
/* Feeds the tokens of a prompt.  If the model has an encoder, that reads them, and the decoder gets its first token. */
int feed_prompt(const plumb_model *model, plumb_session *session, const int32_t *ids, size_t n);
/* Feeds the tokens batch by batch, so that Ctrl-C is noticed in between.  As with a single plumb_session_feed, nothing
 * is computed if they do not all fit. */
int feed(plumb_session *session, const int32_t *ids, size_t n);

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* A text that grows; data is to be freed, and does not end with a 0. */
struct buffer { char *data; size_t n, cap; };
void buffer_add(struct buffer *buffer, const char *bytes, size_t n);

/* What makes answers one after the other, and the last of them. */
struct answering {
    const struct options *options;
    plumb_model *model;
    plumb_session *session;
    plumb_model *draft_model;   /* of --model-draft, with its session; NULL: there is none */
    plumb_session *draft;
    plumb_grammar *grammar;     /* NULL: there is none */
    double load_seconds, prefill_seconds, decode_seconds;
    uint64_t seed;
    size_t n_prompt;            /* tokens of the prompt, */
    uint32_t n_reused;          /* those that the session held, */
    uint64_t n_drafted, n_accepted;   /* tokens computed ahead, and those of them that became tokens of the answer */
    uint32_t n_token, n_forced; /* those of the answer, without the one that ends the turn, and those not sampled, */
    uint32_t n_fed, n_step;     /* those that were fed, and in how many steps */
    bool is_full;               /* the context */
    const char *reason;         /* "stop", "length" or "abort"; not set if the prompt failed */
    struct buffer text;
};
/* A session for answers, and the grammar of the options.  Also after a failure, answering_end is to be called. */
int answering_begin(struct answering *a, const struct options *o, plumb_model *model, double load_seconds);
void answering_end(struct answering *a);
/* Answers a prompt with at most n_max tokens, and prints the text unless --json or --ids is given. */
int answering_answer(struct answering *a, const struct ids *prompt, uint32_t n_max);
/* Prints the answer as one JSON object, as `plumb run --json` and `plumb chat --json` of the package do. */
void print_answer(const struct answering *a, bool has_load);
/* Starts a chat; the prompt is its first message if its text is not NULL. */
int chat_from(const struct options *o, const struct prompt *prompt);

/* ---- commands: each returns the exit code ------------------------------------------------------------------------ */

int run_run(const struct options *options);
int run_chat(const struct options *options);
int run_inspect(const struct options *options);
int run_trace(const struct options *options);
int run_logits(const struct options *options);
int run_perplexity(const struct options *options);
int run_embed(const struct options *options);
int run_rank(const struct options *options);
int run_grammar(const struct options *options);
int run_diff(const struct options *options);
int run_selfcheck(const struct options *options);
int run_weights(const struct options *options);
int run_diagnose(const struct options *options);

#endif

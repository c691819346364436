/* The command line, natively and as WASI: what its files share.  It sees the engine through plumb.h only.
 *
 *   main.c        main, and the commands run, tokenize, score, bench
 *   inspect.c     inspect
 *   trace.c       trace, logits
 *   perplexity.c  perplexity
 *   reports.c     diff, selfcheck, weights, diagnose
 *   options.c     one table of options: parsing, help
 *   model.c       reading models; prompts and token ids; sessions
 *   io.c          files and standard streams, messages, progress, time, Ctrl-C
 */
#ifndef PLUMB_CLI_H
#define PLUMB_CLI_H

#include "plumb.h"

/* What the process returns.  A reader that closes the pipe early has what it wanted: that is success. */
enum { EXIT_OK = 0, EXIT_PARTED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };
/* When something fails: 1, but 3 from reports, whose 1 is the verdict that two things part or that a check failed. */
extern int exit_failed;

#if defined(__GNUC__)
#define PRINTF_LIKE(at, args) __attribute__((format(printf, at, args)))
#else
#define PRINTF_LIKE(at, args)
#endif

/* ---- options ----------------------------------------------------------------------------------------------------- */

enum command {
    COMMAND_RUN, COMMAND_INSPECT, COMMAND_TOKENIZE, COMMAND_SCORE, COMMAND_BENCH, COMMAND_TRACE, COMMAND_LOGITS,
    COMMAND_PERPLEXITY, COMMAND_DIFF, COMMAND_SELFCHECK, COMMAND_WEIGHTS, COMMAND_DIAGNOSE, COMMAND_COUNT
};

enum { MAX_FILES = 64 };

struct options {
    enum command command;
    const char *files[MAX_FILES];        /* of the model, in order; of diff and weights the two sides */
    size_t n_file;
    const char *text;                    /* of tokenize; of perplexity its file */
    const char *prompt, *system, *ids;
    uint32_t n_predict;                  /* 0: the default of run */
    uint32_t n_prompt, n_repeat, n_top, n_chunk, n_quirk;
    uint32_t n_ctx, n_batch, n_thread;
    plumb_sampling sampling;
    bool has_seed;
    plumb_trace_params trace;
    const char *output, *model, *against, *html, *base, *save;
    double tolerance;
    plumb_precision precision;
    plumb_kv_type kv_type;
    bool reference, scalar, raw, chat, print_ids, parse_special, no_special, json, profile, list, all;
};

/* Fills *options from the words after the program's name, and exit_failed.  false: the process is to end with
 * *exit_code, after help or the one line that says what is wrong was printed. */
bool parse_options(int argc, char **argv, struct options *options, int *exit_code);
/* "run" */
const char *command_name(enum command command);

/* ---- messages, input, output ------------------------------------------------------------------------------------- */

/* "plumb: ..." in one line on standard error; returns code. */
PRINTF_LIKE(2, 3) int complain(int code, const char *format, ...);
/* "plumb: WHERE: PLUMB_ERROR_...: MESSAGE"; returns exit_failed. */
int report(const char *where, plumb_status status, const char *message);

/* Standard output.  After the first failure nothing more is written. */
PRINTF_LIKE(1, 2) void out(const char *format, ...);
void out_bytes(const void *bytes, size_t n);
void out_flush(void);
bool out_failed(void);
/* Printable: quotes, backslashes and control bytes escaped, bytes that are no UTF-8 as \xNN. */
void out_escaped(const char *bytes, size_t n);
/* Words in lines of at most 80 columns, the first from a column on where something stands already, the others indented;
 * ends the line.  An empty line stays one, a single newline is a space. */
void out_wrapped(const char *text, size_t column, size_t indent);
/* A JSON string with its quotes; bytes that are no UTF-8 become U+FFFD. */
void out_json_string(const char *bytes, size_t n);
/* Digits that give an f32 or, at 17, an f64 back exactly; null for what JSON has no number for. */
void out_json_number(double value, int digits);
/* Flushes; code, unless writing failed for another reason than a closed pipe: then exit_failed and a message. */
int out_close(int code);

/* Does it end in ".gguf"? */
bool names_gguf(const char *path);
/* Are these two paths of one regular file? */
bool same_file(const char *a, const char *b);
/* A file written as a whole or not at all: as FILE.part, which becomes FILE at the end.  What is no regular file, such
 * as a device, a pipe or a link, is written itself.  path "-" is standard output. */
struct writer { const char *path; void *stream; int error; bool is_part; };
/* exit_failed after a message.  One file at a time. */
int writer_open(struct writer *w, const char *path);
/* A plumb_write; user is the writer.  Ends the process if it was interrupted. */
void writer_write(void *user, const char *bytes, size_t n);
/* Ends the file; if code is not EXIT_OK, FILE stays as it was.  Returns code, or exit_failed after a message. */
int writer_close(struct writer *w, int code);

/* All bytes of a file, with a 0 after them; path "-" is standard input.  NULL, *code and a message when that fails. */
char *read_file(const char *path, size_t *n, int *code);
/* malloc that ends the process with a message: the command line has nothing to fall back to. */
void *allocate(size_t n);

/* What takes over a second is shown on a terminal, in a line of standard error that replaces itself. */
struct progress {
    bool terminal, shown;
    double start, last;
};
void progress_begin(struct progress *p);
/* The text, and the seconds left; done: 0..1, NAN if that is not known. */
PRINTF_LIKE(3, 4) void progress_show(struct progress *p, double done, const char *format, ...);
void progress_end(struct progress *p);

/* Seconds of a clock that never goes back. */
double now(void);
/* A seed that nobody chose: 32 bits of the system's randomness, or of the clock where it has none. */
uint64_t random_seed(void);
/* To be called first.  From then on Ctrl-C makes interrupted() true, a second one ends the process; a closed pipe is an
 * error of write; relative paths begin in the current directory under WASI too. */
void start_process(void);
bool interrupted(void);
/* While on, the first Ctrl-C ends the process: for what takes long and cannot look at interrupted(). */
void end_at_interrupt(bool on);

/* ---- models, prompts, sessions: failures are printed and returned as exit codes ---------------------------------- */

enum load { LOAD_HEADER, LOAD_VOCAB, LOAD_BYTES, LOAD_CHECKED, LOAD_ALL };
/* Reads the files of a model, only as far as is needed; LOAD_BYTES reads all but leaves out plumb_model_end.
 * LOAD_CHECKED reads what there is of a file, whatever it is: plumb_selfcheck says what is wrong with it.
 * *out is NULL unless EXIT_OK is returned. */
int load_model(plumb_model **out, const char *const *files, size_t n_file, enum load what);

/* Bytes of a regular file; PLUMB_SIZE_UNKNOWN for what is none. */
uint64_t file_size(const char *path);

struct ids { int32_t *data; size_t n; };
/* Token ids of a text; data is NULL on failure. */
struct ids tokenize(plumb_model *model, const char *text, size_t len, unsigned flags);
/* Those of --ids or --tokens, "1,2,3"; data is NULL on failure. */
struct ids parse_ids(const struct options *o, uint32_t n_vocab);

/* The text of -p, read from standard input where that is "-". */
struct prompt { const char *text; size_t len; char *owned; };
int read_prompt(struct prompt *prompt, const struct options *o);
/* The tokens that a command is to feed: those of --tokens, or of the prompt, in the model's chat template unless
 * o->raw.  At least one.  ids->data is to be freed in any case. */
int input_ids(struct ids *ids, plumb_model *model, const struct options *o, const struct prompt *prompt);
/* The bytes of a token, special ones too; to be freed. */
char *token_piece(const plumb_model *model, int32_t id, size_t *n);

/* NULL after a message. */
plumb_session *create_session(plumb_model *model, const struct options *o);
/* Feeds the tokens batch by batch, so that Ctrl-C is noticed in between.  The result is that of one feed. */
int feed(plumb_session *session, const int32_t *ids, size_t n);

/* ---- commands: each returns the exit code ------------------------------------------------------------------------ */

int run_inspect(const struct options *options);
int run_trace(const struct options *options);
int run_logits(const struct options *options);
int run_perplexity(const struct options *options);
int run_diff(const struct options *options);
int run_selfcheck(const struct options *options);
int run_weights(const struct options *options);
int run_diagnose(const struct options *options);

#endif

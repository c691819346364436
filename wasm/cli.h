/* The command line, natively and as WASI: what its files share.  It sees the engine through plumb.h only.
 *
 *   cli.c          main, and the commands run, tokenize, score, bench
 *   cli_inspect.c  inspect
 *   cli_options.c  one table of options: parsing, help
 *   cli_io.c       reading models and standard input, writing, messages, time, Ctrl-C
 */
#ifndef PLUMB_CLI_H
#define PLUMB_CLI_H

#include "plumb.h"

/* What the process returns.  A reader that closes the pipe early has what it wanted: that is success. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* ---- options ----------------------------------------------------------------------------------------------------- */

enum command { COMMAND_RUN, COMMAND_INSPECT, COMMAND_TOKENIZE, COMMAND_SCORE, COMMAND_BENCH, COMMAND_COUNT };

enum { MAX_MODEL_FILES = 64 };

struct options {
    enum command command;
    const char *files[MAX_MODEL_FILES];  /* of the model, in order */
    size_t n_file;
    const char *text;                    /* of tokenize */
    const char *prompt, *system, *ids;
    uint32_t n_predict, n_prompt, n_repeat;
    uint32_t n_ctx, n_batch;
    plumb_sampling sampling;
    bool reference, scalar, raw, print_ids, parse_special, no_special, json;
};

/* Fills *options from the words after the program's name.  false: the process is to end with *exit_code, after help
 * or the one line that says what is wrong was printed. */
bool parse_options(int argc, char **argv, struct options *options, int *exit_code);

/* ---- messages, input, output ------------------------------------------------------------------------------------- */

/* "plumb: ..." in one line on standard error; returns code. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int complain(int code, const char *format, ...);
/* "plumb: WHERE: PLUMB_ERROR_...: MESSAGE"; returns EXIT_FAILED. */
int report(const char *where, plumb_status status, const char *message);

/* Standard output.  After the first failure nothing more is written. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void out(const char *format, ...);
void out_bytes(const void *bytes, size_t n);
void out_flush(void);
bool out_failed(void);
/* Printable: quotes, backslashes and control bytes escaped, bytes that are no UTF-8 as \xNN. */
void out_escaped(const char *bytes, size_t n);
/* A JSON string with its quotes; bytes that are no UTF-8 become U+FFFD. */
void out_json_string(const char *bytes, size_t n);
/* Flushes; code, unless writing failed for another reason than a closed pipe: then EXIT_FAILED and a message. */
int out_close(int code);

/* Bytes until the end of standard input, with a 0 after them; NULL, *code and a message when that fails. */
char *read_stdin(size_t *n, int *code);
/* malloc that ends the process with a message: the command line has nothing to fall back to. */
void *allocate(size_t n);

/* Seconds of a clock that never goes back. */
double now(void);
/* To be called first.  From then on Ctrl-C makes interrupted() true, a second one ends the process; a closed pipe is an
 * error of write; relative paths begin in the current directory under WASI too. */
void start_process(void);
bool interrupted(void);

enum load { LOAD_HEADER, LOAD_VOCAB, LOAD_ALL };
/* Reads the files of a model, only as far as is needed.  *out is NULL unless EXIT_OK is returned; otherwise the message
 * is printed.  On a terminal the progress of what takes over a second is shown. */
int load_model(plumb_model **out, const struct options *options, enum load what);

/* ---- commands: each returns the exit code ------------------------------------------------------------------------ */

int run_inspect(const struct options *options);

#endif

/* Any words as a command line; each line of the input is a word.  The result is help, options in their documented
 * ranges, or exit code 2 with one line that says what is wrong. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"

#include "fuzz.h"
#include "quiet.h"

#include <math.h>
#include <string.h>

enum { MAX_WORDS = 100 };

static bool is_word(char *const *words, int n, const char *text) {
    if (text == NULL) return true;
    for (int i = 0; i < n; i++) {
        if (text >= words[i] && text <= words[i] + strlen(words[i])) return true;
    }
    return false;
}

/* The table's ranges, and the defaults of options that were not given. */
static void check_counts(const struct options *o) {
    enum { LARGE = 1 << 24 };
    bool bench = o->command == COMMAND_BENCH, parts = o->command == COMMAND_TRACE || o->command == COMMAND_DIAGNOSE;
    uint32_t all = UINT32_MAX, least_ctx = o->command == COMMAND_PERPLEXITY ? 4 : 1;
    const struct { const char *name; uint32_t value, least, most, otherwise; } counts[] = {
        { "-n", o->n_predict, 1, bench ? LARGE : UINT32_MAX, bench ? 64 : 0 },
        { "-p or --n-prompt", o->n_prompt, 1, LARGE, parts ? all : 128 },
        { "-r", o->n_repeat, 1, 1000, 3 }, { "--top", o->n_top, 1, LARGE, 10 }, { "--max", o->n_known, 1, 3, 0 },
        { "--chunks", o->n_chunk, 1, LARGE, all }, { "--ctx", o->n_ctx, least_ctx, LARGE, 0 },
        { "--batch", o->n_batch, 1, 1 << 16, 0 }, { "--threads", o->n_thread, 1, 64, 0 },
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        bool in_range = counts[i].value >= counts[i].least && counts[i].value <= counts[i].most;
        require(in_range || counts[i].value == counts[i].otherwise, counts[i].name);
    }
}

/* The guarantees that the commands rely on. */
static void check_options(const struct options *o, char *const *words, int n) {
    require((unsigned)o->command < COMMAND_COUNT && o->n_file <= MAX_FILES, "no command, or too many files");
    for (size_t i = 0; i < o->n_file; i++) require(o->files[i] && is_word(words, n, o->files[i]), "a file of no word");
    const char *texts[] = { o->text, o->system, o->ids, o->trace.taps, o->output, o->model, o->against,
                            o->html, o->base, o->save };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) require(is_word(words, n, texts[i]), "a text of no word");
    require(o->n_file > 0 || o->list, "no file");
    check_counts(o);
    require(plumb_precision_name(o->precision) && plumb_kv_type_name(o->kv_type), "a name of nothing");
    require(o->tolerance >= 0 && isfinite(o->tolerance), "a tolerance that is none");
    require(o->trace.layer_first <= o->trace.layer_last, "layers backwards");
    plumb_sampler *sampler;
    plumb_status status = plumb_sampler_create(&sampler, 8, &o->sampling, NULL);
    require(status == PLUMB_OK, "the sampler refuses what the options allow");
    plumb_sampler_free(sampler);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct said said;
    static struct options options;
    char *words[MAX_WORDS + 1] = {NULL};
    int n = 0;
    if (size > 4096) return 0;
    words[n++] = strdup("plumb");
    for (size_t at = 0; at < size && n < MAX_WORDS; n++) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t length = end ? (size_t)(end - (data + at)) : size - at;
        words[n] = malloc(length + 1);   /* the exact size, so that a read past it is detected */
        require(words[n] != NULL, "no memory");
        memcpy(words[n], data + at, length);
        words[n][length] = 0;
        at += length + 1;
    }
    int code = -1;
    exit_failed = 1;
    quiet_begin();
    bool ok = parse_options(n, words, &options, &code);
    quiet_end(&said);
    size_t n_line = 0;
    for (size_t i = 0; i < said.n_err; i++) n_line += said.err[i] == '\n';
    if (ok) {
        require(said.n_out == 0 && said.n_err == 0, "something was said of options that are taken");
        check_options(&options, words, n);
    } else if (code == EXIT_OK) {
        require(said.n_out > 0 && said.n_err == 0, "help without a text");
    } else {
        require(code == EXIT_USAGE && said.n_out == 0 && n_line == 1, "not one line of what is wrong, and exit code 2");
    }
    /* The words after the model are joined in memory that the command owns. */
    bool joined = !is_word(words, n, options.prompt);
    require(!joined || options.command == COMMAND_RUN, "a prompt of no word");
    if (joined) free((void *)options.prompt);
    for (int i = 0; i < n; i++) free(words[i]);
    return 0;
}

/* Any bytes as the saved run that `plumb perplexity --kl` compares with.
 *
 *   flags | the file.      flags: 1 JSON, 2 --ctx 8, 4 one chunk
 *
 * The command prints a comparison, or exits 1 with one line that says what is wrong with the file.  Divergences are
 * numbers, and none is below 0 by more than the file's rounding.
 */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"

#include "fuzz.h"
#include "quiet.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/* A model of one layer and 17 tokens, and a text of 24 of them (tests/fuzz/seeds.py). */
#define MODEL "tests/fuzz/tiny.gguf"
static const char text[] = "abcdabcdefghabcdefghijkl";

static char text_path[] = "/tmp/plumb-fuzz-text-XXXXXX", base_path[] = "/tmp/plumb-fuzz-base-XXXXXX";

static void clean_up(void) {
    unlink(text_path);
    unlink(base_path);
}

/* A temporary file with these bytes; the first call creates it. */
static void write_file(int *fd, char *path, const void *bytes, size_t n) {
    if (*fd == 0) *fd = mkstemp(path);
    require(*fd > 0 && ftruncate(*fd, 0) == 0 && pwrite(*fd, bytes, n, 0) == (ssize_t)n, "no temporary file");
}

static double number_behind(const char *s, const char *name) {
    const char *at = strstr(s, name);
    require(at != NULL, "a number is missing");
    return strncmp(at + strlen(name), "null", 4) == 0 ? (double)NAN : strtod(at + strlen(name), NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct said said;
    static int text_fd, base_fd;
    if (size < 1 || size > 1 << 16) return 0;
    if (text_fd == 0) {
        atexit(clean_up);
        write_file(&text_fd, text_path, text, sizeof text - 1);
    }
    write_file(&base_fd, base_path, data + 1, size - 1);
    struct options o = { .command = COMMAND_PERPLEXITY, .files = { MODEL }, .n_file = 1, .text = text_path,
                         .base = base_path, .n_chunk = data[0] & 4 ? 1 : UINT32_MAX, .n_ctx = data[0] & 2 ? 8 : 0,
                         .n_thread = 1, .precision = PLUMB_PRECISION_EXACT16, .json = data[0] & 1 };
    quiet_begin();
    int code = run_perplexity(&o);
    quiet_end(&said);
    size_t n_line = 0;
    for (size_t i = 0; i < said.n_err; i++) n_line += said.err[i] == '\n';
    if (code == EXIT_OK) {
        require(said.n_err == 0 && said.n_out > 0, "no comparison");
        if (o.json) {
            double mean = number_behind(said.out, "\"kl\": {\"mean\": ");
            require(mean > -1e-2, "a divergence below 0, or that is no number");
        }
    } else {
        require(code == exit_failed && said.n_out == 0 && n_line == 1,
                "not one line of what is wrong, and exit code 1");
    }
    return 0;
}

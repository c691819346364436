/* Replaces libFuzzer's main: runs a fuzz target over the named files, one TAP line each, so that the tests can replay
 * the corpus with any compiler.  The sanitizers detect errors of the target. */
#include "fuzz.h"

/* The bytes of a file in a block of exactly its size, so that a read past it is detected; NULL if unreadable. */
static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    uint8_t *data = NULL;
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (end >= 0 && fseek(file, 0, SEEK_SET) == 0 && (data = malloc((size_t)end)) != NULL) {
        *size = fread(data, 1, (size_t)end, file);
        if (*size != (size_t)end) {
            free(data);
            data = NULL;
        }
    }
    fclose(file);
    return data;
}

bool fuzz_replays(void);
bool fuzz_replays(void) { return true; }

int main(int argc, char **argv) {
    int failed = 0;
    printf("TAP version 13\n1..%d\n", argc - 1);
    for (int i = 1; i < argc; i++) {
        printf("# replays %s\n", argv[i]);
        fflush(stdout);  /* must be visible if the next call does not return */
        size_t size = 0;
        uint8_t *data = read_file(argv[i], &size);
        if (data) LLVMFuzzerTestOneInput(data, size);
        else failed++;
        printf("%sok %d - %s\n", data ? "" : "not ", i, argv[i]);
        free(data);
    }
    return failed != 0;
}

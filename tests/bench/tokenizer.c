/* `make bench-tokenizer`: the time that the texts of tests/adversary.h take with every kind of tokenizer. */
#include "../adversary.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1 << 20;
    double slowest = 0;
    printf("CPU seconds for texts of %zu bytes: SentencePiece, and the slowest of all others\n", n);
    for (const struct adversary *a = adversaries; a->name; a++) {
        double spm = 0, worst = 0;
        const char *of = "";
        for (const char *const *kind = adversary_kinds; !*kind || **kind; kind++) {
            struct attack attack;
            struct error err = {PLUMB_OK, ""};
            if (!attack_create(&attack, a, *kind, n)) return 1;
            clock_t start = clock();   /* CPU time of this program, independent of other load */
            int64_t n_id = tokenizer_encode(attack.t, attack.text, n, PLUMB_PARSE_SPECIAL, NULL, 0, &err);
            double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
            attack_free(&attack);
            if (n_id == PLUMB_ERROR_TOKENIZER) continue;   /* too many tokens at one place */
            if (n_id < 0) return 1;
            if (seconds > slowest) slowest = seconds;
            if (!*kind) spm = seconds;
            else if (seconds > worst) {
                worst = seconds;
                of = *kind;
            }
        }
        printf("%-52s %6.3f %6.3f  %s\n", a->name, spm, worst, of);
        fflush(stdout);
    }
    printf("the slowest of all: %.3f s\n", slowest);
    return 0;
}

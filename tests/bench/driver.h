/* The program that make bench runs natively and under wasmtime: a loop around an engine that reads commands from
 * standard input and answers on standard output.  plumb.c and llama.c are the engines, so the same code times both.
 *
 *   command                                    answer, one line of JSON
 *   (at the start)                             {"load_seconds": s, "about": "what runs"}
 *   ids N id id ... id                         {"n": N}         the tokens that the other commands feed
 *   prefill N                                  {"seconds": s}   the first N at once into an empty context
 *   decode CTX STEPS                           {"seconds": s}   STEPS one by one after CTX, which are fed untimed
 *
 * A failure is answered by {"error": "..."}.  The end of the input ends the program. */
#ifndef BENCH_DRIVER_H
#define BENCH_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

struct engine {
    /* Both return NULL, or an error message. */
    const char *(*open)(const char *path, uint32_t n_ctx, uint32_t n_thread);
    const char *(*feed)(const int32_t *ids, uint32_t n);   /* after the tokens fed before; logits of the last one */
    uint32_t (*rewind)(uint32_t n_past);   /* returns how many tokens are left: those, or none if it must begin anew */
    const char *(*about)(void);
};

/* argv: MODEL N_CTX N_THREAD.  Returns the exit code. */
int drive(const struct engine *engine, int argc, char **argv);

#endif

/* A pool of threads that share a loop: pool_run(pool, n, ...) computes work over 0 .. n - 1 in chunks, each chunk by
 * whichever thread comes first.  What a chunk computes must not depend on the thread, nor on the other chunks, so that
 * results are the same with any number of threads.
 *
 * The caller's thread is thread 0 and works too.  Where no threads can be had, or only one was asked for, the pool is
 * NULL, which every function takes: the loop then runs in the caller's thread alone, as a plain call.
 *
 * Natively pool_create starts threads (POSIX).  A WebAssembly module cannot: its host instantiates it once more on the
 * same memory in each of its workers, which call pool_serve, and tells it by pool_hire.  A module without atomics has
 * one thread.
 */
#ifndef PLUMB_THREADS_POOL_H
#define PLUMB_THREADS_POOL_H

#include "base/base.h"

enum { POOL_MAX_THREADS = 64 };

struct pool;

/* Computes indices begin .. end - 1; thread < pool_size.  Must not call pool_run. */
typedef void pool_work(void *user, uint32_t begin, uint32_t end, uint32_t thread);

/* A pool of n_thread threads or as many as can be had, at most POOL_MAX_THREADS; 0: of as many as are at hand, natively
 * one for each processor that the process may use (processors.h).
 * One thread at a time may use it, and in WebAssembly one of all pools. */
struct pool *pool_create(uint32_t n_thread);
/* Ends its threads; not those of a WebAssembly host. */
void pool_free(struct pool *pool);
/* 1 for NULL. */
uint32_t pool_size(const struct pool *pool);
/* How many times a thread other than the caller's has taken part in a loop, over all threads and loops so far: the
 * caller's thread may do a whole loop before the others are awake. */
uint32_t pool_n_taken(const struct pool *pool);

/* Calls work for chunks of grain (> 0) indices, the last one shorter, that cover 0 .. n - 1 once, and returns when all
 * are done: whatever they wrote is then seen by the caller and by every later pool_run.  n <= grain: one plain call. */
void pool_run(struct pool *pool, uint32_t n, uint32_t grain, pool_work *work, void *user);
/* The same in some chunks for each thread, so that one that comes late does not hold up the others. */
static inline void pool_share(struct pool *pool, uint32_t n, pool_work *work, void *user) {
    uint32_t grain = n / (pool_size(pool) * 4);
    pool_run(pool, n, grain > 0 ? grain : 1, work, user);
}

/* WebAssembly with atomics only: threads 1 .. n_thread - 1 serve or soon will, so pools may have n_thread, at most
 * POOL_MAX_THREADS. */
void pool_hire(uint32_t n_thread);
/* The life of such a thread: works in the loops of all pools until pool_dismiss, after which no loop may begin. */
void pool_serve(uint32_t thread);
void pool_dismiss(void);
/* It has trapped: the pool_run that waits for it traps too. */
void pool_break(void);

#endif

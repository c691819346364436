/* A pool of threads that share a loop.  pool_run(pool, n, ...) computes 0 .. n - 1 in chunks, and each chunk is
 * computed by whichever thread is free first.  What a chunk computes must not depend on the thread or on the other
 * chunks, so that results are the same with any number of threads.
 *
 * The caller's thread is thread 0 and works too.  If no threads can be started, or only one was asked for, the pool is
 * NULL.  Every function accepts NULL: the loop then runs in the caller's thread as a plain call.
 *
 * Natively, pool_create starts POSIX threads.  A WebAssembly module cannot start threads.  Its host instantiates the
 * module once more in each of its workers, on the same memory; the workers call pool_serve, and the host says how many
 * there are by pool_set_ready.  A module without atomics has one thread.
 */
#ifndef PLUMB_THREADS_POOL_H
#define PLUMB_THREADS_POOL_H

#include "base/base.h"

struct pool;

/* Computes indices begin .. end - 1; thread < pool_size.  Must not call pool_run. */
typedef void pool_work(void *user, uint32_t begin, uint32_t end, uint32_t thread);

/* A pool of n_thread threads, or of as many as can be started, at most PLUMB_MAX_THREADS.  0: natively one thread for
 * each processor that the process may use (processors.h), in WebAssembly as many as the host has.
 * Only one thread at a time may use a pool; in WebAssembly only one pool at a time may run. */
struct pool *pool_create(uint32_t n_thread);
/* Ends its threads, but not those of a WebAssembly host. */
void pool_free(struct pool *pool);
/* 1 for NULL. */
uint32_t pool_size(const struct pool *pool);
/* How many times threads other than the caller's have taken part in a loop, summed over all loops so far.  The caller's
 * thread may finish a loop before the others are awake. */
uint32_t pool_n_taken(const struct pool *pool);

/* Calls work for chunks that cover 0 .. n - 1 once.  Returns when all are done.  The caller and every later pool_run
 * see whatever they wrote.
 * cost: of one index, in multiplications of a matrix product, of which a thread does some 30 in a nanosecond, or in
 * POOL_ELEMENT for each element that it reads, changes and writes otherwise.  Only the speed depends on it: a loop that
 * is not worth the start of threads is one plain call, and no chunk is shorter than claiming it is worth. */
void pool_run(struct pool *pool, uint32_t n, uint64_t cost, pool_work *work, void *user);
enum { POOL_ELEMENT = 32 };

/* The functions below are for WebAssembly with atomics only; elsewhere they do nothing. */

/* Threads 1 .. n_thread - 1 call pool_serve now or soon, so pools may have n_thread threads, at most
 * PLUMB_MAX_THREADS. */
void pool_set_ready(uint32_t n_thread);
/* Runs in such a thread: it works in the loops of all pools until pool_dismiss, after which no loop may begin. */
void pool_serve(uint32_t thread);
void pool_dismiss(void);
/* A thread has trapped: the pool_run that waits for it traps too. */
void pool_break(void);

#endif

/* What the threads of a pool share, and where threads come from: POSIX threads, the workers of a WebAssembly host, or
 * none. */
/* Compiled for speed. */
#include "threads/pool.h"

#include "threads/processors.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__wasm_atomics__)
#define POOL_WASM 1
#elif !defined(__wasm__)
#define POOL_POSIX 1
#include <pthread.h>
#endif

#if POOL_WASM || POOL_POSIX

/* How often a thread that waits reads the word it waits for before it goes to sleep: for about 40 microseconds (Zen 5:
 * one read takes 0.28 ns in V8, and 26 ns with the pause instruction of x86).  Going to sleep and being woken takes 5
 * microseconds or more, while threads that are awake begin and end a loop together in 0.25.
 * SmolLM2 Q4_0 decodes with 2 threads on an idle machine (Node 24, medians), by microseconds of spinning:
 *     0: 163 tokens/s    10: 216    40: 245    100: 254    200: 254 */
#if POOL_WASM
enum { SPINS = 150000 };
#else
enum { SPINS = 1500 };
#endif
/* On a busy machine spinning keeps the processor from the very thread that is waited for.  After MAX_FAILED waits in a
 * row that ended in sleep, only every RETRY-th wait spins first.  Beside one busy program that gives 94 tokens/s,
 * against 84 for threads that always spin, 78 for those that spin 100 microseconds, and 97 for those that never do. */
enum { MAX_FAILED = 2, RETRY = 16 };

/* What the threads share.  Each word that several of them write has a cache line of its own. */
struct workers {
    /* The loop.  It is constant while there are chunks that are not done, so only a thread that has claimed a chunk may
     * read it. */
    pool_work *work;
    void *user;
    uint32_t n, grain;
    /* n_thread << 56 | n_chunk << 28 | chunks claimed.  One word says whether a chunk may be claimed and by whom, and
     * the claim changes that word.  So a thread that comes late claims a chunk of the current loop or nothing, and
     * nobody waits for threads that sleep. */
    _Alignas(64) _Atomic uint64_t claims;
    _Alignas(64) _Atomic uint32_t n_done;      /* chunks */
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t n_run;       /* loops so far: idle threads wait until this changes */
    _Atomic uint32_t n_sleeping;
    _Atomic uint32_t end;
    struct { _Alignas(64) _Atomic uint32_t n; } taken[PLUMB_MAX_THREADS];   /* loops that each thread took part in */
#if POOL_POSIX
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t threads[PLUMB_MAX_THREADS];
    struct slot { struct workers *workers; uint32_t thread; } slots[PLUMB_MAX_THREADS];
#endif
};

struct pool {
    struct workers *workers;
    uint32_t n_thread;
    uint32_t n_failed;   /* the caller's, as in await_change */
    void *memory;        /* what contains the workers, to be freed */
};

enum { CLAIM_BITS = 28 };
static const uint32_t CLAIM_MAX = (UINT32_C(1) << CLAIM_BITS) - 1;
/* A bit of n_done: a thread has trapped while it computed a chunk. */
static const uint32_t BROKEN = UINT32_C(1) << 31;

/* ---- waiting for a word to change -------------------------------------------------------------------------------- */

#if POOL_WASM
static void sleep_while(struct workers *w, _Atomic uint32_t *word, uint32_t value) {
    (void)w;
    __builtin_wasm_memory_atomic_wait32((int *)(void *)word, (int)value, -1);
}

static void wake(struct workers *w, _Atomic uint32_t *word, uint32_t n) {
    (void)w;
    __builtin_wasm_memory_atomic_notify((int *)(void *)word, n);
}

static void pause_briefly(void) {}
#else
static void sleep_while(struct workers *w, _Atomic uint32_t *word, uint32_t value) {
    pthread_mutex_lock(&w->mutex);
    while (atomic_load(word) == value) pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}

/* There is one condition for both words, so every sleeping thread reads its word again. */
static void wake(struct workers *w, _Atomic uint32_t *word, uint32_t n) {
    (void)word, (void)n;
    pthread_mutex_lock(&w->mutex);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
#endif

/* Returns when *word is not value.  n_asleep counts the threads that must be woken.  A thread raises it before it reads
 * the word for the last time, and whoever changes the word reads the count afterwards.  All of these are sequentially
 * consistent, so at least one of the two sees the other.
 * *n_failed: waits of this thread that ended in sleep, since the last one that did not. */
static void await_change(struct workers *w, _Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *n_asleep,
                         uint32_t *n_failed) {
    for (uint32_t i = *n_failed < MAX_FAILED || *n_failed % RETRY == 0 ? 0 : SPINS; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) {
            *n_failed = 0;
            return;
        }
        pause_briefly();
    }
    ++*n_failed;
    atomic_fetch_add(n_asleep, 1);
    while (atomic_load(word) == value) sleep_while(w, word, value);
    atomic_fetch_sub(n_asleep, 1);
}

/* ---- a loop ------------------------------------------------------------------------------------------------------ */

/* What a loop must cost to be worth the start of threads, and what a chunk must cost for each thread that may claim at
 * the same moment: 5 and 0.1 microseconds. */
enum { WORTH = 150000, CLAIM = 3000 };

static bool claim(struct workers *w, uint32_t thread, uint32_t *chunk, uint32_t *n_chunk) {
    uint64_t claims = atomic_load_explicit(&w->claims, memory_order_relaxed);
    do {
        *chunk = (uint32_t)claims & CLAIM_MAX;
        *n_chunk = (uint32_t)(claims >> CLAIM_BITS) & CLAIM_MAX;
        if (*chunk >= *n_chunk || thread >= claims >> 2 * CLAIM_BITS) return false;
    } while (!atomic_compare_exchange_weak_explicit(&w->claims, &claims, claims + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    return true;
}

/* Computes chunks until none is left, and then counts its chunks as done, all at once.  The loop cannot end before
 * that, so all of these chunks belong to the same loop. */
static void run_chunks(struct workers *w, uint32_t thread) {
    uint32_t chunk, n_chunk, n_own = 0;
    for (uint32_t loop_n_chunk; claim(w, thread, &chunk, &loop_n_chunk); n_own++) {
        uint32_t begin = chunk * w->grain;
        w->work(w->user, begin, w->n - begin < w->grain ? w->n : begin + w->grain, thread);
        n_chunk = loop_n_chunk;
    }
    if (n_own == 0) return;
    _Atomic uint32_t *taken = &w->taken[thread].n;   /* written by this thread alone */
    atomic_store_explicit(taken, atomic_load_explicit(taken, memory_order_relaxed) + 1, memory_order_relaxed);
    bool last = atomic_fetch_add(&w->n_done, n_own) + n_own == n_chunk;
    if (last && atomic_load(&w->caller_sleeps)) wake(w, &w->n_done, 1);
}

static void serve(struct workers *w, uint32_t thread) {
    uint32_t n_failed = 0;
    for (;;) {
        uint32_t n_run = atomic_load(&w->n_run);   /* read before looking for work: a later loop changes it */
        if (atomic_load(&w->end)) return;
        run_chunks(w, thread);
        await_change(w, &w->n_run, n_run, &w->n_sleeping, &n_failed);
    }
}

/* Makes serve return in all threads. */
static void dismiss(struct workers *w) {
    atomic_store(&w->end, 1);
    atomic_fetch_add(&w->n_run, 1);
    wake(w, &w->n_run, UINT32_MAX);
}

void pool_run(struct pool *pool, uint32_t n, uint64_t cost, pool_work *work, void *user) {
    if (!pool || n <= 1 || cost < WORTH / n) {
        if (n > 0) work(user, 0, n, 0);
        return;
    }
    struct workers *w = pool->workers;
    w->work = work;
    w->user = user;
    w->n = n;
    /* Four chunks for each thread, so that one that starts late does not hold up the others. */
    uint32_t grain = n / (pool->n_thread * 4), least = (uint32_t)(pool->n_thread * CLAIM / (cost > 0 ? cost : 1)) + 1;
    w->grain = grain > least ? grain : least;
    if ((n - 1) / w->grain >= CLAIM_MAX) w->grain = (n - 1) / CLAIM_MAX + 1;
    uint32_t n_chunk = (n - 1) / w->grain + 1;
    atomic_store_explicit(&w->n_done, 0, memory_order_relaxed);
    atomic_store_explicit(&w->claims, (uint64_t)pool->n_thread << 2 * CLAIM_BITS | (uint64_t)n_chunk << CLAIM_BITS,
                          memory_order_release);
    atomic_fetch_add(&w->n_run, 1);
    if (atomic_load(&w->n_sleeping)) wake(w, &w->n_run, UINT32_MAX);
    run_chunks(w, 0);
    for (uint32_t n_done; (n_done = atomic_load_explicit(&w->n_done, memory_order_acquire)) < n_chunk;) {
        await_change(w, &w->n_done, n_done, &w->caller_sleeps, &pool->n_failed);
    }
    if (atomic_load_explicit(&w->n_done, memory_order_relaxed) & BROKEN) __builtin_trap();
}

/* ---- starting threads -------------------------------------------------------------------------------------------- */

#if POOL_WASM
static struct workers host_workers;
static uint32_t n_ready = 1;

void pool_set_ready(uint32_t n_thread) {
    n_ready = n_thread < 1 ? 1 : n_thread < PLUMB_MAX_THREADS ? n_thread : PLUMB_MAX_THREADS;
}
/* A thread beyond the limit gets no work. */
void pool_serve(uint32_t thread) {
    if (thread < PLUMB_MAX_THREADS) serve(&host_workers, thread);
}
void pool_dismiss(void) { dismiss(&host_workers); }

void pool_break(void) {
    atomic_fetch_or(&host_workers.n_done, BROKEN);
    wake(&host_workers, &host_workers.n_done, 1);
}

struct pool *pool_create(uint32_t n_thread) {
    if (n_thread == 0 || n_thread > n_ready) n_thread = n_ready;
    struct pool *pool = n_thread > 1 ? malloc(sizeof *pool) : NULL;
    if (pool) *pool = (struct pool) { &host_workers, n_thread, 0, NULL };
    return pool;
}

void pool_free(struct pool *pool) { free(pool); }
#else
static void *thread_main(void *user) {
    struct slot *slot = user;
    serve(slot->workers, slot->thread);
    return NULL;
}

struct pool *pool_create(uint32_t n_thread) {
    if (n_thread == 0) n_thread = processors_usable();
    if (n_thread > PLUMB_MAX_THREADS) n_thread = PLUMB_MAX_THREADS;
    if (n_thread <= 1) return NULL;
    struct pool *pool = malloc(sizeof *pool);
    /* Not every system has aligned_alloc. */
    const uintptr_t align = _Alignof(struct workers);
    void *memory = malloc(sizeof(struct workers) + align);
    if (!pool || !memory) goto none;
    struct workers *w = (struct workers *)(((uintptr_t)memory + align - 1) / align * align);
    memset(w, 0, sizeof *w);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    *pool = (struct pool) { w, 1, 0, memory };
    for (; pool->n_thread < n_thread; pool->n_thread++) {
        uint32_t thread = pool->n_thread;
        w->slots[thread] = (struct slot) { w, thread };
        if (pthread_create(&w->threads[thread], NULL, thread_main, &w->slots[thread]) != 0) break;
    }
    if (pool->n_thread > 1) return pool;
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
none:
    free(memory);
    free(pool);
    return NULL;
}

void pool_free(struct pool *pool) {
    if (!pool) return;
    struct workers *w = pool->workers;
    dismiss(w);
    for (uint32_t i = 1; i < pool->n_thread; i++) pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    free(pool->memory);
    free(pool);
}

void pool_set_ready(uint32_t n_thread) { (void)n_thread; }
void pool_serve(uint32_t thread) { (void)thread; }
void pool_dismiss(void) {}
void pool_break(void) {}
#endif

uint32_t pool_size(const struct pool *pool) { return pool ? pool->n_thread : 1; }

uint32_t pool_n_taken(const struct pool *pool) {
    uint32_t n = 0;
    for (uint32_t i = 1; pool && i < pool->n_thread; i++) n += atomic_load(&pool->workers->taken[i].n);
    return n;
}

#else   /* one thread */

struct pool { uint32_t n_thread; };

struct pool *pool_create(uint32_t n_thread) { (void)n_thread; return NULL; }
void pool_free(struct pool *pool) { (void)pool; }
uint32_t pool_size(const struct pool *pool) { (void)pool; return 1; }
uint32_t pool_n_taken(const struct pool *pool) { (void)pool; return 0; }
void pool_set_ready(uint32_t n_thread) { (void)n_thread; }
void pool_serve(uint32_t thread) { (void)thread; }
void pool_dismiss(void) {}
void pool_break(void) {}

void pool_run(struct pool *pool, uint32_t n, uint64_t cost, pool_work *work, void *user) {
    assert(!pool);
    (void)pool, (void)cost;
    if (n > 0) work(user, 0, n, 0);
}

#endif

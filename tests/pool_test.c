/* The pool: every index once, later loops see what earlier ones wrote, any number of threads. */
#include "base/pool.h"
#include "test.h"

#include <stdlib.h>

enum { N = 1000 };

struct counts {
    uint32_t n_thread, n, grain;
    uint32_t times[N];           /* each index is touched by one thread only, or the test fails (and ThreadSanitizer) */
    uint32_t bad;                /* chunks out of shape, counted at their first index */
};

static void count(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    struct counts *c = user;
    bool whole = begin == 0 && end == c->n && c->n_thread == 1;   /* one thread is one plain call */
    if (!whole && (begin % c->grain != 0 || end > c->n || end - begin > c->grain)) c->bad = begin + 1;
    if (thread >= c->n_thread) c->bad = begin + 1;
    for (uint32_t i = begin; i < end; i++) c->times[i]++;
}

static void every_index_once(void) {
    static const uint32_t grains[] = {1, 3, 16, 250, 999, 1000, 5000}, sizes[] = {0, 1, 2, 17, 999, 1000};
    for (uint32_t n_thread = 1; n_thread <= 4; n_thread++) {
        struct pool *pool = pool_create(n_thread);
        for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                struct counts c = {pool_size(pool), sizes[s], grains[g], {0}, 0};
                for (uint32_t round = 0; round < 3; round++) pool_run(pool, c.n, c.grain, count, &c);
                uint32_t wrong = 0;
                for (uint32_t i = 0; i < N; i++) wrong += c.times[i] != (i < c.n ? 3 : 0);
                CHECK(wrong == 0 && c.bad == 0, "%u threads, %u indices by %u: %u wrong, a bad chunk near %u",
                      c.n_thread, c.n, c.grain, wrong, c.bad);
            }
        }
        pool_free(pool);
    }
}

struct chain { const uint64_t *in; uint64_t *out; };

/* Each value needs two that other threads may have written in the loop before. */
static void step(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    (void)thread;
    const struct chain *c = user;
    for (uint32_t i = begin; i < end; i++) c->out[i] = c->in[N - 1 - i] * 6364136223846793005u + c->in[(i + 1) % N];
}

static void run_chain(struct pool *pool, uint32_t n_loop, uint32_t grain, uint64_t a[N]) {
    uint64_t b[N];
    for (uint32_t i = 0; i < N; i++) a[i] = i;
    for (uint32_t k = 0; k < n_loop; k += 2) {
        pool_run(pool, N, grain, step, &(struct chain) {a, b});
        pool_run(pool, N, grain, step, &(struct chain) {b, a});
    }
}

static void later_loops_see_earlier(void) {
    static uint64_t want[N], got[N];
    enum { LOOPS = 3000 };
    run_chain(NULL, LOOPS, 1, want);
    for (uint32_t n_thread = 2; n_thread <= 4; n_thread++) {
        struct pool *pool = pool_create(n_thread);
        for (uint32_t grain = 30; grain <= 600; grain *= 4) {
            run_chain(pool, LOOPS, grain, got);
            CHECK(memcmp(want, got, sizeof want) == 0, "%u threads, chunks of %u", pool_size(pool), grain);
        }
        pool_free(pool);
    }
}

static void sleep_a_little(void) {
    volatile uint32_t x = 0;
    for (uint32_t i = 0; i < 3000000; i++) x = x + i;
}

/* Between loops the threads fall asleep; none may sleep through the next one. */
static void sleepers_wake(void) {
    static struct counts c;
    struct pool *pool = pool_create(4);
    c = (struct counts) {pool_size(pool), N, 10, {0}, 0};
    for (uint32_t round = 0; round < 30; round++) {
        sleep_a_little();
        pool_run(pool, c.n, c.grain, count, &c);
    }
    for (uint32_t i = 0; i < N; i++) CHECK(c.times[i] == 30, "index %u: %u times of 30", i, c.times[i]);
    pool_free(pool);
}

static void pools_share(void) {
    struct pool *large = pool_create(4), *small = pool_create(2);
    static struct counts a, b;
    a = (struct counts) {pool_size(large), N, 7, {0}, 0};
    b = (struct counts) {pool_size(small), N, 7, {0}, 0};
    CHECK(pool_size(small) <= 2 && pool_size(large) >= pool_size(small), "sizes %u and %u", pool_size(small),
          pool_size(large));
    for (uint32_t round = 0; round < 500; round++) {
        pool_run(large, N, 7, count, &a);
        pool_run(small, N, 7, count, &b);
    }
    for (uint32_t i = 0; i < N; i++) CHECK(a.times[i] == 500 && b.times[i] == 500, "index %u", i);
    CHECK(!a.bad && !b.bad, "a thread beyond its pool: near %u, %u", a.bad, b.bad);
    pool_free(large);
    pool_free(small);
}

void test_pool(void) {
    test_case("pool: every index once, by 1 to 4 threads", every_index_once);
    test_case("pool: later loops see what earlier ones wrote", later_loops_see_earlier);
    test_case("pool: threads that sleep are woken", sleepers_wake);
    test_case("pool: a small and a large pool take turns", pools_share);
}

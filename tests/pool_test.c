/* The pool: every index once, later loops see what earlier ones wrote, any number of threads. */
#define _GNU_SOURCE  /* sched_setaffinity */
#include "threads/pool.h"
#include "threads/processors.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#if defined(__linux__)
#include <sched.h>
#endif

enum { N = 1000 };

/* The cost of an index for which every loop is worth threads. */
static const uint64_t LONG = UINT64_MAX;

struct counts {
    uint32_t n_thread, n;
    uint32_t times[N];           /* only one thread writes each index, else the test and ThreadSanitizer fail */
    uint32_t length[N];          /* of the chunk that begins there */
    uint32_t bad;                /* chunks of a wrong thread or without indices, counted at their first index */
};

static void count(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    struct counts *c = user;
    if (begin >= end || end > c->n || thread >= c->n_thread) c->bad = begin + 1;
    c->length[begin] = end - begin;
    for (uint32_t i = begin; i < end; i++) c->times[i]++;
}

/* Returns the first index of a chunk that is not as long as the first one, plus 1, or 0 if there is none.  Only the
 * last chunk may be shorter.  *n: how many there are. */
static uint32_t unequal_chunk(const struct counts *c, uint32_t *n) {
    *n = 0;
    for (uint32_t i = 0; i < c->n && c->length[i] > 0; i += c->length[i], ++*n) {
        uint32_t size = c->n - i < c->length[0] ? c->n - i : c->length[0];
        if (c->length[i] != size) return i + 1;
    }
    return 0;
}

/* Every case with more than one thread relies on this.  In WebAssembly the host gives the number of threads. */
static void starts_threads(void) {
    for (uint32_t n_thread = 1; n_thread <= 4; n_thread++) {
        struct pool *pool = pool_create(n_thread);
        uint32_t n = pool_size(pool);
#if defined(__wasm__)
        CHECK(n == 1 || n == n_thread, "%u threads, %u were asked for", n, n_thread);
#else
        CHECK(n == n_thread, "%u threads, %u were asked for", n, n_thread);
#endif
        pool_free(pool);
    }
}

static void every_index_once(void) {
    static const uint64_t costs[] = {0, 1, 149, 150, 3000, 12345, 75000, UINT32_MAX, LONG};
    static const uint32_t sizes[] = {0, 1, 2, 17, 999, 1000};
    for (uint32_t n_thread = 1; n_thread <= 4; n_thread++) {
        struct pool *pool = pool_create(n_thread);
        for (size_t g = 0; g < sizeof costs / sizeof *costs; g++) {
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                struct counts c = {pool_size(pool), sizes[s], {0}, {0}, 0};
                for (uint32_t round = 0; round < 3; round++) pool_run(pool, c.n, costs[g], count, &c);
                uint32_t wrong = 0, n_chunk, unequal = unequal_chunk(&c, &n_chunk);
                for (uint32_t i = 0; i < N; i++) wrong += c.times[i] != (i < c.n ? 3 : 0);
                CHECK(wrong == 0 && c.bad == 0 && unequal == 0, "%u threads, %u indices of %g: %u wrong, a bad chunk "
                      "near %u, one of another length near %u", c.n_thread, c.n, (double)costs[g], wrong, c.bad,
                      unequal);
                /* One thread, one index or little work: one call.  Long work: four chunks for each thread, or one for
                 * each index. */
                bool is_one = c.n_thread == 1 || c.n < 2 || costs[g] == 0;
                uint32_t least = costs[g] != LONG ? 1 : c.n < 4 * c.n_thread ? c.n : 4 * c.n_thread;
                CHECK(is_one ? n_chunk == (c.n > 0) : n_chunk >= least, "%u threads, %u indices of %g: %u chunks",
                      c.n_thread, c.n, (double)costs[g], n_chunk);
            }
        }
        pool_free(pool);
    }
}

struct chain { const uint64_t *in; uint64_t *out; };

/* Each value depends on two that other threads may have written in the previous loop. */
static void step(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    (void)thread;
    const struct chain *c = user;
    for (uint32_t i = begin; i < end; i++) c->out[i] = c->in[N - 1 - i] * 6364136223846793005u + c->in[(i + 1) % N];
}

static void run_chain(struct pool *pool, uint32_t n_loop, uint64_t cost, uint64_t a[N]) {
    uint64_t b[N];
    for (uint32_t i = 0; i < N; i++) a[i] = i;
    for (uint32_t k = 0; k < n_loop; k += 2) {
        pool_run(pool, N, cost, step, &(struct chain) {a, b});
        pool_run(pool, N, cost, step, &(struct chain) {b, a});
    }
}

static void later_loops_see_earlier(void) {
    static uint64_t want[N], got[N];
    enum { LOOPS = 3000 };
    run_chain(NULL, LOOPS, 1, want);
    for (uint32_t n_thread = 2; n_thread <= 4; n_thread++) {
        struct pool *pool = pool_create(n_thread);
        for (uint64_t cost = 150; cost <= 15000; cost *= 10) {
            run_chain(pool, LOOPS, cost, got);
            CHECK(memcmp(want, got, sizeof want) == 0, "%u threads, cost %u", pool_size(pool), (uint32_t)cost);
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
    c = (struct counts) {pool_size(pool), N, {0}, {0}, 0};
    for (uint32_t round = 0; round < 30; round++) {
        sleep_a_little();
        pool_run(pool, c.n, LONG, count, &c);
    }
    for (uint32_t i = 0; i < N; i++) CHECK(c.times[i] == 30, "index %u: %u times of 30", i, c.times[i]);
    pool_free(pool);
}

static void pools_share(void) {
    struct pool *large = pool_create(4), *small = pool_create(2);
    static struct counts a, b;
    a = (struct counts) {pool_size(large), N, {0}, {0}, 0};
    b = (struct counts) {pool_size(small), N, {0}, {0}, 0};
    CHECK(pool_size(small) <= 2 && pool_size(large) >= pool_size(small), "sizes %u and %u", pool_size(small),
          pool_size(large));
    for (uint32_t round = 0; round < 500; round++) {
        pool_run(large, N, LONG, count, &a);
        pool_run(small, N, LONG, count, &b);
    }
    for (uint32_t i = 0; i < N; i++) CHECK(a.times[i] == 500 && b.times[i] == 500, "index %u", i);
    CHECK(!a.bad && !b.bad, "a thread beyond its pool: near %u, %u", a.bad, b.bad);
    pool_free(large);
    pool_free(small);
}

/* ---- how many threads -------------------------------------------------------------------------------------------- */

/* A host may report more threads than PLUMB_MAX_THREADS.  The rest are not used, because the word that holds the claims
 * has no room for 256. */
static void has_at_most(void) {
    struct pool *all = pool_create(0);
    uint32_t n_before = pool_size(all);
    pool_free(all);
    static const uint32_t numbers[] = {0, 65, 255, 256, 257, UINT32_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        pool_set_ready(numbers[i]);
        struct pool *pool = pool_create(PLUMB_MAX_THREADS);
        struct counts c = {pool_size(pool), N, {0}, {0}, 0};
        CHECK(c.n_thread >= 1 && c.n_thread <= PLUMB_MAX_THREADS, "%u ready: %u threads", numbers[i], c.n_thread);
        if (c.n_thread <= PLUMB_MAX_THREADS) {
            pool_run(pool, N, LONG, count, &c);
            uint32_t wrong = 0;
            for (uint32_t k = 0; k < N; k++) wrong += c.times[k] != 1;
            CHECK(wrong == 0 && c.bad == 0, "%u ready: %u indices wrong", numbers[i], wrong);
        }
        pool_free(pool);
    }
    pool_set_ready(n_before);
    all = pool_create(1000);
    CHECK(pool_size(all) <= PLUMB_MAX_THREADS, "%u threads", pool_size(all));
    pool_free(all);
}

static void counts_who_takes_part(void) {
    struct pool *pool = pool_create(4);
    CHECK(pool_n_taken(NULL) == 0, "no pool");
    static struct counts c;
    c = (struct counts) {pool_size(pool), N, {0}, {0}, 0};
    uint32_t before = pool_n_taken(pool);
    for (uint32_t round = 0; round < 100000 && c.n_thread > 1 && pool_n_taken(pool) == before; round++) {
        pool_run(pool, c.n, LONG, count, &c);
    }
    CHECK(pool_n_taken(pool) > before || c.n_thread == 1, "no other thread took part in 100000 loops");
    pool_free(pool);
}

#if defined(__linux__)
static void keeps_to_affinity(void) {
    cpu_set_t before[8], one[8];
    REQUIRE(sched_getaffinity(0, sizeof before, before) == 0, "no affinity");
    uint32_t n_before = processors_usable();
    size_t first = 0;
    while (!CPU_ISSET_S(first, sizeof before, before)) first++;
    memset(one, 0, sizeof one);
    CPU_SET_S(first, sizeof one, one);
    REQUIRE(sched_setaffinity(0, sizeof one, one) == 0, "it cannot be set");
    struct pool *pool = pool_create(0);
    CHECK(processors_usable() == 1 && pool_size(pool) == 1, "%u processors, %u threads", processors_usable(),
          pool_size(pool));
    pool_free(pool);
    sched_setaffinity(0, sizeof before, before);
    CHECK(processors_usable() == n_before, "%u processors, %u before", processors_usable(), n_before);
}

/* tests/vectors/cgroup has folders like /sys/fs/cgroup, and files like /proc/self/cgroup. */
static void keeps_to_cgroups(void) {
    static const struct { const char *name; uint32_t n; } rows[] = {
        {"v2", 2},         /* no limit of its own, 2.5 in the parent group */
        {"v2-own", 2},     /* a container that sees its own group as the root */
        {"v1", 3},         /* version 1, no limit in the parent group */
        {"v1-own", 6},     /* the path is the host's, the mount the container's */
        {"hybrid", 2},     /* version 1 without a limit, version 2 with one */
        {"fraction", 1},
        {"none", UINT32_MAX},
        {"no-such", UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char file[80], mount[80];
        snprintf(file, sizeof file, "tests/vectors/cgroup/%s.txt", rows[i].name);
        snprintf(mount, sizeof mount, "tests/vectors/cgroup/%s", rows[i].name);
        uint32_t n = processors_of_cgroup(file, mount);
        CHECK(n == rows[i].n, "%s: %u processors, expected %u", rows[i].name, n, rows[i].n);
    }
}
#endif

void test_pool(void) {
    test_case("pool: it starts as many threads as requested", starts_threads);
    test_case("pool: 1 to 4 threads visit every index once", every_index_once);
    test_case("pool: later loops see what earlier ones wrote", later_loops_see_earlier);
    test_case("pool: sleeping threads are woken", sleepers_wake);
    test_case("pool: a small and a large pool can be used alternately", pools_share);
    test_case("pool: it uses at most 64 threads, however many the host reports", has_at_most);
    test_case("pool: it counts the loops in which other threads take part", counts_who_takes_part);
#if defined(__linux__)
    test_case("pool: it uses no more threads than processors in the affinity mask", keeps_to_affinity);
    test_case("pool: it uses no more threads than cgroup limits allow, versions 1 and 2", keeps_to_cgroups);
#endif
}

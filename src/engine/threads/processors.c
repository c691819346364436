/* Asks the system for the affinity, and reads the limits of cgroups from their files. */
#define _GNU_SOURCE  /* sched_getaffinity, CPU_COUNT_S */
#include "threads/processors.h"

#include <stdio.h>
#include <stdlib.h>

#if !defined(__wasm__)
#include <unistd.h>
#define HAVE_SYSCONF 1
#endif
#if defined(__linux__)
#include <sched.h>
#endif

#if HAVE_SYSCONF

/* ---- cgroups ----------------------------------------------------------------------------------------------------- */

/* Reads a file of one or two numbers; *second is unchanged if there is only one.  Returns false if the file cannot be
 * read, or if its first number is "max" or -1, which means no limit. */
static bool read_numbers(const char *path, double *first, double *second) {
    char text[128];
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool ok = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    char *end;
    if (!ok) return false;
    *first = strtod(text, &end);
    if (end == text || !(*first > 0)) return false;
    double value = strtod(end, &end);
    if (value > 0) *second = value;
    return true;
}

static uint32_t whole(double quota, double period) {
    double n = quota / period;
    return n < 2 ? 1 : n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* The limit of the group at folder alone. */
static uint32_t limit_of(const char *folder) {
    char path[4224];
    double quota, period = 100000;   /* microseconds, the default of both versions */
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_numbers(path, &quota, &period)) return whole(quota, period);
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_numbers(path, &quota, &period)) return UINT32_MAX;
    double ignored = 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    return read_numbers(path, &period, &ignored) ? whole(quota, period) : UINT32_MAX;
}

/* The smallest limit of a group and of the groups around it, up to the mount.  In a container the path may be the
 * host's, while the container's own group is at the mount: folders that do not exist have no limit. */
static uint32_t limit_up(const char *mount, const char *controller, const char *group) {
    char folder[4096];
    int n_mount = snprintf(folder, sizeof folder, "%s%s", mount, controller);
    int n = snprintf(folder, sizeof folder, "%s%s%s", mount, controller, group);
    if (n < 0 || (size_t)n >= sizeof folder) return UINT32_MAX;
    uint32_t lowest = UINT32_MAX;
    for (;;) {
        uint32_t limit = limit_of(folder);
        if (limit < lowest) lowest = limit;
        char *slash = strrchr(folder + n_mount, '/');
        if (!slash) return lowest;
        *slash = 0;
    }
}

/* True if "cpu" is one of the names, which are separated by commas. */
static bool has_cpu(const char *names) {
    for (; names; names = strchr(names, ',')) {
        names += *names == ',';
        if (strncmp(names, "cpu", 3) == 0 && (names[3] == 0 || names[3] == ',')) return true;
    }
    return false;
}

uint32_t processors_of_cgroup(const char *cgroup_file, const char *mount) {
    char line[4096];
    uint32_t lowest = UINT32_MAX;
    FILE *file = fopen(cgroup_file, "r");
    while (file && fgets(line, sizeof line, file)) {   /* "0::/group" or "4:cpu,cpuacct:/group" */
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group || (names[1] != ':' && !has_cpu((*group = 0, names + 1)))) continue;
        group++;
        if (strcmp(group, "/") == 0) group = "";
        static const char *const controllers[] = {"", "/unified", "/cpu", "/cpu,cpuacct", "/cpuacct,cpu"};
        for (size_t i = 0; i < sizeof controllers / sizeof *controllers; i++) {
            uint32_t limit = limit_up(mount, controllers[i], group);
            if (limit < lowest) lowest = limit;
        }
    }
    if (file) fclose(file);
    return lowest;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static uint32_t affinity(void) {
#if defined(__linux__)
    /* The kernel refuses a set that is smaller than its own, which has up to 8192 processors. */
    cpu_set_t sets[8];
    if (sched_getaffinity(0, sizeof sets, sets) == 0) return (uint32_t)CPU_COUNT_S(sizeof sets, sets);
#endif
    return UINT32_MAX;
}

uint32_t processors_usable(void) {
    long n_online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = n_online > 0 ? (uint32_t)n_online : 1, n_affine = affinity();
    if (n_affine < n) n = n_affine;
    uint32_t n_group = processors_of_cgroup("/proc/self/cgroup", "/sys/fs/cgroup");
    if (n_group < n) n = n_group;
    return n > 0 ? n : 1;
}

#else

uint32_t processors_usable(void) { return 1; }
uint32_t processors_of_cgroup(const char *cgroup_file, const char *mount) {
    (void)cgroup_file, (void)mount;
    return UINT32_MAX;
}

#endif

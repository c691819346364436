/* How many processors this process may use: those that are online, limited by its affinity and by its cgroups. */
#ifndef PLUMB_THREADS_PROCESSORS_H
#define PLUMB_THREADS_PROCESSORS_H

#include "base/base.h"

/* The number is at least 1, and 1 if nothing is known about the processors. */
uint32_t processors_usable(void);

/* The CPU limit of the cgroups in a file such as /proc/self/cgroup, in whole processors, rounded down and at least 1,
 * or UINT32_MAX if there is no limit.  mount: the folder where cgroups are mounted.  A group is also bound by the
 * limits of the groups around it.  Version 2 (cpu.max) and version 1 (cpu.cfs_quota_us) of cgroups are supported. */
uint32_t processors_of_cgroup(const char *cgroup_file, const char *mount);

#endif

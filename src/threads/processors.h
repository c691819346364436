/* How many processors this process may use: what its affinity and the limits of its cgroup leave of the machine's. */
#ifndef PLUMB_THREADS_PROCESSORS_H
#define PLUMB_THREADS_PROCESSORS_H

#include "base/base.h"

/* At least 1; where nothing is known of them, 1. */
uint32_t processors_usable(void);

/* The CPU limit of the cgroups in a file such as /proc/self/cgroup, under the folder where cgroups are mounted, in
 * whole processors, rounded down, at least 1.  A group is bound by the limits of the groups around it.  Both layouts
 * are known: version 2 (cpu.max) and version 1 (cpu.cfs_quota_us).  UINT32_MAX: there is no limit. */
uint32_t processors_of_cgroup(const char *cgroup_file, const char *mount);

#endif

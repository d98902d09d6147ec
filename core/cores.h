/* How many cores a process may use. */
#ifndef TERN_CORE_CORES_H
#define TERN_CORE_CORES_H

/* Those that it may run on, or fewer where the share of a container or a service allows less than all of their time. At least 1. */
int tern_core_count(void);
/* What such shares allow, rounded up, by a file as /proc/self/cgroup and a folder as /sys/fs/cgroup, of both versions of control groups
 * (https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max; cpu.cfs_quota_us); 0: there is no limit. */
int tern_cores_of_share(const char *groups, const char *folder);

#endif

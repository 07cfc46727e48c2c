// Measures the turns of a server's event loop: what its main thread does between two waits for events. The file that TURNS_FILE names
// has the longest turn by processor time and by the clock, in nanoseconds, how many took 10 ms of processor time, and how many there
// were. Whoever measures sets them to 0 while the server is idle.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct turns {
    uint64_t longest_cpu_ns, longest_ns, long_ones, all;
};

static volatile struct turns *turns;
static uint64_t began_cpu_ns, began_ns;

static uint64_t read_ns(clockid_t clock) {
    struct timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TURNS_FILE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct turns), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) abort();
    turns = map;
    close(file);
}

int epoll_wait(int poll, struct epoll_event *events, int most, int timeout_ms) {
    int is_main = syscall(SYS_gettid) == getpid();
    if (is_main && began_ns) {
        uint64_t cpu_ns = read_ns(CLOCK_THREAD_CPUTIME_ID) - began_cpu_ns, ns = read_ns(CLOCK_MONOTONIC) - began_ns;
        if (cpu_ns > turns->longest_cpu_ns) turns->longest_cpu_ns = cpu_ns;
        if (ns > turns->longest_ns) turns->longest_ns = ns;
        if (cpu_ns > 10000000) turns->long_ones++;
        turns->all++;
    }
    int found = (int)syscall(SYS_epoll_pwait, poll, events, most, timeout_ms, NULL, 8);
    if (is_main) {
        began_cpu_ns = read_ns(CLOCK_THREAD_CPUTIME_ID);
        began_ns = read_ns(CLOCK_MONOTONIC);
    }
    return found;
}

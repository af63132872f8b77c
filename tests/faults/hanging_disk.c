/* Has the log's fsync hang for as long as there is a flag file. Preloaded into one process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void hang(int fd)
{
    char link[64], name[4096];
    const char *flag = getenv("HANGING_DISK");
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, name, sizeof name - 1);
    if (!flag || length < 4 || memcmp(name + length - 4, ".log", 4) != 0)
        return;
    while (access(flag, F_OK) == 0)
        usleep(10000);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fdatasync");
    hang(fd);
    return real(fd);
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fsync");
    hang(fd);
    return real(fd);
}

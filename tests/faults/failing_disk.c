/* Makes the log's fsync (EIO) or write (ENOSPC) fail, or its fsync slow, while a flag file names it. Preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(const char *kind, int fd)
{
    static int (*real_open)(const char *, int, ...);
    static ssize_t (*real_read)(int, void *, size_t);
    char link[64], name[4096], said[16] = "";
    const char *flag = getenv("FAILING_DISK");
    int file;
    ssize_t length;

    if (!flag)
        return 0;
    if (!real_open) {
        real_open = dlsym(RTLD_NEXT, "open");
        real_read = dlsym(RTLD_NEXT, "read");
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, name, sizeof name - 1);
    if (length < 4 || memcmp(name + length - 4, ".log", 4) != 0)
        return 0;
    if ((file = real_open(flag, O_RDONLY)) < 0)
        return 0;
    length = real_read(file, said, sizeof said - 1);
    close(file);
    return length > 0 && strncmp(said, kind, strlen(kind)) == 0;
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fdatasync");
    if (fails("sync", fd)) {
        errno = EIO;
        return -1;
    }
    if (fails("slow", fd))
        usleep(100000);
    return real(fd);
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fsync");
    if (fails("sync", fd)) {
        errno = EIO;
        return -1;
    }
    if (fails("slow", fd))
        usleep(100000);
    return real(fd);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "write");
    if (fails("full", fd)) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *buffers, int count)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real)
        real = dlsym(RTLD_NEXT, "writev");
    if (fails("full", fd)) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, buffers, count);
}

/* A disk that misbehaves while a flag file says how. Preloaded into one process; the log's files alone are concerned.
 *
 *   sync    its fsync fails with EIO
 *   slow    its fsync takes a second and a half
 *   full    nothing can be written to it: ENOSPC
 *   rot     what RocksDB keeps in its tables can't be read: EIO
 *   filled  the file system says that nothing is free, though writing works
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int says(const char *kind)
{
    static int (*real_open)(const char *, int, ...);
    static ssize_t (*real_read)(int, void *, size_t);
    char said[16] = "";
    const char *flag = getenv("FAILING_DISK");
    int file;
    ssize_t length;

    if (!flag)
        return 0;
    if (!real_open) {
        real_read = dlsym(RTLD_NEXT, "read");
        real_open = dlsym(RTLD_NEXT, "open");
    }
    if ((file = real_open(flag, O_RDONLY)) < 0)
        return 0;
    length = real_read(file, said, sizeof said - 1);
    close(file);
    return length > 0 && strcspn(said, "\n") == strlen(kind) && strncmp(said, kind, strlen(kind)) == 0;
}

static int is_log(int fd)
{
    char link[64], name[4096];
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, name, sizeof name - 1);
    /* Files of records have numbers for names; what the process says goes to others. */
    return length >= 5 && memcmp(name + length - 4, ".log", 4) == 0 && isdigit((unsigned char)name[length - 5]);
}

static int fails(const char *kind, int fd)
{
    return is_log(fd) && says(kind);
}

static void drag(int fd)
{
    struct timespec long_time = {1, 500000000};

    if (fails("slow", fd))
        nanosleep(&long_time, NULL);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fdatasync");
    drag(fd);
    if (fails("sync", fd)) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fsync");
    drag(fd);
    if (fails("sync", fd)) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

static int is_table(int fd)
{
    char link[64], name[4096];
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, name, sizeof name - 1);
    return length >= 5 && memcmp(name + length - 4, ".sst", 4) == 0;
}

ssize_t pread(int fd, void *bytes, size_t count, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "pread");
    if (is_table(fd) && says("rot")) {
        errno = EIO;
        return -1;
    }
    return real(fd, bytes, count, offset);
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "pread64");
    if (is_table(fd) && says("rot")) {
        errno = EIO;
        return -1;
    }
    return real(fd, bytes, count, offset);
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

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real)
        real = dlsym(RTLD_NEXT, "writev");
    if (fails("full", fd)) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, pieces, count);
}

int statvfs(const char *path, struct statvfs *space)
{
    static int (*real)(const char *, struct statvfs *);
    int result;
    if (!real)
        real = dlsym(RTLD_NEXT, "statvfs");
    result = real(path, space);
    if (result == 0 && says("filled"))
        space->f_bfree = space->f_bavail = 0;
    return result;
}

int statvfs64(const char *path, struct statvfs64 *space)
{
    static int (*real)(const char *, struct statvfs64 *);
    int result;
    if (!real)
        real = dlsym(RTLD_NEXT, "statvfs64");
    result = real(path, space);
    if (result == 0 && says("filled"))
        space->f_bfree = space->f_bavail = 0;
    return result;
}

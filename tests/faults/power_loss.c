/* What of a folder is on the disk, kept beside it: what was synced, and the names of folders that were synced.
 *
 * Preloaded into a process; POWER_ROOT names the folder, POWER_SHADOW where it is kept (on the same file system). After
 * each fsync and fdatasync of a file in the folder its bytes are copied to data/INODE, after that of a folder the names
 * in it are written to names/INODE. hold/INODE keeps an inode's number from being given to another file.
 *
 * After an fsync that failed, Linux takes the pages for clean: the next one succeeds and writes nothing of them. So what
 * was not on the disk by then never gets there by another fsync: lost/INODE says from where to where, until the file is
 * cut there or that is written once more. Another shim makes the fsync fail: this one calls on to it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static const char *shadow(void)
{
    return getenv("POWER_SHADOW");
}

static int in_root(int fd, char *name, size_t size)
{
    const char *root = getenv("POWER_ROOT");
    char link[64];
    ssize_t length;
    size_t prefix;

    if (!root || !shadow())
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if ((length = readlink(link, name, size - 1)) < 0)
        return 0;
    name[length] = 0;
    prefix = strlen(root);
    return strncmp(name, root, prefix) == 0 && (name[prefix] == 0 || name[prefix] == '/');
}

static void give_up(const char *what)
{
    perror(what);
    _exit(70);
}

static void place(char *path, size_t size, const char *kind, unsigned long inode)
{
    snprintf(path, size, "%s/%s/%lu", shadow(), kind, inode);
}

/* Half a file must not be taken for one. */
static FILE *begin(char *half, size_t size)
{
    FILE *file;

    snprintf(half, size, "%s/half-%ld", shadow(), (long)syscall(SYS_gettid));
    if (!(file = fopen(half, "w")))
        give_up(half);
    return file;
}

static void done(FILE *file, const char *half, const char *path)
{
    if (fclose(file) || rename(half, path))
        give_up(path);
}

static void hold(const char *name, unsigned long inode)
{
    char path[4096];

    place(path, sizeof path, "hold", inode);
    if (link(name, path) && errno != EEXIST && errno != ENOENT)
        give_up(path);
}

/* Zero if nothing is lost. */
static int read_lost(unsigned long inode, long *from, long *to)
{
    char path[4096];
    int found;
    FILE *file;

    place(path, sizeof path, "lost", inode);
    if (!(file = fopen(path, "r")))
        return 0;
    found = fscanf(file, "%ld %ld", from, to) == 2;
    fclose(file);
    return found;
}

static void write_lost(unsigned long inode, long from, long to)
{
    char path[4096], half[4096];
    FILE *file;

    place(path, sizeof path, "lost", inode);
    if (from >= to) {
        unlink(path);
        return;
    }
    file = begin(half, sizeof half);
    fprintf(file, "%ld %ld\n", from, to);
    done(file, half, path);
}

static void keep_file(int fd, const char *name, const struct stat *about)
{
    char half[4096], path[4096], bytes[1 << 16], own[64];
    long at = 0, from = 0, to = 0;
    ssize_t length, i;
    FILE *copy = begin(half, sizeof half);
    int file;

    if (!read_lost(about->st_ino, &from, &to))
        from = to = 0;
    hold(name, about->st_ino);
    /* Its own number may be open for writing alone. */
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    if ((file = open(own, O_RDONLY | O_CLOEXEC)) < 0)
        give_up(name);
    while ((length = pread(file, bytes, sizeof bytes, at)) > 0) {
        for (i = 0; i < length; i++)
            if (at + i >= from && at + i < to)
                bytes[i] = 0;
        if (fwrite(bytes, 1, length, copy) != (size_t)length)
            give_up(half);
        at += length;
    }
    close(file);
    place(path, sizeof path, "data", about->st_ino);
    done(copy, half, path);
}

static void keep_names(int fd, const char *name, const struct stat *about)
{
    char half[4096], path[4096], inside[8192];
    FILE *names = begin(half, sizeof half);
    DIR *folder = opendir(name);
    struct dirent *entry;

    if (!folder)
        give_up(name);
    while ((entry = readdir(folder))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(inside, sizeof inside, "%s/%s", name, entry->d_name);
        if (entry->d_type != DT_DIR)
            hold(inside, entry->d_ino);
        fprintf(names, "%lu %c %s\n", (unsigned long)entry->d_ino, entry->d_type == DT_DIR ? 'd' : 'f', entry->d_name);
    }
    closedir(folder);
    place(path, sizeof path, "names", about->st_ino);
    if (access(path, F_OK))
        fcntl(fd, F_DUPFD_CLOEXEC, 100); /* for ever: a folder can't be held by a link */
    done(names, half, path);
}

static void lose(const struct stat *about)
{
    char path[4096];
    struct stat kept;
    long from = 0, to = 0;

    place(path, sizeof path, "data", about->st_ino);
    if (stat(path, &kept))
        kept.st_size = 0;
    if (!read_lost(about->st_ino, &from, &to))
        from = kept.st_size;
    write_lost(about->st_ino, from, about->st_size);
}

static int synced(int fd, int result)
{
    /* Of two that keep the same folder's names the one that read them last must write them last. */
    static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
    char name[4096];
    struct stat about;
    int before = errno;

    if (in_root(fd, name, sizeof name) && fstat(fd, &about) == 0) {
        pthread_mutex_lock(&alone);
        if (result)
            lose(&about);
        else if (S_ISDIR(about.st_mode))
            keep_names(fd, name, &about);
        else
            keep_file(fd, name, &about);
        pthread_mutex_unlock(&alone);
    }
    errno = before;
    return result;
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fdatasync");
    return synced(fd, real(fd));
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fsync");
    return synced(fd, real(fd));
}

static void cut(int fd, off_t size)
{
    char name[4096];
    struct stat about;
    long from, to;

    if (in_root(fd, name, sizeof name) && fstat(fd, &about) == 0 && read_lost(about.st_ino, &from, &to) && size < to)
        write_lost(about.st_ino, from, size);
}

/* Front to back, as whoever mends it does. */
static ssize_t written(int fd, off_t offset, ssize_t count)
{
    char name[4096];
    struct stat about;
    long from, to;

    if (count > 0 && in_root(fd, name, sizeof name) && fstat(fd, &about) == 0 &&
        read_lost(about.st_ino, &from, &to) && offset <= from && offset + count > from)
        write_lost(about.st_ino, offset + count, to);
    return count;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite");
    return written(fd, offset, real(fd, bytes, count, offset));
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t offset)
{
    return pwrite(fd, bytes, count, offset);
}

int truncate(const char *path, off_t size)
{
    int file = open(path, O_WRONLY | O_CLOEXEC), result;

    if (file < 0)
        return -1;
    result = ftruncate(file, size);
    close(file);
    return result;
}

int ftruncate(int fd, off_t size)
{
    static int (*real)(int, off_t);
    int result;

    if (!real)
        real = dlsym(RTLD_NEXT, "ftruncate");
    if ((result = real(fd, size)) == 0)
        cut(fd, size);
    return result;
}

int truncate64(const char *path, off_t size)
{
    return truncate(path, size);
}

int ftruncate64(int fd, off_t size)
{
    return ftruncate(fd, size);
}

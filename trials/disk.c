/* A disk that tells what is written to it, and fails when told to: for LD_PRELOAD.

   disk_record(directory, log) records every change of files in one directory, in order:
     O serial created name   a file, or the directory itself (name "."), was opened
     W serial offset length  and then the bytes
     T serial size           truncated
     S serial                synced
     U name                  unlinked
     R old new               renamed (names are separated by a slash)
   disk_fail(n) lets the nth call from now that writes or syncs fail with EIO, and all later ones;
   0 lets all succeed. disk_calls() counts those calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_FILES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char directory[PATH_MAX];
static int log_file = -1;
static long serials[MOST_FILES]; /* of open files in the directory; 0 for all others */
static long opened, calls, fail_at;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static void put(const void *bytes, size_t length) {
    while (length > 0) {
        ssize_t done = REAL(write)(log_file, bytes, length);
        if (done < 0) abort();
        bytes = (const char *)bytes + done;
        length -= done;
    }
}

static void note(const char *format, ...) {
    char line[2 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    put(line, length);
}

/* The name of a path inside the directory, "." for itself, or NULL. */
static const char *inside(const char *path) {
    size_t length = strlen(directory);
    if (log_file < 0 || strncmp(path, directory, length) != 0) return NULL;
    if (path[length] == 0) return ".";
    return path[length] == '/' && !strchr(path + length + 1, '/') ? path + length + 1 : NULL;
}

static long serial_of(int fd) { return fd >= 0 && fd < MOST_FILES ? serials[fd] : 0; }

static int fails(void) {
    calls++;
    if (fail_at == 0 || calls < fail_at) return 0;
    errno = EIO;
    return 1;
}

void disk_record(const char *path, const char *log) {
    pthread_mutex_lock(&lock);
    if (log_file >= 0) REAL(close)(log_file);
    memset(serials, 0, sizeof serials);
    opened = calls = fail_at = 0;
    snprintf(directory, sizeof directory, "%s", path);
    log_file = *log ? REAL(open)(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    pthread_mutex_unlock(&lock);
}

void disk_fail(long nth) { fail_at = nth ? calls + nth : 0; }

long disk_calls(void) { return calls; }

static int open_real(const char *path, int flags, mode_t mode) {
    pthread_mutex_lock(&lock);
    const char *name = inside(path);
    int created = name && (flags & O_CREAT) && access(path, F_OK) != 0;
    int fd = REAL(open)(path, flags, mode);
    if (fd >= 0 && fd < MOST_FILES) {
        serials[fd] = name ? ++opened : 0;
        if (name) note("O %ld %d %s\n", serials[fd], created, name);
        if (name && (flags & O_TRUNC)) note("T %ld 0\n", serials[fd]);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE                                   \
    mode_t mode = 0;                           \
    if (flags & O_CREAT) {                     \
        va_list arguments;                     \
        va_start(arguments, flags);            \
        mode = va_arg(arguments, mode_t);      \
        va_end(arguments);                     \
    }

int open(const char *path, int flags, ...) { MODE return open_real(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_real(path, flags, mode); }
int __open_2(const char *path, int flags) { return open_real(path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_real(path, flags, 0); }

int close(int fd) {
    pthread_mutex_lock(&lock);
    if (fd >= 0 && fd < MOST_FILES) serials[fd] = 0;
    int result = REAL(close)(fd);
    pthread_mutex_unlock(&lock);
    return result;
}

static ssize_t write_at(int fd, const void *bytes, size_t length, off_t offset, int positioned) {
    pthread_mutex_lock(&lock);
    long serial = serial_of(fd);
    ssize_t done = -1;
    if (!serial || !fails()) {
        if (serial && !positioned) offset = lseek(fd, 0, SEEK_CUR);
        done = positioned ? REAL(pwrite)(fd, bytes, length, offset)
                          : REAL(write)(fd, bytes, length);
        if (serial && done > 0) {
            note("W %ld %ld %ld\n", serial, (long)offset, (long)done);
            put(bytes, done);
        }
    }
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    return write_at(fd, bytes, length, 0, 0);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    return write_at(fd, bytes, length, offset, 1);
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    return write_at(fd, bytes, length, offset, 1);
}

static int truncated(int fd, off_t size) {
    pthread_mutex_lock(&lock);
    long serial = serial_of(fd);
    int result = serial && fails() ? -1 : REAL(ftruncate)(fd, size);
    if (serial && result == 0) note("T %ld %ld\n", serial, (long)size);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t size) { return truncated(fd, size); }
int ftruncate64(int fd, off64_t size) { return truncated(fd, size); }

/* The log is what is kept, so the real disk need not be waited for. */
static int synced(int fd, int (*sync)(int)) {
    pthread_mutex_lock(&lock);
    long serial = serial_of(fd);
    int result = serial ? -fails() : sync(fd);
    if (serial && result == 0) note("S %ld\n", serial);
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

int unlink(const char *path) {
    pthread_mutex_lock(&lock);
    int result = REAL(unlink)(path);
    const char *name = inside(path);
    if (name && result == 0) note("U %s\n", name);
    pthread_mutex_unlock(&lock);
    return result;
}

int rename(const char *old, const char *new) {
    pthread_mutex_lock(&lock);
    int result = REAL(rename)(old, new);
    const char *from = inside(old), *to = inside(new);
    if (from && to && result == 0) note("R %s/%s\n", from, to);
    pthread_mutex_unlock(&lock);
    return result;
}

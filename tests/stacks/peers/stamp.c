/* Loaded into a server (LD_PRELOAD): notes what it writes to sockets, with the clock before and after each call, in
   the file that STAMPS names. A note is the two times, the ports of both ends, the number of bytes, and these bytes.

   With TLS_CERT, what is noted is what OpenSSL was given since the thread's last whole write: asyncio encrypts and
   writes in one go. Other writes (the handshake's) are then not noted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct note {
    uint64_t before, after;
    uint16_t local_port, peer_port;
    uint32_t len;
};

static int file = -1;
static int is_tls;
static __thread struct {
    char *bytes;
    size_t len;
} clear;
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_send)(int, const void *, size_t, int);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_send = dlsym(RTLD_NEXT, "send");
    real_sendmsg = dlsym(RTLD_NEXT, "sendmsg");
    is_tls = getenv("TLS_CERT") != NULL;
    file = open(getenv("STAMPS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static uint64_t now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The port of one end; 0 when it is no internet socket. */
static uint16_t port(int fd, int (*name)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    if (name(fd, (struct sockaddr *)&address, &len) != 0)
        return 0;
    if (address.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&address)->sin_port);
    return address.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&address)->sin6_port) : 0;
}

static void put_clear(struct note note) {
    note.len = (uint32_t)clear.len;
    pthread_mutex_lock(&lock);
    real_write(file, &note, sizeof note);
    real_write(file, clear.bytes, clear.len);
    pthread_mutex_unlock(&lock);
    clear.len = 0;
}

static ssize_t put(int fd, const struct iovec *parts, size_t count, uint64_t before, ssize_t result) {
    int error = errno;
    struct note note = {before, now(), port(fd, getsockname), port(fd, getpeername), (uint32_t)result};
    size_t asked = 0;
    for (size_t at = 0; at < count; at++)
        asked += parts[at].iov_len;
    if (is_tls) {
        if (result == (ssize_t)asked && note.peer_port != 0 && clear.len > 0)
            put_clear(note);
    } else if (result > 0 && note.peer_port != 0) {
        size_t left = (size_t)result;
        pthread_mutex_lock(&lock);
        real_write(file, &note, sizeof note);
        for (size_t at = 0; at < count && left > 0; at++) {
            size_t len = parts[at].iov_len < left ? parts[at].iov_len : left;
            real_write(file, parts[at].iov_base, len);
            left -= len;
        }
        pthread_mutex_unlock(&lock);
    }
    errno = error;
    return result;
}

ssize_t write(int fd, const void *bytes, size_t len) {
    struct iovec part = {(void *)bytes, len};
    uint64_t before = now();
    return put(fd, &part, 1, before, real_write(fd, bytes, len));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    uint64_t before = now();
    return put(fd, parts, (size_t)count, before, real_writev(fd, parts, count));
}

ssize_t send(int fd, const void *bytes, size_t len, int flags) {
    struct iovec part = {(void *)bytes, len};
    uint64_t before = now();
    return put(fd, &part, 1, before, real_send(fd, bytes, len, flags));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    uint64_t before = now();
    ssize_t result = real_sendmsg(fd, message, flags);
    return put(fd, message->msg_iov, message->msg_iovlen, before, result);
}

int SSL_write_ex(void *ssl, const void *bytes, size_t len, size_t *written) {
    static int (*real)(void *, const void *, size_t, size_t *);
    if (real == NULL)
        real = dlsym(dlopen("libssl.so.3", RTLD_LAZY | RTLD_NOLOAD), "SSL_write_ex");
    int result = real(ssl, bytes, len, written);
    if (result == 1) {
        clear.bytes = realloc(clear.bytes, clear.len + *written);
        memcpy(clear.bytes + clear.len, bytes, *written);
        clear.len += *written;
    }
    return result;
}

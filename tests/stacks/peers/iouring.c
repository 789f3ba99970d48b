// A server on io_uring, one connection at a time: `iouring whole|body`.
//
// whole: accept, receive and send by io_uring; of each request when it was received and when its answer was sent goes to
// the file TRUTH, a line each: before and after the one, before and after the other, ns, and the bytes of both.
// body: only the answer's body; its size differs from one to the next.
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct io_uring ring;

static void die(const char *what) {
    perror(what);
    exit(1);
}

// The result of the one operation that is prepared.
static int run(void) {
    struct io_uring_cqe *cqe;
    if (io_uring_submit(&ring) < 0 || io_uring_wait_cqe(&ring, &cqe) < 0) die("io_uring");
    int result = cqe->res;
    io_uring_cqe_seen(&ring, cqe);
    return result;
}

static int uring_send(int fd, const char *data, size_t len) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    io_uring_prep_send(sqe, fd, data, len, MSG_WAITALL | MSG_NOSIGNAL);
    return run();
}

static int uring_recv(int fd, char *data, size_t len) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    io_uring_prep_recv(sqe, fd, data, len, 0);
    return run();
}

static int uring_accept(int listener) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    io_uring_prep_accept(sqe, listener, NULL, NULL, 0);
    return run();
}

static const char STREAM[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lorem\"}}]}\n\n"
    "data: [DONE]\n\n";

static unsigned long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static void whole(int conn) {
    char request[65536];
    unsigned long long before = now();
    int got = uring_recv(conn, request, sizeof request);
    unsigned long long received = now();
    if (got <= 0) return;
    int sent = uring_send(conn, STREAM, sizeof STREAM - 1);
    FILE *truth = fopen(getenv("TRUTH"), "a");
    if (!truth) die("TRUTH");
    fprintf(truth, "%llu %llu %llu %llu %d %d\n", before, received, received, now(), got, sent);
    fclose(truth);
}

static void body(int conn, int number) {
    char request[65536], head[256];
    if (recv(conn, request, sizeof request, 0) <= 0) return;
    size_t len = 3000 + 7 * number;
    char *answer = malloc(len);
    // The text fills what is left: the answer ends with its counts, as answers do.
    static const char BEGIN[] = "{\"model\":\"ring-model\",\"choices\":[{\"message\":{\"content\":\"";
    static const char END[] = "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}";
    memset(answer, 'l', len);
    memcpy(answer, BEGIN, sizeof BEGIN - 1);
    memcpy(answer + len - (sizeof END - 1), END, sizeof END - 1);
    int head_len = snprintf(head, sizeof head,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %zu\r\n\r\n", len);
    if (send(conn, head, head_len, MSG_NOSIGNAL) == head_len) uring_send(conn, answer, len);
    free(answer);
}

static void announce(int listener) {
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    char fresh[4096];
    const char *path = getenv("PORT_FILE");
    if (!path || getsockname(listener, (struct sockaddr *)&at, &size)) die("PORT_FILE");
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "w");
    if (!file) die(fresh);
    fprintf(file, "%d", ntohs(at.sin_port));
    fclose(file);
    if (rename(fresh, path)) die("rename");
}

static void stop(int signal) {
    (void)signal;
    _exit(0);
}

int main(int argc, char **argv) {
    int by_ring = argc > 1 && !strcmp(argv[1], "whole");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    signal(SIGTERM, stop);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 64)) die("listen");
    int error = io_uring_queue_init(8, &ring, 0);
    if (error < 0) {
        errno = -error;
        die("io_uring_queue_init");
    }
    announce(listener);
    for (int number = 0;; number++) {
        int conn = by_ring ? uring_accept(listener) : accept(listener, NULL, NULL);
        if (conn < 0) die("accept");
        if (by_ring) whole(conn);
        else body(conn, number);
        shutdown(conn, SHUT_WR);
        char rest[256];
        while (read(conn, rest, sizeof rest) > 0) {}
        close(conn);
    }
}

// A server that moves its bytes by the rarer calls: `batches one|several|vectors`, with recvmmsg and sendmmsg of one
// message, the same of two, or preadv2 and pwritev2. Sizes differ from one answer to the next.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void stop(int signal) {
    (void)signal;
    _exit(0);
}

// Two parts as one message, or as two. Bytes that moved.
static long batch(int conn, struct iovec *parts, int messages, int sends) {
    struct mmsghdr all[2] = {0};
    for (int i = 0; i < messages; i++) {
        all[i].msg_hdr.msg_iov = parts + i;
        all[i].msg_hdr.msg_iovlen = 2 / messages;
    }
    int done = sends ? sendmmsg(conn, all, messages, MSG_NOSIGNAL) : recvmmsg(conn, all, messages, 0, NULL);
    long bytes = 0;
    for (int i = 0; i < done; i++) bytes += all[i].msg_len;
    return done < 0 ? done : bytes;
}

static long move(const char *way, int conn, struct iovec *parts, int sends) {
    if (!strcmp(way, "vectors"))
        return sends ? pwritev2(conn, parts, 2, -1, 0) : preadv2(conn, parts, 2, -1, 0);
    return batch(conn, parts, strcmp(way, "several") ? 1 : 2, sends);
}

// Requests come in one piece each, longer than the first part has room for.
static void serve(const char *way, int conn) {
    static char request[65536], head[256], body[65536];
    for (int number = 1;; number++) {
        struct iovec room[2] = {{request, 40}, {request + 40, sizeof request - 40}};
        if (move(way, conn, room, 0) <= 0) return;
        int len = snprintf(body, sizeof body,
            "{\"model\":\"batch-model\",\"choices\":[{\"message\":{\"content\":\"lorem%*s\"},\"finish_reason\":"
            "\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":%d}}", 10 * number, "", number);
        int head_len = snprintf(head, sizeof head,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n", len);
        struct iovec answer[2] = {{head, head_len}, {body, len}};
        if (move(way, conn, answer, 1) != head_len + len) die("answer");
    }
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

int main(int count, char **arguments) {
    if (count != 2) return 2;
    signal(SIGTERM, stop);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 64)) die("listen");
    announce(listener);
    for (;;) {
        int conn = accept(listener, NULL, NULL);
        if (conn < 0) die("accept");
        serve(arguments[1], conn);
        close(conn);
    }
}

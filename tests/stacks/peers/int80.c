// A server whose bodies go by 32-bit system calls (x86-64 only). Sizes differ from one to the next.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void stop(int signal) {
    (void)signal;
    _exit(0);
}

// `write` of the 32-bit table; the buffer must be below 4 GiB.
static long write32(int fd, const void *data, size_t len) {
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(4L), "b"((long)fd), "c"(data), "d"(len)
                     : "memory", "r8", "r9", "r10", "r11");
    return (int)result;
}

static void answer(int conn, int number, char *body) {
    char request[65536], head[256];
    if (recv(conn, request, sizeof request, 0) <= 0) return;
    size_t len = 3000 + 7 * number;
    // The text fills what is left: the answer ends with its counts, as answers do.
    static const char BEGIN[] = "{\"model\":\"int80-model\",\"choices\":[{\"message\":{\"content\":\"";
    static const char END[] = "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}";
    memset(body, 'l', len);
    memcpy(body, BEGIN, sizeof BEGIN - 1);
    memcpy(body + len - (sizeof END - 1), END, sizeof END - 1);
    int head_len = snprintf(head, sizeof head,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %zu\r\n\r\n", len);
    if (send(conn, head, head_len, MSG_NOSIGNAL) != head_len || write32(conn, body, len) != (long)len) die("write");
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

int main(void) {
    signal(SIGTERM, stop);
    char *body = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (body == MAP_FAILED) die("mmap");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 64)) die("listen");
    announce(listener);
    for (int number = 0;; number++) {
        int conn = accept(listener, NULL, NULL);
        if (conn < 0) die("accept");
        answer(conn, number, body);
        shutdown(conn, SHUT_WR);
        char rest[256];
        while (read(conn, rest, sizeof rest) > 0) {}
        close(conn);
    }
}

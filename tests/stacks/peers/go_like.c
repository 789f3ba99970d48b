/* What a cgo program with OpenSSL inside looks like from outside: Go's mark, and the library's functions among its
   symbols. It answers in clear; the functions only pass bytes on. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

__attribute__((section(".go.buildinfo"), used)) static const char buildinfo[32] = "\xff Go buildinf:";

__attribute__((noinline)) int SSL_read(void *ssl, void *bytes, int len) {
    return (int)read((int)(long)ssl, bytes, (size_t)len);
}

__attribute__((noinline)) int SSL_write(void *ssl, const void *bytes, int len) {
    return (int)write((int)(long)ssl, bytes, (size_t)len);
}

__attribute__((noinline)) int SSL_do_handshake(void *ssl) {
    return ssl != NULL;
}

__attribute__((noinline)) void SSL_free(void *ssl) {
    close((int)(long)ssl);
}

static void announce(int port) {
    char fresh[4096];
    const char *path = getenv("PORT_FILE");
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "w");
    fprintf(file, "%d", port);
    fclose(file);
    rename(fresh, path);
}

int main(void) {
    static const char answer[] = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, len) != 0 || listen(listener, 64) != 0)
        return 1;
    getsockname(listener, (struct sockaddr *)&address, &len);
    announce(ntohs(address.sin_port));
    for (;;) {
        char request[8192];
        void *ssl = (void *)(long)accept(listener, NULL, NULL);
        SSL_do_handshake(ssl);
        if (SSL_read(ssl, request, sizeof request) > 0)
            SSL_write(ssl, answer, sizeof answer - 1);
        SSL_free(ssl);
    }
}

/* Connections from inside the world. */
#include "batch.h"
#include "process.h"
#include "sys.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct connection *connection_first; /* all that are attached */

static void connection_destroy(struct handle *handle) {
    struct connection *connection = (struct connection *)handle;
    if (connection->fd >= 0)
        close(connection->fd);
    free(connection);
}

struct handle *connection_register(int fd) {
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        abort();
    connection->fd = fd;
    return handle_register(&connection->handle, HANDLE_CONNECTION, connection_destroy);
}

void connection_attach(struct connection *connection) {
    int input = fcntl(connection->fd, F_DUPFD_CLOEXEC, 3);
    if (input < 0)
        abort();
    connection->attached = true;
    connection->next = connection_first;
    if (connection_first)
        connection_first->previous = connection;
    connection_first = connection;
    int fd = connection->fd;
    connection->fd = -1; /* the stream's from now on */
    stream_start(&connection->output, &connection->handle, STREAM_SOCKET, 1, fd);
    input_start(&connection->input, &connection->handle, input, false, true);
}

void connection_release(struct connection *connection) {
    if (connection->passed) {
        /* For all who hold it: it must end whatever the host does with its own. */
        (void)shutdown(connection->fd, SHUT_RDWR);
        return;
    }
    input_stop(&connection->input);
    stream_stop(&connection->output);
    *(connection->previous ? &connection->previous->next : &connection_first) = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
}

void connection_cancel(uint64_t id) {
    for (struct connection *connection = connection_first; connection; connection = connection->next)
        if (input_cancel(&connection->input, id))
            return;
}

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    struct sockaddr_un local;
};

static int parse_address(const struct operation *operation, union address *address, socklen_t *size) {
    struct slice host = operation->data;
    memset(address, 0, sizeof *address);
    if (operation->numbers[0] == 1) {
        if (host.size == 0 || host.size >= sizeof address->local.sun_path)
            return EINVAL;
        address->local.sun_family = AF_UNIX;
        memcpy(address->local.sun_path, host.data, host.size);
        bool abstract = host.data[0] == 0;
        if (!abstract && memchr(host.data, 0, host.size))
            return EINVAL;
        *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + host.size + !abstract);
        return 0;
    }
    char text[INET6_ADDRSTRLEN + 1];
    if (operation->numbers[0] != 0 || host.size == 0 || host.size >= sizeof text || memchr(host.data, 0, host.size))
        return EINVAL;
    memcpy(text, host.data, host.size);
    text[host.size] = 0;
    uint16_t port = htons((uint16_t)operation->numbers[1]);
    if (inet_pton(AF_INET, text, &address->four.sin_addr) == 1) {
        address->four.sin_family = AF_INET;
        address->four.sin_port = port;
        *size = sizeof address->four;
        return 0;
    }
    if (inet_pton(AF_INET6, text, &address->six.sin6_addr) == 1) {
        address->six.sin6_family = AF_INET6;
        address->six.sin6_port = port;
        *size = sizeof address->six;
        return 0;
    }
    return EINVAL;
}

static int wait_connected(struct batch *batch, int fd) {
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
        int count = poll(&poll_fd, 1, 200);
        if (batch_cancelled(batch))
            return ECANCELED;
        if (count > 0)
            break;
    }
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? errno : error;
}

int step_connect(struct batch *batch, const struct operation *operation) {
    union address address;
    socklen_t size;
    int status = parse_address(operation, &address, &size);
    if (status != 0)
        return status;
    int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    if (connect(fd, &address.any, size) < 0)
        status = errno == EINPROGRESS ? wait_connected(batch, fd) : errno;
    if (status != 0) {
        close(fd);
        return status;
    }
    int on = 1;
    if (address.any.sa_family != AF_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    put_opened(batch, connection_register(fd));
    return 0;
}

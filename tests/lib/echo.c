#include "tests/lib/echo.h"

#include "common/check.h"
#include "common/mem.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    ECHO_MAX = 4096,
};

static void watch(int epoll_fd, int fd, void *ptr)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = ptr};

    ASSERT(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void send_all(int fd, const void *data, size_t size)
{
    ASSERT(send(fd, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

struct echo_peer {
    int fd;
};

static void echo_accept(int epoll_fd, int listener)
{
    struct echo_peer *peer = mem_alloc(sizeof(*peer));
    int on = 1;

    peer->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ASSERT(peer->fd >= 0 &&
           setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
    watch(epoll_fd, peer->fd, peer);
}

static void echo_answer(struct echo_peer *peer)
{
    uint8_t data[ECHO_MAX];
    ssize_t n = recv(peer->fd, data, sizeof(data), 0);

    if (n <= 0) {
        (void)close(peer->fd);
        mem_free(peer);
        return;
    }
    send_all(peer->fd, data, (size_t)n);
}

static void echo_turn(int epoll_fd, int listener)
{
    struct epoll_event event[EVENTS];
    int n = epoll_wait(epoll_fd, event, EVENTS, -1);

    for (int i = 0; i < n; i++) {
        if (event[i].data.ptr) {
            echo_answer(event[i].data.ptr);
        } else {
            echo_accept(epoll_fd, listener);
        }
    }
}

_Noreturn static void echo_serve(int listener)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

    watch(epoll_fd, listener, NULL);
    for (;;) {
        echo_turn(epoll_fd, listener);
    }
}

pid_t echo_start(int *ret_port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(addr);
    pid_t pid;

    ASSERT(listener >= 0 && bind(listener, (struct sockaddr *)&addr, size) == 0 &&
           listen(listener, SOMAXCONN) == 0 &&
           getsockname(listener, (struct sockaddr *)&addr, &size) == 0);
    *ret_port = ntohs(addr.sin_port);
    pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        echo_serve(listener);
    }
    (void)close(listener);
    return pid;
}

void echo_stop(pid_t pid)
{
    ASSERT(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

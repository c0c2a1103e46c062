#include "tests/lib/rank_ends.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

static void expect(int rv, const struct errmsg *msg)
{
    if (rv < 0) {
        (void)fprintf(stderr, "%s: %s\n", err_name(rv), msg->text);
    }
    RANK_CHECK(rv == 0);
}

static void enter(const char *netns)
{
    char path[128];
    int fd;

    (void)snprintf(path, sizeof(path), "/run/netns/%s", netns);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    RANK_CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
    close(fd);
}

void rank_ends_open(struct rank_ends *e, const struct rank *self,
                    const struct rank_setup *setup)
{
    rank_ends_open_in(e, self, setup, NULL, NULL);
}

void rank_ends_open_in(struct rank_ends *e, const struct rank *self,
                       const struct rank_setup *setup, const char *netns,
                       const char *address)
{
    struct device_config device = {.local_world_size = 1, .threads = 1};
    struct comm_config comm = {.group = "test",
                               .rank = self->rank,
                               .world_size = self->world_size,
                               .node = self->rank / setup->node_size,
                               .address = address};
    struct errmsg msg = {""};

    *e = (struct rank_ends){NULL, NULL, NULL};
    expect(store_client_open("127.0.0.1", self->store_port, RANK_TIMEOUT_MS, &e->store,
                             &msg),
           &msg);
    if (netns) {
        enter(netns);
    }
    expect(device_open("cpu", &device, &e->device, &msg), &msg);
    if (setup->kind) {
        comm.store = e->store;
        comm.timeout_ms = RANK_TIMEOUT_MS;
        expect(comm_open(setup->kind, &comm, e->device, &e->comm, &msg), &msg);
    }
}

void rank_ends_close(struct rank_ends *e)
{
    comm_close(e->comm);
    device_close(e->device);
    store_client_close(e->store);
}

int rank_ends_finish(struct rank_ends *e, struct errmsg *msg)
{
    return device_finish(e->device, device_mark(e->device, QUEUE_REDUCE),
                         RANK_TIMEOUT_MS, msg);
}

void rank_ends_finish_well(struct rank_ends *e)
{
    struct errmsg msg = {""};

    expect(rank_ends_finish(e, &msg), &msg);
}

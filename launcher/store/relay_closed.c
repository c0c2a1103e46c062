#include "launcher/store/relay_closed.h"

void relay_closed_add(struct relay_closed *c, uint32_t client)
{
    c->client[c->n++ % RELAY_CLOSED_MAX] = client;
}

void relay_closed_tell(const struct relay_closed *c, uint64_t generation,
                       void (*send)(void *arg, const struct msg *m), void *arg)
{
    struct msg m = {.type = MSG_STORE_CLOSE,
                    .u.store_close = {.generation = generation}};

    for (size_t i = 0; i < c->n && i < RELAY_CLOSED_MAX; i++) {
        m.u.store_close.client = c->client[i];
        send(arg, &m);
    }
}

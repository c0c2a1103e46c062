#include "common/closer.h"

#include "common/check.h"

void closer_init(struct closer *c)
{
    *c = (struct closer){0};
}

void closer_opened(struct closer *c)
{
    ASSERT(!c->is_closing);
    c->n_open++;
}

static void fire_if_empty(struct closer *c)
{
    closer_cb on_closed = c->on_closed;

    if (c->is_closing && c->n_open == 0 && on_closed) {
        c->on_closed = NULL;
        on_closed(c->arg);
    }
}

void closer_closed(struct closer *c)
{
    ASSERT(c->n_open > 0);
    c->n_open--;
    fire_if_empty(c);
}

void closer_finish(struct closer *c, closer_cb on_closed, void *arg)
{
    ASSERT(!c->is_closing);
    c->is_closing = true;
    c->on_closed = on_closed;
    c->arg = arg;
    fire_if_empty(c);
}

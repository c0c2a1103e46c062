/* Who is not read, and who is closed, when connections hold much: a pool without sockets.
 */

#include "rendezvous/output.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"

enum { N = 4 };

struct rig {
    struct connection_pool pool;
    struct connection connection[N];
};

static void rig_init(struct rig *r)
{
    *r = (struct rig){.pool.config.max_buffered = 1000000};
    table_init(&r->pool.connections);
    for (size_t i = 0; i < N; i++) {
        struct connection *c = &r->connection[i];

        c->pool = &r->pool;
        buf_init(&c->out, SIZE_MAX);
        table_insert(&r->pool.connections, &c->node, i);
    }
}

static void rig_release(struct rig *r)
{
    for (size_t i = 0; i < N; i++) {
        table_remove(&r->pool.connections, &r->connection[i].node);
        buf_release(&r->connection[i].out);
    }
    table_release(&r->pool.connections);
}

static void holds(struct rig *r, size_t i, enum connection_kind kind, size_t size)
{
    r->connection[i].kind = kind;
    r->connection[i].charged = size;
}

/* The connection that is closed next; N: none. */
static size_t shed_one(struct rig *r)
{
    size_t i = 0;

    pool_shed(&r->pool);
    while (i < N && r->connection[i].why != ERR_TOO_LARGE) {
        i++;
    }
    if (i < N) {
        r->connection[i].why = ERR_CLOSED;
    }
    return i;
}

/* Which connection was closed first, second …, as digits. */
static unsigned shed_all(struct rig *r)
{
    unsigned order = 0;

    for (size_t i = shed_one(r); i < N; i = shed_one(r)) {
        order = 10 * order + (unsigned)i;
    }
    return order;
}

static void an_agent_is_closed_only_when_no_store_client_holds_anything(void **state)
{
    struct rig r;

    (void)state;
    rig_init(&r);
    holds(&r, 0, CONN_AGENT, 900);
    holds(&r, 1, CONN_STORE, 1);
    holds(&r, 2, CONN_AGENT, 901);
    holds(&r, 3, CONN_STORE, 2);
    assert_int_equal(shed_all(&r), 3120);
    rig_release(&r);
}

static void who_holds_nothing_is_never_closed(void **state)
{
    struct rig r;

    (void)state;
    rig_init(&r);
    holds(&r, 1, CONN_STORE, 0);
    holds(&r, 2, CONN_AGENT, 1);
    assert_int_equal(shed_all(&r), 2);
    rig_release(&r);
}

static void limits_are_low_once_all_together_hold_much(void **state)
{
    struct connection *c;
    struct rig r;
    uint8_t *at;

    (void)state;
    rig_init(&r);
    c = &r.connection[0];
    connection_set_limits(c, 4 * (size_t)CONNECTION_CHOKED_AT, SIZE_MAX);
    assert_int_equal(buf_reserve(&c->out, 2 * (size_t)CONNECTION_CHOKED_AT, &at), 0);
    buf_commit(&c->out, 2 * (size_t)CONNECTION_CHOKED_AT);
    assert_false(connection_is_choked(c));
    r.pool.buffered = r.pool.config.max_buffered / 2 + 1;
    assert_true(connection_is_choked(c));
    r.pool.buffered--;
    assert_false(connection_is_choked(c));
    rig_release(&r);
}

static void when_most_of_a_crowd_have_gone_their_memory_goes_once(void **state)
{
    size_t crowd = 0;
    unsigned n_times = 0;

    (void)state;
    for (size_t n = 2500; n-- > 0;) {
        bool has_gone = pool_crowd_has_gone(&crowd, n);

        n_times += has_gone;
        assert_true(!has_gone || n == 625 || n == 156);
    }
    assert_int_equal(n_times, 2);
    for (unsigned i = 0; i < 100000; i++) { /* some come, some go */
        assert_false(pool_crowd_has_gone(&crowd, 10 + i % 500));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_agent_is_closed_only_when_no_store_client_holds_anything),
        cmocka_unit_test(who_holds_nothing_is_never_closed),
        cmocka_unit_test(limits_are_low_once_all_together_hold_much),
        cmocka_unit_test(when_most_of_a_crowd_have_gone_their_memory_goes_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* An agent that has followed another state than the service has: it learns that, is heard
 * no further, and nothing is changed for it. */

#include "rendezvous/event.h"
#include "rendezvous/service.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/shelf.h"

#include "common/buf.h"

#include <stdio.h>
#include <string.h>

enum { CLUSTER = 7, NODES = 2 };

/* A service on a state, and what an agent hears of it. */
struct world {
    struct shelf shelf;
    struct service *service;
    struct start now;
    struct msg_welcome welcome; /* the last */
    struct msg_refused refused; /* likewise */
    unsigned n_welcomes, n_refused, n_notes;
    bool is_open[NODES + 1]; /* by connection */
};

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    struct world *w = arg;

    assert_true(w->is_open[conn]);
    if (m->type == MSG_WELCOME) {
        w->welcome = m->u.welcome;
        w->n_welcomes++;
    } else if (m->type == MSG_REFUSED) {
        w->refused = m->u.refused;
        w->n_refused++;
    }
}

static void on_close(void *arg, uint64_t conn)
{
    struct world *w = arg;

    w->is_open[conn] = false;
}

static void on_note(void *arg, const struct job_event *e)
{
    struct world *w = arg;

    w->n_notes += e->kind == NODE_IS_REFUSED;
}

static void on_save(void *arg, const struct record *r)
{
    struct world *w = arg;

    shelf_save(&w->shelf, r);
}

static uint64_t on_kept(void *arg)
{
    const struct world *w = arg;

    return shelf_kept(&w->shelf);
}

static void start(struct world *w, uint64_t id)
{
    struct errmsg msg = {""};

    w->now = (struct start){w->now.boot + 1, id, w->shelf.n_commits};
    w->service = service_new(&(struct service_config){.cluster = CLUSTER,
                                                      .boot = w->now.boot,
                                                      .start = w->now.id,
                                                      .found = w->now.found,
                                                      .lease_ms = 3000,
                                                      .seed = id,
                                                      .sink = {.arg = w,
                                                               .send = on_send,
                                                               .close = on_close,
                                                               .note = on_note,
                                                               .save = on_save,
                                                               .kept = on_kept}});
    assert_int_equal(shelf_restore(&w->shelf, w->service, NULL, 1000, &msg), 0);
    shelf_begin(&w->shelf, &w->now);
    shelf_commit(&w->shelf);
}

static void stop(struct world *w)
{
    service_free(w->service);
    memset(w->is_open, 0, sizeof(w->is_open));
}

/* As the agent of that number says it: `seen` is what it was told last. */
static void say_hello(struct world *w, uint64_t conn, const struct msg_welcome *seen)
{
    struct msg m = {.type = MSG_HELLO,
                    .u.hello = {.version = MSG_VERSION,
                                .job = "job",
                                .host = "host",
                                .agent_id = conn,
                                .session = seen->session,
                                .cluster = seen->cluster,
                                .boot = seen->boot,
                                .start = seen->start,
                                .kept = seen->kept,
                                .group_rank = -1,
                                .node_rank = -1,
                                .min_nodes = NODES,
                                .max_nodes = NODES,
                                .nproc = 1}};

    w->is_open[conn] = true;
    service_opened(w->service, conn, "10.0.0.1", 1000);
    assert_int_equal(service_message(w->service, conn, &m, 1000), 0);
    shelf_commit(&w->shelf);
}

static void join(struct world *w, uint64_t conn)
{
    struct msg m = {.type = MSG_JOIN, .u.join = {.addr = "10.0.0.1"}};

    assert_int_equal(service_message(w->service, conn, &m, 1000), 0);
    shelf_commit(&w->shelf);
}

/* A job of two nodes runs, in the first start; what both have seen. */
static struct msg_welcome begin(struct world *w)
{
    struct msg_welcome seen;

    *w = (struct world){.now = {0}};
    start(w, 11);
    say_hello(w, 1, &(struct msg_welcome){.session = 0});
    seen = w->welcome;
    say_hello(w, 2, &(struct msg_welcome){.session = 0});
    assert_false(seen.lacks);
    assert_int_equal(seen.boot, 1);
    assert_int_equal(seen.start, 11);
    join(w, 1);
    join(w, 2);
    return seen;
}

static void end(struct world *w)
{
    stop(w);
    shelf_release(&w->shelf);
}

static void agent_comes_back_to_the_state_that_it_has_seen(void **state)
{
    struct world w;
    struct msg_welcome seen = begin(&w);

    (void)state;
    for (uint64_t id = 12; id < 15; id++) {
        uint64_t heard = seen.kept;

        stop(&w);
        start(&w, id);
        say_hello(&w, 1, &seen);
        assert_int_equal(w.welcome.session, seen.session);
        assert_int_equal(w.welcome.start, id);
        assert_false(w.welcome.lacks);
        assert_true(w.welcome.had >= heard);
        assert_true(w.is_open[1]);
        seen = w.welcome;
    }
    assert_int_equal(w.n_notes, 0);
    end(&w);
}

/* The copy of a state that went on is started, again and again. */
static void a_copy_turns_away_who_has_seen_more_and_changes_nothing(void **state)
{
    struct world right;
    struct msg_welcome seen = begin(&right);
    struct world copy = {.now = right.now};

    (void)state;
    shelf_copy(&copy.shelf, &right.shelf);
    stop(&right);
    start(&right, 12);
    say_hello(&right, 1, &seen);
    seen = right.welcome;
    for (uint64_t id = 100; id < 150; id++) {
        size_t n = copy.shelf.n;
        uint64_t n_commits;

        start(&copy, id);
        assert_int_equal(copy.shelf.n, n + 1); /* the start */
        n_commits = copy.shelf.n_commits;
        for (uint64_t again = 0; again < 3; again++) {
            say_hello(&copy, 1, &seen);
            assert_int_equal(copy.welcome.session, 0);
            assert_true(copy.welcome.lacks);
            assert_int_equal(copy.welcome.start, id);
            assert_false(copy.is_open[1]);
        }
        assert_int_equal(shelf_count(&copy.shelf, RECORD_NODE), NODES);
        assert_int_equal(copy.shelf.n_commits, n_commits);
        stop(&copy);
    }
    assert_int_equal(copy.n_notes, 150);
    assert_int_equal(copy.n_refused,
                     0); /* what it has to say is not about the agent's job */
    start(&copy, 1000);
    end(&copy);
    end(&right);
}

/* One that was made in the midst of the start. */
static void a_copy_turns_away_who_has_seen_a_transaction_more(void **state)
{
    struct world right;
    struct msg_welcome seen = begin(&right);
    struct world copy = {.now = right.now};

    (void)state;
    shelf_copy(&copy.shelf, &right.shelf);
    seen.kept = copy.shelf.n_commits;
    for (uint64_t id = 100; id < 110; id++) {
        start(&copy, id);
        seen.kept++;
        say_hello(&copy, 1, &seen);
        assert_int_equal(copy.welcome.session, 0);
        assert_false(copy.welcome.lacks);
        assert_int_equal(copy.welcome.had, seen.kept - 1);
        seen.kept--;
        stop(&copy);
    }
    start(&copy, 999);
    say_hello(&copy, 1, &seen); /* … and who has not goes on with it */
    assert_int_equal(copy.welcome.session, seen.session);
    end(&copy);
    end(&right);
}

static void who_has_followed_another_service_is_turned_away(void **state)
{
    struct world w;
    struct msg_welcome seen = begin(&w);

    (void)state;
    stop(&w);
    start(&w, 12);
    seen.cluster++;
    say_hello(&w, 1, &seen);
    assert_int_equal(w.welcome.session, 0);
    assert_int_equal(w.welcome.cluster, CLUSTER);
    assert_int_equal(w.n_notes, 1);
    seen.start = 0; /* one without a state: that is gone */
    say_hello(&w, 1, &seen);
    assert_true(w.welcome.session != 0);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agent_comes_back_to_the_state_that_it_has_seen),
        cmocka_unit_test(a_copy_turns_away_who_has_seen_more_and_changes_nothing),
        cmocka_unit_test(a_copy_turns_away_who_has_seen_a_transaction_more),
        cmocka_unit_test(who_has_followed_another_service_is_turned_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SIGHUP: what is read again by a thread, and taken over by the loop. */

#include "rendezvous/keyring.h"
#include "rendezvous/options.h"
#include "rendezvous/reloader.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/log.h"
#include "common/tls_ca.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

enum { N_ARGS = 6, TICK_MS = 5, SAID_MAX = 64 * 1024 };

struct rig {
    struct scratch scratch;
    uv_loop_t loop;
    uv_timer_t tick; /* the loop turns, whatever hangs */
    char arg[N_ARGS][600];
    char *argv[N_ARGS + 1];
    char ca[512], secret[512];
    struct rendezvous_options options;
    struct keyring keyring;
    struct reloader *reloader; /* NULL: stopped */
    unsigned n_options, n_done;
};

static char said[SAID_MAX]; /* the log */

static void hear(const char *line, size_t size)
{
    size_t len = strlen(said);

    if (len + size < sizeof(said)) {
        memcpy(said + len, line, size);
        said[len + size] = '\0';
    }
}

static unsigned n_said(const char *words)
{
    unsigned n = 0;

    for (const char *at = said; (at = strstr(at, words)); at++) {
        n++;
    }
    return n;
}

static void on_options(void *arg)
{
    struct rig *r = arg;

    r->n_options++;
}

static void on_done(void *arg)
{
    struct rig *r = arg;

    r->n_done++;
}

static void write_config(struct rig *r, const char *text)
{
    (void)scratch_text(&r->scratch, "rendezvous.yaml", text);
}

static void write_secret(struct rig *r, const char *name, const char *text)
{
    assert_int_equal(chmod(scratch_text(&r->scratch, name, text), 0600), 0);
}

/* A certificate and a folder of secrets, named on the command line. */
static void make_keys(struct rig *r)
{
    const struct identity who = {.kind = IDENTITY_CERTIFICATE,
                                 .role = IDENTITY_SERVICE};
    const char *dir = r->scratch.dir;
    struct errmsg msg = {""};

    assert_int_equal(tls_ca_make(dir, 1, &msg), 0);
    assert_int_equal(tls_ca_issue(dir, "own", &who, 1, &msg), 0);
    (void)snprintf(r->ca, sizeof(r->ca), "%s/ca.pem", dir);
    write_secret(r, "secrets/a", "aaaaaaaabbbbbbbbccccccccdddddddd");
    (void)snprintf(r->arg[0], sizeof(r->arg[0]), "ctrun-rendezvous");
    (void)snprintf(r->arg[1], sizeof(r->arg[1]), "--config=%s/rendezvous.yaml", dir);
    (void)snprintf(r->arg[2], sizeof(r->arg[2]), "--secrets=%s/secrets", dir);
    (void)snprintf(r->arg[3], sizeof(r->arg[3]), "--tls-ca=%s/ca.pem", dir);
    (void)snprintf(r->arg[4], sizeof(r->arg[4]), "--tls-cert=%s/own.pem", dir);
    (void)snprintf(r->arg[5], sizeof(r->arg[5]), "--tls-key=%s/own.key", dir);
    for (size_t i = 0; i < N_ARGS; i++) {
        r->argv[i] = r->arg[i];
    }
}

static void begin(struct rig *r, uint64_t late_ms)
{
    const struct reloader_config config = {.loop = &r->loop,
                                           .argc = N_ARGS,
                                           .argv = r->argv,
                                           .options = &r->options,
                                           .keyring = &r->keyring,
                                           .late_ms = late_ms,
                                           .on_options = on_options,
                                           .on_done = on_done,
                                           .arg = r};
    struct errmsg msg = {""};

    write_config(r, "max_connections: 7\n");
    if (rendezvous_options_parse(N_ARGS, r->argv, &r->options, &msg) < 0 ||
        keyring_open(&r->keyring, &r->options, &msg) < 0) {
        fail_msg("%s", msg.text);
    }
    r->reloader = reloader_new(&config);
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static int set_up(void **state)
{
    static struct rig r;

    r = (struct rig){.n_done = 0};
    said[0] = '\0';
    log_set_sink(hear);
    scratch_open(&r.scratch);
    assert_int_equal(uv_loop_init(&r.loop), 0);
    assert_int_equal(uv_timer_init(&r.loop, &r.tick), 0);
    assert_int_equal(uv_timer_start(&r.tick, on_tick, TICK_MS, TICK_MS), 0);
    make_keys(&r);
    *state = &r;
    return 0;
}

static void stop(struct rig *r)
{
    if (r->reloader) {
        reloader_stop(r->reloader);
        r->reloader = NULL;
    }
    if (!uv_is_closing((uv_handle_t *)&r->tick)) {
        uv_close((uv_handle_t *)&r->tick, NULL);
    }
    assert_int_equal(uv_run(&r->loop, UV_RUN_DEFAULT), 0);
}

static int tear_down(void **state)
{
    struct rig *r = *state;

    stop(r);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    keyring_close(&r->keyring);
    scratch_close(&r->scratch);
    log_set_sink(NULL);
    return 0;
}

static void run_until_done(struct rig *r, unsigned n)
{
    while (r->n_done < n) {
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    }
    assert_int_equal(r->n_done, n);
}

static void run_until_said(struct rig *r, const char *words)
{
    while (n_said(words) == 0) {
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    }
}

static void configuration_and_keys_are_read_again_and_hold(void **state)
{
    struct rig *r = *state;

    begin(r, RELOADER_LATE_MS);
    assert_int_equal(r->keyring.n_secrets, 1);
    write_config(r, "max_connections: 9\nlease_ms: 5000\n");
    write_secret(r, "secrets/b", "0123456789abcdef0123456789abcdef");
    reloader_ask(r->reloader);
    assert_int_equal(r->options.max_connections, 7);
    run_until_done(r, 1);
    assert_int_equal(r->n_options, 1);
    assert_int_equal(r->options.max_connections, 9);
    assert_int_equal(r->keyring.n_secrets, 2);
    assert_int_equal(n_said("the keys were read again secrets=2"), 1);
    assert_int_equal(
        n_said("the configuration was read again changed=max-connections\n"), 1);
    assert_int_equal(n_said("from the next start on keys=lease-ms\n"), 1);
}

static void each_reading_tells_once_of_a_file_that_is_left_out(void **state)
{
    struct rig *r = *state;

    write_secret(r, "secrets/a~", "0123456789abcdef0123456789abcdef");
    write_secret(r, "secrets/x\ny", "0123456789abcdef0123456789abcdef");
    begin(r, RELOADER_LATE_MS);
    assert_int_equal(r->keyring.n_secrets, 1);
    assert_int_equal(n_said("is left out"), 2);
    assert_int_equal(n_said("file=a~ cause=\"its name is a backup's\"\n"), 1);
    assert_int_equal(n_said("file=\"x y\" cause=\"its name has other characters"), 1);
    reloader_ask(r->reloader);
    run_until_done(r, 1);
    assert_int_equal(r->keyring.n_secrets, 1);
    assert_int_equal(n_said("is left out"), 4);
}

static void a_configuration_with_a_mistake_changes_nothing_but_keys(void **state)
{
    struct rig *r = *state;

    begin(r, RELOADER_LATE_MS);
    write_config(r, "max_connections: 9\nlease_ms: never\n");
    write_secret(r, "secrets/b", "0123456789abcdef0123456789abcdef");
    reloader_ask(r->reloader);
    run_until_done(r, 1);
    assert_int_equal(r->n_options, 0);
    assert_int_equal(r->options.max_connections, 7);
    assert_int_equal(r->keyring.n_secrets, 2);
    assert_int_equal(n_said("the configuration stays as it was"), 1);
    assert_int_equal(n_said("the keys alone are taken over cause="), 1);
    assert_int_equal(n_said("lease-ms: expects"), 1);
}

static void where_both_have_a_mistake_both_are_said_and_stay(void **state)
{
    struct rig *r = *state;

    begin(r, RELOADER_LATE_MS);
    write_config(r, "lease_ms: never\n");
    write_secret(r, "secrets/b", "too short");
    reloader_ask(r->reloader);
    run_until_done(r, 1);
    assert_int_equal(r->keyring.n_secrets, 1);
    assert_int_equal(n_said("the configuration stays as it was"), 1);
    assert_int_equal(n_said("the keys stay as they were"), 1);
    assert_int_equal(n_said("taken over"), 0);
}

static void keys_with_a_mistake_stay_as_they_were(void **state)
{
    struct rig *r = *state;
    const struct tls_context *tls;

    begin(r, RELOADER_LATE_MS);
    tls = r->keyring.tls;
    write_config(r, "max_connections: 9\n");
    write_secret(r, "secrets/b", "too short");
    reloader_ask(r->reloader);
    run_until_done(r, 1);
    assert_int_equal(r->options.max_connections, 9);
    assert_int_equal(r->keyring.n_secrets, 1);
    assert_ptr_equal(r->keyring.tls, tls);
    assert_int_equal(n_said("the keys stay as they were"), 1);
    assert_int_equal(n_said("changed=max-connections cause="), 1); /* in that line */
    assert_int_equal(n_said("read again"), 0);
}

/* systemd's credential is gone: then nobody could come any more, or everybody. */
static void who_has_keys_is_not_left_without(void **state)
{
    struct rig *r = *state;
    char path[600];

    /* NOLINTBEGIN(concurrency-mt-unsafe): one thread */
    write_secret(r, "given/ctrun-secret", "aaaaaaaabbbbbbbbccccccccdddddddd");
    (void)snprintf(path, sizeof(path), "%s", scratch_path(&r->scratch, "given"));
    assert_int_equal(setenv("CREDENTIALS_DIRECTORY", path, 1), 0);
    for (size_t i = 2; i < N_ARGS; i++) {
        (void)snprintf(r->arg[i], sizeof(r->arg[i]), "--log-level=info");
    }
    begin(r, RELOADER_LATE_MS);
    assert_int_equal(r->keyring.n_secrets, 1);
    assert_int_equal(unlink(scratch_path(&r->scratch, "given/ctrun-secret")), 0);
    reloader_ask(r->reloader);
    run_until_done(r, 1);
    assert_int_equal(unsetenv("CREDENTIALS_DIRECTORY"), 0);
    /* NOLINTEND(concurrency-mt-unsafe) */
    assert_non_null(r->keyring.tls);
    assert_int_equal(n_said("the keys stay as they were"), 1);
    assert_int_equal(n_said("there are none any more"), 1);
}

static void what_hangs_is_said_once_and_taken_over_when_it_comes(void **state)
{
    struct rig *r = *state;
    int fd;

    begin(r, 20);
    write_config(r, "max_connections: 9\n");
    fd = scratch_hang(r->ca);
    reloader_ask(r->reloader);
    run_until_said(r, "does their file system hang?");
    assert_int_equal(r->options.max_connections, 7);
    for (int i = 0; i < 3; i++) { /* one reading more, and no thread beside this one */
        reloader_ask(r->reloader);
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(n_said("does their file system hang?"), 1);
    assert_int_equal(r->n_options + r->n_done, 0);
    write_config(r, "max_connections: 11\n");
    assert_int_equal(close(fd), 0);
    run_until_done(r, 1);
    assert_int_equal(r->n_options, 2);
    assert_int_equal(r->options.max_connections, 11);
    assert_int_equal(n_said("the keys were read again"), 2);
}

/* The file is let go by the end of the process, so that its thread does not come back to
 * what the next test has. */
static void at_the_end_nobody_waits_for_what_hangs(void **state)
{
    struct rig *r = *state;
    int fd;

    begin(r, 20);
    fd = scratch_hang(r->ca);
    reloader_ask(r->reloader);
    reloader_ask(r->reloader);
    run_until_said(r, "does their file system hang?");
    while (fcntl(fd, F_GETLEASE) == F_WRLCK) { /* nobody waits for it yet */
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    }
    stop(r);
    assert_int_equal(r->n_options + r->n_done, 0);
}

/* The last one: the process ends while the thread is in the middle of it. No folder of
 * secrets, for TSan does not see that one is opened, in the place of a socket that was
 * closed. */
static void at_the_end_nobody_waits_for_what_is_under_way(void **state)
{
    struct rig *r = *state;

    (void)snprintf(r->arg[2], sizeof(r->arg[2]), "--log-level=info");
    begin(r, RELOADER_LATE_MS);
    reloader_ask(r->reloader);
    stop(r);
    assert_int_equal(r->n_options + r->n_done, 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(configuration_and_keys_are_read_again_and_hold),
        CASE(each_reading_tells_once_of_a_file_that_is_left_out),
        CASE(a_configuration_with_a_mistake_changes_nothing_but_keys),
        CASE(where_both_have_a_mistake_both_are_said_and_stay),
        CASE(keys_with_a_mistake_stay_as_they_were),
        CASE(who_has_keys_is_not_left_without),
        CASE(what_hangs_is_said_once_and_taken_over_when_it_comes),
        CASE(at_the_end_nobody_waits_for_what_hangs),
        CASE(at_the_end_nobody_waits_for_what_is_under_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

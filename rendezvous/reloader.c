/* Happy path: 1. asked; 2. a thread reads; 3. the loop takes over what it has brought;
 * 4. on_done. Asked again meanwhile → after 3, 2 once more. Nothing comes → one line, and
 * all stays as it is until something does. */

#include "rendezvous/reloader.h"

#include "rendezvous/keyring.h"
#include "rendezvous/options.h"
#include "rendezvous/reload.h"

#include "common/aside.h"
#include "common/log.h"
#include "common/mem.h"

#include <uv.h>

struct reloader {
    struct reloader_config config;
    struct aside *aside; /* NULL: nobody reads */
    bool is_asked_again; /* while somebody does */
    uv_timer_t late;
};

/* ---- the thread ---- */

/* Nobody else's while it reads. */
struct reading {
    int argc;
    char *const *argv;
    bool has_keys;
    struct rendezvous_options now; /* where the keys are, until the next start */

    struct rendezvous_options options; /* what came of it … */
    struct keyring keyring;            /* owned */
    int rv, keys_rv;
    struct errmsg msg, keys_msg; /* … and what did not */
};

static void read_both(void *data)
{
    struct reading *reading = data;

    reading->rv = rendezvous_options_parse(reading->argc, reading->argv,
                                           &reading->options, &reading->msg);
    if (!reading->has_keys) {
        return;
    }
    reading->keys_rv =
        keyring_read(&reading->now, &reading->keyring, &reading->keys_msg);
    if (reading->keys_rv == 0 && !reading->keyring.tls) {
        reading->keys_rv =
            errmsg_set(&reading->keys_msg, ERR_MISSING, "there are none any more");
    }
}

static void release(void *data)
{
    struct reading *reading = data;

    keyring_close(&reading->keyring);
    mem_free(reading);
}

/* ---- the loop ---- */

static void take_keys(const struct reloader *r, struct reading *reading)
{
    if (reading->has_keys && reading->keys_rv == 0) {
        keyring_replace(r->config.keyring, &reading->keyring);
        log_info("the keys were read again", "secrets=%zu",
                 r->config.keyring->n_secrets);
    }
}

/* A secret that was removed is not to wait until a mistake elsewhere is mended. */
static void keep_options(const struct reading *reading)
{
    bool has_taken_keys = reading->has_keys && reading->keys_rv == 0;

    log_error(has_taken_keys
                  ? "the configuration stays as it was, for the new one has a mistake; "
                    "the keys alone are taken over"
                  : "the configuration stays as it was, for the new one has a mistake",
              "cause=\"%s\"", reading->msg.text);
    if (reading->keys_rv < 0) {
        log_error("the keys stay as they were, for the new ones have a mistake",
                  "cause=\"%s\"", reading->keys_msg.text);
    }
}

static void take_over(const struct reloader *r, struct reading *reading)
{
    struct reload reload;
    const char *changed;

    take_keys(r, reading);
    if (reading->rv < 0) {
        keep_options(reading);
        return;
    }
    reload_take(r->config.options, &reading->options, &reload);
    r->config.on_options(r->config.arg);
    changed = reload.changed[0] != '\0' ? reload.changed : "none";
    if (reading->keys_rv < 0) {
        log_error("the keys stay as they were, for the new ones have a mistake; of the "
                  "rest all is taken over",
                  "changed=%s cause=\"%s\"", changed, reading->keys_msg.text);
    } else {
        log_info("the configuration was read again", "changed=%s", changed);
    }
    if (reload.fixed[0] != '\0') {
        log_warn("these keys have changed, too, but hold from the next start on",
                 "keys=%s", reload.fixed);
    }
}

static void on_late(uv_timer_t *timer)
{
    const struct reloader *r = timer->data;
    const struct rendezvous_options *o = r->config.options;

    log_warn("the configuration and the keys are not read yet, and stay as they were: "
             "does their file system hang?",
             "config=%s secrets=%s tls_cert=%s", o->config[0] ? o->config : "none",
             o->secrets[0] ? o->secrets : "none",
             o->tls_cert[0] ? o->tls_cert : "none");
}

static void begin(struct reloader *r);

static void on_read(void *arg, void *data)
{
    struct reloader *r = arg;

    r->aside = NULL;
    (void)uv_timer_stop(&r->late); /* fails never */
    take_over(r, data);
    if (r->is_asked_again) {
        begin(r);
    } else {
        r->config.on_done(r->config.arg);
    }
}

static void begin(struct reloader *r)
{
    struct reading *reading = mem_zalloc(sizeof(*reading));
    const struct aside_config config = {.loop = r->config.loop,
                                        .limit_ms = ASIDE_NO_LIMIT,
                                        .work = read_both,
                                        .release = release,
                                        .on_done = on_read,
                                        .arg = r};
    int rv = uv_timer_start(&r->late, on_late, r->config.late_ms, 0);

    ASSERT(rv == 0); /* it is not closing */
    reading->argc = r->config.argc;
    reading->argv = r->config.argv;
    reading->now = *r->config.options;
    reading->has_keys = r->config.keyring->tls != NULL;
    r->is_asked_again = false;
    r->aside = aside_run(&config, reading);
}

void reloader_ask(struct reloader *r)
{
    if (r->aside) {
        r->is_asked_again = true;
    } else {
        begin(r);
    }
}

struct reloader *reloader_new(const struct reloader_config *config)
{
    struct reloader *r = mem_zalloc(sizeof(*r));
    int rv = uv_timer_init(config->loop, &r->late);

    ASSERT(rv == 0); /* documented never to fail */
    r->late.data = r;
    r->config = *config;
    return r;
}

static void on_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

void reloader_stop(struct reloader *r)
{
    if (r->aside) {
        aside_drop(r->aside);
        r->aside = NULL;
    }
    uv_close((uv_handle_t *)&r->late, on_closed);
}

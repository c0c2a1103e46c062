#ifndef TESTS_LIB_TLS_RIG_H
#define TESTS_LIB_TLS_RIG_H

/* Two pumps, and their wires between them. */

#include "tests/lib/scratch.h"

#include "common/buf.h"
#include "common/tls.h"

#define TLS_RIG_SECRET_A "aaaaaaaabbbbbbbbccccccccdddddddd"
#define TLS_RIG_SECRET_B "0123456789abcdef0123456789abcdef"

enum { TLS_RIG_PLAIN = 1 << 20, TLS_RIG_AGENT = 0x77 };

struct tls_rig_end {
    struct tls_context *context; /* owned, all */
    struct tls_pump *pump;
    struct buf wire; /* to the other one */
    struct buf got;  /* plain */
    int rv;
};

struct tls_rig {
    struct scratch scratch;
    struct tls_rig_end client, server;
    char ca[512], cert[512], key[512]; /* the last certificate's */
};

int tls_rig_setup(void **state);
int tls_rig_teardown(void **state);

/* What an end has to show. Secrets are files, called `name`. */
struct secrets tls_rig_read_secret(struct tls_rig *r, const char *name,
                                   const char *text);
void tls_rig_make(struct tls_rig_end *e, const struct tls_config *config);
void tls_rig_give_secret(struct tls_rig *r, struct tls_rig_end *e, const char *name,
                         const char *text);
/* Of the CA in `folder`, which is made where it is not there; points into `r`. */
struct tls_config tls_rig_certificate(struct tls_rig *r, const char *folder,
                                      const char *uri, int days);
void tls_rig_give_certificate(struct tls_rig *r, struct tls_rig_end *e,
                              const char *folder, const char *uri, int days);
/* Shows another one from now on, which no context would be made with: what it was when it
 * was read it need not be for ever. */
void tls_rig_swap_certificate(struct tls_rig_end *e, const struct tls_config *by);

void tls_rig_open_end(struct tls_rig_end *e);
void tls_rig_close_end(struct tls_rig_end *e);
void tls_rig_feed(struct tls_rig_end *e, const uint8_t *data, size_t size);
/* Moves what one has for the other until there is nothing, `step` bytes at a time. */
void tls_rig_run_in_steps(struct tls_rig *r, size_t step);
void tls_rig_shake_in_steps(struct tls_rig *r, size_t step);
void tls_rig_shake(struct tls_rig *r); /* opens both and lets them greet */

void tls_rig_assert_open(const struct tls_rig *r);
void tls_rig_assert_trouble(const struct tls_rig_end *e, const char *words);
void tls_rig_say(struct tls_rig_end *e, const char *text);
void tls_rig_assert_got(struct tls_rig_end *e, const char *text);
void tls_rig_assert_talk(struct tls_rig *r);

#endif

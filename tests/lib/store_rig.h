#ifndef TESTS_LIB_STORE_RIG_H
#define TESTS_LIB_STORE_RIG_H

/* A store whose replies are recorded, and compared as bytes on the wire. Clients are
 * numbers; 1 is who acts where it does not matter. The functions are cmocka fixtures
 * and assertions. */

#include "rendezvous/store.h"

enum { STORE_RIG_REPLIES = 64, STORE_RIG_KEEP = 4096, STORE_RIG_WAITERS = 1000 };

struct store_reply {
    uint64_t client;
    uint64_t seq;
    size_t size;
    uint8_t bytes[STORE_RIG_KEEP]; /* the first ones */
};

struct store_rig {
    struct store_budget budget;
    struct store *store;
    uint64_t seq;
    size_t n_replies; /* not looked at yet */
    struct store_reply replies[STORE_RIG_REPLIES];
};

struct store_rig *store_rig_new(size_t max_bytes);
void store_rig_free(struct store_rig *rig);

/* Every test ends with nothing said that it did not look at. */
int store_rig_setup(void **state);
int store_rig_teardown(void **state);

/* Executes a request; the body's format is body.h's. */
int try_op(struct store_rig *rig, uint64_t client, enum tcpstore_op op,
           const char *format, ...);

#define OK(...)         assert_int_equal(try_op(rig, __VA_ARGS__), 0)
#define FAILS(err, ...) assert_int_equal(try_op(rig, __VA_ARGS__), err)

/* The oldest reply is this one. */
void expect_bytes(struct store_rig *rig, uint64_t client, const void *bytes,
                  size_t size);
void expect_byte(struct store_rig *rig, uint64_t client, uint8_t byte);
void expect_i64(struct store_rig *rig, uint64_t client, int64_t v);
void expect_text(struct store_rig *rig, uint64_t client, const char *text);
void expect_nothing(struct store_rig *rig);

/* What the store holds now. */
void expect_stored(struct store_rig *rig, const char *key, const char *value);
void expect_keys(struct store_rig *rig, int64_t n);

#endif

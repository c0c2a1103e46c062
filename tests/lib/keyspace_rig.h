#ifndef TESTS_LIB_KEYSPACE_RIG_H
#define TESTS_LIB_KEYSPACE_RIG_H

/* A generation's key space whose replies are recorded, their chunks put together. The
 * functions are cmocka fixtures, requests (a body's format is body.h's) and assertions:
 * the oldest reply is this one. */

#include "rendezvous/keyspace.h"
#include "rendezvous/store.h"
#include "tests/lib/shelf.h"

enum { GENERATION = 5, MAX_REPLIES = 32, SESSION = 77, MAX_CLIENTS = 4, WORKER = 3 };

struct keyspace_reply {
    uint64_t session;
    uint32_t client;
    uint64_t seq;
    uint8_t close; /* enum msg_close */
    unsigned n_chunks;
    struct buf body;
};

struct keyspace_rig {
    struct store_budget budget;
    struct keyspace *k;
    size_t n_replies;
    bool in_parts; /* the last one is not whole yet */
    struct keyspace_reply replies[MAX_REPLIES];
    bool is_kept; /* on a shelf */
    struct shelf shelf;
};

struct keyspace_rig *keyspace_rig_new(size_t max_bytes);
struct keyspace_rig *keyspace_rig_new_kept(size_t max_bytes);
/* The service is killed; another one goes on with what is on the shelf. */
void keyspace_rig_restart(struct keyspace_rig *rig);
void keyspace_rig_free(struct keyspace_rig *rig);
int keyspace_rig_setup(void **state);
int keyspace_rig_teardown(void **state);
void ask_chunk(struct keyspace_rig *rig, uint32_t client, uint64_t seq,
               enum tcpstore_op op, bool more, struct bytes body);
void ask(struct keyspace_rig *rig, uint32_t client, uint64_t seq, enum tcpstore_op op,
         const char *format, ...);
void ask_to_close(struct keyspace_rig *rig, uint32_t client, uint64_t seq);
void take_keyspace_reply(struct keyspace_rig *rig);
void replied(struct keyspace_rig *rig, uint32_t client, uint64_t seq, const void *bytes,
             size_t size);
void replied_ack(struct keyspace_rig *rig, uint32_t client, uint64_t seq);
void replied_byte(struct keyspace_rig *rig, uint32_t client, uint64_t seq,
                  uint8_t byte);
void replied_i64(struct keyspace_rig *rig, uint32_t client, uint64_t seq, int64_t v);
void replied_text(struct keyspace_rig *rig, uint32_t client, uint64_t seq,
                  const char *text);
void replied_close(struct keyspace_rig *rig, uint32_t client, uint64_t seq);
/* … as the disk is full. */
void replied_full(struct keyspace_rig *rig, uint32_t client, uint64_t seq);
void replied_nothing(struct keyspace_rig *rig);

#endif

#include "tests/lib/kept_agent.h"

#include "tests/lib/cmocka.h"

#include "common/tcpstore.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

static void fill_hello(const struct kept_agent *node, const struct kept_place *place,
                       struct msg_hello *h)
{
    *h = (struct msg_hello){
        .version = MSG_VERSION,
        .agent_id = place->number + 1,
        .session = node->session,
        .cluster = place->cluster,
        .boot = node->boot,
        .start = node->start,
        .kept = node->kept,
        .generation = node->generation,
        .group_rank = node->group_rank,
        .min_nodes = place->n,
        .max_nodes = place->n,
        .nproc = 1,
        .max_restarts = 1000000,
        .node_rank = -1,
        .last_call_ms = 3000,
    };
    (void)snprintf(h->job, sizeof(h->job), "job");
    (void)snprintf(h->host, sizeof(h->host), "host%d", (int)place->number);
}

static void fill_store(const struct kept_agent *node, const struct kept_word *word,
                       uint8_t *body, struct msg_store *m)
{
    uint64_t size = htole64(3);
    uint64_t one = htole64(1);

    memcpy(body, &size, 8);
    body[8] = 'n';
    body[9] = '/';
    body[10] = (uint8_t)('0' + node->group_rank);
    memcpy(body + 11, &one, 8);
    *m = (struct msg_store){.generation = word->generation,
                            .client = (uint32_t)word->generation,
                            .seq = word->number,
                            .op = TCPSTORE_ADD,
                            .body = {body, 19}};
}

void kept_agent_fill(const struct kept_agent *node, const struct kept_place *place,
                     const struct kept_word *word, uint8_t body[KEPT_BODY_MAX],
                     struct msg *m)
{
    m->type = word->type;
    if (word->type == MSG_HELLO) {
        fill_hello(node, place, &m->u.hello);
    } else if (word->type == MSG_JOIN) {
        m->u.join.after = word->generation;
        m->u.join.port = 1000;
        (void)snprintf(m->u.join.addr, sizeof(m->u.join.addr), "10.0.0.1");
    } else if (word->type == MSG_STORE) {
        fill_store(node, word, body, &m->u.store);
    } else if (word->type == MSG_RESUMED) {
        m->u.resumed = (struct msg_resumed){word->generation, word->number,
                                            (uint32_t)word->generation, word->step};
    } else if (word->type == MSG_COMMIT) {
        m->u.commit = (struct msg_commit){.generation = word->generation,
                                          .request = word->number,
                                          .run = (uint32_t)word->generation,
                                          .step = word->step,
                                          .hash = "abc"};
    } else if (word->type == MSG_RANK_ENDED) {
        m->u.rank_ended.generation = word->generation;
        m->u.rank_ended.rank = (uint32_t)node->group_rank;
        m->u.rank_ended.exit_code = 1;
    } else {
        assert_int_equal(word->type, MSG_STOPPED);
        m->u.stopped.generation = word->generation;
    }
}

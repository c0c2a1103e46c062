#include "rendezvous/limits.h"

#include "rendezvous/operator.h"
#include "rendezvous/progress.h"
#include "rendezvous/registry.h"
#include "rendezvous/store.h"

#include "common/check.h"

enum {
    PER_CONNECTION = 40 * 1024, /* with its session's, and TLS's, where there is */
    PER_JOB = 128 * 1024,
    /* its last report, and how it ended (others.c takes up to two bytes for one); a node
     * that is gone may have had no other */
    PER_RANK = sizeof(struct progress_rank) + sizeof(struct progress_node) + 2,
    PROGRAM = 64 * 1024 * 1024,
};

size_t limits_max_buffered(size_t store_max_bytes)
{
    return MAX(store_max_bytes, (size_t)LIMIT_AGENT_OUT);
}

/* Beside their output; a buffer that has grown may be half empty. */
static uint64_t max_of_operators(void)
{
    return (uint64_t)OPERATORS_MAX * OPERATOR_MAX_STREAMS +
           2 * (uint64_t)OPERATORS_MAX_HELD;
}

/* One reply more than the buffers' bound may be made before it is seen that it passes
 * it. */
uint64_t limits_max_memory(const struct server_limits *l)
{
    return 2 * (uint64_t)l->store_max_bytes + limits_max_buffered(l->store_max_bytes) +
           STORE_MAX_REPLY + (uint64_t)l->max_connections * PER_CONNECTION +
           (uint64_t)REGISTRY_MAX * PER_JOB + (uint64_t)LIMIT_RANKS * PER_RANK +
           max_of_operators() + PROGRAM;
}

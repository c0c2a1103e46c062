#ifndef RENDEZVOUS_RECORD_FIELDS_H
#define RENDEZVOUS_RECORD_FIELDS_H

/* PURE. What is in the values of durable records (record.h), and how they are written
 * and read: bounded, and whatever a damaged file holds is refused. Only the form is
 * checked here; what the numbers mean, by those who take them (restoring.c).
 *
 * Fields as in common/msg.h: U(bits, name), I(name), T(size, name), B(name); also a
 * number that stands for something (a job's state, a policy) is kept as it is. A state
 * lives for months: none of this follows the agents' protocol when that changes. A change
 * of a table raises its version in the map below and STATE_SCHEMA, and record_renew.h
 * learns to make the new form of the old one. */

#include "rendezvous/record.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/identity.h"

enum {
    RECORD_VALUE_MAX = 1 << 20, /* of a value with a schema, but for CLIENT's body */
    RECORD_LOOSE_MAX = 1 << 30, /* … and that */
    RECORD_NODE_NAME_MAX = MSG_ID_MAX + MSG_ADDR_MAX,
};

/* Of a job: its policy, its generation, why that ends, its commits. `lost_ms` without
 * ended_by_loss: not 0 for ending.was_unseen. */
#define RECORD_JOB_FIELDS(U, I, T, B)                       \
    U(8, state)                                             \
    U(64, generation)                                       \
    U(64, highest)                                          \
    U(64, known_world)                                      \
    U(32, n_members)                                        \
    U(32, failures)                                         \
    U(32, exit_code)                                        \
    U(8, knows_living)                                      \
    U(8, has_lost)                                          \
    U(8, has_enough)                                        \
    U(64, join_ms)                                          \
    U(64, enough_ms)                                        \
    U(64, n_arrivals)                                       \
    U(32, min_nodes) /* the shape, from here on */          \
    U(32, max_nodes)                                        \
    U(32, max_restarts)                                     \
    U(32, last_call_ms)                                     \
    U(8, on_hang)                                           \
    T(MSG_ID_MAX, host)                                     \
    U(8, is_aborting) /* the ending, from here on */        \
    U(8, is_cancelled)                                      \
    U(8, has_refused)                                       \
    U(8, has_failed)                                        \
    U(8, ended_by_loss)                                     \
    U(8, loss_counts)                                       \
    U(64, lost_ms)                                          \
    U(8, ended_by_leave)                                    \
    U(64, left_ms)                                          \
    U(8, left_for)                                          \
    U(32, hung)                                             \
    U(32, n_undone)                                         \
    U(32, refusal_code)                                     \
    U(32, max_world)                                        \
    T(MSG_TEXT_MAX, text)                                   \
    T(MSG_TEXT_MAX, stop_text)                              \
    U(8, has_resumed) /* the fence, from here on */         \
    U(32, resumed_run)                                      \
    U(64, resumed_step)                                     \
    U(32, own_run)                                          \
    U(64, own_step)                                         \
    T(MSG_HASH_MAX, own_hash)                               \
    U(32, last_run)                                         \
    U(64, last_step)                                        \
    T(MSG_HASH_MAX, last_hash)                              \
    U(32, told_failures) /* by ROUND, to all nodes alike */ \
    U(32, told_run)                                         \
    U(64, told_step)                                        \
    T(MSG_HASH_MAX, told_hash)                              \
    T(IDENTITY_OWNER_MAX, owner)

#define RECORD_NODE_FIELDS(U, I, T, B)        \
    U(8, state)                               \
    U(8, is_leaving)                          \
    U(8, is_admitted)                         \
    U(8, is_flapping)                         \
    U(8, standby_told)                        \
    U(8, waits_done)                          \
    U(64, not_before_ms)                      \
    U(64, ranked_in)                          \
    I(group_rank)                             \
    U(64, arrival)                            \
    U(64, agent_id)                           \
    T(MSG_ADDR_MAX, peer_addr)                \
    T(RECORD_DRAINED_MAX, drained)            \
    T(MSG_ID_MAX, host)                       \
    U(32, nproc)                              \
    I(node_rank)                              \
    U(64, after) /* its JOIN, from here on */ \
    T(MSG_ADDR_MAX, addr)                     \
    U(16, port)                               \
    U(32, max_world)                          \
    T(MSG_ROLE_MAX, role)

/* `outcomes`: a list of OUTCOMEs; `first`: a RANK, "" without has_rank. */
#define RECORD_CAUSE_FIELDS(U, I, T, B) \
    U(8, has_rank)                      \
    U(8, is_hang)                       \
    U(32, hung_rank)                    \
    T(MSG_ID_MAX, host)                 \
    U(32, loop_rank)                    \
    U(32, loops)                        \
    I(loop_code)                        \
    I(loop_signal)                      \
    U(64, loop_step)                    \
    B(first)                            \
    B(outcomes)

/* The end of a rank, as RANK_ENDED told it. */
#define RECORD_RANK_FIELDS(U, I, T, B) \
    U(64, generation)                  \
    U(32, rank)                        \
    U(32, local_rank)                  \
    U(32, pid)                         \
    I(exit_code)                       \
    I(signal)                          \
    U(8, stopped)                      \
    U(8, engine)                       \
    U(64, step)                        \
    U(64, ended_ms)                    \
    U(64, wall_ms)                     \
    T(MSG_TEXT_MAX, program)           \
    T(MSG_TEXT_MAX, log_path)          \
    T(MSG_TAIL_MAX, message)           \
    T(MSG_TAIL_MAX, tail)              \
    T(MSG_TEXT_MAX, error)             \
    T(MSG_TEXT_MAX, error_file)

/* `firsts`: a list of FIRSTs. */
#define RECORD_OUTCOME_FIELDS(U, I, T, B) \
    I(code)                               \
    I(signal)                             \
    T(160, error)                         \
    B(firsts)

#define RECORD_FIRST_FIELDS(U, I, T, B) \
    U(32, rank)                         \
    U(32, local_rank)                   \
    U(32, pid)                          \
    U(64, ended_ms)                     \
    T(64, host)

/* `keys`: u64 each. */
#define RECORD_MEMBERS_FIELDS(U, I, T, B) \
    U(8, has_more)                        \
    B(keys)

/* A list of FLAPPERs. */
#define RECORD_FLAPPERS_FIELDS(U, I, T, B) B(flappers)

#define RECORD_FLAPPER_FIELDS(U, I, T, B) \
    T(RECORD_NODE_NAME_MAX, name)         \
    U(32, losses)

#define RECORD_FINISHED_FIELDS(U, I, T, B) \
    U(64, generation)                      \
    U(64, noted_ms)                        \
    U(32, n_members)                       \
    U(32, min_nodes)                       \
    U(32, max_nodes)                       \
    U(32, max_restarts)                    \
    U(32, exit_code)                       \
    T(MSG_TEXT_MAX, text)                  \
    U(8, has_more)                         \
    B(keys)                                \
    T(IDENTITY_OWNER_MAX, owner)

/* `body`: the reply or, of a request that waits, itself. */
#define RECORD_CLIENT_FIELDS(U, I, T, B) \
    U(64, seq)                           \
    U(8, state) /* enum client_state */  \
    U(8, op)                             \
    B(body)

/* The last that the nodes were told of why a generation, or the job, ended. */
#define RECORD_REPORT_FIELDS(U, I, T, B)                               \
    U(64, n_arrivals) /* nodes that had come by then: they heard it */ \
    RECORD_TOLD_FIELDS(U, I, T, B)

/* … as REPORT told it. */
#define RECORD_TOLD_FIELDS(U, I, T, B) \
    U(64, generation)                  \
    U(8, final)                        \
    U(32, failures)                    \
    U(32, max_restarts)                \
    U(32, exit_code)                   \
    I(rank)                            \
    U(32, local_rank)                  \
    U(32, pid)                         \
    I(code)                            \
    I(signal)                          \
    U(64, wall_ms)                     \
    T(MSG_ID_MAX, host)                \
    T(MSG_TEXT_MAX, program)           \
    T(MSG_TEXT_MAX, log_path)          \
    T(MSG_TEXT_MAX, text)              \
    T(MSG_TAIL_MAX, message)           \
    T(MSG_TAIL_MAX, tail)              \
    T(MSG_TAIL_MAX, others)            \
    T(MSG_TEXT_MAX, error)             \
    T(MSG_TEXT_MAX, error_file)        \
    U(32, commit_run)                  \
    U(64, commit_step)                 \
    T(MSG_HASH_MAX, commit_hash)

/* Of a step, as the judge of hangs has it (progress.h). */
#define RECORD_PACE_FIELDS(U, I, T, B) \
    U(64, generation)                  \
    U(32, step_ms)

/* `points`: step, wall clock and loss (the bits of a double), u64 each. */
#define RECORD_CURVE_FIELDS(U, I, T, B)                         \
    U(64, ended) /* the number of its job's end; 0: it lives */ \
    U(64, began_ms)                                             \
    U(64, generation)                                           \
    U(64, stride)                                               \
    U(64, n_skipped)                                            \
    T(IDENTITY_OWNER_MAX, owner)                                \
    B(points)

/* A start of the service, as starts.h has it. */
#define RECORD_START_FIELDS(U, I, T, B) \
    U(64, id)                           \
    U(64, found)

/* Each with its version. */
#define RECORD_FIELDS_MAP(X) \
    X(JOB, job, 1)           \
    X(NODE, node, 1)         \
    X(CAUSE, cause, 2)       \
    X(RANK, rank, 1)         \
    X(OUTCOME, outcome, 1)   \
    X(FIRST, first, 1)       \
    X(MEMBERS, members, 1)   \
    X(FLAPPERS, flappers, 1) \
    X(FLAPPER, flapper, 1)   \
    X(FINISHED, finished, 2) \
    X(CLIENT, client, 1)     \
    X(REPORT, report, 2)     \
    X(PACE, pace, 1)         \
    X(CURVE, curve, 1)       \
    X(START, start, 1)

/* What a CLIENT's record says of the request `seq`. */
enum client_state {
    CLIENT_ANSWERED,  /* `body` is the reply; "": it was acknowledged */
    CLIENT_FORGOTTEN, /* answered; the reply could not be kept */
    CLIENT_WAITING,   /* a BARRIER that has been counted: `body` is the request */
    CLIENT_CLOSED,    /* the worker is gone */
};

#define RECORD_U(bits, field) uint##bits##_t field;
#define RECORD_I(field)       int32_t field;
#define RECORD_T(size, field) char field[size];
#define RECORD_B(field)       struct bytes field;
#define RECORD_DECLARE(NAME, name, version)                                           \
    enum { RECORD_##NAME##_VERSION = (version) };                                     \
    struct record_##name {                                                            \
        RECORD_##NAME##_FIELDS(RECORD_U, RECORD_I, RECORD_T, RECORD_B)                \
    };                                                                                \
    int record_put_##name(const struct record_##name *v, struct buf *out) MUST_CHECK; \
    int record_get_##name(struct bytes value, struct record_##name *ret) MUST_CHECK;
RECORD_FIELDS_MAP(RECORD_DECLARE)
#undef RECORD_DECLARE
#undef RECORD_U
#undef RECORD_I
#undef RECORD_T
#undef RECORD_B

/* record_put_…: appended to `out`; ERR_TOO_LARGE at its ceiling. record_get_…: bytes
 * point into `value`; ERR_UNSUPPORTED for another version, ERR_CORRUPT. */

/* Lists: takes the first value off; false when there is none, or it is cut short (then
 * the list is not empty). */
bool record_list_next(struct bytes *list, struct bytes *ret);

/* Keys that are numbers: u64, u32 and u8, as many as there are. */
struct record_key {
    uint8_t data[16];
    size_t size;
};

void record_key_u64(struct record_key *k, uint64_t v);
void record_key_u32(struct record_key *k, uint32_t v);
void record_key_u8(struct record_key *k, uint8_t v);
struct bytes record_key_bytes(const struct record_key *k);

/* Reads a big-endian number of `size` bytes off the front; ERR_CORRUPT: too short. */
int record_take_number(struct bytes *key, size_t size, uint64_t *ret) MUST_CHECK;

/* What is in a buffer, borrowed. */
static inline struct bytes record_bytes(const struct buf *b)
{
    size_t size = buf_len(b);

    return (struct bytes){size > 0 ? buf_bytes(b) : NULL, size};
}

/* The order in which records are given at the start. */
int record_compare(const struct record *a, const struct record *b);

#endif

#ifndef COMMON_MSG_H
#define COMMON_MSG_H

/* The agent protocol: agent ↔ rendezvous service, over one connection per node.
 *
 * The agent opens with the 8 bytes MSG_MAGIC; then both sides send frames:
 *
 *   u32 length of the rest | u8 type | the fields of its schema below, in order
 *
 * Integers are little-endian; text and bytes are a u32 and so many bytes.
 *
 *   agent                                service
 *     │ HELLO (who, what job, what it saw)  │
 *     │────────────────────────────────────►│
 *     │◄──────────── WELCOME (session) or REFUSED (exit code, text)
 *     │ JOIN (relay listener's address)     │   workers of the old generation are gone
 *     │────────────────────────────────────►│
 *     │◄──────────── ROUND (generation, ranks, last commit)
 *     │ STORE… RESUMED COMMIT PROGRESS      │
 *     │────────────────────────────────────►│
 *     │◄──────────── STORE_REPLY DECISION
 *     │ RANK_ENDED, STOPPED                 │
 *     │────────────────────────────────────►│
 *     │◄──────────── STOP (abort | leave), REPORT, CLOSED (exit code)
 *     │◄──────────── DRAIN, INSPECT, NOTICE │
 *     │ INSPECTED                           │
 *     │────────────────────────────────────►│
 *
 *   operator                             service
 *     │ OPERATOR (who), ASK (verb, job)     │
 *     │────────────────────────────────────►│
 *     │◄──────────── ANSWER … or REFUSED    │
 *
 *   Session      a number the service gives; a reconnecting agent brings it back. A
 *                service that does not know it says so by a new session: the old
 *                generation is over.
 *   State        of a service that keeps it: HELLO says which start of it the agent has
 *                seen, and how many transactions of that; WELCOME, what this state has
 *                of it. Where it has less it is none that the agent may follow: no
 *                session is begun, and the connection is closed.
 *   Requests     every STORE of a worker connection (`client`) has a `seq` from 1, in
 *                order; a repeated seq is answered again, not applied again.
 *                STORE_REPLY {client, seq} acknowledges it; those without a reply of
 *                their own (SET …) are acknowledged by an empty one. RESUMED and COMMIT
 *                carry a `request`, answered by DECISION.
 *   Order        is kept among STORE and STORE_CLOSE, among STORE_REPLY, and among all
 *                others of a direction, which may overtake those.
 *   Generations  every message about one names it; one of another generation is
 *                ignored, but RESUMED and COMMIT are refused by a DECISION.
 *   Ends         a rank's may be told twice before STOPPED: at once, and again when its
 *                last lines are known. */

#include "common/buf.h"

#include <stdbool.h>

#define MSG_MAGIC "ctrunA1\n" /* 8 bytes */
#define MSG_NO_ID "none"      /* of a job that nobody has named, as torchrun has it */

/* HELLO's first field, alike on both sides. It goes up with every change of what is on
 * the wire: a field, its width or limit, a message. Of a HELLO or OPERATOR of another
 * version nothing else is read, and REFUSED keeps its shape: so the two can say so to
 * each other. */
enum { MSG_VERSION = 8 };

enum {
    MSG_MAGIC_SIZE = 8,
    MSG_MAX_FRAME =
        512 * 1024, /* the length field's limit; larger closes the connection */
    MSG_MAX_CHUNK = 256 * 1024, /* of STORE and STORE_REPLY; larger values are cut */
    MSG_MAX_NODES = 16384,
    MSG_MAX_WORLD = 1 << 20,       /* ranks */
    MSG_NODE_SIZE = 4 + 4 + 2 + 4, /* of an entry of ROUND's table, beside its texts */
    MSG_ID_MAX = 256,              /* job ids, host names */
    MSG_ADDR_MAX = 64,             /* numeric addresses */
    MSG_ROLE_MAX = 128,
    MSG_HASH_MAX = 40,
    MSG_TEXT_MAX = 1024,
    MSG_TAIL_MAX = 8192, /* the last lines of a rank */
};

enum stop_mode { STOP_ABORT, STOP_LEAVE };

/* Why a worker's store connection is to be closed. */
enum msg_close {
    MSG_CLOSE_BROKEN = 1, /* its request broke the protocol, or a limit */
    MSG_CLOSE_FULL, /* it wants to store something, and the state's disk is full */
};

enum hang_policy { ON_HANG_RESTART, ON_HANG_REPORT };
enum inspect_what {
    INSPECT_HANG,
    INSPECT_LOG,        /* its standard output; of an engine all that it says */
    INSPECT_LOG_ERRORS, /* its standard error */
    INSPECT_STACK,
};

/* Whoever follows a rank is told its last words when it ends, from there on … */
enum inspect_follow {
    INSPECT_ONCE,
    INSPECT_FOLLOWS,
    INSPECT_WILL_FOLLOW, /* … and nothing now */
};

/* How STOP's text begins where an operator has ended the job. */
#define STOP_CANCELLED "cancelled by "

/* INSPECTED.state of a log: no more will come, since the rank has ended and all was
 * read; … since it has no such file; … since the node runs another generation. "": more
 * may come. */
#define INSPECT_ENDED  "ended"
#define INSPECT_NO_LOG "none"
#define INSPECT_GONE   "gone"

/* Fields: U(bits, name) unsigned, I(name) int32, T(size, name) text with its
 * terminator, B(name) bytes: borrowed from the frame when decoded, from the caller when
 * encoded. */
#define MSG_HELLO_FIELDS(U, I, T, B)                                      \
    U(16, version)                                                        \
    T(MSG_ID_MAX, job)                                                    \
    U(64, agent_id) /* random, for the life of the agent */               \
    U(64, session)  /* 0: none yet */                                     \
    U(64, cluster)                                                        \
    U(64, boot)                                                           \
    U(64, start)      /* as WELCOME had it, and how many … */           \
    U(64, kept)       /* … transactions it has heard of since */        \
    U(64, generation) /* the highest it has seen, 0: none */              \
    I(group_rank)     /* its rank there, -1: none */                      \
    U(32, failures)   /* of the job, as it knows */                       \
    U(32, commit_run) /* the last commit it knows: R, N, manifest hash */ \
    U(64, commit_step)                                                    \
    T(MSG_HASH_MAX, commit_hash)                                          \
    T(MSG_ID_MAX, host)                                                   \
    U(32, min_nodes)                                                      \
    U(32, max_nodes)                                                      \
    U(32, nproc)                                                          \
    U(32, max_restarts)                                                   \
    I(node_rank) /* --node-rank, -1: not given */                         \
    U(32, last_call_ms)                                                   \
    U(8, on_hang) /* enum hang_policy: the job's */

#define MSG_WELCOME_FIELDS(U, I, T, B)                                               \
    U(64, session) /* 0: none was begun, for its state is not the agent's */         \
    U(64, cluster)                                                                   \
    U(64, boot)                                                                      \
    U(64, start) /* random, one for each boot; 0: no state */                        \
    U(8, ephemeral)                                                                  \
    U(32, lease_ms)                                                                  \
    T(MSG_ADDR_MAX, peer_addr) /* the address the agent came from */                 \
    U(64, generation) /* the job's highest, as the service knew before this HELLO */ \
    U(64, kept)       /* transactions that are on its disk when this is read … */  \
    U(8, lacks)       /* … where HELLO's start never was … */                    \
    U(64, had)        /* … or which had so many at its end, by now or at most */

#define MSG_REFUSED_FIELDS(U, I, T, B) \
    U(32, exit_code)                   \
    T(MSG_TEXT_MAX, text)

#define MSG_JOIN_FIELDS(U, I, T, B)                                       \
    U(64, after)          /* the generation that is over here, 0: none */ \
    T(MSG_ADDR_MAX, addr) /* of the relay's fresh listener */             \
    U(16, port)                                                           \
    U(32, max_world)      /* largest usable world, 0: any */              \
    T(MSG_ROLE_MAX, role) /* of its workers, --role */

#define MSG_HEARTBEAT_FIELDS(U, I, T, B) \
    U(64, sent_ms) /* agent's monotonic clock, echoed */

#define MSG_PONG_FIELDS(U, I, T, B)                                              \
    U(64, sent_ms)                                                               \
    U(64, service_ms) /* the one clock of the job */                             \
    U(32, n_joined)   /* of the job: nodes that wait for the next generation */  \
    T(MSG_ID_MAX, also_waiting) /* another job that waits for nodes; "": none */ \
    U(64, kept)                 /* as in WELCOME */

/* `nodes`: u32 nproc, text addr, u16 port, text host (msg_node) of group rank 0, whose
 * listener may be everybody's; it alone, since it lets those in, gets all of them, in
 * order. So a round costs the service as many bytes as it has nodes, not the square. */
#define MSG_ROUND_FIELDS(U, I, T, B)                                              \
    U(64, generation)                                                             \
    U(32, failures) /* TORCHELASTIC_RESTART_COUNT */                              \
    U(32, group_rank)                                                             \
    U(32, group_world)                                                            \
    U(32, first_rank) /* global rank of its local rank 0 */                       \
    U(32, world_size) /* ranks of all nodes */                                    \
    U(64, cluster)                                                                \
    U(32, commit_run)                                                             \
    U(64, commit_step)                                                            \
    T(MSG_HASH_MAX, commit_hash) /* "": no commit yet */                          \
    B(nodes)                                                                      \
    U(32, role_first_rank) /* of its local rank 0, among the ranks of its role */ \
    U(32, role_world_size) /* ranks of that role on all nodes */

#define MSG_STANDBY_FIELDS(U, I, T, B) T(MSG_TEXT_MAX, text) /* why it waits */

#define MSG_STOP_FIELDS(U, I, T, B)                                          \
    U(64, generation)                                                        \
    U(8, mode)  /* enum stop_mode */                                         \
    U(32, hung) /* 1 + the rank that hangs, to be killed at once; 0: none */ \
    T(MSG_TEXT_MAX, text)

#define MSG_RANK_ENDED_FIELDS(U, I, T, B)                                         \
    U(64, generation)                                                             \
    U(32, rank)                                                                   \
    U(32, local_rank)                                                             \
    U(32, pid)                                                                    \
    I(exit_code)                                                                  \
    I(signal)       /* 0: it exited */                                            \
    U(8, stopped)   /* the agent had told it to stop before */                    \
    U(8, engine)    /* it had said hello on the control channel */                \
    U(64, step)     /* the last it reported; 0: none */                           \
    U(64, ended_ms) /* on the service's clock */                                  \
    U(64, wall_ms)                                                                \
    T(MSG_TEXT_MAX, program)                                                      \
    T(MSG_TEXT_MAX, log_path)                                                     \
    T(MSG_TAIL_MAX, message)    /* from error.json; "" without */                 \
    T(MSG_TAIL_MAX, tail)       /* its last lines */                              \
    T(MSG_TEXT_MAX, error)      /* of message: the exception alone, "" unknown */ \
    T(MSG_TEXT_MAX, error_file) /* where error.json is kept; "": nowhere */

#define MSG_REFUSE_FIELDS(U, I, T, B)                                         \
    U(64, generation)                                                         \
    U(32, rank)                                                               \
    U(32, exit_code)                                                          \
    U(32, max_world) /* a world of at most so many ranks would do; 0: none */ \
    T(MSG_TEXT_MAX, text)

#define MSG_STOPPED_FIELDS(U, I, T, B) \
    U(64, generation)                  \
    U(8, done) /* every worker of the node ended with 0 */

#define MSG_LEAVE_FIELDS(U, I, T, B)                  \
    U(64, generation) /* the running one, 0: none */  \
    I(signal)         /* that told the agent to go */ \
    U(64, told_ms)    /* and when, on the service's clock; 0: now */

#define MSG_RESUMED_FIELDS(U, I, T, B) \
    U(64, generation)                  \
    U(64, request)                     \
    U(32, run)                         \
    U(64, step)

#define MSG_COMMIT_FIELDS(U, I, T, B) \
    U(64, generation)                 \
    U(64, request)                    \
    U(32, run)                        \
    U(64, step)                       \
    T(MSG_HASH_MAX, hash)

#define MSG_DECISION_FIELDS(U, I, T, B) \
    U(64, generation)                   \
    U(64, request)                      \
    U(8, accepted)                      \
    T(MSG_TEXT_MAX, text)

#define MSG_PROGRESS_FIELDS(U, I, T, B)                                              \
    U(64, generation)                                                                \
    U(32, rank)                                                                      \
    U(64, step)                                                                      \
    U(32, tok_s)                                                                     \
    T(32, phase)                                                                     \
    T(32, loss)      /* a number; "": not known … */                               \
    U(64, loss_step) /* … and whose it is: the step's, or one before it */         \
    I(waits_for)     /* the rank that it waits for, -1: none, or it does not know */ \
    U(32, age_ms)    /* between the report and this message */                       \
    U(32, pid)       /* step 0 and phase "": that it has been started, no more */

#define MSG_STORE_FIELDS(U, I, T, B)                           \
    U(64, generation)                                          \
    U(32, client) /* worker connection of this agent */        \
    U(64, seq)                                                 \
    U(8, op)   /* enum tcpstore_op */                          \
    U(8, more) /* further chunks of the same request follow */ \
    B(body)    /* the request after its opcode, as on TCPStore's wire */

#define MSG_STORE_CLOSE_FIELDS(U, I, T, B) \
    U(64, generation)                      \
    U(32, client)                          \
    U(64, seq) /* cancels a wait of this seq; 0: the connection is gone */

#define MSG_STORE_REPLY_FIELDS(U, I, T, B)                                     \
    U(64, generation)                                                          \
    U(32, client)                                                              \
    U(64, seq)                                                                 \
    U(8, more)                                                                 \
    U(8, close) /* enum msg_close: close the worker's connection; 0: do not */ \
    B(body)     /* the reply, as on TCPStore's wire; may be empty */           \
    U(64, kept) /* as in WELCOME */

/* Why a generation ended, or the job: the same on every node. `others`: further failed
 * ranks, one line each. */
#define MSG_REPORT_FIELDS(U, I, T, B)                                                \
    U(64, generation)                                                                \
    U(8, final) /* 0: the job restarts */                                            \
    U(32, failures)                                                                  \
    U(32, max_restarts)                                                              \
    U(32, exit_code) /* of ctrun, when final */                                      \
    I(rank)          /* first cause; -1: no rank (a node was lost, a refusal …) */ \
    U(32, local_rank)                                                                \
    U(32, pid)                                                                       \
    I(code)                                                                          \
    I(signal)                                                                        \
    U(64, wall_ms)                                                                   \
    T(MSG_ID_MAX, host)                                                              \
    T(MSG_TEXT_MAX, program)                                                         \
    T(MSG_TEXT_MAX, log_path)                                                        \
    T(MSG_TEXT_MAX, text) /* what was decided and why, one line */                   \
    T(MSG_TAIL_MAX, message)                                                         \
    T(MSG_TAIL_MAX, tail)                                                            \
    T(MSG_TAIL_MAX, others)                                                          \
    T(MSG_TEXT_MAX, error) /* the first cause's, as RANK_ENDED has them */           \
    T(MSG_TEXT_MAX, error_file)                                                      \
    U(32, commit_run) /* the last commit, as in HELLO: another may serve next */     \
    U(64, commit_step)                                                               \
    T(MSG_HASH_MAX, commit_hash)

#define MSG_CLOSED_FIELDS(U, I, T, B) \
    U(32, exit_code)                  \
    T(MSG_TEXT_MAX, text)

/* An operator's connection begins with this in HELLO's place; `who` is for the log. */
#define MSG_OPERATOR_FIELDS(U, I, T, B)            \
    U(16, version) /* as in HELLO, first, alike */ \
    T(MSG_ID_MAX, who)

/* What an operator wants: `verb` status, ps, events, logs, cancel, drain, history …
 * (rendezvous/operator.h). */
#define MSG_ASK_FIELDS(U, I, T, B)                                        \
    U(64, request)                                                        \
    T(32, verb)                                                           \
    T(MSG_ID_MAX, job) /* "": all, or the only one */                     \
    T(MSG_ID_MAX, arg) /* drain: the node */                              \
    I(rank)            /* logs; -1: all */                                \
    U(8, follow)       /* the answer goes on until the connection ends */ \
    U(64, after)       /* events: those with a larger number */           \
    U(64, generation)  /* logs: the one that `places` are of … */       \
    B(places)          /* … where who comes again goes on: msg_place */

/* JSON, in as many pieces as it takes; lines of JSON where it follows: of logs with
 * `next`, the place of the byte behind the line in its stream. `exit_code`: of
 * the verb, with a text for people in the body when it is not 0. */
#define MSG_ANSWER_FIELDS(U, I, T, B) \
    U(64, request)                    \
    U(8, more)                        \
    U(32, exit_code)                  \
    B(body)

/* To an agent: leave as after SIGTERM, and end with 0. */
#define MSG_DRAIN_FIELDS(U, I, T, B) T(MSG_TEXT_MAX, text) /* why, for people */

/* To all agents of a job: what people should know; `detail`: further lines. */
#define MSG_NOTICE_FIELDS(U, I, T, B) \
    T(MSG_TEXT_MAX, text)             \
    T(MSG_TAIL_MAX, detail)

/* To an agent: what does the process of this rank of yours do (INSPECT_HANG), where is
 * it (INSPECT_STACK), what has it said (INSPECT_LOG: its log from `offset` on, or the
 * end of it where that is UINT64_MAX). */
#define MSG_INSPECT_FIELDS(U, I, T, B) \
    U(64, generation)                  \
    U(64, request)                     \
    U(32, rank)                        \
    U(8, what) /* enum inspect_what */ \
    U(64, offset)                      \
    U(8, follow) /* enum inspect_follow */

#define MSG_INSPECTED_FIELDS(U, I, T, B)                                     \
    U(64, generation)                                                        \
    U(64, request)                                                           \
    U(32, rank)                                                              \
    U(8, what)    /* as asked: enum inspect_what */                          \
    U(8, more)    /* further pieces of the same answer follow */             \
    T(32, state)  /* INSPECT_HANG: "T", "S futex_wait": as proc(5) has it */ \
    U(64, offset) /* INSPECT_LOG: of the body's first byte */                \
    B(body)       /* the log; the stack: what is had at once, then gdb's */

/* X(NAME, name, number) */
#define MSG_MAP(X)                  \
    X(HELLO, hello, 1)              \
    X(WELCOME, welcome, 2)          \
    X(REFUSED, refused, 3)          \
    X(JOIN, join, 4)                \
    X(HEARTBEAT, heartbeat, 5)      \
    X(PONG, pong, 6)                \
    X(ROUND, round, 7)              \
    X(STANDBY, standby, 8)          \
    X(STOP, stop, 9)                \
    X(RANK_ENDED, rank_ended, 10)   \
    X(REFUSE, refuse, 11)           \
    X(STOPPED, stopped, 12)         \
    X(LEAVE, leave, 13)             \
    X(RESUMED, resumed, 14)         \
    X(COMMIT, commit, 15)           \
    X(DECISION, decision, 16)       \
    X(PROGRESS, progress, 17)       \
    X(STORE, store, 18)             \
    X(STORE_CLOSE, store_close, 19) \
    X(STORE_REPLY, store_reply, 20) \
    X(REPORT, report, 21)           \
    X(CLOSED, closed, 22)           \
    X(OPERATOR, operator, 23)       \
    X(ASK, ask, 24)                 \
    X(ANSWER, answer, 25)           \
    X(DRAIN, drain, 26)             \
    X(INSPECT, inspect, 27)         \
    X(INSPECTED, inspected, 28)     \
    X(NOTICE, notice, 29)

#define MSG_ENUM(NAME, name, number) MSG_##NAME = (number),
enum msg_type { MSG_MAP(MSG_ENUM) };
#undef MSG_ENUM

struct bytes {
    const uint8_t *data; /* borrowed */
    size_t size;
};

#define MSG_U(bits, field) uint##bits##_t field;
#define MSG_I(field)       int32_t field;
#define MSG_T(size, field) char field[size];
#define MSG_B(field)       struct bytes field;
#define MSG_STRUCT(NAME, name, number)                  \
    struct msg_##name {                                 \
        MSG_##NAME##_FIELDS(MSG_U, MSG_I, MSG_T, MSG_B) \
    };
MSG_MAP(MSG_STRUCT)
#undef MSG_STRUCT
#undef MSG_U
#undef MSG_I
#undef MSG_T
#undef MSG_B

struct msg {
    enum msg_type type;
    union {
#define MSG_MEMBER(NAME, name, number) struct msg_##name name;
        MSG_MAP(MSG_MEMBER)
#undef MSG_MEMBER
    } u;
};

/* Appends one frame. ERR_TOO_LARGE when the buffer's ceiling or MSG_MAX_FRAME would be
 * passed; then nothing is appended. */
int msg_encode(const struct msg *m, struct buf *out) MUST_CHECK;

/* Decodes the first frame in `data`. Returns the bytes it took, 0 when the frame is not
 * complete, ERR_TOO_LARGE or ERR_PROTOCOL (unknown type, a field over its limit,
 * left-over bytes). Bytes fields point into `data`. Without a whole frame `*ret` means
 * nothing, though it may have been written. */
int msg_decode(const uint8_t *data, size_t size, struct msg *ret) MUST_CHECK;

/* Whether a process can end so; what else a peer tells of an end is made up. */
bool msg_is_end(int32_t exit_code, int32_t signal);

const char *msg_name(enum msg_type type);

/* One entry of ROUND's node table: MSG_NODE_SIZE bytes, and its texts'. */
struct msg_node {
    uint32_t nproc;
    char addr[MSG_ADDR_MAX];
    uint16_t port;
    char host[MSG_ID_MAX];
};

int msg_node_encode(const struct msg_node *node, struct buf *out) MUST_CHECK;

/* One entry of ASK's places; they are in order, by rank and stream. */
struct msg_place {
    uint32_t rank;
    uint8_t what; /* INSPECT_LOG, INSPECT_LOG_ERRORS */
    uint64_t offset;
};

int msg_place_encode(const struct msg_place *place, struct buf *out) MUST_CHECK;

/* Takes the first entry off `places`; false: there is none, or only half of one. */
bool msg_place_take(struct bytes *places, struct msg_place *ret);

/* How many entries the table of this ROUND has. */
uint32_t msg_round_nodes(const struct msg_round *m);

/* Fills `nodes` (n of them); ERR_PROTOCOL unless the table holds exactly n. */
int msg_nodes_decode(struct bytes table, struct msg_node *nodes, size_t n) MUST_CHECK;

#endif

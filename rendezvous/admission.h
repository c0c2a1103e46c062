#ifndef RENDEZVOUS_ADMISSION_H
#define RENDEZVOUS_ADMISSION_H

/* PURE. Who may be in a job, and from when on: the command lines of its nodes must fit
 * together, and a node that is lost again and again has to wait. */

#include "rendezvous/job.h"

enum { ADMISSION_MAX_TABLE = MSG_MAX_FRAME - 4096 }; /* bytes of a round's node table */
enum { ADMISSION_NAME_MAX = MSG_ID_MAX + MSG_ADDR_MAX };

/* ERR_REFUSED with one line: another --nnodes or --max-restarts than the job's, a
 * --node-rank that is taken, numbers that do not fit together. */
int admission_check(const struct job *j, const struct msg_hello *hello,
                    struct errmsg *msg) MUST_CHECK;

/* ERR_REFUSED with one line: the service has no room for so many ranks beside those of
 * all its jobs. */
int admission_check_ranks(const struct job *j, const struct msg_hello *hello,
                          struct errmsg *msg) MUST_CHECK;

/* Just after the service's start another may have been let in with the --node-rank of
 * this node, of which it was not known whether it would return. It has: which of the two
 * has no place, and in `msg` why; NULL: there is no other. Who is in the generation
 * stays. */
struct job_node *admission_find_surplus(const struct job *j, struct job_node *node,
                                        struct errmsg *msg);

/* Counts the node's entry in a round's table, with this address of it; ERR_REFUSED when
 * it does not fit beside those of the job's other nodes. */
int admission_take_room(struct job *j, struct job_node *node, const char *addr,
                        struct errmsg *msg) MUST_CHECK;
void admission_return_room(struct job *j, struct job_node *node);

/* By what a node is known again: its --node-rank, else its host and source address. */
void admission_name_node(const struct msg_hello *hello, const char *peer_addr,
                         char *ret, size_t size);

/* A node has joined: one that was lost three times without a new committed step between
 * waits (1 s doubling to 30 s), and then takes part only where MIN needs it. */
void admission_join(struct job *j, struct job_node *node);

/* The node was lost; true when that counts as a failure of the job. */
bool admission_count_loss(struct job *j, const struct job_node *node);

#endif

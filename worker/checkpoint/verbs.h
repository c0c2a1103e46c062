#ifndef WORKER_CHECKPOINT_VERBS_H
#define WORKER_CHECKPOINT_VERBS_H

/* `ctrun ckpt list|verify|show|prune`, run as `ctrun-worker ckpt …`: results on stdout,
 * one line on stderr for what went wrong. */

/* argv[0] is "ckpt". The exit code: 0; 1 something is damaged or failed; 2 the user's
 * mistake. */
int ckpt_main(int argc, char **argv);

#endif

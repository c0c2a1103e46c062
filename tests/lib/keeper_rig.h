#ifndef TESTS_LIB_KEEPER_RIG_H
#define TESTS_LIB_KEEPER_RIG_H

/* A keeper with fake workers, for cases in a child (child.h). Everything that may wait
 * has a bound; what does not hold ends the child. */

#include "launcher/keeper/keeper.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum { KEEPER_RIG_BOUND_MS = 60000, KEEPER_RIG_PIDS = 64 };

extern char keeper_rig_fake[PATH_MAX];   /* build/MODE/bin/fake-worker */
extern char keeper_rig_folder[PATH_MAX]; /* of this run */

struct keeper keeper_rig_start(void);
void keeper_rig_spawn_fds(struct keeper *k, uint32_t id, const char *const *args,
                          int out, int err);
struct keeper_event keeper_rig_receive(struct keeper *k);
pid_t keeper_rig_receive_spawned(struct keeper *k, uint32_t id);
int keeper_rig_receive_exited(struct keeper *k, uint32_t id);
bool keeper_rig_is_alive(pid_t pid);
void keeper_rig_wait_until_gone(pid_t pid); /* reaped */
void keeper_rig_wait_until_dead(pid_t pid); /* perhaps a zombie */
const char *keeper_rig_path_of(const char *name);
const char *keeper_rig_pid_action(const char *name);
size_t keeper_rig_read_pids(const char *path, pid_t *pids);
void keeper_rig_wait_for_pids(const char *name, size_t n, pid_t *pids);
size_t keeper_rig_read_end(int fd, char *text, size_t size);
void keeper_rig_capture(struct keeper *k, const char *const *args, char *text,
                        size_t size);
int keeper_rig_set_up(void **state);
int keeper_rig_tear_down(void **state);

#define SPAWN(k, id, ...) \
    keeper_rig_spawn_fds(k, id, (const char *const[]){__VA_ARGS__, NULL}, -1, -1)

#define CAPTURE(k, text, ...) \
    keeper_rig_capture(k, (const char *const[]){__VA_ARGS__, NULL}, text, sizeof(text))

#endif

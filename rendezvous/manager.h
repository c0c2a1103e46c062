#ifndef RENDEZVOUS_MANAGER_H
#define RENDEZVOUS_MANAGER_H

/* What the service manager (systemd) hears of us: readiness, a line of status, that the
 * loop lives. Without one it is all nothing. The loop's thread. */

struct uv_loop_s;
struct manager;
struct server;

/* `loop` and `server` are borrowed: they outlive it. */
int manager_new(struct uv_loop_s *loop, const struct server *server,
                struct manager **ret);

/* Serves, or serves again after manager_reloading. */
void manager_ready(struct manager *m);
void manager_reloading(struct manager *m);

/* We are ending: closes its handles and frees itself. */
void manager_stop(struct manager *m);

#endif

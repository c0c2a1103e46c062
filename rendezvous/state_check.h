#ifndef RENDEZVOUS_STATE_CHECK_H
#define RENDEZVOUS_STATE_CHECK_H

/* What a start would say of a state, without starting: folder, log, database and every
 * row are read as at a start, and nothing is changed. */

#include "common/err.h"

#include <stdbool.h>

struct state_db;
struct state_db_config;
struct state_dir;

/* As state_open does, and state_exit_code says what a start would end with. `*ret_used`:
 * a service uses it, perhaps the one that is asked about; its database is not looked at
 * then. `*ret_late`: what it fails with a start meets only as it loads the rows, which
 * it does once it has its addresses. A state that is not there yet is fine where it can
 * be made. */
int state_check(const char *path, bool *ret_used, bool *ret_late,
                struct errmsg *msg) MUST_CHECK;

/* state_db_open, as long as another program has it open and patience lasts. */
int state_open_db(struct state_dir *dir, const struct state_db_config *config,
                  struct state_db **ret, struct errmsg *msg) MUST_CHECK;

/* `msg` says what is wrong with the database; now with its path, and the way out. Returns
 * `err`. */
int state_blame(const struct state_dir *dir, int err, struct errmsg *msg);

/* For ERR_CORRUPT: there is a log, and no database that it belongs to. */
int state_blame_torn(const struct state_dir *dir, struct errmsg *msg);

#endif

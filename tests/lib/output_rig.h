#ifndef TESTS_LIB_OUTPUT_RIG_H
#define TESTS_LIB_OUTPUT_RIG_H

/* The launcher's output with a loop and pipes, for cases in a child (child.h) whose
 * stdout and stderr, the console, are files in the rig's folder. The test plays the
 * workers: it writes into `out` and `err`. */

#include "launcher/output/output.h"

#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

enum { OUTPUT_RIG_BOUND_MS = 60000 };

struct output_rig {
    uv_loop_t loop;
    struct output *output;
    int out[40], err[40]; /* the worker's ends, by slot */
    unsigned n_closed;
    bool is_stopped;
};

extern char output_rig_folder[];

/* Runs a case in a child with console.out and console.err; the folder is fresh for
 * each. */
void output_rig_run(void (*body)(void));
int output_rig_set_up(void **state);
int output_rig_tear_down(void **state);

/* In the folder. A file's whole text; its size (0: none). */
const char *output_rig_path(const char *name);
char *output_rig_contents(const char *name, size_t *ret_size);
size_t output_rig_file_size(const char *name);
void output_rig_check_file(const char *name, const char *expected, int line);
#define CHECK_FILE(name, expected) output_rig_check_file(name, expected, __LINE__)

/* The descriptor becomes that file, or FIFO. */
void output_rig_redirect(int fd, const char *name);

void output_rig_open(struct output_rig *r, bool maybe_engine, const char *log_base);
void output_rig_open_with(struct output_rig *r,
                          struct output_config *config); /* sets the loop */
void output_rig_close(struct output_rig *r); /* after output_stop has called back */

void output_rig_start(struct output_rig *r, uint32_t slot, uint32_t rank,
                      uint64_t generation);
void output_rig_say(int fd, const char *text);

/* fork, of a worker that ends with the case, however that ends. */
pid_t output_rig_fork(void);

/* The worker is gone: its ends close, then the slot does. */
void output_rig_end(struct output_rig *r, uint32_t slot);
void output_rig_on_closed(void *n_closed); /* of output_close_rank: counts */

/* Turn the loop until *count is at least n; until the file has that many bytes. */
void output_rig_turn_until(struct output_rig *r, const unsigned *count, unsigned n);
void output_rig_turn_until_size(struct output_rig *r, const char *name, size_t size);

#endif

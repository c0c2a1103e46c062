#ifndef LAUNCHER_OUTPUT_WRITER_H
#define LAUNCHER_OUTPUT_WRITER_H

/* A thread that writes, in order, what the loop hands it, so that a hung file system or
 * a stopped terminal never holds the loop. The queue is bounded by asking first: while
 * writer_is_full says so, nothing new should be appended to that file. All functions on
 * one thread, the owner's, but for writer_offer; `wake` (may be NULL) is called on the
 * writer's thread when a full queue has emptied by half, when a mark is reached, and at
 * the end. The thread is started for the first piece of work: most programs say little.
 * Where the system refuses it, whoever comes with a piece of work does it himself, and
 * that of the others who come meanwhile: then a call may wait, and `wake` comes from
 * inside it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct writer;
struct writer_file;

struct writer *writer_new(size_t limit, void (*wake)(void *arg), void *arg);

/* A file that the thread makes, with its folders, and appends to. What cannot be
 * written is one warning and is lost. A file that would grow beyond `max_size` (0: no
 * bound) becomes <path>.1, over the one before, and a new one is begun; a line is cut
 * only where it is longer than a file may be. */
struct writer_file *writer_open(struct writer *w, const char *path, uint64_t max_size);

/* A descriptor that is not ours (the console): written in whole lines, up to
 * 4 KiB of them at a time. When nobody reads any more, what follows is dropped; of
 * stdout that is one warning, of stderr there is no place to say so. Several may borrow
 * the same, so that each has a share of the queue. */
struct writer_file *writer_borrow(struct writer *w, int fd);

void writer_append(struct writer *w, struct writer_file *file, const void *data,
                   size_t size);

/* By any thread; false, and lost, when twice the limit is queued. */
bool writer_offer(struct writer *w, struct writer_file *file, const void *data,
                  size_t size);

/* After all that was appended; `file` is gone for the caller. NULL allowed. */
void writer_close(struct writer *w, struct writer_file *file);

/* True while more than the limit is queued, and of it so much by this file: who is
 * within its share goes on though another floods the writer. Then `wake` comes. */
bool writer_is_full(struct writer *w, const struct writer_file *file, size_t share);

/* A number; once everything appended so far is written, writer_marked is at least that:
 * at once, and then without `wake`, when nothing is queued. */
uint64_t writer_mark(struct writer *w);
uint64_t writer_marked(struct writer *w);

/* Grows with every piece that leaves: a writer that hangs is one that stands still. */
uint64_t writer_progress(struct writer *w);

/* Asks the thread to end after what is queued; `wake` comes, then writer_is_finished:
 * at once, without `wake`, where nobody is at work. */
void writer_end(struct writer *w);
bool writer_is_finished(struct writer *w);

/* After writer_end, when no writer_offer begins any more. Finished: joins the thread
 * and frees. Else who writes hangs: he is left alone with the memory, and never calls
 * `wake` again. */
void writer_free(struct writer *w);

#endif

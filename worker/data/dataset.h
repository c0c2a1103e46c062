#ifndef WORKER_DATA_DATASET_H
#define WORKER_DATA_DATASET_H

/* Token files as numbered samples. Sample i of a file is its tokens [i·T, i·T + T]: T +
 * 1 of them, inputs and targets shifted by one; samples never span files and are
 * numbered through in the order of the files. Formats: "text" (bytes of a file, or of
 * every file of a folder, each a file of its own, sorted by the bytes of the path),
 * "u16" (raw uint16), "llmc" (header 20240520). "auto": llmc by its magic, u16 for
 * other .bin, else text.
 *
 * Files are read with pread, never mapped (a file that is cut would be SIGBUS). A read
 * is checked against the size at open, a token against the vocabulary: errors name file
 * and offset. Thread-safe after open. */

#include "worker/config.h"
#include "worker/data/files.h"

#include "common/err.h"

#include <stdint.h>

struct dataset;

struct dataset_config {
    const struct text_list *paths; /* files, folders (recursive), globs */
    const char *format;
    const char *what;               /* "data.train", for errors */
    const char *own[FILES_OWN_MAX]; /* folders that the run writes (files.h) */
    int64_t seq_len;
    int64_t vocab;
};

/* Errors (one line, with the remedy): no such path, nothing in it, unreadable, too
 * short for one sample, a header whose count does not fit the size, a token ≥ vocab
 * among the first samples. */
int dataset_open(const struct dataset_config *config, struct dataset **ret,
                 struct errmsg *msg) MUST_CHECK;
void dataset_close(struct dataset *d); /* NULL allowed */
uint64_t dataset_samples(const struct dataset *d);
uint64_t dataset_tokens(const struct dataset *d);
bool dataset_is_text(const struct dataset *d); /* all of it: tokens are bytes */

/* tokens[0 … seq_len], seq_len + 1 of them. ERR_CORRUPT: cut, changed size, token ≥
 * vocab. */
int dataset_read(const struct dataset *d, uint64_t sample, int32_t *tokens,
                 struct errmsg *msg) MUST_CHECK;

/* [{"path": …, "bytes": …, "head": "<xxh3 of the first 64 KiB>"}, …] (mem_alloc'ed):
 * what a resume compares. */
char *dataset_identity(const struct dataset *d);

#endif

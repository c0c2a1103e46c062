#ifndef LAUNCHER_TEXTS_H
#define LAUNCHER_TEXTS_H

/* PURE. A list of texts, as exec wants it, collected in one buffer and turned into one
 * block. */

#include "common/buf.h"

void texts_init(struct buf *texts);
void texts_put(struct buf *texts, const char *text);

/* One mem_alloc'ed block of pointers (NULL at the end) and texts. Releases `texts`. */
char **texts_block(struct buf *texts);

#endif

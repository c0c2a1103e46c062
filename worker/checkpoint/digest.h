#ifndef WORKER_CHECKPOINT_DIGEST_H
#define WORKER_CHECKPOINT_DIGEST_H

/* XXH3-128 over a stream of bytes, as 32 lower-case hex digits (the canonical,
 * big-endian order that `xxhsum -H2` prints). Against damage, not against malice. */

#include "common/check.h"

#include <stdbool.h>
#include <stddef.h>

enum { DIGEST_HEX = 33 };

struct digest; /* opaque */

struct digest *digest_create(void);
void digest_free(struct digest *d);
void digest_add(struct digest *d, const void *data, size_t size);
void digest_finish(const struct digest *d, char hex[DIGEST_HEX]);

/* True for exactly 32 lower-case hex digits. */
bool digest_is_hex(const char *text);

#endif

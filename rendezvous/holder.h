#ifndef RENDEZVOUS_HOLDER_H
#define RENDEZVOUS_HOLDER_H

/* Who has the port that the service was to listen on. Blocks, for seconds at most: for
 * the error text at the start only. */

#include <stddef.h>

/* A text that says who, and what to do; cut to `size`. An agent of a running job takes
 * the port of a service that is gone: ending it would end the job. */
void holder_describe(const char *addr, int port, char *ret, size_t size);

#endif

#ifndef TESTS_LIB_ECHO_H
#define TESTS_LIB_ECHO_H

/* The least that a server can do, for benchmarks: a child process that sends back what
 * it gets, from one epoll loop. It ends with its parent. */

#include <sys/types.h>

pid_t echo_start(int *ret_port);
void echo_stop(pid_t pid);

#endif

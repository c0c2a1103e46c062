#ifndef TESTS_LIB_CHILD_H
#define TESTS_LIB_CHILD_H

/* A case that runs in a process of its own, because it changes or kills the process. It
 * checks with CHECK, since cmocka's assertions work in the parent alone. */

void child_run(void (*body)(void));

/* In the child: ends it, with the place on the stderr that the test has. */
#define CHECK(cond) ((cond) ? (void)0 : child_check_failed(__FILE__, __LINE__, #cond))

_Noreturn void child_check_failed(const char *file, int line, const char *what);

#endif

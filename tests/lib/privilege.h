#ifndef TESTS_LIB_PRIVILEGE_H
#define TESTS_LIB_PRIVILEGE_H

/* Cases that become another user, or make a network namespace of their own. */

enum { PRIVILEGE_NOBODY = 65534 }; /* a user that is not us */

/* Skips the case, with a message, where this process may not do that. */
void privilege_need(void);

#endif

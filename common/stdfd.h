#ifndef COMMON_STDFD_H
#define COMMON_STDFD_H

/* Whoever closed a standard stream gets /dev/null there: else the next descriptor that
 * is opened would take its number, and our lines would go into it. First thing in main.
 * False: there is none, and nowhere to say so, maybe. */

#include "common/err.h"

#include <stdbool.h>

bool stdfd_open_closed(void) MUST_CHECK;

#endif

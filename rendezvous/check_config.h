#ifndef RENDEZVOUS_CHECK_CONFIG_H
#define RENDEZVOUS_CHECK_CONFIG_H

/* --check-config: tries what a start would do, without serving, and prints what the
 * options mean together. */

#include "rendezvous/options.h"

/* 0, and the list is on stdout; else one line of what a start would say, and the status
 * with which it would end. A port that is taken, or a state that is used, is no mistake:
 * the service may be running. */
int check_config(const struct rendezvous_options *o, int *ret_exit_code,
                 struct errmsg *msg) MUST_CHECK;

#endif

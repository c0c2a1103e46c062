#ifndef RENDEZVOUS_CHECK_CONFIG_H
#define RENDEZVOUS_CHECK_CONFIG_H

/* --check-config: tries what a start would do, without serving, and prints what the
 * options mean together. */

#include "rendezvous/options.h"

/* 0, and the list is on stdout; else one line of what a start would say. A port that is
 * taken is no mistake: the service may be running. */
int check_config(const struct rendezvous_options *o, struct errmsg *msg) MUST_CHECK;

#endif

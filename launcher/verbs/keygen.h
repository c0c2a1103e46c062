#ifndef LAUNCHER_VERBS_KEYGEN_H
#define LAUNCHER_VERBS_KEYGEN_H

/* `ctrun keygen`: makes a secret, or a small CA with certificates, and says where to put
 * what. Needs no server. */

/* argv[0] is the verb; returns the exit code. */
int keygen_run(int argc, char *const *argv);

#endif

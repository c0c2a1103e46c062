#ifndef COMMON_VERSION_H
#define COMMON_VERSION_H

/* Of the three programs; what --version prints. */
#define CTRUN_VERSION "0.1.0"

#endif

#ifndef RENDEZVOUS_OPTIONS_H
#define RENDEZVOUS_OPTIONS_H

/* The service's command line and its configuration file: one table for both. Every key
 * of the file is also a flag; the command line goes before the file. */

#include "rendezvous/limits.h"

#include "common/err.h"
#include "common/log.h"

#include <stdbool.h>
#include <stdint.h>

struct options;

enum {
    RENDEZVOUS_MAX_LISTEN = 16,
    RENDEZVOUS_MAX_NAMES = 8,
    RENDEZVOUS_NAME_MAX = 256,
    RENDEZVOUS_PATH_MAX = 4096,
    RENDEZVOUS_MAX_OPTIONS = 64,
};

struct rendezvous_address {
    char host[64]; /* numeric */
    int port;
};

struct rendezvous_options {
    struct rendezvous_address listen[RENDEZVOUS_MAX_LISTEN];
    size_t n_listen;
    char config[RENDEZVOUS_PATH_MAX]; /* "": none */
    struct rendezvous_address http;   /* host "": status is not served */
    char http_name[RENDEZVOUS_MAX_NAMES][RENDEZVOUS_NAME_MAX];
    size_t n_http_names;
    bool http_open;
    bool insecure;
    char secrets[RENDEZVOUS_PATH_MAX]; /* file or folder; "": none … */
    char tls_ca[RENDEZVOUS_PATH_MAX];  /* all three or none */
    char tls_cert[RENDEZVOUS_PATH_MAX];
    char tls_key[RENDEZVOUS_PATH_MAX];
    bool check_config;
    bool legacy_b;
    uint32_t lease_ms;
    uint32_t max_connections;
    uint32_t store_max_mib;
    uint32_t job_max_mib;
    uint32_t accept_rate;
    char state_dir[RENDEZVOUS_PATH_MAX]; /* "": none */
    uint32_t state_reserve_mib;
    uint32_t history_days;
    uint32_t history_max_mib;
    enum log_level log_level;
    bool help;
    bool version;

    /* For each option of the table a hash of what the file has of it, 0: nothing. */
    uint64_t given[RENDEZVOUS_MAX_OPTIONS];

    /* private */
    bool is_command_line; /* being read now */
    bool listen_replaced; /* the command line's addresses stand in place of others … */
    bool names_replaced;  /* … and its names */
};

/* What follows from others is set; ERR_INVALID: some do not go together. */
int rendezvous_options_complete(struct rendezvous_options *o,
                                struct errmsg *msg) MUST_CHECK;

/* A numeric address that no other machine can connect to. */
bool rendezvous_is_loopback(const char *host);

/* ERR_INVALID (or what reading the file gave) with one line that says what to do. */
int rendezvous_options_parse(int argc, char *const *argv,
                             struct rendezvous_options *ret,
                             struct errmsg *msg) MUST_CHECK;

const struct options *rendezvous_options_table(void);

/* The bounds that they set. */
struct server_limits rendezvous_options_limits(const struct rendezvous_options *o);

/* What --help prints, mem_alloc'ed. */
char *rendezvous_options_help(void);

#endif

#ifndef RENDEZVOUS_PAGE_H
#define RENDEZVOUS_PAGE_H

/* The status page: status.html, linked into the program as it is. It shows what the API
 * says and loads nothing but that. NONCE in it stands for a number that each answer
 * makes up and also names in its policy: a script that got into the page has none. */

#define PAGE_NONCE "@NONCE@"

/* Made by the linker (Makefile). */
extern const char _binary_rendezvous_status_html_start[]; /* NOLINT: the linker's */
extern const char _binary_rendezvous_status_html_end[];   /* NOLINT: the linker's */

#endif

#include "launcher/tracer.h"

#include "launcher/proc_file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 32 }; /* processes that are looked at: `gdb --args program` is two */

/* A number of /proc/PID/status; 0: there is none, or no process. */
static pid_t number_of(pid_t pid, const char *key)
{
    char text[4096];
    const char *at =
        proc_file_read(pid, "status", text, sizeof(text)) ? strstr(text, key) : NULL;

    return at ? (pid_t)strtol(at + strlen(key), NULL, 10) : 0;
}

/* Children of the main thread, which is the one that starts programs. */
static size_t add_children(pid_t pid, pid_t list[MANY], size_t n)
{
    char name[48];
    char text[1024];
    char *at = text;
    char *end;

    (void)snprintf(name, sizeof(name), "task/%d/children", (int)pid);
    (void)proc_file_read(pid, name, text, sizeof(text));
    for (long child; n < MANY && (child = strtol(at, &end, 10)) > 0; at = end) {
        list[n++] = (pid_t)child;
    }
    return n;
}

/* Its name is anybody's to choose. */
static void describe(pid_t tracer, char ret[TRACER_SIZE])
{
    char name[17];

    (void)proc_file_read(tracer, "comm", name, sizeof(name));
    name[strcspn(name, "\n")] = '\0';
    for (char *c = name; *c != '\0'; c++) {
        *c = (char)(isalnum((unsigned char)*c) || strchr("-_.+", *c) ? *c : '?');
    }
    (void)snprintf(ret, TRACER_SIZE, "%.13s, pid %d", name, (int)tracer);
}

bool tracer_find(pid_t pid, char ret[TRACER_SIZE])
{
    pid_t list[MANY] = {pid};
    size_t n = 1;

    for (size_t i = 0; i < n; i++) {
        pid_t tracer = number_of(list[i], "\nTracerPid:");

        if (tracer != 0 && number_of(tracer, "\nPPid:") != getpid()) {
            describe(tracer, ret);
            return true;
        }
        n = add_children(list[i], list, n);
    }
    return false;
}

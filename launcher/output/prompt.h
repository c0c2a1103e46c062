#ifndef LAUNCHER_OUTPUT_PROMPT_H
#define LAUNCHER_OUTPUT_PROMPT_H

/* PURE. A debugger's prompt, at which its rank waits for what the user types: all ranks
 * of a node have the same stdin, so who waits matters. */

#include <stddef.h>

/* The prompt that the text ends with, "(Pdb)"; NULL: none that is known. */
const char *prompt_at_end(const char *text, size_t size);

#endif

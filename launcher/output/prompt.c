#include "launcher/output/prompt.h"

#include "common/check.h"

#include <string.h>

/* Each is followed by a blank. */
static const char *const prompts[] = {"(Pdb)", "(Pdb++)", "ipdb>", ">>>", "(gdb)"};

const char *prompt_at_end(const char *text, size_t size)
{
    for (size_t i = 0; i < ARRAY_LEN(prompts); i++) {
        size_t len = strlen(prompts[i]);

        if (size > len && text[size - 1] == ' ' &&
            memcmp(text + size - 1 - len, prompts[i], len) == 0) {
            return prompts[i];
        }
    }
    return NULL;
}

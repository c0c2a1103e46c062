/* A debugger's prompt at the end of what a worker has said. */

#include "launcher/output/prompt.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <string.h>

static void known_prompts_are_found_at_the_end(void **state)
{
    static const char *const texts[] = {"(Pdb) ", "x\n(Pdb++) ", "ipdb> ", ">>> ",
                                        "(gdb) "};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *prompt = prompt_at_end(texts[i], strlen(texts[i]));

        assert_non_null(prompt);
        assert_non_null(strstr(texts[i], prompt));
    }
}

static void other_ends_are_no_prompt(void **state)
{
    static const char *const texts[] = {"",         " ",     "(Pdb)",  "(Pdb) x",
                                        "(Pdb) \n", "Pdb) ", "step 7 "};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_null(prompt_at_end(texts[i], strlen(texts[i])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_prompts_are_found_at_the_end),
        cmocka_unit_test(other_ends_are_no_prompt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

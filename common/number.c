#include "common/number.h"

#include "common/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* %g leaves the point out of whole numbers: "6e-05" becomes "6.0e-05". */
static void put_point(char *text)
{
    size_t mantissa = strcspn(text, "e");

    if (memchr(text, '.', mantissa)) {
        return;
    }
    memmove(text + mantissa + 2, text + mantissa, strlen(text + mantissa) + 1);
    text[mantissa] = '.';
    text[mantissa + 1] = '0';
}

void number_format(double value, char text[NUMBER_TEXT_MAX])
{
    ASSERT(isfinite(value));
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, NUMBER_TEXT_MAX - 2, "%.*g", digits, value); /* fits */
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    put_point(text);
}

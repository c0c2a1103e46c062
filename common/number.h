#ifndef COMMON_NUMBER_H
#define COMMON_NUMBER_H

/* Numbers as text with as many digits as their bits need. */

#include <stddef.h>

enum { NUMBER_TEXT_MAX = 32 };

/* The shortest text that strtod reads back as the same finite number, always with a
 * point ("6.0e-05", "1.0"): every reader of YAML and JSON takes it for a number. */
void number_format(double value, char text[NUMBER_TEXT_MAX]);

#endif

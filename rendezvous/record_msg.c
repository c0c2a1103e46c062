#include "rendezvous/record_msg.h"

#include <string.h>

#define COPY_NUMBER(field)                                                             \
    _Static_assert(sizeof(to->field) == sizeof(from->field), "one of the same width"); \
    to->field = from->field;
#define COPY_U(bits, field) COPY_NUMBER(field)
#define COPY_I(field)       COPY_NUMBER(field)
#define COPY_T(size, field)                                  \
    _Static_assert(sizeof(to->field) == sizeof(from->field), \
                   "a text of the same size");               \
    memcpy(to->field, from->field, size);

void record_of_rank_ended(const struct msg_rank_ended *from, struct record_rank *to)
{
    RECORD_RANK_FIELDS(COPY_U, COPY_I, COPY_T, )
}

void record_to_rank_ended(const struct record_rank *from, struct msg_rank_ended *to)
{
    RECORD_RANK_FIELDS(COPY_U, COPY_I, COPY_T, )
}

void record_of_report(const struct msg_report *from, struct record_report *to)
{
    RECORD_TOLD_FIELDS(COPY_U, COPY_I, COPY_T, )
}

void record_to_report(const struct record_report *from, struct msg_report *to)
{
    RECORD_TOLD_FIELDS(COPY_U, COPY_I, COPY_T, )
}

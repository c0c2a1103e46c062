#ifndef COMMON_WIRE_FIELDS_H
#define COMMON_WIRE_FIELDS_H

/* PURE. What encoders and decoders are made of, by a table of fields as msg.h and
 * rendezvous/record_fields.h have them. Where the first are used there are `from`, a
 * struct, `out`, a buf, and `rv`, the first error; where the others are, `to`, a struct,
 * `r`, a wire_reader's address, and the constant `max_bytes`, the limit of bytes. */

#include "common/wire.h"

#define WIRE_PUT_U(bits, field) rv = rv < 0 ? rv : wire_put_u##bits(out, from->field);
#define WIRE_PUT_I(field)       rv = rv < 0 ? rv : wire_put_u32(out, (uint32_t)from->field);
#define WIRE_PUT_T(size, field) rv = rv < 0 ? rv : wire_put_text(out, from->field);
#define WIRE_PUT_B(field) \
    rv = rv < 0 ? rv : wire_put_bytes(out, from->field.data, from->field.size);

#define WIRE_GET_U(bits, field) to->field = wire_get_u##bits(r);
#define WIRE_GET_I(field)       to->field = (int32_t)wire_get_u32(r);
#define WIRE_GET_T(size, field) wire_get_text(r, to->field, size);
#define WIRE_GET_B(field) \
    to->field.data = wire_get_bytes(r, max_bytes, &to->field.size);

#endif

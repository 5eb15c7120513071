/* Small integers as elements of NCCL's types, chosen so that every reduction of them is exact in every type.
 */
#ifndef TESTS_NCCL_VALUES_H
#define TESTS_NCCL_VALUES_H

#include <nccl.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

size_t size_of_type(ncclDataType_t type);
/* 0 <= value <= 8 */
void put_value(ncclDataType_t type, void* elements, size_t index, int value);
/* -1 for what is no integer of 0 to 8. */
int get_value(ncclDataType_t type, const void* elements, size_t index);

/* What rank `rank` of `ranks` (at most 3) has at `index`: 0 to 4. */
int input_value(int rank, int ranks, size_t index);
/* Of all ranks' values at `index`. `premul`: rank r's are multiplied by scale_of(r) first, and summed. */
int reduced_value(int ranks, size_t index, ncclRedOp_t op, int premul);
int scale_of(int rank);

#ifdef __cplusplus
}
#endif

#endif

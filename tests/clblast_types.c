/* Compares backends/opencl/clblast.h with the header of CLBlast, where the build finds it. Compiled, never run. */
#define CL_TARGET_OPENCL_VERSION 120
#pragma GCC diagnostic ignored "-Wstrict-prototypes" /* of CLBlastClearCache */
#include <clblast_c.h>

#include "backends/opencl/clblast.h"

#define CHECK(name, value) _Static_assert((int)name == value, #name);
CLBLAST_VALUES(CHECK)
#undef CHECK
#define CHECK(name, arguments) _Static_assert(__builtin_types_compatible_p(CLBlastStatusCode(*) arguments, __typeof__(&name)), #name);
CLBLAST_FUNCTIONS(CHECK)
#undef CHECK
